//! The names of spans, events and attributes. Those that begin with `gen_ai.` are of OpenTelemetry's conventions for
//! generative AI, which are still in development: a change of theirs is a change of this file. For speech there are
//! no conventions; those names begin with `undertone.`.

use crate::llm::ModelId;

/// Names of spans. A generation and a tool have theirs from [`chat`] and [`tool`].
pub(super) const CONVERSATION: &str = "conversation";
pub(super) const TURN: &str = "turn";
pub(super) const VAD: &str = "vad";
pub(super) const ASR: &str = "asr";
pub(super) const END_OF_TURN: &str = "end_of_turn";
pub(super) const TTS: &str = "tts";

/// Names of events.
pub(super) const FIRST_TOKEN: &str = "first_token";
pub(super) const FIRST_AUDIO: &str = "first_audio";
pub(super) const PLAYOUT: &str = "playout";
pub(super) const COMMIT: &str = "commit";
pub(super) const TRANSCRIPT: &str = "transcript";
pub(super) const SCORE: &str = "score";
pub(super) const STAGE_FAILED: &str = "stage_failed";

/// Attributes of the GenAI conventions.
pub(super) const OPERATION: &str = "gen_ai.operation.name";
pub(super) const PROVIDER: &str = "gen_ai.provider.name";
pub(super) const CONVERSATION_ID: &str = "gen_ai.conversation.id";
pub(super) const AGENT: &str = "gen_ai.agent.name";
pub(super) const MODEL: &str = "gen_ai.request.model";
pub(super) const STREAM: &str = "gen_ai.request.stream";
pub(super) const FIRST_CHUNK: &str = "gen_ai.response.time_to_first_chunk";
pub(super) const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
pub(super) const CACHED_TOKENS: &str = "gen_ai.usage.cache_read.input_tokens";
pub(super) const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
pub(super) const REASONING_TOKENS: &str = "gen_ai.usage.reasoning.output_tokens";
pub(super) const OUTPUT_MESSAGES: &str = "gen_ai.output.messages";
pub(super) const TOOL: &str = "gen_ai.tool.name";
pub(super) const TOOL_TYPE: &str = "gen_ai.tool.type";
pub(super) const TOOL_CALL: &str = "gen_ai.tool.call.id";
pub(super) const TOOL_ARGUMENTS: &str = "gen_ai.tool.call.arguments";

/// Attributes of the general conventions.
pub(super) const ERROR: &str = "error.type";
pub(super) const SERVER: &str = "server.address";
pub(super) const PORT: &str = "server.port";
pub(super) const SERVICE_INSTANCE: &str = "service.instance.id";

/// Attributes of the conversation and of turns.
pub(super) const TRANSPORT: &str = "undertone.transport";
pub(super) const ENDED_BY: &str = "undertone.ended_by";
pub(super) const TURN_ID: &str = "undertone.turn.id";
pub(super) const STATUS: &str = "undertone.turn.status";
pub(super) const END_OF_TURN_MS: &str = "undertone.turn.end_of_turn_ms";
pub(super) const FIRST_AUDIO_MS: &str = "undertone.turn.first_audio_ms";
pub(super) const ANSWER_AUDIO_MS: &str = "undertone.turn.answer_audio_ms";
pub(super) const DEAD_AIR_MS: &str = "undertone.turn.dead_air_ms";
pub(super) const FILLERS: &str = "undertone.turn.fillers";
pub(super) const USER_WORDS: &str = "undertone.turn.user_words";

/// Attributes of stages.
pub(super) const PARTIAL: &str = "undertone.asr.partial";
pub(super) const HEARD_WORDS: &str = "undertone.asr.words";
pub(super) const PROBABILITY: &str = "undertone.end_of_turn.probability";
pub(super) const OUTCOME: &str = "undertone.outcome";
pub(super) const HELD_BEFORE: &str = "undertone.llm.held_before";
pub(super) const VOICE: &str = "undertone.tts.voice";
pub(super) const CHARACTERS: &str = "undertone.tts.characters";
pub(super) const SPOKEN_WORDS: &str = "undertone.tts.words";
pub(super) const STAGE: &str = "undertone.stage";

/// Attributes of tools.
pub(super) const RUN: &str = "undertone.tool.run";
pub(super) const SPECULATIVE: &str = "undertone.tool.speculative";
pub(super) const SOURCE: &str = "undertone.tool.source";
pub(super) const CONFIDENCE: &str = "undertone.tool.confidence";
pub(super) const FATE: &str = "undertone.tool.fate";
pub(super) const REASON: &str = "undertone.tool.discard_reason";
pub(super) const SAVED_MS: &str = "undertone.tool.saved_ms";
pub(super) const WASTED_MS: &str = "undertone.tool.wasted_ms";

/// Values of [`OPERATION`].
pub(super) const CHAT: &str = "chat";
pub(super) const EXECUTE_TOOL: &str = "execute_tool";
pub(super) const INVOKE_AGENT: &str = "invoke_agent";

/// The value of [`TOOL_TYPE`].
pub(super) const FUNCTION: &str = "function";

/// The providers that the conventions name, by the ends of their servers' names.
const PROVIDERS: [(&str, &str); 9] = [
    ("openai.com", "openai"),
    ("openai.azure.com", "azure.ai.openai"),
    ("anthropic.com", "anthropic"),
    ("groq.com", "groq"),
    ("deepseek.com", "deepseek"),
    ("mistral.ai", "mistral_ai"),
    ("perplexity.ai", "perplexity"),
    ("x.ai", "x_ai"),
    ("generativelanguage.googleapis.com", "gcp.gemini"),
];

/// The name of a generation's span.
pub(super) fn chat(model: &str) -> String {
    format!("{CHAT} {model}")
}

/// The name of a tool's span.
pub(super) fn tool(name: &str) -> String {
    format!("{EXECUTE_TOOL} {name}")
}

/// The provider of a model. A server that is none of the known ones is named after its dialect.
pub(super) fn provider(model: &ModelId) -> &str {
    let host = model.server.as_ref().map_or("", |(host, _)| host.as_str());
    let known = PROVIDERS.iter().find(|(end, _)| {
        let rest = host.strip_suffix(end);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    });
    known.map_or(model.dialect, |(_, provider)| provider)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_is_named_by_its_server_and_otherwise_by_its_dialect() {
        let model = |dialect, host: &str| ModelId {
            dialect,
            server: Some((host.to_owned(), 443)),
            name: "m".into(),
        };
        assert_eq!(provider(&model("openai", "api.groq.com")), "groq");
        assert_eq!(provider(&model("openai", "x.ai")), "x_ai");
        assert_eq!(provider(&model("openai", "vertex.ai")), "openai");
        assert_eq!(provider(&model("anthropic", "127.0.0.1")), "anthropic");
    }
}
