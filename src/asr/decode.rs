//! Rules that both Whisper engines share: audio context, stopping, and which transcripts to trust.

use super::{Doubt, Recognised};
use crate::language::Marks;

/// Samples of one encoder frame: 20 ms at 16 kHz.
pub(super) const ENCODER_FRAME: usize = 320;

/// The longest audio that Whisper takes at once, samples: 30 s.
pub const MAX_SAMPLES: usize = MAX_FRAMES * ENCODER_FRAME;

/// The same in frames: all the context that there is.
pub(super) const MAX_FRAMES: usize = 1_500;

/// The least context of whisper.cpp: below about 450 frames tiny.en repeats itself.
pub(super) const MIN_FRAMES: usize = 512;

/// Frames of silence after the audio.
pub(super) const MARGIN_FRAMES: usize = 64;

/// The context with which audio that made the model loop is tried again. The third try has all that the
/// model was trained with, and takes three times as long.
const RETRY_FRAMES: usize = 768;

/// Nobody says more words in a second, counting the silence around them: fast speech has four.
const MOST_WORDS_PER_SECOND: usize = 5;

/// Text whose tokens are on average less likely than this is not believed: Whisper's own limit is
/// -1.0, at which it tries again; we have no time to.
const MIN_CONFIDENCE: f32 = -1.0;

/// Text that the model itself doubts to be speech has to be more likely than that. Of 29 recordings
/// of speech, at full level and 12 dB lower, none came near both limits; a barking dog passes
/// Whisper's own pair (0.6 and -1.0).
const MAX_NO_SPEECH: f32 = 0.4;
const MIN_CONFIDENCE_IN_DOUBT: f32 = -0.4;

/// A decoded text that is not yet believed.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) text: String,
    pub(super) tokens: Vec<u32>,
    /// Mean log probability of the tokens, the end of text included.
    pub(super) confidence: f32,
    /// The model's probability that there is no speech.
    pub(super) no_speech: f32,
    /// The punctuation expected after the last word, if the engine reports it.
    pub(super) marks: Option<Marks>,
    /// The language of the words, if it was one of several.
    pub(super) language: Option<String>,
}

impl Candidate {
    /// Whether the model said the same over and over: some run of tokens at least four times.
    pub(super) fn loops(&self) -> bool {
        self.repeats(2, 4)
    }

    /// Whether it may have begun to: something is said twice. People do that, so more context
    /// decides.
    pub(super) fn may_loop(&self) -> bool {
        self.repeats(3, 2)
    }

    /// The first half, if the second half repeats it and nobody speaks that fast: the model began again. That
    /// happens to audio that ends right after the last word.
    fn doubled(&self, samples: usize) -> Option<String> {
        let words: Vec<&str> = self.text.split_whitespace().collect();
        let (first, second) = words.split_at(words.len() / 2);
        let too_fast = words.len() * 16_000 > samples * MOST_WORDS_PER_SECOND;
        (self.may_loop() && first == second && too_fast).then(|| first.join(" "))
    }

    /// Whether a run of at least `shortest` tokens stands `times` times in a row.
    fn repeats(&self, shortest: usize, times: usize) -> bool {
        (shortest..=self.tokens.len() / times).any(|length| {
            self.tokens
                .windows(times * length)
                .any(|run| run.chunks(length).all(|part| part == &run[..length]))
        })
    }
}

/// Decodes with as much context as the audio needs, `least` frames at least, and with more of it while the model seems to
/// loop. What loops even with all of it is not believed. A `partial` is tried once, and what may loop in it is not
/// believed: three tries would keep the words of the pause waiting for half a second.
pub(super) fn with_retry<E>(
    samples: usize,
    least: usize,
    partial: bool,
    mut decode: impl FnMut(usize) -> Result<Candidate, E>,
) -> Result<Recognised, E> {
    let mut tried = 0;
    let mut heard = Recognised::default();
    for context in audio_context(samples, least) {
        if context == tried {
            break;
        }
        tried = context;
        let candidate = decode(context)?;
        if let Some(once) = candidate.doubled(samples) {
            return Ok(accept(Candidate {
                text: once,
                ..candidate
            }));
        }
        let (loops, may_loop) = (candidate.loops(), candidate.may_loop());
        if partial && (loops || may_loop) {
            break;
        }
        heard = match loops {
            true => Recognised::default(),
            false => accept(candidate),
        };
        if !loops && !may_loop {
            break;
        }
    }
    Ok(heard)
}

/// Bounds of one decoding.
pub(super) struct Limits {
    /// The most tokens that speech of this length can have.
    pub(super) tokens: usize,
}

impl Limits {
    /// Six tokens a second, and some for short audio.
    pub(super) fn for_samples(samples: usize) -> Self {
        Self {
            tokens: samples * 6 / 16_000 + 14,
        }
    }
}

/// The context to try first, and those to try if the model loops.
fn audio_context(samples: usize, least: usize) -> [usize; 3] {
    let frames = samples.div_ceil(ENCODER_FRAME) + MARGIN_FRAMES;
    let first = frames.clamp(least, MAX_FRAMES);
    let second = (first + 256).clamp(RETRY_FRAMES, MAX_FRAMES);
    [first, second, MAX_FRAMES]
}

/// The verdict on a candidate: its text without bracketed sounds, or none and why.
fn accept(candidate: Candidate) -> Recognised {
    let Candidate {
        confidence,
        no_speech,
        marks,
        language,
        ..
    } = candidate;
    let text = words(&candidate.text);
    if text.is_empty() || is_hallucination(&text, confidence) {
        return Recognised::default();
    }
    let doubt = match () {
        () if confidence < MIN_CONFIDENCE => Some(Doubt::Unclear),
        () if no_speech > MAX_NO_SPEECH && confidence < MIN_CONFIDENCE_IN_DOUBT => {
            Some(Doubt::NoSpeech(text.clone()))
        }
        () => None,
    };
    if doubt.is_some() {
        tracing::debug!(text, confidence, no_speech, "not believed");
    }
    let text = if doubt.is_none() { text } else { String::new() };
    Recognised {
        text,
        marks,
        doubt,
        language,
        provisional: false,
    }
}

/// Texts that Whisper typically invents for silence and noise, unless it is confident.
fn is_hallucination(text: &str, confidence: f32) -> bool {
    let words = text
        .trim_matches(|c: char| !c.is_alphanumeric())
        .to_lowercase();
    let is_credit = CREDITS.iter().any(|credit| words.contains(credit));
    is_credit || (confidence < -0.5 && INVENTED.contains(&words.as_str()))
}

/// The ends of many videos, in the languages of the packs.
const INVENTED: [&str; 7] = [
    "you",
    "thank you",
    "thanks for watching",
    "vielen dank",
    "vielen dank für's zuschauen",
    "gracias",
    "gracias por ver el video",
];

/// Credits of subtitles, which nobody says to an agent.
const CREDITS: [&str; 4] = [
    "amara.org",
    "untertitel im auftrag des zdf",
    "untertitelung des zdf",
    "subtítulos realizados por",
];

/// The words of a transcript, in one line; empty if there is neither a letter nor a digit in them.
pub(super) fn words(transcript: &str) -> String {
    let words = without_sounds(transcript);
    match words.chars().any(char::is_alphanumeric) {
        true => words,
        false => String::new(),
    }
}

/// Drops `[music]`, `(static)` and `*sighs*`.
fn without_sounds(text: &str) -> String {
    let (mut kept, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find(['[', '(', '*']) {
        let (before, bracketed) = rest.split_at(at);
        let (begin, inside) = bracketed.split_at(1);
        kept.push_str(before);
        let behind = behind_sound(&kept, begin, inside);
        if behind.is_none() {
            kept.push_str(begin);
        }
        rest = behind.unwrap_or(inside);
    }
    kept.push_str(rest);
    kept.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The text behind the sound that begins with `begin` and goes on with `inside`. `None` if it is none: `(555) 010-0199`
/// is a number, and `f***` a word.
fn behind_sound<'a>(before: &str, begin: &str, inside: &'a str) -> Option<&'a str> {
    let end = match begin {
        "[" => ']',
        "(" => ')',
        _ => '*',
    };
    let (sound, behind) = match inside.split_once(end) {
        Some(closed) => closed,
        // The only sound was cut off.
        None if end != '*'
            && !before.contains(char::is_alphanumeric)
            && inside.split_whitespace().count() <= 2 =>
        {
            (inside, "")
        }
        None => return None,
    };
    let in_word = before.ends_with(|c: char| c == '*' || c.is_alphanumeric());
    let is_sound = match end {
        '*' => !in_word && sound.starts_with(char::is_alphabetic),
        _ => !sound.is_empty(),
    };
    let has_digits = sound.contains(|c: char| c.is_ascii_digit());
    (is_sound && !has_digits).then_some(behind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(text: &str, tokens: &[u32], confidence: f32) -> Candidate {
        Candidate {
            text: text.into(),
            tokens: tokens.to_vec(),
            confidence,
            no_speech: 0.0,
            marks: None,
            language: None,
        }
    }

    #[test]
    fn loops_are_found_and_plain_speech_is_not_one() {
        assert!(candidate("", &[1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3], 0.0).loops());
        assert!(candidate("", &[9, 5, 6, 5, 6, 5, 6, 5, 6, 7], 0.0).loops());
        assert!(!candidate("", &[1, 1, 1, 1], 0.0).loops());
        assert!(!candidate("", &[1, 2, 3, 4, 5, 6, 1, 2, 3, 4], 0.0).may_loop());
        assert!(candidate("", &[9, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 8], 0.0).may_loop());
    }

    #[test]
    fn a_question_that_is_heard_twice_in_the_time_of_one_was_said_once() {
        let twice = "What is the weather in Denver? What is the weather in Denver?";
        let tokens = [1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 4, 5, 6, 7];
        let hear = |samples, least| {
            let mut tries = 0;
            let heard = with_retry(samples, least, false, |_| {
                tries += 1;
                Ok::<_, ()>(candidate(twice, &tokens, -0.1))
            });
            (heard.unwrap().text, tries)
        };
        let once = "What is the weather in Denver?".to_owned();
        assert_eq!(hear(2 * 16_000, MIN_FRAMES), (once.clone(), 1));
        // There was time to say it twice: more context decides.
        assert_eq!(hear(4 * 16_000, MIN_FRAMES), (twice.to_owned(), 3));
        // An engine that always has all the context: only the length of the audio decides.
        assert_eq!(hear(2 * 16_000, MAX_FRAMES), (once, 1));
        assert_eq!(hear(4 * 16_000, MAX_FRAMES), (twice.to_owned(), 1));
    }

    #[test]
    fn a_question_that_loops_is_heard_with_all_the_context_there_is() {
        let looping = candidate("Tell me a joke", &[1, 2, 3, 4].repeat(5), 0.0);
        let clear = candidate("Tell me a joke.", &[1, 2, 3, 4, 5], 0.0);
        let text = with_retry(16_000, MIN_FRAMES, false, |frames| match frames {
            MAX_FRAMES => Ok::<_, ()>(clear.clone()),
            _ => Ok(looping.clone()),
        });
        assert_eq!(text, Ok("Tell me a joke.".into()));
        let text = with_retry(16_000, MIN_FRAMES, false, |_| Ok::<_, ()>(looping.clone()));
        assert_eq!(text, Ok(Recognised::default()));
    }

    #[test]
    fn what_is_said_twice_is_heard_again_and_then_believed() {
        let twice = candidate(
            " Yes please do. Yes please do.",
            &[1, 2, 3, 4, 5, 1, 2, 3, 4, 5],
            0.0,
        );
        let mut contexts = Vec::new();
        let text = with_retry(2 * 16_000, MIN_FRAMES, false, |frames| {
            contexts.push(frames);
            Ok::<_, ()>(twice.clone())
        });
        assert_eq!(text.unwrap().text, "Yes please do. Yes please do.");
        assert_eq!(contexts, [512, 768, 1_500]);
    }

    #[test]
    fn a_partial_that_may_loop_is_dropped_at_once() {
        let looping = candidate("80% of 80% of 80% of", &[1, 2, 1, 2, 1, 2, 1, 2], 0.0);
        let mut tries = 0;
        let heard = with_retry(2 * 16_000, MIN_FRAMES, true, |_| {
            tries += 1;
            Ok::<_, ()>(looping.clone())
        });
        assert_eq!((heard, tries), (Ok(Recognised::default()), 1));
        let clear = candidate("How much is", &[1, 2, 3], 0.0);
        let heard = with_retry(16_000, MIN_FRAMES, true, |_| Ok::<_, ()>(clear.clone()));
        assert_eq!(heard.unwrap().text, "How much is");
    }

    #[test]
    fn sounds_are_not_words() {
        let text = |text| accept(candidate(text, &[], 0.0)).text;
        assert_eq!(text(" (static)"), "");
        assert_eq!(text(" [BLANK_AUDIO] Hello there."), "Hello there.");
        assert_eq!(text(" ..."), "");
        assert_eq!(text(" (coughs"), "");
        assert_eq!(text("[music] *sighs* (laughs"), "");
        let number = "Call (555) 010-0199 *now*";
        assert_eq!(text(number), "Call (555) 010-0199");
        for said in [
            "How much is 5 * 3?",
            "What is 2 * x?",
            "What is x * y plus z?",
            "What the f*** is going on with my order?",
            "What the f**k is this sh*t, and who sold me that sh*t?",
            "Is it ** or () or neither?",
            "It opens (at noon, I think.",
            "(Yes, I would like that",
        ] {
            assert_eq!(text(said), said);
        }
    }

    #[test]
    fn unsure_text_is_not_believed() {
        let unclear = accept(candidate("Banana", &[], -1.5));
        assert_eq!(
            (unclear.text, unclear.doubt),
            (String::new(), Some(Doubt::Unclear))
        );
        let doubtful = Candidate {
            no_speech: 0.5,
            ..candidate("Oh", &[], -0.55)
        };
        let noise = accept(doubtful);
        let no_speech = Some(Doubt::NoSpeech("Oh".into()));
        assert_eq!((noise.text, noise.doubt), (String::new(), no_speech));
        assert_eq!(accept(candidate("You", &[], -0.7)), Recognised::default());
        assert_eq!(accept(candidate("You", &[], -0.1)).text, "You");
        assert_eq!(accept(candidate("Gracias.", &[], -0.1)).text, "Gracias.");
        let credit = " Untertitel der Amara.org-Community";
        assert_eq!(accept(candidate(credit, &[], -0.1)), Recognised::default());
    }

    #[test]
    fn the_context_is_never_too_short_or_too_long() {
        assert_eq!(audio_context(16_000, MIN_FRAMES), [512, 768, 1_500]);
        assert_eq!(audio_context(MAX_SAMPLES, MIN_FRAMES), [1_500; 3]);
    }
}
