//! The desktop assistant: the microphone and the loudspeaker of this machine as a client. Only
//! with the feature `desktop`, so that a server needs no sound library.
//!
//! ```text
//! microphone ─► ring ─► echo canceller ─► line ─► session, here or on a server
//! loudspeaker ◄─ queue ◄───────────────────┘
//!      └──► ring: what was played ─► echo canceller
//! ```
//!
//! | module | subject |
//! |---|---|
//! | [`devices`] | choosing, opening and listing devices; real-time threads |
//! | [`playback`] | the queue in front of the loudspeaker, emptied at once |
//! | [`echo`] | what the loudspeaker plays is taken out of what the microphone hears |
//! | [`line`] | a session of this process, or a server |
//! | [`screen`] | the terminal |

#![allow(
    clippy::disallowed_methods,
    reason = "an edge: sound is polled in real time"
)]

pub mod devices;
pub mod echo;
pub mod line;
pub mod playback;
pub mod screen;

use crate::audio::{Resampler, level_dbfs, to_f32, to_i16};
use devices::{Faults, Loudspeaker, Microphone};
use echo::Ear;
use line::{Agent, FromAgent, Line, Over};
use screen::Screen;
use std::io::Write;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// How often the rings are emptied.
const TICK: Duration = Duration::from_millis(10);

/// Audio that is sent at once.
const FRAME_MS: u32 = 20;

/// Ticks between two looks at the level: 100 ms.
const METER_TICKS: u32 = 10;

/// Why there is no talking.
#[derive(Debug, thiserror::Error)]
pub enum DesktopError {
    /// The system's devices cannot be listed.
    #[error("cannot list the sound devices: {0}; is a sound system installed and running?")]
    Devices(#[source] cpal::Error),
    /// The system has no device of this kind.
    #[error("this machine has no {device}; plug one in, or talk in a browser: `undertone serve`")]
    NoDefault {
        /// Which.
        device: &'static str,
    },
    /// The device that was asked for is not there.
    #[error(
        "there is no {device} \"{name}\" ({option}); `undertone talk --list-devices` lists them"
    )]
    Unknown {
        /// Which.
        device: &'static str,
        /// The option that named it.
        option: &'static str,
        /// The name.
        name: String,
    },
    /// The device is there and cannot be used.
    #[error(
        "cannot open the {device} \"{name}\": {source}; plug one in, or choose another with \
         {option}: `undertone talk --list-devices` lists them"
    )]
    Open {
        /// Which.
        device: &'static str,
        /// The option that chooses another.
        option: &'static str,
        /// Its name.
        name: String,
        /// What the system says.
        source: cpal::Error,
    },
    /// The device stopped working.
    #[error("the {device} \"{name}\" is gone: {source}; plug it in and start again")]
    Lost {
        /// Which.
        device: &'static str,
        /// Its name.
        name: String,
        /// What the system says.
        source: cpal::Error,
    },
    /// The echo canceller failed.
    #[error("the echo canceller failed: {0}")]
    Echo(String),
    /// The server cannot be talked to.
    #[error("cannot talk to the server {url}: {reason}")]
    Server {
        /// Its address.
        url: String,
        /// Why.
        reason: String,
    },
    /// The conversation broke off.
    #[error("the conversation broke off: {0}")]
    Broken(String),
    /// Nothing can be written for the user.
    #[error("cannot write to stdout")]
    Screen(#[from] std::io::Error),
}

/// What one talks with.
#[derive(Debug)]
pub struct Desk {
    /// The microphone, opened.
    pub microphone: Microphone,
    /// The loudspeaker, opened.
    pub loudspeaker: Loudspeaker,
    /// Where both tell that they have failed.
    pub faults: Faults,
    /// Each message opens the microphone or closes it. It may be closed from the start.
    pub toggle: mpsc::Receiver<()>,
    /// The microphone is open from the start.
    pub listening: bool,
}

/// Talks until the agent ends the conversation or `stop` is cancelled. Conversations that run out
/// because nobody speaks are followed by new ones. Returns why it is over.
///
/// # Errors
/// [`DesktopError`] if a device is lost, the line breaks or nothing can be shown.
pub async fn talk<W: Write>(
    desk: Desk,
    agent: &Agent,
    screen: &mut Screen<W>,
    stop: &CancellationToken,
) -> Result<String, DesktopError> {
    let ear = Ear::new(
        desk.microphone.rate,
        desk.loudspeaker.rate,
        desk.loudspeaker.buffer_ms,
    )?;
    let output_rate = desk.loudspeaker.rate;
    let mut talk = Talk {
        ear,
        listening: desk.listening,
        desk,
        loudest: Vec::new(),
        lost: 0,
    };
    let mut line = agent.call(echo::RATE, output_rate).await?;
    // The microphone first: no sound may lie behind its echo.
    talk.desk.microphone.start()?;
    talk.desk.loudspeaker.start()?;
    let over = loop {
        match talk.converse(line, screen, stop).await? {
            Some(Over::Expired) => {
                screen.line("(a new conversation begins)")?;
                line = agent.call(echo::RATE, output_rate).await?;
            }
            Some(Over::Ended(why)) => break Ok(why),
            Some(Over::Lost(why)) => break Err(DesktopError::Broken(why)),
            None => break Ok("stopped".into()),
        }
    };
    screen.finish()?;
    if talk.lost > 0 {
        tracing::warn!(
            frames = talk.lost,
            "the agent was behind; the microphone was not heard"
        );
    }
    over
}

struct Talk {
    desk: Desk,
    ear: Ear,
    listening: bool,
    /// What the microphone heard since the level was last shown.
    loudest: Vec<f32>,
    /// Frames of the microphone that nobody took.
    lost: u64,
}

/// The two rates of a line, against the devices'.
struct Rates {
    up: Resampler,
    down: Resampler,
    /// Samples that do not fill a frame yet, at the line's rate.
    rest: Vec<f32>,
    frame: usize,
    output_rate: u32,
}

impl Rates {
    fn new(line: &Line, loudspeaker: u32) -> Self {
        Self {
            up: Resampler::new(echo::RATE, line.input_rate),
            down: Resampler::new(line.output_rate, loudspeaker),
            rest: Vec::new(),
            frame: (line.input_rate * FRAME_MS / 1_000) as usize,
            output_rate: line.output_rate,
        }
    }

    /// Whole frames for the line.
    fn frames(&mut self, samples: &[f32]) -> Vec<Vec<i16>> {
        self.rest.extend(self.up.push(samples));
        let whole = self.rest.len() / self.frame * self.frame;
        let whole: Vec<f32> = self.rest.drain(..whole).collect();
        whole.chunks(self.frame).map(to_i16).collect()
    }
}

impl Talk {
    /// One conversation; `None` if it was stopped.
    async fn converse<W: Write>(
        &mut self,
        mut line: Line,
        screen: &mut Screen<W>,
        stop: &CancellationToken,
    ) -> Result<Option<Over>, DesktopError> {
        let mut rates = Rates::new(&line, self.desk.loudspeaker.rate);
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut ticks = 0u32;
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(None),
                fault = self.desk.faults.first() => return Err(fault),
                message = line.from_agent.recv() => {
                    match message {
                        Some(FromAgent::Over(over)) => {
                            self.hear_out().await;
                            return Ok(Some(over));
                        }
                        Some(message) => {
                            self.take(&message, &mut rates);
                            screen.show(&message)?;
                        }
                        None => return Ok(Some(Over::Lost("the session is gone".into()))),
                    }
                }
                Some(()) = self.desk.toggle.recv() => {
                    self.listening = !self.listening;
                    screen.line(if self.listening { "(listening)" } else { "(muted)" })?;
                }
                _ = tick.tick() => {
                    self.listen(&line, &mut rates)?;
                    ticks += 1;
                    if ticks.is_multiple_of(METER_TICKS) {
                        let level = level_dbfs(&std::mem::take(&mut self.loudest));
                        screen.level(level, self.listening)?;
                    }
                }
            }
        }
    }

    fn take(&mut self, message: &FromAgent, rates: &mut Rates) {
        match message {
            FromAgent::Audio(samples) => {
                let lost = self
                    .desk
                    .loudspeaker
                    .feed
                    .push(&rates.down.push(&to_f32(samples)));
                if lost > 0 {
                    tracing::warn!(lost, "the agent's audio comes faster than it is played");
                }
            }
            FromAgent::Clear => {
                self.desk.loudspeaker.feed.clear();
                rates.down = Resampler::new(rates.output_rate, self.desk.loudspeaker.rate);
            }
            _ => {}
        }
    }

    /// Takes what the devices' rings hold to the agent. A closed microphone is silent.
    fn listen(&mut self, line: &Line, rates: &mut Rates) -> Result<(), DesktopError> {
        let played = self.desk.loudspeaker.take_played();
        self.ear.played(&played);
        let mut clean = self.ear.heard(&self.desk.microphone.take())?;
        if !self.listening {
            clean.fill(0.0);
        }
        self.loudest.extend(&clean);
        for frame in rates.frames(&clean) {
            if line.microphone.try_send(frame).is_err() {
                self.lost += 1;
            }
        }
        Ok(())
    }

    /// Lets the loudspeaker finish what it was given: a goodbye.
    async fn hear_out(&mut self) {
        let waiting = self.desk.loudspeaker.feed.waiting() as u64;
        let rate = u64::from(self.desk.loudspeaker.rate).max(1);
        let buffer = u64::from(self.desk.loudspeaker.buffer_ms);
        tokio::time::sleep(Duration::from_millis(waiting * 1_000 / rate + buffer)).await;
    }
}
