//! A conversation in sound: the caller's line with its noise, and the agent's audio as it is played.

use super::noise::{Noise, at_level};
use super::scenario::{NoiseKind, Scenario};
use super::voices::{VoiceName, installed};
use crate::audio::g711::Law;
use crate::audio::{RATE, Resampler, to_i16};
use crate::dice::Dice;
use crate::session::Engines;
use crate::tts::{Speaker, Speed};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The length of a frame.
pub(super) const FRAME: Duration = Duration::from_millis(20);

/// The level of a caller's speech, dBFS.
const CALLER_DBFS: f32 = -23.0;

/// The longest conversation that is kept as sound, seconds.
const KEPT: usize = 15 * 60;

/// The words of the people in the background.
const BABBLE: [&str; 4] = [
    "I told her that we would meet at the station, but then the train was an hour late.",
    "The second half was much better, and in the end they won by two goals.",
    "Could you pass me the menu, please? I think I will have the soup again.",
    "He has been working there for twenty years, and nobody has ever thanked him.",
];

/// The caller's side of the line.
pub(super) struct Voice {
    synthesis: Synthesis,
    rate: u32,
    telephone: bool,
    noise: Option<Noise>,
    /// The lines of the script as speech.
    clips: HashMap<String, Vec<f32>>,
    /// The clip that is being spoken, and how much of it was sent.
    speaking: Option<(Vec<f32>, usize)>,
    sent: Vec<i16>,
    heard: Vec<i16>,
    /// When all audio so far will have been played, since the beginning.
    played: Duration,
}

/// A caller's voice, which makes speech.
#[derive(Clone)]
pub(super) struct Synthesis {
    engines: Arc<Engines>,
    name: VoiceName,
    speed: Speed,
    rate: u32,
}

impl Synthesis {
    /// Makes speech of a turn.
    ///
    /// # Errors
    /// The voice fails.
    pub(super) async fn speak(&self, words: &str) -> Result<Vec<f32>, String> {
        let voice = match &self.name {
            VoiceName::Installed(voice) => {
                let (voice, words, speed) = (voice.clone(), words.to_owned(), self.speed);
                let work = tokio::task::spawn_blocking(move || installed(&voice, &words, speed));
                let said = work.await.map_err(|error| error.to_string())??;
                return Ok(at_level(&resampled(&said, self.rate), CALLER_DBFS));
            }
            VoiceName::Own(voice) => Some(voice.clone()),
            VoiceName::Default => None,
        };
        let speaker = Speaker {
            voice,
            language: None,
            speed: Some(self.speed),
        };
        let said = self.engines.say(&speaker, words, self.rate).await;
        let said = said.ok_or("the caller's voice failed; the log says why")?;
        Ok(at_level(&said, CALLER_DBFS))
    }
}

impl Voice {
    /// The caller of a scenario, whose lines are spoken in advance. `rate`: that of the session, Hz.
    ///
    /// # Errors
    /// A line cannot be spoken.
    pub(super) async fn of(
        scenario: &Scenario,
        engines: &Arc<Engines>,
        run: usize,
        seed: u64,
        rate: u32,
    ) -> Result<Self, String> {
        let caller = &scenario.caller;
        let names = caller.voice.all();
        let name = &names[(run - 1) % names.len()];
        let mut voice = Self {
            synthesis: Synthesis {
                engines: engines.clone(),
                name: VoiceName::read(name)?,
                speed: Speed::of(caller.speed).unwrap_or_default(),
                rate,
            },
            rate,
            telephone: caller.telephone,
            noise: None,
            clips: HashMap::new(),
            speaking: None,
            sent: Vec::new(),
            heard: Vec::new(),
            played: Duration::ZERO,
        };
        for say in scenario.turns.iter().filter_map(|turn| turn.say.as_ref()) {
            let clip = voice.speak(say).await?;
            voice.clips.insert(say.clone(), clip);
        }
        if let Some(noise) = caller.noise {
            let mut dice = Dice::named(seed.wrapping_add(run as u64), &scenario.name);
            let mut voices = Vec::new();
            if noise.kind == NoiseKind::Babble {
                for words in BABBLE {
                    voices.push(voice.speak(words).await?);
                }
            }
            let level = CALLER_DBFS - noise.snr_db;
            voice.noise = Some(Noise::new(noise.kind, level, rate, &mut dice, &voices));
        }
        Ok(voice)
    }

    /// Makes speech of a turn, unless that was done in advance.
    ///
    /// # Errors
    /// The voice fails.
    pub(super) async fn speak(&self, words: &str) -> Result<Vec<f32>, String> {
        match self.clips.get(words) {
            Some(clip) => Ok(clip.clone()),
            None => self.synthesis.speak(words).await,
        }
    }

    /// The voice alone.
    pub(super) fn synthesis(&self) -> Synthesis {
        self.synthesis.clone()
    }

    /// Begins to say a clip.
    pub(super) fn begin(&mut self, clip: Vec<f32>) {
        self.speaking = Some((clip, 0));
    }

    pub(super) fn is_speaking(&self) -> bool {
        self.speaking.is_some()
    }

    /// The next frame of the caller's line.
    pub(super) fn frame(&mut self) -> Vec<i16> {
        let length = (self.rate as usize * FRAME.as_millis() as usize) / 1_000;
        let mut frame = vec![0.0; length];
        if let Some((clip, at)) = &mut self.speaking {
            let left = &clip[*at..];
            let spoken = left.len().min(length);
            frame[..spoken].copy_from_slice(&left[..spoken]);
            *at += spoken;
            if *at >= clip.len() {
                self.speaking = None;
            }
        }
        if let Some(noise) = &mut self.noise {
            for sample in &mut frame {
                *sample = (*sample + noise.next()).clamp(-1.0, 1.0);
            }
        }
        let mut frame = to_i16(&frame);
        if self.telephone {
            frame = Law::Mu.decode(&Law::Mu.encode(&frame));
        }
        if self.sent.len() < KEPT * self.rate as usize {
            self.sent.extend(&frame);
        }
        frame
    }

    /// Plays audio of the agent's, which came at `at`, after what is still to be played.
    pub(super) fn play(&mut self, at: Duration, samples: &[i16]) {
        let from = self.played.max(at);
        let position = (from.as_secs_f64() * f64::from(self.rate)) as usize;
        if position < KEPT * self.rate as usize {
            if self.heard.len() < position {
                self.heard.resize(position, 0);
            }
            self.heard.extend(samples);
        }
        let length = samples.len() as f64 / f64::from(self.rate);
        self.played = from + Duration::from_secs_f64(length);
    }

    /// Drops what has not been played.
    pub(super) fn clear(&mut self, at: Duration) {
        let position = (at.as_secs_f64() * f64::from(self.rate)) as usize;
        self.heard.truncate(position);
        self.played = self.played.min(at);
    }

    /// When all audio so far will have been played, since the beginning.
    pub(super) fn played(&self) -> Duration {
        self.played
    }

    /// The line and the agent, interleaved, and their rate, Hz.
    pub(super) fn sound(self) -> (Vec<i16>, u32) {
        let length = self.sent.len().max(self.heard.len());
        let at = |samples: &[i16], at: usize| samples.get(at).copied().unwrap_or_default();
        let both = (0..length).flat_map(|n| [at(&self.sent, n), at(&self.heard, n)]);
        (both.collect(), self.rate)
    }
}

fn resampled(samples: &[f32], rate: u32) -> Vec<f32> {
    if rate == RATE {
        return samples.to_vec();
    }
    let mut resampler = Resampler::new(RATE, rate);
    let mut out = resampler.push(samples);
    out.extend(resampler.flush());
    out
}
