//! Prompts with tools and the calls that answer them: generated, or read from files in BFCL's format.

use super::BenchError;
use crate::dice::Dice;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// A prompt of an agent.
#[derive(Debug, Clone)]
pub(super) struct Prompt {
    pub words: String,
    pub tools: Vec<Offered>,
    /// The calls that it needs, one after the other.
    pub calls: Vec<(String, Map<String, Value>)>,
}

#[derive(Debug, Clone)]
pub(super) struct Offered {
    pub name: String,
    pub parameters: Value,
}

/// The subjects of generated prompts: a tool, and its parameters.
const KINDS: [(&str, [&str; 2]); 12] = [
    ("search_web", ["query", "language"]),
    ("read_file", ["path", "encoding"]),
    ("list_folder", ["path", "pattern"]),
    ("get_weather", ["city", "day"]),
    ("find_flights", ["origin", "destination"]),
    ("convert_currency", ["amount", "currency"]),
    ("look_up_word", ["word", "language"]),
    ("query_table", ["table", "condition"]),
    ("get_stock_price", ["symbol", "day"]),
    ("find_person", ["name", "department"]),
    ("translate", ["text", "language"]),
    ("get_route", ["origin", "destination"]),
];

const VALUES: [&str; 10] = [
    "alpha", "boulder", "chess", "delta", "ember", "falcon", "granite", "harbour", "indigo",
    "juniper",
];

/// Prompts that need one to four calls each, of one to six tools that are offered.
pub(super) fn generated(dice: &mut Dice, count: usize) -> Vec<Prompt> {
    (0..count).map(|_| generate(dice)).collect()
}

fn generate(dice: &mut Dice) -> Prompt {
    let mut kinds = KINDS.to_vec();
    dice.shuffle(&mut kinds);
    kinds.truncate(1 + dice.index(6));
    let mut calls = Vec::new();
    for _ in 0..=dice.index(4) {
        let (name, parameters) = kinds[dice.index(kinds.len())];
        let value = |dice: &mut Dice| format!("{}-{}", VALUES[dice.index(10)], dice.index(1_000));
        let arguments = parameters.map(|name| (name.to_owned(), json!(value(dice))));
        calls.push((name.to_owned(), Map::from_iter(arguments)));
    }
    let told = calls.iter().map(|(name, arguments)| {
        let values: Vec<&str> = arguments.values().filter_map(Value::as_str).collect();
        format!("{} with {}", name.replace('_', " "), values.join(" and "))
    });
    let offered = |(name, parameters): &(&str, [&str; 2])| Offered {
        name: (*name).to_owned(),
        parameters: json!({
            "type": "object",
            "properties": {
                parameters[0]: { "type": "string" },
                parameters[1]: { "type": "string" },
            },
            "required": parameters,
        }),
    };
    Prompt {
        words: format!("Please {}.", told.collect::<Vec<_>>().join(", then ")),
        tools: kinds.iter().map(offered).collect(),
        calls,
    }
}

#[derive(Debug, Deserialize)]
struct Entry {
    id: String,
    question: Vec<Vec<Spoken>>,
    function: Vec<Function>,
}

#[derive(Debug, Deserialize)]
struct Spoken {
    content: String,
}

#[derive(Debug, Deserialize)]
struct Function {
    name: String,
    parameters: Value,
}

#[derive(Debug, Deserialize)]
struct Answer {
    id: String,
    /// Each call: its function, and for each parameter the values that are right.
    ground_truth: Vec<HashMap<String, Map<String, Value>>>,
}

/// The prompts of every `BFCL_*.json` in a folder whose answers are in `possible_answer/`.
///
/// # Errors
/// [`BenchError::Data`] if the folder has none, or a line is not in the format.
pub(super) fn bfcl(folder: &Path) -> Result<Vec<Prompt>, BenchError> {
    let wrong = |path: &Path, reason: String| BenchError::Data {
        path: path.to_owned(),
        reason,
    };
    let entries = fs::read_dir(folder).map_err(|error| wrong(folder, error.to_string()))?;
    let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    names.retain(|name| {
        let name = name.to_string_lossy();
        name.starts_with("BFCL_") && name.ends_with(".json")
    });
    names.sort();
    let mut prompts = Vec::new();
    for name in names {
        let path = folder.join("possible_answer").join(&name);
        let answers: Vec<Answer> = lines(&path)?;
        let answers: HashMap<String, Answer> = answers
            .into_iter()
            .map(|answer| (answer.id.clone(), answer))
            .collect();
        for entry in lines::<Entry>(&folder.join(&name))? {
            prompts.extend(
                answers
                    .get(&entry.id)
                    .and_then(|answer| prompt(entry, answer)),
            );
        }
    }
    if prompts.is_empty() {
        let reason = "it has no BFCL_*.json whose answers are in possible_answer/".to_owned();
        return Err(wrong(folder, reason));
    }
    Ok(prompts)
}

fn lines<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Vec<T>, BenchError> {
    let wrong = |reason: String| BenchError::Data {
        path: path.to_owned(),
        reason,
    };
    let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let parse = |(at, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| wrong(format!("line {}: {error}", at + 1)))
    };
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
    lines.map(parse).collect()
}

/// `None` if there is no call in it.
fn prompt(entry: Entry, answer: &Answer) -> Option<Prompt> {
    let call = |truth: &HashMap<String, Map<String, Value>>| {
        let (name, right) = truth.iter().next()?;
        // The first of the right values; an empty one stands for an argument that may be left out.
        let value = |(name, values): (&String, &Value)| {
            let value = values.as_array()?.first()?;
            (*value != json!("")).then(|| (name.clone(), value.clone()))
        };
        Some((tool_name(name), right.iter().filter_map(value).collect()))
    };
    let calls: Vec<_> = answer.ground_truth.iter().filter_map(call).collect();
    let words = entry
        .question
        .into_iter()
        .flatten()
        .map(|spoken| spoken.content);
    let offered = |function: Function| Offered {
        name: tool_name(&function.name),
        parameters: schema(function.parameters),
    };
    (!calls.is_empty()).then(|| Prompt {
        words: words.collect::<Vec<_>>().join("\n"),
        tools: entry.function.into_iter().map(offered).collect(),
        calls,
    })
}

fn tool_name(name: &str) -> String {
    name.replace('.', "_")
}

/// BFCL names Python's types; JSON Schema has others.
fn schema(mut value: Value) -> Value {
    match &mut value {
        Value::Object(fields) => {
            for (key, field) in fields.iter_mut() {
                let python = field.as_str().filter(|_| key == "type");
                *field = match python {
                    Some("dict") => json!("object"),
                    Some("float") => json!("number"),
                    Some("tuple") => json!("array"),
                    Some("any") => json!("string"),
                    _ => schema(field.take()),
                };
            }
        }
        Value::Array(fields) => fields
            .iter_mut()
            .for_each(|field| *field = schema(field.take())),
        _ => {}
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_prompts_offer_the_tools_that_they_call() {
        for prompt in generated(&mut Dice::named(1, ""), 200) {
            assert!((1..=4).contains(&prompt.calls.len()));
            for (tool, arguments) in &prompt.calls {
                let offered = prompt
                    .tools
                    .iter()
                    .find(|offered| offered.name == *tool)
                    .unwrap();
                let known = &offered.parameters["properties"];
                assert!(arguments.keys().all(|name| known.get(name).is_some()));
                let said = |value: &Value| prompt.words.contains(value.as_str().unwrap());
                assert!(arguments.values().all(said), "{prompt:?}");
            }
        }
    }

    #[test]
    fn prompts_are_read_in_bfcls_format() {
        let folder = tempfile::tempdir().unwrap();
        let answers = folder.path().join("possible_answer");
        fs::create_dir(&answers).unwrap();
        let entry = json!({
            "id": "simple_0",
            "question": [[{"role": "user", "content": "What is 5 factorial?"}]],
            "function": [{"name": "math.factorial", "description": "", "parameters":
                {"type": "dict", "properties": {"number": {"type": "float"}}}}],
        });
        let answer = json!({
            "id": "simple_0",
            "ground_truth": [{"math.factorial": {"number": [5], "unit": ["", "none"]}}],
        });
        fs::write(folder.path().join("BFCL_simple.json"), entry.to_string()).unwrap();
        fs::write(answers.join("BFCL_simple.json"), answer.to_string()).unwrap();
        let prompts = bfcl(folder.path()).unwrap();
        assert_eq!(prompts[0].words, "What is 5 factorial?");
        let arguments = Map::from_iter([("number".to_owned(), json!(5))]);
        assert_eq!(prompts[0].calls, [("math_factorial".to_owned(), arguments)]);
        let schema = json!({"type": "object", "properties": {"number": {"type": "number"}}});
        assert_eq!(prompts[0].tools[0].parameters, schema);
    }

    #[test]
    fn a_folder_without_prompts_and_a_broken_line_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = bfcl(folder.path()).unwrap_err().to_string();
        assert!(error.contains("it has no BFCL_*.json"), "{error}");
        let answers = folder.path().join("possible_answer");
        fs::create_dir(&answers).unwrap();
        fs::write(folder.path().join("BFCL_x.json"), "").unwrap();
        fs::write(answers.join("BFCL_x.json"), "\n{\"id\": 1}").unwrap();
        let error = bfcl(folder.path()).unwrap_err().to_string();
        assert!(error.contains("BFCL_x.json: line 2: "), "{error}");
    }
}
