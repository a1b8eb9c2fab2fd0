//! Tests the desktop assistant: echo cancellation and noise measured with the real models, and the
//! real program with virtual devices of PulseAudio, without a sound card.
//!
//! With `cargo test --features desktop --test desktop -- --nocapture`, `the_agents_own_voice`
//! prints the figures of the echo canceller. With `--ignored` as well, `noise_suppression` prints
//! those of noise suppression, and `webrtcs_own` those of WebRTC's original canceller in C++ (see
//! `scripts/webrtc_apm.py`).

#[allow(dead_code, reason = "each test program uses a part of it")]
mod common;

use aec3::audio_processing::ns::{NsConfig, SuppressionLevel};
use aec3::nodes::audio::AudioFormat;
use aec3::pipelines::linear;
use common::sound::{Program, Recorder, Sound, at_home, share_of_tones};
use common::speech::{clips, hiss, white};
use common::{Booth, Clip, Errors};
use nnnoiseless::DenoiseState;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio_tungstenite::tungstenite;
use undertone::asr::{Asr, WhisperOnnx};
use undertone::audio::{Resampler, from_pcm16le, level_dbfs, to_f32, to_i16, to_pcm16le};
use undertone::desktop::echo::{EchoCanceller, FRAME, RATE};
use undertone::desktop::sounds::{CHIME, WAITING};
use undertone::vad::{Gated, Silero, SileroModel, Vad, WINDOW};

const DELAYS_MS: [usize; 3] = [40, 150, 300];
const GAINS_DB: [f32; 3] = [-6.0, -12.0, -20.0];

/// Consecutive windows of speech that count as a barge-in, by the policy.
const INTERRUPTS: usize = 5;

/// The user's volume while the echo plays, relative to the voice.
const USER: f32 = 0.7;

/// Lets one test at a time run, since they play audio in real time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The echo of `played` at a microphone in a room: after `delay_ms`, with 100 ms of reverberation,
/// and a total gain of `gain_db`.
fn echo(played: &[f32], delay_ms: usize, gain_db: f32) -> Vec<f32> {
    let rate = RATE as usize;
    let mut random = hiss(7);
    let reflections = (1..40).map(|n| {
        let at = n * rate / 400;
        (at, 0.35 * random() * (-(n as f32) / 13.0).exp())
    });
    let path: Vec<(usize, f32)> = std::iter::once((0, 1.0)).chain(reflections).collect();
    let delay = delay_ms * rate / 1_000;
    let mut heard = vec![0.0; played.len()];
    for (at, gain) in path {
        let from = (delay + at).min(heard.len());
        for (sound, sample) in heard[from..].iter_mut().zip(played) {
            *sound += gain * sample;
        }
    }
    let gain = 10f32.powf((gain_db + level_dbfs(played) - level_dbfs(&heard)) / 20.0);
    heard.iter().map(|sample| sample * gain).collect()
}

/// Adds the noise of a quiet room, about -65 dBFS.
fn room(samples: &mut [f32]) {
    let mut random = hiss(3);
    for sample in samples {
        *sample += random() * 0.001;
    }
}

fn cancelled(played: &[f32], heard: &[f32]) -> Vec<f32> {
    let mut canceller = EchoCanceller::new().expect("a canceller");
    let frames = played.as_chunks::<FRAME>().0.iter();
    let frames = frames.zip(heard.as_chunks::<FRAME>().0);
    frames
        .flat_map(|(played, heard)| canceller.process(played, heard).expect("10 ms"))
        .collect()
}

/// The windows that the detector classifies as speech.
fn speech(detector: Silero, samples: &[f32]) -> Vec<bool> {
    let mut vad = Gated::new(detector);
    let windows = samples.as_chunks::<WINDOW>().0.iter();
    windows
        .map(|window| vad.push(window).expect("a verdict") >= 0.5)
        .collect()
}

/// The longest run of speech, windows.
fn longest(windows: &[bool]) -> usize {
    windows
        .split(|speech| !speech)
        .map(<[bool]>::len)
        .max()
        .unwrap_or(0)
}

/// Distorts it like a small loudspeaker at full volume.
fn distorted(samples: &[f32]) -> Vec<f32> {
    samples.iter().map(|s| (4.0 * s).tanh() / 4.0).collect()
}

/// A placement of the loudspeaker.
#[derive(Debug, Clone, Copy)]
struct Place {
    delay_ms: usize,
    gain_db: f32,
    /// Whether the loudspeaker distorts because it is turned up.
    distorts: bool,
}

fn places() -> impl Iterator<Item = Place> {
    let place = |distorts, delay_ms, gain_db| Place {
        delay_ms,
        gain_db,
        distorts,
    };
    let placed = move |d| DELAYS_MS.map(|delay| GAINS_DB.map(|gain| place(d, delay, gain)));
    [false, true].into_iter().flat_map(placed).flatten()
}

/// The figures of a canceller for one placement.
struct Figures {
    /// Echo return loss, dB, in the first second and from the third on.
    loss: (f32, f32),
    /// Longest speech of the agent alone, windows: uncancelled, in the first two seconds, later.
    raw: usize,
    first: usize,
    later: usize,
    /// Longest speech while the user talks over it, windows.
    user: usize,
    words: String,
}

const HEAD: &str = "               | echo return loss   | longest speech, windows of 32 ms\n\
    delay   echo   | 1st second, later  | uncancelled, 1st 2 s, later; user over it";

impl Figures {
    fn row(&self, place: Place) -> String {
        let (at_once, later) = self.loss;
        format!(
            "{:3} ms {:4} dB{} | {at_once:7.1} {later:7.1} dB | {:3}, {}, {}; {:3} {:?}",
            place.delay_ms,
            place.gain_db,
            if place.distorts { "*" } else { " " },
            self.raw,
            self.first,
            self.later,
            self.user,
            self.words
        )
    }

    fn understood(&self) -> bool {
        self.words.to_lowercase().contains("stop")
    }
}

/// The agent tells a story, and the user talks over it.
struct Scene {
    silero: SileroModel,
    asr: WhisperOnnx,
    agent: Vec<f32>,
    user: Vec<f32>,
}

impl Scene {
    fn load() -> Self {
        let weights = common::weights();
        let silero = SileroModel::load(&weights.join("silero/silero_vad.onnx"));
        let mut voice = common::steady_voice(&common::weights());
        Self {
            silero: silero.expect("a detector"),
            asr: WhisperOnnx::load(&weights.join("whisper-tiny.en")).expect("a recogniser"),
            agent: common::spoken(&mut voice, common::STORY, RATE),
            user: common::spoken(&mut voice, "Please stop that story now.", RATE),
        }
    }

    fn speech(&self, samples: &[f32]) -> Vec<bool> {
        speech(self.silero.detector(), samples)
    }

    /// `cancel` takes the played and the recorded audio, and returns the recorded audio without
    /// echo.
    fn measure(&mut self, place: Place, cancel: impl Fn(&[f32], &[f32]) -> Vec<f32>) -> Figures {
        let second = RATE as usize;
        let mut sound = self.agent.clone();
        if place.distorts {
            sound = distorted(&sound);
        }
        let mut heard = echo(&sound, place.delay_ms, place.gain_db);
        room(&mut heard);
        let clean = cancel(&self.agent, &heard);
        let loss = |range: std::ops::Range<usize>| {
            level_dbfs(&heard[range.clone()]) - level_dbfs(&clean[range])
        };
        let left = self.speech(&clean);
        let (first, later) = left.split_at(2 * second / WINDOW);

        let begin = 8 * second;
        let end = begin + self.user.len();
        let mut both = heard.clone();
        for (sound, sample) in both[begin..].iter_mut().zip(&self.user) {
            *sound += sample * USER;
        }
        let clean_both = cancel(&self.agent, &both);
        let found = self.speech(&clean_both);
        let around = begin - second / 2..end + second / 2;
        Figures {
            loss: (loss(0..second), loss(2 * second..clean.len())),
            raw: longest(&self.speech(&heard)),
            first: longest(first),
            later: longest(later),
            user: longest(&found[begin / WINDOW..end / WINDOW]),
            words: self.asr.transcribe(&clean_both[around]).expect("words"),
        }
    }
}

#[test]
fn the_agents_own_voice_is_no_interruption_and_the_users_is() {
    let _alone = alone();
    let mut scene = Scene::load();
    let mut understood = Vec::new();
    println!("{HEAD}");
    for place in places() {
        let figures = scene.measure(place, cancelled);
        let row = figures.row(place);
        println!("{row}");
        assert!(
            figures.raw > INTERRUPTS,
            "the echo is no speech to begin with: {row}"
        );
        assert!(
            figures.first.max(figures.later) < INTERRUPTS,
            "it interrupts itself: {row}"
        );
        assert!(
            figures.user >= 2 * INTERRUPTS,
            "the user is not heard: {row}"
        );
        assert!(figures.loss.1 > 15.0, "{row}");
        understood.push(figures.understood());
    }
    println!("* the loudspeaker distorts");
    // A word under the story may be misheard; which one depends on the machine.
    let right = understood.iter().filter(|right| **right).count();
    assert!(
        right >= understood.len() * 3 / 4,
        "understood {right} times"
    );
}

/// The output of WebRTC's own canceller, by `scripts/webrtc_apm.py`.
fn cancelled_by_webrtc(played: &[f32], heard: &[f32]) -> Vec<f32> {
    let python = std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into());
    let mut script = Command::new(python)
        .arg("scripts/webrtc_apm.py")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Python");
    let pairs = to_i16(played).into_iter().zip(to_i16(heard));
    let pairs: Vec<i16> = pairs.flat_map(|(played, heard)| [played, heard]).collect();
    let mut stdin = script.stdin.take().expect("stdin");
    stdin.write_all(&to_pcm16le(&pairs)).expect("it reads");
    drop(stdin);
    let mut left = Vec::new();
    let mut stdout = script.stdout.take().expect("stdout");
    stdout.read_to_end(&mut left).expect("it writes");
    assert!(script.wait().expect("its end").success());
    to_f32(&from_pcm16le(&left).expect("whole samples"))
}

#[test]
#[ignore = "a measurement; it needs a package from PyPI"]
fn webrtcs_own_canceller_with_the_same_placements() {
    let mut scene = Scene::load();
    for (name, cancel) in [
        ("aec3", cancelled as fn(&[f32], &[f32]) -> Vec<f32>),
        ("WebRTC", cancelled_by_webrtc),
    ] {
        println!("{name}\n{HEAD}");
        let figures: Vec<Figures> = places()
            .map(|place| {
                let figures = scene.measure(place, cancel);
                println!("{}", figures.row(place));
                figures
            })
            .collect();
        let count = |is: fn(&Figures) -> bool| figures.iter().filter(|f| is(f)).count();
        let mean =
            |of: fn(&Figures) -> f32| figures.iter().map(of).sum::<f32>() / figures.len() as f32;
        println!(
            "{name}: of {} places it interrupts itself in {}, misses the user in {}, understands in \
             {}; mean loss {:.1} dB in the first second, {:.1} dB later; the user is speech for {:.1} \
             windows\n",
            figures.len(),
            count(|f| f.first.max(f.later) >= INTERRUPTS),
            count(|f| f.user < INTERRUPTS),
            count(Figures::understood),
            mean(|f| f.loss.0),
            mean(|f| f.loss.1),
            mean(|f| f.user as f32),
        );
    }
}

/// Without playback the canceller must not degrade recognition: the word error rate rises by at
/// most `points` percentage points.
fn heard_as_well_behind_the_canceller(clips: &[Clip], points: f64) {
    let _alone = alone();
    let mut asr =
        WhisperOnnx::load(&common::weights().join("whisper-tiny.en")).expect("the recogniser");
    let (mut before, mut after) = (Errors::default(), Errors::default());
    for clip in clips {
        let clean = cancelled(&vec![0.0; clip.samples.len()], &clip.samples);
        before.add(&clip.text, &asr.transcribe(&clip.samples).expect("words"));
        after.add(&clip.text, &asr.transcribe(&clean).expect("words"));
    }
    let (before, after) = (before.percent(), after.percent());
    println!("word errors: {before:.1} % before the canceller, {after:.1} % behind it");
    assert!(after <= before + points, "{before:.1} %, {after:.1} %");
}

#[test]
fn without_an_echo_the_canceller_costs_no_words() {
    heard_as_well_behind_the_canceller(clips(), 2.0);
}

#[test]
#[ignore = "measures recordings: make measure"]
fn without_an_echo_the_canceller_costs_no_words_of_recorded_speech() {
    heard_as_well_behind_the_canceller(&common::recorded_speech(), 1.0);
}

/// A noise suppressor behind the canceller.
type Suppressor = fn(&[f32]) -> Vec<f32>;

const SUPPRESSORS: [(&str, Suppressor); 4] = [
    ("none", |heard| cancelled(&vec![0.0; heard.len()], heard)),
    ("WebRTC 6 dB", |heard| {
        by_webrtc(heard, SuppressionLevel::K6dB)
    }),
    ("WebRTC 12 dB", |heard| {
        by_webrtc(heard, SuppressionLevel::K12dB)
    }),
    ("RNNoise", by_rnnoise),
];

/// WebRTC's suppressor behind the canceller.
fn by_webrtc(heard: &[f32], target_level: SuppressionLevel) -> Vec<f32> {
    let format = AudioFormat::ten_ms(RATE, 1);
    let config = NsConfig {
        target_level,
        ..NsConfig::default()
    };
    let mut pipeline = linear::builder(format, format)
        .noise_suppression_config(config)
        .enable_gain_controller2(false)
        .enable_post_filter(false)
        .build()
        .expect("a pipeline");
    let mut clean = vec![0.0; heard.len() / FRAME * FRAME];
    for (heard, clean) in heard.chunks_exact(FRAME).zip(clean.chunks_exact_mut(FRAME)) {
        pipeline.handle_render_frame(&[0.0; FRAME]).expect("10 ms");
        pipeline.process_capture_frame(heard, clean).expect("10 ms");
    }
    clean
}

/// RNNoise behind the canceller. It works at 48 kHz on samples scaled to 16 bits.
fn by_rnnoise(heard: &[f32]) -> Vec<f32> {
    const FULL: f32 = 32_768.0;
    let clean = cancelled(&vec![0.0; heard.len()], heard);
    let mut up = Resampler::new(RATE, 48_000);
    let mut wide = up.push(&clean);
    wide.extend(up.flush());
    let mut denoise = DenoiseState::new();
    let mut quiet = [0.0; DenoiseState::FRAME_SIZE];
    let mut down = Resampler::new(48_000, RATE);
    let mut out = Vec::with_capacity(clean.len());
    for frame in wide.chunks_exact(DenoiseState::FRAME_SIZE) {
        let frame: Vec<f32> = frame.iter().map(|sample| sample * FULL).collect();
        denoise.process_frame(&mut quiet, &frame);
        out.extend(down.push(&quiet.map(|sample| sample / FULL)));
    }
    out.extend(down.flush());
    out.resize(clean.len(), 0.0);
    out
}

/// `speech` with a second of silence on both sides, mixed with `noise` that is `snr_db` quieter.
fn mixed(speech: &[f32], noise: &[f32], snr_db: f32) -> Vec<f32> {
    let gain = 10f32.powf((level_dbfs(speech) - level_dbfs(noise) - snr_db) / 20.0);
    let mut samples = aside(speech);
    for (sample, noise) in samples.iter_mut().zip(noise.iter().cycle()) {
        *sample += noise * gain;
    }
    samples
}

/// `speech` with a second of silence on both sides.
fn aside(speech: &[f32]) -> Vec<f32> {
    let second = [0.0; RATE as usize];
    [&second, speech, &second].concat()
}

/// A detector's windows on noisy speech, compared with those on clean speech.
#[derive(Default)]
struct Detected {
    speech: usize,
    missed: usize,
    silence: usize,
    invented: usize,
}

impl Detected {
    fn add(&mut self, clean: &[bool], noisy: &[bool]) {
        for (clean, noisy) in clean.iter().zip(noisy) {
            if *clean {
                self.speech += 1;
                self.missed += usize::from(!noisy);
            } else {
                self.silence += 1;
                self.invented += usize::from(*noisy);
            }
        }
    }
}

fn percent(part: usize, of: usize) -> f64 {
    100.0 * part as f64 / of.max(1) as f64
}

/// Consecutive windows of speech that start an utterance, by the policy.
const UTTERANCE: usize = 3;

#[test]
#[ignore = "a measurement of many minutes"]
fn noise_suppression_for_the_recogniser_and_for_the_detector() {
    let (clips, mut noises) = (common::recorded_speech(), common::recorded_noise());
    let weights = common::weights();
    let silero = SileroModel::load(&weights.join("silero/silero_vad.onnx")).expect("a detector");
    let mut asr = WhisperOnnx::load(&weights.join("whisper-tiny.en")).expect("the recogniser");
    noises.push(Clip {
        name: "white noise".into(),
        text: String::new(),
        samples: white(),
    });

    println!("noise alone: windows of speech, and in brackets runs that begin an utterance");
    for noise in &noises {
        for level in [-20.0, -30.0, -40.0] {
            let gain = 10f32.powf((level - level_dbfs(&noise.samples)) / 20.0);
            let heard: Vec<f32> = noise.samples.iter().map(|sample| sample * gain).collect();
            let cells = SUPPRESSORS.map(|(name, suppress)| {
                let windows = speech(silero.detector(), &suppress(&heard));
                let runs = windows.split(|speech| !speech);
                let utterances = runs.filter(|run| run.len() >= UTTERANCE).count();
                let count = windows.iter().filter(|speech| **speech).count();
                format!("{name} {count} ({utterances})")
            });
            let all = heard.len() / WINDOW;
            println!(
                "{:>18} {level} dBFS, of {all}: {}",
                noise.name,
                cells.join(", ")
            );
        }
    }

    println!("speech: word errors; speech that is missed, silence that is taken for speech");
    let calm: Vec<Vec<bool>> = clips
        .iter()
        .map(|clip| {
            let heard = aside(&clip.samples);
            speech(silero.detector(), &SUPPRESSORS[0].1(&heard))
        })
        .collect();
    let mut row = |title: String, hear: &dyn Fn(&[f32]) -> Vec<f32>| {
        let cells = SUPPRESSORS.map(|(name, suppress)| {
            let (mut errors, mut detected) = (Errors::default(), Detected::default());
            for (clip, calm) in clips.iter().zip(&calm) {
                let clean = suppress(&hear(&clip.samples));
                errors.add(&clip.text, &asr.transcribe(&clean).expect("words"));
                detected.add(calm, &speech(silero.detector(), &clean));
            }
            format!(
                "{name} {:.1} %; {:.1} %, {:.1} %",
                errors.percent(),
                percent(detected.missed, detected.speech),
                percent(detected.invented, detected.silence)
            )
        });
        println!("{title:>24} | {}", cells.join(" | "));
    };
    row("clean".into(), &aside);
    for noise in &noises {
        for snr in [20.0, 10.0, 5.0, 0.0] {
            let title = format!("{} {snr} dB", noise.name);
            row(title, &|speech| mixed(speech, &noise.samples, snr));
        }
    }
}

fn understood(samples: &[f32]) -> String {
    let mut asr =
        WhisperOnnx::load(&common::weights().join("whisper-tiny.en")).expect("the recogniser");
    asr.transcribe(samples).expect("words")
}

/// The question, with half a second of silence before it.
fn question() -> Vec<f32> {
    asked("What is twelve times seven?")
}

fn asked(text: &str) -> Vec<f32> {
    let mut samples = vec![0.0; RATE as usize / 2];
    samples.extend(to_f32(&Booth::new(&common::weights()).say(text, RATE)));
    samples
}

fn is_right(answer: &str) -> bool {
    answer.ends_with("12 times 7 is 84.")
}

/// Waits until the loudspeaker says the number.
fn is_heard_saying(recorder: &mut Recorder, digits: &str, spelt: &str) {
    let mut heard = Vec::new();
    for _ in 0..5 {
        heard.push(understood(&recorder.utterance()));
        if common::has_number(&heard[heard.len() - 1], digits, spelt) {
            return;
        }
    }
    panic!("{digits} is never heard: {heard:?}");
}

#[test]
fn a_question_into_the_microphone_is_answered_on_the_loudspeaker() {
    let _alone = alone();
    let sound = Sound::start();
    let question = question();
    let mut talk = sound.undertone(&["talk"]);
    talk.line("microphone mic, ");
    let mut recorder = Recorder::start(&sound);
    talk.ask(&sound, &question, is_right);
    is_heard_saying(&mut recorder, "84", "eighty four");
    talk.interrupt();
}

/// The echo of two virtual devices, which keep time with threads of their own, comes now sooner, now later on a busy
/// machine; nobody can cancel that. So it may make the agent pause, and the agent gets three tries to tell its story until
/// the user interrupts. One that hears itself answers itself in all of them.
#[test]
fn the_agents_own_echo_does_not_interrupt_it() {
    let _alone = alone();
    let sound = Sound::start();
    let question = question();
    let greeting = format!("[session]\ngreeting = {:?}\n", common::STORY);
    std::fs::write(sound.path().join("undertone.toml"), greeting).expect("a file");
    sound.loop_back();
    let mut interrupted = Vec::new();
    let mut talk = loop {
        let mut recorder = Recorder::start(&sound);
        let mut talk = sound.undertone(&["talk"]);
        if recorder.hears_sound(8) {
            sound.say(&question);
            let told = talk.said_before_the_first_turn();
            assert!(
                told.len() < common::STORY.len() - 50,
                "nobody interrupted it: {told}"
            );
            if told.len() > 100 {
                break talk;
            }
        }
        interrupted.push(talk.interrupt());
        assert!(
            interrupted.len() < 3,
            "it interrupted itself: {interrupted:#?}"
        );
    };
    talk.answers(&sound, &question, is_right);
    // The answer's echo does not become a turn either.
    let before = turns(&talk.seen);
    let mut silence = Recorder::start(&sound);
    (0..30).for_each(|_| silence.next());
    let seen = talk.interrupt();
    assert_eq!(turns(&seen), before, "{seen:?}");
}

#[test]
fn talk_works_with_a_server_and_enter_unmutes_the_microphone() {
    let _alone = alone();
    let sound = Sound::start();
    let question = question();
    let mut serve = sound.command(env!("CARGO_BIN_EXE_undertone"));
    serve
        .args(["serve", "--port", "0"])
        .env("UNDERTONE_AUTH_TOKEN", "a-token-for-the-test");
    let mut server = Program::start(serve);
    let address = server.line("undertone listens on http://");
    let url = address.replace("undertone listens on http://", "ws://");

    let stranger = sound
        .command(env!("CARGO_BIN_EXE_undertone"))
        .args(["talk", "--server", &url])
        .output()
        .expect("the program");
    assert_eq!(stranger.status.code(), Some(1));
    let error = String::from_utf8_lossy(&stranger.stderr).into_owned();
    assert!(error.contains("UNDERTONE_AUTH_TOKEN"), "{error}");

    let mut talk = sound.command(env!("CARGO_BIN_EXE_undertone"));
    talk.args(["talk", "--push-to-talk", "--server", &url])
        .env("UNDERTONE_AUTH_TOKEN", "a-token-for-the-test");
    let mut talk = Program::start(talk);
    talk.line("microphone mic, ");
    sound.say(&question);
    talk.press_enter();
    talk.line("(listening)");
    assert!(
        !talk.seen.iter().any(|line| line.starts_with("you:")),
        "{:?}",
        talk.seen
    );
    let mut recorder = Recorder::start(&sound);
    talk.ask(&sound, &question, is_right);
    is_heard_saying(&mut recorder, "84", "eighty four");
    talk.interrupt();
}

#[test]
fn say_and_ask_play_on_the_loudspeaker() {
    let _alone = alone();
    let sound = Sound::start();
    let mut recorder = Recorder::start(&sound);
    let say = sound.undertone(&["say", "Twelve times seven is eighty four.", "--play"]);
    is_heard_saying(&mut recorder, "84", "eighty four");
    say.ends();

    sound.write("question.wav", &question());
    // On a busy machine the agent may give up on the recogniser.
    for _ in 0..5 {
        let mut recorder = Recorder::start(&sound);
        let ask = sound.undertone(&["ask", "question.wav", "--play", "--out", "answer.wav"]);
        if ask.ends().iter().any(|line| is_right(line)) {
            is_heard_saying(&mut recorder, "84", "eighty four");
            assert!(sound.path().join("answer.wav").exists());
            return;
        }
    }
    panic!("never answered");
}

#[test]
fn without_a_loudspeaker_play_is_refused_before_anything_is_loaded() {
    let home = tempfile::tempdir().expect("a folder");
    let nothing = home.path().join("asound.conf");
    std::fs::write(&nothing, "").expect("a file");
    let output = at_home(Command::new(env!("CARGO_BIN_EXE_undertone")), home.path())
        .env("ALSA_CONFIG_PATH", &nothing)
        .args(["say", "Hello.", "--play"])
        .output()
        .expect("the program");
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let last = error.lines().last().expect("an error");
    assert!(
        last.starts_with("error: cannot play the speech: ") && last.contains("--play=NAME"),
        "{error}"
    );
}

/// The pitches of the chime with their overtones, Hz.
fn chime() -> Vec<f32> {
    let notes = CHIME.iter().map(|(_, pitch)| pitch);
    notes
        .flat_map(|pitch| [1.0, 2.0, 3.0].map(|n| n * pitch))
        .collect()
}

fn turns(seen: &[String]) -> usize {
    seen.iter().filter(|line| line.starts_with("you:")).count()
}

#[test]
fn a_timer_chimes_before_its_words_and_the_chime_is_no_turn() {
    let _alone = alone();
    let sound = Sound::start();
    sound.loop_back();
    let mut recorder = Recorder::start(&sound);
    let mut talk = sound.undertone(&["talk"]);
    talk.line("microphone mic, ");
    let question = asked("Set a timer for five seconds.");
    talk.ask(&sound, &question, |answer| {
        answer.contains(" 5 ") && answer.contains("is set")
    });
    let before = turns(&talk.seen);
    // A loudspeaker that stutters on a busy machine blurs them; speech has far less there.
    recorder.tones(&chime(), 0.6);
    let told = talk.line("agent:");
    assert!(told.starts_with("agent: Your 5"), "{told}");
    assert_eq!(turns(&talk.seen), before, "{:?}", talk.seen);
    talk.interrupt();
}

#[test]
fn a_long_tool_is_heard_quietly_until_the_answer_and_is_no_turn() {
    const TOOL: &str = r#"
name = "get_disk_space"
kind = "subprocess"
description = "How much space is used on this machine's disk."
effect = "read"
timeout_ms = 20000
answer = "{{ result|trim }} of the disk is used."

[subprocess]
argv = ["sh", "-c", "sleep 12; echo '84%'"]
output = "text"
network = false

[router]
examples = ["how full is the disk", "how much disk space is used"]
"#;
    let _alone = alone();
    let sound = Sound::start();
    let tools = sound.path().join("tools");
    std::fs::create_dir(&tools).expect("a folder");
    std::fs::write(tools.join("disk_space.toml"), TOOL).expect("a file");
    sound.loop_back();
    let mut recorder = Recorder::start(&sound);
    let mut talk = sound.undertone(&["talk"]);
    talk.line("microphone mic, ");
    let question = asked("How full is the disk?");
    sound.say(&question);
    recorder.tones(&WAITING, 0.9);
    talk.answers(&sound, &question, |answer| answer.contains("of the disk"));
    let before = turns(&talk.seen);
    Recorder::start(&sound).silence();
    let rest = recorder.until_now();
    let tenths: Vec<&[f32]> = rest.chunks(RATE as usize / 10).collect();
    let last = tenths
        .iter()
        .rposition(|tenth| share_of_tones(tenth, &WAITING) > 0.9);
    let after = last.map_or(&tenths[..], |last| &tenths[last + 1..]);
    let speech = after.iter().filter(|tenth| level_dbfs(tenth) > -40.0);
    assert!(speech.count() > 5, "the sound outlasts the answer");
    assert_eq!(turns(&talk.seen), before, "{:?}", talk.seen);
    talk.interrupt();
}

/// A server that accepts one connection and passes on the audio it receives.
fn taking_a_call() -> (String, Receiver<Vec<i16>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("ws://{}", listener.local_addr().expect("an address"));
    let (heard, hears) = sync_channel(100_000);
    std::thread::spawn(move || {
        let (client, _) = listener.accept().expect("a client");
        let mut socket = tungstenite::accept(client).expect("a WebSocket");
        let ready = r#"{"type":"ready","sample_rate":24000}"#;
        socket.send(ready.into()).expect("sent");
        while let Ok(message) = socket.read() {
            if message.is_binary() {
                let samples = from_pcm16le(&message.into_data()).expect("whole samples");
                if heard.send(samples).is_err() {
                    return;
                }
            }
        }
    });
    (url, hears)
}

/// Plays a tone into the microphone until the server hears it, and returns how loud it is at most, dBFS.
fn is_heard(sound: &Sound, hears: &Receiver<Vec<i16>>) -> f32 {
    let tone: Vec<f32> = (0..RATE).map(|n| 0.3 * (n as f32 * 0.2).sin()).collect();
    for _ in 0..20 {
        hears.try_iter().for_each(drop);
        sound.say(&tone);
        let levels = hears.try_iter().map(|frame| level_dbfs(&to_f32(&frame)));
        let loudest = levels.fold(f32::MIN, f32::max);
        if loudest > -30.0 {
            return loudest;
        }
    }
    panic!("the microphone is dead");
}

/// Headsets and sound cards on USB often have 24 bits: they were refused.
#[test]
fn devices_of_24_bits_are_opened_and_sound_right() {
    let _alone = alone();
    let sound = Sound::start();
    let modules = [
        "module-null-sink sink_name=card format=s24le",
        "module-remap-source master=mic_in.monitor source_name=headset format=s24le",
    ];
    for module in modules {
        let load = std::iter::once("load-module").chain(module.split(' '));
        sound.pactl(&load.collect::<Vec<_>>());
    }
    let (url, hears) = taking_a_call();
    let mut talk = sound.undertone(&[
        "talk", "--server", &url, "--input", "headset", "--output", "card",
    ]);
    talk.line("microphone headset, ");
    let heard = is_heard(&sound, &hears);
    // It was played at -13 dBFS. Without their sign, negative samples are as loud as can be.
    assert!(heard < -8.0, "{heard} dBFS");
    talk.interrupt();
}

#[test]
fn devices_that_fail_right_after_opening_are_opened_again() {
    let _alone = alone();
    let sound = Sound::start();
    let (url, hears) = taking_a_call();
    let mut talk = sound.undertone(&["talk", "--server", &url]);
    talk.line("microphone mic, ");
    let mut stream = None;
    for _ in 0..2 {
        let opened = sound.stream(stream);
        sound.kill_stream(opened);
        stream = Some(opened);
    }
    sound.stream(stream);
    is_heard(&sound, &hears);
    talk.interrupt();
}

#[test]
fn a_sound_system_that_ends_during_a_conversation_is_reported() {
    let _alone = alone();
    let mut sound = Sound::start();
    let (url, hears) = taking_a_call();
    let mut talk = sound.command(env!("CARGO_BIN_EXE_undertone"));
    let mut talk = talk
        .args(["talk", "--server", &url])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program");
    is_heard(&sound, &hears);
    sound.stop();
    let mut error = String::new();
    let mut stderr = talk.stderr.take().expect("stderr");
    stderr.read_to_string(&mut error).expect("text");
    assert_eq!(talk.wait().expect("its end").code(), Some(1));
    let last = error.lines().last().expect("an error");
    assert!(last.contains("is gone: "), "{error}");
}

/// Runs `undertone talk` where ALSA has no devices.
fn without_devices(arguments: &[&str]) -> (Option<i32>, String) {
    let home = tempfile::tempdir().expect("a folder");
    let nothing = home.path().join("asound.conf");
    std::fs::write(&nothing, "").expect("a file");
    let output = at_home(Command::new(env!("CARGO_BIN_EXE_undertone")), home.path())
        .env("ALSA_CONFIG_PATH", &nothing)
        .arg("talk")
        .args(arguments)
        .output()
        .expect("the program");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), stderr)
}

#[test]
fn without_a_sound_card_the_error_says_what_to_do() {
    let (code, error) = without_devices(&[]);
    assert_eq!(code, Some(1));
    let last = error.lines().last().expect("an error");
    assert!(
        last.starts_with("error: cannot open the microphone"),
        "{error}"
    );
    assert!(
        last.contains("--input") && last.contains("--list-devices"),
        "{error}"
    );

    let (code, error) = without_devices(&["--input", "the good one"]);
    assert_eq!(code, Some(1));
    assert!(
        error.contains("no microphone \"the good one\" (--input)"),
        "{error}"
    );
}
