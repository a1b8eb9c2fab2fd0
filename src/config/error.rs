//! Configuration errors: what is wrong, where, and how to fix it.

use crate::tools::declared::DeclarationError;
use std::fmt;
use std::path::PathBuf;

/// The origin of a setting's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingOrigin {
    /// Built in.
    Default,
    /// Written in the configuration file.
    File {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// An environment variable, by name.
    Env(String),
    /// An option of the command line, such as `--port`.
    Flag(String),
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Env(name) => write!(f, "environment variable {name}"),
            Self::Flag(name) => write!(f, "option {name}"),
        }
    }
}

/// The first error in the configuration.
///
/// Displayed as `ORIGIN: PROBLEM; FIX`: the problem names key and value, and the fix says what is
/// allowed. It never contains secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{problem}; {fix}", place(.origin))]
pub struct ConfigError {
    /// The origin of the offending value.
    pub origin: SettingOrigin,
    /// The key, the value, and what is wrong.
    pub problem: String,
    /// Says what is allowed, or what to do.
    pub fix: String,
}

/// An invalid tool declaration is reported like an invalid setting.
impl From<DeclarationError> for ConfigError {
    fn from(error: DeclarationError) -> Self {
        Self {
            origin: SettingOrigin::File {
                path: error.file,
                line: error.line,
            },
            problem: match error.key.as_str() {
                "" => error.problem,
                key => format!("{key}: {}", error.problem),
            },
            fix: error.fix,
        }
    }
}

fn place(origin: &SettingOrigin) -> String {
    match origin {
        SettingOrigin::Default => String::new(),
        found => format!("{found}: "),
    }
}

/// Suggests the entry of `known` that `typed` probably means, and lists all of them.
pub(super) fn suggest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let list = || known.join(", ");
    nearest(typed, &known).map_or_else(
        || format!("known are: {}", list()),
        |near| format!("did you mean `{near}`? Known are: {}", list()),
    )
}

/// The entry of `known` most similar to `typed`, if any is similar enough.
pub(super) fn nearest<'a>(typed: &str, known: &[&'a str]) -> Option<&'a str> {
    let likeness = |candidate: &&&str| strsim::jaro_winkler(typed, candidate);
    known
        .iter()
        .max_by(|a, b| likeness(a).total_cmp(&likeness(b)))
        .filter(|best| likeness(best) > 0.8)
        .copied()
}
