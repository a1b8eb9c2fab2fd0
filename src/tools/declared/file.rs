//! A declaration as it is typed.

use super::{DeclarationError, RouterHints};
use crate::tools::mcp::Hint;
use crate::tools::settings::mended;
use crate::tools::{Effect, Eligibility, Equivalence, Fillers, Origin};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RawKind {
    Http,
    Subprocess,
    Mcp,
    Builtin,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTool {
    pub(super) name: String,
    pub(super) kind: RawKind,
    pub(super) description: Option<String>,
    pub(super) effect: Option<Effect>,
    pub(super) timeout_ms: Option<u64>,
    pub(super) reads: Option<Vec<String>>,
    pub(super) writes: Option<Vec<String>>,
    #[serde(default)]
    pub(super) ends_call: bool,
    pub(super) answer: Option<String>,
    pub(super) parameters: Option<Map<String, Value>>,
    #[serde(default)]
    pub(super) fixed: Map<String, Value>,
    pub(super) fixed_trust: Option<Origin>,
    #[serde(default)]
    pub(super) lookup: bool,
    pub(super) once_per: Option<String>,
    pub(super) once_for_s: Option<u64>,
    #[serde(default)]
    pub(super) speculation: RawSpeculation,
    #[serde(default)]
    pub(super) equivalence: BTreeMap<String, Vec<Equivalence>>,
    #[serde(default)]
    pub(super) fillers: RawFillers,
    #[serde(default)]
    pub(super) confirm: RawConfirm,
    #[serde(default)]
    pub(super) router: RouterHints,
    pub(super) http: Option<RawHttp>,
    pub(super) subprocess: Option<RawSubprocess>,
    pub(super) mcp: Option<RawMcp>,
    #[serde(default)]
    pub(super) settings: toml::Table,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawSpeculation {
    pub(super) allow: Eligibility,
    pub(super) network: bool,
    pub(super) ttl_ms: Option<u64>,
    pub(super) shareable: bool,
    pub(super) min_confidence: Option<f32>,
    pub(super) cost: f64,
    pub(super) assume: Option<bool>,
    pub(super) per_turn: Option<u32>,
    pub(super) per_day: Option<u32>,
    pub(super) cost_per_day: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RawFillers {
    short: Vec<String>,
    long: Vec<String>,
    again: Vec<String>,
    /// By language. Every unknown key is here, too.
    #[serde(flatten)]
    pub(super) by_language: toml::Table,
}

impl RawFillers {
    /// Those for languages that have none of their own.
    pub(super) fn any(&self) -> Fillers {
        Fillers {
            short: self.short.clone(),
            long: self.long.clone(),
            again: self.again.clone(),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawConfirm {
    pub(super) spoken: Option<bool>,
    pub(super) question: Option<String>,
    pub(super) expiry_s: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawHttp {
    pub(super) method: Option<String>,
    pub(super) url: String,
    #[serde(default)]
    pub(super) query: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, RawValue>,
    pub(super) json: Option<Value>,
    #[serde(default)]
    pub(super) response: BTreeMap<String, String>,
    pub(super) error: Option<String>,
    pub(super) limit_kib: Option<u64>,
    pub(super) idempotency_header: Option<String>,
    pub(super) warm_up_url: Option<String>,
    #[serde(default)]
    pub(super) allow_private: bool,
}

/// Text, or a secret from elsewhere.
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "write text, { env = \"VARIABLE\" } or { file = \"path\" }, these two with a prefix if wanted"
)]
pub(super) enum RawValue {
    Text(String),
    Secret(RawSecret),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSecret {
    pub(super) env: Option<String>,
    pub(super) file: Option<String>,
    #[serde(default)]
    pub(super) prefix: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSubprocess {
    pub(super) argv: Vec<String>,
    #[serde(default)]
    pub(super) stdin: bool,
    pub(super) output: Option<RawOutput>,
    #[serde(default)]
    pub(super) environment: BTreeMap<String, RawValue>,
    pub(super) folder: Option<String>,
    pub(super) network: Option<bool>,
    pub(super) limit_kib: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawMcp {
    pub(super) server: String,
    pub(super) tool: String,
    #[serde(default)]
    pub(super) disregard: Vec<Hint>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RawOutput {
    Json,
    Text,
}

/// The file at `path` in its types.
pub(super) fn parse(path: &Path, text: &str) -> Result<RawTool, DeclarationError> {
    let wrong = |key: String, error: &toml::de::Error| {
        let (problem, fix) = mended(error.message(), &key);
        let at = error.span().map_or(0, |span| span.start.min(text.len()));
        DeclarationError {
            file: path.into(),
            line: text.as_bytes()[..at]
                .iter()
                .filter(|byte| **byte == b'\n')
                .count()
                + 1,
            key,
            problem,
            fix,
        }
    };
    let document = toml::Deserializer::parse(text).map_err(|error| wrong(String::new(), &error))?;
    serde_path_to_error::deserialize(document).map_err(|error| {
        let key = error.path().to_string();
        let key = if key == "." { String::new() } else { key };
        wrong(key, error.inner())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_listed_once() {
        let error = parse(Path::new("t.toml"), "name = \"t\"\nkind = \"htp\"\n").unwrap_err();
        assert_eq!(error.problem, "unknown variant `htp`");
        assert!(
            error.fix.starts_with("did you mean `http`?"),
            "{}",
            error.fix
        );
        assert!(
            error.fix.contains("known are: http, subprocess"),
            "{}",
            error.fix
        );
        assert_eq!((error.line, &*error.key), (2, "kind"));
    }
}
