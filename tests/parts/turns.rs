//! Measures when turns end: how long a finished request waits, and how often the agent speaks into a pause
//! in the middle of one. Real detectors, virtual time.

use super::pipeline::{Ended, with_models};
use crate::common;
use common::{Clip, speech};
use undertone::conversation::Time;

/// Hz.
const RATE: usize = 16_000;

/// The pause that is put into the middle of a request.
const PAUSE_MS: u64 = 900;

/// The silence before the audio, and before the clip in it, ms.
const SILENCE_MS: u64 = 1_500;

/// Samples over which loudness is measured: 10 ms.
const FRAME: usize = RATE / 100;

/// The loudness of each 10 ms, smoothed over three, dB.
fn loudness(samples: &[f32]) -> Vec<f32> {
    let power: Vec<f32> = samples
        .chunks_exact(FRAME)
        .map(|frame| frame.iter().map(|s| s * s).sum::<f32>() / FRAME as f32)
        .collect();
    (0..power.len())
        .map(|at| {
            let near = &power[at.saturating_sub(1)..(at + 2).min(power.len())];
            10.0 * (near.iter().sum::<f32>() / near.len() as f32 + 1e-9).log10()
        })
        .collect()
}

/// Quiet places between 30 and 80 % of the speech, the quietest first, at least 0.2 s apart: between
/// words or inside one. Samples.
fn quiet_places(samples: &[f32]) -> Vec<usize> {
    let loud = loudness(samples);
    let most = loud.iter().copied().fold(f32::MIN, f32::max);
    let first = loud.iter().position(|db| *db > most - 30.0).unwrap_or(0);
    let last = loud.iter().rposition(|db| *db > most - 30.0).unwrap_or(0);
    let length = last - first;
    let mut places: Vec<usize> = (first + length * 3 / 10..first + length * 8 / 10)
        .filter(|&at| {
            let near = &loud[at.saturating_sub(8)..(at + 9).min(loud.len())];
            near.iter().all(|db| loud[at] <= *db) && loud[at] < most - 12.0
        })
        .collect();
    places.sort_by(|a, b| loud[*a].total_cmp(&loud[*b]));
    let mut apart: Vec<usize> = Vec::new();
    for place in places {
        if apart.iter().all(|other| other.abs_diff(place) >= 20) {
            apart.push(place);
        }
    }
    apart.into_iter().map(|frame| frame * FRAME).collect()
}

/// The quietest 0.2 s of the recording, forwards and backwards in turns, as `length` samples.
fn room(samples: &[f32], length: usize) -> Vec<f32> {
    let window = RATE / 5;
    let starts = (0..samples.len().saturating_sub(window)).step_by(400);
    let power = |start: usize| {
        samples[start..start + window]
            .iter()
            .map(|s| s * s)
            .sum::<f32>()
    };
    let quietest = starts.min_by(|a, b| power(*a).total_cmp(&power(*b)));
    let quiet = &samples[quietest.unwrap_or(0)..][..window.min(samples.len())];
    let there_and_back = quiet.iter().chain(quiet.iter().rev());
    there_and_back.cycle().take(length).copied().collect()
}

/// The audio of a clip up to `place` as the agent hears it, and 2 s of the clip's own room after it: the end of its
/// first utterance.
fn end_behind(clip: &Clip, place: usize) -> Option<Ended> {
    let mut samples = room(&clip.samples, RATE / 2);
    samples.extend(&clip.samples[..place]);
    samples.extend(room(&clip.samples, 2 * RATE));
    let heard = with_models(|models| models.hear(&samples, true));
    heard.ends.into_iter().next()
}

/// Whether the utterance ended before this place in the clip, at a pause of the speaker's own.
fn is_before(end: &Ended, place: usize) -> bool {
    let heard = end.spoken.since(Time::from_ms(SILENCE_MS)).as_ms();
    heard + 500 < place as u64 * 1_000 / RATE as u64
}

/// From a place in the clip, where the voice has fallen silent, to the end of the turn, ms.
fn wait_behind(place: usize, end: &Ended) -> u64 {
    let silent = Time::from_ms(SILENCE_MS + (place * 1_000 / RATE) as u64);
    end.at.since(silent).as_ms()
}

/// The ends of whole clips, and of clips at quiet places in their middle.
#[derive(Default)]
struct Measured {
    /// Behind the detector's last speech, ms.
    whole: Vec<u64>,
    /// Behind the voice, ms.
    paused: Vec<u64>,
}

impl Measured {
    /// Adds a clip, and up to `places` pauses in it.
    fn add(&mut self, kind: &str, clip: &Clip, places: usize) {
        let end = end_behind(clip, clip.samples.len()).expect("an end");
        print(&format!("{kind} whole"), &clip.name, &end);
        self.whole.push(end.wait_ms());
        for place in quiet_places(&clip.samples).into_iter().take(places) {
            let at = format!("{} at {:.2} s", clip.name, place as f64 / RATE as f64);
            let Some(end) = end_behind(clip, place) else {
                continue;
            };
            // Some speakers pause by themselves, after a whole sentence.
            match is_before(&end, place) {
                true => print(&format!("{kind} ended before"), &at, &end),
                false => {
                    print(&format!("{kind} pause"), &at, &end);
                    self.paused.push(wait_behind(place, &end));
                }
            }
        }
    }

    /// Adds the beginning of a request.
    fn add_beginning(&mut self, clip: &Clip) {
        let end = end_behind(clip, clip.samples.len()).expect("an end");
        print("beginning", &clip.name, &end);
        self.paused.push(wait_behind(clip.samples.len(), &end));
    }

    /// The wait that this percentage of the whole clips does not exceed.
    fn percentile(&self, percent: usize) -> u64 {
        let mut waits = self.whole.clone();
        waits.sort_unstable();
        waits[(waits.len() * percent).div_ceil(100).max(1) - 1]
    }

    /// How many of the pauses the agent speaks into, percent.
    fn spoken_into(&self) -> usize {
        let into = self.paused.iter().filter(|ms| **ms < PAUSE_MS).count();
        100 * into / self.paused.len().max(1)
    }

    fn report(&self, kind: &str) {
        println!(
            "{kind}: {} whole clips wait {} ms (p50), {} ms (p95); the agent speaks into {} % of {} pauses",
            self.whole.len(),
            self.percentile(50),
            self.percentile(95),
            self.spoken_into(),
            self.paused.len(),
        );
    }
}

fn print(kind: &str, name: &str, end: &Ended) {
    let marks = end.words.marks;
    let (ends, goes_on) = marks.map_or((-1.0, -1.0), |marks| (marks.ends, marks.goes_on));
    let asked = end.asked.map(|asked| asked.since(end.spoken).as_ms());
    println!(
        "{kind}\t{name}\t{}\t{:.3}\t{ends:.3}\t{goes_on:.3}\t{asked:?}\t{}\t{}",
        end.wait_ms(),
        end.sound.unwrap_or(-1.0),
        end.asks,
        end.words.text,
    );
}

/// Generated voices are hard for the rule: their melody ends no sentence, so that only the words and the marks
/// tell. Measured from the detector's last speech: 120 ms in the middle, 226 ms of 95 %; of 20 pauses the agent speaks
/// into 5.
#[test]
fn requests_end_soon_and_pauses_are_waited_out() {
    let mut questions = Measured::default();
    for clip in speech::questions() {
        questions.add("questions", clip, 1);
    }
    questions.report("questions");
    assert!(questions.percentile(50) <= 220);
    // One more of the twenty waits on a processor that rounds otherwise.
    assert!(questions.percentile(90) <= 560);
    assert!(questions.spoken_into() <= 40);
}

/// Requests for the shipped tools that stop before the value of a required argument. Spoken alone they sound like
/// whole sentences. Measured: the agent speaks into 3 of 10, two of which the recogniser takes for other words.
const BEGINNINGS: &str = "\
slt: What is the weather in
rms: Set a timer for
awb: How many kilometers are there in
kal16: What is twelve times
en-gb: Convert five miles to
slt: How much is fifty dollars in
rms: Tell me the weather for
awb: How warm is it in
en-gb: What is the square root of
kal16: Please set another timer for";

#[test]
fn requests_that_lack_an_argument_are_waited_for() {
    let mut beginnings = Measured::default();
    for clip in speech::spoken(BEGINNINGS) {
        beginnings.add_beginning(&clip);
    }
    assert!(beginnings.spoken_into() <= 40);
}

/// The weights of the rule are fitted to the first half of the recordings and to the generated clips; the
/// second half and the questions are held out. Measured there: 160 ms in the middle and 500 ms of 95 %; of 45
/// pauses the agent speaks into 33 %. Ten more follow a sentence after which the speaker had already paused; with
/// them it is 42 %.
#[test]
#[ignore = "measures recordings: make measure"]
fn recorded_requests_end_soon_and_pauses_are_waited_out() {
    let (mut fitted, mut held_out) = (Measured::default(), Measured::default());
    for (index, clip) in common::recorded_speech().iter().enumerate() {
        match index % 2 {
            0 => fitted.add("fitted", clip, 5),
            _ => held_out.add("held out", clip, 5),
        }
    }
    let (mut made, mut questions) = (Measured::default(), Measured::default());
    for clip in speech::clips() {
        made.add("made", clip, 2);
    }
    for clip in speech::questions() {
        questions.add("questions", clip, 1);
    }
    fitted.report("recordings, fitted");
    held_out.report("recordings, held out");
    made.report("generated, fitted");
    questions.report("questions, held out");
    assert!(held_out.percentile(95) <= 560);
    assert!(held_out.spoken_into() <= 40);
}
