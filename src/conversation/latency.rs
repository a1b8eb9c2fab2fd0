//! When each stage of a turn was reached.

use super::ids::ClauseId;
use crate::time::{Micros, Time};
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
    pub dead_air: Option<Micros>,
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

/// The stamps of an answer that is being given.
#[derive(Debug, Default)]
pub(super) struct Stamps {
    pub(super) latency: TurnLatency,
    /// The first clause after a tool's result.
    after_result: Option<ClauseId>,
}

impl From<TurnLatency> for Stamps {
    /// Of an answer to a turn whose stages are stamped so far.
    fn from(latency: TurnLatency) -> Self {
        let after_result = None;
        Self {
            latency,
            after_result,
        }
    }
}

impl Stamps {
    /// A clause that is no filler was queued.
    pub(super) fn queued(&mut self, clause: ClauseId) {
        if self.latency.tool_result.is_some() {
            self.after_result.get_or_insert(clause);
        }
    }

    /// The client is about to hear a clause. What was sent before is heard until `sent_until`, unless
    /// this `is_first`.
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
