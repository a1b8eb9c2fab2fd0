//! Filler while the user waits: none, a short one, a long one, or a second one. It never claims anything
//! about a result that is not there yet.

use super::client_settings::ClientTools;
use super::common::Common;
use super::ids::CallId;
use super::policy::{FillerLead, FillerPolicy};
use super::speculation::{Speculation, Track};
use super::template::render;
use crate::time::{Micros, Time};
use crate::tools::Declaration;
use serde_json::{Map, Value};

#[cfg(test)]
mod tests;

/// Fillers that the conversation says by itself in one response, at most.
const MOST: u32 = 2;

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
    pub(super) fn ends(&self, silent_since: Time, patience: Micros) -> Option<Time> {
        let wait = Micros(patience.0 * u64::from(self.fillers + 1));
        let end = (silent_since.max(self.since) + wait).max(self.silent_until);
        (self.fillers < MOST).then_some(end)
    }

    /// The silence has lasted, and the answer is expected in `wait`. `true` if it is waited for a little
    /// longer: once, and only if it is about to come.
    pub(super) fn goes_on(&mut self, now: Time, wait: Micros) -> bool {
        let goes_on = wait.0 > 0 && wait < NEAR && self.silent_until < now;
        if goes_on {
            self.silent_until = now + wait + NEAR;
        }
        goes_on
    }

    /// A filler is said.
    pub(super) fn fill(&mut self) {
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

/// The filler that a prediction is enough for before the model has said anything.
pub(super) fn of_prediction(
    common: &Common,
    clients: ClientTools,
    speculation: &Speculation,
    track: &Track,
) -> Option<String> {
    let policy = &common.policy.filler;
    let call = track.likeliest()?;
    if policy.lead != FillerLead::Router || call.confidence < policy.confidence {
        return None;
    }
    let tool = clients.servers(&common.policy, &call.tool)?;
    let wait = speculation.wait_for_prediction(track.id, tool, &call.arguments, common.now)?;
    let wait = wait.unwrap_or(Micros::from_ms(policy.worth_ms));
    render(tool, &choose(tool, wait, policy)?, &call.arguments)
}

/// The filler for a call that the model has made without a word before it.
pub(super) fn of_call(
    common: &Common,
    speculation: &Speculation,
    call: CallId,
    name: &str,
    arguments: &Map<String, Value>,
) -> Option<String> {
    let tool = common.policy.tool(name)?;
    let wait = speculation.remaining_wait(&[call], common.now);
    let wait = wait.unwrap_or(Micros::from_ms(1_000));
    let template = choose(tool, wait, &common.policy.filler)?;
    render(tool, &template, arguments)
}

/// The words for a wait that drags on after so many `fillers`: the waiting tool's own, else the general
/// ones.
pub(super) fn again(
    common: &Common,
    speculation: &Speculation,
    waiting: &[CallId],
    fillers: u32,
) -> String {
    let own = speculation.run_of(waiting).and_then(|run| {
        let tool = common.policy.tool(&run.tool)?;
        let again = &tool.fillers.again;
        let template = again.get(fillers as usize % again.len().max(1))?;
        render(tool, template, &run.arguments)
    });
    own.unwrap_or_else(|| common.policy.phrases.still_working.clone())
}
