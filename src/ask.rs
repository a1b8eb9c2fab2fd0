//! Plays a recorded question into a session in real time, and collects the answer.

use crate::conversation::{Event, Fate, RunRecord, TurnLatency, TurnRecord};
use crate::session::{self, Engines, Inbound, Outbound, Profile, SessionHandle, SessionOptions};
use crate::tools::{Named, Origin, SessionValues};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

/// Rate of the question and of the answer, Hz.
pub const RATE: u32 = 16_000;

const FRAME_MS: u64 = 20;
const FRAME: usize = (RATE as u64 * FRAME_MS / 1_000) as usize;

/// How long a session must be quiet after the question and the answer before it counts as finished.
const QUIET: Duration = Duration::from_millis(2_500);

/// The longest wait for the end of the answer, and as long again for that of a greeting before the question.
const PATIENCE: Duration = Duration::from_secs(60);

/// The outcome of a recorded question.
#[derive(Debug, Default, Clone, Serialize)]
pub struct Answer {
    /// The transcripts, turn by turn.
    pub heard: Vec<String>,
    /// The agent's words, item by item.
    pub said: Vec<String>,
    /// The timestamps of each answered turn.
    pub turns: Vec<TurnLatency>,
    /// Each turn's tool runs and their outcomes.
    pub records: Vec<TurnRecord>,
    /// Every event with its time since the session began, ms.
    #[serde(skip)]
    pub events: Vec<(u64, Event)>,
    /// The agent's audio as played out, from its first sound: mono PCM16 at [`RATE`], including the
    /// silences in between.
    #[serde(skip)]
    pub audio: Vec<i16>,
    /// When the first audio arrived, ms since the session began.
    pub first_audio_ms: Option<u64>,
}

impl Answer {
    /// One line with the time of each stage after the end of the user's speech, ms.
    pub fn breakdown(&self) -> Option<String> {
        let turn = self
            .turns
            .iter()
            .rev()
            .find(|turn| turn.first_audio.is_some())?;
        let from = turn.speech_end?;
        let ms = |at: Option<crate::conversation::Time>| at.map(|at| at.since(from).as_ms());
        let stages = [
            ("transcript", ms(turn.transcript)),
            ("end-of-turn model", ms(turn.completeness)),
            ("end of turn", ms(turn.end_of_turn)),
            ("language model", ms(turn.llm_first)),
            ("tool committed", ms(turn.commit)),
            ("tool result", ms(turn.tool_result)),
            ("voice", ms(turn.first_synthesis)),
            ("first audio", ms(turn.first_audio)),
            ("answer", turn.commit.and_then(|_| ms(turn.answer_audio))),
            ("dead air before it", turn.dead_air.map(|gap| gap.as_ms())),
        ];
        let reached: Vec<_> = stages
            .into_iter()
            .filter_map(|(stage, ms)| ms.map(|ms| format!("{stage} {ms}")))
            .collect();
        Some(format!(
            "ms after the end of speech: {}",
            reached.join(", ")
        ))
    }
}

impl Answer {
    /// One line per tool run: when it started, and what that saved or wasted.
    pub fn runs(&self) -> Vec<String> {
        let turns = self.records.iter();
        let lines = turns.flat_map(|turn| turn.runs.iter().map(|run| told(turn, run)));
        lines.collect()
    }
}

/// A description of a run.
fn told(turn: &TurnRecord, run: &RunRecord) -> String {
    let relative = turn.latency.speech_end.map_or_else(String::new, |end| {
        let (before, after) = (end.since(run.started), run.started.since(end));
        match before.as_ms() {
            0 => format!(", {} ms after the end of speech", after.as_ms()),
            ms => format!(", {ms} ms before the end of speech"),
        }
    });
    let source = run.source.map_or_else(
        || "when it was committed".to_owned(),
        |source| {
            format!(
                "early, predicted by {} ({:.2})",
                source.name(),
                run.confidence
            )
        },
    );
    let fate = match &run.fate {
        Fate::Committed { .. } => format!("committed, {} ms saved", run.saved.as_ms()),
        Fate::Discarded { reason, .. } => {
            format!(
                "discarded ({}), {} ms wasted",
                reason.name(),
                run.wasted.as_ms()
            )
        }
    };
    format!("{} started {source}{relative}: {fate}", run.tool)
}

/// A part of the answer while it is given.
#[derive(Debug, Clone, Copy)]
pub enum Reply<'a> {
    /// More audio: mono PCM16 at [`RATE`].
    Audio(&'a [i16]),
    /// The audio that has not been played yet is dropped.
    Clear,
}

/// Plays `question`, mono PCM16 at [`RATE`], to the agent of this name or the one that the routes lead to, after its
/// greeting, and returns when the answer has ended. `hear` gets the answer's audio as it comes.
pub async fn ask(
    engines: &Arc<Engines>,
    question: &[i16],
    agent: Option<&str>,
    hear: &mut dyn FnMut(Reply<'_>),
) -> Answer {
    let options = SessionOptions {
        values: SessionValues::default().with(Named::Transport, "ask", Origin::Verified),
        agent: agent.map(str::to_owned),
        ..SessionOptions::new(Profile::Conversation, RATE)
    };
    let greets = !engines.greeting(&options).is_empty();
    converse(session::open(engines, &options), greets, question, hear).await
}

#[allow(
    clippy::disallowed_methods,
    reason = "an edge: it plays and listens in real time"
)]
async fn converse(
    session: SessionHandle,
    greets: bool,
    question: &[i16],
    hear: &mut dyn FnMut(Reply<'_>),
) -> Answer {
    let SessionHandle {
        inbound,
        mut outbound,
        ..
    } = session;
    let began = Instant::now();
    let mut listener = Listener::new(began);
    let mut frames = question.chunks(FRAME).map(<[i16]>::to_vec);
    let mut pace = interval(Duration::from_millis(FRAME_MS));
    pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut asked = false;
    let mut is_greeting = greets;
    let listening = async {
        loop {
            tokio::select! {
                biased;
                _ = pace.tick() => {
                    is_greeting = is_greeting && !listener.has_been_greeted();
                    let next = if is_greeting { Some(vec![0; FRAME]) } else { frames.next() };
                    let frame = next.unwrap_or_else(|| {
                        if !std::mem::replace(&mut asked, true) {
                            listener.stir();
                        }
                        vec![0; FRAME]
                    });
                    if inbound.send(Inbound::Audio(frame)).await.is_err() {
                        return;
                    }
                    if asked && listener.is_over() {
                        return;
                    }
                }
                message = outbound.recv() => match message {
                    Some(message) => {
                        match &message {
                            Outbound::Audio { samples, .. } => hear(Reply::Audio(samples)),
                            Outbound::Clear => hear(Reply::Clear),
                            _ => {}
                        }
                        listener.take(message);
                    }
                    None => return,
                },
            }
        }
    };
    let patience = PATIENCE * (1 + u32::from(greets));
    let limit = patience + Duration::from_millis(question.len() as u64 * 1_000 / u64::from(RATE));
    // After a timeout, the answer is what has been collected so far.
    let _ = timeout(limit, listening).await;
    listener.answer
}

/// Collects the session's output.
struct Listener {
    began: Instant,
    answer: Answer,
    /// When all audio received so far will have been played.
    played: Instant,
    responding: bool,
    speaking: bool,
    stirred: Instant,
}

impl Listener {
    fn new(began: Instant) -> Self {
        Self {
            began,
            answer: Answer::default(),
            played: began,
            responding: false,
            speaking: false,
            stirred: began,
        }
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: it plays and listens in real time"
    )]
    fn stir(&mut self) {
        self.stirred = Instant::now();
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: it plays and listens in real time"
    )]
    fn is_over(&self) -> bool {
        let quiet_since = self.stirred.max(self.played);
        !self.responding && !self.speaking && Instant::now() >= quiet_since + QUIET
    }

    /// Whether the first thing that the agent says has been heard to its end.
    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: it plays and listens in real time"
    )]
    fn has_been_greeted(&self) -> bool {
        !self.answer.turns.is_empty() && !self.responding && Instant::now() >= self.played
    }

    fn take(&mut self, message: Outbound) {
        self.stir();
        match message {
            Outbound::Audio { samples, .. } => self.play(&samples),
            Outbound::Clear => self.cut(),
            Outbound::Event { event, .. } => self.note(event),
            Outbound::TimerRings | Outbound::HangUp(_) | Outbound::Tones(_) | Outbound::Keys(_) => {
            }
        }
    }

    /// Appends audio where it is played: after the queued audio, or now, preceded by silence.
    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: it plays and listens in real time"
    )]
    fn play(&mut self, samples: &[i16]) {
        let now = Instant::now();
        if self.answer.first_audio_ms.is_none() {
            self.answer.first_audio_ms = Some((now - self.began).as_millis() as u64);
            self.played = now;
        }
        let silence = now.saturating_duration_since(self.played);
        let gap = (silence.as_secs_f64() * f64::from(RATE)) as usize;
        self.answer.audio.resize(self.answer.audio.len() + gap, 0);
        self.answer.audio.extend(samples);
        let length = Duration::from_secs_f64(samples.len() as f64 / f64::from(RATE));
        self.played = self.played.max(now) + length;
    }

    /// Drops audio that has not been played.
    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: it plays and listens in real time"
    )]
    fn cut(&mut self) {
        let now = Instant::now();
        let ahead = self.played.saturating_duration_since(now);
        let samples = (ahead.as_secs_f64() * f64::from(RATE)) as usize;
        self.answer
            .audio
            .truncate(self.answer.audio.len().saturating_sub(samples));
        self.played = self.played.min(now);
    }

    fn note(&mut self, event: Event) {
        match &event {
            Event::SpeechStarted { .. } => self.speaking = true,
            Event::SpeechStopped { .. } => self.speaking = false,
            Event::UserItem { text, .. } => self.answer.heard.push(text.clone()),
            Event::ResponseStarted { .. } => self.responding = true,
            // Of what was cut off at once nothing was heard.
            Event::AgentItemDone { text, .. } if text.is_empty() => {}
            Event::AgentItemDone { text, .. } => self.answer.said.push(text.clone()),
            Event::TurnRecorded(record) => self.answer.records.push((**record).clone()),
            Event::ResponseDone { latency, .. } => {
                self.responding = false;
                self.answer.turns.push(**latency);
            }
            _ => {}
        }
        let ms = self.began.elapsed().as_millis() as u64;
        self.answer.events.push((ms, event));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::{ClauseId, ItemId, ResponseStatus, Time, TurnId};
    use crate::llm::TokenUsage;
    use tokio::sync::mpsc;

    fn begins() -> Event {
        Event::ResponseStarted {
            turn: TurnId(1),
            requested: false,
            opens: false,
        }
    }

    fn ends() -> Event {
        Event::ResponseDone {
            turn: TurnId(1),
            status: ResponseStatus::Completed,
            latency: Box::default(),
            usage: TokenUsage::default(),
        }
    }

    /// The wait for the answer began with the greeting.
    #[tokio::test(start_paused = true)]
    async fn a_long_greeting_leaves_the_answer_its_time() {
        let (inbound, mut frames) = mpsc::channel(8);
        let (outbound, answers) = mpsc::channel(8);
        let session = SessionHandle {
            inbound,
            outbound: answers,
            span: tracing::Span::none(),
        };
        let agent = async move {
            let tell = async |event| {
                let at = Time(0);
                outbound.send(Outbound::Event { at, event }).await.unwrap();
            };
            tell(begins()).await;
            let greeting = Outbound::Audio {
                item: ItemId(1),
                clause: ClauseId(1),
                samples: vec![0; 50 * RATE as usize],
            };
            outbound.send(greeting).await.unwrap();
            tell(ends()).await;
            let mut since = 0;
            while let Some(Inbound::Audio(frame)) = frames.recv().await {
                if since > 0 || frame.contains(&1) {
                    since += 1;
                }
                match since {
                    1 => tell(begins()).await,
                    1_000 => {
                        let (item, text) = (ItemId(2), "Noon.".to_owned());
                        let interrupted = false;
                        tell(Event::AgentItemDone {
                            item,
                            text,
                            interrupted,
                        })
                        .await;
                        tell(ends()).await;
                    }
                    _ => {}
                }
            }
        };
        let mut hear = |_: Reply<'_>| {};
        let question = [1_i16; FRAME];
        let (answer, ()) = tokio::join!(converse(session, true, &question, &mut hear), agent);
        assert_eq!(answer.said, ["Noon."]);
        assert_eq!(answer.turns.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    #[allow(clippy::disallowed_methods, reason = "the clock stands still")]
    async fn a_question_waits_for_the_end_of_the_greeting() {
        let mut listener = Listener::new(Instant::now());
        assert!(!listener.has_been_greeted());
        listener.note(begins());
        listener.play(&[0; RATE as usize]);
        assert!(!listener.has_been_greeted());
        listener.note(ends());
        assert!(!listener.has_been_greeted(), "it is still being played");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(listener.has_been_greeted());
        // What was cut off at once was told as an empty line.
        for text in ["", "Hello."] {
            listener.note(Event::AgentItemDone {
                item: ItemId(1),
                text: text.into(),
                interrupted: text.is_empty(),
            });
        }
        assert_eq!(listener.answer.said, ["Hello."]);
    }
}
