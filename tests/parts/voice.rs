//! Tests the voice where two clauses meet.

use crate::common;
use common::Errors;
use undertone::asr::{Asr, WhisperOnnx};
use undertone::tts::{self, Piper, Tts};

/// Hz; sessions send frames of 20 ms, so a clause is padded to whole frames.
const RATE: u32 = 24_000;
const FRAME: usize = RATE as usize / 50;

/// Below this is silence: -44 dBFS. The softest consonants of the voice are louder.
const QUIET: f32 = 0.006;

/// The voice varies: now and then the recogniser mishears a take of it.
const TAKES: usize = 5;

/// Clauses that follow each other, with soft consonants on both sides of the seam.
const ANSWERS: [&[&str]; 6] = [
    &["Let me check the weather.", "It is sunny in London."],
    &["Take it off the roof.", "Five birds live there."],
    &["One moment, please.", "Half past three.", "That is enough."],
    &[
        "There were eleven left on the shelf,",
        "she said with a laugh.",
    ],
    &["Which one would you like?", "He has both."],
    &["I wish you luck!", "Your train leaves at six."],
];

/// A user hears a filler and the answer as one utterance, sentence by sentence.
#[test]
fn two_clauses_are_120_ms_apart_at_most_and_keep_their_words() {
    let weights = common::weights();
    let mut voice = Piper::load(&weights.join("piper-joe")).unwrap();
    let mut asr = WhisperOnnx::load(&weights.join("whisper-tiny.en")).unwrap();
    let mut seams = Vec::new();
    for clauses in ANSWERS {
        let understood = (0..TAKES).any(|_| {
            let spoken: Vec<Vec<f32>> = clauses.iter().map(|c| said(&mut voice, c)).collect();
            for pair in spoken.windows(2) {
                let silence = silent(pair[0].iter().rev()) + silent(pair[1].iter());
                seams.push(silence as f32 * 1_000.0 / RATE as f32);
            }
            let audio = common::resampled(&spoken.concat(), RATE, 16_000);
            let heard = asr.transcribe(&audio).unwrap();
            println!("{heard}");
            let mut errors = Errors::default();
            errors.add(&clauses.join(" "), &heard);
            errors.wrong == 0
        });
        assert!(understood, "{clauses:?} lost a word in {TAKES} takes");
    }
    println!("{seams:.0?} ms");
    assert!(seams.iter().all(|&ms| ms <= 120.0), "{seams:.0?}");
    let mean = seams.iter().sum::<f32>() / seams.len() as f32;
    assert!(mean >= 65.0, "a sentence's end must be heard: {mean:.0} ms");
}

/// A clause as a session sends it.
fn said(voice: &mut Piper, clause: &str) -> Vec<f32> {
    let speech = tts::whole(voice, clause).unwrap();
    let mut speech = common::resampled(&speech, voice.sample_rate(), RATE);
    speech.resize(speech.len().next_multiple_of(FRAME), 0.0);
    speech
}

/// The number of samples before the first sound.
fn silent<'a>(samples: impl Iterator<Item = &'a f32>) -> usize {
    samples.take_while(|sample| sample.abs() <= QUIET).count()
}
