//! The part of a result of `get_time` that the user asked for, and its words.

use super::revised::revised;
use super::rules;
use crate::language::en::dates::{self, DAY_OF_WEEK};
use crate::language::en::text;
use jiff::civil::Date;
use regex::{Captures, Regex};
use serde_json::Value;
use std::ops::Range;
use std::sync::LazyLock;

/// How the tool writes a date: "Sunday, March 1, 2026".
const DATE: &str = "%A, %B %-d, %Y";

/// The part of a result of `get_time` that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Asked {
    Time,
    Date,
    TimeAndDate,
    Zone,
    /// The date of another day: "tomorrow".
    Other(String),
    /// Whether it is this part of the day, given in hours.
    Is(Range<u32>),
}

/// Questions about another day.
static OTHER: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let day = |name| {
        format!(
            "(?P<{name}>(?:the day after )?tomorrow|(?:the day before )?yesterday|(?:next |this |last )?{DAY_OF_WEEK}|in (?:a|\\d{{1,3}}) (?:day|week|month)s?|(?:a|\\d{{1,3}}) (?:day|week|month)s? (?:from (?:now|today)|ago))"
        )
    };
    let date = "(?:date|day|weekday)(?: of the week)?";
    Regex::new(&format!(
        r"^(?:(?:what|which) (?:(?:is|will|was) )?(?:the )?{date}(?: is| was| will)?(?: it)?(?: be)? (?:on )?{}(?: be)?|what (?:is|was|will be) {}(?:'s {date})?|what {}'s {date} is)$",
        day("a"), day("b"), day("c")
    ))
    .ok()
});

/// Questions such as "is it still morning in London".
static PART: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let parts: Vec<&str> = PARTS.iter().map(|(part, _)| *part).collect();
    let parts = parts.join("|");
    Regex::new(&format!(
        r"^is it (?:still |already |now |currently |the )*(?P<part>{parts})(?: yet| already| now| time)?(?: (?:over )?(?:in|at) (?P<place>.+))?$"
    ))
    .ok()
});

/// Parts of the day, in hours. Neighbours overlap, because people draw the border differently.
const PARTS: [(&str, Range<u32>); 9] = [
    ("morning", 5..12),
    ("afternoon", 12..18),
    ("evening", 17..23),
    ("night", 20..29),
    ("daytime", 6..19),
    ("noon", 12..13),
    ("midnight", 24..25),
    ("am", 0..12),
    ("pm", 12..24),
];

/// The place in a question about another day or a part of the day: `Some(None)` for the user's own.
pub(super) fn place(core: &str) -> Option<Option<&str>> {
    if captures(&OTHER, core).is_some() {
        return Some(None);
    }
    let found = captures(&PART, core)?;
    Some(found.name("place").map(|place| place.as_str()))
}

fn captures<'t>(rule: &LazyLock<Option<Regex>>, text: &'t str) -> Option<Captures<'t>> {
    rule.as_ref()?.captures(text)
}

impl Asked {
    /// The part that was asked for in these words.
    pub(super) fn of(said: &str) -> Self {
        let said = &revised(said);
        let sentences = text::sentences(said);
        let parts = sentences
            .iter()
            .flat_map(|sentence| rules::questions(sentence));
        let cores: Vec<String> = parts.map(|part| rules::core(&part)).collect();
        if let Some(asked) = cores.iter().find_map(|core| Self::special(core)) {
            return asked;
        }
        let whole = sentences.iter().map(|sentence| rules::core(sentence));
        let of_both = |core: String| rules::is_time_and_date(&core);
        let (time, date) = (rules::is_time, rules::is_date);
        if whole.into_iter().any(of_both)
            || cores.iter().any(|core| time(core)) && cores.iter().any(|core| date(core))
        {
            return Self::TimeAndDate;
        }
        let said = text::normalise(said);
        let says = |words: &[&str]| said.split(' ').any(|word| words.contains(&word));
        if said.contains("time zone") || said.contains("timezone") {
            Self::Zone
        } else if says(&[
            "day", "date", "today", "today's", "month", "year", "weekday",
        ]) && !says(&["time"])
        {
            Self::Date
        } else {
            Self::Time
        }
    }

    fn special(core: &str) -> Option<Self> {
        if let Some(found) = captures(&PART, core) {
            let (_, hours) = PARTS.iter().find(|(part, _)| *part == &found["part"])?;
            return Some(Self::Is(hours.clone()));
        }
        let found = captures(&OTHER, core)?;
        let when = ["a", "b", "c"].iter().find_map(|name| found.name(name))?;
        Some(Self::Other(when.as_str().to_owned()))
    }
}

/// The result in words.
pub(super) fn in_words(output: &Value, asked: &Asked) -> Option<String> {
    let field = |name: &str| output.get(name)?.as_str();
    let (time, date) = (field("time")?, field("date")?);
    let what = match asked {
        Asked::Time => time.to_owned(),
        Asked::Date => date.to_owned(),
        Asked::TimeAndDate => format!("{time} on {date}"),
        Asked::Zone => format!(
            "{time} by the {} time zone",
            field("zone")?.replace('_', " ")
        ),
        Asked::Other(when) => return other_day(date, when),
        Asked::Is(hours) => {
            let hour = hour(time)?;
            let is = hours.contains(&hour) || hours.contains(&(hour + 24));
            let here = at_place(output, time)?;
            return Some(match is {
                true => format!("Yes, {here}"),
                false => format!("No, {here}"),
            });
        }
    };
    let mut said = at_place(output, &what)?;
    if let Some(first) = said.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    Some(said)
}

/// "it's 3:05 PM in Tokyo."
fn at_place(output: &Value, what: &str) -> Option<String> {
    let field = |name: &str| output.get(name).map(Value::as_str);
    Some(match (field("place"), field("reference")) {
        (None, _) => format!("it's {what}."),
        (Some(place), None) => match place? {
            place if place.ends_with(" Time") => format!("it's {what} {place}."),
            place => format!("it's {what} in {place}."),
        },
        (Some(place), Some(city)) => format!("in {}, going by {}, it's {what}.", place?, city?),
    })
}

fn other_day(today: &str, when: &str) -> Option<String> {
    let today = Date::strptime(DATE, today).ok()?;
    let day = dates::read(when, today)?;
    let verb = if day < today { "was" } else { "is" };
    let day = day.strftime(DATE);
    let is_near = when.ends_with("tomorrow") || when.ends_with("yesterday");
    let mut said = match is_near {
        true => format!("{when} {verb} {day}."),
        false => format!("that {verb} {day}."),
    };
    said.get_mut(..1)?.make_ascii_uppercase();
    Some(said)
}

/// The hour of "3:05 PM", 0 to 23.
fn hour(time: &str) -> Option<u32> {
    let (hour, rest) = time.split_once(':')?;
    let hour: u32 = hour.parse().ok()?;
    Some(hour % 12 + if rest.ends_with("PM") { 12 } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(said: &str, time: &str, expected: &str) {
        let output = json!({"time": time, "date": "Saturday, February 28, 2026", "zone": "Asia/Tokyo",
            "place": "Tokyo"});
        assert_eq!(in_words(&output, &Asked::of(said)).unwrap(), expected);
    }

    #[test]
    fn only_what_was_asked_for_is_told() {
        let time = "3:05 PM";
        check("What time is it in Tokyo?", time, "It's 3:05 PM in Tokyo.");
        check(
            "It's a nice day. What time is it in Tokyo?",
            time,
            "It's 3:05 PM in Tokyo.",
        );
        check(
            "What day is it in Tokyo?",
            time,
            "It's Saturday, February 28, 2026 in Tokyo.",
        );
        let both = "It's 3:05 PM on Saturday, February 28, 2026 in Tokyo.";
        check("What time is it in Tokyo and what day is it?", time, both);
        check("What's the time and date in Tokyo", time, both);
        check("What time is it in Tokyo and what day?", time, both);
        check(
            "What time is it in Tokyo, and what day of the week?",
            time,
            both,
        );
        check("What's the time in Tokyo and the date?", time, both);
        check("What day is it in Tokyo and what time?", time, both);
        check("What time is it in Tokyo, what day?", time, both);
        check("What time is it in Tokyo and which day is it?", time, both);
        check("What time is it in Tokyo? And what day?", time, both);
        check("What time and day is it in Tokyo?", time, both);
        check("Tell me the date, and the time in Tokyo.", time, both);
        let zone = "It's 3:05 PM by the Asia/Tokyo time zone in Tokyo.";
        check("What time zone is Tokyo in?", time, zone);
    }

    #[test]
    fn what_is_refused_is_not_told() {
        let said = "Not the time, the date please.";
        check(
            said,
            "3:05 PM",
            "It's Saturday, February 28, 2026 in Tokyo.",
        );
    }

    #[test]
    fn another_day_is_counted_from_today() {
        for (said, expected) in [
            (
                "What is the date tomorrow?",
                "Tomorrow is Sunday, March 1, 2026.",
            ),
            (
                "what day is it the day after tomorrow",
                "The day after tomorrow is Monday, March 2, 2026.",
            ),
            (
                "What's tomorrow's date?",
                "Tomorrow is Sunday, March 1, 2026.",
            ),
            (
                "What is the date in a week?",
                "That is Saturday, March 7, 2026.",
            ),
            (
                "What's the date next Friday?",
                "That is Friday, March 6, 2026.",
            ),
            (
                "What day was it three days ago?",
                "That was Wednesday, February 25, 2026.",
            ),
            (
                "What day was it yesterday?",
                "Yesterday was Friday, February 27, 2026.",
            ),
        ] {
            check(said, "3:05 PM", expected);
        }
    }

    #[test]
    fn a_part_of_the_day_follows_from_the_time() {
        for (said, time, answer) in [
            ("Is it afternoon in Tokyo?", "3:05 PM", "Yes"),
            ("is it still morning in Tokyo", "3:05 PM", "No"),
            ("is it night time in Tokyo", "1:10 AM", "Yes"),
            ("is it already evening in Tokyo", "12:10 AM", "No"),
        ] {
            check(said, time, &format!("{answer}, it's {time} in Tokyo."));
        }
    }
}
