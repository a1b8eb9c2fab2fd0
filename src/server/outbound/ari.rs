//! Asterisk's REST interface (ARI), with which an Asterisk is told to dial.

use reqwest::{Client, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use std::time::Duration;
use url::Url;

/// The longest wait for an answer of Asterisk.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The time between two looks at a call.
const EVERY: Duration = Duration::from_secs(2);

/// The variable in which the dialplan finds the call's ticket.
const TICKET: &str = "UNDERTONE_TICKET";

/// An Asterisk.
#[derive(Debug, Clone)]
pub struct Ari {
    /// Up to and including `/ari`.
    pub url: Url,
    /// A user of `ari.conf`.
    pub user: String,
    /// Its password. Never shown.
    pub password: SecretString,
    /// The channel that it dials, such as `PJSIP/{number}@trunk`.
    pub endpoint: String,
    /// The dialplan's context, with an extension `s`, in which an answered call goes on.
    pub context: String,
    /// The number that is shown, if not the trunk's own.
    pub caller_id: Option<String>,
}

impl Ari {
    /// Dials. The channel has the name `id`.
    ///
    /// # Errors
    /// The words of Asterisk or the network.
    pub(super) async fn dial(
        &self,
        id: &str,
        ticket: &str,
        to: &str,
        ring: Duration,
    ) -> Result<(), String> {
        let digits = to.trim_start_matches('+');
        let endpoint = self
            .endpoint
            .replace("{number}", to)
            .replace("{digits}", digits);
        let mut wanted = json!({
            "endpoint": endpoint, "context": self.context, "extension": "s", "priority": 1,
            "timeout": ring.as_secs(), "channelId": id,
            "variables": {TICKET: ticket, "UNDERTONE_CALLED": to},
        });
        if let Some(shown) = &self.caller_id {
            wanted["callerId"] = shown.as_str().into();
        }
        let client = client()?;
        let request = client.post(self.at("channels")).json(&wanted);
        let request = request.basic_auth(&self.user, Some(self.password.expose_secret()));
        let answer = request.send().await;
        let answer = answer.map_err(|error| error.without_url().to_string())?;
        match answer.status() {
            status if status.is_success() => Ok(()),
            StatusCode::UNAUTHORIZED => Err("Asterisk does not take the password".into()),
            status => Err(format!("Asterisk answered {status}")),
        }
    }

    /// Waits until the channel of a call is gone. An Asterisk that cannot be reached is asked again.
    pub(super) async fn watch(&self, id: &str) {
        let channel = self.at(&format!("channels/{id}"));
        loop {
            tokio::time::sleep(EVERY).await;
            let Ok(client) = client() else { return };
            let request = client.get(channel.clone());
            let request = request.basic_auth(&self.user, Some(self.password.expose_secret()));
            let status = request.send().await.map(|answer| answer.status());
            if matches!(status, Ok(StatusCode::NOT_FOUND)) {
                return;
            }
        }
    }

    fn at(&self, path: &str) -> Url {
        let base = self.url.as_str().trim_end_matches('/');
        format!("{base}/{path}")
            .parse()
            .unwrap_or_else(|_| self.url.clone())
    }
}

fn client() -> Result<Client, String> {
    let client = Client::builder().timeout(TIMEOUT).build();
    client.map_err(|error| error.to_string())
}
