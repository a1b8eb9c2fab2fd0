//! Requests to Twilio's API about a live call.

use super::account::{DIALED, PLACED, PLACED_STATUS, Twilio, in_xml};
use crate::server::outbound::{LONGEST, Undialed};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Response, StatusCode};
use secrecy::ExposeSecret;
use serde_json::Value;
use std::time::Duration;

/// How long Twilio's API may take.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// How long connecting to it may take. Without a connection no call was placed; after that, nobody can tell.
const CONNECTING: Duration = Duration::from_secs(5);

impl Twilio {
    /// Hangs up a call. Without this, TwiML after the stream would still run.
    pub(super) async fn hang_up(&self, call: &str) {
        let refused = match self.update(call, &[("Status", "completed")]).await {
            Ok(status) if status.is_success() => return,
            // Without further TwiML, the call has ended with its stream.
            Ok(StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND) => return,
            Ok(status) => status.to_string(),
            Err(error) => error,
        };
        tracing::warn!(refused, call, "cannot hang up the call at Twilio");
    }

    /// Transfers a call to a telephone number, which ends its stream to this server. The other side is shown the number
    /// `shown`, in E.164, or the caller's if it is `None`. When the dialled leg ends, or nobody answers, Twilio calls
    /// the webhook [`DIALED`].
    ///
    /// # Errors
    /// The error of Twilio or the network, as text.
    pub(super) async fn put_through(
        &self,
        call: &str,
        number: &str,
        shown: Option<&str>,
    ) -> Result<(), String> {
        let back = in_xml(self.at(DIALED).as_str());
        let shown = shown.map_or_else(String::new, |shown| format!(" callerId=\"{shown}\""));
        let verbs = format!("<Response><Dial action=\"{back}\"{shown}>{number}</Dial></Response>");
        match self.update(call, &[("Twiml", &verbs)]).await? {
            status if status.is_success() => Ok(()),
            status => Err(format!("Twilio answered {status}")),
        }
    }

    /// Has Twilio call a number, ringing for at most this time. Once somebody answers, Twilio calls the webhook
    /// [`PLACED`] with the `id`.
    ///
    /// # Errors
    /// The words of Twilio or the network, and whether the telephone may ring all the same.
    pub(in crate::server) async fn dial(
        &self,
        id: &str,
        to: &str,
        from: &str,
        ring: Duration,
    ) -> Result<(), Undialed> {
        let (url, status) = (
            self.at(&format!("{PLACED}?call={id}")),
            self.at(&format!("{PLACED_STATUS}?call={id}")),
        );
        let (ring, longest) = (ring.as_secs().to_string(), LONGEST.as_secs().to_string());
        let form = [
            ("To", to),
            ("From", from),
            ("Url", url.as_str()),
            ("Method", "POST"),
            ("Timeout", &ring),
            ("TimeLimit", &longest),
            ("StatusCallback", status.as_str()),
            ("StatusCallbackMethod", "POST"),
        ];
        let answer = self.post("Calls.json", &form).await?;
        let status = answer.status();
        if status.is_success() {
            return Ok(());
        }
        let told: Value = answer.json().await.unwrap_or_default();
        let why = told["message"].as_str().unwrap_or_default();
        let reason = format!("Twilio answered {status} {why}");
        Err(Undialed {
            reason: reason.trim_end().to_owned(),
            // It may have failed after it had dialed.
            may_ring: status.is_server_error(),
        })
    }

    async fn update(&self, call: &str, form: &[(&str, &str)]) -> Result<StatusCode, String> {
        let answer = self.post(&format!("Calls/{call}.json"), form).await;
        let answer = answer.map_err(|error| error.without_url().to_string())?;
        Ok(answer.status())
    }

    async fn post(&self, path: &str, form: &[(&str, &str)]) -> reqwest::Result<Response> {
        let (base, account) = (self.api_url.as_str(), &self.account_sid);
        let base = base.trim_end_matches('/');
        let url = format!("{base}/2010-04-01/Accounts/{account}/{path}");
        let body = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs(form)
            .finish();
        let client = reqwest::Client::builder()
            .connect_timeout(CONNECTING)
            .timeout(TIMEOUT)
            .build()?;
        client
            .post(url)
            .basic_auth(account, Some(self.auth_token.expose_secret()))
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(body)
            .send()
            .await
    }
}
