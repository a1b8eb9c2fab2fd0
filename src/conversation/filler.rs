//! What is said while the user waits: nothing, a short filler, a long one, or a second one. Never a
//! claim about a result that is not there.

use super::Conversation;
use super::answer::Words;
use super::common::Common;
use super::ids::CallId;
use super::policy::{FillerLead, FillerPolicy};
use super::speculation::Track;
use super::template::render;
use super::time::{Micros, Time};
use super::timer::Timer;
use crate::tools::Declaration;
use serde_json::{Map, Value};

/// Fillers that the conversation says by itself in one response, at most.
const MOST: u32 = 2;

/// Waits are foreseen at this quantile of a tool's last latencies: three of four calls are faster.
const FORESEEN: f64 = 0.75;

/// An answer so near is waited for in silence.
const NEAR: Micros = Micros::from_ms(400);

/// The silence while an answer is owed.
#[derive(Debug)]
pub(super) struct DeadAir {
    /// The answer began to be owed.
    since: Time,
    /// Fillers that were said.
    fillers: u32,
    /// No filler before this.
    silent_until: Time,
}

impl DeadAir {
    /// An answer is owed from here on.
    pub(super) fn since(now: Time) -> Self {
        Self {
            since: now,
            fillers: 0,
            silent_until: Time(0),
        }
    }

    /// The wait for the answer begins only now.
    pub(super) fn restart(&mut self, common: &Common) {
        self.silent_until = common.now + common.policy.timeouts.dead_air;
    }

    pub(super) fn fillers(&self) -> u32 {
        self.fillers
    }

    /// When the silence has lasted long enough for a filler, if it has lasted since `silent_since`. `None`
    /// if there were enough of them.
    fn ends(&self, silent_since: Time, patience: Micros) -> Option<Time> {
        let wait = Micros(patience.0 * u64::from(self.fillers + 1));
        let end = (silent_since.max(self.since) + wait).max(self.silent_until);
        (self.fillers < MOST).then_some(end)
    }

    /// The silence has lasted, and the answer is expected in `wait`. `true` if it is waited for a little
    /// longer: once, and only if it is about to come.
    fn goes_on(&mut self, now: Time, wait: Micros) -> bool {
        let goes_on = wait.0 > 0 && wait < NEAR && self.silent_until < now;
        if goes_on {
            self.silent_until = now + wait + NEAR;
        }
        goes_on
    }

    /// A filler is said.
    fn fill(&mut self) {
        self.fillers += 1;
    }
}

/// The template for a wait; `None` if it is too short to talk about or there is no template.
fn choose(tool: &Declaration, wait: Micros, policy: &FillerPolicy) -> Option<String> {
    if wait.as_ms() < policy.worth_ms {
        return None;
    }
    let (short, long) = (tool.fillers.short.first(), tool.fillers.long.first());
    let template = if wait.as_ms() < policy.long_ms {
        short.or(long)
    } else {
        long.or(short)
    };
    template.cloned()
}

impl Conversation {
    /// What the router's word is enough to say before the model has said anything.
    pub(super) fn router_filler(&self, track: &Track) -> Option<String> {
        let policy = &self.common.policy.filler;
        let call = track.likeliest()?;
        if policy.lead != FillerLead::Router || call.confidence < policy.confidence {
            return None;
        }
        let tool = self.declaration(&call.tool)?;
        let key = crate::tools::canonical(&tool, &call.arguments);
        let ledger = &self.speculation.ledger;
        let run = ledger.same(track.id, &call.tool, &key);
        let run = run.and_then(|run| ledger.get(run));
        if run.is_some_and(|run| run.outcome.is_some()) {
            return None;
        }
        let elapsed = run.map_or(Micros(0), |run| self.common.now.since(run.started));
        let wait = match ledger.observed(&call.tool, FORESEEN) {
            Some(expected) => Micros(expected.0.saturating_sub(elapsed.0)),
            None => Micros::from_ms(policy.worth_ms),
        };
        render(&tool, &choose(&tool, wait, policy)?, &call.arguments)
    }

    /// The model has called a tool without a word before it: say something if the wait is long.
    pub(super) fn fill_silent_call(
        &mut self,
        call: CallId,
        name: &str,
        arguments: &Map<String, Value>,
    ) {
        let silent = self
            .answer
            .as_ref()
            .filter(|a| !a.has_spoken() && a.dead_air.fillers() == 0)
            .is_some_and(|a| a.calls.open().contains(&call));
        let Some(tool) = self.operators(name).cloned().filter(|_| silent) else {
            return;
        };
        let wait = self.remaining_wait(&[call], FORESEEN);
        let wait = wait.unwrap_or(Micros::from_ms(1_000));
        let template = choose(&tool, wait, &self.common.policy.filler);
        if let Some(text) = template.and_then(|template| render(&tool, &template, arguments)) {
            self.say_filler(&text);
        }
    }

    /// While an answer is owed and nothing is being said, silence must not last.
    pub(super) fn watch_dead_air(&mut self) {
        let Some(answer) = &self.answer else {
            return;
        };
        let patience = self.common.policy.timeouts.dead_air;
        let end = answer.dead_air.ends(self.playout.sent_until(), patience);
        match end.filter(|_| self.playout.all_sent()) {
            Some(end) => self.common.timers.set(Timer::DeadAir, end),
            None => self.common.timers.clear(Timer::DeadAir),
        }
    }

    /// The silence has lasted.
    pub(super) fn fill_dead_air(&mut self) {
        let Some(waiting) = self.answer.as_ref().map(|a| a.calls.open()) else {
            return;
        };
        let remaining = self.remaining_wait(&waiting, FORESEEN);
        if let (Some(answer), Some(wait)) = (&mut self.answer, remaining)
            && answer.dead_air.goes_on(self.common.now, wait)
        {
            return;
        }
        let text = self.waiting_words(&waiting);
        self.say_filler(&text);
    }

    /// The words for a wait that drags on: the waiting tool's own, else the general ones.
    fn waiting_words(&self, waiting: &[CallId]) -> String {
        let fillers = self.answer.as_ref().map_or(0, |a| a.dead_air.fillers()) as usize;
        let runs = &self.speculation.ledger;
        let run = runs
            .runs()
            .find(|run| run.calls.iter().any(|call| waiting.contains(call)));
        let own = run.and_then(|run| {
            let tool = self.operators(&run.tool)?;
            let again = &tool.fillers.again;
            let template = again.get(fillers % again.len().max(1))?;
            render(tool, template, &run.arguments)
        });
        own.unwrap_or_else(|| self.common.policy.phrases.still_working.clone())
    }

    /// Says a filler. It is in the history like any speech, but it is no answer.
    pub(super) fn say_filler(&mut self, text: &str) {
        let Some(answer) = &mut self.answer else {
            return;
        };
        answer.dead_air.fill();
        self.speak(text, Words::Filler);
    }
}
