//! One session's use of a local voice, which is always on the voices' thread or loaded when it is needed.

use super::clause::{Place, SpeakJob, TakeChunk};
use super::reason;
use super::shelf::Shelf;
use super::voices::{OnThread, Wanted};
use crate::tts::Speed;
use crate::worker::Overloaded;
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

/// A local voice.
#[derive(Clone)]
pub(super) struct LocalVoice {
    pub(super) thread: OnThread,
    pub(super) shelf: Arc<Shelf>,
    pub(super) home: Home,
    /// How fast it speaks.
    pub(super) speed: Speed,
    /// Hz.
    pub(super) rate: u32,
}

/// The place of a voice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Home {
    /// Always loaded on the thread, at this index.
    Thread(usize),
    /// Loaded on demand, at this index of the shelf.
    Shelf(usize),
}

impl LocalVoice {
    /// Its place, if it is loaded. Otherwise loading begins.
    pub(super) fn ready(&self) -> Option<Place> {
        match self.home {
            Home::Thread(at) => Some(Place::Thread(at)),
            Home::Shelf(at) => self.shelf.ready(at).map(Place::Shelf),
        }
    }

    /// Whether it has to be loaded before it speaks.
    pub(super) fn loads(&self) -> bool {
        matches!(self.home, Home::Shelf(at) if !self.shelf.holds(at))
    }

    /// Synthesises a clause, when it is loaded.
    ///
    /// # Errors
    /// The voice's error.
    pub(super) async fn speak(&self, wanted: Wanted, chunk: TakeChunk) -> Result<(), String> {
        let place = match self.home {
            Home::Thread(at) => Place::Thread(at),
            Home::Shelf(at) => Place::Shelf(self.shelf.voice(at).await?),
        };
        let job = SpeakJob::new(place, self.speed, wanted, chunk);
        let spoken = self.thread.call_by(job.due(), job).await;
        spoken.map_err(reason)?.map_err(reason)
    }

    /// Begins to speak in the background: `done` is called at the end or with the reason of a failure, on any thread.
    /// Cancelling stops it between chunks; then `done` may not be called.
    ///
    /// # Errors
    /// Too much waits for the thread.
    pub(super) fn begin(
        &self,
        wanted: Wanted,
        cancel: CancellationToken,
        tasks: &mut JoinSet<()>,
        chunk: TakeChunk,
        done: impl FnOnce(Result<(), String>) + Send + 'static,
    ) -> Result<(), Overloaded> {
        if let Some(place) = self.ready() {
            let job = SpeakJob::new(place, self.speed, wanted, chunk);
            return self.thread.send_by(job.due(), job, cancel, move |spoken| {
                done(spoken.map_err(reason).and_then(|end| end.map_err(reason)));
            });
        }
        let voice = self.clone();
        let job = async move {
            let speech = voice.speak(wanted, chunk);
            if let Some(spoken) = cancel.run_until_cancelled(speech).await {
                done(spoken);
            }
        };
        tasks.spawn(job.in_current_span());
        Ok(())
    }
}
