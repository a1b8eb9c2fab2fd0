//! The parts, each by itself: models, brain, router, tools, settings, and the program's commands.

#[path = "../common/mod.rs"]
mod common;
#[path = "../support/mod.rs"]
mod support;

mod asr;
mod brain;
mod cli;
mod config;
mod core;
mod detectors;
mod floors;
mod llm_openai;
mod pipeline;
mod purity;
mod router;
mod sessions;
mod speculation;
mod tools;
