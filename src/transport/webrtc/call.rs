//! The pump between one WebRTC client and one session.
//!
//! One task per call. The agent's audio waits here, in a queue that a barge-in empties, and never in the socket.

use super::gaps::{Gaps, Piece};
use super::opus::{CLOCK, OpusDecoder, OpusEncoder, RATE, VOICE_RATE};
use super::peer::{Peer, PeerEvent};
use super::pieces::Pieces;
use super::playout::Playout;
use super::port::{Packet, Wire};
use super::sideband::{EventReceiver, EventSender, queue};
use crate::audio::{Resampler, to_f32, to_i16};
use crate::conversation::{Input, Micros};
use crate::metrics::{CallEnd, Metrics};
use crate::session::{Outbound, SessionOptions};
use crate::transport::frame_pacer::{FRAME, FramePacer};
use crate::transport::intake::IntakeLimits;
use crate::transport::link::{Link, Signal, TooManyRequests};
use crate::transport::outbox::Outbox;
use crate::transport::patience::Patience;
use crate::transport::pump::{self, PumpContext, SocketLimits};
use crate::transport::realtime::Realtime;
use crate::transport::resume::{Keeping, Returning, WayBack, arrival};
use crate::transport::{Action, ClientMessage, Dialect, Frame, close_code, socket};
use futures_util::FutureExt;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// Frames of silence after the last words, before the connection is closed: the client's jitter buffer plays
/// meanwhile.
const LAST_FRAMES: u32 = 20;

/// The length of a frame in RTP time, ticks of [`CLOCK`].
const FRAME_TICKS: u64 = FRAME.0 * CLOCK as u64 / 1_000_000;

/// The second clients of a call.
const MEMBERS: usize = 4;

/// The client's events that may wait until the session has room for them.
const UNREAD: usize = 1_024;

/// A call that has been answered and waits for its client.
pub struct Seat {
    pub(super) peer: Peer,
    pub(super) packets: mpsc::Receiver<Packet>,
    /// Events of second clients. Dropped before anything that sends to them, so that they know that the call is over.
    pub(super) requests: EventReceiver,
    /// Second clients that join: where their events go.
    pub(super) joins: mpsc::Receiver<EventSender>,
    /// Cancelled when somebody hangs up by the call's id.
    pub(super) hang_up: CancellationToken,
    /// Our addresses, as the client knows them.
    pub(super) here: Vec<SocketAddr>,
    pub(super) wire: Arc<dyn Wire>,
    pub(super) metrics: Arc<Metrics>,
}

impl Seat {
    /// Runs the call until either side hangs up or the server stops. `intake` limits how fast the client's
    /// audio may arrive. With a `way_back`, a client whose call is cut off goes on over a WebSocket.
    pub async fn serve(
        self,
        dialect: Box<Realtime>,
        intake: IntakeLimits,
        context: PumpContext,
        way_back: Option<WayBack>,
    ) {
        let (metrics, limits) = (self.metrics.clone(), context.limits);
        let serving = AssertUnwindSafe(self.run(dialect, intake, context, way_back));
        let (end, left) = serving.catch_unwind().await.unwrap_or_else(|_| {
            tracing::error!("a call over WebRTC panicked; the others go on");
            (CallEnd::Failed, None)
        });
        metrics.call_ended(end);
        if let Some(left) = left {
            let Moved {
                dialect,
                link,
                keeping,
                returning,
            } = *left;
            socket::go_on(dialect, link, keeping, limits, returning).await;
        }
    }

    async fn run(
        self,
        dialect: Box<Realtime>,
        intake: IntakeLimits,
        context: PumpContext,
        way_back: Option<WayBack>,
    ) -> (CallEnd, Option<Box<Moved>>) {
        let mut call = match Call::new(self, dialect, intake, context, way_back) {
            Ok(call) => call,
            Err(error) => {
                tracing::error!(%error, "no call over WebRTC: Opus cannot be set up");
                return (CallEnd::Failed, None);
            }
        };
        let end = match call.run().await {
            Stop::Over(end) => end,
            Stop::Displaced(returning) => {
                call.say_goodbye();
                return (CallEnd::Connected, call.moved(returning).map(Box::new));
            }
        };
        call.link.end(&end);
        call.link.span().in_scope(|| match &end {
            End::Bad(error) => tracing::warn!(%error, "closed a call over WebRTC"),
            end => tracing::debug!(?end, "a call over WebRTC ended"),
        });
        call.say_goodbye();
        let end = match call.is_up {
            true => CallEnd::Connected,
            false => CallEnd::NeverConnected,
        };
        (end, None)
    }
}

/// A session that goes on over a WebSocket.
struct Moved {
    dialect: Box<Realtime>,
    link: Link,
    keeping: Keeping,
    returning: Returning,
}

/// The reason why a call is served no more.
enum Stop {
    Over(End),
    /// The client goes on over a WebSocket.
    Displaced(Returning),
}

/// The reason for a call's end.
pub(super) type End = pump::End<BadCall>;

/// An error that is the client's fault.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(super) enum BadCall {
    #[error("the client did not connect in time")]
    Unconnected,
    #[error("{0}")]
    Protocol(&'static str),
    #[error("the connection broke: {0}")]
    Broken(String),
    #[error(transparent)]
    Requests(#[from] TooManyRequests),
}

/// The event that the pump handles next.
#[allow(
    clippy::large_enum_variant,
    reason = "there is one at a time, and it is taken apart at once"
)]
enum Wakeup {
    Tick,
    HungUp,
    Beat,
    Pass,
    Signal(Signal),
    Returned(Returning),
    Received(Option<Packet>),
    Joined(EventSender),
    Requested(String),
}

struct Call {
    seat: Seat,
    dialect: Box<Realtime>,
    link: Link,
    patience: Patience,
    outbox: Outbox,
    /// The event that the channel has no room for yet.
    unsaid: Option<String>,
    /// The client's events that wait until the session has room for them.
    unread: (EventSender, EventReceiver),
    /// Second clients.
    members: Vec<EventSender>,
    gaps: Gaps,
    decoder: OpusDecoder,
    encoder: OpusEncoder,
    pacer: FramePacer,
    playout: Playout,
    pieces: Pieces,
    began: Instant,
    /// Audio can be sent.
    is_up: bool,
    limits: SocketLimits,
    keeping: Option<Keeping>,
    /// Once the session is over: the number of frames that are still sent when the queue is empty.
    over: Option<u32>,
}

#[allow(
    clippy::disallowed_methods,
    reason = "an edge: the beat of the frames and the timeouts are real time"
)]
impl Call {
    fn new(
        seat: Seat,
        dialect: Box<Realtime>,
        intake: IntakeLimits,
        context: PumpContext,
        way_back: Option<WayBack>,
    ) -> Result<Self, opus::Error> {
        Ok(Self {
            limits: context.limits,
            keeping: way_back.map(Keeping::new),
            patience: Patience::new(context.limits),
            link: Link::new(intake, RATE, context),
            seat,
            dialect,
            outbox: Outbox::default(),
            unsaid: None,
            unread: queue(UNREAD),
            members: Vec::new(),
            gaps: Gaps::default(),
            decoder: OpusDecoder::new()?,
            encoder: OpusEncoder::new()?,
            pacer: FramePacer::new(VOICE_RATE, Micros(0)),
            playout: Playout::default(),
            pieces: Pieces::default(),
            began: Instant::now(),
            is_up: false,
            over: None,
        })
    }

    async fn run(&mut self) -> Stop {
        let mut end = self.settle().err();
        loop {
            if let Some(end) = end {
                return Stop::Over(end);
            }
            let wakeup = match self.next().await {
                Wakeup::Returned(returning) => return Stop::Displaced(returning),
                wakeup => wakeup,
            };
            let span = self.link.span();
            end = span.in_scope(|| self.handle(wakeup)).err();
        }
    }

    /// Waits for the next event, in order of importance.
    async fn next(&mut self) -> Wakeup {
        let deadline = self.patience.deadline();
        let beat = self.began + self.pacer.due().duration();
        let pass = Instant::from_std(self.seat.peer.wait());
        tokio::select! {
            biased;
            () = sleep_until(deadline) => Wakeup::Tick,
            () = self.seat.hang_up.cancelled() => Wakeup::HungUp,
            () = sleep_until(beat), if self.is_up => Wakeup::Beat,
            () = sleep_until(pass) => Wakeup::Pass,
            signal = self.link.next() => Wakeup::Signal(signal),
            returning = arrival(&mut self.keeping), if self.over.is_none() => Wakeup::Returned(returning),
            packet = self.seat.packets.recv() => Wakeup::Received(packet),
            Some(member) = self.seat.joins.recv() => Wakeup::Joined(member),
            // The client's own events do not wait for the channel: its acknowledgements come in the same packets.
            Some(waiting) = self.seat.requests.recv(), if self.reads_members() => {
                Wakeup::Requested(waiting.event)
            }
        }
    }

    /// Whether an event of a second client is handled now. Otherwise it waits for the session or for the channel.
    fn reads_members(&self) -> bool {
        self.link.is_open() && !self.outbox.is_busy() && !self.dialect.is_busy()
    }

    fn handle(&mut self, wakeup: Wakeup) -> Result<(), End> {
        match wakeup {
            Wakeup::Tick => self.patience.check(BadCall::Unconnected)?,
            Wakeup::HungUp => return Err(End::Left),
            Wakeup::Beat => self.beat()?,
            Wakeup::Pass => self
                .seat
                .peer
                .pass(Instant::now().into_std())
                .map_err(broken)?,
            Wakeup::Signal(Signal::Said(outbound)) => self.outbound(outbound)?,
            Wakeup::Signal(Signal::Lost) => return Err(End::Closed("the session failed")),
            Wakeup::Signal(Signal::Drained) if self.over.is_some() => {}
            Wakeup::Signal(Signal::Drained | Signal::Stop) => {
                return Err(End::Closed("the server shuts down"));
            }
            // Handled where it is received: a socket goes on.
            Wakeup::Returned(_) => {}
            Wakeup::Received(None) => return Err(End::Vanished),
            Wakeup::Received(Some(packet)) => self.received(&packet)?,
            Wakeup::Joined(member) => self.join(member),
            Wakeup::Requested(event) => self.client(&event)?,
        }
        self.settle()
    }

    /// Does all that there is to do now, one change of the connection at a time.
    fn settle(&mut self) -> Result<(), End> {
        loop {
            while let Some(event) = self.seat.peer.poll().map_err(broken)? {
                self.happened(event)?;
            }
            if !self.seat.peer.is_alive() {
                return Err(End::Left);
            }
            self.read_on()?;
            if !self.tell_next() {
                return Ok(());
            }
        }
    }

    /// Handles the client's events that wait, as far as the session has room for them.
    fn read_on(&mut self) -> Result<(), End> {
        while !self.dialect.is_busy()
            && let Ok(waiting) = self.unread.1.try_recv()
        {
            self.client(&waiting.event)?;
        }
        Ok(())
    }

    /// Sends the next event, if there is one and the channel has room.
    fn tell_next(&mut self) -> bool {
        if self.unsaid.is_none() {
            self.unsaid = self.outbox.pop().and_then(|frame| match frame {
                Frame::Text(text) => Some(text),
                Frame::Binary(_) => None,
            });
        }
        let Some(event) = &self.unsaid else {
            self.patience.took_all();
            return false;
        };
        self.patience.waits();
        match self.seat.peer.tell(event) {
            Ok(false) => return false,
            Ok(true) => self.patience.took(),
            Err(unsendable) => {
                tracing::warn!(
                    ?unsendable,
                    "an event was dropped: the client cannot receive it"
                );
            }
        }
        self.unsaid = None;
        true
    }

    fn happened(&mut self, event: PeerEvent) -> Result<(), End> {
        match event {
            PeerEvent::Send { way, to, bytes } => {
                self.seat.wire.send(way, to, &bytes);
                Ok(())
            }
            PeerEvent::Connected => {
                self.is_up = true;
                self.pacer = FramePacer::new(VOICE_RATE, self.now());
                if self.seat.peer.wants_events() {
                    return Ok(());
                }
                if self.members.is_empty() {
                    self.dialect.open_at_once();
                }
                self.open()
            }
            PeerEvent::Opened => self.open(),
            PeerEvent::Moved => self.begin_again(),
            PeerEvent::Text(text) => self.read(text),
            PeerEvent::Binary(bytes) => {
                let actions = self.dialect.client(ClientMessage::Binary(&bytes));
                self.apply(actions)
            }
            PeerEvent::Audio { time, packet } => self.hear(time, &packet),
            PeerEvent::RoundTrip(time) => {
                self.playout
                    .takes(Micros(u64::try_from(time.as_micros()).unwrap_or(u64::MAX)));
                Ok(())
            }
            PeerEvent::Closed => Err(End::Left),
        }
    }

    /// Handles an event of the client's, or keeps it behind those that wait for the session.
    fn read(&mut self, event: String) -> Result<(), End> {
        if self.unread.1.is_empty() && !self.dialect.is_busy() {
            return self.client(&event);
        }
        match self.unread.0.send(event) {
            true => Ok(()),
            false => Err(too_many(TooManyRequests)),
        }
    }

    /// Handles an event of the client's, or of a second client's.
    fn client(&mut self, event: &str) -> Result<(), End> {
        self.dialect.waits(self.pacer.waiting());
        let actions = self.dialect.client(ClientMessage::Text(event));
        self.apply(actions)
    }

    /// Sends a second client all events from now on, beginning with `session.created` if the session has begun.
    fn join(&mut self, member: EventSender) {
        let is_welcome = self.members.len() < MEMBERS
            && (!self.link.is_open() || member.send(self.dialect.welcome()));
        if is_welcome {
            self.members.push(member);
        }
    }

    /// Opens the session, because the client is connected.
    fn open(&mut self) -> Result<(), End> {
        if self.link.is_open() || self.over.is_some() {
            return Ok(());
        }
        let actions = self.dialect.start();
        self.apply(actions)?;
        self.offer_return()
    }

    /// Tells the client over the channel that it has opened last what it was told first over the one before.
    fn begin_again(&mut self) -> Result<(), End> {
        let unsaid = self.unsaid.take();
        let welcome = self.dialect.welcome();
        for event in unsaid.into_iter().chain([welcome]) {
            self.outbox.put_back(event);
        }
        self.offer_return()
    }

    /// Tells the client how it may come back, if it may.
    fn offer_return(&mut self) -> Result<(), End> {
        let (Some(keeping), Some(returns)) = (&mut self.keeping, self.dialect.returns()) else {
            return Ok(());
        };
        let within = self.limits.return_within;
        // Only the client itself may come back, so second clients are not told.
        let is_told = keeping.offer(returns, within, false, &mut self.outbox);
        is_told.then_some(()).ok_or(End::Slow)
    }

    /// The rest of a call that goes on over a WebSocket.
    fn moved(self, returning: Returning) -> Option<Moved> {
        let keeping = self.keeping?;
        Some(Moved {
            dialect: Box::new(self.dialect.off_track()),
            link: self.link,
            keeping,
            returning,
        })
    }

    fn received(&mut self, packet: &Packet) -> Result<(), End> {
        self.patience.heard();
        let here = self.here(packet.from);
        let peer = &mut self.seat.peer;
        peer.receive(packet.at, packet.way, packet.from, here, &packet.bytes)
            .map_err(broken)
    }

    /// The address of ours that a client at `there` uses. With several of a kind it does not matter which: a
    /// reply goes back the way it came.
    fn here(&self, there: SocketAddr) -> SocketAddr {
        let mut here = self.seat.here.iter();
        let alike = here.find(|here| here.is_ipv4() == there.is_ipv4());
        *alike.or(self.seat.here.first()).unwrap_or(&there)
    }

    /// Takes in a packet of the client's audio, and fills the gap before it.
    fn hear(&mut self, time: u64, packet: &[u8]) -> Result<(), End> {
        let Some(length) = OpusDecoder::length(packet) else {
            return Ok(());
        };
        let mut audio = Vec::new();
        for piece in self.gaps.place(time, length) {
            let (length, skip, heard) = match piece {
                Piece::Concealed(length) => (length, 0, self.decoder.conceal(length)),
                Piece::Silence(length) => (length, 0, None),
                Piece::Recovered(length) => (length, 0, self.decoder.recover(packet, length)),
                Piece::Packet { skip } => (length, skip, self.decoder.decode(packet)),
            };
            let mut heard = heard.unwrap_or_default();
            heard.resize(length, 0);
            audio.extend(heard.drain(skip..));
        }
        if audio.is_empty() || !self.link.is_open() {
            return Ok(());
        }
        let actions = self.dialect.heard(audio);
        self.apply(actions)
    }

    /// Sends the frame that is due.
    fn beat(&mut self) -> Result<(), End> {
        self.listen_to_session()?;
        if self.pacer.is_empty() && self.over == Some(0) {
            return Err(End::Closed("the session is over"));
        }
        let (now, before) = (self.now(), self.pacer.waiting());
        let Some(samples) = self.pacer.pop(now) else {
            return Ok(());
        };
        let left = Micros(before.0 - self.pacer.waiting().0);
        let time = self.next_time() - FRAME_TICKS;
        let of = self.playout.sent(now, left);
        for edge in self.pieces.leaves(of, time) {
            let actions = self.dialect.plays(edge);
            self.apply(actions)?;
        }
        self.report(now);
        if self.pacer.is_empty() {
            self.over = self.over.map(|left| left.saturating_sub(1));
            let actions = self.dialect.played_out();
            self.apply(actions)?;
        }
        match self.encoder.encode(&samples) {
            Ok(packet) => {
                let now = Instant::now().into_std();
                self.seat.peer.speak(now, time, packet).map_err(broken)
            }
            Err(error) => {
                tracing::debug!(%error, "a frame was not encoded");
                Ok(())
            }
        }
    }

    /// The RTP time of the next frame, in ticks of [`CLOCK`].
    fn next_time(&self) -> u64 {
        self.pacer.due().0 * u64::from(CLOCK) / 1_000_000
    }

    /// Reports to the session how much the client has heard.
    fn report(&mut self, now: Micros) {
        if let Some((clause, until)) = self.playout.report(now) {
            // A session that is too busy for it estimates instead.
            let _ = self.link.request(Input::Played { clause, until });
        }
    }

    /// Handles the session's outputs so far, so that a barge-in takes effect with this frame.
    fn listen_to_session(&mut self) -> Result<(), End> {
        // Bounded by the current length, since the session may add more meanwhile.
        for _ in 0..self.link.waiting() {
            let Some(outbound) = self.link.try_next() else {
                break;
            };
            self.outbound(outbound)?;
        }
        Ok(())
    }

    fn outbound(&mut self, outbound: Outbound) -> Result<(), End> {
        if outbound == Outbound::Clear {
            self.dialect.waits(self.pacer.waiting());
        }
        let hung_up = matches!(outbound, Outbound::HangUp(_));
        let clause = match &outbound {
            Outbound::Audio { clause, .. } => Some(*clause),
            _ => None,
        };
        let before = self.pacer.waiting();
        let actions = self.dialect.session(outbound);
        self.apply(actions)?;
        if let Some(clause) = clause
            && self.pacer.waiting() > before
        {
            let length = Micros(self.pacer.waiting().0 - before.0);
            self.playout.push(clause, length);
        }
        if hung_up {
            self.over = Some(LAST_FRAMES);
            self.link.close();
        }
        Ok(())
    }

    fn apply(&mut self, actions: Vec<Action>) -> Result<(), End> {
        actions
            .into_iter()
            .try_for_each(|action| self.apply_one(action))
    }

    fn apply_one(&mut self, action: Action) -> Result<(), End> {
        match action {
            Action::Open(options) => return self.open_session(options),
            Action::Send(text) => {
                if let (Some(keeping), Some(returns)) = (&mut self.keeping, self.dialect.returns())
                {
                    keeping.record(returns, &text);
                }
                // One that does not read is left out.
                self.members.retain(|member| member.send(text.clone()));
                if self.seat.peer.wants_events() && !self.outbox.push(text) {
                    return Err(End::Slow);
                }
            }
            Action::Play(samples) => {
                let dropped = self.pacer.push(&samples);
                self.link.audio_lost(dropped);
            }
            Action::DropAudio => {
                self.pacer.clear();
                self.playout.clear();
                if let Some(edge) = self.pieces.cleared(self.next_time()) {
                    let actions = self.dialect.plays(edge);
                    return self.apply(actions);
                }
            }
            Action::Audio(samples) => {
                self.link.audio(samples);
            }
            Action::Spoken { audio, id, item } => {
                let mut resampler = Resampler::new(VOICE_RATE, RATE);
                let audio = to_i16(&resampler.push(&to_f32(&audio)));
                self.link.spoken(audio, id, item).map_err(too_many)?;
            }
            Action::Request(request) => self.link.request(request).map_err(too_many)?,
            Action::Close(close) if close.code == close_code::NORMAL => {
                return Err(End::Closed(close.reason));
            }
            Action::Close(close) => return Err(End::Bad(BadCall::Protocol(close.reason))),
            // Audio goes over the track.
            Action::SendAudio { .. } => {}
        }
        Ok(())
    }

    fn open_session(&mut self, options: SessionOptions) -> Result<(), End> {
        let opened = self.link.open(options);
        opened.map_err(|_| End::Closed("no session could be opened"))?;
        self.patience.begun();
        Ok(())
    }

    /// Tells the client that the connection is closed.
    fn say_goodbye(&mut self) {
        self.seat.peer.close();
        while let Ok(Some(event)) = self.seat.peer.poll() {
            if let PeerEvent::Send { way, to, bytes } = event {
                self.seat.wire.send(way, to, &bytes);
            }
        }
    }

    fn now(&self) -> Micros {
        let elapsed = self.began.elapsed().as_micros();
        Micros(u64::try_from(elapsed).unwrap_or(u64::MAX))
    }
}

pub(super) fn broken(error: impl ToString) -> End {
    let error = error.to_string();
    let hint = hint(&error);
    End::Bad(BadCall::Broken(error + hint))
}

/// A cause that the error of a connection may have, in parentheses, or nothing.
fn hint(error: &str) -> &'static str {
    match error.contains("certificate") {
        true => " (the client's certificate may be RSA: it must be ECDSA P-256 or P-384)",
        false => "",
    }
}

fn too_many(error: TooManyRequests) -> End {
    End::Bad(error.into())
}
