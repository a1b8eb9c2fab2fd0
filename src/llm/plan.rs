//! Plans: several calls that the model writes at once, some of which need the results of others. Pure.
//!
//! A plan is a call of the tool [`PLAN`], in markup or native. Its steps are calls:
//!
//! ```json
//! {"steps": [{"name": "flights", "tool": "find_flights", "arguments": {"to": "Oslo"}},
//!            {"name": "seats", "tool": "free_seats", "arguments": {"flight": "$flights[0].id"}}],
//!  "result": {"flight": "$flights[0].id", "seats": "$seats[*].number"}}
//! ```
//!
//! A string that begins with `$` and a name is a reference to the result of an earlier step:
//!
//! ```text
//! reference = "$" name { "." field | "[" index "]" | "[*]" }
//! name      = letter or "_", then letters, digits, "_" or "-"
//! field     = name, or any text as ["text"]
//! index     = digits, from 0
//! ```
//!
//! `[*]` applies the rest of the path to each element of a list, at most [`MOST_ELEMENTS`], and gives the list of what
//! that finds. A reference must be a whole string, at any depth of the arguments. A string that begins with a literal
//! `$` is written with `$$`. A step without a name is called `step1`, `step2` and so on. Without `result`, the result
//! of the plan is that of the steps that no other step uses.
//!
//! Nothing in a result is ever read as a reference: results come from outside.

mod report;

pub use report::{Done, kept, reason, report};

use super::markup::MAX_ARGUMENT_BYTES;
use crate::tools::ToolSpec;
use report::{Budget, shortened, too_long};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The name of the tool whose calls are plans.
pub const PLAN: &str = "plan";

/// The most steps of a plan.
pub const MOST_STEPS: usize = 8;

/// The most elements of a list that `[*]` goes through.
pub const MOST_ELEMENTS: usize = 16;

/// The longest result of a plan, bytes of JSON. It goes into the prompt.
const LONGEST_OUTCOME: usize = 8_000;

/// The longest name in an error, characters.
const LONGEST_NAME: usize = 40;

/// The longest reference in an error, characters.
const LONGEST_REFERENCE: usize = 80;

/// A plan whose form is valid.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The calls in their order, at least one.
    pub steps: Vec<Step>,
    /// The result, with references to steps.
    result: Option<Value>,
    /// For each step with arguments that the server takes from results: the earlier steps with those results, by index.
    fed: BTreeMap<usize, BTreeSet<usize>>,
}

/// A call of a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The name of its result.
    pub name: String,
    /// The tool's name.
    pub tool: String,
    /// The arguments by name, with references to earlier steps.
    pub arguments: Map<String, Value>,
}

/// The declaration of [`PLAN`] for a model that has these `tools`.
pub fn spec(tools: &[&str]) -> ToolSpec {
    let description = format!(
        "Makes several calls at once, if one needs the result of another: write all of them as steps, in order, \
         without waiting in between. An argument that is exactly \"$NAME\" is the result of the earlier step of that \
         name; \"$NAME.field\", \"$NAME[0]\" and \"$NAME[*].field\" are parts of it, the last one a list of at most \
         {MOST_ELEMENTS}. Steps that need nothing of each other run at the same time. A step that fails ends the plan. \
         You see one result: what `result` says, or else that of the steps that no other step uses."
    );
    let step = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "the name of its result"},
            "tool": {"type": "string", "enum": tools},
            "arguments": {"type": "object", "description": "the arguments of that tool"}
        },
        "required": ["tool", "arguments"]
    });
    ToolSpec {
        examples: Vec::new(),
        name: PLAN.into(),
        description,
        parameters: json!({
            "type": "object",
            "properties": {
                "steps": {"type": "array", "items": step, "minItems": 1, "maxItems": MOST_STEPS},
                "result": {
                    "type": "object",
                    "description": "what you need to know in the end, such as {\"price\": \"$seats[0].price\"}"
                }
            },
            "required": ["steps"]
        }),
    }
}

/// The arguments of a sample plan, for the prompt.
pub fn example() -> Map<String, Value> {
    let step = |name: &str, arguments: Value| json!({"name": name, "tool": "tool_name", "arguments": arguments});
    let steps = [
        step("orders", json!({"text": "value"})),
        step("details", json!({"id": "$orders[0].id"})),
    ];
    Map::from_iter([("steps".to_owned(), json!(steps))])
}

impl Plan {
    /// Reads the arguments of a call of [`PLAN`].
    ///
    /// # Errors
    /// The first error, in words for the model.
    pub fn read(arguments: &Map<String, Value>) -> Result<Self, String> {
        if let Some(other) = arguments
            .keys()
            .find(|key| !["steps", "result"].contains(&key.as_str()))
        {
            return Err(format!("a plan has no `{other}`, only steps and result"));
        }
        let steps = arguments.get("steps").and_then(Value::as_array);
        let steps = steps.ok_or("a plan has steps, a list")?;
        if steps.is_empty() || steps.len() > MOST_STEPS {
            return Err(format!(
                "a plan has 1 to {MOST_STEPS} steps, not {}",
                steps.len()
            ));
        }
        let steps = steps.iter().enumerate();
        let steps: Vec<Step> = steps
            .map(|(at, step)| Step::read(at, step).map_err(|why| format!("step {}: {why}", at + 1)))
            .collect::<Result<_, _>>()?;
        let plan = Self {
            steps,
            result: arguments
                .get("result")
                .filter(|result| !result.is_null())
                .cloned(),
            fed: BTreeMap::new(),
        };
        for (at, step) in plan.steps.iter().enumerate() {
            if plan.named(&step.name) != Some(at) {
                return Err(format!(
                    "step {}: another step is named {}",
                    at + 1,
                    step.name
                ));
            }
            let arguments = step.arguments.values();
            arguments
                .into_iter()
                .try_for_each(|value| plan.check(value, at))
                .map_err(|why| format!("step {}, {why}", at + 1))?;
        }
        let result = plan
            .result
            .as_ref()
            .map_or(Ok(()), |result| plan.check(result, plan.steps.len()));
        result.map_err(|why| format!("result, {why}"))?;
        Ok(plan)
    }

    /// The arguments of a call that makes this plan, with a name for every step.
    pub fn arguments(&self) -> Map<String, Value> {
        let steps = self.steps.iter().map(|step| {
            let Step {
                name,
                tool,
                arguments,
            } = step;
            json!({"name": name, "tool": tool, "arguments": arguments})
        });
        let steps = ("steps".to_owned(), Value::from_iter(steps));
        let result = self
            .result
            .clone()
            .map(|result| ("result".to_owned(), result));
        [steps].into_iter().chain(result).collect()
    }

    /// The arguments of a call that makes the rest of this plan, from `step` on. That step gets `arguments` instead of
    /// its own.
    pub fn rest(&self, step: usize, arguments: &Map<String, Value>) -> Map<String, Value> {
        let mut rest = self.clone();
        rest.steps.drain(..step.min(self.steps.len()));
        if let Some(first) = rest.steps.first_mut() {
            first.arguments.clone_from(arguments);
        }
        rest.arguments()
    }

    /// Notes that the server takes arguments of `step` from the results of `earlier` steps: it comes after them.
    pub fn feed(&mut self, step: usize, earlier: BTreeSet<usize>) {
        self.fed.insert(step, earlier);
    }

    /// The earlier steps whose results a step needs, by index.
    pub fn needs(&self, step: usize) -> BTreeSet<usize> {
        let mut needs = self.fed.get(&step).cloned().unwrap_or_default();
        let arguments = self.steps.get(step).map(|step| &step.arguments);
        for value in arguments.into_iter().flat_map(Map::values) {
            self.collect(value, &mut needs);
        }
        needs
    }

    /// The arguments of a step, with the `results` of the steps so far, by index.
    ///
    /// # Errors
    /// Names the step, and the reference with its missing part, or says that the arguments are too long.
    pub fn arguments_of(
        &self,
        step: usize,
        results: &[Option<Value>],
    ) -> Result<Map<String, Value>, String> {
        let arguments = self
            .steps
            .get(step)
            .map(|step| Value::Object(step.arguments.clone()));
        let filled = self.fill_within(MAX_ARGUMENT_BYTES, &arguments.unwrap_or_default(), results);
        let why = match filled {
            Ok(Value::Object(filled)) => return Ok(filled),
            Err(Unfilled::Wrong(why)) => why,
            Ok(_) | Err(Unfilled::TooLong) => "its arguments are too long".into(),
        };
        Err(format!("step {}, {why}", step + 1))
    }

    /// The result of the whole plan, all of whose steps have `results`.
    ///
    /// # Errors
    /// Names the reference and the missing part, or says that the result is too long.
    pub fn outcome(&self, results: &[Option<Value>]) -> Result<Value, String> {
        let outcome = match &self.result {
            Some(result) => self.fill_within(LONGEST_OUTCOME, result, results),
            None => self.last_results(results),
        };
        outcome.map_err(|unfilled| match unfilled {
            Unfilled::Wrong(why) => format!("result, {why}"),
            Unfilled::TooLong => format!(
                "the result is too long: {LONGEST_OUTCOME} bytes at most. Say in `result` what you need of it"
            ),
        })
    }

    /// The results of the steps that no other step uses: one alone, or several in an object by their steps' names.
    fn last_results(&self, results: &[Option<Value>]) -> Result<Value, Unfilled> {
        let used: BTreeSet<usize> = (0..self.steps.len())
            .flat_map(|step| self.needs(step))
            .collect();
        let last = self.steps.iter().zip(results).enumerate();
        let last = last.filter(|(at, _)| !used.contains(at));
        let mut budget = Budget(LONGEST_OUTCOME);
        let mut last: Vec<(String, Value)> = last
            .map(|(_, (step, result))| {
                let result = result.as_ref().unwrap_or(&Value::Null);
                Ok((step.name.clone(), copied(result, &mut budget)?))
            })
            .collect::<Result<_, Unfilled>>()?;
        let last = match last.len() {
            1 => last.remove(0).1,
            _ => Value::from_iter(last),
        };
        within(LONGEST_OUTCOME, last)
    }

    fn named(&self, name: &str) -> Option<usize> {
        self.steps.iter().position(|step| step.name == name)
    }

    /// Checks the references in `value`, which may name the steps before `step`.
    fn check(&self, value: &Value, step: usize) -> Result<(), String> {
        match value {
            Value::String(text) => self.check_text(text, step),
            Value::Array(values) => values.iter().try_for_each(|value| self.check(value, step)),
            Value::Object(values) => values
                .values()
                .try_for_each(|value| self.check(value, step)),
            Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
        }
    }

    fn check_text(&self, text: &str, step: usize) -> Result<(), String> {
        let Some(written) = reference(text) else {
            let is_within = |step: &Step| {
                text.match_indices('$')
                    .any(|(at, _)| begins_with_name(&text[at + 1..], &step.name))
            };
            return match self
                .steps
                .iter()
                .find(|step| !text.starts_with("$$") && is_within(step))
            {
                Some(within) => Err(format!(
                    "`{}`: ${} stands alone or not at all",
                    shortened(text, LONGEST_REFERENCE),
                    shortened(&within.name, LONGEST_NAME)
                )),
                None => Ok(()),
            };
        };
        let wrong = |why: String| wrong(written, &why);
        let path = Path::read(written).map_err(wrong)?;
        let name = shortened(&path.name, LONGEST_NAME);
        match self.named(&path.name) {
            Some(named) if named < step => Ok(()),
            Some(_) => Err(wrong(format!("{name} is no earlier step"))),
            None => Err(wrong(format!("no step is named {name}"))),
        }
    }

    fn collect(&self, value: &Value, needs: &mut BTreeSet<usize>) {
        match value {
            Value::String(text) => {
                let path = reference(text).and_then(|written| Path::read(written).ok());
                needs.extend(path.and_then(|path| self.named(&path.name)));
            }
            Value::Array(values) => values.iter().for_each(|value| self.collect(value, needs)),
            Value::Object(values) => values.values().for_each(|value| self.collect(value, needs)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Replaces the references in `value`. The whole may have `most` bytes of JSON.
    fn fill_within(
        &self,
        most: usize,
        value: &Value,
        results: &[Option<Value>],
    ) -> Result<Value, Unfilled> {
        let filled = self.fill(value, results, &mut Budget(most))?;
        within(most, filled)
    }

    /// Replaces the references in `value`, but none in the results that they stand for. The bytes of the copies are
    /// taken from `budget`.
    fn fill(
        &self,
        value: &Value,
        results: &[Option<Value>],
        budget: &mut Budget,
    ) -> Result<Value, Unfilled> {
        Ok(match value {
            Value::String(text) => match reference(text) {
                Some(written) => self.find(written, results, budget)?,
                None if text.starts_with("$$") => Value::from(&text[1..]),
                None => value.clone(),
            },
            Value::Array(values) => {
                let values = values.iter().map(|value| self.fill(value, results, budget));
                Value::Array(values.collect::<Result<_, _>>()?)
            }
            Value::Object(values) => {
                let one = |(key, value): (&String, &Value)| {
                    Ok::<_, Unfilled>((key.clone(), self.fill(value, results, budget)?))
                };
                Value::Object(values.iter().map(one).collect::<Result<_, _>>()?)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        })
    }

    fn find(
        &self,
        written: &str,
        results: &[Option<Value>],
        budget: &mut Budget,
    ) -> Result<Value, Unfilled> {
        let path = Path::read(written).map_err(|why| wrong(written, &why))?;
        let result = self
            .named(&path.name)
            .and_then(|step| results.get(step)?.as_ref());
        let name = || shortened(&path.name, LONGEST_NAME);
        let result = result.ok_or_else(|| wrong(written, &format!("{} has no result", name())))?;
        if *result == too_long() {
            let why = format!("{} is done, but its result was too long", name());
            return Err(wrong(written, &why).into());
        }
        part(result, &path.parts, budget).map_err(|unfilled| match unfilled {
            Unfilled::Wrong(why) => wrong(written, &why).into(),
            Unfilled::TooLong => Unfilled::TooLong,
        })
    }
}

/// An error of replacing references.
#[derive(Debug, PartialEq)]
enum Unfilled {
    /// A reference to something that does not exist.
    Wrong(String),
    /// The value with all its results would be too long.
    TooLong,
}

impl From<String> for Unfilled {
    fn from(why: String) -> Self {
        Self::Wrong(why)
    }
}

/// The text of an error, with its reference.
fn wrong(written: &str, why: &str) -> String {
    format!("`{}`: {why}", shortened(written, LONGEST_REFERENCE))
}

/// A copy of a part of a result, if the budget allows it.
fn copied(value: &Value, budget: &mut Budget) -> Result<Value, Unfilled> {
    match budget.take(value) {
        true => Ok(value.clone()),
        false => Err(Unfilled::TooLong),
    }
}

/// The value, if it has at most `most` bytes of JSON.
fn within(most: usize, value: Value) -> Result<Value, Unfilled> {
    match Budget(most).take(&value) {
        true => Ok(value),
        false => Err(Unfilled::TooLong),
    }
}

impl Step {
    fn read(at: usize, step: &Value) -> Result<Self, String> {
        let step = step
            .as_object()
            .ok_or("it is not an object with tool and arguments")?;
        if let Some(other) = step
            .keys()
            .find(|key| !["name", "tool", "arguments"].contains(&key.as_str()))
        {
            return Err(format!(
                "it has no `{other}`, only name, tool and arguments"
            ));
        }
        let tool = step
            .get("tool")
            .and_then(Value::as_str)
            .ok_or("it names no tool")?;
        let name = match step.get("name") {
            None | Some(Value::Null) => format!("step{}", at + 1),
            Some(Value::String(name)) if is_name(name) => name.clone(),
            Some(name) => return Err(format!("{name} is no name: use letters, digits and _")),
        };
        let arguments = match step.get("arguments") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(arguments)) => arguments.clone(),
            Some(_) => return Err("its arguments are not an object".into()),
        };
        Ok(Self {
            name,
            tool: tool.to_owned(),
            arguments,
        })
    }
}

/// A parsed reference.
#[derive(Debug, PartialEq)]
struct Path {
    name: String,
    parts: Vec<Part>,
}

#[derive(Debug, PartialEq)]
enum Part {
    Field(String),
    Index(usize),
    Each,
}

/// The reference in `text` without its `$`; `None` if the text is not a reference.
fn reference(text: &str) -> Option<&str> {
    let written = text.strip_prefix('$')?;
    let (name, behind) = split_name(written);
    (is_name(name) && (behind.is_empty() || behind.starts_with(['.', '[']))).then_some(written)
}

impl Path {
    fn read(written: &str) -> Result<Self, String> {
        let (name, mut rest) = split_name(written);
        let mut parts = Vec::new();
        while !rest.is_empty() {
            let (part, behind) = Part::read(rest)
                .ok_or("a reference is a name, and behind it .field, [0] or [*]")?;
            parts.push(part);
            rest = behind;
        }
        Ok(Self {
            name: name.to_owned(),
            parts,
        })
    }
}

impl Part {
    /// Reads one part. Returns it and the rest of the text.
    fn read(text: &str) -> Option<(Self, &str)> {
        if let Some(text) = text.strip_prefix('.') {
            let (field, rest) = split_name(text);
            return is_name(field).then(|| (Self::Field(field.to_owned()), rest));
        }
        let text = text.strip_prefix('[')?;
        // A quoted field may contain brackets.
        let quoted = |quote: &str| {
            let inside = text.strip_prefix(quote)?;
            inside.split_once(&format!("{quote}]"))
        };
        if let Some((field, rest)) = quoted("\"").or_else(|| quoted("'")) {
            return Some((Self::Field(field.to_owned()), rest));
        }
        let (inside, rest) = text.split_once(']')?;
        let part = match inside {
            "*" => Self::Each,
            index => Self::Index(index.parse().ok()?),
        };
        Some((part, rest))
    }
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(is_name_char)
}

fn split_name(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c| !is_name_char(c)).unwrap_or(text.len()))
}

fn begins_with_name(text: &str, name: &str) -> bool {
    split_name(text).0 == name
}

/// A copy of the part of a value that a path leads to.
fn part(value: &Value, parts: &[Part], budget: &mut Budget) -> Result<Value, Unfilled> {
    let Some((first, rest)) = parts.split_first() else {
        return copied(value, budget);
    };
    match first {
        Part::Field(name) => {
            let shown = || shortened(name, LONGEST_NAME);
            let fields = value
                .as_object()
                .ok_or_else(|| format!("there is no field {} in {}", shown(), kind(value)))?;
            let field = fields.get(name).ok_or_else(|| {
                let known = fields.keys().take(12);
                let known: Vec<String> = known.map(|key| shortened(key, LONGEST_NAME)).collect();
                match known.is_empty() {
                    true => format!("there is no field {}", shown()),
                    false => format!("there is no field {}, only {}", shown(), known.join(", ")),
                }
            })?;
            part(field, rest, budget)
        }
        Part::Index(at) => {
            let found = list(value)?
                .get(*at)
                .ok_or_else(|| format!("there is no element {at}"))?;
            part(found, rest, budget)
        }
        Part::Each => {
            let all = list(value)?;
            if all.len() > MOST_ELEMENTS {
                let all = all.len();
                return Err(format!("the list has {all} elements, {MOST_ELEMENTS} at most").into());
            }
            // The brackets of the list count, too: it may be empty.
            copied(&json!([]), budget)?;
            let each = all.iter().map(|one| part(one, rest, budget));
            Ok(Value::Array(each.collect::<Result<_, _>>()?))
        }
    }
}

fn list(value: &Value) -> Result<&Vec<Value>, String> {
    value
        .as_array()
        .ok_or_else(|| format!("it is {}, not a list", kind(value)))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests;
