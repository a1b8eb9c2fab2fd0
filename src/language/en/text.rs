//! Normalises transcripts and typed text.

use super::numbers;
use regex::{Regex, RegexSet};
use std::sync::LazyLock;

/// Rewrite rules for lower-case text with plain apostrophes: pattern, replacement.
const REWRITES: &[(&str, &str)] = &[
    (
        r"\b(what|where|who|how|when|that|there|here|it|he|she)'?s\b",
        "$1 is",
    ),
    (r"\b(don)'?t\b", "do not"),
    (r"\b(doesn)'?t\b", "does not"),
    (r"\b(didn)'?t\b", "did not"),
    (r"\b(won)'t\b", "will not"),
    (r"\b(can)'?t\b|\bcan not\b", "cannot"),
    (
        r"\b(is|are|was|were|would|should|could|have|has|had|need)n'?t\b",
        "$1 not",
    ),
    (r"\b(i)'?m\b", "i am"),
    (r"\b(you|we|they)'re\b", "$1 are"),
    (r"\b(i|you|we|they)'d\b", "$1 would"),
    (r"\b(i|you|we|they)'ve\b", "$1 have"),
    (r"\b(i|you|we|they|it)'ll\b", "$1 will"),
    (r"\blet'?s\b", "let us"),
    // Recognisers write the past tense.
    (r"\bred (my|me|out)\b", "read $1"),
    (r"\b(gonna)\b", "going to"),
    (r"\b(wanna)\b", "want to"),
    (r"\bo'?clock\b", "oclock"),
    (r"(\d),(\d{3})\b", "$1$2"),
    (r"(\d),(\d{3})\b", "$1$2"),
    (
        r"(\d)-(second|minute|hour|day|min|sec|hr|mile|inch|foot|kilometer|kilometre)",
        "$1 $2",
    ),
    (r"([a-z])-([a-z])", "$1 $2"),
    (r"([a-z])-([a-z])", "$1 $2"),
];

/// Words before a request that do not change it.
const FILLERS: &str = r"^(?:(?:um+|uh+|er+|hmm+|well|so|okay|ok|alright|all right|right|hey|hi|hello|oh|yeah|yes|sure|great|thanks|thank you|please|now|and|also|then|actually|sorry|excuse me|quick question|undertone|computer|assistant) )+";

static RULES: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    REWRITES
        .iter()
        .filter_map(|(from, to)| Some((Regex::new(from).ok()?, *to)))
        .collect()
});

/// Finds the rules that match. A sentence needs one or two of them; to try all would take longer than the
/// rest of a rule-based prediction.
static NEEDED: LazyLock<Option<RegexSet>> =
    LazyLock::new(|| RegexSet::new(REWRITES.iter().map(|(from, _)| from)).ok());

fn rewritten(text: String) -> String {
    let Some(needed) = NEEDED.as_ref() else {
        return text;
    };
    needed
        .matches(&text)
        .into_iter()
        .filter_map(|at| RULES.get(at))
        .fold(text, |text, (from, to)| {
            from.replace_all(&text, *to).into_owned()
        })
}

/// Normalises a text: lower case, contractions written out, number words as digits, and no punctuation except
/// in numbers and arithmetic. The result is one line in which sentences run together.
pub fn normalise(text: &str) -> String {
    let lower = text
        .to_lowercase()
        .replace(['’', '‘', '`'], "'")
        .replace(['–', '—'], " ");
    let lower = dotted(&lower);
    let rewritten = rewritten(lower);
    let kept: String = rewritten
        .chars()
        .map(|c| if is_kept(c) { c } else { ' ' })
        .collect();
    let words = kept
        .split_whitespace()
        .map(|word| word.trim_end_matches('.').trim_matches('\''));
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    numbers::digits(&words.join(" "))
}

/// The normalised sentences of an utterance, without empty ones.
pub fn sentences(text: &str) -> Vec<String> {
    split(text)
        .into_iter()
        .map(|part| normalise(&part))
        .filter(|part| !part.is_empty())
        .collect()
}

/// A normalised sentence without leading words such as "um", "okay" and "please".
pub fn without_fillers(sentence: &str) -> &str {
    static START: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(FILLERS).ok());
    let start = START.as_ref().and_then(|start| start.find(sentence));
    start.map_or(sentence, |found| &sentence[found.end()..])
}

fn is_kept(c: char) -> bool {
    c.is_alphanumeric() || "'.+-*/^%$()!=°×÷€£\"".contains(c)
}

/// Removes the dots of abbreviations such as "d.c.", "p.m." and "st.".
fn dotted(text: &str) -> String {
    static LETTERS: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"\b([a-z])\.([a-z])\.(?:([a-z])\.)?").ok());
    if !text.contains('.') {
        return text.to_owned();
    }
    let text = match LETTERS.as_ref() {
        Some(letters) => letters.replace_all(text, "$1$2$3 ").into_owned(),
        None => text.to_owned(),
    };
    text.replace("st. ", "st ").replace("mt. ", "mt ")
}

fn split(text: &str) -> Vec<String> {
    let text = dotted_keeping_case(text);
    let mut parts = vec![String::new()];
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let ends = matches!(letter, '.' | '?' | '!' | ';' | '\n')
            && letters.peek().is_none_or(|next| next.is_whitespace());
        if ends {
            parts.push(String::new());
        } else if let Some(last) = parts.last_mut() {
            last.push(letter);
        }
    }
    parts
}

fn dotted_keeping_case(text: &str) -> String {
    dotted(&text.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_compiles() {
        assert_eq!(RULES.len(), REWRITES.len());
        assert!(NEEDED.is_some());
        assert_eq!(
            without_fillers("um okay so what time is it"),
            "what time is it"
        );
    }

    #[test]
    fn normalises_spellings() {
        for (text, expected) in [
            ("What's the time?", "what is the time"),
            ("Whats the time in Sydney", "what is the time in sydney"),
            (
                "Don't set a ten-minute timer!",
                "do not set a 10 minute timer!",
            ),
            ("10-minute timer", "10 minute timer"),
            ("Twenty-one plus 2.5.", "21 plus 2.5"),
            (
                "What time is it in Washington, D.C.?",
                "what time is it in washington dc",
            ),
            ("It costs $1,200,000", "it costs $1200000"),
        ] {
            assert_eq!(
                normalise(text).trim_end_matches('!'),
                expected.trim_end_matches('!'),
                "{text}"
            );
        }
    }

    #[test]
    fn splits_sentences_but_not_abbreviations() {
        assert_eq!(
            sentences("Hello. What time is it in St. Louis? It's 2.5 miles."),
            ["hello", "what time is it in st louis", "it is 2.5 miles"]
        );
        assert_eq!(sentences("in the U.S. right now"), ["in the us right now"]);
    }
}
