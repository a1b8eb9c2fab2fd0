//! Hot paths, which every session takes many times a second, for `cargo bench --bench core`.

use crate::conversation::{ClauseId, ItemId, Micros, Time};
use crate::llm::markup::Parser;
use crate::session::Pacer;

/// An answer in markup, as a model streams it.
const ANSWER: &str = "<speech>Let me check that for you. It only takes a moment.</speech>\
    <tool>get_forecast(city=\"Boulder\", days=3)</tool>\
    <speech>It is sixty two degrees and cloudy, with some wind from the west.</speech>";

/// The pacer's sample rate, Hz.
const RATE: u32 = 16_000;

pub use crate::conversation::Rehearsal;

/// Parses an answer that is streamed in pieces of four characters. Returns the number of events.
pub fn parse() -> usize {
    let mut parser = Parser::new();
    let pieces = ANSWER.as_bytes().chunks(4);
    let texts = pieces.filter_map(|piece| std::str::from_utf8(piece).ok());
    texts.map(|text| parser.push(text).len()).sum()
}

/// Paces a clause of one second, whose `samples` are synthesised 100 ms at a time. Returns the number of frames sent.
pub fn pace(samples: &[i16]) -> usize {
    let mut pacer = Pacer::new(RATE);
    let clause = ClauseId(1);
    pacer.expect(clause, ItemId(1), Micros::from_ms(1_000));
    let chunks = samples.chunks(RATE as usize / 10);
    let last = chunks.len().saturating_sub(1);
    let mut frames = 0;
    for (at, chunk) in chunks.enumerate() {
        pacer.push(clause, chunk, at == last);
        let now = Time::from_ms(100 * at as u64);
        while pacer.pop(now).is_some() {
            frames += 1;
        }
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_does_its_work() {
        assert!(parse() > 10);
        assert_eq!(pace(&[1; RATE as usize]), 50);
    }
}
