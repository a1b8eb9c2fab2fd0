//! Fixed arguments: the server sets them, so the model neither sees nor chooses them.

use super::template::{Template, parameters};
use super::values::{Found, NAMES, Origin, SessionValues};
use super::{ToolError, plain};
use minijinja::Value as Jinja;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The refusal of a call whose fixed argument has no value.
const UNKNOWN_CALLER: &str =
    "it is only for callers whom the server can identify, and this caller it cannot";

/// The fixed arguments of a tool, from `[fixed]` in its declaration.
#[derive(Debug, Clone, PartialEq)]
pub struct Fixed {
    /// The schema of all arguments.
    schema: Value,
    arguments: BTreeMap<String, Argument>,
    /// The least origin of the session values in templates.
    trust: Origin,
}

#[derive(Debug, Clone, PartialEq)]
enum Argument {
    Constant(Value),
    /// Over `session`.
    Template(Template),
}

/// An error in a template: the problem, and what is allowed.
type Wrong = (String, String);

impl Fixed {
    /// The fixed arguments of a tool whose arguments have the schema `schema`. A text is a template over
    /// `session`. An error comes with the argument's name.
    ///
    /// # Errors
    /// The argument, the problem, and what is allowed.
    pub(crate) fn new(
        schema: &Value,
        typed: &Map<String, Value>,
        trust: Origin,
    ) -> Result<Self, (String, Wrong)> {
        let known = parameters(schema);
        let argument = |(name, value): (&String, &Value)| {
            if !known.contains(name) {
                let names: Vec<&str> = known.iter().map(String::as_str).collect();
                let problem = format!("`{name}` is no parameter of this tool");
                let fix = format!("its parameters are: {}", names.join(", "));
                return Err((name.clone(), (problem, fix)));
            }
            let argument = match value {
                Value::String(source) => template(source).map(Argument::Template),
                other => Ok(Argument::Constant(other.clone())),
            };
            let argument = argument.map_err(|wrong| (name.clone(), wrong))?;
            Ok((name.clone(), argument))
        };
        Ok(Self {
            schema: schema.clone(),
            arguments: typed.iter().map(argument).collect::<Result<_, _>>()?,
            trust,
        })
    }

    /// The names of the fixed arguments.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.arguments.keys()
    }

    /// The schema of all arguments.
    pub fn schema(&self) -> &Value {
        &self.schema
    }

    /// Whether an argument comes from a lookup.
    pub(crate) fn uses_lookups(&self) -> bool {
        let mut templates = self.arguments.values();
        templates.any(|argument| match argument {
            Argument::Template(template) => template.attributes("session").contains("lookup"),
            Argument::Constant(_) => false,
        })
    }

    /// The origin of what follows from the arguments.
    pub(crate) fn origin(&self) -> Origin {
        let mut templates = self.arguments.values();
        let depends = templates.any(|argument| match argument {
            Argument::Template(template) => !template.attributes("session").is_empty(),
            Argument::Constant(_) => false,
        });
        match depends {
            true => self.trust,
            false => Origin::Verified,
        }
    }

    /// The schema without the fixed arguments, for the model.
    pub(crate) fn shown(&self) -> Value {
        let mut shown = self.schema.clone();
        if let Some(properties) = shown.get_mut("properties").and_then(Value::as_object_mut) {
            properties.retain(|name, _| !self.arguments.contains_key(name));
        }
        if let Some(required) = shown.get_mut("required").and_then(Value::as_array_mut) {
            required.retain(|name| {
                let name = name.as_str().unwrap_or_default();
                !self.arguments.contains_key(name)
            });
        }
        shown
    }

    /// `arguments` with the fixed ones, which replace any others of their names.
    ///
    /// # Errors
    /// [`ToolError::Failed`] if one has no value in this session, or none of the origin that it takes.
    pub(crate) fn merged(
        &self,
        tool: &str,
        mut arguments: Map<String, Value>,
        session: &SessionValues,
        found: &Found,
    ) -> Result<Map<String, Value>, ToolError> {
        let seen = json!({ "session": session.seen_with(self.trust, found) });
        let seen = Jinja::from(minijinja::value::Serde(&seen));
        for (name, argument) in &self.arguments {
            let value = match argument {
                Argument::Constant(value) => value.clone(),
                Argument::Template(template) => match template.json(&seen) {
                    Ok(value) if is_there(&value) => plain(value),
                    // The error may quote a value.
                    _ => {
                        let least = self.trust.name();
                        tracing::info!(
                            tool,
                            argument = name,
                            least,
                            "a fixed argument has no value"
                        );
                        return Err(ToolError::Failed(UNKNOWN_CALLER.into()));
                    }
                },
            };
            arguments.insert(name.clone(), value);
        }
        Ok(arguments)
    }
}

/// A text of the operator with values of the session.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionTemplate(Template);

impl SessionTemplate {
    /// Checks a template over `session`.
    ///
    /// # Errors
    /// The problem, and what is allowed.
    pub(crate) fn new(source: &str) -> Result<Self, Wrong> {
        template(source).map(Self)
    }

    /// The text with the values of `seen`, [`SessionValues::seen`]; `None` if one is absent.
    pub(crate) fn text(&self, seen: &Map<String, Value>) -> Option<String> {
        let seen = json!({ "session": seen });
        self.0
            .text(&Jinja::from(minijinja::value::Serde(&seen)))
            .ok()
    }
}

fn is_there(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.trim().is_empty(),
        _ => true,
    }
}

/// A template over `session`, whose names are checked.
fn template(source: &str) -> Result<Template, Wrong> {
    let template = Template::new(source, &["session".to_owned()].into())?;
    let unknown = template.attributes("session").into_iter();
    match unknown
        .into_iter()
        .find(|name| !NAMES.contains(&name.as_str()))
    {
        None => Ok(template),
        Some(name) => Err((
            format!("\"{source}\" uses `session.{name}`, which does not exist"),
            format!("known are: session.{}", NAMES.join(", session.")),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::values::Named;

    fn schema() -> Value {
        json!({
            "type": "object",
            "properties": {"account": {"type": "string"}, "limit": {"type": "integer"}, "day": {}},
            "required": ["account", "day"],
            "additionalProperties": false
        })
    }

    fn fixed(typed: Value, trust: Origin) -> Result<Fixed, (String, Wrong)> {
        Fixed::new(&schema(), typed.as_object().unwrap(), trust)
    }

    fn merged(fixed: &Fixed, session: &SessionValues) -> Option<Value> {
        let model = json!({"account": "another's", "day": "today"});
        let model = model.as_object().unwrap().clone();
        fixed
            .merged("t", model, session, &Found::new())
            .ok()
            .map(Value::Object)
    }

    #[test]
    fn the_model_neither_sees_nor_sets_a_fixed_argument() {
        let fixed = fixed(
            json!({"account": "{{ session.caller }}", "limit": 5}),
            Origin::Signalled,
        );
        let fixed = fixed.unwrap();
        assert_eq!(
            fixed.shown(),
            json!({
                "type": "object", "properties": {"day": {}}, "required": ["day"],
                "additionalProperties": false
            })
        );
        let session =
            SessionValues::default().with(Named::Caller, "+15551230000", Origin::Signalled);
        assert_eq!(
            merged(&fixed, &session).unwrap(),
            json!({"account": "+15551230000", "day": "today", "limit": 5})
        );
    }

    #[test]
    fn without_a_value_of_enough_trust_the_call_is_refused() {
        let caller = json!({"account": "{{ session.caller }}"});
        let claimed = SessionValues::default().with(Named::Caller, "+1", Origin::Claimed);
        for (trust, allowed) in [
            (Origin::Claimed, true),
            (Origin::Signalled, false),
            (Origin::Verified, false),
        ] {
            let fixed = fixed(caller.clone(), trust).unwrap();
            assert_eq!(merged(&fixed, &claimed).is_some(), allowed, "{trust:?}");
            assert_eq!(merged(&fixed, &SessionValues::default()), None);
        }
        for absent in [
            "{{ session.param['plan'] }}",
            "{{ session.header.x }}",
            "{{ session.lookup['customer'].id }}",
            "acct-{{ session.called }}",
            "",
        ] {
            let fixed = fixed(json!({ "account": absent }), Origin::Claimed).unwrap();
            assert_eq!(merged(&fixed, &claimed), None, "{absent}");
        }
    }

    #[test]
    fn a_mistake_is_found_when_the_file_is_read() {
        let wrong = |typed| fixed(typed, Origin::Signalled).unwrap_err();
        let (name, (problem, fix)) = wrong(json!({"account": "{{ session.calller }}"}));
        assert_eq!(name, "account");
        assert!(problem.contains("`session.calller`"), "{problem}");
        assert!(fix.contains("session.caller,"), "{fix}");
        let (_, (problem, _)) = wrong(json!({"account": "{{ caller }}"}));
        assert!(problem.contains("`caller`"), "{problem}");
        let (_, (problem, fix)) = wrong(json!({"acount": "x"}));
        assert!(problem.contains("`acount` is no parameter"), "{problem}");
        assert!(fix.contains("account"), "{fix}");
    }
}
