//! Bounds on text that MCP servers write: descriptions, schemas, error messages.

use serde_json::Value;

/// The longest description of a parameter, characters.
const LONGEST_PARAMETER: usize = 200;

/// The text in one line without control characters, at most `most` characters long.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control());
    let line: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let line = line.join(" ");
    match line.char_indices().nth(most) {
        None => line,
        Some(_) => {
            let kept: String = line.chars().take(most.saturating_sub(1)).collect();
            format!("{}…", kept.trim_end())
        }
    }
}

/// A server's schema for a model: without titles, with descriptions of bounded length.
pub(crate) fn schema(mut given: Value) -> Value {
    trim(&mut given);
    given
}

fn trim(schema: &mut Value) {
    let Value::Object(schema) = schema else {
        return;
    };
    schema.shift_remove("$schema");
    schema.shift_remove("title");
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = shortened(text, LONGEST_PARAMETER);
    }
    for (key, inner) in schema.iter_mut() {
        match (key.as_str(), inner) {
            (
                "properties" | "$defs" | "definitions" | "patternProperties",
                Value::Object(named),
            ) => {
                named.values_mut().for_each(trim);
            }
            ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(list)) => {
                list.iter_mut().for_each(trim);
            }
            ("items" | "additionalProperties" | "not", inner) => trim(inner),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn texts_are_one_line_of_bounded_length() {
        assert_eq!(shortened(" a\n\tb\u{0} c ", 10), "a b c");
        assert_eq!(shortened("äöü äöü", 5), "äöü…");
        assert_eq!(shortened("äöü äöü", 7), "äöü äöü");
    }

    #[test]
    fn a_parameter_named_title_stays() {
        let given = json!({
            "$schema": "s", "title": "T", "type": "object",
            "properties": {"title": {"title": "Title", "type": "string", "description": "x".repeat(500)}},
        });
        let kept = schema(given);
        assert_eq!(kept["properties"]["title"]["type"], "string");
        assert!(kept["properties"]["title"].get("title").is_none());
        assert!(kept.get("title").is_none() && kept.get("$schema").is_none());
        let length = kept["properties"]["title"]["description"].as_str().unwrap();
        assert_eq!(length.chars().count(), LONGEST_PARAMETER);
    }
}
