//! Spanish.

mod numbers;
mod one;
mod requests;
mod spoken;
mod words;

use super::Pack;

/// Spanish.
pub(super) static PACK: Pack = Pack {
    tag: "es",
    name: "Spanish",
    hello: "Hola, ¿en qué puedo ayudarle?",
    recorded: "Esta llamada se está grabando.",
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
        "" => format!("¿Quiere que haga esto: {tool}?"),
        arguments => format!("¿Quiere que haga esto: {tool}, con {arguments}?"),
    },
    spoken: spoken::phrases,
};

#[cfg(test)]
mod tests;
