//! Speech over the agent's voice, over a real socket with real models: the voice stops, nothing of
//! the old answer follows, and the model is told what was heard.

mod common;
mod support;

use std::sync::Arc;
use std::time::Duration;
use support::live::{self, Call, Heard};
use undertone::asr::WhisperOnnx;
use undertone::audio::{Resampler, to_i16};
use undertone::llm::Message;
use undertone::llm::scripted::Scripted;
use undertone::session::Builders;
use undertone::tts::{Piper, Tts};
use undertone::turn_model::{SmartTurn, TurnModel};
use undertone::vad::{Gated, SileroModel, Vad};

const STORY: &str = "Once upon a time there was a lighthouse on a small island. \
    Every evening the keeper climbed two hundred steps to light the lamp. \
    He counted the ships that passed and wrote their names into a big green book. \
    One night a storm came up, and the lamp went out three times. \
    The keeper stayed awake until the morning and lit it again and again. \
    When the sun rose there were eleven ships in the harbour, all of them safe. \
    The captains came up the stairs and thanked him with a silver bell.";

const INTERRUPTIONS: usize = 3;

/// Audio of an answer that is heard before it is interrupted.
const HEARD_MS: u64 = 2_000;

/// Real ears and a real voice around a scripted mind.
fn engines(llm: &Scripted) -> Builders {
    let weights = common::weights();
    let file = move |name: &str| weights.join(name);
    let (silero, whisper) = (file("silero/silero_vad.onnx"), file("whisper-tiny.en"));
    let (turn, piper) = (file("smart-turn/smart-turn-v3.2.onnx"), file("piper-joe"));
    Builders {
        vad: Box::new(move || {
            let model = SileroModel::load(&silero).expect("the model");
            Box::new(move || Ok(Box::new(Gated::new(model.detector())) as Box<dyn Vad>))
        }),
        asr: Box::new(move || Ok(Box::new(WhisperOnnx::load(&whisper)?))),
        turn_model: Some(Box::new(move || {
            Ok(Box::new(SmartTurn::load(&turn)?) as Box<dyn TurnModel>)
        })),
        tts: Box::new(move || Ok(Box::new(Piper::load(&piper)?) as Box<dyn Tts>)),
        ..live::without_models(Arc::new(llm.clone()))
    }
}

/// The text as speech at 24 kHz, without silence in front.
fn spoken(voice: &mut Piper, text: &str) -> Vec<i16> {
    let mut speech = Vec::new();
    voice
        .speak(text, &mut |chunk| {
            speech.extend(chunk);
            std::ops::ControlFlow::Continue(())
        })
        .expect("speech");
    let mut resampler = Resampler::new(voice.sample_rate(), 24_000);
    let mut samples = resampler.push(&speech);
    samples.extend(resampler.flush());
    let onset = samples.iter().position(|sample| sample.abs() > 0.02);
    to_i16(&samples[onset.expect("sound")..])
}

/// Listens until the answer has been heard for a while; returns its id.
async fn listen(call: &mut Call, not: Option<&str>) -> (String, u64) {
    let (mut id, mut ms) = (String::new(), 0);
    while ms < HEARD_MS {
        let heard = call.next().await;
        if heard.audio_ms() > 0 {
            id = heard.event["response_id"].as_str().expect("an id").into();
            assert_ne!(Some(id.as_str()), not, "audio of the old answer");
            ms += heard.audio_ms();
        }
    }
    (id, ms)
}

/// What was said of the answer according to the events up to its end, which must say that it was
/// cut short, with no audio behind the clear.
fn cut_short(events: &[Heard], response: &str) -> String {
    let clear = events.iter().position(|e| e.is("undertone.clear"));
    let clear = clear.expect("a clear");
    let late = events[clear..].iter().filter(|e| e.audio_ms() > 0).count();
    assert_eq!(late, 0, "audio after the clear");
    let done = &events.last().expect("events").event["response"];
    assert_eq!(done["id"], response);
    assert_eq!(done["status"], "cancelled", "{done}");
    assert_eq!(done["status_details"]["reason"], "turn_detected", "{done}");
    let item = events
        .iter()
        .find(|e| e.is("response.output_item.done"))
        .expect("the end of the item");
    assert_eq!(item.event["item"]["status"], "incomplete");
    let transcript = events
        .iter()
        .find(|e| e.is("response.output_audio_transcript.done"))
        .expect("what was heard");
    transcript.event["transcript"]
        .as_str()
        .expect("text")
        .into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn speech_over_an_answer_stops_it_and_the_model_knows_what_was_heard() {
    let answers = vec![format!("<speech>{STORY}</speech>"); INTERRUPTIONS];
    let llm = Scripted::answers(answers);
    llm.push(vec![undertone::llm::scripted::Step::text(
        "<speech>All right.</speech>",
    )]);
    let server = live::serve(engines(&llm));
    let mut voice = Piper::load(&common::weights().join("piper-joe")).expect("the voice");
    let question = spoken(&mut voice, "Can you tell me a story, please?");
    let interruption = spoken(&mut voice, "Please stop that story now.");

    let mut call = Call::to(&server).await;
    call.say(&question).await;
    let (mut last, mut said): (Option<String>, Vec<String>) = (None, vec![]);
    for _ in 0..INTERRUPTIONS {
        let (response, ahead) = listen(&mut call, last.as_deref()).await;
        let from = call.say(&interruption).await;
        let events = call.until("response.done").await;
        let heard = cut_short(&events, &response);
        let stop = events
            .iter()
            .find(|e| e.is("undertone.clear"))
            .expect("a clear")
            .at
            - from;
        let audio: u64 = ahead + events.iter().map(Heard::audio_ms).sum::<u64>();
        println!(
            "stopped {} ms after the first sample of speech; {audio} ms sent, heard {heard:?}",
            stop.as_millis()
        );
        assert!(stop < Duration::from_secs(2), "{stop:?}");
        said.push(heard);
        last = Some(response);
    }
    let end = call.until("response.done").await;
    let late = end.iter().filter(|e| e.audio_ms() > 0);
    for audio in late {
        assert_ne!(audio.event["response_id"].as_str(), last.as_deref());
    }
    assert_eq!(
        end.last().expect("the end").event["response"]["status"],
        "completed"
    );
    remembers(&llm.prompts(), &said);
}

/// Each prompt after an interruption holds what was heard of the story and then the interruption.
fn remembers(prompts: &[undertone::llm::Prompt], said: &[String]) {
    assert_eq!(prompts.len(), INTERRUPTIONS + 1);
    for (at, heard) in said.iter().enumerate() {
        let messages = &prompts[at + 1].messages;
        let [
            ..,
            Message::Agent { text, interrupted },
            Message::User { text: user },
        ] = &messages[..]
        else {
            panic!("not an interrupted answer and what the user said: {messages:?}");
        };
        assert!(*interrupted);
        assert_eq!(text, heard, "the model and the client are told the same");
        assert!(!text.is_empty() && text.len() < STORY.len() / 2, "{text}");
        assert!(STORY.starts_with(text.trim()), "{text}");
        assert!(user.to_lowercase().contains("stop"), "{user}");
    }
}
