//! Learns the declared tools from their examples, once, on a thread of its own. The result is cached in a file until
//! a declaration changes.

use super::masks::Sample;
use super::nothing::Nothing;
use crate::prediction::{EmbedError, Embedder, cosine, packed};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use undertone_signal::ridge;

/// The number of writes so far, so that each writes a temporary file of its own.
static WRITERS: AtomicU64 = AtomicU64::new(0);

/// The version of the training. A cached result of another version is not used.
const FORMAT: u32 = 1;

/// The result of a training, with the embedder for the words that are compared with it.
#[derive(Debug)]
pub(super) struct Trained {
    pub embedder: Embedder,
    pub memory: Memory,
}

/// The models of all tools, and of sentences that ask for none.
#[derive(Debug)]
pub(super) struct Memory {
    tools: BTreeMap<String, Known>,
    nothing: Arc<Nothing>,
}

/// The model of one tool.
#[derive(Debug, Default)]
struct Known {
    samples: Vec<Vec<f32>>,
    /// The trained head. A tool's score is the mean of its score and the similarity to the nearest sample.
    weights: Vec<f32>,
}

/// The samples' embeddings and the trained heads, as cached in a file.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    /// A hash of everything that the training depends on.
    fingerprint: String,
    /// The samples' embeddings, concatenated.
    #[serde(with = "packed")]
    samples: Vec<f32>,
    /// The weights of the tools in the order of their names.
    #[serde(with = "packed")]
    weights: Vec<f32>,
}

/// The embedder's folder, and the file that caches learned examples.
#[derive(Debug, Clone)]
pub struct ExampleFiles {
    /// The embedder's folder.
    pub embedder: PathBuf,
    /// The file that caches learned examples, if any.
    pub cache: Option<PathBuf>,
}

/// A training in the background.
pub(super) struct Learning(Receiver<Trained>);

impl Learning {
    /// Trains on these samples on a thread of its own, with this embedder or one that it loads. A failure is logged
    /// and yields nothing.
    pub(super) fn start(
        files: ExampleFiles,
        embedder: Option<Embedder>,
        samples: Vec<Sample>,
    ) -> Self {
        Self::run(move || files.learn(embedder, &samples))
    }

    fn run(learn: impl FnOnce() -> Result<Trained, EmbedError> + Send + 'static) -> Self {
        let (sender, trained) = sync_channel(1);
        let learn = move || match learn() {
            // Without a receiver the server is stopping.
            Ok(trained) => drop(sender.send(trained)),
            Err(error) => tracing::warn!(%error, "tools are predicted by rules alone"),
        };
        let thread = thread::Builder::new().name("learning".into()).spawn(learn);
        if let Err(error) = thread {
            tracing::warn!(%error, "tools are predicted by rules alone");
        }
        Self(trained)
    }

    /// The trained heads; `None` until the training has ended.
    pub(super) fn done(&mut self) -> Option<Trained> {
        self.0.try_recv().ok()
    }

    /// Waits for the result; `None` if the training failed.
    pub(super) fn wait(&mut self) -> Option<Trained> {
        self.0.recv().ok()
    }
}

impl ExampleFiles {
    /// Trains on these samples, or reads the cached result.
    pub(super) fn learn(
        &self,
        embedder: Option<Embedder>,
        samples: &[Sample],
    ) -> Result<Trained, EmbedError> {
        let mut embedder = match embedder {
            Some(shared) => shared,
            None => Embedder::load(&self.embedder)?,
        };
        let nothing = Nothing::shipped();
        let fingerprint = fingerprint(samples, &nothing);
        let kept = match self.kept(&fingerprint, samples) {
            Some(kept) => kept,
            None => {
                let kept = train(&mut embedder, samples, &nothing, fingerprint)?;
                self.keep(&kept);
                kept
            }
        };
        Ok(Trained {
            embedder,
            memory: Memory {
                tools: kept.tools(samples),
                nothing: Arc::new(nothing),
            },
        })
    }

    /// The heads of an earlier training on exactly these samples, from the file.
    fn kept(&self, fingerprint: &str, samples: &[Sample]) -> Option<Kept> {
        let text = std::fs::read_to_string(self.cache.as_ref()?).ok()?;
        let kept: Kept = serde_json::from_str(&text).ok()?;
        let fits = kept.samples.len() == samples.len() * Embedder::LENGTH
            && kept.weights.len() == names(samples).len() * Embedder::LENGTH;
        (kept.fingerprint == fingerprint && fits).then_some(kept)
    }

    /// Caches a result. If that fails, the next start trains again.
    fn keep(&self, kept: &Kept) {
        let Some(path) = &self.cache else {
            return;
        };
        let write = || {
            path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
            // Another server may be reading the file.
            let writer = WRITERS.fetch_add(1, Ordering::Relaxed);
            let new = path.with_extension(format!("{}-{writer}.new", std::process::id()));
            std::fs::write(&new, serde_json::to_string(kept)?)?;
            std::fs::rename(&new, path)
        };
        if let Err(error) = write() {
            let path = path.display();
            tracing::info!(%error, %path, "the learned examples of the tools cannot be cached");
        }
    }
}

/// Embeds the samples and trains the heads.
fn train(
    embedder: &mut Embedder,
    samples: &[Sample],
    nothing: &Nothing,
    fingerprint: String,
) -> Result<Kept, EmbedError> {
    let names = names(samples);
    let embedded: Result<Vec<_>, _> = samples
        .iter()
        .map(|one| embedder.embed(&one.text))
        .collect();
    let embedded = embedded?;
    let class = |sample: &Sample| names.iter().position(|name| *name == sample.tool);
    let own = embedded.iter().zip(samples);
    let own = own.map(|(vector, sample)| (vector.as_slice(), class(sample)));
    let none = nothing.sentences().map(|vector| (vector, None));
    let labelled: Vec<(&[f32], Option<usize>)> = own.chain(none).collect();
    let weights = ridge::train(&labelled, names.len());
    Ok(Kept {
        fingerprint,
        samples: embedded.concat(),
        weights: weights.concat(),
    })
}

/// The tools of samples, in order.
fn names(samples: &[Sample]) -> Vec<&str> {
    let mut names: Vec<&str> = samples.iter().map(|sample| sample.tool.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn fingerprint(samples: &[Sample], nothing: &Nothing) -> String {
    let mut digest = Sha256::new();
    digest.update(format!("{FORMAT}\t{}\n", nothing.fingerprint()));
    for sample in samples {
        digest.update(format!("{}\t{}\n", sample.tool, sample.text));
    }
    let bytes = digest.finalize();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Kept {
    fn tools(&self, samples: &[Sample]) -> BTreeMap<String, Known> {
        let mut tools: BTreeMap<String, Known> = BTreeMap::new();
        let vectors = self.samples.chunks_exact(Embedder::LENGTH);
        for (sample, vector) in samples.iter().zip(vectors) {
            let known = tools.entry(sample.tool.clone()).or_default();
            known.samples.push(vector.to_vec());
        }
        let weights = self.weights.chunks_exact(Embedder::LENGTH);
        for (known, weights) in tools.values_mut().zip(weights) {
            known.weights = weights.to_vec();
        }
        tools
    }
}

impl Memory {
    /// A copy that also has the tools of these samples, in place of those of the same names.
    pub(super) fn with(
        &self,
        samples: &[Sample],
        embedder: &mut Embedder,
    ) -> Result<Self, EmbedError> {
        let mut tools: BTreeMap<String, Known> = BTreeMap::new();
        for sample in samples {
            let known = tools.entry(sample.tool.clone()).or_default();
            known.samples.push(embedder.embed(&sample.text)?);
        }
        for (name, known) in &self.tools {
            let (samples, weights) = (&known.samples, Vec::new());
            tools.entry(name.clone()).or_insert_with(|| Known {
                samples: samples.clone(),
                weights,
            });
        }
        let nothing = self.nothing.clone();
        let own = tools.values().enumerate().flat_map(|(class, known)| {
            let samples = known.samples.iter();
            samples.map(move |vector| (vector.as_slice(), Some(class)))
        });
        let none = nothing.sentences().map(|vector| (vector, None));
        let labelled: Vec<(&[f32], Option<usize>)> = own.chain(none).collect();
        let weights = ridge::train(&labelled, tools.len());
        for (known, weights) in tools.values_mut().zip(weights) {
            known.weights = weights;
        }
        Ok(Self { tools, nothing })
    }

    /// The similarity of embedded words to a tool, -1..1.
    pub(super) fn nearness(&self, tool: &str, words: &[f32]) -> f32 {
        self.tools.get(tool).map_or(0.0, |known| {
            let score = cosine(&known.weights, words);
            (nearest(&known.samples, words) + score) / 2.0
        })
    }

    /// The similarity of embedded words to the nearest sentence that asks for no tool, 0..1.
    pub(super) fn nothing(&self, words: &[f32]) -> f32 {
        self.nothing
            .sentences()
            .map(|sentence| cosine(sentence, words))
            .fold(0.0, f32::max)
    }
}

fn nearest(samples: &[Vec<f32>], words: &[f32]) -> f32 {
    let near = samples.iter().map(|sample| cosine(sample, words));
    near.fold(0.0, f32::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_for_a_training_that_has_panicked() {
        assert!(Learning::run(|| panic!("a bug")).wait().is_none());
    }
}
