//! The messages and streams of clients as functions of their bytes, for [`super::READERS`].

use super::phone::audiosocket::Decoder;
use super::phone::media_streams::Admit;
use super::realtime::Realtime;
use super::{Action, Admitted, ClientMessage, Dialect, Frame};
use crate::conversation::{CallId, ClauseId, Event, ItemId, Micros, ResponseStatus, Time, TurnId};
use crate::llm::TokenUsage;
use crate::session::Outbound;
use futures_util::FutureExt;
use serde_json::Map;

pub(super) fn realtime_client() -> Realtime {
    Realtime::new(Some("m".into()), None, true)
}

pub(super) fn admit() -> Admit {
    Box::new(|_| Box::pin(std::future::ready(Some(Admitted::default()))))
}

/// A client whose messages are the lines of `bytes`, binary if they are no text. A line of `~` and a digit is an output of
/// the session.
pub(super) fn messages(mut dialect: impl Dialect, bytes: &[u8]) {
    carry_out(&mut dialect, |dialect| dialect.start());
    for line in bytes.split(|byte| *byte == b'\n') {
        let closed = carry_out(&mut dialect, |dialect| match line {
            [b'~', digit] => dialect.session(output(*digit)),
            line => dialect.client(match std::str::from_utf8(line) {
                Ok(text) => ClientMessage::Text(text),
                Err(_) => ClientMessage::Binary(line),
            }),
        });
        if closed {
            return;
        }
    }
    dialect.overrun(Micros(20_000));
}

/// Returns whether the connection is closed.
fn carry_out<D: Dialect>(dialect: &mut D, step: impl FnOnce(&mut D) -> Vec<Action>) -> bool {
    let mut closed = check(&step(dialect));
    if let Some(question) = dialect.question() {
        let answer = question.now_or_never().flatten();
        closed |= check(&dialect.admitted(answer));
    }
    closed
}

/// Returns whether the actions close the connection.
fn check(actions: &[Action]) -> bool {
    let mut closes = false;
    for action in actions {
        match action {
            Action::SendAudio {
                frame: Frame::Binary(bytes),
                ..
            } => assert!(!bytes.is_empty(), "a frame without audio"),
            Action::Close(close) => {
                assert!(close.reason.len() <= 123, "{}", close.reason);
                closes = true;
            }
            _ => {}
        }
    }
    closes
}

fn output(digit: u8) -> Outbound {
    let (turn, item, clause, call) = (TurnId(1), ItemId(2), ClauseId(3), CallId(4));
    let event = match digit {
        b'0' => Event::ResponseStarted {
            turn,
            requested: true,
            opens: false,
        },
        b'1' => Event::AgentItemStarted { item },
        b'2' => Event::AgentSpeech {
            item,
            clause,
            text: "Hello.".into(),
        },
        b'3' => Event::AgentItemDone {
            item,
            text: "Hello.".into(),
            interrupted: true,
        },
        b'4' => Event::ResponseDone {
            turn,
            status: ResponseStatus::Completed,
            latency: Box::default(),
            usage: TokenUsage::default(),
        },
        b'5' => Event::UserItem {
            item,
            text: "Hi.".into(),
            spoken: true,
        },
        b'6' => Event::ToolCalled {
            item,
            call,
            name: "now".into(),
            arguments: Map::new(),
            by_client: true,
            run: None,
        },
        b'7' => return Outbound::Clear,
        b'8' => Event::ItemAdded { item },
        _ => {
            let samples = vec![1; 320];
            return Outbound::Audio {
                item,
                clause,
                samples,
            };
        }
    };
    let at = Time::from_ms(1);
    Outbound::Event { at, event }
}

/// AudioSocket's stream may come in any pieces.
pub(super) fn audiosocket(bytes: &[u8]) {
    let read = |most: usize| {
        let mut decoder = Decoder::default();
        let mut messages = Vec::new();
        for piece in bytes.chunks(most) {
            decoder.buffer().extend_from_slice(piece);
            while let Some(message) = decoder.pop() {
                messages.push(message);
            }
        }
        messages
    };
    assert_eq!(read(3), read(bytes.len().max(1)));
}
