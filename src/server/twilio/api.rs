//! Requests to Twilio's API about a live call.

use super::account::{DIALED, Twilio, in_xml};
use reqwest::StatusCode;
use reqwest::header::CONTENT_TYPE;
use secrecy::ExposeSecret;
use std::time::Duration;

/// How long Twilio's API may take.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

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

    /// Transfers a call to a telephone number, which ends its stream to this server. When the
    /// dialled leg ends, or nobody answers, Twilio calls the webhook [`DIALED`].
    ///
    /// # Errors
    /// The error of Twilio or the network, as text.
    pub(super) async fn put_through(&self, call: &str, number: &str) -> Result<(), String> {
        let back = in_xml(&self.at(DIALED));
        let verbs = format!("<Response><Dial action=\"{back}\">{number}</Dial></Response>");
        match self.update(call, &[("Twiml", &verbs)]).await? {
            status if status.is_success() => Ok(()),
            status => Err(format!("Twilio answered {status}")),
        }
    }

    async fn update(&self, call: &str, form: &[(&str, &str)]) -> Result<StatusCode, String> {
        let (base, account) = (self.api_url.as_str(), &self.account_sid);
        let base = base.trim_end_matches('/');
        let url = format!("{base}/2010-04-01/Accounts/{account}/Calls/{call}.json");
        let body = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs(form)
            .finish();
        let sent = async {
            reqwest::Client::builder()
                .timeout(TIMEOUT)
                .build()?
                .post(url)
                .basic_auth(account, Some(self.auth_token.expose_secret()))
                .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
                .body(body)
                .send()
                .await
        };
        let answer = sent.await.map_err(|error| error.without_url().to_string());
        Ok(answer?.status())
    }
}
