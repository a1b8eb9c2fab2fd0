//! From sound to the transcript of a turn, and from a question to its answer, with real models.

use crate::{common, support};
use common::{Clip, Errors};
use std::collections::VecDeque;
use undertone::asr::{Asr, WhisperOnnx};
use undertone::audio::g711::{self, Law};
use undertone::audio::{Resampler, to_f32, to_i16};
use undertone::conversation::{
    Conversation, EndOfTurnRule, Event, Input, Output, Policy, Samples, Time, TurnDetection,
};
use undertone::session::Witnesses;
use undertone::turn_model::{SmartTurn, TurnModel};
use undertone::vad::{Gated, SileroModel, Vad, WINDOW};

/// The models that hear, and a clock that is the position in the audio: hours of it can be heard
/// without waiting. A transcript takes 70 ms, a score 40 ms.
struct Ears {
    silero: SileroModel,
    asr: WhisperOnnx,
    turn_model: SmartTurn,
}

impl Ears {
    fn load() -> Self {
        let weights = common::weights();
        Self {
            silero: SileroModel::load(&weights.join("silero/silero_vad.onnx")).unwrap(),
            asr: WhisperOnnx::load(&weights.join("whisper-tiny.en")).unwrap(),
            turn_model: SmartTurn::load(&weights.join("smart-turn/smart-turn-v3.2.onnx")).unwrap(),
        }
    }

    /// What is understood of `audio`, turn by turn, with two seconds of silence around it.
    fn turns(&mut self, audio: &[f32]) -> Vec<String> {
        let mut core = Conversation::new(Policy {
            turn_detection: TurnDetection {
                rule: EndOfTurnRule::Semantic,
                respond: false,
                interrupt: true,
                ..TurnDetection::default()
            },
            ..Policy::default()
        });
        let mut padded = vec![0.0; 16_000];
        padded.extend(audio);
        padded.extend(vec![0.0; 2 * 16_000]);
        let mut vad = Gated::new(self.silero.detector());
        let mut due: VecDeque<(Time, Input)> = VecDeque::new();
        let mut turns = Vec::new();
        for (index, window) in padded.as_chunks::<WINDOW>().0.iter().enumerate() {
            let end = Samples(((index + 1) * WINDOW) as u64);
            let now = Time(end.0 * 1_000_000 / 16_000);
            while due.front().is_some_and(|(at, _)| *at <= now) {
                let (at, input) = due.pop_front().unwrap();
                core.handle_input(at, input);
            }
            core.handle_timeout(now);
            let probability = vad.push(window).unwrap();
            core.handle_input(now, Input::Vad { end, probability });
            while let Some(output) = core.poll_output() {
                match output {
                    Output::Transcribe {
                        request,
                        from,
                        to,
                        partial,
                    } => {
                        let text = if partial {
                            String::new()
                        } else {
                            self.asr
                                .transcribe(&padded[from.0 as usize..to.0 as usize])
                                .unwrap()
                        };
                        due.push_back((Time(now.0 + 70_000), Input::Transcript { request, text }));
                    }
                    Output::ScoreEndOfTurn { request, from, to } => {
                        let heard = &padded[from.0 as usize..to.0 as usize];
                        let probability = self.turn_model.completeness(heard).unwrap();
                        let input = Input::Completeness {
                            request,
                            probability,
                        };
                        due.push_back((Time(now.0 + 70_000), input));
                    }
                    Output::Notify(Event::UserItem { text, .. }) => turns.push(text),
                    _ => {}
                }
            }
        }
        turns
    }
}

#[test]
fn streaming_costs_at_most_one_point_of_word_errors() {
    let Some(clips) = common::speech() else {
        return;
    };
    let mut ears = Ears::load();
    let (mut whole, mut streamed) = (Errors::default(), Errors::default());
    for clip in &clips {
        whole.add(&clip.text, &ears.asr.transcribe(&clip.samples).unwrap());
        let before = streamed.wrong;
        let turns = ears.turns(&clip.samples);
        streamed.add(&clip.text, &turns.join(" "));
        if streamed.wrong > before {
            println!(
                "{}: {} wrong: {turns:?}",
                clip.name,
                streamed.wrong - before
            );
        }
    }
    let (whole, streamed) = (whole.percent(), streamed.percent());
    println!("whole {whole:.1} %, streamed {streamed:.1} %");
    assert!(
        streamed <= whole + 1.0,
        "whole {whole:.1} %, streamed {streamed:.1} %"
    );
}

/// What is left of a clip after a telephone line: 8 kHz and the µ-law.
fn over_the_telephone(samples: &[f32]) -> Vec<f32> {
    let resampled = |samples: &[f32], from, to| {
        let mut resampler = Resampler::new(from, to);
        let mut all = resampler.push(samples);
        all.extend(resampler.flush());
        all
    };
    let line = to_i16(&resampled(samples, 16_000, g711::RATE));
    let heard = Law::Mu.decode(&Law::Mu.encode(&line));
    resampled(&to_f32(&heard), g711::RATE, 16_000)
}

#[test]
fn the_telephone_costs_at_most_three_points_of_word_errors() {
    let Some(clips) = common::speech() else {
        return;
    };
    let mut ears = Ears::load();
    let (mut near, mut far) = (Errors::default(), Errors::default());
    for clip in &clips {
        near.add(&clip.text, &ears.asr.transcribe(&clip.samples).unwrap());
        let turns = ears.turns(&over_the_telephone(&clip.samples));
        far.add(&clip.text, &turns.join(" "));
    }
    let (near, far) = (near.percent(), far.percent());
    println!("whole clips at 16 kHz {near:.1} %, streamed over the telephone {far:.1} %");
    assert!(
        far <= near + 3.0,
        "{near:.1} %, over the telephone {far:.1} %"
    );
}

#[test]
fn noise_is_no_turn() {
    let Some(clips) = common::noise() else { return };
    let mut ears = Ears::load();
    for Clip { name, samples, .. } in clips {
        for gain in [1.0, 0.25] {
            let louder: Vec<f32> = samples.iter().map(|sample| sample * gain).collect();
            assert_eq!(
                ears.turns(&louder),
                Vec::<String>::new(),
                "{name} at {gain}"
            );
        }
    }
}

/// Real time, real session, real voice: the question is synthesised, the answer transcribed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spoken_question_gets_a_spoken_answer() {
    let _alone = common::alone().await;
    let engines = support::real::shipped(|_| (), Witnesses::default());
    let question = question("What is twelve times seven?", 16_000);
    let answer = undertone::ask::ask(&engines, &question).await;
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

/// The text as speech with half a second of silence in front.
fn question(text: &str, rate: u32) -> Vec<i16> {
    let mut speech = vec![0; rate as usize / 2];
    speech.extend(common::Booth::new(&common::weights()).say(text, rate));
    speech
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_example_is_answered() {
    let _alone = common::alone().await;
    let engines = support::real::shipped(|_| (), Witnesses::default());
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

/// Runs the Python example of `docs/realtime.md` as it is written, but for the port. Returns what it prints.
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
