//! How fast the language model is: until its first word, and from event to event.

use super::ids::RequestId;
use crate::time::{Micros, Time};
use std::collections::VecDeque;

/// Waits for the first event that are remembered.
const REMEMBERED: usize = 8;

/// The assumed wait for the first event of a model that has not answered yet.
const UNKNOWN: Micros = Micros::from_ms(500);

/// Events of the model's stream after which its pace counts, alone and beside another generation.
const COUNTS: u32 = 40;

/// The factor by which the model's stream may slow down because of another generation.
const SLOWER: f64 = 1.1;

/// The pace of a session's language model.
#[derive(Debug, Default)]
pub(super) struct ModelPace {
    first: VecDeque<Micros>,
    last: Option<(RequestId, Time)>,
    /// Events and the time between them, µs.
    alone: (u32, u64),
    beside: (u32, u64),
}

impl ModelPace {
    /// The first event of a generation has come `wait` after its request.
    pub(super) fn began(&mut self, wait: Micros) {
        if self.first.len() == REMEMBERED {
            self.first.pop_front();
        }
        self.first.push_back(wait);
    }

    /// The expected wait for the first event: the median of the last ones.
    pub(super) fn first_event(&self) -> Micros {
        let mut sorted: Vec<Micros> = self.first.iter().copied().collect();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied().unwrap_or(UNKNOWN)
    }

    /// An event of the answer's generation has come. `beside`: another generation is under way.
    pub(super) fn event(&mut self, request: RequestId, now: Time, beside: bool) {
        if let Some((_, before)) = self.last.filter(|(of, _)| *of == request) {
            let (events, time) = match beside {
                true => &mut self.beside,
                false => &mut self.alone,
            };
            *events += 1;
            *time += now.since(before).0;
        }
        self.last = Some((request, now));
    }

    /// Whether another generation at the same time slows the model's stream down.
    pub(super) fn is_slowed(&self) -> bool {
        let ((alone, alone_time), (beside, beside_time)) = (self.alone, self.beside);
        let mean = |events: u32, time: u64| time as f64 / f64::from(events.max(1));
        alone >= COUNTS
            && beside >= COUNTS
            && mean(beside, beside_time) > SLOWER * mean(alone, alone_time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_for_the_first_event_is_learned() {
        let mut pace = ModelPace::default();
        assert_eq!(pace.first_event(), UNKNOWN);
        for ms in [900, 350, 340] {
            pace.began(Micros::from_ms(ms));
        }
        assert_eq!(pace.first_event(), Micros::from_ms(350));
    }

    #[test]
    fn a_second_stream_that_slows_the_first_is_noticed() {
        let mut pace = ModelPace::default();
        let mut now = 0;
        let mut stream = |pace: &mut ModelPace, gap: u64, beside| {
            for _ in 0..=COUNTS {
                now += gap;
                pace.event(RequestId(1), Time::from_ms(now), beside);
            }
        };
        stream(&mut pace, 20, false);
        stream(&mut pace, 21, true);
        assert!(!pace.is_slowed());
        stream(&mut pace, 40, true);
        assert!(pace.is_slowed());
    }
}
