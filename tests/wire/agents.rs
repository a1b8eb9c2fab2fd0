//! Several agents in one server: routes, choices and handoffs, over the wire.

use crate::support;
use crate::twilio::{Order, Phone};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use support::live::{self, Hears, without_models};
use support::twilio::settings;
use support::{Client, Server, local};
use undertone::asr::Asr;
use undertone::llm::scripted::{Cue, Scripted};
use undertone::llm::{Message, Prompt};
use undertone::server::{Choosable, ServerSettings};
use undertone::session::{AgentSettings, Builders, Cast, OtherVoice, PhoneSettings, Route};
use undertone::tools::{Named, Origin, Registry, builtin};
use undertone::tts::{self, Speech, Tts, TtsError};

const BILLING: &str = "+15550100";
const SALES: &str = "+15550200";

/// A scripted voice that counts its clauses.
struct Counting(tts::Scripted, Arc<AtomicUsize>);

impl Tts for Counting {
    fn name(&self) -> &str {
        "counting"
    }

    fn sample_rate(&self) -> u32 {
        self.0.sample_rate()
    }

    fn speak(&mut self, text: &str) -> Result<Speech, TtsError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.speak(text)
    }
}

fn agent(name: &str, llm: &Scripted, tools: &[&str], handoff: &[&str]) -> AgentSettings {
    AgentSettings {
        model: Some((Arc::new(llm.clone()), None)),
        instructions: Some(format!("You are {name}.")),
        tools: Some(tools.iter().map(|tool| (*tool).to_owned()).collect()),
        handoff: handoff.iter().map(|to| (*to).to_owned()).collect(),
        ..AgentSettings::new(name)
    }
}

fn route(called: &str, agent: &str) -> Route {
    Route {
        transport: Some("phone".into()),
        values: vec![(Named::Called, called.into())],
        trust: Origin::Signalled,
        agent: agent.into(),
    }
}

fn engines(agents: Vec<AgentSettings>, routes: Vec<Route>) -> Builders {
    let mut tools = Registry::new();
    builtin::register(&mut tools).expect("no duplicates");
    Builders {
        tools: tools.into(),
        phone: PhoneSettings {
            greeting: "Hello.".into(),
            silence_prompt: None,
        },
        agents: Cast {
            agents,
            routes,
            ..Cast::default()
        },
        // Every session here has an agent with a model of its own.
        ..without_models(Arc::new(Scripted::default()))
    }
}

/// Engines whose only route leads sessions of `transport` to the agent billing, and that agent's model. Check with
/// [`reached_billing`].
pub(crate) fn billing_by(transport: &str) -> (Builders, Scripted) {
    let llm = Scripted::always("<speech>Billing here.</speech>");
    let mut billing = agent("billing", &llm, &[], &[]);
    billing.greeting = Some(String::new());
    let route = Route {
        transport: Some(transport.into()),
        values: vec![],
        trust: Origin::Signalled,
        agent: "billing".into(),
    };
    (engines(vec![billing], vec![route]), llm)
}

/// Waits until the agent billing is asked `words`.
pub(crate) async fn reached_billing(llm: &Scripted, words: &str) {
    let prompt = llm.asked(Cue::words(words)).await;
    assert_eq!(prompt.instructions.as_deref(), Some("You are billing."));
}

fn choosable(agents: &[(&str, bool)]) -> ServerSettings {
    let agents = agents.iter();
    let agents: Choosable = agents
        .map(|(name, open)| ((*name).to_owned(), *open))
        .collect();
    ServerSettings { agents, ..local() }
}

fn tools(prompt: &Prompt) -> BTreeSet<&str> {
    prompt.tools.iter().map(|tool| tool.name.as_str()).collect()
}

fn results(prompt: &Prompt) -> Vec<&Value> {
    let results = prompt.messages.iter().filter_map(|message| match message {
        Message::ToolResult { output, .. } => Some(output),
        _ => None,
    });
    results.collect()
}

fn call(tool: &str) -> String {
    format!("<tool>{tool}</tool>")
}

const TO_BILLING: &str =
    r#"<speech>One moment.</speech><tool>transfer_to_agent(agent="billing")</tool>"#;

#[tokio::test]
async fn two_numbers_reach_two_agents_with_their_own_greetings_and_tools() {
    let models = [(); 2].map(|()| Scripted::always("<speech>Yes.</speech>"));
    let mut billing = agent("billing", &models[0], &["get_time"], &[]);
    billing.greeting = Some("Billing, how can I help you today?".into());
    let mut sales = agent("sales", &models[1], &["calculate"], &["billing"]);
    sales.greeting = Some("Sales.".into());
    let routes = vec![route(BILLING, "billing"), route(SALES, "sales")];
    let server = live::serve_with(
        settings("http://127.0.0.1:1"),
        engines(vec![billing, sales], routes),
    );
    // The number, the words of the greeting, and the tools.
    let calls: [(&str, usize, &[&str]); 2] = [
        (BILLING, 7, &["get_time", "hang_up"]),
        (SALES, 1, &["calculate", "hang_up", "transfer_to_agent"]),
    ];
    for (llm, (number, words, offered)) in models.iter().zip(calls) {
        let mut phone = Phone::call_at(&server, number).await;
        let mut frames = 0;
        // A word of the scripted voice takes 200 ms, a frame 20 ms.
        while frames < 10 * words {
            let heard = phone.until("mark").await;
            frames += heard
                .iter()
                .filter(|event| event["event"] == "media")
                .count();
        }
        assert_eq!(frames, 10 * words);
        phone.order(Order::Noise(30)).await;
        let prompt = llm.asked(Cue::Always).await;
        assert_eq!(tools(&prompt), offered.iter().copied().collect());
    }
    for (llm, name) in models.iter().zip(["billing", "sales"]) {
        let instructions = format!("You are {name}.");
        let all = llm.prompts();
        let own = |prompt: &Prompt| prompt.instructions.as_deref() == Some(&instructions);
        assert!(all.iter().all(own), "{all:?}");
    }
}

async fn open(
    server: &Server,
    query: &str,
    headers: &[(&'static str, &str)],
) -> Result<Client, u16> {
    server
        .try_open(&format!("/v1/realtime{query}"), headers)
        .await
}

/// Types a message and asks for the answer to it.
async fn type_to(client: &mut Client, text: &str) {
    let item = json!({"type": "message", "role": "user",
        "content": [{"type": "input_text", "text": text}]});
    client
        .send(json!({"type": "conversation.item.create", "item": item}))
        .await;
    client.send(json!({"type": "response.create"})).await;
}

#[tokio::test]
async fn a_handoff_keeps_the_history_and_the_next_agent_has_its_own_model_tools_and_voice() {
    let desk = Scripted::always(TO_BILLING);
    let billing = Scripted::default()
        .on(Cue::result("transfer_to_agent"), call("get_time()"))
        .on(
            Cue::result("get_time"),
            call(r#"calculate(expression="2 + 2")"#),
        )
        .on(Cue::result("calculate"), "<speech>It is four.</speech>");
    let clauses = Arc::new(AtomicUsize::new(0));
    let counted = clauses.clone();
    let load = move || {
        let voice = Counting(tts::Scripted::new(), counted.clone());
        Ok(Box::new(voice) as Box<dyn Tts>)
    };
    let voice = OtherVoice::Local(tts::OnDemand::of(&tts::Scripted::new(), load));
    let mut next = agent("billing", &billing, &["calculate"], &[]);
    next.voice = Some("deep".into());
    let first = agent("desk", &desk, &["get_time"], &["billing"]);
    let mut engines = engines(vec![first, next], Vec::new());
    engines.voices.insert("deep".into(), voice);
    let metrics = engines.observers.metrics.clone();
    let server = live::serve_with(choosable(&[("desk", true), ("billing", false)]), engines);
    // Fixed phrases were prepared in each voice before.
    let before = clauses.load(Ordering::Relaxed);

    let mut client = open(&server, "?model=desk", &[])
        .await
        .expect("the socket opens");
    let created = client.until("session.created").await;
    assert_eq!(created[0]["session"]["model"], "desk");
    let pirate = json!({"type": "realtime", "instructions": "Speak like a pirate."});
    client
        .send(json!({"type": "session.update", "session": pirate}))
        .await;
    client.until("session.updated").await;
    type_to(&mut client, "My invoice is wrong.").await;
    let events = client.until("response.done").await;
    let updated = events
        .iter()
        .find(|event| event["type"] == "session.updated");
    let session = &updated.expect("the session has changed")["session"];
    assert_eq!(session["model"], "billing");
    assert_eq!(session["instructions"], "Speak like a pirate.");

    let prompt = billing.asked(Cue::result("calculate")).await;
    assert_eq!(tools(&prompt), BTreeSet::from(["calculate"]));
    let instructions = prompt.instructions.as_deref().expect("instructions");
    assert_eq!(instructions, "You are billing.\n\nSpeak like a pirate.");
    let users = prompt
        .messages
        .iter()
        .filter(|m| matches!(m, Message::User { .. }));
    assert_eq!(users.count(), 1);
    let said = |text: &str| {
        let is_it = |m: &Message| matches!(m, Message::Agent { text: said, .. } if said == text);
        prompt.messages.iter().any(is_it)
    };
    assert!(said("One moment."), "{prompt:?}");
    let results = results(&prompt);
    assert_eq!(results[0]["agent"], "billing");
    assert_eq!(results[1]["error"], "there is no tool named get_time");
    assert!(results[2].get("error").is_none(), "{results:?}");
    for prompt in desk.prompts() {
        assert_eq!(
            tools(&prompt),
            BTreeSet::from(["get_time", "transfer_to_agent"])
        );
        assert!(
            prompt
                .messages
                .iter()
                .all(|m| matches!(m, Message::User { .. }))
        );
    }
    assert_eq!(
        clauses.load(Ordering::Relaxed),
        before + 1,
        "only the answer is in its voice"
    );
    let metrics = metrics.render();
    assert!(
        metrics.contains(r#"undertone_handoffs_total{from="desk",to="billing"} 1"#),
        "{metrics}"
    );
    assert!(
        metrics.contains(r#"undertone_agent_turns_total{agent="billing"} 1"#),
        "{metrics}"
    );
}

/// A recogniser that hears the second question if the user is louder.
fn two_questions() -> Box<dyn Asr> {
    Box::new(Hears(|samples: &[f32]| {
        let loud = samples.iter().any(|sample| sample.abs() > 0.4);
        Ok(match loud {
            true => "What is two plus two?".into(),
            false => "My invoice is wrong.".into(),
        })
    }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_asks_for_billing_aloud_and_goes_on_with_it() {
    let desk = Scripted::always(TO_BILLING);
    let billing = Scripted::default()
        .on(
            Cue::result("transfer_to_agent"),
            "<speech>Billing here.</speech>",
        )
        .on(Cue::result("calculate"), "<speech>It is four.</speech>")
        .on(Cue::words("plus"), call(r#"calculate(expression="2 + 2")"#));
    let agents = vec![
        agent("desk", &desk, &["get_time"], &["billing"]),
        agent("billing", &billing, &["calculate"], &[]),
    ];
    let engines = Builders {
        asr: Box::new(|| Ok(two_questions())),
        ..engines(agents, Vec::new())
    };
    let server = live::serve_with(choosable(&[("desk", true)]), engines);
    let path = "/v1/realtime?vendor_events=1&agent=desk";
    let mut caller = live::Call::at(&server, path).await.expect("it opens");
    caller.say(&live::tone(600)).await;
    let events = caller.until("response.done").await;
    assert_eq!(live::said(&events), "One moment.Billing here.");
    let audio: u64 = events.iter().map(live::Heard::audio_ms).sum();
    assert!(audio >= 800, "{audio} ms of four words");
    // The answer is heard to its end before the next question.
    let mut louder = vec![0; 24 * 1_500];
    louder.extend([16_000; 24 * 600]);
    caller.say(&louder).await;
    let events = caller.until("response.done").await;
    assert_eq!(live::said(&events), "It is four.");

    let prompt = billing.asked(Cue::result("calculate")).await;
    assert_eq!(prompt.instructions.as_deref(), Some("You are billing."));
    assert_eq!(tools(&prompt), BTreeSet::from(["calculate"]));
    let texts = prompt.messages.iter().filter_map(|message| match message {
        Message::User { text } | Message::Agent { text, .. } => Some(text.as_str()),
        _ => None,
    });
    let heard = [
        "My invoice is wrong.",
        "One moment.",
        "Billing here.",
        "What is two plus two?",
    ];
    assert_eq!(texts.collect::<Vec<_>>(), heard);
    let louder = |prompt: &Prompt| Cue::words("plus").fits(prompt);
    assert!(
        !desk.prompts().iter().any(louder),
        "the desk was asked again"
    );
}

#[tokio::test]
async fn the_fifth_handoff_of_a_session_is_refused() {
    let to = |agent: &str| Scripted::always(call(&format!("transfer_to_agent(agent=\"{agent}\")")));
    let (ping, pong) = (to("pong"), to("ping"));
    let agents = vec![
        agent("ping", &ping, &[], &["pong"]),
        agent("pong", &pong, &[], &["ping"]),
    ];
    let server = live::serve_with(choosable(&[("ping", true)]), engines(agents, Vec::new()));
    let mut client = open(&server, "?agent=ping", &[])
        .await
        .expect("the socket opens");
    type_to(&mut client, "Who is there?").await;
    client.until("response.done").await;
    let all = [ping.prompts(), pong.prompts()].concat();
    let last = all
        .iter()
        .max_by_key(|prompt| results(prompt).len())
        .expect("a prompt");
    let results = results(last);
    let refused = |result: &&&Value| result.get("error").is_some();
    assert_eq!(
        (results.len(), results.iter().filter(refused).count()),
        (5, 1)
    );
    let why = results[4]["error"].as_str().expect("a reason");
    assert!(why.contains("too often"), "{why}");
}

#[tokio::test]
async fn an_agent_hands_over_only_to_agents_that_its_file_names() {
    let desk = Scripted::default()
        .on(Cue::result("transfer_to_agent"), "<speech>Sorry.</speech>")
        .on(Cue::Always, call(r#"transfer_to_agent(agent="vault")"#));
    let agents = vec![
        agent("desk", &desk, &[], &["billing"]),
        agent("billing", &Scripted::default(), &[], &[]),
        agent("vault", &Scripted::default(), &[], &[]),
    ];
    let server = live::serve_with(choosable(&[("desk", true)]), engines(agents, Vec::new()));
    let mut client = open(&server, "?agent=desk", &[])
        .await
        .expect("the socket opens");
    type_to(&mut client, "Open the vault.").await;
    let prompt = desk.asked(Cue::result("transfer_to_agent")).await;
    assert_eq!(
        results(&prompt)[0]["error"],
        "wrong arguments: agent: use one of billing"
    );
}

#[tokio::test]
async fn clients_choose_an_agent_with_a_secret_with_the_token_or_if_it_is_open_to_all() {
    let models = [(); 2].map(|()| Scripted::always("<speech>Yes.</speech>"));
    let agents = ["billing", "desk"].into_iter().zip(&models);
    let agents = agents
        .map(|(name, llm)| agent(name, llm, &[], &[]))
        .collect();
    let settings = ServerSettings {
        auth_token: Some("operator".to_owned().into()),
        ..choosable(&[("billing", false), ("desk", true)])
    };
    let server = live::serve_with(settings, engines(agents, Vec::new()));
    let secret = async |body: Value| {
        let url = format!("http://{}/v1/realtime/client_secrets", server.address);
        let request = reqwest::Client::new().post(url).bearer_auth("operator");
        let answer = request.json(&body).send().await.expect("an answer");
        answer.json::<Value>().await.expect("JSON")
    };
    let bearer = |secret: &Value| format!("Bearer {}", secret["value"].as_str().expect("a secret"));
    let named = bearer(&secret(json!({"undertone": {"agent": "billing"}})).await);
    let model = bearer(&secret(json!({"session": {"type": "realtime", "model": "billing"}})).await);
    let plain = bearer(&secret(json!({})).await);
    let unknown = secret(json!({"undertone": {"agent": "nobody"}})).await;
    assert_eq!(unknown["error"]["param"], "undertone.agent");

    // The agent that answers; an error status if there is none.
    let reached = async |query: &str, bearer: &str| {
        let headers = [("authorization", bearer)];
        let mut client = open(&server, query, &headers).await?;
        let created = client.until("session.created").await;
        Ok::<Value, u16>(created[0]["session"]["model"].clone())
    };
    let token = "Bearer operator";
    assert_eq!(reached("", &named).await, Ok(json!("billing")));
    assert_eq!(
        reached("?model=gpt-realtime", &model).await,
        Ok(json!("billing"))
    );
    assert_eq!(reached("?agent=desk", &named).await, Err(400));
    assert_eq!(reached("?agent=billing", &plain).await, Err(400));
    assert_eq!(reached("?agent=desk", &plain).await, Ok(json!("desk")));
    assert_eq!(reached("?agent=billing", token).await, Ok(json!("billing")));
    assert_eq!(
        reached("?model=gpt-realtime", token).await,
        Ok(json!("gpt-realtime"))
    );

    let headers = [("authorization", plain.as_str())];
    let query = "?model=billing";
    let mut client = open(&server, query, &headers)
        .await
        .expect("models of any name work");
    client.until("session.created").await;
    drop(client);
    let mut client = open(&server, "", &[("authorization", named.as_str())])
        .await
        .expect("opens");
    type_to(&mut client, "Hello.").await;
    let prompt = models[0].asked(Cue::words("hello")).await;
    assert_eq!(prompt.instructions.as_deref(), Some("You are billing."));
}

/// A secret for one agent reached any other, or `default` with all tools, where telephones come in; and one for
/// transcripts an agent that answers at `/v1/pcm`.
#[tokio::test]
async fn a_client_secret_opens_no_telephone_call_and_no_other_session_than_it_configures() {
    let llm = Scripted::always("<speech>Yes.</speech>");
    let settings = ServerSettings {
        auth_token: Some("operator".to_owned().into()),
        ..choosable(&[("desk", true)])
    };
    let agents = vec![agent("desk", &llm, &[], &[])];
    let server = live::serve_with(settings, engines(agents, Vec::new()));
    let secret = async |body: Value| {
        let url = format!("http://{}/v1/realtime/client_secrets", server.address);
        let request = reqwest::Client::new().post(url).bearer_auth("operator");
        let answer = request.json(&body).send().await.expect("an answer");
        let answer: Value = answer.json().await.expect("JSON");
        format!("Bearer {}", answer["value"].as_str().expect("a secret"))
    };
    let status = async |path: &str, bearer: &str| {
        let opened = server.try_open(path, &[("authorization", bearer)]).await;
        opened.map(drop)
    };
    let plain = secret(json!({"undertone": {"agent": "desk"}})).await;
    for path in ["/asterisk/media", "/telnyx/media", "/plivo/media"] {
        assert_eq!(status(path, &plain).await, Err(401), "{path}");
        assert_eq!(status(path, "Bearer operator").await, Ok(()), "{path}");
    }
    assert_eq!(status("/v1/pcm", &plain).await, Ok(()));
    let session = json!({"type": "realtime", "model": "desk", "audio": {}, "instructions": null});
    let by_model = secret(json!({"session": session})).await;
    assert_eq!(status("/v1/pcm", &by_model).await, Ok(()));
    for session in [
        json!({"type": "transcription"}),
        json!({"type": "realtime", "instructions": "Be brief."}),
    ] {
        let configured = secret(json!({"session": session})).await;
        assert_eq!(status("/v1/pcm", &configured).await, Err(400));
    }
}
