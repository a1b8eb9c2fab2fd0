//! Both recognisers on recorded speech.

use crate::common;
use common::{Clip, Errors};
use undertone::asr::{Asr, WhisperCpp, WhisperOnnx};

fn word_errors(asr: &mut dyn Asr, clips: &[Clip]) -> Errors {
    let mut errors = Errors::default();
    for clip in clips {
        let text = asr.transcribe(&clip.samples).unwrap();
        let before = errors.wrong;
        errors.add(&clip.text, &text);
        if errors.wrong > before {
            println!("{}: {} wrong: {text}", clip.name, errors.wrong - before);
        }
    }
    println!(
        "{}: {:.1} % of {} words",
        asr.name(),
        errors.percent(),
        errors.words
    );
    errors
}

/// Reference: 4.6 % with the int8 graphs, most of it number formats.
#[test]
fn both_engines_understand_recorded_speech_equally_well() {
    let weights = common::weights();
    let Some(clips) = common::speech() else {
        return;
    };
    let folder = weights.join("whisper-tiny.en");
    let onnx = word_errors(&mut WhisperOnnx::load(&folder).unwrap(), &clips).percent();
    let mut cpp = WhisperCpp::load(&folder.join("ggml-tiny.en.bin"), 1).unwrap();
    let cpp = word_errors(&mut cpp, &clips).percent();
    assert!(onnx <= 6.0, "{onnx:.1} %");
    assert!(
        (onnx - cpp).abs() <= 1.0,
        "ONNX Runtime {onnx:.1} %, whisper.cpp {cpp:.1} %"
    );
}

#[test]
fn silence_is_no_words() {
    let mut asr = WhisperOnnx::load(&common::weights().join("whisper-tiny.en")).unwrap();
    assert_eq!(asr.transcribe(&[]).unwrap(), "");
    assert_eq!(asr.transcribe(&[0.0; 16_000]).unwrap(), "");
}

#[test]
fn quiet_speech_is_understood_too() {
    let Some(clips) = common::speech() else {
        return;
    };
    let mut asr = WhisperOnnx::load(&common::weights().join("whisper-tiny.en")).unwrap();
    let quiet: Vec<Clip> = clips
        .into_iter()
        .map(|mut clip| {
            clip.samples.iter_mut().for_each(|sample| *sample *= 0.25);
            clip
        })
        .collect();
    let errors = word_errors(&mut asr, &quiet).percent();
    assert!(errors <= 8.0, "{errors:.1} %");
}
