//! The record of speculation in one turn.

use super::gate::Decision;
use crate::conversation::ids::{CallId, RunId, TurnId};
use crate::conversation::latency::TurnLatency;
use crate::conversation::outcome::ResponseStatus;
use crate::llm::TokenUsage;
use crate::prediction::Source;
use crate::time::{Micros, Time};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The record of one turn, made when it is over: each stage, each prediction, each run and its fate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnRecord {
    /// The response; `None` if the utterance led to no turn.
    pub turn: Option<TurnId>,
    /// How the response ended.
    pub status: Option<ResponseStatus>,
    /// When each stage was reached.
    pub latency: TurnLatency,
    /// The predictions, in order.
    pub predictions: Vec<PredictionRecord>,
    /// Every tool run, speculative or not, in the order in which they ended or were committed.
    pub runs: Vec<RunRecord>,
    /// Fillers said by the conversation rather than the model.
    pub fillers: u32,
    /// Clauses of fillers that were not said because the answer was there.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub fillers_dropped: u32,
    /// How much earlier the answer was heard because of that. What an assumed commit gains by a filler that it
    /// makes unnecessary is in its own record.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub fillers_saved: Micros,
    /// Generations that were requested before they were certain to be needed, in the order of their ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<HeldRecord>,
    /// Questions to the draft model, in the order of their ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drafts: Vec<DraftRecord>,
    /// Rounds of tools that the model's server answered by itself, in the stream of the calls.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub continued: u32,
}

fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A generation that was requested before it was certain to be needed, and held back until then.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HeldRecord {
    /// The event that was still to come when it was requested.
    pub before: Before,
    /// The tool whose result it speaks of; `None` before the end of the turn.
    pub tool: Option<String>,
    /// When it was requested.
    pub began: Time,
    /// When it was used or discarded.
    pub ended: Time,
    /// It became the answer, or a part of it.
    pub used: bool,
    /// How much earlier its first words were heard than if it had been requested only when it was certain to be
    /// needed, with fillers that are not said because of it. Zero if it was discarded, or if a filler was being
    /// said until then anyway.
    pub saved: Micros,
    /// How long the model's words were held back for it although it was discarded.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub delayed: Micros,
    /// Its tokens up to then: counted by the engine, or else estimated.
    pub usage: TokenUsage,
}

/// A question to the draft model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DraftRecord {
    /// When it was asked.
    pub began: Time,
    /// Its samples.
    pub samples: u32,
    /// How many of them made a call before the main model had called or answered.
    pub calls: u32,
    /// The tool that most of them called.
    pub tool: Option<String>,
    /// Whether the main model committed one of the calls; `None` if there are none, or if it was stopped before it
    /// could.
    pub accepted: Option<bool>,
    /// The tokens of all samples: counted by the engine, or else estimated.
    pub usage: TokenUsage,
    /// Their cost, in the operator's currency.
    pub cost: f64,
}

/// The event before which a generation was requested, and for which it was held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Before {
    /// The end of the user's turn: a preemptive answer.
    EndOfTurn,
    /// The commit of a call: an assumed commit.
    Commit,
    /// The end of the model's stream, after a call that has its result.
    EndOfStream,
}

impl Before {
    /// The name in records and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::EndOfTurn => "end_of_turn",
            Self::Commit => "commit",
            Self::EndOfStream => "end_of_stream",
        }
    }
}

/// One prediction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PredictionRecord {
    /// When it came.
    pub at: Time,
    /// The tool.
    pub tool: String,
    /// Its source.
    pub source: Source,
    /// Its confidence, 0..1.
    pub confidence: f32,
    /// The gate's decision.
    pub decision: Decision,
}

/// One run of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// The run.
    pub run: RunId,
    /// The tool.
    pub tool: String,
    /// Its arguments.
    pub arguments: Map<String, Value>,
    /// Its source; `None` if a commit started it.
    pub source: Option<Source>,
    /// Its confidence, 0..1.
    pub confidence: f32,
    /// When it started.
    pub started: Time,
    /// When its result came; `None` if that was after the end of the turn.
    pub finished: Option<Time>,
    /// It returned a result rather than an error.
    pub ok: bool,
    /// How it ended.
    pub fate: Fate,
    /// How much earlier the result came than if the run had started at its commit.
    pub saved: Micros,
    /// How long it ran in vain.
    pub wasted: Micros,
    /// Its cost, in the operator's currency.
    pub cost: f64,
}

/// How a run ended. Every run ends in exactly one of these ways.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Fate {
    /// The model committed its call.
    Committed {
        /// When.
        at: Time,
        /// The calls that it answered: one unless the tool is shareable.
        calls: Vec<CallId>,
    },
    /// It was dropped; nobody sees its result.
    Discarded {
        /// When.
        at: Time,
        /// The reason.
        reason: Discard,
    },
}

/// The reason why a run was discarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Discard {
    /// The same tool was predicted or called with other arguments.
    Superseded,
    /// The turn ended without a commit.
    TurnEnded,
    /// The user spoke over the answer, or the client cancelled it.
    Interrupted,
    /// The utterance led to no turn.
    NoTurn,
    /// A committed write changed its data after it started.
    Stale,
    /// Its result was too old at the commit.
    Expired,
    /// It failed before a commit.
    Failed,
    /// The server had no budget for it.
    Budget,
    /// The server was too busy for it.
    Overloaded,
    /// The client has changed or removed the tool.
    Withdrawn,
    /// Another agent goes on.
    AgentChanged,
    /// The session ended.
    HungUp,
}

impl Discard {
    /// The name in traces and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Superseded => "superseded",
            Self::TurnEnded => "turn_ended",
            Self::Interrupted => "interrupted",
            Self::NoTurn => "no_turn",
            Self::Stale => "stale",
            Self::Expired => "expired",
            Self::Failed => "failed",
            Self::Budget => "budget",
            Self::Overloaded => "overloaded",
            Self::Withdrawn => "withdrawn",
            Self::AgentChanged => "agent_changed",
            Self::HungUp => "hung_up",
        }
    }
}

/// Live events of speculation, for clients that ask for them. They never contain a result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum SpeculationEvent {
    /// A call was predicted.
    Predicted {
        /// The prediction and the gate's decision.
        prediction: PredictionRecord,
        /// The predicted arguments.
        arguments: Map<String, Value>,
    },
    /// A run started before it was committed.
    Started {
        /// When.
        at: Time,
        /// The run.
        run: RunId,
        /// The tool.
        tool: String,
        /// The arguments.
        arguments: Map<String, Value>,
        /// Its source.
        source: Source,
        /// Its confidence, 0..1.
        confidence: f32,
        /// The client runs it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        by_client: bool,
    },
    /// A run has its result, which stays hidden until a commit.
    Ready {
        /// When.
        at: Time,
        /// The run.
        run: RunId,
    },
    /// The model committed its call.
    Committed {
        /// When.
        at: Time,
        /// The run.
        run: RunId,
        /// The committed call.
        call: CallId,
        /// Its result had already come.
        ready: bool,
    },
    /// It was dropped; nobody sees its result.
    Discarded {
        /// When.
        at: Time,
        /// The run.
        run: RunId,
        /// The reason.
        reason: Discard,
        /// How long it ran in vain.
        wasted: Micros,
    },
}
