//! The pump between one WebSocket, one dialect and one session.
//!
//! One task per client. It never waits for the client while the session has something to say, nor
//! the other way round: what cannot go on waits in a bounded place ([`Link`], [`Outbox`]).

use super::intake::IntakeLimits;
use super::link::{Link, Signal, TooManyRequests};
use super::outbox::Outbox;
use super::patience::Patience;
use super::pump::PumpContext;
use super::{Action, Admission, ClientMessage, Close, Dialect, Frame, close_code};
use crate::conversation::{HangUpReason, Micros};
use crate::session::{Outbound, SessionError, SessionOptions};
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade};
use futures_util::future::BoxFuture;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use std::future::poll_fn;
use std::task::ready;
use std::time::Duration;
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
    pump.link.end(&end);
    let span = pump.link.span();
    span.in_scope(|| tracing::debug!(?end, "socket ends"));
    farewell(sink, source, &mut pump, end).await;
    pump.dialect
}

/// The reason for a socket's end.
type End = super::pump::End<Close, Close>;

/// The reason why a pump goes on.
enum Wakeup {
    Written(Result<(), axum::Error>),
    Signal(Signal),
    Admitted(Admission),
    Received(Option<Result<Message, axum::Error>>),
    Tick,
}

struct Pump<D> {
    /// Boxed: futures would keep a copy of it for each function that it passes through.
    dialect: Box<D>,
    link: Link,
    patience: Patience,
    ping_every: Duration,
    /// The dialect waits for the answer.
    question: Option<BoxFuture<'static, Admission>>,
    outbox: Outbox,
    pinged: Instant,
    ping: bool,
}

impl<D: Dialect> Pump<D> {
    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: a socket's timeouts are real time"
    )]
    fn new(dialect: Box<D>, intake: IntakeLimits, rate: u32, context: PumpContext) -> Self {
        Self {
            dialect,
            patience: Patience::new(context.limits),
            ping_every: context.limits.ping_every,
            link: Link::new(intake, rate, context),
            question: None,
            outbox: Outbox::default(),
            pinged: Instant::now(),
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
            let span = self.link.span();
            end = span.in_scope(|| self.handle(wakeup)).err();
        }
    }

    /// Waits for the next thing to happen; what matters most comes first.
    async fn next(
        &mut self,
        sink: &mut SplitSink<WebSocket, Message>,
        source: &mut SplitStream<WebSocket>,
    ) -> Wakeup {
        if self.question.is_none() {
            self.question = self.dialect.question();
        }
        let asked = self.question.is_some();
        let must_write = self.patience.is_writing() || self.ping || !self.outbox.is_empty();
        if must_write {
            self.patience.waits();
        }
        let deadline = self.patience.deadline().min(self.ping_at());
        tokio::select! {
            biased;
            result = write(sink, &mut self.outbox, &mut self.ping, &mut self.patience), if must_write => {
                Wakeup::Written(result)
            }
            signal = self.link.next() => Wakeup::Signal(signal),
            may = answer(&mut self.question), if asked => Wakeup::Admitted(may),
            message = source.next(), if !asked && !self.outbox.is_busy() => Wakeup::Received(message),
            () = sleep_until(deadline) => Wakeup::Tick,
        }
    }

    fn handle(&mut self, wakeup: Wakeup) -> Result<(), End> {
        match wakeup {
            Wakeup::Written(Ok(())) => Ok(()),
            Wakeup::Written(Err(error)) => Err(end_of_error(&error)),
            Wakeup::Signal(Signal::Said(outbound)) => self.outbound(outbound),
            Wakeup::Signal(Signal::Lost) => Err(closed(close_code::INTERNAL, "the session failed")),
            Wakeup::Signal(Signal::Drained | Signal::Stop) => {
                Err(closed(close_code::GOING_AWAY, "the server shuts down"))
            }
            Wakeup::Admitted(may) => {
                self.question = None;
                let actions = self.dialect.admitted(may);
                self.obey(actions)
            }
            Wakeup::Received(None) => Err(End::Left),
            Wakeup::Received(Some(Err(error))) => Err(end_of_error(&error)),
            Wakeup::Received(Some(Ok(message))) => self.received(message),
            Wakeup::Tick => self.tick(),
        }
    }

    fn received(&mut self, message: Message) -> Result<(), End> {
        self.patience.heard();
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
                    self.link.audio_lost(length);
                }
            }
            Action::Play(_) => {}
            Action::DropAudio => self.outbox.drop_audio(),
            Action::Audio(samples) => return self.audio(samples),
            Action::Spoken { audio, id, item } => self.link.spoken(audio, id, item)?,
            Action::Request(request) => self.link.request(request)?,
            Action::Close(close) => return Err(End::Closed(close)),
        }
        Ok(())
    }

    fn open(&mut self, options: SessionOptions) -> Result<(), End> {
        self.link.open(options).map_err(|error| match error {
            SessionError::Overloaded => closed(close_code::TRY_AGAIN, "the server is overloaded"),
            SessionError::Failed(_) => closed(close_code::INTERNAL, "no session could be opened"),
        })?;
        self.patience.begun();
        Ok(())
    }

    fn audio(&mut self, samples: Vec<i16>) -> Result<(), End> {
        let dropped = self.link.audio(samples);
        if dropped == Micros(0) {
            return Ok(());
        }
        let actions = self.dialect.overrun(dropped);
        self.apply(actions)
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: a socket's timeouts are real time"
    )]
    fn tick(&mut self) -> Result<(), End> {
        self.patience.check(Close {
            code: close_code::POLICY,
            reason: "no session was opened",
        })?;
        let now = Instant::now();
        if now >= self.ping_at() {
            self.pinged = now;
            match self.dialect.probe() {
                Some(text) => self.apply_one(Action::Send(text))?,
                None => self.ping = true,
            }
        }
        Ok(())
    }

    fn ping_at(&self) -> Instant {
        self.patience.last_heard().max(self.pinged) + self.ping_every
    }
}

impl From<TooManyRequests> for End {
    fn from(_: TooManyRequests) -> Self {
        closed(close_code::POLICY, "too many requests are waiting")
    }
}

/// The answer to a question, if there is one.
async fn answer(question: &mut Option<BoxFuture<'static, Admission>>) -> Admission {
    match question {
        Some(question) => question.await,
        None => std::future::pending().await,
    }
}

/// Writes what waits. May be dropped at any point: a frame is either still in `outbox` or given
/// to the socket.
async fn write(
    sink: &mut SplitSink<WebSocket, Message>,
    outbox: &mut Outbox,
    ping: &mut bool,
    patience: &mut Patience,
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
            patience.took();
            sink.start_send_unpin(next)?;
        }
        ready!(sink.poll_flush_unpin(cx))?;
        patience.took_all();
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
async fn farewell<D>(
    mut sink: SplitSink<WebSocket, Message>,
    mut source: SplitStream<WebSocket>,
    pump: &mut Pump<D>,
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
            write(&mut sink, &mut pump.outbox, &mut false, &mut pump.patience).await?;
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
        HangUpReason::Machine => (close_code::NORMAL, "a machine has answered the call"),
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
