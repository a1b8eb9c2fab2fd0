//! Plans over the wire, with real HTTP tools: the server runs the steps, the model sees one result. Runs that
//! are no longer needed are aborted at their server.

use crate::support;
use axum::Router;
use axum::extract::{Query, State};
use axum::http::Method;
use axum::routing::{any, get, post};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use support::live::{self, without_models};
use support::{Client, Server, local};
use tokio::sync::{Barrier, mpsc};
use undertone::llm::plan::PLAN;
use undertone::llm::remote::Settings;
use undertone::llm::scripted::{Cue, Scripted};
use undertone::llm::{Calls, Llm, Message, Prompt, Prompts, Remote};
use undertone::prediction::{PredictError, Prediction, Predictor, Question, Source};
use undertone::server::ServerSettings;
use undertone::session::{AgentSettings, Builders, Cast};
use undertone::tools::journal::JournalFile;
use undertone::tools::{Journal, declared};

/// A travel agency that keeps the requests it gets.
#[derive(Clone)]
struct Agency {
    asked: Arc<Mutex<Vec<String>>>,
    /// Holds requests back until there are two.
    pair: Arc<Barrier>,
}

impl Agency {
    fn note(&self, what: String) {
        self.asked.lock().expect("no panic").push(what);
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("no panic").clone()
    }
}

type Fields = Query<BTreeMap<String, String>>;

/// Serves the agency at the returned address.
async fn agency() -> (Agency, String) {
    let agency = Agency {
        asked: Arc::default(),
        pair: Arc::new(Barrier::new(2)),
    };
    let flights = |State(agency): State<Agency>, Query(fields): Fields| async move {
        agency.note(format!("flights to {}", fields["to"]));
        let flights = match fields["to"].as_str() {
            "Nowhere" => json!([]),
            _ => json!([{"id": "SK1", "price": 80}, {"id": "SK2", "price": 95}]),
        };
        flights.to_string()
    };
    let seats = |State(agency): State<Agency>, Query(fields): Fields| async move {
        agency.note(format!("seats of {}", fields["flight"]));
        json!({"free": ["12A", "14C"]}).to_string()
    };
    let book = |State(agency): State<Agency>, body: String| async move {
        agency.note(format!("book {body}"));
        json!({"booking": "QX7"}).to_string()
    };
    let pair = |State(agency): State<Agency>, Query(fields): Fields| async move {
        agency.pair.wait().await;
        format!("\"{}\"", fields["n"])
    };
    let routes = Router::new()
        .route("/flights", get(flights))
        .route("/seats", get(seats))
        .route("/book", post(book))
        .route("/pair", get(pair))
        .with_state(agency.clone());
    (agency, serve(routes).await)
}

async fn serve(routes: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, routes).await });
    address.to_string()
}

fn read(address: &str, name: &str, path: &str, parameter: &str, more: &str) -> String {
    format!(
        "name = \"{name}\"\nkind = \"http\"\ndescription = \"{name}\"\neffect = \"read\"\ntimeout_ms = 60000\n\
         parameters = {{ properties = {{ {parameter} = {{ type = \"string\" }} }}, required = [\"{parameter}\"] }}\n{more}\n\
         [http]\nallow_private = true\nurl = \"http://{address}/{path}\"\n\
         query = {{ {parameter} = \"{{{{ {parameter} }}}}\" }}\n"
    )
}

fn booking(address: &str, more: &str) -> String {
    format!(
        "name = \"book_flight\"\nkind = \"http\"\ndescription = \"Books.\"\neffect = \"reversible\"\ntimeout_ms = 60000\n\
         parameters = {{ properties = {{ flight = {{ type = \"string\" }} }}, required = [\"flight\"] }}\n{more}\n\
         [http]\nallow_private = true\nmethod = \"POST\"\nurl = \"http://{address}/book\"\njson = {{ flight = \"{{{{ flight }}}}\" }}\n"
    )
}

fn engines(llm: Arc<dyn Llm>, tools: &[String]) -> Builders {
    let read = |tool: &String| declared::parse(Path::new("a.toml"), tool).expect("a declaration");
    let tools: Vec<_> = tools.iter().map(read).collect();
    let mut engines = Builders {
        tools: declared::registry(&tools).expect("tools").into(),
        ..without_models(llm)
    };
    engines.policy.briefing.plans = true;
    engines
}

fn tools(address: &str) -> Vec<String> {
    vec![
        read(address, "find_flights", "flights", "to", ""),
        read(address, "free_seats", "seats", "flight", ""),
        read(address, "half", "pair", "n", ""),
        booking(address, ""),
    ]
}

fn planned(plan: &Value) -> String {
    let steps = &plan["steps"];
    match plan.get("result") {
        Some(result) => format!("<tool>plan(steps={steps}, result={result})</tool>"),
        None => format!("<speech>Let me look.</speech><tool>plan(steps={steps})</tool>"),
    }
}

fn seats(to: &str) -> Value {
    json!({"steps": [
        {"name": "flights", "tool": "find_flights", "arguments": {"to": to}},
        {"name": "seats", "tool": "free_seats", "arguments": {"flight": "$flights[0].id"}},
    ]})
}

/// A model that makes this plan, and speaks when it has its result.
fn planner(plan: &Value) -> Scripted {
    Scripted::default()
        .on(Cue::result(PLAN), "<speech>That is all.</speech>")
        .on(Cue::Always, planned(plan))
}

fn results(prompt: &Prompt) -> Vec<&Value> {
    let results = prompt.messages.iter().filter_map(|message| match message {
        Message::ToolResult { output, .. } => Some(output),
        _ => None,
    });
    results.collect()
}

async fn type_to(client: &mut Client, text: &str) {
    let item = json!({"type": "message", "role": "user",
        "content": [{"type": "input_text", "text": text}]});
    client
        .send(json!({"type": "conversation.item.create", "item": item}))
        .await;
    client.send(json!({"type": "response.create"})).await;
}

async fn asked(server: &Server) -> (Client, Vec<Value>) {
    let mut client = server.open("/v1/realtime?vendor_events=1").await;
    type_to(&mut client, "Find me a seat to Oslo.").await;
    let events = client.until("response.done").await;
    (client, events)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_runs_on_the_server_and_the_model_sees_one_result() {
    let (agency, address) = agency().await;
    let llm = planner(&seats("Oslo"));
    let server = live::serve(engines(Arc::new(llm.clone()), &tools(&address)));
    let (_client, _) = asked(&server).await;
    let prompt = llm.asked(Cue::result(PLAN)).await;
    assert_eq!(results(&prompt), [&json!({"free": ["12A", "14C"]})]);
    assert!(
        !format!("{:?}", prompt.messages).contains("price"),
        "{prompt:?}"
    );
    assert_eq!(agency.asked(), ["flights to Oslo", "seats of SK1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_in_a_plan_names_its_step() {
    let (agency, address) = agency().await;
    let llm = planner(&seats("Nowhere"));
    let server = live::serve(engines(Arc::new(llm.clone()), &tools(&address)));
    let (_client, _) = asked(&server).await;
    let prompt = llm.asked(Cue::result(PLAN)).await;
    let error = "step 2, `flights[0].id`: there is no element 0";
    assert_eq!(
        results(&prompt),
        [&json!({"error": error, "done": ["flights"]})]
    );
    assert_eq!(agency.asked(), ["flights to Nowhere"]);
}

/// The agency answers neither request before it has both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn independent_calls_of_one_turn_are_under_way_together_with_a_plan_and_without() {
    let half = |n: &str| json!({"name": format!("h{n}"), "tool": "half", "arguments": {"n": n}});
    let plan = planned(&json!({"steps": [half("1"), half("2")]}));
    let calls = "<tool>half(n=\"1\")</tool><tool>half(n=\"2\")</tool>".to_owned();
    for (script, tool) in [(plan, PLAN), (calls, "half")] {
        let (_agency, address) = agency().await;
        let llm = Scripted::default()
            .on(Cue::result(tool), "<speech>Both are there.</speech>")
            .on(Cue::Always, script);
        let server = live::serve(engines(Arc::new(llm.clone()), &tools(&address)));
        let (_client, _) = asked(&server).await;
        let prompt = llm.asked(Cue::result(tool)).await;
        let results = format!("{:?}", results(&prompt));
        assert!(
            results.contains("\"1\"") && results.contains("\"2\""),
            "{results}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_in_a_plan_is_journalled_and_asks_for_a_yes_like_any_call() {
    let (agency, address) = agency().await;
    let steps = json!({"steps": [
        {"name": "flights", "tool": "find_flights", "arguments": {"to": "Oslo"}},
        {"name": "booked", "tool": "book_flight", "arguments": {"flight": "$flights[1].id"}},
        {"name": "seats", "tool": "free_seats", "arguments": {"flight": "$flights[1].id"}},
    ], "result": {"booking": "$booked.booking", "seat": "$seats.free[0]"}});
    let llm = planner(&steps);
    let confirm = "confirm = { spoken = true, question = \"Book {{ flight }}?\" }";
    let mut all = tools(&address);
    all[3] = booking(&address, confirm);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("journal.jsonl");
    let now = "2026-03-01T10:00:00Z".parse().expect("a time");
    let journal = JournalFile::open(&path, now).expect("a journal");
    let server = live::serve(Builders {
        journal: Some(Journal::new(journal)),
        ..engines(Arc::new(llm.clone()), &all)
    });
    let (mut client, events) = asked(&server).await;
    let question = events
        .iter()
        .find(|event| event["type"] == "undertone.confirmation.asked");
    let question = question.expect("it asks");
    assert_eq!(question["question"], "Book SK2?");
    assert_eq!(agency.asked(), ["flights to Oslo"]);
    client
        .send(json!({
            "type": "undertone.confirmation.respond", "call_id": question["call_id"], "accept": true,
        }))
        .await;
    client.until("response.done").await;
    let booked = r#"book {"flight":"SK2"}"#;
    assert_eq!(agency.asked(), ["flights to Oslo", booked, "seats of SK2"]);
    let done = json!({"booking": "QX7", "seat": "12A"});
    let prompts = llm.prompts();
    assert_eq!(
        results(prompts.last().expect("a prompt")).last(),
        Some(&&done)
    );
    let lines = std::fs::read_to_string(&path).expect("a journal");
    assert_eq!(lines.matches("book_flight").count(), 1, "{lines}");
    assert!(
        lines.contains("QX7") && !lines.contains("find_flights"),
        "{lines}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plans_are_off_unless_the_server_or_the_agent_says_otherwise() {
    let (_agency, address) = agency().await;
    for (server, agent, offered) in [
        (false, None, false),
        (true, None, true),
        (false, Some(true), true),
        (true, Some(false), false),
    ] {
        let llm = planner(&seats("Oslo"));
        let mut engines = engines(Arc::new(llm.clone()), &tools(&address));
        engines.policy.briefing.plans = server;
        engines.agents = Cast {
            agents: vec![AgentSettings {
                model: Some((Arc::new(llm.clone()), None)),
                plans: agent,
                ..AgentSettings::new("travel")
            }],
            ..Cast::default()
        };
        let agents = [("travel".to_owned(), true)].into_iter().collect();
        let server = live::serve_with(ServerSettings { agents, ..local() }, engines);
        let mut client = server.open("/v1/realtime?agent=travel").await;
        type_to(&mut client, "Find me a seat to Oslo.").await;
        let prompt = llm.asked(Cue::Always).await;
        let names: BTreeSet<&str> = prompt.tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names.contains(PLAN), offered, "{names:?}");
    }
}

/// A chat completions server whose model makes this plan as a native call. Keeps the requests.
async fn native(plan: Value) -> (Remote, Arc<Mutex<Vec<Value>>>) {
    let requests: Arc<Mutex<Vec<Value>>> = Arc::default();
    let kept = requests.clone();
    let answer = async move |body: String| {
        let request: Value = serde_json::from_str(&body).expect("JSON");
        let messages = request["messages"].as_array().expect("messages");
        let delta = match messages.iter().any(|message| message["role"] == "tool") {
            true => json!({"content": "That is all."}),
            false => json!({"tool_calls": [{"index": 0, "id": "abc", "type": "function",
                "function": {"name": PLAN, "arguments": plan.to_string()}}]}),
        };
        kept.lock().expect("no panic").push(request);
        let piece = json!({"choices": [{"index": 0, "delta": delta}]});
        let stop = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
        (
            [("content-type", "text/event-stream")],
            format!("data: {piece}\n\ndata: {stop}\n\ndata: [DONE]\n\n"),
        )
    };
    let address = serve(Router::new().route("/v1/chat/completions", post(answer))).await;
    let url = format!("http://{address}/v1").parse().expect("a URL");
    let prompts = Prompts::default().for_calls(Calls::Native);
    let settings = Settings {
        calls: Calls::Native,
        ..Settings::new(url, "m")
    };
    (Remote::new(settings, prompts).expect("a client"), requests)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_native_plan_is_one_call_with_one_result() {
    let (agency, address) = agency().await;
    let (llm, requests) = native(seats("Oslo")).await;
    let server = live::serve(engines(Arc::new(llm), &tools(&address)));
    let (_client, _) = asked(&server).await;
    assert_eq!(agency.asked(), ["flights to Oslo", "seats of SK1"]);
    let requests = requests.lock().expect("no panic").clone();
    let last = requests
        .iter()
        .rfind(|request| request["messages"].to_string().contains("\"tool\""));
    let last = last.expect("a request with the result");
    let messages = last["messages"].as_array().expect("messages");
    let of = |role: &str| {
        messages
            .iter()
            .filter(|message| message["role"] == role)
            .collect::<Vec<_>>()
    };
    assert_eq!(of("tool").len(), 1);
    assert!(
        of("tool")[0]["content"]
            .as_str()
            .expect("text")
            .contains("12A")
    );
    let calls = of("assistant")[0]["tool_calls"].as_array().expect("calls");
    assert_eq!(
        (calls.len(), calls[0]["function"]["name"].as_str()),
        (1, Some(PLAN))
    );
    let offered = last["tools"].as_array().expect("tools");
    let plan = offered
        .iter()
        .find(|tool| tool["function"]["name"] == PLAN)
        .expect("it is offered");
    assert_eq!(
        plan["function"]["parameters"]["properties"]["steps"]["maxItems"],
        8
    );
}

/// Predicts a call of the slow archive for any words.
struct Guesses;

impl Predictor for Guesses {
    fn predict(
        &self,
        _question: Arc<Question>,
    ) -> BoxFuture<'static, Result<Vec<Prediction>, PredictError>> {
        let arguments = json!({"page": "7"}).as_object().cloned();
        let guess = Prediction {
            tool: "archive".into(),
            arguments: arguments.unwrap_or_default(),
            confidence: 0.9,
            source: Source::Draft,
            open: Vec::new(),
        };
        std::future::ready(Ok(vec![guess])).boxed()
    }
}

/// Reports the end of a request when it is dropped.
struct Under(mpsc::Sender<&'static str>);

impl Drop for Under {
    fn drop(&mut self) {
        let _ = self.0.try_send("dropped");
    }
}

/// The model does not make the call that was predicted. The archive, which would never answer, sees the connection
/// close; it sees requests that warm up its connection, too, and does not count them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_orphaned_run_is_aborted_at_its_server() {
    let (tell, mut told) = mpsc::channel(64);
    let archive = async move |method: Method| {
        if method == Method::HEAD {
            return;
        }
        let _ = tell.try_send("asked");
        let _under = Under(tell.clone());
        std::future::pending::<()>().await;
    };
    let address = serve(Router::new().route("/archive", any(archive))).await;
    let early = "speculation = { allow = \"full\", network = true }";
    let archive = read(&address, "archive", "archive", "page", early);
    let go = Arc::new(tokio::sync::Notify::new());
    let llm = waiting(go.clone()).await;
    let server = live::serve(Builders {
        predictors: vec![Arc::new(Guesses)],
        ..engines(Arc::new(llm), &[archive])
    });
    let mut client = server.open("/v1/realtime?vendor_events=1").await;
    type_to(&mut client, "What is on page seven?").await;
    assert_eq!(told.recv().await, Some("asked"));
    go.notify_one();
    client.until("response.done").await;
    let dropped = tokio::time::timeout(support::PATIENCE, told.recv()).await;
    assert_eq!(dropped.expect("the connection closes"), Some("dropped"));
}

/// A model that answers without a call, once it is let go.
async fn waiting(go: Arc<tokio::sync::Notify>) -> Remote {
    let answer = async move || {
        go.notified().await;
        go.notify_one();
        let piece = json!({"choices": [{"index": 0, "delta": {"content": "<speech>I do not know.</speech>"}}]});
        let stop = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
        (
            [("content-type", "text/event-stream")],
            format!("data: {piece}\n\ndata: {stop}\n\ndata: [DONE]\n\n"),
        )
    };
    let address = serve(Router::new().route("/v1/chat/completions", post(answer))).await;
    let url = format!("http://{address}/v1").parse().expect("a URL");
    Remote::new(Settings::new(url, "m"), Prompts::default()).expect("a client")
}
