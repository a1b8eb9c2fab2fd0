//! Places that an utterance only points at: "and what time is it there".

use crate::language::en::mood::{self, Mood};
use crate::llm::LlmEvent;
use regex::Regex;
use serde_json::{Map, Value};
use std::sync::LazyLock;

/// "there" at the end of a question about a place.
static THERE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?i)^(?P<asked>.*\b(?:time|date|day|weather|forecast|temperature|late|warm|cold|hot|rain|raining|snow|snowing|sunny)\b.*?) (?:(?:over |out |up |down )?there|in (?:that|this|the same) (?:city|place|town|country))(?P<tail>(?: (?:right )?now| today| tomorrow| then| please)*[\s.?!]*)$",
    )
    .ok()
});

/// The question with the place's name; `None` if it does not point at one.
pub(super) fn named(said: &str, place: &str) -> Option<String> {
    let found = THERE.as_ref()?.captures(said)?;
    Some(format!("{} in {place}{}", &found["asked"], &found["tail"]))
}

/// The place among the arguments of a call.
pub(super) fn place_among(arguments: &Map<String, Value>) -> Option<&str> {
    const NAMES: [&str; 5] = ["place", "city", "location", "town", "country"];
    NAMES.iter().find_map(|name| arguments.get(*name)?.as_str())
}

/// The place of the calls in an answer.
pub(super) fn place_of(answer: &[LlmEvent]) -> Option<&str> {
    answer.iter().rev().find_map(|event| match event {
        LlmEvent::ToolClosed {
            arguments: Ok(arguments),
        } => place_among(arguments),
        _ => None,
    })
}

/// Whether a part of an utterance is a thing that shares the words before it: "the weather in Madrid" in "what's the time
/// and the weather in Madrid".
pub(super) fn shares_its_verb(part: &str) -> bool {
    let part = part.trim_start();
    let is_thing = part
        .get(..4)
        .is_some_and(|start| start.eq_ignore_ascii_case("the "));
    let mood = mood::meant(part.trim_end_matches(['?', '!', '.', ' '])).mood;
    is_thing && !matches!(mood, Mood::Question | Mood::Request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_the_place_of_the_question_before() {
        for (said, meant) in [
            ("what time is it there?", "what time is it in Oslo?"),
            (
                "And what's the date over there",
                "And what's the date in Oslo",
            ),
            (
                "Is it raining there right now?",
                "Is it raining in Oslo right now?",
            ),
            (
                "how's the weather in that city",
                "how's the weather in Oslo",
            ),
        ] {
            assert_eq!(named(said, "Oslo").as_deref(), Some(meant));
        }
        for said in [
            "Hello there!",
            "Are you there?",
            "is there time",
            "What is there to do?",
        ] {
            assert_eq!(named(said, "Oslo"), None, "{said}");
        }
    }

    #[test]
    fn a_thing_shares_the_verb_before_it() {
        assert!(shares_its_verb("the weather in Madrid?"));
        for said in [
            "what's the weather in Madrid?",
            "set a timer",
            "tell me the weather in Madrid",
        ] {
            assert!(!shares_its_verb(said), "{said}");
        }
    }
}
