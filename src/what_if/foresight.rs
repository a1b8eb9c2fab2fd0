//! Calls that learned patterns would have predicted in a recorded session.

use super::World;
use crate::conversation::{Briefing, Event, Policy};
use crate::prediction::patterns::{Book, Memory, PatternFigures, Transitions};
use crate::prediction::{
    Evidence, Prediction, Predictor, Question, Source as Origin, Today, merged,
};
use crate::session::{Course, DEFAULT_AGENT};
use crate::tools::{Clock, Declaration};
use futures_util::FutureExt;
use jiff::Timestamp;
use jiff::civil::Date;
use std::sync::Arc;
use uuid::Uuid;

/// Learned patterns, in place of what was predicted from calls in the recording.
#[derive(Debug, Clone)]
pub struct Foresight {
    /// The patterns of all agents.
    pub book: Book,
    /// How many calls ahead they are predicted: [`Transitions::looking_ahead`].
    pub depth: u32,
}

/// The source of one simulated session.
pub(super) struct Source {
    transitions: Transitions,
    agent: Arc<str>,
    course: Course,
}

impl Source {
    /// It begins with the patterns, and goes on learning from the session as the server would, whose `tools` are those of
    /// all agents. `day` is that of the session, if it is known.
    pub(super) fn new(
        foresight: &Foresight,
        policy: &Policy,
        tools: &[Arc<Declaration>],
        day: Option<Date>,
    ) -> Self {
        let today = day.map_or_else(Today::default, |day| {
            Today::new(Arc::new(Noon(day)), jiff::tz::TimeZone::UTC)
        });
        let memory = Memory::of(foresight.book.clone());
        let figures = PatternFigures::default();
        Self {
            transitions: Transitions::new(tools, today, figures, memory)
                .looking_ahead(foresight.depth),
            agent: name_of(&policy.briefing),
            course: Course::default(),
        }
    }

    /// The session is handed over to another agent.
    pub(super) fn change_agent(&mut self, to: &Briefing) {
        self.agent = name_of(to);
    }

    pub(super) fn observe(&mut self, event: &Event, world: &World) {
        let canonical = |name: &str, arguments: &_| world.canonical(name, arguments);
        if let Some(call) = self.course.observe(event, canonical) {
            self.transitions.committed(Uuid::nil(), &call);
        }
    }

    /// The answer to a question, which takes no time worth counting.
    pub(super) fn predict(&self, heard: &Evidence) -> Vec<Prediction> {
        let question = Question {
            session: Uuid::nil(),
            agent: self.agent.clone(),
            came_by: None,
            history: self.course.history(),
            evidence: heard.clone(),
            tools: Arc::default(),
        };
        let answer = self.transitions.predict(Arc::new(question)).now_or_never();
        answer.and_then(Result::ok).unwrap_or_default()
    }
}

fn name_of(agent: &Briefing) -> Arc<str> {
    agent.agent.as_deref().unwrap_or(DEFAULT_AGENT).into()
}

/// The recorded predictions of the other sources, and these.
pub(super) fn beside(recorded: Vec<Prediction>, own: &[Prediction]) -> Vec<Prediction> {
    let mut others = recorded;
    others.retain(|one| one.source != Origin::Transition);
    merged([others, own.to_vec()])
}

/// A clock that stands still at noon of a day.
struct Noon(Date);

impl Clock for Noon {
    fn now(&self) -> Timestamp {
        let noon = self.0.at(12, 0, 0, 0).in_tz("UTC");
        noon.map_or(Timestamp::UNIX_EPOCH, |noon| noon.timestamp())
    }
}
