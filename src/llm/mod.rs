//! The language model: takes a prompt and returns a stream of [`LlmEvent`]s.
//!
//! | files | subject |
//! |---|---|
//! | `remote`, `remote/takes` | a model on a server, in any dialect: requests, retries, warm-ups; its parameters |
//! | `openai_compatible`, `anthropic` | the dialects: bodies of requests, and streams (`wire`: pure) |
//! | `http` | errors without secrets, and the bounds of event streams |
//! | `markup` | PURE: the incremental parser of `<speech>` and `<tool>`, and of calls in the forms of other models |
//! | `native_call`, `left_in_text`, `opaque` | calls as data; those left in the text beside them; a provider's blocks that come back with calls |
//! | `prompt`, `untrusted` | the messages; text from outside |
//! | `plan` | PURE: plans and their references |
//! | `fallback`, `probe` | a second model; the abilities of a model, found out by questions |
//! | `phrases`, `scripted` | fixed phrases; models for tests |

mod anthropic;
mod fallback;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod http;
mod left_in_text;
pub mod markup;
mod native_call;
mod opaque;
mod openai_compatible;
pub mod phrases;
pub mod plan;
pub mod probe;
pub mod prompt;
pub mod remote;
pub mod scripted;
pub mod untrusted;

pub use fallback::{Fallback, FallbackFigures};
pub use phrases::Phrases;
pub use prompt::Prompts;
pub use remote::Remote;

use crate::time::Micros;
use crate::tools::ToolSpec;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;

/// An event in a model's stream. Every engine produces exactly these.
///
/// The events of a call come in order: one `ToolOpened`, any number of `ToolArguments` and `ToolRead`, one
/// `ToolClosed`.
/// Calls do not nest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum LlmEvent {
    /// A piece of speech, of any length, without markup.
    Speech {
        /// The words, white space included.
        text: String,
    },
    /// A tool call began. Its name is known; its arguments follow.
    ToolOpened {
        /// The tool's name.
        name: String,
    },
    /// A piece of the open call's arguments, as the model wrote them.
    ToolArguments {
        /// The raw piece.
        piece: String,
    },
    /// The arguments of the open call that are finished so far. Nothing of a further one has been written.
    /// This commits nothing: more may follow, and the call may still turn out to be malformed.
    ToolRead {
        /// The arguments by name.
        arguments: Map<String, Value>,
        /// Their list is closed: only the end of the call is missing.
        whole: bool,
    },
    /// The open call is complete. This commits it.
    ToolClosed {
        /// The arguments by name, or why they could not be read.
        arguments: Result<Map<String, Value>, String>,
    },
    /// The model is at work without a word so far: it thinks, or its server keeps the connection alive.
    Thinking,
    /// The server takes results of tools for this answer, see [`Llm::give`]. Comes at most once, and first.
    TakesResults {
        /// The server's name for the answer.
        response: String,
    },
    /// The server had the results of all calls so far, and goes on: what follows is the answer to them.
    GoesOn,
    /// The model cannot do what was asked, and says so in its speech.
    Unable,
    /// The answer was cut at its token limit.
    Cut,
    /// The server's token counts. Comes at most once, before the end.
    Used {
        /// The counts.
        usage: TokenUsage,
    },
    /// The model is done.
    End,
}

impl LlmEvent {
    /// Whether it is a part of the answer, rather than a sign that the server is at work.
    pub(crate) fn is_output(&self) -> bool {
        !matches!(self, Self::Thinking | Self::TakesResults { .. })
    }
}

/// Token counts of a language model, reported by its server or estimated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenUsage {
    /// Tokens of prompts.
    pub input: u64,
    /// Of those, tokens found in the server's prompt cache.
    pub cached: u64,
    /// Tokens of answers, markup, calls and thoughts included.
    pub output: u64,
    /// Of those, tokens of thoughts, if the server counts them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reasoning: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl TokenUsage {
    /// Adds the counts of another generation.
    pub fn add(&mut self, other: Self) {
        self.input += other.input;
        self.cached += other.cached;
        self.output += other.output;
        self.reasoning += other.reasoning;
    }

    /// The tokens of prompts and answers together.
    pub fn total(&self) -> u64 {
        self.input + self.output
    }
}

/// Average characters per token of English text.
pub const TOKEN_CHARS: usize = 4;

/// The estimated number of tokens in `chars` characters of text.
pub fn tokens_of(chars: usize) -> u64 {
    chars.div_ceil(TOKEN_CHARS) as u64
}

/// The tool that the model must call, if any.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// None. The tools stay in the prompt, so that its beginning stays the same.
    None,
    /// At least one tool.
    Required,
    /// This tool.
    Function(String),
}

impl ToolChoice {
    /// Whether a call must be made.
    pub(crate) fn is_forced(&self) -> bool {
        matches!(self, Self::Required | Self::Function(_))
    }
}

/// One message of the prompt, oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    /// A note of the operator or the client.
    System {
        /// The words.
        text: String,
    },
    /// The user's words, as transcribed or typed. Untrusted.
    User {
        /// The words.
        text: String,
    },
    /// The agent's words, as far as the user heard them.
    Agent {
        /// The words, cut at the interruption.
        text: String,
        /// The user interrupted, so the words end early.
        interrupted: bool,
    },
    /// A tool call that the model committed.
    ToolCall {
        /// The id that its result refers to.
        id: String,
        /// The tool's name.
        name: String,
        /// The arguments by name.
        arguments: Map<String, Value>,
    },
    /// A tool's result. Untrusted.
    ToolResult {
        /// The id of the call.
        id: String,
        /// The tool's name.
        name: String,
        /// The result, or an object with the single key `error`.
        output: Value,
    },
}

/// The input of one generation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prompt {
    /// The operator's and client's instructions, which are added to the system prompt.
    pub instructions: Option<String>,
    /// The day on which the session began, in words; the model is not told if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub day: Option<String>,
    /// The conversation so far, oldest first.
    pub messages: Vec<Message>,
    /// The tools that are offered. Whether one may be called is a matter of the demands.
    pub tools: Arc<Vec<ToolSpec>>,
    /// Constraints on the answer.
    #[serde(default, skip_serializing_if = "Demands::is_default")]
    pub demands: Demands,
}

/// Constraints on an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Demands {
    /// The token limit; the engine's own if `None`.
    pub max_tokens: Option<u32>,
    /// The tool that it must call, if any.
    pub tool_choice: ToolChoice,
    /// Its language, a BCP 47 tag; the model decides if `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// The session whose answer it is: what a provider adds to a call comes back in that session alone. The session
    /// sets it.
    #[serde(skip)]
    pub session: u64,
}

impl Demands {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Prompt {
    /// Whether the answer may call a tool.
    pub fn may_call(&self) -> bool {
        self.demands.tool_choice != ToolChoice::None
    }

    /// The names of the tools.
    pub fn tool_names(&self) -> Vec<String> {
        self.tools.iter().map(|tool| tool.name.clone()).collect()
    }

    /// The estimated number of tokens.
    pub fn estimate(&self) -> u64 {
        let message = |message: &Message| match message {
            Message::System { text } | Message::User { text } | Message::Agent { text, .. } => {
                text.chars().count()
            }
            Message::ToolCall {
                name, arguments, ..
            } => name.len() + json_chars(arguments),
            Message::ToolResult { name, output, .. } => name.len() + json_chars(output),
        };
        let messages: usize = self.messages.iter().map(message).sum();
        let tools: usize = self.tools.iter().map(json_chars).sum();
        let instructions = self
            .instructions
            .as_ref()
            .map_or(0, |text| text.chars().count());
        tokens_of(messages + tools + instructions)
    }
}

fn json_chars(value: &impl Serialize) -> usize {
    serde_json::to_string(value).map_or(0, |text| text.chars().count())
}

/// The result of a tool, for a server that goes on by itself when the model calls this tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GivenResult {
    /// The tool's name.
    pub tool: String,
    /// The arguments by name.
    pub arguments: Map<String, Value>,
    /// The result.
    pub result: Value,
    /// How long it may be used.
    pub keep_alive: Micros,
}

/// An error of a generation. The conversation goes on with an apology.
///
/// Clients see the `Display` form, so it contains neither an address nor text from the model's server;
/// [`LlmError::details`] is for the operator.
#[derive(Debug, thiserror::Error)]
pub enum LlmError {
    /// No connection could be made.
    #[error("the language model cannot be reached")]
    Unreachable {
        /// The address without secrets.
        url: String,
        /// The HTTP client's reason.
        reason: String,
    },
    /// The server answered with an error status.
    #[error("the language model answered with status {status}")]
    Status {
        /// The address without secrets.
        url: String,
        /// HTTP status code.
        status: u16,
        /// The start of the response body.
        body: String,
    },
    /// The stream broke off or violated the protocol.
    #[error("the language model's stream broke")]
    Stream(String),
    /// The engine could not be set up or run.
    #[error("{0}")]
    Engine(String),
}

impl LlmError {
    /// The kind of failure and where to look, for anybody to read: no address, and nothing that the server said.
    #[must_use]
    pub fn cause(&self) -> String {
        let Self::Status { status, .. } = self else {
            return match self {
                Self::Unreachable { .. } => "its server cannot be reached",
                Self::Stream(_) => "its server's answer broke off; the log says why",
                _ => "it cannot be asked; the log says why",
            }
            .to_owned();
        };
        let why = match status {
            400 | 422 => "its server refuses the request; the log says why",
            401 | 403 => "its server refuses the key: see api_key_env or api_key_file",
            404 => "its server does not know the model or the path: see model and base_url",
            429 => "its server is busy, or the account is used up",
            503 => "it is loading",
            _ => "its server fails; the log says why",
        };
        format!("{why} (status {status})")
    }

    /// The full error, with the address and the server's message.
    #[must_use]
    pub fn details(&self) -> String {
        match self {
            Self::Unreachable { url, reason } => {
                format!("cannot reach the language model at {url}: {reason}")
            }
            Self::Status { url, status, body } => {
                format!("the language model at {url} answered {status}: {body}")
            }
            Self::Stream(reason) => format!("{self}: {reason}"),
            Self::Engine(reason) => reason.clone(),
        }
    }
}

/// A stream of events that ends with [`LlmEvent::End`] or the first error. Dropping it cancels the
/// generation.
pub type LlmStream = BoxStream<'static, Result<LlmEvent, LlmError>>;

/// How a model calls tools.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Calls {
    /// In the text of its answer, as the prompt tells it.
    #[default]
    Markup,
    /// Natively: the request lists the tools, and calls come as data.
    Native,
}

/// A language model as traces name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelId {
    /// The dialect of its server, or the name of this program.
    pub dialect: &'static str,
    /// Its server's name and port; `None` if it runs in this process.
    pub server: Option<(String, u16)>,
    /// Its name at the server.
    pub name: String,
}

/// A language model.
pub trait Llm: Send + Sync {
    /// A short name for logs: the engine and the model.
    fn name(&self) -> &str;

    /// Its name for traces.
    fn id(&self) -> ModelId {
        ModelId {
            dialect: env!("CARGO_PKG_NAME"),
            server: None,
            name: self.name().to_owned(),
        }
    }

    /// Starts a generation. Returns at once; connecting happens inside the stream.
    fn generate(&self, prompt: Prompt) -> LlmStream;

    /// Has the model loaded, and the beginning of `prompt` cached. May take minutes.
    ///
    /// # Errors
    /// An error if the model cannot answer. Another attempt may succeed.
    fn warm_up(&self, prompt: Prompt) -> BoxFuture<'static, Result<(), LlmError>> {
        drop(prompt);
        Box::pin(std::future::ready(Ok(())))
    }

    /// Texts that it answers with again and again in conversations that begin with `prompt`, for voices to prepare.
    fn often_said(&self, prompt: &Prompt) -> Vec<String> {
        let _none_are_known = prompt;
        Vec::new()
    }

    /// Whether its server takes results of tools: its answers may begin with [`LlmEvent::TakesResults`].
    fn takes_results(&self) -> bool {
        false
    }

    /// Gives the server a result for the answer that it calls `response`.
    ///
    /// # Errors
    /// An error if the server has not taken it. The answer does not depend on it.
    fn give(
        &self,
        response: &str,
        result: GivenResult,
    ) -> BoxFuture<'static, Result<(), LlmError>> {
        drop((response.len(), result));
        Box::pin(std::future::ready(Ok(())))
    }
}
