//! `session.update`: the settings that a Realtime client may change.

use super::codec::{Format, RATE};
use super::early_tools;
use super::fault::{Fault, check_echo, read};
use super::fields::{Class, SESSION};
use super::keywords::keyterms;
use super::turn_detection::{Detection, read_detection};
use crate::audio::g711::Law;
use crate::conversation::{EarlyTool, MaxTokens};
use crate::llm::ToolChoice;
use crate::llm::markup::MAX_NAME_CHARS;
use crate::tools::ToolSpec;
use crate::tts::Speed;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};
use std::collections::HashSet;

/// Allowed values of `speed`: OpenAI's bounds.
const SPEEDS: std::ops::RangeInclusive<f64> = 0.25..=1.5;

/// The field of the voice's speed.
pub(super) const SPEED: &str = "session.audio.output.speed";

/// The field that names the voice.
pub(super) const VOICE: &str = "session.audio.output.voice";

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
    /// The words in them that the user is likely to say.
    pub keyterms: Option<Vec<String>>,
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

/// Whether the configuration of a session does more than name its type and model.
pub fn configures(session: &Value) -> bool {
    let mut fields = session.as_object().into_iter().flatten();
    fields.any(|(name, value)| match (name.as_str(), value) {
        (_, Value::Null) => false,
        ("type", kind) => kind != "realtime",
        (name, value) => name != "model" && *value != json!({}),
    })
}

/// Parses the `session` of an update, in the GA shape or in the beta's flat one.
pub(super) fn parse(session: Value) -> Result<SessionUpdate, Fault> {
    let echoed = echoed(&session)?;
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
        (Some(value), _) => Some(read_detection(value, "session.audio.input.turn_detection")?),
        (None, Some(value)) => Some(read_detection(value, "session.turn_detection")?),
        (None, None) => None,
    };
    let vendor = raw.undertone.unwrap_or_default();
    let transcription = input.transcription.or(raw.input_audio_transcription);
    if let Some(transcription) = &transcription {
        check_echo(transcription, "session.audio.input.transcription")?;
    }
    Ok(SessionUpdate {
        instructions: raw.instructions,
        text_only: raw
            .output_modalities
            .map(|names| text_only(&names, "session.output_modalities"))
            .transpose()?,
        turn_detection,
        keyterms: keyterms(transcription.as_ref())?,
        transcription,
        voice: output.voice.or(raw.voice).map(voice).transpose()?,
        speed: output.speed.or(raw.speed).map(speed).transpose()?,
        early: early_tools::parse(raw.tools.iter().flatten(), "session.tools")?,
        tools: raw
            .tools
            .map(|values| of_session(tools(values, "session.tools")?))
            .transpose()?,
        tool_choice: raw
            .tool_choice
            .map(|value| {
                check_echo(&value, "session.tool_choice")?;
                Ok((tool_choice(&value, "session.tool_choice")?, value))
            })
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
fn echoed(session: &Value) -> Result<Vec<(&'static str, Value)>, Fault> {
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
            (may_be_null || !value.is_null()).then_some((from, to, value))
        })
        .map(|(from, to, value)| {
            check_echo(value, &format!("session.{from}"))?;
            Ok((to, value.clone()))
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

/// Checks what the session echoes of its tools, and adds their examples. Tools of a single response have neither.
fn of_session(
    (mut specs, values): (Vec<ToolSpec>, Value),
) -> Result<(Vec<ToolSpec>, Value), Fault> {
    let declared = values.as_array().into_iter().flatten();
    for (index, (spec, value)) in specs.iter_mut().zip(declared).enumerate() {
        let param = format!("session.tools[{index}]");
        check_echo(&outside_of_prompt(value), &param)?;
        spec.examples = early_tools::examples(value, &param)?;
    }
    Ok((specs, values))
}

/// The fields of a tool that are not part of the prompt, whose length is limited elsewhere.
fn outside_of_prompt(tool: &Value) -> Value {
    let fields = tool.as_object().into_iter().flatten();
    let rest =
        fields.filter(|(name, _)| !["name", "description", "parameters"].contains(&name.as_str()));
    let rest: Map<String, Value> = rest
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    Value::Object(rest)
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
        let message = "A tool's name has 1 to 64 letters, digits, _ and -.";
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
    let is_sign = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..=MAX_NAME_CHARS).contains(&name.len()) && name.bytes().all(is_sign)
}

/// Parses the tool choice. `param` is the path of the field.
pub(super) fn tool_choice(value: &Value, param: &str) -> Result<ToolChoice, Fault> {
    let function = || {
        let named = value.get("type").is_some_and(|kind| kind == "function");
        // In the beta's reference the name is in an object of its own.
        let name = value.get("name");
        let name = name.or_else(|| value.get("function")?.get("name"));
        name.filter(|_| named)?.as_str()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::EndOfTurnRule;

    fn fault(session: Value) -> Option<String> {
        parse(session).err().and_then(|fault| fault.param)
    }

    #[test]
    fn a_function_may_be_chosen_in_the_form_of_the_beta() {
        let choice = |value: Value| tool_choice(&value, "session.tool_choice");
        let chosen = Ok(ToolChoice::Function("look_up".into()));
        let ga = json!({"type": "function", "name": "look_up"});
        let beta = json!({"type": "function", "function": {"name": "look_up"}});
        assert_eq!(choice(ga), chosen);
        assert_eq!(choice(beta), chosen);
        for wrong in [
            json!({"type": "function"}),
            json!({"type": "function", "function": {}}),
        ] {
            assert!(choice(wrong).is_err());
        }
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
                json!({"tools": [{"type": "function", "name": ""}]}),
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
        for name in ["7zip", "-dash", "_", &"9".repeat(64)] {
            let tools = json!({"tools": [{"type": "function", "name": name}]});
            assert_eq!(fault(tools), None, "OpenAI takes {name}");
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
}
