//! The translator between a Realtime client and a session.

use super::client_events::{self, ClientItem, ClientRequest, Fault, ItemContent, ResponseRequest};
use super::items::Items;
use super::response::{Response, end_of};
use super::server_events::{self as shape, Writer};
use super::session_config::{RATE, Session, SessionUpdate};
use crate::conversation::{
    CallId, Event, Input, ItemId, Micros, NewItem, ResponseStatus, Samples, TurnId, TurnLatency,
};
use crate::session::Outbound;
use crate::tools::ToolError;
use crate::transport::{
    ClientMessage, Close, Dialect, Door, Effect, Frame, SessionOptions, close_code,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use std::collections::{HashMap, VecDeque};

/// The least audio that can be committed: OpenAI's limit.
const MIN_COMMIT: Micros = Micros::from_ms(100);

/// Text that a client may add to the history in one session, bytes.
const MAX_CREATED_TEXT: usize = 1024 * 1024;

/// Requests whose answers are outstanding.
const MAX_PENDING: usize = 64;

/// The model's name if the client gives none.
const DEFAULT_MODEL: &str = "undertone";

/// Something asked of the session, to be matched with its answer.
#[derive(Debug)]
struct Pending {
    /// The name of the [`Input`] in lower case without underscores.
    request: &'static str,
    event_id: Option<String>,
    item: Option<(String, ItemContent)>,
}

/// The user's utterance that is under way.
#[derive(Debug)]
struct Utterance {
    name: String,
    from: Samples,
    to: Option<Samples>,
}

/// One client of `/v1/realtime`. Pure: text and events in, [`Effect`]s out.
#[derive(Debug)]
pub struct Realtime {
    options: SessionOptions,
    writer: Writer,
    session: Session,
    items: Items,
    utterance: Option<Utterance>,
    response: Option<Response>,
    next_response: ResponseRequest,
    calls: HashMap<String, CallId>,
    server_calls: HashMap<CallId, ServerCall>,
    pending: VecDeque<Pending>,
    uncommitted: Micros,
    created_text: usize,
    failure: Option<(String, String)>,
    overrun_told: bool,
    effects: Vec<Effect>,
}

/// A call to one of the server's tools that has not ended.
#[derive(Debug)]
struct ServerCall {
    item: String,
    response: String,
    index: usize,
}

impl Realtime {
    /// `model` and `client` are what the client named, `vendor_events` whether it asked for the
    /// events that only this server has.
    pub fn new(model: Option<String>, client: Option<String>, vendor_events: bool) -> Self {
        let writer = Writer::new();
        let name = model.as_deref().unwrap_or(DEFAULT_MODEL);
        let session = Session::new(&writer.session_id("sess"), name, vendor_events);
        let options = SessionOptions {
            door: Door::Realtime,
            input_rate: RATE,
            output_rate: RATE,
            model,
            client,
        };
        Self {
            options,
            writer,
            session,
            items: Items::default(),
            utterance: None,
            response: None,
            next_response: ResponseRequest::default(),
            calls: HashMap::new(),
            server_calls: HashMap::new(),
            pending: VecDeque::new(),
            uncommitted: Micros(0),
            created_text: 0,
            failure: None,
            overrun_told: false,
            effects: Vec::new(),
        }
    }

    fn tell(&mut self, kind: &str, fields: Value) {
        let event = self.writer.event(kind, fields);
        self.effects.push(Effect::Send(event));
    }

    fn tell_vendor(&mut self, kind: &str, fields: Value) {
        if self.session.vendor_events {
            self.tell(kind, fields);
        }
    }

    fn ask(&mut self, request: Input) {
        self.effects.push(Effect::Request(request));
    }

    fn refuse(&mut self, fault: &Fault) {
        let event = self.writer.fault(fault);
        self.effects.push(Effect::Send(event));
    }

    fn text(&mut self, text: &str) {
        match client_events::parse(text) {
            Err(fault) => self.refuse(&fault),
            Ok(event) => {
                if let Err(fault) = self.request(event.request, &event.event_id) {
                    self.refuse(&Fault {
                        event_id: event.event_id,
                        ..fault
                    });
                }
            }
        }
    }

    fn request(&mut self, request: ClientRequest, event_id: &Option<String>) -> Result<(), Fault> {
        match request {
            ClientRequest::Update(update) => self.update(*update),
            ClientRequest::Append(samples) => self.append(samples),
            ClientRequest::Commit => return self.commit(event_id),
            ClientRequest::Clear => self.clear(),
            ClientRequest::Create { previous, item } => {
                return self.create(previous, item, event_id);
            }
            ClientRequest::Retrieve(name) => return self.retrieve(&name),
            ClientRequest::Truncate { item, audio_end_ms } => {
                return self.truncate(&item, audio_end_ms, event_id);
            }
            ClientRequest::Delete(name) => return self.delete(&name, event_id),
            ClientRequest::Respond(request) => return self.respond(request, event_id),
            ClientRequest::Cancel { response } => return self.cancel(response, event_id),
            ClientRequest::ClearOutput => self.clear_output(),
        }
        Ok(())
    }

    fn update(&mut self, update: SessionUpdate) {
        let settings = self.session.apply(update);
        if settings != Default::default() {
            self.ask(Input::Configure(settings));
        }
        let session = self.session.to_json();
        self.tell("session.updated", json!({ "session": session }));
    }

    fn append(&mut self, samples: Vec<i16>) {
        let length = Micros::of_samples(samples.len() as u64, RATE);
        self.uncommitted = self.uncommitted + length;
        self.effects.push(Effect::Audio(samples));
    }

    fn commit(&mut self, event_id: &Option<String>) -> Result<(), Fault> {
        if self.uncommitted < MIN_COMMIT {
            let message = format!(
                "Error committing input audio buffer: buffer too small. Expected at least 100ms of \
                 audio, but buffer only has {}ms of audio.",
                self.uncommitted.as_ms()
            );
            return Err(Fault::whole("input_audio_buffer_commit_empty", message));
        }
        self.expect("commitaudio", event_id, None)?;
        self.uncommitted = Micros(0);
        self.ask(Input::CommitAudio);
        Ok(())
    }

    fn clear(&mut self) {
        self.uncommitted = Micros(0);
        self.ask(Input::ClearAudio);
        self.tell("input_audio_buffer.cleared", json!({}));
    }

    fn create(
        &mut self,
        previous: Option<String>,
        item: ClientItem,
        event_id: &Option<String>,
    ) -> Result<(), Fault> {
        let name = match item.id {
            Some(name) => self.check_new(name)?,
            None => self.writer.id("item"),
        };
        self.check_place(previous)?;
        let size = item.content.size();
        if self.created_text + size > MAX_CREATED_TEXT {
            let message = "The items of this session hold too much text.";
            return Err(Fault::new("conversation_too_long", "item", message));
        }
        let new = self.new_item(&item.content)?;
        self.expect("additem", event_id, Some((name, item.content)))?;
        self.created_text += size;
        self.ask(Input::AddItem { item: new });
        Ok(())
    }

    fn check_new(&self, name: String) -> Result<String, Fault> {
        let coming = self
            .pending
            .iter()
            .filter_map(|pending| pending.item.as_ref());
        if self.items.get(&name).is_some() || coming.into_iter().any(|(other, _)| *other == name) {
            let message = format!("Error adding item: the item with id '{name}' already exists.");
            return Err(Fault::new("item_create_duplicate_id", "item.id", message));
        }
        Ok(name)
    }

    /// Items can only be added at the end.
    fn check_place(&self, previous: Option<String>) -> Result<(), Fault> {
        let Some(previous) = previous else {
            return Ok(());
        };
        let coming = self
            .pending
            .iter()
            .rev()
            .find_map(|pending| pending.item.as_ref());
        let last = coming.map(|(name, _)| name.as_str()).or(self.items.last());
        if previous == last.unwrap_or("root") {
            return Ok(());
        }
        let message = match last {
            Some(last) => format!("Items can only be added at the end, after '{last}'."),
            None => "The conversation is empty: leave this out.".to_owned(),
        };
        Err(Fault::new("invalid_value", "previous_item_id", message))
    }

    fn new_item(&mut self, content: &ItemContent) -> Result<NewItem, Fault> {
        Ok(match content.clone() {
            ItemContent::System(text) => NewItem::System { text },
            ItemContent::User(text) => NewItem::User { text },
            ItemContent::Agent(text) => NewItem::Agent { text },
            ItemContent::ToolOutput { call, output } => {
                let call = *self.calls.get(&call).ok_or_else(|| {
                    let message = format!("No tool call '{call}' is waiting for its output.");
                    Fault::new("invalid_tool_call_id", "item.call_id", message)
                })?;
                let output = serde_json::from_str(&output).unwrap_or(Value::String(output));
                NewItem::ToolOutput { call, output }
            }
        })
    }

    fn retrieve(&mut self, name: &str) -> Result<(), Fault> {
        let item = self
            .items
            .get(name)
            .ok_or_else(|| unknown_item(name))?
            .json
            .clone();
        self.tell("conversation.item.retrieved", json!({ "item": item }));
        Ok(())
    }

    fn truncate(
        &mut self,
        name: &str,
        audio_end_ms: u64,
        event_id: &Option<String>,
    ) -> Result<(), Fault> {
        let item = self.items.get(name).ok_or_else(|| unknown_item(name))?;
        if item.json["role"] != "assistant" {
            let message = "Only messages of the assistant can be truncated.";
            return Err(Fault::new("invalid_value", "item_id", message));
        }
        let (id, length) = (item.id, item.audio.as_ms());
        if audio_end_ms > length {
            let message =
                format!("Audio content of {length}ms is already shorter than {audio_end_ms}ms");
            return Err(Fault::new("invalid_value", "audio_end_ms", message));
        }
        self.expect("truncate", event_id, None)?;
        self.ask(Input::Truncate {
            item: id,
            heard: Micros::from_ms(audio_end_ms),
        });
        Ok(())
    }

    fn delete(&mut self, name: &str, event_id: &Option<String>) -> Result<(), Fault> {
        let id = self.items.get(name).ok_or_else(|| unknown_item(name))?.id;
        self.expect("deleteitem", event_id, None)?;
        self.ask(Input::DeleteItem { item: id });
        Ok(())
    }

    fn respond(
        &mut self,
        request: ResponseRequest,
        event_id: &Option<String>,
    ) -> Result<(), Fault> {
        if let Some(response) = &self.response {
            let message = format!(
                "Conversation already has an active response in progress: {}. Wait until the \
                 response is finished before creating a new one.",
                response.id
            );
            return Err(Fault::whole(
                "conversation_already_has_active_response",
                message,
            ));
        }
        self.expect("respond", event_id, None)?;
        let instructions = request.instructions.clone();
        self.next_response = request;
        self.ask(Input::Respond { instructions });
        Ok(())
    }

    fn cancel(&mut self, response: Option<String>, event_id: &Option<String>) -> Result<(), Fault> {
        let active = self.response.as_ref().map(|response| response.id.as_str());
        if active.is_none() || response.as_deref().is_some_and(|id| Some(id) != active) {
            let message = "Cancellation failed: no active response found";
            return Err(Fault::whole("response_cancel_not_active", message));
        }
        self.expect("cancelresponse", event_id, None)?;
        self.ask(Input::CancelResponse);
        Ok(())
    }

    fn clear_output(&mut self) {
        self.effects.push(Effect::DropAudio);
        let id = self.response.as_ref().map(|response| response.id.clone());
        if id.is_some() {
            self.ask(Input::CancelResponse);
        }
        self.tell("output_audio_buffer.cleared", json!({ "response_id": id }));
    }

    /// Remembers a request until the session answers it.
    fn expect(
        &mut self,
        request: &'static str,
        event_id: &Option<String>,
        item: Option<(String, ItemContent)>,
    ) -> Result<(), Fault> {
        if self.pending.len() == MAX_PENDING {
            // What only names an event id may be forgotten; an item may not.
            let Some(at) = self
                .pending
                .iter()
                .position(|pending| pending.item.is_none())
            else {
                let message = "Too many items are waiting to be added.";
                return Err(Fault::whole("rate_limit_exceeded", message));
            };
            self.pending.remove(at);
        }
        self.pending.push_back(Pending {
            request,
            event_id: event_id.clone(),
            item,
        });
        Ok(())
    }

    fn answered(&mut self, request: &str) -> Option<Pending> {
        let at = self
            .pending
            .iter()
            .position(|pending| pending.request == request)?;
        self.pending.remove(at)
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::SpeechStarted { at } => self.speech_started(at),
            Event::SpeechStopped { at } => self.speech_stopped(at),
            Event::PartialTranscript { text } => self.partial(&text),
            Event::UtteranceDropped => self.utterance_dropped(),
            Event::UserItem { item, text, spoken } => self.user_item(item, &text, spoken),
            Event::ItemAdded { item } => self.item_added(item),
            Event::ItemDeleted { item } => self.item_deleted(item),
            Event::ItemTruncated { item, heard, text } => self.item_truncated(item, heard, &text),
            Event::ResponseStarted { .. } => self.response_started(),
            Event::AgentItemStarted { item } => self.agent_item_started(item),
            Event::AgentSpeech { text, .. } => self.agent_speech(&text),
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
            } => {
                self.tool_called(item, call, &name, arguments, by_client);
            }
            Event::ToolFinished { call, result, .. } => self.tool_finished(call, result),
            Event::ResponseDone {
                turn,
                status,
                latency,
            } => {
                self.response_done(turn, status, latency);
            }
            Event::StageFailed { stage, message } => self.stage_failed(stage, message),
            Event::Refused { request, message } => self.refused(&request, message),
        }
    }

    fn speech_started(&mut self, at: Samples) {
        let name = match self.utterance.take() {
            Some(utterance) => utterance.name,
            None => self.writer.id("item"),
        };
        self.tell(
            "input_audio_buffer.speech_started",
            json!({"audio_start_ms": at.as_ms(), "item_id": name}),
        );
        self.utterance = Some(Utterance {
            name,
            from: at,
            to: None,
        });
    }

    fn speech_stopped(&mut self, at: Samples) {
        let Some(utterance) = &mut self.utterance else {
            return;
        };
        utterance.to = Some(at);
        let name = utterance.name.clone();
        self.tell(
            "input_audio_buffer.speech_stopped",
            json!({"audio_end_ms": at.as_ms(), "item_id": name}),
        );
    }

    fn partial(&mut self, text: &str) {
        let name = self
            .utterance
            .as_ref()
            .map(|utterance| utterance.name.clone());
        self.tell_vendor(
            "undertone.transcript.partial",
            json!({"item_id": name, "text": text}),
        );
    }

    fn utterance_dropped(&mut self) {
        self.answered("commitaudio");
        let Some(utterance) = self.utterance.take() else {
            return;
        };
        if utterance.to.is_none() {
            self.tell(
                "input_audio_buffer.speech_stopped",
                json!({"audio_end_ms": utterance.from.as_ms(), "item_id": utterance.name}),
            );
        }
        self.tell_vendor(
            "undertone.utterance_dropped",
            json!({"item_id": utterance.name}),
        );
    }

    fn user_item(&mut self, item: ItemId, text: &str, spoken: bool) {
        if !spoken {
            let name = self.writer.id("item");
            let json = ItemContent::User(text.to_owned()).to_json(&name);
            self.add_item(&name, item, json.clone());
            self.item_done(&name, json);
            return;
        }
        self.answered("commitaudio");
        self.uncommitted = Micros(0);
        let utterance = self.utterance.take();
        let seconds = utterance.as_ref().map_or(0.0, Utterance::seconds);
        let name = match utterance {
            Some(utterance) => utterance.name,
            None => self.writer.id("item"),
        };
        let previous = self.items.last().map(str::to_owned);
        self.tell(
            "input_audio_buffer.committed",
            json!({"previous_item_id": previous, "item_id": name}),
        );
        let json = shape::spoken_item(&name, None);
        self.add_item(&name, item, json.clone());
        self.item_done_after(&name, previous, json);
        self.items
            .put(&name, item, shape::spoken_item(&name, Some(text)));
        if self.session.transcripts {
            self.transcript(&name, text, seconds);
        }
    }

    fn transcript(&mut self, name: &str, text: &str, seconds: f64) {
        self.tell(
            "conversation.item.input_audio_transcription.delta",
            json!({"item_id": name, "content_index": 0, "delta": text}),
        );
        self.tell(
            "conversation.item.input_audio_transcription.completed",
            json!({
                "item_id": name, "content_index": 0, "transcript": text,
                "usage": {"type": "duration", "seconds": seconds},
            }),
        );
    }

    /// Puts an item at the end and says so.
    fn add_item(&mut self, name: &str, id: ItemId, json: Value) {
        let previous = self.items.last().map(str::to_owned);
        self.items.put(name, id, json.clone());
        self.tell(
            "conversation.item.added",
            json!({"previous_item_id": previous, "item": json}),
        );
    }

    fn item_done(&mut self, name: &str, json: Value) {
        let previous = self.items.before(name).map(str::to_owned);
        self.item_done_after(name, previous, json);
    }

    fn item_done_after(&mut self, name: &str, previous: Option<String>, json: Value) {
        if let Some(item) = self.items.get_mut(name) {
            item.json = json.clone();
        }
        self.tell(
            "conversation.item.done",
            json!({"previous_item_id": previous, "item": json}),
        );
    }

    fn item_added(&mut self, id: ItemId) {
        let Some(Pending {
            item: Some((name, content)),
            ..
        }) = self.answered("additem")
        else {
            return;
        };
        if let ItemContent::ToolOutput { call, .. } = &content {
            self.calls.remove(call);
        }
        let json = content.to_json(&name);
        self.add_item(&name, id, json.clone());
        self.item_done(&name, json);
    }

    fn item_deleted(&mut self, id: ItemId) {
        self.answered("deleteitem");
        let Some(name) = self.items.name(id).map(str::to_owned) else {
            return;
        };
        self.items.remove(&name);
        self.tell("conversation.item.deleted", json!({"item_id": name}));
    }

    fn item_truncated(&mut self, id: ItemId, heard: Micros, text: &str) {
        self.answered("truncate");
        let Some(name) = self.items.name(id).map(str::to_owned) else {
            return;
        };
        self.items.put(
            &name,
            id,
            shape::agent_item(&name, "incomplete", false, Some(text)),
        );
        self.tell(
            "conversation.item.truncated",
            json!({"item_id": name, "content_index": 0, "audio_end_ms": heard.as_ms()}),
        );
    }

    fn response_started(&mut self) {
        self.answered("respond");
        let request = std::mem::take(&mut self.next_response);
        let response = Response {
            id: self.writer.id("resp"),
            text_only: request.text_only.unwrap_or(self.session.text_only),
            metadata: request.metadata,
            output: Vec::new(),
            speech: None,
        };
        let json = self.response_json(&response, "in_progress", Value::Null, Value::Null);
        self.failure = None;
        self.response = Some(response);
        self.tell("response.created", json!({ "response": json }));
    }

    fn response_json(
        &self,
        response: &Response,
        status: &str,
        details: Value,
        usage: Value,
    ) -> Value {
        let output: Vec<&Value> = response
            .output
            .iter()
            .filter_map(|name| Some(&self.items.get(name)?.json))
            .collect();
        json!({
            "object": "realtime.response",
            "id": response.id,
            "conversation_id": self.writer.session_id("conv"),
            "status": status,
            "status_details": details,
            "output": output,
            "output_modalities": super::session_config::modalities(response.text_only),
            "audio": self.session.output(),
            "max_output_tokens": "inf",
            "metadata": response.metadata,
            "usage": usage,
        })
    }

    /// Adds an item to the open response and says so. Returns the response's id and the item's
    /// place in it; `None` if no response is open.
    fn output_item(&mut self, name: &str, id: ItemId, json: Value) -> Option<(String, usize)> {
        let response = self.response.as_mut()?;
        let (response_id, index) = (response.id.clone(), response.output.len());
        response.output.push(name.to_owned());
        self.tell(
            "response.output_item.added",
            json!({"response_id": response_id, "output_index": index, "item": json}),
        );
        self.add_item(name, id, json);
        Some((response_id, index))
    }

    fn output_item_done(&mut self, response: &str, index: usize, name: &str, json: Value) {
        self.tell(
            "response.output_item.done",
            json!({"response_id": response, "output_index": index, "item": json}),
        );
        self.item_done(name, json);
    }

    fn agent_item_started(&mut self, item: ItemId) {
        let name = self.writer.id("item");
        let json = shape::agent_item(&name, "in_progress", false, None);
        if self.output_item(&name, item, json).is_none() {
            return;
        }
        let Some(response) = self.response.as_mut() else {
            return;
        };
        let part = shape::content_part(response.text_only, "");
        let place = response.open_speech(name);
        self.tell(
            "response.content_part.added",
            merge(place, json!({ "part": part })),
        );
    }

    fn agent_speech(&mut self, text: &str) {
        let Some(response) = self.response.as_mut() else {
            return;
        };
        let Some((place, delta)) = response.say(text) else {
            return;
        };
        let kind = match response.text_only {
            true => "response.output_text.delta",
            false => "response.output_audio_transcript.delta",
        };
        self.tell(kind, merge(place, json!({ "delta": delta })));
    }

    fn audio(&mut self, item: ItemId, samples: &[i16]) {
        let length = Micros::of_samples(samples.len() as u64, RATE);
        let Some(response) = &self.response else {
            return;
        };
        let Some(name) = self.items.name(item).map(str::to_owned) else {
            return;
        };
        if response.text_only {
            return;
        }
        let Some(index) = response.output.iter().position(|other| *other == name) else {
            return;
        };
        let place = response.place(&name, index);
        if let Some(item) = self.items.get_mut(&name) {
            item.audio = item.audio + length;
        }
        let delta = STANDARD.encode(crate::audio::to_pcm16le(samples));
        let event = self.writer.event(
            "response.output_audio.delta",
            merge(place, json!({ "delta": delta })),
        );
        self.effects.push(Effect::SendAudio {
            frame: Frame::Text(event),
            length,
        });
    }

    fn agent_item_done(&mut self, item: ItemId, text: &str, interrupted: bool) {
        let Some(name) = self.items.name(item).map(str::to_owned) else {
            return;
        };
        let Some(response) = self.response.as_mut() else {
            return;
        };
        let Some(speech) = response.speech.take_if(|speech| speech.name == name) else {
            return;
        };
        let (place, text_only) = (response.place(&name, speech.index), response.text_only);
        let id = response.id.clone();
        if text_only {
            self.tell(
                "response.output_text.done",
                merge(place.clone(), json!({ "text": text })),
            );
        } else {
            self.tell("response.output_audio.done", place.clone());
            self.tell(
                "response.output_audio_transcript.done",
                merge(place.clone(), json!({ "transcript": text })),
            );
        }
        let part = shape::content_part(text_only, text);
        self.tell(
            "response.content_part.done",
            merge(place, json!({ "part": part })),
        );
        let status = if interrupted {
            "incomplete"
        } else {
            "completed"
        };
        let json = shape::agent_item(&name, status, text_only, Some(text));
        self.output_item_done(&id, speech.index, &name, json);
    }

    fn tool_called(
        &mut self,
        item: ItemId,
        call: CallId,
        name: &str,
        arguments: Map<String, Value>,
        by_client: bool,
    ) {
        let arguments = Value::Object(arguments).to_string();
        if by_client {
            self.client_tool(item, call, name, &arguments);
        } else {
            self.server_tool(item, call, name, &arguments);
        }
    }

    fn client_tool(&mut self, id: ItemId, call: CallId, tool: &str, arguments: &str) {
        let (item, call_id) = (self.writer.id("item"), self.writer.id("call"));
        let json = shape::function_call(&item, &call_id, tool, "in_progress", "");
        let Some((response, index)) = self.output_item(&item, id, json) else {
            return;
        };
        self.calls.insert(call_id.clone(), call);
        let place = json!({
            "response_id": response, "item_id": item, "output_index": index, "call_id": call_id,
        });
        self.tell(
            "response.function_call_arguments.delta",
            merge(place.clone(), json!({ "delta": arguments })),
        );
        self.tell(
            "response.function_call_arguments.done",
            merge(place, json!({ "name": tool, "arguments": arguments })),
        );
        let json = shape::function_call(&item, &call_id, tool, "completed", arguments);
        self.output_item_done(&response, index, &item, json);
    }

    fn server_tool(&mut self, id: ItemId, call: CallId, tool: &str, arguments: &str) {
        let item = self.writer.id("item");
        let json = shape::server_call(&item, tool, "");
        let Some((response, index)) = self.output_item(&item, id, json) else {
            return;
        };
        let place = json!({"response_id": response, "item_id": item, "output_index": index});
        self.tell(
            "response.mcp_call_arguments.delta",
            merge(
                place.clone(),
                json!({ "delta": arguments, "obfuscation": "" }),
            ),
        );
        self.tell(
            "response.mcp_call_arguments.done",
            merge(place, json!({ "arguments": arguments })),
        );
        self.items
            .put(&item, id, shape::server_call(&item, tool, arguments));
        self.tell(
            "response.mcp_call.in_progress",
            json!({"item_id": item, "output_index": index}),
        );
        self.server_calls.insert(
            call,
            ServerCall {
                item,
                response,
                index,
            },
        );
    }

    fn tool_finished(&mut self, call: CallId, result: Result<Value, ToolError>) {
        let Some(ServerCall {
            item,
            response,
            index,
        }) = self.server_calls.remove(&call)
        else {
            return;
        };
        let Some(mut json) = self.items.get(&item).map(|item| item.json.clone()) else {
            return;
        };
        let kind = match result {
            Ok(output) => {
                json["output"] = text_of(output).into();
                "response.mcp_call.completed"
            }
            Err(error) => {
                json["error"] =
                    json!({"type": "tool_execution_error", "message": error.to_string()});
                "response.mcp_call.failed"
            }
        };
        self.tell(kind, json!({"item_id": item, "output_index": index}));
        self.output_item_done(&response, index, &item, json);
    }

    fn response_done(&mut self, turn: TurnId, status: ResponseStatus, latency: TurnLatency) {
        self.answered("cancelresponse");
        self.close_speech();
        let Some(response) = self.response.take() else {
            return;
        };
        let (status, details) = end_of(status, self.failure.take());
        let json = self.response_json(&response, status, details, shape::no_usage());
        self.tell("response.done", json!({ "response": json }));
        self.tell_vendor(
            "undertone.turn",
            json!({"response_id": response.id, "turn": turn.to_string(), "status": status,
                "latency": latency}),
        );
    }

    /// Ends an item of speech that the session left open.
    fn close_speech(&mut self) {
        let Some(speech) = self
            .response
            .as_ref()
            .and_then(|response| response.speech.as_ref())
        else {
            return;
        };
        let text = speech.text.clone();
        if let Some(id) = self.items.get(&speech.name).map(|item| item.id) {
            self.agent_item_done(id, &text, true);
        }
    }

    fn stage_failed(&mut self, stage: String, message: String) {
        self.tell_vendor(
            "undertone.stage_failed",
            json!({"stage": stage, "message": message}),
        );
        let code = format!("{stage}_failed");
        match (&self.utterance, &self.response) {
            (Some(utterance), _) if stage == "asr" => {
                let fields = json!({
                    "item_id": utterance.name, "content_index": 0,
                    "error": {"type": "server_error", "code": code, "message": message},
                });
                self.tell("conversation.item.input_audio_transcription.failed", fields);
            }
            (_, Some(_)) => self.failure = Some((code, message)),
            (_, None) => {
                let event = self.writer.server_error(&code, &message);
                self.effects.push(Effect::Send(event));
            }
        }
    }

    fn refused(&mut self, request: &str, message: String) {
        let request = request.replace('_', "").to_lowercase();
        let event_id = self.answered(&request).and_then(|pending| pending.event_id);
        if request == "respond" {
            self.next_response = ResponseRequest::default();
        }
        self.refuse(&Fault {
            event_id,
            ..Fault::whole("request_refused", message)
        });
    }
}

impl Dialect for Realtime {
    fn start(&mut self) -> Vec<Effect> {
        self.effects.push(Effect::Open(self.options.clone()));
        let session = self.session.to_json();
        self.tell("session.created", json!({ "session": session }));
        std::mem::take(&mut self.effects)
    }

    fn client(&mut self, message: ClientMessage<'_>) -> Vec<Effect> {
        match message {
            ClientMessage::Text(text) => self.text(text),
            ClientMessage::Binary(_) => self.effects.push(Effect::Close(Close {
                code: close_code::UNSUPPORTED,
                reason: "events are text messages",
            })),
        }
        std::mem::take(&mut self.effects)
    }

    fn session(&mut self, outbound: Outbound) -> Vec<Effect> {
        match outbound {
            Outbound::Audio { item, samples, .. } => self.audio(item, &samples),
            Outbound::Clear => {
                self.effects.push(Effect::DropAudio);
                self.tell_vendor("undertone.clear", json!({}));
            }
            Outbound::Event(event) => self.event(event),
            Outbound::HangUp(_) => {}
        }
        std::mem::take(&mut self.effects)
    }

    /// Told once: a flood of errors would answer a flood of audio.
    fn overrun(&mut self, dropped: Micros) -> Vec<Effect> {
        self.uncommitted = Micros(self.uncommitted.0.saturating_sub(dropped.0));
        if !std::mem::replace(&mut self.overrun_told, true) {
            let message = "Audio comes faster than it can be taken, and more than 60 seconds of it \
                           are waiting; what does not fit is dropped.";
            self.refuse(&Fault::new("input_audio_buffer_full", "audio", message));
        }
        std::mem::take(&mut self.effects)
    }
}

impl Utterance {
    fn seconds(&self) -> f64 {
        let samples = self.to.map_or(0, |to| to.since(self.from));
        samples as f64 / f64::from(Samples::RATE)
    }
}

fn unknown_item(name: &str) -> Fault {
    let name: String = name.chars().take(128).collect();
    let message = format!("Item with item_id '{name}' not found.");
    Fault::new("item_not_found", "item_id", message)
}

/// A tool's result as text.
fn text_of(output: Value) -> String {
    match output {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

fn merge(mut fields: Value, more: Value) -> Value {
    if let (Value::Object(fields), Value::Object(more)) = (&mut fields, more) {
        fields.extend(more);
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::ClauseId;
    use crate::transport::realtime::CLIENT_EVENTS;
    use proptest::prelude::*;

    fn events(effects: &[Effect]) -> Vec<Value> {
        let text = |effect: &Effect| match effect {
            Effect::Send(text) => serde_json::from_str(text).ok(),
            _ => None,
        };
        effects.iter().filter_map(text).collect()
    }

    fn any_client_event() -> impl Strategy<Value = String> {
        let value = prop_oneof![
            Just(json!(null)),
            Just(json!("item")),
            Just(json!("AAAA")),
            Just(json!(-1)),
            Just(json!(u64::MAX)),
            Just(json!({"type": "message", "role": "user", "content": []})),
            Just(json!({"type": "realtime", "tools": [{}]})),
            Just(json!([[]])),
        ];
        let field = prop_oneof![
            Just("item_id"),
            Just("audio"),
            Just("item"),
            Just("session"),
            Just("response"),
            Just("audio_end_ms"),
            Just("content_index"),
            Just("event_id"),
        ];
        let fields = prop::collection::vec((field, value), 0..4);
        (prop::sample::select(&CLIENT_EVENTS[..]), fields).prop_map(|(kind, fields)| {
            let mut event = json!({ "type": kind });
            for (field, value) in fields {
                event[field] = value;
            }
            event.to_string()
        })
    }

    fn any_session_event() -> impl Strategy<Value = Outbound> {
        let item = (0_u64..4).prop_map(ItemId);
        let events = prop_oneof![
            (0_u64..99).prop_map(|at| Event::SpeechStarted { at: Samples(at) }),
            (0_u64..99).prop_map(|at| Event::SpeechStopped { at: Samples(at) }),
            Just(Event::UtteranceDropped),
            (item.clone(), any::<bool>()).prop_map(|(item, spoken)| Event::UserItem {
                item,
                text: "u".into(),
                spoken
            }),
            item.clone().prop_map(|item| Event::ItemAdded { item }),
            item.clone().prop_map(|item| Event::ItemDeleted { item }),
            item.clone().prop_map(|item| Event::ItemTruncated {
                item,
                heard: Micros(u64::MAX),
                text: String::new()
            }),
            Just(Event::ResponseStarted { turn: TurnId(1) }),
            item.clone()
                .prop_map(|item| Event::AgentItemStarted { item }),
            item.clone().prop_map(|item| Event::AgentSpeech {
                item,
                clause: ClauseId(1),
                text: "a".into()
            }),
            (item.clone(), any::<bool>()).prop_map(|(item, interrupted)| Event::AgentItemDone {
                item,
                text: "a".into(),
                interrupted
            }),
            (item.clone(), any::<bool>()).prop_map(|(item, by_client)| Event::ToolCalled {
                item,
                call: CallId(1),
                name: "t".into(),
                arguments: Map::new(),
                by_client
            }),
            item.clone().prop_map(|item| Event::ToolFinished {
                item,
                call: CallId(1),
                result: Ok(json!(1))
            }),
            Just(Event::ResponseDone {
                turn: TurnId(1),
                status: ResponseStatus::Failed,
                latency: TurnLatency::default()
            }),
            Just(Event::Refused {
                request: "AddItem".into(),
                message: "no".into()
            }),
        ];
        prop_oneof![
            4 => events.prop_map(Outbound::Event),
            1 => item.prop_map(|item| Outbound::Audio {
                item,
                clause: ClauseId(1),
                samples: vec![1; 480]
            }),
            1 => Just(Outbound::Clear),
        ]
    }

    proptest! {
        /// Whatever comes in whatever order: no panic, and each event has its own id.
        #[test]
        fn any_order_of_anything_is_survived(
            steps in prop::collection::vec(
                prop_oneof![
                    any_client_event().prop_map(Ok),
                    any_session_event().prop_map(Err)
                ],
                0..60
            )
        ) {
            let mut realtime = Realtime::new(None, None, true);
            let mut all = events(&realtime.start());
            for step in steps {
                let effects = match &step {
                    Ok(text) => realtime.client(ClientMessage::Text(text)),
                    Err(outbound) => realtime.session(outbound.clone()),
                };
                all.extend(events(&effects));
            }
            let mut ids: Vec<_> = all.iter().map(|event| event["event_id"].to_string()).collect();
            let count = ids.len();
            ids.sort_unstable();
            ids.dedup();
            prop_assert_eq!(ids.len(), count);
        }
    }

    #[test]
    fn requests_that_are_never_answered_lock_nobody_out() {
        let mut realtime = Realtime::new(None, None, false);
        realtime.start();
        for _ in 0..10 * MAX_PENDING {
            let effects = realtime.client(ClientMessage::Text(r#"{"type":"response.create"}"#));
            assert!(matches!(
                effects[..],
                [Effect::Request(Input::Respond { .. })]
            ));
        }
    }
}
