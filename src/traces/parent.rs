//! The span of a client to which a conversation belongs.

/// The client's span, as the header `traceparent` of W3C's Trace Context names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parent {
    pub(super) trace: [u8; 16],
    pub(super) span: [u8; 8],
    /// Whether the client's trace is kept.
    pub(super) sampled: bool,
}

impl Parent {
    /// Reads the value of the header; `None` if it is malformed, as the specification demands.
    pub fn read(header: &str) -> Option<Self> {
        let mut parts = header.trim().splitn(5, '-');
        let [version] = hex(parts.next()?)?;
        let (trace, span) = (hex(parts.next()?)?, hex(parts.next()?)?);
        let [flags] = hex(parts.next()?)?;
        // Later versions may add parts.
        let is_whole = version != 0 || parts.next().is_none();
        let is_valid = version != 0xff && is_whole && trace != [0; 16] && span != [0; 8];
        is_valid.then_some(Self {
            trace,
            span,
            sampled: flags & 1 == 1,
        })
    }
}

/// Bytes in lower-case hexadecimal digits.
fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if text.len() != 2 * N || !text.bytes().all(is_digit) {
        return None;
    }
    let mut bytes = [0; N];
    for (nth, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * nth..2 * nth + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    #[test]
    fn a_parent_is_read_and_a_malformed_one_is_none() {
        let read = |flags: &str| Parent::read(&format!("00-{TRACE}-00f067aa0ba902b7-{flags}"));
        let parent = read("01").expect("a parent");
        assert_eq!((parent.trace[0], parent.span[7]), (0x4b, 0xb7));
        assert!(parent.sampled);
        assert!(!read("00").expect("a parent").sampled);
        let later = format!("01-{TRACE}-00f067aa0ba902b7-01-more");
        assert!(Parent::read(&later).is_some());
        for wrong in [
            String::new(),
            "00".into(),
            format!("00-{TRACE}-00f067aa0ba902b7"),
            format!("00-{TRACE}-00f067aa0ba902b7-01-more"),
            format!("ff-{TRACE}-00f067aa0ba902b7-01"),
            format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{}-00f067aa0ba902b7-01", TRACE.to_uppercase()),
            format!("00-{TRACE}-00f067aa0ba902b-01"),
        ] {
            assert_eq!(Parent::read(&wrong), None, "{wrong}");
        }
    }
}
