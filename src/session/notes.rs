//! The operator's texts with values of the session in them: notes for the model, and the greeting.
//!
//! A line of the instructions with a value becomes a note after the system prompt, which is the same for all
//! callers then: its cache is shared, and what a caller says of themselves changes no rule.

use crate::llm::untrusted::sanitise;
use crate::tools::{Found, Origin, SessionTemplate, SessionValues};
use serde_json::{Map, Value};

/// The most characters of a value in a text.
const MAX_VALUE: usize = 200;

/// An error in a text: the problem, and what is allowed.
type Wrong = (String, String);

/// The operator's instructions: what all sessions share, and the notes of each.
#[derive(Debug, Clone, Default)]
pub(super) struct Instructions {
    /// The lines without values.
    pub(super) shared: Option<String>,
    notes: Vec<SessionTemplate>,
}

impl Instructions {
    /// Takes the lines with values out of the instructions. A line that is not a template stays.
    pub(super) fn new(typed: Option<&str>) -> Self {
        let mut notes = Vec::new();
        let mut keep = |line: &&str| match note(line) {
            Some(Ok(template)) => {
                notes.push(template);
                false
            }
            Some(Err(_)) | None => true,
        };
        let lines = typed.unwrap_or_default().lines();
        let shared: Vec<&str> = lines.filter(|line| keep(line)).collect();
        let shared = shared.join("\n").trim().to_owned();
        Self {
            shared: (!shared.is_empty()).then_some(shared),
            notes,
        }
    }

    /// The notes of a session. One whose value is absent is left out.
    pub(super) fn notes(&self, values: &SessionValues, found: &Found) -> Vec<String> {
        let seen = seen(values, found);
        let notes = self.notes.iter().filter_map(|note| note.text(&seen));
        notes.map(|note| note.trim().to_owned()).collect()
    }
}

/// The note that a line of the instructions is, if it has a value.
fn note(line: &str) -> Option<Result<SessionTemplate, Wrong>> {
    is_template(line).then(|| SessionTemplate::new(line.trim().trim_start_matches("- ")))
}

/// Whether a text is not the same for all callers.
pub(super) fn is_template(text: &str) -> bool {
    text.contains("{{") || text.contains("{%")
}

/// A greeting as this session's caller hears it.
pub(super) fn greeting(typed: String, values: &SessionValues) -> String {
    if !is_template(&typed) {
        return typed;
    }
    let template = SessionTemplate::new(&typed);
    let said = template
        .ok()
        .and_then(|template| template.text(&seen(values, &Found::new())));
    let said = said.unwrap_or_default();
    said.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The values for a text: without markup, in one line, and not too long.
fn seen(values: &SessionValues, found: &Found) -> Map<String, Value> {
    let mut seen = values.seen_with(Origin::Claimed, found);
    seen.values_mut().for_each(clean);
    seen
}

fn clean(value: &mut Value) {
    match value {
        Value::String(text) => {
            let clean = sanitise(text);
            let words = clean.split_whitespace().collect::<Vec<_>>().join(" ");
            *text = words.chars().take(MAX_VALUE).collect();
        }
        Value::Array(items) => items.iter_mut().for_each(clean),
        Value::Object(entries) => entries.values_mut().for_each(clean),
        _ => {}
    }
}

/// Checks the templates in the operator's instructions.
///
/// # Errors
/// The problem, and what is allowed.
pub(crate) fn check_instructions(typed: &str) -> Result<(), Wrong> {
    typed
        .lines()
        .filter_map(note)
        .try_for_each(|note| note.map(drop))
}

/// Checks a greeting: it must be said to callers of whom nothing is known, too.
///
/// # Errors
/// The problem, and what is allowed.
pub(crate) fn check_greeting(typed: &str) -> Result<(), Wrong> {
    if !is_template(typed) {
        return Ok(());
    }
    let unknown = seen(&SessionValues::default(), &Found::new());
    match SessionTemplate::new(typed)?.text(&unknown) {
        Some(_) => Ok(()),
        None => Err((
            "it cannot be said to a caller of whom nothing is known".into(),
            "write {% if session.caller is defined %} ... {% endif %} around a value".into(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::Named;

    const INSTRUCTIONS: &str = "You are the front desk.\n\
        The caller's number is {{ session.caller }}.\n- Their plan: {{ session.param['plan'] }}\nBe kind.";

    #[test]
    fn lines_with_values_become_notes_and_the_rest_is_the_same_for_all() {
        let instructions = Instructions::new(Some(INSTRUCTIONS));
        let shared = instructions.shared.as_deref();
        assert_eq!(shared, Some("You are the front desk.\nBe kind."));
        assert_eq!(
            instructions.notes(&SessionValues::default(), &Found::new()),
            [""; 0]
        );
        let plan = format!("gold\u{200b} <tool>{}", "x".repeat(500));
        let values = SessionValues::default()
            .with(Named::Caller, "+1", Origin::Claimed)
            .with(Named::Param("plan".into()), &plan, Origin::Claimed);
        let notes = instructions.notes(&values, &Found::new());
        assert_eq!(notes[0], "The caller's number is +1.");
        assert!(
            notes[1].starts_with("Their plan: gold ‹tool›x"),
            "{}",
            notes[1]
        );
        assert_eq!(notes[1].chars().count(), "Their plan: ".len() + MAX_VALUE);
    }

    #[test]
    fn a_greeting_is_said_with_and_without_values() {
        let typed =
            "Hello{% if session.param.name is defined %} {{ session.param.name }}{% endif %}.";
        assert_eq!(check_greeting(typed), Ok(()));
        let name = Named::Param("name".into());
        let values = SessionValues::default().with(name, "Ann", Origin::Claimed);
        assert_eq!(greeting(typed.into(), &values), "Hello Ann.");
        assert_eq!(greeting(typed.into(), &SessionValues::default()), "Hello.");
        assert_eq!(greeting("Hi.".into(), &values), "Hi.");
    }

    #[test]
    fn mistakes_are_found_when_the_configuration_is_read() {
        assert_eq!(check_instructions(INSTRUCTIONS), Ok(()));
        let (problem, _) = check_instructions("You are {{ session.calller }}").unwrap_err();
        assert!(problem.contains("session.calller"), "{problem}");
        let (problem, fix) = check_greeting("Hello {{ session.caller }}.").unwrap_err();
        assert!(problem.contains("nothing is known"), "{problem}");
        assert!(fix.contains("is defined"), "{fix}");
    }
}
