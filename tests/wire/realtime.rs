//! Tests the Realtime dialect over real sockets.

use crate::support;
use futures_util::SinkExt;
use serde_json::{Value, json};
use support::scripted::ANSWER_FRAMES;
use support::{Client, Script, Server, types};
use tokio_tungstenite::tungstenite::Message;

const SPEECH: [&str; 7] = [
    "input_audio_buffer.speech_started",
    "input_audio_buffer.speech_stopped",
    "input_audio_buffer.committed",
    "conversation.item.added",
    "conversation.item.done",
    "conversation.item.input_audio_transcription.delta",
    "conversation.item.input_audio_transcription.completed",
];

const ANSWER: [&str; 11] = [
    "response.created",
    "response.output_item.added",
    "conversation.item.added",
    "response.content_part.added",
    "response.output_audio_transcript.delta",
    "response.output_audio.delta",
    "response.output_audio.done",
    "response.output_audio_transcript.done",
    "response.content_part.done",
    "response.output_item.done",
    "conversation.item.done",
];

const FUNCTION_CALL: [&str; 6] = [
    "response.output_item.added",
    "conversation.item.added",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.output_item.done",
    "conversation.item.done",
];

fn find<'a>(events: &'a [Value], kind: &str) -> &'a Value {
    events
        .iter()
        .find(|event| event["type"] == kind)
        .unwrap_or_else(|| panic!("no {kind}"))
}

async fn user_message(client: &mut Client, id: &str, text: &str) {
    client
        .send(
            json!({"type": "conversation.item.create", "event_id": format!("e_{id}"), "item": {
            "id": id, "type": "message", "role": "user",
            "content": [{"type": "input_text", "text": text}]}}),
        )
        .await;
}

#[tokio::test]
async fn a_spoken_turn_has_its_events_in_order() {
    let server = Server::start(Script::default()).await;
    let mut client = server.realtime().await;
    client.speak(500, 400).await;
    let events = client.until("response.done").await;
    let expected: Vec<&str> = SPEECH
        .into_iter()
        .chain(ANSWER)
        .chain(["response.done"])
        .collect();
    assert_eq!(types(&events), expected);

    let audio = events
        .iter()
        .filter(|event| event["type"] == "response.output_audio.delta");
    assert_eq!(audio.count(), ANSWER_FRAMES);
    let user = &find(&events, "input_audio_buffer.speech_started")["item_id"];
    assert_eq!(
        &find(&events, "input_audio_buffer.committed")["item_id"],
        user
    );
    assert_eq!(&find(&events, "conversation.item.done")["item"]["id"], user);
    let done = &find(&events, "response.done")["response"];
    assert_eq!(done["status"], "completed");
    assert_eq!(done["output"][0]["content"][0]["transcript"], "Let me see.");
    let mut ids: Vec<&str> = events
        .iter()
        .filter_map(|event| event["event_id"].as_str())
        .collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), events.len());
}

#[tokio::test]
async fn a_tool_of_the_client_is_called_and_answered() {
    let server = Server::start(Script::default()).await;
    let mut client = server.realtime().await;
    let tools = json!([{"type": "function", "name": "weather", "parameters": {"type": "object"}}]);
    client
        .send(json!({"type": "session.update", "session": {"type": "realtime", "tools": tools}}))
        .await;
    let updated = client.event().await;
    assert_eq!(updated["type"], "session.updated");
    assert_eq!(updated["session"]["tools"], tools);

    client.speak(500, 400).await;
    let events = client.until("response.done").await;
    let expected: Vec<&str> = SPEECH
        .into_iter()
        .chain(ANSWER)
        .chain(FUNCTION_CALL)
        .chain(["response.done"])
        .collect();
    assert_eq!(types(&events), expected);
    let call = &find(&events, "response.done")["response"]["output"][1];
    assert_eq!(
        (&call["type"], &call["status"]),
        (&json!("function_call"), &json!("completed"))
    );
    assert_eq!(call["arguments"], r#"{"city":"Paris"}"#);

    client
        .send(json!({"type": "conversation.item.create", "item": {
            "type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}}))
        .await;
    client.send(json!({"type": "response.create"})).await;
    let events = client.until("response.done").await;
    let added = ["conversation.item.added", "conversation.item.done"];
    let expected: Vec<&str> = added
        .into_iter()
        .chain(ANSWER)
        .chain(["response.done"])
        .collect();
    assert_eq!(types(&events), expected);

    let error = client
        .error_of(json!({"type": "conversation.item.create", "item": {
            "type": "function_call_output", "call_id": call["call_id"], "output": "twice"}}))
        .await;
    assert_eq!(error["param"], "item.call_id");
}

#[tokio::test]
async fn a_server_tool_call_is_shown_as_an_mcp_call() {
    let server = Server::start(Script {
        server_tool: true,
        ..Script::default()
    })
    .await;
    let mut client = server.open("/v1/realtime?vendor_events=1").await;
    client.speak(500, 400).await;
    let events = client.until("response.done").await;
    for kind in [
        "response.mcp_call_arguments.done",
        "response.mcp_call.in_progress",
        "response.mcp_call.completed",
    ] {
        find(&events, kind);
    }
    let call = &find(&events, "response.done")["response"]["output"][1];
    assert_eq!(call["type"], "mcp_call");
    assert_eq!(call["output"], r#"{"degrees":21}"#);
    assert!(
        !types(&events)
            .iter()
            .any(|kind| kind.contains("function_call"))
    );
}

#[tokio::test]
async fn malformed_events_get_an_error_and_the_session_goes_on() {
    let server = Server::start(Script::default()).await;
    let mut client = server.realtime().await;
    for text in [
        "",
        "{",
        "[]",
        "\u{0}",
        r#"{"type":"response.dance"}"#,
        r#"{"type":{}}"#,
    ] {
        client.send_text(text).await;
        assert_eq!(client.event().await["type"], "error", "{text}");
    }
    let error = client
        .error_of(json!({"type": "input_audio_buffer.append", "event_id": "mine", "audio": "?"}))
        .await;
    assert_eq!(
        (&error["param"], &error["event_id"]),
        (&json!("audio"), &json!("mine"))
    );
    client.speak(500, 400).await;
    client.until("response.done").await;
}

#[tokio::test]
async fn items_of_the_client_keep_their_ids_and_their_order() {
    let server = Server::start(Script::default()).await;
    let mut client = server.realtime().await;
    for (id, text) in [("one", "1"), ("two", "2"), ("three", "3")] {
        user_message(&mut client, id, text).await;
    }
    for (previous, id) in [
        (Value::Null, "one"),
        ("one".into(), "two"),
        ("two".into(), "three"),
    ] {
        let added = client.event().await;
        assert_eq!(
            (&added["type"], &added["item"]["id"]),
            (&json!("conversation.item.added"), &json!(id))
        );
        assert_eq!(added["previous_item_id"], previous);
        assert_eq!(client.event().await["type"], "conversation.item.done");
    }
    client
        .send(json!({"type": "conversation.item.retrieve", "item_id": "two"}))
        .await;
    assert_eq!(client.event().await["item"]["content"][0]["text"], "2");
    client
        .send(json!({"type": "conversation.item.delete", "item_id": "two"}))
        .await;
    assert_eq!(client.event().await["item_id"], "two");
    let gone = client
        .error_of(json!({"type": "conversation.item.retrieve", "item_id": "two"}))
        .await;
    assert_eq!(gone["code"], "item_retrieve_invalid_item_id");
    user_message(&mut client, "one", "again").await;
    assert_eq!(client.event().await["error"]["param"], "item.id");
}

/// From the 65th on they were refused: clients resend a whole history at once.
#[tokio::test]
async fn a_burst_of_items_is_added_in_order() {
    let server = Server::start(Script::default()).await;
    let mut client = server.realtime().await;
    let names: Vec<String> = (0..200).map(|n| format!("item_{n}")).collect();
    for name in &names {
        let content = json!([{"type": "input_text", "text": "x"}]);
        let item = json!({"id": name, "type": "message", "role": "user", "content": content});
        let event = json!({"type": "conversation.item.create", "item": item});
        let fed = client.socket.feed(Message::text(event.to_string())).await;
        fed.expect("room");
    }
    client.socket.flush().await.expect("sent");
    let mut added = Vec::new();
    while added.len() < names.len() {
        let event = client.event().await;
        match event["type"].as_str() {
            Some("conversation.item.added") => added.push(event["item"]["id"].clone()),
            Some("conversation.item.done") => {}
            _ => panic!("{event}"),
        }
    }
    assert_eq!(added, names);
}

#[tokio::test]
async fn a_refusal_of_the_session_names_the_event_it_is_about() {
    let server = Server::start(Script::default()).await;
    let mut client = server.realtime().await;
    user_message(&mut client, "fine", "1").await;
    let item = json!({"type": "message", "role": "system",
        "content": [{"type": "input_text", "text": "refuse"}]});
    client
        .send(json!({"type": "conversation.item.create", "event_id": "bad", "item": item}))
        .await;
    user_message(&mut client, "also", "2").await;
    let events = client.until("error").await;
    assert_eq!(find(&events, "error")["error"]["event_id"], "bad");
    assert_eq!(client.event().await["item"]["id"], "also");
}

#[tokio::test]
async fn truncation_beyond_the_end_means_the_whole_item() {
    let server = Server::start(Script::default()).await;
    let mut client = server.realtime().await;
    client.speak(500, 400).await;
    let events = client.until("response.done").await;
    let item = &find(&events, "response.done")["response"]["output"][0]["id"];
    let truncate = |ms: u64| {
        json!({"type": "conversation.item.truncate", "item_id": item, "content_index": 0,
            "audio_end_ms": ms})
    };
    client.send(truncate(201)).await;
    assert_eq!(client.event().await["audio_end_ms"], 200);
    client.send(truncate(120)).await;
    let truncated = client.event().await;
    assert_eq!(truncated["type"], "conversation.item.truncated");
    assert_eq!(truncated["audio_end_ms"], 120);
    client
        .send(json!({"type": "conversation.item.retrieve", "item_id": item}))
        .await;
    assert_eq!(
        client.event().await["item"]["content"][0]["transcript"],
        "Let me"
    );
}

#[tokio::test]
async fn only_an_active_response_can_be_cancelled() {
    let server = Server::start(Script {
        endless: true,
        ..Script::default()
    })
    .await;
    let mut client = server.realtime().await;
    let error = client.error_of(json!({"type": "response.cancel"})).await;
    assert_eq!(error["code"], "response_cancel_not_active");
    client
        .send(json!({"type": "response.create", "response": {"metadata": {"my": "own"}}}))
        .await;
    let events = client.until("response.output_audio.delta").await;
    assert_eq!(
        find(&events, "response.created")["response"]["metadata"]["my"],
        "own"
    );
    let error = client.error_of(json!({"type": "response.create"})).await;
    assert_eq!(error["code"], "conversation_already_has_active_response");
    client.send(json!({"type": "response.cancel"})).await;
    let events = client.until("response.done").await;
    let done = &find(&events, "response.done")["response"];
    assert_eq!(done["status"], "cancelled");
    assert_eq!(done["status_details"]["reason"], "client_cancelled");
    assert_eq!(done["output"][0]["status"], "incomplete");
}

#[tokio::test]
async fn text_only_responses_have_no_audio() {
    let server = Server::start(Script::default()).await;
    let mut client = server.realtime().await;
    client
        .send(json!({"type": "response.create", "response": {"output_modalities": ["text"]}}))
        .await;
    let events = client.until("response.done").await;
    assert_eq!(
        find(&events, "response.output_text.done")["text"],
        "Let me see."
    );
    assert!(
        !types(&events).iter().any(|kind| kind.contains("audio")),
        "{:?}",
        types(&events)
    );
}

#[tokio::test]
async fn without_turn_detection_turns_wait_for_commit_and_create() {
    let server = Server::start(Script::default()).await;
    let mut client = server.realtime().await;
    let session = json!({"type": "realtime", "audio": {"input": {"turn_detection": null}}});
    client
        .send(json!({"type": "session.update", "session": session}))
        .await;
    client.until("session.updated").await;
    let error = client
        .error_of(json!({"type": "input_audio_buffer.commit"}))
        .await;
    assert_eq!(error["code"], "input_audio_buffer_commit_empty");
    client.speak(300, 500).await;
    client
        .send(json!({"type": "input_audio_buffer.commit"}))
        .await;
    client.send(json!({"type": "response.create"})).await;
    let events = client.until("response.done").await;
    let first = types(&events);
    let committed = first
        .iter()
        .position(|kind| *kind == "input_audio_buffer.committed");
    let created = first.iter().position(|kind| *kind == "response.created");
    assert!(committed < created, "{first:?}");
}

#[tokio::test]
async fn vendor_events_are_opt_in() {
    let server = Server::start(Script::default()).await;
    let own = |events: &[Value]| -> Vec<String> {
        let kinds = types(events)
            .into_iter()
            .filter(|kind| kind.starts_with("undertone."));
        kinds.map(str::to_owned).collect()
    };
    let mut plain = server.realtime().await;
    plain.speak(500, 400).await;
    assert!(own(&plain.until("response.done").await).is_empty());
    // `True` is what Python's clients send.
    for flag in ["1", "True"] {
        let path = format!("/v1/realtime?vendor_events={flag}");
        let mut asking = server.open(&path).await;
        asking.speak(500, 400).await;
        let events = asking.until("undertone.turn").await;
        assert_eq!(
            own(&events),
            ["undertone.transcript.partial", "undertone.turn"]
        );
    }
}

#[tokio::test]
async fn a_long_recording_may_be_sent_at_once() {
    let server = Server::start(Script::default()).await;
    let mut client = server.realtime().await;
    client.speak(9000, 400).await;
    client.until("response.done").await;
    assert_eq!(
        server
            .counters
            .audio_in_dropped
            .load(std::sync::atomic::Ordering::Relaxed),
        0
    );
}

#[tokio::test]
async fn audio_more_than_a_minute_ahead_is_dropped_and_reported_once() {
    let server = Server::start(Script::default()).await;
    let mut client = server.realtime().await;
    let silence = vec![0; 24_000 * 10];
    for _ in 0..20 {
        client.append(&silence).await;
    }
    let error = client.event().await;
    assert_eq!(error["error"]["code"], "input_audio_buffer_full");
    client
        .send(json!({"type": "input_audio_buffer.clear"}))
        .await;
    assert_eq!(client.event().await["type"], "input_audio_buffer.cleared");
    assert!(
        server
            .counters
            .audio_in_dropped
            .load(std::sync::atomic::Ordering::Relaxed)
            > 0
    );
}

#[tokio::test]
async fn sessions_differ_in_their_ids_and_echo_the_model() {
    let server = Server::start(Script::default()).await;
    let mut created = vec![];
    for _ in 0..2 {
        created.push(
            server
                .open("/v1/realtime?model=my-model")
                .await
                .event()
                .await,
        );
    }
    assert_ne!(created[0]["session"]["id"], created[1]["session"]["id"]);
    assert_ne!(created[0]["event_id"], created[1]["event_id"]);
    assert_eq!(created[0]["session"]["model"], "my-model");
}

#[tokio::test]
async fn the_subprotocol_is_optional() {
    let server = Server::start(Script::default()).await;
    assert_eq!(server.realtime().await.protocol, None);
    let offer = [(
        "sec-websocket-protocol",
        "realtime, openai-insecure-api-key.x",
    )];
    let client = server
        .try_open("/v1/realtime", &offer)
        .await
        .expect("opens");
    assert_eq!(client.protocol.as_deref(), Some("realtime"));
}
