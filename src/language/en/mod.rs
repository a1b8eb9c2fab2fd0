//! English.

pub(crate) mod assent;
pub mod dates;
pub(crate) mod durations;
pub mod endings;
pub mod expression;
pub(crate) mod factuality;
mod fillers;
pub(crate) mod listening;
pub(crate) mod money;
pub(crate) mod mood;
pub mod numbers;
pub mod places;
pub(crate) mod rule_syntax;
mod sentences;
pub mod slots;
pub(crate) mod sounds;
pub(crate) mod spoken;
pub(crate) mod subject;
pub mod text;
pub mod units;

use super::Pack;
use super::sentences::Sentences;

/// English.
pub(super) static PACK: Pack = Pack {
    tag: super::ENGLISH,
    name: "English",
    hello: "Hello, how can I help you?",
    recorded: "This call is recorded.",
    phrases: include_str!("../../../prompts/phrases.toml"),
    sentences: &SENTENCES,
    wording: None,
    listening: &listening::LISTENING,
    agrees: assent::agrees,
    reply: assent::reply,
    finished: |text, marks| Some(endings::finished(text, marks)),
    filler: fillers::classify,
    normalise: text::normalise,
    question,
    spoken: spoken::phrases,
};

pub(super) static SENTENCES: Sentences = sentences::SENTENCES;

/// "Shall I set timer with seconds 300?"
pub(super) fn question(tool: &str, arguments: &str) -> String {
    let with = if arguments.is_empty() { "" } else { " with " };
    format!("Shall I {tool}{with}{arguments}?")
}
