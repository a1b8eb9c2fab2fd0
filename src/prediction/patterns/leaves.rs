//! The values in arguments and results by their places, within bounds.

use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Values that are read of one result.
const MOST: usize = 1_000;
/// Values of one place.
const PER_PLACE: usize = 64;
/// The depth to which a result is read.
const DEEPEST: usize = 8;
/// The longest text that is a value, bytes.
const LONGEST: usize = 128;
/// An object with more fields than this is a table, whose keys are values.
const FIELDS: usize = 48;

/// Values by their places, such as `/bookings/*/seat`. Elements of a list share a place, and so do the values of an
/// object whose keys are values themselves; those keys have the place `/~`.
#[derive(Debug, Clone, Default)]
pub(super) struct Leaves(BTreeMap<String, Vec<Value>>, usize);

impl Leaves {
    /// The values of a result.
    pub(super) fn of(result: &Value) -> Self {
        let mut leaves = Self::default();
        leaves.add(&mut String::new(), result, 0);
        leaves
    }

    /// The values of arguments; each element of a list has a place of its own.
    pub(super) fn of_arguments(arguments: &Map<String, Value>) -> Self {
        let mut leaves = Self::default();
        for (slot, value) in slots(arguments).unwrap_or_default() {
            leaves.push(&slot, value.clone());
        }
        leaves
    }

    pub(super) fn at(&self, place: &str) -> &[Value] {
        self.0.get(place).map_or(&[], Vec::as_slice)
    }

    pub(super) fn first(&self, place: &str) -> Option<&Value> {
        self.at(place).first()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&String, &Vec<Value>)> {
        self.0.iter()
    }

    fn push(&mut self, place: &str, value: Value) {
        if self.1 >= MOST || value.as_str().is_some_and(|text| text.len() > LONGEST) {
            return;
        }
        let values = match self.0.get_mut(place) {
            Some(values) => values,
            None => self.0.entry(place.to_owned()).or_default(),
        };
        if values.len() < PER_PLACE {
            values.push(value);
            self.1 += 1;
        }
    }

    fn add(&mut self, place: &mut String, value: &Value, depth: usize) {
        if depth > DEEPEST || self.1 >= MOST {
            return;
        }
        let end = place.len();
        match value {
            Value::Null => {}
            Value::Array(items) => {
                place.push_str("/#");
                self.push(place, items.len().into());
                place.truncate(end);
                place.push_str("/*");
                for item in items.iter().take(PER_PLACE) {
                    self.add(place, item, depth + 1);
                }
            }
            Value::Object(fields) if is_table(fields) => {
                place.push_str("/~");
                for (key, value) in fields.iter().take(PER_PLACE) {
                    self.push(place, key.clone().into());
                    place.push_str("/*");
                    self.add(place, value, depth + 1);
                    place.truncate(end + 2);
                }
            }
            Value::Object(fields) => {
                for (name, value) in fields {
                    place.push('/');
                    place.push_str(name);
                    self.add(place, value, depth + 1);
                    place.truncate(end);
                }
            }
            scalar => self.push(place, scalar.clone()),
        }
        place.truncate(end);
    }
}

/// Whether the keys of an object are values instead of names: one is not a valid name, there are many, or all hold
/// objects of the same fields.
fn is_table(fields: &Map<String, Value>) -> bool {
    if fields.len() > FIELDS || fields.keys().any(|key| !is_name(key)) {
        return true;
    }
    let mut objects = fields.values().map(Value::as_object);
    let first = objects.next().flatten().filter(|_| fields.len() > 1);
    first.is_some_and(|first| {
        objects.all(|other| other.is_some_and(|other| other.keys().eq(first.keys())))
    })
}

/// Whether a text that no schema declares is the name of a field or of an argument, as programs name them.
pub(super) fn is_name(text: &str) -> bool {
    let mut signs = text.chars();
    text.len() <= 40
        && signs.next().is_some_and(|c| c.is_ascii_alphabetic())
        && signs.all(|c| c.is_ascii_alphabetic() || matches!(c, '_' | '-'))
}

/// Whether a name that a schema declares can be a part of a place: it has no sign that separates parts, and is no number
/// of an element.
pub(super) fn is_part(name: &str) -> bool {
    let is_sign = |c: char| c.is_alphanumeric() || "_-.$@".contains(c);
    (1..=64).contains(&name.len()) && name.chars().all(is_sign) && !is_element(name)
}

/// Whether a part of a place is the number of a list's element.
pub(super) fn is_element(part: &str) -> bool {
    part.parse::<usize>().is_ok()
}

/// The places and values of declared arguments, such as `/flights/0/date`; `None` if they are too many or too deep.
pub(super) fn slots(arguments: &Map<String, Value>) -> Option<Vec<(String, &Value)>> {
    let mut found = Vec::new();
    for (name, value) in arguments {
        add_slot(&mut found, format!("/{name}"), value, 0)?;
    }
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    Some(found)
}

/// Arguments of one call that are derived.
const SLOTS: usize = 12;

fn add_slot<'a>(
    found: &mut Vec<(String, &'a Value)>,
    slot: String,
    value: &'a Value,
    depth: usize,
) -> Option<()> {
    match value {
        _ if depth > 3 || found.len() > SLOTS => None,
        Value::Object(fields) => fields.iter().try_for_each(|(name, value)| {
            add_slot(found, format!("{slot}/{name}"), value, depth + 1)
        }),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .try_for_each(|(at, value)| add_slot(found, format!("{slot}/{at}"), value, depth + 1)),
        scalar => {
            found.push((slot, scalar));
            (found.len() <= SLOTS).then_some(())
        }
    }
}

/// Puts a value at its place in arguments; lists are filled in order.
pub(super) fn put(arguments: &mut Map<String, Value>, slot: &str, value: Value) -> Option<()> {
    let mut parts = slot.strip_prefix('/')?.split('/');
    let name = parts.next()?;
    let mut at = arguments.entry(name).or_insert(Value::Null);
    for part in parts {
        if let Ok(index) = part.parse::<usize>() {
            if at.is_null() {
                *at = Value::Array(Vec::new());
            }
            let items = at.as_array_mut()?;
            if index == items.len() {
                items.push(Value::Null);
            }
            at = items.get_mut(index)?;
        } else {
            if at.is_null() {
                *at = Value::Object(Map::new());
            }
            at = at.as_object_mut()?.entry(part).or_insert(Value::Null);
        }
    }
    *at = value;
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn deep_and_huge_results_are_read_within_bounds() {
        let mut deep = json!("end");
        for _ in 0..100 {
            deep = json!({ "in": [deep] });
        }
        assert!(Leaves::of(&deep).1 <= MOST);
        let wide: Vec<Value> = (0..100_000)
            .map(|at| json!({ "a": at, "b": [at] }))
            .collect();
        let wide = Leaves::of(&json!({ "rows": wide }));
        assert!(wide.1 <= MOST && wide.at("/rows/*/a").len() == PER_PLACE);
        let long = Leaves::of(&json!({ "a": "x".repeat(10_000) }));
        assert_eq!(long.1, 0);
    }

    #[test]
    fn keys_that_are_values_are_no_part_of_a_place() {
        let result = json!({
            "cards": { "credit_card_44": { "brand": "visa" } },
            "people": { "Mia": { "age": 1 }, "Tom": { "age": 2 } },
        });
        let leaves = Leaves::of(&result);
        assert!(
            leaves
                .all()
                .all(|(place, _)| !place.contains("44") && !place.contains("Mia"))
        );
        assert_eq!(leaves.at("/cards/~"), [json!("credit_card_44")]);
        assert_eq!(leaves.at("/people/~/*/age"), [json!(1), json!(2)]);
    }

    #[test]
    fn slots_and_put_are_inverse() {
        let arguments = json!({ "a": 1, "b": [{ "c": "x" }, { "c": "y" }], "d": { "e": true } });
        let Value::Object(arguments) = arguments else {
            panic!("an object");
        };
        let mut built = Map::new();
        for (slot, value) in slots(&arguments).expect("few slots") {
            put(&mut built, &slot, value.clone()).expect("its place");
        }
        assert_eq!(built, arguments);
    }
}
