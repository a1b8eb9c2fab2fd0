//! OpenAI's Realtime protocol over WebRTC: the user's and the agent's audio are Opus on a track, and the events go
//! over the data channel `oai-events`. The events are those of [`realtime`](super::realtime), without audio.
//!
//! A client posts an SDP offer and gets an answer. All calls share one UDP port (`port.rs`), and TCP where a client
//! cannot reach that (`tcp.rs`). We are ICE-lite:
//! we never dial, but learn a client's address from its first packets.
//!
//! | module | subject |
//! |---|---|
//! | `port` | the UDP socket: hands each packet to its call |
//! | `tcp` | the same over TCP connections |
//! | `peer` | one connection's protocols, the only user of str0m |
//! | `sdp` | PURE: an offer in the form that str0m reads, and its answer with what the client expects |
//! | `call` | the pump between a client and its session |
//! | `sideband` | WebSockets that take part in a call's session |
//! | `gaps` | PURE: fills the gaps of lost packets |
//! | `playout` | PURE: how much of the agent's audio the client has heard |
//! | `pieces` | PURE: follows which clause is on the track |
//! | `opus` | the codec |

mod call;
mod gaps;
mod opus;
mod peer;
mod pieces;
mod playout;
mod port;
mod sdp;
mod sideband;
mod tcp;
#[cfg(test)]
mod tests;

pub use call::Seat;
pub use peer::BadOffer;
pub use port::{Answered, Bound, Port, Tcp, bind};
pub use sideband::Sideband;
pub use tcp::is_call;

/// Reads an offer, and an answer that says the same. For [`super::READERS`].
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn read_offer(bytes: &[u8]) {
    let Ok(offer) = std::str::from_utf8(bytes) else {
        return;
    };
    let readable = sdp::readable(offer);
    drop(str0m::change::SdpOffer::from_sdp_string(&readable));
    sdp::answer(offer, &readable);
}

/// Reads packets of a TCP connection: to whom they go, and their sound if they had some. For [`super::READERS`].
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn read_packets(mut bytes: &[u8]) {
    use futures_util::FutureExt;
    let mut decoder = opus::OpusDecoder::new().expect("a decoder");
    while let Some(Ok(packet)) = tcp::receive(&mut bytes).now_or_never() {
        port::addressee(&packet);
        if let Some(length) = opus::OpusDecoder::length(&packet) {
            decoder.recover(&packet, length);
            let samples = decoder.decode(&packet).unwrap_or_default();
            assert!(samples.len() <= length, "more sound than its packet says");
        }
    }
}
