//! Reads telephone keys from sound, as an exchange does: the energy at each of the keys' frequencies (Goertzel).

use std::f64::consts::TAU;

const ROWS: [f64; 4] = [697.0, 770.0, 852.0, 941.0];
const COLUMNS: [f64; 3] = [1_209.0, 1_336.0, 1_477.0];
const KEYS: [[char; 3]; 4] = [
    ['1', '2', '3'],
    ['4', '5', '6'],
    ['7', '8', '9'],
    ['*', '0', '#'],
];

/// The keys that sound in audio at `rate` Hz.
pub(crate) fn keys(audio: &[i16], rate: usize) -> String {
    let mut keys = String::new();
    let mut before = None;
    for frame in audio.chunks_exact(rate / 50) {
        let key = key(frame, rate);
        if key != before {
            keys.extend(key);
        }
        before = key;
    }
    keys
}

/// The key of a frame whose energy is that of one row and one column.
fn key(frame: &[i16], rate: usize) -> Option<char> {
    let total: f64 = frame.iter().map(|sample| f64::from(*sample).powi(2)).sum();
    let loudest = |tones: &[f64]| {
        let energies = tones.iter().map(|hz| energy(frame, *hz, rate));
        energies.enumerate().max_by(|a, b| a.1.total_cmp(&b.1))
    };
    let ((row, low), (column, high)) = (loudest(&ROWS)?, loudest(&COLUMNS)?);
    let is_loud = total / frame.len() as f64 > 1_000.0_f64.powi(2);
    let is_even = low < 4.0 * high && high < 4.0 * low;
    (is_loud && is_even && low + high > 0.8 * total).then(|| KEYS[row][column])
}

/// The part of the frame's energy that is at this frequency.
fn energy(frame: &[i16], hz: f64, rate: usize) -> f64 {
    let coefficient = 2.0 * (TAU * hz / rate as f64).cos();
    let (mut one, mut two) = (0.0, 0.0);
    for sample in frame {
        let next = f64::from(*sample) + coefficient * one - two;
        (two, one) = (one, next);
    }
    (one * one + two * two - coefficient * one * two) * 2.0 / frame.len() as f64
}
