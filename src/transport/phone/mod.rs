//! Telephone calls.
//!
//! | module | subject |
//! |---|---|
//! | [`audiosocket`] | Asterisk's AudioSocket over TCP, paced by this server |
//! | [`chan_websocket`] | Asterisk's WebSocket channel driver |
//! | [`conversation_relay`] | Twilio's ConversationRelay, where Twilio does speech recognition and synthesis |
//! | [`media_streams`] | audio from Twilio, Telnyx and Plivo in JSON messages |
//! | [`signature`] | proves that a request comes from Twilio |
//! | [`tickets`] | proves that a stream belongs to a call that we answered |

pub mod audiosocket;
pub mod chan_websocket;
pub mod conversation_relay;
pub mod media_streams;
pub mod signature;
pub mod tickets;

use crate::conversation::{ClauseId, Input, Micros};
use crate::tools::{Named, Origin, SessionValues};
use crate::transport::{Action, Close, close_code};

/// The agent's audio between two marks.
const MARK_EVERY: Micros = Micros::from_ms(200);

/// Marks in the agent's audio with which the provider reports playout.
#[derive(Debug, Default)]
struct Marks {
    clause: Option<ClauseId>,
    sent: Micros,
    marked: Micros,
}

impl Marks {
    /// Counts sent audio of a clause. Returns the name of the mark to send after it, if one is due.
    fn sent(&mut self, clause: ClauseId, length: Micros) -> Option<String> {
        if self.clause.replace(clause) != Some(clause) {
            (self.sent, self.marked) = (Micros(0), Micros(0));
        }
        self.sent = self.sent + length;
        if self.sent.0 < self.marked.0 + MARK_EVERY.0 {
            return None;
        }
        self.marked = self.sent;
        Some(format!("{}/{}", clause.0, self.sent.as_ms()))
    }

    /// The playout that a returned mark confirms; `None` if the mark is not ours.
    fn played(name: &str) -> Option<Input> {
        let (clause, ms) = name.split_once('/')?;
        Some(Input::Played {
            clause: ClauseId(clause.parse().ok()?),
            until: Micros(ms.parse::<u64>().ok()?.checked_mul(1_000)?),
        })
    }
}

/// Twilio's words for the number of a caller who withholds it: the words "restricted", "blocked",
/// "unknown", "anonymous" and "unavailable" on a telephone's keys.
const WITHHELD_AS: [&str; 5] = [
    "+7378742833",
    "+2562533",
    "+8656696",
    "+266696687",
    "+86282452253",
];

/// Whether this text says that the number is withheld. Callers who withhold theirs must not be taken
/// for one and the same.
fn is_withheld(number: &str) -> bool {
    let name = number.trim().to_ascii_lowercase();
    let name = name.strip_prefix("sip:").unwrap_or(&name);
    let name = name.split('@').next().unwrap_or_default();
    let words = [
        "anonymous",
        "restricted",
        "private",
        "unknown",
        "unavailable",
        "blocked",
        "withheld",
    ];
    words.contains(&name) || WITHHELD_AS.contains(&name)
}

/// The numbers of a call as its provider tells them, vouched for by `origin`.
pub fn numbers(caller: &str, called: &str, forwarded_from: &str, origin: Origin) -> SessionValues {
    let numbers = [
        (Named::Caller, caller),
        (Named::Called, called),
        (Named::ForwardedFrom, forwarded_from),
    ];
    let numbers = numbers
        .into_iter()
        .filter(|(_, number)| !is_withheld(number));
    numbers.fold(SessionValues::default(), |values, (name, number)| {
        values.with(name, number, origin)
    })
}

/// Closes the socket with a policy violation.
fn refuse(reason: &'static str) -> Vec<Action> {
    vec![Action::Close(Close {
        code: close_code::POLICY,
        reason,
    })]
}

/// The key in a provider's message, if it is a single key.
fn key(digit: &str) -> Option<Input> {
    let mut keys = digit.chars();
    match (keys.next(), keys.next()) {
        (Some(key), None) => Some(Input::Key {
            key: key.to_ascii_uppercase(),
        }),
        _ => None,
    }
}

/// A call that closing the socket does not end: the provider's API has to hang it up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The provider's id of the call.
    pub call: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_name_the_clause_and_the_position() {
        let mut marks = Marks::default();
        let mut named = Vec::new();
        for clause in [7, 7, 8] {
            for _ in 0..12 {
                named.extend(marks.sent(ClauseId(clause), Micros::from_ms(20)));
            }
        }
        assert_eq!(named, ["7/200", "7/400", "8/200"]);
        let played = Input::Played {
            clause: ClauseId(7),
            until: Micros::from_ms(400),
        };
        assert_eq!(Marks::played("7/400"), Some(played));
        for stranger in [
            "",
            "7",
            "7/",
            "/4",
            "a/b",
            "7/4/1",
            "-1/3",
            "1/18446744073709551615",
        ] {
            assert_eq!(Marks::played(stranger), None, "{stranger}");
        }
    }
}
