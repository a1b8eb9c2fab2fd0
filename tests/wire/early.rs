//! Spoken questions for the shipped read tools, over the wire, with the shipped settings and models: the tool
//! has started when the model commits its call.

use crate::{common, support};
use serde_json::Value;
use std::sync::Arc;
use support::live::Call;
use support::{Server, local};
use undertone::session::{self, Observers, SessionOptions};

/// Ten questions for tools that need no network, each in other words than their examples.
const QUESTIONS: [&str; 10] = [
    "What time is it right now?",
    "What is the time in Tokyo?",
    "What day is it today?",
    "What is twelve times seven?",
    "How much is nine minus four?",
    "How many miles are ten kilometers?",
    "Which timers are running?",
    "What is on my calendar tomorrow?",
    "What is my savings account balance?",
    "Please read me my notes.",
];

/// At least so many of them start before their commit: a busy machine runs nothing early.
const EARLY: usize = 7;

/// Asks in a session of its own. Returns the turn's record.
async fn ask(server: &Server, question: &[i16]) -> Value {
    let mut call = Call::to(server).await;
    call.until("session.created").await;
    call.say(question).await;
    let turn = call.until("undertone.turn_record").await;
    turn.last().expect("a record").event.clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shipped_read_tools_start_before_their_commit() {
    let _alone = common::alone().await;
    let questions = tokio::task::spawn_blocking(|| {
        let mut booth = common::Booth::new(&common::weights());
        QUESTIONS.map(|question| booth.say(question, 24_000))
    });
    let questions = questions.await.expect("speech");
    let engines = support::real::shipped(|_| (), Observers::default());
    let open = move |options: SessionOptions| Ok(session::open(&engines, &options));
    let server = Server::serve(undertone::server::App::new(local(), Arc::new(open)));
    let mut early = 0;
    for (question, speech) in QUESTIONS.iter().zip(&questions) {
        let record = ask(&server, speech).await;
        let runs = record["runs"].as_array().expect("runs");
        let began_early = runs.iter().any(|run| {
            let committed = &run["fate"]["at"];
            run["fate"]["kind"] == "committed"
                && !run["source"].is_null()
                && run["started"].as_u64() < committed.as_u64()
        });
        early += usize::from(began_early);
        println!("{began_early}: {question} {}", record["runs"]);
    }
    println!("{early} of {} started before their commit", QUESTIONS.len());
    assert!(early >= EARLY, "{early} of {}", QUESTIONS.len());
}
