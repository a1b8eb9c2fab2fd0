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

/// Before "a week from friday", after which it may be a length of time or a date.
const STAY: &str = r"(?:stay|rent)(?:ing)?(?: (?:it|here|there|(?:a|the|this) \w+))? ";

/// Before "a week from friday" and "a week on friday", after which friday is the day.
const PER_WEEK: &str = "for |once |twice |times ";

/// The pattern of a day that is not today.
fn other_day_pattern() -> String {
    let month = MONTHS.join("|").to_lowercase();
    let date = r"(?:the )?\d{1,2}(?:st|nd|rd|th)?";
    let ordinal = ordinal_pattern(1);
    format!(
        r"(?:the day (?:after tomorrow|before yesterday)|tomorrow|yesterday|(?:(?:{STAY}|{PER_WEEK})?(?:a|\d{{1,4}}) weeks? (?:from|on) )?(?:(?:next|last|this) )?(?:{DAY_OF_WEEK}|weekend)(?: after (?:the )?next| the (?:{ordinal}|\d{{1,2}}(?:st|nd|rd|th)))?|(?:next|last|this) (?:week|month|year)|in (?:a|\d+) (?:day|week|month|year)s?|(?:a|\d+) (?:day|week|month|year)s? (?:ago|from (?:now|today))|(?:{month}) {date}|{date} (?:of )?(?:{month}))\b"
    )
}

/// The months and their abbreviations.
fn month_pattern() -> String {
    MONTHS
        .map(|month| format!("{month}|{}", &month[..3]))
        .join("|")
        .to_lowercase()
}

/// The ordinals from a day of the month on, the longest first.
fn ordinal_pattern(from: usize) -> String {
    let ordinals: Vec<&str> = ORDINALS.iter().skip(from - 1).rev().copied().collect();
    ordinals.join("|")
}

/// A day that is not today.
static OTHER_DAY: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(&format!(r"\b{}", other_day_pattern())).ok());

/// A day in place of the one before it: "friday no saturday".
static CORRECTED: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let other = other_day_pattern();
    let ordinal = ordinal_pattern(4);
    let opener = "no|sorry|i meant?|actually|wait|rather|make (?:it|that)";
    Regex::new(&format!(
        r"\b(?:{opener})(?: (?:{opener}|on|for))* (?P<said>(?:today|tonight)\b|{other}|the (?:(?P<ordinal>{ordinal})|(?P<day>\d{{1,2}})(?:st|nd|rd|th))\b)"
    ))
    .ok()
});

type Reader = fn(&Captures<'_>, Date) -> Option<Date>;

/// Longer patterns first: "the day after tomorrow" contains "tomorrow".
static READERS: LazyLock<Vec<(Regex, Reader)>> = LazyLock::new(|| {
    let month = month_pattern();
    let ordinal = ordinal_pattern(1);
    let day = format!(r"(?:(?P<ordinal>{ordinal})|(?P<day>\d{{1,2}})(?:st|nd|rd|th)?)");
    let nth = format!(r"(?:(?P<ordinal>{ordinal})|(?P<day>\d{{1,2}})(?:st|nd|rd|th))");
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
        (
            format!(r"\b(?:(?:(?P<stay>{STAY})|(?P<for>{PER_WEEK}))?(?P<n>\d{{1,4}}|a) (?P<unit>week)s? (?:from|on) )?(?:(?P<which>next|last|this) )?(?P<weekday>{DAY_OF_WEEK})(?:(?P<beyond> after (?:the )?next)| the {nth})?\b"),
            weekday,
        ),
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

/// The readers whose patterns are in a text.
static FITTING: LazyLock<Option<RegexSet>> =
    LazyLock::new(|| RegexSet::new(READERS.iter().map(|(pattern, _)| pattern.as_str())).ok());

/// "2 december 20": one of the numbers is of something else.
static UNCLEAR: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let month = month_pattern();
    let ordinal = ordinal_pattern(1);
    Regex::new(&format!(
        r"\b\d{{1,2}} (?:{month}) (?:the )?(?:{ordinal}|\d{{1,2}}(?:st|nd|rd|th)?)\b"
    ))
    .ok()
});

fn is_unclear(text: &str) -> bool {
    // "10 december 7 pm"
    let is_time = |rest: &str| {
        let rest = rest.trim_start_matches([':', '.', ' ']);
        let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        let next = rest.split_whitespace().next().unwrap_or_default();
        ["am", "pm", "oclock", "o'clock"].contains(&next)
    };
    let Some(unclear) = UNCLEAR.as_ref() else {
        return false;
    };
    let mut found = unclear.find_iter(text);
    found.any(|found| !is_time(&text[found.end()..]))
}

/// The date that normalised text names, relative to `today`. A day of the week or a date without a year is
/// taken to be in the future. Of a day that is corrected, the later words count: "friday, no, saturday".
pub fn read(text: &str, today: Date) -> Option<Date> {
    let corrected = CORRECTED
        .as_ref()
        .and_then(|corrected| corrected.captures_iter(text).last());
    let Some(corrected) = corrected else {
        return uncorrected(text, today);
    };
    let said = corrected.name("said")?;
    let nth = day_of(&corrected);
    let rest = &text[said.start()..];
    let is_bare = nth.is_some() && rest == said.as_str();
    let named = (!is_bare).then(|| uncorrected(rest, today)).flatten();
    named.or_else(|| {
        // "the 11th of march, no, the 12th"
        let day = nth?;
        let before = text[..corrected.get(0)?.start()].trim_end();
        uncorrected(before, today)
            .and_then(|date| Date::new(date.year(), date.month(), day).ok())
            .filter(|date| *date >= today)
            .or_else(|| of_the_month(&corrected, today))
    })
}

/// The date that a text without corrections names.
fn uncorrected(text: &str, today: Date) -> Option<Date> {
    let fitting = FITTING.as_ref()?.matches(text);
    if fitting.matched_any() && is_unclear(text) {
        return None;
    }
    fitting.into_iter().find_map(|at| {
        let (pattern, reader) = READERS.get(at)?;
        let found = pattern.captures(text)?;
        match reader(&found, today) {
            // Nothing else in the text is the day if this one is none.
            None if found.name("weekday").is_some() => Some(None),
            date => date.map(Some),
        }
    })?
}

/// A text without the days that it names. "The 17" stays: it may be anything. So does all of "2 december 20".
pub fn without(text: &str) -> String {
    if is_unclear(text) {
        return text.to_owned();
    }
    let fitting = FITTING.iter().flat_map(|fitting| fitting.matches(text));
    let fitting = fitting.filter_map(|at| READERS.get(at));
    fitting.fold(text.to_owned(), |text, (pattern, _)| {
        let rest = |found: &Captures<'_>| {
            let is_day = found.name("day").is_none() || found.name("month").is_some();
            match is_day {
                true => String::new(),
                false => found[0].to_owned(),
            }
        };
        pattern.replace_all(&text, rest).into_owned()
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
/// it means the week after. The friday after that is none, nor is "friday the 12th" if that is no friday; but
/// "friday the first train" is on friday.
fn weekday(found: &Captures<'_>, today: Date) -> Option<Date> {
    let (_, day) = *WEEKDAYS
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(&found["weekday"]))?;
    if found.name("beyond").or(found.name("stay")).is_some() {
        return None;
    }
    let is_last = found
        .name("which")
        .is_some_and(|which| which.as_str() == "last");
    if let Some(nth) = day_of(found) {
        let date = match is_last {
            true => past_day(nth, day, today),
            false => of_the_month(found, today).filter(|date| date.weekday() == day),
        };
        let counts = found.name("ordinal").is_some() && nth <= 3;
        if date.is_some() || !counts {
            return date;
        }
    }
    let date = today.nth_weekday(if is_last { -1 } else { 1 }, day).ok()?;
    // "for a week from friday" begins on friday.
    let later = span(found, "n", "unit").filter(|_| found.name("for").is_none());
    later.map_or(Some(date), |later| after(date, later))
}

/// The last day before today with this number in its month, if it is in this month or the last and fits the day
/// of the week.
fn past_day(nth: i8, weekday: Weekday, today: Date) -> Option<Date> {
    let last = after(today, (-1).months())?;
    [today, last].into_iter().find_map(|month| {
        let date = Date::new(month.year(), month.month(), nth).ok()?;
        (date < today && date.weekday() == weekday).then_some(date)
    })
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
            ("is it free a week from friday", Some("a week from friday")),
            ("the friday after next", Some("friday after next")),
            ("on friday the eleventh", Some("friday the eleventh")),
            ("stay a week from friday", Some("stay a week from friday")),
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
            ("Friday the eleventh", "2026-12-11"),
            ("on Friday the 11th at seven", "2026-12-11"),
            ("Friday, May 7th", "2027-05-07"),
            ("a week from Friday", "2026-12-04"),
            ("two weeks from next Friday", "2026-12-11"),
            ("a week on Friday", "2026-12-04"),
            ("for a week from Friday", "2026-11-27"),
            ("on Friday, no, Saturday", "2026-11-28"),
            ("on Friday, sorry, I mean on Saturday", "2026-11-28"),
            ("on Saturday, no, tomorrow", "2026-11-22"),
            ("on Friday, for no more than two", "2026-11-27"),
            ("last Friday the 20th", "2026-11-20"),
            ("on Friday the first train", "2026-11-27"),
            ("is Friday the second session full", "2026-11-27"),
            ("is yoga once a week on Friday", "2026-11-27"),
            ("on Friday the 11th, no, the 12th", "2026-12-12"),
            ("March 11th, no, the 12th", "2027-03-12"),
            ("March 11th, no, the 12th at 7", "2027-03-12"),
            ("the 5th of December, 8 pm", "2026-12-05"),
            ("10 December, 7 pm", "2026-12-10"),
            ("10 December, 7:30 pm", "2026-12-10"),
            ("Friday the 11th, no, the fifth of May", "2027-05-05"),
            ("on Friday, no, the first train", "2026-11-27"),
            ("on Friday, actually Saturday", "2026-11-28"),
            ("on Friday, wait, Saturday", "2026-11-28"),
            ("on Friday, or rather on Saturday", "2026-11-28"),
            ("on Friday, make it Saturday", "2026-11-28"),
        ] {
            let read = read(&text::normalise(said), today).map(|date| date.to_string());
            assert_eq!(read.as_deref(), Some(expected), "{said}");
        }
        for said in [
            "",
            "may I come in",
            "the 1 i like",
            "february 30",
            "march",
            "the friday after next",
            "friday the 12th at 7",
            "is a room free on friday the 12th",
            "on friday the twelfth",
            "tonight or the friday after next",
            "a table for 2 december 20",
            "i am staying 2 weeks from friday",
            "rent a car a week from friday",
        ] {
            assert_eq!(read(said, today), None, "{said}");
        }
    }

    #[test]
    fn what_is_left_of_a_text_names_no_day() {
        for (text, left) in [
            ("for 2 in 3 weeks", "for 2 "),
            ("4 people on december 20 first", "4 people on "),
            ("a week from friday at 7", " at 7"),
            ("when does the 17", "when does the 17"),
            ("for 2 december 20", "for 2 december 20"),
        ] {
            assert_eq!(without(text), left, "{text}");
        }
    }
}
