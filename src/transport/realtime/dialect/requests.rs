//! What the client asks for.

use super::{Pending, Realtime};
use crate::conversation::{Input, Micros, NewItem};
use crate::transport::Effect;
use crate::transport::realtime::client_events::{
    ClientItem, ClientRequest, Fault, ItemContent, ResponseRequest,
};
use crate::transport::realtime::session_config::{RATE, SessionUpdate};
use serde_json::{Value, json};

/// The least audio that can be committed: OpenAI's limit.
const MIN_COMMIT: Micros = Micros::from_ms(100);

/// Text that a client may add to the history in one session, bytes.
const MAX_CREATED_TEXT: usize = 1024 * 1024;

/// Requests whose answers are outstanding.
pub(super) const MAX_PENDING: usize = 64;

impl Realtime {
    pub(super) fn request(
        &mut self,
        request: ClientRequest,
        event_id: &Option<String>,
    ) -> Result<(), Fault> {
        match request {
            ClientRequest::Update(update) => return self.update(*update),
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
            ClientRequest::Confirm { call, accept } => return self.confirm(&call, accept),
        }
        Ok(())
    }

    fn update(&mut self, update: SessionUpdate) -> Result<(), Fault> {
        let settings = self.session.apply(update);
        if settings != Default::default() {
            self.ask(Input::Configure(settings));
        }
        let session = self.session.to_json();
        self.tell("session.updated", json!({ "session": session }));
        Ok(())
    }

    fn confirm(&mut self, name: &str, accepted: bool) -> Result<(), Fault> {
        let Some((_, call)) = self.confirmation.as_ref().filter(|(n, _)| n == name) else {
            let message = "No call of this id waits for a confirmation.";
            return Err(Fault::new("confirmation_not_found", "call_id", message));
        };
        let call = *call;
        self.ask(Input::Confirm { call, accepted });
        Ok(())
    }

    pub(super) fn append(&mut self, samples: Vec<i16>) {
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

    pub(super) fn refused(&mut self, request: &str, message: String) {
        let request = request.replace('_', "").to_lowercase();
        let pending = self.answered(&request);
        if let Some((_, content)) = pending.as_ref().and_then(|pending| pending.item.as_ref()) {
            self.created_text = self.created_text.saturating_sub(content.size());
        }
        let event_id = pending.and_then(|pending| pending.event_id);
        if request == "respond" {
            self.next_response = ResponseRequest::default();
        }
        self.refuse(&Fault {
            event_id,
            ..Fault::whole("request_refused", message)
        });
    }
}

fn unknown_item(name: &str) -> Fault {
    let name: String = name.chars().take(128).collect();
    let message = format!("Item with item_id '{name}' not found.");
    Fault::new("item_not_found", "item_id", message)
}
