//! Admission: whether there is a place for one more session.

use crate::metrics::{Metrics, Refusal};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// Says whether one more session finds the models free, and counts it if so. Must not block.
pub type Room = Arc<dyn Fn() -> bool + Send + Sync>;

/// Gives places to sessions.
pub(super) struct Admission {
    /// Free places of sessions.
    pub(super) places: Arc<Semaphore>,
    pub(super) room: Room,
    /// The server shuts down: there are no places any more.
    pub(super) drain: CancellationToken,
    pub(super) metrics: Arc<Metrics>,
}

impl Admission {
    /// A place for one more session, unless the server drains, is full, or has as much to do as it can.
    /// One that was `promised` a place finds it however much there is to do.
    pub(super) fn place(&self, promised: bool) -> Result<OwnedSemaphorePermit, Refusal> {
        let permit = self.place_among(&self.places)?;
        if !promised && !(self.room)() {
            self.metrics.refused(Refusal::Overloaded);
            return Err(Refusal::Overloaded);
        }
        Ok(permit)
    }

    /// One of `places`, unless the server drains.
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
