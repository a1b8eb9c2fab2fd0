//! The description of this server for the page at `/`.

use crate::conversation::Verdict;
use crate::tools::Declaration;
use futures_util::future::BoxFuture;
use std::sync::Arc;
use tokio::sync::OnceCell;

/// Speaks a text: a WAV file of mono PCM16 at 24 kHz; `None` if the voice cannot.
pub type Say = Arc<dyn Fn(String) -> BoxFuture<'static, Option<Vec<u8>>> + Send + Sync>;

/// The description of this server for the page.
#[derive(Clone, Default)]
pub struct Playground {
    /// The tools, and how far each may go before it is committed.
    pub tools: Vec<(Arc<Declaration>, Verdict)>,
    /// Audio before the first sound of speech that counts as speech, ms.
    pub pre_roll_ms: u64,
    /// Questions that a visitor without a microphone may play.
    pub questions: Vec<Question>,
    /// Speaks them. Without it there are none.
    pub say: Option<Say>,
}

/// A question to be played.
#[derive(Debug, Clone)]
pub struct Question {
    pub(super) text: String,
    /// Its audio, once somebody has asked for it.
    pub(super) wav: Arc<OnceCell<bytes::Bytes>>,
}

impl Question {
    /// A question in these words.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            wav: Arc::default(),
        }
    }
}
