//! The server's description for clients: one service each for recognition, synthesis and
//! conversation.

use crate::language::{ENGLISH, packs};
use crate::session::Engines;
use serde_json::{Value, json};

/// The answer to `describe`.
pub(super) fn info(engines: &Engines) -> Value {
    let whisper = artifact(
        "whisper",
        "Whisper",
        ["OpenAI", "https://github.com/openai/whisper"],
        engines.heard_languages(),
    );
    let agent = artifact("undertone", "undertone's agent", OURS, &answered(engines));
    let mut speaking = program("undertone's voice", "voices", voices(engines));
    speaking["supports_synthesize_streaming"] = json!(true);
    json!({
        "asr": [program("undertone's speech recognition", "models", vec![whisper])],
        "tts": [speaking],
        "handle": [program("undertone's agent and its tools", "models", vec![agent])],
        "intent": [],
        "wake": [],
        "mic": [],
        "snd": [],
    })
}

/// The languages that the agent speaks, that of the server first.
pub(super) fn answered(engines: &Engines) -> Vec<String> {
    let mut languages = engines.languages();
    for pack in packs() {
        if !languages.iter().any(|known| known == pack.tag) {
            languages.push(pack.tag.to_owned());
        }
    }
    languages
}

/// The local voices. Those of espeak-ng that only stand in are shown for the server's languages: Home Assistant may
/// take the first language of all voices for what is to be said.
fn voices(engines: &Engines) -> Vec<Value> {
    let shown = engines.languages();
    let voices = engines.local_voices().filter(|voice| {
        let stands_in = voice.speaker.language.is_some();
        let is_shown = |language| shown.iter().any(|known| known == language);
        !stands_in || voice.language.is_some_and(is_shown)
    });
    let voices = voices.map(|voice| {
        let maker = match voice.speaker.language {
            Some(_) => ["espeak-ng", "https://github.com/espeak-ng/espeak-ng"],
            None if voice.engine.starts_with("kokoro") => {
                ["Kokoro", "https://huggingface.co/hexgrad/Kokoro-82M"]
            }
            None => ["Piper", "https://github.com/rhasspy/piper"],
        };
        let language = voice.language.unwrap_or(ENGLISH).to_owned();
        artifact(voice.name, voice.name, maker, &[language])
    });
    voices.collect()
}

const OURS: [&str; 2] = ["undertone", ""];

/// A model or service, with its maker and the maker's URL.
fn artifact(name: &str, description: &str, [maker, url]: [&str; 2], languages: &[String]) -> Value {
    json!({
        "name": name,
        "description": description,
        "attribution": {"name": maker, "url": url},
        "installed": true,
        "version": null,
        "languages": languages,
    })
}

/// A service with its models in `list`. Home Assistant names its entities after the service.
fn program(description: &str, list: &str, models: Vec<Value>) -> Value {
    let mut program = artifact("undertone", description, OURS, &[]);
    program["version"] = json!(env!("CARGO_PKG_VERSION"));
    program[list] = json!(models);
    program
}
