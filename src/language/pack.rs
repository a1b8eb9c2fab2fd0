//! Language packs, and how they are found by a BCP 47 tag.

use super::en::assent::{Asked, Reply};
use super::en::endings::Marks;
use super::fillers::Filler;
use super::listening::Listening;
use super::sentences::{QUESTION_MARKS, Sentences};
use super::spoken::Phrase;
use super::wording::Wording;
use super::{de, en, es, unknown};
use serde_json::{Map, Value};
use std::fmt;
use std::time::Duration;

/// The language of everything that names none.
pub const ENGLISH: &str = "en";

/// All rules of one language.
pub struct Pack {
    /// Its BCP 47 tag, without a region; `und` for all languages that have no pack.
    pub tag: &'static str,
    /// Its name in English; empty for all languages that have no pack.
    pub name: &'static str,
    /// The greeting of telephone calls, unless the operator has another.
    pub hello: &'static str,
    /// Says that the call is recorded.
    pub recorded: &'static str,
    /// The fixed phrases, as TOML.
    pub(crate) phrases: &'static str,
    pub(crate) sentences: &'static Sentences,
    /// The built-in assistant in this language; `None` for English, which has more, and without a pack.
    pub(crate) wording: Option<&'static Wording>,
    pub(super) listening: &'static Listening,
    pub(super) agrees: fn(&str) -> bool,
    pub(super) reply: fn(&str, Asked<'_>) -> Reply,
    pub(super) finished: fn(&str, Option<Marks>) -> Option<f32>,
    pub(super) filler: fn(&str) -> Option<Filler>,
    pub(super) normalise: fn(&str) -> String,
    pub(super) question: fn(&str, &str) -> String,
    pub(super) spoken: fn(&str, usize) -> Vec<Phrase>,
}

/// The packs.
static PACKS: [&Pack; 3] = [&en::PACK, &de::PACK, &es::PACK];

/// All packs.
pub fn packs() -> impl Iterator<Item = &'static Pack> {
    PACKS.iter().copied()
}

/// The primary language of a BCP 47 tag, in lower case: `de` of `de-AT`.
pub fn base(tag: &str) -> String {
    let primary = tag.split(['-', '_']).next().unwrap_or_default();
    primary.to_ascii_lowercase()
}

/// The primary language of a BCP 47 tag as recognisers and voices call it: `no` for `nb-NO`, mostly that of ISO 639-1.
pub fn code(tag: &str) -> String {
    match base(tag).as_str() {
        "nb" => "no".into(),
        "fil" => "tl".into(),
        "iw" => "he".into(),
        other => other.to_owned(),
    }
}

/// Whether this looks like a BCP 47 tag: a primary language of two or three letters, then subtags.
pub fn is_tag(text: &str) -> bool {
    let mut subtags = text.split('-');
    let primary = subtags.next().unwrap_or_default();
    let is_primary =
        (2..=3).contains(&primary.len()) && primary.bytes().all(|b| b.is_ascii_alphabetic());
    let is_subtag =
        |tag: &str| (1..=8).contains(&tag.len()) && tag.bytes().all(|b| b.is_ascii_alphanumeric());
    is_primary && subtags.all(is_subtag)
}

/// The pack of a BCP 47 tag: English if there is no tag, and one without words if there is no pack.
pub fn pack(tag: Option<&str>) -> &'static Pack {
    let Some(tag) = tag else {
        return &en::PACK;
    };
    let base = base(tag);
    let found = PACKS.iter().find(|pack| pack.tag == base);
    found.copied().unwrap_or(&unknown::PACK)
}

impl Pack {
    /// Whether this is English.
    pub fn is_english(&self) -> bool {
        self.tag == ENGLISH
    }

    /// Whether `text` has words that only show that somebody listens, and no others.
    pub(crate) fn only_listens(&self, text: &str) -> bool {
        self.listening
            .is_all_of(&self.normalise(text), is_question(text))
    }

    /// Whether `text` is politeness and nothing else: "Please."
    pub(crate) fn is_politeness(&self, text: &str) -> bool {
        self.listening
            .is_politeness(&self.normalise(text), is_question(text))
    }

    /// Whether `text` has the words of `before`, with other marks between them or politeness behind them.
    pub(crate) fn adds_nothing(&self, before: &str, text: &str) -> bool {
        let (before, text) = (bare_words(before), bare_words(text));
        let added = text.strip_prefix(before.as_slice());
        added.is_some_and(|added| {
            let added = added.join(" ");
            // "C# please": a mark may be spoken.
            let is_plain = added.chars().all(|c| c.is_alphabetic() || c == ' ');
            added.is_empty() || (is_plain && self.listening.is_politeness(&added, false))
        })
    }

    /// Whether `text`, after any such words, begins with a word that takes the turn.
    pub(crate) fn takes_turn(&self, text: &str) -> bool {
        self.listening.yields_to(&self.normalise(text))
    }

    /// Whether `text` is agreement and nothing else.
    pub(crate) fn agrees(&self, text: &str) -> bool {
        (self.agrees)(text)
    }

    /// Classifies `text` as the answer to a question.
    pub(crate) fn reply(&self, text: &str, asked: Asked<'_>) -> Reply {
        (self.reply)(text, asked)
    }

    /// The probability, 0..1, that these words are finished, with the punctuation that the recogniser expects after
    /// them.
    /// `None` if the language has no rule for it: then silence alone ends the turn.
    pub(crate) fn finished(&self, text: &str, marks: Option<Marks>) -> Option<f32> {
        (self.finished)(text, marks)
    }

    /// Whether a clause says nothing, and may be left unsaid when the result is there: "Okay.", "One moment.", but not
    /// "Yes.", which answers a question.
    pub(crate) fn is_filler(&self, clause: &str) -> bool {
        (self.filler)(clause).is_some()
    }

    /// Whether a clause only announces work. "Okay." does not: it may be an answer.
    pub(crate) fn announces(&self, clause: &str) -> bool {
        (self.filler)(clause) == Some(Filler::Announces)
    }

    /// A transcript in the form in which two are compared.
    pub(crate) fn normalise(&self, text: &str) -> String {
        (self.normalise)(text)
    }

    /// The question before a call of a tool that has none of its own. `name` and `list` are its name and its
    /// arguments in words.
    pub(crate) fn question(
        &self,
        tool: &str,
        arguments: &Map<String, Value>,
        (name, list): (&str, &str),
    ) -> String {
        let known = self
            .wording
            .and_then(|wording| (wording.question)(tool, arguments));
        known.unwrap_or_else(|| (self.question)(name, list))
    }

    /// The announcement of a timer of this length and label that rings; `None` for English and without a pack.
    pub(crate) fn rings(&self) -> Option<fn(Duration, Option<&str>) -> String> {
        Some(self.wording?.rings)
    }

    /// Cuts `text` at its marks into spoken phrases of at most `most_words` words.
    pub(crate) fn spoken(&self, text: &str, most_words: usize) -> Vec<Phrase> {
        (self.spoken)(text, most_words)
    }
}

/// The words in lower case, without the marks of sentences around them. Others may be spoken: "C#", "50 €", "5!".
fn bare_words(text: &str) -> Vec<String> {
    const MARKS: [char; 7] = ['.', ',', ';', ':', '?', '…', '¿'];
    let words = text.split_whitespace();
    let words = words.map(|word| word.trim_matches(MARKS).to_lowercase());
    words.filter(|word| !word.is_empty()).collect()
}

fn is_question(text: &str) -> bool {
    text.trim_end().ends_with(QUESTION_MARKS)
}

impl fmt::Debug for Pack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pack({:?})", self.tag)
    }
}

impl PartialEq for Pack {
    fn eq(&self, other: &Self) -> bool {
        self.tag == other.tag
    }
}

impl Eq for Pack {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_have_the_form_of_bcp_47() {
        for tag in ["de", "es-MX", "zh-Hant-TW", "yue"] {
            assert!(is_tag(tag), "{tag}");
        }
        for text in ["", "german", "de_DE", "de-", "d", "de-superlongsubtag"] {
            assert!(!is_tag(text), "{text}");
        }
    }

    #[test]
    fn a_pack_is_found_by_its_primary_language() {
        for tag in [None, Some("en"), Some("en-US"), Some("EN_gb")] {
            assert!(pack(tag).is_english(), "{tag:?}");
        }
        assert_eq!(pack(Some("tlh")).tag, "und");
        assert_eq!(pack(Some("")).tag, "und");
    }

    #[test]
    fn without_a_pack_no_words_decide_anything() {
        let none = pack(Some("tlh"));
        assert!(!none.agrees("yes"));
        assert!(none.only_listens("Mm-hm.") && !none.only_listens("yes"));
        assert_eq!(none.finished("What time is it?", None), None);
        assert!(!none.is_filler("Let me see."));
        assert_eq!(none.spoken("3 von 4", 12)[0].words, "3 von 4");
        assert_eq!(none.normalise("HIja', jIyaj!"), "hija' jiyaj");
    }
}
