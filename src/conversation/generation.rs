//! One generation of the language model for an answer: its words become clauses, its calls are counted,
//! and so are its tokens if the engine does not count them.

use super::clauses::Clauses;
use super::ids::RequestId;
use crate::llm::{LlmEvent, TokenUsage, tokens_of};

#[cfg(test)]
mod tests;

/// Clauses that are withheld after the router's filler: one may be a filler of its own, two are an
/// answer.
const WITHHELD: usize = 1;

/// Calls of one generation: a model that asks for more has lost its way, and is cut there.
const MOST_CALLS: usize = 16;

/// A generation that is running.
#[derive(Debug)]
pub(super) struct Generation {
    request: RequestId,
    cutter: Clauses,
    /// After the router's filler: clauses wait here until they are known to be more than another
    /// filler.
    withheld: Option<Vec<String>>,
    /// The tool whose call has begun and not ended.
    open_call: Option<String>,
    /// Calls that have begun.
    calls: usize,
    /// A call was made that is not carried out, although no tool was offered.
    overstepped: bool,
    /// The model has reached its most tokens.
    is_cut: bool,
    /// Usage that the engine has reported.
    counted: TokenUsage,
    /// Usage that it has not reported: the prompt's tokens, and the characters of the answer.
    uncounted: (u64, usize),
}

impl Generation {
    /// A prompt of about `tokens` was given to the model. What it says first is withheld
    /// `after_filler`.
    pub(super) fn new(request: RequestId, tokens: u64, after_filler: bool) -> Self {
        Self {
            request,
            cutter: Clauses::default(),
            withheld: after_filler.then(Vec::new),
            open_call: None,
            calls: 0,
            overstepped: false,
            is_cut: false,
            counted: TokenUsage::default(),
            uncounted: (tokens, 0),
        }
    }

    pub(super) fn request(&self) -> RequestId {
        self.request
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

    /// The engine has counted the tokens so far.
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
            cached: 0,
            output: tokens_of(chars),
        });
        usage
    }

    /// The model says words: returns the clauses that are to be spoken. Behind a call there are none:
    /// the model cannot know its result yet.
    pub(super) fn words(&mut self, text: &str) -> Vec<String> {
        if self.has_begun_call() {
            return Vec::new();
        }
        let clauses = self.cutter.push(text);
        clauses.into_iter().flat_map(|c| self.release(c)).collect()
    }

    /// The model begins to call a tool. Returns the words before it that are to be spoken; `None` if it
    /// has made too many calls. Withheld words were to bridge the wait, as the router's filler already
    /// does.
    pub(super) fn begin_call(&mut self, tool: &str) -> Option<Vec<String>> {
        if self.calls == MOST_CALLS {
            return None;
        }
        self.open_call = Some(tool.to_owned());
        self.calls += 1;
        if self.withheld.take().is_some() {
            self.cutter = Clauses::default();
        }
        Some(self.last_words())
    }

    /// The call that has begun is complete: returns its tool.
    pub(super) fn end_call(&mut self) -> Option<String> {
        self.open_call.take()
    }

    /// A call is not carried out, although the model was told that it cannot make one.
    pub(super) fn overstep(&mut self) {
        self.overstepped = true;
    }

    /// The model has reached its most tokens.
    pub(super) fn was_cut(&mut self) {
        self.is_cut = true;
    }

    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Whether a call has begun: later words of this generation are said without its result.
    pub(super) fn has_begun_call(&self) -> bool {
        self.calls > 0
    }

    /// The model has made a call that is not carried out.
    pub(super) fn has_overstepped(&self) -> bool {
        self.overstepped
    }

    /// A call is complete that is carried out.
    pub(super) fn has_called(&self) -> bool {
        self.calls > usize::from(self.open_call.is_some()) && !self.overstepped
    }

    /// The model has said everything: returns the clauses that are left.
    pub(super) fn finish(&mut self) -> Vec<String> {
        let mut clauses = self.withheld.take().unwrap_or_default();
        clauses.extend(self.last_words());
        clauses
    }

    /// The words that no mark has ended. Clauses after them belong to another item.
    pub(super) fn last_words(&mut self) -> Vec<String> {
        let last = std::mem::take(&mut self.cutter).finish();
        last.map_or_else(Vec::new, |clause| self.release(clause))
    }

    /// The clauses that are to be spoken now that there is another.
    fn release(&mut self, clause: String) -> Vec<String> {
        match &mut self.withheld {
            Some(withheld) if withheld.len() < WITHHELD => {
                withheld.push(clause);
                Vec::new()
            }
            withheld => {
                let mut clauses = withheld.take().unwrap_or_default();
                clauses.push(clause);
                clauses
            }
        }
    }
}
