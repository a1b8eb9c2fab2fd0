//! The silence behind speech, which Whisper's encoder need not compute for each piece of audio.
//!
//! The models are trained with 30 s of context and repeat themselves with much less than ten. For an utterance of three
//! seconds most of that is silence, and what the encoder makes of it hardly depends on the words before it. So it is
//! encoded once, behind a sound that stands for speech, and joins the frames of each utterance from their end on. That
//! takes half of the encoder's time (`cargo bench --bench recogniser`); `--test parts asr::` and `pipeline::` assert that
//! the words are understood. Silence behind nothing or behind noise makes the model repeat itself more often.

use super::decode::{ENCODER_FRAME, MARGIN_FRAMES};

/// The frames that are seen: those of the audio, and silence.
pub(super) const CONTEXT_FRAMES: usize = 768;

/// The length of the sound that stands for speech, samples: 1 s.
const SOUND: usize = 50 * ENCODER_FRAME;

/// Hz.
const RATE: f32 = 16_000.0;

/// The pitch of a voice, and the syllables in a second, Hz.
const PITCH: f32 = 160.0;
const SYLLABLES: f32 = 4.0;

/// The overtones of the voice, up to 4.6 kHz.
const OVERTONES: usize = 29;

/// Four syllables of a hummed vowel, 16 kHz, some -25 dBFS.
pub(super) fn sound_like_speech() -> Vec<f32> {
    let turns = |hz: f32, at: usize| std::f32::consts::TAU * hz * at as f32 / RATE;
    let sample = |at: usize| {
        let overtone = |k: usize| turns(PITCH * k as f32, at).sin() / k as f32;
        let voice: f32 = (1..=OVERTONES).map(overtone).sum();
        0.1 * voice * (0.5 - 0.5 * turns(SYLLABLES, at).cos())
    };
    (0..SOUND).map(sample).collect()
}

/// The frames to encode for this much audio if `context` are to be seen: those behind it are known up to
/// [`CONTEXT_FRAMES`].
pub(super) fn frames_to_encode(samples: usize, context: usize) -> usize {
    let own = samples.max(SOUND).div_ceil(ENCODER_FRAME) + MARGIN_FRAMES;
    match context {
        CONTEXT_FRAMES => own.min(CONTEXT_FRAMES),
        _ => context,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_audio_is_encoded_with_a_margin_and_longer_audio_whole() {
        // Half a second counts as one: the frames behind the sound are no silence before.
        assert_eq!(frames_to_encode(8_000, CONTEXT_FRAMES), 114);
        assert_eq!(frames_to_encode(3 * 16_000, CONTEXT_FRAMES), 214);
        assert_eq!(frames_to_encode(12 * 16_000, CONTEXT_FRAMES), 664);
        assert_eq!(frames_to_encode(16_000, 1_024), 1_024);
        assert_eq!(frames_to_encode(20 * 16_000, 1_064), 1_064);
    }
}
