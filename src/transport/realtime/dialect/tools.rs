//! Calls to the server's tools and to the client's.

use super::{Realtime, ServerCall, merge};
use crate::conversation::{CallId, ConfirmationOutcome, ItemId};
use crate::tools::ToolError;
use crate::transport::realtime::server_events as shape;
use serde_json::{Map, Value, json};

impl Realtime {
    pub(super) fn tool_called(
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
        if let Some(response) = &mut self.response {
            response.client_called = true;
        }
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

    /// Announced only to clients that opted in to vendor events. A client that has declared no MCP
    /// tool does not expect such calls, and one that has would take each for a call whose result it
    /// must answer.
    fn server_tool(&mut self, id: ItemId, call: CallId, tool: &str, arguments: &str) {
        if !self.session.vendor_events {
            return;
        }
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
