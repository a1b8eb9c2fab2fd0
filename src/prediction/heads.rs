//! Trained heads: what a text asks for, how sure that is, and whether it asks for anything.

use super::Embedder;
use super::features::Vocabulary;
use super::linear::{Features, Linear, Random, softmax};
use super::tagger::Tagger;
use super::training::examples::{DataSet, Example, NONE};
use crate::language::en::factuality::Factuality;
use crate::language::en::text;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Written into every file; another number is another format.
const FORMAT: u32 = 1;
/// Examples that ask for nothing: for sets that have too few such examples themselves.
const NOTHING: &str = include_str!("training/nothing.txt");
/// A set with fewer examples of [`NONE`] gets ours beside them.
const FEW: usize = 20;
/// How much being likely nothing counts against being likely something. Between 0 and 1 nothing
/// changed much on CLINC150's training half.
const AGAINST: f32 = 0.5;
/// Larger sets are calibrated on one tenth, smaller ones on all of five fifths.
const LARGE: usize = 2_000;
/// Fewer annotated examples of an intent teach its tagger nothing.
const LEAST_ANNOTATED: usize = 10;

/// An error of a head that cannot be trained or read.
#[derive(Debug, thiserror::Error)]
pub enum HeadError {
    /// There is nothing to tell apart.
    #[error("{set} has examples of {found} intents: at least two are needed, or one and {NONE:?}")]
    Intents {
        /// The set.
        set: String,
        /// How many intents it has.
        found: usize,
    },
    /// A text could not be embedded.
    #[error(transparent)]
    Embed(#[from] super::EmbedError),
    /// The file cannot be read or written.
    #[error("cannot access {}: {reason}", path.display())]
    Access {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The file does not contain a head.
    #[error("{} is not a head that this version can use: {reason} (`undertone router train` makes one)", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
}

/// Heads as they are stored together. Each tells its own set's intents apart, not those of others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Heads {
    format: u32,
    /// One per data set.
    pub heads: Vec<IntentHead>,
}

/// A head for one set of intents.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IntentHead {
    /// The data set's name.
    pub name: String,
    /// [`DataSet::fingerprint`] of what it was trained on.
    pub fingerprint: String,
    /// In ascending order.
    intents: Vec<String>,
    /// How the examples of each intent are phrased.
    #[serde(rename = "manners")]
    factuality: Vec<Factuality>,
    /// Scores are divided by it before they become probabilities.
    temperature: f32,
    /// A text that scores less asks for nothing.
    threshold: f32,
    vocabulary: Vocabulary,
    linear: Linear,
    /// By intent, where its examples name slots.
    taggers: BTreeMap<String, Tagger>,
}

/// How a head classifies a text.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    /// The likeliest intent beside [`NONE`].
    pub intent: String,
    /// Its probability, 0..1.
    pub probability: f32,
    /// How much it looks like a request at all; comparable within one head.
    pub score: f32,
    /// The score reaches the head's threshold.
    pub accepted: bool,
}

impl Heads {
    /// These heads.
    pub fn new(heads: Vec<IntentHead>) -> Self {
        Self {
            format: FORMAT,
            heads,
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// [`HeadError::Access`] or [`HeadError::Broken`].
    pub fn load(path: &Path) -> Result<Self, HeadError> {
        let broken = |reason: String| HeadError::Broken {
            path: path.into(),
            reason,
        };
        let text = std::fs::read_to_string(path).map_err(|error| access(path, &error))?;
        let heads: Self = serde_json::from_str(&text).map_err(|error| broken(error.to_string()))?;
        if heads.format != FORMAT {
            return Err(broken(format!(
                "format {}, expected {FORMAT}",
                heads.format
            )));
        }
        match heads.heads.iter().find(|head| !head.is_sound()) {
            Some(head) => Err(broken(format!(
                "the parts of {} do not fit together",
                head.name
            ))),
            None => Ok(heads),
        }
    }

    /// Writes the file.
    ///
    /// # Errors
    /// [`HeadError::Access`].
    pub fn save(&self, path: &Path) -> Result<(), HeadError> {
        let text = serde_json::to_string(self).map_err(|error| access(path, &error.into()))?;
        std::fs::write(path, text + "\n").map_err(|error| access(path, &error))
    }
}

fn access(path: &Path, error: &std::io::Error) -> HeadError {
    HeadError::Access {
        path: path.into(),
        reason: error.to_string(),
    }
}

/// An example brought to what classifiers are trained on.
struct Prepared {
    text: String,
    intent: String,
    embedding: Vec<f32>,
}

impl IntentHead {
    /// Trains on a set's training part. `coverage`, 0..1, is the share of requests that the
    /// threshold lets through. `embed` gives the embeddings of normalised texts.
    ///
    /// # Errors
    /// [`HeadError::Intents`] if there is nothing to tell apart, or what `embed` says.
    pub fn train<E>(
        set: &DataSet,
        coverage: f32,
        embed: impl FnOnce(&[String]) -> Result<Vec<Vec<f32>>, E>,
    ) -> Result<Self, HeadError>
    where
        HeadError: From<E>,
    {
        let examples = set.training();
        let prepared = prepare(&examples, embed)?;
        let mut intents: Vec<String> = prepared.iter().map(|one| one.intent.clone()).collect();
        intents.sort();
        intents.dedup();
        if intents.len() < 2 {
            return Err(HeadError::Intents {
                set: set.name.clone(),
                found: intents.len(),
            });
        }
        let all: Vec<&Prepared> = prepared.iter().collect();
        let (calibration, (vocabulary, linear)) = std::thread::scope(|scope| {
            let held_out = scope.spawn(|| held_out_scores(&all, &intents));
            let model = fit(&all, &intents);
            (held_out.join().unwrap_or_default(), model)
        });
        let none = intents.binary_search(&NONE.to_owned()).ok();
        Ok(Self {
            name: set.name.clone(),
            fingerprint: set.fingerprint(),
            factuality: factuality(&prepared, &intents),
            temperature: temperature(&calibration),
            threshold: threshold(&calibration, none, coverage),
            taggers: taggers(&examples),
            vocabulary,
            linear,
            intents,
        })
    }

    /// Classifies a normalised text with this embedding.
    pub fn judge(&self, text: &str, embedding: &[f32]) -> Judgement {
        let features = Features {
            embedding: embedding.to_vec(),
            grams: self.vocabulary.features(text),
        };
        let scores = self.linear.scores(&features);
        let none = self.none();
        let best = best_intent(&scores, none);
        let cooled: Vec<f32> = scores
            .iter()
            .map(|score| score / self.temperature)
            .collect();
        let score = request_score(&scores, none);
        Judgement {
            intent: self.intents[best].clone(),
            probability: softmax(&cooled)[best],
            score,
            accepted: score >= self.threshold,
        }
    }

    /// The slots that the intent's tagger finds in a text as it was transcribed; `None` without a
    /// tagger.
    pub fn slots(&self, intent: &str, text: &str) -> Option<Vec<(String, Range<usize>)>> {
        self.taggers.get(intent).map(|tagger| tagger.tag(text))
    }

    /// All intents, [`NONE`] included.
    pub fn intents(&self) -> &[String] {
        &self.intents
    }

    /// How an intent is usually asked for.
    pub(super) fn factuality(&self, intent: &str) -> Factuality {
        let place = self
            .intents
            .binary_search_by(|one| one.as_str().cmp(intent));
        place
            .map(|place| self.factuality[place])
            .unwrap_or_default()
    }

    fn none(&self) -> Option<usize> {
        self.intents.iter().position(|intent| intent == NONE)
    }

    fn is_sound(&self) -> bool {
        self.intents.len() >= 2
            && self.intents.windows(2).all(|two| two[0] < two[1])
            && self.factuality.len() == self.intents.len()
            && self.temperature > 0.0
            && self.vocabulary.is_sound()
            && self.linear.fits(self.intents.len(), self.vocabulary.len())
            && self.taggers.values().all(Tagger::is_sound)
    }
}

fn prepare<E>(
    examples: &[&Example],
    embed: impl FnOnce(&[String]) -> Result<Vec<Vec<f32>>, E>,
) -> Result<Vec<Prepared>, E> {
    let own = examples
        .iter()
        .map(|example| (text::normalise(&example.text), example.intent.clone()));
    let mut labelled: Vec<(String, String)> = own.collect();
    if examples
        .iter()
        .filter(|example| example.intent == NONE)
        .count()
        < FEW
    {
        let nothing = NOTHING.lines().filter(|line| !line.is_empty());
        labelled.extend(nothing.map(|line| (text::normalise(line), NONE.to_owned())));
    }
    let texts: Vec<String> = labelled.iter().map(|(text, _)| text.clone()).collect();
    let embedded = embed(&texts)?;
    let all = labelled.into_iter().zip(embedded);
    Ok(all
        .map(|((text, intent), embedding)| Prepared {
            text,
            intent,
            embedding,
        })
        .collect())
}

fn fit(examples: &[&Prepared], intents: &[String]) -> (Vocabulary, Linear) {
    let texts: Vec<String> = examples.iter().map(|one| one.text.clone()).collect();
    let vocabulary = Vocabulary::of(&texts);
    let features: Vec<Features> = examples
        .iter()
        .map(|one| features(one, &vocabulary))
        .collect();
    let classes = examples.iter().map(|one| class_of(one, intents));
    let labelled: Vec<(&Features, usize)> = features.iter().zip(classes).collect();
    let linear = Linear::train(&labelled, intents.len(), vocabulary.len());
    (vocabulary, linear)
}

fn features(example: &Prepared, vocabulary: &Vocabulary) -> Features {
    Features {
        embedding: example.embedding.clone(),
        grams: vocabulary.features(&example.text),
    }
}

fn class_of(example: &Prepared, intents: &[String]) -> usize {
    intents.binary_search(&example.intent).unwrap_or(0)
}

/// Scores of examples by models that did not see them, with the class of each.
fn held_out_scores(examples: &[&Prepared], intents: &[String]) -> Vec<(Vec<f32>, usize)> {
    let mut order: Vec<usize> = (0..examples.len()).collect();
    Random(0xD1B5_4A32_D192_ED03).shuffle(&mut order);
    let (folds, used) = if examples.len() > LARGE {
        (10, 1)
    } else {
        (5, 5)
    };
    let mut scored = Vec::new();
    for fold in 0..used {
        let is_held = |(at, _): &(usize, &usize)| at % folds == fold;
        let (held, rest): (Vec<_>, Vec<_>) = order.iter().enumerate().partition(is_held);
        let rest: Vec<&Prepared> = rest.into_iter().map(|(_, &at)| examples[at]).collect();
        let (vocabulary, linear) = fit(&rest, intents);
        scored.extend(held.into_iter().map(|(_, &at)| {
            let scores = linear.scores(&features(examples[at], &vocabulary));
            (scores, class_of(examples[at], intents))
        }));
    }
    scored
}

fn best_intent(scores: &[f32], none: Option<usize>) -> usize {
    let intents = (0..scores.len()).filter(|&class| Some(class) != none);
    intents
        .max_by(|&a, &b| scores[a].total_cmp(&scores[b]))
        .unwrap_or(0)
}

fn request_score(scores: &[f32], none: Option<usize>) -> f32 {
    let nothing = none.map_or(0.0, |none| scores[none]);
    scores[best_intent(scores, none)] - AGAINST * nothing
}

/// The temperature under which the held-out classes are likeliest.
fn temperature(scored: &[(Vec<f32>, usize)]) -> f32 {
    let surprise = |temperature: f32| -> f32 {
        let one = |(scores, class): &(Vec<f32>, usize)| {
            let cooled: Vec<f32> = scores.iter().map(|score| score / temperature).collect();
            -softmax(&cooled)[*class].max(1e-9).ln()
        };
        scored.iter().map(one).sum()
    };
    let tried = (1..=60).map(|tenth| tenth as f32 * 0.05);
    tried
        .map(|temperature| (temperature, surprise(temperature)))
        .min_by(|a, b| a.1.total_cmp(&b.1))
        .map_or(1.0, |(temperature, _)| temperature)
}

/// The score that this share of held-out requests reaches.
fn threshold(scored: &[(Vec<f32>, usize)], none: Option<usize>, coverage: f32) -> f32 {
    let requests = scored.iter().filter(|(_, class)| Some(*class) != none);
    let scores = requests.map(|(scores, _)| request_score(scores, none));
    quantile(scores.collect(), 1.0 - coverage).unwrap_or(f32::NEG_INFINITY)
}

/// The number below which this share, 0..1, of the others lies.
pub(super) fn quantile(mut numbers: Vec<f32>, share: f32) -> Option<f32> {
    numbers.sort_unstable_by(f32::total_cmp);
    let place = (numbers.len() as f32 * share.clamp(0.0, 1.0)) as usize;
    numbers
        .get(place.min(numbers.len().checked_sub(1)?))
        .copied()
}

/// A text and the slots in it.
type Taught<'a> = (&'a str, &'a [(String, Range<usize>)]);

fn factuality(examples: &[Prepared], intents: &[String]) -> Vec<Factuality> {
    let of = |intent: &String| {
        let asked = examples.iter().filter(|one| one.intent == *intent);
        Factuality::shared(asked.map(|one| one.text.as_str()))
    };
    intents.iter().map(of).collect()
}

fn taggers(examples: &[&Example]) -> BTreeMap<String, Tagger> {
    let mut by_intent: BTreeMap<&str, Vec<Taught<'_>>> = BTreeMap::new();
    for example in examples {
        let annotated = (example.text.as_str(), example.slots.as_slice());
        by_intent
            .entry(&example.intent)
            .or_default()
            .push(annotated);
    }
    let taught = |examples: &Vec<Taught<'_>>| {
        examples
            .iter()
            .filter(|(_, slots)| !slots.is_empty())
            .count()
            >= LEAST_ANNOTATED
    };
    by_intent.retain(|_, examples| taught(examples));
    let train = |(intent, examples): (&str, Vec<_>)| (intent.to_owned(), Tagger::train(&examples));
    by_intent.into_iter().map(train).collect()
}

/// Embeds normalised texts on all cores, each thread with a model of its own from `folder`.
///
/// # Errors
/// [`super::EmbedError`] of the first text that fails.
pub fn embed_all(folder: &Path, texts: &[String]) -> Result<Vec<Vec<f32>>, super::EmbedError> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let share = texts.len().div_ceil(threads).max(1);
    let embed = |texts: &[String]| {
        let mut embedder = Embedder::load(folder)?;
        texts.iter().map(|text| embedder.embed(text)).collect()
    };
    std::thread::scope(|scope| {
        let chunks = texts.chunks(share);
        let running: Vec<_> = chunks
            .map(|texts| scope.spawn(move || embed(texts)))
            .collect();
        let mut all = Vec::with_capacity(texts.len());
        for thread in running {
            let embedded: Result<Vec<_>, _> = thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            all.extend(embedded?);
        }
        Ok(all)
    })
}
