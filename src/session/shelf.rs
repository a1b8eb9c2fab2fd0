//! The local voices beside the server's own: loaded on a thread of their own when a session needs them, and dropped,
//! the least recently used first, when the memory for them is full.

use crate::tts::{OnDemand, Tts, TtsError};
use crate::worker::{SpawnError, Worker};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// A loaded voice, which stays in memory while it is referenced. Only the voices' thread speaks with it.
pub(super) type Loaded = Arc<Mutex<Box<dyn Tts>>>;

/// A voice that is being loaded: the outcome, once there is one.
type Loading = watch::Receiver<Option<Result<Loaded, String>>>;

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
    /// Those that are being loaded or wait for it: each is queued once, for all who need it.
    loading: BTreeMap<usize, Loading>,
    /// The number of uses so far, which serves as the time.
    now: u64,
}

impl Shelf {
    /// Starts the thread; loads nothing.
    pub(super) fn start(voices: Vec<OnDemand>, most: u64) -> Result<Self, SpawnError<TtsError>> {
        let state = State {
            loaded: voices.iter().map(|_| None).collect(),
            ..State::default()
        };
        // All of them may wait.
        let inbox = voices.len().max(1);
        let memory = Arc::new(Memory {
            voices,
            most,
            state: Mutex::new(state),
        });
        let loading = memory.clone();
        let loader = Worker::spawn(
            "tts-loader",
            inbox,
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
        self.wanted(voice).ok()
    }

    /// The voice, as soon as it is loaded.
    ///
    /// # Errors
    /// An error if it cannot be loaded.
    pub(super) async fn voice(&self, voice: usize) -> Result<Loaded, String> {
        let mut loading = match self.wanted(voice) {
            Ok(found) => return Ok(found),
            Err(loading) => loading,
        };
        let outcome = loading.wait_for(Option::is_some).await;
        let outcome = outcome.ok().and_then(|outcome| outcome.clone());
        outcome.unwrap_or_else(|| Err("the thread that loads voices has ended".into()))
    }

    /// The voice if it is loaded. Otherwise its loading, which begins unless it has begun.
    fn wanted(&self, voice: usize) -> Result<Loaded, Loading> {
        let mut state = self.memory.lock();
        if let Some(found) = state.used(voice) {
            return Ok(found);
        }
        if let Some(loading) = state.loading.get(&voice) {
            return Err(loading.clone());
        }
        let (outcome, loading) = watch::channel(None);
        let memory = self.memory.clone();
        let cancel = CancellationToken::new();
        let sent = self.loader.try_send(voice, cancel, move |loaded| {
            let loaded = loaded.map_err(super::reason);
            let loaded = loaded.and_then(|loaded| loaded.map_err(super::reason));
            // If it has failed, whoever needs it next has it loaded again.
            memory.lock().loading.remove(&voice);
            outcome.send_replace(Some(loaded));
        });
        if sent.is_ok() {
            state.loading.insert(voice, loading.clone());
        }
        Err(loading)
    }

    /// Loads the voice on this thread, before the server has started.
    pub(super) fn now(&self, voice: usize) -> Result<Loaded, TtsError> {
        self.memory.load(voice)
    }
}

impl State {
    fn used(&mut self, voice: usize) -> Option<Loaded> {
        self.now += 1;
        let slot = self.loaded.get_mut(voice)?;
        // A panic may have left it broken.
        if slot.as_ref().is_some_and(|(_, voice)| voice.is_poisoned()) {
            *slot = None;
        }
        let (used, found) = slot.as_mut()?;
        *used = self.now;
        Some(found.clone())
    }
}

impl Memory {
    fn used(&self, voice: usize) -> Option<Loaded> {
        self.lock().used(voice)
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
    use futures_util::future::{join, join_all};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::sync_channel;

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

    /// It was queued for each of them: those for whom there was no room were refused, and their clauses failed.
    #[tokio::test]
    async fn a_voice_is_loaded_once_for_all_who_need_it_and_again_if_that_failed() {
        let (goes_on, held) = sync_channel::<()>(0);
        let (held, loads) = (Mutex::new(held), Arc::new(AtomicUsize::new(0)));
        let count = loads.clone();
        let load = move || {
            // Blocks until all wait.
            let _ = held.lock().unwrap().recv();
            match count.fetch_add(1, Ordering::Relaxed) {
                0 => Err(TtsError::Run("the disk is busy".into())),
                _ => Ok(Box::new(Scripted::new()) as Box<dyn Tts>),
            }
        };
        let shelf = Shelf::start(vec![OnDemand::of(&Scripted::new(), load)], 10).unwrap();
        let all = || join_all((0..100).map(|_| shelf.voice(0)));
        let (failed, ()) = join(all(), async { drop(goes_on) }).await;
        for each in failed {
            let error = each.err().unwrap();
            assert!(error.contains("the disk is busy"), "{error}");
        }
        assert!(all().await.iter().all(Result::is_ok));
        assert_eq!(loads.load(Ordering::Relaxed), 2);
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
