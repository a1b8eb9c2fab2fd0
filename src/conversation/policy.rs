//! The settings of the rules, as the operator configured them.

use super::answer_end::AnswerPolicy;
use super::briefing::Briefing;
use super::draft::DraftPolicy;
use super::opening::Opening;
use super::overlap::{BargeInPolicy, ListeningWords};
use super::turn_detection::{Eagerness, TurnDetection};
use crate::llm::Phrases;
use crate::time::Micros;
use crate::tools::Declaration;
use crate::tts::Speaker;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The declarations of tools, in the order in which they are offered to the model.
pub type Declarations = Arc<Vec<Arc<Declaration>>>;

/// The settings of the rules. They are part of each recording, because a replay needs them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// How speech is detected.
    pub vad: VadPolicy,
    /// How long a silence ends the turn.
    pub endpoint: EndpointPolicy,
    /// How turns are detected, until the client changes it.
    pub turn_detection: TurnDetection,
    /// Time limits.
    #[serde(flatten)]
    pub timeouts: Timeouts,
    /// The most rounds of tools in one turn. The generation after the last round must not call one.
    pub tool_steps: u32,
    /// How much text a client may add.
    #[serde(default)]
    pub text: TextLimits,
    /// The maximum length of an answer.
    #[serde(default)]
    pub answer: AnswerPolicy,
    /// The operator's limit on the tokens of one generation; unlimited if `None`.
    #[serde(default)]
    pub max_tokens: Option<u32>,
    /// The agent's voice and language.
    #[serde(default, skip_serializing_if = "Speaker::is_default")]
    pub speaker: Speaker,
    /// Spoken when the session begins.
    #[serde(flatten)]
    pub opening: Opening,
    /// The model's instructions besides the conversation.
    #[serde(flatten)]
    pub briefing: Briefing,
    /// Phrases for failures.
    pub phrases: Phrases,
    /// The tools that the server runs.
    pub tools: Declarations,
    /// Limits on speculation.
    pub speculation: SpeculationPolicy,
    /// Filler while the user waits.
    pub filler: FillerPolicy,
}

/// Time limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeouts {
    /// Silence, while an answer is due, after which the agent says a filler.
    pub dead_air: Micros,
    /// Silence of the language model after which it counts as failed.
    pub generation_timeout: Micros,
    /// How long it may think, or its server may keep the connection alive, before its next word.
    #[serde(default = "thinking")]
    pub thinking: Micros,
    /// The longest wait for the first audio of a clause, and for each further piece.
    pub synthesis_timeout: Micros,
    /// The longest gap in the user's audio in mid-utterance before it counts as silence: a muted client may
    /// send nothing.
    pub audio_timeout: Micros,
    /// How long after the end of the turn the transcript may come before the user is asked to repeat.
    pub transcript_timeout: Micros,
    /// Silence of the user, after the agent has spoken, before they are asked whether they are still there;
    /// never if `None`.
    #[serde(default)]
    pub silence_prompt: Option<Micros>,
    /// The session ends after this long without activity.
    pub idle: Micros,
    /// The maximum length of a session.
    pub session: Micros,
}

/// How speech is detected.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct VadPolicy {
    /// A window with at least this probability is speech (0.5: Silero's default).
    pub threshold: f32,
    /// Within speech, a window below this probability is silence.
    pub release: f32,
    /// Consecutive windows of speech that begin an utterance.
    pub start_windows: u32,
    /// Consecutive windows of speech that begin one while the agent speaks, so that a cough does not stop it.
    pub interrupt_windows: u32,
    /// The speech that stops the agent.
    #[serde(default)]
    pub barge_in: BargeInPolicy,
    /// Audio before the first window of speech that belongs to the utterance, ms.
    pub pre_roll_ms: u64,
}

/// How long a silence ends the turn, counted from where the voice fell silent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct EndpointPolicy {
    /// Speech between two partials, ms.
    pub partial_every_ms: u64,
    /// Silence after which the final transcript is requested, ms: so soon that it is made while the end of the
    /// turn is still open.
    pub transcribe_after_ms: u64,
    /// That silence while the server is busy, ms: longer, because many short silences are not pauses.
    #[serde(default)]
    pub busy_transcribe_after_ms: u64,
    /// Silence after which the end-of-turn score is requested, ms.
    pub score_after_ms: u64,
    /// Silence that ends a turn that sounds and reads complete, ms.
    pub complete_ms: u64,
    /// Silence that ends a turn of which nothing is known, or that is as unclear as `incomplete_below`, ms.
    pub unsure_ms: u64,
    /// Silence that ends a turn that sounds or reads unfinished, ms.
    pub incomplete_ms: u64,
    /// A turn that is over with at least this probability gets the shortest wait.
    pub complete_above: f32,
    /// The words up to a gap are the transcript if the turn is over with at least this probability. `complete_above` if
    /// `None`.
    #[serde(default)]
    pub certain_above: Option<f32>,
    /// The model is asked to answer the words up to a gap if the turn is over with at least this probability. If they are not
    /// all, work is lost, and one of `generations_per_turn`, the last of which is kept for certain words. As `certain_above`
    /// if `None`.
    #[serde(default)]
    pub likely_above: Option<f32>,
    /// Below this probability the wait grows beyond `unsure_ms`; at five sixths of it, it is the longest.
    pub incomplete_below: f32,
    /// The longest audio that is transcribed at once, ms; the recogniser takes 30 s.
    pub segment_ms: u64,
    /// How much of an utterance without recognised words must be certain speech for the user to be asked to
    /// repeat, ms; never if `None`.
    #[serde(default)]
    pub ask_again_ms: Option<u64>,
}

impl Policy {
    /// The phrases in the language that the agent speaks.
    pub fn phrases(&self) -> &Phrases {
        let language = self.speaker.pack();
        let embedded = Phrases::of(language).filter(|_| !self.phrases.are_in(language));
        embedded.unwrap_or(&self.phrases)
    }

    /// The server's tool of this name, even if the client has since declared one of the same name: a call
    /// committed to the server's tool stays there.
    pub(super) fn tool(&self, name: &str) -> Option<&Arc<Declaration>> {
        self.tools.iter().find(|tool| tool.spec.name == name)
    }
}

impl VadPolicy {
    /// A policy with which a window is speech from `threshold` on, and `start_ms` of speech begin an utterance.
    pub fn at(threshold: f32, start_ms: u32) -> Self {
        let vad = Self::default();
        let start_windows = start_ms.div_ceil(WINDOW_MS);
        Self {
            threshold,
            release: (threshold - HYSTERESIS).max(0.01),
            start_windows,
            interrupt_windows: vad.interrupt_windows.max(start_windows),
            ..vad
        }
    }

    /// This policy with the client's settings. The distance from threshold to release stays the operator's.
    pub(super) fn of(self, client: &TurnDetection) -> Self {
        let threshold = client.threshold.unwrap_or(self.threshold);
        let threshold = threshold.max(LEAST_PROBABILITY);
        Self {
            threshold,
            release: (threshold - (self.threshold - self.release)).max(LEAST_PROBABILITY),
            pre_roll_ms: client.prefix_padding_ms.unwrap_or(self.pre_roll_ms),
            ..self
        }
    }
}

/// The distance from threshold to release: Silero's default.
const HYSTERESIS: f32 = 0.15;

/// The length of a window, ms: 512 samples at 16 kHz.
const WINDOW_MS: u32 = 32;

/// The least threshold. Silence scores lower, so that even a threshold of zero does not turn it into endless
/// speech.
const LEAST_PROBABILITY: f32 = 0.05;

/// The longest silence within a turn at low and at high eagerness, ms: OpenAI's values.
const LOW_MS: u64 = 8_000;
const HIGH_MS: u64 = 2_000;

impl EndpointPolicy {
    /// This policy with the client's eagerness. Low waits twice as long if the score is unclear and four times
    /// as long if the turn sounds unfinished; high waits half as long.
    pub(super) fn of(self, client: &TurnDetection) -> Self {
        let (unsure, incomplete, most) = match client.eagerness {
            Eagerness::Low => (self.unsure_ms * 2, self.incomplete_ms * 4, LOW_MS),
            Eagerness::Auto => (self.unsure_ms, self.incomplete_ms, u64::MAX),
            Eagerness::High => (self.unsure_ms / 2, self.incomplete_ms / 2, HIGH_MS),
        };
        Self {
            complete_ms: self.complete_ms.min(most),
            unsure_ms: unsure.max(self.complete_ms).min(most),
            incomplete_ms: incomplete.max(self.complete_ms).min(most),
            ..self
        }
    }

    /// The least probability that the turn is over at which words up to a gap are the transcript.
    pub(super) fn certain(&self) -> f32 {
        self.certain_above.unwrap_or(self.complete_above)
    }

    /// The least at which they are answered.
    pub(super) fn likely(&self) -> f32 {
        self.likely_above.unwrap_or(self.certain())
    }

    /// Silence after which the transcript is requested, ms.
    pub(super) fn transcribe_after(&self, busy: bool) -> u64 {
        match busy {
            true => self.busy_transcribe_after_ms.max(self.transcribe_after_ms),
            false => self.transcribe_after_ms,
        }
    }

    /// How much silence, ms, ends a turn that is over with this probability: the
    /// likelier, the less. If it is not known, the middle wait.
    pub(super) fn silence_needed(&self, done: Option<f32>) -> u64 {
        let Some(done) = done else {
            return self.unsure_ms;
        };
        let (sure, unsure) = (self.complete_above, self.incomplete_below);
        let between = |from: u64, to: u64, share: f32| {
            let share = f64::from(share.clamp(0.0, 1.0));
            from + ((to - from) as f64 * (1.0 - share)) as u64
        };
        match done >= unsure {
            true => between(
                self.complete_ms,
                self.unsure_ms,
                (done - unsure) / (sure - unsure),
            ),
            false => between(
                self.unsure_ms,
                self.incomplete_ms,
                6.0 * done / unsure - 5.0,
            ),
        }
    }
}

fn thinking() -> Micros {
    Micros::from_ms(15_000)
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            dead_air: Micros::from_ms(1_500),
            generation_timeout: Micros::from_ms(4_000),
            thinking: thinking(),
            synthesis_timeout: Micros::from_ms(4_000),
            audio_timeout: Micros::from_ms(1_500),
            transcript_timeout: Micros::from_ms(2_500),
            silence_prompt: None,
            idle: Micros::from_ms(300_000),
            session: Micros::from_ms(3_600_000),
        }
    }
}

impl Default for VadPolicy {
    fn default() -> Self {
        Self {
            threshold: 0.5,
            release: 0.35,
            start_windows: 3,
            interrupt_windows: 5,
            barge_in: BargeInPolicy {
                listening_words: ListeningWords::Pause,
                min_words: 1,
            },
            pre_roll_ms: 300,
        }
    }
}

impl Default for EndpointPolicy {
    fn default() -> Self {
        Self {
            partial_every_ms: 500,
            transcribe_after_ms: 32,
            busy_transcribe_after_ms: 96,
            score_after_ms: 96,
            complete_ms: 160,
            unsure_ms: 500,
            incomplete_ms: 1_500,
            complete_above: 0.86,
            certain_above: Some(0.75),
            likely_above: Some(0.36),
            incomplete_below: 0.36,
            segment_ms: 25_000,
            ask_again_ms: Some(1_000),
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            vad: VadPolicy::default(),
            endpoint: EndpointPolicy::default(),
            turn_detection: TurnDetection::default(),
            timeouts: Timeouts::default(),
            tool_steps: 5,
            text: TextLimits::default(),
            answer: AnswerPolicy::default(),
            max_tokens: None,
            speaker: Speaker::default(),
            opening: Opening::default(),
            briefing: Briefing::default(),
            phrases: Phrases::default(),
            tools: Arc::default(),
            speculation: SpeculationPolicy::default(),
            filler: FillerPolicy::default(),
        }
    }
}

/// When fillers are said while the user waits for a tool.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct FillerPolicy {
    /// The author of the first filler.
    pub lead: FillerLead,
    /// The least confidence of a prediction for the router to lead, 0..1.
    pub confidence: f32,
    /// Waits shorter than this get no filler, ms.
    pub worth_ms: u64,
    /// Waits from this length on count as long, ms.
    pub long_ms: u64,
}

/// The author of the first filler of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FillerLead {
    /// The language model, in its own words; the tool's templates only if it is silent.
    Model,
    /// The tool's templates, as soon as a prediction is confident enough.
    Router,
}

impl Default for FillerPolicy {
    fn default() -> Self {
        Self {
            lead: FillerLead::Model,
            confidence: 0.9,
            worth_ms: 700,
            long_ms: 2_500,
        }
    }
}

/// Limits on speculation in one session.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SpeculationPolicy {
    /// Whether anything may run early.
    pub enabled: bool,
    /// The most speculative runs in one turn.
    pub per_turn: u32,
    /// The most speculative runs at the same time.
    pub at_once: u32,
    /// The value of one second of waiting saved, in the operator's currency. A call that costs something runs
    /// early only if its expected gain covers its expected waste.
    pub value_per_second: f64,
    /// Whether to ask the language model at the first pause that may be the end of the turn, and hold its
    /// answer back until the end is certain.
    pub preemptive: bool,
    /// The most preemptive generations in one turn.
    pub generations_per_turn: u32,
    /// The most assumed commits in one turn: second generations that are requested before the model has
    /// committed the call whose result they speak of.
    #[serde(default)]
    pub assumed_per_turn: u32,
    /// The price of a million of the language model's tokens, in the operator's currency.
    #[serde(default)]
    pub token_price: f64,
    /// The most that the tokens of discarded generations may cost in a day, over all sessions, in the operator's
    /// currency; unlimited if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_cost_per_day: Option<f64>,
    /// The draft model; `None` if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draft: Option<DraftPolicy>,
}

impl Default for SpeculationPolicy {
    fn default() -> Self {
        Self {
            enabled: true,
            per_turn: 3,
            at_once: 2,
            value_per_second: 0.01,
            preemptive: true,
            generations_per_turn: 3,
            assumed_per_turn: 1,
            token_price: 0.0,
            token_cost_per_day: None,
            draft: None,
        }
    }
}

/// Limits on the text that a client may add, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TextLimits {
    /// Instructions and tools together.
    pub set_up: usize,
    /// One item, or one transcript of a client with its own recogniser.
    pub item: usize,
}

impl Default for TextLimits {
    /// Generous limits for engines whose prompts have no limit, such as the local brain.
    fn default() -> Self {
        Self {
            set_up: 256 * 1024,
            item: 64 * 1024,
        }
    }
}
