//! Chat completions as SmolLM2 reads them: ChatML, with the tools in the system prompt.

use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The marks before and after a call in the model's text.
pub const CALL: (&str, &str) = ("<tool_call>", "</tool_call>");

/// The longest answer, tokens, if the request does not say.
const MAX_TOKENS: u32 = 256;

/// A request for an answer.
#[derive(Debug, Clone, Deserialize)]
pub struct ChatRequest {
    /// The conversation, oldest first.
    pub messages: Vec<Message>,
    /// The tools that may be called.
    #[serde(default)]
    pub tools: Vec<Tool>,
    /// `"auto"`, `"none"`, `"required"`, or the tool that must be called first.
    #[serde(default)]
    pub tool_choice: Value,
    /// The most tokens of a round: of a call with the words before it, or of the answer to it.
    #[serde(default, alias = "max_completion_tokens")]
    pub max_tokens: Option<u32>,
    /// Only 0 is possible.
    #[serde(default)]
    pub temperature: Option<f64>,
    /// Stream the answer.
    #[serde(default)]
    pub stream: bool,
    /// So many rounds of calls after the user's last message are forced; after them come plain words. Not in
    /// OpenAI's protocol: small models seldom call tools by themselves.
    #[serde(default)]
    pub forced_calls: Option<usize>,
}

/// A message.
#[derive(Debug, Clone, Deserialize)]
pub struct Message {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// The words.
    #[serde(default)]
    pub content: Option<String>,
    /// The calls of an assistant's message.
    #[serde(default)]
    pub tool_calls: Vec<ToolCall>,
}

/// A call in a message.
#[derive(Debug, Clone, Deserialize)]
pub struct ToolCall {
    /// The tool and its arguments.
    pub function: Function,
}

/// A tool and its arguments.
#[derive(Debug, Clone, Deserialize)]
pub struct Function {
    /// The tool's name.
    pub name: String,
    /// The arguments as JSON.
    pub arguments: String,
}

/// A tool that is offered.
#[derive(Debug, Clone, Deserialize)]
pub struct Tool {
    /// Its declaration.
    pub function: Declaration,
}

/// The declaration of a tool.
#[derive(Debug, Clone, Deserialize)]
pub struct Declaration {
    /// Its name.
    pub name: String,
    /// Its description, for the model.
    #[serde(default)]
    pub description: String,
    /// The JSON Schema of its arguments.
    #[serde(default)]
    pub parameters: Value,
}

/// The kind of text that the model may write next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// A call of one of these tools, by index, and nothing before it.
    Call(Vec<usize>),
    /// Words, and a call behind them if the model likes.
    Free,
    /// Words.
    Words,
}

/// A piece of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// A mark of the template, which is one token.
    Mark(&'static str),
    /// Text, in which marks mean nothing.
    Text(String),
}

impl ChatRequest {
    /// The first fault of the request; `None` if it can be answered.
    pub fn fault(&self) -> Option<&'static str> {
        if self.messages.is_empty() {
            Some("messages is empty")
        } else if self.temperature.is_some_and(|t| t != 0.0) {
            Some("temperature: this engine takes the likeliest token, so only 0 is possible")
        } else {
            None
        }
    }

    /// The longest answer, tokens.
    pub fn limit(&self) -> usize {
        self.max_tokens.unwrap_or(MAX_TOKENS) as usize
    }

    /// The kind of text that the model may write after the messages. A forced call is of a tool that was not called
    /// since the user's last message, if there is one.
    pub fn next(&self) -> Next {
        let last = self.messages.iter().rposition(|m| m.role == "user");
        let since = &self.messages[last.map_or(0, |at| at + 1)..];
        let rounds = since.iter().filter(|m| !m.tool_calls.is_empty()).count();
        let called: Vec<&str> = since
            .iter()
            .flat_map(|message| &message.tool_calls)
            .map(|call| call.function.name.as_str())
            .collect();
        let chosen = self.tool_choice["function"]["name"].as_str();
        let fits = |at: &usize| chosen.is_none_or(|name| self.tools[*at].function.name == name);
        let all: Vec<usize> = (0..self.tools.len()).filter(fits).collect();
        let is_new = |at: &&usize| !called.contains(&self.tools[**at].function.name.as_str());
        let new: Vec<usize> = all.iter().filter(is_new).copied().collect();
        let is_forced = match self.forced_calls {
            Some(forced) => rounds < forced,
            None => rounds == 0 && (chosen.is_some() || self.tool_choice == "required"),
        };
        if self.tools.is_empty() || self.tool_choice == "none" {
            Next::Words
        } else if is_forced {
            Next::Call(if new.is_empty() { all } else { new })
        } else if self.forced_calls.is_some() {
            Next::Words
        } else {
            Next::Free
        }
    }

    /// The prompt.
    pub fn prompt(&self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut messages = self.messages.as_slice();
        let mut system = String::from("You are a helpful assistant.");
        if let [first, rest @ ..] = messages
            && first.role == "system"
        {
            system = first.content.clone().unwrap_or_default();
            messages = rest;
        }
        system.push_str(&self.tools_text());
        add(&mut pieces, "system", system);
        for message in messages {
            let mut text = message.content.clone().unwrap_or_default();
            for call in &message.tool_calls {
                let arguments = serde_json::from_str(&call.function.arguments);
                text.push_str(&call_text(
                    &call.function.name,
                    &arguments.unwrap_or_default(),
                ));
            }
            add(&mut pieces, &message.role, text);
        }
        pieces.push(Piece::Mark("<|im_start|>"));
        pieces.push(Piece::Text("assistant\n".into()));
        pieces
    }

    fn tools_text(&self) -> String {
        if self.tools.is_empty() {
            return String::new();
        }
        let mut text = String::from("\n\nYou may call these tools:\n");
        for Tool { function } in &self.tools {
            let tool = json!({
                "name": function.name, "description": function.description,
                "parameters": function.parameters,
            });
            text.push_str(&format!("{tool}\n"));
        }
        let example = Map::from_iter([("argument".to_owned(), json!("value"))]);
        let example = call_text("name", &example);
        text.push_str(&format!("To call one, write {example} and nothing else."));
        text
    }

    /// Adds a call of the model, with the words before it, and its result.
    pub fn add_call(
        &mut self,
        words: &str,
        (name, arguments): (&str, &Map<String, Value>),
        output: String,
    ) {
        let function = Function {
            name: name.to_owned(),
            arguments: Value::Object(arguments.clone()).to_string(),
        };
        self.messages.push(Message {
            role: "assistant".into(),
            content: Some(words.to_owned()),
            tool_calls: vec![ToolCall { function }],
        });
        self.messages.push(Message {
            role: "tool".into(),
            content: Some(output),
            tool_calls: Vec::new(),
        });
    }
}

fn add(pieces: &mut Vec<Piece>, role: &str, text: String) {
    pieces.push(Piece::Mark("<|im_start|>"));
    pieces.push(Piece::Text(format!("{role}\n{text}")));
    pieces.push(Piece::Mark("<|im_end|>"));
    pieces.push(Piece::Text("\n".into()));
}

/// A call as the model writes it.
pub fn call_text(name: &str, arguments: &Map<String, Value>) -> String {
    let call = json!({"name": name, "arguments": arguments});
    format!("{}{call}{}", CALL.0, CALL.1)
}

/// The call in a text between the marks.
pub fn read_call(text: &str) -> Option<(String, Map<String, Value>)> {
    let mut call: Map<String, Value> = serde_json::from_str(text).ok()?;
    let name = call.get("name")?.as_str()?.to_owned();
    match call.remove("arguments") {
        Some(Value::Object(arguments)) => Some((name, arguments)),
        None => Some((name, Map::new())),
        Some(_) => None,
    }
}

/// The name in the beginning of a call, once it is complete.
pub fn name_in(text: &str) -> Option<&str> {
    let rest = text.trim_start().strip_prefix('{')?.trim_start();
    let rest = rest.strip_prefix("\"name\"")?.trim_start();
    let rest = rest.strip_prefix(':')?.trim_start();
    let (name, _) = rest.strip_prefix('"')?.split_once('"')?;
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(value: Value) -> ChatRequest {
        serde_json::from_value(value).unwrap()
    }

    fn tools() -> Value {
        json!([
            {"type": "function", "function": {"name": "clock", "parameters": {"type": "object"}}},
            {"type": "function", "function": {"name": "weather"}},
        ])
    }

    #[test]
    fn an_answer_that_goes_on_has_the_prompt_of_the_next_request() {
        let question = json!({"role": "user", "content": "How late is it?"});
        let mut first = request(json!({"messages": [question], "tools": tools()}));
        let arguments = json!({"zone": "UTC"}).as_object().cloned().unwrap();
        first.add_call("Well. ", ("clock", &arguments), "noon".into());
        let call = json!({"id": "c", "type": "function", "function": {
            "name": "clock", "arguments": "{\"zone\": \"UTC\"}"}});
        let messages = json!([
            question,
            {"role": "assistant", "content": "Well. ", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "noon"},
        ]);
        let second = request(json!({"messages": messages, "tools": tools()}));
        assert_eq!(first.prompt(), second.prompt());
    }

    #[test]
    fn calls_are_forced_as_often_as_was_asked_for() {
        let asked = json!([{"role": "user", "content": "Go."}]);
        let base = json!({"messages": asked, "tools": tools()});
        let with = |key: &str, value: Value| {
            let mut base = base.clone();
            base[key] = value;
            request(base)
        };
        assert_eq!(request(base.clone()).next(), Next::Free);
        assert_eq!(with("tool_choice", json!("none")).next(), Next::Words);
        let mut required = with("tool_choice", json!("required"));
        assert_eq!(required.next(), Next::Call(vec![0, 1]));
        required.add_call("", ("clock", &Map::new()), String::new());
        assert_eq!(required.next(), Next::Free);
        let one = json!({"type": "function", "function": {"name": "weather"}});
        assert_eq!(with("tool_choice", one).next(), Next::Call(vec![1]));
        let mut forced = with("forced_calls", json!(2));
        assert_eq!(forced.next(), Next::Call(vec![0, 1]));
        forced.add_call("", ("clock", &Map::new()), String::new());
        assert_eq!(forced.next(), Next::Call(vec![1]));
        forced.add_call("", ("weather", &Map::new()), String::new());
        assert_eq!(forced.next(), Next::Words);
    }

    #[test]
    fn calls_are_read_back_as_they_were_written() {
        let arguments = json!({"city": "Boulder"}).as_object().cloned().unwrap();
        let text = call_text("weather", &arguments);
        let text = text.strip_prefix(CALL.0).unwrap();
        let text = text.strip_suffix(CALL.1).unwrap();
        assert_eq!(read_call(text), Some(("weather".into(), arguments)));
        assert_eq!(name_in(&text[..15]), None);
        assert_eq!(name_in(&text[..17]), Some("weather"));
        assert_eq!(read_call("{\"name\": 1}"), None);
    }
}
