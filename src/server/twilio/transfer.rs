//! The tool that transfers a caller to a telephone number.

use super::account::Twilio;
use crate::tools::builtin;
use crate::tools::{Audience, CallContext, Declaration, RouterHints, Tool, ToolError};
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};

/// Transfers the caller to one of the operator's targets. It runs once the caller has heard the
/// announcement, and the conversation ends if it succeeds.
#[derive(Debug)]
pub struct TransferCall {
    declaration: Declaration,
    twilio: Twilio,
}

impl TransferCall {
    /// The tool and its router rules; `None` if no targets are configured.
    pub fn new(twilio: &Twilio) -> Option<(Self, RouterHints)> {
        if twilio.transfer.is_empty() {
            return None;
        }
        let tool = Self {
            declaration: builtin::transfer_call(twilio.transfer.keys(), super::api::TIMEOUT),
            twilio: twilio.clone(),
        };
        let hints = RouterHints {
            rules: RULES.map(str::to_owned).to_vec(),
            ..RouterHints::default()
        };
        Some((tool, hints))
    }
}

/// Router rules. `to` must be one of the operator's names, so "talk to you later" does not match.
const RULES: [&str; 3] = [
    r"\b(?:put|patch) me (?:through|over) to (?:the |your )?(?P<to>.+?)(?: please| now)*$",
    r"\b(?:transfer|connect|forward) (?:me|us|this call|my call|the call) (?:through |over )?(?:to|with) (?:the |your )?(?P<to>.+?)(?: please| now)*$",
    r"\b(?:speak|talk) (?:to|with) (?:someone (?:in|from|at) |somebody (?:in|from|at) )?(?:the |your )?(?P<to>.+?)(?: please| now)*$",
];

impl Tool for TransferCall {
    fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    fn audience(&self) -> Audience {
        Audience::Calls
    }

    fn call(
        &self,
        arguments: Map<String, Value>,
        context: &CallContext,
    ) -> BoxFuture<'static, Result<Value, ToolError>> {
        let name = arguments.get("to").and_then(Value::as_str);
        let number = name
            .and_then(|name| self.twilio.transfer.get(name))
            .cloned();
        let call = context.session.call().map(str::to_owned);
        let twilio = self.twilio.clone();
        Box::pin(async move {
            let (Some(call), Some(number)) = (call, number) else {
                return Err(ToolError::Failed("this call cannot be put through".into()));
            };
            match twilio.put_through(&call, &number).await {
                Ok(()) => Ok(json!({ "status": "the caller is put through" })),
                Err(reason) => {
                    tracing::warn!(reason, "cannot transfer the caller");
                    let told = "the caller could not be put through";
                    Err(ToolError::Failed(told.into()))
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::en::text;
    use crate::prediction::{Rules, Today};
    use secrecy::SecretString;
    use std::sync::Arc;

    #[test]
    fn callers_reach_only_configured_targets() {
        let twilio = Twilio {
            public_url: "https://voice.example.com".parse().unwrap(),
            account_sid: "AC1".into(),
            auth_token: SecretString::from("t"),
            api_url: "https://api.example.com".parse().unwrap(),
            transfer: ["reception", "billing"]
                .map(|name| (name.to_owned(), "+15551234567".to_owned()))
                .into(),
            relay: false,
        };
        let (tool, hints) = TransferCall::new(&twilio).unwrap();
        let tools = [(Arc::new(tool.declaration().clone()), hints)];
        let rules = Rules::new(&tools, Today::default()).unwrap();
        let to = |said: &str| {
            let calls = rules.read(text::without_fillers(&text::normalise(said)), said, true);
            let call = calls.into_iter().find(|call| call.confidence >= 0.5);
            call.and_then(|call| Some(call.arguments.get("to")?.as_str()?.to_owned()))
        };
        for (said, name) in [
            ("Put me through to reception, please.", Some("reception")),
            ("Could you transfer me to the billing now?", Some("billing")),
            ("Can I talk to someone from billing?", Some("billing")),
            ("I'd like to speak to reception.", Some("reception")),
            ("I'll talk to you later.", None),
            ("Don't put me through to reception.", None),
            ("Put me through to the moon.", None),
        ] {
            assert_eq!(to(said).as_deref(), name, "{said}");
        }
        let nobody = Twilio {
            transfer: Default::default(),
            ..twilio
        };
        assert!(TransferCall::new(&nobody).is_none());
    }
}
