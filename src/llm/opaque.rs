//! Blocks of a provider that must come back with the calls that they came with: Gemini's thought signatures,
//! Claude's and DeepSeek's thoughts, and what OpenRouter sends of them. Without them some refuse the next request.
//! DeepSeek's newer models and MiMo want thoughts with every message of the agent, calls or not.

use crate::llm::prompt::{ChatCall, ChatMessage, Role, callable};
use serde_json::{Map, Value, json};
use std::collections::{HashMap, VecDeque};

/// How many calls are remembered, over all sessions. Older ones belong to conversations that are over.
const MOST: usize = 1_024;

/// The longest block, bytes.
const LONGEST: usize = 64 * 1_024;

/// The thoughts of a message for which there are none. Kimi and DeepSeek V4 Pro take an empty text for a missing one,
/// which they refuse.
const NO_THOUGHTS: &str = " ";

/// A block that came with a call.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Block {
    /// The call's `extra_content`; at Anthropic, a list of blocks.
    pub(super) extra: Option<Value>,
    /// The message's thoughts.
    pub(super) thoughts: String,
    /// The message's `reasoning_details`, which OpenRouter wants back as they came.
    pub(super) details: Vec<Value>,
    /// The server's id of the call, by which such a block may name it. A history has other ids.
    pub(super) id: Option<String>,
}

/// A call that was completed, with its arguments and what came with it.
pub(super) type Complete = (String, Map<String, Value>, Block);

impl Block {
    fn is_empty(&self) -> bool {
        self.extra.is_none() && self.thoughts.is_empty() && self.details.is_empty()
    }

    fn size(&self) -> usize {
        let extra = self
            .extra
            .as_ref()
            .map_or(0, |extra| extra.to_string().len());
        let details = self.details.iter().map(|detail| detail.to_string().len());
        self.thoughts.len() + extra + details.sum::<usize>()
    }
}

/// The blocks of the latest calls, by session, tool and arguments: the conversation keeps calls, not what providers add.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    blocks: VecDeque<(u64, String, Block)>,
    /// This server signs calls.
    signs: bool,
    /// This server wants thoughts back.
    thinks: bool,
}

impl Blocks {
    /// Keeps the block of a call that was made in `session`.
    pub(super) fn keep(
        &mut self,
        session: u64,
        name: &str,
        arguments: &Map<String, Value>,
        block: Block,
    ) {
        if block.is_empty() || block.size() > LONGEST {
            return;
        }
        self.signs |= block.extra.is_some();
        if self.blocks.len() == MOST {
            self.blocks.pop_front();
        }
        self.blocks
            .push_back((session, key(name, arguments), block));
    }

    /// From now on each message of the agent has thoughts: its own, or a placeholder.
    pub(super) fn want_thoughts(&mut self) {
        self.thinks = true;
    }

    /// Forgets those of a session that are kept. Returns whether there were any.
    pub(super) fn forget(&mut self, session: u64) -> bool {
        let known = self.blocks.len();
        self.blocks.retain(|(of, ..)| *of != session);
        self.blocks.len() < known
    }

    /// Those of one session: the thoughts of another are none of its caller's business.
    pub(super) fn of_session(&self, session: u64) -> OfSession<'_> {
        OfSession { all: self, session }
    }
}

/// The blocks of one session.
#[derive(Debug, Clone, Copy)]
pub(super) struct OfSession<'a> {
    all: &'a Blocks,
    session: u64,
}

impl<'a> OfSession<'a> {
    /// The blocks of the calls of each message, those that came with them. Of equal calls each has its own.
    pub(super) fn of(&self, messages: &[ChatMessage]) -> Vec<Vec<Option<&'a Block>>> {
        let own = |(session, key, block): &'a (u64, String, Block)| {
            (*session == self.session).then_some((key.as_str(), block))
        };
        let mut latest: HashMap<&str, Vec<&Block>> = HashMap::new();
        for (key, block) in self.all.blocks.iter().filter_map(own) {
            latest.entry(key).or_default().push(block);
        }
        let mut of_call = |call: &ChatCall| {
            let arguments = serde_json::from_str(&call.function.arguments).unwrap_or_default();
            let key = key(&call.function.name, &arguments);
            latest.get_mut(key.as_str())?.pop()
        };
        // From the end, because blocks of older calls may be forgotten.
        let mut blocks: Vec<Vec<_>> = (messages.iter().rev())
            .map(|message| {
                let calls = message.tool_calls.iter().rev();
                let mut blocks: Vec<_> = calls.map(&mut of_call).collect();
                blocks.reverse();
                blocks
            })
            .collect();
        blocks.reverse();
        blocks
    }

    /// Adds the blocks to the agent's messages in a history. A call that the model has not written itself gets the
    /// placeholder that Google documents for it.
    pub(super) fn attach(&self, messages: &mut [ChatMessage]) {
        let blocks = self.of(messages);
        let all = messages.iter_mut().zip(&blocks);
        for (message, blocks) in all.filter(|(message, _)| message.role == Role::Assistant) {
            let mut ids = Vec::new();
            for (call, block) in message.tool_calls.iter_mut().zip(blocks) {
                call.extra_content = match block.and_then(|block| block.extra.clone()) {
                    None if self.all.signs => Some(unsigned()),
                    extra => extra,
                };
                let id = block.and_then(|block| block.id.as_ref());
                ids.extend(id.map(|id| (id, call.id.clone())));
            }
            // Thoughts may go on between two calls: the last one has them all.
            let thoughts = blocks.iter().rev().find_map(|block| *block);
            if self.all.thinks {
                let said = thoughts.map(|block| block.thoughts.as_str());
                let said = said.filter(|thoughts| !thoughts.is_empty());
                message.reasoning_content = Some(said.unwrap_or(NO_THOUGHTS).to_owned());
            }
            let mut details = thoughts.map_or_else(Vec::new, |block| block.details.clone());
            for id in details.iter_mut().filter_map(|detail| detail.get_mut("id")) {
                let renamed = ids.iter().find(|(theirs, _)| *id == **theirs);
                if let Some((_, ours)) = renamed {
                    *id = json!(ours);
                }
            }
            message.reasoning_details = details;
        }
    }
}

fn key(name: &str, arguments: &Map<String, Value>) -> String {
    // Sorted, so that the order in which the model wrote them does not matter.
    let sorted: std::collections::BTreeMap<_, _> = arguments.iter().collect();
    format!("{} {}", callable(name), json!(sorted))
}

fn unsigned() -> Value {
    json!({"google": {"thought_signature": "skip_thought_signature_validator"}})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::prompt::ChatFunction;

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
        blocks.of_session(1).attach(&mut messages);
        assert_eq!(messages[0].tool_calls[0].extra_content, None);

        blocks.keep(1, "look_up", &arguments, signed("s"));
        blocks.of_session(1).attach(&mut messages);
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
        blocks.keep(1, "look_up", &Map::new(), block);
        let said = |role| ChatMessage::new(role, "Okay.".into());
        let mut messages = [
            message("{}"),
            message("{\"n\":1}"),
            said(Role::Assistant),
            said(Role::User),
        ];
        blocks.of_session(1).attach(&mut messages);
        assert!(messages.iter().all(|m| m.reasoning_content.is_none()));
        blocks.want_thoughts();
        blocks.of_session(1).attach(&mut messages);
        let thoughts = messages.iter().map(|m| m.reasoning_content.as_deref());
        let expected = [Some("hmm"), Some(NO_THOUGHTS), Some(NO_THOUGHTS), None];
        assert_eq!(thoughts.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn thoughts_about_one_caller_stay_in_their_session() {
        let mut blocks = Blocks::default();
        let block = |thoughts: &str| Block {
            thoughts: thoughts.into(),
            ..signed(thoughts)
        };
        blocks.want_thoughts();
        blocks.keep(1, "look_up", &Map::new(), block("Ann owes 40 dollars"));
        blocks.keep(2, "look_up", &Map::new(), block("Bob owes nothing"));
        for (session, thoughts, signature) in [
            (
                1,
                "Ann owes 40 dollars",
                signed("Ann owes 40 dollars").extra,
            ),
            (2, "Bob owes nothing", signed("Bob owes nothing").extra),
            (3, NO_THOUGHTS, Some(unsigned())),
        ] {
            let mut messages = [message("{}")];
            blocks.of_session(session).attach(&mut messages);
            assert_eq!(messages[0].reasoning_content.as_deref(), Some(thoughts));
            assert_eq!(messages[0].tool_calls[0].extra_content, signature);
        }
    }

    /// Both calls got the block of the second, and a server that knows its ids refused the request.
    #[test]
    fn of_two_equal_calls_each_gets_its_own_block() {
        let mut blocks = Blocks::default();
        for with in ["one", "two"] {
            blocks.keep(1, "look_up", &Map::new(), signed(with));
        }
        let mut messages = [message("{}"), message("{}"), message("{}")];
        blocks.of_session(1).attach(&mut messages);
        let signatures = messages.map(|message| message.tool_calls[0].extra_content.clone());
        let expected = [Some(unsigned()), signed("one").extra, signed("two").extra];
        assert_eq!(signatures, expected);
    }

    #[test]
    fn memory_is_bounded() {
        let mut blocks = Blocks::default();
        let huge = "x".repeat(LONGEST + 1);
        blocks.keep(1, "look_up", &Map::new(), signed(&huge));
        assert!(blocks.blocks.is_empty());
        for n in 0..MOST + 5 {
            let arguments = json!({"n": n}).as_object().cloned().unwrap();
            blocks.keep(1, "look_up", &arguments, signed("s"));
        }
        assert_eq!(blocks.blocks.len(), MOST);
    }
}
