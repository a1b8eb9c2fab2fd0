//! Tests the Realtime API against the types of the `openai` package: the documentation covers all
//! of them, and the server's events match them.

use crate::support;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::scripted::ANSWER_FRAMES;
use support::{Client, PATIENCE, Script, Server, live, local};
use undertone::asr::{Asr, AsrError, Hints, Recognised};
use undertone::audio::g711::Law;
use undertone::llm::scripted::{Cue, Scripted};
use undertone::llm::{Message, ToolChoice};
use undertone::server::ServerSettings;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/foreign");

/// The output of `realtime_types.py`.
fn types(arguments: &[&str]) -> Value {
    let python = PathBuf::from(FOLDER).join(".venv/bin/python");
    assert!(python.exists(), "run `make test-tools`");
    let output = Command::new(python)
        .arg("realtime_types.py")
        .args(arguments)
        .current_dir(FOLDER)
        .output()
        .expect("Python runs");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// The fields that `docs/realtime.md` lists, by the groups of `realtime_types.py`. Fields that are
/// not honoured end in `*`, since they cover all fields below them.
fn documented() -> HashMap<String, BTreeSet<String>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/realtime.md");
    let text = std::fs::read_to_string(path).expect("docs/realtime.md");
    let mut groups: HashMap<String, BTreeSet<String>> = HashMap::new();
    let mut group = "";
    for line in text.lines() {
        group = match line {
            "## Session" => "session",
            "## Responses" => "response",
            "## Items" => "item",
            _ => group,
        };
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        match cells[..] {
            ["", event, fields, _, ""] if group.is_empty() && event.starts_with('`') => {
                let fields = fields
                    .split("<br>")
                    .filter_map(|field| field.split('`').nth(1));
                let fields = fields.map(str::to_owned).collect();
                groups.insert(event.trim_matches('`').to_owned(), fields);
            }
            ["", field, class, _, ""] if field.starts_with('`') => {
                let all = if class == "honoured" { "" } else { "*" };
                let field = format!("{}{all}", field.trim_matches('`'));
                groups.entry(group.to_owned()).or_default().insert(field);
            }
            _ => {}
        }
    }
    groups
}

fn is_documented(field: &str, fields: &BTreeSet<String>) -> bool {
    let heads = field.match_indices(['.', '[']).map(|(at, _)| &field[..at]);
    fields.contains(field)
        || heads
            .chain([field])
            .any(|head| fields.contains(&format!("{head}*")))
}

#[test]
fn every_field_of_the_openai_package_is_documented() {
    let documented = documented();
    let groups = types(&["fields"]);
    let mut missing = Vec::new();
    let mut known = 0;
    for (group, fields) in groups.as_object().expect("groups") {
        let table = match group.as_str() {
            "transcription" => "session",
            other => other,
        };
        let table = documented.get(table).expect(group);
        for field in fields.as_array().expect("fields") {
            let field = field.as_str().expect("a path");
            match is_documented(field, table) {
                true => known += 1,
                false => missing.push(format!("{group}: {field}")),
            }
        }
    }
    assert!(missing.is_empty(), "docs/realtime.md lacks {missing:#?}");
    assert!(known > 150, "only {known} fields were looked for");
}

#[tokio::test]
async fn fields_without_effect_are_accepted_and_echoed() {
    let server = Server::start(Script::default()).await;
    let mut client = server.realtime().await;
    let session = json!({
        "type": "realtime", "tracing": "auto", "model": "gpt-realtime",
        "truncation": {"type": "retention_ratio", "retention_ratio": 0.5},
        "include": ["item.input_audio_transcription.logprobs"],
        "nobody": {"knows": "this"},
        "audio": {
            "input": {"noise_reduction": {"type": "near_field"}},
            "output": {"speed": 1.25},
        },
    });
    client
        .send(json!({"type": "session.update", "session": session}))
        .await;
    let updated = client.event().await;
    assert_eq!(updated["type"], "session.updated", "{updated}");
    let echo = &updated["session"];
    for field in ["tracing", "model", "truncation", "include"] {
        assert_eq!(echo[field], session[field], "{field}");
    }
    assert_eq!(
        echo["audio"]["input"]["noise_reduction"]["type"],
        "near_field"
    );
    assert_eq!(echo["audio"]["output"]["speed"], 1.25);
    assert_eq!(echo["nobody"], Value::Null);
}

#[tokio::test]
async fn unsupported_fields_that_affect_the_user_are_refused_by_name() {
    let server = Server::start(Script::default()).await;
    let mut client = server.realtime().await;
    let mcp = json!({"type": "mcp", "server_label": "files", "server_url": "https://example.com"});
    let approval = json!({"type": "mcp_approval_response", "approve": true});
    for (event, param) in [
        (
            json!({"type": "session.update", "session": {"prompt": {"id": "pmpt_1"}}}),
            "session.prompt",
        ),
        (
            json!({"type": "session.update", "session": {"tools": [mcp]}}),
            "session.tools[0].server_label",
        ),
        (
            json!({"type": "conversation.item.create", "item": approval}),
            "item.approve",
        ),
    ] {
        let error = client.error_of(event).await;
        assert_eq!(error["param"], param, "{error}");
        assert_eq!(error["code"], "unsupported_parameter");
    }
}

/// The picture was refused, and so was each item behind it, because it named one that was not there.
#[tokio::test]
async fn a_history_with_pictures_is_added_whole() {
    let llm = fine();
    let server = talking(&llm);
    let mut client = server.realtime().await;
    let picture =
        json!({"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "low"});
    let words = |text: &str| json!({"type": "input_text", "text": text});
    let mut before = Value::Null;
    for (id, content) in [
        ("a", json!([words("Hello.")])),
        ("b", json!([words("What is this?"), picture])),
        ("c", json!([picture])),
        ("d", json!([words("Well?")])),
    ] {
        let item = json!({"id": id, "type": "message", "role": "user", "content": content});
        let event = json!({"type": "conversation.item.create", "previous_item_id": before,
            "item": item});
        client.send(event).await;
        before = id.into();
    }
    client.send(json!({"type": "response.create"})).await;
    let events = client.until("response.done").await;
    let added = events
        .iter()
        .filter(|event| event["type"] == "conversation.item.added")
        .filter_map(|event| event["item"]["id"].as_str());
    assert_eq!(added.take(4).collect::<Vec<_>>(), ["a", "b", "c", "d"]);
    assert!(!support::types(&events).contains(&"error"), "{events:?}");
    let user = |text: &str| Message::User { text: text.into() };
    let seen = "What is this? (a picture, which cannot be seen here)";
    let expected = [user("Hello."), user(seen), user("Well?")];
    assert_eq!(llm.prompts()[0].messages, expected);
    assert_fits_the_types(&events);
}

/// The socket was closed with the code 1009.
#[tokio::test]
async fn a_picture_and_half_a_minute_of_audio_fit_into_a_message() {
    let llm = fine();
    let server = talking(&llm);
    let mut client = server.realtime().await;
    let picture = format!("data:image/png;base64,{}", "A".repeat(1_500_000));
    let item = json!({"type": "message", "role": "user", "content": [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "image_url": picture},
    ]});
    client
        .send(json!({"type": "conversation.item.create", "item": item}))
        .await;
    client.send(json!({"type": "response.create"})).await;
    let mut events = client.until("response.done").await;
    client.append(&vec![0; 30 * 24_000]).await;
    client
        .send(json!({"type": "input_audio_buffer.clear"}))
        .await;
    events.extend(client.until("input_audio_buffer.cleared").await);
    assert!(!support::types(&events).contains(&"error"), "{events:?}");
    let seen = "What is this? (a picture, which cannot be seen here)";
    let user = |text: &str| Message::User { text: text.into() };
    assert_eq!(llm.prompts()[0].messages, [user(seen)]);
}

/// Their paths, their header and their name of the model were unknown.
#[tokio::test]
async fn clients_written_for_azure_get_in() {
    let llm = fine();
    let server = live::serve_with(with_token(), live::without_models(Arc::new(llm)));
    for (path, is_beta) in [
        ("/openai/v1/realtime?model=mine", false),
        (
            "/openai/realtime?api-version=2024-10-01-preview&deployment=mine",
            true,
        ),
    ] {
        assert_eq!(server.try_open(path, &[]).await.err(), Some(401), "{path}");
        let key = [("api-key", "the operator's token")];
        let mut client = server.try_open(path, &key).await.expect("a session");
        let created = client.event().await;
        assert_eq!(created["session"]["model"], "mine");
        assert_eq!(
            created["session"]["input_audio_format"] == "pcm16",
            is_beta,
            "{created}"
        );
        type_in(&mut client, "Hello.").await;
        client.send(json!({"type": "response.create"})).await;
        let events = client.until("response.done").await;
        let kinds = support::types(&events);
        assert_eq!(kinds.contains(&"response.audio.delta"), is_beta);
        assert_eq!(kinds.contains(&"response.output_audio.delta"), !is_beta);
        assert!(!kinds.contains(&"conversation.created"), "{kinds:?}");
    }
}

async fn post(server: &Server, path: &str, token: Option<&str>, body: &Value) -> (u16, Value) {
    let request = reqwest::Client::new()
        .post(format!("http://{}{path}", server.address))
        .json(body);
    let request = match token {
        Some(token) => request.bearer_auth(token),
        None => request,
    };
    let answer = request.send().await.expect("an answer");
    let allowed = answer.headers()["access-control-allow-origin"].clone();
    assert_eq!(allowed, "*", "pages can read it");
    (answer.status().as_u16(), answer.json().await.expect("JSON"))
}

fn with_token() -> ServerSettings {
    ServerSettings {
        auth_token: Some("the operator's token".into()),
        ..local()
    }
}

#[tokio::test]
async fn a_client_secret_only_opens_sessions_with_its_configuration() {
    let server = Server::with(with_token(), Script::default()).await;
    let path = "/v1/realtime/client_secrets";
    let session = json!({"type": "realtime", "instructions": "Be kind.",
        "audio": {"output": {"voice": "marin"}}});
    let body = json!({"expires_after": {"anchor": "created_at", "seconds": 60},
        "session": session});
    let (status, error) = post(&server, path, None, &body).await;
    assert_eq!(status, 401);
    assert_eq!(error["error"]["code"], "invalid_api_key");

    let (status, made) = post(&server, path, Some("the operator's token"), &body).await;
    assert_eq!(status, 200, "{made}");
    assert_eq!(made["session"]["instructions"], "Be kind.");
    let secret = made["value"].as_str().expect("a secret");
    let protocols = format!("realtime, openai-insecure-api-key.{secret}");
    let bearer = format!("Bearer {secret}");
    for (name, value) in [
        ("authorization", bearer.as_str()),
        ("sec-websocket-protocol", protocols.as_str()),
    ] {
        let client = server.try_open("/v1/realtime", &[(name, value)]).await;
        let created = client.expect("the secret is good").event().await;
        assert_eq!(created["session"]["instructions"], "Be kind.");
        assert_eq!(created["session"]["audio"]["output"]["voice"], "marin");
    }
    let (status, _) = post(&server, path, Some(secret), &body).await;
    assert_eq!(status, 401, "no secret makes another");
    let forged = format!("Bearer {secret}x");
    let headers = [("authorization", forged.as_str())];
    let denied = server.try_open("/v1/realtime", &headers).await;
    assert_eq!(denied.err(), Some(401));

    let bad = json!({"session": {"type": "realtime", "prompt": {"id": "p"}}});
    let (status, error) = post(&server, path, Some("the operator's token"), &bad).await;
    assert_eq!(status, 400);
    assert_eq!(error["error"]["param"], "session.prompt");
}

#[tokio::test]
async fn http_endpoints_answer_in_json_and_allow_cors() {
    let server = Server::start(Script::default()).await;
    let client = reqwest::Client::new();
    let at = |path: &str| format!("http://{}{path}", server.address);
    let list: Value = (client.get(at("/v1/models")).send().await)
        .expect("an answer")
        .json()
        .await
        .expect("JSON");
    assert_eq!(list["data"][0]["id"], "undertone");
    // The headers of the `openai` package in a browser.
    const SDK: &str = "authorization,content-type,x-stainless-arch,x-stainless-lang,x-stainless-os,x-stainless-retry-count";
    for path in [
        "/v1/realtime/client_secrets",
        "/v1/realtime/calls",
        "/v1/models",
    ] {
        let asked = client
            .request(reqwest::Method::OPTIONS, at(path))
            .header("origin", "https://example.org")
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", SDK)
            .send();
        let asked = asked.await.expect("an answer");
        assert_eq!(asked.status(), 204);
        assert_eq!(asked.headers()["access-control-allow-headers"], SDK);
    }
    let answer = server.get("/v1/realtime?call_id=rtc_1", "").await;
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    assert!(answer.contains("call_not_found"), "{answer}");
}

/// Asserts that server events match the types of the `openai` package, field by field.
fn assert_fits_the_types(events: &[Value]) {
    let lines: String = events.iter().map(|event| format!("{event}\n")).collect();
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), lines).expect("written");
    let wrong = types(&["check", file.path().to_str().expect("a path")]);
    assert_eq!(wrong, json!([]));
}

async fn update(client: &mut Client, session: Value) -> Value {
    client
        .send(json!({"type": "session.update", "session": session}))
        .await;
    client.until("session.updated").await.pop().expect("one")
}

/// Adds a user item with 100 ms of audio.
async fn add_audio(client: &mut Client) {
    let audio = STANDARD.encode([0; 4_800]);
    let item = json!({"type": "message", "role": "user",
        "content": [{"type": "input_audio", "audio": audio}]});
    client
        .send(json!({"type": "conversation.item.create", "item": item}))
        .await;
}

async fn type_in(client: &mut Client, text: &str) {
    let item = json!({"type": "message", "role": "user",
        "content": [{"type": "input_text", "text": text}]});
    client
        .send(json!({"type": "conversation.item.create", "item": item}))
        .await;
}

fn find<'a>(events: &'a [Value], kind: &str) -> &'a Value {
    let found = events.iter().find(|event| event["type"] == kind);
    found.unwrap_or_else(|| panic!("no {kind} in {:?}", support::types(events)))
}

#[tokio::test]
async fn server_events_match_the_types_of_the_openai_package() {
    let server = Server::start(Script::default()).await;
    let mut client = server.open("/v1/realtime?model=test").await;
    let mut events = vec![client.event().await];
    let tools = json!([{"type": "function", "name": "weather", "description": "The weather",
        "parameters": {"type": "object"}}]);
    let session = json!({"type": "realtime", "tools": tools, "audio": {
        "input": {"turn_detection": {"type": "server_vad", "idle_timeout_ms": 6000}},
        "output": {"format": {"type": "audio/pcmu"}}}});
    events.push(update(&mut client, session).await);
    client.speak(500, 400).await;
    events.extend(client.until("response.done").await);
    let item = find(&events, "response.done")["response"]["output"][0]["id"].clone();
    client
        .send(
            json!({"type": "conversation.item.truncate", "item_id": item, "content_index": 0,
            "audio_end_ms": 100}),
        )
        .await;
    events.extend(client.until("conversation.item.truncated").await);
    client
        .send(json!({"type": "conversation.item.retrieve", "item_id": item}))
        .await;
    events.extend(client.until("conversation.item.retrieved").await);
    client
        .send(json!({"type": "conversation.item.delete", "item_id": item}))
        .await;
    events.extend(client.until("conversation.item.deleted").await);
    client
        .send(
            json!({"type": "response.create", "response": {"output_modalities": ["text"],
            "metadata": {"topic": "none"}}}),
        )
        .await;
    events.extend(client.until("response.done").await);
    client
        .send(json!({"type": "input_audio_buffer.clear"}))
        .await;
    client.send(json!({"type": "nonsense"})).await;
    events.extend(client.until("error").await);
    assert_fits_the_types(&events);
}

#[tokio::test]
async fn usage_is_counted_in_tokens_of_text_and_of_audio() {
    let server = Server::start(Script::default()).await;
    let mut client = server.realtime().await;
    client.speak(500, 400).await;
    let events = client.until("response.done").await;
    let usage = &find(&events, "response.done")["response"]["usage"];
    let heard = usage["input_token_details"]["audio_tokens"].as_u64();
    assert!((5..=10).contains(&heard.expect("a number")), "{usage}");
    let expected = json!({"text_tokens": 10, "audio_tokens": 4});
    assert_eq!(usage["output_token_details"], expected);
    assert_eq!(usage["input_token_details"]["text_tokens"], 100);
    assert_eq!(usage["input_token_details"]["cached_tokens"], 40);
    assert_eq!(usage["output_tokens"], 14);
    let sum = usage["input_tokens"].as_u64().expect("a number") + 14;
    assert_eq!(usage["total_tokens"], sum);
}

#[tokio::test]
async fn a_telephone_bridge_may_use_g711_both_ways() {
    for (name, law) in [("audio/pcmu", Law::Mu), ("audio/pcma", Law::A)] {
        let server = Server::start(Script::default()).await;
        let mut client = server.realtime().await;
        let format = json!({ "type": name });
        let session = json!({"type": "realtime",
            "audio": {"input": {"format": format}, "output": {"format": format}}});
        let updated = update(&mut client, session).await;
        assert_eq!(updated["session"]["audio"]["input"]["format"], format);
        for samples in [vec![8_000; 8 * 500], vec![0; 8 * 400]] {
            let audio = STANDARD.encode(law.encode(&samples));
            client
                .send(json!({"type": "input_audio_buffer.append", "audio": audio}))
                .await;
        }
        let events = client.until("response.done").await;
        let audio: Vec<u8> = (events.iter())
            .filter(|event| event["type"] == "response.output_audio.delta")
            .flat_map(|event| STANDARD.decode(event["delta"].as_str().expect("text")))
            .flatten()
            .collect();
        assert_eq!(audio.len(), 8 * 20 * ANSWER_FRAMES, "8 bytes a millisecond");
        let loud = law.decode(&audio[400..1_200]);
        assert!(
            loud.iter().all(|sample| (3_000..5_000).contains(sample)),
            "{name}"
        );
        let done = &find(&events, "response.done")["response"];
        assert_eq!(done["audio"]["output"]["format"], format);
    }
}

#[tokio::test]
async fn a_response_may_have_a_format_of_its_own() {
    let server = Server::start(Script::default()).await;
    let mut client = server.realtime().await;
    let format = json!({"type": "audio/pcmu"});
    client
        .send(json!({"type": "response.create",
            "response": {"audio": {"output": {"format": format}}}}))
        .await;
    let events = client.until("response.done").await;
    let done = &find(&events, "response.done")["response"];
    assert_eq!(done["audio"]["output"]["format"], format);
    let delta = find(&events, "response.output_audio.delta")["delta"].as_str();
    assert!(STANDARD.decode(delta.expect("text")).expect("base64").len() <= 160);
}

/// Real sessions with this model.
fn talking(llm: &Scripted) -> Server {
    live::serve(live::without_models(Arc::new(llm.clone())))
}

/// A model that always answers "Fine."
fn fine() -> Scripted {
    Scripted::always("<speech>Fine.</speech>")
}

#[tokio::test]
async fn response_settings_reach_the_model() {
    let llm = fine();
    let server = talking(&llm);
    let mut client = server.realtime().await;
    let tools = json!([{"type": "function", "name": "note", "parameters": {"type": "object"}}]);
    let session = json!({"type": "realtime", "tools": tools, "max_output_tokens": 200,
        "tool_choice": "required"});
    let updated = update(&mut client, session).await;
    assert_eq!(updated["session"]["max_output_tokens"], 200);
    type_in(&mut client, "Hello.").await;
    client.send(json!({"type": "response.create"})).await;
    client.until("response.done").await;
    client
        .send(
            json!({"type": "response.create", "response": {"max_output_tokens": 50,
            "tool_choice": {"type": "function", "name": "other"},
            "tools": [{"type": "function", "name": "other"}]}}),
        )
        .await;
    let events = client.until("response.done").await;
    assert_eq!(
        find(&events, "response.created")["response"]["max_output_tokens"],
        50
    );
    let prompts = llm.prompts();
    assert_eq!(prompts[0].demands.max_tokens, Some(200));
    assert_eq!(prompts[0].demands.tool_choice, ToolChoice::Required);
    assert_eq!(prompts[1].demands.max_tokens, Some(50));
    assert_eq!(prompts[1].tools[0].name, "other");
    let missing = json!({"type": "response.create",
        "response": {"tool_choice": {"type": "function", "name": "nobody"}}});
    let error = client.error_of(missing).await;
    assert!(
        error["message"].as_str().expect("text").contains("nobody"),
        "{error}"
    );
}

#[tokio::test]
async fn an_out_of_band_response_keeps_its_metadata_and_leaves_no_trace() {
    let kind = Cue::words("What kind of sentence");
    let llm = Scripted::default().on(kind, "<speech>greeting</speech>");
    let llm = llm.on(Cue::Always, "<speech>Fine.</speech>");
    let server = talking(&llm);
    let mut client = server.realtime().await;
    type_in(&mut client, "How are you?").await;
    let added = client.until("conversation.item.done").await;
    let item = added[0]["item"]["id"].clone();
    let input = json!([
        {"type": "item_reference", "id": item},
        {"type": "message", "role": "user",
            "content": [{"type": "input_text", "text": "What kind of sentence is that?"}]},
    ]);
    client
        .send(
            json!({"type": "response.create", "response": {"conversation": "none",
            "output_modalities": ["text"], "metadata": {"purpose": "kind"},
            "instructions": "One word.", "input": input}}),
        )
        .await;
    let mut events = client.until("response.done").await;
    for kind in ["response.created", "response.done"] {
        let response = &find(&events, kind)["response"];
        assert_eq!(response["metadata"]["purpose"], "kind");
        assert_eq!(response["conversation_id"], Value::Null);
    }
    let done = &find(&events, "response.done")["response"];
    assert_eq!(done["output"][0]["content"][0]["text"], "greeting");
    assert!(done["usage"]["input_tokens"].as_u64().expect("a number") > 5);
    let of_conversation = |event: &Value| {
        let kind = event["type"].as_str().expect("a type");
        kind.starts_with("conversation.") || kind.contains("audio")
    };
    assert!(
        !events.iter().any(of_conversation),
        "{:?}",
        support::types(&events)
    );
    let shown = &llm.prompts()[0].messages;
    assert_eq!(shown.len(), 2, "{shown:?}");

    client.send(json!({"type": "response.create"})).await;
    events.extend(client.until("response.done").await);
    assert_eq!(
        llm.prompts()[1].messages.len(),
        1,
        "the history is what it was"
    );
    let unknown = json!({"type": "response.create", "response": {"conversation": "none",
        "input": [{"type": "item_reference", "id": "item_of_nobody"}]}});
    let error = client.error_of(unknown).await;
    assert_eq!(error["param"], "response.input[0].id");
    assert_fits_the_types(&events);
}

#[tokio::test]
async fn an_out_of_band_response_may_be_spoken() {
    let llm = Scripted::default().on(Cue::words("How are you"), "<speech>Fine.</speech>");
    let llm = llm.on(Cue::Always, "<speech>Attention please.</speech>");
    let server = talking(&llm);
    let mut client = server.realtime().await;
    client
        .send(
            json!({"type": "response.create", "response": {"conversation": "none",
            "metadata": {"purpose": "announcement"}, "input": []}}),
        )
        .await;
    let mut events = client.until("response.done").await;
    let done = &find(&events, "response.done")["response"];
    assert_eq!(done["conversation_id"], Value::Null);
    assert_eq!(
        done["output"][0]["content"][0]["transcript"],
        "Attention please."
    );
    find(&events, "response.output_audio.delta");
    type_in(&mut client, "How are you?").await;
    client.send(json!({"type": "response.create"})).await;
    events.extend(client.until("response.done").await);
    assert_eq!(
        find(&events, "conversation.item.added")["previous_item_id"],
        Value::Null
    );
    assert_eq!(llm.prompts()[1].messages.len(), 1);
    assert_fits_the_types(&events);
}

#[tokio::test]
async fn a_transcription_session_sends_transcripts_and_never_answers() {
    let llm = Scripted::default();
    let server = talking(&llm);
    let mut client = server.open("/v1/realtime?intent=transcription").await;
    let mut events = vec![client.event().await];
    assert_eq!(events[0]["session"]["type"], "transcription");
    assert_eq!(
        events[0]["session"]["object"],
        "realtime.transcription_session"
    );
    let session = json!({"type": "transcription", "audio": {"input": {
        "transcription": {"model": "whisper-1", "language": "en"},
        "turn_detection": {"type": "server_vad", "silence_duration_ms": 300}}}});
    let updated = update(&mut client, session).await;
    assert_eq!(
        updated["session"]["audio"]["input"]["transcription"]["model"],
        "whisper-1"
    );
    events.push(updated);
    client.speak(2_000, 600).await;
    let last = "conversation.item.input_audio_transcription.completed";
    let told = client.until(last).await;
    let delta = "conversation.item.input_audio_transcription.delta";
    let deltas: String = (told.iter())
        .filter(|event| event["type"] == delta)
        .filter_map(|event| event["delta"].as_str())
        .collect();
    assert_eq!(deltas, "How are you?");
    assert_eq!(find(&told, last)["transcript"], "How are you?");
    events.extend(told);
    let error = client.error_of(json!({"type": "response.create"})).await;
    assert!(
        error["message"]
            .as_str()
            .expect("text")
            .contains("transcription")
    );
    let back = json!({"type": "session.update", "session": {"type": "realtime"}});
    assert_eq!(client.error_of(back).await["param"], "session.type");
    assert!(llm.prompts().is_empty());
    assert_fits_the_types(&events);
}

/// Opens a transcription session in which the client ends turns by hand.
async fn dictating(server: &Server) -> Client {
    let mut client = server.open("/v1/realtime?intent=transcription").await;
    client.event().await;
    let input = json!({"turn_detection": null});
    let session = json!({"type": "transcription", "audio": {"input": input}});
    update(&mut client, session).await;
    client
}

async fn commit(client: &mut Client) {
    let event = json!({"type": "input_audio_buffer.commit"});
    client.send(event).await;
}

const COMPLETED: &str = "conversation.item.input_audio_transcription.completed";

/// There were no deltas before the commit.
#[tokio::test]
async fn words_are_streamed_before_a_client_without_turn_detection_commits_them() {
    let server = talking(&Scripted::default());
    let call = live::Call::at(&server, "/v1/realtime?intent=transcription").await;
    let mut call = call.expect("a session");
    let input = json!({"turn_detection": null});
    let session = json!({"type": "transcription", "audio": {"input": input}});
    call.send(json!({"type": "session.update", "session": session}))
        .await;
    call.until("session.updated").await;
    call.say(&live::tone(3_000)).await;
    let delta = "conversation.item.input_audio_transcription.delta";
    let told = call.until(delta).await;
    let told = &told.last().expect("one").event;
    assert_eq!(told["delta"], "How are you?");
    call.send(json!({"type": "input_audio_buffer.commit"}))
        .await;
    let done = call.until(COMPLETED).await;
    let completed = &done.last().expect("one").event;
    assert_eq!(completed["item_id"], told["item_id"]);
    assert_eq!(completed["transcript"], "How are you?");
}

/// A client that stops once its audio is cleared, and no committed item is open, lost the last turn.
#[tokio::test]
async fn a_clear_behind_a_commit_is_answered_behind_it() {
    let server = talking(&Scripted::default());
    let mut client = dictating(&server).await;
    client.append(&live::tone(1_000)).await;
    commit(&mut client).await;
    client
        .send(json!({"type": "input_audio_buffer.clear"}))
        .await;
    let mut told = client.until("input_audio_buffer.cleared").await;
    find(&told, "input_audio_buffer.committed");
    if !told.iter().any(|event| event["type"] == COMPLETED) {
        told.extend(client.until(COMPLETED).await);
    }
    assert_eq!(find(&told, COMPLETED)["transcript"], "How are you?");
    assert_fits_the_types(&told);
}

/// It ended in `transcription.failed`, which clients take for a failing recogniser, and had no item, for which they wait.
#[tokio::test]
async fn a_commit_without_words_has_an_item_and_an_empty_transcript() {
    let mut builders = live::without_models(Arc::new(Scripted::default()));
    builders.asr = Box::new(|| Ok(Box::new(live::Hears(|_: &[f32]| Ok(String::new())))));
    let server = live::serve(builders);
    let mut client = dictating(&server).await;
    client.append(&live::tone(1_000)).await;
    commit(&mut client).await;
    let told = client.until(COMPLETED).await;
    let expected = [
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
        COMPLETED,
    ];
    assert_eq!(support::types(&told), expected);
    let name = &told[0]["item_id"];
    assert_eq!(told[2]["item"]["id"], *name);
    assert_eq!(told[2]["item"]["content"][0]["transcript"], "");
    assert_eq!(told[3]["item_id"], *name);
    assert_eq!(told[3]["transcript"], "");
    assert_fits_the_types(&told);
    client
        .send(json!({"type": "conversation.item.delete", "item_id": name}))
        .await;
    assert_eq!(client.event().await["type"], "conversation.item.deleted");
}

/// The server's own turn detection had ended the turn, and the commit was an error.
#[tokio::test]
async fn a_recogniser_without_turn_detection_gets_one_transcript_for_each_commit() {
    for model in ["gpt-realtime-whisper", "gpt-live-transcribe"] {
        let server = talking(&Scripted::default());
        let mut client = server.open("/v1/realtime?intent=transcription").await;
        client.event().await;
        let input = json!({"transcription": {"model": model}});
        let session = json!({"type": "transcription", "audio": {"input": input}});
        let updated = update(&mut client, session.clone()).await;
        let detection = &updated["session"]["audio"]["input"]["turn_detection"];
        assert_eq!(*detection, Value::Null);
        client.speak(1_000, 2_000).await;
        commit(&mut client).await;
        let mut told = client.until(COMPLETED).await;
        client
            .send(json!({"type": "session.update", "session": session}))
            .await;
        told.extend(client.until("session.updated").await);
        let completed = told.iter().filter(|event| event["type"] == COMPLETED);
        assert_eq!(completed.count(), 1, "{model}");
        let mut kinds = told.iter().map(|event| &event["type"]);
        assert!(!kinds.any(|kind| kind == "error"), "{told:?}");
    }
}

/// It came with turn detection, because the secret was read first.
#[tokio::test]
async fn a_secret_names_a_recogniser_without_turn_detection_for_a_transcription_session() {
    let server = Server::with(with_token(), Script::default()).await;
    let input = json!({"transcription": {"model": "gpt-live-transcribe"}});
    let body = json!({"session": {"type": "realtime", "audio": {"input": input}}});
    let path = "/v1/realtime/client_secrets";
    let (status, made) = post(&server, path, Some("the operator's token"), &body).await;
    assert_eq!(status, 200, "{made}");
    let bearer = format!("Bearer {}", made["value"].as_str().expect("a secret"));
    let headers = [("authorization", bearer.as_str())];
    let path = "/v1/realtime?intent=transcription";
    let client = server.try_open(path, &headers).await;
    let created = client.expect("the secret is good").event().await;
    let input = &created["session"]["audio"]["input"];
    assert_eq!(input["transcription"]["model"], "gpt-live-transcribe");
    assert_eq!(input.get("turn_detection"), Some(&Value::Null), "{created}");
}

/// It was `request_refused`; clients tolerate only this code.
#[tokio::test]
async fn an_empty_commit_under_turn_detection_has_openais_code() {
    let server = talking(&Scripted::default());
    let mut client = server.realtime().await;
    client.append(&[0; 24 * 200]).await;
    let commit = json!({"type": "input_audio_buffer.commit", "event_id": "mine"});
    let error = client.error_of(commit).await;
    assert_eq!(error["code"], "input_audio_buffer_commit_empty");
    assert_eq!(error["event_id"], "mine");
}

#[tokio::test]
async fn audio_in_a_client_item_is_transcribed_in_place() {
    let llm = fine();
    let server = talking(&llm);
    let mut client = server.realtime().await;
    let format = json!({"type": "audio/pcmu"});
    let session = json!({"type": "realtime", "audio": {"input": {"format": format}}});
    update(&mut client, session).await;
    let audio = STANDARD.encode(Law::Mu.encode(&vec![8_000; 8 * 1_000]));
    let item = json!({"id": "spoken", "type": "message", "role": "user", "content": [
        {"type": "input_text", "text": "I have heard this:"},
        {"type": "input_audio", "audio": audio}]});
    client
        .send(json!({"type": "conversation.item.create", "item": item}))
        .await;
    type_in(&mut client, "What does it mean?").await;
    client.send(json!({"type": "response.create"})).await;
    let mut events = client.until("response.done").await;
    let messages = llm.prompts()[0].messages.clone();
    let user = |text: &str| Message::User { text: text.into() };
    assert_eq!(
        messages,
        [
            user("I have heard this: How are you?"),
            user("What does it mean?")
        ]
    );
    let completed = "conversation.item.input_audio_transcription.completed";
    let completed = find(&events, completed);
    assert_eq!(completed["item_id"], "spoken");
    assert_eq!(completed["content_index"], 1);
    assert_eq!(completed["transcript"], "How are you?");
    assert_eq!(completed["usage"]["seconds"], json!(1));
    client
        .send(json!({"type": "conversation.item.retrieve", "item_id": "spoken"}))
        .await;
    let retrieved = client.event().await;
    assert_eq!(
        retrieved["item"]["content"][1]["transcript"],
        "How are you?"
    );
    events.push(retrieved);
    assert_fits_the_types(&events);
}

/// Long ones were cut after 30 s, within a word, and what was too short for a service counted as its failure.
#[tokio::test]
async fn a_long_audio_item_is_cut_where_it_is_quiet_and_a_tiny_one_is_not_transcribed() {
    let mut builders = live::without_models(Arc::new(fine()));
    // Says how a piece of audio begins and ends.
    let hears = |audio: &[f32]| {
        let edges = [&audio[..80], &audio[audio.len() - 80..]];
        let is_loud = |edge: &[f32]| edge.iter().any(|sample| sample.abs() > 0.1);
        let [begins, ends] = edges.map(|edge| if is_loud(edge) { "loud" } else { "quiet" });
        Ok::<_, AsrError>(format!("{begins} {ends}"))
    };
    builders.asr = Box::new(move || Ok(Box::new(live::Hears(hears))));
    let server = live::serve(builders);
    let mut client = server.realtime().await;
    let format = json!({"type": "audio/pcmu"});
    let session = json!({"type": "realtime", "audio": {"input": {"format": format}}});
    update(&mut client, session).await;
    let part = |level: i16, ms: usize| vec![level; 8 * ms];
    let long = [part(8_000, 24_000), part(0, 400), part(8_000, 15_600)].concat();
    for audio in [part(8_000, 50), long] {
        let audio = STANDARD.encode(Law::Mu.encode(&audio));
        let item = json!({"type": "message", "role": "user",
            "content": [{"type": "input_audio", "audio": audio}]});
        client
            .send(json!({"type": "conversation.item.create", "item": item}))
            .await;
    }
    let failed = "conversation.item.input_audio_transcription.failed";
    let told = client.until(failed).await;
    assert_eq!(find(&told, failed)["error"]["code"], "audio_unintelligible");
    let completed = "conversation.item.input_audio_transcription.completed";
    let told = client.until(completed).await;
    let transcript = &find(&told, completed)["transcript"];
    assert_eq!(transcript, "loud quiet quiet loud");
}

#[tokio::test]
async fn audio_without_words_is_reported_and_later_items_go_on() {
    let llm = fine();
    let mut builders = live::without_models(Arc::new(llm.clone()));
    builders.asr = Box::new(|| Ok(Box::new(live::Hears(|_: &[f32]| Ok(String::new())))));
    let server = live::serve(builders);
    let mut client = server.realtime().await;
    add_audio(&mut client).await;
    let kind = "conversation.item.input_audio_transcription.failed";
    let told = client.until(kind).await;
    let failed = find(&told, kind);
    assert_eq!(failed["error"]["code"], "audio_unintelligible");
    assert_eq!(
        failed["item_id"],
        find(&told, "conversation.item.added")["item"]["id"]
    );
    assert_fits_the_types(&told);
    type_in(&mut client, "Hello.").await;
    client.send(json!({"type": "response.create"})).await;
    client.until("response.done").await;
    assert_eq!(llm.prompts()[0].messages.len(), 1);
}

/// A recogniser that keeps its hints.
struct Keeps(Arc<Mutex<Vec<Hints>>>);

impl Asr for Keeps {
    fn name(&self) -> &str {
        "keeps"
    }

    fn transcribe(&mut self, _: &[f32]) -> Result<String, AsrError> {
        Ok("Hello.".into())
    }

    fn hear_with(&mut self, _: &[f32], hints: &Hints) -> Result<Recognised, AsrError> {
        self.0.lock().expect("whole").push(hints.clone());
        Ok("Hello.".into())
    }
}

/// Each item was transcribed with the settings that the session had when its first one came.
#[tokio::test]
async fn an_audio_item_is_transcribed_with_the_settings_of_its_time() {
    let kept: Arc<Mutex<Vec<Hints>>> = Arc::default();
    let keeps = kept.clone();
    let mut builders = live::without_models(Arc::new(fine()));
    builders.asr = Box::new(move || Ok(Box::new(Keeps(keeps.clone()))));
    let server = live::serve(builders);
    let mut client = server.realtime().await;
    let settings = [
        json!({"language": "en"}),
        json!({"language": "de", "keywords": ["Anneliese"]}),
    ];
    for transcription in settings {
        let input = json!({"transcription": transcription});
        let session = json!({"type": "realtime", "audio": {"input": input}});
        client
            .send(json!({"type": "session.update", "session": session}))
            .await;
        // The settings change while they wait.
        for _ in 0..2 {
            add_audio(&mut client).await;
        }
    }
    for _ in 0..4 {
        let completed = "conversation.item.input_audio_transcription.completed";
        client.until(completed).await;
    }
    let heard = kept.lock().expect("whole");
    let heard = heard
        .iter()
        .map(|hints| (hints.language.as_deref(), &*hints.keyterms));
    let heard: Vec<_> = heard.collect();
    let names = ["Anneliese".to_owned()];
    // None is English.
    let each = [(None, &[][..]), (Some("de"), &names[..])];
    assert_eq!(heard, each.map(|one| [one; 2]).concat());
}

#[tokio::test]
async fn a_client_is_served_while_its_items_are_transcribed() {
    let llm = fine();
    let mut builders = live::without_models(Arc::new(llm.clone()));
    let (going, held) = std::sync::mpsc::sync_channel::<()>(0);
    let held = Arc::new(Mutex::new(held));
    builders.asr = Box::new(move || {
        let held = held.clone();
        let hears = move |_: &[f32]| {
            // Blocks until the test lets it go on.
            let _ = held.lock().expect("whole").recv();
            Ok("How are you?".to_owned())
        };
        Ok(Box::new(live::Hears(hears)))
    });
    let metrics = builders.observers.metrics.clone();
    let server = live::serve(builders);
    let mut client = server.realtime().await;
    add_audio(&mut client).await;
    client.until("conversation.item.done").await;
    client.send(json!({"type": "response.create"})).await;
    client.send(json!({"type": "response.cancel"})).await;
    let told = client.until("response.done").await;
    let done = find(&told, "response.done");
    assert_eq!(done["response"]["status"], "cancelled");
    assert!(llm.prompts().is_empty());
    drop(client);
    let over = async {
        while !metrics.render().contains("undertone_sessions 0\n") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, over).await.expect("over");
    drop(going);
}

#[tokio::test]
async fn a_transcription_client_of_the_beta_is_understood() {
    let server = talking(&Scripted::default());
    let beta = [("openai-beta", "realtime=v1")];
    let path = "/v1/realtime?intent=transcription";
    let mut client = server.try_open(path, &beta).await.expect("opens");
    assert_eq!(
        client.event().await["type"],
        "transcription_session.created"
    );
    let session = json!({"input_audio_format": "pcm16",
        "input_audio_transcription": {"model": "whisper-1"},
        "turn_detection": {"type": "server_vad", "silence_duration_ms": 300}});
    client
        .send(json!({"type": "transcription_session.update", "session": session}))
        .await;
    let updated = client.until("transcription_session.updated").await;
    let updated = updated.last().expect("one");
    assert_eq!(
        updated["session"]["turn_detection"]["silence_duration_ms"],
        300
    );
    client.speak(500, 600).await;
    let last = "conversation.item.input_audio_transcription.completed";
    let told = client.until(last).await;
    assert_eq!(find(&told, last)["transcript"], "How are you?");
}

/// Clients that require it did not begin.
#[tokio::test]
async fn a_session_says_when_it_expires() {
    let server = Server::start(Script::default()).await;
    let (ga, beta) = ([], [("openai-beta", "realtime=v1")]);
    for (path, headers) in [
        ("/v1/realtime", &ga[..]),
        ("/v1/realtime", &beta[..]),
        ("/v1/realtime?intent=transcription", &ga[..]),
        ("/v1/realtime?intent=transcription", &beta[..]),
    ] {
        let mut client = server.try_open(path, headers).await.expect("opens");
        let created = client.event().await;
        let at = created["session"]["expires_at"].as_u64();
        assert!(at.is_some_and(|at| at > 1_700_000_000), "{created}");
        let event = json!({"type": "session.update", "session": {}});
        client.send(event).await;
        let updated = loop {
            let event = client.event().await;
            let kind = event["type"].as_str().expect("a type");
            if kind.ends_with("session.updated") {
                break event;
            }
        };
        assert_eq!(updated["session"]["expires_at"].as_u64(), at, "{updated}");
    }
}

/// The beta was understood, but its clients could not get a token.
#[tokio::test]
async fn clients_of_the_beta_get_their_tokens() {
    let server = Server::with(with_token(), Script::default()).await;
    let token = Some("the operator's token");
    let validity = json!({"anchor": "created_at", "seconds": 60});
    let conversation = json!({"model": "gpt-4o-realtime-preview", "instructions": "Be kind.",
        "voice": "marin", "modalities": ["audio", "text"], "input_audio_format": "g711_ulaw",
        "turn_detection": null});
    let transcription = json!({"input_audio_format": "g711_alaw",
        "input_audio_transcription": {"model": "whisper-1", "language": "en"}});
    for (path, session, name, created) in [
        (
            "/v1/realtime/sessions",
            conversation,
            "expires_after",
            "session.created",
        ),
        (
            "/v1/realtime/transcription_sessions",
            transcription,
            "expires_at",
            "transcription_session.created",
        ),
    ] {
        let mut asked = session.clone();
        asked["client_secret"] = json!({name: validity});
        let (status, _) = post(&server, path, None, &asked).await;
        assert_eq!(status, 401, "{path}");

        let (status, made) = post(&server, path, token, &asked).await;
        assert_eq!(status, 200, "{made}");
        let has = |shown: &Value| {
            for (field, value) in session.as_object().expect("fields") {
                assert_eq!(&shown[field], value, "{field} in {shown}");
            }
        };
        has(&made);
        assert!(made["expires_at"].is_u64(), "{made}");
        let secret = &made["client_secret"];
        let seconds = secret["expires_at"].as_u64().expect("a time");
        assert!(seconds > 1_700_000_000, "{secret}");
        let secret = secret["value"].as_str().expect("a secret");
        let bearer = format!("Bearer {secret}");
        let headers = [
            ("authorization", bearer.as_str()),
            ("openai-beta", "realtime=v1"),
        ];
        let client = server.try_open("/v1/realtime", &headers).await;
        let event = client.expect("the secret is good").event().await;
        assert_eq!(event["type"], created);
        has(&event["session"]);

        let (status, _) = post(&server, path, Some(secret), &asked).await;
        assert_eq!(status, 401, "no secret makes another");
        asked["prompt"] = json!({"id": "p"});
        let (status, error) = post(&server, path, token, &asked).await;
        assert_eq!(status, 400);
        assert_eq!(error["error"]["param"], "session.prompt");
        // None of the fields is required.
        let (status, made) = post(&server, path, token, &json!({})).await;
        assert_eq!(status, 200, "{made}");
    }
}
