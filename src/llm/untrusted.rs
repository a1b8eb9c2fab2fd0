//! Sanitises text from users, tools and clients for prompts.

use serde_json::{Map, Value};

/// Removes invisible characters and anything that could be taken for markup.
///
/// - Invisible characters go: controls other than line feed and tab, zero-width and bidirectional
///   marks, fillers, variation selectors, and the tag characters U+E0000 to U+E007F.
/// - `<` and `>`, full-width and small forms too, become `‹` and `›`. Thus no tag in a prompt
///   comes from outside, and a model that echoes its input writes no markup.
pub fn sanitise(text: &str) -> String {
    text.chars()
        .filter(|&c| !is_invisible(c))
        .map(without_tag)
        .collect()
}

/// [`sanitise`] for every string and key in a value.
pub fn sanitise_json(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(sanitise(text)),
        Value::Array(list) => list.iter().map(sanitise_json).collect(),
        Value::Object(map) => Value::Object(sanitise_map(map)),
        other => other.clone(),
    }
}

/// [`sanitise`] for every string and key of an object.
pub fn sanitise_map(map: &Map<String, Value>) -> Map<String, Value> {
    map.iter()
        .map(|(key, value)| (sanitise(key), sanitise_json(value)))
        .collect()
}

fn without_tag(c: char) -> char {
    match c {
        '<' | '＜' | '﹤' => '‹',
        '>' | '＞' | '﹥' => '›',
        c => c,
    }
}

/// Whether a character is invisible: it may carry a hidden message to a model or break up a word.
pub fn is_invisible(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        c if c.is_control() => true,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{180b}'..='\u{180f}' => true,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => true,
        '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' | '\u{feff}' => true,
        '\u{fe00}'..='\u{fe0f}' | '\u{fff0}'..='\u{fffb}' => true,
        '\u{e0000}'..='\u{e0fff}' => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn tags_and_invisible_characters_are_removed() {
        assert_eq!(
            sanitise("＜to\u{200b}ol＞x()\u{e0041}</tool>"),
            "‹tool›x()‹/tool›"
        );
        assert_eq!(sanitise("a\u{202e}b\u{fe0f}c\r\n\td\0"), "abc\n\td");
        assert_eq!(sanitise("naïve 日本 😀"), "naïve 日本 😀");
        assert_eq!(
            sanitise_json(&json!({"<k>": ["<", 1]})),
            json!({"‹k›": ["‹", 1]})
        );
    }

    proptest! {
        #[test]
        fn nothing_unsafe_is_left_and_sanitising_is_idempotent(text in any::<String>()) {
            let clean = sanitise(&text);
            prop_assert!(!clean.contains(['<', '>', '＜', '＞']));
            prop_assert!(!clean.chars().any(is_invisible));
            prop_assert_eq!(sanitise(&clean), clean);
        }
    }
}
