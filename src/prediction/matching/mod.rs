//! Predictions without training: words are compared with the examples and the description of each tool.
//!
//! Sentence embeddings tell what words are about, and hardly whether they ask for it: "I don't want to
//! know where my order is" lies next to "where is my order". So their form decides that
//! ([`mood`](crate::language::en::mood)), and a call is predicted only with all its arguments.

mod clients;
mod learning;
mod likeness;
mod masks;
mod nothing;
#[cfg(test)]
mod tests;

pub use clients::ClientMatching;
pub use learning::ExampleFiles;

use super::fill::{Arguments, Form, Words};
use super::parameters::{Kind, Today};
use super::rules::{GROWING, OPEN};
use super::{
    Embedder, Evidence, LocalPredictor, PredictError, Prediction, RouterHints, Settings, Source,
};
use crate::language::en::factuality::Factuality;
use crate::language::en::mood::{self, Mood};
use crate::language::en::text;
use crate::tools::Declaration;
use jiff::civil::Date;
use learning::{Learning, Memory, Trained};
pub(super) use likeness::TOLD;
use likeness::{Likeness, Said};
use serde_json::Value;
use std::sync::Arc;

/// Less likely calls are not predicted.
const LEAST: f32 = 0.1;
/// The least similarity of words to a tool, -1..1, for which arguments are looked for.
const WORTH_A_LOOK: f32 = 0.2;
/// The most tools for which arguments are looked for.
const MOST: usize = 4;
/// The most by which leaving out the subject may raise the similarity: "do you have hobbies" is not about stocks.
const LIFT: f32 = 0.05;

/// Predicts calls of tools from their examples and descriptions.
pub struct Matching {
    tools: Vec<Matched>,
    learning: Learning,
    trained: Option<Trained>,
    today: Today,
    /// The last embedded texts: a pause changes no word.
    last: Vec<(String, Vec<f32>)>,
}

/// A tool that words may ask for.
#[derive(Debug)]
pub(super) struct Matched {
    pub name: String,
    pub form: Form,
    pub examples: Vec<String>,
    pub description: String,
    /// Signs that its examples share.
    meant: Factuality,
    takes_day: bool,
}

/// A tool that words were compared with.
#[derive(Debug, Clone, PartialEq)]
pub struct Considered {
    /// The tool.
    pub tool: String,
    /// The similarity to its nearest example or description, and what may be nearer.
    pub likeness: Likeness,
    /// How the words are meant.
    pub mood: Mood,
    /// The call, or the required arguments that were not said.
    pub call: Prediction,
}

impl Matched {
    fn of(declaration: &Declaration, hints: &RouterHints) -> Self {
        let form = Form::of(declaration, hints);
        let examples: Vec<String> = super::examples(declaration, hints)
            .into_iter()
            .map(|example| text::normalise(&example))
            .collect();
        let is_day = |kind: &Kind| matches!(kind, Kind::Date | Kind::Day);
        Self {
            name: declaration.spec.name.clone(),
            meant: Factuality::shared(examples.iter().map(String::as_str)),
            takes_day: form.parameters.iter().any(|one| is_day(&one.kind)),
            description: declaration.spec.description.clone(),
            form,
            examples,
        }
    }

    /// The evidence from the arguments.
    fn said(&self, filled: &Arguments) -> Said {
        let mut required = self
            .form
            .parameters
            .iter()
            .filter(|one| one.required)
            .peekable();
        if required.peek().is_none() {
            return Said::NoneRequired;
        }
        let telling = required.any(|one| match (&one.kind, filled.values.get(&one.name)) {
            (Kind::Choice(_), Some(_)) => true,
            (Kind::Code, Some(Value::String(code))) => {
                code.contains(|c: char| c.is_ascii_alphabetic())
            }
            _ => false,
        });
        if telling { Said::Telling } else { Said::Some }
    }

    /// A factor for words that deny, remember or suppose.
    fn factuality(&self, clause: &str) -> f32 {
        Factuality::of_clause(clause).discount(self.meant, self.takes_day)
    }
}

impl std::fmt::Debug for Matching {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.tools.iter().map(|tool| &tool.name);
        f.debug_list().entries(names).finish()
    }
}

impl Matching {
    /// Learns these tools on a thread of its own. Until then nothing is predicted.
    pub fn start(
        tools: &[(Arc<Declaration>, RouterHints)],
        files: ExampleFiles,
        today: Today,
    ) -> Self {
        Self::learning(tools, files, None, today)
    }

    /// Like [`Self::start`], with an embedder that others use, too.
    pub fn sharing(embedder: Embedder, settings: &Settings) -> Self {
        let (files, today) = (settings.files.clone(), settings.today.clone());
        Self::learning(&settings.tools, files, Some(embedder), today)
    }

    fn learning(
        tools: &[(Arc<Declaration>, RouterHints)],
        files: ExampleFiles,
        embedder: Option<Embedder>,
        today: Today,
    ) -> Self {
        let tools: Vec<Matched> = tools
            .iter()
            .map(|(declaration, hints)| Matched::of(declaration, hints))
            .collect();
        let samples = tools
            .iter()
            .flat_map(|tool| masks::samples(tool, today.date()));
        Self {
            learning: Learning::start(files, embedder, samples.collect()),
            tools,
            trained: None,
            today,
            last: Vec::new(),
        }
    }

    /// Waits until the tools are learned.
    pub fn wait(&mut self) {
        if self.trained.is_none() {
            self.trained = self.learning.wait();
        }
    }

    /// The tools that the words are compared with, the nearest first; none until they are learned.
    ///
    /// # Errors
    /// [`PredictError`] if the embeddings fail.
    pub fn consider(&mut self, evidence: &Evidence) -> Result<Vec<Considered>, PredictError> {
        if self.trained.is_none() {
            self.trained = self.learning.done();
        }
        let Some(trained) = &mut self.trained else {
            return Ok(Vec::new());
        };
        let compared = Compared {
            tools: &self.tools,
            memory: &trained.memory,
            today: self.today.date(),
        };
        compared.consider(evidence, &mut trained.embedder, &mut self.last)
    }
}

/// Tools that words are compared with.
struct Compared<'a> {
    tools: &'a [Matched],
    memory: &'a Memory,
    today: Date,
}

impl Compared<'_> {
    /// The likeliest calls.
    fn predict(
        &self,
        evidence: &Evidence,
        embedder: &mut Embedder,
        last: &mut Vec<(String, Vec<f32>)>,
    ) -> Result<Vec<Prediction>, PredictError> {
        let considered = self.consider(evidence, embedder, last)?;
        Ok(likeliest(considered, evidence.paused))
    }

    /// All tools that are near to the words, the nearest first. `last` keeps the last embedded texts.
    fn consider(
        &self,
        evidence: &Evidence,
        embedder: &mut Embedder,
        last: &mut Vec<(String, Vec<f32>)>,
    ) -> Result<Vec<Considered>, PredictError> {
        let normalised = text::normalise(&evidence.text);
        let words = Words {
            said: &evidence.text,
            text: text::without_fillers(&normalised),
            today: self.today,
        };
        if words.text.is_empty() {
            return Ok(Vec::new());
        }
        let meant = mood::meant(&evidence.text);
        let masked = masks::masked(words.text, &[]);
        let embedding = embedded(last, embedder, &masked)?;
        let mut near: Vec<(&Matched, f32)> = Vec::new();
        // Not today's answer for a day that the tool does not know.
        let fits = |tool: &&Matched| tool.form.unfit_day(words).is_none();
        for tool in self.tools.iter().filter(fits) {
            near.push((tool, self.memory.nearness(&tool.name, &embedding)));
        }
        // "I was wondering if you have chairs" is compared as "do you have chairs", too.
        let core = mood::without_opener(words.text);
        let person = core.split(' ').next();
        if core.len() < words.text.len()
            && meant.mood != Mood::Statement
            && let Some("you" | "i" | "we" | "they") = person
        {
            let direct = masks::masked(&format!("do {core}"), &[]);
            let embedding = embedded(last, embedder, &direct)?;
            for (tool, near) in &mut near {
                *near = near.max(self.memory.nearness(&tool.name, &embedding));
            }
        }
        near.sort_by(|a, b| b.1.total_cmp(&a.1));
        near.retain(|(_, near)| *near >= WORTH_A_LOOK);
        near.truncate(MOST);
        let filled = near
            .into_iter()
            .map(|(tool, near)| (tool, tool.form.fill(&[], words), near));
        let mut all: Vec<_> = filled.collect();
        // A subject may lie far from those of the examples: "how many pillows" from "how many red chairs".
        let subject = all.iter_mut().find_map(|(tool, filled, near)| {
            let subject = masks::subject(&tool.form, filled.as_ref().ok()?)?;
            Some((tool.name.as_str(), near, subject))
        });
        if let Some((name, near, subject)) = subject
            && meant.mood != Mood::Statement
        {
            let masked = masks::masked(words.text, &[subject]);
            let embedding = embedded(last, embedder, &masked)?;
            let without = self.memory.nearness(name, &embedding);
            *near = near.max(without.min(*near + LIFT));
        }
        all.sort_by(|a, b| b.2.total_cmp(&a.2));
        last.truncate(3);
        let nothing = self.memory.nothing(&embedding);
        let second = all.get(1).map_or(0.0, |(.., near)| *near);
        let first = all.first().map_or(0.0, |(.., near)| *near);
        let considered = all.into_iter().map(|(tool, filled, near)| {
            let likeness = Likeness {
                near,
                nothing,
                other: if near == first { second } else { first },
            };
            let (said, arguments, open) = match filled {
                Ok(filled) => (tool.said(&filled), filled, Vec::new()),
                // Only how near the words are tells that they ask for it.
                Err(missing) => (Said::NoneRequired, Arguments::default(), missing),
            };
            let sure = likeness.confidence(said, meant.mood, evidence.paused);
            let call = Prediction {
                tool: tool.name.clone(),
                confidence: sure
                    * tool.factuality(&meant.clause)
                    * goes_on(&arguments, evidence.paused),
                arguments: arguments.values,
                source: Source::Example,
                open,
            };
            Considered {
                tool: tool.name.clone(),
                likeness,
                mood: meant.mood,
                call,
            }
        });
        Ok(considered.collect())
    }
}

/// The calls of the two nearest tools, unless they are unlikely. While the user speaks, an argument is open anyway.
fn likeliest(considered: Vec<Considered>, paused: bool) -> Vec<Prediction> {
    let calls = considered.into_iter().take(2).map(|one| one.call);
    calls
        .filter(|call| call.confidence >= LEAST && (paused || call.open.is_empty()))
        .collect()
}

fn goes_on(filled: &Arguments, paused: bool) -> f32 {
    match (paused, filled.growing, filled.open) {
        (true, _, _) | (false, false, false) => 1.0,
        (false, true, _) => GROWING,
        (false, false, true) => OPEN,
    }
}

fn embedded(
    last: &mut Vec<(String, Vec<f32>)>,
    embedder: &mut Embedder,
    text: &str,
) -> Result<Vec<f32>, PredictError> {
    if let Some((_, embedding)) = last.iter().find(|(known, _)| known == text) {
        return Ok(embedding.clone());
    }
    let embedding = embedder.embed(text).map_err(|error| PredictError {
        predictor: Source::Example,
        reason: error.to_string(),
    })?;
    last.insert(0, (text.to_owned(), embedding.clone()));
    Ok(embedding)
}

impl LocalPredictor for Matching {
    fn source(&self) -> Source {
        Source::Example
    }

    fn predict(&mut self, evidence: &Evidence) -> Result<Vec<Prediction>, PredictError> {
        let considered = self.consider(evidence)?;
        Ok(likeliest(considered, evidence.paused))
    }
}
