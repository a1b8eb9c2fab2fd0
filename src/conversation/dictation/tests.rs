//! Unit tests of uncommitted audio; whole sessions are in `../tests/`.

use super::*;
use crate::conversation::experience::Experience;
use crate::conversation::output::Output;
use crate::conversation::policy::Policy;

/// Positions of transcriptions, ms, and whether they are partials.
type Asked = Vec<(u64, u64, bool)>;

struct Spoken {
    dictation: Dictation,
    common: Common,
    /// End of the audio so far, ms.
    to: u64,
    partials: bool,
}

fn at(ms: u64) -> Samples {
    Samples::from_ms(ms)
}

fn nothing_yet(partials: bool) -> Spoken {
    Spoken {
        dictation: Dictation::default(),
        common: Common::new(Policy::default(), Experience::default()),
        to: 0,
        partials,
    }
}

impl Spoken {
    /// Feeds windows of 32 ms.
    fn windows(&mut self, ms: u64, probability: f32) {
        for _ in 0..ms / 32 {
            self.to += 32;
            let window = Window {
                end: at(self.to),
                probability,
                level: -20,
            };
            let vad = VadPolicy::default();
            let common = &mut self.common;
            self.dictation
                .on_window(common, &vad, window, at(0), self.partials);
        }
    }

    fn speak(&mut self, ms: u64) {
        self.windows(ms, 0.9);
    }

    fn silence(&mut self, ms: u64) {
        self.windows(ms, 0.02);
    }

    /// The transcriptions that were requested since this was last called.
    fn asked(&mut self) -> Asked {
        let asked = self.common.outputs.drain(..);
        let asked = asked.filter_map(|output| match output {
            Output::Transcribe {
                from, to, partial, ..
            } => Some((from.as_ms(), to.as_ms(), partial)),
            _ => None,
        });
        asked.collect()
    }

    fn commit(&mut self) -> Utterance {
        let end = at(self.to);
        let mut utterance = self.dictation.take(&self.common, at(0), end);
        utterance.commit(&mut self.common, end);
        utterance
    }
}

#[test]
fn long_speech_is_transcribed_before_the_commit() {
    let mut spoken = nothing_yet(false);
    spoken.speak(60_000);
    let asked = spoken.asked();
    assert_eq!(asked, [(0, 25_024, false), (25_024, 50_048, false)]);
    let kept = |spoken: &Spoken| spoken.dictation.audio_needed_from(at(0), at(59_000));
    assert_eq!(kept(&spoken), at(0), "it may have to be transcribed again");
    answer(&mut spoken, "words");
    assert_eq!(kept(&spoken), at(50_048));
    spoken.commit();
    assert_eq!(spoken.asked(), [(50_048, 60_000, false)]);
    assert_eq!(spoken.dictation.audio_needed_from(at(7), at(9)), at(7));
}

#[test]
fn the_words_so_far_are_requested_every_half_second_and_in_the_silence_behind_them() {
    let mut spoken = nothing_yet(true);
    for _ in 0..4 {
        spoken.speak(512);
        for (_, _, partial) in spoken.asked() {
            assert!(partial);
            answer(&mut spoken, "so far");
        }
    }
    let mut behind = 0;
    for _ in 0..100 {
        spoken.silence(32);
        behind += spoken.asked().len();
        answer(&mut spoken, "so far");
    }
    assert_eq!(behind, 2, "two that have all words, and no more");
}

/// Answers the last request, if it is awaited.
fn answer(spoken: &mut Spoken, words: &str) {
    let last = spoken.common.request_id();
    for number in 1..last.0 {
        let request = RequestId(number);
        let heard = Ok(words.into());
        let common = &mut spoken.common;
        spoken.dictation.on_transcript(request, heard, common);
    }
}

#[test]
fn a_long_silence_is_not_transcribed() {
    let mut spoken = nothing_yet(false);
    spoken.silence(60_000);
    assert_eq!(spoken.asked(), []);
    spoken.speak(1_024);
    spoken.silence(60_000);
    let asked = spoken.asked();
    assert_eq!(asked.len(), 1, "{asked:?}");
    let (from, to, _) = asked[0];
    assert!((54_000..55_000).contains(&from), "{from}");
    assert!((66_000..66_200).contains(&to), "{to}");
    answer(&mut spoken, "words");
    let recent = at(spoken.to - 1_000);
    let kept = spoken.dictation.audio_needed_from(at(0), recent);
    assert_eq!(kept, recent);
    spoken.speak(1_024);
    let utterance = spoken.commit();
    let (from, to, _) = spoken.asked()[0];
    assert_eq!(to, spoken.to);
    assert!(to - from < 1_500, "from {from} to {to}");
    assert_eq!(utterance.from(), at(54_700));
}

#[test]
fn nothing_is_transcribed_again_that_was_said_before_a_long_silence() {
    let mut spoken = nothing_yet(false);
    spoken.speak(1_024);
    spoken.silence(6_400);
    assert_eq!(spoken.asked().len(), 1);
    spoken.commit();
    assert_eq!(spoken.asked(), []);
}

/// They were left out as if they were silence.
#[test]
fn words_behind_a_long_silence_that_are_not_judged_before_the_commit_are_transcribed() {
    for judged in [0, 2] {
        let mut spoken = nothing_yet(false);
        spoken.speak(1_024);
        spoken.silence(6_400);
        spoken.asked();
        let silent_to = spoken.to;
        spoken.speak(32 * judged);
        spoken.to = silent_to + 800;
        spoken.commit();
        let from = silent_to - VadPolicy::default().pre_roll_ms;
        assert_eq!(spoken.asked(), [(from, silent_to + 800, false)]);
    }
}

#[test]
fn audio_in_which_nobody_was_heard_is_transcribed_whole() {
    let mut spoken = nothing_yet(true);
    spoken.silence(30_016);
    assert_eq!(spoken.asked(), []);
    assert_eq!(spoken.dictation.audio_needed_from(at(0), at(29_000)), at(0));
    spoken.commit();
    assert_eq!(
        spoken.asked(),
        [(0, 25_000, false), (25_000, 30_016, false)]
    );
}

/// The parts before were requested without any audio in them.
#[test]
fn of_audio_in_which_nobody_was_heard_only_what_is_kept_is_transcribed() {
    let mut spoken = nothing_yet(false);
    spoken.silence(180_000);
    spoken.commit();
    let from = spoken.to - Ring::LONGEST.as_ms();
    let asked = spoken.asked();
    assert_eq!(asked.first(), Some(&(from, from + 25_000, false)));
    assert_eq!(asked.len(), 3);
}
