//! Fixed phrases that need no language model: apologies, fillers, goodbyes.

use crate::language::{Pack, pack, packs};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// Those of each language that has a pack, by its tag.
static EMBEDDED: LazyLock<BTreeMap<&'static str, Phrases>> = LazyLock::new(|| {
    let phrases = packs().filter_map(|pack| Some((pack.tag, Phrases::load(pack, None).ok()?)));
    phrases.collect()
});

/// The key of their language.
const LANGUAGE: &str = "language";
/// The longest phrase in characters: about fifteen seconds of speech.
const MAX_CHARS: usize = 240;

/// The fixed phrases, as spoken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phrases {
    /// Their language, a BCP 47 tag; English if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// The language model failed.
    pub llm_failed: String,
    /// The user's words could not be transcribed.
    pub asr_failed: String,
    /// The voice failed.
    pub tts_failed: String,
    /// A tool takes a long time.
    pub still_working: String,
    /// A tool takes about a second more.
    #[serde(default = "moment_more")]
    pub moment_more: String,
    /// A tool takes half a second more.
    #[serde(default = "one_moment")]
    pub one_moment: String,
    /// The user has been silent for some time.
    pub still_there: String,
    /// The user declined a call by key or click.
    pub declined: String,
    /// The agent ends the conversation without words of its own.
    pub goodbye: String,
    /// The session was idle for too long.
    pub goodbye_idle: String,
    /// The caller on the telephone cannot be heard.
    #[serde(default = "cannot_hear")]
    pub cannot_hear: String,
    /// The session reached its maximum length.
    pub goodbye_too_long: String,
    /// Nobody answered where the caller was transferred. The telephone provider says it.
    #[serde(default = "nobody_answers")]
    pub nobody_answers: String,
    /// There is no place for the call. The telephone provider says it.
    #[serde(default = "lines_busy")]
    pub lines_busy: String,
}

/// For recordings that were made before there was this phrase.
fn moment_more() -> String {
    Phrases::default().moment_more
}

/// For recordings that were made before there was this phrase.
fn one_moment() -> String {
    Phrases::default().one_moment
}

/// For recordings that were made before there was this phrase.
fn cannot_hear() -> String {
    Phrases::default().cannot_hear
}

/// For recordings that were made before there was this phrase.
fn nobody_answers() -> String {
    Phrases::default().nobody_answers
}

/// For recordings that were made before there was this phrase.
fn lines_busy() -> String {
    Phrases::default().lines_busy
}

/// An error of the configured phrases.
#[derive(Debug, thiserror::Error)]
pub enum PhrasesError {
    /// The file cannot be read.
    #[error("cannot read the phrases {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The file is not TOML, or a key is unknown or not text.
    #[error("phrases {file}: {reason}")]
    Syntax {
        /// The file.
        file: String,
        /// The position and the problem.
        reason: String,
    },
    /// A phrase cannot be spoken.
    #[error("phrases {file}: {key} {reason}")]
    Phrase {
        /// The file.
        file: String,
        /// The phrase's key.
        key: String,
        /// The problem.
        reason: String,
    },
}

impl Phrases {
    /// Loads the embedded phrases of a language, replaced by those in the file at `path`.
    ///
    /// # Errors
    /// The file cannot be read, is not TOML with known keys, or has a phrase that is empty or longer than 240
    /// characters.
    pub fn load(language: &Pack, path: Option<&Path>) -> Result<Self, PhrasesError> {
        let mut embedded = parse("phrases.toml", language.phrases)?;
        if !language.is_english() {
            embedded.insert(LANGUAGE.into(), language.tag.into());
        }
        let Some(path) = path else {
            return read("phrases.toml", embedded);
        };
        let text = std::fs::read_to_string(path).map_err(|source| PhrasesError::Read {
            path: path.to_owned(),
            source,
        })?;
        let file = path.display().to_string();
        let mut table = embedded;
        let own = parse(&file, &text)?;
        if own.contains_key(LANGUAGE) {
            let (key, reason) = (LANGUAGE.to_owned(), "is set by session.language".to_owned());
            return Err(PhrasesError::Phrase { file, key, reason });
        }
        table.extend(own);
        read(&file, table)
    }

    /// The embedded phrases of a language.
    pub fn of(language: &Pack) -> Option<&'static Self> {
        EMBEDDED.get(language.tag)
    }

    /// Whether they are in this language, for which they were chosen if it has no pack.
    pub fn are_in(&self, language: &Pack) -> bool {
        pack(self.language.as_deref()) == language
    }

    /// All phrases that sessions say, to be synthesised in advance.
    pub fn all(&self) -> [&str; 12] {
        [
            &self.llm_failed,
            &self.asr_failed,
            &self.tts_failed,
            &self.still_working,
            &self.moment_more,
            &self.one_moment,
            &self.still_there,
            &self.declined,
            &self.goodbye,
            &self.goodbye_idle,
            &self.cannot_hear,
            &self.goodbye_too_long,
        ]
    }
}

impl Default for Phrases {
    fn default() -> Self {
        let english = Self::of(pack(None));
        english.expect("the embedded phrases are valid").clone()
    }
}

fn parse(file: &str, text: &str) -> Result<toml::Table, PhrasesError> {
    text.parse().map_err(|error: toml::de::Error| {
        let at = error.span().map_or(0, |span| span.start.min(text.len()));
        let line = text[..at].matches('\n').count() + 1;
        syntax(file, format!("line {line}: {}", error.message()))
    })
}

fn read(file: &str, table: toml::Table) -> Result<Phrases, PhrasesError> {
    for (key, value) in &table {
        let has_words = key != LANGUAGE;
        if let Some(reason) = value.as_str().filter(|_| has_words).and_then(flaw) {
            return Err(PhrasesError::Phrase {
                file: file.to_owned(),
                key: key.clone(),
                reason,
            });
        }
    }
    table
        .try_into()
        .map_err(|error: toml::de::Error| syntax(file, error.message().to_owned()))
}

fn flaw(text: &str) -> Option<String> {
    if text.trim().is_empty() {
        Some("is empty".into())
    } else if text.chars().count() > MAX_CHARS {
        Some(format!("is longer than {MAX_CHARS} characters"))
    } else {
        None
    }
}

fn syntax(file: &str, reason: String) -> PhrasesError {
    PhrasesError::Syntax {
        file: file.to_owned(),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(text: &str) -> Result<Phrases, PhrasesError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Phrases::load(pack(None), Some(file.path()))
    }

    #[test]
    fn the_embedded_phrases_are_valid() {
        let phrases = Phrases::load(pack(None), None).unwrap();
        assert_eq!(phrases.asr_failed, "Sorry, could you say that again?");
    }

    /// A phrase that a pack lacks would be English.
    #[test]
    fn every_pack_has_every_phrase() {
        let keys = |pack: &Pack| -> Vec<String> {
            let phrases = parse("phrases.toml", pack.phrases).unwrap();
            phrases.keys().cloned().collect()
        };
        let english = keys(pack(None));
        for pack in packs() {
            assert_eq!(keys(pack), english, "{}", pack.tag);
        }
    }

    #[test]
    fn a_file_replaces_what_it_names() {
        let phrases = with("asr_failed = 'Pardon?'").unwrap();
        assert_eq!(phrases.asr_failed, "Pardon?");
        assert_eq!(phrases.llm_failed, Phrases::default().llm_failed);
    }

    #[test]
    fn errors_name_the_mistake() {
        let error = |text| with(text).unwrap_err().to_string();
        assert!(error("asr_faild = 'x'").contains("asr_faild"));
        assert!(error("asr_failed = ''").contains("asr_failed is empty"));
        assert!(error("asr_failed = 3").contains("string"));
        assert!(error("asr_failed =").contains("line 1"));
        assert!(
            Phrases::load(pack(None), Some(Path::new("/none")))
                .unwrap_err()
                .to_string()
                .contains("/none")
        );
    }
}
