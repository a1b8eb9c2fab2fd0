//! AudioSocket frames: a type byte, the payload's length (two bytes, big-endian), and the payload.
//! No I/O.

use crate::audio::{from_pcm16le, to_pcm16le};
use bytes::BytesMut;
use uuid::Uuid;

const HANG_UP: u8 = 0x00;
const UUID: u8 = 0x01;
const KEY: u8 = 0x03;
/// Audio at the first of [`RATES`]; the types of the other rates follow in order.
const AUDIO: u8 = 0x10;
const ERROR: u8 = 0xff;

const HEADER: usize = 3;

/// The audio rates, Hz, in the order of their frame types from 0x10.
pub const RATES: [u32; 9] = [
    8_000, 12_000, 16_000, 24_000, 32_000, 44_100, 48_000, 96_000, 192_000,
];

/// A decoded frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// The call is over.
    HangUp,
    /// The call's id; the first frame.
    Call(Uuid),
    /// The caller pressed a key.
    Key(char),
    /// The caller's audio.
    Audio {
        /// Hz, one of [`RATES`].
        rate: u32,
        /// Mono PCM16, any number of samples.
        samples: Vec<i16>,
    },
    /// An error in Asterisk, with an application-specific code if there is one.
    Error(Option<u8>),
    /// A frame of an unknown type.
    Unknown(u8),
}

/// A frame whose payload does not fit its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a frame of type {kind:#04x} with {length} bytes of payload")]
pub struct Malformed {
    /// The frame's type.
    pub kind: u8,
    /// The payload's length, bytes.
    pub length: usize,
}

/// Splits a byte stream into messages, regardless of how it arrives in chunks.
#[derive(Debug, Default)]
pub struct Decoder {
    bytes: BytesMut,
}

impl Decoder {
    /// The buffer to append received bytes to. If [`Self::pop`] is called until it returns `None`
    /// after each read, the buffer holds at most one incomplete frame (64 KiB) and one read.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.bytes
    }

    /// The next message; `None` until its frame is complete.
    ///
    /// # Errors
    /// [`Malformed`] if the payload does not fit the type. The next call continues with the next
    /// frame.
    pub fn pop(&mut self) -> Option<Result<Message, Malformed>> {
        let header = self.bytes.first_chunk::<HEADER>()?;
        let [kind, length @ ..] = *header;
        let end = HEADER + usize::from(u16::from_be_bytes(length));
        if self.bytes.len() < end {
            return None;
        }
        let frame = self.bytes.split_to(end);
        let payload = &frame[HEADER..];
        let length = payload.len();
        Some(read(kind, payload).ok_or(Malformed { kind, length }))
    }
}

fn read(kind: u8, payload: &[u8]) -> Option<Message> {
    if let Some(rate) = rate_of(kind) {
        let samples = from_pcm16le(payload).ok()?;
        return Some(Message::Audio { rate, samples });
    }
    match (kind, payload) {
        (HANG_UP, _) => Some(Message::HangUp),
        (UUID, _) => Uuid::from_slice(payload).ok().map(Message::Call),
        (KEY, [key]) => Some(Message::Key(char::from(*key))),
        (KEY, _) => None,
        (ERROR, _) => Some(Message::Error(payload.first().copied())),
        _ => Some(Message::Unknown(kind)),
    }
}

fn rate_of(kind: u8) -> Option<u32> {
    let index = kind.checked_sub(AUDIO)?;
    RATES.get(usize::from(index)).copied()
}

/// A frame of audio at `rate`, Hz.
///
/// # Panics
/// If `rate` is not one of [`RATES`], or there are more than the 32,767 samples that fit a frame.
pub fn encode_audio(rate: u32, samples: &[i16]) -> Vec<u8> {
    let index = RATES.iter().position(|known| *known == rate);
    let index = index.expect("a rate that has a type") as u8;
    encode(AUDIO + index, &to_pcm16le(samples))
}

/// The frame that ends a call.
pub fn encode_hang_up() -> Vec<u8> {
    encode(HANG_UP, &[])
}

fn encode(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).expect("a payload that fits a frame");
    let mut frame = Vec::with_capacity(HEADER + payload.len());
    frame.push(kind);
    frame.extend(length.to_be_bytes());
    frame.extend(payload);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(chunks: &[&[u8]]) -> Vec<Result<Message, Malformed>> {
        let mut decoder = Decoder::default();
        let mut messages = Vec::new();
        for chunk in chunks {
            decoder.buffer().extend_from_slice(chunk);
            messages.extend(std::iter::from_fn(|| decoder.pop()));
        }
        messages
    }

    #[test]
    fn every_frame_type_is_decoded_as_asterisk_writes_it() {
        let uuid = Uuid::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
        let mut bytes = vec![0x01, 0x00, 0x10];
        bytes.extend(uuid.as_bytes());
        bytes.extend([0x10, 0x00, 0x04, 0x01, 0x00, 0xff, 0xff]);
        bytes.extend([0x12, 0x00, 0x02, 0x00, 0x80]);
        bytes.extend([0x17, 0x00, 0x02, 0x02, 0x00, 0x18, 0x00, 0x02, 0x03, 0x00]);
        bytes.extend([0x03, 0x00, 0x01, b'#']);
        bytes.extend([0xff, 0x00, 0x01, 0x02, 0xff, 0x00, 0x00]);
        bytes.extend([0x77, 0x00, 0x01, 0x00]);
        bytes.extend([0x00, 0x00, 0x00]);
        let audio = |rate, samples: &[i16]| {
            Ok(Message::Audio {
                rate,
                samples: samples.to_vec(),
            })
        };
        let expected = [
            Ok(Message::Call(uuid)),
            audio(8_000, &[1, -1]),
            audio(16_000, &[i16::MIN]),
            audio(96_000, &[2]),
            audio(192_000, &[3]),
            Ok(Message::Key('#')),
            Ok(Message::Error(Some(2))),
            Ok(Message::Error(None)),
            Ok(Message::Unknown(0x77)),
            Ok(Message::HangUp),
        ];
        assert_eq!(decode(&[&bytes]), expected);
    }

    #[test]
    fn after_a_malformed_frame_the_next_ones_are_still_decoded() {
        let bytes = [
            &[0x10, 0, 1, 7][..],
            &[0x01, 0, 1, 7],
            &[0x03, 0, 2, b'1', b'2'],
            &[0x00, 0, 0],
        ]
        .concat();
        let malformed = |kind, length| Err(Malformed { kind, length });
        let expected = [
            malformed(0x10, 1),
            malformed(0x01, 1),
            malformed(0x03, 2),
            Ok(Message::HangUp),
        ];
        assert_eq!(decode(&[&bytes]), expected);
    }

    #[test]
    fn the_length_is_big_endian_and_the_samples_are_little_endian() {
        assert_eq!(encode_audio(8_000, &[1]), [0x10, 0, 2, 1, 0]);
        assert_eq!(encode_audio(48_000, &[0; 960])[..3], [0x16, 0x07, 0x80]);
        assert_eq!(encode_hang_up(), [0, 0, 0]);
    }

    fn any_frame() -> impl Strategy<Value = Vec<u8>> {
        let kinds = prop_oneof![
            Just(0x00),
            Just(0x01),
            Just(0x03),
            0x10..=0x19_u8,
            Just(0xff),
            any::<u8>()
        ];
        let payload = prop::collection::vec(any::<u8>(), 0..400);
        (kinds, payload).prop_map(|(kind, payload)| encode(kind, &payload))
    }

    proptest! {
        #[test]
        fn messages_do_not_depend_on_how_the_stream_is_chunked(
            frames in prop::collection::vec(any_frame(), 0..8),
            rest in prop::collection::vec(any::<u8>(), 0..40),
            sizes in prop::collection::vec(1..97_usize, 1..20),
        ) {
            let bytes = [frames.concat(), rest].concat();
            let (mut left, mut chunks) = (&bytes[..], Vec::new());
            for size in sizes.iter().cycle() {
                if left.is_empty() {
                    break;
                }
                let (chunk, after) = left.split_at((*size).min(left.len()));
                chunks.push(chunk);
                left = after;
            }
            let whole = decode(&[&bytes]);
            prop_assert!(whole.len() >= frames.len());
            prop_assert_eq!(decode(&chunks), whole);
        }

        #[test]
        fn audio_survives_encoding_and_decoding(
            rate in prop::sample::select(&RATES[..]),
            samples: Vec<i16>,
        ) {
            let bytes = encode_audio(rate, &samples);
            prop_assert_eq!(decode(&[&bytes]), [Ok(Message::Audio { rate, samples })]);
        }
    }
}
