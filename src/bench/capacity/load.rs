//! Callers who all speak and listen at the same time, each at the pace of audio.

use super::part::{Kind, MEASURING, OPENING, tell};
use crate::audio::{decode, to_i16, to_pcm16le};
use crate::bench::BenchError;
use crate::bench::caller::FRAME;
use crate::bench::listener::RATE;
use crate::bench::socket::{Socket, broken, connect};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};
use tokio_tungstenite::tungstenite::Message;

/// The audio that a listener buffers before playout: as much as the server sends ahead of time. The server's first
/// frames fill this buffer; an echo sends nothing ahead.
const AHEAD: Duration = Duration::from_millis(200);

/// The length of a question when the server runs stub engines.
const LOUD: Duration = Duration::from_millis(300);

/// The pause before a question, and the longest wait for an answer.
const PAUSE: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(5);

/// The interval between two new calls.
const BETWEEN: Duration = Duration::from_millis(2);

/// The time from the start of the last call to the measurement: by then every call has been answered.
const WARM_UP: Duration = Duration::from_secs(4);

/// The longest clip.
const LONGEST: Duration = Duration::from_mins(1);

/// Counts over the measured time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Tally {
    /// Calls that were refused or cut off.
    pub(super) refused: usize,
    /// Frames sent to the server.
    pub(super) sent: u64,
    /// Frames received, and how many of them were late.
    pub(super) heard: u64,
    pub(super) late: u64,
    /// Questions, and those without an answer.
    pub(super) asked: u64,
    pub(super) unanswered: u64,
    /// The load generator's own lag: how late it sent frames, 99th percentile.
    pub(super) lag_ms: f64,
}

/// All callers.
pub(super) struct Load {
    shared: Arc<Shared>,
    calls: usize,
    length: Duration,
}

struct Shared {
    address: String,
    /// A caller's words, frame by frame; empty if the server only echoes.
    words: Vec<Bytes>,
    silence: Bytes,
    is_measuring: AtomicBool,
    is_over: AtomicBool,
    open: AtomicUsize,
}

impl Load {
    pub(super) fn new(
        address: String,
        kind: Kind,
        calls: usize,
        length: Duration,
        clip: &Path,
    ) -> Result<Self, BenchError> {
        let samples = match kind {
            Kind::Echo => Vec::new(),
            Kind::Stubs => vec![8_000; (LOUD.as_secs_f64() * f64::from(RATE)) as usize],
            Kind::Detector => {
                let file = File::open(clip).map_err(broken)?;
                to_i16(&decode(Box::new(file), LONGEST, || true).map_err(broken)?)
            }
        };
        let frame = (FRAME.as_secs_f64() * f64::from(RATE)) as usize;
        let whole = samples.chunks_exact(frame);
        Ok(Self {
            shared: Arc::new(Shared {
                address,
                words: whole.map(|frame| to_pcm16le(frame).into()).collect(),
                silence: to_pcm16le(&vec![0; frame]).into(),
                is_measuring: AtomicBool::new(false),
                is_over: AtomicBool::new(false),
                open: AtomicUsize::new(0),
            }),
            calls,
            length,
        })
    }

    pub(super) async fn run(self) -> Result<Tally, BenchError> {
        tell(OPENING)?;
        let mut callers = JoinSet::new();
        for _ in 0..self.calls {
            callers.spawn(call(self.shared.clone()));
            sleep(BETWEEN).await;
        }
        sleep(WARM_UP).await;
        let refused = self.calls - self.shared.open.load(Ordering::Relaxed).min(self.calls);
        tell(MEASURING)?;
        self.shared.is_measuring.store(true, Ordering::Relaxed);
        sleep(self.length).await;
        self.shared.is_measuring.store(false, Ordering::Relaxed);
        self.shared.is_over.store(true, Ordering::Relaxed);
        let mut all = Tally {
            refused,
            ..Tally::default()
        };
        let mut lags = Vec::new();
        for caller in callers.join_all().await {
            all.sent += caller.tally.sent;
            all.heard += caller.tally.heard;
            all.late += caller.tally.late;
            all.asked += caller.tally.asked;
            all.unanswered += caller.tally.unanswered;
            lags.extend(caller.lags);
        }
        lags.sort_unstable();
        let lag = lags.get(lags.len() * 99 / 100).copied().unwrap_or(0);
        all.lag_ms = f64::from(lag) / 1_000.0;
        Ok(all)
    }
}

/// One caller.
#[derive(Default)]
struct Caller {
    tally: Tally,
    /// How late each frame was sent, µs.
    lags: Vec<u32>,
    stage: Stage,
}

/// A caller pauses, says the words, waits for the answer, and hears it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Stage {
    Pausing {
        until: Instant,
    },
    Speaking {
        next: usize,
    },
    Waiting {
        until: Instant,
    },
    /// `played`: the end of playout of all audio received so far.
    Hearing {
        played: Instant,
        until: Instant,
    },
}

impl Default for Stage {
    fn default() -> Self {
        Self::Speaking { next: 0 }
    }
}

async fn call(shared: Arc<Shared>) -> Caller {
    let mut caller = Caller::default();
    let Ok(mut socket) = connect(format!("ws://{}/v1/pcm", shared.address)).await else {
        return caller;
    };
    shared.open.fetch_add(1, Ordering::Relaxed);
    if converse(&shared, &mut socket, &mut caller).await.is_err() {
        // A call that was cut off counts as refused.
        shared.open.fetch_sub(1, Ordering::Relaxed);
    }
    caller
}

#[allow(clippy::disallowed_methods, reason = "it measures, in real time")]
async fn converse(
    shared: &Shared,
    socket: &mut Socket,
    caller: &mut Caller,
) -> Result<(), BenchError> {
    let mut pace = interval_at(Instant::now() + FRAME, FRAME);
    pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
    while !shared.is_over.load(Ordering::Relaxed) {
        tokio::select! {
            biased;
            message = socket.next() => {
                let message = message.ok_or_else(|| broken("the server closed it"))?;
                let counts = shared.is_measuring.load(Ordering::Relaxed);
                caller.take(Instant::now(), &message.map_err(broken)?, counts);
            }
            due = pace.tick() => {
                let now = Instant::now();
                let counts = shared.is_measuring.load(Ordering::Relaxed);
                let frame = caller.speak(now, shared, counts);
                socket.send(Message::Binary(frame)).await.map_err(broken)?;
                if counts {
                    caller.tally.sent += 1;
                    let lag = now.saturating_duration_since(due).as_micros();
                    caller.lags.push(u32::try_from(lag).unwrap_or(u32::MAX));
                }
            }
        }
    }
    Ok(())
}

impl Caller {
    /// The next frame.
    fn speak(&mut self, now: Instant, shared: &Shared, counts: bool) -> Bytes {
        match self.stage {
            Stage::Pausing { until } if now >= until => self.stage = Stage::Speaking { next: 0 },
            Stage::Waiting { until } | Stage::Hearing { until, .. } if now >= until => {
                self.tally.unanswered += u64::from(counts);
                self.stage = Stage::Speaking { next: 0 };
            }
            _ => {}
        }
        let Stage::Speaking { next } = self.stage else {
            return shared.silence.clone();
        };
        if let Some(frame) = shared.words.get(next) {
            self.stage = Stage::Speaking { next: next + 1 };
            return frame.clone();
        }
        // An echo is not an answer, so it counts as no question and is heard right away.
        self.tally.asked += u64::from(counts && !shared.words.is_empty());
        let until = now + PATIENCE;
        self.stage = match shared.words.is_empty() {
            true => Stage::Hearing {
                played: now + AHEAD,
                until,
            },
            false => Stage::Waiting { until },
        };
        shared.silence.clone()
    }

    fn take(&mut self, now: Instant, message: &Message, counts: bool) {
        match message {
            Message::Binary(_) => self.hear(now, counts),
            // The final transcript of the answer: it is over.
            Message::Text(text)
                if text.contains(r#""role":"agent""#) && text.contains(r#""final":true"#) =>
            {
                self.stage = Stage::Pausing { until: now + PAUSE };
            }
            _ => {}
        }
    }

    /// Counts a frame that has arrived. It is late if everything before it has already been played.
    fn hear(&mut self, now: Instant, counts: bool) {
        let played = match self.stage {
            Stage::Hearing { played, .. } => {
                self.tally.late += u64::from(counts && now > played);
                played.max(now)
            }
            _ => now,
        };
        self.tally.heard += u64::from(counts);
        self.stage = Stage::Hearing {
            played: played + FRAME,
            until: now + PATIENCE,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    #[allow(clippy::disallowed_methods, reason = "moments to compare")]
    async fn a_frame_is_late_when_all_before_it_has_been_played() {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let mut caller = Caller::default();
        for ms in [0, 1, 2, 50, 60, 101] {
            caller.hear(at(ms), true);
        }
        assert_eq!((caller.tally.heard, caller.tally.late), (6, 1), "the last");
        caller.hear(at(102), false);
        assert_eq!(caller.tally.heard, 6, "not while it is not measured");
    }

    #[tokio::test]
    #[allow(clippy::disallowed_methods, reason = "moments to compare")]
    async fn a_caller_asks_again_after_an_answer_and_after_none() {
        let load = Load::new("".into(), Kind::Stubs, 1, FRAME, Path::new("")).unwrap();
        let (mut caller, mut now) = (Caller::default(), Instant::now());
        let words = load.shared.words.len();
        let mut spoken = |caller: &mut Caller, frames: usize| {
            let frames = (0..frames).filter(|_| {
                now += FRAME;
                caller.speak(now, &load.shared, true) != load.shared.silence
            });
            frames.count()
        };
        assert_eq!(spoken(&mut caller, 100), words);
        assert_eq!(spoken(&mut caller, 250), words, "after no answer");
        assert_eq!((caller.tally.asked, caller.tally.unanswered), (2, 1));
    }
}
