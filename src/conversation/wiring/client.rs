//! The client's requests.

use super::Conversation;
use crate::conversation::answer::NextAnswer;
use crate::conversation::client_settings::ClientTools;
use crate::conversation::ids::{CallId, ItemId};
use crate::conversation::latency::TurnLatency;
use crate::conversation::outcome::ConfirmationOutcome;
use crate::conversation::timer::Timer;
use crate::conversation::utterance::Utterance;
use crate::conversation::{
    EndOfTurnRule, Event, NewItem, Place, ResponsePlace, ResponseStatus, ResponseTerms, Settings,
};
use crate::llm::{Message, ToolChoice};
use crate::time::Micros;
use crate::tools::ToolSpec;

impl Conversation {
    pub(super) fn configure(&mut self, settings: Settings) {
        let could_begin_early = self.may_begin_early();
        if let Some(instructions) = settings.instructions {
            self.client.instructions = (!instructions.is_empty()).then_some(instructions);
        }
        if let Some(language) = settings.language {
            self.common.change_language(&language);
        }
        if let Some(speaker) = settings.speaker {
            self.common.change_voice(speaker);
        }
        if let Some(tools) = settings.tools {
            self.client.early.replace(&tools, &settings.early);
            self.client.tools = tools;
            let clients = ClientTools::of(&self.client, None);
            self.speculation.withdraw(&mut self.common, clients);
        }
        if let Some(choice) = settings.tool_choice {
            self.client.tool_choice = choice;
        }
        if let Some(most) = settings.max_tokens {
            self.client.max_tokens = most;
        }
        if settings.transcribe_only && !self.client.transcribe_only {
            self.transcribe_only();
        }
        if let Some(on) = settings.speculation {
            self.client.wants_speculation = on;
            self.common.policy.speculation.enabled = self.client.speculates();
        }
        if could_begin_early && !self.may_begin_early() {
            self.speculation.stop(&mut self.common);
        }
        if let Some(turn_detection) = settings.turn_detection {
            let utterance = self.turn.utterance().filter(|u| !u.is_committed());
            let from = utterance.map(Utterance::from);
            if turn_detection.rule != EndOfTurnRule::Client {
                self.turn.end_dictation();
            } else if let Some(from) = from {
                // From now on the client commits turns by hand; the utterance so far becomes part of the next
                // one.
                self.drop_utterance();
                self.turn.dictate_from(&mut self.common, from);
            } else if self.client.turn_detection.rule != EndOfTurnRule::Client {
                self.turn.forget_audio_before(self.audio_needed_from());
            }
            self.client.turn_detection = turn_detection;
        }
        if settings.releases_opening {
            self.release_opening();
        }
    }

    /// Whether any call may begin before the model makes it.
    fn may_begin_early(&self) -> bool {
        self.common.policy.speculation.enabled && self.client.tool_choice != ToolChoice::None
    }

    /// From now on nothing is spoken and no tool runs.
    fn transcribe_only(&mut self) {
        self.client.transcribe_only = true;
        self.client.may_speculate = false;
        self.common.policy.speculation.enabled = false;
        self.agenda.clear_announcements();
        self.common.timers.clear(Timer::Silence);
        self.stop_for_good(ResponseStatus::Cancelled);
        let (common, history) = (&mut self.common, &mut self.history);
        self.confirmation
            .withdraw(common, history, ConfirmationOutcome::Abandoned);
        self.drop_next_answer();
        self.drop_late_response();
        self.drop_held();
    }

    pub(super) fn add_item(&mut self, id: Option<ItemId>, place: Place, item: NewItem) {
        let id = id.unwrap_or_else(|| self.common.item_id());
        let Some(at) = self.history.index(place) else {
            return self
                .common
                .refuse("AddItem", "the item before it has been deleted".into());
        };
        let is_last = at == self.history.len();
        match item {
            NewItem::System { text } => self.history.insert(at, id, Message::System { text }),
            NewItem::User { text } if is_last => {
                self.common.mark_activity();
                self.history.push(id, Message::User { text: text.clone() });
                self.confirmation
                    .answer_in_writing(&mut self.common, &mut self.history, &text);
            }
            NewItem::User { text } => self.history.insert(at, id, Message::User { text }),
            NewItem::Spoken { text } => {
                self.history.insert(at, id, Message::User { text });
                self.agenda.wait_for(id);
            }
            NewItem::Agent { text } => {
                let interrupted = false;
                let message = Message::Agent { text, interrupted };
                self.history.insert(at, id, message);
            }
            NewItem::ToolCall {
                call,
                name,
                arguments,
            } => {
                let message = Message::ToolCall {
                    id: call.to_string(),
                    name,
                    arguments,
                };
                self.history.insert(at, id, message);
            }
            NewItem::ToolOutput { call, output } => {
                if !self.history.insert_result(at, id, call, output) {
                    return self.common.refuse(
                        "AddItem",
                        "the call has been deleted or has its output".into(),
                    );
                }
            }
        }
        self.common.notify(Event::ItemAdded { item: id });
    }

    /// Handles the transcript of an item that was spoken elsewhere; `None` if it could not be transcribed.
    pub(super) fn on_item_heard(&mut self, item: ItemId, words: Option<String>) {
        self.add_heard(item, words);
        self.ask_asides();
    }

    fn add_heard(&mut self, item: ItemId, words: Option<String>) {
        self.agenda.was_transcribed(item);
        let wordless = words.is_some();
        let Some(words) = words.filter(|words| !words.is_empty()) else {
            return self
                .common
                .notify(Event::ItemNotTranscribed { item, wordless });
        };
        let text = self.history.add_words(item, &words).unwrap_or(words);
        if self.history.is_last(item) {
            self.common.mark_activity();
            self.confirmation
                .answer_in_writing(&mut self.common, &mut self.history, &text);
        }
        self.common.notify(Event::ItemTranscribed { item, text });
    }

    pub(super) fn delete_item(&mut self, item: ItemId) {
        if self.history.delete(item) {
            self.common.notify(Event::ItemDeleted { item });
        } else {
            self.common
                .refuse("DeleteItem", "there is no such item".into());
        }
    }

    /// Cuts an item at the client's report, which is better than the playout estimate.
    pub(super) fn truncate(&mut self, item: ItemId, heard: Micros) {
        let before = self.history.spoken_text(item);
        let may_ask =
            self.confirmation.is_asked() && self.history.said_since_the_user().contains(&item);
        match self.history.cut(item, heard) {
            Some(text) => {
                if may_ask && text != before {
                    // A question behind these words was not heard either.
                    self.confirmation.was_not_heard(&mut self.common);
                    self.confirmation
                        .abandon_unheard(&mut self.common, &mut self.history);
                }
                // If nothing was heard and the user is silent, the client does not want this question
                // answered. If the user is still speaking, the question is answered together with what
                // follows.
                if text.is_empty() && !self.turn.is_open() {
                    self.history.give_up_question_before(item);
                }
                self.common
                    .notify(Event::ItemTruncated { item, heard, text });
            }
            None => self
                .common
                .refuse("Truncate", "the agent has said no such item".into()),
        }
    }

    pub(super) fn respond_to_client(&mut self, terms: ResponseTerms) {
        let request = terms.request();
        if self.client.transcribe_only {
            return self
                .common
                .refuse(request, "a transcription session has no responses".into());
        }
        let choice = terms.tool_choice.as_ref();
        let missing = choice.and_then(|choice| missing_tool(choice, &self.offered(&terms)));
        if let Some(message) = missing {
            return self.common.refuse(request, message);
        }
        if terms.place != ResponsePlace::Aside {
            self.release_opening();
        }
        let opens = self.agenda.is_opening();
        let speaks = self.answer.is_some() || self.turn.is_open();
        match terms.place {
            ResponsePlace::Aside => self.respond_aside(terms),
            ResponsePlace::Aloud if speaks && !opens => {
                self.common.refuse(
                    "Respond",
                    "somebody is speaking: wait until they are done".into(),
                );
            }
            ResponsePlace::Aloud if opens || self.agenda.lacks_words(&terms) => {
                if !self.agenda.respond_later(terms) {
                    self.common
                        .refuse("Respond", "another response waits: cancel it first".into());
                }
            }
            ResponsePlace::Aloud => self.respond_aloud(terms),
            ResponsePlace::Conversation => {
                self.mark_user_active();
                // Only the last message is routed: an older one may have been answered long ago.
                if let Some(text) = self.history.question() {
                    self.route(&text, true);
                }
                self.respond_after_this(NextAnswer::requested(terms));
                if let Some(accepted) = self.confirmation.take_accepted(&mut self.common) {
                    let latency = TurnLatency::of_turn_at(self.common.now);
                    self.run_confirmed(accepted, latency);
                }
            }
        }
    }

    /// Handles a click or a key as the answer to a confirmation.
    pub(super) fn confirm(&mut self, call: CallId, accepted: bool) {
        if self.confirmation.awaited() != Some(call) {
            let message = format!("no call {call} waits for a confirmation");
            return self.common.refuse("Confirm", message);
        }
        let Some(pending) = self.confirmation.take(&mut self.common) else {
            return;
        };
        self.common.mark_activity();
        self.drop_held();
        self.stop_for_good(ResponseStatus::Cancelled);
        let name = &pending.name;
        let (text, outcome) = if accepted {
            let text = format!("The user confirmed {name} by hand.");
            (text, ConfirmationOutcome::Accepted)
        } else {
            let text = format!("The user declined {name} by hand: it was not run.");
            (text, ConfirmationOutcome::Declined)
        };
        self.history
            .push(self.common.item_id(), Message::System { text });
        pending.report_outcome(&mut self.common, outcome);
        if accepted {
            let latency = TurnLatency::of_turn_at(self.common.now);
            return self.run_confirmed(pending, latency);
        }
        let declined = self.common.policy.phrases().declined.clone();
        if self.turn.is_open() {
            // Said if the open utterance is only the tone of the key.
            self.interruption.say_after_noise(declined);
        } else {
            self.agenda.announce(declined);
        }
    }

    pub(super) fn cancel_response(&mut self) {
        let stopped = self.stop_for_good(ResponseStatus::Cancelled);
        let dropped = self.drop_next_answer();
        let is_late = self.drop_late_response();
        if !dropped && !stopped {
            if !is_late {
                self.common
                    .refuse("CancelResponse", "no response is being given".into());
            }
            return;
        }
        if self.turn.gives_up_question(dropped) {
            self.history.give_up_question(self.agenda.untranscribed());
        }
    }
}

/// The error if `choice` cannot be met by the `offered` tools; `None` if it can.
pub(super) fn missing_tool(choice: &ToolChoice, offered: &[ToolSpec]) -> Option<String> {
    match choice {
        ToolChoice::Function(name) if !offered.iter().any(|tool| tool.name == *name) => {
            Some(format!("there is no tool named '{name}'"))
        }
        ToolChoice::Required if offered.is_empty() => Some("there are no tools".into()),
        _ => None,
    }
}
