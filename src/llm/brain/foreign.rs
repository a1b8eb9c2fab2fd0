//! Tools that others declared: called when exactly one fits the words and its arguments are there.

use super::classifier::{Classifier, Nearness};
use super::rules;
use crate::llm::ToolSpec;
use crate::router::{EmbedError, slots, text};
use crate::tools::{Declaration, Registry, RouterHints};
use regex::{Captures, Regex};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::LazyLock;

/// Nearness from which a tool fits. Requests for a tool measured 0.4 to 0.8 against its name and
/// description, other talk under 0.3.
const NEAR: f32 = 0.42;
/// How much nearer it must be than the next.
const CLEAR: f32 = 0.08;
/// Nearness to an example from which no word of the tool's name has to be said.
const SAME: f32 = 0.75;

/// What came of looking for a tool.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Match {
    /// No tool fits.
    None,
    /// Call this one.
    Call(String, Map<String, Value>),
    /// This one fits, but the named argument was not said.
    Missing(String),
}

/// What the declarations of the server's own tools say of how they are asked for.
#[derive(Debug, Default)]
pub(super) struct Known(HashMap<String, KnownTool>);

#[derive(Debug)]
struct KnownTool {
    declaration: std::sync::Arc<Declaration>,
    hints: RouterHints,
    rules: Vec<Regex>,
}

impl Known {
    pub(super) fn of(registry: &Registry) -> Self {
        let known = registry.declarations().into_iter().map(|declaration| {
            let name = declaration.spec.name.clone();
            let hints = registry.hints(&name).cloned().unwrap_or_default();
            // Declarations with rules that cannot be read are refused when they are loaded.
            let rules = hints.rules.iter().filter_map(|rule| Regex::new(rule).ok());
            let tool = KnownTool {
                rules: rules.collect(),
                hints,
                declaration,
            };
            (name, tool)
        });
        Self(known.collect())
    }

    /// The call that a rule of one of `tools` reads in an utterance.
    pub(super) fn ruled(
        &self,
        said: &str,
        tools: &[&ToolSpec],
    ) -> Option<(String, Map<String, Value>)> {
        let whole = text::normalise(said);
        let ways = [text::without_fillers(&whole), &whole];
        let sentences = text::sentences(said);
        let ways = ways.into_iter().chain(sentences.iter().map(String::as_str));
        ways.flat_map(|way| tools.iter().map(move |tool| (way, tool)))
            .find_map(|(way, tool)| {
                let known = self.0.get(&tool.name);
                // Another's tool of the same name has arguments of its own.
                let known = known.filter(|known| known.declaration.spec == **tool);
                let arguments = known?.read(way, said)?;
                Some((tool.name.clone(), arguments))
            })
    }

    /// The filler of a call, if its declaration has one.
    pub(super) fn filler(&self, name: &str, arguments: &Map<String, Value>) -> Option<String> {
        let declaration = &self.0.get(name)?.declaration;
        crate::tools::say(
            declaration,
            declaration.fillers.short.first()?,
            arguments,
            None,
        )
    }

    /// A result in the words of the tool's declaration.
    pub(super) fn answer(
        &self,
        name: &str,
        arguments: &Map<String, Value>,
        result: &Value,
    ) -> Option<String> {
        let declaration = &self.0.get(name)?.declaration;
        let template = declaration.answer.as_deref()?;
        crate::tools::say(declaration, template, arguments, Some(result))
    }

    fn examples(&self, name: &str) -> &[String] {
        self.0.get(name).map_or(&[], |tool| &tool.hints.examples)
    }
}

impl KnownTool {
    fn read(&self, sentence: &str, said: &str) -> Option<Map<String, Value>> {
        self.rules.iter().find_map(|rule| {
            let caught = rule.captures(sentence)?;
            // "Add a note not to forget the milk" is no refusal.
            let around = without_arguments(sentence, &caught);
            if rules::is_negated(&around) || rules::is_told(&around) {
                return None;
            }
            self.hints.arguments(&self.declaration, &caught, said)
        })
    }
}

fn without_arguments(sentence: &str, caught: &Captures<'_>) -> String {
    let mut around = sentence.to_owned();
    let mut spans: Vec<_> = caught
        .iter()
        .skip(1)
        .flatten()
        .map(|group| group.range())
        .collect();
    spans.sort_by_key(|span| std::cmp::Reverse(span.start));
    for span in spans {
        around.replace_range(span, "it");
    }
    around
}

/// Finds the tool for an utterance: `said` as it was transcribed, `sentence` normalised.
pub(super) fn find(
    said: &str,
    sentence: &str,
    tools: &[&ToolSpec],
    known: &Known,
    classifier: &mut Classifier,
) -> Result<Match, EmbedError> {
    if tools.is_empty() || rules::is_negated(sentence) || rules::is_told(sentence) {
        return Ok(Match::None);
    }
    let general = without_place(sentence);
    let with_examples: Vec<(&ToolSpec, &[String])> = tools
        .iter()
        .map(|tool| (*tool, known.examples(&tool.name)))
        .collect();
    let nearness = classifier.nearness(&[sentence, &general], &with_examples)?;
    let mut ranked: Vec<(Nearness, &ToolSpec)> =
        nearness.into_iter().zip(tools.iter().copied()).collect();
    ranked.sort_by(|a, b| b.0.best().total_cmp(&a.0.best()));
    let second = ranked.get(1).map_or(0.0, |(near, _)| near.best());
    let Some((near, tool)) = ranked.first().copied() else {
        return Ok(Match::None);
    };
    let fits = near.best() >= NEAR && near.best() - second >= CLEAR;
    let certain = near.example >= SAME || shares_word(sentence, tool);
    Ok(if fits && certain {
        call(said, sentence, tool)
    } else {
        Match::None
    })
}

/// The sentence up to the place it names, which weighs more than what is asked about it.
fn without_place(sentence: &str) -> String {
    let words: Vec<&str> = sentence.split(' ').collect();
    let named = (1..words.len()).find(|&at| {
        ["in", "for", "at", "near"].contains(&words[at - 1]) && slots::known(&words[at..]).is_some()
    });
    named.map_or_else(|| sentence.to_owned(), |at| words[..at - 1].join(" "))
}

/// A word of the tool's name is said: nearness alone takes "sunscreen" for the weather.
fn shares_word(sentence: &str, tool: &ToolSpec) -> bool {
    const COMMON: [&str; 12] = [
        "get", "set", "the", "and", "for", "tool", "fetch", "current", "check", "make", "create",
        "find",
    ];
    let stem = |word: &str| word.chars().take(5).collect::<String>();
    let name = tool.name.to_lowercase();
    let said: Vec<String> = sentence.split(' ').map(stem).collect();
    let mut words = name
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| word.len() > 2 && !COMMON.contains(word))
        .peekable();
    words.peek().is_none() || words.any(|word| said.contains(&stem(word)))
}

fn call(said: &str, sentence: &str, tool: &ToolSpec) -> Match {
    let empty = Map::new();
    let properties = tool
        .parameters
        .get("properties")
        .and_then(Value::as_object)
        .unwrap_or(&empty);
    let required = tool.parameters.get("required").and_then(Value::as_array);
    let required = |name: &str| required.is_some_and(|all| all.iter().any(|one| one == name));
    let mut numbers = slots::numbers(sentence).into_iter();
    let mut arguments = Map::new();
    for (name, schema) in properties {
        match argument(name, schema, said, sentence, &mut numbers) {
            Some(value) => {
                arguments.insert(name.clone(), value);
            }
            None if required(name) && schema.get("default").is_none() => {
                return Match::Missing(name.replace(['_', '-'], " "));
            }
            None => {}
        }
    }
    Match::Call(tool.name.clone(), arguments)
}

fn argument(
    name: &str,
    schema: &Value,
    said: &str,
    sentence: &str,
    numbers: &mut impl Iterator<Item = f64>,
) -> Option<Value> {
    if let Some(choices) = schema.get("enum").and_then(Value::as_array) {
        return chosen(choices, sentence);
    }
    match schema.get("type").and_then(Value::as_str)? {
        "integer" => numbers
            .next()
            .filter(|n| n.fract() == 0.0)
            .map(|n| (n as i64).into()),
        "number" => numbers.next().map(Value::from),
        "string" => string(name, schema, said, sentence).map(Value::from),
        _ => None,
    }
}

/// The one choice that is said.
fn chosen(choices: &[Value], sentence: &str) -> Option<Value> {
    let padded = format!(" {sentence} ");
    let is_said = |choice: &&Value| {
        let word = choice
            .as_str()
            .unwrap_or_default()
            .to_lowercase()
            .replace(['_', '-'], " ");
        !word.is_empty() && padded.contains(&format!(" {word} "))
    };
    let mut said = choices.iter().filter(is_said);
    let first = said.next()?;
    said.next().is_none().then(|| first.clone())
}

fn string(name: &str, schema: &Value, said: &str, sentence: &str) -> Option<String> {
    let name = name.to_lowercase();
    let about = schema
        .get("description")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_lowercase();
    let says = |words: &[&str]| {
        words
            .iter()
            .any(|word| name.contains(word) || about.contains(word))
    };
    if says(&["city", "location", "place", "town", "country", "where"]) {
        return slots::place(sentence).or_else(|| proper_name(said));
    }
    if name.contains("date") || name == "day" || name == "when" {
        return ["today", "tomorrow", "tonight"]
            .into_iter()
            .find(|day| sentence.split(' ').any(|word| word == *day))
            .map(str::to_owned);
    }
    if name.ends_with("id") || name.contains("number") || name.contains("code") {
        return code(said);
    }
    if ["query", "q", "search", "question", "topic", "term"].contains(&name.as_str()) {
        return searched(sentence);
    }
    None
}

/// "Weather in Smallville": capitalised words after a preposition, as the recogniser wrote them.
fn proper_name(said: &str) -> Option<String> {
    static NAME: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"\b(?:in|for|at|near|from|to) (\p{Lu}[\w'’.-]*(?:,? \p{Lu}[\w'’.-]*)*)").ok()
    });
    let found = NAME.as_ref()?.captures(said)?;
    Some(found[1].trim_end_matches(['.', ',']).to_owned())
}

/// The only word with a digit in it.
fn code(said: &str) -> Option<String> {
    let words = said
        .split_whitespace()
        .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()));
    let mut codes = words.filter(|word| word.contains(|c: char| c.is_ascii_digit()));
    let first = codes.next()?.to_owned();
    codes.next().is_none().then_some(first)
}

fn searched(sentence: &str) -> Option<String> {
    static SEARCH: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"\b(?:search(?: the web)?(?: for)?|look up|find|google) (?:for )?(.+)$").ok()
    });
    Some(SEARCH.as_ref()?.captures(sentence)?[1].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn weather() -> ToolSpec {
        ToolSpec {
            name: "get_weather".into(),
            description: "Get the current weather for a city".into(),
            parameters: json!({
                "type": "object",
                "properties": {"city": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]}},
                "required": ["city"]
            }),
        }
    }

    fn arguments(said: &str, tool: &ToolSpec) -> Match {
        call(said, &text::normalise(said), tool)
    }

    #[test]
    fn fills_arguments_or_says_which_is_missing() {
        let filled =
            |value: Value| Match::Call("get_weather".into(), value.as_object().cloned().unwrap());
        assert_eq!(
            arguments(
                "What's the weather in boulder, Colorado in Celsius?",
                &weather()
            ),
            filled(json!({"city": "Boulder", "unit": "celsius"}))
        );
        assert_eq!(
            arguments("Weather in Smallville.", &weather()),
            filled(json!({"city": "Smallville"}))
        );
        assert_eq!(
            arguments("what's the weather", &weather()),
            Match::Missing("city".into())
        );
        assert!(shares_word("what is the weather like", &weather()));
        assert!(!shares_word("what is the capital of france", &weather()));
    }
}
