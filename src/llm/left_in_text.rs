//! Calls that a server has left in the text before or after a native call, in every dialect that has such calls.

use super::LlmEvent;
use super::markup::Parser;
use super::native_call::MAX_CALLS;
use serde_json::{Map, Value};

/// The calls that the text before the native ones has made. The same call behind them, made natively, is no other.
#[derive(Debug, Default)]
pub(super) struct MadeInText {
    /// The name of the call that is open.
    open: String,
    calls: Vec<(String, Map<String, Value>)>,
}

impl MadeInText {
    /// Notes the calls among what was read from the text, and passes it on.
    pub(super) fn noted(&mut self, read: Vec<LlmEvent>) -> Vec<LlmEvent> {
        for event in &read {
            match event {
                LlmEvent::ToolOpened { name } => self.open.clone_from(name),
                LlmEvent::ToolClosed { arguments: Ok(map) } => {
                    self.calls
                        .push((std::mem::take(&mut self.open), map.clone()));
                }
                _ => {}
            }
        }
        read
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Whether this native call is one of them, or may be if its arguments could not be read.
    pub(super) fn has(&self, name: &str, arguments: &Result<Map<String, Value>, String>) -> bool {
        let is_it = |given| {
            arguments
                .as_ref()
                .map_or(true, |arguments| arguments == given)
        };
        let mut calls = self.calls.iter();
        calls.any(|(tool, given)| tool == name && is_it(given))
    }
}

/// Reads the text after a native call. Its words are never spoken: they were written before the result was known.
#[derive(Debug, Default)]
pub(super) struct LeftInText {
    parser: Parser,
    /// The names of the offered tools.
    tools: Vec<String>,
    /// The native calls of the answer.
    native: Vec<(String, Map<String, Value>)>,
    /// The events of complete calls, which wait until the native ones are closed: calls do not nest.
    complete: Vec<LlmEvent>,
    calls: usize,
    /// The events of the call that is open.
    open: Vec<LlmEvent>,
}

impl LeftInText {
    /// A reader for an answer in which these tools are offered.
    pub(super) fn new(tools: Vec<String>) -> Self {
        Self {
            parser: Parser::default().tools(tools.clone()),
            tools,
            ..Self::default()
        }
    }

    /// Notes a native call. The same call in the text is a leak of it, not another call.
    pub(super) fn has_native(&mut self, name: &str, arguments: &Map<String, Value>) {
        self.native.push((name.to_owned(), arguments.clone()));
    }

    /// Reads a piece of the text.
    pub(super) fn push(&mut self, text: &str) {
        let events = self.parser.push(text);
        self.keep(events);
    }

    /// Ends the answer and returns the events of the calls. A call at its end counts only if the answer is `whole`.
    pub(super) fn finish(&mut self, whole: bool) -> Vec<LlmEvent> {
        let events = match whole {
            true => self.parser.finish_whole(),
            false => self.parser.finish(),
        };
        self.keep(events);
        std::mem::take(&mut self.complete)
    }

    fn keep(&mut self, events: Vec<LlmEvent>) {
        for event in events {
            match event {
                LlmEvent::ToolOpened { .. } => self.open = vec![event],
                LlmEvent::ToolArguments { .. } => self.open.push(event),
                LlmEvent::ToolClosed { arguments } => self.close(arguments),
                _ => {}
            }
        }
    }

    fn close(&mut self, arguments: Result<Map<String, Value>, String>) {
        let mut events = std::mem::take(&mut self.open);
        let Some(LlmEvent::ToolOpened { name }) = events.first() else {
            return;
        };
        let name = name.clone();
        let is_leak = |map: &Map<String, Value>| {
            let same = |(tool, given): &(String, Map<String, Value>)| *tool == name && given == map;
            self.native.iter().any(same)
        };
        if self.native.len() + self.calls >= MAX_CALLS || arguments.as_ref().is_ok_and(is_leak) {
            return;
        }
        let arguments = arguments.and_then(|map| match self.tools.contains(&name) {
            true => Ok(map),
            false => Err("no tool of this name is offered".to_owned()),
        });
        match &arguments {
            Ok(_) => tracing::info!(
                tool = name,
                "a call was left in the text after a native call"
            ),
            Err(reason) => {
                // Both are words of the model.
                tracing::debug!(name, reason);
                tracing::warn!("refused a call that was left in the text after a native call");
            }
        }
        self.calls += 1;
        events.push(LlmEvent::ToolClosed { arguments });
        self.complete.append(&mut events);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn reader() -> LeftInText {
        LeftInText::new(vec!["weather".into(), "news".into()])
    }

    fn read(mut reader: LeftInText, text: &str, whole: bool) -> Vec<(String, Option<Value>)> {
        for c in text.chars() {
            reader.push(c.encode_utf8(&mut [0; 4]));
        }
        let (mut open, mut calls) = (String::new(), Vec::new());
        for event in reader.finish(whole) {
            match event {
                LlmEvent::ToolOpened { name } => open = name,
                LlmEvent::ToolArguments { .. } => {}
                LlmEvent::ToolClosed { arguments } => {
                    calls.push((open.clone(), arguments.ok().map(Value::Object)));
                }
                other => panic!("{other:?}"),
            }
        }
        calls
    }

    #[test]
    fn words_are_dropped_and_whole_calls_of_any_form_are_kept() {
        let text = "All right. <tool_call>{\"name\": \"news\", \"arguments\": {}}</tool_call> Done. \
                    [TOOL_CALLS][{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}]";
        let calls = [
            ("news".to_owned(), Some(json!({}))),
            ("weather".to_owned(), Some(json!({"city": "Rome"}))),
        ];
        assert_eq!(read(reader(), text, true), calls);
        assert!(read(reader(), "It is sunny, and there is no news.", true).is_empty());
    }

    #[test]
    fn what_is_cut_or_unknown_is_refused() {
        let cut = "<tool_call>{\"name\": \"news\", \"argum";
        assert!(
            read(reader(), cut, true)
                .iter()
                .all(|(_, call)| call.is_none())
        );
        let unknown = "<tool>erase(all=true)</tool>";
        assert_eq!(read(reader(), unknown, true), [("erase".to_owned(), None)]);
    }

    #[test]
    fn a_leak_of_the_native_call_is_no_second_call() {
        let mut reader = reader();
        let rome = json!({"city": "Rome"});
        reader.has_native("weather", rome.as_object().unwrap());
        let text = "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}</tool_call>\
                    <tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}</tool_call>";
        let oslo = ("weather".to_owned(), Some(json!({"city": "Oslo"})));
        assert_eq!(read(reader, text, true), [oslo]);
    }

    #[test]
    fn calls_are_bounded() {
        let text = "<tool>news()</tool>".repeat(3 * MAX_CALLS);
        assert_eq!(read(reader(), &text, true).len(), MAX_CALLS);
    }
}
