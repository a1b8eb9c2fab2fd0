//! OpenAI's Realtime protocol over a WebSocket, with GA event names.
//!
//! Clients written for OpenAI's service talk to this server unchanged. What differs:
//!
//! - Audio is `audio/pcm` at 24 kHz; other formats are refused. There is one voice: a `voice` is
//!   echoed and has no effect.
//! - The user's transcript comes unless `audio.input.transcription` is set to `null`.
//! - Tools that the server runs appear as `mcp_call` items of the server `undertone`; those that
//!   the client declares are `function_call` items, for the client to run.
//! - `conversation.item.create` appends: a `previous_item_id` other than the last item is refused,
//!   and so is audio without its transcript.
//! - `response.create` with `conversation: "none"`, `input` or `tools` of its own is refused.
//! - With `output_modalities: ["text"]` words come as `response.output_text.*` and no audio is
//!   sent, at the pace of speech.
//! - Audio that the client commits and in which no word is recognised gives no item: after
//!   `input_audio_buffer.committed` comes `conversation.item.input_audio_transcription.failed` with
//!   the code `audio_unintelligible`.
//! - `turn_detection.interrupt_response` is the operator's `turn.interrupt` where it is left out.
//! - Two tools of the same name are refused; one that is named as one of the server's takes its
//!   place in this session.
//! - `tool_choice` other than `auto` and `none`, tools that are no functions, and items that are
//!   neither messages nor outputs of functions are refused; so are more than 128 tools, items of
//!   more than 32 KiB, and more than 1 MiB of them in a session.
//! - Turns are detected by `semantic_vad` where nothing else is said.
//! - Usage is zero, and `rate_limits.updated` is not sent: there are no such limits.
//! - These fields of a session are ignored: `model`, `max_output_tokens`, `temperature`, `tracing`,
//!   `truncation`, `prompt`, `include`, `audio.output.speed`, `audio.input.noise_reduction`, and of
//!   `turn_detection` `threshold`, `prefix_padding_ms`, `idle_timeout_ms` and `eagerness`.
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
//! What such a client is told of the session carries `undertone_at`, when it happened. It may send
//! audio as binary messages, bare PCM16LE at 24 kHz, in place of `input_audio_buffer.append`.
//! `{"undertone": {"speculation": false}}` in `session.update`, from any client, has nothing run
//! before it is certain, and `true` takes that back; what the operator has turned off stays off.
//! A client that shows a button may answer for the user with
//! `{"type": "undertone.confirmation.respond", "call_id": ..., "accept": true}`. Times are
//! microseconds since the session began. Clients that do not ask get none of this: nothing that
//! ran early and was discarded leaves a trace in what they are sent.

mod client_events;
mod dialect;
mod items;
mod response;
mod server_events;
mod session_config;

pub use client_events::{
    CLIENT_EVENTS, ClientEvent, ClientItem, ClientRequest, Fault, ItemContent, ResponseRequest,
    parse,
};
pub use dialect::Realtime;
pub use session_config::{RATE, SessionUpdate, ToolChoice};
