//! Tags the words of a text that fill slots, learned from annotated examples.
//!
//! An averaged structured perceptron over tokens, decoded by Viterbi: each token begins a slot,
//! continues one, or stands outside. It learns in seconds and reads a sentence in microseconds.

use super::features::hash;
use super::linear::Random;
use super::packed;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::ops::Range;

const PASSES: usize = 10;
/// Clues seen less often are chance.
const LEAST_SEEN: u32 = 2;
/// Average weights below this change no decision worth its space.
const NEGLIGIBLE: f32 = 0.1;
/// Longest name of a place in words.
const PLACE_WORDS: usize = 4;

/// A text and its slots, as in [`super::training::examples::Example`].
pub(super) type Annotated<'a> = (&'a str, &'a [(String, Range<usize>)]);

/// A trained tagger.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tagger {
    slots: Vec<String>,
    /// `[tags, tags]`: from, to.
    #[serde(with = "packed")]
    transitions: Vec<f32>,
    /// Hashes of the clues in ascending order.
    #[serde(with = "packed")]
    clues: Vec<u32>,
    /// For each clue where its entries begin; one more at the end.
    #[serde(with = "packed")]
    starts: Vec<u32>,
    #[serde(with = "packed")]
    tags: Vec<u8>,
    #[serde(with = "packed")]
    weights: Vec<f32>,
}

/// Tag 0 is outside; of slot `n`, tag `2n + 1` begins it and `2n + 2` continues it.
fn begins(slot: usize) -> usize {
    2 * slot + 1
}

/// A continuation follows a beginning or continuation of the same slot only.
fn may_follow(from: usize, to: usize) -> bool {
    let continues = to > 0 && to.is_multiple_of(2);
    !continues || from == to || from + 1 == to
}

impl Tagger {
    /// Trains on annotated texts. The same examples give the same tagger; 127 slots at most are
    /// told apart.
    pub(super) fn train(examples: &[Annotated<'_>]) -> Self {
        let mut slots: Vec<String> = examples
            .iter()
            .flat_map(|(_, slots)| slots.iter().map(|(name, _)| name.clone()))
            .collect();
        slots.sort();
        slots.dedup();
        slots.truncate(127);
        Training::new(slots, examples).run()
    }

    /// The slots of a text, in order.
    pub(super) fn tag(&self, text: &str) -> Vec<(String, Range<usize>)> {
        let tokens = tokens(text);
        let tags = self.count();
        let clues = clues(text, &tokens);
        let mut scores = vec![0.0; tokens.len() * tags];
        for (at, clues) in clues.iter().enumerate() {
            for clue in clues {
                let Ok(place) = self.clues.binary_search(clue) else {
                    continue;
                };
                let range = self.starts[place] as usize..self.starts[place + 1] as usize;
                for entry in range {
                    scores[at * tags + usize::from(self.tags[entry])] += self.weights[entry];
                }
            }
        }
        let path = viterbi(&scores, &self.transitions, tags);
        spans(&path, &tokens)
            .into_iter()
            .map(|(slot, range)| (self.slots[slot].clone(), range))
            .collect()
    }

    /// Whether its parts fit together, so that [`Tagger::tag`] cannot fail.
    pub(super) fn is_sound(&self) -> bool {
        let tags = self.count();
        self.slots.len() <= 127
            && self.transitions.len() == tags * tags
            && self.starts.len() == self.clues.len() + 1
            && self.starts.windows(2).all(|two| two[0] <= two[1])
            && self.clues.windows(2).all(|two| two[0] < two[1])
            && self.starts.last().map(|&end| end as usize) == Some(self.weights.len())
            && self.tags.len() == self.weights.len()
            && self.tags.iter().all(|&tag| usize::from(tag) < tags)
    }

    fn count(&self) -> usize {
        2 * self.slots.len() + 1
    }
}

/// A perceptron while it learns. Its average over all steps is the sum of weights divided by
/// steps; each weight's sum is brought up to date only when the weight changes.
struct Training {
    slots: Vec<String>,
    sentences: Vec<Sentence>,
    clues: Vec<u32>,
    weights: Averaged,
    transitions: Averaged,
    step: u32,
}

struct Sentence {
    /// For each token the places of its clues.
    clues: Vec<Vec<u32>>,
    gold: Vec<usize>,
}

#[derive(Default)]
struct Averaged {
    now: Vec<f32>,
    sum: Vec<f32>,
    since: Vec<u32>,
}

impl Averaged {
    fn new(length: usize) -> Self {
        Self {
            now: vec![0.0; length],
            sum: vec![0.0; length],
            since: vec![0; length],
        }
    }

    fn add(&mut self, at: usize, change: f32, step: u32) {
        self.sum[at] += self.now[at] * (step - self.since[at]) as f32;
        self.since[at] = step;
        self.now[at] += change;
    }

    fn average(&self, step: u32) -> Vec<f32> {
        let all = self.now.iter().zip(&self.sum).zip(&self.since);
        all.map(|((now, sum), since)| (sum + now * (step - since) as f32) / step.max(1) as f32)
            .collect()
    }
}

impl Training {
    fn new(slots: Vec<String>, examples: &[Annotated<'_>]) -> Self {
        let read: Vec<(Vec<Vec<u32>>, Vec<usize>)> = examples
            .iter()
            .map(|(text, annotated)| {
                let tokens = tokens(text);
                (clues(text, &tokens), gold(&tokens, annotated, &slots))
            })
            .collect();
        let mut counts: HashMap<u32, u32> = HashMap::new();
        let all = read.iter().flat_map(|(clues, _)| clues.iter().flatten());
        all.for_each(|clue| *counts.entry(*clue).or_default() += 1);
        let frequent = counts.into_iter().filter(|(_, seen)| *seen >= LEAST_SEEN);
        let mut clues: Vec<u32> = frequent.map(|(clue, _)| clue).collect();
        clues.sort_unstable();
        let place = |clue: &u32| clues.binary_search(clue).ok().map(|at| at as u32);
        let sentences = read
            .into_iter()
            .map(|(found, gold)| Sentence {
                clues: found
                    .iter()
                    .map(|clues| clues.iter().filter_map(place).collect())
                    .collect(),
                gold,
            })
            .collect();
        let tags = 2 * slots.len() + 1;
        Self {
            weights: Averaged::new(clues.len() * tags),
            transitions: Averaged::new(tags * tags),
            slots,
            sentences,
            clues,
            step: 0,
        }
    }

    fn run(mut self) -> Tagger {
        let mut order: Vec<usize> = (0..self.sentences.len()).collect();
        let mut random = Random(0x2545_F491_4F6C_DD1D);
        for _ in 0..PASSES {
            random.shuffle(&mut order);
            for &at in &order {
                self.learn(at);
            }
        }
        self.compact()
    }

    fn learn(&mut self, at: usize) {
        self.step += 1;
        let tags = 2 * self.slots.len() + 1;
        let sentence = &self.sentences[at];
        let mut scores = vec![0.0; sentence.gold.len() * tags];
        for (token, clues) in sentence.clues.iter().enumerate() {
            let scores = &mut scores[token * tags..][..tags];
            for &clue in clues {
                let weights = &self.weights.now[clue as usize * tags..][..tags];
                let pairs = scores.iter_mut().zip(weights);
                pairs.for_each(|(score, weight)| *score += weight);
            }
        }
        let path = viterbi(&scores, &self.transitions.now, tags);
        for (token, (&found, &gold)) in path.iter().zip(&sentence.gold).enumerate() {
            if found != gold {
                for &clue in &sentence.clues[token] {
                    let row = clue as usize * tags;
                    self.weights.add(row + gold, 1.0, self.step);
                    self.weights.add(row + found, -1.0, self.step);
                }
            }
            let before = token.checked_sub(1);
            let from = |path: &[usize]| before.map_or(0, |before| path[before]) * tags;
            let (right, wrong) = (from(&sentence.gold) + gold, from(&path) + found);
            if right != wrong {
                self.transitions.add(right, 1.0, self.step);
                self.transitions.add(wrong, -1.0, self.step);
            }
        }
    }

    fn compact(self) -> Tagger {
        let tags = 2 * self.slots.len() + 1;
        let weights = self.weights.average(self.step);
        let mut tagger = Tagger {
            transitions: self.transitions.average(self.step),
            slots: self.slots,
            clues: Vec::new(),
            starts: vec![0],
            tags: Vec::new(),
            weights: Vec::new(),
        };
        for (clue, row) in self.clues.iter().zip(weights.chunks_exact(tags)) {
            let before = tagger.weights.len();
            for (tag, weight) in row
                .iter()
                .enumerate()
                .filter(|(_, w)| w.abs() >= NEGLIGIBLE)
            {
                tagger.tags.push(tag as u8);
                tagger.weights.push(*weight);
            }
            if tagger.weights.len() > before {
                tagger.clues.push(*clue);
                tagger.starts.push(tagger.weights.len() as u32);
            }
        }
        tagger
    }
}

/// The best path through `[tokens, tags]` scores; before the first token stands tag 0.
fn viterbi(scores: &[f32], transitions: &[f32], tags: usize) -> Vec<usize> {
    let mut best = vec![f32::NEG_INFINITY; tags];
    best[0] = 0.0;
    let mut from = Vec::with_capacity(scores.len());
    for row in scores.chunks_exact(tags) {
        let mut next = vec![f32::NEG_INFINITY; tags];
        for (to, next) in next.iter_mut().enumerate() {
            let reachable = (0..tags).filter(|&before| may_follow(before, to));
            let scored =
                reachable.map(|before| (before, best[before] + transitions[before * tags + to]));
            let (before, score) = scored
                .max_by(|a, b| a.1.total_cmp(&b.1))
                .unwrap_or((0, f32::NEG_INFINITY));
            *next = score + row[to];
            from.push(before);
        }
        best = next;
    }
    let last = (0..tags).max_by(|&a, &b| best[a].total_cmp(&best[b]));
    let mut tag = last.unwrap_or(0);
    let mut path = Vec::with_capacity(scores.len() / tags);
    for row in from.chunks_exact(tags).rev() {
        path.push(tag);
        tag = row[tag];
    }
    path.reverse();
    path
}

fn spans(path: &[usize], tokens: &[Range<usize>]) -> Vec<(usize, Range<usize>)> {
    let mut spans: Vec<(usize, Range<usize>)> = Vec::new();
    for (tag, token) in path.iter().zip(tokens) {
        match tag.checked_sub(1) {
            None => {}
            Some(tag) if tag.is_multiple_of(2) => spans.push((tag / 2, token.clone())),
            Some(_) => {
                if let Some((_, range)) = spans.last_mut() {
                    range.end = token.end;
                }
            }
        }
    }
    spans
}

fn gold(
    tokens: &[Range<usize>],
    annotated: &[(String, Range<usize>)],
    slots: &[String],
) -> Vec<usize> {
    let mut last: Option<usize> = None;
    let mut tag = |token: &Range<usize>| {
        let inside = |(_, range): &(String, Range<usize>)| {
            range.start < token.end && token.start < range.end
        };
        let Some(at) = annotated.iter().position(inside) else {
            last = None;
            return 0;
        };
        let Ok(slot) = slots.binary_search(&annotated[at].0) else {
            return 0;
        };
        let goes_on = last == Some(at);
        last = Some(at);
        begins(slot) + usize::from(goes_on)
    };
    tokens.iter().map(&mut tag).collect()
}

/// Words and marks, as byte ranges.
fn tokens(text: &str) -> Vec<Range<usize>> {
    let mut tokens: Vec<Range<usize>> = Vec::new();
    let mut word: Option<usize> = None;
    for (at, letter) in text.char_indices() {
        let belongs = letter.is_alphanumeric() || matches!(letter, '\'' | '’' | '-' | '&');
        let end = at + letter.len_utf8();
        match (belongs, word) {
            (true, None) => word = Some(at),
            (false, Some(start)) => {
                tokens.push(start..at);
                word = None;
            }
            _ => {}
        }
        if !belongs && !letter.is_whitespace() {
            tokens.push(at..end);
        }
    }
    if let Some(start) = word {
        tokens.push(start..text.len());
    }
    tokens
}

/// For each token what tells its tag: the words around it, its letters, what it is known to be.
fn clues(text: &str, tokens: &[Range<usize>]) -> Vec<Vec<u32>> {
    let words: Vec<String> = tokens
        .iter()
        .map(|range| text[range.clone()].to_lowercase())
        .collect();
    let places = places(&words);
    let word = |at: isize| -> &str {
        let at = usize::try_from(at).ok();
        at.and_then(|at| words.get(at)).map_or("", String::as_str)
    };
    let of_token = |at: usize| {
        let near = |offset: isize| word(at as isize + offset).as_bytes();
        let mut clues = vec![
            hash(10, []),
            hash(11, [near(0)]),
            hash(12, [near(-1)]),
            hash(13, [near(1)]),
            hash(14, [near(-2)]),
            hash(15, [near(2)]),
            hash(16, [near(-1), b" ", near(0)]),
            hash(17, [near(0), b" ", near(1)]),
            hash(18, [near(-2), b" ", near(-1)]),
            hash(19, [near(1), b" ", near(2)]),
            hash(20, [near(-1), b" ", near(1)]),
            hash(21, [shape(&text[tokens[at].clone()]).as_bytes()]),
            hash(22, [places[at].as_bytes()]),
            hash(23, [near(-3)]),
            hash(24, [near(3)]),
            hash(25, [near(-1), b" ", places[at].as_bytes()]),
        ];
        edges(&words[at], &mut clues);
        clues
    };
    (0..tokens.len()).map(of_token).collect()
}

/// The first and last letters of a word.
fn edges(word: &str, clues: &mut Vec<u32>) {
    let letters: Vec<char> = word.chars().collect();
    for length in 1..=letters.len().min(4) {
        let start: String = letters[..length].iter().collect();
        let end: String = letters[letters.len() - length..].iter().collect();
        clues.push(hash(30, [start.as_bytes()]));
        clues.push(hash(31, [end.as_bytes()]));
    }
}

fn shape(word: &str) -> String {
    let mut shape = String::new();
    for letter in word.chars() {
        let kind = match letter {
            letter if letter.is_ascii_digit() => 'd',
            letter if letter.is_uppercase() => 'A',
            letter if letter.is_alphabetic() => 'a',
            _ => '.',
        };
        if !shape.ends_with(kind) {
            shape.push(kind);
        }
    }
    shape
}

/// Whether each word begins or continues the name of a known place.
fn places(words: &[String]) -> Vec<&'static str> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut marks = vec!["-"; words.len()];
    let mut at = 0;
    while at < words.len() {
        let longest = PLACE_WORDS.min(words.len() - at);
        let length = (1..=longest).rev().find(|&length| {
            crate::language::en::places::is_listed(&words[at..at + length].join(" "))
        });
        if let Some(length) = length {
            marks[at..at + length].fill("inside");
            marks[at] = "begin";
        }
        at += length.unwrap_or(1);
    }
    marks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotated(text: &str, slots: &[(&str, &str)]) -> (String, Vec<(String, Range<usize>)>) {
        let find = |(name, words): &(&str, &str)| {
            let start = text.find(words).unwrap();
            ((*name).to_owned(), start..start + words.len())
        };
        (text.into(), slots.iter().map(find).collect())
    }

    fn tagger() -> Tagger {
        let cities = [
            "Paris",
            "New York",
            "Boulder",
            "San Jose",
            "Rome",
            "Los Angeles",
        ];
        let airlines = ["united", "delta", "swiss", "lufthansa"];
        let mut examples = Vec::new();
        for (at, from) in cities.iter().enumerate() {
            let to = cities[(at + 1) % cities.len()];
            let with = airlines[at % airlines.len()];
            let text = format!("Book me a flight from {from} to {to} with {with}, please");
            examples.push(annotated(
                &text,
                &[("from", from), ("to", to), ("airline", with)],
            ));
            let text = format!("I want to go to {to}");
            examples.push(annotated(&text, &[("to", to)]));
        }
        let borrowed: Vec<Annotated<'_>> = examples
            .iter()
            .map(|(text, slots)| (text.as_str(), slots.as_slice()))
            .collect();
        Tagger::train(&borrowed)
    }

    #[test]
    fn learns_slots_from_examples_and_finds_them_in_new_texts() {
        let tagger = tagger();
        assert!(tagger.is_sound());
        let text = "a flight from Denver to New Orleans with delta";
        let found: Vec<(String, &str)> = tagger
            .tag(text)
            .into_iter()
            .map(|(name, range)| (name, &text[range]))
            .collect();
        let expected = [
            ("from", "Denver"),
            ("to", "New Orleans"),
            ("airline", "delta"),
        ];
        assert_eq!(
            found,
            expected.map(|(name, words)| (name.to_owned(), words))
        );
        assert!(tagger.tag("").is_empty());
        assert!(tagger.tag("what a day").is_empty());
        let text = serde_json::to_string(&tagger).unwrap();
        assert_eq!(serde_json::from_str::<Tagger>(&text).unwrap(), tagger);
    }

    #[test]
    fn what_was_stored_wrongly_is_not_sound() {
        let mut tagger = tagger();
        tagger.tags[0] = 99;
        assert!(!tagger.is_sound());
    }

    #[test]
    fn a_slot_is_never_continued_before_it_began() {
        // Tag 2 scores best, but nothing began slot 0.
        let path = viterbi(&[0.0, 1.0, 5.0, 0.0, 1.0, 5.0], &[0.0; 9], 3);
        assert_eq!(path, [1, 2]);
    }

    #[test]
    fn words_are_cut_from_marks() {
        let text = "Don't go, \"größe\"!";
        let words: Vec<&str> = tokens(text).into_iter().map(|range| &text[range]).collect();
        assert_eq!(words, ["Don't", "go", ",", "\"", "größe", "\"", "!"]);
    }
}
