//! Twilio's ConversationRelay: Twilio does speech recognition and synthesis, and text goes both
//! ways in JSON messages over a WebSocket.
//!
//! The text of a clause is sent at once. After each of the agent's items an empty token with `last`
//! makes Twilio speak what it may be holding back. Twilio itself handles barge-in: it stops the
//! agent and reports the text up to the interruption. It also reports when it has spoken
//! everything.

use super::media_streams::{Admit, Start, with_parameters};
use super::{key, numbers, refuse, tickets};
use crate::conversation::{Event, HangUpReason, Input, Micros};
use crate::language::{ENGLISH, base};
use crate::session::{Outbound, Profile, SessionOptions, SpokenBy};
use crate::tools::{Named, Origin};
use crate::transport::{Action, Admission, Admitted, ClientMessage, Close, Dialect, close_code};
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};

/// A placeholder rate, Hz: no audio passes through this server.
pub const RATE: u32 = 8_000;

/// The attributes of `<ConversationRelay>` besides the address, for an agent that speaks the language of this BCP 47
/// tag, or else US English. They request DTMF keys, speaker events, and speech over the agent, which also interrupts it
/// if it is `interruptible`; in English also partials, which only Deepgram's Flux provides. The recogniser of any other
/// language is Twilio's choice: whether Flux serves it there is not known.
pub fn attributes(interruptible: bool, language: Option<&str>) -> String {
    let interruptible = if interruptible { "any" } else { "none" };
    let flux = "transcriptionProvider=\"Deepgram\" speechModel=\"flux\" partialPrompts=\"true\"";
    let speech = match language.filter(|tag| base(tag) != ENGLISH) {
        Some(tag) => format!("language=\"{tag}\""),
        None => flux.to_owned(),
    };
    format!(
        "{speech} dtmfDetection=\"true\" reportInputDuringAgentSpeech=\"any\" \
         interruptible=\"{interruptible}\" events=\"speaker-events\""
    )
}

/// Translates one call.
pub struct ConversationRelay {
    admit: Admit,
    question: Option<BoxFuture<'static, Admission>>,
    /// The call that waits for admission.
    starting: Option<Start>,
    open: bool,
    /// Text has been sent without a `last` after it.
    unfinished: bool,
}

impl std::fmt::Debug for ConversationRelay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConversationRelay")
            .field("open", &self.open)
            .finish_non_exhaustive()
    }
}

/// A message from Twilio.
#[derive(Debug, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
enum Message {
    Setup {
        account_sid: String,
        call_sid: String,
        #[serde(default)]
        from: String,
        #[serde(default)]
        to: String,
        forwarded_from: Option<String>,
        #[serde(default)]
        custom_parameters: Value,
    },
    Prompt {
        voice_prompt: String,
        last: bool,
    },
    Dtmf {
        digit: String,
    },
    Interrupt {
        utterance_until_interrupt: Option<String>,
    },
    Info {
        name: Value,
        #[serde(default)]
        value: Value,
    },
    Error {
        description: Option<String>,
    },
    /// Any message that is not handled.
    #[serde(other)]
    Other,
}

impl ConversationRelay {
    /// A call that opens if `admit` allows it at setup.
    pub fn new(admit: Admit) -> Self {
        Self {
            admit,
            question: None,
            starting: None,
            open: false,
            unfinished: false,
        }
    }

    fn set_up(&mut self, start: Start) -> Vec<Action> {
        if self.open {
            tracing::warn!("ignored a second setup of the call");
            return Vec::new();
        }
        self.question = Some((self.admit)(&start));
        self.starting = Some(start);
        Vec::new()
    }

    fn begin(&mut self, start: Start, admitted: Admitted) -> Vec<Action> {
        self.open = true;
        let options = SessionOptions::new(Profile::PhoneCall, RATE);
        vec![Action::Open(SessionOptions {
            spoken_by: SpokenBy::Client,
            client: Some("twilio relay".into()),
            call: Some(start.call),
            ..admitted.call("twilio", options)
        })]
    }

    /// Translates a message for an open session.
    fn input(message: Message) -> Option<Input> {
        match message {
            Message::Prompt { voice_prompt, last } => Some(Input::Said {
                text: voice_prompt,
                last,
            }),
            Message::Dtmf { digit } => key(&digit),
            Message::Interrupt {
                utterance_until_interrupt,
            } => Some(Input::Stopped {
                heard: utterance_until_interrupt.unwrap_or_default(),
            }),
            Message::Info { name, value } => {
                (name == "agentSpeaking" && value == "off").then_some(Input::VoiceEnded)
            }
            Message::Error { description } => {
                // The text may quote what was said.
                tracing::warn!("Twilio reported an error");
                tracing::debug!(?description);
                None
            }
            Message::Setup { .. } | Message::Other => None,
        }
    }

    /// Makes Twilio speak what it may be holding back.
    fn finish(&mut self) -> Vec<Action> {
        let unfinished = std::mem::take(&mut self.unfinished);
        unfinished.then(|| text("", true)).into_iter().collect()
    }
}

impl Dialect for ConversationRelay {
    fn start(&mut self) -> Vec<Action> {
        Vec::new()
    }

    fn is_call(&self) -> bool {
        true
    }

    fn question(&mut self) -> Option<BoxFuture<'static, Admission>> {
        self.question.take()
    }

    fn admitted(&mut self, admission: Admission) -> Vec<Action> {
        match self.starting.take().zip(admission) {
            Some((start, admitted)) => self.begin(start, admitted),
            None => {
                tracing::info!("refused a socket that does not belong to a call answered here");
                refuse("this socket does not belong to a call that was answered here")
            }
        }
    }

    fn client(&mut self, message: ClientMessage<'_>) -> Vec<Action> {
        let ClientMessage::Text(message) = message else {
            return vec![Action::Close(Close {
                code: close_code::UNSUPPORTED,
                reason: "a relay sends text messages",
            })];
        };
        let message = match serde_json::from_str::<Message>(message) {
            Ok(message) => message,
            Err(error) => {
                // The text may quote what was said.
                tracing::warn!("ignored a malformed message from Twilio");
                tracing::debug!(%error);
                return Vec::new();
            }
        };
        match message {
            Message::Setup {
                account_sid,
                call_sid,
                from,
                to,
                forwarded_from,
                custom_parameters,
            } => {
                let forwarded_from = forwarded_from.unwrap_or_default();
                let claimed = numbers(&from, &to, &forwarded_from, Origin::Claimed).with(
                    Named::CallId,
                    &call_sid,
                    Origin::Claimed,
                );
                self.set_up(Start {
                    account: account_sid,
                    call: call_sid,
                    ticket: tickets::ticket_in(&custom_parameters),
                    claimed: with_parameters(claimed, &custom_parameters),
                })
            }
            _ if !self.open => refuse("a message before the call is set up"),
            message => Self::input(message)
                .map(Action::Request)
                .into_iter()
                .collect(),
        }
    }

    fn session(&mut self, outbound: Outbound) -> Vec<Action> {
        match outbound {
            Outbound::Event { event, .. } => match event {
                Event::AgentSpeech { text: words, .. } => {
                    self.unfinished = true;
                    // The space separates words, and shows that punctuation before it ends a sentence.
                    vec![text(&format!("{words} "), false)]
                }
                Event::AgentItemDone { .. } => self.finish(),
                _ => Vec::new(),
            },
            Outbound::TimerRings => Vec::new(),
            // Twilio has stopped speaking on its own.
            Outbound::Clear => self.finish(),
            // The call has been handed over.
            Outbound::HangUp(HangUpReason::HandedOver) => Vec::new(),
            Outbound::HangUp(reason) => {
                let mut actions = self.finish();
                actions.push(end(reason));
                actions
            }
            Outbound::Keys(digits) => {
                let keys = json!({"type": "sendDigits", "digits": digits});
                vec![Action::Send(keys.to_string())]
            }
            Outbound::Audio { .. } | Outbound::Tones(_) => Vec::new(),
        }
    }

    fn overrun(&mut self, _: Micros) -> Vec<Action> {
        Vec::new()
    }
}

fn text(token: &str, last: bool) -> Action {
    Action::Send(json!({"type": "text", "token": token, "last": last}).to_string())
}

/// Ends the session at Twilio, which first speaks all text it was sent. Twilio logs the reason:
/// `{"reason":"agent_ended"}`.
fn end(reason: HangUpReason) -> Action {
    let handoff = json!({ "reason": reason }).to_string();
    Action::Send(json!({"type": "end", "handoffData": handoff}).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::{ClauseId, ItemId, Time};
    use futures_util::FutureExt;
    use std::future::ready;

    fn relay() -> ConversationRelay {
        let admit = |start: &Start| {
            let may = (&*start.account, &*start.call, &*start.ticket) == ("AC1", "CA1", "good");
            Box::pin(ready(may.then(|| start.claimed.clone().into())))
                as BoxFuture<'static, Admission>
        };
        ConversationRelay::new(Box::new(admit))
    }

    fn tell(relay: &mut ConversationRelay, message: &Value) -> Vec<Action> {
        let actions = relay.client(ClientMessage::Text(&message.to_string()));
        match relay.question().and_then(FutureExt::now_or_never) {
            Some(may) => relay.admitted(may),
            None => actions,
        }
    }

    fn setup(account: &str, call: &str, ticket: &str) -> Value {
        json!({
            "type": "setup", "sessionId": "VX1", "accountSid": account, "parentCallSid": "",
            "callSid": call, "from": "+15551230000", "to": "+15551230001", "forwardedFrom": "",
            "callType": "PSTN", "callerName": "", "direction": "inbound",
            "callStatus": "RINGING", "customParameters": {"ticket": ticket}
        })
    }

    fn opened() -> ConversationRelay {
        let mut relay = relay();
        let actions = tell(&mut relay, &setup("AC1", "CA1", "good"));
        assert!(
            matches!(&actions[..], [Action::Open(options)]
                if options.profile == Profile::PhoneCall && options.spoken_by == SpokenBy::Client),
            "{actions:?}"
        );
        relay
    }

    fn event(event: Event) -> Outbound {
        Outbound::Event { at: Time(0), event }
    }

    fn sent(actions: &[Action]) -> Vec<Value> {
        let texts = actions.iter().map(|action| match action {
            Action::Send(text) => serde_json::from_str(text).expect("JSON"),
            other => panic!("{other:?}"),
        });
        texts.collect()
    }

    #[test]
    fn the_setup_tells_who_calls() {
        let actions = tell(&mut relay(), &setup("AC1", "CA1", "good"));
        let [Action::Open(options)] = &actions[..] else {
            panic!("{actions:?}");
        };
        let value = |name: Named| options.values.get(&name).map(|(value, _)| value);
        assert_eq!(value(Named::Caller), Some("+15551230000"));
        assert_eq!(value(Named::Called), Some("+15551230001"));
        assert_eq!(value(Named::ForwardedFrom), None);
        assert_eq!(value(Named::Transport), Some("twilio"));
    }

    #[test]
    fn the_callers_actions_become_inputs() {
        let mut relay = opened();
        let said = |text: &str, last| Input::Said {
            text: text.into(),
            last,
        };
        let heard = |heard: &str| Input::Stopped {
            heard: heard.into(),
        };
        for (message, input) in [
            (
                json!({"type": "prompt", "voicePrompt": "what", "lang": "en-US", "last": false}),
                said("what", false),
            ),
            (
                json!({"type": "prompt", "voicePrompt": "What?", "lang": "en-US", "last": true}),
                said("What?", true),
            ),
            (
                json!({"type": "dtmf", "digit": "#"}),
                Input::Key { key: '#' },
            ),
            (
                json!({
                    "type": "interrupt", "utteranceUntilInterrupt": "Life is",
                    "durationUntilInterruptMs": "460"
                }),
                heard("Life is"),
            ),
            (
                json!({"type": "interrupt", "durationUntilInterruptMs": 0}),
                heard(""),
            ),
            (
                json!({"type": "info", "name": "agentSpeaking", "value": "off"}),
                Input::VoiceEnded,
            ),
        ] {
            assert_eq!(tell(&mut relay, &message), [Action::Request(input)]);
        }
        for nothing in [
            json!({"type": "info", "name": "agentSpeaking", "value": "on"}),
            json!({"type": "info", "name": "clientSpeaking", "value": "off"}),
            json!({"type": "error", "description": "Invalid message received"}),
            json!({"type": "something", "new": {}}),
            json!({"type": "dtmf", "digit": "12"}),
        ] {
            assert_eq!(tell(&mut relay, &nothing), [], "{nothing}");
        }
    }

    #[test]
    fn words_are_sent_at_once_and_each_item_ends_with_last() {
        let mut relay = opened();
        let speech = |text: &str| {
            event(Event::AgentSpeech {
                item: ItemId(1),
                clause: ClauseId(2),
                text: text.into(),
            })
        };
        let done = || {
            event(Event::AgentItemDone {
                item: ItemId(1),
                text: String::new(),
                interrupted: false,
            })
        };
        let text = |token: &str, last| json!({"type": "text", "token": token, "last": last});
        assert_eq!(
            sent(&relay.session(speech("One moment."))),
            [text("One moment. ", false)]
        );
        assert_eq!(sent(&relay.session(done())), [text("", true)]);
        assert_eq!(relay.session(done()), [], "nothing is open");
        relay.session(speech("It is"));
        assert_eq!(sent(&relay.session(Outbound::Clear)), [text("", true)]);
        assert_eq!(relay.session(done()), []);
        relay.session(speech("Goodbye."));
        let hung_up = sent(&relay.session(Outbound::HangUp(HangUpReason::AgentEnded)));
        let end = json!({"type": "end", "handoffData": "{\"reason\":\"agent_ended\"}"});
        assert_eq!(hung_up, [text("", true), end]);
    }

    #[test]
    fn a_socket_without_its_ticket_opens_nothing() {
        for (account, call, ticket) in [
            ("AC1", "CA1", "bad"),
            ("AC1", "CA1", ""),
            ("AC2", "CA1", "good"),
            ("AC1", "CA2", "good"),
        ] {
            let mut relay = relay();
            let actions = tell(&mut relay, &setup(account, call, ticket));
            assert!(matches!(&actions[..], [Action::Close(close)] if close.code == 1008));
            let prompt = json!({"type": "prompt", "voicePrompt": "Hi", "last": true});
            let actions = tell(&mut relay, &prompt);
            assert!(matches!(&actions[..], [Action::Close(close)] if close.code == 1008));
        }
        let mut twice = opened();
        assert_eq!(tell(&mut twice, &setup("AC1", "CA1", "good")), []);
    }

    #[test]
    fn malformed_messages_are_ignored() {
        let mut relay = opened();
        for odd in [
            "",
            "{",
            "[]",
            "3",
            "{}",
            r#"{"type":7}"#,
            r#"{"type":"prompt"}"#,
            r#"{"type":"prompt","voicePrompt":3,"last":true}"#,
            r#"{"type":"prompt","voicePrompt":"x","last":"yes"}"#,
            r#"{"type":"dtmf","digit":[]}"#,
            r#"{"type":"interrupt","utteranceUntilInterrupt":{}}"#,
            r#"{"type":"setup"}"#,
        ] {
            assert_eq!(relay.client(ClientMessage::Text(odd)), [], "{odd}");
        }
        let binary = relay.client(ClientMessage::Binary(&[1]));
        assert!(matches!(&binary[..], [Action::Close(close)] if close.code == 1003));
    }
}
