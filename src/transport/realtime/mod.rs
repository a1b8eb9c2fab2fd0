//! OpenAI's Realtime protocol over a WebSocket. Event names are those of the GA protocol, or those
//! of the beta for clients that request it with the header `OpenAI-Beta: realtime=v1` or the
//! subprotocol `openai-beta.realtime-v1`.
//!
//! Clients written for OpenAI's service work with this server unchanged. `docs/realtime.md` lists
//! every event and field and how the server treats it; its tables are generated from `fields`.
//!
//! Clients that opt in, with `?vendor_events=1` or with `{"undertone": {"events": true}}` in
//! `session.update`, also get the vendor events:
//!
//! | event | fields | meaning |
//! |---|---|---|
//! | `undertone.transcript.partial` | `item_id`, `text` | the partial transcript |
//! | `undertone.utterance_dropped` | `item_id` | the utterance had no words; no item with this id follows, but one came before if the client has committed it |
//! | `undertone.clear` | | discard audio that has not been played |
//! | `undertone.playout` | `kind`, `clause`, `audio_ms`, `rtp_timestamp` | over WebRTC: on the track, after `audio_ms` of the clause, its sound has `started`, `ended` or was `cleared` |
//! | `undertone.turn` | `response_id`, `turn`, `status`, `latency` | timestamps of each stage, µs since the session began |
//! | `undertone.turn_record` | `turn`, `status`, `latency`, `predictions`, `runs`, `fillers` | the predictions and speculative runs of a turn, and the outcome of each run |
//! | `undertone.speculation` | `kind` and its fields | `predicted`, `started`, `ready`, `committed` or `discarded`, as it happens; results are never included |
//! | `undertone.confirmation.asked` | `call_id`, `item_id`, `name`, `arguments`, `question` | a call with side effects waits for the user's confirmation |
//! | `undertone.confirmation.ended` | `call_id`, `outcome` | `accepted`, `declined`, `abandoned` or `expired` |
//! | `undertone.stage_failed` | `stage`, `message` | a stage failed; the conversation goes on |
//!
//! Two vendor events go to every client that has declared a tool which may run early, with `{"undertone":
//! {"effect": "read", "early": true}}` in the tool:
//!
//! | event | fields | meaning |
//! |---|---|---|
//! | `undertone.early_call.started` | `call_id`, `name`, `arguments`, `speculative` | the model may make this call; its output is silent until then |
//! | `undertone.early_call.discarded` | `call_id`, `reason` | the model has not made it: its output is not needed |
//!
//! Two more go to every client that connects with `?resumable=1`:
//!
//! | event | fields | meaning |
//! |---|---|---|
//! | `undertone.session.resumable` | `resume`, `within_ms` | if its connection is lost, the client may come back within `within_ms` with `?resume=` and this secret |
//! | `undertone.session.resumed` | `resume`, `within_ms` | it is back; the secret is for the next time |
//!
//! Over WebRTC, `response.output_audio_transcript.delta` carries `undertone_clause`, to which `undertone.playout`
//! refers. Every event to a client that opted in carries `undertone_at`, the time at which it happened. The client may
//! send audio as binary messages, in the session's input format and without base64, instead of
//! `input_audio_buffer.append`. A client with a confirmation button may answer for the user with
//! `{"type": "undertone.confirmation.respond", "call_id": ..., "accept": true}`. Times are
//! microseconds since the session began. Other clients get none of this: discarded speculative runs
//! leave no trace in their events. Any client may disable speculation with `{"undertone":
//! {"speculation": false}}` in `session.update` and enable it again with `true`; it stays off if
//! the operator has disabled it.

mod beta;
mod client_events;
mod codec;
mod dialect;
mod early_calls;
mod early_tools;
mod fault;
mod fields;
mod items;
mod keywords;
mod response;
mod server_events;
mod session_config;
mod session_object;
mod turn_detection;
mod voices;

pub use beta::{BETA_PROTOCOL, asks_for_beta};
pub use client_events::{
    CLIENT_EVENTS, ClientEvent, ClientItem, ClientRequest, InputItem, ItemContent, ResponseRequest,
    parse,
};
pub use codec::{Format, RATE};
pub use dialect::{DEFAULT_MODEL, Edge, EdgeKind, Realtime, transcription_usage};
pub use fault::Fault;
pub use fields::Ineffective;
use server_events::Writer;
pub use session_config::{SessionUpdate, configures};
pub use voices::{DEFAULT_VOICE, Offered};

/// The `error` event for a client without a session.
pub fn refusal(fault: &Fault) -> String {
    Writer::new().fault(fault)
}
