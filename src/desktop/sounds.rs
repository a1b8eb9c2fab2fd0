//! The sounds other than speech: a chime when a timer rings, and a quiet sound while a tool runs.
//!
//! The loudspeaker's thread makes them sample by sample and mixes them into the agent's voice. So they
//! need no queue, stop at once, and lie in the echo canceller's reference like the voice.

use std::collections::BTreeSet;
use std::f32::consts::TAU;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// The notes of the chime: when each begins, s, and its pitch, Hz.
pub const CHIME: [(f32, f32); 2] = [(0.0, 880.0), (0.16, 1_174.7)];

/// The partials of a note: multiples of its pitch, and their amplitudes.
const PARTIALS: [(f32, f32); 3] = [(1.0, 0.16), (2.0, 0.05), (3.0, 0.02)];

/// How quickly a note rises and dies away, s.
const ATTACK: f32 = 0.004;
const DECAY: f32 = 0.18;

/// The length of the chime, s.
const CHIME_LENGTH: f32 = 1.1;

/// How long words wait for the chime, s: its notes have been heard by then, and die away under the words.
const CHIME_ALONE: f32 = 0.45;

/// The two pitches of the waiting sound, Hz.
pub const WAITING: [f32; 2] = [440.0, 660.0];

/// The amplitude of each, at the top of a swell.
const WAITING_AMPLITUDE: f32 = 0.012;

/// The length of a swell, s.
const SWELL: f32 = 1.6;

/// How long the waiting sound takes to fade in and out, s.
const FADE_IN: f32 = 0.4;
const FADE_OUT: f32 = 0.015;

/// How long a tool runs in silence before the waiting sound begins. A filler comes earlier.
const PATIENCE: Duration = Duration::from_millis(1_500);

/// Controls the sounds of one loudspeaker.
#[derive(Debug)]
pub struct Sounds {
    chimes: Arc<AtomicU32>,
    words_wait: Arc<AtomicBool>,
    waiting: Arc<AtomicBool>,
}

/// Makes the sounds for the loudspeaker. It never locks, allocates or blocks.
#[derive(Debug)]
pub struct Mixer {
    /// Hz.
    rate: f32,
    chimes: Arc<AtomicU32>,
    words_wait: Arc<AtomicBool>,
    waiting: Arc<AtomicBool>,
    /// Chimes that were begun.
    begun: u32,
    /// Samples of the current chime so far.
    chime: Option<u32>,
    /// Whether words wait until its notes have been heard.
    chime_first: bool,
    /// Samples of the waiting sound so far.
    waited: u32,
    /// The volume of the waiting sound, 0..1.
    volume: f32,
    /// Whether the waiting sound fades in, or out.
    wanted: bool,
}

/// Sounds for a loudspeaker at `rate`, Hz.
pub fn sounds(rate: u32) -> (Sounds, Mixer) {
    let chimes = Arc::new(AtomicU32::new(0));
    let words_wait = Arc::new(AtomicBool::new(false));
    let waiting = Arc::new(AtomicBool::new(false));
    let mixer = Mixer {
        rate: rate as f32,
        chimes: chimes.clone(),
        words_wait: words_wait.clone(),
        waiting: waiting.clone(),
        begun: 0,
        chime: None,
        chime_first: false,
        waited: 0,
        volume: 0.0,
        wanted: false,
    };
    let sounds = Sounds {
        chimes,
        words_wait,
        waiting,
    };
    (sounds, mixer)
}

impl Sounds {
    /// Rings the chime once. `speaks`: the agent's voice is queued; otherwise its next words wait until the notes have
    /// been heard.
    pub fn chime(&self, speaks: bool) {
        self.words_wait.store(!speaks, Ordering::Relaxed);
        self.chimes.fetch_add(1, Ordering::Release);
    }

    /// Begins or ends the waiting sound.
    pub fn wait(&self, waits: bool) {
        self.waiting.store(waits, Ordering::Relaxed);
    }
}

impl Mixer {
    /// Applies the requests of [`Sounds`]. To be called before each chunk.
    pub fn catch_up(&mut self) {
        self.wanted = self.waiting.load(Ordering::Relaxed);
        let chimes = self.chimes.load(Ordering::Acquire);
        // Timers that ring together share a chime.
        if chimes != std::mem::replace(&mut self.begun, chimes) && self.chime.is_none() {
            self.chime = Some(0);
            self.chime_first = self.words_wait.load(Ordering::Relaxed);
        }
    }

    /// Whether the voice waits for the chime.
    pub fn holds_the_voice(&self) -> bool {
        self.chime_first
            && self
                .chime
                .is_some_and(|at| (at as f32) < CHIME_ALONE * self.rate)
    }

    /// The next sample.
    pub fn next_sample(&mut self) -> f32 {
        self.next_of_chime() + self.next_of_waiting()
    }

    fn next_of_chime(&mut self) -> f32 {
        let Some(at) = self.chime else { return 0.0 };
        let time = at as f32 / self.rate;
        self.chime = (time < CHIME_LENGTH).then_some(at + 1);
        let notes = CHIME
            .iter()
            .map(|(begin, pitch)| note(time - begin, *pitch));
        notes.sum()
    }

    fn next_of_waiting(&mut self) -> f32 {
        let change = match self.wanted {
            true => 1.0 / (FADE_IN * self.rate),
            false => -1.0 / (FADE_OUT * self.rate),
        };
        self.volume = (self.volume + change).clamp(0.0, 1.0);
        if self.volume == 0.0 {
            self.waited = 0;
            return 0.0;
        }
        let time = self.waited as f32 / self.rate;
        self.waited = (self.waited + 1) % (SWELL * self.rate) as u32;
        let swell = 0.5 - 0.5 * (TAU * time / SWELL).cos();
        let tones: f32 = WAITING.iter().map(|pitch| (TAU * pitch * time).sin()).sum();
        self.volume * swell * WAITING_AMPLITUDE * tones
    }
}

/// A sample of a note, `time` seconds after it began.
fn note(time: f32, pitch: f32) -> f32 {
    if time < 0.0 {
        return 0.0;
    }
    let envelope = (time / ATTACK).min(1.0) * (-time / DECAY).exp();
    let partials = PARTIALS
        .iter()
        .map(|(multiple, amplitude)| amplitude * (TAU * pitch * multiple * time).sin());
    envelope * partials.sum::<f32>()
}

/// Decides when the waiting sound is heard: while a tool runs that the answer waits for, and nobody has
/// spoken for a while.
#[derive(Debug, Default)]
pub struct Waiting {
    running: BTreeSet<String>,
    /// Since the conversation began.
    silent_since: Option<Duration>,
}

impl Waiting {
    /// Notes that a tool has started.
    pub fn started(&mut self, call: &str) {
        self.running.insert(call.to_owned());
    }

    /// Notes that a tool has ended.
    pub fn finished(&mut self, call: &str) {
        self.running.remove(call);
    }

    /// Forgets all tools, because the user barged in or the answer was dropped.
    pub fn clear(&mut self) {
        self.running.clear();
    }

    /// Whether the sound is to be heard `now` after the conversation began. `speaks`: the agent's voice is
    /// playing or queued.
    pub fn is_heard(&mut self, now: Duration, speaks: bool) -> bool {
        if speaks || self.running.is_empty() {
            self.silent_since = None;
            return false;
        }
        let since = *self.silent_since.get_or_insert(now);
        now.saturating_sub(since) >= PATIENCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::level_dbfs;

    const RATE: u32 = 48_000;

    fn play(mixer: &mut Mixer, ms: u32) -> Vec<f32> {
        mixer.catch_up();
        let samples = RATE * ms / 1_000;
        (0..samples).map(|_| mixer.next_sample()).collect()
    }

    #[test]
    fn the_chime_rings_once_and_dies_away() {
        let (sounds, mut mixer) = sounds(RATE);
        assert_eq!(play(&mut mixer, 100), vec![0.0; 4_800]);
        sounds.chime(false);
        sounds.chime(false);
        let ringing = play(&mut mixer, 400);
        assert!(level_dbfs(&ringing) > -30.0, "{}", level_dbfs(&ringing));
        assert!(ringing.iter().all(|sample| sample.abs() < 0.5));
        play(&mut mixer, 800);
        assert_eq!(play(&mut mixer, 100), vec![0.0; 4_800]);
        sounds.chime(false);
        assert!(level_dbfs(&play(&mut mixer, 400)) > -30.0);
    }

    #[test]
    fn words_wait_for_the_chimes_notes_unless_the_agent_speaks_when_it_rings() {
        for (speaks, waited) in [(false, 450), (true, 0)] {
            let (sounds, mut mixer) = sounds(RATE);
            sounds.chime(speaks);
            mixer.catch_up();
            let held = (0..2 * RATE).take_while(|_| {
                mixer.next_sample();
                mixer.holds_the_voice()
            });
            let held = held.count() as u32 * 1_000 / RATE;
            assert!(held.abs_diff(waited) <= 1, "{speaks} {held}");
        }
    }

    #[test]
    fn the_waiting_sound_fades_in_quietly_and_stops_at_once() {
        let (sounds, mut mixer) = sounds(RATE);
        sounds.wait(true);
        let begins = level_dbfs(&play(&mut mixer, 100));
        play(&mut mixer, 600);
        let swells = level_dbfs(&play(&mut mixer, 300));
        assert!(begins < swells - 20.0, "{begins} {swells}");
        assert!((-45.0..-35.0).contains(&swells), "{swells}");
        sounds.wait(false);
        play(&mut mixer, 16);
        assert_eq!(play(&mut mixer, 100), vec![0.0; 4_800]);
    }

    /// A step between two samples is heard as a click.
    #[test]
    fn no_sound_clicks() {
        let (sounds, mut mixer) = sounds(RATE);
        sounds.wait(true);
        let mut all = play(&mut mixer, 5_000);
        sounds.chime(false);
        all.extend(play(&mut mixer, 1_500));
        sounds.wait(false);
        all.extend(play(&mut mixer, 100));
        let steps = all.windows(2).map(|pair| (pair[1] - pair[0]).abs());
        let largest = steps.fold(0.0, f32::max);
        assert!(largest < 0.1, "{largest}");
    }

    #[test]
    fn the_waiting_sound_follows_a_silence_while_a_tool_runs() {
        let at = Duration::from_millis;
        let mut waiting = Waiting::default();
        assert!(!waiting.is_heard(at(0), false));
        waiting.started("a");
        waiting.started("b");
        assert!(!waiting.is_heard(at(5_000), true));
        assert!(!waiting.is_heard(at(5_010), false));
        assert!(!waiting.is_heard(at(6_500), false));
        assert!(waiting.is_heard(at(6_510), false));
        waiting.finished("a");
        assert!(waiting.is_heard(at(6_520), false));
        assert!(!waiting.is_heard(at(6_530), true));
        assert!(!waiting.is_heard(at(6_540), false));
        waiting.finished("b");
        assert!(!waiting.is_heard(at(9_000), false));
        waiting.started("c");
        assert!(!waiting.is_heard(at(9_010), false));
        waiting.clear();
        assert!(!waiting.is_heard(at(19_000), false));
    }
}
