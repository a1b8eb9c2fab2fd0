//! The order of one session's transcripts, although several threads make them.

use super::RecogniserResult;
use crate::asr::Recognised;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Knows which transcripts of a session have overtaken others. The conversation knows finals by their requests and takes
/// them in any order. A partial would show fewer words than before if it came after a later final, or before the final of
/// a part in front of it: it fails instead, as if it had been skipped.
#[derive(Clone, Default)]
pub(super) struct Order(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// The number of parts so far.
    parts: u64,
    /// The finals that are not there yet, by their numbers.
    awaited: Vec<u64>,
    /// The latest final that is there.
    latest: u64,
}

/// The place of a part among those of its session.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    number: u64,
    partial: bool,
}

impl Order {
    /// Takes the next place.
    pub(super) fn next(&self, partial: bool) -> Place {
        let mut state = self.lock();
        state.parts += 1;
        let number = state.parts;
        if !partial {
            state.awaited.push(number);
        }
        Place { number, partial }
    }

    /// There will be no transcript for this place.
    pub(super) fn give_up(&self, place: Place) {
        self.lock().awaited.retain(|&number| number != place.number);
    }

    /// Hands a transcript over, while no other one of the session is. `done` must not block.
    pub(super) fn hand_over(
        &self,
        place: Place,
        heard: RecogniserResult,
        done: impl FnOnce(RecogniserResult),
    ) {
        let mut state = self.lock();
        let is_late = state.latest > place.number;
        if place.partial {
            let is_early = state.awaited.iter().any(|&number| number < place.number);
            return done(match is_late || is_early {
                true => Err("a partial is out of order".into()),
                false => heard,
            });
        }
        state.awaited.retain(|&number| number != place.number);
        state.latest = state.latest.max(place.number);
        done(heard.map(|heard| Recognised {
            // The session goes on in the language of the latest words.
            language: heard.language.filter(|_| !is_late),
            ..heard
        }));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hand_over(order: &Order, place: Place) -> RecogniserResult {
        let heard = Recognised {
            language: Some("de".into()),
            .."Guten Tag.".into()
        };
        let mut told = None;
        order.hand_over(place, Ok(heard), |heard| told = Some(heard));
        told.expect("it is told")
    }

    #[test]
    fn a_partial_counts_unless_it_comes_after_a_later_final_or_before_an_earlier_one() {
        let order = Order::default();
        let [first, second] = [order.next(true), order.next(true)];
        assert!(hand_over(&order, second).is_ok());
        assert!(hand_over(&order, first).is_ok());
        let (before, last, after) = (order.next(true), order.next(false), order.next(true));
        assert!(hand_over(&order, after).is_err());
        assert!(hand_over(&order, last).is_ok());
        assert!(hand_over(&order, before).is_err());
        assert!(hand_over(&order, order.next(true)).is_ok());
    }

    #[test]
    fn a_final_that_was_not_taken_is_not_waited_for() {
        let order = Order::default();
        order.give_up(order.next(false));
        assert!(hand_over(&order, order.next(true)).is_ok());
    }

    #[test]
    fn a_final_counts_in_any_order_but_only_the_latest_says_the_language() {
        let order = Order::default();
        let [first, second] = [order.next(false), order.next(false)];
        let language = |heard: RecogniserResult| heard.expect("words").language;
        assert_eq!(language(hand_over(&order, second)).as_deref(), Some("de"));
        assert_eq!(language(hand_over(&order, first)), None);
    }
}
