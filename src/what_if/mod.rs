//! Estimates the outcome of a recorded session under another policy: hits, waste and latency.
//!
//! The user, the models and the tools behave as in the recording: a recorded job takes as long
//! again and has the same result. A job that was not recorded has no result. New clauses get an
//! estimated length; every other job without a result never ends, and is counted.

mod foresight;
mod turns;
mod world;

pub use foresight::Foresight;
pub use turns::{TurnChange, TurnFigures};

use crate::conversation::{
    ClauseId, Conversation, Declarations, Experience, Input, Micros, Output, Policy, Samples, Time,
    TurnRecord,
};
use crate::prediction::Prediction;
use crate::recording::{Recording, Step, replay};
use crate::session::Pacer;
use crate::stats::{Collector, Stats};
use crate::tools::Declaration;
use foresight::Source;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use turns::Turns;
use world::{Job, JobId, World};

/// How much longer than the recording a session may take under another policy.
const LONGER: Micros = Micros::from_ms(60_000);

/// The figures of a session as recorded and under the other policy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WhatIf {
    /// The line of the first recorded decision that this version does not repeat: from there on `recorded` has what this
    /// version decides. `None` if it repeats all of them.
    pub difference: Option<usize>,
    /// The figures of the recording.
    pub recorded: Stats,
    /// The figures under the other policy.
    pub changed: Stats,
    /// Tokens of the language model, as recorded and under the other policy.
    pub tokens: (u64, u64),
    /// The turns that were answered, as recorded and under the other policy.
    pub turns: Vec<TurnChange>,
    /// The parts of the estimate that are unknown.
    pub unknown: Unknown,
}

/// Jobs that the other policy starts and that have no result in the recording.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Unknown {
    /// Tool runs, which never end.
    pub runs: u32,
    /// Generations of the language model, which never answer.
    pub generations: u32,
    /// Requests to the predictors, and samples of the draft model, which predict nothing.
    pub predictions: u32,
    /// Transcripts and end-of-turn scores of audio that was not recorded as a job: the nearest
    /// stretch's are used.
    pub approximated: u32,
    /// Clauses whose length is estimated from other clauses.
    pub estimated_clauses: u32,
}

/// The reason why a recording cannot tell the outcome of a policy: samples of the draft model were not recorded. The
/// confidence of a call is its share of all samples, so a part of them would count as a draft that mostly disagrees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MissingSamples {
    /// The recorded session had no draft model.
    #[error(
        "this recording has no samples of a draft model, and the other policy asks for {asked}: remove draft.model \
         from it"
    )]
    NoDraft {
        /// The samples of the other policy.
        asked: u32,
    },
    /// The recorded session had fewer samples.
    #[error(
        "this recording has {recorded} samples of the draft model, and the other policy asks for {asked}: set \
         draft.samples to {recorded} or less"
    )]
    Fewer {
        /// The samples of the recorded policy.
        recorded: u32,
        /// The samples of the other policy.
        asked: u32,
    },
}

impl MissingSamples {
    fn check(recording: &Recording, policy: &Policy) -> Result<(), Self> {
        let samples = |policy: &Policy| policy.speculation.draft.map_or(0, |draft| draft.samples);
        match (samples(&recording.header.policy), samples(policy)) {
            (recorded, asked) if asked <= recorded => Ok(()),
            (0, asked) => Err(Self::NoDraft { asked }),
            (recorded, asked) => Err(Self::Fewer { recorded, asked }),
        }
    }
}

/// Simulates the recorded session under `policy`, with `foresight` if it is given.
///
/// # Errors
/// [`MissingSamples`] if the policy asks for more samples of the draft model than were recorded.
pub fn what_if(
    recording: &Recording,
    policy: Policy,
    foresight: Option<&Foresight>,
) -> Result<WhatIf, MissingSamples> {
    MissingSamples::check(recording, &policy)?;
    let day = recording.header.day();
    let tools = all_tools(&policy, &recording.steps);
    let source = foresight.map(|foresight| Source::new(foresight, &policy, &tools, day));
    let reads = |name: &str| {
        let tool = tools.iter().find(|tool| tool.spec.name == name);
        tool.is_some_and(|tool| !tool.effect.changes())
    };
    let stats = |turns: &Turns| {
        let mut collector = Collector::default();
        turns
            .records()
            .for_each(|turn: &TurnRecord| collector.turn(turn, reads));
        collector.finish()
    };
    let (world, recorded) = observe(recording);
    let experience = recording.header.experience.clone();
    let mut play = Play {
        source,
        ..Play::new(world, policy, experience)
    };
    play.run(&recording.steps);
    Ok(WhatIf {
        difference: replay(recording).difference.map(|first| first.line),
        recorded: stats(&recorded),
        changed: stats(&play.turns),
        tokens: (recorded.tokens(), play.turns.tokens()),
        turns: recorded.beside(&play.turns),
        unknown: play.unknown,
    })
}

/// The tools of all agents of a session, each as it was declared last.
fn all_tools(policy: &Policy, steps: &[Step]) -> Declarations {
    let later = steps.iter().filter_map(|step| match &step.input {
        Some(Input::Agent(agent)) => Some(&agent.tools),
        Some(Input::Tools { tools }) => Some(tools),
        _ => None,
    });
    let offered = std::iter::once(&policy.tools).chain(later);
    let mut all: Vec<Arc<Declaration>> = Vec::new();
    for tool in offered.flat_map(|tools| tools.iter()) {
        all.retain(|known| known.spec.name != tool.spec.name);
        all.push(tool.clone());
    }
    Arc::new(all)
}

/// Extracts the recorded jobs and the turns' records.
fn observe(recording: &Recording) -> (World, Turns) {
    let mut world = World::new(all_tools(&recording.header.policy, &recording.steps));
    let mut turns = Turns::default();
    let mut conversation = recording.header.conversation();
    let mut collect = |conversation: &mut Conversation, world: &mut World, at| {
        while let Some(output) = conversation.poll_output() {
            turns.decided(&output);
            world.asked(at, &output);
        }
    };
    collect(&mut conversation, &mut world, Time(0));
    for step in &recording.steps {
        match &step.input {
            Some(input) => {
                world.answered(step.at, input);
                conversation.handle_input(step.at, input.clone());
            }
            None => conversation.handle_timeout(step.at),
        }
        collect(&mut conversation, &mut world, step.at);
    }
    (world, turns)
}

/// A session simulated in virtual time.
struct Play {
    conversation: Conversation,
    world: World,
    now: Time,
    due: BTreeMap<(Time, u64), Input>,
    scheduled: u64,
    pacer: Pacer,
    /// Clauses whose synthesis has begun before they were to be spoken, and when.
    prepared: HashMap<String, Time>,
    turns: Turns,
    unknown: Unknown,
    /// Predicts calls from the calls before, instead of what the recording has of that.
    source: Option<Source>,
}

impl Play {
    fn new(world: World, policy: Policy, experience: Experience) -> Self {
        Self {
            conversation: Conversation::experienced(policy, experience),
            world,
            now: Time(0),
            due: BTreeMap::new(),
            scheduled: 0,
            pacer: Pacer::new(Samples::RATE),
            prepared: HashMap::new(),
            turns: Turns::default(),
            unknown: Unknown::default(),
            source: None,
        }
    }

    fn run(&mut self, steps: &[Step]) {
        for step in steps {
            if let Some(input) = step.input.clone().filter(from_outside) {
                self.schedule(step.at, input);
            }
        }
        let end = steps.last().map_or(Time(0), |step| step.at);
        self.play_until(end);
        self.now = self.now.max(end);
        self.conversation.handle_input(self.now, Input::HangUp);
        self.perform();
    }

    /// Plays until `end`. What is still under way then is played to its end: the user hangs up when the answer
    /// is over, which may be later than in the recording.
    fn play_until(&mut self, end: Time) {
        self.perform();
        loop {
            let input = self.due.keys().next().map(|(at, _)| *at);
            let frame = self.pacer.due().map(|at| at.max(self.now));
            let timer = self.conversation.poll_timeout();
            let next = [input, frame, timer].into_iter().flatten().min();
            let is_under_way = input.is_some() || frame.is_some();
            let last = if is_under_way { end + LONGER } else { end };
            let Some(at) = next.filter(|at| *at <= last) else {
                return;
            };
            self.now = self.now.max(at);
            if input == Some(at) {
                if let Some((_, input)) = self.due.pop_first() {
                    self.deliver(input);
                }
            } else if frame == Some(at) {
                self.send_frame();
            } else {
                self.conversation.handle_timeout(self.now);
            }
            self.perform();
        }
    }

    fn schedule(&mut self, at: Time, input: Input) {
        self.scheduled += 1;
        self.due.insert((at, self.scheduled), input);
    }

    fn deliver(&mut self, input: Input) {
        if let (Some(source), Input::Agent(agent)) = (&mut self.source, &input) {
            source.change_agent(&agent.briefing);
        }
        let input = match input {
            Input::Synthesised {
                clause,
                length,
                last,
                word_ends,
            } => {
                let count = length.0 * u64::from(Samples::RATE) / 1_000_000;
                let silence = vec![0; count as usize];
                let Some(length) = self.pacer.push(clause, &silence, last) else {
                    return;
                };
                Input::Synthesised {
                    clause,
                    length,
                    last,
                    word_ends,
                }
            }
            other => other,
        };
        self.conversation.handle_input(self.now, input);
    }

    fn send_frame(&mut self) {
        let Some(frame) = self.pacer.pop(self.now) else {
            return;
        };
        let clause = frame.clause;
        if frame.first {
            let until = Micros(0);
            let sent = Input::Sent { clause, until };
            self.conversation.handle_input(self.now, sent);
            self.perform();
        }
        let until = frame.until;
        let sent = Input::Sent { clause, until };
        self.conversation.handle_input(self.now, sent);
    }

    fn perform(&mut self) {
        while let Some(output) = self.conversation.poll_output() {
            self.turns.decided(&output);
            if let (Some(source), Output::Notify(event)) = (&mut self.source, &output) {
                source.observe(event, &self.world);
            }
            match &output {
                Output::Prepare { text, .. } => {
                    self.prepared.insert(text.clone(), self.now);
                }
                Output::CancelClause { clause } => self.pacer.cancel(*clause),
                Output::Flush => self.pacer.flush(self.now),
                Output::Speak {
                    clause, item, text, ..
                } => {
                    self.pacer.expect(*clause, *item, Micros(0));
                    if self.world.lacks(&output) {
                        self.estimate(*clause, text);
                    } else {
                        self.answer(&output);
                    }
                }
                asked => self.answer(asked),
            }
        }
    }

    /// Schedules the recorded answers to a job.
    fn answer(&mut self, asked: &Output) {
        let Some(id) = JobId::asked_by(asked) else {
            return;
        };
        let found = self.world.take(asked);
        self.count(asked, found.as_ref());
        let own = self.foresee(asked);
        let prepared = match asked {
            Output::Speak { text, .. } => self.prepared.remove(text),
            _ => None,
        };
        let lead = prepared.map_or(Micros(0), |since| self.now.since(since));
        let Some((job, _)) = found else { return };
        // Of fewer samples than were recorded, those that ended first.
        let most = match asked {
            Output::AskDraft { samples, .. } => *samples as usize,
            _ => usize::MAX,
        };
        for (took, input) in job.answers.iter().take(most) {
            let after = job.takes(*took, lead);
            let mut input = id.address(input.clone());
            if let (Some(own), Input::Predicted { predictions, .. }) = (&own, &mut input) {
                *predictions = foresight::beside(std::mem::take(predictions), own);
            }
            self.schedule(self.now + after, input);
        }
    }

    /// Asks the own source, which answers at once.
    fn foresee(&mut self, asked: &Output) -> Option<Vec<Prediction>> {
        let Output::Route { request, heard } = asked else {
            return None;
        };
        let own = self.source.as_ref()?.predict(heard);
        let predicted = Input::Predicted {
            request: *request,
            predictions: own.clone(),
        };
        self.schedule(self.now, predicted);
        Some(own)
    }

    /// Counts what is unknown about a job. `found` is its recorded job, and whether that is an
    /// exact match.
    fn count(&mut self, asked: &Output, found: Option<&(Job, bool)>) {
        let whole = found.is_some_and(|(job, _)| job.is_whole());
        let exact = found.is_some_and(|(_, exact)| *exact);
        let unknown = &mut self.unknown;
        match asked {
            Output::StartTool { .. } => unknown.runs += u32::from(!whole),
            Output::Generate { .. } => unknown.generations += u32::from(!whole),
            Output::Route { .. } => unknown.predictions += u32::from(!whole),
            Output::AskDraft { samples, .. } => {
                let known = found.map_or(0, |(job, _)| job.samples);
                unknown.predictions += samples.saturating_sub(known);
            }
            Output::Transcribe { .. } | Output::ScoreEndOfTurn { .. } => {
                unknown.approximated += u32::from(!exact);
            }
            _ => {}
        }
    }

    fn estimate(&mut self, clause: ClauseId, text: &str) {
        self.unknown.estimated_clauses += 1;
        let (after, length) = self.world.estimate(text);
        let made = Input::Synthesised {
            clause,
            length,
            last: true,
            word_ends: Vec::new(),
        };
        self.schedule(self.now + after, made);
    }
}

/// Whether an input comes from the user or client: not an answer to a job, not playout progress, and not the
/// end of the session.
fn from_outside(input: &Input) -> bool {
    let is_own = matches!(input, Input::Sent { .. } | Input::HangUp);
    JobId::answered_by(input).is_none() && !is_own
}
