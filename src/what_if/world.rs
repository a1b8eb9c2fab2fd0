//! The recorded jobs of models and tools: their durations and results.

use crate::conversation::{
    ClauseId, Input, Job as Failing, Micros, Output, RequestId, RunId, Time, spoken_length,
};
use crate::llm::{LlmEvent, Message, Prompt};
use crate::tools::{Declaration, canonical};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::sync::Arc;

/// The assumed time until the first audio of a clause whose synthesis was not recorded.
const SYNTHESIS: Micros = Micros::from_ms(100);

/// Identifies a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum JobId {
    Request(RequestId),
    Run(RunId),
    Clause(ClauseId),
}

impl JobId {
    /// The job that a decision starts.
    pub(super) fn asked_by(output: &Output) -> Option<Self> {
        match output {
            Output::Transcribe { request, .. }
            | Output::ScoreEndOfTurn { request, .. }
            | Output::Generate { request, .. }
            | Output::AskDraft { request, .. }
            | Output::Route { request, .. } => Some(Self::Request(*request)),
            Output::StartTool { run, .. } => Some(Self::Run(*run)),
            Output::Speak { clause, .. } => Some(Self::Clause(*clause)),
            _ => None,
        }
    }

    /// The job that an input answers.
    pub(super) fn answered_by(input: &Input) -> Option<Self> {
        match input {
            Input::Transcript { request, .. }
            | Input::Completeness { request, .. }
            | Input::Llm { request, .. }
            | Input::Drafted { request, .. }
            | Input::Predicted { request, .. } => Some(Self::Request(*request)),
            Input::RunRefused { run, .. } | Input::ToolFinished { run, .. } => {
                Some(Self::Run(*run))
            }
            Input::Synthesised { clause, .. } => Some(Self::Clause(*clause)),
            Input::Failed { job, .. } => match job {
                Failing::Detection => None,
                Failing::Transcription(request)
                | Failing::Completeness(request)
                | Failing::Generation(request) => Some(Self::Request(*request)),
                Failing::Synthesis(clause) => Some(Self::Clause(*clause)),
            },
            _ => None,
        }
    }

    /// Readdresses the answer to a job of the same kind to this job.
    pub(super) fn address(self, mut answer: Input) -> Input {
        match (self, &mut answer) {
            (
                Self::Request(id),
                Input::Transcript { request, .. }
                | Input::Completeness { request, .. }
                | Input::Llm { request, .. }
                | Input::Drafted { request, .. }
                | Input::Predicted { request, .. }
                | Input::Failed {
                    job:
                        Failing::Transcription(request)
                        | Failing::Completeness(request)
                        | Failing::Generation(request),
                    ..
                },
            ) => *request = id,
            (Self::Run(id), Input::RunRefused { run, .. } | Input::ToolFinished { run, .. }) => {
                *run = id;
            }
            (
                Self::Clause(id),
                Input::Synthesised { clause, .. }
                | Input::Failed {
                    job: Failing::Synthesis(clause),
                    ..
                },
            ) => *clause = id,
            _ => {}
        }
        answer
    }
}

/// One recorded job.
#[derive(Debug, Clone)]
pub(super) struct Job {
    asked: Time,
    /// How long before that the work on it began, for a prepared clause.
    lead: Micros,
    used: bool,
    /// The samples of a draft.
    pub(super) samples: u32,
    /// The answers, each with its delay after the request.
    pub(super) answers: Vec<(Micros, Input)>,
}

impl Job {
    /// How long after the request an answer comes that came after `took`, if the work begins `lead` before the
    /// request.
    pub(super) fn takes(&self, took: Micros, lead: Micros) -> Micros {
        let sooner = lead.0.saturating_sub(self.lead.0);
        let later = self.lead.0.saturating_sub(lead.0);
        // A prepared clause may have been ready for long.
        let most = SYNTHESIS.0.saturating_sub(took.0);
        Micros(took.0.saturating_sub(sooner) + later.min(most))
    }

    /// Whether it completed or failed.
    pub(super) fn is_whole(&self) -> bool {
        self.answers.last().is_some_and(|(_, answer)| match answer {
            Input::Llm { event, .. } => *event == LlmEvent::End,
            Input::Synthesised { last, .. } => *last,
            Input::RunRefused { .. } => false,
            _ => true,
        })
    }
}

/// All jobs of a recording, by request.
#[derive(Debug)]
pub(super) struct World {
    tools: Arc<Vec<Arc<Declaration>>>,
    jobs: HashMap<String, Vec<Job>>,
    open: HashMap<JobId, (String, usize)>,
    /// Stretches of audio: kind, first sample, one past the last, and the key of the job.
    stretches: Vec<(&'static str, u64, u64, String)>,
    /// Characters spoken, and the duration of their audio.
    spoken: (u64, Micros),
    /// Clauses whose synthesis began before they were to be spoken, and when.
    prepared: HashMap<String, Time>,
}

impl World {
    pub(super) fn new(tools: Arc<Vec<Arc<Declaration>>>) -> Self {
        Self {
            tools,
            jobs: HashMap::new(),
            open: HashMap::new(),
            stretches: Vec::new(),
            spoken: (0, Micros(0)),
            prepared: HashMap::new(),
        }
    }

    /// Adds a recorded decision.
    pub(super) fn asked(&mut self, at: Time, output: &Output) {
        if let Output::Prepare { text, .. } = output {
            self.prepared.insert(text.clone(), at);
        }
        let (Some(id), Some(key)) = (JobId::asked_by(output), self.key(output)) else {
            return;
        };
        if let Some((kind, from, to)) = stretch(output) {
            self.stretches.push((kind, from, to, key.clone()));
        }
        let mut lead = Micros(0);
        if let Output::Speak { text, .. } = output {
            self.spoken.0 += text.chars().count() as u64;
            lead = at.since(self.prepared.remove(text).unwrap_or(at));
        }
        let jobs = self.jobs.entry(key.clone()).or_default();
        self.open.insert(id, (key, jobs.len()));
        jobs.push(Job {
            asked: at,
            lead,
            used: false,
            samples: match output {
                Output::AskDraft { samples, .. } => *samples,
                _ => 0,
            },
            answers: Vec::new(),
        });
    }

    /// Adds a recorded input.
    pub(super) fn answered(&mut self, at: Time, input: &Input) {
        let open = JobId::answered_by(input).and_then(|id| self.open.get(&id));
        let job = open.and_then(|(key, index)| self.jobs.get_mut(key)?.get_mut(*index));
        let Some(job) = job else { return };
        if let Input::Synthesised { length, .. } = input {
            self.spoken.1 = self.spoken.1 + *length;
        }
        job.answers.push((at.since(job.asked), input.clone()));
    }

    /// Takes the recorded job for a request, and returns whether it matches exactly. Jobs for equal
    /// requests are each taken once while there are unused ones, completed ones first. For audio
    /// without an exact match, takes the nearest stretch.
    pub(super) fn take(&mut self, output: &Output) -> Option<(Job, bool)> {
        let key = self.key(output)?;
        if let Some(job) = self.take_job(&key) {
            return Some((job, true));
        }
        let (kind, from, to) = stretch(output)?;
        let distance = |(_, a, b, _): &&(&str, u64, u64, String)| a.abs_diff(from) + b.abs_diff(to);
        let alike = self.stretches.iter().filter(|known| {
            known.0 == kind
                && self
                    .jobs
                    .get(&known.3)
                    .is_some_and(|j| j.iter().any(Job::is_whole))
        });
        let nearest = alike.min_by_key(distance)?.3.clone();
        Some((self.take_job(&nearest)?, false))
    }

    fn take_job(&mut self, key: &str) -> Option<Job> {
        let jobs = self.jobs.get_mut(key)?;
        let index = jobs
            .iter()
            .position(|job| !job.used && job.is_whole())
            .or_else(|| jobs.iter().rposition(Job::is_whole))
            .or_else(|| jobs.iter().position(|job| !job.answers.is_empty()))?;
        jobs[index].used = true;
        Some(jobs[index].clone())
    }

    /// Whether there is no completed job for this request.
    pub(super) fn lacks(&self, output: &Output) -> bool {
        let jobs = self.key(output).and_then(|key| self.jobs.get(&key));
        !jobs.is_some_and(|jobs| jobs.iter().any(Job::is_whole))
    }

    /// The estimated synthesis time and length of a clause, from the recorded clauses.
    pub(super) fn estimate(&self, text: &str) -> (Micros, Micros) {
        let length = match self.spoken {
            (0, _) | (_, Micros(0)) => spoken_length(text),
            (spoken, took) => Micros(text.chars().count() as u64 * took.0 / spoken),
        };
        (SYNTHESIS, length)
    }

    /// A key for the request, without ids that differ between sessions.
    fn key(&self, output: &Output) -> Option<String> {
        let asked = match output {
            Output::Generate { prompt, .. } => json!(["generate", nameless(prompt.clone())]),
            Output::AskDraft { prompt, .. } => json!(["draft", nameless(prompt.clone())]),
            Output::Route { heard, .. } => json!(["route", heard]),
            Output::StartTool {
                name, arguments, ..
            } => json!(["run", name, self.canonical(name, arguments)]),
            Output::Speak { text, .. } => json!(["speak", text]),
            audio => json!(stretch(audio)?),
        };
        Some(asked.to_string())
    }

    pub(super) fn canonical(
        &self,
        name: &str,
        arguments: &Map<String, Value>,
    ) -> Map<String, Value> {
        let tool = self.tools.iter().find(|tool| tool.spec.name == name);
        tool.map_or_else(|| arguments.clone(), |tool| canonical(tool, arguments))
    }
}

fn stretch(output: &Output) -> Option<(&'static str, u64, u64)> {
    match output {
        Output::Transcribe {
            from,
            to,
            partial: true,
            ..
        } => Some(("partial", from.0, to.0)),
        Output::Transcribe { from, to, .. } => Some(("transcript", from.0, to.0)),
        Output::ScoreEndOfTurn { from, to, .. } => Some(("score", from.0, to.0)),
        _ => None,
    }
}

/// The prompt without the ids of calls, and without the fillers before them and their results: other rules may leave a
/// filler unsaid, or say it elsewhere.
fn nameless(mut prompt: Prompt) -> Prompt {
    let calls = |message: Option<&Message>| {
        let Some(message) = message else { return false };
        matches!(
            message,
            Message::ToolCall { .. } | Message::ToolResult { .. }
        )
    };
    let says = |message: &Message| matches!(message, Message::Agent { .. });
    let messages = prompt.messages.iter().enumerate();
    let kept =
        messages.filter(|(at, message)| !(says(message) && calls(prompt.messages.get(at + 1))));
    prompt.messages = kept.map(|(_, message)| message.clone()).collect();
    for message in &mut prompt.messages {
        if let Message::ToolCall { id, .. } | Message::ToolResult { id, .. } = message {
            id.clear();
        }
    }
    prompt
}
