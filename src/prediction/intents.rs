//! Predictions by intent: a trained head says what is asked for, slots fill the arguments.

use super::RouterHints;
use super::fill::{Form, Words};
use super::heads::IntentHead;
use super::parameters::{Kind, Today};
use super::rules::{GROWING, OPEN};
use super::{Embedder, Evidence, LocalPredictor, PredictError, Prediction, Source};
use crate::language::en::factuality::Factuality;
use crate::language::en::text;
use crate::tools::Declaration;
use std::sync::Arc;

/// Confidence factor of calls that the head did not accept: below any default threshold, and still seen in traces.
const DOUBTED: f32 = 0.5;

/// Predicts by intent.
#[derive(Debug)]
pub struct Intents {
    embedder: Embedder,
    heads: Vec<IntentHead>,
    tools: Vec<AskedTool>,
    today: Today,
    /// The last text and its embedding: a pause changes no word.
    last: (String, Vec<f32>),
}

#[derive(Debug)]
struct AskedTool {
    name: String,
    intents: Vec<String>,
    form: Form,
}

impl Intents {
    /// These heads for these tools. An intent asks for the tool of the same name, and for those
    /// whose hints name it; heads and intents without a tool are not asked.
    pub fn new(
        embedder: Embedder,
        heads: Vec<IntentHead>,
        tools: &[(Arc<Declaration>, RouterHints)],
        today: Today,
    ) -> Self {
        let tools: Vec<AskedTool> = tools
            .iter()
            .map(|(declaration, hints)| AskedTool {
                name: declaration.spec.name.clone(),
                intents: [
                    hints.intents.as_slice(),
                    std::slice::from_ref(&declaration.spec.name),
                ]
                .concat(),
                form: Form::of(declaration, hints),
            })
            .collect();
        let asked = |intent: &String| tools.iter().any(|tool| tool.intents.contains(intent));
        let heads = heads
            .into_iter()
            .filter(|head| head.intents().iter().any(asked));
        Self {
            embedder,
            heads: heads.collect(),
            tools,
            today,
            last: (String::new(), Vec::new()),
        }
    }

    /// Whether any head knows an intent of any tool.
    pub fn is_useful(&self) -> bool {
        !self.heads.is_empty()
    }

    fn embed(&mut self, normalised: &str) -> Result<(), PredictError> {
        if self.last.0 == normalised && !self.last.1.is_empty() {
            return Ok(());
        }
        let embedding = self
            .embedder
            .embed(normalised)
            .map_err(|error| PredictError {
                predictor: Source::Intent,
                reason: error.to_string(),
            })?;
        self.last = (normalised.to_owned(), embedding);
        Ok(())
    }

    fn predictions(&self, head: &IntentHead, evidence: &Evidence) -> Vec<Prediction> {
        let (normalised, embedding) = &self.last;
        let judged = head.judge(normalised, embedding);
        let found = head
            .slots(&judged.intent, &evidence.text)
            .unwrap_or_default();
        let slots: Vec<(String, String)> = found
            .into_iter()
            .map(|(name, range)| (name, text::normalise(&evidence.text[range])))
            .collect();
        let factuality = Factuality::of_clause(normalised);
        let meant = head.factuality(&judged.intent);
        let asked = self
            .tools
            .iter()
            .filter(|tool| tool.intents.contains(&judged.intent));
        let predict = |tool: &AskedTool| {
            let words = Words {
                said: &evidence.text,
                text: normalised,
                today: self.today.date(),
            };
            let filled = tool.form.fill(&slots, words).ok()?;
            let mut parameters = tool.form.parameters.iter();
            let takes_day = parameters.any(|one| one.kind == Kind::Date);
            let goes_on = match (evidence.paused, filled.growing, filled.open) {
                (true, _, _) | (false, false, false) => 1.0,
                (false, true, _) => GROWING,
                (false, false, true) => OPEN,
            };
            let believed = if judged.accepted { 1.0 } else { DOUBTED };
            Some(Prediction {
                tool: tool.name.clone(),
                arguments: filled.values,
                confidence: judged.probability
                    * believed
                    * goes_on
                    * factuality.discount(meant, takes_day),
                source: Source::Intent,
                open: Vec::new(),
            })
        };
        asked.filter_map(predict).collect()
    }
}

impl LocalPredictor for Intents {
    fn source(&self) -> Source {
        Source::Intent
    }

    fn predict(&mut self, evidence: &Evidence) -> Result<Vec<Prediction>, PredictError> {
        let normalised = text::normalise(&evidence.text);
        if normalised.is_empty() || !self.is_useful() {
            return Ok(Vec::new());
        }
        self.embed(&normalised)?;
        let all = self
            .heads
            .iter()
            .flat_map(|head| self.predictions(head, evidence));
        Ok(all.collect())
    }
}
