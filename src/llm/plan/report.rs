//! Bounds on the results of a plan's steps, and the progress report for the model.

use serde_json::{Map, Value, json};
use std::fmt::{self, Write};

/// The longest result of a step, bytes of JSON. It stays on the server.
const LONGEST_RESULT: usize = 64 * 1024;

/// The longest results of changes that are told before a plan's end, bytes of JSON.
const LONGEST_CHANGES: usize = 4_000;

/// The longest reason for the end of a plan, characters.
const LONGEST_REASON: usize = 1_000;

/// A step that was done.
#[derive(Debug, Clone, Copy)]
pub struct Done<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its result.
    pub result: &'a Value,
    /// Whether its result is told.
    pub is_told: bool,
}

/// The result of a step as a plan keeps it. A change is done even if its result is too long: it must not be called
/// again because of that.
///
/// # Errors
/// Says to the model that the result is too long.
pub fn kept(result: &Value, is_change: bool) -> Result<Value, String> {
    if Budget(LONGEST_RESULT).take(result) {
        Ok(result.clone())
    } else if is_change {
        Ok(too_long())
    } else {
        Err(format!(
            "its result is too long for a plan, which keeps {LONGEST_RESULT} bytes: call it alone"
        ))
    }
}

/// Stands for the result of a change that is too long.
pub(super) fn too_long() -> Value {
    json!({"status": "done; its result was too long"})
}

/// The progress report on a plan for the model: the steps that are `done`, with as many of the changes' results as fit,
/// and `text` under `key`.
pub fn report<'a>(done: impl Iterator<Item = Done<'a>>, key: &str, text: &str) -> Value {
    let mut names = Vec::new();
    let mut results = Map::new();
    let mut budget = Budget(LONGEST_CHANGES);
    for Done {
        name,
        result,
        is_told,
    } in done
    {
        names.push(name);
        if is_told {
            let told = match budget.take(result) {
                true => result.clone(),
                false => too_long(),
            };
            results.insert(name.to_owned(), told);
        }
    }
    let mut report = json!({ "done": names });
    if !results.is_empty() {
        report["results"] = Value::Object(results);
    }
    report[key] = reason(text).into();
    report
}

/// A reason as the model reads it.
pub fn reason(why: &str) -> String {
    shortened(why, LONGEST_REASON)
}

/// A text of at most `most` characters, with a mark where it was cut.
pub(super) fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some(_) => text
            .chars()
            .take(most.saturating_sub(1))
            .chain(['…'])
            .collect(),
    }
}

/// The bytes of JSON that are left for values.
#[derive(Debug)]
pub(super) struct Budget(pub(super) usize);

impl Budget {
    /// Takes the length of a value from the budget without writing the value. `false`, and nothing taken, if it does
    /// not fit.
    pub(super) fn take(&mut self, value: &Value) -> bool {
        let before = self.0;
        let fits = write!(self, "{value}").is_ok();
        if !fits {
            self.0 = before;
        }
        fits
    }
}

impl Write for Budget {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 = self.0.checked_sub(text.len()).ok_or(fmt::Error)?;
        Ok(())
    }
}
