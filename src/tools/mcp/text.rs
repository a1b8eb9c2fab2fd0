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

/// A server's schema for a model: in the draft of 2020-12, without titles, with descriptions of bounded length.
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
    if let Some(Value::Array(tuple)) = schema.get("items") {
        // Drafts before 2020-12 write tuples like this; later ones do not allow it.
        let tuple = tuple.clone();
        schema.shift_remove("items");
        if let Some(further) = schema.shift_remove("additionalItems") {
            schema.insert("items".into(), further);
        }
        if !tuple.is_empty() {
            schema.insert("prefixItems".into(), Value::Array(tuple));
        }
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

    #[test]
    fn a_tuple_of_an_older_draft_is_no_broken_schema() {
        let pair = json!([{"type": "number", "title": "Latitude"}, {"type": "number"}]);
        let given = json!({
            "$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
            "properties": {
                "at": {"type": "array", "minItems": 2, "items": pair, "additionalItems": false},
                "none": {"type": "array", "items": []},
            },
        });
        let kept = schema(given);
        let at = &kept["properties"]["at"];
        assert_eq!(
            at["prefixItems"],
            json!([{"type": "number"}, {"type": "number"}])
        );
        assert_eq!(at["items"], false);
        let validator = jsonschema::validator_for(&kept).unwrap();
        assert!(validator.is_valid(&json!({"at": [52.5, 13.4], "none": [1]})));
        assert!(!validator.is_valid(&json!({"at": [52.5, "east"]})));
        assert!(!validator.is_valid(&json!({"at": [52.5, 13.4, 1]})));
    }
}
