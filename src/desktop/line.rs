//! The connection to the agent: a session in this process, or a server's `/v1/pcm`, behind one
//! interface.

use super::DesktopError;
use crate::audio::{from_pcm16le, to_pcm16le};
use crate::conversation::{Event, HangUpReason};
use crate::session::{self, Engines, Inbound, Outbound, Profile, SessionHandle, SessionOptions};
use crate::tools::{Named, Origin, SessionValues};
use crate::transport::socket::close_of_hang_up;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{interval, timeout};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::header::{AUTHORIZATION, HeaderValue, USER_AGENT};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Bytes, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

/// The higher of the two rates of `/v1/pcm`, Hz: 16 kHz would cut off part of the voice's spectrum.
const REMOTE_RATE: u32 = 24_000;

/// The most microphone frames queued for the agent: 1.3 s.
const FRAMES: usize = 64;

/// The most agent messages queued for the devices.
const MESSAGES: usize = 256;

/// How long connecting to a server may take.
const CONNECTING: Duration = Duration::from_secs(10);

/// How often a server is pinged.
const PING_EVERY: Duration = Duration::from_secs(5);

/// How long a server may send nothing, not even a pong, before the connection counts as lost. This
/// detects a dead machine or network, which does not close the connection.
const GONE: Duration = Duration::from_secs(15);

/// A message from the agent.
#[derive(Debug, Clone, PartialEq)]
pub enum FromAgent {
    /// Audio to play: mono PCM16 at the line's rate.
    Audio(Vec<i16>),
    /// Discard all queued audio.
    Clear,
    /// The user's transcript.
    User {
        /// All words of the turn so far.
        text: String,
        /// Whether this is the final transcript.
        last: bool,
    },
    /// The agent's speech.
    Agent {
        /// The next clause, or with `last` all words that were heard.
        text: String,
        /// Whether the item has ended.
        last: bool,
    },
    /// A timer rings.
    TimerRings,
    /// A tool runs that the answer waits for, or has ended.
    Tool {
        /// The call, unlike any other of the conversation.
        call: String,
        /// Whether it runs.
        runs: bool,
    },
    /// An error that does not end the conversation.
    Trouble(String),
    /// The conversation is over; no message follows.
    Over(Over),
}

/// The reason a conversation is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Over {
    /// The idle or session limit was reached; a new conversation may start.
    Expired,
    /// The agent or the server ended it, for this reason.
    Ended(String),
    /// The connection broke, for this reason.
    Lost(String),
}

/// The agent to talk to.
#[derive(Debug)]
pub enum Agent {
    /// Sessions of this process.
    Local(LocalAgent),
    /// A server.
    Remote(Remote),
}

/// The models that sessions of this process use, and the agent that was chosen; otherwise the routes lead to one.
pub struct LocalAgent(pub Arc<Engines>, pub Option<String>);

impl std::fmt::Debug for LocalAgent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalAgent").finish_non_exhaustive()
    }
}

/// A server and its credentials.
#[derive(Debug)]
pub struct Remote {
    /// A `ws://` or `wss://` URL; the default path is `/v1/pcm`.
    pub url: String,
    /// The server's token, if it requires one.
    pub token: Option<SecretString>,
    /// The agent to talk to; the server decides if `None`.
    pub agent: Option<String>,
}

/// One conversation, which ends when this is dropped.
#[derive(Debug)]
pub struct AgentLine {
    /// Rate of the user's audio, Hz.
    pub input_rate: u32,
    /// Rate of the agent's audio, Hz.
    pub output_rate: u32,
    /// Takes the user's audio: mono PCM16 at the input rate, about 20 ms per message. Drop audio
    /// while it is full.
    pub microphone: mpsc::Sender<Vec<i16>>,
    /// Yields the agent's messages.
    pub from_agent: mpsc::Receiver<FromAgent>,
}

impl Agent {
    /// Opens a conversation. A local session uses these rates, Hz; a server has a rate of its own.
    ///
    /// # Errors
    /// [`DesktopError::Server`] if the server cannot be reached or refuses the connection.
    pub async fn call(&self, input_rate: u32, output_rate: u32) -> Result<AgentLine, DesktopError> {
        match self {
            Self::Local(agent) => Ok(local(agent, input_rate, output_rate)),
            Self::Remote(remote) => remote.call().await,
        }
    }
}

fn local(agent: &LocalAgent, input_rate: u32, output_rate: u32) -> AgentLine {
    let LocalAgent(engines, name) = agent;
    let options = SessionOptions {
        output_rate,
        values: SessionValues::default().with(Named::Transport, "desktop", Origin::Verified),
        agent: name.clone(),
        ..SessionOptions::new(Profile::Conversation, input_rate)
    };
    let (microphone, frames) = mpsc::channel(FRAMES);
    let (say, from_agent) = mpsc::channel(MESSAGES);
    tokio::spawn(carry(session::open(engines, &options), frames, say));
    AgentLine {
        input_rate,
        output_rate,
        microphone,
        from_agent,
    }
}

/// Carries audio and words between a session and the devices.
async fn carry(
    session: SessionHandle,
    mut frames: mpsc::Receiver<Vec<i16>>,
    say: mpsc::Sender<FromAgent>,
) {
    let SessionHandle {
        inbound,
        mut outbound,
        span,
    } = session;
    loop {
        tokio::select! {
            biased;
            message = outbound.recv() => {
                let Some(message) = message else { return };
                if let Some(said) = translate(message) && say.send(said).await.is_err() {
                    return;
                }
            }
            frame = frames.recv() => {
                let Some(frame) = frame else { return };
                if let Err(mpsc::error::TrySendError::Full(_)) =
                    inbound.try_send(Inbound::Audio(frame))
                {
                    span.in_scope(|| {
                        tracing::warn!("the session cannot keep up; dropped 20 ms of microphone audio");
                    });
                }
            }
        }
    }
}

fn translate(message: Outbound) -> Option<FromAgent> {
    match message {
        Outbound::Audio { samples, .. } => Some(FromAgent::Audio(samples)),
        Outbound::Clear => Some(FromAgent::Clear),
        Outbound::TimerRings => Some(FromAgent::TimerRings),
        // Only for telephone calls.
        Outbound::Tones(_) | Outbound::Keys(_) => None,
        Outbound::HangUp(reason) => Some(FromAgent::Over(over(reason))),
        Outbound::Event { event, .. } => told(event),
    }
}

fn told(event: Event) -> Option<FromAgent> {
    match event {
        Event::PartialTranscript { text } => Some(FromAgent::User { text, last: false }),
        Event::UserItem { text, .. } => Some(FromAgent::User { text, last: true }),
        Event::AgentSpeech { text, .. } => Some(FromAgent::Agent { text, last: false }),
        Event::AgentItemDone { text, .. } => Some(FromAgent::Agent { text, last: true }),
        Event::ToolCalled {
            call,
            by_client: false,
            ..
        } => Some(tool(call.to_string(), true)),
        Event::ToolFinished { call, .. } => Some(tool(call.to_string(), false)),
        Event::StageFailed { message, .. } | Event::Refused { message, .. } => {
            Some(FromAgent::Trouble(message))
        }
        _ => None,
    }
}

fn tool(call: String, runs: bool) -> FromAgent {
    FromAgent::Tool { call, runs }
}

fn over(reason: HangUpReason) -> Over {
    match reason {
        HangUpReason::Idle | HangUpReason::TooLong => Over::Expired,
        HangUpReason::AgentEnded => Over::Ended("the agent ended the conversation".into()),
        HangUpReason::HandedOver => Over::Ended("the conversation was handed over".into()),
        // It is no telephone.
        HangUpReason::Unheard => Over::Ended("the user cannot be heard".into()),
        HangUpReason::Machine => Over::Ended("a machine has answered".into()),
        HangUpReason::Shutdown => Over::Ended("undertone is shutting down".into()),
    }
}

/// A text message from a server; see [`crate::transport::pcm`].
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Told {
    Ready {
        sample_rate: u32,
    },
    Clear,
    Transcript {
        role: Role,
        text: String,
        #[serde(rename = "final")]
        last: bool,
    },
    Timer,
    Tool {
        call: String,
        state: ToolState,
    },
    Error {
        message: String,
    },
    #[serde(other)]
    Unknown,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Role {
    User,
    Agent,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ToolState {
    Running,
    Done,
}

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

impl Remote {
    async fn call(&self) -> Result<AgentLine, DesktopError> {
        let calling = timeout(CONNECTING, self.connect());
        let socket = match calling.await {
            Ok(connected) => connected.map_err(|reason| self.failed(reason))?,
            Err(_) => return Err(self.failed("no answer within ten seconds".into())),
        };
        let (microphone, frames) = mpsc::channel(FRAMES);
        let (say, from_agent) = mpsc::channel(MESSAGES);
        tokio::spawn(relay(socket, frames, say));
        Ok(AgentLine {
            input_rate: REMOTE_RATE,
            output_rate: REMOTE_RATE,
            microphone,
            from_agent,
        })
    }

    async fn connect(&self) -> Result<Socket, String> {
        let mut request = self
            .url()?
            .into_client_request()
            .map_err(|error| error.to_string())?;
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, HeaderValue::from_static("undertone-talk"));
        if let Some(token) = &self.token {
            let shown = HeaderValue::try_from(format!("Bearer {}", token.expose_secret()));
            let mut shown = shown
                .map_err(|_| "the token contains characters that are not allowed in a header")?;
            shown.set_sensitive(true);
            headers.insert(AUTHORIZATION, shown);
        }
        let (mut socket, _) = connect_async(request).await.map_err(refused)?;
        let hello = format!(r#"{{"type":"hello","sample_rate":{REMOTE_RATE}}}"#);
        let sent = socket.send(Message::text(hello)).await;
        sent.map_err(|error| error.to_string())?;
        ready(&mut socket).await?;
        Ok(socket)
    }

    /// The URL with its path.
    fn url(&self) -> Result<String, String> {
        let mut url = url::Url::parse(&self.url).map_err(|error| error.to_string())?;
        if !["ws", "wss"].contains(&url.scheme()) {
            return Err("a server's address begins with ws:// or wss://".into());
        }
        if url.path() == "/" {
            url.set_path("/v1/pcm");
        }
        if let Some(agent) = &self.agent {
            url.query_pairs_mut().append_pair("agent", agent);
        }
        Ok(url.into())
    }

    fn failed(&self, reason: String) -> DesktopError {
        DesktopError::Server {
            url: self.url.clone(),
            reason,
        }
    }
}

/// The reason a server refused the connection, and what to do.
fn refused(error: tokio_tungstenite::tungstenite::Error) -> String {
    use tokio_tungstenite::tungstenite::Error;
    match error {
        Error::Http(response) => match response.status().as_u16() {
            401 => "it requires another token: set UNDERTONE_AUTH_TOKEN or server.auth_token_file"
                .into(),
            503 => "it has no capacity left; try again later".into(),
            status => message_in(response.body().as_deref()).unwrap_or_else(|| {
                format!("it answered with status {status}; is the address right?")
            }),
        },
        error => error.to_string(),
    }
}

/// The message of the error in a response's body, if that is in the server's format.
fn message_in(body: Option<&[u8]>) -> Option<String> {
    let error: serde_json::Value = serde_json::from_slice(body?).ok()?;
    error["error"]["message"].as_str().map(str::to_owned)
}

/// Waits until the server has confirmed the rate.
async fn ready(socket: &mut Socket) -> Result<(), String> {
    while let Some(message) = socket.next().await {
        match message.map_err(|error| error.to_string())? {
            Message::Text(text) => match serde_json::from_str(&text) {
                Ok(Told::Ready { sample_rate }) if sample_rate == REMOTE_RATE => return Ok(()),
                Ok(Told::Error { message }) => return Err(message),
                _ => {}
            },
            Message::Close(close) => return Err(words(close)),
            _ => {}
        }
    }
    Err("it hung up".into())
}

/// Carries audio and words between a socket and the devices.
async fn relay(socket: Socket, frames: mpsc::Receiver<Vec<i16>>, say: mpsc::Sender<FromAgent>) {
    let (to_server, from_server) = socket.split();
    tokio::select! {
        () = speak(to_server, frames) => {}
        over = listen(from_server, &say) => {
            // Fails only if the devices' side has ended.
            drop(say.send(FromAgent::Over(over)).await);
        }
    }
}

async fn speak(mut to_server: SplitSink<Socket, Message>, mut frames: mpsc::Receiver<Vec<i16>>) {
    let mut ping = interval(PING_EVERY);
    loop {
        let message = tokio::select! {
            frame = frames.recv() => match frame {
                Some(frame) => Message::Binary(Bytes::from(to_pcm16le(&frame))),
                None => break,
            },
            _ = ping.tick() => Message::Ping(Bytes::new()),
        };
        if to_server.send(message).await.is_err() {
            // The receiving side reports the reason.
            return std::future::pending().await;
        }
    }
    // The user hung up; errors no longer matter.
    drop(to_server.close().await);
}

async fn listen(mut from_server: SplitStream<Socket>, say: &mpsc::Sender<FromAgent>) -> Over {
    loop {
        let message = match timeout(GONE, from_server.next()).await {
            Ok(Some(message)) => message,
            Ok(None) => return Over::Lost("the server closed the connection".into()),
            Err(_) => return Over::Lost("the server no longer responds".into()),
        };
        let said = match message {
            Ok(Message::Binary(bytes)) => from_pcm16le(&bytes).ok().map(FromAgent::Audio),
            Ok(Message::Text(text)) => heard(&text),
            Ok(Message::Close(close)) => return closed(close),
            Ok(_) => None,
            Err(error) => return Over::Lost(error.to_string()),
        };
        if let Some(said) = said
            && say.send(said).await.is_err()
        {
            return Over::Ended("the devices are closed".into());
        }
    }
}

fn heard(text: &str) -> Option<FromAgent> {
    match serde_json::from_str(text) {
        Ok(Told::Clear) => Some(FromAgent::Clear),
        Ok(Told::Transcript {
            role: Role::User,
            text,
            last,
        }) => Some(FromAgent::User { text, last }),
        Ok(Told::Transcript {
            role: Role::Agent,
            text,
            last,
        }) => Some(FromAgent::Agent { text, last }),
        Ok(Told::Timer) => Some(FromAgent::TimerRings),
        Ok(Told::Tool { call, state }) => Some(tool(call, state == ToolState::Running)),
        Ok(Told::Error { message }) => Some(FromAgent::Trouble(message)),
        Ok(Told::Ready { .. } | Told::Unknown) => None,
        Err(error) => Some(FromAgent::Trouble(format!(
            "the server sent an invalid message: {error}"
        ))),
    }
}

fn closed(close: Option<CloseFrame>) -> Over {
    let ran_out = [HangUpReason::Idle, HangUpReason::TooLong].map(close_of_hang_up);
    match close {
        Some(close) if ran_out.iter().any(|c| c.reason == close.reason.as_str()) => Over::Expired,
        Some(close) if close.code == CloseCode::Normal => Over::Ended(close.reason.to_string()),
        close => Over::Lost(words(close)),
    }
}

fn words(close: Option<CloseFrame>) -> String {
    let reason = close.map(|close| close.reason.to_string());
    let reason = reason.filter(|reason| !reason.is_empty());
    reason.map_or_else(
        || "the server hung up".into(),
        |reason| format!("the server hung up: {reason}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(url: &str) -> Remote {
        Remote {
            url: url.into(),
            token: None,
            agent: None,
        }
    }

    #[test]
    fn an_address_without_a_path_means_v1_pcm() {
        let url = |given| remote(given).url();
        assert_eq!(url("ws://host:8787"), Ok("ws://host:8787/v1/pcm".into()));
        assert_eq!(url("wss://host/a?b=1"), Ok("wss://host/a?b=1".into()));
        let billing = Remote {
            agent: Some("billing".into()),
            ..remote("ws://host")
        };
        assert_eq!(billing.url(), Ok("ws://host/v1/pcm?agent=billing".into()));
        assert!(url("http://host").unwrap_err().contains("ws://"));
        assert!(url("host:8787").is_err());
    }

    #[tokio::test]
    async fn a_server_without_tls_is_an_error() {
        use tokio::io::AsyncWriteExt;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("wss://{}", listener.local_addr().unwrap());
        let refusing = tokio::spawn(async move {
            let (mut client, _) = listener.accept().await.unwrap();
            client.write_all(b"HTTP/1.1 400 no\r\n\r\n").await.unwrap();
        });
        let agent = Agent::Remote(remote(&url));
        let error = agent.call(16_000, 48_000).await.unwrap_err();
        assert!(error.to_string().contains(&url), "{error}");
        refusing.await.unwrap();
    }

    /// A client that named an unknown agent was asked whether the address is right.
    #[tokio::test]
    async fn a_server_that_refuses_the_connection_says_why() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        for (body, reason) in [
            (
                r#"{"error":{"message":"There is no agent 'desk'."}}"#,
                "There is no agent 'desk'.",
            ),
            ("no", "is the address right?"),
        ] {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("ws://{}", listener.local_addr().unwrap());
            let refusing = tokio::spawn(async move {
                let (mut client, _) = listener.accept().await.unwrap();
                assert!(client.read(&mut [0; 4096]).await.unwrap() > 0);
                let length = body.len();
                let answer = format!("HTTP/1.1 400 no\r\ncontent-length: {length}\r\n\r\n{body}");
                client.write_all(answer.as_bytes()).await.unwrap();
            });
            let agent = Agent::Remote(remote(&url));
            let error = agent.call(16_000, 48_000).await.unwrap_err();
            assert!(error.to_string().contains(reason), "{error}");
            refusing.await.unwrap();
        }
    }

    /// Its machine has lost power, or the network is down: the connection stays open.
    #[tokio::test]
    async fn a_silent_server_is_lost() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            let (client, _) = listener.accept().await.unwrap();
            let mut socket = tokio_tungstenite::accept_async(client).await.unwrap();
            socket.next().await.unwrap().unwrap();
            let ready = format!(r#"{{"type":"ready","sample_rate":{REMOTE_RATE}}}"#);
            socket.send(Message::text(ready)).await.unwrap();
            socket
        });
        let agent = Agent::Remote(remote(&url));
        let mut line = agent.call(16_000, 48_000).await.unwrap();
        let _silent = server.await.unwrap();
        tokio::time::pause();
        let over = line.from_agent.recv().await.unwrap();
        assert!(matches!(over, FromAgent::Over(Over::Lost(_))), "{over:?}");
    }

    #[test]
    fn timers_and_tools_of_a_server_are_heard() {
        let running = r#"{"type":"tool","call":"call_4","name":"get_weather","state":"running"}"#;
        assert_eq!(heard(running), Some(tool("call_4".into(), true)));
        let done = r#"{"type":"tool","call":"call_4","state":"done"}"#;
        assert_eq!(heard(done), Some(tool("call_4".into(), false)));
        assert_eq!(heard(r#"{"type":"timer"}"#), Some(FromAgent::TimerRings));
    }

    #[test]
    fn unknown_messages_of_a_newer_server_are_ignored() {
        assert_eq!(heard(r#"{"type":"weather","wind":3}"#), None);
        assert_eq!(heard(r#"{"type":"clear"}"#), Some(FromAgent::Clear));
        assert!(matches!(heard("{"), Some(FromAgent::Trouble(_))));
    }

    #[test]
    fn any_close_but_a_normal_one_is_a_failure() {
        let close = |code| CloseFrame {
            code,
            reason: "so it is".into(),
        };
        let ended = closed(Some(close(CloseCode::Normal)));
        assert_eq!(ended, Over::Ended("so it is".into()));
        let idle = CloseFrame {
            code: CloseCode::Normal,
            reason: close_of_hang_up(HangUpReason::Idle).reason.into(),
        };
        assert_eq!(closed(Some(idle)), Over::Expired);
        assert!(matches!(
            closed(Some(close(CloseCode::Again))),
            Over::Lost(_)
        ));
        assert!(matches!(closed(None), Over::Lost(_)));
    }
}
