//! The simulated model: its output, and the time of each piece.
//!
//! | the last message | the model |
//! |---|---|
//! | asks for the weather in a city | says a few words, and calls the tool |
//! | is `call NAME KEY=VALUE, KEY=VALUE` | does the same with this call, so that other tools can be tried |
//! | is a result | answers |
//! | is anything else | says what it can be asked |
//!
//! Calls are native if the request offers tools, and in markup otherwise. With [`Delays::token`] the model writes token
//! by token, always in markup, and uses other words.

use super::{Delays, FORECAST, MODEL};
use crate::llm::markup::{CallForm, format_call};
use regex::Regex;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::LazyLock;
use std::time::Duration;

/// The answer to a result, in one clause.
pub(in crate::bench) const ANSWER: &str = "It is clear and mild.";

/// The answer to a result if it is written token by token: a forecast.
pub(in crate::bench) const FORECAST_TOLD: &str = "It is sixty two degrees and cloudy.";

/// The words before a call, token by token.
const FILLER: &str = "Let me check that.";

/// The answer to anything else, token by token.
const TALK: &str = "That is a good question. I am glad to help you with it.";

/// The answer to what the model does not understand.
const HINT: &str = "Ask me about the weather in a city.";

/// The beginning of a result in markup.
const RESULT: &str = "<tool_result";

/// The approximate length of a token, characters.
const TOKEN: usize = 4;

static WEATHER: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?im)\bweather\b.*? in ([a-z][a-z ]*?)[?.!\s]*$").expect("a pattern")
});

static CALL: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?im)^call ([\w-]+)(?: +(\w+ *=.*?))?\s*$").expect("a pattern"));

/// Splits text roughly as a tokenizer does: tags, words with the space before them, and punctuation.
static TOKENS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"</?[a-z_]+>| ?[\w']+| ?[^\w\s]|\s").expect("a pattern"));

/// The fields of a request that the simulated model reads.
#[derive(Debug, Deserialize)]
pub(super) struct Asked {
    #[serde(default)]
    pub(super) stream: bool,
    messages: Vec<Message>,
    #[serde(default)]
    tools: Vec<Value>,
}

#[derive(Debug, Deserialize)]
struct Message {
    role: String,
    #[serde(default)]
    content: Option<String>,
}

/// A chunk of the answer, and the time at which it is sent, counted from the request.
#[derive(Debug, PartialEq)]
pub(super) struct Piece {
    pub(super) at: Duration,
    pub(super) chunk: Value,
    /// The city of a call that ends with this chunk.
    pub(super) called: Option<String>,
}

/// The model's next move.
#[derive(Debug, PartialEq)]
enum Move {
    Say(&'static str),
    Call(String, Map<String, Value>),
}

impl Asked {
    /// The whole answer.
    pub(super) fn answer(&self, delays: &Delays) -> Vec<Piece> {
        let mut answer = Answer {
            native: !self.tools.is_empty(),
            written: 0,
            pieces: Vec::new(),
        };
        match (self.next_move(), delays.token) {
            (next, Some(token)) => answer.token_by_token(next, delays.answer, token),
            (Move::Say(words), None) => {
                answer.say(delays.answer, words);
                answer.end(delays.answer, "stop");
            }
            (Move::Call(name, arguments), None) => {
                if let Some(first) = delays.first {
                    answer.say(first, &filler(&name, &arguments));
                }
                answer.call(delays, &name, arguments);
            }
        }
        let read = self.messages.iter().filter_map(|m| m.content.as_deref());
        let read = read.map(str::len).sum::<usize>();
        answer.usage(read);
        answer.pieces
    }

    fn next_move(&self) -> Move {
        let Some(Message { role, content }) = self.messages.last() else {
            return Move::Say(HINT);
        };
        let text = content.as_deref().unwrap_or_default();
        if role == "tool" || text.contains(RESULT) {
            return Move::Say(ANSWER);
        }
        if let Some((name, arguments)) = dictated(text) {
            return Move::Call(name, arguments);
        }
        match WEATHER.captures(text).and_then(|found| found.get(1)) {
            Some(city) => {
                let city = json!(city.as_str());
                Move::Call(FORECAST.into(), Map::from_iter([("city".to_owned(), city)]))
            }
            None => Move::Say(HINT),
        }
    }
}

/// A call that the user dictates. It is not JSON, because the server defuses user text that a model may mistake for a
/// call.
fn dictated(text: &str) -> Option<(String, Map<String, Value>)> {
    let found = CALL.captures(text)?;
    let pairs = found.get(2).map_or("", |pairs| pairs.as_str());
    let pairs = pairs.split(',').filter(|pair| !pair.trim().is_empty());
    let argument = |pair: &str| {
        let (key, value) = pair.split_once('=')?;
        let (key, value) = (key.trim().to_owned(), value.trim());
        Some((
            key,
            serde_json::from_str(value).unwrap_or_else(|_| json!(value)),
        ))
    };
    let arguments: Option<Map<String, Value>> = pairs.map(argument).collect();
    Some((found[1].to_owned(), arguments?))
}

fn city(arguments: &Map<String, Value>) -> Option<String> {
    let city = arguments.get("city").and_then(Value::as_str);
    city.map(str::to_owned)
}

/// The words before a call.
fn filler(name: &str, arguments: &Map<String, Value>) -> String {
    match city(arguments).filter(|_| name == FORECAST) {
        Some(city) => {
            let mut letters = city.chars();
            let first = letters.next().map(|letter| letter.to_ascii_uppercase());
            let city: String = first.into_iter().chain(letters).collect();
            format!("Checking the forecast for {city}.")
        }
        None => "Let me look that up.".to_owned(),
    }
}

struct Answer {
    native: bool,
    /// The length of the output so far, bytes.
    written: usize,
    pieces: Vec<Piece>,
}

impl Answer {
    fn say(&mut self, at: Duration, words: &str) {
        let text = match self.native {
            true => words.to_owned(),
            false => format!("<speech>{words}</speech>"),
        };
        self.write(at, &text);
    }

    fn token_by_token(&mut self, next: Move, first: Duration, token: Duration) {
        let (text, called) = match next {
            Move::Say(ANSWER) => (format!("<speech>{FORECAST_TOLD}</speech>"), None),
            Move::Say(_) => (format!("<speech>{TALK}</speech>"), None),
            Move::Call(name, arguments) => {
                let call = format_call(CallForm::Python, &name, &arguments);
                (format!("<speech>{FILLER}</speech>{call}"), city(&arguments))
            }
        };
        let mut at = first;
        for found in TOKENS.find_iter(&text) {
            self.write(at, found.as_str());
            at += token;
        }
        if let Some(last) = self.pieces.last_mut() {
            last.called = called;
        }
        self.end(at, "stop");
    }

    fn call(&mut self, delays: &Delays, name: &str, arguments: Map<String, Value>) {
        let written = delays.call.saturating_sub(delays.written);
        let arguments = Value::Object(arguments).to_string();
        if self.native {
            self.written += name.len() + arguments.len();
            let function = json!({ "name": name, "arguments": arguments });
            let call = json!({
                "index": 0, "id": "call_1", "type": "function", "function": function,
            });
            self.push(written, json!({ "tool_calls": [call] }), None);
            return self.end(delays.call, "tool_calls");
        }
        self.write(written, &format!("<tool>{name} {arguments}"));
        self.write(delays.call, "</tool>");
        self.end(delays.call, "stop");
    }

    fn write(&mut self, at: Duration, text: &str) {
        self.written += text.len();
        self.push(at, json!({ "role": "assistant", "content": text }), None);
    }

    fn end(&mut self, at: Duration, reason: &'static str) {
        self.push(at, json!({}), Some(reason));
    }

    fn push(&mut self, at: Duration, delta: Value, finish: Option<&'static str>) {
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
        self.pieces.push(Piece {
            at,
            chunk: chunk(json!([choice])),
            called: None,
        });
    }

    /// Adds the last chunk, the token counts.
    fn usage(&mut self, read: usize) {
        let at = self.pieces.last().map_or(Duration::ZERO, |last| last.at);
        let (prompt, completion) = (read / TOKEN, self.written / TOKEN);
        let mut chunk = chunk(json!([]));
        chunk["usage"] = json!({
            "prompt_tokens": prompt, "completion_tokens": completion,
            "total_tokens": prompt + completion,
        });
        self.pieces.push(Piece {
            at,
            chunk,
            called: None,
        });
    }
}

fn chunk(choices: Value) -> Value {
    json!({
        "id": "chatcmpl-simulated", "object": "chat.completion.chunk", "created": 0,
        "model": MODEL, "choices": choices,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::LlmEvent;
    use crate::llm::markup::Parser;
    use crate::llm::untrusted::sanitise;

    fn asked(role: &str, content: &str, tools: Value) -> Asked {
        let message = json!({ "role": role, "content": content });
        let body = json!({ "stream": true, "messages": [message], "tools": tools });
        serde_json::from_value(body).unwrap()
    }

    fn does(role: &str, content: &str) -> Move {
        asked(role, content, json!([])).next_move()
    }

    fn call(name: &str, arguments: Value) -> Move {
        Move::Call(name.into(), arguments.as_object().cloned().unwrap())
    }

    #[test]
    fn the_last_message_decides() {
        let city = |name| call(FORECAST, json!({ "city": name }));
        assert_eq!(does("user", "What is the weather in Rome?"), city("Rome"));
        let noted = "<note>Today is Monday.</note>\nhow is the weather in rome";
        assert_eq!(does("user", noted), city("rome"));
        let other = call("get_stock", json!({ "colour": "light red", "count": 2 }));
        let words = "Call get_stock colour=light red, count = 2";
        assert_eq!(does("user", &sanitise(words)), other);
        assert_eq!(does("user", "call get_time"), call("get_time", json!({})));
        assert_eq!(
            does("user", "call get_stock colour=red, blue"),
            Move::Say(HINT)
        );
        assert_eq!(does("user", "call me a taxi"), Move::Say(HINT));
        assert_eq!(does("tool", "{}"), Move::Say(ANSWER));
        let result = r#"<tool_result name="get_forecast">{}</tool_result>"#;
        assert_eq!(does("user", result), Move::Say(ANSWER));
        assert_eq!(does("user", "hello"), Move::Say(HINT));
    }

    #[test]
    fn a_call_in_markup_is_written_before_it_is_closed() {
        let delays = Delays::default();
        let pieces = asked("user", super::super::WORDS, json!([])).answer(&delays);
        let mut parser = Parser::new();
        let mut events = Vec::new();
        for Piece { at, chunk, .. } in &pieces {
            if let Some(text) = chunk["choices"][0]["delta"]["content"].as_str() {
                events.extend(parser.push(text).into_iter().map(|event| (*at, event)));
            }
        }
        let at = |is: fn(&LlmEvent) -> bool| events.iter().find(|(_, event)| is(event)).unwrap().0;
        assert_eq!(
            Some(at(|event| matches!(event, LlmEvent::Speech { .. }))),
            delays.first
        );
        let whole = |event: &LlmEvent| matches!(event, LlmEvent::ToolRead { whole: true, .. });
        assert_eq!(at(whole), delays.call - delays.written);
        let closed = |event: &LlmEvent| matches!(event, LlmEvent::ToolClosed { arguments: Ok(_) });
        assert_eq!(at(closed), delays.call);
    }

    #[test]
    fn token_by_token_the_call_ends_with_its_last_token() {
        let delays = Delays {
            answer: Duration::from_millis(350),
            token: Some(Duration::from_millis(15)),
            ..Delays::default()
        };
        let pieces = asked("user", super::super::WORDS, json!([])).answer(&delays);
        let mut text = String::new();
        for piece in &pieces {
            let token = piece.chunk["choices"][0]["delta"]["content"].as_str();
            text += token.unwrap_or_default();
        }
        let call = r#"<tool>get_forecast(city="boulder")</tool>"#;
        assert_eq!(text, format!("<speech>{FILLER}</speech>{call}"));
        assert_eq!(pieces[0].at, delays.answer);
        let called: Vec<_> = pieces
            .iter()
            .filter(|piece| piece.called.is_some())
            .collect();
        assert_eq!(called[0].chunk["choices"][0]["delta"]["content"], "</tool>");
        assert_eq!(called.len(), 1);
        assert_eq!(called[0].at, Duration::from_millis(350 + 16 * 15));
    }

    #[test]
    fn a_request_with_tools_gets_native_calls() {
        let delays = Delays {
            first: None,
            ..Delays::default()
        };
        let tools = json!([{ "type": "function", "function": { "name": FORECAST } }]);
        let pieces = asked("user", super::super::WORDS, tools).answer(&delays);
        let [calls, end, usage] = &pieces[..] else {
            panic!("{pieces:#?}");
        };
        let function = &calls.chunk["choices"][0]["delta"]["tool_calls"][0]["function"];
        assert_eq!(function["name"], FORECAST);
        assert_eq!(function["arguments"], r#"{"city":"boulder"}"#);
        assert_eq!(end.chunk["choices"][0]["finish_reason"], "tool_calls");
        assert!(usage.chunk["usage"]["prompt_tokens"].as_u64() > Some(0));
    }
}
