//! Piper voices: VITS models, cut in two so that audio comes out while it is being made. One that was not cut works
//! too, but is heard later.
//!
//! The encoder turns phonemes into latent frames for the whole clause; the decoder turns frames
//! into audio, and because it looks no further than [`MARGIN`] frames to each side, it can do so
//! piece by piece with the same result.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ort::session::Session;
use ort::value::TensorRef;
use serde::Deserialize;

use super::espeak::Espeak;
use super::trim::Trimmer;
use super::{OnDemand, Speech, Speed, Tts, TtsError};
use crate::language::{Pack, Phrase, pack};

/// A voice's files in its folder: settings, and the two halves of the model.
const FILES: [&str; 3] = ["voice.json", "encoder.onnx", "decoder.onnx"];
/// The ending of a voice in one file, and of the settings beside it: those of Piper's own releases.
const WHOLE: [&str; 2] = ["onnx", "onnx.json"];
/// Memory that a voice takes for two bytes of its models: four more voices of 63 MB each added 366 MB to a server.
const MEMORY: u64 = 3;
/// The tensor where the model was cut: f32 [1, 192, frames].
const LATENT: &str = "/Mul_7_output_0";
/// The mark below "ç".
const CEDILLA: &str = "\u{327}";
/// Values of one latent frame.
const CHANNELS: usize = 192;
/// Samples that the decoder makes of one frame.
const HOP: usize = 256;
/// Frames the decoder needs to see on each side of those that count: spliced with 12 the audio
/// differs from that of one piece by -122 dB.
const MARGIN: usize = 12;
/// Frames of the first chunks, 139 and 279 ms at 22,050 Hz: the sooner there is sound the better,
/// as long as each lasts until the next one is made (38 ms, then 57).
const FIRST_CHUNKS: [usize; 2] = [12, 24];
/// Frames of every other chunk, 1.02 s, except that a rest of at most half of it belongs to the last one: with the margins
/// that are made again for each, half as long ones cost a quarter more. Made in 60 ms, with 0.4 s of sound before them.
const CHUNK: usize = 88;
/// Words spoken at once; the encoder takes 0.5 ms per frame for all of them before any is heard.
pub(super) const MOST_WORDS: usize = 12;
/// Voices come at -23 dBFS while they speak; this brings them to -20, with peaks still below 1.
const GAIN: f32 = 1.4;
/// Where the limiter begins.
const KNEE: f32 = 0.8;

/// A Piper voice on ONNX Runtime and espeak-ng. First audio of a short clause takes 60-100 ms.
pub struct Piper {
    files: Files,
    name: String,
    voice: Voice,
    /// Shared with the clauses that are being spoken, all on one thread.
    model: Arc<Mutex<Model>>,
    espeak: Espeak,
    /// Those of its language.
    rules: &'static Pack,
}

/// Where a voice is.
#[derive(Debug, Clone)]
struct Files {
    settings: PathBuf,
    /// The two halves, or the whole alone.
    models: Vec<PathBuf>,
}

impl Files {
    /// Those of a voice in a folder, or in one file that ends in `.onnx`.
    fn of(path: &Path) -> Self {
        if path.extension().is_some_and(|ending| ending == WHOLE[0]) {
            return Self {
                settings: path.with_extension(WHOLE[1]),
                models: vec![path.to_owned()],
            };
        }
        let [settings, encoder, decoder] = FILES.map(|name| path.join(name));
        Self {
            settings,
            models: vec![encoder, decoder],
        }
    }

    fn all(&self) -> Vec<PathBuf> {
        [&self.settings]
            .into_iter()
            .chain(&self.models)
            .cloned()
            .collect()
    }

    /// The bytes of the models.
    fn bytes(&self) -> Result<u64, TtsError> {
        let length = |path: &PathBuf| {
            let about = std::fs::metadata(path);
            about
                .map(|about| about.len())
                .map_err(|error| TtsError::Load {
                    path: path.display().to_string(),
                    reason: error.to_string(),
                })
        };
        self.models.iter().map(length).sum()
    }
}

/// The model of a voice.
enum Model {
    /// Cut in two.
    Halves { encoder: Session, decoder: Session },
    /// As it was released.
    Whole(Session),
}

impl Model {
    fn load(files: &Files) -> Result<Self, TtsError> {
        Ok(match files.models.as_slice() {
            [encoder, decoder] => Self::Halves {
                encoder: session(encoder)?,
                decoder: session(decoder)?,
            },
            models => Self::Whole(session(models.first().unwrap_or(&files.settings))?),
        })
    }
}

/// The contents of `voice.json`.
#[derive(Debug, Deserialize)]
struct Voice {
    audio: Audio,
    espeak: EspeakVoice,
    inference: Inference,
    phoneme_id_map: HashMap<String, Vec<i64>>,
    /// The source of the phonemes; espeak-ng if `None`.
    phoneme_type: Option<String>,
    #[serde(default)]
    dataset: String,
}

#[derive(Debug, Deserialize)]
struct Audio {
    sample_rate: u32,
}

#[derive(Debug, Deserialize)]
struct EspeakVoice {
    voice: String,
}

/// Noise of the timbre, length of the phonemes, noise of their lengths.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(default)]
struct Inference {
    noise_scale: f32,
    length_scale: f32,
    noise_w: f32,
}

impl Inference {
    /// As the model takes them.
    fn scales(self) -> [f32; 3] {
        [self.noise_scale, self.length_scale, self.noise_w]
    }

    /// These settings at a speed, which divides the length of each phoneme.
    fn at(self, speed: Speed) -> Self {
        Self {
            length_scale: self.length_scale / speed.factor() as f32,
            ..self
        }
    }
}

impl Default for Inference {
    /// Piper's own defaults.
    fn default() -> Self {
        Self {
            noise_scale: 0.667,
            length_scale: 1.0,
            noise_w: 0.8,
        }
    }
}

impl Piper {
    /// Loads `encoder.onnx`, `decoder.onnx` and `voice.json` from the folder `path`, or the file `path` that ends in
    /// `.onnx` with its settings in `.onnx.json`; starts espeak-ng and speaks a word to nobody, because the first run
    /// of a session is slow. Wants [`crate::onnx::init`] to have run.
    ///
    /// # Errors
    /// [`TtsError::Load`] for the files, [`TtsError::Phonemes`] for espeak-ng.
    pub fn load(path: &Path) -> Result<Self, TtsError> {
        let files = Files::of(path);
        let voice = Voice::read(&files.settings)?;
        let mut piper = Self {
            name: voice.name(),
            model: Arc::new(Mutex::new(Model::load(&files)?)),
            espeak: Espeak::start(&voice.espeak.voice)?,
            rules: pack(Some(&voice.espeak.voice)),
            files,
            voice,
        };
        super::whole(&mut piper, "Hello.")?;
        Ok(piper)
    }

    /// A voice that is loaded when it is needed. Checks that the files are there, and reads the settings.
    ///
    /// # Errors
    /// [`TtsError::Load`] for the files.
    pub fn on_demand(path: &Path) -> Result<OnDemand, TtsError> {
        let files = Files::of(path);
        let voice = Voice::read(&files.settings)?;
        let path = path.to_owned();
        Ok(OnDemand {
            name: voice.name(),
            sample_rate: voice.audio.sample_rate,
            language: Some(voice.espeak.voice.clone()),
            bytes: files.bytes()? * MEMORY / 2,
            files: files.all(),
            load: Box::new(move || Ok(Box::new(Self::load(&path)?))),
        })
    }
}

impl Tts for Piper {
    fn name(&self) -> &str {
        &self.name
    }

    fn sample_rate(&self) -> u32 {
        self.voice.audio.sample_rate
    }

    fn language(&self) -> Option<&str> {
        Some(&self.voice.espeak.voice)
    }

    /// The sha256 of its files.
    fn fingerprint(&self) -> Option<String> {
        super::kept::sha256_of(&self.files.all()).ok()
    }

    fn speak(&mut self, text: &str) -> Result<Speech, TtsError> {
        self.speak_at(text, Speed::NORMAL)
    }

    /// Speaks nothing, and succeeds, where there is nothing to pronounce.
    fn speak_at(&mut self, text: &str, speed: Speed) -> Result<Speech, TtsError> {
        let phrases = self.rules.spoken(text, MOST_WORDS);
        let mut breaths = VecDeque::new();
        for breath in self::breaths(&phrases) {
            let phonemes = self.espeak.of_phrases(breath)?;
            if !phonemes.is_empty() {
                let mark = breath.last().and_then(|phrase| phrase.mark);
                breaths.push_back(Breath {
                    ids: self.voice.ids(&phonemes),
                    pause_ms: (pause_ms(mark) as f64 / speed.factor()) as usize,
                });
            }
        }
        Ok(Box::new(Speaking {
            model: self.model.clone(),
            inference: self.voice.inference.at(speed),
            sample_rate: self.voice.audio.sample_rate,
            breaths,
            decoding: None,
        }))
    }
}

/// Phrases that the encoder takes at once.
struct Breath {
    /// Of its phonemes.
    ids: Vec<i64>,
    /// The silence after it.
    pause_ms: usize,
}

/// A clause that is being spoken.
struct Speaking {
    model: Arc<Mutex<Model>>,
    inference: Inference,
    sample_rate: u32,
    breaths: VecDeque<Breath>,
    /// The breath that is made into audio.
    decoding: Option<Decoding>,
}

struct Decoding {
    latent: Latent,
    /// Frames that are still to be made, chunk by chunk.
    chunks: VecDeque<Range<usize>>,
    trimmer: Trimmer,
    pause_ms: usize,
}

impl Speaking {
    /// The next audio, perhaps none yet; `None` at the end.
    fn step(&mut self) -> Result<Option<Vec<f32>>, TtsError> {
        // A run that panicked has left no state behind in the model.
        let mut model = self.model.lock().unwrap_or_else(PoisonError::into_inner);
        let (encoder, decoder) = match &mut *model {
            Model::Halves { encoder, decoder } => (encoder, decoder),
            Model::Whole(model) => {
                let Some(Breath { ids, pause_ms }) = self.breaths.pop_front() else {
                    return Ok(None);
                };
                let audio = whole(model, &ids, &self.inference)?;
                let mut trimmer = Trimmer::new(self.sample_rate);
                let mut audio = trimmer.push(&audio);
                audio.extend(trimmer.finish(pause_ms));
                return Ok(Some(audio));
            }
        };
        let mut decoding = match self.decoding.take() {
            Some(decoding) => decoding,
            None => {
                let Some(Breath { ids, pause_ms }) = self.breaths.pop_front() else {
                    return Ok(None);
                };
                let latent = Latent::encode(encoder, &ids, &self.inference)?;
                Decoding {
                    chunks: chunks(latent.frames),
                    latent,
                    trimmer: Trimmer::new(self.sample_rate),
                    pause_ms,
                }
            }
        };
        let Some(frames) = decoding.chunks.pop_front() else {
            return Ok(Some(decoding.trimmer.finish(decoding.pause_ms)));
        };
        let audio = decoding.latent.decode(decoder, frames)?;
        let ready = decoding.trimmer.push(&audio);
        self.decoding = Some(decoding);
        Ok(Some(ready))
    }
}

impl Iterator for Speaking {
    type Item = Result<Vec<f32>, TtsError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.step() {
                Ok(Some(audio)) if audio.is_empty() => {}
                Ok(audio) => return audio.map(Ok),
                Err(error) => {
                    self.breaths.clear();
                    return Some(Err(error));
                }
            }
        }
    }
}

impl Voice {
    /// For logs.
    fn name(&self) -> String {
        format!("piper {}", self.dataset).trim_end().to_owned()
    }

    fn read(path: &Path) -> Result<Self, TtsError> {
        let failed = |reason: String| TtsError::Load {
            path: path.display().to_string(),
            reason,
        };
        let json = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        let voice: Self = serde_json::from_str(&json).map_err(|error| failed(error.to_string()))?;
        let kind = voice.phoneme_type.as_deref();
        if let Some(other) = kind.filter(|kind| *kind != "espeak") {
            return Err(failed(format!(
                "phoneme_type is {other:?}; only \"espeak\" is supported"
            )));
        }
        for needed in ["^", "_", "$"] {
            if voice.id(needed).is_none() {
                return Err(failed(format!("phoneme_id_map lacks {needed:?}")));
            }
        }
        Ok(voice)
    }

    fn id(&self, phoneme: &str) -> Option<i64> {
        self.phoneme_id_map.get(phoneme)?.first().copied()
    }

    /// `^ _ (phoneme _)* $`; phonemes that the voice does not know are left out. Voices are trained with "ç" in two parts,
    /// although they have a number for the whole; espeak-ng writes no other letter that has parts.
    fn ids(&self, phonemes: &str) -> Vec<i64> {
        let pad = self.id("_");
        let phonemes = match self.id(CEDILLA) {
            Some(_) => phonemes.replace('ç', &format!("c{CEDILLA}")),
            None => phonemes.to_owned(),
        };
        let known = phonemes
            .chars()
            .filter_map(|c| self.id(c.encode_utf8(&mut [0; 4])));
        let padded = known.flat_map(|id| [Some(id), pad]);
        [self.id("^"), pad]
            .into_iter()
            .chain(padded)
            .chain([self.id("$")])
            .flatten()
            .collect()
    }
}

/// The latent between encoder and decoder: f32 [`CHANNELS`, frames], row-major.
struct Latent {
    values: Vec<f32>,
    frames: usize,
}

impl Latent {
    fn encode(encoder: &mut Session, ids: &[i64], inference: &Inference) -> Result<Self, TtsError> {
        let lengths = [ids.len() as i64];
        let scales = inference.scales();
        let outputs = encoder
            .run(ort::inputs! {
                "input" => TensorRef::from_array_view(([1, ids.len()], ids)).map_err(failed)?,
                "input_lengths" => TensorRef::from_array_view(([1], &lengths[..])).map_err(failed)?,
                "scales" => TensorRef::from_array_view(([3], &scales[..])).map_err(failed)?,
            })
            .map_err(failed)?;
        let (_, values) = outputs[LATENT]
            .try_extract_tensor::<f32>()
            .map_err(failed)?;
        Ok(Self {
            values: values.to_vec(),
            frames: values.len() / CHANNELS,
        })
    }

    /// The audio of these frames, made from them and the margin around them.
    fn decode(&self, decoder: &mut Session, frames: Range<usize>) -> Result<Vec<f32>, TtsError> {
        let seen = frames.start.saturating_sub(MARGIN)..(frames.end + MARGIN).min(self.frames);
        let part: Vec<f32> = self
            .values
            .chunks_exact(self.frames)
            .flat_map(|row| &row[seen.clone()])
            .copied()
            .collect();
        let shape = [1, CHANNELS, seen.len()];
        let input = TensorRef::from_array_view((shape, &part[..])).map_err(failed)?;
        let outputs = decoder
            .run(ort::inputs! { LATENT => input })
            .map_err(failed)?;
        let (_, audio) = outputs[0].try_extract_tensor::<f32>().map_err(failed)?;
        let start = (frames.start - seen.start) * HOP;
        let wanted = audio
            .get(start..start + frames.len() * HOP)
            .ok_or_else(|| {
                TtsError::Run(format!("{} samples for {} frames", audio.len(), seen.len()))
            })?;
        Ok(wanted.iter().copied().map(levelled).collect())
    }
}

/// The audio of a breath from a model that was not cut. The first speaker speaks if it has several.
fn whole(model: &mut Session, ids: &[i64], inference: &Inference) -> Result<Vec<f32>, TtsError> {
    let (lengths, scales, speaker) = ([ids.len() as i64], inference.scales(), [0_i64]);
    let mut inputs = ort::inputs! {
        "input" => TensorRef::from_array_view(([1, ids.len()], ids)).map_err(failed)?,
        "input_lengths" => TensorRef::from_array_view(([1], &lengths[..])).map_err(failed)?,
        "scales" => TensorRef::from_array_view(([3], &scales[..])).map_err(failed)?,
    };
    if model.inputs().iter().any(|input| input.name() == "sid") {
        let speaker = TensorRef::from_array_view(([1], &speaker[..])).map_err(failed)?;
        inputs.push(("sid".into(), speaker.into()));
    }
    let outputs = model.run(inputs).map_err(failed)?;
    let (_, audio) = outputs[0].try_extract_tensor::<f32>().map_err(failed)?;
    Ok(audio.iter().copied().map(levelled).collect())
}

/// The frames of each chunk, in order.
fn chunks(frames: usize) -> VecDeque<Range<usize>> {
    let mut chunks = VecDeque::new();
    let mut lengths = FIRST_CHUNKS.into_iter();
    let mut start = 0;
    while start < frames {
        let rest = frames - start;
        let length = match lengths.next() {
            Some(first) => first.min(rest),
            None if rest <= CHUNK + CHUNK / 2 => rest,
            None => CHUNK,
        };
        chunks.push_back(start..start + length);
        start += length;
    }
    chunks
}

/// Phrases grouped so that each group has [`MOST_WORDS`] at most, which each phrase has.
pub(super) fn breaths(phrases: &[Phrase]) -> Vec<&[Phrase]> {
    let mut breaths = Vec::new();
    let (mut start, mut words) = (0, 0);
    for (index, phrase) in phrases.iter().enumerate() {
        let more = phrase.words.split_whitespace().count();
        if index > start && words + more > MOST_WORDS {
            breaths.push(&phrases[start..index]);
            (start, words) = (index, 0);
        }
        words += more;
    }
    breaths.push(&phrases[start..]);
    breaths
}

/// The most silence after a clause that ends in `mark`: short enough not to drag, long enough to hear
/// where a sentence ends. The silence before the next clause adds some 10 ms.
pub(super) fn pause_ms(mark: Option<char>) -> usize {
    match mark {
        Some('.' | '!' | '?') => 90,
        Some(':' | ';') => 80,
        Some(_) => 70,
        None => 20,
    }
}

/// Louder, and softly kept below 1.
pub(super) fn levelled(sample: f32) -> f32 {
    let loud = sample * GAIN;
    let over = loud.abs() - KNEE;
    if over <= 0.0 {
        return loud;
    }
    let room = 1.0 - KNEE;
    (KNEE + room * (over / room).tanh()).copysign(loud)
}

pub(super) fn session(path: &Path) -> Result<Session, TtsError> {
    crate::onnx::session_on_two_cores(path).map_err(|error| TtsError::Load {
        path: path.display().to_string(),
        reason: error.to_string(),
    })
}

pub(super) fn failed(error: ort::Error) -> TtsError {
    TtsError::Run(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::testing;

    fn piper() -> Piper {
        Piper::load(&testing::weights_and_runtime().join("piper-joe")).unwrap()
    }

    fn spoken(piper: &mut Piper, text: &str) -> Vec<f32> {
        crate::tts::whole(piper, text).unwrap()
    }

    #[test]
    fn a_clause_sounds_and_starts_at_once() {
        let mut piper = piper();
        let audio = spoken(&mut piper, "It's five past three in Tokyo.");
        let seconds = audio.len() as f32 / piper.sample_rate() as f32;
        assert!((1.0..3.5).contains(&seconds), "{seconds} s");
        assert!(audio.iter().all(|sample| sample.abs() < 1.0));
        let onset = audio.iter().position(|sample| sample.abs() > 0.02).unwrap();
        assert!(onset < 22 * 60, "{onset} samples of silence first");
    }

    #[test]
    fn what_cannot_be_pronounced_is_silent_and_no_error() {
        let mut piper = piper();
        for text in ["", "  ", "...", "🎉", "日本"] {
            assert!(spoken(&mut piper, text).is_empty(), "{text:?}");
        }
    }

    #[test]
    fn clauses_may_be_spoken_in_turns() {
        let mut piper = piper();
        let mut clauses = [
            "One sentence goes on for quite a while.",
            "And then another one.",
        ]
        .map(|text| piper.speak(text).unwrap());
        let mut seconds = [0.0; 2];
        let rate = piper.sample_rate() as f32;
        let mut silent = 0;
        while silent < 2 {
            silent = 0;
            for (clause, seconds) in clauses.iter_mut().zip(&mut seconds) {
                match clause.next() {
                    Some(chunk) => *seconds += chunk.unwrap().len() as f32 / rate,
                    None => silent += 1,
                }
            }
        }
        assert!((1.5..4.0).contains(&seconds[0]), "{seconds:?}");
        assert!((0.8..2.5).contains(&seconds[1]), "{seconds:?}");
    }

    #[test]
    fn the_speed_is_what_was_asked_for() {
        let mut piper = piper();
        // Lengths vary from run to run by a few percent, so several are added up. Sounds last whole frames, which
        // makes slow speech a little shorter than asked.
        let text = "The train to the airport leaves from platform nine at half past four, and it stops twice.";
        let seconds = |piper: &mut Piper, factor: f64| {
            let speed = Speed::of(factor).unwrap();
            let rate = f64::from(piper.sample_rate());
            (0..4)
                .map(|_| crate::tts::whole_at(piper, text, speed).unwrap().len() as f64 / rate)
                .sum::<f64>()
        };
        let usual = seconds(&mut piper, 1.0);
        for factor in [0.5, 0.8, 1.5] {
            let heard = usual / seconds(&mut piper, factor);
            assert!((heard / factor - 1.0).abs() < 0.15, "{heard}, not {factor}");
        }
    }

    /// A voice's settings, with the numbers that all of Piper's voices give these phonemes.
    fn settings(language: &str) -> serde_json::Value {
        serde_json::json!({
            "audio": {"sample_rate": 22_050},
            "espeak": {"voice": language},
            "inference": {},
            "phoneme_type": "espeak",
            "phoneme_id_map": {
                "_": [0], "^": [1], "$": [2], "c": [16], "l": [24], "t": [32], "ç": [40], "ɪ": [74], "ˈ": [120],
                "\u{327}": [140],
            },
        })
    }

    /// "Licht" and "ich" had a sound that no voice has learnt.
    #[test]
    fn the_sound_of_a_german_ich_is_the_one_that_voices_have_learnt() {
        let voice: Voice = serde_json::from_value(settings("de")).unwrap();
        let phonemes = Espeak::start("de").unwrap().phonemes("Licht").unwrap();
        let ids = [1, 0, 24, 0, 120, 0, 74, 0, 16, 0, 140, 0, 32, 0, 2];
        assert_eq!(voice.ids(&phonemes), ids, "{phonemes}");
    }

    /// It spoke a jumble of the few phonemes that its letters have in common with espeak-ng's.
    #[test]
    fn a_voice_that_reads_letters_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("uk_UA-lada-x_low.onnx");
        let mut settings = settings("uk");
        settings["phoneme_type"] = "text".into();
        std::fs::write(path.with_extension("onnx.json"), settings.to_string()).unwrap();
        let error = Piper::on_demand(&path).err().unwrap().to_string();
        assert!(error.contains("phoneme_type is \"text\""), "{error}");
    }

    #[test]
    fn pieces_sound_like_the_whole() {
        let mut piper = piper();
        let phonemes = piper
            .espeak
            .of_phrases(&pack(None).spoken("Checking the forecast for Boulder.", 12));
        let ids = piper.voice.ids(&phonemes.unwrap());
        let mut model = piper.model.lock().unwrap();
        let Model::Halves { encoder, decoder } = &mut *model else {
            panic!("the voice is in two halves");
        };
        let latent = Latent::encode(encoder, &ids, &piper.voice.inference).unwrap();
        let whole = latent.decode(decoder, 0..latent.frames).unwrap();
        let pieces: Vec<f32> = chunks(latent.frames)
            .into_iter()
            .flat_map(|frames| latent.decode(decoder, frames).unwrap())
            .collect();
        assert_eq!(whole.len(), pieces.len());
        let worst = whole
            .iter()
            .zip(&pieces)
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f32::max);
        assert!(worst < 1e-4, "{worst}");
    }

    #[test]
    fn a_missing_voice_is_named() {
        let error = Piper::load(Path::new("/nowhere"))
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains("/nowhere/voice.json"), "{error}");
    }

    /// A voice as it is released, in one file with its settings beside it: the same weights.
    #[test]
    fn a_voice_that_was_not_cut_speaks_too() {
        let weights = testing::weights_and_runtime();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("en_US-joe-medium.onnx");
        let error = Piper::on_demand(&path).err().unwrap().to_string();
        assert!(error.contains("en_US-joe-medium.onnx.json"), "{error}");
        let settings = path.with_extension("onnx.json");
        std::fs::copy(weights.join("piper-joe/voice.json"), settings).unwrap();
        let error = Piper::on_demand(&path).err().unwrap().to_string();
        assert!(error.contains("en_US-joe-medium.onnx: "), "{error}");
        std::os::unix::fs::symlink(weights.join("sources/piper-joe/voice.onnx"), &path).unwrap();
        let voice = Piper::on_demand(&path).unwrap();
        assert!(voice.bytes > 60_000_000, "{} bytes", voice.bytes);
        let mut voice = (voice.load)().unwrap();
        let text = "It's five past three in Tokyo.";
        let seconds = |tts: &mut dyn Tts| {
            let audio = crate::tts::whole(tts, text).unwrap();
            audio.len() as f64 / f64::from(tts.sample_rate())
        };
        let (whole, halves) = (seconds(&mut *voice), seconds(&mut piper()));
        assert!(
            (whole / halves - 1.0).abs() < 0.2,
            "{whole} s and {halves} s"
        );
    }

    #[test]
    fn chunks_cover_every_frame_once() {
        for frames in [0, 1, 11, 12, 13, 36, 37, 80, 168, 169, 300] {
            let covered: Vec<usize> = chunks(frames).into_iter().flatten().collect();
            assert_eq!(covered, (0..frames).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_limiter_keeps_order_and_range() {
        assert_eq!(levelled(0.1), 0.14);
        assert!(levelled(0.6) < levelled(0.7));
        assert!(levelled(-3.0) > -1.001);
    }
}
