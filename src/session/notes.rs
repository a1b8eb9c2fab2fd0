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
    let template = SessionTemplate::new(&typed).ok();
    let said = template.and_then(|template| template.text(&seen(values, &Found::new())));
    let said = said.unwrap_or_default();
    said.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Warns of a greeting that this session's caller does not hear.
pub(super) fn warn_of_unsaid(typed: &str, values: &SessionValues) {
    if let Some(missing) = unsaid(typed, values) {
        tracing::warn!(%missing, "the greeting is not said, because it uses what is not known of this caller");
    }
}

/// The values for want of which a greeting is not said; `None` if it is.
fn unsaid(typed: &str, values: &SessionValues) -> Option<String> {
    if !is_template(typed) {
        return None;
    }
    let template = SessionTemplate::new(typed).ok()?;
    let seen = seen(values, &Found::new());
    let is_said = template.text(&seen).is_some();
    (!is_said).then(|| missing(&template, &seen).join(", "))
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
    let template = SessionTemplate::new(typed)?;
    let unknown = seen(&SessionValues::default(), &Found::new());
    if template.text(&unknown).is_some() {
        return Ok(());
    }
    let missing = missing(&template, &unknown);
    let uses = match missing.as_slice() {
        [] => String::new(),
        values => format!(": it uses {}", values.join(", ")),
    };
    let value = missing.first().map_or("session.caller", String::as_str);
    let fix = match value.starts_with("session.lookup") {
        true => "use other values: lookups may have no result yet when it is said".to_owned(),
        false => format!("write {{% if {value} is defined %}} ... {{% endif %}} around that value"),
    };
    let problem = format!("it cannot be said to a caller of whom nothing is known{uses}");
    Err((problem, fix))
}

/// The values for want of which a text cannot be said where `seen` is known, as they are written.
fn missing(template: &SessionTemplate, seen: &Map<String, Value>) -> Vec<String> {
    let paths = template.paths();
    let unknown: Vec<&Vec<String>> = paths.iter().filter(|path| !is_known(path, seen)).collect();
    let is_needed = |path: &&&Vec<String>| {
        let mut others = seen.clone();
        // The longest first: what is in a value is set with it.
        for other in unknown.iter().rev().filter(|other| other != path) {
            make_up(&mut others, other);
        }
        template.text(&others).is_none()
    };
    let needed: Vec<&&Vec<String>> = unknown.iter().filter(is_needed).collect();
    match needed.is_empty() {
        true => unknown.iter().map(|path| written(path)).collect(),
        false => needed.iter().map(|path| written(path)).collect(),
    }
}

fn is_known(path: &[String], values: &Map<String, Value>) -> bool {
    let Some((name, rest)) = path.split_first() else {
        return true;
    };
    match values.get(name) {
        Some(Value::Object(inner)) => is_known(rest, inner),
        Some(_) => rest.is_empty(),
        None => false,
    }
}

fn make_up(values: &mut Map<String, Value>, path: &[String]) {
    let Some((name, rest)) = path.split_first() else {
        return;
    };
    let value = values.entry(name.clone());
    if rest.is_empty() {
        value.or_insert_with(|| "x".into());
    } else if let Value::Object(inner) = value.or_insert_with(|| Map::new().into()) {
        make_up(inner, rest);
    }
}

/// A path as templates have it.
fn written(path: &[String]) -> String {
    let is_name = |part: &str| part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let part = |part: &String| match is_name(part) {
        true => format!(".{part}"),
        false => format!("[\"{part}\"]"),
    };
    let parts: String = path.iter().map(part).collect();
    format!("session{parts}")
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

    /// The advice was to ask for the caller's number, after which nothing was said to those without the value.
    #[test]
    fn the_value_without_which_a_greeting_cannot_be_said_is_named() {
        for (value, typed) in [
            ("session.param.name", "Hello {{ session.param.name }}."),
            (
                "session.param.name",
                "{% if session.caller is defined %}Hi{% endif %} {{ session.param['name'] }}",
            ),
            (
                "session.header[\"x-line\"]",
                "This is {{ session.header['x-line'] }}.",
            ),
        ] {
            let (problem, fix) = check_greeting(typed).unwrap_err();
            assert!(problem.ends_with(&format!("it uses {value}")), "{problem}");
            let guard = format!("{{% if {value} is defined %}}");
            assert!(fix.contains(&guard), "{fix}");
            let guarded = format!("Hello{guard} {{{{ {value} }}}}{{% endif %}}.");
            assert_eq!(check_greeting(&guarded), Ok(()));
        }
        let (_, fix) = check_greeting("Hi {{ session.lookup.crm.name }}").unwrap_err();
        assert!(fix.contains("lookups may have no result yet"), "{fix}");

        let typed = "{% if session.caller is defined %}Hello {{ session.param.name }}{% endif %}";
        let caller = SessionValues::default().with(Named::Caller, "+1", Origin::Claimed);
        assert_eq!(greeting(typed.into(), &caller), "");
        let missing = unsaid(typed, &caller);
        assert_eq!(missing.as_deref(), Some("session.param.name"));
        assert_eq!(unsaid(typed, &SessionValues::default()), None);
        assert_eq!(unsaid("Hello.", &caller), None);
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
