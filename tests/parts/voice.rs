//! Tests the voice where two clauses meet.

use crate::common;
use common::Errors;
use undertone::asr::{Asr, WhisperOnnx};
use undertone::conversation::Clauses;
use undertone::language::pack;
use undertone::tts::{self, Piper, Tts};

/// Hz; sessions send frames of 20 ms, so a clause is padded to whole frames.
const RATE: u32 = 24_000;
const FRAME: usize = RATE as usize / 50;

/// Below this is silence: -44 dBFS. The softest consonants of the voice are louder.
const QUIET: f32 = 0.006;

/// The voice varies: now and then the recogniser mishears a take of it.
const TAKES: usize = 5;

/// Clauses that follow each other, with soft consonants on both sides of the seam.
const ANSWERS: [&[&str]; 6] = [
    &["Let me check the weather.", "It is sunny in London."],
    &["Take it off the roof.", "Five birds live there."],
    &["One moment, please.", "Half past three.", "That is enough."],
    &[
        "There were eleven left on the shelf,",
        "she said with a laugh.",
    ],
    &["Which one would you like?", "He has both."],
    &["I wish you luck!", "Your train leaves at six."],
];

/// A user hears a filler and the answer as one utterance, sentence by sentence.
#[test]
fn two_clauses_are_120_ms_apart_at_most_and_keep_their_words() {
    let weights = common::weights();
    let mut voice = Piper::load(&weights.join("piper-joe")).unwrap();
    let mut asr = WhisperOnnx::load(&weights.join("whisper-tiny.en")).unwrap();
    let mut seams = Vec::new();
    for clauses in ANSWERS {
        let understood = (0..TAKES).any(|_| {
            let spoken: Vec<Vec<f32>> = clauses.iter().map(|c| said(&mut voice, c)).collect();
            for pair in spoken.windows(2) {
                let silence = silent(pair[0].iter().rev()) + silent(pair[1].iter());
                seams.push(silence as f32 * 1_000.0 / RATE as f32);
            }
            let audio = common::resampled(&spoken.concat(), RATE, 16_000);
            let heard = asr.transcribe(&audio).unwrap();
            println!("{heard}");
            let mut errors = Errors::default();
            errors.add(&clauses.join(" "), &heard);
            errors.wrong == 0
        });
        assert!(understood, "{clauses:?} lost a word in {TAKES} takes");
    }
    println!("{seams:.0?} ms");
    assert!(seams.iter().all(|&ms| ms <= 120.0), "{seams:.0?}");
    let mean = seams.iter().sum::<f32>() / seams.len() as f32;
    assert!(mean >= 65.0, "a sentence's end must be heard: {mean:.0} ms");
}

/// A clause as a session sends it.
fn said(voice: &mut Piper, clause: &str) -> Vec<f32> {
    let speech = tts::whole(voice, clause).unwrap();
    let mut speech = common::resampled(&speech, voice.sample_rate(), RATE);
    speech.resize(speech.len().next_multiple_of(FRAME), 0.0);
    speech
}

/// The number of samples before the first sound.
fn silent<'a>(samples: impl Iterator<Item = &'a f32>) -> usize {
    samples.take_while(|sample| sample.abs() <= QUIET).count()
}

/// The table of written forms, and how each is to be said.
const FORMS: &str = include_str!("../../src/language/en/spoken.tsv");

/// The forms of each kind of which one is heard back.
const SHARE: usize = 5;

/// The takes in which a form may be understood.
const FORM_TAKES: usize = 3;

/// Written forms are said so that they are understood: a recogniser hears the numbers and the words that were meant. It
/// mishears some whatever is said, such as "4 1 1 1, 1 1 1 1".
#[test]
fn written_forms_are_heard_as_they_were_meant() {
    let weights = common::weights();
    let mut voice = Piper::load(&weights.join("piper-joe")).unwrap();
    let mut asr = WhisperOnnx::load(&weights.join("whisper-tiny.en")).unwrap();
    let sample = sampled(FORMS, 7);
    let (mut numbers, mut words) = (0, 0);
    for (written, said) in &sample {
        let meant = Heard::of(said);
        let (mut takes, mut has_numbers, mut has_words) = (Vec::new(), false, false);
        while takes.len() < FORM_TAKES && !(has_numbers && has_words) {
            let take = heard_back(&mut voice, &mut asr, written);
            let heard = Heard::of(&take);
            has_numbers |= heard.digits == meant.digits;
            has_words |= heard.has_words_of(&meant);
            takes.push(take);
        }
        numbers += usize::from(has_numbers);
        words += usize::from(has_words);
        if takes.len() > 1 {
            println!("{written:?}, meant as {said:?}, was heard as {takes:?}");
        }
    }
    println!(
        "of {} forms: {numbers} numbers, {words} words",
        sample.len()
    );
    assert!(sample.len() >= 30, "{} forms", sample.len());
    assert!(numbers + 2 >= sample.len(), "{numbers} of {}", sample.len());
    assert!(words + 3 >= sample.len(), "{words} of {}", sample.len());
}

/// Run it with `UNDERTONE_KOKORO=voices/af_heart.bin`.
#[test]
#[ignore = "needs the Kokoro voice that UNDERTONE_KOKORO names"]
#[allow(
    clippy::disallowed_methods,
    reason = "it prints how long the voice takes"
)]
fn a_kokoro_voice_is_heard_as_it_was_meant() {
    let path = std::env::var("UNDERTONE_KOKORO").expect("UNDERTONE_KOKORO names a voice");
    let weights = common::weights();
    let mut voice = tts::load(path.as_ref()).expect("a voice");
    let mut asr = WhisperOnnx::load(&weights.join("whisper-tiny.en")).unwrap();
    let mut errors = Errors::default();
    for clauses in ANSWERS {
        let text = clauses.join(" ");
        let heard = heard_back(&mut *voice, &mut asr, &text);
        println!("{text:?} was heard as {heard:?}");
        errors.add(&text, &heard);
    }
    let rate = voice.sample_rate() as f32;
    for clause in ["It is noon.", "I have set a timer for ten minutes."] {
        let began = std::time::Instant::now();
        let speech = voice
            .speak(clause)
            .expect("speech")
            .next()
            .expect("audio")
            .expect("audio");
        let seconds = speech.len() as f32 / rate;
        println!(
            "{clause:?}: {seconds:.2} s of sound after {:?}",
            began.elapsed()
        );
        let onset = speech
            .iter()
            .position(|sample| sample.abs() > 0.02)
            .expect("sound");
        assert!(
            onset < RATE as usize / 15,
            "{onset} samples of silence first"
        );
        assert!(speech.iter().all(|sample| sample.abs() < 1.0));
    }
    let fast = tts::whole_at(
        &mut *voice,
        "One two three four.",
        tts::Speed::of(2.0).expect("a speed"),
    );
    let slow = tts::whole(&mut *voice, "One two three four.").expect("speech");
    let (fast, slow) = (fast.expect("speech").len(), slow.len());
    assert!(5 * fast < 4 * slow, "{fast} and {slow} samples");
    assert!(tts::whole(&mut *voice, "...").expect("silence").is_empty());
    let percent = errors.percent();
    println!("{percent:.1} % of {} words wrong", errors.words);
    assert!(percent <= 10.0, "{percent} %");
}

/// A text as a session says it and the recogniser hears it.
fn heard_back(voice: &mut dyn Tts, asr: &mut WhisperOnnx, text: &str) -> String {
    let mut speech = vec![0.0; 8_000];
    for clause in clauses(text) {
        speech.extend(common::spoken(voice, &clause, 16_000));
    }
    speech.extend([0.0; 8_000]);
    asr.transcribe(&speech).unwrap()
}

/// The clauses into which a response cuts a text.
fn clauses(text: &str) -> Vec<String> {
    Clauses::of(pack(None), text)
}

/// One in [`SHARE`] of the table's lines of each kind, rounded up, chosen by `seed`.
fn sampled(table: &str, seed: usize) -> Vec<(&str, &str)> {
    let kinds = table.split("# ").filter(|kind| !kind.is_empty());
    let mut sample = Vec::new();
    for (nth, kind) in kinds.enumerate() {
        let forms: Vec<_> = kind
            .lines()
            .filter_map(|line| line.split_once('\t'))
            .collect();
        let chosen = (0..forms.len().div_ceil(SHARE)).map(|at| at * SHARE + (seed + nth) % SHARE);
        sample.extend(chosen.filter_map(|at| forms.get(at).copied()));
    }
    sample
}

/// A text as it is heard, whether numbers are spelt out, grouped, or written with signs.
struct Heard {
    /// The digits of all numbers, in order.
    digits: String,
    /// The letters of all other words.
    letters: String,
}

impl Heard {
    fn of(text: &str) -> Self {
        let (mut digits, mut letters) = (String::new(), String::new());
        let text = text
            .to_lowercase()
            .replace('%', " percent ")
            .replace(',', "");
        let is_apart = |c: char| !c.is_alphanumeric();
        for word in text.split(is_apart).filter(|word| !word.is_empty()) {
            if let Some((_, number)) = NUMBERS.iter().find(|(spelt, _)| *spelt == word) {
                digits.push_str(number);
                continue;
            }
            let number: String = word.chars().filter(char::is_ascii_digit).collect();
            let rest: String = word.chars().filter(|c| c.is_alphabetic()).collect();
            digits.push_str(&number);
            let ordinal = !number.is_empty() && ["st", "nd", "rd", "th", "s"].contains(&&*rest);
            if !ordinal && !SIGNS.contains(&&*rest) {
                letters.push_str(&rest);
            }
        }
        Self { digits, letters }
    }

    /// Whether seven in ten of the letters that were meant were heard.
    fn has_words_of(&self, meant: &Self) -> bool {
        let letters = |text: &str| text.chars().map(String::from).collect::<Vec<_>>();
        let wrong = common::distance(&letters(&meant.letters), &letters(&self.letters));
        wrong * 10 <= meant.letters.len() * 3
    }
}

/// Numbers in words, with their digits.
const NUMBERS: [(&str, &str); 19] = [
    ("oh", "0"),
    ("zero", "0"),
    ("one", "1"),
    ("two", "2"),
    ("three", "3"),
    ("four", "4"),
    ("five", "5"),
    ("six", "6"),
    ("seven", "7"),
    ("eight", "8"),
    ("nine", "9"),
    ("ten", "10"),
    ("nineties", "90"),
    ("first", "1"),
    ("second", "2"),
    ("third", "3"),
    ("hundred", "00"),
    ("million", "000000"),
    ("billion", "000000000"),
];

/// Words that a recogniser writes as signs, or leaves out beside them.
const SIGNS: [&str; 10] = [
    "and", "cent", "cents", "dash", "dollar", "dollars", "dot", "point", "slash", "us",
];
