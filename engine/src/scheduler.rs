//! Batched decoding: each forward pass has the next tokens of all sequences. One thread owns the model.
//!
//! A request has a sequence of its own until its answer ends, and then the sequence is dropped. A call whose result is
//! in the tool cache does not end the answer: the sequence stays, and only the tokens that differ are read.

use crate::cache::ToolCache;
use crate::chat::{ChatRequest, Next, Piece, call_text};
use crate::counters::Counters;
use crate::decoder::{Found, Round};
use crate::grammar;
use anyhow::{Context, bail};
use llama_cpp_2::context::LlamaContext;
use llama_cpp_2::context::params::LlamaContextParams;
use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::model::params::LlamaModelParams;
use llama_cpp_2::sampling::LlamaSampler;
use llama_cpp_2::token::LlamaToken;
use llama_cpp_2::token::data::LlamaTokenData;
use llama_cpp_2::token::data_array::LlamaTokenDataArray;
use serde_json::{Map, Value};
use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::mpsc;

/// The number of likeliest tokens that are first checked against the grammar.
const LIKELY: usize = 64;

/// The most tokens of one forward pass.
const BATCH: usize = 512;

/// The settings of an engine.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The model's file, in GGUF.
    pub model: PathBuf,
    /// Threads of a forward pass.
    pub threads: i32,
    /// Answers that are written at once.
    pub slots: u32,
    /// The longest sequence, tokens.
    pub context: u32,
}

/// A request, and where its answer goes. A dropped receiver ends it.
#[derive(Debug)]
pub struct Job {
    /// The name of the answer, under which results are posted.
    pub response: String,
    /// The request.
    pub request: ChatRequest,
    /// The answer.
    pub events: mpsc::Sender<Event>,
}

/// An event of an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Words.
    Words(String),
    /// A call has begun.
    Opened(String),
    /// The call is complete.
    Called(Map<String, Value>),
    /// The result of the call was there; what follows is the answer to it.
    GoesOn,
    /// A token was taken.
    Took(Choice),
    /// The answer is over.
    Ended(Finish, Usage),
    /// The answer failed.
    Failed(String),
}

/// A token that was taken, and how much more likely than the next one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// The token.
    pub token: i32,
    /// The difference of the two best logits.
    pub margin: f32,
}

/// The reason for an answer's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// The model was done.
    Stop,
    /// The client has to run the call.
    Calls,
    /// The token limit, or the end of the context.
    Length,
}

/// Tokens of an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Of the prompt.
    pub prompt: usize,
    /// Of the answer, calls included.
    pub written: usize,
}

/// Loads the model, and answers jobs until all senders are gone.
///
/// # Errors
/// The model cannot be loaded, or a forward pass fails.
pub fn run(
    settings: &Settings,
    cache: &Arc<ToolCache>,
    counters: &Arc<Counters>,
    jobs: mpsc::Receiver<Job>,
    ready: impl FnOnce(),
) -> anyhow::Result<()> {
    let mut backend = LlamaBackend::init()?;
    backend.void_logs();
    if !settings.model.is_file() {
        bail!("there is no model at {}", settings.model.display());
    }
    let parameters = LlamaModelParams::default();
    let model = LlamaModel::load_from_file(&backend, &settings.model, &parameters)
        .with_context(|| format!("cannot load {}", settings.model.display()))?;
    let context = LlamaContextParams::default()
        .with_n_ctx(NonZeroU32::new(settings.context * settings.slots))
        .with_n_batch(BATCH as u32)
        .with_n_seq_max(settings.slots)
        .with_n_threads(settings.threads)
        .with_n_threads_batch(settings.threads);
    let context = model.new_context(&backend, context)?;
    ready();
    let scheduler = Scheduler {
        model: &model,
        context,
        batch: LlamaBatch::new(BATCH, 1),
        longest: settings.context as usize,
        slots: (0..settings.slots).map(|_| None).collect(),
        cache: Arc::clone(cache),
        counters: Arc::clone(counters),
    };
    scheduler.run(jobs)
}

struct Scheduler<'m> {
    model: &'m LlamaModel,
    context: LlamaContext<'m>,
    batch: LlamaBatch<'m>,
    longest: usize,
    slots: Vec<Option<Slot>>,
    cache: Arc<ToolCache>,
    counters: Arc<Counters>,
}

/// An answer that is being written, and its sequence.
struct Slot {
    job: Job,
    /// The tokens in the sequence.
    tokens: Vec<LlamaToken>,
    /// The tokens that are to be read next.
    pending: VecDeque<LlamaToken>,
    /// How many of the last pending tokens are a draft of what the model will write.
    draft: usize,
    /// Rows of the last pass from which the next tokens are taken: those behind the token before the draft.
    rows: Vec<i32>,
    round: Round,
    /// Tokens of this round.
    written: usize,
    /// The tool of the call that has begun.
    called: Option<String>,
    grammar: Option<LlamaSampler>,
    usage: Usage,
}

/// The state of a slot after a pass.
#[derive(PartialEq)]
enum Fate {
    Stays,
    Ends,
}

impl Scheduler<'_> {
    fn run(mut self, mut jobs: mpsc::Receiver<Job>) -> anyhow::Result<()> {
        loop {
            while let Some(free) = self.slots.iter().position(Option::is_none) {
                let is_idle = self.slots.iter().all(Option::is_none);
                let job = match is_idle {
                    true => jobs.blocking_recv(),
                    false => jobs.try_recv().ok(),
                };
                match job {
                    Some(job) => self.begin(free, job),
                    None if is_idle => return Ok(()),
                    None => break,
                }
            }
            self.pass()?;
        }
    }

    fn begin(&mut self, at: usize, job: Job) {
        let target = self.tokens_of(&job.request);
        self.counters.requests.add(1);
        if target.len() + 1 >= self.longest {
            let (most, is) = (self.longest, target.len());
            let reason = format!("the prompt has {is} tokens, and the context {most}");
            drop(job.events.try_send(Event::Failed(reason)));
            return self.cache.close(&job.response);
        }
        self.counters.prefilled_tokens.add(target.len());
        let mut slot = Slot {
            usage: Usage {
                prompt: target.len(),
                written: 0,
            },
            job,
            tokens: Vec::new(),
            pending: target.into(),
            draft: 0,
            rows: Vec::new(),
            round: Round::default(),
            written: 0,
            called: None,
            grammar: None,
        };
        match self.open_round(&mut slot) {
            Ok(()) => self.slots[at] = Some(slot),
            Err(error) => {
                drop(slot.job.events.try_send(Event::Failed(error.to_string())));
                self.cache.close(&slot.job.response);
            }
        }
    }

    /// One forward pass of all sequences, and what follows from it.
    fn pass(&mut self) -> anyhow::Result<()> {
        self.batch.clear();
        let waiting = |slot: &Option<Slot>| slot.as_ref().map_or(0, |slot| slot.pending.len());
        let mut order: Vec<usize> = (0..self.slots.len()).collect();
        // Answers that are being written do not wait for long prompts.
        order.sort_by_key(|at| waiting(&self.slots[*at]));
        for at in order {
            let Some(slot) = &mut self.slots[at] else {
                continue;
            };
            slot.rows.clear();
            let room = BATCH - self.batch.n_tokens() as usize;
            // The rows of a draft are needed together.
            if slot.draft > 0 && slot.pending.len() > room {
                continue;
            }
            let now = slot.pending.len().min(room);
            let first_row = slot.pending.len().saturating_sub(1 + slot.draft);
            for (nth, token) in slot.pending.drain(..now).enumerate() {
                let wanted = nth >= first_row;
                if wanted {
                    slot.rows.push(self.batch.n_tokens());
                }
                let position = slot.tokens.len() as i32;
                self.batch.add(token, position, &[at as i32], wanted)?;
                slot.tokens.push(token);
            }
        }
        if self.batch.n_tokens() == 0 {
            return Ok(());
        }
        self.counters.forward_passes.add(1);
        self.context.decode(&mut self.batch)?;
        for at in 0..self.slots.len() {
            let Some(mut slot) = self.slots[at].take() else {
                continue;
            };
            let goes_on = slot.rows.is_empty() || self.take(at, &mut slot)? == Fate::Stays;
            if goes_on && !slot.job.events.is_closed() {
                self.slots[at] = Some(slot);
            } else {
                self.cache.close(&slot.job.response);
                self.forget(at, 0)?;
            }
        }
        Ok(())
    }

    /// Takes the next tokens of a sequence from the rows of the last pass: one, or as many as a draft was right
    /// about.
    fn take(&mut self, at: usize, slot: &mut Slot) -> anyhow::Result<Fate> {
        let draft = slot.tokens.split_off(slot.tokens.len() - slot.draft);
        slot.draft = 0;
        for (nth, row) in std::mem::take(&mut slot.rows).into_iter().enumerate() {
            let choice = self.choose(row, slot.grammar.as_mut());
            let token = LlamaToken(choice.token);
            let is_right = draft.get(nth) == Some(&token);
            match is_right {
                true => {
                    slot.tokens.push(token);
                    self.counters.validated_tokens.add(1);
                }
                false => self.counters.decoded_tokens.add(1),
            }
            (slot.usage.written, slot.written) = (slot.usage.written + 1, slot.written + 1);
            slot.tell(Event::Took(choice));
            if self.model.vocab().is_eog(token) {
                return self.end(slot, Finish::Stop);
            }
            if let Some(grammar) = &mut slot.grammar {
                grammar.accept(token);
            }
            let piece = self.model.vocab().token_to_piece(token, false, None);
            let (words, found) = slot.round.push(&piece);
            if !words.is_empty() && !slot.tell(Event::Words(words)) {
                return Ok(Fate::Ends);
            }
            match found {
                Found::Call(name, arguments) => {
                    return self.on_call(at, slot, &name, arguments);
                }
                Found::Broken => return self.end(slot, Finish::Stop),
                Found::Name(name) => {
                    slot.tell(Event::Opened(name.clone()));
                    slot.called = Some(name);
                }
                Found::Nothing => {}
            }
            if slot.written >= slot.job.request.limit() || slot.tokens.len() + 1 >= self.longest {
                return self.end(slot, Finish::Length);
            }
            if !is_right {
                let wrong = draft.len() - nth;
                self.counters.rejected_tokens.add(wrong);
                if wrong > 0 {
                    self.forget(at, slot.tokens.len())?;
                }
                slot.pending = [token].into();
                self.draft(slot);
                return Ok(Fate::Stays);
            }
        }
        Ok(Fate::Stays)
    }

    /// Drafts the rest of the call that the cache has a result of, also after a token that only cuts the same text
    /// in another way.
    fn draft(&self, slot: &mut Slot) {
        let Some(name) = &slot.called else {
            return;
        };
        let Some(arguments) = self.cache.latest(&slot.job.response, name) else {
            return;
        };
        let call = call_text(name, &arguments);
        let Some(rest) = slot.round.rest_of(&call) else {
            return;
        };
        let rest = self.model.vocab().tokenize(rest.as_bytes(), false, false);
        if rest.len() < BATCH / 2 && slot.tokens.len() + rest.len() + 2 < self.longest {
            slot.draft = rest.len();
            slot.pending.extend(rest);
        }
    }

    /// A call is complete. Goes on if its result is there.
    fn on_call(
        &mut self,
        at: usize,
        slot: &mut Slot,
        name: &str,
        arguments: Map<String, Value>,
    ) -> anyhow::Result<Fate> {
        let output = self.cache.output(&slot.job.response, name, &arguments);
        slot.tell(Event::Called(arguments.clone()));
        let Some(output) = output else {
            self.counters.cache_misses.add(1);
            return self.end(slot, Finish::Calls);
        };
        self.counters.cache_hits.add(1);
        slot.tell(Event::GoesOn);
        let words = slot.round.words_before().to_owned();
        slot.job
            .request
            .add_call(&words, (name, &arguments), output);
        let target = self.tokens_of(&slot.job.request);
        if target.len() + 1 >= self.longest {
            return self.end(slot, Finish::Length);
        }
        let known = slot.tokens.iter().zip(&target);
        let known = known.take_while(|(a, b)| a == b).count();
        self.forget(at, known)?;
        slot.tokens.truncate(known);
        slot.pending = target[known..].iter().copied().collect();
        self.counters.appended_tokens.add(slot.pending.len());
        self.open_round(slot)?;
        Ok(Fate::Stays)
    }

    fn end(&mut self, slot: &mut Slot, finish: Finish) -> anyhow::Result<Fate> {
        let words = slot.round.finish();
        if !words.is_empty() {
            slot.tell(Event::Words(words));
        }
        slot.tell(Event::Ended(finish, slot.usage));
        Ok(Fate::Ends)
    }

    /// Drops the tokens of a sequence from a position on.
    fn forget(&mut self, at: usize, from: usize) -> anyhow::Result<()> {
        let from = u32::try_from(from)?;
        self.context
            .kv_cache_seq_rm(at as i32, Some(from), None)
            .context("the sequence cannot be cut")
    }

    fn open_round(&self, slot: &mut Slot) -> anyhow::Result<()> {
        let request = &slot.job.request;
        let next = request.next();
        slot.round = Round::new(next != Next::Words);
        (slot.written, slot.called) = (0, None);
        slot.grammar = match next {
            Next::Call(tools) => {
                let tools: Vec<_> = tools
                    .iter()
                    .map(|at| &request.tools[*at].function)
                    .collect();
                if tools.is_empty() {
                    bail!("tool_choice names a tool that is not offered");
                }
                let grammar = grammar::of_call(&tools);
                Some(LlamaSampler::grammar(self.model, &grammar, "root")?)
            }
            Next::Words if request.forced_calls.is_some() => {
                Some(LlamaSampler::grammar(self.model, grammar::WORDS, "root")?)
            }
            Next::Free | Next::Words => None,
        };
        Ok(())
    }

    /// The likeliest token of a row that the grammar allows.
    fn choose(&self, row: i32, grammar: Option<&mut LlamaSampler>) -> Choice {
        let logits = self.context.get_logits_ith(row).iter().enumerate();
        let mut all: Vec<LlamaTokenData> = logits
            .map(|(id, logit)| LlamaTokenData::new(LlamaToken(id as i32), *logit, 0.0))
            .collect();
        let Some(grammar) = grammar else {
            return likeliest(&all);
        };
        all.select_nth_unstable_by(LIKELY, |a, b| b.logit().total_cmp(&a.logit()));
        // Mostly the two best are among the likely ones; a grammar takes long for all tokens.
        for candidates in [&all[..LIKELY], &all[..]] {
            let mut allowed = LlamaTokenDataArray::new(candidates.to_vec(), false);
            grammar.apply(&mut allowed);
            allowed.data.retain(|one| one.logit() > f32::NEG_INFINITY);
            if allowed.data.len() > 1 {
                return likeliest(&allowed.data);
            }
        }
        let mut allowed = LlamaTokenDataArray::new(all, false);
        grammar.apply(&mut allowed);
        likeliest(&allowed.data)
    }

    /// The prompt of a request as tokens.
    fn tokens_of(&self, request: &ChatRequest) -> Vec<LlamaToken> {
        let vocab = self.model.vocab();
        let mut tokens = Vec::new();
        for piece in request.prompt() {
            tokens.extend(match piece {
                Piece::Mark(mark) => vocab.tokenize(mark.as_bytes(), false, true),
                Piece::Text(text) => vocab.tokenize(text.as_bytes(), false, false),
            });
        }
        tokens
    }
}

/// The best of these, the first of equals by its number.
fn likeliest(all: &[LlamaTokenData]) -> Choice {
    let (mut first, mut second) = ((i32::MAX, f32::NEG_INFINITY), f32::NEG_INFINITY);
    for one in all {
        let (id, logit) = (one.id().0, one.logit());
        if logit > first.1 || logit == first.1 && id < first.0 {
            (first, second) = ((id, logit), first.1);
        } else if logit > second {
            second = logit;
        }
    }
    Choice {
        token: first.0,
        margin: first.1 - second,
    }
}

impl Slot {
    /// Tells the client. `false` if it is gone, or does not read.
    fn tell(&self, event: Event) -> bool {
        self.job.events.try_send(event).is_ok()
    }
}
