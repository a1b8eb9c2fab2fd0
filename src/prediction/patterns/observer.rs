//! The source of predictions that learns from committed calls which call comes next.

use super::learner::Guess;
use super::memory::{Learnt, Memory, PatternFigures, SURE};
use super::origin::Schemas;
use super::trail::{self, OPEN, Trail};
use crate::prediction::{
    Committed, Moment, PastCall, PredictError, Prediction, Predictor, Question, Said, Source, Today,
};
use crate::tools::{Declaration, canonical};
use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use uuid::Uuid;

/// The least confidence of a guess that is told. Below, hardly anything speaks for it.
const LEAST_TOLD: f64 = 0.01;

/// The most calls that are predicted at once.
const MOST: usize = 3;

/// Predicts calls from the calls before them. It learns from every committed call of a server's tool, and keeps no
/// value of any session.
pub struct Transitions {
    tools: HashMap<String, Arc<Declaration>>,
    schemas: Schemas,
    today: Today,
    sessions: Mutex<HashMap<Uuid, Session>>,
    memory: Memory,
    /// How many calls ahead it predicts.
    depth: u32,
}

/// One session, while it is open.
#[derive(Debug, Default)]
pub(super) struct Session {
    agent: Arc<str>,
    conversation: u64,
    trail: Trail,
    /// The predictions since the last call.
    expected: Vec<Guess>,
    /// The user's last complete words.
    last_said: Option<String>,
    /// The words of the turn in which the last call was made.
    words_at_call: String,
    words: String,
}

impl Transitions {
    /// A source for these tools, which begins with what `memory` holds.
    pub fn new(
        tools: &[Arc<Declaration>],
        today: Today,
        figures: PatternFigures,
        memory: Memory,
    ) -> Self {
        let named = tools
            .iter()
            .map(|tool| (tool.spec.name.clone(), tool.clone()));
        let schemas = Schemas::of(tools.iter().map(|tool| &**tool));
        memory.lock().admit(&schemas, figures);
        Self {
            schemas,
            tools: named.collect(),
            today,
            sessions: Mutex::default(),
            memory,
            depth: 2,
        }
    }

    /// Sets how many calls ahead it predicts: 1 is the next one alone, 2 (the default) also the one after it, if
    /// that does not need the next one's result.
    #[must_use]
    pub fn looking_ahead(self, depth: u32) -> Self {
        Self { depth, ..self }
    }

    pub(super) fn sessions(&self) -> MutexGuard<'_, HashMap<Uuid, Session>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a call of the tool may be predicted: only reads are, because no others run early.
    fn may(&self, tool: &str) -> bool {
        let tool = self.tools.get(tool);
        tool.is_some_and(|tool| !tool.effect.changes())
    }

    pub(super) fn canonical(
        &self,
        tool: &str,
        arguments: &Map<String, Value>,
    ) -> Map<String, Value> {
        let declared = self.tools.get(tool);
        declared.map_or_else(|| arguments.clone(), |tool| canonical(tool, arguments))
    }

    fn answer(&self, question: &Question) -> Vec<Prediction> {
        let mut sessions = self.sessions();
        let mut learnt = self.memory.lock();
        let session = sessions.entry(question.session).or_insert_with(|| Session {
            conversation: learnt.begin(),
            trail: Trail::new(self.today.date()).by(question.came_by.clone()),
            ..Session::default()
        });
        session.hear(question);
        session.take_results(&question.evidence.calls, &self.schemas);
        let guess = |trail: &mut Trail| self.guesses(&learnt, &question.agent, trail);
        let mut guesses = match question.evidence.moment.is_before_words() {
            true => session.trail.before_words(guess),
            false => guess(&mut session.trail),
        };
        // A noise during an answer does not change what the model is expected to call next.
        if question.evidence.moment != Moment::Speech {
            session.expected.clone_from(&guesses);
        }
        guesses.retain(|guess| {
            // The client's tool replaces the server's of the same name.
            let is_lent = question
                .tools
                .iter()
                .any(|(tool, _)| tool.spec.name == guess.tool);
            !is_lent
                && guess.confidence >= LEAST_TOLD
                && learnt.lets_through(&question.agent, guess)
        });
        let predicted = guesses.into_iter().map(|guess| Prediction {
            tool: guess.tool,
            arguments: guess.arguments,
            confidence: guess.confidence as f32,
            source: Source::Transition,
            open: Vec::new(),
        });
        predicted.collect()
    }

    fn guesses(&self, learnt: &Learnt, agent: &str, trail: &mut Trail) -> Vec<Guess> {
        let Some(patterns) = learnt.of(agent) else {
            return Vec::new();
        };
        let may = |tool: &str| self.may(tool);
        let mut guesses = patterns.predict(trail, &self.schemas, may, MOST);
        if let Some(first) = guesses
            .first()
            .filter(|one| one.confidence >= SURE && self.depth > 1)
            .cloned()
        {
            let Guess {
                tool, arguments, ..
            } = &first;
            let second = trail.supposing(&self.schemas, tool, arguments, |trail| {
                patterns.predict(trail, &self.schemas, may, 1)
            });
            guesses.extend(second.into_iter().map(|second| Guess {
                likelihood: second.likelihood * first.likelihood,
                confidence: second.confidence * first.confidence,
                ..second
            }));
        }
        guesses
    }

    /// Compares what was expected with the call that was made, or with none.
    fn judge(&self, learnt: &mut Learnt, session: &mut Session, made: Option<&Committed>) {
        let expected = std::mem::take(&mut session.expected);
        if made.is_some() {
            learnt.called(&session.agent, &expected);
        }
        // The first is what was expected; the others are what else might come.
        let expected = expected.into_iter().next();
        let Some(guess) = expected.filter(|one| one.confidence >= SURE) else {
            return;
        };
        let is_made = |call: &Committed| {
            call.tool == guess.tool
                && call.arguments == self.canonical(&guess.tool, &guess.arguments)
        };
        let hit = made.is_some_and(is_made);
        learnt.judge(&session.agent, &guess.tool, hit);
    }
}

impl Session {
    /// Adds the user's new words.
    fn hear(&mut self, question: &Question) {
        self.agent.clone_from(&question.agent);
        if !question.evidence.moment.is_before_words() {
            self.hear_words(question);
        }
    }

    /// Adds the new results of calls, the latest call first. A call that is not among `known` keeps none of those
    /// before it from theirs.
    fn take_results(&mut self, known: &[PastCall], schemas: &Schemas) {
        let mut left = known.iter().rev();
        for at in (0..self.trail.calls.len()).rev() {
            let call = &self.trail.calls[at];
            let mut earlier = left.clone();
            let is_same = |known: &&PastCall| trail::named(schemas, &known.tool) == call.tool;
            let Some(same) = earlier.find(is_same) else {
                continue;
            };
            left = earlier;
            match &same.result {
                Some(result) if call.ending == OPEN => self.trail.resulted_at(at, result),
                _ => {}
            }
        }
    }

    fn hear_words(&mut self, question: &Question) {
        let mut said: Vec<String> = Vec::new();
        said.extend(question.history.iter().filter_map(|said| match said {
            Said::User(words) => Some(words.clone()),
            Said::Agent(_) => None,
        }));
        let last = said.last().cloned();
        if last != self.last_said {
            self.last_said.clone_from(&last);
            self.trail.turns += 1;
        }
        let words = &question.evidence.text;
        if last.as_ref() != Some(words) {
            said.push(words.clone());
        }
        self.trail.spoke |= *words != self.words_at_call;
        self.words.clone_from(words);
        self.trail.hear(said);
    }
}

impl Predictor for Transitions {
    fn predict(
        &self,
        question: Arc<Question>,
    ) -> BoxFuture<'static, Result<Vec<Prediction>, PredictError>> {
        // Some microseconds: no thread is needed.
        let predictions = self.answer(&question);
        Box::pin(async move { Ok(predictions) })
    }

    fn committed(&self, session: Uuid, call: &Committed) {
        let mut sessions = self.sessions();
        let Some(session) = sessions.get_mut(&session) else {
            return;
        };
        let mut learnt = self.memory.lock();
        self.judge(&mut learnt, session, Some(call));
        let Session {
            agent,
            conversation,
            trail,
            words_at_call,
            words,
            ..
        } = session;
        // Values are found again only as they were written: the canonical form may have changed their case.
        learnt.learns(agent).learn(
            *conversation,
            trail,
            &self.schemas,
            &call.tool,
            &call.written,
        );
        trail.called(&self.schemas, &call.tool, &call.written);
        words_at_call.clone_from(words);
    }

    fn ended(&self, session: Uuid) {
        let ended = self.sessions().remove(&session);
        if let Some(mut session) = ended {
            let mut learnt = self.memory.lock();
            self.judge(&mut learnt, &mut session, None);
            learnt
                .learns(&session.agent)
                .ended(&session.trail, &self.schemas);
        }
    }
}
