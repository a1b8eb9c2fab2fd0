//! A conversation in virtual time: every engine answers after a fixed delay, audio is sent as the pacer would
//! send it, and nothing sleeps.

use super::super::*;
use crate::asr::Doubt;
use crate::language::Marks;
use crate::llm::{LlmEvent, Message, Prompt, TokenUsage};
use crate::prediction::{Evidence, Prediction};
use crate::recording::tape::Tape;
use crate::tools::{Effect, ToolError};
use crate::tts::Speed;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashSet, VecDeque};

/// How the language model answers one prompt.
pub(super) type Script = Vec<Step>;

#[derive(Debug, Clone)]
pub(super) enum Step {
    /// An event right after the previous one.
    Event(LlmEvent),
    /// A pause, ms.
    Wait(u64),
    /// The stream fails.
    Break,
}

pub(super) fn say(text: &str) -> Step {
    Step::Event(LlmEvent::Speech { text: text.into() })
}

pub(super) fn call(name: &str) -> [Step; 2] {
    [
        Step::Event(LlmEvent::ToolOpened { name: name.into() }),
        Step::Event(LlmEvent::ToolClosed {
            arguments: Ok(Map::new()),
        }),
    ]
}

/// A call with arguments.
pub(super) fn call_with(name: &str, arguments: Value) -> [Step; 2] {
    [
        Step::Event(LlmEvent::ToolOpened { name: name.into() }),
        Step::Event(LlmEvent::ToolClosed {
            arguments: Ok(arguments.as_object().cloned().unwrap_or_default()),
        }),
    ]
}

/// Arguments of an open call that are finished; `whole` if there are no others.
pub(super) fn read(arguments: Value, whole: bool) -> Step {
    Step::Event(LlmEvent::ToolRead {
        arguments: arguments.as_object().cloned().unwrap_or_default(),
        whole,
    })
}

/// A call in pieces: its name, after `written_ms` all its arguments, after `closed_ms` more its end.
pub(super) fn streamed(name: &str, arguments: Value, written_ms: u64, closed_ms: u64) -> Script {
    let [opened, closed] = call_with(name, arguments.clone());
    vec![
        opened,
        read(Value::Null, false),
        Step::Wait(written_ms),
        read(arguments, true),
        Step::Wait(closed_ms),
        closed,
    ]
}

/// The client's permission to run this tool early.
pub(super) fn may_run_early(name: &str) -> EarlyTool {
    EarlyTool {
        name: name.into(),
        ttl: Micros::from_ms(30_000),
    }
}

pub(super) fn end() -> Step {
    Step::Event(LlmEvent::End)
}

#[derive(Debug)]
struct Clause {
    id: ClauseId,
    made: Micros,
    sent: Micros,
    complete: bool,
}

/// A sample of the draft model: after how many ms it ends, and with which call.
pub(super) type Sample = (u64, Option<SampledCall>);

/// The tokens of a sample.
pub(super) const SAMPLED: TokenUsage = TokenUsage {
    input: 90,
    cached: 0,
    output: 10,
    reasoning: 0,
};

/// Samples that each make this call after the stated time.
pub(super) fn sampled(ms: [u64; 3], name: &str, arguments: Value) -> Vec<Sample> {
    let call = SampledCall {
        tool: name.into(),
        arguments: arguments.as_object().cloned().unwrap_or_default(),
    };
    ms.map(|ms| (ms, Some(call.clone()))).into()
}

/// Prediction sources: words to predictions.
pub(super) type Sources = Box<dyn Fn(&Evidence) -> Vec<Prediction>>;

pub(super) struct Sim {
    pub(super) core: Conversation,
    tape: Option<Tape>,
    /// Decisions that have not been carried out.
    decided: VecDeque<Output>,
    now: Time,
    audio: Samples,
    due: BTreeMap<(Time, u64), Input>,
    counter: u64,
    clauses: VecDeque<Clause>,
    /// When the audio sent so far will have been heard.
    play_clock: Time,
    /// The recogniser's transcript.
    pub(super) words: String,
    pub(super) completeness: f32,
    /// The reason why the recogniser does not trust its words.
    pub(super) doubt: Option<Doubt>,
    /// Whether another recogniser hears the pauses than the partials.
    pub(super) provisional: bool,
    pub(super) scripts: VecDeque<Script>,
    pub(super) tool_ms: u64,
    /// Results of tools that differ from the default.
    pub(super) results: BTreeMap<String, Value>,
    /// Durations of tools that differ from the default, ms.
    pub(super) tool_times: BTreeMap<String, u64>,
    /// The prediction sources.
    pub(super) router: Sources,
    /// Whether they answer before there are words.
    foresees: bool,
    /// The last question before words that they have not answered.
    unforeseen: Option<(RequestId, Evidence)>,
    /// How long they take, ms.
    pub(super) router_ms: u64,
    /// A slower source that answers the same requests again, and its delay, ms.
    pub(super) slower: Option<(Sources, u64)>,
    pub(super) heard: Vec<Evidence>,
    /// How the samples of the next questions to the draft model end.
    pub(super) drafts: VecDeque<Vec<Sample>>,
    /// Whether results name their runs, so that tests can tell them apart.
    pub(super) marked: bool,
    /// Whether the server refuses speculative runs.
    pub(super) refuses: bool,
    /// The reason for refusals.
    pub(super) refusal: Discard,
    pub(super) asr_ms: u64,
    pub(super) asr_fails: bool,
    pub(super) turn_model_fails: bool,
    pub(super) tts_fails: HashSet<String>,
    pub(super) tts_hangs: bool,
    /// How long the voice is loaded before its first clause.
    pub(super) voice_loads_ms: Option<u64>,
    /// Whether the voice takes as long as the core estimates, and begins phrases at once, which are prepared;
    /// otherwise each word takes 300 ms.
    pub(super) speaks_as_estimated: bool,
    /// Whether the voice tells when each word ends; the last one, 150 ms before its sound does.
    pub(super) tells_words: bool,
    /// Whether the client has its own voice and gets the words at once.
    pub(super) client_speaks: bool,
    pub(super) prompts: Vec<Prompt>,
    /// Whether the model's script depends on the prompt alone: on how many messages of the user and results
    /// it has. Otherwise each prompt takes the next script.
    pub(super) by_prompt: bool,
    /// Generations that were cancelled or have failed.
    pub(super) given_up: HashSet<RequestId>,
    pub(super) events: Vec<(Time, Event)>,
    pub(super) outputs: Vec<(Time, Output)>,
    pub(super) tools_started: Vec<String>,
    /// When audio was sent, and of which clause.
    pub(super) sent: Vec<(Time, ClauseId)>,
    pub(super) hung_up: Option<HangUpReason>,
}

impl Sim {
    /// A session that is recorded if the variable `RECORD_TO` names a folder.
    pub(super) fn new(policy: Policy) -> Self {
        let tape = Tape::of_this_test(&policy);
        Self::with_tape(policy, tape)
    }

    /// A session that is always recorded.
    pub(super) fn recorded(policy: Policy, name: String) -> Self {
        let tape = Tape::start(&policy, name);
        Self::with_tape(policy, Some(tape))
    }

    /// A session that begins with the experience of others.
    pub(super) fn experienced(policy: Policy, experience: Experience) -> Self {
        let core = Conversation::experienced(policy, experience);
        Self::of(core, None)
    }

    fn with_tape(policy: Policy, tape: Option<Tape>) -> Self {
        Self::of(Conversation::new(policy), tape)
    }

    fn of(core: Conversation, tape: Option<Tape>) -> Self {
        let mut sim = Self {
            core,
            tape,
            decided: VecDeque::new(),
            now: Time(0),
            audio: Samples(0),
            due: BTreeMap::new(),
            counter: 0,
            clauses: VecDeque::new(),
            play_clock: Time(0),
            words: "what time is it".into(),
            completeness: 0.9,
            doubt: None,
            provisional: false,
            scripts: VecDeque::new(),
            tool_ms: 0,
            router: Box::new(|_| Vec::new()),
            foresees: false,
            unforeseen: None,
            router_ms: 10,
            slower: None,
            results: BTreeMap::new(),
            tool_times: BTreeMap::new(),
            heard: Vec::new(),
            drafts: VecDeque::new(),
            marked: false,
            refuses: false,
            refusal: Discard::Budget,
            asr_ms: 70,
            asr_fails: false,
            turn_model_fails: false,
            tts_fails: HashSet::new(),
            tts_hangs: false,
            voice_loads_ms: None,
            speaks_as_estimated: false,
            tells_words: false,
            client_speaks: false,
            prompts: Vec::new(),
            by_prompt: false,
            given_up: HashSet::new(),
            events: Vec::new(),
            outputs: Vec::new(),
            tools_started: Vec::new(),
            sent: Vec::new(),
            hung_up: None,
        };
        sim.collect();
        sim.drain();
        sim
    }

    /// Feeds one input, or a timeout, and takes its decisions at once, so that each follows its cause in the
    /// recording.
    fn feed(&mut self, input: Option<Input>) {
        if let Some(Input::Failed {
            job: Job::Generation(request),
            ..
        }) = &input
        {
            self.given_up.insert(*request);
        }
        if let Some(tape) = &mut self.tape {
            tape.step(self.now, input.clone());
        }
        match input {
            Some(input) => self.core.handle_input(self.now, input),
            None => self.core.handle_timeout(self.now),
        }
        self.collect();
    }

    fn collect(&mut self) {
        while let Some(output) = self.core.poll_output() {
            if let Some(tape) = &mut self.tape {
                tape.output(output.clone());
            }
            self.decided.push_back(output);
        }
    }

    /// The recording so far; empty if there is none.
    pub(super) fn recording(&self) -> &str {
        self.tape.as_ref().map_or("", Tape::text)
    }

    /// From now on the prediction sources answer before there are words, too.
    pub(super) fn foresee(&mut self) {
        self.foresees = true;
        if let Some((request, heard)) = self.unforeseen.take() {
            self.predict(request, heard);
        }
    }

    fn predict(&mut self, request: RequestId, heard: Evidence) {
        if let Some((slower, ms)) = &self.slower {
            let (ms, predictions) = (*ms, slower(&heard));
            let again = Input::Predicted {
                request,
                predictions,
            };
            self.later(ms, again);
        }
        let predictions = (self.router)(&heard);
        self.heard.push(heard);
        self.later(
            self.router_ms,
            Input::Predicted {
                request,
                predictions,
            },
        );
    }

    /// The policy, to be changed in mid-session. A recording cannot represent that, so none is made.
    pub(super) fn policy(&mut self) -> &mut Policy {
        if let Some(tape) = self.tape.take() {
            tape.discard();
        }
        &mut self.core.common.policy
    }

    pub(super) fn now(&self) -> Time {
        self.now
    }

    /// End of the user's audio so far.
    pub(super) fn audio(&self) -> Samples {
        self.audio
    }

    /// The user speaks for `ms`; the transcript so far is `words`.
    pub(super) fn speak(&mut self, words: &str, ms: u64) {
        self.words = words.into();
        self.windows(ms, 0.95);
    }

    /// The voice is quiet for `ms`, and the detector takes it for speech.
    pub(super) fn fade(&mut self, ms: u64) {
        self.windows_at(ms, 0.9, -60);
    }

    pub(super) fn silence(&mut self, ms: u64) {
        self.windows_at(ms, 0.02, -60);
    }

    pub(super) fn input(&mut self, input: Input) {
        self.feed(Some(input));
        self.drain();
    }

    /// The client sends no audio for `ms`.
    pub(super) fn no_audio(&mut self, ms: u64) {
        self.advance(self.now + Micros::from_ms(ms));
    }

    /// Turns barge-in off. `respond`: whether turns are answered without a request.
    pub(super) fn uninterruptible(&mut self, respond: bool) {
        self.input(Input::Configure(Box::new(Settings {
            turn_detection: Some(TurnDetection {
                interrupt: false,
                respond,
                ..TurnDetection::default()
            }),
            ..Settings::default()
        })));
    }

    /// The client declares tools with these names.
    pub(super) fn client_has(&mut self, names: &[&str]) {
        self.client_lends(names, &[]);
    }

    /// The client declares tools with these names, and that the `early` ones may run early.
    pub(super) fn client_lends(&mut self, names: &[&str], early: &[&str]) {
        let declared = |name: &&str| super::tool(name, Effect::Read).spec.clone();
        self.input(Input::Configure(Box::new(Settings {
            tools: Some(names.iter().map(declared).collect()),
            early: early.iter().map(|name| may_run_early(name)).collect(),
            ..Settings::default()
        })));
    }

    pub(super) fn windows(&mut self, ms: u64, probability: f32) {
        self.windows_at(ms, probability, -20);
    }

    fn windows_at(&mut self, ms: u64, probability: f32, level: i16) {
        for _ in 0..ms.div_ceil(32) {
            self.advance(Time(self.now.0 + 32_000));
            self.audio = Samples(self.audio.0 + 512);
            self.input(Input::Vad {
                end: self.audio,
                probability,
                level,
            });
        }
    }

    /// Runs everything that is due up to `until`.
    fn advance(&mut self, until: Time) {
        loop {
            let job = self.due.keys().next().map(|(at, _)| *at);
            let timer = self.core.poll_timeout();
            let frame = self.next_frame();
            let next = [job, timer, frame].into_iter().flatten().min();
            let Some(at) = next.filter(|at| *at <= until) else {
                break;
            };
            self.now = self.now.max(at);
            if job == Some(at) {
                let key = *self.due.keys().next().unwrap();
                let input = self.due.remove(&key).unwrap();
                self.deliver(input);
            } else if frame == Some(at) {
                self.send_frame();
            } else {
                self.feed(None);
                assert!(
                    self.core.poll_timeout().is_none_or(|t| t > self.now),
                    "a drained machine's timeout lies in the future"
                );
            }
            self.drain();
        }
        self.now = until;
    }

    fn deliver(&mut self, input: Input) {
        if let Input::Synthesised {
            clause,
            length,
            last,
            ..
        } = &input
        {
            let Some(known) = self.clauses.iter_mut().find(|c| c.id == *clause) else {
                return;
            };
            known.made = known.made + *length;
            known.complete |= last;
        }
        self.feed(Some(input));
    }

    fn next_frame(&self) -> Option<Time> {
        let clause = self.clauses.front()?;
        (clause.sent < clause.made)
            .then(|| Time((self.play_clock.0 + 1).saturating_sub(200_000)).max(self.now))
    }

    fn send_frame(&mut self) {
        let now = self.now;
        let Some(clause) = self.clauses.front_mut() else {
            return;
        };
        let id = clause.id;
        let first = clause.sent.0 == 0;
        let until = Micros((clause.sent.0 + 20_000).min(clause.made.0));
        clause.sent = until;
        if clause.complete && clause.sent >= clause.made {
            self.clauses.pop_front();
        }
        self.play_clock = self.play_clock.max(now) + Micros::from_ms(20);
        self.sent.push((now, id));
        if first {
            let until = Micros(0);
            self.feed(Some(Input::Sent { clause: id, until }));
        }
        self.feed(Some(Input::Sent { clause: id, until }));
    }

    fn later(&mut self, ms: u64, input: Input) {
        self.counter += 1;
        self.due
            .insert((self.now + Micros::from_ms(ms), self.counter), input);
    }

    fn drain(&mut self) {
        while let Some(output) = self.decided.pop_front() {
            self.outputs.push((self.now, output.clone()));
            match output {
                Output::Transcribe { request, .. } if self.asr_fails => {
                    let job = Job::Transcription(request);
                    self.later(
                        self.asr_ms,
                        Input::Failed {
                            job,
                            reason: "scripted".into(),
                        },
                    );
                }
                Output::Transcribe {
                    request, partial, ..
                } => {
                    let text = self.words.clone();
                    let (ends, goes_on) = match self.completeness {
                        done if done > 0.8 => (0.99, 0.001),
                        done if done < 0.2 => (0.05, 0.4),
                        _ => (0.8, 0.02),
                    };
                    let marks = Some(Marks { ends, goes_on });
                    let heard = Input::Transcript {
                        request,
                        text,
                        marks,
                        doubt: self.doubt.clone(),
                        provisional: partial && self.provisional,
                    };
                    self.later(self.asr_ms, heard);
                }
                Output::ScoreEndOfTurn { request, .. } if self.turn_model_fails => {
                    let job = Job::Completeness(request);
                    let reason = "scripted".into();
                    self.later(40, Input::Failed { job, reason });
                }
                Output::ScoreEndOfTurn { request, .. } => {
                    let probability = self.completeness;
                    self.later(
                        40,
                        Input::Completeness {
                            request,
                            probability,
                        },
                    );
                }
                Output::Generate {
                    request, prompt, ..
                } => self.generate(request, prompt),
                Output::Route { request, heard }
                    if heard.moment.is_before_words() && !self.foresees =>
                {
                    self.unforeseen = Some((request, heard));
                }
                Output::Route { request, heard } => self.predict(request, heard),
                Output::StartTool {
                    run,
                    committed: None,
                    ..
                } if self.refuses => {
                    let reason = self.refusal;
                    self.later(0, Input::RunRefused { run, reason });
                }
                Output::StartTool {
                    run,
                    name,
                    mut arguments,
                    taken,
                    ..
                } => {
                    arguments.extend(taken);
                    self.tools_started.push(name.clone());
                    let result = match name.as_str() {
                        "broken" | "broken_pass" => {
                            Err(ToolError::Broken("10.0.0.7: connection refused".into()))
                        }
                        "failing" => Err(ToolError::Failed("there is no such city".into())),
                        "strict" => Err(ToolError::Arguments("n is not a city".into())),
                        "gone" => Err(ToolError::Unknown(name.clone())),
                        "late" => Err(ToolError::Timeout(10_000)),
                        "unreached" => Err(ToolError::NotBegun("connection refused".into())),
                        "lost" => Err(ToolError::Uncertain("connection reset".into())),
                        "unanswered" => Err(ToolError::Unanswered(10_000)),
                        _ if self.results.contains_key(&name) => Ok(self.results[&name].clone()),
                        _ if self.marked => Ok(Value::from(format!("result of {run}."))),
                        _ => Ok(Value::from(format!(
                            "{name} of {}",
                            Value::Object(arguments)
                        ))),
                    };
                    let ms = self.tool_times.get(&name).copied();
                    self.later(
                        ms.unwrap_or(self.tool_ms),
                        Input::ToolFinished { run, result },
                    );
                }
                Output::AskDraft {
                    request, samples, ..
                } => {
                    let mut ends = self.drafts.pop_front().unwrap_or_default().into_iter();
                    for _ in 0..samples {
                        let (ms, call) = ends.next().unwrap_or((50, None));
                        let usage = SAMPLED;
                        let ended = Input::Drafted {
                            request,
                            call,
                            usage,
                        };
                        self.later(ms, ended);
                    }
                }
                // Here aborted tools and stopped samples keep running: their results must be ignored.
                Output::AbortTool { .. }
                | Output::StopDraft { .. }
                | Output::WarmUp { .. }
                | Output::Prepare { .. }
                | Output::GiveResult { .. } => {}
                Output::Speak { clause, text, .. } if self.client_speaks => {
                    self.hand_over(clause, &text);
                }
                Output::Speak {
                    clause,
                    text,
                    speaker,
                    ..
                } => self.synthesise(clause, &text, speaker.speed()),
                Output::CancelClause { clause } => self.clauses.retain(|c| c.id != clause),
                Output::Flush => {
                    self.clauses.clear();
                    self.play_clock = self.play_clock.min(self.now);
                }
                Output::Notify(event) => self.events.push((self.now, event)),
                Output::HangUp { reason } => self.hung_up = Some(reason),
                Output::CancelGeneration { request } => {
                    self.given_up.insert(request);
                }
            }
        }
    }

    /// Cancelled generations keep streaming here: their events must be ignored.
    fn generate(&mut self, request: RequestId, prompt: Prompt) {
        let counts = |message: &&Message| {
            matches!(message, Message::User { .. } | Message::ToolResult { .. })
        };
        let script = match self.by_prompt {
            true => {
                let nth = prompt.messages.iter().filter(counts).count();
                self.scripts.get(nth.saturating_sub(1)).cloned()
            }
            false => self.scripts.pop_front(),
        };
        let script = script.unwrap_or_else(|| vec![say("All right."), end()]);
        self.prompts.push(prompt);
        let mut at = 20;
        for step in script {
            match step {
                Step::Event(event) => self.later(at, Input::Llm { request, event }),
                Step::Wait(ms) => at += ms,
                Step::Break => {
                    let job = Job::Generation(request);
                    self.later(
                        at,
                        Input::Failed {
                            job,
                            reason: "scripted".into(),
                        },
                    );
                }
            }
        }
    }

    /// Gives the words to the client's voice, at an estimated 300 ms a word.
    fn hand_over(&mut self, clause: ClauseId, text: &str) {
        let length = Micros::from_ms(300 * text.split_whitespace().count() as u64);
        self.sent.push((self.now, clause));
        for input in [
            Input::Synthesised {
                clause,
                length,
                last: true,
                word_ends: Vec::new(),
            },
            Input::Sent {
                clause,
                until: Micros(0),
            },
            Input::Sent {
                clause,
                until: length,
            },
        ] {
            self.feed(Some(input));
        }
    }

    /// Synthesises a clause at 300 ms a word, in one piece after 60 ms.
    fn synthesise(&mut self, clause: ClauseId, text: &str, speed: Speed) {
        if self.tts_hangs {
            return;
        }
        if self.tts_fails.contains(text) {
            let job = Job::Synthesis(clause);
            return self.later(
                60,
                Input::Failed {
                    job,
                    reason: "scripted".into(),
                },
            );
        }
        self.clauses.push_back(Clause {
            id: clause,
            made: Micros(0),
            sent: Micros(0),
            complete: false,
        });
        let usual = match self.speaks_as_estimated {
            true => spoken_length(text),
            false => Micros::from_ms(300 * text.split_whitespace().count() as u64),
        };
        let length = speed.lasts(usual);
        let phrases = &Policy::default().phrases;
        let is_prepared = [
            &phrases.still_working,
            &phrases.moment_more,
            &phrases.one_moment,
        ]
        .iter()
        .any(|phrase| phrase.contains(text));
        let mut takes = match self.speaks_as_estimated && is_prepared {
            true => 1,
            false => 60,
        };
        if let Some(loads) = self.voice_loads_ms.take() {
            self.later(0, Input::VoiceLoads { clause });
            takes += loads;
        }
        let words = text.split_whitespace().count() as u64;
        let end = |word| Micros::from_ms(300 * word - 150);
        let word_ends = match self.tells_words {
            true => (1..=words).map(end).collect(),
            false => Vec::new(),
        };
        self.later(
            takes,
            Input::Synthesised {
                clause,
                length,
                last: true,
                word_ends,
            },
        );
    }

    /// The agent's words as announced to the client, clause by clause.
    pub(super) fn spoken(&self) -> Vec<String> {
        self.events
            .iter()
            .filter_map(|(_, event)| match event {
                Event::AgentSpeech { text, .. } => Some(text.clone()),
                _ => None,
            })
            .collect()
    }

    /// The report of a client that it has heard `ms` of the agent's last item.
    pub(super) fn heard_of_the_last_item(&self, ms: u64) -> Option<HeardUpTo> {
        let item = self
            .events
            .iter()
            .rev()
            .find_map(|(_, event)| match event {
                Event::AgentItemStarted { item } => Some(*item),
                _ => None,
            })?;
        let until = Micros::from_ms(ms);
        Some(HeardUpTo { item, until })
    }

    /// The records of the turns so far.
    pub(super) fn records(&self) -> Vec<TurnRecord> {
        self.events
            .iter()
            .filter_map(|(_, event)| match event {
                Event::TurnRecorded(record) => Some((**record).clone()),
                _ => None,
            })
            .collect()
    }

    /// The started runs: whether each was committed at its start, and its tool.
    pub(super) fn started(&self) -> Vec<(bool, String)> {
        self.outputs
            .iter()
            .filter_map(|(_, output)| match output {
                Output::StartTool {
                    committed, name, ..
                } => Some((committed.is_some(), name.clone())),
                _ => None,
            })
            .collect()
    }

    /// The statuses of finished responses.
    pub(super) fn ended(&self) -> Vec<ResponseStatus> {
        self.events
            .iter()
            .filter_map(|(_, event)| match event {
                Event::ResponseDone { status, .. } => Some(*status),
                _ => None,
            })
            .collect()
    }

    /// The stamps of the last finished response.
    pub(super) fn latency(&self) -> TurnLatency {
        self.events
            .iter()
            .rev()
            .find_map(|(_, event)| match event {
                Event::ResponseDone { latency, .. } => Some(**latency),
                _ => None,
            })
            .expect("a response ended")
    }

    pub(super) fn saw(&self, wanted: impl Fn(&Event) -> bool) -> bool {
        self.events.iter().any(|(_, event)| wanted(event))
    }
}
