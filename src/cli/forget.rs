//! `undertone forget`: deletes what was kept of one session or caller.

use super::retention::sessions_files;
use crate::config::Config;
use crate::recording::Header;
use crate::telemetry;
use crate::tools::JournalFile;
use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Shorter texts would match records of others.
const SHORTEST: usize = 5;

const NOT_ATTRIBUTED: &str = "\
The turn log and the learned patterns hold neither words nor values nor callers, so nothing in them belongs to anybody;
`undertone patterns forget` and [retention] empty them. What tools have stored elsewhere, reports that the webhook has
taken, and the server's log on stderr are not touched.";

const NOT_SEARCHED: &str = "\
NOT looked at: what `serve`, `ask` and `talk` have recorded with --record. If they have, name the folder with --record.";

const IN_THE_STORE: &str = "\
NOT deleted: the journal in the shared store, which keeps servers from making changes twice. It forgets calls after a day
by itself, and calls whose end is not known after a month.";

#[derive(Debug, Args)]
pub(super) struct Forget {
    /// A session, as reports and the audit log name it, or a caller's number or address
    #[arg(value_name = "SESSION|CALLER")]
    who: String,
    /// The folder of `serve --record`
    #[arg(long, value_name = "FOLDER")]
    record: Option<PathBuf>,
    /// Only show what would be deleted
    #[arg(long)]
    dry_run: bool,
}

impl Forget {
    pub(super) fn run(&self, config: &Config) -> Result<ExitCode> {
        let who = self.who.trim();
        ensure!(
            who.len() >= SHORTEST,
            "\"{who}\" is too short to name a session or a caller: give at least {SHORTEST} characters"
        );
        self.check_places(config)?;
        let mut sessions = BTreeSet::from([who.to_owned()]);
        let calls = config
            .call_recording
            .as_ref()
            .map(|calls| calls.folder.as_path());
        let index = calls.map(|folder| folder.join(crate::session::CALL_INDEX));
        let recordings = self.recordings(who, &mut sessions)?;
        if let Some(index) = &index {
            sessions.extend(indexed(index, who)?);
        }
        let mut files = recordings;
        files.extend(reports(&super::serve::reports(config), who, &mut sessions)?);
        if let Some(folder) = calls {
            files.extend(sounds(folder, &sessions)?);
        }
        for file in &files {
            if !self.dry_run {
                match std::fs::remove_file(file) {
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    removed => {
                        removed.with_context(|| format!("cannot delete {}", file.display()))?;
                    }
                }
            }
            super::print(&format!("{} {}", self.verb(), file.display()))?;
        }
        let is_theirs = |line: &Value| {
            let named = |key: &str| is_named(line, key, &sessions);
            // A full disk may have cut it off.
            let is_torn = |line: &str| sessions.iter().any(|name| occurs(line, name));
            named("session")
                || named("caller")
                || has(&line["arguments"], who)
                || line.as_str().is_some_and(is_torn)
        };
        let mut has_found = !files.is_empty();
        if let Some(index) = &index {
            has_found |= self.lines(index, is_theirs)?;
        }
        // A session of which only the journal tells made a call for them; whose it was is not known.
        let made_calls = match &config.store {
            Some(_) => BTreeSet::new(),
            None => journalled(&config.tools.journal, who)?,
        };
        has_found |= self.lines(&config.audit.file, |line| {
            is_theirs(line) || is_named(line, "session", &made_calls)
        })?;
        let forgotten = match &config.store {
            Some(_) => super::print(IN_THE_STORE).map(|()| None)?,
            None => self.journal(&config.tools.journal, who, &sessions)?,
        };
        if !has_found && forgotten.unwrap_or_default() == 0 {
            let journal = forgotten.map(|_| config.tools.journal.as_path());
            super::print(&self.nothing(config, journal))?;
        }
        if self.record.is_none() {
            super::print(NOT_SEARCHED)?;
        }
        super::print(NOT_ATTRIBUTED)?;
        Ok(if forgotten.is_some() {
            ExitCode::SUCCESS
        } else {
            super::FAILED.into()
        })
    }

    /// Checks that the configuration names the places where the server keeps its files. With another one nothing would be
    /// found, and nobody would notice.
    fn check_places(&self, config: &Config) -> Result<()> {
        let (journal, audit) = (&config.tools.journal, &config.audit.file);
        let calls = config.call_recording.as_ref().map(|calls| &calls.folder);
        let places = [journal, audit]
            .into_iter()
            .chain(calls)
            .chain(&self.record);
        ensure!(
            config.store.is_some() || places.clone().any(|place| place.exists()),
            "no server has kept anything at {}. Run this as the server's user, with its configuration and its \
             XDG_STATE_HOME",
            places
                .map(|place| place.display().to_string())
                .collect::<Vec<_>>()
                .join(", ")
        );
        Ok(())
    }

    /// The report that there is nothing, and where nothing is.
    fn nothing(&self, config: &Config, journal: Option<&Path>) -> String {
        let reports = super::serve::reports(config);
        let calls = config.call_recording.as_ref();
        let calls = calls.map(|calls| calls.folder.as_path());
        let places = [config.audit.file.as_path(), reports.as_path()].into_iter();
        let places = places.chain(calls).chain(journal);
        let places = places.chain(self.record.as_deref());
        let places: Vec<_> = places.map(|place| place.display().to_string()).collect();
        let who = self.who.trim();
        format!("nothing was found of {who} in {}", places.join(", "))
    }

    fn verb(&self) -> &'static str {
        if self.dry_run {
            "would delete"
        } else {
            "deleted"
        }
    }

    /// The recordings of the session or caller; their sessions are added to `sessions`.
    fn recordings(&self, who: &str, sessions: &mut BTreeSet<String>) -> Result<Vec<PathBuf>> {
        let Some(folder) = &self.record else {
            return Ok(Vec::new());
        };
        let mut theirs = Vec::new();
        for file in files_in(folder, "jsonl")? {
            let unreadable = || format!("cannot read {}", file.display());
            let mut reader = BufReader::new(File::open(&file).with_context(unreadable)?);
            let first = line(&mut reader).with_context(unreadable)?;
            let first = first.unwrap_or_default();
            let header: Option<Header> = serde_json::from_str(&first).ok();
            let (session, caller) =
                header.map_or((None, None), |header| (header.session, header.caller));
            let is_named = [&session, &caller]
                .iter()
                .any(|named| named.as_deref() == Some(who));
            let is_theirs = is_named
                || mentions(first.as_bytes().chain(reader), who).with_context(unreadable)?;
            if is_theirs {
                sessions.extend(session);
                theirs.push(file);
            }
        }
        Ok(theirs)
    }

    /// Deletes these lines. Whether there are any.
    fn lines(&self, file: &Path, is_theirs: impl Fn(&Value) -> bool) -> Result<bool> {
        let found = Cell::new(0_usize);
        let keep = |line: &Value| {
            let is_theirs = is_theirs(line);
            found.set(found.get() + usize::from(is_theirs));
            self.dry_run || !is_theirs
        };
        let removed = telemetry::retain(file, keep);
        removed.with_context(|| format!("cannot change {}", file.display()))?;
        // Each line is looked at more than once.
        if found.get() > 0 {
            super::print(&format!("{} lines of {}", self.verb(), file.display()))?;
        }
        Ok(found.get() > 0)
    }

    /// Deletes their calls. How many there are; `None` if the journal cannot be changed.
    fn journal(
        &self,
        path: &Path,
        who: &str,
        sessions: &BTreeSet<String>,
    ) -> Result<Option<usize>> {
        let is_theirs = |key: &str, values: &[Value]| {
            let of_session = session_of(key).is_some_and(|session| sessions.contains(session));
            of_session || values.iter().any(|value| has(value, who))
        };
        let forgotten = JournalFile::forget(path, is_theirs, self.dry_run)?;
        let shown = path.display();
        match forgotten {
            Some(0) => {}
            Some(calls) => super::print(&format!("{} {calls} calls in {shown}", self.verb()))?,
            None => super::print(&format!(
                "NOT deleted: a server uses {shown}, which keeps it from making changes twice. It forgets calls after a \
                 day by itself; to be sure now, stop the server and run this again."
            ))?,
        }
        Ok(forgotten)
    }
}

/// Whether a line names one of these.
fn is_named(line: &Value, key: &str, names: &BTreeSet<String>) -> bool {
    line[key].as_str().is_some_and(|name| names.contains(name))
}

/// The session of a journal's key, as in `SESSION-call_2`.
fn session_of(key: &str) -> Option<&str> {
    let (session, work) = key.rsplit_once('-')?;
    (work.starts_with("call_") || work.starts_with("run_")).then_some(session)
}

fn files_in(folder: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    sessions_files(folder, ending).with_context(|| format!("cannot read {}", folder.display()))
}

/// The sessions of a caller, by the index of the recorded calls.
fn indexed(index: &Path, who: &str) -> Result<BTreeSet<String>> {
    let text = match std::fs::read(index) {
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        text => text.with_context(|| format!("cannot read {}", index.display()))?,
    };
    let lines = String::from_utf8_lossy(&text);
    let lines = lines
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let theirs = lines.filter(|line| line["caller"] == who);
    Ok(theirs
        .filter_map(|line| line["session"].as_str().map(str::to_owned))
        .collect())
}

/// The sessions of the calls in the journal with such a text.
fn journalled(journal: &Path, who: &str) -> Result<BTreeSet<String>> {
    let found = RefCell::new(BTreeSet::<String>::new());
    let is_theirs = |key: &str, values: &[Value]| {
        let is_theirs = values.iter().any(|value| has(value, who));
        let session = session_of(key).filter(|_| is_theirs);
        found.borrow_mut().extend(session.map(str::to_owned));
        is_theirs
    };
    // Nothing is taken out yet.
    JournalFile::forget(journal, is_theirs, true)?;
    Ok(found.into_inner())
}

/// The reports that wait for the webhook, of these sessions or with such a text; their sessions are added to `sessions`.
fn reports(folder: &Path, who: &str, sessions: &mut BTreeSet<String>) -> Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.with_context(|| format!("cannot read {}", folder.display()))?,
    };
    let mut theirs = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let session = path.file_stem().and_then(|name| name.to_str());
        let Some(session) = session.map(str::to_owned) else {
            continue;
        };
        let unreadable = || format!("cannot read {}", path.display());
        let file = match File::open(&path) {
            // The webhook has taken it meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            file => BufReader::new(file.with_context(unreadable)?),
        };
        if sessions.contains(&session) || mentions(file, who).with_context(unreadable)? {
            sessions.insert(session);
            theirs.push(path);
        }
    }
    Ok(theirs)
}

/// The recordings of these sessions as sound.
fn sounds(folder: &Path, sessions: &BTreeSet<String>) -> Result<Vec<PathBuf>> {
    let mut files = files_in(folder, "wav")?;
    files.retain(|file| {
        let name = file.file_stem().and_then(|name| name.to_str());
        let session = name
            .and_then(|name| name.split_once('-'))
            .map(|(_, session)| session);
        session.is_some_and(|session| sessions.contains(session))
    });
    Ok(files)
}

/// The next line. The last one of a recording may be torn, also in the middle of a character.
fn line(file: &mut impl BufRead) -> std::io::Result<Option<String>> {
    let mut bytes = Vec::new();
    let read = file.read_until(b'\n', &mut bytes)?;
    Ok((read > 0).then(|| String::from_utf8_lossy(&bytes).into_owned()))
}

/// Whether a text occurs in a file of JSON lines.
fn mentions(mut file: impl BufRead, who: &str) -> std::io::Result<bool> {
    while let Some(line) = line(&mut file)? {
        // Not in the names of fields.
        let found = match serde_json::from_str::<Value>(&line) {
            Ok(value) => has(&value, who),
            Err(_) => line.contains(who),
        };
        if found {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a text occurs in a value.
fn has(value: &Value, who: &str) -> bool {
    match value {
        Value::String(text) => occurs(text, who),
        Value::Array(values) => values.iter().any(|value| has(value, who)),
        Value::Object(fields) => fields.values().any(|value| has(value, who)),
        Value::Number(number) => number.to_string() == who,
        Value::Bool(_) | Value::Null => false,
    }
}

/// Whether a text occurs in another, and not as a part of a longer number or word.
fn occurs(text: &str, who: &str) -> bool {
    // Scripts without spaces have none around a number either.
    let is_inner = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let mut found = text.match_indices(who);
    found.any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + who.len()..]);
        let begins = is_inner(before.chars().next_back()) && is_inner(who.chars().next());
        let ends = is_inner(who.chars().next_back()) && is_inner(after.chars().next());
        !begins && !ends
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The recordings of a caller used to go with those of another whose number begins as theirs.
    #[test]
    fn a_longer_number_or_word_is_another() {
        for (text, found) in [
            ("+15550100", true),
            ("call me at +15550100.", true),
            ("tel:+15550100;phone-context=x", true),
            ("+155501001", false),
            ("+155501001 and +15550100", true),
            ("電話+15550100です", true),
        ] {
            assert_eq!(occurs(text, "+15550100"), found, "{text}");
        }
        assert!(occurs("+15550100", "15550100"));
        assert!(!occurs("+4915550100", "15550100"));
        assert!(!occurs("malice@example.com", "alice@example.com"));
    }
}
