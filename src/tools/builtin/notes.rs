//! `read_notes` and `add_note`: notes in a JSON file.

use super::{blocking, declare, text};
use crate::tools::{CallContext, Declaration, Effect, Equivalence, Tool, ToolError};
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// More can be neither read out nor remembered.
const MOST_NOTES: usize = 1_000;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Note {
    text: String,
    time: Timestamp,
    /// The idempotency key of the call that added it, so that the same call does not add it twice.
    key: String,
}

/// Serialises changes, since each reads the file, adds to it and replaces it. One lock serves all files.
static CHANGING: Mutex<()> = Mutex::new(());

pub(super) fn read_declaration() -> Declaration {
    let parameters = json!({"type": "object", "properties": {}, "additionalProperties": false});
    let mut declaration = declare(
        "read_notes",
        "Reads the user's notes.",
        Effect::Read,
        parameters,
    );
    declaration.reads = vec!["notes".into()];
    declaration
}

pub(super) fn add_declaration() -> Declaration {
    let parameters = json!({
        "type": "object",
        "properties": {
            "text": {"type": "string", "minLength": 1, "maxLength": 500, "description": "What to note, in the user's words."}
        },
        "required": ["text"],
        "additionalProperties": false
    });
    let mut declaration = declare(
        "add_note",
        "Adds a note to the user's notes.",
        Effect::Keyed,
        parameters,
    );
    declaration.writes = vec!["notes".into()];
    let equivalent = vec![Equivalence::Case, Equivalence::Punctuation];
    declaration.equivalence.insert("text".into(), equivalent);
    declaration
}

fn read(file: &Path) -> Result<Vec<Note>, ToolError> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => {
            return Err(ToolError::Broken(format!(
                "the notes cannot be read: {error}"
            )));
        }
    };
    serde_json::from_str(&text)
        .map_err(|error| ToolError::Broken(format!("the notes cannot be read: {error}")))
}

fn add(file: &Path, note: Note) -> Result<Value, ToolError> {
    let _one_at_a_time = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut notes = read(file)?;
    if !notes.iter().any(|known| known.key == note.key) {
        if notes.len() >= MOST_NOTES {
            return Err(ToolError::Failed(format!(
                "there are {MOST_NOTES} notes already"
            )));
        }
        notes.push(note.clone());
        replace(file, &notes)
            .map_err(|error| ToolError::Broken(format!("the note cannot be written: {error}")))?;
    }
    Ok(json!({"added": note.text, "count": notes.len()}))
}

/// A new file takes the old one's place at once: nobody sees half of it, and a crash loses nothing.
fn replace(file: &Path, notes: &[Note]) -> io::Result<()> {
    let folder = file
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let new = file.with_extension("new");
    let mut out = std::fs::File::create(&new)?;
    out.write_all(&serde_json::to_vec_pretty(notes)?)?;
    out.sync_all()?;
    std::fs::rename(&new, file)?;
    std::fs::File::open(folder)?.sync_all()
}

/// `read_notes{}`: `{notes: [text]}`, the oldest first.
pub(super) struct ReadNotes {
    declaration: Declaration,
    file: PathBuf,
}

impl ReadNotes {
    pub(super) fn new(declaration: Declaration, file: PathBuf) -> Self {
        Self { declaration, file }
    }
}

impl Tool for ReadNotes {
    fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    fn call(
        &self,
        _: Map<String, Value>,
        _: &CallContext,
    ) -> BoxFuture<'static, Result<Value, ToolError>> {
        let file = self.file.clone();
        Box::pin(blocking(move || {
            let notes: Vec<String> = read(&file)?.into_iter().map(|note| note.text).collect();
            Ok(json!({ "notes": notes }))
        }))
    }
}

/// `add_note{text}`: `{added, count}`. Once per idempotency key.
pub(super) struct AddNote {
    declaration: Declaration,
    file: PathBuf,
}

impl AddNote {
    pub(super) fn new(declaration: Declaration, file: PathBuf) -> Self {
        Self { declaration, file }
    }
}

impl Tool for AddNote {
    fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    fn call(
        &self,
        arguments: Map<String, Value>,
        context: &CallContext,
    ) -> BoxFuture<'static, Result<Value, ToolError>> {
        let (file, time) = (self.file.clone(), context.session.clock().now());
        let key = context.idempotency_key.clone();
        Box::pin(blocking(move || {
            let text = text(&arguments, "text").unwrap_or_default().to_owned();
            if text.is_empty() {
                return Err(ToolError::Arguments(
                    "text: there is nothing to note".into(),
                ));
            }
            add(&file, Note { text, time, key })
        }))
    }
}
