//! The turn detection that a client requests.

use super::fault::{Fault, check_echo, read};
use crate::conversation::{Eagerness, EndOfTurnRule};
use serde::Deserialize;
use serde_json::{Value, json};

/// Default silence that ends a turn, ms: OpenAI's `server_vad` default.
const SILENCE_MS: u64 = 500;

/// Longest `silence_duration_ms` that a client may set.
const MAX_SILENCE_MS: u64 = 10_000;

/// Longest `prefix_padding_ms` that a client may set.
const MAX_PADDING_MS: u64 = 5_000;

/// Allowed values of `idle_timeout_ms`, as OpenAI's.
const IDLE_TIMEOUT_MS: std::ops::RangeInclusive<u64> = 5_000..=30_000;

/// The turn detection that a client requests.
#[derive(Debug, Clone, PartialEq)]
pub struct Detection {
    pub(super) rule: EndOfTurnRule,
    pub(super) respond: bool,
    /// `None` leaves it to the operator.
    pub(super) interrupt: Option<bool>,
    pub(super) threshold: Option<f32>,
    pub(super) prefix_padding_ms: Option<u64>,
    pub(super) idle_timeout_ms: Option<u64>,
    pub(super) eagerness: Eagerness,
    /// The JSON echoed to the client, with null for settings left to the operator.
    pub(super) echo: Value,
}

#[derive(Deserialize)]
struct RawTurnDetection {
    #[serde(rename = "type")]
    kind: String,
    silence_duration_ms: Option<u64>,
    create_response: Option<bool>,
    interrupt_response: Option<bool>,
    threshold: Option<f64>,
    prefix_padding_ms: Option<u64>,
    idle_timeout_ms: Option<u64>,
    eagerness: Option<String>,
}

impl Detection {
    /// None: the client ends turns by hand.
    pub(super) fn by_hand() -> Self {
        Self {
            rule: EndOfTurnRule::Client,
            respond: false,
            interrupt: Some(false),
            echo: Value::Null,
            ..Self::usual()
        }
    }

    /// That of a client that has chosen none.
    pub(super) fn usual() -> Self {
        Self {
            rule: EndOfTurnRule::Semantic,
            respond: true,
            interrupt: None,
            threshold: None,
            prefix_padding_ms: None,
            idle_timeout_ms: None,
            eagerness: Eagerness::Auto,
            echo: semantic_vad(),
        }
    }
}

/// Reads a turn detection; `null`, and the type `none` of Azure's clients, leave the turns to the client. `param` is
/// the path of the field.
pub(super) fn read_detection(value: Value, param: &str) -> Result<Detection, Fault> {
    if value.is_null() || value["type"] == "none" {
        return Ok(Detection::by_hand());
    }
    check_echo(&value, param)?;
    let raw: RawTurnDetection = read(value.clone(), param)?;
    let (rule, defaults) = match raw.kind.as_str() {
        "server_vad" => (
            EndOfTurnRule::Silence {
                ms: silence(&raw, param)?,
            },
            server_vad(),
        ),
        "semantic_vad" => (EndOfTurnRule::Semantic, semantic_vad()),
        other => {
            let allowed = "'server_vad' and 'semantic_vad'";
            return Err(Fault::value(format!("{param}.type"), other, allowed));
        }
    };
    Ok(Detection {
        rule,
        respond: raw.create_response.unwrap_or(true),
        interrupt: raw.interrupt_response,
        threshold: raw.threshold(param)?,
        prefix_padding_ms: raw.prefix_padding(param)?,
        idle_timeout_ms: raw.idle_timeout(param)?,
        eagerness: raw.eagerness(param)?,
        echo: with_defaults(value, defaults),
    })
}

/// The defaults of `server_vad`. [`Session`](super::session_object::Session) fills in `interrupt_response` and `threshold` from the
/// operator's configuration.
pub(super) fn server_vad() -> Value {
    json!({
        "type": "server_vad", "threshold": null, "prefix_padding_ms": 300,
        "silence_duration_ms": SILENCE_MS, "idle_timeout_ms": null,
        "create_response": true, "interrupt_response": null,
    })
}

/// The defaults of `semantic_vad`. [`Session`](super::session_object::Session) fills in `interrupt_response` likewise.
pub(super) fn semantic_vad() -> Value {
    json!({
        "type": "semantic_vad", "eagerness": "auto",
        "create_response": true, "interrupt_response": null,
    })
}

/// Replaces fields that are omitted or `null` with their defaults: clients act on the echoed
/// values.
pub(super) fn with_defaults(written: Value, mut defaults: Value) -> Value {
    let fields = written.as_object().into_iter().flatten();
    for (name, value) in fields.filter(|(_, value)| !value.is_null()) {
        defaults[name] = value.clone();
    }
    defaults
}

/// A field that belongs to the other kind of turn detection has no effect.
impl RawTurnDetection {
    fn is_server_vad(&self) -> bool {
        self.kind == "server_vad"
    }

    fn threshold(&self, param: &str) -> Result<Option<f32>, Fault> {
        match self.threshold.filter(|_| self.is_server_vad()) {
            Some(threshold) if !(0.0..=1.0).contains(&threshold) => {
                let param = format!("{param}.threshold");
                Err(Fault::value(param, &threshold.to_string(), "0 to 1"))
            }
            threshold => Ok(threshold.map(|threshold| threshold as f32)),
        }
    }

    fn prefix_padding(&self, param: &str) -> Result<Option<u64>, Fault> {
        match self.prefix_padding_ms.filter(|_| self.is_server_vad()) {
            Some(ms) if ms > MAX_PADDING_MS => {
                let param = format!("{param}.prefix_padding_ms");
                Err(Fault::value(param, &ms.to_string(), "0 to 5000"))
            }
            padding => Ok(padding),
        }
    }

    fn idle_timeout(&self, param: &str) -> Result<Option<u64>, Fault> {
        match self.idle_timeout_ms.filter(|_| self.is_server_vad()) {
            Some(ms) if !IDLE_TIMEOUT_MS.contains(&ms) => {
                let param = format!("{param}.idle_timeout_ms");
                Err(Fault::value(param, &ms.to_string(), "5000 to 30000"))
            }
            timeout => Ok(timeout),
        }
    }

    fn eagerness(&self, param: &str) -> Result<Eagerness, Fault> {
        match self.eagerness.as_deref().filter(|_| !self.is_server_vad()) {
            None | Some("auto" | "medium") => Ok(Eagerness::Auto),
            Some("low") => Ok(Eagerness::Low),
            Some("high") => Ok(Eagerness::High),
            Some(other) => {
                let allowed = "'low', 'medium', 'high' and 'auto'";
                Err(Fault::value(format!("{param}.eagerness"), other, allowed))
            }
        }
    }
}

fn silence(raw: &RawTurnDetection, param: &str) -> Result<u64, Fault> {
    let ms = raw.silence_duration_ms.unwrap_or(SILENCE_MS);
    if ms > MAX_SILENCE_MS {
        let param = format!("{param}.silence_duration_ms");
        return Err(Fault::value(param, &ms.to_string(), "0 to 10000"));
    }
    Ok(ms)
}
