//! The local brain: intents, slots and templates instead of a large model.
//!
//! It tells the time, does sums, converts units and keeps timers, calls a declared tool if the words leave no
//! doubt, and says so if it cannot do something. It streams the same events as every other model and answers
//! in about 10 ms on one core.

mod again;
mod answers;
mod classifier;
mod declared;
mod last_timer;
mod other_languages;
mod parts;

mod respond;
mod revised;
mod rules;
mod there;
mod when;

pub use classifier::ClassifierError;

use crate::llm::{Llm, LlmError, LlmEvent, LlmStream, Prompt, TOKEN_CHARS};
use crate::prediction::{EmbedError, RuleError, Settings};
use crate::tools::Registry;
use crate::worker::{Failed, SpawnError, Worker};
use classifier::Classifier;
use declared::Known;
use futures_util::{StreamExt, stream};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// The most waiting prompts: at 10 ms each, the last waits for two thirds of a second. Further prompts are
/// refused.
const WAITING: usize = 64;

type Answer = Result<Vec<LlmEvent>, EmbedError>;

/// The brain, on its own thread, which ends when this is dropped. If a prompt makes it panic, only that
/// prompt fails, and the classifier is loaded again.
#[derive(Debug)]
pub struct Brain {
    worker: Worker<Prompt, Answer>,
}

/// An error of a brain that could not be started.
#[derive(Debug, thiserror::Error)]
pub enum BrainError {
    /// A model file is missing or broken, or the thread cannot be started.
    #[error("cannot start the local brain: {0}")]
    Start(#[from] SpawnError<ClassifierError>),
    /// A rule of a declared tool does not parse.
    #[error("cannot start the local brain: {0}")]
    Rule(#[from] RuleError),
}

impl Brain {
    /// Loads the sentence embeddings and starts the thread. For tools that are in `tools` it uses their rules,
    /// fillers and answers, and asks for those of `predicted` in the same words as the sources of predictions.
    /// Call [`crate::onnx::init`] first. Blocks for about 100 ms; tools that are not learnt yet are learnt in the
    /// background, and the first request for one waits for that.
    ///
    /// # Errors
    /// [`BrainError`].
    pub fn start(predicted: Settings, tools: &Registry) -> Result<Self, BrainError> {
        let known = Known::of(tools, &predicted)?;
        let worker = Worker::spawn(
            "brain",
            WAITING,
            move || Classifier::load(&predicted),
            move |classifier, prompt, _| respond::respond(&prompt, &known, classifier),
        )?;
        Ok(Self { worker })
    }
}

impl Llm for Brain {
    fn name(&self) -> &str {
        "brain"
    }

    fn generate(&self, prompt: Prompt) -> LlmStream {
        let most = prompt.demands.max_tokens;
        let (reply, answer) = oneshot::channel::<Result<Answer, Failed>>();
        let cancel = CancellationToken::new();
        let cancel_if_dropped = cancel.clone().drop_guard();
        let sent = self.worker.try_send(prompt, cancel, |answer| {
            // The generation may have been cancelled in the meantime.
            drop(reply.send(answer));
        });
        let events = async move {
            let _wanted = cancel_if_dropped;
            let failed = |reason: &str| Err(LlmError::Engine(reason.into()));
            let answer = match sent {
                Ok(()) => answer.await,
                Err(_) => return stream::iter(vec![failed("the local brain is busy")]),
            };
            match answer {
                Ok(Ok(Ok(events))) => {
                    let events = match most {
                        Some(most) => cut(events, most),
                        None => events,
                    };
                    stream::iter(events.into_iter().map(Ok).collect::<Vec<_>>())
                }
                Ok(Ok(Err(error))) => stream::iter(vec![failed(&error.to_string())]),
                // The worker has logged the panic's message.
                Ok(Err(_)) | Err(_) => stream::iter(vec![failed("the local brain failed")]),
            }
        };
        stream::once(events).flatten().boxed()
    }

    fn often_said(&self, prompt: &Prompt) -> Vec<String> {
        respond::often_said(prompt)
    }
}

/// Cuts the answer at `most` tokens, counted as [`TOKEN_CHARS`] characters each. Words and calls stay whole.
fn cut(events: Vec<LlmEvent>, most: u32) -> Vec<LlmEvent> {
    let mut left = (most as usize).saturating_mul(TOKEN_CHARS);
    let mut kept = Vec::new();
    for event in events {
        match event {
            LlmEvent::Speech { text } if text.chars().count() > left => {
                let end = text
                    .char_indices()
                    .nth(left)
                    .map_or(text.len(), |(at, _)| at);
                let end = text[..end].rfind(char::is_whitespace).unwrap_or(0);
                let text = text[..end].to_owned();
                kept.extend((!text.is_empty()).then_some(LlmEvent::Speech { text }));
                kept.extend([LlmEvent::Cut, LlmEvent::End]);
                return kept;
            }
            LlmEvent::Speech { ref text } => left -= text.chars().count(),
            _ => {}
        }
        kept.push(event);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::{Demands, Message};
    use std::convert::Infallible;

    fn said(text: &str) -> Prompt {
        Prompt {
            instructions: None,
            day: None,
            messages: vec![Message::User { text: text.into() }],
            tools: Vec::new().into(),
            demands: Demands::default(),
        }
    }

    #[test]
    fn an_answer_is_cut_at_a_word_within_its_token_limit() {
        let speech = |text: &str| LlmEvent::Speech { text: text.into() };
        let answer = vec![speech("One two three four."), LlmEvent::End];
        assert_eq!(cut(answer.clone(), 100), answer);
        let short = [speech("One two"), LlmEvent::Cut, LlmEvent::End];
        assert_eq!(cut(answer.clone(), 3), short);
        assert_eq!(cut(answer, 0), [LlmEvent::Cut, LlmEvent::End]);
    }

    #[tokio::test]
    async fn a_panic_fails_one_prompt_and_the_brain_lives_on() {
        let worker = Worker::spawn(
            "brain",
            WAITING,
            || Ok::<(), Infallible>(()),
            |(), prompt: Prompt, _| match prompt == said("die") {
                true => panic!("a bug"),
                false => Ok(vec![LlmEvent::End]),
            },
        );
        let brain = Brain {
            worker: worker.unwrap(),
        };
        let failed: Vec<_> = brain.generate(said("die")).collect().await;
        assert!(matches!(failed[..], [Err(LlmError::Engine(_))]));
        let well: Vec<_> = brain.generate(said("live")).collect().await;
        assert!(matches!(well[..], [Ok(LlmEvent::End)]));
    }

    #[tokio::test]
    async fn a_prompt_for_which_there_is_no_room_fails_at_once() {
        let (go, may_go) = std::sync::mpsc::sync_channel(1);
        let worker = Worker::spawn(
            "brain",
            WAITING,
            || Ok::<(), Infallible>(()),
            move |(), prompt: Prompt, _| {
                if prompt == said("wait") {
                    may_go.recv().unwrap();
                }
                Ok(vec![LlmEvent::End])
            },
        );
        let brain = Brain {
            worker: worker.unwrap(),
        };
        let first = brain.generate(said("wait"));
        // The thread has taken the first, or is about to.
        let mut others: Vec<_> = (0..=WAITING).map(|_| brain.generate(said("hi"))).collect();
        let refused: Vec<_> = others.pop().unwrap().collect().await;
        assert!(
            matches!(&refused[..], [Err(LlmError::Engine(why))] if why.contains("busy")),
            "{refused:?}"
        );
        go.send(()).unwrap();
        let first: Vec<_> = first.collect().await;
        assert!(matches!(first[..], [Ok(LlmEvent::End)]));
        let next: Vec<_> = others.remove(0).collect().await;
        assert!(matches!(next[..], [Ok(LlmEvent::End)]));
    }
}
