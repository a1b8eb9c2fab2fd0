//! Speech synthesis: a clause in, audio out, chunk by chunk as it is asked for.

pub mod cartesia;
pub mod elevenlabs;
mod espeak;
mod formant;
mod kept;
mod kokoro;
mod on_demand;
pub mod openai;
mod pcm;
mod piper;
mod prepared;
mod scripted;
mod speed;
mod timing;
mod trim;

pub use formant::Formant;
pub use kept::Kept;
pub use kokoro::Kokoro;
pub use on_demand::{Loader, OnDemand};
pub use piper::Piper;
pub use prepared::Prepared;
pub use scripted::Scripted;
pub use speed::Speed;

use crate::language::{Pack, pack};
use crate::time::Micros;
use futures_util::stream::BoxStream;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A voice, the language that it speaks, and how fast.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Speaker {
    /// The name of one of the server's voices; the default voice if `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub voice: Option<String>,
    /// A BCP 47 tag; the voice's default language if `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// How fast it speaks; as usual if `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed: Option<Speed>,
}

impl Speaker {
    /// The rules of its language: English if it names none.
    #[must_use]
    pub fn pack(&self) -> &'static Pack {
        pack(self.language.as_deref())
    }

    /// This speaker in another language; `None` if it already speaks that.
    #[must_use]
    pub fn in_language(&self, language: &str) -> Option<Self> {
        let is_same = match &self.language {
            Some(own) => own == language,
            None => pack(Some(language)).is_english(),
        };
        (!is_same).then(|| Self {
            language: Some(language.to_owned()),
            ..self.clone()
        })
    }

    /// How fast it speaks.
    #[must_use]
    pub fn speed(&self) -> Speed {
        self.speed.unwrap_or_default()
    }

    /// Whether this is the server's default voice in its default language, at the usual speed.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// An error of a voice.
#[derive(Debug, thiserror::Error)]
pub enum TtsError {
    /// The voice could not be loaded; names file and reason.
    #[error("cannot load the voice from {path}: {reason}")]
    Load {
        /// The file.
        path: String,
        /// The reason.
        reason: String,
    },
    /// espeak-ng, which turns text into phonemes, does not run.
    #[error("espeak-ng does not run: {0}; install the package espeak-ng")]
    Phonemes(String),
    /// The model failed while running.
    #[error("speech synthesis failed: {0}")]
    Run(String),
    /// The service refuses the key.
    #[error("speech synthesis was denied: {0}")]
    Denied(String),
}

/// A voice. Lives on one thread, which owns it, and serves all sessions.
pub trait Tts: Send {
    /// A short name for logs: the engine and the voice.
    fn name(&self) -> &str;

    /// Samples per second of the audio it makes, Hz.
    fn sample_rate(&self) -> u32;

    /// The language that it speaks, a BCP 47 tag; `None` if it speaks any.
    fn language(&self) -> Option<&str> {
        None
    }

    /// Identifies what decides how a text sounds: the same for the same model and settings. `None` if
    /// clips of this voice are not worth keeping.
    fn fingerprint(&self) -> Option<String> {
        None
    }

    /// Begins to speak `text`, one clause. Several may be spoken at once, in turns.
    ///
    /// # Errors
    /// [`TtsError`] if it cannot begin.
    fn speak(&mut self, text: &str) -> Result<Speech, TtsError>;

    /// Begins to speak `text` at a speed. A voice with only one speed uses that.
    ///
    /// # Errors
    /// As [`Tts::speak`].
    fn speak_at(&mut self, text: &str, _: Speed) -> Result<Speech, TtsError> {
        self.speak(text)
    }
}

/// A clause that is being spoken: mono audio in -1..1, each chunk made when it is asked for. It is over
/// after an error; the chunks before it stay valid. Dropping it cancels the rest.
pub type Speech = Box<dyn Iterator<Item = Result<Vec<f32>, TtsError>> + Send>;

/// Speaks `text`, one clause, to its end.
///
/// # Errors
/// [`TtsError`] if the voice fails.
pub fn whole(tts: &mut dyn Tts, text: &str) -> Result<Vec<f32>, TtsError> {
    whole_at(tts, text, Speed::NORMAL)
}

/// Speaks `text`, one clause, to its end at a speed.
///
/// # Errors
/// As [`whole`].
pub fn whole_at(tts: &mut dyn Tts, text: &str, speed: Speed) -> Result<Vec<f32>, TtsError> {
    let chunks: Result<Vec<_>, _> = tts.speak_at(text, speed)?.collect();
    Ok(chunks?.concat())
}

/// Loads the local voice at `path`: a Kokoro voice if it ends in `.bin`, else a Piper voice.
///
/// # Errors
/// As [`Piper::load`] and [`Kokoro::load`].
pub fn load(path: &Path) -> Result<Box<dyn Tts>, TtsError> {
    Ok(match kokoro::is_voice(path) {
        true => Box::new(Kokoro::load(path)?),
        false => Box::new(Piper::load(path)?),
    })
}

/// The local voice at `path`, which is loaded when it is needed and may take so much `memory`, bytes.
///
/// # Errors
/// As [`Piper::on_demand`] and [`Kokoro::on_demand`], and [`TtsError::Load`] if it takes more.
pub fn on_demand(path: &Path, memory: u64) -> Result<OnDemand, TtsError> {
    let voice = match kokoro::is_voice(path) {
        true => Kokoro::on_demand(path),
        false => Piper::on_demand(path),
    }?;
    if voice.bytes > memory {
        return Err(TtsError::Load {
            path: path.display().to_string(),
            reason: format!(
                "it takes some {} MB, more than tts.memory_mb allows",
                voice.bytes.div_ceil(1024 * 1024)
            ),
        });
    }
    Ok(voice)
}

/// An asynchronous voice, such as one on a remote server. It is opened for each session that chooses it,
/// so no session waits for another.
pub trait TtsService: Send + Sync {
    /// Samples per second of the audio it makes, Hz.
    fn sample_rate(&self) -> u32;

    /// Opens it for one session, within a Tokio runtime. Returns at once; the connection is made in the
    /// background. `language` is a BCP 47 tag; if `None`, the voice's default.
    fn open(&self, language: Option<&str>) -> Box<dyn TtsSession>;

    /// Opens it for one session that wants a speed. A service without such a setting speaks at its own.
    fn open_at(&self, language: Option<&str>, _: Speed) -> Box<dyn TtsSession> {
        self.open(language)
    }
}

/// One session with a [`TtsService`]. Dropping it closes the connection.
pub trait TtsSession: Send {
    /// Starts to synthesise `text`, one clause. Several clauses may be in progress at once.
    fn speak(&mut self, text: &str) -> SpeechStream;
}

/// A piece of a clause's audio, and what is known of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Piece {
    /// Mono in -1..1.
    pub samples: Vec<f32>,
    /// When the clause's next words end, since its beginning, if the voice tells it: one for each word between
    /// spaces.
    pub word_ends: Vec<Micros>,
}

impl From<Vec<f32>> for Piece {
    fn from(samples: Vec<f32>) -> Self {
        Self {
            samples,
            word_ends: Vec::new(),
        }
    }
}

impl Piece {
    /// Appends the next piece of the same clause.
    pub fn append(&mut self, next: Self) {
        self.samples.extend(next.samples);
        self.word_ends.extend(next.word_ends);
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty() && self.word_ends.is_empty()
    }
}

/// The audio of a clause from a service, mono in -1..1. An error ends the stream; the chunks before it
/// stay valid. Dropping it cancels the rest.
pub type SpeechStream = BoxStream<'static, Result<Piece, TtsError>>;
