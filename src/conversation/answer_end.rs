//! Where an answer ends that the model does not end: behind the last whole sentence within the most
//! words and the most seconds of speech that the operator allows.

use super::ids::ClauseId;
use super::policy::AnswerPolicy;
use super::response::{Response, Words};
use super::time::Micros;
use super::timer::Timer;
use super::{Conversation, Output};

/// A word takes as long as this while none of the answer has been spoken.
const WORD: Micros = Micros::from_ms(400);

/// What the model has said in one response.
#[derive(Debug)]
pub(super) struct Said {
    /// How long it may become.
    most: AnswerPolicy,
    /// Bytes, spoken or not.
    bytes: usize,
    words: usize,
    /// Words that the voice was asked for, and those that it has made.
    asked: usize,
    made: usize,
    /// The length of those that were made.
    length: Micros,
    /// It is over, although the model would have gone on.
    pub(super) is_cut: bool,
}

impl Said {
    pub(super) fn within(most: AnswerPolicy) -> Self {
        Self {
            most,
            bytes: 0,
            words: 0,
            asked: 0,
            made: 0,
            length: Micros(0),
            is_cut: false,
        }
    }

    /// More was streamed. `true` if it is more than any answer can be.
    fn streamed(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        self.bytes > self.most.bytes()
    }

    /// How long this many words take, as far as the voice has shown it.
    fn estimate(&self, words: usize) -> Micros {
        let a_word = match self.made {
            0 => WORD.0,
            made => self.length.0 / made as u64,
        };
        Micros(a_word * words as u64)
    }

    /// Whether `words` more are spoken in time.
    fn fits(&self, words: usize) -> bool {
        let unmade = self.asked.saturating_sub(self.made);
        self.length + self.estimate(unmade + words) <= self.most.speech
    }
}

impl Conversation {
    /// Speaks a clause of the model, if the answer does not become too long with it.
    pub(super) fn queue_answer(&mut self, text: String) {
        let words = words(&text);
        let Some(response) = self.response.as_mut().filter(|r| !r.answer.is_cut) else {
            return;
        };
        response.answer.words += words;
        let is_over = response.answer.words > response.answer.most.words;
        let clause = self.queue_clause(text, Words::Answer);
        if let Some(clause) = clause.filter(|_| is_over) {
            self.cut_answer(clause);
        }
    }

    /// The model has streamed so much that it will never end by itself.
    pub(super) fn is_endless(&mut self, text: &str) -> bool {
        let response = self.response.as_mut();
        response.is_some_and(|response| response.answer.streamed(text.len()))
    }

    /// A clause is about to be asked for: ends the answer before it if there is no time for the
    /// rest of its sentence. `true` if the clause is gone.
    pub(super) fn ends_before(&mut self, clause: ClauseId) -> bool {
        let Some(place) = self.playout.place_in_answer(clause) else {
            return false;
        };
        let Some(answer) = self.response.as_mut().map(|r| &mut r.answer) else {
            return false;
        };
        // A sentence that was begun is only cut when it has really become too long.
        let ahead = match place.begins_sentence {
            true => place.sentence_words,
            false => place.words,
        };
        if place.is_first || answer.fits(ahead) {
            answer.asked += place.words;
            return false;
        }
        self.cut_answer(clause);
        true
    }

    /// The voice has made all of a clause.
    pub(super) fn answer_was_made(&mut self, clause: ClauseId) {
        if let (Some((words, length)), Some(response)) =
            (self.playout.made_of_answer(clause), &mut self.response)
        {
            response.answer.made += words;
            response.answer.length = response.answer.length + length;
        }
    }

    /// Ends the answer before the clause `from`, and behind a whole sentence as far as the words
    /// before it are not being said yet. The model is stopped.
    pub(super) fn cut_answer(&mut self, from: ClauseId) {
        for clause in self.playout.cut_answer(from) {
            self.history.drop_clause(clause.item, clause.index);
            if clause.asked {
                let clause = clause.id;
                self.common
                    .outputs
                    .push_back(Output::CancelClause { clause });
            }
        }
        self.watch_synthesis();
        self.end_answer();
    }

    /// The model says nothing more in this response.
    pub(super) fn end_answer(&mut self) {
        self.common.timers.clear(Timer::GenerationOverdue);
        let Some(response) = &mut self.response else {
            return;
        };
        if let Some(request) = response.stop_generation() {
            self.common
                .outputs
                .push_back(Output::CancelGeneration { request });
        }
        response.answer.is_cut = true;
    }
}

impl Response {
    /// More of the model may come than it has said so far.
    pub(super) fn may_go_on(&self) -> bool {
        !self.failed && !self.answer.is_cut
    }
}

pub(super) fn words(text: &str) -> usize {
    text.split_whitespace().count()
}

/// Whether a clause is the last of its sentence.
pub(super) fn ends_sentence(clause: &str) -> bool {
    let closing = ['"', '”', '’', '\'', ')', ']', '»'];
    let bare = clause.trim_end_matches(closing);
    bare.ends_with(['.', '!', '?', '…', '。', '！', '？'])
}
