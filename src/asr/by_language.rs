//! Two recognisers as one: the fast one for English, and one of many languages for all others.

use super::{Asr, AsrError, Recognised};
use crate::language::{ENGLISH, base};

/// Hears English with one recogniser and other languages with another.
pub struct ByLanguage {
    english: Box<dyn Asr>,
    others: Box<dyn Asr>,
    name: String,
}

impl ByLanguage {
    /// English is heard by `english` unless another language may be spoken instead.
    pub fn new(english: Box<dyn Asr>, others: Box<dyn Asr>) -> Self {
        let name = format!(
            "{} for English, {} for other languages",
            english.name(),
            others.name()
        );
        Self {
            english,
            others,
            name,
        }
    }
}

impl Asr for ByLanguage {
    fn name(&self) -> &str {
        &self.name
    }

    fn languages(&self) -> Vec<String> {
        self.others.languages()
    }

    fn transcribe(&mut self, audio: &[f32]) -> Result<String, AsrError> {
        self.english.transcribe(audio)
    }

    fn hear(&mut self, audio: &[f32]) -> Result<Recognised, AsrError> {
        self.english.hear(audio)
    }

    fn hear_in(&mut self, audio: &[f32], language: Option<&str>) -> Result<Recognised, AsrError> {
        self.hear_among(audio, language, &[])
    }

    fn hear_among(
        &mut self,
        audio: &[f32],
        language: Option<&str>,
        others: &[String],
    ) -> Result<Recognised, AsrError> {
        let is_english = |tag: &str| base(tag) == ENGLISH;
        let only = language.is_none_or(is_english) && others.iter().all(|tag| is_english(tag));
        match only {
            true => self.english.hear_in(audio, language),
            false => self.others.hear_among(audio, language, others),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Named(&'static str);

    impl Asr for Named {
        fn name(&self) -> &str {
            self.0
        }

        fn transcribe(&mut self, _: &[f32]) -> Result<String, AsrError> {
            Ok(self.0.into())
        }
    }

    #[test]
    fn english_is_heard_by_the_fast_one_unless_another_language_may_be_spoken() {
        let mut asr = ByLanguage::new(Box::new(Named("fast")), Box::new(Named("many")));
        let mut heard = |language, others: &[&str]| {
            let others: Vec<String> = others.iter().map(|&tag| tag.to_owned()).collect();
            asr.hear_among(&[], language, &others).unwrap().text
        };
        assert_eq!(heard(None, &[]), "fast");
        assert_eq!(heard(Some("en-GB"), &["en"]), "fast");
        assert_eq!(heard(Some("de"), &[]), "many");
        assert_eq!(heard(None, &["de"]), "many");
    }
}
