//! How much may wait for a client that reads slowly.
//!
//! TCP does not pace: a socket swallows minutes of audio before a write blocks. So little audio
//! waits here, and what is stale is dropped before it is written.

use super::Frame;
use crate::conversation::Micros;
use std::collections::VecDeque;

/// Audio that may wait; more is dropped and counted.
pub const MAX_AUDIO: Micros = Micros::from_ms(500);

/// Messages other than audio that may wait; a client that lets more pile up is disconnected.
pub const MAX_MESSAGES: usize = 1024;

/// Bytes of messages that may wait; a client that lets more pile up is disconnected. A longer one may wait alone.
pub const MAX_BYTES: usize = 4 * 1024 * 1024;

/// While this many messages wait, nothing more is read from the client.
const BUSY_MESSAGES: usize = 64;

/// While this many bytes of messages wait, nothing more is read from the client: its requests may have long echoes.
const BUSY_BYTES: usize = 256 * 1024;

#[derive(Debug)]
struct Waiting {
    frame: Frame,
    share: Share,
}

/// The part that a frame takes of what may wait.
#[derive(Debug)]
enum Share {
    Audio(Micros),
    Message { bytes: usize },
}

/// The frames that wait to be written to one client.
#[derive(Debug, Default)]
pub struct Outbox {
    frames: VecDeque<Waiting>,
    audio: Micros,
    messages: usize,
    /// Bytes of the messages.
    bytes: usize,
}

impl Outbox {
    /// Adds a message. False if there is no room: the client must go.
    #[must_use]
    pub fn push(&mut self, text: String) -> bool {
        let bytes = text.len();
        let fits = self.messages == 0 || self.bytes + bytes <= MAX_BYTES;
        if self.messages >= MAX_MESSAGES || !fits {
            return false;
        }
        self.messages += 1;
        self.bytes += bytes;
        self.frames.push_back(Waiting {
            frame: Frame::Text(text),
            share: Share::Message { bytes },
        });
        true
    }

    /// Adds audio that plays for `length`. False if it was dropped.
    #[must_use]
    pub fn push_audio(&mut self, frame: Frame, length: Micros) -> bool {
        if self.audio + length > MAX_AUDIO {
            return false;
        }
        self.audio = self.audio + length;
        self.frames.push_back(Waiting {
            frame,
            share: Share::Audio(length),
        });
        true
    }

    /// Adds a message before all others: one that was taken and not written, or that belongs before them.
    pub fn put_back(&mut self, text: String) {
        let bytes = text.len();
        self.messages += 1;
        self.bytes += bytes;
        self.frames.push_front(Waiting {
            frame: Frame::Text(text),
            share: Share::Message { bytes },
        });
    }

    /// Drops the audio; the messages stay.
    pub fn drop_audio(&mut self) {
        self.frames
            .retain(|waiting| matches!(waiting.share, Share::Message { .. }));
        self.audio = Micros(0);
    }

    /// Takes the next frame to write.
    pub fn pop(&mut self) -> Option<Frame> {
        let waiting = self.frames.pop_front()?;
        match waiting.share {
            Share::Audio(length) => self.audio = Micros(self.audio.0.saturating_sub(length.0)),
            Share::Message { bytes } => {
                self.messages -= 1;
                self.bytes -= bytes;
            }
        }
        Some(waiting.frame)
    }

    /// The number of messages that wait, other than audio.
    pub fn messages(&self) -> usize {
        self.messages
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Whether too much waits, other than audio, to read further requests from the client.
    pub fn is_busy(&self) -> bool {
        self.messages >= BUSY_MESSAGES || self.bytes >= BUSY_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame() -> Frame {
        Frame::Binary(vec![0; 640])
    }

    #[test]
    fn half_a_second_of_audio_waits_and_no_more() {
        let mut outbox = Outbox::default();
        let kept = (0..100)
            .filter(|_| outbox.push_audio(frame(), Micros::from_ms(20)))
            .count();
        assert_eq!(kept, 25);
        assert!(outbox.push("words".into()));
        outbox.pop();
        assert!(outbox.push_audio(frame(), Micros::from_ms(20)));
    }

    #[test]
    fn a_message_that_is_put_back_is_the_next_one_and_counts_again() {
        let mut outbox = Outbox::default();
        assert!(outbox.push("a".into()) && outbox.push("b".into()));
        let Some(Frame::Text(taken)) = outbox.pop() else {
            panic!("no message");
        };
        assert_eq!((taken.as_str(), outbox.messages()), ("a", 1));
        outbox.put_back(taken);
        assert_eq!(outbox.messages(), 2);
        for text in ["a", "b"] {
            assert!(matches!(outbox.pop(), Some(Frame::Text(next)) if next == text));
        }
    }

    #[test]
    fn dropping_audio_keeps_the_messages_in_order() {
        let mut outbox = Outbox::default();
        assert!(outbox.push("a".into()));
        assert!(outbox.push_audio(frame(), Micros::from_ms(20)));
        assert!(outbox.push("b".into()));
        outbox.drop_audio();
        assert_eq!(outbox.pop(), Some(Frame::Text("a".into())));
        assert_eq!(outbox.pop(), Some(Frame::Text("b".into())));
        assert!(outbox.is_empty());
    }

    #[test]
    fn messages_are_bounded() {
        let mut outbox = Outbox::default();
        let kept = (0..2000).filter(|_| outbox.push("x".into())).count();
        assert_eq!(kept, MAX_MESSAGES);
        outbox.put_back("y".into());
        assert!(!outbox.push("x".into()), "nor behind one that is put back");
    }

    #[test]
    fn long_messages_that_wait_do_not_take_a_gigabyte() {
        let mut outbox = Outbox::default();
        let echo = "x".repeat(1024 * 1024);
        let kept = (0..100).filter(|_| outbox.push(echo.clone())).count();
        assert_eq!(kept, 4);
        assert!(outbox.push_audio(frame(), Micros::from_ms(20)));
        outbox.pop();
        assert!(outbox.push(echo));
        assert!(!outbox.push("x".into()));
    }

    #[test]
    fn a_message_of_any_length_may_wait_alone() {
        let mut outbox = Outbox::default();
        assert!(outbox.push("x".repeat(MAX_BYTES + 1)));
        assert!(!outbox.push("x".into()));
        assert!(outbox.pop().is_some());
        assert!(outbox.push("x".into()));
    }

    #[test]
    fn many_or_long_messages_that_wait_stop_the_reading() {
        let is_busy = |messages: usize, length: usize| {
            let mut outbox = Outbox::default();
            assert!((0..messages).all(|_| outbox.push("x".repeat(length))));
            let is_busy = outbox.is_busy();
            while outbox.pop().is_some() {}
            assert!(!outbox.is_busy());
            is_busy
        };
        assert!(!is_busy(BUSY_MESSAGES - 1, 1));
        assert!(is_busy(BUSY_MESSAGES, 1));
        assert!(!is_busy(3, BUSY_BYTES / 4));
        assert!(is_busy(4, BUSY_BYTES / 4));
    }
}
