//! A pump's link to its session, whatever transport carries the bytes.
//!
//! A pump calls [`Link::next`] in its loop and passes on the client's input. The link opens the session,
//! feeds it audio and requests at a bounded rate, and asks it to finish when the server drains.

use super::intake::{Intake, IntakeLimits};
use super::pump::{End, PumpContext};
use crate::conversation::{HeardUpTo, Input, ItemId, Micros};
use crate::session::{Inbound, Outbound, SessionError, SessionHandle, SessionOptions};
use std::sync::atomic::Ordering::Relaxed;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tracing::Span;

/// A pump's link to its session.
pub struct Link {
    context: PumpContext,
    limits: IntakeLimits,
    intake: Intake,
    session: Option<SessionHandle>,
    span: Span,
    began: Instant,
    draining: bool,
    /// See [`Self::of_call`].
    is_call: bool,
}

/// An event that the pump handles.
#[allow(
    clippy::large_enum_variant,
    reason = "there is one at a time, and it is taken apart at once"
)]
#[derive(Debug)]
pub enum Signal {
    /// The session has an output.
    Said(Outbound),
    /// The session ended without hanging up.
    Lost,
    /// The server drains and no session is open; to a telephone call, at the farewell. Returned once.
    Drained,
    /// The drain deadline has passed.
    Stop,
}

/// Too many of the client's requests are waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many requests are waiting")]
pub struct TooManyRequests;

impl Link {
    /// A link without a session. `rate`, Hz, is that of the client's audio until a session is opened with
    /// another.
    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: audio is let in as real time passes"
    )]
    pub fn new(intake: IntakeLimits, rate: u32, context: PumpContext) -> Self {
        Self {
            context,
            limits: intake,
            intake: Intake::new(intake, rate),
            session: None,
            span: Span::none(),
            began: Instant::now(),
            draining: false,
            is_call: false,
        }
    }

    /// The same for a telephone call: until the farewell it goes on while the server drains, whether its session is
    /// open yet or not.
    pub fn of_call(intake: IntakeLimits, rate: u32, context: PumpContext) -> Self {
        Self {
            is_call: true,
            ..Self::new(intake, rate, context)
        }
    }

    /// Opens the session. Earlier input is dropped.
    ///
    /// # Errors
    /// [`SessionError`], which is logged.
    pub fn open(&mut self, options: SessionOptions) -> Result<(), SessionError> {
        self.intake = Intake::new(self.limits, options.input_rate);
        let opened = (self.context.sessions)(options);
        let handle = opened.inspect_err(|error| tracing::warn!(%error, "cannot open a session"))?;
        self.context.counters.sessions.fetch_add(1, Relaxed);
        self.span = handle.span.clone();
        self.session = Some(handle);
        Ok(())
    }

    /// The session's span, also when it is over: what the pump logs of its client belongs in it.
    pub fn span(&self) -> Span {
        self.span.clone()
    }

    /// Whether a session is open.
    pub fn is_open(&self) -> bool {
        self.session.is_some()
    }

    /// Tells the session that the client's connection is lost. What the client has sent before waits until it is back.
    pub fn lost(&mut self) {
        self.intake.lost();
    }

    /// Tells the session that the client is back, and what it has heard.
    pub fn back(&mut self, heard: Option<HeardUpTo>) {
        self.intake.back(heard);
    }

    /// Whether the server has begun to shut down.
    pub fn is_draining(&self) -> bool {
        self.context.drain.is_cancelled()
    }

    /// Ends the session, if one is open.
    pub fn close(&mut self) {
        self.session = None;
    }

    /// Counts the end of the connection and ends the session.
    pub fn end<B, C>(&mut self, end: &End<B, C>) {
        end.count(&self.context.counters);
        self.close();
    }

    /// Queues the client's audio. Returns how much was dropped because it came too fast.
    pub fn audio(&mut self, samples: Vec<i16>) -> Micros {
        let dropped = self.intake.push_audio(samples);
        let counters = &self.context.counters;
        counters.audio_in_dropped.fetch_add(dropped.0, Relaxed);
        dropped
    }

    /// Queues a request of the client.
    ///
    /// # Errors
    /// [`TooManyRequests`]: the client does not wait for answers and should be disconnected.
    pub fn request(&mut self, request: Input) -> Result<(), TooManyRequests> {
        let taken = self.intake.push_request(request);
        taken.then_some(()).ok_or(TooManyRequests)
    }

    /// Queues an item that was spoken elsewhere: [`Inbound::Spoken`].
    ///
    /// # Errors
    /// As [`Self::request`].
    pub fn spoken(
        &mut self,
        audio: Vec<i16>,
        id: ItemId,
        item: Box<Input>,
    ) -> Result<(), TooManyRequests> {
        let taken = self.intake.push_spoken(audio, id, item);
        taken.then_some(()).ok_or(TooManyRequests)
    }

    /// Counts the agent's audio that was dropped because the client reads too slowly.
    pub fn audio_lost(&self, length: Micros) {
        let counters = &self.context.counters;
        counters.audio_out_dropped.fetch_add(length.0, Relaxed);
    }

    /// Waits for the next event and feeds the session meanwhile. Cancel-safe.
    pub async fn next(&mut self) -> Signal {
        loop {
            let stop = &self.context.stop;
            let (drain, how) = match self.is_call {
                true => (&self.context.farewell, Input::Farewell),
                false => (&self.context.drain, Input::Drain),
            };
            let Some(SessionHandle {
                inbound, outbound, ..
            }) = &mut self.session
            else {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return Signal::Stop,
                    () = drain.cancelled(), if !self.draining => {
                        self.draining = true;
                        return Signal::Drained;
                    }
                }
            };
            let due = self.intake.ready_at();
            let due = due.map(|at| self.began + at.duration());
            tokio::select! {
                biased;
                () = stop.cancelled() => return Signal::Stop,
                () = drain.cancelled(), if !self.draining => {
                    self.draining = true;
                    self.intake.drain(how);
                }
                said = outbound.recv() => return said.map_or(Signal::Lost, Signal::Said),
                room = room(inbound, due) => {
                    let Some(room) = room else { return Signal::Lost };
                    if let Some(next) = self.intake.pop(since(self.began)) {
                        room.send(next);
                    }
                }
            }
        }
    }

    /// The number of outputs that are queued.
    pub fn waiting(&self) -> usize {
        let session = self.session.as_ref();
        session.map_or(0, |session| session.outbound.len())
    }

    /// The next queued output.
    pub fn try_next(&mut self) -> Option<Outbound> {
        self.session.as_mut()?.outbound.try_recv().ok()
    }
}

/// Waits until `due` and for room in the session; `None` if the session has ended.
#[allow(
    clippy::disallowed_methods,
    reason = "an edge: audio is let in as real time passes"
)]
async fn room(
    into: &mpsc::Sender<Inbound>,
    due: Option<Instant>,
) -> Option<mpsc::Permit<'_, Inbound>> {
    match due {
        None => std::future::pending().await,
        Some(due) if due > Instant::now() => sleep_until(due).await,
        Some(_) => {}
    }
    into.reserve().await.ok()
}

fn since(began: Instant) -> Micros {
    Micros(u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Profile;
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::time::timeout;
    use tokio_util::sync::CancellationToken;

    const RATE: u32 = 16_000;

    /// A session's own end.
    struct Session {
        heard: mpsc::Receiver<Inbound>,
        says: mpsc::Sender<Outbound>,
    }

    fn linked() -> (Link, Session, PumpContext) {
        linked_by(Link::new)
    }

    fn linked_by(new: fn(IntakeLimits, u32, PumpContext) -> Link) -> (Link, Session, PumpContext) {
        let (inbound, heard) = mpsc::channel(64);
        let (says, outbound) = mpsc::channel(64);
        let handle = std::sync::Mutex::new(Some(SessionHandle {
            inbound,
            outbound,
            span: tracing::Span::none(),
        }));
        let context = PumpContext {
            sessions: Arc::new(move |_| {
                let handle = handle.lock().unwrap().take();
                handle.ok_or(SessionError::Overloaded)
            }),
            limits: super::super::pump::SocketLimits::default(),
            counters: Arc::default(),
            drain: CancellationToken::new(),
            farewell: CancellationToken::new(),
            stop: CancellationToken::new(),
        };
        let mut link = new(IntakeLimits::LIVE, RATE, context.clone());
        let options = SessionOptions::new(Profile::Conversation, RATE);
        link.open(options.clone()).unwrap();
        assert_eq!(link.open(options), Err(SessionError::Overloaded));
        assert_eq!(context.counters.sessions.load(Relaxed), 1);
        (link, Session { heard, says }, context)
    }

    /// Lets time pass in which the pump has nothing to do.
    async fn idle(link: &mut Link, ms: u64) {
        let signal = timeout(Duration::from_millis(ms), link.next()).await;
        assert!(signal.is_err(), "{signal:?}");
    }

    fn heard_ms(session: &mut Session) -> u64 {
        let heard = std::iter::from_fn(|| session.heard.try_recv().ok());
        let samples = heard.map(|inbound| match inbound {
            Inbound::Audio(samples) => samples.len() as u64,
            other => panic!("{other:?}"),
        });
        Micros::of_samples(samples.sum(), RATE).as_ms()
    }

    #[tokio::test(start_paused = true)]
    async fn the_session_is_fed_at_a_bounded_rate() {
        let (mut link, mut session, context) = linked();
        for _ in 0..40 {
            link.audio(vec![1; RATE as usize / 10]);
        }
        let dropped = context.counters.audio_in_dropped.load(Relaxed);
        assert_eq!(dropped, Micros::from_ms(1_000).0);
        idle(&mut link, 10).await;
        assert_eq!(heard_ms(&mut session), 2_000);
        idle(&mut link, 240).await;
        assert_eq!(heard_ms(&mut session), 500);
    }

    #[tokio::test(start_paused = true)]
    async fn a_telephone_call_goes_on_while_the_server_drains_until_little_time_is_left() {
        let (mut link, mut session, context) = linked_by(Link::of_call);
        context.drain.cancel();
        idle(&mut link, 10).await;
        assert!(session.heard.try_recv().is_err());
        context.farewell.cancel();
        idle(&mut link, 10).await;
        let asked = session.heard.try_recv();
        assert!(matches!(asked, Ok(Inbound::Request(Input::Farewell))));
        idle(&mut link, 10).await;
        assert!(session.heard.try_recv().is_err());
    }

    /// It was cut off at once, although it had been answered before.
    #[tokio::test(start_paused = true)]
    async fn a_telephone_call_whose_session_is_not_open_yet_goes_on_while_the_server_drains() {
        let (.., context) = linked();
        let mut link = Link::of_call(IntakeLimits::LIVE, RATE, context.clone());
        context.drain.cancel();
        idle(&mut link, 10).await;
        context.farewell.cancel();
        assert!(matches!(link.next().await, Signal::Drained));
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_goes_to_the_session_or_to_the_pump_and_once() {
        let (mut link, mut session, context) = linked();
        context.drain.cancel();
        idle(&mut link, 10).await;
        let drain = session.heard.try_recv();
        assert!(matches!(drain, Ok(Inbound::Request(Input::Drain))));
        idle(&mut link, 10).await;
        assert!(session.heard.try_recv().is_err());
        let mut idler = Link::new(IntakeLimits::LIVE, RATE, context.clone());
        assert!(matches!(idler.next().await, Signal::Drained));
        idle(&mut idler, 10).await;
        context.stop.cancel();
        for link in [&mut link, &mut idler] {
            assert!(matches!(link.next().await, Signal::Stop));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_that_is_gone_is_lost_and_one_that_is_closed_is_not() {
        let (mut link, session, _) = linked();
        session.says.try_send(Outbound::Clear).unwrap();
        drop(session);
        assert_eq!(link.waiting(), 1);
        assert!(matches!(link.next().await, Signal::Said(Outbound::Clear)));
        assert!(matches!(link.next().await, Signal::Lost));
        link.close();
        idle(&mut link, 10).await;
    }
}
