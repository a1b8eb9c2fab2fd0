//! When each stage of a session's turns began and ended, as the session's inputs and decisions show it, until the record
//! of the turn makes spans of it.

use super::export::{Told, Traces};
use super::parent::Parent;
use super::sampler::Sampler;
use crate::conversation::{
    CallId, ClauseId, Event, Fate, HangUpReason, Input, Job, Micros, NewItem, Output, RequestId,
    Samples, Time, TurnRecord,
};
use crate::llm::{LlmEvent, ModelId, TokenUsage};
use crate::metrics::UNKNOWN_TOOL;
use std::collections::VecDeque;
use std::sync::Arc;
use uuid::Uuid;

/// The most stages of a kind that are kept of one turn: the oldest are left out.
const MOST: usize = 128;

/// The most bytes of words and arguments in the spans of one turn. Later ones are left out.
const MOST_WORDS: usize = 64 * 1024;

/// The conversation that a trace shows.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(super) trace: [u8; 16],
    /// The span of the conversation.
    pub(super) root: [u8; 8],
    /// The client's span.
    pub(super) parent: Option<[u8; 8]>,
    /// Its name in reports and the log.
    pub(super) session: Uuid,
    /// The agent that it began with, if the server has several.
    pub(super) agent: Option<String>,
    /// The way by which the client came.
    pub(super) transport: Option<String>,
    /// When it began, nanoseconds since 1970.
    pub(super) began: u64,
}

impl Subject {
    /// A conversation that began at `began`, nanoseconds since 1970. Without a parent the trace has the id of the
    /// session, so that it can be found by it. `None` if it is not traced.
    pub(crate) fn new(
        sampler: Sampler,
        session: Uuid,
        parent: Option<Parent>,
        agent: Option<String>,
        transport: Option<&str>,
        began: u64,
    ) -> Option<Self> {
        let trace = parent.map_or(*session.as_bytes(), |parent| parent.trace);
        sampler.keeps(trace, parent).then(|| Self {
            trace,
            root: span_id(),
            parent: parent.map(|parent| parent.span),
            session,
            agent,
            transport: transport.map(str::to_owned),
            began,
        })
    }

    /// The name of a call in the audit log and in the keys of requests.
    pub(super) fn call(&self, call: CallId) -> String {
        format!("{}-{call}", self.session)
    }
}

/// A new id of a span. The fixed bits of the two halves do not meet.
pub(super) fn span_id() -> [u8; 8] {
    let (high, low) = Uuid::new_v4().as_u64_pair();
    (high ^ low).max(1).to_be_bytes()
}

/// An utterance of the user.
#[derive(Debug)]
pub(super) struct Speech {
    pub(super) began: Time,
    pub(super) ended: Option<Time>,
    /// It led to no turn.
    dropped: bool,
}

/// A transcription.
#[derive(Debug)]
pub(super) struct Hearing {
    request: RequestId,
    pub(super) partial: bool,
    pub(super) began: Time,
    pub(super) ended: Option<Time>,
    pub(super) failed: bool,
    pub(super) words: Option<String>,
}

/// A generation of the language model.
#[derive(Debug)]
pub(super) struct Generation {
    request: RequestId,
    pub(super) model: Option<ModelId>,
    pub(super) began: Time,
    pub(super) first: Option<Time>,
    pub(super) ended: Option<Time>,
    /// How it ended, if not by itself.
    pub(super) outcome: Option<&'static str>,
    pub(super) usage: Option<TokenUsage>,
    /// Its words, if they are wanted.
    pub(super) words: String,
}

/// A clause of the agent's speech.
#[derive(Debug)]
pub(super) struct Clause {
    clause: ClauseId,
    pub(super) began: Time,
    /// Its first audio was there.
    pub(super) first: Option<Time>,
    /// All of its audio was there.
    pub(super) ended: Option<Time>,
    /// Its first audio was sent.
    pub(super) heard: Option<Time>,
    sent: Micros,
    pub(super) outcome: Option<&'static str>,
    pub(super) voice: Option<String>,
    pub(super) characters: usize,
    pub(super) words: Option<String>,
}

/// The stages of a turn, or what of them has been seen so far.
#[derive(Debug, Default)]
pub(super) struct Stages {
    pub(super) speech: Vec<Speech>,
    pub(super) hearings: Vec<Hearing>,
    /// The last score of the end-of-turn model.
    pub(super) score: Option<(Time, f32)>,
    pub(super) generations: Vec<Generation>,
    pub(super) clauses: Vec<Clause>,
    /// Stages that have failed.
    pub(super) failures: Vec<(Time, String)>,
    /// The language model's usage.
    pub(super) usage: TokenUsage,
    /// The user's words, if they are wanted.
    pub(super) words: Vec<String>,
    /// When the last audio that was sent has been played.
    pub(super) played: Time,
}

/// A turn that is over.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(super) subject: Arc<Subject>,
    pub(super) agent: Option<String>,
    pub(super) record: Box<TurnRecord>,
    pub(super) stages: Stages,
    pub(super) ended: Time,
}

/// A conversation that is over, with the stages that belong to no turn.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(super) subject: Arc<Subject>,
    pub(super) stages: Stages,
    pub(super) ended: Time,
    pub(super) reason: Option<HangUpReason>,
}

/// Watches one session for its trace. It only takes notes: the spans are made elsewhere, from turns that are over.
#[derive(Debug)]
pub(crate) struct Watch {
    traces: Traces,
    subject: Arc<Subject>,
    stages: Stages,
    /// Bytes of words that still fit into this turn's spans; none if words are not wanted.
    room: usize,
    /// The latest window of the user's audio that was judged: when, and where it ends.
    judged: Option<(Time, Samples)>,
    /// Turns that are over and told, whose records the session has not passed on yet.
    over: VecDeque<(Stages, Time)>,
}

impl Watch {
    pub(crate) fn new(traces: Traces, subject: Subject) -> Self {
        let mut watch = Self {
            traces,
            subject: Arc::new(subject),
            stages: Stages::default(),
            room: 0,
            judged: None,
            over: VecDeque::new(),
        };
        watch.make_room();
        watch
    }

    /// Notes an input of the conversation.
    pub(crate) fn input(&mut self, now: Time, input: &Input) {
        match input {
            Input::Vad { end, .. } => self.judged = Some((now, *end)),
            Input::Transcript { request, text, .. } => {
                let words = kept(&mut self.room, text);
                if let Some(hearing) = self.hearing(*request) {
                    hearing.ended = Some(now);
                    hearing.words = words;
                }
            }
            // Its event has no words.
            Input::AddItem {
                item: NewItem::User { text },
                ..
            } => {
                let words = kept(&mut self.room, text);
                self.stages.words.extend(words);
            }
            Input::Completeness { probability, .. } => {
                self.stages.score = Some((now, *probability));
            }
            Input::Llm { request, event } => self.generated(now, *request, event),
            Input::Failed { job, .. } => self.failed(now, *job),
            Input::Synthesised { clause, last, .. } => {
                if let Some(clause) = self.clause(*clause) {
                    clause.first.get_or_insert(now);
                    clause.ended = last.then_some(now);
                }
            }
            Input::Sent { clause, until } => self.sent(now, *clause, *until),
            _ => {}
        }
    }

    /// Notes a decision of the conversation.
    pub(crate) fn output(&mut self, now: Time, output: &Output) {
        match output {
            Output::Transcribe {
                request, partial, ..
            } => push(
                &mut self.stages.hearings,
                Hearing {
                    request: *request,
                    partial: *partial,
                    began: now,
                    ended: None,
                    failed: false,
                    words: None,
                },
            ),
            Output::Generate { request, .. } => push(
                &mut self.stages.generations,
                Generation {
                    request: *request,
                    model: None,
                    began: now,
                    first: None,
                    ended: None,
                    outcome: None,
                    usage: None,
                    words: String::new(),
                },
            ),
            Output::CancelGeneration { request } => {
                if let Some(generation) = self.generation(*request)
                    && generation.ended.is_none()
                {
                    generation.ended = Some(now);
                    generation.outcome = Some("cancelled");
                }
            }
            Output::Speak {
                clause,
                text,
                speaker,
                ..
            } => {
                let words = kept(&mut self.room, text);
                push(
                    &mut self.stages.clauses,
                    Clause {
                        clause: *clause,
                        began: now,
                        first: None,
                        ended: None,
                        heard: None,
                        sent: Micros(0),
                        outcome: None,
                        voice: speaker.voice.clone(),
                        characters: text.chars().count(),
                        words,
                    },
                );
            }
            Output::CancelClause { clause } => {
                if let Some(clause) = self.clause(*clause) {
                    clause.cancel(now);
                }
            }
            Output::Flush => {
                self.stages.played = self.stages.played.min(now);
                let clauses = self.stages.clauses.iter_mut();
                clauses.for_each(|clause| clause.cancel(now));
            }
            Output::Notify(event) => self.event(now, event),
            _ => {}
        }
    }

    /// Notes which model was asked.
    pub(crate) fn asked(&mut self, request: RequestId, model: ModelId) {
        if let Some(generation) = self.generation(request) {
            generation.model = Some(model);
        }
    }

    /// Passes on a turn that is over. `knows` says whether the session has a tool: names that the model has invented are
    /// left out, as are arguments unless they are wanted.
    pub(crate) fn turn_over(
        &mut self,
        agent: Option<&str>,
        record: &TurnRecord,
        knows: impl Fn(&str) -> bool,
    ) {
        if !is_told(record) {
            return;
        }
        let Some((stages, ended)) = self.over.pop_front() else {
            return;
        };
        let mut record = Box::new(record.clone());
        record.predictions.clear();
        record.drafts.clear();
        for run in &mut record.runs {
            if !knows(&run.tool) {
                UNKNOWN_TOOL.clone_into(&mut run.tool);
            }
            if !self.traces.has_content() {
                run.arguments.clear();
            }
        }
        self.traces.put(Told::Turn(Box::new(Turn {
            subject: self.subject.clone(),
            agent: agent.map(str::to_owned),
            record,
            stages,
            ended,
        })));
    }

    /// Passes on the conversation, which is over. `reason`: why the server ended it; `None` if the client has gone.
    pub(crate) fn end(self, now: Time, reason: Option<HangUpReason>) {
        self.traces.put(Told::Ended(Box::new(Ended {
            subject: self.subject,
            stages: self.stages,
            ended: now,
            reason,
        })));
    }

    fn event(&mut self, now: Time, event: &Event) {
        match event {
            Event::SpeechStarted { at } => {
                let began = self.time_of(*at, now);
                self.stages.speech.retain(|speech| !speech.dropped);
                push(
                    &mut self.stages.speech,
                    Speech {
                        began,
                        ended: None,
                        dropped: false,
                    },
                );
            }
            Event::SpeechStopped { at } => {
                let ended = self.time_of(*at, now);
                if let Some(speech) = self.stages.speech.last_mut() {
                    speech.ended.get_or_insert(ended);
                }
            }
            Event::UtteranceDropped => {
                if let Some(speech) = self.stages.speech.last_mut() {
                    speech.dropped = true;
                }
            }
            Event::UserItem { text, .. } => {
                let words = kept(&mut self.room, text);
                self.stages.words.extend(words);
            }
            Event::StageFailed { stage, .. } => {
                push(&mut self.stages.failures, (now, stage.clone()));
            }
            Event::ResponseDone { usage, .. } => self.stages.usage.add(*usage),
            Event::TurnRecorded(record) => self.seal(now, record),
            _ => {}
        }
    }

    fn generated(&mut self, now: Time, request: RequestId, event: &LlmEvent) {
        let has_room = self.room;
        let mut used = 0;
        if let Some(generation) = self.generation(request) {
            if event.is_output() {
                generation.first.get_or_insert(now);
            }
            match event {
                LlmEvent::Speech { text } if text.len() <= has_room => {
                    generation.words.push_str(text);
                    used = text.len();
                }
                LlmEvent::Used { usage } => generation.usage = Some(*usage),
                LlmEvent::End => generation.ended = Some(now),
                _ => {}
            }
        }
        self.room -= used;
    }

    fn failed(&mut self, now: Time, job: Job) {
        match job {
            Job::Transcription(request) => {
                if let Some(hearing) = self.hearing(request) {
                    (hearing.ended, hearing.failed) = (Some(now), true);
                }
            }
            Job::Generation(request) => {
                if let Some(generation) = self.generation(request) {
                    (generation.ended, generation.outcome) = (Some(now), Some("failed"));
                }
            }
            Job::Synthesis(clause) => {
                if let Some(clause) = self.clause(clause) {
                    (clause.ended, clause.outcome) = (Some(now), Some("failed"));
                }
            }
            Job::Detection | Job::Completeness(_) => {}
        }
    }

    fn sent(&mut self, now: Time, clause: ClauseId, until: Micros) {
        let Some(clause) = self.clause(clause) else {
            return;
        };
        clause.heard.get_or_insert(now);
        let piece = Micros(until.0.saturating_sub(clause.sent.0));
        clause.sent = until;
        // Audio is played as soon as what was sent before it has been.
        self.stages.played = self.stages.played.max(now) + piece;
    }

    /// Ends the notes on a turn. What has begun after its end stays for the next one: the user may already speak again.
    fn seal(&mut self, now: Time, record: &TurnRecord) {
        let stages = &mut self.stages;
        let decided = record.latency.end_of_turn.or(record.latency.speech_end);
        let is_heard = |began: Time, dropped: bool| match record.turn {
            None => dropped,
            Some(_) => !dropped && decided.is_some_and(|decided| began <= decided),
        };
        let is_dropped = stages.speech.last().is_some_and(|speech| speech.dropped);
        let speech: Vec<_> = stages
            .speech
            .extract_if(.., |speech| is_heard(speech.began, speech.dropped))
            .collect();
        let onset = speech.first().map(|speech| speech.began);
        let hearings = stages.hearings.extract_if(.., |hearing| match record.turn {
            None => is_dropped && onset.is_some_and(|onset| hearing.began >= onset),
            Some(_) => is_heard(hearing.began, false),
        });
        let hearings = hearings.collect();
        stages.speech.retain(|speech| !speech.dropped);
        let next = stages.speech.first().map(|speech| speech.began);
        let is_of_next = |generation: &Generation| {
            let early = next.is_some_and(|next| generation.began >= next);
            generation.ended.is_none() || early
        };
        let generations = stages
            .generations
            .extract_if(.., |generation| !is_of_next(generation));
        let generations = generations.collect();
        if !is_told(record) {
            // What failed and what was used since the last turn is told with the next one.
            return;
        }
        let of_turn = record.turn.is_some();
        let take_if = |take: bool, clauses: &mut Vec<Clause>| match take {
            true => std::mem::take(clauses),
            false => Vec::new(),
        };
        let sealed = Stages {
            speech,
            hearings,
            score: stages
                .score
                .take_if(|(at, _)| decided.is_some_and(|decided| *at <= decided)),
            generations,
            clauses: take_if(of_turn, &mut stages.clauses),
            failures: std::mem::take(&mut stages.failures),
            usage: std::mem::take(&mut stages.usage),
            words: match of_turn {
                true => std::mem::take(&mut stages.words),
                false => Vec::new(),
            },
            played: match of_turn {
                true => stages.played,
                false => Time(0),
            },
        };
        self.over.push_back((sealed, now));
        self.make_room();
    }

    fn make_room(&mut self) {
        self.room = match self.traces.has_content() {
            true => MOST_WORDS,
            false => 0,
        };
    }

    /// When a position in the user's audio was heard.
    fn time_of(&self, at: Samples, now: Time) -> Time {
        let Some((judged, end)) = self.judged else {
            return now;
        };
        let since = Micros::of_samples(end.0.saturating_sub(at.0), Samples::RATE);
        Time(judged.0.saturating_sub(since.0))
    }

    fn hearing(&mut self, request: RequestId) -> Option<&mut Hearing> {
        let mut all = self.stages.hearings.iter_mut();
        all.find(|hearing| hearing.request == request)
    }

    fn generation(&mut self, request: RequestId) -> Option<&mut Generation> {
        let mut all = self.stages.generations.iter_mut().rev();
        all.find(|generation| generation.request == request)
    }

    fn clause(&mut self, id: ClauseId) -> Option<&mut Clause> {
        let mut all = self.stages.clauses.iter_mut().rev();
        all.find(|clause| clause.clause == id)
    }
}

impl Clause {
    fn cancel(&mut self, now: Time) {
        if self.ended.is_none() {
            self.ended = Some(now);
            self.outcome = Some("cancelled");
        }
    }
}

impl Turn {
    /// When the user began to speak, or else when the turn was asked for.
    pub(super) fn began(&self) -> Time {
        let latency = &self.record.latency;
        let speech = self.stages.speech.first().map(|speech| speech.began);
        let known = [latency.speech_end, latency.end_of_turn, latency.generation];
        let runs = self.record.runs.iter().map(|run| run.started).min();
        let earliest = speech.into_iter().chain(known.into_iter().flatten()).min();
        earliest.or(runs).unwrap_or(self.ended).min(self.ended)
    }
}

/// Whether the record has anything to show: not that of a noise, for which nothing ran.
fn is_told(record: &TurnRecord) -> bool {
    record.turn.is_some() || !record.runs.is_empty() || !record.held.is_empty()
}

/// When a run ended: when its result came, or it was dropped without one.
pub(super) fn end_of(run: &crate::conversation::RunRecord) -> Option<Time> {
    match run.fate {
        Fate::Discarded { at, .. } => Some(run.finished.map_or(at, |finished| finished.min(at))),
        Fate::Committed { .. } => run.finished,
    }
}

/// Adds a stage; the oldest is left out if there are too many.
fn push<T>(stages: &mut Vec<T>, stage: T) {
    if stages.len() == MOST {
        stages.remove(0);
    }
    stages.push(stage);
}

/// The words, as long as they fit.
fn kept(room: &mut usize, words: &str) -> Option<String> {
    if words.is_empty() || words.len() > *room {
        return None;
    }
    *room -= words.len();
    Some(words.to_owned())
}
