//! Translates between a Realtime client and a session.

mod agent;
mod aside;
mod requests;
mod returns;
mod tools;
mod track;
mod user;

pub use user::transcription_usage;

use super::client_events::{self, ClientRequest, ItemContent, ResponseRequest};
use super::codec::{Decoder, Format, RATE};
use super::early_calls::EarlyCalls;
use super::fault::Fault;
use super::fields::{Ineffective, MAX_NAMED};
use super::items::{Items, Spot};
use super::response::Response;
use super::server_events::Writer;
use super::session_config::{SessionUpdate, configures};
use super::session_object::Session;
use super::voices::Offered;
use crate::audio::Resampler;
use crate::conversation::{
    CallId, Event, Input, ItemId, Micros, Samples, Settings, TextLimits, Time, TurnId,
};
use crate::session::{Outbound, Profile, SessionOptions};
use crate::tools::{SessionValues, ToolSpec};
use crate::traces::Parent;
use crate::transport::resume::Returns;
use crate::transport::{Action, ClientMessage, Close, Dialect, close_code};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet, VecDeque};
use track::Track;
pub use track::{Edge, EdgeKind};

/// The default model name, also shown in the list of models.
pub const DEFAULT_MODEL: &str = "undertone";

/// A request to the session, to be matched with its answer.
#[derive(Debug)]
struct Pending {
    event_id: Option<String>,
    asked: Asked,
}

/// The kinds of requests that wait for the session's answer.
#[derive(Debug)]
enum Asked {
    /// Commit audio.
    Commit {
        length: Micros,
        /// Whether the client ended turns by hand.
        by_hand: bool,
        /// Whether turn detection was set behind it, before another commit: if it is refused, the words that the client
        /// was told of its audio are forgotten.
        ends_dictation: bool,
    },
    Respond(Box<ResponseRequest>),
    Cancel,
    /// Cancel because of `output_audio_buffer.clear`, which is not an error without an active response.
    ClearOutput,
    /// Truncate an item, once for each of the session's items that it represents.
    Truncate {
        name: String,
        /// Whether requests for the same item follow.
        more: bool,
    },
    /// Delete an item, once for each of the session's items that it represents.
    Delete(String),
    Add {
        name: String,
        id: ItemId,
        content: ItemContent,
        spot: Spot,
    },
    /// Pictures, of which the session is not told, wait for the items before them.
    Pictures {
        name: String,
        spot: Spot,
    },
}

impl Asked {
    /// The name of the matching [`Input`] in lower case without underscores; empty if there is none.
    fn input(&self) -> &'static str {
        match self {
            Self::Commit { .. } => "commitaudio",
            Self::Respond(_) => "respond",
            Self::Cancel | Self::ClearOutput => "cancelresponse",
            Self::Truncate { .. } => "truncate",
            Self::Delete(_) => "deleteitem",
            Self::Add { .. } => "additem",
            Self::Pictures { .. } => "",
        }
    }
}

/// An item that the client added as audio.
#[derive(Debug)]
struct Recording {
    /// Text in the same message.
    text: String,
    length: Micros,
}

/// The part of an utterance's transcript that a transcription session has sent as deltas.
#[derive(Debug, Default)]
struct Told {
    /// All deltas so far.
    text: String,
    /// The previous partial transcript.
    partial: String,
}

/// The user's current utterance.
#[derive(Debug)]
struct Utterance {
    name: String,
    from: Samples,
    to: Option<Samples>,
    /// Whether the client was told that transcription failed.
    failed: bool,
}

/// A turn that the client has committed and that waits for its words.
#[derive(Debug)]
struct Committed {
    name: String,
    length: Micros,
    /// Its transcript deltas.
    told: Told,
    /// Whether the client was told that transcription failed.
    failed: bool,
}

/// The state of one client of `/v1/realtime`. Pure: messages and events in, [`Action`]s out.
#[derive(Debug)]
pub struct Realtime {
    options: SessionOptions,
    writer: Writer,
    session: Session,
    /// Settings to apply when the session opens, in order.
    configuration: Vec<Settings>,
    items: Items,
    utterance: Option<Utterance>,
    /// Turns that the client has committed, as the session has accepted them.
    committed: VecDeque<Committed>,
    /// The name of the item that the next commit makes, if the client knows words of it.
    next_item: Option<String>,
    response: Option<Response>,
    /// Whether the opening waits for the client's first update.
    opening_waits: bool,
    /// Out-of-band text responses that were requested, each with the id of the client's event.
    /// Those that have begun are in `asides`.
    next_asides: VecDeque<(Option<String>, ResponseRequest)>,
    asides: HashMap<TurnId, Response>,
    aside_items: u64,
    decoder: Decoder,
    /// Set if audio goes over a track instead of in events.
    track: Option<Track>,
    /// Set if audio was on a track before: the session takes its rate.
    to_track_rate: Option<Resampler>,
    /// User audio since the last response.
    heard: Micros,
    /// Items added as audio that wait for their transcripts.
    recordings: HashMap<ItemId, Recording>,
    /// Transcript deltas of the current utterance, or of audio that the client has not committed.
    told: Told,
    text_limits: TextLimits,
    /// The length of the client's instructions in characters, and its tools.
    set_up: (usize, Vec<ToolSpec>),
    /// Calls that wait for the client's output, by wire id.
    calls: HashMap<String, CallId>,
    early: EarlyCalls,
    /// The number of items and calls that the client has added.
    added: u64,
    server_calls: HashMap<CallId, ServerCall>,
    /// The call that waits for the user's confirmation, with its wire id.
    confirmation: Option<(String, CallId)>,
    pending: VecDeque<Pending>,
    uncommitted: Micros,
    created_text: usize,
    failure: Option<(String, String)>,
    overrun_told: bool,
    /// Fields without effect that have been logged.
    logged: HashSet<String>,
    actions: Vec<Action>,
    /// The time of the event that is being translated.
    at: Option<Time>,
}

/// A running call to one of the server's tools.
#[derive(Debug)]
struct ServerCall {
    item: String,
    response: String,
    index: usize,
}

impl Realtime {
    /// `model` is the model name that the client gave, `client` the client's own name, and
    /// `vendor_events` whether it opted in to vendor events.
    pub fn new(model: Option<String>, client: Option<String>, vendor_events: bool) -> Self {
        let writer = Writer::new();
        let name = model.as_deref().unwrap_or(DEFAULT_MODEL);
        let session = Session::new(&writer.session_id("sess"), name, vendor_events);
        let options = SessionOptions {
            model,
            client,
            opens_later: true,
            ..SessionOptions::new(Profile::Conversation, RATE)
        };
        Self {
            options,
            writer,
            session,
            configuration: Vec::new(),
            items: Items::default(),
            utterance: None,
            committed: VecDeque::new(),
            next_item: None,
            response: None,
            // No session of OpenAI's speaks first, so the first update comes when this one is open.
            opening_waits: true,
            next_asides: VecDeque::new(),
            asides: HashMap::new(),
            aside_items: 0,
            decoder: Decoder::new(Format::Pcm),
            track: None,
            to_track_rate: None,
            heard: Micros(0),
            recordings: HashMap::new(),
            told: Told::default(),
            text_limits: TextLimits::default(),
            set_up: (0, Vec::new()),
            calls: HashMap::new(),
            early: EarlyCalls::default(),
            added: 0,
            server_calls: HashMap::new(),
            confirmation: None,
            pending: VecDeque::new(),
            uncommitted: Micros(0),
            created_text: 0,
            failure: None,
            overrun_told: false,
            logged: HashSet::new(),
            actions: Vec::new(),
            at: None,
        }
    }

    /// Sets the operator's defaults for barge-in and for the VAD's speech probability threshold,
    /// which a client may override. Without this call, barge-in is allowed and the threshold is
    /// 0.5.
    #[must_use]
    pub fn turns(mut self, interrupt: bool, threshold: f32) -> Self {
        self.session = self.session.turns(interrupt, threshold);
        self
    }

    /// Sets the voices and recognisers that the client may choose.
    #[must_use]
    pub fn offering(mut self, offered: Offered) -> Self {
        self.session.offered = offered;
        self
    }

    /// Applies a session configuration that the client has before it connects, such as that of its secret;
    /// null means none. A later one goes over an earlier one. With one that does more than name type and model, the
    /// opening does not wait for an update.
    ///
    /// # Errors
    /// If the configuration is invalid, or has more text than [`Realtime::within`] allows.
    pub fn configured(mut self, session: Value) -> Result<Self, Fault> {
        self.opening_waits &= !configures(&session);
        self.preset(session)
    }

    /// Has the opening begin with the session: nobody will update it.
    pub fn open_at_once(&mut self) {
        self.opening_waits = false;
    }

    /// Applies what the client's query asks for. Its first update is still to come.
    ///
    /// # Errors
    /// As [`Realtime::configured`].
    pub fn preset(mut self, session: Value) -> Result<Self, Fault> {
        let Some(update) = secret_update(session)? else {
            return Ok(self);
        };
        self.session.check_voice(&update, false)?;
        self.check_set_up(&update)?;
        self.configuration.push(self.session.apply(update));
        self.decoder = Decoder::new(self.session.input);
        if self.session.transcribes {
            self.options.profile = Profile::ClientFirst;
        }
        Ok(self)
    }

    /// Sets when the client is told that the session expires, seconds since 1970. Nothing ends it then.
    #[must_use]
    pub fn expiring(mut self, at: u64) -> Self {
        self.session.set_expiry(at);
        self
    }

    /// The session's JSON, as sent to the client.
    pub fn shown(&self) -> Value {
        match self.writer.beta {
            true => self.session.to_beta_json(),
            false => self.session.to_json(),
        }
    }

    /// Turns it into a transcription session, which never answers.
    #[must_use]
    pub fn transcribing(mut self) -> Self {
        self.session.transcribes = true;
        self.configuration.push(Settings {
            transcribe_only: true,
            ..Settings::default()
        });
        self.options.profile = Profile::ClientFirst;
        self
    }

    /// Sets the agent that the client was granted or has chosen.
    #[must_use]
    pub fn with_agent(mut self, agent: Option<String>) -> Self {
        if let Some(name) = &agent {
            self.session.set_model(name);
        }
        self.options.agent = agent;
        self
    }

    /// Adds facts on the caller.
    #[must_use]
    pub fn knowing(mut self, values: SessionValues) -> Self {
        self.options.values.extend(values);
        self
    }

    /// Sets the client's span, to which the trace of the session belongs.
    #[must_use]
    pub fn traced(mut self, parent: Option<Parent>) -> Self {
        self.options.parent = parent;
        self
    }

    /// Sets whether the client shows the server's demonstration.
    #[must_use]
    pub fn demonstrating(mut self, demonstrates: bool) -> Self {
        self.options.demonstrates = demonstrates;
        self
    }

    /// Sets whether the client uses the protocol's beta.
    #[must_use]
    pub fn beta(mut self, beta: bool) -> Self {
        self.writer.beta = beta;
        self
    }

    /// Leaves out events that Azure's own clients do not know.
    #[must_use]
    pub fn for_azure(mut self, azure: bool) -> Self {
        self.writer.azure = azure;
        self
    }

    /// Limits the text that the client may add.
    #[must_use]
    pub fn within(mut self, limits: TextLimits) -> Self {
        self.text_limits = limits;
        self
    }

    fn tell(&mut self, kind: &str, mut fields: Value) {
        if let Some(at) = self.at.filter(|_| self.session.vendor_events) {
            fields["undertone_at"] = json!(at);
        }
        let event = self.writer.event(kind, fields);
        self.actions.extend(event.map(Action::Send));
    }

    fn tell_vendor(&mut self, kind: &str, fields: Value) {
        if self.session.vendor_events {
            self.tell(kind, fields);
        }
    }

    fn ask(&mut self, request: Input) {
        self.actions.push(Action::Request(request));
    }

    fn refuse(&mut self, fault: &Fault) {
        let event = self.writer.fault(fault);
        self.actions.push(Action::Send(event));
    }

    fn text(&mut self, text: &str) {
        match client_events::parse(text) {
            Err(fault) => self.refuse(&fault),
            Ok(event) => {
                self.log(event.ineffective);
                if let Err(fault) = self.request(event.request, &event.event_id) {
                    self.refuse(&Fault {
                        event_id: event.event_id,
                        ..fault
                    });
                }
            }
        }
    }

    /// Logs fields without effect, each once per session.
    fn log(&mut self, fields: Vec<Ineffective>) {
        for Ineffective { path, known } in fields {
            if self.logged.len() == MAX_NAMED || !self.logged.insert(path.clone()) {
                continue;
            }
            let field = path.escape_debug();
            match known {
                true => tracing::info!(%field, "the client set a field that has no effect"),
                false => tracing::warn!(%field, "the client set an unknown field"),
            }
        }
    }

    /// Audio in a binary message, for clients that opted in to vendor events.
    fn binary(&mut self, bytes: &[u8]) {
        match self.append(bytes) {
            Ok(()) => {}
            Err(_) => self.actions.push(Action::Close(Close {
                code: close_code::INVALID,
                reason: "audio must be whole 16-bit samples",
            })),
        }
    }

    fn answered(&mut self, request: &str) -> Option<Pending> {
        let at = self
            .pending
            .iter()
            .position(|pending| pending.asked.input() == request)?;
        self.pending.remove(at)
    }

    /// Whether the client may request a response now. After a call to one of its tools it may do so
    /// while the filler is still playing, and while the opening is: the answer follows.
    fn may_respond(&self) -> bool {
        let called = self.response.as_ref().is_some_and(|r| r.client_called);
        let waits = |pending: &Pending| matches!(pending.asked, Asked::Respond(_));
        !self.is_answering() || (called || self.is_opening()) && !self.pending.iter().any(waits)
    }

    /// Whether the open response is the opening.
    fn is_opening(&self) -> bool {
        self.response.as_ref().is_some_and(|r| r.opens)
    }

    /// Whether a truncation or deletion of an item is pending.
    fn is_to_change(&self, item: &str) -> bool {
        self.pending.iter().any(|pending| {
            matches!(&pending.asked, Asked::Truncate { name, .. } | Asked::Delete(name) if name == item)
        })
    }

    /// Whether a response will be active once the pending requests have been carried out.
    fn is_answering(&self) -> bool {
        let asked = self.pending.iter().map(|pending| &pending.asked);
        asked.fold(self.response.is_some(), |open, asked| match asked {
            Asked::Respond(_) => true,
            Asked::Cancel | Asked::ClearOutput => false,
            _ => open,
        })
    }

    fn event(&mut self, event: Event) {
        let loses_words = event.loses_words();
        match event {
            Event::SpeechStarted { at } => self.speech_started(at),
            Event::SpeechStopped { at } => self.speech_stopped(at),
            Event::PartialTranscript { text } => self.partial(&text),
            Event::UtteranceDropped => self.utterance_dropped(),
            Event::AudioCommitted => self.audio_committed(),
            Event::NothingToCommit { message } => self.nothing_to_commit(message),
            Event::AudioCleared => self.audio_cleared(),
            Event::UserItem { item, text, spoken } => self.user_item(item, &text, spoken),
            Event::ItemAdded { item } => self.item_added(item),
            Event::ItemTranscribed { item, text } => self.item_transcribed(item, &text),
            Event::ItemNotTranscribed { item, wordless } => {
                self.item_not_transcribed(item, wordless);
            }
            Event::IdleTimeout { from, to } => self.idle_timeout(from, to),
            Event::AsideStarted { aside } => self.aside_started(aside),
            Event::AsideText { aside, text } => self.aside_text(aside, &text),
            Event::AsideCalled {
                aside,
                name,
                arguments,
            } => self.aside_called(aside, &name, arguments),
            Event::AsideDone {
                aside,
                status,
                usage,
            } => self.aside_done(aside, status, usage),
            Event::ItemDeleted { item } => self.item_deleted(item),
            Event::ItemTruncated { item, heard, text } => self.item_truncated(item, heard, &text),
            Event::ResponseStarted {
                requested, opens, ..
            } => self.response_started(requested, opens),
            Event::AgentItemStarted { item } => self.agent_item_started(item),
            Event::AgentSpeech { clause, text, .. } => self.agent_speech(clause, &text),
            Event::AgentItemDone {
                item,
                text,
                interrupted,
            } => {
                self.agent_item_done(item, &text, interrupted);
            }
            Event::ToolCalled {
                item,
                call,
                name,
                arguments,
                by_client,
                run,
            } => match (by_client, run) {
                (false, _) => self.server_tool(item, call, &name, arguments),
                (true, None) => self.client_tool(item, call, &name, arguments),
                (true, Some(run)) => self.early_tool(item, call, run, &name, arguments),
            },
            Event::OutputAdded { item, call, output } => self.output_added(item, call, output),
            Event::ToolFinished { call, result, .. } => self.tool_finished(call, result),
            Event::ResponseDone {
                turn,
                status,
                latency,
                usage,
            } => {
                self.response_done(turn, status, *latency, usage);
            }
            Event::ConfirmationAsked {
                call,
                name,
                arguments,
                question,
            } => self.confirmation_asked(call, &name, arguments, &question),
            Event::ConfirmationEnded { call, outcome } => self.confirmation_ended(call, outcome),
            Event::Speculation(event) => {
                self.early_call(&event);
                self.tell_vendor("undertone.speculation", json!(event));
            }
            Event::TurnRecorded(record) => {
                self.tell_vendor("undertone.turn_record", json!(record));
            }
            Event::AgentChanged { agent } => self.agent_changed(&agent),
            Event::StageFailed { stage, message } => {
                self.stage_failed(stage, message, loses_words);
            }
            Event::Refused { request, message } => self.refused(&request, message),
            // The protocol has no such event.
            Event::Unable { .. } | Event::MachineAnswered | Event::ClientReturned => {}
        }
    }
}

impl Dialect for Realtime {
    fn start(&mut self) -> Vec<Action> {
        // The session begins with them, because the greeting is spoken before any request.
        let speaker = &mut self.options.speaker;
        for settings in &self.configuration {
            if let Some(chosen) = &settings.speaker {
                speaker.voice.clone_from(&chosen.voice);
                speaker.speed = chosen.speed;
            }
            if let Some(language) = &settings.language {
                speaker.language = Some(language.clone());
            }
            if let Some(name) = &settings.recogniser {
                self.options.recogniser = Some(name.clone()).filter(|name| !name.is_empty());
            }
            if let Some(terms) = settings.keyterms.as_ref().filter(|terms| !terms.is_empty()) {
                self.options.keyterms = Some(terms.as_slice().into());
            }
        }
        self.actions.push(Action::Open(self.options.clone()));
        self.configuration.push(Settings {
            releases_opening: !self.opening_waits,
            ..Settings::default()
        });
        for configuration in std::mem::take(&mut self.configuration) {
            if configuration != Settings::default() {
                self.ask(Input::Configure(Box::new(configuration)));
            }
        }
        let session = self.shown();
        self.tell("session.created", json!({ "session": session }));
        if self.writer.beta {
            let id = self.writer.session_id("conv");
            let conversation = json!({"id": id, "object": "realtime.conversation"});
            self.tell(
                "conversation.created",
                json!({ "conversation": conversation }),
            );
        }
        std::mem::take(&mut self.actions)
    }

    fn returns(&mut self) -> Option<&mut dyn Returns> {
        Some(self)
    }

    fn is_busy(&self) -> bool {
        self.has_no_room()
    }

    fn client(&mut self, message: ClientMessage<'_>) -> Vec<Action> {
        match message {
            ClientMessage::Text(text) => self.text(text),
            ClientMessage::Binary(_) if self.track.is_some() => {
                if let Err(fault) = self.check_audio_in_events() {
                    self.refuse(&fault);
                }
            }
            ClientMessage::Binary(bytes) if self.session.vendor_events => self.binary(bytes),
            ClientMessage::Binary(_) => self.actions.push(Action::Close(Close {
                code: close_code::UNSUPPORTED,
                reason: "events are text messages",
            })),
        }
        std::mem::take(&mut self.actions)
    }

    fn session(&mut self, outbound: Outbound) -> Vec<Action> {
        match outbound {
            Outbound::Audio { item, samples, .. } => self.audio(item, &samples),
            Outbound::Clear => {
                self.actions.push(Action::DropAudio);
                self.track_cleared();
                self.tell_vendor("undertone.clear", json!({}));
            }
            Outbound::Event { at, event } => {
                self.at = Some(at);
                self.event(event);
                self.at = None;
            }
            // Nothing of this is part of the protocol.
            Outbound::TimerRings | Outbound::HangUp(_) | Outbound::Tones(_) | Outbound::Keys(_) => {
            }
        }
        std::mem::take(&mut self.actions)
    }

    /// Reported once per session, so that a flood of audio does not cause a flood of errors.
    fn overrun(&mut self, dropped: Micros) -> Vec<Action> {
        self.uncommitted = Micros(self.uncommitted.0.saturating_sub(dropped.0));
        if !std::mem::replace(&mut self.overrun_told, true) {
            let message = "Audio arrives faster than it can be processed, and more than 60 seconds \
                           of it are waiting; audio beyond that is dropped.";
            self.refuse(&Fault::new("input_audio_buffer_full", "audio", message));
        }
        std::mem::take(&mut self.actions)
    }
}

/// Parses the session configuration in a client secret.
fn secret_update(session: Value) -> Result<Option<SessionUpdate>, Fault> {
    if session.is_null() {
        return Ok(None);
    }
    let event = json!({"type": "session.update", "session": session}).to_string();
    match client_events::parse(&event)?.request {
        ClientRequest::Update(update) => Ok(Some(*update)),
        _ => Ok(None),
    }
}

fn merge(mut fields: Value, more: Value) -> Value {
    if let (Value::Object(fields), Value::Object(more)) = (&mut fields, more) {
        fields.extend(more);
    }
    fields
}

#[cfg(test)]
mod tests;
