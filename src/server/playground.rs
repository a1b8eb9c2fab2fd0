//! The description of this server for the page at `/`.

use crate::conversation::Verdict;
use crate::tools::Declaration;
use futures_util::future::BoxFuture;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::OnceCell;

/// Synthesises a text in a language (a BCP 47 tag) into a WAV file, mono PCM16 at 24 kHz; `None` if the voice is busy or
/// has failed.
pub type Say = Arc<dyn Fn(String, String) -> BoxFuture<'static, Option<Vec<u8>>> + Send + Sync>;

/// The description of this server for the page.
#[derive(Clone, Default)]
pub struct Playground {
    /// The tools.
    pub tools: Vec<Offered>,
    /// Audio before the start of speech that is included in the utterance, ms.
    pub pre_roll_ms: u64,
    /// Questions that visitors without a microphone can play, in several languages.
    pub questions: Vec<Question>,
    /// Synthesises the questions; without it none are offered.
    pub say: Option<Say>,
    /// The languages that a visitor may choose, BCP 47 tags.
    pub languages: Vec<String>,
    /// The language of conversations for which none is chosen; `None` if it depends on the agent.
    pub language: Option<String>,
    /// The languages of the agents by their names, without regions.
    pub agent_languages: BTreeMap<String, String>,
}

/// A tool, as the page shows it.
#[derive(Debug, Clone)]
pub struct Offered {
    /// Its declaration.
    pub tool: Arc<Declaration>,
    /// The furthest that it may run before it is committed.
    pub verdict: Verdict,
    /// It belongs to the demonstration.
    pub demonstrates: bool,
}

/// A recorded question.
#[derive(Debug, Clone)]
pub struct Question {
    pub(super) text: String,
    /// The language of the text, a BCP 47 tag.
    pub(super) language: String,
    /// Played with and without running early, it demonstrates the difference.
    pub(super) demonstrates: bool,
    /// Its audio, once it has been requested.
    pub(super) wav: Arc<OnceCell<bytes::Bytes>>,
}

impl Question {
    /// A question with this text in this language, a BCP 47 tag.
    pub fn new(text: impl Into<String>, language: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            language: language.into(),
            demonstrates: false,
            wav: Arc::default(),
        }
    }

    /// Sets whether it demonstrates the difference that running early makes.
    #[must_use]
    pub fn demonstrating(mut self, demonstrates: bool) -> Self {
        self.demonstrates = demonstrates;
        self
    }
}
