//! The log: lines on stderr, as text or JSON, with every known secret masked.
//!
//! User content is private: transcripts, answers and tool arguments are logged only at DEBUG and
//! TRACE. Secrets are never logged: [`init`] receives all of them, and [`MASK`] replaces each in
//! every line, whichever crate wrote it.
//!
//! A separate thread writes the lines, so logging never blocks on a full disk or an unread pipe.
//! Lines that cannot be written are dropped and counted ([`lost`]), and the log says so once
//! writing works again.

mod lines;

pub use lines::{LineLog, append, retain};

use secrecy::{ExposeSecret, SecretString};
use std::backtrace::{Backtrace, BacktraceStatus};
use std::borrow::Cow;
use std::io::{self, Write};
use std::panic::PanicHookInfo;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::reload;

/// Replaces secrets in the log.
pub const MASK: &str = "<secret>";

/// The reason the log could not be started or changed.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The level or directives cannot be read.
    #[error("log.level: {0}")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    /// A log was started already, or, when changing it, none was.
    #[error("cannot start the log: {0}")]
    Started(String),
}

/// The most lines queued for writing.
const QUEUE: usize = 4_096;

/// The longest line, bytes; the rest is cut off.
const LONGEST_LINE: usize = 64 * 1024;

/// How long writing the last lines may take when the program ends.
const LAST_LINES: Duration = Duration::from_secs(1);

/// The log of this process.
static LOG: OnceLock<Log> = OnceLock::new();

struct Log {
    masks: Masks,
    queue: Queue,
    set_filter: Box<dyn Fn(EnvFilter) -> Result<(), reload::Error> + Send + Sync>,
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts the log of this process, including panics. `directives` is a level, or directives of
/// [`EnvFilter`].
///
/// # Errors
/// [`TelemetryError`] if the filter cannot be read or a log was started before.
pub fn init(directives: &str, format: LogFormat, secrets: Secrets) -> Result<(), TelemetryError> {
    let (masks, queue) = (Masks::new(secrets), Queue::start(io::stderr()));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter(directives)?)
        .with_writer(Masked(masks.clone(), queue.clone()))
        // They go to stderr, which may be what fails.
        .log_internal_errors(false);
    let (started, set_filter): (_, Box<dyn Fn(_) -> _ + Send + Sync>) = match format {
        LogFormat::Text => {
            let builder = builder.with_ansi(false).with_filter_reloading();
            let handle = builder.reload_handle();
            (
                builder.try_init(),
                Box::new(move |filter| handle.reload(filter)),
            )
        }
        LogFormat::Json => {
            let builder = builder.json().flatten_event(true).with_filter_reloading();
            let handle = builder.reload_handle();
            (
                builder.try_init(),
                Box::new(move |filter| handle.reload(filter)),
            )
        }
    };
    started.map_err(|error| TelemetryError::Started(error.to_string()))?;
    let log = Log {
        masks,
        queue,
        set_filter,
    };
    if LOG.set(log).is_err() {
        return Err(TelemetryError::Started("it was started already".into()));
    }
    std::panic::set_hook(Box::new(log_panic));
    Ok(())
}

/// Changes the filter, and masks these secrets as well as the earlier ones. The format stays.
///
/// # Errors
/// [`TelemetryError`] if the filter cannot be read or no log was started.
pub fn change(directives: &str, secrets: Secrets) -> Result<(), TelemetryError> {
    let filter = filter(directives)?;
    let Some(log) = LOG.get() else {
        return Err(TelemetryError::Started("it was not started".into()));
    };
    log.masks.add(secrets);
    (log.set_filter)(filter).map_err(|error| TelemetryError::Started(error.to_string()))
}

/// The number of lines dropped since the log was started.
pub fn lost() -> u64 {
    LOG.get().map_or(0, |log| log.queue.progress.lost())
}

/// Waits until all lines are written, a second at most.
pub fn finish() {
    if let Some(log) = LOG.get() {
        log.queue.finish();
    }
}

/// Logs a panic like any other line. The default hook would write to stderr directly, and might
/// block on it.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let message = panic.payload_as_str().unwrap_or("no message");
    let at = panic.location().map(ToString::to_string);
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("unnamed");
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        tracing::error!(thread = name, at, %backtrace, "panic: {message}");
    } else {
        tracing::error!(thread = name, at, "panic: {message}");
    }
    // A panic on the main thread ends the program.
    if name == "main" {
        finish();
    }
}

/// The crates that log less unless the filter names them, with their directives: ONNX Runtime's logs every allocation at
/// INFO, the MCP SDK what servers say of themselves, and warns when a connection is closed. Its errors of connections
/// that fail, and PulseAudio's of those that end, are reported by us.
const QUIET: [(&str, &str); 3] = [
    ("ort", "ort=warn"),
    (
        "rmcp",
        "rmcp=error,rmcp::service=off,rmcp::transport::worker=off",
    ),
    ("pulseaudio", "pulseaudio=off"),
];

/// The operator's filter, with the levels of [`QUIET`] below it.
fn filter(directives: &str) -> Result<EnvFilter, TelemetryError> {
    let mut all = directives.to_owned();
    for (quiet, less) in QUIET {
        if !directives
            .split(',')
            .any(|directive| is_of(quiet, directive))
        {
            all = format!("{all},{less}");
        }
    }
    Ok(EnvFilter::try_new(all)?)
}

/// Whether a directive, such as `ort::session[span]=debug`, targets a crate.
fn is_of(name: &str, directive: &str) -> bool {
    let target = directive.trim().split(['=', '[']).next();
    let module = target.and_then(|target| target.strip_prefix(name));
    module.is_some_and(|module| module.is_empty() || module.starts_with("::"))
}

/// Secrets that must never be logged.
#[derive(Debug, Clone, Default)]
pub struct Secrets(Arc<[SecretString]>);

impl Secrets {
    /// The longest first: one may contain another.
    fn sorted(mut secrets: Vec<SecretString>) -> Self {
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.expose_secret().len()));
        Self(secrets.into())
    }

    /// Replaces each secret in `text` with [`MASK`], for logs, errors and events.
    pub fn mask<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.0.iter().fold(Cow::Borrowed(text), |text, secret| {
            if text.contains(secret.expose_secret()) {
                Cow::Owned(text.replace(secret.expose_secret(), MASK))
            } else {
                text
            }
        })
    }
}

impl FromIterator<SecretString> for Secrets {
    /// Empty secrets are left out, since they would match everywhere. Each is also masked as JSON
    /// writes it.
    fn from_iter<I: IntoIterator<Item = SecretString>>(secrets: I) -> Self {
        let mut all = Vec::new();
        for secret in secrets {
            let text = secret.expose_secret();
            let escaped = Some(json_escaped(text)).filter(|escaped| escaped != text);
            all.extend(escaped.map(SecretString::from));
            if !text.is_empty() {
                all.push(secret);
            }
        }
        Self::sorted(all)
    }
}

/// A text as JSON writes it, without the quotes.
fn json_escaped(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// The secrets known so far.
#[derive(Debug, Clone)]
struct Masks(Arc<RwLock<Secrets>>);

impl Masks {
    fn new(secrets: Secrets) -> Self {
        Self(Arc::new(RwLock::new(secrets)))
    }

    fn get(&self) -> Secrets {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Adds secrets. Earlier ones stay, since they may still appear.
    fn add(&self, more: Secrets) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let is_new = |secret: &&SecretString| {
            let known = known.0.iter().map(ExposeSecret::expose_secret);
            !known
                .into_iter()
                .any(|other| other == secret.expose_secret())
        };
        let new: Vec<_> = more.0.iter().filter(is_new).cloned().collect();
        if !new.is_empty() {
            *known = Secrets::sorted(known.0.iter().cloned().chain(new).collect());
        }
    }
}

/// Masks lines and queues them for the log's thread. The formatter writes each event in one piece,
/// so no secret is split.
#[derive(Clone)]
struct Masked(Masks, Queue);

impl Write for Masked {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        self.1.put(&self.0.get().mask(&text));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Masked {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// The queue to the log's thread.
#[derive(Clone)]
struct Queue {
    lines: NonBlocking,
    progress: Arc<Progress>,
}

/// The progress of the log's thread.
struct Progress {
    /// Lines dropped because the queue was full.
    refused: ErrorCounter,
    counts: Mutex<Counts>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Counts {
    put: u64,
    written: u64,
    failed: u64,
}

impl Queue {
    fn start(out: impl Write + Send + Sync + 'static) -> Self {
        let progress = Arc::new(OnceLock::new());
        let writer = Writer {
            out: WholeLines::new(out),
            progress: progress.clone(),
            told: 0,
        };
        let builder = NonBlockingBuilder::default().buffered_lines_limit(QUEUE);
        let (lines, guard) = builder.lossy(true).thread_name("log").finish(writer);
        // If dropped while the queue is full, the guard prints on stdout; `finish` waits instead.
        std::mem::forget(guard);
        let progress = progress.get_or_init(|| {
            Arc::new(Progress {
                refused: lines.error_counter(),
                counts: Mutex::default(),
                changed: Condvar::new(),
            })
        });
        let progress = progress.clone();
        Self { lines, progress }
    }

    fn put(&self, line: &str) {
        self.progress.counts().put += 1;
        let line = match line.floor_char_boundary(LONGEST_LINE) {
            end if end < line.len() => Cow::Owned(format!("{} (cut)\n", &line[..end])),
            _ => Cow::Borrowed(line),
        };
        // Never fails: dropped lines are counted.
        let _ = self.lines.clone().write_all(line.as_bytes());
    }

    fn finish(&self) {
        let progress = &self.progress;
        let waits =
            |counts: &mut Counts| counts.written + counts.failed + progress.refused() < counts.put;
        let waiting = progress
            .changed
            .wait_timeout_while(progress.counts(), LAST_LINES, waits);
        drop(waiting);
    }
}

impl Progress {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refused(&self) -> u64 {
        self.refused.dropped_lines() as u64
    }

    fn lost(&self) -> u64 {
        self.refused() + self.counts().failed
    }
}

/// The writer on the log's thread.
struct Writer<W> {
    out: WholeLines<W>,
    progress: Arc<OnceLock<Arc<Progress>>>,
    /// Dropped lines that the log has reported.
    told: u64,
}

impl<W: Write> Write for Writer<W> {
    /// Writes a whole line. Never fails.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let written = self.out.append(line).is_ok();
        let Some(progress) = self.progress.get() else {
            return Ok(line.len());
        };
        let mut counts = progress.counts();
        match written {
            true => counts.written += 1,
            false => counts.failed += 1,
        }
        let lost = counts.failed + progress.refused();
        drop(counts);
        progress.changed.notify_all();
        if written && lost > self.told {
            let lines = lost - std::mem::replace(&mut self.told, lost);
            tracing::warn!(lines, "dropped log lines that could not be written");
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Appends lines to an output that may fail: an incomplete line is terminated before the next one.
#[derive(Debug)]
pub(crate) struct WholeLines<W> {
    out: W,
    torn: bool,
}

impl<W: Write> WholeLines<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out, torn: false }
    }

    /// Writes `line`, which ends with a line break.
    pub(crate) fn append(&mut self, line: &[u8]) -> io::Result<()> {
        if self.torn {
            self.out.write_all(b"\n")?;
            self.torn = false;
        }
        let mut rest = line;
        while !rest.is_empty() {
            match self.out.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            self.torn = !rest.is_empty();
        }
        self.out.flush()
    }
}

/// Throttles a repeated warning to one every ten seconds.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    last: Option<Instant>,
    held_back: u64,
}

impl Throttle {
    const EVERY: Duration = Duration::from_secs(10);

    /// Calls `warn` with the number of warnings held back since the last one, unless it is too
    /// soon.
    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: the log is read in real time"
    )]
    pub(crate) fn warn(&mut self, warn: impl FnOnce(u64)) {
        let now = Instant::now();
        if self.last.is_some_and(|last| now - last < Self::EVERY) {
            self.held_back += 1;
            return;
        }
        self.last = Some(now);
        warn(std::mem::take(&mut self.held_back));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_added_only_once() {
        let secrets = |texts: &[&str]| -> Secrets {
            let texts = texts.iter().map(|text| SecretString::from(*text));
            texts.collect()
        };
        let masks = Masks::new(secrets(&["first"]));
        for _ in 0..3 {
            masks.add(secrets(&["first", "second"]));
        }
        assert_eq!(masks.get().0.len(), 2);
        assert!(!masks.get().mask("first second").contains("first"));
    }

    #[test]
    fn a_secret_within_another_leaves_nothing_of_the_longer_one() {
        let texts = ["short", "a short one"].map(SecretString::from);
        let secrets: Secrets = texts.into_iter().collect();
        assert_eq!(
            secrets.mask("a short one, short"),
            format!("{MASK}, {MASK}")
        );
    }

    #[test]
    fn a_secret_is_masked_as_json_writes_it() {
        let secret = "pass\"word\\";
        let secrets: Secrets = [SecretString::from(secret)].into_iter().collect();
        let line = serde_json::json!({ "message": secret }).to_string();
        assert_eq!(secrets.mask(&line), format!("{{\"message\":\"{MASK}\"}}"));
    }

    #[test]
    fn noisy_crates_are_quiet_unless_a_directive_names_them() {
        let quiet = |directives| filter(directives).unwrap().to_string().contains("ort=warn");
        assert!(quiet("info"));
        assert!(quiet("info,undertone::transport=debug"));
        assert!(!quiet("info,ort=debug"));
        assert!(!quiet("info,ort::logging=trace"));
        let both = filter("info,ort=debug").unwrap().to_string();
        assert!(both.contains("rmcp=error"), "{both}");
        assert!(both.contains("rmcp::transport::worker=off"), "{both}");
        let named = filter("info,rmcp=debug").unwrap().to_string();
        assert!(!named.contains("rmcp::"), "{named}");
    }

    /// A disk with limited space, bytes.
    struct Disk {
        free: usize,
        written: Vec<u8>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let length = bytes.len().min(self.free);
            if length == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.free -= length;
            self.written.extend(&bytes[..length]);
            Ok(length)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_incomplete_line_is_terminated_before_the_next() {
        let mut lines = WholeLines::new(Disk {
            free: 9,
            written: Vec::new(),
        });
        lines.append(b"first\n").unwrap();
        assert!(lines.append(b"second\n").is_err());
        assert!(lines.append(b"third\n").is_err());
        lines.out.free = 100;
        lines.append(b"fourth\n").unwrap();
        lines.append(b"fifth\n").unwrap();
        let written = String::from_utf8(lines.out.written).unwrap();
        assert_eq!(written, "first\nsec\nfourth\nfifth\n");
    }

    /// Blocks each write until told to go on.
    struct Stuck(Mutex<std::sync::mpsc::Receiver<()>>);

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // Once the sender is dropped, every write succeeds.
            drop(self.0.get_mut().map(|told| told.recv()));
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn logging_never_blocks_and_dropped_lines_are_counted() {
        let (go, may_go) = std::sync::mpsc::sync_channel(0);
        let queue = Queue::start(Stuck(Mutex::new(may_go)));
        let lines = QUEUE as u64 + 100;
        for _ in 0..lines {
            queue.put("a line\n");
        }
        let lost = queue.progress.lost();
        // The writer may have taken one from the queue.
        assert!((99..=100).contains(&lost), "{lost}");
        drop(go);
        queue.finish();
        let counts = queue.progress.counts();
        assert_eq!(counts.written + lost, lines);
    }

    #[test]
    fn secrets_are_masked_and_other_text_is_unchanged() {
        let secrets: Secrets = ["canary-1", "", "canary-2"]
            .map(Into::into)
            .into_iter()
            .collect();
        assert_eq!(
            secrets.mask("a canary-1 and canary-2, canary-1"),
            "a <secret> and <secret>, <secret>"
        );
        assert!(matches!(secrets.mask("nothing here"), Cow::Borrowed(_)));
        assert!(!format!("{secrets:?}").contains("canary"));
    }
}
