//! Asterisk's AudioSocket: for each call, Asterisk opens a TCP connection to us.
//!
//! The protocol has only frames: no names, no tokens, no pings, and no way to take back audio. So
//! one 20 ms frame is sent every 20 ms ([`line`]), and audio that a barge-in may discard is queued
//! on this side.
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
mod line;

pub use call::{answer, turn_away};
pub use frame::{Decoder, Malformed, Message, RATES, encode_audio, encode_hang_up};
pub use line::Line;
