//! The inputs of a conversation.

use super::agent::Agent;
use super::draft::SampledCall;
use super::early_tools::EarlyTool;
use super::ids::{CallId, ClauseId, ItemId, Job, RequestId, RunId, TurnId};
use super::policy::Declarations;
use super::shed::Shed;
use super::speculation::Discard;
use super::turn_detection::TurnDetection;
use crate::asr::{Doubt, TurnReport};
use crate::language::Marks;
use crate::llm::{LlmEvent, Message, TokenUsage, ToolChoice};
use crate::prediction::Prediction;
use crate::time::{Micros, Samples};
use crate::tools::{ToolError, ToolSpec};
use crate::tts::Speaker;
use serde::{Deserialize, Serialize};
use serde_json::Value;

mod new_item;

pub use new_item::{NewItem, Place};

/// One input, for [`super::Conversation::handle_input`], which also takes its time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Input {
    /// The voice activity detector judged the window that ends at `end`.
    Vad {
        /// End of the window in the user's audio.
        end: Samples,
        /// Probability of speech, 0..1.
        probability: f32,
        /// Its level, dB below full scale: -120..0. Recordings from before it was measured have 0.
        #[serde(default)]
        level: i16,
    },
    /// A transcription is done.
    Transcript {
        /// The request it answers.
        request: RequestId,
        /// The text; empty if there was no speech.
        text: String,
        /// The punctuation that the recogniser expects after it, if it reports any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        marks: Option<Marks>,
        /// The reason why the text is empty although the recogniser heard words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        doubt: Option<Doubt>,
        /// Whether it has to be heard again at the next pause, as [`crate::asr::Recognised::provisional`].
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        provisional: bool,
    },
    /// An end-of-turn score is done.
    Completeness {
        /// The request it answers.
        request: RequestId,
        /// Probability that the user is done, 0..1.
        probability: f32,
    },
    /// A recogniser that judges turns has judged the user's.
    TurnJudged(TurnReport),
    /// The language model streamed an event.
    Llm {
        /// The generation it belongs to.
        request: RequestId,
        /// The event.
        event: LlmEvent,
    },
    /// The prediction sources have answered.
    Predicted {
        /// The request it answers.
        request: RequestId,
        /// Predicted calls, the likeliest first.
        predictions: Vec<Prediction>,
    },
    /// A sample of the draft model ended.
    Drafted {
        /// The request it answers.
        request: RequestId,
        /// Its first complete call; `None` if it made none, or was stopped before.
        call: Option<SampledCall>,
        /// Its tokens.
        usage: TokenUsage,
    },
    /// The server's tools changed. The session adopts them once nothing is in flight: no answer, no running
    /// call, no call that waits for a yes.
    Tools {
        /// All tools of the session from then on.
        tools: Declarations,
    },
    /// Another agent goes on with the session, from the next generation.
    Agent(Box<Agent>),
    /// The notes on the caller as of now, [`crate::conversation::Briefing::notes`].
    Notes {
        /// All notes from then on.
        notes: Vec<String>,
    },
    /// The server has less or more room for optional work than before.
    Load {
        /// The work that it has no room for.
        #[serde(alias = "busy", deserialize_with = "Shed::read")]
        shed: Shed,
    },
    /// The day's budget for tokens of discarded generations is spent, or there is a new one. Without it nothing is
    /// requested before it is certain to be needed.
    TokenBudget {
        /// Whether it is spent.
        spent: bool,
    },
    /// The day's budget for tokens of the draft model is spent, or there is a new one.
    DraftBudget {
        /// Whether it is spent.
        spent: bool,
    },
    /// The server refuses to start a speculative run, for lack of budget or because it is busy.
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
    /// More audio of a clause was synthesised.
    Synthesised {
        /// The clause.
        clause: ClauseId,
        /// The length of this piece.
        length: Micros,
        /// This was the last piece.
        last: bool,
        /// When the clause's next words end, since its beginning, if the voice tells it: one for each word between
        /// spaces.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        word_ends: Vec<Micros>,
    },
    /// The voice of a clause that was asked for is being loaded first.
    VoiceLoads {
        /// The clause.
        clause: ClauseId,
    },
    /// Audio of a clause was handed to the client's socket.
    Sent {
        /// The clause.
        clause: ClauseId,
        /// How much of the clause has been sent so far; zero right before its first audio.
        until: Micros,
    },
    /// A job failed.
    Failed {
        /// The job.
        job: Job,
        /// The reason, for the log.
        reason: String,
    },
    /// The client changed the session's settings.
    Configure(Box<Settings>),
    /// The user's audio up to this position was received, judged or not.
    Received {
        /// One past its last sample.
        end: Samples,
    },
    /// The client commits the user's turn (`input_audio_buffer.commit`).
    CommitAudio,
    /// The client discards the user's audio since the last turn.
    ClearAudio,
    /// The client adds an item to the history. A user message at the end also answers an open confirmation.
    AddItem {
        /// Its id, if the transport has chosen one with [`ItemId::of_client`].
        #[serde(default)]
        id: Option<ItemId>,
        /// Where to put it.
        #[serde(default)]
        place: Place,
        /// The item.
        item: NewItem,
    },
    /// The transcription of a [`NewItem::Spoken`] is done.
    ItemHeard {
        /// The item.
        item: ItemId,
        /// The transcript, empty if there are no words; `None` if the recogniser failed.
        words: Option<String>,
    },
    /// The client removes an item from the history.
    DeleteItem {
        /// The item.
        item: ItemId,
    },
    /// The client reports how much of an item's audio was played.
    Truncate {
        /// The agent's item.
        item: ItemId,
        /// Time played since the beginning of the item's audio.
        heard: Micros,
    },
    /// The client requests a response. This also runs a call that was confirmed in writing.
    Respond {
        /// Instructions for this response only, in place of the client's for the session.
        instructions: Option<String>,
    },
    /// The client requests a response with further settings.
    RespondWith(Box<ResponseTerms>),
    /// The client cancels the response.
    CancelResponse,
    /// The client cancels a response outside the conversation.
    CancelAside {
        /// The answer.
        aside: TurnId,
    },
    /// The user answered a confirmation by click or key.
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
    /// A playout report: the client has played a clause up to this point. Reports may come late or never.
    Played {
        /// The clause.
        clause: ClauseId,
        /// Time played since the beginning of the clause.
        until: Micros,
    },
    /// A transcript from a client with its own recogniser.
    Said {
        /// All words of the turn so far.
        text: String,
        /// The turn is over.
        last: bool,
    },
    /// A client with its own voice stopped the agent, because the user spoke or pressed a key.
    Stopped {
        /// The agent's last words that were heard, as reported by the client; empty if it does not know.
        heard: String,
    },
    /// A client with its own voice has finished all speech.
    VoiceEnded,
    /// An announcement to make when nobody is speaking, such as a timer going off.
    Announce {
        /// The words.
        text: String,
    },
    /// The server has placed the call.
    Placed {
        /// The message for an answering machine, which is hung up on if it is empty.
        message: String,
    },
    /// A tone has ended, such as that of an answering machine.
    Beep,
    /// The caller on the telephone cannot be heard any more: say so, then hang up.
    Unheard,
    /// The client is gone.
    HangUp,
    /// The server is shutting down: finish the current turn, then hang up.
    Drain,
    /// The server is shutting down, and the other party cannot come back by itself: finish the current turn, say
    /// goodbye, then hang up.
    Farewell,
    /// The client's connection was lost. It may come back, until [`Input::HangUp`].
    ClientLost,
    /// The client is back.
    ClientBack {
        /// The last words that it has heard; `None` if it does not say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        heard: Option<HeardUpTo>,
    },
}

/// Where a client has stopped hearing the agent. It has heard everything before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeardUpTo {
    /// The last item of the agent that it has heard some of.
    pub item: ItemId,
    /// Time played since the beginning of the item's audio.
    pub until: Micros,
}

impl NewItem {
    /// The input that adds it at the end, with an id chosen by the session.
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
    /// The tools that the client runs. Replaces the earlier list.
    pub tools: Option<Vec<ToolSpec>>,
    /// Those of `tools` that may run early. Without `tools` it has no effect.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub early: Vec<EarlyTool>,
    /// The language that user and agent speak, a BCP 47 tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// Words that the user is likely to say and recognisers unlikely to know; those of the agent if it is empty. The
    /// shell tells them to the recogniser.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keyterms: Option<Vec<String>>,
    /// The recogniser from now on; that of the agent if it is empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recogniser: Option<String>,
    /// The agent's voice from now on. A `voice` of `None` is the agent's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speaker: Option<Speaker>,
    /// How the end of the user's turn is detected.
    pub turn_detection: Option<TurnDetection>,
    /// Whether anything may run early. If the operator has turned speculation off, it stays off.
    pub speculation: Option<bool>,
    /// The tool that responses must call first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
    /// The most tokens of a response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<MaxTokens>,
    /// Only transcribe and answer nothing, from now on.
    #[serde(skip_serializing_if = "is_false")]
    pub transcribe_only: bool,
    /// The client has set up the session: an opening that waits for it begins.
    #[serde(skip_serializing_if = "is_false")]
    pub releases_opening: bool,
}

/// The token limit of a response, calls included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MaxTokens {
    /// As many as the engine allows.
    Unlimited,
    /// This many.
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

/// A client's settings for one response.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResponseTerms {
    /// Instructions for this response only, in place of the client's for the session. The operator's stay.
    pub instructions: Option<String>,
    /// The client's tools for this response; the session's if `None`.
    pub tools: Option<Vec<ToolSpec>>,
    /// The tool choice for its first generation; the session's if `None`.
    pub tool_choice: Option<ToolChoice>,
    /// The most tokens; the session's if `None`.
    pub max_tokens: Option<MaxTokens>,
    /// Items to show the model instead of the history.
    pub context: Option<Vec<Context>>,
    /// Where the response goes.
    pub place: ResponsePlace,
}

impl ResponseTerms {
    /// Terms with only these instructions.
    pub fn of(instructions: Option<String>) -> Self {
        Self {
            instructions,
            ..Self::default()
        }
    }

    /// The request as [`super::Event::Refused`] names it.
    pub(super) fn request(&self) -> &'static str {
        match self.place {
            ResponsePlace::Aside => "RespondAside",
            ResponsePlace::Aloud | ResponsePlace::Conversation => "Respond",
        }
    }

    /// Whether the prompt after a commit is known before it: it depends neither on the number of tokens used until
    /// then nor on a history of the client's. `most`: the most tokens if these terms name none.
    pub(super) fn keep_the_prompt(&self, most: MaxTokens) -> bool {
        let most = self.max_tokens.unwrap_or(most);
        most.number().is_none() && !self.is_outside() && self.context.is_none()
    }

    /// Whether the response leaves no trace in the history.
    pub(super) fn is_outside(&self) -> bool {
        self.place != ResponsePlace::Conversation
    }
}

/// Where a response goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResponsePlace {
    /// Into the conversation: spoken, and in the history.
    #[default]
    Conversation,
    /// Spoken, but not in the history.
    Aloud,
    /// As text outside the conversation: [`super::Event::AsideStarted`].
    Aside,
}

/// One message of a context that replaces the history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Context {
    /// An item of the history, as it is now.
    Item(ItemId),
    /// A message that is not in the history.
    Message(Message),
}
