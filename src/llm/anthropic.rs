//! Any server that speaks Anthropic's `/v1/messages` with `"stream": true`: Anthropic, llama.cpp's server, Ollama,
//! vLLM, LM Studio.
//!
//! The model calls tools in markup or natively, as with chat completions. The history comes from the same
//! [`Prompts`](super::Prompts); `request.rs` gives it the shape of this dialect.

mod request;
mod wire;

use super::Prompt;
use super::http::Headers;
use super::opaque::Blocks;
use super::prompt::ChatMessage;
use super::remote::{Look, Protocol, Reader, Settings, Takes, Vocabulary};
use crate::backend::KeyForm;
use serde_json::{Map, Value};
use wire::Decoder;

/// The dialect of Anthropic's Messages.
pub(super) struct Messages;

impl Protocol for Messages {
    fn name(&self) -> &'static str {
        "anthropic"
    }

    fn path(&self) -> &'static str {
        "messages"
    }

    fn headers(&self) -> Headers {
        Headers {
            key: KeyForm::Header("x-api-key"),
            fixed: &[("anthropic-version", "2023-06-01")],
        }
    }

    fn vocabulary(&self) -> &'static Vocabulary {
        &request::VOCABULARY
    }

    fn body(
        &self,
        settings: &Settings,
        prompt: &Prompt,
        messages: &[ChatMessage],
        takes: &Takes,
        blocks: &Blocks,
    ) -> Map<String, Value> {
        request::body(settings, prompt, messages, takes, blocks)
    }

    fn reader(&self, settings: &Settings, tools: Vec<String>) -> Box<dyn Reader> {
        Box::new(Decoder::new(settings.thinks_first, tools))
    }

    fn look(&self, data: &str) -> Look {
        wire::look(data)
    }

    fn answer_in(&self, _refusal: &str) -> Option<String> {
        None
    }
}
