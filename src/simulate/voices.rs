//! The voices of callers: the server's own, and those of flite and espeak-ng, which are programs of the system.

use crate::audio::decode;
use crate::tts::Speed;
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The longest turn of a caller as sound.
const LONGEST: Duration = Duration::from_mins(1);

/// Words a minute that count as speed 1 of espeak-ng.
const WORDS_PER_MINUTE: f64 = 150.0;

/// The forms of a voice's name, for errors.
pub(super) const VOICE_FORMS: &str = "use \"default\", the name of one of tts.voices or tts.services, \"flite:VOICE\" \
                                      such as flite:slt, or \"espeak-ng:VOICE\" such as espeak-ng:en-gb";

/// A caller's voice, as a scenario names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum VoiceName {
    /// The server's default voice.
    Default,
    /// One of the server's voices.
    Own(String),
    /// A voice of a program.
    Installed(Installed),
}

/// A voice of a program of the system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Installed {
    /// A voice of flite, such as `slt`.
    Flite(String),
    /// A voice of espeak-ng, such as `en-gb`.
    Espeak(String),
}

impl VoiceName {
    /// Reads the name of a voice.
    ///
    /// # Errors
    /// The problem with it.
    pub(super) fn read(name: &str) -> Result<Self, String> {
        let named = |voice: &str| {
            let is_name = |c: char| c.is_ascii_alphanumeric() || "-_+".contains(c);
            match !voice.is_empty() && voice.chars().all(is_name) {
                true => Ok(voice.to_owned()),
                false => Err(format!("\"{name}\" names no voice")),
            }
        };
        Ok(match name.split_once(':') {
            Some(("flite", voice)) => Self::Installed(Installed::Flite(named(voice)?)),
            Some(("espeak-ng", voice)) => Self::Installed(Installed::Espeak(named(voice)?)),
            Some((program, _)) => return Err(format!("there are no voices of \"{program}\"")),
            None if name == "default" => Self::Default,
            None => Self::Own(named(name)?),
        })
    }
}

/// Words in a voice of a program: mono in -1..1 at [`crate::audio::RATE`]. Blocks until it has spoken.
///
/// # Errors
/// The program is not there, does not know the voice, or writes no sound.
pub(crate) fn installed(voice: &Installed, words: &str, speed: Speed) -> Result<Vec<f32>, String> {
    let folder = tempfile::tempdir().map_err(|error| format!("a temporary folder: {error}"))?;
    let path = folder.path().join("said.wav");
    let mut command = command(voice, speed, &path);
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = |reason: String| format!("{program} does not speak: {reason}");
    let said = command.arg(words).output();
    let said = said.map_err(|error| failed(format!("{error}; install the package {program}")))?;
    if !said.status.success() {
        let told = String::from_utf8_lossy(&said.stderr);
        return Err(failed(told.trim().to_owned()));
    }
    read_sound(&path).map_err(failed)
}

/// The program that writes a sound into `file`, except for its last argument, the words.
fn command(voice: &Installed, speed: Speed, file: &Path) -> Command {
    match voice {
        Installed::Espeak(voice) => {
            let mut command = Command::new("espeak-ng");
            let words = format!("{:.0}", WORDS_PER_MINUTE * speed.factor());
            command.args(["-v", voice, "-s", &words, "-w"]);
            command.arg(file).arg("--");
            command
        }
        Installed::Flite(voice) => {
            let mut command = Command::new("flite");
            command.args(["-voice", voice]);
            // It replaces the stretch that some voices, such as kal, have of their own.
            if speed != Speed::NORMAL {
                let stretch = format!("duration_stretch={:.2}", 1.0 / speed.factor());
                command.args(["--setf", &stretch]);
            }
            command.arg("-o").arg(file).arg("-t");
            command
        }
    }
}

fn read_sound(path: &Path) -> Result<Vec<f32>, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    decode(Box::new(file), LONGEST, || true).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_voices_are_read() {
        let own = VoiceName::Own("amy".into());
        let slt = VoiceName::Installed(Installed::Flite("slt".into()));
        let british = VoiceName::Installed(Installed::Espeak("en-gb+f3".into()));
        for (name, voice) in [
            ("default", VoiceName::Default),
            ("amy", own),
            ("flite:slt", slt),
            ("espeak-ng:en-gb+f3", british),
        ] {
            assert_eq!(VoiceName::read(name), Ok(voice));
        }
        for wrong in ["", "flite:", "say:Alex", "flite:-o/etc/passwd x"] {
            assert!(VoiceName::read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_voice_of_flite_keeps_its_own_stretch_at_its_usual_speed() {
        let kal = Installed::Flite("kal".into());
        let arguments = |speed| {
            let command = command(&kal, speed, Path::new("said.wav"));
            let arguments = command.get_args().map(|text| text.to_string_lossy());
            arguments.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(arguments(Speed::NORMAL), "-voice kal -o said.wav -t");
        let twice = Speed::of(2.0).unwrap();
        assert!(arguments(twice).contains("--setf duration_stretch=0.50"));
    }
}
