//! The report on a call that has ended, for the operator's webhook: its turns and figures.

mod webhook;

pub use webhook::{Secret, SecretError, Webhook};

use crate::conversation::{CallId, Event, HangUpReason, ItemId, Micros, ResponseStatus, Time};
use crate::llm::TokenUsage;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The most bytes of words and values in a report. Later ones are left out, and the report says so.
const MOST_BYTES: usize = 1024 * 1024;

/// The report on one call, while it goes on.
#[derive(Debug)]
pub struct CallReport {
    about: About,
    turns: Vec<Turn>,
    bytes: usize,
    truncated: bool,
    stats: Stats,
    /// The responses that were cut short, each by the number of responses that were over before it.
    interrupted: BTreeSet<u64>,
    /// From the end of the user's speech to the first audio of the answer, ms.
    waits: Vec<u64>,
}

/// The identity of a call, and the facts on its caller.
#[derive(Debug, Clone, Serialize)]
pub struct About {
    /// Unique among the calls of all servers.
    pub id: String,
    /// The agent that it began with, if the server has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The facts on the caller, as templates see them.
    pub session: Map<String, Value>,
    /// When it began.
    pub began: jiff::Timestamp,
}

/// An entry of the report: words, or a tool call.
#[derive(Debug, Serialize)]
#[serde(tag = "role", rename_all = "snake_case")]
enum Turn {
    User {
        /// Since the beginning of the call.
        at_ms: u64,
        text: String,
        spoken: bool,
    },
    Agent {
        at_ms: u64,
        /// The words, as far as they were heard. Without any, the entry is not reported.
        text: String,
        interrupted: bool,
        #[serde(skip)]
        item: ItemId,
        /// See [`CallReport::interrupted`].
        #[serde(skip)]
        response: u64,
    },
    Tool {
        at_ms: u64,
        name: String,
        arguments: Map<String, Value>,
        /// `None` if the call has not ended, or the client ran it.
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<Value>,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        #[serde(skip)]
        call: CallId,
    },
}

impl Turn {
    fn is_reported(&self) -> bool {
        !matches!(self, Self::Agent { text, .. } if text.is_empty())
    }
}

#[derive(Debug, Default, Serialize)]
struct Stats {
    responses: u64,
    interrupted: u64,
    failed: u64,
    tool_calls: u64,
    /// Failures of stages, by their names.
    stage_failures: BTreeMap<String, u64>,
    usage: TokenUsage,
}

impl CallReport {
    /// A report on a call that has just begun.
    pub fn new(about: About) -> Self {
        Self {
            about,
            turns: Vec::new(),
            bytes: 0,
            truncated: false,
            stats: Stats::default(),
            interrupted: BTreeSet::new(),
            waits: Vec::new(),
        }
    }

    /// Records an event that happened at `at`, counted from the beginning of the call.
    pub fn observe(&mut self, at: Time, event: &Event) {
        let at_ms = at.as_ms();
        match event {
            Event::UserItem { text, spoken, .. } => self.add(
                text.len(),
                Turn::User {
                    at_ms,
                    text: text.clone(),
                    spoken: *spoken,
                },
            ),
            Event::AgentItemDone {
                item,
                text,
                interrupted,
            } => self.add(
                text.len(),
                Turn::Agent {
                    at_ms,
                    text: text.clone(),
                    interrupted: *interrupted,
                    item: *item,
                    response: self.stats.responses,
                },
            ),
            Event::ItemTruncated { item, text, .. } => self.cut(*item, text),
            Event::ToolCalled {
                call,
                name,
                arguments,
                ..
            } => {
                self.stats.tool_calls += 1;
                let size = name.len() + Value::Object(arguments.clone()).to_string().len();
                let turn = Turn::Tool {
                    at_ms,
                    name: name.clone(),
                    arguments: arguments.clone(),
                    result: None,
                    error: None,
                    call: *call,
                };
                self.add(size, turn);
            }
            Event::ToolFinished { call, result, .. } => {
                let result = result.as_ref().map_err(ToString::to_string);
                self.finish_tool(*call, result.cloned());
            }
            Event::ResponseDone {
                status,
                latency,
                usage,
                ..
            } => {
                if *status == ResponseStatus::Interrupted {
                    self.interrupted.insert(self.stats.responses);
                }
                self.stats.responses += 1;
                self.stats.failed += u64::from(*status == ResponseStatus::Failed);
                self.stats.usage.add(*usage);
                if let (Some(end), Some(first)) = (latency.speech_end, latency.first_audio) {
                    self.waits.push(first.since(end).as_ms());
                }
            }
            Event::StageFailed { stage, .. } => {
                *self.stats.stage_failures.entry(stage.clone()).or_default() += 1;
            }
            _ => {}
        }
    }

    fn add(&mut self, bytes: usize, turn: Turn) {
        if self.has_room(bytes) {
            self.turns.push(turn);
        }
    }

    fn has_room(&mut self, bytes: usize) -> bool {
        self.bytes = self.bytes.saturating_add(bytes);
        self.truncated |= self.bytes > MOST_BYTES;
        !self.truncated
    }

    /// Corrects the words of an agent's item to those that were heard.
    fn cut(&mut self, of: ItemId, heard: &str) {
        for turn in &mut self.turns {
            if let Turn::Agent {
                text,
                interrupted,
                item,
                response,
                ..
            } = turn
                && *item == of
                && text != heard
            {
                let bytes = self.bytes - text.len() + heard.len();
                if bytes > MOST_BYTES && heard.len() > text.len() {
                    self.truncated = true;
                    return;
                }
                self.bytes = bytes;
                heard.clone_into(text);
                *interrupted = true;
                self.interrupted.insert(*response);
                return;
            }
        }
    }

    fn finish_tool(&mut self, of: CallId, ended: Result<Value, String>) {
        let size = match &ended {
            Ok(value) => value.to_string().len(),
            Err(error) => error.len(),
        };
        if !self.has_room(size) {
            return;
        }
        for turn in &mut self.turns {
            if let Turn::Tool {
                call,
                result,
                error,
                ..
            } = turn
                && *call == of
            {
                match ended {
                    Ok(value) => *result = Some(value),
                    Err(why) => *error = Some(why),
                }
                return;
            }
        }
    }

    /// The report on a call that has ended after `length`. `reason`: why the server ended it; `None` if the client
    /// has gone.
    pub fn finish(mut self, length: Micros, reason: Option<HangUpReason>) -> Value {
        self.waits.sort_unstable();
        self.stats.interrupted = self.interrupted.len() as u64;
        self.turns.retain(Turn::is_reported);
        let mut stats = json!(self.stats);
        stats["first_audio_ms"] = json!({
            // By nearest rank, as `undertone stats` has it.
            "median": self.waits.get(self.waits.len().saturating_sub(1) / 2),
            "max": self.waits.last(),
        });
        json!({
            "call": self.about,
            "seconds": length.as_ms() as f64 / 1_000.0,
            "ended_by": reason,
            "turns": self.turns,
            "truncated": self.truncated,
            "stats": stats,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::{TurnId, TurnLatency};
    use crate::tools::ToolError;

    fn report() -> CallReport {
        CallReport::new(About {
            id: "c".into(),
            agent: None,
            session: Map::new(),
            began: jiff::Timestamp::UNIX_EPOCH,
        })
    }

    fn said(text: &str) -> Event {
        Event::UserItem {
            item: ItemId(1),
            text: text.into(),
            spoken: true,
        }
    }

    fn answered(item: u64, text: &str) -> Event {
        Event::AgentItemDone {
            item: ItemId(item),
            text: text.into(),
            interrupted: false,
        }
    }

    fn cut(item: u64, text: &str) -> Event {
        Event::ItemTruncated {
            item: ItemId(item),
            heard: Micros(0),
            text: text.into(),
        }
    }

    /// A response whose first audio came `wait` ms after the end of the user's speech.
    fn done(status: ResponseStatus, wait: u64) -> Event {
        Event::ResponseDone {
            turn: TurnId(1),
            status,
            latency: Box::new(TurnLatency {
                speech_end: Some(Time::from_ms(700)),
                first_audio: Some(Time::from_ms(700 + wait)),
                ..TurnLatency::default()
            }),
            usage: TokenUsage::default(),
        }
    }

    fn called(call: u64) -> Event {
        Event::ToolCalled {
            item: ItemId(2),
            call: CallId(call),
            name: "clock".into(),
            arguments: Map::new(),
            by_client: false,
            run: None,
        }
    }

    #[test]
    fn it_has_what_was_said_and_done_in_order() {
        let mut report = report();
        report.observe(Time::from_ms(900), &said("What time is it?"));
        report.observe(Time::from_ms(950), &called(1));
        let result = Ok(json!("noon"));
        let finished = Event::ToolFinished {
            item: ItemId(2),
            call: CallId(1),
            result,
        };
        report.observe(Time::from_ms(990), &finished);
        report.observe(Time::from_ms(1_000), &called(2));
        let failed = Event::ToolFinished {
            item: ItemId(3),
            call: CallId(2),
            result: Err(ToolError::Failed("it is broken".into())),
        };
        report.observe(Time::from_ms(1_010), &failed);
        let answer = Event::AgentItemDone {
            item: ItemId(4),
            text: "It is".into(),
            interrupted: true,
        };
        report.observe(Time::from_ms(2_000), &answer);
        report.observe(
            Time::from_ms(2_000),
            &done(ResponseStatus::Interrupted, 500),
        );
        let told = report.finish(Micros::from_ms(3_500), None);
        assert_eq!(told["seconds"], 3.5);
        let turns = told["turns"].as_array().unwrap();
        let roles: Vec<&str> = turns.iter().map(|t| t["role"].as_str().unwrap()).collect();
        assert_eq!(roles, ["user", "tool", "tool", "agent"]);
        assert_eq!(turns[0]["at_ms"], 900);
        assert_eq!(turns[1]["result"], "noon");
        assert!(turns[2]["error"].as_str().unwrap().contains("broken"));
        assert_eq!(turns[3]["interrupted"], true);
        assert_eq!(told["stats"]["first_audio_ms"]["median"], 500);
        assert_eq!(told["stats"]["interrupted"], 1);
        assert_eq!(told["truncated"], false);
    }

    /// Words were reported that had been sent, and that the caller's own stopped.
    #[test]
    fn words_that_were_sent_and_not_heard_are_taken_back() {
        let mut report = report();
        let completed = done(ResponseStatus::Completed, 500);
        for event in [
            answered(1, "It is noon."),
            answered(2, "Anything else?"),
            completed.clone(),
            cut(1, "It is"),
            cut(2, ""),
            answered(3, "It is noon."),
            completed.clone(),
            // The caller heard all of it.
            cut(3, "It is noon."),
            answered(4, "Well then"),
            // Cut once by the estimate, and then as the client heard it.
            cut(4, ""),
            done(ResponseStatus::Interrupted, 500),
            cut(4, "Well"),
        ] {
            report.observe(Time(0), &event);
        }
        let told = report.finish(Micros(0), None);
        let turns = told["turns"].as_array().unwrap();
        let said: Vec<_> = turns
            .iter()
            .map(|turn| (turn["text"].as_str().unwrap(), turn["interrupted"] == true))
            .collect();
        let heard = [("It is", true), ("It is noon.", false), ("Well", true)];
        assert_eq!(said, heard);
        assert_eq!(told["stats"]["interrupted"], 2);
        assert!(turns[0].get("item").is_none() && turns[0].get("response").is_none());
    }

    /// It was the greater of two.
    #[test]
    fn the_median_is_that_of_the_statistics() {
        for (waits, median) in [
            (&[400, 900][..], 400),
            (&[900, 400, 500], 500),
            (&[4, 3, 2, 1], 2),
        ] {
            let mut report = report();
            for wait in waits {
                report.observe(Time(0), &done(ResponseStatus::Completed, *wait));
            }
            let told = report.finish(Micros(0), None);
            assert_eq!(told["stats"]["first_audio_ms"]["median"], median);
        }
    }

    #[test]
    fn an_endless_call_has_an_end() {
        let mut report = report();
        for _ in 0..40 {
            report.observe(Time(0), &said(&"word ".repeat(10_000)));
        }
        let told = report.finish(Micros(0), Some(HangUpReason::TooLong));
        assert_eq!(told["truncated"], true);
        assert_eq!(told["ended_by"], "too_long");
        assert!(told.to_string().len() <= MOST_BYTES + 4_096);
    }
}
