//! A silence that may be the end of the turn: what is known of the words and the sound before it.

use super::ids::RequestId;
use super::speculation::Request;
use crate::asr::Recognised;
use crate::language::{Marks, Pack, log_odds};
use crate::time::Time;

/// Requests made in a pause, and their results.
#[derive(Debug, Default)]
pub(super) struct Pause {
    pub(super) transcription: Option<RequestId>,
    /// When the transcription was requested.
    pub(super) asked: Time,
    pub(super) transcript: Option<(Recognised, Time)>,
    pub(super) tries: Tries,
    pub(super) scoring: Option<RequestId>,
    pub(super) completeness: Option<(f32, Time)>,
}

/// How often the words of a pause were tried to be transcribed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Tries {
    /// Once at most, and it has not failed.
    #[default]
    One,
    /// Once, and the second try is to be requested.
    SecondDue,
    /// Twice.
    Two,
    /// Often enough: they are lost.
    Failed,
}

/// How much the sound weighs beside the words. On recordings with pauses put into them, the words alone tell as
/// much as both; but a voice that is held up in thought is heard only in the sound.
const SOUND: f32 = 0.15;

/// The highest probability that a turn is over whose last word cannot end a sentence.
const LEADS_ON: f32 = 0.02;

impl Pause {
    /// Whether its transcript has neither come nor been requested.
    pub(super) fn lacks_transcript(&self) -> bool {
        self.transcription.is_none() && self.transcript.is_none()
    }

    /// Whether its last request has failed.
    pub(super) fn has_failed(&self) -> bool {
        matches!(self.tries, Tries::SecondDue | Tries::Failed)
    }

    /// The punctuation that the recogniser expects after the words.
    pub(super) fn marks(&self) -> Option<Marks> {
        self.transcript.as_ref().and_then(|(heard, _)| heard.marks)
    }

    /// The probability, 0..1, that the user is done after these words and this punctuation. `asks`: whether they are
    /// a whole request for a tool. `None` if there are no words, or no rules for
    /// them in this language: the sound alone does not end a turn.
    pub(super) fn done(
        &self,
        language: &Pack,
        words: Option<&str>,
        marks: Option<Marks>,
        asks: Request,
    ) -> Option<f32> {
        let sound = self.completeness.map(|(score, _)| score);
        let words = words.filter(|words| !words.is_empty())?;
        let finished = language.finished(words, marks)?;
        let odds = log_odds(finished) + SOUND * sound.map_or(0.0, log_odds) + asks.weight();
        let done = 1.0 / (1.0 + (-odds).exp());
        Some(match language.sentences.reads_unfinished(words) {
            true => done.min(LEADS_ON),
            false => done,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::policy::EndpointPolicy;
    use crate::language::pack;

    /// How long the silence must be after these words, ms.
    fn wait(words: &str, marks: Option<(f32, f32)>, sound: Option<f32>) -> u64 {
        let heard = Recognised {
            marks: marks.map(|(ends, goes_on)| Marks { ends, goes_on }),
            ..Recognised::from(words)
        };
        let pause = Pause {
            transcript: Some((heard, Time(0))),
            completeness: sound.map(|score| (score, Time(0))),
            ..Pause::default()
        };
        EndpointPolicy::default().silence_needed(pause.done(
            pack(None),
            Some(words),
            pause.marks(),
            Request::default(),
        ))
    }

    const FINISHED: Option<(f32, f32)> = Some((0.97, 0.003));

    #[test]
    fn the_wait_follows_from_words_marks_and_sound() {
        let question = "What time is it?";
        assert_eq!(wait(question, FINISHED, Some(0.95)), 160);
        assert_eq!(wait(question, FINISHED, None), 160, "the sound is late");
        assert_eq!(
            wait("Is there a talk by", Some((0.2, 0.3)), Some(0.5)),
            1_500
        );
        let unclear = Some((0.85, 0.02));
        let (bright, dull) = (0.99, 0.01);
        let between = wait(question, unclear, Some(bright));
        assert!(
            (160..wait(question, unclear, Some(dull))).contains(&between),
            "{between}"
        );
    }

    #[test]
    fn a_word_that_leads_on_is_waited_for_whatever_the_rest_says() {
        assert_eq!(wait("Set a timer for", FINISHED, Some(0.95)), 1_500);
        assert_eq!(wait("Well, um...", FINISHED, Some(0.95)), 1_500);
    }

    #[test]
    fn a_voice_without_melody_that_asks_for_a_tool_does_not_wait_long() {
        let words = Some("how many kilometers are 10 miles");
        let marks = Some(Marks {
            ends: 0.24,
            goes_on: 0.05,
        });
        let endpoint = EndpointPolicy::default();
        let done = |words, asks| Pause::default().done(pack(None), words, marks, asks);
        let wait = |asks| endpoint.silence_needed(done(words, asks));
        let (nothing, whole) = (Request::default(), Request::of(true, false));
        assert_eq!(wait(nothing), 1_500);
        assert!(wait(whole) <= 500, "{}", wait(whole));
        let leads_on = Some("how many kilometers are 10 miles and");
        assert_eq!(endpoint.silence_needed(done(leads_on, whole)), 1_500);
    }

    #[test]
    fn a_request_that_lacks_an_argument_is_waited_for() {
        let endpoint = EndpointPolicy::default();
        let wait = |words: &str, (ends, goes_on), asks| {
            let marks = Some(Marks { ends, goes_on });
            let pause = Pause::default();
            endpoint.silence_needed(pause.done(pack(None), Some(words), marks, asks))
        };
        let (nothing, open) = (Request::default(), Request::of(false, true));
        let cut_off = ("how many kilometers are", (0.97, 0.003));
        assert!(wait(cut_off.0, cut_off.1, open) > wait(cut_off.0, cut_off.1, nothing));
        // The agent asks which one.
        assert!(wait("Where is my order?", (0.97, 0.003), open) <= 350);
        let contradictory = Request::of(true, true);
        assert!(contradictory.weight().abs() < 1.0);
    }

    #[test]
    fn a_recogniser_without_marks_is_judged_by_its_words() {
        assert!(wait("what is the weather in boston", None, None) < 500);
        assert!(wait("tell me the name of", None, None) > 500);
    }

    #[test]
    fn before_anything_is_known_the_wait_is_the_middle_one() {
        let endpoint = EndpointPolicy::default();
        assert_eq!(
            endpoint.silence_needed(Pause::default().done(
                pack(None),
                None,
                None,
                Request::default()
            )),
            500
        );
        assert_eq!(endpoint.silence_needed(Some(0.36)), 500);
        let waits = [0.0, 0.3, 0.33, 0.36, 0.5, 0.75, 0.9];
        let waits = waits.map(|done| endpoint.silence_needed(Some(done)));
        assert!(waits.is_sorted_by(|a, b| a >= b), "{waits:?}");
        assert_eq!((waits[0], waits[1], waits[6]), (1_500, 1_500, 160));
    }
}
