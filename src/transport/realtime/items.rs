//! The items that a Realtime client knows of, by the client's names and by the session's ids.

use crate::conversation::{ItemId, Micros};
use serde_json::Value;
use std::collections::{HashMap, VecDeque};

/// Items that can be retrieved; older ones are forgotten.
const MAX_ITEMS: usize = 1000;

/// One item.
#[derive(Debug)]
pub(super) struct Item {
    /// The session's id of it.
    pub(super) id: ItemId,
    /// As it is told to the client.
    pub(super) json: Value,
    /// The agent has said it in this session.
    pub(super) speech: bool,
    /// Audio of it that was sent.
    pub(super) audio: Micros,
    /// Text of it that the client sent, bytes.
    pub(super) created_text: usize,
}

/// Where an item is put, by the client's names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Spot {
    End,
    Start,
    After(String),
}

/// All items.
#[derive(Debug, Default)]
pub(super) struct Items {
    order: VecDeque<String>,
    items: HashMap<String, Item>,
    names: HashMap<ItemId, String>,
}

impl Items {
    /// Adds an item at the end, or replaces what the client is told of it.
    pub(super) fn put(&mut self, name: &str, id: ItemId, json: Value) {
        self.insert(name, id, json, &Spot::End);
    }

    /// The same, at a place of the client's choice.
    pub(super) fn insert(&mut self, name: &str, id: ItemId, json: Value, spot: &Spot) {
        if let Some(item) = self.items.get_mut(name) {
            item.json = json;
            return;
        }
        if self.order.len() == MAX_ITEMS
            && let Some(oldest) = self.order.front().cloned()
        {
            self.remove(&oldest);
        }
        let at = match spot {
            Spot::Start => Some(0),
            Spot::After(other) => self.index(other).map(|at| at + 1),
            Spot::End => None,
        };
        let at = at.unwrap_or(self.order.len());
        self.order.insert(at, name.to_owned());
        self.names.insert(id, name.to_owned());
        self.items.insert(
            name.to_owned(),
            Item {
                id,
                json,
                speech: false,
                audio: Micros(0),
                created_text: 0,
            },
        );
    }

    /// Keeps an item that is not part of the conversation until it is removed.
    pub(super) fn put_outside(&mut self, name: &str, id: ItemId, json: Value) {
        self.put(name, id, json);
        self.order.retain(|other| other != name);
    }

    /// Whether an item is not part of the conversation.
    pub(super) fn is_outside(&self, name: &str) -> bool {
        self.items.contains_key(name) && !self.order.iter().any(|other| other == name)
    }

    /// Replaces what the client is told of an item.
    pub(super) fn tell(&mut self, name: &str, json: Value) {
        if let Some(item) = self.items.get_mut(name) {
            item.json = json;
        }
    }

    fn index(&self, name: &str) -> Option<usize> {
        self.order.iter().position(|other| other == name)
    }

    pub(super) fn remove(&mut self, name: &str) {
        if let Some(item) = self.items.remove(name) {
            self.names.remove(&item.id);
            self.order.retain(|other| other != name);
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&Item> {
        self.items.get(name)
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Item> {
        self.items.get_mut(name)
    }

    /// The client's name of an item.
    pub(super) fn name(&self, id: ItemId) -> Option<&str> {
        self.names.get(&id).map(String::as_str)
    }

    /// The item before one.
    pub(super) fn before(&self, name: &str) -> Option<&str> {
        let at = self.index(name)?;
        self.order.get(at.checked_sub(1)?).map(String::as_str)
    }

    /// The newest item.
    pub(super) fn last(&self) -> Option<&str> {
        self.order.back().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_items_are_forgotten() {
        let mut items = Items::default();
        for n in 0..=MAX_ITEMS {
            items.put(&format!("i{n}"), ItemId(n as u64), Value::Null);
        }
        assert!(items.get("i0").is_none() && items.name(ItemId(0)).is_none());
        assert!(items.get("i1").is_some());
        assert_eq!(items.last(), Some(format!("i{MAX_ITEMS}").as_str()));
    }

    #[test]
    fn putting_again_keeps_the_place() {
        let mut items = Items::default();
        items.put("a", ItemId(1), Value::Null);
        items.put("b", ItemId(2), Value::Null);
        items.put("a", ItemId(1), Value::Bool(true));
        assert_eq!(items.last(), Some("b"));
        items.remove("b");
        assert_eq!(items.last(), Some("a"));
    }

    #[test]
    fn items_are_put_where_the_client_wants_them() {
        let mut items = Items::default();
        items.put("b", ItemId(1), Value::Null);
        items.put("d", ItemId(2), Value::Null);
        items.insert("a", ItemId(3), Value::Null, &Spot::Start);
        items.insert("c", ItemId(4), Value::Null, &Spot::After("b".into()));
        assert_eq!(items.order, ["a", "b", "c", "d"]);
        assert_eq!(items.before("a"), None);
        assert_eq!(items.before("c"), Some("b"));
    }
}
