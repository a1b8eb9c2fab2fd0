//! espeak-ng as a voice of its own, for languages without a better one.

use super::{Speech, Speed, Tts, TtsError};
use crate::language::{Pack, base, pack};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

/// Samples per second of what espeak-ng writes.
const RATE: u32 = 22_050;
/// Bytes of the header before the samples.
const HEADER: usize = 44;
/// How long a clause may take, which takes 30 to 60 ms on an idle machine.
const PATIENCE: Duration = Duration::from_secs(3);
/// Words per minute at the usual speed: espeak-ng's default.
const WORDS_PER_MINUTE: f64 = 175.0;
/// Words between two marks.
const MOST_WORDS: usize = 60;

/// The voice of espeak-ng for one language: intelligible, but not pleasant. A process for each clause,
/// because espeak-ng is GPL-3 and because it may crash.
pub struct Formant {
    name: String,
    /// A BCP 47 tag.
    language: String,
    rules: &'static Pack,
    command: Vec<String>,
    patience: Duration,
}

impl Formant {
    /// The voice of the primary language of this tag. Starts nothing.
    #[must_use]
    pub fn new(language: &str) -> Self {
        let language = base(language);
        let voice = match language.as_str() {
            "en" => "en-us",
            other => other,
        };
        let command = ["espeak-ng", "-v", voice, "--stdin", "--stdout"];
        Self {
            name: format!("espeak-ng {voice}"),
            rules: pack(Some(&language)),
            command: command.map(String::from).to_vec(),
            language,
            patience: PATIENCE,
        }
    }

    /// The text as espeak-ng is to read it: in the spoken forms of its language, without its own markup.
    fn written(&self, text: &str) -> String {
        let mut all = String::new();
        for phrase in self.rules.spoken(text, MOST_WORDS) {
            if !all.is_empty() {
                all.push(' ');
            }
            all.push_str(
                &phrase
                    .words
                    .replace("[[", " ")
                    .replace(['<', '>', '\n'], " "),
            );
            all.extend(phrase.mark);
        }
        all
    }

    /// The audio of `text` as espeak-ng writes it.
    fn run(&self, text: &str, speed: Speed) -> Result<Vec<u8>, TtsError> {
        let failed = |reason: String| TtsError::Phonemes(reason);
        let (program, arguments) = self
            .command
            .split_first()
            .ok_or_else(|| failed("no command".into()))?;
        let child = Command::new(program)
            .args(arguments)
            .args(rate(speed))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|error| failed(format!("{program}: {error}")))?;
        let mut process = Process(child);
        let (Some(mut stdin), Some(mut stdout)) = (process.0.stdin.take(), process.0.stdout.take())
        else {
            return Err(failed("no pipes".into()));
        };
        // A clause fits into the pipe's buffer, so this does not block.
        writeln!(stdin, "{text}").map_err(|error| failed(format!("it died: {error}")))?;
        drop(stdin);
        let (sender, audio) = sync_channel(1);
        std::thread::Builder::new()
            .name("espeak-voice".to_owned())
            .spawn(move || {
                let mut bytes = Vec::new();
                let read = stdout.read_to_end(&mut bytes).map(|_| bytes);
                // The clause may have been given up.
                drop(sender.send(read));
            })
            .map_err(|error| failed(error.to_string()))?;
        match audio.recv_timeout(self.patience) {
            Ok(read) => read.map_err(|error| failed(error.to_string())),
            Err(RecvTimeoutError::Timeout) => Err(failed("it does not answer".into())),
            Err(RecvTimeoutError::Disconnected) => Err(failed("it died".into())),
        }
    }
}

/// The option that sets a speed. espeak-ng speaks 80 words per minute at least.
fn rate(speed: Speed) -> Option<String> {
    let rate = (WORDS_PER_MINUTE * speed.factor()).round();
    (speed != Speed::NORMAL).then(|| format!("-s{rate}"))
}

/// A running espeak-ng; killed when dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if it is dead already; `wait` leaves no zombie.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Tts for Formant {
    fn name(&self) -> &str {
        &self.name
    }

    fn sample_rate(&self) -> u32 {
        RATE
    }

    fn language(&self) -> Option<&str> {
        Some(&self.language)
    }

    fn speak(&mut self, text: &str) -> Result<Speech, TtsError> {
        self.speak_at(text, Speed::NORMAL)
    }

    /// Speaks nothing, and succeeds, where there is nothing to pronounce.
    fn speak_at(&mut self, text: &str, speed: Speed) -> Result<Speech, TtsError> {
        let text = self.written(text);
        if !text.contains(char::is_alphanumeric) {
            return Ok(Box::new(std::iter::empty()));
        }
        let bytes = self.run(&text, speed)?;
        let samples = bytes.get(HEADER..).unwrap_or_default();
        if samples.is_empty() {
            let reason = format!("it has no voice for \"{}\"", self.language);
            return Err(TtsError::Phonemes(reason));
        }
        let (samples, _) = samples.as_chunks::<2>();
        let samples = samples.iter().map(|bytes| i16::from_le_bytes(*bytes));
        let audio = samples.map(|sample| f32::from(sample) / 32_768.0).collect();
        Ok(Box::new(std::iter::once(Ok(audio))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tts::{whole, whole_at};

    #[test]
    fn other_languages_sound_and_what_has_no_sound_is_silent() {
        for (language, text) in [
            ("de", "Der Wecker klingelt in zehn Minuten."),
            ("es-MX", "El temporizador suena en diez minutos."),
            ("fr", "Bonjour tout le monde."),
        ] {
            let mut voice = Formant::new(language);
            let audio = whole(&mut voice, text).unwrap();
            let seconds = audio.len() as f32 / RATE as f32;
            assert!((0.8..5.0).contains(&seconds), "{language}: {seconds} s");
            let loudest = audio.iter().fold(0.0f32, |most, s| most.max(s.abs()));
            assert!((0.1..=1.0).contains(&loudest), "{language}: {loudest}");
            assert!(whole(&mut voice, " ... ").unwrap().is_empty());
        }
    }

    #[test]
    fn the_speed_is_about_what_was_asked_for() {
        let mut voice = Formant::new("de");
        let text = "Der Zug zum Flughafen fährt um halb fünf von Gleis neun ab und hält zweimal.";
        let mut length = |factor: f64| {
            let speed = Speed::of(factor).unwrap();
            whole_at(&mut voice, text, speed).unwrap().len() as f64
        };
        let usual = length(1.0);
        for factor in [0.5, 0.8, 1.5] {
            let heard = usual / length(factor);
            assert!((heard / factor - 1.0).abs() < 0.15, "{heard}, not {factor}");
        }
    }

    #[test]
    fn markup_is_not_obeyed() {
        let written = Formant::new("fr").written("[[a]] <break time=\"9s\"/> bon");
        assert!(
            !written.contains("[[") && !written.contains('<'),
            "{written}"
        );
    }

    #[test]
    fn a_language_without_a_voice_is_an_error() {
        let error = whole(&mut Formant::new("tlhx"), "nuqneH").unwrap_err();
        assert!(error.to_string().contains("tlhx"), "{error}");
    }

    #[test]
    fn a_hanging_process_is_an_error_and_not_a_hang() {
        let mut voice = Formant::new("de");
        voice.command = ["sleep", "60"].map(String::from).to_vec();
        voice.patience = Duration::from_millis(50);
        assert!(whole(&mut voice, "Hallo").is_err());
    }
}
