//! A clause on the voice's thread: made chunk by chunk, each of which is due when the user has heard
//! those before it. Between two chunks of one user's clause another user's may begin.

use super::load::{Gauge, Stage};
use crate::tts::{Speech, Tts, TtsError};
use crate::worker::Step;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// A chunk is due this long before the user has heard all that comes before it: making one takes some
/// 60 ms, and another user's may be in the way.
const MARGIN: Duration = Duration::from_millis(150);

/// A clause for the voice, and who takes its audio.
pub(super) struct SpeakJob {
    text: String,
    /// When the user will have heard what comes before it.
    needed: Instant,
    /// Since when a user waits for it; `None` if nobody does, such as for a later clause.
    asked: Option<Instant>,
    chunk: TakeChunk,
    /// Begun, and what it has taken so far.
    speech: Option<Speech>,
    took: Duration,
}

type TakeChunk = Box<dyn FnMut(&[f32]) -> ControlFlow<()> + Send>;

impl SpeakJob {
    pub(super) fn new(
        text: String,
        needed: Instant,
        asked: Option<Instant>,
        chunk: TakeChunk,
    ) -> Self {
        Self {
            text,
            needed,
            asked,
            chunk,
            speech: None,
            took: Duration::ZERO,
        }
    }

    /// For somebody outside of the conversations.
    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: when audio is needed is a matter of real time"
    )]
    pub(super) fn unhurried(text: String, chunk: TakeChunk) -> Self {
        Self::new(text, Instant::now() + MARGIN, None, chunk)
    }

    /// When its next chunk is due. Who hears something goes before those who wait for a first sound: a
    /// gap within an answer is worse than a moment more before it.
    pub(super) fn due(&self) -> Instant {
        match self.asked {
            Some(_) => self.needed,
            None => self.needed.checked_sub(MARGIN).unwrap_or(self.needed),
        }
    }

    /// Makes its next chunk, at `rate` Hz.
    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: when audio is needed is a matter of real time"
    )]
    pub(super) fn step(
        mut self,
        tts: &mut dyn Tts,
        rate: u32,
        gauge: &Gauge,
    ) -> Step<Self, Result<(), TtsError>> {
        if let Some(asked) = self.asked.take() {
            gauge.begun(Stage::Voice, asked);
        }
        let (chunk, time) = gauge.measure(Stage::Voice, || match &mut self.speech {
            Some(speech) => speech.next().transpose(),
            None => {
                let speech = self.speech.insert(tts.speak(&self.text)?);
                speech.next().transpose()
            }
        });
        self.took += time;
        match chunk {
            Ok(Some(samples)) if (self.chunk)(&samples).is_continue() => {
                let length = Duration::from_secs_f64(samples.len() as f64 / f64::from(rate));
                self.needed = self.needed.max(Instant::now()) + length;
                Step::Later(self.due(), self)
            }
            Ok(_) => {
                gauge.took(Stage::Voice, self.took);
                Step::Done(Ok(()))
            }
            Err(error) => Step::Done(Err(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tts::Scripted;
    use std::sync::{Arc, Mutex};

    #[test]
    fn a_clause_is_due_when_the_user_has_heard_what_was_made() {
        let (gauge, mut tts) = (Gauge::new(Arc::default()), Scripted::new());
        let rate = tts.sample_rate();
        let heard = Arc::new(Mutex::new(0));
        let take = heard.clone();
        let chunk = Box::new(move |samples: &[f32]| {
            *take.lock().unwrap() += samples.len();
            ControlFlow::Continue(())
        });
        let now = Instant::now();
        let mut job = SpeakJob::new("three little words".into(), now, Some(now), chunk);
        assert_eq!(job.due(), now);
        for words in 1..=3 {
            let Step::Later(due, rest) = job.step(&mut tts, rate, &gauge) else {
                panic!("over after {words} words");
            };
            assert_eq!(*heard.lock().unwrap(), Scripted::samples(words));
            // From the first on, they are heard one after the other.
            assert!(due >= now + Duration::from_millis(200 * words as u64) - MARGIN);
            job = rest;
        }
        assert!(matches!(
            job.step(&mut tts, rate, &gauge),
            Step::Done(Ok(()))
        ));
    }

    #[test]
    fn a_clause_that_nobody_takes_is_over() {
        let (gauge, mut tts) = (Gauge::new(Arc::default()), Scripted::new());
        let gone = Box::new(|_: &[f32]| ControlFlow::Break(()));
        let job = SpeakJob::unhurried("one two".into(), gone);
        let step = job.step(&mut tts, 22_050, &gauge);
        assert!(matches!(step, Step::Done(Ok(()))));
    }
}
