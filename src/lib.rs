//! undertone: a real-time voice agent server.
//!
//! Audio arrives over a socket, speech is detected and transcribed, a language model answers in a
//! stream of markup, and the answer is spoken while it is still being generated.
//!
//! One pure [`conversation::Conversation`] makes all decisions; everything else carries them out.
//!
//! | module | subject |
//! |---|---|
//! | [`conversation`] | turns, end of turn, barge-in, history, playout: pure rules, no clock, no I/O |
//! | [`time`] | times and lengths as plain numbers |
//! | [`audio`] | resampling, pre-roll, G.711, log-mel features |
//! | [`vad`] [`turn_model`] [`asr`] [`llm`] [`tts`] | the models, each behind a trait |
//! | [`language`] | spoken numbers, dates, places, assent: pure |
//! | [`brain`] | the local brain: an embedded answer engine of intents, slots and templates |
//! | [`prediction`] | predicts tool calls from text |
//! | [`tools`] | tool declarations and the built-in tools |
//! | [`session`] | the async shell that drives one conversation |
//! | [`recording`] | recorded sessions and their replay |
//! | [`what_if`] | estimates recorded sessions under another policy |
//! | [`stats`] [`metrics`] [`traces`] | latency of turns, benefit and cost of speculation; traces of turns |
//! | [`report`] | what a call was, for the operator's webhook |
//! | [`transport`] | wire dialects |
//! | [`server`] | routes, admission, drain |
//! | `desktop` | client on this machine's microphone and loudspeaker; feature `desktop` |
//! | [`ask`] | plays a recorded question into a session and collects the answer |
//! | [`simulate`] | simulated callers, and a report on what the agent did |
//! | [`mod@bench`] | what speculation buys and costs, in virtual time |
//! | [`dice`] | random numbers from a seed |
//! | [`backend`] | servers of models over HTTP |
//! | [`store`] | what several servers share, in Redis or Valkey |
//! | [`config`] [`cli`] [`models`] [`onnx`] [`telemetry`] [`worker`] | configuration, command line, model files, ONNX Runtime, log, worker threads |

pub mod ask;
pub mod asr;
pub mod audio;
pub mod backend;
pub mod bench;
pub mod brain;
pub mod cli;
pub mod config;
pub mod conversation;
#[cfg(feature = "desktop")]
pub mod desktop;
pub mod dice;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod language;
pub mod llm;
pub mod metrics;
pub mod models;
pub mod onnx;
pub mod prediction;
pub mod recording;
pub mod report;
pub mod server;
pub mod session;
pub mod simulate;
pub mod stats;
pub mod store;
pub mod telemetry;
pub mod time;
pub mod tools;
pub mod traces;
pub mod transport;
pub mod tts;
pub mod turn_model;
pub mod vad;
pub mod what_if;
pub mod worker;
