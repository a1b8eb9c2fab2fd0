//! `undertone call`: has a running server place a call.

use super::running;
use crate::config::Config;
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use reqwest::header::LOCATION;
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use secrecy::ExposeSecret;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::time::Duration;
use url::Url;

/// The longest wait for an answer of the server.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The time between two requests for the call's state.
const EVERY: Duration = Duration::from_secs(1);

/// How long the server may fail to tell the call's state before that is given up.
const UNTOLD: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
pub(super) struct Call {
    /// The number, with + and the country's code, as in +15551234567
    #[arg(value_name = "NUMBER")]
    number: String,
    /// The agent that speaks; by default the one that the routes lead to
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// A value for the agent's instructions and tools, session.param["NAME"]; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = parameter)]
    param: Vec<(String, String)>,
    /// The running server; by default the one of this configuration
    #[arg(long, value_name = "URL")]
    server: Option<Url>,
    /// Print the call's id, and do not wait for its end
    #[arg(long)]
    no_wait: bool,
}

/// The state of a call that was placed, as the server tells it.
#[derive(Deserialize)]
struct State {
    status: String,
    message: Option<String>,
}

/// The server's words for why it does not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[error("the server refused: {message}")]
struct Refused {
    status: StatusCode,
    message: String,
}

fn parameter(typed: &str) -> Result<(String, String), String> {
    let pair = typed.split_once('=').filter(|(name, _)| !name.is_empty());
    let (name, value) = pair.ok_or("it is not NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

impl Call {
    pub(super) fn run(&self, config: &Config) -> Result<()> {
        // Another server knows its agents itself.
        if self.server.is_none() {
            super::check_agent(self.agent.as_deref(), config)?;
        }
        super::runtime()?.block_on(self.place(config))
    }

    async fn place(&self, config: &Config) -> Result<()> {
        let params: Map<String, Value> = self
            .param
            .iter()
            .map(|(name, value)| (name.clone(), value.as_str().into()))
            .collect();
        let wanted = json!({"to": self.number, "agent": self.agent, "params": params});
        let (server, client) = match &self.server {
            Some(server) => (
                server.to_string(),
                Client::builder().timeout(TIMEOUT).build()?,
            ),
            None => (running::address(config), running::client(TIMEOUT)?),
        };
        let base = server.trim_end_matches('/');
        let asked = async |request: RequestBuilder| -> Result<Response> {
            let request = match &config.server.auth_token {
                Some(token) => request.bearer_auth(token.expose_secret()),
                None => request,
            };
            let sent = request.send().await;
            checked(sent.with_context(|| format!("no server answers at {server}"))?).await
        };
        let request = client.post(format!("{base}/v1/calls/outbound"));
        let placed = asked(request.json(&wanted)).await.map_err(perhaps_placed)?;
        let path = placed
            .headers()
            .get(LOCATION)
            .and_then(|path| path.to_str().ok());
        let path = path
            .context("the server does not say where the call is")?
            .to_owned();
        let id = path.rsplit('/').next().unwrap_or_default();
        let mut state = placed.json::<State>().await.ok();
        if let Some(message) = state.as_mut().and_then(|state| state.message.take()) {
            super::print_error(message);
        }
        if self.no_wait {
            return super::print(id);
        }
        let place = format!("{base}{path}");
        let ask = async || -> Result<State> { Ok(asked(client.get(&place)).await?.json().await?) };
        let mut known = String::new();
        loop {
            let state = match state.take() {
                Some(state) => state,
                None => told(&ask).await.with_context(|| {
                    format!(
                        "call {id} was placed and may go on: look at {place} before you call again"
                    )
                })?,
            };
            let status = state.status;
            if status != known {
                super::print(&status)?;
            }
            match status.as_str() {
                "ringing" | "uncertain" | "answered" => {}
                "completed" => return Ok(()),
                ended => bail!("the call ended: {ended}"),
            }
            known = status;
        }
    }
}

/// Asks for the call's state until it is told.
async fn told(ask: impl AsyncFn() -> Result<State>) -> Result<State> {
    let mut last = anyhow!("no answer");
    let asking = async {
        loop {
            tokio::time::sleep(EVERY).await;
            match ask().await {
                Err(error) if may_pass(&error) => last = error,
                told => return told,
            }
        }
    };
    let in_time = tokio::time::timeout(UNTOLD, asking).await;
    in_time.unwrap_or(Err(last))
}

/// Whether the server was not reached, has failed, or was not understood: the next time may be better.
fn may_pass(error: &anyhow::Error) -> bool {
    let refused = error.downcast_ref::<Refused>();
    refused.is_none_or(|refused| refused.status.is_server_error())
}

/// Adds to the error of a request that was sent and not answered that the call may have been placed.
fn perhaps_placed(error: anyhow::Error) -> anyhow::Error {
    let sent = error.downcast_ref::<reqwest::Error>();
    match sent.is_some_and(|error| !(error.is_connect() || error.is_builder())) {
        true => error.context("the call may have been placed: look before you call again"),
        false => error,
    }
}

/// The answer, or the server's own words for why there is none.
async fn checked(answer: Response) -> Result<Response> {
    let status = answer.status();
    if status.is_success() {
        return Ok(answer);
    }
    let told: Value = answer.json().await.unwrap_or_default();
    let message = told.pointer("/error/message").and_then(Value::as_str);
    let message = message.map_or_else(|| status.to_string(), str::to_owned);
    Err(Refused { status, message }.into())
}
