//! Splits replies and questions into words that can be compared.

use super::phrases::{ARTICLES, EMPTY, LISTING, PREPOSITIONS};
use crate::language::en::text::sentences;

/// The normalised words of a text, with amounts of money written out, since a transcript may use either form.
pub(super) fn words(text: &str) -> Vec<String> {
    let said = sentences(&text.replace('&', " and ")).join(" ");
    let said = said.replace("that'd ", "that would ");
    let said = said.replace("that'll ", "that will ");
    let mut words = Vec::new();
    for word in said.split_whitespace() {
        let word = word.trim_matches(['!', '"', '(', ')', '\'']);
        let symbol = word.chars().next().unwrap_or_default();
        let unit = match symbol {
            '$' => "dollars",
            '€' => "euros",
            '£' => "pounds",
            _ => {
                words.push(word.to_owned());
                continue;
            }
        };
        words.extend([word[symbol.len_utf8()..].to_owned(), unit.to_owned()]);
    }
    words.retain(|word| !word.is_empty());
    // "$12" is written out as "12 us dollars", too.
    let of_dollars: Vec<bool> = words
        .windows(2)
        .map(|pair| pair[0] == "us" && pair[1].starts_with("dollar"))
        .collect();
    let mut at = 0;
    words.retain(|_| {
        at += 1;
        !of_dollars.get(at - 1).copied().unwrap_or_default()
    });
    words
}

pub(super) fn is(words: &[&str], word: &str) -> bool {
    words.contains(&word)
}

pub(super) fn says_something(word: &str) -> bool {
    !is(EMPTY, word) && !is(PREPOSITIONS, word) && !is(ARTICLES, word) && !is(LISTING, word)
}

/// Whether two words are the same, also as "my" of the user and "your" of the agent.
pub(super) fn is_same(said: &str, asked: &str) -> bool {
    said == asked
        || matches!(
            (said, asked),
            ("my", "your") | ("me", "you") | ("mine", "yours")
        )
}
