//! Whisper on ONNX Runtime: the embedded default, several times as fast as whisper.cpp on a CPU.

use super::decode::{Candidate, ENCODER_FRAME, Limits, MAX_SAMPLES, with_retry};
use super::{Asr, AsrError, OnlyEnglish, Recognised};
use crate::audio::at_usual_level;
use crate::audio::mel::{BANDS, HOP, LogMel};
use crate::language::Marks;
use ort::session::{Session, SessionInputValue};
use ort::value::{DynValue, Outlet, Tensor, TensorRef};
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;
use tokenizers::Tokenizer;

/// Tokens of the English models: start of transcript, no timestamps, end of text, no speech.
const START: i64 = 50_257;
const NO_TIMESTAMPS: i64 = 50_362;
const END: i64 = 50_256;
const NO_SPEECH: usize = 50_361;

/// Tokens of the marks that end a sentence (! . ?), and of those that show that it goes on (, - ...).
const ENDING_MARKS: [usize; 3] = [0, 13, 30];
const MARKS_IN_BETWEEN: [usize; 3] = [11, 12, 986];

/// Tokens that the English models know.
const VOCABULARY: i64 = 51_864;

/// Decoder layers, heads and size of a head of tiny.en.
const LAYERS: usize = 4;
const HEADS: usize = 6;
const HEAD: usize = 64;

/// Whisper tiny.en.
pub struct WhisperOnnx {
    encoder: Session,
    decoder: Session,
    tokenizer: Tokenizer,
    suppressed: Vec<usize>,
    suppressed_first: Vec<usize>,
    mel: LogMel,
    only_english: OnlyEnglish,
}

/// The part of CTranslate2's configuration that decoding needs.
#[derive(Deserialize)]
struct Config {
    suppress_ids: Vec<usize>,
    suppress_ids_begin: Vec<usize>,
}

impl WhisperOnnx {
    /// Loads `encoder.int8.onnx`, `decoder.int8.onnx`, `tokenizer.json` and `config.json` from
    /// `folder`.
    ///
    /// # Errors
    /// [`AsrError::Load`] naming the file and the reason; a model of another size than tiny.en, or
    /// of many languages, is one.
    pub fn load(folder: &Path) -> Result<Self, AsrError> {
        let config = read_config(&folder.join("config.json"))?;
        let tokenizer = folder.join("tokenizer.json");
        let path = folder.join("decoder.int8.onnx");
        let decoder = load_graph(&path)?;
        if let Some(reason) = misfit(&shapes(decoder.inputs()), &shapes(decoder.outputs())) {
            return Err(load_error(&path, reason));
        }
        Ok(Self {
            encoder: load_graph(&folder.join("encoder.int8.onnx"))?,
            decoder,
            tokenizer: Tokenizer::from_file(&tokenizer)
                .map_err(|error| load_error(&tokenizer, error.to_string()))?,
            suppressed: config.suppress_ids,
            suppressed_first: config.suppress_ids_begin,
            mel: LogMel::new(),
            only_english: OnlyEnglish::default(),
        })
    }

    /// Decodes `audio` with `frames` encoder frames of context.
    fn decode(&mut self, audio: &[f32], frames: usize) -> Result<Candidate, AsrError> {
        let mut padded = audio.to_vec();
        padded.resize(frames * ENCODER_FRAME, 0.0);
        let features = self.mel.features(&padded);
        let shape = [1, BANDS, padded.len() / HOP];
        let mel = TensorRef::from_array_view((shape, &features[..])).map_err(failed)?;
        let encoded = self
            .encoder
            .run(ort::inputs! { "mel" => mel })
            .map_err(failed)?;
        let cross: Vec<(String, DynValue)> = encoded
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        let limits = Limits::for_samples(audio.len());
        let mut past = empty_past()?;
        let mut tokens: Vec<u32> = Vec::new();
        let mut log_probability = 0.0;
        let mut no_speech = 0.0;
        let mut marks = None;
        let mut next = START;
        for position in 0.. {
            let (logits, present) = step(&mut self.decoder, next, position, &past, &cross)?;
            past = present;
            if position == 0 {
                no_speech = probability(&logits, NO_SPEECH);
                next = NO_TIMESTAMPS;
                continue;
            }
            let chosen = self.choose(logits, tokens.is_empty());
            let token = chosen.token;
            log_probability += chosen.log_probability;
            marks = match is_word(token) {
                true => None,
                // Those right behind the last word count.
                false => marks.or(Some(chosen.marks)),
            };
            if token == END || tokens.len() >= limits.tokens {
                break;
            }
            tokens.push(token as u32);
            next = token;
        }
        let text = self
            .tokenizer
            .decode(&tokens, true)
            .map_err(|error| AsrError::Run(error.to_string()))?;
        let confidence = log_probability / (tokens.len() + 1) as f32;
        Ok(Candidate {
            text,
            tokens,
            confidence,
            no_speech,
            marks,
        })
    }

    /// Chooses the likeliest token.
    fn choose(&self, mut logits: Vec<f32>, first: bool) -> Chosen {
        let banned = if first {
            &self.suppressed_first[..]
        } else {
            &[]
        };
        for &id in self.suppressed.iter().chain(banned) {
            if let Some(logit) = logits.get_mut(id) {
                *logit = f32::NEG_INFINITY;
            }
        }
        // Special tokens, timestamps among them, are not text.
        logits.truncate(START as usize);
        let (token, best) = logits.iter().copied().enumerate().fold(
            (END as usize, f32::NEG_INFINITY),
            |best, x| {
                if x.1 > best.1 { x } else { best }
            },
        );
        let total: f32 = logits.iter().map(|logit| (logit - best).exp()).sum();
        let sum = |tokens: [usize; 3]| {
            let likely = tokens.iter().filter_map(|&token| logits.get(token));
            likely.map(|logit| (logit - best).exp()).sum::<f32>() / total
        };
        Chosen {
            token: token as i64,
            log_probability: -total.ln(),
            marks: Marks {
                ends: sum(ENDING_MARKS),
                goes_on: sum(MARKS_IN_BETWEEN),
            },
        }
    }
}

impl Asr for WhisperOnnx {
    fn name(&self) -> &str {
        "whisper tiny.en (ONNX Runtime)"
    }

    fn transcribe(&mut self, audio: &[f32]) -> Result<String, AsrError> {
        self.hear(audio).map(|heard| heard.text)
    }

    fn hear(&mut self, audio: &[f32]) -> Result<Recognised, AsrError> {
        let audio = at_usual_level(&audio[..audio.len().min(MAX_SAMPLES)]);
        with_retry(audio.len(), |frames| self.decode(&audio, frames))
    }

    fn hear_in(&mut self, audio: &[f32], language: Option<&str>) -> Result<Recognised, AsrError> {
        self.only_english.note("whisper tiny.en", language);
        self.hear(audio)
    }
}

/// A step of decoding.
struct Chosen {
    token: i64,
    log_probability: f32,
    /// How likely marks were in its place.
    marks: Marks,
}

/// Whether a token belongs to a word.
fn is_word(token: i64) -> bool {
    let mut marks = ENDING_MARKS.iter().chain(&MARKS_IN_BETWEEN);
    token != END && !marks.any(|&mark| token == mark as i64)
}

/// The probability of `token` among all of them.
fn probability(logits: &[f32], token: usize) -> f32 {
    let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let total: f32 = logits.iter().map(|logit| (logit - best).exp()).sum();
    logits
        .get(token)
        .map_or(0.0, |logit| (logit - best).exp() / total)
}

type Past = Vec<(String, DynValue)>;

fn empty_past() -> Result<Past, AsrError> {
    let mut past = Past::new();
    for layer in 0..LAYERS {
        let key = Tensor::from_array(([1, HEADS, HEAD, 0], Vec::<f32>::new())).map_err(failed)?;
        let value = Tensor::from_array(([1, HEADS, 0, HEAD], Vec::<f32>::new())).map_err(failed)?;
        past.push((format!("pk{layer}"), key.into_dyn()));
        past.push((format!("pv{layer}"), value.into_dyn()));
    }
    Ok(past)
}

/// One step of the decoder: the logits behind `token`, and the caches with it.
fn step(
    decoder: &mut Session,
    token: i64,
    position: i64,
    past: &Past,
    cross: &[(String, DynValue)],
) -> Result<(Vec<f32>, Past), AsrError> {
    let id = Tensor::from_array(([1, 1], vec![token])).map_err(failed)?;
    let place = Tensor::from_array(([1, 1], vec![position])).map_err(failed)?;
    let mut inputs: Vec<(Cow<'_, str>, SessionInputValue<'_>)> =
        vec![("id".into(), id.into()), ("pos".into(), place.into())];
    for (name, value) in past.iter().chain(cross) {
        inputs.push((name.as_str().into(), value.into()));
    }
    let mut logits = Vec::new();
    let mut present = Past::new();
    for (name, value) in decoder.run(inputs).map_err(failed)? {
        match name.strip_prefix('n') {
            Some(cache) => present.push((format!("p{cache}"), value)),
            None => {
                logits = value
                    .try_extract_tensor::<f32>()
                    .map_err(failed)?
                    .1
                    .to_vec()
            }
        }
    }
    Ok((logits, present))
}

type Shapes = HashMap<String, Vec<i64>>;

/// The shape of each tensor by its name; -1 stands for any length.
fn shapes(outlets: &[Outlet]) -> Shapes {
    let shape = |outlet: &Outlet| {
        let shape = outlet.dtype().tensor_shape()?;
        Some((outlet.name().to_owned(), shape.to_vec()))
    };
    outlets.iter().filter_map(shape).collect()
}

/// Checks that a decoder with these inputs and outputs is that of tiny.en. Returns the difference if it is not.
fn misfit(inputs: &Shapes, outputs: &Shapes) -> Option<String> {
    let ours = format!("only Whisper tiny.en ({LAYERS} layers of {HEADS} heads) can be used here");
    let layers = (0..)
        .take_while(|layer| inputs.contains_key(&format!("pk{layer}")))
        .count();
    if layers != LAYERS {
        return Some(format!("its decoder has {layers} layers; {ours}"));
    }
    let heads = [HEADS as i64, HEAD as i64];
    let keys = inputs.get("pk0").and_then(|shape| shape.get(1..3))?;
    if keys != heads {
        return Some(format!(
            "its decoder has {} heads of {}; {ours}",
            keys[0], keys[1]
        ));
    }
    let vocabulary = *outputs.get("logits").and_then(|shape| shape.last())?;
    (vocabulary != VOCABULARY).then(|| format!("it knows {vocabulary} tokens; {ours}"))
}

fn read_config(path: &Path) -> Result<Config, AsrError> {
    let text = std::fs::read_to_string(path).map_err(|e| load_error(path, e.to_string()))?;
    serde_json::from_str(&text).map_err(|error| load_error(path, error.to_string()))
}

fn load_graph(path: &Path) -> Result<Session, AsrError> {
    crate::onnx::session(path).map_err(|error| load_error(path, error.to_string()))
}

fn load_error(path: &Path, reason: String) -> AsrError {
    AsrError::Load {
        path: path.display().to_string(),
        reason,
    }
}

fn failed(error: ort::Error) -> AsrError {
    AsrError::Run(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoder(layers: usize, heads: i64, vocabulary: i64) -> Option<String> {
        let cache = |layer| (format!("pk{layer}"), vec![1, heads, 64, -1]);
        let inputs = (0..layers).map(cache).collect();
        let outputs = [("logits".to_owned(), vec![1, 1, vocabulary])].into();
        misfit(&inputs, &outputs)
    }

    #[test]
    fn models_of_another_size_are_refused_when_they_are_loaded() {
        assert_eq!(decoder(4, 6, 51_864), None);
        let base = decoder(6, 8, 51_864).unwrap();
        assert!(base.contains("6 layers; only Whisper tiny.en"), "{base}");
        assert!(decoder(4, 8, 51_864).unwrap().contains("8 heads"));
        let multilingual = decoder(4, 6, 51_865).unwrap();
        assert!(multilingual.contains("51865 tokens"), "{multilingual}");
    }
}
