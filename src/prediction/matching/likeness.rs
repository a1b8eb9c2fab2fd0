//! How near words are to a tool, and how likely they ask for it.

use crate::language::en::mood::Mood;

/// The similarity at which a request is as likely as not, if the tool's arguments were said. Measured on the
/// tuned half of `tests/parts/newcomers.toml` against 1,300 sentences of CLINC150: 97 % of the requests lie
/// above, 1.5 % of the others; most of those lack an argument.
const EVEN: f32 = 0.45;
/// That similarity if an argument was said that few other sentences have: a listed value, or a code with letters.
const EVEN_TELLING: f32 = 0.4;
/// That similarity for a tool that requires no argument: nothing else speaks for it.
const EVEN_BARE: f32 = 0.55;
/// How fast certainty grows with similarity.
const STEEPNESS: f32 = 14.0;
/// The greatest confidence.
const MOST: f32 = 0.9;
/// Factor if another tool, or talk that asks for nothing, is as near.
const RIVALLED: f32 = 0.5;
/// Factor for words without a verb.
const BARE_WORDS: f32 = 0.85;
/// Factor for words without a verb while the user goes on: "order 12" may become "order 12 came yesterday".
const UNFINISHED: f32 = 0.5;
/// Factor for words that report something.
pub(in crate::prediction) const TOLD: f32 = 0.2;

/// Evidence for the tool from the arguments that were said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    /// It requires none.
    NoneRequired,
    /// Required ones were said.
    Some,
    /// One of them is rare in other sentences.
    Telling,
}

/// Similarities, -1..1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Likeness {
    /// To the tool's nearest example, its description or its name.
    pub near: f32,
    /// To the nearest sentence that asks for nothing.
    pub nothing: f32,
    /// To the nearest other tool.
    pub other: f32,
}

impl Likeness {
    /// The confidence that words of this mood ask for the tool, 0..1.
    pub(super) fn confidence(self, said: Said, mood: Mood, paused: bool) -> f32 {
        let even = match said {
            Said::Telling => EVEN_TELLING,
            Said::Some => EVEN,
            Said::NoneRequired => EVEN_BARE,
        };
        let sure = MOST / (1.0 + (-STEEPNESS * (self.near - even)).exp());
        let rivalled = self.other >= self.near || self.nothing >= self.near;
        let by_mood = match mood {
            Mood::Question | Mood::Request => 1.0,
            Mood::Fragment if paused => BARE_WORDS,
            Mood::Fragment => UNFINISHED,
            Mood::Statement => TOLD,
        };
        sure * by_mood * if rivalled { RIVALLED } else { 1.0 }
    }
}
