//! When each stage of a turn was reached.

use super::time::Time;
use serde::{Deserialize, Serialize};

/// The stamps of one turn; `None` where a stage was not reached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnLatency {
    /// The user's last speech, by the voice activity detector.
    pub speech_end: Option<Time>,
    /// The final transcript was there.
    pub transcript: Option<Time>,
    /// The end-of-turn score was there.
    pub completeness: Option<Time>,
    /// The turn was found to be over.
    pub end_of_turn: Option<Time>,
    /// The language model was asked, possibly before the turn was over.
    pub generation: Option<Time>,
    /// The language model's first event; the end of the turn if it came before.
    pub llm_first: Option<Time>,
    /// The first tool call was committed.
    pub commit: Option<Time>,
    /// The last tool's result was there.
    pub tool_result: Option<Time>,
    /// The first audio of the response was made.
    pub first_synthesis: Option<Time>,
    /// The first audio of the response was sent: what the user waits for.
    pub first_audio: Option<Time>,
    /// The first audio after the last tool result was sent.
    pub answer_audio: Option<Time>,
    /// Silence between the filler's end and the answer, microseconds; none if there was no tool.
    pub dead_air: Option<super::time::Micros>,
}

impl TurnLatency {
    /// Of a turn that was no speech: a key, a click, words in writing, or the client's wish.
    pub(super) fn of_turn_at(now: Time) -> Self {
        Self {
            end_of_turn: Some(now),
            ..Self::default()
        }
    }
}
