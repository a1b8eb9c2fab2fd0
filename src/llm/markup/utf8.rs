//! Decoding of UTF-8 that arrives in pieces.

/// Decodes UTF-8 that may be cut within characters. Invalid bytes become U+FFFD, regardless of the cuts.
#[derive(Debug, Default)]
pub(crate) struct Utf8Decoder {
    /// The start of an incomplete character: at most three bytes.
    held: Vec<u8>,
}

impl Utf8Decoder {
    /// Adds bytes and returns the text that is complete.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        self.held.extend_from_slice(bytes);
        let whole = self.held.len() - unfinished(&self.held);
        let tail = self.held.split_off(whole);
        let text = String::from_utf8_lossy(&self.held).into_owned();
        self.held = tail;
        text
    }

    /// Ends the text; returns U+FFFD if a character was incomplete.
    pub(crate) fn finish(&mut self) -> String {
        let held = std::mem::take(&mut self.held);
        String::from_utf8_lossy(&held).into_owned()
    }
}

/// The number of bytes at the end that may still become a character.
fn unfinished(bytes: &[u8]) -> usize {
    (1..=bytes.len().min(3))
        .find(|&n| {
            std::str::from_utf8(&bytes[bytes.len() - n..])
                .is_err_and(|e| e.valid_up_to() == 0 && e.error_len().is_none())
        })
        .unwrap_or(0)
}
