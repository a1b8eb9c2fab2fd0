//! How busy the models are: decided from how long jobs wait for recogniser and voice. When users have
//! to wait, optional work is left undone step by step, then new sessions are refused, so that those
//! which are open stay quick.

use crate::conversation::{Micros, Shed, Time};
use crate::metrics::Metrics;
use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Measures recogniser and voice, and asks [`Load`] what that means.
#[derive(Debug)]
pub(super) struct Gauge {
    began: Instant,
    load: Mutex<Load>,
    metrics: Arc<Metrics>,
}

impl Gauge {
    /// `recognisers`: the number of threads of the recogniser; the voice has one.
    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: waits are measured in real time; the rule is told the time"
    )]
    pub(super) fn new(metrics: Arc<Metrics>, recognisers: NonZeroUsize) -> Arc<Self> {
        Arc::new(Self {
            began: Instant::now(),
            load: Mutex::new(Load::of([recognisers.get() as u64, 1])),
            metrics,
        })
    }

    /// Records that a job has started for which a user has waited since it was `asked` for.
    pub(super) fn begun(&self, stage: Stage, asked: Instant) {
        let waited = asked.elapsed();
        self.metrics.queued(stage.name(), waited);
        let now = self.now();
        self.lock().waited(stage, now, micros(waited));
    }

    /// Does a job, or a step of one. Returns how long it took, too.
    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: waits are measured in real time; the rule is told the time"
    )]
    pub(super) fn measure<T>(&self, stage: Stage, job: impl FnOnce() -> T) -> (T, Duration) {
        let began = Instant::now();
        let done = job();
        let time = began.elapsed();
        let now = self.now();
        self.lock().worked(stage, now, micros(time));
        (done, time)
    }

    /// Records the time that a job took, with all its steps.
    pub(super) fn took(&self, stage: Stage, time: Duration) {
        self.lock().took(stage, micros(time));
    }

    pub(super) fn level(&self, waiting: [usize; 2]) -> Level {
        let now = self.now();
        let level = self.lock().level(now, waiting);
        self.metrics.load(level as i64);
        level
    }

    /// Whether one more session finds room beside those that are open; it is counted if so.
    pub(super) fn admit(&self, waiting: [usize; 2], open: usize) -> bool {
        let now = self.now();
        self.lock().admit(now, waiting, open)
    }

    fn now(&self) -> Time {
        Time(micros(self.began.elapsed()).0)
    }

    fn lock(&self) -> MutexGuard<'_, Load> {
        self.load.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn micros(time: Duration) -> Micros {
    Micros(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}

/// The numbers behind the rules.
#[derive(Debug, Clone, Copy)]
struct LoadPolicy {
    /// The waits from which on the levels above [`Level::Calm`] are reached.
    bounds: [Micros; 4],
    /// The divisor of a level's bound: the level is left when the wait has been below the quotient for `calm`.
    relief: u64,
    /// See `relief`.
    calm: Micros,
    /// The time in which a caller takes a turn: what newcomers will ask for shows within it.
    turn: Micros,
    /// The number of sessions that are always admitted: the waits of a few may be of their own making, and even a slow
    /// machine should serve somebody.
    few: usize,
    /// Jobs of a turn, for the recogniser and for the voice each: a transcript in a pause and the last
    /// one, two clauses.
    jobs_per_turn: u64,
    /// The share of the time of its threads that a model may work, in percent. Up to it, jobs seldom meet.
    capacity: u64,
}

impl Default for LoadPolicy {
    /// A pause of 200 ms between two speakers is usual, and 300 ms more are felt.
    fn default() -> Self {
        Self {
            bounds: [100, 140, 190, 250].map(Micros::from_ms),
            relief: 2,
            calm: Micros::from_ms(3_000),
            turn: Micros::from_ms(8_000),
            few: 4,
            jobs_per_turn: 2,
            capacity: 50,
        }
    }
}

/// How long an admitted client may take to open its session.
const ARRIVAL: Micros = Micros(1_000_000);

/// A model whose jobs users wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The recogniser.
    Recogniser,
    /// The voice.
    Voice,
}

impl Stage {
    /// As metrics call it.
    fn name(self) -> &'static str {
        match self {
            Self::Recogniser => "asr",
            Self::Voice => "tts",
        }
    }
}

/// How much there is to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// Everything is done at once.
    #[default]
    Calm,
    /// Skips speculative runs.
    NoSpeculation,
    /// Partials, too.
    NoPartials,
    /// Answers before the end of the turn, too.
    NoPreemptiveAnswers,
    /// And new sessions are refused.
    Refusing,
}

impl Level {
    /// All levels above the first.
    const RAISED: [Self; 4] = [
        Self::NoSpeculation,
        Self::NoPartials,
        Self::NoPreemptiveAnswers,
        Self::Refusing,
    ];

    /// The optional work that open sessions leave undone.
    pub(super) fn shed(self) -> Shed {
        match self {
            Self::Calm => Shed::Nothing,
            Self::NoSpeculation => Shed::Speculation,
            Self::NoPartials => Shed::Partials,
            Self::NoPreemptiveAnswers | Self::Refusing => Shed::PreemptiveAnswers,
        }
    }
}

/// Observations of one model.
#[derive(Debug, Default)]
struct Observed {
    /// The number of threads that work side by side.
    threads: u64,
    /// Service time of a job with all its steps, averaged over about the last ten.
    service: u64,
    /// Service time of a step, likewise.
    step: u64,
    /// How long a job waits, in the mean over the last few. Half of it is forgotten each second in
    /// which none was waited for.
    wait: u64,
    waited_at: Time,
    /// The work of all threads within the last turn: when it ended, and how long it took.
    work: VecDeque<(Time, u64)>,
}

/// Decides how much there is to do.
#[derive(Debug)]
struct Load {
    policy: LoadPolicy,
    stages: [Observed; 2],
    /// When sessions were admitted whose first turn may be yet to come.
    newcomers: VecDeque<Time>,
    level: Level,
    /// When the level was last asked for.
    asked: Time,
    /// Since when the level is higher than it need be.
    relieved: Option<Time>,
}

impl Load {
    /// Of stages with so many threads.
    fn of(threads: [u64; 2]) -> Self {
        Self {
            policy: LoadPolicy::default(),
            stages: threads.map(|threads| Observed {
                threads,
                ..Observed::default()
            }),
            newcomers: VecDeque::new(),
            level: Level::default(),
            asked: Time(0),
            relieved: None,
        }
    }

    /// A job that a user waits for was begun after `wait`.
    fn waited(&mut self, stage: Stage, now: Time, wait: Micros) {
        let observed = &mut self.stages[stage as usize];
        observed.wait = (3 * observed.wait_at(now) + wait.0) / 4;
        observed.waited_at = now;
    }

    /// Records the time that a stage has worked.
    fn worked(&mut self, stage: Stage, now: Time, time: Micros) {
        let turn = self.policy.turn;
        let observed = &mut self.stages[stage as usize];
        observed.step = mean(observed.step, time.0);
        observed.work.push_back((now, time.0));
        forget(&mut observed.work, |(ended, _)| now.since(*ended) > turn);
    }

    /// Records the time that a finished job took.
    fn took(&mut self, stage: Stage, time: Micros) {
        let observed = &mut self.stages[stage as usize];
        observed.service = mean(observed.service, time.0);
    }

    /// The level, given the number of due jobs that wait for each stage.
    fn level(&mut self, now: Time, waiting: [usize; 2]) -> Level {
        let wait = self.wait(now, waiting);
        let policy = self.policy;
        let asked = std::mem::replace(&mut self.asked, now);
        // With few sessions nobody asks, and the level of the last rush is out of date.
        let is_stale = now.since(asked) >= policy.calm;
        let raised = || Level::RAISED.into_iter().zip(policy.bounds);
        let reached = raised().rfind(|(_, bound)| wait >= *bound);
        let reached = reached.map_or(Level::Calm, |(level, _)| level);
        let bound = raised().find(|(level, _)| *level == self.level);
        let bound = bound.map_or(Micros(0), |(_, bound)| bound);
        if reached >= self.level || wait.0 * policy.relief >= bound.0 {
            self.relieved = None;
            self.level = self.level.max(reached);
        } else if is_stale || now.since(*self.relieved.get_or_insert(now)) >= policy.calm {
            self.relieved = None;
            self.level = reached;
        }
        self.level
    }

    /// Whether one more session finds room beside those that are `open`. Those who came lately count with
    /// what they will ask for, unless they have gone.
    fn admit(&mut self, now: Time, waiting: [usize; 2], open: usize) -> bool {
        let policy = self.policy;
        forget(&mut self.newcomers, |came| now.since(*came) > policy.turn);
        let arriving = |came: &&Time| now.since(**came) < ARRIVAL;
        let sessions = open + self.newcomers.iter().filter(arriving).count();
        let newcomers = self.newcomers.len().min(sessions) as u64 + 1;
        let room = |observed: &Observed| {
            let lately = observed.work.iter();
            let lately = lately.filter(|(ended, _)| now.since(*ended) <= policy.turn);
            let worked: u64 = lately.map(|(_, took)| took).sum();
            let coming = newcomers * policy.jobs_per_turn * observed.service;
            worked + coming <= observed.threads * policy.turn.0 * policy.capacity / 100
        };
        let level = self.level(now, waiting);
        let admitted =
            sessions < policy.few || level < Level::Refusing && self.stages.iter().all(room);
        if admitted {
            self.newcomers.push_back(now);
        }
        admitted
    }

    /// How long a job waits now: what those before it waited, or what stands before it, if that is more.
    fn wait(&self, now: Time, waiting: [usize; 2]) -> Micros {
        let waits = self.stages.iter().zip(waiting);
        let waits = waits.map(|(observed, waiting)| {
            let before = (waiting as u64).saturating_sub(1) * observed.step / observed.threads;
            before.max(observed.wait_at(now))
        });
        Micros(waits.max().unwrap_or_default())
    }
}

impl Observed {
    fn wait_at(&self, now: Time) -> u64 {
        let seconds = now.since(self.waited_at).0 / 1_000_000;
        self.wait.checked_shr(seconds.min(63) as u32).unwrap_or(0)
    }
}

/// The mean of about the last ten.
fn mean(before: u64, now: u64) -> u64 {
    match before {
        0 => now,
        before => (9 * before + now) / 10,
    }
}

fn forget<T>(queue: &mut VecDeque<T>, is_old: impl Fn(&T) -> bool) {
    while queue.front().is_some_and(&is_old) {
        queue.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: [usize; 2] = [0, 0];

    fn at(ms: u64) -> Time {
        Time::from_ms(ms)
    }

    /// Recogniser and voice on a thread each, 80 and 150 ms a job.
    fn load() -> Load {
        load_of([1, 1])
    }

    fn load_of(threads: [u64; 2]) -> Load {
        let mut load = Load::of(threads);
        for (stage, time, steps) in [(Stage::Recogniser, 80, 1), (Stage::Voice, 150, 3)] {
            for _ in 0..steps {
                load.worked(stage, at(0), Micros::from_ms(time / steps));
            }
            load.took(stage, Micros::from_ms(time));
        }
        load
    }

    /// Plays `count` turns, evenly over eight seconds from `from` on, each of which waits for `wait`.
    fn turns(load: &mut Load, from: u64, count: u64, wait: u64) {
        for turn in 0..count {
            let now = at(from + turn * 8_000 / count);
            for stage in [
                Stage::Recogniser,
                Stage::Recogniser,
                Stage::Voice,
                Stage::Voice,
            ] {
                let time = if stage == Stage::Recogniser { 80 } else { 150 };
                load.waited(stage, now, Micros::from_ms(wait));
                load.worked(stage, now, Micros::from_ms(time));
                load.took(stage, Micros::from_ms(time));
            }
        }
    }

    #[test]
    fn a_burst_is_admitted_as_far_as_it_will_find_room() {
        let mut load = load();
        let admitted = (0..60).filter(|ms| load.admit(at(1_000 + ms), NOBODY, 0));
        // 12 turns of two clauses are 3.6 of 8 s.
        assert_eq!(admitted.count(), 12);
        // Those who are still silent after that ask for nothing.
        assert!(load.admit(at(9_100), NOBODY, 12));
    }

    #[test]
    fn a_few_are_let_in_however_slow_the_machine_is() {
        let mut load = Load::of([1, 1]);
        load.took(Stage::Voice, Micros::from_ms(5_000));
        let admitted = (0..10).filter(|ms| load.admit(at(100 + ms), NOBODY, 0));
        assert_eq!(admitted.count(), 4);
        assert!(load.admit(at(5_000), NOBODY, 1), "three of them have gone");
        assert!(!load.admit(at(5_001), NOBODY, 4));
    }

    #[test]
    fn those_who_talk_leave_less_room_for_others() {
        let mut load = load();
        turns(&mut load, 1_000, 8, 20);
        let admitted = (0..60).filter(|ms| load.admit(at(9_000 + ms), NOBODY, 8));
        assert!((4..=6).contains(&admitted.count()));
        let mut quick = Load::of([1, 1]);
        assert!(
            (0..1_000).all(|ms| quick.admit(at(ms), NOBODY, 0)),
            "no model"
        );
    }

    #[test]
    fn waits_shed_step_by_step_then_refuse_and_are_forgiven_late() {
        let mut load = load();
        turns(&mut load, 1_000, 8, 100);
        assert_eq!(load.level(at(9_000), NOBODY), Level::Calm);
        for (second, wait, level) in [
            (9, 200, Level::NoSpeculation),
            (17, 270, Level::NoPartials),
            (25, 360, Level::NoPreemptiveAnswers),
        ] {
            turns(&mut load, second * 1_000, 8, wait);
            assert_eq!(load.level(at(second * 1_000 + 7_900), NOBODY), level);
        }
        turns(&mut load, 33_000, 8, 700);
        assert_eq!(load.level(at(40_900), NOBODY), Level::Refusing);
        assert!(!load.admit(at(40_900), NOBODY, 8));
        // Nobody waits any more: half of the wait is forgotten in a second, and then it has to last.
        assert_eq!(load.level(at(43_500), NOBODY), Level::Refusing);
        assert_eq!(load.level(at(45_500), NOBODY), Level::Refusing);
        assert_eq!(load.level(at(46_600), NOBODY), Level::Calm);
        assert!(load.admit(at(46_600), NOBODY, 8));
    }

    #[test]
    fn what_stands_in_line_counts_before_it_was_waited_for() {
        let mut load = load();
        assert_eq!(load.level(at(10), [2, 2]), Level::Calm);
        assert_eq!(load.level(at(20), [4, 0]), Level::NoPreemptiveAnswers);
        assert_eq!(load.level(at(30), [0, 6]), Level::Refusing);
    }

    #[test]
    fn threads_share_what_stands_in_line_and_make_room() {
        let mut load = load_of([4, 1]);
        assert_eq!(load.level(at(10), [5, 0]), Level::Calm);
        assert_eq!(load.level(at(20), [8, 0]), Level::NoPartials);
        let burst = |threads| {
            let mut load = load_of(threads);
            // The voice is no bound.
            load.stages[Stage::Voice as usize].service = 0;
            (0..200)
                .filter(|ms| load.admit(at(1_000 + ms), NOBODY, 0))
                .count()
        };
        assert_eq!((burst([1, 1]), burst([4, 1])), (24, 99));
    }

    #[test]
    fn a_short_relief_is_none() {
        let mut load = load();
        let queue = [0, 6];
        assert_eq!(load.level(at(0), queue), Level::Refusing);
        for second in 1..20 {
            let waiting = if second % 2 == 0 { queue } else { NOBODY };
            assert_eq!(load.level(at(second * 1_000), waiting), Level::Refusing);
        }
    }

    /// Half of a morning's first callers were refused, and nothing ran early for those who were not.
    #[test]
    fn an_overload_in_the_evening_refuses_nobody_after_a_quiet_night() {
        let mut load = load();
        turns(&mut load, 1_000, 8, 700);
        assert_eq!(load.level(at(8_900), NOBODY), Level::Refusing);
        let morning: u64 = 8 * 3_600_000;
        let admitted = (0..8).filter(|ms| load.admit(at(morning + ms), NOBODY, 0));
        assert_eq!(admitted.count(), 8);
        assert_eq!(load.level(at(morning + 10), NOBODY), Level::Calm);
    }

    #[test]
    fn one_job_in_the_way_is_no_wait() {
        let mut load = load();
        turns(&mut load, 0, 10, 80);
        assert_eq!(load.level(at(8_000), NOBODY), Level::Calm);
    }
}
