//! Incremental parser of the markup in which the language model answers.
//!
//! Pure: characters in, [`LlmEvent`]s out. However the input is split, the events are the same once
//! adjacent pieces of speech and of arguments are joined, except [`LlmEvent::ToolRead`], which tells what is
//! finished at the end of a piece. No input causes a panic, and `<` and `>` are never spoken.
//!
//! ```text
//! answer    = { speech | tool | think | region | text }
//! speech    = "<speech>" text "</speech>"
//! think     = "<think>" anything "</think>"              swallowed
//! tool      = "<tool>" call "</tool>"                    only "</tool>" commits
//!           | "<tool name=" quoted ">" body "</tool>" | "<tool name=" quoted "/>"
//! call      = name [ "(" arguments ")" ] | name object
//!           | { "name": string, "arguments": object }    as a JSON object
//!           | calls                                      as in a region
//! body      = [ object | arguments | "(" arguments ")" ]
//! arguments = [ argument { "," argument } [ "," ] ] | object
//! argument  = ( name | string ) ( "=" | ":" ) value
//! value     = string | number | "true" | "false" | "null" | list | object
//! string    = '"' ... '"' | "'" ... "'"                  escapes as in JSON, and \'
//! name      = 1 to 64 of [A-Za-z0-9_.-]
//! region    = opener calls end                           in the form of another model, never spoken
//! ```
//!
//! - Tag names are case-insensitive. `tool_call` means `tool`; `thinking`, `thought`, `reasoning` and names that end
//!   in `_think`, except `no_think`, mean `think`. `True`, `False` and `None` are read as `true`, `false` and `null`.
//! - Text outside all tags is speech, so that a model that forgets the tags is still heard.
//! - White space in speech becomes one space, or one line feed if it contained one. Leading and trailing
//!   white space is dropped, except that a `<speech>` with words ends with a line feed, so that its last
//!   clause need not wait for more text.
//! - Other tags, comments, `<|tokens|>` and, within calls as well, `]<]minimax[>[` are dropped; the text between them
//!   is spoken, except within another tag right behind `]<]minimax[>[`: that is an argument, left of a call.
//! - A `<` that does not open a tag is spoken as "less than" before white space, a digit, `-` or `$`, and a
//!   `>` between spaces as "greater than". Elsewhere both are dropped, as are their full-width forms and
//!   the `‹` and `›` that replace them in untrusted text.
//! - Entities are decoded in speech and never open a tag. In arguments they stay as they are.
//! - In a quoted argument `)` and `</tool>` are text. Elsewhere `</tool>` ends the call even if it is
//!   incomplete, and `<speech>` or `<tool>` ends it as unclosed, which is an error.
//! - If a piece of the input ends after the name of a call, after a finished argument or after all of them, the
//!   arguments so far are reported in [`LlmEvent::ToolRead`].
//! - An error in a call is reported in [`LlmEvent::ToolClosed`], with a message for the model.
//!
//! # Calls in the form of another model
//!
//! A model may fall back to the form of its training. These open a region:
//!
//! | opener | form |
//! |---|---|
//! | `<function=f>`, `<invoke name="f">` | one object, or `<parameter=a>1</parameter>`; in the second also `<a>1</a>` |
//! | `<function=f` without its `>` | one object, or `({"a": 1})`; the `>` may follow it |
//! | `<function_call>`, `<tool_calls>`, `<TOOLCALL>`, `<minimax:tool_call>` and the like | any form |
//! | `<start_function_call>`, `<\|tool_call>` | `call:f{a:1}` with their own quotation marks |
//! | `<tool_call>` after which no call in markup follows | a list, tagged arguments, a name and `<arg_key>` |
//! | `<\|python_tag\|>`, `<\|tool_call\|>`, `<｜tool▁calls▁begin｜>`, `<\|tool_calls_section_begin\|>` and the like | any form |
//! | `<\|start\|>`, `<\|channel\|>` | messages to the user (spoken), to a tool, and thoughts |
//! | `<\|channel>` | thoughts, up to `<channel\|>` |
//! | `[TOOL_CALLS]`, `[TOOL_REQUEST]`, `>>>f` | any form |
//! | three backticks | JSON, or lines of `f(a=1)` |
//! | `functools[` at the start of a clause | a list in JSON |
//! | the name of an offered tool at the start of a clause | `f(a=1)`, `f {"a": 1}`, `functions.f:0{"a": 1}`, `Action: f` |
//! | `{` or `[` at the start of a clause, `{"`, `[{"` and `[f(` anywhere | `{"name": "f", "parameters": {}}`, `[f(a=1), g()]` |
//!
//! - Any form means JSON with a name and `arguments`, `parameters`, `args` or `input`, alone or as a list,
//!   `f(a=1)`, or arguments between tags; several calls may follow each other.
//! - While text may still become an opener it is held back, at most 20 characters, or as long as it may become a call
//!   of an offered tool. Nothing of a region
//!   is ever spoken. It ends at its closing tag or token, at the bracket that closes the first one (strings
//!   respected), or with the answer.
//! - A region becomes calls only if it is read whole, literals only, and if it is closed or the answer is
//!   known to be whole. Otherwise it is refused if it was meant as a call, once in an answer, and dropped if
//!   not: a stage direction in brackets, a fence with other code.
//! - `<speech>`, `</speech>` or `<tool>` ends an unclosed region.
//! - A fence that begins with a tag is dropped, not its content. So is a fence around plain words without a tool's
//!   name, if it has no language.
//! - A bracket that is not closed ends with its line if words follow it. They are spoken if they are plain and the line
//!   is longer than a stage direction, or ends an answer with a whole sentence.
//! - After ReAct's action everything from `Observation:` is dropped: the model makes it up.

mod arguments;
mod bare;
mod call;
mod gate;
mod readers;
mod regions;
mod tag;
mod utf8;

pub(crate) use arguments::parse_begun;
pub use arguments::{CallForm, format_call, parse_arguments};
pub(crate) use bare::may_begin;
pub(crate) use call::Reported;
pub(crate) use readers::{ARGUMENT_KEYS, begins_call};
pub(crate) use utf8::Utf8Decoder;

use crate::llm::LlmEvent;
use bare::Thinking;
use call::{Call, Step};
use regions::{Close, Ending, Reading, Region};
use tag::{Kind, Tag, attribute, decode_entity};

/// The most bytes of arguments in one call, far more than a voice agent needs.
pub const MAX_ARGUMENT_BYTES: usize = 16 * 1024;

/// The most characters of a tool's name: OpenAI's limit for function names.
pub const MAX_NAME_CHARS: usize = 64;

/// MiniMax's M3 writes this before every tag of a call.
const NOISE: &str = "]<]minimax[>[";

/// The most characters between `<` and `>`: enough for a tag with the longest name.
const MAX_TAG_CHARS: usize = 128;

/// The most characters of an entity between `&` and `;`.
const MAX_ENTITY_CHARS: usize = 8;

/// Parses an answer as it streams in.
///
/// Call [`push`](Self::push) or [`push_bytes`](Self::push_bytes) for each piece, and
/// [`finish_whole`](Self::finish_whole) or [`finish`](Self::finish) at the end. It never emits
/// [`LlmEvent::End`]: only the reader of the stream knows whether it ended properly.
#[derive(Debug, Default)]
pub struct Parser {
    mode: Mode,
    /// White space that is emitted only if words follow.
    gap: Option<char>,
    /// Words were emitted since the start or the last tool call.
    spoken: bool,
    /// The last character that was spoken.
    last: Option<char>,
    /// Nothing was spoken since the end of a region.
    after_region: bool,
    /// A call in another form was refused.
    refused: bool,
    /// Within a fence around markup.
    fenced: bool,
    /// Consecutive backticks.
    ticks: u8,
    /// Every answer begins with thoughts.
    thinks_first: bool,
    /// The thoughts at the beginning have ended.
    has_thought: bool,
    /// A call was written as ReAct's action.
    has_acted: bool,
    /// The names of the tools that are offered.
    tools: Vec<String>,
    /// How many bytes of [`NOISE`] are held back.
    noise: usize,
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
    /// Right behind [`NOISE`], with the characters since then that may be a tag.
    Marked(String),
    /// Characters that may open a region.
    Held {
        text: String,
        starts_clause: bool,
    },
    /// Characters at the start of a clause that may begin a call.
    Word(String),
    /// After three backticks, with the language, which is complete after white space.
    Fence {
        language: String,
        is_complete: bool,
    },
    /// Text that is not speech.
    Region(Box<Region>),
    /// The header of a message in a model's own format, with the token that opened it.
    Header(String),
    /// Within `<think>`, with the characters since the last `<`.
    Think(String),
    /// Thoughts without a tag.
    Thoughts(Box<Thinking>),
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

    /// Takes everything before the first `</think>` for thoughts, as for models whose prompt opens them.
    #[must_use]
    pub fn thinks_first(mut self, thinks_first: bool) -> Self {
        self.thinks_first = thinks_first;
        self.restart();
        self
    }

    /// Reads a call of one of these tools also where nothing but its name announces it.
    #[must_use]
    pub fn tools(mut self, names: Vec<String>) -> Self {
        self.tools = names;
        self
    }

    /// Whether the model has not ended the thoughts with which its answer begins. The text ends here.
    pub fn still_thinks_first(&mut self) -> bool {
        self.let_go();
        self.thinks_first && !self.has_thought
    }

    /// Whether the text so far has thoughts, whole or begun.
    pub fn has_thought(&self) -> bool {
        self.has_thought || matches!(self.mode, Mode::Think(_))
    }

    fn restart(&mut self) {
        let mode = match self.thinks_first {
            true => Mode::Think(String::new()),
            false => Mode::Text,
        };
        *self = Self {
            mode,
            thinks_first: self.thinks_first,
            tools: std::mem::take(&mut self.tools),
            ..Self::default()
        };
    }

    /// Reads the next piece of text.
    pub fn push(&mut self, text: &str) -> Vec<LlmEvent> {
        for c in text.chars() {
            self.next(c);
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

    /// Ends an answer that the model may not have finished: emits text that was held back, closes an open
    /// call with an error, and resets the parser.
    pub fn finish(&mut self) -> Vec<LlmEvent> {
        self.end(false)
    }

    /// Ends an answer that the model has finished. Like [`finish`](Self::finish), but a call in another form
    /// that ends with the answer is whole.
    pub fn finish_whole(&mut self) -> Vec<LlmEvent> {
        self.end(true)
    }

    fn end(&mut self, whole: bool) -> Vec<LlmEvent> {
        let rest = self.utf8.finish();
        let mut events = self.push(&rest);
        self.let_go();
        match std::mem::take(&mut self.mode) {
            Mode::Entity(text) => self.literal_entity(&text),
            Mode::Tag { text, .. } => self.broken_tag(&text),
            Mode::Held {
                text,
                starts_clause,
            } => self.end_held(&text, starts_clause),
            Mode::Word(text) => self.end_word(&text, whole),
            Mode::Tool(call) => call.abandon(&mut self.out),
            Mode::Region(region) => self.end_region(&region, Ending::Answer { whole }),
            _ => {}
        }
        events.append(&mut self.out.0);
        self.restart();
        events
    }

    /// Reads the next character, without [`NOISE`].
    fn next(&mut self, c: char) {
        if NOISE[self.noise..].starts_with(c) {
            self.noise = (self.noise + 1) % NOISE.len();
            if self.noise == 0 && matches!(self.mode, Mode::Text) {
                self.mode = Mode::Marked(String::new());
            }
            return;
        }
        let held = &NOISE[..std::mem::take(&mut self.noise)];
        let Some((first, rest)) = held.split_at_checked(1) else {
            return self.step(c);
        };
        // The rest may begin with it.
        first.chars().for_each(|first| self.step(first));
        rest.chars().chain([c]).for_each(|c| self.next(c));
    }

    /// Reads what is held of [`NOISE`] where the text ends. More than the bracket are no words.
    fn let_go(&mut self) {
        if std::mem::take(&mut self.noise) == 1 {
            self.step(']');
        }
    }

    fn step(&mut self, c: char) {
        match std::mem::take(&mut self.mode) {
            Mode::Text => self.text(c),
            Mode::Less { tag } => self.less(c, tag),
            Mode::Greater => self.greater(c),
            Mode::Entity(text) => self.entity(c, text),
            Mode::Tag { text, quote } => self.tag(c, text, quote),
            Mode::Marked(text) => self.marked(c, text),
            Mode::Held {
                text,
                starts_clause,
            } => self.held(c, text, starts_clause),
            Mode::Word(text) => self.word(c, text),
            Mode::Fence {
                language,
                is_complete,
            } => self.fence(c, language, is_complete),
            Mode::Region(region) => self.region(c, region),
            Mode::Header(text) => self.header(c, text),
            Mode::Think(text) => self.think(c, text),
            Mode::Thoughts(thinking) => self.thoughts(c, thinking),
            Mode::Tool(call) => self.tool(c, call),
        }
    }

    fn text(&mut self, c: char) {
        if c == '`' {
            return self.backtick();
        }
        self.ticks = 0;
        if self.begins_word(c) {
            return;
        }
        match c {
            '<' => self.mode = Mode::Less { tag: true },
            '[' | '{' | '◁' => self.hold(c),
            '>' if self.starts_clause() => self.hold(c),
            ';' | ',' if self.after_region => {}
            '&' => self.mode = Mode::Entity(String::new()),
            _ => self.plain(c),
        }
    }

    /// A character that cannot open markup.
    fn plain(&mut self, c: char) {
        match c {
            '<' => self.mode = Mode::Less { tag: false },
            '>' if self.spoken && self.gap == Some(' ') => self.mode = Mode::Greater,
            '>' | '＜' | '＞' | '‹' | '›' | '◁' | '▷' => {}
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
        self.last = Some(c);
        self.after_region = false;
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
            if !std::mem::take(&mut self.fenced) {
                self.mode = Mode::Fence {
                    language: String::new(),
                    is_complete: false,
                };
            }
        }
    }

    fn less(&mut self, c: char, tag: bool) {
        match c {
            '/' | '!' | '?' | '|' | '｜' if tag => self.open_tag(c),
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
        if quote.is_none() && self.open_tagged(&text, c) {
            return;
        }
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
            (Kind::Noise, _) => self.token(text),
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
            Step::Region(text) => {
                self.open_region(Region::new(Reading::Calls, Close::Tool), &text);
            }
            Step::Tag(text) => {
                call.abandon(&mut self.out);
                self.mode = Mode::Tag { text, quote: None };
                self.step(c);
            }
        }
    }

    fn think(&mut self, c: char, mut text: String) {
        if matches!(c, '<' | '◁' | '[') {
            text.clear();
        }
        if text.len() < MAX_TAG_CHARS {
            text.push(c);
        }
        let tag = text.strip_prefix('<').and_then(|t| t.strip_suffix('>'));
        if let Some(tag) = tag.filter(|tag| regions::ends_message(tag)) {
            self.has_thought = true;
            return self.token(tag);
        }
        let closed = tag
            .map(Tag::read)
            .is_some_and(|t| t.closing && t.kind == Kind::Think)
            || tag.is_some_and(regions::ends_thoughts)
            || matches!(text.as_str(), "◁/think▷" | "[/THINK]");
        self.has_thought |= closed;
        if !closed {
            self.mode = Mode::Think(text);
        }
    }
}

/// Whether a text closes thoughts that it has not opened.
pub(crate) fn closes_unopened_thoughts(text: &str) -> bool {
    let text = text.replace("[THINK]", "<think>");
    let text = text.replace("[/THINK]", "</think>");
    let text = text.replace("◁think▷", "<think>");
    let text = text.replace("◁/think▷", "</think>");
    let mut tags = text
        .split('<')
        .skip(1)
        .filter_map(|rest| rest.split_once('>'));
    let closes = tags.find_map(|(text, _)| {
        let tag = Tag::read(text);
        match tag.kind {
            Kind::Think if !tag.empty => Some(tag.closing),
            _ if regions::begins_thoughts(text) => Some(false),
            _ => regions::ends_thoughts(text).then_some(true),
        }
    });
    closes == Some(true)
}

#[cfg(test)]
mod tests;
