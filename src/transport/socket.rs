//! The pump between one WebSocket, one dialect and one session.
//!
//! One task per client. It never waits for the client while the session has something to say, nor
//! the other way round: what cannot go on waits in a bounded place ([`Intake`], [`Outbox`]).

use super::intake::{Intake, IntakeLimits};
use super::outbox::Outbox;
use super::pump::{PumpContext, receive, room};
use super::{Action, ClientMessage, Close, Dialect, Frame, close_code};
use crate::conversation::{HangUpReason, Input, Micros};
use crate::session::{Inbound, Outbound, SessionError, SessionOptions};
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade};
use futures_util::future::BoxFuture;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use std::future::poll_fn;
use std::sync::atomic::Ordering::Relaxed;
use std::task::ready;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

/// Bytes of a socket's read buffer. The library's 128 KiB are what an idle client costs.
const READ_BUFFER: usize = 4096;

/// Bytes that may wait inside the WebSocket library, unless a message may be larger: the echo of a
/// client's own configuration must fit.
const MAX_WRITE_BUFFER: usize = 256 * 1024;

/// How long a closing handshake may take.
const CLOSING: Duration = Duration::from_secs(1);

/// Sets the limits of a WebSocket that is about to open. `max_message` is in bytes, for whole
/// messages and for single frames.
pub fn limit(upgrade: WebSocketUpgrade, max_message: usize) -> WebSocketUpgrade {
    upgrade
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(0)
        .max_write_buffer_size(MAX_WRITE_BUFFER.max(2 * max_message))
        .max_message_size(max_message)
        .max_frame_size(max_message)
}

/// Runs a client until it leaves, its session ends, or the server stops.
///
/// `rate` is that of the client's audio until the dialect opens its session with another, Hz. The
/// dialect is handed back: it may know what is left to be done.
pub async fn drive<D: Dialect>(
    socket: WebSocket,
    dialect: Box<D>,
    intake: IntakeLimits,
    rate: u32,
    context: PumpContext,
) -> Box<D> {
    let (mut sink, mut source) = socket.split();
    let mut pump = Pump::new(dialect, intake, rate, context);
    let end = pump.run(&mut sink, &mut source).await;
    end.count(&pump.context.counters);
    tracing::debug!(?end, "socket ends");
    pump.close_session();
    farewell(sink, source, &mut pump.outbox, end).await;
    pump.dialect
}

/// Why a socket ends.
type End = super::pump::End<Close, Close>;

/// The reason why a pump goes on.
enum Wakeup {
    Stop,
    Drain,
    Written(Result<(), axum::Error>),
    Session(Option<Outbound>),
    Admitted(bool),
    Room(bool),
    Received(Option<Result<Message, axum::Error>>),
    Tick,
}

struct Pump<D> {
    /// Boxed: futures would keep a copy of it for each function that it passes through.
    dialect: Box<D>,
    context: PumpContext,
    /// The dialect waits for the answer.
    question: Option<BoxFuture<'static, bool>>,
    intake_limits: IntakeLimits,
    intake: Intake,
    outbox: Outbox,
    into: Option<mpsc::Sender<Inbound>>,
    out_of: Option<mpsc::Receiver<Outbound>>,
    opened: Instant,
    draining: bool,
    heard: Instant,
    pinged: Instant,
    /// Since when the frame at hand has been waiting to be written.
    writing: Option<Instant>,
    ping: bool,
}

impl<D: Dialect> Pump<D> {
    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: a socket's timeouts are real time"
    )]
    fn new(dialect: Box<D>, intake: IntakeLimits, rate: u32, context: PumpContext) -> Self {
        let now = Instant::now();
        Self {
            dialect,
            context,
            question: None,
            intake_limits: intake,
            intake: Intake::new(intake, rate),
            outbox: Outbox::default(),
            into: None,
            out_of: None,
            opened: now,
            draining: false,
            heard: now,
            pinged: now,
            writing: None,
            ping: false,
        }
    }

    async fn run(
        &mut self,
        sink: &mut SplitSink<WebSocket, Message>,
        source: &mut SplitStream<WebSocket>,
    ) -> End {
        let actions = self.dialect.start();
        let mut end = self.apply(actions).err();
        loop {
            if let Some(end) = end {
                return end;
            }
            let wakeup = self.next(sink, source).await;
            end = self.handle(wakeup).err();
        }
    }

    /// Waits for the next thing to happen; what matters most comes first.
    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: a socket's timeouts are real time"
    )]
    async fn next(
        &mut self,
        sink: &mut SplitSink<WebSocket, Message>,
        source: &mut SplitStream<WebSocket>,
    ) -> Wakeup {
        if self.question.is_none() {
            self.question = self.dialect.question();
        }
        let asked = self.question.is_some();
        let deadline = self.deadline();
        let intake_ready = self.intake_ready();
        let must_write = self.writing.is_some() || self.ping || !self.outbox.is_empty();
        if must_write && self.writing.is_none() {
            self.writing = Some(Instant::now());
        }
        tokio::select! {
            biased;
            () = self.context.stop.cancelled() => Wakeup::Stop,
            () = self.context.drain.cancelled(), if !self.draining => Wakeup::Drain,
            result = write(sink, &mut self.outbox, &mut self.ping, &mut self.writing), if must_write => {
                Wakeup::Written(result)
            }
            outbound = receive(&mut self.out_of) => Wakeup::Session(outbound),
            room = room(&self.into), if intake_ready => Wakeup::Room(room),
            may = answer(&mut self.question), if asked => Wakeup::Admitted(may),
            message = source.next(), if !asked && !self.outbox.is_busy() => Wakeup::Received(message),
            () = sleep_until(deadline) => Wakeup::Tick,
        }
    }

    fn handle(&mut self, wakeup: Wakeup) -> Result<(), End> {
        match wakeup {
            Wakeup::Stop => Err(closed(close_code::GOING_AWAY, "the server shuts down")),
            Wakeup::Drain => self.drain(),
            Wakeup::Written(Ok(())) => Ok(()),
            Wakeup::Written(Err(error)) => Err(end_of_error(&error)),
            Wakeup::Session(Some(outbound)) => self.outbound(outbound),
            Wakeup::Session(None) | Wakeup::Room(false) => {
                Err(closed(close_code::INTERNAL, "the session failed"))
            }
            Wakeup::Admitted(may) => {
                self.question = None;
                let actions = self.dialect.admitted(may);
                self.obey(actions)
            }
            Wakeup::Room(true) => {
                self.feed();
                Ok(())
            }
            Wakeup::Received(None) => Err(End::Left),
            Wakeup::Received(Some(Err(error))) => Err(end_of_error(&error)),
            Wakeup::Received(Some(Ok(message))) => self.received(message),
            Wakeup::Tick => self.tick(),
        }
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: a socket's timeouts are real time"
    )]
    fn received(&mut self, message: Message) -> Result<(), End> {
        self.heard = Instant::now();
        let actions = match &message {
            Message::Text(text) => self.dialect.client(ClientMessage::Text(text)),
            Message::Binary(bytes) => self.dialect.client(ClientMessage::Binary(bytes)),
            Message::Ping(_) | Message::Pong(_) => return Ok(()),
            Message::Close(_) => return Err(End::Left),
        };
        self.obey(actions)
    }

    /// Does what follows from something that the client has sent: if the dialect closes the socket, that
    /// was the client's fault.
    fn obey(&mut self, actions: Vec<Action>) -> Result<(), End> {
        self.apply(actions).map_err(|end| match end {
            End::Closed(close) if close.code != close_code::NORMAL => blame(close),
            end => end,
        })
    }

    fn outbound(&mut self, outbound: Outbound) -> Result<(), End> {
        let hung_up = match outbound {
            Outbound::HangUp(reason) => Some(reason),
            _ => None,
        };
        let actions = self.dialect.session(outbound);
        self.apply(actions)?;
        hung_up.map_or(Ok(()), |reason| Err(End::Closed(close_of_hang_up(reason))))
    }

    fn apply(&mut self, actions: Vec<Action>) -> Result<(), End> {
        actions
            .into_iter()
            .try_for_each(|action| self.apply_one(action))
    }

    fn apply_one(&mut self, action: Action) -> Result<(), End> {
        match action {
            Action::Open(options) => return self.open(options),
            Action::Send(text) => {
                if !self.outbox.push(text) {
                    return Err(End::Slow);
                }
            }
            Action::SendAudio { frame, length } => {
                if !self.outbox.push_audio(frame, length) {
                    self.context
                        .counters
                        .audio_out_dropped
                        .fetch_add(length.0, Relaxed);
                }
            }
            Action::DropAudio => self.outbox.drop_audio(),
            Action::Audio(samples) => return self.audio(samples),
            Action::Spoken { audio, id, item } => {
                if !self.intake.push_spoken(audio, id, item) {
                    return Err(closed(close_code::POLICY, "too many requests are waiting"));
                }
            }
            Action::Request(request) => {
                if !self.intake.push_request(request) {
                    return Err(closed(close_code::POLICY, "too many requests are waiting"));
                }
            }
            Action::Close(close) => return Err(End::Closed(close)),
        }
        Ok(())
    }

    fn open(&mut self, options: SessionOptions) -> Result<(), End> {
        self.intake = Intake::new(self.intake_limits, options.input_rate);
        let handle = (self.context.sessions)(options).map_err(|error| {
            tracing::warn!(%error, "no session");
            match error {
                SessionError::Overloaded => {
                    closed(close_code::TRY_AGAIN, "the server is overloaded")
                }
                SessionError::Failed(_) => {
                    closed(close_code::INTERNAL, "no session could be opened")
                }
            }
        })?;
        self.context.counters.sessions.fetch_add(1, Relaxed);
        self.into = Some(handle.inbound);
        self.out_of = Some(handle.outbound);
        Ok(())
    }

    fn audio(&mut self, samples: Vec<i16>) -> Result<(), End> {
        self.intake_time();
        let dropped = self.intake.push_audio(samples);
        if dropped == Micros(0) {
            return Ok(());
        }
        self.context
            .counters
            .audio_in_dropped
            .fetch_add(dropped.0, Relaxed);
        let actions = self.dialect.overrun(dropped);
        self.apply(actions)
    }

    /// Hands on to the session what may go now.
    fn feed(&mut self) {
        let now = self.intake_time();
        let Some(into) = &self.into else { return };
        if let Ok(permit) = into.try_reserve()
            && let Some(next) = self.intake.pop(now)
        {
            permit.send(next);
        }
    }

    fn drain(&mut self) -> Result<(), End> {
        self.draining = true;
        if self.into.is_none() {
            return Err(closed(close_code::GOING_AWAY, "the server shuts down"));
        }
        self.apply_one(Action::Request(Input::Drain))
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: a socket's timeouts are real time"
    )]
    fn tick(&mut self) -> Result<(), End> {
        let (now, limits) = (Instant::now(), self.context.limits);
        if self
            .writing
            .is_some_and(|since| now >= since + limits.write_timeout)
        {
            return Err(End::Slow);
        }
        if now >= self.heard + limits.gone_after {
            return Err(End::Vanished);
        }
        if self.open_by().is_some_and(|by| now >= by) {
            let reason = "no session was opened";
            return Err(blame(Close {
                code: close_code::POLICY,
                reason,
            }));
        }
        if now >= self.ping_at() {
            self.pinged = now;
            match self.dialect.probe() {
                Some(text) => self.apply_one(Action::Send(text))?,
                None => self.ping = true,
            }
        }
        Ok(())
    }

    /// When [`Self::tick`] has something to do, or audio may go on.
    fn deadline(&self) -> Instant {
        let limits = self.context.limits;
        let stuck = self.writing.map(|since| since + limits.write_timeout);
        let intake = self
            .intake
            .ready_at()
            .filter(|_| self.into.is_some() && !self.intake_ready())
            .map(|at| self.opened + at.duration());
        let gone = Some(self.heard + limits.gone_after);
        [stuck, intake, gone, self.open_by()]
            .into_iter()
            .flatten()
            .fold(self.ping_at(), Instant::min)
    }

    /// When a client that has opened no session has to have done so.
    fn open_by(&self) -> Option<Instant> {
        let unopened = self.into.is_none();
        unopened.then(|| self.opened + self.context.limits.open_within)
    }

    fn ping_at(&self) -> Instant {
        self.heard.max(self.pinged) + self.context.limits.ping_every
    }

    fn intake_ready(&self) -> bool {
        self.into.is_some()
            && self
                .intake
                .ready_at()
                .is_some_and(|at| at <= self.intake_time())
    }

    fn intake_time(&self) -> Micros {
        let elapsed = self.opened.elapsed().as_micros();
        Micros(u64::try_from(elapsed).unwrap_or(u64::MAX))
    }

    fn close_session(&mut self) {
        self.into = None;
        self.out_of = None;
    }
}

/// The answer to a question, if there is one.
async fn answer(question: &mut Option<BoxFuture<'static, bool>>) -> bool {
    match question {
        Some(question) => question.await,
        None => std::future::pending().await,
    }
}

/// Writes what waits. May be dropped at any point: a frame is either still in `outbox` or given
/// to the socket.
#[allow(
    clippy::disallowed_methods,
    reason = "an edge: a socket's timeouts are real time"
)]
async fn write(
    sink: &mut SplitSink<WebSocket, Message>,
    outbox: &mut Outbox,
    ping: &mut bool,
    writing: &mut Option<Instant>,
) -> Result<(), axum::Error> {
    poll_fn(|cx| {
        loop {
            ready!(sink.poll_ready_unpin(cx))?;
            let next = if std::mem::take(ping) {
                Message::Ping(bytes::Bytes::new())
            } else if let Some(frame) = outbox.pop() {
                message_of(frame)
            } else {
                break;
            };
            *writing = Some(Instant::now());
            sink.start_send_unpin(next)?;
        }
        ready!(sink.poll_flush_unpin(cx))?;
        *writing = None;
        std::task::Poll::Ready(Ok(()))
    })
    .await
}

fn message_of(frame: Frame) -> Message {
    match frame {
        Frame::Text(text) => Message::Text(text.into()),
        Frame::Binary(bytes) => Message::Binary(bytes.into()),
    }
}

/// Says goodbye: what still waits, the close frame, and the client's answer, all within
/// [`CLOSING`].
async fn farewell(
    mut sink: SplitSink<WebSocket, Message>,
    mut source: SplitStream<WebSocket>,
    outbox: &mut Outbox,
    end: End,
) {
    let close = match end {
        End::Left => None,
        End::Vanished => return,
        End::Slow => Some(Close {
            code: close_code::POLICY,
            reason: "the client reads too slowly",
        }),
        End::Bad(close) | End::Closed(close) => Some(close),
    };
    let goodbye = async {
        if let Some(close) = close {
            write(&mut sink, outbox, &mut false, &mut None).await?;
            sink.send(Message::Close(Some(frame_of(&close)))).await?;
        }
        while let Some(message) = source.next().await {
            message?;
        }
        sink.close().await
    };
    if let Ok(Err(error)) = timeout(CLOSING, goodbye).await {
        tracing::trace!(%error, "goodbye cut short");
    }
}

fn frame_of(close: &Close) -> CloseFrame {
    CloseFrame {
        code: close.code,
        reason: Utf8Bytes::from_static(close.reason),
    }
}

fn closed(code: u16, reason: &'static str) -> End {
    End::Closed(Close { code, reason })
}

fn blame(close: Close) -> End {
    match close.code {
        close_code::TRY_AGAIN | close_code::INTERNAL => End::Closed(close),
        _ => End::Bad(close),
    }
}

/// How a client is told that its session is over.
pub(crate) fn close_of_hang_up(reason: HangUpReason) -> Close {
    let (code, reason) = match reason {
        HangUpReason::AgentEnded => (close_code::NORMAL, "the agent ended the conversation"),
        HangUpReason::HandedOver => (close_code::NORMAL, "the conversation was handed over"),
        HangUpReason::Idle => (close_code::NORMAL, "nobody spoke for too long"),
        HangUpReason::TooLong => (
            close_code::NORMAL,
            "the session reached its greatest length",
        ),
        HangUpReason::Shutdown => (close_code::GOING_AWAY, "the server shuts down"),
    };
    Close { code, reason }
}

/// Classifies an error of the socket.
///
/// The library's error type is not part of axum's interface, so its words tell the kinds apart;
/// the tests of malformed frames hold them fast.
fn end_of_error(error: &axum::Error) -> End {
    let words = error.to_string();
    let bad = |code, reason| End::Bad(Close { code, reason });
    if words.starts_with("Space limit exceeded") {
        bad(close_code::TOO_BIG, "the message is too big")
    } else if words.starts_with("UTF-8 encoding error") {
        bad(close_code::INVALID, "the text is not UTF-8")
    } else if words.contains("without closing handshake") {
        End::Vanished
    } else if words.starts_with("WebSocket protocol error") {
        bad(
            close_code::PROTOCOL,
            "the frame breaks the WebSocket protocol",
        )
    } else {
        End::Vanished
    }
}
