//! Where sentences end, and which words show that a sentence goes on.

/// Words before which a long clause may be cut.
pub(crate) const CONJUNCTIONS: &[&str] = &[
    "and", "but", "or", "so", "because", "which", "that", "when", "while", "if", "then", "where",
    "who", "since", "until", "with", "for", "from", "to", "in", "on", "at",
];

/// Abbreviations whose dot never ends a sentence.
const ALWAYS_GO_ON: &[&str] = &[
    "mr", "mrs", "ms", "dr", "prof", "st", "mt", "gen", "gov", "sen", "rep", "capt", "lt", "sgt",
    "vs", "e.g", "i.e", "approx", "fig",
];

/// Abbreviations whose dot ends a sentence only if the next character looks like the beginning of one.
const MAY_GO_ON: &[&str] = &[
    "a.m", "p.m", "etc", "inc", "ltd", "co", "corp", "jr", "sr", "dept", "est", "no", "vol", "min",
    "max", "ave", "blvd",
];

/// Words that cannot end an English sentence.
const LEADING_ON: &[&str] = &[
    "a", "about", "an", "and", "at", "because", "between", "but", "by", "for", "from", "if", "in",
    "into", "is", "like", "my", "of", "or", "so", "than", "that", "the", "their", "then", "to",
    "uh", "um", "until", "what's", "when", "where", "which", "with", "your",
];

/// Of those, words that can end a question, if the transcript ends with a question mark.
const ENDS_A_QUESTION: &[&str] = &[
    "about", "at", "by", "for", "from", "in", "into", "is", "like", "of", "that", "to", "with",
];

/// Whether a sentence ends at the end of a text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Yes.
    Sentence,
    /// It ends with an abbreviation that may also end a sentence; the next character decides.
    Perhaps,
    /// No.
    None,
}

/// Classifies the end of `text`, which is followed by a space.
pub(crate) fn ending(text: &str) -> Ending {
    let text = unclosed(text);
    if text.ends_with(['!', '?', '…']) {
        return Ending::Sentence;
    }
    let Some(text) = text.strip_suffix('.') else {
        return Ending::None;
    };
    let last = text
        .rsplit([' ', '—', '(', '"', '“'])
        .next()
        .unwrap_or(text);
    let word = last.to_lowercase();
    let initials = last.chars().all(|c| c.is_uppercase() || c == '.') && last != "I";
    let number_alone = last.len() == text.trim_start().len() && is_item_number(last);
    if last.ends_with('.') {
        return Ending::Sentence;
    }
    if ALWAYS_GO_ON.contains(&word.as_str()) || number_alone || is_initials(last, initials) {
        return Ending::None;
    }
    if MAY_GO_ON.contains(&word.as_str()) {
        return Ending::Perhaps;
    }
    Ending::Sentence
}

/// "J" of "J. Smith", "U.S" of "U.S.".
fn is_initials(word: &str, capitals: bool) -> bool {
    let mut letters = word.split('.');
    capitals && letters.all(|letter| letter.chars().count() == 1)
}

/// Whether `word` is the number of a list item: "1" of "1. Milk".
pub(crate) fn is_item_number(word: &str) -> bool {
    !word.is_empty() && word.len() <= 2 && word.bytes().all(|b| b.is_ascii_digit())
}

/// `text` without closing quotes and brackets after a mark.
pub(crate) fn unclosed(text: &str) -> &str {
    text.trim_end_matches(['"', '\'', '”', '’', ')', ']', '»'])
}

/// Whether a transcript ends with a word that cannot end a sentence, such as "set a timer for".
pub(crate) fn reads_unfinished(text: &str) -> bool {
    let text = text.trim_end();
    if text.ends_with("...") || text.ends_with('…') || text.ends_with(',') || text.ends_with('-')
    {
        return true;
    }
    let question = text.ends_with('?');
    let last = text
        .rsplit(char::is_whitespace)
        .next()
        .unwrap_or_default()
        .trim_matches(|c: char| !c.is_alphanumeric())
        .to_lowercase();
    LEADING_ON.contains(&last.as_str()) && !(question && ENDS_A_QUESTION.contains(&last.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_shows_whether_a_sentence_is_unfinished() {
        for text in [
            "Set a timer for",
            "I want to go to the",
            "Well, um...",
            "My number is,",
        ] {
            assert!(reads_unfinished(text), "{text}");
        }
        for text in [
            "What is it for?",
            "Yes.",
            "",
            "Set a timer for ten minutes.",
            "Stop it",
        ] {
            assert!(!reads_unfinished(text), "{text}");
        }
    }
}
