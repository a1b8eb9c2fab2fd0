//! Time stamps of the stages of a turn.

use super::ids::ClauseId;
use crate::time::{Micros, Time};
use serde::{Deserialize, Serialize};

/// The stamps of one turn; `None` if a stage was not reached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnLatency {
    /// The end of the user's speech, by the voice activity detector.
    pub speech_end: Option<Time>,
    /// The final transcript came.
    pub transcript: Option<Time>,
    /// The end-of-turn score came.
    pub completeness: Option<Time>,
    /// The end of the turn was decided.
    pub end_of_turn: Option<Time>,
    /// The generation was requested, possibly before the end of the turn.
    pub generation: Option<Time>,
    /// The language model's first event was used: for a held-back answer, at the end of the turn.
    pub llm_first: Option<Time>,
    /// The first tool call was committed.
    pub commit: Option<Time>,
    /// The result of the last tool call came.
    pub tool_result: Option<Time>,
    /// The first audio of the response was synthesised.
    pub first_synthesis: Option<Time>,
    /// The first audio of the response was sent. This ends the user's wait.
    pub first_audio: Option<Time>,
    /// The first audio after the last tool result was sent.
    pub answer_audio: Option<Time>,
    /// Silence between the end of the filler and the answer, microseconds; `None` without a tool.
    pub dead_air: Option<Micros>,
}

impl TurnLatency {
    /// The stamps of a turn without speech: a key, a click, a typed message, or a request of the client.
    pub(super) fn of_turn_at(now: Time) -> Self {
        Self {
            end_of_turn: Some(now),
            ..Self::default()
        }
    }
}

/// The stamps of the current answer.
#[derive(Debug, Default)]
pub(super) struct Stamps {
    pub(super) latency: TurnLatency,
    /// The first clause after a tool's result.
    after_result: Option<ClauseId>,
}

impl From<TurnLatency> for Stamps {
    /// The stamps of an answer to a turn with these stamps.
    fn from(latency: TurnLatency) -> Self {
        let after_result = None;
        Self {
            latency,
            after_result,
        }
    }
}

impl Stamps {
    /// Notes a queued clause that is not a filler.
    pub(super) fn queued(&mut self, clause: ClauseId) {
        if self.latency.tool_result.is_some() {
            self.after_result.get_or_insert(clause);
        }
    }

    /// Notes that a clause is about to play. The audio before it ends at `sent_until`; there is none if this
    /// `is_first`.
    pub(super) fn heard(&mut self, now: Time, clause: ClauseId, sent_until: Time, is_first: bool) {
        let latency = &mut self.latency;
        latency.first_audio.get_or_insert(now);
        let is_answer = self.after_result.is_some_and(|first| clause >= first);
        if is_answer && latency.answer_audio.is_none() {
            latency.answer_audio = Some(now);
            latency.dead_air = (!is_first).then(|| now.since(sent_until));
        }
    }
}
