//! The loop that drives one conversation: carries out its decisions and feeds it inputs.

mod handoff;
mod hearing;
mod keys;
mod speaking;
mod work;

use super::agents::{Agent, came_by};
use super::ahead::{Ahead, Part};
use super::budget::{BudgetMemory, BudgetStore};
use super::call_audio::CallRecorder;
use super::detectors::{Judged, VadJob};
use super::drafts::{Drafts, Sampled};
use super::engines::Engines;
use super::items::Unheard;
use super::notes::warn_of_unsaid;
use super::offer::Offer;
use super::options::{SessionOptions, SpokenBy};
use super::pacer::Pacer;
use super::recognisers::Recogniser;
use super::recorder::{Recorded, Subject};
use super::routing::{Answer, Routing};
use super::source::{Report, Setback};
use super::voices::Voice;
use super::{Inbound, Outbound};
use crate::audio::to_f32;
use crate::conversation::{
    ClauseId, Event, Experience, HangUpReason, Input, Job, Micros, Output, RequestId, RunId,
    Settings, Shed, Time, spoken_length,
};
use crate::llm::Llm;
use crate::metrics::OpenSession;
use crate::report::{About, CallReport};
use crate::tools::{Registry, SessionTools, SystemClock};
use crate::traces;
use crate::tts::Speaker;
use hearing::{AudioInput, turns_to};
use keys::Keypad;
use speaking::{Clause, Synthesis};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The most results of jobs that may wait for the session. It takes them within microseconds; a full queue
/// means that the session hangs, and the results are lost with it.
const RESULTS: usize = 1_024;

/// The result of a job.
pub(super) enum Done {
    /// An input for the conversation.
    Input(Box<Input>),
    /// The user's words, and their language if it was detected.
    Heard(Option<String>, Box<Input>),
    /// The notes on the caller for an agent.
    Notes { agent: String, notes: Vec<String> },
    /// A source of predictions has answered.
    Predicted(Answer),
    /// A sample of the draft model has ended.
    Drafted(Box<Sampled>),
    /// Windows were judged.
    Judged(Judged),
    /// Windows could not be judged.
    VadFailed(String),
    /// A part of what the voice is synthesising.
    Spoken(Synthesis, Part),
    /// A speech service failed, and the local engine goes on.
    Setback(Setback),
}

/// One running session.
pub(super) struct Driver {
    id: u64,
    engines: Arc<Engines>,
    conversation: Recorded,
    began: Instant,
    audio_in: AudioInput,
    pacer: Pacer,
    options: SessionOptions,
    /// The agent that speaks, or is about to.
    agent: Arc<Agent>,
    offer: Offer,
    /// The queue to the task that transcribes clients' audio items; started with the first item since the recogniser was
    /// opened.
    unheard: Option<mpsc::Sender<Unheard>>,
    /// Resolves at the end of the last such task.
    transcribed: Option<oneshot::Receiver<()>>,
    recogniser: Recogniser,
    /// The client has not named its language.
    detects: bool,
    voices: HashMap<Speaker, Voice>,
    /// Whether the voice has failed and produced no audio since.
    voice_failed: bool,
    clauses: HashMap<ClauseId, Clause>,
    ahead: Ahead,
    /// Running generations, and the models that make them.
    generations: HashMap<RequestId, (AbortHandle, Arc<dyn Llm>)>,
    runs: HashMap<RunId, AbortHandle>,
    tasks: JoinSet<()>,
    routing: Routing,
    drafts: Drafts,
    budget: Arc<dyn BudgetStore>,
    tools: SessionTools,
    /// `None` in a session that is not a telephone call.
    keypad: Option<Box<Keypad>>,
    /// The prefix of its idempotency keys.
    key: uuid::Uuid,
    outbound: mpsc::Sender<Outbound>,
    results: mpsc::Sender<Done>,
    /// Cancels the session's jobs on the model threads when the session ends.
    cancel: CancellationToken,
    /// When the verdict or words that are being acted upon came in. If the agent falls silent now, the user
    /// caused it.
    speech_found: Option<Time>,
    /// The optional work that the conversation was told to leave undone.
    shed: Shed,
    /// The recorder of the call's audio, if calls are recorded.
    sound: Option<Box<CallRecorder>>,
    /// The report for the operator's webhook, if there is one.
    report: Option<Box<CallReport>>,
    /// The reason for the conversation's end; `None` if the client has gone.
    hung_up: Option<HangUpReason>,
    _open: OpenSession,
}

/// The reason for the end of the loop.
enum LoopEnd {
    /// The conversation hung up, or the client is gone.
    Over,
    /// The client does not take what we send.
    Stuck,
}

impl Driver {
    #[allow(
        clippy::disallowed_methods,
        reason = "the edge: a session's time begins here"
    )]
    pub(super) fn new(
        (id, key): (u64, uuid::Uuid),
        engines: Arc<Engines>,
        agent: Arc<Agent>,
        options: &SessionOptions,
        outbound: mpsc::Sender<Outbound>,
    ) -> (Self, Results) {
        let (results, incoming) = mpsc::channel(RESULTS);
        let (offer, tools) = Offer::open(&engines.tools, options, agent.clone());
        let policy = engines.policy_of(&agent, options, tools);
        warn_of_unsaid(agent.greeting(options.profile), &options.values);
        let (experience, budget): (_, Arc<dyn BudgetStore>) = match options.begins_anew {
            true => (Experience::default(), Arc::new(BudgetMemory::default())),
            false => (engines.experience.of(&policy), engines.budget.clone()),
        };
        let calls = engines.observers.calls_of(&agent.name, options);
        let caller = options.other_party();
        let sound =
            calls.and_then(|calls| calls.begin(&key.to_string(), caller, options.output_rate));
        let sound = sound.map(Box::new);
        let tools_of_call = SessionTools::of_call(
            engines.zone.clone(),
            Arc::new(SystemClock),
            options.call.clone(),
            options.values.clone(),
        );
        let keypad = Keypad::of(options, &tools_of_call);
        let webhook = engines.observers.webhook.as_ref();
        let report = webhook.filter(|webhook| webhook.is_on()).map(|_| {
            Box::new(CallReport::new(About {
                id: key.to_string(),
                agent: policy.briefing.agent.clone(),
                session: options.values.all(),
                began: jiff::Timestamp::now(),
            }))
        });
        let watch = engines.observers.traces.as_ref().and_then(|collector| {
            let subject = traces::Subject::new(
                collector.sampler(),
                key,
                options.parent,
                policy.briefing.agent.clone(),
                came_by(&options.values),
                nanos(jiff::Timestamp::now()),
            );
            Some(traces::Watch::new(collector.clone(), subject?))
        });
        let driver = Self {
            id,
            conversation: Recorded::new(
                policy,
                experience,
                engines.observers.recordings.as_ref(),
                Subject {
                    number: id,
                    session: Some(key.to_string()),
                    caller: caller.map(str::to_owned),
                },
                watch,
            ),
            began: Instant::now(),
            audio_in: AudioInput::of(options),
            pacer: Pacer::new(options.output_rate),
            recogniser: engines.recogniser_of(
                &agent,
                options,
                options.speaker.language.is_none(),
                report_to(&results),
                Some(turns_to(&results)),
            ),
            detects: options.speaker.language.is_none(),
            options: options.clone(),
            routing: Routing::new(
                engines.predictors.clone(),
                key,
                &agent.name,
                came_by(&options.values),
            ),
            drafts: Drafts::new(engines.draft.as_ref().map(|draft| draft.llm().clone())),
            budget,
            agent,
            unheard: None,
            transcribed: None,
            offer,
            voices: HashMap::new(),
            voice_failed: false,
            clauses: HashMap::new(),
            ahead: Ahead::default(),
            generations: HashMap::new(),
            runs: HashMap::new(),
            tasks: JoinSet::new(),
            tools: tools_of_call,
            keypad,
            key,
            outbound,
            results,
            cancel: CancellationToken::new(),
            speech_found: None,
            shed: Shed::Nothing,
            sound,
            report,
            hung_up: None,
            _open: engines.observers.metrics.session(),
            engines,
        };
        (driver, Results(incoming))
    }

    /// Runs until the client hangs up or the conversation does.
    ///
    /// `self` is boxed, because the future would otherwise hold two copies of it.
    pub(super) async fn run(
        mut self: Box<Self>,
        mut inbound: mpsc::Receiver<Inbound>,
        mut results: Results,
    ) {
        let agent = self.agent.policy.briefing.agent.as_deref();
        tracing::info!(agent, "session opened");
        self.open_voice();
        self.spend_tokens(0);
        self.spend_on_drafts(0);
        self.look_up();
        if let Some(message) = self.options.machine_message().cloned() {
            self.input(Input::Placed { message });
        }
        loop {
            if let Err(end) = self.carry_out() {
                if matches!(end, LoopEnd::Stuck) {
                    tracing::warn!("closing a client that does not read what is sent");
                }
                break;
            }
            let wake = self.wake();
            tokio::select! {
                biased;
                tools = self.offer.changed() => {
                    let changed = self.offer.tell(self.conversation.tools(), tools);
                    self.input(changed);
                }
                request = inbound.recv() => match request {
                    Some(request) => self.on_inbound(request),
                    None => break,
                },
                Some(done) = results.0.recv() => self.on_done(done),
                Some(press) = Keypad::next(self.keypad.as_deref_mut()) => self.press(press),
                () = sleep_until(wake) => self.on_time(),
                Some(_) = self.tasks.join_next() => {}
            }
        }
        self.close();
    }

    /// Begins the lookups, whose results also go into the notes.
    fn look_up(&mut self) {
        let (zone, values) = (self.engines.zone.clone(), self.options.values.clone());
        // Lookups see no results of other lookups.
        let asking = SessionTools::of_call(zone, Arc::new(SystemClock), None, values);
        let lookups = self.registry().lookups(&self.key.to_string(), &asking);
        if lookups.is_empty() {
            return;
        }
        self.tools.look_up(lookups);
        self.await_notes();
    }

    fn close(mut self) {
        self.input(Input::HangUp);
        while let Some(output) = self.conversation.poll_output() {
            if let Output::Notify(event) = output {
                self.observe(&event);
            }
        }
        let now = self.now();
        self.conversation.end(now, self.hung_up);
        if let Some(sound) = self.sound.take() {
            sound.finish(now);
        }
        let length = Micros(now.0);
        let report = self.report.take();
        if let (Some(webhook), Some(report)) = (&self.engines.observers.webhook, report) {
            webhook.tell(&self.key.to_string(), report.finish(length, self.hung_up));
        }
        self.cancel.cancel();
        let forget = VadJob::Close { session: self.id };
        // With a full inbox it is forgotten later: its jobs' token is cancelled.
        let vad = &self.engines.vad;
        drop(vad.try_send(forget, CancellationToken::new(), |_| {}));
        if self.audio_in.unjudged > 0 {
            let windows = self.audio_in.unjudged;
            tracing::warn!(
                windows,
                "windows of audio skipped by the voice activity detector"
            );
        }
        tracing::info!(seconds = self.began.elapsed().as_secs(), "session closed");
    }

    /// Logs and counts an event.
    fn observe(&mut self, event: &Event) {
        log(event);
        let now = self.now();
        if let Some(report) = &mut self.report {
            report.observe(now, event);
        }
        let tools = self.registry();
        self.routing.observe(event, &tools);
        let observers = &self.engines.observers;
        match event {
            Event::TurnRecorded(record) => {
                let agent = self.agent.policy.briefing.agent.as_deref();
                observers.turn(self.id, agent, record, &tools);
                let knows = |tool: &str| tools.declaration(tool).is_some();
                self.conversation.turn_over(agent, record, knows);
                let lessons = self.conversation.take_lessons();
                self.engines.experience.learn(lessons);
                let discarded = record.held.iter().filter(|held| !held.used);
                self.spend_tokens(discarded.map(|held| held.usage.total()).sum());
                let drafts = record.drafts.iter();
                self.spend_on_drafts(drafts.map(|draft| draft.usage.total()).sum());
            }
            Event::ResponseDone { .. } => {
                self.voices.values_mut().for_each(Voice::next_answer);
            }
            Event::StageFailed { stage, .. } => {
                observers.metrics.stage_failed(stage);
                self.voice_failed |= stage == "tts";
                if stage == "llm" {
                    self.agent.warmth.failed();
                }
            }
            _ => {}
        }
    }

    fn now(&self) -> Time {
        Time(self.began.elapsed().as_micros() as u64)
    }

    /// The next deadline, of the conversation, the pacer or a timer.
    fn wake(&self) -> Option<Instant> {
        let at = |time: Time| self.began + Micros(time.0).duration();
        [
            self.conversation.poll_timeout().map(at),
            self.pacer.due().map(at),
            self.tools.timers().next_due(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn input(&mut self, input: Input) {
        self.conversation.input(self.now(), input);
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "the edge: timers ring in real time"
    )]
    fn on_time(&mut self) {
        self.speech_found = None;
        for timer in self.tools.timers().take_due(Instant::now()) {
            // A client that does not take this is noticed when the words are sent.
            drop(self.send(Outbound::TimerRings));
            self.input(Input::Announce {
                text: self.announcement(&timer),
            });
        }
        self.conversation.timeout(self.now());
    }

    fn on_inbound(&mut self, inbound: Inbound) {
        self.speech_found = None;
        match inbound {
            Inbound::Audio(samples) => {
                self.tell_load();
                self.hear(&to_f32(&samples));
            }
            Inbound::Spoken { audio, id, item } => self.add_spoken(audio, id, *item),
            Inbound::Request(mut input) => {
                // Audio that the client sent before the commit belongs to it, judged or not.
                if matches!(input, Input::CommitAudio | Input::ClearAudio) {
                    let end = self.audio_in.ring.end();
                    self.input(Input::Received { end });
                }
                if let Input::Configure(settings) = &mut input {
                    self.set_up(settings);
                }
                if let Input::ToolFinished { run, .. } = &input
                    && let Some(limit) = self.runs.remove(run)
                {
                    limit.abort();
                }
                self.input(input);
            }
        }
    }

    /// Sets up the engines as the client wants them.
    fn set_up(&mut self, settings: &mut Settings) {
        if let Some(tools) = &settings.tools {
            self.routing.lend(tools, &settings.early);
        }
        let mut reopens = false;
        if let Some(terms) = &settings.keyterms {
            reopens = self.change_keyterms(terms);
        }
        if let Some(name) = &settings.recogniser {
            reopens |= self.change_recogniser(name);
        }
        if let Some(language) = &settings.language {
            let detected = std::mem::replace(&mut self.detects, false);
            reopens |= self.change_language(language) || detected;
        }
        if reopens {
            self.open_recogniser();
        }
        if let Some(speaker) = settings.speaker.take() {
            settings.speaker = Some(self.change_voice(speaker));
        }
    }

    /// The tools that the conversation currently knows.
    fn registry(&mut self) -> Arc<Registry> {
        self.offer.registry(self.conversation.tools())
    }

    /// Tells the conversation when the models have less or more room for optional work.
    fn tell_load(&mut self) {
        let shed = self.engines.shed();
        if shed != std::mem::replace(&mut self.shed, shed) {
            self.input(Input::Load { shed });
        }
    }

    fn on_done(&mut self, done: Done) {
        self.speech_found = None;
        match done {
            Done::Input(input) => self.input(*input),
            Done::Heard(language, input) => {
                if let Some(language) = language {
                    self.hears_in(language);
                }
                // The user's words may stop the agent as well.
                self.speech_found = Some(self.now());
                self.input(*input);
            }
            Done::Notes { agent, notes } if agent == self.agent.name => {
                self.input(Input::Notes { notes });
            }
            // Notes for an agent that has handed over in the meantime.
            Done::Notes { .. } => {}
            Done::Predicted(answer) => {
                if let Some(input) = self.routing.answered(answer) {
                    self.input(input);
                }
            }
            Done::Drafted(sampled) => {
                if let Some(input) = self.drafts.ended(*sampled) {
                    self.input(input);
                }
            }
            Done::Judged(windows) => {
                self.speech_found = Some(self.now());
                self.on_judged(windows);
            }
            Done::VadFailed(reason) => self.on_vad_failure(&reason),
            Done::Setback(Setback { stage, message }) => {
                if stage == "tts" {
                    self.tell_loading();
                }
                let stage = stage.to_owned();
                // A client that does not take this is noticed when the words are sent.
                drop(self.tell(Event::StageFailed { stage, message }));
            }
            Done::Spoken(synthesis, part) => {
                let part = match synthesis {
                    Synthesis::Clause(clause) => Some((clause, part)),
                    Synthesis::Ahead(id) => self.ahead.receive(id, part),
                };
                if let Some((clause, part)) = part {
                    self.on_part(clause, part);
                }
            }
        }
    }

    /// Carries out all decisions, and sends all audio that is due.
    fn carry_out(&mut self) -> Result<(), LoopEnd> {
        loop {
            while let Some(output) = self.conversation.poll_output() {
                self.perform(output)?;
            }
            if !self.send_frame()? {
                return Ok(());
            }
        }
    }

    fn send(&self, outbound: Outbound) -> Result<(), LoopEnd> {
        self.outbound
            .try_send(outbound)
            .map_err(|error| match error {
                mpsc::error::TrySendError::Full(_) => LoopEnd::Stuck,
                mpsc::error::TrySendError::Closed(_) => LoopEnd::Over,
            })
    }

    fn tell(&self, event: Event) -> Result<(), LoopEnd> {
        let at = self.now();
        self.send(Outbound::Event { at, event })
    }

    fn perform(&mut self, output: Output) -> Result<(), LoopEnd> {
        match output {
            Output::Transcribe {
                request,
                from,
                to,
                partial,
            } => self.transcribe(request, from, to, partial),
            Output::ScoreEndOfTurn { request, from, to } => self.score(request, from, to),
            Output::Generate {
                request,
                prompt,
                agent,
            } => self.generate(request, prompt, agent.as_deref()),
            Output::GiveResult {
                request,
                response,
                result,
            } => self.give(request, &response, result),
            Output::Prepare {
                request,
                text,
                speaker,
            } => self.speak_ahead(request, text, speaker),
            Output::CancelGeneration { request } => self.cancel_generation(request),
            Output::AskDraft {
                request,
                mut prompt,
                samples,
            } => {
                prompt.demands.session = self.id;
                let (tasks, results) = (&mut self.tasks, &self.results);
                self.drafts.ask(request, &prompt, samples, tasks, results);
            }
            Output::StopDraft { request } => {
                for input in self.drafts.stop(request) {
                    self.input(input);
                }
            }
            Output::Route { request, heard } => self.route(request, heard),
            Output::StartTool {
                run,
                committed,
                name,
                arguments,
                by_client,
                taken,
            } => match by_client {
                true => self.await_client(run),
                false => self.start_tool(run, committed, name, (arguments, taken)),
            },
            Output::AbortTool { run } => {
                if let Some(task) = self.runs.remove(&run) {
                    task.abort();
                }
            }
            Output::WarmUp { tool } => {
                tracing::debug!(tool, "warming up");
                let warm = self.registry().warm_up(&tool);
                self.tasks.spawn(warm);
            }
            Output::Speak {
                clause,
                item,
                text,
                speaker,
            } => match self.options.spoken_by {
                SpokenBy::Server => self.speak(clause, item, text, speaker),
                SpokenBy::Client => self.hand_over(clause, spoken_length(&text)),
                SpokenBy::Nobody => self.hand_over(clause, Micros(0)),
            },
            Output::CancelClause { clause } => self.cancel_clause(clause),
            Output::Flush => self.flush()?,
            Output::Notify(event) => {
                self.observe(&event);
                self.tell(event)?;
            }
            Output::HangUp { reason } => {
                self.hung_up = Some(reason);
                self.send(Outbound::HangUp(reason))?;
                return Err(LoopEnd::Over);
            }
        }
        Ok(())
    }
}

/// A callback that tells the session of services that fail.
fn report_to(results: &mpsc::Sender<Done>) -> Report {
    let results = results.clone();
    Arc::new(move |setback| drop(results.try_send(Done::Setback(setback))))
}

/// A time in nanoseconds since 1970.
fn nanos(time: jiff::Timestamp) -> u64 {
    u64::try_from(time.as_nanosecond()).unwrap_or_default()
}

/// The receiver of jobs' results.
pub(super) struct Results(mpsc::Receiver<Done>);

fn failure(job: Job, reason: String) -> Input {
    Input::Failed { job, reason }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Logs an event. People's words are logged at DEBUG only.
fn log(event: &Event) {
    match event {
        Event::ResponseDone {
            turn,
            status,
            latency,
            ..
        } => {
            let ms = |to: Option<Time>| {
                latency
                    .speech_end
                    .and_then(|from| to.map(|to| to.since(from).as_ms()))
            };
            tracing::info!(
                %turn,
                ?status,
                end_of_turn_ms = ms(latency.end_of_turn),
                first_audio_ms = ms(latency.first_audio),
                answer_audio_ms = ms(latency.answer_audio),
                "turn done"
            );
        }
        Event::StageFailed { stage, message } => tracing::warn!(stage, message, "stage failed"),
        Event::Refused { request, message } => tracing::info!(request, message, "refused"),
        other => tracing::debug!(event = ?other),
    }
}
