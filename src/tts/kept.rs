//! Clips kept on disk, so that later starts need not synthesise them again.

use crate::audio::{to_f32, to_i16};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The most clips in the folder, some 60 KB each. A server has about 30; each new voice or build of
/// the program adds its own.
const MOST_CLIPS: usize = 512;
/// The longest file that is read: 80 s at 22,050 Hz.
const MOST_BYTES: u64 = 4 * 1024 * 1024;
/// The length of the checksum at the beginning of a file.
const CHECKSUM: usize = 32;

/// The clips of one voice in a folder. Nothing depends on it: a file that cannot be read or is damaged
/// is as good as none, and what cannot be written is made again at the next start.
#[derive(Debug)]
pub struct Kept {
    folder: PathBuf,
    voice: String,
}

impl Kept {
    /// The clips in `folder` of the voice with this [`super::Tts::fingerprint`], made by this build of
    /// the program.
    #[must_use]
    pub fn new(folder: &Path, fingerprint: &str) -> Self {
        Self {
            folder: folder.to_owned(),
            voice: format!("{fingerprint} {}", build()),
        }
    }

    /// The clip of exactly this text, mono in -1..1, if it was kept.
    #[must_use]
    pub fn get(&self, text: &str) -> Option<Vec<f32>> {
        let path = self.path(text);
        if fs::metadata(&path).ok()?.len() > MOST_BYTES {
            return None;
        }
        let file = fs::read(path).ok()?;
        let (checksum, samples) = file.split_at_checked(CHECKSUM)?;
        if checksum != &Sha256::digest(samples)[..] {
            return None;
        }
        let samples = samples.as_chunks::<2>().0.iter().copied();
        Some(to_f32(&samples.map(i16::from_le_bytes).collect::<Vec<_>>()))
    }

    /// Keeps a clip. A failure is logged.
    pub fn put(&self, text: &str, clip: &[f32]) {
        if let Err(error) = self.write(text, clip) {
            let folder = self.folder.display();
            tracing::debug!(%error, %folder, "a clip was not kept");
        }
    }

    fn write(&self, text: &str, clip: &[f32]) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        let samples: Vec<u8> = to_i16(clip)
            .into_iter()
            .flat_map(i16::to_le_bytes)
            .collect();
        let file = [&Sha256::digest(&samples)[..], &samples].concat();
        let path = self.path(text);
        // Another process may write or read the same clip.
        let unfinished = path.with_extension(std::process::id().to_string());
        fs::write(&unfinished, file)?;
        fs::rename(&unfinished, path)
    }

    /// Removes the oldest clips beyond the limit. A failure is logged.
    pub fn tidy(&self) {
        if let Err(error) = self.remove_oldest() {
            let folder = self.folder.display();
            tracing::debug!(%error, %folder, "old clips were not removed");
        }
    }

    fn remove_oldest(&self) -> io::Result<()> {
        let entries = fs::read_dir(&self.folder)?.filter_map(Result::ok);
        let dated = |entry: fs::DirEntry| {
            let modified = entry.metadata().and_then(|data| data.modified());
            (modified.unwrap_or(SystemTime::UNIX_EPOCH), entry.path())
        };
        let mut files: Vec<(SystemTime, PathBuf)> = entries.map(dated).collect();
        files.sort();
        for (_, path) in files.iter().rev().skip(MOST_CLIPS) {
            fs::remove_file(path)?;
        }
        Ok(())
    }

    fn path(&self, text: &str) -> PathBuf {
        let key = hex(&Sha256::digest(format!("{}\n{text}", self.voice)));
        self.folder.join(format!("{key}.pcm"))
    }
}

/// The sha256 of these files together, in hexadecimal.
pub(super) fn sha256_of(files: &[PathBuf]) -> io::Result<String> {
    let mut digest = Sha256::new();
    let mut block = vec![0; 64 * 1024];
    for file in files {
        let mut file = fs::File::open(file)?;
        loop {
            match file.read(&mut block)? {
                0 => break,
                read => digest.update(&block[..read]),
            }
        }
    }
    Ok(hex(&digest.finalize()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Tells this build of the program from others, which may pronounce a text in another way.
fn build() -> String {
    let built = std::env::current_exe().and_then(fs::metadata);
    let built = built.and_then(|data| Ok((data.len(), data.modified()?)));
    built.map_or_else(|_| String::new(), |built| format!("{built:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIP: [f32; 3] = [0.0, 0.5, -0.25];

    #[test]
    fn a_clip_is_there_for_the_same_voice_and_text() {
        let folder = tempfile::tempdir().unwrap();
        Kept::new(folder.path(), "joe").put("Hi.", &CLIP);
        let kept = Kept::new(folder.path(), "joe");
        let clip = kept.get("Hi.").unwrap();
        assert_eq!(clip.len(), CLIP.len());
        assert!(clip.iter().zip(CLIP).all(|(a, b)| (a - b).abs() < 1e-4));
        assert!(kept.get("Hi!").is_none());
        assert!(Kept::new(folder.path(), "amy").get("Hi.").is_none());
    }

    #[test]
    fn a_damaged_clip_is_as_good_as_none() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::new(folder.path(), "joe");
        kept.put("Hi.", &CLIP);
        let path = kept.path("Hi.");
        let whole = fs::read(&path).unwrap();
        for length in [0, 5, CHECKSUM, whole.len() - 1] {
            fs::write(&path, &whole[..length]).unwrap();
            assert!(kept.get("Hi.").is_none(), "{length} bytes");
        }
        kept.put("Hi.", &CLIP);
        assert!(kept.get("Hi.").is_some());
    }

    #[test]
    fn a_folder_that_cannot_be_written_does_no_harm() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let kept = Kept::new(&file, "joe");
        kept.put("Hi.", &CLIP);
        kept.tidy();
        assert!(kept.get("Hi.").is_none());
    }

    #[test]
    fn the_folder_stays_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::new(folder.path(), "joe");
        for number in 0..MOST_CLIPS + 5 {
            kept.put(&number.to_string(), &CLIP);
        }
        kept.tidy();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), MOST_CLIPS);
    }
}
