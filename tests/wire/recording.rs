//! Tests that a live session is recorded, counted, and replayed by the real program.

use crate::support;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use support::live::{Call, patient, tone, without_models};
use support::{Server, local};
use undertone::conversation::Policy;
use undertone::llm::scripted::{Cue, Scripted};
use undertone::prediction::{
    Evidence, LocalPredictor, PredictError, Prediction, Router, RouterThread, Source,
};
use undertone::server::{App, ServerSettings};
use undertone::session::{self, Builders, Engines, Observers, Recordings};
use undertone::stats::TurnLog;
use undertone::tools::{
    CallContext, Declaration, Effect, Eligibility, Registry, Tool, ToolError, ToolSpec,
};

/// A number that a parser with double rounding reads wrongly.
const NUMBER: f64 = 0.1 + 0.2;

/// A tool that takes 200 ms.
struct Weather(Declaration);

impl Tool for Weather {
    fn declaration(&self) -> &Declaration {
        &self.0
    }

    fn call(
        &self,
        _: Map<String, Value>,
        _: &CallContext,
    ) -> BoxFuture<'static, Result<Value, ToolError>> {
        Box::pin(async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            Ok(json!({"degrees": NUMBER}))
        })
    }
}

/// Predicts the weather of Boulder, whatever is said.
struct Always;

impl LocalPredictor for Always {
    fn source(&self) -> Source {
        Source::Rule
    }

    fn predict(&mut self, _: &Evidence) -> Result<Vec<Prediction>, PredictError> {
        let arguments = Map::from_iter([("city".to_owned(), json!("Boulder"))]);
        Ok(vec![Prediction {
            tool: "weather".into(),
            arguments,
            confidence: 0.9,
            source: Source::Rule,
            open: Vec::new(),
        }])
    }
}

fn engines(observers: Observers) -> Arc<Engines> {
    engines_with(observers, |_| {})
}

fn engines_with(observers: Observers, change: impl Fn(&mut Policy)) -> Arc<Engines> {
    let spec = ToolSpec {
        examples: Vec::new(),
        name: "weather".into(),
        description: "The weather".into(),
        parameters: json!({"type": "object", "properties": {"city": {"type": "string"}}}),
    };
    let mut declaration = Declaration::new(spec, Effect::Read, Duration::from_secs(2));
    declaration.speculation.eligibility = Eligibility::Full;
    let mut tools = Registry::new();
    tools.register(Arc::new(Weather(declaration))).unwrap();
    let llm = Scripted::default()
        .on(
            Cue::Turn(1),
            r#"<speech>Let me see.</speech><tool>weather(city="Boulder")</tool>"#,
        )
        .on(Cue::result("weather"), "<speech>It is mild.</speech>");
    let mut policy = patient(Policy::default());
    // A discarded generation has no recorded result under other rules.
    policy.speculation.preemptive = false;
    change(&mut policy);
    let router = RouterThread::start(|| Ok(Router::new(vec![Box::new(Always)])));
    let router = router.expect("a thread");
    let builders = Builders {
        tools: tools.into(),
        predictors: vec![Arc::new(router)],
        policy,
        observers,
        ..without_models(Arc::new(llm))
    };
    Engines::start(builders).unwrap()
}

fn undertone(arguments: &[&str]) -> (i32, String) {
    let program = env!("CARGO_BIN_EXE_undertone");
    let output = Command::new(program).args(arguments).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    (output.status.code().unwrap(), text)
}

fn only_file(folder: &Path) -> PathBuf {
    let mut files = std::fs::read_dir(folder).unwrap();
    let file = files.next().expect("a recording").unwrap().path();
    assert!(files.next().is_none(), "one session, one file");
    file
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_recorded_counted_and_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let (recordings, turns) = (folder.path().join("r"), folder.path().join("turns.jsonl"));
    let observers = Observers {
        recordings: Some(Recordings::new(&recordings).unwrap()),
        turns: Some(TurnLog::open(&turns).unwrap()),
        ..Observers::default()
    };
    let metrics = observers.metrics.clone();
    let engines = engines(observers);
    let opener = engines.clone();
    let sessions = Arc::new(move |options| Ok(session::open(&opener, &options)));
    let server = Server::serve(App {
        metrics,
        ..App::new(local(), sessions)
    });
    let mut call = Call::to(&server).await;
    call.say(&tone(700)).await;
    call.until("response.done").await;
    let open = server.get("/metrics", "").await;
    assert!(open.contains("undertone_sessions 1"), "{open}");
    drop(call);
    engines.finish_sessions().await;

    let metrics = server.get("/metrics", "").await;
    for line in [
        "undertone_sessions 0",
        r#"undertone_speculative_hits_total{tool="weather",source="rule"} 1"#,
        "undertone_answer_audio_seconds_count 1",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    assert!(!metrics.contains("Boulder"));

    let (code, text) = undertone(&["stats", turns.to_str().unwrap(), "--json"]);
    let stats: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(code, 0);
    assert_eq!(
        (&stats["turns"], &stats["total"]["hits"]),
        (&json!(1), &json!(1)),
        "{text}"
    );
    assert_eq!(stats["immediate_recall"], 1.0);
    assert!(!std::fs::read_to_string(&turns).unwrap().contains("Boulder"));

    let file = only_file(&recordings);
    let (code, text) = undertone(&["replay", file.to_str().unwrap()]);
    assert!(
        code == 0 && text.contains("the same, byte for byte\n"),
        "{text}"
    );

    // The same policy gives the same figures; without speculation the call starts when it is committed.
    let played = |rules: &str| {
        let path = folder.path().join("other.toml");
        std::fs::write(&path, format!("[speculation]\n{rules}\n")).unwrap();
        let (file, path) = (file.to_str().unwrap(), path.to_str().unwrap());
        let (code, text) = undertone(&["replay", file, "--policy", path, "--json"]);
        assert_eq!(code, 0, "{text}");
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let same = played("preemptive = false");
    assert_eq!(same["recorded"]["total"]["hits"], 1);
    assert_eq!(same["changed"]["total"]["hits"], 1, "{same}");
    assert!(same["changed"]["total"]["saved_seconds"].as_f64().unwrap() > 0.0);
    let none = played("preemptive = false\nenabled = false");
    let changed = &none["changed"];
    assert_eq!(
        (&changed["turns"], &changed["total"]["starts"]),
        (&json!(1), &json!(0))
    );
    assert_eq!(
        (&changed["committed_reads"], &changed["immediate_recall"]),
        (&json!(1), &json!(0.0))
    );
    let turn = &none["turns"][0];
    for side in ["recorded", "changed"] {
        assert!(turn[side]["answer_audio_ms"].is_u64(), "{none}");
        assert!(turn[side]["tokens"].as_u64().unwrap() > 0, "{none}");
    }
    let unknown = &none["unknown"];
    assert_eq!(
        (&unknown["runs"], &unknown["generations"]),
        (&json!(0), &json!(0)),
        "{none}"
    );

    // Tampers with a decision of the agent.
    let recorded = std::fs::read_to_string(&file).unwrap();
    let tampered = recorded.replacen(r#""decision":"speak","#, r#""decision":"shout","#, 1);
    assert_ne!(tampered, recorded);
    std::fs::write(&file, tampered).unwrap();
    let (code, text) = undertone(&["replay", file.to_str().unwrap(), "--json"]);
    let replayed: Value = serde_json::from_str(&text).unwrap();
    let line = recorded
        .lines()
        .position(|line| line.contains(r#""decision":"speak""#));
    assert_eq!(code, 1);
    assert_eq!(replayed["difference"]["line"], line.unwrap() + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_begins_with_what_earlier_ones_have_learned() {
    let folder = tempfile::tempdir().unwrap();
    let observers = Observers {
        recordings: Some(Recordings::new(folder.path()).unwrap()),
        ..Observers::default()
    };
    let engines = engines_with(observers, |policy| {
        policy.speculation.token_price = 1.0;
        policy.speculation.token_cost_per_day = Some(1.0);
    });
    let opener = engines.clone();
    let sessions = Arc::new(move |options| Ok(session::open(&opener, &options)));
    let server = Server::serve(App::new(local(), sessions));
    for _ in 0..2 {
        let mut call = Call::to(&server).await;
        call.say(&tone(700)).await;
        call.until("undertone.turn_record").await;
    }
    engines.finish_sessions().await;
    let files = std::fs::read_dir(folder.path()).unwrap();
    let learned = |path: &Path| {
        let text = std::fs::read_to_string(path).unwrap();
        let header: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        let latencies = &header["experience"]["tools"]["weather"]["latencies"];
        latencies.as_array().map_or(0, Vec::len)
    };
    let mut seen = Vec::new();
    for file in files {
        let path = file.unwrap().path();
        let (code, text) = undertone(&["replay", path.to_str().unwrap()]);
        assert_eq!(code, 0, "{text}");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            text.contains("token_budget"),
            "it is told what it may spend"
        );
        seen.push(learned(&path));
    }
    seen.sort_unstable();
    assert_eq!(
        seen,
        [0, 1],
        "the second session knows the call of the first"
    );
}

#[tokio::test]
async fn metrics_require_the_same_access_as_sessions() {
    let settings = ServerSettings {
        auth_token: Some("let-me-in-please-0123456789".to_owned().into()),
        ..local()
    };
    let server = Server::with(settings, support::Script::default()).await;
    let refused = server.get("/metrics", "").await;
    assert!(refused.starts_with("HTTP/1.1 401"), "{refused}");
    let token = "Authorization: Bearer let-me-in-please-0123456789\r\n";
    let shown = server.get("/metrics", token).await;
    assert!(shown.starts_with("HTTP/1.1 200"), "{shown}");
    let refusals = r#"undertone_refused_connections_total{reason="denied"} 1"#;
    assert!(shown.contains(refusals), "{shown}");
}
