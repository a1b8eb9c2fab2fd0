//! When a user is taken to speak another language than before.

/// Detection on less audio flips to neighbours: a spoken "Halt!" is English to Whisper base with 0.9.
pub(super) const SHORTEST: usize = 24_000;

/// A language is only left for one that is so likely among those allowed. Whisper base gives 0.8 to English for a
/// German "Wie spät ist es in Tokio?", and 0.9 to 1.0 to German for most whole sentences.
const CLEARLY: f32 = 0.9;

/// The index of the other language that is clearly spoken in audio of `samples` samples at 16 kHz, if there is one.
/// `now` and `others` are logits.
pub(super) fn other(now: f32, others: &[f32], samples: usize) -> Option<usize> {
    if samples < SHORTEST {
        return None;
    }
    let (at, best) = others
        .iter()
        .copied()
        .enumerate()
        .max_by(|a, b| a.1.total_cmp(&b.1))?;
    let all = others.iter().chain([&now]);
    let total: f32 = all.map(|logit| (logit - best).exp()).sum();
    (1.0 / total >= CLEARLY).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: usize = 2 * SHORTEST;

    #[test]
    fn a_language_is_left_only_for_one_that_is_clearly_spoken() {
        assert_eq!(other(0.0, &[5.0, -5.0], LONG), Some(0));
        assert_eq!(other(0.0, &[-5.0, 5.0], LONG), Some(1));
        // Likelier, but not by far.
        assert_eq!(other(0.0, &[2.0, -5.0], LONG), None);
        // Two that are as likely as each other.
        assert_eq!(other(0.0, &[5.0, 5.0], LONG), None);
        assert_eq!(other(0.0, &[5.0, -5.0], SHORTEST - 1), None);
        assert_eq!(other(0.0, &[], LONG), None);
    }
}
