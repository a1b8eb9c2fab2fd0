//! Results for the model's server. A server with a tool cache goes on by itself when the model calls a tool whose
//! result it was given: the call, and the answer to it, come in one stream.
//!
//! A result is given only if a commit could use it now. The server's continuation counts only if each call was
//! then committed with exactly the run that was given, and if the prompt after that is what the model has seen.

use super::generation::MOST_CALLS;
use super::ids::{ItemId, RequestId, RunId};
use crate::llm::{Message, Prompt};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

#[cfg(test)]
mod tests;

/// The server of the current generation, held back or not.
#[derive(Debug, Default)]
pub(super) struct ToolCache(Option<Stream>);

#[derive(Debug)]
struct Stream {
    request: RequestId,
    /// The prompt that the model has seen, its own words aside.
    seen: Prompt,
    /// The server's name for the answer, if it takes results.
    response: Option<String>,
    /// Whether two servers have named the answer, so that it is unknown which one will be heard.
    contested: bool,
    /// The runs whose results it has, each of another call.
    given: Vec<(RunId, Call)>,
    /// The items of the answer's speech.
    items: BTreeSet<ItemId>,
    /// The fillers of the answer before the generation.
    fillers: Option<u32>,
}

/// A call in the form in which calls are compared: the tool and its canonical arguments.
pub(super) type Call = (String, Map<String, Value>);

impl ToolCache {
    /// Notes that a generation with this prompt has begun, or is no longer held back.
    pub(super) fn begin(&mut self, request: RequestId, seen: Prompt) {
        if self.of(request).is_none() {
            self.0 = Some(Stream {
                request,
                seen,
                response: None,
                contested: false,
                given: Vec::new(),
                items: BTreeSet::new(),
                fillers: None,
            });
        }
    }

    /// Notes that the server takes results for the generation under the name `response`. Another name is another
    /// server: then neither is given any more, and nothing that they go on with is used.
    pub(super) fn opens(&mut self, request: RequestId, response: String) {
        if let Some(stream) = self.0.as_mut().filter(|s| s.request == request)
            && stream.response.as_ref() != Some(&response)
        {
            stream.contested |= stream.response.is_some();
            (stream.response, stream.given) = (Some(response), Vec::new());
        }
    }

    /// Whether a server takes results for the generation.
    pub(super) fn is_open(&self, request: RequestId) -> bool {
        let is_open = |stream: &Stream| stream.response.is_some() && !stream.contested;
        self.of(request).is_some_and(is_open)
    }

    /// The server's name for the generation, if it takes results and has none of this call: which of two it used
    /// could not be told. It is given no more results than a generation may have calls, also while it is held back.
    pub(super) fn wants(
        &self,
        request: RequestId,
        tool: &str,
        key: &Map<String, Value>,
    ) -> Option<&str> {
        let is_it = |(_, (of, given)): &(RunId, Call)| of == tool && given == key;
        let has = |stream: &&Stream| stream.given.iter().any(is_it);
        let stream = self.of(request).filter(|stream| !has(stream))?;
        let may = stream.given.len() < MOST_CALLS;
        stream.response.as_deref().filter(|_| may)
    }

    /// Notes that the server is given the result of a run.
    pub(super) fn give(&mut self, run: RunId, call: Call) {
        if let Some(stream) = &mut self.0 {
            stream.given.push((run, call));
        }
    }

    /// Whether the server of the generation was given the results of all these runs.
    pub(super) fn has(&self, request: RequestId, runs: &[RunId]) -> bool {
        self.is_open(request)
            && self.of(request).is_some_and(|stream| {
                runs.iter()
                    .all(|run| stream.given.iter().any(|(id, _)| id == run))
            })
    }

    /// Updates the items of speech and the number of fillers of the answer, after every change.
    pub(super) fn hear(&mut self, request: RequestId, items: &[ItemId], fillers: u32) {
        if let Some(stream) = self.0.as_mut().filter(|s| s.request == request) {
            stream.fillers.get_or_insert(fillers);
            stream.items.extend(items);
        }
    }

    /// The items of speech that were made during the generation, or shortly before. Empty if it was filled
    /// meanwhile: the model has not written that.
    pub(super) fn spoken(&self, request: RequestId, fillers: u32) -> impl Iterator<Item = ItemId> {
        let stream = self.of(request);
        let stream = stream.filter(|stream| stream.fillers == Some(fillers));
        stream
            .into_iter()
            .flat_map(|stream| stream.items.iter().copied())
    }

    /// The messages that `next` adds to the prompt that the model has seen; `None` if `next` does not begin with it.
    pub(super) fn added<'a>(&self, request: RequestId, next: &'a Prompt) -> Option<&'a [Message]> {
        let seen = &self.of(request)?.seen;
        next.messages.strip_prefix(&seen.messages[..])
    }

    /// Whether `next`, the prompt after the results of `calls` calls, is what the model of the generation has seen
    /// by then: nothing was added but words of the agent, these calls and their results.
    pub(super) fn has_seen(&self, request: RequestId, next: &Prompt, calls: usize) -> bool {
        let Some(seen) = self.of(request).map(|stream| &stream.seen) else {
            return false;
        };
        let Some(added) = self.added(request, next) else {
            return false;
        };
        let count = |fits: fn(&Message) -> bool| added.iter().filter(|m| fits(m)).count();
        let words = count(|m| {
            matches!(
                m,
                Message::Agent {
                    interrupted: false,
                    ..
                }
            )
        });
        let called = count(|m| matches!(m, Message::ToolCall { .. }));
        let answered = count(|m| matches!(m, Message::ToolResult { .. }));
        (&seen.instructions, &seen.day, &seen.tools) == (&next.instructions, &next.day, &next.tools)
            && seen.demands.max_tokens == next.demands.max_tokens
            && (called, answered) == (calls, calls)
            && words + called + answered == added.len()
    }

    /// Sets the prompt from which the model goes on.
    pub(super) fn saw(&mut self, next: Prompt) {
        if let Some(stream) = &mut self.0 {
            stream.seen = next;
        }
    }

    fn of(&self, request: RequestId) -> Option<&Stream> {
        self.0.as_ref().filter(|stream| stream.request == request)
    }
}
