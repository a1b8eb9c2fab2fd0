//! Whisper on ONNX Runtime: the embedded default, several times as fast as whisper.cpp on a CPU.

use super::decode::{Candidate, ENCODER_FRAME, Limits, MAX_SAMPLES, with_retry};
use super::keyterms::prompt;
use super::silence::{CONTEXT_FRAMES, frames_to_encode, sound_like_speech};
use super::tokens::Tokens;
use super::{Asr, AsrError, Hints, Recognised, warn_of_only_english};
use crate::audio::at_usual_level;
use crate::audio::mel::{BANDS, HOP, LogMel};
use crate::language::Marks;
use ort::session::{RunOptions, Session, SessionInputValue};
use ort::value::{DynValue, Outlet, Tensor, TensorRef};
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;
use tokenizers::Tokenizer;
use undertone_signal::vectors::{greatest, probability, sum_of_powers};

/// Tokens of the punctuation that ends a sentence (! . ?), and of that within one (, -): the same in all models.
const ENDING_MARKS: [usize; 3] = [0, 13, 30];
const MARKS_IN_BETWEEN: [usize; 2] = [11, 12];

/// The mark that shows that a sentence goes on, and whose token depends on the model.
const ELLIPSIS: &str = "...";

/// The most tokens of keyterms. Each costs a step of decoding.
const LONGEST_PROMPT: usize = 40;

/// Whisper of any size, of English or of many languages, as `models/whisper_onnx.py` builds it. The encoder computes
/// the frames of the audio; those of the silence behind it are known (`silence.rs`).
pub struct WhisperOnnx {
    name: String,
    encoder: Session,
    /// The encoder's keys and values of silence behind speech, in [`CONTEXT_FRAMES`] frames.
    silence: Caches,
    options: RunOptions,
    decoder: Session,
    tokenizer: Tokenizer,
    sizes: Sizes,
    tokens: Tokens,
    goes_on: Vec<usize>,
    suppressed: Vec<usize>,
    suppressed_first: Vec<usize>,
    mel: LogMel,
}

/// The part of CTranslate2's configuration that decoding needs.
#[derive(Deserialize)]
struct Config {
    suppress_ids: Vec<usize>,
    suppress_ids_begin: Vec<usize>,
}

/// The sizes of a decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sizes {
    layers: usize,
    heads: usize,
    /// The size of a head.
    head: usize,
    vocabulary: usize,
}

impl WhisperOnnx {
    /// Loads `encoder.int8.onnx`, `decoder.int8.onnx`, `tokenizer.json` and `config.json` from
    /// `folder`.
    ///
    /// # Errors
    /// [`AsrError::Load`] naming the file and the reason.
    pub fn load(folder: &Path) -> Result<Self, AsrError> {
        let config = read_config(&folder.join("config.json"))?;
        let path = folder.join("decoder.int8.onnx");
        let decoder = load_graph(&path)?;
        let sizes = Sizes::of(&shapes(decoder.inputs()), &shapes(decoder.outputs()));
        let sizes = sizes.map_err(|reason| load_error(&path, reason))?;
        let path = folder.join("tokenizer.json");
        let tokenizer = Tokenizer::from_file(&path);
        let tokenizer = tokenizer.map_err(|error| load_error(&path, error.to_string()))?;
        let tokens = Tokens::of(&tokenizer, sizes.vocabulary);
        let ellipsis = tokenizer.token_to_id(ELLIPSIS).map(|token| token as usize);
        let path = folder.join("encoder.int8.onnx");
        let (mut encoder, mut mel) = (load_graph(&path)?, LogMel::new());
        let none = no_silence(&shapes(encoder.inputs()))?;
        let none = none.ok_or_else(|| load_error(&path, MADE_BEFORE.into()))?;
        let silence = silence(&mut encoder, &mut mel, &none)?;
        let model = folder.file_name().unwrap_or_default().to_string_lossy();
        Ok(Self {
            name: format!("{model} (ONNX Runtime)"),
            encoder,
            silence,
            options: RunOptions::new().map_err(failed)?,
            decoder,
            tokens: tokens.map_err(|reason| load_error(&path, reason))?,
            tokenizer,
            sizes,
            goes_on: MARKS_IN_BETWEEN.into_iter().chain(ellipsis).collect(),
            suppressed: config.suppress_ids,
            suppressed_first: config.suppress_ids_begin,
            mel,
        })
    }

    /// The tokens up to the start of the transcript: the keyterms, as if they had been said before.
    fn before(&self, hints: &Hints) -> Result<Vec<u32>, AsrError> {
        let start = self.tokens.start;
        let (Some(prompt), Some(before)) = (prompt(&hints.keyterms), self.tokens.before) else {
            return Ok(vec![start]);
        };
        let prompt = self.tokenizer.encode(format!(" {prompt}"), false);
        let prompt = prompt.map_err(|error| AsrError::Run(error.to_string()))?;
        let prompt = prompt.get_ids().iter().copied().take(LONGEST_PROMPT);
        Ok([before].into_iter().chain(prompt).chain([start]).collect())
    }

    /// Decodes `audio` with `frames` encoder frames of context, after the tokens `before`.
    fn decode(
        &mut self,
        audio: &[f32],
        frames: usize,
        before: &[u32],
        hints: &Hints,
    ) -> Result<Candidate, AsrError> {
        let frames = frames_to_encode(audio.len(), frames);
        let (encoder, mel) = (&mut self.encoder, &mut self.mel);
        let mut cross = encode(encoder, mel, audio, frames, &self.silence, &self.options)?;
        cross.retain(|(name, _)| name.starts_with('c'));
        let mut decoding = Decoding::new(self.sizes, cross)?;
        let logits = decoding.step(&mut self.decoder, before)?;
        let mut logits = logits[logits.len() - self.sizes.vocabulary..].to_vec();
        let token = self.tokens.no_speech;
        let no_speech = token.map_or(0.0, |token| probability(&logits, token as usize));
        if before.len() > 1 && !hints.others.is_empty() {
            // Without the keyterms: the language they are written in would bias the detection.
            logits = decoding.alone(&mut self.decoder, self.tokens.start)?;
        }
        let spoken = self.tokens.choose(&logits, hints, audio.len());
        let limits = Limits::for_samples(audio.len());
        let mut next = self.tokens.task(&spoken);
        // The logits before the last of these say nothing of words.
        let mut told = next.len().saturating_sub(1);
        next.extend(self.draft(hints, limits.tokens)?);
        let mut tokens: Vec<u32> = Vec::new();
        let mut log_probability = 0.0;
        let mut marks = None;
        'text: loop {
            let before = decoding.length;
            let logits = decoding.step(&mut self.decoder, &next)?;
            let logits = logits.chunks_exact(self.sizes.vocabulary).enumerate();
            let mut agreed = 0;
            for (at, logits) in logits.skip(told) {
                let chosen = self.choose(logits.to_vec(), tokens.is_empty());
                let token = chosen.token;
                log_probability += chosen.log_probability;
                marks = match self.is_word(token) {
                    true => None,
                    // Only the marks right after the last word count.
                    false => marks.or(Some(chosen.marks)),
                };
                if token == self.tokens.end || tokens.len() >= limits.tokens {
                    break 'text;
                }
                tokens.push(token);
                agreed = at + 1;
                if next.get(agreed) != Some(&token) {
                    break;
                }
            }
            decoding.keep(before + agreed)?;
            told = 0;
            next.clear();
            next.extend(tokens.last());
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
            language: spoken.tag,
        })
    }

    /// The tokens of the words that were heard before in the same audio, at most `most`. The decoder checks them in one
    /// step, and goes on from where it hears otherwise.
    fn draft(&self, hints: &Hints, most: usize) -> Result<Vec<u32>, AsrError> {
        let Some(words) = &hints.so_far else {
            return Ok(Vec::new());
        };
        let words = self.tokenizer.encode(format!(" {words}"), false);
        let words = words.map_err(|error| AsrError::Run(error.to_string()))?;
        Ok(words.get_ids().iter().copied().take(most).collect())
    }

    /// Whether a token belongs to a word.
    fn is_word(&self, token: u32) -> bool {
        let mut marks = ENDING_MARKS.iter().chain(&self.goes_on);
        token != self.tokens.end && !marks.any(|&mark| token as usize == mark)
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
        logits.truncate(self.tokens.start as usize);
        let nothing = (self.tokens.end as usize, f32::NEG_INFINITY);
        let (token, best) = greatest(&logits).unwrap_or(nothing);
        let total = sum_of_powers(&logits, best);
        let sum = |tokens: &[usize]| {
            let likely = tokens.iter().filter_map(|&token| logits.get(token));
            likely.map(|logit| (logit - best).exp()).sum::<f32>() / total
        };
        Chosen {
            token: token as u32,
            log_probability: -total.ln(),
            marks: Marks {
                ends: sum(&ENDING_MARKS),
                goes_on: sum(&self.goes_on),
            },
        }
    }
}

impl Asr for WhisperOnnx {
    fn name(&self) -> &str {
        &self.name
    }

    fn transcribe(&mut self, audio: &[f32]) -> Result<String, AsrError> {
        self.hear(audio).map(|heard| heard.text)
    }

    fn hear(&mut self, audio: &[f32]) -> Result<Recognised, AsrError> {
        self.hear_with(audio, &Hints::default())
    }

    fn hear_with(&mut self, audio: &[f32], hints: &Hints) -> Result<Recognised, AsrError> {
        if !self.tokens.are_multilingual() {
            let language = hints.language.as_deref();
            warn_of_only_english(&self.name, language);
        }
        let before = self.before(hints)?;
        let audio = at_usual_level(&audio[..audio.len().min(MAX_SAMPLES)]);
        let heard = with_retry(audio.len(), CONTEXT_FRAMES, hints.partial, |frames| {
            self.decode(&audio, frames, &before, hints)
        })?;
        if !heard.text.is_empty() || before.len() == 1 {
            return Ok(heard);
        }
        // With keyterms the model sometimes hears no words in audio in which it hears some without them.
        let start = [self.tokens.start];
        with_retry(audio.len(), CONTEXT_FRAMES, hints.partial, |frames| {
            self.decode(&audio, frames, &start, hints)
        })
    }

    fn languages(&self) -> Vec<String> {
        self.tokens.languages()
    }
}

/// A step of decoding.
struct Chosen {
    token: u32,
    log_probability: f32,
    /// The probabilities of punctuation marks in its place.
    marks: Marks,
}

type Caches = Vec<(String, DynValue)>;

impl Sizes {
    /// The sizes of a decoder with these inputs and outputs, or why there are none.
    fn of(inputs: &Shapes, outputs: &Shapes) -> Result<Self, String> {
        let layers = (0..)
            .take_while(|layer| inputs.contains_key(&format!("pk{layer}")))
            .count();
        if inputs.get("id").and_then(|shape| shape.last()) == Some(&1) {
            return Err("it takes one token at a time; `make models` makes it anew".into());
        }
        let size = |shape: Option<&i64>| usize::try_from(*shape?).ok().filter(|size| *size > 0);
        let keys = inputs.get("pk0").map(Vec::as_slice).unwrap_or_default();
        let logits = outputs.get("logits").and_then(|shape| shape.last());
        let sizes = (size(keys.get(1)), size(keys.get(2)), size(logits));
        let (Some(heads), Some(head), Some(vocabulary)) = sizes else {
            return Err("it is no decoder that models/whisper_onnx.py has built".into());
        };
        Ok(Self {
            layers,
            heads,
            head,
            vocabulary,
        })
    }

    fn empty_past(self) -> Result<Caches, AsrError> {
        let (heads, head) = (self.heads, self.head);
        let mut past = Caches::new();
        for layer in 0..self.layers {
            let key = Tensor::from_array(([1, heads, head, 0], Vec::<f32>::new()));
            let value = Tensor::from_array(([1, heads, 0, head], Vec::<f32>::new()));
            past.push((format!("pk{layer}"), key.map_err(failed)?.into_dyn()));
            past.push((format!("pv{layer}"), value.map_err(failed)?.into_dyn()));
        }
        Ok(past)
    }
}

/// The decoder's state within one audio.
struct Decoding {
    sizes: Sizes,
    /// The keys and values of the tokens so far.
    past: Caches,
    /// Those of the audio.
    cross: Caches,
    /// The number of tokens so far.
    length: usize,
}

impl Decoding {
    fn new(sizes: Sizes, cross: Caches) -> Result<Self, AsrError> {
        Ok(Self {
            sizes,
            past: sizes.empty_past()?,
            cross,
            length: 0,
        })
    }

    /// The logits after each of `tokens`, which join those so far.
    fn step(&mut self, decoder: &mut Session, tokens: &[u32]) -> Result<Vec<f32>, AsrError> {
        let (logits, present) = run(decoder, tokens, self.length, &self.past, &self.cross)?;
        self.past = present;
        self.length += tokens.len();
        Ok(logits)
    }

    /// The logits after `token` if it were the first.
    fn alone(&self, decoder: &mut Session, token: u32) -> Result<Vec<f32>, AsrError> {
        let past = self.sizes.empty_past()?;
        Ok(run(decoder, &[token], 0, &past, &self.cross)?.0)
    }

    /// Takes back all tokens but the first `length`.
    fn keep(&mut self, length: usize) -> Result<(), AsrError> {
        if length == self.length {
            return Ok(());
        }
        let Sizes { heads, head, .. } = self.sizes;
        for (name, cache) in &mut self.past {
            let is_key = name.starts_with("pk");
            // Keys are transposed: the tokens are their last dimension.
            let (size, shape) = match is_key {
                true => (1, [1, heads, head, length]),
                false => (head, [1, heads, length, head]),
            };
            let kept = {
                let (_, all) = cache.try_extract_tensor::<f32>().map_err(failed)?;
                let rows = all.chunks_exact(self.length * size);
                let kept = rows.flat_map(|row| &row[..length * size]).copied();
                kept.collect::<Vec<f32>>()
            };
            *cache = Tensor::from_array((shape, kept))
                .map_err(failed)?
                .into_dyn();
        }
        self.length = length;
        Ok(())
    }
}

/// An encoder without inputs for the silence behind speech.
const MADE_BEFORE: &str = "it takes no silence from an earlier run; `make models` makes it anew";

/// No silence, for an encoder with these inputs; `None` if it takes none.
fn no_silence(inputs: &Shapes) -> Result<Option<Caches>, AsrError> {
    let mut none = Caches::new();
    for (name, shape) in inputs.iter().filter(|(name, _)| *name != "mel") {
        let shape: Vec<i64> = shape.iter().map(|size| (*size).max(0)).collect();
        let empty = Tensor::from_array((shape, Vec::<f32>::new())).map_err(failed)?;
        none.push((name.clone(), empty.into_dyn()));
    }
    Ok((!none.is_empty()).then_some(none))
}

/// Encodes silence behind speech: inputs for the later runs of the encoder.
fn silence(encoder: &mut Session, mel: &mut LogMel, none: &Caches) -> Result<Caches, AsrError> {
    let mut options = RunOptions::new().map_err(failed)?;
    // Utterances are mostly shorter: what memory this run took and they do not need is given back.
    let freed = options.set("memory.enable_memory_arena_shrinkage", "cpu:0");
    freed.map_err(failed)?;
    let sound = sound_like_speech();
    let encoded = encode(encoder, mel, &sound, CONTEXT_FRAMES, none, &options)?;
    let mut silence = Caches::new();
    for (name, value) in &encoded {
        let input = match name.split_at_checked(1) {
            Some(("e", layer)) => format!("s{layer}"),
            Some(("c", layer)) => format!("x{layer}"),
            _ => continue,
        };
        let (shape, values) = value.try_extract_tensor::<f32>().map_err(failed)?;
        let copy = Tensor::from_array((shape.to_vec(), values.to_vec())).map_err(failed)?;
        silence.push((input, copy.into_dyn()));
    }
    Ok(silence)
}

/// The keys and values of `audio` in `frames` frames, and behind them those of `silence`.
fn encode(
    encoder: &mut Session,
    mel: &mut LogMel,
    audio: &[f32],
    frames: usize,
    silence: &Caches,
    options: &RunOptions,
) -> Result<Caches, AsrError> {
    let mut padded = audio.to_vec();
    padded.resize(frames * ENCODER_FRAME, 0.0);
    let features = mel.features(&padded);
    let shape = [1, BANDS, padded.len() / HOP];
    let mel = TensorRef::from_array_view((shape, &features[..])).map_err(failed)?;
    let mut inputs: Vec<(Cow<'_, str>, SessionInputValue<'_>)> = vec![("mel".into(), mel.into())];
    for (name, value) in silence {
        inputs.push((name.as_str().into(), value.into()));
    }
    let encoded = encoder.run_with_options(inputs, options);
    let encoded = encoded.map_err(failed)?;
    let encoded = encoded.into_iter();
    Ok(encoded
        .map(|(name, value)| (name.to_owned(), value))
        .collect())
}

/// Runs the decoder over `tokens`, the first of which stands at `position`. Returns the logits after each, and the caches
/// with them.
fn run(
    decoder: &mut Session,
    tokens: &[u32],
    position: usize,
    past: &Caches,
    cross: &Caches,
) -> Result<(Vec<f32>, Caches), AsrError> {
    let shape = [1, tokens.len()];
    let ids: Vec<i64> = tokens.iter().map(|&token| i64::from(token)).collect();
    let places: Vec<i64> = (position as i64..).take(tokens.len()).collect();
    let ids = Tensor::from_array((shape, ids)).map_err(failed)?;
    let places = Tensor::from_array((shape, places)).map_err(failed)?;
    let mut inputs: Vec<(Cow<'_, str>, SessionInputValue<'_>)> =
        vec![("id".into(), ids.into()), ("pos".into(), places.into())];
    for (name, value) in past.iter().chain(cross) {
        inputs.push((name.as_str().into(), value.into()));
    }
    let mut logits = Vec::new();
    let mut present = Caches::new();
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

fn read_config(path: &Path) -> Result<Config, AsrError> {
    let text = std::fs::read_to_string(path).map_err(|e| load_error(path, e.to_string()))?;
    serde_json::from_str(&text).map_err(|error| load_error(path, error.to_string()))
}

fn load_graph(path: &Path) -> Result<Session, AsrError> {
    crate::onnx::session_on_two_cores(path).map_err(|error| load_error(path, error.to_string()))
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

    fn decoder(layers: usize, heads: i64, vocabulary: i64) -> Result<Sizes, String> {
        let cache = |layer| (format!("pk{layer}"), vec![1, heads, 64, -1]);
        let inputs = (0..layers).map(cache).collect();
        let outputs = [("logits".to_owned(), vec![1, 1, vocabulary])].into();
        Sizes::of(&inputs, &outputs)
    }

    #[test]
    fn sizes_are_those_of_the_decoder() {
        let base = Sizes {
            layers: 6,
            heads: 8,
            head: 64,
            vocabulary: 51_865,
        };
        assert_eq!(decoder(6, 8, 51_865), Ok(base));
        for strange in [decoder(0, 8, 51_865), decoder(6, -1, 51_865)] {
            assert!(strange.unwrap_err().contains("models/whisper_onnx.py"));
        }
    }
}
