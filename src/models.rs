//! The model files: the list, their verification, and the path of each part.
//!
//! `models/pull.py` downloads and converts the files and then lists every usable one with its size
//! and sha256 in `files.toml` beside them. Files that are not listed or differ from the list are
//! not loaded: [`Models::verify`] runs before any engine starts.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The list of files, beside them.
pub(crate) const LIST: &str = "files.toml";

/// Threads that hash; the target machines have two cores.
const THREADS: usize = 2;

/// Bytes read at a time.
const BLOCK: usize = 1 << 20;

/// The files that the built-in engines load, relative to the folder.
const NEEDED: [&str; 13] = [
    ONNX_RUNTIME,
    SILERO,
    SMART_TURN,
    "whisper-tiny.en/config.json",
    "whisper-tiny.en/tokenizer.json",
    "whisper-tiny.en/encoder.int8.onnx",
    "whisper-tiny.en/decoder.int8.onnx",
    WHISPER_GGML,
    "minilm/model.onnx",
    "minilm/tokenizer.json",
    "piper-joe/voice.json",
    "piper-joe/encoder.onnx",
    "piper-joe/decoder.onnx",
];

/// The files of the recogniser of many languages.
const BASE: [&str; 4] = [
    "whisper-base/config.json",
    "whisper-base/tokenizer.json",
    "whisper-base/encoder.int8.onnx",
    "whisper-base/decoder.int8.onnx",
];

/// The folder of Whisper base, and its name for `undertone models pull`.
const WHISPER_BASE: &str = "whisper-base";

const ONNX_RUNTIME: &str = "onnxruntime/libonnxruntime.so";
const SILERO: &str = "silero/silero_vad.onnx";
const SMART_TURN: &str = "smart-turn/smart-turn-v3.2.onnx";
const WHISPER_GGML: &str = "whisper-tiny.en/ggml-tiny.en.bin";

/// The reason the models cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ModelsError {
    /// There is no list of files: the models were never downloaded, or the folder is wrong.
    #[error("no models in {}: there is no {LIST}; run `make models`, or point models.dir at them", dir.display())]
    Missing {
        /// The folder.
        dir: PathBuf,
    },
    /// The list of files cannot be read.
    #[error("cannot read {}: {reason}; run `make models`", path.display())]
    List {
        /// The list's path.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The list lacks a file that an engine needs.
    #[error("{} does not list {path}; run `make models`", dir.join(LIST).display())]
    Unlisted {
        /// The folder.
        dir: PathBuf,
        /// The file, relative to it.
        path: String,
    },
    /// Files that are downloaded only on demand were not.
    #[error("{set} is not among the models in {}; run `undertone models pull {set}`", dir.display())]
    NotPulled {
        /// The folder.
        dir: PathBuf,
        /// Their name for the command.
        set: &'static str,
    },
    /// Files are missing or differ from the list.
    #[error("{}; run `make models`", describe(.0))]
    Damaged(Vec<Checked>),
}

/// One usable file, as listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelFile {
    /// Relative to the folder, with forward slashes.
    pub path: String,
    /// The file's sha256, lower-case hexadecimal.
    pub sha256: String,
    /// The file's size, bytes.
    pub bytes: u64,
    /// Whether it is as published or was made on this machine.
    pub origin: ModelOrigin,
}

/// Where a file comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ModelOrigin {
    /// As published; its sha256 is the one in `models/manifest.toml`.
    Package,
    /// Made on this machine from a published one.
    Derived,
}

/// A listed file and the result of checking it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Checked {
    /// The file as listed.
    #[serde(flatten)]
    pub file: ModelFile,
    /// The result.
    pub found: Found,
}

/// The state of a model file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum Found {
    /// The file matches the list.
    Right,
    /// The file is missing or cannot be read.
    Unreadable {
        /// The system's error.
        reason: String,
    },
    /// The size differs.
    Size {
        /// The size that was found, bytes.
        found_bytes: u64,
    },
    /// The content differs.
    Content {
        /// The sha256 that was found, lower-case hexadecimal.
        found_sha256: String,
    },
}

/// A folder of models and its list of files.
#[derive(Debug, Clone)]
pub struct Models {
    dir: PathBuf,
    files: Vec<ModelFile>,
}

#[derive(Deserialize)]
struct List {
    #[serde(default)]
    file: Vec<ModelFile>,
}

impl Models {
    /// Reads the list of files in `dir`. Nothing is checked yet.
    ///
    /// # Errors
    /// [`ModelsError::Missing`] without a list, [`ModelsError::List`] if it cannot be read or names
    /// a file outside `dir`, [`ModelsError::Unlisted`] if it lacks a file that the engines need.
    pub fn open(dir: &Path) -> Result<Self, ModelsError> {
        let path = dir.join(LIST);
        let text = std::fs::read_to_string(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => ModelsError::Missing { dir: dir.into() },
            _ => unreadable(&path, &error.to_string()),
        })?;
        let list: List =
            toml::from_str(&text).map_err(|error| unreadable(&path, error.message()))?;
        if let Some(outside) = list.file.iter().find(|file| !stays_inside(&file.path)) {
            let reason = format!("{} is outside the folder", outside.path);
            return Err(unreadable(&path, &reason));
        }
        let models = Self {
            dir: dir.into(),
            files: list.file,
        };
        NEEDED
            .iter()
            .try_for_each(|needed| models.path(needed).map(drop))?;
        Ok(models)
    }

    /// The models' folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Every listed file.
    pub fn files(&self) -> &[ModelFile] {
        &self.files
    }

    /// Checks the size and sha256 of every listed file.
    ///
    /// # Errors
    /// [`ModelsError::Damaged`] with every file that differs.
    pub fn verify(&self) -> Result<(), ModelsError> {
        let mut damaged = self.check();
        damaged.retain(|checked| checked.found != Found::Right);
        if damaged.is_empty() {
            Ok(())
        } else {
            Err(ModelsError::Damaged(damaged))
        }
    }

    /// Checks each listed file, in the list's order. Reads all of them, on two threads.
    pub fn check(&self) -> Vec<Checked> {
        let next = AtomicUsize::new(0);
        let work = || {
            let take = || self.files.get(next.fetch_add(1, Ordering::Relaxed));
            std::iter::from_fn(take)
                .map(|file| self.check_file(file))
                .collect::<Vec<_>>()
        };
        let mut checked = std::thread::scope(|scope| {
            let other: Vec<_> = (1..THREADS).map(|_| scope.spawn(work)).collect();
            let mut checked = work();
            for thread in other {
                match thread.join() {
                    Ok(theirs) => checked.extend(theirs),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            checked
        });
        checked.sort_by_key(|checked| self.files.iter().position(|file| *file == checked.file));
        checked
    }

    /// The path of a listed file.
    ///
    /// # Errors
    /// [`ModelsError::Unlisted`] if the list does not have it.
    pub fn path(&self, path: &str) -> Result<PathBuf, ModelsError> {
        if self.files.iter().any(|file| file.path == path) {
            return Ok(self.dir.join(path));
        }
        Err(ModelsError::Unlisted {
            dir: self.dir.clone(),
            path: path.into(),
        })
    }

    /// The ONNX Runtime library.
    pub fn onnx_runtime(&self) -> PathBuf {
        self.dir.join(ONNX_RUNTIME)
    }

    /// The voice activity model.
    pub fn silero(&self) -> PathBuf {
        self.dir.join(SILERO)
    }

    /// The end-of-turn model.
    pub fn smart_turn(&self) -> PathBuf {
        self.dir.join(SMART_TURN)
    }

    /// The folder of the speech recogniser for ONNX Runtime: encoder, decoder, tokenizer.
    pub fn whisper_onnx(&self) -> PathBuf {
        self.dir.join("whisper-tiny.en")
    }

    /// The folder of the recogniser of many languages, if it was downloaded.
    ///
    /// # Errors
    /// [`ModelsError::NotPulled`] otherwise.
    pub fn whisper_base(&self) -> Result<PathBuf, ModelsError> {
        let listed = |needed: &&str| self.files.iter().any(|file| file.path == **needed);
        match BASE.iter().all(listed) {
            true => Ok(self.dir.join(WHISPER_BASE)),
            false => Err(ModelsError::NotPulled {
                dir: self.dir.clone(),
                set: WHISPER_BASE,
            }),
        }
    }

    /// The speech recogniser for whisper.cpp.
    pub fn whisper_ggml(&self) -> PathBuf {
        self.dir.join(WHISPER_GGML)
    }

    /// The folder of the sentence embedding: model and tokenizer.
    pub fn minilm(&self) -> PathBuf {
        self.dir.join("minilm")
    }

    /// The folder of the voice: encoder, decoder, `voice.json`.
    pub fn voice(&self) -> PathBuf {
        self.dir.join("piper-joe")
    }

    fn check_file(&self, file: &ModelFile) -> Checked {
        let found =
            found(&self.dir.join(&file.path), file).unwrap_or_else(|error| Found::Unreadable {
                reason: error.to_string(),
            });
        Checked {
            file: file.clone(),
            found,
        }
    }
}

/// The default folder: `models/weights` in the working directory, or in the executable's
/// folder or one above it, so that `target/release/undertone` finds the checkout's.
pub fn default_dir() -> PathBuf {
    let here = PathBuf::from("models/weights");
    if here.join(LIST).is_file() {
        return here;
    }
    let executable = std::env::current_exe().and_then(std::fs::canonicalize);
    executable
        .iter()
        .flat_map(|path| path.ancestors().skip(1))
        .map(|folder| folder.join("models/weights"))
        .find(|dir| dir.join(LIST).is_file())
        .unwrap_or(here)
}

fn found(path: &Path, file: &ModelFile) -> io::Result<Found> {
    let found_bytes = path.metadata()?.len();
    if found_bytes != file.bytes {
        return Ok(Found::Size { found_bytes });
    }
    let found_sha256 = sha256(File::open(path)?)?;
    if found_sha256.eq_ignore_ascii_case(&file.sha256) {
        Ok(Found::Right)
    } else {
        Ok(Found::Content { found_sha256 })
    }
}

fn sha256(mut file: File) -> io::Result<String> {
    let mut digest = Sha256::new();
    let mut block = vec![0; BLOCK];
    loop {
        match file.read(&mut block)? {
            0 => break,
            read => digest.update(&block[..read]),
        }
    }
    Ok(digest
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

fn stays_inside(path: &str) -> bool {
    let plain = |part| matches!(part, Component::Normal(_));
    !path.is_empty() && Path::new(path).components().all(plain)
}

fn unreadable(path: &Path, reason: &str) -> ModelsError {
    ModelsError::List {
        path: path.into(),
        reason: reason.into(),
    }
}

fn describe(damaged: &[Checked]) -> String {
    let each: Vec<String> = damaged.iter().map(Checked::to_string).collect();
    format!("files are missing or do not match: {}", each.join("; "))
}

impl std::fmt::Display for Checked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ModelFile {
            path,
            sha256,
            bytes,
            ..
        } = &self.file;
        match &self.found {
            Found::Right => write!(f, "{path} matches"),
            Found::Unreadable { reason } => write!(f, "{path}: {reason}"),
            Found::Size { found_bytes } => {
                write!(f, "{path}: expected {bytes} bytes, found {found_bytes}")
            }
            Found::Content { found_sha256 } => {
                write!(f, "{path}: expected sha256 {sha256}, found {found_sha256}")
            }
        }
    }
}
