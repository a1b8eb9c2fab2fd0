//! Tools as newcomers declare them, beside those that ship.

use super::clients::Studio;
use super::*;
use crate::audio::testing::weights_and_runtime;
use crate::prediction::{LentTools, Question, Router, Rules, Settings};
use crate::tools::{Clock, declared};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::Path;
use uuid::Uuid;

const NEWCOMERS: &str = include_str!("../../../tests/parts/newcomers.toml");
/// The least confidence that runs early, by default.
const ENOUGH: f32 = 0.5;

#[derive(Deserialize)]
struct Newcomers {
    nothing: BTreeMap<String, Vec<String>>,
    tool: Vec<Newcomer>,
}

#[derive(Deserialize)]
struct Newcomer {
    #[serde(default)]
    judged: bool,
    declaration: String,
    asks: Vec<(String, Map<String, Value>)>,
    tells: Vec<String>,
}

/// Saturday, 21 November 2026.
struct Still;

impl Clock for Still {
    fn now(&self) -> Timestamp {
        "2026-11-21T12:00:00Z".parse().unwrap()
    }
}

/// Words, and whether the user paused after them, to the calls that would start.
type Predicts = Box<dyn FnMut(&str, bool) -> Vec<Prediction>>;

type Tools = Vec<(Arc<Declaration>, RouterHints)>;

/// The tools of a server with these declarations.
fn tools(declarations: &[&str]) -> Tools {
    let folder = tempfile::tempdir().unwrap();
    for (at, declaration) in declarations.iter().enumerate() {
        std::fs::write(folder.path().join(format!("{at}.toml")), declaration).unwrap();
    }
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools");
    let mut tools = declared::load(&shipped, &|_| None).unwrap();
    tools.extend(declared::load(folder.path(), &|_| None).unwrap());
    let registry = declared::registry(&tools).unwrap();
    let tools = registry.declarations().into_iter().map(|tool| {
        let hints = registry.hints(&tool.spec.name).cloned();
        (tool, hints.unwrap_or_default())
    });
    tools.collect()
}

fn files() -> ExampleFiles {
    ExampleFiles {
        embedder: weights_and_runtime().join("minilm"),
        cache: None,
    }
}

/// The sources that a server with these declarations has by default.
fn router(declarations: &[&str]) -> Router {
    let tools = tools(declarations);
    let today = Today::new(Arc::new(Still), TimeZone::UTC);
    let mut matching = Matching::start(&tools, files(), today.clone());
    matching.wait();
    Router::new(vec![
        Box::new(Rules::new(&tools, today).unwrap()),
        Box::new(matching),
    ])
}

fn heard(said: &str, paused: bool) -> Evidence {
    Evidence {
        text: said.into(),
        paused,
        ..Evidence::default()
    }
}

fn early(router: &mut Router, said: &str, paused: bool) -> Vec<Prediction> {
    let mut likely = router.predict(&heard(said, paused));
    likely.retain(|one| one.open.is_empty() && one.confidence >= ENOUGH);
    likely
}

/// Clients' tools that are declared like the server's, beside the shipped ones.
struct Lent {
    studio: Studio,
    tools: LentTools,
}

impl Lent {
    fn new(declarations: &[&str]) -> Self {
        let shipped = tools(&[]);
        let is_shipped = |name: &str| shipped.iter().any(|(tool, _)| tool.spec.name == name);
        let all = tools(declarations).into_iter();
        let own = all
            .filter(|(tool, _)| !is_shipped(&tool.spec.name))
            .collect();
        Self::beside(shipped, own)
    }

    fn beside(server: Tools, own: Tools) -> Self {
        let settings = Settings {
            tools: server,
            by_rules: Vec::new(),
            awaits: false,
            files: files(),
            head: None,
            today: Today::new(Arc::new(Still), TimeZone::UTC),
        };
        Self {
            studio: Studio::new(Arc::new(settings)),
            tools: Arc::new(own),
        }
    }

    fn early(&mut self, said: &str, paused: bool) -> Vec<Prediction> {
        let mut likely = self.studio.predict(&Question {
            session: Uuid::nil(),
            agent: "default".into(),
            came_by: None,
            history: Vec::new(),
            evidence: heard(said, paused),
            tools: self.tools.clone(),
        });
        likely.retain(|one| one.open.is_empty() && one.confidence >= ENOUGH);
        likely
    }
}

/// Asserts that each tool is predicted for eight of its ten requests, and none for what asks for nothing.
fn newcomers_are_understood(judged: bool, by_client: bool) {
    let all: Newcomers = toml::from_str(NEWCOMERS).unwrap();
    let tools: Vec<&Newcomer> = all.tool.iter().filter(|one| one.judged == judged).collect();
    let declarations: Vec<&str> = tools.iter().map(|one| one.declaration.as_str()).collect();
    let mut predict: Predicts = match by_client {
        false => {
            let mut router = router(&declarations);
            Box::new(move |said, paused| early(&mut router, said, paused))
        }
        true => {
            let mut lent = Lent::new(&declarations);
            Box::new(move |said, paused| lent.early(said, paused))
        }
    };
    let mut wrong = Vec::new();
    let mut weak = false;
    for tool in &tools {
        let name: toml::Table = toml::from_str(&tool.declaration).unwrap();
        let name = name["name"].as_str().unwrap();
        let mut right = 0;
        for (said, arguments) in &tool.asks {
            let found = predict(said, true);
            let fits = |one: &Prediction| one.tool == name && one.arguments == *arguments;
            if found.iter().any(fits) {
                right += 1;
            } else {
                wrong.push(format!("{name}: {said} -> {found:?}"));
            }
        }
        eprintln!("{name}: {right} of {}", tool.asks.len());
        weak |= right < 8;
    }
    let half = if judged { "judged" } else { "tuned" };
    let told = tools.iter().flat_map(|tool| &tool.tells);
    for said in told.chain(&all.nothing[half]) {
        // A sentence is heard word by word.
        let spaces = said.match_indices(' ').map(|(at, _)| (&said[..at], false));
        for (heard, paused) in spaces.chain([(said.as_str(), true)]) {
            let found = predict(heard, paused);
            weak |= !found.is_empty();
            if !found.is_empty() {
                wrong.push(format!("{heard} | {said} -> {found:?}"));
            }
        }
    }
    assert!(!weak, "{wrong:#?}");
    eprintln!("{wrong:#?}");
}

#[test]
fn tools_that_the_matching_was_tuned_on_are_understood() {
    newcomers_are_understood(false, false);
}

#[test]
fn tools_that_the_matching_has_never_seen_are_understood() {
    newcomers_are_understood(true, false);
}

#[test]
fn tools_that_clients_lend_are_understood_like_the_servers() {
    newcomers_are_understood(false, true);
    newcomers_are_understood(true, true);
}

#[test]
fn words_without_a_required_argument_name_it_and_run_nothing() {
    let declaration = r#"
name = "get_order"
kind = "http"
description = "Where an order is, and when it arrives."
effect = "read"
parameters = { properties = { order_number = { type = "string" } }, required = ["order_number"] }
http = { url = "https://shop.example/orders/{{ order_number }}" }
[router]
examples = ["where is my order A12", "has order B7 been shipped", "when will order C340 arrive"]
"#;
    let mut router = router(&[declaration]);
    let mut open = |said: &str, paused| {
        let all = router.predict(&heard(said, paused));
        all.into_iter().find(|one| !one.open.is_empty())
    };
    let order = open("Where is my order?", true).expect("a prediction");
    assert_eq!(
        (order.tool.as_str(), order.open.as_slice()),
        ("get_order", &["order_number".to_owned()][..])
    );
    assert!(
        order.confidence >= 0.85 && order.arguments.is_empty(),
        "{order:?}"
    );
    assert_eq!(open("Where is my order?", false), None);
    assert_eq!(open("Where is my order A12?", true), None);
    assert!(early(&mut router, "Where is my order?", true).is_empty());
}

#[test]
fn a_client_s_tool_takes_the_words_of_the_server_s_of_the_same_name() {
    let server = tools(&[]);
    let known = server.iter().find(|(tool, _)| tool.spec.name == "get_time");
    let (tool, _) = known.expect("it ships").clone();
    let own = |examples: &[&str]| {
        let hints = RouterHints {
            examples: examples.iter().map(|one| (*one).to_owned()).collect(),
            ..RouterHints::default()
        };
        let mut tool = (*tool).clone();
        tool.spec.description = "How late the ferry is.".into();
        vec![(Arc::new(tool), hints)]
    };
    let mut lent = Lent::beside(
        server,
        own(&["is the ferry late", "when does the boat come"]),
    );
    assert_eq!(
        lent.early("is the ferry late today", true)[0].tool,
        "get_time"
    );
    assert!(lent.early("what time is it", true).is_empty());
    // Another set of tools, and the first again.
    let first = std::mem::replace(&mut lent.tools, Arc::new(Vec::new()));
    assert!(lent.early("is the ferry late today", true).is_empty());
    lent.tools = first;
    assert_eq!(lent.early("is the ferry late today", true).len(), 1);
}

#[test]
fn learned_examples_are_cached_until_a_declaration_changes() {
    let folder = tempfile::tempdir().unwrap();
    let files = ExampleFiles {
        embedder: weights_and_runtime().join("minilm"),
        cache: Some(folder.path().join("new/router.json")),
    };
    let learn = |example: &str| {
        let spec = crate::tools::ToolSpec {
            examples: Vec::new(),
            name: "get_stock".into(),
            description: "How many of an article are in stock.".into(),
            parameters: serde_json::json!({"type": "object", "properties": {}}),
        };
        let effect = crate::tools::Effect::Read;
        let tool = Declaration::new(spec, effect, std::time::Duration::from_secs(1));
        let hints = RouterHints {
            examples: vec![example.into()],
            ..RouterHints::default()
        };
        let tools = [(Arc::new(tool), hints)];
        let mut matching = Matching::start(&tools, files.clone(), Today::default());
        matching.wait();
        let heard = Evidence {
            text: "how many articles are left in stock".into(),
            paused: true,
            ..Evidence::default()
        };
        let likeness = matching.consider(&heard).unwrap()[0].likeness;
        (
            likeness,
            std::fs::read_to_string(files.cache.as_ref().unwrap()).unwrap(),
        )
    };
    let (first, kept) = learn("is anything left");
    // The file counts, not what would be learned again.
    let written = files.cache.as_ref().unwrap();
    std::fs::write(written, kept.replace('}', ", \"unknown\": 1}")).unwrap();
    let (again, kept_again) = learn("is anything left");
    assert_eq!(first, again);
    assert!(kept_again.contains("unknown"), "it was learned twice");
    let (changed, kept) = learn("how many are there");
    assert_ne!(first, changed);
    assert!(
        !kept.contains("unknown"),
        "a changed declaration is learned"
    );
    std::fs::write(written, "broken").unwrap();
    assert_eq!(learn("how many are there").0, changed);
}

#[test]
fn polite_questions_ask_and_suppositions_do_not() {
    let all: Newcomers = toml::from_str(NEWCOMERS).unwrap();
    let is_shop = |tool: &&Newcomer| {
        let names = ["\"track_order\"", "\"get_stock\""];
        names.iter().any(|name| tool.declaration.contains(name))
    };
    let tools = all.tool.iter().filter(is_shop);
    let tools: Vec<&str> = tools.map(|tool| tool.declaration.as_str()).collect();
    let mut router = router(&tools);
    for (said, tool) in [
        ("can you tell me if you have any floor lamps", "get_stock"),
        ("do you know if you have bar stools in stock", "get_stock"),
        ("could you check if you have red chairs", "get_stock"),
        ("I was wondering if you have bar stools", "get_stock"),
        ("don't you have any oak tables", "get_stock"),
        ("when did my order 20 ship", "track_order"),
        ("was my order 33 shipped", "track_order"),
        ("hasn't order 512 arrived yet", "track_order"),
        (
            "where is the order 4711 that I placed yesterday",
            "track_order",
        ),
    ] {
        let found = early(&mut router, said, true);
        assert!(
            found.iter().any(|one| one.tool == tool),
            "{said}: {found:?}"
        );
    }
    for said in [
        "if you had oak tables I would buy one",
        "my wife asked if you have oak tables",
        "I was told that the reading lamp is still available",
        "my order 4711 arrived yesterday",
        "please don't check if you have red chairs",
    ] {
        assert_eq!(early(&mut router, said, true), [], "{said}");
    }
}

#[test]
fn a_tool_is_not_asked_for_a_day_that_it_does_not_know() {
    let mut router = router(&[]);
    for said in [
        "What is the weather in Rome on Friday?",
        "Will it be cold in Oslo next week?",
        "how warm is it in Lima in three days",
        "What's on my calendar next week?",
    ] {
        assert_eq!(early(&mut router, said, true), [], "{said}");
    }
}
