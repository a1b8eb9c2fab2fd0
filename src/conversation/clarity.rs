//! Whether an utterance was clearly speech: weighs the detector's certainty against the recogniser's doubt.

use super::endpointer::WINDOW;
use crate::asr::{Doubt, Recognised};
use crate::time::Samples;

/// A window with at least this probability is certainly speech. In 6 s each of a crowd, coughs, a dog, a
/// horn, music and white noise, no window exceeds 0.9. In speech that Whisper does not recognise (another
/// language, muffled, in noise), most windows exceed this value.
const CERTAIN: f32 = 0.95;

/// After this much certain speech, ms, words are believed that the recogniser doubts only because it takes
/// the sound for noise: the detector knows better.
const BELIEVED_MS: u64 = 128;

/// How much certain speech, ms, is enough for the user to be asked to repeat, if words were heard, but
/// unclearly, or if a question waits for its answer.
const UNCLEAR_MS: u64 = 192;

/// The evidence for the clarity of an utterance.
#[derive(Debug, Default)]
pub(super) struct Clarity {
    /// Windows that were certainly speech.
    certain: u64,
    /// Words were heard, but not believed.
    unclear: bool,
}

/// The state of the conversation in which an utterance was not understood.
#[derive(Debug, Clone, Copy)]
pub(super) struct Misheard {
    /// A question waits for its answer.
    pub(super) expected: bool,
    /// The agent answers the user's turns.
    pub(super) answers: bool,
    /// Another answer or the end of the conversation comes next.
    pub(super) is_followed: bool,
    /// The sound has interrupted an answer, which is resumed instead.
    pub(super) interrupts: bool,
}

impl Misheard {
    /// Whether it makes sense to ask the user to repeat.
    pub(super) fn may_ask(self) -> bool {
        self.answers && !self.is_followed && !self.interrupts
    }
}

impl Clarity {
    /// Counts a window with this probability of speech.
    pub(super) fn count(&mut self, probability: f32) {
        self.certain += u64::from(probability >= CERTAIN);
    }

    /// The verdict on a transcript.
    pub(super) fn weigh(&mut self, heard: Recognised) -> Recognised {
        let believed = match heard.doubt {
            Some(Doubt::NoSpeech(text)) if self.certain_ms() >= BELIEVED_MS => Recognised {
                text,
                doubt: None,
                ..heard
            },
            _ => heard,
        };
        self.unclear = believed.doubt.is_some();
        believed
    }

    /// Whether it must have had words, because at least `least_ms` of it were certainly speech. Less is enough
    /// if words were heard, but unclearly, or if an answer is `expected`.
    pub(super) fn had_words(&self, least_ms: u64, expected: bool) -> bool {
        let least = match self.unclear || expected {
            true => least_ms.min(UNCLEAR_MS),
            false => least_ms,
        };
        self.certain_ms() >= least
    }

    fn certain_ms(&self) -> u64 {
        Samples(self.certain * WINDOW).as_ms()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clear(windows: usize) -> Clarity {
        let mut clarity = Clarity::default();
        (0..windows).for_each(|_| clarity.count(0.96));
        clarity
    }

    fn doubted(doubt: Doubt) -> Recognised {
        Recognised {
            doubt: Some(doubt),
            ..Recognised::default()
        }
    }

    #[test]
    fn words_that_may_be_noise_are_believed_if_it_was_certainly_speech() {
        let yes = || doubted(Doubt::NoSpeech("Yes.".into()));
        assert_eq!(clear(4).weigh(yes()), "Yes.".into());
        assert_eq!(clear(3).weigh(yes()).text, "");
        assert_eq!(clear(30).weigh(doubted(Doubt::Unclear)).text, "");
    }

    #[test]
    fn the_user_is_asked_to_repeat_only_if_nothing_else_is_said() {
        let usual = Misheard {
            expected: false,
            answers: true,
            is_followed: false,
            interrupts: false,
        };
        assert!(usual.may_ask());
        for other in [
            Misheard {
                answers: false,
                ..usual
            },
            Misheard {
                is_followed: true,
                ..usual
            },
            Misheard {
                interrupts: true,
                ..usual
            },
        ] {
            assert!(!other.may_ask(), "{other:?}");
        }
    }

    #[test]
    fn a_short_answer_that_was_unclear_or_is_waited_for_had_words() {
        let mut short = clear(6);
        assert!(!short.had_words(1_000, false));
        assert!(short.had_words(1_000, true));
        short.weigh(doubted(Doubt::Unclear));
        assert!(short.had_words(1_000, false));
        assert!(!clear(5).had_words(1_000, true));
    }
}
