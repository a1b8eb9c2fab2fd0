//! PURE: the messages of Flux, `/v2/listen`: a recogniser that also judges turns.

use super::transcript::Transcript;
use crate::asr::TurnState;
use serde::Deserialize;

/// How sure Flux must be, 0.3 to 0.9, for its eager end of turn: Deepgram's value for low latency. Sooner costs more
/// answers that are discarded.
pub(super) const EAGER: &str = "0.4";

/// Sent when the client has stopped sending audio in mid-turn: Flux judges no audio that does not come.
pub(super) const FORCE_END: &str = r#"{"type":"ForceEndTurn"}"#;

/// Whether a model of this name speaks `/v2/listen`.
pub(super) fn is_flux(model: &str) -> bool {
    model.starts_with("flux")
}

/// Whether a model of Flux takes hints of the language.
pub(super) fn takes_languages(model: &str) -> bool {
    model.ends_with("multi")
}

/// A message from Flux.
#[derive(Deserialize)]
#[serde(tag = "type")]
pub(super) enum Message {
    TurnInfo(TurnInfo),
    Error {
        #[serde(default)]
        code: String,
        #[serde(default)]
        description: String,
    },
    #[serde(other)]
    Other,
}

/// The turn so far. Times are seconds since the connection was opened.
#[derive(Deserialize)]
pub(super) struct TurnInfo {
    event: Event,
    audio_window_start: f64,
    audio_window_end: f64,
    /// All words of the turn.
    transcript: String,
    #[serde(default)]
    words: Vec<Word>,
    /// The cause of the end.
    trigger: Option<String>,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
enum Event {
    StartOfTurn,
    EagerEndOfTurn,
    TurnResumed,
    EndOfTurn,
    /// More audio was transcribed.
    #[serde(other)]
    Update,
}

#[derive(Deserialize)]
struct Word {
    /// With its punctuation.
    word: String,
    start: Option<f64>,
    end: Option<f64>,
}

impl TurnInfo {
    /// Adds the words to the transcript. Returns the verdict on the turn, if there is one.
    pub(super) fn add_to(self, transcript: &mut Transcript) -> Option<TurnState> {
        let has_words = !self.transcript.trim().is_empty();
        let verdict = match self.event {
            Event::StartOfTurn | Event::Update => has_words.then_some(TurnState::Open),
            Event::EagerEndOfTurn => Some(TurnState::PerhapsOver),
            Event::TurnResumed => Some(TurnState::Resumed),
            // An end that was asked for is no verdict.
            Event::EndOfTurn => {
                let is_forced = self.trigger.as_deref() == Some("manual");
                (!is_forced).then_some(TurnState::Over)
            }
        };
        let (end, is_over) = (self.audio_window_end, self.event == Event::EndOfTurn);
        transcript.push_turn(self.timed_words(), end, is_over);
        verdict
    }

    /// The words, each with the time of its middle. Those without times are spread over the audio.
    fn timed_words(self) -> impl Iterator<Item = (String, f64)> {
        let (from, to) = (self.audio_window_start, self.audio_window_end);
        let untimed = |word: String| Word {
            word,
            start: None,
            end: None,
        };
        let words = match self.words.is_empty() && !self.transcript.trim().is_empty() {
            true => vec![untimed(self.transcript)],
            false => self.words,
        };
        let each = (to - from) / words.len().max(1) as f64;
        words.into_iter().enumerate().map(move |(nth, word)| {
            let spread = from + (nth as f64 + 0.5) * each;
            let middle = word.start.zip(word.end);
            let middle = middle.map_or(spread, |(start, end)| f64::midpoint(start, end));
            (word.word, middle)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Samples;
    use serde_json::{Value, json};

    fn at(ms: u64) -> Samples {
        Samples::from_ms(ms)
    }

    /// A message on the audio up to `ms`, of words that last 200 ms each.
    fn message(event: &str, ms: u64, words: &[(&str, u64)]) -> Value {
        let transcript: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let seconds = |ms: u64| ms as f64 / 1_000.0;
        let words = words.iter().map(|(word, start)| {
            json!({"word": word, "confidence": 0.9, "start": seconds(*start), "end": seconds(start + 200)})
        });
        json!({
            "type": "TurnInfo", "request_id": "r", "sequence_id": 1, "event": event, "turn_index": 0,
            "audio_window_start": 0.0, "audio_window_end": seconds(ms),
            "transcript": transcript.join(" "), "words": words.collect::<Vec<_>>(),
            "end_of_turn_confidence": 0.5,
        })
    }

    fn take(transcript: &mut Transcript, message: Value) -> Option<TurnState> {
        let Ok(Message::TurnInfo(info)) = serde_json::from_value(message) else {
            panic!("no information on a turn");
        };
        info.add_to(transcript)
    }

    #[test]
    fn a_turn_is_open_from_its_first_word_until_it_is_over() {
        let mut said = Transcript::new(at(1_000));
        let words = [("How", 300), ("are", 500), ("you?", 700)];
        let mut next = |event, ms, words| take(&mut said, message(event, ms, words));
        assert_eq!(next("Update", 250, &[]), None);
        assert_eq!(next("StartOfTurn", 500, &words[..1]), Some(TurnState::Open));
        assert_eq!(next("Update", 750, &words[..2]), Some(TurnState::Open));
        assert_eq!(
            next("EagerEndOfTurn", 1_100, &words),
            Some(TurnState::PerhapsOver)
        );
        assert_eq!(next("TurnResumed", 1_200, &words), Some(TurnState::Resumed));
        assert_eq!(next("EndOfTurn", 1_500, &words), Some(TurnState::Over));
        assert_eq!(next("Update", 1_750, &[]), None);
        let all = said.settled(at(1_000), at(2_700));
        assert_eq!(all.as_deref(), Some("How are you?"));
        assert_eq!(said.settled(at(1_000), at(2_851)), None);
    }

    #[test]
    fn the_words_of_two_turns_follow_each_other() {
        let mut said = Transcript::new(at(0));
        take(&mut said, message("EndOfTurn", 1_000, &[("Yes.", 200)]));
        take(&mut said, message("Update", 2_000, &[("And", 1_600)]));
        take(
            &mut said,
            message("Update", 2_250, &[("And", 1_600), ("no.", 1_900)]),
        );
        let text = |from, to| said.settled(at(from), at(to));
        assert_eq!(text(0, 2_300).as_deref(), Some("Yes. And no."));
        assert_eq!(text(1_500, 2_300).as_deref(), Some("And no."));
    }

    #[test]
    fn an_end_that_was_asked_for_is_no_verdict() {
        let mut said = Transcript::new(at(0));
        let mut forced = message("EndOfTurn", 1_000, &[("Yes.", 200)]);
        forced["trigger"] = json!("manual");
        assert_eq!(take(&mut said, forced), None);
        let words = said.settled(at(0), at(1_000));
        assert_eq!(words.as_deref(), Some("Yes."));
    }

    #[test]
    fn words_without_times_are_spread_over_the_audio() {
        let mut said = Transcript::new(at(0));
        let mut untimed = message("Update", 1_000, &[]);
        untimed["transcript"] = json!("one two");
        untimed["words"] =
            json!([{"word": "one", "confidence": 1.0}, {"word": "two", "confidence": 1.0}]);
        assert_eq!(take(&mut said, untimed), Some(TurnState::Open));
        assert_eq!(said.settled(at(0), at(500)).as_deref(), Some("one"));
        assert_eq!(said.settled(at(500), at(1_000)).as_deref(), Some("two"));
    }
}
