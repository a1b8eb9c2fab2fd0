//! Tags and entities of the markup.

/// The kind of a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
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
pub(super) struct Tag<'a> {
    pub(super) kind: Kind,
    pub(super) closing: bool,
    /// Self-closing.
    pub(super) empty: bool,
    /// The text after the name.
    pub(super) rest: &'a str,
}

impl<'a> Tag<'a> {
    pub(super) fn read(text: &'a str) -> Self {
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
        if name.starts_with(['!', '?', '|', '｜']) {
            return Self::Noise;
        }
        let name = name.to_ascii_lowercase();
        // Some models put their own name in front: seed:think, longcat_think.
        match name.rsplit(':').next().unwrap_or_default() {
            "speech" => Self::Speech,
            "tool" | "tool_call" => Self::Tool,
            "think" | "thinking" | "thought" | "reasoning" => Self::Think,
            // Behind <no_think> the answer follows.
            name if name.ends_with("_think") && name != "no_think" => Self::Think,
            "br" | "p" | "div" | "li" | "ul" | "ol" | "tr" | "td" => Self::Break,
            _ => Self::Unknown,
        }
    }
}

/// The value of an attribute, quoted or not.
pub(super) fn attribute<'a>(text: &'a str, name: &str) -> Option<&'a str> {
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

pub(super) fn decode_entity(name: &str) -> Option<char> {
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
