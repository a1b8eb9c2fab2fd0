//! The words, calls and failures of one conversation, from the events of its session.

use crate::conversation::{
    CallId, ConfirmationOutcome, Event, HangUpReason, ItemId, ResponseStatus, TurnRecord,
};
use crate::llm::TokenUsage;
use crate::time::Time;
use crate::tools::ToolError;
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// The side that a line of a transcript belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Who {
    /// The caller, as the scenario or the caller's model has it.
    Caller,
    /// The caller, as the recogniser understood it.
    Heard,
    /// The agent, as far as it was heard.
    Agent,
    /// A tool.
    Tool,
    /// A remark of the simulation.
    Note,
}

impl Who {
    /// A word for transcripts.
    pub fn name(self) -> &'static str {
        match self {
            Self::Caller => "caller",
            Self::Heard => "heard",
            Self::Agent => "agent",
            Self::Tool => "tool",
            Self::Note => "note",
        }
    }
}

/// A line of a transcript.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Line {
    /// Since the beginning of the session, ms.
    pub at_ms: u64,
    /// The side.
    pub who: Who,
    /// The words, or the call.
    pub text: String,
}

/// A call that the agent made.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Made {
    call: CallId,
    pub(super) tool: String,
    pub(super) arguments: Map<String, Value>,
    /// The user said no, or nothing, to the question whether it is to run.
    pub(super) declined: bool,
    /// The error that it ended with.
    pub(super) error: Option<String>,
    /// The server refused its arguments, and nothing ran.
    pub(super) is_refused: bool,
}

/// An agent's item, and its line.
#[derive(Debug, Clone, Copy)]
struct Item {
    line: usize,
    /// Words that were announced.
    words: usize,
    cut: usize,
}

/// The words, calls and failures of a conversation.
#[derive(Debug, Clone, Default)]
pub(super) struct Log {
    lines: Vec<Line>,
    items: HashMap<ItemId, Item>,
    calls: Vec<Made>,
    usage: TokenUsage,
    turns: Vec<TurnRecord>,
    problems: Vec<String>,
    end: Option<HangUpReason>,
    /// Interruptions of the scenario, and those that came in time.
    pub(super) planned: u64,
    pub(super) interrupted: u64,
}

impl Log {
    /// The log of a conversation that could not begin.
    pub(super) fn failed(problem: String) -> Self {
        Self {
            problems: vec![problem],
            ..Self::default()
        }
    }

    /// A reason for which the conversation failed.
    pub(super) fn problem(&mut self, at_ms: u64, problem: String) {
        self.line(at_ms, Who::Note, problem.clone());
        self.problems.push(problem);
    }

    pub(super) fn line(&mut self, at_ms: u64, who: Who, text: String) {
        self.lines.push(Line { at_ms, who, text });
    }

    pub(super) fn hung_up(&mut self, reason: HangUpReason) {
        self.end = Some(reason);
    }

    pub(super) fn take(&mut self, at: Time, event: &Event) {
        let at_ms = at.as_ms();
        match event {
            Event::UserItem {
                text, spoken: true, ..
            } => self.heard(at_ms, text),
            Event::AgentItemStarted { item } => {
                let line = self.lines.len();
                self.line(at_ms, Who::Agent, String::new());
                let (words, cut) = (0, 0);
                self.items.insert(*item, Item { line, words, cut });
            }
            Event::AgentSpeech { item, text, .. } => {
                if let Some(item) = self.items.get_mut(item) {
                    item.words += text.split_whitespace().count();
                    let line = &mut self.lines[item.line].text;
                    if !line.is_empty() {
                        line.push(' ');
                    }
                    line.push_str(text);
                }
            }
            Event::AgentItemDone {
                item,
                text,
                interrupted,
            } => self.said(*item, text, *interrupted),
            Event::ItemTruncated { item, text, .. } => self.said(*item, text, true),
            Event::ToolCalled {
                call,
                name,
                arguments,
                ..
            } => {
                self.line(at_ms, Who::Tool, told(name, arguments));
                self.calls.push(Made {
                    call: *call,
                    tool: name.clone(),
                    arguments: arguments.clone(),
                    declined: false,
                    error: None,
                    is_refused: false,
                });
            }
            Event::ToolFinished { call, result, .. } => {
                let text = match result {
                    Ok(value) => value.to_string(),
                    Err(error) => format!("error: {error}"),
                };
                let made = self.calls.iter_mut().find(|made| made.call == *call);
                let name = made.map_or_else(String::new, |made| {
                    made.error = result.as_ref().err().map(ToString::to_string);
                    made.is_refused =
                        matches!(result, Err(ToolError::Arguments(_) | ToolError::Unknown(_)));
                    made.tool.clone()
                });
                self.line(at_ms, Who::Tool, format!("{name} = {text}"));
            }
            Event::ConfirmationEnded { call, outcome } => {
                if let Some(made) = self.calls.iter_mut().find(|made| made.call == *call) {
                    made.declined = *outcome != ConfirmationOutcome::Accepted;
                }
            }
            Event::ResponseDone { status, usage, .. } => {
                self.usage.add(*usage);
                if *status == ResponseStatus::Failed {
                    let failed = "the model or the voice failed; the agent apologised";
                    self.problem(at_ms, failed.into());
                }
            }
            Event::TurnRecorded(record) => self.turns.push((**record).clone()),
            Event::StageFailed { stage, message } => {
                self.line(at_ms, Who::Note, format!("{stage} failed: {message}"));
            }
            Event::AgentChanged { agent } => {
                self.line(at_ms, Who::Note, format!("the agent {agent} goes on"));
            }
            _ => {}
        }
    }

    /// The recogniser's words for the caller's, if they differ.
    fn heard(&mut self, at_ms: u64, text: &str) {
        let said = self.lines.iter().rfind(|line| line.who == Who::Caller);
        if said.is_none_or(|line| line.text != text) {
            self.line(at_ms, Who::Heard, text.to_owned());
        }
    }

    fn said(&mut self, item: ItemId, text: &str, interrupted: bool) {
        let Some(item) = self.items.get_mut(&item) else {
            return;
        };
        text.clone_into(&mut self.lines[item.line].text);
        if interrupted {
            item.cut = item.words.saturating_sub(text.split_whitespace().count());
        }
    }

    /// The words and calls, without what nobody heard.
    pub(super) fn lines(&self) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(|line| !line.text.is_empty())
    }

    /// The calls that were made: not those to which the caller did not agree.
    pub(super) fn calls(&self) -> impl Iterator<Item = &Made> {
        self.calls.iter().filter(|made| !made.declined)
    }

    /// All words of the agent that were heard, one text for what it said without a turn or a call in between.
    pub(super) fn agents_words(&self) -> Vec<String> {
        let all: Vec<&Line> = self.lines().filter(|line| line.who != Who::Note).collect();
        let stretches = all.split(|line| line.who != Who::Agent);
        let texts = stretches.map(|lines| lines.iter().map(|line| line.text.as_str()));
        texts
            .map(|texts| texts.collect::<Vec<_>>().join(" "))
            .collect()
    }

    /// The words that the agent has begun to say and that were not heard because the caller interrupted.
    pub(super) fn words_cut(&self) -> usize {
        self.items.values().map(|item| item.cut).sum()
    }

    pub(super) fn turns(&self) -> &[TurnRecord] {
        &self.turns
    }

    pub(super) fn problems(&self) -> &[String] {
        &self.problems
    }

    /// The reason for which the agent's side ended the conversation.
    pub(super) fn end(&self) -> Option<HangUpReason> {
        self.end
    }

    /// The tokens of the answers that were used.
    pub(super) fn usage(&self) -> TokenUsage {
        self.usage
    }
}

/// A call in words.
pub(super) fn told(tool: &str, arguments: &Map<String, Value>) -> String {
    let arguments = arguments
        .iter()
        .map(|(name, value)| format!("{name} = {value}"));
    let arguments: Vec<String> = arguments.collect();
    format!("{tool}({})", arguments.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::ClauseId;

    #[test]
    fn words_that_were_announced_and_not_heard_are_cut() {
        let mut log = Log::default();
        let item = ItemId(1);
        let speech = |text: &str| Event::AgentSpeech {
            item,
            clause: ClauseId(2),
            text: text.into(),
        };
        let done = |text: &str, interrupted| Event::AgentItemDone {
            item,
            text: text.into(),
            interrupted,
        };
        for event in [
            Event::AgentItemStarted { item },
            speech("One two three."),
            speech("Four five six."),
            done("One two", true),
        ] {
            log.take(Time::from_ms(5), &event);
        }
        let said = vec!["One two".to_owned()];
        assert_eq!((log.words_cut(), log.agents_words()), (4, said));
        log.take(
            Time::from_ms(9),
            &Event::ItemTruncated {
                item,
                heard: crate::time::Micros(0),
                text: "One".into(),
            },
        );
        assert_eq!((log.words_cut(), log.lines().count()), (5, 1));
    }
}
