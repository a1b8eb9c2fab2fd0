//! Whether words are a yes to a question: agreement, and beside it nothing that is new.
//!
//! What may accompany agreement is listed here; everything unknown makes the words something else,
//! which runs nothing. A yes is cut whole into
//!
//! - agreement ("yes", "go ahead", "that works"), at least once, and clear enough for what else is
//!   said: people decline with "that's okay, thanks", too,
//! - politeness ("please", "thanks", "oh"),
//! - the question repeated: words in a row of the question, of the tool's name or of an argument, in
//!   that order, each phrase with its preposition ("book the table for 2" of "Shall I book a table for
//!   2 at Luigi's?", but neither "table 2" nor "at 2"); its verb with a pronoun ("book it").
//!
//! A question that lists or excludes something ("milk and eggs", "without onions") says something else
//! in parts, so it is only repeated whole.

use crate::router::text::sentences;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Agreement that needs nothing beside it.
const YES: &[&str] = &[
    "yes",
    "yeah",
    "yep",
    "yup",
    "yes sir",
    "yes indeed",
    "sure",
    "sure thing",
    "for sure",
    "correct",
    "exactly",
    "absolutely",
    "definitely",
    "certainly",
    "indeed",
    "affirmative",
    "agreed",
    "i agree",
    "mhm",
    "mm hm",
    "mm hmm",
    "uh huh",
    "confirm",
    "confirmed",
    "i confirm",
    "i confirm that",
    "i confirm it",
    "confirm it",
    "confirm that",
    "please do",
    "please do it",
    "please do that",
    "please do so",
    "do it",
    "do that",
    "do so",
    "go ahead",
    "please go ahead",
    "go for it",
    "go ahead with it",
    "go ahead with that",
    "proceed",
    "please proceed",
    "by all means",
    "of course",
    "you bet",
    "that is right",
    "that is correct",
    "that is exactly right",
    "that is fine with me",
    "that is fine by me",
    "that is perfect",
    "that is what i want",
    "that is what i would like",
    "that works",
    "that works for me",
    "works for me",
    "that would work",
    "that would be good",
    "that would be great",
    "that would be fine",
    "that would be nice",
    "that would be lovely",
    "that would be perfect",
    "that would be wonderful",
    "sounds good",
    "sounds good to me",
    "sounds great",
    "sounds fine",
    "sounds perfect",
    "sounds right",
    "that sounds good",
    "that sounds great",
    "that sounds fine",
    "that sounds perfect",
    "that sounds right",
    "looks good",
    "looks good to me",
    "looks right",
    "that looks good",
    "that looks right",
    "fine by me",
    "fine with me",
    "okay with me",
    "okay by me",
    "i would like that",
    "i would like it",
    "i would love that",
    "i would appreciate that",
    "i want that",
    "i want it",
    "let us do it",
    "let us do that",
    "make it so",
];

/// Agreement unless a [`SHORT`] answer is beside it: "okay, that's it" ends something.
const OKAY: &[&str] = &["okay", "ok", "please", "i am sure", "i am certain"];

/// The same, and unless thanks are added: "that's fine, thanks" declines an offer.
const RATHER_YES: &[&str] = &[
    "fine",
    "right",
    "all right",
    "alright",
    "that is fine",
    "that is okay",
    "that is ok",
    "that is all right",
    "that is alright",
];

/// Said in earnest or in scorn: no yes, unless the question is repeated.
const SCORN: &[&str] = &["yeah right"];

/// What adds nothing to a clear yes. Without one it may be half a sentence ("I would…"), or decline
/// ("it's okay").
const SHORT: &[&str] = &[
    "i do",
    "i would",
    "we do",
    "we would",
    "you can",
    "you may",
    "do",
    "go on",
    "it is",
    "it does",
    "that is it",
    "that is good",
    "that will do",
];

/// The same at the end of a reply: behind it anything may come ("I am good").
const SHORT_AT_END: &[&str] = &["i am", "we are"];

/// What agreement comes with and adds nothing.
const POLITE: &[&str] = &[
    "that is great",
    "very well",
    "very good",
    "oh",
    "ah",
    "um",
    "uh",
    "hm",
    "hmm",
    "mm",
    "well",
    "great",
    "good",
    "perfect",
    "wonderful",
    "excellent",
    "lovely",
    "cool",
    "nice",
    "awesome",
    "super",
    "then",
    "very much",
    "kindly",
    "sir",
    "madam",
    "ma'am",
];

const THANKS: &[&str] = &[
    "thanks",
    "thank you",
    "thanks a lot",
    "thank you very much",
    "thank you so much",
    "many thanks",
    "thanks so much",
    "much appreciated",
];

/// What a repeated question may begin with.
const LEADS: &[&str] = &[
    "go ahead and",
    "please go ahead and",
    "i would like to",
    "i would like you to",
    "i would like",
    "i would love to",
    "i want to",
    "i want you to",
    "i want",
    "you can",
    "you may",
    "you should",
    "could you",
    "can you",
    "could you please",
    "can you please",
    "let us",
    "do",
    "i confirm",
];

/// All that counts as a no.
const NO: &[&str] = &[
    "no",
    "nope",
    "nah",
    "cancel",
    "cancel that",
    "stop",
    "do not",
    "do not do it",
    "do not do that",
    "please do not",
    "never mind",
    "nevermind",
    "forget it",
    "forget that",
    "wrong",
    "that is wrong",
    "not now",
    "no thanks",
    "no thank you",
    "no way",
    "leave it",
    "rather not",
    "i would rather not",
    "better not",
    "absolutely not",
    "definitely not",
    "certainly not",
    "of course not",
    "please",
    "sorry",
    "thanks",
    "thank you",
];

/// Words of refusal. Where a question has them they are not repeated with a yes, but for the verb of
/// the tool itself: "yes, cancel the booking".
const REFUSING: &[&str] = &[
    "no", "not", "nope", "nah", "never", "cannot", "cancel", "stop", "wait", "wrong", "forget",
    "hold", "abort", "leave", "later", "instead", "rather",
];

/// A question with one of these is only repeated whole.
const LISTING: &[&str] = &[
    "and", "or", "but", "either", "both", "neither", "nor", "not", "no", "never", "without",
    "except", "only", "unless", "if", "than", "instead", "rather", "cannot", "plus", "minus",
    "half", "quarter", "past",
];

/// Signs beside letters and digits that a question may be repeated in parts with; any other may
/// list or exclude something ("milk + eggs").
const PLAIN_SIGNS: &str = " .,?!'’\"-:$€£%";

/// Each begins a phrase, which keeps it.
const PREPOSITIONS: &[&str] = &[
    "to", "for", "at", "on", "in", "from", "with", "by", "of", "until", "till", "before", "after",
    "under", "over", "into", "about", "between", "near", "as", "per",
];

/// Words that do not count in a comparison.
const ARTICLES: &[&str] = &["a", "an", "the"];

/// Words that say nothing alone.
const EMPTY: &[&str] = &[
    "i", "me", "my", "you", "your", "we", "us", "our", "it", "its", "is", "are", "be", "am", "do",
    "does", "did", "have", "has", "shall", "should", "can", "could", "will", "would", "may",
    "want", "wants", "like", "let", "that", "this", "these", "those", "so", "please", "really",
    "sure",
];

/// What stands for the question's object behind its verb.
const PRONOUNS: &[&str] = &["it", "them", "that"];

/// Words of a reply from which on it is no plain yes.
const MOST_SAID: usize = 32;

/// Words of a question or an argument that can be repeated.
const MOST_ASKED: usize = 64;

/// What the user's words mean for a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reply {
    Yes,
    No,
    Other,
}

/// A question that is answered with yes or no, and the call that it is about.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) question: &'a str,
    pub(super) tool: &'a str,
    pub(super) arguments: &'a Map<String, Value>,
}

/// Whether these are words of agreement and nothing else.
pub(super) fn agrees(text: &str) -> bool {
    read(text, &Sources::default()) == Reply::Yes
}

/// What `text` means as the answer to a question.
pub(super) fn reply(text: &str, asked: Asked<'_>) -> Reply {
    read(text, &Sources::of(asked))
}

fn read(text: &str, sources: &Sources) -> Reply {
    let said = words(text);
    // Who asks back has not agreed.
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

/// As the router reads a sentence; amounts of money in words, since they are written either way.
fn words(text: &str) -> Vec<String> {
    let said = sentences(&text.replace('&', " and ")).join(" ");
    let said = said.replace("that'd ", "that would ");
    let said = said.replace("that'll ", "that will ");
    let mut words = Vec::new();
    for word in said.split_whitespace() {
        let word = word.trim_matches(['!', '"', '(', ')', '\'']);
        let symbol = word.chars().next().unwrap_or_default();
        let unit = match symbol {
            '$' => "dollars",
            '€' => "euros",
            '£' => "pounds",
            _ => {
                words.push(word.to_owned());
                continue;
            }
        };
        words.extend([word[symbol.len_utf8()..].to_owned(), unit.to_owned()]);
    }
    words.retain(|word| !word.is_empty());
    // "12 us dollars" is what "$12" is written as, too.
    let of_dollars: Vec<bool> = words
        .windows(2)
        .map(|pair| pair[0] == "us" && pair[1].starts_with("dollar"))
        .collect();
    let mut at = 0;
    words.retain(|_| {
        at += 1;
        !of_dollars.get(at - 1).copied().unwrap_or_default()
    });
    words
}

/// Only refusals, one of them at least, and manners.
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

/// How many words the longest of `phrases` takes that `said` begins with.
fn longest(phrases: &[&str], said: &[String]) -> usize {
    beginnings(phrases, said).max().unwrap_or_default()
}

/// The lengths of all `phrases` that `said` begins with.
fn beginnings<'a>(phrases: &'a [&str], said: &'a [String]) -> impl Iterator<Item = usize> + 'a {
    phrases.iter().filter_map(|phrase| {
        let length = phrase.split(' ').count();
        let begins = said.len() >= length && phrase.split(' ').eq(said[..length].iter());
        begins.then_some(length)
    })
}

/// Words that may be repeated, in a row.
#[derive(Debug)]
struct Source {
    /// Without articles.
    words: Vec<String>,
    /// Parts of it may be repeated.
    divisible: bool,
}

impl Source {
    fn of(text: &str) -> Self {
        // "Milk, eggs", but not "12,500".
        let lists = text
            .split(',')
            .skip(1)
            .any(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()));
        let mut words = words(text);
        words.retain(|word| !is(ARTICLES, word));
        let plain = |c: char| c.is_alphanumeric() || PLAIN_SIGNS.contains(c);
        let divisible = !lists
            && text.chars().all(plain)
            && !text.contains(" - ")
            && words.len() <= MOST_ASKED
            && !words.iter().any(|word| is(LISTING, word));
        words.truncate(MOST_ASKED);
        Self { words, divisible }
    }

    /// The verb: the first word that says something.
    fn verb(&self) -> Option<usize> {
        self.words.iter().position(|word| says_something(word))
    }

    /// Whether a repetition that begins or ends before the word `at` would cut a number in two:
    /// "3:30", "1 hour 30".
    fn cuts_number(&self, at: usize) -> bool {
        let is_number = |word: &String| word.starts_with(|c: char| c.is_ascii_digit());
        if !self.words.get(at).is_some_and(is_number) {
            return false;
        }
        match &self.words[..at] {
            [.., last] if is_number(last) => true,
            [.., number, unit] => is_number(number) && !is(PREPOSITIONS, unit),
            _ => false,
        }
    }
}

/// All that may be repeated of a question.
#[derive(Debug, Default)]
struct Sources {
    all: Vec<Source>,
    /// The verbs of the question and of the tool's name.
    verbs: Vec<String>,
    /// The tool's.
    own_verb: Option<String>,
}

impl Sources {
    fn of(asked: Asked<'_>) -> Self {
        let name = Source::of(&asked.tool.replace(['_', '-'], " "));
        let question = Source::of(asked.question);
        let verb = |source: &Source| source.verb().map(|at| source.words[at].clone());
        let own_verb = verb(&name);
        let verbs = own_verb.iter().cloned().chain(verb(&question)).collect();
        let values = asked.arguments.iter().flat_map(|(key, value)| {
            let value = match value {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                _ => return Vec::new(),
            };
            let key = key.replace(['_', '-'], " ");
            let named = Source {
                divisible: false,
                ..Source::of(&format!("{key} {value}"))
            };
            vec![Source::of(&value), named]
        });
        Self {
            all: [question, name].into_iter().chain(values).collect(),
            verbs,
            own_verb,
        }
    }
}

fn is(words: &[&str], word: &str) -> bool {
    words.contains(&word)
}

fn says_something(word: &str) -> bool {
    !is(EMPTY, word) && !is(PREPOSITIONS, word) && !is(ARTICLES, word) && !is(LISTING, word)
}

/// The user speaks of "my wife", the agent of "your wife".
fn is_same(said: &str, asked: &str) -> bool {
    said == asked
        || matches!(
            (said, asked),
            ("my", "your") | ("me", "you") | ("mine", "yours")
        )
}

/// How what was said is cut into agreement, politeness and repetition.
struct Cut<'a> {
    said: &'a [String],
    sources: &'a Sources,
}

/// What a piece adds, or several do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Found {
    yes: bool,
    okay: bool,
    rather_yes: bool,
    thanks: bool,
    short: bool,
    scorn: bool,
    /// The verb with its pronoun.
    verb: bool,
    /// Other words of the question. Only one piece: two may make another sense ("table", "2").
    words: bool,
}

impl Found {
    /// Both, if they may come together.
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
    /// Some way to cut all of it has agreement in it.
    fn is_yes(&self) -> bool {
        // What is found up to each word.
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

    /// The pieces that may begin at a word: how long each is, and what it adds.
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
            // The two are one piece; only "right away" is not cut in two.
            pieces.retain(|(length, _)| *length > 1);
        }
        pieces
    }

    /// The question repeated, as `rest` may begin with it.
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

/// One source, and how far what is said repeats it.
struct Repeating<'a> {
    source: &'a Source,
    own_verb: Option<&'a str>,
    rest: &'a [String],
    /// Where it was looked already.
    seen: BTreeSet<(usize, usize)>,
    /// How many words may be a repetition.
    lengths: BTreeSet<usize>,
}

impl Repeating<'_> {
    /// Goes on at the source's word `asked` with what is said from `at` on: phrase after phrase, of
    /// which later ones may be left out. `began` is where it began in the source.
    fn from(&mut self, began: usize, asked: usize, at: usize) {
        if !self.seen.insert((asked, at)) {
            return;
        }
        let source = self.source;
        let (mut said, mut asked, mut content) = (at, asked, false);
        loop {
            while self.rest.get(said).is_some_and(|word| is(ARTICLES, word)) {
                said += 1;
            }
            let (Some(word), Some(original)) = (self.rest.get(said), source.words.get(asked))
            else {
                return;
            };
            let refuses = is(REFUSING, word);
            if !is_same(word, original) || refuses && !self.is_own_verb(asked) {
                return;
            }
            (said, asked) = (said + 1, asked + 1);
            content |= says_something(word) && !refuses;
            let whole = asked == source.words.len() && source.verb().is_none_or(|v| began <= v);
            let ends = content && says_something(word) && !source.cuts_number(asked);
            if !ends || !source.divisible && !whole {
                continue;
            }
            self.lengths.insert(said);
            for next in asked + 1..source.words.len() {
                if is(PREPOSITIONS, &source.words[next]) {
                    self.from(began, next, said);
                }
            }
        }
    }

    /// The tool's own verb, which begins its name or the question, may be one of refusal.
    fn is_own_verb(&self, at: usize) -> bool {
        self.source.verb() == Some(at) && self.own_verb == Some(self.source.words[at].as_str())
    }
}

#[cfg(test)]
mod tests;
