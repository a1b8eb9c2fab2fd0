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
use crate::language::Phrase;

/// A line sent after each text, to learn where its answer ends: espeak breaks one line of text
/// into as many lines of phonemes as it likes, and an empty answer is an empty line.
/// No text contains it ([`sanitised`]).
const SENTINEL: &str = "zxqzxq";
/// How long one answer may take before the process counts as hung. A clause takes well under 1 ms;
/// half a second is already heard as a gap.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long the first answer of a fresh process may take. It takes 50 ms on an idle machine.
const START_PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of one text; espeak reads lines of at most 1000.
const LONGEST: usize = 600;
/// Lines of phonemes that may wait to be read.
const WAITING_LINES: usize = 64;

/// Turns words into IPA phonemes. Restarts its process when that dies or hangs.
pub(super) struct Espeak {
    command: Vec<String>,
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
        Self::with_command(command.map(String::from).to_vec(), PATIENCE)
    }

    fn with_command(command: Vec<String>, patience: Duration) -> Result<Self, TtsError> {
        let process = Some(Process::start(&command)?);
        Ok(Self {
            command,
            patience,
            process,
        })
    }

    /// The phonemes of `words` as IPA with stress marks, words apart by one space. Empty if there
    /// is nothing to pronounce. Punctuation is dropped; text beyond 600 bytes too.
    ///
    /// # Errors
    /// [`TtsError::Phonemes`] if espeak died or hung, and did so again when restarted.
    pub(super) fn phonemes(&mut self, words: &str) -> Result<String, TtsError> {
        let text = sanitised(words);
        if text.is_empty() {
            return Ok(String::new());
        }
        match self.ask(&text) {
            Err(TtsError::Phonemes(reason)) => {
                tracing::warn!(%reason, "espeak-ng restarts");
                self.ask(&text)
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

    fn ask(&mut self, text: &str) -> Result<String, TtsError> {
        let mut process = match self.process.take() {
            Some(process) => process,
            None => Process::start(&self.command)?,
        };
        let answer = process.ask(text, self.patience)?;
        // Only a process that answered is kept; any other was dropped by the `?`, and killed.
        self.process = Some(process);
        Ok(answer)
    }
}

/// Reduces `words` to one line that is safe for espeak. Everything else would break the line
/// protocol, or is markup to espeak: `[[` opens raw phonemes, `<` SSML.
fn sanitised(words: &str) -> String {
    let spaced: String = words
        .chars()
        .map(|c| match c {
            '’' | 'ʼ' => '\'',
            '\'' | '-' => c,
            _ if is_pronounceable(c) => c,
            _ => ' ',
        })
        .collect();
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

/// Letters and digits an English voice can read: Latin with its accents, and Greek ("π").
/// Others it would spell out ("Chinese letter Chinese letter").
fn is_pronounceable(c: char) -> bool {
    c.is_alphanumeric()
        && matches!(c, '\0'..='\u{24f}' | '\u{370}'..='\u{3ff}' | '\u{1e00}'..='\u{1eff}')
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
    fn start(command: &[String]) -> Result<Self, TtsError> {
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
        process.sentinel = process.line(START_PATIENCE)?;
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
            words.extend(line.split_whitespace().map(str::to_owned));
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
        assert_eq!(sanitised("[[h@l'oU]] <b>hi</b>"), "h l'oU b hi b");
        assert_eq!(sanitised("a\nb\u{202e}c"), "a b c");
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
    fn a_missing_program_is_named() {
        let command = vec!["no-such-espeak".to_owned()];
        let error = Espeak::with_command(command, PATIENCE).err().unwrap();
        assert!(error.to_string().contains("no-such-espeak"), "{error}");
    }
}
