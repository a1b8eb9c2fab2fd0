//! Stores patterns between runs of the server, for one server or several.
//!
//! The file is replaced as a whole, by renaming, so that no reader sees half of it. Servers and people change it one
//! after the other, each under its lock.

use super::learner::{Patterns, VERSION};
use crate::store::StoreError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The longest text that is read, bytes: 64 agents with many tools need less.
pub(super) const MOST_BYTES: u64 = 64 * 1024 * 1024;

/// The patterns of all agents, by the agents' names.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Book(pub BTreeMap<String, Patterns>);

/// The form of the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Form<T> {
    undertone_patterns: u32,
    agents: T,
}

#[derive(Deserialize)]
struct Marked {
    undertone_patterns: u32,
}

/// The reason that a text holds no patterns for this program.
#[derive(Debug, PartialEq)]
pub(super) enum Fault {
    Foreign(String),
    Version(u32),
}

/// An error of a store of patterns.
#[derive(Debug, thiserror::Error)]
pub enum PatternStoreError {
    /// The file cannot be read or written.
    #[error("{path}: {source}; mend that, or name another file in speculation.patterns_file")]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The file is damaged, or something else.
    #[error(
        "{path} holds no patterns ({problem}); move it away to begin anew, or name another file in \
         speculation.patterns_file"
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The fault.
        problem: String,
    },
    /// Another version of the program has written it.
    #[error(
        "{path} has version {version} and this program reads version {VERSION}; move it away to begin anew, \
         or name another file in speculation.patterns_file"
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
    /// The store that several servers share cannot be read or written.
    #[error("{0}")]
    Shared(#[from] StoreError),
    /// It has something else under the patterns' key.
    #[error(
        "the shared store: {key} holds no patterns ({problem}); delete the key, and the servers fill it again"
    )]
    SharedForeign {
        /// The key.
        key: String,
        /// The fault.
        problem: String,
    },
}

/// The patterns in a store.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Stored {
    /// The patterns.
    pub book: Book,
    /// The store has lost the patterns that were seen there; these, if any, are others.
    pub begins_anew: bool,
}

/// Keeps patterns while no server runs. Several servers may use one. Its methods may block.
pub trait PatternStore: Send {
    /// Loads the patterns if they have changed since they were last loaded or changed here.
    ///
    /// # Errors
    /// [`PatternStoreError`] if it cannot be read.
    fn load(&mut self) -> Result<Option<Stored>, PatternStoreError>;

    /// Changes the stored patterns; if others do meanwhile, `change` is called again. Returns what is stored then.
    ///
    /// # Errors
    /// [`PatternStoreError`] if it cannot be read or written. Then the stored ones stay, unless
    /// [`was_updated`](Self::was_updated) says otherwise later.
    fn update(&mut self, change: &mut dyn FnMut(Stored) -> Book)
    -> Result<Book, PatternStoreError>;

    /// Whether the last update, which failed, was made all the same: its answer was lost.
    ///
    /// # Errors
    /// [`PatternStoreError`] if it cannot be read.
    fn was_updated(&mut self) -> Result<bool, PatternStoreError> {
        Ok(false)
    }
}

/// A file of this machine. Only its owner may read it.
#[derive(Debug)]
pub struct PatternFile {
    path: PathBuf,
    /// The file as it was last seen here; `None` if there was none.
    seen: Option<Stamp>,
}

/// Tells one content of a file from another.
type Stamp = (SystemTime, u64);

impl PatternFile {
    /// The file at `path`, which need not be there yet.
    pub fn at(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            seen: None,
        }
    }

    fn stamp(&self) -> io::Result<Option<Stamp>> {
        match fs::metadata(&self.path) {
            Ok(found) => Ok(Some((found.modified()?, found.len()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn replace(&mut self, book: &Book) -> io::Result<()> {
        let text = book.compact()?;
        let unfinished = self.path.with_extension("unfinished");
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(true);
        let mut file = options.mode(0o600).open(&unfinished)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&unfinished, &self.path)?;
        self.seen = self.stamp()?;
        Ok(())
    }
}

impl PatternStore for PatternFile {
    /// A file that is gone holds no patterns: whoever removed it wanted them forgotten.
    fn load(&mut self) -> Result<Option<Stored>, PatternStoreError> {
        let path = &self.path;
        let stamp = self.stamp().map_err(in_file(path))?;
        if stamp == self.seen {
            return Ok(None);
        }
        let book = match stamp {
            None => Book::default(),
            Some(_) => read(path)?,
        };
        self.seen = stamp;
        Ok(Some(Stored {
            book,
            begins_anew: false,
        }))
    }

    fn update(
        &mut self,
        change: &mut dyn FnMut(Stored) -> Book,
    ) -> Result<Book, PatternStoreError> {
        let path = self.path.clone();
        let _lock = lock(&path).map_err(in_file(&path))?;
        self.seen = None;
        let book = change(self.load()?.unwrap_or_default());
        self.replace(&book).map_err(in_file(&path))?;
        Ok(book)
    }
}

impl Book {
    /// Adds what was learned between `before` and `now`. What `before` has and `self` has no longer stays forgotten.
    pub fn add_learned(&mut self, before: &Self, now: &Self) {
        let none = Patterns::default();
        for (agent, now) in &now.0 {
            let before = before.0.get(agent);
            match self.0.get_mut(agent) {
                Some(stored) => stored.add_learned(before.unwrap_or(&none), now),
                None if before.is_none() => {
                    self.0.insert(agent.clone(), now.clone());
                }
                None => {}
            }
        }
    }

    /// Adds what `known` knows better, to a store that begins anew.
    pub fn recover(&mut self, known: &Self) {
        for (agent, known) in &known.0 {
            self.0.entry(agent.clone()).or_default().recover(known);
        }
        self.add_learned(known, known);
    }

    /// Reads the text of a file or of a shared store.
    pub(super) fn parse(text: &str) -> Result<Self, Fault> {
        let foreign = |error: serde_json::Error| Fault::Foreign(error.to_string());
        let marked: Marked = serde_json::from_str(text).map_err(foreign)?;
        if marked.undertone_patterns != VERSION {
            return Err(Fault::Version(marked.undertone_patterns));
        }
        let form: Form<Self> = serde_json::from_str(text).map_err(foreign)?;
        let mut book = form.agents;
        book.0.values_mut().for_each(Patterns::count);
        Ok(book)
    }

    /// The text of a file that holds it, in lines.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub fn text(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(&self.form())
    }

    /// The same in one line.
    pub(super) fn compact(&self) -> serde_json::Result<String> {
        serde_json::to_string(&self.form())
    }

    fn form(&self) -> Form<&Self> {
        Form {
            undertone_patterns: VERSION,
            agents: self,
        }
    }
}

fn read(path: &Path) -> Result<Book, PatternStoreError> {
    let mut text = String::new();
    let file = File::open(path).map_err(in_file(path))?;
    let foreign = |problem: String| PatternStoreError::Foreign {
        path: path.into(),
        problem,
    };
    let read = file.take(MOST_BYTES + 1).read_to_string(&mut text);
    match read {
        Ok(read) if read as u64 > MOST_BYTES => {
            return Err(foreign(format!("it is longer than {MOST_BYTES} bytes")));
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            return Err(foreign("it is no text".into()));
        }
        Err(error) => return Err(in_file(path)(error)),
    }
    Book::parse(&text).map_err(|fault| match fault {
        Fault::Foreign(problem) => foreign(problem),
        Fault::Version(version) => PatternStoreError::Version {
            path: path.into(),
            version,
        },
    })
}

/// Waits until no other process writes the file.
fn lock(path: &Path) -> io::Result<File> {
    let file = open(&path.with_extension("lock"))?;
    file.lock()?;
    Ok(file)
}

/// Opens a file to be locked. The folder is made.
fn open(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(folder)?;
    }
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(false);
    options.mode(0o600).open(path)
}

fn in_file(path: &Path) -> impl Fn(io::Error) -> PatternStoreError {
    let path = path.to_owned();
    move |source| PatternStoreError::File {
        path: path.clone(),
        source,
    }
}
