//! Calls that no opener announces: `f(a=1)`, `f {"a": 1}`, ReAct's `Action: f`, and forms whose special tokens the
//! server has removed. Only the name of an offered tool at the start of a clause begins one. Also thoughts that only a
//! word announces: ReAct's, and those of gpt-oss without their tokens.

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

/// Written by Phi before a list of calls.
const FUNCTOOLS: &str = "functools[";

/// Written before a result that the model makes up.
const OBSERVATION: &str = "Observation:";

/// Written before ReAct's thoughts, and before the answer after them.
const THOUGHT: &str = "Thought:";
const ANSWER: &str = "Final Answer:";

/// The channel of Gemma's thoughts. Without its tokens, and if the model does not think, it stands directly before the
/// answer.
const EMPTY_THOUGHT: &str = "thought\n";

/// The channel of gpt-oss' thoughts, which stands directly before them if its tokens were removed.
const ANALYSIS: &str = "analysis";

/// The text that ends the thoughts of gpt-oss.
const FINAL: &str = "assistantfinal";
const COMMENTARY: &str = "assistantcommentary";

/// Whether the held text begins a call or thoughts.
#[derive(Debug)]
pub(super) enum Word {
    /// A region begins, with this text.
    Opens(Box<Region>, String),
    Thinks(Box<Thinking>),
    /// Speech follows.
    Label,
    MayOpen,
    Text,
}

/// Thoughts that only a word announced, with the last characters of them.
#[derive(Debug)]
pub(super) struct Thinking {
    form: ThinkingForm,
    last: String,
}

#[derive(Debug, Clone, Copy)]
enum ThinkingForm {
    ReAct,
    GptOss,
}

impl Thinking {
    fn new(form: ThinkingForm) -> Box<Self> {
        Box::new(Self {
            form,
            last: String::new(),
        })
    }
}

/// Compares text with the ways to write a call of one of these tools.
pub(super) fn compare(text: &str, tools: &[String]) -> Word {
    if text.len() > MAX_HELD {
        return Word::Text;
    }
    if text == FUNCTOOLS {
        let region = Region::new(Reading::Bracket, Close::Bracket);
        return Word::Opens(Box::new(region), "[".to_owned());
    }
    let mut may_open = FUNCTOOLS.starts_with(text);
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
                    found => return found,
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

/// Compares the text after a tool's name with the beginnings of arguments.
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
        _ if "<arg_key>".starts_with(trimmed) && trimmed.len() < 9 => Word::MayOpen,
        "" if trimmed.starts_with("<arg_key>") => {
            // Without its tags nothing shows that the last pair is there: the call is refused.
            let region = Region::new(Reading::Calls, Close::Tool);
            Word::Opens(Box::new(region), format!("{name}{after}"))
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

/// Whether the text after a parenthesis is a list of arguments: `)`, `"`, `{` or `a=`. `None` if more is needed.
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

/// Whether the text at this place would begin a call after a tool's name: an argument list directly after a
/// name, an object after a name, or the colon of [`ACTION`].
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
        match self.compare_thoughts(text) {
            Word::Text => compare(text, &self.tools),
            found => found,
        }
    }

    /// Compares text with the words before thoughts. Gpt-oss thinks before it says anything.
    fn compare_thoughts(&self, text: &str) -> Word {
        for label in [THOUGHT, ANSWER] {
            if label.starts_with(text) {
                return match text.len() == label.len() {
                    false => Word::MayOpen,
                    true if label == THOUGHT => Word::Thinks(Thinking::new(ThinkingForm::ReAct)),
                    true => Word::Label,
                };
            }
        }
        if self.spoken {
            return Word::Text;
        }
        if EMPTY_THOUGHT.starts_with(text) {
            return match text.len() == EMPTY_THOUGHT.len() {
                true => Word::Label,
                false => Word::MayOpen,
            };
        }
        match text.strip_prefix(ANALYSIS) {
            Some("") => Word::MayOpen,
            Some(next) if next.starts_with(|c: char| c.is_uppercase() || c == '"') => {
                Word::Thinks(Thinking::new(ThinkingForm::GptOss))
            }
            None if ANALYSIS.starts_with(text) => Word::MayOpen,
            _ => Word::Text,
        }
    }

    pub(super) fn word(&mut self, c: char, mut text: String) {
        text.push(c);
        match self.compare_word(&text) {
            Word::MayOpen => self.mode = Mode::Word(text),
            Word::Opens(region, text) => self.open_region(*region, &text),
            Word::Thinks(thinking) => self.mode = Mode::Thoughts(thinking),
            Word::Label => self.space('\n'),
            Word::Text => self.release(&text),
        }
    }

    /// Drops thoughts up to the word that ends them. A call after them is read like any other.
    pub(super) fn thoughts(&mut self, c: char, mut thinking: Box<Thinking>) {
        let last = &mut thinking.last;
        last.push(c);
        if last.len() > MAX_HELD {
            last.drain(..last.char_indices().nth(1).map_or(0, |(at, _)| at));
        }
        let line = last.rsplit('\n').next().unwrap_or_default();
        let follows = match thinking.form {
            ThinkingForm::ReAct if line == ACTION => ACTION,
            ThinkingForm::ReAct if last.ends_with(ANSWER) => "",
            ThinkingForm::GptOss if last.ends_with(FINAL) => "",
            ThinkingForm::GptOss
                if last
                    .strip_suffix(' ')
                    .is_some_and(|l| l.ends_with(COMMENTARY)) =>
            {
                "assistantcommentary "
            }
            ThinkingForm::GptOss
                if last
                    .strip_suffix(c)
                    .is_some_and(|l| l.ends_with(COMMENTARY)) =>
            {
                self.space('\n');
                return self.step(c);
            }
            _ => {
                self.mode = Mode::Thoughts(thinking);
                return;
            }
        };
        self.space('\n');
        self.after_region = true;
        if !follows.is_empty() {
            self.mode = Mode::Word(follows.to_owned());
        }
    }

    /// Ends held text with the answer. A name in the form of a call is not spoken, nor is the beginning of one if the
    /// answer was cut.
    pub(super) fn end_word(&mut self, text: &str, whole: bool) {
        if whole && text.chars().all(|c| c.is_alphabetic() || c.is_whitespace()) {
            text.chars().for_each(|c| self.plain(c));
        }
    }
}
