//! Client secrets: short-lived tokens that an application gives to a browser or device to open
//! sessions with. Each contains the session's configuration and its expiry, and is signed; the
//! server stores nothing.

use crate::tools::SessionValues;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::Sha256;
use std::time::SystemTime;
use uuid::Uuid;

/// The prefix of every client secret, as in OpenAI's ephemeral keys.
const PREFIX: &str = "ek_";

/// The longest session configuration in a secret, bytes: the secret travels in a header.
pub(super) const MAX_SESSION: usize = 16 * 1024;

/// The longest validity, seconds.
pub(super) const LONGEST: u64 = 7_200;

/// The most that the clock of the server that reads a secret may be behind its issuer's, seconds: servers' clocks differ.
const SLACK: u64 = 60;

/// Issues and verifies secrets.
#[derive(Debug)]
pub(super) struct Secrets {
    key: SecretString,
}

/// The contents of a secret.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Grant {
    /// When it expires, seconds since 1970.
    pub(super) expires_at: u64,
    /// The session's configuration as a client would send it; null if there is none.
    pub(super) session: Value,
    /// The facts on the caller who uses it.
    #[serde(default, skip_serializing_if = "SessionValues::is_empty")]
    pub(super) values: SessionValues,
    /// The agent that its user gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) agent: Option<String>,
    /// Its issuer showed the server's token, so that `session` may choose services.
    #[serde(default)]
    pub(super) services: bool,
}

/// The reason a secret is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unfit {
    /// It was not issued by this server, or was modified.
    Unknown,
    /// It has expired, or is from the future: the clock was set back, and how old it is cannot be known.
    Expired,
}

impl Secrets {
    /// Uses the operator's key, or else a random one, with which a restart invalidates all secrets.
    pub(super) fn new(key: Option<SecretString>) -> Self {
        // 244 random bits from the system's generator.
        let random = || format!("{}{}", Uuid::new_v4(), Uuid::new_v4()).into();
        Self {
            key: key.unwrap_or_else(random),
        }
    }

    pub(super) fn issue(&self, grant: &Grant) -> String {
        let grant = serde_json::to_vec(grant).unwrap_or_default();
        let signature = self.mac(&grant).finalize().into_bytes();
        let [grant, signature] = [&grant[..], &signature].map(|part| URL_SAFE_NO_PAD.encode(part));
        format!("{PREFIX}{grant}.{signature}")
    }

    /// Returns the grant of a secret that is valid at `now`, in seconds since 1970.
    pub(super) fn read(&self, shown: &str, now: u64) -> Result<Grant, Unfit> {
        let grant = self.verified(shown).ok_or(Unfit::Unknown)?;
        let is_valid = now < grant.expires_at && grant.expires_at - now <= LONGEST + SLACK;
        match is_valid {
            true => Ok(grant),
            false => Err(Unfit::Expired),
        }
    }

    fn verified(&self, shown: &str) -> Option<Grant> {
        let (grant, signature) = shown.strip_prefix(PREFIX)?.split_once('.')?;
        let grant = URL_SAFE_NO_PAD.decode(grant).ok()?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        self.mac(&grant).verify_slice(&signature).ok()?;
        serde_json::from_slice(&grant).ok()
    }

    fn mac(&self, grant: &[u8]) -> Hmac<Sha256> {
        let key = self.key.expose_secret().as_bytes();
        let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("any length will do");
        mac.update(grant);
        mac
    }
}

/// Seconds since 1970.
#[allow(
    clippy::disallowed_methods,
    reason = "an edge: a secret expires by the wall clock"
)]
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::{Named, Origin};
    use serde_json::json;

    fn grant() -> Grant {
        Grant {
            expires_at: 1_000,
            session: json!({"type": "realtime", "instructions": "Be kind. ✓"}),
            values: SessionValues::default().with(Named::Caller, "+1", Origin::Verified),
            agent: Some("billing".into()),
            services: true,
        }
    }

    #[test]
    fn a_secret_is_valid_until_it_expires() {
        let secrets = Secrets::new(None);
        let secret = secrets.issue(&grant());
        assert_eq!(secrets.read(&secret, 999), Ok(grant()));
        assert_eq!(secrets.read(&secret, 1_000), Err(Unfit::Expired));
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        assert!(secret.chars().all(plain), "fit for a subprotocol: {secret}");
    }

    /// It counted as expired there until that clock had caught up.
    #[test]
    fn a_secret_of_the_longest_validity_is_good_at_a_server_whose_clock_is_behind() {
        let secrets = Secrets::new(None);
        let issued = 86_400;
        let secret = secrets.issue(&Grant {
            expires_at: issued + LONGEST,
            ..grant()
        });
        for behind in [0, 1, SLACK] {
            assert!(secrets.read(&secret, issued - behind).is_ok(), "{behind} s");
        }
        assert_eq!(
            secrets.read(&secret, issued - SLACK - 1),
            Err(Unfit::Expired)
        );
    }

    #[test]
    fn a_clock_that_is_set_back_prolongs_no_secret() {
        let secrets = Secrets::new(None);
        let tomorrow = 86_400;
        let secret = secrets.issue(&Grant {
            expires_at: tomorrow + 60,
            ..grant()
        });
        assert!(secrets.read(&secret, tomorrow).is_ok());
        assert_eq!(secrets.read(&secret, 0), Err(Unfit::Expired));
    }

    #[test]
    fn modified_and_foreign_secrets_are_unknown() {
        let (here, there) = (Secrets::new(None), Secrets::new(None));
        let secret = here.issue(&grant());
        assert_eq!(there.read(&secret, 0), Err(Unfit::Unknown));
        for at in PREFIX.len()..secret.len() {
            let mut changed = secret.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).expect("ASCII");
            assert_eq!(here.read(&changed, 0), Err(Unfit::Unknown), "{at}");
        }
        for nonsense in ["", "ek_", "ek_.", "ek_e30.", "sk-123", "ek_💥.💥"] {
            assert_eq!(here.read(nonsense, 0), Err(Unfit::Unknown));
        }
    }

    #[test]
    fn with_the_operators_key_a_secret_outlives_a_restart() {
        let secrets = || Secrets::new(Some("operator's".into()));
        let secret = secrets().issue(&grant());
        assert_eq!(secrets().read(&secret, 0), Ok(grant()));
    }
}
