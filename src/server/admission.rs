//! Admission control: limits the number of sessions.

use crate::metrics::{Metrics, Refusal};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// Decides whether the models can serve one more session, and counts it if so. Must not block.
pub type Room = Arc<dyn Fn() -> bool + Send + Sync>;

/// Hands out places for sessions.
pub(super) struct Admission {
    /// The free places.
    pub(super) places: Arc<Semaphore>,
    pub(super) room: Room,
    /// Cancelled at shutdown; then all sessions are refused.
    pub(super) drain: CancellationToken,
    pub(super) metrics: Arc<Metrics>,
}

impl Admission {
    /// A place for one more session, unless the server is draining, full or overloaded. A
    /// `promised` session is admitted even under overload.
    pub(super) fn place(&self, promised: bool) -> Result<OwnedSemaphorePermit, Refusal> {
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
            _ if self.drain.is_cancelled() => Err(Refusal::Draining),
            Err(_) => Err(Refusal::Full),
            Ok(permit) => Ok(permit),
        };
        permit.inspect_err(|refusal| self.metrics.refused(*refusal))
    }
}
