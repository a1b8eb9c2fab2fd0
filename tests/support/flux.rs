//! A simulator of Deepgram's Flux, `/v2/listen`, of the same service as `/v1/listen`. `foreign.rs` proves it with
//! Deepgram's SDK for Python.

use super::deepgram::{self, Known, Manner, closed, refusal, seconds, shown, text};
use super::speech_services::HEARD;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use undertone::asr::AsrService;
use undertone::asr::deepgram::{Deepgram, Settings};
use undertone::audio::from_pcm16le;

/// Audio between two messages, in samples.
const STEP: usize = deepgram::RATE / 4;

/// Silence after which a turn is probably over, and is over, in samples.
const EAGER: usize = deepgram::RATE * 200 / 1_000;
const OVER: usize = deepgram::RATE * 450 / 1_000;

/// How long each word lasts, in samples.
const WORD: usize = deepgram::WORD;

/// The recogniser at this address.
pub(crate) fn recogniser(address: SocketAddr, key: &str) -> Arc<dyn AsrService> {
    let settings = Settings {
        base_url: format!("http://{address}/v2").parse().expect("a URL"),
        model: "flux-general-en".into(),
        api_key: Some(key.to_owned().into()),
    };
    Arc::new(Deepgram::new(settings).expect("a client"))
}

pub(super) async fn listen(
    State(known): State<Arc<Known>>,
    Query(query): Query<Vec<(String, String)>>,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Response {
    known
        .seen
        .send_modify(|seen| seen.queries.push(shown(&query)));
    if let Some(refusal) = deepgram::refused(&known, &headers) {
        return refusal;
    }
    let query: BTreeMap<_, _> = query.into_iter().collect();
    let parameters = [
        "model",
        "encoding",
        "sample_rate",
        "eager_eot_threshold",
        "eot_threshold",
        "eot_timeout_ms",
        "keyterm",
        "language_hint",
    ];
    let is = |name: &str, value: &str| query.get(name).is_some_and(|given| given == value);
    let is_multi = is("model", "flux-general-multi");
    let right = (is_multi || is("model", "flux-general-en"))
        && is("encoding", "linear16")
        && is("sample_rate", "16000")
        && (is_multi || !query.contains_key("language_hint"))
        && query.keys().all(|name| parameters.contains(&name.as_str()));
    if !right {
        return refusal(400, "INVALID_QUERY_PARAMETER", "Invalid query parameter.");
    }
    let eager = query.contains_key("eager_eot_threshold");
    upgrade.on_upgrade(async move |socket| {
        known.seen.send_modify(|seen| seen.open += 1);
        Turns::new(&known, eager).serve(socket).await;
        known.seen.send_modify(|seen| seen.open -= 1);
    })
}

/// One connection.
struct Turns<'a> {
    known: &'a Known,
    eager: bool,
    /// Samples so far.
    received: usize,
    /// Those that the last message was about.
    told: usize,
    sequence: usize,
    turn: usize,
    /// Where the turn began and somebody spoke last, once there is one.
    speech: Option<(usize, usize)>,
    /// Loud samples of the turn.
    loud: usize,
    /// The turn has begun; it is probably over.
    begun: bool,
    perhaps_over: bool,
    /// Nothing more is said.
    falls_silent: bool,
    words: Vec<(&'static str, usize)>,
}

impl<'a> Turns<'a> {
    fn new(known: &'a Known, eager: bool) -> Self {
        Self {
            known,
            eager,
            received: 0,
            told: 0,
            sequence: 0,
            turn: 0,
            speech: None,
            loud: 0,
            begun: false,
            perhaps_over: false,
            falls_silent: false,
            words: Vec::new(),
        }
    }

    async fn serve(mut self, socket: WebSocket) {
        let connected = json!({"type": "Connected", "request_id": "r", "sequence_id": 0});
        let known = self.known;
        deepgram::converse(known, socket, vec![text(&connected)], |message| {
            self.take(message)
        })
        .await;
    }

    /// Takes in a message. Returns what there is to say, and whether the connection goes on.
    fn take(&mut self, message: &Message) -> (Vec<Message>, bool) {
        let typed = match message {
            Message::Binary(audio) => match from_pcm16le(audio) {
                Ok(samples) if !samples.is_empty() => return (self.hear(&samples), true),
                _ => {
                    self.known.mistake("no audio");
                    return (vec![closed(1008, "DATA-0000")], false);
                }
            },
            Message::Text(text) => serde_json::from_str::<Value>(text).unwrap_or_default(),
            Message::Close(_) => return (Vec::new(), false),
            Message::Ping(_) | Message::Pong(_) => return (Vec::new(), true),
        };
        let kind = typed["type"].as_str().unwrap_or_default().to_owned();
        self.known
            .seen
            .send_modify(|seen| seen.messages.push(kind.clone()));
        match kind.as_str() {
            "ForceEndTurn" if self.begun => (vec![self.end("manual")], true),
            // Without a turn it is ignored.
            "ForceEndTurn" => (Vec::new(), true),
            "CloseStream" => (vec![closed(1000, "")], false),
            _ => {
                self.known.mistake(&format!("a message of the type {kind}"));
                self.sequence += 1;
                let error = json!({
                    "type": "Error", "sequence_id": self.sequence, "code": "UNPARSABLE_CLIENT_MESSAGE",
                    "description": "Could not parse the message",
                });
                (vec![text(&error), closed(1008, "")], false)
            }
        }
    }

    fn hear(&mut self, samples: &[i16]) -> Vec<Message> {
        let mut told = Vec::new();
        if self.falls_silent {
            return told;
        }
        for sample in samples {
            let at = self.received;
            self.received += 1;
            if sample.unsigned_abs() > 3_000 {
                told.extend(self.hear_loud(at));
            }
            let silence = self.speech.map_or(0, |(_, last)| at - last);
            let is_eager = self.eager && self.begun && !self.perhaps_over;
            let ends = *self.known.manner.borrow() != Manner::NeverFinal;
            if silence >= OVER && self.begun && ends {
                // The end follows a probable end with the same words.
                told.extend(is_eager.then(|| self.info("EagerEndOfTurn", None)));
                told.push(self.end("model"));
            } else if silence >= EAGER && is_eager && !self.words.is_empty() {
                self.perhaps_over = true;
                told.push(self.info("EagerEndOfTurn", None));
                if *self.known.manner.borrow() == Manner::SilentFromEager {
                    self.falls_silent = true;
                }
            } else if self.received - self.told >= STEP {
                told.push(self.info("Update", None));
            }
        }
        told
    }

    /// Handles a loud sample. Each word of the transcript takes the time of [`WORD`], again and again.
    fn hear_loud(&mut self, at: usize) -> Option<Message> {
        let (from, _) = *self.speech.get_or_insert((at, at));
        self.speech = Some((from, at));
        self.loud += 1;
        let resumed = std::mem::take(&mut self.perhaps_over);
        if self.loud.is_multiple_of(WORD) {
            let all: Vec<&'static str> = HEARD.split_whitespace().collect();
            self.words
                .push((all[self.words.len() % all.len()], at + 1 - WORD));
        }
        let is_first =
            self.words.len() == 1 && !std::mem::replace(&mut self.begun, !self.words.is_empty());
        match (resumed, is_first) {
            (true, _) => Some(self.info("TurnResumed", None)),
            (_, true) => Some(self.info("StartOfTurn", None)),
            _ => None,
        }
    }

    fn end(&mut self, trigger: &str) -> Message {
        let end = self.info("EndOfTurn", Some(trigger));
        self.turn += 1;
        self.speech = None;
        self.loud = 0;
        self.begun = false;
        self.perhaps_over = false;
        self.words.clear();
        end
    }

    fn info(&mut self, event: &str, trigger: Option<&str>) -> Message {
        self.told = self.received;
        self.sequence += 1;
        let words = self.words.iter().map(|(word, begun)| {
            json!({
                "word": word, "confidence": 0.99,
                "start": seconds(*begun), "end": seconds(begun + WORD),
            })
        });
        let transcript: Vec<&str> = self.words.iter().map(|(word, _)| *word).collect();
        let from = self.speech.map_or(self.received, |(from, _)| from);
        let mut info = json!({
            "type": "TurnInfo", "request_id": "r", "sequence_id": self.sequence, "event": event,
            "turn_index": self.turn, "audio_window_start": seconds(from),
            "audio_window_end": seconds(self.received), "transcript": transcript.join(" "),
            "words": words.collect::<Vec<_>>(), "end_of_turn_confidence": 0.5,
        });
        if let Some(trigger) = trigger {
            info["trigger"] = json!(trigger);
        }
        text(&info)
    }
}
