//! The streams of language models' servers as functions of their bytes, for [`crate::fuzzing`].

use super::remote::{Protocol, Settings};
use super::{LlmEvent, anthropic, http, openai_compatible};

/// A stream of chat completions.
pub(crate) fn openai_compatible(bytes: &[u8]) {
    read(&openai_compatible::ChatCompletions, bytes);
}

/// A stream of Anthropic's Messages.
pub(crate) fn anthropic(bytes: &[u8]) {
    read(&anthropic::Messages, bytes);
}

/// Reads a stream in pieces as short as its first byte says; an answer ends once.
fn read(protocol: &dyn Protocol, bytes: &[u8]) {
    let (first, bytes) = bytes.split_first().unwrap_or((&0, &[]));
    let url = "http://127.0.0.1/v1".parse().expect("a URL");
    let settings = Settings {
        thinks_first: first % 2 == 1,
        ..Settings::new(url, "m")
    };
    let tools = vec!["get_weather".to_owned(), "book".to_owned()];
    let mut reader = protocol.reader(&settings, tools);
    let mut ends = 0;
    for data in http::data_of(bytes, usize::from(*first).max(1)) {
        protocol.look(&data);
        let (events, error) = reader.message(&data);
        ends += events
            .iter()
            .filter(|event| **event == LlmEvent::End)
            .count();
        if error.is_some() || ends > 0 {
            break;
        }
    }
    reader.blocks();
    if ends == 0 {
        reader.end_of_stream();
    }
    assert!(ends <= 1, "it ends {ends} times");
    if let Ok(text) = std::str::from_utf8(bytes) {
        protocol.answer_in(text);
    }
}
