//! Written text to spoken words, for all languages: rules that rewrite what espeak-ng would get wrong, and phrases
//! between marks.

use regex::{Captures, Regex, RegexBuilder};

/// Words up to a punctuation mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Phrase {
    /// Pronounceable words separated by spaces; the only marks inside are hyphens, apostrophes, and those of numbers.
    pub(crate) words: String,
    /// One of `. , ? ! : ;`, or `None` if the text was cut without a mark.
    pub(crate) mark: Option<char>,
}

/// The most memory for the states that a pattern remembers, bytes. Clauses are short: with the usual 2 MiB, the English
/// rules take 10 MB more and are no faster.
const DFA_BYTES: usize = 16 << 10;

/// How a rule says the text that it matched.
pub(super) type Say = fn(&Captures<'_>) -> String;

/// Patterns and how to say them. Each is applied to all of a text, in their order.
pub(super) struct Rules(Vec<(Regex, Say)>);

impl Rules {
    /// Rules with these patterns. An invalid regular expression is left out; in tests it panics.
    pub(super) fn new(rules: impl IntoIterator<Item = (impl AsRef<str>, Say)>) -> Self {
        let compiled = rules.into_iter().filter_map(|(pattern, say)| {
            let pattern = RegexBuilder::new(pattern.as_ref())
                .dfa_size_limit(DFA_BYTES)
                .build();
            assert!(pattern.is_ok() || !cfg!(test), "{pattern:?}");
            Some((pattern.ok()?, say))
        });
        Self(compiled.collect())
    }

    /// `text` as it is said.
    pub(super) fn applied(&self, text: &str) -> String {
        let text = text.replace(['’', '‘'], "'").replace('−', "-");
        let mut spoken = with_plain_digits(&text);
        for (pattern, say) in &self.0 {
            if pattern.is_match(&spoken) {
                spoken = pattern.replace_all(&spoken, say).into_owned();
            }
        }
        spoken.replace(APART, "")
    }
}

/// Keeps what is behind it from being a unit, while rules are applied: "2 L" of a code is not "2 liters".
const APART: char = '\u{2060}';

/// The address of a page with what is before and after its name, in the group 1.
pub(super) const PAGE: &str = r"(?i)\bhttps?://(?:www\.)?([\w.-]*\w)(?:[:/?#]\S*[\w/])?";
/// The name of a site, in the group 1.
pub(super) const SITE: &str = r"\b(?:www\.)?((?:[A-Za-z][\w-]*\.)+(?:com|org|net|io|dev|gov|edu|ai|co|eu|de|at|ch|es|mx))\b(?:/[\w/-]*)?";

/// A day and a time as programs write them: the day in the group 1, hours and minutes in 2, and "Z" in 3.
pub(super) const INSTANT: &str = r"\b(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)(?:(?::\d\d(?:\.\d+)?)?(Z)|:\d\d(?:\.\d+)?(?:[+-]\d\d:?\d\d)?|\+\d\d:?\d\d)?\b";
/// The way through menus, one step: "Settings > Network".
pub(super) const STEP: &str = r"(\p{L}{2}) > (\p{L})";
/// An arrow.
pub(super) const ARROW: &str = r"\s?[→⇒]\s?";
/// "<" or ">" right before a number, in the group 2, and what is before and after it in 1 and 3.
pub(super) const BOUND: &str = r"(^|[\s(])([<>])(\d)";
/// Carbon dioxide.
pub(super) const GAS: &str = r"\bCO2\b";

/// A power in languages that have one word for it: the base in the group 1, the exponent in 2 or 3.
pub(super) const POWER: &str = r"([\p{L}\d)])(?: ?\^ ?(-?\d+)|([²³]))";

/// The exponent of text that matches [`POWER`], in digits.
pub(super) fn exponent<'a>(found: &Captures<'a>) -> &'a str {
    match found.get(3).map(|raised| raised.as_str()) {
        Some("²") => "2",
        Some(_) => "3",
        None => found.get(2).map_or("", |exponent| exponent.as_str()),
    }
}

/// Text that matches [`INSTANT`], with this word before the time.
pub(super) fn instant(found: &Captures<'_>, at: &str) -> String {
    let zone = if found.get(3).is_some() { " UTC" } else { "" };
    format!("{} {at} {}{zone}", &found[1], &found[2])
}

/// Text that matches [`BOUND`], with these words for the signs.
pub(super) fn bound(found: &Captures<'_>, less: &str, more: &str) -> String {
    let word = if &found[2] == "<" { less } else { more };
    format!("{}{word} {}", &found[1], &found[3])
}

/// A number without the zeros before it: "05" is "5", "00" is "0".
pub(super) fn without_zeros(number: &str) -> &str {
    match number.trim_start_matches('0') {
        "" => "0",
        number => number,
    }
}

/// The value of a Roman numeral in capitals below 90; `None` if it is none or is written in another way.
pub(super) fn roman(numeral: &str) -> Option<usize> {
    const TENS: [&str; 9] = ["", "X", "XX", "XXX", "XL", "L", "LX", "LXX", "LXXX"];
    const ONES: [&str; 10] = ["", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX"];
    let value = TENS.iter().enumerate().find_map(|(ten, tens)| {
        let rest = numeral.strip_prefix(tens)?;
        let one = ONES.iter().position(|one| *one == rest)?;
        Some(10 * ten + one)
    });
    value.filter(|&value| value > 0)
}

/// The text with small digits in their usual size: "CO₂" is "CO2", "10⁶" is "10^6". "²" and "³" alone stay; marks
/// of footnotes are left out.
fn with_plain_digits(text: &str) -> String {
    const RAISED: &str = "⁰¹²³⁴⁵⁶⁷⁸⁹⁻";
    const LOWERED: &str = "₀₁₂₃₄₅₆₇₈₉";
    let plain = |c: char, among: &str| {
        let at = among.chars().position(|digit| digit == c)?;
        "0123456789-".chars().nth(at)
    };
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let Some(first) = plain(c, RAISED) else {
            out.push(plain(c, LOWERED).unwrap_or(c));
            continue;
        };
        let mut power = String::from(first);
        while let Some(digit) = rest.peek().and_then(|&next| plain(next, RAISED)) {
            power.push(digit);
            rest.next();
        }
        let mut before = out.chars().rev();
        let is_base = match (before.next(), before.next()) {
            (Some(last), _) if last.is_ascii_digit() || last == ')' => true,
            (Some(last), before) => {
                last.is_alphabetic() && !before.is_some_and(char::is_alphabetic)
            }
            (None, _) => false,
        };
        match c {
            '²' | '³' if power.len() == 1 => out.push(c),
            _ if is_base => {
                out.push('^');
                out.push_str(&power);
            }
            _ => {}
        }
    }
    out
}

/// Letters and digits one by one, with a pause at each hyphen: "AB-12" is "A B, 1 2".
pub(super) fn one_by_one(code: &str) -> String {
    let parts = code.split('-').map(|part| {
        let signs: Vec<String> = part.chars().map(String::from).collect();
        signs.join(&format!(" {APART}"))
    });
    parts.collect::<Vec<_>>().join(", ")
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
