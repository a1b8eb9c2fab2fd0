//! The agent's side: responses and their speech items.

use super::{Asked, Realtime, merge};
use crate::conversation::{ClauseId, ItemId, Micros, ResponseStatus, TurnId, TurnLatency};
use crate::llm::TokenUsage;
use crate::transport::realtime::client_events::ResponseRequest;
use crate::transport::realtime::codec::RATE;
use crate::transport::realtime::response::{Response, end_of};
use crate::transport::realtime::server_events as shape;
use crate::transport::realtime::session_object::modalities;
use crate::transport::{Action, Frame};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

impl Realtime {
    /// Handles a handoff: clients see another `model`. Their own settings stay.
    pub(super) fn agent_changed(&mut self, agent: &str) {
        self.session.set_model(agent);
        let session = self.shown();
        self.tell("session.updated", json!({ "session": session }));
    }

    pub(super) fn response_started(&mut self, requested: bool, opens: bool) {
        let asked = requested.then(|| self.answered("respond")).flatten();
        let request = match asked.map(|pending| pending.asked) {
            Some(Asked::Respond(request)) => *request,
            _ => ResponseRequest::default(),
        };
        // A pending cancellation referred to an earlier response, which has ended.
        let cancels = |asked: &Asked| matches!(asked, Asked::Cancel | Asked::ClearOutput);
        self.pending.retain(|pending| !cancels(&pending.asked));
        let mut response = Response::new(self.writer.id("resp"), request, &self.session);
        response.opens = opens;
        let json = self.response_json(&response, "in_progress", Value::Null, Value::Null);
        self.failure = None;
        self.early.turns_to_other();
        self.response = Some(response);
        self.next_on_track();
        self.tell("response.created", json!({ "response": json }));
    }

    pub(super) fn response_json(
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
        let conversation = (!response.outside).then(|| self.writer.session_id("conv"));
        json!({
            "object": "realtime.response",
            "id": response.id,
            "conversation_id": conversation,
            "status": status,
            "status_details": details,
            "output": output,
            "output_modalities": modalities(response.text_only),
            "audio": self.session.output(response.encoder.format()),
            "max_output_tokens": response.max_tokens,
            "metadata": response.metadata,
            "usage": usage,
        })
    }

    /// Adds an item to the active response and announces it. Returns the response's id and the
    /// item's index; `None` if no response is active.
    pub(super) fn output_item(
        &mut self,
        name: &str,
        id: ItemId,
        json: Value,
    ) -> Option<(String, usize)> {
        self.end_silent_speech();
        let response = self.response.as_mut()?;
        let (response_id, index) = (response.id.clone(), response.output.len());
        let outside = response.outside;
        response.output.push(name.to_owned());
        self.tell(
            "response.output_item.added",
            json!({"response_id": response_id, "output_index": index, "item": json}),
        );
        match outside {
            true => self.items.put_outside(name, id, json),
            false => self.add_item(name, id, json),
        }
        Some((response_id, index))
    }

    pub(super) fn output_item_done(
        &mut self,
        response: &str,
        index: usize,
        name: &str,
        json: Value,
    ) {
        self.tell(
            "response.output_item.done",
            json!({"response_id": response, "output_index": index, "item": json}),
        );
        if self.items.is_outside(name) {
            self.items.tell(name, json);
        } else {
            self.item_done(name, json);
        }
    }

    /// For clients without vendor events, consecutive speech in one response becomes one item: some
    /// of them take the first message of a response for the whole answer.
    pub(super) fn agent_item_started(&mut self, item: ItemId) {
        if let Some(name) = self.speech_that_goes_on() {
            self.items.join(&name, item);
            if let Some(speech) = self.response.as_mut().and_then(|r| r.speech.as_mut()) {
                speech.is_spoken = true;
            }
            return;
        }
        self.end_speech(true);
        let name = self.writer.id("item");
        let json = shape::agent_item(&name, "in_progress", false, None);
        if self.output_item(&name, item, json).is_none() {
            return;
        }
        let Some(response) = self.response.as_mut() else {
            return;
        };
        let part = shape::content_part(response.text_only, "");
        if let Some(item) = self.items.get_mut(&name) {
            item.speech = !response.text_only;
        }
        let place = response.open_speech(name);
        self.tell(
            "response.content_part.added",
            merge(place, json!({ "part": part })),
        );
    }

    /// The wire name of the open item, if the agent's next speech continues it.
    fn speech_that_goes_on(&self) -> Option<String> {
        let response = self.response.as_ref().filter(|r| r.ends_with_speech())?;
        let name = &response.speech.as_ref()?.name;
        let is_whole = !self.items.get(name)?.is_cut() && !self.is_to_change(name);
        (is_whole && !self.session.vendor_events).then(|| name.clone())
    }

    pub(super) fn agent_speech(&mut self, clause: ClauseId, text: &str) {
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
        let mut fields = merge(place, json!({ "delta": delta }));
        if self.session.vendor_events && self.track.is_some() {
            fields["undertone_clause"] = json!(clause);
        }
        self.tell(kind, fields);
    }

    pub(super) fn audio(&mut self, item: ItemId, samples: &[i16]) {
        let length = Micros::of_samples(samples.len() as u64, RATE);
        let Some(response) = &mut self.response else {
            return;
        };
        if let Some(part) = self.items.part_mut(item) {
            part.audio = part.audio + length;
        }
        let Some(name) = self.items.name(item).map(str::to_owned) else {
            return;
        };
        if response.text_only {
            return;
        }
        let Some(index) = response.output.iter().position(|other| *other == name) else {
            return;
        };
        response.audio = response.audio + length;
        self.session.has_spoken |= !response.opens;
        if self.track.is_some() {
            let id = response.id.clone();
            return self.play(item, id, samples);
        }
        let audio = response.encoder.encode(samples);
        let place = response.place(&name, index);
        self.send_audio(place, &audio, length);
    }

    fn send_audio(&mut self, place: Value, audio: &[u8], length: Micros) {
        if audio.is_empty() {
            return;
        }
        let delta = STANDARD.encode(audio);
        let event = self.writer.event(
            "response.output_audio.delta",
            merge(place, json!({ "delta": delta })),
        );
        let frame = event.map(Frame::Text);
        self.actions
            .extend(frame.map(|frame| Action::SendAudio { frame, length }));
    }

    /// Handles the end of an item of the agent. The client's item stays open, since the agent may say more.
    pub(super) fn agent_item_done(&mut self, item: ItemId, text: &str, interrupted: bool) {
        let Some(part) = self.items.part_mut(item) else {
            return;
        };
        part.text = text.to_owned();
        if interrupted {
            let sent = part.audio;
            let left = self.left(sent);
            if let Some(part) = self.items.part_mut(item) {
                part.cut = Some(left);
            }
            self.tell_cut(item);
        }
        let name = self.items.name(item);
        let Some(response) = &mut self.response else {
            return;
        };
        let speech = response.speech.as_mut();
        let Some(speech) = speech.filter(|speech| name == Some(&speech.name)) else {
            return;
        };
        speech.is_spoken = false;
        let (name, index) = (speech.name.clone(), speech.index);
        let place = response.place(&name, index);
        let rest = response.encoder.finish();
        if !interrupted && !response.text_only {
            self.send_audio(place, &rest, Micros(0));
        }
        if self
            .response
            .as_ref()
            .is_some_and(|r| !r.ends_with_speech())
        {
            self.end_speech(true);
        }
    }

    /// Ends the open speech item, unless the agent is speaking.
    fn end_silent_speech(&mut self) {
        let speech = self.response.as_ref().and_then(|r| r.speech.as_ref());
        if speech.is_some_and(|speech| !speech.is_spoken) {
            self.end_speech(true);
        }
    }

    /// Ends the open speech item. `whole` says that the agent had nothing to add, so the item is
    /// complete if all of it was heard.
    fn end_speech(&mut self, whole: bool) {
        let Some(response) = &mut self.response else {
            return;
        };
        let Some(speech) = response.speech.take() else {
            return;
        };
        let Some(item) = self.items.get(&speech.name) else {
            return;
        };
        let text = match speech.is_spoken {
            true => speech.text,
            false => item.said(),
        };
        let status = match whole && !speech.is_spoken && !item.is_cut() {
            true => "completed",
            false => "incomplete",
        };
        let (name, index) = (speech.name, speech.index);
        let (id, text_only) = (response.id.clone(), response.text_only);
        let place = response.place(&name, index);
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
        let part = shape::content_part(text_only, &text);
        self.tell(
            "response.content_part.done",
            merge(place, json!({ "part": part })),
        );
        let json = shape::agent_item(&name, status, text_only, Some(&text));
        self.output_item_done(&id, index, &name, json);
    }

    pub(super) fn response_done(
        &mut self,
        turn: TurnId,
        status: ResponseStatus,
        latency: TurnLatency,
        usage: TokenUsage,
    ) {
        if status == ResponseStatus::Cancelled {
            self.answered("cancelresponse");
        }
        self.end_speech(matches!(
            status,
            ResponseStatus::Completed | ResponseStatus::Failed
        ));
        let Some(response) = self.response.take() else {
            return;
        };
        let (status, details) = end_of(status, self.failure.take());
        let heard = std::mem::take(&mut self.heard);
        let usage = shape::usage(usage, heard, response.audio);
        let json = self.response_json(&response, status, details, usage);
        self.tell("response.done", json!({ "response": json }));
        for name in response.output.iter().filter(|_| response.outside) {
            self.items.remove(name);
        }
        self.tell_vendor(
            "undertone.turn",
            json!({"response_id": response.id, "turn": turn.to_string(), "status": status,
                "latency": latency}),
        );
    }

    /// Handles a failure, with which a turn may lose its words.
    pub(super) fn stage_failed(&mut self, stage: String, message: String, loses_words: bool) {
        self.tell_vendor(
            "undertone.stage_failed",
            json!({"stage": stage, "message": message}),
        );
        let code = format!("{stage}_failed");
        let turn = match (stage.as_str(), loses_words) {
            // The words come from another recogniser.
            ("asr", false) => return,
            ("asr", true) => self.transcription_failed(),
            _ => None,
        };
        match (turn, &self.response) {
            (Some(name), _) => {
                let fields = json!({
                    "item_id": name, "content_index": 0,
                    "error": {"type": "server_error", "code": code, "message": message},
                });
                self.tell("conversation.item.input_audio_transcription.failed", fields);
            }
            (None, Some(_)) => self.failure = Some((code, message)),
            (None, None) => {
                let event = self.writer.server_error(&code, &message);
                self.actions.push(Action::Send(event));
            }
        }
    }
}
