//! One generation of the language model: cuts its words into clauses and counts its calls, and its tokens if
//! the engine does not.

use super::clauses::Clauses;
use super::ids::RequestId;
use super::sentence::ends_sentence;
use crate::language::Pack;
use crate::llm::{LlmEvent, TokenUsage, tokens_of};
use crate::time::Time;

#[cfg(test)]
mod tests;

/// Clauses withheld after the router's filler. A single clause may be the model's own filler; two are an
/// answer. Before a call that is not carried out, a single clause is an empty promise.
const WITHHELD: usize = 1;

/// The most calls of one generation. A model that makes more is looping, and is stopped.
pub(super) const MOST_CALLS: usize = 16;

/// Clauses that are not spoken yet.
#[derive(Debug, PartialEq)]
enum Withheld {
    /// There are none: words are spoken as they come.
    No,
    /// After the router's filler, until they turn out to be more than a second filler.
    AfterFiller(Vec<String>),
    /// Fillers before a call of this tool, whose answer is being generated already.
    BeforeCall(String, Vec<String>),
}

/// A running generation.
#[derive(Debug)]
pub(super) struct Generation {
    request: RequestId,
    cutter: Clauses,
    /// When it was requested.
    asked: Time,
    /// An event of it has come.
    has_begun: bool,
    /// When its last event came, thoughts aside; at first, when it was requested.
    heard: Time,
    withheld: Withheld,
    /// The tool whose call is open.
    open_call: Option<String>,
    /// Calls that have begun.
    calls: usize,
    /// Whether calls of this generation are carried out.
    may_call: bool,
    /// The model made a call that is not carried out.
    overstepped: bool,
    /// Clauses that were handed out.
    said: usize,
    /// The model reached its token limit.
    is_cut: bool,
    /// Usage that the engine reported.
    counted: TokenUsage,
    /// Usage that it has not reported: tokens of the prompt (estimated) and characters of the answer.
    uncounted: (u64, usize),
}

impl Generation {
    /// A generation that was requested at `asked` from a prompt of about `tokens`. With `after_filler` its
    /// first clause is withheld.
    pub(super) fn new(request: RequestId, asked: Time, tokens: u64, after_filler: bool) -> Self {
        Self {
            request,
            asked,
            has_begun: false,
            heard: asked,
            cutter: Clauses::default(),
            withheld: match after_filler {
                true => Withheld::AfterFiller(Vec::new()),
                false => Withheld::No,
            },
            open_call: None,
            calls: 0,
            may_call: true,
            overstepped: false,
            said: 0,
            is_cut: false,
            counted: TokenUsage::default(),
            uncounted: (tokens, 0),
        }
    }

    /// Its words are of this language. Called before there are any.
    pub(super) fn speak(&mut self, language: &'static Pack) {
        self.cutter = Clauses::new(language);
    }

    /// From now on its calls are not carried out.
    pub(super) fn forbid_calls(&mut self) {
        self.may_call = false;
    }

    pub(super) fn may_call(&self) -> bool {
        self.may_call
    }

    pub(super) fn request(&self) -> RequestId {
        self.request
    }

    /// When it was requested.
    pub(super) fn asked(&self) -> Time {
        self.asked
    }

    /// When its last event came, thoughts aside; at first, when it was requested.
    pub(super) fn heard(&self) -> Time {
        self.heard
    }

    /// Notes that an event other than a thought has come.
    pub(super) fn hear(&mut self, now: Time) {
        self.heard = now;
    }

    /// Whether this is its first event.
    pub(super) fn begins(&mut self) -> bool {
        !std::mem::replace(&mut self.has_begun, true)
    }

    /// The tool whose call is open.
    pub(super) fn open_call(&self) -> Option<&str> {
        self.open_call.as_deref()
    }

    /// Withholds fillers before a call of this tool, because its answer may come at once. Other words must be heard,
    /// so they are spoken, as are all behind them.
    pub(super) fn withhold_for(&mut self, tool: &str) {
        if self.withheld == Withheld::No {
            self.withheld = Withheld::BeforeCall(tool.to_owned(), Vec::new());
        }
    }

    /// Whether words before an expected call are withheld.
    pub(super) fn withholds_for_call(&self) -> bool {
        matches!(self.withheld, Withheld::BeforeCall(..))
    }

    /// Whether it has words that are withheld before a call.
    pub(super) fn has_withheld_for_call(&self) -> bool {
        matches!(&self.withheld, Withheld::BeforeCall(_, clauses) if !clauses.is_empty())
    }

    /// Returns the words that were withheld before a call; from now on, words are spoken as they come.
    pub(super) fn end_withholding(&mut self) -> Vec<String> {
        match std::mem::replace(&mut self.withheld, Withheld::No) {
            Withheld::BeforeCall(_, clauses) => clauses,
            other => {
                self.withheld = other;
                Vec::new()
            }
        }
    }

    /// Whether the model talks on after a call.
    pub(super) fn talks_on(&self, text: &str) -> bool {
        self.calls > 0 && self.open_call.is_none() && !text.trim().is_empty()
    }

    /// Counts the characters of an event.
    pub(super) fn count(&mut self, event: &LlmEvent) {
        let text = match event {
            LlmEvent::Speech { text } => text,
            LlmEvent::ToolOpened { name } => name,
            LlmEvent::ToolArguments { piece } => piece,
            _ => return,
        };
        self.uncounted.1 += text.chars().count();
    }

    /// Takes over the engine's own count of the tokens so far.
    pub(super) fn was_counted(&mut self, usage: TokenUsage) {
        self.counted.add(usage);
        self.uncounted = (0, 0);
    }

    /// Its tokens so far.
    pub(super) fn usage(&self) -> TokenUsage {
        let (input, chars) = self.uncounted;
        let mut usage = self.counted;
        usage.add(TokenUsage {
            input,
            output: tokens_of(chars),
            ..TokenUsage::default()
        });
        usage
    }

    /// Takes words of the model and returns the clauses to speak. After a call there are none, because the
    /// model cannot know its result yet.
    pub(super) fn words(&mut self, text: &str) -> Vec<String> {
        if self.has_begun_call() {
            return Vec::new();
        }
        let clauses = self.cutter.push(text);
        clauses.into_iter().flat_map(|c| self.release(c)).collect()
    }

    /// Begins a call. Returns the words before it that are still to be spoken; `None` if there were too many
    /// calls. Of withheld words only fillers are dropped, as the router has already said one.
    pub(super) fn begin_call(&mut self, tool: &str) -> Option<Vec<String>> {
        if self.calls == MOST_CALLS {
            return None;
        }
        self.overstepped |= !self.may_call;
        self.open_call = Some(tool.to_owned());
        self.calls += 1;
        match &mut self.withheld {
            Withheld::No => {}
            Withheld::AfterFiller(_) => {
                let mut before = self.take_withheld();
                before.extend(self.cutter.finish());
                before.retain(|clause| !self.cutter.language.is_filler(clause));
                self.said += before.len();
                return Some(before);
            }
            Withheld::BeforeCall(expected, _) if expected == tool => {}
            Withheld::BeforeCall(..) => return Some(self.finish()),
        }
        Some(self.last_words())
    }

    /// Ends the open call and returns its tool, if it may be called.
    pub(super) fn end_call(&mut self) -> Option<String> {
        self.open_call.take().filter(|_| self.may_call)
    }

    /// Notes a call that is not carried out.
    pub(super) fn overstep(&mut self) {
        self.overstepped = true;
    }

    /// The model reached its token limit.
    pub(super) fn was_cut(&mut self) {
        self.is_cut = true;
    }

    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Whether a call has begun, so later words of this generation cannot know its result.
    pub(super) fn has_begun_call(&self) -> bool {
        self.calls > 0
    }

    /// Whether it has said more than a filler: it answers.
    pub(super) fn answers(&self) -> bool {
        self.said > WITHHELD
    }

    /// Whether the model made a call that is not carried out, and has said no more than what it was about to do.
    pub(super) fn leaves_the_user_waiting(&self) -> bool {
        self.overstepped && self.said <= WITHHELD
    }

    /// The model's server goes on with the answer to its calls.
    pub(super) fn go_on(&mut self) {
        (self.calls, self.said, self.overstepped) = (0, 0, false);
        (self.withheld, self.cutter) = (Withheld::No, self.cutter.afresh());
    }

    /// Whether a complete call was carried out.
    pub(super) fn has_called(&self) -> bool {
        self.calls > usize::from(self.open_call.is_some()) && !self.overstepped
    }

    /// Ends the generation and returns the remaining clauses.
    pub(super) fn finish(&mut self) -> Vec<String> {
        let mut clauses = self.take_withheld();
        self.said += clauses.len();
        clauses.extend(self.last_words());
        clauses
    }

    /// Ends the generation, which broke off, and returns what is still to be spoken: what was withheld, unless it only
    /// announces work, and the last words, if they end a sentence.
    pub(super) fn break_off(&mut self) -> Vec<String> {
        let mut clauses = self.take_withheld();
        let last = self.cutter.finish();
        clauses.extend(last.filter(|words| ends_sentence(words)));
        clauses.retain(|clause| !self.cutter.language.announces(clause));
        clauses
    }

    fn take_withheld(&mut self) -> Vec<String> {
        match std::mem::replace(&mut self.withheld, Withheld::No) {
            Withheld::No => Vec::new(),
            Withheld::AfterFiller(clauses) | Withheld::BeforeCall(_, clauses) => clauses,
        }
    }

    /// The words since the last clause. Clauses after them belong to another item.
    fn last_words(&mut self) -> Vec<String> {
        let last = self.cutter.finish();
        last.map_or_else(Vec::new, |clause| self.release(clause))
    }

    /// The clauses to speak now that `clause` has come.
    fn release(&mut self, clause: String) -> Vec<String> {
        match &mut self.withheld {
            Withheld::AfterFiller(withheld) if withheld.len() < WITHHELD => {
                withheld.push(clause);
                Vec::new()
            }
            Withheld::BeforeCall(_, withheld) if self.cutter.language.is_filler(&clause) => {
                withheld.push(clause);
                Vec::new()
            }
            _ => {
                let mut clauses = self.take_withheld();
                clauses.push(clause);
                self.said += clauses.len();
                clauses
            }
        }
    }
}
