//! The patterns of a server: shared by all its sessions and configurations, and kept in a store.

use super::learner::{Guess, Patterns, Rate};
use super::origin::Schemas;
use super::store::{Book, PatternStore, PatternStoreError};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicI64;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often the store is compared with what was learned.
const EVERY: Duration = Duration::from_secs(10);
/// A prediction with at least this confidence counts as a miss if it is wrong.
pub(super) const SURE: f64 = 0.5;
/// Each case multiplies the weight of earlier ones by this: about the last five count for `LATELY`, fifty for
/// `USUALLY`.
const LATELY: f64 = 0.8;
const USUALLY: f64 = 0.98;
/// Cases before a tool may be stopped.
const CASES: f64 = 3.5;
/// A tool whose sure predictions are right in less than this share of recent cases is stopped, and one whose are in
/// more than the other is resumed.
const STOP: f64 = 0.3;
const RESUME: f64 = 0.6;
/// The cases of which one is predicted while a tool is stopped.
const TRIAL: u32 = 8;
/// The calls in a row without a sure prediction of a stopped tool after which the patterns that were wrong count as
/// forgotten.
const FORGOTTEN: u32 = 40;

/// The state of the patterns, for metrics.
#[derive(Debug, Clone, Default)]
pub struct PatternFigures {
    /// Tools that are not predicted at the moment because recent predictions were wrong.
    pub(crate) stopped: Gauge<i64, AtomicI64>,
    /// How often a tool was stopped.
    pub(crate) drifts: Counter,
}

/// All that a server has learned. Clones are the same one.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    learnt: Arc<Mutex<Learnt>>,
    keeper: Option<Arc<Mutex<Keeper>>>,
    /// The thread ends when it is dropped.
    _awake: Option<SyncSender<()>>,
}

/// The learned patterns and their state, behind the lock.
#[derive(Debug, Default)]
pub(super) struct Learnt {
    book: Book,
    /// By agent and tool.
    watched: BTreeMap<(String, String), Watched>,
    figures: PatternFigures,
    /// `None` before the tools are known.
    schemas: Option<Schemas>,
    conversations: u64,
    changed: bool,
}

/// Adds what is learned to a store, and takes from there what others have learned or changed.
struct Keeper {
    learnt: Arc<Mutex<Learnt>>,
    store: Box<dyn PatternStore>,
    /// The stored patterns as they were last seen here, with this server's counts of what it has added.
    seen: Book,
    /// All that an update was to have stored whose answer was lost.
    told: Option<Book>,
    /// The store's last error, so that it is logged once.
    problem: Option<String>,
}

impl Memory {
    /// A memory that starts with the store's patterns, and shares with it what is learned from then on. A store that
    /// cannot be read is left alone until it can, and logged. Blocks until the store has answered.
    pub fn kept(store: Box<dyn PatternStore>) -> Self {
        let learnt: Arc<Mutex<Learnt>> = Arc::default();
        let mut keeper = Keeper {
            learnt: learnt.clone(),
            store,
            seen: Book::default(),
            told: None,
            problem: None,
        };
        keeper.look();
        let keeper = Arc::new(Mutex::new(keeper));
        let (awake, asleep) = sync_channel(1);
        // The store is free for others as soon as the memory is gone.
        let keeps = Arc::downgrade(&keeper);
        let thread = std::thread::Builder::new().name("patterns".into());
        let started = thread.spawn(move || {
            while asleep.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout)
                && let Some(keeper) = keeps.upgrade()
            {
                lock(&keeper).look();
            }
        });
        if let Err(error) = started {
            tracing::warn!(%error, "patterns are saved only when the server stops: their thread cannot be started");
        }
        Self {
            learnt,
            keeper: Some(keeper),
            _awake: Some(awake),
        }
    }

    /// A memory that starts with the patterns of `book` and saves nothing.
    pub fn of(book: Book) -> Self {
        let memory = Self::default();
        memory.lock().replace(book, &Book::default());
        memory
    }

    /// Waits until all that was learned is kept.
    pub async fn finish(&self) {
        if let Some(keeper) = self.keeper.clone() {
            let kept = tokio::task::spawn_blocking(move || lock(&keeper).look()).await;
            if let Err(error) = kept {
                tracing::error!(%error, "patterns were not saved");
            }
        }
    }

    /// Everything learned so far, of all agents.
    pub fn book(&self) -> Book {
        self.lock().book.clone()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Learnt> {
        lock(&self.learnt)
    }
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keeper").finish_non_exhaustive()
    }
}

impl Keeper {
    fn look(&mut self) {
        // The thread outlives a panic, and tries again.
        let exchanged = catch_unwind(AssertUnwindSafe(|| self.exchange()));
        let problem = match exchanged {
            Ok(exchanged) => exchanged.err().map(|error| error.to_string()),
            Err(_) => {
                lock(&self.learnt).changed = true;
                Some("their store panicked".to_owned())
            }
        };
        if self.problem == problem {
            return;
        }
        match &problem {
            Some(error) => {
                tracing::error!(error, "patterns are learned, but cannot be saved");
            }
            None => tracing::info!("patterns are saved again"),
        }
        self.problem = problem;
    }

    fn exchange(&mut self) -> Result<(), PatternStoreError> {
        if self.told.is_some() {
            let was_updated = self.store.was_updated()?;
            if let Some(told) = self.told.take().filter(|_| was_updated) {
                self.seen = told;
            }
        }
        let has_learned = std::mem::take(&mut lock(&self.learnt).changed);
        if !has_learned {
            match self.store.load()? {
                None => return Ok(()),
                Some(stored) if !stored.begins_anew => {
                    self.take_over(stored.book);
                    return Ok(());
                }
                Some(_) => {}
            }
        }
        let (known, schemas) = lock(&self.learnt).known();
        let learned = known.clone().kept();
        let seen = &self.seen;
        let updated = self.store.update(&mut |stored| {
            let mut book = match &schemas {
                Some(schemas) => stored.book.cleaned(schemas),
                None => stored.book,
            };
            match stored.begins_anew {
                true => book.recover(&learned),
                false => book.add_learned(seen, &learned),
            }
            book
        });
        match updated {
            Ok(stored) => {
                self.seen = stored.clone();
                self.replace(stored, &learned, known, schemas.as_ref());
                Ok(())
            }
            Err(error) => {
                lock(&self.learnt).changed = true;
                self.told = Some(learned);
                Err(error)
            }
        }
    }

    /// Takes over what others have stored.
    fn take_over(&mut self, stored: Book) {
        let (known, schemas) = lock(&self.learnt).known();
        let before = std::mem::take(&mut self.seen);
        self.seen = stored.clone();
        self.seen.add_learned(&before, &before);
        self.replace(stored, &before, known, schemas.as_ref());
    }

    /// Puts what is stored, and what was learned since `before`, in the place of what was `known`. Nothing is merged under
    /// the lock unless something was learned meanwhile.
    fn replace(&self, stored: Book, before: &Book, known: Book, schemas: Option<&Schemas>) {
        let mut book = stored;
        book.add_learned(before, &known);
        if let Some(schemas) = schemas {
            book = book.admitted(schemas);
        }
        lock(&self.learnt).replace(book, &known);
    }
}

impl Book {
    /// The part that may be kept: see [`Patterns::kept`].
    pub fn kept(self) -> Self {
        self.each(|one| one.kept())
    }

    /// Cleans what is stored: see [`Patterns::cleaned`].
    fn cleaned(self, schemas: &Schemas) -> Self {
        self.each(|one| one.cleaned(schemas))
    }

    fn admitted(self, schemas: &Schemas) -> Self {
        self.each(|one| one.admitted(schemas))
    }

    fn each(self, change: impl Fn(Patterns) -> Patterns) -> Self {
        let agents = self.0.into_iter();
        Self(agents.map(|(agent, one)| (agent, change(one))).collect())
    }
}

impl Learnt {
    /// Sets the tools, and the metrics of their predictions, from now on.
    pub(super) fn admit(&mut self, schemas: &Schemas, figures: PatternFigures) {
        self.schemas = Some(schemas.clone());
        self.book = std::mem::take(&mut self.book).admitted(schemas);
        self.figures = figures;
        self.count_stopped();
    }

    /// Everything that is known, and the tools.
    fn known(&self) -> (Book, Option<Schemas>) {
        (self.book.clone(), self.schemas.clone())
    }

    /// Puts `book` in the place of what was `known`, and adds what was learned since.
    fn replace(&mut self, mut book: Book, known: &Book) {
        if self.changed {
            book.add_learned(known, &self.book);
        }
        self.book = book;
        let agents = &self.book.0;
        self.watched.retain(|(agent, tool), _| {
            let patterns = agents.get(agent);
            patterns.is_some_and(|one| one.tools().any(|known| known == tool))
        });
        self.count_stopped();
    }

    /// Begins a conversation.
    pub(super) fn begin(&mut self) -> u64 {
        self.conversations += 1;
        self.conversations
    }

    /// The patterns of an agent, if it has any.
    pub(super) fn of(&self, agent: &str) -> Option<&Patterns> {
        self.book.0.get(agent)
    }

    /// The patterns of an agent, for learning.
    pub(super) fn learns(&mut self, agent: &str) -> &mut Patterns {
        self.changed = true;
        self.book.0.entry(agent.to_owned()).or_default()
    }

    /// Whether a prediction of this tool is made although it may be stopped.
    pub(super) fn lets_through(&self, agent: &str, guess: &Guess) -> bool {
        let key = (agent.to_owned(), guess.tool.clone());
        guess.confidence < SURE || self.watched.get(&key).is_none_or(Watched::lets_through)
    }

    /// Counts whether what was expected was right.
    pub(super) fn judge(&mut self, agent: &str, tool: &str, hit: bool) {
        let key = (agent.to_owned(), tool.to_owned());
        match self.watched.entry(key).or_default().add(hit) {
            Some(true) => {
                tracing::warn!(
                    agent,
                    tool,
                    "a tool's calls are no longer predicted from earlier calls: the learned patterns are no longer right"
                );
                self.figures.drifts.inc();
            }
            Some(false) => tracing::info!(agent, tool, "a tool's calls are predicted again"),
            None => {}
        }
        self.count_stopped();
    }

    /// A call was made of which this was expected. A tool that has not been expected surely for long is no longer
    /// stopped: what was wrong is forgotten.
    pub(super) fn called(&mut self, agent: &str, expected: &[Guess]) {
        let is_sure = |of: &str| {
            expected
                .iter()
                .any(|one| one.tool == of && one.confidence >= SURE)
        };
        self.watched.retain(|(of, tool), watched| {
            let is_over = of == agent && watched.is_forgotten(is_sure(tool));
            if is_over {
                let tool = tool.as_str();
                tracing::info!(agent, tool, "a tool's calls may be predicted again");
            }
            !is_over
        });
        self.count_stopped();
    }

    fn count_stopped(&self) {
        let stopped = self.watched.values().filter(|one| one.stopped).count();
        self.figures
            .stopped
            .set(i64::try_from(stopped).unwrap_or(i64::MAX));
    }
}

/// The hit rates of a tool's predictions, recently and usually.
#[derive(Debug, Default)]
struct Watched {
    lately: Rate,
    usually: Rate,
    stopped: bool,
    /// Cases since it was stopped.
    cases: u32,
    /// Calls since it was last expected surely while it is stopped.
    unexpected: u32,
}

impl Watched {
    /// Adds a case. Returns whether the tool is stopped now, if that changes.
    fn add(&mut self, hit: bool) -> Option<bool> {
        self.lately.add(hit, LATELY);
        self.usually.add(hit, USUALLY);
        let share = |rate: Rate| rate.hits / rate.tries;
        let fell = share(self.lately) < STOP.max(share(self.usually) / 2.0);
        let before = self.stopped;
        if self.lately.tries >= CASES {
            self.stopped = match before {
                false => fell,
                true => share(self.lately) < RESUME,
            };
        }
        if self.stopped != before {
            (self.cases, self.unexpected) = (0, 0);
            return Some(self.stopped);
        }
        self.cases = (self.cases + 1) % TRIAL;
        None
    }

    /// Whether it is predicted in this case.
    fn lets_through(&self) -> bool {
        !self.stopped || self.cases == TRIAL - 1
    }

    /// Counts a call of which it `is_expected` surely, or not. Returns whether it is stopped for what is forgotten.
    fn is_forgotten(&mut self, is_expected: bool) -> bool {
        self.unexpected = match self.stopped && !is_expected {
            true => self.unexpected + 1,
            false => 0,
        };
        self.unexpected >= FORGOTTEN
    }
}

#[cfg(test)]
mod tests {
    use super::super::store::{PatternFile, Stored};
    use super::super::tests::Desk;
    use super::*;
    use crate::store::StoreError;
    use serde_json::Value;
    use std::path::Path;

    fn memory(path: &Path) -> Memory {
        Memory::kept(Box::new(PatternFile::at(path)))
    }

    fn sure(desk: &Desk, code: &str) -> bool {
        let predicted = desk.session(code, "status");
        predicted
            .iter()
            .any(|one| one.tool == "status" && f64::from(one.confidence) >= SURE)
    }

    fn forget_status(path: &Path) {
        let mut gone = 0;
        let mut file = PatternFile::at(path);
        let updated = file.update(&mut |mut stored| {
            let agents = stored.book.0.values_mut();
            gone = agents.map(|one| one.forget("status")).sum();
            stored.book
        });
        updated.expect("written");
        assert!(gone > 0);
    }

    fn taught(desk: &Desk) {
        for at in 0..12 {
            desk.session(&format!("BK{at:04}"), "status");
        }
    }

    #[tokio::test]
    async fn a_server_that_starts_again_knows_what_it_had_learned() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state/patterns.json");
        let before = memory(&path);
        taught(&Desk::with(before.clone()));
        before.finish().await;
        let after = Desk::with(memory(&path));
        assert!(sure(&after, "BK7777"));
        assert!(!sure(&Desk::with(Memory::default()), "BK7777"));
    }

    #[tokio::test]
    async fn no_byte_of_the_file_is_of_a_conversation() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("patterns.json");
        let memory = memory(&path);
        taught(&Desk::with(memory.clone()));
        memory.finish().await;
        let text = std::fs::read_to_string(&path).expect("a file");
        // The code is said, an argument, and in a result; the words around it are said.
        for value in ["BK", "bk0", "0003", "My", "booking"] {
            assert!(!text.contains(value), "{value} in {text}");
        }
        assert!(text.contains("status(code)"), "{text}");
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(&path).expect("a file").permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
    }

    #[tokio::test]
    async fn a_torn_or_foreign_file_is_named_and_left_alone_and_learning_goes_on() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("patterns.json");
        let whole = memory(&path);
        taught(&Desk::with(whole.clone()));
        whole.finish().await;
        drop(whole);
        let text = std::fs::read_to_string(&path).expect("a file");
        let torn = &text[..text.len() / 2];
        let newer = text.replace("\"undertone_patterns\":1", "\"undertone_patterns\":9");
        for (wrong, problem) in [
            (torn, "holds no patterns"),
            ("{\"my\": \"notes\"}", "holds no patterns"),
            (newer.as_str(), "has version 9"),
        ] {
            std::fs::write(&path, wrong).expect("written");
            let error = PatternFile::at(&path).load().expect_err("an error");
            let error = error.to_string();
            assert!(error.contains(problem), "{error}");
            let mends = error.contains("patterns.json") && error.contains("move it away");
            assert!(mends, "{error}");
            let memory = memory(&path);
            let desk = Desk::with(memory.clone());
            taught(&desk);
            assert!(sure(&desk, "BK7777"));
            memory.finish().await;
            assert_eq!(std::fs::read_to_string(&path).expect("a file"), wrong);
            // Once it is out of the way, what was learned is kept.
            std::fs::remove_file(&path).expect("removed");
            memory.finish().await;
            assert!(sure(&desk, "BK7778"));
            memory.finish().await;
            assert!(sure(&Desk::with(self::memory(&path)), "BK7779"));
        }
    }

    #[tokio::test]
    async fn what_is_changed_in_the_file_holds_for_a_server_that_runs() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("patterns.json");
        let memory = memory(&path);
        let desk = Desk::with(memory.clone());
        taught(&desk);
        memory.finish().await;
        forget_status(&path);
        memory.finish().await;
        assert!(!sure(&desk, "BK7777"));
        // Learning continues from there.
        memory.finish().await;
        let text = std::fs::read_to_string(&path).expect("a file");
        assert!(text.contains("status"));
    }

    #[tokio::test]
    async fn a_tool_that_is_forgotten_by_hand_is_no_longer_stopped() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("patterns.json");
        let memory = memory(&path);
        let desk = Desk::with(memory.clone());
        for at in 0..21 {
            desk.session(&format!("BK{at:04}"), "status");
        }
        for at in 100..112 {
            desk.session(&format!("BK{at:04}"), "cancel");
        }
        assert_eq!(desk.stopped(), 1);
        memory.finish().await;
        forget_status(&path);
        memory.finish().await;
        assert_eq!(desk.stopped(), 0);
    }

    /// Each used to drop what it had learned for what another had saved. However much each has learned between two
    /// looks at the store, all know in the end what one server would know.
    #[tokio::test]
    async fn servers_with_one_store_learn_together() {
        for between_looks in [1, 25] {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("patterns.json");
            let memories = [(); 3].map(|()| memory(&path));
            let desks = memories.each_ref().map(|one| Desk::with(one.clone()));
            let alone = Desk::with(Memory::default());
            for round in 0..8 {
                for (at, desk) in desks.iter().enumerate() {
                    for nth in 0..between_looks {
                        let code = format!("B{at}{round}{nth:03}");
                        let then = if nth % 5 == 4 || round % 5 == 4 {
                            "cancel"
                        } else {
                            "status"
                        };
                        desk.session(&code, then);
                        alone.session(&code, then);
                    }
                }
                for memory in &memories {
                    memory.finish().await;
                }
            }
            for memory in &memories {
                memory.finish().await;
            }
            let books = memories
                .each_ref()
                .map(|one| one.book().text().expect("JSON"));
            assert!(books[0] == books[1] && books[1] == books[2]);
            let by_name = |one: &Patterns| {
                let mut shown = one.list();
                shown.sort_by(|a, b| (&a.after, &a.tool).cmp(&(&b.after, &b.tool)));
                shown
            };
            let found = by_name(&memories[0].book().0["default"]);
            let expected = by_name(&alone.patterns());
            assert_eq!(found.len(), expected.len());
            for (found, expected) in found.iter().zip(&expected) {
                assert_eq!(
                    (&found.after, &found.tool),
                    (&expected.after, &expected.tool)
                );
                // The rounds end with another order of calls.
                assert!(
                    (found.share - expected.share).abs() < 0.12,
                    "{found:?} {expected:?}"
                );
                let seen = found.observed / expected.observed;
                assert!((0.98..1.02).contains(&seen), "{found:?} {expected:?}");
            }
        }
    }

    #[tokio::test]
    async fn servers_with_one_store_forget_together() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("patterns.json");
        let (first, second) = (memory(&path), memory(&path));
        let (one, other) = (Desk::with(first.clone()), Desk::with(second.clone()));
        taught(&one);
        first.finish().await;
        second.finish().await;
        assert!(sure(&one, "BK7777") && sure(&other, "BK7777"));
        first.finish().await;
        second.finish().await;
        forget_status(&path);
        // Both have learned since; of that, too, nothing about the tool comes back.
        for at in 0..3 {
            one.session(&format!("BK88{at}0"), "status");
        }
        first.finish().await;
        second.finish().await;
        first.finish().await;
        for memory in [first, second] {
            let found = memory.book().0["default"].list();
            assert!(found.iter().all(|one| one.tool != "status"), "{found:?}");
        }
    }

    /// A source that one conversation alone has shown may contain a name: it stays with the server that saw it.
    #[tokio::test]
    async fn what_one_conversation_has_shown_is_not_shared() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("patterns.json");
        let (first, second) = (memory(&path), memory(&path));
        let (one, other) = (Desk::with(first.clone()), Desk::with(second.clone()));
        let sources = |memory: &Memory| {
            let agents = memory.book().0;
            let found = agents.get("default").map(|one| one.sources("status"));
            let found = found.unwrap_or_default().into_iter();
            found.filter(|(_, source, _)| source.contains("id")).count()
        };
        one.session("BK0001", "status");
        first.finish().await;
        second.finish().await;
        assert_eq!((sources(&first) > 0, sources(&second)), (true, 0));
        // Nor is it if one conversation at the other server shows it, too.
        other.session("BK0002", "status");
        second.finish().await;
        first.finish().await;
        assert!(sources(&second) > 0);
        let text = std::fs::read_to_string(&path).expect("a file");
        assert!(!text.contains("/id"), "{text}");
        one.session("BK0003", "status");
        first.finish().await;
        second.finish().await;
        let text = std::fs::read_to_string(&path).expect("a file");
        assert!(text.contains("/id"), "two conversations have shown it");
    }

    /// The names used to stay in a file that was written before they were refused.
    #[tokio::test]
    async fn names_that_no_schema_declares_leave_the_store() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("patterns.json");
        let before = memory(&path);
        taught(&Desk::with(before.clone()));
        before.finish().await;
        drop(before);
        let text = std::fs::read_to_string(&path).expect("a file");
        let with = text.replace("[[\"/code\"]", "[[\"/code\",\"/croissant\"]");
        assert_ne!(text, with);
        std::fs::write(&path, with).expect("written");
        let memory = memory(&path);
        taught(&Desk::with(memory.clone()));
        memory.finish().await;
        let text = std::fs::read_to_string(&path).expect("a file");
        assert!(!text.contains("croissant"), "{text}");
    }

    /// A file whose updates a test changes: it gets what would do the update.
    struct Scripted<F>(PatternFile, F);

    type Update<'a> = &'a mut dyn FnMut() -> Result<Book, PatternStoreError>;

    impl<F> PatternStore for Scripted<F>
    where
        F: FnMut(Update<'_>) -> Result<Book, PatternStoreError> + Send,
    {
        fn load(&mut self) -> Result<Option<Stored>, PatternStoreError> {
            self.0.load()
        }

        fn update(
            &mut self,
            change: &mut dyn FnMut(Stored) -> Book,
        ) -> Result<Book, PatternStoreError> {
            (self.1)(&mut || self.0.update(change))
        }

        fn was_updated(&mut self) -> Result<bool, PatternStoreError> {
            Ok(true)
        }
    }

    fn scripted(
        path: &Path,
        script: impl FnMut(Update<'_>) -> Result<Book, PatternStoreError> + Send + 'static,
    ) -> Memory {
        Memory::kept(Box::new(Scripted(PatternFile::at(path), script)))
    }

    #[tokio::test]
    async fn what_is_learned_while_the_store_is_written_is_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("patterns.json");
        let busy: Arc<Mutex<Option<Desk>>> = Arc::default();
        let meanwhile = busy.clone();
        let kept = scripted(&path, move |update| {
            let updated = update();
            if let Some(desk) = &*lock(&meanwhile) {
                desk.session("BK5555", "status");
            }
            updated
        });
        *lock(&busy) = Some(Desk::with(kept.clone()));
        let (desk, alone) = (Desk::with(kept.clone()), Desk::with(Memory::default()));
        for at in 0..6 {
            for desk in [&desk, &alone] {
                desk.session(&format!("BK{at:04}"), "status");
            }
            kept.finish().await;
            alone.session("BK5555", "status");
        }
        let known = [&desk, &alone].map(|one| serde_json::to_value(one.patterns()).expect("JSON"));
        assert_near(&known[0], &known[1], "");
        *lock(&busy) = None;
    }

    /// Its memory has no place for such arguments, and took the stored ones for forgotten.
    #[tokio::test]
    async fn a_server_without_a_tool_leaves_what_others_know_of_its_arguments() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("patterns.json");
        let before = memory(&path);
        taught(&Desk::with(before.clone()));
        before.finish().await;
        drop(before);
        let text = std::fs::read_to_string(&path).expect("a file");
        let other = text
            .replace("\"status\"", "\"else\"")
            .replace("[[\"/code\"]", "[[\"/who/code\"]");
        assert_ne!(text, other);
        std::fs::write(&path, other).expect("written");
        let memory = memory(&path);
        let desk = Desk::with(memory.clone());
        for at in 0..3 {
            desk.session(&format!("BK9{at:03}"), "cancel");
            memory.finish().await;
        }
        let mut file = PatternFile::at(&path);
        let stored = file.load().expect("patterns").expect("some").book;
        let stored = serde_json::to_value(&stored.0["default"]).expect("JSON");
        let form = &stored["tools"]["else"]["forms"][0];
        assert_eq!(form[0][0], "/who/code", "{stored:#}");
        assert!(form[1].as_f64().expect("a weight") > 10.0, "{form}");
    }

    #[tokio::test]
    async fn an_update_whose_answer_was_lost_is_not_made_twice() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("patterns.json");
        let mut is_lost = true;
        let kept = scripted(&path, move |update| {
            let updated = update()?;
            match std::mem::take(&mut is_lost) {
                true => Err(StoreError::Down.into()),
                false => Ok(updated),
            }
        });
        let (desk, alone) = (Desk::with(kept.clone()), Desk::with(Memory::default()));
        for at in 0..12 {
            for desk in [&desk, &alone] {
                desk.session(&format!("BK{at:04}"), "status");
            }
            kept.finish().await;
        }
        let again = Desk::with(memory(&path));
        for desk in [&desk, &again] {
            let known =
                [desk, &alone].map(|one| serde_json::to_value(one.patterns()).expect("JSON"));
            assert_near(&known[0], &known[1], "");
        }
    }

    /// Checks that these differ in the last digits of numbers at most.
    fn assert_near(one: &Value, other: &Value, at: &str) {
        match (one, other) {
            (Value::Number(a), Value::Number(b)) => {
                let [a, b] = [a, b].map(|number| number.as_f64().expect("a number"));
                assert!((a - b).abs() < 1e-9, "{at}: {a} {b}");
            }
            (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
                // Sources that are equally good come in any order.
                let [a, b] = [a, b].map(|all| {
                    let mut sorted: Vec<&Value> = all.iter().collect();
                    sorted.sort_by_key(|one| one.get("origin").map(Value::to_string));
                    sorted
                });
                let pairs = a.into_iter().zip(b).enumerate();
                pairs.for_each(|(nth, (a, b))| assert_near(a, b, &format!("{at}/{nth}")));
            }
            (Value::Object(a), Value::Object(b)) if a.keys().eq(b.keys()) => {
                let pairs = a.iter().zip(b.values());
                pairs.for_each(|((name, a), b)| assert_near(a, b, &format!("{at}/{name}")));
            }
            _ => assert_eq!(one, other, "{at}"),
        }
    }

    #[tokio::test]
    async fn patterns_whose_store_panics_are_saved_later() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("patterns.json");
        let mut panics = true;
        let kept = scripted(&path, move |update| {
            assert!(!std::mem::take(&mut panics), "a bug in the store");
            update()
        });
        let desk = Desk::with(kept.clone());
        taught(&desk);
        kept.finish().await;
        assert!(!path.exists());
        assert!(sure(&desk, "BK7777"), "learning goes on");
        kept.finish().await;
        assert!(sure(&Desk::with(memory(&path)), "BK7778"));
    }

    #[tokio::test]
    async fn a_folder_that_cannot_be_written_stops_no_learning() {
        let folder = tempfile::tempdir().expect("a folder");
        let blocked = folder.path().join("no-folder");
        std::fs::write(&blocked, "").expect("written");
        let memory = memory(&blocked.join("patterns.json"));
        let desk = Desk::with(memory.clone());
        taught(&desk);
        memory.finish().await;
        assert!(sure(&desk, "BK7777"));
    }
}
