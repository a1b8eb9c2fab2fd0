//! Presses keys of the telephone line that the session is on, as for the menus of other machines.

use super::{declare, text};
use crate::audio::dtmf;
use crate::tools::{Audience, CallContext, Declaration, Effect, Tool, ToolError};
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// The tool's name.
pub(crate) const SEND_DIGITS: &str = "send_digits";

/// The most keys and waits of one call.
const MOST: usize = 40;

/// The time limit of a call, which is never reached: the keys sound after the agent's words, however many, or the session
/// ends. A call that gave up before would have them sound all the same.
const TIMEOUT: Duration = Duration::from_secs(86_400);

/// The tool.
#[derive(Debug)]
pub struct SendDigits {
    declaration: Declaration,
    audience: Audience,
}

impl SendDigits {
    /// For every telephone call if `every_call`, otherwise for those that the server has placed.
    pub fn new(every_call: bool) -> Self {
        let description = "Presses keys of the telephone, as a menu or a conference asks for. They sound once you have \
                           finished speaking.";
        let parameters = json!({
            "type": "object",
            "properties": {"digits": {
                "type": "string",
                "description": "0 to 9, * and #; w waits half a second"
            }},
            "required": ["digits"],
            "additionalProperties": false
        });
        let mut declaration = declare(SEND_DIGITS, description, Effect::Irreversible, parameters);
        declaration.timeout = TIMEOUT;
        // One after the other.
        declaration.writes = vec!["keypad".into()];
        Self {
            declaration,
            audience: match every_call {
                true => Audience::Lines,
                false => Audience::PlacedCalls,
            },
        }
    }
}

impl Tool for SendDigits {
    fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    fn audience(&self) -> Audience {
        self.audience
    }

    fn call(
        &self,
        arguments: Map<String, Value>,
        context: &CallContext,
    ) -> BoxFuture<'static, Result<Value, ToolError>> {
        let keys = text(&arguments, "digits").and_then(dtmf::keys);
        let session = context.session.clone();
        Box::pin(async move {
            let told = |told: &str| Err(ToolError::Failed(told.into()));
            match keys {
                None => told("digits are 0 to 9, * and #, and w for a wait"),
                Some(keys) if keys.len() > MOST => told("these are too many keys"),
                Some(keys) => match session.press(keys).await {
                    true => Ok(json!({"status": "the keys were pressed"})),
                    false => told("this line has no keys"),
                },
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::{Registry, SessionTools};
    use std::sync::Arc;
    use tokio::sync::mpsc;

    #[tokio::test]
    async fn keys_are_checked_and_a_session_without_a_line_presses_none() {
        let tool = SendDigits::new(true);
        let context = CallContext::new(SessionTools::default(), "k");
        let long = "1".repeat(MOST + 1);
        for (digits, error) in [
            ("one", "digits are"),
            (long.as_str(), "too many"),
            ("1", "no keys"),
        ] {
            let arguments = json!({ "digits": digits });
            let arguments = arguments.as_object().unwrap().clone();
            let refused = tool.call(arguments, &context).await.unwrap_err();
            assert!(refused.to_string().contains(error), "{refused}");
        }
    }

    /// After 40 s of speech the model was told that the outcome is not known. The keys sounded, and it pressed them again.
    #[tokio::test(start_paused = true)]
    async fn keys_that_wait_for_the_end_of_a_long_answer_are_not_given_up() {
        let mut tools = Registry::new();
        tools.register(Arc::new(SendDigits::new(true))).unwrap();
        let (session, (keypad, mut presses)) = (SessionTools::default(), mpsc::channel(1));
        session.press_at(keypad);
        let arguments = Map::from_iter([("digits".to_owned(), "1".into())]);
        let pressing = tools.call(SEND_DIGITS, arguments, &CallContext::new(session, "k"));
        let pressing = tokio::spawn(pressing);
        let press = presses.recv().await.unwrap();
        tokio::time::advance(Duration::from_secs(180)).await;
        press.done.send(()).unwrap();
        assert!(pressing.await.unwrap().is_ok());
    }
}
