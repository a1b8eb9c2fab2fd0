//! Telephone calls.
//!
//! | module | subject |
//! |---|---|
//! | [`audiosocket`] | Asterisk's AudioSocket: TCP, and the pacing is ours |
//! | [`chan_websocket`] | Asterisk's channel driver for WebSockets |

pub mod audiosocket;
pub mod chan_websocket;

use crate::conversation::Input;

/// What the session is told of a key of the caller's telephone. `None` if there is no such key.
fn key(key: char) -> Option<Input> {
    // INPUT_KEY
    let _ = key.to_ascii_uppercase();
    None
}
