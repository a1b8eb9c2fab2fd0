//! Helpers of the tests with real models: paths, voices, word error rates.

pub mod pico;
#[cfg(feature = "desktop")]
pub mod sound;
pub mod speech;
mod steady;

use std::path::{Path, PathBuf};
use tokio::sync::{Semaphore, SemaphorePermit};
use undertone::asr::{Asr, WhisperOnnx};
use undertone::audio::{Resampler, to_f32, to_i16};
use undertone::tts::{self, Piper, Speed, Tts};

/// Lets a test run that measures how early or late something comes: no other one that talks in real time is beside it.
pub async fn alone() -> SemaphorePermit<'static> {
    permits(TOGETHER).await
}

/// Lets a test talk in real time beside another one.
pub async fn together() -> SemaphorePermit<'static> {
    permits(1).await
}

/// Like [`alone`], outside of an async runtime.
pub fn alone_blocking() -> SemaphorePermit<'static> {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(alone())
}

async fn permits(count: u32) -> SemaphorePermit<'static> {
    static TALKING: Semaphore = Semaphore::const_new(TOGETHER as usize);
    TALKING
        .acquire_many(count)
        .await
        .expect("it is never closed")
}

/// The tests that may talk in real time at once. Of two, each has a core for its models.
const TOGETHER: u32 = 2;

/// Whether the text contains this number, in digits or spelt out.
pub fn has_number(text: &str, digits: &str, spelt: &str) -> bool {
    let text = text.to_lowercase().replace('-', " ");
    text.contains(digits) || text.contains(spelt)
}

/// The folder of the weights, with ONNX Runtime loaded.
pub fn weights() -> PathBuf {
    let weights = folder("UNDERTONE_MODELS", "models/weights");
    let library = weights.join("onnxruntime/libonnxruntime.so");
    undertone::onnx::init(&library).expect("run `make models`");
    weights
}

/// Half a minute of speech.
pub const STORY: &str = "Once upon a time there was a lighthouse on a small island. \
    Every evening the keeper climbed two hundred steps to light the lamp. \
    He counted the ships that passed and wrote their names into a big green book. \
    One night a storm came up, and the lamp went out three times. \
    The keeper stayed awake until the morning and lit it again and again. \
    When the sun rose there were eleven ships in the harbour, all of them safe. \
    The captains came up the stairs and thanked him with a silver bell.";

/// Synthesises the text at `rate` Hz.
pub fn spoken(voice: &mut dyn Tts, text: &str, rate: u32) -> Vec<f32> {
    let speech = tts::whole(voice, text).expect("speech");
    resampled(&speech, voice.sample_rate(), rate)
}

/// The samples at another rate, Hz.
pub fn resampled(samples: &[f32], from: u32, to: u32) -> Vec<f32> {
    let mut resampler = Resampler::new(from, to);
    let mut all = resampler.push(samples);
    all.extend(resampler.flush());
    all
}

/// Synthesises the text at `rate` Hz, without leading silence.
pub fn spoken_at_once(voice: &mut Piper, text: &str, rate: u32, speed: Speed) -> Vec<i16> {
    let speech = tts::whole_at(voice, text, speed).expect("speech");
    let samples = resampled(&speech, voice.sample_rate(), rate);
    let onset = samples.iter().position(|sample| sample.abs() > 0.02);
    to_i16(&samples[onset.expect("sound")..])
}

/// The voice of `weights` without randomness.
pub fn steady_voice(weights: &Path) -> Piper {
    Piper::load(steady::steady_voice(weights).path()).expect("the voice")
}

/// A voice without randomness, and a recogniser that checks it.
pub struct Booth {
    voice: Piper,
    recogniser: WhisperOnnx,
}

impl Booth {
    /// Loads both from `weights`.
    pub fn new(weights: &Path) -> Self {
        Self {
            voice: steady_voice(weights),
            recogniser: WhisperOnnx::load(&weights.join("whisper-tiny.en"))
                .expect("the recogniser"),
        }
    }

    /// Synthesises the text at `rate` Hz, without leading silence, at the first of some speeds at which every word is
    /// recognised.
    pub fn say(&mut self, text: &str, rate: u32) -> Vec<i16> {
        const SPEEDS: [f64; 5] = [1.0, 0.95, 1.05, 0.9, 1.1];
        let mut heard = Vec::new();
        for speed in SPEEDS {
            let speed = Speed::of(speed).expect("a speed");
            let take = spoken_at_once(&mut self.voice, text, rate, speed);
            let words = self.hear(&take, rate);
            let mut errors = Errors::default();
            errors.add(text, &words);
            if errors.wrong == 0 {
                return take;
            }
            heard.push(words);
        }
        panic!("{text:?} is never understood, but {heard:?}");
    }

    /// The transcript of mono speech at `rate` Hz.
    pub fn hear(&mut self, speech: &[i16], rate: u32) -> String {
        let mut samples = vec![0.0; 8_000];
        samples.extend(resampled(&to_f32(speech), rate, 16_000));
        samples.extend([0.0; 8_000]);
        self.recogniser.transcribe(&samples).expect("text")
    }
}

/// Mono audio at 16 kHz, with its transcript.
pub struct Clip {
    pub name: String,
    pub text: String,
    pub samples: Vec<f32>,
}

/// The recorded speech in `../shared/data` or `UNDERTONE_DATA`.
pub fn recorded_speech() -> Vec<Clip> {
    let folder = data("speech");
    let manifest = std::fs::read_to_string(folder.join("manifest.jsonl")).unwrap();
    let clip = |line: &str| {
        let entry: serde_json::Value = serde_json::from_str(line).unwrap();
        let name = entry["file"].as_str().unwrap().to_owned();
        let samples = read(&folder.join(&name));
        Clip {
            name,
            text: entry["text"].as_str().unwrap().to_owned(),
            samples,
        }
    };
    manifest.lines().map(clip).collect()
}

/// The recorded noises.
pub fn recorded_noise() -> Vec<Clip> {
    let entries = data("noise").read_dir().unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let clip = |path: &PathBuf| Clip {
        name: path.file_name().unwrap().to_string_lossy().into_owned(),
        text: String::new(),
        samples: read(path),
    };
    paths.iter().map(clip).collect()
}

/// A folder of data for measurements, which is not part of the repository.
pub fn data(kind: &str) -> PathBuf {
    let folder = folder("UNDERTONE_DATA", "../shared/data").join(kind);
    assert!(
        folder.is_dir(),
        "no data at {}: name their folder in UNDERTONE_DATA",
        folder.display()
    );
    folder
}

fn folder(variable: &str, default: &str) -> PathBuf {
    std::env::var_os(variable).map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join(default),
        PathBuf::from,
    )
}

/// A WAV file as mono at 16 kHz.
pub fn read(path: &Path) -> Vec<f32> {
    let mut reader = hound::WavReader::open(path).unwrap();
    let spec = reader.spec();
    let samples: Vec<i16> = reader.samples().map(Result::unwrap).collect();
    let mono: Vec<f32> = to_f32(&samples)
        .chunks(spec.channels.into())
        .map(|frame| frame.iter().sum::<f32>() / f32::from(spec.channels))
        .collect();
    resampled(&mono, spec.sample_rate, 16_000)
}

/// A count of word errors and of expected words.
#[derive(Debug, Default, Clone, Copy)]
pub struct Errors {
    pub wrong: usize,
    pub words: usize,
}

impl Errors {
    pub fn add(&mut self, wanted: &str, got: &str) {
        let (wanted, got) = (words(wanted), words(got));
        self.wrong += distance(&wanted, &got);
        self.words += wanted.len();
    }

    pub fn percent(self) -> f64 {
        100.0 * self.wrong as f64 / self.words.max(1) as f64
    }
}

/// Normalises a text for comparison: lower case, no punctuation, small numbers and common forms
/// spelt out.
pub fn words(text: &str) -> Vec<String> {
    let text = text
        .to_lowercase()
        .replace("okay", "ok")
        .replace("disc", "disk")
        .replace('%', " percent ");
    text.split(|c: char| !(c.is_alphanumeric() || c == '\''))
        .map(|word| word.trim_matches('\''))
        .filter(|word| !word.is_empty())
        .flat_map(spell)
        .collect()
}

fn spell(word: &str) -> Vec<String> {
    const SMALL: [&str; 21] = [
        "zero",
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
        "thirteen",
        "fourteen",
        "fifteen",
        "sixteen",
        "seventeen",
        "eighteen",
        "nineteen",
        "twenty",
    ];
    let ordinals = [
        ("1st", "first"),
        ("2nd", "second"),
        ("3rd", "third"),
        ("4th", "fourth"),
        ("5th", "fifth"),
    ];
    if let Some((_, spelt)) = ordinals.iter().find(|(short, _)| *short == word) {
        return vec![(*spelt).into()];
    }
    match word {
        "mr" => vec!["mister".into()],
        "counselled" => vec!["counseled".into()],
        "opentelemetry" => vec!["open".into(), "telemetry".into()],
        _ => match word.parse::<usize>() {
            Ok(n) if n < SMALL.len() => vec![SMALL[n].into()],
            Ok(_) => word
                .chars()
                .flat_map(|digit| spell(&digit.to_string()))
                .collect(),
            Err(_) => vec![word.into()],
        },
    }
}

/// The fewest replacements, insertions and deletions that make `a` of `b`.
pub fn distance(a: &[String], b: &[String]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substitute = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substitute.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
