//! Turns the data of a message stream into events. Pure.

use crate::llm::left_in_text::{LeftInText, MadeInText};
use crate::llm::markup::Parser;
use crate::llm::native_call::{MAX_CALLS, NativeCall, index_in, tool_name};
use crate::llm::opaque::{Block, Complete};
use crate::llm::remote::{
    ALL_THOUGHTS, CONTEXT_FULL, CallPiece, Decoded, FILTERED, Look, Reader, UNCLOSED_THOUGHTS,
    count_in, message_of,
};
use crate::llm::{LlmEvent, TokenUsage};
use serde_json::{Map, Value};

/// The stop reasons after which an answer and its calls are whole. After any other, a call may lack a part.
const WHOLE: [&str; 3] = ["end_turn", "tool_use", "stop_sequence"];

/// The most bytes of thoughts that are kept with a call. Longer ones are dropped, because the
/// signature covers the whole thought.
const MAX_THOUGHT_BYTES: usize = 32 * 1024;

/// Reads the messages of one stream.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    parser: Parser,
    /// The call whose arguments are coming.
    open: Option<Open>,
    calls: usize,
    /// The calls in the text before native ones.
    made: MadeInText,
    /// The text after the first call.
    behind: LeftInText,
    thoughts: Thoughts,
    /// Calls whose thoughts have not been handed out.
    complete: Vec<Complete>,
    stop: Option<String>,
    usage: Option<TokenUsage>,
    /// Whether anything was produced.
    has_begun: bool,
    /// Whether the thoughts at the beginning of the text never ended.
    never_spoke: bool,
}

/// A call that is not closed.
#[derive(Debug)]
struct Open {
    index: u64,
    call: NativeCall,
    /// The arguments that came with the name; a placeholder if others follow.
    given: Map<String, Value>,
    /// Whether its block has ended, perhaps at the token limit.
    has_ended: bool,
}

/// The thoughts so far, as the server wants them back.
#[derive(Debug, Default)]
struct Thoughts {
    blocks: Vec<Value>,
    bytes: usize,
}

impl Thoughts {
    fn begin(&mut self, block: Value) {
        self.bytes += block.to_string().len();
        self.blocks.push(block);
    }

    /// Adds a piece to a field of the last block.
    fn add(&mut self, field: &str, piece: &str) {
        self.bytes += piece.len();
        if self.bytes > MAX_THOUGHT_BYTES {
            self.blocks.clear();
        }
        let last = self.blocks.last_mut().and_then(Value::as_object_mut);
        if let Some(Value::String(text)) =
            last.map(|last| last.entry(field).or_insert_with(|| "".into()))
        {
            text.push_str(piece);
        }
    }

    /// The blocks, if they are complete.
    fn whole(&self) -> Option<Value> {
        let is_signed = |block: &Value| {
            let signed = block["signature"].as_str().is_some_and(|s| !s.is_empty());
            signed || block["type"] == "redacted_thinking"
        };
        let is_whole = !self.blocks.is_empty()
            && self.bytes <= MAX_THOUGHT_BYTES
            && self.blocks.iter().all(is_signed);
        is_whole.then(|| Value::Array(self.blocks.clone()))
    }
}

/// The content of an event, as the server sends it.
pub(super) fn look(data: &str) -> Look {
    let event: Value = serde_json::from_str(data).unwrap_or_default();
    let (block, delta) = (&event["content_block"], &event["delta"]);
    let is_filled = |text: &Value| text.as_str().is_some_and(|text| !text.is_empty());
    let opens = block["type"] == "tool_use";
    let piece = &delta["partial_json"];
    let call = CallPiece {
        index: index_in(&event["index"]),
        has_id: is_filled(&block["id"]),
        has_name: is_filled(&block["name"]),
        has_arguments: is_filled(piece),
    };
    let thinking = ["thinking", "redacted_thinking"];
    Look {
        text: delta["text"].as_str().unwrap_or_default().to_owned(),
        thinks: thinking.iter().any(|kind| block["type"] == *kind)
            || delta["type"] == "thinking_delta",
        calls: (opens || is_filled(piece))
            .then_some(call)
            .into_iter()
            .collect(),
    }
}

impl Decoder {
    /// A decoder for a model whose answers may begin with thoughts that have no opening tag, and that is offered
    /// these tools.
    pub(super) fn new(thinks_first: bool, tools: Vec<String>) -> Self {
        Self {
            parser: Parser::default()
                .tools(tools.clone())
                .thinks_first(thinks_first),
            behind: LeftInText::new(tools),
            ..Self::default()
        }
    }
}

impl Reader for Decoder {
    fn blocks(&mut self) -> Vec<Complete> {
        std::mem::take(&mut self.complete)
    }

    fn message(&mut self, data: &str) -> Decoded {
        if data.trim() == "[DONE]" {
            return self.done();
        }
        let event: Value = match serde_json::from_str(data) {
            Ok(event @ Value::Object(_)) => event,
            Ok(_) => return failed("unexpected data: not an object".into()),
            Err(error) => return failed(format!("unexpected data: {error}")),
        };
        if event["type"] == "error" || event["error"].is_object() || event["error"].is_string() {
            return failed(message_of(&event["error"]));
        }
        let mut events = Vec::new();
        match event["type"].as_str().unwrap_or_default() {
            "message_start" => self.count(&event["message"]["usage"]),
            "content_block_start" => self.begin(&event, &mut events),
            "content_block_delta" => self.delta(&event, &mut events),
            "content_block_stop" => self.end_block(&event, &mut events),
            "message_delta" => {
                self.count(&event["usage"]);
                let reason = event["delta"]["stop_reason"].as_str();
                if let Some(reason) = reason.filter(|reason| !reason.is_empty()) {
                    self.finish(reason, &mut events);
                }
            }
            "message_stop" => return self.done(),
            "ping" => events.push(LlmEvent::Thinking),
            _ => {}
        }
        self.has_begun |= events.iter().any(|event| *event != LlmEvent::Thinking);
        (events, None)
    }

    /// Handles a stream that ended without `message_stop`, which is an error unless a stop reason came before.
    fn end_of_stream(&mut self) -> Decoded {
        match self.stop {
            Some(_) => self.done(),
            None => failed("it ended before the model was done".into()),
        }
    }
}

impl Decoder {
    fn begin(&mut self, event: &Value, events: &mut Vec<LlmEvent>) {
        let block = &event["content_block"];
        match block["type"].as_str().unwrap_or_default() {
            "text" => self.text(&block["text"], events),
            "thinking" | "redacted_thinking" => {
                self.thoughts.begin(block.clone());
                events.push(LlmEvent::Thinking);
            }
            "tool_use" if self.calls < MAX_CALLS => {
                // Another block follows, so the previous call is not cut off.
                self.close_ended(events);
                events.extend(self.made.noted(self.parser.finish()));
                self.calls += 1;
                let mut call = NativeCall::default();
                let name = tool_name(block["name"].as_str().unwrap_or_default());
                call.call_it(name.to_owned());
                // A call that may repeat one of the text is told when it is closed.
                if self.made.is_empty() {
                    call.tell(events);
                    call.tell_read(events);
                }
                self.open = Some(Open {
                    index: index(event),
                    call,
                    given: block["input"].as_object().cloned().unwrap_or_default(),
                    has_ended: false,
                });
            }
            _ => {}
        }
    }

    fn delta(&mut self, event: &Value, events: &mut Vec<LlmEvent>) {
        let delta = &event["delta"];
        match delta["type"].as_str().unwrap_or_default() {
            "text_delta" => self.text(&delta["text"], events),
            "thinking_delta" | "signature_delta" => {
                for field in ["thinking", "signature"] {
                    let piece = delta[field].as_str().unwrap_or_default();
                    if !piece.is_empty() {
                        self.thoughts.add(field, piece);
                    }
                }
                events.push(LlmEvent::Thinking);
            }
            "input_json_delta" => {
                let open = self.open.as_mut();
                if let Some(open) = open.filter(|open| open.index == index(event)) {
                    open.call
                        .push(delta["partial_json"].as_str().unwrap_or_default());
                    if self.made.is_empty() {
                        open.call.tell(events);
                        open.call.tell_read(events);
                    }
                }
            }
            _ => {}
        }
    }

    fn text(&mut self, text: &Value, events: &mut Vec<LlmEvent>) {
        let text = text.as_str().unwrap_or_default();
        match self.calls {
            _ if text.is_empty() => {}
            0 => events.extend(self.made.noted(self.parser.push(text))),
            _ => self.behind.push(text),
        }
    }

    /// Handles the end of a block. The token limit ends a block as well, so its call is held unless the object is
    /// whole.
    fn end_block(&mut self, event: &Value, events: &mut Vec<LlmEvent>) {
        let open = self.open.as_mut();
        if let Some(open) = open.filter(|open| open.index == index(event)) {
            open.has_ended = true;
            open.use_given();
            if open.call.is_whole() {
                self.close(true, events);
            }
        }
    }

    /// Closes the open call because another block follows it.
    fn close_ended(&mut self, events: &mut Vec<LlmEvent>) {
        if let Some(open) = &mut self.open {
            open.use_given();
            let whole = open.has_ended || open.call.is_whole();
            self.close(whole, events);
        }
    }

    /// Handles the stop reason. Nothing can follow it, so calls are committed now rather than at the end, if they
    /// are known to be whole.
    fn finish(&mut self, reason: &str, events: &mut Vec<LlmEvent>) {
        let whole = WHOLE.contains(&reason);
        self.never_spoke = self.parser.still_thinks_first();
        events.extend(match whole {
            true => self.parser.finish_whole(),
            false => self.parser.finish(),
        });
        if let Some(open) = &mut self.open {
            open.use_given();
        }
        self.close(whole, events);
        events.extend(self.behind.finish(whole));
        self.stop = Some(reason.to_owned());
    }

    fn close(&mut self, whole: bool, events: &mut Vec<LlmEvent>) {
        let Some(Open { mut call, .. }) = self.open.take() else {
            return;
        };
        let mut told = Vec::new();
        let closed = call.close(whole, &mut told);
        let is_made = self.made.has(call.name(), &closed);
        if !is_made {
            events.append(&mut told);
        }
        let Ok(arguments) = closed else {
            return;
        };
        self.behind.has_native(call.name(), &arguments);
        if is_made {
            return;
        }
        if let Some(thoughts) = self.thoughts.whole() {
            let block = Block {
                extra: Some(thoughts),
                ..Block::default()
            };
            self.complete
                .push((call.name().to_owned(), arguments, block));
        }
    }

    fn done(&mut self) -> Decoded {
        let mut events = Vec::new();
        if self.stop.is_none() {
            self.finish("", &mut events);
        }
        self.has_begun |= !events.is_empty();
        let reason = match self.stop.as_deref().unwrap_or_default() {
            "refusal" => Some(FILTERED),
            "max_tokens" if !self.has_begun => Some(ALL_THOUGHTS),
            "model_context_window_exceeded" if !self.has_begun => Some(CONTEXT_FULL),
            "max_tokens" | "model_context_window_exceeded" => {
                events.push(LlmEvent::Cut);
                None
            }
            _ if self.never_spoke && !self.has_begun => Some(UNCLOSED_THOUGHTS),
            _ => None,
        };
        if let Some(reason) = reason {
            return (events, Some(reason.into()));
        }
        events.extend(self.usage.take().map(|usage| LlmEvent::Used { usage }));
        events.push(LlmEvent::End);
        (events, None)
    }

    /// Reads token counts. Those at the end are cumulative, and may leave out those of the prompt.
    fn count(&mut self, usage: &Value) {
        let known = self.usage.unwrap_or_default();
        let read = |field: &str| count_in(&usage[field]);
        let cached = read("cache_read_input_tokens");
        let input = read("input_tokens").map(|fresh| {
            let written = read("cache_creation_input_tokens").unwrap_or_default();
            let cached = cached.unwrap_or_default();
            fresh.saturating_add(written).saturating_add(cached)
        });
        let counted = TokenUsage {
            input: input.unwrap_or_default().max(known.input),
            cached: cached.unwrap_or_default().max(known.cached),
            output: read("output_tokens").unwrap_or_default().max(known.output),
            reasoning: 0,
        };
        self.usage = (counted.input > 0).then_some(counted);
    }
}

impl Open {
    /// Takes the arguments that came with the name, if no others came.
    fn use_given(&mut self) {
        if self.call.is_bare() && !self.given.is_empty() {
            let given = std::mem::take(&mut self.given);
            self.call.push(&Value::Object(given).to_string());
        }
    }
}

fn failed(reason: String) -> Decoded {
    (Vec::new(), Some(reason))
}

fn index(event: &Value) -> u64 {
    index_in(&event["index"]).unwrap_or_default()
}

#[cfg(test)]
mod tests;
