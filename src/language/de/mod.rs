//! German.

mod numbers;
mod one;
mod ordinals;
mod requests;
mod spoken;
mod words;

use super::Pack;

/// German.
pub(super) static PACK: Pack = Pack {
    tag: "de",
    name: "German",
    hello: "Hallo, wie kann ich Ihnen helfen?",
    recorded: "Dieses Gespräch wird aufgezeichnet.",
    phrases: include_str!("phrases.toml"),
    sentences: &words::SENTENCES,
    wording: Some(&requests::WORDING),
    listening: &words::LISTENING,
    agrees: |text| words::ASSENT.read(text, None) == super::Reply::Yes,
    reply: |text, asked| words::ASSENT.read(text, Some(asked.question)),
    finished: super::endings::finished,
    filler: |clause| words::FILLERS.classify(clause),
    normalise: numbers::normalise,
    question: |tool, arguments| match arguments {
        "" => format!("Soll ich das tun: {tool}?"),
        arguments => format!("Soll ich das tun: {tool}, mit {arguments}?"),
    },
    spoken: spoken::phrases,
};

#[cfg(test)]
mod tests;
