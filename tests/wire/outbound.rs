//! Tests calls that the server places, against strict fakes of Twilio's REST API and Asterisk's.

use crate::support;
use crate::twilio::{Order, Phone};
use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use support::live::{self, without_models};
use support::twilio::{self, ACCOUNT, CALL, PUBLIC, TOKEN};
use support::{PATIENCE, Server};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use undertone::asr::AsrError;
use undertone::audio::g711::Law;
use undertone::llm::scripted::{Cue, Scripted};
use undertone::server::{App, Ari, OutboundCalls, OutboundLine, ServerSettings, SessionOptions};
use undertone::session::{self, AgentSettings, Builders, Cast, Engines, PhoneSettings, PlacedCall};
use undertone::tools::Named;

const KEY: &str = "0123456789abcdef";
const CALLEE: &str = "+15550100";
const OWN: &str = "+15550199";
const MESSAGE: &str = "Your cake is ready.";

/// A call that a machine may have answered.
fn watched() -> PlacedCall {
    PlacedCall::Answered {
        message: MESSAGE.into(),
    }
}

fn outbound(line: OutboundLine) -> OutboundCalls {
    OutboundCalls {
        allow: vec![CALLEE.into(), "+4930*".into()],
        max_calls: 2,
        per_hour: 20,
        ring: Duration::from_secs(30),
        message: MESSAGE.into(),
        line,
    }
}

/// Twilio's `Calls.json`: refuses what Twilio would, and passes on what it takes.
async fn calls_json() -> (String, mpsc::Receiver<BTreeMap<String, String>>) {
    calls_json_that(true).await
}

/// The same, which `answers` or breaks off when it has placed a call.
async fn calls_json_that(answers: bool) -> (String, mpsc::Receiver<BTreeMap<String, String>>) {
    let (told, placed) = mpsc::channel(8);
    let place = move |State(told): State<mpsc::Sender<BTreeMap<String, String>>>,
                      headers: HeaderMap,
                      body: String| async move {
        let refused = |status: StatusCode, code: u32, message: &str| {
            let body = json!({"code": code, "message": message, "status": status.as_u16()});
            (status, axum::Json(body)).into_response()
        };
        let key = STANDARD.encode(format!("{ACCOUNT}:{TOKEN}"));
        if headers
            .get("authorization")
            .is_none_or(|shown| *shown != format!("Basic {key}"))
        {
            return refused(StatusCode::UNAUTHORIZED, 20_003, "Authenticate");
        }
        let form: BTreeMap<String, String> = url::form_urlencoded::parse(body.as_bytes())
            .into_owned()
            .collect();
        let known = [
            "To",
            "From",
            "Url",
            "Method",
            "Timeout",
            "TimeLimit",
            "StatusCallback",
            "StatusCallbackMethod",
        ];
        if let Some(unknown) = form.keys().find(|name| !known.contains(&name.as_str())) {
            return refused(StatusCode::BAD_REQUEST, 21_000, unknown);
        }
        if form.get("From").is_none_or(|from| from != OWN) {
            let message = "The source phone number provided is not yet verified for your account.";
            return refused(StatusCode::BAD_REQUEST, 21_210, message);
        }
        let is_url = |name: &str| {
            form.get(name)
                .is_some_and(|url| url.starts_with("https://"))
        };
        if !form.contains_key("To") || !is_url("Url") || !is_url("StatusCallback") {
            return refused(
                StatusCode::BAD_REQUEST,
                21_205,
                "Url parameter is required.",
            );
        }
        told.send(form).await.expect("room");
        assert!(answers, "this ends the connection, as it should");
        let made = json!({"sid": CALL, "status": "queued", "account_sid": ACCOUNT});
        (StatusCode::CREATED, axum::Json(made)).into_response()
    };
    let path = format!("/2010-04-01/Accounts/{ACCOUNT}/Calls.json");
    let app = Router::new().route(&path, post(place)).with_state(told);
    (served(app).await, placed)
}

async fn served(app: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}")
}

fn engines(llm: &Scripted, heard: &'static str) -> Builders {
    let hears = move |_: &[f32]| Ok::<_, AsrError>(heard.to_owned());
    let baker = AgentSettings {
        greeting: Some("Hello from the bakery.".into()),
        ..AgentSettings::new("baker")
    };
    Builders {
        asr: Box::new(move || Ok(Box::new(live::Hears(hears)))),
        phone: PhoneSettings {
            greeting: "Hello.".into(),
            silence_prompt: None,
        },
        agents: Cast {
            agents: vec![baker],
            ..Cast::default()
        },
        ..without_models(Arc::new(llm.clone()))
    }
}

/// A server with a token, and the options of the sessions that it opens.
fn serve(settings: ServerSettings, engines: Builders) -> (Server, mpsc::Receiver<SessionOptions>) {
    serve_while(Arc::default(), settings, engines)
}

/// The same, which is overloaded when `overloaded` says so.
fn serve_while(
    overloaded: Arc<AtomicBool>,
    settings: ServerSettings,
    engines: Builders,
) -> (Server, mpsc::Receiver<SessionOptions>) {
    let settings = ServerSettings {
        auth_token: Some(KEY.to_owned().into()),
        agents: [("baker".to_owned(), false), ("default".to_owned(), false)]
            .into_iter()
            .collect(),
        ..settings
    };
    let engines = Engines::start(engines).expect("engines");
    let (opened, options) = mpsc::channel(8);
    let sessions = Arc::new(move |options: SessionOptions| {
        opened.try_send(options.clone()).expect("the test takes it");
        Ok(session::open(&engines, &options))
    });
    let app = App {
        room: Arc::new(move || !overloaded.load(Relaxed)),
        ..App::new(settings, sessions)
    };
    (Server::serve(app), options)
}

async fn place(server: &Server, token: &str, body: Value) -> (u16, Value) {
    let request = reqwest::Client::new()
        .post(format!("http://{}/v1/calls/outbound", server.address))
        .bearer_auth(token)
        .json(&body);
    let answer = request.send().await.expect("an answer");
    let status = answer.status().as_u16();
    (status, answer.json().await.expect("JSON"))
}

async fn status(server: &Server, id: &str) -> Value {
    let request = reqwest::Client::new()
        .get(format!("http://{}/v1/calls/outbound/{id}", server.address))
        .bearer_auth(KEY);
    let state: Value = request
        .send()
        .await
        .expect("an answer")
        .json()
        .await
        .expect("JSON");
    state["status"].clone()
}

/// Posts to a webhook whose whole address Twilio was given.
async fn tell(server: &Server, url: &str, parameters: &[(&str, &str)]) -> (u16, String) {
    let hook = url
        .strip_prefix(&format!("https://{PUBLIC}/twilio/"))
        .expect("ours");
    twilio::tell(server, hook, parameters, None).await
}

fn with_twilio(api: &str) -> ServerSettings {
    let settings = twilio::settings(api);
    ServerSettings {
        outbound: Some(outbound(OutboundLine::Twilio { from: OWN.into() })),
        ..settings
    }
}

/// Twilio's parameters when somebody answers a placed call.
const PICKED_UP: [(&str, &str); 4] = [
    ("AccountSid", ACCOUNT),
    ("CallSid", CALL),
    ("From", OWN),
    ("To", CALLEE),
];

/// A call that was placed and answered, with its id.
async fn answered(
    server: &Server,
    placed: &mut mpsc::Receiver<BTreeMap<String, String>>,
) -> (String, String, Phone) {
    let wanted = json!({"to": CALLEE, "agent": "baker", "params": {"cake": "lemon"}});
    let (code, state) = place(server, KEY, wanted).await;
    assert_eq!(
        (code, &state["status"]),
        (201, &json!("ringing")),
        "{state}"
    );
    let id = state["id"].as_str().expect("an id").to_owned();
    let form = timeout(PATIENCE, placed.recv())
        .await
        .expect("in time")
        .expect("a call");
    assert_eq!(
        (form["To"].as_str(), form["Timeout"].as_str()),
        (CALLEE, "30")
    );
    let answer = tell(server, &form["Url"], &PICKED_UP).await;
    // The same request leads nobody in again.
    let (_, again) = tell(server, &form["Url"], &PICKED_UP).await;
    assert!(again.contains("<Hangup/>"), "{again}");
    let phone = Phone::answered_as(server, answer).await;
    (id, form["StatusCallback"].clone(), phone)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_through_twilio_is_placed_answered_and_over() {
    let (api, mut placed) = calls_json().await;
    let llm = Scripted::default().on(Cue::Turn(1), "<speech>It is ready.</speech>");
    let (server, mut sessions) = serve(with_twilio(&api), engines(&llm, "Hello?"));
    let (id, callback, mut phone) = answered(&server, &mut placed).await;
    let options = timeout(PATIENCE, sessions.recv())
        .await
        .expect("in time")
        .expect("a session");
    assert_eq!(options.agent.as_deref(), Some("baker"));
    assert_eq!(options.placed, Some(watched()));
    let cake = options.values.get(&Named::Param("cake".into()));
    assert_eq!(cake.map(|(value, _)| value), Some("lemon"));
    // Twilio names the server's own number as the caller's: of two people called, the second was told of the first's
    // booking with `once_per = "caller"`.
    assert_eq!(options.values.get(&Named::Caller), None);
    let called = options.values.get(&Named::Called);
    assert_eq!(called.map(|(value, _)| value), Some(CALLEE));
    assert_eq!(status(&server, &id).await, "answered");
    // It speaks at once, and to a person it speaks on.
    phone.until("mark").await;
    phone.order(Order::Noise(30)).await;
    llm.asked(Cue::Turn(1)).await;
    let parameters = [
        ("AccountSid", ACCOUNT),
        ("CallSid", CALL),
        ("CallStatus", "completed"),
    ];
    assert_eq!(tell(&server, &callback, &parameters).await.0, 204);
    assert_eq!(status(&server, &id).await, "completed");
}

/// The load rose while the telephone rang, and whoever answered heard that all lines were busy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_answers_a_placed_call_is_connected_even_under_overload() {
    let (api, mut placed) = calls_json().await;
    let overloaded = Arc::new(AtomicBool::new(false));
    let llm = Scripted::default();
    let (server, _sessions) = serve_while(
        overloaded.clone(),
        with_twilio(&api),
        engines(&llm, "Hello?"),
    );
    let wanted = json!({"to": CALLEE, "agent": "baker"});
    assert_eq!(place(&server, KEY, wanted.clone()).await.0, 201);
    overloaded.store(true, Relaxed);
    assert_eq!(place(&server, KEY, wanted).await.0, 503);
    let form = timeout(PATIENCE, placed.recv()).await;
    let form = form.expect("in time").expect("a call");
    let answer = tell(&server, &form["Url"], &PICKED_UP).await;
    let mut phone = Phone::answered_as(&server, answer).await;
    phone.until("mark").await;
}

/// Whoever answered was hung up on, because the server had begun to drain while the telephone rang.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_answers_a_placed_call_is_connected_while_the_server_drains() {
    let (api, mut placed) = calls_json().await;
    let settings = ServerSettings {
        drain_deadline: Duration::from_secs(3_600),
        ..with_twilio(&api)
    };
    let (server, _sessions) = serve(settings, engines(&Scripted::default(), "Hello?"));
    let wanted = json!({"to": CALLEE, "agent": "baker"});
    assert_eq!(place(&server, KEY, wanted).await.0, 201);
    server.shutdown.cancel();
    let form = timeout(PATIENCE, placed.recv()).await;
    let form = form.expect("in time").expect("a call");
    let answer = tell(&server, &form["Url"], &PICKED_UP).await;
    let mut phone = Phone::answered_as(&server, answer).await;
    phone.until("mark").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answering_machine_gets_the_message_and_is_hung_up_on() {
    let (api, mut placed) = calls_json().await;
    let llm = Scripted::default();
    let machine = "Please leave a message after the tone.";
    let (server, _sessions) = serve(with_twilio(&api), engines(&llm, machine));
    let (.., mut phone) = answered(&server, &mut placed).await;
    phone.until("mark").await;
    phone.order(Order::Noise(60)).await;
    // Its silence, then the message of four words, then the end of the stream.
    let rest = timeout(PATIENCE, phone.rest()).await.expect("it hangs up");
    let media = rest
        .iter()
        .filter(|event| event["event"] == "media")
        .count();
    assert!(media >= 40, "{media} frames of the message");
    assert!(llm.prompts().is_empty(), "nobody is answered");
}

#[tokio::test]
async fn calls_are_placed_for_the_token_alone_to_allowed_numbers_and_not_too_many() {
    let (api, mut placed) = calls_json().await;
    let (server, _sessions) = serve(with_twilio(&api), engines(&Scripted::default(), ""));
    let to = |number: &str| json!({ "to": number });
    let code = |answer: (u16, Value)| {
        let code = answer.1["error"]["code"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        (answer.0, code)
    };
    let refused = [
        (
            place(&server, "wrong", to(CALLEE)).await,
            401,
            "invalid_api_key",
        ),
        (
            place(&server, KEY, to("+15550101")).await,
            403,
            "number_not_allowed",
        ),
        (place(&server, KEY, to("0800")).await, 400, "invalid_value"),
        (
            place(&server, KEY, json!({"to": CALLEE, "agent": "nobody"})).await,
            400,
            "agent_not_found",
        ),
        (
            place(&server, KEY, json!({"to": CALLEE, "form": OWN})).await,
            400,
            "invalid_value",
        ),
        (
            place(
                &server,
                KEY,
                json!({"to": CALLEE, "params": {"note": "two\nlines"}}),
            )
            .await,
            400,
            "invalid_value",
        ),
    ];
    for (answer, status, expected) in refused {
        assert_eq!(code(answer), (status, expected.into()));
    }
    for number in [CALLEE, "+49301234567"] {
        assert_eq!(place(&server, KEY, to(number)).await.0, 201);
        placed.recv().await.expect("a call");
    }
    assert_eq!(
        code(place(&server, KEY, to(CALLEE)).await),
        (429, "too_many_calls".into())
    );
    assert!(placed.try_recv().is_err());
}

/// The telephone used to ring, and whoever answered was told that all lines are busy.
#[tokio::test]
async fn a_server_without_a_free_place_calls_nobody() {
    let (api, mut placed) = calls_json().await;
    let settings = ServerSettings {
        max_sessions: 0,
        ..with_twilio(&api)
    };
    let (server, _sessions) = serve(settings, engines(&Scripted::default(), ""));
    let (status, answer) = place(&server, KEY, json!({"to": CALLEE})).await;
    assert_eq!(
        (status, &answer["error"]["code"]),
        (503, &json!("no_place"))
    );
    assert!(placed.try_recv().is_err());
}

#[tokio::test]
async fn what_twilio_says_against_a_call_is_told_and_the_call_has_failed() {
    let (api, _placed) = calls_json().await;
    let mut settings = with_twilio(&api);
    settings.outbound = Some(outbound(OutboundLine::Twilio {
        from: "+15550000".into(),
    }));
    let (server, _sessions) = serve(settings, engines(&Scripted::default(), ""));
    for _ in 0..3 {
        let (status, answer) = place(&server, KEY, json!({"to": CALLEE})).await;
        assert_eq!(status, 502);
        let message = answer["error"]["message"].as_str().expect("a message");
        assert!(message.contains("not yet verified"), "{message}");
    }
}

/// The call counted as failed, and the person who answered was hung up on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_twilio_may_have_placed_without_saying_so_is_uncertain_and_is_served() {
    let (api, mut placed) = calls_json_that(false).await;
    let llm = Scripted::default();
    let (server, _sessions) = serve(with_twilio(&api), engines(&llm, "Hello?"));
    let wanted = json!({"to": CALLEE, "agent": "baker"});
    let (code, state) = place(&server, KEY, wanted.clone()).await;
    let uncertain = json!("uncertain");
    assert_eq!((code, &state["status"]), (202, &uncertain), "{state}");
    let message = state["message"].as_str().expect("a message");
    assert!(message.contains("may have been placed"), "{message}");
    let (code, refused) = place(&server, KEY, wanted).await;
    let expected = json!("call_uncertain");
    assert_eq!((code, &refused["error"]["code"]), (409, &expected));
    let form = placed.recv().await.expect("a call");
    assert!(placed.try_recv().is_err(), "the telephone rings once");
    let answer = tell(&server, &form["Url"], &PICKED_UP).await;
    let mut phone = Phone::answered_as(&server, answer).await;
    phone.until("mark").await;
    let id = state["id"].as_str().expect("an id");
    assert_eq!(status(&server, id).await, "answered");
}

/// An Asterisk: dials, and forgets the channel when it is told to.
struct Asterisk {
    url: String,
    dialed: mpsc::Receiver<Value>,
    is_up: watch::Sender<bool>,
    /// Whether it answers a request to dial, or lets it wait.
    answers: watch::Sender<bool>,
    /// Whether it breaks off when it has dialed.
    breaks: watch::Sender<bool>,
    hung_up: mpsc::Receiver<String>,
}

async fn asterisk() -> Asterisk {
    type Known = (
        mpsc::Sender<Value>,
        watch::Receiver<bool>,
        watch::Receiver<bool>,
        watch::Receiver<bool>,
        mpsc::Sender<String>,
    );
    let may = |headers: &HeaderMap| {
        let key = format!("Basic {}", STANDARD.encode("undertone:secret"));
        headers
            .get("authorization")
            .is_some_and(|shown| *shown == key)
    };
    let dial = move |State((told, _, mut answers, breaks, _)): State<Known>,
                     headers: HeaderMap,
                     axum::Json(body): axum::Json<Value>| async move {
        if !may(&headers) {
            return StatusCode::UNAUTHORIZED.into_response();
        }
        // ARI takes a channel that goes to an extension or to an application, not both.
        let wanted = ["endpoint", "context", "extension", "priority", "channelId"];
        if wanted.iter().any(|name| body[*name].is_null()) || !body["app"].is_null() {
            let error = json!({"message": "Application or extension must be specified"});
            return (StatusCode::BAD_REQUEST, axum::Json(error)).into_response();
        }
        let channel = json!({"id": body["channelId"], "state": "Down"});
        told.send(body).await.expect("room");
        assert!(!*breaks.borrow(), "this ends the connection, as it should");
        let _ = answers.wait_for(|answers| *answers).await;
        axum::Json(channel).into_response()
    };
    let look = move |State((_, up, ..)): State<Known>,
                     headers: HeaderMap,
                     Path(id): Path<String>| async move {
        let answer: Response = match (may(&headers), *up.borrow()) {
            (false, _) => StatusCode::UNAUTHORIZED.into_response(),
            (true, true) => axum::Json(json!({"id": id, "state": "Up"})).into_response(),
            (true, false) => StatusCode::NOT_FOUND.into_response(),
        };
        answer
    };
    let hang_up = move |State((_, up, _, _, told)): State<Known>, Path(id): Path<String>| async move {
        told.send(id).await.expect("room");
        match *up.borrow() {
            true => StatusCode::NO_CONTENT,
            false => StatusCode::NOT_FOUND,
        }
    };
    let (told, dialed) = mpsc::channel(8);
    let (tell, hung_up) = mpsc::channel(8);
    let (is_up, up) = watch::channel(true);
    let (answers, may_answer) = watch::channel(true);
    let (breaks, may_break) = watch::channel(false);
    let app = Router::new()
        .route("/ari/channels", post(dial))
        .route("/ari/channels/{id}", get(look).delete(hang_up))
        .with_state((told, up, may_answer, may_break, tell));
    let url = format!("{}/ari", served(app).await);
    Asterisk {
        url,
        dialed,
        is_up,
        answers,
        breaks,
        hung_up,
    }
}

fn with_asterisk(asterisk: &Asterisk) -> ServerSettings {
    let ari = Ari {
        url: asterisk.url.parse().expect("a URL"),
        user: "undertone".into(),
        password: "secret".to_owned().into(),
        endpoint: "PJSIP/{digits}@trunk".into(),
        context: "undertone".into(),
        caller_id: None,
    };
    ServerSettings {
        outbound: Some(outbound(OutboundLine::Asterisk(ari))),
        ..support::local()
    }
}

const START: &str = "MEDIA_START connection_id:media channel:WebSocket/media/0x1 \
                     channel_id:1.1 format:ulaw optimal_frame_size:160 ptime:20";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_through_asterisk_comes_back_with_its_ticket() {
    let mut asterisk = asterisk().await;
    let llm = Scripted::default().on(Cue::Turn(1), "<speech>It is ready.</speech>");
    let (server, mut sessions) = serve(with_asterisk(&asterisk), engines(&llm, "Hello?"));
    let (code, state) = place(&server, KEY, json!({"to": CALLEE, "agent": "baker"})).await;
    assert_eq!(code, 201, "{state}");
    let id = state["id"].as_str().expect("an id").to_owned();
    let dialed = timeout(PATIENCE, asterisk.dialed.recv())
        .await
        .expect("in time")
        .expect("a call");
    assert_eq!(dialed["endpoint"], "PJSIP/15550100@trunk");
    assert_eq!(dialed["context"], "undertone");
    let ticket = dialed["variables"]["UNDERTONE_TICKET"]
        .as_str()
        .expect("a ticket");
    let bearer = format!("Bearer {KEY}");
    let token = [("authorization", bearer.as_str())];
    let path = |ticket: &str| format!("/asterisk/media?ticket={ticket}");
    assert!(server.try_open(&path("forged"), &token).await.is_err());
    let mut client = server
        .try_open(&path(ticket), &token)
        .await
        .expect("a call");
    client.send_text(START).await;
    let options = timeout(PATIENCE, sessions.recv())
        .await
        .expect("in time")
        .expect("a session");
    assert_eq!(
        (options.agent.as_deref(), options.placed),
        (Some("baker"), Some(watched()))
    );
    assert!(
        server.try_open(&path(ticket), &token).await.is_err(),
        "it is used up"
    );
    for sample in [[8_000; 40], [0; 40]].concat() {
        client.send_bytes(Law::Mu.encode(&[sample; 160])).await;
    }
    llm.asked(Cue::Turn(1)).await;
    assert_eq!(status(&server, &id).await, "answered");
    asterisk.is_up.send_replace(false);
    let over = async { while status(&server, &id).await != "completed" {} };
    timeout(PATIENCE, over).await.expect("it is over");
}

#[tokio::test]
async fn a_telephone_that_nobody_answers_is_told() {
    let asterisk = asterisk().await;
    let (server, _sessions) = serve(with_asterisk(&asterisk), engines(&Scripted::default(), ""));
    let (code, state) = place(&server, KEY, json!({"to": CALLEE})).await;
    assert_eq!(code, 201, "{state}");
    asterisk.is_up.send_replace(false);
    let id = state["id"].as_str().expect("an id");
    let over = async { while status(&server, id).await != "no_answer" {} };
    timeout(PATIENCE, over).await.expect("it is over");
}

/// A call whose client left while Asterisk was told to dial used to take a place of `outbound.max_calls` for ever.
#[tokio::test]
async fn a_call_is_watched_although_its_client_has_left() {
    let mut asterisk = asterisk().await;
    asterisk.answers.send_replace(false);
    let (server, _sessions) = serve(with_asterisk(&asterisk), engines(&Scripted::default(), ""));
    let leaving = timeout(
        Duration::from_millis(500),
        place(&server, KEY, json!({"to": CALLEE})),
    );
    assert!(leaving.await.is_err(), "the client gives up");
    let dialed = asterisk.dialed.recv().await.expect("a call");
    tokio::time::sleep(Duration::from_millis(200)).await;
    asterisk.answers.send_replace(true);
    let bearer = format!("Bearer {KEY}");
    let ticket = dialed["variables"]["UNDERTONE_TICKET"].as_str();
    let path = format!("/asterisk/media?ticket={}", ticket.expect("a ticket"));
    let _phone = server
        .try_open(&path, &[("authorization", bearer.as_str())])
        .await
        .expect("a call");
    asterisk.is_up.send_replace(false);
    let id = dialed["channelId"].as_str().expect("an id");
    let over = async { while status(&server, id).await != "completed" {} };
    timeout(PATIENCE, over).await.expect("it is over");
}

/// A telephone used to ring on, and whoever answered heard nobody, when Asterisk did not answer the request to dial.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_asterisk_may_have_placed_without_saying_so_is_hung_up() {
    let mut asterisk = asterisk().await;
    asterisk.breaks.send_replace(true);
    asterisk.is_up.send_replace(false);
    let (server, _sessions) = serve(with_asterisk(&asterisk), engines(&Scripted::default(), ""));
    let (code, state) = place(&server, KEY, json!({"to": CALLEE})).await;
    assert_eq!(code, 502, "{state}");
    let dialed = asterisk.dialed.recv().await.expect("a call");
    let id = dialed["channelId"].as_str().expect("an id");
    assert_eq!(status(&server, id).await, "failed");
    let mut told = async || {
        let told = timeout(PATIENCE, asterisk.hung_up.recv()).await;
        told.expect("in time").expect("a request")
    };
    assert_eq!(told().await, id, "the channel is not there yet");
    asterisk.is_up.send_replace(true);
    assert_eq!(told().await, id, "it is tried again");
}
