//! Questions as speech: by voices that are not the server's own, or from files.

use super::BenchError;
use super::listener::speech;
use crate::audio::{decode, to_i16};
use crate::simulate::voices::{Installed, installed};
use crate::tts::Speed;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A voice and its words, line by line.
const QUESTIONS: &str = include_str!("questions.txt");

/// The longest file that is read.
const LONGEST: Duration = Duration::from_mins(1);

/// A question as speech.
#[derive(Debug, Clone)]
pub(super) struct Clip {
    /// The words, or the name of the file.
    pub(super) name: String,
    /// It asks for the weather, which the simulated tool knows.
    pub(super) wants_tool: bool,
    /// Mono at [`super::listener::RATE`], which [`decode`] returns, too.
    pub(super) samples: Vec<i16>,
    /// The beginning and the end of the speech in it, seconds after its first sample.
    pub(super) start: f64,
    pub(super) end: f64,
}

impl Clip {
    pub(super) fn new(name: &str, samples: Vec<i16>) -> Self {
        let (start, end) = speech(&samples);
        Self {
            name: name.to_owned(),
            wants_tool: name.to_lowercase().contains("weather"),
            samples,
            start,
            end,
        }
    }
}

/// The questions of the folder, or else those that come with the program.
pub(super) fn questions(folder: Option<&Path>) -> Result<Vec<Clip>, BenchError> {
    match folder {
        Some(folder) => recorded(folder),
        None => synthesised(),
    }
}

/// The WAV files of a folder in the order of their names.
fn recorded(folder: &Path) -> Result<Vec<Clip>, BenchError> {
    let unusable = |reason: String| BenchError::Data {
        path: folder.to_owned(),
        reason,
    };
    let entries = folder.read_dir().map_err(|e| unusable(e.to_string()))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "wav"));
    paths.sort();
    if paths.is_empty() {
        return Err(unusable("there is no .wav file in it".into()));
    }
    let clip = |path: &PathBuf| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        Ok(Clip::new(&name, read(path)?))
    };
    paths.iter().map(clip).collect()
}

fn synthesised() -> Result<Vec<Clip>, BenchError> {
    let lines = QUESTIONS.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.filter_map(|line| line.split_once(": "));
    pairs
        .map(|(voice, words)| Ok(Clip::new(words, say(voice, words)?)))
        .collect()
}

/// Words in a voice of flite or espeak-ng.
pub(super) fn say(voice: &str, words: &str) -> Result<Vec<i16>, BenchError> {
    let voice = match voice.starts_with("en-") {
        true => Installed::Espeak(voice.to_owned()),
        false => Installed::Flite(voice.to_owned()),
    };
    let said = installed(&voice, words, Speed::NORMAL).map_err(|reason| {
        let hint = "install flite and espeak-ng; the bench spoken also takes WAV files with --data";
        BenchError::sockets("the voices of the questions", format!("{reason}; {hint}"))
    })?;
    Ok(to_i16(&said))
}

fn read(path: &Path) -> Result<Vec<i16>, BenchError> {
    let unusable = |reason: String| BenchError::Data {
        path: path.to_owned(),
        reason,
    };
    let file = File::open(path).map_err(|error| unusable(error.to_string()))?;
    let samples = decode(Box::new(file), LONGEST, || true);
    let samples = samples.map_err(|error| unusable(error.to_string()))?;
    Ok(to_i16(&samples))
}
