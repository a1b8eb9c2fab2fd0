//! The local voices beside the server's own: loaded on a thread of their own when a session needs them, and dropped,
//! the least recently used first, when the memory for them is full.

use crate::tts::{OnDemand, Tts, TtsError};
use crate::worker::{SpawnError, Worker};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio_util::sync::CancellationToken;

/// Voices that may wait to be loaded.
const INBOX: usize = 64;

/// A loaded voice, which stays in memory while it is referenced. Only the voices' thread speaks with it.
pub(super) type Loaded = Arc<Mutex<Box<dyn Tts>>>;

/// Voices that are loaded on demand, by index.
pub(super) struct Shelf {
    loader: Worker<usize, Result<Loaded, TtsError>>,
    memory: Arc<Memory>,
}

/// The voices that are loaded.
struct Memory {
    voices: Vec<OnDemand>,
    /// The memory limit for all loaded voices together, bytes.
    most: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Each voice, with the time of its last use.
    loaded: Vec<Option<(u64, Loaded)>>,
    /// The number of uses so far, which serves as the time.
    now: u64,
}

impl Shelf {
    /// Starts the thread; loads nothing.
    pub(super) fn start(voices: Vec<OnDemand>, most: u64) -> Result<Self, SpawnError<TtsError>> {
        let state = State {
            loaded: voices.iter().map(|_| None).collect(),
            now: 0,
        };
        let memory = Arc::new(Memory {
            voices,
            most,
            state: Mutex::new(state),
        });
        let loading = memory.clone();
        let loader = Worker::spawn(
            "tts-loader",
            INBOX,
            || Ok(()),
            move |(): &mut (), voice, _| loading.load(voice),
        )?;
        Ok(Self { loader, memory })
    }

    /// The description of a voice, which need not be loaded.
    pub(super) fn about(&self, voice: usize) -> Option<&OnDemand> {
        self.memory.voices.get(voice)
    }

    /// Whether the voice is loaded.
    pub(super) fn holds(&self, voice: usize) -> bool {
        self.memory.used(voice).is_some()
    }

    /// The voice if it is loaded. Otherwise loading begins.
    pub(super) fn ready(&self, voice: usize) -> Option<Loaded> {
        let found = self.memory.used(voice);
        if found.is_none() {
            // If the queue is full, it is requested again when it is needed.
            drop(
                self.loader
                    .try_send(voice, CancellationToken::new(), |_| ()),
            );
        }
        found
    }

    /// The voice, as soon as it is loaded.
    ///
    /// # Errors
    /// An error if it cannot be loaded.
    pub(super) async fn voice(&self, voice: usize) -> Result<Loaded, String> {
        match self.memory.used(voice) {
            Some(found) => Ok(found),
            None => {
                let loaded = self.loader.call(voice).await;
                loaded.map_err(super::reason)?.map_err(super::reason)
            }
        }
    }

    /// Loads the voice on this thread, before the server has started.
    pub(super) fn now(&self, voice: usize) -> Result<Loaded, TtsError> {
        self.memory.load(voice)
    }
}

impl Memory {
    fn used(&self, voice: usize) -> Option<Loaded> {
        let mut state = self.lock();
        state.now += 1;
        let now = state.now;
        let slot = state.loaded.get_mut(voice)?;
        // A panic may have left it broken.
        if slot.as_ref().is_some_and(|(_, voice)| voice.is_poisoned()) {
            *slot = None;
        }
        let (used, found) = slot.as_mut()?;
        *used = now;
        Some(found.clone())
    }

    /// Loads a voice, after dropping others until there is room for it. One voice is loaded at a time.
    fn load(&self, voice: usize) -> Result<Loaded, TtsError> {
        if let Some(found) = self.used(voice) {
            return Ok(found);
        }
        let unknown = || TtsError::Run("there is no such voice".into());
        let wanted = self.voices.get(voice).ok_or_else(unknown)?;
        self.make_room(wanted.bytes);
        let loaded: Loaded = Arc::new(Mutex::new((wanted.load)()?));
        let mut state = self.lock();
        let now = state.now;
        if let Some(slot) = state.loaded.get_mut(voice) {
            *slot = Some((now, loaded.clone()));
        }
        Ok(loaded)
    }

    fn make_room(&self, bytes: u64) {
        loop {
            let mut state = self.lock();
            let used =
                |(slot, about): (&Option<_>, &OnDemand)| slot.as_ref().map_or(0, |_| about.bytes);
            let all: u64 = state.loaded.iter().zip(&self.voices).map(used).sum();
            let ages = state.loaded.iter().enumerate();
            let ages = ages.filter_map(|(at, slot)| slot.as_ref().map(|(used, _)| (*used, at)));
            let Some((_, oldest)) = ages.min().filter(|_| all + bytes > self.most) else {
                return;
            };
            let dropped = state.loaded[oldest].take();
            drop(state);
            drop(dropped);
            let voice = &*self.voices[oldest].name;
            tracing::info!(
                voice,
                "unloaded a voice; see tts.memory_mb in the configuration"
            );
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tts::Scripted;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A shelf of voices of these sizes, bytes, and how often each was loaded.
    fn shelf(bytes: &[u64], most: u64) -> (Shelf, Vec<Arc<AtomicUsize>>) {
        let counts: Vec<Arc<AtomicUsize>> = bytes.iter().map(|_| Arc::default()).collect();
        let voices = bytes.iter().zip(&counts).map(|(bytes, count)| {
            let count = count.clone();
            let load = move || {
                count.fetch_add(1, Ordering::Relaxed);
                Ok(Box::new(Scripted::new()) as Box<dyn Tts>)
            };
            OnDemand {
                bytes: *bytes,
                ..OnDemand::of(&Scripted::new(), load)
            }
        });
        (Shelf::start(voices.collect(), most).unwrap(), counts)
    }

    fn loads(counts: &[Arc<AtomicUsize>]) -> Vec<usize> {
        let count = |count: &Arc<AtomicUsize>| count.load(Ordering::Relaxed);
        counts.iter().map(count).collect()
    }

    #[tokio::test]
    async fn the_least_recently_used_voice_makes_room() {
        let (shelf, counts) = shelf(&[10, 10, 10], 25);
        assert!(shelf.about(3).is_none());
        assert!(!shelf.holds(0));
        for voice in [0, 1, 0, 2, 0] {
            shelf.voice(voice).await.unwrap();
        }
        assert_eq!(loads(&counts), [1, 1, 1], "1 gave way to 2");
        shelf.voice(1).await.unwrap();
        assert_eq!(loads(&counts), [1, 2, 1]);
        assert!(shelf.holds(0), "it was used after 2");
        assert!(shelf.ready(0).is_some());
    }

    #[tokio::test]
    async fn a_voice_that_somebody_has_speaks_on_although_it_gave_way() {
        let (shelf, counts) = shelf(&[10, 10], 10);
        let first = shelf.voice(0).await.unwrap();
        shelf.voice(1).await.unwrap();
        assert!(first.lock().unwrap().speak("still here").is_ok());
        assert_eq!(Arc::strong_count(&first), 1);
        assert_eq!(loads(&counts), [1, 1]);
    }

    #[tokio::test]
    async fn a_voice_that_panicked_is_loaded_again() {
        let (shelf, counts) = shelf(&[10], 10);
        let voice = shelf.voice(0).await.unwrap();
        let panicking = std::thread::spawn(move || {
            let _voice = voice.lock().unwrap();
            panic!("while it spoke");
        });
        assert!(panicking.join().is_err());
        assert!(shelf.voice(0).await.is_ok());
        assert_eq!(loads(&counts), [2]);
    }

    #[tokio::test]
    async fn a_voice_that_cannot_be_loaded_says_why() {
        let load = || Err(TtsError::Run("the file is gone".into()));
        let voices = vec![OnDemand::of(&Scripted::new(), load)];
        let shelf = Shelf::start(voices, 10).unwrap();
        let error = shelf.voice(0).await.err().unwrap();
        assert!(error.contains("the file is gone"), "{error}");
    }
}
