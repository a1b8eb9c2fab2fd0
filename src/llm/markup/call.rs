//! Parses the text between `<tool>` and `</tool>`.

use super::arguments::{parse_arguments, parse_begun, parse_envelope};
use super::readers::name_in;
use super::tag::{Kind, Tag};
use super::{Events, MAX_ARGUMENT_BYTES, MAX_NAME_CHARS, MAX_TAG_CHARS};
use crate::llm::LlmEvent;
use serde_json::{Map, Value};

/// The name given to a call without a readable name.
pub(super) const NAMELESS: &str = "invalid";

/// A call that is being parsed.
#[derive(Debug)]
pub(super) struct Call {
    name: String,
    opened: bool,
    stage: Stage,
    /// The arguments as written, at most [`MAX_ARGUMENT_BYTES`].
    raw: String,
    quotes: Quotes,
    /// Characters since a `<` that may begin a tag.
    tag: String,
    error: Option<String>,
    told: Reported,
}

/// How much of a call has been parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Name,
    /// White space after the name.
    AfterName,
    /// Between the parentheses.
    Arguments,
    /// Everything up to the closing tag: the arguments if the name is known, otherwise the whole call as
    /// JSON.
    Body,
    /// After the closing parenthesis.
    Tail,
    /// Malformed: wait for the closing tag.
    Skip,
}

/// The parser's next step after a character.
#[derive(Debug)]
pub(super) enum Step {
    More,
    Closed,
    /// Another tag began, so this call was never closed. Contains the tag's text, without `<` and the current
    /// character.
    Tag(String),
    /// The call is written in another form. Contains its text so far.
    Region(String),
}

impl Call {
    pub(super) fn new(name: Option<&str>, out: &mut Events) -> Self {
        let mut call = Self {
            name: name.unwrap_or_default().trim().to_owned(),
            opened: false,
            stage: if name.is_some() {
                Stage::Body
            } else {
                Stage::Name
            },
            raw: String::new(),
            quotes: Quotes::default(),
            tag: String::new(),
            error: None,
            told: Reported::default(),
        };
        if name.is_some() {
            call.open_named(out);
        }
        call
    }

    fn open_named(&mut self, out: &mut Events) {
        let valid = !self.name.is_empty()
            && self.name.chars().count() <= MAX_NAME_CHARS
            && self.name.chars().all(is_name_char);
        if valid {
            self.open(out);
        } else {
            self.fail("the tool's name cannot be read", out);
        }
    }

    fn open(&mut self, out: &mut Events) {
        self.opened = true;
        out.push(LlmEvent::ToolOpened {
            name: self.name.clone(),
        });
    }

    fn fail(&mut self, why: &str, out: &mut Events) {
        if !self.opened {
            self.name.retain(is_name_char);
            self.name.truncate(MAX_NAME_CHARS);
            if self.name.is_empty() {
                NAMELESS.clone_into(&mut self.name);
            }
            self.open(out);
        }
        self.error.get_or_insert_with(|| why.to_owned());
        self.stage = Stage::Skip;
        self.quotes = Quotes::default();
        self.raw = String::new();
    }

    pub(super) fn push(&mut self, c: char, out: &mut Events) -> Step {
        if c == '[' && self.stage == Stage::Name && self.name.is_empty() && self.tag.is_empty() {
            return Step::Region(c.into());
        }
        let in_tag = !self.tag.is_empty() || (c == '<' && !self.quotes.inside());
        if in_tag {
            self.maybe_tag(c, out)
        } else {
            self.content(c, out);
            Step::More
        }
    }

    fn maybe_tag(&mut self, c: char, out: &mut Events) -> Step {
        if c == '<' || !self.tag_goes_on(c) {
            return self.tag_is_text(c, out);
        }
        let kind = self.tag.get(1..).map(Tag::read);
        match kind {
            Some(tag) if tag.closing && tag.kind == Kind::Tool && c == '>' => {
                self.tag.clear();
                self.close(out);
                Step::Closed
            }
            Some(tag)
                if !tag.closing && tag.kind.starts_anew() && (c == '>' || c.is_whitespace()) =>
            {
                Step::Tag(self.tag.split_off(1))
            }
            _ if c == '>' => self.tag_is_text(c, out),
            _ => {
                self.tag.push(c);
                Step::More
            }
        }
    }

    fn tag_goes_on(&self, c: char) -> bool {
        let shape = c.is_ascii_alphabetic() || c.is_whitespace() || matches!(c, '_' | '/' | '>');
        shape && self.tag.len() < MAX_TAG_CHARS
    }

    /// Treats the characters of an apparent tag, including the current one, as content.
    fn tag_is_text(&mut self, c: char, out: &mut Events) -> Step {
        if !self.tag.is_empty() && matches!(self.stage, Stage::Name | Stage::AfterName) {
            return Step::Region(format!("{}{}{c}", self.name, self.tag));
        }
        for held in std::mem::take(&mut self.tag).chars() {
            self.content(held, out);
        }
        if c == '<' && !self.quotes.inside() {
            self.tag.push(c);
        } else {
            self.content(c, out);
        }
        Step::More
    }

    fn content(&mut self, c: char, out: &mut Events) {
        match self.stage {
            Stage::Name | Stage::AfterName => self.name_char(c, out),
            Stage::Arguments if c == ')' && self.quotes.at_top() => self.stage = Stage::Tail,
            Stage::Arguments | Stage::Body => self.argument_char(c, out),
            Stage::Tail if c.is_whitespace() || matches!(c, ';' | '`') => {}
            Stage::Tail => self.fail("only one call fits into one <tool>", out),
            Stage::Skip => {}
        }
    }

    fn name_char(&mut self, c: char, out: &mut Events) {
        match c {
            '(' if !self.name.is_empty() => {
                self.open(out);
                self.stage = Stage::Arguments;
            }
            '{' => {
                if !self.name.is_empty() {
                    self.open(out);
                }
                self.stage = Stage::Body;
                self.argument_char(c, out);
            }
            c if c.is_whitespace() && self.name.is_empty() => {}
            c if c.is_whitespace() => self.stage = Stage::AfterName,
            c if is_name_char(c) && self.stage == Stage::Name => self.longer_name(c, out),
            _ => self.fail("a call is written name(argument=\"value\")", out),
        }
    }

    fn longer_name(&mut self, c: char, out: &mut Events) {
        if self.name.len() == MAX_NAME_CHARS {
            self.fail("the tool's name is too long", out);
        } else {
            self.name.push(c);
        }
    }

    fn argument_char(&mut self, c: char, out: &mut Events) {
        if self.raw.len() + c.len_utf8() > MAX_ARGUMENT_BYTES {
            return self.fail("the arguments are too long", out);
        }
        self.raw.push(c);
        self.quotes.push(c);
        if self.opened {
            out.argument(c);
        }
    }

    /// Reports the arguments that are finished at the end of a piece of the stream.
    pub(super) fn tell(&mut self, out: &mut Events) {
        let read = match self.stage {
            Stage::Tail => parse_arguments(&self.raw).ok().map(|read| (read, true)),
            Stage::Arguments | Stage::Body if self.opened => parse_begun(&self.raw),
            _ => None,
        };
        if let Some(event) = read.and_then(|(arguments, whole)| self.told.tell(arguments, whole)) {
            out.push(event);
        }
    }

    /// Closes the call at `</tool>`.
    pub(super) fn close(&mut self, out: &mut Events) {
        let arguments = match self.error.take() {
            Some(error) => Err(error),
            None => self.read(out),
        };
        out.push(LlmEvent::ToolClosed { arguments });
    }

    /// Closes the call with an error, because `</tool>` is missing.
    pub(super) fn abandon(mut self, out: &mut Events) {
        self.fail("the call was not closed with </tool>", out);
        self.close(out);
    }

    fn read(&mut self, out: &mut Events) -> Result<Map<String, Value>, String> {
        match self.stage {
            Stage::Name | Stage::AfterName if !self.name.is_empty() => {
                self.open(out);
                Ok(Map::new())
            }
            Stage::Body if !self.opened => self.read_envelope(out),
            Stage::Body => parse_arguments(within_parentheses(&self.raw)),
            Stage::Tail => parse_arguments(&self.raw),
            Stage::Arguments => Err("the parenthesis of the call is not closed".into()),
            _ => {
                self.fail("the call has no name", out);
                Err("the call has no name".into())
            }
        }
    }

    fn read_envelope(&mut self, out: &mut Events) -> Result<Map<String, Value>, String> {
        let (name, arguments) = parse_envelope(&self.raw).inspect_err(|why| {
            self.name = name_in(&self.raw).unwrap_or_default();
            self.fail(why, out);
        })?;
        self.name = name;
        self.open_named(out);
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        Value::Object(arguments.clone())
            .to_string()
            .chars()
            .for_each(|c| out.argument(c));
        Ok(arguments)
    }
}

impl Kind {
    /// Whether a tag cannot occur within a call.
    fn starts_anew(self) -> bool {
        matches!(self, Self::Speech | Self::Tool)
    }
}

pub(super) fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}

fn within_parentheses(text: &str) -> &str {
    let text = text.trim();
    text.strip_prefix('(')
        .and_then(|t| t.strip_suffix(')'))
        .unwrap_or(text)
}

/// The arguments of an open call reported so far: how many, and whether their list is closed.
#[derive(Debug, Default)]
pub(crate) struct Reported(Option<(usize, bool)>);

impl Reported {
    /// The event that reports these arguments, if they have not been reported yet.
    pub(crate) fn tell(&mut self, arguments: Map<String, Value>, whole: bool) -> Option<LlmEvent> {
        let told = Some((arguments.len(), whole));
        let is_new = std::mem::replace(&mut self.0, told) != told;
        is_new.then_some(LlmEvent::ToolRead { arguments, whole })
    }
}

/// The open quotes and brackets.
#[derive(Debug, Default)]
pub(super) struct Quotes {
    /// Outside of brackets nothing is quoted, and a bracket after a name is not counted: name[ARGS].
    only_within_brackets: bool,
    quote: Option<char>,
    escaped: bool,
    depth: usize,
    /// The last character that was not white space.
    before: Option<char>,
}

impl Quotes {
    pub(super) fn within_brackets() -> Self {
        Self {
            only_within_brackets: true,
            ..Self::default()
        }
    }

    pub(super) fn inside(&self) -> bool {
        self.quote.is_some()
    }

    pub(super) fn at_top(&self) -> bool {
        self.quote.is_none() && self.depth == 0
    }

    pub(super) fn push(&mut self, c: char) {
        match self.quote {
            Some(_) if self.escaped => self.escaped = false,
            Some(_) if c == '\\' => self.escaped = true,
            Some(quote) if c == quote => self.quote = None,
            Some(_) => {}
            None => self.outside(c),
        }
        if !c.is_whitespace() {
            self.before = Some(c);
        }
    }

    fn outside(&mut self, c: char) {
        match c {
            '"' | '\'' if self.may_open() => self.quote = Some(c),
            '[' if self.is_behind_name() => {}
            '(' | '[' | '{' => self.depth += 1,
            ')' | ']' | '}' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }

    /// Whether a string may begin here. An apostrophe in a bare word begins none.
    fn may_open(&self) -> bool {
        if self.only_within_brackets && self.depth == 0 {
            return false;
        }
        matches!(self.before, None | Some('=' | ':' | ',' | '(' | '[' | '{'))
    }
    fn is_behind_name(&self) -> bool {
        self.only_within_brackets && self.depth == 0 && self.before.is_some_and(is_name_char)
    }
}
