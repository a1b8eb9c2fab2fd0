//! Whether words are finished, in languages without a trained head: by the recogniser's punctuation.

use super::en::endings::{Marks, log_odds};

/// The probability, 0..1, that the words are finished: the recogniser's marks if it tells them, else those that it
/// has written. `None` without any: then silence ends the turn.
pub(super) fn finished(text: &str, marks: Option<Marks>) -> Option<f32> {
    let odds = match marks {
        Some(Marks { ends, goes_on }) => {
            let ratio = ((ends + 0.01) / (goes_on + 0.01)).ln();
            0.7 * log_odds(ends) + 0.6 * ratio - 1.9
        }
        None if text.trim_end().ends_with(['.', '?', '!']) => 0.8,
        None => return None,
    };
    Some(1.0 / (1.0 + (-odds).exp()))
}
