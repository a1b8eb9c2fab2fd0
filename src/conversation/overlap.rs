//! Speech over the agent's voice: whether it interrupts, or only shows that the user listens ("mm-hm", "yeah").
//! Until that is known, the agent speaks on and clients are told nothing.

use crate::language::Pack;
use crate::time::{Micros, Samples};
use serde::{Deserialize, Serialize};

/// How long after its detection speech is first transcribed, ms, and the audio between two partials.
const FIRST_MS: u64 = 190;
const PARTIAL_MS: u64 = 130;

/// How long after its detection any words count, ms. Earlier, a recogniser makes words of half a hum: of "mm-hm",
/// tiny.en makes "and the meeting". So only words count with which people take the turn. What ends sooner is judged
/// when it has ended.
const JUDGED_MS: u64 = 450;

/// How long after its detection speech interrupts if nothing is known of its words, ms: the recogniser is busy.
const UNKNOWN_MS: u64 = 850;

/// How long after its detection speech interrupts if the recogniser hears no words in it, ms.
const WORDLESS_MS: u64 = 1_500;

/// How long the agent has been heard without a gap before speech over it may be that of a listener, ms. Before, it
/// is more likely that the user goes on, having only paused: then the agent yields at once.
const SETTLED_MS: u64 = 1_000;

/// Words over the agent's voice that only show that the user listens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", from = "WrittenListeningWords")]
pub enum ListeningWords {
    /// They interrupt it, as all others do.
    #[default]
    Interrupt,
    /// They stop it, and when they are known it goes on.
    Pause,
    /// They do not stop it. All speech interrupts only once its words are known.
    Pass,
}

/// The form in recordings: older ones have a flag.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum WrittenListeningWords {
    Interrupt,
    Pause,
    Pass,
    #[serde(untagged)]
    Flag(bool),
}

impl From<WrittenListeningWords> for ListeningWords {
    fn from(written: WrittenListeningWords) -> Self {
        match written {
            WrittenListeningWords::Interrupt | WrittenListeningWords::Flag(false) => {
                Self::Interrupt
            }
            WrittenListeningWords::Pause => Self::Pause,
            WrittenListeningWords::Pass | WrittenListeningWords::Flag(true) => Self::Pass,
        }
    }
}

/// The speech that interrupts the agent's voice. Recordings from before there was a choice have neither.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BargeInPolicy {
    /// Words that only show that the user listens.
    pub listening_words: ListeningWords,
    /// Speech with fewer words does not.
    pub min_words: u32,
}

impl BargeInPolicy {
    /// Whether speech interrupts only once its words are known, given how long the agent has been heard. Otherwise any
    /// sound interrupts.
    pub(super) fn waits_for_words(&self, heard: Micros) -> bool {
        let waits = self.listening_words == ListeningWords::Pass || self.min_words > 1;
        waits && heard >= Micros::from_ms(SETTLED_MS)
    }

    /// Whether speech that stops the agent at once leaves it the turn if it is only listening words.
    pub(super) fn pauses(&self) -> bool {
        self.listening_words == ListeningWords::Pause && self.min_words <= 1
    }

    /// Whether these words interrupt.
    pub(super) fn interrupts(&self, words: &str, language: &Pack) -> bool {
        let count = words.split_whitespace().count();
        let passes =
            self.listening_words != ListeningWords::Interrupt && language.only_listens(words);
        count >= self.min_words.max(1) as usize && !passes
    }
}

/// Speech that began over the agent's voice.
#[derive(Debug, Clone)]
pub(super) struct Overlap {
    /// End of the audio when it was detected.
    detected: Samples,
    /// The words of the last transcript that counts.
    words: Option<String>,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The speech has not interrupted the agent.
    Open,
    /// It has interrupted the agent.
    Interrupted,
}

impl Overlap {
    /// The overlap of speech that was detected when audio had arrived up to this position.
    pub(super) fn new(detected: Samples) -> Self {
        Self {
            detected,
            words: None,
            stage: Stage::Open,
        }
    }

    /// Such an overlap that has stopped the agent at once.
    pub(super) fn that_stopped(detected: Samples) -> Self {
        let mut overlap = Self::new(detected);
        overlap.interrupt();
        overlap
    }

    /// Where the first partial ends, and the audio between two.
    pub(super) fn partials(&self) -> (Samples, u64) {
        (self.after(FIRST_MS), PARTIAL_MS)
    }

    /// Whether it has not interrupted the agent so far.
    pub(super) fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    /// Notes that it interrupts the agent.
    pub(super) fn interrupt(&mut self) {
        self.stage = Stage::Interrupted;
    }

    /// Takes the words up to the position `to`.
    pub(super) fn heard(&mut self, words: &str, to: Samples, language: &Pack) {
        if to >= self.after(JUDGED_MS) || language.takes_turn(words) {
            self.words = Some(words.to_owned());
        }
    }

    /// Takes all words up to a pause.
    pub(super) fn pauses(&mut self, words: &str) {
        self.words = Some(words.to_owned());
    }

    /// Whether it interrupts the agent, by its words and its length up to its last speech.
    pub(super) fn must_interrupt(
        &self,
        policy: BargeInPolicy,
        last_speech: Samples,
        language: &Pack,
    ) -> bool {
        match self.words.as_deref() {
            None => last_speech >= self.after(UNKNOWN_MS),
            Some("") => last_speech >= self.after(WORDLESS_MS),
            Some(words) => policy.interrupts(words, language),
        }
    }

    fn after(&self, ms: u64) -> Samples {
        Samples(self.detected.0 + Samples::from_ms(ms).0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::pack;

    const LISTENING: BargeInPolicy = BargeInPolicy {
        listening_words: ListeningWords::Pass,
        min_words: 1,
    };

    fn at(ms: u64) -> Samples {
        Samples::from_ms(10_000 + ms)
    }

    #[test]
    fn words_of_half_a_hum_are_not_believed() {
        let mut overlap = Overlap::new(at(0));
        overlap.heard("And the meeting.", at(JUDGED_MS - 1), pack(None));
        assert!(!overlap.must_interrupt(LISTENING, at(JUDGED_MS), pack(None)));
        let mut sure = overlap.clone();
        sure.heard("What about", at(FIRST_MS), pack(None));
        assert!(sure.must_interrupt(LISTENING, at(FIRST_MS), pack(None)));
        overlap.heard("And the meeting.", at(JUDGED_MS), pack(None));
        assert!(overlap.must_interrupt(LISTENING, at(JUDGED_MS), pack(None)));
        overlap.heard("", at(JUDGED_MS + PARTIAL_MS), pack(None));
        assert!(!overlap.must_interrupt(LISTENING, at(JUDGED_MS + PARTIAL_MS), pack(None)));
    }

    #[test]
    fn a_short_word_is_judged_when_it_has_ended() {
        let mut overlap = Overlap::new(at(0));
        overlap.pauses("Yeah.");
        assert!(!overlap.must_interrupt(LISTENING, at(100), pack(None)));
        overlap.pauses("Yeah. Stop.");
        assert!(overlap.must_interrupt(LISTENING, at(100), pack(None)));
        overlap.pauses("");
        assert!(
            !overlap.must_interrupt(LISTENING, at(1_000), pack(None)),
            "noise"
        );
    }

    #[test]
    fn long_speech_interrupts_although_no_words_are_known() {
        let mut overlap = Overlap::new(at(0));
        assert!(!overlap.must_interrupt(LISTENING, at(UNKNOWN_MS - 1), pack(None)));
        assert!(overlap.must_interrupt(LISTENING, at(UNKNOWN_MS), pack(None)));
        overlap.heard("", at(JUDGED_MS), pack(None));
        assert!(!overlap.must_interrupt(LISTENING, at(UNKNOWN_MS), pack(None)));
        assert!(overlap.must_interrupt(LISTENING, at(WORDLESS_MS), pack(None)));
        overlap.heard("yeah yeah", at(JUDGED_MS), pack(None));
        assert!(!overlap.must_interrupt(LISTENING, at(WORDLESS_MS), pack(None)));
    }

    #[test]
    fn fewer_words_than_the_least_do_not_interrupt() {
        let three = BargeInPolicy {
            listening_words: ListeningWords::Interrupt,
            min_words: 3,
        };
        assert!(!three.interrupts("Stop it.", pack(None)));
        assert!(three.interrupts("Stop it now.", pack(None)));
        assert!(LISTENING.interrupts("Stop.", pack(None)));
        assert!(!LISTENING.interrupts("", pack(None)));
        let settled = Micros::from_ms(SETTLED_MS);
        assert!(three.waits_for_words(settled) && LISTENING.waits_for_words(settled));
        assert!(!LISTENING.waits_for_words(Micros(settled.0 - 1)));
        assert!(!BargeInPolicy::default().waits_for_words(settled));
    }

    #[test]
    fn words_that_pause_the_agent_do_not_wait_and_leave_it_the_turn() {
        let pausing = BargeInPolicy {
            listening_words: ListeningWords::Pause,
            min_words: 1,
        };
        assert!(!pausing.waits_for_words(Micros::from_ms(SETTLED_MS)));
        assert!(!pausing.interrupts("Mm-hm.", pack(None)));
        assert!(pausing.interrupts("Mm-hm, but why?", pack(None)));
        assert!(BargeInPolicy::default().interrupts("Mm-hm.", pack(None)));
    }

    #[test]
    fn recordings_with_a_flag_are_read() {
        fn read(text: &str) -> Option<ListeningWords> {
            serde_json::from_str(text).ok()
        }
        assert_eq!(read("true"), Some(ListeningWords::Pass));
        assert_eq!(read("false"), Some(ListeningWords::Interrupt));
        for words in [
            ListeningWords::Interrupt,
            ListeningWords::Pause,
            ListeningWords::Pass,
        ] {
            let written = serde_json::to_string(&words).unwrap_or_default();
            assert_eq!(read(&written), Some(words));
        }
        assert_eq!(read("\"never\""), None);
    }
}
