//! Calls that no opener announces: `f(a=1)`, `f {"a": 1}`, ReAct's `Action: f`, and forms whose special tokens the
//! server has removed. Only the name of an offered tool at the start of a clause begins one.

use super::call::is_name_char;
use super::regions::{Close, Reading, Region};
use super::{MAX_NAME_CHARS, Mode, Parser};

/// The most characters that are held back: the longest prefix, name and gap.
const MAX_HELD: usize = MAX_NAME_CHARS + 64;

/// Written before a tool's name: ReAct; Kimi, DeepSeek, Gemma and gpt-oss without their tokens.
const PREFIXES: [&str; 8] = [
    "",
    ACTION,
    "functions.",
    "function",
    "call:",
    "to=functions.",
    "commentary to=functions.",
    "assistantcommentary to=functions.",
];

const ACTION: &str = "Action:";

/// Written before a result that the model makes up.
const OBSERVATION: &str = "Observation:";

/// Whether the held text begins a call.
#[derive(Debug)]
pub(super) enum Word {
    /// A region begins, with this text.
    Opens(Box<Region>, String),
    MayOpen,
    Text,
}

/// Compares text with the ways to write a call of one of these tools.
pub(super) fn compare(text: &str, tools: &[String]) -> Word {
    if text.len() > MAX_HELD {
        return Word::Text;
    }
    let mut may_open = false;
    for prefix in PREFIXES {
        may_open |= prefix.len() > text.len() && prefix.starts_with(text);
        let Some(rest) = text.strip_prefix(prefix) else {
            continue;
        };
        let rest = match prefix {
            ACTION => rest.trim_start_matches(' '),
            _ => rest,
        };
        for name in tools {
            may_open |= name.starts_with(rest);
            match rest.strip_prefix(name.as_str()) {
                Some(after) if !after.is_empty() => match arguments(prefix, name, after) {
                    Word::MayOpen => may_open = true,
                    Word::Text => {}
                    opens @ Word::Opens(..) => return opens,
                },
                _ => {}
            }
        }
    }
    match may_open {
        true => Word::MayOpen,
        false => Word::Text,
    }
}

/// Compares the text behind a tool's name with the beginnings of arguments.
fn arguments(prefix: &str, name: &str, after: &str) -> Word {
    let object = |after: &str| match begins_object(after) {
        Some(true) => {
            let reading = Reading::Arguments(name.to_owned());
            let region = Region::new(reading, Close::Bracket);
            Word::Opens(Box::new(region), after.to_owned())
        }
        Some(false) => Word::Text,
        None => Word::MayOpen,
    };
    let trimmed = after.trim_start();
    if let Some(list) = after.strip_prefix('(') {
        let is_word = name.chars().all(|c| c.is_ascii_lowercase());
        return match begins_list(list) {
            Some(false) if is_word => Word::Text,
            None if is_word => Word::MayOpen,
            _ => {
                let region = Region::new(Reading::Calls, Close::Bracket);
                Word::Opens(Box::new(region), format!("{name}{after}"))
            }
        };
    }
    match prefix {
        ACTION if after.starts_with('[') || after.trim_start_matches(' ').starts_with('\n') => {
            let region = Region::new(Reading::Action(name.to_owned()), Close::Bracket);
            Word::Opens(Box::new(region), after.to_owned())
        }
        "functions." if after.starts_with(':') => {
            let numbered = after[1..].trim_start_matches(|c: char| c.is_ascii_digit());
            object(numbered.trim_start())
        }
        "function" if "```json\n".starts_with(trimmed) && trimmed.len() < 8 => Word::MayOpen,
        "function" if trimmed == "```json\n" => {
            let reading = Reading::Arguments(name.to_owned());
            let region = Region::new(reading, Close::Text("```"));
            Word::Opens(Box::new(region), String::new())
        }
        to if to.ends_with("to=functions.") && "json".starts_with(trimmed) => Word::MayOpen,
        to if to.ends_with("to=functions.") => {
            object(trimmed.strip_prefix("json").unwrap_or(trimmed).trim_start())
        }
        _ => object(trimmed),
    }
}

/// Whether text begins with an object that holds arguments: `{"`, `{}` or `{a:`. `None` if more is needed.
fn begins_object(text: &str) -> Option<bool> {
    if text.is_empty() {
        return None;
    }
    let Some(inner) = text.strip_prefix('{') else {
        return Some(false);
    };
    let inner = inner.trim_start();
    match inner.chars().next()? {
        '"' | '}' => Some(true),
        c if is_name_char(c) => is_named(inner, &[':']),
        _ => Some(false),
    }
}

/// Whether the text behind a parenthesis is a list of arguments: `)`, `"`, `{` or `a=`. `None` if more is needed.
fn begins_list(text: &str) -> Option<bool> {
    let inner = text.trim_start();
    match inner.chars().next()? {
        ')' | '"' | '\'' | '{' => Some(true),
        c if is_name_char(c) => is_named(inner, &['=', ':']),
        _ => Some(false),
    }
}

/// Whether a name is followed by one of these.
fn is_named(text: &str, separators: &[char]) -> Option<bool> {
    let after = text.trim_start_matches(is_name_char).trim_start();
    after.chars().next().map(|c| separators.contains(&c))
}

/// Whether the text at this place would begin a call behind a tool's name: an argument list directly behind a
/// name, an object behind a name, or the colon of [`ACTION`].
pub(crate) fn may_begin(before: &str, rest: &str) -> bool {
    match rest.chars().next() {
        Some('(') => before.ends_with(is_name_char) && begins_list(&rest[1..]) != Some(false),
        Some('{') => {
            let before = before.trim_end();
            let follows = before.ends_with(is_name_char) || before.ends_with("Input:");
            follows && begins_object(rest) != Some(false)
        }
        Some(':') => before.ends_with("Action"),
        _ => false,
    }
}

impl Parser {
    /// Begins to hold text that may be a call, if it can be one.
    pub(super) fn begins_word(&mut self, c: char) -> bool {
        if self.tools.is_empty() || !self.starts_clause() {
            return false;
        }
        let may_open = !matches!(self.compare_word(c.encode_utf8(&mut [0; 4])), Word::Text);
        if may_open {
            self.mode = Mode::Word(c.into());
        }
        may_open
    }

    fn compare_word(&self, text: &str) -> Word {
        if self.has_acted && OBSERVATION.starts_with(text) {
            return match text.len() == OBSERVATION.len() {
                true => {
                    let region = Region::new(Reading::Dropped, Close::Message);
                    Word::Opens(Box::new(region), String::new())
                }
                false => Word::MayOpen,
            };
        }
        compare(text, &self.tools)
    }

    pub(super) fn word(&mut self, c: char, mut text: String) {
        text.push(c);
        match self.compare_word(&text) {
            Word::MayOpen => self.mode = Mode::Word(text),
            Word::Opens(region, text) => self.open_region(*region, &text),
            Word::Text => self.release(&text),
        }
    }

    /// Ends held text with the answer. A name in a form that is no prose is not spoken, nor is the beginning of one
    /// if the answer was cut.
    pub(super) fn end_word(&mut self, text: &str, whole: bool) {
        if whole && text.chars().all(|c| c.is_alphabetic() || c.is_whitespace()) {
            text.chars().for_each(|c| self.plain(c));
        }
    }
}
