//! Unit tests of an utterance; whole sessions are in `../tests/`.

use super::*;
use crate::asr::{TurnReport, TurnState};
use crate::conversation::experience::Experience;
use crate::conversation::output::Output;
use crate::conversation::policy::Policy;
use crate::conversation::timer::Timer;
use crate::conversation::turn_detection::TurnDetection;
use crate::language::Marks;

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

/// The utterance with a pause at `ms`, and the request for its words.
fn pausing(ms: u64) -> (Utterance, Common, RequestId) {
    let (mut utterance, mut common) = speaking(ms);
    utterance.goes_on(at(ms), common.now);
    let rule = EndOfTurnRule::Semantic;
    pauses(&mut utterance, &mut common, rule, at(ms + 200), false);
    let request = utterance.pause.transcription.unwrap();
    (utterance, common, request)
}

/// The utterance with a pause at `ms` and these words.
fn paused(ms: u64, words: &str) -> (Utterance, Common) {
    let (mut utterance, mut common, request) = pausing(ms);
    let transcribed = utterance.on_transcript(request, Ok(words.into()), &mut common);
    assert_eq!(transcribed, Transcribed::Pause(Some(words.into())));
    (utterance, common)
}

/// A window of silence that ends at `end`, behind words that are no request for a tool.
fn pauses(
    utterance: &mut Utterance,
    common: &mut Common,
    rule: EndOfTurnRule,
    end: Samples,
    busy: bool,
) -> Option<String> {
    utterance.pauses(end);
    let may_settle = rule != EndOfTurnRule::Client;
    utterance.transcribe_pause(common, rule, (may_settle, busy), Request::default())
}

fn judge(utterance: &Utterance, common: &mut Common, ms: u64) -> EndOfTurn {
    common.now = Time::from_ms(ms);
    utterance.judge(common, &TurnDetection::default(), Request::default(), false)
}

#[test]
fn a_user_who_speaks_is_not_done() {
    let (utterance, mut common) = speaking(1_000);
    assert_eq!(judge(&utterance, &mut common, 9_000), EndOfTurn::NotYet);
}

#[test]
fn a_turn_may_be_over_at_once_and_is_after_a_silence() {
    let (mut utterance, mut common) = paused(1_000, "what time is it");
    let words = || "what time is it".to_owned();
    let early = judge(&utterance, &mut common, 1_100);
    assert_eq!(early, EndOfTurn::Perhaps(words()));
    assert!(common.timers.is_set(Timer::EndOfTurn));
    pauses(
        &mut utterance,
        &mut common,
        EndOfTurnRule::Semantic,
        at(1_480),
        false,
    );
    let late = judge(&utterance, &mut common, 1_500);
    assert_eq!(late, EndOfTurn::Over(words()));
}

#[test]
fn an_unfinished_sentence_gets_a_longer_wait() {
    let (mut utterance, mut common) = paused(1_000, "set a timer for");
    pauses(
        &mut utterance,
        &mut common,
        EndOfTurnRule::Semantic,
        at(2_480),
        false,
    );
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
    assert!(utterance.goes_on(at(1_300), common.now));
    assert!(
        !utterance.goes_on(at(1_332), common.now),
        "it went on before"
    );
    assert!(!utterance.on_completeness(scoring, 0.9, common.now));
    assert_eq!(judge(&utterance, &mut common, 9_000), EndOfTurn::NotYet);
}

#[test]
fn a_turn_without_its_transcript_waits_for_it() {
    let (mut utterance, mut common) = speaking(1_000);
    utterance.goes_on(at(1_000), common.now);
    pauses(
        &mut utterance,
        &mut common,
        EndOfTurnRule::Semantic,
        at(1_200),
        false,
    );
    assert_eq!(judge(&utterance, &mut common, 2_000), EndOfTurn::NotYet);
    assert!(common.timers.is_set(Timer::TranscriptOverdue));
    let request = utterance.pause.transcription.unwrap();
    let failed = utterance.on_transcript(request, Err(()), &mut common);
    assert_eq!(failed, Transcribed::Pause(None));
    assert_eq!(judge(&utterance, &mut common, 2_000), EndOfTurn::Lost);
}

#[test]
fn a_committed_turn_is_over_as_soon_as_its_words_are_there() {
    let (mut utterance, mut common) = speaking(1_000);
    utterance.commit(&mut common, at(1_000));
    assert!(utterance.is_committed());
    let request = utterance.pause.transcription.unwrap();
    utterance.on_transcript(request, Ok("set a timer for".into()), &mut common);
    let over = judge(&utterance, &mut common, 1_000);
    assert_eq!(over, EndOfTurn::Over("set a timer for".into()));
}

/// The request of the last transcription.
fn requested(common: &Common) -> Option<RequestId> {
    common.outputs.iter().rev().find_map(|output| match output {
        Output::Transcribe { request, .. } => Some(*request),
        _ => None,
    })
}

fn certain(text: &str) -> Recognised {
    Recognised {
        marks: Some(Marks {
            ends: 0.97,
            goes_on: 0.003,
        }),
        ..Recognised::from(text)
    }
}

/// An utterance that has fallen silent at 1,000 ms, and the request for the words up to there.
fn fallen() -> (Utterance, Common, RequestId) {
    let (mut utterance, mut common) = speaking(1_000);
    utterance.ask_partial(&mut common, at(500));
    let first = requested(&common).unwrap();
    utterance.on_transcript(first, Ok(certain("What")), &mut common);
    utterance.goes_on(at(1_000), common.now);
    utterance.fades(&mut common, at(1_032), false);
    let gap = requested(&common).unwrap();
    (utterance, common, gap)
}

#[test]
fn words_up_to_a_gap_that_are_certainly_all_are_not_transcribed_again() {
    let (mut utterance, mut common, gap) = fallen();
    let heard = Ok(certain("What time is it?"));
    let partial = utterance.on_transcript(gap, heard, &mut common);
    assert_eq!(
        partial,
        Transcribed::Partial(Some("What time is it?".into()))
    );
    let perhaps = EndOfTurn::Perhaps("What time is it?".into());
    assert_eq!(judge(&utterance, &mut common, 1_100), perhaps);
    let rule = EndOfTurnRule::Semantic;
    let all = pauses(&mut utterance, &mut common, rule, at(1_064), false);
    assert_eq!(all.as_deref(), Some("What time is it?"));
    let again = pauses(&mut utterance, &mut common, rule, at(1_224), false);
    assert_eq!((again, requested(&common)), (None, Some(gap)));
    let over = EndOfTurn::Over("What time is it?".into());
    assert_eq!(judge(&utterance, &mut common, 1_240), over);
}

#[test]
fn a_pause_behind_words_that_are_awaited_is_transcribed_when_they_turn_out_not_to_be_all() {
    let (mut utterance, mut common, gap) = fallen();
    let rule = EndOfTurnRule::Semantic;
    assert_eq!(
        pauses(&mut utterance, &mut common, rule, at(1_096), false),
        None
    );
    assert_eq!(requested(&common), Some(gap), "it is awaited");
    utterance.on_transcript(gap, Ok("What time".into()), &mut common);
    pauses(&mut utterance, &mut common, rule, at(1_128), false);
    let pause = requested(&common).unwrap();
    assert_ne!(pause, gap);
    let heard = Ok(certain("What time is it?"));
    utterance.on_transcript(pause, heard, &mut common);
    let over = EndOfTurn::Over("What time is it?".into());
    pauses(&mut utterance, &mut common, rule, at(1_224), false);
    assert_eq!(judge(&utterance, &mut common, 1_240), over);
}

#[test]
fn a_pause_does_not_wait_long_for_words_up_to_a_gap() {
    let (mut utterance, mut common, gap) = fallen();
    let rule = EndOfTurnRule::Semantic;
    pauses(&mut utterance, &mut common, rule, at(1_224), false);
    assert_eq!(requested(&common), Some(gap));
    pauses(&mut utterance, &mut common, rule, at(1_256), false);
    let pause = requested(&common).unwrap();
    assert_ne!(pause, gap);
    // The first to come counts.
    utterance.on_transcript(gap, Ok(certain("What time is it?")), &mut common);
    let all = pauses(&mut utterance, &mut common, rule, at(1_288), false);
    assert_eq!(all.as_deref(), Some("What time is it?"));
    let late = utterance.on_transcript(pause, Ok("What time".into()), &mut common);
    assert_eq!(late, Transcribed::Dead);
}

#[test]
fn words_whose_end_was_loud_behind_the_audio_of_the_partial_are_transcribed_again() {
    let (mut utterance, mut common) = speaking(1_000);
    utterance.ask_partial(&mut common, at(1_000));
    let half = requested(&common).unwrap();
    utterance.on_transcript(half, Ok(certain("I am six")), &mut common);
    utterance.goes_on(at(1_032), common.now);
    utterance.goes_on(at(1_064), common.now);
    let rule = EndOfTurnRule::Semantic;
    let all = pauses(&mut utterance, &mut common, rule, at(1_096), false);
    assert_eq!(all, None);
    let pause = requested(&common).unwrap();
    assert_ne!(pause, half);
    let heard = utterance.on_transcript(pause, Ok(certain("I am sixty.")), &mut common);
    assert_eq!(heard, Transcribed::Pause(Some("I am sixty.".into())));
}

#[test]
fn a_voice_that_falls_behind_the_audio_of_a_partial_is_transcribed_up_to_there() {
    let (mut utterance, mut common) = speaking(1_000);
    utterance.ask_partial(&mut common, at(1_000));
    let half = requested(&common).unwrap();
    utterance.on_transcript(half, Ok(certain("I am six")), &mut common);
    utterance.goes_on(at(1_032), common.now);
    utterance.goes_on(at(1_064), common.now);
    utterance.fades(&mut common, at(1_096), false);
    let gap = requested(&common).unwrap();
    assert_ne!(gap, half);
    utterance.on_transcript(gap, Ok(certain("I am sixty.")), &mut common);
    let rule = EndOfTurnRule::Semantic;
    let all = pauses(&mut utterance, &mut common, rule, at(1_128), false);
    assert_eq!(all.as_deref(), Some("I am sixty."));
}

#[test]
fn words_that_are_only_likely_all_are_transcribed_again_though_all_waits_are_alike() {
    let (mut utterance, mut common, gap) = fallen();
    let endpoint = &mut common.policy.endpoint;
    endpoint.unsure_ms = endpoint.complete_ms;
    endpoint.incomplete_ms = endpoint.complete_ms;
    let heard = Recognised {
        marks: certain("").marks,
        ..Recognised::from("What time is it in")
    };
    utterance.on_transcript(gap, Ok(heard), &mut common);
    let rule = EndOfTurnRule::Semantic;
    let all = pauses(&mut utterance, &mut common, rule, at(1_064), false);
    assert_eq!(all, None);
    assert_ne!(requested(&common), Some(gap));
}

#[test]
fn a_pause_that_could_not_be_transcribed_is_not_lost_if_the_words_up_to_a_gap_are_all() {
    let (mut utterance, mut common, gap) = fallen();
    let rule = EndOfTurnRule::Semantic;
    pauses(&mut utterance, &mut common, rule, at(1_256), false);
    let pause = requested(&common).unwrap();
    assert_ne!(pause, gap);
    utterance.on_transcript(pause, Err(()), &mut common);
    utterance.on_transcript(gap, Ok(certain("What time is it?")), &mut common);
    let all = pauses(&mut utterance, &mut common, rule, at(1_288), false);
    assert_eq!(all.as_deref(), Some("What time is it?"));
    let over = EndOfTurn::Over("What time is it?".into());
    assert_eq!(judge(&utterance, &mut common, 1_300), over);
}

#[test]
fn a_committed_turn_that_is_cut_has_its_words_once() {
    let (mut utterance, mut common, pause) = pausing(24_600);
    utterance.on_transcript(pause, Ok("Once upon a time".into()), &mut common);
    let before = common.outputs.len();
    utterance.commit(&mut common, at(25_400));
    let asked: Vec<_> = common
        .outputs
        .iter()
        .skip(before)
        .filter_map(|output| match output {
            Output::Transcribe { request, .. } => Some(*request),
            _ => None,
        })
        .collect();
    let [segment, rest] = asked.try_into().expect("a segment and the rest");
    utterance.on_transcript(segment, Ok("Once upon a time".into()), &mut common);
    utterance.on_transcript(rest, Ok("".into()), &mut common);
    let over = EndOfTurn::Over("Once upon a time".into());
    assert_eq!(judge(&utterance, &mut common, 25_400), over);
}

#[test]
fn words_of_a_recogniser_that_tells_no_punctuation_are_transcribed_again() {
    let (mut utterance, mut common, gap) = fallen();
    utterance.on_transcript(gap, Ok("What time is it?".into()), &mut common);
    let rule = EndOfTurnRule::Semantic;
    let all = pauses(&mut utterance, &mut common, rule, at(1_064), false);
    assert_eq!(all, None);
    assert_ne!(requested(&common), Some(gap));
}

/// The local recogniser's partials stand in for those of a service that hears the pause.
#[test]
fn words_that_another_recogniser_will_hear_are_not_the_transcript_of_the_pause() {
    let (mut utterance, mut common) = speaking(1_000);
    utterance.goes_on(at(1_000), common.now);
    utterance.fades(&mut common, at(1_032), false);
    let gap = requested(&common).unwrap();
    let heard = Recognised {
        provisional: true,
        ..certain("Was is it's fine?")
    };
    utterance.on_transcript(gap, Ok(heard), &mut common);
    let rule = EndOfTurnRule::Semantic;
    let all = pauses(&mut utterance, &mut common, rule, at(1_064), false);
    assert_eq!(all, None);
    let pause = requested(&common).unwrap();
    assert_ne!(pause, gap);
    utterance.on_transcript(pause, Ok("Was ist es?".into()), &mut common);
    let over = EndOfTurn::Over("Was ist es?".into());
    pauses(&mut utterance, &mut common, rule, at(2_500), false);
    assert_eq!(judge(&utterance, &mut common, 2_500), over);
}

/// An utterance with these words up to a gap, behind which the recogniser expects its end with the probability `ends`.
fn up_to_gap(words: &str, ends: f32) -> (Utterance, Common) {
    let (mut utterance, mut common) = speaking(1_000);
    utterance.goes_on(at(1_000), common.now);
    utterance.fades(&mut common, at(1_032), false);
    let gap = requested(&common).unwrap();
    let marks = Some(Marks {
        ends,
        goes_on: 0.01,
    });
    let heard = Recognised {
        marks,
        ..Recognised::from(words)
    };
    utterance.on_transcript(gap, Ok(heard), &mut common);
    common.now = Time::from_ms(1_100);
    (utterance, common)
}

#[test]
fn a_whole_request_for_a_tool_is_certain_up_to_a_gap_though_the_voice_is_monotonous() {
    for (asks, certain) in [
        (Request::default(), false),
        (Request::of(true, false), true),
    ] {
        let (mut utterance, mut common) = up_to_gap("What is 9 times 14?", 0.73);
        let rule = EndOfTurnRule::Semantic;
        utterance.pauses(at(1_064));
        let all = utterance.transcribe_pause(&mut common, rule, (true, false), asks);
        assert_eq!(all.is_some(), certain);
    }
}

#[test]
fn words_up_to_a_gap_that_may_be_all_are_answered_and_transcribed_again() {
    for (ends, likely) in [(0.73, true), (0.3, false)] {
        let (utterance, mut common) = up_to_gap("Do you sell gift cards?", ends);
        let asks = Request::default();
        let judged = utterance.judge(&mut common, &TurnDetection::default(), asks, false);
        assert_eq!(judged != EndOfTurn::NotYet, likely, "{ends}");
    }
}

/// Asserts that two windows of silence, the second of which ends at `ms`, and a whole question end the turn just then.
#[track_caller]
fn is_over_at(ms: u64, (mut utterance, mut common): (Utterance, Common)) {
    let rule = EndOfTurnRule::Semantic;
    pauses(&mut utterance, &mut common, rule, at(ms - 64), false);
    let request = utterance.pause.transcription.unwrap();
    utterance.on_transcript(request, Ok(certain("What time is it?")), &mut common);
    pauses(&mut utterance, &mut common, rule, at(ms), false);
    let perhaps = EndOfTurn::Perhaps("What time is it?".into());
    assert_eq!(judge(&utterance, &mut common, ms - 1), perhaps);
    let over = EndOfTurn::Over("What time is it?".into());
    assert_eq!(judge(&utterance, &mut common, ms), over);
}

#[test]
fn silence_counts_from_where_the_voice_fell_silent_though_the_detector_notices_later() {
    let (mut utterance, mut common) = speaking(1_000);
    utterance.goes_on(at(1_000), common.now);
    for quiet in [1_032, 1_064, 1_096] {
        common.now = Time::from_ms(quiet);
        utterance.fades(&mut common, at(quiet), false);
    }
    // 160 ms, of which at most 64 ms lie before the detector's last speech.
    is_over_at(1_096 - 64 + 160, (utterance, common));
}

#[test]
fn a_low_voice_is_no_silence() {
    let (mut utterance, mut common) = speaking(1_000);
    utterance.goes_on(at(1_000), common.now);
    utterance.fades(&mut common, at(1_032), false);
    common.now = Time::from_ms(1_064);
    utterance.goes_on(at(1_064), common.now);
    is_over_at(1_064 + 160, (utterance, common));
}

#[test]
fn words_up_to_a_gap_that_are_unsure_or_not_all_ask_for_nothing() {
    let (mut utterance, mut common) = speaking(1_000);
    utterance.goes_on(at(1_000), common.now);
    utterance.fades(&mut common, at(1_032), false);
    let gap = requested(&common).unwrap();
    utterance.on_transcript(gap, Ok("what time is".into()), &mut common);
    assert_eq!(judge(&utterance, &mut common, 1_100), EndOfTurn::NotYet);
    utterance.goes_on(at(1_300), common.now);
    utterance.fades(&mut common, at(1_332), false);
    let gap = requested(&common).unwrap();
    let heard = Ok(certain("What time is it?"));
    utterance.on_transcript(gap, heard, &mut common);
    utterance.goes_on(at(1_600), common.now);
    pauses(
        &mut utterance,
        &mut common,
        EndOfTurnRule::Semantic,
        at(1_700),
        false,
    );
    assert_eq!(judge(&utterance, &mut common, 1_750), EndOfTurn::NotYet);
}

#[test]
fn a_busy_server_transcribes_no_gap() {
    let (mut utterance, mut common) = speaking(1_000);
    utterance.goes_on(at(1_000), common.now);
    utterance.fades(&mut common, at(1_032), true);
    assert_eq!(requested(&common), None);
}

#[test]
fn a_transcript_keeps_the_spelling_of_the_words_that_are_being_answered() {
    let (mut utterance, mut common) = speaking(1_000);
    assert!(utterance.may_be_answered_early("what time is it", 1));
    pauses(
        &mut utterance,
        &mut common,
        EndOfTurnRule::Semantic,
        at(1_164),
        false,
    );
    let pause = requested(&common).unwrap();
    let heard = Ok(certain("What time is it?"));
    let all = utterance.on_transcript(pause, heard, &mut common);
    assert_eq!(all, Transcribed::Pause(Some("what time is it".into())));
}

#[test]
fn preemptive_generations_are_bounded() {
    let (mut utterance, _) = speaking(0);
    let early: Vec<_> = (0..3)
        .map(|_| utterance.may_be_answered_early("yes", 2))
        .collect();
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
    utterance.goes_on(at(1_000), common.now);
    pauses(
        &mut utterance,
        &mut common,
        EndOfTurnRule::Semantic,
        at(1_032),
        false,
    );
    let request = utterance.pause.transcription.expect("it is decoded ahead");
    utterance.goes_on(at(1_064), common.now);
    let transcribed = utterance.on_transcript(request, Ok("what".into()), &mut common);
    assert_eq!(transcribed, Transcribed::Partial(Some("what".into())));
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
    utterance.goes_on(at(1_000), common.now);
    pauses(
        &mut utterance,
        &mut common,
        EndOfTurnRule::Semantic,
        at(1_064),
        true,
    );
    assert!(utterance.pause.transcription.is_none());
    pauses(
        &mut utterance,
        &mut common,
        EndOfTurnRule::Semantic,
        at(1_096),
        true,
    );
    assert!(utterance.pause.transcription.is_some());
}

#[test]
fn a_gap_between_words_is_no_end_while_the_audio_after_it_is_late() {
    let (mut utterance, mut common) = speaking(1_000);
    utterance.goes_on(at(1_000), common.now);
    let rule = EndOfTurnRule::Semantic;
    pauses(&mut utterance, &mut common, rule, at(1_096), false);
    let request = requested(&common).unwrap();
    let heard = Ok(certain("Yes, please."));
    utterance.on_transcript(request, heard, &mut common);
    let perhaps = EndOfTurn::Perhaps("Yes, please.".into());
    assert_eq!(judge(&utterance, &mut common, 1_400), perhaps);
    let over = || EndOfTurn::Over("Yes, please.".into());
    assert_eq!(judge(&utterance, &mut common, 2_000), over(), "none came");
    // It comes, and is silence.
    pauses(&mut utterance, &mut common, rule, at(1_300), false);
    assert_eq!(judge(&utterance, &mut common, 1_400), over());
}

#[test]
fn a_partial_that_comes_behind_the_transcript_of_the_pause_is_dead() {
    let (mut utterance, mut common) = speaking(1_000);
    utterance.ask_partial(&mut common, at(1_000));
    let partial = requested(&common).unwrap();
    pauses(
        &mut utterance,
        &mut common,
        EndOfTurnRule::Semantic,
        at(1_200),
        false,
    );
    let pause = requested(&common).unwrap();
    utterance.on_transcript(pause, Ok("what time is it".into()), &mut common);
    let late = utterance.on_transcript(partial, Ok("what".into()), &mut common);
    assert_eq!(late, Transcribed::Dead);
}

#[test]
fn a_partial_before_the_words_of_a_segment_in_front_of_it_has_no_words() {
    let (mut utterance, mut common) = speaking(40_000);
    utterance.cut_long_segment(&mut common, at(40_000), false);
    let segment = requested(&common).unwrap();
    utterance.ask_partial(&mut common, at(41_000));
    let early = requested(&common).unwrap();
    let tail = |words: &str| Ok(words.into());
    let early = utterance.on_transcript(early, tail("and then"), &mut common);
    assert_eq!(early, Transcribed::Partial(None));
    utterance.on_transcript(segment, tail("Once upon a time"), &mut common);
    utterance.ask_partial(&mut common, at(42_000));
    let next = requested(&common).unwrap();
    let partial = utterance.on_transcript(next, tail("and then"), &mut common);
    assert_eq!(partial, Transcribed::Partial(Some("and then".into())));
}

/// The requests for words, oldest first, each with its audio, ms.
fn requests(common: &Common) -> Vec<(RequestId, u64, u64)> {
    let asked = common.outputs.iter();
    let asked = asked.filter_map(|output| match output {
        Output::Transcribe {
            request, from, to, ..
        } => Some((*request, from.as_ms(), to.as_ms())),
        _ => None,
    });
    asked.collect()
}

/// A committed utterance of two segments and a rest, whose requests are returned.
fn committed_in_parts() -> (Utterance, Common, [RequestId; 3]) {
    let (mut utterance, mut common) = speaking(60_000);
    utterance.commit(&mut common, at(60_000));
    let asked = requests(&common);
    let asked: Vec<_> = asked.into_iter().map(|(request, ..)| request).collect();
    let asked = asked.try_into().expect("two segments and the rest");
    (utterance, common, asked)
}

/// All words were lost.
#[test]
fn a_part_that_fails_once_is_transcribed_again_and_the_others_are_kept() {
    let (mut utterance, mut common, [first, second, rest]) = committed_in_parts();
    utterance.on_transcript(first, Err(()), &mut common);
    utterance.on_transcript(second, Ok("two".into()), &mut common);
    let heard = utterance.on_transcript(rest, Err(()), &mut common);
    assert_eq!(heard, Transcribed::Segment);
    assert_eq!(judge(&utterance, &mut common, 60_000), EndOfTurn::NotYet);
    assert!(common.timers.is_set(Timer::TranscribeAgain));
    utterance.ask_again(&mut common);
    let asked = requests(&common);
    let [.., (first, 0, _), (rest, from, 60_000)] = asked[..] else {
        panic!("{asked:?}");
    };
    assert!(from > 25_000, "{from}");
    utterance.on_transcript(rest, Ok("three".into()), &mut common);
    utterance.on_transcript(first, Ok("One".into()), &mut common);
    let over = EndOfTurn::Over("One two three".into());
    assert_eq!(judge(&utterance, &mut common, 60_000), over);
}

#[test]
fn a_part_that_fails_twice_leaves_the_words_of_the_others() {
    let (mut utterance, mut common, [first, second, rest]) = committed_in_parts();
    utterance.on_transcript(first, Ok("One".into()), &mut common);
    utterance.on_transcript(second, Ok("two".into()), &mut common);
    utterance.on_transcript(rest, Err(()), &mut common);
    utterance.ask_again(&mut common);
    let again = requested(&common).unwrap();
    assert_ne!(again, rest);
    utterance.on_transcript(again, Err(()), &mut common);
    assert_eq!(judge(&utterance, &mut common, 60_000), EndOfTurn::Lost);
    assert_eq!(utterance.known_words(), "One two");
}

#[test]
fn an_utterance_is_lost_whose_parts_all_fail_twice() {
    let (mut utterance, mut common, _) = committed_in_parts();
    for _ in 0..2 {
        for (request, ..) in requests(&common) {
            utterance.on_transcript(request, Err(()), &mut common);
        }
        utterance.ask_again(&mut common);
    }
    assert_eq!(requests(&common).len(), 6);
    assert_eq!(judge(&utterance, &mut common, 60_000), EndOfTurn::Lost);
    assert_eq!(utterance.known_words(), "");
}

#[test]
fn a_committed_turn_ignores_the_verdict_on_its_end() {
    let (mut utterance, mut common) = paused(1_000, "what time is it");
    utterance.commit(&mut common, at(1_200));
    let before = requested(&common);
    let report = TurnReport {
        state: TurnState::Over,
        to: at(1_300),
    };
    assert!(!utterance.on_turn_report(&mut common, report));
    assert_eq!(requested(&common), before);
    let over = EndOfTurn::Over("what time is it".into());
    assert_eq!(judge(&utterance, &mut common, 1_400), over);
}

/// An utterance with a finished segment, whose request is returned, and a pause behind it, whose request is, too.
fn detected_in_parts() -> (Utterance, Common, [RequestId; 2]) {
    let (mut utterance, mut common) = speaking(26_000);
    utterance.goes_on(at(26_000), common.now);
    utterance.cut_long_segment(&mut common, at(26_000), false);
    utterance.goes_on(at(28_000), Time::from_ms(28_000));
    common.now = Time::from_ms(28_200);
    let rule = EndOfTurnRule::Semantic;
    pauses(&mut utterance, &mut common, rule, at(28_200), false);
    let asked = requests(&common).into_iter().map(|(request, ..)| request);
    let asked: Vec<_> = asked.collect();
    let asked = asked.try_into().expect("a segment and a pause");
    (utterance, common, asked)
}

/// "Book it for Friday. No, wait, don't." was answered as "Book it for Friday."
#[test]
fn a_detected_turn_whose_last_words_are_lost_is_not_answered() {
    let (mut utterance, mut common, [segment, rest]) = detected_in_parts();
    utterance.on_transcript(segment, Ok("Book it for Friday.".into()), &mut common);
    utterance.on_transcript(rest, Err(()), &mut common);
    assert_eq!(judge(&utterance, &mut common, 29_000), EndOfTurn::NotYet);
    utterance.ask_again(&mut common);
    let again = requested(&common).unwrap();
    assert_ne!(again, rest);
    utterance.on_transcript(again, Err(()), &mut common);
    assert_eq!(judge(&utterance, &mut common, 40_000), EndOfTurn::Lost);
    assert_eq!(utterance.known_words(), "Book it for Friday.");
}

/// The user was asked to repeat all of it.
#[test]
fn the_last_words_of_a_long_detected_turn_are_asked_for_once_more() {
    let (mut utterance, mut common, [segment, rest]) = detected_in_parts();
    utterance.on_transcript(segment, Ok("Book it for Friday.".into()), &mut common);
    utterance.on_transcript(rest, Err(()), &mut common);
    utterance.ask_again(&mut common);
    let again = requested(&common).unwrap();
    utterance.on_transcript(again, Ok("No, don't.".into()), &mut common);
    let over = EndOfTurn::Over("Book it for Friday. No, don't.".into());
    assert_eq!(judge(&utterance, &mut common, 40_000), over);
}

#[test]
fn a_detected_turn_whose_first_part_fails_twice_is_not_answered() {
    let (mut utterance, mut common, [segment, rest]) = detected_in_parts();
    utterance.on_transcript(segment, Err(()), &mut common);
    utterance.on_transcript(rest, Ok("Book it.".into()), &mut common);
    assert_eq!(judge(&utterance, &mut common, 28_400), EndOfTurn::NotYet);
    utterance.ask_again(&mut common);
    let again = requested(&common).unwrap();
    assert_ne!(again, segment);
    utterance.on_transcript(again, Err(()), &mut common);
    assert_eq!(judge(&utterance, &mut common, 40_000), EndOfTurn::Lost);
}

/// They were lost, and the user was asked to repeat.
#[test]
fn a_pause_that_failed_does_not_lose_the_words_of_the_next_one() {
    let (mut utterance, mut common, failed) = pausing(1_000);
    utterance.on_transcript(failed, Err(()), &mut common);
    utterance.goes_on(at(2_000), Time::from_ms(2_000));
    utterance.ask_partial(&mut common, at(2_500));
    assert_ne!(requested(&common), Some(failed), "partials go on");
    common.now = Time::from_ms(3_000);
    utterance.goes_on(at(3_000), common.now);
    let rule = EndOfTurnRule::Semantic;
    pauses(&mut utterance, &mut common, rule, at(3_200), false);
    let pause = requested(&common).unwrap();
    utterance.on_transcript(pause, Ok("What time is it?".into()), &mut common);
    let over = EndOfTurn::Over("What time is it?".into());
    assert_eq!(judge(&utterance, &mut common, 9_000), over);
}

#[test]
fn a_commit_behind_a_pause_that_failed_is_transcribed_again() {
    let (mut utterance, mut common, failed) = pausing(1_000);
    utterance.on_transcript(failed, Err(()), &mut common);
    utterance.commit(&mut common, at(1_400));
    let again = requested(&common).unwrap();
    assert_ne!(again, failed);
    utterance.on_transcript(again, Ok("What time is it?".into()), &mut common);
    let over = EndOfTurn::Over("What time is it?".into());
    assert_eq!(judge(&utterance, &mut common, 1_500), over);
}
