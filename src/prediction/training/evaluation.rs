//! How well a head does on examples that it has not seen.

use super::examples::{Example, NONE};
use crate::language::en::text;
use crate::prediction::heads::{IntentHead, Judgement, quantile};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Share of requests answered at which rejection is reported, as published figures have it.
const COVERAGE: f32 = 0.9;
/// Pairs of intents that are listed as confused.
const CONFUSIONS: usize = 10;

/// Figures of one head on one set; shares are 0..1, and missing where there is nothing to count.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Evaluation {
    /// The set's name.
    pub set: String,
    /// Requests measured.
    pub requests: usize,
    /// Examples that ask for nothing.
    pub nothing: usize,
    /// Requests whose intent is right, none turned away.
    pub accuracy: Option<f32>,
    /// Of what asks for nothing, the share rejected when 90 % of the requests are let through.
    pub rejected_at_90: Option<f32>,
    /// At the head's own threshold.
    pub operating: Operating,
    /// Slots: exact spans of the right name, in the text of the right intent.
    pub slots: Option<SlotScore>,
    /// The most frequent confusions: right intent, found intent, how often.
    pub confusions: Vec<(String, String, usize)>,
    /// By how much of a sentence was heard.
    pub curve: Vec<CurvePoint>,
    /// Embedding, judging, slots.
    pub latency: Latency,
}

/// Figures at the head's own threshold.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Operating {
    /// Share of requests let through.
    pub coverage: Option<f32>,
    /// Of those, the share whose intent is right.
    pub accuracy: Option<f32>,
    /// Of what asks for nothing, the share rejected.
    pub rejected: Option<f32>,
}

/// Precision, recall and their harmonic mean.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SlotScore {
    /// Of the slots found, the share that is right.
    pub precision: f32,
    /// Of the slots there are, the share found.
    pub recall: f32,
    /// F1.
    pub f1: f32,
}

/// Figures for the first part of each sentence.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CurvePoint {
    /// Share of the words, in percent, rounded up to whole words.
    pub heard_percent: usize,
    /// Requests whose intent is right already, answered or not.
    pub accuracy: f32,
    /// Requests that pass the threshold.
    pub answered: f32,
    /// Of those, the share whose intent is right.
    pub accuracy_of_answered: Option<f32>,
}

/// Wall-clock time per text in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Latency {
    /// Median.
    pub p50_us: f32,
    /// 99th percentile.
    pub p99_us: f32,
}

impl Latency {
    /// Of these times.
    pub fn of(times: &[Duration]) -> Self {
        let micros: Vec<f32> = times.iter().map(|time| time.as_secs_f32() * 1e6).collect();
        Self {
            p50_us: quantile(micros.clone(), 0.5).unwrap_or(0.0),
            p99_us: quantile(micros, 0.99).unwrap_or(0.0),
        }
    }
}

struct Judged<'e> {
    example: &'e Example,
    judgement: Judgement,
}

/// Judges `examples`; the curve is drawn from `curve` of them, evenly picked. `embed` gives the
/// embedding of one normalised text.
///
/// # Errors
/// Errors of `embed`.
#[allow(
    clippy::disallowed_methods,
    reason = "it measures how long the router takes"
)]
pub fn evaluate<E>(
    set: &str,
    head: &IntentHead,
    examples: &[&Example],
    curve: usize,
    mut embed: impl FnMut(&str) -> Result<Vec<f32>, E>,
) -> Result<Evaluation, E> {
    let (mut judged, mut found, mut times) = (Vec::new(), Vec::new(), Vec::new());
    for example in examples {
        let start = Instant::now();
        let normalised = text::normalise(&example.text);
        let judgement = head.judge(&normalised, &embed(&normalised)?);
        let slots = head.slots(&judgement.intent, &example.text);
        times.push(start.elapsed());
        found.push(slots.unwrap_or_default());
        judged.push(Judged { example, judgement });
    }
    let (requests, nothing): (Vec<&Judged>, Vec<&Judged>) =
        judged.iter().partition(|one| one.example.intent != NONE);
    Ok(Evaluation {
        set: set.to_owned(),
        requests: requests.len(),
        nothing: nothing.len(),
        accuracy: share(&requests, |one| one.is_right()),
        rejected_at_90: rejected(&requests, &nothing),
        operating: operating(&requests, &nothing),
        slots: slot_score(&judged, &found),
        confusions: confusions(&requests),
        curve: draw(head, &requests, curve, &mut embed)?,
        latency: Latency::of(&times),
    })
}

impl Judged<'_> {
    fn is_right(&self) -> bool {
        self.judgement.intent == self.example.intent
    }
}

fn share<T>(all: &[T], is: impl Fn(&T) -> bool) -> Option<f32> {
    let count = all.iter().filter(|one| is(one)).count();
    (!all.is_empty()).then(|| count as f32 / all.len() as f32)
}

fn rejected(requests: &[&Judged<'_>], nothing: &[&Judged<'_>]) -> Option<f32> {
    let scores = requests.iter().map(|one| one.judgement.score).collect();
    let threshold = quantile(scores, 1.0 - COVERAGE)?;
    share(nothing, |one| one.judgement.score < threshold)
}

fn operating(requests: &[&Judged<'_>], nothing: &[&Judged<'_>]) -> Operating {
    let accepted = requests.iter().filter(|one| one.judgement.accepted);
    let accepted: Vec<&&Judged<'_>> = accepted.collect();
    Operating {
        coverage: share(requests, |one| one.judgement.accepted),
        accuracy: share(&accepted, |one| one.is_right()),
        rejected: share(nothing, |one| !one.judgement.accepted),
    }
}

fn slot_score(judged: &[Judged<'_>], found: &[Vec<(String, Range<usize>)>]) -> Option<SlotScore> {
    let wanted: usize = judged.iter().map(|one| one.example.slots.len()).sum();
    if wanted == 0 {
        return None;
    }
    let (mut right, mut tagged) = (0, 0);
    for (one, found) in judged.iter().zip(found) {
        tagged += found.len();
        let text = &one.example.text;
        let gold: BTreeSet<(&str, &str, usize)> = one
            .example
            .slots
            .iter()
            .map(|slot| trimmed(text, slot))
            .collect();
        let is_gold = |slot: &&(String, Range<usize>)| gold.contains(&trimmed(text, slot));
        right += if one.is_right() {
            found.iter().filter(is_gold).count()
        } else {
            0
        };
    }
    let (right, tagged, wanted) = (right as f32, tagged.max(1) as f32, wanted as f32);
    let (precision, recall) = (right / tagged, right / wanted);
    let f1 = 2.0 * precision * recall / (precision + recall).max(f32::MIN_POSITIVE);
    Some(SlotScore {
        precision,
        recall,
        f1,
    })
}

/// Annotators' spaces and full stops at the edges do not belong to a slot.
fn trimmed<'t>(
    text: &'t str,
    (name, range): &'t (String, Range<usize>),
) -> (&'t str, &'t str, usize) {
    let edge = |c: char| !c.is_alphanumeric();
    let words = &text[range.clone()];
    let start = range.start + (words.len() - words.trim_start_matches(edge).len());
    (name, words.trim_matches(edge), start)
}

fn confusions(requests: &[&Judged<'_>]) -> Vec<(String, String, usize)> {
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for one in requests.iter().filter(|one| !one.is_right()) {
        let pair = (one.example.intent.as_str(), one.judgement.intent.as_str());
        *counts.entry(pair).or_default() += 1;
    }
    let mut most: Vec<_> = counts.into_iter().collect();
    most.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let named =
        |((right, found), count): ((&str, &str), usize)| (right.into(), found.into(), count);
    most.into_iter().take(CONFUSIONS).map(named).collect()
}

fn draw<E>(
    head: &IntentHead,
    requests: &[&Judged<'_>],
    most: usize,
    embed: &mut impl FnMut(&str) -> Result<Vec<f32>, E>,
) -> Result<Vec<CurvePoint>, E> {
    let every = requests.len().div_ceil(most.max(1)).max(1);
    let picked: Vec<&&Judged<'_>> = requests.iter().step_by(every).collect();
    let mut curve = Vec::new();
    if most == 0 || picked.is_empty() {
        return Ok(curve);
    }
    for heard_percent in (10..=100).step_by(10) {
        let mut outcomes = Vec::new();
        for one in &picked {
            let normalised = text::normalise(&beginning(&one.example.text, heard_percent));
            let judgement = head.judge(&normalised, &embed(&normalised)?);
            outcomes.push((judgement.intent == one.example.intent, judgement.accepted));
        }
        let answered: Vec<_> = outcomes.iter().filter(|(_, accepted)| *accepted).collect();
        curve.push(CurvePoint {
            heard_percent,
            accuracy: share(&outcomes, |(right, _)| *right).unwrap_or(0.0),
            answered: answered.len() as f32 / outcomes.len() as f32,
            accuracy_of_answered: share(&answered, |(right, _)| *right),
        });
    }
    Ok(curve)
}

/// The first words of a text: this share of them, rounded up.
fn beginning(text: &str, percent: usize) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let heard = (words.len() * percent).div_ceil(100);
    words[..heard].join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_is_whole_words() {
        assert_eq!(beginning("set a timer", 10), "set");
        assert_eq!(beginning("set a timer", 50), "set a");
        assert_eq!(beginning("set a timer", 100), "set a timer");
        assert_eq!(beginning("", 50), "");
    }

    #[test]
    fn spans_are_compared_without_their_edges() {
        let slot = |range: Range<usize>| ("city".to_owned(), range);
        let text = "in New York. ";
        assert_eq!(trimmed(text, &slot(2..13)), trimmed(text, &slot(3..11)));
    }
}
