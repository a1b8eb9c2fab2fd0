//! Asterisk's REST interface (ARI), with which an Asterisk is told to dial.

use super::Undialed;
use reqwest::{Client, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;
use url::Url;

/// The longest wait for an answer of Asterisk.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The time between two looks at a call.
const EVERY: Duration = Duration::from_secs(2);

/// The longest that Asterisk may be unreachable before a call that it has is taken for over.
const LOST: Duration = Duration::from_secs(300);

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
    /// The reason, and whether the telephone may ring all the same.
    pub(super) async fn dial(
        &self,
        id: &str,
        ticket: &str,
        to: &str,
        ring: Duration,
    ) -> Result<(), Undialed> {
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
        let answer = request.send().await?;
        match answer.status() {
            status if status.is_success() => Ok(()),
            StatusCode::UNAUTHORIZED => {
                Err("Asterisk does not take the password".to_owned().into())
            }
            status => {
                let told: Value = answer.json().await.unwrap_or_default();
                let why = told["message"].as_str();
                let why = why.map_or_else(String::new, |why| format!(": {why}"));
                Err(format!("Asterisk answered {status}{why}").into())
            }
        }
    }

    /// Hangs up a call that Asterisk may have placed although it did not say so: as soon as its channel is there, and as
    /// long as the telephone may ring.
    pub(super) async fn hang_up(&self, id: &str, ring: Duration) {
        let channel = self.at(&format!("channels/{id}"));
        let hung_up = async {
            loop {
                let Ok(client) = client() else { return };
                let request = client.delete(channel.clone());
                let request = request.basic_auth(&self.user, Some(self.password.expose_secret()));
                let status = request.send().await.map(|answer| answer.status());
                if status.is_ok_and(|status| status.is_success()) {
                    return;
                }
                tokio::time::sleep(EVERY).await;
            }
        };
        if tokio::time::timeout(ring + TIMEOUT, hung_up).await.is_err() {
            tracing::debug!(id, "no channel of a call that was not placed");
        }
    }

    /// Waits until the channel of a call is gone. An Asterisk that cannot be reached is asked again, for some minutes.
    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: calls go on in real time"
    )]
    pub(super) async fn watch(&self, id: &str) {
        let channel = self.at(&format!("channels/{id}"));
        let mut reached = Instant::now();
        loop {
            tokio::time::sleep(EVERY).await;
            let Ok(client) = client() else { return };
            let request = client.get(channel.clone());
            let request = request.basic_auth(&self.user, Some(self.password.expose_secret()));
            let status = request.send().await.map(|answer| answer.status());
            match status {
                Ok(StatusCode::NOT_FOUND) => return,
                Ok(status) if status.is_success() => reached = Instant::now(),
                _ if reached.elapsed() >= LOST => {
                    tracing::warn!(
                        id,
                        "Asterisk does not say whether a call goes on: it is taken for over"
                    );
                    return;
                }
                _ => {}
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

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::post;
    use axum::{Json, Router};

    fn ari(url: &str) -> Ari {
        Ari {
            url: url.parse().unwrap(),
            user: "undertone".into(),
            password: "secret".to_owned().into(),
            endpoint: "PJSIP/{number}@trunk".into(),
            context: "undertone".into(),
            caller_id: None,
        }
    }

    /// Only the status was told, which for most mistakes in the configuration is the same.
    #[tokio::test]
    async fn asterisks_own_words_tell_why_a_call_is_not_placed() {
        let refuse = async || {
            let told = json!({"message": "Extension does not exist"});
            (StatusCode::BAD_REQUEST, Json(told))
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/ari", listener.local_addr().unwrap());
        let app = Router::new().route("/ari/channels", post(refuse));
        tokio::spawn(async move { axum::serve(listener, app).await });
        let dialed = ari(&url).dial("1", "t", "+15550100", EVERY).await;
        let refused = dialed.unwrap_err();
        let reason = "Asterisk answered 400 Bad Request: Extension does not exist";
        assert_eq!(refused.reason, reason);
        assert!(!refused.may_ring);
    }

    /// A call through an Asterisk that was gone for good used to take a place of `outbound.max_calls` for ever.
    #[tokio::test(start_paused = true)]
    async fn a_call_of_an_asterisk_that_stays_gone_is_over() {
        let ari = ari("http://127.0.0.1:9/ari");
        let watched = tokio::time::timeout(LOST - EVERY, ari.watch("1"));
        assert!(watched.await.is_err(), "it may come back");
        ari.watch("1").await;
    }
}
