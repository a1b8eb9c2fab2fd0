//! `read_calendar`: what an iCalendar file (RFC 5545) has for a day, repeated events included.
//!
//! The `rrule` crate expands recurring events. Not supported: zones that only a VTIMEZONE of the
//! file defines (their times count as the user's), tasks and journals.

use super::{bad_file, blocking, declare, text};
use crate::language::en::{dates, text::normalise};
use crate::tools::{CallContext, Declaration, Effect, Equivalence, Tool, ToolError};
use futures_util::future::BoxFuture;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};
use rrule::RRuleSet;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// The most repetitions of an event that are computed: daily for half a century.
const MOST_REPETITIONS: usize = 20_000;
/// The most events that are read out.
const MOST_EVENTS: usize = 20;

pub(super) fn declaration() -> Declaration {
    let parameters = json!({
        "type": "object",
        "properties": {
            "day": {
                "type": "string",
                "default": "today",
                "maxLength": 20,
                "description": "today, tomorrow, a day of the week, or a date as in 2026-11-22."
            }
        },
        "additionalProperties": false
    });
    let mut declaration = declare(
        "read_calendar",
        "The events of a day in the user's calendar.",
        Effect::Read,
        parameters,
    );
    declaration.reads = vec!["calendar".into()];
    declaration
        .equivalence
        .insert("day".into(), vec![Equivalence::Case]);
    declaration
}

/// Checks that the path has a calendar.
pub(super) fn checked(path: PathBuf) -> Result<PathBuf, (String, String, String)> {
    match std::fs::read_to_string(&path) {
        Ok(text) if text.contains("BEGIN:VCALENDAR") => Ok(path),
        Ok(_) => Err(bad_file(
            &path,
            "this is no iCalendar file",
            "name a file that begins with BEGIN:VCALENDAR",
        )),
        Err(error) => Err(bad_file(
            &path,
            error,
            "name an .ics file that this user may read",
        )),
    }
}

/// `read_calendar{day?}`: `{day, events: [{title, start?, end?, all_day, place?}], more?}`.
pub(super) struct ReadCalendar {
    declaration: Declaration,
    file: PathBuf,
}

impl ReadCalendar {
    pub(super) fn new(declaration: Declaration, file: PathBuf) -> Self {
        Self { declaration, file }
    }
}

impl Tool for ReadCalendar {
    fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    fn call(
        &self,
        arguments: Map<String, Value>,
        context: &CallContext,
    ) -> BoxFuture<'static, Result<Value, ToolError>> {
        let (file, zone) = (self.file.clone(), context.session.zone().clone());
        let today = context.session.clock().now().to_zoned(zone.clone()).date();
        Box::pin(blocking(move || {
            let wanted = text(&arguments, "day").unwrap_or("today");
            let day = day_of(wanted, today)
                .ok_or_else(|| ToolError::Failed(format!("unknown day: {wanted}")))?;
            agenda(&file, day, &zone)
        }))
    }
}

/// Reads a day, as people name it or as ISO 8601.
fn day_of(wanted: &str, today: Date) -> Option<Date> {
    let wanted = normalise(wanted);
    if wanted == "now" {
        return Some(today);
    }
    dates::read(&wanted, today)
}

fn agenda(file: &Path, day: Date, zone: &TimeZone) -> Result<Value, ToolError> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| ToolError::Broken(format!("the calendar cannot be read: {error}")))?;
    let events = events(&text, zone);
    let mut found = on_day(&events, day, zone);
    found.sort_by(|a, b| {
        (!a.event.all_day, a.start, &a.event.title).cmp(&(
            !b.event.all_day,
            b.start,
            &b.event.title,
        ))
    });
    let more = found.len().saturating_sub(MOST_EVENTS);
    let listed: Vec<Value> = found
        .iter()
        .take(MOST_EVENTS)
        .map(|occurrence| occurrence.told(zone))
        .collect();
    let mut agenda = json!({"day": day.strftime("%A, %B %-d").to_string(), "events": listed});
    if more > 0 {
        agenda["more"] = more.into();
    }
    Ok(agenda)
}

#[derive(Debug)]
struct Event {
    uid: String,
    title: String,
    place: Option<String>,
    all_day: bool,
    /// The start; midnight UTC for an all-day event.
    start: Timestamp,
    /// The zone of its wall times, by which it repeats.
    zone: TimeZone,
    seconds: i64,
    rules: Vec<String>,
    more: Vec<Timestamp>,
    except: Vec<Timestamp>,
    /// The occurrence of the event with the same UID that this one replaces.
    replaces: Option<Timestamp>,
    cancelled: bool,
}

struct Occurrence<'a> {
    event: &'a Event,
    start: Timestamp,
}

impl Occurrence<'_> {
    fn told(&self, zone: &TimeZone) -> Value {
        let mut told = json!({"title": self.event.title, "all_day": self.event.all_day});
        if !self.event.all_day {
            let clock = |time: Timestamp| {
                time.to_zoned(zone.clone())
                    .strftime("%-I:%M %p")
                    .to_string()
            };
            told["start"] = clock(self.start).into();
            told["end"] = clock(later(self.start, self.event.seconds)).into();
        }
        if let Some(place) = &self.event.place {
            told["place"] = place.as_str().into();
        }
        told
    }
}

fn later(time: Timestamp, seconds: i64) -> Timestamp {
    time.checked_add(Span::new().seconds(seconds))
        .unwrap_or(Timestamp::MAX)
}

fn on_day<'a>(events: &'a [Event], day: Date, zone: &TimeZone) -> Vec<Occurrence<'a>> {
    let replaced = |event: &Event, start: Timestamp| {
        event.replaces.is_none()
            && events
                .iter()
                .any(|other| other.uid == event.uid && other.replaces == Some(start))
    };
    let mut found = Vec::new();
    for event in events.iter().filter(|event| !event.cancelled) {
        let zone = if event.all_day { &TimeZone::UTC } else { zone };
        let Some((from, to)) = bounds(day, zone) else {
            continue;
        };
        let starts = event.starts(from, to);
        let starts = starts.into_iter().filter(|start| !replaced(event, *start));
        found.extend(starts.map(|start| Occurrence { event, start }));
    }
    found
}

/// The two midnights around a day.
fn bounds(day: Date, zone: &TimeZone) -> Option<(Timestamp, Timestamp)> {
    let midnight = |day: Date| Some(day.to_zoned(zone.clone()).ok()?.timestamp());
    Some((midnight(day)?, midnight(day.tomorrow().ok()?)?))
}

impl Event {
    /// The starts of the occurrences that overlap with `from`..`to`.
    fn starts(&self, from: Timestamp, to: Timestamp) -> Vec<Timestamp> {
        let overlaps = |start: &Timestamp| {
            *start < to && (later(*start, self.seconds) > from || *start >= from)
        };
        let once = self.rules.is_empty() && self.more.is_empty();
        if once || self.replaces.is_some() {
            return vec![self.start].into_iter().filter(overlaps).collect();
        }
        self.repetitions(to).into_iter().filter(overlaps).collect()
    }

    fn repetitions(&self, to: Timestamp) -> Vec<Timestamp> {
        let set: RRuleSet = match self.rule_set().parse() {
            Ok(set) => set,
            Err(error) => {
                tracing::warn!(%error, "an event's repetition cannot be read: only its first time is known");
                return vec![self.start];
            }
        };
        let set = set.limit();
        let starts = set.into_iter().map(|start| start.timestamp());
        starts
            .take_while(|start| *start < to.as_second())
            .take(MOST_REPETITIONS)
            .filter_map(|start| Timestamp::from_second(start).ok())
            .collect()
    }

    /// The rules in the syntax of the `rrule` crate, with exceptions in UTC, so that they match in any zone.
    fn rule_set(&self) -> String {
        let local = self
            .start
            .to_zoned(self.zone.clone())
            .strftime("%Y%m%dT%H%M%S");
        let start = match self.zone.iana_name() {
            Some(name) if name != "UTC" => format!("DTSTART;TZID={name}:{local}"),
            _ => format!("DTSTART:{}", utc(self.start)),
        };
        let rules = self
            .rules
            .iter()
            .map(|rule| format!("RRULE:{}", with_until(rule, &self.zone)));
        let times = |name: &str, times: &[Timestamp]| {
            let list: Vec<String> = times.iter().map(|time| utc(*time)).collect();
            (!list.is_empty()).then(|| format!("{name}:{}", list.join(",")))
        };
        let lines = std::iter::once(start)
            .chain(rules)
            .chain(times("RDATE", &self.more))
            .chain(times("EXDATE", &self.except));
        lines.collect::<Vec<_>>().join("\n")
    }
}

fn utc(time: Timestamp) -> String {
    time.strftime("%Y%m%dT%H%M%SZ").to_string()
}

/// Rewrites an UNTIL that is a date (whose end is meant) or a wall time to UTC.
fn with_until(rule: &str, zone: &TimeZone) -> String {
    let part = |part: &str| {
        let Some(until) = part
            .strip_prefix("UNTIL=")
            .filter(|until| !until.ends_with('Z'))
        else {
            return part.to_owned();
        };
        let until = if until.contains('T') {
            until.to_owned()
        } else {
            format!("{until}T235959")
        };
        let time = wall(&until).and_then(|time| time.to_zoned(zone.clone()).ok());
        time.map_or_else(
            || part.to_owned(),
            |time| format!("UNTIL={}", utc(time.timestamp())),
        )
    };
    rule.split(';').map(part).collect::<Vec<_>>().join(";")
}

fn wall(text: &str) -> Option<DateTime> {
    DateTime::strptime("%Y%m%dT%H%M%S", text).ok()
}

/// One content line: `NAME;PARAM=value:VALUE`.
struct ContentLine {
    name: String,
    parameters: Vec<(String, String)>,
    value: String,
}

impl ContentLine {
    /// Reads a line. Colons and semicolons in quotes do not separate.
    fn read(line: &str) -> Option<Self> {
        let mut quoted = false;
        let outside = |c: char, wanted: char, quoted: &mut bool| {
            *quoted ^= c == '"';
            c == wanted && !*quoted
        };
        let colon = line.find(|c| outside(c, ':', &mut quoted))?;
        let mut quoted = false;
        let mut parts = line[..colon].split(|c| outside(c, ';', &mut quoted));
        let name = parts.next()?.to_ascii_uppercase();
        let parameters = parts.filter_map(|part| part.split_once('='));
        Some(Self {
            name,
            parameters: parameters
                .map(|(name, value)| {
                    (
                        name.to_ascii_uppercase(),
                        value.trim_matches('"').to_owned(),
                    )
                })
                .collect(),
            value: line[colon + 1..].to_owned(),
        })
    }

    fn parameter(&self, name: &str) -> Option<&str> {
        let found = self.parameters.iter().find(|(known, _)| known == name)?;
        Some(&found.1)
    }

    /// The zone of its wall times.
    fn zone(&self, own: &TimeZone) -> TimeZone {
        let named = self
            .parameter("TZID")
            .and_then(|name| TimeZone::get(name.trim_start_matches('/')).ok());
        named.unwrap_or_else(|| own.clone())
    }

    /// Its times, each with whether it is a whole day.
    fn times(&self, own: &TimeZone) -> Vec<(Timestamp, bool)> {
        let zone = self.zone(own);
        let one = |text: &str| {
            let text = text.split('/').next().unwrap_or(text);
            if let Ok(day) = Date::strptime("%Y%m%d", text) {
                return Some((day.to_zoned(TimeZone::UTC).ok()?.timestamp(), true));
            }
            let zone = if text.ends_with('Z') {
                &TimeZone::UTC
            } else {
                &zone
            };
            let time = wall(text.trim_end_matches('Z'))?;
            Some((time.to_zoned(zone.clone()).ok()?.timestamp(), false))
        };
        self.value
            .split(',')
            .filter_map(|text| one(text.trim()))
            .collect()
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let mut letters = self.value.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '\\' => match letters.next() {
                    Some('n' | 'N') => text.push(' '),
                    Some(escaped) => text.push(escaped),
                    None => {}
                },
                other => text.push(other),
            }
        }
        text.trim().to_owned()
    }
}

/// The events of a calendar, without those that cannot be read.
fn events(text: &str, own: &TimeZone) -> Vec<Event> {
    let mut events = Vec::new();
    let mut lines: Option<Vec<ContentLine>> = None;
    let mut inner = 0;
    for line in unfolded(text) {
        let Some(line) = ContentLine::read(&line) else {
            continue;
        };
        match (line.name.as_str(), line.value.trim()) {
            ("BEGIN", "VEVENT") => lines = Some(Vec::new()),
            ("END", "VEVENT") => events.extend(lines.take().and_then(|lines| event(&lines, own))),
            // An alarm within an event has lines of the same names.
            ("BEGIN", _) => inner += 1,
            ("END", _) => inner -= 1,
            _ if lines.is_none() || inner > 1 => {}
            _ => lines.get_or_insert_default().push(line),
        }
    }
    events
}

/// Joins folded lines: a line that begins with white space continues the one before (RFC 5545, 3.1).
fn unfolded(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix([' ', '\t']), lines.last_mut()) {
            (Some(rest), Some(last)) => last.push_str(rest),
            _ => lines.push(line.to_owned()),
        }
    }
    lines
}

fn event(lines: &[ContentLine], own: &TimeZone) -> Option<Event> {
    let line = |name: &str| lines.iter().find(|line| line.name == name);
    let text = |name: &str| {
        line(name)
            .map(ContentLine::text)
            .filter(|text| !text.is_empty())
    };
    let all = |name: &str| {
        let lines = lines.iter().filter(|line| line.name == name);
        lines
            .flat_map(|line| line.times(own))
            .map(|(time, _)| time)
            .collect::<Vec<_>>()
    };
    let begin = line("DTSTART")?;
    let (start, all_day) = *begin.times(own).first()?;
    let end = line("DTEND").and_then(|line| line.times(own).first().copied());
    let length = line("DURATION").and_then(|line| line.value.trim().parse::<Span>().ok());
    let seconds = match (end, length) {
        (Some((end, _)), _) => end.as_second() - start.as_second(),
        (None, Some(length)) => length
            .total((
                jiff::Unit::Second,
                jiff::SpanRelativeTo::days_are_24_hours(),
            ))
            .ok()? as i64,
        (None, None) if all_day => 24 * 3600,
        (None, None) => 0,
    };
    let is_utc = all_day || begin.value.trim().ends_with('Z');
    Some(Event {
        uid: text("UID").unwrap_or_default(),
        title: text("SUMMARY").unwrap_or_else(|| "an event without a title".into()),
        place: text("LOCATION"),
        all_day,
        start,
        zone: if is_utc {
            TimeZone::UTC
        } else {
            begin.zone(own)
        },
        seconds: seconds.max(0),
        rules: lines
            .iter()
            .filter(|line| line.name == "RRULE")
            .map(|line| line.value.trim().to_owned())
            .collect(),
        more: all("RDATE"),
        except: all("EXDATE"),
        replaces: all("RECURRENCE-ID").first().copied(),
        cancelled: line("STATUS").is_some_and(|line| line.value.trim() == "CANCELLED"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::date;

    const CALENDAR: &str = "BEGIN:VCALENDAR\r\nVERSION:2.0\r\n\
BEGIN:VEVENT\r\nUID:1\r\nSUMMARY:Stand-up\r\nDTSTART;TZID=America/Denver:20260105T093000\r\nDTEND;TZID=America/Denver:20260105T094500\r\nRRULE:FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR\r\nEXDATE;TZID=America/Denver:20261126T093000\r\nBEGIN:VALARM\r\nTRIGGER:-PT5M\r\nDURATION:PT1H\r\nSUMMARY:alarm\r\nEND:VALARM\r\nEND:VEVENT\r\n\
BEGIN:VEVENT\r\nUID:1\r\nRECURRENCE-ID;TZID=America/Denver:20261125T093000\r\nSUMMARY:Stand-up\\, late\r\nDTSTART;TZID=America/Denver:20261125T110000\r\nDURATION:PT15M\r\nEND:VEVENT\r\n\
BEGIN:VEVENT\r\nUID:2\r\nSUMMARY:Thanks\r\n giving\r\nDTSTART;VALUE=DATE:20261126\r\nRRULE:FREQ=YEARLY;BYMONTH=11;BYDAY=4TH;UNTIL=20301231\r\nEND:VEVENT\r\n\
BEGIN:VEVENT\r\nUID:3\r\nSUMMARY:Trip\r\nDTSTART;VALUE=DATE:20261124\r\nDTEND;VALUE=DATE:20261127\r\nEND:VEVENT\r\n\
BEGIN:VEVENT\r\nUID:4\r\nSUMMARY:Call\r\nLOCATION:\"room; 3\"\r\nDTSTART:20261125T230000Z\r\nDTEND:20261126T083000Z\r\nEND:VEVENT\r\n\
BEGIN:VEVENT\r\nUID:5\r\nSTATUS:CANCELLED\r\nSUMMARY:Off\r\nDTSTART:20261125T200000Z\r\nEND:VEVENT\r\n\
BEGIN:VEVENT\r\nUID:6\r\nSUMMARY:Never\r\nDTSTART:20200101T000000Z\r\nRRULE:FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30\r\nEND:VEVENT\r\n\
END:VCALENDAR\r\n";

    fn titles(day: Date) -> Vec<String> {
        let zone = TimeZone::get("America/Denver").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("c.ics");
        std::fs::write(&file, CALENDAR).unwrap();
        let agenda = agenda(&file, day, &zone).unwrap();
        let told = |event: &Value| {
            let start = event["start"].as_str().unwrap_or("all day");
            format!("{} {start}", event["title"].as_str().unwrap())
        };
        agenda["events"]
            .as_array()
            .unwrap()
            .iter()
            .map(told)
            .collect()
    }

    #[test]
    fn repeated_moved_cancelled_and_long_events() {
        assert_eq!(titles(date(2026, 11, 23)), ["Stand-up 9:30 AM"]);
        // Winter and summer: the wall time stays.
        assert_eq!(titles(date(2026, 7, 6)), ["Stand-up 9:30 AM"]);
        assert_eq!(
            titles(date(2026, 11, 25)),
            ["Trip all day", "Stand-up, late 11:00 AM", "Call 4:00 PM"]
        );
        assert_eq!(
            titles(date(2026, 11, 26)),
            ["Trip all day", "Thanksgiving all day", "Call 4:00 PM"]
        );
        assert_eq!(
            titles(date(2027, 11, 25)),
            ["Thanksgiving all day", "Stand-up 9:30 AM"]
        );
        assert_eq!(titles(date(2031, 11, 27)), ["Stand-up 9:30 AM"]);
        assert!(titles(date(2026, 11, 22)).is_empty());
    }

    #[test]
    fn days_by_name() {
        let saturday = date(2026, 11, 21);
        let day = |name| day_of(name, saturday);
        assert_eq!(day("Tomorrow"), Some(date(2026, 11, 22)));
        assert_eq!(day("monday"), Some(date(2026, 11, 23)));
        assert_eq!(day("on Saturday"), Some(date(2026, 11, 28)));
        assert_eq!(day("now"), Some(saturday));
        assert_eq!(day("the day after tomorrow"), Some(date(2026, 11, 23)));
        assert_eq!(day("2026-12-24"), Some(date(2026, 12, 24)));
        assert_eq!(day("someday"), None);
    }
}
