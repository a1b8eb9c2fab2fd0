//! Whether words read like a finished request or like the beginning of one.
//!
//! A small head, trained on published requests and their beginnings, scores the last words. The recogniser
//! adds the punctuation that it expects after them: it hears whether the voice ends a sentence there.

use super::SENTENCES;
use regex::Regex;
use serde::{Deserialize, Serialize};
use std::sync::LazyLock;

/// The punctuation that a recogniser expects after the last word: probabilities, 0..1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Marks {
    /// A mark that ends a sentence.
    pub ends: f32,
    /// A mark that shows that it goes on: a comma, a dash, an ellipsis.
    pub goes_on: f32,
}

/// A linear classifier of the last words.
#[derive(Debug, Clone, PartialEq)]
pub struct Head {
    bias: f32,
    /// The value of one step of a weight.
    scale: f32,
    /// The features that are known, in ascending order, and their weights.
    weights: Vec<(u32, i8)>,
}

/// Trained by `the_endings_head_is_trained_on_published_requests` (`tests/parts/endings.rs`).
static HEAD: LazyLock<Head> = LazyLock::new(|| {
    Head::from_bytes(include_bytes!("../../../models/endings.bin")).unwrap_or(Head {
        bias: 0.0,
        scale: 0.0,
        weights: Vec::new(),
    })
});

/// Words that shape a sentence. All others are known by their endings as well, so that what was learnt of
/// one noun holds for others.
const FUNCTION_WORDS: &[&str] = &[
    "a", "about", "am", "an", "and", "any", "are", "as", "at", "be", "because", "been", "but",
    "by", "can", "could", "did", "do", "does", "every", "for", "from", "had", "has", "have", "he",
    "her", "here", "him", "his", "how", "i", "if", "in", "into", "is", "it", "its", "just", "let",
    "let's", "like", "many", "may", "me", "might", "more", "most", "much", "must", "my", "need",
    "no", "not", "of", "on", "or", "our", "please", "really", "she", "should", "so", "some",
    "than", "that", "the", "their", "them", "there", "these", "they", "this", "those", "to", "us",
    "very", "want", "was", "we", "were", "what", "when", "where", "which", "who", "why", "will",
    "with", "would", "you", "your",
];

impl Head {
    /// Reads what [`Head::to_bytes`] wrote. `None` if it is something else.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (numbers, entries) = bytes.split_at_checked(8)?;
        let (bias, scale) = numbers.split_at(4);
        let number = |bytes: &[u8]| Some(f32::from_le_bytes(bytes.try_into().ok()?));
        let (entries, rest) = entries.as_chunks::<5>();
        let weights: Vec<(u32, i8)> = entries
            .iter()
            .map(|[a, b, c, d, weight]| {
                (
                    u32::from_le_bytes([*a, *b, *c, *d]),
                    i8::from_le_bytes([*weight]),
                )
            })
            .collect();
        let ascending = weights.windows(2).all(|two| two[0].0 < two[1].0);
        (rest.is_empty() && ascending).then_some(Self {
            bias: number(bias)?,
            scale: number(scale)?,
            weights,
        })
    }

    /// Bias and scale, then each feature and its weight; all little-endian.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(8 + 5 * self.weights.len());
        bytes.extend(self.bias.to_le_bytes());
        bytes.extend(self.scale.to_le_bytes());
        for (feature, weight) in &self.weights {
            bytes.extend(feature.to_le_bytes());
            bytes.extend(weight.to_le_bytes());
        }
        bytes
    }

    /// The head with these weights, rounded to 8 bits; those that round to nothing are left out.
    pub fn rounded(bias: f32, weights: &[(u32, f32)]) -> Self {
        let most = weights
            .iter()
            .fold(0.0f32, |most, (_, w)| most.max(w.abs()));
        let scale = most / 127.0;
        let mut weights: Vec<(u32, i8)> = weights
            .iter()
            .map(|(feature, weight)| (*feature, (weight / scale).round() as i8))
            .filter(|(_, weight)| *weight != 0)
            .collect();
        weights.sort_unstable();
        weights.dedup_by_key(|(feature, _)| *feature);
        Self {
            bias,
            scale,
            weights,
        }
    }

    /// The logarithm of the odds that these words are finished, if they were as often finished as not.
    pub fn score(&self, text: &str) -> f32 {
        let weight = |feature: &u32| {
            let found = self
                .weights
                .binary_search_by_key(feature, |(known, _)| *known);
            found.map_or(0.0, |at| f32::from(self.weights[at].1))
        };
        self.bias + self.scale * features(text).iter().map(weight).sum::<f32>()
    }
}

/// How much it weighs that a sentence is a whole turn of conversation: as much as a request that has all its arguments.
const WHOLE: f32 = 2.0;

/// Whole turns of conversation, as [`last_sentence`] gives them: hardly anybody goes on after them. Without those that open a turn: "hello",
/// "thank you", "never mind".
static WHOLE_TURNS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?x)^(?:(?:and|okay|ok|so|well|no|yes|oh|great|perfect|sorry|thanks|thank\ you|hello|hi|hey|please|then)\ )*
        (?:
        that(?:\ is|'s|\ will\ be|'ll\ be)\ (?:all|it|everything)(?:\ for\ (?:now|today))?
        |(?:good\ ?)?bye(?:\ bye)?|good\ ?night|have\ a\ (?:nice|good|great)\ (?:day|one|night|evening)
        |how\ are\ (?:you|things)(?:\ doing)?(?:\ today)?|how\ do\ you\ do
        |(?:can|do)\ you\ hear\ me(?:\ now)?|are\ you\ (?:still\ )?there
        |who\ are\ you|what(?:\ is|'s)\ your\ name|are\ you\ (?:a\ |an\ )?(?:robot|bot|human|ai|computer|machine|real)
        |what\ (?:else\ )?can\ you\ do(?:\ for\ me)?
        |how\ can\ you\ help(?:\ me)?|what\ (?:else\ )?can\ you\ help(?:\ me)?\ with
        |what\ did\ you\ (?:just\ )?say
        |(?:(?:can|could|would|will)\ you\ )?(?:please\ )?(?:say|repeat)\ (?:that|it)\ (?:again|once\ more)
        |(?:can|could|would|will)\ you\ (?:please\ )?repeat\ (?:that|it)
        )$",
    )
    .ok()
});

/// Whether the last sentence is a whole turn of conversation, with or without "please" and the like after it.
fn is_whole_turn(words: &[String]) -> bool {
    let after = |word: &&String| AFTER.contains(&word.as_str());
    let kept = words.len() - words.iter().rev().take_while(after).count();
    let turns = WHOLE_TURNS.as_ref();
    turns.is_some_and(|turns| turns.is_match(&words[..kept].join(" ")))
}

/// The probability, 0..1, that the words are finished. `marks` are those of the recogniser, if it tells.
pub(crate) fn finished(text: &str, marks: Option<Marks>) -> f32 {
    let words = score(text);
    let whole = match is_whole_turn(&last_sentence(text)) {
        true => WHOLE,
        false => 0.0,
    };
    let odds = match marks {
        Some(Marks { ends, goes_on }) => {
            let ratio = ((ends + 0.01) / (goes_on + 0.01)).ln();
            0.7 * log_odds(ends) + 0.6 * ratio + 0.45 * words - 2.85
        }
        None => 0.6 * words + 0.3,
    };
    1.0 / (1.0 + (-odds - whole).exp())
}

/// Words that may follow a request and do not complete it. Not "now" and "then", which may be all that a preposition
/// needs: "for now".
pub(super) const AFTER: [&str; 8] = [
    "actually", "anyway", "exactly", "maybe", "please", "sorry", "thanks", "though",
];

const PREPOSITIONS: [&str; 9] = [
    "at", "between", "for", "from", "in", "into", "of", "to", "with",
];

/// The score of the words. "Though" behind a preposition does not complete it: "what time is it in though". A preposition
/// at the end of a question after its object says nothing, whatever follows it: "what can you help me with, please".
fn score(text: &str) -> f32 {
    let mut words = last_sentence(text);
    let mut begun = text.trim_end();
    while words
        .last()
        .is_some_and(|word| AFTER.contains(&word.as_str()))
        && let Some((before, _)) = begun.rsplit_once(char::is_whitespace)
    {
        begun = before.trim_end();
        words = last_sentence(begun);
    }
    let score = HEAD.score(text);
    let is_preposition = |word: &String| PREPOSITIONS.contains(&word.as_str());
    if !words.last().is_some_and(is_preposition) {
        return score;
    }
    if SENTENCES.is_question(&words.join(" ")) {
        return score.max(0.0);
    }
    score.min(HEAD.score(begun))
}

/// The logarithm of the odds of a probability, kept finite.
pub(crate) fn log_odds(probability: f32) -> f32 {
    let p = probability.clamp(0.003, 0.997);
    (p / (1.0 - p)).ln()
}

/// The features of a text: its last words, its first ones and its length, each as a hash. Only the last
/// sentence counts.
pub fn features(text: &str) -> Vec<u32> {
    let words = last_sentence(text);
    let (Some(first), Some(last)) = (words.first(), words.last()) else {
        return Vec::new();
    };
    let shapes: Vec<String> = words.iter().map(|word| shape(word)).collect();
    let tail = |words: &[String], count: usize| {
        let missing = count.saturating_sub(words.len());
        let edge = std::iter::repeat_n("^", missing);
        let words = words[words.len().saturating_sub(count)..].iter();
        edge.chain(words.map(String::as_str))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let short = words.len().min(6).to_string();
    let second = words.get(1).map_or("", String::as_str);
    let ending = shapes.last().map_or("", String::as_str);
    let mut found = vec![
        hash("length", &words.len().min(8).to_string()),
        hash("first", &format!("{first} {ending}")),
        hash("first of", &format!("{first} {short}")),
        hash("first two of", &format!("{first} {second} {short}")),
    ];
    for count in 1..=3 {
        found.push(hash("words", &tail(&words, count)));
        found.push(hash("shapes", &tail(&shapes, count)));
    }
    let letters: Vec<char> = format!(" {last} ").chars().collect();
    for count in 3..=5 {
        if letters.len() >= count {
            let letters: String = letters[letters.len() - count..].iter().collect();
            found.push(hash("letters", &letters));
        }
    }
    found.extend(shapes.iter().map(|shape| hash("has", shape)));
    found.sort_unstable();
    found.dedup();
    found
}

/// A word that shapes sentences as it is, a number as such, any other word by its last letters.
fn shape(word: &str) -> String {
    if FUNCTION_WORDS.binary_search(&word).is_ok() {
        return word.to_owned();
    }
    if word.chars().any(|c| c.is_ascii_digit()) {
        return "#".to_owned();
    }
    let letters: Vec<char> = word.chars().collect();
    let last: String = letters[letters.len().saturating_sub(3)..].iter().collect();
    last + "~"
}

/// The words of the last sentence, in lower case, without marks.
fn last_sentence(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut ended = false;
    for word in text.split_whitespace() {
        let plain: String = word
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || *c == '\'')
            .collect();
        if std::mem::take(&mut ended)
            && word.starts_with(|c: char| c.is_uppercase() || c.is_numeric())
        {
            words.clear();
        }
        ended = word.ends_with(['.', '?', '!']);
        if !plain.is_empty() {
            words.push(plain);
        }
    }
    words
}

/// FNV-1a, 32 bits.
fn hash(kind: &str, value: &str) -> u32 {
    let bytes = kind.bytes().chain([0]).chain(value.bytes());
    bytes.fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginnings_score_below_the_requests_that_they_begin() {
        let pairs = [
            (
                "how long does it take to get to",
                "how long does it take to get to the airport",
            ),
            ("remind me to call my", "remind me to call my sister"),
            ("I would like to", "I would like to pay my bill"),
            ("what is the", "what is the capital of France"),
        ];
        for (beginning, request) in pairs {
            let (part, whole) = (HEAD.score(beginning), HEAD.score(request));
            assert!(
                part + 1.0 < whole,
                "{beginning}: {part}, {request}: {whole}"
            );
        }
    }

    #[test]
    fn a_word_that_completes_nothing_finishes_no_request() {
        let marks = Some(Marks {
            ends: 0.97,
            goes_on: 0.003,
        });
        for (begun, whole) in [
            ("What time is it in though?", "What time is it though?"),
            ("Set a timer for, please.", "Set a timer, please."),
        ] {
            let (open, done) = (finished(begun, marks), finished(whole, marks));
            assert!(open + 0.1 < done, "{begun}: {open}, {whole}: {done}");
        }
        for whole in ["That is all for now.", "Just the one please."] {
            assert_eq!(score(whole), HEAD.score(whole), "{whole}");
        }
    }

    #[test]
    fn a_question_after_the_object_of_its_last_word_is_not_taken_for_a_beginning() {
        let marks = Some(Marks {
            ends: 0.9,
            goes_on: 0.01,
        });
        for question in [
            "What can you help me with?",
            "What can you help me with, please?",
            "Hello. Who am I talking to?",
            "Where are you calling from?",
        ] {
            assert!(finished(question, marks) > 0.6, "{question}");
        }
        for beginning in ["What is the time in", "Can you help me with"] {
            assert!(finished(beginning, marks) < 0.5, "{beginning}");
        }
    }

    #[test]
    fn whole_turns_of_conversation_are_finished_in_any_voice() {
        let marks = Some(Marks {
            ends: 0.6,
            goes_on: 0.08,
        });
        for whole in [
            "Thank you, that is all.",
            "What can you do?",
            "Could you say that again, please?",
            "Sorry, what did you say",
            "Hello. How are you today",
            "Okay, that's everything for now",
            "What can you help me with?",
        ] {
            assert!(finished(whole, marks) > 0.5, "{whole}");
        }
        for beginning in [
            "What can you do about",
            "Thank you, that is",
            "Can you hear",
            "Hello",
            "How are you going to",
            "Can you say that",
            "Repeat it",
            "I did not get that",
        ] {
            assert!(!is_whole_turn(&last_sentence(beginning)), "{beginning}");
        }
    }

    #[test]
    fn only_the_last_sentence_counts() {
        let alone = features("Where is my order?");
        assert_eq!(features("Good morning. Where is my order?"), alone);
        assert_ne!(features("Dr. who is my order?"), alone);
        assert!(features(" ... ").is_empty());
    }

    #[test]
    fn the_shipped_head_is_read_and_a_broken_one_is_refused() {
        let bytes = HEAD.to_bytes();
        assert!(HEAD.weights.len() > 10_000);
        assert_eq!(Head::from_bytes(&bytes).as_ref(), Some(&*HEAD));
        assert_eq!(Head::from_bytes(&bytes[..bytes.len() - 1]), None);
        assert_eq!(Head::from_bytes(&bytes[..7]), None);
    }

    #[test]
    fn function_words_can_be_searched() {
        assert!(FUNCTION_WORDS.is_sorted());
    }
}
