//! Out-of-band text responses.

use super::{Realtime, merge};
use crate::conversation::{ItemId, Micros, ResponseStatus, TurnId};
use crate::llm::TokenUsage;
use crate::transport::realtime::response::{Response, end_of};
use crate::transport::realtime::server_events as shape;
use serde_json::{Map, Value, json};

impl Realtime {
    pub(super) fn aside_started(&mut self, aside: TurnId) {
        let request = self.next_asides.pop_front().map(|(_, request)| request);
        let id = self.writer.id("resp");
        let response = Response::new(id, request.unwrap_or_default(), &self.session);
        let json = self.response_json(&response, "in_progress", Value::Null, Value::Null);
        self.asides.insert(aside, response);
        self.tell("response.created", json!({ "response": json }));
    }

    /// Adds an item to a response. Returns the item's name and the fields that refer to it.
    fn aside_item(
        &mut self,
        aside: TurnId,
        kind: &str,
        json: impl FnOnce(&str) -> Value,
    ) -> Option<(String, Value)> {
        let name = self.writer.id(kind);
        // Counted down from the maximum, where no session numbers its items.
        self.aside_items += 1;
        let id = ItemId(u64::MAX - self.aside_items);
        let json = json(&name);
        self.items.put_outside(&name, id, json.clone());
        let response = self.asides.get_mut(&aside)?;
        response.output.push(name.clone());
        let index = response.output.len() - 1;
        let place = json!({"response_id": response.id, "output_index": index});
        let added = merge(place.clone(), json!({ "item": json }));
        self.tell("response.output_item.added", added);
        Some((name, place))
    }

    pub(super) fn aside_text(&mut self, aside: TurnId, text: &str) {
        let begins = |response: &Response| response.speech.is_none();
        if self.asides.get(&aside).is_none_or(begins) {
            let item = |name: &str| shape::agent_item(name, "in_progress", true, None);
            let Some((name, _)) = self.aside_item(aside, "item", item) else {
                return;
            };
            let Some(response) = self.asides.get_mut(&aside) else {
                return;
            };
            let part = shape::content_part(true, "");
            let place = response.open_speech(name);
            self.tell(
                "response.content_part.added",
                merge(place, json!({ "part": part })),
            );
        }
        let said = self.asides.get_mut(&aside).and_then(|r| r.write(text));
        if let Some(place) = said {
            let delta = merge(place, json!({ "delta": text }));
            self.tell("response.output_text.delta", delta);
        }
    }

    pub(super) fn aside_called(
        &mut self,
        aside: TurnId,
        tool: &str,
        arguments: Map<String, Value>,
    ) {
        self.close_aside_text(aside, "completed");
        let arguments = Value::Object(arguments).to_string();
        let call = self.writer.id("call");
        let open = |name: &str| shape::function_call(name, &call, tool, "in_progress", "");
        let Some((name, place)) = self.aside_item(aside, "item", open) else {
            return;
        };
        let of_call = merge(place.clone(), json!({"item_id": name, "call_id": call}));
        self.tell(
            "response.function_call_arguments.delta",
            merge(of_call.clone(), json!({ "delta": arguments })),
        );
        self.tell(
            "response.function_call_arguments.done",
            merge(of_call, json!({"name": tool, "arguments": arguments})),
        );
        let json = shape::function_call(&name, &call, tool, "completed", &arguments);
        self.items.tell(&name, json.clone());
        self.tell(
            "response.output_item.done",
            merge(place, json!({ "item": json })),
        );
    }

    fn close_aside_text(&mut self, aside: TurnId, status: &str) {
        let Some(response) = self.asides.get_mut(&aside) else {
            return;
        };
        let Some(speech) = response.speech.take() else {
            return;
        };
        let place = response.place(&speech.name, speech.index);
        let done = json!({"response_id": response.id, "output_index": speech.index});
        let (name, text) = (speech.name, speech.text);
        self.tell(
            "response.output_text.done",
            merge(place.clone(), json!({ "text": text })),
        );
        let part = shape::content_part(true, &text);
        self.tell(
            "response.content_part.done",
            merge(place, json!({ "part": part })),
        );
        let json = shape::agent_item(&name, status, true, Some(&text));
        self.items.tell(&name, json.clone());
        let done = merge(done, json!({ "item": json }));
        self.tell("response.output_item.done", done);
    }

    pub(super) fn aside_done(&mut self, aside: TurnId, status: ResponseStatus, usage: TokenUsage) {
        let whole = status == ResponseStatus::Completed;
        self.close_aside_text(aside, if whole { "completed" } else { "incomplete" });
        let Some(response) = self.asides.remove(&aside) else {
            return;
        };
        let failure = ("llm_failed".into(), "the language model failed".into());
        let (status, details) = end_of(status, Some(failure));
        let usage = shape::usage(usage, Micros(0), Micros(0));
        let json = self.response_json(&response, status, details, usage);
        self.tell("response.done", json!({ "response": json }));
        for name in &response.output {
            self.items.remove(name);
        }
    }
}
