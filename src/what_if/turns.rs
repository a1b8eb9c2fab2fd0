//! The turns of a session, and how those of two sessions differ.

use crate::conversation::{Event, Micros, Output, Time, TurnRecord};
use crate::llm::TokenUsage;
use serde::Serialize;

/// The figures of one turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TurnFigures {
    /// End of speech to the agent's first audio, ms; `None` if nothing was heard or said.
    pub first_audio_ms: Option<u64>,
    /// End of speech to the answer, fillers left out, ms.
    pub answer_audio_ms: Option<u64>,
    /// Silence between filler and answer, ms.
    pub dead_air_ms: Option<u64>,
    /// Tokens of the language model, prompts and discarded generations included.
    pub tokens: u64,
    /// Fillers said by the conversation rather than the model.
    pub fillers: u32,
    /// Fillers that were not said because the answer was there.
    pub fillers_dropped: u32,
}

/// One turn as recorded and under the other policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TurnChange {
    /// The end of the user's speech, or when the words, key or request came.
    pub at: Time,
    /// As recorded; `None` if there was no such turn.
    pub recorded: Option<TurnFigures>,
    /// Under the other policy; `None` if there is no such turn.
    pub changed: Option<TurnFigures>,
}

/// The turns of one session, in their order.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// With the tokens of each response.
    all: Vec<(TurnRecord, TokenUsage)>,
    last: TokenUsage,
}

impl Turns {
    /// Notes a decision of the conversation.
    pub(super) fn decided(&mut self, output: &Output) {
        let Output::Notify(event) = output else {
            return;
        };
        match event {
            Event::ResponseDone { usage, .. } => self.last = *usage,
            Event::TurnRecorded(record) => {
                let usage = record.turn.map(|_| std::mem::take(&mut self.last));
                self.all
                    .push(((**record).clone(), usage.unwrap_or_default()));
            }
            _ => {}
        }
    }

    pub(super) fn records(&self) -> impl Iterator<Item = &TurnRecord> {
        self.all.iter().map(|(record, _)| record)
    }

    /// All tokens of the session.
    pub(super) fn tokens(&self) -> u64 {
        let tokens = |(record, usage): &(TurnRecord, TokenUsage)| tokens(record, *usage);
        self.all.iter().map(tokens).sum()
    }

    /// The turns that were answered, with their beginnings.
    fn answered(&self) -> Vec<(Time, TurnFigures)> {
        let answered = self.all.iter().filter(|(record, _)| record.turn.is_some());
        answered
            .filter_map(|(record, usage)| Some((beginning(record)?, figures(record, *usage))))
            .collect()
    }

    /// The turns of both sessions. Those with the same beginning are the same turn.
    pub(super) fn beside(&self, changed: &Self) -> Vec<TurnChange> {
        let mut rest = changed.answered();
        let mut turns: Vec<TurnChange> = Vec::new();
        for (at, recorded) in self.answered() {
            let same = rest.iter().position(|(other, _)| *other == at);
            turns.push(TurnChange {
                at,
                recorded: Some(recorded),
                changed: same.map(|same| rest.remove(same).1),
            });
        }
        turns.extend(rest.into_iter().map(|(at, changed)| TurnChange {
            at,
            recorded: None,
            changed: Some(changed),
        }));
        turns.sort_by_key(|turn| turn.at);
        turns
    }
}

fn beginning(record: &TurnRecord) -> Option<Time> {
    record.latency.speech_end.or(record.latency.end_of_turn)
}

fn figures(record: &TurnRecord, usage: TokenUsage) -> TurnFigures {
    let latency = &record.latency;
    let since = |to: Option<Time>| Some(to?.since(beginning(record)?).as_ms());
    let answer = match latency.commit {
        Some(_) => latency.answer_audio,
        None => latency.first_audio,
    };
    TurnFigures {
        first_audio_ms: since(latency.first_audio),
        answer_audio_ms: since(answer),
        dead_air_ms: latency.dead_air.map(Micros::as_ms),
        tokens: tokens(record, usage),
        fillers: record.fillers,
        fillers_dropped: record.fillers_dropped,
    }
}

/// The tokens of a response, of the generations that were discarded meanwhile, and of the draft model.
fn tokens(record: &TurnRecord, usage: TokenUsage) -> u64 {
    let discarded = record.held.iter().filter(|held| !held.used);
    let drafted = record.drafts.iter().map(|draft| draft.usage.total());
    usage.total()
        + discarded
            .map(|held| held.usage.total())
            .chain(drafted)
            .sum::<u64>()
}
