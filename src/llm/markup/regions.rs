//! Text that is never speech: where it begins, where it ends, and how it is read.
//!
//! Models write calls in the form they were trained on. Each form has an opener: a tag, a special token, a
//! marker in brackets, a fence, or a bracket at the start of a clause. From there to its end the text is a
//! region, which becomes calls if it is read whole, and is dropped or refused otherwise.

use super::MAX_ARGUMENT_BYTES;
use super::call::{Quotes, is_name_char};
use super::readers::{self, Found};
use super::tag::{Kind, Tag};

/// The most bytes of a region: several calls and their markers.
const MAX_REGION_BYTES: usize = 2 * MAX_ARGUMENT_BYTES;

/// The most characters that are held back because a list of calls may begin: [name(
const MAX_HELD: usize = 20;

/// The most characters of a tag or token within a region.
const MAX_INNER_TAG: usize = 128;

/// The most bytes of a stage direction, or of a fence until it is known whether it holds plain words.
const MAX_UNCLOSED: usize = 200;

/// The languages of a fence around plain words.
const PLAIN: [&str; 6] = ["", "text", "txt", "plaintext", "markdown", "md"];

/// Written before the arguments of ReAct's action.
const INPUT: &str = "Action Input:";

/// Tags around the parts of one call. They are read together with what they enclose.
const CALLS: [&str; 2] = ["function", "invoke"];

/// Tags around calls.
const WRAPPERS: [&str; 10] = [
    "function_call",
    "function_calls",
    "functioncall",
    "tool_calls",
    "toolcall",
    "toolcalls",
    "tool_request",
    "tool_use",
    "tool_code",
    "start_function_call",
];

/// Tags that belong inside a call. Outside of one they are the remains of a broken call.
const LEFTOVERS: [&str; 3] = ["parameter", "arg_key", "arg_value"];

/// Special tokens around calls, with the token that closes them, as [`normal`] writes them.
const TOKENS: [(&str, &str); 7] = [
    ("|tool_calls_begin", "|tool_calls_end"),
    ("|tool_call_begin", "|tool_call_end"),
    ("|tool_calls_section_begin", "|tool_calls_section_end"),
    ("|tool_call_start", "|tool_call_end"),
    ("|start_action", "|end_action"),
    ("|action_start", "|action_end"),
    ("|tools_prefix", "|tools_suffix"),
];

/// Tokens that end a message.
const ENDS: [&str; 13] = [
    "|call",
    "|end",
    "|return",
    "|start",
    "|channel",
    "|start_header_id",
    "|im_end",
    "|eot_id",
    "|eom_id",
    "|endoftext",
    "|end_of_text",
    "|end_of_sentence",
    "end_of_turn",
];

/// Openers that are neither tags nor fences.
const MARKERS: [(&str, Marker); 7] = [
    ("[TOOL_CALLS]", Marker::Calls(Close::Bracket)),
    (
        "[TOOL_REQUEST]",
        Marker::Calls(Close::Text("[END_TOOL_REQUEST]")),
    ),
    ("[THINK]", Marker::Thoughts),
    ("◁think▷", Marker::Thoughts),
    // A quotation mark right after a bracket is never prose.
    ("{\"", Marker::Bracket),
    ("[{\"", Marker::Bracket),
    (">>>", Marker::Recipient),
];

/// The kind of region that an opener begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Marker {
    /// Calls up to this end.
    Calls(Close),
    /// A bracket that may hold calls.
    Bracket,
    Recipient,
    Thoughts,
}

/// Whether the held text is an opener.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Held {
    Opens(Marker),
    MayOpen,
    Text,
}

/// Compares text with the openers. Some count only at the start of a clause.
pub(super) fn compare(text: &str, starts_clause: bool) -> Held {
    let counts = |marker: Marker| starts_clause || marker != Marker::Recipient;
    let mut markers = MARKERS
        .iter()
        .filter(|(opener, marker)| opener.starts_with(text) && counts(*marker));
    match markers.next() {
        Some((opener, marker)) if *opener == text => Held::Opens(*marker),
        Some(_) => Held::MayOpen,
        None => list_of_calls(text),
    }
}

/// Whether text begins a list of calls: a name and a parenthesis right after a bracket are never prose.
fn list_of_calls(text: &str) -> Held {
    let Some(name) = text.strip_prefix('[') else {
        return Held::Text;
    };
    match name.trim_start_matches(is_name_char) {
        "" if text.len() <= MAX_HELD => Held::MayOpen,
        "(" if name.len() > 1 => Held::Opens(Marker::Bracket),
        _ => Held::Text,
    }
}

/// Where a region ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Close {
    /// At the closing tag of its opener.
    Tag,
    /// At this tag or token, as [`normal`] writes it.
    Token(&'static str),
    /// At `</tool>` or `</tool_call>`, which may not be missing.
    Tool,
    /// At this text.
    Text(&'static str),
    /// At the bracket that closes the first one.
    Bracket,
    /// At the end of the message.
    Message,
}

/// How a region is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reading {
    /// Its opener says that it holds calls.
    Calls,
    /// A line with a tool's name and its arguments, or with `all` before speech.
    Recipient,
    /// The arguments of this tool.
    Arguments(String),
    /// ReAct's action with the arguments of this tool.
    Action(String),
    /// It may hold calls.
    Bracket,
    /// A fence, with its language.
    Fence(String),
    /// Not at all: its text is dropped.
    Dropped,
}

/// How a region ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Closed,
    /// With the answer, which may have been cut off.
    Answer {
        whole: bool,
    },
    /// Another tag of the markup began.
    Broken,
}

/// The effect of a character on a region.
#[derive(Debug)]
pub(super) enum Step {
    More,
    Closed,
    /// This token ended the message.
    Message(String),
    /// The line addressed the user: speech follows.
    Speech,
    /// A tag of the markup began. Contains its text, without `<` and the current character.
    Tag(String),
}

/// A region that is being collected.
#[derive(Debug)]
pub(super) struct Region {
    reading: Reading,
    close: Close,
    /// The name of the opening tag, if it is one.
    tag_name: String,
    /// The text, opening tag included; only its end if it is too long.
    raw: String,
    /// The reading of the text when it became too long.
    too_long: Option<Found>,
    quotes: Quotes,
    has_bracket: bool,
    /// Characters since a `<`.
    tag: Option<String>,
    /// Where in `raw` this `<` is.
    tag_at: usize,
    /// Whether the current character is part of a value that is written without quotes.
    verbatim: bool,
    /// Within `<invoke>`, in which any tag may name an argument.
    invokes: bool,
    /// Whether it has grown longer than words in brackets usually are.
    is_long: bool,
}

impl Region {
    pub(super) fn new(reading: Reading, close: Close) -> Self {
        Self {
            reading,
            close,
            tag_name: String::new(),
            raw: String::new(),
            too_long: None,
            quotes: Quotes::within_brackets(),
            has_bracket: false,
            tag: None,
            tag_at: 0,
            verbatim: false,
            invokes: false,
            is_long: false,
        }
    }

    /// The region that a tag opens. `text` is the tag's beginning, without `<`.
    pub(super) fn of_tag(text: &str) -> Option<Self> {
        let name = normal(text);
        let (reading, close) = if let Some((_, close)) = TOKENS.iter().find(|(t, _)| *t == name) {
            (Reading::Calls, Close::Token(close))
        } else {
            match (name.as_str(), without_prefix(&name).as_str()) {
                ("|python_tag", _) => (Reading::Calls, Close::Message),
                // Gemma's token has one bar, <|tool_call>, and its end the other.
                ("|tool_call", _) if !text.ends_with(['|', '｜']) => {
                    (Reading::Calls, Close::Token("tool_call|"))
                }
                ("|tool_call" | "|tool_calls", _) => (Reading::Calls, Close::Bracket),
                ("start_function_call", _) => (Reading::Calls, Close::Token("end_function_call")),
                (_, "tool_call") if name.contains(':') => (Reading::Calls, Close::Tag),
                (_, tag) if CALLS.contains(&tag) || WRAPPERS.contains(&tag) => {
                    (Reading::Calls, Close::Tag)
                }
                (_, tag) if tag.ends_with("_tool_call") => (Reading::Calls, Close::Tag),
                (_, tag) if LEFTOVERS.contains(&tag) => (Reading::Dropped, Close::Tag),
                _ => return None,
            }
        };
        let mut region = Self::new(reading, close);
        region.raw = format!("<{text}");
        region.verbatim = LEFTOVERS.contains(&name.as_str());
        region.invokes = without_prefix(&name) == "invoke";
        region.tag_name = name;
        Some(region)
    }

    /// The region that a tag of this name opens right behind [`NOISE`](super::NOISE), if it is an argument: the server
    /// has taken the call's own tag away.
    pub(super) fn of_argument(name: &str) -> Option<Self> {
        let tag = Tag::read(name);
        let is_argument = name.starts_with(|c: char| c.is_ascii_alphabetic())
            && matches!(tag.kind, Kind::Unknown | Kind::Break)
            && !tag.empty
            && Self::of_tag(name).is_none();
        is_argument.then(|| Self {
            raw: format!("<{name}"),
            verbatim: true,
            tag_name: normal(name),
            ..Self::new(Reading::Dropped, Close::Tag)
        })
    }

    pub(super) fn push(&mut self, c: char) -> Step {
        if self.raw.len() + c.len_utf8() > MAX_REGION_BYTES {
            self.forget();
        }
        self.raw.push(c);
        if c == '<' && !self.quotes.inside() {
            self.tag_is_text();
            self.tag = Some(String::new());
            self.tag_at = self.raw.len().saturating_sub(1);
            return Step::More;
        }
        let Some(tag) = &mut self.tag else {
            return self.content(c);
        };
        if c == '>' {
            let tag = std::mem::take(tag);
            self.tag = None;
            return self.inner_tag(tag);
        }
        let begins = c.is_ascii_alphabetic() || matches!(c, '/' | '|' | '｜');
        if (tag.is_empty() && !begins) || tag.len() >= MAX_INNER_TAG {
            self.tag_is_text();
            return self.content(c);
        }
        tag.push(c);
        Step::More
    }

    /// Keeps only as much of the text as is needed to find its end.
    fn forget(&mut self) {
        if self.too_long.is_none() {
            self.too_long = Some(self.read_text());
        }
        let tail = self.raw.char_indices().rev().nth(MAX_INNER_TAG);
        self.raw.drain(..tail.map_or(0, |(at, _)| at));
    }

    /// Drops the tag that has just ended from the text.
    fn drop_tag(&mut self) {
        if self.too_long.is_none() {
            self.raw.truncate(self.tag_at);
        }
    }

    fn tag_is_text(&mut self) {
        for c in self.tag.take().unwrap_or_default().chars() {
            self.quotes.push(c);
        }
    }

    fn content(&mut self, c: char) -> Step {
        if self.verbatim {
            return Step::More;
        }
        self.quotes.push(c);
        let is_open = self.quotes.inside();
        match self.close {
            Close::Text(end) if self.raw.ends_with(end) => {
                let before = self.raw.len() - end.len();
                // A string never spans lines, so a fence at the start of a line is not inside one.
                if !is_open || self.raw[..before].ends_with('\n') {
                    self.raw.truncate(before);
                    return Step::Closed;
                }
            }
            Close::Bracket => {
                self.has_bracket |= !self.quotes.at_top();
                let is_closed = self.has_bracket && self.quotes.at_top();
                if is_closed || c == '\n' && (self.is_direction() || self.is_line()) {
                    return Step::Closed;
                }
                let is_header = c == '\n' && self.reading == Reading::Recipient;
                if is_header && self.raw.trim() == "all" {
                    return Step::Speech;
                }
            }
            _ => {}
        }
        Step::More
    }

    fn inner_tag(&mut self, tag: String) -> Step {
        let name = normal(&tag);
        let closes = match self.close {
            Close::Tag => name.strip_prefix('/') == Some(&self.tag_name),
            Close::Token(token) => name == token,
            Close::Tool => matches!(name.as_str(), "/tool" | "/tool_call"),
            _ => false,
        };
        if closes {
            if !self.keeps_its_tags() {
                self.drop_tag();
            }
            return Step::Closed;
        }
        match without_prefix(&name).as_str() {
            "speech" | "/speech" | "tool" | "tool_call" => {
                self.drop_tag();
                return Step::Tag(tag);
            }
            name if ENDS.contains(&name) => {
                self.drop_tag();
                return Step::Message(tag);
            }
            "parameter" | "arg_key" | "arg_value" => self.verbatim = true,
            "/parameter" | "/arg_key" | "/arg_value" => self.verbatim = false,
            "invoke" => self.invokes = true,
            "/invoke" => {
                self.invokes = false;
                self.verbatim = false;
            }
            // The quotation marks of FunctionGemma and Gemma.
            "escape" | "|\"" => self.verbatim = !self.verbatim,
            // Behind its value nothing but tags follows.
            name if self.invokes && name.chars().all(is_name_char) => self.verbatim = true,
            _ => {}
        }
        Step::More
    }

    /// The words of an unclosed region that has become too long to be a call. Checked once, at the first whitespace `c`
    /// after the limit.
    pub(super) fn runs_on(&mut self, c: char, tools: &[String]) -> Option<String> {
        if self.is_long || self.raw.len() < MAX_UNCLOSED || !c.is_whitespace() {
            return None;
        }
        self.is_long = true;
        self.plain_words(tools)
    }

    /// The words of a region without a call, if they were meant to be heard.
    pub(super) fn words(&self, ending: Ending, tools: &[String]) -> Option<String> {
        let words = self.plain_words(tools)?;
        let is_sentence = ending != Ending::Closed && words.trim_end().ends_with(['.', '!', '?']);
        (self.is_fence() || is_sentence).then_some(words)
    }

    /// The text, if it is plain words without the name of a tool.
    fn plain_words(&self, tools: &[String]) -> Option<String> {
        let text = match &self.reading {
            Reading::Bracket if self.is_direction() => self.raw.get(1..)?.to_owned(),
            Reading::Fence(language) if PLAIN.contains(&language.as_str()) => self.raw.clone(),
            // The first word of a sentence is not the name of a language.
            Reading::Fence(word) if word.starts_with(|c: char| c.is_ascii_uppercase()) => {
                format!("{word} {}", self.raw)
            }
            _ => return None,
        };
        let last = text.split_whitespace().next_back().unwrap_or_default();
        let names_tool = |name: &String| {
            text.contains(name.as_str()) || !last.is_empty() && name.starts_with(last)
        };
        let is_plain =
            |c: char| c.is_alphanumeric() || c.is_whitespace() || ".,!?'’\"-–—…:%$€£&/".contains(c);
        let is_prose = text.chars().all(is_plain) && !tools.iter().any(names_tool);
        (is_prose && !last.is_empty()).then_some(text)
    }

    /// A stage direction: words in brackets. If it is not closed, it ends with its line.
    fn is_direction(&self) -> bool {
        let words = self.raw.strip_prefix(['[', '{']).unwrap_or_default();
        self.reading == Reading::Bracket
            && words.starts_with(char::is_alphabetic)
            && !readers::begins_call(&self.raw)
    }

    /// A line of ReAct without a bracket.
    fn is_line(&self) -> bool {
        let text = self.raw.trim();
        self.is_action() && !self.has_bracket && !text.is_empty() && !text.ends_with(INPUT)
    }

    pub(super) fn is_action(&self) -> bool {
        matches!(self.reading, Reading::Action(_))
    }

    pub(super) fn is_fence(&self) -> bool {
        matches!(self.reading, Reading::Fence(_))
    }

    fn keeps_its_tags(&self) -> bool {
        CALLS.contains(&without_prefix(&self.tag_name).as_str())
    }

    /// Reads the region, which ended in this way.
    pub(super) fn read(&self, ending: Ending) -> Found {
        if let Some(found) = self.too_long.clone() {
            return found.refused("the call is too long");
        }
        let found = self.read_text();
        match ending {
            Ending::Closed => found,
            Ending::Answer { whole: true } if self.close != Close::Tool => found,
            Ending::Answer { whole: false } => {
                found.refused("the answer was cut off within the call")
            }
            _ => found.refused("the call was not closed"),
        }
    }

    fn read_text(&self) -> Found {
        let inner = match self.raw.split_once('>') {
            Some((_, inner)) if !self.tag_name.is_empty() && !self.keeps_its_tags() => inner,
            _ => &self.raw,
        };
        match &self.reading {
            Reading::Calls | Reading::Recipient => readers::calls(inner),
            Reading::Arguments(name) => readers::arguments_of(name, inner),
            Reading::Action(name) => {
                let text = inner.trim_start();
                readers::arguments_of(name, text.strip_prefix(INPUT).unwrap_or(text))
            }
            Reading::Bracket => readers::bracket(inner),
            Reading::Fence(language) => readers::fence(language, inner),
            Reading::Dropped => Found::Nothing,
        }
    }
}

/// The name of a tag without the model's own name, as in `minimax:tool_call`.
pub(super) fn without_prefix(name: &str) -> String {
    match name.split_once(':') {
        Some((prefix, rest)) if prefix.starts_with('/') => format!("/{rest}"),
        Some((_, rest)) => rest.to_owned(),
        None => name.to_owned(),
    }
}

/// Whether this token ends a message.
pub(super) fn ends_message(tag: &str) -> bool {
    ENDS.contains(&normal(tag).as_str())
}

/// Whether this token begins thoughts.
pub(super) fn begins_thoughts(tag: &str) -> bool {
    match normal(tag).as_str() {
        // Gemma's token has one bar, <|channel>, and no header behind it.
        "|channel" => !tag.ends_with(['|', '｜']),
        name => matches!(name, "|start_thinking" | "|begin_of_thought"),
    }
}

/// Whether this token ends thoughts.
pub(super) fn ends_thoughts(tag: &str) -> bool {
    let name = normal(tag);
    matches!(
        name.as_str(),
        "|end_thinking" | "|end_of_thought" | "channel|"
    )
}

/// Whether a tag's name may go on with this character.
pub(super) fn is_name_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | ':' | '.' | '|' | '｜' | '▁' | '/')
}

/// The name of a tag or special token in lower case, with the plain characters in place of those that
/// tokenizers use. A token keeps its first bar only.
pub(super) fn normal(tag: &str) -> String {
    let name: String = tag
        .chars()
        .take_while(|c| !c.is_whitespace() && *c != '=')
        .map(|c| match c {
            '｜' => '|',
            '▁' => '_',
            c => c.to_ascii_lowercase(),
        })
        .collect();
    // DeepSeek marks its tags: <｜DSML｜invoke name="f">
    let name = name.replace("|dsml|", "");
    if name.starts_with('|') {
        name.trim_end_matches('|').to_owned()
    } else {
        name
    }
}
