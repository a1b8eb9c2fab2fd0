//! Tests of single parts: models, brain, router, tools, settings, and the program's commands.

#[allow(dead_code, reason = "each test program uses a part of it")]
#[path = "../common/mod.rs"]
mod common;
#[allow(dead_code, reason = "each test program uses a part of it")]
#[path = "../support/mod.rs"]
mod support;

mod asr;
mod brain;
mod cli;
mod config;
mod core;
mod detectors;
mod endings;
mod floors;
mod kubernetes;
mod llm_anthropic;
mod llm_openai;
mod manners;
mod mcp;
mod model_servers;
mod pipeline;
mod probe;
mod purity;
mod queues;
mod router;
mod sessions;
mod speculation;
mod tools;
mod turns;
mod voice;
mod words;
