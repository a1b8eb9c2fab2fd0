//! ONNX Runtime: loads the library once, from a given file, and creates all sessions with the same
//! options.
//!
//! Sessions run on the thread that calls them: undertone gives each model threads of its own
//! ([`crate::worker`]), and a pool inside the runtime would only fight the others for the cores. The models that users
//! wait for have one more thread each.

use ort::environment::Environment;
use ort::logging::LogLevel;
use ort::session::{Session, builder::SessionBuilder};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The reason ONNX Runtime or a model could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum OnnxError {
    /// The library is missing or is not a suitable ONNX Runtime.
    #[error("cannot load ONNX Runtime from {}: {reason} (`make models` fetches it)", path.display())]
    Library {
        /// The library's file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// [`session`] was called before [`init`].
    #[error("ONNX Runtime is not loaded yet: cannot load {}", model.display())]
    NotLoaded {
        /// The model that was asked for.
        model: PathBuf,
    },
    /// The model is missing or cannot be read.
    #[error("cannot load the model {}: {reason} (`make models` fetches it)", path.display())]
    Model {
        /// The model's file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
}

/// The environment of this process; `ort` allows only one.
static ENVIRONMENT: Mutex<Option<Environment>> = Mutex::new(None);

/// Loads ONNX Runtime from the file `library`. After a success, later calls do nothing, even with
/// another path; a failed call may be repeated.
///
/// # Errors
/// [`OnnxError::Library`] if the file is missing, or is not an ONNX Runtime of at least the version
/// that `ort` was built for.
pub fn init(library: &Path) -> Result<(), OnnxError> {
    let mut environment = ENVIRONMENT.lock().unwrap_or_else(PoisonError::into_inner);
    if environment.is_none() {
        *environment = Some(load(library)?);
    }
    Ok(())
}

/// Loads the model in the file `model`. The session computes only on the calling thread.
///
/// # Errors
/// [`OnnxError::NotLoaded`] before [`init`]; [`OnnxError::Model`] if the file is missing or is not
/// a model that this runtime supports.
pub fn session(model: &Path) -> Result<Session, OnnxError> {
    session_of(model, 1)
}

/// Loads a model that users wait for, as [`session`] does. Where there is a second core, the session computes on a
/// thread of its own beside the calling one: about a third less time for a little more work, as
/// `cargo bench --bench voice` shows with and without `taskset -c 0`.
///
/// # Errors
/// Those of [`session`].
pub fn session_on_two_cores(model: &Path) -> Result<Session, OnnxError> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    session_of(model, cores.min(2))
}

fn session_of(model: &Path, threads: usize) -> Result<Session, OnnxError> {
    let environment = ENVIRONMENT
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
        .ok_or_else(|| OnnxError::NotLoaded {
            model: model.into(),
        })?;
    builder(&environment, threads)
        .and_then(|mut builder| builder.commit_from_file(model))
        .map_err(|error| OnnxError::Model {
            path: model.into(),
            reason: error.to_string(),
        })
}

fn load(library: &Path) -> Result<Environment, OnnxError> {
    let failed = |reason: String| OnnxError::Library {
        path: library.into(),
        reason,
    };
    // `ort` resolves a relative path against the executable's folder, but the user means the working directory.
    let absolute = library
        .canonicalize()
        .map_err(|error| failed(error.to_string()))?;
    ort::init_from(absolute)
        .map_err(|error| failed(error.to_string()))?
        .with_name("undertone")
        .with_telemetry(false)
        .build()
        .map_err(|error| failed(error.to_string()))
}

fn builder(environment: &Environment, threads: usize) -> ort::Result<SessionBuilder> {
    Ok(Session::builder(environment)?
        .with_intra_threads(threads)?
        .with_inter_threads(1)?
        // Spinning would take a core from another model's thread.
        .with_intra_op_spinning(false)?
        // Memory patterns are cached per input shape, and speech and text rarely repeat a length.
        .with_memory_pattern(false)?
        // At lower levels the runtime warns about unused initialisers in third-party exports.
        .with_log_level(LogLevel::Error)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_an_error_that_says_what_to_do() {
        let message = load(Path::new("/nowhere/libonnxruntime.so"))
            .unwrap_err()
            .to_string();
        assert!(message.contains("/nowhere/libonnxruntime.so"), "{message}");
        assert!(message.contains("make models"), "{message}");
    }

    #[test]
    fn a_file_that_is_not_a_library_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(matches!(load(file.path()), Err(OnnxError::Library { .. })));
    }

    #[test]
    fn init_may_be_repeated_and_a_missing_model_is_named() {
        let weights = crate::audio::testing::weights();
        let library = weights.join("onnxruntime/libonnxruntime.so");
        init(&library).unwrap();
        init(&library).unwrap();
        assert!(session(&weights.join("silero/silero_vad.onnx")).is_ok());
        let message = session(Path::new("/nowhere/model.onnx"))
            .unwrap_err()
            .to_string();
        assert!(message.contains("/nowhere/model.onnx"), "{message}");
    }
}
