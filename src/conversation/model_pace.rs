//! How fast the language model streams, alone and beside another generation.

use super::ids::RequestId;
use crate::time::Time;

/// Events of the model's stream after which its pace counts, alone and beside another generation.
const COUNTS: u32 = 40;

/// The factor by which the model's stream may slow down because of another generation.
const SLOWER: f64 = 1.1;

/// The pace of a session's language model.
#[derive(Debug, Default)]
pub(super) struct ModelPace {
    last: Option<(RequestId, Time)>,
    /// Events and the time between them, µs.
    alone: (u32, u64),
    beside: (u32, u64),
}

impl ModelPace {
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
