//! Fillers while the user waits: none, a short one, a long one, or a second one. A filler never claims
//! anything about a result.

use super::announced::Announced;
use super::client_settings::ClientTools;
use super::common::Common;
use super::ids::CallId;
use super::policy::{FillerLead, FillerPolicy};
use super::speculation::{Speculation, Track};
use super::template::render;
use super::wait::Wait;
use crate::time::{Micros, Time};
use crate::tools::Fillers;
use crate::tts::Speed;
use serde_json::{Map, Value};

#[cfg(test)]
mod tests;

/// The most fillers that the conversation says in one response.
const MOST: u32 = 2;

/// The most fillers in one response while the model thinks, which takes long.
const MOST_THINKING: u32 = 4;

/// The longest that an announcement is stretched to, % of its usual length: slower than that sounds unnatural.
const DRAWN_OUT: u64 = 120;

/// If the answer comes neither now nor soon, the decision is made again after this time.
const AGAIN: Micros = Micros::from_ms(100);

/// The silence while an answer is due.
#[derive(Debug)]
pub(super) struct DeadAir {
    /// Since when the answer is due.
    since: Time,
    /// Fillers said so far.
    fillers: u32,
    /// Of these, fillers said because it was silent for too long.
    again: u32,
    /// Clauses of fillers that were dropped, because the answer came first.
    unsaid: u32,
    /// Their length.
    spared: Micros,
    /// The model has shown that it thinks.
    thinks: bool,
    /// No filler before this.
    silent_until: Time,
    /// The announcements so far, of the server and the model.
    pub(super) announced: Announced,
}

impl DeadAir {
    /// A wait for an answer that begins `now`.
    pub(super) fn since(now: Time) -> Self {
        Self {
            since: now,
            fillers: 0,
            again: 0,
            unsaid: 0,
            spared: Micros(0),
            thinks: false,
            silent_until: Time(0),
            announced: Announced::default(),
        }
    }

    /// Restarts the wait for the answer.
    pub(super) fn restart(&mut self, common: &Common) {
        self.silent_until = common.now + common.policy.timeouts.dead_air;
    }

    pub(super) fn fillers(&self) -> u32 {
        self.fillers
    }

    /// When the next filler is due, if it has been silent since `silent_since`. `None` if the most were said.
    /// `calls`: a call is under way, or the model has not said a word about its result.
    pub(super) fn ends(&self, silent_since: Time, patience: Micros, calls: bool) -> Option<Time> {
        let wait = match calls && silent_since > self.since && self.again == 0 {
            // A sentence ends with a pause of some 120 ms. A longer one sounds like the end of the turn.
            true => Micros(0),
            // The model is known to think: the patience grows once, not with each filler.
            false if self.thinks => Micros(patience.0 * u64::from(self.again + 1).min(2)),
            false => Micros(patience.0 * u64::from(self.again + 1)),
        };
        let end = (silent_since.max(self.since) + wait).max(self.silent_until);
        let most = if self.thinks { MOST_THINKING } else { MOST };
        (self.fillers < most).then_some(end)
    }

    /// Decides again later: the answer is near, or no filler is short enough.
    pub(super) fn put_off(&mut self, now: Time, wait: Wait) {
        let soon = match wait.is_near() {
            true => wait.expected.max(AGAIN),
            false => AGAIN,
        };
        self.silent_until = now + soon;
    }

    /// The model thinks before it speaks.
    pub(super) fn think(&mut self) {
        self.thinks = true;
    }

    /// Counts a filler that is said because of the silence.
    pub(super) fn fill_again(&mut self) {
        self.again += 1;
    }

    /// Counts clauses of fillers that are not said.
    pub(super) fn leave_unsaid(&mut self, clauses: usize) {
        self.unsaid += clauses as u32;
    }

    pub(super) fn unsaid(&self) -> u32 {
        self.unsaid
    }

    /// Adds the length of fillers that were dropped before the answer.
    pub(super) fn spare(&mut self, length: Micros) {
        self.spared = self.spared + length;
    }

    pub(super) fn spared(&self) -> Micros {
        self.spared
    }

    /// Counts a filler.
    pub(super) fn fill(&mut self) {
        self.fillers += 1;
    }
}

/// The template for a wait; `None` if the wait is too short or there is no template.
fn choose(fillers: &Fillers, wait: Micros, policy: &FillerPolicy) -> Option<String> {
    if wait.as_ms() < policy.worth_ms {
        return None;
    }
    let (short, long) = (fillers.short.first(), fillers.long.first());
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
    let tool = clients.declared(&common.policy, &call.tool)?;
    let wait = speculation.wait_for_prediction(track.id, tool, &call.arguments, common)?;
    let wait = wait.unwrap_or(Micros::from_ms(policy.worth_ms));
    let template = choose(common.fillers(tool), wait, policy)?;
    render(tool, &template, &call.arguments)
}

/// The filler for a call that the model made without a word before it, `wait` before the answer. `said`: what was
/// announced already.
pub(super) fn of_call(
    common: &Common,
    (wait, said): (Wait, &Announced),
    name: &str,
    arguments: &Map<String, Value>,
) -> Option<String> {
    let tool = common.policy.tool(name)?;
    let template = choose(common.fillers(tool), wait.expected, &common.policy.filler)?;
    let own = render(tool, &template, arguments);
    let short = Some(&common.policy.phrases().one_moment);
    let fits = |text: &String| {
        Wait::has_room(wait.expected, common.spoken_length(text))
            && !said.has_all(text, common.language())
    };
    own.filter(fits).or(short.cloned().filter(fits))
}

/// The next filler of a long wait: the tool's own, or else a general one. `None` if each would delay the answer, or was
/// said already; while the model thinks, the wait is so long that they may be said again.
pub(super) fn again(
    common: &Common,
    speculation: &Speculation,
    waiting: &[CallId],
    wait: Wait,
    so_far: &DeadAir,
) -> Option<String> {
    let own = speculation.run_of(waiting).and_then(|run| {
        let tool = common.policy.tool(&run.tool)?;
        let again = &common.fillers(tool).again;
        let template = again.get(so_far.fillers as usize % again.len().max(1))?;
        render(tool, template, &run.arguments)
    });
    let phrases = common.policy.phrases();
    // This phrase says "more", which needs an earlier announcement.
    let more = (!waiting.is_empty()).then_some(&phrases.moment_more);
    let general = [
        Some(&phrases.still_working),
        more,
        Some(&phrases.one_moment),
    ];
    let general = general.into_iter().flatten().cloned();
    let has_room = |text: &String| Wait::has_room(wait.least, common.spoken_length(text));
    let fit: Vec<String> = own.into_iter().chain(general).filter(has_room).collect();
    let is_new = |text: &&String| !so_far.announced.has_all(text, common.language());
    let new = fit.iter().find(is_new);
    new.or(fit.first().filter(|_| so_far.thinks)).cloned()
}

/// The speed of an announcement that takes `length` at the `usual` one, when the answer is expected after `wait`:
/// slower if it would end before that.
pub(super) fn drawn_out(usual: Speed, length: Micros, wait: Micros) -> Speed {
    let longest = Micros(length.0 * DRAWN_OUT / 100);
    let wanted = wait.min(longest).max(length);
    let slower = usual.factor() * length.0 as f64 / wanted.0.max(1) as f64;
    Speed::of(slower).unwrap_or(usual)
}
