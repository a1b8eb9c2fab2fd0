//! Replays a recording: the same inputs at the same times must give the same decisions, byte for
//! byte.

use super::{Recording, RecordingLine};
use crate::conversation::{Conversation, Output};

/// The outcome of a replay.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Replayed {
    /// Inputs and timeouts that were replayed.
    pub steps: usize,
    /// Decisions that were equal.
    pub outputs: usize,
    /// Whether the recording extends to the end of the session.
    pub complete: bool,
    /// The first decision that differs; nothing after it was compared.
    pub difference: Option<Difference>,
}

/// A decision that differs from the recorded one.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Difference {
    /// The line number of the decision in the recording, from 1, or where it should be.
    pub line: usize,
    /// The recorded line; `None` if there was no such decision.
    pub recorded: Option<String>,
    /// The replayed line; `None` if there is no such decision now.
    pub replayed: Option<String>,
}

/// Feeds the recorded inputs to a new conversation and compares its decisions.
pub fn replay(recording: &Recording) -> Replayed {
    let mut conversation = recording.header.conversation();
    let mut replayed = Replayed {
        steps: 0,
        outputs: 0,
        complete: recording.complete,
        difference: None,
    };
    // The last step of a recording that was cut short may lack decisions.
    let cut = |step: usize| !recording.complete && step == recording.steps.len();
    let opening = decisions(&mut conversation);
    replayed.compare(1, &recording.opening, opening, cut(0));
    for step in &recording.steps {
        if replayed.difference.is_some() {
            break;
        }
        match step.input.clone() {
            Some(input) => conversation.handle_input(step.at, input),
            None => conversation.handle_timeout(step.at),
        }
        replayed.steps += 1;
        let decided = decisions(&mut conversation);
        replayed.compare(step.line, &step.outputs, decided, cut(replayed.steps));
    }
    replayed
}

fn decisions(conversation: &mut Conversation) -> Vec<Output> {
    std::iter::from_fn(|| conversation.poll_output()).collect()
}

impl Replayed {
    /// Compares the decisions after the step in `line` with the recorded ones.
    fn compare(&mut self, line: usize, recorded: &[String], decided: Vec<Output>, cut: bool) {
        let decided: Vec<String> = decided.into_iter().map(text_of).collect();
        for at in 0..recorded.len().max(decided.len()) {
            let (recorded, replayed) = (recorded.get(at), decided.get(at));
            if recorded == replayed {
                self.outputs += 1;
            } else if recorded.is_some() || !cut {
                self.difference = Some(Difference {
                    line: line + 1 + at,
                    recorded: recorded.cloned(),
                    replayed: replayed.cloned(),
                });
                return;
            }
        }
    }
}

/// The line of a decision.
pub(super) fn text_of(output: Output) -> String {
    // Serialisation cannot fail: keys are strings, and floats are finite or null.
    serde_json::to_string(&RecordingLine::output(output)).unwrap_or_default()
}
