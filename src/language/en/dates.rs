//! Reads dates as people say them: "next friday", "the 5th of march", "in 2 weeks".

use jiff::civil::{Date, Weekday};
use jiff::{Span, ToSpan};
use regex::{Captures, Regex, RegexSet};
use std::sync::LazyLock;

/// The months.
pub(in crate::language) const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

const ORDINALS: [&str; 31] = [
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
    "eleventh",
    "twelfth",
    "thirteenth",
    "fourteenth",
    "fifteenth",
    "sixteenth",
    "seventeenth",
    "eighteenth",
    "nineteenth",
    "twentieth",
    "20 first",
    "20 second",
    "20 third",
    "20 fourth",
    "20 fifth",
    "20 sixth",
    "20 seventh",
    "20 eighth",
    "20 ninth",
    "thirtieth",
    "30 first",
];

/// The days of the week.
pub(in crate::language) const WEEKDAYS: [(&str, Weekday); 7] = [
    ("Monday", Weekday::Monday),
    ("Tuesday", Weekday::Tuesday),
    ("Wednesday", Weekday::Wednesday),
    ("Thursday", Weekday::Thursday),
    ("Friday", Weekday::Friday),
    ("Saturday", Weekday::Saturday),
    ("Sunday", Weekday::Sunday),
];

/// The pattern of a day of the week in normalised words.
pub(crate) const DAY_OF_WEEK: &str = "(?:mon|tues|wednes|thurs|fri|satur|sun)day";

/// A day that is not today.
static OTHER_DAY: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let month = MONTHS.join("|").to_lowercase();
    let date = r"(?:the )?\d{1,2}(?:st|nd|rd|th)?";
    Regex::new(&format!(
        r"\b(?:the day (?:after tomorrow|before yesterday)|tomorrow|yesterday|(?:(?:next|last|this) )?(?:{DAY_OF_WEEK}|weekend)|(?:next|last|this) (?:week|month|year)|in (?:a|\d+) (?:day|week|month|year)s?|(?:a|\d+) (?:day|week|month|year)s? (?:ago|from (?:now|today))|(?:{month}) {date}|{date} (?:of )?(?:{month}))\b"
    ))
    .ok()
});

type Reader = fn(&Captures<'_>, Date) -> Option<Date>;

/// Longer patterns first: "the day after tomorrow" contains "tomorrow".
static READERS: LazyLock<Vec<(Regex, Reader)>> = LazyLock::new(|| {
    let month = MONTHS
        .map(|month| format!("{month}|{}", &month[..3]))
        .join("|")
        .to_lowercase();
    let ordinals: Vec<&str> = ORDINALS.iter().rev().copied().collect();
    let day = format!(
        r"(?:(?P<ordinal>{})|(?P<day>\d{{1,2}})(?:st|nd|rd|th)?)",
        ordinals.join("|")
    );
    let year = r"(?: (?:of )?(?P<year>(?:19|20)\d\d))?";
    let patterns: [(String, Reader); 10] = [
        (r"\b(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)\b".into(), iso),
        (r"\bday after tomorrow\b".into(), |_, today| after(today, 2.days())),
        (r"\bday before yesterday\b".into(), |_, today| after(today, (-2).days())),
        (
            r"\b(?:in (?P<n>\d{1,4}|a) (?P<unit>day|week|month|year)s?|(?P<m>\d{1,4}|a) (?P<per>day|week|month|year)s? from (?:now|today))\b".into(),
            later,
        ),
        (r"\b(?P<n>\d{1,4}|a) (?P<unit>day|week|month|year)s? ago\b".into(), ago),
        (format!(r"\b(?:the )?{day} (?:of )?(?P<month>{month})\b{year}"), named),
        (format!(r"\b(?P<month>{month}) (?:the )?{day}\b{year}"), named),
        (format!(r"\b(?:(?P<which>next|last|this) )?(?P<weekday>{DAY_OF_WEEK})\b"), weekday),
        (r"\b(?P<word>today|tonight|tomorrow|yesterday)\b".into(), relative),
        (format!(r"\bthe {day}(?: of (?:this|the) month)?$"), of_the_month),
    ];
    let build = |(pattern, reader): (String, Reader)| Some((Regex::new(&pattern).ok()?, reader));
    patterns.into_iter().filter_map(build).collect()
});

/// The words of a normalised text that name another day than today.
pub fn other_day(text: &str) -> Option<&str> {
    Some(OTHER_DAY.as_ref()?.find(text)?.as_str())
}

/// The date that normalised text names, relative to `today`. A day of the week or a date without a year is
/// taken to be in the future.
pub fn read(text: &str, today: Date) -> Option<Date> {
    static FITTING: LazyLock<Option<RegexSet>> =
        LazyLock::new(|| RegexSet::new(READERS.iter().map(|(pattern, _)| pattern.as_str())).ok());
    let fitting = FITTING.as_ref()?.matches(text);
    fitting.into_iter().find_map(|at| {
        let (pattern, reader) = READERS.get(at)?;
        reader(&pattern.captures(text)?, today)
    })
}

fn after(today: Date, span: Span) -> Option<Date> {
    today.checked_add(span).ok()
}

fn iso(found: &Captures<'_>, _: Date) -> Option<Date> {
    let part = |name: &str| found[name].parse::<i16>().ok();
    let small = |name: &str| found[name].parse::<i8>().ok();
    Date::new(part("year")?, small("month")?, small("day")?).ok()
}

fn span(found: &Captures<'_>, number: &str, unit: &str) -> Option<Span> {
    let number: i32 = match found.name(number)?.as_str() {
        "a" => 1,
        digits => digits.parse().ok()?,
    };
    Some(match found.name(unit)?.as_str() {
        "day" => number.days(),
        "week" => number.weeks(),
        "month" => number.months(),
        _ => number.years(),
    })
}

fn later(found: &Captures<'_>, today: Date) -> Option<Date> {
    let span = span(found, "n", "unit").or_else(|| span(found, "m", "per"))?;
    after(today, span)
}

fn ago(found: &Captures<'_>, today: Date) -> Option<Date> {
    after(today, span(found, "n", "unit")?.negate())
}

fn relative(found: &Captures<'_>, today: Date) -> Option<Date> {
    match &found["word"] {
        "tomorrow" => after(today, 1.day()),
        "yesterday" => after(today, (-1).days()),
        _ => Some(today),
    }
}

/// "friday" is the next one, excluding today. "next friday" is read the same way: people disagree on whether
/// it means the week after.
fn weekday(found: &Captures<'_>, today: Date) -> Option<Date> {
    let (_, day) = *WEEKDAYS
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(&found["weekday"]))?;
    let nth = if found
        .name("which")
        .is_some_and(|which| which.as_str() == "last")
    {
        -1
    } else {
        1
    };
    today.nth_weekday(nth, day).ok()
}

fn day_of(found: &Captures<'_>) -> Option<i8> {
    if let Some(day) = found.name("day") {
        return day.as_str().parse().ok();
    }
    let ordinal = found.name("ordinal")?.as_str();
    let place = ORDINALS.iter().position(|name| *name == ordinal)?;
    i8::try_from(place + 1).ok()
}

fn named(found: &Captures<'_>, today: Date) -> Option<Date> {
    let said = &found["month"];
    let month = MONTHS
        .iter()
        .position(|month| month.to_lowercase().starts_with(said))?;
    let month = i8::try_from(month + 1).ok()?;
    let day = day_of(found)?;
    if let Some(year) = found.name("year") {
        return Date::new(year.as_str().parse().ok()?, month, day).ok();
    }
    let this_year = Date::new(today.year(), month, day).ok();
    this_year
        .filter(|date| *date >= today)
        .or_else(|| Date::new(today.year() + 1, month, day).ok())
}

fn of_the_month(found: &Captures<'_>, today: Date) -> Option<Date> {
    let day = day_of(found)?;
    let this = Date::new(today.year(), today.month(), day).ok();
    let next = today.checked_add(1.month()).ok()?;
    this.filter(|date| *date >= today)
        .or_else(|| Date::new(next.year(), next.month(), day).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::en::text;
    use jiff::civil::date;

    #[test]
    fn another_day_is_any_but_today() {
        for (text, day) in [
            ("the weather in rome on friday", Some("friday")),
            ("is it warm in oslo next week", Some("next week")),
            ("the weather in rome today", None),
            ("what time is it", None),
        ] {
            assert_eq!(other_day(text), day, "{text}");
        }
    }

    #[test]
    fn every_reader_compiles() {
        assert_eq!(READERS.len(), 10);
    }

    #[test]
    fn reads_days() {
        // A Saturday.
        let today = date(2026, 11, 21);
        for (said, expected) in [
            ("tomorrow", "2026-11-22"),
            ("the day after tomorrow", "2026-11-23"),
            ("Yesterday.", "2026-11-20"),
            ("tonight", "2026-11-21"),
            ("next Friday", "2026-11-27"),
            ("on Saturday", "2026-11-28"),
            ("last monday", "2026-11-16"),
            ("in two weeks", "2026-12-05"),
            ("three days ago", "2026-11-18"),
            ("a week from today", "2026-11-28"),
            ("March 5th", "2027-03-05"),
            ("the fifth of March", "2027-03-05"),
            ("December twenty first", "2026-12-21"),
            ("5 December 2027", "2027-12-05"),
            ("Dec 24", "2026-12-24"),
            ("2026-12-01", "2026-12-01"),
            ("the 3rd", "2026-12-03"),
            ("the 25th", "2026-11-25"),
        ] {
            let read = read(&text::normalise(said), today).map(|date| date.to_string());
            assert_eq!(read.as_deref(), Some(expected), "{said}");
        }
        for said in ["", "may I come in", "the 1 i like", "february 30", "march"] {
            assert_eq!(read(said, today), None, "{said}");
        }
    }
}
