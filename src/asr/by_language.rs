//! Two recognisers as one: the fast one for English, and one of many languages for all others.

use super::{Asr, AsrError, Hints, Recognised};
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

    fn hear_with(&mut self, audio: &[f32], hints: &Hints) -> Result<Recognised, AsrError> {
        let mut may_be_spoken = hints.language.iter().chain(&*hints.others);
        match may_be_spoken.all(|tag| base(tag) == ENGLISH) {
            true => self.english.hear_with(audio, hints),
            false => self.others.hear_with(audio, hints),
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

        fn hear_with(&mut self, _: &[f32], hints: &Hints) -> Result<Recognised, AsrError> {
            Ok(format!("{} {}", self.0, hints.keyterms.join(" ")).into())
        }
    }

    #[test]
    fn english_is_heard_by_the_fast_one_unless_another_language_may_be_spoken() {
        let mut asr = ByLanguage::new(Box::new(Named("fast")), Box::new(Named("many")));
        let mut heard = |language: Option<&str>, others: &[&str]| {
            let hints = Hints {
                language: language.map(str::to_owned),
                others: others.iter().map(|&tag| tag.to_owned()).collect(),
                keyterms: ["Siobhan".to_owned()].into(),
                ..Hints::default()
            };
            asr.hear_with(&[], &hints).unwrap().text
        };
        assert_eq!(heard(None, &[]), "fast Siobhan");
        assert_eq!(heard(Some("en-GB"), &["en"]), "fast Siobhan");
        assert_eq!(heard(Some("de"), &[]), "many Siobhan");
        assert_eq!(heard(None, &["de"]), "many Siobhan");
    }
}
