//! The samples of the draft model. Each runs until its first complete call; its words are discarded.

use super::driver::Done;
use crate::conversation::{Input, RequestId, SampledCall};
use crate::llm::{Llm, LlmEvent, LlmStream, Prompt, TokenUsage, tokens_of};
use futures_util::{FutureExt, StreamExt};
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tracing::Instrument;

/// The end of a sample.
pub(super) struct Sampled {
    request: RequestId,
    /// Its place among the samples.
    sample: usize,
    call: Option<SampledCall>,
    usage: TokenUsage,
}

/// The draft model of a session, and the samples that have not ended.
pub(super) struct Drafts {
    llm: Option<Arc<dyn Llm>>,
    /// The samples of each request; `None` for one that has ended.
    open: HashMap<RequestId, Vec<Option<Sample>>>,
}

struct Sample {
    task: AbortHandle,
    /// The estimated tokens of the prompt.
    input: u64,
    /// Characters that it has written.
    written: Arc<AtomicUsize>,
}

impl Sample {
    /// Its tokens so far, estimated.
    fn usage(&self) -> TokenUsage {
        estimate(self.input, &self.written)
    }
}

fn estimate(input: u64, written: &AtomicUsize) -> TokenUsage {
    TokenUsage {
        input,
        output: tokens_of(written.load(Ordering::Relaxed)),
        ..TokenUsage::default()
    }
}

impl Drafts {
    pub(super) fn new(llm: Option<Arc<dyn Llm>>) -> Self {
        let open = HashMap::new();
        Self { llm, open }
    }

    /// Begins the samples. Each answers as [`Done::Drafted`].
    pub(super) fn ask(
        &mut self,
        request: RequestId,
        prompt: &Prompt,
        samples: u32,
        tasks: &mut JoinSet<()>,
        results: &mpsc::Sender<Done>,
    ) {
        let Some(llm) = &self.llm else {
            return;
        };
        let input = prompt.estimate();
        let samples = (0..samples as usize).map(|sample| {
            let (events, results) = (llm.generate(prompt.clone()), results.clone());
            let written = Arc::new(AtomicUsize::new(0));
            let counted = written.clone();
            let run = async move {
                let sampled = first_call(events, &counted);
                let (call, usage) = match AssertUnwindSafe(sampled).catch_unwind().await {
                    Ok(sampled) => sampled,
                    Err(_) => {
                        tracing::error!("the draft model's engine panicked");
                        (None, None)
                    }
                };
                let sampled = Sampled {
                    request,
                    sample,
                    call,
                    usage: usage.unwrap_or_else(|| estimate(input, &counted)),
                };
                drop(results.send(Done::Drafted(Box::new(sampled))).await);
            };
            let task = tasks.spawn(run.in_current_span());
            Some(Sample {
                task,
                input,
                written,
            })
        });
        self.open.insert(request, samples.collect());
    }

    /// Takes in the end of a sample. `None` if it was stopped before.
    pub(super) fn ended(&mut self, sampled: Sampled) -> Option<Input> {
        let Sampled {
            request,
            sample,
            call,
            usage,
        } = sampled;
        let samples = self.open.get_mut(&request)?;
        samples.get_mut(sample)?.take()?;
        if samples.iter().all(Option::is_none) {
            self.open.remove(&request);
        }
        Some(Input::Drafted {
            request,
            call,
            usage,
        })
    }

    /// Stops the samples of a request that have not ended, which closes their connections. Returns their answers.
    pub(super) fn stop(&mut self, request: RequestId) -> impl Iterator<Item = Input> + use<> {
        let samples = self.open.remove(&request).unwrap_or_default();
        samples.into_iter().flatten().map(move |sample| {
            sample.task.abort();
            Input::Drafted {
                request,
                call: None,
                usage: sample.usage(),
            }
        })
    }
}

/// Reads a sample up to its first complete call. Returns that call, and the tokens if the server has counted them.
async fn first_call(
    mut events: LlmStream,
    written: &AtomicUsize,
) -> (Option<SampledCall>, Option<TokenUsage>) {
    let (mut tool, mut usage) = (None, None);
    while let Some(event) = events.next().await {
        let text = match event {
            Ok(LlmEvent::ToolOpened { name }) => tool.insert(name).chars().count(),
            Ok(LlmEvent::ToolArguments { piece }) => piece.chars().count(),
            Ok(LlmEvent::Speech { text }) => text.chars().count(),
            Ok(LlmEvent::ToolClosed { arguments }) => {
                let call = tool.zip(arguments.ok());
                let call = call.map(|(tool, arguments)| SampledCall { tool, arguments });
                return (call, usage);
            }
            Ok(LlmEvent::Used { usage: counted }) => {
                usage = Some(counted);
                continue;
            }
            Ok(LlmEvent::End) => break,
            Ok(_) => continue,
            Err(error) => {
                tracing::debug!(reason = error.details(), "the draft model failed");
                tracing::warn!(reason = error.cause(), "the draft model failed");
                break;
            }
        };
        written.fetch_add(text, Ordering::Relaxed);
    }
    (None, usage)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::Demands;
    use crate::llm::scripted::{Scripted, Step};
    use serde_json::json;

    const REQUEST: RequestId = RequestId(1);

    fn prompt() -> Prompt {
        Prompt {
            instructions: Some("You are a test.".into()),
            day: None,
            messages: Vec::new(),
            tools: Vec::new().into(),
            demands: Demands::default(),
        }
    }

    fn asked(llm: impl Llm + 'static, samples: u32) -> (Drafts, JoinSet<()>, mpsc::Receiver<Done>) {
        let (results, incoming) = mpsc::channel(8);
        let (mut drafts, mut tasks) = (Drafts::new(Some(Arc::new(llm))), JoinSet::new());
        drafts.ask(REQUEST, &prompt(), samples, &mut tasks, &results);
        (drafts, tasks, incoming)
    }

    async fn next(incoming: &mut mpsc::Receiver<Done>) -> Sampled {
        match incoming.recv().await {
            Some(Done::Drafted(sampled)) => *sampled,
            _ => panic!("no sample has ended"),
        }
    }

    fn answer(input: Option<Input>) -> (Option<SampledCall>, TokenUsage) {
        match input {
            Some(Input::Drafted { call, usage, .. }) => (call, usage),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_sample_is_its_first_call_and_its_words_only_cost() {
        let text = "<speech>One moment.</speech><tool>f(n=1)</tool><tool>g()</tool>";
        let (mut drafts, _tasks, mut incoming) = asked(Scripted::always(text), 1);
        let sampled = next(&mut incoming).await;
        let (call, usage) = answer(drafts.ended(sampled));
        let call = call.expect("a call");
        assert_eq!(call.tool, "f");
        assert_eq!(json!(call.arguments), json!({"n": 1}));
        assert_eq!(usage.input, prompt().estimate());
        assert!(usage.output > 0);
    }

    #[tokio::test]
    async fn every_sample_ends_once_although_an_end_and_the_stop_cross() {
        let (mut drafts, _tasks, mut incoming) = asked(Scripted::always("<tool>f()</tool>"), 2);
        let (first, second) = (next(&mut incoming).await, next(&mut incoming).await);
        assert!(answer(drafts.ended(first)).0.is_some());
        let mut stopped = drafts.stop(REQUEST);
        let (call, usage) = answer(stopped.next());
        assert_eq!((call, stopped.next()), (None, None));
        assert!(usage.total() > 0);
        assert_eq!(drafts.ended(second), None);
    }

    #[tokio::test]
    async fn a_draft_that_hangs_is_aborted_and_one_that_fails_makes_no_call() {
        let (mut drafts, mut tasks, _incoming) = asked(Scripted::always(vec![Step::Hang]), 3);
        assert_eq!(drafts.stop(REQUEST).count(), 3);
        while let Some(ended) = tasks.join_next().await {
            assert!(ended.is_err_and(|error| error.is_cancelled()));
        }
        let fails = Scripted::always(vec![Step::Error("gone".into())]);
        let (mut drafts, _tasks, mut incoming) = asked(fails, 1);
        let sampled = next(&mut incoming).await;
        assert_eq!(answer(drafts.ended(sampled)).0, None);
    }
}
