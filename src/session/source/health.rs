//! The rules for a service that may be late, silent or down: how long its results are waited for, and when
//! it is not asked at all. No clock: the time is an argument.

use crate::conversation::{Micros, Time};
use std::collections::VecDeque;

/// Results that are remembered.
const RESULTS: usize = 64;

/// A result may come this much later than 95 of 100, and this much later than half of them.
const AFTER_MOST: Micros = Micros::from_ms(150);
const AFTER_HALF: Micros = Micros::from_ms(400);

/// How long a result is waited for at least while little is known: with the local engine's part, within the
/// 700 ms for which a failure may keep a user waiting.
const UNKNOWN: Micros = Micros::from_ms(400);

/// The results after which a deadline may be shorter than [`UNKNOWN`]: of fewer, 95 of 100 are all of them, and a
/// service that answered its first request quickly would be late with the second.
const KNOWN: usize = 20;

/// The longest that a result may take. A slower service cannot hold a conversation.
pub(in crate::session) const LONGEST: Micros = Micros::from_ms(2_000);

/// The number of failures within [`WITHIN`] after which the service counts as down.
const FAILURES: usize = 3;
/// See [`FAILURES`].
const WITHIN: Micros = Micros::from_ms(30_000);

/// The first and the longest wait before a service that is down is probed again.
const FIRST_WAIT: Micros = Micros::from_ms(1_000);
const LONGEST_WAIT: Micros = Micros::from_ms(60_000);

/// Tracks whether a service is up, from its results and failures.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// How long the last results took, oldest first.
    results: VecDeque<Micros>,
    /// The last failures, oldest first.
    failures: VecDeque<Time>,
    state: State,
    /// The last wait, and when it was over.
    last_wait: Option<(Micros, Time)>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Up,
    /// It is probed after this wait.
    Down(Micros),
    /// It refuses the key.
    Denied,
}

impl Health {
    /// Whether the service is used now.
    pub(super) fn is_up(&self) -> bool {
        self.state == State::Up
    }

    pub(super) fn is_denied(&self) -> bool {
        self.state == State::Denied
    }

    /// Whether no result has come yet.
    pub(super) fn is_new(&self) -> bool {
        self.results.is_empty()
    }

    /// How long a result is waited for.
    pub(super) fn deadline(&self) -> Micros {
        let mut sorted: Vec<Micros> = self.results.iter().copied().collect();
        sorted.sort_unstable();
        let at = |percent: usize| {
            let rank = (sorted.len() * percent).div_ceil(100).max(1);
            sorted.get(rank - 1).copied()
        };
        let learned = match (at(50), at(95)) {
            (Some(half), Some(most)) => (most + AFTER_MOST).min(half + AFTER_HALF).min(LONGEST),
            _ => UNKNOWN,
        };
        let least = if sorted.len() < KNOWN {
            UNKNOWN
        } else {
            Micros(0)
        };
        learned.max(least)
    }

    /// Records a result that came after `time`, in time or not.
    pub(super) fn took(&mut self, time: Micros) {
        if self.results.len() == RESULTS {
            self.results.pop_front();
        }
        self.results.push_back(time);
    }

    /// Records a failure or a late result. If the service is down from now on, returns how long to wait before the
    /// first probe.
    pub(super) fn failed(&mut self, now: Time) -> Option<Micros> {
        if !self.is_up() {
            return None;
        }
        self.failures.push_back(now);
        self.failures.retain(|at| now.since(*at) <= WITHIN);
        if self.failures.len() < FAILURES {
            return None;
        }
        self.failures.clear();
        let again = self.last_wait.take();
        let again = again.filter(|(_, over)| now.since(*over) <= LONGEST_WAIT);
        let wait = again.map_or(FIRST_WAIT, |(wait, _)| longer(wait));
        self.state = State::Down(wait);
        Some(wait)
    }

    /// Records that it refuses the key: it is never asked again.
    pub(super) fn denied(&mut self) {
        self.state = State::Denied;
    }

    /// Records a probe. Returns how long to wait before the next one, if the service is still down.
    pub(super) fn tried(&mut self, now: Time, works: bool) -> Option<Micros> {
        let State::Down(wait) = self.state else {
            return None;
        };
        if works {
            self.state = State::Up;
            self.last_wait = Some((wait, now));
            return None;
        }
        let wait = longer(wait);
        self.state = State::Down(wait);
        Some(wait)
    }
}

fn longer(wait: Micros) -> Micros {
    Micros(2 * wait.0).min(LONGEST_WAIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(times: &[u64]) -> Micros {
        let mut health = Health::default();
        times
            .iter()
            .for_each(|ms| health.took(Micros::from_ms(*ms)));
        health.deadline()
    }

    #[test]
    fn a_result_is_waited_for_as_long_as_those_before_it_took() {
        assert_eq!(after(&[]), UNKNOWN);
        let steady: Vec<u64> = (1..=100).map(|n| 200 + n % 10).collect();
        assert_eq!(after(&steady), Micros::from_ms(209 + 150));
    }

    #[test]
    fn one_quick_result_does_not_make_the_next_one_late() {
        assert_eq!(after(&[20]), UNKNOWN);
        assert_eq!(after(&[20; KNOWN - 1]), UNKNOWN);
        assert_eq!(after(&[20; KNOWN]), Micros::from_ms(170));
        // A slow service is waited for from the first result on.
        assert_eq!(after(&[600]), Micros::from_ms(750));
    }

    #[test]
    fn a_few_slow_results_do_not_make_everybody_wait() {
        let mut times = vec![100; 50];
        times.extend([1_900; 10]);
        assert_eq!(after(&times), Micros::from_ms(500));
    }

    #[test]
    fn a_slow_service_is_waited_for_two_seconds_at_most() {
        assert_eq!(after(&[1_900; 64]), LONGEST);
    }

    #[test]
    fn what_was_long_ago_is_forgotten() {
        let mut times = vec![1_500; 64];
        times.extend([100; 64]);
        assert_eq!(after(&times), Micros::from_ms(250));
    }

    #[test]
    fn three_failures_in_thirty_seconds_take_it_down() {
        let mut health = Health::default();
        assert_eq!(health.failed(Time::from_ms(0)), None);
        assert_eq!(health.failed(Time::from_ms(20_000)), None);
        // The first is too long ago.
        assert_eq!(health.failed(Time::from_ms(40_000)), None);
        assert!(health.is_up());
        assert_eq!(health.failed(Time::from_ms(45_000)), Some(FIRST_WAIT));
        assert!(!health.is_up());
        assert_eq!(health.failed(Time::from_ms(45_001)), None);
    }

    #[test]
    fn it_is_tried_out_less_and_less_often_until_it_works() {
        let mut health = Health::default();
        let now = Time::from_ms(0);
        let mut wait = (0..3).find_map(|_| health.failed(now));
        let mut waits = Vec::new();
        while let Some(Micros(us)) = wait.filter(|_| waits.len() < 8) {
            waits.push(us / 1_000_000);
            wait = health.tried(now, false);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(health.tried(now, true), None);
        assert!(health.is_up());
    }

    #[test]
    fn one_that_goes_down_again_at_once_is_not_tried_out_every_second() {
        let mut health = Health::default();
        let down = |health: &mut Health, ms| (0..3).find_map(|_| health.failed(Time::from_ms(ms)));
        assert_eq!(down(&mut health, 0), Some(FIRST_WAIT));
        health.tried(Time::from_ms(1_000), true);
        assert_eq!(down(&mut health, 2_000), Some(Micros::from_ms(2_000)));
        health.tried(Time::from_ms(4_000), true);
        assert_eq!(down(&mut health, 600_000), Some(FIRST_WAIT));
    }

    #[test]
    fn a_refused_key_is_for_good() {
        let mut health = Health::default();
        health.denied();
        assert_eq!(health.tried(Time::from_ms(1), true), None);
        assert!(!health.is_up());
    }
}
