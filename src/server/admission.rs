//! Admission control: limits the number of sessions.

use crate::metrics::{Metrics, Refusal};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Decides whether the models can serve one more session, and counts it if so. Must not block.
pub type Room = Arc<dyn Fn() -> bool + Send + Sync>;

/// Hands out places for sessions.
pub(super) struct Admission {
    /// The free places.
    places: Arc<Semaphore>,
    /// Places of calls that were promised one and have not connected yet, each with the time at which it is free again.
    held: Mutex<Vec<(OwnedSemaphorePermit, Instant)>>,
    pub(super) room: Room,
    /// Cancelled at shutdown; then all sessions are refused.
    drain: CancellationToken,
    metrics: Arc<Metrics>,
}

#[allow(
    clippy::disallowed_methods,
    reason = "an edge: calls connect in real time"
)]
impl Admission {
    pub(super) fn new(
        most: usize,
        room: Room,
        drain: CancellationToken,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            places: Arc::new(Semaphore::new(most)),
            held: Mutex::default(),
            room,
            drain,
            metrics,
        }
    }

    /// A place for one more session, unless the server is draining, full or overloaded. A
    /// `promised` session is admitted even under overload.
    pub(super) fn place(&self, promised: bool) -> Result<OwnedSemaphorePermit, Refusal> {
        // Frees those whose time is over.
        drop(self.held());
        let permit = self.place_among(&self.places)?;
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
        let permit = match places.clone().try_acquire_owned() {
            _ if self.is_draining() => Err(Refusal::Draining),
            Err(_) => Err(Refusal::Full),
            Ok(permit) => Ok(permit),
        };
        permit.inspect_err(|refusal| self.metrics.refused(*refusal))
    }

    /// Holds a place for a call that connects within this time.
    pub(super) fn hold(&self, place: OwnedSemaphorePermit, lasting: Duration) {
        self.held().push((place, Instant::now() + lasting));
    }

    /// Frees a place that was held for a call which does not connect any more.
    pub(super) fn let_go(&self) {
        drop(self.take_held());
    }

    /// The place of a call that was promised one. It may have been promised by another server, or its time may be over:
    /// then any.
    pub(super) fn promised(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        let held = match self.is_draining() {
            true => None,
            false => self.take_held(),
        };
        held.map_or_else(|| self.place(true), Ok)
    }

    /// The held place that is free again first: whoever was promised it finds one that is held longer.
    fn take_held(&self) -> Option<OwnedSemaphorePermit> {
        let mut held = self.held();
        let (first, _) = held
            .iter()
            .enumerate()
            .min_by_key(|(_, (_, until))| *until)?;
        Some(held.swap_remove(first).0)
    }

    fn is_draining(&self) -> bool {
        self.drain.is_cancelled()
    }

    fn held(&self) -> MutexGuard<'_, Vec<(OwnedSemaphorePermit, Instant)>> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        held.retain(|(_, until)| *until > now);
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    /// A call that rings for long keeps its place when another connects meanwhile.
    #[tokio::test(start_paused = true)]
    async fn the_place_that_is_held_longest_stays() {
        let room: Room = Arc::new(|| true);
        let admission = Admission::new(2, room, CancellationToken::new(), Arc::default());
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
        let drain = CancellationToken::new();
        let room: Room = Arc::new(|| true);
        let admission = Admission::new(1, room, drain.clone(), Arc::default());
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
        hold();
        drain.cancel();
        assert!(matches!(admission.promised(), Err(Refusal::Draining)));
    }
}
