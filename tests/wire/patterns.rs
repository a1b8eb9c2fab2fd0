//! A spoken conversation about a cancelled flight, with the tools of an airline over HTTP: its reads start before the
//! model asks for them, by what the server has learned from the conversations of others.

use crate::support;
use axum::Router;
use axum::extract::{Path, State};
use axum::routing::any;
use jiff::tz::TimeZone;
use redis::cmd;
use serde_json::{Map, Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::Server;
use support::faults::{Cut, Cutter, Way};
use support::live::{Call, Hears, said, serve, tone, without_models};
use support::program::until;
use support::replicas::Redis;
use undertone::dice::Dice;
use undertone::llm::scripted::{Scripted, Step};
use undertone::llm::{Llm, LlmStream, Message, Prompt};
use undertone::prediction::Today;
use undertone::prediction::patterns::{
    Book, Happened, Memory, PastConversation, PatternFigures, PatternFile, PatternStore, Patterns,
    Schemas, SharedPatterns, Transitions, learnt,
};
use undertone::session::{Builders, Observers};
use undertone::store::StoreTls;
use undertone::tools::{Registry, SystemClock, declared};

/// How long each tool takes.
const TAKES: Duration = Duration::from_millis(400);

/// The airline's tools: name, effect, arguments.
const TOOLS: [(&str, &str, &[&str]); 6] = [
    (
        "get_reservation",
        "read",
        &["confirmation_number", "last_name"],
    ),
    (
        "get_flight_status",
        "read",
        &["flight_number", "flight_date"],
    ),
    ("get_disruption_info", "read", &["flight_number", "date"]),
    (
        "search_rebooking_options",
        "read",
        &["origin", "destination", "date", "fare_class"],
    ),
    (
        "rebook_flight",
        "reversible",
        &["confirmation_number", "journey_id", "new_journey_id"],
    ),
    (
        "assign_seat",
        "reversible",
        &["confirmation_number", "passenger_id", "seat_preference"],
    ),
];

/// The number of earlier callers.
const CALLERS: usize = 40;

/// A turn: the user's words, and the calls that follow with their results.
#[derive(Clone)]
struct Turn {
    words: String,
    calls: Vec<(&'static str, Value, Value)>,
}

/// The conversation of one of many callers: eight turns and nine calls.
fn turns(caller: usize) -> Vec<Turn> {
    const NAMES: [&str; 5] = ["Okafor", "Lindqvist", "Moreau", "Tanaka", "Silva"];
    const AIRPORTS: [&str; 7] = ["BOS", "DEN", "SEA", "AUS", "ORD", "MIA", "PDX"];
    let letter = |at: usize| char::from(b'A' + u8::try_from(at % 26).expect("a letter"));
    let code: String = [7, 11, 3]
        .map(|step| letter(caller * step + step))
        .iter()
        .collect();
    let code = format!("{code}{:03}", 100 + caller * 37 % 900);
    let name = NAMES[caller % NAMES.len()];
    let (from, to) = (AIRPORTS[caller % 7], AIRPORTS[(caller + 3) % 7]);
    let flight = |nth: usize| format!("SK{}", 200 + (caller * 13 + nth * 17) % 700);
    let date = format!("2026-11-{:02}", 1 + caller % 28);
    let journey = |nth| format!("FL_{}", flight(nth));
    let passenger = format!("PAX{:03}", caller % 9 + 1);
    let booking = json!({"status": "success", "reservation": {
        "confirmation_number": code,
        "passengers": [{"passenger_id": passenger, "last_name": name}],
        "fare_class": "main_cabin",
        "journeys": [{"journey_id": journey(0), "flight_number": flight(0), "date": date,
            "origin": from, "destination": to}],
    }});
    let status = |nth, is: &str| json!({"status": "success", "flight": {"flight_number": flight(nth), "state": is}});
    let options: Vec<Value> = (1..4)
        .map(|nth| json!({"journey_id": journey(nth), "flight_number": flight(nth), "seats": nth}))
        .collect();
    let reservation = json!({"confirmation_number": code, "last_name": name});
    let about = |nth| json!({"flight_number": flight(nth), "flight_date": date});
    let disruption = |nth| json!({"flight_number": flight(nth), "date": date});
    let search =
        json!({"origin": from, "destination": to, "date": date, "fare_class": "main_cabin"});
    let rebooking = json!({"confirmation_number": code, "journey_id": journey(0),
        "new_journey_id": journey(1)});
    let seat = json!({"confirmation_number": code, "passenger_id": passenger,
        "seat_preference": "window"});
    let done = || json!({"status": "success"});
    let turn = |words: &str, calls| Turn {
        words: words.into(),
        calls,
    };
    vec![
        turn(
            &format!("My confirmation number is {code} and my last name is {name}."),
            vec![("get_reservation", reservation.clone(), booking.clone())],
        ),
        turn(
            "Is my flight on time?",
            vec![
                ("get_flight_status", about(0), status(0, "cancelled")),
                (
                    "get_disruption_info",
                    disruption(0),
                    json!({"status": "success", "cause": "weather"}),
                ),
            ],
        ),
        turn(
            "What else is there on that day?",
            vec![(
                "search_rebooking_options",
                search,
                json!({"status": "success", "options": options}),
            )],
        ),
        turn(
            "Please take the first one.",
            vec![("rebook_flight", rebooking, done())],
        ),
        turn(
            "Is the new one on time?",
            vec![("get_flight_status", about(1), status(1, "on time"))],
        ),
        turn(
            "I want to sit at the window.",
            vec![("assign_seat", seat, done())],
        ),
        turn(
            "Tell me what is booked now.",
            vec![("get_reservation", reservation, booking)],
        ),
        turn(
            "Is there any trouble with the new flight?",
            vec![(
                "get_disruption_info",
                disruption(1),
                json!({"status": "success", "cause": null}),
            )],
        ),
    ]
}

/// The conversation of an earlier caller, which is never quite the one above: some name the flight before they say who
/// they are, some want one thing only, some ask again. All others leave out a step, and some change the order.
fn earlier(caller: usize) -> Vec<Turn> {
    let mut dice = Dice::named(1, &format!("caller {caller}"));
    let mut turns = turns(caller);
    match dice.index(4) {
        0 => status_first(&mut turns),
        1 => {
            let wish = turns.swap_remove(dice.pick(&[1, 5, 6]));
            turns.truncate(1);
            turns.push(wish);
        }
        2 => {
            let again = dice.index(3);
            turns.insert(again + 1, turns[again].clone());
        }
        _ => {}
    }
    if turns.len() > 4 {
        let mut end = turns.split_off(turns.len() - 4);
        if dice.chance(25) {
            let at = dice.index(end.len() - 1);
            end.swap(at, at + 1);
        }
        end.remove(dice.index(end.len()));
        turns.append(&mut end);
    }
    turns
}

/// The caller begins with the flight, by its number.
fn status_first(turns: &mut [Turn]) {
    let (_, flight, _) = &turns[1].calls[0];
    let [number, date] = ["flight_number", "flight_date"].map(|name| flight[name].as_str());
    let (number, date) = (number.expect("a flight"), date.expect("a day"));
    turns[1].words = format!("Is {number} on {date} on time?");
    turns.swap(0, 1);
}

fn tools_of(turns: &[Turn]) -> Vec<&'static str> {
    let calls = turns.iter().flat_map(|turn| &turn.calls);
    calls.map(|(tool, ..)| *tool).collect()
}

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().expect("an object")
}

/// The same as something to learn from.
fn told(caller: usize) -> PastConversation {
    let mut happened = Vec::new();
    for turn in earlier(caller) {
        happened.push(Happened::Said(turn.words));
        for (tool, arguments, result) in turn.calls {
            happened.push(Happened::Called(tool.into(), object(&arguments)));
            happened.push(Happened::Resulted(result));
        }
    }
    PastConversation {
        task: caller.to_string(),
        day: jiff::civil::date(2026, 11, 1),
        happened,
    }
}

/// A tool, its arguments and its result.
type Answered = (&'static str, Map<String, Value>, Value);

/// The airline's server: gives the results of a conversation, and keeps what it was asked for.
#[derive(Clone)]
struct Airline {
    results: Arc<Vec<Answered>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Airline {
    fn of(turns: &[Turn]) -> Self {
        let calls = turns.iter().flat_map(|turn| &turn.calls);
        let results = calls.map(|(tool, given, result)| (*tool, object(given), result.clone()));
        Self {
            results: Arc::new(results.collect()),
            asked: Arc::default(),
        }
    }

    /// Serves its tools at the returned address.
    fn open(&self) -> std::net::SocketAddr {
        let answer = async |State(airline): State<Self>, Path(tool): Path<String>, body: String| {
            let given: Map<String, Value> = serde_json::from_str(&body).expect("arguments");
            tokio::time::sleep(TAKES).await;
            let found = airline
                .results
                .iter()
                .find(|(name, arguments, _)| *name == tool && *arguments == given);
            airline.asked.lock().expect("no panic").push(tool);
            let result = found.map_or(json!({"status": "not_found"}), |(.., result)| {
                result.clone()
            });
            result.to_string()
        };
        let routes = Router::new().route("/{tool}", any(answer));
        support::serve_on_a_thread(routes.with_state(self.clone()))
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("no panic").clone()
    }
}

/// The airline's tools as an operator declares them.
fn tools(address: std::net::SocketAddr) -> Registry {
    let declare = |(name, effect, arguments): &(&str, &str, &[&str])| {
        let required = json!(arguments);
        let properties: String = arguments
            .iter()
            .map(|name| match *name {
                "seat_preference" => {
                    format!("{name} = {{ type = 'string', enum = ['window', 'aisle'] }}\n")
                }
                name => format!("{name} = {{ type = 'string' }}\n"),
            })
            .collect();
        let body: String = arguments
            .iter()
            .map(|name| format!("{name} = '{{{{ {name} }}}}'\n"))
            .collect();
        let allow = match *effect {
            "read" => "[speculation]\nallow = 'full'\nnetwork = true\n",
            _ => "",
        };
        let text = format!(
            "name = '{name}'\nkind = 'http'\ndescription = 'A tool of the airline.'\neffect = '{effect}'\n\
             [parameters]\nrequired = {required}\n[parameters.properties]\n{properties}\
             [http]\nallow_private = true\nmethod = 'POST'\nurl = 'http://{address}/{name}'\n\
             [http.json]\n{body}{allow}"
        );
        declared::parse(std::path::Path::new("airline.toml"), &text).expect("a declaration")
    };
    let all: Vec<_> = TOOLS.iter().map(declare).collect();
    declared::registry(&all).expect("tools")
}

/// A model that follows the script: it says that it looks, calls, and says that it is done.
struct Agent(Vec<Turn>);

impl Agent {
    fn answer(&self, prompt: &Prompt) -> Vec<Step> {
        let is_user = |message: &Message| matches!(message, Message::User { .. });
        let last = prompt.messages.iter().rposition(is_user).expect("a user");
        let Message::User { text } = &prompt.messages[last] else {
            panic!("no user");
        };
        let turn = self.0.iter().find(|turn| turn.words == *text);
        let turn = turn.unwrap_or_else(|| panic!("nobody says {text:?}"));
        let results = prompt.messages[last..].iter();
        let results = results.filter(|one| matches!(one, Message::ToolResult { .. }));
        let wait = Step::delay_ms(300);
        let Some((tool, arguments, _)) = turn.calls.get(results.count()) else {
            return vec![
                wait,
                Step::text("<speech>That is what I have found.</speech>"),
            ];
        };
        let given = object(arguments);
        let given: Vec<String> = given
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        vec![
            wait.clone(),
            Step::text("<speech>Let me see.</speech>"),
            wait,
            Step::text(format!("<tool>{tool}({})</tool>", given.join(", "))),
        ]
    }
}

impl Llm for Agent {
    fn name(&self) -> &str {
        "scripted"
    }

    fn generate(&self, prompt: Prompt) -> LlmStream {
        Scripted::always(self.answer(&prompt)).generate(prompt)
    }
}

/// Stores what a server that has served these callers has learned.
fn learn(tools: &Registry, callers: std::ops::Range<usize>, store: &mut dyn PatternStore) {
    let schemas = schemas(tools);
    let talks: Vec<PastConversation> = callers.map(told).collect();
    let patterns = learnt(&talks, &schemas).kept();
    let stored = store.update(&mut |mut stored| {
        stored.book.0.insert("default".into(), patterns.clone());
        stored.book
    });
    stored.expect("kept");
}

/// A server that hears the words of the turn whose number it returns.
fn serve_airline(
    airline: &Airline,
    script: Vec<Turn>,
    folder: &std::path::Path,
) -> (Server, Arc<AtomicUsize>) {
    let tools = tools(airline.open());
    let file = || PatternFile::at(&folder.join("patterns.json"));
    learn(&tools, 0..CALLERS, &mut file());
    let memory = Memory::kept(Box::new(file()));
    let today = Today::new(Arc::new(SystemClock), TimeZone::UTC);
    let declared = tools.declarations();
    let source = Transitions::new(&declared, today, PatternFigures::default(), memory.clone());
    let turn = Arc::new(AtomicUsize::new(0));
    let words: Arc<Vec<String>> = Arc::new(script.iter().map(|turn| turn.words.clone()).collect());
    let heard = turn.clone();
    let server = serve(Builders {
        asr: Box::new(move || {
            let (words, heard) = (words.clone(), heard.clone());
            let hears = move |_: &[f32]| Ok(words[heard.load(Ordering::Relaxed)].clone());
            Ok(Box::new(Hears(hears)))
        }),
        tools: tools.into(),
        predictors: vec![Arc::new(source)],
        observers: Observers {
            patterns: memory,
            ..Observers::default()
        },
        ..without_models(Arc::new(Agent(script)))
    });
    (server, turn)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_of_the_calls_of_a_spoken_conversation_start_before_their_commit() {
    let script = turns(40);
    let calls = tools_of(&script).len();
    let is_it = |caller: usize| tools_of(&earlier(caller)) == tools_of(&script);
    assert!(!(0..CALLERS).any(is_it), "nobody has asked for just this");
    let airline = Airline::of(&script);
    let folder = tempfile::tempdir().expect("a folder");
    let (server, turn) = serve_airline(&airline, turns(40), folder.path());
    let mut call = Call::to(&server).await;
    call.until("session.created").await;
    let (mut early, mut committed) = (Vec::new(), Vec::new());
    for (number, expected) in script.iter().enumerate() {
        turn.store(number, Ordering::Relaxed);
        // Earlier speech has been heard by then.
        let mut speech = vec![0; 24 * 1_000];
        speech.extend(tone(1_200));
        call.say(&speech).await;
        let mut events = Vec::new();
        let record = loop {
            events.extend(call.until("undertone.turn_record").await);
            let record = events.last().expect("a record").event.clone();
            if !record["turn"].is_null() {
                break record;
            }
        };
        let words = said(&events);
        assert!(
            words.contains("That is what I have found."),
            "{}: {words:?} {record:#}",
            expected.words
        );
        let runs = record["runs"].as_array().expect("runs");
        for run in runs {
            let is_read = TOOLS
                .iter()
                .any(|(name, effect, _)| run["tool"] == *name && *effect == "read");
            let began_early = run["fate"]["kind"] != "committed"
                || run["started"].as_u64() < run["fate"]["at"].as_u64();
            assert!(is_read || !began_early, "a change that began early: {run}");
            if run["fate"]["kind"] == "committed" {
                committed.push(run["tool"].clone());
                early.extend(began_early.then(|| run["tool"].clone()));
            }
        }
        println!("{}: {}", expected.words, record["runs"]);
    }
    println!("{} of {calls} began early: {early:?}", early.len());
    assert_eq!(committed.len(), calls, "{committed:?}");
    assert!(early.len() * 2 >= calls, "{early:?} of {calls}");
    let changes = |tool: &&String| {
        TOOLS
            .iter()
            .any(|(name, effect, _)| name == tool && *effect != "read")
    };
    assert_eq!(
        airline.asked().iter().filter(changes).count(),
        2,
        "each change was made once"
    );
}

fn calls(memory: &Memory) -> u64 {
    memory.book().0["default"].learnt()
}

fn text(book: &Book) -> String {
    book.text().expect("JSON")
}

fn schemas(tools: &Registry) -> Schemas {
    let declared = tools.declarations();
    Schemas::of(declared.iter().map(|tool| &**tool))
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_with_a_shared_store_learn_from_each_other() {
    let mut redis = Redis::start().await;
    let settings = redis.settings(StoreTls::default());
    let shared = || SharedPatterns::at(settings.clone());
    let [one, other] = [shared(), shared()].map(|store| Memory::kept(Box::new(store)));
    let tools = tools(Airline::of(&turns(40)).open());
    learn(&tools, 0..2, &mut shared());
    for memory in [&one, &other] {
        memory.finish().await;
        assert!(calls(memory) > 0);
    }

    // Both at once: what each has learned is added to what the other has.
    let schemas = schemas(&tools);
    let learns = |mut store: SharedPatterns, callers: std::ops::Range<usize>| {
        let stored = store.load().expect("patterns").expect("some");
        let (before, schemas) = (stored.book, &schemas);
        move || {
            for caller in callers {
                let mut now = before.clone();
                let patterns = now.0.get_mut("default").expect("the agent");
                patterns.study(&told(caller), schemas);
                let updated = store.update(&mut |mut stored| {
                    stored.book.add_learned(&before, &now);
                    stored.book
                });
                updated.expect("stored");
            }
        }
    };
    let (first, second) = (learns(shared(), 2..12), learns(shared(), 12..22));
    std::thread::scope(|threads| {
        threads.spawn(first);
        threads.spawn(second);
    });
    let all: Vec<PastConversation> = (0..22).map(told).collect();
    for memory in [&one, &other] {
        memory.finish().await;
        assert_eq!(calls(memory), learnt(&all, &schemas).learnt());
    }
    assert_eq!(text(&one.book()), text(&other.book()));

    // Without the store the servers know what they know.
    let known = text(&one.book());
    redis.stop().await;
    one.finish().await;
    assert_eq!(text(&one.book()), known);
    assert!(shared().load().is_err());
    redis.resume().await;
    assert!(shared().load().expect("the store is back").is_some());
    one.finish().await;
    assert_eq!(text(&one.book()), known);
}

/// The servers used to forget everything if a new one was the first to write.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_has_lost_its_patterns_gets_them_from_the_servers() {
    let redis = Redis::start().await;
    let settings = redis.settings(StoreTls::default());
    let shared = || SharedPatterns::at(settings.clone());
    let tools = tools(Airline::of(&turns(40)).open());
    learn(&tools, 0..20, &mut shared());
    let [one, other] = [shared(), shared()].map(|store| Memory::kept(Box::new(store)));
    let known = (calls(&one), one.book().0["default"].list());
    for a_new_one_writes_first in [false, true] {
        let flushed = redis.store().await.ask(&cmd("FLUSHALL")).await;
        let (): () = flushed.expect("flushed");
        if a_new_one_writes_first {
            learn(&tools, 20..21, &mut shared());
        }
        for memory in [&one, &other, &one] {
            memory.finish().await;
            let book = memory.book();
            // Of what the new one knows, too, the servers know more.
            assert_eq!((calls(memory), book.0["default"].list()), known);
        }
        let stored = shared().load().expect("patterns").expect("some");
        assert_eq!(text(&stored.book), text(&one.book()));
        assert_eq!(text(&stored.book), text(&other.book()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_of_the_shared_patterns_whose_answer_was_lost_is_known_to_be_made() {
    let redis = Redis::start().await;
    let tools = tools(Airline::of(&turns(40)).open());
    let direct = || SharedPatterns::at(redis.settings(StoreTls::default()));
    learn(&tools, 0..2, &mut direct());
    let behind = |proxy: &Cutter| {
        let mut settings = redis.settings(StoreTls::default());
        settings.url = format!("redis://{}", proxy.address).parse().expect("a URL");
        SharedPatterns::at(settings)
    };
    let whole = Cutter::before(redis.address()).await;
    let mut store = behind(&whole);
    store.load().expect("patterns");
    store.update(&mut |stored| stored.book).expect("stored");
    until(async || (whole.carried(Way::ToClient) > 0).then_some(())).await;
    drop(store);
    // Until the connection has ended, so that all is counted.
    let mut carried = 0;
    until(async || {
        let before = std::mem::replace(&mut carried, whole.carried(Way::ToClient));
        (before == carried).then_some(())
    })
    .await;

    let sent = whole.carried(Way::ToServer);
    for (way, after, is_made) in [
        (Way::ToServer, sent - 2, false),
        (Way::ToClient, carried - 2, true),
    ] {
        let cutter = Cutter::before(redis.address()).await;
        let every = false;
        cutter.cut(Cut { way, after, every });
        let mut store = behind(&cutter);
        store.load().expect("patterns");
        let mut text_before = None;
        let lost = store.update(&mut |stored| {
            text_before = Some(text(&stored.book));
            let forgets = |(agent, mut one): (String, Patterns)| {
                one.forget("assign_seat");
                (agent, one)
            };
            match is_made {
                true => Book(stored.book.0.into_iter().map(forgets).collect()),
                false => stored.book,
            }
        });
        assert!(lost.is_err(), "{lost:?}");
        assert_eq!(store.was_updated().expect("an answer"), is_made);
        let stored = direct().load().expect("patterns").expect("some");
        assert_eq!(text_before != Some(text(&stored.book)), is_made);
    }
}
