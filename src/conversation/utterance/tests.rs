//! Unit tests of an utterance; whole sessions are in `../tests/`.

use super::*;
use crate::conversation::experience::Experience;
use crate::conversation::policy::Policy;

fn at(ms: u64) -> Samples {
    Samples::from_ms(ms)
}

/// An utterance that began at zero, in a conversation at `ms`.
fn speaking(ms: u64) -> (Utterance, Common) {
    let mut common = Common::new(Policy::default(), Experience::default());
    let utterance = Utterance::spoken(at(0), at(0), common.now, 500);
    common.now = Time::from_ms(ms);
    (utterance, common)
}

/// The utterance with a pause at `ms` and these words.
fn paused(ms: u64, words: &str) -> (Utterance, Common) {
    let (mut utterance, mut common) = speaking(ms);
    utterance.goes_on(at(ms), common.now, 500);
    utterance.pauses(&mut common, EndOfTurnRule::Semantic, at(ms + 200), false);
    let request = utterance.pause.transcription.unwrap();
    let transcribed = utterance.on_transcript(request, Ok(words.into()), common.now);
    assert_eq!(transcribed, Transcribed::Pause(Some(words.into())));
    (utterance, common)
}

fn judge(utterance: &Utterance, common: &mut Common, ms: u64) -> EndOfTurn {
    common.now = Time::from_ms(ms);
    utterance.judge(common, &TurnDetection::default())
}

#[test]
fn a_user_who_speaks_is_not_done() {
    let (utterance, mut common) = speaking(1_000);
    assert_eq!(judge(&utterance, &mut common, 9_000), EndOfTurn::NotYet);
}

#[test]
fn a_turn_may_be_over_at_once_and_is_after_a_silence() {
    let (utterance, mut common) = paused(1_000, "what time is it");
    let words = || "what time is it".to_owned();
    let early = judge(&utterance, &mut common, 1_100);
    assert_eq!(early, EndOfTurn::Perhaps(words()));
    assert!(common.timers.is_set(Timer::EndOfTurn));
    let late = judge(&utterance, &mut common, 1_500);
    assert_eq!(late, EndOfTurn::Over(words()));
}

#[test]
fn an_unfinished_sentence_gets_a_longer_wait() {
    let (utterance, mut common) = paused(1_000, "set a timer for");
    assert_eq!(judge(&utterance, &mut common, 2_400), EndOfTurn::NotYet);
    assert!(matches!(
        judge(&utterance, &mut common, 2_500),
        EndOfTurn::Over(_)
    ));
}

#[test]
fn requests_of_a_pause_die_with_it() {
    let (mut utterance, mut common) = paused(1_000, "what time");
    let scoring = utterance.pause.scoring.unwrap();
    assert!(utterance.goes_on(at(1_300), common.now, 500));
    assert!(
        !utterance.goes_on(at(1_332), common.now, 500),
        "it went on before"
    );
    assert!(!utterance.on_completeness(scoring, 0.9, common.now));
    assert_eq!(judge(&utterance, &mut common, 9_000), EndOfTurn::NotYet);
}

#[test]
fn a_turn_without_its_transcript_waits_for_it() {
    let (mut utterance, mut common) = speaking(1_000);
    utterance.goes_on(at(1_000), common.now, 500);
    utterance.pauses(&mut common, EndOfTurnRule::Semantic, at(1_200), false);
    assert_eq!(judge(&utterance, &mut common, 2_000), EndOfTurn::NotYet);
    assert!(common.timers.is_set(Timer::TranscriptOverdue));
    let request = utterance.pause.transcription.unwrap();
    let failed = utterance.on_transcript(request, Err(()), common.now);
    assert_eq!(failed, Transcribed::Pause(None));
    assert_eq!(judge(&utterance, &mut common, 2_000), EndOfTurn::Lost);
}

#[test]
fn a_committed_turn_is_over_as_soon_as_its_words_are_there() {
    let (mut utterance, mut common) = speaking(1_000);
    utterance.commit(&mut common, at(1_000));
    assert!(utterance.is_committed());
    let request = utterance.pause.transcription.unwrap();
    utterance.on_transcript(request, Ok("set a timer for".into()), common.now);
    let over = judge(&utterance, &mut common, 1_000);
    assert_eq!(over, EndOfTurn::Over("set a timer for".into()));
}

#[test]
fn a_long_utterance_is_transcribed_in_segments() {
    let (mut utterance, mut common) = speaking(60_000);
    let longest = common.policy.endpoint.segment_ms;
    utterance.cut_long_segment(&mut common, at(longest - 1), false);
    assert!(utterance.segments.is_empty());
    utterance.cut_long_segment(&mut common, at(longest), false);
    let request = utterance.segments[0].request;
    let text = Ok("One, ".into());
    let segment = utterance.on_transcript(request, text, common.now);
    assert_eq!(segment, Transcribed::Segment);
    assert_eq!(utterance.on_partial("two").unwrap(), "One, two");
    assert_eq!(utterance.on_partial("two"), None, "nothing is new");
    let earlier = at(longest + longest * 3 / 5);
    utterance.cut_long_segment(&mut common, earlier, true);
    assert_eq!(utterance.segments.len(), 2, "sooner behind a pause");
}

#[test]
fn partials_are_asked_for_one_at_a_time() {
    let (mut utterance, mut common) = speaking(1_000);
    utterance.ask_partial(&mut common, at(499));
    assert_eq!(utterance.partials.asked, None);
    utterance.ask_partial(&mut common, at(500));
    let first = utterance.partials.asked.unwrap();
    utterance.ask_partial(&mut common, at(1_000));
    assert_eq!(utterance.partials.asked, Some(first));
    let partial = utterance.on_transcript(first, Ok("what".into()), common.now);
    assert_eq!(partial, Transcribed::Partial("what".into()));
    let again = utterance.on_transcript(first, Ok("what".into()), common.now);
    assert_eq!(again, Transcribed::Dead);
}

#[test]
fn a_partial_that_failed_takes_back_no_words() {
    let (mut utterance, mut common) = speaking(1_000);
    utterance.ask_partial(&mut common, at(500));
    let request = utterance.partials.asked.unwrap();
    let failed = utterance.on_transcript(request, Err(()), common.now);
    assert_eq!(failed, Transcribed::Dead);
    utterance.ask_partial(&mut common, at(1_000));
    assert!(
        utterance.partials.asked.is_some(),
        "the next one is asked for"
    );
}

#[test]
fn preemptive_generations_are_bounded() {
    let (mut utterance, _) = speaking(0);
    let early: Vec<_> = (0..3).map(|_| utterance.may_be_answered_early(2)).collect();
    assert_eq!(early, [true, true, false]);
}

#[test]
fn an_utterance_in_words_is_wordless_until_they_come() {
    let mut utterance = Utterance::in_words(at(0), Time(0));
    assert!(utterance.is_wordless());
    utterance.on_partial("what");
    assert!(!utterance.is_wordless());
    assert_eq!(utterance.words(), "what");
}

#[test]
fn the_transcript_of_a_pause_that_is_none_is_the_next_partial() {
    let (mut utterance, mut common) = speaking(1_000);
    utterance.goes_on(at(1_000), common.now, 500);
    utterance.pauses(&mut common, EndOfTurnRule::Semantic, at(1_032), false);
    let request = utterance.pause.transcription.expect("it is decoded ahead");
    utterance.goes_on(at(1_064), common.now, 500);
    let transcribed = utterance.on_transcript(request, Ok("what".into()), common.now);
    assert_eq!(transcribed, Transcribed::Partial("what".into()));
    let asked = common.outputs.len();
    utterance.ask_partial(&mut common, at(1_500));
    assert_eq!(
        common.outputs.len(),
        asked,
        "the next one is due 500 ms later"
    );
}

#[test]
fn a_busy_server_does_not_decode_ahead() {
    let (mut utterance, mut common) = speaking(1_000);
    utterance.goes_on(at(1_000), common.now, 500);
    utterance.pauses(&mut common, EndOfTurnRule::Semantic, at(1_064), true);
    assert!(utterance.pause.transcription.is_none());
    utterance.pauses(&mut common, EndOfTurnRule::Semantic, at(1_096), true);
    assert!(utterance.pause.transcription.is_some());
}
