//! Whisper's special tokens, and the languages that a model knows.

use super::{Hints, detect};
use crate::language::{ENGLISH, code};
use tokenizers::Tokenizer;

/// The least vocabulary of a multilingual model, tokens. English models have one less.
pub(super) const MULTILINGUAL: usize = 51_865;

/// The special tokens of a model.
#[derive(Debug, Clone)]
pub(super) struct Tokens {
    /// The token in front of words that were said before; not every tokenizer has it.
    pub(super) before: Option<u32>,
    pub(super) start: u32,
    pub(super) end: u32,
    pub(super) transcribe: u32,
    pub(super) no_timestamps: u32,
    pub(super) no_speech: Option<u32>,
    /// The languages that it knows with their tokens; none for a model of English.
    languages: Vec<(String, u32)>,
}

/// The language in which a user is transcribed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Chosen {
    /// Its token; `None` for a model of English.
    token: Option<u32>,
    /// Its BCP 47 tag, if there was a choice.
    pub(super) tag: Option<String>,
}

impl Tokens {
    /// The special tokens of a tokenizer whose model has this vocabulary, tokens.
    pub(super) fn of(tokenizer: &Tokenizer, vocabulary: usize) -> Result<Self, String> {
        let id = |name: &str| tokenizer.token_to_id(&format!("<|{name}|>"));
        let needed = |name: &str| id(name).ok_or_else(|| format!("there is no token <|{name}|>"));
        let (start, transcribe) = (needed("startoftranscript")?, needed("transcribe")?);
        // The languages lie between them, and the task of translation before the other task.
        let between = start + 1..transcribe;
        let language = |token: u32| {
            let name = tokenizer.id_to_token(token)?;
            let code = name.strip_prefix("<|")?.strip_suffix("|>")?;
            (2..=3)
                .contains(&code.len())
                .then(|| (code.to_owned(), token))
        };
        Ok(Self {
            before: id("startofprev"),
            start,
            end: needed("endoftext")?,
            transcribe,
            no_timestamps: needed("notimestamps")?,
            no_speech: id("nospeech").or_else(|| id("nocaptions")),
            languages: match vocabulary >= MULTILINGUAL {
                true => between.filter_map(language).collect(),
                false => Vec::new(),
            },
        })
    }

    /// Whether the model knows other languages than English.
    pub(super) fn are_multilingual(&self) -> bool {
        !self.languages.is_empty()
    }

    /// The languages that the model knows.
    pub(super) fn languages(&self) -> Vec<String> {
        match self.are_multilingual() {
            true => self
                .languages
                .iter()
                .map(|(code, _)| code.clone())
                .collect(),
            false => vec![ENGLISH.to_owned()],
        }
    }

    /// The token of a language, if the model knows it.
    pub(super) fn language(&self, tag: &str) -> Option<u32> {
        let code = code(tag);
        let mut known = self.languages.iter();
        known
            .find(|(known, _)| *known == code)
            .map(|(_, token)| *token)
    }

    /// The language of audio of `samples` samples: the one so far, unless another one is clearly spoken. English if the
    /// model knows none of them. `logits` are those after the first token.
    pub(super) fn choose(&self, logits: &[f32], hints: &Hints, samples: usize) -> Chosen {
        let now = hints.language.as_deref().unwrap_or(ENGLISH);
        let Some(token) = self.language(now).or_else(|| self.language(ENGLISH)) else {
            return Chosen::default();
        };
        let known = |tag: &'_ String| self.language(tag).filter(|other| *other != token);
        let others: Vec<(&String, u32)> = hints
            .others
            .iter()
            .filter_map(|tag| Some((tag, known(tag)?)))
            .collect();
        if others.is_empty() {
            let (token, tag) = (Some(token), None);
            return Chosen { token, tag };
        }
        let logit = |token: u32| logits.get(token as usize).copied().unwrap_or(f32::MIN);
        let likely: Vec<f32> = others.iter().map(|(_, token)| logit(*token)).collect();
        let (token, tag) = match detect::other(logit(token), &likely, samples) {
            Some(at) => (others[at].1, others[at].0.clone()),
            None => (token, now.to_owned()),
        };
        let (token, tag) = (Some(token), Some(tag));
        Chosen { token, tag }
    }

    /// The tokens between the first one and the words.
    pub(super) fn task(&self, chosen: &Chosen) -> Vec<u32> {
        match chosen.token {
            Some(language) => vec![language, self.transcribe, self.no_timestamps],
            None => vec![self.no_timestamps],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::testing;

    fn tokens(vocabulary: usize) -> (Tokenizer, Tokens) {
        let file = testing::weights_and_runtime().join("whisper-tiny.en/tokenizer.json");
        let tokenizer = Tokenizer::from_file(file).unwrap();
        let tokens = Tokens::of(&tokenizer, vocabulary).unwrap();
        (tokenizer, tokens)
    }

    #[test]
    fn a_model_of_many_languages_is_told_which_one_is_spoken() {
        let (tokenizer, tokens) = tokens(MULTILINGUAL);
        let told = |language: Option<&str>| {
            let hints = language.map_or_else(Hints::default, Hints::language);
            tokens.task(&tokens.choose(&[], &hints, 16_000))
        };
        let token = |name| tokenizer.token_to_id(name).unwrap();
        let [task, plain] = [tokens.transcribe, tokens.no_timestamps];
        assert_eq!(told(Some("de-AT")), [token("<|de|>"), task, plain]);
        assert_eq!(told(None), [token("<|en|>"), task, plain]);
        assert_eq!(told(Some("tlh")), [token("<|en|>"), task, plain]);
        assert_eq!(told(Some("nb")), [token("<|no|>"), task, plain]);
        let known = tokens.languages();
        assert!(known.len() >= 98, "{known:?}");
        assert!(
            ["en", "de", "es", "haw"]
                .iter()
                .all(|code| known.iter().any(|one| one == code))
        );
    }

    /// As in Whisper large-v3, which knows Cantonese, too.
    #[test]
    fn a_hundredth_language_shifts_the_tokens_after_it() {
        let special = [
            "endoftext",
            "startoftranscript",
            "en",
            "su",
            "yue",
            "translate",
            "transcribe",
            "startoflm",
            "startofprev",
            "nospeech",
            "notimestamps",
        ];
        let ids = [50_257, 50_258, 50_259].into_iter().chain(50_357..50_365);
        let vocabulary: serde_json::Map<String, serde_json::Value> = (special.iter().zip(ids))
            .map(|(name, id)| (format!("<|{name}|>"), id.into()))
            .collect();
        let model = serde_json::json!({
            "type": "WordLevel", "vocab": vocabulary, "unk_token": "<|endoftext|>",
        });
        let tokenizer = serde_json::json!({"version": "1.0", "model": model}).to_string();
        let tokenizer: Tokenizer = tokenizer.parse().unwrap();
        let tokens = Tokens::of(&tokenizer, MULTILINGUAL + 1).unwrap();
        assert_eq!(tokens.languages(), ["en", "su", "yue"]);
        let chosen = tokens.choose(&[], &Hints::language("yue"), 16_000);
        assert_eq!(tokens.task(&chosen), [50_358, 50_360, 50_364]);
        let others = [tokens.before, tokens.no_speech];
        assert_eq!(others, [Some(50_362), Some(50_363)]);
    }

    #[test]
    fn a_model_of_english_is_told_nothing() {
        let (_, tokens) = tokens(MULTILINGUAL - 1);
        let hints = Hints {
            others: ["es".to_owned()].into(),
            ..Hints::language("de")
        };
        let chosen = tokens.choose(&[], &hints, 160_000);
        assert_eq!(tokens.task(&chosen), [tokens.no_timestamps]);
        assert_eq!(chosen, Chosen::default());
        assert_eq!(tokens.languages(), ["en"]);
    }

    #[test]
    fn only_an_allowed_language_that_is_clearly_spoken_is_detected() {
        let (_, tokens) = tokens(MULTILINGUAL);
        let mut logits = vec![0.0; MULTILINGUAL];
        let mut set = |tag: &str, logit| logits[tokens.language(tag).unwrap() as usize] = logit;
        set("en", 1.0);
        set("de", 6.0);
        // Not allowed, however likely.
        set("fr", 20.0);
        let chosen = |language: Option<&str>, others: &[&str], samples| {
            let hints = Hints {
                others: others.iter().map(|&tag| tag.to_owned()).collect(),
                ..language.map_or_else(Hints::default, Hints::language)
            };
            tokens.choose(&logits, &hints, samples).tag
        };
        let long = 3 * 16_000;
        assert_eq!(
            chosen(None, &["de-DE", "es"], long).as_deref(),
            Some("de-DE")
        );
        // One word is not enough.
        assert_eq!(
            chosen(None, &["de-DE", "es"], 12_000).as_deref(),
            Some("en")
        );
        // The language so far stays unless another one is clearly spoken.
        assert_eq!(
            chosen(Some("de"), &["en", "es"], long).as_deref(),
            Some("de")
        );
        // There is no choice.
        assert_eq!(chosen(Some("de"), &["de-AT"], long), None);
        assert_eq!(chosen(None, &[], long), None);
        assert_eq!(chosen(None, &["tlh"], long), None);
    }
}
