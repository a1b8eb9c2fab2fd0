//! Speech recognition: 16 kHz mono samples in, text out.

mod by_language;
mod decode;
pub mod deepgram;
mod detect;
pub mod keyterms;
pub mod openai;
mod silence;
mod tokens;
mod whisper_cpp;
mod whisper_layout;
mod whisper_onnx;

pub use by_language::ByLanguage;
pub use decode::MAX_SAMPLES;
pub use whisper_cpp::WhisperCpp;
pub use whisper_layout::WhisperLayout;
pub use whisper_onnx::WhisperOnnx;

use crate::language::{ENGLISH, Marks, base};
use crate::models::ModelsError;
use crate::time::Samples;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// An error of a recogniser.
#[derive(Debug, thiserror::Error)]
pub enum AsrError {
    /// The model could not be loaded; names file and reason.
    #[error("cannot load the speech recogniser from {path}: {reason}")]
    Load {
        /// The file.
        path: String,
        /// The reason.
        reason: String,
    },
    /// The model was not downloaded; names the command that does.
    #[error("the speech recogniser cannot be loaded: {0}")]
    Missing(#[from] ModelsError),
    /// The model failed while running.
    #[error("speech recognition failed: {0}")]
    Run(String),
    /// The service refuses the key.
    #[error("speech recognition was denied: {0}")]
    Denied(String),
}

/// A speech recogniser. Lives on one thread, which owns it, and serves all sessions. A server may have several of the
/// same model.
pub trait Asr: Send {
    /// A short name for logs: the engine and the model.
    fn name(&self) -> &str;

    /// Transcribes `audio`: 16 kHz mono in -1..1, at most [`MAX_SAMPLES`] (what is over is cut off at
    /// the end). Returns plain text without bracketed sounds; empty if there is no speech.
    ///
    /// # Errors
    /// [`AsrError::Run`] if the model fails.
    fn transcribe(&mut self, audio: &[f32]) -> Result<String, AsrError>;

    /// Like [`Asr::transcribe`], with what else the model knows.
    ///
    /// # Errors
    /// [`AsrError::Run`] if the model fails.
    fn hear(&mut self, audio: &[f32]) -> Result<Recognised, AsrError> {
        self.transcribe(audio).map(Recognised::from)
    }

    /// Like [`Asr::hear`], with what is known of the speech beforehand. If one of [`Hints::others`] may be spoken, says
    /// in [`Recognised::language`] which one it was, if it can tell them apart.
    ///
    /// # Errors
    /// [`AsrError::Run`] if the model fails.
    fn hear_with(&mut self, audio: &[f32], hints: &Hints) -> Result<Recognised, AsrError> {
        let _ = hints;
        self.hear(audio)
    }

    /// The languages that it knows, BCP 47 tags without regions.
    fn languages(&self) -> Vec<String> {
        vec![ENGLISH.to_owned()]
    }
}

/// Facts on a user's speech that are known before it is heard.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hints {
    /// The language so far, a BCP 47 tag. If `None`, models take it for English, and services decide.
    pub language: Option<String>,
    /// Others that may be spoken now and are detected by models that can.
    pub others: Arc<[String]>,
    /// Words that are likely to be said and unlikely to be known, such as names.
    pub keyterms: Arc<[String]>,
    /// The user speaks on. Recognisers that would have to try again return no words instead, because the next audio comes
    /// sooner.
    pub partial: bool,
    /// The words that were heard when the same audio was shorter. A decoder that checks them takes less time than one
    /// that writes them anew.
    pub so_far: Option<String>,
}

impl Hints {
    /// Speech in this language.
    pub fn language(tag: &str) -> Self {
        Self {
            language: Some(tag.to_owned()),
            ..Self::default()
        }
    }

    /// Whether it is open which language was spoken in audio of `samples` samples at 16 kHz that was heard like this, so
    /// that more of it may decide otherwise.
    pub fn leave_open(&self, heard: &Recognised, samples: usize) -> bool {
        let expected = base(self.language.as_deref().unwrap_or(ENGLISH));
        let is_other = |language: &String| base(language) != expected;
        let is_short = samples < detect::SHORTEST && !self.others.is_empty();
        is_short || heard.language.as_ref().is_some_and(is_other)
    }
}

/// Warns once for each language that a recogniser takes it for English, although several threads may have one.
fn warn_of_only_english(recogniser: &str, language: Option<&str>) {
    static WARNED: Mutex<BTreeSet<(String, String)>> = Mutex::new(BTreeSet::new());
    let Some(language) = language.map(base).filter(|base| base != ENGLISH) else {
        return;
    };
    let mut warned = WARNED.lock().unwrap_or_else(PoisonError::into_inner);
    let is_new =
        warned.len() < MOST_WARNINGS && warned.insert((recogniser.to_owned(), language.clone()));
    drop(warned);
    if is_new {
        tracing::warn!(recogniser, language, "the recogniser knows English only");
    }
}

/// The most languages to warn of, since clients choose them.
const MOST_WARNINGS: usize = 64;

/// A transcript, with what else the recogniser knows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recognised {
    /// Plain text without bracketed sounds; empty if there is no speech.
    pub text: String,
    /// The probabilities of punctuation after the last word, if the engine has them.
    pub marks: Option<Marks>,
    /// The reason why there is no text although the model heard words.
    pub doubt: Option<Doubt>,
    /// The language of the words, a BCP 47 tag, if it was one of several.
    pub language: Option<String>,
    /// Whether these words of a user who still speaks have to be heard again at the next pause, however complete they
    /// are: a service hears them then, or they are in another language than expected.
    pub provisional: bool,
}

/// The reason for which a recogniser's words are not trusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Doubt {
    /// The sound may not be speech; if it is, these are the words.
    NoSpeech(String),
    /// The words are unclear.
    Unclear,
}

impl From<String> for Recognised {
    fn from(text: String) -> Self {
        Self {
            text,
            ..Self::default()
        }
    }
}

impl From<&str> for Recognised {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

/// The verdict of a recogniser that judges turns on the user's: whether they are done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnState {
    /// They have spoken and may go on.
    Open,
    /// They are probably done.
    PerhapsOver,
    /// They go on, although they were probably done.
    Resumed,
    /// They are done.
    Over,
}

/// A recogniser's report on the user's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnReport {
    /// The verdict.
    pub state: TurnState,
    /// End of the audio that it is about.
    pub to: Samples,
}

/// Called with each report on the user's turn.
pub type TellTurn = Arc<dyn Fn(TurnReport) + Send + Sync>;

/// An asynchronous speech recogniser, such as one on a remote server. It is opened for each session that
/// chooses it, so no session waits for another.
pub trait AsrService: Send + Sync {
    /// Opens it for one session, within a Tokio runtime. Returns at once; the connection is made in the
    /// background.
    fn open(&self, hints: &Hints) -> Box<dyn AsrSession>;

    /// Whether it knows a language, a primary tag. Most services know more than this server has packs for.
    fn hears(&self, language: &str) -> bool {
        let _ = language;
        true
    }
}

/// One session with an [`AsrService`]. Dropping it closes the connection.
pub trait AsrSession: Send {
    /// The words so far of a part that the user is still speaking, for services that hear along. If `None`, the
    /// local recogniser transcribes the part: to others it would be one more request.
    fn so_far(&self, part: &Utterance) -> Option<String> {
        let _ = part;
        None
    }

    /// Whether it can transcribe this part. A streaming service cannot if it has missed some of it. Then
    /// the local recogniser does, and nothing has failed.
    fn can_hear(&self, part: &Utterance) -> bool {
        let _ = part;
        true
    }

    /// Receives the user's audio as it arrives, for streaming services: 16 kHz mono in -1..1, starting at
    /// the position `from` in the session. After a gap `from` is further on. Must not block.
    fn listen(&mut self, from: Samples, audio: &[f32]) {
        let _ = (from, audio);
    }

    /// From now on reports on the user's turn, for services that judge turns: from the first word to the end, at least
    /// every half second.
    fn tell_turns(&mut self, tell: TellTurn) {
        drop(tell);
    }

    /// Transcribes a part of the user's audio, whether or not it went through [`Self::listen`]. Dropping
    /// the future cancels the job.
    ///
    /// # Errors
    /// The future resolves to [`AsrError::Run`] if the service fails.
    fn transcribe(&mut self, part: Utterance) -> BoxFuture<'static, Result<String, AsrError>>;
}

/// Audio to transcribe.
#[derive(Debug, Clone, PartialEq)]
pub struct Utterance {
    /// The position of its first sample in the session; zero for audio that did not go through
    /// [`AsrSession::listen`].
    pub from: Samples,
    /// 16 kHz mono in -1..1.
    pub audio: Vec<f32>,
    /// The user is still speaking: a partial may miss words, and is better dropped than late.
    pub partial: bool,
}

impl Utterance {
    /// One past its last sample.
    pub fn to(&self) -> Samples {
        Samples(self.from.0 + self.audio.len() as u64)
    }
}
