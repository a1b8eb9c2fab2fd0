//! Whether the user's words are a whole request for a tool, or the beginning of one.

use crate::prediction::{Prediction, Source};

/// The least confidence of a prediction that says something about the end of the turn.
const LEAST: f32 = 0.85;

/// The weight of a tool that has all its arguments: the logarithm of the odds that the user is done. A monotonous voice
/// ends a request without punctuation that the recogniser hears.
const WHOLE: f32 = 2.0;

/// The weight of a required argument that is open. It is small: "where is my order" is complete to its speaker.
const OPEN: f32 = -1.5;

/// The answers of the prediction sources about the words so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::conversation) struct Request {
    /// A tool is likely, and has its arguments.
    whole: bool,
    /// A tool is likely, and a required argument is open.
    open: bool,
}

impl Request {
    /// Takes a prediction into account. A call that usually follows does not show that the user is
    /// done.
    pub(super) fn hears(&mut self, one: &Prediction) {
        let counts = one.confidence >= LEAST && one.source != Source::Transition;
        self.whole |= counts && one.open.is_empty() && !one.arguments.is_empty();
        self.open |= counts && !one.open.is_empty();
    }

    /// How much it weighs for the end of the turn: the logarithm of the odds.
    pub(in crate::conversation) fn weight(self) -> f32 {
        let weight = |counts, weight| if counts { weight } else { 0.0 };
        weight(self.whole, WHOLE) + weight(self.open, OPEN)
    }
}

#[cfg(test)]
impl Request {
    /// A request with these answers.
    pub(in crate::conversation) fn of(whole: bool, open: bool) -> Self {
        Self { whole, open }
    }
}
