//! Phrases of the built-in assistant in languages other than English.

use super::en::dates::{MONTHS, WEEKDAYS};
use super::en::numbers::{grouped, plain};
use super::request::{Request, Target};
use jiff::ToSpan;
use jiff::civil::Date;
use serde_json::{Map, Value};
use std::time::Duration;

/// Its words. In templates `{}` stands for a value.
pub(crate) struct Wording {
    pub(crate) greeting: &'static str,
    pub(crate) how_are_you: &'static str,
    pub(crate) welcome: &'static str,
    pub(crate) goodbye: &'static str,
    pub(crate) who_are_you: &'static str,
    pub(crate) go_on: &'static str,
    pub(crate) okay: &'static str,
    pub(crate) which_sum: &'static str,
    pub(crate) time_of_day: &'static str,
    pub(crate) bad_length: &'static str,
    pub(crate) which_length: &'static str,
    pub(crate) fixed_length: &'static str,
    /// Asked if a timer has no length. Its beginning in the history shows that the user may be answering it.
    pub(crate) how_long: &'static str,
    pub(crate) which_timer: &'static str,
    /// Asked if no place is named for the weather.
    pub(crate) where_to: &'static str,
    pub(crate) left_alone: &'static str,
    /// "I can {}."
    pub(crate) can: &'static str,
    pub(crate) can_chat: &'static str,
    pub(crate) and: &'static str,
    /// A description of each tool, said after "I can".
    pub(crate) abilities: &'static [(&'static str, &'static str)],
    pub(crate) beyond: &'static str,
    pub(crate) connect: &'static str,
    pub(crate) i_said: &'static str,
    pub(crate) nothing_said: &'static str,
    pub(crate) done_before: &'static str,
    pub(crate) done: &'static str,
    /// "For that I need {}."
    pub(crate) need: &'static str,
    pub(crate) broken: &'static str,
    pub(crate) late: &'static str,
    /// A change that may have been made.
    pub(crate) uncertain: &'static str,
    pub(crate) no_use: &'static str,
    pub(crate) unknown_place: &'static str,
    pub(crate) no_timer: &'static str,
    /// Words that turn a request into none: "nicht".
    pub(crate) negations: &'static [&'static str],
    /// The requests in what was said.
    pub(crate) requests: fn(&str) -> Vec<Request>,
    /// A timer of the length that was said.
    pub(crate) timer_of: fn(&str) -> Option<Request>,
    /// The length that corrects a timer of so many seconds: "nein, ich meinte zehn".
    pub(crate) other_length: fn(&str, u64) -> Option<u64>,
    /// Whether this takes back the timer that was just set: "brich ihn ab".
    pub(crate) takes_back: fn(&str) -> bool,
    /// Whether this says that a timer is not needed, without a word that cancels one: "ich brauche den Timer doch nicht".
    pub(crate) declines: fn(&str) -> bool,
    /// The timer that answers `which_timer`.
    pub(crate) target_of: fn(&str) -> Option<Target>,
    /// A question that goes on from the one before: what was said, what had been asked, and as which request. If that
    /// has no place, it is the answer to the question for one.
    pub(crate) again: fn(&str, &str, &Request) -> Option<Request>,
    /// A place as it is called in this language: "Tokio" for "Tokyo".
    pub(crate) place_here: fn(&str) -> String,
    /// Whether a question of what was said points at a place that was named before: "dort".
    pub(crate) points: fn(&str) -> bool,
    /// A result of a built-in tool: its name, the result, and what the user had asked. `None` for other tools.
    pub(crate) result: fn(&str, &Value, &str) -> Option<String>,
    /// The question before a call of a built-in tool; `None` for other tools.
    pub(crate) question: fn(&str, &Map<String, Value>) -> Option<String>,
    /// The announcement of a timer that rings: its length and its label.
    pub(crate) rings: fn(Duration, Option<&str>) -> String,
}

impl Wording {
    /// Whether this language has its own rules for a tool.
    pub(crate) fn knows(&self, tool: &str) -> bool {
        self.abilities.iter().any(|(name, _)| *name == tool)
    }

    /// "I can tell the time and keep timers.", of the tools that there are.
    pub(crate) fn abilities(&self, has: impl Fn(&str) -> bool) -> String {
        let can = self.abilities.iter().filter(|(tool, _)| has(tool));
        let can: Vec<&str> = can.map(|(_, can)| *can).collect();
        match listed(&can, self.and) {
            list if list.is_empty() => self.can_chat.to_owned(),
            list => self.can.replace("{}", &list),
        }
    }

    /// The answer to a request beyond the brain. `can` is what it can do.
    pub(crate) fn beyond_me(&self, can: &str) -> String {
        format!("{} {can} {}", self.beyond, self.connect)
    }

    /// The answers that are the same in every conversation with these tools, but for rare ones.
    pub(crate) fn often_said(&self, has: impl Fn(&str) -> bool) -> Vec<String> {
        let fixed = [
            self.greeting,
            self.how_are_you,
            self.welcome,
            self.goodbye,
            self.who_are_you,
            self.go_on,
            self.okay,
            self.left_alone,
            self.how_long,
        ];
        let can = self.abilities(has);
        let long = [self.beyond_me(&can), format!("{can} {}", self.connect)];
        fixed.map(str::to_owned).into_iter().chain(long).collect()
    }
}

/// "a, b und c".
pub(super) fn listed(items: &[impl AsRef<str>], and: &str) -> String {
    let items: Vec<&str> = items.iter().map(AsRef::as_ref).collect();
    match items.as_slice() {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} {and} {last}", first.join(", ")),
    }
}

/// The hour, 0 to 23, and minute of "3:05 PM".
pub(super) fn clock(time: &str) -> Option<(u32, u32)> {
    let (hour, rest) = time.split_once(':')?;
    let (minute, half) = rest.split_once(' ')?;
    let hour: u32 = hour.parse().ok()?;
    Some((
        hour % 12 + if half == "PM" { 12 } else { 0 },
        minute.parse().ok()?,
    ))
}

/// Day of the week, month (from 0), day and year of "Sunday, March 1, 2026".
pub(super) fn date(text: &str) -> Option<(usize, usize, u32, i32)> {
    let mut parts = text.split(", ");
    let day_of_week = parts.next()?;
    let (month, day) = parts.next()?.split_once(' ')?;
    Some((
        WEEKDAYS.iter().position(|(name, _)| *name == day_of_week)?,
        MONTHS.iter().position(|name| *name == month)?,
        day.parse().ok()?,
        parts.next()?.parse().ok()?,
    ))
}

/// [`date`], so many days later.
pub(super) fn date_after(text: &str, days: i64) -> Option<(usize, usize, u32, i32)> {
    let (_, month, day, year) = date(text)?;
    let month = i8::try_from(month + 1).ok()?;
    let today = Date::new(year.try_into().ok()?, month, day.try_into().ok()?).ok()?;
    let then = today.checked_add(days.days()).ok()?;
    Some((
        usize::try_from(then.weekday().to_monday_zero_offset()).ok()?,
        usize::try_from(then.month() - 1).ok()?,
        u32::try_from(then.day()).ok()?,
        i32::from(then.year()),
    ))
}

/// The distance in days, 1 to 7, from the day of the week of a date to the next one of this name.
pub(super) fn days_until(weekday: usize, text: &str) -> Option<i64> {
    let (today, ..) = date(text)?;
    i64::try_from((weekday + 6 - today) % 7 + 1).ok()
}

/// Hours, minutes and seconds of a length, those that are not zero, each with its singular and plural.
pub(super) fn length(length: Duration, units: [(&str, &str); 3], and: &str) -> String {
    let seconds = length.as_secs();
    let counts = [seconds / 3600, seconds / 60 % 60, seconds % 60];
    let parts = counts.iter().zip(units).filter(|(count, _)| **count > 0);
    let parts = parts.map(|(count, (one, several))| {
        format!("{count} {}", if *count == 1 { one } else { several })
    });
    match listed(&parts.collect::<Vec<_>>(), and) {
        none if none.is_empty() => format!("0 {}", units[2].1),
        some => some,
    }
}

/// The seconds in the field `name` of a timer, as a length.
pub(super) fn seconds(timer: &Value, name: &str) -> Option<Duration> {
    Some(Duration::from_secs(timer.get(name)?.as_u64()?))
}

/// The text with its first letter in upper case.
pub(crate) fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    let first: String = letters
        .next()
        .into_iter()
        .flat_map(char::to_uppercase)
        .collect();
    first + letters.as_str()
}

/// A number with a comma before its decimals: "8,05", "1.250.000".
pub(super) fn number(value: f64) -> String {
    written(&plain(value))
}

/// A text with a comma before decimals and, in numbers of a million or more, a dot between thousands: without one they
/// are read digit by digit.
fn written(text: &str) -> String {
    let is_digit = |c: char| c.is_ascii_digit();
    let mut written = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(is_digit) {
        let (before, from) = rest.split_at(start);
        let end = from.find(|c: char| !is_digit(c)).unwrap_or(from.len());
        let (digits, after) = from.split_at(end);
        written.push_str(&before.replace('.', ","));
        match digits.len() >= 7 && !before.ends_with('.') {
            true => written.push_str(&grouped(digits, '.')),
            false => written.push_str(digits),
        }
        rest = after;
    }
    written + &rest.replace('.', ",")
}

/// A result of `calculate`, in words.
pub(super) struct Sum {
    /// "12 mal 7".
    pub(super) expression: String,
    /// "84".
    pub(super) result: String,
    /// The result is rounded.
    pub(super) is_rounded: bool,
}

impl Sum {
    /// Reads a result. `signs`: those of a sum and their words; `times_ten_to`: the words for the "e" of "1e21".
    pub(super) fn of(output: &Value, signs: &[(&str, &str)], times_ten_to: &str) -> Option<Self> {
        let field = |name: &str| output.get(name)?.as_str();
        let words = signs
            .iter()
            .fold(field("expression")?.to_owned(), |text, (sign, word)| {
                text.replace(sign, word)
            });
        let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
        let result = written(field("result")?);
        Some(Self {
            expression: written(&words),
            result: result.replace('e', &format!(" {times_ten_to} ")),
            is_rounded: output.get("approximate")?.as_bool()?,
        })
    }
}
