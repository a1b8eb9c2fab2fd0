//! The configuration as a library: layers, limits and error messages.

use crate::support::tls::Authority;
use secrecy::ExposeSecret;
use std::path::{Path, PathBuf};
use std::time::Duration;
use undertone::config::{
    Config, ConfigError, Environment, Flags, LlmEngine, Loaded, PatternPlace, RemoteAsr, RemoteTts,
    Retention, SettingOrigin, load,
};
use undertone::conversation::Micros;
use undertone::conversation::Policy;
use undertone::llm::remote::{Dialect, Settings};
use undertone::llm::{Calls, Demands, Prompt};
use undertone::server::TlsSettings;
use undertone::traces::Sampler;

const REMOTE: &str =
    "[llm]\nengine = \"openai-compatible\"\nbase_url = \"http://127.0.0.1:1/v1\"\nmodel = \"m\"\n";

struct Setup {
    folder: tempfile::TempDir,
    variables: Vec<(String, String)>,
    flags: Flags,
}

/// A configuration file with this text, in a folder of its own.
fn file(text: &str) -> Setup {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("undertone.toml");
    std::fs::write(&config, text).unwrap();
    Setup {
        folder,
        variables: Vec::new(),
        flags: Flags {
            config: Some(config),
            ..Flags::default()
        },
    }
}

fn remote_model(config: &Config) -> &Settings {
    match &config.llm {
        LlmEngine::Remote(remote) => &remote.settings,
        LlmEngine::Brain => panic!("the model is embedded"),
    }
}

impl Setup {
    fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    fn beside(self, name: &str, text: &str) -> Self {
        std::fs::write(self.path(name), text).unwrap();
        self
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn load(&self) -> Result<Loaded, ConfigError> {
        let environment: Environment = self.variables.iter().cloned().collect();
        load(&self.flags, &environment)
    }

    /// Asserts that loading fails with a one-line error that contains all `parts`.
    #[track_caller]
    fn refused(&self, parts: &[&str]) {
        let error = self.load().expect_err("this must be refused").to_string();
        for part in parts {
            assert!(error.contains(part), "no {part:?} in: {error}");
        }
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn the_example_file_has_every_key_and_every_default() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("undertone.example.toml");
    let text = std::fs::read_to_string(path).unwrap();
    let example = file(&text);
    // It names this folder.
    std::fs::create_dir(example.path("tools")).unwrap();
    let example = example.load().unwrap();
    let built_in = file("").load().unwrap();
    assert_eq!(example.settings.len(), built_in.settings.len());
    for (shown, default) in example.settings.iter().zip(&built_in.settings) {
        assert_eq!((&shown.key, &shown.value), (&default.key, &default.value));
        let (_, name) = shown.key.split_once('.').unwrap();
        assert!(text.contains(&format!("{name} = ")), "{name} is missing");
        // This key has no default to show.
        if shown.key != "llm.temperature" {
            assert!(
                matches!(shown.origin, SettingOrigin::File { .. }),
                "{}",
                shown.key
            );
        }
    }
}

#[test]
fn a_limit_on_the_cost_of_tokens_needs_their_price() {
    let limit = "[speculation]\ntoken_cost_per_day = 5.0\n";
    file(limit).refused(&["undertone.toml:2: ", "set speculation.token_price"]);
    let priced = file(&format!("{limit}token_price = 2.0\n")).load().unwrap();
    let policy = priced.config.policy.speculation;
    assert_eq!(policy.token_cost_per_day, Some(5.0));
}

#[test]
fn a_draft_model_is_one_of_the_further_models() {
    let llm = "[llm]\nengine = \"openai-compatible\"\nbase_url = \"http://127.0.0.1:1/v1\"\nmodel = \"m\"\n";
    let small = "[llm.models.small]\nengine = \"anthropic\"\nbase_url = \"http://127.0.0.1:2/v1\"\nmodel = \"s\"\n";
    let draft = "[draft]\nmodel = \"small\"\n";
    let loaded = file(&format!(
        "{llm}{small}{draft}samples = 5\ntoken_price = 0.1\n"
    ));
    let config = loaded.load().unwrap().config;
    assert_eq!(config.draft.unwrap().settings.model, "s");
    let policy = config.policy.speculation.draft.expect("a draft model");
    assert_eq!((policy.samples, policy.token_cost_per_day), (5, None));
    file(&format!("{llm}{draft}")).refused(&[
        "undertone.toml:6: ",
        "draft.model = \"small\" is not among llm.models",
        "[llm.models.small]",
    ]);
    file(&format!("{llm}{small}[draft]\nmodel = \"smal\"\n")).refused(&["did you mean `small`"]);
    file(&format!("{small}{draft}")).refused(&["draft.model", "llm.engine is \"brain\""]);
    file(&format!("{llm}{small}{draft}samples = 0\n")).refused(&["draft.samples", "1 to 9"]);
    file(&format!("{llm}{small}{draft}token_cost_per_day = 2.0\n"))
        .refused(&["draft.token_cost_per_day", "set draft.token_price"]);
}

#[test]
fn without_a_file_the_policy_is_the_librarys_default() {
    assert_eq!(file("").load().unwrap().config.policy, Policy::default());
}

#[test]
fn later_layers_win_and_origins_are_tracked() {
    let origins = "https://a.example, https://b.example:8443/";
    let mut setup = file("[server]\nport = 1\ndrain_seconds = 7\n[turn]\nunsure_ms = 600\n")
        .variable("UNDERTONE_SERVER__PORT", "2")
        .variable("UNDERTONE_SERVER__ALLOWED_ORIGINS", origins)
        .variable("UNDERTONE_TURN__UNSURE_MS", "700")
        .variable("UNDERTONE_TURN__INTERRUPT", "false")
        .variable("UNDERTONE_LLM__ENGINE", "openai-compatible")
        .variable("UNDERTONE_LLM__BASE_URL", "http://127.0.0.1:1/v1")
        .variable("UNDERTONE_LLM__TEMPERATURE", "1")
        .variable("UNDERTONE_LLM__MODEL", "7");
    setup.flags.port = Some(3);
    let loaded = setup.load().unwrap();
    let config = &loaded.config;
    assert_eq!(config.server.bind.port(), 3);
    assert_eq!(config.server.drain_deadline, Duration::from_secs(7));
    assert_eq!(
        config.server.allowed_origins,
        ["https://a.example", "https://b.example:8443"]
    );
    assert_eq!(config.policy.endpoint.unsure_ms, 700);
    assert!(!config.policy.turn_detection.interrupt);
    let llm = remote_model(config);
    assert_eq!(llm.temperature, Some(1.0));
    assert_eq!(llm.model, "7");

    let origin = |key: &str| {
        let mut settings = loaded.settings.iter();
        settings.find(|s| s.key == key).unwrap().origin.clone()
    };
    let unsure = SettingOrigin::Env("UNDERTONE_TURN__UNSURE_MS".into());
    assert_eq!(origin("server.port"), SettingOrigin::Flag("--port".into()));
    assert_eq!(origin("turn.unsure_ms"), unsure);
    let path = setup.path("undertone.toml");
    assert_eq!(
        origin("server.drain_seconds"),
        SettingOrigin::File { path, line: 3 }
    );
    assert_eq!(origin("server.host"), SettingOrigin::Default);
}

#[test]
fn unknown_names_are_refused_with_a_suggestion() {
    file("# hm\n[server]\nprot = 1\n").refused(&[
        "undertone.toml:3: ",
        "[server]",
        "`prot`",
        "did you mean `port`",
    ]);
    file("[servre]\nport = 1\n").refused(&["undertone.toml:1: ", "did you mean `server`"]);
    file("port = 1\n").refused(&["undertone.toml:1: ", "`port` stands outside"]);
    file("server = 1\n").refused(&["undertone.toml:1: ", "`server` is a section"]);
    file("")
        .variable("UNDERTONE_SERVER__PROT", "1")
        .refused(&["did you mean UNDERTONE_SERVER__PORT"]);
    file("")
        .variable("UNDERTONE_X__Y", "1")
        .refused(&["UNDERTONE_X__Y", "UNDERTONE_SECTION__KEY"]);
}

#[test]
fn kubernetes_service_variables_are_ignored() {
    let loaded = file("")
        .variable("UNDERTONE_PORT", "tcp://10.0.0.1:8080")
        .variable("UNDERTONE_PORT_8080_TCP_ADDR", "10.0.0.1")
        .variable("UNDERTONE_SERVICE_HOST", "10.0.0.1")
        .variable("UNDERTONE_SERVICE_PORT", "8080")
        .variable("UNDERTONE_AUTH_TOKN", "canary-canary-canary")
        .load()
        .unwrap();
    assert_eq!(loaded.config.server.bind.port(), 8787);
    assert!(loaded.config.server.auth_token.is_none());
    let names: Vec<&str> = loaded.ignored.iter().map(|i| i.name.as_str()).collect();
    assert_eq!(names.len(), 5, "{names:?}");
    // A typo is reported without its value.
    let slip = loaded.ignored.iter().find(|i| i.name.ends_with("TOKN"));
    assert_eq!(slip.unwrap().meant, Some("UNDERTONE_AUTH_TOKEN"));
    assert!(!format!("{:?}", loaded.ignored).contains("canary"));
}

#[test]
fn wrong_types_and_values_are_refused_with_what_is_allowed() {
    let cases: &[(&str, &[&str])] = &[
        (
            "[server]\n\nport = \"80\"",
            &["toml:3: ", "server.port = \"80\"", "a whole number"],
        ),
        (
            "[server]\nport = 70000",
            &["toml:2: ", "server.port = 70000", "0 to 65535"],
        ),
        (
            "[server]\nallowed_origins = [\"a\", 1]",
            &["server.allowed_origins", "a list of texts"],
        ),
        (
            "[server]\nallowed_origins = [\"*\"]",
            &["server.allowed_origins", "https://example.org"],
        ),
        (
            "[turn]\nvad_threshold = 1.5",
            &["turn.vad_threshold = 1.5", "0.05 to 0.95"],
        ),
        ("[turn]\nvad_threshold = nan", &["turn.vad_threshold"]),
        (
            "[llm]\nstall_filler_ms = -7000",
            &["llm.stall_filler_ms = -7000", "100 to 60000"],
        ),
        (
            "[llm]\ngive_up_ms = 1000",
            &["llm.stall_filler_ms = 1500", "llm.give_up_ms = 1000"],
        ),
        (
            "[turn]\nunsure_ms = 1600",
            &["toml:2: ", "turn.unsure_ms = 1600", "turn.incomplete_ms"],
        ),
        (
            "[turn]\nincomplete_ms = 300",
            &["toml:2: ", "turn.incomplete_ms = 300"],
        ),
        (
            "[llm]\nengine = \"brian\"",
            &["llm.engine = \"brian\"", "did you mean \"brain\""],
        ),
        (
            "[session]\ntime_zone = \"Mars/Olympus\"",
            &["Mars/Olympus", "Europe/Berlin"],
        ),
        (
            "[asterisk]\naudiosocket = \"localhost\"",
            &[
                "toml:2: ",
                "asterisk.audiosocket = \"localhost\"",
                "127.0.0.1:9092",
            ],
        ),
        (
            "[webrtc]\nadvertise = [\"example.org\"]",
            &["webrtc.advertise", "example.org", "203.0.113.7"],
        ),
        ("[webrtc]\nadvertise = [\"0.0.0.0\"]", &["webrtc.advertise"]),
        ("[webrtc]\nudp_port = 70000", &["webrtc.udp_port"]),
        (
            "[wyoming]\nlisten = \"10300\"",
            &["wyoming.listen", "127.0.0.1:10300"],
        ),
        ("[log]\nlevel = \"undertone=loud\"", &["log.level", "debug"]),
        ("[server", &["toml:1: ", "not TOML"]),
    ];
    for (text, parts) in cases {
        file(text).refused(parts);
    }
    file("")
        .variable("UNDERTONE_SERVER__PORT", "lots")
        .refused(&[
            "variable UNDERTONE_SERVER__PORT",
            "\"lots\"",
            "a whole number",
        ]);
}

/// It was taken for the name of a module, and nothing at all was logged.
#[test]
fn a_word_that_is_no_log_level_is_refused() {
    file("[log]\nlevel = \"warning\"").refused(&[
        "undertone.toml:2: ",
        "log.level = \"warning\"",
        "did you mean \"warn\"",
    ]);
    file("").variable("UNDERTONE_LOG", "verbose").refused(&[
        "variable UNDERTONE_LOG: ",
        "log.level",
        "error, warn, info",
    ]);
    let leveled = |level: &str| file("").variable("UNDERTONE_LOG", level);
    for level in ["WARNING", " warn", "verbose,hyper=warn"] {
        leveled(level).refused(&["log.level", "is no level"]);
    }
    for level in [
        "off",
        "WARN",
        "undertone",
        "undertone=debug,info",
        "undertone::session",
        "hyper=debug",
        "hyper::client",
        "tokio_tungstenite",
        "info,hyper",
        "[session]=debug",
    ] {
        let loaded = leveled(level).load();
        assert_eq!(loaded.unwrap().config.log.filter, level);
    }
}

/// Not even errors of this program were logged.
#[test]
fn a_log_level_without_a_word_is_refused() {
    file("[log]\nlevel = \"\"").refused(&[
        "undertone.toml:2: ",
        "log.level = \"\" logs nothing",
        "error, warn, info",
        "off",
    ]);
    for level in ["", "  ", ",", " , "] {
        let blank = file("").variable("UNDERTONE_LOG", level);
        blank.refused(&["variable UNDERTONE_LOG: ", "log.level", "logs nothing"]);
    }
}

#[test]
fn listening_beyond_loopback_requires_a_token_or_insecure() {
    let open = "[server]\nhost = \"0.0.0.0\"\n";
    file(open).refused(&["toml:2: ", "UNDERTONE_AUTH_TOKEN", "--insecure"]);
    assert!(file(&format!("{open}insecure = true")).load().is_ok());
    let with = |token| file(open).variable("UNDERTONE_AUTH_TOKEN", token);
    assert!(with("0123456789abcdef").load().is_ok());
    with("short").refused(&["UNDERTONE_AUTH_TOKEN", "at least 16"]);
    // An empty variable counts as not set.
    with("").refused(&["server.host"]);
}

#[test]
fn the_udp_port_and_the_addresses_of_webrtc_are_read() {
    let shipped = file("").load().unwrap().config.webrtc;
    assert_eq!((shipped.port, shipped.advertise.len()), (None, 0));
    let text = "[webrtc]\nudp_port = 3478\nadvertise = [\"203.0.113.7\", \"2001:db8::7\"]";
    let set = file(text).load().unwrap().config.webrtc;
    assert_eq!(set.port, Some(3478));
    let addresses: Vec<String> = set.advertise.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["203.0.113.7", "2001:db8::7"]);
}

#[test]
fn protocols_without_authentication_require_loopback_or_insecure() {
    let doors: [(_, _, fn(&Config) -> _); 2] = [
        ("asterisk", "audiosocket", |config| config.audiosocket),
        ("wyoming", "listen", |config| config.wyoming),
    ];
    for (section, key, door) in doors {
        let at = |address: &str| file(&format!("[{section}]\n{key} = \"{address}\"\n"));
        let bound = |setup: &Setup| door(&setup.load().unwrap().config);
        assert_eq!(bound(&file("")), None);
        for address in ["127.0.0.1:9092", "[::1]:0"] {
            assert_eq!(bound(&at(address)), Some(address.parse().unwrap()));
        }
        let open = at("0.0.0.0:9092").variable("UNDERTONE_AUTH_TOKEN", "0123456789abcdef");
        let name = format!("{section}.{key}");
        open.refused(&["toml:2: ", &name, "no authentication", "--insecure"]);
        let meant = at("0.0.0.0:9092").variable("UNDERTONE_SERVER__INSECURE", "true");
        assert!(bound(&meant).is_some());
    }
}

#[test]
fn a_remote_model_needs_an_address_and_a_name() {
    let remote = "[llm]\nengine = \"openai-compatible\"\n";
    file(remote).refused(&["toml:2: ", "llm.base_url"]);
    let addressed = format!("{remote}base_url = \"http://127.0.0.1:1/v1\"\n");
    file(&addressed).refused(&["llm.model"]);
    let named = file(&format!("{addressed}model = \"m\"\n"));
    let config = named.load().unwrap().config;
    assert_eq!(
        remote_model(&config).base_url.as_str(),
        "http://127.0.0.1:1/v1"
    );
    file("[llm]\nbase_url = \"ftp://x\"\n").refused(&["llm.base_url", "http"]);
}

/// The error did not say what else to type.
#[test]
fn the_address_that_azures_portal_shows_is_refused_with_the_one_to_use() {
    let shown = "https://hotel.openai.azure.com/openai/deployments/mini/chat/completions?api-version=2024-10-21";
    let remote = |engine: &str| {
        file(&format!(
            "[llm]\nengine = \"{engine}\"\nbase_url = \"{shown}\"\n"
        ))
    };
    remote("openai-compatible").refused(&[
        "llm.base_url",
        "up to /v1",
        "https://RESOURCE.openai.azure.com/openai/v1",
        "deployment's name",
    ]);
    let error = remote("anthropic").load().unwrap_err().to_string();
    assert!(error.contains("up to /v1"), "{error}");
    assert!(!error.contains("RESOURCE"), "{error}");
}

/// The local brain answered instead, without a word about it.
#[test]
fn a_remote_model_without_an_engine_is_refused() {
    let fix = "add engine = \"openai-compatible\"";
    let base_url = "base_url = \"http://127.0.0.1:1/v1\"\n";
    let backup = format!("[llm.models.backup]\n{base_url}model = \"b\"\n");
    file(&format!("[llm]\n{base_url}model = \"m\"\n")).refused(&["toml:2: ", "llm.base_url", fix]);
    file("[llm]\nmodel = \"m\"\n").refused(&["toml:2: ", "llm.model", fix]);
    file(&format!("[llm]\nfallback = \"backup\"\n{backup}")).refused(&["llm.fallback", fix]);
    file("")
        .variable("UNDERTONE_LLM__MODEL", "m")
        .refused(&["variable UNDERTONE_LLM__MODEL: ", fix]);
    let is_brain = |text: &str| {
        let config = file(text).load().unwrap().config;
        assert!(matches!(config.llm, LlmEngine::Brain), "{text}");
    };
    // Further models are for agents, and who chooses the local brain may keep the rest.
    is_brain(&backup);
    is_brain("[llm]\ninstructions = \"Be kind.\"\nbase_url = \"\"\n");
    is_brain(&format!(
        "[llm]\nengine = \"brain\"\n{base_url}model = \"m\"\n"
    ));
}

#[test]
fn a_second_model_has_the_settings_of_the_first_and_is_named() {
    let llm = "[llm]\nengine = \"openai-compatible\"\nbase_url = \"http://127.0.0.1:1/v1\"\nmodel = \"m\"\n";
    let backup = "[llm.models.backup]\nbase_url = \"http://127.0.0.1:2/v1\"\nmodel = \"b\"\n";
    let text = format!(
        "{llm}fallback = \"backup\"\nextra_body = {{ top_k = 1 }}\n{backup}calls = \"native\"\n\
         api_key_file = \"key\"\n"
    );
    let loaded = file(&text).beside("key", "canary-canary").load().unwrap();
    let LlmEngine::Remote(primary) = &loaded.config.llm else {
        panic!("a remote model");
    };
    assert_eq!(primary.settings.extra_body["top_k"], 1);
    let second = primary.fallback.as_ref().unwrap();
    assert_eq!(second.settings.model, "b");
    assert_eq!(second.settings.calls, Calls::Native);
    assert_eq!(second.settings.max_tokens, Some(512));
    assert!(second.settings.api_key.is_some());

    file(&format!("{llm}fallback = \"other\"\n{backup}")).refused(&[
        "llm.fallback",
        "other",
        "llm.models",
    ]);
    let first = "[llm.models.first]\nbase_url = \"http://127.0.0.1:3/v1\"\nmodel = \"f\"\n";
    let text = format!("{llm}{backup}{first}fallback = \"backup\"\n");
    let config = file(&text).load().unwrap().config;
    let stands_in = |name: &str| {
        let fallback = config.further_llms[name].fallback.as_ref();
        fallback.map(|model| model.settings.model.clone())
    };
    assert_eq!(
        (stands_in("first"), stands_in("backup")),
        (Some("b".into()), None)
    );
    file(&format!("{llm}{backup}fallback = \"backup\"\n"))
        .refused(&["llm.models.backup.fallback", "itself"]);
    file(&format!("{llm}{backup}fallback = \"gone\"\n"))
        .refused(&["llm.models.backup.fallback", "gone"]);
    file(&format!("{llm}[llm.models.backup]\nmodel = \"b\"\n"))
        .refused(&["llm.models.backup.base_url"]);
    file(&format!("{llm}calls = \"nativ\"\n")).refused(&["llm.calls", "native"]);
    file(&format!("{llm}tool_cache = true\n"))
        .refused(&["llm.tool_cache", "set llm.calls = \"native\""]);
    let cached = file(&format!("{llm}tool_cache = true\ncalls = \"native\"\n"));
    assert!(remote_model(&cached.load().unwrap().config).tool_cache);
    file(&format!("{llm}{backup}modle = \"b\"\n")).refused(&["toml", "modle"]);
}

const SERVICES: &str = "[asr.services.far]\nbase_url = \"http://127.0.0.1:1/v1\"\nmodel = \"w\"\n\
                        [tts.services.amy]\nbase_url = \"http://127.0.0.1:1/v1\"\nmodel = \"t\"\nvoice = \"alloy\"\n";

#[test]
fn recognisers_and_voices_on_servers_are_read() {
    let text = format!(
        "[asr]\nservice = \"far\"\n[tts]\nservice = \"amy\"\n{SERVICES}api_key_file = \"key\"\n"
    );
    let loaded = file(&text).beside("key", "canary-canary").load().unwrap();
    let speech = &loaded.config.speech;
    assert_eq!(speech.recogniser.as_deref(), Some("far"));
    assert_eq!(loaded.config.policy.speaker.voice.as_deref(), Some("amy"));
    let RemoteAsr::OpenAi(recogniser) = &speech.recognisers["far"] else {
        panic!("another engine");
    };
    assert_eq!(recogniser.model, "w");
    let RemoteTts::OpenAi(voice) = &speech.voices["amy"] else {
        panic!("another engine");
    };
    assert_eq!(
        (voice.voice.as_str(), voice.api_key.is_some()),
        ("alloy", true)
    );
    assert!(!format!("{speech:?}").contains("canary"));

    let agent = "recogniser = \"far\"\nvoice = \"amy\"\n";
    let config = with_agents(SERVICES, &[("desk", agent)])
        .load()
        .unwrap()
        .config;
    assert_eq!(config.agents[0].recogniser.as_deref(), Some("far"));
    assert_eq!(config.agents[0].voice.as_deref(), Some("amy"));
    with_agents(SERVICES, &[("desk", "recogniser = \"fra\"\n")]).refused(&[
        "desk.toml:1",
        "recogniser",
        "known are: far",
    ]);
}

#[test]
fn the_services_of_a_vendor_are_at_its_address() {
    let nova = "[asr.services.nova]\nengine = \"deepgram\"\nmodel = \"nova-3\"\n";
    let address = |text: &str| {
        let speech = file(text).load().unwrap().config.speech;
        let RemoteAsr::Deepgram(nova) = &speech.recognisers["nova"] else {
            panic!("another engine");
        };
        nova.base_url.to_string()
    };
    assert_eq!(address(nova), "https://api.deepgram.com/v1");
    let flux = nova.replace("nova-3", "flux-general-en");
    assert_eq!(address(&flux), "https://api.deepgram.com/v2");
    let old = format!("{flux}base_url = \"http://127.0.0.1:1/v1\"\n");
    file(&old).refused(&["asr.services.nova.base_url", "flux-general-en", "/v2"]);
    let own = format!("{nova}base_url = \"http://127.0.0.1:1/v1\"\n");
    assert_eq!(address(&own), "http://127.0.0.1:1/v1");
    let voice = |engine: &str| {
        let amy =
            format!("[tts.services.amy]\nengine = \"{engine}\"\nmodel = \"m\"\nvoice = \"v\"\n");
        let speech = file(&amy).load().unwrap().config.speech;
        match &speech.voices["amy"] {
            RemoteTts::ElevenLabs(amy) => amy.base_url.to_string(),
            RemoteTts::Cartesia(amy) => amy.base_url.to_string(),
            RemoteTts::OpenAi(_) => panic!("another engine"),
        }
    };
    assert_eq!(voice("elevenlabs"), "https://api.elevenlabs.io/v1");
    assert_eq!(voice("cartesia"), "https://api.cartesia.ai/");
}

#[test]
fn languages_to_detect_are_refused_with_an_engine_that_detects_none() {
    let both = "[asr]\nengine = \"whisper-cpp\"\nlanguages = [\"de\"]\n";
    file(both).refused(&["asr.languages", "\"de\"", "whisper-cpp", "whisper-onnx"]);
}

#[test]
fn a_mistake_in_a_speech_service_names_key_and_fix() {
    file("[asr]\nlanguages = [\"de_DE\"]\n").refused(&["asr.languages", "de_DE", "BCP 47"]);
    file("[asr]\nengine = \"whisper-cpp\"\nmodel = \"whisper-base\"\n").refused(&[
        "asr.model",
        "whisper-base",
        "whisper-onnx",
    ]);
    file(&format!("[asr]\nservice = \"fra\"\n{SERVICES}")).refused(&[
        "asr.service",
        "fra",
        "known are: far",
    ]);
    file("[tts]\nservice = \"amy\"\n").refused(&["tts.service", "[tts.services.amy]"]);
    file("[asr.services.far]\nmodel = \"w\"\n").refused(&["asr.services.far.base_url", "/v1"]);
    let far = "[asr.services.far]\nbase_url = \"http://127.0.0.1:1/v1\"\n";
    file(far).refused(&["asr.services.far.model", "missing"]);
    file(&format!("{far}model = \"a\\nb\"\n")).refused(&["asr.services.far.model", "character"]);
    file(&format!("{far}model = \"w\"\nengine = \"whisper\"\n"))
        .refused(&["asr.services.far.engine", "openai-compatible"]);
    file(&format!("{far}model = \"w\"\nvoice = \"x\"\n")).refused(&["voice"]);
    file(&format!("{far}model = \"w\"\napi_key_env = \"NOT_SET\"\n"))
        .refused(&["asr.services.far.api_key_env", "NOT_SET"]);
    file(&format!("[tts]\nvoices = {{ amy = \".\" }}\n{SERVICES}")).refused(&[
        "tts.services",
        "tts.voices",
        "amy",
    ]);
}

#[test]
fn anthropic_has_an_address_of_its_own_and_entries_have_an_engine() {
    let anthropic = "engine = \"anthropic\"\nmodel = \"m\"\n";
    let config = file(&format!("[llm]\n{anthropic}")).load().unwrap().config;
    let settings = remote_model(&config);
    assert_eq!(settings.dialect, Dialect::Messages);
    assert_eq!(settings.base_url.as_str(), "https://api.anthropic.com/v1");
    file("[llm]\nengine = \"anthropic\"\n").refused(&["llm.model"]);

    let primary = "[llm]\nengine = \"openai-compatible\"\nbase_url = \"http://127.0.0.1:1/v1\"\n\
                   model = \"m\"\nfallback = \"other\"\n[llm.models.other]\n";
    let config = file(&format!("{primary}{anthropic}"))
        .load()
        .unwrap()
        .config;
    assert_eq!(remote_model(&config).dialect, Dialect::ChatCompletions);
    let LlmEngine::Remote(remote) = &config.llm else {
        panic!("the model is embedded")
    };
    let other = remote.fallback.as_ref().unwrap();
    assert_eq!(other.settings.dialect, Dialect::Messages);
    file(&format!("{primary}engine = \"brain\"\nmodel = \"m\"\n"))
        .refused(&["llm.models.other.engine", "openai-compatible, anthropic"]);
}

#[test]
fn secrets_are_read_from_files_and_variables_and_never_printed() {
    let canary = "canary-canary-canary";
    let llm = "[llm]\nengine = \"openai-compatible\"\nbase_url = \"http://127.0.0.1:1/v1\"\nmodel = \"m\"\n";
    let text = format!("[server]\nauth_token_file = \"token\"\n{llm}api_key_env = \"MY_KEY\"\n");
    let setup = file(&text)
        .beside("token", &format!("{canary}\n"))
        .variable("MY_KEY", canary);
    let loaded = setup.load().unwrap();
    let token = loaded.config.server.auth_token.as_ref().unwrap();
    let key = remote_model(&loaded.config).api_key.as_ref().unwrap();
    assert_eq!(
        (token.expose_secret(), key.expose_secret()),
        (canary, canary)
    );
    assert!(!format!("{loaded:?}").contains(canary));
    file("[llm]\napi_key_env = \"MY_KEY\"\n").refused(&["toml:2: ", "MY_KEY", "not set"]);
    file("[llm]\napi_key_file = \"nowhere\"\n").refused(&["llm.api_key_file", "nowhere"]);
}

#[test]
fn a_secret_typed_in_the_wrong_place_is_not_repeated() {
    for text in [
        "[llm]\napi_key_env = \"canary-canary-canary\"",
        "[llm]\nbase_url = \"http://u:canary@h/v1\"",
        "[llm]\nbase_url = \"http://h/v1?key=canary\"",
        "[server]\nauth_token = \"canary-canary-canary\"",
        "[server]\nauth_token = canary-canary-canary",
    ] {
        let error = file(text).load().unwrap_err().to_string();
        assert!(!error.contains("canary"), "{error}");
    }
    let error = file("")
        .variable("UNDERTONE_LLM__API_KY_FILE", "canary-canary-canary")
        .load()
        .unwrap_err();
    assert!(!error.to_string().contains("canary"), "{error}");
}

#[test]
fn paths_in_the_file_are_relative_to_its_folder() {
    let setup = file("[llm]\ninstructions_file = \"prompt.md\"\n[models]\ndir = \"weights\"\n")
        .beside("prompt.md", "Be kind.\n");
    let config = setup.load().unwrap().config;
    assert_eq!(
        config.policy.briefing.instructions.as_deref(),
        Some("Be kind.")
    );
    assert_eq!(config.models, setup.path("weights"));
    let elsewhere = file("[models]\ndir = \"weights\"\n").variable("UNDERTONE_MODELS", "there");
    let dir = elsewhere.load().unwrap().config.models;
    assert_eq!(dir, Path::new("there"));
}

#[test]
fn a_missing_file_is_an_error_only_if_it_was_named() {
    let nowhere = Flags {
        config: Some("/nowhere/undertone.toml".into()),
        ..Flags::default()
    };
    let error = load(&nowhere, &Environment::default()).unwrap_err();
    assert!(error.to_string().contains("/nowhere/undertone.toml"));
    assert_eq!(error.origin, SettingOrigin::Flag("--config".into()));
    assert!(load(&Flags::default(), &Environment::default()).is_ok());
}

#[test]
fn declared_tools_are_part_of_the_configuration() {
    let tool = |url: &str| {
        format!(
            "name = \"t\"\nkind = \"http\"\ndescription = \"d\"\neffect = \"read\"\n[http]\nurl = \"{url}\""
        )
    };
    let with = |url: &str| {
        let setup = file("[tools]\nfolder = \"mine\"\njournal = \"j.jsonl\"");
        std::fs::create_dir(setup.path("mine")).unwrap();
        setup.beside("mine/t.toml", &tool(url))
    };
    let setup = with("https://example.org/");
    let loaded = setup.load().unwrap();
    assert_eq!(loaded.config.tools.declared.len(), 1);
    assert_eq!(loaded.config.tools.journal, setup.path("j.jsonl"));
    with("http://127.0.0.1/").refused(&["mine/t.toml:6", "http.url", "allow_private"]);
    file("[tools]\nfolder = \"absent\"").refused(&["undertone.toml:2", "tools.folder", "absent"]);
    let none = file("").load().unwrap();
    assert!(
        none.config
            .tools
            .journal
            .ends_with("undertone/journal.jsonl")
    );
    let off = file("[tools]\nfolder = \"\"").load().unwrap();
    assert!(off.config.tools.declared.is_empty());
}

/// The server looked for them in the working directory, and ran without them.
#[test]
fn the_default_folder_of_tools_is_beside_the_configuration_file() {
    let tool = "name = \"beside\"\nkind = \"http\"\ndescription = \"d\"\neffect = \"read\"\n\
                [http]\nurl = \"https://example.org/\"";
    // Tests run in a folder that has tools of its own.
    let without = file("").load().unwrap().config.tools;
    assert_eq!(without.folder, None);
    assert!(without.declared.is_empty());
    let setup = file("");
    std::fs::create_dir(setup.path("tools")).unwrap();
    let setup = setup.beside("tools/beside.toml", tool);
    let found = setup.load().unwrap().config.tools;
    assert_eq!(found.folder, Some(setup.path("tools")));
    let names = found.declared.iter();
    let names: Vec<&str> = names
        .map(|tool| tool.declaration.spec.name.as_str())
        .collect();
    assert_eq!(names, ["beside"]);
    let shipped = setup.variable("UNDERTONE_TOOLS__FOLDER", "tools");
    let shipped = shipped.load().unwrap().config.tools;
    assert_eq!(shipped.folder.as_deref(), Some(Path::new("tools")));
}

/// A server ran without its operator's tools and said nothing.
#[test]
fn a_missing_folder_of_tools_is_refused_if_it_is_named_and_known_if_it_is_not() {
    file("[tools]\nfolder = \"tools\"").refused(&[
        "undertone.toml:2: ",
        "tools.folder: there is no folder",
        "/tools",
    ]);
    let setup = file("");
    let tools = setup.load().unwrap().config.tools;
    assert_eq!(
        (tools.folder, tools.missing),
        (None, Some(setup.path("tools")))
    );
    let off = file("[tools]\nfolder = \"\"").load().unwrap().config.tools;
    assert_eq!((off.folder, off.missing), (None, None));
}

const TWILIO: &str = "[twilio]\npublic_url = 'https://voice.example.com'\n\
                      account_sid = 'AC0123456789abcdef0123456789abcdef'\n";

#[test]
fn a_webhook_needs_an_address_and_a_secret() {
    let secret = "UNDERTONE_WEBHOOK_SECRET";
    let url = "[webhook]\nurl = 'https://example.com/calls'\n";
    file(url).refused(&["webhook.url", secret, "openssl rand"]);
    file(url)
        .variable(secret, "canary-canary-canary")
        .refused(&[secret, "whsec_", "24 bytes"]);
    file("[webhook]\nurl = 'example.com'").refused(&["webhook.url", "https://example.com/calls"]);
    let key = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let typed = format!("whsec_{key}");
    let loaded = file(url).variable(secret, &typed).load().unwrap();
    assert!(!format!("{loaded:?}").contains(key));
    let webhook = loaded.config.webhook.expect("a webhook");
    assert_eq!(webhook.url.as_str(), "https://example.com/calls");
    let in_file = file(&format!("{url}secret_file = 'secret'")).beside("secret", &typed);
    assert!(in_file.load().unwrap().config.webhook.is_some());
    assert!(file("").load().unwrap().config.webhook.is_none());
}

#[test]
fn twilio_needs_an_account_and_a_token() {
    let token = "UNDERTONE_TWILIO_AUTH_TOKEN";
    file(TWILIO).refused(&["twilio.public_url", token]);
    file("[twilio]\npublic_url = 'https://voice.example.com'\naccount_sid = 'AC12'")
        .variable(token, "secret-of-twilio")
        .refused(&["twilio.account_sid", "32 hexadecimal digits"]);
    for address in [
        "voice.example.com",
        "ftp://x",
        "https://u:p@x",
        "https://x/?a=1",
    ] {
        file(&format!("[twilio]\npublic_url = '{address}'"))
            .variable(token, "secret-of-twilio")
            .refused(&["twilio.public_url", "https://voice.example.com"]);
    }
    let loaded = file(TWILIO)
        .variable(token, "secret-of-twilio")
        .load()
        .unwrap();
    assert!(!format!("{:?}", loaded.config).contains("secret-of-twilio"));
    assert!(!format!("{:?}", loaded.settings).contains("secret-of-twilio"));
    let mut settings = loaded.settings.iter();
    let shown = settings.find(|setting| setting.key == "twilio.auth_token");
    assert_eq!(shown.unwrap().origin, SettingOrigin::Env(token.into()));
    let twilio = loaded.config.server.twilio.expect("an account");
    assert_eq!(twilio.auth_token.expose_secret(), "secret-of-twilio");
    assert_eq!(
        twilio.voice_url().as_str(),
        "https://voice.example.com/twilio/voice"
    );
    assert!(!twilio.relay, "audio is the default");
    let relay = file(&format!("{TWILIO}relay = true")).variable(token, "secret-of-twilio");
    assert!(relay.load().unwrap().config.server.twilio.unwrap().relay);
}

#[test]
fn phrases_may_come_from_a_file() {
    let with = "[session]\nphrases_file = \"mine.toml\"\n";
    let phrases = |text: &str| file(with).beside("mine.toml", text);
    let loaded = phrases("goodbye = 'So long.'").load().unwrap();
    assert_eq!(loaded.config.policy.phrases.goodbye, "So long.");
    phrases("goodby = 'So long.'").refused(&["session.phrases_file", "mine.toml", "goodby"]);
    phrases("goodbye =").refused(&["session.phrases_file", "mine.toml", "line 1"]);
    file(with).refused(&["session.phrases_file", "mine.toml"]);
}

#[test]
fn transfer_targets_must_be_telephone_numbers() {
    let with = |transfer: &str| {
        file(&format!("{TWILIO}\ntransfer = {transfer}"))
            .variable("UNDERTONE_TWILIO_AUTH_TOKEN", "secret-of-twilio")
    };
    let loaded = with("{ reception = '+15551234567' }").load().unwrap();
    let twilio = loaded.config.server.twilio.expect("an account");
    assert_eq!(twilio.transfer["reception"], "+15551234567");
    for number in ["5551234567", "+1 555 123 4567", "+1", "<Dial>", ""] {
        with(&format!("{{ reception = '{number}' }}")).refused(&[
            "twilio.transfer",
            "reception",
            "+15551234567",
        ]);
    }
}

#[test]
fn without_an_address_there_is_no_twilio() {
    assert!(file("").load().unwrap().config.server.twilio.is_none());
}

#[test]
fn a_silent_caller_is_asked_after_ten_seconds_or_never() {
    let silence = |text: &str| file(text).load().unwrap().config.phone.silence_prompt;
    assert_eq!(silence(""), Some(Micros::from_ms(10_000)));
    assert_eq!(silence("[phone]\nsilence_seconds = 0"), None);
}

#[test]
fn an_own_prompt_is_used_and_checked_with_its_file_and_line() {
    let shipped = include_str!("../../prompts/system.j2");
    let config = format!("{REMOTE}prompt_file = \"own.j2\"\nspeaks_before_calls = false\n");
    let own = shipped.replace("You are a voice agent", "You are a canary");
    let loaded = file(&config).beside("own.j2", &own).load().unwrap();
    let LlmEngine::Remote(remote) = &loaded.config.llm else {
        panic!("the model is embedded");
    };
    let prompt = Prompt {
        instructions: Some("Be kind.".into()),
        day: None,
        messages: Vec::new(),
        tools: Vec::new().into(),
        demands: Demands::default(),
    };
    let system = remote.prompts.chat(&prompt).unwrap().remove(0).content;
    assert!(
        system.starts_with("You are a canary") && system.ends_with("Be kind."),
        "{system}"
    );
    for (text, parts) in [
        (
            shipped.replace("{{ instructions }}", ""),
            ["own.j2:1: ", "llm.prompt_file", "{{ instructions }}"],
        ),
        (
            shipped.replace("in tools", "in toolz"),
            ["own.j2:", "`toolz`", "tools, instructions"],
        ),
        (
            "Hi\n{{ tools".into(),
            ["own.j2:2: ", "not a template", "{{ name }}"],
        ),
    ] {
        let error = file(&config)
            .beside("own.j2", &text)
            .load()
            .unwrap_err()
            .to_string();
        for part in parts {
            assert!(error.contains(part), "{part}: {error}");
        }
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    let missing = file(&config).load().unwrap_err().to_string();
    assert!(
        missing.contains("undertone.toml:5: ") && missing.contains("llm.prompt_file"),
        "{missing}"
    );
    let unknown = file(&format!("{REMOTE}call_form = \"xml\"\n"))
        .load()
        .unwrap_err()
        .to_string();
    assert!(
        unknown.contains("llm.call_form") && unknown.contains("python, json, hermes"),
        "{unknown}"
    );
}

const MODELS: &str = "[llm.models.fast]\nbase_url = \"http://127.0.0.1:1/v1\"\nmodel = \"m\"\n";

/// A configuration with a model `fast` and these agents.
fn with_agents(text: &str, agents: &[(&str, &str)]) -> Setup {
    let setup = file(&format!("{text}\n{MODELS}"));
    std::fs::create_dir(setup.path("agents")).unwrap();
    let add = |setup: Setup, (name, text): &(&str, &str)| {
        setup.beside(&format!("agents/{name}.toml"), text)
    };
    agents.iter().fold(setup, add)
}

#[test]
fn agents_and_routes_are_read() {
    let billing = "description = \"invoices\"\ninstructions_file = \"billing.txt\"\nmodel = \"fast\"\n\
                   tools = [\"get_time\"]\nspeculation = false\nplans = true\nhandoff = [\"default\"]\nby_name = true\n";
    let routes = "[[route]]\ncalled = \"+15550100\"\nheader.X-Line = \"2\"\nparam = { plan = \"gold\" }\n\
                  trust = \"claimed\"\nagent = \"billing\"\n[[route]]\nagent = \"default\"\n";
    let setup = with_agents(routes, &[("billing", billing)]);
    let config = setup
        .beside("agents/billing.txt", "You are billing.")
        .load()
        .unwrap()
        .config;
    let [agent] = config.agents.as_slice() else {
        panic!("{:?}", config.agents);
    };
    assert_eq!(agent.instructions.as_deref(), Some("You are billing."));
    assert_eq!(
        (agent.model.as_deref(), agent.speculation, agent.plans),
        (Some("fast"), Some(false), Some(true))
    );
    assert!(
        agent
            .tools
            .as_ref()
            .is_some_and(|tools| tools.contains("get_time"))
    );
    assert_eq!(config.routes.len(), 2);
    assert_eq!(config.routes[0].values.len(), 3);
    assert_eq!(config.routes[1].agent, "default");
    assert!(file("").load().unwrap().config.agents.is_empty());
}

#[test]
fn a_mistake_in_an_agent_names_file_key_and_fix() {
    let refused = |agent: &str, parts: &[&str]| {
        let desk = ("desk", "instructions = \"Be kind.\"\n");
        let setup = with_agents("", &[("billing", agent), desk]);
        setup.refused(&[&["agents/billing.toml:"], parts].concat());
    };
    refused(
        "\ngreting = \"Hi\"",
        &[":2: ", "`greting`", "did you mean `greeting`"],
    );
    refused("tools = \"x\"", &[":1: ", "tools: invalid type"]);
    refused("\ngreeting = 5", &[":2: ", "greeting: invalid type"]);
    refused("greeting =", &[":1: ", "not an agent"]);
    refused(
        "tools = [\"get_tme\"]",
        &[":1: ", "get_tme", "did you mean `get_time`"],
    );
    refused(
        "\n\nmodel = \"fats\"",
        &[":3: ", "model", "did you mean `fast`"],
    );
    refused("voice = \"deep\"", &["voice", "tts.voices"]);
    refused("handoff = [\"dsek\"]", &["handoff", "did you mean `desk`"]);
    refused("handoff = [\"billing\"]", &["handoff", "known are"]);
    refused(
        "instructions = \"{{ session.calller }}\"",
        &["instructions", "session.calller"],
    );
    refused(
        "greeting = \"Hi {{ session.caller }}\"",
        &["greeting", "is defined"],
    );
    refused(
        "instructions_file = \"none.txt\"",
        &["instructions_file", "cannot read"],
    );
    with_agents("", &[("two words", "")]).refused(&["two words", "letters, digits"]);
    with_agents("", &[("undertone", "")]).refused(&["undertone.toml", "another name"]);
}

/// The key was not named.
#[test]
fn a_mistake_in_a_text_names_its_key() {
    for (section, key) in [
        ("session", "greeting"),
        ("phone", "greeting"),
        ("llm", "instructions"),
    ] {
        let text = format!("[{section}]\n{key} = \"Hi {{{{ session.\"\n");
        let named = format!("{section}.{key}: ");
        file(&text).refused(&[":2: ", &named, "not a template"]);
    }
}

#[test]
fn a_tool_named_like_plans_is_refused_where_models_make_plans() {
    let tool = "name = \"plan\"\nkind = \"subprocess\"\ndescription = \"A test.\"\neffect = \"read\"\n\
                [subprocess]\nargv = [\"true\"]\n";
    let with = |text: &str, agent: &str| {
        let text = format!("{text}\n[tools]\nfolder = \"tools\"");
        let setup = with_agents(&text, &[("billing", agent)]);
        std::fs::create_dir_all(setup.path("tools")).unwrap();
        setup.beside("tools/plan.toml", tool)
    };
    let told = [
        "tools/plan.toml",
        "plan is what models call to make plans",
        "another name",
    ];
    with("[session]\nplans = true", "").refused(&told);
    with("", "plans = true").refused(&told);
    let off = with("", "plans = false").load().unwrap().config;
    assert!(!off.policy.briefing.plans);
}

#[test]
fn a_mistake_in_a_route_names_line_key_and_fix() {
    let refused = |routes: &str, parts: &[&str]| {
        with_agents(routes, &[("billing", "")]).refused(&[&["undertone.toml:"], parts].concat());
    };
    refused(
        "[[route]]\nagent = \"biling\"",
        &[":2: ", "did you mean `billing`"],
    );
    refused("[[route]]\ncalled = \"+1\"", &["agent"]);
    refused(
        "[[route]]\nagent = \"billing\"\nheader.X-Line = \"2\"",
        &[
            ":3: ",
            "header.X-Line",
            "only claimed",
            "trust = \"claimed\"",
        ],
    );
    refused(
        "[[route]]\nagnet = \"billing\"",
        &[":2: ", "`agnet`", "did you mean `agent`"],
    );
    refused(
        "[[route]]\nagent = \"billing\"\ncalled = 5",
        &[":3: ", "route.0.called"],
    );
    refused(
        "[[route]]\nagent = \"billing\"\ntransport = \"twillio\"",
        &[":3: ", "did you mean `twilio`"],
    );
    refused(
        "[[route]]\nagent = \"billing\"\ntrust = \"maybe\"",
        &[":3: ", "claimed, signalled, verified"],
    );
    refused(
        "[[route]]\nagent = \"billing\"\n[[route]]\nagent = \"default\"",
        &[":3: ", "without conditions last"],
    );
    refused("[route]\nagent = \"billing\"", &["[[route]]"]);
}

#[test]
fn a_certificate_needs_its_key_and_excludes_acme() {
    file("[tls]\ncert = 'cert.pem'").refused(&["tls.cert", "tls.key is not", "belong together"]);
    file("[tls]\nkey = 'key.pem'").refused(&["tls.key", "tls.cert is not"]);
    let both = "[tls]\ncert = 'cert.pem'\nkey = 'key.pem'\n";
    file(&format!("{both}[acme]\ndomains = ['voice.example.com']"))
        .refused(&["acme.domains", "keep one"]);
    let setup = file(both);
    let loaded = setup.load().unwrap();
    let files = TlsSettings::Files {
        cert: setup.path("cert.pem"),
        key: setup.path("key.pem"),
    };
    assert_eq!(loaded.config.tls, Some(files));
    // The files are only read when the server starts.
    let error = loaded.verify().unwrap_err().to_string();
    assert!(
        error.contains("tls.cert") && error.contains("cannot be read"),
        "{error}"
    );
    assert!(file("").load().unwrap().config.tls.is_none());
}

#[test]
fn the_names_of_an_acme_certificate_are_checked() {
    for (domain, part) in [
        ("*.example.com", "need records in DNS"),
        ("https://voice.example.com", "not the name of a host"),
        ("voice.example.com:443", "not the name of a host"),
        ("203.0.113.7", "not the name of a host"),
        ("", "not the name of a host"),
    ] {
        file(&format!("[acme]\ndomains = ['{domain}']")).refused(&["acme.domains", part]);
    }
    let domains = "[acme]\ndomains = ['Voice.Example.com']\n";
    file(&format!("{domains}contact = ['ops']")).refused(&["acme.contact", "e-mail"]);
    file(&format!("{domains}directory = 'http://acme.example'"))
        .refused(&["acme.directory", "https"]);
    let loaded = file(&format!(
        "{domains}contact = ['ops@example.com']\ncache = 'kept'"
    ));
    let Some(TlsSettings::Acme(acme)) = loaded.load().unwrap().config.tls else {
        panic!("no ACME server");
    };
    assert_eq!(acme.domains, ["voice.example.com"]);
    assert_eq!(acme.contact, ["mailto:ops@example.com"]);
    assert_eq!(acme.cache, loaded.path("kept"));
}

#[test]
fn audit_and_retention_are_read() {
    let built_in = file("").load().unwrap().config;
    let audit = built_in.audit;
    assert!(audit.enabled && audit.file.ends_with("undertone/audit.jsonl") && !audit.arguments);
    assert_eq!(built_in.retention, Retention::default());
    let off = file("[audit]\nenabled = false\n[retention]\naudit = 90\ncalls = 0");
    let off = off.load().unwrap().config;
    assert!(!off.audit.enabled);
    assert_eq!((off.retention.audit, off.retention.calls), (Some(90), None));
    file("[retention]\nturns = -1").refused(&["retention.turns", "out of range"]);
    file("[limits]\nopenings_per_address = -1")
        .refused(&["limits.openings_per_address", "out of range"]);
}

#[test]
fn a_shared_store_has_an_address_and_its_password_elsewhere() {
    let none = file("").load().unwrap().config.store;
    assert!(none.is_none(), "{none:?}");
    for (address, told) in [
        ("localhost:6379", "not the address"),
        ("http://localhost:6379", "not the address"),
        ("redis://localhost/0?db=1", "not the address"),
        ("redis://localhost/first", "store.url: "),
        ("redis://:canary@localhost", "UNDERTONE_STORE_PASSWORD"),
    ] {
        let store = format!("[store]\nurl = '{address}'\n");
        file(&store).refused(&["toml:2: ", "store.url", told]);
    }
    let store = "[store]\nurl = 'rediss://ann@store.example:6380/2'\n";
    let loaded = file(store).variable("UNDERTONE_STORE_PASSWORD", "canary");
    let loaded = loaded.load().unwrap();
    assert!(!format!("{loaded:?}").contains("canary"));
    let mut settings = loaded.settings.iter();
    let shown = settings.find(|setting| setting.key == "store.password");
    assert_eq!(shown.expect("shown").value, "<secret>");
    let store = loaded.config.store.expect("a store");
    assert_eq!(store.url.host_str(), Some("store.example"));
    assert!(store.password.is_some());
    let in_file = "[store]\nurl = 'redis://localhost'\npassword_file = 'secret'\n";
    let in_file = file(in_file).beside("secret", "canary").load().unwrap();
    assert!(in_file.config.store.expect("a store").password.is_some());
}

#[test]
fn servers_with_a_store_keep_patterns_there_unless_a_file_is_named() {
    let store = "[store]\nurl = 'redis://localhost'\n";
    let named = "[speculation]\npatterns_file = 'mine.json'\n";
    let is_shared = |text: &str| {
        let place = file(text).load().unwrap().config.patterns;
        matches!(place.expect("a place"), PatternPlace::Store(_))
    };
    assert!(is_shared(store));
    assert!(!is_shared(""));
    assert!(!is_shared(&format!("{store}{named}")));
}

#[test]
fn the_certificates_of_a_store_are_read_and_belong_to_rediss() {
    let store = |scheme: &str, keys: &str| {
        let own = Authority::new();
        let (certificate, key) = own.issue();
        file(&format!(
            "[store]\nurl = '{scheme}://redis.example'\n{keys}"
        ))
        .beside("ca.pem", &own.pem())
        .beside("cert.pem", &certificate)
        .beside("key.pem", &key)
        .beside("other.pem", &own.issue().1)
        .beside("none.pem", "none")
    };
    let all = "ca = 'ca.pem'\ncert = 'cert.pem'\nkey = 'key.pem'";
    let loaded = store("rediss", all).load().unwrap();
    assert!(!format!("{loaded:?}").contains("PRIVATE KEY"));
    assert!(!loaded.config.store.expect("a store").tls.is_default());
    store("redis", all).refused(&["toml:3: ", "store.ca", "rediss://"]);
    for (keys, told) in [
        (
            "ca = 'none.pem'",
            &["store.ca: none.pem: there is no certificate"][..],
        ),
        (
            "ca = 'nowhere.pem'",
            &["store.ca: cannot read", "nowhere.pem"],
        ),
        (
            "cert = 'cert.pem'",
            &["store.cert is set, and store.key is not", "belong together"],
        ),
        (
            "key = 'key.pem'",
            &["store.key is set, and store.cert is not"],
        ),
        (
            "cert = 'cert.pem'\nkey = 'cert.pem'",
            &["cert.pem: there is no private key"],
        ),
        (
            "cert = 'cert.pem'\nkey = 'other.pem'",
            &["cert.pem and other.pem: ", "belongs to it"],
        ),
    ] {
        store("rediss", keys).refused(told);
    }
}

/// They were ignored without a word, or kept the server from starting.
#[test]
fn what_opentelemetrys_variables_ask_for_happens_or_is_warned_of() {
    let with = |variables: &[(&str, &str)]| {
        let mut setup = file("").variable("OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector:4318");
        for (name, value) in variables {
            setup = setup.variable(name, value);
        }
        let loaded = setup.load().unwrap();
        (loaded.config.traces, loaded.warnings)
    };
    let sampler = |name: &str, argument: &str| {
        let (name, argument) = (
            ("OTEL_TRACES_SAMPLER", name),
            ("OTEL_TRACES_SAMPLER_ARG", argument),
        );
        let (traces, warnings) = with(&[name, argument]);
        let Sampler {
            share,
            follows_client,
        } = traces.expect("a collector").sampler;
        ((share, follows_client), warnings)
    };
    for (name, argument, share, follows_client) in [
        ("", "", 1.0, true),
        ("always_on", "0.5", 1.0, false),
        ("always_off", "", 0.0, false),
        ("traceidratio", "0.25", 0.25, false),
        ("traceidratio", "", 1.0, false),
        ("parentbased_always_on", "", 1.0, true),
        ("PARENTBASED_ALWAYS_OFF", "", 0.0, true),
        ("parentbased_traceidratio", " 0.1 ", 0.1, true),
    ] {
        let (read, warnings) = sampler(name, argument);
        assert_eq!(read, (share, follows_client), "{name}");
        assert!(warnings.is_empty(), "{warnings:?}");
    }
    for (name, argument, share, follows_client, variable) in [
        ("jaeger_remote", "", 1.0, true, "SAMPLER"),
        ("parentbased_xray", "", 1.0, true, "SAMPLER"),
        ("traceidratio", "25", 1.0, false, "SAMPLER_ARG"),
        ("traceidratio", "NaN", 1.0, false, "SAMPLER_ARG"),
    ] {
        let (read, warnings) = sampler(name, argument);
        assert_eq!(read, (share, follows_client), "{name}");
        let variable = format!("OTEL_TRACES_{variable} ");
        assert!(warnings[0].starts_with(&variable), "{warnings:?}");
    }
    for (variable, value, is_on, is_told) in [
        ("TRACES_EXPORTER", "otlp", true, false),
        ("TRACES_EXPORTER", "console, otlp", true, false),
        ("TRACES_EXPORTER", "None", false, false),
        ("TRACES_EXPORTER", "zipkin", false, true),
        ("SDK_DISABLED", "TRUE", false, false),
        ("EXPORTER_OTLP_PROTOCOL", "HTTP/Protobuf", true, false),
        ("EXPORTER_OTLP_PROTOCOL", "grpc", false, true),
        ("EXPORTER_OTLP_TRACES_PROTOCOL", "http/json", false, true),
        ("EXPORTER_OTLP_CERTIFICATE", "ca.pem", true, true),
        ("EXPORTER_OTLP_TRACES_CLIENT_KEY", "key.pem", true, true),
    ] {
        let variable = format!("OTEL_{variable}");
        let (traces, warnings) = with(&[(variable.as_str(), value)]);
        assert_eq!(traces.is_some(), is_on, "{variable}={value}");
        assert_eq!(warnings.len(), usize::from(is_told), "{warnings:?}");
        assert!(warnings.iter().all(|told| told.starts_with(&variable)));
    }
    // The configuration goes before protocol and exporters of the environment.
    let configured = file("[telemetry]\nendpoint = \"http://127.0.0.1:4318\"\n");
    let configured = configured.variable("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    let configured = configured.variable("OTEL_TRACES_EXPORTER", "console");
    let loaded = configured.load().unwrap();
    assert!(loaded.config.traces.is_some() && loaded.warnings.is_empty());
    // But not before the variables that switch traces off.
    for (variable, value) in [
        ("OTEL_SDK_DISABLED", "true"),
        ("OTEL_TRACES_EXPORTER", "none"),
    ] {
        let configured = file("[telemetry]\nendpoint = \"http://127.0.0.1:4318\"\n");
        let loaded = configured.variable(variable, value).load().unwrap();
        let is_off = loaded.config.traces.is_none();
        assert!(is_off && loaded.warnings.is_empty(), "{variable}");
    }
}

/// They said what did not happen, but not what to do.
#[test]
fn warnings_of_opentelemetrys_variables_say_what_to_do() {
    for (variable, value, mend) in [
        ("TRACES_EXPORTER", "zipkin", "add otlp to it"),
        ("TRACES_SAMPLER", "xray", "known are always_on, "),
        ("EXPORTER_OTLP_PROTOCOL", "grpc", "Set it to http/protobuf"),
        (
            "EXPORTER_OTLP_CERTIFICATE",
            "ca.pem",
            "add the collector's authority to the system's",
        ),
    ] {
        let setup = file("").variable("OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector:4318");
        let setup = setup.variable(&format!("OTEL_{variable}"), value);
        let warnings = setup.load().unwrap().warnings;
        let [warning] = &warnings[..] else {
            panic!("{warnings:?}");
        };
        assert!(warning.contains(mend), "{warning}");
    }
}

/// A blank name of the service was its name, and blank headers hid those for all signals.
#[test]
fn a_blank_variable_of_opentelemetry_is_not_set() {
    let setup = file("")
        .variable("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
        .variable("OTEL_SERVICE_NAME", " ")
        .variable("OTEL_EXPORTER_OTLP_TRACES_HEADERS", " ")
        .variable("OTEL_EXPORTER_OTLP_HEADERS", "x-key=canary");
    let traces = setup.load().unwrap().config.traces.expect("a collector");
    let mut resource = traces.resource.iter();
    let name = resource.find(|(name, _)| name == "service.name");
    assert_eq!(name.expect("a name").1, "undertone");
    assert_eq!(traces.headers["x-key"], "canary");
}
