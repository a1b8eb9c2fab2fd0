//! The Twilio account, and the URLs at which Twilio reaches this server.

use secrecy::SecretString;
use std::collections::BTreeMap;
use url::Url;

pub(super) const VOICE: &str = "/twilio/voice";
pub(super) const DIALED: &str = "/twilio/dialed";
pub(super) const PLACED: &str = "/twilio/placed";
pub(super) const PLACED_STATUS: &str = "/twilio/placed/status";
pub(super) const MEDIA: &str = "/twilio/media";
pub(super) const RELAY: &str = "/twilio/relay";

/// The Twilio account whose calls are answered.
#[derive(Debug, Clone)]
pub struct Twilio {
    /// The base URL at which Twilio reaches this server.
    pub public_url: Url,
    /// The account SID: `AC` and 32 hexadecimal digits.
    pub account_sid: String,
    /// Verifies the signatures of Twilio's requests, and authenticates ours to Twilio.
    pub auth_token: SecretString,
    /// The base URL of Twilio's API.
    pub api_url: Url,
    /// Transfer targets: telephone numbers in E.164, by the name that callers say.
    pub transfer: BTreeMap<String, String>,
    /// Twilio does speech recognition and synthesis (ConversationRelay) instead of streaming audio.
    pub relay: bool,
}

impl Twilio {
    /// The URL of the webhook for incoming calls.
    pub fn voice_url(&self) -> Url {
        self.at(VOICE)
    }

    /// The URL of a path on this server, as Twilio calls it.
    pub(super) fn at(&self, path_and_query: &str) -> Url {
        let base = self.public_url.as_str().trim_end_matches('/');
        format!("{base}{path_and_query}")
            .parse()
            .unwrap_or_else(|_| self.public_url.clone())
    }

    /// The WebSocket URL of a path on this server, as Twilio calls it.
    pub(super) fn socket_at(&self, path_and_query: &str) -> Url {
        let mut url = self.at(path_and_query);
        let scheme = match url.scheme() {
            "http" => "ws",
            _ => "wss",
        };
        if url.set_scheme(scheme).is_err() {
            tracing::error!(%url, "twilio.public_url cannot be made a WebSocket URL");
        }
        url
    }
}

/// A URL as a double-quoted XML attribute. Only `&` needs escaping: of XML's other special
/// characters a URL can only contain `'`.
pub(super) fn in_xml(url: &Url) -> String {
    url.as_str().replace('&', "&amp;")
}
