//! Helpers of the tests with real models: paths, voices, word error rates.

pub mod pico;
#[cfg(feature = "desktop")]
pub mod sound;
pub mod speech;

use std::path::{Path, PathBuf};
use tokio::sync::{Mutex, MutexGuard};
use undertone::asr::{Asr, WhisperOnnx};
use undertone::audio::{Resampler, to_f32, to_i16};
use undertone::tts::{self, Piper, Tts};

/// Lets only one test at a time use real models in real time, since two would slow each other down.
pub async fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().await
}

/// Like [`alone`], outside of an async runtime.
pub fn alone_blocking() -> MutexGuard<'static, ()> {
    ALONE.blocking_lock()
}

static ALONE: Mutex<()> = Mutex::const_new(());

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
pub fn spoken_at_once(voice: &mut Piper, text: &str, rate: u32) -> Vec<i16> {
    let samples = spoken(voice, text, rate);
    let onset = samples.iter().position(|sample| sample.abs() > 0.02);
    to_i16(&samples[onset.expect("sound")..])
}

/// A voice, and a recogniser that checks it: the voice varies from one synthesis to the next, and
/// now and then a sentence is unintelligible.
pub struct Booth {
    voice: Piper,
    recogniser: WhisperOnnx,
}

impl Booth {
    /// Loads both from `weights`.
    pub fn new(weights: &Path) -> Self {
        Self {
            voice: Piper::load(&weights.join("piper-joe")).expect("the voice"),
            recogniser: WhisperOnnx::load(&weights.join("whisper-tiny.en"))
                .expect("the recogniser"),
        }
    }

    /// Synthesises the text at `rate` Hz, without leading silence, until every word is recognised.
    pub fn say(&mut self, text: &str, rate: u32) -> Vec<i16> {
        const TAKES: usize = 30;
        let mut heard = Vec::new();
        for _ in 0..TAKES {
            let take = spoken_at_once(&mut self.voice, text, rate);
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
