//! Turns the data of a chat completion stream into events. Pure.

use super::details::Details;
use crate::llm::left_in_text::{LeftInText, MadeInText};
use crate::llm::markup::Parser;
use crate::llm::native_call::{MAX_CALLS, NativeCall, index_in, tool_name};
use crate::llm::opaque::{Block, Complete};
use crate::llm::remote::{
    ALL_THOUGHTS, CallPiece, Decoded, FILTERED, Look, Reader, UNCLOSED_THOUGHTS, count_in,
    failure_in, message_of, refused_answer,
};
use crate::llm::{LlmEvent, TokenUsage};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// The finish reasons after which an answer and its calls are whole. After any other, a call may lack a part. Gateways
/// hand on those of Anthropic and Gemini, which writes them in capitals.
const WHOLE: [&str; 8] = [
    "stop",
    "tool_calls",
    "function_call",
    "end_turn",
    "tool_use",
    "stop_sequence",
    "eos",
    "eos_token",
];

/// The finish reasons of an answer that was cut off at its token limit or at the end of the model's context.
const CUT: [&str; 3] = ["length", "max_tokens", "model_length"];

/// The most bytes of thoughts that are kept with a call.
pub(super) const MAX_THOUGHT_BYTES: usize = 32 * 1024;

#[derive(Deserialize)]
struct Chunk {
    /// The server's id of the answer.
    id: Option<Value>,
    #[serde(default, deserialize_with = "or_default")]
    choices: Vec<Choice>,
    error: Option<Value>,
    /// "error" if the chunk itself is one, as older vLLM and Mistral send it.
    object: Option<Value>,
    message: Option<Value>,
    /// MiniMax's outcome.
    base_resp: Option<Value>,
    usage: Option<Value>,
}

/// The token counts; `None` if they are zero, as in every piece but the last of some servers.
fn counted(usage: &Value) -> Option<TokenUsage> {
    let read = |count: &Value| count_in(count).unwrap_or_default();
    let usage = TokenUsage {
        input: read(&usage["prompt_tokens"]),
        cached: read(&usage["prompt_tokens_details"]["cached_tokens"]),
        output: read(&usage["completion_tokens"]),
        reasoning: read(&usage["completion_tokens_details"]["reasoning_tokens"]),
    };
    (usage.input > 0).then_some(usage)
}

#[derive(Deserialize)]
struct Choice {
    delta: Option<Delta>,
    /// The whole answer, from a server that does not stream. Others repeat in it what they have sent so far.
    message: Option<Delta>,
    finish_reason: Option<String>,
}

impl Choice {
    /// The piece that it adds to the answer, of which a part may have come before.
    fn piece(self, has_begun: bool) -> (Delta, Option<String>) {
        let whole = self.message.filter(|_| !has_begun);
        let piece = self.delta.or(whole).unwrap_or_default();
        (piece, self.finish_reason)
    }
}

/// A piece of the answer. Thoughts are never spoken.
#[derive(Deserialize, Default)]
struct Delta {
    /// Text, or a list of parts, which Mistral sends for a model that thinks.
    content: Option<Value>,
    /// OpenAI's text in place of the content if the model refuses to answer.
    refusal: Option<Value>,
    reasoning_content: Option<Value>,
    reasoning: Option<Value>,
    reasoning_details: Option<Value>,
    thinking: Option<Value>,
    #[serde(default, deserialize_with = "or_default")]
    tool_calls: Vec<CallDelta>,
    /// Sent when the server has used the results of all calls so far and continues the answer: one entry per call.
    #[serde(default, deserialize_with = "or_default")]
    tool_outputs: Vec<Value>,
    /// Says whether the content is a summary of Gemini's thoughts.
    extra_content: Option<Value>,
}

impl Delta {
    /// The words of the piece.
    fn text(&self) -> String {
        let text = match &self.content {
            Some(Value::Array(parts)) => {
                let texts = parts.iter().filter_map(|part| part.get("text"));
                texts.map(written).collect()
            }
            content => content.as_ref().map(written).unwrap_or_default(),
        };
        // Gemini's own server also marks thoughts by tags, and the closing one comes without the flag.
        let has_tag = text.starts_with("<thought>") || text.contains("</thought>");
        if self.is_thought() && !has_tag {
            return String::new();
        }
        let refusal = self.refusal.as_ref().and_then(Value::as_str);
        match refusal {
            Some(refusal) if text.is_empty() => refusal.to_owned(),
            _ => text,
        }
    }

    /// Whether the content is a thought.
    fn is_thought(&self) -> bool {
        let extra = self.extra_content.as_ref();
        extra.is_some_and(|extra| extra["google"]["thought"] == true)
    }

    /// Whether the piece has thoughts.
    fn thinks(&self) -> bool {
        let fields = [
            &self.reasoning_content,
            &self.reasoning,
            &self.reasoning_details,
            &self.thinking,
        ];
        let in_content = self.content.as_ref().and_then(Value::as_array);
        let mut parts = in_content.into_iter().flatten();
        let said = |thought: &Value| match thought {
            Value::String(text) => !text.is_empty(),
            Value::Array(parts) => !parts.is_empty(),
            Value::Number(_) => true,
            _ => false,
        };
        fields.into_iter().flatten().any(said)
            || parts.any(|part| part.get("thinking").is_some())
            || self.is_thought()
    }
}

#[derive(Deserialize)]
struct CallDelta {
    #[serde(default, deserialize_with = "read_index")]
    index: Option<u64>,
    #[serde(default, deserialize_with = "read_id")]
    id: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    function: FunctionDelta,
    /// Gemini's signature of its thoughts.
    extra_content: Option<Value>,
}

#[derive(Deserialize, Default)]
struct FunctionDelta {
    name: Option<String>,
    /// A string, but some servers send an object.
    arguments: Option<Value>,
}

impl FunctionDelta {
    /// The tool's name; empty if it does not come with this piece.
    fn name(&self) -> &str {
        tool_name(self.name.as_deref().unwrap_or_default())
    }

    fn has_arguments(&self) -> bool {
        let is_blank = |piece: &Value| piece.as_str().is_some_and(|text| text.trim().is_empty());
        self.arguments
            .as_ref()
            .is_some_and(|piece| !is_blank(piece))
    }
}

/// A piece of text. Cloudflare sends a token that reads as a number or a boolean as one.
fn written(piece: &Value) -> String {
    match piece {
        Value::String(text) => text.clone(),
        Value::Number(_) | Value::Bool(_) => piece.to_string(),
        _ => String::new(),
    }
}

/// Reads `null`, which some servers send for a missing field, as the default.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

fn read_index<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Value::deserialize(deserializer).map(|index| index_in(&index))
}

/// Reads an id, which may be a number.
fn read_id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Value::deserialize(deserializer).map(|id| match id {
        Value::String(id) => Some(id),
        Value::Number(id) => Some(id.to_string()),
        _ => None,
    })
}

/// Reads the messages of one stream.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    parser: Parser,
    /// Whether answers may begin with thoughts that have no opening tag.
    thinks_first: bool,
    /// The names of the offered tools.
    tools: Vec<String>,
    /// Whether the server takes results and has not yet sent the answer's id.
    takes_results: bool,
    calls: Vec<Slot>,
    /// The calls in the text before native ones.
    made: MadeInText,
    /// The text after the first call.
    behind: LeftInText,
    /// How many calls are closed, counted from the first.
    closed: usize,
    /// The reason that came with the last piece.
    reason: Option<String>,
    finish: Option<String>,
    usage: Option<TokenUsage>,
    /// Whether anything was produced.
    has_begun: bool,
    /// Whether the thoughts at the beginning of the text never ended.
    never_spoke: bool,
    /// The thoughts so far, for servers that want them back.
    thoughts: String,
    /// The blocks of thoughts so far, for OpenRouter.
    details: Details,
    /// Calls whose blocks have not been handed out.
    complete: Vec<Complete>,
}

/// A native call of the protocol.
#[derive(Debug)]
struct Slot {
    index: u64,
    id: Option<String>,
    call: NativeCall,
    /// The provider's own block.
    extra: Option<Value>,
}

/// The content of an event, as the server sends it.
pub(super) fn look(data: &str) -> Look {
    let chunk = serde_json::from_str::<Chunk>(data).ok();
    let choice = chunk.and_then(|chunk| chunk.choices.into_iter().next());
    let Some((delta, _)) = choice.map(|choice| choice.piece(false)) else {
        return Look::default();
    };
    let piece = |call: &CallDelta| CallPiece {
        index: call.index,
        has_id: call.id.as_ref().is_some_and(|id| !id.is_empty()),
        has_name: (call.function.name.as_ref()).is_some_and(|name| !name.is_empty()),
        has_arguments: (call.function.arguments.as_ref())
            .is_some_and(|piece| piece.as_str() != Some("")),
    };
    Look {
        text: delta.text(),
        thinks: delta.thinks(),
        calls: delta.tool_calls.iter().map(piece).collect(),
    }
}

/// The model's text in a refusal of Groq, whose server could not read its call.
pub(super) fn failed_generation(body: &str) -> Option<String> {
    let body: Value = serde_json::from_str(body).ok()?;
    text_in(body.get("error")?).map(str::to_owned)
}

/// The model's text in Groq's error.
fn text_in(error: &Value) -> Option<&str> {
    error.get("failed_generation")?.as_str()
}

impl Decoder {
    /// A decoder for a model whose answers may begin with thoughts that have no opening tag, and that is offered
    /// these tools.
    pub(super) fn new(thinks_first: bool, tools: Vec<String>) -> Self {
        Self {
            parser: Parser::default()
                .tools(tools.clone())
                .thinks_first(thinks_first),
            behind: LeftInText::new(tools.clone()),
            thinks_first,
            tools,
            ..Self::default()
        }
    }

    /// This decoder, for a server that may take results of tools while it answers.
    pub(super) fn with_tool_cache(self, takes_results: bool) -> Self {
        Self {
            takes_results,
            ..self
        }
    }
}

impl Reader for Decoder {
    fn thinks(&self) -> bool {
        !self.thoughts.is_empty()
    }

    fn blocks(&mut self) -> Vec<Complete> {
        std::mem::take(&mut self.complete)
    }

    fn message(&mut self, data: &str) -> Decoded {
        if data.trim() == "[DONE]" {
            return self.done();
        }
        let chunk: Chunk = match serde_json::from_str(data) {
            Ok(chunk) => chunk,
            Err(error) => return (Vec::new(), Some(format!("unexpected data: {error}"))),
        };
        if let Some(error) = chunk.error.filter(|error| !error.is_null()) {
            // Groq may have begun to stream before its server fails to read the call.
            let text = text_in(&error).filter(|_| !self.has_begun);
            let answer = text.and_then(|text| refused_answer(text, self.tools.clone()));
            return match answer {
                Some(events) => (events, None),
                None => (Vec::new(), Some(message_of(&error))),
            };
        }
        if chunk.object.is_some_and(|object| object == "error") {
            let message = chunk.message.unwrap_or_default();
            return (Vec::new(), Some(message_of(&message)));
        }
        if let Some(failure) = chunk.base_resp.as_ref().and_then(failure_in) {
            return (Vec::new(), Some(message_of(failure)));
        }
        self.usage = chunk.usage.as_ref().and_then(counted).or(self.usage);
        let mut events = Vec::new();
        if let Some(Value::String(response)) = chunk.id.filter(|_| self.takes_results)
            && !response.is_empty()
        {
            self.takes_results = false;
            events.push(LlmEvent::TakesResults { response });
        }
        if let Some(choice) = chunk.choices.into_iter().next() {
            self.choice(choice, &mut events);
        }
        self.has_begun |= events.iter().any(LlmEvent::is_output);
        (events, None)
    }

    /// Handles a stream that ended without `[DONE]`, which is an error unless a finish reason came before.
    fn end_of_stream(&mut self) -> Decoded {
        if self.finish.is_some() || self.reason.is_some() {
            self.done()
        } else {
            (
                Vec::new(),
                Some("it ended before the model was done".into()),
            )
        }
    }

    fn breaks_off(&mut self) -> Decoded {
        // The next piece might have taken back the reason that came with the last one.
        self.reason = None;
        self.end_of_stream()
    }
}

impl Decoder {
    fn choice(&mut self, choice: Choice, events: &mut Vec<LlmEvent>) {
        let (delta, reason) = choice.piece(self.has_begun);
        let text = delta.text();
        let thinks = delta.thinks();
        let is_more = thinks || !text.is_empty() || !delta.tool_calls.is_empty();
        if let Some(Value::Array(blocks)) = &delta.reasoning_details {
            self.details.add(blocks);
        }
        if thinks && text.is_empty() {
            events.push(LlmEvent::Thinking);
        }
        let thought = delta.reasoning_content.as_ref();
        let thought = thought.filter(|thought| !thought.is_boolean()).map(written);
        let room = MAX_THOUGHT_BYTES.saturating_sub(self.thoughts.len());
        let thought = thought.filter(|thought| thought.len() <= room);
        self.thoughts.push_str(&thought.unwrap_or_default());
        match self.calls.is_empty() {
            true if text.is_empty() => {}
            true => events.extend(self.made.noted(self.parser.push(&text))),
            false => self.behind.push(&text),
        }
        for call in delta.tool_calls {
            self.call(call, events);
        }
        if !delta.tool_outputs.is_empty() && !self.calls.is_empty() {
            self.go_on(events);
        }
        // Some servers send an empty reason with every piece.
        let reason = reason.filter(|reason| !reason.is_empty());
        if is_more {
            // Others send "stop" with every piece. It counts if nothing more follows.
            (self.reason, self.finish) = (reason, None);
        } else if let Some(reason) = reason.or_else(|| self.reason.take()) {
            self.finish(&reason, events);
        }
        if let Some(open) = self.calls.get_mut(self.closed) {
            open.call.tell_read(events);
        }
    }

    /// Handles the finish reason, with which nothing came. Nothing can follow it, so calls are committed now rather than
    /// at `[DONE]`, if it says that they are whole.
    fn finish(&mut self, reason: &str, events: &mut Vec<LlmEvent>) {
        let reason = reason.to_ascii_lowercase();
        let whole = WHOLE.contains(&reason.as_str());
        self.never_spoke = self.parser.still_thinks_first();
        events.extend(match whole {
            true => self.parser.finish_whole(),
            false => self.parser.finish(),
        });
        self.close_calls(self.calls.len(), whole, events);
        events.extend(self.behind.finish(whole));
        self.finish = Some(reason);
    }

    /// Handles the mark after calls whose results the server has used: the calls are whole, and the answer to them
    /// begins.
    fn go_on(&mut self, events: &mut Vec<LlmEvent>) {
        self.close_calls(self.calls.len(), true, events);
        events.extend(self.behind.finish(true));
        events.push(LlmEvent::GoesOn);
        let next = Self::new(self.thinks_first, std::mem::take(&mut self.tools));
        *self = Self {
            usage: self.usage,
            has_begun: true,
            complete: std::mem::take(&mut self.complete),
            ..next
        };
    }

    fn done(&mut self) -> Decoded {
        let mut events = Vec::new();
        if self.finish.is_none() {
            let reason = self.reason.take().unwrap_or_default();
            self.finish(&reason, &mut events);
        }
        self.has_begun |= !events.is_empty();
        let reason = self.finish.as_deref().unwrap_or_default();
        if reason == "content_filter" {
            return (events, Some(FILTERED.into()));
        }
        if CUT.contains(&reason) {
            if !self.has_begun {
                return (events, Some(ALL_THOUGHTS.into()));
            }
            events.push(LlmEvent::Cut);
        } else if self.never_spoke && !self.has_begun {
            return (events, Some(UNCLOSED_THOUGHTS.into()));
        }
        events.extend(self.usage.take().map(|usage| LlmEvent::Used { usage }));
        events.push(LlmEvent::End);
        (events, None)
    }

    fn call(&mut self, delta: CallDelta, events: &mut Vec<LlmEvent>) {
        if self.calls.is_empty() {
            events.extend(self.made.noted(self.parser.finish()));
        }
        let Some(at) = self.find(&delta) else {
            return;
        };
        let extra = delta.extra_content;
        if extra.is_some() {
            self.calls[at].extra = extra;
        }
        self.calls[at].add(delta.function);
        // An earlier call whose object is complete is closed at once, without waiting for the others.
        while self.closed < at && self.calls[self.closed].call.is_whole() {
            self.close_calls(self.closed + 1, true, events);
        }
        // A call that may repeat one of the text is told when it is closed.
        if self.closed == at && self.made.is_empty() {
            self.calls[at].call.tell(events);
        }
    }

    /// The call that a piece belongs to. Ollama gives every call the index 0 but a distinct id; Gemini gives neither.
    /// Poolside gives the pieces behind the first another id, and some servers number only these.
    fn find(&mut self, delta: &CallDelta) -> Option<usize> {
        let id = delta.id.clone().filter(|id| !id.is_empty());
        let index = delta.index.unwrap_or_default();
        let next = &delta.function;
        let known = self.calls.iter().rposition(|call| {
            call.index == index && (id.is_none() || call.id.is_none() || call.id == id)
        });
        let known = known.or_else(|| self.unfinished(index, next));
        let known = known.filter(|at| id.is_some() || !self.calls[*at].is_over(next));
        match known {
            Some(at) if at < self.closed => None,
            Some(at) => Some(at),
            None if self.calls.len() < MAX_CALLS => {
                self.calls.push(Slot::new(index, id));
                Some(self.calls.len() - 1)
            }
            None => None,
        }
    }

    /// The call that a piece goes on with although its id or index is of none: one of its index, or else the last.
    fn unfinished(&self, index: u64, next: &FunctionDelta) -> Option<usize> {
        let mut calls = self.calls.iter();
        let at_index = calls.rposition(|call| call.index == index && call.goes_on(next));
        let last = self.calls.len().checked_sub(1);
        at_index.or(last.filter(|last| self.calls[*last].goes_on(next)))
    }

    fn close_calls(&mut self, until: usize, whole: bool, events: &mut Vec<LlmEvent>) {
        for slot in &mut self.calls[self.closed..until] {
            let mut told = Vec::new();
            let closed = slot.call.close(whole, &mut told);
            let name = slot.call.name();
            let is_made = self.made.has(name, &closed);
            if !is_made {
                events.append(&mut told);
            }
            if let Ok(arguments) = closed {
                let block = Block {
                    extra: slot.extra.take(),
                    thoughts: self.thoughts.clone(),
                    details: self.details.blocks.clone(),
                    id: slot.id.clone(),
                };
                let name = slot.call.name().to_owned();
                self.behind.has_native(&name, &arguments);
                if is_made {
                    continue;
                }
                self.complete.push((name, arguments, block));
            }
        }
        self.closed = until;
    }
}

impl Slot {
    fn new(index: u64, id: Option<String>) -> Self {
        Self {
            index,
            id,
            call: NativeCall::default(),
            extra: None,
        }
    }

    fn add(&mut self, function: FunctionDelta) {
        self.call.call_it(function.name().to_owned());
        match function.arguments {
            Some(Value::String(piece)) => self.call.push(&piece),
            Some(object @ Value::Object(_)) => self.call.push(&object.to_string()),
            _ => {}
        }
    }

    /// Whether a piece without an id begins another call.
    fn is_over(&self, next: &FunctionDelta) -> bool {
        let name = next.name();
        let is_new = !name.is_empty() && !self.call.name().is_empty();
        is_new && (name != self.call.name() || self.call.is_whole() && next.has_arguments())
    }

    /// Whether a piece with another id or index is a part of this call, because it has no name.
    fn goes_on(&self, next: &FunctionDelta) -> bool {
        next.name().is_empty() && !(next.has_arguments() && self.call.is_whole())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::markup::MAX_ARGUMENT_BYTES;
    use serde_json::json;

    /// Decodes chunks and `[DONE]`, with one line for each event but reports of finished arguments.
    fn decode(chunks: &[Value]) -> Vec<String> {
        let mut lines = decode_with_reads(chunks);
        lines.retain(|line| !line.starts_with("read"));
        lines
    }

    fn decode_with_reads(chunks: &[Value]) -> Vec<String> {
        let mut decoder = Decoder::default();
        let mut lines = Vec::new();
        for chunk in chunks
            .iter()
            .map(Value::to_string)
            .chain(["[DONE]".to_owned()])
        {
            let (events, error) = decoder.message(&chunk);
            lines.extend(events.iter().map(line));
            if let Some(error) = error {
                lines.push(format!("error: {error}"));
                break;
            }
        }
        lines
    }

    /// LocalAI and others send a call as text first, and then natively.
    #[test]
    fn a_call_in_the_text_and_natively_is_one_call() {
        let text = |text: &str| json!({"choices": [{"delta": {"content": text}}]});
        let native = |name: &str, arguments: &str| {
            let function = json!({"name": name, "arguments": arguments});
            let call = json!({"index": 0, "id": "1", "function": function});
            json!({"choices": [{"delta": {"tool_calls": [call]}}]})
        };
        let end = json!({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]});
        let written = r#"<tool_call>{"name": "book", "arguments": {"day": 5}}</tool_call>"#;
        let closed = |second: Value| {
            let mut decoder = Decoder::new(false, vec!["book".into()]);
            let chunks = [text("One moment. "), text(written), second, end.clone()];
            let events = chunks.iter().flat_map(|chunk| {
                let (events, error) = decoder.message(&chunk.to_string());
                assert_eq!(error, None);
                events
            });
            let closed = events.filter_map(|event| match event {
                LlmEvent::ToolClosed { arguments } => Some(arguments.unwrap()["day"].clone()),
                _ => None,
            });
            closed.collect::<Vec<_>>()
        };
        assert_eq!(closed(native("book", r#"{"day":5}"#)), [json!(5)]);
        let other = closed(native("book", r#"{"day": 6}"#));
        assert_eq!(other, [json!(5), json!(6)]);
    }

    #[test]
    fn white_space_behind_a_call_begins_no_other() {
        let piece = |name: &str, arguments: &str| {
            let function = json!({"name": name, "arguments": arguments});
            let call = json!({"index": 0, "function": function});
            json!({"choices": [{"delta": {"tool_calls": [call]}}]})
        };
        let end = json!({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]});
        let lines = decode(&[piece("book", r#"{"day": 5}"#), piece("book", "\n"), end]);
        let opened = lines.iter().filter(|line| line.starts_with("open"));
        assert_eq!(opened.count(), 1, "{lines:?}");
    }

    fn line(event: &LlmEvent) -> String {
        match event {
            LlmEvent::Speech { text } => format!("say {text}"),
            LlmEvent::ToolOpened { name } => format!("open {name}"),
            LlmEvent::ToolArguments { piece } => format!("piece {piece}"),
            LlmEvent::ToolRead { arguments, whole } => {
                let read = Value::Object(arguments.clone());
                format!("read {read}{}", if *whole { " whole" } else { "" })
            }
            LlmEvent::ToolClosed { arguments: Ok(map) } => {
                format!("close {}", Value::Object(map.clone()))
            }
            LlmEvent::ToolClosed {
                arguments: Err(why),
            } => format!("bad {why}"),
            LlmEvent::Thinking => "think".into(),
            LlmEvent::Unable => "unable".into(),
            LlmEvent::Cut => "cut".into(),
            LlmEvent::TakesResults { response } => format!("takes {response}"),
            LlmEvent::GoesOn => "goes on".into(),
            LlmEvent::Used { usage } => {
                format!("used {} {} {}", usage.input, usage.cached, usage.output)
            }
            LlmEvent::End => "end".into(),
        }
    }

    fn text(text: &str) -> Value {
        json!({"choices": [{"index": 0, "delta": {"content": text}}]})
    }

    fn finish(reason: &str) -> Value {
        json!({"choices": [{"delta": {}, "finish_reason": reason}]})
    }

    fn call(index: u64, id: &str, name: &str, arguments: &str) -> Value {
        json!({"choices": [{"delta": {"content": null, "tool_calls": [
            {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
        ]}}]})
    }

    /// A call after this token ends only with the answer.
    #[test]
    fn a_call_in_content_that_ends_with_the_answer_needs_its_finish_reason() {
        let call = "<|python_tag|>{\"name\": \"w\", \"parameters\": {\"n\": 1}}";
        let said = |reason: &str| decode(&[text("Wait."), text(call), finish(reason)]);
        let whole = [
            "say Wait.",
            "open w",
            "piece {\"n\":1}",
            "close {\"n\":1}",
            "end",
        ];
        assert_eq!(said("stop"), whole);
        let cut = "bad the answer was cut off within the call";
        assert_eq!(said("length"), ["say Wait.", "open w", cut, "cut", "end"]);
        assert_eq!(said("abort"), ["say Wait.", "open w", cut, "end"]);
    }

    #[test]
    fn markup_in_content() {
        let lines = decode(&[
            text("<speech>Hi"),
            text("</sp"),
            text("eech>"),
            finish("stop"),
        ]);
        assert_eq!(lines, ["say Hi", "say \n", "end"]);
    }

    /// The caller heard nothing.
    #[test]
    fn the_words_of_a_refusal_are_spoken() {
        let refusal = |content: Value, text: &str| {
            let delta = json!({"role": "assistant", "content": content, "refusal": text});
            json!({"choices": [{"delta": delta, "finish_reason": null}]})
        };
        let lines = decode(&[
            refusal(Value::Null, ""),
            refusal(Value::Null, "I cannot help"),
            refusal(json!(""), " with that."),
            finish("stop"),
        ]);
        assert_eq!(lines, ["say I cannot help", "say  with that.", "end"]);
    }

    #[test]
    fn thoughts_and_odd_chunks_are_never_speech() {
        let lines = decode(&[
            json!({"choices": [{"delta": {"role": "assistant", "content": "", "reasoning_content": "hmm"}}]}),
            json!({"choices": null}),
            json!({"choices": [{"delta": null, "finish_reason": null}], "error": null}),
            text("Hi"),
            finish("stop"),
            json!({"choices": [], "usage": {"total_tokens": 3}}),
        ]);
        assert_eq!(lines, ["think", "say Hi", "end"]);
    }

    /// Cloudflare's numbers were missing in what was said, and in the arguments of calls.
    #[test]
    fn tokens_that_are_numbers_or_booleans_are_text() {
        let piece = |content: Value| json!({"choices": [{"delta": {"content": content}}]});
        let said = |pieces: Vec<Value>| {
            let mut chunks: Vec<Value> = pieces.into_iter().map(piece).collect();
            chunks.push(finish("stop"));
            let lines = decode(&chunks);
            let said = lines.iter().filter_map(|line| line.strip_prefix("say "));
            (said.collect::<String>(), lines)
        };
        let (words, _) = said(vec![
            json!("Room "),
            json!(4),
            json!(2),
            json!([{"type": "text", "text": " is "}, {"type": "text", "text": true}]),
            json!("."),
        ]);
        assert_eq!(words, "Room 42 is true.");
        let [opens, closes] = ["<tool>w(n=", ")</tool>"].map(Value::from);
        let (_, lines) = said(vec![opens, json!(1), json!(0), closes]);
        assert!(lines.contains(&"close {\"n\":10}".to_owned()), "{lines:?}");

        let mut decoder = Decoder::default();
        for thought in [json!("Room "), json!(7)] {
            let delta = json!({"content": null, "reasoning_content": thought});
            let chunk = json!({"choices": [{"delta": delta}]});
            let events = decoder.message(&chunk.to_string());
            assert_eq!(events, (vec![LlmEvent::Thinking], None));
        }
        decoder.message(&call(0, "a", "w", "{}").to_string());
        decoder.message(&finish("tool_calls").to_string());
        let (_, _, block) = decoder.blocks().pop().expect("a call");
        assert_eq!(block.thoughts, "Room 7");
    }

    /// They were spoken.
    #[test]
    fn summaries_of_geminis_thoughts_are_never_speech() {
        let mut thought = text("**Greeting** The user says hello.");
        thought["choices"][0]["delta"]["extra_content"] = json!({"google": {"thought": true}});
        let lines = decode(&[thought, text("Hi."), finish("stop")]);
        assert_eq!(lines, ["think", "say Hi.", "end"]);
        // Gemini's own server.
        let mut thought = text("<thought>**Greeting** The user says hello.");
        thought["choices"][0]["delta"]["extra_content"] = json!({"google": {"thought": true}});
        let lines = decode(&[thought, text("</thought>Hi."), finish("stop")]);
        let said: Vec<_> = lines
            .iter()
            .filter(|line| line.starts_with("say"))
            .collect();
        assert_eq!(said, ["say Hi."]);
    }

    #[test]
    fn native_calls_in_pieces() {
        let lines = decode(&[
            text("<speech>Wait"),
            call(0, "a", "w", ""),
            call(0, "", "", "{\"city\":"),
            call(0, "", "", "\"Boulder\"}"),
            call(1, "b", "v", "{}"),
            finish("tool_calls"),
        ]);
        let expected = [
            "say Wait",
            "open w",
            "piece {\"city\":",
            "piece \"Boulder\"}",
            "close {\"city\":\"Boulder\"}",
            "open v",
            "piece {}",
            "close {}",
            "end",
        ];
        assert_eq!(lines, expected);
    }

    /// The shape in which OpenAI and vLLM stream a call: the name, the arguments by tokens, the reason.
    #[test]
    fn finished_arguments_of_a_native_call_are_reported_before_its_end() {
        let pieces = [
            "", "{\"", "city", "\":\"", "Den", "ver", "\",", "\"days", "\":1", "2", "}",
        ];
        let chunks = pieces.iter().enumerate().map(|(nth, piece)| match nth {
            0 => call(0, "a", "w", piece),
            _ => call(0, "", "", piece),
        });
        let chunks: Vec<_> = chunks.chain([finish("tool_calls")]).collect();
        let lines = decode_with_reads(&chunks);
        let reads: Vec<_> = lines.iter().filter(|l| !l.starts_with("piece")).collect();
        let expected = [
            "open w",
            "read {}",
            "read {\"city\":\"Denver\",\"days\":12} whole",
            "close {\"city\":\"Denver\",\"days\":12}",
            "end",
        ];
        assert_eq!(reads, expected);
        // The quote and the comma after it may come in separate pieces.
        let apart = [
            call(0, "a", "w", "{\"city\":\"Denver\""),
            call(0, "", "", ",\"days\":"),
        ];
        assert!(decode_with_reads(&apart).contains(&"read {\"city\":\"Denver\"}".to_owned()));
    }

    /// The marks of a server with a tool cache.
    #[test]
    fn a_server_that_has_the_results_goes_on_with_the_answer() {
        let named = |mut chunk: Value| {
            chunk["id"] = json!("answer-1");
            chunk
        };
        let used = json!({"choices": [{"delta": {"tool_outputs": [{"tool_call_id": "a"}]}}]});
        let chunks = [
            json!({"choices": [{"delta": {"role": "assistant"}}]}),
            call(0, "a", "w", "{\"n\":1}"),
            used.clone(),
            text("Let me see. "),
            call(0, "b", "w", "{\"n\":2}"),
            call(1, "c", "v", "{}"),
            used.clone(),
            text("It is noon."),
            finish("stop"),
        ];
        let chunks = chunks.map(named);
        let mut decoder = Decoder::default().with_tool_cache(true);
        let events = chunks.iter().map(Value::to_string);
        let events = events.flat_map(|chunk| decoder.message(&chunk).0);
        let mut lines: Vec<String> = events.map(|event| line(&event)).collect();
        lines.retain(|line| !line.starts_with("read") && !line.starts_with("piece"));
        let expected = [
            "takes answer-1",
            "open w",
            "close {\"n\":1}",
            "goes on",
            "say Let me see.",
            "open w",
            "close {\"n\":2}",
            "open v",
            "close {}",
            "goes on",
            "say It is noon.",
        ];
        assert_eq!(lines, expected);
        // A mark without a call has no effect, and without the setting the answer's id is not reported.
        let chunks = [used, text("It is noon."), finish("stop")].map(named);
        assert_eq!(decode(&chunks), ["say It is noon.", "end"]);
    }

    #[test]
    fn native_calls_that_share_an_index_or_interleave() {
        let ollama = [
            call(0, "a", "w", "{\"n\":1}"),
            call(0, "b", "w", "{\"n\":2}"),
            finish("tool_calls"),
        ];
        let both = [
            "open w",
            "piece {\"n\":1}",
            "close {\"n\":1}",
            "open w",
            "piece {\"n\":2}",
            "close {\"n\":2}",
            "end",
        ];
        assert_eq!(decode(&ollama), both);
        let mixed = [
            call(0, "a", "w", "{\"n\":"),
            call(1, "b", "w", "{\"n\":"),
            call(0, "", "", "1}"),
            call(1, "", "", "2}"),
            finish("tool_calls"),
        ];
        let closes: Vec<String> = decode(&mixed)
            .into_iter()
            .filter(|l| l.starts_with("close"))
            .collect();
        assert_eq!(closes, ["close {\"n\":1}", "close {\"n\":2}"]);
    }

    /// A piece went on with the last call of its index, which then ran with another one's arguments.
    #[test]
    fn pieces_of_one_index_belong_to_the_calls_of_their_ids() {
        let lines = decode(&[
            call(0, "a", "w", "{\"n\":"),
            call(0, "b", "v", "{\"m\":"),
            call(0, "a", "", "1}"),
            call(0, "b", "", "2}"),
            finish("tool_calls"),
        ]);
        let closes: Vec<_> = lines.iter().filter(|l| l.starts_with("close")).collect();
        assert_eq!(closes, ["close {\"n\":1}", "close {\"m\":2}"]);
    }

    #[test]
    fn a_call_that_is_cut_off_is_not_committed() {
        assert_eq!(
            decode(&[call(0, "a", "w", "{\"n\":1}"), finish("length")])[2],
            "bad the answer was cut off within the call"
        );
        assert!(
            decode(&[text("<tool>w(n=1)"), finish("length")])[2]
                .starts_with("bad the call was not closed")
        );
        assert!(decode(&[call(0, "a", "w", "{\"n\":"), finish("stop")])[2].starts_with("bad "));
        assert_eq!(
            decode(&[call(0, "a", "", "{}"), finish("stop")])[0],
            "open invalid"
        );
        assert!(decode(&[text("Hi"), finish("content_filter")])[1].contains("content filter"));
        let mut decoder = Decoder::default();
        decoder.message(&call(0, "a", "w", "{}").to_string());
        assert!(decoder.end_of_stream().1.is_some());
    }

    #[test]
    fn a_call_is_committed_only_after_a_reason_that_says_it_is_whole() {
        let bad = "bad the answer was cut off within the call";
        for reason in ["error", "abort", "insufficient_system_resource"] {
            let lines = decode(&[call(0, "a", "w", ""), finish(reason)]);
            assert_eq!(lines, ["open w", bad, "end"], "{reason}");
        }
        for reason in CUT.into_iter().chain(["MAX_TOKENS"]) {
            let lines = decode(&[call(0, "a", "w", ""), finish(reason)]);
            assert_eq!(lines, ["open w", bad, "cut", "end"], "{reason}");
        }
        for reason in WHOLE.into_iter().chain(["STOP"]) {
            let lines = decode(&[call(0, "a", "w", "{}"), finish(reason)]);
            assert_eq!(lines[2], "close {}", "{reason}");
        }
        // `[DONE]` without a reason.
        let lines = decode(&[call(0, "a", "w", "{}")]);
        assert_eq!(lines, ["open w", "piece {}", bad, "end"]);
    }

    /// Older Ollama, and gateways in front of other models.
    #[test]
    fn an_empty_finish_reason_is_none() {
        let with = |mut chunk: Value| {
            chunk["choices"][0]["finish_reason"] = json!("");
            chunk
        };
        let lines = decode(&[
            with(text("<speech>Hi</spe")),
            with(text("ech><to")),
            with(text("ol>w(n=1)</tool>")),
            finish("stop"),
        ]);
        assert!(lines.contains(&"close {\"n\":1}".to_owned()), "{lines:?}");
        let lines = decode(&[
            with(call(0, "a", "w", "")),
            with(call(0, "", "", "{\"n\":1}")),
            finish("stop"),
        ]);
        assert_eq!(
            lines,
            ["open w", "piece {\"n\":1}", "close {\"n\":1}", "end"]
        );
    }

    /// Gateways in front of Gemini. A call over two pieces was refused and its rest spoken, and a call behind the first
    /// reason never ended.
    #[test]
    fn a_finish_reason_with_every_piece_ends_nothing() {
        let with = |mut chunk: Value| {
            chunk["choices"][0]["finish_reason"] = json!("stop");
            chunk
        };
        let in_text = [
            with(json!({"choices": [{"delta": {"reasoning_content": "Hm."}}]})),
            with(text("<speech>Hi.</spe")),
            with(text("ech><tool>w(n=")),
            with(text("1)</tool>")),
        ];
        let expected = [
            "think",
            "say Hi.",
            "say \n",
            "open w",
            "piece n=",
            "piece 1",
            "close {\"n\":1}",
            "end",
        ];
        assert_eq!(decode(&in_text), expected);
        let native = [
            with(call(0, "a", "w", "{\"n\":1}")),
            finish("stop"),
            with(call(1, "b", "v", "")),
            with(call(1, "", "", "{}")),
        ];
        let expected = [
            "open w",
            "piece {\"n\":1}",
            "close {\"n\":1}",
            "open v",
            "piece {}",
            "close {}",
            "end",
        ];
        assert_eq!(decode(&native), expected);
        // The last one counts, with and without `[DONE]`.
        let cut = |mut chunk: Value| {
            chunk["choices"][0]["finish_reason"] = json!("length");
            chunk
        };
        let lines = decode(&[with(text("Hi")), cut(call(0, "a", "w", ""))]);
        let bad = "bad the answer was cut off within the call";
        assert_eq!(lines, ["say Hi", "open w", bad, "cut", "end"]);
        let mut decoder = Decoder::default();
        decoder.message(&with(text("Hi")).to_string());
        assert_eq!(decoder.end_of_stream(), (vec![LlmEvent::End], None));
        // The arguments are missing.
        let mut decoder = Decoder::default();
        decoder.message(&with(call(0, "a", "w", "")).to_string());
        let (events, error) = decoder.breaks_off();
        assert!(events.is_empty() && error.is_some(), "{events:?}");
        // With a reason that came alone the answer was over.
        let mut decoder = Decoder::default();
        decoder.message(&text("Hi").to_string());
        decoder.message(&finish("stop").to_string());
        assert_eq!(decoder.breaks_off(), (vec![LlmEvent::End], None));
    }

    /// Gemini's compatible endpoint.
    #[test]
    fn calls_without_index_and_id_are_told_apart_by_name() {
        let call = |name: &str, arguments: &str| {
            let function = json!({"name": name, "arguments": arguments});
            json!({"choices": [{"delta": {"tool_calls": [{"function": function}]}}]})
        };
        let lines = decode(&[
            call("w", "{\"n\":1}"),
            call("w", "{\"n\":2}"),
            call("v", "{}"),
            call("v", ""),
            finish("stop"),
        ]);
        let closes: Vec<_> = lines.iter().filter(|l| l.starts_with("close")).collect();
        assert_eq!(closes, ["close {\"n\":1}", "close {\"n\":2}", "close {}"]);
    }

    #[test]
    fn an_answer_that_was_all_thoughts_is_an_error_that_says_so() {
        let thought = json!({"choices": [{"delta": {"reasoning_content": "hmm"}}]});
        let lines = decode(&[thought, finish("length")]);
        assert_eq!(lines[0], "think");
        assert!(lines[1].contains("llm.max_tokens"), "{lines:?}");
    }

    #[test]
    fn thoughts_that_never_end_are_an_error_that_names_the_setting() {
        let mut decoder = Decoder::new(true, Vec::new());
        decoder.message(&text("Hm, a greeting.").to_string());
        decoder.message(&finish("stop").to_string());
        let (events, error) = decoder.message("[DONE]");
        assert!(events.is_empty() && error.unwrap().contains("llm.thinks_first"));
        for thoughts in ["Hm.</think>", "Hm.[/THINK]"] {
            let mut decoder = Decoder::new(true, Vec::new());
            decoder.message(&text(thoughts).to_string());
            decoder.message(&finish("stop").to_string());
            assert_eq!(decoder.message("[DONE]"), (vec![LlmEvent::End], None));
        }
    }

    /// The model was told that there is no such tool.
    #[test]
    fn special_tokens_behind_a_tools_name_are_no_part_of_it() {
        let name = "w<|channel|>commentary";
        let lines = decode(&[
            call(0, "a", name, ""),
            call(0, "", name, "{\"n\":1}"),
            finish("tool_calls"),
        ]);
        assert_eq!(
            lines,
            ["open w", "piece {\"n\":1}", "close {\"n\":1}", "end"]
        );
    }

    /// The first piece was committed as a call without arguments.
    #[test]
    fn pieces_with_ids_or_indexes_of_their_own_belong_to_one_call() {
        let poolside = [
            call(0, "a", "w", ""),
            call(0, "b", "", "{\"n\":"),
            call(0, "b", "", "1}"),
            call(1, "c", "v", ""),
            call(1, "d", "", "{}"),
            finish("tool_calls"),
        ];
        let numbered_late = [
            call(0, "a", "w", "{\"n\":"),
            call(0, "", "", "1}"),
            call(0, "b", "v", ""),
            call(1, "", "", "{}"),
            finish("tool_calls"),
        ];
        for chunks in [&poolside[..], &numbered_late] {
            let mut lines = decode(chunks);
            lines.retain(|line| !line.starts_with("piece"));
            let expected = ["open w", "close {\"n\":1}", "open v", "close {}", "end"];
            assert_eq!(lines, expected);
        }
        // Behind a whole call it is another one, of which nobody knows the tool.
        let nameless = [call(0, "a", "w", "{}"), call(1, "b", "", "{\"n\":1}")];
        let lines = decode(&[&nameless[..], &[finish("stop")]].concat());
        assert_eq!(lines[..3], ["open w", "piece {}", "close {}"]);
        assert!(
            lines.contains(&"bad the call has no name".to_owned()),
            "{lines:?}"
        );
    }

    #[test]
    fn a_call_without_arguments_and_arguments_as_an_object() {
        assert_eq!(
            decode(&[call(0, "a", "now", ""), finish("tool_calls")]),
            ["open now", "close {}", "end"]
        );
        let object = json!({"choices": [{"delta": {"tool_calls": [{"function": {"name": "w", "arguments": {"n": 1}}}]}}]});
        assert_eq!(decode(&[object, finish("stop")])[2], "close {\"n\":1}");
    }

    #[test]
    fn errors_in_the_stream() {
        assert_eq!(
            decode(&[text("Hi"), json!({"error": {"message": "overloaded"}})]),
            ["say Hi", "error: overloaded"]
        );
        assert_eq!(decode(&[json!({"error": "boom"})]), ["error: boom"]);
        let vllm = json!({"object": "error", "message": "too long", "code": 400});
        assert_eq!(decode(std::slice::from_ref(&vllm)), ["error: too long"]);
        let body = vllm.to_string();
        assert_eq!(
            crate::llm::remote::error_message(&body).unwrap(),
            "too long"
        );
        // OpenRouter, with the error of a provider, which may be text alone.
        let wrapped = |raw: &str| {
            let metadata = json!({"raw": raw, "provider_name": "Some"});
            json!({"error": {"message": "Provider returned error", "code": 400, "metadata": metadata}})
        };
        let raw = json!({"error": {"message": "bad value", "param": "top_p"}}).to_string();
        for (raw, cause) in [(raw.as_str(), "bad value (top_p)"), ("down", "down")] {
            let expected = format!("Provider returned error: Some: {cause}");
            let body = wrapped(raw).to_string();
            assert_eq!(crate::llm::remote::error_message(&body).unwrap(), expected);
            assert_eq!(decode(&[wrapped(raw)]), [format!("error: {expected}")]);
        }
        // The details, without what was sent: of Azure's models, FastAPI, Mistral and Google.
        let detail = json!({"type": "extra_forbidden", "loc": ["body", "messages", 1, "name"],
            "msg": "Extra inputs are not permitted", "input": "canary"});
        let violation = json!({"field": "max_tokens", "description": "It is too large."});
        let violations = json!({"@type": "BadRequest", "fieldViolations": [violation]});
        let told = "body.messages.1.name: Extra inputs are not permitted";
        for (body, expected) in [
            (
                json!({"error": {"code": "Invalid input", "message": "bad", "details": [detail]}}),
                format!("bad: {told}"),
            ),
            (
                json!({"detail": [detail, {"msg": "missing"}]}),
                format!("{told}; missing"),
            ),
            (
                json!({"object": "error", "message": {"detail": [detail]}}),
                told.to_owned(),
            ),
            (
                json!([{"error": {"code": 400, "message": "bad", "details": [violations]}}]),
                "bad: max_tokens: It is too large.".to_owned(),
            ),
        ] {
            let message = crate::llm::remote::error_message(&body.to_string());
            assert_eq!(message, Some(expected));
        }
        // MiniMax, under status 200.
        let outcome = |code: i64, reason: &str| {
            let outcome = json!({"status_code": code, "status_msg": reason});
            json!({"choices": null, "base_resp": outcome})
        };
        let lines = decode(&[text("Hi"), outcome(1027, "output sensitive")]);
        assert_eq!(lines, ["say Hi", "error: output sensitive"]);
        let lines = decode(&[text("Hi"), outcome(1027, "")]);
        assert!(lines[1].starts_with("error: ") && lines[1].contains("1027"));
        let lines = decode(&[text("Hi"), finish("stop"), outcome(0, "")]);
        assert_eq!(lines, ["say Hi", "end"]);
        assert!(decode(&[json!("what?")])[0].starts_with("error: unexpected data"));
    }

    /// "unexpected data: invalid type: floating point": an answer that was being spoken ended there.
    #[test]
    fn counts_indexes_and_ids_of_any_type_end_no_answer() {
        let counts = |input: Value, output: Value, cached: Value| {
            let details = json!({"cached_tokens": cached});
            json!({"choices": [], "usage": {"prompt_tokens": input, "completion_tokens": output,
                "prompt_tokens_details": details}})
        };
        for (usage, used) in [
            (counts(json!(20.7), json!(-1), json!("5")), "used 20 0 0"),
            (counts(json!(20), json!(9.0), json!([])), "used 20 0 9"),
        ] {
            let lines = decode(&[text("Hi"), finish("stop"), usage]);
            assert_eq!(lines, ["say Hi", used, "end"]);
        }
        for usage in [json!("many"), json!([1]), json!({"prompt_tokens": "9"})] {
            let usage = json!({"choices": [], "usage": usage});
            let lines = decode(&[text("Hi"), finish("stop"), usage]);
            assert_eq!(lines, ["say Hi", "end"]);
        }
        let piece = |index: Value, id: Value, name: &str, arguments: &str| {
            let function = json!({"name": name, "arguments": arguments});
            let call = json!({"index": index, "id": id, "function": function});
            json!({"choices": [{"delta": {"tool_calls": [call]}}]})
        };
        for [first, second] in [
            [json!("0"), json!("1")],
            [json!(0.0), json!(1.0)],
            [json!(-1), json!("none")],
        ] {
            let lines = decode(&[
                text("Wait."),
                piece(first.clone(), json!(7), "w", "{\"n\":"),
                piece(first, json!(7), "", "1}"),
                piece(second, json!(8), "v", "{}"),
                finish("tool_calls"),
            ]);
            let closes: Vec<_> = lines.iter().filter(|l| l.starts_with("close")).collect();
            assert_eq!(closes, ["close {\"n\":1}", "close {}"], "{lines:?}");
        }
    }

    #[test]
    fn memory_is_bounded() {
        let long = call(0, "a", "w", &"x".repeat(MAX_ARGUMENT_BYTES + 1));
        assert!(
            decode(&[long, finish("stop")]).contains(&"bad the arguments are too long".to_owned())
        );
        let many: Vec<Value> = (0..100)
            .map(|i| call(i, &i.to_string(), "w", "{}"))
            .collect();
        assert_eq!(
            decode(&many)
                .iter()
                .filter(|l| l.starts_with("open"))
                .count(),
            MAX_CALLS
        );
    }
}
