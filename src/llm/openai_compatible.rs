//! Any server that speaks `/v1/chat/completions` with `"stream": true`: OpenAI, Groq, OpenRouter,
//! vLLM, llama.cpp's server, Ollama, LM Studio.
//!
//! The model writes its calls in markup, which [`crate::llm::markup`] parses, or as native `tool_calls`, as the
//! settings say. Both give the same events.

mod details;
mod request;
mod wire;

use super::Prompt;
use super::http::Headers;
use super::opaque::Blocks;
use super::prompt::ChatMessage;
use super::remote::{Look, Protocol, Reader, Settings, Takes, Vocabulary};
use serde_json::{Map, Value};
use wire::Decoder;

/// The dialect of OpenAI's chat completions.
pub(super) struct ChatCompletions;

impl Protocol for ChatCompletions {
    fn name(&self) -> &'static str {
        "openai-compatible"
    }

    fn path(&self) -> &'static str {
        "chat/completions"
    }

    fn headers(&self) -> Headers {
        Headers::BEARER
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
        let mut messages = messages.to_vec();
        blocks
            .of_session(prompt.demands.session)
            .attach(&mut messages);
        request::fit(&mut messages, takes);
        request::body(settings, prompt, &messages, takes)
    }

    fn reader(&self, settings: &Settings, tools: Vec<String>) -> Box<dyn Reader> {
        let decoder = Decoder::new(settings.thinks_first, tools);
        Box::new(decoder.with_tool_cache(settings.tool_cache))
    }

    fn look(&self, data: &str) -> Look {
        wire::look(data)
    }

    fn answer_in(&self, refusal: &str) -> Option<String> {
        wire::failed_generation(refusal)
    }
}
