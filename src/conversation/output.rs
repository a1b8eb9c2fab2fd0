//! The decisions of a conversation, which the shell carries out.

use super::ids::{CallId, ClauseId, ItemId, RequestId, RunId, TurnId};
use super::latency::TurnLatency;
use super::outcome::{ConfirmationOutcome, HangUpReason, ResponseStatus};
use super::speculation::{SpeculationEvent, TurnRecord};
use crate::llm::{GivenResult, Prompt, TokenUsage};
use crate::prediction::Evidence;
use crate::time::{Micros, Samples};
use crate::tools::ToolError;
use crate::tts::Speaker;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case")]
pub enum Output {
    /// Transcribe the user's audio between two positions.
    Transcribe {
        /// Answered by [`super::Input::Transcript`].
        request: RequestId,
        /// First sample.
        from: Samples,
        /// One past the last sample.
        to: Samples,
        /// A partial may be skipped when the recogniser is busy; a final may not.
        partial: bool,
    },
    /// Score whether the user's turn is over.
    ScoreEndOfTurn {
        /// Answered by [`super::Input::Completeness`].
        request: RequestId,
        /// First sample.
        from: Samples,
        /// One past the last sample.
        to: Samples,
    },
    /// Ask the language model.
    Generate {
        /// Answered by [`super::Input::Llm`].
        request: RequestId,
        /// The prompt.
        prompt: Prompt,
        /// The agent whose model is asked, if the server has several.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent: Option<String>,
    },
    /// Synthesise the first clause of a held-back generation in advance. Nobody hears it unless a `Speak` with
    /// the same words in the same voice follows; it may be skipped when the voice is busy.
    Prepare {
        /// The generation. When it is cancelled, the clause is no longer wanted.
        request: RequestId,
        /// The words.
        text: String,
        /// The voice and language.
        #[serde(default, skip_serializing_if = "Speaker::is_default")]
        speaker: Speaker,
    },
    /// Give the model's server a result that a commit could use now. It may go on by itself when the model calls
    /// this tool.
    GiveResult {
        /// The generation.
        request: RequestId,
        /// The server's name for its answer.
        response: String,
        /// The call and its result.
        result: GivenResult,
    },
    /// Stop a generation whose answer is no longer wanted.
    CancelGeneration {
        /// The generation.
        request: RequestId,
    },
    /// Ask the draft model, which answers nobody: only the first complete call of each sample counts.
    AskDraft {
        /// Answered by as many [`super::Input::Drafted`] as there are samples.
        request: RequestId,
        /// The prompt of the generation beside it.
        prompt: Prompt,
        /// How often it is asked at the same time.
        samples: u32,
    },
    /// Stop the samples that have not ended. Each is still answered.
    StopDraft {
        /// The request.
        request: RequestId,
    },
    /// Ask the prediction sources.
    Route {
        /// Answered by [`super::Input::Predicted`].
        request: RequestId,
        /// The words and calls so far.
        heard: Evidence,
    },
    /// Run a tool.
    StartTool {
        /// Answered by [`super::Input::ToolFinished`].
        run: RunId,
        /// The call that the model committed; `None` for a speculative run, which changes nothing
        /// and may be refused.
        committed: Option<CallId>,
        /// The tool's name.
        name: String,
        /// The arguments by name.
        arguments: Map<String, Value>,
        /// The client runs it: it was told by [`SpeculationEvent::Started`].
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        by_client: bool,
        /// Earlier results that its fixed arguments are set from, by tool.
        #[serde(default, skip_serializing_if = "Map::is_empty")]
        taken: Map<String, Value>,
    },
    /// Abort a discarded run.
    AbortTool {
        /// The run.
        run: RunId,
    },
    /// Open a tool's connections in advance.
    WarmUp {
        /// The tool's name.
        tool: String,
    },
    /// Synthesise a clause. Clauses are played in the order of these requests.
    Speak {
        /// The clause.
        clause: ClauseId,
        /// The item it belongs to.
        item: ItemId,
        /// The words.
        text: String,
        /// The voice and language.
        #[serde(default, skip_serializing_if = "Speaker::is_default")]
        speaker: Speaker,
    },
    /// Stop synthesising this clause, and do not play it.
    CancelClause {
        /// The clause.
        clause: ClauseId,
    },
    /// Discard all audio that has not been played, here and at the client, and stop all synthesis.
    Flush,
    /// Send an event to the client.
    Notify(Event),
    /// End the session.
    HangUp {
        /// The reason.
        reason: HangUpReason,
    },
}

/// Says that a turn ends because its words could not be transcribed.
const WORDS_LOST: &str = "what was said could not be transcribed";

/// Events for clients. Every dialect translates them into its own messages.
///
/// The order within a turn: `SpeechStarted`, `PartialTranscript`*, `SpeechStopped`, then `UserItem` or
/// `UtteranceDropped`; then the response: `ResponseStarted`, agent items one after another
/// (`AgentItemStarted`, `AgentSpeech`* with audio between, `AgentItemDone`), `ResponseDone`. Tool calls are
/// reported at once (`ToolCalled`, and for the server's tools `ToolFinished` later), even while the filler
/// before them is still being sent. Only one spoken response is open at a time. Where the client ends turns by
/// hand, `PartialTranscript`* and `AudioCommitted` come in place of `SpeechStarted`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// The user began to speak.
    SpeechStarted {
        /// Position in the user's audio, pre-roll included.
        at: Samples,
    },
    /// The user fell silent.
    SpeechStopped {
        /// Position in the user's audio.
        at: Samples,
    },
    /// The user has said nothing for as long as the client allows, and is asked whether they are
    /// still there.
    IdleTimeout {
        /// Position in the user's audio where the silence began.
        from: Samples,
        /// Position where it reached the limit.
        to: Samples,
    },
    /// A partial transcript, which may still change.
    PartialTranscript {
        /// All words of the utterance so far.
        text: String,
    },
    /// The utterance was a false alarm: no turn follows.
    UtteranceDropped,
    /// The client's commit was accepted. Its turn follows with `UserItem` or `UtteranceDropped`, behind those of earlier
    /// commits; partial transcripts are of later audio.
    AudioCommitted,
    /// There is nothing that the client could commit.
    NothingToCommit {
        /// The reason.
        message: String,
    },
    /// The client's uncommitted audio was discarded.
    AudioCleared,
    /// The user's turn is over.
    UserItem {
        /// The item in the history.
        item: ItemId,
        /// The words.
        text: String,
        /// Spoken rather than typed.
        spoken: bool,
    },
    /// The client's item is in the history.
    ItemAdded {
        /// Its id.
        item: ItemId,
    },
    /// The transcript of audio that the client added to the history. Each such item gets this event or
    /// [`Event::ItemNotTranscribed`], even if it was refused or has been deleted.
    ItemTranscribed {
        /// The item.
        item: ItemId,
        /// Its words, typed ones included.
        text: String,
    },
    /// Audio that the client added to the history has no words, or could not be transcribed.
    ItemNotTranscribed {
        /// The item.
        item: ItemId,
        /// It was transcribed, and there are no words.
        wordless: bool,
    },
    /// An item left the history.
    ItemDeleted {
        /// Its id.
        item: ItemId,
    },
    /// An agent's item was cut at what was heard.
    ItemTruncated {
        /// Its id.
        item: ItemId,
        /// How much was heard.
        heard: Micros,
        /// Its remaining words.
        text: String,
    },
    /// A response began.
    ResponseStarted {
        /// The turn it serves.
        turn: TurnId,
        /// The client requested it.
        #[serde(default)]
        requested: bool,
        /// It says the opening, which has waited for the client.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        opens: bool,
    },
    /// The agent begins an item of speech.
    AgentItemStarted {
        /// The item in the history.
        item: ItemId,
    },
    /// The words of a clause, sent right before its first audio.
    AgentSpeech {
        /// The item.
        item: ItemId,
        /// The clause.
        clause: ClauseId,
        /// The words of this clause.
        text: String,
    },
    /// All audio of the item was sent, or it was cut short.
    AgentItemDone {
        /// The item.
        item: ItemId,
        /// Its words, as far as they were heard.
        text: String,
        /// The user or the client cut it short.
        interrupted: bool,
    },
    /// The model committed a tool call.
    ToolCalled {
        /// The item in the history.
        item: ItemId,
        /// The call.
        call: CallId,
        /// The tool's name.
        name: String,
        /// The arguments.
        arguments: Map<String, Value>,
        /// The client must run it and answer with [`super::NewItem::ToolOutput`].
        by_client: bool,
        /// The run that the client has begun early: it answers that one with [`super::Input::ToolFinished`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run: Option<RunId>,
    },
    /// The output of a call that the client has begun early is in the history.
    OutputAdded {
        /// The item of the output.
        item: ItemId,
        /// The call.
        call: CallId,
        /// The output.
        output: Value,
    },
    /// A tool that the server ran has ended.
    ToolFinished {
        /// The item of the call.
        item: ItemId,
        /// The call.
        call: CallId,
        /// The result.
        result: Result<Value, ToolError>,
    },
    /// A call that changes something waits for the user's yes.
    ConfirmationAsked {
        /// The call.
        call: CallId,
        /// The tool's name.
        name: String,
        /// The exact arguments.
        arguments: Map<String, Value>,
        /// The question, as it is spoken.
        question: String,
    },
    /// A confirmation has ended.
    ConfirmationEnded {
        /// The call.
        call: CallId,
        /// How it ended.
        outcome: ConfirmationOutcome,
    },
    /// Speculative runs. Sent only to clients that ask for these events.
    Speculation(SpeculationEvent),
    /// The record of a finished turn. Sent only to clients that ask for these events.
    TurnRecorded(Box<TurnRecord>),
    /// The agent cannot do what was asked.
    Unable {
        /// The turn it serves.
        turn: TurnId,
    },
    /// The response is over.
    ResponseDone {
        /// The turn it served.
        turn: TurnId,
        /// How it ended.
        status: ResponseStatus,
        /// When each stage of the turn was reached.
        latency: Box<TurnLatency>,
        /// The language model's usage.
        #[serde(default)]
        usage: TokenUsage,
    },
    /// A response outside the conversation began. It is neither spoken nor in the history, and may run beside
    /// others.
    AsideStarted {
        /// The answer.
        aside: TurnId,
    },
    /// More words of a response outside the conversation.
    AsideText {
        /// The answer.
        aside: TurnId,
        /// The words.
        text: String,
    },
    /// The model called a client's tool in a response outside the conversation. The server does not wait for
    /// the output.
    AsideCalled {
        /// The answer.
        aside: TurnId,
        /// The tool's name.
        name: String,
        /// The arguments.
        arguments: Map<String, Value>,
    },
    /// A response outside the conversation is over.
    AsideDone {
        /// The answer.
        aside: TurnId,
        /// How it ended.
        status: ResponseStatus,
        /// The language model's usage.
        usage: TokenUsage,
    },
    /// A machine has answered the call that the server has placed.
    MachineAnswered,
    /// The client is back. Audio that was sent before is no longer wanted.
    ClientReturned,
    /// Another agent goes on with the conversation.
    AgentChanged {
        /// Its name.
        agent: String,
    },
    /// A stage failed; the conversation goes on.
    StageFailed {
        /// The stage: `asr`, `llm`, `tts`, `turn_model`.
        stage: String,
        /// A message that may be shown to the client.
        message: String,
    },
    /// A client's request could not be carried out.
    Refused {
        /// The refused request: the name of the [`super::Input`].
        request: String,
        /// The reason, and what would be right.
        message: String,
    },
}

impl Event {
    /// The failure of a turn whose words could not be transcribed. [`Event::UtteranceDropped`] follows.
    pub fn words_lost() -> Self {
        Self::StageFailed {
            stage: "asr".into(),
            message: WORDS_LOST.into(),
        }
    }

    /// Whether this is [`Event::words_lost`]. After other failures of the stage `asr` another recogniser stands in.
    pub fn loses_words(&self) -> bool {
        matches!(self, Self::StageFailed { stage, message } if stage == "asr" && message == WORDS_LOST)
    }
}
