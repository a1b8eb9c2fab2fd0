//! Reads audio files, and writes WAV files.

use crate::audio::{decode, write_wav};
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::time::Duration;

/// The longest file that is read.
const LONGEST: Duration = Duration::from_hours(4);

/// Reads an audio file as 16 kHz mono in -1..1.
pub(super) fn read(path: &Path) -> Result<Vec<f32>> {
    let shown = path.display();
    let file = File::open(path).with_context(|| format!("cannot open {shown}"))?;
    ensure!(
        !file.metadata()?.is_dir(),
        "{shown} is a folder, not an audio file"
    );
    decode(Box::new(file), LONGEST, || true).with_context(|| shown.to_string())
}

/// Writes mono audio in -1..1 as 16-bit WAV.
pub(super) fn write(path: &Path, rate: u32, samples: &[f32]) -> Result<()> {
    let context = || format!("cannot write {}", path.display());
    let file = File::create(path).with_context(context)?;
    write_wav(BufWriter::new(file), rate, samples).with_context(context)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::{RATE, level_dbfs};
    use hound::{SampleFormat, WavSpec, WavWriter};
    use std::path::PathBuf;

    fn wav(spec: WavSpec, write: impl Fn(&mut WavWriter<File>)) -> tempfile::TempPath {
        let (file, path) = tempfile::NamedTempFile::new().unwrap().into_parts();
        let mut writer = WavWriter::new(file, spec).unwrap();
        write(&mut writer);
        writer.finalize().unwrap();
        path
    }

    fn spec(channels: u16, bits_per_sample: u16, sample_format: SampleFormat) -> WavSpec {
        WavSpec {
            channels,
            sample_rate: RATE,
            bits_per_sample,
            sample_format,
        }
    }

    #[test]
    fn channels_are_averaged_and_every_width_has_the_same_scale() {
        for bits in [8_u16, 16, 24, 32] {
            let half = 1_i32 << (bits - 2);
            let path = wav(spec(2, bits, SampleFormat::Int), |writer| {
                writer.write_sample(half).unwrap();
                writer.write_sample(-half).unwrap();
                writer.write_sample(half).unwrap();
                writer.write_sample(half).unwrap();
            });
            assert_eq!(read(&path).unwrap(), [0.0, 0.5], "{bits} bits");
        }
        let path = wav(spec(1, 32, SampleFormat::Float), |writer| {
            writer.write_sample(0.25_f32).unwrap();
        });
        assert_eq!(read(&path).unwrap(), [0.25]);
    }

    #[test]
    fn a_file_without_audio_is_refused_by_name() {
        let empty = wav(spec(1, 16, SampleFormat::Int), |_| {});
        let text = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&text, "hello").unwrap();
        for (path, reason) in [
            (&*empty, "contains no audio"),
            (
                text.path(),
                "not an audio file in a supported format: WAV, MP3",
            ),
            (Path::new("/nowhere.wav"), "cannot open /nowhere.wav"),
            (Path::new("/tmp"), "is a folder"),
        ] {
            let message = format!("{:#}", read(path).unwrap_err());
            assert!(message.contains(reason), "{message}");
        }
    }

    /// 440 Hz: half a second on the left of two channels, at 22,050 Hz, and a tenth in `tone.opus`; about a second
    /// as Chromium's
    /// `MediaRecorder` writes it, in `tone.webm` and `tone.mp4`.
    fn file(name: &str) -> PathBuf {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files");
        folder.join(name)
    }

    #[test]
    fn every_format_is_read_as_mono_at_the_servers_rate() {
        // A sine of -6 dBFS has -9 dBFS; half of it is 6 dB less. That of the Opus file is in the middle.
        for (name, length, loudness) in [
            ("tone.mp3", 490..=560, -15.0),
            ("tone.ogg", 490..=560, -15.0),
            ("tone.flac", 490..=560, -15.0),
            ("tone.opus", 95..=115, -9.0),
            ("tone.webm", 800..=1_200, -15.0),
            ("tone.mp4", 800..=1_200, -15.0),
        ] {
            let audio = read(&file(name)).unwrap();
            let ms = audio.len() * 1_000 / RATE as usize;
            assert!(length.contains(&ms), "{name}: {ms} ms");
            let middle = &audio[audio.len() / 4..audio.len() * 3 / 4];
            let level = level_dbfs(middle);
            assert!((level - loudness).abs() < 1.0, "{name}: {level} dBFS");
            let rises = middle.windows(2).filter(|w| w[0] < 0.0 && w[1] >= 0.0);
            let hz = rises.count() * RATE as usize / middle.len();
            assert!((430..=450).contains(&hz), "{name}: {hz} Hz");
        }
    }

    #[test]
    fn a_file_that_is_cut_off_is_read_up_to_there() {
        // All audio of the third is in one page.
        for name in ["tone.mp3", "tone.flac"] {
            let whole = std::fs::read(file(name)).unwrap();
            let cut = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(&cut, &whole[..whole.len() * 3 / 4]).unwrap();
            match read(cut.path()) {
                Ok(audio) => assert!(audio.len() < RATE as usize * 56 / 100),
                Err(error) => panic!("{name}: {error:#}"),
            }
        }
    }
}
