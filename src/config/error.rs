//! Configuration errors: what is wrong, where, and how to mend it.

use crate::tools::declared::DeclarationError;
use std::fmt;
use std::path::PathBuf;

/// Where a setting's value was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
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

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Env(name) => write!(f, "environment variable {name}"),
            Self::Flag(name) => write!(f, "option {name}"),
        }
    }
}

/// The first thing that is wrong with the configuration.
///
/// Reads as `PLACE: PROBLEM; FIX`, where the problem names key and value and the fix says what is
/// allowed. Secrets are never part of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{problem}; {fix}", place(.origin))]
pub struct ConfigError {
    /// Where the offending value stands.
    pub origin: Origin,
    /// Key, value, and what is wrong with them.
    pub problem: String,
    /// Says what is allowed, or what to do.
    pub fix: String,
}

/// A bad declaration stops the server like a bad setting.
impl From<DeclarationError> for ConfigError {
    fn from(error: DeclarationError) -> Self {
        Self {
            origin: Origin::File {
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

fn place(origin: &Origin) -> String {
    match origin {
        Origin::Default => String::new(),
        found => format!("{found}: "),
    }
}

/// Says which of `known` was probably meant by `typed`, or else lists all of them.
pub(super) fn suggest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let list = || known.join(", ");
    nearest(typed, &known).map_or_else(
        || format!("known are: {}", list()),
        |near| format!("did you mean `{near}`? Known are: {}", list()),
    )
}

/// The entry of `known` that is most like `typed`, if any is close enough to be meant.
pub(super) fn nearest<'a>(typed: &str, known: &[&'a str]) -> Option<&'a str> {
    let likeness = |candidate: &&&str| strsim::jaro_winkler(typed, candidate);
    known
        .iter()
        .max_by(|a, b| likeness(a).total_cmp(&likeness(b)))
        .filter(|best| likeness(best) > 0.8)
        .copied()
}
