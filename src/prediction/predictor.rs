//! Predictions of tool calls, and the trait of their sources.

use super::{RouterHints, Source};
use crate::tools::Declaration;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;
use uuid::Uuid;

/// A tool call that may be needed, with all its arguments, or one that the words have begun to ask for.
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
    /// Required arguments that the words do not name yet. With any, nothing runs, and the user is probably not
    /// done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open: Vec<String>,
}

/// When a source is asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Moment {
    /// The session has opened, or the call was answered.
    Opened,
    /// The user begins to speak; the words are not known yet.
    Speech,
    /// Words are known, or a call was made since.
    #[default]
    Words,
}

impl Moment {
    /// Whether what the user is about to say is still unknown.
    pub fn is_before_words(self) -> bool {
        self != Self::Words
    }

    fn is_words(&self) -> bool {
        *self == Self::Words
    }
}

/// The input of a prediction: the turn so far and the calls before it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// When it is asked.
    #[serde(default, skip_serializing_if = "Moment::is_words")]
    pub moment: Moment,
    /// The user's words so far in this turn, as transcribed.
    pub text: String,
    /// The user has fallen silent; the text may still be continued, but not mid-word.
    pub paused: bool,
    /// Committed calls of this session, oldest first.
    pub calls: Vec<PastCall>,
    /// The language of the words, a BCP 47 tag; English if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
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

/// A call of a server's tool that the model has just committed.
#[derive(Debug, Clone, PartialEq)]
pub struct Committed {
    /// The tool's name.
    pub tool: String,
    /// Its arguments in the canonical form, in which calls are compared.
    pub arguments: Map<String, Value>,
    /// Its arguments as the model wrote them.
    pub written: Map<String, Value>,
}

/// An error of a source of predictions. The other sources are asked all the same.
#[derive(Debug, thiserror::Error)]
#[error("{name} predicts nothing: {reason}", name = predictor.name())]
pub struct PredictError {
    /// The source that failed.
    pub predictor: Source,
    /// The reason.
    pub reason: String,
}

/// The question to a source of predictions: what may this session need next?
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// The session; unlike any other of any server.
    pub session: Uuid,
    /// The agent that speaks.
    pub agent: Arc<str>,
    /// The client's kind: `phone`, or the session's transport. `None` if the transport does not tell.
    pub came_by: Option<Arc<str>>,
    /// The last 16 things that were said before, oldest first.
    pub history: Vec<Said>,
    /// The turn so far.
    pub evidence: Evidence,
    /// The client's tools that may run early.
    pub tools: LentTools,
}

/// A client's tools that may run early, and how people ask for them; empty in most sessions.
pub type LentTools = Arc<Vec<(Arc<Declaration>, RouterHints)>>;

/// Words of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// The user's.
    User(String),
    /// The agent's, as far as they were heard.
    Agent(String),
}

/// A source of predictions: a model, a service, or an observer that learns. It is shared by all
/// sessions. It is asked when a session opens, when the user begins to speak, at every changed partial transcript, and
/// after every call and result.
pub trait Predictor: Send + Sync {
    /// The calls that may be needed. None is an answer: most of what people say needs no tool. Nobody
    /// waits for a slow source: its answer is merged with the others' when it comes, and dropped if a
    /// newer question has been answered. Dropping the future cancels the question.
    ///
    /// # Errors
    /// [`PredictError`] if the source itself failed; the others' answers count all the same.
    fn predict(
        &self,
        question: Arc<Question>,
    ) -> BoxFuture<'static, Result<Vec<Prediction>, PredictError>>;

    /// Hears that the model has committed a call of a server's tool in this session, after the fact.
    /// There is no result yet. Must not block.
    fn committed(&self, _session: Uuid, _call: &Committed) {}

    /// Hears that the client of this session lets these tools run early, and no others. Must not block.
    fn lent(&self, _session: Uuid, _tools: &LentTools) {}

    /// Hears that this session is over. Must not block.
    fn ended(&self, _session: Uuid) {}
}

/// A source that reads the turn so far on a [`super::RouterThread`], within some milliseconds.
pub trait LocalPredictor: Send {
    /// Its name.
    fn source(&self) -> Source;

    /// As [`Predictor::predict`].
    ///
    /// # Errors
    /// [`PredictError`] if the source itself failed.
    fn predict(&mut self, evidence: &Evidence) -> Result<Vec<Prediction>, PredictError>;
}
