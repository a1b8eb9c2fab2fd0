//! Fillers while the user waits: none, a short one, a long one, or a second one. A filler never claims
//! anything about a result.

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

/// The most fillers that the conversation says in one response.
const MOST: u32 = 2;

/// A wait shorter than this is not filled.
const NEAR: Micros = Micros::from_ms(400);

/// The silence while an answer is due.
#[derive(Debug)]
pub(super) struct DeadAir {
    /// Since when the answer is due.
    since: Time,
    /// Fillers said so far.
    fillers: u32,
    /// No filler before this.
    silent_until: Time,
}

impl DeadAir {
    /// An answer is due from `now` on.
    pub(super) fn since(now: Time) -> Self {
        Self {
            since: now,
            fillers: 0,
            silent_until: Time(0),
        }
    }

    /// Restarts the wait for the answer.
    pub(super) fn restart(&mut self, common: &Common) {
        self.silent_until = common.now + common.policy.timeouts.dead_air;
    }

    pub(super) fn fillers(&self) -> u32 {
        self.fillers
    }

    /// When the next filler is due, if it has been silent since `silent_since`. `None` if there were enough.
    pub(super) fn ends(&self, silent_since: Time, patience: Micros) -> Option<Time> {
        let wait = Micros(patience.0 * u64::from(self.fillers + 1));
        let end = (silent_since.max(self.since) + wait).max(self.silent_until);
        (self.fillers < MOST).then_some(end)
    }

    /// Whether to wait a little longer instead of saying a filler, because the answer is expected in `wait`.
    /// At most once.
    pub(super) fn goes_on(&mut self, now: Time, wait: Micros) -> bool {
        let goes_on = wait.0 > 0 && wait < NEAR && self.silent_until < now;
        if goes_on {
            self.silent_until = now + wait + NEAR;
        }
        goes_on
    }

    /// Counts a filler.
    pub(super) fn fill(&mut self) {
        self.fillers += 1;
    }
}

/// The template for a wait; `None` if the wait is too short or there is no template.
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

/// The filler that the router may say before the model has said anything.
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

/// The filler for a call that the model made without a word before it.
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

/// The next filler of a long wait, after `fillers` others: the tool's own, or else the general one.
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
