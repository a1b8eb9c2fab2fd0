//! Learns the declared tools on a thread of its own, once: what was learnt is kept in a file until a
//! declaration changes.

use super::masks::Sample;
use super::nothing::Nothing;
use crate::prediction::{EmbedError, Embedder, cosine, packed, ridge};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

/// Those who have kept something: each writes a file of its own first.
static WRITERS: AtomicU64 = AtomicU64::new(0);

/// Another number is another way to learn.
const FORMAT: u32 = 1;

/// All that comparing words takes.
#[derive(Debug)]
pub(super) struct Learnt {
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
    /// The head: the mean of its score and the similarity to the nearest sample counts.
    weights: Vec<f32>,
}

/// The trained heads as kept in a file.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    /// Of all that it depends on.
    fingerprint: String,
    /// The samples' embeddings, one after the other.
    #[serde(with = "packed")]
    samples: Vec<f32>,
    /// The weights of the tools in the order of their names.
    #[serde(with = "packed")]
    weights: Vec<f32>,
}

/// Where the embedder is, and where what was learnt is kept.
#[derive(Debug, Clone)]
pub struct Desk {
    /// The embedder's folder.
    pub embedder: PathBuf,
    /// The file to keep what was learnt in, if any.
    pub kept: Option<PathBuf>,
}

/// Something that is being learnt.
pub(super) struct Learning(Receiver<Learnt>);

impl Learning {
    /// Learns these samples on a thread of its own, with this embedder or one of its own. A failure is logged, and
    /// nothing is learnt.
    pub(super) fn start(desk: Desk, embedder: Option<Embedder>, samples: Vec<Sample>) -> Self {
        let (sender, learnt) = sync_channel(1);
        let learn = move || match desk.learn(embedder, &samples) {
            // Nobody listens any more: the server stops.
            Ok(learnt) => drop(sender.send(learnt)),
            Err(error) => tracing::warn!(%error, "tools are predicted by rules alone"),
        };
        let thread = thread::Builder::new().name("learning".into()).spawn(learn);
        if let Err(error) = thread {
            tracing::warn!(%error, "tools are predicted by rules alone");
        }
        Self(learnt)
    }

    /// The trained heads; `None` until the training has ended.
    pub(super) fn done(&mut self) -> Option<Learnt> {
        self.0.try_recv().ok()
    }

    /// Waits for what is learnt; `None` if that failed.
    pub(super) fn wait(&mut self) -> Option<Learnt> {
        self.0.recv().ok()
    }
}

impl Desk {
    /// Learns these samples, or reads what was learnt of them before.
    pub(super) fn learn(
        &self,
        embedder: Option<Embedder>,
        samples: &[Sample],
    ) -> Result<Learnt, EmbedError> {
        let mut embedder = match embedder {
            Some(shared) => shared,
            None => Embedder::load(&self.embedder)?,
        };
        let nothing = Nothing::shipped();
        let fingerprint = fingerprint(samples, &nothing);
        let kept = match self.kept(&fingerprint, samples) {
            Some(kept) => kept,
            None => {
                let kept = studied(&mut embedder, samples, &nothing, fingerprint)?;
                self.keep(&kept);
                kept
            }
        };
        Ok(Learnt {
            embedder,
            memory: Memory {
                tools: kept.tools(samples),
                nothing: Arc::new(nothing),
            },
        })
    }

    /// The heads of an earlier training on exactly these samples, from the file.
    fn kept(&self, fingerprint: &str, samples: &[Sample]) -> Option<Kept> {
        let text = std::fs::read_to_string(self.kept.as_ref()?).ok()?;
        let kept: Kept = serde_json::from_str(&text).ok()?;
        let fits = kept.samples.len() == samples.len() * Embedder::LENGTH
            && kept.weights.len() == names(samples).len() * Embedder::LENGTH;
        (kept.fingerprint == fingerprint && fits).then_some(kept)
    }

    /// Keeps what was learnt, or learns it again at the next start.
    fn keep(&self, kept: &Kept) {
        let Some(path) = &self.kept else {
            return;
        };
        let write = || {
            path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
            // Another server may read it at this moment.
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

/// Embeds the samples and trains the head.
fn studied(
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
    /// The same with the tools of these samples, which replace those of the same names.
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

    /// How near words are to a tool, -1..1.
    pub(super) fn nearness(&self, tool: &str, words: &[f32]) -> f32 {
        self.tools.get(tool).map_or(0.0, |known| {
            let score = cosine(&known.weights, words);
            (nearest(&known.samples, words) + score) / 2.0
        })
    }

    /// How near words are to those that ask for nothing, -1..1.
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
