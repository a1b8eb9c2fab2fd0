//! A reference engine: batched decoding with llama.cpp behind chat completions, with a tool cache.
//!
//! While an answer is written, its client may post results of tools to `/cache-tool-output/{response_id}`. When the
//! model then calls such a tool, the call is validated in one forward pass, the result is added to the sequence, and
//! the answer goes on in the same stream. The sequence stays in the engine's memory; without the result the stream
//! ends with the call, and the next request is read as a whole.
//!
//! Nothing is sampled: the likeliest token is taken, so equal prompts get equal answers.

pub mod cache;
pub mod chat;
pub mod counters;
pub mod decoder;
pub mod grammar;
pub mod scheduler;
pub mod server;
