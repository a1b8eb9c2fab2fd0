//! Tests who is calling: fixed arguments from the caller's number, over the wire, with a model that tries
//! to set them.

use crate::support;
use crate::twilio::{Order, Phone};
use axum::Router;
use axum::extract::{RawQuery, State};
use axum::routing::get;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::{Arc, Mutex};
use support::live::{self, without_models};
use support::twilio::settings;
use support::{Client, Server, local};
use undertone::llm::scripted::{Cue, Scripted};
use undertone::llm::{Message, Prompt};
use undertone::server::ServerSettings;
use undertone::session::{Builders, PhoneSettings};
use undertone::tools::declared;

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
        let customer = |RawQuery(query): RawQuery| async move {
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
    let mut engines = Builders {
        tools: tools.into(),
        phone: PhoneSettings {
            greeting: "Hello.".into(),
            silence_prompt: None,
        },
        ..without_models(Arc::new(llm.clone()))
    };
    engines.policy.briefing.instructions = instructions.map(str::to_owned);
    live::serve_with(settings, engines)
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
