//! Asterisk's AudioSocket: for each call, Asterisk opens a TCP connection to us.
//!
//! The protocol has only frames: no names, no tokens, no pings, and no way to take back audio. So
//! one 20 ms frame is sent every 20 ms ([`frame_pacer`](crate::transport::frame_pacer)), and audio that a
//! barge-in may discard is queued on this side.
//!
//! From the start of the call, silence is sent when the agent says nothing. Asterisk needs it: its
//! `AudioSocket()` application ends a call after two seconds without activity on either side, as
//! with a muted caller; releases up to 23.3 may wait for our bytes before they send any of the
//! caller's; and the caller's telephone gets an RTP stream without gaps.
//!
//! The session opens with the caller's first audio, at that audio's rate, or at 8 kHz after half a
//! second without audio.

mod call;
mod frame;
mod pace;

pub use frame::{Decoder, Malformed, Message, RATES, encode_audio, encode_hang_up};

use crate::transport::door::{Door, Places};
use crate::transport::intake::IntakeLimits;
use crate::transport::pump::PumpContext;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::net::TcpStream;

/// The send buffer of a call, bytes. Its frames are a third of a kilobyte, so little is buffered by
/// the kernel when a call stalls, and the rest can still be dropped.
pub const SEND_BUFFER: u32 = 8 * 1024;

/// The door for calls.
#[derive(Debug, Clone, Copy)]
pub struct AudioSocket {
    intake: IntakeLimits,
}

impl AudioSocket {
    /// `intake` bounds how fast a caller's audio may arrive.
    pub fn new(intake: IntakeLimits) -> Self {
        Self { intake }
    }
}

impl Door for AudioSocket {
    fn places(&self) -> Places {
        Places::OfSessions
    }

    fn serve(&self, stream: TcpStream, context: PumpContext) -> BoxFuture<'static, ()> {
        call::answer(stream, self.intake, context).boxed()
    }

    fn turn_away(&self, stream: TcpStream) -> BoxFuture<'static, ()> {
        call::turn_away(stream).boxed()
    }
}
