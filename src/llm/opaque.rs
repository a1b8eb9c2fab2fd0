//! Blocks of a provider that must come back with the calls that they came with: Gemini's thought signatures,
//! Claude's and DeepSeek's thoughts. Without them the next request is refused.

use crate::llm::prompt::ChatMessage;
use serde_json::{Map, Value, json};
use std::collections::VecDeque;

/// How many calls are remembered, over all sessions. Older ones belong to conversations that are over.
const MOST: usize = 1_024;

/// The longest block, bytes.
const LONGEST: usize = 64 * 1_024;

/// A block that came with a call.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Block {
    /// The call's `extra_content`; at Anthropic, a list of blocks.
    pub(super) extra: Option<Value>,
    /// The message's thoughts.
    pub(super) thoughts: String,
}

/// A call that was completed, with its arguments and what came with it.
pub(super) type Complete = (String, Map<String, Value>, Block);

impl Block {
    fn is_empty(&self) -> bool {
        self.extra.is_none() && self.thoughts.is_empty()
    }

    fn size(&self) -> usize {
        let extra = self
            .extra
            .as_ref()
            .map_or(0, |extra| extra.to_string().len());
        self.thoughts.len() + extra
    }
}

/// The blocks of the latest calls, by tool and arguments: the conversation keeps calls, not what providers add.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    blocks: VecDeque<(String, Block)>,
    /// This server signs calls.
    signs: bool,
    /// This server wants thoughts back.
    thinks: bool,
}

impl Blocks {
    pub(super) fn keep(&mut self, name: &str, arguments: &Map<String, Value>, block: Block) {
        if block.is_empty() || block.size() > LONGEST {
            return;
        }
        self.signs |= block.extra.is_some();
        self.thinks |= !block.thoughts.is_empty();
        if self.blocks.len() == MOST {
            self.blocks.pop_front();
        }
        self.blocks.push_back((key(name, arguments), block));
    }

    /// The block that came with the latest such call.
    pub(super) fn of(&self, name: &str, arguments: &Map<String, Value>) -> Option<&Block> {
        let key = key(name, arguments);
        let mut latest = self.blocks.iter().rev();
        latest
            .find(|(known, _)| *known == key)
            .map(|(_, block)| block)
    }

    /// Adds the blocks to the calls of a history. A call that the model has not written itself gets the
    /// placeholder that Google documents for it.
    pub(super) fn attach(&self, messages: &mut [ChatMessage]) {
        for message in messages {
            for call in &mut message.tool_calls {
                let arguments = serde_json::from_str(&call.function.arguments).unwrap_or_default();
                let block = self.of(&call.function.name, &arguments);
                call.extra_content = match block.and_then(|block| block.extra.clone()) {
                    None if self.signs => Some(unsigned()),
                    extra => extra,
                };
                if self.thinks {
                    let thoughts = block.map(|block| block.thoughts.clone());
                    message.reasoning_content = Some(thoughts.unwrap_or_default());
                }
            }
        }
    }
}

fn key(name: &str, arguments: &Map<String, Value>) -> String {
    // Sorted, so that the order in which the model wrote them does not matter.
    let sorted: std::collections::BTreeMap<_, _> = arguments.iter().collect();
    format!("{name} {}", json!(sorted))
}

fn unsigned() -> Value {
    json!({"google": {"thought_signature": "skip_thought_signature_validator"}})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::prompt::{ChatCall, ChatFunction, Role};

    fn message(arguments: &str) -> ChatMessage {
        ChatMessage {
            tool_calls: vec![ChatCall::new(
                "a".into(),
                ChatFunction {
                    name: "look_up".into(),
                    arguments: arguments.into(),
                },
            )],
            ..ChatMessage::new(Role::Assistant, String::new())
        }
    }

    fn signed(with: &str) -> Block {
        Block {
            extra: Some(json!({"google": {"thought_signature": with}})),
            ..Block::default()
        }
    }

    #[test]
    fn a_signature_comes_back_with_its_call_alone() {
        let arguments = json!({"b": 1, "a": 2}).as_object().cloned().unwrap();
        let mut blocks = Blocks::default();
        let mut messages = [message("{\"a\":2,\"b\":1}"), message("{}")];
        blocks.attach(&mut messages);
        assert_eq!(messages[0].tool_calls[0].extra_content, None);

        blocks.keep("look_up", &arguments, signed("s"));
        blocks.attach(&mut messages);
        assert_eq!(messages[0].tool_calls[0].extra_content, signed("s").extra);
        assert_eq!(messages[1].tool_calls[0].extra_content, Some(unsigned()));
        assert_eq!(messages[0].reasoning_content, None);
    }

    #[test]
    fn thoughts_come_back_once_a_server_has_sent_some() {
        let mut blocks = Blocks::default();
        let block = Block {
            thoughts: "hmm".into(),
            ..Block::default()
        };
        blocks.keep("look_up", &Map::new(), block);
        let mut messages = [message("{}"), message("{\"n\":1}")];
        blocks.attach(&mut messages);
        assert_eq!(messages[0].reasoning_content.as_deref(), Some("hmm"));
        assert_eq!(messages[1].reasoning_content.as_deref(), Some(""));
    }

    #[test]
    fn memory_is_bounded() {
        let mut blocks = Blocks::default();
        let huge = "x".repeat(LONGEST + 1);
        blocks.keep("look_up", &Map::new(), signed(&huge));
        assert!(blocks.blocks.is_empty());
        for n in 0..MOST + 5 {
            let arguments = json!({"n": n}).as_object().cloned().unwrap();
            blocks.keep("look_up", &arguments, signed("s"));
        }
        assert_eq!(blocks.blocks.len(), MOST);
    }
}
