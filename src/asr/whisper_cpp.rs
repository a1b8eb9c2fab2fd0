//! Whisper on whisper.cpp: any ggml model, on the CPU.

use super::decode::{Candidate, Limits, MAX_SAMPLES, MIN_FRAMES, with_retry};
use super::{Asr, AsrError, Hints, Recognised, warn_of_only_english};
use crate::audio::at_usual_level;
use crate::language::{ENGLISH, code, is_tag};
use std::path::Path;
use whisper_rs::{
    FullParams, SamplingStrategy, WhisperContext, WhisperContextParameters, WhisperState,
};

/// A ggml model.
pub struct WhisperCpp {
    state: WhisperState,
    threads: i32,
    name: String,
    is_multilingual: bool,
}

impl WhisperCpp {
    /// Loads a ggml model from a file. With more threads than free cores it is slower by
    /// orders of magnitude, because the threads spin while they wait for each other.
    ///
    /// # Errors
    /// [`AsrError::Load`] naming the file and the reason.
    pub fn load(path: &Path, threads: usize) -> Result<Self, AsrError> {
        let failed = |reason: String| AsrError::Load {
            path: path.display().to_string(),
            reason,
        };
        whisper_rs::install_logging_hooks();
        let file = path
            .to_str()
            .ok_or_else(|| failed("the path is not UTF-8".into()))?;
        let context = WhisperContext::new_with_params(file, WhisperContextParameters::default());
        let context = context.map_err(|error| failed(error.to_string()))?;
        let state = context.create_state();
        let state = state.map_err(|error| failed(error.to_string()))?;
        let model = path.file_stem().unwrap_or_default().to_string_lossy();
        Ok(Self {
            state,
            threads: i32::try_from(threads).unwrap_or(i32::MAX),
            name: format!("{model} (whisper.cpp)"),
            is_multilingual: context.is_multilingual(),
        })
    }

    /// Decodes `audio` with `frames` encoder frames of context. `language` is one of Whisper's: its token begins the
    /// transcript of a model of many languages.
    fn decode(
        &mut self,
        audio: &[f32],
        frames: usize,
        language: &str,
    ) -> Result<Candidate, AsrError> {
        let mut params = FullParams::new(SamplingStrategy::Greedy { best_of: 1 });
        params.set_n_threads(self.threads);
        params.set_language(Some(language));
        params.set_audio_ctx(frames as i32);
        params.set_max_tokens(Limits::for_samples(audio.len()).tokens as i32);
        params.set_single_segment(true);
        params.set_no_timestamps(true);
        params.set_no_context(true);
        params.set_suppress_blank(true);
        params.set_suppress_nst(true);
        // No second try at a higher temperature: a caller is waiting.
        params.set_temperature_inc(0.0);
        params.set_print_progress(false);
        params.set_print_special(false);
        params.set_print_realtime(false);
        self.state.full(params, audio).map_err(failed)?;
        let mut candidate = Candidate {
            text: String::new(),
            tokens: Vec::new(),
            confidence: 0.0,
            no_speech: 0.0,
            marks: None,
            language: None,
        };
        let mut count = 0;
        for segment in self.state.as_iter() {
            candidate
                .text
                .push_str(&segment.to_str_lossy().map_err(failed)?);
            candidate.no_speech = candidate.no_speech.max(segment.no_speech_probability());
            for index in 0..segment.n_tokens() {
                let Some(token) = segment.get_token(index) else {
                    continue;
                };
                let data = token.token_data();
                candidate.tokens.push(data.id as u32);
                candidate.confidence += data.plog;
                count += 1;
            }
        }
        candidate.confidence /= count.max(1) as f32;
        Ok(candidate)
    }
}

impl Asr for WhisperCpp {
    fn name(&self) -> &str {
        &self.name
    }

    fn transcribe(&mut self, audio: &[f32]) -> Result<String, AsrError> {
        self.hear_with(audio, &Hints::default())
            .map(|heard| heard.text)
    }

    fn hear_with(&mut self, audio: &[f32], hints: &Hints) -> Result<Recognised, AsrError> {
        let language = hints.language.as_deref().filter(|tag| is_tag(tag));
        let spoken = match self.is_multilingual {
            true => known(language).unwrap_or_else(|| ENGLISH.to_owned()),
            false => {
                warn_of_only_english(&self.name, language);
                ENGLISH.to_owned()
            }
        };
        let audio = &audio[..audio.len().min(MAX_SAMPLES)];
        // Shorter audio than 1 s is refused.
        let mut padded = at_usual_level(audio).into_owned();
        padded.resize(audio.len().max(17_600), 0.0);
        let heard = with_retry(audio.len(), MIN_FRAMES, hints.partial, |frames| {
            self.decode(&padded, frames, &spoken)
        });
        heard.map(|heard| heard.text.into())
    }

    fn languages(&self) -> Vec<String> {
        if !self.is_multilingual {
            return vec![ENGLISH.to_owned()];
        }
        let known = (0..=whisper_rs::get_lang_max_id()).filter_map(whisper_rs::get_lang_str);
        known.map(str::to_owned).collect()
    }
}

/// Whisper's name of a language, if it knows it.
fn known(language: Option<&str>) -> Option<String> {
    let code = language.map(code);
    code.filter(|code| whisper_rs::get_lang_id(code).is_some())
}

fn failed(error: whisper_rs::WhisperError) -> AsrError {
    AsrError::Run(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Norwegian was heard as English.
    #[test]
    fn a_language_goes_by_the_name_that_whisper_has_for_it() {
        let known = |tag| known(Some(tag));
        assert_eq!(known("nb-NO").as_deref(), Some("no"));
        assert_eq!(known("fil").as_deref(), Some("tl"));
        assert_eq!(known("de-AT").as_deref(), Some("de"));
        assert_eq!(known("tlh"), None);
    }
}
