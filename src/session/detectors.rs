//! The voice activity detectors of all sessions, on one thread.

use crate::conversation::{Input, Samples};
use crate::vad::{Vad, VadError, WINDOW, level};
use crate::worker::{SpawnError, Worker};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use tokio_util::sync::CancellationToken;

/// Windows of all sessions that wait in front of the voice activity detector: two seconds of 32
/// sessions.
const INBOX: usize = 2_048;

/// Makes the detector of one session.
pub(super) type MakeVad = Box<dyn FnMut() -> Result<Box<dyn Vad>, VadError>>;

/// Makes a builder of detectors, on the thread that will own them.
pub(super) type VadBuilder = Box<dyn FnMut() -> MakeVad + Send>;

/// Windows for one session's voice activity detector, oldest first.
#[derive(Debug)]
pub(super) enum VadJob {
    /// Judge these windows; the first of them ends at `end`.
    Judge {
        session: u64,
        end: Samples,
        windows: Vec<[f32; WINDOW]>,
    },
    /// The session is over: forget its state now. If this is lost, the next session's first job
    /// sees to it.
    Close { session: u64 },
}

/// The result for each window.
pub(super) type Judged = Vec<Input>;

/// Starts the thread.
pub(super) fn start(
    build: VadBuilder,
) -> Result<Worker<VadJob, Result<Judged, VadError>>, SpawnError<VadError>> {
    Worker::spawn("vad", INBOX, detectors(build), Detectors::handle)
}

/// The detectors of all sessions.
struct Detectors {
    make: MakeVad,
    sessions: HashMap<u64, Detector>,
}

/// The detector of one session.
struct Detector {
    vad: Box<dyn Vad>,
    /// Cancelled when the session is over.
    over: CancellationToken,
}

fn detectors(mut builder: VadBuilder) -> impl FnMut() -> Result<Detectors, VadError> + Send {
    move || {
        let mut make = builder();
        // A model that cannot be loaded is found now, not when the first user speaks.
        make()?;
        Ok(Detectors {
            make,
            sessions: HashMap::new(),
        })
    }
}

impl Detectors {
    /// `over` is the session's token, which is cancelled when the session ends.
    fn handle(&mut self, job: VadJob, over: &CancellationToken) -> Result<Judged, VadError> {
        match job {
            VadJob::Close { session } => {
                self.sessions.remove(&session);
                Ok(Vec::new())
            }
            VadJob::Judge {
                session,
                end,
                windows,
            } => {
                let vad = self.detector(session, over)?;
                windows
                    .iter()
                    .enumerate()
                    .map(|(i, window)| {
                        let end = Samples(end.0 + (i * WINDOW) as u64);
                        Ok(Input::Vad {
                            end,
                            probability: vad.push(window)?,
                            level: level(window),
                        })
                    })
                    .collect()
            }
        }
    }

    /// The session's detector, made when it is first needed. Those of sessions that are over are
    /// forgotten on the way, so that they cannot pile up.
    fn detector(
        &mut self,
        session: u64,
        over: &CancellationToken,
    ) -> Result<&mut Box<dyn Vad>, VadError> {
        if !self.sessions.contains_key(&session) {
            self.sessions.retain(|_, other| !other.over.is_cancelled());
        }
        Ok(match self.sessions.entry(session) {
            Entry::Occupied(known) => &mut known.into_mut().vad,
            Entry::Vacant(new) => {
                let vad = (self.make)()?;
                let over = over.clone();
                &mut new.insert(Detector { vad, over }).vad
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Silent;

    impl Vad for Silent {
        fn push(&mut self, _: &[f32; WINDOW]) -> Result<f32, VadError> {
            Ok(0.0)
        }
    }

    #[test]
    fn a_session_that_could_not_say_goodbye_is_forgotten() {
        let make = || Ok(Box::new(Silent) as Box<dyn Vad>);
        let mut detectors = super::detectors(Box::new(move || Box::new(make)))().unwrap();
        let mut judge = |session, over: &CancellationToken| {
            let windows = vec![[0.0; WINDOW]];
            let end = Samples(WINDOW as u64);
            let job = VadJob::Judge {
                session,
                end,
                windows,
            };
            let silent = Input::Vad {
                end,
                probability: 0.0,
                level: -120,
            };
            assert_eq!(detectors.handle(job, over).unwrap(), [silent]);
            detectors.sessions.len()
        };
        let tokens = [1, 2, 3].map(|_| CancellationToken::new());
        assert_eq!(judge(1, &tokens[0]), 1);
        assert_eq!(judge(2, &tokens[1]), 2);
        tokens[0].cancel();
        assert_eq!(judge(2, &tokens[1]), 2);
        assert_eq!(judge(3, &tokens[2]), 2);
    }
}
