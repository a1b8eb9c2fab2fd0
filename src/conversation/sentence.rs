//! Words and sentences of the agent's clauses.

use crate::language::sentences::SENTENCE_ENDS;
use crate::time::Micros;

/// How long English is spoken for each of its characters, spaces and marks included: 15 a second.
/// Our own voice, joe, says the phrases of `prompts/phrases.toml` at 17 (`undertone say`); not to
/// take words for heard that are not, an estimate had better be slow.
const CHARACTER: Micros = Micros::from_ms(66);

/// How long it takes to say `text`, about.
pub fn spoken_length(text: &str) -> Micros {
    Micros(text.chars().count() as u64 * CHARACTER.0)
}

/// The words of a text.
pub(super) fn words(text: &str) -> usize {
    text.split_whitespace().count()
}

/// Whether a clause is the last of its sentence.
pub(super) fn ends_sentence(clause: &str) -> bool {
    let closing = ['"', '”', '’', '\'', ')', ']', '»'];
    let bare = clause.trim_end_matches(closing);
    bare.ends_with(['.', '!', '?', '…']) || bare.ends_with(SENTENCE_ENDS)
}

/// The letters and digits of a text, in lower case.
pub(super) fn bare(text: &str) -> String {
    letters(text).map(|(_, c)| c).collect()
}

/// Letters and digits of a text in lower case, each with the end, in bytes, of itself and the punctuation
/// right after it.
pub(super) fn letters(text: &str) -> impl Iterator<Item = (usize, char)> {
    let letters = text.char_indices().filter(|(_, c)| c.is_alphanumeric());
    letters.flat_map(|(at, c)| {
        let behind = &text[at + c.len_utf8()..];
        let marks = behind.find(|c: char| c.is_whitespace() || c.is_alphanumeric());
        let end = text.len() - behind.len() + marks.unwrap_or(behind.len());
        c.to_lowercase().map(move |c| (end, c))
    })
}
