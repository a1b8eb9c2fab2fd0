//! Deletes what was kept of sessions when its time is over.

use crate::config::{Config, Retention};
use crate::telemetry;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use std::convert::Infallible;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The files and folders of a server, and how long what is in them stays.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    days: Retention,
    recordings: Option<PathBuf>,
    calls: Option<PathBuf>,
    turns: Option<PathBuf>,
    audit: Option<PathBuf>,
}

impl Kept {
    pub(super) fn new(config: &Config, recordings: Option<&Path>) -> Self {
        Self {
            days: config.retention,
            recordings: recordings.map(Path::to_owned),
            calls: config
                .call_recording
                .as_ref()
                .map(|calls| calls.folder.clone()),
            turns: config.log.turns.clone(),
            audit: Some(config.audit.file.clone()),
        }
    }

    /// Deletes what is old, now and daily, forever.
    #[allow(clippy::disallowed_methods, reason = "an edge: files grow old")]
    pub(super) async fn keep(self) -> Infallible {
        loop {
            let kept = self.clone();
            let cleaned = tokio::task::spawn_blocking(move || kept.clean(Timestamp::now())).await;
            if let Err(error) = cleaned {
                tracing::error!(%error, "old files and lines were not deleted");
            }
            tokio::time::sleep(DAY).await;
        }
    }

    /// Deletes what is old at `now`. Failures are logged; the rest goes on.
    fn clean(&self, now: Timestamp) {
        let Retention {
            recordings,
            calls,
            turns,
            audit,
        } = self.days;
        let before = |days: u32| now - SignedDuration::from_hours(24 * i64::from(days));
        let in_folder = |what: &str, folder: &Option<PathBuf>, days: Option<u32>, ending: &str| {
            if let (Some(folder), Some(days)) = (folder, days) {
                tell(
                    what,
                    days,
                    folder,
                    old_files(folder, ending, before(days)).and_then(delete),
                );
            }
        };
        in_folder("recordings", &self.recordings, recordings, "jsonl");
        in_folder("recordings of calls", &self.calls, calls, "wav");
        if let (Some(folder), Some(days)) = (&self.calls, calls) {
            let index = folder.join(crate::session::CALL_INDEX);
            tell(
                "lines of the index of calls",
                days,
                &index,
                young_lines(&index, before(days)),
            );
        }
        let in_file = |what: &str, file: &Option<PathBuf>, days: Option<u32>| {
            if let (Some(file), Some(days)) = (file, days) {
                tell(what, days, file, young_lines(file, before(days)));
            }
        };
        in_file("lines of the turn log", &self.turns, turns);
        in_file("lines of the audit log", &self.audit, audit);
    }
}

fn tell(what: &str, days: u32, path: &Path, deleted: io::Result<usize>) {
    match deleted {
        Ok(0) => {}
        Ok(number) => tracing::info!(number, days, path = %path.display(), "deleted old {what}"),
        Err(error) => {
            tracing::error!(%error, path = %path.display(), "old {what} cannot be deleted");
        }
    }
}

/// The files of a folder that the server has written and not touched since `before`. It names them after the time at
/// which they were begun; others are not its business.
fn old_files(folder: &Path, ending: &str, before: Timestamp) -> io::Result<Vec<PathBuf>> {
    let mut old = Vec::new();
    for file in sessions_files(folder, ending)? {
        let touched = Timestamp::try_from(file.metadata()?.modified()?);
        if touched.is_ok_and(|touched| touched < before) {
            old.push(file);
        }
    }
    Ok(old)
}

/// The files of a folder that are named as those of sessions; none if there is no folder.
pub(super) fn sessions_files(folder: &Path, ending: &str) -> io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        let is_ours =
            path.extension() == Some(OsStr::new(ending)) && name.to_str().is_some_and(is_session);
        if is_ours && entry.file_type()?.is_file() {
            files.push(path);
        }
    }
    Ok(files)
}

/// Whether a name begins as `20261125T072229-`.
fn is_session(name: &str) -> bool {
    let form = "00000000T000000-".bytes();
    let fits = |(letter, form): (u8, u8)| match form {
        b'0' => letter.is_ascii_digit(),
        form => letter == form,
    };
    name.len() > form.len() && name.bytes().zip(form).all(fits)
}

/// Deletes all that can be deleted. The error is the first one.
fn delete(files: Vec<PathBuf>) -> io::Result<usize> {
    let removed = files.iter().map(std::fs::remove_file);
    let failed = removed.filter_map(Result::err);
    // `undertone forget` may have been quicker.
    let mut failed = failed.filter(|error| error.kind() != io::ErrorKind::NotFound);
    let first = failed.next();
    failed.for_each(drop);
    first.map_or(Ok(files.len()), Err)
}

/// Takes out the lines from before a time. Those without one are from earlier versions: they are old. Lines that are not
/// JSON stay: the file may be another program's.
fn young_lines(file: &Path, before: Timestamp) -> io::Result<usize> {
    telemetry::retain(file, |line: &Value| {
        let time = line["time"]
            .as_str()
            .and_then(|time| time.parse::<Timestamp>().ok());
        line.is_string() || time.is_some_and(|time| time >= before)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::time::SystemTime;

    fn at(day: i64) -> Timestamp {
        Timestamp::from_second(day * 86_400).unwrap()
    }

    fn write(path: &Path, day: i64) {
        std::fs::write(path, "x").unwrap();
        let file = File::options().append(true).open(path).unwrap();
        file.set_modified(SystemTime::from(at(day))).unwrap();
    }

    #[test]
    fn only_old_files_and_lines_of_sessions_are_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let path = |name: &str| folder.join(name);
        for (name, day) in [
            ("20260101T000000-7-1.jsonl", 1),
            ("20260120T000000-7-2.jsonl", 20),
            ("20260101T000000-id.wav", 1),
            ("turns.jsonl", 1),
            ("notes.wav", 1),
        ] {
            write(&path(name), day);
        }
        let audit = path("audit.log");
        let lines = [1, 20].map(|day| format!("{{\"time\":\"{}\",\"tool\":\"book\"}}\n", at(day)));
        std::fs::write(&audit, lines.concat()).unwrap();
        let kept = Kept {
            days: Retention {
                recordings: Some(10),
                calls: None,
                turns: None,
                audit: Some(10),
            },
            recordings: Some(folder.to_owned()),
            calls: Some(folder.to_owned()),
            turns: None,
            audit: Some(audit.clone()),
        };
        kept.clean(at(25));
        assert!(!path("20260101T000000-7-1.jsonl").exists());
        assert!(path("20260120T000000-7-2.jsonl").exists(), "young");
        assert!(path("20260101T000000-id.wav").exists(), "kept for ever");
        assert!(
            path("turns.jsonl").exists() && path("notes.wav").exists(),
            "not a session's"
        );
        assert_eq!(std::fs::read_to_string(&audit).unwrap(), lines[1]);

        let days = Retention {
            calls: Some(10),
            ..kept.days
        };
        Kept { days, ..kept }.clean(at(25));
        assert!(!path("20260101T000000-id.wav").exists());
        assert!(path("notes.wav").exists());
    }

    #[test]
    fn a_folder_that_is_not_there_is_no_failure() {
        let missing = Path::new("/nowhere/at/all");
        assert!(sessions_files(missing, "wav").unwrap().is_empty());
    }
}
