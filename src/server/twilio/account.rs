//! The Twilio account, and the addresses at which Twilio reaches this server.

use secrecy::SecretString;
use std::collections::BTreeMap;
use url::Url;

pub(super) const VOICE: &str = "/twilio/voice";
pub(super) const DIALED: &str = "/twilio/dialed";
pub(super) const MEDIA: &str = "/twilio/media";
pub(super) const RELAY: &str = "/twilio/relay";

/// The Twilio account whose calls are answered.
#[derive(Debug, Clone)]
pub struct Twilio {
    /// The address at which Twilio reaches this server.
    pub public_url: Url,
    /// The account's name: `AC` and 32 hexadecimal digits.
    pub account_sid: String,
    /// Verifies the signatures of Twilio's requests, and authenticates ours to Twilio.
    pub auth_token: SecretString,
    /// Twilio's own address.
    pub api_url: Url,
    /// Whom callers can be put through to: a telephone number in E.164, by the name that is said.
    pub transfer: BTreeMap<String, String>,
    /// Twilio hears and speaks, and words go both ways; else audio does.
    pub relay: bool,
}

impl Twilio {
    /// Where Twilio is to ask what to do with a call.
    pub fn voice_url(&self) -> Url {
        self.at(VOICE)
    }

    /// A path of this server as Twilio sees it.
    pub(super) fn at(&self, path_and_query: &str) -> Url {
        let base = self.public_url.as_str().trim_end_matches('/');
        format!("{base}{path_and_query}")
            .parse()
            .unwrap_or_else(|_| self.public_url.clone())
    }

    /// The same as a WebSocket.
    pub(super) fn socket_at(&self, path_and_query: &str) -> Url {
        let mut url = self.at(path_and_query);
        let scheme = match url.scheme() {
            "http" => "ws",
            _ => "wss",
        };
        if url.set_scheme(scheme).is_err() {
            tracing::error!(%url, "no WebSocket address");
        }
        url
    }
}

/// An address as an attribute. Of what XML gives a meaning, an address has `&` and `'` alone.
pub(super) fn in_xml(url: &Url) -> String {
    url.as_str().replace('&', "&amp;")
}
