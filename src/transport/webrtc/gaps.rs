//! Fills the gaps that lost packets leave in a client's audio. It only decides which audio takes which
//! place; decoding happens elsewhere.
//!
//! The session counts time in samples of the user's audio, so every lost packet must be replaced by as
//! much audio as it held.

use super::opus::{CLOCK, RATE};

/// RTP clock ticks per sample.
const TICKS: i64 = (CLOCK / RATE) as i64;

/// The step in which the decoder conceals loss, samples: 2.5 ms.
const STEP: usize = RATE as usize / 400;

/// The longest concealment, samples: 60 ms. Beyond it, a decoder's guess is noise.
const LONGEST_CONCEALMENT: usize = 24 * STEP;

/// The longest gap that is filled, samples: 3 s, as much as a session's intake accepts at once. A longer
/// jump, forwards or back, begins a new count.
const LONGEST_GAP: i64 = 3 * RATE as i64;

/// A piece of the client's audio. Lengths are in samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece {
    /// The decoder continues the sound that came before.
    Concealed(usize),
    /// Silence, because nothing is known of this part.
    Silence(usize),
    /// The redundancy in the packet says how the gap before it ended.
    Recovered(usize),
    /// The packet itself, without its first samples if their place is taken.
    Packet {
        /// Samples to leave out.
        skip: usize,
    },
}

/// The place of each packet in the client's audio.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    /// The RTP time of the first sample, and the number of samples since.
    counted: Option<(i64, i64)>,
}

impl Gaps {
    /// The audio up to the end of a packet, in order. `time` is the packet's RTP time without
    /// wraparound, `length` is in samples.
    pub(super) fn place(&mut self, time: u64, length: usize) -> Vec<Piece> {
        let (time, length) = (time as i64, length as i64);
        let (origin, done) = match self.counted {
            Some((origin, done)) if is_near(start(time, origin) - done) => (origin, done),
            _ => (time, 0),
        };
        let start = start(time, origin);
        self.counted = Some((origin, done.max(start + length)));
        if start + length <= done {
            return Vec::new();
        }
        let mut pieces = filling((start - done).max(0) as usize, length as usize);
        let skip = (done - start).max(0) as usize;
        pieces.push(Piece::Packet { skip });
        pieces
    }
}

/// The position of an RTP time, samples.
fn start(time: i64, origin: i64) -> i64 {
    (time - origin).div_euclid(TICKS)
}

/// Whether a packet belongs to the audio before it. `ahead` is its distance from the end of that audio, samples.
fn is_near(ahead: i64) -> bool {
    (-LONGEST_GAP..=LONGEST_GAP).contains(&ahead)
}

/// The audio that fills a gap before a packet of `length` samples.
fn filling(gap: usize, length: usize) -> Vec<Piece> {
    let whole = |samples: usize| samples - samples % STEP;
    let recovered = whole(gap.min(length));
    let concealed = whole((gap - recovered).min(LONGEST_CONCEALMENT));
    let silence = gap - recovered - concealed;
    let pieces = [
        (concealed, Piece::Concealed(concealed)),
        (silence, Piece::Silence(silence)),
        (recovered, Piece::Recovered(recovered)),
    ];
    let pieces = pieces.into_iter().filter(|(length, _)| *length > 0);
    pieces.map(|(_, piece)| piece).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PACKET: usize = 320;
    const TICK: u64 = 960;
    const WHOLE: Piece = Piece::Packet { skip: 0 };

    fn length(pieces: &[Piece], packet: usize) -> usize {
        let lengths = pieces.iter().map(|piece| match piece {
            Piece::Concealed(length) | Piece::Silence(length) | Piece::Recovered(length) => *length,
            Piece::Packet { skip } => packet - skip,
        });
        lengths.sum()
    }

    /// The pieces of the packet with this number, of 20 ms each.
    fn place(gaps: &mut Gaps, number: u64) -> Vec<Piece> {
        gaps.place(1_000 + number * TICK, PACKET)
    }

    #[test]
    fn a_lost_packet_is_recovered_from_the_next() {
        let mut gaps = Gaps::default();
        assert_eq!(place(&mut gaps, 0), [WHOLE]);
        assert_eq!(place(&mut gaps, 1), [WHOLE]);
        assert_eq!(place(&mut gaps, 3), [Piece::Recovered(PACKET), WHOLE]);
    }

    #[test]
    fn a_longer_loss_is_concealed_then_silent_then_recovered() {
        let mut gaps = Gaps::default();
        place(&mut gaps, 0);
        let two = [Piece::Concealed(PACKET), Piece::Recovered(PACKET), WHOLE];
        assert_eq!(place(&mut gaps, 3), two);
        let ten = [
            Piece::Concealed(3 * PACKET),
            Piece::Silence(6 * PACKET),
            Piece::Recovered(PACKET),
            WHOLE,
        ];
        assert_eq!(place(&mut gaps, 14), ten);
    }

    #[test]
    fn duplicates_and_late_packets_take_no_place() {
        let mut gaps = Gaps::default();
        place(&mut gaps, 5);
        place(&mut gaps, 6);
        assert_eq!(place(&mut gaps, 6), []);
        assert_eq!(place(&mut gaps, 5), []);
        assert_eq!(place(&mut gaps, 7), [WHOLE]);
        // Half of it overlaps.
        assert_eq!(
            gaps.place(1_000 + 7 * TICK + TICK / 2, PACKET),
            [Piece::Packet { skip: PACKET / 2 }]
        );
    }

    #[test]
    fn a_new_count_begins_where_time_jumps() {
        let mut gaps = Gaps::default();
        place(&mut gaps, 1_000);
        assert_eq!(place(&mut gaps, 10_000_000), [WHOLE]);
        assert_eq!(place(&mut gaps, 3), [WHOLE]);
        assert_eq!(place(&mut gaps, 4), [WHOLE]);
    }

    proptest! {
        #[test]
        fn every_packet_keeps_its_place_whatever_is_lost(
            frames in prop::collection::vec((any::<bool>(), 0..4_usize), 1..200),
            first in any::<u32>(),
        ) {
            let mut gaps = Gaps::default();
            let (mut time, mut began, mut heard, mut lost_since) = (u64::from(first), None, 0, 0);
            for (lost, size) in frames {
                let packet = [40, 160, 320, 960][size];
                if lost && lost_since < 40_000 {
                    lost_since += packet;
                } else {
                    let began = *began.get_or_insert(time);
                    let pieces = gaps.place(time, packet);
                    let before = length(&pieces, packet) - packet;
                    prop_assert_eq!(((heard + before) * 3) as u64, time - began);
                    heard += before + packet;
                    lost_since = 0;
                }
                time += 3 * packet as u64;
            }
        }

        #[test]
        fn any_times_are_filled_within_bounds_and_in_the_decoders_steps(
            packets in prop::collection::vec((any::<u64>(), 1..=48_usize), 0..100),
            near in prop::collection::vec((0..400_000_u64, 1..=48_usize), 0..100),
        ) {
            let mut gaps = Gaps::default();
            for (time, steps) in packets.into_iter().chain(near) {
                let packet = steps * STEP;
                let pieces = gaps.place(time >> 1, packet);
                prop_assert!(length(&pieces, packet) <= LONGEST_GAP as usize + packet);
                for piece in pieces {
                    match piece {
                        Piece::Concealed(length) => {
                            prop_assert!(length % STEP == 0 && length <= LONGEST_CONCEALMENT);
                        }
                        Piece::Recovered(length) => {
                            prop_assert!(length % STEP == 0 && length <= packet);
                        }
                        Piece::Packet { skip } => prop_assert!(skip < packet),
                        Piece::Silence(_) => {}
                    }
                }
            }
        }
    }
}
