//! The verdict of a recogniser that judges turns itself, as evidence beside silence, words and sound.
//!
//! Speech is the detector's affair: a verdict ends a turn only in a silence, and counts no more once the user has
//! spoken after the audio that it is about. In a silence the recogniser decides. As long as it reports, its word that
//! the user is done is awaited, at most as long as an unfinished turn is. If its reports stop, silence and words decide
//! as they do without it, so one that hangs or is gone delays a turn by little.

use crate::asr::{TurnReport, TurnState};
use crate::time::{Micros, Samples, Time};

/// How long a report counts. They come four times a second.
const FRESH: Micros = Micros::from_ms(500);

/// How much speech, ms, may come after the audio of a verdict without contradicting it: the detector takes up to this
/// long to notice silence.
const LAG_MS: u64 = 160;

/// The last verdict on an utterance.
#[derive(Debug, Default)]
pub(super) struct Verdict(Option<Known>);

#[derive(Debug, Clone, Copy)]
struct Known {
    state: TurnState,
    /// End of the audio that it is about.
    to: Samples,
    /// When the recogniser last reported.
    at: Time,
}

/// A verdict that counts now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Judged {
    state: TurnState,
    at: Time,
}

/// A change that a report brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum News {
    /// The words may have changed and are settled now.
    Settled,
    /// The user goes on.
    Resumed,
    Nothing,
}

impl Verdict {
    /// Takes in a report. `spoken_to` is the end of the last speech.
    pub(super) fn take(&mut self, now: Time, report: TurnReport, spoken_to: Samples) -> News {
        let TurnReport { state, to } = report;
        let before = self.0.map(|known| known.after(spoken_to));
        let new = Known { state, to, at: now }.after(spoken_to);
        let kept = before.filter(|before| {
            let is_doubt = matches!(before.state, TurnState::PerhapsOver | TurnState::Resumed);
            is_doubt && new.state == TurnState::Open
        });
        self.0 = Some(Known {
            at: now,
            ..kept.unwrap_or(new)
        });
        let was_settled = before.is_some_and(|before| before.state == TurnState::PerhapsOver);
        match new.state {
            TurnState::PerhapsOver => News::Settled,
            // The end has the words of the probable end.
            TurnState::Over if !was_settled => News::Settled,
            TurnState::Resumed => News::Resumed,
            TurnState::Over | TurnState::Open => News::Nothing,
        }
    }

    /// The verdict that counts now. `spoken_to` is the end of the last speech.
    pub(super) fn at(&self, now: Time, spoken_to: Samples) -> Option<Judged> {
        let Known { state, at, .. } = self.0?.after(spoken_to);
        let counts = state == TurnState::Over || now.since(at) < FRESH;
        counts.then_some(Judged { state, at })
    }
}

impl Known {
    /// This verdict after speech up to `spoken_to`, which may have outdated it.
    fn after(self, spoken_to: Samples) -> Self {
        match spoken_to.since(self.to) > Samples::from_ms(LAG_MS).0 {
            true => Self {
                state: TurnState::Open,
                ..self
            },
            false => self,
        }
    }
}

impl Judged {
    /// When the turn is over that would be over at `own` without the verdict. `longest` is the end of a turn that
    /// reads unfinished.
    pub(super) fn due(self, own: Time, longest: Time) -> Time {
        match self.state {
            TurnState::Over => own.min(self.at),
            _ => own.max(longest.min(self.at + FRESH)),
        }
    }

    /// Whether the user is probably done, so that the model may be asked. `None` leaves that to the words.
    pub(super) fn may_be_over(self) -> Option<bool> {
        match self.state {
            TurnState::PerhapsOver => Some(true),
            TurnState::Resumed => Some(false),
            TurnState::Open | TurnState::Over => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use TurnState::{Open, Over, PerhapsOver, Resumed};

    fn ms(ms: u64) -> Time {
        Time::from_ms(ms)
    }

    fn to(ms: u64) -> Samples {
        Samples::from_ms(ms)
    }

    fn report(at: u64, state: TurnState) -> TurnReport {
        TurnReport { state, to: to(at) }
    }

    /// The verdict after reports, each at this time, ms, on the audio up to then. The user spoke up to `spoken`.
    fn after(reports: &[(u64, TurnState)], spoken: u64) -> Verdict {
        let mut verdict = Verdict::default();
        for (at, state) in reports {
            verdict.take(ms(*at), report(*at, *state), to(spoken));
        }
        verdict
    }

    #[test]
    fn the_end_of_a_turn_is_awaited_while_reports_come() {
        let open = after(&[(1_000, Open), (1_250, Open)], 1_000);
        let judged = open.at(ms(1_300), to(1_000)).unwrap();
        assert_eq!(judged.due(ms(1_160), ms(2_500)), ms(1_750));
        assert_eq!(judged.due(ms(1_160), ms(1_600)), ms(1_600));
        assert_eq!(judged.due(ms(2_000), ms(2_500)), ms(2_000));
        assert_eq!(open.at(ms(1_750), to(1_000)), None, "no report since");
    }

    #[test]
    fn a_turn_that_is_over_is_over_at_once() {
        let over = after(&[(1_250, PerhapsOver), (1_400, Over)], 1_000);
        let judged = over.at(ms(9_000), to(1_000)).unwrap();
        assert_eq!(judged.due(ms(9_500), ms(9_900)), ms(1_400));
    }

    #[test]
    fn speech_after_its_audio_outdates_a_verdict() {
        let over = after(&[(1_400, Over)], 1_000);
        let late = over.at(ms(1_600), to(1_561)).unwrap();
        assert_eq!(late.state, Open);
        let lagging = over.at(ms(1_600), to(1_560)).unwrap();
        assert_eq!(lagging.state, Over);
        let mut verdict = Verdict::default();
        let news = verdict.take(ms(1_700), report(1_400, Over), to(1_700));
        assert_eq!(news, News::Nothing);
    }

    #[test]
    fn a_user_who_goes_on_is_not_answered_before_the_next_probable_end() {
        let asks = |reports: &[(u64, TurnState)]| {
            let judged = after(reports, 1_000).at(ms(1_600), to(1_000));
            judged.unwrap().may_be_over()
        };
        assert_eq!(asks(&[(1_200, Open)]), None);
        let mut reports = vec![(1_200, PerhapsOver), (1_250, Open)];
        assert_eq!(asks(&reports), Some(true));
        reports.extend([(1_300, Resumed), (1_400, Open)]);
        assert_eq!(asks(&reports), Some(false));
        reports.push((1_500, PerhapsOver));
        assert_eq!(asks(&reports), Some(true));
    }

    #[test]
    fn words_are_settled_at_the_probable_end_and_not_again_at_the_end() {
        let mut verdict = Verdict::default();
        let mut news = |at, state| verdict.take(ms(at), report(at, state), to(1_000));
        assert_eq!(news(1_100, Open), News::Nothing);
        assert_eq!(news(1_200, PerhapsOver), News::Settled);
        assert_eq!(news(1_300, Resumed), News::Resumed);
        assert_eq!(news(1_400, PerhapsOver), News::Settled);
        assert_eq!(news(1_500, Over), News::Nothing);
        let mut verdict = Verdict::default();
        let forced = verdict.take(ms(1_500), report(1_500, Over), to(1_000));
        assert_eq!(forced, News::Settled);
    }
}
