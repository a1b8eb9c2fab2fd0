//! The server and its clients, over real sockets: those that others wrote, and those that do not behave.

#[path = "../common/mod.rs"]
mod common;
#[path = "../support/mod.rs"]
mod support;

mod asterisk;
mod barge_in;
mod conformance;
mod dead_backends;
mod doors;
mod edge;
mod foreign;
mod injection;
mod journal;
mod pcm;
mod program;
mod pump;
mod realtime;
mod realtime_api;
mod recording;
mod relay;
mod speech;
mod twilio;
mod wyoming;
