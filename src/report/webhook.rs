//! Sends the report on each ended call to the operator's web service: one signed POST, as the Standard Webhooks
//! specification defines it, repeated until it is accepted. Calls never wait for it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use prometheus_client::metrics::counter::Counter;
use reqwest::StatusCode;
use reqwest::redirect::Policy;
use secrecy::{ExposeSecret, SecretSlice};
use serde_json::{Value, json};
use sha2::Sha256;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use url::Url;

/// The timeout of one attempt.
const PATIENCE: Duration = Duration::from_secs(10);

/// The waits before an attempt is repeated.
const WAITS: [Duration; 5] = [
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_secs(120),
    Duration::from_secs(600),
];

/// The most reports under way at once. More are lost, and counted.
const UNDER_WAY: usize = 256;

/// The prefix of a secret.
const PREFIX: &str = "whsec_";

/// The least bytes of a secret (24: Standard Webhooks).
const LEAST_BYTES: usize = 24;

/// The key of the signatures.
#[derive(Debug, Clone)]
pub struct Secret(Arc<SecretSlice<u8>>);

/// An error of a secret that cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not \"whsec_\" and at least {LEAST_BYTES} bytes in base64")]
pub struct SecretError;

impl Secret {
    /// Reads `whsec_` and bytes in base64.
    ///
    /// # Errors
    /// It is anything else, or shorter than 24 bytes.
    pub fn new(typed: &str) -> Result<Self, SecretError> {
        let bytes = typed.strip_prefix(PREFIX).ok_or(SecretError)?;
        let bytes = STANDARD.decode(bytes).map_err(|_| SecretError)?;
        match bytes.len() >= LEAST_BYTES {
            true => Ok(Self(Arc::new(bytes.into()))),
            false => Err(SecretError),
        }
    }

    /// The signature of a message.
    fn sign(&self, id: &str, timestamp: i64, body: &str) -> String {
        let key = self.0.expose_secret();
        let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
        mac.update(format!("{id}.{timestamp}.{body}").as_bytes());
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

/// The operator's web service.
#[derive(Debug, Clone)]
pub struct Webhook(Arc<Receiver>);

#[derive(Debug)]
struct Receiver {
    url: Url,
    secret: Secret,
    waits: Vec<Duration>,
    places: Arc<Semaphore>,
    under_way: TaskTracker,
    /// Cancelled when the server stops: waiting reports are tried once more.
    closing: CancellationToken,
    lost: Counter,
}

/// The outcome of one attempt.
enum Attempt {
    Taken,
    Refused(StatusCode),
    /// The service may accept it later.
    Failed(String),
}

impl Webhook {
    /// A webhook that posts to `url` and signs with `secret`.
    pub fn new(url: Url, secret: Secret) -> Self {
        Self::with_waits(url, secret, WAITS.to_vec())
    }

    fn with_waits(url: Url, secret: Secret, waits: Vec<Duration>) -> Self {
        Self(Arc::new(Receiver {
            url,
            secret,
            waits,
            places: Arc::new(Semaphore::new(UNDER_WAY)),
            under_way: TaskTracker::new(),
            closing: CancellationToken::new(),
            lost: Counter::default(),
        }))
    }

    /// Sends the `report` on the call `id`, on a task of its own.
    pub fn tell(&self, id: &str, report: Value) {
        let receiver = self.0.clone();
        let Ok(place) = receiver.places.clone().try_acquire_owned() else {
            receiver.lost.inc();
            tracing::warn!("lost the report on a call: too many wait for the webhook");
            return;
        };
        let id = id.to_owned();
        self.0.under_way.spawn(async move {
            receiver.deliver(&id, &report).await;
            drop(place);
        });
    }

    /// The count of reports that were not taken.
    pub fn lost(&self) -> Counter {
        self.0.lost.clone()
    }

    /// Tries waiting reports once more, and returns when that is done.
    pub async fn finish(&self) {
        self.0.under_way.close();
        self.0.closing.cancel();
        self.0.under_way.wait().await;
    }
}

impl Receiver {
    async fn deliver(&self, id: &str, report: &Value) {
        let mut waits = self.waits.iter();
        loop {
            let is_last = self.closing.is_cancelled();
            let why = match self.attempt(id, report).await {
                Attempt::Taken => return,
                Attempt::Refused(status) => {
                    tracing::warn!(%status, call = id, "the webhook refused the report on a call");
                    break;
                }
                Attempt::Failed(why) => why,
            };
            let Some(wait) = waits.next().filter(|_| !is_last) else {
                tracing::warn!(why, call = id, "lost the report on a call");
                break;
            };
            tracing::debug!(
                why,
                call = id,
                "the webhook did not take the report on a call"
            );
            tokio::select! {
                () = tokio::time::sleep(*wait) => {}
                () = self.closing.cancelled() => {}
            }
        }
        self.lost.inc();
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "the edge: receivers compare it with their own clock"
    )]
    async fn attempt(&self, id: &str, report: &Value) -> Attempt {
        let now = jiff::Timestamp::now();
        let body = json!({"type": "call.ended", "timestamp": now.to_string(), "data": report});
        let body = body.to_string();
        let id = format!("msg_{id}");
        let signature = self.secret.sign(&id, now.as_second(), &body);
        let sent = async {
            let client = reqwest::Client::builder()
                .timeout(PATIENCE)
                .redirect(Policy::none())
                .build()?;
            let request = client
                .post(self.url.clone())
                .header("content-type", "application/json")
                .header("webhook-id", id)
                .header("webhook-timestamp", now.as_second())
                .header("webhook-signature", signature)
                .body(body);
            request.send().await
        };
        match sent.await.map(|answer| answer.status()) {
            Ok(status) if status.is_success() => Attempt::Taken,
            Ok(status) if may_be_taken_later(status) => Attempt::Failed(status.to_string()),
            Ok(status) => Attempt::Refused(status),
            Err(error) => Attempt::Failed(error.without_url().to_string()),
        }
    }
}

fn may_be_taken_later(status: StatusCode) -> bool {
    let busy = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS];
    status.is_server_error() || busy.contains(&status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::http::HeaderMap;
    use axum::routing::post;
    use std::sync::Mutex;

    const KEY: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    /// A service that answers with these statuses, one after the other, and the requests that it got.
    #[derive(Clone, Default)]
    struct Scripted {
        answers: Arc<Mutex<Vec<u16>>>,
        got: Arc<Mutex<Vec<(HeaderMap, String)>>>,
    }

    async fn scripted(answers: &[u16]) -> (Scripted, Url) {
        let service = Scripted::default();
        *service.answers.lock().unwrap() = answers.iter().rev().copied().collect();
        let taking = service.clone();
        let take = move |headers: HeaderMap, body: String| {
            taking.got.lock().unwrap().push((headers, body));
            let status = taking.answers.lock().unwrap().pop().unwrap_or(200);
            std::future::ready(StatusCode::from_u16(status).unwrap())
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/calls", listener.local_addr().unwrap());
        let app = Router::new().route("/calls", post(take));
        tokio::spawn(async move { axum::serve(listener, app).await });
        (service, url.parse().unwrap())
    }

    fn webhook(url: Url) -> Webhook {
        let waits = vec![Duration::from_millis(1); 3];
        Webhook::with_waits(url, Secret::new(KEY).unwrap(), waits)
    }

    async fn told(webhook: &Webhook) {
        webhook.tell("7", json!({"turns": []}));
        webhook.0.under_way.close();
        webhook.0.under_way.wait().await;
    }

    #[test]
    fn the_signature_is_that_of_the_specification() {
        // The example of the specification's own libraries.
        let secret = Secret::new(KEY).unwrap();
        let signature = secret.sign(
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            r#"{"test": 2432232314}"#,
        );
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_short_secret_is_refused() {
        for typed in ["", "secret", "whsec_", "whsec_c2hvcnQ=", "whsec_???"] {
            assert!(Secret::new(typed).is_err(), "{typed}");
        }
        assert!(!format!("{:?}", Secret::new(KEY)).contains("MfKQ"));
    }

    #[tokio::test]
    async fn a_report_is_repeated_with_the_same_id_until_it_is_taken() {
        let (service, url) = scripted(&[500, 429, 200]).await;
        let webhook = webhook(url);
        told(&webhook).await;
        let got = service.got.lock().unwrap();
        assert_eq!(got.len(), 3);
        for (headers, body) in got.iter() {
            let header = |name: &str| headers[name].to_str().unwrap().to_owned();
            assert_eq!(header("webhook-id"), "msg_7");
            let timestamp: i64 = header("webhook-timestamp").parse().unwrap();
            let signature = Secret::new(KEY).unwrap().sign("msg_7", timestamp, body);
            assert_eq!(header("webhook-signature"), signature);
            let event: Value = serde_json::from_str(body).unwrap();
            assert_eq!(event["type"], "call.ended");
        }
        assert_eq!(webhook.lost().get(), 0);
    }

    #[tokio::test]
    async fn a_report_that_is_refused_or_never_taken_is_counted_as_lost() {
        let (service, url) = scripted(&[401]).await;
        let refused = webhook(url);
        told(&refused).await;
        assert_eq!(service.got.lock().unwrap().len(), 1, "no second attempt");
        assert_eq!(refused.lost().get(), 1);
        let nobody = webhook("http://127.0.0.1:9/".parse().unwrap());
        told(&nobody).await;
        assert_eq!(nobody.lost().get(), 1);
    }

    #[tokio::test]
    async fn a_server_that_stops_tries_once_more_at_once() {
        let (service, url) = scripted(&[500, 500]).await;
        let waits = vec![Duration::from_secs(3_600); 3];
        let webhook = Webhook::with_waits(url, Secret::new(KEY).unwrap(), waits);
        webhook.tell("7", json!({}));
        while service.got.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        webhook.finish().await;
        assert_eq!(service.got.lock().unwrap().len(), 2);
        assert_eq!(webhook.lost().get(), 1);
    }
}
