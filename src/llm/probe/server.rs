//! The properties of a server that do not depend on the way of calling tools: its context, its cache, whether
//! hanging up stops it, and how two answers at once fare.

use super::{Trial, asked, prompt, trial, user};
use crate::llm::prompt::Prompts;
use crate::llm::remote::{CallPiece, Remote};
use crate::llm::{Llm, LlmError, LlmEvent, LlmStream, Message, Prompt, TOKEN_CHARS};
use futures_util::StreamExt;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The part of `max_prompt_tokens` that the longest prompt fills.
const FILLED: f64 = 0.95;

/// The parts that are tried after a refusal, the largest first.
const SMALLER: [f64; 3] = [0.75, 0.5, 0.25];

/// The share of tokens that must arrive of a prompt. Templates add some, and some servers do not count all of them.
const ARRIVED: f64 = 0.95;

/// The part of the context that a recommended limit fills: other texts have more tokens than the probe's.
const SAFE: f64 = 0.9;

/// The lowest limit on a prompt that the configuration takes, tokens.
const LEAST_LIMIT: u64 = 500;

/// The longest answer that repeats a word. A model that thinks gets the configured limit.
const RECALL: u32 = 32;

/// A difference must be larger than this to be one: time to the first word, and between two pieces.
const LATER: (f64, Duration) = (1.5, Duration::from_millis(100));
const SLOWER: f64 = 1.3;

/// The longest answers of the streams that are timed, and of those beside them, tokens.
const TIMED: u32 = 60;
const BESIDE: u32 = 240;

/// Whether the longest prompt arrives whole.
#[derive(Debug, Clone, PartialEq)]
pub enum Context {
    /// The server counted as many tokens as were sent.
    Fits {
        /// The tokens counted.
        tokens: u64,
        /// The model knows the beginning; `None` if it forgets that of a short prompt as well.
        recalls: Option<bool>,
    },
    /// The server does not count, but the model knows the beginning.
    Recalled,
    /// The server counted fewer tokens than were sent, so it has cut the prompt without a word.
    Cut {
        /// The tokens counted.
        arrived: u64,
        /// The tokens sent.
        sent: u64,
        /// The `max_prompt_tokens` that fits.
        limit: u64,
    },
    /// The server does not count, and the model knows the beginning of a short prompt, not of the long one.
    Forgotten {
        /// The largest `max_prompt_tokens` at which it knows it.
        limit: Option<u64>,
    },
    /// The server refused the prompt.
    Refused {
        /// Its reason.
        why: String,
        /// The `max_prompt_tokens` that fits.
        limit: Option<u64>,
    },
    /// It cannot be told, for this reason.
    Unknown(String),
}

impl Context {
    /// The limit on prompts that the server needs, if the configured one is too high.
    pub fn limit(&self) -> Option<u64> {
        let limit = match self {
            Self::Cut { limit, .. } => Some(*limit),
            Self::Forgotten { limit } | Self::Refused { limit, .. } => *limit,
            Self::Fits { .. } | Self::Recalled | Self::Unknown(_) => None,
        };
        limit.filter(|limit| *limit >= LEAST_LIMIT)
    }
}

/// Properties that a server of llama.cpp reports of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Properties {
    /// The context of one stream, tokens.
    pub context: Option<u64>,
    /// Streams at the same time.
    pub slots: Option<u64>,
    /// The chat template has no tools, so that native calls take the server's generic form, or are never made.
    pub lacks_tools: bool,
}

impl Properties {
    /// Asks the server; `None` if it is not llama.cpp.
    pub(super) async fn of(llm: &Remote) -> Option<Self> {
        let properties = llm.properties().await?;
        let number = |value: &Value| value.as_u64().filter(|number| *number > 0);
        let template = properties["chat_template"].as_str();
        let has_tools = match properties["chat_template_caps"]["supports_tools"].as_bool() {
            Some(supports) => Some(supports),
            None => template.map(|template| template.contains("tools")),
        };
        let found = Self {
            context: number(&properties["default_generation_settings"]["n_ctx"]),
            slots: number(&properties["total_slots"]),
            lacks_tools: has_tools == Some(false),
        };
        (found.context.is_some() || found.slots.is_some()).then_some(found)
    }
}

/// How a server sends native calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Calls in the answer, counted by their names.
    pub calls: usize,
    /// Pieces with arguments.
    pub pieces: usize,
    /// Their indexes.
    pub indexes: Indexes,
    /// Every call has an id.
    pub has_ids: bool,
}

/// The indexes of native calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Indexes {
    /// Each call has its own.
    Own,
    /// Several calls share one.
    Shared,
    /// There are none.
    Absent,
}

impl Shape {
    /// The shape of an answer's calls; `None` if there are none.
    pub(super) fn of(pieces: &[CallPiece]) -> Option<Self> {
        let named: Vec<&CallPiece> = pieces.iter().filter(|piece| piece.has_name).collect();
        let mut known: Vec<u64> = named.iter().filter_map(|piece| piece.index).collect();
        let indexed = known.len();
        known.sort_unstable();
        known.dedup();
        let indexes = match (indexed, known.len()) {
            (0, _) => Indexes::Absent,
            (all, different) if all > different => Indexes::Shared,
            _ => Indexes::Own,
        };
        (!named.is_empty()).then(|| Self {
            calls: named.len(),
            pieces: pieces.iter().filter(|piece| piece.has_arguments).count(),
            indexes,
            has_ids: named.iter().all(|piece| piece.has_id),
        })
    }
}

/// Tokens of a repeated prompt that were in the cache, and all of them.
pub(super) async fn cache(llm: &dyn Llm) -> Option<(u64, u64)> {
    let same = || asked(2, "Are you there?");
    trial(llm, same(), usize::MAX).await.ok()?;
    let usage = trial(llm, same(), usize::MAX).await.ok()?.usage?;
    Some((usage.cached, usage.input))
}

/// A conversation with a word at its beginning, for which its end asks.
struct Recollection<'a> {
    llm: &'a dyn Llm,
    prompts: &'a Prompts,
    /// `llm.max_prompt_tokens`.
    most: usize,
    thinks: bool,
}

/// The words at the beginnings: another each time, so that no cache holds a prompt.
const WORDS: [&str; 6] = ["walnut", "lantern", "saddle", "pepper", "anchor", "violin"];

impl Recollection<'_> {
    /// The prompt with this many turns between the word and the question.
    fn prompt(&self, word: &str, turns: usize) -> Prompt {
        const TALK: &str = "The old man sat by the sea and saw the boats come in with the tide. It was a warm day, \
                            and the sun was low, so he put on his hat, took up his bag and went home to his dog.";
        let agent = |text: &str| Message::Agent {
            text: text.into(),
            interrupted: false,
        };
        let first =
            format!("The word is {word}. Keep it in mind: I will ask you for it at the end.");
        let mut messages = vec![user(&first), agent("I will.")];
        for _ in 0..turns {
            messages.extend([user(TALK), agent("I see. Go on.")]);
        }
        messages.push(user(
            "Which word did I ask you to keep in mind? Say that word alone.",
        ));
        let mut prompt = prompt(messages, Arc::default());
        prompt.demands.max_tokens = (!self.thinks).then_some(RECALL);
        prompt
    }

    /// The characters of a prompt, as the limit counts them; `None` if the limit cuts it.
    fn chars(&self, turns: usize) -> Option<usize> {
        let chat = self.prompts.chat(&self.prompt(WORDS[0], turns)).ok()?;
        let is_whole = chat.iter().any(|m| m.content.contains(WORDS[0]));
        is_whole.then(|| chat.iter().map(|m| m.content.chars().count()).sum())
    }

    /// The most turns with which a prompt stays within this share of the limit. Nothing of it is left out then.
    fn turns(&self, share: f64) -> usize {
        let most = (self.most as f64 * share * TOKEN_CHARS as f64) as usize;
        let fits = |turns: &usize| self.chars(*turns).is_some_and(|chars| chars <= most);
        // Doubling finds an upper bound, halving the most.
        let mut high = 1;
        while high < self.most && fits(&high) {
            high *= 2;
        }
        let mut low = 0;
        while high - low > 1 {
            let middle = low.midpoint(high);
            match fits(&middle) {
                true => low = middle,
                false => high = middle,
            }
        }
        low
    }

    /// Asks, and returns the tokens counted and whether the word came back.
    async fn ask(&self, word: &str, turns: usize) -> Result<(Option<u64>, bool), LlmError> {
        let Trial { usage, words, .. } =
            trial(self.llm, self.prompt(word, turns), usize::MAX).await?;
        let recalls = words.to_lowercase().contains(word);
        Ok((usage.map(|usage| usage.input), recalls))
    }

    /// The largest smaller limit with which a prompt arrives.
    async fn smaller(
        &self,
        arrives: impl Fn(bool) -> bool,
        words: &[&str],
    ) -> (Option<u64>, usize) {
        let mut requests = 0;
        for (share, word) in SMALLER.into_iter().zip(words) {
            requests += 1;
            let asked = self.ask(word, self.turns(share * FILLED)).await;
            if asked.is_ok_and(|(_, recalls)| arrives(recalls)) {
                let limit = self.most as f64 * share;
                return (Some(rounded(limit)), requests);
            }
        }
        (None, requests)
    }
}

/// Whole hundreds, which is all that is known.
fn rounded(tokens: f64) -> u64 {
    (tokens / 100.0) as u64 * 100
}

/// Sends two short prompts, and a long one that fills the limit, and compares what the server counted and the model
/// remembers. Returns the number of requests, too. The server is to have room for `answer` tokens beside a prompt.
pub(super) async fn context(
    llm: &dyn Llm,
    prompts: &Prompts,
    most: usize,
    answer: u32,
    thinks: bool,
    properties: Option<&Properties>,
) -> (Context, usize) {
    let conversation = Recollection {
        llm,
        prompts,
        most,
        thinks,
    };
    let turns = conversation.turns(FILLED);
    let few = turns.min(4);
    let short = match conversation.ask(WORDS[0], 0).await {
        Ok(short) => short,
        Err(error) => return (Context::Unknown(error.details()), 1),
    };
    let middle = match conversation.ask(WORDS[1], few).await {
        Ok(middle) => middle,
        Err(error) => return (Context::Unknown(error.details()), 2),
    };
    let knows = short.1 && middle.1;
    let long = conversation.ask(WORDS[2], turns).await;
    match (long, short.0, middle.0) {
        (Err(error @ LlmError::Status { .. }), ..) => {
            let why = error.details();
            let told = properties.and_then(|known| known.context);
            let told = told.map(|context| {
                rounded((context as f64 - f64::from(answer)) * SAFE).min(most as u64)
            });
            let (limit, requests) = match told {
                Some(limit) => (Some(limit), 0),
                None => conversation.smaller(|_| true, &WORDS[3..]).await,
            };
            (Context::Refused { why, limit }, 3 + requests)
        }
        (Err(error), ..) => (Context::Unknown(error.details()), 3),
        (Ok((Some(arrived), recalls)), Some(short), Some(middle)) if middle > short => {
            let a_turn = (middle - short) as f64 / few.max(1) as f64;
            let sent = short as f64 + a_turn * turns as f64;
            if arrived as f64 >= sent * ARRIVED {
                let recalls = knows.then_some(recalls);
                let tokens = arrived;
                return (Context::Fits { tokens, recalls }, 3);
            }
            // Tokens as the server counts them, for each that the configuration counts.
            let chars = |turns| conversation.chars(turns).unwrap_or_default();
            let in_chars = chars(few).saturating_sub(chars(0)) / few.max(1);
            let density = a_turn / (in_chars as f64 / TOKEN_CHARS as f64).max(1.0);
            let room = arrived as f64 - f64::from(answer);
            let limit = rounded(room * SAFE / density.max(1.0));
            let sent = sent as u64;
            let cut = Context::Cut {
                arrived,
                sent,
                limit,
            };
            (cut, 3)
        }
        (Ok((_, true)), ..) => (Context::Recalled, 3),
        (Ok((_, false)), ..) if knows => {
            let found = conversation.smaller(|recalls| recalls, &WORDS[3..]).await;
            let (limit, requests) = found;
            (Context::Forgotten { limit }, 3 + requests)
        }
        (Ok((_, false)), ..) => {
            let why = "the server does not count tokens, and the model forgets even a short prompt";
            (Context::Unknown(why.into()), 3)
        }
    }
}

/// How answers at the same time fare.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Company {
    /// How much slower a stream is beside another: 1 is not at all.
    pub(super) slower: Option<f64>,
    /// A second answer begins only when the first is over.
    pub(super) queues: Option<bool>,
    /// Hanging up stops the server.
    pub(super) stops: Option<bool>,
    /// The failed request that left some of it unknown.
    pub(super) failure: Option<String>,
    /// How many requests that took.
    pub(super) requests: usize,
}

impl Company {
    /// Takes a server's word that it has one slot for what the times say, which depend on all that its machine does.
    pub(super) fn believe(self, told: Option<&Properties>) -> Self {
        match told.and_then(|told| told.slots) {
            Some(1) => Self {
                queues: Some(true),
                slower: None,
                ..self
            },
            _ => self,
        }
    }
}

/// The speed of an answer: the time to its first word, and the mean time between two pieces.
#[derive(Debug, Clone, Copy)]
struct Speed {
    first: Duration,
    gap: Option<Duration>,
}

impl Speed {
    fn of(trial: &Trial) -> Option<Self> {
        let count = u32::try_from(trial.gaps.len()).unwrap_or_default();
        let sum: Duration = trial.gaps.iter().sum();
        Some(Self {
            first: trial.first?,
            gap: (count >= 5).then(|| sum / count),
        })
    }
}

fn counting(tokens: u32) -> Prompt {
    let text = "Count aloud from one to sixty, in words, and say every number.";
    let mut prompt = prompt(vec![user(text)], Arc::default());
    prompt.demands.max_tokens = Some(tokens);
    prompt
}

/// The failure of an answer that has no word.
const SILENT: &str = "the model does not count when it is asked to";

/// Reads to the first word.
async fn begins(events: &mut LlmStream) -> Result<(), String> {
    while let Some(event) = events.next().await {
        if let LlmEvent::Speech { .. } = event.map_err(|error| error.details())? {
            return Ok(());
        }
    }
    Err(SILENT.into())
}

/// The speed of one answer.
async fn speed(llm: &dyn Llm) -> Result<Speed, String> {
    let trial = trial(llm, counting(TIMED), usize::MAX).await;
    let trial = trial.map_err(|error| error.details())?;
    Speed::of(&trial).ok_or_else(|| SILENT.into())
}

/// Times an answer alone, beside another, and after another whose client has hung up. The last two differ only if
/// hanging up stops the server; if already the first two are the same, nothing can be told.
pub(super) async fn company(llm: &dyn Llm) -> Company {
    let mut found = Company::default();
    let compared = compare(llm, &mut found).await;
    found.failure = compared.err();
    found
}

async fn compare(llm: &dyn Llm, found: &mut Company) -> Result<(), String> {
    // From then on the prompt is in the server's cache.
    found.requests += 1;
    let first = trial(llm, counting(1), usize::MAX).await;
    first.map_err(|error| error.details())?;
    found.requests += 1;
    let alone = speed(llm).await?;
    found.requests += 2;
    let (beside, queues) = beside(llm, &alone).await?;
    found.queues = queues;
    if let (Some(alone), Some(beside), Some(false)) = (alone.gap, beside.gap, queues) {
        found.slower = Some(beside.as_secs_f64() / alone.as_secs_f64().max(1e-6));
    }
    found.requests += 2;
    let mut other = llm.generate(counting(BESIDE));
    begins(&mut other).await?;
    drop(other);
    found.stops = stops(alone, beside, speed(llm).await?);
    Ok(())
}

/// The speed of an answer beside another, and whether it had to wait for the end of that; `None` if that was over too
/// early to tell.
async fn beside(llm: &dyn Llm, alone: &Speed) -> Result<(Speed, Option<bool>), String> {
    let mut other = llm.generate(counting(BESIDE));
    begins(&mut other).await?;
    let began = now();
    let rest = async {
        while other.next().await.is_some_and(|event| event.is_ok()) {}
        now() - began
    };
    let (rest, second) = futures_util::future::join(rest, speed(llm)).await;
    let second = second?;
    let queues = match rest <= second.first {
        true if is_later(alone.first, second.first) => Some(true),
        true => None,
        false => Some(false),
    };
    Ok((second, queues))
}

fn stops(alone: Speed, beside: Speed, after: Speed) -> Option<bool> {
    let is_nearer = |alone: Duration, beside: Duration, after: Duration| after * 2 < alone + beside;
    if is_later(alone.first, beside.first) {
        return Some(is_nearer(alone.first, beside.first, after.first));
    }
    let (alone, beside, after) = (alone.gap?, beside.gap?, after.gap?);
    let is_slower = beside.as_secs_f64() > alone.as_secs_f64() * SLOWER;
    is_slower.then(|| is_nearer(alone, beside, after))
}

fn is_later(alone: Duration, beside: Duration) -> bool {
    let (factor, least) = LATER;
    beside > alone.mul_f64(factor) + least
}

#[allow(clippy::disallowed_methods, reason = "an edge: it measures")]
pub(super) fn now() -> Instant {
    Instant::now()
}
