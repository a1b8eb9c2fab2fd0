//! Clauses that are synthesised before it is certain that they will be spoken. Their audio waits here; nobody
//! hears it unless the conversation asks for the same words in the same voice.

use crate::conversation::{ClauseId, RequestId};
use crate::tts::{Piece, Speaker};
use std::time::Instant;
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The most clauses that wait: one for each generation that can be held back at the same time.
const MOST: usize = 2;

/// The clauses of one session that were synthesised in advance.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    next: u64,
    clauses: Vec<Early>,
}

#[derive(Debug)]
struct Early {
    id: u64,
    /// The held-back generation that it begins.
    request: RequestId,
    text: String,
    speaker: Speaker,
    /// Its audio so far, at the voice's rate.
    audio: Piece,
    /// How its synthesis ended; `None` while it runs.
    ended: Option<Result<(), String>>,
    /// The clause that has taken it over.
    clause: Option<ClauseId>,
    /// Tells the voice when it is needed.
    needed: Option<oneshot::Sender<Instant>>,
    /// Dropping it stops the voice.
    _cancel: DropGuard,
}

/// A part of a clause that was synthesised in advance.
pub(super) enum Part {
    /// Audio at the voice's rate.
    Audio(Piece),
    /// It is complete, or has failed for this reason.
    End(Result<(), String>),
}

/// A clause that was taken over.
pub(super) struct TakenOver {
    /// Its audio so far, at the voice's rate. The rest comes through [`Ahead::receive`].
    pub(super) audio: Piece,
    /// How its synthesis ended; `None` while it runs.
    pub(super) ended: Option<Result<(), String>>,
}

impl Ahead {
    /// Adds a clause whose synthesis begins. Returns its number, and what tells when it is needed. The oldest gives
    /// way if there are too many.
    pub(super) fn begin(
        &mut self,
        request: RequestId,
        text: String,
        speaker: Speaker,
        cancel: CancellationToken,
    ) -> (u64, oneshot::Receiver<Instant>) {
        let waits = |early: &Early| early.clause.is_none();
        if self.clauses.iter().filter(|early| waits(early)).count() == MOST
            && let Some(oldest) = self.clauses.iter().position(waits)
        {
            self.clauses.remove(oldest);
        }
        self.next += 1;
        let id = self.next;
        let (needed, sooner) = oneshot::channel();
        self.clauses.push(Early {
            id,
            request,
            text,
            speaker,
            audio: Piece::default(),
            ended: None,
            clause: None,
            needed: Some(needed),
            _cancel: cancel.drop_guard(),
        });
        (id, sooner)
    }

    /// Drops the clause of a cancelled generation, unless it was taken over.
    pub(super) fn cancel(&mut self, request: RequestId) {
        self.clauses
            .retain(|early| early.request != request || early.clause.is_some());
    }

    /// Drops what a cancelled clause had taken over.
    pub(super) fn cancel_clause(&mut self, clause: ClauseId) {
        self.clauses.retain(|early| early.clause != Some(clause));
    }

    /// Forgets all clauses and stops their synthesis.
    pub(super) fn clear(&mut self) {
        self.clauses.clear();
    }

    /// Takes over what was synthesised of these words in this voice for `clause`, which is needed at this time.
    pub(super) fn take(
        &mut self,
        text: &str,
        speaker: &Speaker,
        clause: ClauseId,
        needed: Instant,
    ) -> Option<TakenOver> {
        let fits = |early: &Early| {
            early.clause.is_none() && early.text == text && early.speaker == *speaker
        };
        let at = self.clauses.iter().position(fits)?;
        let early = &mut self.clauses[at];
        early.clause = Some(clause);
        // The voice may be done.
        let _ = early.needed.take().map(|voice| voice.send(needed));
        let audio = std::mem::take(&mut early.audio);
        let ended = early.ended.take();
        if ended.is_some() {
            self.clauses.remove(at);
        }
        Some(TakenOver { audio, ended })
    }

    /// Takes in a part of a clause. Returns it if the clause was taken over, with the clause that did.
    pub(super) fn receive(&mut self, id: u64, part: Part) -> Option<(ClauseId, Part)> {
        let at = self.clauses.iter().position(|early| early.id == id)?;
        let early = &mut self.clauses[at];
        if let Some(clause) = early.clause {
            if matches!(part, Part::End(_)) {
                self.clauses.remove(at);
            }
            return Some((clause, part));
        }
        match part {
            Part::Audio(piece) => early.audio.append(piece),
            Part::End(ended) => early.ended = Some(ended),
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELD: RequestId = RequestId(1);

    fn begun() -> (Ahead, u64, CancellationToken) {
        let (mut ahead, cancel) = (Ahead::default(), CancellationToken::new());
        let (id, _) = ahead.begin(
            HELD,
            "It is noon.".into(),
            Speaker::default(),
            cancel.clone(),
        );
        (ahead, id, cancel)
    }

    fn audio(samples: &[f32]) -> Part {
        Part::Audio(samples.to_vec().into())
    }

    #[expect(clippy::disallowed_methods, reason = "any time will do")]
    fn take(ahead: &mut Ahead, text: &str) -> Option<TakenOver> {
        ahead.take(text, &Speaker::default(), ClauseId(7), Instant::now())
    }

    #[test]
    fn audio_waits_until_the_words_are_spoken() {
        let (mut ahead, id, _) = begun();
        assert!(ahead.receive(id, audio(&[0.1, 0.2])).is_none());
        assert!(take(&mut ahead, "It is one.").is_none());
        let taken = take(&mut ahead, "It is noon.").unwrap();
        assert_eq!((taken.audio.samples, taken.ended), (vec![0.1, 0.2], None));
        let rest = ahead.receive(id, audio(&[0.3]));
        assert!(matches!(rest, Some((ClauseId(7), Part::Audio(rest))) if rest.samples == [0.3]));
        assert!(ahead.receive(id, Part::End(Ok(()))).is_some());
        assert!(ahead.clauses.is_empty());
    }

    #[test]
    fn a_complete_clause_is_taken_over_once() {
        let (mut ahead, id, _) = begun();
        ahead.receive(id, Part::End(Ok(())));
        assert_eq!(take(&mut ahead, "It is noon.").unwrap().ended, Some(Ok(())));
        assert!(take(&mut ahead, "It is noon.").is_none());
    }

    #[test]
    fn a_cancelled_generation_stops_its_synthesis() {
        let (mut ahead, id, cancel) = begun();
        ahead.cancel(RequestId(2));
        assert!(!cancel.is_cancelled());
        ahead.cancel(HELD);
        assert!(cancel.is_cancelled());
        assert!(ahead.receive(id, audio(&[0.1])).is_none());
    }

    #[test]
    fn a_clause_that_was_taken_over_stops_with_the_clause_and_not_with_the_generation() {
        let (mut ahead, _, cancel) = begun();
        take(&mut ahead, "It is noon.");
        ahead.cancel(HELD);
        assert!(!cancel.is_cancelled());
        ahead.cancel_clause(ClauseId(7));
        assert!(cancel.is_cancelled());
    }

    #[test]
    fn the_oldest_gives_way() {
        let (mut ahead, _, first) = begun();
        for n in 2..4 {
            let cancel = CancellationToken::new();
            ahead.begin(RequestId(n), format!("{n}"), Speaker::default(), cancel);
        }
        assert!(first.is_cancelled());
        assert_eq!(ahead.clauses.len(), MOST);
    }
}
