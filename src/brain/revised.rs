//! Utterances in which the user refuses one thing and asks for another, or corrects a word.

use super::parts;
use super::rules;
use crate::language::en::dates::DAY_OF_WEEK;
use crate::language::en::mood::{self, Mood};
use crate::language::en::{places, slots, text};
use regex::Regex;
use std::ops::Range;
use std::sync::LazyLock;

/// The words before a correction.
static CORRECTION: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?i)(?:^|[,.?!;…]\s*|\s)(?:(?:(?:oh|no|wait|sorry|actually|rather)[,.]?\s+)*(?:no,? wait|wait,? no|no,? sorry|sorry,? no|(?:no,? )?i (?:mean|meant|said)|scratch that|or rather|make (?:it|that)|actually|no,? not there)[,.]?\s+)(?P<new>[^.?!;]+?)[\s.?!;]*$",
    )
    .ok()
});

/// A request with a place at its end: what precedes it, and the place.
static PLACED: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?i)^(?P<before>.*\b(?:in|for|at|near)\s+)(?P<place>.+?)[\s.?!,;]*$").ok()
});

/// A day that a correction or a further question may name.
static DAY: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(&format!(
        r"(?i)\b(?:today|tonight|tomorrow|(?:(?:on|next|this) )?{DAY_OF_WEEK})\b"
    ))
    .ok()
});

/// The requests of an utterance: without those that it refuses, and with its corrections in place.
pub(super) fn revised(said: &str) -> String {
    let corrected = corrected(said);
    let said = corrected.as_deref().unwrap_or(said);
    let (mut kept, mut end) = (String::new(), 0);
    for sentence in parts::sentence_ranges(said) {
        kept.push_str(&said[end..sentence.start]);
        kept.push_str(wanted(&said[sentence.clone()]));
        end = sentence.end;
    }
    kept + &said[end..]
}

/// An utterance whose last words replace a place or day before them: "the weather in Leeds" for "the weather in London,
/// no wait, I mean Leeds". `None` if it corrects neither.
pub(super) fn corrected(said: &str) -> Option<String> {
    let found = CORRECTION.as_ref()?.captures(said)?;
    let whole = found.get(0)?;
    let before = said[..whole.start()].trim_end();
    let new = without_preposition(found["new"].trim());
    if day_in(new) == Some(0..new.len()) {
        let old = day_in(before)?;
        return Some([&before[..old.start], new, &before[old.end..]].concat());
    }
    let normal = text::normalise(new);
    let marker = whole.as_str().to_lowercase();
    // "Actually, thanks" names no place.
    let is_sure = ["wait", "mean", "said"]
        .iter()
        .any(|word| marker.contains(word));
    let is_name = new.starts_with(char::is_uppercase) && normal.split(' ').count() <= 3;
    let name = match is_name {
        true if is_sure || places::is_listed(&normal) => new.to_owned(),
        false if places::is_listed(&normal) => places::title_case(&normal),
        _ => return None,
    };
    let placed = PLACED.as_ref()?.captures(before)?;
    let words: Vec<&str> = placed["place"].split_whitespace().collect();
    let rest = words.get(length_of_name(&words)..).unwrap_or_default();
    let corrected = [&(placed["before"].to_owned() + &name)[..], &rest.join(" ")].join(" ");
    let asks = marker.starts_with('?') || said.ends_with('?');
    Some(corrected.trim_end().to_owned() + if asks { "?" } else { "." })
}

/// Where the last day stands in some words.
pub(super) fn day_in(words: &str) -> Option<Range<usize>> {
    Some(DAY.as_ref()?.find_iter(words).last()?.range())
}

fn without_preposition(words: &str) -> &str {
    let first = words.split_once(' ');
    let is_preposition = |word: &str| {
        let mut all = ["in", "for", "at", "near"].iter();
        all.any(|one| word.eq_ignore_ascii_case(one))
    };
    let rest = first.filter(|(word, _)| is_preposition(word));
    rest.map_or(words, |(_, rest)| rest)
}

/// How many of the words are the name of the place that they begin with.
fn length_of_name(words: &[&str]) -> usize {
    let listed = |length: &usize| places::is_listed(&text::normalise(&words[..*length].join(" ")));
    let all = text::normalise(&words.join(" "));
    let name = slots::words_of_a_name(slots::without_tail(&all));
    let mut lengths = (1..=words.len().min(5)).rev();
    lengths
        .find(listed)
        .unwrap_or(name.split_whitespace().count())
}

/// The clauses of a sentence that ask for something, if it refuses others before them: "what time is it" of "never mind
/// the weather, what time is it". Otherwise all of it.
fn wanted(sentence: &str) -> &str {
    let clauses = clauses(sentence);
    let words: Vec<String> = clauses
        .iter()
        .map(|range| text::normalise(&sentence[range.clone()]))
        .collect();
    let Some(refused) = words.iter().rposition(|clause| rules::is_negated(clause)) else {
        return sentence;
    };
    let asks = |at: usize| {
        let goes_on = ["and ", "or ", "nor "];
        let goes_on = goes_on.iter().any(|start| words[at].starts_with(start));
        let mood = mood::meant(&sentence[clauses[at].clone()]).mood;
        let is_request = rules::read(&words[at]).iter().any(|one| one.needs_tool());
        !goes_on && (is_request || matches!(mood, Mood::Question | Mood::Request))
    };
    let first = (refused + 1..clauses.len()).find(|&at| asks(at));
    let already = (0..refused).any(asks);
    let is_single = |first: usize| {
        sentence[..clauses[first].start].ends_with("but ")
            || rules::instead(&text::normalise(sentence)).is_empty()
    };
    match first {
        Some(first) if !already && is_single(first) => &sentence[clauses[first].start..],
        _ => sentence,
    }
}

/// The clauses of a sentence, cut at commas and at "but".
fn clauses(sentence: &str) -> Vec<Range<usize>> {
    static BORDER: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r",? but |, ").ok());
    let mut clauses = Vec::new();
    let mut start = 0;
    let borders = BORDER.iter().flat_map(|border| border.find_iter(sentence));
    for border in borders {
        clauses.push(start..border.start());
        start = border.end();
    }
    clauses.push(start..sentence.len());
    clauses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_beside_a_refusal_remains() {
        for (said, remains) in [
            (
                "I don't care about the weather, what time is it?",
                "what time is it?",
            ),
            ("Never mind, what time is it?", "what time is it?"),
            ("I don't have a watch, what time is it?", "what time is it?"),
            ("Not the time, the date please.", "the date please."),
            ("Not the time but the date.", "the date."),
            (
                "I don't need the weather, but what time is it?",
                "what time is it?",
            ),
            ("No, what's five plus six?", "what's five plus six?"),
            (
                "Hello. I'm not sure, tell me the time.",
                "Hello. tell me the time.",
            ),
        ] {
            assert_eq!(revised(said), remains, "{said}");
        }
        for said in [
            "Set a timer for ten minutes, no, don't",
            "Don't tell me the time, and what day it is",
            "I don't think so, it was the other one",
            "Don't do that, please",
            "I don't want a timer, just tell me the time",
            "What time is it, if you don't mind",
            "Tell me the time, not the date",
            "Tell me the time but not the date",
            "Don't tell me the time but don't set a timer",
        ] {
            assert_eq!(revised(said), said);
        }
    }

    #[test]
    fn the_words_behind_a_correction_replace_those_before_it() {
        for (said, meant) in [
            (
                "What's the weather in London? No wait, I mean Leeds.",
                "What's the weather in Leeds?",
            ),
            (
                "What time is it in Tokyo, no wait, in Paris?",
                "What time is it in Paris?",
            ),
            (
                "What is the weather in Rome tomorrow, sorry, I meant Oslo.",
                "What is the weather in Oslo tomorrow.",
            ),
            (
                "the weather in New York actually Boston",
                "the weather in Boston.",
            ),
            (
                "What is the weather in Rome today, no wait, tomorrow?",
                "What is the weather in Rome tomorrow",
            ),
        ] {
            assert_eq!(corrected(said).as_deref(), Some(meant), "{said}");
        }
        for said in [
            "What's the weather in London?",
            "What time is it in London? Actually, never mind.",
            "What do you mean?",
            "Set a timer for 5 minutes, no wait, 10 minutes.",
            "No, I mean Leeds.",
        ] {
            assert_eq!(corrected(said), None, "{said}");
        }
    }
}
