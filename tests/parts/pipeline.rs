//! Tests the pipeline with real models: from audio to a turn's transcript, and from a question to
//! its answer.

use super::asr;
use crate::{common, support};
use common::{Clip, Errors, speech};
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use undertone::asr::{Asr, Hints, Recognised, WhisperOnnx};
use undertone::audio::{to_f32, to_i16};
use undertone::conversation::{
    BargeInPolicy, Conversation, EndOfTurnRule, Event, Input, Micros, Opening, Output, Policy,
    Samples, Time, TurnDetection, VadPolicy,
};
use undertone::prediction::{ExampleFiles, Matching, Router, Rules, Settings, Today};
use undertone::session::Observers;
use undertone::tools::{Declaration, declared};
use undertone::turn_model::{SmartTurn, TurnModel};
use undertone::vad::{self, Gated, SileroModel, Vad, WINDOW};

/// The models that hear, and a clock that is the position in the audio: hours of it can be heard
/// without waiting. A transcript takes 70 ms, a score 40 ms, a prediction 10 ms.
pub(super) struct HearingModels {
    silero: SileroModel,
    asr: WhisperOnnx,
    turn_model: SmartTurn,
    /// The shipped tools that may be predicted, and the sources that read words.
    tools: Arc<Vec<Arc<Declaration>>>,
    router: Router,
}

impl HearingModels {
    fn load() -> Self {
        let weights = common::weights();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools");
        let shipped = declared::load(&folder, &|_| None).unwrap();
        let registry = declared::registry(&shipped).unwrap();
        let files = ExampleFiles {
            embedder: weights.join("minilm"),
            cache: Some(support::real::cache().join("turns.json")),
        };
        let today = Today::default();
        let Settings { tools, .. } = Settings::of(&registry, files.clone(), today.clone());
        let mut matching = Matching::start(&tools, files, today.clone());
        matching.wait();
        Self {
            silero: SileroModel::load(&weights.join("silero/silero_vad.onnx")).unwrap(),
            asr: WhisperOnnx::load(&weights.join("whisper-tiny.en")).unwrap(),
            turn_model: SmartTurn::load(&weights.join("smart-turn/smart-turn-v3.2.onnx")).unwrap(),
            tools: tools
                .iter()
                .map(|(tool, _)| tool.clone())
                .collect::<Vec<_>>()
                .into(),
            router: Router::new(vec![
                Box::new(Rules::new(&tools, today).unwrap()),
                Box::new(matching),
            ]),
        }
    }

    /// The longest run of windows that the detector classifies as speech.
    fn longest(&self, audio: &[f32]) -> usize {
        let mut vad = Gated::new(self.silero.detector());
        let windows = audio.as_chunks::<WINDOW>().0.iter();
        let threshold = Policy::default().vad.threshold;
        let speech: Vec<bool> = windows
            .map(|window| vad.push(window).unwrap() >= threshold)
            .collect();
        let runs = speech.split(|speech| !speech);
        runs.map(<[bool]>::len).max().unwrap_or(0)
    }

    /// The transcripts of `audio`, turn by turn, with two seconds of silence on both sides.
    fn turns(&mut self, audio: &[f32]) -> Vec<String> {
        self.hear(audio, false).turns
    }

    /// How often the user is asked to repeat `audio`.
    fn asks_again(&mut self, audio: &[f32]) -> usize {
        self.hear(audio, true).asked_again
    }

    /// Feeds `audio` to an agent that answers its turns, or not.
    pub(super) fn hear(&mut self, audio: &[f32], respond: bool) -> Heard {
        let mut core = Conversation::new(Policy {
            turn_detection: TurnDetection {
                rule: EndOfTurnRule::Semantic,
                respond,
                interrupt: true,
                ..TurnDetection::default()
            },
            tools: self.tools.clone(),
            ..Policy::default()
        });
        self.feed(&mut core, audio, Heard::default())
    }

    /// Speaks `audio` over an agent that talks for a minute. Returns how long after the beginning of the audio it
    /// was stopped, ms; `None` if it was not.
    pub(super) fn stops(&mut self, audio: &[f32], barge_in: BargeInPolicy) -> Option<u64> {
        let stopped = self.over_the_voice(audio, barge_in).stopped;
        stopped.map(|at| at.since(Time::from_ms(1_000)).as_ms())
    }

    /// The turns that `audio` over such an agent becomes.
    pub(super) fn takes_turns(&mut self, audio: &[f32], barge_in: BargeInPolicy) -> Vec<String> {
        self.over_the_voice(audio, barge_in).turns
    }

    fn over_the_voice(&mut self, audio: &[f32], barge_in: BargeInPolicy) -> Heard {
        let policy = Policy::default();
        let mut core = Conversation::new(Policy {
            vad: VadPolicy {
                barge_in,
                ..policy.vad
            },
            opening: Opening::greeting("Once upon a time"),
            ..policy
        });
        let talks = Heard {
            talks: true,
            ..Heard::default()
        };
        self.feed(&mut core, audio, talks)
    }

    /// Feeds `audio` with a second of silence before it and two after it.
    fn feed(&mut self, core: &mut Conversation, audio: &[f32], mut heard: Heard) -> Heard {
        let mut padded = vec![0.0; 16_000];
        padded.extend(audio);
        padded.extend(vec![0.0; 2 * 16_000]);
        let mut vad = Gated::new(self.silero.detector());
        let mut due: Vec<(Time, Input)> = Vec::new();
        for (index, window) in padded.as_chunks::<WINDOW>().0.iter().enumerate() {
            let end = Samples(((index + 1) * WINDOW) as u64);
            let now = Time(end.0 * 1_000_000 / 16_000);
            let probability = vad.push(window).unwrap();
            let level = vad::level(window);
            let input = Input::Vad {
                end,
                probability,
                level,
            };
            core.handle_input(now, input);
            self.obey(core, now, &padded, &mut due, &mut heard);
            // What happens until the next window.
            for tick in 1..16 {
                let now = Time(now.0 + tick * 2_000);
                let (done, rest) = due.into_iter().partition(|(at, _)| *at <= now);
                due = rest;
                for (_, input) in done {
                    core.handle_input(now, input);
                }
                core.handle_timeout(now);
                self.obey(core, now, &padded, &mut due, &mut heard);
            }
        }
        heard
    }

    /// Does what the core wants done.
    fn obey(
        &mut self,
        core: &mut Conversation,
        now: Time,
        audio: &[f32],
        due: &mut Vec<(Time, Input)>,
        heard: &mut Heard,
    ) {
        let again = Policy::default().phrases.asr_failed;
        while let Some(output) = core.poll_output() {
            match output {
                Output::Transcribe {
                    request,
                    from,
                    to,
                    partial,
                } => {
                    let part = &audio[from.0 as usize..to.0 as usize];
                    let before = heard.known.as_ref().filter(|(begin, _)| *begin == from);
                    let hints = Hints {
                        partial,
                        so_far: before.map(|(_, words)| words.clone()),
                        ..Hints::default()
                    };
                    let recognised = self.asr.hear_with(part, &hints).unwrap();
                    if !recognised.text.is_empty() {
                        heard.known = Some((from, recognised.text.clone()));
                    }
                    if !partial || !recognised.text.is_empty() {
                        heard.last = recognised.clone();
                    }
                    let input = Input::Transcript {
                        request,
                        text: recognised.text,
                        marks: recognised.marks,
                        doubt: recognised.doubt,
                        provisional: false,
                    };
                    due.push((Time(now.0 + 70_000), input));
                }
                Output::ScoreEndOfTurn { request, from, to } => {
                    let part = &audio[from.0 as usize..to.0 as usize];
                    let probability = self.turn_model.completeness(part).unwrap();
                    heard.sound = Some(probability);
                    let input = Input::Completeness {
                        request,
                        probability,
                    };
                    due.push((Time(now.0 + 40_000), input));
                }
                Output::Route { request, heard } => {
                    let predictions = self.router.predict(&heard);
                    let input = Input::Predicted {
                        request,
                        predictions,
                    };
                    due.push((Time(now.0 + 10_000), input));
                }
                Output::Generate { .. } => {
                    heard.asked = Some(now);
                    heard.asks += 1;
                }
                Output::Notify(Event::SpeechStopped { at }) => {
                    let spoken = Time(at.0 * 1_000_000 / 16_000);
                    heard.ends.push(Ended {
                        spoken,
                        at: now,
                        asked: heard.asked.take(),
                        asks: std::mem::take(&mut heard.asks),
                        words: std::mem::take(&mut heard.last),
                        sound: heard.sound.take(),
                    });
                }
                Output::Notify(Event::UserItem { text, .. }) => heard.turns.push(text),
                Output::Speak { text, .. } if text == again => heard.asked_again += 1,
                Output::Speak { clause, .. } if heard.talks => {
                    let length = Micros::from_ms(60_000);
                    let made = Input::Synthesised {
                        clause,
                        length,
                        last: true,
                        word_ends: Vec::new(),
                    };
                    let sent = Input::Sent {
                        clause,
                        until: length,
                    };
                    due.extend([(now, made), (now, sent)]);
                }
                Output::Flush => heard.stopped = heard.stopped.or(Some(now)),
                _ => {}
            }
        }
    }
}

/// The turns recognised in a clip.
#[derive(Debug, Default)]
pub(super) struct Heard {
    pub(super) turns: Vec<String>,
    /// How often the user was asked to repeat it.
    asked_again: usize,
    /// The agent talks, and is to be interrupted; when it was.
    talks: bool,
    stopped: Option<Time>,
    /// The utterances that ended.
    pub(super) ends: Vec<Ended>,
    /// When the language model was last asked.
    asked: Option<Time>,
    /// How often it was.
    asks: usize,
    /// The latest results of recogniser and end-of-turn model.
    last: Recognised,
    sound: Option<f32>,
    /// The words that were last heard, and where their audio begins.
    known: Option<(Samples, String)>,
}

/// An utterance that ended.
#[derive(Debug, Clone)]
pub(super) struct Ended {
    /// When its last speech was heard.
    pub(super) spoken: Time,
    /// When it was decided that it is over.
    pub(super) at: Time,
    /// When the language model was asked for the answer.
    pub(super) asked: Option<Time>,
    /// How often it was asked.
    pub(super) asks: usize,
    /// The latest results of recogniser and end-of-turn model.
    pub(super) words: Recognised,
    pub(super) sound: Option<f32>,
}

impl Ended {
    /// From the last speech to the end of the turn, ms.
    pub(super) fn wait_ms(&self) -> u64 {
        self.at.since(self.spoken).as_ms()
    }
}

/// Runs `hear` with the models, which are loaded once and used by one test at a time.
pub(super) fn with_models<T>(hear: impl FnOnce(&mut HearingModels) -> T) -> T {
    static MODELS: LazyLock<Mutex<HearingModels>> =
        LazyLock::new(|| Mutex::new(HearingModels::load()));
    hear(&mut MODELS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The results of streaming clips.
struct Streamed {
    /// Word error rate, percent.
    errors: f64,
    turns: usize,
}

/// Streams the clips one after another; `line` processes the samples of each, given its index.
fn stream(clips: &[Clip], line: impl Fn(usize, &[f32]) -> Vec<f32>) -> Streamed {
    let (mut errors, mut turns) = (Errors::default(), 0);
    for (index, clip) in clips.iter().enumerate() {
        let samples = line(index, &clip.samples);
        let heard = with_models(|models| models.turns(&samples));
        let before = errors.wrong;
        errors.add(&clip.text, &heard.join(" "));
        turns += heard.len();
        if errors.wrong > before {
            println!("{}: {} wrong: {heard:?}", clip.name, errors.wrong - before);
        }
    }
    let (count, words, errors) = (clips.len(), errors.words, errors.percent());
    println!("streamed: {errors:.1} % of {words} words wrong, {turns} turns in {count} clips");
    Streamed { errors, turns }
}

/// The tests' own clips, streamed as they are.
fn clear_speech() -> &'static Streamed {
    static STREAMED: LazyLock<Streamed> = LazyLock::new(|| stream(speech::clips(), clear));
    &STREAMED
}

fn clear(_: usize, samples: &[f32]) -> Vec<f32> {
    samples.to_vec()
}

fn by_telephone(_: usize, samples: &[f32]) -> Vec<f32> {
    speech::over_the_telephone(samples)
}

/// Asserts that each clip is one turn, with three exceptions at most: a turn may end at a comma, or
/// be lost in noise. A turn must end within the two seconds of silence after it, or its words are
/// missing.
#[track_caller]
fn each_is_one_turn(clips: &[Clip], streamed: &Streamed) {
    let (turns, clips) = (streamed.turns, clips.len());
    assert!(turns.abs_diff(clips) <= 3, "{turns} turns in {clips} clips");
}

// The bounds for our own speech are at least 3 points above the measured values, eight of its 251
// words: another CPU's int8 kernels change a word here and there, not eight. Reversed speech gives
// 100 %.

/// Measured: 2.8 % whole, 3.2 % streamed.
#[test]
fn streaming_speech_costs_hardly_a_word() {
    let streamed = clear_speech();
    let whole = asr::whole_speech();
    assert!(
        streamed.errors <= whole + 3.5,
        "whole {whole:.1} %, streamed {:.1} %",
        streamed.errors
    );
    each_is_one_turn(speech::clips(), streamed);
}

#[test]
#[ignore = "measures recordings: make measure"]
fn streaming_recorded_speech_costs_at_most_one_point_of_word_errors() {
    let clips = common::recorded_speech();
    let (whole, streamed) = (asr::whole(&clips), stream(&clips, clear).errors);
    assert!(
        streamed <= whole + 1.0,
        "whole {whole:.1} %, streamed {streamed:.1} %"
    );
}

/// Measured: 5.2 %.
#[test]
fn speech_over_the_telephone_is_understood() {
    let streamed = stream(speech::clips(), by_telephone);
    assert!(streamed.errors <= 9.0, "{:.1} %", streamed.errors);
    each_is_one_turn(speech::clips(), &streamed);
}

#[test]
#[ignore = "measures recordings: make measure"]
fn recorded_speech_over_the_telephone_costs_at_most_three_points_of_word_errors() {
    let clips = common::recorded_speech();
    let (near, far) = (asr::whole(&clips), stream(&clips, by_telephone).errors);
    assert!(
        far <= near + 3.0,
        "{near:.1} %, over the telephone {far:.1} %"
    );
}

/// The samples with peaks at -36 dBFS, as PCM16.
pub(super) fn quiet(samples: &[f32]) -> Vec<f32> {
    let peak = samples.iter().fold(0.0_f32, |peak, s| peak.max(s.abs()));
    let gain = 10_f32.powf(-36.0 / 20.0) / peak;
    let quiet: Vec<f32> = samples.iter().map(|sample| sample * gain).collect();
    to_f32(&to_i16(&quiet))
}

#[test]
fn quiet_speech_is_understood_as_well_as_loud() {
    let loud = clear_speech();
    let quiet = stream(speech::clips(), |_, samples| quiet(samples));
    // Measured: 3.2 and 4.0 %.
    assert!(
        quiet.errors <= loud.errors + 3.0,
        "loud {:.1} %, quiet {:.1} %",
        loud.errors,
        quiet.errors
    );
    each_is_one_turn(speech::clips(), &quiet);
}

/// Measured: 6.8 %.
#[test]
fn speech_in_noise_is_understood() {
    let noises = [
        (speech::white(), 20.0),
        (speech::hum(), 15.0),
        (speech::babble(), 15.0),
    ];
    let streamed = stream(speech::clips(), |index, clip| {
        let (noise, snr) = &noises[index % noises.len()];
        speech::noisy(clip, noise, *snr)
    });
    assert!(streamed.errors <= 12.0, "{:.1} %", streamed.errors);
    each_is_one_turn(speech::clips(), &streamed);
}

fn no_turn(noise: &Clip, gain: f32) {
    let samples: Vec<f32> = noise.samples.iter().map(|sample| sample * gain).collect();
    let turns = with_models(|models| models.turns(&samples));
    assert!(turns.is_empty(), "{} at {gain}: {turns:?}", noise.name);
}

#[test]
fn noise_makes_no_turn_and_no_barge_in() {
    let interrupts = Policy::default().vad.interrupt_windows as usize;
    for noise in &speech::noises() {
        for gain in [4.0, 1.0, 0.25] {
            no_turn(noise, gain);
        }
        let longest = with_models(|models| models.longest(&noise.samples));
        println!("{}: {longest} windows of speech in a row", noise.name);
        assert!(longest < interrupts, "{}: {longest} windows", noise.name);
    }
}

#[test]
#[ignore = "measures recordings: make measure"]
fn recorded_noise_makes_no_turn() {
    for noise in &common::recorded_noise() {
        no_turn(noise, 1.0);
        no_turn(noise, 0.25);
        let asked = with_models(|models| models.asks_again(&noise.samples));
        assert_eq!(asked, 0, "{}", noise.name);
    }
}

/// Speech in a language that the recogniser does not support is transcribed without confidence.
/// Measured: 73 to 190 windows of certain speech, and none in the noises.
#[test]
fn the_user_is_asked_to_repeat_unintelligible_speech_but_not_noise() {
    for clip in &speech::foreign() {
        let heard = with_models(|models| models.hear(&clip.samples, true));
        assert_eq!(heard.asked_again, 1, "{}: {heard:?}", clip.name);
    }
    let babble = Clip {
        name: "a crowd".into(),
        samples: speech::at_level(&speech::babble(), -26.0),
        text: String::new(),
    };
    for noise in speech::noises().iter().chain([&babble]) {
        let asked = with_models(|models| models.asks_again(&noise.samples));
        assert_eq!(asked, 0, "{}", noise.name);
    }
}

/// Whisper takes some of these for noise and others for no word at all.
#[test]
fn a_short_answer_is_understood_or_asked_for_again() {
    for clip in &speech::short_answers() {
        let heard = with_models(|models| models.hear(&clip.samples, true));
        println!(
            "{}: {:?}, asked {}",
            clip.name, heard.turns, heard.asked_again
        );
        assert_eq!(heard.turns.len() + heard.asked_again, 1, "{}", clip.name);
    }
}

/// In real time with a real session: the question is synthesised, and the answer is transcribed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spoken_question_gets_a_spoken_answer() {
    let _alone = common::alone().await;
    let engines = support::real::shipped(|_| (), Observers::default());
    let question = question("What is twelve times seven?", 16_000);
    let answer = undertone::ask::ask(&engines, &question, None, &mut |_| {}).await;
    assert_eq!(
        answer.said,
        ["12 times 7 is 84."],
        "heard {:?}",
        answer.heard
    );
    let mut asr = WhisperOnnx::load(&common::weights().join("whisper-tiny.en")).unwrap();
    let heard = asr
        .transcribe(&undertone::audio::to_f32(&answer.audio))
        .unwrap();
    assert!(common::has_number(&heard, "84", "eighty four"), "{heard}");
    println!("{}", answer.breakdown().unwrap());
}

/// The text as speech, after half a second of silence.
fn question(text: &str, rate: u32) -> Vec<i16> {
    let mut speech = vec![0; rate as usize / 2];
    speech.extend(common::Booth::new(&common::weights()).say(text, rate));
    speech
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_example_is_answered() {
    let _alone = common::alone().await;
    let engines = support::real::shipped(|_| (), Observers::default());
    let listener = undertone::server::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let settings = undertone::server::ServerSettings {
        bind: address,
        ..undertone::server::ServerSettings::default()
    };
    let sessions =
        std::sync::Arc::new(move |options| Ok(undertone::session::open(&engines, &options)));
    let app = undertone::server::App::new(settings, sessions);
    let shutdown = tokio_util::sync::CancellationToken::new();
    let server = tokio::spawn(undertone::server::run(listener, app, shutdown.clone()));

    let folder = tempfile::tempdir().unwrap();
    let sum = pcm_24k(folder.path(), "What is twelve times seven?");
    let printed = documented_example(address, folder.path(), &sum).await;
    assert!(printed.contains("84"), "{printed}");
    shutdown.cancel();
    server.await.unwrap().unwrap();
}

/// Runs the Python example of `docs/realtime.md` verbatim except for the port. Returns its output.
async fn documented_example(
    address: std::net::SocketAddr,
    folder: &std::path::Path,
    question: &std::path::Path,
) -> String {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("docs/realtime.md")).unwrap();
    let (_, example) = page.split_once("```python\n").expect("an example");
    let (example, _) = example.split_once("```").expect("its end");
    let example = example.replace("127.0.0.1:8787", &address.to_string());
    assert!(example.contains(&address.to_string()), "another address");
    std::fs::copy(question, folder.join("question.pcm")).unwrap();
    let output = tokio::process::Command::new(root.join("tests/foreign/.venv/bin/python"))
        .args(["-c", &example])
        .current_dir(folder)
        .output()
        .await
        .expect("run `make test-tools`");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(std::fs::metadata(folder.join("answer.pcm")).unwrap().len() > 24_000);
    String::from_utf8(output.stdout).unwrap()
}

/// The text as speech in a file of mono PCM16LE at 24 kHz.
fn pcm_24k(folder: &std::path::Path, text: &str) -> std::path::PathBuf {
    let path = folder.join(format!("{}.pcm", text.len()));
    let speech = question(text, 24_000);
    std::fs::write(&path, undertone::audio::to_pcm16le(&speech)).unwrap();
    path
}
