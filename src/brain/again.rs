//! Questions that go on from the one before: "and in Rome?", "what about tomorrow?".

use super::revised::day_in;
use super::there::place_among;
use crate::language::en::mood::{self, Mood};
use crate::language::en::{places, text};
use crate::llm::Message;
use regex::Regex;
use std::sync::LazyLock;

/// The words before the other place or day.
static START: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^(?:(?:what|how) about )?(?:(?:in|at|for|near|on) )?").ok());

/// The whole question, in the words of the one before: "What's the weather in Rome?"; `None` if nothing goes on.
pub(super) fn meant(said: &str, before: &[Message]) -> Option<String> {
    let (place, day) = next(said)?;
    let called = |message: &Message| matches!(message, Message::ToolCall { .. });
    let at = before.iter().rposition(called)?;
    let Message::ToolCall { arguments, .. } = before.get(at)? else {
        return None;
    };
    let (asked, earlier) = question(&before[..at])?;
    let mut whole = meant(asked, earlier).unwrap_or_else(|| asked.to_owned());
    let old = regex::escape(place_among(arguments)?);
    let old = Regex::new(&format!(r"(?i)\b{old}\b")).ok()?;
    let old = old.find(&whole)?.range();
    if let Some(place) = place {
        whole.replace_range(old, &place);
    }
    if let Some(day) = day {
        let end = whole.trim_end_matches(['?', '.', '!', ' ']).len();
        match day_in(&whole) {
            Some(old) => whole.replace_range(old, &day),
            None => whole.insert_str(end, &format!(" {day}")),
        }
    }
    Some(whole)
}

/// The user's last words in `messages`, and the messages before them.
fn question(messages: &[Message]) -> Option<(&str, &[Message])> {
    let user = |message: &Message| matches!(message, Message::User { .. });
    let at = messages.iter().rposition(user)?;
    match &messages[at] {
        Message::User { text } => Some((text, &messages[..at])),
        _ => None,
    }
}

/// The other place and the other day that are asked for.
fn next(said: &str) -> Option<(Option<String>, Option<String>)> {
    let sentences = text::sentences(said);
    let [sentence] = sentences.as_slice() else {
        return None;
    };
    let bare = text::without_fillers(sentence);
    let mut fillers = sentence[..sentence.len() - bare.len()].split(' ');
    let start = START.as_ref()?.find(bare)?.end();
    if start == 0 && !fillers.any(|word| word == "and") {
        return None;
    }
    let (start, rest) = bare.split_at(start);
    let day = day_in(rest).filter(|day| day.end == rest.len());
    let named = rest[..day.as_ref().map_or(rest.len(), |day| day.start)].trim_end();
    let may_be_place = match start.trim_end().rsplit(' ').next() {
        Some("in" | "at" | "for" | "near") => true,
        Some("about") => is_name(named),
        _ => places::is_certain(named),
    };
    let place = match named {
        "" => None,
        named if may_be_place => Some(places::find(named).ok()?.name),
        _ => return None,
    };
    let day = day.map(|day| rest[day].to_owned());
    (place.is_some() || day.is_some()).then_some((place, day))
}

/// Whether words may be the name of a place, also of one that the tables do not have. "How big is Texas" is none.
pub(super) fn is_name(words: &str) -> bool {
    places::is_certain(words) || mood::meant(words).mood == Mood::Fragment
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn asked(said: &str, place: &str) -> Vec<Message> {
        let arguments = json!({ "place": place });
        vec![
            Message::User { text: said.into() },
            Message::ToolCall {
                id: "1".into(),
                name: "get_weather".into(),
                arguments: arguments.as_object().cloned().unwrap_or_default(),
            },
            Message::Agent {
                text: "It's sunny.".into(),
                interrupted: false,
            },
        ]
    }

    #[test]
    fn the_question_before_is_asked_of_another_place_or_day() {
        let before = asked("What's the weather in London?", "London");
        for (said, whole) in [
            ("And in Rome?", "What's the weather in Rome?"),
            ("what about Paris", "What's the weather in Paris?"),
            ("Okay, and New York?", "What's the weather in New York?"),
            // Towns that are not in the tables.
            (
                "And in Longmont, Colorado?",
                "What's the weather in Longmont, Colorado?",
            ),
            (
                "What about Naperville, Illinois?",
                "What's the weather in Naperville, Illinois?",
            ),
            (
                "How about tomorrow?",
                "What's the weather in London tomorrow?",
            ),
            (
                "And in Berlin on Friday?",
                "What's the weather in Berlin on friday?",
            ),
        ] {
            assert_eq!(meant(said, &before).as_deref(), Some(whole), "{said}");
        }
        for said in [
            "Rome.",
            "And in a minute?",
            "What about my timers?",
            "And what time is it in Rome?",
            "And how are you?",
            "And have you been to Japan?",
            "And how big is Texas?",
            "What about how big is Texas?",
            "And my sister lives in Texas.",
            "In fact, yes.",
        ] {
            assert_eq!(meant(said, &before), None, "{said}");
        }
    }

    #[test]
    fn a_question_that_went_on_goes_on() {
        let mut messages = asked("Will it rain in London tomorrow?", "London");
        messages.extend(asked("And in Rome?", "Rome"));
        assert_eq!(
            meant("And today?", &messages).as_deref(),
            Some("Will it rain in Rome today?")
        );
        assert_eq!(
            meant("What about in Oslo?", &messages).as_deref(),
            Some("Will it rain in Oslo tomorrow?")
        );
    }
}
