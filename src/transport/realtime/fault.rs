//! Faults in a Realtime client's events.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// The longest JSON of a value that is kept only to be echoed, bytes.
const MAX_ECHO: usize = 16 * 1024;

/// The longest JSON of a response's metadata, bytes: room for OpenAI's 16 pairs of 64 and 512 characters in any script.
const MAX_METADATA: usize = 64 * 1024;

/// The reason an event is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The client's own id for the event.
    pub event_id: Option<String>,
    /// The fault's error code.
    pub code: &'static str,
    /// The path of the invalid field.
    pub param: Option<String>,
    /// Says what is wrong and how to fix it.
    pub message: String,
}

impl Fault {
    /// A fault in the field `param`.
    pub fn new(code: &'static str, param: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            event_id: None,
            code,
            param: Some(param.into()),
            message: message.into(),
        }
    }

    /// A fault of the whole event.
    pub fn whole(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            event_id: None,
            code,
            param: None,
            message: message.into(),
        }
    }

    /// A value that is not allowed.
    pub(super) fn value(param: impl Into<String>, value: &str, allowed: &str) -> Self {
        Self::new(
            "invalid_value",
            param,
            format!(
                "Invalid value: '{}'. Supported values are: {allowed}.",
                clip(value)
            ),
        )
    }
}

/// Deserializes `value`; faults name the field's path, prefixed with `root` unless that is empty.
pub(super) fn read<T: DeserializeOwned>(value: Value, root: &str) -> Result<T, Fault> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let param = match (root, path.as_str()) {
            ("", path) => path.to_owned(),
            (root, ".") => root.to_owned(),
            (root, path) => format!("{root}.{path}"),
        };
        let message = error.inner().to_string();
        match message
            .strip_prefix("missing field `")
            .and_then(|rest| rest.split('`').next())
        {
            Some(field) => missing(&param, field),
            None => Fault::new("invalid_type", param, format!("{}.", clip(&message))),
        }
    })
}

/// The fault of a missing field below `parent`.
pub(super) fn missing(parent: &str, field: &str) -> Fault {
    let param = match parent {
        "" | "." => field.to_owned(),
        parent => format!("{parent}.{field}"),
    };
    let message = format!("Missing required parameter: '{param}'.");
    Fault::new("missing_required_parameter", param, message)
}

/// Refuses a value that is too long to be echoed. `param` is the path of the field.
pub(super) fn check_echo(value: &Value, param: &str) -> Result<(), Fault> {
    check_length(value, param, MAX_ECHO)
}

/// Refuses metadata of a response that is too long to be echoed.
pub(super) fn check_metadata(metadata: &Value) -> Result<(), Fault> {
    check_length(metadata, "response.metadata", MAX_METADATA)
}

fn check_length(value: &Value, param: &str, most: usize) -> Result<(), Fault> {
    let size = value.to_string().len();
    if size <= most {
        return Ok(());
    }
    let message =
        format!("The value is {size} bytes long, and at most {most} are echoed: shorten it.");
    Err(Fault::new("string_above_max_length", param, message))
}

/// The first 200 characters of a client's text, for an error message or an echo.
pub(super) fn clip(text: &str) -> String {
    text.chars().take(200).collect()
}
