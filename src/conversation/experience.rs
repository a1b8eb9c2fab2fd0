//! Lessons from one conversation to the next: how long tools and the model take, and how often assumed
//! commits were right. A conversation begins with the experience of earlier ones and collects lessons for later
//! ones.

use super::policy::Policy;
use crate::time::Micros;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// Latencies kept per tool: enough for a quantile, few enough to follow a change.
const LATENCIES: usize = 32;

/// Tries of assumed commits kept per tool.
const TRIES: usize = 50;

/// Drafts whose tokens and savings are kept.
const DRAFTS: usize = 50;

/// Waits for the model's first event that are kept.
const WAITS: usize = 8;

/// The most tools that are remembered: a server whose tools come and go would remember all of them.
const TOOLS: usize = 256;

/// The assumed wait for the first event of a model that has not answered yet.
const UNKNOWN: Micros = Micros::from_ms(500);

/// The experience of earlier conversations, and of this one so far. It contains no words and no arguments.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Experience {
    tools: BTreeMap<String, Tool>,
    /// The waits for the first event of the model's last generations, oldest first.
    model: VecDeque<Micros>,
    /// The tokens of the last drafts, and what each saved, oldest first.
    drafts: VecDeque<(u64, Micros)>,
    /// Chances to ask the draft model that came while it was not worth it.
    undrafted: u32,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Tool {
    /// The latencies of its last calls, oldest first.
    latencies: VecDeque<Micros>,
    /// Whether its last assumed commits were hits, oldest first.
    tries: VecDeque<bool>,
    /// Whether the draft model had its calls in time, oldest first.
    drafted: VecDeque<bool>,
    /// Chances to assume a commit that came while it was off.
    skipped: u32,
}

/// Something that a conversation has learned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lesson {
    /// The time that a call of a tool took.
    Took {
        /// The tool.
        tool: String,
        /// From the start to the result.
        latency: Micros,
    },
    /// A commit was assumed.
    Assumed {
        /// The tool.
        tool: String,
        /// The model committed the call.
        hit: bool,
    },
    /// A commit could have been assumed, but the tool was too often not called.
    Skipped {
        /// The tool.
        tool: String,
    },
    /// The draft model or the main model has called a tool.
    Drafted {
        /// The tool.
        tool: String,
        /// The main model committed the draft model's call.
        hit: bool,
    },
    /// The draft model was asked.
    DraftCost {
        /// The tokens of all its samples.
        tokens: u64,
        /// How much sooner a call could start because of it.
        saved: Micros,
    },
    /// The draft model was not worth asking.
    Undrafted,
    /// A generation of the model has begun.
    Began {
        /// From the request to the first event.
        wait: Micros,
    },
}

impl Lesson {
    /// The tool that it is about.
    pub(super) fn tool(&self) -> Option<&str> {
        match self {
            Self::Took { tool, .. }
            | Self::Assumed { tool, .. }
            | Self::Drafted { tool, .. }
            | Self::Skipped { tool } => Some(tool),
            Self::Began { .. } | Self::DraftCost { .. } | Self::Undrafted => None,
        }
    }
}

impl Experience {
    /// Adds a lesson. The oldest of its kind is forgotten.
    pub fn learn(&mut self, lesson: Lesson) {
        match lesson {
            Lesson::Took { tool, latency } => {
                push(&mut self.tool(tool).latencies, latency, LATENCIES);
            }
            Lesson::Assumed { tool, hit } => push(&mut self.tool(tool).tries, hit, TRIES),
            Lesson::Drafted { tool, hit } => push(&mut self.tool(tool).drafted, hit, TRIES),
            Lesson::DraftCost { tokens, saved } => push(&mut self.drafts, (tokens, saved), DRAFTS),
            Lesson::Undrafted => self.undrafted = self.undrafted.wrapping_add(1),
            Lesson::Skipped { tool } => {
                let skipped = &mut self.tool(tool).skipped;
                *skipped = skipped.wrapping_add(1);
            }
            Lesson::Began { wait } => push(&mut self.model, wait, WAITS),
        }
    }

    fn tool(&mut self, name: String) -> &mut Tool {
        if self.tools.len() >= TOOLS && !self.tools.contains_key(&name) {
            self.tools.pop_first();
        }
        self.tools.entry(name).or_default()
    }

    /// Whether nothing was learned.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The part that a conversation with these rules needs.
    pub fn of(&self, policy: &Policy) -> Self {
        let known = |(name, tool): (&String, &Tool)| {
            let is_offered = policy.tool(name).is_some();
            is_offered.then(|| (name.clone(), tool.clone()))
        };
        Self {
            tools: self.tools.iter().filter_map(known).collect(),
            model: self.model.clone(),
            drafts: self.drafts.clone(),
            undrafted: self.undrafted,
        }
    }

    /// The quantile `q`, 0..1, of the latencies of a tool's last calls; `None` if it was never called.
    pub(super) fn latency(&self, tool: &str, q: f64) -> Option<Micros> {
        let mut sorted: Vec<Micros> = self.tools.get(tool)?.latencies.iter().copied().collect();
        sorted.sort_unstable();
        let last = sorted.len().checked_sub(1)?;
        sorted.get((q * last as f64).round() as usize).copied()
    }

    /// The last assumed commits of a tool: hits, and all.
    pub(super) fn assumed(&self, tool: &str) -> (usize, usize) {
        let tries = self.tools.get(tool).map(|tool| &tool.tries);
        let hits = tries.into_iter().flatten().filter(|hit| **hit).count();
        (hits, tries.map_or(0, VecDeque::len))
    }

    /// The last times that the draft model or the main model called a tool: how often the draft had the call in time,
    /// and all.
    pub(super) fn drafted(&self, tool: &str) -> (usize, usize) {
        let tries = self.tools.get(tool).map(|tool| &tool.drafted);
        let hits = tries.into_iter().flatten().filter(|hit| **hit).count();
        (hits, tries.map_or(0, VecDeque::len))
    }

    /// The last drafts: how many, their tokens, and the time that they saved.
    pub(super) fn drafts(&self) -> (usize, u64, Micros) {
        let tokens = self.drafts.iter().map(|(tokens, _)| tokens).sum();
        let saved = self.drafts.iter().map(|(_, saved)| saved.0).sum();
        (self.drafts.len(), tokens, Micros(saved))
    }

    /// Chances to ask the draft model that were skipped.
    pub(super) fn undrafted(&self) -> u32 {
        self.undrafted
    }

    /// Chances to assume a commit of a tool that were skipped.
    pub(super) fn skipped(&self, tool: &str) -> u32 {
        self.tools.get(tool).map_or(0, |tool| tool.skipped)
    }

    /// The expected wait for the first event of a generation: the median of the last ones.
    pub(super) fn first_event(&self) -> Micros {
        let mut sorted: Vec<Micros> = self.model.iter().copied().collect();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied().unwrap_or(UNKNOWN)
    }
}

fn push<T>(kept: &mut VecDeque<T>, value: T, most: usize) {
    if kept.len() >= most {
        kept.pop_front();
    }
    kept.push_back(value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::{Declaration, Effect, ToolSpec};
    use std::sync::Arc;
    use std::time::Duration;

    fn took(experience: &mut Experience, tool: &str, ms: u64) {
        experience.learn(Lesson::Took {
            tool: tool.into(),
            latency: Micros::from_ms(ms),
        });
    }

    #[test]
    fn a_tools_latency_is_that_of_its_last_calls() {
        let mut known = Experience::default();
        assert_eq!(known.latency("weather", 0.5), None);
        // One slow call, then as many fast ones as are kept.
        took(&mut known, "weather", 9_000);
        for ms in 1..LATENCIES as u64 {
            took(&mut known, "weather", ms);
        }
        assert_eq!(known.latency("weather", 1.0), Some(Micros::from_ms(9_000)));
        took(&mut known, "weather", 32);
        let quantile = |q| known.latency("weather", q).unwrap().as_ms();
        assert_eq!(
            [0.0, 0.5, 0.9, 1.0].map(quantile),
            [1, 17, 29, 32],
            "of 1 to 32 ms"
        );
        assert_eq!(known.latency("other", 0.5), None);
    }

    #[test]
    fn the_wait_for_the_first_event_is_learned() {
        let mut known = Experience::default();
        assert_eq!(known.first_event(), UNKNOWN);
        for ms in [900, 350, 340] {
            let wait = Micros::from_ms(ms);
            known.learn(Lesson::Began { wait });
        }
        assert_eq!(known.first_event(), Micros::from_ms(350));
    }

    #[test]
    fn it_does_not_grow_without_end() {
        let mut known = Experience::default();
        for number in 0..20_000 {
            let tool = format!("tool-{}", number % 1_000);
            took(&mut known, &tool, number);
            let hit = number % 2 == 0;
            known.learn(Lesson::Assumed { tool, hit });
            let wait = Micros(number);
            known.learn(Lesson::Began { wait });
        }
        assert_eq!((known.tools.len(), known.model.len()), (TOOLS, WAITS));
        assert!(serde_json::to_string(&known).unwrap().len() < 250_000);
    }

    #[test]
    fn a_conversation_gets_what_concerns_its_own_tools() {
        let mut known = Experience::default();
        took(&mut known, "weather", 300);
        took(&mut known, "balance", 700);
        let spec = ToolSpec {
            examples: Vec::new(),
            name: "weather".into(),
            description: String::new(),
            parameters: serde_json::json!({"type": "object"}),
        };
        let tool = Declaration::new(spec, Effect::Read, Duration::from_secs(1));
        let policy = Policy {
            tools: Arc::new(vec![Arc::new(tool)]),
            ..Policy::default()
        };
        let of = known.of(&policy);
        assert_eq!(of.latency("weather", 0.5), Some(Micros::from_ms(300)));
        assert_eq!(of.latency("balance", 0.5), None);
    }
}
