//! The demonstration on the page, over the wire: its real service, the shipped settings and the local
//! brain. Only ears and voice are scripted.

use crate::support::Server;
use crate::support::live::{self, Call, Heard, Hears, said, tone};
use serde_json::{Value, json};
use undertone::cli::engines::builders;
use undertone::config::{Environment, Flags, load};
use undertone::server::{ANYWHERE, Demonstration};
use undertone::session::{Builders, Observers};

const QUESTION: &str = "Where is my order with the blue lamp for the kitchen?";

/// Longer than it takes until the tool has begun.
const LONG: usize = 60_000;

/// A server with the demonstration, whose recogniser hears `words`.
fn serve(words: &'static str) -> (Server, Demonstration, tempfile::TempDir) {
    let loaded = load(&Flags::default(), &Environment::default());
    let mut config = loaded.expect("the defaults").config;
    let folder = tempfile::tempdir().expect("a folder");
    config.tools.journal = folder.path().join("journal.jsonl");
    assert!(config.demonstration, "it is there without any setting");
    let demonstration = Demonstration::open(ANYWHERE).expect("a free port");
    demonstration.declare(&mut config.tools.declared);
    let shipped = builders(&config, Observers::default()).expect("the models");
    let scripted = live::without_models(shipped.llm.clone());
    let server = live::serve(Builders {
        vad: scripted.vad,
        asr: Box::new(move || Ok(Box::new(Hears(move |_: &[f32]| Ok(words.into()))))),
        turn_model: None,
        tts: scripted.tts,
        policy: live::patient(shipped.policy),
        ..shipped
    });
    (server, demonstration, folder)
}

async fn open(server: &Server, path: &str, early: bool) -> Call {
    let mut call = Call::at(server, path).await.expect("a session");
    let undertone = json!({ "speculation": early });
    let session = json!({ "type": "realtime", "undertone": undertone });
    call.send(json!({ "type": "session.update", "session": session }))
        .await;
    call.until("session.updated").await;
    call
}

const PAGE: &str = "/v1/realtime?vendor_events=1&demonstration=1";

/// The events up to the record of the turn, and the record's only run.
async fn turn(call: &mut Call) -> (Vec<Heard>, Value) {
    let events = call.until("undertone.turn_record").await;
    let record = &events.last().expect("a record").event;
    let runs = record["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 1, "{record}");
    let run = runs[0].clone();
    assert_eq!(
        (&run["ok"], &run["fate"]["kind"]),
        (&json!(true), &json!("committed"))
    );
    (events, run)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demonstrations_tool_starts_before_its_commit_or_with_the_switch_off_after_it() {
    let (server, _demonstration, _folder) = serve(QUESTION);

    // Speaks until the tool has begun, so that nothing depends on the machine's speed.
    let mut call = open(&server, PAGE, true).await;
    call.say(&tone(LONG)).await;
    loop {
        let event = call.next().await.event;
        if event["type"] == "undertone.speculation" && event["kind"] == "started" {
            assert_eq!(event["tool"], "get_demo_order");
            break;
        }
    }
    call.hush().await;
    let (events, run) = turn(&mut call).await;
    assert_eq!(run["source"], "rule");
    assert!(
        run["started"].as_u64() < run["fate"]["at"].as_u64(),
        "{run}"
    );
    assert!(
        said(&events).contains("arrives tomorrow"),
        "{}",
        said(&events)
    );

    let mut call = open(&server, PAGE, false).await;
    call.say(&tone(700)).await;
    let (events, run) = turn(&mut call).await;
    assert_eq!(run["source"], Value::Null);
    assert!(
        run["started"].as_u64() >= run["fate"]["at"].as_u64(),
        "{run}"
    );
    assert!(
        said(&events).contains("arrives tomorrow"),
        "{}",
        said(&events)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demonstrations_second_tool_is_right_even_if_misheard() {
    for words in [
        "is the blue one in stock in the shop next to the station?",
        "is the blue one and stuck in the shop next to the station.",
    ] {
        let (server, _demonstration, _folder) = serve(words);
        let mut call = open(&server, PAGE, false).await;
        call.say(&tone(700)).await;
        let (events, run) = turn(&mut call).await;
        assert_eq!(run["arguments"], json!({ "colour": "blue" }));
        assert!(said(&events).contains("4 left"), "{}", said(&events));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_client_that_shows_the_demonstration_is_offered_its_tools() {
    let (server, _demonstration, _folder) = serve(QUESTION);
    let mut call = open(&server, "/v1/realtime?vendor_events=1", true).await;
    call.say(&tone(700)).await;
    let events = call.until("undertone.turn_record").await;
    let record = &events.last().expect("a record").event;
    assert_eq!(record["runs"], json!([]), "{record}");
    assert!(!said(&events).contains("tomorrow"), "{}", said(&events));
}
