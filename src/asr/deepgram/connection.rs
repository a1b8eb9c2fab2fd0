//! A session's connection to Deepgram: sends the audio and collects the results.

use super::flux;
use super::transcript::{Results, Transcript};
use crate::asr::{TellTurn, TurnReport};
use crate::audio::{Ring, to_i16, to_pcm16le};
use crate::backend::socket::{Lost, Socket};
use crate::backend::{Backend, KeyForm};
use crate::time::Samples;
use bytes::Bytes;
use serde::Deserialize;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;

const PATH: &str = "listen";

/// The most audio in a message, ms: Deepgram's advice is 20 to 250 ms.
const PIECE_MS: u64 = 250;

/// How much audio that was sent is kept, ms. A new connection begins with it, so that it knows the words of an
/// utterance in which the old one was lost.
const KEPT_MS: u64 = 10_000;

/// The interval of `KeepAlive` messages while no audio is sent. Deepgram closes a connection after 10 s without a
/// message, and advises 3 to 5 s.
const KEEP_ALIVE: Duration = Duration::from_secs(4);

/// The audio between two reports of Flux, and some more, ms.
const STEP_MS: u64 = 300;

/// How long after the last audio Flux is made to end the turn, if words are awaited. Live audio comes every 20 ms or so.
const STOPPED: Duration = Duration::from_millis(150);

/// The shortest and the longest wait between two connections.
const SHORTEST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// The transcript so far, and the fault if the connection is lost.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) transcript: Transcript,
    /// The reason why there is no connection now.
    pub(super) lost: Option<Lost>,
}

impl Progress {
    /// The words between two positions: those that `read` finds. `None` if they are still to come.
    pub(super) fn words(
        &self,
        from: Samples,
        to: Samples,
        read: fn(&Transcript, Samples, Samples) -> Option<String>,
    ) -> Option<Result<String, Lost>> {
        if let Some(lost) = &self.lost {
            return Some(Err(lost.clone()));
        }
        if from < self.transcript.from() {
            let reason = "the connection was lost within the utterance";
            return Some(Err(Lost::Failed(reason.into())));
        }
        read(&self.transcript, from, to).map(Ok)
    }
}

/// The audio of a session, for the task that sends it.
#[derive(Default)]
pub(super) struct Shared {
    audio: Mutex<Audio>,
    /// Told of the verdicts on the user's turn.
    turns: OnceLock<TellTurn>,
    /// Notified when there is something to do.
    news: Notify,
}

#[derive(Debug, Default)]
struct Audio {
    ring: Ring,
    /// Where audio without a gap begins.
    from: Samples,
    sent_to: Samples,
    /// The words up to here are wanted at once.
    finalize: Option<Samples>,
    /// Has the connection replaced.
    replace: bool,
    /// Whether the session is over.
    closed: bool,
}

/// The next step of the connection's task.
#[derive(Debug, PartialEq)]
enum Next {
    /// Send audio that begins at this position.
    Send(Samples, Vec<f32>),
    /// The words up to here are wanted at once.
    Finalize(Samples),
    Replace,
    Close,
    Wait,
}

impl Shared {
    /// Receives audio. If it does not begin where the last ended, a new connection is opened for it.
    pub(super) fn push(&self, from: Samples, samples: &[f32]) {
        let mut audio = self.lock();
        if audio.ring.end() != from {
            audio.ring = Ring::at(from);
            audio.from = from;
            audio.replace = audio.sent_to > Samples(0);
            audio.sent_to = from;
        }
        audio.ring.push(samples);
        let kept = audio.ring.end().minus_ms(KEPT_MS).min(audio.sent_to);
        audio.ring.forget_before(kept);
        drop(audio);
        self.news.notify_one();
    }

    /// One past the last sample.
    pub(super) fn end(&self) -> Samples {
        self.lock().ring.end()
    }

    /// Whether all of this audio was received.
    pub(super) fn has(&self, from: Samples, to: Samples) -> bool {
        let audio = self.lock();
        audio.from <= from && to <= audio.ring.end()
    }

    /// Asks for the words up to `to` at once.
    pub(super) fn finalize(&self, to: Samples) {
        self.lock().finalize = Some(to);
        self.news.notify_one();
    }

    /// From now on tells the verdicts on the user's turn.
    pub(super) fn tell_turns(&self, tell: TellTurn) {
        self.turns.get_or_init(|| tell);
    }

    /// Has the connection replaced.
    pub(super) fn replace(&self) {
        self.lock().replace = true;
        self.news.notify_one();
    }

    /// Notes that the session is over.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.news.notify_one();
    }

    /// Notes that a connection is about to be opened.
    fn begin(&self) {
        let mut audio = self.lock();
        let kept = audio.ring.end().minus_ms(KEPT_MS);
        audio.sent_to = kept.max(audio.ring.start());
        audio.replace = false;
    }

    fn next(&self) -> Next {
        let mut audio = self.lock();
        let (from, end) = (audio.sent_to, audio.ring.end());
        if audio.closed {
            return Next::Close;
        }
        if audio.replace || from < audio.ring.start() {
            return Next::Replace;
        }
        if let Some(to) = audio.finalize.take_if(|to| *to <= from) {
            return Next::Finalize(to);
        }
        let to = end.min(Samples(from.0 + Samples::from_ms(PIECE_MS).0));
        if to <= from {
            return Next::Wait;
        }
        audio.sent_to = to;
        Next::Send(from, audio.ring.range(from, to))
    }

    fn is_closed(&self) -> bool {
        self.lock().closed
    }

    fn lock(&self) -> MutexGuard<'_, Audio> {
        self.audio.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A message from Deepgram's `/v1/listen`.
#[derive(Deserialize)]
#[serde(tag = "type")]
enum Message {
    Results(Results),
    Error {
        #[serde(default)]
        description: String,
    },
    #[serde(other)]
    Other,
}

/// A session's connections, one after the other.
pub(super) struct Connection {
    pub(super) backend: Arc<Backend>,
    pub(super) model: String,
    /// The language's name at Deepgram; its model's default if `None`.
    pub(super) language: Option<String>,
    pub(super) keyterms: Arc<[String]>,
    pub(super) shared: Arc<Shared>,
    pub(super) heard: watch::Sender<Progress>,
}

/// The parameter for words that a model is to expect: those from before nova-3 have another.
fn boosted_by(model: &str) -> &'static str {
    let old = ["nova-2", "nova-general", "enhanced", "base"];
    match model == "nova" || old.iter().any(|old| model.starts_with(old)) {
        true => "keywords",
        false => "keyterm",
    }
}

impl Connection {
    /// Runs until the session is over or the key is refused.
    pub(super) async fn run(self) {
        let mut wait = SHORTEST_WAIT;
        loop {
            self.shared.begin();
            let Err(lost) = self.serve().await else {
                match self.shared.is_closed() {
                    true => return,
                    false => continue,
                }
            };
            tracing::debug!(%lost, "the connection to a recogniser is lost");
            wait = match self.heard.borrow().transcript.is_new() {
                true => (2 * wait).min(LONGEST_WAIT),
                false => SHORTEST_WAIT,
            };
            let is_denied = matches!(lost, Lost::Denied(_));
            self.heard.send_modify(|heard| heard.lost = Some(lost));
            if is_denied || self.nothing_more(wait).await {
                return;
            }
        }
    }

    /// Waits this long, and then for more audio. Returns whether the session is over.
    async fn nothing_more(&self, wait: Duration) -> bool {
        let end = self.shared.end();
        let mut over = pin!(sleep(wait));
        let mut waited = false;
        while !self.shared.is_closed() {
            if waited && self.shared.end() > end {
                return false;
            }
            tokio::select! {
                () = self.shared.news.notified() => {}
                () = &mut over, if !waited => waited = true,
            }
        }
        true
    }

    fn is_flux(&self) -> bool {
        flux::is_flux(&self.model)
    }

    fn query(&self) -> Vec<(&str, &str)> {
        let audio = [("encoding", "linear16"), ("sample_rate", "16000")];
        let mut query = vec![("model", self.model.as_str())];
        query.extend(audio);
        let language = self.language.as_deref();
        if self.is_flux() {
            query.push(("eager_eot_threshold", flux::EAGER));
            let hint = language.filter(|_| flux::takes_languages(&self.model));
            query.extend(hint.map(|tag| ("language_hint", tag)));
            query.extend(self.keyterms.iter().map(|term| ("keyterm", term.as_str())));
            return query;
        }
        query.extend([
            ("channels", "1"),
            ("interim_results", "true"),
            ("punctuate", "true"),
            // The session knows better when the user pauses.
            ("endpointing", "false"),
        ]);
        query.extend(language.map(|tag| ("language", tag)));
        let boosted = boosted_by(&self.model);
        query.extend(self.keyterms.iter().map(|term| (boosted, term.as_str())));
        query
    }

    /// One connection, until it is to be closed or replaced.
    async fn serve(&self) -> Result<(), Lost> {
        let request = self.backend.get_with(PATH, &self.query());
        let mut socket = Socket::open(&self.backend, request, KeyForm::Token).await?;
        let (mut begun, mut awaited) = (false, None);
        let patience = match self.is_flux() {
            true => STOPPED,
            false => KEEP_ALIVE,
        };
        let mut idle = pin!(sleep(patience));
        loop {
            match self.shared.next() {
                Next::Send(from, samples) => {
                    if !std::mem::replace(&mut begun, true) {
                        self.heard.send_modify(|heard| {
                            heard.transcript = Transcript::new(from);
                            heard.lost = None;
                        });
                    }
                    let bytes = Bytes::from(to_pcm16le(&to_i16(&samples)));
                    socket.send(bytes).await?;
                }
                Next::Finalize(to) if self.is_flux() => awaited = Some(to),
                Next::Finalize(_) => socket.send(r#"{"type":"Finalize"}"#).await?,
                Next::Close => {
                    socket.finish(r#"{"type":"CloseStream"}"#).await;
                    return Ok(());
                }
                Next::Replace => return Ok(()),
                Next::Wait => {
                    tokio::select! {
                        () = self.shared.news.notified() => {}
                        text = socket.next() => self.take(&socket, &text?)?,
                        () = idle.as_mut() => {
                            if !self.is_flux() {
                                socket.send(r#"{"type":"KeepAlive"}"#).await?;
                            } else if awaited.take().is_some_and(|to| !self.is_settled(to)) {
                                socket.send(flux::FORCE_END).await?;
                            }
                            idle.set(sleep(KEEP_ALIVE));
                        }
                    }
                    continue;
                }
            }
            idle.set(sleep(patience));
        }
    }

    /// Whether all audio up to here, after which none came, is transcribed. Flux reports in steps, and none ends where
    /// the audio does. Without a turn it has heard nothing since the last.
    fn is_settled(&self, to: Samples) -> bool {
        let mut is_settled = true;
        self.heard.send_if_modified(|heard| {
            let missing = to.since(heard.transcript.known_to());
            let is_silence = heard.transcript.is_between_turns();
            is_settled = missing == 0 || (is_silence && missing <= Samples::from_ms(STEP_MS).0);
            if is_settled {
                heard.transcript.is_transcribed_to(to);
            }
            is_settled && missing > 0
        });
        is_settled
    }

    /// Takes in a message.
    fn take(&self, socket: &Socket, text: &str) -> Result<(), Lost> {
        match self.is_flux() {
            true => self.take_turn(socket, text),
            false => self.take_results(socket, text),
        }
    }

    fn take_turn(&self, socket: &Socket, text: &str) -> Result<(), Lost> {
        let info = match serde_json::from_str(text) {
            Ok(flux::Message::TurnInfo(info)) => info,
            Ok(flux::Message::Error { code, description }) => {
                return Err(socket.failed(&format!("failed: {code} {description}")));
            }
            Ok(flux::Message::Other) => return Ok(()),
            Err(error) => return Err(socket.failed(&format!("sent what is no message: {error}"))),
        };
        let (mut verdict, mut to) = (None, Samples(0));
        self.heard.send_modify(|heard| {
            verdict = info.add_to(&mut heard.transcript);
            to = heard.transcript.known_to();
        });
        if let (Some(state), Some(tell)) = (verdict, self.shared.turns.get()) {
            tell(TurnReport { state, to });
        }
        Ok(())
    }

    fn take_results(&self, socket: &Socket, text: &str) -> Result<(), Lost> {
        match serde_json::from_str(text) {
            Ok(Message::Results(results)) => {
                self.heard
                    .send_modify(|heard| heard.transcript.push(results));
                Ok(())
            }
            Ok(Message::Error { description }) => {
                Err(socket.failed(&format!("failed: {description}")))
            }
            Ok(Message::Other) => Ok(()),
            Err(error) => Err(socket.failed(&format!("sent what is no message: {error}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Samples {
        Samples::from_ms(ms)
    }

    fn silence(ms: u64) -> Vec<f32> {
        vec![0.0; at(ms).0 as usize]
    }

    /// The steps of the connection until it has to wait: lengths in ms, "F" for `Finalize`.
    fn done(shared: &Shared) -> Vec<String> {
        let mut done = Vec::new();
        loop {
            done.push(match shared.next() {
                Next::Send(from, audio) => {
                    let end = Samples(from.0 + audio.len() as u64);
                    format!("{}-{}", from.as_ms(), end.as_ms())
                }
                Next::Finalize(_) => "F".into(),
                Next::Replace => "replace".into(),
                Next::Close => "close".into(),
                Next::Wait => return done,
            });
            if done
                .last()
                .is_some_and(|last| last == "replace" || last == "close")
            {
                return done;
            }
        }
    }

    #[test]
    fn audio_is_sent_as_it_comes_and_finalized_behind_the_part() {
        let shared = Shared::default();
        shared.push(at(0), &silence(20));
        assert_eq!(done(&shared), ["0-20"]);
        shared.push(at(20), &silence(400));
        shared.finalize(at(420));
        assert_eq!(done(&shared), ["20-270", "270-420", "F"]);
        assert_eq!(done(&shared), [""; 0]);
    }

    #[test]
    fn a_new_connection_hears_the_last_seconds_again() {
        let shared = Shared::default();
        shared.push(at(0), &silence(12_000));
        assert_eq!(done(&shared).len(), 48);
        shared.replace();
        assert_eq!(done(&shared), ["replace"]);
        shared.begin();
        assert_eq!(done(&shared)[0], "2000-2250");
        assert!(shared.has(at(0), at(12_000)));
    }

    #[test]
    fn what_was_not_sent_yet_is_kept() {
        let shared = Shared::default();
        for second in 0..20 {
            shared.push(at(1_000 * second), &silence(1_000));
        }
        assert_eq!(done(&shared)[0], "0-250");
    }

    #[test]
    fn audio_behind_a_gap_is_for_a_new_connection() {
        let shared = Shared::default();
        shared.push(at(0), &silence(100));
        assert_eq!(done(&shared), ["0-100"]);
        shared.push(at(500), &silence(100));
        assert_eq!(done(&shared), ["replace"]);
        shared.begin();
        assert_eq!(done(&shared), ["500-600"]);
        assert!(!shared.has(at(0), at(600)) && shared.has(at(500), at(600)));
    }

    #[test]
    fn a_session_that_begins_late_is_no_gap() {
        let shared = Shared::default();
        shared.push(at(7_000), &silence(100));
        assert_eq!(done(&shared), ["7000-7100"]);
        shared.close();
        assert_eq!(done(&shared), ["close"]);
    }
}
