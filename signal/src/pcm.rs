//! Samples as numbers of 16 bits and as floats.

/// 32768: full scale of PCM16, so that -32768 is exactly -1.
const FULL_SCALE: f32 = 32_768.0;

/// PCM16 to -1..1.
pub fn to_f32(samples: &[i16]) -> Vec<f32> {
    samples
        .iter()
        .map(|&sample| f32::from(sample) / FULL_SCALE)
        .collect()
}

/// -1..1 to PCM16, rounded. Louder samples saturate, NaN becomes silence.
pub fn to_i16(samples: &[f32]) -> Vec<i16> {
    samples
        .iter()
        // A cast from float saturates and turns NaN into 0.
        .map(|sample| (sample * FULL_SCALE).round() as i16)
        .collect()
}

/// Samples to little-endian PCM16 bytes.
pub fn to_pcm16le(samples: &[i16]) -> Vec<u8> {
    samples.iter().copied().flat_map(i16::to_le_bytes).collect()
}

/// Root mean square level in dB below full scale (dBFS); -120 for silence and for no samples.
pub fn level_dbfs(samples: &[f32]) -> f32 {
    let power = samples.iter().map(|s| s * s).sum::<f32>() / samples.len().max(1) as f32;
    10.0 * power.max(1e-12).log10()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loud_samples_saturate_and_nan_is_silence() {
        let samples = [2.0, -2.0, f32::NAN, f32::INFINITY, 1.0];
        assert_eq!(
            to_i16(&samples),
            [i16::MAX, i16::MIN, 0, i16::MAX, i16::MAX]
        );
    }

    #[test]
    fn levels() {
        assert_eq!(level_dbfs(&[]), -120.0);
        assert_eq!(level_dbfs(&[1.0, -1.0]), 0.0);
        assert!((level_dbfs(&[0.1, -0.1]) + 20.0).abs() < 1e-3);
    }
}
