//! The conversation items that a Realtime client has been told of, by wire name and by session id.

use crate::conversation::{CallId, ItemId, Micros};
use serde_json::Value;
use std::collections::{HashMap, VecDeque};

/// The most items kept for retrieval; the oldest pictures are forgotten first, then the oldest items.
const MAX_ITEMS: usize = 1000;

/// One item.
#[derive(Debug)]
pub(super) struct Item {
    /// The session's items that it represents: several if the agent spoke them back to back, none if the user's message
    /// has no words.
    pub(super) parts: Vec<Part>,
    /// The item as sent to the client.
    pub(super) json: Value,
    /// Whether the agent spoke it in this session.
    pub(super) speech: bool,
    /// Text that the client sent in it, bytes.
    pub(super) created_text: usize,
    /// The call to one of the client's tools that it is.
    pub(super) call: Option<CallId>,
}

/// One of the session's items.
#[derive(Debug)]
pub(super) struct Part {
    /// The session's id.
    pub(super) id: ItemId,
    /// The length of its audio that was sent.
    pub(super) audio: Micros,
    /// The agent's words, up to where they were heard.
    pub(super) text: String,
    /// How much of it was heard, if it was cut off.
    pub(super) cut: Option<Micros>,
}

impl Part {
    fn new(id: ItemId) -> Self {
        Self {
            id,
            audio: Micros(0),
            text: String::new(),
            cut: None,
        }
    }
}

impl Item {
    /// The session's ids that it represents, in order.
    pub(super) fn ids(&self) -> impl Iterator<Item = ItemId> {
        self.parts.iter().map(|part| part.id)
    }

    /// Whether it is a message of pictures alone.
    fn is_pictures(&self) -> bool {
        self.parts.is_empty() && self.json["content"][0]["type"] == "input_text"
    }

    pub(super) fn is_cut(&self) -> bool {
        self.parts.iter().any(|part| part.cut.is_some())
    }

    /// The parts up to and including the first that was cut off.
    fn heard_parts(&self) -> &[Part] {
        let cut = self.parts.iter().position(|part| part.cut.is_some());
        &self.parts[..cut.map_or(self.parts.len(), |at| at + 1)]
    }

    /// The agent's words, up to where they were heard.
    pub(super) fn said(&self) -> String {
        let texts = self.heard_parts().iter().map(|part| part.text.as_str());
        let texts: Vec<_> = texts.filter(|text| !text.is_empty()).collect();
        texts.join(" ")
    }

    /// How much of its audio was heard.
    pub(super) fn heard(&self) -> Micros {
        let heard = |part: &Part| part.cut.unwrap_or(part.audio).0;
        Micros(self.heard_parts().iter().map(heard).sum())
    }

    /// Splits `heard`, counted from the item's start, into how much of each part was heard. A value
    /// beyond the end counts as the whole item.
    pub(super) fn cuts(&self, heard: Micros) -> Vec<(ItemId, Micros)> {
        let mut left = heard;
        let mut cuts = Vec::new();
        for part in &self.parts {
            let heard = left.min(part.audio);
            left = Micros(left.0 - heard.0);
            cuts.push((part.id, heard));
        }
        cuts
    }
}

/// The position of a new item, by wire name.
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
    /// Adds an item at the end, or replaces the JSON of one that exists.
    pub(super) fn put(&mut self, name: &str, id: ItemId, json: Value) {
        self.insert(name, id, json, &Spot::End);
    }

    /// Adds an item at `spot`, or replaces the JSON of one that exists.
    pub(super) fn insert(&mut self, name: &str, id: ItemId, json: Value, spot: &Spot) {
        if let Some(item) = self.items.get_mut(name) {
            item.json = json;
            return;
        }
        self.place(name, vec![Part::new(id)], json, spot);
        self.names.insert(id, name.to_owned());
    }

    /// Adds a message without words at `spot`. The session has no such item.
    pub(super) fn put_wordless(&mut self, name: &str, json: Value, spot: &Spot) {
        self.place(name, Vec::new(), json, spot);
    }

    /// Whether an item is a message without words.
    pub(super) fn is_wordless(&self, name: &str) -> bool {
        self.get(name).is_some_and(|item| item.parts.is_empty())
    }

    /// The last of the session's items before this one.
    pub(super) fn part_before(&self, name: &str) -> Option<ItemId> {
        let mut before = self.order.iter().take(self.index(name)?).rev();
        before.find_map(|name| self.get(name)?.ids().last())
    }

    fn place(&mut self, name: &str, parts: Vec<Part>, json: Value, spot: &Spot) {
        let at = match spot {
            Spot::Start => Some(0),
            Spot::After(other) => self.index(other).map(|at| at + 1),
            Spot::End => None,
        };
        let mut at = at.unwrap_or(self.order.len());
        if self.order.len() == MAX_ITEMS {
            let is_pictures = |name: &String| self.get(name).is_some_and(Item::is_pictures);
            // Pictures may come every second, and would push out what was said.
            let oldest = self.order.iter().position(is_pictures).unwrap_or(0);
            let name = self.order[oldest].clone();
            self.remove(&name);
            at -= usize::from(oldest < at);
        }
        self.order.insert(at, name.to_owned());
        self.items.insert(
            name.to_owned(),
            Item {
                parts,
                json,
                speech: false,
                created_text: 0,
                call: None,
            },
        );
    }

    /// Adds one more of the session's items to an item.
    pub(super) fn join(&mut self, name: &str, id: ItemId) {
        if let Some(item) = self.items.get_mut(name) {
            item.parts.push(Part::new(id));
            self.names.insert(id, name.to_owned());
        }
    }

    /// Adds an item outside the conversation, kept until it is removed.
    pub(super) fn put_outside(&mut self, name: &str, id: ItemId, json: Value) {
        self.put(name, id, json);
        self.order.retain(|other| other != name);
    }

    /// Whether an item is not part of the conversation.
    pub(super) fn is_outside(&self, name: &str) -> bool {
        self.items.contains_key(name) && !self.order.iter().any(|other| other == name)
    }

    /// Replaces an item's JSON.
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
            for id in item.ids() {
                self.names.remove(&id);
            }
            self.order.retain(|other| other != name);
        }
    }

    /// Removes one of the session's items. If it was the only part of its item, removes and returns
    /// that too.
    pub(super) fn remove_part(&mut self, id: ItemId) -> Option<(String, Item)> {
        let name = self.names.remove(&id)?;
        let item = self.items.get_mut(&name)?;
        item.parts.retain(|part| part.id != id);
        if !item.parts.is_empty() {
            return None;
        }
        self.order.retain(|other| *other != name);
        let item = self.items.remove(&name)?;
        Some((name, item))
    }

    pub(super) fn part_mut(&mut self, id: ItemId) -> Option<&mut Part> {
        let item = self.items.get_mut(self.names.get(&id)?)?;
        item.parts.iter_mut().find(|part| part.id == id)
    }

    pub(super) fn get(&self, name: &str) -> Option<&Item> {
        self.items.get(name)
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Item> {
        self.items.get_mut(name)
    }

    /// The call that the client knows by this id, and the name of its tool, as long as its item is there.
    pub(super) fn call(&self, id: &str) -> Option<(CallId, &str)> {
        let mut items = self.items.values();
        items.find_map(|item| {
            let call = item.call.filter(|_| item.json["call_id"] == id)?;
            Some((call, item.json["name"].as_str()?))
        })
    }

    /// The wire name of an item.
    pub(super) fn name(&self, id: ItemId) -> Option<&str> {
        self.names.get(&id).map(String::as_str)
    }

    /// The name of the item before this one.
    pub(super) fn before(&self, name: &str) -> Option<&str> {
        let at = self.index(name)?;
        self.order.get(at.checked_sub(1)?).map(String::as_str)
    }

    /// The name of the last item.
    pub(super) fn last(&self) -> Option<&str> {
        self.order.back().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
    fn pictures_are_forgotten_before_turns_with_and_without_words() {
        let mut items = Items::default();
        let message = |part: &str| json!({"type": "message", "content": [{ "type": part }]});
        items.put("a", ItemId(1), message("input_text"));
        items.put_wordless("b", message("input_audio"), &Spot::End);
        for n in 2..MAX_ITEMS {
            items.put_wordless(&format!("p{n}"), message("input_text"), &Spot::End);
        }
        // Its place is behind what makes room for it.
        let behind = Spot::After("p2".into());
        items.insert("c", ItemId(2), message("input_text"), &behind);
        assert!(items.get("p2").is_none());
        assert_eq!(items.order.len(), MAX_ITEMS);
        let first: Vec<_> = items.order.range(..4).collect();
        assert_eq!(first, ["a", "b", "c", "p3"]);
    }

    #[test]
    fn replacing_an_item_keeps_its_position() {
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
