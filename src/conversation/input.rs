//! The inputs of a conversation.

use super::ids::{CallId, ClauseId, ItemId, RequestId, RunId, TurnId};
use super::policy::Declarations;
use super::speculation::Discard;
use super::turn_detection::TurnDetection;
use crate::llm::{LlmEvent, Message, ToolChoice};
use crate::prediction::Prediction;
use crate::time::{Micros, Samples};
use crate::tools::{ToolError, ToolSpec};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One thing that happened. Given to [`super::Conversation::handle_input`] with the time it
/// happened at.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Input {
    /// The voice activity detector judged the window that ends at `end`.
    Vad {
        /// End of the window in the user's audio.
        end: Samples,
        /// Probability of speech, 0..1.
        probability: f32,
    },
    /// A transcription that was asked for is done.
    Transcript {
        /// The request it answers.
        request: RequestId,
        /// The text; empty if there was no speech.
        text: String,
    },
    /// An end-of-turn score that was asked for is done.
    Completeness {
        /// The request it answers.
        request: RequestId,
        /// Probability that the user is done, 0..1.
        probability: f32,
    },
    /// The language model said something.
    Llm {
        /// The generation it belongs to.
        request: RequestId,
        /// The event.
        event: LlmEvent,
    },
    /// The sources of predictions were asked.
    Predicted {
        /// The request it answers.
        request: RequestId,
        /// Predicted calls, the likeliest first.
        predictions: Vec<Prediction>,
    },
    /// The tools that the server runs have changed. They are offered once nothing of the session is in
    /// flight: no answer, no running call, no call that waits for a yes.
    Tools {
        /// All that the session may use from then on.
        tools: Declarations,
    },
    /// The server has much to do, or no longer: meanwhile nothing is asked for that only may be useful.
    Load {
        /// It has.
        busy: bool,
    },
    /// The server will not start a run that is not committed: there is no budget, or it is busy.
    RunRefused {
        /// The run.
        run: RunId,
        /// [`Discard::Budget`] or [`Discard::Overloaded`].
        reason: Discard,
    },
    /// A run of a tool ended.
    ToolFinished {
        /// The run.
        run: RunId,
        /// The result.
        result: Result<Value, ToolError>,
    },
    /// More audio of a clause was made.
    Synthesised {
        /// The clause.
        clause: ClauseId,
        /// How much, in time.
        length: Micros,
        /// Nothing more will come.
        last: bool,
    },
    /// Audio of a clause was handed to the client's socket.
    Sent {
        /// The clause.
        clause: ClauseId,
        /// How much of the clause has been sent in all, in time.
        until: Micros,
    },
    /// A job failed.
    Failed {
        /// The job.
        job: Job,
        /// Why, for the log.
        reason: String,
    },
    /// The client changed the session's settings.
    Configure(Box<Settings>),
    /// The user's audio up to here has come in, whether or not it was judged yet.
    Received {
        /// One past its last sample.
        end: Samples,
    },
    /// The client says that the user's turn is over (`input_audio_buffer.commit`).
    CommitAudio,
    /// The client threw away what the user said since the last turn.
    ClearAudio,
    /// The client added to the history. The user's words, at its end, answer a confirmation that
    /// waits.
    AddItem {
        /// Its id, if the client's side has chosen one: [`ItemId::of_client`].
        #[serde(default)]
        id: Option<ItemId>,
        /// Where to put it.
        #[serde(default)]
        place: Place,
        /// The item.
        item: NewItem,
    },
    /// The audio of a [`NewItem::Spoken`] has been listened to.
    ItemHeard {
        /// The item.
        item: ItemId,
        /// Its words, empty if there are none; `None` if it could not be transcribed.
        words: Option<String>,
    },
    /// The client removed an item from the history.
    DeleteItem {
        /// The item.
        item: ItemId,
    },
    /// The client tells how much of an item's audio was played.
    Truncate {
        /// The agent's item.
        item: ItemId,
        /// Heard, in time since the item's audio began.
        heard: Micros,
    },
    /// The client asks for an answer now. It runs a call that was confirmed in writing.
    Respond {
        /// Instructions for this answer alone.
        instructions: Option<String>,
    },
    /// The same, with more to say about the answer.
    RespondWith(Box<ResponseTerms>),
    /// The client stops the answer.
    CancelResponse,
    /// The client stops an answer that is given beside the conversation.
    CancelAside {
        /// The answer.
        aside: TurnId,
    },
    /// The user answered a confirmation by a click or a key rather than by voice.
    Confirm {
        /// The call that waits for it.
        call: CallId,
        /// Yes or no.
        accepted: bool,
    },
    /// The caller pressed a key of the telephone: `0` to `9`, `*`, `#` or `A` to `D`.
    Key {
        /// The key.
        key: char,
    },
    /// The client says that a clause has been played up to here. It may say so late, or never.
    Played {
        /// The clause.
        clause: ClauseId,
        /// How much of the clause, in time.
        until: Micros,
    },
    /// The client recognises speech itself, and the user has said this.
    Said {
        /// All words of the turn so far.
        text: String,
        /// The turn is over.
        last: bool,
    },
    /// The client has stopped the agent, because the user spoke over it or pressed a key. Only from
    /// clients that make the agent's voice themselves.
    Stopped {
        /// The agent's words that were heard, as far back as the client tells them; empty if it does
        /// not know.
        heard: String,
    },
    /// The client has fallen silent that makes the agent's voice: it has nothing more to say.
    VoiceEnded,
    /// Something to be told to the user when nobody is speaking, such as a timer that rings.
    Announce {
        /// The words.
        text: String,
    },
    /// The client is gone.
    HangUp,
    /// The server is shutting down: finish the current turn, then hang up.
    Drain,
}

/// A job of the shell, as named when it fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Job {
    /// The detection of speech.
    Detection,
    /// A transcription.
    Transcription(RequestId),
    /// An end-of-turn score.
    Completeness(RequestId),
    /// A generation of the language model.
    Generation(RequestId),
    /// The synthesis of a clause.
    Synthesis(ClauseId),
}

/// Where in the history an item is put.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// Behind all others.
    #[default]
    End,
    /// Before all others.
    Start,
    /// Right behind this one.
    After(ItemId),
}

/// Something that a client adds to the history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum NewItem {
    /// Instructions or facts for the model.
    System {
        /// The words.
        text: String,
    },
    /// Typed by the user.
    User {
        /// The words.
        text: String,
    },
    /// Something that the agent said before.
    Agent {
        /// The words.
        text: String,
    },
    /// A call to one of the client's own tools in a conversation that was held before.
    ToolCall {
        /// Joins it with its output: [`CallId::of_client`].
        call: CallId,
        /// The tool's name.
        name: String,
        /// The arguments.
        arguments: Map<String, Value>,
    },
    /// Spoken by the user in audio that the client brought along. Its words follow as
    /// [`Input::ItemHeard`], and answers wait for them.
    Spoken {
        /// Text in the same message.
        text: String,
    },
    /// The result of a call to one of the client's own tools.
    ToolOutput {
        /// The call that this answers.
        call: CallId,
        /// The result.
        output: Value,
    },
}

impl NewItem {
    /// Adds it behind all others, under an id of the session's choice.
    pub fn at_the_end(self) -> Input {
        Input::AddItem {
            id: None,
            place: Place::End,
            item: self,
        }
    }
}

/// Settings that a client may change at any time. `None` leaves a setting as it is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// The client's instructions for the model.
    pub instructions: Option<String>,
    /// The client's own tools: the client runs them. Replaces the earlier list.
    pub tools: Option<Vec<ToolSpec>>,
    /// How the end of the user's turn is found.
    pub turn_detection: Option<TurnDetection>,
    /// Whether anything may run before it is certain. What the operator has turned off stays off.
    pub speculation: Option<bool>,
    /// Which tool answers are to call first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
    /// How long an answer may be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<MaxTokens>,
    /// Transcribe and answer nothing, from here on.
    #[serde(skip_serializing_if = "is_false")]
    pub transcribe_only: bool,
}

/// The most tokens of an answer, calls included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MaxTokens {
    /// As many as the engine allows.
    Unlimited,
    /// So many.
    At(u32),
}

impl MaxTokens {
    /// The number, if there is one.
    pub fn number(self) -> Option<u32> {
        match self {
            Self::Unlimited => None,
            Self::At(tokens) => Some(tokens),
        }
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// A client's settings for one answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResponseTerms {
    /// Instructions for this answer alone.
    pub instructions: Option<String>,
    /// The client's tools for this answer; those of the session if `None`.
    pub tools: Option<Vec<ToolSpec>>,
    /// Which tool it is to call first; as in the session if `None`.
    pub tool_choice: Option<ToolChoice>,
    /// How long it may be; as in the session if `None`.
    pub max_tokens: Option<MaxTokens>,
    /// Items to show the model instead of the history.
    pub context: Option<Vec<Context>>,
    /// Where it is given.
    pub place: ResponsePlace,
}

impl ResponseTerms {
    /// Nothing but instructions, if any.
    pub fn of(instructions: Option<String>) -> Self {
        Self {
            instructions,
            ..Self::default()
        }
    }

    /// It leaves no trace in the history.
    pub(super) fn is_outside(&self) -> bool {
        self.place != ResponsePlace::Conversation
    }
}

/// Where an answer is given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResponsePlace {
    /// In the conversation.
    #[default]
    Conversation,
    /// To the user's ear, and not in the history.
    Aloud,
    /// In writing, beside whatever is being said: [`super::Event::AsideStarted`].
    Aside,
}

/// One message that a model is shown in place of the history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Context {
    /// An item of the history, as it is now.
    Item(ItemId),
    /// A message that is in no history.
    Message(Message),
}
