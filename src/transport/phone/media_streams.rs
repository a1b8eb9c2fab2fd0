//! Media streams: a call's audio in JSON messages over a WebSocket. Twilio's protocol, which Telnyx
//! and Plivo use with other names.
//!
//! Both directions carry base64 of G.711 at 8 kHz, 20 ms per message. A mark sent after the agent's
//! audio comes back when the audio has been played; `clear` drops audio that has not.

use super::{Ended, Marks, key, numbers, refuse, tickets};
use crate::audio::g711::{self, Law};
use crate::conversation::{ClauseId, HangUpReason, Micros};
use crate::session::{Outbound, Profile, SessionOptions};
use crate::tools::{Named, Origin, SessionValues};
use crate::transport::{
    Action, Admission, Admitted, ClientMessage, Close, Dialect, Frame, close_code,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// How many messages are held back for an earlier one that is late.
const REORDER: usize = 5;

/// A sequence number this far behind (10 s) is not a late message: the provider has restarted its
/// numbering.
const ANEW: u64 = 500;

/// The provider, which determines the names in messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    /// Twilio Media Streams.
    Twilio,
    /// Telnyx media streaming.
    Telnyx,
    /// Plivo audio streams.
    Plivo,
}

/// The start of a stream, for [`Admit`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// The provider's id of the account.
    pub account: String,
    /// The provider's id of the call.
    pub call: String,
    /// The ticket in the parameters of the stream.
    pub ticket: String,
    /// The call's id, numbers and other parameters as the stream claims them.
    pub claimed: SessionValues,
}

/// Decides whether a stream may open, and what is known of its caller.
pub type Admit = Box<dyn FnMut(&Start) -> BoxFuture<'static, Admission> + Send>;

/// Translates one call.
pub struct MediaStreams {
    provider: Provider,
    admit: Admit,
    question: Option<BoxFuture<'static, Admission>>,
    /// A stream that waits for admission: its id, its start message, and its encoding.
    starting: Option<(String, Start, Result<Law, String>)>,
    stream: Option<Stream>,
    marks: Marks,
    order: Order,
    hung_up: bool,
    /// The provider has reported an error.
    complained: bool,
}

/// A stream that has started.
#[derive(Debug)]
struct Stream {
    id: String,
    call: String,
    law: Law,
}

/// A message, independent of the provider.
#[derive(Debug, PartialEq)]
enum Message {
    Start {
        stream: String,
        start: Start,
        law: Result<Law, String>,
    },
    Media {
        number: Option<u64>,
        payload: String,
    },
    Key(String),
    Played(String),
    Stop,
    /// The provider does not take what it was sent. In its own words.
    Error(String),
    /// Any message that is not handled.
    Other,
}

impl std::fmt::Debug for MediaStreams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MediaStreams")
            .field("provider", &self.provider)
            .field("stream", &self.stream)
            .finish_non_exhaustive()
    }
}

impl MediaStreams {
    /// A call of `provider` that opens if `admit` allows it at the start.
    pub fn new(provider: Provider, admit: Admit) -> Self {
        Self {
            provider,
            admit,
            question: None,
            starting: None,
            stream: None,
            marks: Marks::default(),
            order: Order::default(),
            hung_up: false,
            complained: false,
        }
    }

    /// The call that we ended, if the provider has to be told to hang up.
    pub fn ended(&self) -> Option<Ended> {
        let stream = self.stream.as_ref().filter(|_| self.hung_up)?;
        Some(Ended {
            call: stream.call.clone(),
        })
    }

    fn start(&mut self, stream: String, start: Start, law: Result<Law, String>) -> Vec<Action> {
        if self.stream.is_some() {
            tracing::warn!("ignored a second start of the stream");
            return Vec::new();
        }
        self.question = Some((self.admit)(&start));
        self.starting = Some((stream, start, law));
        Vec::new()
    }

    fn begin(
        &mut self,
        stream: String,
        start: Start,
        law: Result<Law, String>,
        admitted: Admitted,
    ) -> Vec<Action> {
        let law = match law {
            Ok(law) => law,
            Err(format) => {
                tracing::warn!(
                    format,
                    "a stream in an unsupported format: docs/phone.md has the provider's setting"
                );
                return refuse("the audio must be G.711 at 8000 Hz in one channel");
            }
        };
        let call = (self.provider == Provider::Twilio).then(|| start.call.clone());
        self.stream = Some(Stream {
            id: stream,
            call: start.call,
            law,
        });
        let provider = format!("{:?}", self.provider).to_lowercase();
        let options = SessionOptions::new(Profile::PhoneCall, g711::RATE);
        let options = admitted.call(&provider, options);
        vec![Action::Open(SessionOptions {
            client: Some(provider),
            call,
            ..options
        })]
    }

    fn media(&mut self, number: Option<u64>, payload: &str) -> Vec<Action> {
        let Some(stream) = &self.stream else {
            return refuse("audio before the stream has started");
        };
        let Ok(bytes) = STANDARD.decode(payload) else {
            tracing::warn!("ignored a media.payload that is not base64");
            return Vec::new();
        };
        let law = stream.law;
        self.order
            .push(number, bytes)
            .into_iter()
            .map(|bytes| Action::Audio(law.decode(&bytes)))
            .collect()
    }

    fn audio(&mut self, clause: ClauseId, samples: &[i16]) -> Vec<Action> {
        let mut actions = self.sound(samples);
        let length = Micros::of_samples(samples.len() as u64, g711::RATE);
        if let Some(stream) = &self.stream
            && let Some(name) = self.marks.sent(clause, length)
        {
            let mark = self.provider.mark(&stream.id, &name);
            actions.push(Action::Send(mark.to_string()));
        }
        actions
    }

    fn sound(&self, samples: &[i16]) -> Vec<Action> {
        let Some(stream) = &self.stream else {
            return Vec::new();
        };
        let law = self.provider.law_of_agent(stream.law);
        let payload = STANDARD.encode(law.encode(samples));
        let text = self.provider.media(&stream.id, law, &payload);
        vec![Action::SendAudio {
            frame: Frame::Text(text.to_string()),
            length: Micros::of_samples(samples.len() as u64, g711::RATE),
        }]
    }
}

impl Dialect for MediaStreams {
    fn start(&mut self) -> Vec<Action> {
        Vec::new()
    }

    fn is_call(&self) -> bool {
        true
    }

    fn question(&mut self) -> Option<BoxFuture<'static, Admission>> {
        self.question.take()
    }

    fn admitted(&mut self, admission: Admission) -> Vec<Action> {
        match self.starting.take().zip(admission) {
            Some(((stream, start, law), admitted)) => self.begin(stream, start, law, admitted),
            None => {
                tracing::info!("refused a stream that does not belong to a call answered here");
                refuse("this stream does not belong to a call that was answered here")
            }
        }
    }

    fn client(&mut self, message: ClientMessage<'_>) -> Vec<Action> {
        let ClientMessage::Text(text) = message else {
            return vec![Action::Close(Close {
                code: close_code::UNSUPPORTED,
                reason: "media streams send text messages",
            })];
        };
        let Ok(message) = serde_json::from_str::<Value>(text) else {
            tracing::warn!("ignored a message that is not JSON");
            return Vec::new();
        };
        match self.provider.read(&message) {
            Message::Start { stream, start, law } => self.start(stream, start, law),
            Message::Media { number, payload } => self.media(number, &payload),
            Message::Key(digit) => self
                .stream
                .as_ref()
                .and_then(|_| key(&digit))
                .map(Action::Request)
                .into_iter()
                .collect(),
            Message::Played(name) => self
                .stream
                .as_ref()
                .and_then(|_| Marks::played(&name))
                .map(Action::Request)
                .into_iter()
                .collect(),
            Message::Stop => vec![Action::Close(Close {
                code: close_code::NORMAL,
                reason: "the call is over",
            })],
            Message::Error(error) => {
                // There may be one for each frame.
                match std::mem::replace(&mut self.complained, true) {
                    false => tracing::warn!(error, "the provider of a stream reports an error"),
                    true => tracing::debug!(error, "the provider reports an error again"),
                }
                Vec::new()
            }
            Message::Other => Vec::new(),
        }
    }

    fn session(&mut self, outbound: Outbound) -> Vec<Action> {
        match outbound {
            Outbound::Audio {
                clause, samples, ..
            } => self.audio(clause, &samples),
            Outbound::Tones(samples) => self.sound(&samples),
            Outbound::Keys(_) => Vec::new(),
            Outbound::Clear => {
                let clear = self.stream.as_ref().map(|s| self.provider.clear(&s.id));
                let clear = clear.map(|clear| Action::Send(clear.to_string()));
                [Some(Action::DropAudio), clear]
                    .into_iter()
                    .flatten()
                    .collect()
            }
            Outbound::HangUp(reason) => {
                self.hung_up = reason != HangUpReason::HandedOver;
                Vec::new()
            }
            Outbound::Event { .. } | Outbound::TimerRings => Vec::new(),
        }
    }

    fn overrun(&mut self, dropped: Micros) -> Vec<Action> {
        tracing::debug!(
            ms = dropped.as_ms(),
            "dropped audio that arrives faster than real time"
        );
        Vec::new()
    }
}

impl Provider {
    fn read(self, message: &Value) -> Message {
        let event = message["event"].as_str().unwrap_or_default();
        match (self, event) {
            (_, "start") => self.read_start(message),
            // The agent's own audio may be sent back, too.
            (_, "media") if message["media"]["track"] == "outbound" => Message::Other,
            (_, "media") => Message::Media {
                number: number(&message["media"]["chunk"]),
                payload: text(&message["media"]["payload"]),
            },
            (_, "dtmf") => Message::Key(text(&message["dtmf"]["digit"])),
            (Self::Plivo, "playedStream") => Message::Played(text(&message["name"])),
            (_, "mark") => Message::Played(text(&message["mark"]["name"])),
            (_, "stop") => Message::Stop,
            (Self::Telnyx, "error") => {
                Message::Error(message.get("payload").unwrap_or(message).to_string())
            }
            (Self::Plivo, "playFailed" | "error") => {
                Message::Error(format!("{event}: {}", text(&message["reason"])))
            }
            _ => Message::Other,
        }
    }

    fn read_start(self, message: &Value) -> Message {
        let start = &message["start"];
        let pairs = pairs(&text(&message["extra_headers"]));
        let (stream, account, call, format, parameters) = match self {
            Self::Twilio => (
                &start["streamSid"],
                &start["accountSid"],
                &start["callSid"],
                &start["mediaFormat"],
                &start["customParameters"],
            ),
            Self::Telnyx => (
                &message["stream_id"],
                &start["user_id"],
                &start["call_control_id"],
                &start["media_format"],
                &start["custom_parameters"],
            ),
            Self::Plivo => (
                &start["streamId"],
                &start["accountId"],
                &start["callId"],
                &start["mediaFormat"],
                &pairs,
            ),
        };
        let number = |name: &str| text(&start[name]);
        let told = numbers(
            &number("from"),
            &number("to"),
            &number("forwarded_from"),
            Origin::Claimed,
        );
        let claimed = told.with(Named::CallId, &text(call), Origin::Claimed);
        Message::Start {
            stream: text(stream),
            start: Start {
                account: text(account),
                call: text(call),
                ticket: tickets::ticket_in(parameters),
                claimed: with_parameters(claimed, parameters),
            },
            law: law(format),
        }
    }

    /// The law of the agent's audio on a stream whose caller comes in `law`. Telnyx has a setting for each, names only
    /// the caller's, and takes µ-law from us unless it was told otherwise.
    fn law_of_agent(self, law: Law) -> Law {
        match self {
            Self::Telnyx => Law::Mu,
            Self::Twilio | Self::Plivo => law,
        }
    }

    fn media(self, stream: &str, law: Law, payload: &str) -> Value {
        match self {
            Self::Twilio => json!({
                "event": "media", "streamSid": stream, "media": {"payload": payload}
            }),
            Self::Telnyx => json!({"event": "media", "media": {"payload": payload}}),
            Self::Plivo => {
                let kind = match law {
                    Law::Mu => "audio/x-mulaw",
                    Law::A => "audio/x-alaw",
                };
                json!({"event": "playAudio", "media": {
                    "contentType": kind, "sampleRate": g711::RATE, "payload": payload
                }})
            }
        }
    }

    fn mark(self, stream: &str, name: &str) -> Value {
        match self {
            Self::Twilio => json!({
                "event": "mark", "streamSid": stream, "mark": {"name": name}
            }),
            Self::Telnyx => json!({"event": "mark", "mark": {"name": name}}),
            Self::Plivo => json!({"event": "checkpoint", "streamId": stream, "name": name}),
        }
    }

    fn clear(self, stream: &str) -> Value {
        match self {
            Self::Twilio => json!({"event": "clear", "streamSid": stream}),
            Self::Telnyx => json!({"event": "clear"}),
            Self::Plivo => json!({"event": "clearAudio", "streamId": stream}),
        }
    }
}

/// The parameters of a stream as `session.param`, except the ticket.
pub(super) fn with_parameters(values: SessionValues, parameters: &Value) -> SessionValues {
    let parameters = parameters.as_object().into_iter().flatten();
    let parameters = parameters.filter(|(name, _)| !tickets::is_parameter(name));
    parameters.fold(values, |values, (name, value)| {
        values.with(Named::Param(name.clone()), &text(value), Origin::Claimed)
    })
}

/// Plivo's extra headers: `{X-PH-name: value, …}`, which calls have, an object of JSON, or `name=value` joined by `;` or
/// `,` as they are typed.
fn pairs(typed: &str) -> Value {
    if let Ok(Value::Object(pairs)) = serde_json::from_str(typed) {
        let pairs = pairs.into_iter();
        let pairs = pairs.map(|(name, value)| (without_prefix(&name).to_owned(), value));
        return Value::Object(pairs.collect());
    }
    let braced = typed.trim().strip_prefix('{');
    let braced = braced.and_then(|typed| typed.strip_suffix('}'));
    let (typed, between, within) = match braced {
        Some(braced) => (braced, &[','][..], ':'),
        None => (typed, &[';', ','][..], '='),
    };
    let pairs = typed.split(between);
    let pairs = pairs.filter_map(|pair| pair.split_once(within));
    let pairs = pairs.map(|(name, value)| (without_prefix(name).to_owned(), value.trim().into()));
    Value::Object(pairs.collect())
}

/// The name of an extra header, as it was typed. Plivo puts `X-PH-` before it, and Vobiz, which speaks Plivo's
/// protocol, `X-VH-`.
fn without_prefix(name: &str) -> &str {
    let name = name.trim();
    let is_known = |prefix: &str| ["x-ph-", "x-vh-"].contains(&&*prefix.to_ascii_lowercase());
    match name.split_at_checked(5) {
        Some((prefix, rest)) if is_known(prefix) => rest,
        _ => name,
    }
}

/// The law of a media format, or the unsupported format as text.
fn law(format: &Value) -> Result<Law, String> {
    let encoding = text(&format["encoding"]).to_ascii_lowercase();
    let rates = [&format["sampleRate"], &format["sample_rate"]];
    let rate = rates.into_iter().find_map(number).unwrap_or(8_000);
    let channels = number(&format["channels"]).unwrap_or(1);
    match encoding.as_str() {
        "audio/x-mulaw" | "pcmu" if (rate, channels) == (8_000, 1) => Ok(Law::Mu),
        "audio/x-alaw" | "pcma" if (rate, channels) == (8_000, 1) => Ok(Law::A),
        _ => Err(format.to_string()),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    }
}

/// A number, which providers write as a number or as a string.
fn number(value: &Value) -> Option<u64> {
    value
        .as_u64()
        .or_else(|| value.as_str()?.trim().parse().ok())
}

/// Restores the order of numbered messages, since Telnyx may send them out of order.
#[derive(Debug, Default)]
struct Order {
    next: Option<u64>,
    early: BTreeMap<u64, Vec<u8>>,
}

impl Order {
    /// Adds a message. Returns those that are next in order. A message that arrives after it has
    /// been given up is dropped; one without a number passes through.
    fn push(&mut self, number: Option<u64>, bytes: Vec<u8>) -> Vec<Vec<u8>> {
        let Some(number) = number else {
            return vec![bytes];
        };
        if self
            .next
            .is_some_and(|next| number.saturating_add(ANEW) < next)
        {
            *self = Self::default();
        }
        let mut next = *self.next.get_or_insert(number);
        if number < next {
            return Vec::new();
        }
        self.early.insert(number, bytes);
        let mut ready = Vec::new();
        loop {
            if let Some(bytes) = self.early.remove(&next) {
                ready.push(bytes);
                next = next.saturating_add(1);
            } else if self.early.len() > REORDER
                && let Some((&first, _)) = self.early.first_key_value()
            {
                next = first;
            } else {
                break;
            }
        }
        self.next = Some(next);
        ready
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::{Input, ItemId};
    use futures_util::FutureExt;
    use std::future::ready;

    fn dialect(provider: Provider) -> MediaStreams {
        let admit = |start: &Start| {
            let may = start.ticket == "good" || start.ticket.is_empty();
            Box::pin(ready(may.then(|| start.claimed.clone().into())))
                as BoxFuture<'static, Admission>
        };
        MediaStreams::new(provider, Box::new(admit))
    }

    fn tell(dialect: &mut MediaStreams, message: &Value) -> Vec<Action> {
        let actions = dialect.client(ClientMessage::Text(&message.to_string()));
        match dialect.question().and_then(FutureExt::now_or_never) {
            Some(may) => dialect.admitted(may),
            None => actions,
        }
    }

    fn start(provider: Provider, ticket: &str) -> Value {
        match provider {
            Provider::Twilio => json!({
                "event": "start", "sequenceNumber": "1", "streamSid": "MZ1",
                "start": {
                    "streamSid": "MZ1", "accountSid": "AC1", "callSid": "CA1",
                    "tracks": ["inbound"], "customParameters": {"ticket": ticket},
                    "mediaFormat": {
                        "encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1
                    }
                }
            }),
            Provider::Telnyx => json!({
                "event": "start", "sequence_number": "1", "stream_id": "MZ1",
                "start": {
                    "user_id": "AC1", "call_control_id": "CA1",
                    "media_format": {"encoding": "PCMA", "sample_rate": 8000, "channels": 1}
                }
            }),
            Provider::Plivo => json!({
                "event": "start", "sequenceNumber": 0,
                "start": {
                    "callId": "CA1", "streamId": "MZ1", "accountId": "AC1",
                    "tracks": ["inbound"],
                    "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000}
                }
            }),
        }
    }

    fn media(number: u64) -> Value {
        let payload = STANDARD.encode([0xff, 0x80]);
        json!({"event": "media", "media": {
            "track": "inbound", "chunk": number.to_string(), "payload": payload
        }})
    }

    fn sent(actions: &[Action]) -> Vec<Value> {
        let texts = actions.iter().filter_map(|action| match action {
            Action::Send(text) => Some(text.as_str()),
            Action::SendAudio {
                frame: Frame::Text(text),
                ..
            } => Some(text.as_str()),
            _ => None,
        });
        texts
            .map(|text| serde_json::from_str(text).expect("JSON"))
            .collect()
    }

    fn agent_audio(dialect: &mut MediaStreams, frames: usize) -> Vec<Value> {
        let mut all = Vec::new();
        for _ in 0..frames {
            all.extend(dialect.session(Outbound::Audio {
                item: ItemId(1),
                clause: ClauseId(3),
                samples: vec![0; 160],
            }));
        }
        sent(&all)
    }

    #[test]
    fn a_stream_tells_who_calls() {
        let known = |provider, told: &[(&str, Value)]| {
            let mut first = start(provider, "good");
            for (name, value) in told {
                first["start"][*name] = value.clone();
            }
            let opened = tell(&mut dialect(provider), &first);
            let [Action::Open(options)] = &opened[..] else {
                panic!("{opened:?}");
            };
            options.values.clone()
        };
        let telnyx = known(
            Provider::Telnyx,
            &[
                ("from", json!("+15551230000")),
                ("to", json!("anonymous")),
                (
                    "custom_parameters",
                    json!({"ticket": "good", "plan": "gold"}),
                ),
            ],
        );
        let value = |name: Named| telnyx.get(&name);
        assert_eq!(
            value(Named::Caller),
            Some(("+15551230000", Origin::Claimed))
        );
        assert_eq!(value(Named::Called), None);
        assert_eq!(value(Named::CallId), Some(("CA1", Origin::Claimed)));
        assert_eq!(value(Named::Transport), Some(("telnyx", Origin::Verified)));
        let plan = Named::Param("plan".into());
        assert_eq!(value(plan), Some(("gold", Origin::Claimed)));
        assert_eq!(value(Named::Param("ticket".into())), None);
        let mut first = start(Provider::Plivo, "good");
        for (headers, plan, line) in [
            ("plan=gold;line = a7", Some("gold"), Some("a7")),
            (
                "{X-PH-plan: gold, x-ph-line: a7, X-PH-ticket: good}",
                Some("gold"),
                Some("a7"),
            ),
            ("{X-VH-plan: wss://gold=1;2}", Some("wss://gold=1;2"), None),
            (r#"{"plan":"gold"}"#, Some("gold"), None),
            (r#"{"X-PH-line":"a7"}"#, None, Some("a7")),
            ("{}", None, None),
            ("", None, None),
        ] {
            first["extra_headers"] = json!(headers);
            let opened = tell(&mut dialect(Provider::Plivo), &first);
            let [Action::Open(options)] = &opened[..] else {
                panic!("{headers}: {opened:?}");
            };
            for (name, told) in [("plan", plan), ("line", line), ("ticket", None)] {
                let value = options.values.get(&Named::Param(name.into()));
                let told = told.map(|told| (told, Origin::Claimed));
                assert_eq!(value, told, "{name} in {headers}");
            }
        }
        for withheld in [
            "+266696687",
            "Anonymous",
            "sip:anonymous@anonymous.invalid",
            "",
        ] {
            let plivo = known(Provider::Plivo, &[("from", json!(withheld))]);
            assert_eq!(plivo.get(&Named::Caller), None, "{withheld}");
        }
    }

    #[test]
    fn a_call_of_each_provider() {
        let names = [
            (Provider::Twilio, "media", "mark", "clear"),
            (Provider::Telnyx, "media", "mark", "clear"),
            (Provider::Plivo, "playAudio", "checkpoint", "clearAudio"),
        ];
        for (provider, audio, mark, clear) in names {
            let mut call = dialect(provider);
            let opened = tell(&mut call, &start(provider, "good"));
            assert!(
                matches!(&opened[..], [Action::Open(options)]
                    if options.input_rate == 8_000 && options.profile == Profile::PhoneCall),
                "{opened:?}"
            );
            let heard = tell(&mut call, &media(1));
            assert!(matches!(&heard[..], [Action::Audio(samples)] if samples.len() == 2));
            let said = agent_audio(&mut call, 10);
            assert_eq!(said.len(), 11, "ten frames and a mark");
            assert_eq!(
                (&said[0]["event"], &said[10]["event"]),
                (&json!(audio), &json!(mark))
            );
            if provider == Provider::Telnyx {
                // The caller comes in A-law.
                let silence = STANDARD.encode(Law::Mu.encode(&[0; 160]));
                assert_eq!(said[0]["media"]["payload"], silence);
            }
            let actions = call.session(Outbound::Clear);
            assert_eq!(actions[0], Action::DropAudio);
            assert_eq!(sent(&actions)[0]["event"], clear);
            assert_eq!(call.ended(), None);
            call.session(Outbound::HangUp(HangUpReason::Idle));
            assert_eq!(call.ended().map(|ended| ended.call), Some("CA1".into()));
        }
    }

    #[test]
    fn a_returned_mark_reports_playout() {
        let played = Action::Request(Input::Played {
            clause: ClauseId(3),
            until: Micros::from_ms(200),
        });
        let echoes = [
            (
                Provider::Twilio,
                json!({"event": "mark", "streamSid": "MZ1", "mark": {"name": "3/200"}}),
            ),
            (
                Provider::Plivo,
                json!({"event": "playedStream", "streamId": "MZ1", "name": "3/200"}),
            ),
        ];
        for (provider, echo) in echoes {
            let mut call = dialect(provider);
            assert_eq!(tell(&mut call, &echo), [], "no stream yet");
            tell(&mut call, &start(provider, "good"));
            assert_eq!(tell(&mut call, &echo), std::slice::from_ref(&played));
        }
    }

    /// Nothing told why the caller did not hear the agent.
    #[test]
    fn telnyxs_errors_are_read_and_the_call_goes_on() {
        let detail = json!({"code": 100_003, "title": "malformed_frame"});
        let error = json!({"event": "error", "stream_id": "MZ1", "payload": detail});
        let read = Provider::Telnyx.read(&error);
        assert_eq!(read, Message::Error(detail.to_string()));
        let mut call = dialect(Provider::Telnyx);
        tell(&mut call, &start(Provider::Telnyx, "good"));
        assert_eq!(tell(&mut call, &error), []);
        assert!(call.complained, "each call warns once");
        assert_eq!(tell(&mut call, &media(1)).len(), 1);
    }

    /// Nothing told why the caller did not hear the agent.
    #[test]
    fn plivos_errors_are_read_and_the_call_goes_on() {
        let mut call = dialect(Provider::Plivo);
        tell(&mut call, &start(Provider::Plivo, "good"));
        for event in ["playFailed", "error"] {
            let error = json!({"event": event, "streamId": "MZ1", "reason": "invalid payload"});
            let read = Provider::Plivo.read(&error);
            assert_eq!(read, Message::Error(format!("{event}: invalid payload")));
            assert_eq!(tell(&mut call, &error), []);
        }
        assert!(call.complained, "each call warns once");
        assert_eq!(tell(&mut call, &media(1)).len(), 1);
    }

    #[test]
    fn keys_are_passed_on() {
        let mut call = dialect(Provider::Twilio);
        tell(&mut call, &start(Provider::Twilio, "good"));
        let pressed = |digit| json!({"event": "dtmf", "dtmf": {"digit": digit}});
        let key = |key| [Action::Request(Input::Key { key })];
        assert_eq!(tell(&mut call, &pressed("#")), key('#'));
        assert_eq!(tell(&mut call, &pressed("a")), key('A'));
        assert_eq!(tell(&mut call, &pressed("12")), []);
    }

    #[test]
    fn a_stream_without_its_ticket_opens_nothing() {
        let mut call = dialect(Provider::Twilio);
        let actions = tell(&mut call, &start(Provider::Twilio, "bad"));
        assert!(matches!(&actions[..], [Action::Close(close)] if close.code == 1008));
        let actions = tell(&mut call, &media(1));
        assert!(matches!(&actions[..], [Action::Close(_)]), "{actions:?}");
    }

    #[test]
    fn malformed_messages_are_ignored() {
        let mut call = dialect(Provider::Twilio);
        tell(&mut call, &start(Provider::Twilio, "good"));
        for odd in [
            "",
            "{",
            "[]",
            "3",
            "{}",
            r#"{"event":7}"#,
            r#"{"event":"media"}"#,
            r#"{"event":"media","media":{"payload":"!"}}"#,
            r#"{"event":"mark","mark":{"name":"x"}}"#,
            r#"{"event":"dtmf","dtmf":[]}"#,
            r#"{"event":"start"}"#,
        ] {
            let actions = call.client(ClientMessage::Text(odd));
            let harmless = |action: &Action| matches!(action, Action::Audio(a) if a.is_empty());
            assert!(actions.iter().all(harmless), "{odd}: {actions:?}");
        }
        let binary = call.client(ClientMessage::Binary(&[1]));
        assert!(matches!(&binary[..], [Action::Close(close)] if close.code == 1003));
    }

    #[test]
    fn other_formats_are_refused() {
        let mut wideband = start(Provider::Twilio, "good");
        wideband["start"]["mediaFormat"]["sampleRate"] = json!(16_000);
        let mut hd = start(Provider::Telnyx, "good");
        hd["start"]["media_format"] = json!({"encoding": "G722", "sample_rate": 8000});
        let mut linear = start(Provider::Plivo, "good");
        linear["start"]["mediaFormat"]["encoding"] = json!("audio/x-l16");
        for (provider, other) in [
            (Provider::Twilio, wideband),
            (Provider::Telnyx, hd),
            (Provider::Plivo, linear),
        ] {
            let actions = tell(&mut dialect(provider), &other);
            assert!(
                matches!(&actions[..], [Action::Close(close)] if close.code == 1008),
                "{actions:?}"
            );
        }
    }

    #[test]
    fn late_messages_are_put_in_order() {
        let mut order = Order::default();
        let mut out = Vec::new();
        for number in [1, 3, 2, 4, 6, 7, 8, 9, 10, 11, 5, 12] {
            out.extend(order.push(Some(number), vec![number as u8]));
        }
        let numbers: Vec<u8> = out.into_iter().flatten().collect();
        assert_eq!(numbers, [1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12]);
    }

    #[test]
    fn a_duplicate_message_is_dropped() {
        let mut order = Order::default();
        let numbers = [1, 1, 3, 3, 2, 2, 4];
        let heard = numbers.into_iter().flat_map(|number| {
            let message = vec![number as u8];
            order.push(Some(number), message)
        });
        assert_eq!(heard.flatten().collect::<Vec<_>>(), [1, 2, 3, 4]);
    }

    #[test]
    fn audio_flows_on_after_any_message_number() {
        for odd in [u64::MAX, u64::MAX - 1, 1 << 53] {
            let mut order = Order::default();
            assert_eq!(order.push(Some(odd), vec![0]).len(), 1);
            for number in 1..100 {
                assert_eq!(order.push(Some(number), vec![1]).len(), 1, "{odd}");
            }
            order.push(Some(odd), vec![0]);
            for number in 100..200 {
                assert_eq!(order.push(Some(number), vec![1]).len(), 1, "{odd}");
            }
            assert!(order.early.len() <= REORDER);
        }
    }
}
