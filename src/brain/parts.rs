//! Splits an utterance where a second request may begin.

use super::rules;
use crate::language::en::{places, slots, text};
use regex::Regex;
use std::ops::Range;
use std::sync::LazyLock;

/// The most pieces, because each costs an embedding of about 5 ms. With more, the utterance is read as a
/// whole.
const MOST_PIECES: usize = 12;

/// The beginning of a sentence that goes on with the one before.
const AND: &str = "and ";

/// A part of an utterance, in bytes, that may be a separate request.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Piece {
    pub range: Range<usize>,
    pub begins_sentence: bool,
    /// It follows an "and", which may be between two items of a list or begin the sentence.
    pub after_and: bool,
}

/// The pieces of an utterance: its sentences, cut at commas and at "and". A sentence that reports or supposes
/// something, or dictates a reminder, is not cut. If any sentence negates or corrects something, nothing is cut,
/// because that may apply to all pieces. Empty if there is only one piece.
pub(super) fn pieces(said: &str) -> Vec<Piece> {
    let sentences = text::sentences(said);
    let revised = |sentence: &String| {
        rules::is_negated(sentence) || rules::is_corrected(text::without_fillers(sentence))
    };
    if sentences.iter().any(revised) {
        return Vec::new();
    }
    let mut pieces: Vec<Piece> = Vec::new();
    for sentence in sentence_ranges(said) {
        let words = text::normalise(&said[sentence.clone()]);
        let whole = rules::is_told(&words) || rules::is_reminder(&words);
        let all = &said[sentence.clone()];
        let rest = match all.get(..AND.len()) {
            Some(first) if first.eq_ignore_ascii_case(AND) => all[AND.len()..].trim_start(),
            _ => all,
        };
        let begin = sentence.end - rest.len();
        let (mut start, mut after_and) = (begin, rest.len() < all.len());
        for border in borders(rest).filter(|_| !whole) {
            pieces.push(Piece {
                range: start..begin + border.start,
                begins_sentence: start == begin,
                after_and,
            });
            start = begin + border.end;
            after_and = rest[border].to_lowercase().contains("and");
        }
        pieces.push(Piece {
            range: start..sentence.end,
            begins_sentence: start == begin,
            after_and,
        });
    }
    match pieces.len() {
        2..=MOST_PIECES => pieces,
        _ => Vec::new(),
    }
}

/// The request `first` for each place of a list that ends with `last`: "the weather in Oslo" and "Rome
/// tomorrow" are the weather tomorrow in both. Empty if they are not a list of known places.
pub(super) fn for_each_place(first: &str, last: &str) -> Vec<String> {
    static PLACES: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"(?i)^(?P<request>.*\b(?:in|for|at|near)) (?P<places>.+)$").ok()
    });
    let found = PLACES.as_ref().and_then(|places| places.captures(first));
    let Some(found) = found else {
        return Vec::new();
    };
    let last = text::normalise(last);
    let last = last
        .split_once(' ')
        .filter(|(word, _)| ["in", "for", "at", "near"].contains(word))
        .map_or(last.as_str(), |(_, place)| place);
    let name = slots::without_tail(last);
    let mut names: Vec<String> = match text::normalise(&found["places"]) {
        one if places::is_known(&one) => vec![one],
        _ => found["places"].split(',').map(text::normalise).collect(),
    };
    let is_one = names
        .iter()
        .any(|other| places::is_known(&format!("{other} and {name}")));
    names.push(name.to_owned());
    if is_one || !names.iter().all(|name| places::is_known(name)) {
        return Vec::new();
    }
    let (request, tail) = (&found["request"], &last[name.len()..]);
    let each = names.iter().map(|name| places::title_case(name));
    each.map(|name| format!("{request} {name}{tail}")).collect()
}

/// The sentences of an utterance, in bytes, without the marks between them.
pub(super) fn sentence_ranges(said: &str) -> Vec<Range<usize>> {
    static END: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"(?i)(?P<word>\b(?:st|mt|mr|mrs|ms|dr|[a-z]))?[.?!;]*(?:[.?!;]\s|\n)\s*").ok()
    });
    let mut ranges = Vec::new();
    let mut start = 0;
    for found in END.iter().flat_map(|end| end.captures_iter(said)) {
        if let (None, Some(end)) = (found.name("word"), found.get(0)) {
            ranges.push(start..end.start());
            start = end.end();
        }
    }
    ranges.push(start..said.len());
    ranges.retain(|range| !range.is_empty());
    ranges
}

fn borders(sentence: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    static BORDER: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"(?i),\s+(?:(?:and|then|also)\s+)*|\s+and\s+(?:(?:then|also)\s+)*").ok()
    });
    let found = BORDER.iter().flat_map(|border| border.find_iter(sentence));
    found.map(|border| border.range())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(said: &str) -> Vec<&str> {
        let pieces = pieces(said).into_iter();
        pieces.map(|piece| &said[piece.range]).collect()
    }

    #[test]
    fn cuts_where_a_request_may_begin() {
        assert_eq!(
            cut("Weather in St. Louis and then the time in Washington, D.C. right now! Thanks."),
            [
                "Weather in St. Louis",
                "the time in Washington",
                "D.C. right now",
                "Thanks."
            ]
        );
        assert_eq!(cut("What is 1,000 plus 2.5?"), [""; 0]);
        assert_eq!(
            cut("My wife said so and left. Is it late, and where?"),
            ["My wife said so and left", "Is it late", "where?"]
        );
        let sentences = pieces("One, two. Three");
        let begins: Vec<bool> = sentences
            .iter()
            .map(|piece| piece.begins_sentence)
            .collect();
        assert_eq!(begins, [true, false, true]);
    }

    #[test]
    fn a_sentence_may_go_on_with_the_one_before() {
        let said = "What's the weather in Oslo? And in Rome?";
        assert_eq!(cut(said), ["What's the weather in Oslo", "in Rome?"]);
        let last = pieces(said).pop().unwrap();
        assert!(last.begins_sentence && last.after_and);
        assert_eq!(cut("Hello. And and what time is it?").len(), 2);
    }

    #[test]
    fn a_list_of_places_is_a_request_for_each() {
        for (first, last, each) in [
            (
                "the weather in London",
                "Paris",
                vec!["the weather in London", "the weather in Paris"],
            ),
            (
                "weather in Oslo",
                "in Rome tomorrow",
                vec!["weather in Oslo tomorrow", "weather in Rome tomorrow"],
            ),
            (
                "weather in Oslo, Rome",
                "Paris",
                vec!["weather in Oslo", "weather in Rome", "weather in Paris"],
            ),
            ("the weather in Trinidad", "Tobago", vec![]),
            ("the weather in Oslo", "my mood", vec![]),
            ("a timer", "Paris", vec![]),
        ] {
            assert_eq!(for_each_place(first, last), each, "{first} and {last}");
        }
    }

    #[test]
    fn a_reminder_is_not_cut() {
        assert_eq!(cut("Remind me to check the time and the weather."), [""; 0]);
    }

    #[test]
    fn cuts_nothing_if_something_is_negated_or_corrected() {
        assert_eq!(cut("Set a timer and don't tell me the time."), [""; 0]);
        assert_eq!(cut("The time in Oslo, no wait, in Tokyo."), [""; 0]);
        assert_eq!(cut("Ja, schön. ".repeat(10_000).as_str()), [""; 0]);
    }
}
