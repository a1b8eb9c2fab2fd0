//! Tables of a declaration in their types, with errors that say how to mend them.

use serde::de::DeserializeOwned;

/// Reads a tool's `[settings]`.
///
/// # Errors
/// The key that is wrong, the problem and the fix.
pub(super) fn read<T: DeserializeOwned>(table: toml::Table) -> Result<T, (String, String, String)> {
    serde_path_to_error::deserialize(toml::Value::Table(table)).map_err(|error| {
        let key = match error.path().to_string() {
            path if path == "." => "settings".to_owned(),
            path => format!("settings.{path}"),
        };
        let (problem, fix) = mended(error.inner().message(), &key);
        (key, problem, fix)
    })
}

/// serde's message, and what to do: of an unknown field or choice, the one that was meant.
pub(super) fn mended(message: &str, key: &str) -> (String, String) {
    let mut message = message.lines().next().unwrap_or_default();
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let fix = match quoted.as_slice() {
        [typed, known @ ..] if !known.is_empty() && message.starts_with("unknown") => {
            // The known names are in the fix.
            message = message.split(", expected").next().unwrap_or(message);
            let likeness = |name: &&&str| strsim::jaro_winkler(typed, name);
            let best = known
                .iter()
                .max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
            let meant = best
                .filter(|best| likeness(best) > 0.8)
                .map(|best| format!("did you mean `{best}`? "))
                .unwrap_or_default();
            format!("{meant}known are: {}", known.join(", "))
        }
        [missing] if message.starts_with("missing") => format!("add a line `{missing} = ...`"),
        _ if key.is_empty() => "the files in tools/ show how it is written".into(),
        _ => "correct its value".into(),
    };
    (message.to_owned(), fix)
}
