//! The Realtime clients' side of a session: what their query asks for, and what they may have.

use super::access::admit;
use super::api::as_set;
use super::client::{clip, name, parent, values};
use super::errors;
use super::secrets::now;
use super::shared::Shared;
use super::speech::session_offer;
use crate::tools::Origin;
use crate::transport::realtime::{self, Realtime};
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The addresses of the Realtime API: OpenAI's, Azure's, and that of Azure's preview.
pub(super) const PATHS: [&str; 3] = ["/v1/realtime", "/openai/v1/realtime", PREVIEW];

/// The address of Azure's preview, which speaks the protocol's beta.
const PREVIEW: &str = "/openai/realtime";

/// The query of a Realtime client.
#[derive(Default, Deserialize)]
pub(super) struct RealtimeQuery {
    pub(super) model: Option<String>,
    /// Azure's name of `model`.
    pub(super) deployment: Option<String>,
    pub(super) call_id: Option<String>,
    pub(super) intent: Option<String>,
    pub(super) vendor_events: Option<String>,
    pub(super) demonstration: Option<String>,
    pub(super) agent: Option<String>,
    pub(super) voice: Option<String>,
    pub(super) language: Option<String>,
    /// The client may come back if its connection is lost.
    pub(super) resumable: Option<String>,
    /// The secret with which a client comes back, and what it has received and heard.
    pub(super) resume: Option<String>,
    pub(super) last_event_id: Option<String>,
    pub(super) item_id: Option<String>,
    pub(super) audio_end_ms: Option<u64>,
}

impl RealtimeQuery {
    /// Whether the client may come back if its connection is lost.
    pub(super) fn is_resumable(&self) -> bool {
        is_set(self.resumable.as_deref())
    }

    /// The session's configuration in it, for clients that do not send `session.update`.
    fn session(&self) -> Value {
        let mut audio = Map::new();
        if let Some(voice) = &self.voice {
            audio.insert("output".into(), json!({"voice": voice}));
        }
        if let Some(language) = &self.language {
            let transcription = json!({"language": language});
            audio.insert("input".into(), json!({"transcription": transcription}));
        }
        match audio.is_empty() {
            true => Value::Null,
            false => json!({"type": "realtime", "audio": audio}),
        }
    }
}

/// Whether a flag of a query or a form is set: `True` and `1` are what Python's clients send.
pub(super) fn is_set(flag: Option<&str>) -> bool {
    flag.is_some_and(|value| value == "1" || value.eq_ignore_ascii_case("true"))
}

/// Admits a Realtime client, and sets up its side of a session.
#[allow(
    clippy::result_large_err,
    reason = "the error is the response, made once per refused client"
)]
pub(super) fn realtime_client(
    shared: &Shared,
    uri: &Uri,
    headers: &HeaderMap,
    query: RealtimeQuery,
) -> Result<Realtime, Response> {
    let admitted = admit(shared, headers)?;
    let asked = query.session();
    let vendor_events = is_set(query.vendor_events.as_deref());
    let model = query.model.or(query.deployment);
    let agents = &shared.settings().agents;
    let agent = admitted.agent(agents, query.agent.as_deref(), model.as_deref());
    let agent = agent.map_err(|wrong| errors::fault(&wrong))?;
    let dialect = Realtime::new(model.map(clip), name(headers), vendor_events);
    // What a configuration leaves open depends on it.
    let dialect = match query.intent.as_deref() {
        Some("transcription") => dialect.transcribing(),
        _ => dialect,
    };
    let dialect = dialect
        .with_agent(agent)
        .knowing(admitted.values)
        .knowing(values(uri, "realtime", Origin::Claimed));
    let granted = session_offer(shared, admitted.services);
    let dialect = as_set(dialect, &shared.settings(), granted, now());
    let dialect = dialect.configured(admitted.session);
    // The operator may have changed limits since the secret was issued.
    let dialect = dialect.map_err(|wrong| errors::fault(&wrong))?;
    let dialect = dialect
        .offering(session_offer(shared, admitted.is_trusted))
        .preset(asked)
        .map_err(|wrong| errors::fault(&wrong))?;
    let is_preview = uri.path() == PREVIEW;
    Ok(dialect
        .beta(is_preview || realtime::asks_for_beta(headers))
        .for_azure(is_preview)
        .traced(parent(headers))
        .demonstrating(is_set(query.demonstration.as_deref())))
}
