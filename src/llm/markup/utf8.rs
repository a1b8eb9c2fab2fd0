//! UTF-8 that arrives in pieces.

/// Decodes UTF-8 whose characters may be cut anywhere. What is not UTF-8 becomes U+FFFD, the
/// same however the bytes are cut.
#[derive(Debug, Default)]
pub(crate) struct Utf8Decoder {
    /// The start of a character: at most three bytes.
    held: Vec<u8>,
}

impl Utf8Decoder {
    /// The text that is complete with these bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        self.held.extend_from_slice(bytes);
        let whole = self.held.len() - unfinished(&self.held);
        let tail = self.held.split_off(whole);
        let text = String::from_utf8_lossy(&self.held).into_owned();
        self.held = tail;
        text
    }

    /// The replacement of a character that never became whole, if there is one.
    pub(crate) fn finish(&mut self) -> String {
        let held = std::mem::take(&mut self.held);
        String::from_utf8_lossy(&held).into_owned()
    }
}

/// How many bytes at the end may still become a character.
fn unfinished(bytes: &[u8]) -> usize {
    (1..=bytes.len().min(3))
        .find(|&n| {
            std::str::from_utf8(&bytes[bytes.len() - n..])
                .is_err_and(|e| e.valid_up_to() == 0 && e.error_len().is_none())
        })
        .unwrap_or(0)
}
