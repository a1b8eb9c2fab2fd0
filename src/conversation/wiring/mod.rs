//! Passes inputs to the rules and carries out their decisions.

mod absence;
mod answer;
mod aside;
mod assumed;
mod calls;
mod client;
mod draft;
mod filler;
mod generation;
mod handoff;
mod interruption;
mod keypad;
mod machine;
mod opening;
mod overlap;
mod plan;
mod preempt;
mod relayed;
mod silence;
mod speech;
mod text_limits;
mod tool_cache;
mod tools;
mod turn;

use crate::asr::Recognised;
use crate::conversation::agenda::Agenda;
use crate::conversation::answer::Answer;
use crate::conversation::aside::Asides;
use crate::conversation::client_settings::{ClientSettings, ClientTools};
use crate::conversation::common::Common;
use crate::conversation::confirm::Confirmation;
use crate::conversation::ending::Ending;
use crate::conversation::endpointer::Window;
use crate::conversation::held_back::HeldBack;
use crate::conversation::history::History;
use crate::conversation::interruption::Interruption;
use crate::conversation::keypad::Keypad;
use crate::conversation::plan::Running;
use crate::conversation::playout::Playout;
use crate::conversation::speculation::Speculation;
use crate::conversation::timer::Timer;
use crate::conversation::turn::Turn;
use crate::conversation::{
    Discard, Experience, HangUpReason, Input, Lesson, Output, Policy, RequestId, ResponseStatus,
    ResponseTerms, Time,
};
use crate::prediction::{Moment, Prediction};

/// One conversation, from the first sound to the hang-up.
///
/// The user's state is `turn`, the agent's is `answer` (`None`: idle). They are separate values because the
/// two may overlap: barge-in needs no flag.
#[derive(Debug)]
pub struct Conversation {
    pub(super) common: Common,
    pub(super) client: ClientSettings,
    pub(super) history: History,
    pub(super) turn: Turn,
    pub(super) answer: Option<Answer>,
    pub(super) playout: Playout,
    pub(super) speculation: Speculation,
    pub(super) held: HeldBack,
    pub(super) confirmation: Confirmation,
    pub(super) running: Running,
    pub(super) interruption: Interruption,
    pub(super) agenda: Agenda,
    pub(super) asides: Asides,
    pub(super) ending: Ending,
    pub(super) keypad: Keypad,
}

impl Conversation {
    /// A new conversation. The greeting, if there is one, is spoken first.
    pub fn new(policy: Policy) -> Self {
        Self::experienced(policy, Experience::default())
    }

    /// A new conversation that begins with the experience of earlier ones.
    pub fn experienced(policy: Policy, experience: Experience) -> Self {
        let mut conversation = Self {
            client: ClientSettings::new(&policy),
            history: History::default(),
            turn: Turn::default(),
            answer: None,
            playout: Playout::default(),
            speculation: Speculation::default(),
            held: HeldBack::default(),
            confirmation: Confirmation::default(),
            running: Running::default(),
            interruption: Interruption::default(),
            agenda: Agenda::default(),
            asides: Asides::default(),
            ending: Ending::default(),
            keypad: Keypad::default(),
            common: Common::new(policy, experience),
        };
        conversation.begin_opening();
        conversation.settle();
        conversation.route_before_words(Moment::Opened);
        conversation
    }

    /// Handles one input that happened at `now`. Time never runs backwards: a `now` before the previous one
    /// counts as the previous one.
    pub fn handle_input(&mut self, now: Time, input: Input) {
        self.common.now = self.common.now.max(now);
        // A change replaces one that was not adopted.
        if !matches!(input, Input::Tools { .. }) {
            self.adopt_tools();
        }
        self.take_over_between_answers();
        let hangs_up = matches!(input, Input::HangUp);
        if !self.turn_away(&input) && !self.refuse_long_text(&input) {
            self.take(input);
        }
        if !hangs_up {
            self.settle();
        }
    }

    /// Passes an input to the rule that it concerns.
    fn take(&mut self, input: Input) {
        match input {
            Input::Vad {
                end,
                probability,
                level,
            } => self.on_vad(Window {
                end,
                probability,
                level,
            }),
            Input::Transcript {
                request,
                text,
                marks,
                doubt,
                provisional,
            } => {
                let heard = Recognised {
                    text,
                    marks,
                    doubt,
                    // Sessions change it by their settings.
                    language: None,
                    provisional,
                };
                self.on_transcript(request, Ok(heard));
            }
            Input::Completeness {
                request,
                probability,
            } => {
                self.on_completeness(request, probability);
            }
            Input::TurnJudged(report) => self.on_turn_report(report),
            Input::Llm { request, event } => self.on_llm(request, event),
            Input::Predicted {
                request,
                predictions,
            } => self.on_predicted(request, predictions),
            Input::Drafted {
                request,
                call,
                usage,
            } => self.on_drafted(request, call, usage),
            Input::Tools { tools } => self.change_tools(tools),
            Input::Agent(agent) => self.hand_over_to(*agent),
            Input::Load { shed } => self.turn.set_shed(shed),
            Input::Notes { notes } => self.take_notes(notes),
            Input::TokenBudget { spent } => self.common.tokens_spent = spent,
            Input::DraftBudget { spent } => self.speculation.set_draft_budget(spent),
            Input::RunRefused { run, reason } => {
                self.speculation.on_refused(&mut self.common, run, reason);
            }
            Input::ToolFinished { run, result } => self.on_tool_finished(run, result),
            Input::Confirm { call, accepted } => self.confirm(call, accepted),
            Input::HangUp => self.hang_up(),
            Input::Synthesised {
                clause,
                length,
                last,
                word_ends,
            } => self.on_synthesised(clause, (length, &word_ends), last),
            Input::Sent { clause, until } => self.on_sent(clause, until),
            Input::Failed { job, reason } => self.on_failed(job, &reason),
            Input::Configure(settings) => self.configure(*settings),
            Input::Received { end } => self.turn.received(end),
            Input::CommitAudio => self.commit_audio(),
            Input::ClearAudio => self.clear_audio(),
            Input::AddItem { id, place, item } => self.add_item(id, place, item),
            Input::ItemHeard { item, words } => self.on_item_heard(item, words),
            Input::DeleteItem { item } => self.delete_item(item),
            Input::Truncate { item, heard } => self.truncate(item, heard),
            Input::Respond { instructions } => {
                self.respond_to_client(ResponseTerms::of(instructions));
            }
            Input::RespondWith(terms) => self.respond_to_client(*terms),
            Input::CancelAside { aside } => self.asides.cancel(&mut self.common, aside),
            Input::CancelResponse => self.cancel_response(),
            Input::Key { key } => self.press(key),
            Input::Said { text, last } => self.on_said(&text, last),
            Input::Stopped { heard } => self.on_stopped(&heard),
            Input::VoiceLoads { clause } => self.on_voice_loads(clause),
            Input::VoiceEnded => self.on_voice_ended(),
            Input::Played { clause, until } => self.playout.played(self.common.now, clause, until),
            Input::Announce { text } => self.agenda.announce(text),
            Input::Placed { message } => self.watch_for_machine(message),
            Input::Beep => self.on_beep(),
            Input::Unheard if self.ending.hang_up().is_some() => {}
            // Nobody can tell any more when it is silent.
            Input::Unheard if self.ending.machine.is_heard() => self.leave_message(),
            Input::Unheard => self.say_goodbye(HangUpReason::Unheard),
            Input::Drain => self.ending.hang_up_for(HangUpReason::Shutdown),
            Input::Farewell => self.say_goodbye(HangUpReason::Shutdown),
            Input::ClientLost => self.on_client_lost(),
            Input::ClientBack { heard } => self.on_client_back(heard),
        }
    }

    fn on_predicted(&mut self, request: RequestId, predictions: Vec<Prediction>) {
        let terms = self.answer.as_ref().map(|a| &a.terms);
        let clients = ClientTools::of(&self.client, terms);
        self.speculation
            .on_predicted(&mut self.common, clients, request, predictions);
    }

    /// Handles all deadlines up to `now`. Call it when [`Conversation::poll_timeout`] is due.
    pub fn handle_timeout(&mut self, now: Time) {
        self.common.now = self.common.now.max(now);
        self.adopt_tools();
        self.take_over_between_answers();
        while let Some(timer) = self.common.timers.take_due(self.common.now) {
            match timer {
                Timer::OpeningHeld => self.release_opening(),
                Timer::EndOfTurn => self.try_end_turn(),
                Timer::TranscriptOverdue => self.on_transcript_overdue(),
                Timer::TranscribeAgain => self.transcribe_again(),
                Timer::AudioStalled => self.on_audio_stalled(),
                Timer::SynthesisOverdue => self.on_synthesis_overdue(),
                Timer::DeadAir => self.fill_dead_air(),
                Timer::FillerHeld => self.release_filler(),
                Timer::GenerationOverdue => self.on_generation_overdue(),
                Timer::ConfirmationExpired => {
                    let user_speaks = self.turn.is_open();
                    self.confirmation
                        .on_expired(&mut self.common, &mut self.history, user_speaks);
                }
                Timer::PlayoutEnd => {}
                Timer::KeysComplete => self.take_keys(),
                Timer::Silence => self.on_silent_user(),
                // Whoever is away is not idle: the shell decides how long it waits. A session that only transcribes
                // waits for the next words, however long.
                Timer::Idle if self.agenda.absence.is_on() || self.client.transcribe_only => {}
                Timer::Idle => self.say_goodbye(HangUpReason::Idle),
                Timer::SessionEnd => {
                    self.lose_committed();
                    self.drop_utterance();
                    self.say_goodbye(HangUpReason::TooLong);
                }
            }
        }
        self.settle();
    }

    /// The next decision, oldest first.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.common.outputs.pop_front()
    }

    /// The lessons of the conversation since this was last called, oldest first. Later conversations begin with
    /// it; this one has it anyway.
    pub fn take_lessons(&mut self) -> Vec<Lesson> {
        std::mem::take(&mut self.common.lessons)
    }

    /// When to call [`Conversation::handle_timeout`] if no input comes first.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.common.timers.next()
    }

    /// Runs after every change: requests clauses, ends a finished response, and starts work that was waiting
    /// for silence.
    fn settle(&mut self) {
        self.stop_plans();
        if self.ending.hang_up() == Some(HangUpReason::HandedOver) {
            // The call was transferred: nothing more may be heard on its line.
            let done = |a: &Answer| !a.is_generating() && !self.ending.is_promised();
            if self.answer.as_ref().is_some_and(done) && self.playout.all_sent() {
                self.finish_response();
            } else {
                self.stop_for_good(ResponseStatus::Interrupted);
            }
            return self.end_session(HangUpReason::HandedOver);
        }
        loop {
            self.advance_response();
            self.give_results();
            self.look_ahead();
            self.begin_committed_turn();
            if self.turn.is_open() || self.answer.is_some() {
                self.common.timers.clear(Timer::Silence);
                return;
            }
            if self.playout.audible_until() > self.common.now {
                self.common
                    .timers
                    .set(Timer::PlayoutEnd, self.playout.audible_until());
                return;
            }
            self.common.timers.clear(Timer::PlayoutEnd);
            self.playout.clear();
            if !self.start_waiting_work() {
                return;
            }
        }
    }

    /// Starts the next piece of work that waits until nobody speaks. `false` if there is none.
    fn start_waiting_work(&mut self) -> bool {
        if self.agenda.absence.is_on() {
            // Nobody would hear a goodbye.
            if let Some(reason) = self.ending.hang_up() {
                self.end_session(reason);
            }
            return false;
        }
        if self.client.transcribe_only {
            self.agenda.clear_announcements();
        }
        if self.say_opening() {
            return true;
        }
        let goes_on = !self.is_too_long();
        // The rest of an answer is said before the goodbye.
        let goodbye = self.ending.hang_up().map(|reason| self.goodbye(reason));
        let resumes_first = goes_on
            && self.interruption.is_resuming()
            && goodbye.is_some_and(|goodbye| self.agenda.is_next(goodbye));
        if !resumes_first && let Some(text) = self.agenda.take_announcement() {
            let question = match self.ending.hang_up() {
                None => self.confirmation.ask_again(&mut self.common),
                Some(_) => None,
            };
            match question {
                Some(question) => self.say(&format!("{text} {question}")),
                None => self.say(&text),
            }
        } else if goes_on && let Some(unfinished) = self.interruption.take_unfinished() {
            self.resume_response(*unfinished);
        } else if goes_on && let Some(ending) = self.ending.take_resuming() {
            self.resume_ending(ending);
        } else if goes_on && let Some(terms) = self.agenda.take_due_response() {
            self.respond_to_client(terms);
        } else if goes_on && self.agenda.is_answer_due() {
            self.respond();
        } else {
            match self.ending.hang_up() {
                Some(reason) => self.end_session(reason),
                None => self.watch_silence(),
            }
            return false;
        }
        true
    }

    /// Ends the session.
    fn end_session(&mut self, reason: HangUpReason) {
        self.ending.has_hung_up();
        self.hang_up();
        self.common.outputs.push_back(Output::HangUp { reason });
    }

    /// Stops everything but committed calls: the session is over.
    fn hang_up(&mut self) {
        self.drop_held();
        self.held.assumed.drop(&mut self.common, false);
        self.forget_interrupted();
        if let Some(answer) = self.answer.take() {
            self.close_response(answer, ResponseStatus::Cancelled, Discard::HungUp);
        }
        self.asides.cancel_all(&mut self.common);
        self.speculation
            .drop_heard(&mut self.common, Discard::HungUp);
    }

    /// Whether the session has reached its maximum length. The current response is finished, then comes the
    /// goodbye; nothing the user does postpones it.
    fn is_too_long(&self) -> bool {
        self.common.now >= Time(0) + self.common.policy.timeouts.session
    }

    /// Whether `input` would begin another turn, which it may not: the session is too long, or the client is away. If
    /// the client sent it as a request, the request is refused.
    fn turn_away(&mut self, input: &Input) -> bool {
        let message = match (self.is_too_long(), self.agenda.absence.is_on()) {
            (true, _) => "the session has reached its greatest length",
            (false, true) => "the client's connection is lost",
            (false, false) => return false,
        };
        let request = match input {
            Input::Vad { .. } | Input::Said { .. } | Input::Stopped { .. } => return true,
            Input::CommitAudio => "CommitAudio",
            Input::Respond { .. } => "Respond",
            Input::RespondWith(terms) => terms.request(),
            Input::Key { .. } => "Key",
            Input::Confirm { .. } => "Confirm",
            _ => return false,
        };
        self.common.refuse(request, message.into());
        true
    }

    /// Says goodbye as soon as nobody is speaking, then hangs up once it has been heard.
    fn say_goodbye(&mut self, reason: HangUpReason) {
        self.agenda.announce_only(self.goodbye(reason).clone());
        self.ending.hang_up_for(reason);
    }

    fn goodbye(&self, reason: HangUpReason) -> &String {
        match reason {
            HangUpReason::Idle => &self.common.policy.phrases().goodbye_idle,
            HangUpReason::Unheard => &self.common.policy.phrases().cannot_hear,
            HangUpReason::TooLong
            | HangUpReason::Shutdown
            | HangUpReason::AgentEnded
            | HangUpReason::HandedOver
            | HangUpReason::Machine => &self.common.policy.phrases().goodbye_too_long,
        }
    }
}
