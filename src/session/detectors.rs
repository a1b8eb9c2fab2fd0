//! The voice activity detectors of all sessions, on one thread, which judges what waits together.

use crate::conversation::{Input, Samples};
use crate::vad::{Vad, VadError, WINDOW, level, push_all};
use crate::worker::{SpawnError, Worker};
use std::collections::{HashMap, VecDeque};
use tokio_util::sync::CancellationToken;

/// Windows of all sessions that wait in front of the voice activity detector: two seconds of 32
/// sessions.
const INBOX: usize = 2_048;

/// Jobs that are handled together: from 8 streams on, a window costs Silero half of what it costs alone, and no less
/// with more.
const BATCH: usize = 16;

/// Makes the detector of one session.
pub(super) type MakeVad = Box<dyn FnMut() -> Result<Box<dyn Vad>, VadError>>;

/// Makes a builder of detectors, on the thread that will own them.
pub(super) type VadBuilder = Box<dyn FnMut() -> MakeVad + Send>;

/// Windows for one session's voice activity detector, oldest first.
#[derive(Debug, Clone)]
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
    let handle = Detectors::handle;
    Worker::spawn_in_batches("vad", INBOX, BATCH, detectors(build), handle)
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

/// The windows of one session in a batch.
struct Stream {
    session: u64,
    detector: Detector,
    windows: VecDeque<Window>,
}

struct Window {
    /// Its job's place in the batch.
    job: usize,
    end: Samples,
    samples: [f32; WINDOW],
}

impl Detectors {
    /// Handles the jobs of a batch, each with its session's token, which is cancelled when the session ends.
    fn handle(&mut self, jobs: Vec<(VadJob, CancellationToken)>) -> Vec<Result<Judged, VadError>> {
        let mut results: Vec<Result<Judged, VadError>> = Vec::with_capacity(jobs.len());
        let mut streams: Vec<Stream> = Vec::new();
        let mut closed = Vec::new();
        for (job, (work, over)) in jobs.into_iter().enumerate() {
            results.push(Ok(Vec::new()));
            let (session, end, windows) = match work {
                VadJob::Close { session } => {
                    closed.push(session);
                    continue;
                }
                VadJob::Judge {
                    session,
                    end,
                    windows,
                } => (session, end, windows),
            };
            let windows = windows.into_iter().enumerate().map(|(i, samples)| Window {
                job,
                end: Samples(end.0 + (i * WINDOW) as u64),
                samples,
            });
            match streams.iter_mut().find(|stream| stream.session == session) {
                Some(stream) => stream.windows.extend(windows),
                None => match self.take(session, over) {
                    Ok(detector) => streams.push(Stream {
                        session,
                        detector,
                        windows: windows.collect(),
                    }),
                    Err(error) => results[job] = Err(error),
                },
            }
        }
        while streams.iter().any(|stream| !stream.windows.is_empty()) {
            judge_next(&mut streams, &mut results);
        }
        let kept = streams.into_iter().map(|s| (s.session, s.detector));
        self.sessions.extend(kept);
        for session in closed {
            self.sessions.remove(&session);
        }
        results
    }

    /// Takes the session's detector out, which is made when it is first needed. Those of sessions that are over are
    /// forgotten on the way, so that they cannot pile up.
    fn take(&mut self, session: u64, over: CancellationToken) -> Result<Detector, VadError> {
        if let Some(known) = self.sessions.remove(&session) {
            return Ok(known);
        }
        self.sessions.retain(|_, other| !other.over.is_cancelled());
        let vad = (self.make)()?;
        Ok(Detector { vad, over })
    }
}

/// Judges the next window of each stream.
fn judge_next(streams: &mut [Stream], results: &mut [Result<Judged, VadError>]) {
    let (detectors, windows): (Vec<&mut dyn Vad>, Vec<Window>) = streams
        .iter_mut()
        .filter_map(|stream| {
            let window = stream.windows.pop_front()?;
            let detector: &mut dyn Vad = &mut *stream.detector.vad;
            Some((detector, window))
        })
        .unzip();
    let samples = windows.iter().map(|window| &window.samples);
    let mut batch: Vec<_> = detectors.into_iter().zip(samples).collect();
    for (window, judged) in windows.iter().zip(push_all(&mut batch)) {
        match (&mut results[window.job], judged) {
            (Ok(inputs), Ok(probability)) => inputs.push(Input::Vad {
                end: window.end,
                probability,
                level: level(&window.samples),
            }),
            (result, Err(error)) => *result = Err(error),
            (Err(_), Ok(_)) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vad::Begun;

    struct Silent;

    impl Vad for Silent {
        fn begin(&mut self, _: &[f32; WINDOW]) -> Result<Begun, VadError> {
            Ok(Begun::Judged(0.0))
        }
    }

    /// Hears speech of a probability that grows by a hundredth with each window.
    struct Counts(f32);

    impl Vad for Counts {
        fn begin(&mut self, _: &[f32; WINDOW]) -> Result<Begun, VadError> {
            self.0 += 0.01;
            Ok(Begun::Judged(self.0))
        }
    }

    #[test]
    fn a_batch_judges_the_windows_of_a_session_in_order_and_answers_each_job() {
        let make = || Ok(Box::new(Counts(0.0)) as Box<dyn Vad>);
        let mut detectors = super::detectors(Box::new(move || Box::new(make)))().unwrap();
        let job = |session, end: u64, count| VadJob::Judge {
            session,
            end: Samples(end),
            windows: vec![[0.0; WINDOW]; count],
        };
        let jobs = [
            job(1, 512, 2),
            job(2, 512, 1),
            job(1, 1_536, 1),
            VadJob::Close { session: 2 },
        ];
        let jobs = jobs.map(|job| (job, CancellationToken::new())).to_vec();
        let results = detectors.handle(jobs);
        let heard: Vec<Vec<(u64, u32)>> = results
            .into_iter()
            .map(|judged| {
                let inputs = judged.unwrap().into_iter();
                let told = inputs.map(|input| match input {
                    Input::Vad {
                        end, probability, ..
                    } => (end.0, (probability * 100.0).round() as u32),
                    other => panic!("{other:?}"),
                });
                told.collect()
            })
            .collect();
        assert_eq!(
            heard,
            [
                vec![(512, 1), (1_024, 2)],
                vec![(512, 1)],
                vec![(1_536, 3)],
                vec![]
            ]
        );
        let left: Vec<u64> = detectors.sessions.keys().copied().collect();
        assert_eq!(left, [1]);
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
            assert_eq!(
                detectors.handle(vec![(job, over.clone())]),
                [Ok(vec![silent])]
            );
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
