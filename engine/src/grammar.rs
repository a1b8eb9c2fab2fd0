//! Grammars that force a call of a tool, in llama.cpp's GBNF.

use crate::chat::{CALL, Declaration};
use serde_json::{Map, Value};
use std::fmt::Write;

/// The longest text of an argument, characters, so that each call ends.
const LONGEST: usize = 40;

/// Rules for JSON values.
const VALUES: &str = r#"
boolean ::= "true" | "false"
integer ::= "-"? ("0" | [1-9] [0-9]{0,8})
number ::= integer ("." [0-9]{1,4})?
list ::= "[" (value ("," value){0,3})? "]"
value ::= string | number | boolean
"#;

/// The grammar of words in which nothing looks like a call. A model that was forced to call tools goes on calling them
/// in its words otherwise.
pub const WORDS: &str = "root ::= [A-Z] [a-zA-Z0-9 ,.;:'?!%$-]*";

/// The grammar of one call of any of these tools, with its marks.
pub fn of_call(tools: &[&Declaration]) -> String {
    let mut rules = String::new();
    let names: Vec<String> = (0..tools.len()).map(|nth| format!("tool-{nth}")).collect();
    let _ = writeln!(
        rules,
        "root ::= {} ({}) {}",
        literal(&format!("{}{{\"name\":", CALL.0)),
        names.join(" | "),
        literal(&format!("}}{}", CALL.1))
    );
    for (name, tool) in names.iter().zip(tools) {
        let begin = literal(&format!("{},\"arguments\":{{", json(&tool.name)));
        let arguments = arguments(&tool.parameters);
        let _ = writeln!(rules, "{name} ::= {begin} {arguments} \"}}\"");
    }
    let _ = writeln!(
        rules,
        "string ::= \"\\\"\" [^\"\\\\\\x00-\\x1F<>]{{1,{LONGEST}}} \"\\\"\""
    );
    rules + VALUES
}

/// The members of the arguments: required ones in their order, then each further one if all before it are there.
fn arguments(schema: &Value) -> String {
    let none = Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&none);
    let required: Vec<&str> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let is_required = |name: &str| required.contains(&name);
    let member = |(name, schema): (&String, &Value)| {
        format!("{} {}", literal(&format!("{}:", json(name))), value(schema))
    };
    let (first, further): (Vec<_>, Vec<_>) =
        properties.iter().partition(|(name, _)| is_required(name));
    let first: Vec<String> = first.into_iter().map(member).collect();
    let begun = !first.is_empty();
    let mut text = first.join(" \",\" ");
    let mut open = 0;
    for (nth, one) in further.into_iter().map(member).enumerate() {
        let comma = if begun || nth > 0 { "\",\" " } else { "" };
        let _ = write!(text, " ({comma}{one}");
        open += 1;
    }
    text.push_str(&")?".repeat(open));
    text
}

fn value(schema: &Value) -> String {
    if let Some(choices) = schema["enum"].as_array() {
        let choices: Vec<String> = choices.iter().map(|c| literal(&c.to_string())).collect();
        return format!("({})", choices.join(" | "));
    }
    match schema["type"].as_str() {
        Some(kind @ ("string" | "integer" | "number" | "boolean")) => kind.to_owned(),
        Some("array") => "list".to_owned(),
        _ => "value".to_owned(),
    }
}

fn json(text: &str) -> String {
    Value::from(text).to_string()
}

/// A text as a terminal.
fn literal(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn required_arguments_come_first_and_others_may_follow() {
        let parameters = json!({
            "type": "object",
            "properties": {
                "days": {"type": "integer"}, "city": {"type": "string"},
                "unit": {"enum": ["C", "F"]},
            },
            "required": ["city"],
        });
        let text = arguments(&parameters);
        let expected = r#""\"city\":" string ("," "\"days\":" integer ("," "\"unit\":" ("\"C\"" | "\"F\""))?)?"#;
        assert_eq!(text, expected);
        assert_eq!(arguments(&json!({"type": "object"})), "");
    }
}
