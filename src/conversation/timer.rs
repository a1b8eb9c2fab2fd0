//! Deadlines as data: one slot per timer, without tasks.

use crate::time::Time;

/// The deadlines of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Timer {
    /// The opening has waited for the client for long enough.
    OpeningHeld,
    /// The silence is long enough to end the user's turn.
    EndOfTurn,
    /// The final transcript is overdue.
    TranscriptOverdue,
    /// Audio that could not be transcribed is requested again.
    TranscribeAgain,
    /// The user's audio or words have stopped in mid-utterance.
    AudioStalled,
    /// Audio of a requested clause is overdue.
    SynthesisOverdue,
    /// The agent has been silent too long while an answer is due.
    DeadAir,
    /// The model's words were held back for long enough.
    FillerHeld,
    /// The language model has streamed nothing for too long.
    GenerationOverdue,
    /// A yes no longer counts.
    ConfirmationExpired,
    /// All audio that was sent has been heard.
    PlayoutEnd,
    /// No key has followed the last one: the number is complete.
    KeysComplete,
    /// The user has been silent for too long.
    Silence,
    /// The session has been idle for too long.
    Idle,
    /// The session has reached its maximum length.
    SessionEnd,
}

impl Timer {
    const ALL: [Timer; 15] = [
        Timer::OpeningHeld,
        Timer::EndOfTurn,
        Timer::TranscriptOverdue,
        Timer::TranscribeAgain,
        Timer::AudioStalled,
        Timer::SynthesisOverdue,
        Timer::DeadAir,
        Timer::FillerHeld,
        Timer::GenerationOverdue,
        Timer::ConfirmationExpired,
        Timer::PlayoutEnd,
        Timer::KeysComplete,
        Timer::Silence,
        Timer::Idle,
        Timer::SessionEnd,
    ];
}

/// The deadlines that are set.
#[derive(Debug, Default)]
pub(super) struct Timers([Option<Time>; Timer::ALL.len()]);

impl Timers {
    pub(super) fn set(&mut self, timer: Timer, at: Time) {
        self.0[timer as usize] = Some(at);
    }

    pub(super) fn clear(&mut self, timer: Timer) {
        self.0[timer as usize] = None;
    }

    pub(super) fn is_set(&self, timer: Timer) -> bool {
        self.0[timer as usize].is_some()
    }

    /// The earliest deadline.
    pub(super) fn next(&self) -> Option<Time> {
        self.0.iter().flatten().min().copied()
    }

    /// Takes a timer whose deadline has come, the earliest first.
    pub(super) fn take_due(&mut self, now: Time) -> Option<Timer> {
        let (at, timer) = Timer::ALL
            .into_iter()
            .filter_map(|timer| self.0[timer as usize].map(|at| (at, timer)))
            .min_by_key(|(at, _)| *at)?;
        (at <= now).then(|| {
            self.clear(timer);
            timer
        })
    }
}
