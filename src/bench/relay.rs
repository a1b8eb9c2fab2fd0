//! A telephone call as ConversationRelay carries it: the client transcribes and speaks, and words go both ways over a
//! WebSocket.

use super::BenchError;
use super::served::{ACCOUNT, CALL, Served};
use super::socket::{Socket, broken, connect};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::{Error, Message};

/// The longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// The caller's end of the socket.
pub(super) struct Relay(Socket);

/// The times at which words came, counted from the beginning of the question.
#[derive(Debug, Clone, Copy)]
pub(super) struct Told {
    /// The first words, such as those of a filler.
    pub(super) first: Duration,
    /// The answer.
    pub(super) answer: Duration,
}

impl Relay {
    /// Opens a call.
    pub(super) async fn call(server: &Served) -> Result<Self, BenchError> {
        let (url, signature) = server.relay()?;
        let mut request = url.into_client_request().map_err(broken)?;
        let signature = HeaderValue::from_str(&signature).map_err(broken)?;
        request
            .headers_mut()
            .insert(crate::transport::phone::signature::HEADER, signature);
        let mut relay = Self(connect(request).await?);
        let parameters = json!({ "ticket": server.ticket() });
        let setup = json!({
            "type": "setup", "sessionId": "VX0", "accountSid": ACCOUNT, "callSid": CALL,
            "from": "", "to": "", "customParameters": parameters,
        });
        relay.send(&setup).await.map_err(broken)?;
        Ok(relay)
    }

    /// Asks a question and waits for the `answer`. Each of `prompts` sends `words` at that time: as the final
    /// transcript if it is `true`, otherwise as a partial.
    #[allow(clippy::disallowed_methods, reason = "it measures, in real time")]
    pub(super) async fn ask(
        &mut self,
        words: &str,
        prompts: &[(Duration, bool)],
        answer: &str,
    ) -> Result<Told, BenchError> {
        let began = Instant::now();
        let mut prompts = prompts.iter().peekable();
        let mut first = None;
        loop {
            let next = prompts.peek().map(|(at, _)| began + *at);
            tokio::select! {
                () = sleep_until(next.unwrap_or(began + PATIENCE)) => {
                    let Some((_, last)) = prompts.next() else {
                        return Err(BenchError::sockets("an answer over a socket", "it did not come in time"));
                    };
                    let prompt = json!({
                        "type": "prompt", "voicePrompt": words, "lang": "en-US", "last": last,
                    });
                    self.send(&prompt).await.map_err(broken)?;
                }
                message = self.0.next() => {
                    let at = began.elapsed();
                    let message = message.ok_or_else(|| broken("the server closed it"))?;
                    let Some(token) = token(message.map_err(broken)?) else {
                        continue;
                    };
                    let first = *first.get_or_insert(at);
                    if token.trim_end() == answer {
                        return Ok(Told { first, answer: at });
                    }
                }
            }
        }
    }

    /// Hangs up.
    pub(super) async fn close(mut self) -> Result<(), BenchError> {
        self.0.close(None).await.map_err(broken)?;
        let rest = async { while let Some(Ok(_)) = self.0.next().await {} };
        timeout(PATIENCE, rest).await.map_err(broken)
    }

    async fn send(&mut self, message: &Value) -> Result<(), Error> {
        self.0.send(Message::text(message.to_string())).await
    }
}

/// The words that a message from the server tells the client to speak; `None` if it has none.
fn token(message: Message) -> Option<String> {
    let Message::Text(text) = message else {
        return None;
    };
    let message: Value = serde_json::from_str(&text).ok()?;
    let token = message["token"].as_str().filter(|token| !token.is_empty());
    token.map(str::to_owned)
}
