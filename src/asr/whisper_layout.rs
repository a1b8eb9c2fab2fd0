//! Whisper in the ONNX layout that exporters share: an encoder, and a decoder with both branches merged. Any size, of
//! English or of many languages: sizes, the bands of the spectrogram and tokens are read from the folder.

use super::decode::{Candidate, MAX_FRAMES, MAX_SAMPLES, with_retry};
use super::tokens::Tokens;
use super::{Asr, AsrError, Hints, Recognised, warn_of_only_english};
use crate::audio::at_usual_level;
use crate::audio::mel::{BANDS, FINE_BANDS, HOP, LogMel};
use ort::session::{Session, SessionInputValue};
use ort::value::{DynValue, Tensor, TensorRef};
use serde::Deserialize;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use tokenizers::Tokenizer;
use undertone_signal::vectors::{greatest, probability, sum_of_powers};

/// The endings of file names, the fastest first.
const PRECISIONS: [&str; 3] = ["_int8", "_quantized", ""];

/// The four caches of each layer.
const CACHES: [&str; 4] = [
    "decoder.key",
    "decoder.value",
    "encoder.key",
    "encoder.value",
];

/// A recogniser in the common layout. The whole 30 s of context are encoded for any audio.
pub struct WhisperLayout {
    encoder: Session,
    decoder: Session,
    tokenizer: Tokenizer,
    sizes: Sizes,
    tokens: Tokens,
    name: String,
    mel: LogMel,
}

/// The part of `config.json` that decoding needs.
#[derive(Debug, Deserialize)]
struct Sizes {
    d_model: usize,
    decoder_layers: usize,
    decoder_attention_heads: usize,
    #[serde(default = "bands")]
    num_mel_bins: usize,
    vocab_size: usize,
    #[serde(default)]
    suppress_tokens: Option<Vec<i64>>,
    #[serde(default)]
    begin_suppress_tokens: Option<Vec<i64>>,
}

fn bands() -> usize {
    BANDS
}

impl Sizes {
    /// The spectrogram that the encoder takes.
    fn mel(&self) -> Result<LogMel, String> {
        let bands = self.num_mel_bins;
        match [BANDS, FINE_BANDS].contains(&bands) {
            true => Ok(LogMel::of_bands(bands)),
            false => Err(format!(
                "num_mel_bins is {bands}, and Whisper's spectrograms have {BANDS} or {FINE_BANDS} bands"
            )),
        }
    }
}

impl WhisperLayout {
    /// Whether a folder has a decoder in this layout.
    pub fn is_in(folder: &Path) -> bool {
        graph(folder, "decoder_model_merged").is_some()
    }

    /// Loads `encoder_model.onnx`, `decoder_model_merged.onnx` (or those ending in `_int8`, `_quantized`; also in a
    /// folder `onnx`), `tokenizer.json` and `config.json` from `folder`.
    ///
    /// # Errors
    /// [`AsrError::Load`] naming the file and the reason.
    pub fn load(folder: &Path) -> Result<Self, AsrError> {
        let missing = |name: &str| {
            let path = folder.join(format!("{name}.onnx"));
            load_error(&path, "there is no such file".into())
        };
        let open = |name: &str| {
            let path = graph(folder, name).ok_or_else(|| missing(name))?;
            crate::onnx::session_on_two_cores(&path)
                .map_err(|error| load_error(&path, error.to_string()))
        };
        let path = folder.join("config.json");
        let text = std::fs::read_to_string(&path);
        let text = text.map_err(|error| load_error(&path, error.to_string()))?;
        let sizes: Sizes =
            serde_json::from_str(&text).map_err(|error| load_error(&path, error.to_string()))?;
        let mel = sizes.mel().map_err(|reason| load_error(&path, reason))?;
        let path = folder.join("tokenizer.json");
        let tokenizer = Tokenizer::from_file(&path);
        let tokenizer = tokenizer.map_err(|error| load_error(&path, error.to_string()))?;
        let model = folder.file_name().unwrap_or_default().to_string_lossy();
        Ok(Self {
            encoder: open("encoder_model")?,
            decoder: open("decoder_model_merged")?,
            tokens: Tokens::of(&tokenizer, sizes.vocab_size)
                .map_err(|reason| load_error(&path, reason))?,
            name: format!("{model} (ONNX Runtime)"),
            tokenizer,
            sizes,
            mel,
        })
    }

    fn decode(&mut self, audio: &[f32], hints: &Hints) -> Result<Candidate, AsrError> {
        let mut padded = audio.to_vec();
        padded.resize(MAX_SAMPLES, 0.0);
        let features = self.mel.features(&padded);
        let shape = [1, self.mel.bands(), padded.len() / HOP];
        let mel = TensorRef::from_array_view((shape, &features[..])).map_err(failed)?;
        let mut encoded = self
            .encoder
            .run(ort::inputs! { "input_features" => mel })
            .map_err(failed)?;
        let hidden = encoded.remove("last_hidden_state");
        let hidden =
            hidden.ok_or_else(|| AsrError::Run("the encoder has no last_hidden_state".into()))?;
        drop(encoded);
        let mut caches = self.empty_caches()?;
        let mut tokens: Vec<u32> = Vec::new();
        let (mut log_probability, mut no_speech) = (0.0, 0.0);
        let start = [i64::from(self.tokens.start)];
        let logits = match hints.others.is_empty() {
            true => Vec::new(),
            false => self.step(&start, &hidden, &caches, false)?.0,
        };
        let chosen = self.tokens.choose(&logits, hints, audio.len());
        let task = self.tokens.task(&chosen).into_iter().map(i64::from);
        let mut input: Vec<i64> = start.into_iter().chain(task).collect();
        let most = super::decode::Limits::for_samples(audio.len()).tokens;
        for step in 0.. {
            let (logits, present) = self.step(&input, &hidden, &caches, step > 0)?;
            if step == 0 {
                no_speech = self.no_speech(&logits);
                caches = present;
            } else {
                // The keys and values of the encoder stay those of the first step.
                for (at, cache) in present.into_iter().enumerate() {
                    if at % CACHES.len() < 2 {
                        caches[at] = cache;
                    }
                }
            }
            let vocabulary = self.sizes.vocab_size;
            let last = logits.len().saturating_sub(vocabulary);
            let (token, likely) = self.choose(&logits[last..], tokens.is_empty());
            log_probability += likely;
            if token == self.tokens.end || tokens.len() >= most {
                break;
            }
            tokens.push(token);
            input = vec![i64::from(token)];
        }
        let text = self.tokenizer.decode(&tokens, true);
        Ok(Candidate {
            text: text.map_err(|error| AsrError::Run(error.to_string()))?,
            confidence: log_probability / (tokens.len() + 1) as f32,
            tokens,
            no_speech,
            marks: None,
            language: chosen.tag,
        })
    }

    fn empty_caches(&self) -> Result<Vec<DynValue>, AsrError> {
        let heads = self.sizes.decoder_attention_heads;
        let shape = [1, heads, 0, self.sizes.d_model / heads.max(1)];
        let empty = || Tensor::from_array((shape, Vec::<f32>::new())).map(|cache| cache.into_dyn());
        let count = self.sizes.decoder_layers * CACHES.len();
        (0..count).map(|_| empty().map_err(failed)).collect()
    }

    /// One run of the decoder: the logits after each token of `input`, and the caches with them.
    fn step(
        &mut self,
        input: &[i64],
        hidden: &DynValue,
        caches: &[DynValue],
        has_past: bool,
    ) -> Result<(Vec<f32>, Vec<DynValue>), AsrError> {
        let ids = Tensor::from_array(([1, input.len()], input.to_vec())).map_err(failed)?;
        let branch = Tensor::from_array(([1], vec![has_past])).map_err(failed)?;
        let mut inputs: Vec<(Cow<'_, str>, SessionInputValue<'_>)> = vec![
            ("input_ids".into(), ids.into()),
            ("encoder_hidden_states".into(), hidden.into()),
            ("use_cache_branch".into(), branch.into()),
        ];
        for (at, cache) in caches.iter().enumerate() {
            let (layer, part) = (at / CACHES.len(), CACHES[at % CACHES.len()]);
            let name = format!("past_key_values.{layer}.{part}");
            inputs.push((name.into(), cache.into()));
        }
        let mut outputs = self.decoder.run(inputs).map_err(failed)?;
        let missing = |name: &str| AsrError::Run(format!("the decoder has no {name}"));
        let logits = outputs.get("logits").ok_or_else(|| missing("logits"))?;
        let logits = logits
            .try_extract_tensor::<f32>()
            .map_err(failed)?
            .1
            .to_vec();
        let mut present = Vec::with_capacity(caches.len());
        for at in 0..caches.len() {
            let (layer, part) = (at / CACHES.len(), CACHES[at % CACHES.len()]);
            let name = format!("present.{layer}.{part}");
            present.push(outputs.remove(&name).ok_or_else(|| missing(&name))?);
        }
        Ok((logits, present))
    }

    /// The probability of no speech, after the first token.
    fn no_speech(&self, logits: &[f32]) -> f32 {
        let first = logits.get(..self.sizes.vocab_size).unwrap_or_default();
        let token = self.tokens.no_speech;
        token.map_or(0.0, |token| probability(first, token as usize))
    }

    /// The likeliest token of text or the end, and the logarithm of its probability.
    fn choose(&self, logits: &[f32], is_first: bool) -> (u32, f32) {
        let (end, mut allowed) = (self.tokens.end, logits.to_vec());
        let text = end.min(self.tokens.start) as usize;
        for (at, logit) in allowed.iter_mut().enumerate().skip(text) {
            if at != end as usize {
                *logit = f32::NEG_INFINITY;
            }
        }
        let never = self.sizes.suppress_tokens.iter().flatten();
        let first = self.sizes.begin_suppress_tokens.iter().flatten();
        for token in never.chain(first.filter(|_| is_first)) {
            let at = usize::try_from(*token).ok();
            if let Some(logit) = at.and_then(|at| allowed.get_mut(at)) {
                *logit = f32::NEG_INFINITY;
            }
        }
        match greatest(&allowed) {
            Some((token, best)) => (token as u32, -sum_of_powers(&allowed, best).ln()),
            None => (end, f32::NEG_INFINITY),
        }
    }
}

impl Asr for WhisperLayout {
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
            warn_of_only_english(&self.name, hints.language.as_deref());
        }
        let audio = at_usual_level(&audio[..audio.len().min(MAX_SAMPLES)]);
        // All the context there is, so that a second try would be the same.
        with_retry(audio.len(), MAX_FRAMES, hints.partial, |_| {
            self.decode(&audio, hints)
        })
    }

    fn languages(&self) -> Vec<String> {
        self.tokens.languages()
    }
}

/// The file of a graph, in its fastest precision.
fn graph(folder: &Path, name: &str) -> Option<PathBuf> {
    let folders = [folder.to_owned(), folder.join("onnx")];
    let files = folders.iter().flat_map(|folder| {
        PRECISIONS.map(|precision| folder.join(format!("{name}{precision}.onnx")))
    });
    files.into_iter().find(|file| file.is_file())
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

    #[test]
    fn a_folder_without_the_layout_is_known_as_such() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!WhisperLayout::is_in(folder.path()));
        let error = WhisperLayout::load(folder.path()).err().unwrap();
        assert!(error.to_string().contains("config.json"), "{error}");
        std::fs::create_dir(folder.path().join("onnx")).unwrap();
        let file = "onnx/decoder_model_merged_quantized.onnx";
        std::fs::write(folder.path().join(file), "").unwrap();
        assert!(WhisperLayout::is_in(folder.path()));
    }

    #[test]
    fn a_model_of_80_or_128_bands_is_taken_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |bands: &str| {
            let sizes = r#""d_model": 8, "decoder_layers": 1, "decoder_attention_heads": 1"#;
            let config = format!("{{{sizes}, \"vocab_size\": 51866{bands}}}");
            std::fs::write(folder.path().join("config.json"), config).unwrap();
            let error = WhisperLayout::load(folder.path()).err().unwrap();
            error.to_string()
        };
        for taken in ["", ", \"num_mel_bins\": 80", ", \"num_mel_bins\": 128"] {
            let error = refused(taken);
            assert!(error.contains("tokenizer.json"), "{taken}: {error}");
        }
        let error = refused(", \"num_mel_bins\": 96");
        for part in ["config.json", "num_mel_bins is 96", "80 or 128"] {
            assert!(error.contains(part), "{error}");
        }
    }
}
