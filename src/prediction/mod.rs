//! Predicted tool calls: what the user's words may need, before any language model has seen them.
//!
//! A source is a [`Predictor`]. Those that read words run on threads ([`RouterThread`]): rules read
//! plain requests, [`Matching`] compares the rest with the tools' examples, and a head that users train
//! classifies it. [`patterns`] predict calls from the calls before them. A session asks all
//! sources and merges their predictions into one list. The gate
//! (`conversation/speculation/gate.rs`) decides which of those run early; it treats all sources
//! alike.
//!
//! | files | subject |
//! |---|---|
//! | `predictor`, `router` | the traits of sources; sources that share a thread, and the merger |
//! | `rules`, `builtin_rules` | regular expressions of declarations, and those of the built-in tools |
//! | `matching` | examples and descriptions of tools, by similarity; clients' own tools |
//! | `intents`, `heads`, `linear`, `logistic` | the classifier, whose weights `packed` stores |
//! | `features`, `embed` | models of texts: n-grams, sentence embeddings |
//! | `tagger`, `fill`, `choices`, `codes`, `frame`, `parameters` | from words to the arguments that a schema wants |
//! | `patterns` | calls from earlier calls |
//! | `training` | training data and measurements |

mod builtin_rules;
mod choices;
mod codes;
mod embed;
mod features;
mod fill;
mod frame;
mod heads;
mod intents;
mod linear;
mod logistic;
mod matching;
mod packed;
mod parameters;
pub mod patterns;
mod predictor;
mod router;
mod rules;
mod tagger;
pub mod training;

pub use crate::tools::RouterHints;
pub use embed::{EmbedError, Embedder, cosine};
pub(crate) use fill::{Form, Words};
pub use heads::{HeadError, Heads, IntentHead, Judgement, embed_all};
pub use intents::Intents;
pub use logistic::{Guess, Head, Training};
pub use matching::{ClientMatching, Considered, ExampleFiles, Matching};
pub use parameters::Today;
pub use predictor::{
    Committed, Evidence, LentTools, LocalPredictor, Moment, PastCall, PredictError, Prediction,
    Predictor, Question, Said,
};
pub use router::{Router, RouterThread, merged};
pub use rules::{RuleError, Rules};

use crate::tools::{Audience, Declaration, Registry};
use crate::worker::SpawnError;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;

/// A source of predictions. Every trace names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A regular expression of the tool's declaration.
    Rule,
    /// The intent classifier with slots.
    Intent,
    /// The examples or the description of the tool's declaration, by similarity.
    Example,
    /// A learned transition between calls.
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
            Self::Example => "example",
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
    /// Further tools, predicted by their rules alone, so that they do not compete with the others for
    /// words.
    pub by_rules: Vec<(Arc<Declaration>, RouterHints)>,
    /// The files for learning the tools' examples.
    pub files: ExampleFiles,
    /// A trained head, if there is one.
    pub head: Option<PathBuf>,
    /// The meaning of "today".
    pub today: Today,
    /// The sources begin once the examples are learned, rather than at once with what they know.
    pub awaits: bool,
}

impl Settings {
    /// The sources for these tools, without a trained head.
    pub fn of(tools: &Registry, files: ExampleFiles, today: Today) -> Self {
        let hinted = |tool: Arc<Declaration>| {
            let hints = tools.hints(&tool.spec.name).cloned();
            (tool, hints.unwrap_or_default())
        };
        // Most sessions are not offered the demonstration's tools.
        let shown = tools.offered_to(Audience::Demonstration).into_iter();
        let own = [Audience::Everyone, Audience::Calls].into_iter();
        let own = own.flat_map(|audience| tools.offered_to(audience));
        Self {
            tools: own.map(hinted).collect(),
            by_rules: shown.map(hinted).collect(),
            files,
            head: None,
            today,
            awaits: false,
        }
    }
}

/// Starts the sources of a server: all that are listed here.
///
/// # Errors
/// [`SpawnError`] if a source cannot be made.
pub fn sources(settings: Settings) -> Result<Vec<Arc<dyn Predictor>>, SpawnError<PredictError>> {
    let settings = Arc::new(settings);
    let ruled = settings.clone();
    let ruled = RouterThread::start(move || {
        let rules: Box<dyn LocalPredictor> = Box::new(rules(&ruled)?);
        Ok(Router::new(vec![rules]))
    })?;
    let clients = ClientMatching::start(settings.clone())?;
    // Embeddings take some milliseconds, and rules some microseconds.
    let embedded = RouterThread::start(move || {
        let mut matching = Matching::start(
            &settings.tools,
            settings.files.clone(),
            settings.today.clone(),
        );
        if settings.awaits {
            matching.wait();
        }
        let mut sources: Vec<Box<dyn LocalPredictor>> = vec![Box::new(matching)];
        if let Some(intents) = intents(&settings)? {
            sources.push(Box::new(intents));
        }
        Ok(Router::new(sources))
    })?;
    Ok(vec![Arc::new(ruled), Arc::new(embedded), Arc::new(clients)])
}

/// The predictions of each source of a server for some words.
#[derive(Debug)]
pub struct Trial {
    /// The predictions of each source, one after the other.
    pub all: Vec<Prediction>,
    /// The predictions merged over all sources, as sessions get them.
    pub merged: Vec<Prediction>,
    /// The tools that the words were compared with, the nearest first.
    pub considered: Vec<Considered>,
}

impl Trial {
    /// Asks the sources of a server, once their examples are learned.
    ///
    /// # Errors
    /// [`PredictError`] if a source cannot be made or fails.
    pub fn of(settings: &Settings, evidence: &Evidence) -> Result<Self, PredictError> {
        let (files, today) = (settings.files.clone(), settings.today.clone());
        let mut rules = rules(settings)?;
        let mut matching = Matching::start(&settings.tools, files, today);
        let mut intents = intents(settings)?;
        matching.wait();
        let mut answers = vec![rules.predict(evidence)?, matching.predict(evidence)?];
        if let Some(intents) = &mut intents {
            answers.push(intents.predict(evidence)?);
        }
        Ok(Self {
            all: answers.concat(),
            merged: merged(answers),
            considered: matching.consider(evidence)?,
        })
    }
}

fn rules(settings: &Settings) -> Result<Rules, PredictError> {
    let tools = [&settings.tools[..], &settings.by_rules[..]].concat();
    Rules::new(&tools, settings.today.clone()).map_err(unusable(Source::Rule))
}

/// The trained head, if there is one.
fn intents(settings: &Settings) -> Result<Option<Intents>, PredictError> {
    let Settings {
        tools,
        files,
        head,
        today,
        by_rules: _,
        awaits: _,
    } = settings;
    let Some(head) = head else {
        return Ok(None);
    };
    let heads = Heads::load(head).map_err(unusable(Source::Intent))?;
    let embedder = Embedder::load(&files.embedder).map_err(unusable(Source::Intent))?;
    let intents = Intents::new(embedder, heads.heads, tools, today.clone());
    if !intents.is_useful() {
        tracing::warn!(head = %head.display(), "no intent of this head asks for a tool that is declared");
    }
    Ok(Some(intents))
}

/// The examples of a declaration, or ours for a built-in tool without any.
fn examples(declaration: &Declaration, hints: &RouterHints) -> Vec<String> {
    if !hints.examples.is_empty() {
        return hints.examples.clone();
    }
    let ours = builtin_rules::examples(&declaration.spec.name);
    ours.iter().map(|example| (*example).to_owned()).collect()
}

fn unusable<E: std::fmt::Display>(predictor: Source) -> impl FnOnce(E) -> PredictError {
    move |error| PredictError {
        predictor,
        reason: error.to_string(),
    }
}
