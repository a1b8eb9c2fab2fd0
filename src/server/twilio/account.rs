//! The Twilio account, and the URLs at which Twilio reaches this server.

use crate::language::base;
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

/// A text in XML, also as a double-quoted attribute.
pub(super) fn in_xml(text: &str) -> String {
    let escaped = text.chars().map(|c| match c {
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        '"' => "&quot;".to_owned(),
        c => c.to_string(),
    });
    escaped.collect()
}

/// Languages that `<Say>` knows, the usual one of several regions first.
static LOCALES: [&str; 18] = [
    "en-US", "en-GB", "en-AU", "en-IN", "de-DE", "es-ES", "es-MX", "fr-FR", "fr-CA", "it-IT",
    "nl-NL", "pt-PT", "pt-BR", "pl-PL", "sv-SE", "da-DK", "nb-NO", "ru-RU",
];

/// The language for a BCP 47 tag as `<Say>` calls it; `None` for Twilio's own choice, which is US English.
pub(super) fn locale(tag: &str) -> Option<&'static str> {
    let exact = LOCALES.iter().find(|known| known.eq_ignore_ascii_case(tag));
    let likely = || LOCALES.iter().find(|known| base(known) == base(tag));
    let found = exact.or_else(likely).copied();
    found.filter(|known| *known != LOCALES[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twilio_is_asked_for_a_language_with_a_region_that_it_knows() {
        for (tag, known) in [
            ("de", Some("de-DE")),
            ("de-AT", Some("de-DE")),
            ("es-mx", Some("es-MX")),
            ("en-GB", Some("en-GB")),
            ("en", None),
            ("en-US", None),
            ("tlh", None),
        ] {
            assert_eq!(locale(tag), known, "{tag}");
        }
    }

    #[test]
    fn an_operators_phrase_is_text_and_no_twiml() {
        let phrase = in_xml("Müller & Söhne <Hangup/>");
        assert_eq!(phrase, "Müller &amp; Söhne &lt;Hangup/&gt;");
    }
}
