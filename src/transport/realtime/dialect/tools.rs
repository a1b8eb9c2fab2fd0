//! Calls to the server's tools and to the client's.

use super::requests::footprint;
use super::{Realtime, ServerCall, merge};
use crate::conversation::{CallId, ConfirmationOutcome, ItemId, RunId, SpeculationEvent};
use crate::tools::ToolError;
use crate::transport::realtime::client_events::ItemContent;
use crate::transport::realtime::server_events as shape;
use serde_json::{Map, Value, json};

impl Realtime {
    /// A call that the client runs and answers from now on.
    pub(super) fn client_tool(
        &mut self,
        id: ItemId,
        call: CallId,
        tool: &str,
        arguments: Map<String, Value>,
    ) {
        let (item, call_id) = (self.writer.id("item"), self.writer.id("call"));
        if !self.function_call(id, &item, &call_id, tool, arguments) {
            return;
        }
        self.note_call(&item, call);
        self.calls.insert(call_id, call);
        if let Some(response) = &mut self.response {
            response.client_called = true;
        }
        self.early.client_goes_on();
    }

    /// A call that the client has begun early: it has the id that the client knows.
    pub(super) fn early_tool(
        &mut self,
        id: ItemId,
        call: CallId,
        run: RunId,
        tool: &str,
        arguments: Map<String, Value>,
    ) {
        let response = self.response.as_ref();
        let goes_on = response.is_none_or(|response| !response.client_called);
        let Some(call_id) = self.early.commit(run, call, goes_on) else {
            return;
        };
        let item = self.writer.id("item");
        self.function_call(id, &item, &call_id, tool, arguments);
        self.note_call(&item, call);
    }

    /// Notes the call that an item is.
    fn note_call(&mut self, item: &str, call: CallId) {
        if let Some(item) = self.items.get_mut(item) {
            item.call = Some(call);
        }
    }

    /// Sends a whole function call. `false` if no response is active.
    fn function_call(
        &mut self,
        id: ItemId,
        item: &str,
        call_id: &str,
        tool: &str,
        arguments: Map<String, Value>,
    ) -> bool {
        let arguments = Value::Object(arguments).to_string();
        let json = shape::function_call(item, call_id, tool, "in_progress", "");
        let Some((response, index)) = self.output_item(item, id, json) else {
            return false;
        };
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
        let json = shape::function_call(item, call_id, tool, "completed", &arguments);
        self.output_item_done(&response, index, item, json);
        true
    }

    /// Tells a client that has declared early tools when it may begin a call, and when that is in vain.
    pub(super) fn early_call(&mut self, event: &SpeculationEvent) {
        match event {
            SpeculationEvent::Started {
                run,
                tool,
                arguments,
                by_client: true,
                ..
            } => {
                let call_id = self.writer.id("call");
                let arguments = Value::Object(arguments.clone()).to_string();
                let fields = json!({
                    "call_id": call_id, "name": tool, "arguments": arguments, "speculative": true,
                });
                self.early.begin(call_id, *run);
                self.tell("undertone.early_call.started", fields);
            }
            SpeculationEvent::Discarded { run, reason, .. } => {
                if let Some(call_id) = self.early.discard(*run) {
                    let fields = json!({"call_id": call_id, "reason": reason});
                    self.tell("undertone.early_call.discarded", fields);
                }
            }
            _ => {}
        }
    }

    /// The output of a call that the client has begun early is in the conversation.
    pub(super) fn output_added(&mut self, id: ItemId, call: CallId, output: Value) {
        let Some((call_id, name)) = self.early.join(call) else {
            return;
        };
        let name = name.unwrap_or_else(|| self.writer.id("item"));
        let content = ItemContent::ToolOutput {
            call: call_id,
            output: text_of(output),
        };
        let json = content.to_json(&name);
        self.add_item(&name, id, json.clone());
        let size = footprint(&name, &content);
        self.created_text += size;
        if let Some(item) = self.items.get_mut(&name) {
            item.created_text = size;
        }
        self.item_done(&name, json);
    }

    /// The client deletes an item. If that is the output of a call, the call waits for an output again, which may follow
    /// at once.
    pub(super) fn output_leaves(&mut self, name: &str) {
        let item = self.items.get(name).map(|item| &item.json);
        let output = item.filter(|json| json["type"] == "function_call_output");
        let Some(id) = output.and_then(|json| json["call_id"].as_str()) else {
            return;
        };
        if let Some((call, _)) = self.items.call(id) {
            let id = id.to_owned();
            self.early.forget(&id);
            self.calls.insert(id, call);
        }
    }

    /// Announced only to clients that opted in to vendor events. A client that has declared no MCP
    /// tool does not expect such calls, and one that has would take each for a call whose result it
    /// must answer.
    pub(super) fn server_tool(
        &mut self,
        id: ItemId,
        call: CallId,
        tool: &str,
        arguments: Map<String, Value>,
    ) {
        if !self.session.vendor_events {
            return;
        }
        let arguments = Value::Object(arguments).to_string();
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
            .put(&item, id, shape::server_call(&item, tool, &arguments));
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

    pub(super) fn tool_finished(&mut self, call: CallId, result: Result<Value, ToolError>) {
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

    /// Announces a call that waits for the user's confirmation, to clients that opted in to vendor
    /// events. They may answer for the user.
    pub(super) fn confirmation_asked(
        &mut self,
        call: CallId,
        name: &str,
        arguments: Map<String, Value>,
        question: &str,
    ) {
        let call_id = self.writer.id("call");
        let item = self.server_calls.get(&call).map(|call| call.item.clone());
        let fields = json!({
            "call_id": call_id, "item_id": item, "name": name, "arguments": arguments,
            "question": question,
        });
        self.confirmation = Some((call_id, call));
        self.tell_vendor("undertone.confirmation.asked", fields);
    }

    pub(super) fn confirmation_ended(&mut self, call: CallId, outcome: ConfirmationOutcome) {
        let Some((call_id, _)) = self.confirmation.take_if(|(_, asked)| *asked == call) else {
            return;
        };
        let fields = json!({"call_id": call_id, "outcome": outcome});
        self.tell_vendor("undertone.confirmation.ended", fields);
    }
}

/// A tool's result as text.
fn text_of(output: Value) -> String {
    match output {
        Value::String(text) => text,
        other => other.to_string(),
    }
}
