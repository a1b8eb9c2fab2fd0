//! `session.update`: what a Realtime client may set, and what the session echoes back.

use super::client_events::{Fault, read};
use super::fields::{Class, SESSION};
use crate::conversation::{EndOfTurnRule, Settings, TurnDetection};
use crate::llm::ToolSpec;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};
use std::collections::HashSet;

/// Rate of a Realtime client's audio in both directions, Hz: the only one in the protocol.
pub const RATE: u32 = 24_000;

/// Silence that ends a turn unless the client says otherwise, ms: OpenAI's `server_vad` default.
const SILENCE_MS: u64 = 500;

/// Longest silence that a client may ask for, ms.
const MAX_SILENCE_MS: u64 = 10_000;

/// Tools that a client may declare.
const MAX_TOOLS: usize = 128;

/// What an update changes; `None` leaves a setting as it is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SessionUpdate {
    /// Instructions for the model.
    pub instructions: Option<String>,
    /// Answer in text instead of audio.
    pub text_only: Option<bool>,
    /// How the end of a turn is found.
    pub turn_detection: Option<Detection>,
    /// Transcription of the user as the client wrote it; `null` turns the events off.
    pub transcription: Option<Value>,
    /// The name of a voice. Echoed; the server has one voice.
    pub voice: Option<String>,
    /// The client's own tools, and how the client wrote them.
    pub tools: Option<(Vec<ToolSpec>, Value)>,
    /// Whether the tools may be called.
    pub tool_choice: Option<ToolChoice>,
    /// Send the events that only this server has.
    pub vendor_events: Option<bool>,
    /// Run what may be needed before it is certain.
    pub speculation: Option<bool>,
    /// What is repeated and has no effect: where it stands in the session, and how the client wrote
    /// it.
    pub echoed: Vec<(&'static str, Value)>,
}

/// Turn detection as the client wants it.
#[derive(Debug, Clone, PartialEq)]
pub struct Detection {
    rule: EndOfTurnRule,
    respond: bool,
    /// `None` leaves it to the operator.
    interrupt: Option<bool>,
    /// As it is echoed to the client; without `interrupt_response` if that is left to the operator.
    echo: Value,
}

/// Whether tools may be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolChoice {
    /// As the model sees fit.
    Auto,
    /// Not at all.
    None,
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
    undertone: Option<RawVendor>,
    #[serde(default, deserialize_with = "present")]
    turn_detection: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    input_audio_transcription: Option<Value>,
    input_audio_format: Option<Value>,
    output_audio_format: Option<Value>,
    voice: Option<Value>,
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

/// A field that is there, even as `null`.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// Reads the `session` of an update, in the GA shape or in the flat one of the beta.
pub(super) fn parse(session: Value) -> Result<SessionUpdate, Fault> {
    let echoed = echoed(&session);
    let raw: RawSession = read(session, "session")?;
    if let Some(kind) = raw.kind.as_deref().filter(|kind| *kind != "realtime") {
        return Err(Fault::value("session.type", kind, "'realtime'"));
    }
    let audio = raw.audio.unwrap_or_default();
    let (input, output) = (
        audio.input.unwrap_or_default(),
        audio.output.unwrap_or_default(),
    );
    format(input.format, "session.audio.input.format")?;
    format(output.format, "session.audio.output.format")?;
    format(raw.input_audio_format, "session.input_audio_format")?;
    format(raw.output_audio_format, "session.output_audio_format")?;
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
        tools: raw.tools.map(tools).transpose()?,
        tool_choice: raw.tool_choice.map(tool_choice).transpose()?,
        vendor_events: vendor.events,
        speculation: vendor.speculation,
        echoed,
    })
}

/// What the session repeats as it stands. Turn detection and transcription are repeated as a whole.
fn echoed(session: &Value) -> Vec<(&'static str, Value)> {
    let beta = [
        ("speed", "audio.output.speed"),
        ("input_audio_noise_reduction", "audio.input.noise_reduction"),
        ("max_response_output_tokens", "max_output_tokens"),
    ];
    let ga = SESSION.iter().filter(|field| {
        let whole = ["audio.input.transcription.", "audio.input.turn_detection."];
        let apart = !whole.iter().any(|head| field.path.starts_with(head));
        field.class == Class::Echoed && apart && field.path != "audio.output.voice"
    });
    beta.into_iter()
        .chain(ga.map(|field| (field.path, field.path)))
        .filter_map(|(from, to)| {
            let value = session.pointer(&format!("/{}", from.replace('.', "/")))?;
            Some((to, value.clone()))
        })
        .collect()
}

/// Whether modalities mean text alone. `param` is the path of the field.
pub(super) fn text_only(names: &[String], param: &str) -> Result<bool, Fault> {
    let known = |name: &String| name == "audio" || name == "text";
    match names.iter().find(|name| !known(name)) {
        Some(other) => Err(Fault::value(param, other, "'audio' and 'text'")),
        None if names.is_empty() => Err(Fault::value(param, "[]", "'audio' and 'text'")),
        None => Ok(!names.iter().any(|name| name == "audio")),
    }
}

/// Accepts mono PCM16 at 24 kHz and nothing else.
fn format(format: Option<Value>, param: &str) -> Result<(), Fault> {
    let Some(format) = format else { return Ok(()) };
    let (kind, path) = match &format {
        Value::Object(fields) => (fields.get("type"), format!("{param}.type")),
        other => (Some(other), param.to_owned()),
    };
    match kind.and_then(Value::as_str) {
        Some("audio/pcm" | "pcm16") | None => {}
        Some(other) => return Err(Fault::value(path, other, "'audio/pcm'")),
    }
    match format.get("rate") {
        None | Some(Value::Null) => Ok(()),
        Some(rate) if rate.as_f64() == Some(f64::from(RATE)) => Ok(()),
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
        echo: with_defaults(value, defaults),
    })
}

/// What applies where the client leaves it out. `interrupt_response` is the operator's, filled in
/// by [`Session`].
fn server_vad() -> Value {
    json!({
        "type": "server_vad", "threshold": 0.5, "prefix_padding_ms": 300,
        "silence_duration_ms": SILENCE_MS, "idle_timeout_ms": null,
        "create_response": true, "interrupt_response": null,
    })
}

/// The same for the other kind.
fn semantic_vad() -> Value {
    json!({
        "type": "semantic_vad", "eagerness": "auto",
        "create_response": true, "interrupt_response": null,
    })
}

/// Clients decide by what is echoed: each field that is left out or `null` stands with its default.
fn with_defaults(written: Value, mut defaults: Value) -> Value {
    let fields = written.as_object().into_iter().flatten();
    for (name, value) in fields.filter(|(_, value)| !value.is_null()) {
        defaults[name] = value.clone();
    }
    defaults
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
            "session.audio.output.voice",
            "A voice is a name.",
        )
    })
}

fn tools(values: Vec<Value>) -> Result<(Vec<ToolSpec>, Value), Fault> {
    if values.len() > MAX_TOOLS {
        let message = format!("At most {MAX_TOOLS} tools may be declared.");
        return Err(Fault::new(
            "array_above_max_length",
            "session.tools",
            message,
        ));
    }
    let specs = values
        .iter()
        .enumerate()
        .map(|(index, value)| tool(value, index))
        .collect::<Result<Vec<_>, _>>()?;
    check_unique(&specs)?;
    Ok((specs, Value::Array(values)))
}

/// Nobody could tell which of two tools of the same name is called.
fn check_unique(specs: &[ToolSpec]) -> Result<(), Fault> {
    let mut seen = HashSet::new();
    let again = specs.iter().position(|spec| !seen.insert(&*spec.name));
    let Some(index) = again else { return Ok(()) };
    let message = format!("There are two tools named '{}'.", specs[index].name);
    let param = format!("session.tools[{index}].name");
    Err(Fault::new("invalid_value", param, message))
}

fn tool(value: &Value, index: usize) -> Result<ToolSpec, Fault> {
    let param = format!("session.tools[{index}]");
    let raw: RawTool = read(value.clone(), &param)?;
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

fn tool_choice(value: Value) -> Result<ToolChoice, Fault> {
    match value.as_str() {
        Some("auto") => Ok(ToolChoice::Auto),
        Some("none") => Ok(ToolChoice::None),
        _ => Err(Fault::value(
            "session.tool_choice",
            &value.to_string(),
            "'auto' and 'none'",
        )),
    }
}

/// The session as it stands: what is echoed, and what the dialect needs of it.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) text_only: bool,
    pub(super) transcripts: bool,
    pub(super) vendor_events: bool,
    pub(super) by_hand: bool,
    /// Whether the user may interrupt where the client does not say.
    interrupt: bool,
    tools: Vec<ToolSpec>,
    tool_choice: ToolChoice,
    echo: Map<String, Value>,
}

impl Session {
    pub(super) fn new(id: &str, model: &str, vendor_events: bool) -> Self {
        let format = json!({"type": "audio/pcm", "rate": RATE});
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
                    "transcription": {"model": model},
                    "noise_reduction": null,
                    "turn_detection": with_defaults(
                        json!({"interrupt_response": true}),
                        semantic_vad(),
                    ),
                },
                "output": {"format": format, "voice": "default", "speed": 1.0},
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
            interrupt: true,
            tools: Vec::new(),
            tool_choice: ToolChoice::Auto,
            echo,
        }
    }

    /// The same, where the operator says whether the user may interrupt.
    pub(super) fn interruptible(mut self, interrupt: bool) -> Self {
        self.interrupt = interrupt;
        let detection = self
            .echo
            .get_mut("audio")
            .and_then(|audio| audio["input"].get_mut("turn_detection"));
        if let Some(detection) = detection {
            detection["interrupt_response"] = interrupt.into();
        }
        self
    }

    /// As it is echoed to the client.
    pub(super) fn to_json(&self) -> Value {
        Value::Object(self.echo.clone())
    }

    /// The format and voice of the agent's audio, as responses repeat it.
    pub(super) fn output(&self) -> Value {
        let output = self.echo.get("audio").and_then(|audio| audio.get("output"));
        json!({"output": {
            "format": output.and_then(|output| output.get("format")),
            "voice": output.and_then(|output| output.get("voice")),
        }})
    }

    /// Takes an update over. Returns what the conversation is to be told.
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
            self.set_audio("input", "turn_detection", echo);
            settings.turn_detection = Some(TurnDetection {
                rule: detection.rule,
                respond: detection.respond,
                interrupt,
            });
        }
        if let Some(transcription) = update.transcription {
            self.transcripts = !transcription.is_null();
            self.set_audio("input", "transcription", transcription);
        }
        if let Some(voice) = update.voice {
            self.set_audio("output", "voice", voice.into());
        }
        if let Some(vendor_events) = update.vendor_events {
            self.vendor_events = vendor_events;
            self.set_vendor("events", vendor_events);
        }
        if let Some(speculation) = update.speculation {
            settings.speculation = Some(speculation);
            self.set_vendor("speculation", speculation);
        }
        for (path, value) in update.echoed {
            self.set(path, value);
        }
        settings.tools = self.apply_tools(update.tools, update.tool_choice);
        settings
    }

    /// Sets what is echoed at a path, whose containers are there.
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

    fn apply_tools(
        &mut self,
        tools: Option<(Vec<ToolSpec>, Value)>,
        choice: Option<ToolChoice>,
    ) -> Option<Vec<ToolSpec>> {
        if tools.is_none() && choice.is_none() {
            return None;
        }
        if let Some((tools, value)) = tools {
            self.tools = tools;
            self.echo.insert("tools".into(), value);
        }
        if let Some(choice) = choice {
            self.tool_choice = choice;
            let name = if choice == ToolChoice::Auto {
                "auto"
            } else {
                "none"
            };
            self.echo.insert("tool_choice".into(), name.into());
        }
        Some(match self.tool_choice {
            ToolChoice::Auto => self.tools.clone(),
            ToolChoice::None => Vec::new(),
        })
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

/// The modalities as the protocol writes them.
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
            (json!({"type": "transcription"}), "session.type"),
            (json!({"instructions": 5}), "session.instructions"),
            (
                json!({"audio": {"input": {"format": {"type": "audio/pcmu"}}}}),
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
                json!({"input_audio_format": "g711_ulaw"}),
                "session.input_audio_format",
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
            (json!({"tool_choice": "required"}), "session.tool_choice"),
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
    fn null_turn_detection_is_not_the_same_as_none() {
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
        let mut session = Session::new("sess_1", "m", false).interruptible(false);
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
    fn every_field_of_turn_detection_is_echoed_also_where_the_client_sent_a_part() {
        let mut session = Session::new("sess_1", "m", false).interruptible(false);
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
        assert_eq!(echoed(Value::Null), Value::Null);
    }

    #[test]
    fn tools_come_and_go_with_tool_choice() {
        let mut session = Session::new("sess_1", "m", false);
        let declared =
            json!([{"type": "function", "name": "add", "parameters": {"type": "object"}}]);
        let names = |settings: Settings| -> Option<Vec<String>> {
            Some(settings.tools?.into_iter().map(|tool| tool.name).collect())
        };
        let update = |value| parse(value).expect("valid");
        let first = session.apply(update(json!({"tools": declared})));
        assert_eq!(names(first), Some(vec!["add".into()]));
        let off = session.apply(update(json!({"tool_choice": "none"})));
        assert_eq!(names(off), Some(vec![]));
        let other = session.apply(update(json!({"instructions": "Be brief."})));
        assert_eq!(names(other), None);
        let on = session.apply(update(json!({"tool_choice": "auto"})));
        assert_eq!(names(on), Some(vec!["add".into()]));
        assert_eq!(session.to_json()["tools"], declared);
    }
}
