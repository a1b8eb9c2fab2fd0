//! The state of the journal, for metrics.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use std::sync::atomic::AtomicI64;

/// Counts lines that could not be written.
#[derive(Debug, Clone, Default)]
pub struct JournalFigures {
    /// Lines that could not be written since the start.
    pub(crate) failures: Counter,
    /// 1 while lines cannot be written.
    pub(crate) failing: Gauge<i64, AtomicI64>,
}

impl JournalFigures {
    /// A line could not be written.
    pub fn failed(&self) {
        self.failures.inc();
        self.failing.set(1);
    }

    /// Lines can be written again.
    pub fn works(&self) {
        self.failing.set(0);
    }

    /// Whether the last line could not be written.
    pub fn is_failing(&self) -> bool {
        self.failing.get() != 0
    }
}
