//! Reads audio files, and writes WAV files.

mod decode;

use anyhow::{Context, Result, ensure};
use hound::{SampleFormat, WavSpec, WavWriter};
use std::fs::File;
use std::io::{BufWriter, Seek, Write};
use std::path::Path;

/// The rate inside the server, Hz.
pub(super) const RATE: u32 = 16_000;

/// The longest stretch, samples: a little below the recogniser's limit of 30 s.
const LONGEST_STRETCH: usize = 28 * RATE as usize;
const SHORTEST_STRETCH: usize = 20 * RATE as usize;
/// Samples of the 20 ms windows that are compared to find the quietest place.
const FRAME: usize = RATE as usize / 50;

/// Silence between two utterances, samples: longer than speakers make within a sentence.
const PAUSE: usize = RATE as usize * 7 / 10;
/// Samples below this are silence: -40 dBFS.
const SILENT: f32 = 0.01;

/// The longest file that is read, seconds: it is kept in memory.
const LONGEST_FILE_SECONDS: u32 = 4 * 3_600;

/// Reads a WAV, MP3, FLAC or Ogg Vorbis file as 16 kHz mono in -1..1.
pub(super) fn read(path: &Path) -> Result<Vec<f32>> {
    let shown = path.display();
    let file = File::open(path).with_context(|| format!("cannot open {shown}"))?;
    ensure!(
        !file.metadata()?.is_dir(),
        "{shown} is a folder, not an audio file"
    );
    decode::decode(path, file)
}

/// Writes mono audio in -1..1 as 16-bit WAV.
pub(super) fn write(path: &Path, rate: u32, samples: &[f32]) -> Result<()> {
    let context = || format!("cannot write {}", path.display());
    let file = File::create(path).with_context(context)?;
    write_to(BufWriter::new(file), rate, samples).with_context(context)
}

/// Writes mono audio in -1..1 as 16-bit WAV to `sink`.
pub(super) fn write_to(
    sink: impl Write + Seek,
    rate: u32,
    samples: &[f32],
) -> Result<(), hound::Error> {
    let spec = WavSpec {
        channels: 1,
        sample_rate: rate,
        bits_per_sample: 16,
        sample_format: SampleFormat::Int,
    };
    let mut writer = WavWriter::new(sink, spec)?;
    for sample in crate::audio::to_i16(samples) {
        writer.write_sample(sample)?;
    }
    writer.finalize()
}

/// Cuts 16 kHz audio into stretches for the recogniser: at pauses, since it may stop at one, and where
/// there are none, at quiet places before a stretch gets too long.
pub(super) fn stretches(audio: &[f32]) -> Vec<&[f32]> {
    between_pauses(audio)
        .into_iter()
        .flat_map(short_enough)
        .collect()
}

fn between_pauses(audio: &[f32]) -> Vec<&[f32]> {
    let is_silent = |frame: &[f32]| frame.iter().all(|sample| sample.abs() < SILENT);
    let mut parts = Vec::new();
    let (mut from, mut silence, mut has_sound) = (0, 0, false);
    for (index, frame) in audio.chunks(FRAME).enumerate() {
        if is_silent(frame) {
            silence += frame.len();
            continue;
        }
        if has_sound && silence >= PAUSE {
            let cut = index * FRAME - silence / 2;
            parts.push(&audio[from..cut]);
            from = cut;
        }
        (silence, has_sound) = (0, true);
    }
    parts.push(&audio[from..]);
    parts
}

fn short_enough(audio: &[f32]) -> Vec<&[f32]> {
    let mut rest = audio;
    let mut stretches = Vec::new();
    while rest.len() > LONGEST_STRETCH {
        let (stretch, after) = rest.split_at(quietest(&rest[..LONGEST_STRETCH]));
        stretches.push(stretch);
        rest = after;
    }
    stretches.push(rest);
    stretches
}

fn quietest(stretch: &[f32]) -> usize {
    let power = |frame: &[f32]| frame.iter().map(|s| s * s).sum::<f32>();
    stretch[SHORTEST_STRETCH..]
        .chunks_exact(FRAME)
        .enumerate()
        .min_by(|(_, a), (_, b)| power(a).total_cmp(&power(b)))
        .map_or(stretch.len(), |(index, _)| {
            SHORTEST_STRETCH + index * FRAME + FRAME / 2
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::level_dbfs;
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
            (text.path(), "not an audio file of a known format: WAV, MP3"),
            (
                &file("tone.opus"),
                "Opus is not read: WAV, MP3, FLAC and Ogg",
            ),
            (Path::new("/nowhere.wav"), "cannot open /nowhere.wav"),
            (Path::new("/tmp"), "is a folder"),
        ] {
            let message = format!("{:#}", read(path).unwrap_err());
            assert!(message.contains(reason), "{message}");
        }
    }

    /// Half a second of 440 Hz on the left of two channels, at 22,050 Hz.
    fn file(name: &str) -> PathBuf {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files");
        folder.join(name)
    }

    #[test]
    fn every_format_is_read_as_mono_at_the_servers_rate() {
        for name in ["tone.mp3", "tone.ogg", "tone.flac"] {
            let audio = read(&file(name)).unwrap();
            let ms = audio.len() * 1_000 / RATE as usize;
            assert!((490..=560).contains(&ms), "{name}: {ms} ms");
            let middle = &audio[audio.len() / 4..audio.len() * 3 / 4];
            let level = level_dbfs(middle);
            // A sine of -6 dBFS has -9 dBFS; half of it is 6 dB less.
            assert!((-16.0..-14.0).contains(&level), "{name}: {level} dBFS");
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

    #[test]
    fn audio_is_cut_at_each_pause() {
        let sound = vec![0.5; 2 * RATE as usize];
        let silence = |seconds: f32| vec![0.0; (seconds * RATE as f32) as usize];
        let audio = [
            silence(1.0),
            sound.clone(),
            silence(0.3),
            sound.clone(),
            silence(0.9),
            sound,
            silence(2.0),
        ]
        .concat();
        let stretches = stretches(&audio);
        assert_eq!(stretches.len(), 2);
        assert_eq!(stretches[0].len(), (5.75 * RATE as f32) as usize);
        assert_eq!(stretches.concat(), audio);
    }

    #[test]
    fn long_audio_is_cut_in_its_pauses_and_nothing_is_lost() {
        let mut audio = vec![0.5; 60 * RATE as usize];
        let pause = 24 * RATE as usize;
        audio[pause..pause + FRAME * 4].fill(0.0);
        let stretches = stretches(&audio);
        assert!(stretches.iter().all(|s| s.len() <= LONGEST_STRETCH));
        assert!((pause..pause + FRAME * 4).contains(&stretches[0].len()));
        assert_eq!(stretches.concat(), audio);
    }
}
