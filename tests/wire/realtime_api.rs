//! The Realtime API against the types of the `openai` package: nothing of them is missing in the
//! documentation, and what the server sends fits them.

use crate::support;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::process::Command;
use support::{Script, Server, local};
use undertone::server::ServerSettings;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/foreign");

/// What `realtime_types.py` prints.
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

/// The fields that `docs/realtime.md` lists, by the groups of `realtime_types.py`. Those that are
/// not honoured end in `*`: they stand for all that lies below them.
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
            ["", event, fields, ""] if event.starts_with('`') => {
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
async fn what_has_no_effect_is_accepted_and_repeated() {
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
async fn what_would_change_what_the_user_gets_is_refused_by_its_name() {
    let server = Server::start(Script::default()).await;
    let mut client = server.realtime().await;
    let mcp = json!({"type": "mcp", "server_label": "files", "server_url": "https://example.com"});
    let image = json!({"type": "message", "role": "user",
        "content": [{"type": "input_image", "image_url": "data:image/png;base64,AA"}]});
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
            json!({"type": "conversation.item.create", "item": image}),
            "item.content[0].image_url",
        ),
    ] {
        let error = client.error_of(event).await;
        assert_eq!(error["param"], param, "{error}");
        assert_eq!(error["code"], "unsupported_parameter");
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
async fn a_client_secret_opens_sessions_with_its_configuration_and_does_nothing_else() {
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
async fn what_is_asked_over_http_is_answered_in_json_and_readable_to_pages() {
    let server = Server::start(Script::default()).await;
    let client = reqwest::Client::new();
    let at = |path: &str| format!("http://{}{path}", server.address);
    let list: Value = (client.get(at("/v1/models")).send().await)
        .expect("an answer")
        .json()
        .await
        .expect("JSON");
    assert_eq!(list["data"][0]["id"], "undertone");
    let (status, error) = post(&server, "/v1/realtime/calls", None, &json!({})).await;
    assert_eq!(status, 501);
    assert_eq!(error["error"]["code"], "webrtc_not_supported");
    for path in [
        "/v1/realtime/client_secrets",
        "/v1/realtime/calls",
        "/v1/models",
    ] {
        let asked = client
            .request(reqwest::Method::OPTIONS, at(path))
            .header("origin", "https://example.org")
            .header("access-control-request-method", "POST")
            .send();
        let asked = asked.await.expect("an answer");
        assert_eq!(asked.status(), 204);
        let headers = asked.headers()["access-control-allow-headers"].to_str();
        assert!(headers.expect("text").contains("authorization"));
    }
    let answer = server.get("/v1/realtime?call_id=rtc_1", "").await;
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    assert!(answer.contains("call_not_found"), "{answer}");
}
