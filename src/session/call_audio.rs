//! Records the audio of calls without delaying them: stereo WAV files, the user left, the agent right.

use super::tracks::Tracks;
use crate::conversation::{Samples, Time};
use crate::language::{Pack, pack};
use crate::telemetry;
use hound::{SampleFormat, WavSpec, WavWriter};
use prometheus_client::metrics::counter::Counter;
use serde_json::json;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufWriter};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;
use tokio_util::task::TaskTracker;

/// The file beside the recordings that says which caller each is of.
pub const CALL_INDEX: &str = "calls.jsonl";

/// Pieces of a second that may wait for the disk.
const QUEUE: usize = 16;

/// How long the last pieces may take when the server stops.
const LAST_PIECES: Duration = Duration::from_secs(10);

/// The recorder of calls' audio. The files hold people's voices: only their owner may read them.
#[derive(Debug, Clone)]
pub struct CallRecordings {
    folder: PathBuf,
    consent: String,
    /// The agents whose calls are recorded; all if empty.
    agents: Vec<String>,
    writers: TaskTracker,
    lost: Counter,
}

impl CallRecordings {
    /// Recordings in `folder`, which is made if it is not there, of the calls that begin with one of these `agents`;
    /// of all if there are none. `consent` is spoken first in each; nothing if empty.
    ///
    /// # Errors
    /// The folder cannot be made, or no file in it.
    pub fn new(folder: &Path, consent: String, agents: Vec<String>) -> io::Result<Self> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
        tempfile::tempfile_in(folder)?;
        Ok(Self {
            folder: folder.to_owned(),
            consent,
            agents,
            writers: TaskTracker::new(),
            lost: Counter::default(),
        })
    }

    /// Whether a call that begins with this agent is recorded.
    pub(super) fn records(&self, agent: &str) -> bool {
        self.agents.is_empty() || self.agents.iter().any(|name| name == agent)
    }

    /// The words that tell of the recording. The default ones are in the agent's language.
    pub(super) fn notice(&self, language: &Pack) -> String {
        let own = self.consent.trim();
        match own == pack(None).recorded {
            true => language.recorded.to_owned(),
            false => own.to_owned(),
        }
    }

    /// Recordings that could not be made, or not to their end.
    pub fn lost(&self) -> Counter {
        self.lost.clone()
    }

    /// Waits until the recordings of calls that are over are written, ten seconds at most.
    pub async fn finish(&self) {
        self.writers.close();
        let wait = tokio::time::timeout(LAST_PIECES, self.writers.wait());
        if wait.await.is_err() {
            tracing::warn!(
                left = self.writers.len(),
                "recordings of calls were cut short"
            );
        }
    }

    /// Begins the recording of the call `id` of this caller, whose client is sent audio at `rate` Hz. Without a thread or a file
    /// for it there is none.
    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: files are named after the time"
    )]
    pub(super) fn begin(&self, id: &str, caller: Option<&str>, rate: u32) -> Option<CallRecorder> {
        let time = jiff::Timestamp::now();
        let now = time.strftime("%Y%m%dT%H%M%S");
        let path = self.folder.join(format!("{now}-{id}.wav"));
        let index = self.folder.join(CALL_INDEX);
        let known = caller.map(|caller| json!({"time": time, "session": id, "caller": caller}));
        let (pieces, waiting) = sync_channel(QUEUE);
        let (token, lost) = (self.writers.token(), self.lost.clone());
        let session = tracing::Span::current();
        let begun = std::thread::Builder::new()
            .name("call-audio".into())
            .spawn(move || {
                let _in_session = session.entered();
                let indexed = known.map_or(Ok(()), |line| telemetry::append(&index, &line));
                let created = indexed.and_then(|()| create(&path));
                let written = created.map_err(hound::Error::from);
                if let Err(error) = written.and_then(|file| write(file, &waiting)) {
                    lost.inc();
                    tracing::warn!(%error, path = %path.display(), "the recording of a call ends");
                }
                // Before the token says that all is written: nothing more can be sent.
                drop(waiting);
                drop(token);
            });
        if let Err(error) = begun {
            self.lost.inc();
            tracing::warn!(%error, "the call is not recorded");
            return None;
        }
        Some(CallRecorder {
            tracks: Tracks::new(rate),
            pieces: Some(pieces),
            lost: self.lost.clone(),
        })
    }
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

/// Writes all pieces. The file can be played after each of them.
fn write(file: File, pieces: &Receiver<Vec<i16>>) -> Result<(), hound::Error> {
    let spec = WavSpec {
        channels: 2,
        sample_rate: Samples::RATE,
        bits_per_sample: 16,
        sample_format: SampleFormat::Int,
    };
    let mut wav = WavWriter::new(BufWriter::new(file), spec)?;
    while let Ok(piece) = pieces.recv() {
        for sample in piece {
            wav.write_sample(sample)?;
        }
        wav.flush()?;
    }
    wav.finalize()
}

/// The recording of one call.
pub(super) struct CallRecorder {
    tracks: Tracks,
    /// `None` once the recording has ended.
    pieces: Option<SyncSender<Vec<i16>>>,
    lost: Counter,
}

impl CallRecorder {
    /// Records the user's audio, 16 kHz, which has come in at `now`.
    pub(super) fn user(&mut self, now: Time, samples: &[f32]) {
        if self.pieces.is_some() {
            self.tracks.user(now, samples);
            self.advance(now);
        }
    }

    /// Records audio of the agent that was sent at `now`.
    pub(super) fn agent(&mut self, now: Time, samples: &[i16]) {
        if self.pieces.is_some() {
            self.tracks.agent(now, samples);
            self.advance(now);
        }
    }

    /// Drops what was sent and will not be heard.
    pub(super) fn flush(&mut self, now: Time) {
        self.tracks.flush(now);
    }

    /// Ends the recording with the call.
    pub(super) fn finish(mut self, now: Time) {
        let rest = self.tracks.take_rest(now);
        self.write(rest);
    }

    fn advance(&mut self, now: Time) {
        if let Some(piece) = self.tracks.take(now) {
            self.write(piece);
        }
    }

    fn write(&mut self, piece: Vec<i16>) {
        let Some(pieces) = &self.pieces else {
            return;
        };
        match pieces.try_send(piece) {
            Ok(()) => return,
            Err(TrySendError::Full(_)) => {
                self.lost.inc();
                tracing::warn!("the recording of a call ends: the disk is too slow");
            }
            // The writer has said why.
            Err(TrySendError::Disconnected(_)) => {}
        }
        self.pieces = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Time = Time::from_ms(1_000);

    #[test]
    fn a_full_disk_ends_the_recording_and_not_the_call() {
        let (pieces, waiting) = sync_channel(QUEUE);
        pieces.send(vec![1; 100_000]).unwrap();
        drop(pieces);
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        assert!(write(full, &waiting).is_err());
        drop(waiting);
        let (pieces, waiting) = sync_channel(QUEUE);
        let mut recorder = CallRecorder {
            tracks: Tracks::new(Samples::RATE),
            pieces: Some(pieces),
            lost: Counter::default(),
        };
        drop(waiting);
        for second in 1..10 {
            recorder.user(Time::from_ms(second * 1_000), &[0.5; 16_000]);
        }
        assert!(recorder.pieces.is_none());
        recorder.finish(SECOND);
    }

    /// A folder in which nobody may make a file.
    const NOT_OURS: &str = "/sys/kernel";

    #[tokio::test]
    async fn a_disk_that_is_read_only_ends_the_recording_and_not_the_call() {
        let folder = tempfile::tempdir().unwrap();
        let calls = CallRecordings::new(folder.path(), String::new(), Vec::new());
        let calls = CallRecordings {
            folder: NOT_OURS.into(),
            ..calls.unwrap()
        };
        let mut recorder = calls.begin("7", Some("+1"), Samples::RATE).unwrap();
        calls.finish().await;
        assert_eq!(calls.lost().get(), 1);
        for second in 1..10 {
            recorder.user(Time::from_ms(second * 1_000), &[0.5; 16_000]);
        }
        assert!(recorder.pieces.is_none());
        recorder.finish(Time::from_ms(10_000));
    }

    /// The doctor found nothing, and calls were not recorded.
    #[test]
    fn a_folder_that_takes_no_files_is_refused() {
        let calls = CallRecordings::new(Path::new(NOT_OURS), String::new(), Vec::new());
        assert!(calls.is_err());
    }

    #[test]
    fn a_disk_that_is_too_slow_is_not_waited_for() {
        let (pieces, _waiting) = sync_channel(1);
        let lost = Counter::default();
        let mut recorder = CallRecorder {
            tracks: Tracks::new(Samples::RATE),
            pieces: Some(pieces),
            lost: lost.clone(),
        };
        for second in 1..10 {
            recorder.user(Time::from_ms(second * 1_000), &[0.5; 16_000]);
        }
        assert_eq!(lost.get(), 1);
    }

    /// A German agent said in English that the call is recorded.
    #[test]
    fn the_default_notice_is_in_the_language_of_the_agent() {
        let folder = tempfile::tempdir().unwrap();
        let notice = |consent: &str| {
            let calls = CallRecordings::new(folder.path(), consent.into(), Vec::new());
            calls.unwrap().notice(pack(Some("de-AT")))
        };
        let german = "Dieses Gespräch wird aufgezeichnet.";
        assert_eq!(notice("This call is recorded."), german);
        assert_eq!(notice(" Wir nehmen auf. "), "Wir nehmen auf.");
        assert_eq!(notice(""), "");
    }

    #[tokio::test]
    async fn a_call_becomes_a_file_that_only_its_owner_reads() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let calls = CallRecordings::new(folder.path(), "This call is recorded.".into(), Vec::new());
        let calls = calls.unwrap();
        assert_eq!(calls.notice(pack(None)), "This call is recorded.");
        let mut recorder = calls.begin("7", None, Samples::RATE).unwrap();
        recorder.user(SECOND, &[0.5; 16_000]);
        recorder.agent(SECOND, &[8_000; 16_000]);
        recorder.finish(Time::from_ms(2_000));
        calls.finish().await;
        let path = folder
            .path()
            .read_dir()
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .path();
        assert!(path.to_str().unwrap().ends_with("-7.wav"));
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let mut wav = hound::WavReader::open(path).unwrap();
        assert_eq!((wav.spec().channels, wav.spec().sample_rate), (2, 16_000));
        let samples: Vec<i16> = wav.samples().map(Result::unwrap).collect();
        assert_eq!(samples.len(), 2 * 32_000);
        assert_eq!((samples[0], samples[1]), (16_384, 0));
        assert_eq!((samples[40_000], samples[40_001]), (0, 8_000));
        assert_eq!(calls.lost().get(), 0);
    }
}
