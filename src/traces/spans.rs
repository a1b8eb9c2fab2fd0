//! The spans of a turn and of a conversation.

use super::names;
use super::watch::{
    Clause, Ended, Generation, Hearing, Speech, Stages, Subject, Turn, end_of, span_id,
};
use crate::conversation::{Discard, Fate, ResponseStatus, RunRecord, Time};
use crate::llm::TokenUsage;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::span::{Event, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{Span, SpanFlags, Status};
use serde_json::json;

/// The flag of a trace that is kept.
const SAMPLED: u32 = 1;

/// Spans of one conversation, as they are made.
struct Maker<'a> {
    subject: &'a Subject,
    spans: Vec<Span>,
}

/// The stage that a span shows.
struct Stage {
    name: String,
    kind: SpanKind,
    began: Time,
    ended: Time,
    attributes: Vec<KeyValue>,
    events: Vec<Event>,
    failed: bool,
}

impl Stage {
    fn new(name: impl Into<String>, began: Time, ended: Time) -> Self {
        Self {
            name: name.into(),
            kind: SpanKind::Internal,
            began,
            ended: ended.max(began),
            attributes: Vec::new(),
            events: Vec::new(),
            failed: false,
        }
    }
}

/// The spans of a turn: its own, and those of its stages. Stages from before the turn, such as a greeting, belong to the
/// conversation.
pub(super) fn of_turn(turn: &Turn) -> Vec<Span> {
    let mut maker = Maker::new(&turn.subject);
    let (id, root) = (span_id(), turn.subject.root);
    let began = turn.began();
    let ended = turn.ended.max(turn.stages.played);
    let own = maker.turn(turn, began, ended);
    maker.add(id, Some(root), own);
    maker.stages(&turn.stages, ended, |stage| match stage.began < began {
        true => root,
        false => id,
    });
    if let Some(stage) = maker.end_of_turn(turn) {
        maker.add(span_id(), Some(id), stage);
    }
    for run in &turn.record.runs {
        let stage = maker.tool(run, turn.ended);
        maker.add(span_id(), Some(id), stage);
    }
    let held = &turn.record.held;
    for span in &mut maker.spans {
        let began = |time: Time| turn.subject.nanos(time) == span.start_time_unix_nano;
        let is_generation = span.name.starts_with(names::CHAT);
        let early = held.iter().find(|held| is_generation && began(held.began));
        if let Some(held) = early {
            let before = held.before.name();
            span.attributes.push(text(names::HELD_BEFORE, before));
            let outcome = if held.used { "used" } else { "discarded" };
            span.attributes.retain(|known| known.key != names::OUTCOME);
            span.attributes.push(text(names::OUTCOME, outcome));
        }
    }
    maker.spans
}

/// The span of a conversation, and those of stages that belong to no turn.
pub(super) fn of_end(end: &Ended) -> Vec<Span> {
    let (subject, root) = (&*end.subject, end.subject.root);
    let mut maker = Maker::new(subject);
    let mut stage = Stage::new(names::CONVERSATION, Time(0), end.ended);
    stage.kind = SpanKind::Server;
    stage.attributes = maker.common();
    stage
        .attributes
        .push(text(names::OPERATION, names::INVOKE_AGENT));
    stage.attributes.extend(
        subject
            .agent
            .as_deref()
            .map(|agent| text(names::AGENT, agent)),
    );
    stage.attributes.extend(
        subject
            .transport
            .as_deref()
            .map(|by| text(names::TRANSPORT, by)),
    );
    let reason = end.reason.map(|reason| plain(&json!(reason)));
    let reason = reason.unwrap_or_else(|| "client".into());
    stage.attributes.push(text(names::ENDED_BY, &reason));
    maker.add(root, subject.parent, stage);
    if let (Some(_), Some(own)) = (subject.parent, maker.spans.last_mut()) {
        own.flags |= SpanFlags::ContextIsRemoteMask as u32;
    }
    maker.stages(&end.stages, end.ended, |_| root);
    maker.spans
}

impl Subject {
    /// A time of the session, in nanoseconds since 1970.
    fn nanos(&self, time: Time) -> u64 {
        self.began.saturating_add(time.0.saturating_mul(1_000))
    }
}

impl<'a> Maker<'a> {
    fn new(subject: &'a Subject) -> Self {
        Self {
            subject,
            spans: Vec::new(),
        }
    }

    fn add(&mut self, id: [u8; 8], parent: Option<[u8; 8]>, stage: Stage) {
        let status = stage.failed.then(|| Status {
            code: StatusCode::Error as i32,
            message: String::new(),
        });
        self.spans.push(Span {
            trace_id: self.subject.trace.to_vec(),
            span_id: id.to_vec(),
            parent_span_id: parent.map(Vec::from).unwrap_or_default(),
            flags: SAMPLED | SpanFlags::ContextHasIsRemoteMask as u32,
            name: stage.name,
            kind: stage.kind as i32,
            start_time_unix_nano: self.subject.nanos(stage.began),
            end_time_unix_nano: self.subject.nanos(stage.ended),
            attributes: stage.attributes,
            events: stage.events,
            status,
            ..Span::default()
        });
    }

    /// Attributes of all spans.
    fn common(&self) -> Vec<KeyValue> {
        let session = self.subject.session.to_string();
        vec![text(names::CONVERSATION_ID, &session)]
    }

    fn event(&self, name: &str, at: Time, attributes: Vec<KeyValue>) -> Event {
        Event {
            time_unix_nano: self.subject.nanos(at),
            name: name.into(),
            attributes,
            dropped_attributes_count: 0,
        }
    }

    fn turn(&self, turn: &Turn, began: Time, ended: Time) -> Stage {
        let (record, latency) = (&turn.record, &turn.record.latency);
        let mut stage = Stage::new(names::TURN, began, ended);
        stage.failed = record.status == Some(ResponseStatus::Failed);
        let status = record.status.map(|status| plain(&json!(status)));
        let status = status.unwrap_or_else(|| "no_turn".into());
        let since_speech = |to: Option<Time>| Some(to?.since(latency.speech_end?));
        let times = [
            (names::END_OF_TURN_MS, since_speech(latency.end_of_turn)),
            (names::FIRST_AUDIO_MS, since_speech(latency.first_audio)),
            (names::ANSWER_AUDIO_MS, since_speech(latency.answer_audio)),
            (names::DEAD_AIR_MS, latency.dead_air),
        ];
        let of = &mut stage.attributes;
        of.extend(self.common());
        of.push(text(names::STATUS, &status));
        of.extend(record.turn.map(|id| whole(names::TURN_ID, id.0)));
        of.extend(turn.agent.as_deref().map(|agent| text(names::AGENT, agent)));
        let times = times.into_iter();
        of.extend(times.filter_map(|(name, span)| Some(whole(name, span?.as_ms()))));
        of.push(whole(names::FILLERS, record.fillers.into()));
        of.extend(tokens(&turn.stages.usage));
        if !turn.stages.words.is_empty() {
            of.push(text(names::USER_WORDS, &turn.stages.words.join(" ")));
        }
        let failures = turn.stages.failures.iter();
        let failures = failures.map(|(at, failed)| {
            self.event(names::STAGE_FAILED, *at, vec![text(names::STAGE, failed)])
        });
        stage.events = failures.collect();
        stage
    }

    /// Adds the spans of stages. Those that have not ended are shown until `until`.
    fn stages(&mut self, stages: &Stages, until: Time, parent: impl Fn(&Stage) -> [u8; 8]) {
        let speech = stages.speech.iter().map(|speech| vad(speech, until));
        let hearings = stages.hearings.iter().map(|hearing| asr(hearing, until));
        let generations = stages.generations.iter();
        let generations = generations.map(|generation| self.generation(generation, until));
        let clauses = stages.clauses.iter().map(|clause| self.tts(clause, until));
        let made = speech.chain(hearings).chain(generations).chain(clauses);
        let made: Vec<Stage> = made.collect();
        for stage in made {
            let parent = parent(&stage);
            self.add(span_id(), Some(parent), stage);
        }
    }

    fn generation(&self, generation: &Generation, until: Time) -> Stage {
        let model = generation.model.as_ref();
        let name = model.map_or("unknown", |model| model.name.as_str());
        let ended = generation.ended.unwrap_or(until);
        let mut stage = Stage::new(names::chat(name), generation.began, ended);
        stage.failed = generation.outcome == Some("failed");
        let mut of = self.common();
        of.push(text(names::OPERATION, names::CHAT));
        of.push(text(names::MODEL, name));
        of.push(flag(names::STREAM, true));
        if let Some(model) = model {
            of.push(text(names::PROVIDER, names::provider(model)));
            if let Some((host, port)) = &model.server {
                stage.kind = SpanKind::Client;
                of.push(text(names::SERVER, host));
                of.push(whole(names::PORT, u64::from(*port)));
            }
        }
        if let Some(first) = generation.first {
            let wait = first.since(generation.began).duration().as_secs_f64();
            of.push(real(names::FIRST_CHUNK, wait));
            stage
                .events
                .push(self.event(names::FIRST_TOKEN, first, Vec::new()));
        }
        of.extend(generation.usage.iter().flat_map(tokens));
        of.extend(outcome(generation.outcome));
        if !generation.words.is_empty() {
            let parts = json!([{"type": "text", "content": generation.words}]);
            let messages = json!([{"role": "assistant", "parts": parts}]);
            of.push(text(names::OUTPUT_MESSAGES, &messages.to_string()));
        }
        stage.attributes = of;
        stage
    }

    fn tts(&self, clause: &Clause, until: Time) -> Stage {
        let mut stage = Stage::new(names::TTS, clause.began, clause.ended.unwrap_or(until));
        stage.failed = clause.outcome == Some("failed");
        let of = &mut stage.attributes;
        of.push(whole(names::CHARACTERS, clause.characters as u64));
        of.extend(
            clause
                .voice
                .as_deref()
                .map(|voice| text(names::VOICE, voice)),
        );
        of.extend(
            clause
                .words
                .as_deref()
                .map(|words| text(names::SPOKEN_WORDS, words)),
        );
        of.extend(outcome(clause.outcome));
        let stamps = [
            (names::FIRST_AUDIO, clause.first),
            (names::PLAYOUT, clause.heard),
        ];
        let stamps = stamps.into_iter();
        let stamps = stamps.filter_map(|(name, at)| Some(self.event(name, at?, Vec::new())));
        stage.events = stamps.collect();
        stage
    }

    /// From the end of speech until the turn was over.
    fn end_of_turn(&self, turn: &Turn) -> Option<Stage> {
        let latency = &turn.record.latency;
        let (began, ended) = (latency.speech_end?, latency.end_of_turn?);
        let mut stage = Stage::new(names::END_OF_TURN, began, ended);
        let score = turn.stages.score;
        let score = score.map(|(_, probability)| real(names::PROBABILITY, f64::from(probability)));
        stage.attributes.extend(score);
        let stamps = [
            (names::TRANSCRIPT, latency.transcript),
            (names::SCORE, latency.completeness),
        ];
        let stamps = stamps.into_iter();
        let stamps = stamps.filter_map(|(name, at)| Some(self.event(name, at?, Vec::new())));
        stage.events = stamps.collect();
        Some(stage)
    }

    /// A run of a tool. One without a result is shown until `until`.
    fn tool(&self, run: &RunRecord, until: Time) -> Stage {
        let ended = end_of(run).unwrap_or(until);
        let mut stage = Stage::new(names::tool(&run.tool), run.started, ended);
        let mut of = self.common();
        of.push(text(names::OPERATION, names::EXECUTE_TOOL));
        of.push(text(names::TOOL, &run.tool));
        of.push(text(names::TOOL_TYPE, names::FUNCTION));
        of.push(text(names::RUN, &run.run.to_string()));
        of.push(flag(names::SPECULATIVE, run.source.is_some()));
        if let Some(source) = run.source {
            of.push(text(names::SOURCE, source.name()));
            of.push(real(names::CONFIDENCE, f64::from(run.confidence)));
        }
        match &run.fate {
            Fate::Committed { at, calls } => {
                of.push(text(names::FATE, "committed"));
                of.push(whole(names::SAVED_MS, run.saved.as_ms()));
                let call = calls.first().map(|call| self.subject.call(*call));
                of.extend(call.map(|call| text(names::TOOL_CALL, &call)));
                stage
                    .events
                    .push(self.event(names::COMMIT, *at, Vec::new()));
                stage.failed = run.finished.is_some() && !run.ok;
            }
            Fate::Discarded { reason, .. } => {
                let fate = match reason {
                    Discard::Superseded => "superseded",
                    _ => "discarded",
                };
                of.push(text(names::FATE, fate));
                of.push(text(names::REASON, reason.name()));
                of.push(whole(names::WASTED_MS, run.wasted.as_ms()));
                stage.failed = *reason == Discard::Failed;
            }
        }
        if stage.failed {
            of.push(text(names::ERROR, "tool_failed"));
        }
        if !run.arguments.is_empty() {
            let arguments = json!(run.arguments).to_string();
            of.push(text(names::TOOL_ARGUMENTS, &arguments));
        }
        stage.attributes = of;
        stage
    }
}

fn vad(speech: &Speech, until: Time) -> Stage {
    Stage::new(names::VAD, speech.began, speech.ended.unwrap_or(until))
}

fn asr(hearing: &Hearing, until: Time) -> Stage {
    let ended = hearing.ended.unwrap_or(until);
    let mut stage = Stage::new(names::ASR, hearing.began, ended);
    stage.failed = hearing.failed;
    let of = &mut stage.attributes;
    of.push(flag(names::PARTIAL, hearing.partial));
    of.extend(outcome(hearing.failed.then_some("failed")));
    of.extend(
        hearing
            .words
            .as_deref()
            .map(|words| text(names::HEARD_WORDS, words)),
    );
    stage
}

fn outcome(outcome: Option<&'static str>) -> Vec<KeyValue> {
    let mut of: Vec<_> = outcome
        .map(|how| text(names::OUTCOME, how))
        .into_iter()
        .collect();
    if outcome == Some("failed") {
        of.push(text(names::ERROR, "failed"));
    }
    of
}

/// The token counts that are known.
fn tokens(usage: &TokenUsage) -> Vec<KeyValue> {
    let all = [
        (names::INPUT_TOKENS, usage.input),
        (names::CACHED_TOKENS, usage.cached),
        (names::OUTPUT_TOKENS, usage.output),
        (names::REASONING_TOKENS, usage.reasoning),
    ];
    let known = all.into_iter().filter(|(_, count)| *count > 0);
    known.map(|(name, count)| whole(name, count)).collect()
}

/// The text of a name in JSON.
fn plain(value: &serde_json::Value) -> String {
    value.as_str().unwrap_or("other").to_owned()
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue {
        key: key.into(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}

pub(super) fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, Value::StringValue(value.into()))
}

fn whole(key: &str, value: u64) -> KeyValue {
    attribute(
        key,
        Value::IntValue(i64::try_from(value).unwrap_or(i64::MAX)),
    )
}

fn real(key: &str, value: f64) -> KeyValue {
    attribute(key, Value::DoubleValue(value))
}

fn flag(key: &str, value: bool) -> KeyValue {
    attribute(key, Value::BoolValue(value))
}
