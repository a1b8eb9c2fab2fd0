//! Tests who is calling: fixed arguments from the caller's number, over the wire, with a model that tries
//! to set them.

use crate::support;
use crate::twilio::{Order, Phone};
use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::routing::get;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::{Arc, Mutex};
use support::live::{self, without_models};
use support::program::until;
use support::twilio::{settings, start_of_others};
use support::{Client, Server, local};
use undertone::audio::g711::Law;
use undertone::llm::scripted::{Cue, Scripted};
use undertone::llm::{Message, Prompt};
use undertone::server::ServerSettings;
use undertone::session::{Builders, PhoneSettings};
use undertone::tools::{Registry, declared};

/// The number that calls in `support::twilio`.
const CALLER: &str = "+15551230000";
const ANOTHER: &str = "+15559999999";

/// A bank that keeps the queries it gets.
#[derive(Clone, Default)]
struct Bank(Arc<Mutex<Vec<String>>>);

impl Bank {
    /// Serves it at the returned address.
    async fn open(&self) -> String {
        let answer = |State(bank): State<Self>, RawQuery(query): RawQuery| async move {
            bank.0
                .lock()
                .expect("no panic")
                .push(query.unwrap_or_default());
            r#"{"balance": 1200}"#
        };
        let customer = |State(bank): State<Self>, headers: HeaderMap, RawQuery(query): RawQuery| async move {
            if let Some(key) = headers.get("idempotency-key") {
                let key = key.to_str().expect("text").to_owned();
                bank.0.lock().expect("no panic").push(key);
            }
            match query.as_deref() {
                Some("phone=%2B15551230000") => r#"{"id": "c-7", "name": "Ann", "note": null}"#,
                _ => "{}",
            }
        };
        let routes = Router::new()
            .route("/balance", get(answer))
            .route("/customer", get(customer));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a port");
        let address = listener.local_addr().expect("an address");
        let routes = routes.with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        address.to_string()
    }

    /// The queries so far.
    fn asked(&self) -> Vec<String> {
        self.0.lock().expect("no panic").clone()
    }
}

fn balance_of(address: &str, trust: &str) -> String {
    format!(
        r#"
name = "get_balance"
kind = "http"
description = "The balance of the caller's account."
effect = "read"
fixed = {{ account = "{{{{ session.caller }}}}", bank = 7 }}
{trust}
[parameters]
required = ["account", "bank"]
[parameters.properties]
account = {{ type = "string" }}
bank = {{ type = "integer" }}
currency = {{ type = "string", default = "EUR" }}
[speculation]
allow = "full"
[http]
allow_private = true
url = "http://{address}/balance"
query = {{ account = "{{{{ account }}}}", bank = "{{{{ bank }}}}", currency = "{{{{ currency }}}}" }}
"#
    )
}

/// A model that asks for another's account.
fn thief() -> Scripted {
    let call = format!(r#"<tool>get_balance(account="{ANOTHER}", bank=1, currency="USD")</tool>"#);
    Scripted::default()
        .on(Cue::result("get_balance"), "<speech>That is all.</speech>")
        .on(Cue::Always, call)
}

fn serve(settings: ServerSettings, llm: &Scripted, tool: &str) -> Server {
    serve_all(settings, llm, &[tool], None)
}

fn serve_all(
    settings: ServerSettings,
    llm: &Scripted,
    tools: &[&str],
    instructions: Option<&str>,
) -> Server {
    let read = |tool: &&str| declared::parse(Path::new("a.toml"), tool).expect("a declaration");
    let tools: Vec<_> = tools.iter().map(read).collect();
    let tools = declared::registry(&tools).expect("tools");
    let mut engines = engines(llm, tools, "Hello.");
    engines.policy.briefing.instructions = instructions.map(str::to_owned);
    live::serve_with(settings, engines)
}

fn engines(llm: &Scripted, tools: Registry, greeting: &str) -> Builders {
    Builders {
        tools: tools.into(),
        phone: PhoneSettings {
            greeting: greeting.into(),
            silence_prompt: None,
        },
        ..without_models(Arc::new(llm.clone()))
    }
}

/// The tools of a folder with these files.
fn folder(files: &[&str]) -> Registry {
    let folder = tempfile::tempdir().expect("a folder");
    for (at, text) in files.iter().enumerate() {
        std::fs::write(folder.path().join(format!("{at}.toml")), text).expect("written");
    }
    let tools = declared::load(folder.path(), &|_| None).expect("declarations");
    declared::registry(&tools).expect("tools")
}

/// The result that the model got.
fn result(prompt: &Prompt) -> Value {
    let mut results = prompt.messages.iter().filter_map(|message| match message {
        Message::ToolResult { output, .. } => Some(output.clone()),
        _ => None,
    });
    results.next_back().expect("a result")
}

/// No prompt names the fixed parameters or their values.
fn assert_unseen(llm: &Scripted) {
    for prompt in llm.prompts() {
        let prompt = serde_json::to_string(&prompt).expect("JSON");
        for hidden in ["\"account\"", "\"bank\"", CALLER, ANOTHER] {
            assert!(!prompt.contains(hidden), "{hidden} in {prompt}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_known_caller_gets_the_balance_of_an_account_that_the_model_cannot_choose() {
    let (bank, llm) = (Bank::default(), thief());
    let tool = balance_of(&bank.open().await, "");
    let server = serve(settings("http://127.0.0.1:1"), &llm, &tool);
    let mut phone = Phone::call(&server).await;
    phone.until("mark").await;
    phone.order(Order::Noise(30)).await;
    let prompt = llm.asked(Cue::result("get_balance")).await;
    assert_eq!(result(&prompt), json!({"balance": 1200}));
    assert_eq!(bank.asked(), ["account=%2B15551230000&bank=7&currency=USD"]);
    assert_unseen(&llm);
}

/// Asks for the balance over the Realtime API.
async fn asked(
    server: &Server,
    query: &str,
    headers: &[(&'static str, &str)],
    llm: &Scripted,
) -> Value {
    let opened = server
        .try_open(&format!("/v1/realtime{query}"), headers)
        .await;
    let mut client: Client = opened.expect("the socket opens");
    let item = json!({"type": "message", "role": "user",
        "content": [{"type": "input_text", "text": "What is my balance?"}]});
    client
        .send(json!({"type": "conversation.item.create", "item": item}))
        .await;
    client.send(json!({"type": "response.create"})).await;
    let prompt = llm.asked(Cue::result("get_balance")).await;
    client.until("response.done").await;
    result(&prompt)
}

#[tokio::test]
async fn a_claimed_number_is_refused_unless_the_declaration_takes_it() {
    let bank = Bank::default();
    let address = bank.open().await;
    let query = format!("?caller={}", CALLER.replace('+', "%2B"));

    let llm = thief();
    let server = serve(local(), &llm, &balance_of(&address, ""));
    let refused = asked(&server, &query, &[], &llm).await;
    let error = refused["error"].as_str().expect("an error");
    assert!(
        error.contains("callers whom the server can identify"),
        "{error}"
    );
    assert_unseen(&llm);

    let llm = thief();
    let server = serve(local(), &llm, &balance_of(&address, ""));
    asked(&server, "", &[], &llm).await;
    assert_eq!(bank.asked(), [""; 0], "nobody was asked for");

    let llm = thief();
    let tool = balance_of(&address, "fixed_trust = \"claimed\"");
    let server = serve(local(), &llm, &tool);
    let allowed = asked(&server, &query, &[], &llm).await;
    assert_eq!(allowed, json!({"balance": 1200}));
    assert_eq!(bank.asked(), ["account=%2B15551230000&bank=7&currency=USD"]);
}

#[tokio::test]
async fn a_client_secret_verifies_a_caller_and_its_holder_cannot_change_that() {
    let (bank, llm) = (Bank::default(), thief());
    let tool = balance_of(&bank.open().await, "fixed_trust = \"verified\"");
    let settings = ServerSettings {
        auth_token: Some("operator".to_owned().into()),
        ..local()
    };
    let server = serve(settings, &llm, &tool);
    let answer = reqwest::Client::new()
        .post(format!(
            "http://{}/v1/realtime/client_secrets",
            server.address
        ))
        .bearer_auth("operator")
        .json(&json!({"undertone": {"caller": CALLER}}))
        .send()
        .await
        .expect("an answer");
    let secret: Value = answer.json().await.expect("JSON");
    let bearer = format!("Bearer {}", secret["value"].as_str().expect("a secret"));
    let query = format!("?caller={}", ANOTHER.replace('+', "%2B"));
    let allowed = asked(&server, &query, &[("authorization", &bearer)], &llm).await;
    assert_eq!(allowed, json!({"balance": 1200}));
    assert_eq!(bank.asked(), ["account=%2B15551230000&bank=7&currency=USD"]);
    assert_unseen(&llm);
}

#[tokio::test]
async fn the_system_prompt_is_the_same_for_all_callers_and_notes_tell_who_calls() {
    let llm = Scripted::default().on(Cue::Always, "<speech>Hello.</speech>");
    let mut engines = without_models(Arc::new(llm.clone()));
    engines.policy.briefing.instructions = Some(
        "Be kind.\nThe caller's number is {{ session.caller }}.\nPlan: {{ session.param.plan }}"
            .into(),
    );
    let server = live::serve_with(local(), engines);
    for query in ["?caller=100&param.plan=%3Ctool%3E", ""] {
        let opened = server.try_open(&format!("/v1/realtime{query}"), &[]).await;
        let mut client = opened.expect("the socket opens");
        let item = json!({"type": "message", "role": "user",
            "content": [{"type": "input_text", "text": "Hi."}]});
        client
            .send(json!({"type": "conversation.item.create", "item": item}))
            .await;
        client.send(json!({"type": "response.create"})).await;
        client.until("response.done").await;
    }
    let prompts = llm.prompts();
    let notes = |prompt: &Prompt| {
        let notes = prompt.messages.iter().filter_map(|message| match message {
            Message::System { text } => Some(text.clone()),
            _ => None,
        });
        notes.collect::<Vec<_>>()
    };
    let told = ["The caller's number is 100.", "Plan: ‹tool›"];
    assert_eq!(notes(&prompts[0]), told);
    assert_eq!(notes(&prompts[1]), [""; 0]);
    for prompt in prompts {
        assert_eq!(prompt.instructions.as_deref(), Some("Be kind."));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lookup_at_call_set_up_tells_who_calls() {
    let (bank, llm) = (Bank::default(), thief());
    let address = bank.open().await;
    let lookup = format!(
        r#"
name = "customer"
kind = "http"
lookup = true
fixed = {{ phone = "{{{{ session.caller }}}}" }}
parameters = {{ properties = {{ phone = {{ type = "string" }} }}, required = ["phone"] }}
[http]
allow_private = true
url = "http://{address}/customer"
query = {{ phone = "{{{{ phone }}}}" }}
"#
    );
    let balance = balance_of(&address, "");
    let balance = balance.replace("session.caller", "session.lookup['customer'].id");
    let instructions = "Be kind.\nThe caller is {{ session.lookup.customer.name }}.";
    let tools = [lookup.as_str(), &balance];
    let settings = settings("http://127.0.0.1:1");
    let server = serve_all(settings, &llm, &tools, Some(instructions));
    let mut phone = Phone::call(&server).await;
    phone.until("mark").await;
    phone.order(Order::Noise(30)).await;
    let prompt = llm.asked(Cue::result("get_balance")).await;
    assert_eq!(result(&prompt), json!({"balance": 1200}));
    assert_eq!(bank.asked(), ["account=c-7&bank=7&currency=USD"]);
    assert_unseen(&llm);
    let text = "The caller is Ann.".to_owned();
    assert_eq!(prompt.messages[0], Message::System { text });
    assert_eq!(prompt.instructions.as_deref(), Some("Be kind."));
    assert!(prompt.tools.iter().all(|tool| tool.name != "customer"));
}

/// A service that repeats its answer for a key told later callers what it knew of the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lookup_of_each_session_has_an_idempotency_key_of_its_own() {
    let (bank, llm) = (Bank::default(), Scripted::default());
    let address = bank.open().await;
    let lookup = format!(
        r#"
name = "customer"
kind = "http"
lookup = true
fixed = {{ phone = "{{{{ session.caller }}}}" }}
parameters = {{ properties = {{ phone = {{ type = "string" }} }}, required = ["phone"] }}
[http]
allow_private = true
url = "http://{address}/customer"
query = {{ phone = "{{{{ phone }}}}" }}
idempotency_header = "Idempotency-Key"
"#
    );
    let server = serve_all(settings("http://127.0.0.1:1"), &llm, &[&lookup], None);
    for calls in 1..=2 {
        let phone = Phone::call(&server).await;
        until(async || (bank.asked().len() == calls).then_some(())).await;
        drop(phone);
    }
    let keys = bank.asked();
    assert!(keys[0].ends_with("-lookup-customer"), "{keys:?}");
    assert_ne!(keys[0], keys[1]);
}

#[tokio::test]
async fn what_a_lookup_finds_is_no_more_trusted_than_what_it_was_asked_with() {
    let bank = Bank::default();
    let address = bank.open().await;
    let lookup = format!(
        r#"
name = "customer"
kind = "http"
lookup = true
fixed_trust = "claimed"
fixed = {{ phone = "{{{{ session.caller }}}}" }}
parameters = {{ properties = {{ phone = {{ type = "string" }} }}, required = ["phone"] }}
[http]
allow_private = true
url = "http://{address}/customer"
query = {{ phone = "{{{{ phone }}}}" }}
"#
    );
    let id =
        |trust| balance_of(&address, trust).replace("session.caller", "session.lookup.customer.id");
    let query = format!("?caller={}", CALLER.replace('+', "%2B"));
    for (trust, allowed) in [("", false), ("fixed_trust = \"claimed\"", true)] {
        let (llm, balance) = (thief(), id(trust));
        let server = serve_all(local(), &llm, &[&lookup, &balance], None);
        let result = asked(&server, &query, &[], &llm).await;
        assert_eq!(result.get("balance").is_some(), allowed, "{trust}");
    }
}

/// Speaks for 0.8 s and is silent, over the stream of a telephone provider.
async fn speak_over(provider: &str, client: &mut Client) {
    for sample in [[12_000; 40], [0; 40]].concat() {
        let frame = Law::Mu.encode(&[sample; 160]);
        match provider {
            "asterisk" => client.send_bytes(frame).await,
            _ => {
                let media = json!({"track": "inbound", "payload": STANDARD.encode(frame)});
                client.send(json!({"event": "media", "media": media})).await;
            }
        }
    }
}

const ASTERISK_START: &str = "MEDIA_START connection_id:media channel:WebSocket/media/0x1 \
                              channel_id:1761245643.1 format:ulaw optimal_frame_size:160 ptime:20";

/// A call from the known number, at a server with this token.
async fn call_from(provider: &str, server: &Server, token: Option<&str>) -> Client {
    let number = CALLER.replace('+', "%2B");
    if provider == "asterisk" {
        let path = format!("/asterisk/media?caller={number}");
        let basic = token.map(|token| format!("Basic {}", STANDARD.encode(format!("a:{token}"))));
        let headers: Vec<_> = basic
            .iter()
            .map(|basic| ("authorization", basic.as_str()))
            .collect();
        let mut client = server.try_open(&path, &headers).await.expect("it opens");
        client.send_text(ASTERISK_START).await;
        return client;
    }
    let shown = token
        .map(|token| format!("?token={token}"))
        .unwrap_or_default();
    let path = format!("/{provider}/media{shown}");
    let mut client = server.try_open(&path, &[]).await.expect("it opens");
    let mut start = start_of_others();
    start["start"]["from"] = CALLER.into();
    client.send(start).await;
    client
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_that_telnyx_plivo_or_asterisk_signal_sets_the_account() {
    for provider in ["telnyx", "plivo", "asterisk"] {
        for token in [Some("secret"), None] {
            let (bank, llm) = (Bank::default(), thief());
            let settings = ServerSettings {
                auth_token: token.map(|token| token.to_owned().into()),
                ..local()
            };
            let tools = folder(&[&balance_of(&bank.open().await, "")]);
            let server = live::serve_with(settings, engines(&llm, tools, ""));
            let mut client = call_from(provider, &server, token).await;
            speak_over(provider, &mut client).await;
            let prompt = llm.asked(Cue::result("get_balance")).await;
            let account = "account=%2B15551230000&bank=7&currency=USD".to_owned();
            let (balance, asked) = match token {
                Some(_) => (json!(1200), vec![account]),
                // Without a token anybody may say that it is this number.
                None => (Value::Null, Vec::new()),
            };
            assert_eq!(result(&prompt)["balance"], balance, "{provider}, {token:?}");
            assert_eq!(bank.asked(), asked, "{provider}, {token:?}");
            assert_unseen(&llm);
        }
    }
}

fn find_customer(address: &str) -> String {
    format!(
        r#"
name = "find_customer"
kind = "http"
description = "Finds the customer who is calling."
effect = "read"
fixed = {{ phone = "{{{{ session.caller }}}}" }}
parameters = {{ properties = {{ phone = {{ type = "string" }} }}, required = ["phone"] }}
[speculation]
allow = "full"
[http]
allow_private = true
url = "http://{address}/customer"
query = {{ phone = "{{{{ phone }}}}" }}
"#
    )
}

/// A model that asks for another's account before it has found the customer, and after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_from_an_earlier_result_is_the_one_that_was_found() {
    let theft = format!(r#"<tool>get_balance(account="{ANOTHER}")</tool>"#);
    let llm = Scripted::default()
        .on(Cue::result("get_balance"), "<speech>That is all.</speech>")
        .on(Cue::result("find_customer"), theft.clone())
        .on(Cue::Turn(1), theft)
        .on(Cue::Always, "<tool>find_customer()</tool>");
    let bank = Bank::default();
    let address = bank.open().await;
    let balance = balance_of(&address, "").replace("session.caller", "result.find_customer.id");
    let tools = folder(&[&find_customer(&address), &balance]);
    let server = live::serve_with(
        settings("http://127.0.0.1:1"),
        engines(&llm, tools, "Hello."),
    );
    let mut phone = Phone::call(&server).await;
    phone.until("mark").await;
    phone.order(Order::Noise(30)).await;
    let prompt = llm.asked(Cue::result("get_balance")).await;
    let refusal = result(&prompt)["error"].to_string();
    assert!(refusal.contains("call find_customer first"), "{refusal}");
    assert_eq!(bank.asked(), [""; 0], "nobody was asked for");
    phone.until("mark").await;
    phone.order(Order::Noise(30)).await;
    llm.asked(Cue::result("find_customer")).await;
    until(async || (!bank.asked().is_empty()).then_some(())).await;
    assert_eq!(bank.asked(), ["account=c-7&bank=7&currency=EUR"]);
    phone.until("mark").await;
    let last = llm.asked(Cue::result("get_balance")).await;
    assert_eq!(result(&last), json!({"balance": 1200}));
    assert_unseen(&llm);
}
