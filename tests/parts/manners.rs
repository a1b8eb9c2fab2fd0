//! Tests which speech over the agent's voice stops it, with real detectors and third-party voices.

use super::pipeline::{quiet, with_models};
use crate::common::{Clip, speech};
use undertone::conversation::{BargeInPolicy, ListeningWords, Policy};

/// The voices of espeak-ng and flite.
const VOICES: [&str; 6] = ["en-gb", "en-us", "awb", "slt", "rms", "kal"];

/// Listening words do not stop the agent. By default they make it pause.
const LENIENT: BargeInPolicy = BargeInPolicy {
    listening_words: ListeningWords::Pass,
    min_words: 1,
};

/// Words of somebody who listens.
const LISTENING: [&str; 10] = [
    "Mm-hm.",
    "Uh-huh.",
    "Yeah.",
    "Okay.",
    "Right.",
    "Yes.",
    "I see.",
    "Got it.",
    "Oh, okay.",
    "Hmm.",
];

/// Words of somebody who wants the turn.
const INTERRUPTIONS: [&str; 10] = [
    "Stop.",
    "Wait.",
    "No.",
    "Hold on.",
    "What about tomorrow?",
    "Actually, I meant Berlin.",
    "That is wrong.",
    "Can you repeat that?",
    "Okay, but what about Monday?",
    "Yeah, but that is too late.",
];

/// The words by each voice, without silence before and after them.
fn spoken(words: &[&str]) -> Vec<Clip> {
    let lines = words
        .iter()
        .flat_map(|words| VOICES.map(|voice| format!("{voice}: {words}\n")));
    let mut clips = speech::spoken(&lines.collect::<String>());
    for clip in &mut clips {
        let loud = |sample: &f32| sample.abs() > 0.02;
        let begin = clip.samples.iter().position(loud).expect("sound");
        let end = clip.samples.iter().rposition(loud).expect("sound");
        clip.samples = clip.samples[begin..=end].to_vec();
    }
    clips
}

/// When each clip stops the agent, ms after its beginning; `None` if it does not.
fn stops(clips: &[Clip], barge_in: BargeInPolicy) -> Vec<Option<u64>> {
    let stops = |clip: &Clip| with_models(|models| models.stops(&clip.samples, barge_in));
    clips.iter().map(stops).collect()
}

fn median(mut all: Vec<u64>) -> u64 {
    all.sort_unstable();
    all[all.len() / 2]
}

#[test]
fn listening_words_leave_the_turn_to_the_agent_and_interruptions_take_it() {
    let listening = spoken(&LISTENING);
    let stopped = stops(&listening, LENIENT);
    for (clip, at) in listening.iter().zip(&stopped) {
        if let Some(at) = at {
            println!(
                "{} {:?} stopped the agent after {at} ms",
                clip.name, clip.text
            );
        }
    }
    let wrong = stopped.iter().flatten().count();
    let interruptions = spoken(&INTERRUPTIONS);
    let stopped = stops(&interruptions, LENIENT);
    for (clip, at) in interruptions.iter().zip(&stopped) {
        println!("{} {:?}: {at:?}", clip.name, clip.text);
    }
    let after: Vec<u64> = stopped.iter().flatten().copied().collect();
    // One word by each voice is enough to see.
    let before = stops(
        &interruptions[..VOICES.len()],
        Policy::default().vad.barge_in,
    );
    let count = after.len();
    println!(
        "{wrong} of {} listening words stop the agent; {count} of {} interruptions do, after {} ms in the median, {} ms \
         at most; without the rule after {} ms",
        listening.len(),
        interruptions.len(),
        median(after.clone()),
        after.iter().max().expect("an interruption"),
        median(before.into_iter().flatten().collect()),
    );
    assert!(wrong <= 8, "{wrong} listening words stop the agent");
    let missed = interruptions.len() - count;
    assert!(missed <= 5, "{missed} interruptions do not stop it");
}

#[test]
fn as_shipped_the_agent_goes_on_after_listening_words_and_interruptions_take_the_turn() {
    let shipped = Policy::default().vad.barge_in;
    let turns = |clip: &Clip| with_models(|models| models.takes_turns(&clip.samples, shipped));
    let (mut wrong, mut missed) = (0, 0);
    // Three of the six voices.
    for clip in spoken(&LISTENING).iter().step_by(2) {
        let turns = turns(clip);
        if !turns.is_empty() {
            println!("{} {:?} took the turn: {turns:?}", clip.name, clip.text);
            wrong += 1;
        }
    }
    for clip in spoken(&INTERRUPTIONS).iter().step_by(2) {
        if turns(clip).is_empty() {
            println!("{} {:?} did not take the turn", clip.name, clip.text);
            missed += 1;
        }
    }
    println!("{wrong} of 30 listening words take the turn; {missed} of 30 interruptions do not");
    assert!(wrong <= 4, "{wrong} listening words take the turn");
    assert!(missed <= 3, "{missed} interruptions do not take it");
}

/// The peaks of the clips are at -36 dBFS.
#[test]
fn quiet_interruptions_take_the_turn_as_loud_ones_do() {
    let mut interruptions = spoken(&INTERRUPTIONS[4..7]);
    for clip in &mut interruptions {
        clip.samples = quiet(&clip.samples);
    }
    let stopped = stops(&interruptions, LENIENT);
    for (clip, at) in interruptions.iter().zip(&stopped) {
        println!("{} {:?}, quiet: {at:?}", clip.name, clip.text);
    }
    let missed = stopped.iter().filter(|at| at.is_none()).count();
    assert!(missed <= 1, "{missed} interruptions do not stop the agent");
}
