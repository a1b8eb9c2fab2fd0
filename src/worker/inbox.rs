//! A bounded queue into the threads of a worker, ordered by deadline, with a lane for jobs that may be refused.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Jobs that may wait in the side lane: what is only worth having fresh must not queue up.
pub(super) const OFFERS: usize = 4;

/// The sending half. Clones share the queue; the receivers end with the last of them.
pub(super) struct Sender<T> {
    shared: Arc<Shared<T>>,
}

/// The receiving half. Clones share the queue: each job goes to one of them.
pub(super) struct Receiver<T> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    capacity: usize,
    lanes: Mutex<Lanes<T>>,
    changed: Condvar,
}

struct Lanes<T> {
    /// In the order in which they are due.
    jobs: VecDeque<(Instant, T)>,
    offers: VecDeque<T>,
    senders: usize,
    receivers: usize,
}

impl<T> Lanes<T> {
    fn insert(&mut self, due: Instant, job: T) {
        let place = self.jobs.partition_point(|(other, _)| *other <= due);
        self.jobs.insert(place, (due, job));
    }

    fn pop(&mut self) -> Option<T> {
        let job = self.jobs.pop_front().map(|(_, job)| job);
        job.or_else(|| self.offers.pop_front())
    }
}

/// A queue of at most `capacity` jobs and [`OFFERS`] offers.
pub(super) fn inbox<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Shared {
        capacity,
        lanes: Mutex::new(Lanes {
            jobs: VecDeque::new(),
            offers: VecDeque::new(),
            senders: 1,
            receivers: 1,
        }),
        changed: Condvar::new(),
    });
    let sender = Sender {
        shared: shared.clone(),
    };
    (sender, Receiver { shared })
}

impl<T> std::fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, Lanes<T>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Sender<T> {
    /// Adds a job behind those that are due no later; gives it back if there is no room or nobody to
    /// take it.
    pub(super) fn send(&self, due: Instant, job: T) -> Result<(), T> {
        let mut lanes = self.shared.lock();
        if lanes.receivers == 0 || lanes.jobs.len() >= self.shared.capacity {
            return Err(job);
        }
        lanes.insert(due, job);
        self.shared.changed.notify_one();
        Ok(())
    }

    /// Adds a job behind all others; gives it back if any job waits, or [`OFFERS`] such offers.
    pub(super) fn offer(&self, job: T) -> Result<(), T> {
        let mut lanes = self.shared.lock();
        if lanes.receivers == 0 || !lanes.jobs.is_empty() || lanes.offers.len() >= OFFERS {
            return Err(job);
        }
        lanes.offers.push_back(job);
        self.shared.changed.notify_one();
        Ok(())
    }
}

impl<T> Sender<T> {
    /// Jobs that wait and are due by `now`, offers not counted.
    pub(super) fn overdue(&self, now: Instant) -> usize {
        let lanes = self.shared.lock();
        lanes.jobs.partition_point(|(due, _)| *due <= now)
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.shared.lock().senders += 1;
        Self {
            shared: self.shared.clone(),
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut lanes = self.shared.lock();
        lanes.senders -= 1;
        if lanes.senders == 0 {
            self.shared.changed.notify_all();
        }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.shared.lock().receivers += 1;
        Self {
            shared: self.shared.clone(),
        }
    }
}

impl<T> Receiver<T> {
    /// Waits for the next job: the one that is due first, or the oldest offer if no job waits. `None`
    /// when all senders are gone and the queue is empty.
    pub(super) fn recv(&self) -> Option<T> {
        let mut lanes = self.shared.lock();
        loop {
            if let Some(job) = lanes.pop() {
                return Some(job);
            }
            if lanes.senders == 0 {
                return None;
            }
            lanes = self
                .shared
                .changed
                .wait(lanes)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<T> Receiver<T> {
    /// The next job if one waits now, like [`Receiver::recv`].
    pub(super) fn try_recv(&self) -> Option<T> {
        self.shared.lock().pop()
    }

    /// Puts back a job that is not finished. There is always room for it: it had a place before. Wakes no other
    /// receiver, since this one asks for the next job at once.
    pub(super) fn put_back(&self, due: Instant, job: T) {
        self.shared.lock().insert(due, job);
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut lanes = self.shared.lock();
        lanes.receivers -= 1;
        if lanes.receivers > 0 {
            return;
        }
        let left = (
            std::mem::take(&mut lanes.jobs),
            std::mem::take(&mut lanes.offers),
        );
        // Jobs run foreign code when they are dropped: not under the lock.
        drop(lanes);
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[expect(clippy::disallowed_methods, reason = "any time will do")]
    fn now() -> Instant {
        Instant::now()
    }

    #[test]
    fn jobs_go_before_offers_and_both_in_order() {
        let (sender, receiver) = inbox(4);
        let now = now();
        sender.offer(10).unwrap();
        sender.offer(11).unwrap();
        sender.send(now, 1).unwrap();
        sender.send(now, 2).unwrap();
        drop(sender);
        let order: Vec<_> = std::iter::from_fn(|| receiver.recv()).collect();
        assert_eq!(order, [1, 2, 10, 11]);
    }

    #[test]
    fn what_is_due_first_is_done_first() {
        let (sender, receiver) = inbox(8);
        let now = now();
        for (job, seconds) in [(1, 0), (2, 3), (3, 0), (4, 1), (5, 3)] {
            let due = now + Duration::from_secs(seconds);
            sender.send(due, job).unwrap();
        }
        drop(sender);
        let order: Vec<_> = std::iter::from_fn(|| receiver.recv()).collect();
        assert_eq!(order, [1, 3, 4, 2, 5]);
    }

    #[test]
    fn offers_are_refused_while_jobs_wait_and_when_there_are_enough() {
        let (sender, receiver) = inbox(2);
        let now = now();
        for n in 0..OFFERS {
            assert_eq!(sender.offer(n), Ok(()));
        }
        assert_eq!(sender.offer(99), Err(99));
        assert_eq!(sender.send(now, 50), Ok(()));
        assert_eq!(sender.send(now, 51), Ok(()));
        assert_eq!(sender.send(now, 52), Err(52));
        assert_eq!(receiver.recv(), Some(50));
        assert_eq!(receiver.recv(), Some(51));
        assert_eq!(receiver.recv(), Some(0));
        sender.send(now, 53).unwrap();
        assert_eq!(sender.offer(98), Err(98), "a job waits");
    }

    #[test]
    fn all_receivers_end_when_the_senders_are_gone() {
        let (sender, receiver) = inbox::<u32>(1);
        let waiting: Vec<_> = (0..3)
            .map(|_| receiver.clone())
            .map(|receiver| std::thread::spawn(move || receiver.recv()))
            .collect();
        drop(sender.clone());
        drop(sender);
        for thread in waiting {
            assert_eq!(thread.join().unwrap(), None);
        }
    }

    #[test]
    fn jobs_are_taken_until_the_last_receiver_is_gone() {
        let (sender, receiver) = inbox(2);
        drop(receiver.clone());
        sender.send(now(), 1).unwrap();
        assert_eq!(receiver.recv(), Some(1));
        drop(receiver);
        assert_eq!(sender.send(now(), 2), Err(2));
    }

    #[test]
    fn without_a_receiver_nothing_is_taken_and_what_waited_is_dropped() {
        let (sender, receiver) = inbox(2);
        let now = now();
        let waits = Arc::new(());
        sender.send(now, waits.clone()).unwrap();
        drop(receiver);
        assert_eq!(Arc::strong_count(&waits), 1);
        assert!(sender.send(now, waits.clone()).is_err() && sender.offer(waits).is_err());
    }
}
