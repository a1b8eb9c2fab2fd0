//! The history for a model that calls tools natively.
//!
//! - Calls of one round stand in one message of the assistant, after the words that were said up to their
//!   results. Each is followed by its result at once, because servers refuse any other order.
//! - A call without a result in its round has a placeholder there; a late result is a note where it came.
//! - Mistral refuses the user's role after a result, so an assistant's word comes between.
//! - Ids of calls are nine letters and digits, the only form that Mistral takes.

use super::{
    ChatCall, ChatFunction, ChatMessage, INTERRUPTED, LONGEST_NAME, Role, UNANSWERED, YOUR_TURN,
    cut, format_result, length, result_text,
};
use crate::llm::Message;
use crate::llm::untrusted::{sanitise, sanitise_map};
use crate::tools::ToolSpec;
use serde_json::{Map, Value};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Characters that a message may have beside its text: an id, a placeholder, a note of the server.
pub(super) const OVERHEAD: usize = 120;

/// The result of a call that has none yet, or never had one.
const NO_RESULT: &str = "{\"status\":\"no result yet\"}";

/// Said between a result and the user's next words, and before a call to a server that refuses one without words.
pub(in crate::llm) const BETWEEN: &str = "Okay.";

/// The length of the tools in a request, in characters.
pub(super) fn weight(tools: &[ToolSpec]) -> usize {
    let one = |tool: &ToolSpec| {
        let schema = length(&tool.parameters.to_string());
        length(&tool.name) + length(&tool.description) + schema + OVERHEAD
    };
    tools.iter().map(one).sum()
}

/// The messages being assembled.
#[derive(Default)]
pub(super) struct History<'a> {
    /// The tools that the model may call.
    tools: &'a [ToolSpec],
    messages: Vec<ChatMessage>,
    round: Round,
    /// The last message was the user's words.
    unanswered: bool,
}

/// Words of the agent and the calls after them.
#[derive(Default)]
struct Round {
    words: String,
    calls: Vec<Call>,
}

struct Call {
    id: String,
    function: ChatFunction,
    result: Option<String>,
}

impl Round {
    /// Whether it is over: all of its calls have results.
    fn is_answered(&self) -> bool {
        !self.calls.is_empty() && self.calls.iter().all(|call| call.result.is_some())
    }
}

impl<'a> History<'a> {
    /// A history without messages, of a model that is offered these tools.
    pub(super) fn of(tools: &'a [ToolSpec]) -> Self {
        Self {
            tools,
            ..Self::default()
        }
    }

    pub(super) fn system(&mut self, text: String) {
        self.messages.push(ChatMessage::new(Role::System, text));
    }

    /// Adds a note of the server.
    pub(super) fn note(&mut self, note: &str) {
        self.flush();
        self.user(note);
    }

    /// Adds a message, cut to `most` characters with all that belongs to it.
    pub(super) fn add(&mut self, message: &Message, most: usize) {
        let most = most.saturating_sub(OVERHEAD);
        match message {
            Message::System { text } => {
                self.note(&format!("<note>{}</note>", cut(sanitise(text), most)));
            }
            Message::User { text } => {
                self.flush();
                let text = cut(sanitise(text), most);
                if std::mem::replace(&mut self.unanswered, false) {
                    self.user(UNANSWERED);
                }
                self.user(&text);
                self.unanswered = true;
            }
            Message::Agent { text, interrupted } => {
                self.speech(&cut(sanitise(text), most), *interrupted);
            }
            Message::ToolCall {
                id,
                name,
                arguments,
            } => self.call(id, name, arguments, most),
            Message::ToolResult { id, name, output } => self.result(id, name, output, most),
        }
    }

    fn speech(&mut self, text: &str, interrupted: bool) {
        if self.round.is_answered() {
            self.flush();
        }
        let words = &mut self.round.words;
        if !words.is_empty() {
            words.push(' ');
        }
        words.push_str(text.trim());
        if interrupted {
            self.note(INTERRUPTED);
        }
    }

    fn call(&mut self, id: &str, name: &str, arguments: &Map<String, Value>, most: usize) {
        if self.round.is_answered() {
            self.flush();
        }
        let arguments = Value::Object(sanitise_map(arguments)).to_string();
        let is_offered = self.tools.iter().any(|tool| tool.name == name);
        self.round.calls.push(Call {
            id: id.to_owned(),
            function: ChatFunction {
                name: match is_offered {
                    true => name.to_owned(),
                    false => callable(name),
                },
                arguments: match length(&arguments) <= most {
                    true => arguments,
                    false => "{}".to_owned(),
                },
            },
            result: None,
        });
    }

    fn result(&mut self, id: &str, name: &str, output: &Value, most: usize) {
        let open = |call: &&mut Call| call.id == id && call.result.is_none();
        if let Some(call) = self.round.calls.iter_mut().find(open) {
            call.result = Some(cut(result_text(output), most));
        } else {
            self.note(&format_result(name, output, most));
        }
    }

    /// Adds what was said and called so far.
    fn flush(&mut self) {
        let Round { words, calls } = std::mem::take(&mut self.round);
        if words.is_empty() && calls.is_empty() {
            return;
        }
        self.unanswered = false;
        let ids: Vec<String> = calls.iter().map(|call| short_id(&call.id)).collect();
        let of_call =
            |(call, id): (&Call, &String)| ChatCall::new(id.clone(), call.function.clone());
        self.messages.push(ChatMessage {
            tool_calls: calls.iter().zip(&ids).map(of_call).collect(),
            ..ChatMessage::new(Role::Assistant, words)
        });
        for (call, id) in calls.into_iter().zip(ids) {
            let result = call.result.unwrap_or_else(|| NO_RESULT.to_owned());
            self.messages.push(ChatMessage {
                tool_call_id: Some(id),
                ..ChatMessage::new(Role::Tool, result)
            });
        }
    }

    /// Adds text in the user's role.
    fn user(&mut self, text: &str) {
        match self.messages.last_mut() {
            Some(last) if last.role == Role::User => {
                last.content.push('\n');
                last.content.push_str(text);
                return;
            }
            Some(last) if last.role == Role::Tool => {
                let between = ChatMessage::new(Role::Assistant, BETWEEN.to_owned());
                self.messages.push(between);
            }
            _ => {}
        }
        let message = ChatMessage::new(Role::User, text.to_owned());
        self.messages.push(message);
    }

    /// The messages. The last is the user's or a result: given words of the assistant last, servers continue
    /// them or refuse. `demand` is a note on this answer alone.
    pub(super) fn finish(mut self, begun: &str, demand: Option<String>) -> Vec<ChatMessage> {
        self.flush();
        if self
            .messages
            .get(1)
            .is_none_or(|first| first.role != Role::User)
        {
            let begun = ChatMessage::new(Role::User, begun.to_owned());
            self.messages.insert(1, begun);
        }
        if self
            .messages
            .last()
            .is_some_and(|last| last.role == Role::Assistant)
        {
            self.user(YOUR_TURN);
        }
        if let (Some(last), Some(demand)) = (self.messages.last_mut(), demand) {
            last.content.push('\n');
            last.content.push_str(&demand);
        }
        self.messages
    }
}

/// A name that every server takes: letters, digits, `_` and `-`, no digit or `-` first, 64 at most. A model may have
/// called a tool that never was, and servers refuse the whole request over its name.
pub(in crate::llm) fn callable(name: &str) -> String {
    let allowed = |c: char| match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '-' => c,
        _ => '_',
    };
    let first = match name.chars().next() {
        None => return "unnamed".to_owned(),
        Some('0'..='9' | '-') => Some('_'),
        Some(_) => None,
    };
    let name = first.into_iter().chain(name.chars().map(allowed));
    name.take(LONGEST_NAME).collect()
}

/// An id of nine letters and digits, the same for the same call.
fn short_id(id: &str) -> String {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    let mut left = hasher.finish();
    let digits = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let mut digit = || {
        let digit = digits[(left % 36) as usize];
        left /= 36;
        char::from(digit)
    };
    std::iter::repeat_with(&mut digit).take(9).collect()
}
