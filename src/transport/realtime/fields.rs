//! Every event and field that a Realtime client may send, and how the server treats it. The parser
//! uses these tables and `docs/realtime.md` shows them.

use super::fault::Fault;
use crate::asr::keyterms;
use serde_json::{Map, Value};

/// How the server treats a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Does what the protocol says.
    Honoured,
    /// Honoured if it is a list of keyterms; otherwise as if echoed.
    Listed,
    /// Honoured if it is a list of one; otherwise as if echoed.
    Single,
    /// Accepted and echoed where the protocol echoes it, but without effect.
    Echoed,
    /// Answered with an error that names the field: ignoring it would change what the user gets.
    Refused,
}

/// One field. A row that is not honoured also covers every field below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Field {
    /// Names joined by dots; `[]` follows the name of a list.
    pub(super) path: &'static str,
    pub(super) class: Class,
    /// For the documentation, and for the error that a refused field gets.
    pub(super) note: &'static str,
}

/// A field from the client that has no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ineffective {
    /// The field's path, without list indices.
    pub path: String,
    /// Whether the protocol defines the field.
    pub known: bool,
}

const fn honoured(path: &'static str, note: &'static str) -> Field {
    let class = Class::Honoured;
    Field { path, class, note }
}

const fn listed(path: &'static str, note: &'static str) -> Field {
    let class = Class::Listed;
    Field { path, class, note }
}

const fn single(path: &'static str, note: &'static str) -> Field {
    let class = Class::Single;
    Field { path, class, note }
}

const fn echoed(path: &'static str, note: &'static str) -> Field {
    let class = Class::Echoed;
    Field { path, class, note }
}

const fn refused(path: &'static str, note: &'static str) -> Field {
    let class = Class::Refused;
    Field { path, class, note }
}

const EVENT_ID: Field = honoured("event_id", "quoted in errors about the event");

/// Client events and their fields.
pub(super) const EVENTS: &[(&str, &[Field])] = &[
    (
        "session.update",
        &[EVENT_ID, honoured("session", "see *Session*")],
    ),
    (
        "transcription_session.update",
        &[
            EVENT_ID,
            honoured("session", "the beta's name, with `type` `transcription`"),
        ],
    ),
    (
        "input_audio_buffer.append",
        &[
            EVENT_ID,
            honoured("audio", "base64, in the session's input format"),
        ],
    ),
    ("input_audio_buffer.commit", &[EVENT_ID]),
    ("input_audio_buffer.clear", &[EVENT_ID]),
    (
        "conversation.item.create",
        &[
            EVENT_ID,
            honoured("item", "see *Items*"),
            honoured(
                "previous_item_id",
                "insert after this item; `root`: at the start; omitted: at the end",
            ),
        ],
    ),
    (
        "conversation.item.retrieve",
        &[EVENT_ID, honoured("item_id", "")],
    ),
    (
        "conversation.item.truncate",
        &[
            EVENT_ID,
            honoured("item_id", "an item of the assistant"),
            honoured("content_index", "0, the only part"),
            honoured(
                "audio_end_ms",
                "how much of it was heard; a position beyond the end means all of it",
            ),
        ],
    ),
    (
        "conversation.item.delete",
        &[EVENT_ID, honoured("item_id", "")],
    ),
    (
        "response.create",
        &[EVENT_ID, honoured("response", "see *Responses*")],
    ),
    (
        "response.cancel",
        &[
            EVENT_ID,
            honoured("response_id", "only if this is the open response"),
        ],
    ),
    ("output_audio_buffer.clear", &[EVENT_ID]),
    (
        "undertone.confirmation.respond",
        &[
            EVENT_ID,
            honoured("call_id", "the call that waits for a yes"),
            honoured("accept", "yes or no"),
        ],
    ),
];

const MCP: &str = "tools of MCP servers are not run for clients; declare a function";
const PROMPT: &str = "templates are stored at OpenAI; send `instructions`";
const REASONING: &str = "how a model thinks is the operator's choice";
const VOICE: &str = "one of `GET /v1/audio/voices`; OpenAI's names, such as `marin`, mean the agent's own; cannot change \
                     once the agent has said more than its greeting";
const PICTURES: &str = "the models here see no pictures: beside words one is the remark `(a picture, which cannot \
                        be seen here)`; a message of pictures alone is not shown to the model";
const SPEED: &str = "0.25 to 1.5, by default the operator's `tts.speed`; can only change between responses or during the \
                     greeting";

/// The fields of realtime and transcription sessions.
pub(super) const SESSION: &[Field] = &[
    honoured(
        "type",
        "`realtime` or `transcription`; a transcription session never answers and stays one",
    ),
    honoured("instructions", "added to the operator's"),
    honoured("output_modalities", "`[\"audio\"]` or `[\"text\"]`"),
    honoured("tools", "at most 128, no two of the same name"),
    honoured("tools[].type", "`function`"),
    honoured(
        "tools[].name",
        "1 to 64 letters, digits, `_` and `-`, the first a letter or `_` for Gemini's models; replaces the server's tool of the same name",
    ),
    honoured("tools[].description", ""),
    honoured("tools[].parameters", "JSON Schema"),
    honoured("tools[].undertone", "see *Tools that run early*"),
    honoured(
        "tools[].undertone.effect",
        "`read`: the tool changes nothing; required with `early`",
    ),
    honoured(
        "tools[].undertone.early",
        "the tool may be called before the model has decided to; at most 16 tools",
    ),
    honoured(
        "tools[].undertone.examples",
        "what users say when they need it; at most 10 of at most 200 characters",
    ),
    honoured(
        "tools[].undertone.ttl_ms",
        "how long an early output may be used; 100 to 300000, by default 30000",
    ),
    refused("tools[].allowed_callers", MCP),
    refused("tools[].allowed_tools", MCP),
    refused("tools[].authorization", MCP),
    refused("tools[].connector_id", MCP),
    refused("tools[].defer_loading", MCP),
    refused("tools[].headers", MCP),
    refused("tools[].require_approval", MCP),
    refused("tools[].server_description", MCP),
    refused("tools[].server_label", MCP),
    refused("tools[].server_url", MCP),
    refused("tools[].tunnel_id", MCP),
    honoured(
        "tool_choice",
        "`auto`, `none`, `required`, or a function; `none` and a function concern the server's tools, too; \
         treated as `auto` until a tool of that name exists; a large model is told to call it, and the local brain asks for missing \
         arguments",
    ),
    honoured("tool_choice.type", "`function`"),
    honoured("tool_choice.name", ""),
    refused("tool_choice.server_label", MCP),
    honoured(
        "max_output_tokens",
        "at most the operator's `llm.max_tokens`; a cut answer ends as `incomplete`",
    ),
    echoed(
        "model",
        "in the query or a client secret it may name an agent of the server; otherwise it is echoed",
    ),
    refused("prompt", PROMPT),
    echoed("parallel_tool_calls", "a model may call several tools"),
    echoed("reasoning", REASONING),
    echoed("tracing", "there is no traces dashboard"),
    echoed(
        "truncation",
        "the oldest turns are left out when the operator's `llm.max_prompt_tokens` is reached",
    ),
    echoed("include", "the recogniser reports no log probabilities"),
    honoured("audio", ""),
    honoured("audio.input", ""),
    honoured("audio.input.format", ""),
    honoured(
        "audio.input.format.type",
        "`audio/pcm`, `audio/pcmu`, `audio/pcma`; each direction has its own",
    ),
    honoured("audio.input.format.rate", "24000, for `audio/pcm`"),
    echoed(
        "audio.input.noise_reduction",
        "clean the audio at the client; noise suppression here would raise the word error rate",
    ),
    honoured(
        "audio.input.transcription",
        "on by default; `null` turns the events off",
    ),
    honoured(
        "audio.input.transcription.model",
        "a recogniser of the operator's `asr.services`, if the client may choose services (docs/speech-services.md); any \
         other name is echoed, `whisper-1` by default, and means the agent's recogniser",
    ),
    honoured(
        "audio.input.transcription.language",
        "a BCP 47 tag: the language that user and agent speak; the operator's by default (docs/languages.md)",
    ),
    single(
        "audio.input.transcription.languages",
        "`[\"de\"]` means the same as `language`; instead of several languages the operator's `asr.languages` are detected",
    ),
    listed(
        "audio.input.transcription.prompt",
        "names between commas are added to `keywords`; any other text has no effect, because recognisers take names and \
         no instructions",
    ),
    honoured(
        "audio.input.transcription.keywords",
        "words that the user is likely to say and recognisers unlikely to know, instead of the operator's \
         `asr.keyterms`; at most 100 of at most 50 characters, without commas; `[]`: the operator's",
    ),
    echoed(
        "audio.input.transcription.delay",
        "transcripts are sent as soon as they are available",
    ),
    honoured(
        "audio.input.turn_detection",
        "`semantic_vad` by default; `null` leaves turns to the client. In a transcription session `null` is the default if \
         `transcription.model` begins with `gpt-realtime-whisper` or `gpt-live-transcribe`: these have no turn detection",
    ),
    honoured(
        "audio.input.turn_detection.type",
        "`server_vad` or `semantic_vad`; `none` means `null`",
    ),
    honoured("audio.input.turn_detection.create_response", ""),
    honoured(
        "audio.input.turn_detection.interrupt_response",
        "by default the operator's `turn.interrupt`",
    ),
    honoured(
        "audio.input.turn_detection.silence_duration_ms",
        "`server_vad`; 0 to 10000, by default 500",
    ),
    honoured(
        "audio.input.turn_detection.threshold",
        "`server_vad`; 0 to 1, by default the operator's `turn.vad_threshold`",
    ),
    honoured(
        "audio.input.turn_detection.prefix_padding_ms",
        "`server_vad`; 0 to 5000, by default 300",
    ),
    honoured(
        "audio.input.turn_detection.idle_timeout_ms",
        "`server_vad`; 5000 to 30000. The user is asked \"Are you still there?\", twice at most",
    ),
    honoured(
        "audio.input.turn_detection.eagerness",
        "`semantic_vad`; `low` waits up to four times as long as `auto` and `medium`, at most 8 s; `high` \
         half as long, at most 2 s",
    ),
    honoured("audio.output", ""),
    honoured("audio.output.format", ""),
    honoured(
        "audio.output.format.type",
        "`audio/pcm`, `audio/pcmu`, `audio/pcma`",
    ),
    honoured("audio.output.format.rate", "24000, for `audio/pcm`"),
    honoured("audio.output.voice", VOICE),
    honoured("audio.output.voice.id", "the same in an object"),
    honoured("audio.output.speed", SPEED),
    honoured("undertone", "this server's own"),
    honoured("undertone.events", "send this server's own events"),
    honoured(
        "undertone.speculation",
        "run tools speculatively, within what the operator allows",
    ),
];

/// The beta's flat names for session fields.
pub(super) const BETA_SESSION: &[Field] = &[
    honoured("modalities", "`output_modalities`"),
    honoured("turn_detection", "`audio.input.turn_detection`"),
    honoured("input_audio_format", "`audio.input.format`"),
    honoured("input_audio_transcription", "`audio.input.transcription`"),
    echoed(
        "input_audio_noise_reduction",
        "`audio.input.noise_reduction`",
    ),
    honoured("output_audio_format", "`audio.output.format`"),
    honoured("voice", "`audio.output.voice`"),
    honoured("speed", "`audio.output.speed`"),
    echoed("temperature", "the operator's `llm.temperature`"),
    honoured("max_response_output_tokens", "`max_output_tokens`"),
    honoured("tool_choice.function", ""),
    honoured("tool_choice.function.name", "`tool_choice.name`"),
];

/// The fields of `response.create`.
pub(super) const RESPONSE: &[Field] = &[
    honoured(
        "instructions",
        "for this response alone, in place of the session's; the operator's stay",
    ),
    honoured("output_modalities", "`[\"audio\"]` or `[\"text\"]`"),
    honoured("modalities", "the beta's name of `output_modalities`"),
    honoured("metadata", "echoed in the response; at most 64 KiB of JSON"),
    honoured(
        "conversation",
        "`auto` or `none`. With `none`: in text, at most 4 at a time, also while somebody speaks; in audio \
         only when nobody speaks; without the server's tools",
    ),
    honoured(
        "input",
        "items, and `item_reference` for items of the conversation, in place of the whole conversation",
    ),
    honoured("tools", "replaces the session's tools"),
    honoured("tools[].type", "`function`"),
    honoured("tools[].name", ""),
    honoured("tools[].description", ""),
    honoured("tools[].parameters", "JSON Schema"),
    echoed(
        "tools[].undertone",
        "tools of a single response do not run early",
    ),
    refused("tools[].allowed_callers", MCP),
    refused("tools[].allowed_tools", MCP),
    refused("tools[].authorization", MCP),
    refused("tools[].connector_id", MCP),
    refused("tools[].defer_loading", MCP),
    refused("tools[].headers", MCP),
    refused("tools[].require_approval", MCP),
    refused("tools[].server_description", MCP),
    refused("tools[].server_label", MCP),
    refused("tools[].server_url", MCP),
    refused("tools[].tunnel_id", MCP),
    honoured("tool_choice", "as in the session"),
    honoured("tool_choice.type", "`function`"),
    honoured("tool_choice.name", ""),
    honoured("tool_choice.function", ""),
    honoured(
        "tool_choice.function.name",
        "the beta's name of `tool_choice.name`",
    ),
    refused("tool_choice.server_label", MCP),
    honoured("max_output_tokens", "as in the session"),
    honoured(
        "max_response_output_tokens",
        "the beta's name of `max_output_tokens`",
    ),
    refused("prompt", PROMPT),
    echoed("parallel_tool_calls", "a model may call several tools"),
    echoed("reasoning", REASONING),
    honoured("audio", ""),
    honoured("audio.output", ""),
    honoured("audio.output.format", ""),
    honoured("audio.output.format.type", "as in the session"),
    honoured("audio.output.format.rate", "24000, for `audio/pcm`"),
    echoed("audio.output.voice", "the session's voice speaks"),
    honoured(
        "output_audio_format",
        "the beta's name of `audio.output.format`",
    ),
    echoed("voice", "the beta's name of `audio.output.voice`"),
    echoed("temperature", "the operator's `llm.temperature`"),
];

/// The fields of an item that a client creates.
pub(super) const ITEM: &[Field] = &[
    honoured("id", "1 to 128 visible ASCII characters"),
    honoured("object", ""),
    honoured(
        "type",
        "`message`, `function_call`, `function_call_output`; at most 32 KiB each, outputs 256 KiB, and 1 MiB in all",
    ),
    echoed("status", "has no effect in the protocol either"),
    honoured("role", "`system`, `user`, `assistant`"),
    honoured("content", ""),
    honoured(
        "content[].type",
        "`input_text`, `output_text`, `input_audio`, `output_audio`, `input_image`",
    ),
    honoured("content[].text", ""),
    honoured("content[].transcript", "used instead of the audio"),
    honoured(
        "content[].audio",
        "user audio in the session's input format, transcribed in place; answers wait for the transcript; \
         at most a minute at a time; not together with a transcript",
    ),
    echoed("content[].image_url", PICTURES),
    echoed("content[].detail", PICTURES),
    honoured("call_id", "of a call to one of the client's tools"),
    honoured("output", ""),
    honoured("name", ""),
    honoured("arguments", ""),
    refused("approval_request_id", MCP),
    refused("approve", MCP),
    refused("reason", MCP),
    refused("server_label", MCP),
    refused("error", MCP),
    refused("tools", MCP),
];

/// Checks an event of type `kind` against the tables. Returns its fields without effect.
///
/// # Errors
/// The fault for the client if a field is refused.
pub(super) fn look_through(
    kind: &str,
    event: &Map<String, Value>,
) -> Result<Vec<Ineffective>, Fault> {
    let own = EVENTS.iter().find(|(name, _)| *name == kind);
    let mut look = Look {
        tables: vec![own.map_or(&[], |(_, fields)| fields)],
        found: Vec::new(),
    };
    look.object(event, "", "")?;
    Ok(look.found)
}

/// The most fields without effect reported for one event, and logged in one session.
pub(super) const MAX_NAMED: usize = 64;

/// A check of one object against its tables.
struct Look {
    tables: Vec<&'static [Field]>,
    found: Vec<Ineffective>,
}

impl Look {
    /// `path` is the object's path in its table, `shown` its path in the event.
    fn object(
        &mut self,
        object: &Map<String, Value>,
        path: &str,
        shown: &str,
    ) -> Result<(), Fault> {
        for (name, value) in object.iter().filter(|(_, value)| !value.is_null()) {
            self.value(value, &join(path, name), &join(shown, name))?;
        }
        Ok(())
    }

    fn value(&mut self, value: &Value, path: &str, shown: &str) -> Result<(), Fault> {
        let row = (self.tables.iter().copied().flatten()).find(|field| field.path == path);
        match row.map(|row| (row.class, row.note)) {
            None => self.note(shown, false),
            Some((Class::Echoed, _)) => self.note(shown, true),
            Some((Class::Listed, _)) => {
                if value.as_str().and_then(keyterms::listed).is_none() {
                    self.note(shown, true);
                }
            }
            Some((Class::Single, _)) => {
                if value.as_array().is_none_or(|list| list.len() != 1) {
                    self.note(shown, true);
                }
            }
            Some((Class::Refused, note)) => return Err(refusal(shown, note)),
            Some((Class::Honoured, _)) => match (group(path), value) {
                (Some(tables), _) => self.group(tables, value, shown)?,
                (None, Value::Object(object)) if self.has_below(path, ".") => {
                    self.object(object, path, shown)?;
                }
                (None, Value::Array(list)) if self.has_below(path, "[]") => {
                    self.list(list, path, shown)?;
                }
                _ => {}
            },
        }
        Ok(())
    }

    /// Checks an object whose fields have a table of their own.
    fn group(
        &mut self,
        tables: &[&'static [Field]],
        value: &Value,
        shown: &str,
    ) -> Result<(), Fault> {
        let outer = std::mem::replace(&mut self.tables, tables.to_vec());
        let objects = match value {
            Value::Object(object) => vec![(object, shown.to_owned())],
            Value::Array(list) => elements(list, shown).collect(),
            _ => Vec::new(),
        };
        for (object, shown) in objects {
            self.object(object, "", &shown)?;
        }
        self.tables = outer;
        Ok(())
    }

    fn list(&mut self, list: &[Value], path: &str, shown: &str) -> Result<(), Fault> {
        for (object, shown) in elements(list, shown) {
            self.object(object, &format!("{path}[]"), &shown)?;
        }
        Ok(())
    }

    fn has_below(&self, path: &str, between: &str) -> bool {
        let mut rows = self.tables.iter().copied().flatten();
        rows.any(|row| {
            let below = row.path.strip_prefix(path);
            below.is_some_and(|below| below.starts_with(between))
        })
    }

    fn note(&mut self, shown: &str, known: bool) {
        if self.found.len() == MAX_NAMED {
            return;
        }
        let path = without_numbers(shown);
        if !self.found.iter().any(|other| other.path == path) {
            self.found.push(Ineffective { path, known });
        }
    }
}

/// The tables for the object at a path of an event, if it has its own.
fn group(path: &str) -> Option<&'static [&'static [Field]]> {
    match path {
        "session" => Some(&[SESSION, BETA_SESSION]),
        "response" => Some(&[RESPONSE]),
        "item" | "input" => Some(&[ITEM]),
        _ => None,
    }
}

fn elements<'a>(
    list: &'a [Value],
    shown: &str,
) -> impl Iterator<Item = (&'a Map<String, Value>, String)> {
    list.iter().enumerate().filter_map(move |(index, element)| {
        Some((element.as_object()?, format!("{shown}[{index}]")))
    })
}

fn join(path: &str, name: &str) -> String {
    match path {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    }
}

/// `tools[3].x` as `tools[].x`, cut to 100 characters because the client chose the text.
fn without_numbers(shown: &str) -> String {
    let mut numberless = String::new();
    let mut inside = false;
    for c in shown.chars().take(100) {
        inside = match c {
            '[' => true,
            ']' => false,
            _ => inside,
        };
        if !(inside && c.is_ascii_digit()) {
            numberless.push(c);
        }
    }
    numberless
}

fn refusal(shown: &str, note: &str) -> Fault {
    let message = format!("'{shown}' is not supported by this server: {note}.");
    Fault::new("unsupported_parameter", shown, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::realtime::CLIENT_EVENTS;
    use serde_json::json;

    fn found(kind: &str, event: &Value) -> Vec<(String, bool)> {
        let event = event.as_object().expect("an object");
        let found = look_through(kind, event).expect("nothing is refused");
        let pair = |one: Ineffective| (one.path, one.known);
        found.into_iter().map(pair).collect()
    }

    fn refused(kind: &str, event: &Value) -> Option<String> {
        let event = event.as_object().expect("an object");
        look_through(kind, event).err()?.param
    }

    #[test]
    fn every_event_is_in_the_table() {
        let named: Vec<&str> = EVENTS.iter().map(|(name, _)| *name).collect();
        assert_eq!(named, CLIENT_EVENTS);
    }

    #[test]
    fn each_field_without_effect_is_reported_once() {
        let event = json!({"event_id": "e", "session": {
            "type": "realtime", "tracing": {"group_id": "mine"}, "truncation": null,
            "colour": {"red": 1},
            "tools": [
                {"type": "function", "name": "a", "parameters": {"type": "object"}, "strict": true},
                {"type": "function", "name": "b", "strict": true},
            ],
            "audio": {"input": {"noise_reduction": {"type": "near_field"}}},
        }});
        let expected = [
            ("session.tracing", true),
            ("session.colour", false),
            ("session.tools[].strict", false),
            ("session.audio.input.noise_reduction", true),
        ];
        let expected: Vec<_> = (expected.iter())
            .map(|(path, known)| ((*path).to_owned(), *known))
            .collect();
        assert_eq!(found("session.update", &event), expected);
    }

    #[test]
    fn a_prompt_for_the_recogniser_has_an_effect_if_it_lists_names() {
        let update = |prompt: &str| {
            json!({"session": {"audio": {"input": {"transcription": {
                "prompt": prompt, "keywords": ["Anneliese"],
            }}}}})
        };
        assert_eq!(found("session.update", &update("Kronos 7, Siobhan")), []);
        let sentence = update("Expect words related to technology.");
        let expected = ("session.audio.input.transcription.prompt".to_owned(), true);
        assert_eq!(found("session.update", &sentence), [expected]);
    }

    #[test]
    fn a_list_of_languages_has_an_effect_if_it_has_one() {
        let update = |languages: Value| {
            let transcription = json!({ "languages": languages });
            json!({"session": {"audio": {"input": {"transcription": transcription}}}})
        };
        assert_eq!(found("session.update", &update(json!(["de"]))), []);
        let several = update(json!(["de", "en"]));
        let expected = (
            "session.audio.input.transcription.languages".to_owned(),
            true,
        );
        assert_eq!(found("session.update", &several), [expected]);
    }

    #[test]
    fn a_refusal_names_the_field() {
        let mcp = json!({"session": {"tools": [{"type": "mcp", "server_label": "files",
            "server_url": "https://example.com"}]}});
        let approval = json!({"item": {"type": "mcp_approval_response", "approve": true}});
        for (kind, event, param) in [
            (
                "session.update",
                json!({"session": {"prompt": {"id": "p"}}}),
                "session.prompt",
            ),
            ("session.update", mcp, "session.tools[0].server_label"),
            ("conversation.item.create", approval, "item.approve"),
            (
                "response.create",
                json!({"response": {"prompt": {"id": "p"}}}),
                "response.prompt",
            ),
        ] {
            assert_eq!(refused(kind, &event).as_deref(), Some(param), "{event}");
        }
        let null = json!({"session": {"prompt": null}});
        assert_eq!(refused("session.update", &null), None);
    }

    #[test]
    fn a_refused_field_is_found_among_any_number_of_unknown_ones() {
        let unknown = (0..10_000).map(|n| (format!("k{n}"), json!(1)));
        let mut session: Map<String, Value> = unknown.collect();
        let event = json!({ "session": session });
        assert_eq!(found("session.update", &event).len(), MAX_NAMED);
        session.insert("prompt".into(), json!({"id": "p"}));
        let event = json!({ "session": session });
        let param = refused("session.update", &event);
        assert_eq!(param.as_deref(), Some("session.prompt"));
    }

    #[test]
    fn long_field_names_are_cut() {
        let long = "x".repeat(10_000);
        let event = json!({ "session": { long: 1 } });
        let found = found("session.update", &event);
        assert_eq!(found.len(), 1);
        assert!(found[0].0.len() <= 100);
    }

    /// The rows of a table in the documentation.
    fn lines(fields: &[Field]) -> String {
        let line = |field: &Field| {
            let class = match field.class {
                Class::Honoured => "honoured",
                Class::Listed => "honoured if a list",
                Class::Single => "honoured if one",
                Class::Echoed => "no effect",
                Class::Refused => "refused",
            };
            let cells = format!("| `{}` | {class} | {}", field.path, field.note);
            format!("{} |\n", cells.trim_end())
        };
        fields.iter().map(line).collect()
    }

    /// How the server treats an event over WebRTC, where audio is on a track.
    fn over_webrtc(event: &str) -> &'static str {
        match event {
            "input_audio_buffer.append" => "refused: the user's audio is on the track",
            "conversation.item.truncate" => "honoured; not needed, since the server truncates",
            "output_audio_buffer.clear" => "honoured, also after `response.done`",
            _ => "honoured",
        }
    }

    #[test]
    fn the_documentation_has_the_tables() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/realtime.md");
        let shown = std::fs::read_to_string(path).expect("docs/realtime.md");
        let events = EVENTS.iter().map(|(name, fields)| {
            let fields = fields.iter().map(|field| match field.note {
                "" => format!("`{}`", field.path),
                note => format!("`{}`: {note}", field.path),
            });
            format!(
                "| `{name}` | {} | {} |\n",
                fields.collect::<Vec<_>>().join("<br>"),
                over_webrtc(name)
            )
        });
        let tables = [
            events.collect(),
            lines(SESSION),
            lines(BETA_SESSION),
            lines(RESPONSE),
            lines(ITEM),
        ];
        for table in tables {
            assert!(
                shown.contains(&table),
                "docs/realtime.md lacks this:\n{table}"
            );
        }
    }
}
