//! What is said while the user waits: nothing, a short filler, a long one, or a second one. Never a
//! claim about a result that is not there.

use super::Conversation;
use super::ids::CallId;
use super::policy::{FillerLead, FillerPolicy};
use super::response::{Response, Words};
use super::speculation::Track;
use super::template::render;
use super::time::Micros;
use super::timer::Timer;
use crate::tools::Declaration;
use serde_json::{Map, Value};

/// Fillers that the conversation says by itself in one response, at most.
const MOST: u32 = 2;

/// Waits are foreseen at this quantile of a tool's last latencies: three of four calls are faster.
const FORESEEN: f64 = 0.75;

/// An answer so near is waited for in silence.
const NEAR: Micros = Micros::from_ms(400);

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
            .response
            .as_ref()
            .is_some_and(|r| !r.said && r.fillers == 0 && r.is_waiting(call));
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
        let Some(response) = &self.response else {
            return;
        };
        if !self.playout.all_sent() || response.fillers >= MOST {
            self.common.timers.clear(Timer::DeadAir);
            return;
        }
        let since = self.playout.sent_until().max(response.began);
        let wait = Micros(self.common.policy.timeouts.dead_air.0 * u64::from(response.fillers + 1));
        let due = (since + wait).max(response.silent_until);
        self.common.timers.set(Timer::DeadAir, due);
    }

    /// The silence has lasted. If the answer is about to come, it is waited for a little longer.
    pub(super) fn fill_dead_air(&mut self) {
        let Some(response) = &self.response else {
            return;
        };
        let waiting = response.waiting_calls();
        let near = |wait: &Micros| wait.0 > 0 && *wait < NEAR;
        let remaining = self.remaining_wait(&waiting, FORESEEN);
        if let Some(wait) = remaining.filter(near).filter(|_| !waiting.is_empty()) {
            let until = self.common.now + wait;
            if let Some(response) = self
                .response
                .as_mut()
                .filter(|r| r.silent_until < self.common.now)
            {
                response.silent_until = until + NEAR;
                return;
            }
        }
        let text = self.waiting_words(&waiting);
        self.say_filler(&text);
    }

    /// The words for a wait that drags on: the waiting tool's own, else the general ones.
    fn waiting_words(&self, waiting: &[CallId]) -> String {
        let fillers = self.response.as_ref().map_or(0, |r| r.fillers) as usize;
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
        let Some(response) = &mut self.response else {
            return;
        };
        response.fillers += 1;
        self.speak(text, Words::Filler);
    }
}

impl Response {
    /// Calls whose results are not there yet.
    pub(super) fn waiting_calls(&self) -> Vec<CallId> {
        let open = self
            .waiting
            .iter()
            .filter(|waiting| waiting.result.is_none());
        open.map(|waiting| waiting.call).collect()
    }

    pub(super) fn is_waiting(&self, call: CallId) -> bool {
        self.waiting_calls().contains(&call)
    }
}
