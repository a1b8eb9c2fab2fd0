//! Asterisk's AudioSocket: a call is a TCP connection that Asterisk opens to us.
//!
//! The protocol has frames and nothing else: no names, no tokens, no pings, and no way to take back
//! audio that was sent. So one frame of 20 ms leaves here every 20 ms ([`line`]), and what may still
//! have to be dropped waits on this side.
//!
//! A frame of silence goes out when there is nothing to say, from the call's first moment on.
//! Asterisk needs it: its `AudioSocket()` application ends a call on which neither side was active
//! for two seconds, as with a muted caller; releases up to 23.3 may wait for our bytes before they
//! send any of the caller's; and the caller's telephone gets an RTP stream without holes.
//!
//! The session opens with the caller's first audio, at the rate that it has, or after half a second
//! without any, at 8 kHz.

mod call;
mod frame;
mod line;

pub use call::{answer, turn_away};
pub use frame::{Decoder, Malformed, Message, RATES, encode_audio, encode_hang_up};
pub use line::Line;
