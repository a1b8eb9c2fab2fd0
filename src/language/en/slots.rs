//! Arguments found in normalised text: numbers, places, free text.

use super::dates::DAY_OF_WEEK;
use super::endings::AFTER;
use super::places;
use regex::Regex;
use std::sync::LazyLock;

/// All numbers of a text, in order.
pub fn numbers(text: &str) -> Vec<f64> {
    static NUMBER: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"(?:^|[\s$€£])(-?\d+(?:\.\d+)?)\b").ok());
    let found = NUMBER.iter().flat_map(|number| number.captures_iter(text));
    found.filter_map(|found| found[1].parse().ok()).collect()
}

/// The place that a text names after "in", "for", "at", "to", "of" or "from": the usual name of the longest
/// known place that follows, or the words up to the end if none is known.
pub fn place(text: &str) -> Option<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let after = |(at, word): (usize, &&str)| PREPOSITIONS.contains(word).then_some(at + 1);
    let starts: Vec<usize> = words.iter().enumerate().filter_map(after).collect();
    starts.iter().find_map(|&at| known(&words[at..]))
}

const PREPOSITIONS: [&str; 8] = ["in", "for", "at", "to", "of", "from", "about", "near"];

/// The usual name of the longest known place that `words` begin with.
pub fn known(words: &[&str]) -> Option<String> {
    (1..=words.len().min(6)).rev().find_map(|length| {
        let name = words[..length].join(" ");
        let place = places::find(&name).ok()?;
        Some(place.name)
    })
}

/// The value of normalised words that are a number: "a", "half an", "$4.50", "minus 10".
pub fn number(words: &str) -> Option<f64> {
    match words {
        "a" | "an" => Some(1.0),
        "half a" | "half an" | "half" => Some(0.5),
        words => {
            let below = words
                .strip_prefix("minus ")
                .or_else(|| words.strip_prefix("negative "));
            let digits = below.unwrap_or(words).trim_matches(['$', '€', '£', '%']);
            let value: f64 = digits.parse().ok()?;
            Some(if below.is_some() { -value } else { value })
        }
    }
}

/// The value of normalised words that mean yes or no.
pub fn boolean(words: &str) -> Option<bool> {
    match words {
        "yes" | "true" | "on" => Some(true),
        "no" | "false" | "off" => Some(false),
        _ => None,
    }
}

/// A time or day, which ends a name: "on friday", "next week", "in 2 hours".
static TIME: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(&format!(
        r"^(?:(?:on|for|at|in|by|over|during|from|until|till|before|after|since|this|next|last|coming|the|early|late|later) )*(?:{DAY_OF_WEEK}s?|today|tonight|tomorrow|yesterday|weekends?|mornings?|afternoons?|evenings?|nights?|noon|midnight|(?:an?|few|couple|several|\d+)(?: (?:few|couple|more|of))* (?:second|minute|hour|day|week|month|year)s?|(?:second|minute|hour|day|week|month|year)s?|\d+(?: \d+)? ?(?:am|pm|oclock)|\d+(?:st|nd|rd|th)|(?:january|february|march|april|june|july|august|september|october|november|december)|may \d+)\b",
    ))
    .ok()
});

/// The words up to the first that cannot be part of a place name: "boulder" of "boulder is like" and of "boulder on
/// friday".
pub fn words_of_a_name(words: &str) -> &str {
    const NEVER: [&str; 28] = [
        "is",
        "are",
        "was",
        "were",
        "will",
        "be",
        "been",
        "being",
        "looks",
        "look",
        "looking",
        "going",
        "doing",
        "gonna",
        "gets",
        "getting",
        "like",
        "right",
        "now",
        "currently",
        "today",
        "tonight",
        "tomorrow",
        "if",
        "because",
        "when",
        "please",
        "but",
    ];
    let is_time = |from: usize| {
        TIME.as_ref()
            .is_some_and(|time| time.is_match(&words[from..]))
    };
    let mut end = 0;
    for word in words.split(' ') {
        if NEVER.contains(&word) || is_time(end) {
            break;
        }
        end += word.len() + 1;
    }
    words[..end.min(words.len())].trim_end()
}

/// Whether the words only introduce a noun that is yet to come: "the", "all of my".
pub fn lacks_noun(words: &str) -> bool {
    // Not "her" or "some", which may be all: "text her".
    const DETERMINERS: [&str; 7] = ["a", "an", "the", "my", "your", "our", "their"];
    let last = words.rsplit(' ').next().unwrap_or_default();
    DETERMINERS.contains(&last)
}

/// The words without courtesies and adverbs at the end.
pub fn without_tail(words: &str) -> &str {
    static TAIL: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(
            r"(?: (?:please|now|right now|currently|at the moment|today|tonight|tomorrow|this (?:morning|afternoon|evening|week|weekend)|for me|thanks|thank you|like|again|then|though|anyway|exactly|!)|!)+$",
        )
        .ok()
    });
    let words = words.trim();
    let tail = TAIL.as_ref().and_then(|tail| tail.find(words));
    tail.map_or(words, |found| &words[..found.start()])
}

/// Whether the words only follow a request and name nothing: "though", "please".
pub fn names_nothing(words: &str) -> bool {
    const ALSO: [&str; 4] = ["again", "now", "right", "then"];
    let mut words = words
        .split_whitespace()
        .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()));
    words.all(|word| AFTER.contains(&word) || ALSO.contains(&word))
}

/// The only words in quotation marks, as they were transcribed.
pub fn quoted(said: &str) -> Option<&str> {
    let is_mark = |c: char| matches!(c, '"' | '“' | '”');
    let parts: Vec<&str> = said.split(is_mark).collect();
    let [_, quoted, _] = parts.as_slice() else {
        return None;
    };
    let quoted = quoted.trim_matches(|c: char| c.is_whitespace() || ".,!?".contains(c));
    (!quoted.is_empty()).then_some(quoted)
}

/// The subject of a free-text request, without its article: "nearest pharmacy" of "search for the nearest
/// pharmacy please".
pub fn free_text(text: &str) -> Option<&str> {
    static LEAD_IN: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(
            r"\b(?:called|named|titled|labell?ed|about|for|saying|that says|search(?: the web)? for|look up|find(?: me)?|on|play|to)\s+(?:the |a |an |my )?(?P<words>.+?)(?: please)?$",
        )
        .ok()
    });
    let found = LEAD_IN.as_ref()?.captures(text)?;
    Some(found.name("words")?.as_str().trim())
}

/// A time of the day that says so.
static CLOCK: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"\b(?:(?:(?:half|quarter|\d{1,2}) past|quarter to) \d{1,2}|\d{1,2}(?:[ .][0-5]\d)? ?(?:am|pm|oclock))\b",
    )
    .ok()
});

/// A time of the day on a day that was named: "at 7".
static AT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let day_of_week = DAY_OF_WEEK;
    Regex::new(&format!(
        r"\bat (?:2[0-4]|[01]?\d)(?:[ .][0-5]\d)?(?P<rest> (?:on|in|for|with|and|or|please|today|tonight|tomorrow|this|next|{day_of_week})\b|$)",
    ))
    .ok()
});

/// A normalised text without times of the day. "At 7" is one if a day is named.
pub fn without_clock(text: &str, has_day: bool) -> String {
    let text = match CLOCK.as_ref() {
        Some(clock) => clock.replace_all(text, ""),
        None => text.into(),
    };
    match AT.as_ref().filter(|_| has_day) {
        Some(at) => at.replace_all(&text, "$rest").into_owned(),
        None => text.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_places_and_numbers() {
        assert_eq!(
            place("the weather in new york city today").as_deref(),
            Some("New York")
        );
        assert_eq!(place("flights from boston").as_deref(), Some("Boston"));
        assert_eq!(place("what is the time"), None);
        assert_eq!(numbers("between 3 and $4.50 for 2nd"), [3.0, 4.5]);
    }

    #[test]
    fn a_name_ends_where_a_time_begins() {
        for (words, name) in [
            ("rome on friday", "rome"),
            ("new york next week", "new york"),
            ("oslo this weekend", "oslo"),
            ("paris in 2 days", "paris"),
            ("boulder at 5 pm", "boulder"),
            ("lima in the morning", "lima"),
            ("a week", ""),
            ("an hour", ""),
            ("stoke on trent", "stoke on trent"),
            ("isle of man", "isle of man"),
        ] {
            assert_eq!(words_of_a_name(words), name);
        }
    }
}
