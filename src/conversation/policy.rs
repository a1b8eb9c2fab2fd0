//! The numbers behind the rules, as the operator set them.

use super::turn_detection::{Eagerness, TurnDetection};
use crate::llm::Phrases;
use crate::time::Micros;
use crate::tools::Declaration;
use crate::tts::Speaker;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The declarations of tools, in the order in which a model is told of them.
pub type Declarations = Arc<Vec<Arc<Declaration>>>;

/// The numbers behind the rules. Part of a recording: a replay needs them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// How speech is told from silence.
    pub vad: VadPolicy,
    /// How long a silence ends the turn.
    pub endpoint: EndpointPolicy,
    /// How turns are taken, until the client says otherwise.
    pub turn_detection: TurnDetection,
    /// How long anything may take.
    #[serde(flatten)]
    pub timeouts: Timeouts,
    /// Tool steps of one turn; in the last generation after them no tool is offered.
    pub tool_steps: u32,
    /// How much text a client may add.
    #[serde(default)]
    pub text: TextLimits,
    /// How long an answer may become.
    #[serde(default)]
    pub answer: AnswerPolicy,
    /// The most tokens that the operator allows the language model in one generation; as many as it
    /// likes if `None`.
    #[serde(default)]
    pub max_tokens: Option<u32>,
    /// The agent's voice and language.
    #[serde(default, skip_serializing_if = "Speaker::is_default")]
    pub speaker: Speaker,
    /// Said when the session begins; nothing if empty.
    pub greeting: String,
    /// The operator's instructions to the model.
    pub instructions: Option<String>,
    /// Phrases for failures.
    pub phrases: Phrases,
    /// The tools that the server runs.
    pub tools: Declarations,
    /// Limits on speculation.
    pub speculation: SpeculationPolicy,
    /// Filler while the user waits.
    pub filler: FillerPolicy,
}

/// How long anything may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeouts {
    /// Silence while an answer is owed, before the agent says that it takes a moment.
    pub dead_air: Micros,
    /// Silence of the language model after which it counts as dead.
    pub generation_timeout: Micros,
    /// How long a clause may take to be made, and its next piece after each piece.
    pub synthesis_timeout: Micros,
    /// How long the user's audio may stay away in the middle of an utterance before it counts as
    /// silence: a client that mutes itself sends none.
    pub audio_timeout: Micros,
    /// How long after the end of the turn a transcript may take before the user is asked again.
    pub transcript_timeout: Micros,
    /// A user who says nothing for so long after the agent has spoken is asked whether they are
    /// still there; never if `None`.
    #[serde(default)]
    pub silence_prompt: Option<Micros>,
    /// Nobody speaks for this long: the session ends.
    pub idle: Micros,
    /// The greatest length of a session.
    pub session: Micros,
}

/// How speech is told from silence.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct VadPolicy {
    /// A window from this probability on is speech (0.5: Silero's default).
    pub threshold: f32,
    /// Within speech, a window below this probability is silence.
    pub release: f32,
    /// Windows of speech in a row that begin an utterance.
    pub start_windows: u32,
    /// The same while the agent speaks, so that a cough does not stop it.
    pub interrupt_windows: u32,
    /// Audio before the first window of speech that belongs to it, ms.
    pub pre_roll_ms: u64,
}

/// How long a silence ends the turn. All spans count from the last speech.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct EndpointPolicy {
    /// Speech between two partial transcripts, ms.
    pub partial_every_ms: u64,
    /// Silence after which the transcript of the turn is made, ms.
    pub transcribe_after_ms: u64,
    /// Silence after which the end-of-turn model is asked, ms.
    pub score_after_ms: u64,
    /// Silence that ends a turn that the model finds complete, ms.
    pub complete_ms: u64,
    /// Silence that ends a turn of which the model is unsure or has said nothing, ms.
    pub unsure_ms: u64,
    /// Silence that ends a turn that sounds or reads unfinished, ms.
    pub incomplete_ms: u64,
    /// The model finds a turn complete above this probability.
    pub complete_above: f32,
    /// The model finds a turn unfinished below this probability.
    pub incomplete_below: f32,
    /// The longest stretch that is transcribed at once, ms; the recogniser takes 30 s.
    pub segment_ms: u64,
    /// A user whose words were not recognised is asked to say them again if so much of the utterance
    /// was certainly speech, ms; never if `None`.
    #[serde(default)]
    pub ask_again_ms: Option<u64>,
}

/// A window from this probability on is certainly speech. Of 6 s of a crowd, coughs, a dog, a horn,
/// music and white noise no window measures more than 0.9; of speech in another language, muffled or
/// in noise, whose words Whisper does not recognise, most measure more than this.
pub(super) const CERTAIN: f32 = 0.97;

impl Policy {
    /// The tool of this name that the server runs, also if the client has taken the name since: what was
    /// committed as the server's stays the server's.
    pub(super) fn tool(&self, name: &str) -> Option<&Arc<Declaration>> {
        self.tools.iter().find(|tool| tool.spec.name == name)
    }
}

impl VadPolicy {
    /// Speech from this probability on, and an utterance after so much of it, ms.
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

    /// With what the client asks for. Speech goes on as far below the threshold as the operator has
    /// it.
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

/// How far below the threshold speech goes on: Silero's own default.
const HYSTERESIS: f32 = 0.15;

/// A window of the detector, 512 samples at 16 kHz.
const WINDOW_MS: u32 = 32;

/// Silence measures less than this: a threshold of zero must not make it speech without end.
const LEAST_PROBABILITY: f32 = 0.05;

/// The longest silence within a turn, ms, of a patient and of an eager agent: OpenAI's.
const LOW_MS: u64 = 8_000;
const HIGH_MS: u64 = 2_000;

impl EndpointPolicy {
    /// With the client's eagerness: a low one waits twice as long where the model is unsure and four
    /// times where the turn sounds unfinished, a high one half as long.
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
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            dead_air: Micros::from_ms(1_500),
            generation_timeout: Micros::from_ms(4_000),
            synthesis_timeout: Micros::from_ms(4_000),
            audio_timeout: Micros::from_ms(1_500),
            transcript_timeout: Micros::from_ms(1_000),
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
            pre_roll_ms: 300,
        }
    }
}

impl Default for EndpointPolicy {
    fn default() -> Self {
        Self {
            partial_every_ms: 500,
            transcribe_after_ms: 96,
            score_after_ms: 160,
            complete_ms: 200,
            unsure_ms: 500,
            incomplete_ms: 1_000,
            complete_above: 0.8,
            incomplete_below: 0.2,
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
            greeting: String::new(),
            instructions: None,
            phrases: Phrases::default(),
            tools: Arc::default(),
            speculation: SpeculationPolicy::default(),
            filler: FillerPolicy::default(),
        }
    }
}

/// How long an answer may become.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AnswerPolicy {
    /// The most words of the model in one response.
    pub words: usize,
    /// The most speech in one response.
    pub speech: Micros,
}

impl AnswerPolicy {
    /// The most that the model may stream for it.
    pub(super) fn bytes(&self) -> usize {
        self.words.saturating_mul(BYTES_PER_WORD)
    }
}

impl Default for AnswerPolicy {
    /// Some three minutes: what a model says in 512 tokens fits.
    fn default() -> Self {
        Self {
            words: 500,
            speech: Micros::from_ms(180_000),
        }
    }
}

/// Bytes of the model for each word that it may say: what is not spoken, such as emoji or white
/// space, has an end, too.
const BYTES_PER_WORD: usize = 64;

/// Rules for filler while the user waits for a tool.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct FillerPolicy {
    /// Who says the first one.
    pub lead: FillerLead,
    /// The router leads from this confidence on, 0..1.
    pub confidence: f32,
    /// A wait shorter than this needs none, ms.
    pub worth_ms: u64,
    /// From here on a wait is long, ms.
    pub long_ms: u64,
}

/// Who says the first filler of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FillerLead {
    /// The language model, in its own words; the tool's templates only if it is silent.
    Model,
    /// The tool's templates, as soon as the router is sure.
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
    /// Whether anything runs early at all.
    pub enabled: bool,
    /// Speculative calls in one turn.
    pub per_turn: u32,
    /// Speculative calls that run at the same time.
    pub at_once: u32,
    /// Value of a second of waiting saved, in the operator's currency. A call that
    /// costs something runs early only if it is likely to be worth more than it wastes.
    pub value_per_second: f64,
    /// Ask the language model at the first pause that may be the end of the turn, and hold its
    /// answer back until the end is certain.
    pub preemptive: bool,
    /// Such early generations in one turn.
    pub generations_per_turn: u32,
}

impl Default for SpeculationPolicy {
    fn default() -> Self {
        Self {
            enabled: true,
            per_turn: 3,
            at_once: 2,
            value_per_second: 0.01,
            preemptive: true,
            generations_per_turn: 2,
        }
    }
}

/// How much text a client may add, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TextLimits {
    /// Its instructions and tools together.
    pub set_up: usize,
    /// One item, and what the user says at once.
    pub item: usize,
}

impl Default for TextLimits {
    /// For a model that is given no long prompts: what no client needs.
    fn default() -> Self {
        Self {
            set_up: 256 * 1024,
            item: 64 * 1024,
        }
    }
}
