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
