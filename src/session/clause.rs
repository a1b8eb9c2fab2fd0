//! A clause on the voice's thread: made chunk by chunk, each of which is due when the user has heard
//! those before it. Between two chunks of one user's clause another user's may begin.

use super::load::{Gauge, Stage};
use super::shelf::Loaded;
use super::voices::Wanted;
use crate::tts::{Piece, Speech, Speed, Tts, TtsError};
use crate::worker::Step;
use std::ops::ControlFlow;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// A chunk is due this long before the user has heard all that comes before it: making one takes some
/// 60 ms, and another user's may be in the way.
pub(super) const MARGIN: Duration = Duration::from_millis(150);

/// A local voice.
#[derive(Clone)]
pub(super) enum Place {
    /// One of those that are always on the thread.
    Thread(usize),
    /// One that is loaded for now.
    Shelf(Loaded),
}

/// A clause for the voice, and who takes its audio.
pub(super) struct SpeakJob {
    place: Place,
    speed: Speed,
    wanted: Wanted,
    chunk: TakeChunk,
    /// Begun, and what it has taken so far.
    speech: Option<Speech>,
    took: Duration,
}

/// Takes a clause's audio chunk by chunk, at the voice's rate, until it breaks off.
pub(super) type TakeChunk = Box<dyn FnMut(Piece) -> ControlFlow<()> + Send>;

impl SpeakJob {
    pub(super) fn new(place: Place, speed: Speed, wanted: Wanted, chunk: TakeChunk) -> Self {
        Self {
            place,
            speed,
            wanted,
            chunk,
            speech: None,
            took: Duration::ZERO,
        }
    }

    /// Makes its next chunk. `voices` are those on the thread.
    pub(super) fn step_with(
        self,
        voices: &mut [Box<dyn Tts>],
        gauge: &Gauge,
    ) -> Step<Self, Result<(), TtsError>> {
        match self.place.clone() {
            Place::Thread(at) => match voices.get_mut(at) {
                Some(tts) => self.step(&mut **tts, gauge),
                None => Step::Done(Err(TtsError::Run("there is no such voice".into()))),
            },
            Place::Shelf(voice) => {
                let mut tts = voice.lock().unwrap_or_else(PoisonError::into_inner);
                self.step(&mut **tts, gauge)
            }
        }
    }

    /// When its next chunk is due. Who hears something goes before those who wait for a first sound: a
    /// gap within an answer is worse than a moment more before it.
    pub(super) fn due(&self) -> Instant {
        let Wanted { needed, asked, .. } = self.wanted;
        match asked {
            Some(_) => needed,
            None => needed.checked_sub(MARGIN).unwrap_or(needed),
        }
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: when audio is needed is a matter of real time"
    )]
    fn step(mut self, tts: &mut dyn Tts, gauge: &Gauge) -> Step<Self, Result<(), TtsError>> {
        if let Some(asked) = self.wanted.asked.take() {
            gauge.begun(Stage::Voice, asked);
        }
        let (chunk, time) = gauge.measure(Stage::Voice, || match &mut self.speech {
            Some(speech) => speech.next().transpose(),
            None => {
                let speech = tts.speak_at(&self.wanted.text, self.speed)?;
                let speech = self.speech.insert(speech);
                speech.next().transpose()
            }
        });
        self.took += time;
        match chunk {
            Ok(Some(samples)) => {
                let seconds = samples.len() as f64 / f64::from(tts.sample_rate());
                if (self.chunk)(samples.into()).is_break() {
                    return self.over(gauge);
                }
                let needed = self.wanted.needed.max(Instant::now());
                self.wanted.needed = needed + Duration::from_secs_f64(seconds);
                Step::Later(self.due(), self)
            }
            Ok(None) => self.over(gauge),
            Err(error) => Step::Done(Err(error)),
        }
    }

    fn over(self, gauge: &Gauge) -> Step<Self, Result<(), TtsError>> {
        gauge.took(Stage::Voice, self.took);
        Step::Done(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tts::Scripted;
    use std::num::NonZeroUsize;
    use std::sync::{Arc, Mutex};

    #[test]
    #[expect(clippy::disallowed_methods, reason = "any time will do")]
    fn a_clause_is_due_when_the_user_has_heard_what_was_made() {
        let (gauge, mut tts) = (
            Gauge::new(Arc::default(), NonZeroUsize::MIN),
            Scripted::new(),
        );
        let heard = Arc::new(Mutex::new(0));
        let take = heard.clone();
        let chunk = Box::new(move |piece: Piece| {
            *take.lock().unwrap() += piece.samples.len();
            ControlFlow::Continue(())
        });
        let now = Instant::now();
        let wanted = Wanted {
            text: "three little words".into(),
            needed: now,
            asked: Some(now),
            sooner: None,
        };
        let mut job = SpeakJob::new(Place::Thread(0), Speed::NORMAL, wanted, chunk);
        assert_eq!(job.due(), now);
        for words in 1..=3 {
            let Step::Later(due, rest) = job.step(&mut tts, &gauge) else {
                panic!("over after {words} words");
            };
            assert_eq!(*heard.lock().unwrap(), Scripted::samples(words));
            // From the first on, they are heard one after the other.
            assert!(due >= now + Duration::from_millis(200 * words as u64) - MARGIN);
            job = rest;
        }
        assert!(matches!(job.step(&mut tts, &gauge), Step::Done(Ok(()))));
    }

    #[test]
    fn a_clause_that_nobody_takes_is_over() {
        let (gauge, mut tts) = (
            Gauge::new(Arc::default(), NonZeroUsize::MIN),
            Scripted::new(),
        );
        let gone = Box::new(|_: Piece| ControlFlow::Break(()));
        let wanted = Wanted::unhurried("one two".into());
        let job = SpeakJob::new(Place::Thread(0), Speed::NORMAL, wanted, gone);
        let step = job.step(&mut tts, &gauge);
        assert!(matches!(step, Step::Done(Ok(()))));
    }
}
