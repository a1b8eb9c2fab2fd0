//! How something is said: denied, told of the past, or supposed.

use regex::Regex;
use serde::{Deserialize, Serialize};
use std::sync::LazyLock;

/// The user says not to do it.
const NEGATED: f32 = 0.3;
/// The user speaks of the past, and the tool takes no day.
const PAST: f32 = 0.25;
/// The user supposes, reports, or asks how to do it.
const TOLD: f32 = 0.4;
/// An intent of whose examples this share speaks so means it.
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

static TELLING: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"\b(?:if i|if you|imagine|suppose|pretend|i wish|how (?:do|can|would|could) (?:i|you|we|one)|he said|she said|they said|told me|asked me|my (?:wife|husband|mother|mom|father|dad|sister|brother|friend|boss) (?:asked|said|wants|set|told))\b",
    )
    .ok()
});

/// How something is said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Manner {
    pub negated: bool,
    pub past: bool,
    pub told: bool,
}

impl Manner {
    /// Of normalised text.
    pub(super) fn of(text: &str) -> Self {
        let fits = |pattern: &Option<Regex>| pattern.as_ref().is_some_and(|p| p.is_match(text));
        Self {
            negated: fits(&NEGATION),
            past: fits(&PASTNESS),
            told: fits(&TELLING),
        }
    }

    /// What many of these texts share: who asks so for something means it.
    pub(super) fn shared<'t>(texts: impl Iterator<Item = &'t str>) -> Self {
        let manners: Vec<Self> = texts.map(Self::of).collect();
        let often = |is: fn(&Self) -> bool| {
            let count = manners.iter().filter(|manner| is(manner)).count();
            count as f32 > MEANT * manners.len() as f32
        };
        Self {
            negated: often(|manner| manner.negated),
            past: often(|manner| manner.past),
            told: often(|manner| manner.told),
        }
    }

    /// How much less likely a call is than it seems, 0..1: for what is said and not `meant`.
    pub(super) fn discount(self, meant: Self, takes_day: bool) -> f32 {
        let factor =
            |said: bool, meant: bool, factor: f32| if said && !meant { factor } else { 1.0 };
        factor(self.negated, meant.negated, NEGATED)
            * factor(self.past, meant.past || takes_day, PAST)
            * factor(self.told, meant.told, TOLD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_compiles_and_finds() {
        let manner = Manner::of("i did not ask how do i do it");
        assert!(manner.negated && manner.past && manner.told);
        assert_eq!(Manner::of("what is the weather"), Manner::default());
    }

    #[test]
    fn what_examples_share_is_meant() {
        let texts = [
            "my card does not work",
            "why was my card declined",
            "card declined",
        ];
        let meant = Manner::shared(texts.into_iter());
        assert!(meant.negated && meant.past && !meant.told);
        let said = Manner::of("my card did not work");
        assert_eq!(said.discount(meant, false), 1.0);
        assert!(said.discount(Manner::default(), false) < 0.1);
        assert_eq!(Manner::of("it was").discount(Manner::default(), true), 1.0);
    }
}
