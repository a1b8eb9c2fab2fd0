//! A tool of an MCP server.

use super::connection::words;
use super::hints::{Hint, Hints};
use super::pins::Pin;
use super::result;
use super::servers::Client;
use super::web::is_without_effect;
use super::{LONGEST_DESCRIPTION, Link, McpServer, schema, shortened};
use crate::tools::{CallContext, Declaration, Effect, Tool, ToolError};
use futures_util::future::BoxFuture;
use jsonschema::Validator;
use rmcp::model::{CallToolRequestParams, CallToolResponse, ErrorCode};
use rmcp::service::ServiceError;
use serde_json::{Map, Value};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// A declared tool of an MCP server.
#[derive(Debug, Clone)]
pub struct McpPlan {
    /// The server.
    pub server: Arc<McpServer>,
    /// The server's name for the tool.
    pub tool: String,
    /// The tool as the operator has pinned it; it is not offered without.
    pub pin: Option<Pin>,
    /// The effect in the declaration, which hints may have made stricter.
    pub declared: Effect,
    /// The hints that the operator disregards.
    pub disregarded: Vec<Hint>,
}

impl McpPlan {
    /// The server's description, in bounds; empty if it has none.
    pub(crate) fn description(&self) -> String {
        let given = self.given("description").or_else(|| self.given("title"));
        shortened(
            given.and_then(Value::as_str).unwrap_or_default(),
            LONGEST_DESCRIPTION,
        )
    }

    /// The schema of the arguments.
    pub(crate) fn parameters(&self) -> Value {
        schema(self.given("inputSchema").cloned().unwrap_or_default())
    }

    /// The hints that count.
    pub fn hints(&self) -> Hints {
        let tool = self.pin.as_ref().map(|pin| &pin.tool);
        Hints::of(tool.unwrap_or(&Value::Null), &self.disregarded)
    }

    /// The hint that makes the declared effect stricter.
    pub fn contradiction(&self) -> Option<Hint> {
        self.hints().contradicts(self.declared)
    }

    /// Whether calls leave this machine: always over HTTP, and from a program unless it says that it
    /// keeps to its own data.
    pub(crate) fn uses_network(&self) -> bool {
        match self.server.link {
            Link::Http { .. } => true,
            Link::Program(_) => !self.hints().is_closed(),
        }
    }

    fn given(&self, key: &str) -> Option<&Value> {
        self.pin.as_ref()?.tool.get(key)
    }
}

pub(crate) struct McpTool {
    declaration: Declaration,
    name: String,
    pin: Option<Pin>,
    client: Arc<Client>,
    output: Option<Arc<Validator>>,
}

impl McpTool {
    pub(crate) fn new(declaration: Declaration, plan: &McpPlan, client: Arc<Client>) -> Self {
        let output = plan.given("outputSchema");
        // A schema that cannot be used checks nothing.
        let output = output.and_then(|schema| jsonschema::validator_for(schema).ok());
        Self {
            declaration,
            name: plan.tool.clone(),
            pin: plan.pin.clone(),
            client,
            output: output.map(Arc::new),
        }
    }

    /// A tool that is described but cannot be called.
    pub(crate) fn unconnected(declaration: Declaration, plan: &McpPlan) -> Self {
        Self::new(declaration, plan, Client::new(plan.server.clone()))
    }

    /// A little less than the registry's own limit, so that it is this one that passes.
    fn limit(&self) -> Duration {
        self.declaration.timeout - self.declaration.timeout / 50
    }
}

impl Tool for McpTool {
    fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    fn call(
        &self,
        arguments: Map<String, Value>,
        _: &CallContext,
    ) -> BoxFuture<'static, Result<Value, ToolError>> {
        let effect = self.declaration.effect;
        let (limit, timeout) = (self.limit(), self.declaration.timeout);
        let (client, output) = (self.client.clone(), self.output.clone());
        let (name, pin) = (self.name.clone(), self.pin.clone());
        Box::pin(async move {
            let over = tokio::time::sleep(limit);
            let mut over = pin!(over);
            let peer = tokio::select! {
                peer = client.peer(&name, pin.as_ref()) => peer,
                () = &mut over => None,
            };
            let Some(peer) = peer else {
                let why = "it is not connected, is still at work, or its tool has changed";
                return Err(ToolError::NotBegun(client.cause(why)));
            };
            let answered = async {
                let call = CallToolRequestParams::new(name).with_arguments(arguments);
                // Dropped, it tells the server.
                peer.call_tool_once(call).await.map_err(|error| {
                    client.suspect();
                    failure(&error, effect, &client)
                })
            };
            let answered = tokio::select! {
                answered = answered => answered,
                () = over => {
                    client.suspect();
                    Err(ToolError::late(effect, timeout))
                }
            };
            match answered? {
                CallToolResponse::Complete(given) => result::read(given, output.as_deref(), effect),
                // Nobody asks what becomes of it.
                CallToolResponse::Task(_) => {
                    let why = client.cause("it made a task of the call");
                    Err(ToolError::lost(effect, why))
                }
                _ => Err(client.broken("it asks for input")),
            }
        })
    }
}

/// The error of a call that has no result.
fn failure(error: &ServiceError, effect: Effect, client: &Client) -> ToolError {
    let why = client.cause(&words(error));
    match error {
        ServiceError::McpError(refused) if refused.code == ErrorCode::INVALID_PARAMS => {
            result::refusal(&refused.message, effect)
        }
        ServiceError::TransportSend(sent) if is_without_effect(sent) => ToolError::NotBegun(why),
        // Any other code may come from a tool that has begun: Python's SDK calls the request invalid if a tool asks for
        // input in vain.
        _ => ToolError::lost(effect, why),
    }
}
