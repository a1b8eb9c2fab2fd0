//! The reference engine's program.

use anyhow::Context;
use clap::Parser;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use undertone_engine::cache::ToolCache;
use undertone_engine::counters::Counters;
use undertone_engine::scheduler::{self, Settings};
use undertone_engine::server::{Engine, serve, why_it_ended};

/// Requests that may wait for a free sequence.
const WAITING: usize = 64;

/// A reference engine with a tool cache: SmolLM2 on llama.cpp behind chat completions.
#[derive(Debug, Parser)]
#[command(version)]
struct Options {
    /// The model's file in GGUF.
    #[arg(long)]
    model: PathBuf,
    /// The address to listen on; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:8095")]
    listen: SocketAddr,
    /// Threads of a forward pass.
    #[arg(long, default_value_t = 1)]
    threads: i32,
    /// Answers that are written at once.
    #[arg(long, default_value_t = 4)]
    slots: u32,
    /// The longest sequence, tokens.
    #[arg(long, default_value_t = 4096)]
    context: u32,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let settings = Settings {
        model: options.model,
        threads: options.threads.max(1),
        slots: options.slots.max(1),
        context: options.context.max(64),
    };
    let (cache, counters) = (Arc::<ToolCache>::default(), Arc::<Counters>::default());
    let (jobs, incoming) = mpsc::channel(WAITING);
    let (ready, is_ready) = oneshot::channel();
    let (kept, counted) = (Arc::clone(&cache), Arc::clone(&counters));
    let (over, ended) = oneshot::channel();
    std::thread::spawn(move || {
        let tell = || {
            // Nobody waits for it if the program ends.
            let _ = ready.send(());
        };
        let result = scheduler::run(&settings, &kept, &counted, incoming, tell);
        let _ = over.send(result);
    });
    if is_ready.await.is_err() {
        return Err(why_it_ended(ended.await));
    }
    let listener = TcpListener::bind(options.listen)
        .await
        .with_context(|| format!("cannot listen on {}", options.listen))?;
    println!("http://{}/v1", listener.local_addr()?);
    let engine = Engine::new(jobs, cache, counters);
    serve(listener, engine, ended).await
}
