//! Audio that the client has not committed yet, where it ends turns by hand. It is transcribed as it grows: only the last
//! minute of audio is kept.

use super::common::Common;
use super::endpointer::{Activity, SpeechDetector, Window};
use super::ids::RequestId;
use super::policy::VadPolicy;
use super::utterance::{Transcribed, Utterance};
use crate::asr::Recognised;
use crate::audio::Ring;
use crate::time::Samples;

#[cfg(test)]
mod tests;

/// Audio before the first speech that is transcribed with it, ms: soft words may come before those that the detector
/// notices.
const LEAD_MS: u64 = 5_000;

/// Silence in which partials go on, ms: time for two that have all words, since clients are told only words on which two
/// agree.
const SETTLING_MS: u64 = 1_200;

/// Silence after which nothing is transcribed until somebody speaks again, ms.
const LONG_PAUSE_MS: u64 = 5_000;

/// The most audio, ms, that has no words.
const WORDLESS_MS: u64 = 100;

/// The audio since the last commit.
#[derive(Debug, Default)]
pub(super) struct Dictation {
    /// It is not speaking before the first speech and in a long pause.
    detector: SpeechDetector,
    /// Where the silence that the detector has judged ends: behind it somebody may be speaking.
    silent_to: Samples,
    /// From the first speech on. Boxed, because most sessions have none.
    utterance: Option<Box<Utterance>>,
}

impl Dictation {
    /// One that begins with the speech since `from`, which goes on at `end`.
    pub(super) fn since(common: &mut Common, from: Samples, end: Samples) -> Self {
        let mut utterance = spoken(common, from, end);
        utterance.catch_up(common, end);
        Self {
            detector: SpeechDetector::amid_speech(),
            utterance: Some(utterance),
            ..Self::default()
        }
    }

    /// Handles the VAD result of a window of audio that began at `earliest`: transcribes long speech in parts, and with
    /// `partials` the words so far.
    pub(super) fn on_window(
        &mut self,
        common: &mut Common,
        vad: &VadPolicy,
        window: Window,
        earliest: Samples,
        partials: bool,
    ) {
        let end = window.end;
        let heard = self.detector.push(window, vad, vad.start_windows);
        if let Activity::Started(at) = heard {
            self.starts(common, at, earliest, end);
        }
        if !self.detector.is_speaking() {
            self.silent_to = self.detector.silent_to(end);
            return;
        }
        let Some(utterance) = &mut self.utterance else {
            return;
        };
        utterance.clarity().count(window.probability);
        match heard {
            Activity::Started(_) => {}
            Activity::Speech => {
                common.mark_activity();
                let resumed = utterance.goes_on(end, common.now);
                utterance.cut_long_segment(common, end, resumed);
                if partials {
                    utterance.ask_partial(common, end);
                }
            }
            Activity::Fading => {
                common.mark_activity();
                utterance.cut_long_segment(common, end, false);
                utterance.fades(common, end, !partials);
            }
            Activity::Silence => {
                utterance.pauses(end);
                let silence = Samples(end.since(utterance.last_speech())).as_ms();
                if silence >= LONG_PAUSE_MS {
                    utterance.rest(common, end);
                    self.detector.reset();
                    return;
                }
                utterance.cut_long_segment(common, end, false);
                if partials && silence <= SETTLING_MS {
                    utterance.ask_partial(common, end);
                }
            }
        }
    }

    /// Handles the beginning of speech at `at`, the first or the first behind a long pause.
    fn starts(&mut self, common: &mut Common, at: Samples, earliest: Samples, end: Samples) {
        common.mark_activity();
        match &mut self.utterance {
            Some(utterance) => {
                utterance.skip_to(at);
                utterance.goes_on(end, common.now);
            }
            None => {
                let from = earliest.max(at.minus_ms(LEAD_MS));
                self.utterance = Some(spoken(common, from, end));
            }
        }
        if let Some(utterance) = &mut self.utterance {
            utterance.partials().put_off(at);
        }
    }

    /// Handles a finished transcription.
    pub(super) fn on_transcript(
        &mut self,
        request: RequestId,
        heard: Result<Recognised, ()>,
        common: &mut Common,
    ) -> Transcribed {
        let Some(utterance) = &mut self.utterance else {
            return Transcribed::Dead;
        };
        match utterance.on_transcript(request, heard, common) {
            Transcribed::Dead => Transcribed::Dead,
            Transcribed::Partial(Some(tail)) => {
                utterance.on_partial(&tail);
                // Also the same words again: clients are told those on which two agree.
                let words = Some(utterance.words().to_owned());
                Transcribed::Uncommitted(words.filter(|words| !words.is_empty()))
            }
            _ => Transcribed::Uncommitted(None),
        }
    }

    /// Requests again what could not be transcribed a while ago.
    pub(super) fn ask_again(&mut self, common: &mut Common) {
        if let Some(utterance) = &mut self.utterance {
            utterance.ask_again(common);
        }
    }

    /// Takes the audio up to `end`, which the client commits. It began at `from`. If nobody was heard to speak, all of it
    /// that is kept is to be transcribed; silence behind a long pause is not, as far as the detector has judged it.
    pub(super) fn take(&mut self, common: &Common, from: Samples, end: Samples) -> Utterance {
        let Self {
            detector,
            silent_to,
            utterance,
        } = std::mem::take(self);
        let Some(mut utterance) = utterance else {
            let kept = from.max(Samples(end.since(Ring::LONGEST)));
            return Utterance::spoken(kept, end, common.now, 0);
        };
        if !detector.is_speaking() {
            let unheard = Samples(end.since(silent_to)).as_ms();
            let pre_roll = common.policy.vad.pre_roll_ms;
            utterance.skip_to(match unheard < WORDLESS_MS {
                true => end,
                false => silent_to.minus_ms(pre_roll),
            });
        }
        utterance.hand_in(end, common.now);
        *utterance
    }

    /// The audio before this position is no longer needed, if `all` of it is uncommitted and the `recent` one may be the
    /// beginning of speech.
    pub(super) fn audio_needed_from(&self, all: Samples, recent: Samples) -> Samples {
        let Some(utterance) = &self.utterance else {
            return all;
        };
        let unfinished = match self.detector.is_speaking() {
            true => utterance.unfinished_from(),
            false => utterance.unfinished_from().max(recent),
        };
        let again = utterance.may_ask_again_from();
        again.map_or(unfinished, |from| from.min(unfinished))
    }
}

/// An utterance that begins at `from` and goes on at `end`.
fn spoken(common: &Common, from: Samples, end: Samples) -> Box<Utterance> {
    let every = common.policy.endpoint.partial_every_ms;
    Box::new(Utterance::spoken(from, end, common.now, every))
}
