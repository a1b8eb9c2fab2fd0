//! Whether a conversation went as its scenario wants.

use super::log::{Log, Made, told};
use super::scenario::{Ends, Scenario, WantedCall};
use super::stage::NO_REPLY;
use super::wanted::{fits, has_words};
use crate::conversation::HangUpReason;
use std::cmp::Reverse;

/// Counts of calls, and the reasons for a failure.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) right: u64,
    pub(super) wrong: u64,
    pub(super) missing: u64,
    pub(super) forbidden: u64,
    /// None if all is as it should be.
    pub(super) reasons: Vec<String>,
}

impl Verdict {
    /// Judges a conversation. `changes` says whether a tool may change something.
    pub(super) fn of(scenario: &Scenario, log: &Log, changes: impl Fn(&str) -> bool) -> Self {
        let mut verdict = Self {
            reasons: log.problems().to_vec(),
            ..Self::default()
        };
        verdict.calls(scenario, log, &changes);
        verdict.words(scenario, log);
        verdict.end(scenario, log);
        verdict
    }

    fn calls(&mut self, scenario: &Scenario, log: &Log, changes: &impl Fn(&str) -> bool) {
        let expect = &scenario.expect;
        let mut counts = vec![0; expect.calls.len()];
        let mut firsts = Vec::new();
        for made in log.calls() {
            if expect.no_calls.iter().any(|wanted| is(wanted, made)) {
                self.forbidden += 1;
                self.reasons
                    .push(format!("forbidden call: {}", shown(made)));
                continue;
            }
            let most = |wanted: &WantedCall| match wanted.times {
                Some(times) => times,
                None if changes(&wanted.tool) => 1,
                None => usize::MAX,
            };
            let all = expect.calls.iter().zip(&counts).enumerate();
            let free =
                all.filter(|(_, (wanted, count))| is(wanted, made) && **count < most(wanted));
            // One that fits many calls is left to those that fit no other.
            let best = free.min_by_key(|(_, (wanted, count))| {
                let is_satisfied = **count >= wanted.times.unwrap_or(1);
                // In order, the first one that is open.
                let width = if expect.in_order {
                    0
                } else {
                    wanted.arguments.len()
                };
                (is_satisfied, Reverse(width))
            });
            if let Some((at, _)) = best {
                if counts[at] == 0 {
                    firsts.push(at);
                }
                counts[at] += 1;
                self.right += 1;
                if made.error.as_deref() == Some(NO_REPLY) {
                    self.reasons.push(no_reply(made));
                }
                continue;
            }
            let is_named = expect.calls.iter().any(|wanted| wanted.tool == made.tool);
            if is_named || changes(&made.tool) {
                self.wrong += 1;
                let twice = expect.calls.iter().any(|wanted| is(wanted, made));
                let how = if twice {
                    "once too often"
                } else {
                    "not expected"
                };
                self.reasons
                    .push(format!("wrong call: {} ({how})", shown(made)));
            } else if made.error.as_deref() == Some(NO_REPLY) {
                self.reasons.push(no_reply(made));
            }
        }
        for (wanted, count) in expect.calls.iter().zip(&counts) {
            let missing = wanted.times.unwrap_or(1).saturating_sub(*count);
            if missing > 0 {
                self.missing += missing as u64;
                let often = if missing > 1 {
                    format!(", {missing} times")
                } else {
                    String::new()
                };
                self.reasons
                    .push(format!("missing call: {}{often}", described(wanted)));
            }
        }
        if expect.in_order && !firsts.is_sorted() {
            let order: Vec<&str> = firsts
                .iter()
                .map(|at| expect.calls[*at].tool.as_str())
                .collect();
            self.reasons.push(format!(
                "calls in another order than expected: {}",
                order.join(", ")
            ));
        }
    }

    fn words(&mut self, scenario: &Scenario, log: &Log) {
        let said = log.agents_words();
        for text in &scenario.expect.said {
            if !has_words(&said, text) {
                self.reasons
                    .push(format!("the agent did not say \"{text}\""));
            }
        }
        for text in &scenario.expect.not_said {
            if has_words(&said, text) {
                self.reasons.push(format!("the agent said \"{text}\""));
            }
        }
    }

    fn end(&mut self, scenario: &Scenario, log: &Log) {
        let ended = match log.end() {
            None => Ends::Caller,
            Some(HangUpReason::HandedOver) => Ends::Transferred,
            Some(_) => Ends::Agent,
        };
        let told = |ends| match ends {
            Ends::Caller => "the caller hangs up",
            Ends::Agent => "the agent hangs up",
            Ends::Transferred => "the caller is put through",
        };
        if let Some(wanted) = scenario.expect.ends
            && wanted != ended
        {
            let (wanted, ended) = (told(wanted), told(ended));
            self.reasons.push(format!(
                "another end than expected: {ended}; expected: {wanted}"
            ));
        }
    }
}

fn is(wanted: &WantedCall, made: &Made) -> bool {
    wanted.tool == made.tool && fits(&wanted.arguments, &made.arguments)
}

fn shown(made: &Made) -> String {
    told(&made.tool, &made.arguments)
}

fn no_reply(made: &Made) -> String {
    format!(
        "{NO_REPLY}: {}; add a [[reply]] with `when` that fits it, or name the tool in tools.real if it only reads",
        shown(made)
    )
}

fn described(wanted: &WantedCall) -> String {
    use super::wanted::Want;
    let one = |(name, want): &(String, Want)| match want {
        Want::Is(value) => format!("{name} = {value}"),
        Want::OneOf(values) => {
            let values: Vec<String> = values.iter().map(ToString::to_string).collect();
            format!("{name} = {}", values.join(" or "))
        }
        Want::Contains(words) => format!("{name} with \"{words}\""),
    };
    let arguments: Vec<String> = wanted.arguments.iter().map(one).collect();
    format!("{}({})", wanted.tool, arguments.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::{CallId, ConfirmationOutcome, Event, ItemId};
    use crate::time::Time;
    use crate::tools::ToolError;
    use serde_json::{Value, json};
    use std::path::Path;

    const SCENARIO: &str = r#"
        [[turn]]
        say = "A table."
        [expect]
        order = "given"
        said = ["booked"]
        not_said = ["sorry"]
        ends = "caller"
        [[expect.call]]
        tool = "free_tables"
        [[expect.call]]
        tool = "book"
        arguments = { day = "Friday" }
        [[expect.no_call]]
        tool = "book"
        arguments = { day = "Tuesday" }
        [[expect.no_call]]
        tool = "cancel"
    "#;

    fn log(calls: &[(&str, Value)]) -> Log {
        let mut log = Log::default();
        let item = ItemId(1_000);
        for event in [
            Event::AgentItemStarted { item },
            Event::AgentItemDone {
                item,
                text: "It is booked.".into(),
                interrupted: false,
            },
        ] {
            log.take(Time::from_ms(1), &event);
        }
        for (at, (tool, arguments)) in calls.iter().enumerate() {
            let called = Event::ToolCalled {
                item: ItemId(at as u64),
                call: CallId(at as u64),
                name: (*tool).into(),
                arguments: arguments.as_object().cloned().unwrap(),
                by_client: false,
                run: None,
            };
            log.take(Time::from_ms(2), &called);
        }
        log
    }

    fn judged(log: &Log) -> Verdict {
        let scenario = Scenario::parse(Path::new("a.toml"), SCENARIO).unwrap();
        Verdict::of(&scenario, log, |tool| tool != "free_tables")
    }

    /// The narrower of two expectations was reported as missing although its call had been made.
    #[test]
    fn a_call_meets_the_narrowest_expectation_that_is_open() {
        let scenario = |second: &str| {
            let text = format!(
                "[[turn]]\nsay = \"Hello.\"\n[[expect.call]]\ntool = \"weather\"\n[[expect.call]]\ntool = \"weather\"\n\
                 arguments = {{ place = \"{second}\" }}\n"
            );
            Scenario::parse(Path::new("a.toml"), &text).unwrap()
        };
        let log = log(&[
            ("weather", json!({"place": "Boulder"})),
            ("weather", json!({"place": "Denver"})),
        ]);
        for place in ["Boulder", "Denver"] {
            let verdict = Verdict::of(&scenario(place), &log, |_| false);
            assert_eq!(verdict.reasons, Vec::<String>::new(), "{place}");
        }
        let verdict = Verdict::of(&scenario("Rome"), &log, |_| false);
        assert_eq!(counts(&verdict), [2, 0, 1, 0]);
    }

    fn counts(verdict: &Verdict) -> [u64; 4] {
        [
            verdict.right,
            verdict.wrong,
            verdict.missing,
            verdict.forbidden,
        ]
    }

    #[test]
    fn calls_are_right_wrong_missing_or_forbidden() {
        let friday = ("book", json!({"day": "friday", "people": 4}));
        let look = ("free_tables", json!({}));
        for (calls, expected, reason) in [
            (vec![look.clone(), friday.clone()], [2, 0, 0, 0], ""),
            (
                vec![look.clone(), look.clone(), friday.clone()],
                [3, 0, 0, 0],
                "",
            ),
            (vec![look.clone()], [1, 0, 1, 0], "missing call: book"),
            (
                vec![friday.clone(), look.clone()],
                [2, 0, 0, 0],
                "another order",
            ),
            (
                vec![look.clone(), friday.clone(), friday.clone()],
                [2, 1, 0, 0],
                "once too often",
            ),
            (
                vec![
                    look.clone(),
                    ("book", json!({"day": "Sunday"})),
                    friday.clone(),
                ],
                [2, 1, 0, 0],
                "wrong call: book(day = \"Sunday\")",
            ),
            (
                vec![
                    look.clone(),
                    ("book", json!({"day": "Tuesday"})),
                    friday.clone(),
                ],
                [2, 0, 0, 1],
                "forbidden call",
            ),
            (
                vec![look.clone(), friday.clone(), ("cancel", json!({}))],
                [2, 0, 0, 1],
                "forbidden call: cancel()",
            ),
            (
                vec![look.clone(), friday.clone(), ("pay", json!({}))],
                [2, 1, 0, 0],
                "wrong call: pay() (not expected)",
            ),
        ] {
            let verdict = judged(&log(&calls));
            assert_eq!(counts(&verdict), expected, "{calls:?} {verdict:?}");
            let reasons = verdict.reasons.join("; ");
            assert_eq!(reasons.is_empty(), reason.is_empty(), "{reasons}");
            assert!(reasons.contains(reason), "{reasons}");
        }
    }

    #[test]
    fn a_call_to_which_the_caller_did_not_agree_was_not_made() {
        let mut log = log(&[
            ("free_tables", json!({})),
            ("book", json!({"day": "Friday"})),
        ]);
        let declined = Event::ConfirmationEnded {
            call: CallId(1),
            outcome: ConfirmationOutcome::Declined,
        };
        log.take(Time::from_ms(3), &declined);
        assert_eq!(counts(&judged(&log)), [1, 0, 1, 0]);
    }

    #[test]
    fn words_ends_and_replies_are_judged() {
        let calls = [
            ("free_tables", json!({})),
            ("book", json!({"day": "Friday"})),
        ];
        let mut log = log(&calls);
        assert_eq!(judged(&log).reasons, [""; 0]);
        log.hung_up(HangUpReason::AgentEnded);
        let unanswered = Event::ToolFinished {
            item: ItemId(0),
            call: CallId(0),
            result: Err(ToolError::Failed(NO_REPLY.into())),
        };
        log.take(Time::from_ms(4), &unanswered);
        let item = ItemId(2_000);
        for event in [
            Event::AgentItemStarted { item },
            Event::AgentItemDone {
                item,
                text: "Sorry!".into(),
                interrupted: false,
            },
        ] {
            log.take(Time::from_ms(5), &event);
        }
        let reasons = judged(&log).reasons;
        assert_eq!(reasons.len(), 3, "{reasons:?}");
        assert!(reasons[0].contains("add a [[reply]]"), "{reasons:?}");
        assert!(
            reasons[1].contains("the agent said \"sorry\""),
            "{reasons:?}"
        );
        assert!(reasons[2].contains("the agent hangs up"), "{reasons:?}");
    }
}
