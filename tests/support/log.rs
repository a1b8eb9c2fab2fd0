//! The log of a test.

use std::sync::{Arc, LazyLock, Mutex};
use tracing::{Dispatch, Level, subscriber};

/// While there is only one other, a line whose place in the code is first reached by a thread that collects nothing
/// would be collected by nobody: its interest is asked of the subscriber of the thread alone, and kept.
static SECOND: LazyLock<Dispatch> =
    LazyLock::new(|| Dispatch::new(subscriber::NoSubscriber::new()));

/// Collects the log.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("the log").extend_from_slice(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Collects the lines of this thread from now on, as long as the guard is kept.
    pub(crate) fn begin(level: Level) -> (Self, subscriber::DefaultGuard) {
        LazyLock::force(&SECOND);
        let log = Self::default();
        let writer = log.clone();
        let lines = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_writer(move || writer.clone())
            .finish();
        (log, subscriber::set_default(lines))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("the log").clone()).expect("text")
    }
}
