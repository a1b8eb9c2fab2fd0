//! The origin of an argument's value in a conversation, without the value itself.

use super::leaves::{is_element, is_name, is_part};
use super::trail::{Made, Trail, shape};
use crate::tools::{Declaration, combined};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The source of an argument: how its value is found in a conversation. It holds no value of a conversation; a
/// constant is one that the tool's schema names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Origin {
    /// An argument of the latest call of a tool.
    Argument {
        /// The tool.
        tool: String,
        /// Its place in the arguments, such as `/city`.
        place: String,
    },
    /// A value in the latest result of a tool.
    Result {
        /// The tool.
        tool: String,
        /// Its place, such as `/options/*/id`; `/#` is the length of a list, `/~` are the keys of a table.
        place: String,
        /// The choice among the values there.
        pick: Pick,
    },
    /// The user's words.
    Words {
        /// The shape of the span: `X6` is six upper-case letters and digits.
        shape: String,
        /// The choice among the spans of this shape.
        pick: SpanPick,
        /// It is a number.
        number: bool,
    },
    /// The value of the schema's list that the user named last.
    Choice,
    /// The value of the schema's list of which the user said a word last that no other has.
    PartOfChoice,
    /// A value that the schema itself names.
    Constant(Value),
}

/// A choice among the values of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pick {
    /// This one, from 0.
    At(u8),
    /// The last.
    Last,
    /// The first with which the tool was not called yet.
    Unused,
    /// The first that the user has named.
    Named,
}

/// A choice among the spans of the user's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpanPick {
    /// The first of the latest utterance that has one.
    First,
    /// The last.
    Last,
    /// The last with which the tool was not called yet.
    Unused,
}

/// Elements of a list that are told apart by their number.
const NUMBERED: u8 = 4;

/// The names that the schemas of tools declare and the values that they name, by tool.
#[derive(Debug, Clone, Default)]
pub struct Schemas(BTreeMap<String, Named>);

/// The schema of a tool's arguments, or of a value in them, with all schemas that it refers to or combines.
#[derive(Debug, Clone, Default)]
struct Named {
    /// `properties`: the names that it declares.
    fields: BTreeMap<String, Named>,
    /// `items`: the elements of a list.
    items: Option<Box<Named>>,
    /// `enum`, `const` and `default`.
    values: Vec<Value>,
    /// These values as people say them.
    said: Vec<(String, Value)>,
    /// The words that only one of these values has.
    parts: Vec<(String, Value)>,
    boolean: bool,
    /// A range of at most 16 whole numbers.
    range: Option<(i64, i64)>,
}

/// Whole numbers in the widest range whose numbers may be kept.
const WIDEST: i64 = 16;

/// The depth to which a schema is read. One that refers to itself is endless.
const DEEPEST: usize = 8;

/// The most schemas that are kept of one tool besides its own. What a schema leaves over is shared evenly among its
/// fields and its elements.
const ROOM: usize = 16_384;

impl Schemas {
    /// Those of declared tools.
    pub fn of<'a>(tools: impl IntoIterator<Item = &'a Declaration>) -> Self {
        let mut schemas = Self::default();
        for tool in tools {
            schemas.add(&tool.spec.name, &tool.spec.parameters);
        }
        schemas
    }

    /// Adds a tool's.
    pub fn add(&mut self, tool: &str, schema: &Value) {
        let named = Named::of(schema, &[schema], DEEPEST, ROOM);
        self.0.insert(tool.to_owned(), named);
    }

    /// Whether the tool is known.
    pub fn knows(&self, tool: &str) -> bool {
        self.0.contains_key(tool)
    }

    /// The part of a call's arguments whose names the tool declares, at any depth: a model may invent a name, and a key
    /// that is not declared may be a value.
    pub(super) fn declared(
        &self,
        tool: &str,
        arguments: &Map<String, Value>,
    ) -> Map<String, Value> {
        Named::fields_of(self.0.get(tool), arguments)
    }

    /// Whether the tool declares every name of a place in its arguments. An argument of a tool that is not declared now
    /// was when it was learned, but a name within it may be a value.
    pub(super) fn declares(&self, tool: &str, place: &str) -> bool {
        let Some(names) = place.strip_prefix('/') else {
            return false;
        };
        let Some(schema) = self.0.get(tool) else {
            return is_part(names);
        };
        let mut at = Some(schema);
        names.split('/').all(|part| {
            at = at.and_then(|schema| schema.within(part));
            at.is_some() || is_element(part)
        })
    }

    /// Whether the schema names this value.
    pub(super) fn names(&self, tool: &str, slot: &str, value: &Value) -> bool {
        let Some(named) = self.named(tool, slot) else {
            return false;
        };
        let in_range = |(least, most): (i64, i64)| {
            value
                .as_i64()
                .is_some_and(|number| (least..=most).contains(&number))
        };
        named.values.contains(value)
            || named.boolean && value.is_boolean()
            || named.range.is_some_and(in_range)
    }

    fn named(&self, tool: &str, slot: &str) -> Option<&Named> {
        let mut parts = slot.strip_prefix('/')?.split('/');
        parts.try_fold(self.0.get(tool)?, |schema, part| schema.within(part))
    }
}

impl Named {
    /// Reads schemas of one value together, which are parts of the schema `root`. At most `room` schemas are kept of
    /// what is within them; if they have more fields, none.
    fn of(root: &Value, schemas: &[&Value], depth: usize, room: usize) -> Self {
        let schemas = combined(root, schemas);
        let mut values: Vec<Value> = Vec::new();
        let listed = each(&schemas, "enum").filter_map(Value::as_array);
        values.extend(listed.flatten().cloned());
        values.extend(each(&schemas, "const").cloned());
        values.extend(each(&schemas, "default").cloned());
        values.retain(|value| !value.is_array() && !value.is_object() && !value.is_null());
        let said = values.iter().filter_map(|value| {
            let words = value.as_str()?.to_lowercase().replace(['_', '-'], " ");
            (!words.is_empty()).then(|| (format!(" {words} "), value.clone()))
        });
        let said: Vec<(String, Value)> = said.collect();
        let range = schemas.iter().find_map(|schema| {
            let whole = |name| schema.get(name).and_then(Value::as_i64);
            whole("minimum").zip(whole("maximum"))
        });
        let mut fields: BTreeMap<&String, Vec<&Value>> = BTreeMap::new();
        let mut items: Vec<&Value> = Vec::new();
        if depth > 0 && room > 0 {
            let declared = each(&schemas, "properties").filter_map(Value::as_object);
            for (name, schema) in declared.flatten().filter(|(name, _)| is_part(name)) {
                fields.entry(name).or_default().push(schema);
                if fields.len() > room {
                    break;
                }
            }
            items.extend(each(&schemas, "items"));
        }
        let kept = fields.len() + usize::from(!items.is_empty());
        if kept > room {
            fields.clear();
            items.clear();
        }
        let room = room.saturating_sub(kept) / kept.max(1);
        let within = |schemas: &[&Value]| Self::of(root, schemas, depth.saturating_sub(1), room);
        Self {
            fields: fields
                .iter()
                .map(|(name, schemas)| ((*name).clone(), within(schemas)))
                .collect(),
            items: (!items.is_empty()).then(|| Box::new(within(&items))),
            parts: parts(&said),
            said,
            boolean: each(&schemas, "type").any(|kind| kind == "boolean"),
            range: range.filter(|(least, most)| most.saturating_sub(*least) < WIDEST),
            values,
        }
    }

    /// The schema of a field or of an element, by its part of a place.
    fn within(&self, part: &str) -> Option<&Self> {
        match is_element(part) {
            true => self.items.as_deref(),
            false => self.fields.get(part),
        }
    }

    /// The fields that a schema declares, and of their values what it declares.
    fn fields_of(schema: Option<&Self>, fields: &Map<String, Value>) -> Map<String, Value> {
        let declared = fields.iter().filter_map(|(name, value)| {
            let field = schema?.fields.get(name)?;
            Some((name.clone(), Self::part_of(Some(field), value)))
        });
        declared.collect()
    }

    fn part_of(schema: Option<&Self>, value: &Value) -> Value {
        match value {
            Value::Object(fields) => Value::Object(Self::fields_of(schema, fields)),
            Value::Array(elements) => {
                let element = schema.and_then(|schema| schema.items.as_deref());
                let elements = elements.iter();
                elements
                    .map(|value| Self::part_of(element, value))
                    .collect()
            }
            scalar => scalar.clone(),
        }
    }
}

#[cfg(test)]
impl Schemas {
    /// How many schemas are kept of a tool, its own included.
    pub(super) fn count(&self, tool: &str) -> usize {
        self.0.get(tool).map_or(0, Named::count)
    }
}

#[cfg(test)]
impl Named {
    fn count(&self) -> usize {
        let within = self.fields.values().chain(self.items.as_deref());
        1 + within.map(Self::count).sum::<usize>()
    }
}

/// This keyword's value in each schema that has it.
fn each<'a>(schemas: &[&'a Value], keyword: &str) -> impl Iterator<Item = &'a Value> {
    schemas.iter().filter_map(move |schema| schema.get(keyword))
}

/// The words that only one of these values has.
fn parts(said: &[(String, Value)]) -> Vec<(String, Value)> {
    let mut owners: BTreeMap<&str, Option<&Value>> = BTreeMap::new();
    for (words, value) in said {
        for word in words.split(' ').filter(|word| word.len() > 2) {
            let owner = owners.entry(word).or_insert(Some(value));
            *owner = owner.filter(|owner| *owner == value);
        }
    }
    let parts = owners.into_iter();
    parts
        .filter_map(|(word, owner)| Some((format!(" {word} "), owner?.clone())))
        .collect()
}

/// The value whose words were said last.
fn said_last<'a>(
    choices: impl Iterator<Item = &'a (String, Value)> + Clone,
    trail: &Trail,
) -> Option<Cow<'a, Value>> {
    let choice = trail.plain.iter().find_map(|utterance| {
        let at = choices
            .clone()
            .filter_map(|(words, value)| Some((utterance.rfind(words.as_str())?, value)));
        at.max_by_key(|(at, _)| *at).map(|(_, value)| value)
    });
    choice.map(Cow::Borrowed)
}

impl Origin {
    /// The value in this conversation, if there is one.
    pub(super) fn value<'a>(
        &'a self,
        trail: &'a Trail,
        schemas: &'a Schemas,
        tool: &str,
        slot: &str,
    ) -> Option<Cow<'a, Value>> {
        if trail.is_before_words && self.is_of_words() {
            return None;
        }
        match self {
            Self::Argument { tool: of, place } => {
                trail.latest(of)?.arguments.first(place).map(Cow::Borrowed)
            }
            Self::Result {
                tool: of,
                place,
                pick,
            } => {
                let values = trail.latest(of)?.result.at(place);
                pick.of(values, trail, tool, slot).map(Cow::Borrowed)
            }
            Self::Words {
                shape,
                pick,
                number,
            } => {
                let spans = trail.spans.get(shape)?;
                let as_value = |span: &String| match number {
                    true => span.parse::<i64>().ok().map(Value::from),
                    false => Some(Value::from(span.as_str())),
                };
                let value = match pick {
                    SpanPick::First => as_value(&spans.first),
                    SpanPick::Last => as_value(spans.all.first()?),
                    SpanPick::Unused => {
                        let mut values = spans.all.iter().filter_map(as_value);
                        values.find(|value| !trail.was_used(tool, slot, value))
                    }
                };
                value.map(Cow::Owned)
            }
            Self::Choice => said_last(schemas.named(tool, slot)?.said.iter(), trail),
            Self::PartOfChoice => {
                let parts = schemas.named(tool, slot)?.parts.iter();
                said_last(
                    parts.filter(|(word, _)| trail.named.contains(word.trim())),
                    trail,
                )
            }
            Self::Constant(value) => Some(Cow::Borrowed(value)),
        }
    }

    /// Every source that gives this value now.
    pub(super) fn mine(
        trail: &Trail,
        schemas: &Schemas,
        tool: &str,
        slot: &str,
        value: &Value,
    ) -> Vec<Self> {
        let mut found = Vec::new();
        let mut seen: Vec<&str> = Vec::new();
        for call in trail.calls.iter().rev() {
            if !seen.contains(&call.tool.as_str()) {
                seen.push(&call.tool);
                mine_call(&mut found, call, value);
            }
        }
        let spoken = match value {
            Value::String(text) => shape(text).map(|shape| (shape, false)),
            Value::Number(number) => shape(&number.to_string()).map(|shape| (shape, true)),
            _ => None,
        };
        if let Some((shape, number)) = spoken {
            for pick in [SpanPick::First, SpanPick::Last, SpanPick::Unused] {
                found.push(Self::Words {
                    shape: shape.clone(),
                    pick,
                    number,
                });
            }
        }
        found.extend([Self::Choice, Self::PartOfChoice]);
        if schemas.names(tool, slot, value) {
            found.push(Self::Constant(value.clone()));
        }
        found.retain(|origin| origin.value(trail, schemas, tool, slot).as_deref() == Some(value));
        found
    }

    /// Whether it needs the user's words.
    fn is_of_words(&self) -> bool {
        match self {
            Self::Result { pick, .. } => *pick == Pick::Named,
            Self::Words { .. } | Self::Choice | Self::PartOfChoice => true,
            Self::Argument { .. } | Self::Constant(_) => false,
        }
    }

    /// Whether it names a field that no schema does: in one conversation alone, a key may be a value.
    pub(super) fn names_a_field(&self) -> bool {
        matches!(self, Self::Result { .. })
    }

    /// Whether it holds nothing but names, places and what the schema names: a file may be edited.
    pub(super) fn is_clean(&self, schemas: &Schemas, tool: &str, slot: &str) -> bool {
        let is_shape = |shape: &str| {
            let mut parts = shape.chars();
            shape.len() <= 80 && parts.all(|c| c.is_ascii_digit() || "AaNXx_-:/.@?".contains(c))
        };
        match self {
            Self::Argument { tool, place } => schemas.declares(tool, place),
            Self::Result { place, .. } => is_place(place),
            Self::Words { shape, .. } => is_shape(shape),
            Self::Choice | Self::PartOfChoice => true,
            Self::Constant(value) => schemas.names(tool, slot, value),
        }
    }
}

/// Whether each part of a place in a result is a name, a number or a sign.
fn is_place(place: &str) -> bool {
    let is_part = |part: &str| {
        matches!(part, "*" | "#" | "~")
            || is_name(part)
            || part.len() <= 2 && part.parse::<u8>().is_ok()
    };
    place.is_empty()
        || place
            .strip_prefix('/')
            .is_some_and(|rest| rest.split('/').all(is_part))
}

fn mine_call(found: &mut Vec<Origin>, call: &Made, value: &Value) {
    let tool = &call.tool;
    for (place, values) in call.arguments.all() {
        if values.contains(value) {
            found.push(Origin::Argument {
                tool: tool.clone(),
                place: place.clone(),
            });
        }
    }
    for (place, values) in call.result.all() {
        let Some(at) = values.iter().position(|one| one == value) else {
            continue;
        };
        let numbered = u8::try_from(at).ok().filter(|at| *at < NUMBERED);
        let mut picks: Vec<Pick> = numbered.map(Pick::At).into_iter().collect();
        if place.contains(['*', '~']) {
            picks.extend([Pick::Unused, Pick::Last, Pick::Named]);
        }
        found.extend(picks.into_iter().map(|pick| Origin::Result {
            tool: tool.clone(),
            place: place.clone(),
            pick,
        }));
    }
}

impl Pick {
    fn of<'a>(
        self,
        values: &'a [Value],
        trail: &Trail,
        tool: &str,
        slot: &str,
    ) -> Option<&'a Value> {
        let is_named = |value: &&Value| match value {
            Value::String(text) => trail.named.contains(text),
            Value::Number(number) => trail.named.contains(&number.to_string()),
            _ => false,
        };
        match self {
            Self::At(at) => values.get(usize::from(at)),
            Self::Last => values.last(),
            Self::Unused => values
                .iter()
                .find(|value| !trail.was_used(tool, slot, value)),
            Self::Named => values.iter().find(is_named),
        }
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Argument { tool, place } => write!(f, "argument {place} of {tool}"),
            Self::Result { tool, place, pick } => match pick {
                Pick::At(0) if !place.contains(['*', '~']) => write!(f, "result {place} of {tool}"),
                Pick::At(at) => write!(f, "result {place} of {tool}, number {}", at + 1),
                Pick::Last => write!(f, "result {place} of {tool}, the last"),
                Pick::Unused => write!(f, "result {place} of {tool}, the next"),
                Pick::Named => write!(f, "result {place} of {tool}, the one the user named"),
            },
            Self::Words { shape, pick, .. } => {
                let which = match pick {
                    SpanPick::First => "first",
                    SpanPick::Last => "last",
                    SpanPick::Unused => "next",
                };
                write!(f, "the user's words, the {which} {shape}")
            }
            Self::Choice => f.write_str("the choice that the user named"),
            Self::PartOfChoice => f.write_str("the choice of which the user said a word"),
            Self::Constant(value) => write!(f, "always {value}"),
        }
    }
}
