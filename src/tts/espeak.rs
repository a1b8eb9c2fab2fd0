//! Words to phonemes, by a warm `espeak-ng` in a process of its own.
//!
//! A process apart because espeak-ng is GPL-3 and because it may crash: it takes no session with
//! it. Warm because a fresh one costs 20-40 ms and a line to a warm one well under 1 ms.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use super::TtsError;
use crate::language::{Phrase, base};
use regex::Regex;
use std::sync::LazyLock;

/// A line sent after each text, to learn where its answer ends: espeak breaks one line of text
/// into as many lines of phonemes as it likes, and an empty answer is an empty line.
/// No text contains it ([`sanitised`]).
const SENTINEL: &str = "zxqzxq";
/// How long one answer may take before the process counts as hung. A clause takes well under 1 ms;
/// half a second is already heard as a gap.
const PATIENCE: Duration = Duration::from_millis(500);
/// How many times as long the process that replaces it may take: if it is the machine that has no time, words that come
/// late are better than words that are lost.
const MORE_PATIENCE: u32 = 10;
/// How long the first answer of a process may take. It takes 50 ms on an idle machine, and seconds on one that boots.
const START_PATIENCE: Duration = Duration::from_secs(15);
/// Bytes of one text; espeak reads lines of at most 1000.
const LONGEST: usize = 600;
/// Lines of phonemes that may wait to be read.
const WAITING_LINES: usize = 64;

/// Languages that are written in other letters than Latin and Greek ones, as espeak-ng knows them.
const OTHER_SCRIPTS: &[&str] = &[
    "am", "ar", "as", "ba", "be", "bg", "bn", "bpy", "chr", "cmn", "cv", "fa", "grc", "gu", "hak",
    "he", "hi", "hy", "hyw", "ja", "ka", "kk", "kn", "ko", "kok", "ky", "mk", "ml", "mr", "my",
    "ne", "nog", "or", "pa", "ru", "sd", "shn", "si", "sr", "ta", "te", "th", "tt", "ug", "uk",
    "ur", "yue", "zh",
];

/// Turns words into IPA phonemes. Restarts its process when that dies or hangs.
pub(super) struct Espeak {
    command: Vec<String>,
    letters: Letters,
    patience: Duration,
    process: Option<Process>,
}

impl Espeak {
    /// An espeak-ng that speaks `voice` ("en-us"), started and answering.
    ///
    /// # Errors
    /// [`TtsError::Phonemes`] if it is not installed or does not answer.
    pub(super) fn start(voice: &str) -> Result<Self, TtsError> {
        // Into a pipe espeak would hold its answers back; stdbuf makes it write line by line.
        let command = ["stdbuf", "-oL", "espeak-ng", "-q", "--ipa", "-v", voice];
        let espeak = Self::with_command(command.map(String::from).to_vec(), PATIENCE)?;
        Ok(Self {
            letters: Letters::of(voice),
            ..espeak
        })
    }

    fn with_command(command: Vec<String>, patience: Duration) -> Result<Self, TtsError> {
        let process = Some(Process::start(&command, START_PATIENCE)?);
        Ok(Self {
            command,
            letters: Letters::Latin,
            patience,
            process,
        })
    }

    /// The phonemes of `words` as IPA with stress marks, words apart by one space. Empty if there
    /// is nothing to pronounce. Punctuation outside numbers is dropped; text beyond 600 bytes too.
    ///
    /// # Errors
    /// [`TtsError::Phonemes`] if espeak died or hung, and did so again when restarted.
    pub(super) fn phonemes(&mut self, words: &str) -> Result<String, TtsError> {
        let text = sanitised(words, self.letters);
        if text.is_empty() {
            return Ok(String::new());
        }
        match self.ask(&text, self.patience) {
            Err(TtsError::Phonemes(reason)) => {
                tracing::warn!(%reason, "espeak-ng restarts");
                self.ask(&text, MORE_PATIENCE * self.patience)
            }
            other => other,
        }
    }

    /// Phonemes of phrases that are spoken in one go, each closed by its mark.
    ///
    /// # Errors
    /// As [`Self::phonemes`].
    pub(super) fn of_phrases(&mut self, phrases: &[Phrase]) -> Result<String, TtsError> {
        let mut all = String::new();
        for phrase in phrases {
            let phonemes = self.phonemes(&phrase.words)?;
            if phonemes.is_empty() {
                continue;
            }
            if !all.is_empty() {
                all.push(' ');
            }
            all.push_str(&phonemes);
            // Without a mark the models swallow the last sound; a comma leaves the voice up.
            all.push(phrase.mark.unwrap_or(','));
        }
        Ok(all)
    }

    fn ask(&mut self, text: &str, patience: Duration) -> Result<String, TtsError> {
        let mut process = match self.process.take() {
            Some(process) => process,
            None => Process::start(&self.command, START_PATIENCE)?,
        };
        let answer = process.ask(text, patience)?;
        // Only a process that answered is kept; any other was dropped by the `?`, and killed.
        self.process = Some(process);
        Ok(answer)
    }
}

/// The letters that a voice reads. Others it would spell out ("Chinese letter Chinese letter").
#[derive(Debug, Clone, Copy)]
enum Letters {
    /// Latin with its accents, and Greek ("π").
    Latin,
    /// All, with their vowel signs and other marks.
    Any,
}

impl Letters {
    /// Those of an espeak-ng voice ("en-us").
    fn of(voice: &str) -> Self {
        match OTHER_SCRIPTS.contains(&base(voice).as_str()) {
            true => Self::Any,
            false => Self::Latin,
        }
    }

    fn contain(self, c: char) -> bool {
        match self {
            Self::Latin => {
                c.is_alphanumeric()
                    && matches!(c, '\0'..='\u{24f}' | '\u{370}'..='\u{3ff}' | '\u{1e00}'..='\u{1eff}')
            }
            Self::Any => c.is_alphanumeric() || is_mark(c),
        }
    }
}

/// Whether this belongs to the letter before it, such as the virama in "नमस्ते".
fn is_mark(c: char) -> bool {
    static MARK: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\p{M}").ok());
    !c.is_ascii()
        && MARK
            .as_ref()
            .is_some_and(|mark| mark.is_match(c.encode_utf8(&mut [0; 4])))
}

/// Reduces `words` to one line that is safe for espeak. Everything else would break the line
/// protocol, or is markup to espeak: `[[` opens raw phonemes, `<` SSML.
fn sanitised(words: &str, letters: Letters) -> String {
    let mut spaced = String::with_capacity(words.len());
    let mut before = ' ';
    let mut chars = words.chars().peekable();
    while let Some(c) = chars.next() {
        let in_number = before.is_numeric() && chars.peek().is_some_and(|next| next.is_numeric());
        spaced.push(match c {
            '’' | 'ʼ' => '\'',
            '\'' | '-' => c,
            ',' | '.' | '/' if in_number => c,
            _ if letters.contain(c) => c,
            _ => ' ',
        });
        before = c;
    }
    let mut text = String::with_capacity(spaced.len());
    let with_sound = |word: &&str| word.contains(char::is_alphanumeric) && !word.contains(SENTINEL);
    for word in spaced.split_whitespace().filter(with_sound) {
        if text.len() + word.len() >= LONGEST {
            break;
        }
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(word);
    }
    text
}

/// Phonemes without the names of languages that espeak writes around words of another one: "(en)həlˈəʊ(hi)".
fn without_languages(phonemes: &str) -> String {
    let pieces = phonemes.split('(').enumerate();
    let kept = pieces.map(|(at, piece)| match piece.split_once(')') {
        Some((_, after)) if at > 0 => after,
        _ => piece,
    });
    kept.collect()
}

/// One running espeak-ng; killed when dropped.
struct Process {
    child: Child,
    stdin: ChildStdin,
    /// Its output, line by line; ends when it dies.
    lines: Receiver<String>,
    /// How it pronounces [`SENTINEL`].
    sentinel: String,
}

impl Process {
    fn start(command: &[String], patience: Duration) -> Result<Self, TtsError> {
        let failed = |reason: &str| TtsError::Phonemes(reason.to_owned());
        let (program, arguments) = command.split_first().ok_or_else(|| failed("no command"))?;
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // Ctrl-C in a terminal is for the server, which still has a turn to finish.
            .process_group(0)
            .spawn()
            .map_err(|error| TtsError::Phonemes(format!("{program}: {error}")))?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed("no pipes"));
        };
        let (sender, lines) = sync_channel(WAITING_LINES);
        std::thread::Builder::new()
            .name("espeak-reader".to_owned())
            .spawn(move || {
                let lines = BufReader::new(stdout).lines().map_while(Result::ok);
                for line in lines {
                    if sender.send(line).is_err() {
                        break;
                    }
                }
            })
            .map_err(|error| TtsError::Phonemes(error.to_string()))?;
        let mut process = Self {
            child,
            stdin,
            lines,
            sentinel: String::new(),
        };
        process.write(SENTINEL)?;
        process.sentinel = process.line(patience)?;
        Ok(process)
    }

    fn ask(&mut self, text: &str, patience: Duration) -> Result<String, TtsError> {
        self.write(&format!("{text}\n{SENTINEL}"))?;
        let mut words = Vec::new();
        loop {
            let line = self.line(patience)?;
            if line.trim() == self.sentinel.trim() {
                return Ok(words.join(" "));
            }
            let found = line.split_whitespace().map(without_languages);
            words.extend(found.filter(|word| !word.is_empty()));
        }
    }

    fn write(&mut self, line: &str) -> Result<(), TtsError> {
        writeln!(self.stdin, "{line}")
            .and_then(|()| self.stdin.flush())
            .map_err(|error| TtsError::Phonemes(format!("it died: {error}")))
    }

    fn line(&self, patience: Duration) -> Result<String, TtsError> {
        self.lines
            .recv_timeout(patience)
            .map_err(|error| TtsError::Phonemes(format!("it does not answer: {error}")))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if it is dead already; `wait` leaves no zombie.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn espeak() -> Espeak {
        Espeak::start("en-us").expect("espeak-ng is installed")
    }

    #[test]
    fn each_answer_belongs_to_its_text() {
        let mut espeak = espeak();
        let hello = espeak.phonemes("hello there").unwrap();
        assert_eq!(hello, "həlˈoʊ ðˈɛɹ");
        for awkward in [
            "",
            " ",
            "?",
            "one, two. three! four",
            "日本",
            "\u{0}\u{7}",
            "'",
            "zxqzxq",
            "hello\nthere\r\nagain",
            "[[h@l'oU]] <speak>",
            "ﷺ",
            "привет",
            "🎉",
        ] {
            espeak.phonemes(awkward).unwrap();
            assert_eq!(
                espeak.phonemes("hello there").unwrap(),
                hello,
                "{awkward:?}"
            );
        }
    }

    #[test]
    fn one_line_of_many_clauses_is_one_answer() {
        let words = "word ".repeat(110);
        let phonemes = espeak().phonemes(&words).unwrap();
        assert_eq!(phonemes.split(' ').count(), 110);
    }

    #[test]
    fn markup_is_not_obeyed() {
        assert_eq!(
            sanitised("[[h@l'oU]] <b>hi</b>", Letters::Latin),
            "h l'oU b hi b"
        );
        assert_eq!(sanitised("a\nb\u{202e}c", Letters::Latin), "a b c");
        assert_eq!(
            sanitised("[[да]] <b>\u{202e}नमस्ते\n</b>", Letters::Any),
            "да b नमस्ते b"
        );
    }

    /// Only Latin and Greek letters went to espeak, whatever the voice, so Russian and Hindi voices were mute.
    #[test]
    fn a_voice_reads_the_letters_of_its_language() {
        for (voice, word) in [
            ("ru", "привет"),
            ("hi", "नमस्ते"),
            ("el", "γειά"),
            ("sr", "здраво"),
        ] {
            let phonemes = Espeak::start(voice).unwrap().phonemes(word).unwrap();
            assert!(!phonemes.is_empty(), "{voice}");
        }
        assert_eq!(
            Espeak::start("hi").unwrap().phonemes("नमस्ते").unwrap(),
            "nəmˈʌsteː"
        );
        assert_eq!(espeak().phonemes("привет नमस्ते").unwrap(), "");
    }

    /// The comma of "3,5" was dropped, and a German voice said "drei fünf".
    #[test]
    fn a_decimal_keeps_its_comma() {
        for (voice, written, said) in [
            ("de", "3,5 Liter", "dɾˈaɪ kɔmɑː fˈynf lˈiːtɜ"),
            ("es", "3,5 kilos", "tɾˈes koma θˈinko kˈilos"),
            ("fr-fr", "3,5", "tʁwa viʁɡyl sˈɛ̃k"),
            ("de", "1.250", "ˈaɪn tˈaʊzənt tsvˈaɪhˈʊndɜt fˈynftsɪç"),
        ] {
            let phonemes = Espeak::start(voice).unwrap().phonemes(written).unwrap();
            assert_eq!(phonemes, said, "{voice}: {written}");
        }
        assert_eq!(sanitised("3, 5. 7 / 8, .5", Letters::Latin), "3 5 7 8 5");
    }

    /// espeak names the language of a foreign word, and the voice spoke the name: "(en)wiːkˈɛnd(fr)".
    #[test]
    fn the_name_of_another_language_is_not_spoken() {
        let mut french = Espeak::start("fr-fr").unwrap();
        let phonemes = french.phonemes("le weekend").unwrap();
        assert_eq!(phonemes, "lə- wiːkˈɛnd");
    }

    #[test]
    fn a_dead_process_is_replaced() {
        let mut espeak = espeak();
        espeak.process.as_mut().unwrap().child.kill().unwrap();
        assert_eq!(espeak.phonemes("hello").unwrap(), "həlˈoʊ");
    }

    #[test]
    fn a_hanging_process_is_an_error_and_not_a_hang() {
        let script = "read a; echo $a; sleep 60";
        let command = ["sh", "-c", script].map(String::from).to_vec();
        let mut espeak = Espeak::with_command(command, PATIENCE).unwrap();
        espeak.patience = Duration::from_millis(50);
        let error = espeak.phonemes("hello").unwrap_err();
        assert!(matches!(error, TtsError::Phonemes(_)), "{error}");
        assert!(espeak.process.is_none());
    }

    #[test]
    fn a_process_that_replaces_a_slow_one_has_time_to_start_and_to_answer() {
        // The first one never answers a text; the next one takes longer than the first one had.
        let folder = tempfile::tempdir().unwrap();
        let script = r#"read a; echo "$a"; [ -e slow ] || { touch slow; sleep 60; }
            read a; sleep 0.7; echo haloo; read a; echo "$a""#;
        let script = format!("cd '{}'; {script}", folder.path().display());
        let command = ["sh", "-c", &script].map(String::from).to_vec();
        let mut espeak = Espeak::with_command(command, PATIENCE).unwrap();
        assert_eq!(espeak.phonemes("hello").unwrap(), "haloo");
    }

    #[test]
    fn a_missing_program_is_named() {
        let command = vec!["no-such-espeak".to_owned()];
        let error = Espeak::with_command(command, PATIENCE).err().unwrap();
        assert!(error.to_string().contains("no-such-espeak"), "{error}");
    }
}
