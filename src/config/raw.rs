//! The settings as typed, with their defaults: one table of every key.

use crate::language::{ENGLISH, pack};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Numbers are as wide as TOML's, so that a value out of range is reported as such and not as a
/// wrong type.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawConfig {
    pub(super) server: RawServer,
    pub(super) tls: RawTls,
    pub(super) acme: RawAcme,
    pub(super) limits: RawLimits,
    pub(super) models: RawModels,
    pub(super) asr: RawAsr,
    pub(super) tts: RawTts,
    pub(super) turn: RawTurn,
    pub(super) llm: RawLlm,
    pub(super) session: RawSession,
    pub(super) phone: RawPhone,
    pub(super) outbound: RawOutbound,
    pub(super) twilio: RawTwilio,
    pub(super) tools: RawTools,
    pub(super) store: RawStore,
    /// In the order in which they are tried.
    pub(super) route: Vec<RawRoute>,
    /// By the operator's names.
    pub(super) mcp: BTreeMap<String, RawMcp>,
    pub(super) speculation: RawSpeculation,
    pub(super) draft: RawDraft,
    pub(super) filler: RawFiller,
    pub(super) router: RawRouter,
    pub(super) webrtc: RawWebrtc,
    pub(super) asterisk: RawAsterisk,
    pub(super) wyoming: RawWyoming,
    pub(super) playground: RawPlayground,
    pub(super) call_recording: RawCallRecording,
    pub(super) webhook: RawWebhook,
    pub(super) log: RawLog,
    pub(super) telemetry: RawTelemetry,
    pub(super) audit: RawAudit,
    pub(super) retention: RawRetention,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawServer {
    pub(super) host: String,
    pub(super) port: i64,
    pub(super) max_sessions: i64,
    pub(super) allowed_origins: Vec<String>,
    pub(super) auth_token_file: String,
    pub(super) client_secret_key_file: String,
    pub(super) insecure: bool,
    pub(super) offer_services: bool,
    pub(super) drain_seconds: i64,
}

impl Default for RawServer {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".into(),
            port: 8787,
            max_sessions: 16,
            allowed_origins: Vec::new(),
            auth_token_file: String::new(),
            client_secret_key_file: String::new(),
            insecure: false,
            offer_services: false,
            drain_seconds: 30,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawTls {
    pub(super) cert: String,
    pub(super) key: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawAcme {
    pub(super) domains: Vec<String>,
    pub(super) contact: Vec<String>,
    pub(super) cache: String,
    pub(super) directory: String,
    pub(super) root: String,
}

impl Default for RawAcme {
    fn default() -> Self {
        Self {
            domains: Vec::new(),
            contact: Vec::new(),
            cache: String::new(),
            directory: "https://acme-v02.api.letsencrypt.org/directory".into(),
            root: String::new(),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawStore {
    pub(super) url: String,
    pub(super) password_file: String,
    pub(super) ca: String,
    pub(super) cert: String,
    pub(super) key: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawLimits {
    pub(super) openings_per_address: i64,
    pub(super) openings_per_token: i64,
}

impl Default for RawLimits {
    fn default() -> Self {
        Self {
            openings_per_address: 120,
            openings_per_token: 600,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawModels {
    pub(super) dir: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawAsr {
    pub(super) engine: String,
    pub(super) model: String,
    pub(super) threads: i64,
    pub(super) languages: Vec<String>,
    pub(super) follow_language: bool,
    pub(super) service: String,
    pub(super) services: BTreeMap<String, RawAsrService>,
    pub(super) keyterms: Vec<String>,
}

/// A recogniser on a server, `[asr.services.NAME]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawAsrService {
    pub(super) engine: String,
    pub(super) base_url: String,
    pub(super) model: String,
    pub(super) api_key_file: String,
    pub(super) api_key_env: String,
}

impl Default for RawAsrService {
    fn default() -> Self {
        Self {
            engine: "openai-compatible".into(),
            base_url: String::new(),
            model: String::new(),
            api_key_file: String::new(),
            api_key_env: String::new(),
        }
    }
}

impl Default for RawAsr {
    fn default() -> Self {
        Self {
            engine: "whisper-onnx".into(),
            model: String::new(),
            threads: 1,
            languages: Vec::new(),
            follow_language: true,
            service: String::new(),
            services: BTreeMap::new(),
            keyterms: Vec::new(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawTts {
    pub(super) voice: String,
    pub(super) speed: f64,
    pub(super) voices: BTreeMap<String, String>,
    pub(super) memory_mb: i64,
    pub(super) service: String,
    pub(super) services: BTreeMap<String, RawTtsService>,
}

impl Default for RawTts {
    fn default() -> Self {
        Self {
            voice: String::new(),
            speed: 1.0,
            voices: BTreeMap::new(),
            memory_mb: 512,
            service: String::new(),
            services: BTreeMap::new(),
        }
    }
}

/// A voice on a server, `[tts.services.NAME]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawTtsService {
    pub(super) engine: String,
    pub(super) base_url: String,
    pub(super) model: String,
    pub(super) voice: String,
    pub(super) api_key_file: String,
    pub(super) api_key_env: String,
}

impl Default for RawTtsService {
    fn default() -> Self {
        Self {
            engine: "openai-compatible".into(),
            base_url: String::new(),
            model: String::new(),
            voice: String::new(),
            api_key_file: String::new(),
            api_key_env: String::new(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawTurn {
    pub(super) vad_threshold: f64,
    pub(super) start_ms: i64,
    pub(super) partial_ms: i64,
    pub(super) complete_ms: i64,
    pub(super) unsure_ms: i64,
    pub(super) incomplete_ms: i64,
    pub(super) interrupt: bool,
    pub(super) listening_words: String,
    pub(super) min_words: i64,
}

impl Default for RawTurn {
    fn default() -> Self {
        Self {
            vad_threshold: 0.5,
            start_ms: 96,
            partial_ms: 500,
            complete_ms: 160,
            unsure_ms: 500,
            incomplete_ms: 1_500,
            interrupt: true,
            listening_words: "pause".into(),
            min_words: 1,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawLlm {
    pub(super) engine: String,
    pub(super) base_url: String,
    pub(super) model: String,
    pub(super) api_key_file: String,
    pub(super) api_key_env: String,
    pub(super) temperature: Option<f64>,
    pub(super) max_tokens: i64,
    pub(super) max_prompt_tokens: i64,
    pub(super) reasoning_effort: String,
    pub(super) calls: String,
    pub(super) call_form: String,
    pub(super) speaks_before_calls: bool,
    pub(super) thinks_first: bool,
    pub(super) tool_cache: bool,
    pub(super) prompt_file: String,
    pub(super) extra_body: serde_json::Map<String, serde_json::Value>,
    pub(super) models: BTreeMap<String, RawModel>,
    pub(super) fallback: String,
    pub(super) instructions: String,
    pub(super) instructions_file: String,
    pub(super) stall_filler_ms: i64,
    pub(super) give_up_ms: i64,
    pub(super) think_ms: i64,
}

impl Default for RawLlm {
    fn default() -> Self {
        Self {
            engine: "brain".into(),
            base_url: String::new(),
            model: String::new(),
            api_key_file: String::new(),
            api_key_env: String::new(),
            temperature: None,
            max_tokens: 512,
            max_prompt_tokens: 6_000,
            reasoning_effort: String::new(),
            calls: "markup".into(),
            call_form: "python".into(),
            speaks_before_calls: true,
            thinks_first: false,
            tool_cache: false,
            prompt_file: String::new(),
            extra_body: serde_json::Map::new(),
            models: BTreeMap::new(),
            fallback: String::new(),
            instructions: String::new(),
            instructions_file: String::new(),
            stall_filler_ms: 1_500,
            give_up_ms: 4_000,
            think_ms: 15_000,
        }
    }
}

impl RawLlm {
    /// The settings that belong to the model itself.
    pub(super) fn model(&self) -> RawModel {
        RawModel {
            engine: match self.engine.as_str() {
                "brain" => "openai-compatible".to_owned(),
                engine => engine.to_owned(),
            },
            base_url: self.base_url.clone(),
            model: self.model.clone(),
            api_key_file: self.api_key_file.clone(),
            api_key_env: self.api_key_env.clone(),
            temperature: self.temperature,
            max_tokens: self.max_tokens,
            max_prompt_tokens: self.max_prompt_tokens,
            reasoning_effort: self.reasoning_effort.clone(),
            calls: self.calls.clone(),
            call_form: self.call_form.clone(),
            speaks_before_calls: self.speaks_before_calls,
            thinks_first: self.thinks_first,
            tool_cache: self.tool_cache,
            prompt_file: self.prompt_file.clone(),
            extra_body: self.extra_body.clone(),
            fallback: self.fallback.clone(),
        }
    }
}

/// A further model, `[llm.models.NAME]`. The keys mean the same as in `[llm]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawModel {
    pub(super) engine: String,
    pub(super) base_url: String,
    pub(super) model: String,
    pub(super) api_key_file: String,
    pub(super) api_key_env: String,
    pub(super) temperature: Option<f64>,
    pub(super) max_tokens: i64,
    pub(super) max_prompt_tokens: i64,
    pub(super) reasoning_effort: String,
    pub(super) calls: String,
    pub(super) call_form: String,
    pub(super) speaks_before_calls: bool,
    pub(super) thinks_first: bool,
    pub(super) tool_cache: bool,
    pub(super) prompt_file: String,
    pub(super) extra_body: serde_json::Map<String, serde_json::Value>,
    pub(super) fallback: String,
}

impl Default for RawModel {
    fn default() -> Self {
        RawLlm::default().model()
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawSession {
    pub(super) language: String,
    pub(super) greeting: String,
    pub(super) idle_seconds: i64,
    pub(super) max_seconds: i64,
    pub(super) max_tool_steps: i64,
    pub(super) plans: bool,
    pub(super) max_answer_words: i64,
    pub(super) max_answer_seconds: i64,
    pub(super) time_zone: String,
    pub(super) phrases_file: String,
}

impl Default for RawSession {
    fn default() -> Self {
        Self {
            language: ENGLISH.into(),
            greeting: String::new(),
            idle_seconds: 300,
            max_seconds: 3_600,
            max_tool_steps: 5,
            plans: false,
            max_answer_words: 500,
            max_answer_seconds: 180,
            time_zone: String::new(),
            phrases_file: String::new(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawPhone {
    pub(super) greeting: String,
    pub(super) silence_seconds: i64,
    pub(super) send_digits: String,
}

impl Default for RawPhone {
    fn default() -> Self {
        Self {
            greeting: pack(None).hello.into(),
            silence_seconds: 10,
            send_digits: "placed".into(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawTwilio {
    pub(super) public_url: String,
    pub(super) account_sid: String,
    pub(super) auth_token_file: String,
    pub(super) api_url: String,
    pub(super) transfer: BTreeMap<String, String>,
    pub(super) relay: bool,
}

impl Default for RawTwilio {
    fn default() -> Self {
        Self {
            public_url: String::new(),
            account_sid: String::new(),
            auth_token_file: String::new(),
            api_url: "https://api.twilio.com".into(),
            transfer: BTreeMap::new(),
            relay: false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawOutbound {
    pub(super) allow: Vec<String>,
    pub(super) from: String,
    pub(super) max_calls: i64,
    pub(super) per_hour: i64,
    pub(super) ring_seconds: i64,
    pub(super) machine_message: String,
    pub(super) ari_url: String,
    pub(super) ari_user: String,
    pub(super) ari_password_file: String,
    pub(super) endpoint: String,
    pub(super) context: String,
}

impl Default for RawOutbound {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            from: String::new(),
            max_calls: 2,
            per_hour: 20,
            ring_seconds: 30,
            machine_message: String::new(),
            ari_url: String::new(),
            ari_user: "undertone".into(),
            ari_password_file: String::new(),
            endpoint: "PJSIP/{number}@trunk".into(),
            context: "undertone".into(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawSpeculation {
    pub(super) enabled: bool,
    pub(super) per_turn: i64,
    pub(super) at_once: i64,
    pub(super) value_per_second: f64,
    pub(super) preemptive: bool,
    pub(super) assumed_per_turn: i64,
    pub(super) token_price: f64,
    pub(super) token_cost_per_day: f64,
    pub(super) patterns: bool,
    pub(super) patterns_file: String,
}

impl Default for RawSpeculation {
    fn default() -> Self {
        Self {
            enabled: true,
            per_turn: 3,
            at_once: 2,
            value_per_second: 0.01,
            preemptive: true,
            assumed_per_turn: 1,
            token_price: 0.0,
            token_cost_per_day: 0.0,
            patterns: true,
            patterns_file: String::new(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawDraft {
    pub(super) model: String,
    pub(super) samples: i64,
    pub(super) token_price: f64,
    pub(super) token_cost_per_day: f64,
}

impl Default for RawDraft {
    fn default() -> Self {
        Self {
            model: String::new(),
            samples: 3,
            token_price: 0.0,
            token_cost_per_day: 0.0,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawFiller {
    pub(super) lead: String,
    pub(super) confidence: f64,
    pub(super) worth_ms: i64,
    pub(super) long_ms: i64,
}

impl Default for RawFiller {
    fn default() -> Self {
        Self {
            lead: "model".into(),
            confidence: 0.9,
            worth_ms: 700,
            long_ms: 2_500,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawRouter {
    pub(super) head: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawTools {
    pub(super) folder: String,
    pub(super) journal: String,
}

impl Default for RawTools {
    fn default() -> Self {
        Self {
            folder: "tools".into(),
            journal: String::new(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawMcp {
    pub(super) command: Vec<String>,
    pub(super) env: Vec<String>,
    pub(super) url: String,
    pub(super) bearer_env: String,
    pub(super) headers_env: BTreeMap<String, String>,
    pub(super) oauth: Option<RawOauth>,
    pub(super) timeout_ms: i64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawOauth {
    pub(super) token_url: String,
    pub(super) client_id: String,
    pub(super) client_secret_env: String,
    pub(super) scope: String,
    /// The server's address if there is none.
    pub(super) resource: Option<String>,
    pub(super) audience: String,
}

impl Default for RawMcp {
    fn default() -> Self {
        Self {
            command: Vec::new(),
            env: Vec::new(),
            url: String::new(),
            bearer_env: String::new(),
            headers_env: BTreeMap::new(),
            oauth: None,
            timeout_ms: 5_000,
        }
    }
}

/// `[[route]]`. An empty text is no condition.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawRoute {
    pub(super) agent: String,
    pub(super) transport: String,
    pub(super) called: String,
    pub(super) caller: String,
    pub(super) forwarded_from: String,
    pub(super) header: BTreeMap<String, String>,
    pub(super) param: BTreeMap<String, String>,
    pub(super) trust: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawWebrtc {
    pub(super) udp_port: i64,
    pub(super) tcp: bool,
    pub(super) advertise: Vec<String>,
}

impl Default for RawWebrtc {
    fn default() -> Self {
        Self {
            udp_port: 0,
            tcp: true,
            advertise: Vec::new(),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawAsterisk {
    pub(super) audiosocket: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawWyoming {
    pub(super) listen: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawPlayground {
    pub(super) demonstration: bool,
}

impl Default for RawPlayground {
    fn default() -> Self {
        Self {
            demonstration: true,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawCallRecording {
    pub(super) folder: String,
    pub(super) consent: String,
    pub(super) agents: Vec<String>,
}

impl Default for RawCallRecording {
    fn default() -> Self {
        Self {
            folder: String::new(),
            consent: pack(None).recorded.into(),
            agents: Vec::new(),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawWebhook {
    pub(super) url: String,
    pub(super) secret_file: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawLog {
    pub(super) level: String,
    pub(super) format: String,
    pub(super) turns: String,
}

impl Default for RawLog {
    fn default() -> Self {
        Self {
            level: "info".into(),
            format: "text".into(),
            turns: String::new(),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawTelemetry {
    pub(super) endpoint: String,
    pub(super) headers_file: String,
    pub(super) content: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawAudit {
    pub(super) enabled: bool,
    pub(super) file: String,
    pub(super) arguments: bool,
}

impl Default for RawAudit {
    fn default() -> Self {
        Self {
            enabled: true,
            file: String::new(),
            arguments: false,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawRetention {
    pub(super) recordings: i64,
    pub(super) calls: i64,
    pub(super) turns: i64,
    pub(super) audit: i64,
}
