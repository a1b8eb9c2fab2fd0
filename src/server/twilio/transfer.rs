//! The tool that transfers a caller to a telephone number.

use super::account::Twilio;
use crate::server::ServerSettings;
use crate::server::outbound::{OutboundLine, is_telephone_number};
use crate::tools::builtin;
use crate::tools::{
    Audience, CallContext, Declaration, Named, Origin, RouterHints, SessionValues, Tool, ToolError,
};
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};

/// Transfers the caller to one of the operator's targets. It runs once the caller has heard the
/// announcement, and the conversation ends if it succeeds.
#[derive(Debug)]
pub struct TransferCall {
    declaration: Declaration,
    twilio: Twilio,
    /// The number of the account that calls placed by the server show, in E.164.
    own: Option<String>,
}

impl TransferCall {
    /// The tool and its router rules; `None` if no targets are configured.
    pub fn new(settings: &ServerSettings) -> Option<(Self, RouterHints)> {
        let twilio = settings.twilio.as_ref();
        let twilio = twilio.filter(|twilio| !twilio.transfer.is_empty())?;
        let line = settings.outbound.as_ref().map(|outbound| &outbound.line);
        let tool = Self {
            declaration: builtin::transfer_call(twilio.transfer.keys(), super::api::TIMEOUT),
            twilio: twilio.clone(),
            own: match line {
                Some(OutboundLine::Twilio { from }) => Some(from.clone()),
                Some(OutboundLine::Asterisk(_)) | None => None,
            },
        };
        let hints = RouterHints {
            rules: RULES.map(str::to_owned).to_vec(),
            ..RouterHints::default()
        };
        Some((tool, hints))
    }

    /// The number to show to the other side instead of the caller's, in E.164. Twilio refuses to dial for a caller over
    /// SIP or the Voice SDK, or with a withheld number, unless it is given one.
    fn shown(&self, values: &SessionValues) -> Option<String> {
        let called = values.get(&Named::Called);
        let called = called.filter(|(number, _)| is_telephone_number(number));
        let is_placed = called.is_some_and(|(_, origin)| origin == Origin::Verified);
        let (called, own) = (called.map(|(number, _)| number), self.own.as_deref());
        let shown = match values.get(&Named::Caller) {
            // By itself Twilio shows the caller's own.
            Some((caller, _)) if is_telephone_number(caller) => None,
            // For the Voice SDK it takes a number of the account alone, and there the called one may be any.
            Some(_) => own.or(called),
            // By itself it shows the number of the account from which the server has placed the call.
            None if is_placed => None,
            None => called.or(own),
        };
        shown.map(str::to_owned)
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
        let shown = self.shown(context.session.values());
        let twilio = self.twilio.clone();
        Box::pin(async move {
            let (Some(call), Some(number)) = (call, number) else {
                return Err(ToolError::Failed("this call cannot be put through".into()));
            };
            let put_through = twilio.put_through(&call, &number, shown.as_deref());
            match put_through.await {
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

    fn settings() -> ServerSettings {
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
        ServerSettings {
            twilio: Some(twilio),
            ..ServerSettings::default()
        }
    }

    #[test]
    fn callers_reach_only_configured_targets() {
        let mut settings = settings();
        let (tool, hints) = TransferCall::new(&settings).unwrap();
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
        settings.twilio.as_mut().unwrap().transfer.clear();
        assert!(TransferCall::new(&settings).is_none());
    }

    #[test]
    fn of_a_call_that_the_server_has_placed_twilio_shows_its_own_number() {
        let (tool, _) = TransferCall::new(&settings()).unwrap();
        let called = SessionValues::default().with(Named::Called, "+15550100", Origin::Signalled);
        assert_eq!(tool.shown(&called).as_deref(), Some("+15550100"));
        let placed = called.with(Named::Called, "+15550100", Origin::Verified);
        assert_eq!(tool.shown(&placed), None);
    }
}
