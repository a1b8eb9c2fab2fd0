//! A server on a free port, its clients, and a scripted session that answers with a tone.

pub(crate) mod anthropic;
pub(crate) mod cartesia;
pub(crate) mod deepgram;
pub(crate) mod desk;
pub(crate) mod dtmf;
pub(crate) mod elevenlabs;
pub(crate) mod faults;
pub(crate) mod flux;
pub(crate) mod live;
pub(crate) mod log;
pub(crate) mod mcp;
pub(crate) mod ports;
pub(crate) mod program;
pub(crate) mod real;
pub(crate) mod replicas;
pub(crate) mod scripted;
pub(crate) mod speech_services;
pub(crate) mod tls;
pub(crate) mod twilio;
pub(crate) mod webrtc;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};
use tokio_util::sync::CancellationToken;
use undertone::server::{
    App, Counters, ServerError, ServerSettings, SessionFactory, bind, bind_with, run,
};
use undertone::transport::phone::audiosocket::{self, AudioSocket};

pub(crate) use scripted::Script;

/// A timeout that is reached only if something is wrong, even on a slow machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The current time.
#[expect(
    clippy::disallowed_methods,
    reason = "tests measure, and speak in real time"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Serves `router` on a thread of its own until the process ends. Returns its address.
pub(crate) fn serve_on_a_thread(router: axum::Router) -> SocketAddr {
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
                .await
                .expect("a port");
            tell.send(listener.local_addr().expect("an address"))
                .expect("a test");
            axum::serve(listener, router).await.expect("a server");
        });
    });
    told.recv().expect("a server")
}

/// A server that runs until dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) counters: Arc<Counters>,
    pub(crate) shutdown: CancellationToken,
    pub(crate) task: JoinHandle<Result<(), ServerError>>,
}

impl Server {
    /// Starts a server with scripted sessions.
    pub(crate) async fn start(script: Script) -> Self {
        Self::with(local(), script).await
    }

    pub(crate) async fn with(settings: ServerSettings, script: Script) -> Self {
        Self::serve(App::new(settings, scripted::factory(script)))
    }

    pub(crate) fn serve(app: App) -> Self {
        let listener = bind(app.settings.bind).expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (counters, shutdown) = (app.counters.clone(), CancellationToken::new());
        let task = tokio::spawn(run(listener, app, shutdown.clone()));
        Self {
            address,
            counters,
            shutdown,
            task,
        }
    }

    /// A server that takes AudioSocket calls, and where.
    pub(crate) fn of_calls(
        settings: ServerSettings,
        sessions: SessionFactory,
    ) -> (Self, SocketAddr) {
        let door = AudioSocket::new(settings.pcm_intake);
        let any = ([127, 0, 0, 1], 0).into();
        let listener = bind_with(any, audiosocket::SEND_BUFFER).expect("a free port");
        let address = listener.local_addr().expect("an address");
        let app = App {
            doors: vec![(listener, Arc::new(door))],
            ..App::new(settings, sessions)
        };
        (Self::serve(app), address)
    }

    /// Opens a Realtime client and reads `session.created`.
    pub(crate) async fn realtime(&self) -> Client {
        let mut client = self.open("/v1/realtime?model=test").await;
        assert_eq!(client.event().await["type"], "session.created");
        client
    }

    pub(crate) async fn open(&self, path: &str) -> Client {
        self.try_open(path, &[]).await.expect("the socket opens")
    }

    /// Opens a WebSocket, or returns the HTTP status that refused it.
    pub(crate) async fn try_open(
        &self,
        path: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<Client, u16> {
        use tokio_tungstenite::tungstenite::Error;
        let url = format!("ws://{}{path}", self.address);
        let mut request = url.into_client_request().expect("a request");
        for (name, value) in headers {
            request
                .headers_mut()
                .insert(*name, value.parse().expect("a header"));
        }
        match connect_async(request).await {
            Ok((socket, response)) => {
                let protocol = response.headers().get("sec-websocket-protocol");
                let protocol = protocol.map(|name| name.to_str().expect("text").to_owned());
                Ok(Client { socket, protocol })
            }
            Err(Error::Http(response)) => Err(response.status().as_u16()),
            Err(error) => panic!("no answer: {error}"),
        }
    }

    /// Sends a request with the additional header lines `more`. Returns the whole response.
    pub(crate) async fn get(&self, path: &str, more: &str) -> String {
        let mut stream = TcpStream::connect(self.address)
            .await
            .expect("a connection");
        let connection = if more.contains("Connection") {
            ""
        } else {
            "Connection: close\r\n"
        };
        let host = self.address;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{connection}{more}\r\n");
        stream.write_all(request.as_bytes()).await.expect("sent");
        if connection.is_empty() {
            // Only where necessary, since a server may take this for a client that has left.
            stream.shutdown().await.expect("no more to say");
        }
        let mut answer = String::new();
        timeout(PATIENCE, stream.read_to_string(&mut answer))
            .await
            .expect("in time")
            .expect("text");
        answer
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Settings of a server on a free loopback port, whose clients may need long for their requests.
pub(crate) fn local() -> ServerSettings {
    ServerSettings {
        bind: ([127, 0, 0, 1], 0).into(),
        header_timeout: PATIENCE,
        ..ServerSettings::default()
    }
}

/// A WebSocket client.
pub(crate) struct Client {
    pub(crate) socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    pub(crate) protocol: Option<String>,
}

impl Client {
    pub(crate) async fn send(&mut self, event: Value) {
        self.send_text(&event.to_string()).await;
    }

    pub(crate) async fn send_text(&mut self, text: &str) {
        self.socket.send(Message::text(text)).await.expect("sent");
    }

    pub(crate) async fn send_bytes(&mut self, bytes: Vec<u8>) {
        self.socket
            .send(Message::binary(bytes))
            .await
            .expect("sent");
    }

    /// Appends `ms` of a loud tone, then of silence, in one event each.
    pub(crate) async fn speak(&mut self, ms: usize, silence_ms: usize) {
        for samples in [vec![8000; 24 * ms], vec![0; 24 * silence_ms]] {
            self.append(&samples).await;
        }
    }

    pub(crate) async fn append(&mut self, samples: &[i16]) {
        self.send(json!({"type": "input_audio_buffer.append", "audio": base64_of(samples)}))
            .await;
    }

    /// The next message that is not a ping.
    pub(crate) async fn message(&mut self) -> Option<Message> {
        loop {
            let next = timeout(PATIENCE, self.socket.next())
                .await
                .expect("a message in time");
            match next {
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(message)) => return Some(message),
                Some(Err(error)) => panic!("the socket broke: {error}"),
                None => return None,
            }
        }
    }

    /// The next event.
    pub(crate) async fn event(&mut self) -> Value {
        match self.message().await {
            Some(Message::Text(text)) => serde_json::from_str(&text).expect("JSON"),
            other => panic!("not an event: {other:?}"),
        }
    }

    /// All events up to and including the first of type `last`.
    pub(crate) async fn until(&mut self, last: &str) -> Vec<Value> {
        let mut events = vec![];
        loop {
            events.push(self.event().await);
            if events.last().expect("one")["type"] == last {
                return events;
            }
        }
    }

    /// Sends an event and expects an error; returns its `error`.
    pub(crate) async fn error_of(&mut self, event: Value) -> Value {
        self.send(event).await;
        self.until("error").await.pop().expect("an error")["error"].take()
    }

    /// Reads on until the socket is closed.
    pub(crate) async fn close_frame(&mut self) -> CloseFrame {
        loop {
            match self.message().await {
                Some(Message::Close(frame)) => return frame.expect("a code"),
                Some(_) => {}
                None => panic!("closed without a frame"),
            }
        }
    }
}

/// The types of events, with equal neighbours merged.
pub(crate) fn types(events: &[Value]) -> Vec<&str> {
    let mut types: Vec<&str> = events
        .iter()
        .filter_map(|event| event["type"].as_str())
        .collect();
    types.dedup();
    types
}

pub(crate) fn base64_of(samples: &[i16]) -> String {
    use base64::Engine;
    let bytes: Vec<u8> = samples
        .iter()
        .flat_map(|sample| sample.to_le_bytes())
        .collect();
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// The PCM16 in a `delta`.
pub(crate) fn samples_of(base64: &str) -> Vec<i16> {
    use base64::Engine;
    let decoded = base64::engine::general_purpose::STANDARD.decode(base64);
    let bytes = decoded.expect("base64");
    let samples = bytes.as_chunks::<2>().0.iter();
    samples.map(|sample| i16::from_le_bytes(*sample)).collect()
}
