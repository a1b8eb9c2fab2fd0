//! Bare PCM over a WebSocket: the lowest door, for devices.
//!
//! Client to server: binary messages of mono PCM16LE, any number of whole samples up to the
//! message limit, 16 kHz. To speak at 24 kHz in both directions, the first message is the text
//! `{"type":"hello","sample_rate":24000}`; the answer is
//! `{"type":"ready","sample_rate":24000}`. The session opens with it or with the first audio; a socket that
//! has opened none within ten seconds is closed with 1008. JSON objects without a `type`, with which telephony
//! providers describe the call, are ignored. `?voice=` chooses one of the server's voices, `?speed=` sets its speed.
//!
//! Server to client: binary messages of mono PCM16LE at the same rate, 20 ms each, and text:
//!
//! | message | meaning |
//! |---|---|
//! | `{"type":"clear"}` | drop what has not been played |
//! | `{"type":"transcript","role":"user","text":…,"final":false}` | the partial transcript so far |
//! | `{"type":"transcript","role":"user","text":…,"final":true}` | the final transcript |
//! | `{"type":"transcript","role":"agent","text":…,"final":false}` | the next clause |
//! | `{"type":"transcript","role":"agent","text":…,"final":true}` | all that was heard of the agent |
//! | `{"type":"timer"}` | a timer rings; the words follow once nobody speaks |
//! | `{"type":"tool","call":…,"name":…,"state":"running"}` | the answer waits for a tool; `done` follows |
//! | `{"type":"error","message":…,"field":…}` | a text message was not understood, or a stage failed |
//!
//! A binary message that ends in half a sample closes the socket with 1007: everything after it
//! would be noise.

use super::{Action, ClientMessage, Close, Dialect, Frame, close_code};
use crate::conversation::{Event, Micros};
use crate::session::{Outbound, Profile, SessionOptions};
use crate::tools::SessionValues;
use crate::traces::Parent;
use crate::tts::Speaker;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The rate unless the client says otherwise, Hz.
pub const DEFAULT_RATE: u32 = 16_000;

/// The rates that a client may ask for, Hz.
pub const RATES: [u32; 2] = [16_000, 24_000];

/// The optional first message, with the client's wishes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Hello {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    sample_rate: Option<u32>,
}

/// The translator of one client.
#[derive(Debug)]
pub struct Pcm {
    client: Option<String>,
    values: SessionValues,
    agent: Option<String>,
    speaker: Speaker,
    parent: Option<Parent>,
    /// The rate in both directions, Hz; `None` until the session is open.
    rate: Option<u32>,
    overrun: bool,
}

impl Pcm {
    /// A translator for a client with the name that it gave, if any.
    pub fn new(client: Option<String>) -> Self {
        Self {
            client,
            values: SessionValues::default(),
            agent: None,
            speaker: Speaker::default(),
            parent: None,
            rate: None,
            overrun: false,
        }
    }

    /// Sets the agent that the client has chosen.
    #[must_use]
    pub fn with_agent(self, agent: Option<String>) -> Self {
        Self { agent, ..self }
    }

    /// Sets the voice that the client has chosen.
    #[must_use]
    pub fn with_voice(self, speaker: Speaker) -> Self {
        Self { speaker, ..self }
    }

    /// Sets the facts on the caller.
    #[must_use]
    pub fn knowing(self, values: SessionValues) -> Self {
        Self { values, ..self }
    }

    /// Sets the client's span, to which the trace of the session belongs.
    #[must_use]
    pub fn traced(self, parent: Option<Parent>) -> Self {
        Self { parent, ..self }
    }

    fn open(&mut self, rate: u32) -> Action {
        self.rate = Some(rate);
        Action::Open(SessionOptions {
            client: self.client.clone(),
            values: self.values.clone(),
            agent: self.agent.clone(),
            speaker: self.speaker.clone(),
            parent: self.parent,
            ..SessionOptions::new(Profile::Conversation, rate)
        })
    }

    fn text(&mut self, text: &str) -> Vec<Action> {
        if is_metadata(text) {
            tracing::debug!("ignored a JSON object without a type");
            return Vec::new();
        }
        match self.hello(text) {
            Ok(rate) => vec![
                self.open(rate),
                send(json!({"type": "ready", "sample_rate": rate})),
            ],
            Err((field, message)) => vec![error(&message, field)],
        }
    }

    fn hello(&self, text: &str) -> Result<u32, (Option<&'static str>, String)> {
        let hello: Hello = serde_json::from_str(text)
            .map_err(|error| (None, format!("not a message that is known here: {error}")))?;
        if hello.kind != "hello" {
            let message = "the only text message a client may send is \"hello\"";
            return Err((Some("type"), message.into()));
        }
        if self.rate.is_some() {
            let message = "hello must be the first message";
            return Err((Some("type"), message.into()));
        }
        let rate = hello.sample_rate.unwrap_or(DEFAULT_RATE);
        if !RATES.contains(&rate) {
            let message = format!("{rate} Hz is not supported; use 16000 or 24000");
            return Err((Some("sample_rate"), message));
        }
        Ok(rate)
    }

    fn binary(&mut self, bytes: &[u8]) -> Vec<Action> {
        let Ok(samples) = crate::audio::from_pcm16le(bytes) else {
            return vec![Action::Close(Close {
                code: close_code::INVALID,
                reason: "audio must be whole 16-bit samples",
            })];
        };
        let mut actions = Vec::new();
        if self.rate.is_none() {
            actions.push(self.open(DEFAULT_RATE));
        }
        actions.push(Action::Audio(samples));
        actions
    }
}

impl Dialect for Pcm {
    fn start(&mut self) -> Vec<Action> {
        Vec::new()
    }

    fn client(&mut self, message: ClientMessage<'_>) -> Vec<Action> {
        match message {
            ClientMessage::Text(text) => self.text(text),
            ClientMessage::Binary(bytes) => self.binary(bytes),
        }
    }

    fn session(&mut self, outbound: Outbound) -> Vec<Action> {
        match outbound {
            Outbound::Audio { samples, .. } => {
                let rate = self.rate.unwrap_or(DEFAULT_RATE);
                let length = Micros::of_samples(samples.len() as u64, rate);
                vec![Action::SendAudio {
                    frame: Frame::Binary(crate::audio::to_pcm16le(&samples)),
                    length,
                }]
            }
            Outbound::Clear => vec![Action::DropAudio, send(json!({"type": "clear"}))],
            Outbound::Event { event, .. } => event_action(event).into_iter().collect(),
            Outbound::TimerRings => vec![send(json!({"type": "timer"}))],
            // Only for telephone calls.
            Outbound::HangUp(_) | Outbound::Tones(_) | Outbound::Keys(_) => Vec::new(),
        }
    }

    /// Reported once, so that a flood of audio does not cause a flood of errors.
    fn overrun(&mut self, _dropped: Micros) -> Vec<Action> {
        let first = !std::mem::replace(&mut self.overrun, true);
        let message = "audio comes faster than real time; what does not fit is dropped";
        first.then(|| error(message, None)).into_iter().collect()
    }
}

/// Whether a text message is a JSON object that is no attempt at one of ours.
fn is_metadata(text: &str) -> bool {
    let fields = serde_json::from_str::<Map<String, Value>>(text);
    let own =
        |fields: Map<String, Value>| ["type", "sample_rate"].map(|key| fields.contains_key(key));
    fields.is_ok_and(|fields| own(fields) == [false; 2])
}

fn event_action(event: Event) -> Option<Action> {
    match event {
        Event::PartialTranscript { text } => Some(transcript("user", &text, false)),
        Event::UserItem { text, .. } => Some(transcript("user", &text, true)),
        Event::AgentSpeech { text, .. } => Some(transcript("agent", &text, false)),
        Event::AgentItemDone { text, .. } => Some(transcript("agent", &text, true)),
        Event::ToolCalled {
            call,
            name,
            by_client: false,
            ..
        } => {
            let call = call.to_string();
            let running = json!({"type": "tool", "call": call, "name": name, "state": "running"});
            Some(send(running))
        }
        Event::ToolFinished { call, .. } => {
            let call = call.to_string();
            Some(send(json!({"type": "tool", "call": call, "state": "done"})))
        }
        Event::StageFailed { message, .. } | Event::Refused { message, .. } => {
            Some(error(&message, None))
        }
        _ => None,
    }
}

fn transcript(role: &str, text: &str, last: bool) -> Action {
    send(json!({"type": "transcript", "role": role, "text": text, "final": last}))
}

fn error(message: &str, field: Option<&str>) -> Action {
    send(json!({"type": "error", "message": message, "field": field}))
}

fn send(message: Value) -> Action {
    Action::Send(message.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::{CallId, ClauseId, ItemId, Time};

    fn opened(actions: &[Action]) -> Option<u32> {
        actions.iter().find_map(|action| match action {
            Action::Open(options) => Some(options.input_rate),
            _ => None,
        })
    }

    fn said(actions: &[Action]) -> Vec<&str> {
        fn text(action: &Action) -> Option<&str> {
            match action {
                Action::Send(text) => Some(text),
                _ => None,
            }
        }
        actions.iter().filter_map(text).collect()
    }

    #[test]
    fn the_first_audio_opens_a_session_at_16_khz() {
        let mut pcm = Pcm::new(None);
        let actions = pcm.client(ClientMessage::Binary(&[1, 0, 255, 255]));
        assert_eq!(opened(&actions), Some(16_000));
        assert_eq!(actions.last(), Some(&Action::Audio(vec![1, -1])));
        let actions = pcm.client(ClientMessage::Binary(&[2, 0]));
        assert_eq!(actions, [Action::Audio(vec![2])]);
    }

    #[test]
    fn hello_sets_the_rate_once_and_only_first() {
        let mut pcm = Pcm::new(None);
        let wrong = pcm.client(ClientMessage::Text(
            r#"{"type":"hello","sample_rate":44100}"#,
        ));
        assert!(
            said(&wrong)[0].contains(r#""field":"sample_rate""#),
            "{wrong:?}"
        );
        let hello = ClientMessage::Text(r#"{"type":"hello","sample_rate":24000}"#);
        let actions = pcm.client(hello);
        assert_eq!(opened(&actions), Some(24_000));
        assert_eq!(said(&actions), [r#"{"type":"ready","sample_rate":24000}"#]);
        assert!(said(&pcm.client(hello))[0].contains("first"));
    }

    /// jambonz ended the call because its metadata was answered with an error.
    #[test]
    fn metadata_of_a_telephony_provider_is_ignored() {
        let mut pcm = Pcm::new(None);
        for metadata in [
            r#"{"callSid":"c1","from":"+15551230000","sampleRate":16000}"#,
            r#"{"event":"websocket:connected","content-type":"audio/l16;rate=16000"}"#,
        ] {
            assert_eq!(pcm.client(ClientMessage::Text(metadata)), [], "{metadata}");
        }
        let actions = pcm.client(ClientMessage::Binary(&[1, 0]));
        assert_eq!(opened(&actions), Some(DEFAULT_RATE));
        assert!(said(&actions).is_empty(), "{actions:?}");
        for wrong in ["[]", r#"{"type":"bye"}"#, r#"{"sample_rate":24000}"#] {
            let answer = pcm.client(ClientMessage::Text(wrong));
            assert_eq!(said(&answer).len(), 1, "{wrong}");
        }
    }

    #[test]
    fn a_timer_and_a_tool_are_told_but_no_tool_of_a_client() {
        let mut pcm = Pcm::new(None);
        let mut told = |event| pcm.session(Outbound::Event { at: Time(0), event });
        let (item, call) = (ItemId(3), CallId(4));
        let called = |by_client| Event::ToolCalled {
            item,
            call,
            name: "get_weather".into(),
            arguments: serde_json::Map::new(),
            by_client,
            run: None,
        };
        let running = told(called(false));
        assert_eq!(
            said(&running),
            [format!(
                r#"{{"type":"tool","call":"{call}","name":"get_weather","state":"running"}}"#
            )]
        );
        assert_eq!(told(called(true)), []);
        let result = Ok(json!(3));
        let done = told(Event::ToolFinished { item, call, result });
        assert_eq!(
            said(&done),
            [format!(
                r#"{{"type":"tool","call":"{call}","state":"done"}}"#
            )]
        );
        let rings = pcm.session(Outbound::TimerRings);
        assert_eq!(said(&rings), [r#"{"type":"timer"}"#]);
    }

    #[test]
    fn half_a_sample_closes() {
        let actions = Pcm::new(None).client(ClientMessage::Binary(&[1, 2, 3]));
        assert!(matches!(&actions[..], [Action::Close(close)] if close.code == 1007));
    }

    #[test]
    fn audio_is_little_endian_and_has_a_length() {
        let mut pcm = Pcm::new(None);
        pcm.client(ClientMessage::Binary(&[]));
        let actions = pcm.session(Outbound::Audio {
            item: ItemId(1),
            clause: ClauseId(1),
            samples: vec![1, -2],
        });
        let frame = Frame::Binary(vec![1, 0, 254, 255]);
        assert_eq!(
            actions,
            [Action::SendAudio {
                frame,
                length: Micros(125)
            }]
        );
    }
}
