//! Splits an utterance where a second request may begin.

use super::rules;
use crate::language::en::text;
use regex::Regex;
use std::ops::Range;
use std::sync::LazyLock;

/// The most pieces, because each costs an embedding of about 5 ms. With more, the utterance is read as a
/// whole.
const MOST_PIECES: usize = 12;

/// A part of an utterance, in bytes, that may be a separate request.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Piece {
    pub range: Range<usize>,
    pub begins_sentence: bool,
}

/// The pieces of an utterance: its sentences, cut at commas and at "and". A sentence that reports or supposes
/// something is not cut. If any sentence negates or corrects something, nothing is cut, because that may
/// apply to all pieces. Empty if there is only one piece.
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
        let told = rules::is_told(&text::normalise(&said[sentence.clone()]));
        let mut start = sentence.start;
        for border in borders(&said[sentence.clone()]).filter(|_| !told) {
            pieces.push(Piece {
                range: start..sentence.start + border.start,
                begins_sentence: start == sentence.start,
            });
            start = sentence.start + border.end;
        }
        pieces.push(Piece {
            range: start..sentence.end,
            begins_sentence: start == sentence.start,
        });
    }
    match pieces.len() {
        2..=MOST_PIECES => pieces,
        _ => Vec::new(),
    }
}

fn sentence_ranges(said: &str) -> Vec<Range<usize>> {
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
    fn cuts_nothing_if_something_is_negated_or_corrected() {
        assert_eq!(cut("Set a timer and don't tell me the time."), [""; 0]);
        assert_eq!(cut("The time in Oslo, no wait, in Tokyo."), [""; 0]);
        assert_eq!(cut("Ja, schön. ".repeat(10_000).as_str()), [""; 0]);
    }
}
