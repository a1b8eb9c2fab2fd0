//! Plays recorded or synthesised speech on the loudspeaker, without a conversation.

use super::DesktopError;
use super::devices::{Faults, Loudspeaker, now};
use super::recovery::Recovery;
use crate::audio::Resampler;
use std::collections::VecDeque;
use std::thread::sleep;
use std::time::Duration;
use tokio::time::Instant;

/// How often the queue in front of the loudspeaker is filled.
const TICK: Duration = Duration::from_millis(20);

/// A loudspeaker that plays audio of one rate.
#[derive(Debug)]
pub struct Player {
    device: Option<String>,
    option: &'static str,
    loudspeaker: Loudspeaker,
    faults: Faults,
    recovery: Recovery<DesktopError>,
    opened: Instant,
    rate: u32,
    resampler: Resampler,
    /// The audio that has not been played yet, at the loudspeaker's rate, and how much of it was handed to the device.
    waiting: VecDeque<f32>,
    handed: usize,
}

impl Player {
    /// Opens the loudspeaker `device`, or the system's default, for mono audio at `rate`, Hz.
    /// `option` is the one that chooses another.
    ///
    /// # Errors
    /// [`DesktopError`] if it cannot be opened.
    pub fn open(
        device: Option<&str>,
        option: &'static str,
        rate: u32,
    ) -> Result<Self, DesktopError> {
        let (loudspeaker, faults) = started(device, option)?;
        Ok(Self {
            device: device.map(str::to_owned),
            option,
            resampler: Resampler::new(rate, loudspeaker.rate),
            loudspeaker,
            faults,
            recovery: Recovery::default(),
            opened: now(),
            rate,
            waiting: VecDeque::new(),
            handed: 0,
        })
    }

    /// Queues samples in -1..1. Returns before they have been played.
    ///
    /// # Errors
    /// [`DesktopError::Lost`] if the loudspeaker is gone.
    pub fn play(&mut self, samples: &[f32]) -> Result<(), DesktopError> {
        let samples = self.resampler.push(samples);
        self.waiting.extend(samples);
        self.hand_over()
    }

    /// Drops everything that has not been played.
    pub fn clear(&mut self) {
        self.loudspeaker.feed.clear();
        self.waiting.clear();
        self.handed = 0;
        self.resampler = Resampler::new(self.rate, self.loudspeaker.rate);
    }

    /// Waits until everything has been played.
    ///
    /// # Errors
    /// As [`Player::play`].
    pub fn finish(mut self) -> Result<(), DesktopError> {
        let rest = self.resampler.flush();
        self.waiting.extend(rest);
        while !self.waiting.is_empty() {
            self.hand_over()?;
            sleep(TICK);
        }
        // The audio that the device has accepted, and the sound system's buffer behind it.
        sleep(Duration::from_millis(
            u64::from(self.loudspeaker.buffer_ms) * 2 + 100,
        ));
        Ok(())
    }

    /// Hands over as much as the loudspeaker's queue takes.
    fn hand_over(&mut self) -> Result<(), DesktopError> {
        if let Some(fault) = self.faults.try_first() {
            self.reopen(fault)?;
        }
        // Discarded: there is no microphone whose echo it would cancel.
        self.loudspeaker.take_played();
        let played = self.handed.saturating_sub(self.loudspeaker.feed.waiting());
        self.waiting.drain(..played);
        self.handed -= played;
        let rest: Vec<f32> = self.waiting.range(self.handed..).copied().collect();
        let left = self.loudspeaker.feed.push(&rest);
        self.handed += rest.len() - left;
        Ok(())
    }

    /// Opens the loudspeaker again after a fault, and plays what it had not played.
    fn reopen(&mut self, fault: DesktopError) -> Result<(), DesktopError> {
        tracing::warn!(%fault, "opening the loudspeaker again");
        let mut pause = self.recovery.failed(fault, self.opened.elapsed())?;
        self.loudspeaker.close();
        loop {
            sleep(pause);
            match started(self.device.as_deref(), self.option) {
                Ok((loudspeaker, faults)) => {
                    (self.loudspeaker, self.faults) = (loudspeaker, faults);
                    (self.opened, self.handed) = (now(), 0);
                    return Ok(());
                }
                Err(fault) => pause = self.recovery.failed(fault, Duration::ZERO)?,
            }
        }
    }
}

fn started(
    device: Option<&str>,
    option: &'static str,
) -> Result<(Loudspeaker, Faults), DesktopError> {
    let faults = Faults::new();
    let loudspeaker = Loudspeaker::open(device, option, &faults)?;
    loudspeaker.start()?;
    Ok((loudspeaker, faults))
}
