//! A voice on a service, with a local one as fallback. If the service fails or is late, the local voice says
//! the clause, or what is left of it, and the rest of the answer: one answer has at most two voices.

use super::clause::TakeChunk;
use super::local_voice::LocalVoice;
use super::reason;
use super::source::{Report, Source, Trouble};
use super::voices::Wanted;
use crate::audio::Resampler;
use crate::conversation::{Micros, spoken_length};
use crate::tts::{Piece, SpeechStream, TtsError, TtsService, TtsSession};
use futures_util::future::{BoxFuture, OptionFuture};
use futures_util::{FutureExt, StreamExt};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::time::{timeout, timeout_at};

/// A clause that the user hears only later may take longer, but the local voice needs this much time.
const LOCAL_LEAD: Duration = Duration::from_millis(300);

/// How long the voice may be silent within a clause after the user has heard all of it so far.
const GAP: Duration = Duration::from_millis(150);

/// The silence that may lie behind a word whose end is known.
const PAUSE: Micros = Micros::from_ms(300);

/// The timeout of preparing a phrase.
const PREPARED_IN: Duration = Duration::from_secs(10);

/// One session's voice on a service.
pub(super) struct RemoteVoice {
    session: Box<dyn TtsSession>,
    /// Hz.
    rate: u32,
    source: Arc<Source>,
    /// Says what the service does not.
    local: LocalVoice,
    report: Report,
    /// The local voice says the rest of this answer.
    is_local: Arc<AtomicBool>,
    /// Resolves when it is certain which voice completes the last clause. Until then the next one waits: it
    /// may have to have another voice.
    decided: Option<oneshot::Receiver<()>>,
}

impl RemoteVoice {
    /// Opens the service for one session.
    pub(super) fn open(
        service: &dyn TtsService,
        language: Option<&str>,
        source: &Arc<Source>,
        local: LocalVoice,
        report: Report,
    ) -> Self {
        Self {
            session: service.open_at(language, local.speed),
            rate: service.sample_rate(),
            source: source.clone(),
            local,
            report,
            is_local: Arc::default(),
            decided: None,
        }
    }

    /// Samples per second of its audio, Hz.
    pub(super) fn rate(&self) -> u32 {
        self.rate
    }

    /// Whether the local voice speaks.
    pub(super) fn is_local(&self) -> bool {
        self.is_local.load(Relaxed) || !self.source.is_up()
    }

    /// Whether the local voice speaks and has to be loaded first.
    pub(super) fn loads(&self) -> bool {
        self.is_local() && self.local.loads()
    }

    /// Begins the next answer: the service speaks again.
    pub(super) fn next_answer(&mut self) {
        self.is_local = Arc::default();
    }

    /// Synthesises a clause at the service's rate.
    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: how long users wait is measured in real time"
    )]
    pub(super) fn speak(
        &mut self,
        wanted: Wanted,
        chunk: TakeChunk,
    ) -> BoxFuture<'static, Result<(), String>> {
        let speech = (!self.is_local()).then(|| self.session.speak(&wanted.text));
        let (decide, decided) = oneshot::channel();
        let before = self.decided.replace(decided);
        let clause = Clause {
            heard_until: wanted.needed,
            wanted,
            made: 0,
            word_ends: Vec::new(),
            rate: self.rate,
            chunk,
            began: Instant::now(),
            source: self.source.clone(),
            local: self.local.clone(),
            report: self.report.clone(),
            is_local: self.is_local.clone(),
        };
        clause.spoken(speech, before, decide).boxed()
    }

    /// Has the service say a phrase that is kept. `None` if it fails.
    pub(super) async fn prepare(&mut self, text: &str) -> Option<Vec<f32>> {
        let speech = self.session.speak(text);
        let all = async {
            let pieces: Vec<_> = speech.collect().await;
            let samples = pieces.into_iter().map(|piece| Ok(piece?.samples));
            let samples: Result<Vec<Vec<f32>>, TtsError> = samples.collect();
            samples.map(|samples| samples.concat())
        };
        let all = AssertUnwindSafe(all).catch_unwind();
        let trouble = match timeout(PREPARED_IN, all).await {
            Ok(Ok(Ok(clip))) => return Some(clip),
            Ok(Ok(Err(error))) => error.into(),
            Ok(Err(_)) => Trouble::Failed("the voice panicked".into()),
            Err(_) => Trouble::Late(PREPARED_IN),
        };
        self.source.failed(&trouble);
        None
    }
}

/// Probes a service with a single word, up to the first audio.
pub(super) fn try_out(service: &dyn TtsService) -> BoxFuture<'static, Result<(), Trouble>> {
    let mut session = service.open(None);
    let mut speech = session.speak("Hello.");
    async move {
        let _open = session;
        loop {
            match speech.next().await {
                Some(Ok(piece)) if piece.samples.is_empty() => {}
                Some(Ok(_)) => return Ok(()),
                Some(Err(error)) => return Err(error.into()),
                None => return Err(Trouble::Failed("it made no sound".into())),
            }
        }
    }
    .boxed()
}

impl From<TtsError> for Trouble {
    fn from(error: TtsError) -> Self {
        match error {
            TtsError::Denied(_) => Self::Denied(reason(error)),
            error => Self::Failed(reason(error)),
        }
    }
}

/// A clause that is being made.
struct Clause {
    wanted: Wanted,
    /// When the user will have heard everything so far, this clause included.
    heard_until: Instant,
    /// Samples so far.
    made: usize,
    /// When its first words end, if the service tells it.
    word_ends: Vec<Micros>,
    /// Hz.
    rate: u32,
    chunk: TakeChunk,
    began: Instant,
    source: Arc<Source>,
    local: LocalVoice,
    report: Report,
    is_local: Arc<AtomicBool>,
}

impl Clause {
    async fn spoken(
        mut self,
        speech: Option<SpeechStream>,
        before: Option<oneshot::Receiver<()>>,
        decide: oneshot::Sender<()>,
    ) -> Result<(), String> {
        let mut trouble = None;
        if let Some(mut speech) = speech {
            let first = self.first(&mut speech).await;
            if let Some(before) = before {
                // If the clause before was dropped, nobody waits for it.
                let _ = before.await;
            }
            self.take_time();
            let begun = match first {
                Ok(_) if self.is_local.load(Relaxed) => Ok(()),
                Ok(piece) => match self.rest(piece, &mut speech).await {
                    Ok(()) => return Ok(()),
                    Err(trouble) => Err(trouble),
                },
                Err(trouble) => Err(trouble),
            };
            if let Err(what) = begun {
                // Several clauses may have been under way: an answer fails once.
                if !self.is_local.swap(true, Relaxed) {
                    (self.report)(self.source.failed(&what));
                }
                trouble = Some(what);
            }
        }
        drop(decide);
        self.said_here().await.map_err(|failure| match trouble {
            Some(trouble) => format!("{trouble}; then the local one: {failure}"),
            None => failure,
        })
    }

    /// Waits for the first sound.
    async fn first(&mut self, speech: &mut SpeechStream) -> Result<Piece, Trouble> {
        let deadline = self.source.deadline();
        let due = |clause: &Self| {
            let due = clause.began + deadline;
            let late = clause.wanted.needed.checked_sub(LOCAL_LEAD);
            late.map_or(due, |late| due.max(late))
        };
        let mut first = Piece::default();
        loop {
            match self.next(speech, due, deadline).await? {
                Some(piece) => {
                    first.append(piece);
                    if !first.samples.is_empty() {
                        self.source.took(self.began.elapsed());
                        return Ok(first);
                    }
                }
                None => return Err(Trouble::Failed("it made no sound".into())),
            }
        }
    }

    /// Passes the clause on, from its first sound to its end.
    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: what the user has heard is a matter of real time"
    )]
    async fn rest(&mut self, first: Piece, speech: &mut SpeechStream) -> Result<(), Trouble> {
        let mut piece = first;
        loop {
            let samples = piece.samples.len();
            let length = Duration::from_secs_f64(samples as f64 / f64::from(self.rate));
            self.made += samples;
            self.word_ends.extend(&piece.word_ends);
            self.heard_until = self.heard_until.max(Instant::now()) + length;
            if (self.chunk)(piece).is_break() {
                return Ok(());
            }
            let due = |clause: &Self| clause.heard_until + GAP;
            let Some(more) = self.next(speech, due, GAP).await? else {
                let characters = self.wanted.text.chars().count();
                let usual = self.local.speed.usual(self.made());
                self.source.said(characters, usual.duration());
                return Ok(());
            };
            piece = more;
        }
    }

    /// The next piece of audio, by `due`; `None` at the end.
    async fn next(
        &mut self,
        speech: &mut SpeechStream,
        due: impl Fn(&Self) -> Instant,
        patience: Duration,
    ) -> Result<Option<Piece>, Trouble> {
        loop {
            let piece = AssertUnwindSafe(speech.next()).catch_unwind();
            let piece = timeout_at(due(self).into(), piece);
            let sooner = OptionFuture::from(self.wanted.sooner.as_mut());
            tokio::select! {
                biased;
                Some(needed) = sooner => {
                    self.wanted.sooner = None;
                    // If nobody can need it any more, it is stopped anyway.
                    if let Ok(needed) = needed {
                        self.needed_at(needed);
                    }
                }
                piece = piece => return match piece {
                    Ok(Ok(piece)) => piece.transpose().map_err(Trouble::from),
                    Ok(Err(_)) => Err(Trouble::Failed("the voice panicked".into())),
                    Err(_) => Err(Trouble::Late(patience)),
                },
            }
        }
    }

    /// Takes in when the clause is needed, if that has been told by now.
    fn take_time(&mut self) {
        let sooner = self.wanted.sooner.as_mut();
        if let Some(needed) = sooner.and_then(|sooner| sooner.try_recv().ok()) {
            self.wanted.sooner = None;
            self.needed_at(needed);
        }
    }

    fn needed_at(&mut self, needed: Instant) {
        self.wanted.needed = needed;
        self.heard_until = needed + self.made().duration();
    }

    fn made(&self) -> Micros {
        Micros::of_samples(self.made as u64, self.rate)
    }

    /// Has the local voice say the rest of the clause.
    async fn said_here(self) -> Result<(), String> {
        let (text, since) = behind(&self.wanted.text, &self.word_ends, self.made());
        let usual = self.local.speed.usual(since);
        let text = left(text, usual, self.source.character());
        if text.is_empty() {
            return Ok(());
        }
        let wanted = Wanted {
            text: text.to_owned(),
            needed: self.heard_until,
            asked: self.wanted.asked.filter(|_| self.made == 0),
            sooner: None,
        };
        let resampler = Resampler::new(self.local.rate, self.rate);
        let output = Arc::new(Mutex::new((resampler, self.chunk)));
        let resampled = output.clone();
        let chunk: TakeChunk = Box::new(move |piece| {
            let (resampler, chunk) = &mut *lock(&resampled);
            chunk(resampler.push(&piece.samples).into())
        });
        self.local.speak(wanted, chunk).await?;
        let (resampler, chunk) = &mut *lock(&output);
        let _ = chunk(resampler.flush().into());
        Ok(())
    }
}

fn lock<T>(shared: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The words of a clause behind those that are known to have ended in its first `made`, and how much of that may have other
/// words of them: none if the end of the next word is known. A voice that says other words than those of the text tells no
/// more ends.
fn behind<'a>(text: &'a str, word_ends: &[Micros], made: Micros) -> (&'a str, Micros) {
    let ended = word_ends.iter().take_while(|end| **end <= made).count();
    let mut rest = text.trim_start();
    for _ in 0..ended {
        let word = rest.find(char::is_whitespace).unwrap_or(rest.len());
        rest = rest[word..].trim_start();
    }
    let since = match word_ends.last() {
        None => made,
        Some(last) => Micros(made.0.saturating_sub(last.0 + PAUSE.0)),
    };
    (rest, since)
}

/// The words of a clause that are not in its first `made`, at the usual speed, for a voice that takes `character` for
/// a character. In doubt a word is said twice.
fn left(text: &str, made: Micros, character: Option<Duration>) -> &str {
    let characters = text.chars().count();
    let all = character.map_or(0.0, |each| each.as_secs_f64() * characters as f64);
    let all = all.max(spoken_length(text).duration().as_secs_f64());
    let said = (characters as f64 * made.duration().as_secs_f64() / all) as usize;
    if said >= characters {
        return "";
    }
    let ends = text.char_indices().enumerate();
    let ends = ends.filter(|(_, (_, c))| c.is_whitespace());
    let end = ends.take_while(|(nth, _)| *nth <= said).last();
    text[end.map_or(0, |(_, (at, _))| at)..].trim_start()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_local_voice_goes_on_at_a_whole_word() {
        let text = "It is nineteen degrees in Berlin.";
        let after = |share: f64| {
            let all = spoken_length(text).0 as f64;
            left(text, Micros((all * share) as u64), None)
        };
        assert_eq!(after(0.0), text);
        assert_eq!(after(0.05), text);
        assert_eq!(after(0.3), "nineteen degrees in Berlin.");
        assert_eq!(after(0.5), "degrees in Berlin.");
        assert_eq!(after(0.95), "Berlin.");
        assert_eq!(after(1.0), "");
    }

    #[test]
    fn words_whose_end_is_known_are_not_said_again() {
        let text = "It is  nineteen degrees.";
        let ends: Vec<Micros> = [200, 400, 2_000].map(Micros::from_ms).into();
        let after = |ms| left_of(text, &ends, Micros::from_ms(ms));
        assert_eq!(after(399), "is  nineteen degrees.");
        assert_eq!(after(1_999), "nineteen degrees.");
        assert_eq!(after(2_000), "degrees.");
        // A pause.
        assert_eq!(after(2_300), "degrees.");
        assert_eq!(left_of("It is.", &ends, Micros::from_ms(2_000)), "");
    }

    fn left_of<'a>(text: &'a str, ends: &[Micros], made: Micros) -> &'a str {
        let (rest, since) = behind(text, ends, made);
        left(rest, since, None)
    }

    /// The voice said "five dollars" for "$5" and told no more ends, and all from "$5" on was said again.
    #[test]
    fn behind_the_last_known_end_of_a_word_what_was_said_is_estimated() {
        let text = "It costs $5 a day and you can cancel anytime online.";
        let ends: Vec<Micros> = [200, 600].map(Micros::from_ms).into();
        let after = |ms| left_of(text, &ends, Micros::from_ms(ms));
        assert_eq!(after(600), "$5 a day and you can cancel anytime online.");
        assert_eq!(after(2_300), "cancel anytime online.");
        assert_eq!(after(3_500), "online.");
    }

    #[test]
    fn a_slow_voice_has_said_less() {
        let text = "It is nineteen degrees in Berlin.";
        let made = Micros(spoken_length(text).0 / 2);
        let slow = Duration::from_millis(250);
        assert_eq!(
            left(text, made, Some(slow)),
            "is nineteen degrees in Berlin."
        );
    }
}
