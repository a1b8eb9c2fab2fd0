//! Fixed arguments: the server sets them, so the model neither sees nor chooses them.

use super::template::{Template, parameters};
use super::values::{Found, NAMES, Origin, SessionValues};
use super::{ToolError, plain};
use minijinja::Value as Jinja;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

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
    /// Over `session` and `result`.
    Template(Template),
}

impl Argument {
    /// The names under `session` or `result` that it uses.
    fn uses(&self, of: &str) -> BTreeSet<String> {
        match self {
            Self::Template(template) => template.attributes(of),
            Self::Constant(_) => BTreeSet::new(),
        }
    }
}

/// An error in a template: the problem, and what is allowed.
type Wrong = (String, String);

/// The values that templates may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known<'a> {
    session: &'a SessionValues,
    found: &'a Found,
    /// Earlier results of the session, by tool.
    results: &'a Map<String, Value>,
}

impl<'a> Known<'a> {
    pub(crate) fn new(
        session: &'a SessionValues,
        found: &'a Found,
        results: &'a Map<String, Value>,
    ) -> Self {
        Self {
            session,
            found,
            results,
        }
    }
}

impl Fixed {
    /// The fixed arguments of a tool whose arguments have the schema `schema`. A text is a template over
    /// `session` and `result`. An error comes with the argument's name.
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
                Value::String(source) => argument_template(source).map(Argument::Template),
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
        let mut arguments = self.arguments.values();
        arguments.any(|argument| argument.uses("session").contains("lookup"))
    }

    /// The tools from whose results arguments come, each with the first such argument.
    pub(crate) fn takes(&self) -> BTreeMap<String, &String> {
        let mut takes = BTreeMap::new();
        for (name, argument) in &self.arguments {
            for tool in argument.uses("result") {
                takes.entry(tool).or_insert(name);
            }
        }
        takes
    }

    /// The lookups from whose results arguments come, each with the first such argument.
    pub(crate) fn lookups(&self) -> BTreeMap<String, &String> {
        let mut lookups = BTreeMap::new();
        for (name, argument) in &self.arguments {
            let Argument::Template(template) = argument else {
                continue;
            };
            for path in template.paths("session") {
                if let [group, lookup, ..] = path.as_slice()
                    && group == "lookup"
                {
                    lookups.entry(lookup.clone()).or_insert(name);
                }
            }
        }
        lookups
    }

    /// The least origin of the values that arguments come from.
    pub(crate) fn trust(&self) -> Origin {
        self.trust
    }

    /// The origin of what follows from the arguments.
    pub(crate) fn origin(&self) -> Origin {
        let depends = |argument: &Argument| {
            !argument.uses("session").is_empty() || !argument.uses("result").is_empty()
        };
        match self.arguments.values().any(depends) {
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
        known: Known,
    ) -> Result<Map<String, Value>, ToolError> {
        let session = known.session.seen_with(self.trust, known.found);
        let seen = json!({ "session": session, "result": known.results });
        let seen = Jinja::from(minijinja::value::Serde(&seen));
        for (name, argument) in &self.arguments {
            let value = match argument {
                Argument::Constant(value) => value.clone(),
                Argument::Template(template) => match template.complete_json(&seen) {
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
                        return Err(ToolError::Failed(refusal(argument, known.results)));
                    }
                },
            };
            arguments.insert(name.clone(), value);
        }
        Ok(arguments)
    }
}

/// The reason why a call without a value for a fixed argument does not run.
fn refusal(argument: &Argument, results: &Map<String, Value>) -> String {
    let takes = argument.uses("result");
    match takes.iter().find(|tool| !results.contains_key(*tool)) {
        Some(tool) => format!(
            "it needs the result of {tool}, and there is none in this conversation: call {tool} first, then \
             this again"
        ),
        None => match takes.first() {
            Some(tool) => format!("the last result of {tool} does not have what it needs"),
            None => UNKNOWN_CALLER.into(),
        },
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
        template(source, &["session"]).map(Self)
    }

    /// The values that it uses, as paths below `session`.
    pub(crate) fn paths(&self) -> BTreeSet<Vec<String>> {
        self.0.paths("session")
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

/// A template over `session` and `result`.
fn argument_template(source: &str) -> Result<Template, Wrong> {
    let template = template(source, &["session", "result"])?;
    let names_none = template.uses("result") && template.attributes("result").is_empty();
    match names_none {
        false => Ok(template),
        true => Err((
            format!("\"{source}\" does not say whose result it uses"),
            "write {{ result.TOOL.FIELD }}, with the name of a tool that has no dash".into(),
        )),
    }
}

/// A template over these variables. The names under `session` are checked.
fn template(source: &str, over: &[&str]) -> Result<Template, Wrong> {
    let over = over.iter().map(|name| (*name).to_owned());
    let template = Template::new(source, &over.collect())?;
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
        let (found, none) = (Found::new(), Map::new());
        let known = Known::new(session, &found, &none);
        fixed.merged("t", model, known).ok().map(Value::Object)
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
    fn an_argument_from_an_earlier_result() {
        let typed = json!({"account": "{{ result.find_customer.id }}"});
        let fixed = fixed(typed, Origin::Claimed).unwrap();
        assert_eq!(fixed.takes().keys().collect::<Vec<_>>(), ["find_customer"]);
        let merged = |results: Value| {
            let (session, found) = (SessionValues::default(), Found::new());
            let known = Known::new(&session, &found, results.as_object().unwrap());
            let model = json!({"account": "another's", "day": "today"});
            fixed.merged("t", model.as_object().unwrap().clone(), known)
        };
        let complete = merged(json!({"find_customer": {"id": "c-7"}})).unwrap();
        assert_eq!(
            Value::Object(complete),
            json!({"account": "c-7", "day": "today"})
        );
        let refusal = |results| merged(results).unwrap_err().to_string();
        let missing = refusal(json!({}));
        assert!(missing.contains("call find_customer first"), "{missing}");
        for other in [json!({"name": "Ann"}), json!({"id": null}), json!("c-7")] {
            let unfit = refusal(json!({ "find_customer": other }));
            assert!(unfit.contains("does not have what it needs"), "{unfit}");
        }
    }

    /// "customers/" may name all customers.
    #[test]
    fn a_text_that_lacks_a_value_is_refused() {
        let typed = json!({"account": "customers/{{ result.find_customer.id }}"});
        let fixed = fixed(typed, Origin::Claimed).unwrap();
        let results = json!({"find_customer": {"id": null}});
        let (session, found) = (SessionValues::default(), Found::new());
        let known = Known::new(&session, &found, results.as_object().unwrap());
        let refused = fixed.merged("t", Map::new(), known).unwrap_err();
        assert!(refused.to_string().contains("what it needs"), "{refused}");
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
        let (_, (problem, _)) = wrong(json!({"account": "{{ result }}"}));
        assert!(problem.contains("whose result"), "{problem}");
        let (_, (problem, _)) = wrong(json!({"account": "{{ result.find-it.id }}"}));
        assert!(problem.contains("`it`"), "{problem}");
        let (_, (problem, fix)) = wrong(json!({"acount": "x"}));
        assert!(problem.contains("`acount` is no parameter"), "{problem}");
        assert!(fix.contains("account"), "{fix}");
    }
}
