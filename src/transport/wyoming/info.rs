//! The server's description for clients: one service each for recognition, synthesis and
//! conversation.

use serde_json::{Value, json};

/// The language of the recogniser, of text normalisation, and of the prepared phrases.
pub(super) const LANGUAGE: &str = "en";

/// The answer to `describe`. `voice` is the voice's name.
pub(super) fn info(voice: &str) -> Value {
    let whisper = artifact(
        "whisper",
        "Whisper",
        ["OpenAI", "https://github.com/openai/whisper"],
    );
    let voice = artifact(voice, voice, ["Piper", "https://github.com/rhasspy/piper"]);
    let agent = artifact("undertone", "undertone's agent", OURS);
    let mut speaking = program("undertone's voice", "voices", voice);
    speaking["supports_synthesize_streaming"] = json!(true);
    json!({
        "asr": [program("undertone's speech recognition", "models", whisper)],
        "tts": [speaking],
        "handle": [program("undertone's agent and its tools", "models", agent)],
        "intent": [],
        "wake": [],
        "mic": [],
        "snd": [],
    })
}

const OURS: [&str; 2] = ["undertone", ""];

/// A model or service, with its maker and the maker's URL.
fn artifact(name: &str, description: &str, [maker, url]: [&str; 2]) -> Value {
    json!({
        "name": name,
        "description": description,
        "attribution": {"name": maker, "url": url},
        "installed": true,
        "version": null,
        "languages": [LANGUAGE],
    })
}

/// A service with its only model in `list`. Home Assistant names its entities after the service.
fn program(description: &str, list: &str, model: Value) -> Value {
    let mut program = artifact("undertone", description, OURS);
    program["version"] = json!(env!("CARGO_PKG_VERSION"));
    program[list] = json!([model]);
    program
}
