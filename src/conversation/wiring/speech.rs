//! The speech of an answer, from clauses to sent audio.

use super::Conversation;

use crate::conversation::answer::Answer;
use crate::conversation::clauses::Clauses;
use crate::conversation::playout::{Clause, Words};

use crate::conversation::ids::ClauseId;
use crate::conversation::sentence::words;

use crate::time::Micros;

use crate::conversation::timer::Timer;

use crate::conversation::{Event, Job, Output};

/// The longest wait for the first audio of a clause whose voice is being loaded.
const VOICE_LOADING: Micros = Micros::from_ms(30_000);

impl Conversation {
    /// Queues the model's clauses until the answer is too long.
    pub(super) fn say_clauses(&mut self, clauses: Vec<String>) {
        let is_answer = |answer: &Answer| answer.calls.rounds() > 0 && !answer.has_spoken();
        if !clauses.is_empty() && self.answer.as_ref().is_some_and(is_answer) {
            self.drop_unsaid_fillers();
        }
        for text in clauses {
            let Some(answer) = self.answer.as_mut().filter(|a| !a.length.is_cut) else {
                return;
            };
            let (is_first, language) = (!answer.has_spoken(), self.common.language());
            let announced = &mut answer.dead_air.announced;
            if announced.repeats(&text, is_first, language) {
                continue;
            }
            let is_over = answer.length.said(words(&text));
            let clause = self.queue_clause(text, Words::Answer);
            if let Some(clause) = clause.filter(|_| is_over) {
                self.cut_answer(clause);
            }
        }
    }

    /// Ends the answer before the clause `from`, if possible after a whole sentence: clauses before `from` go
    /// too, unless their playout has begun. Stops the model.
    pub(super) fn cut_answer(&mut self, from: ClauseId) {
        let cut = self.playout.cut_answer(from);
        for clause in &cut {
            self.history.drop_clause(clause.item, clause.index);
        }
        self.cancel_clauses(&cut);
        self.end_answer();
    }

    /// Stops the synthesis of clauses that were removed.
    pub(super) fn cancel_clauses(&mut self, removed: &[Clause]) {
        for Clause { id: clause, .. } in removed.iter().filter(|clause| clause.asked) {
            let clause = *clause;
            self.common
                .outputs
                .push_back(Output::CancelClause { clause });
        }
        self.watch_synthesis();
    }

    /// Queues `text` as part of the response, clause by clause.
    pub(super) fn speak(&mut self, text: &str, words: Words) {
        for clause in Clauses::of(self.common.language(), text) {
            self.queue_clause(clause, words);
        }
    }

    /// Queues a clause after all others.
    pub(super) fn queue_clause(&mut self, text: String, words: Words) -> Option<ClauseId> {
        let answer = self.answer.as_mut()?;
        let (common, history) = (&mut self.common, &mut self.history);
        Some(answer.queue(common, history, &mut self.playout, text, words))
    }

    pub(super) fn on_synthesised(
        &mut self,
        clause: ClauseId,
        (length, word_ends): (Micros, &[Micros]),
        last: bool,
    ) {
        let Some(known) = self.playout.get(clause) else {
            return;
        };
        self.history
            .lengthen_clause(known.item, known.index, length, word_ends);
        self.playout.made(clause, length, last);
        if let Some(answer) = &mut self.answer {
            if let Some((words, length)) = self.playout.made_of_answer(clause).filter(|_| last) {
                answer.length.made(words, length);
            }
            let first = &mut answer.stamps.latency.first_synthesis;
            first.get_or_insert(self.common.now);
            answer.gains.made(clause, self.common.now);
        }
        self.watch_synthesis();
    }

    /// Sets the deadline for the next audio of the voice: a voice that hangs counts as failed.
    pub(super) fn watch_synthesis(&mut self) {
        if let Some(clause) = self.playout.being_made() {
            let limit = match clause.voice_loads {
                true => VOICE_LOADING,
                false => self.common.policy.timeouts.synthesis_timeout,
            };
            let due = self.common.now + limit;
            self.common.timers.set(Timer::SynthesisOverdue, due);
        } else {
            self.common.timers.clear(Timer::SynthesisOverdue);
        }
    }

    pub(super) fn on_voice_loads(&mut self, clause: ClauseId) {
        if let Some(clause) = self.playout.get(clause) {
            clause.voice_loads = true;
            self.watch_synthesis();
        }
    }

    pub(super) fn on_synthesis_overdue(&mut self) {
        if let Some(clause) = self.playout.being_made() {
            let job = Job::Synthesis(clause.id);
            self.on_failed(job, "the voice has stalled");
        }
    }

    /// Handles the shell's report on a clause: about to send its audio (`until` is zero), or sent up to
    /// `until`.
    pub(super) fn on_sent(&mut self, id: ClauseId, until: Micros) {
        if let Some(answer) = &mut self.answer
            && answer.announce(&mut self.common, &mut self.playout, id)
        {
            self.confirmation.clause_begins(id);
        }
        self.playout.sent(self.common.now, id, until);
        self.common.mark_activity();
    }

    /// Called before a clause is requested. Ends the answer there if the rest of its sentence would take too
    /// long. `true` if the clause was cut.
    pub(super) fn ends_before(&mut self, clause: ClauseId) -> bool {
        let place = self.playout.place_in_answer(clause);
        let (Some(place), Some(answer)) = (place, &mut self.answer) else {
            return false;
        };
        if answer.length.ask(&place) {
            return false;
        }
        self.cut_answer(clause);
        true
    }

    /// Reports items as done, in order, when all their audio has been sent.
    pub(super) fn close_items(&mut self) {
        let Some(answer) = &mut self.answer else {
            return;
        };
        let is_generating = answer.is_generating();
        let was_sent = |item| self.playout.item_sent(item);
        while let Some(item) = answer.items.take_done(is_generating, was_sent) {
            if answer.items.was_announced(item) {
                self.common.notify(Event::AgentItemDone {
                    item,
                    text: self.history.spoken_text(item),
                    interrupted: false,
                });
            }
        }
    }

    pub(super) fn on_synthesis_failed(&mut self, id: ClauseId, reason: &str) {
        if self.playout.get(id).is_none() {
            return;
        }
        self.common.timers.clear(Timer::SynthesisOverdue);
        self.confirmation
            .withdraw_unasked(&mut self.common, &mut self.history);
        for clause in self.playout.drop_from(id) {
            self.history.drop_clause(clause.item, clause.index);
            self.common
                .outputs
                .push_back(Output::CancelClause { clause: clause.id });
        }
        if self.answer.as_mut().is_some_and(Answer::voice_fails) {
            self.fail_response("tts", reason, |p| &p.tts_failed);
        }
    }
}
