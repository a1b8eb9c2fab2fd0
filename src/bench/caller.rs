//! A caller in real time over the server's bare PCM: speaks at the pace of speech, and notes what a listener hears.

use super::BenchError;
use super::clips::Clip;
use super::listener::{Listener, RATE};
use super::socket::{Socket, broken, try_connect};
use crate::audio::{from_pcm16le, to_pcm16le};
use futures_util::{SinkExt, StreamExt};
use serde::Deserialize;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_tungstenite::tungstenite::Message;

/// A frame of audio.
pub(super) const FRAME: Duration = Duration::from_millis(20);
const SAMPLES: usize = RATE as usize / 50;

/// The silence before the caller speaks.
const LEAD: Duration = Duration::from_millis(500);

/// The time for which the caller stays on the line after the last sound, seconds, or else after the first.
const TAIL: f64 = 1.0;
const GLIMPSE: f64 = 0.3;

/// The longest wait for the answer, or for more of it, seconds.
const PATIENCE: f64 = 12.0;

/// The longest time that the server may take to close a line.
const GOODBYE: Duration = Duration::from_secs(10);

/// The sounds of an answer, seconds after the end of the question.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Heard {
    /// The agent spoke before that.
    pub(super) early: bool,
    /// The first sound.
    pub(super) first: Option<f64>,
    /// The first sound of the awaited words.
    pub(super) answer: Option<f64>,
    /// The last sound before that, if there was any after the question.
    pub(super) before: Option<f64>,
}

/// A question and what was heard.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    pub(super) heard: Heard,
    /// The end of the question.
    pub(super) ended: Instant,
}

/// An open line.
pub(super) struct Line {
    socket: Socket,
    /// The zero of the line's times.
    began: Instant,
    sent: u32,
    listener: Listener,
    /// The time at which the awaited words begin to be played.
    answer: Option<f64>,
    is_announced: bool,
    /// The last time at which the server said that audio that was not played is to be dropped.
    cleared: Option<f64>,
    /// The server has hung up.
    is_closed: bool,
}

/// A text message of the server, as far as it matters here.
#[derive(Debug, Deserialize)]
struct Told {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    role: String,
    #[serde(default)]
    text: String,
    #[serde(default, rename = "final")]
    last: bool,
}

impl Line {
    /// Calls a server at this host and port.
    pub(super) async fn open(address: &str) -> Result<Self, BenchError> {
        let line = Self::try_open(address).await?;
        line.ok_or_else(|| broken("the server has no room"))
    }

    /// Calls a server, which may have no room for the call.
    #[allow(clippy::disallowed_methods, reason = "it measures, in real time")]
    pub(super) async fn try_open(address: &str) -> Result<Option<Self>, BenchError> {
        let socket = try_connect(format!("ws://{address}/v1/pcm")).await?;
        Ok(socket.map(|socket| Self {
            socket,
            began: Instant::now(),
            sent: 0,
            listener: Listener::default(),
            answer: None,
            is_announced: false,
            cleared: None,
            is_closed: false,
        }))
    }

    /// Asks, and listens until the answer has been played, or only to its beginning. If no words are `awaited`, any count
    /// as the answer.
    pub(super) async fn ask(
        &mut self,
        clip: &Clip,
        awaited: Option<&str>,
        to_end: bool,
    ) -> Result<Asked, BenchError> {
        let start = self.position() + LEAD.as_secs_f64();
        let end = start + clip.end;
        (self.answer, self.is_announced) = (None, false);
        let silence = vec![0; (LEAD.as_secs_f64() * f64::from(RATE)) as usize];
        let mut voice = silence.iter().chain(&clip.samples).copied();
        let is_over = |line: &Self, now: f64| {
            let from = match awaited {
                Some(_) => line.answer,
                None => Some(end),
            };
            let answer = from.and_then(|from| line.listener.first_from(from));
            let quiet = line.listener.free().max(end);
            match answer {
                Some(_) if to_end => now > quiet + TAIL,
                Some(answer) => now > answer + GLIMPSE,
                None => now > quiet + PATIENCE,
            }
        };
        self.run(&mut voice, awaited, is_over).await?;
        let first = self.listener.first_from(end);
        let answer = match awaited {
            Some(_) => self.answer.and_then(|at| self.listener.first_from(at)),
            None => first,
        };
        let before = answer.and_then(|answer| self.listener.last_before(answer));
        Ok(Asked {
            heard: Heard {
                early: self.listener.first_from(start).is_some_and(|at| at < end),
                first: first.map(|at| at - end),
                answer: answer.map(|at| at - end),
                before: before.filter(|at| *at > end).map(|at| at - end),
            },
            ended: self.began + Duration::from_secs_f64(end),
        })
    }

    /// Says nothing for a while.
    pub(super) async fn be_silent(&mut self, length: Duration) -> Result<(), BenchError> {
        let until = self.position() + length.as_secs_f64();
        self.run(&mut std::iter::empty(), None, |_, now| now > until)
            .await
    }

    /// Asks until the agent has been heard for a while, and speaks over it. Returns nothing if it speaks on.
    pub(super) async fn interrupt(
        &mut self,
        clip: &Clip,
        over: &Clip,
        after: Duration,
    ) -> Result<Option<Interrupted>, BenchError> {
        let start = self.position() + LEAD.as_secs_f64();
        let end = start + clip.end;
        let silence = vec![0; (LEAD.as_secs_f64() * f64::from(RATE)) as usize];
        let mut voice = silence.iter().chain(&clip.samples).copied();
        let after = after.as_secs_f64();
        let is_heard = |line: &Self, now: f64| {
            let first = line.listener.first_from(end);
            now > first.unwrap_or(end + PATIENCE) + after
        };
        self.run(&mut voice, None, is_heard).await?;
        self.cleared = None;
        let onset = self.position() + over.start;
        let mut voice = over.samples.iter().copied();
        let quiet = onset + over.end.max(TAIL);
        let is_over = |line: &Self, now: f64| line.cleared.is_some() || now > quiet + PATIENCE;
        self.run(&mut voice, None, is_over).await?;
        let last = self.listener.last_before(f64::INFINITY);
        Ok(self.cleared.and(last).map(|silent| {
            // The server has the first frame when it has been spoken.
            let zero = FRAME.as_secs_f64();
            Interrupted {
                onset: onset - zero,
                silent: silent - zero,
            }
        }))
    }

    /// The end of the last frame that was sent, seconds.
    fn position(&self) -> f64 {
        f64::from(self.sent) * FRAME.as_secs_f64()
    }

    /// Speaks and listens. A microphone has a frame when its last sample is spoken, and is silent when the voice is.
    async fn run(
        &mut self,
        voice: &mut dyn Iterator<Item = i16>,
        awaited: Option<&str>,
        mut is_over: impl FnMut(&Self, f64) -> bool,
    ) -> Result<(), BenchError> {
        let mut pace = interval_at(self.began + FRAME * (self.sent + 1), FRAME);
        pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
        loop {
            tokio::select! {
                biased;
                message = self.socket.next() => {
                    let at = self.began.elapsed().as_secs_f64();
                    match message {
                        None | Some(Ok(Message::Close(_))) => {
                            self.is_closed = true;
                            return Ok(());
                        }
                        Some(message) => self.take(at, message.map_err(broken)?, awaited)?,
                    }
                }
                _ = pace.tick() => {
                    let mut frame: Vec<i16> = voice.take(SAMPLES).collect();
                    frame.resize(SAMPLES, 0);
                    let frame = Message::binary(to_pcm16le(&frame));
                    self.socket.send(frame).await.map_err(broken)?;
                    self.sent += 1;
                    if is_over(self, self.began.elapsed().as_secs_f64()) {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn take(&mut self, at: f64, message: Message, awaited: Option<&str>) -> Result<(), BenchError> {
        match message {
            Message::Binary(bytes) => {
                let samples = from_pcm16le(&bytes).map_err(broken)?;
                let start = self.listener.hear(at, &samples);
                if self.is_announced && self.answer.is_none() {
                    self.answer = Some(start);
                }
            }
            Message::Text(text) => {
                let told: Told = serde_json::from_str(&text).map_err(broken)?;
                match (&*told.kind, &*told.role, told.last) {
                    ("clear", ..) => {
                        self.listener.clear(at);
                        self.cleared = Some(at);
                    }
                    ("error", ..) => return Err(broken(text)),
                    // The words of a clause come right before its first audio.
                    ("transcript", "agent", false) => {
                        let is_awaited = awaited.is_some_and(|words| told.text.contains(words));
                        self.is_announced |= is_awaited;
                    }
                    _ => {}
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Hangs up.
    pub(super) async fn close(mut self) -> Result<(), BenchError> {
        if self.is_closed {
            return Ok(());
        }
        self.socket.close(None).await.map_err(broken)?;
        let rest = async { while let Some(Ok(_)) = self.socket.next().await {} };
        timeout(GOODBYE, rest).await.map_err(broken)
    }
}

/// An interruption, seconds after the server has had the first audio of the call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Interrupted {
    /// The first sound of it.
    pub(super) onset: f64,
    /// The end of the agent's last sound.
    pub(super) silent: f64,
}
