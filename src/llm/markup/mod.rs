//! Incremental parser of the markup in which the language model answers.
//!
//! Pure: characters in, [`LlmEvent`]s out. However the input is split, the events are the same once
//! adjacent pieces of speech and of arguments are joined, except [`LlmEvent::ToolRead`], which tells what is
//! finished at the end of a piece. No input causes a panic, and `<` and `>` are never spoken.
//!
//! ```text
//! answer    = { speech | tool | think | fence | text }
//! speech    = "<speech>" text "</speech>"
//! think     = "<think>" anything "</think>"              swallowed
//! tool      = "<tool>" call "</tool>"                    only "</tool>" commits
//!           | "<tool name=" quoted ">" body "</tool>" | "<tool name=" quoted "/>"
//! call      = name [ "(" arguments ")" ] | name object
//!           | { "name": string, "arguments": object }    as a JSON object
//! body      = [ object | arguments | "(" arguments ")" ]
//! arguments = [ argument { "," argument } [ "," ] ] | object
//! argument  = ( name | string ) ( "=" | ":" ) value
//! value     = string | number | "true" | "false" | "null" | list | object
//! string    = '"' ... '"' | "'" ... "'"                  escapes as in JSON, and \'
//! name      = 1 to 64 of [A-Za-z0-9_.-]
//! fence     = "```" [ language ]                         swallowed
//! ```
//!
//! - Tag names are case-insensitive. `tool_call` means `tool`, and `thinking` means `think`; `True`,
//!   `False` and `None` are read as `true`, `false` and `null`.
//! - Text outside all tags is speech, so that a model that forgets the tags is still heard.
//! - White space in speech becomes one space, or one line feed if it contained one. Leading and trailing
//!   white space is dropped, except that a `<speech>` with words ends with a line feed, so that its last
//!   clause need not wait for more text.
//! - Other tags, comments and `<|tokens|>` are dropped; the text between them is spoken.
//! - A `<` that does not open a tag is spoken as "less than" before white space, a digit, `-` or `$`, and a
//!   `>` between spaces as "greater than". Elsewhere both are dropped, as are their full-width forms and
//!   the `‹` and `›` that replace them in untrusted text.
//! - Entities are decoded in speech and never open a tag. In arguments they stay as they are.
//! - In a quoted argument `)` and `</tool>` are text. Elsewhere `</tool>` ends the call even if it is
//!   incomplete, and `<speech>` or `<tool>` ends it as unclosed, which is an error.
//! - If a piece of the input ends behind the name of a call, behind a finished argument or behind all of them, the
//!   arguments so far are reported in [`LlmEvent::ToolRead`].
//! - An error in a call is reported in [`LlmEvent::ToolClosed`], with a message for the model.

mod arguments;
mod call;
mod utf8;

pub(crate) use arguments::parse_begun;
pub use arguments::{format_call, parse_arguments};
pub(crate) use call::Told;
pub(crate) use utf8::Utf8Decoder;

use crate::llm::LlmEvent;
use call::{Call, Step};

/// The most bytes of arguments in one call, far more than a voice agent needs.
pub const MAX_ARGUMENT_BYTES: usize = 16 * 1024;

/// The most characters of a tool's name: OpenAI's limit for function names.
pub const MAX_NAME_CHARS: usize = 64;

/// The most characters between `<` and `>`: enough for a tag with the longest name.
const MAX_TAG_CHARS: usize = 128;

/// The most characters of an entity between `&` and `;`.
const MAX_ENTITY_CHARS: usize = 8;

/// Parses an answer as it streams in.
///
/// Call [`push`](Self::push) or [`push_bytes`](Self::push_bytes) for each piece and [`finish`](Self::finish)
/// at the end. It never emits [`LlmEvent::End`]: only the reader of the stream knows whether it ended
/// properly.
#[derive(Debug, Default)]
pub struct Parser {
    mode: Mode,
    /// White space that is emitted only if words follow.
    gap: Option<char>,
    /// Words were emitted since the start or the last tool call.
    spoken: bool,
    /// Consecutive backticks.
    ticks: u8,
    utf8: Utf8Decoder,
    out: Events,
}

/// The parser's position.
#[derive(Debug, Default)]
enum Mode {
    #[default]
    Text,
    /// After a `<`; `tag` is false if it was written as an entity.
    Less {
        tag: bool,
    },
    /// After a `>` that follows a space.
    Greater,
    /// Characters since `&`.
    Entity(String),
    /// Characters since `<`.
    Tag {
        text: String,
        quote: Option<char>,
    },
    /// After three backticks.
    Fence,
    /// Within `<think>`, with the characters since the last `<`.
    Think(String),
    Tool(Box<Call>),
}

/// Collected events, with adjacent pieces joined.
#[derive(Debug, Default)]
struct Events(Vec<LlmEvent>);

impl Events {
    fn push(&mut self, event: LlmEvent) {
        self.0.push(event);
    }

    fn speech(&mut self, c: char) {
        match self.0.last_mut() {
            Some(LlmEvent::Speech { text }) => text.push(c),
            _ => self.push(LlmEvent::Speech { text: c.into() }),
        }
    }

    fn argument(&mut self, c: char) {
        match self.0.last_mut() {
            Some(LlmEvent::ToolArguments { piece }) => piece.push(c),
            _ => self.push(LlmEvent::ToolArguments { piece: c.into() }),
        }
    }
}

impl Parser {
    /// A parser at the start of an answer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the next piece of text.
    pub fn push(&mut self, text: &str) -> Vec<LlmEvent> {
        for c in text.chars() {
            self.step(c);
        }
        if let Mode::Tool(call) = &mut self.mode {
            call.tell(&mut self.out);
        }
        std::mem::take(&mut self.out.0)
    }

    /// Reads the next piece of bytes, which may end within a character. Bytes that are not UTF-8
    /// become U+FFFD.
    pub fn push_bytes(&mut self, bytes: &[u8]) -> Vec<LlmEvent> {
        let text = self.utf8.push(bytes);
        self.push(&text)
    }

    /// Ends the answer: emits text that was held back, closes an open call with an error, and resets the
    /// parser.
    pub fn finish(&mut self) -> Vec<LlmEvent> {
        let rest = self.utf8.finish();
        let mut events = self.push(&rest);
        match std::mem::take(&mut self.mode) {
            Mode::Entity(text) => self.literal_entity(&text),
            Mode::Tag { text, .. } => self.broken_tag(&text),
            Mode::Tool(call) => call.abandon(&mut self.out),
            _ => {}
        }
        events.append(&mut self.out.0);
        *self = Self::default();
        events
    }

    fn step(&mut self, c: char) {
        match std::mem::take(&mut self.mode) {
            Mode::Text => self.text(c),
            Mode::Less { tag } => self.less(c, tag),
            Mode::Greater => self.greater(c),
            Mode::Entity(text) => self.entity(c, text),
            Mode::Tag { text, quote } => self.tag(c, text, quote),
            Mode::Fence => self.fence(c),
            Mode::Think(text) => self.think(c, text),
            Mode::Tool(call) => self.tool(c, call),
        }
    }

    fn text(&mut self, c: char) {
        if c == '`' {
            return self.backtick();
        }
        self.ticks = 0;
        match c {
            '<' => self.mode = Mode::Less { tag: true },
            '&' => self.mode = Mode::Entity(String::new()),
            _ => self.plain(c),
        }
    }

    /// A character that cannot open markup.
    fn plain(&mut self, c: char) {
        match c {
            '<' => self.mode = Mode::Less { tag: false },
            '>' if self.spoken && self.gap == Some(' ') => self.mode = Mode::Greater,
            '>' | '＜' | '＞' | '‹' | '›' => {}
            c if c.is_whitespace() => self.space(c),
            c if c.is_control() => {}
            c => self.say(c),
        }
    }

    fn space(&mut self, c: char) {
        if self.gap != Some('\n') {
            self.gap = Some(if c == '\n' { '\n' } else { ' ' });
        }
    }

    fn say(&mut self, c: char) {
        if let Some(gap) = self.gap.take()
            && self.spoken
        {
            self.out.speech(gap);
        }
        self.spoken = true;
        self.out.speech(c);
    }

    fn say_words(&mut self, words: &str) {
        self.space(' ');
        words.chars().for_each(|c| self.plain(c));
        self.space(' ');
    }

    fn backtick(&mut self) {
        self.ticks += 1;
        if self.ticks == 3 {
            self.ticks = 0;
            self.mode = Mode::Fence;
        }
    }

    fn fence(&mut self, c: char) {
        if c.is_ascii_alphanumeric() || matches!(c, '_' | '+' | '-' | '`') {
            self.mode = Mode::Fence;
        } else {
            self.text(c);
        }
    }

    fn less(&mut self, c: char, tag: bool) {
        match c {
            '/' | '!' | '?' | '|' if tag => self.open_tag(c),
            c if tag && c.is_ascii_alphabetic() => self.open_tag(c),
            '=' => self.say_words("less than or equal to"),
            c if c.is_whitespace() || c.is_ascii_digit() || matches!(c, '-' | '$') => {
                self.say_words("less than");
                self.text(c);
            }
            _ => self.text(c),
        }
    }

    fn greater(&mut self, c: char) {
        match c {
            '=' => return self.say_words("greater than or equal to"),
            c if c.is_whitespace() || c.is_ascii_digit() => self.say_words("greater than"),
            _ => {}
        }
        self.text(c);
    }

    fn entity(&mut self, c: char, mut text: String) {
        if c == ';' {
            match decode_entity(&text) {
                Some(decoded) => self.plain(decoded),
                None => {
                    self.literal_entity(&text);
                    self.say(';');
                }
            }
        } else if (c.is_ascii_alphanumeric() || c == '#') && text.len() < MAX_ENTITY_CHARS {
            text.push(c);
            self.mode = Mode::Entity(text);
        } else {
            self.literal_entity(&text);
            self.text(c);
        }
    }

    fn literal_entity(&mut self, text: &str) {
        self.say('&');
        text.chars().for_each(|c| self.say(c));
    }

    fn open_tag(&mut self, c: char) {
        self.mode = Mode::Tag {
            text: c.into(),
            quote: None,
        };
    }

    fn tag(&mut self, c: char, mut text: String, quote: Option<char>) {
        if c == '<' || text.chars().count() >= MAX_TAG_CHARS {
            self.broken_tag(&text);
            return self.step(c);
        }
        if c == '>' && quote.is_none() {
            return self.complete_tag(&text);
        }
        let quote = match quote {
            Some(q) if q == c => None,
            None if matches!(c, '"' | '\'') && text.ends_with('=') => Some(c),
            quote => quote,
        };
        text.push(c);
        self.mode = Mode::Tag { text, quote };
    }

    fn complete_tag(&mut self, text: &str) {
        let tag = Tag::read(text);
        match (tag.kind, tag.closing) {
            (Kind::Speech, true) => self.end_clause(),
            (Kind::Speech, false) | (Kind::Break, _) => self.space(' '),
            (Kind::Think, false) if !tag.empty => {
                self.space(' ');
                self.mode = Mode::Think(String::new());
            }
            (Kind::Tool, false) => self.open_tool(&tag),
            _ => {}
        }
    }

    /// Handles a tag that never ended. Words after an unknown name were probably meant as text, as in `a <b
    /// and so on`.
    fn broken_tag(&mut self, text: &str) {
        let tag = Tag::read(text);
        if tag.kind == Kind::Unknown && !tag.closing {
            tag.rest.chars().for_each(|c| self.step(c));
        }
    }

    fn end_clause(&mut self) {
        if self.spoken {
            self.out.speech('\n');
        }
        self.spoken = false;
        self.gap = None;
    }

    fn open_tool(&mut self, tag: &Tag<'_>) {
        self.gap = None;
        self.spoken = false;
        let mut call = Call::new(attribute(tag.rest, "name"), &mut self.out);
        if tag.empty {
            call.close(&mut self.out);
        } else {
            self.mode = Mode::Tool(Box::new(call));
        }
    }

    fn tool(&mut self, c: char, mut call: Box<Call>) {
        match call.push(c, &mut self.out) {
            Step::More => self.mode = Mode::Tool(call),
            Step::Closed => {}
            Step::Tag(text) => {
                call.abandon(&mut self.out);
                self.mode = Mode::Tag { text, quote: None };
                self.step(c);
            }
        }
    }

    fn think(&mut self, c: char, mut text: String) {
        if c == '<' {
            text.clear();
        }
        if text.len() < MAX_TAG_CHARS {
            text.push(c);
        }
        let tag = text.strip_prefix('<').and_then(|t| t.strip_suffix('>'));
        let closed = tag
            .map(Tag::read)
            .is_some_and(|t| t.closing && t.kind == Kind::Think);
        if !closed {
            self.mode = Mode::Think(text);
        }
    }
}

/// The kind of a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Speech,
    Tool,
    Think,
    /// Separates words.
    Break,
    /// Never text, even if it does not end: a comment or a special token.
    Noise,
    Unknown,
}

/// A parsed tag.
#[derive(Debug)]
struct Tag<'a> {
    kind: Kind,
    closing: bool,
    /// Self-closing.
    empty: bool,
    /// The text after the name.
    rest: &'a str,
}

impl<'a> Tag<'a> {
    fn read(text: &'a str) -> Self {
        let body = text.strip_prefix('/').map(str::trim_start);
        let inner = body.unwrap_or(text);
        let end = inner
            .find(|c: char| c.is_whitespace() || matches!(c, '/' | '"' | '\''))
            .unwrap_or(inner.len());
        let (name, rest) = inner.split_at(end);
        Self {
            kind: Kind::of(name),
            closing: body.is_some(),
            empty: rest.ends_with('/'),
            rest,
        }
    }
}

impl Kind {
    fn of(name: &str) -> Self {
        if name.starts_with(['!', '?', '|']) {
            return Self::Noise;
        }
        match name.to_ascii_lowercase().as_str() {
            "speech" => Self::Speech,
            "tool" | "tool_call" => Self::Tool,
            "think" | "thinking" => Self::Think,
            "br" | "p" | "div" | "li" | "ul" | "ol" | "tr" | "td" => Self::Break,
            _ => Self::Unknown,
        }
    }
}

/// The value of an attribute, quoted or not.
fn attribute<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = text;
    loop {
        let (key, after) = rest.split_once('=')?;
        let after = after.trim_start();
        let (value, tail) = match after.chars().next()? {
            quote @ ('"' | '\'') => after[1..].split_once(quote)?,
            _ => after.split_at(after.find([' ', '/']).unwrap_or(after.len())),
        };
        if key.trim().eq_ignore_ascii_case(name) {
            return Some(value);
        }
        rest = tail;
    }
}

fn decode_entity(name: &str) -> Option<char> {
    match name {
        "lt" => Some('<'),
        "gt" => Some('>'),
        "amp" => Some('&'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        "nbsp" => Some(' '),
        _ => {
            let digits = name.strip_prefix('#')?;
            let code = match digits.strip_prefix(['x', 'X']) {
                Some(hex) => u32::from_str_radix(hex, 16),
                None => digits.parse(),
            };
            char::from_u32(code.ok()?)
        }
    }
}

#[cfg(test)]
mod tests;
