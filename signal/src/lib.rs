//! Loops over samples and vectors: pure functions of numbers, without I/O and without the rest of undertone.
//!
//! A crate of its own, so that debug builds and tests optimise these loops and nothing else: unoptimised, each of
//! their steps costs twenty times as much. A loop has to be here as a whole, because a generic iterator is compiled
//! in the crate that runs it.

pub mod mel;
mod pcm;
mod resample;
pub mod ridge;
pub mod vectors;

pub use pcm::{level_dbfs, to_f32, to_i16, to_pcm16le};
pub use resample::Resampler;
