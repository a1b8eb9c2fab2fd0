//! Cartesia's voices, `/tts/websocket`: one connection for each session, opened ahead, and a context for each
//! clause, with the times of its words. A clause that nobody needs any more is cancelled.

mod connection;

use super::pcm::RATE;
use super::{SpeechStream, TtsError, TtsService, TtsSession};
use crate::backend::Backend;
use crate::language::code;
use connection::{Command, Connection};
use futures_util::{StreamExt, stream};
use secrecy::SecretString;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tracing::Instrument;
use url::Url;

/// The address of Cartesia.
pub const BASE_URL: &str = "https://api.cartesia.ai";

/// Clauses and cancellations that may wait for the connection. If there are more, the next clause fails.
const COMMANDS: usize = 64;

/// Pieces of a clause that may wait for the session. If there are more, the clause fails.
const PIECES: usize = 1_024;

/// The longest silence of the server before it has opened a connection.
const STALLED: Duration = Duration::from_secs(5);

/// The timeout of connecting, TLS included.
const CONNECT: Duration = Duration::from_secs(3);

/// The service's address and the parameters of requests.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The address above `/tts/websocket`.
    pub base_url: Url,
    /// The model's name there, such as `sonic-3`.
    pub model: String,
    /// The voice's id there.
    pub voice: String,
    /// Sent as a bearer token. Never shown.
    pub api_key: Option<SecretString>,
}

/// The voice.
pub struct Cartesia {
    backend: Arc<Backend>,
    model: String,
    voice: String,
}

impl Cartesia {
    /// Sets up the client; connects to nothing.
    ///
    /// # Errors
    /// [`TtsError::Run`] if the address or the key cannot be used.
    pub fn new(settings: Settings) -> Result<Self, TtsError> {
        let Settings {
            base_url,
            model,
            voice,
            api_key,
        } = settings;
        let backend = Backend::new(base_url, api_key, CONNECT, STALLED);
        Ok(Self {
            backend: Arc::new(backend.map_err(TtsError::Run)?),
            model,
            voice,
        })
    }
}

impl TtsService for Cartesia {
    fn sample_rate(&self) -> u32 {
        RATE
    }

    fn open(&self, language: Option<&str>) -> Box<dyn TtsSession> {
        let (commands, orders) = mpsc::channel(COMMANDS);
        let connection = Connection::new(self.backend.clone());
        tokio::spawn(connection.run(orders).in_current_span());
        let mut request = json!({
            "model_id": self.model,
            "voice": {"mode": "id", "id": self.voice},
            "output_format": {"container": "raw", "encoding": "pcm_s16le", "sample_rate": RATE},
            "add_timestamps": true,
            "continue": false,
        });
        if let Some(language) = language {
            request["language"] = code(language).into();
        }
        Box::new(Session {
            commands,
            request,
            clauses: 0,
        })
    }
}

struct Session {
    commands: mpsc::Sender<Command>,
    /// The fields that all requests share.
    request: Value,
    clauses: u64,
}

impl TtsSession for Session {
    fn speak(&mut self, text: &str) -> SpeechStream {
        self.clauses += 1;
        let context = format!("clause-{}", self.clauses);
        let mut request = self.request.clone();
        request["context_id"] = context.as_str().into();
        request["transcript"] = text.into();
        let (pieces, made) = mpsc::channel(PIECES);
        let speak = Command::Speak {
            context: context.clone(),
            request,
            text: text.to_owned(),
            pieces,
        };
        if self.commands.try_send(speak).is_err() {
            let busy = TtsError::Run("the connection takes no more clauses".into());
            return stream::once(async { Err(busy) }).boxed();
        }
        let wanted = Wanted {
            context,
            commands: self.commands.clone(),
            made,
            answered: false,
            over: false,
        };
        stream::unfold(wanted, |mut wanted| async move {
            let piece = wanted.made.recv().await;
            wanted.answered |= piece.as_ref().is_some_and(Result::is_ok);
            wanted.over |= piece.as_ref().is_none_or(Result::is_err);
            piece.map(|piece| (piece, wanted))
        })
        .boxed()
    }
}

/// A clause that is being said. Dropping it cancels the rest.
struct Wanted {
    context: String,
    commands: mpsc::Sender<Command>,
    made: mpsc::Receiver<Result<super::Piece, TtsError>>,
    /// Whether a piece of it has come.
    answered: bool,
    /// Whether the clause is complete.
    over: bool,
}

impl Drop for Wanted {
    fn drop(&mut self) {
        if !self.over {
            let (context, answered) = (std::mem::take(&mut self.context), self.answered);
            // If the connection has no room, it is lost, and its contexts with it.
            drop(
                self.commands
                    .try_send(Command::Cancel { context, answered }),
            );
        }
    }
}
