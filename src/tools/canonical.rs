//! The canonical form of a call's arguments: what a predicted call and a committed one are compared
//! by. It is for comparing only; a tool is run with the arguments as they were given.

use super::{Declaration, Equivalence};
use crate::language::en::{places, units::Unit};
use serde_json::{Map, Number, Value};

/// Rounds of levelling after which it is given up.
const MOST_ROUNDS: usize = 8;

/// `arguments` with everything levelled that makes no difference: defaults of the schema filled in,
/// keys sorted at every depth, 1 = 1.0, numbers in quotes where the schema wants a number, `null`
/// for an argument that may be left out, and what [`Declaration::equivalence`] names. Fixed
/// arguments are left out: they are the same in all calls of a session, or until the next result that they come
/// from, which makes what was begun before stale.
///
/// Pure, and the canonical form of a canonical form is itself.
pub fn canonical(declaration: &Declaration, arguments: &Map<String, Value>) -> Map<String, Value> {
    let schema = &declaration.spec.parameters;
    let mut levelled = object(schema, arguments);
    declaration.without_fixed(&mut levelled);
    for (name, kinds) in &declaration.equivalence {
        if let Some(value) = levelled.get_mut(name) {
            level(value, kinds);
        }
    }
    // Levelling may have removed what kept a text from being a number: "0," is 0.
    object(schema, &levelled)
}

fn object(schema: &Value, given: &Map<String, Value>) -> Map<String, Value> {
    let properties = schema.get("properties").and_then(Value::as_object);
    let property = |name: &str| properties.and_then(|all| all.get(name));
    let mut levelled = Map::new();
    for (name, value) in given {
        if !(value.is_null() && is_optional(schema, name)) {
            let schema = property(name).unwrap_or(&Value::Null);
            levelled.insert(name.clone(), form(schema, value));
        }
    }
    for (name, schema) in properties.into_iter().flatten() {
        if let Some(default) = schema.get("default").filter(|default| !default.is_null())
            && !levelled.contains_key(name)
        {
            levelled.insert(name.clone(), form(schema, default));
        }
    }
    levelled.sort_keys();
    levelled
}

fn is_optional(schema: &Value, name: &str) -> bool {
    let required = schema.get("required").and_then(Value::as_array);
    !required.is_some_and(|names| names.iter().any(|required| required == name))
}

fn form(schema: &Value, value: &Value) -> Value {
    match value {
        Value::Object(entries) => Value::Object(object(schema, entries)),
        Value::Array(items) => {
            let schema = schema.get("items").unwrap_or(&Value::Null);
            Value::Array(items.iter().map(|item| form(schema, item)).collect())
        }
        Value::Number(number) => Value::Number(whole(number)),
        Value::String(text) if wants_number(schema) => {
            quoted(text).unwrap_or_else(|| value.clone())
        }
        other => other.clone(),
    }
}

/// Whether the schema takes numbers, and no text.
fn wants_number(schema: &Value) -> bool {
    let number = |kind: &Value| kind == "number" || kind == "integer";
    match schema.get("type") {
        Some(Value::Array(kinds)) => {
            kinds.iter().any(number) && !kinds.iter().any(|kind| kind == "string")
        }
        Some(kind) => number(kind),
        None => false,
    }
}

fn quoted(text: &str) -> Option<Value> {
    let text = text.trim().trim_start_matches('+');
    let number: Number = match text.parse::<i64>() {
        Ok(whole) => whole.into(),
        Err(_) => Number::from_f64(text.parse().ok()?)?,
    };
    Some(Value::Number(whole(&number)))
}

/// An integer where the number is one, so that 1 and 1.0 are alike.
fn whole(number: &Number) -> Number {
    // Two to the power of 63: where i64 ends.
    const END: f64 = 9_223_372_036_854_775_808.0;
    match number.as_f64() {
        Some(real) if number.is_f64() && real.fract() == 0.0 && real.abs() < END => {
            Number::from(real as i64)
        }
        _ => number.clone(),
    }
}

/// Levels every text in `value`, always in the same order, whatever order the kinds are named in.
fn level(value: &mut Value, kinds: &[Equivalence]) {
    match value {
        Value::String(text) => *text = levelled(text, kinds),
        Value::Array(items) => items.iter_mut().for_each(|item| level(item, kinds)),
        Value::Object(entries) => entries.values_mut().for_each(|entry| level(entry, kinds)),
        _ => {}
    }
}

/// One equivalence may expose work for another ("'f" is a unit once its mark is gone), so they are
/// applied in turn until nothing changes. No text has needed more than two rounds.
fn levelled(text: &str, kinds: &[Equivalence]) -> String {
    let mut text = text.to_owned();
    for _ in 0..MOST_ROUNDS {
        let next = levelled_once(text.clone(), kinds);
        if next == text {
            break;
        }
        text = next;
    }
    text
}

fn levelled_once(mut text: String, kinds: &[Equivalence]) -> String {
    let has = |kind| kinds.contains(&kind);
    if has(Equivalence::Punctuation) {
        text = unpunctuated(&text);
    }
    if has(Equivalence::Place) {
        text = places::comparable(&text);
    }
    if has(Equivalence::Unit) {
        text = unit(&text);
    }
    if has(Equivalence::Case) {
        text = text.to_lowercase();
    }
    text
}

/// Without punctuation, except where it belongs to a number ("3.5", "12:30", "-4"); one space
/// between words. Signs that mean something (`+`, `#`, `%`, `$`, `@`) stay.
fn unpunctuated(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    let digit = |at: Option<usize>| {
        at.and_then(|at| letters.get(at))
            .is_some_and(char::is_ascii_digit)
    };
    let kept = |(at, letter): (usize, &char)| match letter {
        '\'' | '’' => None,
        '-' if digit(Some(at + 1)) => Some('-'),
        '.' | ',' | ':' | '/' if digit(at.checked_sub(1)) && digit(Some(at + 1)) => Some(*letter),
        '.' | ',' | ':' | '/' | ';' | '!' | '?' | '"' | '“' | '”' | '-' | '–' | '—' | '(' | ')'
        | '…' | '_' => Some(' '),
        other => Some(*other),
    };
    let kept: String = letters.iter().enumerate().filter_map(kept).collect();
    kept.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The plural of a unit, alone or after a number: "km", "5 km", "5km".
fn unit(text: &str) -> String {
    let text = text.trim();
    let number = text
        .find(|c: char| !(c.is_ascii_digit() || ".,-+ ".contains(c)))
        .unwrap_or(text.len());
    let (number, name) = text.split_at(number);
    match (Unit::named(name), number.trim()) {
        (None, _) => text.to_owned(),
        (Some(unit), "") => unit.plural.to_owned(),
        (Some(unit), number) => format!("{number} {}", unit.plural),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::{Effect, ToolSpec};
    use proptest::prelude::*;
    use serde_json::json;
    use std::time::Duration;

    fn declaration(parameters: Value, equivalence: &[(&str, &[Equivalence])]) -> Declaration {
        let spec = ToolSpec {
            examples: Vec::new(),
            name: "t".into(),
            description: String::new(),
            parameters,
        };
        let mut declaration = Declaration::new(spec, Effect::Read, Duration::from_secs(1));
        declaration.equivalence = equivalence
            .iter()
            .map(|(name, kinds)| ((*name).to_owned(), kinds.to_vec()))
            .collect();
        declaration
    }

    fn of(declaration: &Declaration, arguments: Value) -> Map<String, Value> {
        canonical(declaration, arguments.as_object().unwrap())
    }

    #[test]
    fn defaults_nulls_order_and_numbers_make_no_difference() {
        let tool = declaration(
            json!({
                "type": "object",
                "properties": {
                    "place": {"type": "string"},
                    "days": {"type": "integer", "default": 1},
                    "box": {"type": "object", "properties": {"w": {"type": "number", "default": 2.0}}},
                    "sizes": {"type": "array", "items": {"type": "number"}},
                    "note": {"type": "string"}
                },
                "required": ["place"]
            }),
            &[],
        );
        let full = of(&tool, json!({"place": "Bonn", "days": 1}));
        assert_eq!(of(&tool, json!({"place": "Bonn"})), full);
        for same in [
            json!({"days": 1.0, "place": "Bonn"}),
            json!({"days": "1", "place": "Bonn", "note": null}),
            json!({"days": null, "place": "Bonn"}),
        ] {
            assert_eq!(
                serde_json::to_string(&of(&tool, same)).unwrap(),
                serde_json::to_string(&full).unwrap()
            );
        }
        let nested = |value| of(&tool, json!({"place": "Bonn", "box": value}));
        assert_eq!(nested(json!({})), nested(json!({"w": "2"})));
        assert_ne!(nested(json!({})), nested(json!({"w": 3})));
        let sizes = |value| of(&tool, json!({"place": "Bonn", "sizes": value}));
        assert_eq!(sizes(json!([1, "2.50"])), sizes(json!([1.0, 2.5])));
        assert_ne!(sizes(json!([1, 2])), sizes(json!([2, 1])));
        assert_ne!(full, of(&tool, json!({"place": "Bonn", "days": 2})));
        assert_ne!(full, of(&tool, json!({"place": "bonn"})));
    }

    #[test]
    fn what_levelling_lays_bare_is_levelled_too() {
        let kinds = [Equivalence::Unit, Equivalence::Place];
        let once = levelled("'f", &kinds);
        assert_eq!(levelled(&once, &kinds), once);
    }

    #[test]
    fn a_number_that_levelling_lays_bare_is_a_number_at_once() {
        let tool = some_tool(vec![Equivalence::Punctuation]);
        let once = of(&tool, json!({"b": {"c": "0,"}, "c": []}));
        assert_eq!(once["b"], json!({"c": 0}));
        assert_eq!(canonical(&tool, &once), once);
        // The Kelvin sign is a unit's name only in small letters.
        let kinds = [Equivalence::Unit, Equivalence::Case];
        assert_eq!(levelled("\u{212a}", &kinds), levelled("k", &kinds));
    }

    #[test]
    fn a_required_null_and_a_number_in_a_text_stay() {
        let parameters = json!({
            "type": "object",
            "properties": {"code": {"type": "string"}, "x": {"type": ["number", "null"]}},
            "required": ["x"]
        });
        let tool = declaration(parameters, &[]);
        assert_eq!(
            Value::Object(of(&tool, json!({"x": null, "code": "1"}))),
            json!({"code": "1", "x": null})
        );
        assert_ne!(
            of(&tool, json!({"code": "01"})),
            of(&tool, json!({"code": "1"}))
        );
    }

    #[test]
    fn equivalences_hold_where_they_are_declared() {
        use Equivalence::*;
        let parameters = json!({"type": "object", "properties": {}});
        let with = |kinds: &[Equivalence], a: &str, b: &str| {
            let tool = declaration(parameters.clone(), &[("x", kinds)]);
            of(&tool, json!({"x": a})) == of(&tool, json!({"x": b}))
        };
        assert!(with(&[Case], "Milk", "milk"));
        assert!(!with(&[], "Milk", "milk"));
        assert!(!with(&[Case], "Milk.", "milk"));
        assert!(with(&[Punctuation], "buy milk, bread!", "buy  milk bread"));
        assert!(with(&[Punctuation], "don't", "dont"));
        assert!(!with(&[Punctuation], "3.5", "35"));
        assert!(!with(&[Punctuation], "-4", "4"));
        assert!(!with(&[Punctuation], "C++", "C"));
        assert!(with(&[Unit], "km", "kilometers"));
        assert!(with(&[Unit], "5km", "5 kilometers"));
        assert!(!with(&[Unit], "5 km", "5 miles"));
        assert!(with(&[Place], "Boulder, CO", "boulder colorado"));
        assert!(!with(&[Place], "Boulder", "Denver"));
        assert!(!with(&[Place], "Portland, OR", "Portland, ME"));
        assert!(with(&[Case, Punctuation], "Ann, Bob", "ann bob"));
    }

    fn text() -> impl Strategy<Value = String> {
        prop_oneof![
            "[ a-zA-Z0-9.,:;'_-]{0,12}",
            "\\PC{0,8}",
            prop::sample::select(vec![
                "Boulder, CO",
                "5km",
                "the The Hague",
                "1.0",
                "New York, NY, USA",
                "5 C.",
                "0,",
                "+1.50!"
            ])
            .prop_map(str::to_owned),
        ]
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            (-50i32..50).prop_map(|n| Value::from(f64::from(n))),
            text().prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 20, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                entries(inner).prop_map(Value::Object),
            ]
        })
    }

    fn entries(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Map<String, Value>> {
        let entry = ("[abcx]", value);
        prop::collection::vec(entry, 0..5).prop_map(|entries| entries.into_iter().collect())
    }

    fn kinds() -> impl Strategy<Value = Vec<Equivalence>> {
        use Equivalence::*;
        prop::collection::vec(
            prop::sample::select(vec![Case, Punctuation, Unit, Place]),
            0..4,
        )
    }

    fn some_tool(kinds: Vec<Equivalence>) -> Declaration {
        let parameters = json!({
            "type": "object",
            "properties": {
                "a": {"type": "number", "default": "7"},
                "b": {"type": "object", "properties": {"c": {"type": ["integer", "null"], "default": 1.0}}},
                "c": {"type": "array", "items": {"type": "number"}}
            },
            "required": ["c"]
        });
        declaration(parameters, &[("x", &kinds), ("b", &kinds)])
    }

    proptest! {
        #[test]
        fn once_is_enough(arguments in entries(value()), kinds in kinds()) {
            let tool = some_tool(kinds);
            let once = canonical(&tool, &arguments);
            let twice = canonical(&tool, &once);
            prop_assert_eq!(Value::from(once).to_string(), Value::from(twice).to_string());
        }

        #[test]
        fn the_order_of_keys_is_irrelevant(arguments in entries(value()), kinds in kinds()) {
            let tool = some_tool(kinds);
            let backwards: Map<_, _> = arguments.clone().into_iter().rev().collect();
            let (a, b) = (canonical(&tool, &arguments), canonical(&tool, &backwards));
            prop_assert_eq!(Value::from(a).to_string(), Value::from(b).to_string());
        }
    }
}
