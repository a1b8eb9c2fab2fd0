//! Asterisk's WebSocket channel driver, `chan_websocket` (20.16, 21.11, 22.6, 23.0 and later): for
//! each call, Asterisk opens a WebSocket to us.
//!
//! Binary messages are media in the call's format. Text messages are control messages: a word and
//! `key:value` pairs, or, since 20.18, 22.8 and 23.2, JSON if `control_message_format` or the dial
//! string asks for it. We answer in the form that Asterisk uses first.
//!
//! | from Asterisk | effect |
//! |---|---|
//! | `MEDIA_START format:… optimal_frame_size:…` | the session opens, we send `ANSWER` |
//! | `DTMF_END digit:…` | the caller pressed a key |
//! | `MEDIA_XOFF`, `MEDIA_XON` | audio is held on this side, at most half a second; sent on |
//! | `MEDIA_MARK_PROCESSED …` | reports how much the caller has heard |
//! | `ERROR` | logged |
//! | anything else | ignored, since new Asterisk releases add messages |
//!
//! We send `FLUSH_MEDIA` on barge-in and `HANGUP` when the session is over. Asterisk paces playout,
//! so audio is sent as the session produces it, about 200 ms ahead, in messages of whole frames. A
//! `MARK_MEDIA` follows the audio (since 20.18, 22.8 and 23.2), one at a time. An older Asterisk
//! logs a warning for each mark, so it gets no second one before a flush, and playout is estimated
//! from what was sent. `PAUSE_MEDIA` is not used: the conversation flushes at once and, after a
//! false interruption, repeats what was not heard.
//!
//! A silent call is probed with `GET_STATUS`, because releases before 20.18, 22.8 and 23.2 hang up
//! on a ping.
//!
//! Formats are `ulaw`, `alaw` and `slin` at 8 to 48 kHz; any other closes the socket with 1003, and
//! a message that ends in the middle of a sample with 1007. Media before `MEDIA_START`, which a
//! busy Asterisk sends, is dropped.

use super::{Marks, key};
use crate::audio::g711::{self, Law};
use crate::audio::{from_pcm16le, to_pcm16le};
use crate::conversation::{ClauseId, Event, HangUpReason, Micros};
use crate::session::{Outbound, Profile, SessionOptions};
use crate::tools::{Named, Origin, SessionValues};
use crate::transport::outbox::MAX_AUDIO;
use crate::transport::{
    Action, Admitted, ClientMessage, Close, Dialect, Frame, Placed, close_code,
};
use serde_json::{Map, Value, json};
use std::collections::VecDeque;

/// The longest message that Asterisk accepts, bytes; a longer one ends the call.
const LONGEST: usize = 65_500;

/// The length of a frame if Asterisk does not give one, ms.
const FRAME_MS: u32 = 20;

/// The encoding of a call's media.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    /// G.711.
    Law(Law),
    /// PCM16 in Asterisk's native byte order, which is little-endian on every platform it runs on
    /// today.
    Linear {
        /// Hz.
        rate: u32,
    },
}

impl Format {
    /// The format that Asterisk calls `name`.
    fn named(name: &str) -> Option<Self> {
        let rate = match name {
            "ulaw" => return Some(Self::Law(Law::Mu)),
            "alaw" => return Some(Self::Law(Law::A)),
            "slin" => 8_000,
            "slin12" => 12_000,
            "slin16" => 16_000,
            "slin24" => 24_000,
            "slin32" => 32_000,
            "slin44" => 44_100,
            "slin48" => 48_000,
            _ => return None,
        };
        Some(Self::Linear { rate })
    }

    /// Hz.
    fn rate(self) -> u32 {
        match self {
            Self::Law(_) => g711::RATE,
            Self::Linear { rate } => rate,
        }
    }

    /// Bytes per sample.
    fn width(self) -> usize {
        match self {
            Self::Law(_) => 1,
            Self::Linear { .. } => 2,
        }
    }

    /// `None` if the bytes end in the middle of a sample.
    fn decode(self, bytes: &[u8]) -> Option<Vec<i16>> {
        match self {
            Self::Law(law) => Some(law.decode(bytes)),
            Self::Linear { .. } => from_pcm16le(bytes).ok(),
        }
    }

    fn encode(self, samples: &[i16]) -> Vec<u8> {
        match self {
            Self::Law(law) => law.encode(samples),
            Self::Linear { .. } => to_pcm16le(samples),
        }
    }

    /// The duration of `bytes` bytes.
    fn length(self, bytes: usize) -> Micros {
        Micros::of_samples((bytes / self.width()) as u64, self.rate())
    }
}

/// A call whose media has started.
#[derive(Debug)]
struct Call {
    format: Format,
    /// Control messages are JSON.
    json: bool,
    /// Bytes per frame. Messages hold whole frames, since Asterisk discards a partial one.
    frame: usize,
    /// Samples that do not fill a frame yet.
    rest: Vec<i16>,
    /// Asterisk's queue is full.
    off: bool,
    /// Media that waits for room in Asterisk's queue.
    held: VecDeque<Vec<u8>>,
    held_length: Micros,
    marks: Marks,
    /// A mark has been sent and has not come back.
    marked: bool,
}

/// Translates one call.
#[derive(Debug)]
pub struct ChanWebsocket {
    client: Option<String>,
    values: SessionValues,
    /// That of what Asterisk tells.
    origin: Origin,
    /// The server has placed the call.
    placed: Option<Placed>,
    call: Option<Call>,
}

/// A control message from Asterisk.
struct Notice {
    name: String,
    json: bool,
    fields: Map<String, Value>,
}

/// Fields that plain text does not write as one `key:value` word: a mark's name stands alone, and
/// an error's text extends to the end of the message.
const MARK: &str = "correlation_id";
const ERROR: &str = "error_text";

impl Notice {
    fn read(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.starts_with('{') {
            let fields: Map<String, Value> = serde_json::from_str(text).ok()?;
            let name = fields.get("event")?.as_str()?.to_owned();
            let json = true;
            return Some(Self { name, json, fields });
        }
        let mut words = text.split_whitespace();
        let name = words.next()?.to_owned();
        let pairs = words.map(|word| word.split_once(':').unwrap_or((MARK, word)));
        let mut fields: Map<String, Value> = pairs
            .map(|(key, value)| (key.into(), value.into()))
            .collect();
        if let Some((_, error)) = text.split_once("error_text:") {
            fields.insert(ERROR.into(), error.into());
        }
        Some(Self {
            name,
            json: false,
            fields,
        })
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.fields.get(key)?.as_str()
    }

    /// A number; plain-text messages carry it as a string.
    fn number(&self, key: &str) -> Option<usize> {
        let value = self.fields.get(key)?;
        let typed = value.as_str().and_then(|text| text.parse().ok());
        typed.or_else(|| usize::try_from(value.as_u64()?).ok())
    }
}

impl ChanWebsocket {
    /// `client` is the client's own name.
    pub fn new(client: Option<String>) -> Self {
        Self {
            client,
            values: SessionValues::default(),
            origin: Origin::Claimed,
            placed: None,
            call: None,
        }
    }

    /// Sets what is known of the caller, and the origin of what Asterisk tells.
    #[must_use]
    pub fn knowing(self, values: SessionValues, origin: Origin) -> Self {
        Self {
            values,
            origin,
            ..self
        }
    }

    /// Makes this the call that the server has placed.
    #[must_use]
    pub fn placed(self, placed: Placed) -> Self {
        Self {
            placed: Some(placed),
            ..self
        }
    }

    /// The facts on the caller, with the channel's id and, in JSON, its variables.
    fn values(&self, start: &Notice) -> SessionValues {
        let id = start.text("channel_id").unwrap_or_default();
        let values = self.values.clone().with(Named::CallId, id, self.origin);
        let variables = start.fields.get("channel_variables");
        let variables = variables.and_then(Value::as_object).into_iter().flatten();
        let variables = variables.filter_map(|(name, value)| Some((name, value.as_str()?)));
        variables.fold(values, |values, (name, value)| {
            values.with(Named::Param(name.clone()), value, self.origin)
        })
    }

    fn notice(&mut self, notice: &Notice) -> Vec<Action> {
        match notice.name.as_str() {
            "MEDIA_START" if self.call.is_none() => self.begin(notice),
            "MEDIA_XOFF" => self.hold(),
            "MEDIA_XON" => self.go_on(),
            "DTMF_END" => self.key(notice),
            "MEDIA_MARK_PROCESSED" => self.played(notice),
            "ERROR" => {
                let error = notice.text(ERROR).unwrap_or_default();
                tracing::warn!(error, "Asterisk reports an error");
                Vec::new()
            }
            name => {
                tracing::debug!(name, "ignored");
                Vec::new()
            }
        }
    }

    fn begin(&mut self, start: &Notice) -> Vec<Action> {
        let name = start.text("format").unwrap_or_default();
        let Some(format) = Format::named(name) else {
            tracing::warn!(format = name, "a call in an unsupported format");
            return close(
                close_code::UNSUPPORTED,
                "the format must be ulaw, alaw or slin at 8 to 48 kHz",
            );
        };
        let usual = (format.rate() * FRAME_MS / 1_000) as usize * format.width();
        // 0 means that the driver has no preference.
        let told = start.number("optimal_frame_size").filter(|size| *size > 0);
        let frame = told.unwrap_or(usual);
        if frame > LONGEST || !frame.is_multiple_of(format.width()) {
            return close(
                close_code::INVALID,
                "optimal_frame_size must be whole samples and at most 65500 bytes",
            );
        }
        let call = Call {
            format,
            json: start.json,
            frame,
            rest: Vec::new(),
            off: false,
            held: VecDeque::new(),
            held_length: Micros(0),
            marks: Marks::default(),
            marked: false,
        };
        let admitted = Admitted {
            values: self.values(start),
            placed: self.placed.clone(),
        };
        let options = SessionOptions::new(Profile::PhoneCall, format.rate());
        let options = SessionOptions {
            client: self.client.clone(),
            ..admitted.call("asterisk", options)
        };
        let answer = call.command("ANSWER");
        self.call = Some(call);
        vec![Action::Open(options), answer]
    }

    fn key(&self, notice: &Notice) -> Vec<Action> {
        let request = notice.text("digit").and_then(key);
        let request = request.filter(|_| self.call.is_some());
        request.map(Action::Request).into_iter().collect()
    }

    fn played(&mut self, notice: &Notice) -> Vec<Action> {
        let Some(call) = &mut self.call else {
            return Vec::new();
        };
        call.marked = false;
        let played = notice.text(MARK).and_then(Marks::played);
        played.map(Action::Request).into_iter().collect()
    }

    fn hold(&mut self) -> Vec<Action> {
        if let Some(call) = &mut self.call {
            call.off = true;
        }
        Vec::new()
    }

    fn go_on(&mut self) -> Vec<Action> {
        let Some(call) = &mut self.call else {
            return Vec::new();
        };
        call.off = false;
        call.held_length = Micros(0);
        let held = std::mem::take(&mut call.held);
        held.into_iter().map(|bytes| call.media(bytes)).collect()
    }

    fn binary(&self, bytes: &[u8]) -> Vec<Action> {
        let Some(call) = &self.call else {
            return Vec::new();
        };
        match call.format.decode(bytes) {
            Some(samples) if samples.is_empty() => Vec::new(),
            Some(samples) => vec![Action::Audio(samples)],
            None => close(close_code::INVALID, "audio must be whole 16-bit samples"),
        }
    }
}

impl Call {
    fn control(&self, name: &str, id: Option<&str>) -> String {
        match (self.json, id) {
            (true, None) => json!({ "command": name }).to_string(),
            (true, Some(id)) => json!({ "command": name, MARK: id }).to_string(),
            (false, None) => name.to_owned(),
            (false, Some(id)) => format!("{name} {id}"),
        }
    }

    fn command(&self, name: &str) -> Action {
        Action::Send(self.control(name, None))
    }

    /// The mark to send after `samples` samples of a clause, if one is due and none is outstanding.
    /// While Asterisk's queue is full there is none, since it would overtake the audio held here.
    fn mark(&mut self, clause: ClauseId, samples: usize) -> Option<Action> {
        let length = Micros::of_samples(samples as u64, self.format.rate());
        let name = self.marks.sent(clause, length)?;
        if self.off || self.marked {
            return None;
        }
        self.marked = true;
        Some(Action::Send(self.control("MARK_MEDIA", Some(&name))))
    }

    fn media(&self, bytes: Vec<u8>) -> Action {
        let length = self.format.length(bytes.len());
        Action::SendAudio {
            frame: Frame::Binary(bytes),
            length,
        }
    }

    /// Sends whole frames. The rest waits for more audio, or is padded with silence if this is the
    /// `last` audio for now.
    fn say(&mut self, samples: &[i16], last: bool) -> Vec<Action> {
        self.rest.extend(samples);
        let frame = self.frame / self.format.width();
        if last {
            self.rest.resize(self.rest.len().next_multiple_of(frame), 0);
        }
        let whole = self.rest.len() / frame * frame;
        let ready: Vec<i16> = self.rest.drain(..whole).collect();
        let most = (LONGEST / self.frame).max(1) * frame;
        let messages = ready.chunks(most).map(|part| self.format.encode(part));
        let messages: Vec<Vec<u8>> = messages.collect();
        messages
            .into_iter()
            .filter_map(|message| self.media_or_wait(message))
            .collect()
    }

    fn media_or_wait(&mut self, bytes: Vec<u8>) -> Option<Action> {
        if !self.off {
            return Some(self.media(bytes));
        }
        let length = self.format.length(bytes.len());
        if self.held_length + length <= MAX_AUDIO {
            self.held_length = self.held_length + length;
            self.held.push_back(bytes);
        }
        None
    }

    fn flush(&mut self) -> Vec<Action> {
        self.rest.clear();
        self.held.clear();
        self.held_length = Micros(0);
        self.marked = false;
        vec![Action::DropAudio, self.command("FLUSH_MEDIA")]
    }
}

impl Dialect for ChanWebsocket {
    fn start(&mut self) -> Vec<Action> {
        Vec::new()
    }

    fn is_call(&self) -> bool {
        true
    }

    fn client(&mut self, message: ClientMessage<'_>) -> Vec<Action> {
        match message {
            ClientMessage::Binary(bytes) => self.binary(bytes),
            ClientMessage::Text(text) => match Notice::read(text) {
                Some(notice) => self.notice(&notice),
                None => {
                    tracing::debug!(text, "not a control message");
                    Vec::new()
                }
            },
        }
    }

    fn session(&mut self, outbound: Outbound) -> Vec<Action> {
        let Some(call) = &mut self.call else {
            return Vec::new();
        };
        match outbound {
            Outbound::Audio {
                clause, samples, ..
            } => {
                let mut actions = call.say(&samples, false);
                actions.extend(call.mark(clause, samples.len()));
                actions
            }
            Outbound::Tones(samples) => call.say(&samples, false),
            Outbound::Clear => call.flush(),
            Outbound::Event {
                event: Event::AgentItemDone { .. },
                ..
            } => call.say(&[], true),
            Outbound::Event { .. } | Outbound::TimerRings | Outbound::Keys(_) => Vec::new(),
            Outbound::HangUp(HangUpReason::HandedOver) => Vec::new(),
            Outbound::HangUp(_) => vec![call.command("HANGUP")],
        }
    }

    /// Nothing to send, as Asterisk could not act on it. The pump counts the dropped audio.
    fn overrun(&mut self, _dropped: Micros) -> Vec<Action> {
        Vec::new()
    }

    fn probe(&self) -> Option<String> {
        let call = self.call.as_ref()?;
        Some(call.control("GET_STATUS", None))
    }
}

fn close(code: u16, reason: &'static str) -> Vec<Action> {
    vec![Action::Close(Close { code, reason })]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::{ClauseId, Input, ItemId, Time};
    use proptest::prelude::*;

    const START: &str = "MEDIA_START connection_id:media channel:WebSocket/media/0x1 \
                         channel_id:1761245643.1 format:ulaw optimal_frame_size:160 ptime:20";

    fn text(dialect: &mut ChanWebsocket, text: &str) -> Vec<Action> {
        dialect.client(ClientMessage::Text(text))
    }

    fn audio(samples: Vec<i16>) -> Outbound {
        Outbound::Audio {
            item: ItemId(1),
            clause: ClauseId(1),
            samples,
        }
    }

    fn started(start: &str) -> ChanWebsocket {
        let mut dialect = ChanWebsocket::new(None);
        let actions = text(&mut dialect, start);
        assert!(
            matches!(&actions[..], [Action::Open(_), Action::Send(_)]),
            "{actions:?}"
        );
        dialect
    }

    fn send(text: &str) -> Action {
        Action::Send(text.into())
    }

    /// The sizes of the media messages among these.
    fn sizes(actions: &[Action]) -> Vec<usize> {
        let size = |action: &Action| match action {
            Action::SendAudio {
                frame: Frame::Binary(bytes),
                ..
            } => Some(bytes.len()),
            _ => None,
        };
        actions.iter().filter_map(size).collect()
    }

    #[test]
    fn a_call_opens_in_its_format_and_is_answered_in_text_or_json() {
        let json = r#"{"event":"MEDIA_START","connection_id":"media","format":"slin16",
            "optimal_frame_size":640,"ptime":20,"channel_variables":{"A":"b"}}"#;
        for (start, rate, answer) in [
            (START, 8_000, "ANSWER"),
            ("MEDIA_START format:alaw", 8_000, "ANSWER"),
            (
                "MEDIA_START format:slin44 optimal_frame_size:1764",
                44_100,
                "ANSWER",
            ),
            (json, 16_000, r#"{"command":"ANSWER"}"#),
        ] {
            let actions = text(&mut ChanWebsocket::new(None), start);
            let [Action::Open(options), answered] = &actions[..] else {
                panic!("{start}: {actions:?}");
            };
            assert_eq!((options.input_rate, options.output_rate), (rate, rate));
            assert_eq!(options.profile, Profile::PhoneCall);
            assert_eq!(*answered, send(answer));
        }
    }

    #[test]
    fn the_start_tells_the_channel_and_its_variables() {
        let start = r#"{"event":"MEDIA_START","channel_id":"17.1","format":"ulaw",
            "channel_variables":{"PLAN":"gold","N":1}}"#;
        let known = SessionValues::default().with(Named::Caller, "100", Origin::Signalled);
        let mut dialect = ChanWebsocket::new(None).knowing(known, Origin::Signalled);
        let actions = text(&mut dialect, start);
        let [Action::Open(options), _] = &actions[..] else {
            panic!("{actions:?}");
        };
        let value = |name: Named| options.values.get(&name);
        assert_eq!(value(Named::Caller), Some(("100", Origin::Signalled)));
        assert_eq!(value(Named::CallId), Some(("17.1", Origin::Signalled)));
        let plan = Named::Param("PLAN".into());
        assert_eq!(value(plan), Some(("gold", Origin::Signalled)));
    }

    #[test]
    fn unsupported_media_closes_with_the_reason() {
        for (start, code) in [
            ("MEDIA_START format:opus optimal_frame_size:0", 1003),
            ("MEDIA_START", 1003),
            ("MEDIA_START format:slin optimal_frame_size:321", 1007),
            ("MEDIA_START format:slin optimal_frame_size:70000", 1007),
        ] {
            let actions = text(&mut ChanWebsocket::new(None), start);
            assert!(
                matches!(&actions[..], [Action::Close(close)] if close.code == code),
                "{start}"
            );
        }
        let mut linear = started("MEDIA_START format:slin");
        let half = linear.client(ClientMessage::Binary(&[0; 3]));
        assert!(matches!(&half[..], [Action::Close(close)] if close.code == 1007));
    }

    #[test]
    fn media_before_the_start_is_dropped_and_the_call_begins() {
        let mut dialect = ChanWebsocket::new(None);
        assert_eq!(dialect.client(ClientMessage::Binary(&[0; 160])), []);
        let begun = text(&mut dialect, START);
        assert!(matches!(&begun[..], [Action::Open(_), Action::Send(_)]));
    }

    #[test]
    fn media_is_decoded_and_encoded() {
        let mut dialect = started(START);
        let heard = dialect.client(ClientMessage::Binary(&[0x00, 0xff]));
        assert_eq!(heard, [Action::Audio(vec![-32_124, 0])]);
        let said = dialect.session(audio(vec![0; 160]));
        let frame = Frame::Binary(vec![0xff; 160]);
        let length = Micros::from_ms(20);
        assert_eq!(said, [Action::SendAudio { frame, length }]);
    }

    #[test]
    fn messages_hold_whole_frames() {
        let mut dialect = started("MEDIA_START format:slin optimal_frame_size:480");
        assert!(dialect.session(audio(vec![1; 160])).is_empty());
        assert_eq!(sizes(&dialect.session(audio(vec![1; 160]))), [480]);
        assert_eq!(
            sizes(&dialect.session(audio(vec![1; 32_768 * 2]))),
            [65_280, 65_280, 480]
        );
        let done = Event::AgentItemDone {
            item: ItemId(1),
            text: String::new(),
            interrupted: false,
        };
        let done = Outbound::Event {
            at: Time(0),
            event: done,
        };
        assert_eq!(sizes(&dialect.session(done.clone())), [480]);
        assert!(dialect.session(done).is_empty());
    }

    #[test]
    fn a_flush_drops_audio_held_here_and_in_asterisk() {
        let mut dialect = started("MEDIA_START format:slin optimal_frame_size:480");
        dialect.session(audio(vec![1; 160]));
        let flushed = [Action::DropAudio, send("FLUSH_MEDIA")];
        assert_eq!(dialect.session(Outbound::Clear), flushed);
        let actions = dialect.session(audio(vec![2; 240]));
        let Action::SendAudio {
            frame: Frame::Binary(bytes),
            ..
        } = &actions[0]
        else {
            panic!("{actions:?}");
        };
        assert_eq!(*bytes, to_pcm16le(&[2; 240]));
        let over = dialect.session(Outbound::HangUp(HangUpReason::Idle));
        assert_eq!(over, [send("HANGUP")]);
    }

    #[test]
    fn while_asterisks_queue_is_full_at_most_half_a_second_is_held() {
        let mut dialect = started(START);
        text(&mut dialect, "MEDIA_XOFF channel_id:1");
        for _ in 0..100 {
            assert_eq!(dialect.session(audio(vec![1; 160])), []);
        }
        assert_eq!(
            sizes(&text(&mut dialect, "MEDIA_XON channel_id:1")),
            [160; 25]
        );
        assert_eq!(sizes(&dialect.session(audio(vec![1; 160]))), [160]);
        text(&mut dialect, "MEDIA_XOFF");
        dialect.session(audio(vec![1; 160]));
        dialect.session(Outbound::Clear);
        assert_eq!(text(&mut dialect, "MEDIA_XON"), []);
    }

    /// The marks among the actions for `frames` frames of 20 ms.
    fn marks(dialect: &mut ChanWebsocket, frames: usize) -> Vec<Action> {
        let actions = (0..frames).flat_map(|_| dialect.session(audio(vec![1; 160])));
        actions
            .filter(|action| matches!(action, Action::Send(_)))
            .collect()
    }

    #[test]
    fn one_mark_at_a_time_reports_playout() {
        let played = |ms| {
            [Action::Request(Input::Played {
                clause: ClauseId(1),
                until: Micros::from_ms(ms),
            })]
        };
        let json = r#"{"event":"MEDIA_START","format":"ulaw","optimal_frame_size":160}"#;
        let json_mark = r#"{"command":"MARK_MEDIA","correlation_id":"1/200"}"#;
        for (start, mark, processed) in [
            (START, "MARK_MEDIA 1/200", "MEDIA_MARK_PROCESSED 1/200"),
            (
                START,
                "MARK_MEDIA 1/200",
                "MEDIA_MARK_PROCESSED channel_id:1 correlation_id:1/200",
            ),
            (
                json,
                json_mark,
                r#"{"event":"MEDIA_MARK_PROCESSED","channel_id":"1","correlation_id":"1/200"}"#,
            ),
        ] {
            let mut dialect = started(start);
            assert_eq!(marks(&mut dialect, 9), []);
            assert_eq!(marks(&mut dialect, 1), [send(mark)]);
            assert_eq!(marks(&mut dialect, 25), [], "the first is under way");
            assert_eq!(text(&mut dialect, processed), played(200));
            assert_eq!(marks(&mut dialect, 5).len(), 1);
        }
    }

    #[test]
    fn an_asterisk_without_marks_gets_only_one_before_a_flush() {
        let mut dialect = started(START);
        assert_eq!(marks(&mut dialect, 10).len(), 1);
        let error = "ERROR channel_id:1 error_text:MARK_MEDIA not supported in passthrough mode";
        assert_eq!(text(&mut dialect, error), []);
        let read = Notice::read(error).unwrap();
        let reason = "MARK_MEDIA not supported in passthrough mode";
        assert_eq!(read.text(ERROR), Some(reason));
        assert_eq!(marks(&mut dialect, 100), []);
        dialect.session(Outbound::Clear);
        assert_eq!(
            marks(&mut dialect, 10).len(),
            1,
            "a flush takes marks along"
        );
    }

    #[test]
    fn keys_are_passed_on() {
        let mut dialect = started(START);
        let key = |key| [Action::Request(Input::Key { key })];
        assert_eq!(
            text(&mut dialect, "DTMF_END digit:5 channel_id:1"),
            key('5')
        );
        let json = r##"{"event":"DTMF_END","channel_id":"1","digit":"#"}"##;
        assert_eq!(text(&mut dialect, json), key('#'));
    }

    #[test]
    fn unknown_or_malformed_text_is_ignored() {
        let mut dialect = started(START);
        for line in [
            "",
            " ",
            "{",
            "{}",
            "[]",
            "QUEUE_DRAINED",
            "MEDIA_MARK_PROCESSED x",
            "DTMF_END",
            "DTMF_END digit:55",
            r#"{"event":7}"#,
            START,
        ] {
            assert_eq!(text(&mut dialect, line), [], "{line}");
        }
    }

    proptest! {
        #[test]
        fn any_sequence_of_messages_is_survived(
            steps in prop::collection::vec((0..7_u8, ".{0,60}", prop::collection::vec(any::<u8>(), 0..700)), 0..30),
        ) {
            let mut dialect = ChanWebsocket::new(None);
            for (kind, line, bytes) in steps {
                match kind {
                    0 => text(&mut dialect, &line),
                    1 => text(&mut dialect, START),
                    2 => text(&mut dialect, &format!("MEDIA_START format:slin optimal_frame_size:{}", bytes.len())),
                    3 => text(&mut dialect, if line.len() % 2 == 0 { "MEDIA_XOFF" } else { "MEDIA_XON" }),
                    4 => dialect.client(ClientMessage::Binary(&bytes)),
                    5 => dialect.session(Outbound::Clear),
                    _ => {
                        let actions = dialect.session(audio(bytes.iter().map(|b| i16::from(*b)).collect()));
                        prop_assert!(sizes(&actions).iter().all(|size| *size <= LONGEST));
                        actions
                    }
                };
            }
        }
    }
}
