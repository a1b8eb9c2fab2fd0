//! The client's absence: its connection was lost, and it may come back. Until then nobody is listening, so nothing
//! is said, no answer begins, and a silent user is neither prompted nor sent off.

use super::ids::ItemId;

#[cfg(test)]
mod tests;

/// Whether the client is away, and which words of the agent it may still be told again.
#[derive(Debug, Default)]
pub(super) struct Absence {
    away: bool,
    /// The unheard words of items up to this one have been repeated, or are not wanted any more.
    repeated: Option<ItemId>,
}

impl Absence {
    /// Notes that the client is lost. `false` if it was away already.
    pub(super) fn begin(&mut self) -> bool {
        !std::mem::replace(&mut self.away, true)
    }

    /// Notes that the client is back. `false` if it was not away.
    pub(super) fn end(&mut self) -> bool {
        std::mem::take(&mut self.away)
    }

    pub(super) fn is_on(&self) -> bool {
        self.away
    }

    /// Notes that the unheard words of all items up to `last` are about to be repeated.
    pub(super) fn repeats(&mut self, last: ItemId) {
        self.repeated = Some(last);
    }

    /// Whether unheard words of this item are still to be repeated.
    pub(super) fn is_owed(&self, item: ItemId) -> bool {
        self.repeated.is_none_or(|last| item > last)
    }
}
