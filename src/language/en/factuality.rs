//! Finds requests that are negated, in the past, or hypothetical.

use super::mood;
use regex::Regex;
use serde::{Deserialize, Serialize};
use std::sync::LazyLock;

/// Confidence factor of a negated request.
const NEGATED: f32 = 0.3;
/// Confidence factor if the user speaks of the past and the tool has no date argument.
const PAST: f32 = 0.25;
/// Confidence factor if the request is hypothetical, reported, or about how to do something.
const HYPOTHETICAL: f32 = 0.4;
/// The share of an intent's examples above which a sign is part of the intent.
const MEANT: f32 = 0.05;

static NEGATION: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"\b(?:do not|does not|did not|will not|would not|not|never|no need|need not|no longer|without|instead of|rather than|stop asking|forget (?:it|that|about)|never ?mind|skip)\b",
    )
    .ok()
});

static PASTNESS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"\b(?:was|were|did|had|yesterday|ago|used to|earlier|back then|last (?:night|week|month|year|time|summer|winter|monday|tuesday|wednesday|thursday|friday|saturday|sunday))\b",
    )
    .ok()
});

static HYPOTHESIS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"\b(?:if i|if you|imagine|suppose|pretend|i wish|how (?:do|can|would|could) (?:i|you|we|one)|he said|she said|they said|told me|asked me|my (?:wife|husband|mother|mom|father|dad|sister|brother|friend|boss) (?:asked|said|wants|set|told))\b",
    )
    .ok()
});

/// Signs that a text is not a plain request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Factuality {
    pub negated: bool,
    pub past: bool,
    /// Hypothetical, reported, or about how to do something.
    #[serde(rename = "told")]
    pub hypothetical: bool,
}

impl Factuality {
    /// The signs in a normalised clause. The words that only make it a question or a polite request are none: "can
    /// you tell me if you have", "has not it arrived".
    pub(crate) fn of_clause(clause: &str) -> Self {
        Self::of(&mood::plain(clause))
    }

    /// The signs in normalised text.
    pub(crate) fn of(text: &str) -> Self {
        let fits = |pattern: &Option<Regex>| pattern.as_ref().is_some_and(|p| p.is_match(text));
        Self {
            negated: fits(&NEGATION),
            past: fits(&PASTNESS),
            hypothetical: fits(&HYPOTHESIS),
        }
    }

    /// The signs that many of an intent's examples share, which are therefore part of the intent.
    pub(crate) fn shared<'t>(texts: impl Iterator<Item = &'t str>) -> Self {
        let all: Vec<Self> = texts.map(Self::of).collect();
        let often = |is: fn(&Self) -> bool| {
            let count = all.iter().filter(|one| is(one)).count();
            count as f32 > MEANT * all.len() as f32
        };
        Self {
            negated: often(|one| one.negated),
            past: often(|one| one.past),
            hypothetical: often(|one| one.hypothetical),
        }
    }

    /// The factor for the confidence of a call, 0..1. Signs that are part of the intent (`meant`) do not
    /// count.
    pub(crate) fn discount(self, meant: Self, takes_day: bool) -> f32 {
        let factor =
            |said: bool, meant: bool, factor: f32| if said && !meant { factor } else { 1.0 };
        factor(self.negated, meant.negated, NEGATED)
            * factor(self.past, meant.past || takes_day, PAST)
            * factor(self.hypothetical, meant.hypothetical, HYPOTHETICAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_compiles_and_finds() {
        let said = Factuality::of("i did not ask how do i do it");
        assert!(said.negated && said.past && said.hypothetical);
        assert_eq!(Factuality::of("what is the weather"), Factuality::default());
    }

    #[test]
    fn signs_shared_by_examples_are_part_of_the_intent() {
        let texts = [
            "my card does not work",
            "why was my card declined",
            "card declined",
        ];
        let meant = Factuality::shared(texts.into_iter());
        assert!(meant.negated && meant.past && !meant.hypothetical);
        let said = Factuality::of("my card did not work");
        assert_eq!(said.discount(meant, false), 1.0);
        assert!(said.discount(Factuality::default(), false) < 0.1);
        assert_eq!(
            Factuality::of("it was").discount(Factuality::default(), true),
            1.0
        );
    }

    #[test]
    fn a_polite_question_has_no_signs_of_a_supposition() {
        for clause in [
            "could you check if you have red chairs",
            "i was wondering what the weather is like in denver",
            "has not my parcel left yet",
            "where is the package that i sent last week",
        ] {
            assert_eq!(
                Factuality::of_clause(clause),
                Factuality::default(),
                "{clause}"
            );
        }
        for clause in [
            "if you had chairs",
            "i was told so",
            "you do not have any",
            "what was it",
        ] {
            assert_ne!(
                Factuality::of_clause(clause),
                Factuality::default(),
                "{clause}"
            );
        }
    }
}
