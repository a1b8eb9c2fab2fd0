//! The tools of a server, by name: checked when registered, checked again at every call.

use super::{
    Audience, CallContext, Declaration, Fixed, Found, Known, Lookup, Origin, RouterHints, Same,
    SessionTools, SessionValues, Tool, ToolError, ToolSpec,
};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use jsonschema::Validator;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// An error of a tool that cannot be registered.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// Two tools of one name.
    #[error("a tool named {0} is already registered")]
    Duplicate(String),
    /// A name that models and wire protocols would not carry.
    #[error(
        "bad tool name {0:?}: allowed are letters, digits, _ and -, 64 at most, a letter or _ first"
    )]
    Name(String),
    /// Parameters that are not a JSON Schema of an object.
    #[error("the parameters of tool {name} are not a JSON Schema of an object: {reason}")]
    Schema {
        /// The tool.
        name: String,
        /// The problem with the schema.
        reason: String,
    },
    /// Nothing could be reached.
    #[error("cannot set up the HTTP client: {0}")]
    Client(#[source] reqwest::Error),
}

struct Entry {
    tool: Arc<dyn Tool>,
    declaration: Arc<Declaration>,
    validator: Validator,
    hints: RouterHints,
}

/// The tools that the server runs.
#[derive(Clone, Default)]
pub struct Registry {
    tools: HashMap<String, Arc<Entry>>,
    specs: Arc<Vec<ToolSpec>>,
}

impl Registry {
    /// No tools.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool and compiles its schema.
    ///
    /// # Errors
    /// [`RegistryError`] for a duplicate or bad name, or an invalid schema.
    pub fn register(&mut self, tool: Arc<dyn Tool>) -> Result<(), RegistryError> {
        self.register_with(tool, RouterHints::default())
    }

    /// Adds a tool, with ways to ask for it.
    ///
    /// # Errors
    /// Those of [`Registry::register`].
    pub fn register_with(
        &mut self,
        tool: Arc<dyn Tool>,
        hints: RouterHints,
    ) -> Result<(), RegistryError> {
        let declaration = Arc::new(tool.declaration().clone());
        let spec = declaration.spec.clone();
        check_name(&spec.name)?;
        if self.tools.contains_key(&spec.name) {
            return Err(RegistryError::Duplicate(spec.name));
        }
        let schema = tool.fixed().map_or(&spec.parameters, Fixed::schema);
        let validator = compile(&spec.name, schema)?;
        let entry = Entry {
            tool,
            declaration,
            validator,
            hints,
        };
        self.tools.insert(spec.name.clone(), Arc::new(entry));
        Arc::make_mut(&mut self.specs).push(spec);
        Ok(())
    }

    /// These tools in the same order, each replaced by another one that stands for it.
    ///
    /// # Errors
    /// Those of [`Registry::register`].
    pub(crate) fn mapped(
        &self,
        replace: impl Fn(Arc<dyn Tool>) -> Arc<dyn Tool>,
    ) -> Result<Self, RegistryError> {
        let mut mapped = Self::new();
        let specs = self.specs.iter();
        for entry in specs.filter_map(|spec| self.tools.get(&spec.name)) {
            mapped.register_with(replace(entry.tool.clone()), entry.hints.clone())?;
        }
        Ok(mapped)
    }

    /// Takes out a tool; `false` if there is none of this name.
    pub fn remove(&mut self, name: &str) -> bool {
        Arc::make_mut(&mut self.specs).retain(|spec| spec.name != name);
        self.tools.remove(name).is_some()
    }

    /// All declarations, in the order of registration.
    pub fn declarations(&self) -> Vec<Arc<Declaration>> {
        self.declarations_of(|_| true)
    }

    /// Declarations of the tools for this audience alone, in the order of registration.
    pub fn offered_to(&self, audience: Audience) -> Vec<Arc<Declaration>> {
        self.declarations_of(|tool| tool.audience() == audience)
    }

    /// The sessions that a tool is offered to.
    pub fn audience(&self, name: &str) -> Option<Audience> {
        self.tools.get(name).map(|entry| entry.tool.audience())
    }

    fn declarations_of(&self, of: impl Fn(&dyn Tool) -> bool) -> Vec<Arc<Declaration>> {
        let entries = self
            .specs
            .iter()
            .filter_map(|spec| self.tools.get(&spec.name));
        let entries = entries.filter(|entry| of(&*entry.tool));
        entries.map(|entry| entry.declaration.clone()).collect()
    }

    /// The tools as a model is told of them, in the order of registration.
    pub fn specs(&self) -> Arc<Vec<ToolSpec>> {
        self.specs.clone()
    }

    /// A tool's declaration.
    pub fn declaration(&self, name: &str) -> Option<&Declaration> {
        self.tools.get(name).map(|entry| &*entry.declaration)
    }

    /// How people ask for a tool, where its declaration says so.
    pub fn hints(&self, name: &str) -> Option<&RouterHints> {
        self.tools.get(name).map(|entry| &entry.hints)
    }

    /// The findings of the lookups, if the tool needs them.
    pub(crate) async fn found_for(&self, name: &str, session: &SessionTools) -> Found {
        let fixed = self.tools.get(name).and_then(|entry| entry.tool.fixed());
        match fixed.is_some_and(Fixed::uses_lookups) {
            true => session.found().await,
            false => Found::new(),
        }
    }

    /// The lookups of the session `id`, which begins. They run when they are polled. `session` has none itself.
    pub(crate) fn lookups(&self, id: &str, session: &SessionTools) -> BTreeMap<String, Lookup> {
        let tools = self.offered_to(Audience::Lookup).into_iter();
        let lookup = |tool: Arc<Declaration>| {
            let name = tool.spec.name.clone();
            let entry = self.tools.get(&name);
            let fixed = entry.and_then(|entry| entry.tool.fixed());
            let origin = fixed.map_or(Origin::Verified, Fixed::origin);
            let context = CallContext::new(session.clone(), format!("{id}-lookup-{name}"));
            let call = self.call(&name, Map::new(), &context);
            let found = async move {
                match call.await {
                    Ok(value) => Some((without_nulls(value), origin)),
                    Err(error) => {
                        let lookup = &tool.spec.name;
                        tracing::debug!(lookup, error = error.details(), "a lookup found nothing");
                        // What a service says of a caller is private.
                        let told = matches!(error, ToolError::Failed(_) | ToolError::Arguments(_));
                        let error = (!told).then(|| error.details());
                        tracing::info!(lookup, error, "a lookup found nothing");
                        None
                    }
                }
            };
            (name, found.boxed().shared())
        };
        tools.map(lookup).collect()
    }

    /// The arguments as the tool will see them: the fixed ones set to the values of `session`, the schema's
    /// defaults filled in, then checked. `null` for one that may be left out, and may not be `null`, counts as left out.
    ///
    /// # Errors
    /// [`ToolError::Unknown`]; [`ToolError::Failed`] if a fixed argument has no value in this session; or
    /// [`ToolError::Arguments`] naming the argument and what is wrong.
    pub(crate) fn complete(
        &self,
        name: &str,
        arguments: Map<String, Value>,
        known: Known,
    ) -> Result<Map<String, Value>, ToolError> {
        let entry = self.entry(name)?;
        let fixed = entry.tool.fixed();
        let arguments = match fixed {
            Some(fixed) => fixed.merged(name, arguments, known)?,
            None => arguments,
        };
        let mut arguments = Value::Object(arguments);
        fill_defaults(&entry.declaration.spec.parameters, &mut arguments);
        if !entry.validator.is_valid(&arguments) {
            leave_out_nulls(entry, &mut arguments);
        }
        entry
            .validator
            .validate(&arguments)
            .map_err(|error| wrong_arguments(&error, fixed))?;
        match arguments {
            Value::Object(arguments) => Ok(arguments),
            other => Err(ToolError::Arguments(format!("not an object: {other}"))),
        }
    }

    /// The change that a call with complete arguments is, if its tool may not make it twice.
    pub(crate) fn same(
        &self,
        name: &str,
        arguments: &Map<String, Value>,
        session: &SessionValues,
    ) -> Option<Same> {
        let entry = self.tools.get(name)?;
        let once = entry.tool.once_per()?;
        once.same(&entry.declaration, arguments, session)
    }

    /// Completes the arguments and runs the tool within its timeout. Nothing runs before the future
    /// is polled; dropping it cancels the run.
    ///
    /// # Errors
    /// [`ToolError::Unknown`]; [`ToolError::Failed`] if a fixed argument has no value in this session;
    /// [`ToolError::Arguments`]; [`ToolError::Timeout`], or [`ToolError::Unanswered`] of a change; and the tool's own.
    pub fn call(
        &self,
        name: &str,
        arguments: Map<String, Value>,
        context: &CallContext,
    ) -> BoxFuture<'static, Result<Value, ToolError>> {
        let (tools, name, context) = (self.clone(), name.to_owned(), context.clone());
        Box::pin(async move {
            let found = tools.found_for(&name, &context.session).await;
            let none = Map::new();
            let known = Known::new(context.session.values(), &found, &none);
            let complete = tools.complete(&name, arguments, known);
            tools.run(&name, complete, &context).await
        })
    }

    /// Runs the tool within its timeout with arguments that are complete.
    pub(crate) fn run(
        &self,
        name: &str,
        arguments: Result<Map<String, Value>, ToolError>,
        context: &CallContext,
    ) -> BoxFuture<'static, Result<Value, ToolError>> {
        let tool = self.entry(name).map(|entry| entry.tool.clone());
        let context = context.clone();
        Box::pin(async move {
            let (tool, arguments) = (tool?, arguments?);
            let limit = tool.declaration().timeout;
            let late = |_| ToolError::late(tool.declaration().effect, limit);
            tokio::time::timeout(limit, tool.call(arguments, &context))
                .await
                .map_err(late)?
        })
    }

    /// Opens a tool's connections, if it has any.
    pub fn warm_up(&self, name: &str) -> BoxFuture<'static, ()> {
        match self.tools.get(name) {
            Some(entry) => entry.tool.warm_up(),
            None => Box::pin(std::future::ready(())),
        }
    }

    fn entry(&self, name: &str) -> Result<&Entry, ToolError> {
        self.tools
            .get(name)
            .map(Arc::as_ref)
            .ok_or_else(|| ToolError::Unknown(name.to_owned()))
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.specs.iter().map(|spec| &spec.name))
            .finish()
    }
}

/// 64: the longest function name that OpenAI's interfaces take.
fn is_name(name: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.len() <= 64
        && name.chars().all(legal)
}

pub(super) fn check_name(name: &str) -> Result<(), RegistryError> {
    if is_name(name) {
        Ok(())
    } else {
        Err(RegistryError::Name(name.into()))
    }
}

pub(super) fn check_schema(spec: &ToolSpec) -> Result<(), RegistryError> {
    compile(&spec.name, &spec.parameters).map(|_| ())
}

fn compile(name: &str, schema: &Value) -> Result<Validator, RegistryError> {
    let wrong = |reason: String| RegistryError::Schema {
        name: name.to_owned(),
        reason,
    };
    if schema.get("type").and_then(Value::as_str) != Some("object") {
        return Err(wrong(r#"its "type" must be "object""#.into()));
    }
    jsonschema::validator_for(schema).map_err(|error| wrong(describe(&error)))
}

/// Leaves out arguments that are wrong because they are `null`, and may be left out.
fn leave_out_nulls(entry: &Entry, arguments: &mut Value) {
    let spec = &entry.declaration.spec;
    let errors = entry.validator.iter_errors(arguments);
    let places: Vec<_> = errors
        .map(|error| error.instance_path().to_string())
        .collect();
    let Value::Object(given) = arguments else {
        return;
    };
    for name in places.iter().filter_map(|place| place.strip_prefix('/')) {
        let is_null = given.get(name).is_some_and(Value::is_null);
        if is_null && spec.required().all(|required| required != name) {
            given.shift_remove(name);
        }
    }
    fill_defaults(&spec.parameters, arguments);
}

/// The fault of the arguments, for the model, without the values of fixed ones.
fn wrong_arguments(error: &jsonschema::ValidationError<'_>, fixed: Option<&Fixed>) -> ToolError {
    let Some(fixed) = fixed else {
        return ToolError::Arguments(describe(error));
    };
    let at = error.instance_path().to_string();
    let first = at
        .trim_start_matches('/')
        .split('/')
        .next()
        .unwrap_or_default();
    if fixed.names().any(|name| name == first) {
        return ToolError::Broken(format!(
            "the fixed argument {first} does not fit the schema"
        ));
    }
    match first {
        "" => ToolError::Arguments(error.masked().to_string()),
        _ => ToolError::Arguments(describe(error)),
    }
}

fn describe(error: &jsonschema::ValidationError<'_>) -> String {
    let at = error.instance_path().to_string();
    if at.is_empty() {
        error.to_string()
    } else {
        format!("{}: {error}", at.trim_start_matches('/'))
    }
}

/// Without what is null: a template takes it for absent then.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(entries) => {
            let there = entries.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(
                there
                    .map(|(name, value)| (name, without_nulls(value)))
                    .collect(),
            )
        }
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

fn fill_defaults(schema: &Value, value: &mut Value) {
    let (Some(properties), Some(object)) = (
        schema.get("properties").and_then(Value::as_object),
        value.as_object_mut(),
    ) else {
        return;
    };
    for (name, property) in properties {
        if !object.contains_key(name)
            && let Some(default) = property.get("default")
        {
            object.insert(name.clone(), default.clone());
        }
        if let Some(inner) = object.get_mut(name) {
            fill_defaults(property, inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::{Effect, SessionTools};
    use serde_json::json;
    use std::time::Duration;

    struct Echo(Declaration);

    impl Tool for Echo {
        fn declaration(&self) -> &Declaration {
            &self.0
        }

        fn call(
            &self,
            arguments: Map<String, Value>,
            _: &CallContext,
        ) -> BoxFuture<'static, Result<Value, ToolError>> {
            Box::pin(async move {
                if arguments.contains_key("slow") {
                    std::future::pending::<()>().await;
                }
                Ok(Value::Object(arguments))
            })
        }
    }

    fn echo(name: &str, parameters: Value) -> Arc<dyn Tool> {
        let spec = ToolSpec {
            examples: Vec::new(),
            name: name.into(),
            description: "Echoes.".into(),
            parameters,
        };
        let timeout = Duration::from_millis(200);
        Arc::new(Echo(Declaration::new(spec, Effect::Read, timeout)))
    }

    fn context() -> CallContext {
        CallContext::new(SessionTools::default(), "key")
    }

    fn registry() -> Registry {
        let mut registry = Registry::new();
        let schema = json!({
            "type": "object",
            "properties": {
                "n": {"type": "integer", "minimum": 1},
                "unit": {"type": "string", "default": "m"},
                "slow": {"type": "boolean"}
            },
            "required": ["n"],
            "additionalProperties": false
        });
        registry.register(echo("echo", schema)).unwrap();
        registry
    }

    fn arguments(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn fills_defaults_checks_and_times_out() {
        let (registry, context) = (registry(), context());
        let call = |name, value| registry.call(name, arguments(value), &context);
        assert_eq!(
            call("echo", json!({"n": 2})).await,
            Ok(json!({"n": 2, "unit": "m"}))
        );
        assert_eq!(
            call("nope", json!({})).await,
            Err(ToolError::Unknown("nope".into()))
        );
        let wrong = call("echo", json!({"n": 0})).await.unwrap_err().to_string();
        assert_eq!(wrong, "wrong arguments: n: 0 is less than the minimum of 1");
        assert!(matches!(
            call("echo", json!({})).await,
            Err(ToolError::Arguments(_))
        ));
        let slow = call("echo", json!({"n": 1, "slow": true})).await;
        assert_eq!(slow, Err(ToolError::Timeout(200)));
    }

    /// A caller waited for a second round of the model.
    #[tokio::test]
    async fn a_call_with_null_for_what_may_be_left_out_is_not_refused() {
        let (mut registry, context) = (registry(), context());
        let schema = json!({
            "type": "object",
            "properties": {"due": {"type": ["string", "null"]}, "note": {"type": "string"}}
        });
        registry.register(echo("move", schema)).unwrap();
        let call = |name, value| registry.call(name, arguments(value), &context);
        assert_eq!(
            call("echo", json!({"n": 2, "unit": null, "slow": null})).await,
            Ok(json!({"n": 2, "unit": "m"}))
        );
        assert_eq!(
            call("move", json!({"due": null, "note": null})).await,
            Ok(json!({"due": null})),
            "where null is allowed it may mean something"
        );
        let schema = json!({
            "type": "object", "properties": {"id": {"type": "integer"}, "all": {"type": "boolean"}},
            "maxProperties": 1, "additionalProperties": false
        });
        registry.register(echo("cancel", schema)).unwrap();
        assert_eq!(
            registry
                .call("cancel", arguments(json!({"id": 1, "all": null})), &context)
                .await,
            Ok(json!({"id": 1})),
            "nulls do not count"
        );
        let call = |name, value| registry.call(name, arguments(value), &context);
        let refused = call("echo", json!({"n": null})).await;
        assert!(
            matches!(refused, Err(ToolError::Arguments(_))),
            "{refused:?}"
        );
    }

    #[test]
    fn refuses_what_cannot_be_called() {
        let mut registry = registry();
        let object = json!({"type": "object"});
        let mut refuse = |name: &str, schema: &Value| {
            registry
                .register(echo(name, schema.clone()))
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            refuse("echo", &object),
            "a tool named echo is already registered"
        );
        assert!(refuse("2nd", &object).starts_with("bad tool name \"2nd\""));
        assert!(refuse("", &object).starts_with("bad tool name"));
        assert!(refuse("s", &json!({"type": "string"})).contains("must be \"object\""));
        assert!(refuse("t", &json!({"type": "object", "properties": 3})).contains("of tool t"));
    }
}
