//! Simulated servers under a virtual clock: how many streams they carry, and whether hanging up stops one.

use super::server::{Company, company};
use super::*;
use crate::llm::LlmStream;
use crate::llm::remote::CallPiece;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use tokio::sync::{Semaphore, mpsc};

const PREFILL: Duration = Duration::from_millis(80);
const TOKEN: Duration = Duration::from_millis(20);

/// A server with a number of slots.
#[derive(Clone)]
struct Simulated {
    slots: Arc<Semaphore>,
    /// The slots share one processor.
    shares: bool,
    /// It stops when its client hangs up.
    stops: bool,
    busy: Arc<AtomicU32>,
}

impl Simulated {
    fn new(slots: usize, shares: bool, stops: bool) -> Self {
        Self {
            slots: Arc::new(Semaphore::new(slots)),
            shares,
            stops,
            busy: Arc::default(),
        }
    }

    async fn answer(self, tokens: u32, events: mpsc::Sender<LlmEvent>) {
        let _slot = self.slots.acquire().await.expect("it is never closed");
        self.busy.fetch_add(1, SeqCst);
        tokio::time::sleep(PREFILL).await;
        for _ in 0..tokens {
            let others = if self.shares {
                self.busy.load(SeqCst)
            } else {
                1
            };
            tokio::time::sleep(TOKEN * others).await;
            let text = "one ".into();
            let is_heard = events.send(LlmEvent::Speech { text }).await.is_ok();
            if !is_heard && self.stops {
                break;
            }
        }
        self.busy.fetch_sub(1, SeqCst);
    }
}

impl Llm for Simulated {
    fn name(&self) -> &str {
        "simulated"
    }

    fn generate(&self, prompt: Prompt) -> LlmStream {
        let (sender, receiver) = mpsc::channel(1_000);
        let tokens = prompt.demands.max_tokens.expect("a limit");
        tokio::spawn(self.clone().answer(tokens, sender));
        futures_util::stream::unfold(receiver, |mut receiver| async move {
            let event = receiver.recv().await?;
            Some((Ok(event), receiver))
        })
        .boxed()
    }
}

async fn found(slots: usize, shares: bool, stops: bool) -> Company {
    company(&Simulated::new(slots, shares, stops)).await
}

#[tokio::test(start_paused = true)]
async fn one_slot_makes_the_second_answer_wait_and_shows_whether_hanging_up_stops_it() {
    for stops in [true, false] {
        let found = found(1, false, stops).await;
        assert_eq!((found.queues, found.slower), (Some(true), None));
        assert_eq!(found.stops, Some(stops));
    }
}

#[test]
fn a_server_that_says_that_it_has_one_slot_is_believed_whatever_its_times() {
    let measured = || Company {
        queues: Some(false),
        slower: Some(0.83),
        ..Company::default()
    };
    let told = |slots| Properties {
        context: None,
        slots,
        lacks_tools: false,
    };
    let one = measured().believe(Some(&told(Some(1))));
    assert_eq!((one.queues, one.slower), (Some(true), None));
    assert_eq!(measured().believe(Some(&told(Some(2)))), measured());
    assert_eq!(measured().believe(None), measured());
}

#[tokio::test(start_paused = true)]
async fn slots_that_share_a_processor_are_slower_together_and_show_whether_hanging_up_stops_one() {
    for stops in [true, false] {
        let found = found(4, true, stops).await;
        assert_eq!((found.queues, found.stops), (Some(false), Some(stops)));
        let slower = found.slower.expect("it can be told");
        assert!((1.8..=2.1).contains(&slower), "{slower}");
    }
}

/// Nothing that a client can see tells whether such a server has stopped.
#[tokio::test(start_paused = true)]
async fn of_a_server_with_room_for_many_it_cannot_be_told_whether_hanging_up_stops_it() {
    for stops in [true, false] {
        let found = found(100, false, stops).await;
        assert_eq!((found.queues, found.stops), (Some(false), None));
        let slower = found.slower.expect("it can be told");
        assert!((0.95..=1.05).contains(&slower), "{slower}");
    }
}

/// Bedrock leaves those of gpt-oss in the text.
#[test]
fn thoughts_between_tags_for_reasoning_are_thoughts() {
    assert!(thinks_in_text("<reasoning>Hm.</reasoning>Hello."));
    assert!(!thinks_in_text("Hello."));
}

/// Only those in `think` and Gemma's channel were found, so that the others were read aloud.
#[test]
fn thoughts_of_every_name_that_nothing_opens_come_first() {
    for text in [
        "Hm.</think>Hello.",
        "Hm.</reasoning>Hello. <think>Hm.</think>",
        "5 < 6 <b>Hm.</longcat_think >Hello.",
        "Hm.<|END_THINKING|>Hello.",
        "Hm.<channel|>Hello.",
        "Hm.[/THINK]Hello.",
        "Hm.◁/think▷Hello.",
    ] {
        assert!(closes_unopened_thoughts(text), "{text}");
    }
    for text in [
        "<reasoning>Hm.</reasoning>Hello.",
        "<seed:think>Hm.</seed:think>Hello.",
        "<|channel>thought\nHm.<channel|>Hello.",
        "<|START_THINKING|>Hm.<|END_THINKING|>Hello.",
        "[THINK]Hm.[/THINK]Hello.",
        "<no_think>Hello.</no_think>",
        "Hello.<|im_end|>",
    ] {
        assert!(!closes_unopened_thoughts(text), "{text}");
    }
}

#[test]
fn the_shape_of_native_calls_is_told() {
    let first = |index: Option<u64>, has_id| CallPiece {
        index,
        has_id,
        has_name: true,
        has_arguments: false,
    };
    let more = CallPiece {
        has_arguments: true,
        ..CallPiece::default()
    };
    let shape =
        |pieces: &[CallPiece]| Shape::of(pieces).map(|s| (s.calls, s.pieces, s.indexes, s.has_ids));
    let (zero, one) = (Some(0), Some(1));
    assert_eq!(shape(&[more]), None, "no call has a name");
    assert_eq!(
        shape(&[first(zero, true), more, more, first(one, true), more]),
        Some((2, 3, Indexes::Own, true))
    );
    assert_eq!(
        shape(&[first(zero, true), first(zero, true)]),
        Some((2, 0, Indexes::Shared, true))
    );
    assert_eq!(
        shape(&[first(None, false), first(None, false)]),
        Some((2, 0, Indexes::Absent, false))
    );
}
