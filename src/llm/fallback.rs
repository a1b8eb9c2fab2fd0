//! Two models: the second answers if the first is dead or slow.

use super::{GivenResult, Llm, LlmError, LlmEvent, LlmStream, ModelId, Prompt};
use futures_util::future::{BoxFuture, Either, select};
use futures_util::{StreamExt, stream};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::Instant;

/// How long the first model may show no sign of life before the second is asked as well. The conversation gives up
/// on both after four seconds, by default.
const SILENT: Duration = Duration::from_millis(1_500);

/// How long the first model may take until its first word or call before the second is asked as well. Thoughts and
/// signs of life of its server do not extend this.
const SLOW: Duration = Duration::from_millis(3_000);

/// The time after a failure in which the second model is asked first.
const REST: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct FallbackModel {
    model: String,
}

/// Counts the answers of fallbacks. Clones share the counts.
#[derive(Debug, Clone, Default)]
pub struct FallbackFigures {
    /// By the fallback's name.
    pub(crate) answers: Family<FallbackModel, Counter>,
}

#[cfg(test)]
impl FallbackFigures {
    /// Makes the family have a member, so that it is exported.
    pub(crate) fn have_model(&self) {
        let model = "backup".to_owned();
        drop(self.answers.get_or_create(&FallbackModel { model }));
    }
}

/// The model that is asked first, unless it failed a short while ago.
struct Primary {
    model: Arc<dyn Llm>,
    state: Mutex<PrimaryState>,
}

#[derive(Default)]
struct PrimaryState {
    /// When it failed last.
    failed: Option<Instant>,
    /// The prompt of the last warm-up.
    beginning: Option<Prompt>,
    /// Its warm-up after a failure.
    warming: Option<JoinHandle<()>>,
}

impl Primary {
    fn state(&self) -> MutexGuard<'_, PrimaryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_resting(&self) -> bool {
        self.state().failed.is_some_and(|at| at.elapsed() < REST)
    }

    /// It is not asked first for a while. Its server may have unloaded it, and may stop loading it when a question is
    /// given up, so it is warmed up in the background.
    fn failed(self: &Arc<Self>, reason: &str) {
        let seconds = REST.as_secs();
        tracing::warn!(
            reason,
            seconds,
            "the language model failed: its fallback is asked first for a while"
        );
        let mut state = self.state();
        state.failed = Some(now());
        let warms = state
            .warming
            .as_ref()
            .is_some_and(|task| !task.is_finished());
        let beginning = state.beginning.clone().filter(|_| !warms);
        if let (Some(prompt), Ok(runtime)) = (beginning, Handle::try_current()) {
            state.warming = Some(runtime.spawn(self.clone().warm(prompt)));
        }
    }

    async fn warm(self: Arc<Self>, prompt: Prompt) {
        let model = self.model.name();
        match self.model.warm_up(prompt).await {
            Ok(()) => tracing::info!(model, "the language model answers again"),
            Err(error) => {
                let reason = error.details();
                tracing::warn!(model, reason, "the language model does not answer");
            }
        }
    }
}

/// A model with a fallback.
pub struct Fallback {
    name: String,
    primary: Arc<Primary>,
    backup: Arc<dyn Llm>,
    /// The backup's answers.
    answers: Counter,
}

impl Fallback {
    /// Asks `primary`, and `backup` if that fails or is slow before its first word.
    pub fn new(primary: Arc<dyn Llm>, backup: Arc<dyn Llm>) -> Self {
        Self {
            name: format!("{}, then {}", primary.name(), backup.name()),
            primary: Arc::new(Primary {
                model: primary,
                state: Mutex::default(),
            }),
            backup,
            answers: Counter::default(),
        }
    }

    /// This model, with its fallback's answers counted in these figures.
    #[must_use]
    pub fn counted(mut self, figures: &FallbackFigures) -> Self {
        let model = self.backup.name().to_owned();
        self.answers = figures
            .answers
            .get_or_create(&FallbackModel { model })
            .clone();
        self
    }
}

#[allow(clippy::disallowed_methods, reason = "an edge: it reads the clock")]
fn now() -> Instant {
    Instant::now()
}

impl Llm for Fallback {
    fn name(&self) -> &str {
        &self.name
    }

    fn id(&self) -> ModelId {
        self.primary.model.id()
    }

    fn generate(&self, prompt: Prompt) -> LlmStream {
        let primary: Arc<dyn Llm> = Arc::new(Marked(self.primary.model.clone(), PRIMARY));
        let backup: Arc<dyn Llm> = Arc::new(Marked(self.backup.clone(), BACKUP));
        let rests = self.primary.is_resting();
        let (first, second) = match rests {
            true => (backup, primary),
            false => (primary, backup),
        };
        let (primary, answers) = (self.primary.clone(), self.answers.clone());
        // The time counts from the first poll, when the request is made.
        let begin = async move {
            let asked = now();
            let race = Race {
                first: Some(first.generate(prompt.clone())),
                second: None,
                fallback: Some((second, prompt)),
                primary: (!rests).then_some(primary),
                asked,
                alive: asked,
                rests,
                answers,
            };
            stream::unfold(State::Race(Box::new(race)), State::next)
        };
        stream::once(begin).flatten().boxed()
    }

    /// Warms both models up. It ends as soon as one of them is ready; the other goes on loading.
    fn warm_up(&self, prompt: Prompt) -> BoxFuture<'static, Result<(), LlmError>> {
        self.primary.state().beginning = Some(prompt.clone());
        let primary = self.primary.model.warm_up(prompt.clone());
        let backup = self.backup.warm_up(prompt);
        Box::pin(async move {
            match select(tokio::spawn(primary), tokio::spawn(backup)).await {
                Either::Left((Ok(Ok(())), _)) | Either::Right((Ok(Ok(())), _)) => Ok(()),
                Either::Left((failed, backup)) => match backup.await {
                    Ok(Ok(())) => Ok(()),
                    _ => warmed(failed),
                },
                Either::Right((_, primary)) => warmed(primary.await),
            }
        })
    }

    fn often_said(&self, prompt: &Prompt) -> Vec<String> {
        let both = [&self.primary.model, &self.backup].map(|model| model.often_said(prompt));
        both.concat()
    }

    fn takes_results(&self) -> bool {
        self.primary.model.takes_results() || self.backup.takes_results()
    }

    fn give(
        &self,
        response: &str,
        result: GivenResult,
    ) -> BoxFuture<'static, Result<(), LlmError>> {
        match response.strip_prefix(BACKUP) {
            Some(response) => self.backup.give(response, result),
            None => {
                let response = response.strip_prefix(PRIMARY).unwrap_or(response);
                self.primary.model.give(response, result)
            }
        }
    }
}

fn warmed(result: Result<Result<(), LlmError>, JoinError>) -> Result<(), LlmError> {
    result.unwrap_or_else(|error| Err(LlmError::Engine(format!("the warm-up failed: {error}"))))
}

/// The marks before the name of an answer, which tell whose it is.
const PRIMARY: char = '1';
const BACKUP: char = '2';

/// A model whose answers are marked.
struct Marked(Arc<dyn Llm>, char);

impl Llm for Marked {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn id(&self) -> ModelId {
        self.0.id()
    }

    fn generate(&self, prompt: Prompt) -> LlmStream {
        let mark = self.1;
        let events = self.0.generate(prompt);
        let marked = events.map(move |event| match event {
            Ok(LlmEvent::TakesResults { response }) => Ok(LlmEvent::TakesResults {
                response: format!("{mark}{response}"),
            }),
            other => other,
        });
        marked.boxed()
    }
}

/// An answer that is being read.
enum State {
    /// Nobody has said a word.
    Race(Box<Race>),
    /// This model answers.
    Won(LlmStream),
    Failed,
}

/// Two models of which the first to speak or to call a tool answers. The other is dropped, which cancels it.
struct Race {
    first: Option<LlmStream>,
    second: Option<LlmStream>,
    /// The second model, until it is asked.
    fallback: Option<(Arc<dyn Llm>, Prompt)>,
    /// The first, if it is the primary and has not failed.
    primary: Option<Arc<Primary>>,
    /// When the first was asked, and when it showed its last sign of life.
    asked: Instant,
    alive: Instant,
    /// The primary rests: the first is the backup.
    rests: bool,
    /// The backup's answers.
    answers: Counter,
}

type Event = Result<LlmEvent, LlmError>;

impl State {
    async fn next(self) -> Option<(Event, Self)> {
        match self {
            Self::Race(race) => Some(race.next().await),
            Self::Won(mut stream) => {
                let event = stream.next().await?;
                Some((event, Self::Won(stream)))
            }
            Self::Failed => None,
        }
    }
}

impl Race {
    /// The next event of either, and who is left.
    async fn next(mut self: Box<Self>) -> (Event, State) {
        loop {
            let heard = match self.fallback {
                Some(_) => {
                    let until = (self.alive + SILENT).min(self.asked + SLOW);
                    tokio::time::timeout_at(until, self.either()).await.ok()
                }
                None => Some(self.either().await),
            };
            let Some((is_first, event)) = heard else {
                tracing::info!("the language model is slow: its fallback is asked as well");
                self.ask_second();
                continue;
            };
            let whole = |event| match event {
                LlmEvent::End => Err(LlmError::Stream("it ended without an answer".into())),
                event => Ok(event),
            };
            match event.unwrap_or(Ok(LlmEvent::End)).and_then(whole) {
                Ok(LlmEvent::Cut) => {}
                Ok(event) if !event.is_output() || matches!(event, LlmEvent::Used { .. }) => {
                    if is_first {
                        self.alive = now();
                    }
                    return (Ok(event), State::Race(self));
                }
                Ok(event) => {
                    if is_first == self.rests {
                        self.answers.inc();
                    }
                    if let Some(primary) = self.primary.filter(|_| !is_first) {
                        primary.failed("it is slower than its fallback");
                    }
                    let winner = if is_first { self.first } else { self.second };
                    let state = winner.map_or(State::Failed, State::Won);
                    return (Ok(event), state);
                }
                Err(error) if is_first => {
                    self.first = None;
                    if let Some(primary) = self.primary.take() {
                        // The server's words may repeat the user's.
                        tracing::debug!(reason = error.details());
                        primary.failed(&error.cause());
                    }
                    self.ask_second();
                    if self.second.is_none() {
                        return (Err(error), State::Failed);
                    }
                }
                Err(error) => {
                    self.second = None;
                    if self.first.is_none() {
                        return (Err(error), State::Failed);
                    }
                }
            }
        }
    }

    fn ask_second(&mut self) {
        if let Some((fallback, prompt)) = self.fallback.take() {
            self.second = Some(fallback.generate(prompt));
        }
    }

    /// The next event, and whether it is the first model's.
    fn either(&mut self) -> impl Future<Output = (bool, Option<Event>)> {
        poll_fn(|context| {
            for (stream, is_first) in [(&mut self.first, true), (&mut self.second, false)] {
                if let Some(stream) = stream
                    && let Poll::Ready(event) = stream.poll_next_unpin(context)
                {
                    return Poll::Ready((is_first, event));
                }
            }
            Poll::Pending
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::Demands;
    use crate::llm::scripted::{Scripted, Step};
    use futures_util::FutureExt;

    fn prompt() -> Prompt {
        Prompt {
            instructions: None,
            day: None,
            messages: Vec::new(),
            tools: Vec::new().into(),
            demands: Demands::default(),
        }
    }

    fn scripted(steps: Vec<Step>) -> Arc<Scripted> {
        Arc::new(Scripted::always(steps))
    }

    async fn said(llm: &Fallback) -> Result<String, LlmError> {
        let mut events = llm.generate(prompt());
        let mut said = String::new();
        while let Some(event) = events.next().await {
            if let LlmEvent::Speech { text } = event? {
                said.push_str(&text);
            }
        }
        Ok(said)
    }

    #[tokio::test(start_paused = true)]
    async fn a_dead_primary_hands_over_within_the_answer_and_rests() {
        let dead = scripted(vec![Step::Error("gone".into())]);
        let llm = Fallback::new(dead.clone(), scripted(vec![Step::text("Hello.")]));
        assert_eq!(said(&llm).await.unwrap(), "Hello.");
        assert_eq!(said(&llm).await.unwrap(), "Hello.");
        assert_eq!(dead.prompts().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_faster_of_two_slow_models_answers_alone() {
        let slow = |text: &str, ms| scripted(vec![Step::delay_ms(ms), Step::text(text)]);
        let llm = Fallback::new(slow("First.", 3_000), slow("Second.", 1_000));
        assert_eq!(said(&llm).await.unwrap(), "Second.");
        let llm = Fallback::new(slow("First.", 2_000), slow("Second.", 5_000));
        assert_eq!(said(&llm).await.unwrap(), "First.");
        let llm = Fallback::new(slow("First.", 1_000), scripted(vec![Step::Hang]));
        assert_eq!(said(&llm).await.unwrap(), "First.");
    }

    /// Signs of life, which do not count as an answer.
    fn alive(ms: u64) -> Vec<Step> {
        let sign = [Step::Alive, Step::delay_ms(200)];
        (0..ms / 200).flat_map(|_| sign.clone()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn signs_of_life_do_not_keep_the_fallback_waiting_for_ever() {
        let backup = || scripted(vec![Step::text("Second.")]);
        let llm = Fallback::new(scripted(alive(60_000)), backup());
        let began = now();
        assert_eq!(said(&llm).await.unwrap(), "Second.");
        assert_eq!(now() - began, SLOW);
        // The primary rests, so that nobody waits again.
        let began = now();
        assert_eq!(said(&llm).await.unwrap(), "Second.");
        assert_eq!(now() - began, Duration::ZERO);

        let mut thinks = alive(2_000);
        thinks.push(Step::text("First."));
        let llm = Fallback::new(scripted(thinks), backup());
        assert_eq!(said(&llm).await.unwrap(), "First.", "a short thought");

        let llm = Fallback::new(scripted(vec![Step::Hang]), backup());
        let began = now();
        assert_eq!(said(&llm).await.unwrap(), "Second.");
        assert_eq!(now() - began, SILENT);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_without_a_word_hands_over() {
        let silent = scripted(vec![Step::delay_ms(2_000)]);
        let slow = scripted(vec![Step::delay_ms(1_000), Step::text("Second.")]);
        for backup in [scripted(vec![Step::text("Second.")]), slow] {
            let llm = Fallback::new(silent.clone(), backup);
            assert_eq!(said(&llm).await.unwrap(), "Second.");
        }
        let llm = Fallback::new(silent.clone(), silent);
        assert!(said(&llm).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn the_answers_of_the_fallback_are_counted() {
        let figures = FallbackFigures::default();
        let count = |llm: &Fallback| llm.answers.get();
        let dead = scripted(vec![Step::Error("gone".into())]);
        let well = || scripted(vec![Step::text("Hello.")]);
        let llm = Fallback::new(dead, well()).counted(&figures);
        // Once after the failure, and once while the primary rests.
        for answers in 1..=2 {
            assert_eq!(said(&llm).await.unwrap(), "Hello.");
            assert_eq!(count(&llm), answers);
        }
        let llm = Fallback::new(well(), well()).counted(&FallbackFigures::default());
        said(&llm).await.unwrap();
        assert_eq!(count(&llm), 0);
    }

    /// A model that is warm after this time; never if `None`.
    struct Warms(Option<Duration>);

    impl Llm for Warms {
        fn name(&self) -> &str {
            "warms"
        }

        fn generate(&self, _: Prompt) -> LlmStream {
            unreachable!("it is only warmed up")
        }

        fn warm_up(&self, _: Prompt) -> BoxFuture<'static, Result<(), LlmError>> {
            let time = self.0;
            Box::pin(async move {
                tokio::time::sleep(time.unwrap_or(Duration::from_secs(1))).await;
                time.map(drop).ok_or(LlmError::Stream("gone".into()))
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn both_are_warm_as_soon_as_one_is() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        for (primary, backup, after) in [
            (seconds(300), seconds(2), Some(2)),
            (seconds(3), None, Some(3)),
            (None, seconds(9), Some(9)),
            (None, None, None),
        ] {
            let llm = Fallback::new(Arc::new(Warms(primary)), Arc::new(Warms(backup)));
            let began = now();
            let warm = llm.warm_up(prompt()).await.is_ok();
            assert_eq!(warm, after.is_some());
            if let Some(after) = after {
                assert_eq!((now() - began).as_secs(), after);
            }
        }
    }

    /// A model that does not answer until it was warmed up again, which takes a minute.
    struct Unloaded(Scripted, Mutex<u32>);

    impl Llm for Unloaded {
        fn name(&self) -> &str {
            "unloaded"
        }

        fn generate(&self, prompt: Prompt) -> LlmStream {
            match *self.1.lock().unwrap() {
                2.. => self.0.generate(prompt),
                _ => stream::pending().boxed(),
            }
        }

        fn warm_up(&self, _: Prompt) -> BoxFuture<'static, Result<(), LlmError>> {
            *self.1.lock().unwrap() += 1;
            Box::pin(tokio::time::sleep(Duration::from_secs(60)).map(Ok))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_primary_that_was_unloaded_is_loaded_behind_its_fallback() {
        let loaded = Scripted::always(vec![Step::text("First.")]);
        let unloaded = Arc::new(Unloaded(loaded, Mutex::default()));
        let llm = Fallback::new(unloaded.clone(), scripted(vec![Step::text("Second.")]));
        llm.warm_up(prompt()).await.unwrap();
        // The primary rests between these questions. All of them cause one attempt.
        for _ in 0..2 {
            assert_eq!(said(&llm).await.unwrap(), "Second.");
        }
        tokio::time::sleep(REST).await;
        assert_eq!(*unloaded.1.lock().unwrap(), 2);
        assert_eq!(said(&llm).await.unwrap(), "First.");
    }

    /// A model whose server takes results, with those that it was given.
    struct Taking(Scripted, Mutex<Vec<String>>);

    impl Llm for Taking {
        fn name(&self) -> &str {
            "taking"
        }

        fn generate(&self, prompt: Prompt) -> LlmStream {
            let response = "answer".to_owned();
            let takes = stream::once(async { Ok(LlmEvent::TakesResults { response }) });
            takes.chain(self.0.generate(prompt)).boxed()
        }

        fn takes_results(&self) -> bool {
            true
        }

        fn give(&self, response: &str, _: GivenResult) -> BoxFuture<'static, Result<(), LlmError>> {
            self.1.lock().unwrap().push(response.to_owned());
            Box::pin(std::future::ready(Ok(())))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn results_go_to_the_model_that_named_the_answer() {
        let taking = |steps| Arc::new(Taking(Scripted::always(steps), Mutex::default()));
        let slow = taking(vec![Step::delay_ms(9_000), Step::text("Late.")]);
        let backup = taking(vec![Step::text("Hello.")]);
        let llm = Fallback::new(slow.clone(), backup.clone());
        assert!(llm.takes_results());
        let mut events = llm.generate(prompt());
        let mut named = Vec::new();
        while let Some(event) = events.next().await {
            if let LlmEvent::TakesResults { response } = event.unwrap() {
                named.push(response);
            }
        }
        assert_eq!(named.len(), 2);
        let result = GivenResult {
            tool: "clock".into(),
            arguments: serde_json::Map::new(),
            result: "noon".into(),
            keep_alive: crate::time::Micros(1),
        };
        for response in &named {
            llm.give(response, result.clone()).await.unwrap();
        }
        assert_eq!(*slow.1.lock().unwrap(), ["answer"]);
        assert_eq!(*backup.1.lock().unwrap(), ["answer"]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_is_told_only_if_both_fail() {
        let fails = || scripted(vec![Step::Error("gone".into())]);
        let both = Fallback::new(fails(), fails());
        assert!(said(&both).await.is_err());
        let slow_then_dead = vec![Step::delay_ms(2_000), Step::Error("gone".into())];
        let llm = Fallback::new(scripted(slow_then_dead), fails());
        assert!(said(&llm).await.is_err());
    }

    /// The first words are out: another model's answer would not fit after them.
    #[tokio::test(start_paused = true)]
    async fn an_answer_that_breaks_off_is_not_begun_again() {
        let breaks = scripted(vec![Step::text("It is "), Step::Error("gone".into())]);
        let other = scripted(vec![Step::text("Hello.")]);
        let llm = Fallback::new(breaks, other.clone());
        assert!(said(&llm).await.is_err());
        assert!(other.prompts().is_empty());
    }
}
