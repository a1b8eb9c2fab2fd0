//! Tones of telephone keys, ITU-T Q.23.

use std::f32::consts::TAU;

/// The frequencies of the keypad's rows and columns, Hz.
const ROWS: [f32; 4] = [697.0, 770.0, 852.0, 941.0];
const COLUMNS: [f32; 3] = [1_209.0, 1_336.0, 1_477.0];

/// The keys, row by row.
const KEYS: &str = "123456789*0#";

/// The length of a tone and of the silence after it, ms. Q.24 asks receivers for 40 each; lines that lose packets need
/// more.
const TONE_MS: u32 = 100;
const GAP_MS: u32 = 100;

/// The length of a `w`, ms: as long as Twilio's and Asterisk's.
const WAIT_MS: u32 = 500;

/// The amplitude of each of the two tones, relative to full scale: -12 dBFS.
const LEVEL: f32 = 0.25;

/// The rise and the fall of a tone, ms, so that it does not click.
const EDGE_MS: u32 = 4;

/// The keys in a text, with `w` for half a second of silence. `None` if it has anything other than keys, waits and the
/// characters that people write between digits.
pub fn keys(typed: &str) -> Option<String> {
    let mut keys = String::new();
    for c in typed.chars() {
        match c {
            'w' | 'W' | ',' => keys.push('w'),
            c if KEYS.contains(c) => keys.push(c),
            ' ' | '-' | '(' | ')' | '.' => {}
            _ => return None,
        }
    }
    keys.contains(|key: char| key != 'w').then_some(keys)
}

/// The sound of these keys at `rate` Hz. Other characters are left out.
pub fn tones(keys: &str, rate: u32) -> Vec<i16> {
    let mut sound = Vec::new();
    for key in keys.chars() {
        if key == 'w' {
            sound.resize(sound.len() + samples(WAIT_MS, rate), 0);
        } else if let Some(at) = KEYS.find(key) {
            let (row, column) = (ROWS[at / COLUMNS.len()], COLUMNS[at % COLUMNS.len()]);
            sound.extend(tone(row, column, rate));
            sound.resize(sound.len() + samples(GAP_MS, rate), 0);
        }
    }
    sound
}

fn tone(row: f32, column: f32, rate: u32) -> impl Iterator<Item = i16> {
    let (length, edge) = (samples(TONE_MS, rate), samples(EDGE_MS, rate).max(1));
    (0..length).map(move |at| {
        let wave = |hz: f32| (TAU * hz * at as f32 / rate as f32).sin();
        let rise = (at.min(length - at) as f32 / edge as f32).min(1.0);
        (LEVEL * rise * (wave(row) + wave(column)) * f32::from(i16::MAX)) as i16
    })
}

fn samples(ms: u32, rate: u32) -> usize {
    (ms * rate / 1_000) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_people_write_them() {
        assert_eq!(keys("(555) 01-00#").as_deref(), Some("5550100#"));
        assert_eq!(keys("1,w2").as_deref(), Some("1ww2"));
        for typed in ["", "w", "one", "1;2", "+49"] {
            assert_eq!(keys(typed), None, "{typed}");
        }
    }

    #[test]
    fn a_key_sounds_for_100_ms_and_a_wait_is_silent() {
        let sound = tones("5w", 8_000);
        assert_eq!(sound.len(), 800 + 800 + 4_000);
        let peak = |part: &[i16]| part.iter().map(|s| s.unsigned_abs()).max();
        assert!(peak(&sound[100..700]) > Some(12_000));
        assert_eq!(peak(&sound[800..]), Some(0));
    }
}
