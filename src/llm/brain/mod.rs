//! The local brain: intents, slots and templates instead of a large model.
//!
//! It tells the time, does sums, converts units and keeps timers, uses a declared tool where the
//! words leave no doubt, and says so when something is beyond it. It speaks the same events as
//! every other model and answers in some 10 ms on one core.

mod answers;
mod classifier;
mod foreign;
mod mind;
mod request;
mod rules;

pub use classifier::ClassifierError;

use super::{Llm, LlmError, LlmEvent, LlmStream, Prompt};
use crate::tools::Registry;
use classifier::Classifier;
use foreign::Known;
use futures_util::{StreamExt, stream};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use tokio::sync::oneshot;

/// Prompts that may wait: at 10 ms each the last waits for two thirds of a second. One more is refused.
const WAITING: usize = 64;

type Answer = Result<Vec<LlmEvent>, LlmError>;
type Job = (Prompt, oneshot::Sender<Answer>);

/// The brain, on a thread of its own that ends when this is dropped.
#[derive(Debug)]
pub struct Brain {
    jobs: SyncSender<Job>,
}

/// Why the brain could not be started.
#[derive(Debug, thiserror::Error)]
pub enum BrainError {
    /// Its models could not be loaded.
    #[error(transparent)]
    Classifier(#[from] ClassifierError),
    /// The system gave no thread.
    #[error("cannot start the local brain's thread: {0}")]
    Thread(#[from] std::io::Error),
}

impl Brain {
    /// Loads the sentence embeddings from `folder` (`model.onnx`, `tokenizer.json`) and starts the
    /// thread. Of the tools that a prompt names it knows more where `tools` has them: their rules,
    /// examples, fillers and answers. [`crate::onnx::init`] comes first. Blocks for some 100 ms.
    ///
    /// # Errors
    /// [`BrainError`] if a file is missing or broken, or there is no thread to be had.
    pub fn start(folder: &Path, tools: &Registry) -> Result<Self, BrainError> {
        let classifier = Classifier::load(folder)?;
        let known = Known::of(tools);
        let (jobs, inbox) = sync_channel(WAITING);
        std::thread::Builder::new()
            .name("brain".into())
            .spawn(move || work(&inbox, classifier, &known))?;
        Ok(Self { jobs })
    }
}

/// Answers until the last sender is gone; what nobody waits for any more is skipped.
fn work(inbox: &Receiver<Job>, mut classifier: Classifier, known: &Known) {
    while let Ok((prompt, reply)) = inbox.recv() {
        if reply.is_closed() {
            continue;
        }
        let answer = mind::respond(&prompt, known, &mut classifier);
        let answer = answer.map_err(|error| LlmError::Engine(error.to_string()));
        // The generation may have been cancelled meanwhile.
        drop(reply.send(answer));
    }
}

impl Llm for Brain {
    fn name(&self) -> &str {
        "brain"
    }

    fn generate(&self, prompt: Prompt) -> LlmStream {
        let (reply, answer) = oneshot::channel();
        let accepted = self.jobs.try_send((prompt, reply)).is_ok();
        let events = async move {
            let refused = |reason: &str| Err(LlmError::Engine(reason.into()));
            let answer = match accepted {
                true => answer
                    .await
                    .unwrap_or_else(|_| refused("the local brain stopped")),
                false => refused("the local brain is busy"),
            };
            match answer {
                Ok(events) => stream::iter(events.into_iter().map(Ok).collect::<Vec<_>>()),
                Err(error) => stream::iter(vec![Err(error)]),
            }
        };
        stream::once(events).flatten().boxed()
    }
}
