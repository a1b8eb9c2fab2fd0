//! Reads requests about timers, and lengths of time.

use super::{Reader, rewritten};
use crate::language::request::{Request, Talk, Target};
use regex::Regex;

/// Timers run for one second to a day.
const TIMER: std::ops::RangeInclusive<u64> = 1..=24 * 3600;
/// The longest name of a timer, in bytes.
const LONGEST_LABEL: usize = 40;

impl Reader {
    /// A timer for each length of a sentence, with the label beside it.
    pub(super) fn timers(&self, sentence: &str) -> Vec<Request> {
        let core = rewritten(&self.lengths, self.core(sentence));
        let lengths = self.lengths(core.clone());
        if !lengths.iter().all(|seconds| TIMER.contains(seconds)) {
            return vec![Request::Talk(Talk::BadLength)];
        }
        let parts: Vec<&str> = core.split(self.grammar.and).collect();
        let label = |at: usize| {
            let part = *parts.get(at).filter(|_| parts.len() == lengths.len())?;
            let is_its_own = self.lengths(part.to_owned()) == [lengths[at]];
            is_its_own.then(|| self.label_of(part)).flatten()
        };
        let timer = |(at, seconds): (usize, &u64)| Request::SetTimer {
            seconds: Some(*seconds),
            label: label(at),
        };
        lengths.iter().enumerate().map(timer).collect()
    }

    /// A timer of this length, for the answer to "for how long?".
    pub(in crate::language) fn timer_of(&self, said: &str) -> Option<Request> {
        let lengths = self.lengths((self.grammar.normalise)(said));
        match lengths.as_slice() {
            [seconds] if TIMER.contains(seconds) => Some(Request::SetTimer {
                seconds: Some(*seconds),
                label: None,
            }),
            _ => None,
        }
    }

    /// The length that corrects a timer of so many seconds: "no, I meant ten", but not "sorry, one second".
    pub(in crate::language) fn other_length(&self, said: &str, seconds: u64) -> Option<u64> {
        let said = (self.grammar.normalise)(said);
        if self.one(&said) == Request::Talk(Talk::Wait) {
            return None;
        }
        let found = self.corrects.captures(&said)?;
        let length = found.name("length")?.as_str();
        let unit = if seconds.is_multiple_of(60) { 60 } else { 1 };
        let bare = length.parse::<u64>().ok();
        let length = match self.lengths(length.to_owned()).as_slice() {
            [one] if self.without_lengths(length).is_empty() => Some(*one),
            _ => bare.and_then(|number| number.checked_mul(unit)),
        };
        length.filter(|seconds| TIMER.contains(seconds))
    }

    /// Whether what was said takes back the timer that was just set, without a word for it: "cancel it".
    pub(in crate::language) fn takes_back(&self, said: &str) -> bool {
        let core = self.core(&(self.grammar.normalise)(said));
        self.takes_back.is_match(&core)
    }

    /// Whether a sentence about timers says that one is no longer needed, and orders no other.
    pub(super) fn is_unneeded(&self, core: &str) -> bool {
        let is_other = self.reminds.is_match(core) || self.orders.is_match(core);
        self.unneeded.is_match(core) && !is_other
    }

    /// Whether what was said tells that a timer is no longer needed, without a word that cancels one.
    pub(in crate::language) fn declines(&self, said: &str) -> bool {
        let sentences = self.sentences(said).into_iter();
        let cores = sentences.map(|sentence| self.core(&(self.grammar.normalise)(sentence)));
        let cores: Vec<String> = cores.collect();
        let is_unneeded = |core: &String| self.timer.is_match(core) && self.is_unneeded(core);
        cores.iter().any(is_unneeded) && !cores.iter().any(|core| self.cancel.is_match(core))
    }

    /// The timer that the answer to "which one?" names; `None` if the answer is small talk or another request.
    pub(in crate::language) fn target_of(&self, said: &str) -> Option<Target> {
        let is_talk = |request: &Request| matches!(request, Request::Talk(_));
        // "The pasta timer" alone reads like a new one.
        let is_other = |request: &Request| {
            request.needs_tool() && !matches!(request, Request::SetTimer { .. })
        };
        let core = self.core(&(self.grammar.normalise)(said));
        let requests = self.requests(said);
        let is_no_name = requests.iter().all(is_talk) || requests.iter().any(is_other);
        // "Lass beide laufen" cancels none.
        let keeps = self.keeps.is_match(&core) && !self.cancel.is_match(&core);
        if self.refused.is_match(&core) || keeps || is_no_name {
            return None;
        }
        if self.all.is_match(&core) {
            return Some(Target::All);
        }
        let means_nothing = |word: &&str| {
            let grammar = self.grammar;
            grammar.articles.contains(word) || grammar.before_length.contains(word)
        };
        let rest = self.without_lengths(&core);
        let words = rest.split_whitespace().filter(|word| !means_nothing(word));
        let words: Vec<&str> = words.filter(|word| !self.timer.is_match(word)).collect();
        match self.lengths(core.clone()).as_slice() {
            [] => {}
            // "Stell einen auf fünf Minuten" cancels none.
            [seconds] => return (words.len() <= 1).then_some(Target::Seconds(*seconds)),
            _ => return None,
        }
        if words.is_empty() {
            return self.label_of(&core).map(Target::Label);
        }
        let is_name = |word: &&str| word.chars().all(char::is_alphabetic);
        let fits = words.len() <= 2 && words.iter().all(is_name) && !self.asks.is_match(&core);
        let label = || Target::Label(words.join(" "));
        (fits && !self.grammar.no_labels.contains(&words[0])).then(label)
    }

    /// The request of a sentence about timers.
    pub(super) fn timer(&self, core: &str) -> Request {
        let lengths = self.lengths(core.to_owned());
        let label = self.label_of(core);
        if self.wonders.is_match(core) {
            return Request::Unknown;
        }
        let is_timed = lengths.is_empty() && self.time_of_day.is_match(core);
        let is_order = |rule: &Regex| rule.is_match(core) && !self.reminds.is_match(core);
        if is_order(&self.changes) {
            return Request::Talk(match is_timed {
                true => Talk::TimeOfDay,
                false => Talk::FixedLength,
            });
        }
        if is_order(&self.cancel) || self.is_unneeded(core) {
            return Request::CancelTimer(match (lengths.as_slice(), label) {
                _ if self.all.is_match(core) => Target::All,
                ([seconds], _) => Target::Seconds(*seconds),
                (_, Some(label)) => Target::Label(label),
                _ => Target::Only,
            });
        }
        if is_order(&self.list) {
            return Request::ListTimers;
        }
        if self.is_told(core) {
            return Request::Unknown;
        }
        match lengths.as_slice() {
            [] if is_timed => Request::Talk(Talk::TimeOfDay),
            [] => Request::SetTimer {
                seconds: None,
                label,
            },
            [seconds] if TIMER.contains(seconds) => Request::SetTimer {
                seconds: Some(*seconds),
                label,
            },
            [_] => Request::Talk(Talk::BadLength),
            _ => Request::Talk(Talk::WhichLength),
        }
    }

    /// Whether a sentence about timers only tells of one: "meine Frau stellt immer einen Timer".
    fn is_told(&self, core: &str) -> bool {
        let tells = self.tells.is_match(core) || self.tells.is_match(&self.without_lengths(core));
        let rest = self.own_acts.replace_all(core, "");
        tells && !self.orders.is_match(&rest) && !self.wishes.is_match(&rest)
    }

    /// The name of a timer, or what it is for.
    fn label_of(&self, core: &str) -> Option<String> {
        let unmeasured = self.without_lengths(core);
        let label = |rule: &Regex| {
            let found = rule.captures(&unmeasured)?;
            let label = found.name("label")?.as_str().trim();
            let is_other = label.is_empty() || self.timer.is_match(label);
            let first = label.split(' ').next().unwrap_or_default();
            let fits = !is_other
                && label.len() <= LONGEST_LABEL
                && !self.grammar.no_labels.contains(&first)
                && !label.contains(|c: char| c.is_ascii_digit());
            fits.then(|| label.to_owned())
        };
        self.labels.iter().find_map(label)
    }

    /// The lengths of time in a normalised text, in seconds. A smaller unit after a greater one belongs to it.
    pub(super) fn lengths(&self, text: String) -> Vec<u64> {
        let text = rewritten(&self.lengths, text);
        let (mut lengths, mut smallest) = (Vec::<f64>::new(), f64::INFINITY);
        let mut end = None;
        for part in self.length.captures_iter(&text) {
            let size = ["h", "m", "s"].iter().zip([3600.0, 60.0, 1.0]);
            let size = size.filter(|(name, _)| part.name(name).is_some());
            let (Some(size), Ok(number)) =
                (size.map(|(_, size)| size).next(), part[1].parse::<f64>())
            else {
                continue;
            };
            let between =
                end.map(|end: usize| part.get(0).map_or("", |found| &text[end..found.start()]));
            let follows = between.is_some_and(|words| {
                let words = words.trim();
                words.is_empty() || self.grammar.within_length.contains(&words)
            });
            match lengths.last_mut() {
                Some(last) if follows && size < smallest => *last += number * size,
                _ => lengths.push(number * size),
            }
            smallest = size;
            end = part.get(0).map(|found| found.end());
        }
        lengths
            .into_iter()
            .map(|length| length.round() as u64)
            .collect()
    }

    /// A normalised text without lengths of time and the words that lead to them.
    pub(super) fn without_lengths(&self, text: &str) -> String {
        let text = rewritten(&self.lengths, text.to_owned());
        let mut kept: Vec<&str> = Vec::new();
        let mut from = 0;
        let ends = self.length.find_iter(&text).map(|found| found.range());
        for length in ends.chain(std::iter::once(text.len()..text.len())) {
            kept.extend(text[from..length.start].split_whitespace());
            let leads = |word: &&str| self.grammar.before_length.contains(word);
            while kept.last().is_some_and(leads) {
                kept.pop();
            }
            from = length.end;
        }
        kept.join(" ")
    }
}
