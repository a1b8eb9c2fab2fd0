//! Learning, what is not kept, and the consequences of wrong predictions.

use super::*;
use crate::prediction::{
    Committed, Evidence, Moment, PastCall, Predictor, Question, Source, Today,
};
use crate::tools::{Declaration, Effect, Equivalence, ToolSpec};
use futures_util::FutureExt;
use jiff::civil::{Date, date};
use jiff::tz::TimeZone;
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use uuid::Uuid;

const TODAY: Date = date(2026, 3, 17);

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        other => panic!("no object: {other}"),
    }
}

fn schemas() -> Schemas {
    let mut schemas = Schemas::default();
    let text = json!({ "type": "string" });
    schemas.add("find", &json!({ "properties": { "code": text } }));
    let class = json!({ "type": "string", "enum": ["main_cabin", "business"] });
    let search = json!({ "properties": { "from": text, "to": text, "class": class } });
    schemas.add("search", &search);
    schemas.add("status", &json!({ "properties": { "flight": text } }));
    let items = json!({ "type": "object", "additionalProperties": { "type": "integer" } });
    schemas.add("price", &json!({ "properties": { "items": items } }));
    schemas
}

/// A caller looks up a booking by its code; the flight of the booking is looked at, and then others are searched.
fn talk(code: &str, from: &str, to: &str, flight: &str) -> PastConversation {
    let called = |tool: &str, arguments| Happened::Called(tool.into(), object(arguments));
    let booking = json!({ "booking": { "from": from, "to": to, "flights": [flight] } });
    PastConversation {
        task: code.into(),
        day: TODAY,
        happened: vec![
            Happened::Said(format!("Hello, my booking is {code}.")),
            called("find", json!({ "code": code })),
            Happened::Resulted(booking),
            called("status", json!({ "flight": flight })),
            Happened::Resulted(json!({ "status": "late" })),
            Happened::Said("Then I want another one, in business, please.".into()),
            called(
                "search",
                json!({ "from": from, "to": to, "class": "business" }),
            ),
            Happened::Resulted(json!([])),
        ],
    }
}

fn talks() -> Vec<PastConversation> {
    vec![
        talk("ZK3FFW", "AUS", "LAX", "SK621"),
        talk("QW7RTY", "BOS", "SEA", "SK105"),
        talk("AB1CDE", "JFK", "SFO", "SK777"),
        talk("PL9MNB", "ORD", "DEN", "SK342"),
    ]
}

fn guesses(patterns: &Patterns, conversation: &PastConversation) -> Vec<Vec<Guess>> {
    let mut all = Vec::new();
    conversation.follow(&schemas(), |trail, _, _| {
        all.push(patterns.predict(trail, &schemas(), |_| true, 3));
    });
    all
}

#[test]
fn arguments_are_derived_for_every_transition_that_has_a_source() {
    let patterns = learnt(&talks(), &schemas());
    let unseen = talk("MM4XYZ", "MIA", "ATL", "SK900");
    let guesses = guesses(&patterns, &unseen);
    let calls = unseen.happened.iter().filter_map(|one| match one {
        Happened::Called(tool, arguments) => Some((tool, arguments)),
        _ => None,
    });
    for ((tool, arguments), guesses) in calls.zip(&guesses) {
        let first = &guesses[0];
        assert_eq!((&first.tool, &first.arguments), (tool, arguments));
        assert!(
            (0.0..=first.likelihood).contains(&first.confidence),
            "{first:?}"
        );
    }
}

#[test]
fn one_case_is_not_enough_to_be_sure() {
    let one = learnt(&talks()[..1], &schemas());
    let unseen = talk("MM4XYZ", "MIA", "ATL", "SK900");
    assert!(
        guesses(&one, &unseen)
            .iter()
            .flatten()
            .all(|guess| guess.confidence < 0.5)
    );
}

#[test]
fn what_was_right_is_learned_from_like_what_was_not() {
    let schemas = schemas();
    let mut patterns = learnt(&talks(), &schemas);
    let sure = |patterns: &Patterns| {
        guesses(patterns, &talk("MM4XYZ", "MIA", "ATL", "SK900"))[1][0].confidence
    };
    let before = sure(&patterns);
    let learned = patterns.learnt();
    // All of these calls are predicted.
    let again = talk("TT1UVW", "LAS", "IAH", "SK456");
    let number = patterns.begin();
    again.follow(&schemas, |trail, tool, arguments| {
        patterns.learn(number, trail, &schemas, tool, arguments);
    });
    assert_eq!(patterns.learnt(), learned + 3);
    assert!(sure(&patterns) > before);
}

#[test]
fn later_calls_outweigh_earlier_ones() {
    let schemas = schemas();
    let mut patterns = learnt(&talks(), &schemas);
    // Now a search follows a booking at once.
    for _ in 0..300 {
        let number = patterns.begin();
        let mut talk = talk("MM4XYZ", "MIA", "ATL", "SK900");
        talk.happened.drain(3..6);
        talk.follow(&schemas, |trail, tool, arguments| {
            patterns.learn(number, trail, &schemas, tool, arguments);
        });
    }
    let shown = patterns.list();
    let old = shown
        .iter()
        .find(|one| one.after == "find(code) = object" && one.tool == "status");
    assert!(old.is_none_or(|old| old.share < 0.01), "{old:?}");
}

#[test]
fn no_value_of_a_conversation_is_kept() {
    let mut talks = talks();
    // Keys that are values, a constant that no schema names, an argument that the model made up.
    for talk in &mut talks {
        let secret = json!({ "Rosalind Q": { "card_4421": 1 }, "list": [{ "pin": "9-7-5" }] });
        talk.happened.push(Happened::Resulted(secret));
        let odd = json!({ "code": "SECRET", "Rosalind": "x" });
        talk.happened
            .push(Happened::Called("find".into(), object(odd)));
        let odd = json!({ "from": "SECRET", "to": "Rosalind", "class": "steerage" });
        talk.happened
            .push(Happened::Called("search".into(), object(odd)));
        // A nested key, whose value the next call has.
        let sold = json!({ "items": { "croissant": 9 } });
        talk.happened
            .push(Happened::Called("price".into(), object(sold)));
        talk.happened.push(Happened::Called(
            "status".into(),
            object(json!({ "flight": 9 })),
        ));
    }
    let patterns = learnt(&talks, &schemas());
    let kept = serde_json::to_string(&patterns).expect("JSON");
    let values = [
        "ZK3FFW",
        "QW7RTY",
        "AUS",
        "LAX",
        "SK621",
        "late",
        "SECRET",
        "Rosalind",
        "4421",
        "9-7-5",
        "steerage",
        "Hello",
        "croissant",
    ];
    for value in values {
        assert!(!kept.contains(value), "{value} in {kept}");
    }
    let mut other = talks[0].clone();
    other.happened.push(Happened::Said("9 rolls.".into()));
    let bought = object(json!({ "items": { "roll": 9 } }));
    other
        .happened
        .push(Happened::Called("price".into(), bought));
    let others = &guesses(&patterns, &other)[talks[0].calls().count()..];
    let guessed = format!("{others:?}");
    assert!(!guessed.contains("croissant"), "{guessed}");
    let shown = format!("{:?} {:?}", patterns.list(), patterns.sources("search"));
    assert!(values.iter().all(|value| !shown.contains(value)), "{shown}");
    // A value that the schema names does not come from a conversation.
    assert!(kept.contains("business"));
}

#[test]
fn a_key_that_only_one_conversation_has_shown_is_not_kept() {
    let schemas = schemas();
    let mut one = talk("ZK3FFW", "AUS", "LAX", "SK621");
    one.happened[2] = Happened::Resulted(json!({ "rosalind": "SK621", "other": 1 }));
    let patterns = learnt([&one, &talks()[1], &talks()[2]], &schemas);
    let kept = serde_json::to_string(&patterns.kept()).expect("JSON");
    assert!(!kept.contains("rosalind") && kept.contains("/booking/flights/*"));
    assert_eq!(guesses(&patterns.kept(), &talks()[3])[1][0].tool, "status");
}

#[test]
fn what_a_file_says_beyond_names_and_shapes_is_left_out() {
    let patterns = learnt(&talks(), &schemas());
    let text = serde_json::to_string(&patterns).expect("JSON");
    let edited = text.replace("\"business\"", "\"Rosalind\"");
    let read: Patterns = serde_json::from_str(&edited).expect("patterns");
    let read = read.admitted(&schemas());
    assert_eq!(read.len(), patterns.len());
    assert!(
        !serde_json::to_string(&read)
            .expect("JSON")
            .contains("Rosalind")
    );
    // A name within an argument that no schema declares.
    let edited = text.replace("\"/code\"", "\"/code/rosalind\"");
    assert!(edited.contains("rosalind"));
    let read: Patterns = serde_json::from_str(&edited).expect("patterns");
    let read = serde_json::to_string(&read.admitted(&schemas())).expect("JSON");
    assert!(!read.contains("rosalind"), "{read}");
}

#[test]
fn only_declared_names_are_kept_of_nested_arguments() {
    let item = json!({ "properties": { "sku": {}, "line_2": {} } });
    let by = json!({ "type": "object", "additionalProperties": {} });
    let properties = json!({ "items": { "items": item }, "by": by });
    let mut schemas = Schemas::default();
    schemas.add("price", &json!({ "properties": properties }));
    let given = object(json!({
        "items": [{ "sku": 1, "croissant": 2 }], "by": { "mia": 3 }, "mia": 4,
    }));
    assert_eq!(
        schemas.declared("price", &given),
        object(json!({ "items": [{ "sku": 1 }], "by": {} }))
    );
    for (tool, place, is_declared) in [
        ("price", "/items/0/line_2", true),
        ("price", "/items/0/croissant", false),
        ("price", "/by", true),
        ("price", "/by/mia", false),
        ("price", "/by/0/mia", false),
        ("price", "/mia", false),
        // Not declared now.
        ("order", "/code", true),
        ("order", "/items/croissant", false),
    ] {
        assert_eq!(schemas.declares(tool, place), is_declared, "{tool} {place}");
    }
}

/// A schema as pydantic writes them: classes stand apart.
fn order_by_reference() -> Value {
    let text = json!({ "type": "string" });
    let lines = json!({ "type": "array", "items": { "$ref": "#/$defs/Line" } });
    let order = json!({ "code": text, "lines": { "anyOf": [lines, { "type": "null" }] } });
    let send = json!({ "oneOf": [{ "$ref": "#/definitions/Mail" }, { "$ref": "#/$defs/Shop" }] });
    let speed = json!({ "allOf": [{ "enum": ["express", "standard"] }] });
    json!({
        "properties": { "order": { "$ref": "#/$defs/Order" }, "send": send, "speed": speed },
        "$defs": {
            "Order": { "properties": order },
            "Line": { "allOf": [{ "properties": { "sku": text } }, { "properties": { "of": text } }] },
            "Shop": { "properties": { "shop": text } },
        },
        "definitions": { "Mail": { "properties": { "street": text } } },
    })
}

/// No name within such an argument counted as declared, and so its calls taught no arguments.
#[test]
fn arguments_that_a_schema_declares_by_reference_or_in_parts_are_learned_and_kept() {
    let mut schemas = Schemas::default();
    schemas.add("buy", &order_by_reference());
    let talk = |code: &str| PastConversation {
        task: code.into(),
        day: TODAY,
        happened: vec![
            Happened::Said(format!("It is about {code}.")),
            Happened::Called(
                "buy".into(),
                object(json!({
                    "order": { "code": code, "lines": [{ "sku": code, "of": code }] },
                    "send": { "street": code },
                    "speed": "express",
                })),
            ),
        ],
    };
    let known: Vec<_> = (0..12).map(|at| talk(&format!("BK{at:04}"))).collect();
    let kept = serde_json::to_string(&learnt(&known, &schemas).kept()).expect("JSON");
    let read: Patterns = serde_json::from_str(&kept).expect("patterns");
    let unseen = talk("BK4321");
    let guesses = read.admitted(&schemas).guesses(&unseen, &schemas, |_| true);
    let (tool, arguments) = unseen.calls().next().expect("a call");
    assert_eq!(guesses[0][0], (tool.to_owned(), arguments.clone()));
    // A key that is not declared is still none.
    let invented = object(json!({
        "order": { "mia": 1, "lines": [{ "sku": 2, "tom": 3 }] }, "send": { "shop": 4, "ann": 5 },
    }));
    assert_eq!(
        schemas.declared("buy", &invented),
        object(json!({ "order": { "lines": [{ "sku": 2 }] }, "send": { "shop": 4 } }))
    );
}

#[test]
fn schemas_that_refer_to_themselves_are_read_within_bounds() {
    let node = json!({ "$ref": "#/$defs/Node" });
    let names = ('a'..='j').map(|name| (name.to_string(), node.clone()));
    let properties = Value::Object(names.collect());
    let list = json!({ "items": node });
    let mut schemas = Schemas::default();
    schemas.add(
        "walk",
        &json!({
            "properties": { "node": node, "list": list, "loop": { "$ref": "#/$defs/Loop" } },
            "$defs": {
                "Node": { "properties": properties },
                "Loop": { "anyOf": [{ "$ref": "#/$defs/Loop" }, { "$ref": "#/$defs/Gone" }] },
            },
        }),
    );
    for place in ["/node/a/j/a", "/list/0/j/a", "/loop"] {
        assert!(schemas.declares("walk", place), "{place}");
    }
    for place in ["/node/k", "/loop/a", "/node/a/a/a/a/a/a/a/a/a/a"] {
        assert!(!schemas.declares("walk", place), "{place}");
    }
    let all = json!({ "$ref": "#" });
    schemas.add("deep", &json!({ "properties": { "in": all, "x": {} } }));
    assert!(schemas.declares("deep", "/in/in/in/x"));
    // A million were kept: room was left for the fields of each field.
    let wide = (0..1_000).map(|at| (format!("f{at}"), all.clone()));
    let wide = Value::Object(wide.collect());
    schemas.add("wide", &json!({ "properties": wide }));
    assert!(schemas.declares("wide", "/f999"));
    assert!(!schemas.declares("wide", "/f999/f999"));
    assert_eq!(schemas.count("wide"), 1_001);
    // A list within each field takes room as well.
    let lists = (0..100).map(|at| (format!("f{at}"), json!({ "items": all })));
    let lists = Value::Object(lists.collect());
    schemas.add("lists", &json!({ "properties": lists }));
    for tool in ["walk", "deep", "lists"] {
        let count = schemas.count(tool);
        assert!(count < 20_000, "{tool}: {count}");
    }
}

/// Digits were taken for values, in declared names as well.
#[test]
fn an_argument_with_a_digit_in_its_declared_name_is_learned_and_kept() {
    let text = json!({ "type": "string" });
    let mut schemas = Schemas::default();
    schemas.add("deliver", &json!({ "properties": { "line_2": text } }));
    let hosts = json!({ "type": "array", "items": { "properties": { "ipv4": text } } });
    schemas.add("ping", &json!({ "properties": { "hosts": hosts } }));
    let talk = |code: &str| PastConversation {
        task: code.into(),
        day: TODAY,
        happened: vec![
            Happened::Said(format!("It is about {code}.")),
            Happened::Called("deliver".into(), object(json!({ "line_2": code }))),
            Happened::Called(
                "ping".into(),
                object(json!({ "hosts": [{ "ipv4": code }] })),
            ),
        ],
    };
    let known: Vec<_> = (0..12).map(|at| talk(&format!("BK{at:04}"))).collect();
    let kept = serde_json::to_string(&learnt(&known, &schemas).kept()).expect("JSON");
    let read: Patterns = serde_json::from_str(&kept).expect("patterns");
    let unseen = talk("BK4321");
    let guesses = read.admitted(&schemas).guesses(&unseen, &schemas, |_| true);
    for ((tool, arguments), guesses) in unseen.calls().zip(&guesses) {
        assert_eq!(guesses[0], (tool.to_owned(), arguments.clone()));
    }
}

#[test]
fn a_tool_is_forgotten_whole() {
    let mut patterns = learnt(&talks(), &schemas());
    let before = patterns.len();
    let gone = patterns.forget("status");
    assert!(gone > 0 && patterns.len() + gone == before);
    let kept = serde_json::to_string(&patterns).expect("JSON");
    assert!(!kept.contains("status"), "{kept}");
}

/// Any JSON, up to some depth.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..5i64).prop_map(Value::from),
        "[a-zA-Z0-9_ ]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec(("[a-zA-Z0-9_/ ]{0,6}", inner), 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn happening() -> impl Strategy<Value = Happened> {
    let call = (
        "[a-c]|find|search",
        prop::collection::vec(("code|from|[x-z]", anything()), 0..4),
    );
    prop_oneof![
        ".{0,60}".prop_map(Happened::Said),
        call.prop_map(|(tool, given)| Happened::Called(tool, given.into_iter().collect())),
        anything().prop_map(Happened::Resulted),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Under any input it stays within bounds, is the same each time, and can be read again.
    #[test]
    fn any_conversation_is_learned_within_bounds(happened in prop::collection::vec(happening(), 0..40)) {
        let conversation = PastConversation { task: String::new(), day: TODAY, happened };
        let learn = || learnt(std::iter::repeat_n(&conversation, 3), &schemas());
        let patterns = learn();
        prop_assert!(patterns.len() <= 5_000);
        let text = serde_json::to_string(&patterns).expect("JSON");
        prop_assert_eq!(&text, &serde_json::to_string(&learn()).expect("JSON"));
        let read: Patterns = serde_json::from_str(&text).expect("patterns");
        prop_assert_eq!(read.admitted(&schemas()).list().len(), patterns.list().len());
        conversation.follow(&schemas(), |trail, _, _| {
            for guess in patterns.predict(trail, &schemas(), |_| true, 3) {
                assert!((0.0..=1.0).contains(&guess.confidence), "{guess:?}");
                assert!(guess.confidence <= guess.likelihood + 1e-9, "{guess:?}");
            }
        });
    }
}

#[test]
fn there_are_never_too_many_patterns() {
    let mut schemas = schemas();
    let mut patterns = Patterns::default();
    for round in 0..2_000 {
        let (first, second) = (format!("t{}", round % 200), format!("t{}", round * 7 % 199));
        schemas.add(&first, &json!({}));
        let number = patterns.begin();
        let happened = [first, second].map(|tool| Happened::Called(tool, Map::new()));
        let talk = PastConversation {
            task: String::new(),
            day: TODAY,
            happened: happened.to_vec(),
        };
        talk.follow(&schemas, |trail, tool, arguments| {
            patterns.learn(number, trail, &schemas, tool, arguments);
        });
    }
    assert!(
        (1_000..=4_096).contains(&patterns.len()),
        "{}",
        patterns.len()
    );
}

fn declared(name: &str, effect: Effect) -> Arc<Declaration> {
    let spec = ToolSpec {
        examples: Vec::new(),
        name: name.into(),
        description: String::new(),
        parameters: json!({ "type": "object", "properties": { "code": { "type": "string" } } }),
    };
    let mut tool = Declaration::new(spec, effect, std::time::Duration::from_secs(1));
    tool.equivalence
        .insert("code".into(), vec![Equivalence::Case]);
    Arc::new(tool)
}

/// A source and the sessions that it is asked in.
pub(super) struct Desk(Transitions, PatternFigures, Memory);

impl Desk {
    fn new() -> Self {
        Self::with(Memory::default())
    }

    pub(super) fn with(memory: Memory) -> Self {
        let tools = [
            declared("find", Effect::Read),
            declared("status", Effect::Read),
            declared("cancel", Effect::Irreversible),
        ];
        let clock = Arc::new(crate::tools::SystemClock);
        let figures = PatternFigures::default();
        let today = Today::new(clock, TimeZone::UTC);
        let source = Transitions::new(&tools, today, figures.clone(), memory.clone());
        Self(source, figures, memory)
    }

    /// How many tools are stopped.
    pub(super) fn stopped(&self) -> i64 {
        self.1.stopped.get()
    }

    pub(super) fn patterns(&self) -> Patterns {
        let agents = self.2.book().0;
        agents.get("default").cloned().unwrap_or_default()
    }

    fn commit(&self, session: Uuid, tool: &str, arguments: Value) {
        let arguments = object(arguments);
        let call = Committed {
            tool: tool.into(),
            arguments: self.0.canonical(tool, &arguments),
            written: arguments,
        };
        self.0.committed(session, &call);
    }

    fn ask(
        &self,
        session: Uuid,
        text: &str,
        calls: &[PastCall],
    ) -> Vec<crate::prediction::Prediction> {
        let evidence = Evidence {
            text: text.into(),
            paused: true,
            calls: calls.to_vec(),
            ..Evidence::default()
        };
        self.ask_by(session, None, evidence)
    }

    fn ask_by(
        &self,
        session: Uuid,
        came_by: Option<&str>,
        evidence: Evidence,
    ) -> Vec<crate::prediction::Prediction> {
        let question = Question {
            session,
            agent: "default".into(),
            came_by: came_by.map(Arc::from),
            history: Vec::new(),
            evidence,
            tools: crate::prediction::LentTools::default(),
        };
        let answer = self.0.predict(Arc::new(question)).now_or_never();
        answer.expect("at once").expect("no failure")
    }

    /// A session that came by `came_by`, whose first turn makes this call. Returns what was predicted when it opened.
    fn opened(
        &self,
        came_by: &str,
        words: &str,
        tool: &str,
        arguments: Value,
    ) -> Vec<crate::prediction::Prediction> {
        let session = Uuid::new_v4();
        let opens = Evidence {
            moment: Moment::Opened,
            ..Evidence::default()
        };
        let predicted = self.ask_by(session, Some(came_by), opens);
        let said = Evidence {
            text: words.into(),
            paused: true,
            ..Evidence::default()
        };
        self.ask_by(session, Some(came_by), said);
        self.commit(session, tool, arguments);
        self.0.ended(session);
        predicted
    }

    /// A session in which a booking is found, and then something is done with it. Returns what was predicted after the
    /// booking.
    pub(super) fn session(&self, code: &str, then: &str) -> Vec<crate::prediction::Prediction> {
        self.session_of(code, then, 1).remove(0)
    }

    /// Such a session in which the sources are asked this often after the booking. Returns what was predicted each time.
    fn session_of(
        &self,
        code: &str,
        then: &str,
        questions: usize,
    ) -> Vec<Vec<crate::prediction::Prediction>> {
        let session = Uuid::new_v4();
        let words = format!("My booking is {code}");
        self.ask(session, &words, &[]);
        self.commit(session, "find", json!({ "code": code }));
        let found = [PastCall {
            tool: "find".into(),
            arguments: object(json!({ "code": code })),
            result: Some(json!({ "id": code })),
        }];
        let predicted = (0..questions).map(|_| self.ask(session, &words, &found));
        let predicted = predicted.collect();
        self.commit(session, then, json!({ "code": code }));
        self.0.ended(session);
        predicted
    }
}

/// Whether the state of the flight is surely predicted.
fn is_sure(predicted: &[crate::prediction::Prediction]) -> bool {
    let mut predicted = predicted.iter();
    predicted.any(|one| one.tool == "status" && one.confidence >= 0.5)
}

#[test]
fn a_source_that_became_wrong_is_stopped_and_tried_now_and_then() {
    let desk = Desk::new();
    let code = |at: usize| format!("BK{at:04}");
    for at in 0..20 {
        desk.session(&code(at), "status");
    }
    let predicted = desk.session("BK9999", "status");
    assert_eq!(predicted[0].arguments["code"], "BK9999");
    assert_eq!(
        (is_sure(&predicted), predicted[0].source),
        (true, Source::Transition)
    );
    // From now on it is something else.
    let mut after = 0;
    for at in 100..112 {
        after += usize::from(is_sure(&desk.session(&code(at), "cancel")));
    }
    assert_eq!((desk.1.drifts.get(), desk.stopped()), (1, 1));
    assert!(after < 9, "{after} of 12");
}

/// Every eighth question was answered, of which a turn has many.
#[test]
fn a_stopped_tool_is_tried_in_one_whole_case_of_eight() {
    let desk = Desk::new();
    for at in 0..40 {
        desk.session(&format!("BK{at:04}"), "status");
    }
    let mut at = 100;
    while desk.stopped() == 0 {
        desk.session(&format!("BK{at:04}"), "cancel");
        at += 1;
        assert!(at < 120, "it is never stopped");
    }
    let shown = (0..8).map(|nth| {
        let answers = desk.session_of(&format!("BK{:04}", 200 + nth), "cancel", 12);
        answers.iter().filter(|one| is_sure(one)).count()
    });
    let shown: Vec<usize> = shown.collect();
    let tried = shown.iter().filter(|times| **times > 0).count();
    assert!(tried <= 1, "{shown:?}");
    assert!(
        shown.iter().all(|times| [0, 12].contains(times)),
        "{shown:?}"
    );
}

/// A stop ended only with right predictions, of which there were none once the patterns had changed.
#[test]
fn a_stop_ends_once_what_was_wrong_is_forgotten() {
    let desk = Desk::new();
    for at in 0..20 {
        desk.session(&format!("BK{at:04}"), "status");
    }
    for at in 100..112 {
        desk.session(&format!("BK{at:04}"), "cancel");
    }
    assert_eq!((desk.1.drifts.get(), desk.stopped()), (1, 1));
    for at in 200..300 {
        desk.session(&format!("BK{at:04}"), "cancel");
    }
    assert_eq!((desk.1.drifts.get(), desk.stopped()), (1, 0));
}

#[test]
fn what_changes_something_is_not_predicted_but_learned_from() {
    let desk = Desk::new();
    for at in 0..20 {
        let predicted = desk.session(&format!("BK{at:04}"), "cancel");
        assert!(predicted.iter().all(|one| one.tool != "cancel"));
    }
    let patterns = desk.patterns();
    assert!(patterns.list().iter().any(|one| one.tool == "cancel"));
}

#[test]
fn nothing_of_a_session_is_left_once_it_has_ended() {
    let desk = Desk::new();
    desk.session("BK1234", "status");
    let left = format!("{:?} {:?}", *desk.0.sessions(), desk.2);
    assert!(!left.contains("BK1234"), "{left}");
}

/// The path of a result is learned from the arguments as the model wrote them: in the canonical form the code is in
/// lower case, and no result has it.
#[test]
fn a_tool_whose_canonical_form_changes_case_teaches_where_its_arguments_come_from() {
    let desk = Desk::new();
    for at in 0..6 {
        desk.session(&format!("BK{at:04}"), "status");
    }
    let sources = desk.patterns().sources("status");
    let of_result = |one: &&(String, String, Rate)| one.1 == "result /id of find";
    let result = sources.iter().find(of_result).expect("a path of a result");
    assert!(result.2.hits > 5.0, "{sources:?}");
}

#[test]
fn agents_learn_apart() {
    let desk = Desk::new();
    for at in 0..6 {
        desk.session(&format!("BK{at:04}"), "status");
    }
    let question = Question {
        session: Uuid::new_v4(),
        agent: "another".into(),
        came_by: None,
        history: Vec::new(),
        evidence: Evidence {
            text: "My booking is BK0007".into(),
            paused: true,
            ..Evidence::default()
        },
        tools: crate::prediction::LentTools::default(),
    };
    let answer = desk.0.predict(Arc::new(question)).now_or_never();
    assert!(answer.expect("at once").expect("no failure").is_empty());
}

/// A model may invent a tool of what it has heard.
#[test]
fn no_name_of_an_unknown_tool_is_kept() {
    let desk = Desk::new();
    let session = Uuid::new_v4();
    desk.ask(session, "I am Rosalind", &[]);
    desk.commit(session, "find_rosalind", json!({ "rosalind": "Rosalind" }));
    desk.commit(session, "find", json!({ "code": "BK1", "rosalind": 1 }));
    desk.commit(session, "status", json!({ "code": "BK1" }));
    desk.0.ended(session);
    let kept = serde_json::to_string(&desk.2.book()).expect("JSON");
    assert!(!kept.to_lowercase().contains("rosalind"), "{kept}");
    assert!(kept.contains("status") && kept.contains("find"));
}

/// The model makes a real and an invented call in one answer; the result of the real one comes later.
#[test]
fn an_invented_call_keeps_no_result_from_the_call_before_it() {
    let desk = Desk::new();
    let call = |tool: &str, result| PastCall {
        tool: tool.into(),
        arguments: Map::new(),
        result,
    };
    let talk = |at: usize| {
        let session = Uuid::new_v4();
        let words = "Is my flight on time?";
        desk.ask(session, words, &[]);
        desk.commit(session, "find", json!({}));
        desk.commit(session, "find_status", json!({}));
        let (found, code) = (call("find", None), format!("BK{at:04}"));
        desk.ask(session, words, &[found.clone(), call("find_status", None)]);
        let found = PastCall {
            result: Some(json!({ "id": code })),
            ..found
        };
        let predicted = desk.ask(session, words, &[found, call("find_status", None)]);
        desk.commit(session, "status", json!({ "code": code }));
        desk.0.ended(session);
        predicted
    };
    (0..12).for_each(|at| drop(talk(at)));
    let predicted = talk(12);
    let sources = desk.patterns().sources("status");
    let of_result = |one: &&(String, String, Rate)| one.1 == "result /id of find";
    assert!(sources.iter().any(|one| of_result(&one)), "{sources:?}");
    let first = predicted.first().expect("a prediction");
    assert_eq!(
        (&*first.tool, &first.arguments["code"]),
        ("status", &json!("BK0012"))
    );
}

/// The way by which a client came tells which call begins the session.
#[test]
fn the_first_call_is_foreseen_when_a_session_opens() {
    let desk = Desk::new();
    for _ in 0..12 {
        desk.opened("phone", "Good morning.", "find", json!({}));
        desk.opened("desktop", "Hello.", "status", json!({}));
    }
    let first = |came_by: &str, tool: &str| {
        let predicted = desk.opened(came_by, "Hi.", tool, json!({}));
        (predicted[0].tool.clone(), predicted[0].confidence >= 0.5)
    };
    assert_eq!(first("phone", "find"), ("find".into(), true));
    assert_eq!(first("desktop", "status"), ("status".into(), true));
    // In general either is as likely.
    let predicted = desk.opened("wyoming", "Hi.", "status", json!({}));
    assert!(
        predicted.iter().all(|one| one.confidence < 0.5),
        "{predicted:?}"
    );
}

/// Also if the same words were said before: what is said now may be something else.
#[test]
fn before_words_nothing_is_taken_from_words() {
    let desk = Desk::new();
    for at in 0..12 {
        let code = format!("BK{at:04}");
        let words = format!("My booking is {code}");
        let predicted = desk.opened("phone", &words, "find", json!({ "code": code }));
        assert!(predicted.is_empty(), "{predicted:?}");
    }
    let session = Uuid::new_v4();
    let known = desk.ask(session, "My booking is BK7777", &[]);
    assert_eq!(known[0].arguments["code"], "BK7777");
    let speaks = Evidence {
        moment: Moment::Speech,
        ..Evidence::default()
    };
    let predicted = desk.ask_by(session, None, speaks);
    assert!(predicted.is_empty(), "{predicted:?}");
}

/// A sound without speech does not count as a turn of the user.
#[test]
fn a_question_before_words_teaches_nothing() {
    let talk = |noises: usize| {
        let desk = Desk::new();
        for at in 0..6 {
            let session = Uuid::new_v4();
            let words = format!("My booking is BK{at:04}");
            desk.ask(session, &words, &[]);
            for _ in 0..noises {
                let speaks = Evidence {
                    moment: Moment::Speech,
                    ..Evidence::default()
                };
                desk.ask_by(session, None, speaks);
            }
            desk.commit(session, "find", json!({ "code": format!("BK{at:04}") }));
            desk.0.ended(session);
        }
        serde_json::to_string(&desk.patterns()).expect("JSON")
    };
    assert_eq!(talk(0), talk(3));
}

/// Its result is as it usually is.
#[test]
fn a_call_is_predicted_while_the_one_before_it_runs() {
    let desk = Desk::new();
    for at in 0..12 {
        desk.session(&format!("BK{at:04}"), "status");
    }
    let session = Uuid::new_v4();
    let words = "My booking is BK4321";
    desk.ask(session, words, &[]);
    desk.commit(session, "find", json!({ "code": "BK4321" }));
    let runs = PastCall {
        tool: "find".into(),
        arguments: object(json!({ "code": "BK4321" })),
        result: None,
    };
    let predicted = desk.ask(session, words, &[runs]);
    let first = &predicted[0];
    assert_eq!(
        (&*first.tool, &first.arguments["code"]),
        ("status", &json!("BK4321"))
    );
    assert!(first.confidence >= 0.5, "{first:?}");
}

/// Conversations of five calls each about one of many tools, with lists of results.
fn many(talks: usize, tools: u8) -> Vec<PastConversation> {
    let talk = |number: usize| {
        let code = format!("AB{number:04}");
        let mut happened = vec![Happened::Said(format!("It is about my order {code}."))];
        for step in 0..5 {
            let nth = (number * 7 + step * (1 + number / 26 % 15)) % usize::from(tools);
            let tool = format!(
                "t_{}",
                char::from(b'a' + u8::try_from(nth).expect("a letter"))
            );
            let item = |at: usize| format!("IT{}", number * 10 + step + at);
            let arguments = json!({ "code": code, "item": item(0) });
            happened.push(Happened::Called(tool, object(arguments)));
            let items: Vec<Value> = (1..20).map(|at| json!({ "id": item(at) })).collect();
            happened.push(Happened::Resulted(json!({ "order": code, "items": items })));
        }
        PastConversation {
            task: code,
            day: TODAY,
            happened,
        }
    };
    (0..talks).map(talk).collect()
}

/// The most things that a prediction looks at in these conversations.
fn most_looked_at(patterns: &Patterns, talks: &[PastConversation], schemas: &Schemas) -> usize {
    let mut most = 0;
    for talk in talks {
        talk.follow(schemas, |trail, _, _| {
            let before = learner::LOOKED_AT.get();
            patterns.predict(trail, schemas, |_| true, 3);
            most = most.max(learner::LOOKED_AT.get() - before);
        });
    }
    most
}

/// `cargo bench --bench patterns` measures how long that takes.
#[test]
fn a_prediction_looks_at_few_things_among_a_thousand_patterns() {
    let talks = many(400, 26);
    let schemas = PastConversation::schemas(&talks);
    let patterns = learnt(&talks, &schemas);
    assert!(patterns.len() >= 1_000, "{}", patterns.len());
    let most = most_looked_at(&patterns, &talks[..50], &schemas);
    assert!(most <= 1_000, "{most}");
}

/// Predicts in a world where the call after `find` depends on whether the user speaks first. Returns how often the
/// source was found to be wrong in sessions in which `status` follows at once, after as many `noises`, and how often it
/// was sure of `profile`.
fn found_wrong(noises: usize) -> (u64, usize) {
    let tools = ["find", "status", "profile"].map(|name| declared(name, Effect::Read));
    let today = Today::new(Arc::new(crate::tools::SystemClock), TimeZone::UTC);
    let figures = PatternFigures::default();
    let source = Transitions::new(&tools, today, figures.clone(), Memory::default());
    let found = PastCall {
        tool: "find".into(),
        arguments: Map::new(),
        result: Some(json!({"ok": true})),
    };
    let ask = |session, moment, text: &str, calls: &[PastCall]| {
        let evidence = Evidence {
            moment,
            text: text.into(),
            paused: true,
            calls: calls.to_vec(),
            language: None,
        };
        let question = Question {
            session,
            agent: "default".into(),
            came_by: None,
            history: Vec::new(),
            evidence,
            tools: crate::prediction::LentTools::default(),
        };
        let answer = source.predict(Arc::new(question)).now_or_never();
        answer.expect("at once").expect("no failure")
    };
    let commit = |session, tool: &str| {
        let call = Committed {
            tool: tool.into(),
            arguments: Map::new(),
            written: Map::new(),
        };
        source.committed(session, &call);
    };
    let calls = std::slice::from_ref(&found);
    let mut misled = 0;
    for at in 0..60 {
        let session = Uuid::new_v4();
        ask(session, Moment::Words, "Hello there", &[]);
        commit(session, "find");
        ask(session, Moment::Words, "Hello there", calls);
        let speaks_first = at < 40 && at % 2 == 0;
        if speaks_first {
            ask(session, Moment::Words, "And who am I", calls);
        }
        for _ in 0..noises * usize::from(at >= 40) {
            let guesses = ask(session, Moment::Speech, "", calls);
            let first = guesses.first();
            misled +=
                usize::from(first.is_some_and(|one| one.tool == "profile" && one.confidence > 0.5));
        }
        commit(session, if speaks_first { "profile" } else { "status" });
        source.ended(session);
    }
    (figures.drifts.get(), misled)
}

#[test]
fn a_noise_does_not_make_the_next_call_a_wrong_guess() {
    assert_eq!(found_wrong(0), (0, 0));
    let (wrong, misled) = found_wrong(1);
    assert!(
        wrong == 0 && misled >= 12,
        "{wrong} times wrong, {misled} misled"
    );
}

#[test]
fn a_word_that_only_one_choice_has_names_it() {
    let issue = json!({ "enum": ["login_issue", "network_issue", "hardware_issue"] });
    let mut schemas = Schemas::default();
    schemas.add("guide", &json!({ "properties": { "issue": issue } }));
    let talk = |words: &str, issue: &str| PastConversation {
        task: words.into(),
        day: TODAY,
        happened: vec![
            Happened::Said(words.into()),
            Happened::Called("guide".into(), object(json!({ "issue": issue }))),
        ],
    };
    let known = [
        talk("The network is slow, that is the issue.", "network_issue"),
        talk("My login fails.", "login_issue"),
        talk("It is the network, not my login.", "login_issue"),
        talk("There is an issue with my hardware.", "hardware_issue"),
    ];
    let patterns = learnt(&known, &schemas);
    let mut trail = Trail::new(TODAY);
    trail.said("Another issue: my hardware makes a noise.");
    let guesses = patterns.predict(&trail, &schemas, |_| true, 1);
    assert_eq!(
        guesses[0].arguments,
        object(json!({ "issue": "hardware_issue" }))
    );
}

#[test]
fn turns_without_arguments_do_not_make_a_call_less_sure_once_they_are_there() {
    let talk = |code: &str| {
        let words = [
            "Hello there.".to_owned(),
            "I need some help.".to_owned(),
            format!("It is about my booking {code}."),
        ];
        let mut happened: Vec<Happened> = words.map(Happened::Said).into();
        let arguments = object(json!({ "code": code }));
        happened.push(Happened::Called("find".into(), arguments));
        PastConversation {
            task: code.into(),
            day: TODAY,
            happened,
        }
    };
    let known: Vec<_> = (0..12).map(|at| talk(&format!("BK{at:04}"))).collect();
    let patterns = learnt(&known, &schemas());
    let guesses = guesses(&patterns, &talk("BK4321"));
    let first = &guesses[0][0];
    assert_eq!(first.arguments, object(json!({ "code": "BK4321" })));
    assert!(first.confidence >= 0.7, "{first:?}");
}
