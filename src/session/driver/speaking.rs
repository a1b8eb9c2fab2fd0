//! The agent's voice: from its clauses to the frames that the client gets.

use super::{Done, Driver, LoopEnd, failure, report_to};
use crate::audio::{Resampler, to_i16};
use crate::conversation::{ClauseId, Input, ItemId, Job, Micros, RequestId, Shed, spoken_length};
use crate::session::Outbound;
use crate::session::ahead::{Part, TakenOver};
use crate::session::clause::TakeChunk;
use crate::session::engines::speaker_of;
use crate::session::options::SpokenBy;
use crate::session::voices::{Voice, Wanted};
use crate::tools::builtin::Timer;
use crate::tts::{Piece, Speaker};
use std::ops::ControlFlow;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::DropGuard;
use tracing::Instrument;

/// Clauses that are synthesised in advance are due this much later than those that a user waits for.
const AHEAD_OF_NEED: Duration = Duration::from_secs(1);

/// A text that the voice is synthesising.
#[derive(Clone, Copy)]
pub(in crate::session) enum Synthesis {
    /// A clause that is to be spoken.
    Clause(ClauseId),
    /// A clause that may be spoken, by its number in [`Ahead`].
    Ahead(u64),
}

/// A clause that is being made. Dropping it stops the voice.
pub(super) struct Clause {
    speaker: Speaker,
    resampler: Resampler,
    _cancel: DropGuard,
}

impl Driver {
    /// Opens the session's voice before it is needed. A service also prepares its phrases, if it has not
    /// done so.
    pub(super) fn open_voice(&mut self) {
        let speaker = speaker_of(&self.agent, &self.options);
        if self.options.spoken_by != SpokenBy::Server {
            return;
        }
        let voice = self.engines.voices.open(&speaker, report_to(&self.results));
        if voice.is_service() {
            let (engines, speaker) = (self.engines.clone(), speaker.clone());
            let prepare = async move { engines.prepare_service(&speaker).await };
            self.tasks.spawn(prepare.in_current_span());
        }
        self.voices.insert(speaker, voice);
    }

    /// Sets the session's voice from now on, whichever agent speaks. Returns it, completed with the agent's own where
    /// the client has chosen none.
    pub(super) fn change_voice(&mut self, chosen: Speaker) -> Speaker {
        let before = speaker_of(&self.agent, &self.options);
        self.options.speaker.voice = chosen.voice;
        self.options.speaker.speed = chosen.speed;
        let speaker = speaker_of(&self.agent, &self.options);
        if speaker != before {
            self.reopen_voice();
        }
        speaker
    }

    /// Opens the session's voice anew, as it is from now on.
    pub(super) fn reopen_voice(&mut self) {
        // A client may change it often: services would keep a connection for each.
        self.voices.clear();
        self.open_voice();
    }

    /// The announcement of a timer that rings, in the session's language.
    pub(super) fn announcement(&self, timer: &Timer) -> String {
        match speaker_of(&self.agent, &self.options).pack().rings() {
            Some(rings) => rings(timer.length, timer.label.as_deref()),
            None => timer.announcement(),
        }
    }

    /// Has a clause synthesised, or takes its prepared audio.
    #[allow(
        clippy::disallowed_methods,
        reason = "the edge: how long users wait is measured in real time"
    )]
    pub(super) fn speak(&mut self, clause: ClauseId, item: ItemId, text: String, speaker: Speaker) {
        let now = std::time::Instant::now();
        let needed = now + Duration::from_micros(self.pacer.ahead(self.now()).0);
        let length = speaker.speed().lasts(spoken_length(&text));
        self.pacer.expect(clause, item, length);
        let voices = &self.engines.voices;
        let voice = self.voices.entry(speaker.clone());
        let results = &self.results;
        let voice = voice.or_insert_with_key(|speaker| voices.open(speaker, report_to(results)));
        let prepared = voices.prepared(voice, &text).or_else(|| {
            let lost = self.voice_failed || voice.is_lost();
            lost.then(|| voices.prepared_in_own(&text)).flatten()
        });
        // While one clause is being synthesised, the user hears another.
        let first = self.clauses.is_empty();
        let cancel = self.cancel.child_token();
        let rate = prepared.as_ref().map_or(voice.rate(), |clip| clip.rate);
        let being_made = Clause {
            speaker: speaker.clone(),
            resampler: Resampler::new(rate, self.options.output_rate),
            _cancel: cancel.clone().drop_guard(),
        };
        self.clauses.insert(clause, being_made);
        if let Some(clip) = prepared {
            return self.on_audio(clause, &clip.samples, Vec::new(), true);
        }
        let loads = voice.loads();
        if let Some(TakenOver { audio, ended }) = self.ahead.take(&text, &speaker, clause, needed) {
            if !audio.is_empty() {
                self.on_part(clause, Part::Audio(audio));
            }
            if let Some(ended) = ended {
                self.on_part(clause, Part::End(ended));
            }
        } else {
            let wanted = Wanted {
                text,
                needed,
                asked: first.then_some(now),
                sooner: None,
            };
            let (chunk, done) = parts(&self.results, Synthesis::Clause(clause));
            let sent = voice.speak(wanted, cancel, &mut self.tasks, chunk, done);
            if let Err(error) = sent {
                self.on_part(clause, Part::End(Err(error.to_string())));
            }
        }
        if loads {
            self.input(Input::VoiceLoads { clause });
        }
    }

    /// Tells the conversation which clauses wait for a local voice to be loaded, since a service has failed.
    pub(super) fn tell_loading(&mut self) {
        let waits = |clause: &Clause| self.voices.get(&clause.speaker).is_some_and(Voice::loads);
        let waiting = self.clauses.iter().filter(|(_, clause)| waits(clause));
        let waiting: Vec<ClauseId> = waiting.map(|(clause, _)| *clause).collect();
        for clause in waiting {
            self.input(Input::VoiceLoads { clause });
        }
    }

    /// Synthesises a clause that may be spoken next, unless the voice is busy.
    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: when audio is needed is a matter of real time"
    )]
    pub(super) fn speak_ahead(&mut self, request: RequestId, text: String, speaker: Speaker) {
        let is_busy = self.engines.shed() >= Shed::Speculation;
        if self.options.spoken_by != SpokenBy::Server || is_busy {
            return;
        }
        let voices = &self.engines.voices;
        let voice = self.voices.entry(speaker.clone());
        let results = &self.results;
        let voice = voice.or_insert_with_key(|speaker| voices.open(speaker, report_to(results)));
        if voices.prepared(voice, &text).is_some() {
            return;
        }
        let cancel = self.cancel.child_token();
        let (id, sooner) = self
            .ahead
            .begin(request, text.clone(), speaker, cancel.clone());
        let wanted = Wanted {
            text,
            needed: std::time::Instant::now() + AHEAD_OF_NEED,
            asked: None,
            sooner: Some(sooner),
        };
        let (chunk, done) = parts(&self.results, Synthesis::Ahead(id));
        let sent = voice.speak(wanted, cancel, &mut self.tasks, chunk, done);
        if sent.is_err() {
            self.ahead.cancel(request);
        }
    }

    /// Stops a clause, whether it is being made or played.
    pub(super) fn cancel_clause(&mut self, clause: ClauseId) {
        self.pacer.cancel(clause);
        self.clauses.remove(&clause);
        self.ahead.cancel_clause(clause);
    }

    /// Stops all speech, that of the client's buffer too.
    pub(super) fn flush(&mut self) -> Result<(), LoopEnd> {
        let now = self.now();
        self.pacer.flush(now);
        if let Some(sound) = &mut self.sound {
            sound.flush(now);
        }
        self.clauses.clear();
        self.ahead.clear();
        if !self.pacer.is_dialing() {
            self.send(Outbound::Clear)?;
        }
        if let Some(found) = self.speech_found {
            let stop = self.now().since(found);
            self.engines.observers.metrics.barge_in(stop);
        }
        Ok(())
    }

    /// Takes in a part of a clause.
    pub(super) fn on_part(&mut self, clause: ClauseId, part: Part) {
        match part {
            Part::Audio(Piece { samples, word_ends }) => {
                self.voice_failed = false;
                self.on_audio(clause, &samples, word_ends, false);
            }
            Part::End(Ok(())) => self.on_audio(clause, &[], Vec::new(), true),
            Part::End(Err(reason)) => self.input(failure(Job::Synthesis(clause), reason)),
        }
    }

    /// Leaves a clause to the client, which takes `length` to say it: it is synthesised and sent at once, as
    /// far as the conversation is concerned, which tells the client its words. They come first: what
    /// takes no time is over as soon as it is made.
    pub(super) fn hand_over(&mut self, clause: ClauseId, length: Micros) {
        let sent = |until| Input::Sent { clause, until };
        self.input(sent(Micros(0)));
        self.input(Input::Synthesised {
            clause,
            length,
            last: true,
            word_ends: Vec::new(),
        });
        self.input(sent(length));
    }

    pub(super) fn on_audio(
        &mut self,
        clause: ClauseId,
        samples: &[f32],
        word_ends: Vec<Micros>,
        last: bool,
    ) {
        let Some(being_made) = self.clauses.get_mut(&clause) else {
            return;
        };
        let mut samples = being_made.resampler.push(samples);
        if last {
            samples.extend(being_made.resampler.flush());
            self.clauses.remove(&clause);
        }
        if let Some(length) = self.pacer.push(clause, &to_i16(&samples), last) {
            self.input(Input::Synthesised {
                clause,
                length,
                last,
                word_ends,
            });
        }
    }

    /// Sends the next frame of audio that is due; `false` if there is none.
    pub(super) fn send_frame(&mut self) -> Result<bool, LoopEnd> {
        let now = self.now();
        if self.pacer.has_dialed(now) {
            self.tell_pressed();
        }
        if let Some(samples) = self.pacer.pop_tones(now) {
            if let Some(sound) = &mut self.sound {
                sound.agent(now, &samples);
            }
            self.send(Outbound::Tones(samples))?;
            return Ok(true);
        }
        let Some(frame) = self.pacer.pop(self.now()) else {
            return Ok(false);
        };
        if frame.first {
            self.input(Input::Sent {
                clause: frame.clause,
                until: Micros(0),
            });
            while let Some(output) = self.conversation.poll_output() {
                self.perform(output)?;
            }
        }
        let now = self.now();
        if let Some(sound) = &mut self.sound {
            sound.agent(now, &frame.samples);
        }
        self.send(Outbound::Audio {
            item: frame.item,
            clause: frame.clause,
            samples: frame.samples,
        })?;
        self.input(Input::Sent {
            clause: frame.clause,
            until: frame.until,
        });
        Ok(true)
    }
}

/// Sends the voice's audio to the session.
fn parts(
    results: &mpsc::Sender<Done>,
    synthesis: Synthesis,
) -> (TakeChunk, impl FnOnce(Result<(), String>) + Send + use<>) {
    let (chunks, end) = (results.clone(), results.clone());
    let chunk = Box::new(move |piece| {
        let part = Done::Spoken(synthesis, Part::Audio(piece));
        match chunks.try_send(part) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    });
    let done = move |ended| drop(end.try_send(Done::Spoken(synthesis, Part::End(ended))));
    (chunk, done)
}
