//! The desktop assistant: a client on this machine's microphone and loudspeaker. Behind the feature
//! `desktop`, so that a server needs no sound library.
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
//! | [`playback`] | the queue in front of the loudspeaker, which a barge-in clears at once |
//! | [`sounds`] | the chime of a timer, and the sound while a tool runs |
//! | [`player`] | plays recorded speech |
//! | [`echo`] | echo cancellation |
//! | [`mod@line`] | a session of this process, or a server |
//! | [`recovery`] | when devices that failed are opened again |
//! | [`screen`] | the terminal |

pub mod devices;
pub mod echo;
pub mod line;
pub mod playback;
pub mod player;
pub mod recovery;
pub mod screen;
pub mod sounds;

use crate::audio::{Resampler, level_dbfs, to_f32, to_i16};
use devices::{Faults, Loudspeaker, Microphone};
use echo::EchoFilter;
use line::{Agent, AgentLine, FromAgent, Over};
use recovery::Recovery;
use screen::Screen;
use sounds::Waiting;
use std::io::Write;
use std::pin::pin;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

/// How often the ring buffers are drained.
const TICK: Duration = Duration::from_millis(10);

/// The length of the frames sent to the agent.
const FRAME_MS: u32 = 20;

/// Ticks between updates of the level meter: 100 ms.
const METER_TICKS: u32 = 10;

/// The reason given for the end of a conversation that the user stopped.
const STOPPED: &str = "stopped";

/// The reason that `talk` fails.
#[derive(Debug, thiserror::Error)]
pub enum DesktopError {
    /// The system's devices cannot be listed.
    #[error("cannot list the sound devices: {0}; is a sound system installed and running?")]
    Devices(cpal::Error),
    /// The system has no device of this kind.
    #[error("this machine has no {device}; plug one in, or talk in a browser: `undertone serve`")]
    NoDefault {
        /// Microphone or loudspeaker.
        device: &'static str,
    },
    /// There is no device of the given name.
    #[error(
        "there is no {device} \"{name}\" ({option}); `undertone talk --list-devices` lists them"
    )]
    Unknown {
        /// Microphone or loudspeaker.
        device: &'static str,
        /// The option that named it.
        option: &'static str,
        /// The name.
        name: String,
    },
    /// The device exists but cannot be opened.
    #[error(
        "cannot open the {device} \"{name}\": {reason}; plug one in, or choose another with \
         {option}: `undertone talk --list-devices` lists them"
    )]
    Open {
        /// Microphone or loudspeaker.
        device: &'static str,
        /// The option that chooses another.
        option: &'static str,
        /// Its name.
        name: String,
        /// The system's error.
        reason: cpal::Error,
    },
    /// The device stopped working.
    #[error("the {device} \"{name}\" is gone: {reason}; plug it in and start again")]
    Lost {
        /// Microphone or loudspeaker.
        device: &'static str,
        /// Its name.
        name: String,
        /// The system's error.
        reason: cpal::Error,
    },
    /// The echo canceller failed.
    #[error("the echo canceller failed: {0}")]
    Echo(String),
    /// The server cannot be reached, or refused the connection.
    #[error("cannot talk to the server {url}: {reason}")]
    Server {
        /// Its address.
        url: String,
        /// The reason.
        reason: String,
    },
    /// The connection to the agent was lost.
    #[error("the connection to the agent was lost: {0}")]
    Broken(String),
    /// The terminal cannot be written to.
    #[error("cannot write to stdout")]
    Screen(#[from] std::io::Error),
}

/// The devices to use, and the user's mute switch.
#[derive(Debug)]
pub struct Desk {
    /// The microphone's name; `None` for the system's choice.
    pub input: Option<String>,
    /// The loudspeaker's name; `None` for the system's choice.
    pub output: Option<String>,
    /// Each message mutes or unmutes the microphone.
    pub toggle: mpsc::Receiver<()>,
    /// Whether the microphone starts unmuted.
    pub listening: bool,
    /// Whether timers chime, and long tools are heard.
    pub sounds: bool,
}

/// Talks until the agent ends the conversation or `stop` is cancelled. A conversation that expires
/// is followed by a new one. Returns the reason for the end.
///
/// # Errors
/// [`DesktopError`] if a device is lost, the connection breaks or the terminal cannot be written
/// to.
pub async fn talk<W: Write>(
    desk: Desk,
    agent: &Agent,
    screen: &mut Screen<W>,
    stop: &CancellationToken,
) -> Result<String, DesktopError> {
    let mut recovery = Recovery::default();
    let Some(devices) = open(&desk, &mut recovery, stop).await? else {
        return Ok(STOPPED.into());
    };
    screen.line(&devices.names())?;
    let mut talk = Talk {
        began: devices.opened,
        waiting: Waiting::default(),
        devices,
        recovery,
        desk,
        recent: Vec::new(),
        lost: 0,
    };
    let over = talk.through(agent, screen, stop).await;
    if talk.lost > 0 {
        let frames = talk.lost;
        tracing::warn!(
            frames,
            "the session could not keep up; dropped frames of microphone audio"
        );
    }
    over
}

/// Opens both devices and retries after failures as `recovery` allows. `None` if the user stopped it.
async fn open(
    desk: &Desk,
    recovery: &mut Recovery<DesktopError>,
    stop: &CancellationToken,
) -> Result<Option<Devices>, DesktopError> {
    loop {
        let fault = match Devices::open(desk) {
            Ok(devices) => return Ok(Some(devices)),
            Err(fault) => fault,
        };
        tracing::warn!(%fault, "the devices cannot be opened");
        let pause = sleep(recovery.failed(fault, Duration::ZERO)?);
        if stop.run_until_cancelled(pause).await.is_none() {
            return Ok(None);
        }
    }
}

/// Both devices, running, and the echo filter between them.
struct Devices {
    microphone: Microphone,
    loudspeaker: Loudspeaker,
    faults: Faults,
    echo_filter: EchoFilter,
    opened: Instant,
}

impl Devices {
    fn open(desk: &Desk) -> Result<Self, DesktopError> {
        let faults = Faults::new();
        let microphone = Microphone::open(desk.input.as_deref(), &faults)?;
        let loudspeaker = Loudspeaker::open(desk.output.as_deref(), devices::OUTPUT, &faults)?;
        let echo_filter =
            EchoFilter::new(microphone.rate, loudspeaker.rate, loudspeaker.buffer_ms)?;
        // The microphone first: no sound may come later than its echo.
        microphone.start()?;
        loudspeaker.start()?;
        Ok(Self {
            microphone,
            loudspeaker,
            faults,
            echo_filter,
            opened: devices::now(),
        })
    }

    fn names(&self) -> String {
        format!(
            "microphone {}, {} Hz; loudspeaker {}, {} Hz",
            self.microphone.name,
            self.microphone.rate,
            self.loudspeaker.name,
            self.loudspeaker.rate
        )
    }

    /// Gives both devices back to the system.
    fn close(&mut self) {
        self.microphone.close();
        self.loudspeaker.close();
    }

    /// Returns the microphone's audio without echo.
    fn listen(&mut self) -> Result<Vec<f32>, DesktopError> {
        // The microphone first: what it hears meanwhile would seem to be earlier than its sound.
        let heard = self.microphone.take();
        self.echo_filter.played(&self.loudspeaker.take_played());
        self.echo_filter.heard(&heard)
    }
}

struct Talk {
    began: Instant,
    waiting: Waiting,
    devices: Devices,
    recovery: Recovery<DesktopError>,
    desk: Desk,
    /// The microphone's audio since the level was last shown.
    recent: Vec<f32>,
    /// Microphone frames that were dropped.
    lost: u64,
}

/// Resamplers between the devices' rates and the agent's.
struct Rates {
    up: Resampler,
    down: Resampler,
    /// Samples that do not fill a frame yet, at the agent's input rate.
    rest: Vec<f32>,
    frame: usize,
    output_rate: u32,
}

impl Rates {
    fn new(line: &AgentLine, loudspeaker: u32) -> Self {
        Self {
            up: Resampler::new(echo::RATE, line.input_rate),
            down: Resampler::new(line.output_rate, loudspeaker),
            rest: Vec::new(),
            frame: (line.input_rate * FRAME_MS / 1_000) as usize,
            output_rate: line.output_rate,
        }
    }

    /// Whole frames for the agent.
    fn frames(&mut self, samples: &[f32]) -> Vec<Vec<i16>> {
        self.rest.extend(self.up.push(samples));
        let whole = self.rest.len() / self.frame * self.frame;
        let whole: Vec<f32> = self.rest.drain(..whole).collect();
        whole.chunks(self.frame).map(to_i16).collect()
    }
}

impl Talk {
    /// Runs one conversation after another.
    async fn through<W: Write>(
        &mut self,
        agent: &Agent,
        screen: &mut Screen<W>,
        stop: &CancellationToken,
    ) -> Result<String, DesktopError> {
        loop {
            let rate = self.devices.loudspeaker.rate;
            let mut calling = pin!(agent.call(echo::RATE, rate));
            let line = loop {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return Ok(STOPPED.into()),
                    fault = self.devices.faults.first() => {
                        if !self.reopen(fault, stop).await? {
                            return Ok(STOPPED.into());
                        }
                    }
                    line = &mut calling => break line?,
                }
            };
            // Discards audio recorded while connecting.
            self.devices.listen()?;
            match self.converse(line, screen, stop).await? {
                Some(Over::Expired) => screen.line("(a new conversation begins)")?,
                Some(Over::Ended(why)) => return Ok(why),
                Some(Over::Lost(why)) => return Err(DesktopError::Broken(why)),
                None => return Ok(STOPPED.into()),
            }
        }
    }

    /// Runs one conversation. Returns `None` if it was stopped.
    async fn converse<W: Write>(
        &mut self,
        mut line: AgentLine,
        screen: &mut Screen<W>,
        stop: &CancellationToken,
    ) -> Result<Option<Over>, DesktopError> {
        let mut rates = Rates::new(&line, self.devices.loudspeaker.rate);
        self.waiting.clear();
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut ticks = 0u32;
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(None),
                fault = self.devices.faults.first() => {
                    if !self.reopen(fault, stop).await? {
                        return Ok(None);
                    }
                    rates = Rates::new(&line, self.devices.loudspeaker.rate);
                }
                message = line.from_agent.recv() => {
                    match message {
                        Some(FromAgent::Over(over)) => {
                            self.waiting.clear();
                            self.sound();
                            stop.run_until_cancelled(self.finish_playout()).await;
                            return Ok(Some(over));
                        }
                        Some(message) => {
                            self.take(&message, &mut rates);
                            screen.show(&message)?;
                        }
                        None => return Ok(Some(Over::Lost("the session ended".into()))),
                    }
                }
                Some(()) = self.desk.toggle.recv() => {
                    self.desk.listening = !self.desk.listening;
                    screen.line(if self.desk.listening { "(listening)" } else { "(muted)" })?;
                }
                _ = tick.tick() => {
                    self.listen(&line, &mut rates)?;
                    self.sound();
                    ticks += 1;
                    if ticks.is_multiple_of(METER_TICKS) {
                        let level = level_dbfs(&std::mem::take(&mut self.recent));
                        screen.level(level, self.desk.listening)?;
                    }
                }
            }
        }
    }

    /// Opens both devices again after a fault. Sound systems drop streams when they restart, change
    /// devices or fall behind, and the next stream often works, even if the old one could not be
    /// closed. Devices that keep failing are given up. `false` if the user stopped it.
    async fn reopen(
        &mut self,
        fault: DesktopError,
        stop: &CancellationToken,
    ) -> Result<bool, DesktopError> {
        tracing::warn!(%fault, "opening the devices again");
        let worked = self.devices.opened.elapsed();
        let pause = self.recovery.failed(fault, worked)?;
        self.devices.close();
        if stop.run_until_cancelled(sleep(pause)).await.is_none() {
            return Ok(false);
        }
        let devices = open(&self.desk, &mut self.recovery, stop).await?;
        Ok(devices.map(|devices| self.devices = devices).is_some())
    }

    fn take(&mut self, message: &FromAgent, rates: &mut Rates) {
        match message {
            FromAgent::Audio(samples) => {
                let lost = self
                    .devices
                    .loudspeaker
                    .feed
                    .push(&rates.down.push(&to_f32(samples)));
                if lost > 0 {
                    tracing::warn!(
                        lost,
                        "dropped samples: the agent's audio arrives faster than it is played"
                    );
                }
            }
            FromAgent::TimerRings if self.desk.sounds => {
                let loudspeaker = &self.devices.loudspeaker;
                loudspeaker.sounds.chime(loudspeaker.feed.waiting() > 0);
            }
            FromAgent::Tool { call, runs: true } => self.waiting.started(call),
            FromAgent::Tool { call, runs: false } => self.waiting.finished(call),
            FromAgent::Clear => {
                self.waiting.clear();
                self.devices.loudspeaker.feed.clear();
                rates.down = Resampler::new(rates.output_rate, self.devices.loudspeaker.rate);
            }
            _ => {}
        }
    }

    /// Begins or ends the sound that is heard while a tool runs.
    fn sound(&mut self) {
        let loudspeaker = &self.devices.loudspeaker;
        let speaks = loudspeaker.feed.waiting() > 0;
        let waits = self.waiting.is_heard(self.began.elapsed(), speaks);
        loudspeaker.sounds.wait(waits && self.desk.sounds);
    }

    /// Sends the recorded audio to the agent. A muted microphone sends silence.
    fn listen(&mut self, line: &AgentLine, rates: &mut Rates) -> Result<(), DesktopError> {
        let mut clean = self.devices.listen()?;
        if !self.desk.listening {
            clean.fill(0.0);
        }
        self.recent.extend(&clean);
        for frame in rates.frames(&clean) {
            if line.microphone.try_send(frame).is_err() {
                self.lost += 1;
            }
        }
        Ok(())
    }

    /// Waits until queued audio, such as a goodbye, has been played.
    async fn finish_playout(&mut self) {
        let waiting = self.devices.loudspeaker.feed.waiting() as u64;
        let rate = u64::from(self.devices.loudspeaker.rate).max(1);
        let buffer = u64::from(self.devices.loudspeaker.buffer_ms);
        sleep(Duration::from_millis(waiting * 1_000 / rate + buffer)).await;
    }
}
