//! An utterance over the agent's voice.

use super::Turn;
use crate::conversation::common::Common;
use crate::conversation::output::Event;
use crate::conversation::overlap::{BargeInPolicy, Overlap};
use crate::conversation::utterance::Utterance;
use crate::language::Pack;
use crate::time::Samples;

impl Turn {
    /// Begins one, of which clients are told when it interrupts.
    pub(in crate::conversation) fn begin_overlap(&mut self, common: &Common, at: Samples) {
        let overlap = Overlap::new(self.audio_end);
        let mut utterance = Utterance::spoken(at, self.audio_end, common.now, 0);
        let (first, every_ms) = overlap.partials();
        utterance.partials().begin_at(first, every_ms);
        self.utterance = Some(utterance);
        self.overlap = Some(overlap);
    }

    /// Notes that the utterance stops the agent before its words are known.
    pub(in crate::conversation) fn stops_agent(&mut self) {
        self.overlap = Some(Overlap::that_stopped(self.audio_end));
    }

    /// Whether the utterance began over the agent's voice, and has not interrupted it.
    pub(in crate::conversation) fn is_unheeded(&self) -> bool {
        self.is_open() && self.overlap.as_ref().is_some_and(Overlap::is_open)
    }

    /// Takes the words of a partial.
    pub(in crate::conversation) fn overlaps_with(&mut self, words: &str, language: &Pack) {
        if let (Some(overlap), Some(utterance)) = (&mut self.overlap, &mut self.utterance) {
            overlap.heard(words, utterance.partials().last_end(), language);
        }
    }

    /// Takes all words up to a pause.
    pub(in crate::conversation) fn overlap_pauses(&mut self, words: &str) {
        if let Some(overlap) = &mut self.overlap {
            overlap.pauses(words);
        }
    }

    /// Whether the utterance is now known to interrupt the agent.
    pub(in crate::conversation) fn must_interrupt(
        &self,
        policy: BargeInPolicy,
        language: &Pack,
    ) -> bool {
        let (Some(overlap), Some(utterance)) = (&self.overlap, &self.utterance) else {
            return false;
        };
        overlap.is_open() && overlap.must_interrupt(policy, utterance.last_speech(), language)
    }

    /// The utterance interrupts the agent: clients are told of it.
    pub(in crate::conversation) fn interrupt(&mut self, common: &mut Common) {
        if let (Some(overlap), Some(utterance)) = (&mut self.overlap, &self.utterance) {
            overlap.interrupt();
            let at = utterance.from();
            common.notify(Event::SpeechStarted { at });
        }
    }

    /// Makes the utterance a turn, whatever its words are.
    pub(in crate::conversation) fn forget_overlap(&mut self) {
        self.overlap = None;
    }

    /// Whether the last utterance began over the agent's voice, and has interrupted it.
    pub(in crate::conversation) fn has_interrupted(&self) -> bool {
        self.overlap
            .as_ref()
            .is_some_and(|overlap| !overlap.is_open())
    }
}
