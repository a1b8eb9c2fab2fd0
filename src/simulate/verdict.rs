//! Whether a conversation went as its scenario wants.

use super::log::{Log, Made, told};
use super::matching::{Matching, Times};
use super::scenario::{Ends, Scenario, WantedCall};
use super::stage::NO_REPLY;
use super::wanted::{fits, has_words};
use crate::conversation::HangUpReason;

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
        let mut made = Vec::new();
        for call in log.calls() {
            if expect.no_calls.iter().any(|wanted| is(wanted, call)) {
                self.forbidden += 1;
                self.reasons
                    .push(format!("forbidden call: {}", shown(call)));
            } else {
                made.push(call);
            }
        }
        let fits = |made: &&Made| {
            let all = expect.calls.iter().enumerate();
            let fitting = all.filter(|(_, wanted)| !made.is_refused && is(wanted, made));
            fitting.map(|(at, _)| at).collect()
        };
        let fits: Vec<Vec<usize>> = made.iter().map(fits).collect();
        let times = |wanted: &WantedCall| Times {
            least: wanted.times.unwrap_or(1),
            or_more: wanted.times.is_none() && !changes(&wanted.tool),
        };
        let times: Vec<Times> = expect.calls.iter().map(times).collect();
        let matching = Matching::of(&fits, &times);
        for (made, is_right) in made.iter().zip(&matching.right) {
            let is_named = expect.calls.iter().any(|wanted| wanted.tool == made.tool);
            if *is_right {
                self.right += 1;
            } else if is_named || changes(&made.tool) {
                self.wrong += 1;
                let twice = expect.calls.iter().any(|wanted| is(wanted, made));
                let how = match &made.error {
                    Some(error) if made.is_refused => error.as_str(),
                    _ if twice => "once too often",
                    _ => "not expected",
                };
                self.reasons
                    .push(format!("wrong call: {} ({how})", shown(made)));
                continue;
            }
            if made.error.as_deref() == Some(NO_REPLY) {
                self.reasons.push(no_reply(made));
            }
        }
        for (wanted, missing) in expect.calls.iter().zip(&matching.missing) {
            if *missing > 0 {
                self.missing += *missing as u64;
                let often = if *missing > 1 {
                    format!(", {missing} times")
                } else {
                    String::new()
                };
                self.reasons
                    .push(format!("missing call: {}{often}", described(wanted)));
            }
        }
        if expect.in_order && !matching.in_order {
            let right = made
                .iter()
                .zip(&matching.right)
                .filter(|(_, right)| **right);
            let mut order: Vec<&str> = right.map(|(made, _)| made.tool.as_str()).collect();
            order.dedup();
            self.reasons.push(format!(
                "calls in another order than expected: {}",
                order.join(", ")
            ));
        }
    }

    fn words(&mut self, scenario: &Scenario, log: &Log) {
        let said = log.agents_words();
        let said = |text: &str| said.iter().any(|words| has_words(words, text));
        for text in &scenario.expect.said {
            if !said(text) {
                self.reasons
                    .push(format!("the agent did not say \"{text}\""));
            }
        }
        for text in &scenario.expect.not_said {
            if said(text) {
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
    use super::super::log::Who;
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

    /// A call that never ran counted as made if the arguments that the scenario names were right.
    #[test]
    fn a_call_with_wrong_arguments_was_not_made() {
        let calls = [
            ("free_tables", json!({})),
            ("book", json!({"day": "Friday", "people": "four"})),
        ];
        let mut log = log(&calls);
        let refused = Event::ToolFinished {
            item: ItemId(1),
            call: CallId(1),
            result: Err(ToolError::Arguments("people is no number".into())),
        };
        log.take(Time::from_ms(3), &refused);
        let verdict = judged(&log);
        assert_eq!(counts(&verdict), [1, 1, 1, 0]);
        let reasons = verdict.reasons.join("; ");
        assert!(reasons.contains("people is no number"), "{reasons}");
    }

    /// The first of two calls took the only expectation that the second fits.
    #[test]
    fn a_call_leaves_an_expectation_to_one_that_fits_no_other() {
        let text = "[[turn]]\nsay = \"Hello.\"\n\
             [[expect.call]]\ntool = \"book\"\narguments = { day = { one_of = [\"Friday\", \"Sunday\"] } }\n\
             [[expect.call]]\ntool = \"book\"\narguments = { day = { one_of = [\"Sunday\", \"Monday\"] } }\n";
        let scenario = Scenario::parse(Path::new("a.toml"), text).unwrap();
        for (days, expected) in [
            (["Sunday", "Friday"], [2, 0, 0, 0]),
            (["Friday", "Sunday"], [2, 0, 0, 0]),
            (["Friday", "Friday"], [1, 1, 1, 0]),
        ] {
            let log = log(&days.map(|day| ("book", json!({ "day": day }))));
            let verdict = Verdict::of(&scenario, &log, |_| true);
            assert_eq!(counts(&verdict), expected, "{days:?} {verdict:?}");
        }
    }

    /// A read that was repeated before the next call counted as the later one, which is expected after that call.
    #[test]
    fn a_repeated_read_does_not_spoil_the_order() {
        let text = "[[turn]]\nsay = \"Hello.\"\n[expect]\norder = \"given\"\n\
                    [[expect.call]]\ntool = \"look\"\n[[expect.call]]\ntool = \"book\"\n\
                    [[expect.call]]\ntool = \"look\"\n";
        let scenario = Scenario::parse(Path::new("a.toml"), text).unwrap();
        for (tools, is_right) in [
            (&["look", "book", "look"][..], true),
            (&["look", "look", "book", "look"], true),
            (&["look", "look", "book"], false),
            (&["book", "look", "look"], false),
        ] {
            let calls: Vec<(&str, Value)> = tools.iter().map(|tool| (*tool, json!({}))).collect();
            let verdict = Verdict::of(&scenario, &log(&calls), |tool| tool == "book");
            assert_eq!(verdict.reasons.is_empty(), is_right, "{verdict:?}");
        }
    }

    /// "It is not booked." and, as the next answer, "Friday is full." counted as "booked Friday".
    #[test]
    fn words_of_two_answers_are_not_read_as_one_text() {
        let text = "[[turn]]\nsay = \"Hello.\"\n[expect]\nsaid = [\"booked Friday\"]\n";
        let scenario = Scenario::parse(Path::new("a.toml"), text).unwrap();
        for (between, is_said) in [
            (None, true),
            (Some(Who::Caller), false),
            (Some(Who::Tool), false),
        ] {
            let mut log = Log::default();
            for (number, text) in [(1, "It is not booked."), (2, "Friday is full.")] {
                let item = ItemId(number);
                log.take(Time::from_ms(1), &Event::AgentItemStarted { item });
                let done = Event::AgentItemDone {
                    item,
                    text: text.into(),
                    interrupted: false,
                };
                log.take(Time::from_ms(1), &done);
                if let Some(who) = between {
                    log.line(2, who, "x".into());
                }
            }
            let verdict = Verdict::of(&scenario, &log, |_| false);
            assert_eq!(verdict.reasons.is_empty(), is_said, "{between:?}");
        }
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
