//! How often the exact next call is predicted, on conversations of tasks that were not learnt.

use super::conversations::Conversation;
use super::learner::Patterns;
use super::origin::Schemas;
use jiff::civil::Date;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The most calls that are predicted.
const MOST: usize = 3;

/// How often the next call was predicted, with its tool and all its arguments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct NextCall {
    /// Calls that were to be predicted.
    pub calls: u32,
    /// The first prediction was the call.
    pub first: u32,
    /// One of the first three was.
    pub among_three: u32,
    /// Predictions that were made first: what the hits of `first` cost.
    pub first_starts: u32,
    /// The first three predictions: what the hits of `among_three` cost.
    pub three_starts: u32,
}

impl NextCall {
    fn add(&mut self, hit: Option<usize>, predicted: usize) {
        let predicted = u32::try_from(predicted).unwrap_or(u32::MAX);
        self.calls += 1;
        self.first += u32::from(hit == Some(0));
        self.among_three += u32::from(hit.is_some());
        self.first_starts += predicted.min(1);
        self.three_starts += predicted;
    }

    fn share(self, of: u32) -> f64 {
        f64::from(of) / f64::from(self.calls.max(1))
    }

    /// The share of calls that the first prediction was.
    pub fn first_share(self) -> f64 {
        self.share(self.first)
    }

    /// The share of calls that were among the first three.
    pub fn three_share(self) -> f64 {
        self.share(self.among_three)
    }
}

/// The figures of a data set.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Over the calls of tools that may run early.
    pub may_run_early: NextCall,
    /// By tool.
    pub tools: BTreeMap<String, NextCall>,
}

/// Learns from the conversations of all tasks but one and predicts each call of that one, for every task. What was
/// before a call is known, with the user's words; the call itself is not. Only calls of tools that may run early count,
/// and only those are predicted, because no others are started.
pub fn next_calls(
    conversations: &[Conversation],
    schemas: &Schemas,
    today: Date,
    may_run_early: impl Fn(&str) -> bool,
) -> Figures {
    let tasks: BTreeSet<&str> = conversations.iter().map(|one| one.task.as_str()).collect();
    let mut figures = Figures::default();
    for task in tasks {
        let patterns = learnt(
            conversations.iter().filter(|one| one.task != task),
            schemas,
            today,
        );
        for conversation in conversations.iter().filter(|one| one.task == task) {
            conversation.follow(today, schemas, |trail, tool, arguments| {
                if !may_run_early(tool) {
                    return;
                }
                let guesses = patterns.predict(trail, schemas, &may_run_early, MOST);
                let same =
                    |guess: &super::Guess| guess.tool == tool && guess.arguments == *arguments;
                let hit = guesses.iter().position(same);
                figures.may_run_early.add(hit, guesses.len());
                figures
                    .tools
                    .entry(tool.to_owned())
                    .or_default()
                    .add(hit, guesses.len());
            });
        }
    }
    figures
}

/// The patterns of some conversations.
pub fn learnt<'a>(
    conversations: impl IntoIterator<Item = &'a Conversation>,
    schemas: &Schemas,
    today: Date,
) -> Patterns {
    let mut patterns = Patterns::default();
    for conversation in conversations {
        patterns.study(conversation, schemas, today);
    }
    patterns
}

impl Patterns {
    /// Learns from a conversation that is over.
    pub fn study(&mut self, conversation: &Conversation, schemas: &Schemas, today: Date) {
        let number = self.begin();
        let trail = conversation.follow(today, schemas, |trail, tool, arguments| {
            self.learn(number, trail, schemas, tool, arguments);
        });
        self.ended(&trail);
    }
}
