//! The voices of callers: the server's own, and those of flite and espeak-ng, which are programs of the system.

use crate::audio::decode;
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The longest turn of a caller as sound.
const LONGEST: Duration = Duration::from_mins(1);

/// Words a minute that count as speed 1 of espeak-ng.
const WORDS_PER_MINUTE: f64 = 150.0;

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
    /// The allowed forms, for errors.
    pub(super) const FORMS: &str = "use \"default\", the name of one of tts.voices or tts.services, \"flite:VOICE\" \
                                    such as flite:slt, or \"espeak-ng:VOICE\" such as espeak-ng:en-gb";

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
pub(crate) fn installed(voice: &Installed, words: &str, speed: f64) -> Result<Vec<f32>, String> {
    let folder = tempfile::tempdir().map_err(|error| format!("a temporary folder: {error}"))?;
    let path = folder.path().join("said.wav");
    let file = path.to_string_lossy();
    let (program, mut command) = match voice {
        Installed::Espeak(voice) => {
            let mut command = Command::new("espeak-ng");
            let words = format!("{:.0}", WORDS_PER_MINUTE * speed);
            command.args(["-v", voice, "-s", &words, "-w", &file, "--"]);
            ("espeak-ng", command)
        }
        Installed::Flite(voice) => {
            let mut command = Command::new("flite");
            let stretch = format!("duration_stretch={:.2}", 1.0 / speed);
            command.args(["-voice", voice, "--setf", &stretch, "-o", &file, "-t"]);
            ("flite", command)
        }
    };
    let failed = |reason: String| format!("{program} does not speak: {reason}");
    let said = command.arg(words).output();
    let said = said.map_err(|error| failed(format!("{error}; install the package {program}")))?;
    if !said.status.success() {
        let told = String::from_utf8_lossy(&said.stderr);
        return Err(failed(told.trim().to_owned()));
    }
    read_sound(&path).map_err(failed)
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
}
