//! The same inputs at the same times again: the decisions must be the same, byte for byte.

use super::{Recording, RecordingLine};
use crate::conversation::{Conversation, Output};

/// The outcome of a replay.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Replayed {
    /// Inputs and passings of time that were fed.
    pub steps: usize,
    /// Decisions that were compared.
    pub outputs: usize,
    /// The recording goes to the end of the session.
    pub complete: bool,
    /// The first decision that is not the recorded one; nothing after it was compared.
    pub difference: Option<Difference>,
}

/// A decision that is not the recorded one.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Difference {
    /// The line of the recording, from 1, where the decision stands or should stand.
    pub line: usize,
    /// The line as recorded; `None` if there was no such decision.
    pub recorded: Option<String>,
    /// The line as it would be written now; `None` if there is no such decision now.
    pub replayed: Option<String>,
}

/// Feeds the recorded inputs to a new conversation and compares what it decides.
pub fn replay(recording: &Recording) -> Replayed {
    let mut conversation = Conversation::new(recording.header.policy.clone());
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
    // Its keys are strings and its floats finite or null: there is nothing that cannot be written.
    serde_json::to_string(&RecordingLine::output(output)).unwrap_or_default()
}
