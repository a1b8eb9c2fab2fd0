//! Admission control: limits the number of sessions.

use crate::metrics::{Metrics, Refusal};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Decides whether the models can serve one more session, and counts it if so. Must not block.
pub type Room = Arc<dyn Fn() -> bool + Send + Sync>;

/// Hands out places for sessions.
pub(super) struct Admission {
    /// The free places.
    places: Arc<Semaphore>,
    /// Places of calls that were promised one and have not connected yet.
    held: Mutex<Vec<Held>>,
    pub(super) room: Room,
    closing: Closing,
    metrics: Arc<Metrics>,
}

/// The steps of a shutdown.
pub(super) struct Closing {
    /// From here on only sessions that were promised a place begin.
    pub(super) drain: CancellationToken,
    /// From here on none begins.
    pub(super) farewell: CancellationToken,
    /// The work that it waits for.
    pub(super) tasks: TaskTracker,
}

/// A place that is kept for a call.
struct Held {
    place: OwnedSemaphorePermit,
    /// When it is free again.
    until: Instant,
    /// A server that shuts down waits for the call.
    _awaited: TaskTrackerToken,
}

#[allow(
    clippy::disallowed_methods,
    reason = "an edge: calls connect in real time"
)]
impl Admission {
    pub(super) fn new(most: usize, room: Room, closing: Closing, metrics: Arc<Metrics>) -> Self {
        Self {
            places: Arc::new(Semaphore::new(most)),
            held: Mutex::default(),
            room,
            closing,
            metrics,
        }
    }

    /// A place for one more session, unless the server is draining, full or overloaded. A
    /// `promised` session is admitted even under overload, and while the server drains.
    pub(super) fn place(&self, promised: bool) -> Result<OwnedSemaphorePermit, Refusal> {
        self.free_overdue();
        let closed = match promised {
            true => &self.closing.farewell,
            false => &self.closing.drain,
        };
        let permit = self.free_place(&self.places, closed)?;
        if !promised && !(self.room)() {
            self.metrics.refused(Refusal::Overloaded);
            return Err(Refusal::Overloaded);
        }
        Ok(permit)
    }

    /// One of `places`, unless the server is draining.
    pub(super) fn place_among(
        &self,
        places: &Arc<Semaphore>,
    ) -> Result<OwnedSemaphorePermit, Refusal> {
        self.free_place(places, &self.closing.drain)
    }

    fn free_place(
        &self,
        places: &Arc<Semaphore>,
        closed: &CancellationToken,
    ) -> Result<OwnedSemaphorePermit, Refusal> {
        let permit = match places.clone().try_acquire_owned() {
            _ if closed.is_cancelled() => Err(Refusal::Draining),
            Err(_) => Err(Refusal::Full),
            Ok(permit) => Ok(permit),
        };
        permit.inspect_err(|refusal| self.metrics.refused(*refusal))
    }

    /// Holds a place for a call that connects within this time. A server that shuts down waits for it.
    pub(super) fn hold(&self, place: OwnedSemaphorePermit, lasting: Duration) {
        self.held().push(Held {
            place,
            until: Instant::now() + lasting,
            _awaited: self.closing.tasks.token(),
        });
    }

    /// Frees the places of calls that did not connect in time; from the farewell on, all.
    pub(super) fn free_overdue(&self) {
        drop(self.held());
    }

    /// Frees a place that was held for a call which does not connect any more.
    pub(super) fn let_go(&self) {
        drop(self.take_held());
    }

    /// The place of a call that was promised one. It may have been promised by another server, or its time may be over:
    /// then any.
    pub(super) fn promised(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        self.take_held().map_or_else(|| self.place(true), Ok)
    }

    /// The held place that is free again first: whoever was promised it finds one that is held longer.
    fn take_held(&self) -> Option<OwnedSemaphorePermit> {
        let mut held = self.held();
        let (first, _) = held.iter().enumerate().min_by_key(|(_, one)| one.until)?;
        Some(held.swap_remove(first).place)
    }

    fn held(&self) -> MutexGuard<'_, Vec<Held>> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let (now, is_over) = (Instant::now(), self.closing.farewell.is_cancelled());
        held.retain(|one| one.until > now && !is_over);
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    fn admission(most: usize) -> Admission {
        let closing = Closing {
            drain: CancellationToken::new(),
            farewell: CancellationToken::new(),
            tasks: TaskTracker::new(),
        };
        Admission::new(most, Arc::new(|| true), closing, Arc::default())
    }

    /// A call that rings for long keeps its place when another connects meanwhile.
    #[tokio::test(start_paused = true)]
    async fn the_place_that_is_held_longest_stays() {
        let admission = admission(2);
        for seconds in [45, 15] {
            let place = admission.place(false).unwrap();
            admission.hold(place, Duration::from_secs(seconds));
        }
        let connected = admission.promised().unwrap();
        advance(Duration::from_secs(20)).await;
        assert!(matches!(admission.place(false), Err(Refusal::Full)));
        drop((admission.promised().unwrap(), connected));
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_is_held_for_a_call_that_was_promised_one() {
        let admission = admission(1);
        let hold = || admission.hold(admission.place(false).unwrap(), Duration::from_secs(15));
        hold();
        assert!(matches!(admission.place(false), Err(Refusal::Full)));
        drop(admission.promised().unwrap());
        // Nothing is held: any place will do.
        drop(admission.promised().unwrap());
        hold();
        advance(Duration::from_secs(16)).await;
        drop(admission.place(false).unwrap());
        hold();
        admission.let_go();
        drop(admission.place(false).unwrap());
    }

    /// Whoever answered a call that the server had placed was told that all lines were busy, or reached nobody, because the
    /// server had ended meanwhile.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_drains_takes_the_calls_that_it_has_promised_a_place() {
        let admission = admission(2);
        let Closing {
            drain,
            farewell,
            tasks,
        } = &admission.closing;
        for seconds in [15, 45] {
            let place = admission.place(false).unwrap();
            admission.hold(place, Duration::from_secs(seconds));
        }
        drain.cancel();
        tasks.close();
        assert!(matches!(admission.place(false), Err(Refusal::Draining)));
        drop(admission.promised().unwrap());
        assert_eq!(tasks.len(), 1, "the server waits for the second call");
        advance(Duration::from_secs(46)).await;
        admission.free_overdue();
        assert!(tasks.is_empty());
        let returned = admission.place(true).unwrap();
        admission.hold(returned, Duration::from_secs(15));
        farewell.cancel();
        assert!(matches!(admission.promised(), Err(Refusal::Draining)));
        assert!(tasks.is_empty());
    }
}
