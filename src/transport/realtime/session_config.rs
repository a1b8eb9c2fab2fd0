//! `session.update`: the settings that a Realtime client may change, and the session that is echoed
//! back.

use super::codec::{Format, RATE};
use super::early_tools;
use super::fault::{Fault, read};
use super::fields::{Class, SESSION};
use super::voices::{DEFAULT_VOICE, OfferedVoices};
use crate::audio::g711::Law;
use crate::conversation::{
    Eagerness, EarlyTool, EndOfTurnRule, MaxTokens, Settings, TurnDetection,
};
use crate::language::is_tag;
use crate::llm::ToolChoice;
use crate::tools::ToolSpec;
use crate::tts::{Speaker, Speed};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};
use std::collections::HashSet;

/// Default silence that ends a turn, ms: OpenAI's `server_vad` default.
const SILENCE_MS: u64 = 500;

/// Longest `silence_duration_ms` that a client may set.
const MAX_SILENCE_MS: u64 = 10_000;

/// Longest `prefix_padding_ms` that a client may set.
const MAX_PADDING_MS: u64 = 5_000;

/// Allowed values of `idle_timeout_ms`, as OpenAI's.
const IDLE_TIMEOUT_MS: std::ops::RangeInclusive<u64> = 5_000..=30_000;

/// The recogniser's default name: OpenAI's name for Whisper, because the types of older clients
/// list no other.
const RECOGNISER: &str = "whisper-1";

/// Allowed values of `speed`: OpenAI's bounds.
const SPEEDS: std::ops::RangeInclusive<f64> = 0.25..=1.5;

/// The field of the voice's speed.
const SPEED: &str = "session.audio.output.speed";

/// The field that names the voice.
const VOICE: &str = "session.audio.output.voice";

/// The most tools that a client may declare.
const MAX_TOOLS: usize = 128;

/// The changes in an update; `None` leaves a setting unchanged.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SessionUpdate {
    /// Instructions for the model.
    pub instructions: Option<String>,
    /// Answer in text instead of audio.
    pub text_only: Option<bool>,
    /// Turn detection.
    pub turn_detection: Option<Detection>,
    /// The transcription settings, verbatim; `null` turns the transcription events off.
    pub transcription: Option<Value>,
    /// The name of a voice.
    pub voice: Option<String>,
    /// How fast it speaks.
    pub speed: Option<Speed>,
    /// The client's own tools, and their JSON verbatim.
    pub tools: Option<(Vec<ToolSpec>, Value)>,
    /// Those of `tools` that may run early.
    pub early: Vec<EarlyTool>,
    /// The tool choice, and its JSON verbatim.
    pub tool_choice: Option<(ToolChoice, Value)>,
    /// The token limit of an answer.
    pub max_tokens: Option<MaxTokens>,
    /// The format of the client's audio.
    pub input: Option<Format>,
    /// The format of the agent's audio.
    pub output: Option<Format>,
    /// Whether the session only transcribes and never answers.
    pub transcribe_only: Option<bool>,
    /// Whether to send vendor events.
    pub vendor_events: Option<bool>,
    /// Whether tools may run speculatively.
    pub speculation: Option<bool>,
    /// Fields that are echoed without effect: their path in the session and the client's value.
    pub echoed: Vec<(&'static str, Value)>,
}

/// The turn detection that a client requests.
#[derive(Debug, Clone, PartialEq)]
pub struct Detection {
    rule: EndOfTurnRule,
    respond: bool,
    /// `None` leaves it to the operator.
    interrupt: Option<bool>,
    threshold: Option<f32>,
    prefix_padding_ms: Option<u64>,
    idle_timeout_ms: Option<u64>,
    eagerness: Eagerness,
    /// The JSON echoed to the client, with null for settings left to the operator.
    echo: Value,
}

#[derive(Deserialize)]
struct RawSession {
    #[serde(rename = "type")]
    kind: Option<String>,
    instructions: Option<String>,
    #[serde(alias = "modalities")]
    output_modalities: Option<Vec<String>>,
    audio: Option<RawAudio>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    #[serde(alias = "max_response_output_tokens")]
    max_output_tokens: Option<Value>,
    undertone: Option<RawVendor>,
    #[serde(default, deserialize_with = "present")]
    turn_detection: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    input_audio_transcription: Option<Value>,
    input_audio_format: Option<Value>,
    output_audio_format: Option<Value>,
    voice: Option<Value>,
    speed: Option<f64>,
}

#[derive(Deserialize, Default)]
struct RawAudio {
    input: Option<RawInput>,
    output: Option<RawOutput>,
}

#[derive(Deserialize, Default)]
struct RawInput {
    format: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    turn_detection: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    transcription: Option<Value>,
}

#[derive(Deserialize, Default)]
struct RawOutput {
    format: Option<Value>,
    voice: Option<Value>,
    speed: Option<f64>,
}

#[derive(Deserialize, Default)]
struct RawVendor {
    events: Option<bool>,
    speculation: Option<bool>,
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

#[derive(Deserialize)]
struct RawTool {
    #[serde(rename = "type")]
    kind: String,
    name: String,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    parameters: Option<Value>,
}

/// Deserializes a field that is present, even as `null`.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// Parses the `session` of an update, in the GA shape or in the beta's flat one.
pub(super) fn parse(session: Value) -> Result<SessionUpdate, Fault> {
    let echoed = echoed(&session);
    let raw: RawSession = read(session, "session")?;
    let transcribe_only = match raw.kind.as_deref() {
        None => None,
        Some("realtime") => Some(false),
        Some("transcription") => Some(true),
        Some(other) => {
            let allowed = "'realtime' and 'transcription'";
            return Err(Fault::value("session.type", other, allowed));
        }
    };
    let audio = raw.audio.unwrap_or_default();
    let (input, output) = (
        audio.input.unwrap_or_default(),
        audio.output.unwrap_or_default(),
    );
    let flat_input = format(raw.input_audio_format, "session.input_audio_format")?;
    let flat_output = format(raw.output_audio_format, "session.output_audio_format")?;
    let input_format = format(input.format, "session.audio.input.format")?.or(flat_input);
    let output_format = format(output.format, "session.audio.output.format")?.or(flat_output);
    let turn_detection = match (input.turn_detection, raw.turn_detection) {
        (Some(value), _) => Some(turn_detection(value, "session.audio.input.turn_detection")?),
        (None, Some(value)) => Some(turn_detection(value, "session.turn_detection")?),
        (None, None) => None,
    };
    let vendor = raw.undertone.unwrap_or_default();
    Ok(SessionUpdate {
        instructions: raw.instructions,
        text_only: raw
            .output_modalities
            .map(|names| text_only(&names, "session.output_modalities"))
            .transpose()?,
        turn_detection,
        transcription: input.transcription.or(raw.input_audio_transcription),
        voice: output.voice.or(raw.voice).map(voice).transpose()?,
        speed: output.speed.or(raw.speed).map(speed).transpose()?,
        early: early_tools::parse(raw.tools.iter().flatten(), "session.tools")?,
        tools: raw
            .tools
            .map(|values| with_examples(tools(values, "session.tools")?))
            .transpose()?,
        tool_choice: raw
            .tool_choice
            .map(|value| Ok((tool_choice(&value, "session.tool_choice")?, value)))
            .transpose()?,
        max_tokens: raw
            .max_output_tokens
            .map(|value| max_tokens(&value, "session.max_output_tokens"))
            .transpose()?,
        input: input_format,
        output: output_format,
        transcribe_only,
        vendor_events: vendor.events,
        speculation: vendor.speculation,
        echoed,
    })
}

/// The fields that the session echoes unchanged. Turn detection and transcription are echoed whole.
/// `null` means the same as omitting a field, unless it turns something off.
fn echoed(session: &Value) -> Vec<(&'static str, Value)> {
    let beta = [("input_audio_noise_reduction", "audio.input.noise_reduction")];
    let ga = SESSION.iter().filter(|field| {
        let whole = ["audio.input.transcription.", "audio.input.turn_detection."];
        let apart = !whole.iter().any(|head| field.path.starts_with(head));
        field.class == Class::Echoed && apart
    });
    beta.into_iter()
        .chain(ga.map(|field| (field.path, field.path)))
        .filter_map(|(from, to)| {
            let value = session.pointer(&format!("/{}", from.replace('.', "/")))?;
            let may_be_null = ["audio.input.noise_reduction", "tracing"].contains(&to);
            (may_be_null || !value.is_null()).then(|| (to, value.clone()))
        })
        .collect()
}

/// Whether modalities mean text only. `param` is the path of the field.
pub(super) fn text_only(names: &[String], param: &str) -> Result<bool, Fault> {
    let known = |name: &String| name == "audio" || name == "text";
    match names.iter().find(|name| !known(name)) {
        Some(other) => Err(Fault::value(param, other, "'audio' and 'text'")),
        None if names.is_empty() => Err(Fault::value(param, "[]", "'audio' and 'text'")),
        None => Ok(!names.iter().any(|name| name == "audio")),
    }
}

/// Parses an audio format, by its GA or beta name.
pub(super) fn format(format: Option<Value>, param: &str) -> Result<Option<Format>, Fault> {
    let Some(format) = format.filter(|format| !format.is_null()) else {
        return Ok(None);
    };
    let (kind, path) = match &format {
        Value::Object(fields) => (fields.get("type"), format!("{param}.type")),
        other => (Some(other), param.to_owned()),
    };
    let read = match kind.filter(|kind| !kind.is_null()) {
        None => Format::Pcm,
        Some(kind) => match kind.as_str() {
            Some("audio/pcm" | "pcm16") => Format::Pcm,
            Some("audio/pcmu" | "g711_ulaw") => Format::G711(Law::Mu),
            Some("audio/pcma" | "g711_alaw") => Format::G711(Law::A),
            other => {
                let written = other.map_or_else(|| kind.to_string(), str::to_owned);
                let allowed = "'audio/pcm', 'audio/pcmu' and 'audio/pcma'";
                return Err(Fault::value(path, &written, allowed));
            }
        },
    };
    match format.get("rate").filter(|_| read == Format::Pcm) {
        None | Some(Value::Null) => Ok(Some(read)),
        Some(rate) if rate.as_f64() == Some(f64::from(RATE)) => Ok(Some(read)),
        Some(rate) => Err(Fault::value(
            format!("{param}.rate"),
            &rate.to_string(),
            "24000",
        )),
    }
}

fn turn_detection(value: Value, param: &str) -> Result<Detection, Fault> {
    if value.is_null() {
        return Ok(Detection {
            rule: EndOfTurnRule::Client,
            respond: false,
            interrupt: Some(false),
            threshold: None,
            prefix_padding_ms: None,
            idle_timeout_ms: None,
            eagerness: Eagerness::Auto,
            echo: value,
        });
    }
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

/// The defaults of `server_vad`. [`Session`] fills in `interrupt_response` and `threshold` from the
/// operator's configuration.
fn server_vad() -> Value {
    json!({
        "type": "server_vad", "threshold": null, "prefix_padding_ms": 300,
        "silence_duration_ms": SILENCE_MS, "idle_timeout_ms": null,
        "create_response": true, "interrupt_response": null,
    })
}

/// The defaults of `semantic_vad`. [`Session`] fills in `interrupt_response` likewise.
fn semantic_vad() -> Value {
    json!({
        "type": "semantic_vad", "eagerness": "auto",
        "create_response": true, "interrupt_response": null,
    })
}

/// Replaces fields that are omitted or `null` with their defaults: clients act on the echoed
/// values.
fn with_defaults(written: Value, mut defaults: Value) -> Value {
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

fn voice(value: Value) -> Result<String, Fault> {
    let name = value.as_str().or_else(|| value.get("id")?.as_str());
    name.map(str::to_owned).ok_or_else(|| {
        Fault::new(
            "invalid_type",
            VOICE,
            "A voice must be a name, or an object with an id.",
        )
    })
}

/// OpenAI's bounds for sessions are narrower than those of the voices.
fn speed(factor: f64) -> Result<Speed, Fault> {
    let speed = Speed::of(factor).filter(|_| SPEEDS.contains(&factor));
    speed.ok_or_else(|| Fault::value(SPEED, &factor.to_string(), "0.25 to 1.5"))
}

/// Parses tools. `param` is the path of the field.
pub(super) fn tools(values: Vec<Value>, param: &str) -> Result<(Vec<ToolSpec>, Value), Fault> {
    if values.len() > MAX_TOOLS {
        let message = format!("At most {MAX_TOOLS} tools may be declared.");
        return Err(Fault::new("array_above_max_length", param, message));
    }
    let specs = values
        .iter()
        .enumerate()
        .map(|(index, value)| tool(value, &format!("{param}[{index}]")))
        .collect::<Result<Vec<_>, _>>()?;
    check_unique(&specs, param)?;
    Ok((specs, Value::Array(values)))
}

/// Adds the examples that the session's tools have, which those of a single response do not.
fn with_examples(
    (mut specs, values): (Vec<ToolSpec>, Value),
) -> Result<(Vec<ToolSpec>, Value), Fault> {
    let declared = values.as_array().into_iter().flatten();
    for (index, (spec, value)) in specs.iter_mut().zip(declared).enumerate() {
        spec.examples = early_tools::examples(value, &format!("session.tools[{index}]"))?;
    }
    Ok((specs, values))
}

/// Refuses two tools of the same name, since calls to them could not be told apart.
fn check_unique(specs: &[ToolSpec], param: &str) -> Result<(), Fault> {
    let mut seen = HashSet::new();
    let again = specs.iter().position(|spec| !seen.insert(&*spec.name));
    let Some(index) = again else { return Ok(()) };
    let message = format!("There are two tools named '{}'.", specs[index].name);
    let param = format!("{param}[{index}].name");
    Err(Fault::new("invalid_value", param, message))
}

fn tool(value: &Value, param: &str) -> Result<ToolSpec, Fault> {
    let raw: RawTool = read(value.clone(), param)?;
    if raw.kind != "function" {
        return Err(Fault::value(
            format!("{param}.type"),
            &raw.kind,
            "'function'",
        ));
    }
    if !is_tool_name(&raw.name) {
        let message = "A tool's name is a letter or _, then letters, digits, _ and -; at most 64.";
        return Err(Fault::new(
            "invalid_value",
            format!("{param}.name"),
            message,
        ));
    }
    Ok(ToolSpec {
        examples: Vec::new(),
        name: raw.name,
        description: raw.description.unwrap_or_default(),
        parameters: raw
            .parameters
            .filter(|schema| !schema.is_null())
            .unwrap_or_else(|| json!({"type": "object", "properties": {}})),
    })
}

fn is_tool_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    name.len() <= 64
        && bytes
            .next()
            .is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

/// Parses the tool choice. `param` is the path of the field.
pub(super) fn tool_choice(value: &Value, param: &str) -> Result<ToolChoice, Fault> {
    let function = || {
        let named = value.get("type").is_some_and(|kind| kind == "function");
        value.get("name").filter(|_| named)?.as_str()
    };
    match (value.as_str(), function()) {
        (Some("auto"), _) => Ok(ToolChoice::Auto),
        (Some("none"), _) => Ok(ToolChoice::None),
        (Some("required"), _) => Ok(ToolChoice::Required),
        (_, Some(name)) => Ok(ToolChoice::Function(name.to_owned())),
        _ => {
            let allowed = "'auto', 'none', 'required' and a function by its name";
            Err(Fault::value(param, &value.to_string(), allowed))
        }
    }
}

/// Parses the token limit of an answer. `param` is the path of the field.
pub(super) fn max_tokens(value: &Value, param: &str) -> Result<MaxTokens, Fault> {
    let number = value.as_u64().filter(|tokens| *tokens > 0);
    let number = number.map(|tokens| u32::try_from(tokens).unwrap_or(u32::MAX));
    match (value.as_str(), number) {
        (Some("inf"), _) => Ok(MaxTokens::Unlimited),
        (_, Some(tokens)) => Ok(MaxTokens::At(tokens)),
        _ => {
            let allowed = "'inf' and whole numbers from 1 on";
            Err(Fault::value(param, &value.to_string(), allowed))
        }
    }
}

pub(super) fn tokens_json(most: MaxTokens) -> Value {
    most.number().map_or("inf".into(), Value::from)
}

/// The session's current settings: the JSON echoed to the client, and the values the dialect uses.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) text_only: bool,
    pub(super) transcripts: bool,
    pub(super) vendor_events: bool,
    pub(super) by_hand: bool,
    /// Whether the session only transcribes and never answers.
    pub(super) transcribes: bool,
    pub(super) input: Format,
    pub(super) output: Format,
    pub(super) max_tokens: MaxTokens,
    /// The voices that the client may choose.
    pub(super) voices: OfferedVoices,
    /// The voice and the speed that it has chosen; `None`: the agent's own.
    speaker: Speaker,
    /// The agent was heard.
    pub(super) has_spoken: bool,
    /// The operator's default for `interrupt_response`.
    interrupt: bool,
    /// The operator's default for `threshold`, the speech probability above which the VAD reports
    /// speech.
    threshold: f64,
    echo: Map<String, Value>,
}

impl Session {
    pub(super) fn new(id: &str, model: &str, vendor_events: bool) -> Self {
        let format = Format::Pcm.to_json();
        let echo = json!({
            "type": "realtime",
            "object": "realtime.session",
            "id": id,
            "model": model,
            "output_modalities": ["audio"],
            "instructions": "",
            "tools": [],
            "tool_choice": "auto",
            "max_output_tokens": "inf",
            "tracing": null,
            "truncation": "auto",
            "prompt": null,
            "include": null,
            "audio": {
                "input": {
                    "format": format,
                    "transcription": {"model": RECOGNISER},
                    "noise_reduction": null,
                    "turn_detection": with_defaults(
                        json!({"interrupt_response": true}),
                        semantic_vad(),
                    ),
                },
                "output": {"format": format, "voice": DEFAULT_VOICE, "speed": 1.0},
            },
        });
        let echo = match echo {
            Value::Object(echo) => echo,
            _ => Map::new(),
        };
        Self {
            text_only: false,
            transcripts: true,
            vendor_events,
            by_hand: false,
            transcribes: false,
            input: Format::Pcm,
            output: Format::Pcm,
            max_tokens: MaxTokens::Unlimited,
            voices: OfferedVoices::default(),
            speaker: Speaker::default(),
            has_spoken: false,
            interrupt: true,
            threshold: 0.5,
            echo,
        }
    }

    /// Sets the model's name, which is the agent's if the client has one.
    pub(super) fn set_model(&mut self, name: &str) {
        self.echo.insert("model".into(), name.into());
    }

    /// Sets the operator's defaults for `interrupt_response` and `threshold`.
    pub(super) fn turns(mut self, interrupt: bool, threshold: f32) -> Self {
        self.interrupt = interrupt;
        // Via decimal text: a direct conversion to f64 would echo 0.6 as 0.6000000238418579.
        self.threshold = threshold.to_string().parse().unwrap_or(self.threshold);
        let detection = self
            .echo
            .get_mut("audio")
            .and_then(|audio| audio["input"].get_mut("turn_detection"));
        if let Some(detection) = detection {
            detection["interrupt_response"] = interrupt.into();
        }
        self
    }

    /// The session's JSON, as echoed to the client.
    pub(super) fn to_json(&self) -> Value {
        if !self.transcribes {
            return Value::Object(self.echo.clone());
        }
        let field = |name: &str| self.echo.get(name).cloned().unwrap_or_default();
        json!({
            "type": "transcription",
            "object": "realtime.transcription_session",
            "id": field("id"),
            "include": field("include"),
            "audio": {"input": field("audio")["input"]},
        })
    }

    /// The `audio` object of a response: format and voice of the agent's audio.
    pub(super) fn output(&self, format: Format) -> Value {
        let output = self.echo.get("audio").and_then(|audio| audio.get("output"));
        json!({"output": {
            "format": format.to_json(),
            "voice": output.and_then(|output| output.get("voice")),
        }})
    }

    /// Refuses a voice that does not exist, another one than that in which the agent was heard, and another speed
    /// while the agent is answering.
    pub(super) fn check_voice(
        &self,
        update: &SessionUpdate,
        is_answering: bool,
    ) -> Result<(), Fault> {
        let changes = |speed: Speed| self.speaker.speed() != speed;
        if is_answering && update.speed.is_some_and(changes) {
            let message = "The speed can only be changed between responses.";
            return Err(Fault::new("cannot_update_speed", SPEED, message));
        }
        let Some(name) = &update.voice else {
            return Ok(());
        };
        if self.has_spoken && self.voice_named(name)? != self.speaker.voice {
            let message = "The voice cannot be changed once the agent was heard.";
            return Err(Fault::new("cannot_update_voice", VOICE, message));
        }
        self.voice_named(name).map(drop)
    }

    /// The voice that a name means. The one that the session has may always be named: it may come from a client
    /// secret, whose issuer may have chosen from more.
    fn voice_named(&self, name: &str) -> Result<Option<String>, Fault> {
        match &self.speaker.voice {
            Some(own) if own == name => Ok(Some(own.clone())),
            _ => self.voices.choice(name, VOICE),
        }
    }

    /// Applies an update. Returns the settings to pass to the conversation.
    pub(super) fn apply(&mut self, update: SessionUpdate) -> Settings {
        let mut settings = Settings::default();
        if let Some(instructions) = update.instructions {
            self.echo
                .insert("instructions".into(), instructions.clone().into());
            settings.instructions = Some(instructions);
        }
        if let Some(text_only) = update.text_only {
            self.text_only = text_only;
            self.echo
                .insert("output_modalities".into(), modalities(text_only));
        }
        if let Some(detection) = update.turn_detection {
            self.by_hand = detection.rule == EndOfTurnRule::Client;
            let interrupt = detection.interrupt.unwrap_or(self.interrupt);
            let mut echo = detection.echo;
            if echo.is_object() {
                echo["interrupt_response"] = interrupt.into();
            }
            if let Some(threshold @ Value::Null) = echo.get_mut("threshold") {
                *threshold = json!(self.threshold);
            }
            self.set_audio("input", "turn_detection", echo);
            settings.turn_detection = Some(TurnDetection {
                rule: detection.rule,
                respond: detection.respond,
                interrupt,
                threshold: detection.threshold,
                prefix_padding_ms: detection.prefix_padding_ms,
                idle_timeout_ms: detection.idle_timeout_ms,
                eagerness: detection.eagerness,
            });
        }
        if let Some(transcription) = update.transcription {
            self.transcripts = !transcription.is_null();
            let language = transcription["language"].as_str();
            settings.language = language.filter(|tag| is_tag(tag)).map(str::to_owned);
            self.set_audio("input", "transcription", transcription);
        }
        let mut speaker = self.speaker.clone();
        if let Some(name) = update.voice {
            speaker.voice = self.voice_named(&name).unwrap_or_default();
            self.set_audio("output", "voice", name.into());
        }
        if let Some(speed) = update.speed {
            speaker.speed = Some(speed);
            self.set_audio("output", "speed", speed.factor().into());
        }
        if speaker != self.speaker {
            self.speaker = speaker.clone();
            settings.speaker = Some(speaker);
        }
        if let Some(vendor_events) = update.vendor_events {
            self.vendor_events = vendor_events;
            self.set_vendor("events", vendor_events);
        }
        if let Some(speculation) = update.speculation {
            settings.speculation = Some(speculation);
            self.set_vendor("speculation", speculation);
        }
        if let Some(most) = update.max_tokens {
            self.max_tokens = most;
            settings.max_tokens = Some(most);
            self.echo
                .insert("max_output_tokens".into(), tokens_json(most));
        }
        if let Some(format) = update.input {
            self.input = format;
            self.set_audio("input", "format", format.to_json());
        }
        if let Some(format) = update.output {
            self.output = format;
            self.set_audio("output", "format", format.to_json());
        }
        if update.transcribe_only == Some(true) {
            self.transcribes = true;
            settings.transcribe_only = true;
        }
        for (path, value) in update.echoed {
            self.set(path, value);
        }
        if let Some((tools, written)) = update.tools {
            self.echo.insert("tools".into(), written);
            settings.tools = Some(tools);
            settings.early = update.early;
        }
        if let Some((choice, written)) = update.tool_choice {
            self.echo.insert("tool_choice".into(), written);
            settings.tool_choice = Some(choice);
        }
        settings
    }

    /// Sets the echoed value at a path whose parent objects exist.
    fn set(&mut self, path: &str, value: Value) {
        let mut steps = path.split('.');
        let last = steps.next_back().unwrap_or_default();
        let mut at = &mut self.echo;
        for step in steps {
            let Some(Value::Object(inner)) = at.get_mut(step) else {
                return;
            };
            at = inner;
        }
        at.insert(last.to_owned(), value);
    }

    fn set_vendor(&mut self, name: &str, value: bool) {
        let vendor = self.echo.entry("undertone").or_insert_with(|| json!({}));
        vendor[name] = value.into();
    }

    fn set_audio(&mut self, side: &str, field: &str, value: Value) {
        if let Some(fields) = self
            .echo
            .get_mut("audio")
            .and_then(|audio| audio.get_mut(side))
            .and_then(Value::as_object_mut)
        {
            fields.insert(field.to_owned(), value);
        }
    }
}

/// The modalities' JSON in the protocol.
pub(super) fn modalities(text_only: bool) -> Value {
    json!([if text_only { "text" } else { "audio" }])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(session: Value) -> Option<String> {
        parse(session).err().and_then(|fault| fault.param)
    }

    #[test]
    fn faults_name_the_path() {
        let cases = [
            (json!({"type": "dance"}), "session.type"),
            (json!({"instructions": 5}), "session.instructions"),
            (
                json!({"audio": {"input": {"format": {"type": "audio/opus"}}}}),
                "session.audio.input.format.type",
            ),
            (
                json!({"audio": {"output": {"format": {"type": "audio/pcm", "rate": 16000}}}}),
                "session.audio.output.format.rate",
            ),
            (
                json!({"audio": {"input": {"turn_detection": {"type": "guess"}}}}),
                "session.audio.input.turn_detection.type",
            ),
            (
                json!({"audio": {"input": {"turn_detection": {}}}}),
                "session.audio.input.turn_detection.type",
            ),
            (
                json!({"input_audio_format": "mp3"}),
                "session.input_audio_format",
            ),
            (
                json!({"input_audio_format": 5}),
                "session.input_audio_format",
            ),
            (
                json!({"audio": {"input": {"format": {"type": 7}}}}),
                "session.audio.input.format.type",
            ),
            (
                json!({"audio": {"output": {"format": ["audio/pcmu"]}}}),
                "session.audio.output.format",
            ),
            (
                json!({"tools": [{"type": "mcp", "name": "x"}]}),
                "session.tools[0].type",
            ),
            (
                json!({"tools": [{"type": "function", "name": "no spaces"}]}),
                "session.tools[0].name",
            ),
            (
                json!({"tools": [{"type": "function"}]}),
                "session.tools[0].name",
            ),
            (
                json!({"tools": [
                    {"type": "function", "name": "a"},
                    {"type": "function", "name": "b"},
                    {"type": "function", "name": "a"},
                ]}),
                "session.tools[2].name",
            ),
            (json!({"tool_choice": "perhaps"}), "session.tool_choice"),
            (
                json!({"tool_choice": {"type": "function"}}),
                "session.tool_choice",
            ),
            (json!({"max_output_tokens": 0}), "session.max_output_tokens"),
            (
                json!({"max_output_tokens": "all"}),
                "session.max_output_tokens",
            ),
            (
                json!({"turn_detection": {"type": "server_vad", "threshold": 1.5}}),
                "session.turn_detection.threshold",
            ),
            (
                json!({"turn_detection": {"type": "server_vad", "prefix_padding_ms": 60_000}}),
                "session.turn_detection.prefix_padding_ms",
            ),
            (
                json!({"turn_detection": {"type": "server_vad", "idle_timeout_ms": 1}}),
                "session.turn_detection.idle_timeout_ms",
            ),
            (
                json!({"turn_detection": {"type": "semantic_vad", "eagerness": "very"}}),
                "session.turn_detection.eagerness",
            ),
            (
                json!({"output_modalities": []}),
                "session.output_modalities",
            ),
        ];
        for (session, param) in cases {
            assert_eq!(fault(session.clone()).as_deref(), Some(param), "{session}");
        }
    }

    #[test]
    fn null_turn_detection_differs_from_an_omitted_one() {
        let update = |session| parse(session).expect("valid").turn_detection;
        assert_eq!(update(json!({"audio": {"input": {}}})), None);
        let by_hand = update(json!({"audio": {"input": {"turn_detection": null}}}));
        assert_eq!(
            by_hand.map(|detection| detection.rule),
            Some(EndOfTurnRule::Client)
        );
        let flat =
            update(json!({"turn_detection": {"type": "server_vad", "silence_duration_ms": 700}}));
        assert_eq!(
            flat.map(|detection| detection.rule),
            Some(EndOfTurnRule::Silence { ms: 700 })
        );
    }

    #[test]
    fn the_operator_decides_on_interruptions_unless_the_client_does() {
        let mut session = Session::new("sess_1", "m", false).turns(false, 0.6);
        let echoed = &session.to_json()["audio"]["input"]["turn_detection"];
        assert_eq!(echoed["interrupt_response"], false);
        let mut interrupt = |detection: Value| {
            let update = json!({"audio": {"input": {"turn_detection": detection}}});
            let settings = session.apply(parse(update).expect("valid"));
            settings.turn_detection.expect("changed").interrupt
        };
        assert!(!interrupt(json!({"type": "server_vad"})));
        assert!(interrupt(
            json!({"type": "server_vad", "interrupt_response": true})
        ));
        let mut session = Session::new("sess_1", "m", false);
        let update = parse(json!({"turn_detection": {"type": "semantic_vad"}})).expect("valid");
        let settings = session.apply(update);
        assert!(settings.turn_detection.expect("changed").interrupt);
    }

    #[test]
    fn turn_detection_is_echoed_with_all_its_fields() {
        let mut session = Session::new("sess_1", "m", false).turns(false, 0.6);
        let mut echoed = |detection: Value| {
            let update = json!({"audio": {"input": {"turn_detection": detection}}});
            session.apply(parse(update).expect("valid"));
            session.to_json()["audio"]["input"]["turn_detection"].clone()
        };
        assert_eq!(
            echoed(json!({"type": "server_vad", "threshold": 0.7, "prefix_padding_ms": null})),
            json!({
                "type": "server_vad", "threshold": 0.7, "prefix_padding_ms": 300,
                "silence_duration_ms": 500, "idle_timeout_ms": null,
                "create_response": true, "interrupt_response": false,
            })
        );
        assert_eq!(
            echoed(json!({"type": "semantic_vad", "interrupt_response": true})),
            json!({
                "type": "semantic_vad", "eagerness": "auto",
                "create_response": true, "interrupt_response": true,
            })
        );
        let left_out = echoed(json!({"type": "server_vad"}));
        assert_eq!(left_out["threshold"], 0.6, "the operator's");
        assert_eq!(echoed(Value::Null), Value::Null);
    }

    #[test]
    fn null_is_echoed_only_where_it_turns_something_off() {
        let mut session = Session::new("sess_1", "m", false);
        let mut echoed = |update: Value| {
            session.apply(parse(update).expect("valid"));
            session.to_json()
        };
        let reduction = json!({"type": "near_field"});
        echoed(json!({"tracing": "auto", "audio": {"input": {"noise_reduction": reduction}}}));
        let nothing = json!({"model": null, "truncation": null, "tracing": null,
            "audio": {"input": {"noise_reduction": null}, "output": {"speed": null}}});
        let shown = echoed(nothing);
        assert_eq!(shown["model"], "m");
        assert_eq!(shown["truncation"], "auto");
        assert_eq!(shown["audio"]["output"]["speed"], 1.0);
        assert_eq!(shown["tracing"], Value::Null);
        assert_eq!(shown["audio"]["input"]["noise_reduction"], Value::Null);
    }

    #[test]
    fn tools_and_tool_choice_are_set_and_echoed_verbatim() {
        let mut session = Session::new("sess_1", "m", false);
        let declared =
            json!([{"type": "function", "name": "add", "parameters": {"type": "object"}}]);
        let update = |value| parse(value).expect("valid");
        let first = session.apply(update(json!({"tools": declared})));
        assert_eq!(first.tools.expect("changed")[0].name, "add");
        let forced = json!({"type": "function", "name": "add"});
        let second = session.apply(update(json!({"tool_choice": forced})));
        assert_eq!(second.tools, None);
        assert_eq!(second.tool_choice, Some(ToolChoice::Function("add".into())));
        let echo = session.to_json();
        assert_eq!((&echo["tools"], &echo["tool_choice"]), (&declared, &forced));
        let off = session.apply(update(json!({"tool_choice": "none"})));
        assert_eq!(off.tool_choice, Some(ToolChoice::None));
        assert_eq!(session.to_json()["tools"], declared);
    }

    #[test]
    fn formats_token_limit_and_turn_detection_are_applied() {
        let mut session = Session::new("sess_1", "m", false);
        let update = json!({
            "max_output_tokens": 100,
            "audio": {
                "input": {
                    "format": {"type": "audio/pcmu"},
                    "turn_detection": {"type": "server_vad", "threshold": 0.75,
                        "prefix_padding_ms": 100, "idle_timeout_ms": 6000},
                },
                "output": {"format": {"type": "audio/pcma"}},
            },
        });
        let settings = session.apply(parse(update).expect("valid"));
        assert_eq!(settings.max_tokens, Some(MaxTokens::At(100)));
        let detection = settings.turn_detection.expect("changed");
        assert_eq!(detection.threshold, Some(0.75));
        assert_eq!(detection.prefix_padding_ms, Some(100));
        assert_eq!(detection.idle_timeout_ms, Some(6_000));
        assert_eq!(session.input, Format::G711(Law::Mu));
        assert_eq!(session.output, Format::G711(Law::A));
        let echo = session.to_json();
        assert_eq!(echo["max_output_tokens"], 100);
        assert_eq!(
            echo["audio"]["input"]["format"],
            json!({"type": "audio/pcmu"})
        );
        let unlimited = parse(json!({"max_response_output_tokens": "inf"})).expect("valid");
        assert_eq!(
            session.apply(unlimited).max_tokens,
            Some(MaxTokens::Unlimited)
        );
        let eager = |eagerness: &str| {
            let detection = json!({"type": "semantic_vad", "eagerness": eagerness});
            let update = parse(json!({"turn_detection": detection})).expect("valid");
            update.turn_detection.expect("changed").eagerness
        };
        assert_eq!(eager("low"), Eagerness::Low);
        assert_eq!(eager("medium"), Eagerness::Auto);
        assert_eq!(eager("high"), Eagerness::High);
    }

    #[test]
    fn the_default_recogniser_name_is_one_that_older_clients_accept() {
        let mut session = Session::new("sess_1", "undertone", false);
        let model = |session: &Session| {
            session.to_json()["audio"]["input"]["transcription"]["model"].clone()
        };
        assert_eq!(model(&session), "whisper-1");
        session.transcribes = true;
        assert_eq!(model(&session), "whisper-1");
        let update = json!({"audio": {"input": {"transcription": {"model": "mine"}}}});
        session.apply(parse(update).expect("valid"));
        assert_eq!(model(&session), "mine");
    }

    #[test]
    fn a_transcription_session_is_echoed_as_one() {
        let mut session = Session::new("sess_1", "m", false);
        let update = json!({"type": "transcription",
            "audio": {"input": {"transcription": {"model": "whisper-1", "language": "en"}}}});
        let settings = session.apply(parse(update).expect("valid"));
        assert!(settings.transcribe_only && session.transcribes);
        let echo = session.to_json();
        assert_eq!(echo["object"], "realtime.transcription_session");
        assert_eq!(echo["audio"]["input"]["transcription"]["language"], "en");
        assert_eq!(echo["audio"].get("output"), None);
    }
}
