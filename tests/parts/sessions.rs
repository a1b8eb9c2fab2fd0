//! The real session shell with scripted parts: sources of predictions that are late and that learn, a
//! budget that servers share, and tools that come and go.

use crate::support;
use futures_util::future::BoxFuture;
use jiff::civil::Date;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::PATIENCE;
use support::live::without_models;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use undertone::conversation::{Discard, Event, HangUpReason, Input, SpeculationEvent};
use undertone::llm::scripted::{Cue, Scripted};
use undertone::llm::{Llm, LlmStream, Prompt};
use undertone::metrics::Metrics;
use undertone::prediction::patterns::{Memory, PatternFigures, Transitions};
use undertone::prediction::{
    Committed, PredictError, Prediction, Predictor, Question, Said, Source, Today,
};
use undertone::session::{
    self, BudgetMemory, BudgetStore, Builders, Engines, Inbound, Observers, Outbound, Profile,
    SessionHandle, SessionOptions, Spending, SpokenBy,
};
use undertone::tools::{
    CallContext, Confirmation, Declaration, Effect, Eligibility, LiveTools, Registry, SystemClock,
    Tool, ToolError, ToolSpec,
};
use uuid::Uuid;

/// A conversation in words with a real session.
pub(super) struct Talk(SessionHandle);

impl Talk {
    pub(super) fn with(engines: &Arc<Engines>) -> Self {
        Self::open(engines, false)
    }

    fn open(engines: &Arc<Engines>, begins_anew: bool) -> Self {
        let options = SessionOptions {
            spoken_by: SpokenBy::Nobody,
            begins_anew,
            ..SessionOptions::new(Profile::ClientFirst, 16_000)
        };
        Self(session::open(engines, &options))
    }

    async fn says(&self, text: &str, last: bool) {
        let said = Input::Said {
            text: text.into(),
            last,
        };
        let sent = self.0.inbound.send(Inbound::Request(said)).await;
        sent.expect("the session goes on");
    }

    async fn event(&mut self) -> Event {
        loop {
            let next = timeout(PATIENCE, self.0.outbound.recv()).await;
            if let Outbound::Event { event, .. } = next.expect("in time").expect("it goes on") {
                return event;
            }
        }
    }

    /// Says a sentence; returns the events up to the end of the answer.
    pub(super) async fn asks(&mut self, text: &str) -> Vec<Event> {
        self.says(text, true).await;
        self.answer().await
    }

    /// The events up to the end of the answer.
    async fn answer(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        loop {
            events.push(self.event().await);
            if matches!(events.last(), Some(Event::ResponseDone { .. })) {
                return events;
            }
        }
    }

    pub(super) async fn hangs_up(mut self) {
        let request = Inbound::Request(Input::Drain);
        self.0.inbound.send(request).await.expect("it goes on");
        loop {
            let next = timeout(PATIENCE, self.0.outbound.recv()).await;
            match next.expect("in time") {
                Some(Outbound::HangUp(HangUpReason::Shutdown)) | None => return,
                Some(_) => {}
            }
        }
    }
}

/// A weather tool that may run speculatively and reports its city.
struct Weather {
    declaration: Declaration,
    runs: mpsc::Sender<String>,
}

impl Tool for Weather {
    fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    fn call(
        &self,
        arguments: Map<String, Value>,
        _: &CallContext,
    ) -> BoxFuture<'static, Result<Value, ToolError>> {
        let city = arguments["city"].as_str().unwrap_or_default().to_owned();
        self.runs.try_send(city).expect("the test listens");
        Box::pin(async { Ok(json!({"sky": "blue"})) })
    }
}

fn declaration() -> Declaration {
    let spec = ToolSpec {
        examples: Vec::new(),
        name: "weather".into(),
        description: "The weather.".into(),
        parameters: json!({"type": "object", "properties": {"city": {"type": "string"}},
            "required": ["city"]}),
    };
    let mut declaration = Declaration::new(spec, Effect::Read, Duration::from_secs(10));
    declaration.speculation.eligibility = Eligibility::Full;
    declaration
}

/// Engines with the weather and these sources, and the cities that it is looked up for.
fn engines(
    declaration: Declaration,
    llm: Scripted,
    predictors: Vec<Arc<dyn Predictor>>,
    budget: Arc<dyn BudgetStore>,
) -> (Arc<Engines>, mpsc::Receiver<String>) {
    let (runs, ran) = mpsc::channel(16);
    let mut tools = Registry::new();
    let weather = Weather { declaration, runs };
    tools.register(Arc::new(weather)).expect("a tool");
    let builders = Builders {
        tools: tools.into(),
        predictors,
        budget,
        ..without_models(Arc::new(llm))
    };
    (Engines::start(builders).expect("engines"), ran)
}

async fn next(ran: &mut mpsc::Receiver<String>) -> String {
    timeout(PATIENCE, ran.recv())
        .await
        .expect("in time")
        .expect("it runs")
}

fn weather_of(city: &str) -> Prediction {
    Prediction {
        tool: "weather".into(),
        arguments: Map::from_iter([("city".to_owned(), json!(city))]),
        confidence: 0.9,
        source: Source::Draft,
        open: Vec::new(),
    }
}

/// Takes the last word for the city. Of the cities in `late` it does not answer before they are let go.
#[derive(Clone)]
struct Scattered {
    late: &'static [&'static str],
    let_go: watch::Sender<bool>,
}

impl Scattered {
    fn late(late: &'static [&'static str]) -> Self {
        Self {
            late,
            let_go: watch::Sender::new(false),
        }
    }
}

impl Predictor for Scattered {
    fn predict(
        &self,
        question: Arc<Question>,
    ) -> BoxFuture<'static, Result<Vec<Prediction>, PredictError>> {
        let (late, mut let_go) = (self.late, self.let_go.subscribe());
        Box::pin(async move {
            if question.evidence.text.is_empty() {
                return Ok(Vec::new());
            }
            let words = question.evidence.text.split(' ').next_back();
            let city = words.unwrap_or_default().to_owned();
            if late.contains(&&*city) {
                let_go.wait_for(|go| *go).await.expect("the source lives");
            }
            Ok(vec![weather_of(&city)])
        })
    }
}

/// Fails, and panics.
struct Broken;

impl Predictor for Broken {
    fn predict(
        &self,
        question: Arc<Question>,
    ) -> BoxFuture<'static, Result<Vec<Prediction>, PredictError>> {
        Box::pin(async move {
            assert!(!question.evidence.text.contains("Rome"), "a crash");
            Err(PredictError {
                predictor: Source::Draft,
                reason: "gone".into(),
            })
        })
    }
}

#[tokio::test]
async fn a_source_that_answers_late_holds_nobody_up() {
    let slow = Scattered::late(&["Oslo", "Rome"]);
    let quick = Scattered::late(&["Rome"]);
    let sources: Vec<Arc<dyn Predictor>> =
        vec![Arc::new(Broken), Arc::new(slow.clone()), Arc::new(quick)];
    let budget = Arc::new(BudgetMemory::default());
    let (engines, mut ran) = engines(declaration(), Scripted::default(), sources, budget);
    let (here, there) = (Talk::with(&engines), Talk::with(&engines));
    // All who could answer are late, and another session is served meanwhile.
    here.says("the weather in Rome", false).await;
    there.says("the weather in Paris", false).await;
    assert_eq!(next(&mut ran).await, "Paris");
    // One is late, the other is not waited for.
    there.says("the weather in Paris, no, in Oslo", false).await;
    assert_eq!(next(&mut ran).await, "Oslo");
    assert!(ran.try_recv().is_err());
    slow.let_go.send_replace(true);
    assert_eq!(next(&mut ran).await, "Rome");
    assert!(ran.try_recv().is_err(), "Oslo ran once");
}

/// A predictor that expects only what each session has committed.
#[derive(Default)]
struct Learner {
    known: Arc<Mutex<HashMap<Uuid, Committed>>>,
    asked: Mutex<Vec<Question>>,
    ended: watch::Sender<usize>,
}

impl Predictor for Learner {
    fn predict(
        &self,
        question: Arc<Question>,
    ) -> BoxFuture<'static, Result<Vec<Prediction>, PredictError>> {
        self.asked
            .lock()
            .expect("no panic")
            .push((*question).clone());
        let known = self.known.clone();
        Box::pin(async move {
            tokio::task::yield_now().await;
            let known = known.lock().expect("no panic");
            let again = known.get(&question.session).map(|call| Prediction {
                tool: call.tool.clone(),
                arguments: call.arguments.clone(),
                confidence: 0.9,
                source: Source::Transition,
                open: Vec::new(),
            });
            Ok(again.into_iter().collect())
        })
    }

    fn committed(&self, session: Uuid, call: &Committed) {
        let mut known = self.known.lock().expect("no panic");
        known.insert(session, call.clone());
    }

    fn ended(&self, session: Uuid) {
        self.known.lock().expect("no panic").remove(&session);
        self.ended.send_modify(|ended| *ended += 1);
    }
}

#[tokio::test]
async fn a_source_learns_from_what_a_session_commits_and_forgets_it_with_the_session() {
    let llm = Scripted::default()
        .on(
            Cue::words("weather"),
            r#"<speech>Let me see.</speech><tool>weather(city="Paris")</tool>"#,
        )
        .on(Cue::result("weather"), "<speech>Blue sky.</speech>");
    let learner = Arc::new(Learner::default());
    let budget = Arc::new(BudgetMemory::default());
    let sources: Vec<Arc<dyn Predictor>> = vec![learner.clone()];
    let (engines, mut ran) = engines(declaration(), llm, sources, budget);
    let (mut here, mut there) = (Talk::with(&engines), Talk::with(&engines));
    let started = |events: &[Event]| {
        let early = |event: &&Event| {
            matches!(
                event,
                Event::Speculation(SpeculationEvent::Started {
                    source: Source::Transition,
                    ..
                })
            )
        };
        events.iter().filter(early).count()
    };
    let first = here.asks("What is the weather?").await;
    assert_eq!((started(&first), &*next(&mut ran).await), (0, "Paris"));
    here.says("And now", false).await;
    assert_eq!(next(&mut ran).await, "Paris");
    let second = here.asks("And now, the weather?").await;
    assert_eq!(started(&second), 1);
    assert!(ran.try_recv().is_err(), "the early run was committed");
    // Another session has its own past.
    there.says("What is", false).await;
    assert_eq!(started(&there.asks("What is the weather?").await), 0);

    let asked = |text: &str| {
        let asked = learner.asked.lock().expect("no panic");
        let asked = asked.iter().rfind(|one| one.evidence.text == text);
        asked.expect("asked").clone()
    };
    let context = asked("And now");
    let said = [
        Said::User("What is the weather?".into()),
        Said::Agent("Let me see.".into()),
        Said::Agent("Blue sky.".into()),
    ];
    assert_eq!(context.history, said);
    assert_eq!(
        context.evidence.calls[0].result,
        Some(json!({"sky": "blue"}))
    );
    assert_eq!(learner.known.lock().expect("no panic").len(), 2);
    here.hangs_up().await;
    let mut ended = learner.ended.subscribe();
    let one = timeout(PATIENCE, ended.wait_for(|ended| *ended == 1)).await;
    one.expect("in time").expect("it lives");
    assert_eq!(learner.known.lock().expect("no panic").len(), 1);
}

/// A tool of one argument that may run early, with its result. Its runs are reported.
pub(super) struct Lookup {
    declaration: Declaration,
    result: Value,
    runs: mpsc::Sender<String>,
}

impl Lookup {
    pub(super) fn new(
        name: &str,
        argument: &str,
        result: Value,
        runs: &mpsc::Sender<String>,
    ) -> Arc<Self> {
        let spec = ToolSpec {
            examples: Vec::new(),
            name: name.into(),
            description: format!("A {name}."),
            parameters: json!({"type": "object", "properties": {argument: {"type": "string"}},
                "required": [argument]}),
        };
        let mut declaration = Declaration::new(spec, Effect::Read, Duration::from_secs(10));
        declaration.speculation.eligibility = Eligibility::Full;
        Arc::new(Self {
            declaration,
            result,
            runs: runs.clone(),
        })
    }
}

impl Tool for Lookup {
    fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    fn call(
        &self,
        arguments: Map<String, Value>,
        _: &CallContext,
    ) -> BoxFuture<'static, Result<Value, ToolError>> {
        let run = format!("{}{}", self.declaration.spec.name, json!(arguments));
        self.runs.try_send(run).expect("the test listens");
        let result = self.result.clone();
        Box::pin(async { Ok(result) })
    }
}

/// The second call needs an id from the first one's result.
#[tokio::test]
async fn what_one_session_called_next_starts_early_in_another() {
    let mut llm = Scripted::default();
    for order in 1..=7 {
        let call =
            format!(r#"<speech>I am looking.</speech><tool>order(number="A{order}")</tool>"#);
        llm = llm.on(Cue::words(format!("order A{order}")), call);
    }
    let parcel = r#"<speech>And the parcel.</speech><tool>parcel(id="P 5")</tool>"#;
    let llm = llm
        .on(Cue::words("parcel"), parcel)
        .on(Cue::result("order"), "<speech>It is packed.</speech>")
        .on(Cue::result("parcel"), "<speech>It comes today.</speech>");
    let (runs, mut ran) = mpsc::channel(64);
    let mut tools = Registry::new();
    let order = json!({"order": {"parcels": [{"id": "P 5"}]}});
    let tool = Lookup::new("order", "number", order, &runs);
    tools.register(tool).expect("a tool");
    let tool = Lookup::new("parcel", "id", json!({"comes": "today"}), &runs);
    tools.register(tool).expect("a tool");
    let today = Today::new(Arc::new(SystemClock), jiff::tz::TimeZone::UTC);
    let memory = Memory::default();
    let figures = PatternFigures::default();
    let learner = Transitions::new(&tools.declarations(), today, figures, memory.clone());
    let builders = Builders {
        tools: tools.into(),
        predictors: vec![Arc::new(learner)],
        ..without_models(Arc::new(llm))
    };
    let engines = Engines::start(builders).expect("engines");
    let mut here = Talk::with(&engines);
    for order in 1..=6 {
        here.asks(&format!("Where is my order A{order}?")).await;
        here.asks("And where is the parcel?").await;
    }
    here.hangs_up().await;
    while let Ok(run) = ran.try_recv() {
        let known = run.starts_with("order") || run == r#"parcel{"id":"P 5"}"#;
        assert!(known, "{run}");
    }
    let mut there = Talk::with(&engines);
    there.asks("Where is my order A7?").await;
    assert_eq!(next(&mut ran).await, r#"order{"number":"A7"}"#);
    // The user has not finished, so the model has not been asked.
    there.says("And where", false).await;
    assert_eq!(next(&mut ran).await, r#"parcel{"id":"P 5"}"#);
    let events = there.asks("And where is the parcel?").await;
    let committed = |event: &Event| matches!(event, Event::Speculation(SpeculationEvent::Started { source, .. }) if *source == Source::Transition);
    assert!(events.iter().any(committed), "{events:?}");
    assert!(ran.try_recv().is_err(), "each ran once");
    // Nothing of what was said or found is left.
    let kept = serde_json::to_string(&memory.book()).expect("JSON");
    assert!(!kept.contains("A1") && !kept.contains("P 5") && !kept.contains("today"));
}

/// Passes everything on to `source`, and counts the sessions that it knows to be over.
struct Counted {
    source: Transitions,
    ended: watch::Sender<usize>,
}

impl Predictor for Counted {
    fn predict(
        &self,
        question: Arc<Question>,
    ) -> BoxFuture<'static, Result<Vec<Prediction>, PredictError>> {
        self.source.predict(question)
    }

    fn committed(&self, session: Uuid, call: &Committed) {
        self.source.committed(session, call);
    }

    fn ended(&self, session: Uuid) {
        self.source.ended(session);
        self.ended.send_modify(|ended| *ended += 1);
    }
}

/// Answers as the first until it is told to change, and then as the second.
struct Changing {
    models: [Scripted; 2],
    has_changed: Arc<AtomicBool>,
}

impl Llm for Changing {
    fn name(&self) -> &str {
        "scripted"
    }

    fn generate(&self, prompt: Prompt) -> LlmStream {
        let now = usize::from(self.has_changed.load(Ordering::Relaxed));
        self.models[now].generate(prompt)
    }
}

/// A server whose model looks up an order and then its parcel, until `has_changed`: then it looks up no parcel.
struct Shop {
    engines: Arc<Engines>,
    metrics: Arc<Metrics>,
    has_changed: Arc<AtomicBool>,
    ended: watch::Receiver<usize>,
    visits: usize,
    _ran: mpsc::Receiver<String>,
}

impl Shop {
    fn open() -> Self {
        let has_changed = Arc::new(AtomicBool::new(false));
        let looks_up = |llm: Scripted| {
            llm.on(
                Cue::words("order"),
                r#"<speech>I am looking.</speech><tool>order(number="A1")</tool>"#,
            )
            .on(Cue::result("parcel"), "<speech>It comes today.</speech>")
        };
        let follows = r#"<tool>parcel(id="P 5")</tool>"#;
        let models = [follows, "<speech>It is packed.</speech>"]
            .map(|next| looks_up(Scripted::default().on(Cue::result("order"), next)));
        let llm = Changing {
            models,
            has_changed: has_changed.clone(),
        };
        let (runs, ran) = mpsc::channel(4_096);
        let mut tools = Registry::new();
        let results = [
            ("order", "number", json!({"parcel": "P 5"})),
            ("parcel", "id", json!({"comes": "today"})),
        ];
        for (name, argument, result) in results {
            let tool = Lookup::new(name, argument, result, &runs);
            tools.register(tool).expect("a tool");
        }
        let metrics = Arc::new(Metrics::default());
        let today = Today::new(Arc::new(SystemClock), jiff::tz::TimeZone::UTC);
        let (figures, memory) = (metrics.patterns(), Memory::default());
        let source = Transitions::new(&tools.declarations(), today, figures, memory);
        let (counting, ended) = watch::channel(0);
        let source = Counted {
            source,
            ended: counting,
        };
        let builders = Builders {
            tools: tools.into(),
            predictors: vec![Arc::new(source)],
            observers: Observers {
                metrics: metrics.clone(),
                ..Observers::default()
            },
            ..without_models(Arc::new(llm))
        };
        Self {
            engines: Engines::start(builders).expect("engines"),
            metrics,
            has_changed,
            ended,
            visits: 0,
            _ran: ran,
        }
    }

    /// A session about an order. Returns whether the look-up of the parcel was surely predicted from the one of the
    /// order.
    async fn visit(&mut self) -> bool {
        let mut talk = Talk::with(&self.engines);
        let events = talk.asks("Where is my order?").await;
        talk.hangs_up().await;
        self.visits += 1;
        let visits = self.visits;
        let over = self.ended.wait_for(|ended| *ended == visits);
        timeout(PATIENCE, over)
            .await
            .expect("in time")
            .expect("it lives");
        events.iter().any(|event| {
            matches!(event, Event::Speculation(SpeculationEvent::Predicted { prediction, .. })
                if prediction.tool == "parcel" && prediction.confidence >= 0.5)
        })
    }

    fn stopped(&self) -> bool {
        let metrics = self.metrics.render();
        let line = |count: u8| format!("\nundertone_patterns_stopped {count}\n");
        assert!(
            metrics.contains(&line(0)) || metrics.contains(&line(1)),
            "{metrics}"
        );
        metrics.contains(&line(1))
    }
}

#[tokio::test]
async fn what_is_no_longer_right_is_no_longer_predicted_and_the_metrics_say_so() {
    let mut shop = Shop::open();
    for _ in 0..20 {
        shop.visit().await;
    }
    assert!(shop.visit().await && !shop.stopped());
    shop.has_changed.store(true, Ordering::Relaxed);
    let mut wrong = 0;
    while !shop.stopped() {
        wrong += usize::from(shop.visit().await);
        assert!(wrong <= 6, "{wrong} wrong predictions and no end");
    }
    // It is tried now and then.
    let mut tried = 0;
    for _ in 0..16 {
        tried += usize::from(shop.visit().await);
    }
    assert!(tried <= 2 && shop.stopped(), "{tried} of 16");
    // A tool whose predictions are right again is predicted again.
    shop.has_changed.store(false, Ordering::Relaxed);
    let mut visits = 0;
    while shop.stopped() || !shop.visit().await {
        shop.visit().await;
        visits += 1;
        assert!(visits < 200, "never again");
    }
}

/// Calls and their cost, by tool and day.
type Spent = HashMap<(String, Date), (u32, f64)>;

/// A budget of several servers, which answers after a while.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Spent>>);

impl BudgetStore for Shared {
    fn take(&self, call: Spending) -> BoxFuture<'static, bool> {
        let spent = self.0.clone();
        Box::pin(async move {
            tokio::task::yield_now().await;
            let mut spent = spent.lock().expect("no panic");
            let (calls, cost) = spent.entry((call.tool.clone(), call.day)).or_default();
            let fits = call.fits(*calls, *cost);
            *calls += u32::from(fits);
            *cost += call.cost;
            fits
        })
    }
}

#[tokio::test]
async fn servers_share_a_budget() {
    let mut declaration = declaration();
    declaration.speculation.per_day = Some(1);
    let budget = Shared::default();
    let [mut first, mut second] = [(); 2].map(|()| {
        let source: Arc<dyn Predictor> = Arc::new(Scattered::late(&[]));
        engines(
            declaration.clone(),
            Scripted::default(),
            vec![source],
            Arc::new(budget.clone()),
        )
    });
    let here = Talk::with(&first.0);
    here.says("the weather in Paris", false).await;
    assert_eq!(next(&mut first.1).await, "Paris");
    let mut there = Talk::with(&second.0);
    there.says("the weather in Paris", false).await;
    loop {
        if let Event::Speculation(SpeculationEvent::Discarded { reason, .. }) = there.event().await
        {
            assert_eq!(reason, Discard::Budget);
            break;
        }
    }
    assert!(second.1.try_recv().is_err(), "it did not run");
}

/// All runs of `undertone simulate` shared the budget of one day, and only the first ones ran anything early.
#[tokio::test]
async fn a_session_that_begins_anew_has_the_budget_of_a_day() {
    let mut declaration = declaration();
    declaration.speculation.per_day = Some(1);
    let source: Arc<dyn Predictor> = Arc::new(Scattered::late(&[]));
    let budget = Arc::new(BudgetMemory::default());
    let (engines, mut ran) = engines(declaration, Scripted::default(), vec![source], budget);
    for _ in 0..2 {
        let talk = Talk::open(&engines, true);
        talk.says("the weather in Paris", false).await;
        assert_eq!(next(&mut ran).await, "Paris");
    }
}

/// A tool of a server elsewhere, whose list of tools changes. It tells of each run, which ends when it is
/// let go.
struct Remote {
    declaration: Declaration,
    /// It is of this list.
    version: u32,
    runs: mpsc::Sender<(String, u32)>,
    let_go: watch::Receiver<bool>,
}

impl Tool for Remote {
    fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    fn call(
        &self,
        _: Map<String, Value>,
        _: &CallContext,
    ) -> BoxFuture<'static, Result<Value, ToolError>> {
        let run = (self.declaration.spec.name.clone(), self.version);
        self.runs.try_send(run).expect("the test listens");
        let mut let_go = self.let_go.clone();
        Box::pin(async move {
            let_go.wait_for(|go| *go).await.expect("the test goes on");
            Ok(json!("done"))
        })
    }
}

/// A server elsewhere.
struct Elsewhere {
    runs: mpsc::Sender<(String, u32)>,
    let_go: watch::Sender<bool>,
}

impl Elsewhere {
    fn tool(&self, name: &str, version: u32) -> Arc<dyn Tool> {
        let spec = ToolSpec {
            examples: Vec::new(),
            name: name.into(),
            description: format!("Version {version}."),
            parameters: json!({"type": "object"}),
        };
        let timeout = Duration::from_secs(600);
        let mut declaration = Declaration::new(spec, Effect::Reversible, timeout);
        if name == "book" {
            declaration.confirmation = Confirmation::Spoken {
                question: Some(format!("Shall I book it by version {version}?")),
                expiry: Duration::from_secs(600),
            };
        }
        Arc::new(Remote {
            declaration,
            version,
            runs: self.runs.clone(),
            let_go: self.let_go.subscribe(),
        })
    }

    /// Publishes a list: these tools in these versions, and no others.
    fn list(&self, tools: &LiveTools, list: &[(&str, u32)]) {
        let changed = tools.change(|registry| {
            for spec in registry.specs().iter() {
                registry.remove(&spec.name);
            }
            list.iter()
                .try_for_each(|(name, version)| registry.register(self.tool(name, *version)))
        });
        changed.expect("tools that can be registered");
    }
}

/// The description of every tool in the last prompt.
fn told_of(llm: &Scripted) -> Vec<String> {
    let prompts = llm.prompts();
    let tools = &prompts.last().expect("a prompt").tools;
    let told = tools
        .iter()
        .map(|tool| format!("{}: {}", tool.name, tool.description));
    told.collect()
}

fn result_of(events: &[Event]) -> Result<Value, ToolError> {
    let result = events.iter().find_map(|event| match event {
        Event::ToolFinished { result, .. } => Some(result.clone()),
        _ => None,
    });
    result.expect("a result")
}

#[tokio::test]
async fn tools_come_and_go_in_the_middle_of_a_session() {
    let llm = Scripted::default()
        .on(
            Cue::words("look"),
            "<speech>Looking.</speech><tool>look()</tool>",
        )
        .on(Cue::words("book"), "<tool>book()</tool>")
        .on(Cue::Always, "<speech>All right.</speech>");
    let (runs, mut ran) = mpsc::channel(16);
    let elsewhere = Elsewhere {
        runs,
        let_go: watch::Sender::new(false),
    };
    let tools = LiveTools::from(Registry::new());
    elsewhere.list(&tools, &[("look", 1)]);
    let builders = Builders {
        tools: tools.clone(),
        ..without_models(Arc::new(llm.clone()))
    };
    let engines = Engines::start(builders).expect("engines");
    let mut talk = Talk::with(&engines);

    // A call that runs goes on although its tool is gone, and its result is read. A tool is offered
    // when the answer is over.
    talk.says("Have a look.", true).await;
    assert_eq!(
        timeout(PATIENCE, ran.recv()).await.expect("in time"),
        Some(("look".into(), 1))
    );
    elsewhere.list(&tools, &[("book", 1)]);
    elsewhere.let_go.send_replace(true);
    let events = talk.answer().await;
    assert_eq!(result_of(&events), Ok(json!("done")));
    assert_eq!(told_of(&llm), ["look: Version 1."]);

    // A new tool is offered; calling a removed one is an error.
    let events = talk.asks("Have another look.").await;
    assert_eq!(told_of(&llm), ["book: Version 1."]);
    assert_eq!(result_of(&events), Err(ToolError::Unknown("look".into())));
    assert!(ran.try_recv().is_err());

    // A call that waits for a yes keeps the declaration that it was offered with.
    talk.asks("Please book it.").await;
    elsewhere.list(&tools, &[("book", 2)]);
    let events = talk.asks("Yes.").await;
    assert_eq!(result_of(&events), Ok(json!("done")));
    assert_eq!(ran.try_recv(), Ok(("book".into(), 1)));

    // The next one is of the new declaration; it does not run if its tool goes before the yes.
    let events = talk.asks("Please book another.").await;
    let asked = |event: &Event| {
        matches!(event, Event::ConfirmationAsked { question, .. }
            if question.contains("version 2"))
    };
    assert!(events.iter().any(asked), "{events:?}");
    elsewhere.list(&tools, &[]);
    let events = talk.asks("Yes.").await;
    assert_eq!(result_of(&events), Err(ToolError::Unknown("book".into())));
    assert!(ran.try_recv().is_err());
    talk.asks("Thank you.").await;
    assert_eq!(told_of(&llm), Vec::<String>::new());
}
