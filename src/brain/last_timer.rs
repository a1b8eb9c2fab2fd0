//! The timer that was set last, and another length for it, in every language.

use crate::language::request::{Request, Target};
use crate::llm::Message;

/// The last call, which set a timer.
pub(super) struct LastTimer {
    /// Its index in the conversation.
    pub(super) at: usize,
    pub(super) seconds: u64,
    pub(super) label: Option<String>,
}

impl LastTimer {
    /// The timer of the last call, if that set one. Asking how long is left changes nothing.
    pub(super) fn of(before: &[Message]) -> Option<Self> {
        let is_call = |message: &Message| {
            matches!(message, Message::ToolCall { .. }) && !lists_timers(message)
        };
        let at = before.iter().rposition(is_call)?;
        match &before[at] {
            Message::ToolCall {
                name, arguments, ..
            } if name == "set_timer" => {
                let label = arguments.get("label").and_then(|label| label.as_str());
                Some(Self {
                    at,
                    seconds: arguments.get("seconds")?.as_u64()?,
                    label: label.map(str::to_owned),
                })
            }
            _ => None,
        }
    }

    /// The timer as one that is to be cancelled: by its label, or else by its length.
    pub(super) fn target(&self) -> Target {
        let label = self.label.clone();
        label.map_or(Target::Seconds(self.seconds), Target::Label)
    }

    /// The same timer with another length: it is cancelled, and set anew.
    pub(super) fn with_length(self, seconds: u64) -> Vec<Request> {
        let old = self.target();
        let new = Request::SetTimer {
            seconds: Some(seconds),
            label: self.label,
        };
        vec![Request::CancelTimer(old), new]
    }
}

/// Whether this call asks for the timers.
pub(super) fn lists_timers(message: &Message) -> bool {
    matches!(message, Message::ToolCall { name, .. } if name == "list_timers")
}
