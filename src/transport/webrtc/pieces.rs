//! Follows which clause is on the track, by the RTP time of its packets. No I/O and no clock.

use crate::conversation::{ClauseId, Micros};
use crate::transport::realtime::{Edge, EdgeKind};

/// The clause that is on the track now.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    /// The clause of the last frame, and how much of it has left.
    sounding: Option<(ClauseId, Micros)>,
}

impl Pieces {
    /// A frame leaves at the RTP time `time`; `of` is its clause and the part of it before and with this frame, `None`
    /// if it is silence. Returns the edges before it.
    pub(super) fn leaves(
        &mut self,
        of: Option<(ClauseId, Micros, Micros)>,
        time: u64,
    ) -> Vec<Edge> {
        let goes_on = |(clause, ..): &(ClauseId, Micros, Micros)| {
            self.sounding
                .is_some_and(|(sounding, _)| sounding == *clause)
        };
        let mut edges = Vec::new();
        if !of.as_ref().is_some_and(goes_on) {
            edges.extend(self.end(EdgeKind::Ended, time));
            edges.extend(of.map(|(clause, at, _)| Edge {
                kind: EdgeKind::Started,
                clause,
                at,
                time,
            }));
        }
        self.sounding = of.map(|(clause, _, until)| (clause, until));
        edges
    }

    /// Ends the clause because the queue was cleared; the next frame leaves at the RTP time `time`.
    pub(super) fn cleared(&mut self, time: u64) -> Option<Edge> {
        self.end(EdgeKind::Cleared, time)
    }

    fn end(&mut self, kind: EdgeKind, time: u64) -> Option<Edge> {
        let (clause, at) = self.sounding.take()?;
        Some(Edge {
            kind,
            clause,
            at,
            time,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(clause: u64, number: u64) -> Option<(ClauseId, Micros, Micros)> {
        let ms = Micros::from_ms;
        Some((ClauseId(clause), ms(20 * number), ms(20 * number + 20)))
    }

    fn told(edges: impl IntoIterator<Item = Edge>) -> Vec<(&'static str, u64, u64, u64)> {
        let edges = edges.into_iter();
        edges
            .map(|edge| (edge.kind.name(), edge.clause.0, edge.at.as_ms(), edge.time))
            .collect()
    }

    #[test]
    fn a_clause_is_told_where_it_begins_and_where_it_ends() {
        let mut pieces = Pieces::default();
        assert_eq!(told(pieces.leaves(None, 0)), []);
        assert_eq!(
            told(pieces.leaves(frame(1, 0), 960)),
            [("started", 1, 0, 960)]
        );
        assert_eq!(told(pieces.leaves(frame(1, 1), 1_920)), []);
        let change = [("ended", 1, 40, 2_880), ("started", 2, 0, 2_880)];
        assert_eq!(told(pieces.leaves(frame(2, 0), 2_880)), change);
        assert_eq!(told(pieces.leaves(None, 3_840)), [("ended", 2, 20, 3_840)]);
        assert_eq!(told(pieces.leaves(None, 4_800)), []);
    }

    #[test]
    fn a_clause_that_ran_dry_goes_on_where_it_stopped() {
        let mut pieces = Pieces::default();
        pieces.leaves(frame(1, 0), 0);
        assert_eq!(told(pieces.leaves(None, 960)), [("ended", 1, 20, 960)]);
        assert_eq!(
            told(pieces.leaves(frame(1, 1), 1_920)),
            [("started", 1, 20, 1_920)]
        );
    }

    #[test]
    fn what_is_dropped_is_told_once() {
        let mut pieces = Pieces::default();
        assert_eq!(pieces.cleared(0), None);
        pieces.leaves(frame(1, 0), 0);
        assert_eq!(told(pieces.cleared(960)), [("cleared", 1, 20, 960)]);
        assert_eq!(pieces.cleared(960), None);
        assert_eq!(told(pieces.leaves(None, 960)), []);
    }
}
