//! The loop that drives one conversation: carries out its decisions and feeds it inputs.

mod handoff;

use super::agents::{Agent, came_by};
use super::ahead::{Ahead, Part, TakenOver};
use super::budget::Spending;
use super::call_audio::CallRecorder;
use super::clause::TakeChunk;
use super::detectors::{Judged, VadJob};
use super::drafts::{Drafts, Sampled};
use super::engines::{Engines, speaker_of};
use super::items::{self, Unheard};
use super::offer::Offer;
use super::options::{Profile, SessionOptions, SpokenBy};
use super::pacer::Pacer;
use super::recognisers::Recogniser;
use super::recorder::{Recorded, Subject};
use super::routing::{Answer, Routing};
use super::source::{Report, Setback};
use super::voices::{Voice, Wanted};
use super::{Inbound, Outbound};
use crate::asr::{Recognised, TellTurn, Utterance};
use crate::audio::{Beeps, Resampler, Ring, dtmf, to_f32, to_i16};
use crate::conversation::{
    CLIENT_TIMEOUT, CallId, ClauseId, Discard, Event, HangUpReason, Input, ItemId, Job, Micros,
    Output, RequestId, RunId, Samples, Settings, Time, spoken_length,
};
use crate::llm::{GivenResult, Llm, LlmEvent, Prompt};
use crate::metrics::OpenSession;
use crate::prediction::{Evidence, Moment};
use crate::report::{About, CallReport};
use crate::tools::builtin::Timer;
use crate::tools::{
    CallContext, Caller, Effect, KeyPress, Known, Registry, SessionTools, SystemClock, ToolError,
};
use crate::tts::{Piece, Speaker};
use crate::vad::WINDOW;
use futures_util::{FutureExt, StreamExt};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::Instrument;

/// The most results of jobs that may wait for the session. It takes them within microseconds; a full queue
/// means that the session hangs, and the results are lost with it.
const RESULTS: usize = 1_024;

/// Presses of keys that may wait. Tools press them one after the other.
const KEYS: usize = 4;

/// Clauses that are synthesised in advance are due this much later than those that a user waits for.
const AHEAD_OF_NEED: Duration = Duration::from_secs(1);

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

/// The keys of a telephone line.
struct Keypad {
    /// Keys that tools want to be pressed.
    presses: mpsc::Receiver<KeyPress>,
    /// Those that are being pressed.
    pressed: Vec<KeyPress>,
}

impl Keypad {
    /// The keys of a session's line, if it has one, for its tools.
    fn of(options: &SessionOptions, tools: &SessionTools) -> Option<Box<Self>> {
        let has_line = options.profile == Profile::PhoneCall || options.placed.is_some();
        has_line.then(|| {
            let (keypad, presses) = mpsc::channel(KEYS);
            tools.press_at(keypad);
            Box::new(Self {
                presses,
                pressed: Vec::new(),
            })
        })
    }

    /// The next keys that a tool wants to be pressed; `None` without a line.
    async fn next(keypad: Option<&mut Self>) -> Option<KeyPress> {
        keypad?.presses.recv().await
    }
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
    /// The queue to the task that transcribes clients' audio items; started with the first item.
    unheard: Option<mpsc::Sender<Unheard>>,
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
    /// Whether the conversation was told that the models are busy.
    busy: bool,
    /// The recorder of the call's audio, if calls are recorded.
    sound: Option<Box<CallRecorder>>,
    /// The report for the operator's webhook, if there is one.
    report: Option<Box<CallReport>>,
    /// The reason for the conversation's end; `None` if the client has gone.
    hung_up: Option<HangUpReason>,
    _open: OpenSession,
}

/// A text that the voice is synthesising.
#[derive(Clone, Copy)]
pub(super) enum Synthesis {
    /// A clause that is to be spoken.
    Clause(ClauseId),
    /// A clause that may be spoken, by its number in [`Ahead`].
    Ahead(u64),
}

/// The user's audio on its way to the models.
struct AudioInput {
    resampler: Resampler,
    ring: Ring,
    /// Samples that do not fill a window yet.
    rest: Vec<f32>,
    /// End of the last window that was handed to the detector.
    end: Samples,
    /// Whether the detector has failed and this was reported; it would fail at every window from then on.
    vad_failed: bool,
    /// Windows that the detector's queue had no room for.
    unjudged: u64,
    /// Listens for the tone of an answering machine.
    beeps: Option<Beeps>,
}

/// A clause that is being made. Dropping it stops the voice.
struct Clause {
    resampler: Resampler,
    _cancel: DropGuard,
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
        let experience = engines.experience.of(&policy);
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
            ),
            began: Instant::now(),
            audio_in: AudioInput {
                resampler: Resampler::new(options.input_rate, Samples::RATE),
                ring: Ring::new(),
                rest: Vec::new(),
                end: Samples(0),
                vad_failed: false,
                unjudged: 0,
                beeps: options.machine_message().map(|_| Beeps::default()),
            },
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
            agent,
            unheard: None,
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
            busy: false,
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
        let lookups = self.registry().lookups(&asking);
        if lookups.is_empty() {
            return;
        }
        self.tools.look_up(lookups);
        self.await_notes();
    }

    /// Opens the session's voice before it is needed. A service also prepares its phrases, if it has not
    /// done so.
    fn open_voice(&mut self) {
        let speaker = speaker_of(&self.agent, &self.options);
        if self.options.spoken_by != SpokenBy::Server {
            return;
        }
        let voice = self.engines.voices.open(&speaker, report_to(&self.results));
        if voice.is_service() {
            let (engines, speaker) = (self.engines.clone(), speaker.clone());
            let prepare = async move { engines.prepare_service(&speaker).await };
            self.tasks.spawn(prepare.in_current_span());
        }
        self.voices.insert(speaker, voice);
    }

    fn close(mut self) {
        self.input(Input::HangUp);
        while let Some(output) = self.conversation.poll_output() {
            if let Output::Notify(event) = output {
                self.observe(&event);
            }
        }
        self.conversation.end();
        let now = self.now();
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

    /// The announcement of a timer that rings, in the session's language.
    fn announcement(&self, timer: &Timer) -> String {
        match speaker_of(&self.agent, &self.options).pack().rings() {
            Some(rings) => rings(timer.length, timer.label.as_deref()),
            None => timer.announcement(),
        }
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
                    if let Some(tools) = &settings.tools {
                        self.routing.lend(tools, &settings.early);
                    }
                    if let Some(language) = &settings.language {
                        let detected = std::mem::replace(&mut self.detects, false);
                        if self.change_language(language) || detected {
                            self.open_recogniser();
                        }
                    }
                    if let Some(speaker) = settings.speaker.take() {
                        settings.speaker = Some(self.change_voice(speaker));
                    }
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

    /// Sets the session's language from now on, whichever agent speaks. Returns whether it is another one than before.
    fn change_language(&mut self, language: &str) -> bool {
        let now = speaker_of(&self.agent, &self.options);
        let Some(speaker) = now.in_language(language) else {
            return false;
        };
        self.options.speaker.language = speaker.language;
        self.open_voice();
        true
    }

    fn open_recogniser(&mut self) {
        let report = report_to(&self.results);
        let turns = Some(turns_to(&self.results));
        self.recogniser =
            self.engines
                .recogniser_of(&self.agent, &self.options, self.detects, report, turns);
    }

    /// The user was heard to speak this language: the session goes on in it if the operator allows that.
    fn hears_in(&mut self, language: String) {
        if !self.detects {
            return;
        }
        self.recogniser.expect(&language);
        if self.engines.detection.follow && self.change_language(&language) {
            tracing::info!(language, "the session switched to the user's language");
            self.input(Input::Configure(Box::new(Settings {
                language: Some(language),
                ..Settings::default()
            })));
        }
    }

    /// Sets the session's voice from now on, whichever agent speaks. Returns it, completed with the agent's own where
    /// the client has chosen none.
    fn change_voice(&mut self, chosen: Speaker) -> Speaker {
        let before = speaker_of(&self.agent, &self.options);
        self.options.speaker.voice = chosen.voice;
        self.options.speaker.speed = chosen.speed;
        let speaker = speaker_of(&self.agent, &self.options);
        if speaker != before {
            // A client may change it often: services would keep a connection for each.
            self.voices.clear();
            self.open_voice();
        }
        speaker
    }

    /// The tools that the conversation currently knows.
    fn registry(&mut self) -> Arc<Registry> {
        self.offer.registry(self.conversation.tools())
    }

    /// Tells the conversation when the models become busy, and when they no longer are.
    fn tell_load(&mut self) {
        let busy = self.engines.are_busy();
        if busy != std::mem::replace(&mut self.busy, busy) {
            self.input(Input::Load { busy });
        }
    }

    /// Adds a client's audio item, and has it transcribed.
    fn add_spoken(&mut self, audio: Vec<i16>, id: ItemId, item: Input) {
        self.input(item);
        let unheard = self.unheard.get_or_insert_with(|| {
            let (sender, items) = mpsc::channel(items::WAITING);
            let results = self.results.clone();
            let report = report_to(&self.results);
            let recogniser = self.engines.recogniser_of(
                &self.agent,
                &self.options,
                self.detects,
                report,
                // Nobody takes a turn in them.
                None,
            );
            let heard = async move |input| drop(results.send(Done::Input(Box::new(input))).await);
            let transcribing = items::transcribe(recogniser, self.options.input_rate, items, heard);
            self.tasks.spawn(transcribing.in_current_span());
            sender
        });
        if unheard.try_send(Unheard { id, audio }).is_err() {
            let (item, words) = (id, None);
            self.input(Input::ItemHeard { item, words });
        }
    }

    /// Takes in the user's audio and has its windows judged.
    fn hear(&mut self, samples: &[f32]) {
        let samples = self.audio_in.resampler.push(samples);
        let now = self.now();
        if let Some(sound) = &mut self.sound {
            sound.user(now, &samples);
        }
        let beeps = self.audio_in.beeps.as_mut();
        if beeps.is_some_and(|beeps| beeps.push(&samples)) {
            self.input(Input::Beep);
        }
        self.recogniser.listen(self.audio_in.ring.end(), &samples);
        self.audio_in.ring.push(&samples);
        self.audio_in
            .ring
            .forget_before(self.conversation.audio_needed_from());
        self.audio_in.rest.extend(samples);
        let whole = self.audio_in.rest.len() / WINDOW * WINDOW;
        if whole == 0 {
            return;
        }
        let windows: Vec<[f32; WINDOW]> = self
            .audio_in
            .rest
            .drain(..whole)
            .collect::<Vec<_>>()
            .as_chunks::<WINDOW>()
            .0
            .to_vec();
        let end = Samples(self.audio_in.end.0 + WINDOW as u64);
        self.audio_in.end = Samples(self.audio_in.end.0 + whole as u64);
        let results = self.results.clone();
        let job = VadJob::Judge {
            session: self.id,
            end,
            windows,
        };
        let sent = self
            .engines
            .vad
            .try_send(job, self.cancel.clone(), move |judged| {
                let done = match judged {
                    Ok(Ok(judged)) => Done::Judged(judged),
                    Ok(Err(error)) => Done::VadFailed(error.to_string()),
                    Err(failed) => Done::VadFailed(failed.to_string()),
                };
                drop(results.try_send(done));
            });
        if let Err(error) = sent {
            if self.audio_in.unjudged == 0 {
                tracing::warn!(%error, "the voice activity detector is overloaded: some audio is skipped");
            }
            self.audio_in.unjudged += (whole / WINDOW) as u64;
        }
    }

    /// Reports a failure of the detector to the operator and the conversation, once.
    fn on_vad_failure(&mut self, reason: &str) {
        if std::mem::replace(&mut self.audio_in.vad_failed, true) {
            return;
        }
        tracing::error!(reason, "the user cannot be heard");
        self.input(Input::Failed {
            job: Job::Detection,
            reason: "the voice activity detector failed".into(),
        });
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
                for window in windows {
                    self.input(window);
                }
            }
            Done::VadFailed(reason) => self.on_vad_failure(&reason),
            Done::Setback(Setback { stage, message }) => {
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

    /// Sends the next frame of audio that is due; `false` if there is none.
    fn send_frame(&mut self) -> Result<bool, LoopEnd> {
        let now = self.now();
        if self.pacer.has_dialed(now) {
            // A tool that has given up is told in vain.
            let keypads = self.keypad.iter_mut();
            let pressed = keypads.flat_map(|keypad| keypad.pressed.drain(..));
            let over = pressed.map(|press| press.done.send(()));
            over.for_each(drop);
        }
        if let Some(samples) = self.pacer.pop_tones(now) {
            if let Some(sound) = &mut self.sound {
                sound.agent(now, &samples);
            }
            self.send(Outbound::Tones(samples))?;
            return Ok(true);
        }
        let Some(frame) = self.pacer.pop(self.now()) else {
            return Ok(false);
        };
        if frame.first {
            self.input(Input::Sent {
                clause: frame.clause,
                until: Micros(0),
            });
            while let Some(output) = self.conversation.poll_output() {
                self.perform(output)?;
            }
        }
        let now = self.now();
        if let Some(sound) = &mut self.sound {
            sound.agent(now, &frame.samples);
        }
        self.send(Outbound::Audio {
            item: frame.item,
            clause: frame.clause,
            samples: frame.samples,
        })?;
        self.input(Input::Sent {
            clause: frame.clause,
            until: frame.until,
        });
        Ok(true)
    }

    /// Presses keys: as tones in the agent's audio, or by the client if that makes the agent's voice.
    fn press(&mut self, press: KeyPress) {
        match self.options.spoken_by {
            SpokenBy::Server => {
                let tones = dtmf::tones(&press.keys, self.options.output_rate);
                self.pacer.dial(&tones);
                if let Some(keypad) = &mut self.keypad {
                    keypad.pressed.push(press);
                }
            }
            SpokenBy::Client | SpokenBy::Nobody => {
                if self.send(Outbound::Keys(press.keys)).is_ok() {
                    let _ = press.done.send(());
                }
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
            Output::CancelGeneration { request } => {
                self.ahead.cancel(request);
                if let Some((generation, _)) = self.generations.remove(&request) {
                    generation.abort();
                }
            }
            Output::AskDraft {
                request,
                prompt,
                samples,
            } => {
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
            Output::CancelClause { clause } => {
                self.pacer.cancel(clause);
                self.clauses.remove(&clause);
                self.ahead.cancel_clause(clause);
            }
            Output::Flush => {
                let now = self.now();
                self.pacer.flush(now);
                if let Some(sound) = &mut self.sound {
                    sound.flush(now);
                }
                self.clauses.clear();
                self.ahead.clear();
                if !self.pacer.is_dialing() {
                    self.send(Outbound::Clear)?;
                }
                if let Some(found) = self.speech_found {
                    let stop = self.now().since(found);
                    self.engines.observers.metrics.barge_in(stop);
                }
            }
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

    fn transcribe(&mut self, request: RequestId, from: Samples, to: Samples, partial: bool) {
        let part = Utterance {
            from,
            audio: self.audio_in.ring.range(from, to),
            partial,
        };
        let results = self.results.clone();
        let failed = move |reason: String| failure(Job::Transcription(request), reason);
        let done = move |heard: Result<Recognised, String>| {
            let done = match heard {
                Ok(Recognised {
                    text,
                    marks,
                    doubt,
                    language,
                }) => {
                    // More words may still change it.
                    let language = language.filter(|_| !partial && !text.is_empty());
                    let heard = Input::Transcript {
                        request,
                        text,
                        marks,
                        doubt,
                    };
                    Done::Heard(language, Box::new(heard))
                }
                Err(reason) => Done::Input(Box::new(failed(reason))),
            };
            drop(results.try_send(done));
        };
        let sent = self
            .recogniser
            .transcribe(part, &self.cancel, &mut self.tasks, done);
        if let Err(error) = sent {
            self.input(failed(error.to_string()));
        }
    }

    fn score(&mut self, request: RequestId, from: Samples, to: Samples) {
        let Some(model) = &self.engines.turn_model else {
            return;
        };
        let audio = self.audio_in.ring.range(from, to);
        let results = self.results.clone();
        let sent = model.try_send(audio, self.cancel.clone(), move |score| match score {
            Ok(Ok(probability)) => {
                drop(results.try_send(Done::Input(Box::new(Input::Completeness {
                    request,
                    probability,
                }))));
            }
            Ok(Err(error)) => tracing::warn!(%error),
            Err(_) => {}
        });
        if let Err(error) = sent {
            tracing::warn!(%error, "the end of turn is decided by silence alone");
        }
    }

    fn generate(&mut self, request: RequestId, prompt: Prompt, agent: Option<&str>) {
        let agent = agent.and_then(|name| self.engines.agents.get(name));
        let llm = agent.unwrap_or(&self.agent).llm.clone();
        let mut events = llm.generate(prompt);
        let results = self.results.clone();
        let job = Job::Generation(request);
        let stream = async move {
            while let Some(event) = events.next().await {
                let event = event.map_err(|error| error.to_string())?;
                let end = event == LlmEvent::End;
                let input = Input::Llm { request, event };
                if results.send(Done::Input(Box::new(input))).await.is_err() || end {
                    return Ok(());
                }
            }
            Err("the stream ended too early".to_owned())
        };
        let results = self.results.clone();
        let task = async move {
            let outcome = AssertUnwindSafe(stream).catch_unwind().await;
            if let Err(reason) = outcome.unwrap_or_else(|_| Err("the engine panicked".into())) {
                tracing::error!(reason, "generation failed");
                drop(
                    results
                        .send(Done::Input(Box::new(failure(job, reason))))
                        .await,
                );
            }
        };
        let task = self.tasks.spawn(task.in_current_span());
        self.generations.retain(|_, (task, _)| !task.is_finished());
        self.generations.insert(request, (task, llm));
    }

    /// Gives a result to the server that makes a generation.
    fn give(&mut self, request: RequestId, response: &str, result: GivenResult) {
        let Some((_, llm)) = self.generations.get(&request) else {
            return;
        };
        let given = llm.give(response, result);
        let give = async move {
            if let Err(error) = given.await {
                // The server's words may repeat the result.
                tracing::debug!(reason = error.details());
                let reason = error.cause();
                tracing::warn!(reason, "the model's server refused the result of a tool");
            }
        };
        self.tasks.spawn(give.in_current_span());
    }

    /// Asks the sources of predictions.
    fn route(&mut self, request: RequestId, heard: Evidence) {
        // A Realtime client declares only after the opening which tools may run early.
        let is_too_soon =
            heard.moment == Moment::Opened && came_by(&self.options.values) == Some("realtime");
        if is_too_soon || self.routing.is_empty() {
            let predictions = Vec::new();
            return self.input(Input::Predicted {
                request,
                predictions,
            });
        }
        let (tasks, results) = (&mut self.tasks, &self.results);
        self.routing.ask(request, heard, tasks, results);
    }

    fn start_tool(
        &mut self,
        run: RunId,
        committed: Option<CallId>,
        name: String,
        (arguments, taken): (Map<String, Value>, Map<String, Value>),
    ) {
        if committed.is_none() && self.engines.are_busy() {
            let reason = Discard::Overloaded;
            return self.input(Input::RunRefused { run, reason });
        }
        let key = match committed {
            Some(call) => format!("{}-{call}", self.key),
            None => format!("{}-{run}", self.key),
        };
        let mut offered = self.conversation.tools().iter();
        let offered = offered.find(|tool| tool.spec.name == name).cloned();
        if let Some(tool) = &offered
            && self.engines.agents.hand_over_by(tool)
        {
            return self.hand_to_agent(run, tool, &arguments);
        }
        if offered.is_none() || !self.offer.is_there(&name) {
            let result = Err(ToolError::Unknown(name));
            return self.input(Input::ToolFinished { run, result });
        }
        let tools = self.registry();
        let declaration = tools.declaration(&name);
        let changes = declaration.is_some_and(|tool| tool.effect >= Effect::Keyed);
        let spending = declaration.filter(|_| committed.is_none());
        let spending = spending.and_then(|tool| Spending::of(tool, self.today()));
        let session = self.tools.clone();
        let journal = self.engines.journal.clone().filter(|_| changes);
        let audit = self.engines.observers.audit.as_ref().filter(|_| changes);
        let audited = audit.zip(declaration).map(|(audit, tool)| {
            let caller = Caller {
                session: self.key,
                agent: self.agent.policy.briefing.agent.as_deref(),
                values: &self.options.values,
            };
            audit.begin(caller, tool, &key)
        });
        let results = self.results.clone();
        let budget = self.engines.budget.clone();
        let metrics = self.engines.observers.metrics.clone();
        let task = async move {
            if let Some(spending) = spending
                && !budget.take(spending).await
            {
                let reason = Discard::Budget;
                let refused = Input::RunRefused { run, reason };
                return drop(results.send(Done::Input(Box::new(refused))).await);
            }
            tracing::info!(%run, tool = name, speculative = committed.is_none(), "tool started");
            let found = tools.found_for(&name, &session).await;
            let known = Known::new(session.values(), &found, &taken);
            let arguments = tools.complete(&name, arguments, known);
            let complete = arguments.as_ref().ok();
            let same = complete.and_then(|complete| tools.same(&name, complete, session.values()));
            let call = |key| {
                let context = CallContext::new(session.clone(), key);
                tools.run(&name, arguments.clone(), &context)
            };
            let now = || session.clock().now();
            let result = match (journal, &arguments, same) {
                (Some(journal), Ok(arguments), Some(same)) => {
                    let once = journal.once_per(&same, &name, arguments, now, call);
                    AssertUnwindSafe(once).catch_unwind().await
                }
                (Some(journal), Ok(arguments), None) => {
                    let once = journal.once(&key, &name, arguments, now, call(key.clone()));
                    AssertUnwindSafe(once).catch_unwind().await
                }
                _ => AssertUnwindSafe(call(key)).catch_unwind().await,
            };
            let result =
                result.unwrap_or_else(|_| Err(ToolError::Broken("the tool crashed".into())));
            if let Some(audited) = audited {
                audited.ended(now(), arguments.as_ref().ok(), &result);
            }
            tracing::info!(%run, tool = name, ok = result.is_ok(), "tool finished");
            if let Err(error @ (ToolError::Broken(_) | ToolError::Timeout(_))) = &result {
                metrics.tool_failed(&name, error);
                tracing::warn!(%run, tool = name, error = error.details(), "tool failed");
            }
            let finished = Input::ToolFinished { run, result };
            drop(results.send(Done::Input(Box::new(finished))).await);
        };
        let task = task.in_current_span();
        if changes {
            // A change runs to its end even if the session does not: half a change is worse than a whole one.
            self.engines.changes.spawn(task);
            return;
        }
        let task = self.tasks.spawn(task);
        self.runs.retain(|_, task| !task.is_finished());
        self.runs.insert(run, task);
    }

    /// Limits how long the client may take for a run of its own tool.
    fn await_client(&mut self, run: RunId) {
        let results = self.results.clone();
        let task = self.tasks.spawn(async move {
            tokio::time::sleep(CLIENT_TIMEOUT).await;
            let limit = u64::try_from(CLIENT_TIMEOUT.as_millis()).unwrap_or(u64::MAX);
            let result = Err(ToolError::Timeout(limit));
            let finished = Input::ToolFinished { run, result };
            drop(results.send(Done::Input(Box::new(finished))).await);
        });
        self.runs.retain(|_, task| !task.is_finished());
        self.runs.insert(run, task);
    }

    /// Counts the tokens of discarded generations, and tells the conversation whether the day's budget is spent.
    fn spend_tokens(&mut self, tokens: u64) {
        let policy = &self.engines.policy().speculation;
        let Some(spending) = Spending::of_tokens(policy, tokens, self.today()) else {
            return;
        };
        self.spend(spending, |spent| Input::TokenBudget { spent });
    }

    /// Counts the tokens of the draft model in the same way.
    fn spend_on_drafts(&mut self, tokens: u64) {
        let draft = self.engines.policy().speculation.draft;
        let spending = draft.and_then(|draft| Spending::of_drafts(&draft, tokens, self.today()));
        if let Some(spending) = spending {
            self.spend(spending, |spent| Input::DraftBudget { spent });
        }
    }

    fn spend(&mut self, spending: Spending, told: fn(bool) -> Input) {
        let spent = self.engines.budget.spent(spending);
        let results = self.results.clone();
        self.tasks.spawn(async move {
            let told = told(!spent.await);
            drop(results.send(Done::Input(Box::new(told))).await);
        });
    }

    fn today(&self) -> jiff::civil::Date {
        let now = self.tools.clock().now();
        now.to_zoned(self.tools.zone().clone()).date()
    }

    /// Has a clause synthesised, or takes its prepared audio.
    #[allow(
        clippy::disallowed_methods,
        reason = "the edge: how long users wait is measured in real time"
    )]
    fn speak(&mut self, clause: ClauseId, item: ItemId, text: String, speaker: Speaker) {
        let now = std::time::Instant::now();
        let needed = now + Duration::from_micros(self.pacer.ahead(self.now()).0);
        let length = speaker.speed().lasts(spoken_length(&text));
        self.pacer.expect(clause, item, length);
        let voices = &self.engines.voices;
        let voice = self.voices.entry(speaker.clone());
        let results = &self.results;
        let voice = voice.or_insert_with_key(|speaker| voices.open(speaker, report_to(results)));
        let prepared = voices.prepared(voice, &text).or_else(|| {
            let lost = self.voice_failed || voice.is_lost();
            lost.then(|| voices.prepared_in_own(&text)).flatten()
        });
        // While one clause is being synthesised, the user hears another.
        let first = self.clauses.is_empty();
        let cancel = self.cancel.child_token();
        let rate = prepared.as_ref().map_or(voice.rate(), |clip| clip.rate);
        let being_made = Clause {
            resampler: Resampler::new(rate, self.options.output_rate),
            _cancel: cancel.clone().drop_guard(),
        };
        self.clauses.insert(clause, being_made);
        if let Some(clip) = prepared {
            return self.on_audio(clause, &clip.samples, Vec::new(), true);
        }
        if let Some(TakenOver { audio, ended }) = self.ahead.take(&text, &speaker, clause) {
            if !audio.is_empty() {
                self.on_part(clause, Part::Audio(audio));
            }
            if let Some(ended) = ended {
                self.on_part(clause, Part::End(ended));
            }
            return;
        }
        let wanted = Wanted {
            text,
            needed,
            asked: first.then_some(now),
        };
        let (chunk, done) = parts(&self.results, Synthesis::Clause(clause));
        let sent = voice.speak(wanted, cancel, &mut self.tasks, chunk, done);
        if let Err(error) = sent {
            self.on_part(clause, Part::End(Err(error.to_string())));
        }
    }

    /// Synthesises a clause that may be spoken next, unless the voice is busy.
    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: when audio is needed is a matter of real time"
    )]
    fn speak_ahead(&mut self, request: RequestId, text: String, speaker: Speaker) {
        if self.options.spoken_by != SpokenBy::Server || self.engines.are_busy() {
            return;
        }
        let voices = &self.engines.voices;
        let voice = self.voices.entry(speaker.clone());
        let results = &self.results;
        let voice = voice.or_insert_with_key(|speaker| voices.open(speaker, report_to(results)));
        if voices.prepared(voice, &text).is_some() {
            return;
        }
        let cancel = self.cancel.child_token();
        let id = self
            .ahead
            .begin(request, text.clone(), speaker, cancel.clone());
        let wanted = Wanted {
            text,
            needed: std::time::Instant::now() + AHEAD_OF_NEED,
            asked: None,
        };
        let (chunk, done) = parts(&self.results, Synthesis::Ahead(id));
        let sent = voice.speak(wanted, cancel, &mut self.tasks, chunk, done);
        if sent.is_err() {
            self.ahead.cancel(request);
        }
    }

    /// Takes in a part of a clause.
    fn on_part(&mut self, clause: ClauseId, part: Part) {
        match part {
            Part::Audio(Piece { samples, word_ends }) => {
                self.voice_failed = false;
                self.on_audio(clause, &samples, word_ends, false);
            }
            Part::End(Ok(())) => self.on_audio(clause, &[], Vec::new(), true),
            Part::End(Err(reason)) => self.input(failure(Job::Synthesis(clause), reason)),
        }
    }

    /// Leaves a clause to the client, which takes `length` to say it: it is synthesised and sent at once, as
    /// far as the conversation is concerned, which tells the client its words. They come first: what
    /// takes no time is over as soon as it is made.
    fn hand_over(&mut self, clause: ClauseId, length: Micros) {
        let sent = |until| Input::Sent { clause, until };
        self.input(sent(Micros(0)));
        self.input(Input::Synthesised {
            clause,
            length,
            last: true,
            word_ends: Vec::new(),
        });
        self.input(sent(length));
    }

    fn on_audio(&mut self, clause: ClauseId, samples: &[f32], word_ends: Vec<Micros>, last: bool) {
        let Some(being_made) = self.clauses.get_mut(&clause) else {
            return;
        };
        let mut samples = being_made.resampler.push(samples);
        if last {
            samples.extend(being_made.resampler.flush());
            self.clauses.remove(&clause);
        }
        if let Some(length) = self.pacer.push(clause, &to_i16(&samples), last) {
            self.input(Input::Synthesised {
                clause,
                length,
                last,
                word_ends,
            });
        }
    }
}

/// A callback that tells the session of services that fail.
fn report_to(results: &mpsc::Sender<Done>) -> Report {
    let results = results.clone();
    Arc::new(move |setback| drop(results.try_send(Done::Setback(setback))))
}

/// A callback that tells the session of a recogniser's verdicts on the user's turn.
fn turns_to(results: &mpsc::Sender<Done>) -> TellTurn {
    let results = results.clone();
    Arc::new(move |turn| drop(results.try_send(Done::Input(Box::new(Input::TurnJudged(turn))))))
}

/// The receiver of jobs' results.
pub(super) struct Results(mpsc::Receiver<Done>);

/// Sends the voice's audio to the session.
fn parts(
    results: &mpsc::Sender<Done>,
    synthesis: Synthesis,
) -> (TakeChunk, impl FnOnce(Result<(), String>) + Send + use<>) {
    let (chunks, end) = (results.clone(), results.clone());
    let chunk = Box::new(move |piece| {
        let part = Done::Spoken(synthesis, Part::Audio(piece));
        match chunks.try_send(part) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    });
    let done = move |ended| drop(end.try_send(Done::Spoken(synthesis, Part::End(ended))));
    (chunk, done)
}

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
