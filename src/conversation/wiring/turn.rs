//! The user's utterance, from the first sound to the transcript that ends the turn.

use super::Conversation;
use crate::conversation::endpointer::{Heard, WINDOW, silence_needed};
use crate::conversation::ids::RequestId;
use crate::conversation::latency::TurnLatency;
use crate::conversation::policy::CERTAIN;
use crate::conversation::speculation::Discard;
use crate::conversation::timer::Timer;
use crate::conversation::{EndOfTurnRule, Event, Output};
use crate::language::en::assent::agrees;
use crate::llm::Message;
use crate::time::{Micros, Samples, Time};

/// What the user is saying. The user is pausing while `pause` is set, else speaking.
#[derive(Debug)]
pub(in crate::conversation) struct Utterance {
    /// Where it began, pre-roll included.
    pub(super) from: Samples,
    /// When it was found to have begun.
    began: Time,
    /// Stretches that were transcribed for good because all at once would be too long.
    segments: Vec<Segment>,
    /// Where the stretch begins that is not transcribed for good.
    segment_from: Samples,
    /// End of the last window of speech, and when it was judged.
    last_speech: (Samples, Time),
    pause: Option<Pause>,
    partial: Option<RequestId>,
    partial_text: String,
    next_partial: Samples,
    /// The client says that this is all.
    pub(super) committed: bool,
    /// The client has cancelled the answer to it.
    pub(super) given_up: bool,
    /// Windows that were certainly speech.
    certain: u64,
    /// A stretch of it could not be transcribed.
    failed: bool,
    /// Answers that were asked for before the turn was over.
    pub(super) generations: u32,
    /// The client recognises the speech: words come in, and no audio.
    in_words: bool,
}

/// A turn that the client has committed by hand while the one before it was being transcribed.
#[derive(Debug)]
pub(in crate::conversation) struct Committed {
    from: Samples,
    to: Samples,
    given_up: bool,
}

#[derive(Debug)]
struct Segment {
    request: RequestId,
    text: Option<String>,
}

/// A silence that may be the end of the turn. What was asked in it dies with it.
#[derive(Debug, Default)]
struct Pause {
    transcription: Option<RequestId>,
    /// When the transcription was asked for.
    asked: Time,
    transcript: Option<(String, Time)>,
    scoring: Option<RequestId>,
    completeness: Option<(f32, Time)>,
}

impl Utterance {
    fn starting(from: Samples, end: Samples, now: Time, partial_every_ms: u64) -> Self {
        Self {
            from,
            began: now,
            segments: Vec::new(),
            segment_from: from,
            last_speech: (end, now),
            pause: None,
            partial: None,
            partial_text: String::new(),
            next_partial: Samples(from.0 + Samples::from_ms(partial_every_ms).0),
            committed: false,
            given_up: false,
            certain: 0,
            failed: false,
            generations: 0,
            in_words: false,
        }
    }

    /// One that the client recognises, at this place in the audio that does not come.
    pub(super) fn in_words(at: Samples, now: Time) -> Self {
        Self {
            in_words: true,
            ..Self::starting(at, at, now, 0)
        }
    }

    /// The client has recognised so much.
    pub(super) fn words_came(&mut self, words: &str, now: Time) {
        if words != self.partial_text {
            self.last_speech.1 = now;
        }
    }

    /// What the client has recognised so far.
    pub(super) fn words(&self) -> String {
        self.partial_text.clone()
    }

    /// Words are to come, and none have.
    pub(super) fn is_wordless(&self) -> bool {
        self.in_words && self.partial_text.is_empty()
    }

    /// The words so far, with `tail` for the stretch that is not transcribed for good.
    fn text(&self, tail: &str) -> String {
        let segments = self.segments.iter().filter_map(|s| s.text.as_deref());
        segments
            .chain([tail])
            .map(str::trim)
            .filter(|s| !s.is_empty())
            .collect::<Vec<_>>()
            .join(" ")
    }

    fn silence_ms(&self, end: Samples) -> u64 {
        Samples(end.since(self.last_speech.0)).as_ms()
    }
}

impl Conversation {
    pub(super) fn on_vad(&mut self, end: Samples, probability: f32) {
        self.audio_end = self.audio_end.max(end);
        let committed = self.utterance.as_ref().is_some_and(|u| u.committed);
        let past = end <= self.audio_from;
        if self.client.turn_detection.rule == EndOfTurnRule::Client || committed || past {
            return;
        }
        let agent_is_heard = self.playout.audible_until() > self.common.now;
        let vad = &self.common.policy.vad.of(&self.client.turn_detection);
        let start = if agent_is_heard {
            vad.interrupt_windows
        } else {
            vad.start_windows
        };
        match self.detector.push(end, probability, vad, start) {
            Heard::Started(at) => self.on_speech_started(at.max(self.audio_from)),
            Heard::Speech => self.on_speech(end),
            Heard::Silence => self.on_silence(end),
        }
        if let Some(utterance) = &mut self.utterance {
            utterance.certain += u64::from(probability >= CERTAIN);
            let stalled = self.common.now + self.common.policy.timeouts.audio_timeout;
            self.common.timers.set(Timer::AudioStalled, stalled);
        }
    }

    /// The client sends no more audio in the middle of an utterance: that is the end of the turn.
    pub(super) fn on_audio_stalled(&mut self) {
        match &self.utterance {
            Some(utterance) if utterance.in_words => self.on_words_overdue(),
            Some(utterance) if !utterance.committed => self.finish_utterance(self.audio_end),
            Some(_) | None => {}
        }
    }

    fn on_speech_started(&mut self, at: Samples) {
        let every = self.common.policy.endpoint.partial_every_ms;
        let utterance = Utterance::starting(at, self.audio_end, self.common.now, every);
        self.begin_utterance(utterance);
        if self.client.turn_detection.interrupt {
            self.barge_in();
        }
    }

    /// The user begins to speak.
    pub(super) fn begin_utterance(&mut self, utterance: Utterance) {
        self.hear_from_user();
        let at = utterance.from;
        self.utterance = Some(utterance);
        self.common.notify(Event::SpeechStarted { at });
    }

    fn on_speech(&mut self, end: Samples) {
        let now = self.common.now;
        let Some(utterance) = &mut self.utterance else {
            return;
        };
        utterance.last_speech = (end, now);
        self.common.mark_activity();
        let Some(utterance) = &mut self.utterance else {
            return;
        };
        let resumed = utterance.pause.take().is_some();
        if resumed {
            self.common.timers.clear(Timer::EndOfTurn);
            self.common.timers.clear(Timer::TranscriptOverdue);
            self.drop_held();
        }
        self.cut_long_segment(end, resumed);
        self.ask_partial(end);
    }

    fn on_silence(&mut self, end: Samples) {
        let policy = self.common.policy.endpoint;
        let Some(utterance) = &mut self.utterance else {
            return;
        };
        let silence = utterance.silence_ms(end);
        let pause = utterance.pause.get_or_insert_default();
        let transcribe = pause.transcription.is_none() && silence >= policy.transcribe_after_ms;
        let score = pause.scoring.is_none()
            && silence >= policy.score_after_ms
            && self.client.turn_detection.rule == EndOfTurnRule::Semantic;
        if transcribe {
            self.ask_transcript(end);
        }
        if score {
            self.ask_completeness(end);
        }
        self.try_end_turn();
    }

    /// Asks for what the user has said so far, every half second of speech.
    fn ask_partial(&mut self, end: Samples) {
        let Some(utterance) = &self.utterance else {
            return;
        };
        if self.busy || end < utterance.next_partial || utterance.partial.is_some() {
            return;
        }
        let from = utterance.segment_from;
        let request = self.common.request_id();
        let every = Samples::from_ms(self.common.policy.endpoint.partial_every_ms).0;
        if let Some(utterance) = &mut self.utterance {
            utterance.partial = Some(request);
            utterance.next_partial = Samples(end.0 + every);
        }
        self.common.outputs.push_back(Output::Transcribe {
            request,
            from,
            to: end,
            partial: true,
        });
    }

    /// Asks for the transcript of the stretch up to this pause.
    fn ask_transcript(&mut self, end: Samples) {
        let (request, now) = (self.common.request_id(), self.common.now);
        let Some(utterance) = &mut self.utterance else {
            return;
        };
        let pause = utterance.pause.get_or_insert_default();
        (pause.transcription, pause.asked) = (Some(request), now);
        let from = utterance.segment_from;
        self.common.outputs.push_back(Output::Transcribe {
            request,
            from,
            to: end,
            partial: false,
        });
    }

    fn ask_completeness(&mut self, end: Samples) {
        let request = self.common.request_id();
        let Some(utterance) = &mut self.utterance else {
            return;
        };
        utterance.pause.get_or_insert_default().scoring = Some(request);
        let from = utterance.from;
        self.common.outputs.push_back(Output::ScoreEndOfTurn {
            request,
            from,
            to: end,
        });
    }

    /// Transcribes a stretch for good when it nears what the recogniser takes at once: behind a
    /// pause if there is one in time, else anywhere.
    fn cut_long_segment(&mut self, end: Samples, after_pause: bool) {
        let longest = Samples::from_ms(self.common.policy.endpoint.segment_ms).0;
        let Some(utterance) = &self.utterance else {
            return;
        };
        let length = end.since(utterance.segment_from);
        let enough = if after_pause {
            longest * 3 / 5
        } else {
            longest
        };
        if length < enough {
            return;
        }
        let from = utterance.segment_from;
        let request = self.common.request_id();
        if let Some(utterance) = &mut self.utterance {
            utterance.segments.push(Segment {
                request,
                text: None,
            });
            utterance.segment_from = end;
            utterance.partial = None;
        }
        self.common.outputs.push_back(Output::Transcribe {
            request,
            from,
            to: end,
            partial: false,
        });
    }

    /// A transcription ended, with its text or with nothing if the recogniser failed.
    pub(super) fn on_transcript(&mut self, request: RequestId, text: Result<String, ()>) {
        let now = self.common.now;
        let Some(utterance) = &mut self.utterance else {
            return;
        };
        if let Some(segment) = utterance.segments.iter_mut().find(|s| s.request == request) {
            match text {
                Ok(text) => segment.text = Some(text),
                Err(()) => utterance.failed = true,
            }
        } else if utterance.partial == Some(request) {
            utterance.partial = None;
            self.on_partial(&text.unwrap_or_default());
            return;
        } else if let Some(pause) = utterance
            .pause
            .as_mut()
            .filter(|p| p.transcription == Some(request))
        {
            match text {
                Ok(text) => pause.transcript = Some((text, now)),
                Err(()) => utterance.failed = true,
            }
            self.route_pause();
        } else {
            return;
        }
        self.try_end_turn();
    }

    pub(super) fn on_partial(&mut self, tail: &str) {
        let Some(utterance) = &mut self.utterance else {
            return;
        };
        let text = utterance.text(tail);
        if !text.is_empty() && text != utterance.partial_text {
            utterance.partial_text.clone_from(&text);
            self.route(&text, false);
            self.common.notify(Event::PartialTranscript { text });
        }
    }

    /// Asks the sources of predictions what the words so far may need.
    pub(super) fn route(&mut self, text: &str, paused: bool) {
        self.speculation
            .route(&mut self.common, &self.client, text, paused);
    }

    /// What was heard up to a pause is what the turn may end with.
    fn route_pause(&mut self) {
        let utterance = self.utterance.as_ref();
        let text = utterance.and_then(|utterance| {
            let (text, _) = utterance.pause.as_ref()?.transcript.as_ref()?;
            Some(utterance.text(text))
        });
        if let Some(text) = text {
            self.route(&text, true);
        }
    }

    pub(super) fn on_completeness(&mut self, request: RequestId, probability: f32) {
        let now = self.common.now;
        let pause = self.utterance.as_mut().and_then(|u| u.pause.as_mut());
        if let Some(pause) = pause.filter(|p| p.scoring == Some(request)) {
            pause.completeness = Some((probability, now));
            self.try_end_turn();
        }
    }

    /// Ends the turn if the silence is long enough and the transcript is there; otherwise sets the
    /// timer for when it will be.
    pub(super) fn try_end_turn(&mut self) {
        let Some(utterance) = &self.utterance else {
            return;
        };
        let Some(pause) = &utterance.pause else {
            return;
        };
        let transcript = pause
            .transcript
            .as_ref()
            .map(|(text, _)| utterance.text(text));
        let endpoint = self.common.policy.endpoint.of(&self.client.turn_detection);
        let wait = match self.client.turn_detection.rule {
            _ if utterance.committed => 0,
            EndOfTurnRule::Silence { ms } => ms,
            EndOfTurnRule::Client => return,
            EndOfTurnRule::Semantic => silence_needed(
                pause.completeness.map(|(p, _)| p),
                transcript.as_deref(),
                &endpoint,
            ),
        };
        let due = utterance.last_speech.1 + Micros::from_ms(wait);
        let complete = utterance.segments.iter().all(|s| s.text.is_some());
        if self.common.now < due {
            self.common.timers.set(Timer::EndOfTurn, due);
            let unfinished = self.client.turn_detection.rule == EndOfTurnRule::Semantic
                && wait >= endpoint.incomplete_ms;
            let plausible = complete && !unfinished;
            if let Some(text) = transcript.filter(|_| plausible) {
                self.generate_early(&text);
            }
            return;
        }
        match transcript {
            _ if utterance.failed => self.on_transcript_overdue(),
            Some(text) if complete => self.end_turn(&text),
            _ => self.common.timers.set(
                Timer::TranscriptOverdue,
                due.max(pause.asked) + self.common.policy.timeouts.transcript_timeout,
            ),
        }
    }

    /// The user's turn is over.
    pub(super) fn end_turn(&mut self, text: &str) {
        let Some(utterance) = self.utterance.take() else {
            return;
        };
        self.close_utterance(&utterance);
        let pause = utterance.pause.unwrap_or_default();
        if text.is_empty() {
            self.common.notify(Event::UtteranceDropped);
            self.speculation
                .drop_heard(&mut self.common, Discard::NoTurn);
            if self.may_ask_again(utterance.certain) {
                self.asked_again = true;
                self.ask_again();
            }
            return self.resume_interrupted();
        }
        if self.ending.is_near() && agrees(text) {
            self.resume_interrupted();
        } else {
            self.forget_interrupted();
        }
        self.common.mark_activity();
        let latency = TurnLatency {
            speech_end: Some(utterance.last_speech.1),
            transcript: pause.transcript.map(|(_, at)| at),
            completeness: pause.completeness.map(|(_, at)| at),
            end_of_turn: Some(self.common.now),
            ..TurnLatency::default()
        };
        self.take_user_turn(text, true, utterance.began, latency);
        if utterance.given_up && !self.client.turn_detection.respond {
            self.history.give_up_question(&self.unheard);
        }
    }

    /// What the user has said, or typed in on a telephone, is answered. It was begun at `began`.
    pub(super) fn take_user_turn(
        &mut self,
        text: &str,
        spoken: bool,
        began: Time,
        latency: TurnLatency,
    ) {
        self.answered_by_key = false;
        self.asked_again = false;
        // "I'll put you through." "Okay."
        let ends = self.ending.is_near() && agrees(text);
        if !ends {
            self.call_off_end();
        }
        let item = self.common.item_id();
        self.history.push(
            item,
            Message::User {
                text: text.to_owned(),
            },
        );
        self.common.notify(Event::UserItem {
            item,
            text: text.to_owned(),
            spoken,
        });
        if ends {
            return self.drop_held();
        }
        let answered = self
            .confirmation
            .answer(&mut self.common, &mut self.history, text, began);
        if let Some(confirmed) = answered {
            self.run_confirmed(confirmed, latency);
            return self.drop_held();
        }
        self.route(text, true);
        if self.client.turn_detection.respond && !self.client.transcribe_only {
            self.start_response(latency);
        }
        self.drop_held();
    }

    /// The recogniser is dead or too slow: ask the user again rather than be silent.
    pub(super) fn on_transcript_overdue(&mut self) {
        if self.utterance.is_none() {
            return;
        }
        // Told of the utterance, while there is one: as a failure of its own it would end clients that
        // take every error for a fatal one.
        self.common.notify(Event::StageFailed {
            stage: "asr".into(),
            message: "what was said could not be transcribed".into(),
        });
        self.drop_utterance();
        self.ask_again();
    }

    /// Whether the user, who has spoken for so many windows and was not understood, is asked to say it
    /// again: once, since what goes on may be meant for others. An answer that the sound has stopped
    /// goes on instead.
    fn may_ask_again(&self, certain: u64) -> bool {
        let least = self.common.policy.endpoint.ask_again_ms;
        let said = Samples(certain * WINDOW).as_ms();
        let answers = self.client.turn_detection.respond && !self.client.transcribe_only;
        let is_next = self.respond_next.is_some() || self.ending.hang_up().is_some();
        least.is_some_and(|least| said >= least)
            && answers
            && !is_next
            && !self.asked_again
            && !self.interruption.is_judging()
    }

    /// Asks the user to say it again.
    fn ask_again(&mut self) {
        let phrase = self.common.policy.phrases.asr_failed.clone();
        if self.announcements.front() != Some(&phrase) {
            self.announcements.push_front(phrase);
        }
    }

    fn close_utterance(&mut self, utterance: &Utterance) {
        self.common.timers.clear(Timer::EndOfTurn);
        self.common.timers.clear(Timer::TranscriptOverdue);
        self.common.timers.clear(Timer::AudioStalled);
        self.detector.reset();
        if !utterance.committed {
            self.audio_from = self.audio_end;
        }
        let at = utterance.last_speech.0;
        self.common.notify(Event::SpeechStopped { at });
    }

    /// The client says that the user's turn is over.
    pub(super) fn commit_audio(&mut self) {
        let speaking = self.utterance.as_ref().is_some_and(|u| !u.committed);
        if speaking {
            return self.finish_utterance(self.audio_end);
        }
        let length = Samples(self.audio_end.since(self.audio_from)).as_ms();
        let refusal = if length < MIN_COMMIT_MS {
            Some(format!(
                "the buffer holds {length} ms of audio; at least {MIN_COMMIT_MS} ms are needed"
            ))
        } else if self.client.turn_detection.rule != EndOfTurnRule::Client {
            Some("nobody has spoken since the last turn; with turn detection on, turns are committed by themselves".into())
        } else if self.committed.len() == MOST_COMMITTED {
            Some(format!(
                "{MOST_COMMITTED} turns wait to be transcribed; wait for their transcripts"
            ))
        } else {
            None
        };
        if let Some(message) = refusal {
            return self.common.refuse("CommitAudio", message);
        }
        self.committed.push_back(Committed {
            from: self.audio_from,
            to: self.audio_end,
            given_up: false,
        });
        self.audio_from = self.audio_end;
        if self.client.turn_detection.interrupt {
            self.barge_in();
        }
    }

    /// Transcribes what the client has committed by hand, one turn after the other.
    pub(super) fn hear_committed(&mut self) {
        if self.utterance.is_some() {
            return;
        }
        let Some(next) = self.committed.pop_front() else {
            return;
        };
        self.utterance = Some(Utterance {
            pause: Some(Pause::default()),
            given_up: next.given_up,
            ..Utterance::starting(next.from, next.to, self.common.now, 0)
        });
        self.finish_utterance(next.to);
    }

    /// The client wants no answer to what it has committed last and is not transcribed yet; `false`
    /// if there is nothing like that.
    pub(super) fn give_up_committed(&mut self) -> bool {
        let utterance = self.utterance.as_mut().filter(|u| u.committed);
        let current = utterance.map(|utterance| &mut utterance.given_up);
        let last = self.committed.back_mut().map(|next| &mut next.given_up);
        let Some(given_up) = last.or(current) else {
            return false;
        };
        *given_up = true;
        true
    }

    /// There is no more to come of this utterance, which ends at `end`: transcribes what is there, and
    /// ends the turn.
    fn finish_utterance(&mut self, end: Samples) {
        let longest = Samples::from_ms(self.common.policy.endpoint.segment_ms).0;
        while let Some(utterance) = &self.utterance
            && end.since(utterance.segment_from) > longest
        {
            self.cut_long_segment(Samples(utterance.segment_from.0 + longest), false);
        }
        self.audio_from = self.audio_from.max(end);
        let asked = self.utterance.as_mut().is_some_and(|u| {
            u.committed = true;
            u.pause.get_or_insert_default().transcription.is_some()
        });
        if !asked {
            self.ask_transcript(end);
        }
        self.try_end_turn();
    }

    /// What is being said comes to no turn.
    pub(super) fn drop_utterance(&mut self) {
        let Some(utterance) = self.utterance.take() else {
            return;
        };
        self.close_utterance(&utterance);
        self.common.notify(Event::UtteranceDropped);
        self.drop_held();
        self.speculation
            .drop_heard(&mut self.common, Discard::NoTurn);
        self.forget_interrupted();
    }

    /// The client throws away what the user said since the last turn. What it has committed stays.
    pub(super) fn clear_audio(&mut self) {
        if !self.utterance.as_ref().is_some_and(|u| u.committed) {
            self.drop_utterance();
            self.forget_interrupted();
        }
        self.audio_from = self.audio_end;
    }

    /// The user's audio before this is not needed any more.
    pub fn audio_needed_from(&self) -> Samples {
        match &self.utterance {
            Some(utterance) => utterance.from,
            None if self.client.turn_detection.rule == EndOfTurnRule::Client => self.audio_from,
            None => self
                .audio_from
                .max(self.audio_end.minus_ms(self.kept_in_silence_ms())),
        }
    }

    /// The pre-roll and the windows that begin an utterance.
    fn kept_in_silence_ms(&self) -> u64 {
        let vad = self.common.policy.vad.of(&self.client.turn_detection);
        let windows = vad.start_windows.max(vad.interrupt_windows);
        vad.pre_roll_ms + u64::from(windows) * 32 + MARGIN_MS
    }
}

/// Turns that the client has committed by hand and that may wait to be transcribed.
const MOST_COMMITTED: usize = 64;

/// Audio that a commit needs at least, ms (100: OpenAI Realtime).
const MIN_COMMIT_MS: u64 = 100;

/// Audio kept beyond what is needed while nobody speaks, ms: windows are judged a little late.
const MARGIN_MS: u64 = 500;
