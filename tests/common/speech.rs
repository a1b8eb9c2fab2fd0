//! Speech, noise and a telephone line that the tests generate themselves, with third-party voices.
//! The samples are the same each time.

use super::{Clip, read, resampled};
use std::process::Command;
use std::sync::OnceLock;
use undertone::audio::g711::{self, Law};
use undertone::audio::{level_dbfs, to_f32, to_i16};

/// Hz.
const RATE: usize = 16_000;

/// The sentences of `speech.txt` as speech, 16 kHz, synthesised once.
pub fn clips() -> &'static [Clip] {
    static CLIPS: OnceLock<Vec<Clip>> = OnceLock::new();
    CLIPS.get_or_init(|| spoken(include_str!("speech.txt")))
}

/// The complete requests of `questions.txt` as speech, 16 kHz, synthesised once.
pub fn questions() -> &'static [Clip] {
    static QUESTIONS: OnceLock<Vec<Clip>> = OnceLock::new();
    QUESTIONS.get_or_init(|| spoken(include_str!("questions.txt")))
}

/// The lines as speech: a voice and its words each.
pub fn spoken(lines: &str) -> Vec<Clip> {
    let folder = tempfile::tempdir().expect("a folder");
    let lines = lines.lines().filter(|line| !line.starts_with('#'));
    let spoken = lines.enumerate().map(|(index, line)| {
        let (voice, text) = line.split_once(": ").expect("a voice and its words");
        let name = format!("{voice}-{index}.wav");
        let path = folder.path().join(&name);
        say(voice, text, path.to_str().expect("a path in UTF-8"));
        Clip {
            name,
            text: text.into(),
            samples: read(&path),
        }
    });
    spoken.collect()
}

/// Short answers, some of which the recogniser takes for noise or does not understand, at two levels.
pub fn short_answers() -> Vec<Clip> {
    let answers = ["en-gb: Yes.", "en-us: Yes.", "awb: Yes.", "en-us: No."];
    let clips = spoken(&answers.join("\n"));
    let quiet = |clip: &Clip| Clip {
        name: format!("{}, quiet", clip.name),
        text: clip.text.clone(),
        samples: clip.samples.iter().map(|sample| sample / 16.0).collect(),
    };
    let all: Vec<Clip> = clips.iter().map(quiet).collect();
    all.into_iter().chain(clips).collect()
}

/// A question in languages that the recogniser does not support.
pub fn foreign() -> Vec<Clip> {
    let folder = tempfile::tempdir().expect("a folder");
    let asked = [
        ("fi", "Hyvää päivää, millainen sää huomenna on Helsingissä?"),
        (
            "fr",
            "Bonjour, je voudrais savoir quel temps il fera demain à Lyon.",
        ),
    ];
    let spoken = asked.map(|(voice, text)| {
        let path = folder.path().join(voice);
        say(voice, text, path.to_str().expect("a path in UTF-8"));
        Clip {
            name: voice.into(),
            text: text.into(),
            samples: read(&path),
        }
    });
    spoken.into()
}

/// Writes the `text` as speech to the WAV `file`.
fn say(voice: &str, text: &str, file: &str) {
    let (program, arguments) = match voice {
        "en-gb" | "en-us" | "fi" | "fr" => (
            "espeak-ng",
            ["-v", voice, "-s", "150", "-w", file, text].to_vec(),
        ),
        _ => ("flite", ["-voice", voice, "-o", file, "-t", text].to_vec()),
    };
    let said = Command::new(program).args(arguments).output();
    let said = said.unwrap_or_else(|error| panic!("{program}: {error}: run `make test-tools`"));
    assert!(said.status.success(), "{voice}: {said:?}");
}

/// Reproducible noise, -1..1.
pub fn hiss(seed: u32) -> impl FnMut() -> f32 {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    }
}

/// Six seconds of each noise that must not count as speech, at -26 dBFS.
pub fn noises() -> Vec<Clip> {
    [
        ("white noise", white as fn() -> Vec<f32>),
        ("mains hum", hum),
        ("a keyboard", keyboard),
        ("chimes", chimes),
        ("coughs", coughs),
        ("a crowd behind a wall", || low_pass(&babble(), 800.0)),
    ]
    .map(|(name, make)| Clip {
        name: name.into(),
        text: String::new(),
        samples: at_level(&make(), -26.0),
    })
    .into()
}

const NOISE: usize = 6 * RATE;

pub fn white() -> Vec<f32> {
    let mut hiss = hiss(5);
    (0..NOISE).map(|_| hiss()).collect()
}

/// 50 Hz and its harmonics.
pub fn hum() -> Vec<f32> {
    let tones = |n: usize| (1..8).map(move |k| sine(50.0 * k as f32, n) / k as f32);
    (0..NOISE).map(|n| tones(n).sum()).collect()
}

/// Short clicks at uneven times.
pub fn keyboard() -> Vec<f32> {
    let (mut hiss, mut samples) = (hiss(11), vec![0.0; NOISE]);
    let mut at = RATE / 10;
    while at + RATE / 50 < samples.len() {
        for (age, sample) in samples[at..at + RATE / 50].iter_mut().enumerate() {
            *sample = hiss() * (-(age as f32) / 60.0).exp();
        }
        at += RATE / 6 + (hiss().abs() * RATE as f32 / 4.0) as usize;
    }
    samples
}

/// Three bursts that fade, in the band of a voice.
pub fn coughs() -> Vec<f32> {
    let (mut hiss, mut samples) = (hiss(7), vec![0.0; NOISE]);
    for at in [RATE / 2, RATE, 4 * RATE] {
        for (age, sample) in samples[at..at + RATE / 3].iter_mut().enumerate() {
            *sample = hiss() * (-(age as f32) / 1_300.0).exp();
        }
    }
    high_pass(&low_pass(&samples, 1_500.0), 300.0)
}

/// Chords that fade.
pub fn chimes() -> Vec<f32> {
    const CHORDS: [[f32; 3]; 4] = [
        [523.3, 659.3, 784.0],
        [440.0, 523.3, 659.3],
        [349.2, 440.0, 523.3],
        [392.0, 493.9, 587.3],
    ];
    let struck = RATE / 2;
    let sample = |n: usize| {
        let notes = CHORDS[n / struck % CHORDS.len()];
        let fades = (-((n % struck) as f32) / 3_000.0).exp();
        notes.map(|note| sine(note, n)).iter().sum::<f32>() * fades
    };
    (0..NOISE).map(sample).collect()
}

/// All [`clips`] at once.
pub fn babble() -> Vec<f32> {
    let mut samples = vec![0.0; NOISE];
    for (index, clip) in clips().iter().enumerate() {
        let voice = at_level(&clip.samples, -26.0);
        let late = voice.iter().cycle().skip(index * RATE / 7);
        for (sample, voice) in samples.iter_mut().zip(late) {
            *sample += voice;
        }
    }
    samples
}

fn sine(hertz: f32, n: usize) -> f32 {
    (std::f32::consts::TAU * hertz * n as f32 / RATE as f32).sin()
}

/// The samples at another level, dBFS.
pub fn at_level(samples: &[f32], level: f32) -> Vec<f32> {
    let gain = 10f32.powf((level - level_dbfs(samples)) / 20.0);
    samples.iter().map(|sample| sample * gain).collect()
}

/// `speech` mixed with `noise`, which is `snr_db` quieter.
pub fn noisy(speech: &[f32], noise: &[f32], snr_db: f32) -> Vec<f32> {
    let noise = at_level(noise, level_dbfs(speech) - snr_db);
    let pairs = speech.iter().zip(noise.iter().cycle());
    pairs.map(|(speech, noise)| speech + noise).collect()
}

/// The samples as heard over a telephone line: 300 to 3,400 Hz, 8 kHz, µ-law.
pub fn over_the_telephone(samples: &[f32]) -> Vec<f32> {
    let band = high_pass(&low_pass(samples, 3_400.0), 300.0);
    let line = to_i16(&resampled(&band, RATE as u32, g711::RATE));
    let heard = Law::Mu.decode(&Law::Mu.encode(&line));
    resampled(&to_f32(&heard), g711::RATE, RATE as u32)
}

fn low_pass(samples: &[f32], hertz: f32) -> Vec<f32> {
    let cos = (std::f32::consts::TAU * hertz / RATE as f32).cos();
    filtered(samples, hertz, [(1.0 - cos) / 2.0, 1.0 - cos])
}

fn high_pass(samples: &[f32], hertz: f32) -> Vec<f32> {
    let cos = (std::f32::consts::TAU * hertz / RATE as f32).cos();
    filtered(samples, hertz, [(1.0 + cos) / 2.0, -1.0 - cos])
}

/// A second-order Butterworth filter: 12 dB per octave beyond `hertz`.
fn filtered(samples: &[f32], hertz: f32, [outer, middle]: [f32; 2]) -> Vec<f32> {
    let (sin, cos) = (std::f32::consts::TAU * hertz / RATE as f32).sin_cos();
    let alpha = sin * std::f32::consts::FRAC_1_SQRT_2;
    let (mut before, mut out) = ([0.0; 2], [0.0; 2]);
    let step = |&sample: &f32| {
        let sum = outer * (sample + before[1]) + middle * before[0] + 2.0 * cos * out[0]
            - (1.0 - alpha) * out[1];
        before = [sample, before[0]];
        out = [sum / (1.0 + alpha), out[0]];
        out[0]
    };
    samples.iter().map(step).collect()
}
