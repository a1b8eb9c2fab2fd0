//! Reads the calls in a region. There are three forms: JSON, `name(key=literal)`, and tags around arguments.
//!
//! A region is read whole or not at all. Nothing is repaired and nothing evaluated.

use super::arguments::{MAX_DEPTH, Reader, parse_arguments};
use super::call::is_name_char;
use super::regions::{is_name_part, normal, without_prefix};
use super::tag::attribute;
use super::{MAX_ARGUMENT_BYTES, MAX_NAME_CHARS};
use serde_json::{Map, Number, Value};

/// The most calls in one region.
const MAX_CALLS: usize = 16;

/// The most characters of a special token.
const MAX_TOKEN_CHARS: usize = 64;

/// Digits that a number keeps in every reader of JSON. What has more is an identifier.
const MAX_DIGITS: usize = 15;

/// The keys of a call's arguments.
pub(crate) const ARGUMENT_KEYS: [&str; 4] = ["arguments", "parameters", "args", "input"];

/// The keys with which an object begins that may be a call.
const FIRST_KEYS: [&str; 5] = ["name", "type", "function", "arguments", "parameters"];

/// The other keys of a call. They carry nothing that a tool needs.
const OTHER_KEYS: [&str; 5] = ["type", "id", "index", "call_id", "tool_call_id"];

/// The languages of a fence that holds calls and nothing else.
const CALL_FENCES: [&str; 4] = ["tool_code", "tool_call", "tool_calls", "tool"];

/// The content of a region.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Found {
    /// Calls, by name and arguments.
    Calls(Vec<(String, Map<String, Value>)>),
    /// Something that was meant as a call.
    Refused {
        name: Option<String>,
        why: String,
    },
    Nothing,
}

impl Found {
    /// A refusal of what was found, if that was a call.
    pub(super) fn refused(self, why: &str) -> Self {
        let name = match self {
            Self::Calls(calls) => calls.into_iter().next().map(|(name, _)| name),
            Self::Refused { name, .. } => name,
            Self::Nothing => return Self::Nothing,
        };
        let why = why.to_owned();
        Self::Refused { name, why }
    }
}

/// Reads text that is known to hold calls.
pub(super) fn calls(text: &str) -> Found {
    let plain = plainly_quoted(text);
    Form::new(plain.as_deref().unwrap_or(text), true).read()
}

/// Reads an object or a list that may hold calls.
pub(super) fn bracket(text: &str) -> Found {
    if !begins_call(text) {
        return Found::Nothing;
    }
    // An object without arguments is not a call, whatever its name.
    let is_call = text[1..].trim_start().starts_with(is_name_char)
        || ARGUMENT_KEYS
            .iter()
            .any(|key| text.contains(&format!("\"{key}\"")));
    match Form::new(text, false).read() {
        Found::Refused { name, .. } if name.is_none() || !is_call => Found::Nothing,
        found => found,
    }
}

/// Reads the content of a fence.
pub(super) fn fence(language: &str, text: &str) -> Found {
    let is_bracket = text.trim_start().starts_with(['{', '[']);
    match language.to_ascii_lowercase().as_str() {
        language if CALL_FENCES.contains(&language) => calls(text),
        "" | "json" | "python" | "py" if is_bracket => bracket(text),
        "" | "python" | "py" => match Form::new(text, false).read() {
            Found::Refused { .. } => Found::Nothing,
            found => found,
        },
        _ => Found::Nothing,
    }
}

/// Reads the arguments of a tool that is named elsewhere.
pub(super) fn arguments_of(name: &str, text: &str) -> Found {
    let arguments = match text.trim_start().starts_with('{') {
        true => valid(name).and_then(|()| parse_arguments(text)),
        false => Err("the arguments are not an object".into()),
    };
    match arguments {
        Ok(arguments) => Found::Calls(vec![(name.to_owned(), arguments)]),
        Err(why) => Found::Refused {
            name: Some(name.to_owned()),
            why,
        },
    }
}

/// Whether a text that begins with `{` or `[` may be a call: `{"name"…`, or `[name(…`.
pub(crate) fn begins_call(text: &str) -> bool {
    if let Some(rest) = text.strip_prefix('{') {
        let Some(key) = rest.trim_start().strip_prefix('"') else {
            return false;
        };
        return FIRST_KEYS.iter().any(|first| {
            let rest = key.strip_prefix(first);
            rest.is_some_and(|rest| rest.starts_with('"'))
        });
    }
    let Some(rest) = text.strip_prefix('[').map(str::trim_start) else {
        return false;
    };
    let name = rest.trim_start_matches(is_name_char);
    rest.starts_with('{') && begins_call(rest) || name.len() < rest.len() && name.starts_with('(')
}

/// A call of FunctionGemma or Gemma, `call:f{a:<escape>text<escape>}`, with strings in double quotes. `None` if
/// the text is not such a call, or a string is not closed.
fn plainly_quoted(text: &str) -> Option<String> {
    if !text.trim_start().starts_with("call:") {
        return None;
    }
    let mark = ["<escape>", "<|\"|>"]
        .into_iter()
        .find(|mark| text.contains(mark))?;
    let parts: Vec<&str> = text.split(mark).collect();
    let parts = parts.chunks(2).map(|parts| match parts {
        [plain, quoted] => format!("{plain}{}", Value::from(*quoted)),
        plain => plain.concat(),
    });
    (text.matches(mark).count() % 2 == 0).then(|| parts.collect())
}

fn valid(name: &str) -> Result<(), String> {
    let fits = (1..=MAX_NAME_CHARS).contains(&name.len());
    if fits && name.chars().all(is_name_char) {
        Ok(())
    } else {
        Err("the tool's name cannot be read".into())
    }
}

/// A text in one of the forms.
struct Form<'a> {
    text: Reader<'a>,
    /// An opener says that these are calls.
    is_marked: bool,
    /// The name of the call that is being read.
    name: Option<String>,
    calls: Vec<(String, Map<String, Value>)>,
}

impl<'a> Form<'a> {
    fn new(text: &'a str, is_marked: bool) -> Self {
        Self {
            text: Reader::new(text),
            is_marked,
            name: None,
            calls: Vec::new(),
        }
    }

    fn read(mut self) -> Found {
        let read = self.items();
        match read {
            Ok(()) if self.calls.is_empty() => Found::Nothing,
            Ok(()) => Found::Calls(self.calls),
            Err(why) => Found::Refused {
                name: self.name,
                why,
            },
        }
    }

    fn items(&mut self) -> Result<(), String> {
        loop {
            self.skip_tokens();
            match self.text.peek() {
                None => return Ok(()),
                Some(';') => drop(self.text.eat(";")),
                Some('[') => self.list()?,
                Some(_) => self.item()?,
            }
        }
    }

    fn list(&mut self) -> Result<(), String> {
        self.text.eat("[");
        while !self.text.take(']') {
            self.item()?;
            if !self.text.take(',') && self.text.peek() != Some(']') {
                return Err("the list of calls is not closed".into());
            }
        }
        Ok(())
    }

    fn item(&mut self) -> Result<(), String> {
        self.text.skip_space();
        let before = self.text.rest().len();
        let (name, arguments) = match self.text.peek() {
            Some('{') => self.object()?,
            Some('<') => self.tagged()?,
            Some(c) if is_name_char(c) => self.named()?,
            Some(c) => return Err(format!("unexpected {c:?} beside the call")),
            None => return Err("a bracket is not closed".into()),
        };
        self.name = Some(name.clone());
        valid(&name)?;
        if before - self.text.rest().len() > MAX_ARGUMENT_BYTES {
            return Err("the arguments are too long".into());
        }
        if self.calls.len() == MAX_CALLS {
            return Err("these are too many calls".into());
        }
        self.calls.push((name, arguments));
        Ok(())
    }

    /// Skips white space and special tokens.
    fn skip_tokens(&mut self) {
        self.text.skip_space();
        while let Some(token) = self.token() {
            self.text.eat(token);
            self.text.skip_space();
        }
    }

    /// The special token at the front.
    fn token(&self) -> Option<&'a str> {
        let rest = self.text.rest();
        let is_token = rest.starts_with("<|") || rest.starts_with("<｜");
        let end = rest.char_indices().take(MAX_TOKEN_CHARS);
        let (end, _) = end.filter(|_| is_token).find(|(_, c)| *c == '>')?;
        let token = rest.get(..=end)?;
        (token.ends_with("|>") || token.ends_with("｜>")).then_some(token)
    }

    /// `{"name": "f", "arguments": {…}}`.
    fn object(&mut self) -> Result<(String, Map<String, Value>), String> {
        self.name = name_in(self.text.rest()).or(self.name.take());
        let call = self.text.object(MAX_DEPTH)?;
        self.envelope(call)
    }

    fn envelope(
        &self,
        mut call: Map<String, Value>,
    ) -> Result<(String, Map<String, Value>), String> {
        if let Some(Value::Object(_)) = call.get("function")
            && let Some(Value::Object(inner)) = call.remove("function")
        {
            return match call.keys().find(|key| !OTHER_KEYS.contains(&key.as_str())) {
                Some(key) => Err(format!("{key:?} does not belong into a call")),
                None => self.envelope(inner),
            };
        }
        let names: &[&str] = match self.is_marked {
            true => &["name", "tool_name", "function"],
            false => &["name"],
        };
        let name = names.iter().find_map(|key| call.shift_remove(*key));
        let Some(Value::String(name)) = name else {
            return Err("the call has no name".into());
        };
        let arguments = ARGUMENT_KEYS.iter().find_map(|key| call.shift_remove(*key));
        if let Some(key) = call.keys().find(|key| !OTHER_KEYS.contains(&key.as_str())) {
            return Err(format!("{key:?} does not belong into a call"));
        }
        let arguments = match arguments {
            None if !self.is_marked => return Err("the call has no arguments".into()),
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(arguments)) => arguments,
            Some(Value::String(text)) => parse_arguments(&text)?,
            Some(_) => return Err("the arguments are not an object".into()),
        };
        Ok((name, arguments))
    }

    /// `f(a=1)`, or a name and its arguments in one of several forms.
    fn named(&mut self) -> Result<(String, Map<String, Value>), String> {
        let mut name = self.text.word(is_name_char);
        let separator = self.token().is_some_and(|t| is_token(t, "|tool_sep"));
        if name == "call" && self.text.eat(":") {
            name = self.text.word(is_name_char);
        } else if name == "function" && separator {
            self.skip_tokens();
            name = self.text.word(is_name_char);
        } else if self.text.rest().starts_with(':') {
            name = self.numbered(&name)?;
        }
        self.name = Some(name.clone());
        self.skip_tokens();
        if self.text.eat("[CALL_ID]") {
            self.text.word(is_name_char);
        }
        if self.text.eat("[ARGS]") {
            self.text.skip_space();
        }
        let arguments = match self.text.peek() {
            Some('(') => self.parentheses()?,
            Some('{') => self.text.object(MAX_DEPTH)?,
            Some('`') => self.fenced_object()?,
            Some('<') => self.pairs()?,
            _ => return Err("a call is written name(argument=\"value\")".into()),
        };
        Ok((name, arguments))
    }

    /// The rest of `functions.f:0`.
    fn numbered(&mut self, name: &str) -> Result<String, String> {
        self.text.eat(":");
        if self.text.word(|c| c.is_ascii_digit()).is_empty() {
            return Err("the call has no number".into());
        }
        Ok(name.strip_prefix("functions.").unwrap_or(name).to_owned())
    }

    fn parentheses(&mut self) -> Result<Map<String, Value>, String> {
        self.text.eat("(");
        self.text.skip_space();
        if self.text.peek() != Some('{') {
            return self.text.members(Some(')'), MAX_DEPTH);
        }
        let arguments = self.text.object(MAX_DEPTH)?;
        if self.text.take(')') {
            Ok(arguments)
        } else {
            Err("the parenthesis of the call is not closed".into())
        }
    }

    fn fenced_object(&mut self) -> Result<Map<String, Value>, String> {
        let opens = self.text.eat("```");
        self.text.word(|c| c.is_ascii_alphanumeric());
        let arguments = self.text.object(MAX_DEPTH)?;
        self.text.skip_space();
        if opens && self.text.eat("```") {
            Ok(arguments)
        } else {
            Err("the fence around the arguments is not closed".into())
        }
    }

    /// `<arg_key>a</arg_key><arg_value>1</arg_value>`, any number of times.
    fn pairs(&mut self) -> Result<Map<String, Value>, String> {
        let mut arguments = Map::new();
        while !self.text.rest().is_empty() {
            let key = self.enclosed("<arg_key>", "</arg_key>")?.trim();
            self.text.skip_space();
            let value = self.enclosed("<arg_value>", "</arg_value>")?;
            self.text.skip_space();
            insert(&mut arguments, key, unquoted(value))?;
        }
        Ok(arguments)
    }

    fn enclosed(&mut self, open: &str, close: &str) -> Result<&'a str, String> {
        let value = match self.text.eat(open) {
            true => self.text.until(close),
            false => None,
        };
        value.ok_or_else(|| format!("{open} is missing or not closed"))
    }

    /// `<function=f>` or `<invoke name="f">` around `<parameter=a>1</parameter>` or one object; `<invoke>` also around
    /// `<a>1</a>` and `<arguments><a>1</a></arguments>`.
    fn tagged(&mut self) -> Result<(String, Map<String, Value>), String> {
        let OpenTag {
            tag,
            name,
            is_unclosed,
            ..
        } = self.open_tag(&["function", "invoke"])?;
        self.name = Some(name.clone());
        self.text.skip_space();
        let close = format!("</{tag}>");
        if is_unclosed || self.text.peek() == Some('{') {
            let arguments = match self.text.peek() {
                Some('(') => self.parentheses()?,
                _ => self.text.object(MAX_DEPTH)?,
            };
            if is_unclosed {
                self.text.take('>');
            }
            self.text.skip_space();
            // At the end of the text the closing tag may be missing: a server may stop at it.
            return match self.text.eat(&close) || self.text.rest().is_empty() {
                true => Ok((name, arguments)),
                false => Err(format!("{close} is missing")),
            };
        }
        let names_by_tag = without_prefix(&normal(&tag)) == "invoke";
        let is_around = |first: &&str| names_by_tag && ARGUMENT_KEYS.contains(first);
        let around = self.plain_tag().filter(is_around);
        let mut arguments = Map::new();
        while !self.text.eat(&close) {
            let (argument, value) = match self.plain_tag().filter(|_| names_by_tag) {
                Some(argument) => (argument.to_owned(), self.by_tag(argument, MAX_DEPTH)?),
                None => self.parameter()?,
            };
            insert(&mut arguments, &argument, value)?;
            self.text.skip_space();
        }
        match around.filter(|_| arguments.len() == 1) {
            None => Ok((name, arguments)),
            Some(around) => match arguments.shift_remove(around) {
                Some(Value::Object(arguments)) => Ok((name, arguments)),
                // A tool's only parameter may be called so.
                Some(value) if around == "input" => {
                    arguments.insert(around.to_owned(), value);
                    Ok((name, arguments))
                }
                _ => Err("the arguments are not an object".into()),
            },
        }
    }

    fn parameter(&mut self) -> Result<(String, Value), String> {
        let parameter = self.open_tag(&["parameter"])?;
        let close = format!("</{}>", parameter.tag);
        let value = self.text.until(&close);
        let value = value.ok_or_else(|| format!("{close} is missing"))?;
        let value = match parameter.is_text {
            true => Value::from(value),
            false => unquoted(value),
        };
        Ok((parameter.name, value))
    }

    /// The name of the opening tag that comes next, if there is nothing else in the tag.
    fn plain_tag(&self) -> Option<&'a str> {
        let tag = self.text.rest().trim_start().strip_prefix('<')?;
        let (name, _) = tag.split_once('>')?;
        (!name.is_empty() && name.chars().all(is_name_char)).then_some(name)
    }

    /// The value in a tag with nothing but this name: text, an object of such tags, or a list of `<item>`.
    fn by_tag(&mut self, name: &str, depth: usize) -> Result<Value, String> {
        if depth == 0 {
            return Err("nested too deep".into());
        }
        self.text.skip_space();
        self.text.eat(&format!("<{name}>"));
        let close = format!("</{name}>");
        if self.plain_tag().is_none() {
            let value = self.text.until(&close);
            return value
                .map(unquoted)
                .ok_or_else(|| format!("{close} is missing"));
        }
        let mut parts = Vec::new();
        while !self.text.eat(&close) {
            let part = self
                .plain_tag()
                .ok_or_else(|| format!("{close} is missing"))?;
            parts.push((part, self.by_tag(part, depth - 1)?));
            self.text.skip_space();
        }
        if parts.iter().all(|(part, _)| *part == "item") {
            return Ok(parts.into_iter().map(|(_, value)| value).collect());
        }
        let mut object = Map::new();
        for (part, value) in parts {
            insert(&mut object, part, value)?;
        }
        Ok(Value::Object(object))
    }

    /// Reads one of these tags.
    fn open_tag(&mut self, allowed: &[&str]) -> Result<OpenTag, String> {
        let unexpected = || "the tags of the call cannot be read".to_owned();
        let opens = self.text.eat("<");
        let tag = self.text.word(is_name_part);
        let plain = without_prefix(&normal(&tag));
        if !opens || !allowed.contains(&plain.as_str()) {
            return Err(unexpected());
        }
        if plain == "function"
            && let Some(name) = self.name_before_arguments()
        {
            return Ok(OpenTag {
                tag,
                name,
                is_text: false,
                is_unclosed: true,
            });
        }
        let header = self.text.until(">").ok_or_else(unexpected)?;
        let name = match header.strip_prefix('=') {
            Some(name) => Some(name.trim().trim_matches(['"', '\''])),
            None => attribute(header, "name"),
        };
        Ok(OpenTag {
            tag,
            name: name.ok_or_else(unexpected)?.to_owned(),
            is_text: attribute(header, "string") == Some("true"),
            is_unclosed: false,
        })
    }

    /// Reads the name in Llama's `<function=f{"a": 1}</function>`, `<function=f={"a": 1}</function>` or
    /// `<function=f({"a": 1})></function>`, in which the arguments follow before the opening tag is closed.
    fn name_before_arguments(&mut self) -> Option<String> {
        let rest = self.text.rest().strip_prefix('=')?;
        let after = rest.trim_start_matches(is_name_char);
        let name = &rest[..rest.len() - after.len()];
        let after = after.strip_prefix('=').unwrap_or(after);
        if name.is_empty() || !after.trim_start().starts_with(['{', '(']) {
            return None;
        }
        self.text = Reader::new(after);
        Some(name.to_owned())
    }
}

/// The opening tag of a call or of an argument.
struct OpenTag {
    /// The tag as it is written.
    tag: String,
    name: String,
    /// It says that the argument is text, whatever it looks like.
    is_text: bool,
    /// The arguments follow before its `>`.
    is_unclosed: bool,
}

fn is_token(token: &str, name: &str) -> bool {
    normal(token.trim_start_matches('<').trim_end_matches('>')) == name
}

fn insert(arguments: &mut Map<String, Value>, key: &str, value: Value) -> Result<(), String> {
    if arguments.contains_key(key) {
        return Err(format!("{key} is given twice"));
    }
    arguments.insert(key.to_owned(), value);
    Ok(())
}

/// Reads a value that is written without quotes: JSON if it is, otherwise text.
fn unquoted(value: &str) -> Value {
    let value = value.strip_prefix('\n').unwrap_or(value);
    let value = value.strip_suffix('\n').unwrap_or(value);
    let trimmed = value.trim();
    let json = match trimmed.chars().next() {
        Some('{' | '[' | '"') => parse_arguments(&format!("value={trimmed}"))
            .ok()
            .and_then(|mut read| read.remove("value").filter(|_| read.is_empty())),
        Some('0'..='9' | '-') if trimmed.len() <= MAX_DIGITS => {
            serde_json::from_str::<Number>(trimmed)
                .ok()
                .map(Value::Number)
        }
        _ => match trimmed {
            "true" => Some(Value::Bool(true)),
            "false" => Some(Value::Bool(false)),
            "null" => Some(Value::Null),
            _ => None,
        },
    };
    json.unwrap_or_else(|| Value::from(value))
}

/// The name of the first call in a text that may not be JSON.
pub(super) fn name_in(text: &str) -> Option<String> {
    let key = ["\"name\"", "\"tool_name\""];
    let (_, rest) = key.iter().find_map(|key| text.split_once(key))?;
    let value = rest.trim_start().strip_prefix(':')?.trim_start();
    let name = value.strip_prefix('"')?;
    let end = name.find(|c| !is_name_char(c)).unwrap_or(name.len());
    (1..=MAX_NAME_CHARS)
        .contains(&end)
        .then(|| name[..end].to_owned())
}
