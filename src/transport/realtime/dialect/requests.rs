//! Handles the client's requests.

use super::{Asked, Pending, Realtime, Recording};
use crate::conversation::{
    CallId, Context, EndOfTurnRule, Input, ItemId, Micros, NewItem, Place, ResponsePlace,
    ResponseTerms,
};
use crate::llm::Message;
use crate::transport::Action;
use crate::transport::realtime::client_events::{
    ClientItem, ClientRequest, InputItem, ItemContent, PICTURE, ResponseRequest,
};
use crate::transport::realtime::codec::{Decoder, RATE};
use crate::transport::realtime::early_calls::Meaning;
use crate::transport::realtime::fault::Fault;
use crate::transport::realtime::items::Spot;
use crate::transport::realtime::session_config::SessionUpdate;
use serde_json::{Map, Value, json};

/// Shortest audio that can be committed: OpenAI's limit.
const MIN_COMMIT: Micros = Micros::from_ms(100);

/// The most text that a client may add to the history in one session, bytes.
const MAX_CREATED_TEXT: usize = 1024 * 1024;

/// The most audio in items that wait to be transcribed.
const MAX_RECORDED: Micros = Micros::from_ms(60_000);

/// The size counted for an item in addition to its text and ids, bytes.
const ITEM: usize = 64;

/// OpenAI's error code for text that exceeds the prompt.
const TOO_LONG: &str = "string_above_max_length";

/// The most requests that may wait for the session's answer.
pub(super) const MAX_PENDING: usize = 64;

/// OpenAI's error code for a commit without audio, which clients tolerate.
const COMMIT_EMPTY: &str = "input_audio_buffer_commit_empty";

impl Realtime {
    pub(super) fn request(
        &mut self,
        request: ClientRequest,
        event_id: &Option<String>,
    ) -> Result<(), Fault> {
        match request {
            ClientRequest::Update(update) => return self.update(*update),
            ClientRequest::Append(bytes) => {
                self.check_audio_in_events()?;
                return self.append(&bytes);
            }
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
            ClientRequest::Respond(ref asked)
                if !asked.outside && self.early.needs_no_response() => {}
            ClientRequest::Respond(request) => return self.respond(request, event_id),
            ClientRequest::Cancel { response } => return self.cancel(response, event_id),
            ClientRequest::ClearOutput => return self.clear_output(),
            ClientRequest::Confirm { call, accept } => return self.confirm(&call, accept),
        }
        Ok(())
    }

    /// Refuses instructions and tools that do not fit a prompt, before the update is confirmed.
    pub(super) fn check_set_up(&mut self, update: &SessionUpdate) -> Result<(), Fault> {
        let instructions = update
            .instructions
            .as_ref()
            .map(|text| text.chars().count());
        let instructions = instructions.unwrap_or(self.set_up.0);
        let tools = update.tools.as_ref().map(|(tools, _)| tools);
        let tools = tools.unwrap_or(&self.set_up.1);
        let param = match update.instructions {
            Some(_) => "session.instructions",
            None => "session.tools",
        };
        self.text_limits
            .check_set_up(instructions, tools)
            .map_err(|message| Fault::new(TOO_LONG, param, message))?;
        self.set_up = (instructions, tools.clone());
        Ok(())
    }

    fn update(&mut self, update: SessionUpdate) -> Result<(), Fault> {
        if self.session.transcribes && update.transcribe_only == Some(false) {
            let message =
                "A transcription session cannot become a conversation: open another session.";
            return Err(Fault::new("invalid_value", "session.type", message));
        }
        let is_answering = self.is_answering() && !self.is_opening();
        self.session.check_voice(&update, is_answering)?;
        self.check_set_up(&update)?;
        let update = match self.writer.beta {
            true => self.session.without_shown_detection(update),
            false => update,
        };
        let mut settings = self.session.apply(update);
        settings.releases_opening = std::mem::take(&mut self.opening_waits);
        let detection = settings.turn_detection.as_ref();
        if detection.is_some_and(|detection| detection.rule != EndOfTurnRule::Client) {
            self.end_dictation();
        }
        if settings != Default::default() {
            self.ask(Input::Configure(Box::new(settings)));
        }
        if self.session.input != self.decoder.format() {
            self.decoder = Decoder::new(self.session.input);
        }
        if let Some(response) = &mut self.response {
            response.change_format(self.session.output);
        }
        let session = self.shown();
        self.tell("session.updated", json!({ "session": session }));
        Ok(())
    }

    /// Turn detection is set: forgets the words that the client was told of audio that it will not commit. If a commit
    /// is pending, they are those of its item, unless it is refused.
    fn end_dictation(&mut self) {
        let mut asked = self.pending.iter_mut().rev().map(|one| &mut one.asked);
        let last_commit = asked.find_map(|asked| match asked {
            Asked::Commit { ends_dictation, .. } => Some(ends_dictation),
            _ => None,
        });
        match last_commit {
            Some(ends_dictation) => *ends_dictation = true,
            None => self.forget_dictation(),
        }
    }

    fn confirm(&mut self, name: &str, accepted: bool) -> Result<(), Fault> {
        let Some((_, call)) = self.confirmation.as_ref().filter(|(n, _)| n == name) else {
            let message = "No call with this id is waiting for confirmation.";
            return Err(Fault::new("confirmation_not_found", "call_id", message));
        };
        let call = *call;
        self.ask(Input::Confirm { call, accepted });
        Ok(())
    }

    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let samples = self.decoder.decode(bytes)?;
        let length = Micros::of_samples(samples.len() as u64, RATE);
        self.uncommitted = self.uncommitted + length;
        if !samples.is_empty() {
            let samples = self.at_session_rate(samples);
            self.actions.push(Action::Audio(samples));
        }
        Ok(())
    }

    fn commit(&mut self, event_id: &Option<String>) -> Result<(), Fault> {
        if self.uncommitted < MIN_COMMIT {
            let message = format!(
                "Error committing input audio buffer: buffer too small. Expected at least 100ms of \
                 audio, but buffer only has {}ms of audio.",
                self.uncommitted.as_ms()
            );
            return Err(Fault::whole(COMMIT_EMPTY, message));
        }
        self.early.turns_to_other();
        let asked = Asked::Commit {
            length: self.uncommitted,
            by_hand: self.session.by_hand,
            ends_dictation: false,
        };
        self.expect(event_id, asked)?;
        self.uncommitted = Micros(0);
        self.ask(Input::CommitAudio);
        Ok(())
    }

    fn clear(&mut self) {
        self.uncommitted = Micros(0);
        self.ask(Input::ClearAudio);
    }

    fn create(
        &mut self,
        previous: Option<String>,
        item: ClientItem,
        event_id: &Option<String>,
    ) -> Result<(), Fault> {
        let is_pictures = item.content == ItemContent::Pictures;
        // Pictures may come all the time: the client turns to nothing else.
        if !is_pictures {
            self.early.turns_to_other();
        }
        let chosen = item.id.is_some();
        let name = match item.id {
            Some(name) => self.check_new(name)?,
            None => self.writer.id("item"),
        };
        if let ItemContent::ToolOutput { call, .. } = &item.content
            && self.early.meaning(call) != Meaning::Other
        {
            return self.answer_early(chosen.then_some(name), item.content);
        }
        let (spot, place) = self.spot(previous)?;
        if is_pictures {
            self.expect(event_id, Asked::Pictures { name, spot })?;
            self.add_pictures();
            return Ok(());
        }
        let size = footprint(&name, &item.content);
        if self.created_text + size > MAX_CREATED_TEXT {
            let message = "The items of this session exceed 1 MiB of text.";
            return Err(Fault::new("conversation_too_long", "item", message));
        }
        let audio = match &item.content {
            ItemContent::Spoken { text, audio } => {
                let audio = self.recorded(audio)?;
                let recording = self.recording(text, audio.len())?;
                Some((self.at_session_rate(audio), recording))
            }
            _ => None,
        };
        self.added += 1;
        let id = ItemId::of_client(self.added);
        let (content, item) = self.new_item(item.content)?;
        self.text_limits
            .check_item(&item)
            .map_err(|message| Fault::new(TOO_LONG, "item", message))?;
        let call = match (&content, &item) {
            (ItemContent::ToolCall { call: Some(id), .. }, NewItem::ToolCall { call, .. }) => {
                Some((id.clone(), *call))
            }
            _ => None,
        };
        let asked = Asked::Add {
            name,
            id,
            content,
            spot,
        };
        self.expect(event_id, asked)?;
        self.created_text += size;
        if let Some((name, call)) = call {
            self.calls.insert(name, call);
        }
        let item = Input::AddItem {
            id: Some(id),
            place,
            item,
        };
        match audio {
            Some((audio, recording)) => {
                self.recordings.insert(id, recording);
                let item = Box::new(item);
                self.actions.push(Action::Spoken { audio, id, item });
            }
            None => self.ask(item),
        }
        Ok(())
    }

    /// Takes in the output of a call that the client has begun early. It shows only when the call is
    /// committed. A late one changes nothing.
    fn answer_early(&mut self, name: Option<String>, content: ItemContent) -> Result<(), Fault> {
        let ItemContent::ToolOutput { call, output } = content else {
            return Ok(());
        };
        let Meaning::Output(run) = self.early.meaning(&call) else {
            self.early.answer(&call, name);
            return Ok(());
        };
        let output = output_of(output);
        let item = NewItem::ToolOutput {
            call: CallId::of_client(0),
            output,
        };
        self.text_limits
            .check_item(&item)
            .map_err(|message| Fault::new(TOO_LONG, "item", message))?;
        let NewItem::ToolOutput { output, .. } = item else {
            return Ok(());
        };
        self.early.answer(&call, name);
        let result = Ok(output);
        self.ask(Input::ToolFinished { run, result });
        Ok(())
    }

    /// Decodes recorded audio.
    fn recorded(&self, audio: &[(usize, Vec<u8>)]) -> Result<Vec<i16>, Fault> {
        let mut decoder = Decoder::new(self.session.input);
        let mut samples = Vec::new();
        for (index, part) in audio {
            let decoded = decoder.decode(part).map_err(|fault| Fault {
                param: Some(format!("item.content[{index}].audio")),
                ..fault
            });
            samples.extend(decoded?);
        }
        samples.extend(decoder.finish());
        Ok(samples)
    }

    /// A recording of `samples` samples, if it fits beside those that wait to be transcribed.
    fn recording(&self, text: &str, samples: usize) -> Result<Recording, Fault> {
        let length = Micros::of_samples(samples as u64, RATE);
        let waiting: u64 = self.recordings.values().map(|other| other.length.0).sum();
        if waiting + length.0 > MAX_RECORDED.0 || self.recordings.len() == MAX_PENDING {
            let message = format!(
                "At most {MAX_PENDING} items and {} seconds of audio may wait to be transcribed. Wait \
                 for earlier transcripts, and split longer audio into several items.",
                MAX_RECORDED.as_ms() / 1_000
            );
            return Err(Fault::new("rate_limit_exceeded", "item", message));
        }
        let text = text.to_owned();
        Ok(Recording { text, length })
    }

    fn check_new(&self, name: String) -> Result<String, Fault> {
        let is_taken = !self.ids_of(&name).is_empty() || self.items.is_wordless(&name);
        if is_taken || self.is_awaited(&name) || self.spot_of_pictures(&name).is_some() {
            let message = format!("Error adding item: the item with id '{name}' already exists.");
            let code = "item_create_duplicate_item_id";
            return Err(Fault::new(code, "item.id", message));
        }
        Ok(name)
    }

    /// Whether this is the item of a turn whose words have not come.
    fn is_awaited(&self, name: &str) -> bool {
        let committed = self.committed.iter().map(|turn| turn.name.as_str());
        let open = self.utterance.iter().map(|open| open.name.as_str());
        let mut awaited = committed.chain(open).chain(self.next_item.as_deref());
        awaited.any(|other| other == name)
    }

    /// The fault of a request for an item that does not exist, or not yet.
    fn no_item(&self, param: &str, code: &'static str, name: &str) -> Fault {
        if self.is_awaited(name) {
            let message = format!(
                "Item with item_id '{name}' has no words yet: wait until they are transcribed."
            );
            return Fault::new(code, param, message);
        }
        unknown_item(param, code, name)
    }

    /// The position of an item that is to follow `previous`.
    fn spot(&self, previous: Option<String>) -> Result<(Spot, Place), Fault> {
        match previous {
            None => Ok((Spot::End, Place::End)),
            Some(root) if root == "root" => Ok((Spot::Start, Place::Start)),
            // Items that the client has not been told of may follow the last one that it has.
            Some(name) if self.will_be_last(&name) => Ok((Spot::After(name), Place::End)),
            Some(name) if self.items.is_wordless(&name) => {
                let before = self.items.part_before(&name);
                let place = before.map_or(Place::Start, Place::After);
                Ok((Spot::After(name), place))
            }
            // Its turn has no item yet, and will be the last.
            Some(name) if self.is_awaited(&name) => Ok((Spot::End, Place::End)),
            Some(name) => {
                let place = match (self.ids_of(&name).last(), self.spot_of_pictures(&name)) {
                    (Some(id), _) => Place::After(*id),
                    (None, Some(Spot::After(other))) => self.spot(Some(other.clone()))?.1,
                    (None, Some(Spot::Start)) => Place::Start,
                    (None, Some(Spot::End)) => Place::End,
                    (None, None) => {
                        return Err(self.no_item("previous_item_id", "invalid_value", &name));
                    }
                };
                Ok((Spot::After(name), place))
            }
        }
    }

    /// The position of pictures that wait for the items before them.
    fn spot_of_pictures(&self, name: &str) -> Option<&Spot> {
        let mut asked = self.pending.iter().map(|pending| &pending.asked);
        asked.find_map(|asked| match asked {
            Asked::Pictures { name: other, spot } if other == name => Some(spot),
            _ => None,
        })
    }

    /// Whether this item will be the last one once the pending requests have been carried out.
    fn will_be_last(&self, name: &str) -> bool {
        let asked = self.pending.iter().map(|pending| &pending.asked);
        let last = asked.fold(self.items.last(), |last, asked| match asked {
            Asked::Add { name, spot, .. } | Asked::Pictures { name, spot } => match spot {
                Spot::Start if last.is_some() => last,
                Spot::After(other) if last != Some(other) => last,
                Spot::Start | Spot::After(_) | Spot::End => Some(name),
            },
            Asked::Delete(name) if last == Some(name) => None,
            _ => last,
        });
        last == Some(name)
    }

    /// The session's ids for this item once the pending requests have been carried out; empty if
    /// the item will not exist.
    fn ids_of(&self, name: &str) -> Vec<ItemId> {
        let asked = self.pending.iter().map(|pending| &pending.asked);
        let item = self.items.get(name);
        let now = item.map(|item| item.ids().collect()).unwrap_or_default();
        asked.fold(now, |known, asked| match asked {
            Asked::Add {
                name: other, id, ..
            } if other == name => vec![*id],
            Asked::Delete(other) if other == name => Vec::new(),
            _ => known,
        })
    }

    /// The item for the history. A call without an id gets one in the returned content.
    fn new_item(&mut self, content: ItemContent) -> Result<(ItemContent, NewItem), Fault> {
        let item = match content.clone() {
            ItemContent::System(text) => NewItem::System { text },
            ItemContent::User(text) => NewItem::User { text },
            ItemContent::Pictures => NewItem::User {
                text: PICTURE.into(),
            },
            ItemContent::Spoken { text, .. } => NewItem::Spoken { text },
            ItemContent::Agent(text) => NewItem::Agent { text },
            ItemContent::ToolCall {
                call,
                name,
                arguments,
            } => return Ok(self.new_call(call, name, arguments)),
            ItemContent::ToolOutput { call, output } => {
                let call = *self.calls.get(&call).ok_or_else(|| {
                    let message = format!("No tool call '{call}' is waiting for its output.");
                    Fault::new("invalid_tool_call_id", "item.call_id", message)
                })?;
                let output = output_of(output);
                NewItem::ToolOutput { call, output }
            }
        };
        Ok((content, item))
    }

    fn new_call(
        &mut self,
        call: Option<String>,
        name: String,
        arguments: Map<String, Value>,
    ) -> (ItemContent, NewItem) {
        let call_id = call.unwrap_or_else(|| self.writer.id("call"));
        let call = CallId::of_client(self.added);
        let content = ItemContent::ToolCall {
            call: Some(call_id),
            name: name.clone(),
            arguments: arguments.clone(),
        };
        let item = NewItem::ToolCall {
            call,
            name,
            arguments,
        };
        (content, item)
    }

    fn retrieve(&mut self, name: &str) -> Result<(), Fault> {
        let item = self
            .items
            .get(name)
            .ok_or_else(|| self.no_item("item_id", "item_retrieve_invalid_item_id", name))?
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
        let item = self.items.get(name);
        let item =
            item.ok_or_else(|| self.no_item("item_id", "item_truncate_invalid_item_id", name))?;
        if !item.speech {
            let message = "Only model output audio messages can be truncated";
            return Err(Fault::new("invalid_value", "item_id", message));
        }
        // Clients measure playout by their own clock: a position beyond the end means all of it.
        let cuts = item.cuts(Micros::from_ms(audio_end_ms));
        for (index, &(item, heard)) in cuts.iter().enumerate() {
            let (name, more) = (name.to_owned(), index + 1 < cuts.len());
            self.expect(event_id, Asked::Truncate { name, more })?;
            self.ask(Input::Truncate { item, heard });
        }
        Ok(())
    }

    /// Adds pictures that wait, before the items that they wait for. What was to follow them takes their place.
    fn add_waiting_pictures(&mut self, name: &str) {
        let is_it = |one: &Pending| matches!(&one.asked, Asked::Pictures { name: other, .. } if other == name);
        let at = self.pending.iter().position(is_it);
        let waiting = at.and_then(|at| self.pending.remove(at));
        let Some(Asked::Pictures { spot, .. }) = waiting.map(|pending| pending.asked) else {
            return;
        };
        let behind = Spot::After(name.to_owned());
        for pending in &mut self.pending {
            if let Asked::Add { spot: other, .. } | Asked::Pictures { spot: other, .. } =
                &mut pending.asked
                && *other == behind
            {
                other.clone_from(&spot);
            }
        }
        self.add_wordless(name, ItemContent::Pictures.to_json(name), &spot);
    }

    fn delete(&mut self, name: &str, event_id: &Option<String>) -> Result<(), Fault> {
        self.add_waiting_pictures(name);
        if self.items.is_wordless(name) {
            self.items.remove(name);
            self.tell("conversation.item.deleted", json!({"item_id": name}));
            return Ok(());
        }
        let items = self.ids_of(name);
        if items.is_empty() {
            return Err(self.no_item("item_id", "item_delete_invalid_item_id", name));
        }
        for item in items {
            self.expect(event_id, Asked::Delete(name.to_owned()))?;
            self.ask(Input::DeleteItem { item });
        }
        self.output_leaves(name);
        Ok(())
    }

    fn respond(
        &mut self,
        request: ResponseRequest,
        event_id: &Option<String>,
    ) -> Result<(), Fault> {
        if self.session.transcribes {
            let message = "A transcription session has no responses.";
            return Err(Fault::whole("invalid_request", message));
        }
        let text_only = request.text_only.unwrap_or(self.session.text_only);
        let terms = self.terms(&request, text_only)?;
        self.text_limits
            .check_terms(&terms, self.set_up.0, &self.set_up.1)
            .map_err(|message| Fault::new(TOO_LONG, "response", message))?;
        if terms.place == ResponsePlace::Aside {
            if self.next_asides.len() == MAX_PENDING {
                let message = "Too many responses are waiting to begin.";
                return Err(Fault::whole("rate_limit_exceeded", message));
            }
            self.next_asides.push_back((event_id.clone(), request));
            self.ask(Input::RespondWith(Box::new(terms)));
            return Ok(());
        }
        if !self.may_respond() {
            let open = self.response.as_ref().map(|response| response.id.as_str());
            let message = format!(
                "Conversation already has an active response in progress: {}. Wait until the \
                 response is finished before creating a new one.",
                open.unwrap_or("it has not begun")
            );
            return Err(Fault::whole(
                "conversation_already_has_active_response",
                message,
            ));
        }
        self.expect(event_id, Asked::Respond(Box::new(request)))?;
        self.ask(if terms == ResponseTerms::of(terms.instructions.clone()) {
            let instructions = terms.instructions;
            Input::Respond { instructions }
        } else {
            Input::RespondWith(Box::new(terms))
        });
        Ok(())
    }

    /// Translates a response's settings for the conversation.
    fn terms(&self, request: &ResponseRequest, text_only: bool) -> Result<ResponseTerms, Fault> {
        let context = request.input.as_ref().map(|items| {
            let items = items.iter().enumerate();
            let context = items
                .map(|(index, item)| self.context(item, index))
                .collect::<Result<Vec<_>, _>>();
            context.map(|items| items.concat())
        });
        Ok(ResponseTerms {
            instructions: request.instructions.clone(),
            tools: request.tools.clone(),
            tool_choice: request.tool_choice.clone(),
            max_tokens: request.max_tokens,
            context: context.transpose()?,
            place: match (request.outside, text_only) {
                (false, _) => ResponsePlace::Conversation,
                (true, false) => ResponsePlace::Aloud,
                (true, true) => ResponsePlace::Aside,
            },
        })
    }

    fn context(&self, item: &InputItem, index: usize) -> Result<Vec<Context>, Fault> {
        let content = match item {
            InputItem::Reference(name) => {
                let items = self.ids_of(name);
                let is_wordless =
                    self.items.is_wordless(name) || self.spot_of_pictures(name).is_some();
                if items.is_empty() && !is_wordless {
                    let param = format!("response.input[{index}].id");
                    return Err(self.no_item(&param, "invalid_value", name));
                }
                return Ok(items.into_iter().map(Context::Item).collect());
            }
            InputItem::Item(content) => content.clone(),
        };
        Ok(vec![Context::Message(match content {
            ItemContent::System(text) => Message::System { text },
            ItemContent::User(text) => Message::User { text },
            ItemContent::Pictures => Message::User {
                text: PICTURE.into(),
            },
            ItemContent::Agent(text) => Message::Agent {
                text,
                interrupted: false,
            },
            // Unreachable: the parser refuses audio without a transcript here.
            ItemContent::Spoken { text, .. } => Message::User { text },
            ItemContent::ToolCall {
                call,
                name,
                arguments,
            } => Message::ToolCall {
                id: self.shown_call(call.unwrap_or_default()),
                name,
                arguments,
            },
            ItemContent::ToolOutput { call, output } => Message::ToolResult {
                name: match self.items.call(&call) {
                    Some((_, tool)) => tool.into(),
                    None => "the tool".into(),
                },
                id: self.shown_call(call),
                output: output_of(output),
            },
        })])
    }

    /// The id by which the model is shown a call: that of the conversation if the call is in it, so that it fits a call
    /// that is given by reference.
    fn shown_call(&self, id: String) -> String {
        let waiting = self.calls.get(&id).copied();
        let known = waiting.or_else(|| Some(self.items.call(&id)?.0));
        known.map_or(id, |call| call.to_string())
    }

    fn cancel(&mut self, response: Option<String>, event_id: &Option<String>) -> Result<(), Fault> {
        let aside = response.as_ref().and_then(|id| {
            let mut asides = self.asides.iter();
            Some(*asides.find(|(_, aside)| aside.id == *id)?.0)
        });
        if let Some(aside) = aside {
            self.ask(Input::CancelAside { aside });
            return Ok(());
        }
        let open = self.response.as_ref().map(|response| response.id.as_str());
        let is_open = response.as_deref().is_none_or(|id| Some(id) == open);
        if !is_open || !self.is_answering() {
            return Err(no_response());
        }
        self.expect(event_id, Asked::Cancel)?;
        self.ask(Input::CancelResponse);
        Ok(())
    }

    fn clear_output(&mut self) -> Result<(), Fault> {
        self.actions.push(Action::DropAudio);
        let id = self.response.as_ref().map(|response| response.id.clone());
        self.clear_track();
        if self.is_answering() {
            self.expect(&None, Asked::ClearOutput)?;
            self.ask(Input::CancelResponse);
        }
        if self.track.is_none() {
            self.tell("output_audio_buffer.cleared", json!({ "response_id": id }));
        }
        Ok(())
    }

    /// Keeps a request until the session answers it.
    pub(super) fn expect(&mut self, event_id: &Option<String>, asked: Asked) -> Result<(), Fault> {
        if self.pending.len() == MAX_PENDING {
            // Other requests are kept only for the event id in errors; items and commits must not be lost.
            let Some(at) = self.pending.iter().position(|pending| !must_stay(pending)) else {
                let message = "Too many items and commits are waiting for the session.";
                return Err(Fault::whole("rate_limit_exceeded", message));
            };
            self.pending.remove(at);
        }
        self.pending.push_back(Pending {
            event_id: event_id.clone(),
            asked,
        });
        Ok(())
    }

    /// Whether as many items wait to be added, and commits to be answered, as may.
    pub(super) fn has_no_room(&self) -> bool {
        let staying = self.pending.iter().filter(|pending| must_stay(pending));
        staying.count() >= MAX_PENDING
    }

    /// Handles a commit of the client's for which there is no audio.
    pub(super) fn nothing_to_commit(&mut self, message: String) {
        let pending = self.answered("commitaudio");
        let asked = pending.as_ref().map(|pending| &pending.asked);
        if let Some(Asked::Commit {
            length,
            ends_dictation,
            ..
        }) = asked
        {
            self.take_back(*length, *ends_dictation);
        }
        let event_id = pending.and_then(|pending| pending.event_id);
        let fault = Fault::whole(COMMIT_EMPTY, message);
        self.refuse(&Fault { event_id, ..fault });
    }

    /// Takes back the audio of a refused commit, which may be committed again. `ends_dictation`: turn detection was set
    /// behind it.
    fn take_back(&mut self, length: Micros, ends_dictation: bool) {
        self.uncommitted = self.uncommitted + length;
        if ends_dictation {
            self.forget_dictation();
        }
    }

    pub(super) fn refused(&mut self, request: &str, message: String) {
        let request = request.replace('_', "").to_lowercase();
        if request == "respondaside" {
            let event_id = self.next_asides.pop_front().and_then(|(id, _)| id);
            let fault = Fault::whole("request_refused", message);
            return self.refuse(&Fault { event_id, ..fault });
        }
        if request == "cancelaside" {
            // It has ended on its own meanwhile.
            return self.refuse(&no_response());
        }
        let pending = self.answered(&request);
        let asked = pending.as_ref().map(|pending| &pending.asked);
        let fault = match asked {
            // It has ended on its own meanwhile.
            Some(Asked::ClearOutput) => return,
            Some(Asked::Cancel) => no_response(),
            Some(Asked::Add { name, content, .. }) => {
                let size = footprint(name, content);
                self.created_text = self.created_text.saturating_sub(size);
                if let ItemContent::ToolCall { call: Some(id), .. } = content {
                    self.calls.remove(id);
                }
                Fault::whole("request_refused", message)
            }
            Some(Asked::Commit {
                length,
                ends_dictation,
                ..
            }) => {
                self.take_back(*length, *ends_dictation);
                Fault::whole("request_refused", message)
            }
            _ => Fault::whole("request_refused", message),
        };
        let event_id = pending.and_then(|pending| pending.event_id);
        self.refuse(&Fault { event_id, ..fault });
        self.add_pictures();
    }
}

/// An item's share of [`MAX_CREATED_TEXT`], bytes.
pub(super) fn footprint(name: &str, content: &ItemContent) -> usize {
    name.len() + content.size() + ITEM
}

/// A tool's output, which is JSON or a text. A number that would be written differently is a text: digits of the
/// number of a parcel would be lost, and the room 3E2 would be the room 300.
fn output_of(text: String) -> Value {
    match serde_json::from_str(&text) {
        Ok(Value::Number(number)) if number.to_string() != text.trim() => Value::String(text),
        Ok(output) => output,
        Err(_) => Value::String(text),
    }
}

/// Whether the request is kept until its answer, however many others wait.
fn must_stay(pending: &Pending) -> bool {
    use Asked::{Add, Commit, Pictures};
    matches!(pending.asked, Add { .. } | Commit { .. } | Pictures { .. })
}

fn no_response() -> Fault {
    let message = "Cancellation failed: no active response found";
    Fault::whole("response_cancel_not_active", message)
}

fn unknown_item(param: &str, code: &'static str, name: &str) -> Fault {
    let name: String = name.chars().take(128).collect();
    let message = format!("Item with item_id '{name}' not found.");
    Fault::new(code, param, message)
}
