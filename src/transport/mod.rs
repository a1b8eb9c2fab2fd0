//! Wire protocols: translate a client's bytes to and from the events of a session.
//!
//! A [`Dialect`] translates and does no I/O; [`socket`] carries out its [`Action`]s over one
//! WebSocket, with the limits, timeouts and close codes that all dialects share.
//!
//! | module | subject |
//! |---|---|
//! | [`realtime`] | OpenAI's Realtime protocol, GA event names |
//! | [`pcm`] | bare PCM16 in binary messages, for devices |
//! | [`phone`] | telephone calls: providers' media streams, Asterisk |
//! | [`wyoming`] | Home Assistant's protocol over TCP |
//! | [`webrtc`] | the Realtime protocol for browsers: audio on a track, events on a data channel |
//! | [`door`] | protocols over bare TCP: their interface to the server |
//! | [`socket`] | the pump between one WebSocket, one dialect and one session |
//! | [`link`] | a pump's link to its session, whatever carries the bytes |
//! | [`resume`] | the way back to a session for a client whose connection was lost |
//! | [`patience`] | deadlines after which a client counts as slow, vanished or idle |
//! | [`pump`] | parts that all pumps share: access to the server, the end of a connection |
//! | [`intake`] | backpressure on a client's audio, and its order with requests |
//! | [`frame_pacer`] | playout to clients without a clock of their own: a frame every 20 ms |
//! | [`outbox`] | bounded queue to a client that reads slowly |

pub mod door;
pub mod frame_pacer;
#[cfg(any(test, feature = "fuzzing"))]
mod fuzzing;
pub mod intake;
pub mod link;
pub mod outbox;
pub mod patience;
pub mod pcm;
pub mod phone;
pub mod pump;
pub mod realtime;
pub mod resume;
pub mod socket;
pub mod webrtc;
pub mod wyoming;

use crate::conversation::{Input, ItemId, Micros};
use crate::session::{Outbound, PlacedCall, SessionOptions};
use crate::tools::{Named, Origin, SessionValues};
use futures_util::future::BoxFuture;

/// A reader of bytes from outside, for `make fuzz`. It must never panic.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) type Reader = fn(&[u8]);

/// Each door's reader, by name.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) const READERS: [(&str, Reader); 13] = {
    use fuzzing::{admit, messages, realtime_client};
    use phone::chan_websocket::ChanWebsocket;
    use phone::conversation_relay::ConversationRelay;
    use phone::media_streams::{MediaStreams, Provider};
    [
        ("realtime", |bytes| messages(realtime_client(), bytes)),
        ("realtime_beta", |bytes| {
            messages(realtime_client().beta(true), bytes)
        }),
        ("realtime_event", |bytes| {
            drop(std::str::from_utf8(bytes).map(realtime::parse));
        }),
        ("pcm", |bytes| messages(pcm::Pcm::new(None), bytes)),
        ("twilio", |bytes| {
            messages(MediaStreams::new(Provider::Twilio, admit()), bytes);
        }),
        ("telnyx", |bytes| {
            messages(MediaStreams::new(Provider::Telnyx, admit()), bytes);
        }),
        ("plivo", |bytes| {
            messages(MediaStreams::new(Provider::Plivo, admit()), bytes);
        }),
        ("relay", |bytes| {
            messages(ConversationRelay::new(admit()), bytes)
        }),
        ("chan_websocket", |bytes| {
            messages(ChanWebsocket::new(None), bytes)
        }),
        ("audiosocket", fuzzing::audiosocket),
        ("wyoming", wyoming::read_events),
        ("webrtc", webrtc::read_packets),
        ("sdp", webrtc::read_offer),
    ]
};

/// A whole message of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientMessage<'a> {
    /// A text message.
    Text(&'a str),
    /// A binary message.
    Binary(&'a [u8]),
}

/// A message to a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// A text message.
    Text(String),
    /// A binary message.
    Binary(Vec<u8>),
}

/// An action that a dialect asks of its connection. Actions are carried out in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Open the session. Happens once, before any audio or request.
    Open(SessionOptions),
    /// Send a message. It is never dropped.
    Send(String),
    /// Send audio. It is dropped when the client reads too slowly, and on [`Action::DropAudio`].
    SendAudio {
        /// The message.
        frame: Frame,
        /// Its playing time.
        length: Micros,
    },
    /// Play audio, at the session's output rate, on the client's track. A WebSocket has no track and ignores it.
    Play(Vec<i16>),
    /// Drop the audio that still waits to be sent.
    DropAudio,
    /// Pass audio of the client, at the session's input rate, to the session.
    Audio(Vec<i16>),
    /// Pass a recorded item of the user's to the session: [`crate::session::Inbound::Spoken`].
    Spoken {
        /// Its audio, at the session's input rate.
        audio: Vec<i16>,
        /// Its id.
        id: ItemId,
        /// The item.
        item: Box<Input>,
    },
    /// Pass a request of the client to the session.
    Request(Input),
    /// Close the connection.
    Close(Close),
}

/// The answer to [`Dialect::question`]: the facts on a client that may go on, or `None` if it may not.
pub type Admission = Option<Admitted>;

/// Facts on a client that may go on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Admitted {
    /// The facts on the caller.
    pub values: SessionValues,
    /// The call that the server has placed, if it is one.
    pub placed: Option<Placed>,
}

/// A call that the server has placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// The agent that speaks, if one was named.
    pub agent: Option<String>,
    /// Values for its instructions and tools.
    pub values: SessionValues,
    /// Whether a machine may have answered.
    pub call: PlacedCall,
}

impl From<SessionValues> for Admitted {
    fn from(values: SessionValues) -> Self {
        Self {
            values,
            placed: None,
        }
    }
}

impl Admitted {
    /// Adds the facts on a call that came by `transport` to its `options`.
    pub(crate) fn call(self, transport: &str, options: SessionOptions) -> SessionOptions {
        let mut values = self.values;
        let (agent, placed) = match self.placed {
            Some(placed) => {
                values.extend(placed.values);
                (placed.agent, Some(placed.call))
            }
            None => (None, None),
        };
        SessionOptions {
            values: values.with(Named::Transport, transport, Origin::Verified),
            agent,
            placed,
            ..options
        }
    }
}

/// The close code and reason of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Close {
    /// The WebSocket close code.
    pub code: u16,
    /// A reason for the client's developer, at most 123 bytes.
    pub reason: &'static str,
}

/// Close codes of RFC 6455 and the IANA registry.
pub mod close_code {
    /// A normal end.
    pub const NORMAL: u16 = 1000;
    /// The server shuts down.
    pub const GOING_AWAY: u16 = 1001;
    /// A WebSocket frame that is not allowed here.
    pub const PROTOCOL: u16 = 1002;
    /// A type of message that this dialect does not accept.
    pub const UNSUPPORTED: u16 = 1003;
    /// A payload that is not what its type says: bad UTF-8, half a sample.
    pub const INVALID: u16 = 1007;
    /// A violation of the server's rules.
    pub const POLICY: u16 = 1008;
    /// A message over the limit.
    pub const TOO_BIG: u16 = 1009;
    /// An internal error of the server.
    pub const INTERNAL: u16 = 1011;
    /// Overloaded: try again later.
    pub const TRY_AGAIN: u16 = 1013;
}

/// A translator between one client's messages and one session. Does no I/O and has no clock.
pub trait Dialect: Send + 'static {
    /// Returns the actions to take when the socket opens.
    fn start(&mut self) -> Vec<Action>;

    /// Handles a message from the client.
    fn client(&mut self, message: ClientMessage<'_>) -> Vec<Action>;

    /// Handles output of the session. After an [`Outbound::HangUp`] the socket closes without a request
    /// from the dialect.
    fn session(&mut self, outbound: Outbound) -> Vec<Action>;

    /// A question that decides whether the client may go on; `None` if there is none. The connection asks for one after
    /// every step, and reads nothing more from the client until [`Dialect::admitted`] has the answer.
    fn question(&mut self) -> Option<BoxFuture<'static, Admission>> {
        None
    }

    /// Handles the answer to [`Dialect::question`].
    fn admitted(&mut self, _admission: Admission) -> Vec<Action> {
        Vec::new()
    }

    /// Whether its clients are telephone calls, which go on while the server drains.
    fn is_call(&self) -> bool {
        false
    }

    /// Whether so much waits for the session that nothing more is read from the client for now. Once the session has
    /// answered, the client is read from again.
    fn is_busy(&self) -> bool {
        false
    }

    /// Handles the loss of `dropped` of the client's audio, which arrived faster than the limit.
    fn overrun(&mut self, dropped: Micros) -> Vec<Action>;

    /// How its clients come back after their connection was lost; `None` if they cannot.
    fn returns(&mut self) -> Option<&mut dyn resume::Returns> {
        None
    }

    /// The message that probes a silent client; a WebSocket ping if `None`.
    fn probe(&self) -> Option<String> {
        None
    }
}
