use super::export::Told;
use super::watch::Turn;
use super::{Parent, Sampler, Subject, Watch};
use super::{TraceSettings, Traces, spans};
use crate::conversation::{
    CallId, ClauseId, Discard, Event, Fate, Input, ItemId, Micros, Output, RequestId,
    ResponseStatus, RunId, RunRecord, Samples, Time, TurnId, TurnLatency, TurnRecord,
};
use crate::llm::{LlmEvent, Prompt, TokenUsage};
use crate::prediction::Source;
use crate::tts::Speaker;
use opentelemetry_proto::tonic::trace::v1::Span;
use serde_json::json;
use std::sync::Arc;
use tokio::sync::mpsc::Receiver;
use uuid::Uuid;

fn ms(ms: u64) -> Time {
    Time::from_ms(ms)
}

/// A watched session, and what it tells.
fn watched(content: bool) -> (Watch, Receiver<Told>) {
    let settings = TraceSettings {
        url: "http://127.0.0.1:9/v1/traces".parse().unwrap(),
        headers: reqwest::header::HeaderMap::new(),
        resource: Vec::new(),
        sampler: Sampler::default(),
        content,
    };
    let traces = Traces::new(settings).unwrap();
    let told = traces.take();
    let session = Uuid::from_u128(7);
    let subject = Subject::new(Sampler::default(), session, None, None, None, 1_000_000).unwrap();
    (Watch::new(traces, subject), told)
}

fn turn(told: &mut Receiver<Told>) -> Box<Turn> {
    match told.try_recv().unwrap() {
        Told::Turn(turn) => turn,
        Told::Ended(_) => panic!("not a turn"),
    }
}

fn heard(watch: &mut Watch, at: u64) {
    let input = Input::Vad {
        end: Samples::from_ms(at),
        probability: 1.0,
        level: 0,
    };
    watch.input(ms(at), &input);
}

fn notify(watch: &mut Watch, at: u64, event: Event) {
    watch.output(ms(at), &Output::Notify(event));
}

fn generate(watch: &mut Watch, at: u64, request: u64) {
    let prompt = Prompt {
        instructions: None,
        day: None,
        messages: Vec::new(),
        tools: Arc::default(),
        demands: crate::llm::Demands::default(),
    };
    let request = RequestId(request);
    let agent = None;
    watch.output(
        ms(at),
        &Output::Generate {
            request,
            prompt,
            agent,
        },
    );
}

fn streamed(watch: &mut Watch, at: u64, request: u64, event: LlmEvent) {
    let request = RequestId(request);
    watch.input(ms(at), &Input::Llm { request, event });
}

fn run(tool: &str, fate: Fate) -> RunRecord {
    RunRecord {
        run: RunId(1),
        tool: tool.into(),
        arguments: json!({"city": "Secretville"}).as_object().cloned().unwrap(),
        source: Some(Source::Rule),
        confidence: 0.9,
        started: ms(700),
        finished: None,
        ok: false,
        fate,
        saved: Micros(0),
        wasted: Micros(0),
        cost: 0.0,
    }
}

fn record(end_of_turn: u64) -> TurnRecord {
    TurnRecord {
        turn: Some(TurnId(1)),
        status: Some(ResponseStatus::Interrupted),
        latency: TurnLatency {
            speech_end: Some(ms(1_000)),
            end_of_turn: Some(ms(end_of_turn)),
            ..TurnLatency::default()
        },
        predictions: Vec::new(),
        runs: vec![
            run(
                "weather",
                Fate::Committed {
                    at: ms(1_300),
                    calls: vec![CallId(3)],
                },
            ),
            run(
                "made up by the model",
                Fate::Discarded {
                    at: ms(1_100),
                    reason: Discard::Superseded,
                },
            ),
        ],
        fillers: 0,
        fillers_dropped: 0,
        fillers_saved: Micros(0),
        held: Vec::new(),
        drafts: Vec::new(),
        continued: 0,
    }
}

fn names(spans: &[Span]) -> Vec<&str> {
    spans.iter().map(|span| span.name.as_str()).collect()
}

/// The user speaks over the answer, and the model is asked for the next one before the first turn has its record.
fn barge_in(watch: &mut Watch) {
    heard(watch, 500);
    let at = Samples::from_ms(300);
    notify(watch, 500, Event::SpeechStarted { at });
    heard(watch, 1_000);
    let at = Samples::from_ms(900);
    notify(watch, 1_200, Event::SpeechStopped { at });
    generate(watch, 1_200, 1);
    let text = "It is raining.".to_owned();
    streamed(watch, 1_250, 1, LlmEvent::Speech { text: text.clone() });
    streamed(watch, 1_260, 1, LlmEvent::End);
    let clause = ClauseId(4);
    let speaker = Speaker::default();
    let item = ItemId(5);
    watch.output(
        ms(1_260),
        &Output::Speak {
            clause,
            item,
            text,
            speaker,
        },
    );
    let until = Micros(0);
    watch.input(ms(1_300), &Input::Sent { clause, until });
    let until = Micros::from_ms(400);
    watch.input(ms(1_300), &Input::Sent { clause, until });
    heard(watch, 1_500);
    let at = Samples::from_ms(1_400);
    notify(watch, 1_500, Event::SpeechStarted { at });
    generate(watch, 1_510, 2);
    streamed(watch, 1_515, 2, LlmEvent::End);
    watch.output(ms(1_520), &Output::Flush);
    let first = record(1_200);
    notify(watch, 1_520, Event::TurnRecorded(Box::new(first.clone())));
    watch.turn_over(None, &first, |tool| tool == "weather");
}

#[test]
fn what_the_user_begins_during_an_answer_belongs_to_the_next_turn() {
    let (mut watch, mut told) = watched(false);
    barge_in(&mut watch);
    let first = spans::of_turn(&turn(&mut told));
    let expected = [
        "turn",
        "vad",
        "chat unknown",
        "tts",
        "end_of_turn",
        "execute_tool weather",
        "execute_tool unknown",
    ];
    assert_eq!(names(&first), expected);
    let nanos = |at: u64| 1_000_000 + at * 1_000_000;
    let times = |span: &Span| (span.start_time_unix_nano, span.end_time_unix_nano);
    assert_eq!(times(&first[0]), (nanos(300), nanos(1_520)));
    assert_eq!(times(&first[1]), (nanos(300), nanos(900)));
    assert_eq!(times(&first[3]), (nanos(1_260), nanos(1_520)), "it was cut");
    assert_eq!(times(&first[6]), (nanos(700), nanos(1_100)));
    assert!(
        first[1..]
            .iter()
            .all(|span| span.parent_span_id == first[0].span_id)
    );
    assert_eq!(first[0].trace_id, Uuid::from_u128(7).as_bytes());

    let mut second = record(1_800);
    second.turn = Some(TurnId(2));
    second.latency.speech_end = Some(ms(1_700));
    second.runs.clear();
    notify(
        &mut watch,
        2_000,
        Event::TurnRecorded(Box::new(second.clone())),
    );
    watch.turn_over(None, &second, |_| true);
    let second = spans::of_turn(&turn(&mut told));
    assert_eq!(
        names(&second),
        ["turn", "vad", "chat unknown", "end_of_turn"]
    );
    assert_eq!(second[0].start_time_unix_nano, nanos(1_400));
}

#[test]
fn audio_that_was_sent_is_played_after_the_record_and_a_greeting_belongs_to_no_turn() {
    let (mut watch, mut told) = watched(false);
    let clause = ClauseId(1);
    let speak = Output::Speak {
        clause,
        item: ItemId(2),
        text: "Hello.".into(),
        speaker: Speaker::default(),
    };
    watch.output(ms(0), &speak);
    let until = Micros::from_ms(200);
    watch.input(ms(1_990), &Input::Sent { clause, until });
    let done = TurnRecord {
        status: Some(ResponseStatus::Completed),
        ..record(1_200)
    };
    notify(
        &mut watch,
        2_000,
        Event::TurnRecorded(Box::new(done.clone())),
    );
    watch.turn_over(None, &done, |_| true);
    let spans = spans::of_turn(&turn(&mut told));
    let (turn, tts) = (&spans[0], &spans[1]);
    assert_eq!(turn.end_time_unix_nano - 1_000_000, 2_190 * 1_000_000);
    assert_eq!(tts.name, "tts");
    assert_ne!(tts.parent_span_id, turn.span_id);
}

#[test]
fn failures_and_tokens_between_turns_are_told_with_the_next_turn() {
    let (mut watch, mut told) = watched(false);
    let failed = Event::StageFailed {
        stage: "asr".into(),
        message: "busy".into(),
    };
    notify(&mut watch, 500, failed);
    let used = Event::ResponseDone {
        turn: TurnId(0),
        status: ResponseStatus::Completed,
        latency: Box::default(),
        usage: TokenUsage {
            input: 7,
            ..TokenUsage::default()
        },
    };
    notify(&mut watch, 600, used);
    let turn_of = |turn: Option<TurnId>| TurnRecord {
        turn,
        runs: Vec::new(),
        ..record(1_200)
    };
    for record in [turn_of(None), turn_of(Some(TurnId(1)))] {
        assert!(told.try_recv().is_err(), "a noise is not told");
        let recorded = Event::TurnRecorded(Box::new(record.clone()));
        notify(&mut watch, 1_500, recorded);
        watch.turn_over(None, &record, |_| true);
    }
    let next = turn(&mut told);
    assert_eq!(next.record.turn, Some(TurnId(1)));
    assert_eq!(next.stages.failures, [(ms(500), "asr".to_owned())]);
    assert_eq!(next.stages.usage.input, 7);
}

#[test]
fn words_arguments_and_invented_names_leave_only_if_they_are_asked_for() {
    for content in [false, true] {
        let (mut watch, mut told) = watched(content);
        barge_in(&mut watch);
        let told = format!("{:?}", spans::of_turn(&turn(&mut told)));
        assert_eq!(told.contains("raining"), content);
        assert_eq!(told.contains("Secretville"), content);
        assert!(!told.contains("made up"), "{told}");
    }
}

#[test]
fn a_session_without_end_keeps_a_bounded_number_of_stages() {
    let (mut watch, mut told) = watched(true);
    for request in 0..10_000 {
        generate(&mut watch, request, request);
        let text = "word ".repeat(100);
        streamed(&mut watch, request, request, LlmEvent::Speech { text });
    }
    watch.end(ms(20_000), None);
    let Told::Ended(end) = told.try_recv().unwrap() else {
        panic!("not the end");
    };
    let spans = spans::of_end(&end);
    assert!(spans.len() <= 129, "{}", spans.len());
    let size: usize = spans.iter().map(|span| format!("{span:?}").len()).sum();
    assert!(size < 1_000_000, "{size}");
}

#[test]
fn a_client_that_does_not_keep_its_trace_has_none_here() {
    let parent = |flags| {
        Parent::read(&format!(
            "00-{}1-{}1-{flags}",
            "0".repeat(31),
            "0".repeat(15)
        ))
    };
    let sampler = Sampler::default();
    let subject = |flags| Subject::new(sampler, Uuid::nil(), parent(flags), None, None, 0);
    assert!(subject("00").is_none());
    let kept = subject("01").unwrap();
    assert_eq!(kept.trace[15], 1);
}
