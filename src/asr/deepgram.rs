//! Deepgram's streaming recognisers: they receive the user's audio while they speak, so at a pause only the last words
//! are missing. One connection for each session, opened when the session begins: to `/v1/listen`, or with a model of
//! Flux, which also judges when the user's turn is over, to `/v2/listen`.

mod connection;
mod flux;
mod transcript;

use super::keyterms::Budget;
use super::{AsrError, AsrService, AsrSession, Hints, TellTurn, Utterance};
use crate::backend::Backend;
use crate::backend::socket::Lost;
use crate::language::{ENGLISH, code};
use crate::time::Samples;
use connection::{Connection, Progress, Shared};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use secrecy::SecretString;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::Instrument;
use transcript::Transcript;
use url::Url;

/// The version of Deepgram's interface that a model speaks, as it ends addresses.
pub fn version(model: &str) -> &'static str {
    match flux::is_flux(model) {
        true => "v2",
        false => "v1",
    }
}

/// The address of Deepgram for a model.
pub fn base_url(model: &str) -> &'static str {
    match flux::is_flux(model) {
        true => "https://api.deepgram.com/v2",
        false => "https://api.deepgram.com/v1",
    }
}

/// How long final results are waited for. After that, interim ones are used: Deepgram does not always
/// confirm `Finalize`. It is shorter than a session's own margin over the time that most results take.
const SETTLING: Duration = Duration::from_millis(120);

/// The most that keyterms cost: nova-3 refuses more than 500 tokens of them, which cost some 1,750. The rest is for
/// names that take more tokens than others.
const MOST_KEYTERMS: usize = 1_500;

/// The cost of a keyterm in bytes of common words, of which a token has 3.5: digits and capitals take more tokens, and
/// each term two of its own.
fn cost(term: &str) -> usize {
    let letters = term.chars().map(|c| match c {
        c if c.is_ascii_digit() || c.is_uppercase() => 3,
        c => c.len_utf8(),
    });
    letters.sum::<usize>() + 7
}

/// Silence, ms, behind audio that nobody speaks live, so that Flux transcribes all of it: it does so in steps of 250 ms.
const SILENCE_MS: u64 = 500;

/// The timeout of connecting, TLS included.
const CONNECT: Duration = Duration::from_secs(3);

/// The longest silence of the server before it has opened a connection.
const STALLED: Duration = Duration::from_secs(5);

/// The service's address and the parameters of connections.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The address up to and including [`version`].
    pub base_url: Url,
    /// The model's name there, such as `nova-3` or `flux-general-en`.
    pub model: String,
    /// Sent as `Authorization: Token KEY`. Never shown.
    pub api_key: Option<SecretString>,
}

/// The recogniser.
pub struct Deepgram {
    backend: Arc<Backend>,
    model: String,
    keyterms: Budget,
}

impl Deepgram {
    /// Sets up the client; connects to nothing.
    ///
    /// # Errors
    /// [`AsrError::Run`] if the address or the key cannot be used.
    pub fn new(settings: Settings) -> Result<Self, AsrError> {
        let Settings {
            base_url,
            model,
            api_key,
        } = settings;
        let backend = Backend::new(base_url, api_key, CONNECT, STALLED);
        // Flux takes as many as there can be, of any length.
        let most = match flux::is_flux(&model) {
            true => usize::MAX,
            false => MOST_KEYTERMS,
        };
        Ok(Self {
            backend: Arc::new(backend.map_err(AsrError::Run)?),
            model,
            keyterms: Budget::of(most, cost),
        })
    }
}

impl AsrService for Deepgram {
    /// A model of Flux that takes no hints of the language is made for English.
    fn hears(&self, language: &str) -> bool {
        let any = !flux::is_flux(&self.model) || flux::takes_languages(&self.model);
        any || language == ENGLISH
    }

    fn open(&self, hints: &Hints) -> Box<dyn AsrSession> {
        let shared = Arc::<Shared>::default();
        let (heard, results) = watch::channel(Progress::default());
        let connection = Connection {
            backend: self.backend.clone(),
            model: self.model.clone(),
            language: hints.language.as_deref().map(code),
            keyterms: self.keyterms.first(&hints.keyterms, &self.model).into(),
            shared: shared.clone(),
            heard,
        };
        tokio::spawn(connection.run().in_current_span());
        Box::new(Session {
            shared,
            results,
            listens: false,
            is_flux: flux::is_flux(&self.model),
        })
    }
}

struct Session {
    shared: Arc<Shared>,
    results: watch::Receiver<Progress>,
    /// Whether it has received the user's audio while they spoke.
    listens: bool,
    is_flux: bool,
}

impl AsrSession for Session {
    fn so_far(&self, part: &Utterance) -> Option<String> {
        let heard = self.results.borrow();
        let is_there = heard.lost.is_none();
        is_there.then(|| heard.transcript.so_far(part.from, part.to()))?
    }

    fn can_hear(&self, part: &Utterance) -> bool {
        let begins = self.results.borrow().transcript.from();
        !self.listens || (begins <= part.from && self.shared.has(part.from, part.to()))
    }

    fn listen(&mut self, from: Samples, audio: &[f32]) {
        self.listens = true;
        self.shared.push(from, audio);
    }

    fn tell_turns(&mut self, tell: TellTurn) {
        self.shared.tell_turns(tell);
    }

    fn transcribe(&mut self, part: Utterance) -> BoxFuture<'static, Result<String, AsrError>> {
        let (mut from, mut to) = (part.from, part.to());
        if !self.listens {
            from = self.shared.end();
            to = Samples(from.0 + part.audio.len() as u64);
            self.shared.push(from, &part.audio);
            if self.is_flux {
                let silence = vec![0.0; Samples::from_ms(SILENCE_MS).0 as usize];
                self.shared.push(to, &silence);
            }
        }
        self.shared.finalize(to);
        let results = self.results.clone();
        let unanswered = Unanswered(Some(self.shared.clone()));
        async move {
            let heard = words(results, from, to).await;
            unanswered.settle();
            heard.map_err(|lost| match lost {
                Lost::Denied(reason) => AsrError::Denied(reason),
                Lost::Failed(reason) => AsrError::Run(reason),
            })
        }
        .boxed()
    }
}

/// Waits for the words between two positions until they are final, or for [`SETTLING`] and then takes interim ones.
async fn words(
    mut results: watch::Receiver<Progress>,
    from: Samples,
    to: Samples,
) -> Result<String, Lost> {
    let settled = first(&mut results, |heard| {
        heard.words(from, to, Transcript::settled)
    });
    if let Ok(words) = timeout(SETTLING, settled).await {
        return words;
    }
    first(&mut results, |heard| {
        heard.words(from, to, Transcript::known)
    })
    .await
}

/// Waits until `read` finds something, and returns that.
async fn first(
    results: &mut watch::Receiver<Progress>,
    read: impl Fn(&Progress) -> Option<Result<String, Lost>>,
) -> Result<String, Lost> {
    loop {
        if let Some(words) = read(&results.borrow_and_update()) {
            return words;
        }
        if results.changed().await.is_err() {
            return Err(Lost::Failed("the session is over".into()));
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// Dropped when nobody waits for an answer any more. If none came, the connection may be dead although it takes
/// audio, so it is replaced.
struct Unanswered(Option<Arc<Shared>>);

impl Unanswered {
    fn settle(mut self) {
        self.0 = None;
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if let Some(shared) = self.0.take() {
            shared.replace();
        }
    }
}
