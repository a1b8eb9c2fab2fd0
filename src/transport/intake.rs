//! How fast a client's audio may enter the session, and in which order with its requests.
//!
//! Clients may send a whole recording at once; a session can work faster than real time, but not
//! without bound. A token bucket lets a burst through, then a multiple of real time; what comes
//! faster waits in a bounded backlog, and what does not fit there is dropped and counted.
//!
//! A commit takes effect after the audio that was sent before it, and other requests after the
//! commit; truncating overtakes everything, and so does cancelling, but for the response that is
//! cancelled before it has begun.

use crate::conversation::{HeardUpTo, Input, ItemId, Micros};
use crate::session::Inbound;
use std::collections::VecDeque;
use std::time::Duration;

/// How fast audio may come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IntakeLimits {
    /// Audio that passes at once after a pause.
    pub burst: Duration,
    /// How many seconds of audio pass in a second after that.
    pub speed: u32,
    /// Audio that may wait.
    pub backlog: Duration,
}

impl IntakeLimits {
    /// For clients that append recordings: ten seconds at once, then four times real time, a
    /// minute may wait.
    pub const RECORDINGS: Self = Self {
        burst: Duration::from_secs(10),
        speed: 4,
        backlog: Duration::from_secs(60),
    };

    /// For devices that send as they hear: network jitter of two seconds, then twice real time.
    pub const LIVE: Self = Self {
        burst: Duration::from_secs(2),
        speed: 2,
        backlog: Duration::from_secs(1),
    };
}

/// The longest piece of audio that is handed on at once.
const PIECE_MS: u32 = 100;

/// Requests that may wait. A client that has more under way does not wait for answers.
const MAX_REQUESTS: usize = 256;

/// A client's audio and requests that have not reached the session yet.
#[derive(Debug)]
pub struct Intake {
    limits: IntakeLimits,
    rate: u32,
    urgent: VecDeque<Input>,
    queue: VecDeque<Inbound>,
    requests: usize,
    waiting: Micros,
    allowance: Micros,
    refilled: Micros,
    /// The client is away: what it has sent before waits until it is back.
    held: bool,
}

impl Intake {
    /// An intake in which nothing waits and a whole burst may pass. `rate` is that of the audio, Hz.
    pub fn new(limits: IntakeLimits, rate: u32) -> Self {
        Self {
            limits,
            rate,
            urgent: VecDeque::new(),
            queue: VecDeque::new(),
            requests: 0,
            waiting: Micros(0),
            allowance: micros(limits.burst),
            refilled: Micros(0),
            held: false,
        }
    }

    /// Takes audio in. Returns how much of it did not fit and is dropped: all or nothing.
    pub fn push_audio(&mut self, samples: Vec<i16>) -> Micros {
        let length = self.length(samples.len());
        if self.waiting.0 + length.0 > micros(self.limits.burst + self.limits.backlog).0 {
            return length;
        }
        self.waiting = self.waiting + length;
        let piece = (self.rate * PIECE_MS / 1000).max(1) as usize;
        self.queue.extend(
            samples
                .chunks(piece)
                .map(|piece| Inbound::Audio(piece.to_vec())),
        );
        Micros(0)
    }

    /// Takes a request in. False if too many wait already.
    pub fn push_request(&mut self, request: Input) -> bool {
        if self.requests >= MAX_REQUESTS {
            return false;
        }
        self.requests += 1;
        match request {
            Input::CancelResponse => match self.last_response() {
                Some(at) => self.queue.insert(at + 1, Inbound::Request(request)),
                None => self.urgent.push_back(request),
            },
            Input::Truncate { .. } => self.urgent.push_back(request),
            Input::ClearAudio => self.clear_audio(),
            Input::CommitAudio => self.queue.push_back(Inbound::Request(request)),
            _ if self.has_queued_request() => self.queue.push_back(Inbound::Request(request)),
            _ => self.urgent.push_back(request),
        }
        true
    }

    /// Asks the session to finish. This is the server's request, so the client's limit does not apply.
    pub fn drain(&mut self, how: Input) {
        self.requests += 1;
        self.urgent.push_back(how);
    }

    /// Tells the session that the client's connection is lost. What waits for the session goes on waiting.
    pub fn lost(&mut self) {
        self.held = true;
        self.requests += 1;
        self.urgent.push_back(Input::ClientLost);
    }

    /// Tells the session that the client is back, and what it has heard.
    pub fn back(&mut self, heard: Option<HeardUpTo>) {
        self.held = false;
        self.requests += 1;
        self.urgent.push_back(Input::ClientBack { heard });
    }

    /// Takes an item in that was spoken elsewhere. False if too many requests wait already.
    pub fn push_spoken(&mut self, audio: Vec<i16>, id: ItemId, item: Box<Input>) -> bool {
        if self.requests >= MAX_REQUESTS {
            return false;
        }
        self.requests += 1;
        self.queue.push_back(Inbound::Spoken { audio, id, item });
        true
    }

    /// When something may be handed on, in time since the socket opened; `None` if nothing waits.
    pub fn ready_at(&self) -> Option<Micros> {
        if !self.urgent.is_empty() {
            return Some(Micros(0));
        }
        if self.held {
            return None;
        }
        match self.queue.front()? {
            Inbound::Request(_) | Inbound::Spoken { .. } => Some(Micros(0)),
            Inbound::Audio(samples) => {
                let missing = self
                    .length(samples.len())
                    .0
                    .saturating_sub(self.allowance.0);
                let wait = missing.div_ceil(u64::from(self.limits.speed.max(1)));
                Some(Micros(self.refilled.0 + wait))
            }
        }
    }

    /// Returns the next input that is due.
    pub fn pop(&mut self, now: Micros) -> Option<Inbound> {
        self.refill(now);
        if self.ready_at()? > now {
            return None;
        }
        let next = match self.urgent.pop_front() {
            Some(request) => Inbound::Request(request),
            None => self.queue.pop_front()?,
        };
        match &next {
            Inbound::Request(_) | Inbound::Spoken { .. } => self.requests -= 1,
            Inbound::Audio(samples) => self.spend(samples.len()),
        }
        Some(next)
    }

    fn spend(&mut self, samples: usize) {
        let length = self.length(samples);
        self.waiting = Micros(self.waiting.0.saturating_sub(length.0));
        self.allowance = Micros(self.allowance.0.saturating_sub(length.0));
    }

    fn refill(&mut self, now: Micros) {
        let elapsed = now.0.saturating_sub(self.refilled.0);
        let earned = elapsed.saturating_mul(u64::from(self.limits.speed.max(1)));
        let full = micros(self.limits.burst).0.max(u64::from(PIECE_MS) * 1000);
        self.allowance = Micros(self.allowance.0.saturating_add(earned).min(full));
        self.refilled = now;
    }

    /// Drops the audio since the last commit that waits, and puts the request in its place.
    fn clear_audio(&mut self) {
        while let Some(Inbound::Audio(samples)) = self.queue.back() {
            let length = self.length(samples.len());
            self.waiting = Micros(self.waiting.0.saturating_sub(length.0));
            self.queue.pop_back();
        }
        self.queue.push_back(Inbound::Request(Input::ClearAudio));
    }

    /// Where the last request for a response waits.
    fn last_response(&self) -> Option<usize> {
        self.queue.iter().rposition(|queued| {
            let Inbound::Request(request) = queued else {
                return false;
            };
            matches!(request, Input::Respond { .. } | Input::RespondWith(_))
        })
    }

    fn has_queued_request(&self) -> bool {
        self.queue
            .iter()
            .any(|queued| !matches!(queued, Inbound::Audio(_)))
    }

    fn length(&self, samples: usize) -> Micros {
        Micros::of_samples(samples as u64, self.rate)
    }
}

fn micros(duration: Duration) -> Micros {
    Micros(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u32 = 24_000;

    fn audio(ms: u32) -> Vec<i16> {
        vec![1; (RATE / 1000 * ms) as usize]
    }

    fn drain(intake: &mut Intake, now: Micros) -> (u64, Vec<Input>) {
        let (mut samples, mut requests) = (0, Vec::new());
        while let Some(next) = intake.pop(now) {
            match next {
                Inbound::Audio(piece) => samples += piece.len() as u64,
                Inbound::Request(request) => requests.push(request),
                Inbound::Spoken { item, .. } => requests.push(*item),
            }
        }
        (Micros::of_samples(samples, RATE).as_ms(), requests)
    }

    #[test]
    fn a_recording_passes_at_once() {
        let mut intake = Intake::new(IntakeLimits::RECORDINGS, RATE);
        assert_eq!(intake.push_audio(audio(5000)), Micros(0));
        assert!(intake.push_request(Input::CommitAudio));
        assert_eq!(
            drain(&mut intake, Micros(0)),
            (5000, vec![Input::CommitAudio])
        );
        assert_eq!(intake.ready_at(), None);
    }

    #[test]
    fn a_flood_is_slowed_down_then_dropped() {
        let mut intake = Intake::new(IntakeLimits::LIVE, RATE);
        let dropped: u64 = (0..100)
            .map(|_| intake.push_audio(audio(100)).as_ms())
            .sum();
        assert_eq!(dropped, 7000);
        assert_eq!(drain(&mut intake, Micros(0)).0, 2000);
        assert_eq!(intake.ready_at(), Some(Micros::from_ms(50)));
        assert_eq!(drain(&mut intake, Micros::from_ms(49)).0, 0);
        assert_eq!(drain(&mut intake, Micros::from_ms(250)).0, 500);
    }

    #[test]
    fn an_answer_waits_for_the_commit_before_it_and_a_cancellation_does_not() {
        let mut intake = Intake::new(IntakeLimits::LIVE, RATE);
        intake.push_audio(audio(3000));
        intake.push_request(Input::CommitAudio);
        intake.push_request(Input::CancelResponse);
        intake.push_request(Input::Respond { instructions: None });
        assert_eq!(
            drain(&mut intake, Micros(0)),
            (2000, vec![Input::CancelResponse])
        );
        let (ms, requests) = drain(&mut intake, Micros::from_ms(1000));
        assert_eq!(ms, 1000);
        assert_eq!(
            requests,
            [Input::CommitAudio, Input::Respond { instructions: None }]
        );
    }

    #[test]
    fn a_cancellation_does_not_overtake_the_response_that_it_cancels() {
        let mut intake = Intake::new(IntakeLimits::LIVE, RATE);
        let respond = Input::Respond { instructions: None };
        intake.push_audio(audio(500));
        intake.push_request(Input::CommitAudio);
        intake.push_request(respond.clone());
        intake.push_audio(audio(500));
        intake.push_request(Input::CommitAudio);
        intake.push_request(Input::CancelResponse);
        let (_, requests) = drain(&mut intake, Micros(0));
        let expected = [
            Input::CommitAudio,
            respond,
            Input::CancelResponse,
            Input::CommitAudio,
        ];
        assert_eq!(requests, expected);
    }

    #[test]
    fn clearing_drops_what_waits_since_the_last_commit() {
        let mut intake = Intake::new(IntakeLimits::LIVE, RATE);
        intake.push_audio(audio(500));
        intake.push_request(Input::CommitAudio);
        intake.push_audio(audio(700));
        intake.push_request(Input::ClearAudio);
        let passed = drain(&mut intake, Micros(0));
        assert_eq!(passed, (500, vec![Input::CommitAudio, Input::ClearAudio]));
    }

    #[test]
    fn requests_are_bounded() {
        let mut intake = Intake::new(IntakeLimits::LIVE, RATE);
        let taken = (0..1000)
            .filter(|_| intake.push_request(Input::CommitAudio))
            .count();
        assert_eq!(taken, MAX_REQUESTS);
    }

    #[test]
    fn what_follows_an_item_that_was_spoken_elsewhere_waits_for_it() {
        let mut intake = Intake::new(IntakeLimits::RECORDINGS, RATE);
        let drain_it = Input::HangUp;
        assert!(intake.push_spoken(vec![1; 100], ItemId(1), Box::new(Input::CommitAudio)));
        assert!(intake.push_request(drain_it.clone()));
        let (samples, requests) = drain(&mut intake, Micros(0));
        assert_eq!((samples, requests), (0, vec![Input::CommitAudio, drain_it]));
    }
}
