//! Templates in declarations: minijinja over a call's arguments, checked when they are loaded.

use super::Declaration;
use crate::language::en::money;
use minijinja::{
    Environment, Error, ErrorKind, UndefinedBehavior, Value as Jinja, escape_formatter,
};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::{Arc, LazyLock};

/// Up to here a float that has no fraction is a whole number for sure: 2^53.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// A value that was left out prints nothing: the word "none" would be taken for one.
static PLAIN: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = strict();
    environment.set_formatter(|out, state, value| match value.is_none() {
        true => Ok(()),
        false => escape_formatter(out, state, value),
    });
    environment
});

/// Stands before each value that is printed.
const MARK: &str = "\0";

/// Every value that is printed has a mark before it; what the template itself says does not.
static MARKING: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = strict();
    environment.set_formatter(|out, state, value| {
        out.write_str(MARK)?;
        match value.is_none() {
            true => Ok(()),
            false => escape_formatter(out, state, value),
        }
    });
    environment
});

/// Stands in an address for a value that is missing or blank: no path that is meant has a NUL.
const MISSING: &str = "%00";

/// Every value that is printed is percent-encoded; what the template itself says is not.
static ENCODING: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = strict();
    environment.set_formatter(|out, _, value| {
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        let is_missing = value.is_none() || value.is_undefined() || text.trim().is_empty();
        let text = match is_missing {
            true => MISSING.to_owned(),
            false => encoded(&text),
        };
        out.write_str(&text).map_err(Error::from)
    });
    environment
});

/// Every value that is printed is one key of a JSON pointer, or a part of one, whatever is in it: RFC 6901, 3.
static POINTING: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = strict();
    environment.set_formatter(|out, _, value| {
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        let text = text.replace('~', "~0").replace('/', "~1");
        out.write_str(&text).map_err(Error::from)
    });
    environment
});

/// Templates for speech and for fixed arguments: a missing value is an error.
static COMPLETE: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = strict();
    environment.set_formatter(|out, state, value| {
        if value.is_none() || value.is_undefined() {
            let missing = "a value is missing";
            return Err(Error::new(ErrorKind::UndefinedError, missing));
        }
        escape_formatter(out, state, value)
    });
    environment
});

fn strict() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment
}

/// Everything but RFC 3986's unreserved characters as `%XX`.
fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

/// A template whose variables are all known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(Arc<str>);

impl Template {
    /// Checks the syntax, and that only `known` variables occur.
    ///
    /// # Errors
    /// The problem, and what is allowed.
    pub fn new(source: &str, known: &BTreeSet<String>) -> Result<Self, (String, String)> {
        let template = PLAIN.template_from_str(source).map_err(|error| {
            let fix =
                "write a value as {{ name }}, and a condition as {% if name %} ... {% endif %}";
            (
                format!("\"{source}\" is not a template: {error}"),
                fix.to_owned(),
            )
        })?;
        let unknown = template
            .undeclared_variables(false)
            .into_iter()
            .find(|name| !known.contains(name));
        if let Some(name) = unknown {
            let fix = if known.is_empty() {
                "no variables are known here".to_owned()
            } else {
                format!("known are: {}", joined(known))
            };
            return Err((
                format!("\"{source}\" uses `{name}`, which is not known here"),
                fix,
            ));
        }
        Ok(Self(source.into()))
    }

    /// Whether the variable occurs.
    pub(crate) fn uses(&self, variable: &str) -> bool {
        let parsed = PLAIN.template_from_str(&self.0);
        parsed.is_ok_and(|template| template.undeclared_variables(false).contains(variable))
    }

    /// The attributes of the variable `of` that occur, by name.
    pub(crate) fn attributes(&self, of: &str) -> BTreeSet<String> {
        let parsed = PLAIN.template_from_str(&self.0);
        let names = parsed.map(|template| template.undeclared_variables(true));
        let attribute = |name: &String| {
            let path = name.strip_prefix(of)?.strip_prefix('.')?;
            path.split('.').next().map(str::to_owned)
        };
        names
            .unwrap_or_default()
            .iter()
            .filter_map(attribute)
            .collect()
    }

    /// The paths below the variable `of` that occur, such as `lookup`, `customer` and `id`. Each ends before a key that
    /// is no constant text.
    pub(crate) fn paths(&self, of: &str) -> BTreeSet<Vec<String>> {
        let (dotted, keys) = dotted(&self.0);
        let parsed = PLAIN.template_from_str(&dotted);
        let names = parsed.map(|template| template.undeclared_variables(true));
        let key = |part: &str| {
            let nth = part.strip_prefix(KEY);
            let nth = nth.and_then(|nth| nth.parse::<usize>().ok());
            let key = nth.and_then(|nth| keys.get(nth).copied());
            key.unwrap_or(part).to_owned()
        };
        let path = |name: &String| {
            let path = name.strip_prefix(of)?.strip_prefix('.')?;
            Some(path.split('.').map(key).collect::<Vec<_>>())
        };
        names.unwrap_or_default().iter().filter_map(path).collect()
    }

    /// The template as it is written.
    pub fn source(&self) -> &str {
        &self.0
    }

    /// As text. What was left out is empty.
    ///
    /// # Errors
    /// The error of minijinja, such as a division by zero.
    pub fn text(&self, context: &Jinja) -> Result<String, String> {
        PLAIN
            .render_str(&self.0, context)
            .map_err(|error| error.to_string())
    }

    /// Whether the text begins with a value, and not with what the template itself says.
    ///
    /// # Errors
    /// Those of [`Template::text`].
    pub fn begins_with_value(&self, context: &Jinja) -> Result<bool, String> {
        let marked = MARKING.render_str(&self.0, context);
        let marked = marked.map_err(|error| error.to_string())?;
        Ok(marked.starts_with(MARK))
    }

    /// As an address: what the values say is percent-encoded. In the query a missing value is empty.
    ///
    /// # Errors
    /// The error of minijinja; or that a value in the path is missing or blank, because the address would then name
    /// something else.
    pub fn address(&self, context: &Jinja) -> Result<String, String> {
        let address = ENCODING.render_str(&self.0, context);
        let address = address.map_err(|error| error.to_string())?;
        let query = address.find(['?', '#']).unwrap_or(address.len());
        let (path, query) = address.split_at(query);
        if path.contains(MISSING) {
            return Err("an argument in the address's path is empty".into());
        }
        Ok(format!("{path}{}", query.replace(MISSING, "")))
    }

    /// As a JSON pointer, in which values are keys.
    ///
    /// # Errors
    /// The error of minijinja.
    pub fn pointer(&self, context: &Jinja) -> Result<String, String> {
        POINTING
            .render_str(&self.0, context)
            .map_err(|error| error.to_string())
    }

    /// As JSON: a template that is one `{{ expression }}` keeps the expression's type, any other
    /// is text.
    ///
    /// # Errors
    /// The error of minijinja.
    pub fn json(&self, context: &Jinja) -> Result<Value, String> {
        self.json_in(&PLAIN, context)
    }

    /// As JSON, like [`Template::json`], but a text in which a value is missing is an error.
    ///
    /// # Errors
    /// The error of minijinja; or that a value is missing.
    pub fn complete_json(&self, context: &Jinja) -> Result<Value, String> {
        self.json_in(&COMPLETE, context)
    }

    fn json_in(
        &self,
        environment: &'static Environment<'static>,
        context: &Jinja,
    ) -> Result<Value, String> {
        let Some(expression) = self.expression() else {
            let text = environment.render_str(&self.0, context);
            return text.map(Value::from).map_err(|error| error.to_string());
        };
        let value = environment
            .compile_expression(expression)
            .and_then(|expression| expression.eval(context))
            .map_err(|error| error.to_string())?;
        if value.is_undefined() {
            return Err(format!("{expression} is not there"));
        }
        serde_json::to_value(value).map_err(|error| error.to_string())
    }

    /// The expression that the whole template is.
    pub fn expression(&self) -> Option<&str> {
        let inner = self.0.trim().strip_prefix("{{")?.strip_suffix("}}")?;
        // Signs of white space that is to be removed, or kept.
        let inner = inner.strip_prefix(['-', '+']).unwrap_or(inner);
        let inner = inner.strip_suffix(['-', '+']).unwrap_or(inner);
        (!inner.contains("{{") && !inner.contains("}}")).then_some(inner.trim())
    }
}

/// The beginning of the names that [`dotted`] gives to keys.
const KEY: &str = "__key_";

/// The template with a name for each key that is a constant text, as in `header["x-line"]`, and these keys: minijinja
/// lists names below a variable, but not keys.
fn dotted(source: &str) -> (String, Vec<&str>) {
    let (mut dotted, mut keys) = (String::new(), Vec::new());
    let mut rest = source;
    while let Some((before, inner)) = rest.split_once('[') {
        dotted += before;
        let is_key = dotted.ends_with(|c: char| c.is_alphanumeric() || "_])".contains(c));
        match quoted(inner).filter(|_| is_key) {
            Some((key, after)) => {
                let _ = write!(dotted, ".{KEY}{}", keys.len());
                keys.push(key);
                rest = after;
            }
            None => {
                dotted.push('[');
                rest = inner;
            }
        }
    }
    (dotted + rest, keys)
}

/// The text in quotation marks before a closing bracket, and what follows the bracket.
fn quoted(inner: &str) -> Option<(&str, &str)> {
    let inner = inner.trim_start();
    let quote = inner.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let (key, after) = inner[1..].split_once(quote)?;
    Some((key, after.trim_start().strip_prefix(']')?))
}

fn joined(names: &BTreeSet<String>) -> String {
    names
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ")
}

/// The names of a schema's properties.
pub(crate) fn parameters(schema: &Value) -> BTreeSet<String> {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties
        .map(|all| all.keys().cloned().collect())
        .unwrap_or_default()
}

/// The context of templates: the arguments by name, `none` for those left out, and `more`.
pub(crate) fn context<'a>(
    schema: &Value,
    arguments: &Map<String, Value>,
    more: impl IntoIterator<Item = (&'a str, Value)>,
) -> Jinja {
    let mut all: Map<String, Value> = parameters(schema)
        .into_iter()
        .map(|name| (name, Value::Null))
        .collect();
    all.extend(arguments.clone());
    all.extend(
        more.into_iter()
            .map(|(name, value)| (name.to_owned(), value)),
    );
    Jinja::from(minijinja::value::Serde(&all))
}

/// Renders a template of `declaration` ([`super::Fillers`], [`Declaration::answer`], a question) for a
/// call: the arguments by name, the result as `result`, numbers and amounts of money as
/// people write them. `None` if it cannot be rendered, as when a value is missing that it would say, or
/// says nothing.
pub fn say(
    declaration: &Declaration,
    template: &str,
    arguments: &Map<String, Value>,
    result: Option<&Value>,
) -> Option<String> {
    let result = result.map(|result| ("result", plain(result.clone())));
    let arguments = arguments.iter();
    let arguments = arguments.map(|(name, value)| (name.clone(), plain(value.clone())));
    let context = context(&declaration.spec.parameters, &arguments.collect(), result);
    let said = COMPLETE.render_str(template, context);
    if let Err(error) = &said {
        tracing::debug!(tool = declaration.spec.name, %error, "a template cannot be rendered");
    }
    let words = said.ok()?.split_whitespace().collect::<Vec<_>>().join(" ");
    (!words.is_empty()).then(|| money::spelled(&words))
}

/// A value with 12500 for 12500.0: templates print numbers as JSON writes them.
pub(crate) fn plain(value: Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => number
            .as_f64()
            .filter(|float| float.fract() == 0.0 && float.abs() < EXACT)
            .map_or(Value::Number(number), |float| (float as i64).into()),
        Value::Array(items) => items.into_iter().map(plain).collect(),
        Value::Object(entries) => entries.into_iter().map(|(k, v)| (k, plain(v))).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn known(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn seen(value: Value) -> Jinja {
        context(
            &json!({"properties": {"place": {}, "n": {}}}),
            value.as_object().unwrap(),
            [],
        )
    }

    #[test]
    fn values_are_encoded_in_addresses_and_keep_their_type_in_json() {
        let template = |source| Template::new(source, &known(&["place", "n"])).unwrap();
        let place = seen(json!({"place": "São Paulo/../&x=1", "n": 3}));
        assert_eq!(
            template("https://a.b/{{ place }}?n={{ n }}")
                .address(&place)
                .unwrap(),
            "https://a.b/S%C3%A3o%20Paulo%2F..%2F%26x%3D1?n=3"
        );
        assert_eq!(template("{{ n }}").json(&place), Ok(json!(3)));
        assert_eq!(template("{{ n * 2 }}").json(&place), Ok(json!(6)));
        assert_eq!(template("n={{ n }}").json(&place), Ok(json!("n=3")));
        assert_eq!(template("{{ n }}").json(&seen(json!({}))), Ok(Value::Null));
        assert_eq!(
            template("{% if n %}{{ n }}{% else %}none{% endif %}").text(&seen(json!({}))),
            Ok("none".into())
        );
    }

    /// `DELETE /bookings/{{ id }}` without an id named all bookings.
    #[test]
    fn an_address_whose_path_lacks_a_value_is_refused() {
        let template = Template::new("https://a.b/{{ place }}?n={{ n }}", &known(&["place", "n"]));
        let template = template.unwrap();
        for place in [json!(""), json!(" \n"), Value::Null] {
            let error = template.address(&seen(json!({"place": place, "n": 1})));
            assert_eq!(
                error.unwrap_err(),
                "an argument in the address's path is empty"
            );
        }
        for n in [json!(""), Value::Null] {
            let address = template.address(&seen(json!({"place": "x", "n": n})));
            assert_eq!(address.unwrap(), "https://a.b/x?n=");
        }
    }

    /// A ticket for a caller without a name was for "none".
    #[test]
    fn an_argument_that_was_left_out_is_not_printed_as_a_word() {
        let template = |source| Template::new(source, &known(&["place", "n"])).unwrap();
        let nothing = seen(json!({"n": null}));
        assert_eq!(template("{{ place }}").text(&nothing), Ok(String::new()));
        assert_eq!(template("for {{ n }}.").json(&nothing), Ok(json!("for .")));
        assert_eq!(template("{{ n }}").json(&nothing), Ok(Value::Null));
    }

    /// Every call of such a tool failed.
    #[test]
    fn an_expression_may_have_signs_for_white_space() {
        let template = |source| Template::new(source, &known(&["place", "n"])).unwrap();
        let three = seen(json!({"n": 3}));
        for source in ["{{- n -}}", "{{ n -}}", "{{-n}}"] {
            assert_eq!(template(source).json(&three), Ok(json!(3)), "{source}");
        }
    }

    /// The rate of "EUR/USD" was looked for under "EUR".
    #[test]
    fn a_slash_in_an_argument_does_not_divide_a_json_pointer() {
        let template = Template::new("/rates/{{ place }}", &known(&["place"])).unwrap();
        let pointer = template.pointer(&seen(json!({"place": "EUR/USD~x"})));
        assert_eq!(pointer, Ok("/rates/EUR~1USD~0x".into()));
    }

    #[test]
    fn numbers_and_amounts_are_said_as_people_write_them() {
        let spec = crate::tools::ToolSpec {
            examples: Vec::new(),
            name: "probe".into(),
            description: String::new(),
            parameters: json!({"properties": {"amount": {}}}),
        };
        let timeout = std::time::Duration::from_secs(1);
        let declaration = Declaration::new(spec, crate::tools::Effect::Read, timeout);
        let said = |template, amount: Value, result: Value| {
            let arguments = json!({ "amount": amount });
            let arguments = arguments.as_object().unwrap();
            say(&declaration, template, arguments, Some(&result)).unwrap()
        };
        assert_eq!(
            said(
                "{{ amount }} EUR are {{ result.to[0] }} {{ result.code }}.",
                json!(10.0),
                json!({"to": [12500.0], "code": "USD"})
            ),
            "10 euros are 12,500 US dollars."
        );
        assert_eq!(said("{{ amount }}", json!(2.5), json!({})), "2.5");
        assert_eq!(plain(json!(1e300)), json!(1e300));
    }

    #[test]
    fn a_template_with_a_missing_value_is_never_said() {
        let spec = crate::tools::ToolSpec {
            examples: Vec::new(),
            name: "t".into(),
            description: String::new(),
            parameters: json!({"properties": {"place": {}, "day": {}}}),
        };
        let timeout = std::time::Duration::from_secs(1);
        let tool = Declaration::new(spec, crate::tools::Effect::Read, timeout);
        let said = |template, result: Option<Value>| {
            let arguments = json!({"day": "today"});
            say(
                &tool,
                template,
                arguments.as_object().unwrap(),
                result.as_ref(),
            )
        };
        assert_eq!(said("Checking the weather in {{ place }}.", None), None);
        assert_eq!(
            said("The weather {{ day }}.", None).unwrap(),
            "The weather today."
        );
        let either = "Checking{% if place %} in {{ place }}{% endif %}.";
        assert_eq!(said(either, None).unwrap(), "Checking.");
        let note = Some(json!({"note": null, "sum": 0}));
        assert_eq!(said("It says {{ result.note }}.", note.clone()), None);
        assert_eq!(said("It is {{ result.sum }}.", note).unwrap(), "It is 0.");
    }

    #[test]
    fn unknown_variables_and_bad_syntax_are_found_at_once() {
        let wrong = |source| Template::new(source, &known(&["place"])).unwrap_err();
        let (problem, fix) = wrong("in {{ palce }}");
        assert!(problem.contains("`palce`"), "{problem}");
        assert_eq!(fix, "known are: place");
        assert!(wrong("{{ place ").0.contains("not a template"));
    }
}
