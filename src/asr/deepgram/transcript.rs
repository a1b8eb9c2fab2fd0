//! PURE: the transcript of one connection, from Deepgram's results. Flux has turns instead.

use crate::time::Samples;
use serde::Deserialize;
use std::collections::VecDeque;

/// The most words kept: many times as many as one utterance has.
const WORDS: usize = 2_000;

/// A tolerance, ms: a final result that ends at most this much before the requested audio still covers it.
const SHORT_MS: u64 = 100;

/// The same tolerance for interim results, ms: the end of the audio may be a pause, in which the result misses no
/// words.
const PAUSE_MS: u64 = 200;

/// The same tolerance for a partial, ms: while the user is still speaking, the words lag behind the audio.
const BEHIND_MS: u64 = 500;

/// A message of the type `Results`. Times are seconds since the connection was opened.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Results {
    start: f64,
    duration: f64,
    #[serde(default)]
    is_final: bool,
    channel: Channel,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Channel {
    alternatives: Vec<Alternative>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Alternative {
    transcript: String,
    #[serde(default)]
    words: Vec<TimedWord>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct TimedWord {
    word: String,
    start: f64,
    end: f64,
    punctuated_word: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Word {
    text: String,
    middle: Samples,
}

/// The words since a connection was opened: final ones, and interim ones that may change.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    /// The position of the connection's first sample.
    from: Samples,
    finals: VecDeque<Word>,
    /// Results for the audio before this position are final.
    final_to: Samples,
    /// The words after `final_to`, which may change.
    interim: Vec<Word>,
    /// Results for the audio before this position have come, final or interim.
    interim_to: Samples,
}

impl Transcript {
    /// An empty transcript of a connection whose audio begins at `from`.
    pub(super) fn new(from: Samples) -> Self {
        Self {
            from,
            final_to: from,
            interim_to: from,
            ..Self::default()
        }
    }

    /// The position of the connection's first sample.
    pub(super) fn from(&self) -> Samples {
        self.from
    }

    /// Returns `true` until the first result has come, be it one of silence.
    pub(super) fn is_new(&self) -> bool {
        self.known_to() == self.from
    }

    /// Takes in a result.
    pub(super) fn push(&mut self, results: Results) {
        let end = self.position(results.start + results.duration);
        let words = self.words_of(&results);
        if !results.is_final {
            self.interim = words;
            self.interim_to = end;
            return;
        }
        self.finals.extend(words);
        let over = self.finals.len().saturating_sub(WORDS);
        self.finals.drain(..over);
        self.final_to = self.final_to.max(end);
        self.interim.clear();
    }

    /// Takes in all words of a turn of Flux so far, each with the time of its middle in seconds. The audio up to
    /// `end` is transcribed; `is_over` if the next words are those of another turn.
    pub(super) fn push_turn(
        &mut self,
        words: impl Iterator<Item = (String, f64)>,
        end: f64,
        is_over: bool,
    ) {
        let words = words.map(|(text, middle)| {
            let middle = self.position(middle);
            Word { text, middle }
        });
        self.interim = words.collect();
        // Flux revises words while a turn lasts, but does not tell which.
        self.final_to = self.final_to.max(self.position(end));
        if is_over {
            self.finals.extend(self.interim.drain(..));
            let over = self.finals.len().saturating_sub(WORDS);
            self.finals.drain(..over);
        }
    }

    /// Whether no turn of Flux has words now.
    pub(super) fn is_between_turns(&self) -> bool {
        self.interim.is_empty()
    }

    /// Notes that there are no other words up to `to`.
    pub(super) fn is_transcribed_to(&mut self, to: Samples) {
        self.final_to = self.final_to.max(to);
    }

    /// The words between two positions; `None` until they are final.
    pub(super) fn settled(&self, from: Samples, to: Samples) -> Option<String> {
        let is_settled = self.final_to >= to.minus_ms(SHORT_MS);
        is_settled.then(|| self.text(from, to))
    }

    /// The words between two positions, some of which may change; `None` until results cover them.
    pub(super) fn known(&self, from: Samples, to: Samples) -> Option<String> {
        let is_known = self.known_to() >= to.minus_ms(PAUSE_MS);
        is_known.then(|| self.text(from, to))
    }

    /// The words so far of a user who is still speaking; `None` if the results lag behind, or if the speech began
    /// before this connection's audio.
    pub(super) fn so_far(&self, from: Samples, to: Samples) -> Option<String> {
        let is_known = from >= self.from && self.known_to() >= to.minus_ms(BEHIND_MS);
        is_known.then(|| self.text(from, to))
    }

    /// The end of the audio whose words are known.
    pub(super) fn known_to(&self) -> Samples {
        self.final_to.max(self.interim_to)
    }

    fn text(&self, from: Samples, to: Samples) -> String {
        let words = self.finals.iter().chain(&self.interim);
        let words = words.filter(|word| (from..to).contains(&word.middle));
        words
            .map(|word| word.text.as_str())
            .collect::<Vec<_>>()
            .join(" ")
    }

    fn words_of(&self, results: &Results) -> Vec<Word> {
        let Some(best) = results.channel.alternatives.first() else {
            return Vec::new();
        };
        if best.words.is_empty() && !best.transcript.is_empty() {
            let middle = self.position(results.start + results.duration / 2.0);
            let text = best.transcript.clone();
            return vec![Word { text, middle }];
        }
        let words = best.words.iter().map(|word| Word {
            text: word.punctuated_word.as_ref().unwrap_or(&word.word).clone(),
            middle: self.position(f64::midpoint(word.start, word.end)),
        });
        words.collect()
    }

    fn position(&self, seconds: f64) -> Samples {
        let samples = (seconds.max(0.0) * f64::from(Samples::RATE)) as u64;
        Samples(self.from.0.saturating_add(samples))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(ms: u64) -> Samples {
        Samples::from_ms(ms)
    }

    /// A result whose words last 200 ms each.
    fn result(start_ms: u64, words: &str, is_final: bool) -> Results {
        let seconds = |ms: u64| ms as f64 / 1_000.0;
        let words: Vec<_> = words.split_whitespace().collect();
        let timed = words.iter().enumerate().map(|(nth, word)| {
            let from = start_ms + 200 * nth as u64;
            json!({"word": word.to_lowercase(), "punctuated_word": word, "confidence": 0.9,
                "start": seconds(from), "end": seconds(from + 200)})
        });
        let value = json!({
            "type": "Results", "channel_index": [0, 1], "start": seconds(start_ms),
            "duration": seconds(200 * words.len() as u64), "is_final": is_final,
            "channel": {"alternatives": [
                {"transcript": words.join(" "), "confidence": 0.9, "words": timed.collect::<Vec<_>>()}
            ]},
        });
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn finals_follow_each_other_and_replace_what_was_interim() {
        let mut said = Transcript::new(at(10_000));
        let all = |said: &Transcript| said.text(at(10_000), at(20_000));
        said.push(result(0, "how a", false));
        assert_eq!(all(&said), "how a");
        said.push(result(0, "How are", true));
        said.push(result(400, "you", false));
        assert_eq!(all(&said), "How are you");
        assert_eq!(said.settled(at(10_000), at(10_600)), None);
        assert_eq!(
            said.known(at(10_000), at(10_600)).as_deref(),
            Some("How are you")
        );
        said.push(result(400, "you today?", true));
        assert_eq!(
            said.settled(at(10_000), at(10_850)).as_deref(),
            Some("How are you today?")
        );
        assert_eq!(said.settled(at(10_000), at(11_000)), None);
    }

    #[test]
    fn a_part_has_only_its_own_words() {
        let mut said = Transcript::new(at(0));
        said.push(result(0, "How are you?", true));
        said.push(result(2_000, "And the weather?", true));
        let second = said.settled(at(1_700), at(2_600));
        assert_eq!(second.as_deref(), Some("And the weather?"));
    }

    #[test]
    fn silence_is_known_too() {
        let mut said = Transcript::new(at(500));
        assert!(said.is_new());
        assert_eq!(said.known(at(500), at(1_500)), None);
        said.push(Results {
            duration: 1.0,
            is_final: true,
            ..Results::default()
        });
        assert_eq!(said.settled(at(500), at(1_500)).as_deref(), Some(""));
    }

    #[test]
    fn somebody_who_is_still_speaking_is_ahead_of_the_words() {
        let mut said = Transcript::new(at(1_000));
        said.push(result(0, "how are", false));
        assert_eq!(
            said.so_far(at(1_000), at(1_900)).as_deref(),
            Some("how are")
        );
        assert_eq!(said.so_far(at(1_000), at(1_901)), None);
        // This speech began before the connection.
        assert_eq!(said.so_far(at(900), at(1_400)), None);
    }

    #[test]
    fn a_transcript_without_times_is_where_its_result_is() {
        let mut said = Transcript::new(at(0));
        let mut results = result(1_000, "hello", true);
        results.channel.alternatives[0].words.clear();
        said.push(results);
        assert_eq!(said.settled(at(900), at(1_200)).as_deref(), Some("hello"));
        assert_eq!(said.settled(at(0), at(900)).as_deref(), Some(""));
    }
}
