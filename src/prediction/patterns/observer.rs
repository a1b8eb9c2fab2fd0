//! The source of predictions: hears what sessions commit, and predicts what comes next.

use super::learner::{Guess, Patterns, Rate};
use super::origin::Schemas;
use super::trail::Trail;
use crate::prediction::{
    PastCall, PredictError, Prediction, Predictor, Question, Said, Source, Today,
};
use crate::tools::{Declaration, Effect, canonical};
use futures_util::future::BoxFuture;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use uuid::Uuid;

/// Calls that are predicted at once.
const MOST: usize = 3;
/// A prediction that is at least so sure is expected to be right.
const SURE: f64 = 0.5;
/// The share of the earlier weight that one more case leaves: about five count, and about fifty.
const LATELY: f64 = 0.8;
const USUALLY: f64 = 0.98;
/// Cases before a tool may be stopped.
const CASES: f64 = 3.5;
/// A tool whose sure predictions are right in less than this share of recent cases is stopped, and one whose are in
/// more than the other is resumed.
const STOP: f64 = 0.3;
const RESUME: f64 = 0.6;
/// While a tool is stopped, one in so many predictions is made all the same.
const TRIAL: u32 = 8;

/// The state of the patterns, for metrics.
#[derive(Debug, Clone, Default)]
pub struct PatternFigures {
    /// Tools that are not predicted at the moment, because the predictions of late were wrong.
    pub(crate) stopped: Gauge<i64, AtomicI64>,
    /// How often a tool was stopped.
    pub(crate) drifts: Counter,
}

/// Predicts calls from the calls before them. It learns from every committed call of a server's tool, for as long as the
/// server runs, and keeps no value of any session.
pub struct Transitions {
    tools: HashMap<String, Arc<Declaration>>,
    schemas: Schemas,
    today: Today,
    figures: PatternFigures,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    patterns: Patterns,
    sessions: HashMap<Uuid, Session>,
    watched: BTreeMap<String, Watched>,
}

/// One session, while it is open.
#[derive(Debug, Default)]
struct Session {
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

/// How right the predictions of a tool are.
#[derive(Debug, Default)]
struct Watched {
    lately: Rate,
    usually: Rate,
    stopped: bool,
    withheld: u32,
}

impl Transitions {
    /// A source for these tools that has learned nothing yet.
    pub fn new(tools: &[Arc<Declaration>], today: Today, figures: PatternFigures) -> Self {
        let named = tools
            .iter()
            .map(|tool| (tool.spec.name.clone(), tool.clone()));
        Self {
            schemas: Schemas::of(tools.iter().map(|tool| &**tool)),
            tools: named.collect(),
            today,
            figures,
            state: Mutex::default(),
        }
    }

    /// Everything learned so far.
    pub fn patterns(&self) -> Patterns {
        self.state().patterns.clone()
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Only calls that change nothing are predicted: no others run early.
    fn may(&self, tool: &str) -> bool {
        let tool = self.tools.get(tool);
        tool.is_some_and(|tool| matches!(tool.effect, Effect::Read | Effect::ReadCostly))
    }

    fn canonical(&self, tool: &str, arguments: &Map<String, Value>) -> Map<String, Value> {
        let declared = self.tools.get(tool);
        declared.map_or_else(|| arguments.clone(), |tool| canonical(tool, arguments))
    }

    fn answer(&self, question: &Question) -> Vec<Prediction> {
        let mut state = self.state();
        let State {
            patterns,
            sessions,
            watched,
        } = &mut *state;
        let session = sessions.entry(question.session).or_insert_with(|| Session {
            conversation: patterns.begin(),
            trail: Trail::new(self.today.date()),
            ..Session::default()
        });
        session.hear(question);
        let may = |tool: &str| self.may(tool);
        let mut guesses = patterns.predict(&session.trail, &self.schemas, may, MOST);
        if let Some(first) = guesses
            .first()
            .filter(|one| one.confidence >= SURE)
            .cloned()
        {
            let Guess {
                tool, arguments, ..
            } = &first;
            let second = session
                .trail
                .supposing(&self.schemas, tool, arguments, |trail| {
                    patterns.predict(trail, &self.schemas, may, 1)
                });
            guesses.extend(second.into_iter().map(|second| Guess {
                likelihood: second.likelihood * first.likelihood,
                confidence: second.confidence * first.confidence,
                ..second
            }));
        }
        session.expected.clone_from(&guesses);
        guesses.retain(|guess| {
            let watched = watched.entry(guess.tool.clone()).or_default();
            // The client's tool replaces the server's of the same name.
            let is_lent = question
                .tools
                .iter()
                .any(|(tool, _)| tool.spec.name == guess.tool);
            !is_lent && (guess.confidence < SURE || watched.lets_through())
        });
        let predicted = guesses.into_iter().map(|guess| Prediction {
            tool: guess.tool,
            arguments: guess.arguments,
            confidence: guess.confidence as f32,
            source: Source::Transition,
        });
        predicted.collect()
    }

    /// Compares what was expected with the call that was made, or with none.
    fn judge(
        &self,
        watched: &mut BTreeMap<String, Watched>,
        expected: &[Guess],
        made: Option<&PastCall>,
    ) {
        // The first is what was expected; the others are what else might come.
        let Some(guess) = expected.first().filter(|one| one.confidence >= SURE) else {
            return;
        };
        let is_made = |call: &PastCall| {
            call.tool == guess.tool
                && call.arguments == self.canonical(&guess.tool, &guess.arguments)
        };
        let watched = watched.entry(guess.tool.clone()).or_default();
        match watched.add(made.is_some_and(is_made)) {
            Some(true) => {
                tracing::warn!(
                    tool = guess.tool,
                    "its calls are no longer predicted from the calls before: what was learned is no longer right"
                );
                self.figures.drifts.inc();
                self.figures.stopped.inc();
            }
            Some(false) => {
                tracing::info!(tool = guess.tool, "its calls are predicted again");
                self.figures.stopped.dec();
            }
            None => {}
        }
    }
}

impl Session {
    /// Takes over what is new: the user's words and the results of calls.
    fn hear(&mut self, question: &Question) {
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
        let mut known = question.evidence.calls.iter().rev();
        for at in (0..self.trail.calls.len()).rev() {
            let call = &self.trail.calls[at];
            let same = known.find(|known| known.tool == call.tool);
            let is_open = call.ending == "open";
            match same.and_then(|known| known.result.as_ref()) {
                Some(result) if is_open => self.trail.resulted_at(at, result),
                _ => {}
            }
        }
    }
}

impl Watched {
    /// Adds a case. Returns whether the tool is stopped now, if that changes.
    fn add(&mut self, hit: bool) -> Option<bool> {
        self.lately.add(hit, LATELY);
        self.usually.add(hit, USUALLY);
        let share = |rate: Rate| rate.hits / rate.tries;
        let fell = share(self.lately) < STOP.max(share(self.usually) / 2.0);
        let before = self.stopped;
        if self.lately.tries >= CASES {
            self.stopped = match before {
                false => fell,
                true => share(self.lately) < RESUME,
            };
        }
        (self.stopped != before).then_some(self.stopped)
    }

    fn lets_through(&mut self) -> bool {
        if !self.stopped {
            return true;
        }
        self.withheld = (self.withheld + 1) % TRIAL;
        self.withheld == 0
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

    fn committed(&self, session: Uuid, call: &PastCall) {
        let mut state = self.state();
        let State {
            patterns,
            sessions,
            watched,
        } = &mut *state;
        let Some(session) = sessions.get_mut(&session) else {
            return;
        };
        self.judge(watched, &std::mem::take(&mut session.expected), Some(call));
        let Session {
            conversation,
            trail,
            words_at_call,
            words,
            ..
        } = session;
        patterns.learn(
            *conversation,
            trail,
            &self.schemas,
            &call.tool,
            &call.arguments,
        );
        trail.called(&self.schemas, &call.tool, &call.arguments);
        words_at_call.clone_from(words);
    }

    fn ended(&self, session: Uuid) {
        let mut state = self.state();
        if let Some(session) = state.sessions.remove(&session) {
            let State {
                patterns, watched, ..
            } = &mut *state;
            self.judge(watched, &session.expected, None);
            patterns.ended(&session.trail);
        }
    }
}
