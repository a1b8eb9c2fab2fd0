//! The rule by which devices that failed are opened again.

use std::time::Duration;

/// How long to wait before the devices are opened again, after each failure in a row. Sound systems
/// need up to a second to restart.
const PAUSES: [Duration; 3] = [
    Duration::from_millis(100),
    Duration::from_millis(400),
    Duration::from_millis(1_200),
];

/// Devices that have worked for this long have recovered: the next failure is the first again.
const RECOVERED: Duration = Duration::from_secs(5);

/// The failures in a row, with the first fault.
#[derive(Debug)]
pub struct Recovery<Fault> {
    first: Option<Fault>,
    failures: usize,
}

impl<Fault> Default for Recovery<Fault> {
    fn default() -> Self {
        Self {
            first: None,
            failures: 0,
        }
    }
}

impl<Fault> Recovery<Fault> {
    /// Notes a fault of devices that had worked for `worked`, or could not be opened. Returns how
    /// long to wait before they are opened again.
    ///
    /// # Errors
    /// The first fault in the row if the devices are to be given up.
    pub fn failed(&mut self, fault: Fault, worked: Duration) -> Result<Duration, Fault> {
        if worked >= RECOVERED {
            *self = Self::default();
        }
        let first = self.first.take().unwrap_or(fault);
        let Some(&pause) = PAUSES.get(self.failures) else {
            return Err(first);
        };
        self.first = Some(first);
        self.failures += 1;
        Ok(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_opened_three_times_in_a_row_and_the_first_fault_is_reported() {
        let mut recovery = Recovery::default();
        for (fault, pause) in PAUSES.into_iter().enumerate() {
            let worked = Duration::from_millis(20);
            assert_eq!(recovery.failed(fault, worked), Ok(pause));
        }
        assert_eq!(recovery.failed(9, Duration::ZERO), Err(0));
    }

    #[test]
    fn devices_that_worked_for_a_while_get_all_tries_again() {
        let mut recovery = Recovery::default();
        for fault in 0..20 {
            let again = recovery.failed(fault, RECOVERED);
            assert_eq!(again, Ok(PAUSES[0]));
        }
        let soon = RECOVERED - Duration::from_millis(1);
        assert_eq!(recovery.failed(20, soon), Ok(PAUSES[1]));
    }

    #[test]
    fn giving_up_takes_seconds_at_most() {
        assert!(PAUSES.iter().sum::<Duration>() < Duration::from_secs(2));
        assert!(PAUSES.is_sorted());
    }
}
