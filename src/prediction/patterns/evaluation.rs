//! Measures how often the exact next call is predicted, on conversations of tasks that were not learned.

use super::conversations::PastConversation;
use super::learner::Patterns;
use super::origin::Schemas;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;

/// The most calls that are predicted at a point of a conversation.
pub const MOST: usize = 3;

/// A tool, and its arguments.
pub type Call = (String, Map<String, Value>);

/// How often the next call was predicted, with its tool and all its arguments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NextCall {
    /// Calls that were to be predicted.
    pub calls: u32,
    /// Those that were among the first one, two and three predictions.
    pub hits: [u32; MOST],
    /// Those predictions, each a start: what the hits cost.
    pub starts: [u32; MOST],
}

impl NextCall {
    /// One call: which prediction it was, and how many there were.
    fn add(&mut self, hit: Option<usize>, predicted: usize) {
        self.calls += 1;
        for most in 1..=MOST {
            self.hits[most - 1] += u32::from(hit.is_some_and(|hit| hit < most));
            self.starts[most - 1] += predicted.min(most) as u32;
        }
    }

    /// The share of calls that were among the first `most` predictions, 0..1.
    pub fn share(&self, most: usize) -> f64 {
        f64::from(self.hits[most - 1]) / f64::from(self.calls.max(1))
    }

    /// The predictions a call, of the first `most`.
    pub fn starts(&self, most: usize) -> f64 {
        f64::from(self.starts[most - 1]) / f64::from(self.calls.max(1))
    }

    /// The share of calls that would have been predicted with this number of starts a call, interpolated between two
    /// numbers of predictions.
    pub fn share_at(&self, starts: f64) -> f64 {
        let (mut from, mut hits) = (0.0, 0.0);
        for most in 1..=MOST {
            let (to, share) = (self.starts(most), self.share(most));
            if starts < to {
                return hits + (share - hits) * (starts - from) / (to - from);
            }
            (from, hits) = (to, share);
        }
        hits
    }
}

impl AddAssign for NextCall {
    fn add_assign(&mut self, other: Self) {
        self.calls += other.calls;
        for at in 0..MOST {
            self.hits[at] += other.hits[at];
            self.starts[at] += other.starts[at];
        }
    }
}

/// The figures of a data set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Figures {
    /// By tool.
    pub tools: BTreeMap<String, NextCall>,
    /// By the task that was not learnt.
    pub tasks: BTreeMap<String, NextCall>,
}

impl Figures {
    /// Over all calls.
    pub fn all(&self) -> NextCall {
        let mut all = NextCall::default();
        self.tasks.values().for_each(|one| all += *one);
        all
    }
}

/// Learns from the conversations of all tasks but one and predicts each call of that one, for every task. `learn`
/// returns what predicts: for each call of a conversation, in order, at most three calls, the likeliest first, from
/// what was before it. Only calls of tools that may run early count, because no others are started.
pub fn next_calls<'a, P>(
    conversations: &'a [PastConversation],
    may_run_early: impl Fn(&str) -> bool,
    learn: impl Fn(&[&'a PastConversation]) -> P,
) -> Figures
where
    P: Fn(&PastConversation) -> Vec<Vec<Call>>,
{
    let tasks: BTreeSet<&str> = conversations.iter().map(|one| one.task.as_str()).collect();
    let mut figures = Figures::default();
    for task in tasks {
        let (of_task, others): (Vec<_>, Vec<_>) =
            conversations.iter().partition(|one| one.task == task);
        let predict = learn(&others);
        for conversation in of_task {
            for (call, guesses) in conversation.calls().zip(predict(conversation)) {
                if may_run_early(call.0) {
                    let same = |(tool, arguments): &Call| (tool.as_str(), arguments) == call;
                    let hit = guesses.iter().position(same);
                    let predicted = guesses.len();
                    let of_tool = figures.tools.entry(call.0.to_owned()).or_default();
                    of_tool.add(hit, predicted);
                    let of_task = figures.tasks.entry(task.to_owned()).or_default();
                    of_task.add(hit, predicted);
                }
            }
        }
    }
    figures
}

/// The patterns of some conversations.
pub fn learnt<'a>(
    conversations: impl IntoIterator<Item = &'a PastConversation>,
    schemas: &Schemas,
) -> Patterns {
    let mut patterns = Patterns::default();
    for conversation in conversations {
        patterns.study(conversation, schemas);
    }
    patterns
}

impl Patterns {
    /// Learns from a conversation that is over.
    pub fn study(&mut self, conversation: &PastConversation, schemas: &Schemas) {
        let number = self.begin();
        let trail = conversation.follow(schemas, |trail, tool, arguments| {
            self.learn(number, trail, schemas, tool, arguments);
        });
        self.ended(&trail, schemas);
    }

    /// Predicts every call of a conversation from what was before it: at most three calls each, the likeliest first.
    pub fn guesses(
        &self,
        conversation: &PastConversation,
        schemas: &Schemas,
        may: impl Fn(&str) -> bool,
    ) -> Vec<Vec<Call>> {
        let mut all = Vec::new();
        conversation.follow(schemas, |trail, _, _| {
            let guesses = self.predict(trail, schemas, &may, MOST).into_iter();
            all.push(guesses.map(|guess| (guess.tool, guess.arguments)).collect());
        });
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_are_compared_at_equal_starts() {
        let mut figures = NextCall::default();
        figures.add(Some(0), 3);
        figures.add(Some(2), 3);
        figures.add(None, 0);
        figures.add(None, 1);
        assert_eq!((figures.hits, figures.starts), ([1, 1, 2], [3, 5, 7]));
        assert_eq!(
            figures.share_at(0.375),
            0.125,
            "half of the first predictions"
        );
        assert_eq!(figures.share_at(0.75), figures.share(1));
        assert_eq!(figures.share_at(9.0), figures.share(3));
    }
}
