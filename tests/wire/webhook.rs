//! Tests what the operator's web service is told of a call, and that calls do not wait for it.

use crate::support::live::{self, Call, without_models};
use axum::Router;
use axum::http::HeaderMap;
use axum::routing::post;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::timeout;
use undertone::llm::scripted::{Cue, Scripted};
use undertone::report::{Secret, Webhook};
use undertone::session::{Builders, Observers};

const KEY: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/foreign");

/// A service that takes every report and passes it on with its headers.
async fn scripted_service() -> (String, mpsc::Receiver<(HeaderMap, String)>) {
    let (pass, got) = mpsc::channel(8);
    let take = move |headers: HeaderMap, body: String| {
        let pass = pass.clone();
        async move { pass.send((headers, body)).await.expect("the test goes on") }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let app = Router::new().route("/calls", post(take));
    tokio::spawn(async move { axum::serve(listener, app).await });
    (format!("http://{address}/calls"), got)
}

fn engines(url: &str) -> Builders {
    let llm = Scripted::default().on(Cue::Always, "<speech>I am fine.</speech>");
    let webhook = Webhook::new(
        url.parse().expect("a URL"),
        Secret::new(KEY).expect("a secret"),
    );
    Builders {
        observers: Observers {
            webhook: Some(webhook),
            ..Observers::default()
        },
        ..without_models(Arc::new(llm))
    }
}

/// Has OpenAI's own library, which follows the same specification, verify a request.
fn verified(headers: &HeaderMap, body: &str) -> bool {
    let python = PathBuf::from(FOLDER).join(".venv/bin/python");
    assert!(python.exists(), "run `make test-tools`");
    let header = |name: &str| headers[name].to_str().expect("text").to_owned();
    let names = ["webhook-id", "webhook-timestamp", "webhook-signature"];
    let headers: Value = names.iter().map(|name| (*name, header(name))).collect();
    let mut running = Command::new(python)
        .arg("webhook.py")
        .current_dir(FOLDER)
        .stdin(Stdio::piped())
        .spawn()
        .expect("Python runs");
    let asked = json!({"secret": KEY, "headers": headers, "body": body});
    serde_json::to_writer(running.stdin.take().expect("a pipe"), &asked).expect("written");
    running.wait().expect("it ends").success()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_reported_when_it_is_over_and_third_parties_verify_its_signature() {
    let (url, mut reports) = scripted_service().await;
    let server = live::serve(engines(&url));
    let mut call = Call::to(&server).await;
    call.say(&live::tone(600)).await;
    call.until("response.done").await;
    assert!(reports.try_recv().is_err(), "not before the end");
    drop(call);
    let report = timeout(crate::support::PATIENCE, reports.recv()).await;
    let (headers, body) = report.expect("in time").expect("a report");
    assert!(verified(&headers, &body));
    assert!(!verified(&headers, &body.replace("fine", "ill")));
    let event: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(event["type"], "call.ended");
    let data = &event["data"];
    assert_eq!(data["call"]["session"]["transport"], "realtime");
    let turns = data["turns"].as_array().expect("turns");
    let said = |turn: &Value| (turn["role"].clone(), turn["text"].clone());
    assert_eq!(said(&turns[0]), (json!("user"), json!("How are you?")));
    assert_eq!(said(&turns[1]), (json!("agent"), json!("I am fine.")));
    assert_eq!(data["stats"]["responses"], 1);
}

/// The report had the answer in full, as it was sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_has_no_words_that_were_sent_and_not_heard() {
    let (url, mut reports) = scripted_service().await;
    let server = live::serve(engines(&url));
    let mut call = Call::to(&server).await;
    call.say(&live::tone(600)).await;
    let events = call.until("response.done").await;
    let done = &events.last().expect("an event").event["response"];
    call.send(json!({
        "type": "conversation.item.truncate", "item_id": done["output"][0]["id"],
        "content_index": 0, "audio_end_ms": 0,
    }))
    .await;
    call.until("conversation.item.truncated").await;
    drop(call);
    let report = timeout(crate::support::PATIENCE, reports.recv()).await;
    let (_, body) = report.expect("in time").expect("a report");
    let event: Value = serde_json::from_str(&body).expect("JSON");
    let turns = event["data"]["turns"].as_array().expect("turns");
    let roles: Vec<&Value> = turns.iter().map(|turn| &turn["role"]).collect();
    assert_eq!(roles, ["user"]);
    assert_eq!(event["data"]["stats"]["interrupted"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_does_not_wait_for_a_service_that_is_gone() {
    let server = live::serve(engines("http://127.0.0.1:9/calls"));
    for _ in 0..2 {
        let mut call = Call::to(&server).await;
        call.say(&live::tone(600)).await;
        let events = call.until("response.done").await;
        assert_eq!(live::said(&events), "I am fine.");
    }
}
