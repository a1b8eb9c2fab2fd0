//! Declared tools. One is called if it is the only one that fits the words, and its arguments are given.

use super::classifier::{self, Classifier, Nearness};
use super::rules;
use crate::language::en::{mood, slots, text};
use crate::prediction::{EmbedError, Form, RouterHints, RuleError, Rules, Settings, Today, Words};
use crate::tools::{Declaration, Effect, Registry, ToolSpec};
use regex::Regex;
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// The least similarity at which a tool fits. Requests for a tool measured 0.4 to 0.8 against its name and
/// description, other talk less than 0.3.
const NEAR: f32 = 0.42;
/// The least lead over the next tool.
const CLEAR: f32 = 0.08;
/// The least confidence of a rule, or of a prediction. Negation, supposition or past tense around it lowers the
/// confidence below this.
const MEANT: f32 = 0.5;
/// The least similarity to an example at which no word of the tool's name is required.
const SAME: f32 = 0.75;

/// The result of looking for a tool.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Match {
    /// No tool fits.
    None,
    /// Call this one.
    Call(String, Map<String, Value>),
    /// This tool fits, but the named argument is missing.
    Missing(String),
    /// This tool fits, but not for the day that was named: only for these, or for any single day if there are none.
    OtherDay(Vec<String>),
}

/// The declarations of the server's tools, and how users ask for them.
#[derive(Debug)]
pub(super) struct Known {
    tools: HashMap<String, (Arc<Declaration>, RouterHints)>,
    /// The names of those that the sources of predictions match by their examples.
    matched: HashSet<String>,
    forms: HashMap<String, Form>,
    today: Today,
    rules: Rules,
}

impl Known {
    pub(super) fn of(registry: &Registry, predicted: &Settings) -> Result<Self, RuleError> {
        let tools = registry.declarations().into_iter().map(|declaration| {
            let hints = registry.hints(&declaration.spec.name).cloned();
            (declaration, hints.unwrap_or_default())
        });
        let tools: Vec<_> = tools.collect();
        let today = predicted.today.clone();
        let matched = predicted.tools.iter();
        let matched = matched.map(|(tool, _)| tool.spec.name.clone());
        let rules = Rules::new(&tools, today.clone())?;
        let form = |(tool, hints): &(Arc<Declaration>, RouterHints)| {
            (tool.spec.name.clone(), Form::of(tool, hints))
        };
        let forms = tools.iter().map(form).collect();
        let named = tools
            .into_iter()
            .map(|tool| (tool.0.spec.name.clone(), tool));
        Ok(Self {
            tools: named.collect(),
            matched: matched.collect(),
            forms,
            today,
            rules,
        })
    }

    /// The call that a rule of one of `tools` finds in an utterance, if it is confident enough.
    pub(super) fn ruled(
        &self,
        said: &str,
        tools: &[&ToolSpec],
    ) -> Option<(String, Map<String, Value>)> {
        let whole = text::normalise(said);
        self.ruled_as(&whole, said, tools)
    }

    /// The call that a rule of one of `tools` finds in an utterance whose normalised form is `whole`.
    pub(super) fn ruled_as(
        &self,
        whole: &str,
        said: &str,
        tools: &[&ToolSpec],
    ) -> Option<(String, Map<String, Value>)> {
        let sentences = text::sentences(said);
        let ways = [whole]
            .into_iter()
            .chain(sentences.iter().map(String::as_str));
        let offered = |name: &str| {
            tools
                .iter()
                .any(|tool| tool.name == name && self.is_ours(tool))
        };
        ways.flat_map(|way| self.rules.read(text::without_fillers(way), said, true))
            .find(|call| call.confidence >= MEANT && offered(&call.tool))
            .map(|call| (call.tool, call.arguments))
    }

    /// Whether a tool is the server's own. A client's tool of the same name has its own arguments and
    /// results, so the server's declaration does not apply to it.
    fn is_ours(&self, tool: &ToolSpec) -> bool {
        let known = self.tools.get(&tool.name);
        known.is_some_and(|(known, _)| known.spec == *tool)
    }

    /// Whether the tool of this name among `tools` is a client's.
    pub(super) fn is_others<'a>(
        &self,
        name: &str,
        tools: impl IntoIterator<Item = &'a ToolSpec>,
    ) -> bool {
        let mut tools = tools.into_iter();
        tools.any(|tool| tool.name == name && !self.is_ours(tool))
    }

    /// Whether a tool of the server changes something, as a note does.
    pub(super) fn changes(&self, name: &str) -> bool {
        let known = self.tools.get(name);
        known.is_some_and(|(declaration, _)| declaration.effect.changes())
    }

    /// Whether a tool of the server only reads.
    pub(super) fn reads(&self, name: &str) -> bool {
        let known = self.tools.get(name);
        known.is_some_and(|(declaration, _)| !declaration.effect.changes())
    }

    /// Whether words that only want to know something may mean this tool: not one of the server's that changes something,
    /// unless its examples ask, too.
    fn takes_questions(&self, name: &str) -> bool {
        self.tools.get(name).is_none_or(|(declaration, hints)| {
            let asks = |example: &String| mood::only_asks(example);
            !declaration.effect.changes() || hints.examples.iter().any(asks)
        })
    }

    /// The filler for a call, if its tool declares one for this language.
    pub(super) fn filler(
        &self,
        name: &str,
        arguments: &Map<String, Value>,
        language: Option<&str>,
    ) -> Option<String> {
        let (declaration, _) = self.tools.get(name)?;
        let template = declaration.fillers_in(language).short.first()?;
        crate::tools::say(declaration, template, arguments, None)
    }

    /// A result in words, by the template of the tool's declaration.
    pub(super) fn answer(
        &self,
        name: &str,
        arguments: &Map<String, Value>,
        result: &Value,
    ) -> Option<String> {
        let (declaration, _) = self.tools.get(name)?;
        let template = declaration.answer.as_deref()?;
        crate::tools::say(declaration, template, arguments, Some(result))
    }

    /// A call of a tool with the arguments in the user's words: as the router reads them, so that what it has
    /// started early is the call that is made.
    pub(super) fn call(&self, said: &str, sentence: &str, tool: &ToolSpec) -> Match {
        let words = Words {
            said,
            text: sentence,
            today: self.today.date(),
        };
        let own = self.forms.get(&tool.name).filter(|_| self.is_ours(tool));
        let filled = match own {
            Some(form) => form.fill(&[], words),
            None if tool.examples.is_empty() => return call(said, sentence, tool),
            None => {
                let client = Declaration::new(tool.clone(), Effect::Irreversible, Duration::ZERO);
                Form::of(&client, &RouterHints::of_client(tool)).fill(&[], words)
            }
        };
        match filled {
            Ok(filled) => Match::Call(tool.name.clone(), filled.values),
            // Words that say only some of what the sources of predictions read.
            Err(_) if own.is_some() && !self.is_matched(tool) => call(said, sentence, tool),
            Err(missing) => {
                let name = missing.into_iter().next().unwrap_or_default();
                Match::Missing(name.replace(['_', '-'], " "))
            }
        }
    }

    /// The days that a tool takes, if the words name another: none if it takes any single day.
    fn other_day(&self, said: &str, sentence: &str, tool: &ToolSpec) -> Option<Vec<String>> {
        let form = self.forms.get(&tool.name).filter(|_| self.is_ours(tool))?;
        let day = form.unfit_day(Words {
            said,
            text: sentence,
            today: self.today.date(),
        })?;
        Some(day.choices().to_vec())
    }

    fn is_matched(&self, tool: &ToolSpec) -> bool {
        self.matched.contains(&tool.name) && self.is_ours(tool)
    }

    fn examples<'a>(&'a self, tool: &'a ToolSpec) -> &'a [String] {
        let known = self.tools.get(&tool.name).filter(|_| self.is_ours(tool));
        known.map_or(&tool.examples, |(_, hints)| &hints.examples)
    }
}

/// Finds the tool for an utterance, given as transcribed (`said`) and normalised (`sentence`). The server's own are
/// called for the words for which they are predicted; clients' tools for words that are near to their examples, or to
/// their names and descriptions.
pub(super) fn find(
    said: &str,
    sentence: &str,
    tools: &[&ToolSpec],
    known: &Known,
    classifier: &mut Classifier,
) -> Result<Match, EmbedError> {
    let removes = rules::asks_to_remove(sentence);
    let fits = |tool: &&ToolSpec| !removes || may_remove(tool, known.examples(tool));
    let tools: Vec<&ToolSpec> = tools.iter().copied().filter(fits).collect();
    if tools.is_empty() {
        return Ok(Match::None);
    }
    let is_matched = |name: &str| {
        let mut offered = tools.iter();
        offered.any(|tool| tool.name == name && known.is_matched(tool))
    };
    let predicted = classifier.predicted(said).into_iter();
    let mut predicted = predicted.filter(|call| call.confidence >= MEANT);
    let only_asks = mood::only_asks(said);
    let is_wanted = |name: &str| !only_asks || known.takes_questions(name);
    if let Some(call) = predicted.find(|call| is_matched(&call.tool) && is_wanted(&call.tool)) {
        return Ok(Match::Call(call.tool, call.arguments));
    }
    if rules::is_negated(sentence) || rules::is_told(sentence) || mood::only_tells(said) {
        return Ok(Match::None);
    }
    let general = classifier::without_place(sentence);
    let with_examples: Vec<(&ToolSpec, &[String])> = tools
        .iter()
        .map(|tool| (*tool, known.examples(tool)))
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
    if !fits || !certain || (known.is_ours(tool) && !is_wanted(&tool.name)) {
        return Ok(Match::None);
    }
    if let Some(days) = known.other_day(said, sentence, tool) {
        return Ok(Match::OtherDay(days));
    }
    Ok(match known.call(said, sentence, tool) {
        // Near words, but not those for which it is predicted: told or remembered ones are as near.
        Match::Call(..) if known.is_matched(tool) => Match::None,
        found => found,
    })
}

/// Whether a tool may remove something, by its name, its description, its parameters or its examples.
fn may_remove(tool: &ToolSpec, examples: &[String]) -> bool {
    let own = [tool.name.replace(['_', '-'], " "), tool.description.clone()];
    let parameters = [tool.parameters.to_string()];
    let mut texts = own.iter().chain(&parameters).chain(examples);
    texts.any(|text| rules::tells_of_removing(&text.to_lowercase()))
}

/// Whether a word of the tool's name was said. By similarity alone, "sunscreen" is about the weather.
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

/// A call with the arguments in the user's words.
pub(super) fn call(said: &str, sentence: &str, tool: &ToolSpec) -> Match {
    let required: Vec<&str> = tool.required().collect();
    let mut numbers = slots::numbers(sentence).into_iter();
    let mut arguments = Map::new();
    for (name, schema) in tool.properties() {
        match argument(name, schema, said, sentence, &mut numbers) {
            Some(value) => {
                arguments.insert(name.to_owned(), value);
            }
            None if required.contains(&name) => {
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

/// The choice that was said, if it is the only one.
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

/// Capitalised words after a preposition, as transcribed: "Weather in Smallville".
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
            examples: Vec::new(),
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
