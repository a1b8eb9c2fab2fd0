//! Written text to spoken words, for all languages: rules that rewrite what espeak-ng would get wrong, and phrases
//! between marks.

use regex::{Captures, Regex};

/// Words up to a punctuation mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Phrase {
    /// Pronounceable words separated by spaces; the only marks inside are hyphens, apostrophes, and those of numbers.
    pub(crate) words: String,
    /// One of `. , ? ! : ;`, or `None` if the text was cut without a mark.
    pub(crate) mark: Option<char>,
}

/// How a rule says the text that it matched.
pub(super) type Say = fn(&Captures<'_>) -> String;

/// Patterns and how to say them. Each is applied to all of a text, in their order.
pub(super) struct Rules(Vec<(Regex, Say)>);

impl Rules {
    /// Rules with these patterns. An invalid regular expression is left out; in tests it panics.
    pub(super) fn new(rules: impl IntoIterator<Item = (impl AsRef<str>, Say)>) -> Self {
        let compiled = rules.into_iter().filter_map(|(pattern, say)| {
            let pattern = Regex::new(pattern.as_ref());
            assert!(pattern.is_ok() || !cfg!(test), "{pattern:?}");
            Some((pattern.ok()?, say))
        });
        Self(compiled.collect())
    }

    /// `text` as it is said.
    pub(super) fn applied(&self, text: &str) -> String {
        let mut spoken = text.replace(['’', '‘'], "'").replace('−', "-");
        for (pattern, say) in &self.0 {
            if pattern.is_match(&spoken) {
                spoken = pattern.replace_all(&spoken, say).into_owned();
            }
        }
        spoken
    }
}

/// The address of a page with what is before and after its name, in the group 1.
pub(super) const PAGE: &str = r"(?i)\bhttps?://(?:www\.)?([\w.-]*\w)(?:[:/?#]\S*[\w/])?";
/// The name of a site, in the group 1.
pub(super) const SITE: &str = r"\b(?:www\.)?((?:[A-Za-z][\w-]*\.)+(?:com|org|net|io|dev|gov|edu|ai|co|eu|de|at|ch|es|mx))\b(?:/[\w/-]*)?";

/// A number without the zeros before it: "05" is "5", "00" is "0".
pub(super) fn without_zeros(number: &str) -> &str {
    match number.trim_start_matches('0') {
        "" => "0",
        number => number,
    }
}

/// The value of a Roman numeral in capitals below 40; `None` if it is none or is written in another way.
pub(super) fn roman(numeral: &str) -> Option<usize> {
    const TENS: [&str; 4] = ["", "X", "XX", "XXX"];
    const ONES: [&str; 10] = ["", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX"];
    let ten = numeral.chars().take_while(|&c| c == 'X').count();
    let one = ONES.iter().position(|one| {
        let tens = TENS.get(ten).copied();
        tens.is_some_and(|tens| numeral.strip_prefix(tens) == Some(*one))
    })?;
    Some(10 * ten + one).filter(|&value| value > 0)
}

/// The digits of a number one by one: "05" is "0 5". Other characters are left out.
pub(super) fn digits(number: &str) -> String {
    let digits = number.chars().filter(char::is_ascii_digit);
    digits.map(String::from).collect::<Vec<_>>().join(" ")
}

/// The address with these signs replaced by their spoken names.
pub(super) fn with_names(address: &str, signs: &[(&str, &str)]) -> String {
    signs.iter().fold(address.to_owned(), |said, (sign, name)| {
        said.replace(sign, &format!(" {name} "))
    })
}

/// The name of a sign in a table, between spaces.
pub(super) fn sign(found: &Captures<'_>, names: &[(&str, &str)]) -> String {
    let name = written_out(&found[0], names);
    format!(" {name} ")
}

/// The words for `short` in a table of abbreviations, which are written without spaces there.
pub(super) fn written_out(short: &str, table: &[(&str, &str)]) -> String {
    let compact = short.replace(' ', "");
    let known = table
        .iter()
        .find(|(abbreviation, _)| *abbreviation == compact);
    known.map_or_else(|| short.to_owned(), |(_, words)| (*words).to_owned())
}

/// A number in the group 1 and its unit in the group 2, with the name of the unit from a table.
pub(super) fn measured(found: &Captures<'_>, units: &[(&str, &str)]) -> String {
    let space = if found[0].ends_with(' ') { " " } else { "" };
    format!("{} {}{space}", &found[1], written_out(&found[2], units))
}

/// Cuts `text` at its marks into phrases of at most `most_words` words.
pub(super) fn cut(text: &str, most_words: usize) -> Vec<Phrase> {
    let mut phrases: Vec<Phrase> = Vec::new();
    for (words, mark) in marked(text) {
        let words: Vec<&str> = words.split_whitespace().filter(|w| has_sound(w)).collect();
        match phrases.last_mut() {
            // In "(really)." no words follow the bracket, so the full stop ends the phrase.
            Some(last) if words.is_empty() => last.mark = mark.or(last.mark),
            _ => phrases.extend(words.chunks(most_words).map(|part| Phrase {
                words: part.join(" "),
                mark: None,
            })),
        }
        if let Some(last) = phrases.last_mut() {
            last.mark = mark.or(last.mark);
        }
    }
    phrases
}

fn has_sound(word: &str) -> bool {
    word.contains(char::is_alphanumeric)
}

/// Pieces of text with the marks that end them.
fn marked(text: &str) -> Vec<(&str, Option<char>)> {
    let mut pieces = Vec::new();
    let mut start = 0;
    for (at, c) in text.char_indices() {
        let Some(mark) = mark_of(c) else { continue };
        let end = at + c.len_utf8();
        let next = text[end..].chars().next();
        // Marks within "3.14", "example.com" and "3:05" end nothing.
        if !"()[]".contains(c) && c.is_ascii() && next.is_some_and(char::is_alphanumeric) {
            continue;
        }
        pieces.push((&text[start..at], Some(mark)));
        start = end;
    }
    pieces.push((&text[start..], None));
    pieces
}

/// The mark in the form that the voice knows.
fn mark_of(c: char) -> Option<char> {
    match c {
        '.' | ',' | '?' | '!' | ':' | ';' => Some(c),
        '…' | '。' | '।' | '۔' => Some('.'),
        '？' | '؟' => Some('?'),
        '！' => Some('!'),
        '؛' => Some(';'),
        '—' | '(' | ')' | '[' | ']' | '，' | '、' | '،' => Some(','),
        _ => None,
    }
}
