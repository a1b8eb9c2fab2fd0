//! A model on its own named threads, one or a pool, behind a bounded inbox.
//!
//! Sending a job never blocks: a full inbox returns [`Overloaded`], and the caller decides what to
//! do. Jobs begin in the order of their due times; offered jobs begin after all sent ones. A job whose
//! token is cancelled before it runs is skipped. A panic fails only its own job, and the state of its
//! thread is rebuilt.

mod inbox;

use inbox::{Receiver, Sender};
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tracing::Span;

/// The worker's inbox is full. The job is dropped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{worker} is overloaded")]
pub struct Overloaded {
    /// The worker's name.
    pub worker: Arc<str>,
}

/// A job was accepted but failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{worker} failed: {reason}")]
pub struct Failed {
    /// The worker's name.
    pub worker: Arc<str>,
    /// The job's panic message, or why the state could not be rebuilt after a panic.
    pub reason: String,
}

/// The reason [`Worker::call`] has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The job was not accepted.
    #[error(transparent)]
    Overloaded(#[from] Overloaded),
    /// The job was accepted but failed.
    #[error(transparent)]
    Failed(#[from] Failed),
}

/// The reason a worker could not start.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError<E: std::error::Error + 'static> {
    /// The thread could not be created.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
    /// Its state, usually a model, could not be built.
    #[error(transparent)]
    State(E),
    /// Building its state panicked.
    #[error(transparent)]
    Panicked(Failed),
}

/// The result of one step of a job.
#[derive(Debug)]
pub enum Step<J, R> {
    /// The job is done.
    Done(R),
    /// The rest of the job is due at this time; jobs that are due earlier run first.
    Later(Instant, J),
}

/// A handle to a worker whose threads turn jobs `J` into results `R`. They end when the last handle is
/// dropped and all accepted jobs are done.
#[derive(Debug)]
pub struct Worker<J, R> {
    name: Arc<str>,
    inbox: Sender<Entry<J, R>>,
}

struct Entry<J, R> {
    job: J,
    cancel: CancellationToken,
    span: Span,
    done: Box<dyn FnOnce(Result<R, Failed>) + Send>,
}

impl<J, R> Clone for Worker<J, R> {
    fn clone(&self) -> Self {
        Self {
            name: self.name.clone(),
            inbox: self.inbox.clone(),
        }
    }
}

impl<J: Send + 'static, R: Send + 'static> Worker<J, R> {
    /// Starts a thread called `name` (Linux shows 15 bytes of it) with an inbox for `capacity`
    /// jobs. Returns once `build` has created the state; it runs on the new thread, so the state
    /// need not be `Send`. `handle` gets each job with its token, which it should check between
    /// steps.
    ///
    /// # Errors
    /// [`SpawnError`] if the thread cannot be created, or the state cannot be built.
    pub fn spawn<S, E>(
        name: &str,
        capacity: usize,
        build: impl FnMut() -> Result<S, E> + Send + 'static,
        mut handle: impl FnMut(&mut S, J, &CancellationToken) -> R + Send + 'static,
    ) -> Result<Self, SpawnError<E>>
    where
        S: 'static,
        E: std::error::Error + Send + 'static,
    {
        Self::spawn_in_steps(name, capacity, build, move |state: &mut S, job, cancel| {
            Step::Done(handle(state, job, cancel))
        })
    }

    /// Like [`Worker::spawn`], but jobs run in steps, so that a job that is due earlier can run
    /// between two steps of another.
    ///
    /// # Errors
    /// [`SpawnError`] if the thread cannot be created, or the state cannot be built.
    pub fn spawn_in_steps<S, E>(
        name: &str,
        capacity: usize,
        build: impl FnMut() -> Result<S, E> + Send + 'static,
        handle: impl FnMut(&mut S, J, &CancellationToken) -> Step<J, R> + Send + 'static,
    ) -> Result<Self, SpawnError<E>>
    where
        S: 'static,
        E: std::error::Error + Send + 'static,
    {
        let (inbox, jobs) = inbox::inbox(capacity);
        let start = start(name, build, jobs, |thread, jobs| thread.run(jobs, handle))?;
        Self::started(name, inbox, [start])
    }

    /// Like [`Worker::spawn`], but with several threads that share the inbox. Each builds a state of its own, all at
    /// the same time. A job begins when one of them is free, so a later job may be done before an earlier one.
    ///
    /// # Errors
    /// [`SpawnError`] if a thread cannot be created, or one of the states cannot be built.
    pub fn spawn_pool<S, E>(
        name: &str,
        threads: NonZeroUsize,
        capacity: usize,
        build: impl Fn() -> Result<S, E> + Send + Sync + 'static,
        handle: impl Fn(&mut S, J, &CancellationToken) -> R + Send + Sync + 'static,
    ) -> Result<Self, SpawnError<E>>
    where
        S: 'static,
        E: std::error::Error + Send + 'static,
    {
        let (build, handle) = (Arc::new(build), Arc::new(handle));
        let (inbox, jobs) = inbox::inbox(capacity);
        let starts: Vec<_> = (0..threads.get())
            .map(|_| {
                let (build, handle) = (build.clone(), handle.clone());
                start(
                    name,
                    move || build(),
                    jobs.clone(),
                    move |thread, jobs| {
                        thread.run(jobs, |state, job, cancel| {
                            Step::Done(handle(state, job, cancel))
                        });
                    },
                )
            })
            .collect::<Result<_, _>>()?;
        Self::started(name, inbox, starts)
    }

    /// Like [`Worker::spawn`], but jobs that wait are handled together, up to `most` at a time: `handle` returns
    /// a result for each, in their order. If that panics, they are done again one by one, so that a panic still
    /// fails only its own job.
    ///
    /// # Errors
    /// [`SpawnError`] if the thread cannot be created, or the state cannot be built.
    pub fn spawn_in_batches<S, E>(
        name: &str,
        capacity: usize,
        most: usize,
        build: impl FnMut() -> Result<S, E> + Send + 'static,
        handle: impl FnMut(&mut S, Vec<(J, CancellationToken)>) -> Vec<R> + Send + 'static,
    ) -> Result<Self, SpawnError<E>>
    where
        J: Clone,
        S: 'static,
        E: std::error::Error + Send + 'static,
    {
        let (inbox, jobs) = inbox::inbox(capacity);
        let start = start(name, build, jobs, move |thread, jobs| {
            thread.run_batches(jobs, most, handle);
        })?;
        Self::started(name, inbox, [start])
    }

    /// The worker whose threads are starting, once all have their state.
    fn started<E: std::error::Error + Send + 'static>(
        name: &str,
        inbox: Sender<Entry<J, R>>,
        starts: impl IntoIterator<Item = Start<E>>,
    ) -> Result<Self, SpawnError<E>> {
        let name: Arc<str> = name.into();
        for start in starts {
            let ended = |_| {
                SpawnError::Panicked(Failed {
                    worker: name.clone(),
                    reason: "the thread ended".into(),
                })
            };
            start.recv().map_err(ended)??;
        }
        Ok(Self { name, inbox })
    }

    /// Sends a job. `done` is called with its result on the worker's thread, so it must not block;
    /// it is dropped uncalled if `cancel` is cancelled before the job runs. Both run in the current
    /// tracing span.
    ///
    /// # Errors
    /// [`Overloaded`] if the inbox is full.
    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: it orders jobs, and decides nothing by the time"
    )]
    pub fn try_send(
        &self,
        job: J,
        cancel: CancellationToken,
        done: impl FnOnce(Result<R, Failed>) + Send + 'static,
    ) -> Result<(), Overloaded> {
        self.send_by(Instant::now(), job, cancel, done)
    }

    /// Sends a job with a due time: jobs that are due earlier run first. Otherwise like
    /// [`Worker::try_send`].
    ///
    /// # Errors
    /// [`Overloaded`] if the inbox is full.
    pub fn send_by(
        &self,
        due: Instant,
        job: J,
        cancel: CancellationToken,
        done: impl FnOnce(Result<R, Failed>) + Send + 'static,
    ) -> Result<(), Overloaded> {
        let sent = self.inbox.send(due, entry(job, cancel, done));
        sent.map_err(|_| self.overloaded())
    }

    /// Offers a job that is only worth doing soon: it runs after all sent jobs. Otherwise like
    /// [`Worker::try_send`].
    ///
    /// # Errors
    /// [`Overloaded`] if the worker is busy: a sent job or several offers are waiting.
    pub fn offer(
        &self,
        job: J,
        cancel: CancellationToken,
        done: impl FnOnce(Result<R, Failed>) + Send + 'static,
    ) -> Result<(), Overloaded> {
        let offered = self.inbox.offer(entry(job, cancel, done));
        offered.map_err(|_| self.overloaded())
    }

    /// The number of waiting jobs that are due by `now`.
    pub fn overdue(&self, now: Instant) -> usize {
        self.inbox.overdue(now)
    }

    fn overloaded(&self) -> Overloaded {
        Overloaded {
            worker: self.name.clone(),
        }
    }

    /// Sends a job and waits for its result. Dropping the future cancels the job.
    ///
    /// # Errors
    /// [`CallError`] if the job is not accepted, or fails.
    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: it orders jobs, and decides nothing by the time"
    )]
    pub async fn call(&self, job: J) -> Result<R, CallError> {
        self.call_by(Instant::now(), job).await
    }

    /// Like [`Worker::call`], with a due time.
    ///
    /// # Errors
    /// As [`Worker::call`].
    pub async fn call_by(&self, due: Instant, job: J) -> Result<R, CallError> {
        let (sender, receiver) = oneshot::channel();
        let cancel = CancellationToken::new();
        let _cancel_if_dropped = cancel.clone().drop_guard();
        self.send_by(due, job, cancel, |result| {
            // If the receiver is gone, the result is dropped.
            let _ = sender.send(result);
        })?;
        Ok(receiver.await.unwrap_or_else(|_| {
            Err(Failed {
                worker: self.name.clone(),
                reason: "the thread ended".into(),
            })
        })?)
    }
}

fn entry<J, R>(
    job: J,
    cancel: CancellationToken,
    done: impl FnOnce(Result<R, Failed>) + Send + 'static,
) -> Entry<J, R> {
    Entry {
        job,
        cancel,
        span: Span::current(),
        done: Box::new(done),
    }
}

impl<J, R> Entry<J, R> {
    /// Takes the job out.
    fn apart(self) -> (J, Entry<(), R>) {
        let Self {
            job,
            cancel,
            span,
            done,
        } = self;
        (
            job,
            Entry {
                job: (),
                cancel,
                span,
                done,
            },
        )
    }

    /// Hands over the job's result.
    fn finish(self, worker: &str, result: Result<R, Failed>) {
        let _entered = self.span.enter();
        if let Err(failure) = &result {
            tracing::error!(%failure);
        }
        let done = self.done;
        if let Err(reason) = guarded(|| done(result)) {
            tracing::error!(worker, reason, "handing over a result panicked");
        }
    }
}

impl<R> Entry<(), R> {
    /// Puts a job in.
    fn with<J>(self, job: J) -> Entry<J, R> {
        let Self {
            job: (),
            cancel,
            span,
            done,
        } = self;
        Entry {
            job,
            cancel,
            span,
            done,
        }
    }
}

/// The threads of all workers of this process.
static THREADS: Threads = Threads(Mutex::new(Vec::new()));

/// Waits, for `patience` at most, until the threads of all workers have ended. They do so when the handles are dropped:
/// this belongs at the end of the process, which takes a model's library away from under a thread that still uses it.
pub fn finish(patience: Duration) {
    THREADS.finish(patience);
}

/// Threads, but for some that have ended.
struct Threads(Mutex<Vec<JoinHandle<()>>>);

impl Threads {
    fn add(&self, thread: JoinHandle<()>) {
        let mut threads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
    }

    fn finish(&self, patience: Duration) {
        let threads = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let (joining, joined) = sync_channel::<()>(0);
        let join = move || {
            for thread in threads {
                // Its panics have failed its jobs.
                drop(thread.join());
            }
            drop(joining);
        };
        if thread::Builder::new()
            .name("finish".into())
            .spawn(join)
            .is_ok()
        {
            let _ = joined.recv_timeout(patience);
        }
    }
}

/// Receives whether a thread has built its state.
type Start<E> = mpsc::Receiver<Result<(), SpawnError<E>>>;

/// Starts a thread: it builds its state and then runs, unless nobody waits for its start any more.
fn start<J, R, S, E, B>(
    name: &str,
    build: B,
    jobs: Receiver<Entry<J, R>>,
    run: impl FnOnce(&mut Thread<B, S>, &Receiver<Entry<J, R>>) + Send + 'static,
) -> std::io::Result<Start<E>>
where
    J: Send + 'static,
    R: Send + 'static,
    S: 'static,
    E: std::error::Error + Send + 'static,
    B: FnMut() -> Result<S, E> + Send + 'static,
{
    let (ready, is_ready) = sync_channel(1);
    let worker: Arc<str> = name.into();
    let running = thread::Builder::new().name(name.into()).spawn(move || {
        let mut thread = Thread {
            name: worker,
            build,
            state: None,
        };
        let start = thread.start();
        let started = start.is_ok();
        if ready.send(start).is_ok() && started {
            run(&mut thread, &jobs);
        }
    })?;
    THREADS.add(running);
    Ok(is_ready)
}

/// The data of one of the worker's threads.
struct Thread<B, S> {
    name: Arc<str>,
    build: B,
    /// `None` after a panic, until the next job needs it.
    state: Option<S>,
}

impl<B, S> Thread<B, S> {
    fn start<E: std::error::Error + 'static>(&mut self) -> Result<(), SpawnError<E>>
    where
        B: FnMut() -> Result<S, E>,
    {
        let built = guarded(&mut self.build)
            .map_err(|reason| SpawnError::Panicked(self.failed(reason)))?
            .map_err(SpawnError::State)?;
        self.state = Some(built);
        Ok(())
    }

    fn run<J, R, E: std::error::Error + 'static>(
        &mut self,
        jobs: &Receiver<Entry<J, R>>,
        mut handle: impl FnMut(&mut S, J, &CancellationToken) -> Step<J, R>,
    ) where
        B: FnMut() -> Result<S, E>,
    {
        while let Some(entry) = jobs.recv() {
            if entry.cancel.is_cancelled() {
                continue;
            }
            let (job, entry) = entry.apart();
            let entered = entry.span.enter();
            let result = self.perform(|state| handle(state, job, &entry.cancel));
            drop(entered);
            match result {
                Ok(Step::Done(result)) => entry.finish(&self.name, Ok(result)),
                Ok(Step::Later(due, job)) => jobs.put_back(due, entry.with(job)),
                Err(failure) => entry.finish(&self.name, Err(failure)),
            }
        }
    }

    fn run_batches<J: Clone, R, E: std::error::Error + 'static>(
        &mut self,
        jobs: &Receiver<Entry<J, R>>,
        most: usize,
        mut handle: impl FnMut(&mut S, Vec<(J, CancellationToken)>) -> Vec<R>,
    ) where
        B: FnMut() -> Result<S, E>,
    {
        while let Some(first) = jobs.recv() {
            let others = std::iter::from_fn(|| jobs.try_recv()).take(most.saturating_sub(1));
            let (entries, wanted): (Vec<_>, Vec<_>) = std::iter::once(first)
                .chain(others)
                .filter(|entry| !entry.cancel.is_cancelled())
                .map(|entry| {
                    let (job, entry) = entry.apart();
                    let cancel = entry.cancel.clone();
                    (entry, (job, cancel))
                })
                .unzip();
            if wanted.len() > 1
                && let Ok(results) = self.perform(|state| handle(state, wanted.clone()))
            {
                for (entry, result) in entries.into_iter().zip(results) {
                    entry.finish(&self.name, Ok(result));
                }
                continue;
            }
            for (entry, job) in entries.into_iter().zip(wanted) {
                let entered = entry.span.enter();
                let result = self.perform(|state| handle(state, vec![job]).pop());
                drop(entered);
                let result =
                    result.and_then(|result| result.ok_or_else(|| self.failed("no result".into())));
                entry.finish(&self.name, result);
            }
        }
    }

    fn perform<T, E: std::error::Error + 'static>(
        &mut self,
        work: impl FnOnce(&mut S) -> T,
    ) -> Result<T, Failed>
    where
        B: FnMut() -> Result<S, E>,
    {
        if self.state.is_none() {
            self.start()
                .map_err(|error: SpawnError<E>| self.failed(error.to_string()))?;
        }
        let Some(state) = &mut self.state else {
            return Err(self.failed("no state".into()));
        };
        guarded(|| work(state)).map_err(|reason| {
            let broken = self.state.take();
            // Dropping what a panic left behind may panic as well.
            let _ = guarded(|| drop(broken));
            self.failed(reason)
        })
    }

    fn failed(&self, reason: String) -> Failed {
        Failed {
            worker: self.name.clone(),
            reason,
        }
    }
}

/// Runs `work`; a panic becomes its message.
fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
        payload
            .downcast_ref::<&str>()
            .map(ToString::to_string)
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "panic".into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::convert::Infallible;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A worker that waits for `gate` on job 0, panics on job 13, and adds up all others.
    fn counter(capacity: usize, gate: mpsc::Receiver<()>) -> Worker<u32, u32> {
        Worker::spawn(
            "counter",
            capacity,
            || Ok::<u32, Infallible>(0),
            move |sum: &mut u32, job, _| {
                match job {
                    0 => gate.recv().unwrap(),
                    13 => panic!("unlucky"),
                    _ => *sum += job,
                }
                *sum
            },
        )
        .unwrap()
    }

    #[test]
    fn what_waits_is_done_together_and_a_panic_fails_only_its_own_job() {
        let (open, gate) = mpsc::sync_channel::<()>(1);
        let (begin, began) = mpsc::sync_channel(1);
        let handle = move |sizes: &mut Vec<usize>, jobs: Vec<(u32, CancellationToken)>| {
            if jobs.iter().any(|(job, _)| *job == 0) {
                begin.send(()).unwrap();
                gate.recv().unwrap();
            }
            sizes.push(jobs.len());
            let sizes = sizes.clone();
            let double = |(job, _): (u32, _)| match job {
                13 => panic!("unlucky"),
                job => (job, sizes.clone()),
            };
            jobs.into_iter().map(double).collect()
        };
        let build = || Ok::<_, Infallible>(Vec::new());
        let worker = Worker::spawn_in_batches("together", 16, 3, build, handle).unwrap();
        let cancelled = CancellationToken::new();
        let (told, results) = mpsc::sync_channel(16);
        for job in [0, 1, 2, 3, 4, 5, 13, 6] {
            let told = told.clone();
            let cancel = match job {
                2 => cancelled.clone(),
                _ => CancellationToken::new(),
            };
            let done = move |result: Result<_, Failed>| told.send((job, result.ok())).unwrap();
            worker.try_send(job, cancel, done).unwrap();
            if job == 0 {
                began.recv().unwrap();
            }
        }
        cancelled.cancel();
        open.send(()).unwrap();
        let results: Vec<_> = results.iter().take(7).collect();
        let sizes = |sizes: &[usize]| sizes.to_vec();
        assert_eq!(
            results,
            [
                (0, Some((0, sizes(&[1])))),
                (1, Some((1, sizes(&[1, 2])))),
                (3, Some((3, sizes(&[1, 2])))),
                (4, Some((4, sizes(&[1])))),
                (5, Some((5, sizes(&[1, 1])))),
                (13, None),
                (6, Some((6, sizes(&[1])))),
            ]
        );
    }

    #[test]
    fn the_end_of_the_process_waits_for_threads_at_work_but_not_for_ever() {
        let threads = Threads(Mutex::default());
        let at_work = Arc::new(AtomicUsize::new(1));
        let (goes_on, gate) = sync_channel::<()>(0);
        let left = at_work.clone();
        threads.add(thread::spawn(move || {
            let _ = gate.recv();
            left.fetch_sub(1, Ordering::SeqCst);
        }));
        drop(goes_on);
        threads.finish(Duration::from_secs(60));
        assert_eq!(at_work.load(Ordering::SeqCst), 0);

        let (_never, gate) = sync_channel::<()>(0);
        threads.add(thread::spawn(move || {
            let _ = gate.recv();
        }));
        threads.finish(Duration::from_millis(1));
    }

    #[tokio::test]
    async fn jobs_are_done_in_order_by_one_state() {
        let worker = counter(4, mpsc::sync_channel(16).1);
        assert_eq!(worker.call(2).await, Ok(2));
        assert_eq!(worker.clone().call(3).await, Ok(5));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "any time will do")]
    fn a_job_that_is_due_earlier_runs_between_two_steps_of_another() {
        let (told, order) = mpsc::sync_channel(16);
        let (open, gate) = mpsc::sync_channel::<()>(16);
        let now = Instant::now();
        let due = move |seconds| now + Duration::from_secs(seconds);
        // A job: its name, its next step, which is due after as many seconds, and its last step.
        let worker = Worker::spawn_in_steps(
            "steps",
            4,
            || Ok::<(), Infallible>(()),
            move |(), (name, step, last): (char, u64, u64), _| {
                if step == 0 {
                    gate.recv().unwrap();
                }
                told.send((name, step)).unwrap();
                match step < last {
                    true => Step::Later(due(step + 1), (name, step + 1, last)),
                    false => Step::Done(()),
                }
            },
        )
        .unwrap();
        for (name, first, last) in [('a', 0, 0), ('b', 1, 3), ('c', 2, 3)] {
            let (job, cancel) = ((name, first, last), CancellationToken::new());
            worker.send_by(due(first), job, cancel, |_| {}).unwrap();
        }
        open.send(()).unwrap();
        let order: Vec<_> = order.iter().take(6).collect();
        let expected = [('a', 0), ('b', 1), ('c', 2), ('b', 2), ('c', 3), ('b', 3)];
        assert_eq!(order, expected);
    }

    #[tokio::test]
    async fn a_panic_fails_only_its_job_and_the_state_is_rebuilt() {
        let worker = counter(4, mpsc::sync_channel(16).1);
        assert_eq!(worker.call(2).await, Ok(2));
        let Err(CallError::Failed(failed)) = worker.call(13).await else {
            panic!("job 13 succeeded");
        };
        assert_eq!(failed.to_string(), "counter failed: unlucky");
        assert_eq!(worker.call(3).await, Ok(3));
    }

    #[tokio::test]
    async fn a_full_inbox_refuses_and_cancelled_jobs_are_skipped() {
        let (open, gate) = mpsc::sync_channel(16);
        let worker = counter(2, gate);
        let cancel = CancellationToken::new();
        let (taken, is_taken) = mpsc::sync_channel(16);
        worker
            .try_send(0, CancellationToken::new(), move |_| {
                taken.send(()).unwrap()
            })
            .unwrap();
        let skipped = Arc::new(AtomicUsize::new(0));
        let mut refused = 0;
        // One job is running or about to, two wait; the rest are refused.
        for _ in 0..8 {
            let skipped = skipped.clone();
            let done = move |_| {
                skipped.fetch_add(1, Ordering::Relaxed);
            };
            refused += usize::from(worker.try_send(1, cancel.clone(), done).is_err());
        }
        assert!((6..=7).contains(&refused), "{refused} refused");
        cancel.cancel();
        open.send(()).unwrap();
        is_taken.recv().unwrap();
        while let Err(CallError::Overloaded(_)) = worker.call(5).await {
            tokio::task::yield_now().await;
        }
        assert_eq!(worker.call(1).await, Ok(6));
        assert_eq!(skipped.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn sent_jobs_overtake_offered_ones() {
        let (open, gate) = mpsc::sync_channel(16);
        let worker = counter(4, gate);
        let (order, done) = mpsc::sync_channel(16);
        let note = |name: &'static str| {
            let order = order.clone();
            move |_| order.send(name).unwrap()
        };
        let token = CancellationToken::new;
        worker.try_send(0, token(), note("running")).unwrap();
        // Offers are refused while the first job waits for the thread.
        while worker.offer(1, token(), note("partial")).is_err() {
            thread::yield_now();
        }
        worker.try_send(1, token(), note("final")).unwrap();
        assert!(worker.offer(1, token(), note("refused")).is_err());
        open.send(()).unwrap();
        let order: Vec<_> = done.iter().take(3).collect();
        assert_eq!(order, ["running", "final", "partial"]);
    }

    #[tokio::test]
    async fn dropping_the_call_cancels_the_job() {
        let (running, is_running) = mpsc::sync_channel(16);
        let (seen, is_cancelled) = mpsc::sync_channel(16);
        let worker = Worker::spawn(
            "canceller",
            1,
            || Ok::<(), Infallible>(()),
            move |(), (), cancel: &CancellationToken| {
                running.send(()).unwrap();
                while !cancel.is_cancelled() {
                    thread::yield_now();
                }
                seen.send(()).unwrap();
            },
        )
        .unwrap();
        let mut call = Box::pin(worker.call(()));
        assert!(futures_util::poll!(call.as_mut()).is_pending());
        is_running.recv().unwrap();
        drop(call);
        is_cancelled.recv().unwrap();
    }

    /// Tells when it is dropped.
    struct Tell(mpsc::SyncSender<()>);

    impl Drop for Tell {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
        }
    }

    #[test]
    fn the_thread_ends_with_its_last_handle() {
        let (sender, dropped) = mpsc::sync_channel(16);
        let build = move || Ok::<Tell, Infallible>(Tell(sender.clone()));
        let worker = Worker::<(), ()>::spawn("tell", 1, build, |_, (), _| ()).unwrap();
        let second = worker.clone();
        drop(worker);
        assert!(dropped.try_recv().is_err());
        drop(second);
        dropped.recv().unwrap();
    }

    /// Three threads, each of which holds the number of states that were built before its own. A job is a message to
    /// everybody at the barrier, or a panic if there is none.
    fn pool() -> Worker<Option<Arc<Barrier>>, usize> {
        let built = AtomicUsize::new(0);
        let threads = NonZeroUsize::new(3).unwrap();
        let build = move || Ok::<_, Infallible>(built.fetch_add(1, Ordering::Relaxed));
        Worker::spawn_pool(
            "pool",
            threads,
            8,
            build,
            |number, job: Option<Arc<Barrier>>, _| {
                job.expect("a barrier").wait();
                *number
            },
        )
        .unwrap()
    }

    /// The states that do three jobs, each of which ends when all have begun.
    async fn met(pool: &Worker<Option<Arc<Barrier>>, usize>) -> BTreeSet<usize> {
        let barrier = Some(Arc::new(Barrier::new(3)));
        let calls = (0..3).map(|_| pool.call(barrier.clone()));
        let states = futures_util::future::join_all(calls).await;
        states.into_iter().map(Result::unwrap).collect()
    }

    #[tokio::test]
    async fn the_threads_of_a_pool_do_jobs_at_once_each_with_its_own_state() {
        assert_eq!(met(&pool()).await, [0, 1, 2].into());
    }

    #[tokio::test]
    async fn a_panic_in_a_pool_fails_its_job_and_only_its_thread_is_rebuilt() {
        let pool = pool();
        let failed = pool.call(None).await.unwrap_err();
        assert_eq!(failed.to_string(), "pool failed: a barrier");
        let states = met(&pool).await;
        assert!(states.len() == 3 && states.contains(&3), "{states:?}");
        assert_eq!(met(&pool).await, states);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "any time will do")]
    fn a_pool_begins_with_the_job_that_is_due_first() {
        let (told, order) = mpsc::sync_channel(16);
        let (open, gate) = mpsc::sync_channel::<()>(16);
        let gate = Mutex::new(gate);
        let threads = NonZeroUsize::new(2).unwrap();
        let build = || Ok::<_, Infallible>(());
        let pool = Worker::spawn_pool("pool", threads, 8, build, move |(), job: u64, _| {
            told.send(job).unwrap();
            gate.lock().unwrap().recv().unwrap();
        })
        .unwrap();
        let now = Instant::now();
        let send = |job: u64| {
            let due = now + Duration::from_secs(job);
            let cancel = CancellationToken::new();
            pool.send_by(due, job, cancel, |_| {}).unwrap();
        };
        send(0);
        send(1);
        let begun: BTreeSet<_> = order.iter().take(2).collect();
        assert_eq!(begun, [0, 1].into());
        for job in [9, 7, 8] {
            send(job);
        }
        let next = || {
            open.send(()).unwrap();
            order.recv().unwrap()
        };
        assert_eq!([next(), next(), next()], [7, 8, 9]);
        open.send(()).unwrap();
        open.send(()).unwrap();
    }

    #[test]
    fn a_pool_ends_with_its_last_handle_or_if_one_of_its_states_cannot_be_built() {
        let (sender, dropped) = mpsc::sync_channel(16);
        let threads = NonZeroUsize::new(3).unwrap();
        let told = sender.clone();
        let build = move || Ok::<Tell, Infallible>(Tell(told.clone()));
        let pool = Worker::<(), ()>::spawn_pool("tell", threads, 1, build, |_, (), _| ()).unwrap();
        drop(pool.clone());
        assert!(dropped.try_recv().is_err());
        drop(pool);
        assert_eq!(dropped.iter().take(3).count(), 3);

        let built = AtomicUsize::new(0);
        let build = move || match built.fetch_add(1, Ordering::Relaxed) {
            1 => Err(std::fmt::Error),
            _ => Ok(Tell(sender.clone())),
        };
        let failed = Worker::<(), ()>::spawn_pool("tell", threads, 1, build, |_, (), _| ());
        assert!(matches!(failed, Err(SpawnError::State(std::fmt::Error))));
        // The other threads end, and with them the last sender.
        assert_eq!(dropped.iter().count(), 2);
    }

    #[test]
    fn a_state_that_cannot_be_built_is_an_error() {
        let build = || Err::<(), _>(std::fmt::Error);
        let result = Worker::<(), ()>::spawn("broken", 1, build, |_, (), _| ());
        assert!(matches!(result, Err(SpawnError::State(std::fmt::Error))));
        let build = || -> Result<(), Infallible> { panic!("no") };
        let result = Worker::<(), ()>::spawn("broken", 1, build, |_, (), _| ());
        assert!(matches!(result, Err(SpawnError::Panicked(_))));
    }

    /// Records the threads on which spans are entered.
    struct Entered(mpsc::SyncSender<Option<String>>);

    impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Entered {
        fn on_enter(&self, _: &tracing::span::Id, _: tracing_subscriber::layer::Context<'_, S>) {
            let name = thread::current().name().map(ToString::to_string);
            self.0.send(name).unwrap();
        }
    }

    #[test]
    fn the_callers_span_travels_with_the_job() {
        use tracing_subscriber::layer::SubscriberExt;
        let (sender, entered) = mpsc::sync_channel(16);
        let subscriber = tracing_subscriber::registry().with(Entered(sender));
        let _default = tracing::subscriber::set_default(subscriber);
        let worker = counter(1, mpsc::sync_channel(16).1);
        let (done, is_done) = mpsc::sync_channel(16);
        tracing::info_span!("turn").in_scope(|| {
            worker
                .try_send(1, CancellationToken::new(), move |_| done.send(()).unwrap())
                .unwrap();
        });
        is_done.recv().unwrap();
        let threads: Vec<_> = entered.try_iter().flatten().collect();
        assert!(threads.contains(&"counter".to_string()), "{threads:?}");
    }
}
