//! Results for the model's server, and answers that it begins by itself.

use super::Conversation;
use crate::conversation::Output;
use crate::conversation::answer::Answer;
use crate::conversation::ids::{ItemId, RequestId, RunId};
use crate::conversation::input::{Place, ResponseTerms};
use crate::conversation::speculation::TrackId;
use crate::llm::{Message, Prompt};

impl Conversation {
    /// Runs after every change: gives the model's server the results that a commit could use now.
    pub(super) fn give_results(&mut self) {
        self.note_speech();
        let Some((request, track)) = self.giving_to() else {
            return;
        };
        let cache = &self.held.tool_cache;
        let is_wanted = |tool: &str, key: &_| cache.wants(request, tool, key).is_some();
        let usable = self.speculation.usable(&self.common, track, is_wanted);
        for (run, call, result) in usable {
            let Some(response) = self.held.tool_cache.wants(request, &call.0, &call.1) else {
                continue;
            };
            let response = response.to_owned();
            self.held.tool_cache.give(run, call);
            self.common.outputs.push_back(Output::GiveResult {
                request,
                response,
                result,
            });
        }
    }

    /// The generation whose server takes results and may answer its calls, and its track.
    fn giving_to(&self) -> Option<(RequestId, TrackId)> {
        let (request, track) = match self.held.preempt.held() {
            Some(held) => (held.request, self.speculation.listening().id),
            None => {
                let generation = self.answer.as_ref()?.generation.as_ref();
                let generation = generation.filter(|generation| generation.may_call())?;
                (generation.request(), self.speculation.answering()?.id)
            }
        };
        if !self.held.tool_cache.is_open(request) {
            return None;
        }
        let terms = ResponseTerms::default();
        let terms = self.answer.as_ref().map_or(&terms, |answer| &answer.terms);
        // The last answer is asked for without tools, and another agent's by another prompt.
        let rounds = self.answer.as_ref().map_or(0, |a| a.calls.rounds());
        let goes_on = rounds + 1 < self.common.policy.tool_steps
            && terms.keep_the_prompt(self.client.max_tokens)
            && !self.common.handoff.is_under_way();
        goes_on.then_some((request, track))
    }

    /// Whether the server of the generation has the results of all calls so far.
    pub(super) fn server_has_results(&self, request: RequestId) -> bool {
        let Some(answer) = &self.answer else {
            return false;
        };
        let runs: Option<Vec<RunId>> = answer
            .calls
            .all()
            .map(|call| self.speculation.run_of(&[call]).map(|run| run.id))
            .collect();
        runs.is_some_and(|runs| !runs.is_empty() && self.held.tool_cache.has(request, &runs))
    }

    /// The server goes on after the calls: with the answer to them, if they were committed with the results that
    /// it has. Otherwise nothing that follows is used, and the model is asked when all results are there.
    pub(super) fn on_gone_on(&mut self, request: RequestId) {
        let has_called =
            |answer: &Answer| answer.generation.as_ref().is_some_and(|g| g.has_called());
        if !self.answer.as_ref().is_some_and(has_called) {
            return;
        }
        self.note_speech();
        let Some(next) = self.seen_by_server(request) else {
            self.cancel_generation(request);
            return self.end_generation();
        };
        self.held.assumed.drop(&mut self.common, false);
        let Some(answer) = &mut self.answer else {
            return;
        };
        let results = answer.calls.take_complete(true);
        answer.go_on();
        self.add_results(results);
        self.held.tool_cache.saw(next);
    }

    /// The prompt after all calls of the generation, if its server has gone on from exactly that.
    fn seen_by_server(&self, request: RequestId) -> Option<Prompt> {
        let answer = self.answer.as_ref()?;
        let may = answer.awaits_only_the_stream() == Some(request)
            && self.server_has_results(request)
            && !self.ending.is_promised()
            && self.confirmation.wanted().is_none()
            && !self.common.handoff.is_under_way();
        if !may {
            return None;
        }
        let mut messages = self.history.messages();
        let results = answer.calls.results(&messages);
        let joining = results.len();
        messages.extend(results);
        let used = answer.usage().output;
        let next = self.prompt(messages, &answer.terms, answer.calls.rounds() + 1, used);
        let calls = answer.calls.all().count();
        let is_seen = next.may_call()
            && self.held.tool_cache.has_seen(request, &next, calls)
            && self.is_its_own_speech(request, &next, joining);
        is_seen.then_some(next)
    }

    /// Notes what the answer says, for [`Self::is_its_own_speech`].
    fn note_speech(&mut self) {
        if let Some(answer) = &self.answer
            && let Some(request) = answer.request()
        {
            let fillers = answer.dead_air.fillers();
            let items = answer.items.open();
            self.held.tool_cache.hear(request, items, fillers);
        }
    }

    /// Whether the generation wrote all words of the agent that the model has not seen. `next` ends with
    /// `joining` results that are not in the history yet.
    fn is_its_own_speech(&self, request: RequestId, next: &Prompt, joining: usize) -> bool {
        let cache = &self.held.tool_cache;
        let (Some(added), Some(answer)) = (cache.added(request, next), &self.answer) else {
            return false;
        };
        let unseen = added.len().saturating_sub(joining);
        // Items that the model has seen stand before these.
        let is_unseen = |item: &ItemId| {
            let behind = self.history.index(Place::After(*item));
            let from_it = behind.map(|behind| self.history.messages_from(behind - 1).len());
            self.history.message(*item).is_some() && from_it.is_some_and(|count| count <= unseen)
        };
        let spoken = cache.spoken(request, answer.dead_air.fillers());
        let said = |message: &&Message| matches!(message, Message::Agent { .. });
        spoken.filter(is_unseen).count() == added.iter().filter(said).count()
    }
}
