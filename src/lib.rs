//! undertone: a real-time voice agent server.
//!
//! Audio comes in over a socket, speech is found and transcribed, a language model answers in
//! a stream of markup, and the answer is spoken while it is still being written.
//!
//! One pure [`conversation::Conversation`] decides; everything else obeys.
//!
//! | module | subject |
//! |---|---|
//! | [`conversation`] | turns, end of turn, barge-in, history, playout: pure rules, no clock, no I/O |
//! | [`time`] | times and lengths as plain numbers |
//! | [`audio`] | resampling, pre-roll, log-mel features |
//! | [`vad`] [`turn_model`] [`asr`] [`llm`] [`tts`] | the models, each behind a trait |
//! | [`language`] | how people say numbers, dates, places, a yes: pure |
//! | [`brain`] | the local brain: a language model made of intents, slots and templates |
//! | [`prediction`] | text to predicted tool calls |
//! | [`tools`] | tool declarations and the built-in tools |
//! | [`session`] | the async shell that drives one conversation |
//! | [`recording`] | recorded sessions and their replay |
//! | [`what_if`] | recorded sessions under another policy |
//! | [`stats`] [`metrics`] | what turns took, what speculation saved and wasted |
//! | [`transport`] | wire dialects |
//! | [`server`] | routes, admission, drain |
//! | `desktop` | microphone and loudspeaker of this machine; with the feature `desktop` |
//! | [`ask`] | plays a recorded question into a session and listens |
//! | [`config`] [`cli`] [`models`] [`onnx`] [`telemetry`] [`worker`] | the rest of the house |

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests measure, and wait for what they know to be bounded"
    )
)]

pub mod ask;
pub mod asr;
pub mod audio;
pub mod brain;
pub mod cli;
pub mod config;
pub mod conversation;
#[cfg(feature = "desktop")]
pub mod desktop;
pub mod language;
pub mod llm;
pub mod metrics;
pub mod models;
pub mod onnx;
pub mod prediction;
pub mod recording;
pub mod server;
pub mod session;
pub mod stats;
pub mod telemetry;
pub mod time;
pub mod tools;
pub mod transport;
pub mod tts;
pub mod turn_model;
pub mod vad;
pub mod what_if;
pub mod worker;
