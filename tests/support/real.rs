//! Real ears and a real voice around a scripted mind.

use super::live;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use undertone::asr::WhisperOnnx;
use undertone::audio::{Resampler, to_i16};
use undertone::llm::scripted::Scripted;
use undertone::session::Builders;
use undertone::tts::{Piper, Tts};
use undertone::turn_model::{SmartTurn, TurnModel};
use undertone::vad::{Gated, SileroModel, Vad};

/// Engines with the models in `weights`.
pub(crate) fn engines(weights: &Path, llm: &Scripted) -> Builders {
    let file = |name: &str| weights.join(name);
    let (silero, whisper) = (file("silero/silero_vad.onnx"), file("whisper-tiny.en"));
    let (turn, piper) = (file("smart-turn/smart-turn-v3.2.onnx"), file("piper-joe"));
    Builders {
        vad: Box::new(move || {
            let model = SileroModel::load(&silero).expect("the model");
            Box::new(move || Ok(Box::new(Gated::new(model.detector())) as Box<dyn Vad>))
        }),
        asr: Box::new(move || Ok(Box::new(WhisperOnnx::load(&whisper)?))),
        turn_model: Some(Box::new(move || {
            Ok(Box::new(SmartTurn::load(&turn)?) as Box<dyn TurnModel>)
        })),
        tts: Box::new(move || Ok(Box::new(Piper::load(&piper)?) as Box<dyn Tts>)),
        ..live::without_models(Arc::new(llm.clone()))
    }
}

/// The text as speech at `rate` Hz, without silence in front.
pub(crate) fn spoken(voice: &mut Piper, text: &str, rate: u32) -> Vec<i16> {
    let mut speech = Vec::new();
    voice
        .speak(text, &mut |chunk| {
            speech.extend(chunk);
            ControlFlow::Continue(())
        })
        .expect("speech");
    let mut resampler = Resampler::new(voice.sample_rate(), rate);
    let mut samples = resampler.push(&speech);
    samples.extend(resampler.flush());
    let onset = samples.iter().position(|sample| sample.abs() > 0.02);
    to_i16(&samples[onset.expect("sound")..])
}
