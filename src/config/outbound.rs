//! The calls that the server may place.

use super::check::{Check, Checked};
use super::raw::RawOutbound;
use crate::server::{Ari, OutboundCalls, OutboundLine, ServerSettings, is_telephone_number};
use std::time::Duration;

const NUMBER: &str =
    "write it with + and the country's code, without spaces, as in \"+15551234567\"";

impl Check<'_> {
    /// The calls that the server may place; `None` if none.
    pub(super) fn outbound(
        &self,
        raw: &RawOutbound,
        has_twilio: bool,
        server: &ServerSettings,
    ) -> Checked<Option<OutboundCalls>> {
        let max_calls = self.whole("outbound.max_calls", raw.max_calls, 1..=1_000)?;
        let per_hour = self.whole("outbound.per_hour", raw.per_hour, 1..=100_000)?;
        let ring = self.whole("outbound.ring_seconds", raw.ring_seconds, 5..=120)?;
        let is_number = |typed: &&String| match typed.strip_suffix('*') {
            Some(begin) => is_beginning(begin),
            None => is_telephone_number(typed),
        };
        if let Some(wrong) = raw.allow.iter().find(|typed| !is_number(typed)) {
            let problem = format!("outbound.allow: {wrong:?} is no telephone number");
            let fix = "write it with + and the country's code, as in \"+15551234567\", or a beginning and *, as in \
                       \"+4930*\"";
            return Err(self.wrong("outbound.allow", problem, fix));
        }
        let from = raw.from.trim();
        if !from.is_empty() && !is_telephone_number(from) {
            let problem = format!("outbound.from = {from:?} is no telephone number");
            return Err(self.wrong("outbound.from", problem, NUMBER));
        }
        let ari = self.ari(raw)?;
        if raw.allow.is_empty() || !self.checks_server() {
            return Ok(None);
        }
        if server.auth_token.is_none() {
            let problem =
                "outbound.allow lets the server place calls, and anybody may ask for them".into();
            let fix = "set UNDERTONE_AUTH_TOKEN or server.auth_token_file";
            return Err(self.wrong("outbound.allow", problem, fix));
        }
        let line = match ari {
            Some(ari) => OutboundLine::Asterisk(ari),
            None if has_twilio && !from.is_empty() => OutboundLine::Twilio { from: from.into() },
            None if has_twilio => {
                let problem =
                    "outbound.from is missing: Twilio shows one of the account's numbers".into();
                return Err(self.wrong("outbound.from", problem, NUMBER));
            }
            None => {
                let problem = "outbound.allow is set, but nobody is there to place calls".into();
                let fix = "add [twilio], or set outbound.ari_url for an Asterisk";
                return Err(self.wrong("outbound.allow", problem, fix));
            }
        };
        Ok(Some(OutboundCalls {
            allow: raw.allow.clone(),
            max_calls,
            per_hour,
            ring: Duration::from_secs(ring),
            message: raw.machine_message.trim().to_owned(),
            line,
        }))
    }

    fn ari(&self, raw: &RawOutbound) -> Checked<Option<Ari>> {
        if raw.ari_url.trim().is_empty() || !self.checks_server() {
            return Ok(None);
        }
        let fix = "give the address up to /ari, as in http://127.0.0.1:8088/ari";
        let url = self.address("outbound.ari_url", &raw.ari_url, fix)?;
        let key = "outbound.ari_password_file";
        let password = self.secret(key, &raw.ari_password_file, "UNDERTONE_ARI_PASSWORD")?;
        let Some((_, password)) = password else {
            let problem = "outbound.ari_url is set, but there is no password for it".into();
            let fix = "set UNDERTONE_ARI_PASSWORD or outbound.ari_password_file";
            return Err(self.wrong("outbound.ari_url", problem, fix));
        };
        if !raw.endpoint.contains("{number}") && !raw.endpoint.contains("{digits}") {
            let problem = format!("outbound.endpoint = {:?} has no number", raw.endpoint);
            let fix =
                "put {number} or {digits} where the number goes, as in \"PJSIP/{number}@trunk\"";
            return Err(self.wrong("outbound.endpoint", problem, fix));
        }
        let from = raw.from.trim();
        Ok(Some(Ari {
            url,
            user: raw.ari_user.clone(),
            password: password.into(),
            endpoint: raw.endpoint.clone(),
            context: raw.context.clone(),
            caller_id: (!from.is_empty()).then(|| from.to_owned()),
        }))
    }

    fn checks_server(&self) -> bool {
        self.scope >= super::Scope::Server
    }
}

/// Whether telephone numbers begin like this: a country's code at the least.
fn is_beginning(begin: &str) -> bool {
    let digits = begin.strip_prefix('+').unwrap_or_default();
    (1..=14).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
}
