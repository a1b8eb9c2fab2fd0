//! The log: lines on stderr, as text or JSON, with every known secret masked.
//!
//! What people say is theirs: transcripts, answers and tool arguments are logged at DEBUG and
//! TRACE only, never at INFO or above. Secrets are logged at no level: [`init`] is given all of
//! them, and what would print one prints [`MASK`] in its place, whichever crate wrote the line.

use crate::config::{LogConfig, LogFormat};
use secrecy::{ExposeSecret, SecretString};
use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::Arc;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Stands where a secret stood.
pub const MASK: &str = "<secret>";

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The level or directives cannot be read.
    #[error("log.level: {0}")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    /// There is a log already.
    #[error("cannot start the log: {0}")]
    Started(String),
}

/// Starts the log of this process.
///
/// # Errors
/// [`TelemetryError`] if the filter cannot be read or a log was started before.
pub fn init(log: &LogConfig, secrets: Secrets) -> Result<(), TelemetryError> {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter(&log.filter)?)
        .with_writer(Masked(secrets));
    let started = match log.format {
        LogFormat::Text => builder.with_ansi(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| TelemetryError::Started(error.to_string()))
}

/// The operator's filter. ONNX Runtime tells of every allocation at INFO: unless the filter names
/// it, only its warnings are shown.
fn filter(directives: &str) -> Result<EnvFilter, TelemetryError> {
    let quiet = if directives.split(',').any(is_of_ort) {
        ""
    } else {
        ",ort=warn"
    };
    Ok(EnvFilter::try_new(format!("{directives}{quiet}"))?)
}

/// Whether a directive, as in `ort::session[span]=debug`, is about ONNX Runtime's crate.
fn is_of_ort(directive: &str) -> bool {
    let target = directive.trim().split(['=', '[']).next();
    target.is_some_and(|target| target == "ort" || target.starts_with("ort::"))
}

/// What must never be printed.
#[derive(Debug, Clone, Default)]
pub struct Secrets(Arc<[SecretString]>);

impl Secrets {
    /// `text` with [`MASK`] in place of each secret, for logs, errors and events.
    pub fn mask<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.0.iter().fold(Cow::Borrowed(text), |text, secret| {
            if text.contains(secret.expose_secret()) {
                Cow::Owned(text.replace(secret.expose_secret(), MASK))
            } else {
                text
            }
        })
    }
}

impl FromIterator<SecretString> for Secrets {
    /// Empty ones are left out: they would be found everywhere.
    fn from_iter<I: IntoIterator<Item = SecretString>>(secrets: I) -> Self {
        let printable = |secret: &SecretString| !secret.expose_secret().is_empty();
        Self(secrets.into_iter().filter(printable).collect())
    }
}

/// Writes to stderr. The formatter hands over each event whole, so no secret is cut in two.
#[derive(Debug, Clone)]
struct Masked(Secrets);

impl Write for Masked {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        io::stderr()
            .lock()
            .write_all(self.0.mask(&text).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

impl<'a> MakeWriter<'a> for Masked {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_directive_for_onnx_runtime_makes_it_talk() {
        let quiet = |directives| filter(directives).unwrap().to_string().contains("ort=warn");
        assert!(quiet("info"));
        assert!(quiet("info,undertone::transport=debug"));
        assert!(!quiet("info,ort=debug"));
        assert!(!quiet("info,ort::logging=trace"));
    }

    #[test]
    fn secrets_are_masked_and_the_rest_is_left_alone() {
        let secrets: Secrets = ["canary-1", "", "canary-2"]
            .map(Into::into)
            .into_iter()
            .collect();
        assert_eq!(
            secrets.mask("a canary-1 and canary-2, canary-1"),
            "a <secret> and <secret>, <secret>"
        );
        assert!(matches!(secrets.mask("nothing here"), Cow::Borrowed(_)));
        assert!(!format!("{secrets:?}").contains("canary"));
    }
}
