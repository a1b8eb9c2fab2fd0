//! When a client counts as slow, vanished or idle.

use super::pump::{End, SocketLimits};
use tokio::time::Instant;

/// The deadlines of one client: for starting, for reading what is sent, and for any sign of life.
#[derive(Debug)]
pub struct Patience {
    limits: SocketLimits,
    began: Instant,
    has_begun: bool,
    heard: Instant,
    /// When the current frame was handed to the socket, until it is written.
    writing: Option<Instant>,
}

#[allow(
    clippy::disallowed_methods,
    reason = "an edge: a connection's timeouts are real time"
)]
impl Patience {
    /// The clocks of a client that has just connected.
    pub fn new(limits: SocketLimits) -> Self {
        let now = Instant::now();
        Self {
            limits,
            began: now,
            has_begun: false,
            heard: now,
            writing: None,
        }
    }

    /// Notes that the client has met [`SocketLimits::open_within`].
    pub fn begun(&mut self) {
        self.has_begun = true;
    }

    /// Notes that the client has sent something.
    pub fn heard(&mut self) {
        self.heard = Instant::now();
    }

    /// When the client was last heard.
    pub fn last_heard(&self) -> Instant {
        self.heard
    }

    /// Notes that something is waiting to be written. The first call starts the clock.
    pub fn waits(&mut self) {
        self.writing.get_or_insert_with(Instant::now);
    }

    /// Whether something is waiting to be written.
    pub fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    /// Notes that a frame was written and the next one is waiting.
    pub fn took(&mut self) {
        self.writing = Some(Instant::now());
    }

    /// Notes that everything was written.
    pub fn took_all(&mut self) {
        self.writing = None;
    }

    /// The next deadline.
    pub fn deadline(&self) -> Instant {
        let slow = self.writing.map(|since| since + self.limits.write_timeout);
        let unbegun = (!self.has_begun).then(|| self.began + self.limits.open_within);
        let gone = self.heard + self.limits.gone_after;
        [slow, unbegun]
            .into_iter()
            .flatten()
            .fold(gone, Instant::min)
    }

    /// Checks the deadlines.
    ///
    /// # Errors
    /// [`End::Slow`], [`End::Vanished`], or [`End::Bad`] with `unbegun` if it has not begun in time.
    pub fn check<B, C>(&self, unbegun: B) -> Result<(), End<B, C>> {
        let (now, limits) = (Instant::now(), self.limits);
        if self
            .writing
            .is_some_and(|since| now >= since + limits.write_timeout)
        {
            return Err(End::Slow);
        }
        if now >= self.heard + limits.gone_after {
            return Err(End::Vanished);
        }
        if !self.has_begun && now >= self.began + limits.open_within {
            return Err(End::Bad(unbegun));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::{advance, sleep_until};

    type Ended = Result<(), End<(), ()>>;

    /// The result of the next deadline if nothing happens before, and the seconds until then.
    #[expect(clippy::disallowed_methods, reason = "the paused clock is read")]
    async fn left_alone(patience: &Patience) -> (Ended, u64) {
        let began = Instant::now();
        assert_eq!(patience.check::<(), ()>(()), Ok(()), "not before its time");
        sleep_until(patience.deadline()).await;
        (patience.check(()), began.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn each_wait_has_its_end() {
        let mut patience = Patience::new(SocketLimits::default());
        assert_eq!(left_alone(&patience).await, (Err(End::Bad(())), 10));
        patience.begun();
        assert_eq!(left_alone(&patience).await, (Err(End::Vanished), 20));
        patience.heard();
        patience.waits();
        assert_eq!(left_alone(&patience).await, (Err(End::Slow), 5));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_frames_is_not_slow() {
        let mut patience = Patience::new(SocketLimits::default());
        patience.begun();
        for _ in 0..10 {
            patience.waits();
            advance(std::time::Duration::from_secs(2)).await;
            patience.took();
        }
        patience.heard();
        assert_eq!(left_alone(&patience).await, (Err(End::Slow), 5));
        patience.took_all();
        assert_eq!(left_alone(&patience).await, (Err(End::Vanished), 25));
    }
}
