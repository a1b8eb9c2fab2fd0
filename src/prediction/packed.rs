//! Numbers as base64 text, for heads of many weights in a JSON file.

use base64::{Engine, engine::general_purpose::STANDARD};

/// A number that is written as little-endian bytes.
pub(super) trait Packed: Sized {
    /// Appends its bytes.
    fn put(&self, bytes: &mut Vec<u8>);
    /// Reads it from exactly [`Packed::BYTES`] bytes.
    fn get(bytes: &[u8]) -> Self;
    /// How many bytes it takes.
    const BYTES: usize;
}

macro_rules! packed {
    ($($number:ty),*) => {$(
        impl Packed for $number {
            const BYTES: usize = size_of::<$number>();
            fn put(&self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&self.to_le_bytes());
            }
            fn get(bytes: &[u8]) -> Self {
                let mut own = [0; size_of::<$number>()];
                own.copy_from_slice(bytes);
                Self::from_le_bytes(own)
            }
        }
    )*};
}
packed!(i8, u8, u16, u32, f32);

/// For `#[serde(with = "packed")]` on a list of numbers.
pub(super) fn serialize<T: Packed, S: serde::Serializer>(
    numbers: &[T],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut bytes = Vec::with_capacity(numbers.len() * T::BYTES);
    numbers.iter().for_each(|number| number.put(&mut bytes));
    serializer.serialize_str(&STANDARD.encode(bytes))
}

/// For `#[serde(with = "packed")]` on a list of numbers.
pub(super) fn deserialize<'de, T: Packed, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    use serde::{Deserialize, de::Error};
    let text = String::deserialize(deserializer)?;
    let bytes = STANDARD.decode(text).map_err(D::Error::custom)?;
    if !bytes.len().is_multiple_of(T::BYTES) {
        return Err(D::Error::custom(format!(
            "{} bytes are no list of numbers of {} bytes",
            bytes.len(),
            T::BYTES
        )));
    }
    Ok(bytes.chunks_exact(T::BYTES).map(T::get).collect())
}
