//! OpenAI's Realtime protocol over a WebSocket, with GA event names, or with those of the beta for
//! clients that ask for it by the header `OpenAI-Beta: realtime=v1` or the subprotocol
//! `openai-beta.realtime-v1`.
//!
//! Clients written for OpenAI's service talk to this server unchanged. `docs/realtime.md` lists every
//! event and field with what becomes of it; its tables are those of `fields`.
//!
//! Events that only this server has are sent when asked for, by `?vendor_events=1` or by
//! `{"undertone": {"events": true}}` in `session.update`:
//!
//! | event | fields | meaning |
//! |---|---|---|
//! | `undertone.transcript.partial` | `item_id`, `text` | what was heard so far |
//! | `undertone.utterance_dropped` | `item_id` | it was no speech; the item will not come |
//! | `undertone.clear` | | drop the audio that has not been played |
//! | `undertone.turn` | `response_id`, `turn`, `status`, `latency` | stamps of each stage, µs since the session began |
//! | `undertone.turn_record` | `turn`, `status`, `latency`, `predictions`, `runs`, `fillers` | what was predicted and run for a turn, and the fate of each run |
//! | `undertone.speculation` | `kind` and its fields | `predicted`, `started`, `ready`, `committed` or `discarded`, as it happens; never a result |
//! | `undertone.confirmation.asked` | `call_id`, `item_id`, `name`, `arguments`, `question` | a call that changes something waits for the user's yes |
//! | `undertone.confirmation.ended` | `call_id`, `outcome` | `accepted`, `declined`, `abandoned` or `expired` |
//! | `undertone.stage_failed` | `stage`, `message` | a stage failed; the conversation goes on |
//!
//! Events to such a client carry `undertone_at`, the time at which they happened. It may send
//! audio as binary messages, bare PCM16LE at 24 kHz, in place of `input_audio_buffer.append`.
//! `{"undertone": {"speculation": false}}` in `session.update`, from any client, has nothing run
//! before it is certain, and `true` takes that back; what the operator has turned off stays off.
//! A client that shows a button may answer for the user with
//! `{"type": "undertone.confirmation.respond", "call_id": ..., "accept": true}`. Times are
//! microseconds since the session began. Clients that do not ask get none of this: nothing that
//! ran early and was discarded leaves a trace in what they are sent.

mod beta;
mod client_events;
mod codec;
mod dialect;
mod fault;
mod fields;
mod items;
mod response;
mod server_events;
mod session_config;

pub use beta::{BETA_PROTOCOL, asks_for_beta};
pub use client_events::{
    CLIENT_EVENTS, ClientEvent, ClientItem, ClientRequest, InputItem, ItemContent, ResponseRequest,
    parse,
};
pub use codec::{Format, RATE};
pub use dialect::{DEFAULT_MODEL, Realtime};
pub use fault::Fault;
pub use fields::Ineffective;
pub use session_config::SessionUpdate;
