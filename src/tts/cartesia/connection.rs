//! A session's connection to Cartesia: requests on their way there, and what comes back for each clause.

use super::super::pcm::Pcm;
use super::super::timing::Timing;
use super::super::{Piece, TtsError};
use crate::backend::socket::{Lost, Socket};
use crate::backend::{Backend, KeyForm};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::mpsc;

const PATH: &str = "tts/websocket";

/// The version of the API: that of Cartesia's SDK which proves the simulator in the tests.
const VERSION: (&str, &str) = ("Cartesia-Version", "2026-08-14");

pub(super) type Pieces = mpsc::Sender<Result<Piece, TtsError>>;

/// A request of the session to its connection.
pub(super) enum Command {
    /// Say a clause.
    Speak {
        context: String,
        request: Value,
        text: String,
        pieces: Pieces,
    },
    /// Nobody needs a clause any more. If nothing of it has come, the connection may be dead.
    Cancel { context: String, answered: bool },
}

/// A message from Cartesia.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Message {
    Chunk {
        context_id: String,
        data: String,
    },
    Timestamps {
        context_id: String,
        word_timestamps: Option<WordTimestamps>,
    },
    Done {
        context_id: String,
    },
    Error {
        context_id: Option<String>,
        status_code: Option<u16>,
        #[serde(default)]
        message: Option<String>,
    },
    #[serde(other)]
    Other,
}

/// Times in seconds since the beginning of the context.
#[derive(Deserialize)]
struct WordTimestamps {
    words: Vec<String>,
    end: Vec<f64>,
}

/// A clause that is being said.
struct Context {
    pieces: Pieces,
    timing: Timing,
    pcm: Pcm,
}

/// A session's connections, one after the other.
pub(super) struct Connection {
    backend: Arc<Backend>,
    contexts: BTreeMap<String, Context>,
}

/// The event that the connection's task handles next.
enum News {
    Wanted(Option<Command>),
    Said(Result<String, Lost>),
}

impl Connection {
    pub(super) fn new(backend: Arc<Backend>) -> Self {
        Self {
            backend,
            contexts: BTreeMap::new(),
        }
    }

    /// Runs until the session is over. A connection that is lost is opened again for the next clause: Cartesia
    /// closes those on which nothing was said for five minutes.
    pub(super) async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        let mut socket = self.open().await;
        loop {
            let news = match &mut socket {
                Ok(open) => tokio::select! {
                    biased;
                    command = commands.recv() => News::Wanted(command),
                    text = open.next() => News::Said(text.map(|text| text.to_string())),
                },
                Err(_) => News::Wanted(commands.recv().await),
            };
            let done = match news {
                News::Wanted(None) => return,
                News::Wanted(Some(command)) => self.carry_out(command, &mut socket).await,
                News::Said(Ok(text)) => {
                    self.take(&text);
                    Ok(())
                }
                News::Said(Err(lost)) => Err(lost),
            };
            if let Err(lost) = done {
                tracing::debug!(%lost, "the connection to a voice is lost");
                for (_, context) in std::mem::take(&mut self.contexts) {
                    fail(&context.pieces, &lost);
                }
                socket = Err(lost);
            }
        }
    }

    async fn open(&self) -> Result<Socket, Lost> {
        let request = self
            .backend
            .get_with(PATH, &[])
            .header(VERSION.0, VERSION.1);
        Socket::open(&self.backend, request, KeyForm::Bearer).await
    }

    async fn carry_out(
        &mut self,
        command: Command,
        socket: &mut Result<Socket, Lost>,
    ) -> Result<(), Lost> {
        match command {
            Command::Speak { pieces, .. } if pieces.is_closed() => Ok(()),
            Command::Speak {
                context,
                request,
                text,
                pieces,
            } => {
                let spoken = Context {
                    pieces,
                    timing: Timing::of(&text),
                    pcm: Pcm::default(),
                };
                self.contexts.insert(context, spoken);
                match socket {
                    Ok(_) => {}
                    // It stays what it is until the session is over.
                    Err(denied @ Lost::Denied(_)) => return Err(denied.clone()),
                    Err(Lost::Failed(_)) => *socket = self.open().await,
                }
                match socket {
                    Ok(open) => open.send(request.to_string()).await,
                    Err(lost) => Err(lost.clone()),
                }
            }
            Command::Cancel { context, answered } => {
                if self.contexts.remove(&context).is_none() {
                    return Ok(());
                }
                let Ok(open) = socket else { return Ok(()) };
                if !answered && self.contexts.is_empty() {
                    // It may be dead although it takes requests.
                    *socket = self.open().await;
                    return Ok(());
                }
                let cancel = json!({"context_id": context, "cancel": true});
                open.send(cancel.to_string()).await
            }
        }
    }

    /// Takes in a message. What is said in contexts that nobody needs is dropped.
    fn take(&mut self, text: &str) {
        match serde_json::from_str(text) {
            Ok(Message::Chunk { context_id, data }) => {
                self.give(&context_id, |context| context.samples(&data));
            }
            Ok(Message::Timestamps {
                context_id,
                word_timestamps: Some(times),
            }) => self.give(&context_id, |context| Ok(context.times(&times))),
            Ok(Message::Done { context_id }) => {
                self.contexts.remove(&context_id);
            }
            Ok(Message::Error {
                context_id,
                status_code,
                message,
            }) => {
                let backend = &self.backend;
                let reason = message.map(|message| backend.redacted(&message));
                tracing::debug!(?reason, "speech refused");
                let reason = format!(
                    "{} answered {}",
                    backend.shown(),
                    status_code.unwrap_or_default()
                );
                let lost = match status_code {
                    Some(401 | 403) => Lost::Denied(reason),
                    _ => Lost::Failed(reason),
                };
                // Without a context it is about all of them.
                let is_meant = |id: &String| context_id.as_ref().is_none_or(|meant| meant == id);
                let contexts = std::mem::take(&mut self.contexts);
                let (failed, others) = contexts.into_iter().partition(|(id, _)| is_meant(id));
                self.contexts = others;
                let failed: BTreeMap<_, Context> = failed;
                failed
                    .values()
                    .for_each(|context| fail(&context.pieces, &lost));
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "a voice sent what is no message"),
        }
    }

    fn give(&mut self, id: &str, piece: impl FnOnce(&mut Context) -> Result<Piece, TtsError>) {
        let Some(context) = self.contexts.get_mut(id) else {
            return;
        };
        let piece = piece(context);
        let is_over = piece.is_err();
        if context.pieces.try_send(piece).is_err() || is_over {
            self.contexts.remove(id);
        }
    }
}

/// Ends a clause that cannot be said.
fn fail(pieces: &Pieces, lost: &Lost) {
    let error = match lost.clone() {
        Lost::Denied(reason) => TtsError::Denied(reason),
        Lost::Failed(reason) => TtsError::Run(reason),
    };
    // Nobody may need it any more.
    drop(pieces.try_send(Err(error)));
}

impl Context {
    fn samples(&mut self, data: &str) -> Result<Piece, TtsError> {
        let wrong = |what: &str| TtsError::Run(format!("the voice sent {what}"));
        let bytes = BASE64_STANDARD.decode(data);
        let bytes = bytes.map_err(|_| wrong("what is no base64"))?;
        let samples = self.pcm.push(&bytes);
        let samples =
            samples.map_err(|found| wrong(&format!("{found} instead of bare samples")))?;
        Ok(samples.into())
    }

    fn times(&mut self, times: &WordTimestamps) -> Piece {
        let words = times.words.iter().zip(&times.end);
        Piece {
            word_ends: words
                .filter_map(|(word, end)| self.timing.word(word, *end))
                .collect(),
            ..Piece::default()
        }
    }
}
