//! The questions to a draft model, each from its beginning to its record.

use super::ledger::Run;
use super::record::DraftRecord;
use super::track::TrackId;
use crate::conversation::common::Common;
use crate::conversation::draft::DraftPolicy;
use crate::conversation::ids::RequestId;
use crate::conversation::output::Output;
use crate::llm::TokenUsage;
use crate::time::{Micros, Time};
use crate::tools::Declaration;
use serde_json::{Map, Value};

/// The drafts of a session.
#[derive(Debug, Default)]
pub(super) struct Drafts {
    /// Those that are not in a record yet, oldest first.
    pub(super) open: Vec<Draft>,
    /// Those that have ended since the last record of a turn.
    pub(super) ended: Vec<DraftRecord>,
    /// The day's budget for their tokens is spent.
    pub(super) is_spent: bool,
}

/// The samples that were asked for beside one generation of the main model.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) request: RequestId,
    /// The generation of the main model.
    pub(super) generation: RequestId,
    pub(super) track: TrackId,
    pub(super) policy: DraftPolicy,
    pub(super) began: Time,
    /// The estimated tokens of its prompt.
    pub(super) tokens: u64,
    /// Samples that have not ended.
    pub(super) running: u32,
    /// The tokens of those that have.
    pub(super) usage: TokenUsage,
    /// Samples that made a call in time.
    pub(super) called: u32,
    /// Its calls, each once.
    pub(super) calls: Vec<Sampled>,
    /// How much earlier one of the main model's calls began because of it.
    pub(super) saved: Micros,
    /// Tools that the main model called, and no sample before it.
    pub(super) missed: Vec<(String, bool)>,
    pub(super) stage: Stage,
    /// The main model has called a tool, or has answered in full.
    pub(super) is_decided: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its calls are predictions.
    Sampling,
    /// Its samples were stopped: the main model has called a tool, or answers.
    Stopped,
    /// The main model's generation is over.
    Over,
}

/// A call that was sampled.
#[derive(Debug)]
pub(super) struct Sampled {
    pub(super) tool: String,
    pub(super) by_client: bool,
    /// The arguments in the form in which they are compared.
    pub(super) key: Map<String, Value>,
    /// How many samples made it.
    pub(super) count: u32,
    /// The main model has committed it.
    pub(super) is_committed: bool,
}

impl Draft {
    /// Notes that another sample has made this call, and returns how many have.
    pub(super) fn count(&mut self, call: Sampled) -> u32 {
        let same = |known: &&mut Sampled| known.tool == call.tool && known.key == call.key;
        if let Some(known) = self.calls.iter_mut().find(same) {
            known.count += 1;
            return known.count;
        }
        self.calls.push(call);
        1
    }

    /// Records that the main model has committed this call, whose run a sample had started by `earlier`
    /// sooner.
    pub(super) fn meet(&mut self, tool: &Declaration, key: &Map<String, Value>, earlier: Micros) {
        self.is_decided = true;
        let name = &tool.spec.name;
        let mut of_tool = self.calls.iter_mut().filter(|call| call.tool == *name);
        if let Some(call) = of_tool.find(|call| call.key == *key) {
            call.is_committed = true;
            self.saved = self.saved.max(earlier);
        } else if !self.calls.iter().any(|call| call.tool == *name) {
            self.missed.push((name.clone(), tool.by_client));
        }
    }

    /// The likeliest call of each tool.
    pub(super) fn likeliest(&self) -> impl Iterator<Item = &Sampled> {
        let is_likeliest = |(at, call): &(usize, &Sampled)| {
            let others = self.calls.iter().enumerate();
            let mut others = others.filter(|(_, other)| other.tool == call.tool);
            others.all(|(other_at, other)| {
                call.count > other.count || (call.count == other.count && *at <= other_at)
            })
        };
        let calls = self.calls.iter().enumerate();
        calls.filter(is_likeliest).map(|(_, call)| call)
    }

    /// Moves on to a later stage, and stops the samples if they are not wanted in it.
    pub(super) fn move_to(&mut self, common: &mut Common, stage: Stage) {
        if self.stage == Stage::Sampling && stage != Stage::Sampling && self.running > 0 {
            let request = self.request;
            common.outputs.push_back(Output::StopDraft { request });
        }
        if self.stage != Stage::Over && stage != Stage::Sampling {
            self.stage = stage;
        }
    }

    /// Its tokens: those of samples that are still running are estimated.
    pub(super) fn usage(&self) -> TokenUsage {
        let mut usage = self.usage;
        usage.input += u64::from(self.running) * self.tokens;
        usage
    }

    pub(super) fn record(&self) -> DraftRecord {
        let mut calls = self.calls.iter();
        let likeliest = self.likeliest().max_by_key(|call| call.count);
        let hit = calls.any(|call| call.is_committed);
        let usage = self.usage();
        DraftRecord {
            began: self.began,
            samples: self.policy.samples,
            calls: self.called,
            tool: likeliest.map(|call| call.tool.clone()),
            accepted: likeliest.filter(|_| self.is_decided).map(|_| hit),
            usage,
            cost: self.policy.cost(usage.total()),
        }
    }
}

impl Drafts {
    /// Whether samples for the words as they are now have made the call of this run.
    pub(super) fn have(&self, run: &Run) -> bool {
        let mut drafts = self.open.iter();
        drafts.any(|draft| {
            let mut calls = draft.calls.iter();
            draft.track == run.track
                && draft.stage != Stage::Over
                && calls.any(|call| call.tool == run.tool && call.key == run.key)
        })
    }

    /// The drafts beside a generation of the main model.
    pub(super) fn of(&mut self, generation: RequestId) -> impl Iterator<Item = &mut Draft> {
        let drafts = self.open.iter_mut();
        drafts.filter(move |draft| draft.generation == generation)
    }
}
