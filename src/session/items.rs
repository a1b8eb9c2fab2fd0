//! Items of the user that were spoken elsewhere, on their way to the recogniser: one after the other,
//! behind those who wait at a microphone, and not much faster than they were spoken.

use super::recognisers::Recogniser;
use crate::audio::{Resampler, stretches, to_f32};
use crate::conversation::{Input, ItemId, Micros, Samples};
use futures_util::FutureExt;
use std::panic::AssertUnwindSafe;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// Items that may wait in a session: as many as a Realtime client may have waiting.
pub(super) const WAITING: usize = 64;

/// Seconds of audio that a session has transcribed in a second: as fast as Realtime clients may send
/// it otherwise.
const SPEED: u64 = 4;

/// Nobody says a word in less, samples: 100 ms. Services refuse it, which would count as a failure.
const SHORTEST: usize = Samples::RATE as usize / 10;

/// An item whose words are not known.
pub(super) struct Unheard {
    pub(super) id: ItemId,
    /// Mono PCM16 at the session's input rate.
    pub(super) audio: Vec<i16>,
}

/// Transcribes items until no more come. `rate` is that of their audio, Hz.
#[allow(
    clippy::disallowed_methods,
    reason = "the edge: recordings are let through in real time"
)]
pub(super) async fn transcribe(
    mut recogniser: Recogniser,
    rate: u32,
    mut items: mpsc::Receiver<Unheard>,
    heard: impl AsyncFn(Input),
) {
    while let Some(Unheard { id, audio }) = items.recv().await {
        let began = Instant::now();
        let length = Micros::of_samples(audio.len() as u64, rate);
        let words = AssertUnwindSafe(words_of(&mut recogniser, &audio, rate));
        let words = words.catch_unwind().await.unwrap_or(None);
        heard(Input::ItemHeard { item: id, words }).await;
        sleep_until(began + Micros(length.0 / SPEED).duration()).await;
    }
}

/// Transcribes audio; `None` if the recogniser is busy or fails.
async fn words_of(recogniser: &mut Recogniser, audio: &[i16], rate: u32) -> Option<String> {
    let mut resampler = Resampler::new(rate, Samples::RATE);
    let mut samples = resampler.push(&to_f32(audio));
    samples.extend(resampler.flush());
    let mut texts = Vec::new();
    for stretch in stretches(&samples) {
        if stretch.len() >= SHORTEST {
            texts.push(recogniser.transcribe_in_time(stretch.to_vec()).await?);
        }
    }
    texts.retain(|text| !text.trim().is_empty());
    Some(texts.join(" ").trim().to_owned())
}
