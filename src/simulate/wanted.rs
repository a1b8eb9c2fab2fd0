//! Whether arguments and words are those that a scenario wants. Case, punctuation and white space do not matter.

use serde_json::{Map, Value};

/// A wanted value of an argument.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Want {
    /// This one.
    Is(Value),
    /// One of these.
    OneOf(Vec<Value>),
    /// A text with these words in it.
    Contains(String),
}

impl Want {
    /// Reads a value of a scenario.
    ///
    /// # Errors
    /// The problem with a table that is meant as `one_of` or `contains`.
    pub(super) fn read(typed: Value) -> Result<Self, String> {
        let Value::Object(table) = &typed else {
            return Ok(Self::Is(typed));
        };
        let only = (table.len() == 1).then(|| table.iter().next()).flatten();
        match only.map(|(name, value)| (name.as_str(), value)) {
            Some(("one_of", Value::Array(values))) if !values.is_empty() => {
                Ok(Self::OneOf(values.clone()))
            }
            Some(("one_of", _)) => Err("one_of takes a list of values".into()),
            Some(("contains", Value::String(text))) if !words(text).is_empty() => {
                Ok(Self::Contains(text.clone()))
            }
            Some(("contains", _)) => Err("contains takes words".into()),
            _ => Ok(Self::Is(typed)),
        }
    }

    /// Whether `found` is a wanted value.
    pub(super) fn fits(&self, found: &Value) -> bool {
        match self {
            Self::Is(wanted) => same(wanted, found),
            Self::OneOf(wanted) => wanted.iter().any(|wanted| same(wanted, found)),
            Self::Contains(wanted) => has_words(&text_of(found), wanted),
        }
    }
}

/// Whether a call has all wanted arguments. It may have more.
pub(super) fn fits(wanted: &[(String, Want)], arguments: &Map<String, Value>) -> bool {
    wanted.iter().all(|(name, want)| {
        let found = arguments.get(name).unwrap_or(&Value::Null);
        want.fits(found)
    })
}

/// Whether these words follow each other somewhere in a text.
pub(super) fn has_words(text: &str, wanted: &str) -> bool {
    let padded = |text: &str| format!(" {} ", words(text));
    padded(text).contains(&padded(wanted))
}

/// The words of a text in lower case, with one space between them.
pub(super) fn words(text: &str) -> String {
    let apart = text.split(|c: char| !c.is_alphanumeric() && c != '\'' && c != '’');
    let words = apart.map(|word| word.replace(['\'', '’'], "").to_lowercase());
    let words: Vec<String> = words.filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

fn same(wanted: &Value, found: &Value) -> bool {
    match (wanted, found) {
        (Value::Number(wanted), Value::Number(found)) => wanted.as_f64() == found.as_f64(),
        (Value::Array(wanted), Value::Array(found)) => {
            wanted.len() == found.len() && wanted.iter().zip(found).all(|(a, b)| same(a, b))
        }
        (Value::Object(wanted), Value::Object(found)) => {
            let fits = |(name, value): (&String, &Value)| {
                found.get(name).is_some_and(|found| same(value, found))
            };
            wanted.len() == found.len() && wanted.iter().all(fits)
        }
        (Value::String(_), _) | (_, Value::String(_)) => {
            let (wanted, found) = (text_of(wanted), text_of(found));
            match words(&wanted).is_empty() {
                true => wanted.trim() == found.trim(),
                false => words(&wanted) == words(&found),
            }
        }
        _ => wanted == found,
    }
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn want(typed: Value) -> Want {
        Want::read(typed).unwrap()
    }

    #[test]
    fn values_fit_however_they_are_written() {
        for (wanted, found, fits) in [
            (json!("Wednesday"), json!("wednesday."), true),
            (json!("Wednesday"), json!("Tuesday"), false),
            (json!(4), json!(4.0), true),
            (json!(4), json!("4"), true),
            (json!("4"), json!(5), false),
            (json!(true), json!(true), true),
            (json!(null), json!(null), true),
            (json!("x"), json!(null), false),
            (json!(["a", 1]), json!(["A", 1.0]), true),
            (json!({"a": "x", "b": 1}), json!({"a": "X", "b": 1}), true),
            (json!({"a": "x", "b": 1}), json!({"a": "X"}), false),
            (json!({"one_of": ["two", 2]}), json!(2), true),
            (json!({"one_of": ["two", 2]}), json!(3), false),
            (
                json!({"contains": "blue door"}),
                json!("The blue door!"),
                true,
            ),
            (json!({"contains": "blue"}), json!("blueish"), false),
            (json!("-"), json!("+"), false),
        ] {
            assert_eq!(want(wanted.clone()).fits(&found), fits, "{wanted} {found}");
        }
        assert!(Want::read(json!({"one_of": "x"})).is_err());
        assert!(Want::read(json!({"contains": 3})).is_err());
    }

    #[test]
    fn a_call_may_have_more_arguments_than_are_wanted() {
        let wanted = vec![("day".to_owned(), want(json!("Friday")))];
        let call = |value: Value| value.as_object().cloned().unwrap();
        assert!(fits(&wanted, &call(json!({"day": "friday", "people": 4}))));
        assert!(!fits(&wanted, &call(json!({"people": 4}))));
        assert!(fits(&[], &Map::new()));
    }

    #[test]
    fn words_are_found_whole_and_in_order() {
        assert!(has_words(
            "It's booked: Wednesday, at 7.",
            "booked wednesday"
        ));
        assert!(has_words("It’s booked", "it's"));
        assert!(!has_words("It is overbooked", "booked"));
        assert!(!has_words("Wednesday is booked", "booked wednesday"));
    }
}
