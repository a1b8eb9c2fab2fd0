//! Verifies that a request comes from Twilio: the header `X-Twilio-Signature` is the HMAC-SHA1,
//! keyed with the account's auth token, of the URL that Twilio called and the parameters that it
//! posted.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use secrecy::{ExposeSecret, SecretString};
use sha1::Sha1;
use url::Url;

/// The name of the header.
pub const HEADER: &str = "x-twilio-signature";

/// Whether `signature` is valid for a request to `url` with the posted `parameters`.
///
/// Twilio signs the URL with or without a port, as it was called, and behind a proxy the server
/// cannot see which: both are tried.
pub fn is_valid(
    token: &SecretString,
    url: &Url,
    parameters: &[(String, String)],
    signature: &str,
) -> bool {
    let Ok(signature) = STANDARD.decode(signature) else {
        return false;
    };
    let is_of = |url: &String| {
        signed(token, url, parameters)
            .verify_slice(&signature)
            .is_ok()
    };
    spellings(url).iter().any(is_of)
}

/// Signs a request to `url` without parameters, as Twilio does: for clients that simulate it.
pub fn sign(token: &SecretString, url: &Url) -> String {
    let [url, _] = spellings(url);
    STANDARD.encode(signed(token, &url, &[]).finalize().into_bytes())
}

fn signed(token: &SecretString, url: &str, parameters: &[(String, String)]) -> Hmac<Sha1> {
    let key = token.expose_secret().as_bytes();
    let mut mac: Hmac<Sha1> = Hmac::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(url.as_bytes());
    let mut sorted: Vec<_> = parameters.iter().collect();
    sorted.sort();
    sorted.dedup();
    for (name, value) in sorted {
        mac.update(name.as_bytes());
        mac.update(value.as_bytes());
    }
    mac
}

/// The URL without and with its port.
fn spellings(url: &Url) -> [String; 2] {
    let scheme = url.scheme();
    let host = url.host_str().unwrap_or_default();
    let port = url.port_or_known_default().unwrap_or_default();
    let rest = &url[url::Position::BeforePath..];
    [
        format!("{scheme}://{host}{rest}"),
        format!("{scheme}://{host}:{port}{rest}"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str, parameters: &[(&str, &str)], signature: &str) -> bool {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let parameters: Vec<_> = parameters.iter().map(owned).collect();
        let url = url.parse().expect("a URL");
        is_valid(&"12345".into(), &url, &parameters, signature)
    }

    /// Computed with Twilio's own library.
    #[test]
    fn twilios_signatures_are_valid() {
        let socket = "wss://voice.example.com/twilio/media?x=1";
        assert!(check(socket, &[], "NbP01YFNmEfhHqmagsG4sAbCYzQ="));
        let posted = [("From", "+1555"), ("CallSid", "CA1")];
        let page = "https://example.com/twiml";
        assert!(check(page, &posted, "iwX5cy2l/b1sdXR8p4iCi5fpvRg="));
        assert!(check(
            "https://example.com:443/twiml",
            &posted,
            "iwX5cy2l/b1sdXR8p4iCi5fpvRg="
        ));
    }

    #[test]
    fn a_request_is_signed_as_twilio_does() {
        let socket = "wss://voice.example.com/twilio/media?x=1".parse().unwrap();
        assert_eq!(
            sign(&"12345".into(), &socket),
            "NbP01YFNmEfhHqmagsG4sAbCYzQ="
        );
    }

    #[test]
    fn any_other_signature_is_invalid() {
        let socket = "wss://voice.example.com/twilio/media?x=1";
        for signature in [
            "",
            "=",
            "NbP01YFNmEfhHqmagsG4sAbCYzQ",
            "nbP01YFNmEfhHqmagsG4sAbCYzQ=",
            "TmJQMDE=",
        ] {
            assert!(!check(socket, &[], signature), "{signature}");
        }
        let other = "wss://voice.example.com/twilio/media?x=2";
        assert!(!check(other, &[], "NbP01YFNmEfhHqmagsG4sAbCYzQ="));
        let posted = [("From", "+1556"), ("CallSid", "CA1")];
        let page = "https://example.com/twiml";
        assert!(!check(page, &posted, "iwX5cy2l/b1sdXR8p4iCi5fpvRg="));
    }
}
