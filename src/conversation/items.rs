//! The spoken items of an answer: which is being added to, which were announced, which are done.

use super::ids::ItemId;

/// The items of an answer, from words to sound.
#[derive(Debug, Default)]
pub(super) struct Items {
    /// The items that are not done, oldest first.
    open: Vec<ItemId>,
    /// The items that the client was told about.
    announced: Vec<ItemId>,
    /// The item that the next clause belongs to.
    current: Option<ItemId>,
}

impl Items {
    /// The item that the next clause belongs to: `fresh` if it begins one.
    pub(super) fn current(&mut self, fresh: ItemId) -> ItemId {
        if self.current.is_none() {
            self.open.push(fresh);
        }
        *self.current.get_or_insert(fresh)
    }

    /// Ends the current item, so that the next clause begins a new one.
    pub(super) fn close(&mut self) {
        self.current = None;
    }

    /// The items that are not done, oldest first.
    pub(super) fn open(&self) -> &[ItemId] {
        &self.open
    }

    /// Notes that the client is told about an item. `false` if it was told before.
    pub(super) fn announce(&mut self, item: ItemId) -> bool {
        let is_new = !self.was_announced(item);
        if is_new {
            self.announced.push(item);
        }
        is_new
    }

    pub(super) fn has_announced_none(&self) -> bool {
        self.announced.is_empty()
    }

    pub(super) fn was_announced(&self, item: ItemId) -> bool {
        self.announced.contains(&item)
    }

    /// Whether an item has begun to play and is not done.
    pub(super) fn is_speaking(&self) -> bool {
        self.open.iter().any(|item| self.was_announced(*item))
    }

    /// Takes the oldest item if it is done: all of it was sent, and no generation can add to it.
    pub(super) fn take_done(
        &mut self,
        is_generating: bool,
        was_sent: impl Fn(ItemId) -> bool,
    ) -> Option<ItemId> {
        let item = *self.open.first()?;
        let is_current = self.current == Some(item);
        if is_current && is_generating || !was_sent(item) {
            return None;
        }
        if is_current {
            self.close();
        }
        Some(self.open.remove(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_done_in_order() {
        let mut items = Items::default();
        assert_eq!(items.current(ItemId(1)), ItemId(1));
        assert_eq!(items.current(ItemId(2)), ItemId(1));
        assert_eq!(items.take_done(true, |_| true), None, "the model may go on");
        items.close();
        assert_eq!(items.current(ItemId(3)), ItemId(3));
        assert_eq!(items.take_done(true, |item| item == ItemId(3)), None);
        assert_eq!(items.take_done(true, |_| true), Some(ItemId(1)));
        assert_eq!(items.take_done(true, |_| true), None);
        assert_eq!(items.take_done(false, |_| true), Some(ItemId(3)));
        assert!(items.open().is_empty());
    }
}
