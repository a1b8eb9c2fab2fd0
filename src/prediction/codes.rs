//! Numbers and names with digits in them, as people say them: "order 48 213", "flight b a 117".

use crate::language::en::subject::stem;
use serde_json::Value;

/// Words of two letters that begin no code.
const WORDS: [&str; 30] = [
    "is", "it", "in", "on", "of", "to", "my", "at", "by", "me", "us", "we", "he", "do", "go", "no",
    "or", "so", "up", "an", "as", "be", "if", "am", "ok", "hi", "oh", "pm", "id", "nr",
];

/// The only code in normalised text, or the one after the parameter's own name, and its words.
pub(super) fn code(name: &str, text: &str) -> Option<(Value, String)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut codes: Vec<(usize, usize)> = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let end = end_of_code(&words, at);
        if end > at {
            codes.push((at, end));
        }
        at = end.max(at + 1);
    }
    let name = name.to_lowercase();
    let own: Vec<&str> = name.split(['_', '-']).map(stem).collect();
    let named = |(start, _): &&(usize, usize)| {
        let before = &words[start.saturating_sub(2)..*start];
        before
            .iter()
            .any(|word| own.contains(&stem(word)) || *word == "number")
    };
    let (start, end) = match codes.as_slice() {
        [only] => *only,
        several => {
            let mut named = several.iter().filter(named);
            let (first, None) = (named.next()?, named.next()) else {
                return None;
            };
            *first
        }
    };
    let said = &words[start..end];
    let value = said.concat().to_uppercase();
    let value = match said {
        [one] => (*one).to_owned(),
        _ => value,
    };
    Some((value.into(), said.join(" ")))
}

/// Where the code ends that begins at a word; there if none does.
fn end_of_code(words: &[&str], start: usize) -> usize {
    let mut end = start;
    while end < words.len() && is_spelt(words, end, end > start) {
        end += 1;
    }
    let digits = end;
    while end < words.len() && has_digits(words[end]) {
        // Letters and their digits may be one word: "ba117".
        let whole = words[end].contains(|c: char| c.is_ascii_alphabetic());
        end += 1;
        if whole {
            break;
        }
    }
    if end > digits { end } else { start }
}

/// Letters that are said one by one, or a short name in front of digits.
fn is_spelt(words: &[&str], at: usize, inside: bool) -> bool {
    let word = words[at];
    let letters = word.chars().all(|c| c.is_ascii_alphabetic());
    let next = words.get(at + 1).is_some_and(|next| {
        has_digits(next) || next.len() == 1 && next.chars().all(|c| c.is_ascii_alphabetic())
    });
    match word.len() {
        1 => letters && next && (inside || !matches!(word, "a" | "i")),
        2 => letters && !WORDS.contains(&word) && words.get(at + 1).is_some_and(|w| has_digits(w)),
        _ => false,
    }
}

/// Whether a word has digits and is neither a time, an amount nor an ordinal.
fn has_digits(word: &str) -> bool {
    let ordinary = word.ends_with("th")
        || word.ends_with("st")
        || word.ends_with("nd")
        || word.ends_with("rd")
        || word.ends_with("am")
        || word.ends_with("pm");
    let plain = word.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    plain && word.contains(|c: char| c.is_ascii_digit()) && !ordinary
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_read_as_they_are_said() {
        for (text, expected) in [
            ("where is my order 48213", Some("48213")),
            ("order number 48 213 please", Some("48213")),
            ("is flight ba117 on time", Some("ba117")),
            ("is flight b a 1 1 7 on time", Some("BA117")),
            ("has lh 441 landed", Some("LH441")),
            ("i have 2 questions about order 77", Some("77")),
            ("where is my order", None),
            ("the 3rd time today", None),
        ] {
            let found = code("order", text).map(|(value, _)| value);
            assert_eq!(found, expected.map(Value::from), "{text}");
        }
    }
}
