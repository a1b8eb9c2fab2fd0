//! The pump between one WebSocket, one dialect and one session.
//!
//! One task per client. It never waits for the client while the session has something to say, nor
//! the other way round: what cannot go on waits in a bounded place ([`Link`], [`Outbox`]).

use super::intake::IntakeLimits;
use super::link::{Link, Signal, TooManyRequests};
use super::outbox::Outbox;
use super::patience::Patience;
use super::pump::{PumpContext, SocketLimits};
use super::resume::{Keeping, Proof, Returning, Seen, WayBack, arrival};
use super::{Action, Admission, ClientMessage, Close, Dialect, Frame, close_code};
use crate::conversation::{Event, HangUpReason, Micros};
use crate::session::{Outbound, SessionError, SessionOptions};
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{FutureExt, SinkExt, StreamExt};
use std::future::poll_fn;
use std::task::ready;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout};

/// Bytes of a socket's read buffer. The library's 128 KiB are what an idle client costs.
const READ_BUFFER: usize = 3072;

/// Bytes that may wait inside the WebSocket library, unless a message may be larger: the echo of a
/// client's own configuration must fit.
const MAX_WRITE_BUFFER: usize = 256 * 1024;

/// The mark of a ping behind a secret: its pong proves that the client has the secret. Clients and proxies also send
/// pongs of their own.
const PROOF: &[u8] = b"secret";

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
/// `rate` is that of the client's audio until the dialect opens its session with another, Hz. With a `way_back` the
/// session waits for a client whose connection is lost. The dialect is handed back: it may know what is left to be
/// done.
pub async fn drive<D: Dialect>(
    socket: WebSocket,
    dialect: Box<D>,
    intake: IntakeLimits,
    rate: u32,
    context: PumpContext,
    way_back: Option<WayBack>,
) -> Box<D> {
    // Boxed, or its room would be taken once more where it is handed on.
    let mut pump = Box::new(Pump::new(dialect, intake, rate, context, way_back));
    let (mut sink, mut source) = socket.split();
    let stop = match pump.open_connection() {
        Ok(()) => pump.run(&mut sink, &mut source).await,
        Err(end) => Stop::Over(end),
    };
    serve(pump, Some((sink, source)), stop).await
}

/// Goes on with a session over a socket, whose client has been served by another pump so far.
pub(super) async fn go_on<D: Dialect>(
    dialect: Box<D>,
    link: Link,
    keeping: Keeping,
    limits: SocketLimits,
    returning: Returning,
) {
    let pump = Box::new(Pump::of(dialect, link, limits, Some(keeping)));
    serve(pump, None, Stop::Displaced(returning)).await;
}

/// Serves a client over all its connections. The one so far has come to a `stop`; it is `None` if it was no WebSocket.
async fn serve<D: Dialect>(
    mut pump: Box<Pump<D>>,
    mut connection: Option<Connection>,
    mut stop: Stop,
) -> Box<D> {
    let end = loop {
        let returning = match stop {
            Stop::Displaced(returning) => {
                pump.lose();
                part(
                    connection.take(),
                    "the client came back over another connection",
                );
                returning
            }
            Stop::Over(end) if !pump.may_return(&end) => break end,
            Stop::Over(end) => {
                part(connection.take(), "the connection is lost");
                match pump.wait(end).await {
                    Ok(returning) => returning,
                    Err(end) => break end,
                }
            }
        };
        let (mut sink, mut source) = (*returning.socket).split();
        let span = pump.link.span();
        stop = match span.in_scope(|| pump.come_back(&returning.seen)) {
            Ok(()) => pump.run(&mut sink, &mut source).await,
            Err(end) => Stop::Over(end),
        };
        connection = Some((sink, source));
    };
    pump.link.end(&end);
    let span = pump.link.span();
    span.in_scope(|| tracing::debug!(?end, "socket ends"));
    if let Some((sink, source)) = connection {
        farewell(sink, source, &mut pump, end).await;
    }
    pump.dialect
}

/// Both directions of a socket.
type Connection = (SplitSink<WebSocket, Message>, SplitStream<WebSocket>);

/// Tells a client that has no session why, and closes its socket.
pub async fn refuse(socket: WebSocket, message: String, close: Close) {
    let (mut sink, mut source) = socket.split();
    let goodbye = async {
        sink.send(Message::Text(message.into())).await?;
        sink.send(Message::Close(Some(frame_of(&close)))).await?;
        while let Some(message) = source.next().await {
            message?;
        }
        sink.close().await
    };
    if let Ok(Err(error)) = timeout(CLOSING, goodbye).await {
        tracing::trace!(%error, "refusal cut short");
    }
}

/// The reason for a socket's end.
type End = super::pump::End<Close, Close>;

/// The reason why a connection is served no more.
enum Stop {
    Over(End),
    /// The client has come back over another one.
    Displaced(Returning),
}

/// The reason why a pump goes on.
enum Wakeup {
    Written(Result<(), axum::Error>),
    Signal(Signal),
    Admitted(Admission),
    Returned(Returning),
    Received(Option<Result<Message, axum::Error>>),
    Tick,
}

struct Pump<D> {
    /// Boxed: futures would keep a copy of it for each function that it passes through.
    dialect: Box<D>,
    link: Link,
    limits: SocketLimits,
    patience: Patience,
    /// The dialect waits for the answer.
    question: Option<BoxFuture<'static, Admission>>,
    outbox: Outbox,
    pinged: Instant,
    /// The payload of a ping that waits to be written.
    ping: Option<&'static [u8]>,
    returns: Option<Keeping>,
}

impl<D: Dialect> Pump<D> {
    fn new(
        dialect: Box<D>,
        intake: IntakeLimits,
        rate: u32,
        context: PumpContext,
        way_back: Option<WayBack>,
    ) -> Self {
        let limits = context.limits;
        let link = match dialect.is_call() {
            true => Link::of_call(intake, rate, context),
            false => Link::new(intake, rate, context),
        };
        Self::of(dialect, link, limits, way_back.map(Keeping::new))
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: a socket's timeouts are real time"
    )]
    fn of(dialect: Box<D>, link: Link, limits: SocketLimits, returns: Option<Keeping>) -> Self {
        Self {
            dialect,
            link,
            limits,
            patience: Patience::new(limits),
            question: None,
            outbox: Outbox::default(),
            pinged: Instant::now(),
            ping: None,
            returns,
        }
    }

    /// Serves the first connection of the client.
    fn open_connection(&mut self) -> Result<(), End> {
        let actions = self.dialect.start();
        self.apply(actions)?;
        self.offer_return(false)
    }

    /// Serves a connection, until it ends or the client comes back over another.
    async fn run(
        &mut self,
        sink: &mut SplitSink<WebSocket, Message>,
        source: &mut SplitStream<WebSocket>,
    ) -> Stop {
        loop {
            let wakeup = match self.next(sink, source).await {
                Wakeup::Returned(returning) => return Stop::Displaced(returning),
                wakeup => wakeup,
            };
            let span = self.link.span();
            if let Err(end) = span.in_scope(|| self.handle(wakeup)) {
                return Stop::Over(end);
            }
        }
    }

    /// Tells the client the secret with which it may come back, if it may.
    fn offer_return(&mut self, back: bool) -> Result<(), End> {
        let (Some(keeping), Some(returns)) = (&mut self.returns, self.dialect.returns()) else {
            return Ok(());
        };
        let within = self.limits.return_within;
        let is_told = keeping.offer(returns, within, back, &mut self.outbox);
        is_told.then_some(()).ok_or(End::Slow)
    }

    /// Whether the session waits for the client, whose connection has ended like this.
    fn may_return(&self, end: &End) -> bool {
        let is_lost = matches!(end, End::Vanished | End::Slow);
        let is_kept = self.returns.is_some() && self.link.is_open() && !self.link.is_draining();
        is_lost && is_kept
    }

    /// Stops the session's voice, because nobody is listening.
    fn lose(&mut self) {
        let Some(returns) = &mut self.returns else {
            return;
        };
        returns.is_away = true;
        returns.proof = Proof::NotNeeded;
        returns.sent = returns.replay.sent(self.outbox.messages());
        self.outbox = Outbox::default();
        self.link.lost();
    }

    /// Waits for a client whose connection has ended.
    ///
    /// # Errors
    /// The reason for the session's end: `end` if the client does not come back in time.
    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: a client may come back within some real time"
    )]
    async fn wait(&mut self, end: End) -> Result<Returning, End> {
        self.lose();
        let span = self.link.span();
        span.in_scope(|| tracing::info!("the client's connection is lost: its session waits"));
        let deadline = Instant::now() + self.limits.return_within;
        loop {
            let Some(returns) = &mut self.returns else {
                return Err(end);
            };
            let signal = tokio::select! {
                biased;
                returning = returns.way.arrival() => return Ok(returning),
                signal = self.link.next() => signal,
                () = sleep_until(deadline) => {
                    span.in_scope(|| tracing::info!("the client did not come back"));
                    return Err(end);
                }
            };
            span.in_scope(|| self.handle(Wakeup::Signal(signal)))?;
            // Events are kept for the return.
            self.outbox = Outbox::default();
        }
    }

    /// Serves a further connection of the client: sends what it has not received.
    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: a socket's timeouts are real time"
    )]
    fn come_back(&mut self, seen: &Seen) -> Result<(), End> {
        tracing::info!("the client is back");
        self.patience = Patience::new(self.limits);
        self.patience.begun();
        (self.pinged, self.ping) = (Instant::now(), None);
        let (Some(kept), Some(returns)) = (&mut self.returns, self.dialect.returns()) else {
            return Ok(());
        };
        let received = seen.event.as_ref().and_then(|id| returns.number(id));
        let heard = returns.heard_up_to(seen);
        for event in kept.replay.after(received.unwrap_or(kept.sent)) {
            if !self.outbox.push(event.to_owned()) {
                return Err(End::Slow);
            }
        }
        kept.is_away = false;
        kept.unanswered += 1;
        self.link.back(heard);
        Ok(())
    }

    /// The session knows that the client is back: what it says from now on is meant for this connection.
    fn returned(&mut self) -> Result<(), End> {
        let Some(returns) = &mut self.returns else {
            return Ok(());
        };
        returns.unanswered = returns.unanswered.saturating_sub(1);
        if self.is_muted() {
            return Ok(());
        }
        if let Some(Keeping { proof, .. }) = &mut self.returns {
            *proof = Proof::Unsent;
        }
        self.offer_return(true)
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
        let may_read = !asked && !self.outbox.is_busy() && !self.dialect.is_busy();
        let must_write =
            self.patience.is_writing() || self.ping.is_some() || !self.outbox.is_empty();
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
            returning = arrival(&mut self.returns) => Wakeup::Returned(returning),
            may = answer(&mut self.question), if asked => Wakeup::Admitted(may),
            message = source.next(), if may_read => Wakeup::Received(message),
            () = sleep_until(deadline) => Wakeup::Tick,
        }
    }

    fn handle(&mut self, wakeup: Wakeup) -> Result<(), End> {
        match wakeup {
            Wakeup::Written(Ok(())) => {
                self.prove();
                Ok(())
            }
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
            // Handled where it is received: another connection goes on.
            Wakeup::Returned(_) => Ok(()),
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
            Message::Pong(mark) if mark == PROOF => {
                self.proven();
                return Ok(());
            }
            Message::Pong(_) | Message::Ping(_) => return Ok(()),
            Message::Close(_) => return Err(End::Left),
        };
        self.obey(actions)
    }

    /// Asks for the proof that the client has its new secret, now that it has been written.
    fn prove(&mut self) {
        if let Some(Keeping { proof, .. }) = &mut self.returns
            && *proof == Proof::Unsent
        {
            *proof = Proof::Asked;
            self.ping = Some(PROOF);
        }
    }

    /// The payload of a ping. A client may answer only the last one, so each carries the mark until one is answered.
    fn mark(&self) -> &'static [u8] {
        let keeping = self.returns.as_ref();
        match keeping.is_some_and(|keeping| keeping.proof == Proof::Asked) {
            true => PROOF,
            false => b"",
        }
    }

    /// The client has answered a ping behind its new secret.
    fn proven(&mut self) {
        if let Some(Keeping { proof, way, .. }) = &mut self.returns
            && *proof == Proof::Asked
        {
            *proof = Proof::NotNeeded;
            way.secrets.confirm();
        }
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
        if let Outbound::Event { event, .. } = &outbound
            && *event == Event::ClientReturned
        {
            return self.returned();
        }
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
            Action::Send(text) => return self.send(text),
            Action::SendAudio { .. } if self.is_muted() => {}
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

    fn send(&mut self, text: String) -> Result<(), End> {
        if let (Some(keeping), Some(returns)) = (&mut self.returns, self.dialect.returns()) {
            keeping.record(returns, &text);
        }
        self.outbox.push(text).then_some(()).ok_or(End::Slow)
    }

    /// Whether audio of the session is of no use.
    fn is_muted(&self) -> bool {
        let is_of_no_use = |r: &Keeping| r.is_away || r.unanswered > 0;
        self.returns.as_ref().is_some_and(is_of_no_use)
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
                None => self.ping = Some(self.mark()),
            }
        }
        Ok(())
    }

    fn ping_at(&self) -> Instant {
        self.patience.last_heard().max(self.pinged) + self.limits.ping_every
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

/// Closes a connection that is of no use any more, without waiting for it.
fn part(connection: Option<Connection>, reason: &'static str) {
    let Some((mut sink, _source)) = connection else {
        return;
    };
    let close = Close {
        code: close_code::GOING_AWAY,
        reason,
    };
    // A dead connection takes nothing.
    drop(
        sink.send(Message::Close(Some(frame_of(&close))))
            .now_or_never(),
    );
}

/// Writes what waits. May be dropped at any point: a frame is either still in `outbox` or given
/// to the socket.
async fn write(
    sink: &mut SplitSink<WebSocket, Message>,
    outbox: &mut Outbox,
    ping: &mut Option<&'static [u8]>,
    patience: &mut Patience,
) -> Result<(), axum::Error> {
    poll_fn(|cx| {
        loop {
            ready!(sink.poll_ready_unpin(cx))?;
            let next = if let Some(payload) = ping.take() {
                Message::Ping(Bytes::from_static(payload))
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
            write(&mut sink, &mut pump.outbox, &mut None, &mut pump.patience).await?;
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
        HangUpReason::Unheard => (close_code::INTERNAL, "the caller cannot be heard"),
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
