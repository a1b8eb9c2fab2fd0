//! Tests telephone calls over Twilio's ConversationRelay, with text in both directions. The tests
//! play Twilio's part, since there is no published simulator of this protocol.

use crate::{agents, common, keypad, support};
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use support::live::{self, without_models};
use support::twilio::{self, ACCOUNT, CALL, PUBLIC, ring, sign, ticket};
use support::{Client, PATIENCE, Server};
use tokio::sync::mpsc;
use tokio::time::timeout;
use undertone::conversation::{Event, Fate, HangUpReason, Input};
use undertone::llm::Message;
use undertone::llm::scripted::{Cue, Scripted, Step};
use undertone::prediction::{
    Evidence, LocalPredictor, PredictError, Prediction, Router, RouterThread, Source,
};
use undertone::server::{App, ServerSettings, Twilio};
use undertone::session::{
    self, Builders, Inbound, Observers, Outbound, PhoneSettings, Profile, SessionOptions,
};
use undertone::stats::{LoggedTurn, TurnLog};
use undertone::tools::{
    CallContext, Confirmation, Declaration, Effect, Eligibility, EndsCall, Registry, Tool,
    ToolError, ToolSpec, builtin,
};

fn settings() -> ServerSettings {
    let settings = twilio::settings("http://127.0.0.1:9");
    ServerSettings {
        twilio: settings.twilio.map(|twilio| Twilio {
            relay: true,
            ..twilio
        }),
        ..settings
    }
}

fn socket_signature() -> String {
    sign(&format!("wss://{PUBLIC}/twilio/relay"), &[])
}

fn setup(account: &str, call: &str, ticket: &str) -> Value {
    json!({
        "type": "setup", "sessionId": "VX00000000000000000000000000000001",
        "accountSid": account, "parentCallSid": "", "callSid": call, "from": "+15551230000",
        "to": "+15551230001", "forwardedFrom": "", "callType": "PSTN", "callerName": "",
        "direction": "inbound", "callStatus": "RINGING", "customParameters": {"ticket": ticket}
    })
}

fn prompt(words: &str, last: bool) -> Value {
    json!({"type": "prompt", "voicePrompt": words, "lang": "en-US", "last": last})
}

/// Twilio's end of the socket.
struct Relay(Client);

impl Relay {
    async fn call(server: &Server) -> Self {
        let first = |ticket: &str| setup(ACCOUNT, CALL, ticket);
        let client = twilio::answered(server, "/twilio/relay", first).await;
        Self(client)
    }

    async fn send(&mut self, message: Value) {
        self.0.send(message).await;
    }

    /// The text that Twilio is told to speak, up to the next `last`.
    async fn told(&mut self) -> String {
        let mut told = String::new();
        loop {
            let message = self.0.event().await;
            assert_eq!(message["type"], "text", "{message}");
            told.push_str(message["token"].as_str().expect("a token"));
            if message["last"] == true {
                return told.trim_end().to_owned();
            }
        }
    }
}

/// A tool that reports when it runs.
struct Told {
    declaration: Declaration,
    runs: mpsc::Sender<()>,
}

impl Tool for Told {
    fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    fn call(
        &self,
        _: Map<String, Value>,
        _: &CallContext,
    ) -> BoxFuture<'static, Result<Value, ToolError>> {
        let told = self.runs.try_send(());
        assert!(told.is_ok(), "the test listens");
        Box::pin(std::future::ready(Ok(json!("done"))))
    }
}

fn told(name: &str, effect: Effect) -> (Told, mpsc::Receiver<()>) {
    let spec = ToolSpec {
        examples: Vec::new(),
        name: name.into(),
        description: String::new(),
        parameters: json!({"type": "object"}),
    };
    let mut declaration = Declaration::new(spec, effect, Duration::from_secs(10));
    match effect {
        Effect::Read => declaration.speculation.eligibility = Eligibility::Full,
        _ => {
            declaration.confirmation = Confirmation::Spoken {
                question: Some("Shall I pay fifty dollars to the electricity company?".into()),
                expiry: Duration::from_secs(30),
            };
        }
    }
    let (runs, ran) = mpsc::channel(4);
    (Told { declaration, runs }, ran)
}

/// A predictor of `look_up` for the word "weather".
struct Guess;

impl LocalPredictor for Guess {
    fn source(&self) -> Source {
        Source::Rule
    }

    fn predict(&mut self, heard: &Evidence) -> Result<Vec<Prediction>, PredictError> {
        let look_up = Prediction {
            tool: "look_up".into(),
            arguments: Map::new(),
            confidence: 0.9,
            source: Source::Rule,
            open: Vec::new(),
        };
        let needed = heard.text.contains("weather");
        Ok(needed.then_some(look_up).into_iter().collect())
    }
}

fn serve(llm: &Scripted, tool: Option<Told>) -> Server {
    let mut tools = Registry::new();
    builtin::register(&mut tools).expect("no duplicates");
    if let Some(tool) = tool {
        tools.register(Arc::new(tool)).expect("no duplicates");
    }
    let router = RouterThread::start(|| Ok(Router::new(vec![Box::new(Guess)])));
    let router = router.expect("a thread");
    let builders = Builders {
        tools: tools.into(),
        predictors: vec![Arc::new(router)],
        phone: PhoneSettings {
            greeting: "Hello.".into(),
            silence_prompt: None,
        },
        ..without_models(Arc::new(llm.clone()))
    };
    live::serve_with(settings(), builders)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unfinished_words_start_a_call_before_the_turn_is_over() {
    let llm = Scripted::default()
        // Its first word comes after the tool's result, also on a busy machine.
        .on(
            Cue::words("today"),
            vec![
                Step::delay_ms(1_000),
                Step::text("<speech>Let me see.</speech><tool>look_up()</tool>"),
            ],
        )
        .on(
            Cue::result("look_up"),
            "<speech>It is sunny. And it is warm.</speech>",
        );
    let (tool, mut ran) = told("look_up", Effect::Read);
    let server = serve(&llm, Some(tool));
    let mut relay = Relay::call(&server).await;
    assert_eq!(relay.told().await, "Hello.");
    relay.send(prompt("what is the", false)).await;
    relay.send(prompt("what is the weather", false)).await;
    let early = timeout(PATIENCE, ran.recv()).await;
    early.expect("it runs before the turn is over");
    assert!(llm.prompts().is_empty(), "nobody has answered yet");
    relay.send(prompt("What is the weather today?", true)).await;
    // Its result is there before the model's first word, so the filler is not said.
    assert_eq!(relay.told().await, "It is sunny. And it is warm.");
    assert!(ran.try_recv().is_err(), "it ran once");
    let messages = llm.asked(Cue::Turn(1)).await.messages;
    let asked = Message::User {
        text: "What is the weather today?".into(),
    };
    assert_eq!(messages.last(), Some(&asked));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twilio_presses_the_keys_of_a_call_that_it_speaks_in() {
    let llm = Scripted::default()
        .on(
            Cue::words("Press one."),
            "<speech>Sure.</speech><tool>send_digits(digits=\"1,2#\")</tool>",
        )
        .on(Cue::result("send_digits"), "<speech>Done.</speech>");
    let server = live::serve_with(settings(), keypad::engines(&llm, true));
    let mut relay = Relay::call(&server).await;
    relay.told().await;
    relay.send(prompt("Press one.", true)).await;
    loop {
        let message = relay.0.event().await;
        if message["type"] != "text" {
            assert_eq!(message, json!({"type": "sendDigits", "digits": "1w2#"}));
            break;
        }
    }
    llm.asked(Cue::result("send_digits")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interruption_cuts_the_history_at_the_words_that_were_heard() {
    let story = "<speech>One two three four five six, seven eight nine ten eleven twelve. \
                 And so on and on and on.</speech>";
    let llm = Scripted::default()
        .on(Cue::words("Count."), story)
        .on(Cue::words("Stop it."), "<speech>All right.</speech>");
    let server = serve(&llm, None);
    let mut relay = Relay::call(&server).await;
    relay.told().await;
    relay.send(prompt("Count.", true)).await;
    assert!(relay.told().await.ends_with("on and on and on."));
    // No time has passed, so the playout estimate has no words yet.
    relay
        .send(json!({
            "type": "interrupt", "durationUntilInterruptMs": "2460",
            "utteranceUntilInterrupt": "One two three four five six, seven eight"
        }))
        .await;
    relay.send(prompt("Stop it.", true)).await;
    assert_eq!(relay.told().await, "All right.");
    let told = llm.asked(Cue::words("Stop it.")).await.messages;
    let heard = Message::Agent {
        text: "One two three four five six, seven eight".into(),
        interrupted: true,
    };
    assert!(told.contains(&heard), "{told:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_confirms_even_during_the_question() {
    let llm = Scripted::default()
        .on(Cue::words("Pay my bill."), "<tool>pay()</tool>")
        .on(Cue::result("pay"), "<speech>It is paid.</speech>")
        .on(Cue::Always, "<speech>As you like.</speech>");
    let (tool, mut ran) = told("pay", Effect::Irreversible);
    let server = serve(&llm, Some(tool));
    let mut relay = Relay::call(&server).await;
    relay.told().await;
    relay.send(prompt("Pay my bill.", true)).await;
    let question = relay.told().await;
    assert!(question.starts_with("Shall I pay fifty"), "{question}");
    assert!(ran.try_recv().is_err());
    relay
        .send(json!({
            "type": "interrupt", "durationUntilInterruptMs": 300,
            "utteranceUntilInterrupt": "Shall I pay"
        }))
        .await;
    relay.send(json!({"type": "dtmf", "digit": "1"})).await;
    let paid = timeout(PATIENCE, ran.recv()).await;
    paid.expect("the key is a yes");
    assert_eq!(relay.told().await, "It is paid.");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_agent_ends_the_call_and_says_why() {
    let llm = Scripted::always("<speech>Goodbye!</speech><tool>hang_up()</tool>");
    let server = serve(&llm, None);
    let mut relay = Relay::call(&server).await;
    relay.told().await;
    relay.send(prompt("Bye.", true)).await;
    assert_eq!(relay.told().await, "Goodbye!");
    let end = relay.0.event().await;
    assert_eq!(
        end,
        json!({"type": "end", "handoffData": "{\"reason\":\"agent_ended\"}"})
    );
    assert_eq!(u16::from(relay.0.close_frame().await.code), 1000);
}

/// Text only, as for a client that displays the agent's words.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn text_without_audio_takes_no_time() {
    let words = "All work and no play. ".repeat(40);
    let goodbye = format!("<speech>{words}</speech><tool>stop()</tool>");
    let (mut stop, _ran) = told("stop", Effect::Read);
    stop.declaration.ends_call = Some(EndsCall::HangUp);
    let mut tools = Registry::new();
    tools.register(Arc::new(stop)).expect("no duplicates");
    let sessions = live::silent_sessions(Builders {
        tools: tools.into(),
        ..without_models(Arc::new(Scripted::always(goodbye)))
    });
    let options = SessionOptions::new(Profile::Conversation, 16_000);
    let mut session = sessions(options).expect("a session");
    let said = Inbound::Request(Input::Said {
        text: "Bye.".into(),
        last: true,
    });
    session.inbound.send(said).await.expect("room");
    let mut told = Vec::new();
    let read = async {
        loop {
            match session.outbound.recv().await.expect("a word") {
                Outbound::Event {
                    event: Event::AgentSpeech { text, .. },
                    ..
                } => told.push(text),
                Outbound::Audio { .. } => panic!("nobody speaks"),
                Outbound::HangUp(reason) => return reason,
                _ => {}
            }
        }
    };
    // Spoken it would take more than a minute.
    let at_once = timeout(Duration::from_secs(30), read).await;
    assert_eq!(at_once.expect("at once"), HangUpReason::AgentEnded);
    assert_eq!(told.join(" "), words.trim_end());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_model_is_apologised_for_in_words() {
    let broken = Step::Error("down".into());
    let server = serve(&Scripted::always(broken), None);
    let mut relay = Relay::call(&server).await;
    relay.told().await;
    relay.send(prompt("Hello?", true)).await;
    assert!(relay.told().await.starts_with("Sorry,"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unsigned_requests_get_no_session() {
    let llm = Scripted::default();
    let server = serve(&llm, None);
    let signature = socket_signature();
    let signed = [("x-twilio-signature", signature.as_str())];
    let of_media = twilio::socket_signature();
    for headers in [vec![], vec![("x-twilio-signature", of_media.as_str())]] {
        let refused = server.try_open("/twilio/relay", &headers).await.err();
        assert_eq!(refused, Some(403), "{headers:?}");
    }
    let (_, instructions) = ring(&server, CALL, None).await;
    let used = ticket(&instructions).to_owned();
    let mut good = server.try_open("/twilio/relay", &signed).await.unwrap();
    good.send(setup(ACCOUNT, CALL, &used)).await;
    assert_eq!(good.event().await["token"], "Hello. ");
    for stranger in 0..5 {
        let (_, instructions) = ring(&server, CALL, None).await;
        let fresh = ticket(&instructions);
        let message = match stranger {
            0 => setup(ACCOUNT, CALL, &used),
            1 => setup(ACCOUNT, "CA2", fresh),
            2 => setup("AC2", CALL, fresh),
            3 => setup(ACCOUNT, CALL, ""),
            _ => prompt("Let me in.", true),
        };
        let mut client = server.try_open("/twilio/relay", &signed).await.unwrap();
        client.send(message).await;
        assert_eq!(u16::from(client.close_frame().await.code), 1008);
    }
    assert_eq!(server.counters.sessions.load(SeqCst), 1, "the good one");
    assert!(llm.prompts().is_empty());
}

/// The attributes with which Twilio is told to connect a call, without the address.
async fn attributes(server: &Server) -> String {
    let (_, instructions) = ring(server, CALL, None).await;
    let (_, relay) = instructions
        .split_once("<Connect><ConversationRelay ")
        .expect("a relay");
    let (relay, _) = relay.split_once('>').expect("its end");
    let address = format!("url=\"wss://{PUBLIC}/twilio/relay\" ");
    relay.strip_prefix(&address).expect(relay).to_owned()
}

/// Asserts that Twilio's own library knows these attributes.
fn are_known(relay: &str, count: usize) {
    let library = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/foreign/node_modules/twilio/lib/twiml/VoiceResponse.d.ts"
    );
    let library = std::fs::read_to_string(library).expect("run `make test-tools`");
    let (_, known) = library
        .split_once("interface ConversationRelayAttributes {")
        .expect("the attributes");
    let (known, _) = known.split_once("\n    }").expect("their end");
    let names = relay.split(' ').filter_map(|part| part.split_once("=\""));
    let names: Vec<&str> = names.map(|(name, _)| name).collect();
    assert_eq!(names.len(), count, "{relay}");
    for name in names {
        assert!(known.contains(&format!(" {name}?: ")), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twilios_library_knows_our_attributes() {
    let server = serve(&Scripted::default(), None);
    let relay = attributes(&server).await;
    assert!(relay.contains("speechModel=\"flux\""), "{relay}");
    are_known(&relay, 7);
}

/// Callers of a German agent were transcribed as English and heard German from an English voice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twilio_speaks_the_language_of_the_agent_that_the_call_leads_to() {
    for (language, is_german, count) in [("de", true, 5), ("en-GB", false, 7)] {
        let mut builders = without_models(Arc::new(Scripted::default()));
        builders.policy.speaker.language = Some(language.into());
        let server = live::serve_with(settings(), builders);
        let relay = attributes(&server).await;
        assert_eq!(relay.contains("language=\"de-DE\""), is_german, "{relay}");
        for of_flux in ["Deepgram", "flux", "partialPrompts"] {
            assert_eq!(relay.contains(of_flux), !is_german, "{relay}");
        }
        are_known(&relay, count);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_with_the_local_brain() {
    let _together = common::together().await;
    let folder = tempfile::tempdir().expect("a folder");
    let turns = folder.path().join("turns.jsonl");
    let observers = Observers {
        turns: Some(TurnLog::open(&turns).expect("a file")),
        ..Observers::default()
    };
    let mut greeting = String::new();
    let engines = support::real::shipped(
        |config| greeting.clone_from(&config.phone.greeting),
        observers,
    );
    let opener = engines.clone();
    let sessions = Arc::new(move |options| Ok(session::open(&opener, &options)));
    let server = Server::serve(App::new(settings(), sessions));
    let mut relay = Relay::call(&server).await;
    assert_eq!(relay.told().await, greeting);
    relay.send(prompt("What time is it", false)).await;
    relay.send(prompt("What time is it in Tokyo", false)).await;
    relay.send(prompt("What time is it in Tokyo?", true)).await;
    let mut time = relay.told().await;
    while !time.contains("Tokyo") {
        // A filler may come first.
        time = relay.told().await;
    }
    relay.send(prompt("What is 12 times 12?", true)).await;
    let product = relay.told().await;
    assert!(product.contains("144"), "{product}");
    drop(relay);
    server.shutdown.cancel();
    engines.finish_sessions().await;
    let turns = std::fs::read_to_string(&turns).expect("turns");
    let first = turns.lines().next().expect("a turn");
    let turn: LoggedTurn = serde_json::from_str(first).expect("JSON");
    // Before "Tokyo" was said, the time here may have been looked up for nothing.
    let runs = &turn.turn.runs;
    let run = runs.last().expect("an early run");
    assert_eq!(run.tool, "get_time");
    assert!(matches!(run.fate, Fate::Committed { .. }), "{runs:?}");
}

#[tokio::test]
async fn a_route_leads_a_call_to_its_agent() {
    let (engines, llm) = agents::billing_by("twilio");
    let server = live::serve_with(settings(), engines);
    let mut relay = Relay::call(&server).await;
    relay.send(prompt("My invoice is wrong.", true)).await;
    agents::reached_billing(&llm, "invoice").await;
    assert_eq!(relay.told().await, "Billing here.");
}
