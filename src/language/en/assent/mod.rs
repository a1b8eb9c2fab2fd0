//! Classifies replies as yes or no. A yes is agreement that adds nothing new.
//!
//! The known phrases are listed in `phrases.rs`. A reply with anything unknown is not a yes, and runs
//! nothing. A yes can be split completely into
//!
//! - agreement ("yes", "go ahead", "that works"), at least once, and clear in its context: people also
//!   decline with "that's okay, thanks",
//! - politeness ("please", "thanks", "oh"),
//! - repetition of the question: consecutive words of the question, the tool's name or an argument, in
//!   order, each phrase with its preposition ("book the table for 2" of "Shall I book a table for 2 at
//!   Luigi's?", but neither "table 2" nor "at 2"); or its verb with a pronoun ("book it").
//!
//! A question that lists or excludes something ("milk and eggs", "without onions") may only be repeated as
//! a whole, because a part of it means something else.

mod phrases;
mod repetition;
mod words;

use phrases::{
    LEADS, NO, OKAY, POLITE, PRONOUNS, RATHER_YES, REFUSING, SCORN, SHORT, SHORT_AT_END, THANKS,
    YES,
};
use repetition::{Repeating, Sources};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use words::{is, words};

/// A reply with at least this many words is not a plain yes.
const MOST_SAID: usize = 32;

/// How a reply answers a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    /// It agrees and adds nothing.
    Yes,
    /// It refuses.
    No,
    /// Anything else, such as a yes with a condition.
    Other,
}

/// A yes-or-no question and the call that it is about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) question: &'a str,
    pub(crate) tool: &'a str,
    pub(crate) arguments: &'a Map<String, Value>,
}

/// Whether `text` is agreement and nothing else.
pub(crate) fn agrees(text: &str) -> bool {
    read(text, &Sources::default()) == Reply::Yes
}

/// Classifies `text` as the answer to a question.
pub(crate) fn reply(text: &str, asked: Asked<'_>) -> Reply {
    read(text, &Sources::of(asked))
}

fn read(text: &str, sources: &Sources) -> Reply {
    let said = words(text);
    // A counter-question is not agreement.
    let cut = Cut {
        said: &said,
        sources,
    };
    if said.len() < MOST_SAID && cut.is_yes() && !text.contains('?') {
        Reply::Yes
    } else if is_no(&said) {
        Reply::No
    } else {
        Reply::Other
    }
}

/// Whether the words are refusals, at least one, and politeness.
fn is_no(said: &[String]) -> bool {
    const MANNERS: [&str; 4] = ["please", "sorry", "thanks", "thank you"];
    let mut at = 0;
    let mut refused = false;
    while at < said.len() {
        let longest = longest(NO, &said[at..]);
        if longest == 0 {
            return false;
        }
        let phrase = said[at..at + longest].join(" ");
        refused |= !MANNERS.contains(&phrase.as_str());
        at += longest;
    }
    refused
}

/// The length in words of the longest of `phrases` that `said` begins with.
fn longest(phrases: &[&str], said: &[String]) -> usize {
    beginnings(phrases, said).max().unwrap_or_default()
}

/// The lengths in words of all `phrases` that `said` begins with.
fn beginnings<'a>(phrases: &'a [&str], said: &'a [String]) -> impl Iterator<Item = usize> + 'a {
    phrases.iter().filter_map(|phrase| {
        let length = phrase.split(' ').count();
        let begins = said.len() >= length && phrase.split(' ').eq(said[..length].iter());
        begins.then_some(length)
    })
}

/// Splits a reply into agreement, politeness and repetition.
struct Cut<'a> {
    said: &'a [String],
    sources: &'a Sources,
}

/// The kinds of words found in one or more pieces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Found {
    yes: bool,
    okay: bool,
    rather_yes: bool,
    thanks: bool,
    short: bool,
    scorn: bool,
    /// The question's verb with a pronoun, such as "book it".
    verb: bool,
    /// Other words of the question. At most one piece, since two may change the meaning ("table", "2").
    words: bool,
}

impl Found {
    /// The combination of both, if that is allowed.
    fn and(self, more: Self) -> Option<Self> {
        let fits = !(self.verb && more.verb || self.words && more.words);
        fits.then_some(Self {
            yes: self.yes || more.yes,
            okay: self.okay || more.okay,
            rather_yes: self.rather_yes || more.rather_yes,
            thanks: self.thanks || more.thanks,
            short: self.short || more.short,
            scorn: self.scorn || more.scorn,
            verb: self.verb || more.verb,
            words: self.words || more.words,
        })
    }

    fn agrees(self) -> bool {
        let declines = self.short || self.rather_yes && self.thanks;
        let in_earnest = !self.scorn || self.verb || self.words;
        in_earnest && (self.yes || (self.okay || self.rather_yes) && !declines)
    }
}

impl Cut<'_> {
    /// Whether some way to split the whole reply contains agreement.
    fn is_yes(&self) -> bool {
        // The kinds found up to each word.
        let mut ways = vec![Vec::<Found>::new(); self.said.len() + 1];
        ways[0].push(Found::default());
        for at in 0..self.said.len() {
            let here = std::mem::take(&mut ways[at]);
            if here.is_empty() {
                continue;
            }
            for (length, piece) in self.pieces(at) {
                let there = &mut ways[at + length];
                for found in here.iter().filter_map(|found| found.and(piece)) {
                    if !there.contains(&found) {
                        there.push(found);
                    }
                }
            }
        }
        let last = ways.pop().unwrap_or_default();
        last.iter().any(|found| found.agrees())
    }

    /// The pieces that may begin at a word: the length of each and the kinds that it adds.
    fn pieces(&self, at: usize) -> Vec<(usize, Found)> {
        let rest = &self.said[at..];
        let found = |mark: fn(&mut Found)| {
            let mut found = Found::default();
            mark(&mut found);
            found
        };
        let short = found(|f| f.short = true);
        let kinds = [
            (YES, found(|f| f.yes = true)),
            (OKAY, found(|f| f.okay = true)),
            (RATHER_YES, found(|f| f.rather_yes = true)),
            (THANKS, found(|f| f.thanks = true)),
            (SHORT, short),
            (SCORN, found(|f| f.scorn = true)),
            (POLITE, Found::default()),
        ];
        let mut pieces: Vec<(usize, Found)> = Vec::new();
        for (phrases, found) in kinds {
            pieces.extend(beginnings(phrases, rest).map(|length| (length, found)));
        }
        let at_end = beginnings(SHORT_AT_END, rest).filter(|length| *length == rest.len());
        pieces.extend(at_end.map(|length| (length, short)));
        pieces.extend(self.repetitions(rest));
        for lead in beginnings(LEADS, rest) {
            let behind = self.repetitions(&rest[lead..]).into_iter();
            pieces.extend(behind.map(|(length, found)| (lead + length, found)));
        }
        if at > 0 && self.said[at - 1..].starts_with(&["yeah".into(), "right".into()]) {
            // "yeah right" is one piece: of its second word only longer phrases such as "right away" count.
            pieces.retain(|(length, _)| *length > 1);
        }
        pieces
    }

    /// Repetitions of the question that `rest` may begin with.
    fn repetitions(&self, rest: &[String]) -> Vec<(usize, Found)> {
        let mut pieces = Vec::new();
        if let [verb, pronoun, ..] = rest
            && is(PRONOUNS, pronoun)
            && self.sources.verbs.contains(verb)
            && self.may_say(verb)
            && !is_no(&rest[..2])
        {
            let found = Found {
                verb: true,
                ..Found::default()
            };
            pieces.push((2, found));
        }
        for source in &self.sources.all {
            let mut repeating = Repeating {
                source,
                own_verb: self.sources.own_verb.as_deref(),
                rest,
                seen: BTreeSet::new(),
                lengths: BTreeSet::new(),
            };
            for from in (0..source.words.len()).filter(|from| !source.cuts_number(*from)) {
                repeating.from(from, from, 0);
            }
            let found = Found {
                words: true,
                ..Found::default()
            };
            pieces.extend(repeating.lengths.into_iter().map(|length| (length, found)));
        }
        pieces
    }

    fn may_say(&self, verb: &String) -> bool {
        !is(REFUSING, verb) || self.sources.own_verb.as_ref() == Some(verb)
    }
}

#[cfg(test)]
mod tests;
