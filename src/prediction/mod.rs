//! Predicted tool calls: what the user's words may need, before any language model has seen them.
//!
//! A source is a [`Predictor`]. Those that read words share a thread ([`RouterThread`]): rules read
//! plain requests, sentence embeddings and a trained head classify the rest. A session asks all
//! sources and merges their predictions into one list. The gate
//! (`conversation/speculation/gate.rs`) decides which of those run early; it treats all sources
//! alike.

mod builtin_rules;
mod embed;
mod features;
mod fill;
mod heads;
mod intents;
mod linear;
mod logistic;
mod packed;
mod parameters;
mod predictor;
mod router;
mod rules;
mod tagger;
pub mod training;

pub use crate::tools::RouterHints;
pub use embed::{EmbedError, Embedder, cosine};
pub use heads::{HeadError, Heads, IntentHead, Judgement, embed_all};
pub use intents::Intents;
pub use logistic::{Guess, Head, Training};
pub use parameters::Today;
pub use predictor::{
    Evidence, LocalPredictor, PastCall, PredictError, Prediction, Predictor, Question, Said,
};
pub use router::{Router, RouterThread, merged};
pub use rules::{RuleError, Rules};

use crate::tools::Declaration;
use crate::worker::SpawnError;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;

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

/// The settings of a server's sources.
pub struct Settings {
    /// The tools that may be predicted, and how people ask for them.
    pub tools: Vec<(Arc<Declaration>, RouterHints)>,
    /// The trained head, if there is one, and the folder of the embedder that it needs.
    pub head: Option<(PathBuf, PathBuf)>,
    /// The meaning of "today".
    pub today: Today,
}

/// Starts the sources of a server: all that are listed here.
///
/// # Errors
/// [`SpawnError`] if a source cannot be made.
pub fn sources(settings: Settings) -> Result<Vec<Arc<dyn Predictor>>, SpawnError<PredictError>> {
    let router = RouterThread::start(move || local_sources(&settings).map(Router::new))?;
    Ok(vec![Arc::new(router)])
}

/// The sources on the router's thread, the cheapest first.
fn local_sources(settings: &Settings) -> Result<Vec<Box<dyn LocalPredictor>>, PredictError> {
    let Settings { tools, head, today } = settings;
    let rules = Rules::new(tools, today.clone()).map_err(unusable(Source::Rule))?;
    let mut sources: Vec<Box<dyn LocalPredictor>> = vec![Box::new(rules)];
    if let Some((head, embedder)) = head {
        let heads = Heads::load(head).map_err(unusable(Source::Intent))?;
        let embedder = Embedder::load(embedder).map_err(unusable(Source::Intent))?;
        let intents = Intents::new(embedder, heads.heads, tools, today.clone());
        if !intents.is_useful() {
            tracing::warn!(head = %head.display(), "no intent of this head asks for a tool that is declared");
        }
        sources.push(Box::new(intents));
    }
    Ok(sources)
}

fn unusable<E: std::fmt::Display>(predictor: Source) -> impl FnOnce(E) -> PredictError {
    move |error| PredictError {
        predictor,
        reason: error.to_string(),
    }
}
