//! State that every rule may use and none owns: time, decisions, deadlines, identifiers and the operator's
//! settings.

use super::agent::Handoff;
use super::experience::{Experience, Lesson};
use super::ids::{CallId, ClauseId, ItemId, RequestId, RunId, TurnId};
use super::model_pace::ModelPace;
use super::output::{Event, Output};
use super::policy::{Declarations, Policy};
use super::sentence::spoken_length;
use super::speculation::HeldRecord;
use super::timer::{Timer, Timers};
use crate::language::Pack;
use crate::time::{Micros, Time};
use crate::tools::{Declaration, Fillers};
use crate::tts::Speaker;
use std::collections::VecDeque;

/// Lessons that may wait until they are taken, once in a turn.
const LESSONS: usize = 256;

/// State that every rule may use.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) policy: Policy,
    /// Changed tools of the server that the policy does not have yet.
    pub(super) changed_tools: Option<Declarations>,
    pub(super) handoff: Handoff,
    /// The time of the current input.
    pub(super) now: Time,
    /// Decisions that have not been polled, oldest first.
    pub(super) outputs: VecDeque<Output>,
    pub(super) timers: Timers,
    pub(super) ids: Ids,
    pub(super) pace: ModelPace,
    /// The day's budget for tokens of discarded generations is spent.
    pub(super) tokens_spent: bool,
    pub(super) experience: Experience,
    /// The lessons since they were last taken.
    pub(super) lessons: Vec<Lesson>,
    /// The held-back generations that have ended since the last record of a turn.
    pub(super) held: Vec<HeldRecord>,
}

/// Creates identifiers. Those that the client sees share one counter, except for calls; work has another, so
/// that speculative work leaves no gaps in the visible ones. Calls are counted alone, so that the id of the
/// next one is known before the model has committed it.
#[derive(Debug, Default)]
pub(super) struct Ids {
    seen: u64,
    work: u64,
    calls: u64,
}

impl Ids {
    pub(super) fn next(&mut self) -> u64 {
        self.seen += 1;
        self.seen
    }

    /// The id that the next call will have.
    pub(super) fn coming_call(&self) -> CallId {
        CallId(self.calls + 1)
    }

    fn next_work(&mut self) -> u64 {
        self.work += 1;
        self.work
    }
}

impl Common {
    /// Starts the session at time zero and sets its overall deadlines.
    pub(super) fn new(policy: Policy, experience: Experience) -> Self {
        let mut common = Self {
            policy,
            changed_tools: None,
            handoff: Handoff::default(),
            now: Time(0),
            outputs: VecDeque::new(),
            timers: Timers::default(),
            ids: Ids::default(),
            pace: ModelPace::default(),
            tokens_spent: false,
            experience,
            lessons: Vec::new(),
            held: Vec::new(),
        };
        let end = common.now + common.policy.timeouts.session;
        common.timers.set(Timer::SessionEnd, end);
        common.mark_activity();
        common
    }

    /// Learns something, for this conversation and for later ones. Lessons about tools that are not the
    /// server's end with the conversation: they are the client's (`by_client`), or the model's invention.
    pub(super) fn learn(&mut self, lesson: Lesson, by_client: bool) {
        let tool = lesson.tool();
        let is_ours = tool.is_none_or(|tool| self.policy.tool(tool).is_some());
        if is_ours && !by_client && self.lessons.len() < LESSONS {
            self.lessons.push(lesson.clone());
        }
        self.experience.learn(lesson);
    }

    /// Restarts the idle deadline.
    pub(super) fn mark_activity(&mut self) {
        self.timers
            .set(Timer::Idle, self.now + self.policy.timeouts.idle);
    }

    /// Sends an event to the client.
    pub(super) fn notify(&mut self, event: Event) {
        self.outputs.push_back(Output::Notify(event));
    }

    /// Tells the client that its `request` was refused, and why.
    pub(super) fn refuse(&mut self, request: &str, message: String) {
        self.notify(Event::Refused {
            request: request.into(),
            message,
        });
    }

    pub(super) fn request_id(&mut self) -> RequestId {
        RequestId(self.ids.next_work())
    }

    pub(super) fn run_id(&mut self) -> RunId {
        RunId(self.ids.next_work())
    }

    pub(super) fn call_id(&mut self) -> CallId {
        let call = self.ids.coming_call();
        self.ids.calls = call.0;
        call
    }

    /// The rules of the language that the agent and the user speak.
    pub(super) fn language(&self) -> &'static Pack {
        self.policy.speaker.pack()
    }

    /// A tool's fillers in the agent's language.
    pub(super) fn fillers<'a>(&self, tool: &'a Declaration) -> &'a Fillers {
        tool.fillers_in(self.policy.speaker.language.as_deref())
    }

    /// How long the agent takes to say `text`, about.
    pub(super) fn spoken_length(&self, text: &str) -> Micros {
        self.policy.speaker.speed().lasts(spoken_length(text))
    }

    /// From now on new clauses have this voice.
    pub(super) fn change_voice(&mut self, speaker: Speaker) {
        if speaker == self.policy.speaker {
            return;
        }
        let before = std::mem::replace(&mut self.policy.speaker, speaker);
        self.handoff.end_voice(ClauseId(self.ids.seen), before);
    }

    /// From now on user and agent speak another language.
    pub(super) fn change_language(&mut self, language: &str) {
        if let Some(speaker) = self.policy.speaker.in_language(language) {
            self.change_voice(speaker);
        }
    }

    /// The voice of a clause.
    pub(super) fn speaker_of(&self, clause: ClauseId) -> Speaker {
        let before = self.handoff.voice_before(clause);
        before.unwrap_or(&self.policy.speaker).clone()
    }

    pub(super) fn item_id(&mut self) -> ItemId {
        ItemId(self.ids.next())
    }

    /// The largest id of an item so far, or a larger one that no item has.
    pub(super) fn last_item(&self) -> ItemId {
        ItemId(self.ids.seen)
    }

    pub(super) fn turn_id(&mut self) -> TurnId {
        TurnId(self.ids.next())
    }
}
