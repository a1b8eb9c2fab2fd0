//! A cheap gate in front of Silero: WebRTC's detector, 60 times cheaper, decides whether Silero runs at all.

use super::{Begun, SileroWindow, Vad, VadError, WINDOW};
use crate::audio::{to_f32, to_i16};
use std::collections::VecDeque;
use webrtc_vad::{SampleRate, Vad as Webrtc, VadMode};

/// Samples of one of WebRTC's frames: 10 ms at 16 kHz.
const FRAME: usize = 160;

/// Windows for which the gate stays open after the last that sounded like speech (320 ms), so that the model
/// judges pauses within speech.
const HANGOVER: u32 = 10;

/// Windows from before the gate opened that the model processes first, so that its state is warm and the
/// onset is not lost.
const WARM_UP: usize = 4;

/// A detector behind the gate. While the gate is closed the probability is 0.
pub struct Gated<V> {
    gate: Webrtc,
    model: V,
    open: u32,
    /// Kept as PCM16 to save memory, because every silent session has them.
    before: VecDeque<Vec<i16>>,
}

impl<V: Vad> Gated<V> {
    /// Puts `model` behind a gate.
    pub fn new(model: V) -> Self {
        // The "quality" mode passes the most audio, so it holds back no speech.
        let gate = Webrtc::new_with_rate_and_mode(SampleRate::Rate16kHz, VadMode::Quality);
        Self {
            gate,
            model,
            open: 0,
            before: VecDeque::with_capacity(WARM_UP),
        }
    }

    /// Whether WebRTC's detector hears a voice in any frame of the window.
    fn sounds_like_speech(&mut self, samples: &[i16]) -> bool {
        let mut voice = false;
        for frame in samples.chunks_exact(FRAME) {
            voice |= self.gate.is_voice_segment(frame).unwrap_or(true);
        }
        voice
    }
}

impl<V: Vad> Vad for Gated<V> {
    fn begin(&mut self, window: &[f32; WINDOW]) -> Result<Begun, VadError> {
        let was_open = self.open > 0;
        let samples = to_i16(window);
        if self.sounds_like_speech(&samples) {
            self.open = HANGOVER;
        } else {
            self.open = self.open.saturating_sub(1);
        }
        let begun = if self.open == 0 {
            Begun::Judged(0.0)
        } else {
            if !was_open {
                for earlier in &self.before {
                    if let Some(earlier) = to_f32(earlier).first_chunk() {
                        self.model.push(earlier)?;
                    }
                }
            }
            self.model.begin(window)?
        };
        if self.before.len() == WARM_UP {
            self.before.pop_front();
        }
        self.before.push_back(samples);
        Ok(begun)
    }

    fn finish(&mut self, window: &SileroWindow) {
        self.model.finish(window);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_never_reaches_the_model() {
        struct Forbidden;
        impl Vad for Forbidden {
            fn begin(&mut self, _: &[f32; WINDOW]) -> Result<Begun, VadError> {
                Err(VadError("asked".into()))
            }
        }
        let mut vad = Gated::new(Forbidden);
        for _ in 0..100 {
            assert_eq!(vad.push(&[0.0; WINDOW]), Ok(0.0));
        }
    }
}
