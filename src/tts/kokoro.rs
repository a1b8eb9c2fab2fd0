//! Kokoro voices: StyleTTS 2 in one model for all voices and languages, with a file of styles for each voice.
//!
//! The model makes a breath at once, so that its first sound comes later than Piper's: after about half the length of
//! the speech on one core.

use super::espeak::Espeak;
use super::piper::{breaths, failed, levelled, pause_ms, session};
use super::trim::Trimmer;
use super::{OnDemand, Speech, Speed, Tts, TtsError};
use crate::language::{Pack, Phrase, pack};
use ort::session::Session;
use ort::value::TensorRef;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The ending of a voice's file: f32 [lengths, 256], little-endian.
const STYLES: &str = "bin";

/// Values of a style.
const STYLE: usize = 256;

/// Hz.
const SAMPLE_RATE: u32 = 24_000;

/// The most tokens that the model takes, besides the two around them.
const MOST_TOKENS: usize = 510;

/// Memory that a voice takes for each byte of its model: the int8 model of 92 MB takes 300 MB after long clauses.
const MEMORY: u64 = 4;

/// The model's symbols: the number of the first of each run, and the run.
const SYMBOLS: &[(i64, &str)] = &[
    (1, ";:,.!?"),
    (9, "—…\"()“” \u{303}ʣʥʦʨᵝ\u{ab67}AI"),
    (31, "O"),
    (33, "Q"),
    (35, "ST"),
    (39, "W"),
    (41, "Yᵊabcdef"),
    (50, "hijklmnopqrstuvwxyzɑɐɒæ"),
    (75, "βɔɕç"),
    (80, "ɖðʤə"),
    (85, "ɚɛɜ"),
    (90, "ɟ"),
    (92, "ɡ"),
    (99, "ɥ"),
    (101, "ɨɪʝ"),
    (110, "ɯɰŋɳɲɴø"),
    (118, "ɸθœ"),
    (123, "ɹ"),
    (125, "ɾɻ"),
    (128, "ʁɽʂʃʈʧ"),
    (135, "ʊʋ"),
    (138, "ʌɣɤ"),
    (142, "χʎ"),
    (147, "ʒʔ"),
    (156, "ˈˌː"),
    (162, "ʰ"),
    (164, "ʲ"),
    (169, "↓"),
    (171, "→↗↘"),
    (177, "ᵻ"),
];

/// espeak-ng's spelling of sounds, and the model's, in all languages.
const SOUNDS: &[(&str, &str)] = &[("dʒ", "ʤ"), ("tʃ", "ʧ")];

/// The same in all languages but English, whose "cats" ends in two sounds.
const OTHERS: &[(&str, &str)] = &[("ts", "ʦ")];

/// The same in English, of which the model knows the symbols of the library misaki alone: diphthongs have their own, and
/// long vowels have no mark. British English keeps it.
const ENGLISH: &[(&str, &str)] = &[
    ("eɪ", "A"),
    ("aɪ", "I"),
    ("aʊ", "W"),
    ("oʊ", "O"),
    ("əʊ", "Q"),
    ("ɔɪ", "Y"),
    ("eə", "ɛː"),
    ("o", "ɔ"),
    ("r", "ɹ"),
    ("ɚ", "əɹ"),
    ("ɐ", "ə"),
    ("ɾ", "T"),
    ("ʔ", "t"),
    ("n\u{329}", "ᵊn"),
    ("x", "k"),
    ("ç", "k"),
    ("ɬ", "l"),
    ("\u{303}", ""),
];
const AMERICAN: &[(&str, &str)] = &[("ɜːɹ", "ɜɹ"), ("ɜː", "ɜɹ"), ("ɪə", "iə"), ("ː", "")];

/// A Kokoro voice on ONNX Runtime and espeak-ng.
pub struct Kokoro {
    files: Files,
    name: String,
    language: &'static str,
    /// A style for each number of tokens, from one on.
    styles: Arc<[f32]>,
    /// Shared with the clauses that are being spoken, all on one thread.
    model: Arc<Mutex<Session>>,
    espeak: Espeak,
    /// Those of its language.
    rules: &'static Pack,
}

/// Whether a Kokoro voice is at this path.
pub(super) fn is_voice(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == STYLES)
}

/// Where a voice is.
#[derive(Debug, Clone)]
struct Files {
    styles: PathBuf,
    model: PathBuf,
}

impl Files {
    /// Those of a voice: its model is the one beside it, in the folder above, or in `onnx` there.
    fn of(styles: &Path) -> Result<Self, TtsError> {
        let folder = styles.parent().unwrap_or(Path::new("."));
        let above = folder.join("..");
        let places = [folder.to_owned(), above.clone(), above.join("onnx")];
        let found = places.iter().map(|place| models_in(place));
        let models = found.into_iter().find(|models| !models.is_empty());
        let wrong = |reason: &str| TtsError::Load {
            path: styles.display().to_string(),
            reason: reason.to_owned(),
        };
        match models.unwrap_or_default().as_slice() {
            [model] => Ok(Self {
                styles: styles.to_owned(),
                model: model.clone(),
            }),
            [] => Err(wrong(
                "a Kokoro voice has its model beside it, in the folder above, or in onnx/ there: there is no file \
                 that ends in .onnx",
            )),
            _ => Err(wrong(
                "it has several models that end in .onnx: leave only one of them",
            )),
        }
    }

    fn read_styles(&self) -> Result<Arc<[f32]>, TtsError> {
        let wrong = |reason: String| TtsError::Load {
            path: self.styles.display().to_string(),
            reason,
        };
        let bytes = std::fs::read(&self.styles).map_err(|error| wrong(error.to_string()))?;
        let (values, rest) = bytes.as_chunks::<4>();
        let is_whole = rest.is_empty() && !values.is_empty() && values.len().is_multiple_of(STYLE);
        if !is_whole {
            let bytes = bytes.len();
            return Err(wrong(format!(
                "{bytes} bytes are not the styles of a Kokoro voice, {STYLE} floats each"
            )));
        }
        Ok(values.iter().copied().map(f32::from_le_bytes).collect())
    }

    /// The name without its ending.
    fn stem(&self) -> String {
        let stem = self.styles.file_stem().unwrap_or_default();
        stem.to_string_lossy().into_owned()
    }

    /// For logs.
    fn name(&self) -> String {
        format!("kokoro {}", self.stem())
    }

    /// The language that the first letter of a voice's name stands for, as espeak-ng knows it.
    fn language(&self) -> Result<&'static str, TtsError> {
        let languages = [
            ('a', "en-us"),
            ('b', "en-gb"),
            ('e', "es"),
            ('f', "fr-fr"),
            ('h', "hi"),
            ('i', "it"),
            ('p', "pt-br"),
        ];
        let first = self.stem().chars().next();
        let known = languages.iter().find(|(letter, _)| Some(*letter) == first);
        known.map(|(_, language)| *language).ok_or_else(|| {
            let reason = "the name of a Kokoro voice begins with the letter of its language: a and b (English), e, f, \
                          h, i or p; Japanese and Chinese are not supported";
            TtsError::Load {
                path: self.styles.display().to_string(),
                reason: reason.into(),
            }
        })
    }

    fn all(&self) -> Vec<PathBuf> {
        vec![self.styles.clone(), self.model.clone()]
    }
}

/// The files of a folder that end in `.onnx`.
fn models_in(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let files = entries.filter_map(|entry| Some(entry.ok()?.path()));
    files
        .filter(|file| file.extension().is_some_and(|ending| ending == "onnx"))
        .collect()
}

impl Kokoro {
    /// Loads the voice whose styles are in the file `path`, starts espeak-ng and speaks a word to nobody, because the
    /// first run of a session is slow. Wants [`crate::onnx::init`] to have run.
    ///
    /// # Errors
    /// [`TtsError::Load`] for the files, [`TtsError::Phonemes`] for espeak-ng.
    pub fn load(path: &Path) -> Result<Self, TtsError> {
        let files = Files::of(path)?;
        let language = files.language()?;
        let mut kokoro = Self {
            name: files.name(),
            language,
            styles: files.read_styles()?,
            model: Arc::new(Mutex::new(session(&files.model)?)),
            espeak: Espeak::start(language)?,
            rules: pack(Some(language)),
            files,
        };
        super::whole(&mut kokoro, "Hello.")?;
        Ok(kokoro)
    }

    /// A voice that is loaded when it is needed. Checks that the files are there.
    ///
    /// # Errors
    /// [`TtsError::Load`] for the files.
    pub fn on_demand(path: &Path) -> Result<OnDemand, TtsError> {
        let files = Files::of(path)?;
        let language = files.language()?;
        files.read_styles()?;
        let about = std::fs::metadata(&files.model).map_err(|error| TtsError::Load {
            path: files.model.display().to_string(),
            reason: error.to_string(),
        })?;
        let path = path.to_owned();
        Ok(OnDemand {
            name: files.name(),
            sample_rate: SAMPLE_RATE,
            language: Some(language.to_owned()),
            bytes: about.len() * MEMORY,
            files: files.all(),
            load: Box::new(move || Ok(Box::new(Self::load(&path)?))),
        })
    }

    /// The tokens of phrases that are spoken in one go.
    fn tokens(&mut self, phrases: &[Phrase]) -> Result<Vec<i64>, TtsError> {
        let phonemes = respelt(&self.espeak.of_phrases(phrases)?, self.language);
        let mut tokens: Vec<i64> = phonemes.chars().filter_map(token).collect();
        tokens.truncate(MOST_TOKENS);
        Ok(tokens)
    }
}

/// The number of a symbol that the model knows.
fn token(symbol: char) -> Option<i64> {
    SYMBOLS.iter().find_map(|(first, run)| {
        let nth = run.chars().position(|known| known == symbol)?;
        Some(first + nth as i64)
    })
}

/// espeak-ng's phonemes in the model's spelling.
fn respelt(phonemes: &str, language: &str) -> String {
    let own = match language.starts_with("en") {
        true => ENGLISH,
        false => OTHERS,
    };
    let mut rules = vec![SOUNDS, own];
    if language == "en-us" {
        rules.push(AMERICAN);
    }
    let rules = rules.into_iter().flatten();
    rules.fold(phonemes.to_owned(), |phonemes, (from, to)| {
        phonemes.replace(from, to)
    })
}

impl Tts for Kokoro {
    fn name(&self) -> &str {
        &self.name
    }

    fn sample_rate(&self) -> u32 {
        SAMPLE_RATE
    }

    fn language(&self) -> Option<&str> {
        Some(self.language)
    }

    /// The sha256 of its files.
    fn fingerprint(&self) -> Option<String> {
        super::kept::sha256_of(&self.files.all()).ok()
    }

    fn speak(&mut self, text: &str) -> Result<Speech, TtsError> {
        self.speak_at(text, Speed::NORMAL)
    }

    /// Speaks nothing, and succeeds, where there is nothing to pronounce.
    fn speak_at(&mut self, text: &str, speed: Speed) -> Result<Speech, TtsError> {
        let phrases = self.rules.spoken(text, super::piper::MOST_WORDS);
        let mut waiting = VecDeque::new();
        for breath in breaths(&phrases) {
            let tokens = self.tokens(breath)?;
            if !tokens.is_empty() {
                let mark = breath.last().and_then(|phrase| phrase.mark);
                let pause_ms = (pause_ms(mark) as f64 / speed.factor()) as usize;
                waiting.push_back((tokens, pause_ms));
            }
        }
        let (model, styles) = (self.model.clone(), self.styles.clone());
        let factor = speed.factor() as f32;
        let mut has_failed = false;
        Ok(Box::new(std::iter::from_fn(move || {
            let (tokens, pause_ms) = waiting.pop_front().filter(|_| !has_failed)?;
            // A run that panicked has left no state behind in the model.
            let mut model = model.lock().unwrap_or_else(PoisonError::into_inner);
            let audio = run(&mut model, &tokens, &styles, factor).map(|audio| {
                let mut trimmer = Trimmer::new(SAMPLE_RATE);
                let mut ready = trimmer.push(&audio);
                ready.extend(trimmer.finish(pause_ms));
                ready
            });
            has_failed = audio.is_err();
            Some(audio)
        })))
    }
}

/// The audio of these tokens. Exports of the model differ in the name of the first input.
fn run(
    model: &mut Session,
    tokens: &[i64],
    styles: &[f32],
    speed: f32,
) -> Result<Vec<f32>, TtsError> {
    let padded: Vec<i64> = [&[0], tokens, &[0]].concat();
    let (styles, _) = styles.as_chunks::<STYLE>();
    let nth = tokens.len().min(styles.len()).saturating_sub(1);
    let style = styles
        .get(nth)
        .ok_or_else(|| TtsError::Run("the voice has no style".into()))?;
    let mut inputs = model.inputs().iter();
    let renamed = inputs.any(|input| input.name() == "input_ids");
    let first = if renamed { "input_ids" } else { "tokens" };
    let (speed, shape) = ([speed], [1, padded.len()]);
    let outputs = model
        .run(ort::inputs! {
            first => TensorRef::from_array_view((shape, &padded[..])).map_err(failed)?,
            "style" => TensorRef::from_array_view(([1, STYLE], &style[..])).map_err(failed)?,
            "speed" => TensorRef::from_array_view(([1], &speed[..])).map_err(failed)?,
        })
        .map_err(failed)?;
    let (_, audio) = outputs[0].try_extract_tensor::<f32>().map_err(failed)?;
    Ok(audio.iter().copied().map(levelled).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_have_the_numbers_that_the_model_was_trained_with() {
        let known = [
            (';', 1),
            ('?', 6),
            (' ', 16),
            ('\u{303}', 17),
            ('I', 25),
            ('f', 48),
            ('h', 50),
            ('æ', 72),
            ('ç', 78),
            ('ə', 83),
            ('ɜ', 87),
            ('ʝ', 103),
            ('ø', 116),
            ('œ', 120),
            ('ʧ', 133),
            ('ɤ', 140),
            ('ː', 158),
            ('↘', 173),
            ('ᵻ', 177),
        ];
        for (symbol, number) in known {
            assert_eq!(token(symbol), Some(number), "{symbol}");
        }
        assert_eq!(token('g'), None);
        let all: usize = SYMBOLS.iter().map(|(_, run)| run.chars().count()).sum();
        assert_eq!(all, 114);
    }

    #[test]
    fn english_diphthongs_are_symbols() {
        assert_eq!(respelt("tʃˈeɪndʒ", "en-us"), "ʧˈAnʤ");
        assert_eq!(respelt("wˈɜːk əʊ", "en-gb"), "wˈɜːk Q");
        assert_eq!(respelt("wˈɜːk hˈoʊm", "en-us"), "wˈɜɹk hˈOm");
        assert_eq!(respelt("reɪ", "es"), "reɪ");
    }

    /// "It's better" had an Italian z and sounds that the model has never heard in English.
    #[test]
    fn english_is_spelt_with_the_symbols_that_the_model_learnt_for_it() {
        assert_eq!(respelt("ɪts ɐ bˈɛɾɚ", "en-us"), "ɪts ə bˈɛTəɹ");
        assert_eq!(respelt("bˈʌʔn\u{329}", "en-us"), "bˈʌtᵊn");
        assert_eq!(respelt("lˈɒx ɐ", "en-gb"), "lˈɒk ə");
        assert_eq!(respelt("hˈeə", "en-gb"), "hˈɛː");
        assert_eq!(respelt("bᵻfˈoːɹ ɡˈoʊ", "en-us"), "bᵻfˈɔɹ ɡˈO");
        assert_eq!(respelt("kwˈɑːsɑ̃", "en-us"), "kwˈɑsɑ");
        assert_eq!(respelt("pˈittsa", "it"), "pˈitʦa");
    }

    #[test]
    fn a_voice_is_found_with_its_model_or_refused_with_the_fix() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        std::fs::create_dir_all(at("voices")).unwrap();
        std::fs::write(at("voices/af_heart.bin"), vec![0; 4 * STYLE * 2]).unwrap();
        let refused = |voice: &str| match Kokoro::on_demand(&at(voice)) {
            Ok(voice) => panic!("{} is a voice", voice.name),
            Err(error) => error.to_string(),
        };
        let missing = refused("voices/af_heart.bin");
        assert!(missing.contains("no file that ends in .onnx"), "{missing}");
        std::fs::create_dir_all(at("onnx")).unwrap();
        std::fs::write(at("onnx/model.onnx"), vec![0; 1_000]).unwrap();
        let voice = Kokoro::on_demand(&at("voices/af_heart.bin")).unwrap();
        assert_eq!(voice.name, "kokoro af_heart");
        assert_eq!(voice.language.as_deref(), Some("en-us"));
        std::fs::write(at("voices/jf_alpha.bin"), vec![0; 4 * STYLE]).unwrap();
        let japanese = refused("voices/jf_alpha.bin");
        assert!(japanese.contains("Japanese"), "{japanese}");
        std::fs::write(at("voices/af_cut.bin"), vec![0; 100]).unwrap();
        assert!(refused("voices/af_cut.bin").contains("100 bytes"));
        std::fs::write(at("onnx/model_fp16.onnx"), [0]).unwrap();
        assert!(refused("voices/af_heart.bin").contains("several"));
    }
}
