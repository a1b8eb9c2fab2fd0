//! Assumed commits. When a speculative run has its result before the model has committed the call, the model
//! is asked a second time, with the history as it will be after that commit. The answer is held back. If the
//! model then commits exactly that call, the held-back generation is the answer; otherwise it is discarded,
//! unheard.
//!
//! The comparison is of whole prompts, so a generation is never used for another history than the one that it
//! saw.

use super::common::Common;
use super::experience::Lesson;
use super::held::{Held, Taken};
use super::ids::{RequestId, RunId};
use super::speculation::Before;
use super::wait::left;
use crate::llm::{LlmEvent, Prompt};
use crate::time::{Micros, Time};
use serde_json::{Map, Value};

#[cfg(test)]
mod tests;

/// The longest time for which the model's words before a call are held back, and the most by which the second
/// generation may be requested after the first without them.
pub(super) const HOLD: Micros = Micros::from_ms(400);

/// The least share of hits with which a tool is still assumed to be called.
const LEAST_SHARE: f64 = 0.6;

/// The tries, and the hits among them, that a tool begins with.
const PRIOR: (f64, f64) = (10.0, 8.0);

/// One chance in this many is still used for a tool that is off.
const TRIAL: u32 = 20;

/// The time that a hit is expected to save: a common time to the first token.
const GAIN_MS: f64 = 350.0;

/// The second generation of an answer.
#[derive(Debug, Default)]
pub(super) struct Assumed {
    next: Option<Next>,
    /// Assumed commits in the current turn.
    begun: u32,
    /// The last run that was not worth it, and its confidence then.
    declined: Option<(RunId, f32)>,
}

/// A generation with the history as it will be when the current one has ended.
#[derive(Debug)]
struct Next {
    held: Held,
    /// The generation that it follows.
    main: RequestId,
    stage: Stage,
    /// The time since which words of the main generation are held back for it.
    withheld: Option<Time>,
}

/// How certain it is that the generation is needed.
#[derive(Debug)]
enum Stage {
    /// A call is assumed. `has_words`: the words of the main generation so far are in the prompt.
    Assumed { guess: Guess, has_words: bool },
    /// All calls in its prompt were committed. `at`: when, if that was after the request. `unsaid_until`: when
    /// the words before the call would have ended that are not said.
    Committed {
        at: Option<Time>,
        unsaid_until: Option<Time>,
    },
}

/// The generation that the held-back one follows.
#[derive(Debug, Clone, Copy)]
pub(super) enum Main<'a> {
    /// It is held back itself.
    Held,
    /// It is the answer's. `spoken`: words of it other than a filler were said; `called`: the tool that it is
    /// calling.
    Streams {
        spoken: bool,
        called: Option<&'a str>,
    },
    /// The answer has another one, or none.
    Over,
    /// There is no answer.
    Gone,
}

/// The reason for which a held-back generation cannot become the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Useless {
    /// There is nothing left to answer.
    Gone,
    /// The model did something else than was assumed.
    Missed,
}

/// A call that is assumed to be committed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Guess {
    /// The run that has its result.
    pub(super) run: RunId,
    pub(super) tool: String,
    pub(super) arguments: Map<String, Value>,
    /// The confidence of its prediction, 0..1.
    pub(super) confidence: f32,
    pub(super) result: Value,
    /// The tool is the client's.
    pub(super) by_client: bool,
    /// An answer that is held back has made the call: whether its tool is called is not open, and nothing is learned of
    /// that.
    pub(super) is_made: bool,
}

impl Guess {
    /// Learns something about its tool, if its call was not made yet.
    fn teaches(&self, common: &mut Common, lesson: impl FnOnce(String) -> Lesson) {
        if !self.is_made {
            common.learn(lesson(self.tool.clone()), self.by_client);
        }
    }
}

/// The estimated probability that a result of this tool that is ready will be committed.
fn share(common: &Common, tool: &str) -> f64 {
    let (hits, all) = common.experience.assumed(tool);
    (hits as f64 + PRIOR.1) / (all as f64 + PRIOR.0)
}

impl Assumed {
    /// Begins a new turn. An assumption that was made while the user paused belongs to it.
    pub(super) fn begin_turn(&mut self) {
        (self.begun, self.declined) = (u32::from(!self.is_idle()), None);
    }

    pub(super) fn is_idle(&self) -> bool {
        self.next.is_none()
    }

    /// Whether this generation is held back.
    pub(super) fn is(&self, request: RequestId) -> bool {
        let is = |next: &Next| next.held.request == request;
        self.next.as_ref().is_some_and(is)
    }

    /// Whether the limits allow the commit of this call to be assumed.
    pub(super) fn is_allowed(&self, common: &Common, guess: &Guess) -> bool {
        let policy = &common.policy.speculation;
        let tool = common.policy.tool(&guess.tool);
        let is_likelier = |(run, then): (RunId, f32)| run != guess.run || guess.confidence > then;
        // A server that takes results is given them instead, and answers in the same stream.
        policy.enabled
            && !common.policy.briefing.tool_cache
            && !common.tokens_spent
            && tool.is_none_or(|tool| tool.speculation.assume)
            && self.begun < policy.assumed_per_turn
            && self.declined.is_none_or(is_likelier)
            && !common.pace.is_slowed()
    }

    /// Whether assumed commits of this tool are right often enough, and worth the tokens. Asked once for each
    /// run, and again when its call has become likelier.
    pub(super) fn is_worth_it(&mut self, common: &mut Common, guess: &Guess, tokens: u64) -> bool {
        let policy = &common.policy.speculation;
        let share = match guess.is_made {
            true => 1.0,
            false => share(common, &guess.tool),
        };
        let hit = share * f64::from(guess.confidence);
        let cost = tokens as f64 * policy.token_price / 1e6;
        let is_worth_it = hit * GAIN_MS / 1e3 * policy.value_per_second >= (1.0 - hit) * cost;
        let mut may = is_worth_it;
        if share < LEAST_SHARE {
            if self.declined.is_none_or(|(run, _)| run != guess.run) {
                guess.teaches(common, |tool| Lesson::Skipped { tool });
            }
            may &= common.experience.skipped(&guess.tool).is_multiple_of(TRIAL);
        }
        if !may {
            self.declined = Some((guess.run, guess.confidence));
        }
        may
    }

    /// Asks the model with the history after the assumed commit. `has_words`: the prompt has the words of the
    /// generation `main`, which are complete.
    pub(super) fn assume(
        &mut self,
        common: &mut Common,
        prompt: Prompt,
        main: RequestId,
        has_words: bool,
        guess: Guess,
    ) {
        self.begun += 1;
        self.next = Some(Next {
            held: Held::begin(common, prompt, Before::Commit, Some(&guess.tool)),
            main,
            stage: Stage::Assumed { guess, has_words },
            withheld: None,
        });
    }

    /// Asks the model with the results of all calls so far, which were committed. It is used unless the
    /// generation `main` calls another tool.
    pub(super) fn go_on(
        &mut self,
        common: &mut Common,
        prompt: Prompt,
        main: RequestId,
        tool: &str,
    ) {
        self.next = Some(Next {
            held: Held::begin(common, prompt, Before::EndOfStream, Some(tool)),
            main,
            stage: Stage::Committed {
                at: None,
                unsaid_until: None,
            },
            withheld: None,
        });
    }

    /// The tool whose call is assumed, if the words of `main` before it are held back.
    pub(super) fn withholds(&self, main: RequestId) -> Option<&str> {
        match &self.next.as_ref().filter(|next| next.main == main)?.stage {
            Stage::Assumed {
                guess,
                has_words: false,
            } => Some(&guess.tool),
            Stage::Assumed { .. } | Stage::Committed { .. } => None,
        }
    }

    /// Holds back words of the main generation from `now` on.
    pub(super) fn withhold(&mut self, now: Time) {
        if let Some(next) = &mut self.next {
            next.withheld.get_or_insert(now);
        }
    }

    /// Keeps an event of the second generation.
    pub(super) fn hold(&mut self, common: &mut Common, event: LlmEvent) {
        if let Some(next) = &mut self.next {
            next.held.hold(common, event);
        }
    }

    /// The remaining wait for its first event, expected `first` after the request; `None` if there is no
    /// held-back generation.
    pub(super) fn first_event(&self, first: Micros, now: Time) -> Option<Micros> {
        let held = &self.next.as_ref()?.held;
        Some(match held.has_begun() {
            true => Micros(0),
            false => left(first, now.since(held.asked())),
        })
    }

    /// The held-back generation.
    pub(super) fn held(&self) -> Option<&Held> {
        self.next.as_ref().map(|next| &next.held)
    }

    /// Whether the held-back generation is still being streamed.
    pub(super) fn is_streaming(&self) -> bool {
        let streams = |next: &Next| !next.held.has_ended();
        self.next.as_ref().is_some_and(streams)
    }

    /// Handles a commit, which takes over the run `taken`. Returns the arguments in the prompt of the held-back
    /// generation if that is the assumed call; the words before it are `unsaid` then. Otherwise the generation is
    /// discarded.
    pub(super) fn commit(
        &mut self,
        common: &mut Common,
        taken: Option<RunId>,
        unsaid: &[String],
    ) -> Option<Map<String, Value>> {
        let next = self.next.as_mut()?;
        let Stage::Assumed { guess, .. } = &mut next.stage else {
            self.drop(common, false);
            return None;
        };
        if Some(guess.run) != taken {
            self.drop(common, true);
            return None;
        }
        let arguments = std::mem::take(&mut guess.arguments);
        guess.teaches(common, |tool| Lesson::Assumed { tool, hit: true });
        let at = Some(common.now);
        let length = unsaid.iter().map(|text| common.spoken_length(text));
        let length = length.fold(Micros(0), |all, length| all + length);
        let since = next.withheld.filter(|_| length > Micros(0));
        let unsaid_until = since.map(|since| since + length);
        next.stage = Stage::Committed { at, unsaid_until };
        Some(arguments)
    }

    /// Whether the held-back generation can no longer become the answer, and why. `main`: the generation that it
    /// follows; `is_ready`: the result of the run may still be used.
    pub(super) fn useless(&self, main: Main, is_ready: impl Fn(RunId) -> bool) -> Option<Useless> {
        self.next.as_ref()?;
        match main {
            Main::Held => None,
            Main::Gone => Some(Useless::Gone),
            Main::Over => Some(Useless::Missed),
            Main::Streams { spoken, called } => {
                (!self.may_be_used(spoken, called, is_ready)).then_some(Useless::Missed)
            }
        }
    }

    fn may_be_used(
        &self,
        spoken: bool,
        called: Option<&str>,
        is_ready: impl Fn(RunId) -> bool,
    ) -> bool {
        let Some(next) = &self.next else {
            return true;
        };
        match &next.stage {
            Stage::Assumed { guess, has_words } => {
                spoken == *has_words
                    && called.is_none_or(|tool| tool == guess.tool)
                    && is_ready(guess.run)
            }
            Stage::Committed { .. } => called.is_none(),
        }
    }

    /// The generation that the held-back one follows.
    pub(super) fn main(&self) -> Option<RequestId> {
        self.next.as_ref().map(|next| next.main)
    }

    /// Takes the generation if it answers exactly this prompt; otherwise discards it.
    pub(super) fn take(&mut self, common: &mut Common, prompt: &Prompt) -> Option<Taken> {
        match self.next.take() {
            Some(Next {
                held,
                stage: Stage::Committed { at, unsaid_until },
                ..
            }) if held.prompt() == prompt => {
                let certain = at.unwrap_or(common.now);
                Some(held.take(certain, common.now, unsaid_until))
            }
            other => {
                self.next = other;
                self.drop(common, false);
                None
            }
        }
    }

    /// Drops the generation, which failed. It is requested again when it is needed.
    pub(super) fn fail(&mut self, common: &mut Common) {
        if let Some(next) = self.next.take() {
            next.held.fail(common);
        }
    }

    /// Discards the held-back generation. `missed`: the model did not commit the call.
    pub(super) fn drop(&mut self, common: &mut Common, missed: bool) {
        let Some(next) = self.next.take() else {
            return;
        };
        let in_vain = next.withheld.filter(|_| missed);
        let in_vain = in_vain.map(|since| common.now.since(since));
        next.held.discard(common, in_vain.unwrap_or_default());
        if let Stage::Assumed { guess, .. } = next.stage
            && missed
        {
            guess.teaches(common, |tool| Lesson::Assumed { tool, hit: false });
        }
    }
}
