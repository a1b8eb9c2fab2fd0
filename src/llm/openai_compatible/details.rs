//! OpenRouter's blocks of thoughts, put together from their pieces.

use super::wire::MAX_THOUGHT_BYTES;
use serde_json::{Map, Value};

/// The fields of a block that come in pieces.
const TEXTS: [&str; 2] = ["text", "summary"];

/// The blocks so far; none if they are longer than [`MAX_THOUGHT_BYTES`].
#[derive(Debug, Default)]
pub(super) struct Details {
    pub(super) blocks: Vec<Value>,
    bytes: usize,
}

impl Details {
    /// Adds pieces. One with the type, the index and the id of the block before it goes on with that block: its text is
    /// appended, and what else it has replaces what was there, for a signature comes last.
    pub(super) fn add(&mut self, pieces: &[Value]) {
        for piece in pieces.iter().filter_map(Value::as_object) {
            if self.bytes <= MAX_THOUGHT_BYTES {
                self.add_piece(piece);
            }
        }
        if self.bytes > MAX_THOUGHT_BYTES {
            // Some providers refuse a part of the thoughts; without any, those that can do without forget them.
            self.blocks.clear();
        }
    }

    fn add_piece(&mut self, piece: &Map<String, Value>) {
        let last = self.blocks.last_mut().and_then(Value::as_object_mut);
        let Some(block) = last.filter(|block| goes_on(block, piece)) else {
            let block = Value::Object(piece.clone());
            self.bytes += block.to_string().len();
            return self.blocks.push(block);
        };
        for (key, value) in piece.iter().filter(|(_, value)| !value.is_null()) {
            match (block.get_mut(key), value) {
                (Some(Value::String(text)), Value::String(more)) if TEXTS.contains(&&**key) => {
                    self.bytes += more.len();
                    text.push_str(more);
                }
                (Some(old), new) if *old == *new => {}
                _ => {
                    self.bytes += value.to_string().len();
                    block.insert(key.clone(), value.clone());
                }
            }
        }
    }
}

fn goes_on(block: &Map<String, Value>, piece: &Map<String, Value>) -> bool {
    let has = |of: &Map<String, Value>, key: &str| of.get(key).is_some_and(|v| !v.is_null());
    let is = |key: &str| block.get(key) == piece.get(key);
    let is_other = has(block, "id") && has(piece, "id") && !is("id");
    // Sealed thoughts come whole.
    is("type") && is("index") && has(piece, "index") && !has(piece, "data") && !is_other
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn piece(text: &str) -> Value {
        json!({"type": "reasoning.text", "text": text, "signature": null, "index": 0})
    }

    #[test]
    fn the_limit_counts_thoughts_and_not_what_wraps_their_pieces() {
        let mut details = Details::default();
        for _ in 0..1_000 {
            details.add(&[piece("They ask. ")]);
        }
        assert_eq!(details.blocks, [piece(&"They ask. ".repeat(1_000))]);
        details.add(&[piece(&"x".repeat(MAX_THOUGHT_BYTES)), piece("y")]);
        details.add(&[piece("z")]);
        assert_eq!(details.blocks, [] as [Value; 0], "a part is refused");
    }
}
