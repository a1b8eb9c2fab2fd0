//! The session that is echoed to a Realtime client, and the values in it that its connection uses.

use super::codec::Format;
use super::fault::Fault;
use super::session_config::{SPEED, SessionUpdate, VOICE, tokens_json};
use super::turn_detection::{Detection, semantic_vad, server_vad, with_defaults};
use super::voices::Offered;
use crate::conversation::{EndOfTurnRule, MaxTokens, Settings, TurnDetection};
use crate::language::is_tag;
use crate::tts::{Speaker, Speed};
use serde_json::{Map, Value, json};

/// The recogniser's default name: OpenAI's name for Whisper, because the types of older clients
/// list no other.
const RECOGNISER: &str = "whisper-1";

/// The beginnings of the names of OpenAI's recognisers that have no turn detection: their clients end turns by hand.
const WITHOUT_DETECTION: [&str; 2] = ["gpt-realtime-whisper", "gpt-live-transcribe"];

/// The session's current settings: the JSON echoed to the client, and the values the dialect uses.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) text_only: bool,
    pub(super) transcripts: bool,
    pub(super) vendor_events: bool,
    /// Whether the client ends turns by hand.
    pub(super) by_hand: bool,
    /// Whether the client has chosen its turn detection.
    chose_detection: bool,
    /// Whether the session only transcribes and never answers.
    pub(super) transcribes: bool,
    pub(super) input: Format,
    pub(super) output: Format,
    pub(super) max_tokens: MaxTokens,
    /// The voices and recognisers that the client may choose.
    pub(super) offered: Offered,
    /// The recogniser that it has chosen; `None`: the agent's own.
    recogniser: Option<String>,
    /// The voice and the speed that it has chosen; `None`: the agent's own.
    speaker: Speaker,
    /// The agent was heard, with more than its opening.
    pub(super) has_spoken: bool,
    /// The operator's default for `interrupt_response`.
    interrupt: bool,
    /// The operator's default for `threshold`, the speech probability above which the VAD reports
    /// speech.
    threshold: f64,
    /// When the session is said to expire, seconds since 1970.
    expires_at: u64,
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
                "output": {"format": format, "speed": 1.0},
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
            chose_detection: false,
            transcribes: false,
            input: Format::Pcm,
            output: Format::Pcm,
            max_tokens: MaxTokens::Unlimited,
            offered: Offered::default(),
            recogniser: None,
            speaker: Speaker::default(),
            has_spoken: false,
            interrupt: true,
            threshold: 0.5,
            expires_at: 0,
            echo,
        }
    }

    /// Sets the model's name, which is the agent's if the client has one.
    pub(super) fn set_model(&mut self, name: &str) {
        self.echo.insert("model".into(), name.into());
    }

    /// Sets when the session is said to expire, seconds since 1970.
    pub(super) fn set_expiry(&mut self, at: u64) {
        self.expires_at = at;
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
        let field = |name: &str| self.echo.get(name).cloned().unwrap_or_default();
        let mut audio = field("audio");
        if self.transcribes {
            return json!({
                "type": "transcription",
                "object": "realtime.transcription_session",
                "id": field("id"),
                "expires_at": self.expires_at,
                "include": field("include"),
                "audio": {"input": audio["input"]},
            });
        }
        audio["output"]["voice"] = self.voice_name().into();
        let mut echo = self.echo.clone();
        echo.insert("audio".into(), audio);
        echo.insert("expires_at".into(), self.expires_at.into());
        Value::Object(echo)
    }

    /// The same for a client of the beta. Before it has chosen a turn detection it is shown `server_vad`, OpenAI's
    /// default, because the types of the beta's clients list no other.
    pub(super) fn to_beta_json(&self) -> Value {
        let mut session = self.to_json();
        let detection = &mut session["audio"]["input"]["turn_detection"];
        if !self.chose_detection && detection.is_object() {
            *detection = self.filled_in(server_vad(), self.interrupt);
        }
        session
    }

    /// Leaves out a turn detection that a client of the beta was shown without having chosen it, and only sends back.
    pub(super) fn without_shown_detection(&self, mut update: SessionUpdate) -> SessionUpdate {
        let shown = &self.to_beta_json()["audio"]["input"]["turn_detection"];
        update.turn_detection = update.turn_detection.filter(|detection| {
            let is_whole = detection.threshold.is_some()
                && detection.prefix_padding_ms.is_some()
                && detection.interrupt.is_some();
            self.chose_detection || !is_whole || detection.echo != *shown
        });
        update
    }

    /// The name of the agent's voice: the one that the client gave, or else one that its types list.
    fn voice_name(&self) -> &str {
        let audio = self.echo.get("audio");
        let named = audio.and_then(|audio| audio["output"]["voice"].as_str());
        named.unwrap_or_else(|| self.offered.name_of_own())
    }

    /// A turn detection's JSON with the operator's default for what is left to the operator.
    fn filled_in(&self, mut detection: Value, interrupt: bool) -> Value {
        if detection.is_object() {
            detection["interrupt_response"] = interrupt.into();
        }
        if let Some(threshold @ Value::Null) = detection.get_mut("threshold") {
            *threshold = json!(self.threshold);
        }
        detection
    }

    /// The `audio` object of a response: format and voice of the agent's audio.
    pub(super) fn output(&self, format: Format) -> Value {
        json!({"output": {"format": format.to_json(), "voice": self.voice_name()}})
    }

    /// Refuses a voice that does not exist, another one than that in which the agent has answered, and another speed
    /// while the agent is answering.
    pub(super) fn check_voice(
        &self,
        update: &SessionUpdate,
        is_answering: bool,
    ) -> Result<(), Fault> {
        let changes = |speed: Speed| self.speaker.speed() != speed;
        if is_answering && update.speed.is_some_and(changes) {
            let message = "The speed can only be changed between responses or during the greeting.";
            return Err(Fault::new("cannot_update_speed", SPEED, message));
        }
        let Some(name) = &update.voice else {
            return Ok(());
        };
        if self.has_spoken && self.voice_named(name)? != self.speaker.voice {
            let message = "The voice cannot be changed once the agent has said more than its greeting: open another session.";
            return Err(Fault::new("cannot_update_voice", VOICE, message));
        }
        self.voice_named(name).map(drop)
    }

    /// The voice that a name means. The one that the session has may always be named: it may come from a client
    /// secret, whose issuer may have chosen from more.
    fn voice_named(&self, name: &str) -> Result<Option<String>, Fault> {
        match &self.speaker.voice {
            Some(own) if own == name => Ok(Some(own.clone())),
            _ => self.offered.voice(name, VOICE),
        }
    }

    /// The recogniser that the transcription settings name, if it is another than before; empty for the agent's own. As
    /// with a voice, the one that the session has may always be named.
    fn changed_recogniser(&mut self, transcription: &Value) -> Option<String> {
        let name = transcription["model"].as_str()?;
        if self.recogniser.as_deref() == Some(name) {
            return None;
        }
        let chosen = self.offered.recogniser(name).cloned();
        let before = std::mem::replace(&mut self.recogniser, chosen);
        (before != self.recogniser).then(|| self.recogniser.clone().unwrap_or_default())
    }

    /// The turn detection of a client that has chosen none, if an update changes it.
    fn usual_detection(&self, update: &SessionUpdate) -> Option<Detection> {
        let named = update.transcription.as_ref();
        let named = named.and_then(|transcription| transcription["model"].as_str());
        let before = self.echo.get("audio");
        let before = before.and_then(|audio| audio["input"]["transcription"]["model"].as_str());
        let model = named.or(before)?;
        let transcribes = self.transcribes || update.transcribe_only == Some(true);
        let has_none = WITHOUT_DETECTION.iter().any(|name| model.starts_with(name));
        let by_hand = transcribes && has_none;
        if self.chose_detection || by_hand == self.by_hand {
            return None;
        }
        Some(match by_hand {
            true => Detection::by_hand(),
            false => Detection::usual(),
        })
    }

    /// Applies an update. Returns the settings to pass to the conversation.
    pub(super) fn apply(&mut self, update: SessionUpdate) -> Settings {
        let mut settings = Settings::default();
        let usual = self.usual_detection(&update);
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
        self.chose_detection |= update.turn_detection.is_some();
        if let Some(detection) = update.turn_detection.or(usual) {
            self.by_hand = detection.rule == EndOfTurnRule::Client;
            let interrupt = detection.interrupt.unwrap_or(self.interrupt);
            let echo = self.filled_in(detection.echo, interrupt);
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
            let language = language(&transcription);
            settings.language = language.filter(|tag| is_tag(tag)).map(str::to_owned);
            settings.keyterms = update.keyterms;
            settings.recogniser = self.changed_recogniser(&transcription);
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

/// The language in the transcription settings. A list of one means the same; with several, the operator's are detected.
fn language(transcription: &Value) -> Option<&str> {
    let listed = transcription["languages"].as_array().map(Vec::as_slice);
    let only = match listed {
        Some([one]) => one.as_str(),
        _ => None,
    };
    transcription["language"].as_str().or(only)
}

/// The modalities' JSON in the protocol.
pub(super) fn modalities(text_only: bool) -> Value {
    json!([if text_only { "text" } else { "audio" }])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::g711::Law;
    use crate::conversation::Eagerness;
    use crate::llm::ToolChoice;
    use crate::transport::realtime::DEFAULT_VOICE;
    use crate::transport::realtime::session_config::parse;

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

    /// It was `default`, which the types of older clients do not list.
    #[test]
    fn the_agents_own_voice_has_a_name_of_openais_until_the_client_gives_one() {
        let mut session = Session::new("sess_1", "m", false);
        let shown = |session: &Session| {
            let voice = session.to_json()["audio"]["output"]["voice"].clone();
            assert_eq!(session.output(Format::Pcm)["output"]["voice"], voice);
            voice
        };
        assert_eq!(shown(&session), "alloy");
        session.offered = Offered::from_iter(["alloy".to_owned()]);
        assert_eq!(shown(&session), "ash", "alloy is another voice");
        session.has_spoken = true;
        let named = |name: &str| {
            let update = json!({"audio": {"output": {"voice": name}}});
            parse(update).expect("valid")
        };
        for name in ["ash", DEFAULT_VOICE] {
            assert_eq!(session.check_voice(&named(name), false), Ok(()));
            assert_eq!(session.apply(named(name)), Settings::default(), "{name}");
            assert_eq!(shown(&session), name);
        }
    }

    #[test]
    fn a_beta_client_without_a_choice_is_shown_the_turn_detection_that_its_types_list() {
        let mut session = Session::new("sess_1", "m", false).turns(false, 0.6);
        let shown = |session: &Session| {
            let json = session.to_beta_json();
            json["audio"]["input"]["turn_detection"].clone()
        };
        let expected = json!({
            "type": "server_vad", "threshold": 0.6, "prefix_padding_ms": 300,
            "silence_duration_ms": 500, "idle_timeout_ms": null, "create_response": true,
            "interrupt_response": false,
        });
        assert_eq!(shown(&session), expected);
        let mut choose = |detection: Value| {
            session.apply(parse(json!({"turn_detection": detection})).expect("valid"));
            shown(&session)
        };
        let semantic = choose(json!({"type": "semantic_vad"}));
        assert_eq!(semantic["type"], "semantic_vad");
        assert_eq!(choose(Value::Null), Value::Null);
    }

    /// Turns ended by silence from then on.
    #[test]
    fn a_beta_client_that_sends_back_the_turn_detection_it_was_shown_has_not_chosen_it() {
        let session = || Session::new("sess_1", "m", false).turns(false, 0.6);
        let rule = |session: &mut Session, detection: &Value| {
            let update = parse(json!({ "turn_detection": detection })).expect("valid");
            let settings = session.apply(session.without_shown_detection(update));
            settings.turn_detection.map(|detection| detection.rule)
        };
        let shown = session().to_beta_json()["audio"]["input"]["turn_detection"].clone();
        let silence = |ms: u64| Some(EndOfTurnRule::Silence { ms });
        assert_eq!(rule(&mut session(), &shown), None);
        let bare = json!({"type": "server_vad"});
        assert_eq!(rule(&mut session(), &bare), silence(500));
        let mut longer = shown.clone();
        longer["silence_duration_ms"] = json!(800);
        assert_eq!(rule(&mut session(), &longer), silence(800));
        let mut chosen = session();
        rule(&mut chosen, &json!({"type": "semantic_vad"}));
        assert_eq!(rule(&mut chosen, &shown), silence(500));
    }

    /// The update was refused. Azure's clients end turn detection so.
    #[test]
    fn turn_detection_of_the_type_none_means_null() {
        let mut session = Session::new("sess_1", "m", false);
        let update = json!({"turn_detection": {"type": "none"}});
        let settings = session.apply(parse(update).expect("valid"));
        let rule = settings.turn_detection.map(|detection| detection.rule);
        assert_eq!(rule, Some(EndOfTurnRule::Client));
        let shown = &session.to_json()["audio"]["input"]["turn_detection"];
        assert_eq!(*shown, Value::Null);
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

    /// The language that transcription settings choose.
    fn chosen(transcription: Value) -> Option<String> {
        let mut session = Session::new("sess_1", "m", false);
        let update = json!({"audio": {"input": {"transcription": transcription}}});
        session.apply(parse(update).expect("valid")).language
    }

    #[test]
    fn a_list_of_one_language_chooses_it() {
        let some = |tag: &str| Some(tag.to_owned());
        assert_eq!(chosen(json!({"languages": ["de"]})), some("de"));
        assert_eq!(
            chosen(json!({"language": "es", "languages": ["de"]})),
            some("es")
        );
        for languages in [json!(["de", "en"]), json!([]), json!("de"), json!([7])] {
            assert_eq!(chosen(json!({ "languages": languages })), None);
        }
    }

    /// Their clients commit by their own VAD, and a turn that the server had ended was an error for them.
    #[test]
    fn recognisers_without_turn_detection_leave_turns_to_the_client() {
        let with = |kind: &str, model: &str| {
            let transcription = json!({ "model": model });
            json!({"type": kind, "audio": {"input": {"transcription": transcription}}})
        };
        let mut session = Session::new("sess_1", "m", false);
        let mut rule = |update: Value| {
            let settings = session.apply(parse(update).expect("valid"));
            let shown = session.to_json()["audio"]["input"]["turn_detection"].clone();
            let rule = settings.turn_detection.map(|detection| detection.rule);
            (rule, shown)
        };
        let (unchanged, shown) = rule(with("realtime", "gpt-realtime-whisper"));
        assert_eq!((unchanged, &shown["type"]), (None, &json!("semantic_vad")));
        let by_hand = (Some(EndOfTurnRule::Client), Value::Null);
        let live = with("transcription", "gpt-live-transcribe-2026");
        assert_eq!(rule(live), by_hand);
        let language = json!({"audio": {"input": {"transcription": {"language": "de"}}}});
        assert_eq!(rule(language), (None, Value::Null));
        let (usual, shown) = rule(with("transcription", "gpt-4o-transcribe"));
        assert_eq!(usual, Some(EndOfTurnRule::Semantic));
        assert_eq!(shown["interrupt_response"], true);
        let chosen = json!({"turn_detection": {"type": "server_vad"}});
        let silence = EndOfTurnRule::Silence { ms: 500 };
        assert_eq!(rule(chosen).0, Some(silence));
        let (unchanged, shown) = rule(with("transcription", "gpt-realtime-whisper"));
        assert_eq!((unchanged, &shown["type"]), (None, &json!("server_vad")));
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
