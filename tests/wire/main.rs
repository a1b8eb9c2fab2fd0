//! Tests of the server over real sockets, with third-party clients and misbehaving ones.

#[allow(dead_code, reason = "each test program uses a part of it")]
#[path = "../common/mod.rs"]
mod common;
#[allow(dead_code, reason = "each test program uses a part of it")]
#[path = "../support/mod.rs"]
mod support;

mod acme;
mod agents;
mod asterisk;
mod audio_api;
mod barge_in;
mod call_audio;
mod caller;
mod conformance;
mod dead_backends;
mod demonstration;
mod doors;
mod draft;
mod early;
mod early_calls;
mod edge;
mod engine;
mod fallback;
mod foreign;
mod injection;
mod journal;
mod keypad;
mod kills;
mod languages;
mod logs;
mod mcp;
mod outbound;
mod panics;
mod patterns;
mod pcm;
mod plans;
mod program;
mod pump;
mod realtime;
mod realtime_api;
mod recording;
mod relay;
mod replicas;
mod resets;
mod resume;
mod simulate;
mod speech;
mod speech_services;
mod store;
mod tls;
mod tool_cache;
mod traces;
mod twilio;
mod voices;
mod webhook;
mod webrtc;
mod wyoming;
