//! Clients that come back after their connection was lost.

use super::Realtime;
use crate::conversation::{HeardUpTo, ItemId, Micros};
use crate::transport::Action;
use crate::transport::resume::{Returns, Seen};
use serde_json::json;
use std::time::Duration;

impl Returns for Realtime {
    fn offer(&mut self, secret: &str, within: Duration, back: bool) -> Vec<Action> {
        let kind = match back {
            true => "undertone.session.resumed",
            false => "undertone.session.resumable",
        };
        let within = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        self.tell(kind, json!({ "resume": secret, "within_ms": within }));
        std::mem::take(&mut self.actions)
    }

    fn number(&self, event: &str) -> Option<u64> {
        self.writer.number(event)
    }

    fn heard_up_to(&self, seen: &Seen) -> Option<HeardUpTo> {
        // Whoever gets text has no more heard it than received it.
        if self.session.text_only {
            return None;
        }
        match (&seen.heard, &seen.event) {
            (Some((item, ms)), _) => self.part_up_to(item, Micros::from_ms(*ms)),
            (None, Some(_)) => Some(HeardUpTo {
                item: ItemId(0),
                until: Micros(0),
            }),
            (None, None) => None,
        }
    }
}

impl Realtime {
    /// An item of the client may be several of the session's: what counts is the first that was not heard in full.
    fn part_up_to(&self, item: &str, heard: Micros) -> Option<HeardUpTo> {
        let item = self.items.get(item).filter(|item| item.speech)?;
        let cuts = item.cuts(heard);
        let parts = cuts.iter().zip(&item.parts);
        let mut unheard = parts.filter(|((_, heard), part)| *heard < part.audio);
        let cut = unheard.next().map(|(cut, _)| cut).or(cuts.last());
        cut.map(|&(item, until)| HeardUpTo { item, until })
    }
}
