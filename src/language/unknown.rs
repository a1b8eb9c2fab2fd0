//! Languages without a pack: no word decides anything, and text is spoken as it is written.

use super::Pack;
use super::en;
use super::en::assent::Reply;
use super::listening::Listening;
use super::sentences::Sentences;
use super::spoken::cut;

/// Any language without a pack. Its fixed phrases are the English ones, unless the operator names others.
pub(super) static PACK: Pack = Pack {
    tag: "und",
    name: "",
    hello: "Hello, how can I help you?",
    recorded: "This call is recorded.",
    phrases: include_str!("../../prompts/phrases.toml"),
    sentences: &SENTENCES,
    wording: None,
    listening: &LISTENING,
    agrees: |_| false,
    reply: |_, _| Reply::Other,
    finished: |_, _| None,
    filler: |_| None,
    normalise: plain,
    question: en::question,
    spoken: cut,
};

static SENTENCES: Sentences = Sentences {
    conjunctions: &[],
    always_go_on: &[],
    may_go_on: &[],
    leading_on: &[],
    ends_a_question: &[],
    opens_a_question: [&[]; 3],
    ordinal_dots: false,
    scales: &[],
    beginnings: &[],
};

/// Only sounds such as "mm-hm" count.
static LISTENING: Listening = Listening {
    words: &[],
    polite: &[],
    pardon: &[],
    openers: &[],
};

/// In lower case, without marks.
pub(super) fn plain(text: &str) -> String {
    let kept = text
        .to_lowercase()
        .replace(|c: char| !(c.is_alphanumeric() || c == '\''), " ");
    kept.split_whitespace().collect::<Vec<_>>().join(" ")
}
