//! The draft model: asked beside the main model, and stopped when that one has called a tool or answers.

use super::Conversation;
use crate::conversation::client_settings::ClientTools;
use crate::conversation::draft::SampledCall;
use crate::conversation::held::Held;
use crate::conversation::ids::RequestId;
use crate::conversation::shed::Shed;
use crate::llm::{Prompt, TokenUsage};
use serde_json::{Map, Value};

impl Conversation {
    /// Whether to ask the draft model beside a generation with this prompt.
    pub(super) fn wants_draft(&mut self, prompt: &Prompt) -> bool {
        // Without room for runs, calls are not sampled.
        self.turn.has_room_for(Shed::Speculation)
            && self
                .speculation
                .wants_draft(&mut self.common, &self.client, prompt)
    }

    /// Asks the draft model beside a generation of the main model.
    pub(super) fn ask_draft(&mut self, generation: RequestId, prompt: Prompt) {
        let track = match self.held.preempt.is(generation) {
            true => Some(self.speculation.listening().id),
            false => self.speculation.answering().map(|track| track.id),
        };
        if let Some(track) = track {
            self.speculation
                .ask_draft(&mut self.common, track, generation, prompt);
        }
    }

    /// Handles the end of a sample.
    pub(super) fn on_drafted(
        &mut self,
        request: RequestId,
        call: Option<SampledCall>,
        usage: TokenUsage,
    ) {
        let begun = call.map(|call| self.begun_by(call.tool, call.arguments));
        let calls = begun.into_iter().flatten();
        let calls = calls.map(|(tool, arguments)| SampledCall { tool, arguments });
        let calls = calls.collect();
        let terms = self.answer.as_ref().map(|a| &a.terms);
        let clients = ClientTools::of(&self.client, terms);
        self.speculation
            .on_drafted(&mut self.common, clients, request, calls, usage);
    }

    /// Compares a call that the main model has completed with the samples; of a plan, the calls that it begins with.
    pub(super) fn compare_draft(
        &mut self,
        generation: RequestId,
        name: &str,
        arguments: &Result<Map<String, Value>, String>,
    ) {
        let Ok(arguments) = arguments else {
            return;
        };
        for (name, arguments) in self.begun_by(name.to_owned(), arguments.clone()) {
            if let Some(tool) = self.declared(&name) {
                self.speculation
                    .compare_draft(&self.common, generation, &tool, &arguments);
            }
        }
    }

    /// Stops samples that are no longer wanted.
    pub(super) fn watch_drafts(&mut self) {
        let decides = |held: &Held| (held.request, held.has_completed_call() || held.has_ended());
        let (early, next) = (self.held.preempt.held(), self.held.assumed.held());
        let generation = self.answer.as_ref().and_then(|a| a.generation.as_ref());
        let generation = generation.map(|g| (g.request(), g.has_called() || g.answers()));
        self.speculation.watch_drafts(
            &mut self.common,
            [early.map(decides), next.map(decides), generation],
        );
    }
}
