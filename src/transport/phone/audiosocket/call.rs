//! The pump between one AudioSocket connection and one session.
//!
//! One task per call. At most one frame is handed to the socket at a time, because written audio
//! cannot be taken back.

use super::frame::{Decoder, Malformed, Message, encode_audio, encode_hang_up};
use super::pace::{self, Pace};
use crate::audio::{Resampler, to_f32, to_i16};
use crate::conversation::Micros;
use crate::session::{Outbound, Profile, SessionOptions};
use crate::tools::{Named, Origin, SessionValues};
use crate::transport::frame_pacer::FramePacer;
use crate::transport::intake::IntakeLimits;
use crate::transport::link::{Link, Signal, TooManyRequests};
use crate::transport::patience::Patience;
use crate::transport::phone;
use crate::transport::pump::{self, PumpContext, SocketLimits};
use bytes::BytesMut;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
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

/// The room to reserve before each read, bytes.
const READ: usize = 4096;

/// The reason a call ends.
type End = pump::End<BadCall>;

/// A protocol violation by Asterisk.
#[derive(Debug, thiserror::Error)]
enum BadCall {
    #[error("malformed message: {0}")]
    Malformed(#[from] Malformed),
    #[error("the call's UUID did not come first and in time; the peer may not speak AudioSocket")]
    Unnamed,
    #[error(transparent)]
    Requests(#[from] TooManyRequests),
}

/// The event that the pump handles next.
#[allow(
    clippy::large_enum_variant,
    reason = "there is one at a time, and it is taken apart at once"
)]
enum Wakeup {
    Beat,
    Written(io::Result<usize>),
    Signal(Signal),
    Received(io::Result<usize>),
    Tick,
}

/// Runs a call until either side hangs up or the server stops. `intake` limits how fast the
/// caller's audio may arrive.
pub async fn answer(stream: TcpStream, intake: IntakeLimits, context: PumpContext) {
    let (mut reader, mut writer) = stream.into_split();
    let mut call = Call::new(intake, context);
    let end = call.run(&mut reader, &mut writer).await;
    call.link.end(&end);
    call.link.span().in_scope(|| match &end {
        End::Bad(error) => {
            tracing::warn!(%error, "closed an AudioSocket call after a protocol violation")
        }
        End::Closed(reason) => tracing::debug!(reason, "hung up an AudioSocket call"),
        end => tracing::debug!(?end, "an AudioSocket call ended"),
    });
    let rest = call.writing.split();
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
    link: Link,
    patience: Patience,
    decoder: Decoder,
    /// Resamples audio whose rate, Hz, differs from the session's.
    resampler: Option<(u32, Resampler)>,
    pace: Pace,
    uuid: Option<Uuid>,
    pacer: FramePacer,
    /// The unwritten part of the current frame.
    writing: BytesMut,
    /// The length of the current frame, bytes.
    frame: usize,
    began: Instant,
    named: Instant,
    /// Whether the session is over while its last audio is still being played.
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
            patience: Patience::new(SocketLimits {
                gone_after: PATIENCE * context.limits.gone_after,
                ..context.limits
            }),
            link: Link::of_call(intake, DEFAULT_RATE, context),
            decoder: Decoder::default(),
            resampler: None,
            pace: Pace::default(),
            uuid: None,
            pacer: FramePacer::new(DEFAULT_RATE, Micros(0)),
            writing: BytesMut::new(),
            frame: 0,
            began: now,
            named: now,
            over: false,
        }
    }

    async fn run(&mut self, reader: &mut OwnedReadHalf, writer: &mut OwnedWriteHalf) -> End {
        loop {
            let wakeup = self.next(reader, writer).await;
            let span = self.link.span();
            if let Err(end) = span.in_scope(|| self.handle(wakeup)) {
                return end;
            }
        }
    }

    /// Waits for the next event, in order of importance.
    async fn next(&mut self, reader: &mut OwnedReadHalf, writer: &mut OwnedWriteHalf) -> Wakeup {
        let deadline = self.deadline();
        let idle = self.writing.is_empty();
        let beat = self.began + self.pacer.due().duration();
        self.decoder.buffer().reserve(READ);
        tokio::select! {
            biased;
            () = sleep_until(deadline) => Wakeup::Tick,
            () = sleep_until(beat), if idle && self.uuid.is_some() => Wakeup::Beat,
            written = writer.write_buf(&mut self.writing), if !idle => Wakeup::Written(written),
            signal = self.link.next() => Wakeup::Signal(signal),
            received = reader.read_buf(self.decoder.buffer()) => Wakeup::Received(received),
        }
    }

    fn handle(&mut self, wakeup: Wakeup) -> Result<(), End> {
        match wakeup {
            Wakeup::Beat => self.beat(),
            Wakeup::Written(Ok(1..)) => {
                if self.writing.is_empty() {
                    self.patience.took_all();
                }
                Ok(())
            }
            Wakeup::Signal(Signal::Said(outbound)) => {
                self.outbound(outbound);
                Ok(())
            }
            Wakeup::Signal(Signal::Lost) => Err(End::Closed("the session failed")),
            Wakeup::Signal(Signal::Drained) if self.over => Ok(()),
            Wakeup::Signal(Signal::Drained | Signal::Stop) => {
                Err(End::Closed("the server shuts down"))
            }
            Wakeup::Received(Ok(0)) => Err(End::Left),
            Wakeup::Received(Ok(_)) => self.received(),
            Wakeup::Written(_) | Wakeup::Received(Err(_)) => Err(End::Vanished),
            Wakeup::Tick => self.tick(),
        }
    }

    /// Sends the frame that is due.
    fn beat(&mut self) -> Result<(), End> {
        self.listen_to_session();
        if self.over && self.pacer.is_empty() {
            return Err(End::Closed("the session is over"));
        }
        if let Some(samples) = self.pacer.pop(self.now()) {
            let frame = encode_audio(self.pacer.rate(), &samples);
            self.frame = frame.len();
            self.writing.extend_from_slice(&frame);
            self.patience.waits();
        }
        Ok(())
    }

    /// Handles the session's outputs so far, so that a barge-in takes effect with this frame.
    fn listen_to_session(&mut self) {
        // Bounded by the current length, since the session may add more meanwhile.
        for _ in 0..self.link.waiting() {
            let Some(outbound) = self.link.try_next() else {
                return;
            };
            self.outbound(outbound);
        }
    }

    fn outbound(&mut self, outbound: Outbound) {
        match outbound {
            Outbound::Audio { samples, .. } | Outbound::Tones(samples) => {
                let dropped = self.pacer.push(&samples);
                self.link.audio_lost(dropped);
            }
            Outbound::Clear => {
                self.pacer.clear();
                if self.writing.len() == self.frame {
                    let header = encode_audio(self.pacer.rate(), &[]).len();
                    self.writing.iter_mut().skip(header).for_each(|b| *b = 0);
                }
            }
            Outbound::Event { .. } | Outbound::TimerRings | Outbound::Keys(_) => {}
            Outbound::HangUp(reason) => {
                tracing::debug!(?reason, "the session hung up");
                self.over = true;
                self.link.close();
            }
        }
    }

    fn received(&mut self) -> Result<(), End> {
        self.patience.heard();
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
                tracing::info!(%uuid, "an AudioSocket call began");
                self.uuid = Some(uuid);
                self.named = Instant::now();
                self.patience.begun();
                self.pacer = FramePacer::new(DEFAULT_RATE, self.now());
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
                tracing::debug!(?other, "ignored an AudioSocket message");
                Ok(())
            }
        }
    }

    fn audio(&mut self, rate: u32, samples: Vec<i16>) -> Result<(), End> {
        if self.over || samples.is_empty() {
            return Ok(());
        }
        if rate == pace::RATE
            && let Some(hint) = self.pace.heard(self.now(), samples.len())
        {
            tracing::warn!(
                hint,
                "the caller's audio is not 8 kHz PCM, although Asterisk marks it so"
            );
        }
        if !self.link.is_open() {
            self.open(rate)?;
        }
        let samples = self.at_session_rate(rate, samples);
        self.link.audio(samples);
        Ok(())
    }

    fn at_session_rate(&mut self, rate: u32, samples: Vec<i16>) -> Vec<i16> {
        let wanted = self.pacer.rate();
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
        if !self.link.is_open() {
            self.open(DEFAULT_RATE)?;
        }
        let taken = self.link.request(request);
        taken.map_err(|error| End::Bad(error.into()))
    }

    fn open(&mut self, rate: u32) -> Result<(), End> {
        let values =
            SessionValues::default().with(Named::Transport, "audiosocket", Origin::Verified);
        let call = self.uuid.unwrap_or_default().to_string();
        let options = SessionOptions {
            values: values.with(Named::CallId, &call, Origin::Claimed),
            ..SessionOptions::new(Profile::PhoneCall, rate)
        };
        let opened = self.link.open(options);
        opened.map_err(|_| End::Closed("no session could be opened"))?;
        self.pacer.set_rate(rate);
        Ok(())
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: the beat of the frames and the timeouts are real time"
    )]
    fn tick(&mut self) -> Result<(), End> {
        self.patience.check(BadCall::Unnamed)?;
        if self.open_at().is_some_and(|at| Instant::now() >= at) {
            return self.open(DEFAULT_RATE);
        }
        Ok(())
    }

    /// When [`Self::tick`] has something to do.
    fn deadline(&self) -> Instant {
        let patience = self.patience.deadline();
        self.open_at().map_or(patience, |at| patience.min(at))
    }

    /// When the session opens without waiting any longer for the caller's audio.
    fn open_at(&self) -> Option<Instant> {
        let waiting = self.uuid.is_some() && !self.link.is_open() && !self.over;
        waiting.then(|| self.named + AWAIT_AUDIO)
    }

    fn now(&self) -> Micros {
        let elapsed = self.began.elapsed().as_micros();
        Micros(u64::try_from(elapsed).unwrap_or(u64::MAX))
    }
}
