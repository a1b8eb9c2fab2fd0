//! Words and sentences of the agent's clauses.

/// The words of a text.
pub(super) fn words(text: &str) -> usize {
    text.split_whitespace().count()
}

/// Whether a clause is the last of its sentence.
pub(super) fn ends_sentence(clause: &str) -> bool {
    let closing = ['"', '”', '’', '\'', ')', ']', '»'];
    let bare = clause.trim_end_matches(closing);
    bare.ends_with(['.', '!', '?', '…', '。', '！', '？'])
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
