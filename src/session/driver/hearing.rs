//! The user's audio: from the client to the detectors and the recogniser.

use super::{Done, Driver, failure, report_to};
use crate::asr::{Recognised, TellTurn, Utterance};
use crate::audio::{Beeps, Resampler, Ring};
use crate::conversation::{Input, ItemId, Job, Micros, RequestId, Samples, Settings, Time};
use crate::session::detectors::{Judged, VadJob};
use crate::session::engines::speaker_of;
use crate::session::items::{self, Unheard};
use crate::session::options::SessionOptions;
use crate::vad::WINDOW;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};
use tracing::Instrument;

/// A caller counts as unheard if this much audio waits for the detector, and if it has judged nothing for this long. After
/// a stall of the network or the server, a telephone's audio comes in a burst of two seconds at most, which is less.
const UNHEARD: Micros = Micros::from_ms(5_000);

/// The user's audio on its way to the models.
pub(super) struct AudioInput {
    resampler: Resampler,
    pub(super) ring: Ring,
    /// Samples that do not fill a window yet.
    rest: Vec<f32>,
    /// End of the last window that was handed to the detector.
    end: Samples,
    /// Whether the detector has failed and this was reported; it would fail at every window from then on.
    vad_failed: bool,
    /// End of the last window that the detector has judged, and when it had.
    judged: (Samples, Time),
    /// A call that ends if its caller is not heard any more. Other clients are told of the failure.
    ends_unheard: bool,
    /// Windows that the detector's queue had no room for.
    pub(super) unjudged: u64,
    /// Listens for the tone of an answering machine.
    beeps: Option<Beeps>,
}

impl AudioInput {
    pub(super) fn of(options: &SessionOptions) -> Self {
        Self {
            resampler: Resampler::new(options.input_rate, Samples::RATE),
            ring: Ring::new(),
            rest: Vec::new(),
            end: Samples(0),
            vad_failed: false,
            judged: (Samples(0), Time(0)),
            ends_unheard: options.has_line(),
            unjudged: 0,
            beeps: options.machine_message().map(|_| Beeps::default()),
        }
    }
}

impl Driver {
    /// Takes in the user's audio and has its windows judged.
    pub(super) fn hear(&mut self, samples: &[f32]) {
        let samples = self.audio_in.resampler.push(samples);
        let now = self.now();
        if let Some(sound) = &mut self.sound {
            sound.user(now, &samples);
        }
        let beeps = self.audio_in.beeps.as_mut();
        if beeps.is_some_and(|beeps| beeps.push(&samples)) {
            self.input(Input::Beep);
        }
        self.recogniser.listen(self.audio_in.ring.end(), &samples);
        self.audio_in.ring.push(&samples);
        self.audio_in
            .ring
            .forget_before(self.conversation.audio_needed_from());
        self.audio_in.rest.extend(samples);
        let whole = self.audio_in.rest.len() / WINDOW * WINDOW;
        if whole == 0 {
            return;
        }
        let windows: Vec<[f32; WINDOW]> = self
            .audio_in
            .rest
            .drain(..whole)
            .collect::<Vec<_>>()
            .as_chunks::<WINDOW>()
            .0
            .to_vec();
        let end = Samples(self.audio_in.end.0 + WINDOW as u64);
        self.audio_in.end = Samples(self.audio_in.end.0 + whole as u64);
        let results = self.results.clone();
        let job = VadJob::Judge {
            session: self.id,
            end,
            windows,
        };
        let sent = self
            .engines
            .vad
            .try_send(job, self.cancel.clone(), move |judged| {
                let done = match judged {
                    Ok(Ok(judged)) => Done::Judged(judged),
                    Ok(Err(error)) => Done::VadFailed(error.to_string()),
                    Err(failed) => Done::VadFailed(failed.to_string()),
                };
                drop(results.try_send(done));
            });
        if let Err(error) = sent {
            if self.audio_in.unjudged == 0 {
                tracing::warn!(%error, "the voice activity detector is overloaded: some audio is skipped");
            }
            self.audio_in.unjudged += (whole / WINDOW) as u64;
        }
        self.watch_detector();
    }

    /// Takes in windows that the detector has judged.
    pub(super) fn on_judged(&mut self, windows: Judged) {
        let now = self.now();
        for window in windows {
            if let Input::Vad { end, .. } = window {
                self.audio_in.judged = (end, now);
            }
            self.input(window);
        }
    }

    /// Ends a telephone call whose detector fails, hangs or is gone: the line would stay silent.
    fn watch_detector(&mut self) {
        let (judged, at) = self.audio_in.judged;
        let waiting = Samples(self.audio_in.end.since(judged)).as_ms();
        let lasts = waiting >= UNHEARD.as_ms() && self.now().since(at) >= UNHEARD;
        if lasts && std::mem::take(&mut self.audio_in.ends_unheard) {
            tracing::error!("the caller cannot be heard: the call ends");
            self.input(Input::Unheard);
        }
    }

    /// Reports a failure of the detector to the operator and the conversation, once.
    pub(super) fn on_vad_failure(&mut self, reason: &str) {
        if std::mem::replace(&mut self.audio_in.vad_failed, true) {
            return;
        }
        tracing::error!(reason, "the user cannot be heard");
        self.input(Input::Failed {
            job: Job::Detection,
            reason: "the voice activity detector failed".into(),
        });
    }

    /// Adds a client's audio item, and has it transcribed.
    pub(super) fn add_spoken(&mut self, audio: Vec<i16>, id: ItemId, item: Input) {
        self.input(item);
        let unheard = match self.unheard.take() {
            Some(unheard) => unheard,
            None => self.transcribe_items(),
        };
        if unheard.try_send(Unheard { id, audio }).is_err() {
            let (item, words) = (id, None);
            self.input(Input::ItemHeard { item, words });
        }
        self.unheard = Some(unheard);
    }

    /// Starts a task that transcribes clients' audio items as the session's recogniser would now, after those that an
    /// earlier task has still to transcribe. Returns its queue.
    fn transcribe_items(&mut self) -> mpsc::Sender<Unheard> {
        let (sender, items) = mpsc::channel(items::WAITING);
        let (end, ended) = oneshot::channel::<()>();
        let before = self.transcribed.replace(ended);
        let results = self.results.clone();
        let report = report_to(&self.results);
        let recogniser = self.engines.recogniser_of(
            &self.agent,
            &self.options,
            self.detects,
            report,
            // Nobody takes a turn in them.
            None,
        );
        let heard = async move |input| drop(results.send(Done::Input(Box::new(input))).await);
        let transcribing = items::transcribe(recogniser, self.options.input_rate, items, heard);
        let in_order = async move {
            if let Some(before) = before {
                // It is dropped at the end.
                let _ = before.await;
            }
            transcribing.await;
            drop(end);
        };
        self.tasks.spawn(in_order.in_current_span());
        sender
    }

    pub(super) fn transcribe(
        &mut self,
        request: RequestId,
        from: Samples,
        to: Samples,
        partial: bool,
    ) {
        let part = Utterance {
            from,
            audio: self.audio_in.ring.range(from, to),
            partial,
        };
        let results = self.results.clone();
        let failed = move |reason: String| failure(Job::Transcription(request), reason);
        let done = move |heard: Result<Recognised, String>| {
            let done = match heard {
                Ok(Recognised {
                    text,
                    marks,
                    doubt,
                    language,
                    provisional,
                }) => {
                    // More words may still change it.
                    let language = language.filter(|_| !partial && !text.is_empty());
                    let heard = Input::Transcript {
                        request,
                        text,
                        marks,
                        doubt,
                        provisional,
                    };
                    Done::Heard(language, Box::new(heard))
                }
                Err(reason) => Done::Input(Box::new(failed(reason))),
            };
            drop(results.try_send(done));
        };
        let sent = self
            .recogniser
            .transcribe(part, &self.cancel, &mut self.tasks, done);
        if let Err(error) = sent {
            self.input(failed(error.to_string()));
        }
    }

    pub(super) fn score(&mut self, request: RequestId, from: Samples, to: Samples) {
        let Some(model) = &self.engines.turn_model else {
            return;
        };
        let audio = self.audio_in.ring.range(from, to);
        let results = self.results.clone();
        let sent = model.try_send(audio, self.cancel.clone(), move |score| match score {
            Ok(Ok(probability)) => {
                drop(results.try_send(Done::Input(Box::new(Input::Completeness {
                    request,
                    probability,
                }))));
            }
            Ok(Err(error)) => tracing::warn!(%error),
            Err(_) => {}
        });
        if let Err(error) = sent {
            tracing::warn!(%error, "the end of turn is decided by silence alone");
        }
    }

    pub(super) fn open_recogniser(&mut self) {
        let report = report_to(&self.results);
        let turns = Some(turns_to(&self.results));
        self.recogniser =
            self.engines
                .recogniser_of(&self.agent, &self.options, self.detects, report, turns);
        // Items that wait are still heard as they were sent.
        self.unheard = None;
    }

    /// The user was heard to speak this language: the session goes on in it if the operator allows that.
    pub(super) fn hears_in(&mut self, language: String) {
        if !self.detects {
            return;
        }
        self.recogniser.expect(&language);
        if self.engines.detection.follow && self.change_language(&language) {
            tracing::info!(language, "the session switched to the user's language");
            self.input(Input::Configure(Box::new(Settings {
                language: Some(language),
                ..Settings::default()
            })));
        }
    }

    /// Sets the words that the user is likely to say, whichever agent listens. Returns whether they are others than
    /// before.
    pub(super) fn change_keyterms(&mut self, terms: &[String]) -> bool {
        let terms = (!terms.is_empty()).then(|| terms.into());
        let before = std::mem::replace(&mut self.options.keyterms, terms);
        before != self.options.keyterms
    }

    /// Sets the recogniser, whichever agent listens; that of the agent if `name` is empty. Returns whether it is another
    /// one than before.
    pub(super) fn change_recogniser(&mut self, name: &str) -> bool {
        let name = (!name.is_empty()).then(|| name.to_owned());
        let before = std::mem::replace(&mut self.options.recogniser, name);
        before != self.options.recogniser
    }

    /// Sets the session's language from now on, whichever agent speaks. Returns whether it is another one than before.
    pub(super) fn change_language(&mut self, language: &str) -> bool {
        let now = speaker_of(&self.agent, &self.options);
        let Some(speaker) = now.in_language(language) else {
            return false;
        };
        self.options.speaker.language = speaker.language;
        self.reopen_voice();
        true
    }
}

/// A callback that tells the session of a recogniser's verdicts on the user's turn.
pub(super) fn turns_to(results: &mpsc::Sender<Done>) -> TellTurn {
    let results = results.clone();
    Arc::new(move |turn| drop(results.try_send(Done::Input(Box::new(Input::TurnJudged(turn))))))
}
