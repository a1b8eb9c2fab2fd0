//! Predictions of tool calls, and the trait of their sources.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A tool call that may be needed, with all its arguments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// The tool's name.
    pub tool: String,
    /// Its arguments, as the model would write them.
    pub arguments: Map<String, Value>,
    /// Probability that the model commits this very call, 0..1.
    pub confidence: f32,
    /// Its source.
    pub source: Source,
}

/// A source of predictions. Named in every trace; no rule depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A regular expression of the tool's declaration.
    Rule,
    /// The intent classifier with slots.
    Intent,
    /// A transition learnt between calls.
    Transition,
    /// A small draft model.
    Draft,
    /// The main model's own stream: a call that is not committed yet.
    Stream,
}

impl Source {
    /// The name in traces and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rule => "rule",
            Self::Intent => "intent",
            Self::Transition => "transition",
            Self::Draft => "draft",
            Self::Stream => "stream",
        }
    }
}

/// The input of a prediction: the turn so far and the calls before it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// The user's words so far in this turn, as transcribed.
    pub text: String,
    /// The user has fallen silent; the text may still be continued, but not mid-word.
    pub paused: bool,
    /// Committed calls of this session, oldest first.
    pub calls: Vec<PastCall>,
}

/// A call that the model committed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PastCall {
    /// The tool's name.
    pub tool: String,
    /// Its arguments.
    pub arguments: Map<String, Value>,
    /// Its result, once there is one.
    pub result: Option<Value>,
}

/// Why a source has no predictions. The others are asked all the same.
#[derive(Debug, thiserror::Error)]
#[error("{name} predicts nothing: {reason}", name = predictor.name())]
pub struct PredictError {
    /// The source that failed.
    pub predictor: Source,
    /// Why.
    pub reason: String,
}

/// A source of predictions. It runs on the router's thread and sees every changed partial
/// transcript, so it has some milliseconds.
pub trait Predictor: Send {
    /// Its name.
    fn source(&self) -> Source;

    /// The calls that may be needed. None is an answer: most of what people say needs no tool.
    ///
    /// # Errors
    /// [`PredictError`] if the source itself failed.
    fn predict(&mut self, evidence: &Evidence) -> Result<Vec<Prediction>, PredictError>;
}
