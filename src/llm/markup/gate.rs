//! Keeps regions out of speech: finds their openers, and turns finished ones into calls.

use super::call::{NAMELESS, is_name_char};
use super::readers::Found;
use super::regions::{self, Close, Ending, Held, Marker, Reading, Region, Step};
use super::{MAX_NAME_CHARS, MAX_TAG_CHARS, Mode, Parser};
use crate::language::sentences::SENTENCE_ENDS;
use crate::llm::LlmEvent;
use serde_json::{Map, Value};

/// The most bytes of a message's header in a model's own format.
const MAX_HEADER: usize = 512;

/// The most characters of a fence's language.
const MAX_LANGUAGE: usize = 16;

impl Parser {
    /// Returns `true` if a bracket would be the first character of a clause here.
    pub(super) fn starts_clause(&self) -> bool {
        let after_sentence = match self.last {
            Some('.' | '!' | '?' | '…') => true,
            Some(last) if SENTENCE_ENDS.contains(&last) => true,
            // Without a space it is an emoticon: ":["
            Some(':') => self.gap.is_some(),
            _ => false,
        };
        !self.spoken || self.after_region || self.gap == Some('\n') || after_sentence
    }

    pub(super) fn hold(&mut self, c: char) {
        self.held(c, String::new(), self.starts_clause());
    }

    pub(super) fn held(&mut self, c: char, mut text: String, starts_clause: bool) {
        text.push(c);
        match regions::compare(&text, starts_clause) {
            Held::MayOpen => {
                self.mode = Mode::Held {
                    text,
                    starts_clause,
                }
            }
            Held::Opens(Marker::Thoughts) => self.mode = Mode::Think(String::new()),
            Held::Opens(Marker::Calls(close)) => {
                self.open_region(Region::new(Reading::Calls, close), "");
            }
            Held::Opens(Marker::Recipient) => {
                self.open_region(Region::new(Reading::Recipient, Close::Bracket), "");
            }
            Held::Opens(Marker::Bracket) => self.open_bracket(&text),
            Held::Text if starts_clause && text.starts_with(['[', '{']) => self.open_bracket(&text),
            Held::Text => self.release(&text),
        }
    }

    /// Reads held text that turned out not to be an opener.
    pub(super) fn release(&mut self, text: &str) {
        let mut chars = text.chars();
        if let Some(first) = chars.next() {
            self.plain(first);
        }
        chars.for_each(|c| self.step(c));
    }

    /// Speaks text that is still held at the end of the answer, unless it begins a clause and so may begin a call.
    pub(super) fn end_held(&mut self, text: &str, starts_clause: bool) {
        if !starts_clause {
            text.chars().for_each(|c| self.plain(c));
        }
    }

    fn open_bracket(&mut self, text: &str) {
        self.open_region(Region::new(Reading::Bracket, Close::Bracket), text);
    }

    /// Opens a region, and reads `text` as its beginning.
    pub(super) fn open_region(&mut self, region: Region, text: &str) {
        self.mode = Mode::Region(Box::new(region));
        text.chars().for_each(|c| self.step(c));
    }

    /// Opens a region if `text` is the beginning of its tag, without the `<`, and the tag's name ends before `c`.
    /// Returns `true` if it did.
    pub(super) fn open_tagged(&mut self, text: &str, c: char) -> bool {
        let name_ended = !regions::is_name_part(c);
        let Some(region) = Region::of_tag(text).filter(|_| name_ended) else {
            return false;
        };
        self.open_region(region, c.encode_utf8(&mut [0; 4]));
        true
    }

    /// Reads a character right behind [`NOISE`](super::NOISE), or of the tag that begins there.
    pub(super) fn marked(&mut self, c: char, mut text: String) {
        let goes_on = match text.is_empty() {
            true => c == '<',
            false => regions::is_name_part(c),
        };
        if goes_on && text.len() < MAX_TAG_CHARS {
            text.push(c);
            self.mode = Mode::Marked(text);
            return;
        }
        let name = text.strip_prefix('<').filter(|_| !goes_on);
        match name.and_then(Region::of_argument) {
            Some(region) => self.open_region(region, c.encode_utf8(&mut [0; 4])),
            None => text.chars().chain([c]).for_each(|c| self.step(c)),
        }
    }

    pub(super) fn region(&mut self, c: char, mut region: Box<Region>) {
        match region.push(c) {
            Step::More => match region.runs_on(c, &self.tools) {
                Some(words) => {
                    self.fenced |= region.is_fence();
                    self.say_words(&words);
                }
                None => self.mode = Mode::Region(region),
            },
            Step::Closed => self.end_region(&region, Ending::Closed),
            Step::Speech => self.after_region = true,
            Step::Message(tag) => {
                self.end_region(&region, Ending::Answer { whole: true });
                self.token(&tag);
            }
            Step::Tag(text) => {
                self.fenced |= region.is_fence();
                self.end_region(&region, Ending::Broken);
                self.mode = Mode::Tag { text, quote: None };
                self.step(c);
            }
        }
    }

    pub(super) fn end_region(&mut self, region: &Region, ending: Ending) {
        self.after_region = true;
        self.has_acted |= region.is_action();
        self.space(' ');
        match region.read(ending) {
            Found::Calls(calls) => {
                for (name, arguments) in calls {
                    self.call(name, Ok(arguments));
                }
            }
            Found::Refused { name, why } if !self.refused => {
                self.refused = true;
                let mut name = name.unwrap_or_default();
                let end = name.find(|c| !is_name_char(c)).unwrap_or(name.len());
                name.truncate(end.min(MAX_NAME_CHARS));
                if name.is_empty() {
                    NAMELESS.clone_into(&mut name);
                }
                self.call(name, Err(why));
            }
            Found::Refused { .. } => {}
            Found::Nothing => {
                let words = region.words(ending, &self.tools);
                words.into_iter().for_each(|words| self.say_words(&words));
            }
        }
    }

    /// Reports a call that is complete: its opening, arguments and end at once.
    fn call(&mut self, name: String, arguments: Result<Map<String, Value>, String>) {
        self.gap = None;
        self.spoken = false;
        self.out.push(LlmEvent::ToolOpened { name });
        if let Ok(arguments) = &arguments {
            let piece = Value::Object(arguments.clone()).to_string();
            self.out.push(LlmEvent::ToolArguments { piece });
        }
        self.out.push(LlmEvent::ToolClosed { arguments });
    }

    /// Handles a special token that opens no region: those of a message's header and of thoughts count, all others are
    /// dropped.
    pub(super) fn token(&mut self, tag: &str) {
        match regions::normal(tag).as_str() {
            _ if regions::begins_thoughts(tag) => self.mode = Mode::Think(String::new()),
            "|start" | "|channel" | "|start_header_id" => {
                self.space('\n');
                self.mode = Mode::Header(tag.to_owned());
            }
            _ => {}
        }
    }

    /// Reads a character of a message's header, which names the speaker, the channel and the recipient.
    pub(super) fn header(&mut self, c: char, mut text: String) {
        text.push(c);
        if !text.ends_with("<|message|>") && !text.ends_with("<|end_header_id|>") {
            // No header is that long. Nothing more is spoken until the next one.
            self.mode = match text.len() > MAX_HEADER {
                true => Mode::Think(String::new()),
                false => Mode::Header(text),
            };
            return;
        }
        let is_own = match text.split_once('|').map(|(_, token)| token) {
            Some(token) if token.starts_with("channel") => true,
            _ => text.contains("|assistant"),
        };
        let to = text.split_once("to=").map(|(_, to)| {
            let end = to.find(|c| !is_name_char(c)).unwrap_or(to.len());
            to[..end].to_owned()
        });
        let dropped = || Region::new(Reading::Dropped, Close::Message);
        match to {
            _ if !is_own => self.open_region(dropped(), ""),
            Some(to) => match to.strip_prefix("functions.") {
                Some(name) => {
                    let reading = Reading::Arguments(name.to_owned());
                    self.open_region(Region::new(reading, Close::Message), "");
                }
                None => self.open_region(dropped(), ""),
            },
            None if text.contains("analysis") => self.mode = Mode::Think(String::new()),
            None => self.after_region = true,
        }
    }

    /// Reads the language of a fence and decides whether its content is markup.
    pub(super) fn fence(&mut self, c: char, mut language: String, is_complete: bool) {
        let is_language = c.is_ascii_alphanumeric() || matches!(c, '_' | '+' | '-');
        if c == '<' {
            self.fenced = true;
            self.text(c);
        } else if c.is_whitespace() || (c == '`' && !is_complete) {
            self.mode = Mode::Fence {
                language,
                is_complete: is_complete || c.is_whitespace(),
            };
        } else if is_language && !is_complete && language.len() < MAX_LANGUAGE {
            language.push(c);
            self.mode = Mode::Fence {
                language,
                is_complete,
            };
        } else {
            let (language, mut text) = match is_complete {
                true => (language, String::new()),
                false => (String::new(), language),
            };
            text.push(c);
            let reading = Reading::Fence(language);
            self.open_region(Region::new(reading, Close::Text("```")), &text);
        }
    }
}
