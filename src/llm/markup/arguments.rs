//! Reads and writes the arguments of a call.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};
use std::str::Chars;

/// The deepest nesting of lists and objects.
pub(super) const MAX_DEPTH: usize = 32;

/// Arguments longer than this are read only when their call is closed. It bounds the time for reading the
/// same text again with each piece.
const MAX_BEGUN_BYTES: usize = 2 * 1024;

/// Reads the text between the parentheses of a call: `city="Boulder", days=3`, or one object.
///
/// # Errors
/// If the text is malformed. The message is for the model that wrote it.
pub fn parse_arguments(text: &str) -> Result<Map<String, Value>, String> {
    let mut reader = Reader::new(text);
    reader.skip_space();
    let arguments = if reader.peek() == Some('{') {
        reader.object(MAX_DEPTH)?
    } else {
        reader.members(None, MAX_DEPTH)?
    };
    reader.end()?;
    Ok(arguments)
}

/// Reads the beginning of a call's arguments, as far as they are written. Returns them and whether they are
/// an object that is closed; `None` if the text ends within an argument or after a comma, or is malformed.
pub(crate) fn parse_begun(text: &str) -> Option<(Map<String, Value>, bool)> {
    // A number or a word may go on: 12 may become 120.
    let may_go_on = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '+' | '_');
    let is_within = text.ends_with(may_go_on) || text.trim_end().ends_with(',');
    if text.len() > MAX_BEGUN_BYTES || is_within {
        return None;
    }
    let is_object = text.trim_start().starts_with('{');
    match parse_arguments(text) {
        Ok(arguments) => Some((arguments, is_object)),
        Err(_) if is_object => Some((parse_arguments(&format!("{text}}}")).ok()?, false)),
        Err(_) => None,
    }
}

/// Reads a whole call as an object: `{"name": "f", "arguments": {...}}`. The arguments may also be a string
/// that contains an object.
pub(super) fn parse_envelope(text: &str) -> Result<(String, Map<String, Value>), String> {
    let mut reader = Reader::new(text.trim());
    let mut call = reader.object(MAX_DEPTH)?;
    reader.end()?;
    let name = ["name", "tool", "function"]
        .iter()
        .find_map(|key| call.remove(*key));
    let arguments = ["arguments", "parameters", "args", "input"]
        .iter()
        .find_map(|key| call.remove(*key));
    let Some(Value::String(name)) = name else {
        return Err("the call has no name".into());
    };
    let arguments = match arguments {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(arguments)) => arguments,
        Some(Value::String(text)) => parse_arguments(&text)?,
        Some(_) => return Err("the arguments are not an object".into()),
    };
    Ok((name, arguments))
}

/// The form in which a model is told to write its calls, and in which its history has them. Every form is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallForm {
    /// `<tool>name(key="value")</tool>`
    #[default]
    Python,
    /// `<tool>name({"key": "value"})</tool>`
    Json,
    /// `<tool_call>{"name": "name", "arguments": {"key": "value"}}</tool_call>`, as many models were trained. The name
    /// is known only when the call is whole.
    Hermes,
}

/// Writes a call. It is parsed back to the same name and arguments, and contains no `<` or `>` outside its tags.
pub fn format_call(form: CallForm, name: &str, arguments: &Map<String, Value>) -> String {
    let object = || harmless(&Value::Object(arguments.clone()).to_string());
    match form {
        CallForm::Python => {
            let one = |(key, value): (&String, &Value)| {
                format!("{}={}", format_key(key), harmless(&value.to_string()))
            };
            let list: Vec<String> = arguments.iter().map(one).collect();
            format!("<tool>{}({})</tool>", harmless(name), list.join(", "))
        }
        CallForm::Json => format!("<tool>{}({})</tool>", harmless(name), object()),
        CallForm::Hermes => {
            let name = harmless(&Value::from(name).to_string());
            format!(
                "<tool_call>{{\"name\": {name}, \"arguments\": {}}}</tool_call>",
                object()
            )
        }
    }
}

fn format_key(key: &str) -> String {
    let plain = key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && key.chars().all(is_key_char);
    if plain {
        key.to_owned()
    } else {
        harmless(&Value::from(key).to_string())
    }
}

/// Escapes `<` and `>`, which in JSON occur only within strings.
fn harmless(json: &str) -> String {
    json.replace('<', "\\u003c").replace('>', "\\u003e")
}

fn is_key_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

/// Reads values from the front of a text.
pub(super) struct Reader<'a> {
    rest: Chars<'a>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { rest: text.chars() }
    }

    /// The text that has not been read yet.
    pub(super) fn rest(&self) -> &'a str {
        self.rest.as_str()
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.rest.clone().next()
    }

    pub(super) fn skip_space(&mut self) {
        self.rest = self.rest().trim_start().chars();
    }

    /// Reads this character, after white space.
    pub(super) fn take(&mut self, c: char) -> bool {
        self.skip_space();
        self.eat(c.encode_utf8(&mut [0; 4]))
    }

    /// Reads these characters.
    pub(super) fn eat(&mut self, text: &str) -> bool {
        let rest = self.rest().strip_prefix(text);
        if let Some(rest) = rest {
            self.rest = rest.chars();
        }
        rest.is_some()
    }

    /// Reads what stands before `end`, and `end`.
    pub(super) fn until(&mut self, end: &str) -> Option<&'a str> {
        let (before, rest) = self.rest().split_once(end)?;
        self.rest = rest.chars();
        Some(before)
    }

    fn end(&mut self) -> Result<(), String> {
        self.skip_space();
        match self.peek() {
            None => Ok(()),
            Some(c) => Err(format!("unexpected {c:?} after the arguments")),
        }
    }

    pub(super) fn word(&mut self, allowed: impl Fn(char) -> bool) -> String {
        let end = self.rest().find(|c| !allowed(c));
        let (word, rest) = self.rest().split_at(end.unwrap_or(self.rest().len()));
        self.rest = rest.chars();
        word.to_owned()
    }

    pub(super) fn object(&mut self, depth: usize) -> Result<Map<String, Value>, String> {
        if !self.take('{') {
            return Err("an object begins with {".into());
        }
        self.members(Some('}'), depth)
    }

    /// Reads members up to the closing bracket, or up to the end of the text.
    pub(super) fn members(
        &mut self,
        close: Option<char>,
        depth: usize,
    ) -> Result<Map<String, Value>, String> {
        let mut members = Map::new();
        while !self.closes(close) {
            let (key, value) = self.member(members.len() + 1, depth)?;
            if members.contains_key(&key) {
                return Err(format!("{key} is given twice"));
            }
            members.insert(key, value);
            self.separator(close)?;
        }
        Ok(members)
    }

    fn closes(&mut self, close: Option<char>) -> bool {
        match close {
            Some(c) => self.take(c),
            None => {
                self.skip_space();
                self.peek().is_none()
            }
        }
    }

    /// Reads a comma, unless the closing bracket comes next.
    fn separator(&mut self, close: Option<char>) -> Result<(), String> {
        self.skip_space();
        match self.peek() {
            Some(',') => {
                self.rest.next();
                Ok(())
            }
            next if next == close => Ok(()),
            Some(c) => Err(format!("expected a comma before {c:?}")),
            None => Err("a bracket is not closed".into()),
        }
    }

    fn member(&mut self, position: usize, depth: usize) -> Result<(String, Value), String> {
        let key = match self.peek() {
            Some('"' | '\'') => Some(self.string()?),
            _ => Some(self.word(is_key_char)).filter(|word| !word.is_empty()),
        };
        let named = key.filter(|_| self.take('=') || self.take(':'));
        let Some(key) = named else {
            return Err(format!("argument {position} has no name; write name=value"));
        };
        let value = self.value(depth).map_err(|why| format!("{key}: {why}"))?;
        Ok((key, value))
    }

    fn value(&mut self, depth: usize) -> Result<Value, String> {
        if depth == 0 {
            return Err("nested too deep".into());
        }
        self.skip_space();
        match self.peek() {
            Some('"' | '\'') => self.string().map(Value::String),
            Some('{') => self.object(depth - 1).map(Value::Object),
            Some('[') => self.list(depth - 1),
            Some('0'..='9' | '-' | '+' | '.') => self.number(),
            Some(_) => self.constant(),
            None => Err("the value is missing".into()),
        }
    }

    fn list(&mut self, depth: usize) -> Result<Value, String> {
        self.take('[');
        let mut list = Vec::new();
        while !self.take(']') {
            list.push(self.value(depth)?);
            self.separator(Some(']'))?;
        }
        Ok(Value::Array(list))
    }

    fn constant(&mut self) -> Result<Value, String> {
        let word = self.word(|c| c.is_alphanumeric() || c == '_');
        match word.as_str() {
            "true" | "True" => Ok(Value::Bool(true)),
            "false" | "False" => Ok(Value::Bool(false)),
            "null" | "None" => Ok(Value::Null),
            _ => Err("text must be in quotes".into()),
        }
    }

    /// Reads a number with [`str::parse`], which unlike `serde_json` rounds every float correctly.
    fn number(&mut self) -> Result<Value, String> {
        let word = self.word(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '.'));
        let digits = word.strip_prefix('+').unwrap_or(&word);
        let number = if let Ok(n) = digits.parse::<i64>() {
            Some(Number::from(n))
        } else if let Ok(n) = digits.parse::<u64>() {
            Some(Number::from(n))
        } else {
            digits.parse::<f64>().ok().and_then(Number::from_f64)
        };
        number
            .map(Value::Number)
            .ok_or_else(|| format!("{word} is not a number; put text in quotes"))
    }

    fn string(&mut self) -> Result<String, String> {
        let mut text = String::new();
        let quote = self.rest.next();
        loop {
            match self.rest.next() {
                None => return Err("a string is not closed".into()),
                c if c == quote => return Ok(text),
                Some('\\') => text.push(self.escape()?),
                Some(c) => text.push(c),
            }
        }
    }

    fn escape(&mut self) -> Result<char, String> {
        match self.rest.next() {
            None => Err("a string is not closed".into()),
            Some('n') => Ok('\n'),
            Some('t') => Ok('\t'),
            Some('r') => Ok('\r'),
            Some('b') => Ok('\u{8}'),
            Some('f') => Ok('\u{c}'),
            Some('u') => self.unicode(),
            Some(c) => Ok(c),
        }
    }

    /// Reads `\uXXXX`, or two of them for a character beyond U+FFFF; half of a pair becomes U+FFFD.
    fn unicode(&mut self) -> Result<char, String> {
        let first = self.hex4()?;
        if !(0xd800..0xdc00).contains(&first) {
            return Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        let mut ahead = self.rest.clone();
        if ahead.next() != Some('\\') || ahead.next() != Some('u') {
            return Ok(char::REPLACEMENT_CHARACTER);
        }
        self.rest = ahead;
        let second = self.hex4()?;
        let low = second.wrapping_sub(0xdc00);
        let code = 0x10000 + ((first - 0xd800) << 10) + low;
        let pair = (low < 0x400).then_some(code).and_then(char::from_u32);
        Ok(pair.unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    fn hex4(&mut self) -> Result<u32, String> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.rest.next().and_then(|c| c.to_digit(16));
            code = code * 16 + digit.ok_or("\\u needs four hexadecimal digits")?;
        }
        Ok(code)
    }
}
