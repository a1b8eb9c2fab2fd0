//! Cuts a recording into stretches that the recogniser can take.

use super::RATE;

/// The longest stretch, samples: a little below the recogniser's limit of 30 s.
const LONGEST_STRETCH: usize = 28 * RATE as usize;
/// The least rest behind a cut for lack of a pause, samples: a shorter one would be half a word.
const SHORTEST_REST: usize = RATE as usize;
/// Samples of the 20 ms windows that are compared to find the quietest place.
const FRAME: usize = RATE as usize / 50;

/// Silence between two utterances, samples: longer than speakers make within a sentence.
const PAUSE: usize = RATE as usize * 7 / 10;
/// Samples below this are silence: -40 dBFS.
const SILENT: f32 = 0.01;

/// Cuts 16 kHz audio into stretches for the recogniser: at pauses, since it may stop at one, and where
/// there are none, at quiet places before a stretch gets too long.
pub fn stretches(audio: &[f32]) -> Vec<&[f32]> {
    stretches_within(audio, LONGEST_STRETCH)
}

/// Like [`stretches`], of at most `longest` samples. There have to be some seconds among which to find a quiet place.
pub fn stretches_within(audio: &[f32], longest: usize) -> Vec<&[f32]> {
    between_pauses(audio)
        .into_iter()
        .flat_map(|part| short_enough(part, longest))
        .collect()
}

fn between_pauses(audio: &[f32]) -> Vec<&[f32]> {
    let is_silent = |frame: &[f32]| frame.iter().all(|sample| sample.abs() < SILENT);
    let mut parts = Vec::new();
    let (mut from, mut silence, mut has_sound) = (0, 0, false);
    for (index, frame) in audio.chunks(FRAME).enumerate() {
        if is_silent(frame) {
            silence += frame.len();
            continue;
        }
        if has_sound && silence >= PAUSE {
            let cut = index * FRAME - silence / 2;
            parts.push(&audio[from..cut]);
            from = cut;
        }
        (silence, has_sound) = (0, true);
    }
    parts.push(&audio[from..]);
    parts
}

fn short_enough(audio: &[f32], longest: usize) -> Vec<&[f32]> {
    let mut rest = audio;
    let mut stretches = Vec::new();
    while rest.len() > longest {
        let end = longest.min(rest.len() - SHORTEST_REST);
        let (stretch, after) = rest.split_at(quietest(&rest[..end]));
        stretches.push(stretch);
        rest = after;
    }
    stretches.push(rest);
    stretches
}

/// The quietest place of the last third of a stretch.
fn quietest(stretch: &[f32]) -> usize {
    let power = |frame: &[f32]| frame.iter().map(|s| s * s).sum::<f32>();
    let from = stretch.len() / 3 * 2;
    stretch[from..]
        .chunks_exact(FRAME)
        .enumerate()
        .min_by(|(_, a), (_, b)| power(a).total_cmp(&power(b)))
        .map_or(stretch.len(), |(index, _)| from + index * FRAME + FRAME / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audio_is_cut_at_each_pause() {
        let sound = vec![0.5; 2 * RATE as usize];
        let silence = |seconds: f32| vec![0.0; (seconds * RATE as f32) as usize];
        let audio = [
            silence(1.0),
            sound.clone(),
            silence(0.3),
            sound.clone(),
            silence(0.9),
            sound,
            silence(2.0),
        ]
        .concat();
        let stretches = stretches(&audio);
        assert_eq!(stretches.len(), 2);
        assert_eq!(stretches[0].len(), (5.75 * RATE as f32) as usize);
        assert_eq!(stretches.concat(), audio);
    }

    #[test]
    fn long_audio_is_cut_in_its_pauses_and_nothing_is_lost() {
        let mut audio = vec![0.5; 60 * RATE as usize];
        let pause = 24 * RATE as usize;
        audio[pause..pause + FRAME * 4].fill(0.0);
        let stretches = stretches(&audio);
        assert!(stretches.iter().all(|s| s.len() <= LONGEST_STRETCH));
        assert!((pause..pause + FRAME * 4).contains(&stretches[0].len()));
        assert_eq!(stretches.concat(), audio);
    }

    #[test]
    fn fluent_speech_is_cut_between_words_and_leaves_no_half_word() {
        let longest = 10 * RATE as usize;
        let mut audio = vec![0.5; 20 * RATE as usize + 100];
        let dips = [8.0, 16.5].map(|second: f32| (second * RATE as f32) as usize);
        for dip in dips {
            audio[dip..dip + FRAME * 3].fill(0.1);
        }
        let stretches = stretches_within(&audio, longest);
        assert_eq!(stretches.concat(), audio);
        let mut ends = stretches.iter().scan(0, |end, stretch| {
            *end += stretch.len();
            Some(*end)
        });
        for dip in dips {
            let end = ends.next().unwrap();
            assert!((dip..dip + FRAME * 3).contains(&end), "{end}");
        }
        for stretch in stretches {
            assert!((SHORTEST_REST..=longest).contains(&stretch.len()));
        }
        let little_more = &audio[..=longest];
        let rest = stretches_within(little_more, longest)[1].len();
        assert!(rest >= SHORTEST_REST, "{rest}");
    }
}
