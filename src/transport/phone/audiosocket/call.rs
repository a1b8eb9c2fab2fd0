//! The pump between one AudioSocket connection and one session.
//!
//! One task per call. At most one frame is handed to the socket at a time, because written audio
//! cannot be taken back.

use super::frame::{Decoder, Malformed, Message, encode_audio, encode_hang_up};
use super::line::Line;
use crate::audio::{Resampler, to_f32, to_i16};
use crate::conversation::{Input, Micros};
use crate::session::{Inbound, Outbound, Profile, SessionOptions};
use crate::transport::intake::{Intake, IntakeLimits};
use crate::transport::phone;
use crate::transport::pump::{self, PumpContext, receive, room};
use bytes::BytesMut;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

/// The rate of a call before the caller's first audio, Hz: every Asterisk supports it.
const DEFAULT_RATE: u32 = 8_000;

/// How long the session waits for the caller's first audio, which reveals the rate.
const AWAIT_AUDIO: Duration = Duration::from_millis(500);

/// How many times longer than other clients a call may be silent. AudioSocket has no pings, and a
/// caller who has put us on hold sends nothing. A dead peer is noticed when it stops reading our
/// frames.
const PATIENCE: u32 = 10;

/// Bytes to make room for before each read.
const READ: usize = 4096;

/// The reason a call ends.
type End = pump::End<BadCall>;

/// A protocol violation by Asterisk.
#[derive(Debug, thiserror::Error)]
enum BadCall {
    #[error("{0}, which is malformed")]
    Malformed(#[from] Malformed),
    #[error("the call's UUID must come first and in time; is the peer an AudioSocket?")]
    Unnamed,
    #[error("too many requests are waiting")]
    Requests,
}

/// The event that the pump handles next.
#[allow(
    clippy::large_enum_variant,
    reason = "there is one at a time, and it is taken apart at once"
)]
enum Wakeup {
    Stop,
    Drain,
    Beat,
    Written(io::Result<usize>),
    Session(Option<Outbound>),
    Room(bool),
    Received(io::Result<usize>),
    Tick,
}

/// Runs a call until either side hangs up or the server stops. `intake` limits how fast the
/// caller's audio may arrive.
pub async fn answer(stream: TcpStream, intake: IntakeLimits, context: PumpContext) {
    let (mut reader, mut writer) = stream.into_split();
    let mut call = Call::new(intake, context);
    let end = call.run(&mut reader, &mut writer).await;
    end.count(&call.context.counters);
    match &end {
        End::Bad(error) => {
            tracing::warn!(%error, "closed an AudioSocket call after a protocol violation")
        }
        End::Closed(reason) => tracing::debug!(reason, "hung up an AudioSocket call"),
        end => tracing::debug!(?end, "an AudioSocket call ended"),
    }
    let rest = call.writing.split();
    // Dropping the call ends its session.
    drop(call);
    if matches!(end, End::Bad(_) | End::Closed(_)) {
        pump::say_last(reader, writer, &[&rest[..], &encode_hang_up()].concat()).await;
    }
}

/// Hangs up a call because the server is full.
pub async fn turn_away(stream: TcpStream) {
    let (reader, writer) = stream.into_split();
    pump::say_last(reader, writer, &encode_hang_up()).await;
}

struct Call {
    context: PumpContext,
    intake_limits: IntakeLimits,
    intake: Intake,
    decoder: Decoder,
    /// Resamples audio whose rate, Hz, differs from the session's.
    resampler: Option<(u32, Resampler)>,
    into: Option<mpsc::Sender<Inbound>>,
    out_of: Option<mpsc::Receiver<Outbound>>,
    uuid: Option<Uuid>,
    line: Line,
    /// What is left to write of the current frame.
    writing: BytesMut,
    /// The length of the current frame, bytes.
    frame: usize,
    /// When the current frame was handed to the socket, until it is written.
    stuck: Option<Instant>,
    began: Instant,
    named: Instant,
    heard: Instant,
    draining: bool,
    /// The session is over, but its last audio is still being played.
    over: bool,
}

impl Call {
    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: the beat of the frames and the timeouts are real time"
    )]
    fn new(intake: IntakeLimits, context: PumpContext) -> Self {
        let now = Instant::now();
        Self {
            context,
            intake_limits: intake,
            intake: Intake::new(intake, DEFAULT_RATE),
            decoder: Decoder::default(),
            resampler: None,
            into: None,
            out_of: None,
            uuid: None,
            line: Line::new(DEFAULT_RATE, Micros(0)),
            writing: BytesMut::new(),
            frame: 0,
            stuck: None,
            began: now,
            named: now,
            heard: now,
            draining: false,
            over: false,
        }
    }

    async fn run(&mut self, reader: &mut OwnedReadHalf, writer: &mut OwnedWriteHalf) -> End {
        loop {
            let wakeup = self.next(reader, writer).await;
            if let Err(end) = self.handle(wakeup) {
                return end;
            }
        }
    }

    /// Waits for the next event, in order of importance.
    async fn next(&mut self, reader: &mut OwnedReadHalf, writer: &mut OwnedWriteHalf) -> Wakeup {
        let deadline = self.deadline();
        let intake_ready = self.intake_ready();
        let idle = self.writing.is_empty();
        let beat = self.began + self.line.due().duration();
        self.decoder.buffer().reserve(READ);
        tokio::select! {
            biased;
            () = self.context.stop.cancelled() => Wakeup::Stop,
            () = self.context.drain.cancelled(), if !self.draining => Wakeup::Drain,
            () = sleep_until(deadline) => Wakeup::Tick,
            () = sleep_until(beat), if idle && self.uuid.is_some() => Wakeup::Beat,
            written = writer.write_buf(&mut self.writing), if !idle => Wakeup::Written(written),
            outbound = receive(&mut self.out_of) => Wakeup::Session(outbound),
            room = room(&self.into), if intake_ready => Wakeup::Room(room),
            received = reader.read_buf(self.decoder.buffer()) => Wakeup::Received(received),
        }
    }

    fn handle(&mut self, wakeup: Wakeup) -> Result<(), End> {
        match wakeup {
            Wakeup::Stop => Err(End::Closed("the server shuts down")),
            Wakeup::Drain => self.drain(),
            Wakeup::Beat => self.beat(),
            Wakeup::Written(Ok(1..)) => {
                self.stuck = self.stuck.filter(|_| !self.writing.is_empty());
                Ok(())
            }
            Wakeup::Session(Some(outbound)) => {
                self.outbound(outbound);
                Ok(())
            }
            Wakeup::Session(None) | Wakeup::Room(false) => Err(End::Closed("the session failed")),
            Wakeup::Room(true) => {
                self.feed();
                Ok(())
            }
            Wakeup::Received(Ok(0)) => Err(End::Left),
            Wakeup::Received(Ok(_)) => self.received(),
            Wakeup::Written(_) | Wakeup::Received(Err(_)) => Err(End::Vanished),
            Wakeup::Tick => self.tick(),
        }
    }

    /// Sends the frame that is due.
    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: the beat of the frames and the timeouts are real time"
    )]
    fn beat(&mut self) -> Result<(), End> {
        self.listen_to_session();
        if self.over && self.line.is_empty() {
            return Err(End::Closed("the session is over"));
        }
        if let Some(samples) = self.line.pop(self.now()) {
            let frame = encode_audio(self.line.rate(), &samples);
            self.frame = frame.len();
            self.writing.extend_from_slice(&frame);
            self.stuck = Some(Instant::now());
        }
        Ok(())
    }

    /// Handles the session's outputs so far, so that a barge-in takes effect with this frame.
    fn listen_to_session(&mut self) {
        // Bounded by the current length, since the session may add more meanwhile.
        for _ in 0..self.out_of.as_ref().map_or(0, mpsc::Receiver::len) {
            let Some(Ok(outbound)) = self.out_of.as_mut().map(mpsc::Receiver::try_recv) else {
                return;
            };
            self.outbound(outbound);
        }
    }

    fn outbound(&mut self, outbound: Outbound) {
        match outbound {
            Outbound::Audio { samples, .. } => {
                let dropped = self.line.push(&samples);
                let counters = &self.context.counters;
                counters.audio_out_dropped.fetch_add(dropped.0, Relaxed);
            }
            Outbound::Clear => {
                self.line.clear();
                if self.writing.len() == self.frame {
                    let header = encode_audio(self.line.rate(), &[]).len();
                    self.writing.iter_mut().skip(header).for_each(|b| *b = 0);
                }
            }
            Outbound::Event { .. } => {}
            Outbound::HangUp(reason) => {
                tracing::debug!(?reason, "the session hung up");
                self.over = true;
                self.into = None;
                self.out_of = None;
            }
        }
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: the beat of the frames and the timeouts are real time"
    )]
    fn received(&mut self) -> Result<(), End> {
        self.heard = Instant::now();
        while let Some(message) = self.decoder.pop() {
            let message = message.map_err(|malformed| End::Bad(malformed.into()))?;
            self.message(message)?;
        }
        Ok(())
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: the beat of the frames and the timeouts are real time"
    )]
    fn message(&mut self, message: Message) -> Result<(), End> {
        match message {
            Message::HangUp => Err(End::Left),
            Message::Call(uuid) if self.uuid.is_none() => {
                tracing::info!(%uuid, "an AudioSocket call");
                self.uuid = Some(uuid);
                self.named = Instant::now();
                self.line = Line::new(DEFAULT_RATE, self.now());
                Ok(())
            }
            _ if self.uuid.is_none() => Err(End::Bad(BadCall::Unnamed)),
            Message::Audio { rate, samples } => self.audio(rate, samples),
            Message::Key(key) => self.key(key),
            Message::Error(code) => {
                tracing::warn!(code, "Asterisk reports an error");
                Ok(())
            }
            other @ (Message::Call(_) | Message::Unknown(_)) => {
                tracing::debug!(?other, "ignored");
                Ok(())
            }
        }
    }

    fn audio(&mut self, rate: u32, samples: Vec<i16>) -> Result<(), End> {
        if self.over || samples.is_empty() {
            return Ok(());
        }
        if self.into.is_none() {
            self.open(rate)?;
        }
        let samples = self.at_session_rate(rate, samples);
        let dropped = self.intake.push_audio(samples);
        let counters = &self.context.counters;
        counters.audio_in_dropped.fetch_add(dropped.0, Relaxed);
        Ok(())
    }

    fn at_session_rate(&mut self, rate: u32, samples: Vec<i16>) -> Vec<i16> {
        let wanted = self.line.rate();
        if rate == wanted {
            return samples;
        }
        if self
            .resampler
            .as_ref()
            .is_none_or(|(from, _)| *from != rate)
        {
            self.resampler = Some((rate, Resampler::new(rate, wanted)));
        }
        let resampler = self.resampler.as_mut();
        resampler
            .map(|(_, resampler)| to_i16(&resampler.push(&to_f32(&samples))))
            .unwrap_or_default()
    }

    fn key(&mut self, key: char) -> Result<(), End> {
        let Some(request) = phone::key(key.encode_utf8(&mut [0; 4])).filter(|_| !self.over) else {
            return Ok(());
        };
        if self.into.is_none() {
            self.open(DEFAULT_RATE)?;
        }
        self.request(request)
    }

    fn request(&mut self, request: Input) -> Result<(), End> {
        if self.intake.push_request(request) {
            return Ok(());
        }
        Err(End::Bad(BadCall::Requests))
    }

    fn open(&mut self, rate: u32) -> Result<(), End> {
        let options = SessionOptions::new(Profile::PhoneCall, rate);
        let handle = (self.context.sessions)(options).map_err(|error| {
            tracing::warn!(%error, "cannot open a session");
            End::Closed("no session could be opened")
        })?;
        self.context.counters.sessions.fetch_add(1, Relaxed);
        self.into = Some(handle.inbound);
        self.out_of = Some(handle.outbound);
        self.line.set_rate(rate);
        self.intake = Intake::new(self.intake_limits, rate);
        Ok(())
    }

    /// Passes to the session the next input that is ready.
    fn feed(&mut self) {
        let now = self.now();
        let Some(into) = &self.into else { return };
        if let Ok(permit) = into.try_reserve()
            && let Some(next) = self.intake.pop(now)
        {
            permit.send(next);
        }
    }

    fn drain(&mut self) -> Result<(), End> {
        self.draining = true;
        if self.into.is_none() && !self.over {
            return Err(End::Closed("the server shuts down"));
        }
        self.request(Input::Drain)
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: the beat of the frames and the timeouts are real time"
    )]
    fn tick(&mut self) -> Result<(), End> {
        let now = Instant::now();
        if self.stuck_until().is_some_and(|until| now >= until) {
            return Err(End::Slow);
        }
        if now >= self.gone_at() {
            return Err(End::Vanished);
        }
        if self.name_by().is_some_and(|by| now >= by) {
            return Err(End::Bad(BadCall::Unnamed));
        }
        if self.open_at().is_some_and(|at| now >= at) {
            return self.open(DEFAULT_RATE);
        }
        Ok(())
    }

    /// When [`Self::tick`] has something to do, or the next audio may go to the session.
    fn deadline(&self) -> Instant {
        let intake = self
            .intake
            .ready_at()
            .filter(|_| self.into.is_some() && !self.intake_ready())
            .map(|at| self.began + at.duration());
        [self.stuck_until(), self.name_by(), self.open_at(), intake]
            .into_iter()
            .flatten()
            .fold(self.gone_at(), Instant::min)
    }

    fn stuck_until(&self) -> Option<Instant> {
        self.stuck
            .map(|since| since + self.context.limits.write_timeout)
    }

    fn gone_at(&self) -> Instant {
        self.heard + PATIENCE * self.context.limits.gone_after
    }

    /// The deadline for a call's UUID.
    fn name_by(&self) -> Option<Instant> {
        let unnamed = self.uuid.is_none();
        unnamed.then(|| self.began + self.context.limits.open_within)
    }

    /// When the session opens without waiting any longer for the caller's audio.
    fn open_at(&self) -> Option<Instant> {
        let waiting = self.uuid.is_some() && self.into.is_none() && !self.over;
        waiting.then(|| self.named + AWAIT_AUDIO)
    }

    fn intake_ready(&self) -> bool {
        self.into.is_some() && self.intake.ready_at().is_some_and(|at| at <= self.now())
    }

    fn now(&self) -> Micros {
        let elapsed = self.began.elapsed().as_micros();
        Micros(u64::try_from(elapsed).unwrap_or(u64::MAX))
    }
}
