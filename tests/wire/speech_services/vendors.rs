//! Voices of vendors that tell when their words end: ElevenLabs, Cartesia. The services are simulators, which
//! `foreign.rs` proves with the vendors' SDKs.

use super::*;
use serde_json::Value;
use std::collections::BTreeSet;
use support::cartesia::{self, CartesiaService};
use support::elevenlabs::{self, ElevenLabsService};
use undertone::tts::TtsService;

/// A simulator, and the voice that uses it.
struct Vendor {
    name: &'static str,
    voice: Arc<dyn TtsService>,
    be: Box<dyn Fn(Manner)>,
}

fn vendors() -> [Vendor; 2] {
    let (eleven, cartesia) = (ElevenLabsService::start(), CartesiaService::start());
    [
        Vendor {
            name: "ElevenLabs",
            voice: elevenlabs::voice(eleven.address, KEY),
            be: Box::new(move |manner| eleven.be(manner)),
        },
        Vendor {
            name: "Cartesia",
            voice: cartesia::voice(cartesia.address, KEY),
            be: Box::new(move |manner| cartesia.be(manner)),
        },
    ]
}

/// Engines with this voice for all sessions.
fn with_vendor_voice(voice: Arc<dyn TtsService>, answers: Scripted) -> Builders {
    let far = || "far".to_owned();
    let mut builders = live::without_models(Arc::new(answers));
    builders.voices = [(far(), OtherVoice::Service(voice))].into();
    builders.policy.speaker.voice = Some(far());
    builders
}

fn serve(voice: Arc<dyn TtsService>) -> Server {
    live::serve(with_vendor_voice(voice, answers()))
}

#[tokio::test]
async fn elevenlabs_speaks() {
    let service = ElevenLabsService::start();
    let server = serve(elevenlabs::voice(service.address, KEY));
    let mut call = Call::to(&server).await;
    for _ in 0..2 {
        let (_, events) = turn(&mut call).await;
        is_said(&events, WELL);
        let (far, own) = voices(&events);
        assert!(far > 2_000 && own == 0, "{far} and {own} ms");
        assert_eq!(setbacks(&events), []);
    }
    let clause = json!({"text": "I am well today and happy.", "model_id": "eleven_flash_v2_5"});
    assert!(service.speeches().contains(&clause));
}

#[tokio::test]
async fn cartesia_speaks_over_one_connection() {
    let service = CartesiaService::start();
    let server = serve(cartesia::voice(service.address, KEY));
    let mut call = Call::to(&server).await;
    for _ in 0..2 {
        let (_, events) = turn(&mut call).await;
        is_said(&events, WELL);
        let (far, own) = voices(&events);
        assert!(far > 2_000 && own == 0, "{far} and {own} ms");
        assert_eq!(setbacks(&events), []);
    }
    let seen = service.seen();
    assert_eq!(seen.mistakes, [""; 0]);
    let said = |text: &str| {
        seen.speeches
            .iter()
            .filter(|body| body["transcript"] == text)
            .count()
    };
    assert_eq!(said("I am well today and happy."), 2, "{seen:?}");
    // The session's own, the one that tried the service out, and the one that prepared its phrases.
    assert_eq!(seen.connections, 3);
    // Another session has its own: nothing is left to prepare.
    turn(&mut Call::to(&server).await).await;
    assert_eq!(service.seen().connections, 4);
}

/// ElevenLabs was told none, and Cartesia knows no "nb" and no "fil".
#[tokio::test]
async fn a_vendors_voice_is_told_the_language_by_its_name_there() {
    let (eleven, cartesia) = (ElevenLabsService::start(), CartesiaService::start());
    let voices = [
        elevenlabs::voice(eleven.address, KEY),
        cartesia::voice(cartesia.address, KEY),
    ];
    for language in ["nb-NO", "fil", "tlh"] {
        for voice in &voices {
            let mut session = voice.open(Some(language));
            let said: Vec<_> = session.speak("Hei.").collect().await;
            assert!(said.iter().all(Result::is_ok), "{language}: {said:?}");
        }
    }
    let told: Value = (eleven.speeches().iter())
        .map(|body| body["language_code"].clone())
        .collect();
    assert_eq!(told, json!(["no", "fil", null]));
    let told: Value = (cartesia.seen().speeches.iter())
        .map(|body| body["language"].clone())
        .collect();
    assert_eq!(told, json!(["no", "tl", "tlh"]));
}

/// Each had the phrases said anew, for good, and kept a connection open in the session.
#[tokio::test]
async fn spellings_of_a_language_share_its_phrases_and_leave_no_connections() {
    let service = CartesiaService::start();
    let voice = cartesia::voice(service.address, KEY);
    let mut builders = with_vendor_voice(voice, answers());
    builders.policy.speaker.language = Some("en".into());
    let server = live::serve(builders);
    let mut call = Call::to(&server).await;
    // Two have tried the service out and prepared the phrases.
    let is_prepared = |seen: &cartesia::Seen| seen.connections == 3 && seen.open == 1;
    service.until(is_prepared).await;
    for language in ["en-GB", "en-US", "en-AU", "en-IE", "EN"] {
        let input = json!({"transcription": {"language": language}});
        let session = json!({"type": "realtime", "audio": {"input": input}});
        call.send(json!({"type": "session.update", "session": session}))
            .await;
        call.until("session.updated").await;
    }
    let (_, events) = turn(&mut call).await;
    is_said(&events, WELL);
    let seen = service.until(|seen| seen.open == 1).await;
    let said = seen.speeches.iter().map(|body| &body["transcript"]);
    let said = said.filter_map(|text| text.as_str());
    let phrases = said.filter(|text| *text != "Hello." && !WELL.contains(text));
    let phrases: Vec<&str> = phrases.collect();
    let once: BTreeSet<&str> = phrases.iter().copied().collect();
    assert!(!once.is_empty());
    assert_eq!(once.len(), phrases.len(), "{phrases:?}");
}

#[tokio::test]
async fn a_vendors_voice_that_is_late_silent_or_refuses_costs_less_than_700_ms() {
    futures_util::future::join_all(vendors().map(costs_little)).await;
}

async fn costs_little(vendor: Vendor) {
    let server = serve(vendor.voice);
    let mut call = Call::to(&server).await;
    let (well, _) = turn(&mut call).await;
    for fault in FAULTS {
        (vendor.be)(fault);
        let events = stands_in(&mut call, well, (vendor.name, fault)).await;
        let (far, own) = voices(&events);
        assert!(far == 0 && own > 2_000, "{fault:?}: {far} and {own} ms");
        let told = setbacks(&events);
        assert!(!told.is_empty(), "{fault:?}");
        are_discreet(&told, "tts");
        (vendor.be)(Manner::Well);
        is_back(&mut call, vendor.name).await;
    }
}

/// Has turns until the service's voice alone speaks.
async fn is_back(call: &mut Call, vendor: &str) {
    let until_back = async { while voices(&turn(call).await.1).1 > 0 {} };
    let back = tokio::time::timeout(PATIENCE, until_back).await;
    back.unwrap_or_else(|_| panic!("{vendor} is not back"));
}

#[tokio::test]
async fn a_vendors_voice_that_is_dead_costs_less_than_700_ms() {
    let well = without_services().await;
    let dead = speech_services::dead().await;
    for voice in [elevenlabs::voice(dead, KEY), cartesia::voice(dead, KEY)] {
        let server = serve(voice);
        stands_in(&mut Call::to(&server).await, well, "dead").await;
    }
}

#[tokio::test]
async fn a_vendors_voice_that_does_not_take_the_key_is_never_asked_again() {
    let (eleven, cartesia) = (ElevenLabsService::start(), CartesiaService::start());
    for voice in [
        elevenlabs::voice(eleven.address, "old"),
        cartesia::voice(cartesia.address, "old"),
    ] {
        let server = serve(voice);
        let mut call = Call::to(&server).await;
        let (_, events) = turn(&mut call).await;
        is_said(&events, WELL);
        let asked = eleven.speeches().len();
        let (_, events) = turn(&mut call).await;
        is_said(&events, WELL);
        assert_eq!(setbacks(&events), []);
        assert_eq!(eleven.speeches().len(), asked);
    }
}

/// The words whose end is known are not said again, and none is left out.
#[tokio::test]
async fn the_local_voice_goes_on_at_the_word_where_a_vendors_voice_stopped() {
    futures_util::future::join_all(vendors().map(breaks_off)).await;
}

async fn breaks_off(vendor: Vendor) {
    let server = serve(vendor.voice);
    let mut call = Call::to(&server).await;
    turn(&mut call).await;
    for fault in [Manner::Breaks(2), Manner::Stalls(2)] {
        (vendor.be)(fault);
        let (_, events) = turn(&mut call).await;
        is_said(&events, WELL);
        let (far, own) = voices(&events);
        let what = format!("{}, {fault:?}: {far} and {own} ms", vendor.name);
        // Two of six words; the rest, and the second clause, which has eight.
        assert!((380..=420).contains(&far), "{what}");
        let rest = (4 + 8) * 200;
        assert!((rest - 60..rest + 150).contains(&own), "{what}");
        (vendor.be)(Manner::Well);
        is_back(&mut call, vendor.name).await;
    }
}

/// One word takes most of the time, so what was heard cannot be told from the number of letters.
const SLOW: &str = "It thunderstorms and it rains and it snows all day.";

#[tokio::test]
async fn an_interrupted_answer_has_the_words_that_the_voice_had_said() {
    for vendor in vendors() {
        let answer = format!("<speech>{SLOW}</speech>");
        let server = live::serve(with_vendor_voice(vendor.voice, Scripted::always(answer)));
        let mut call = Call::to(&server).await;
        call.say(&live::tone(600)).await;
        let mut ms = 0;
        while ms < 3_500 {
            ms += call.next().await.audio_ms();
        }
        call.say(&live::tone(600)).await;
        let events = call.until("response.done").await;
        let done = events
            .iter()
            .find(|heard| heard.is("response.output_audio_transcript.done"));
        let heard = &done.expect("what was heard").event["transcript"];
        assert_eq!(heard, "It", "{}", vendor.name);
    }
}

#[tokio::test]
async fn cartesia_says_no_more_of_an_answer_that_was_interrupted() {
    let service = CartesiaService::start();
    let answer = format!("<speech>{SLOW}</speech>");
    let voice = cartesia::voice(service.address, KEY);
    let server = live::serve(with_vendor_voice(voice, Scripted::always(answer)));
    let mut call = Call::to(&server).await;
    call.until("session.created").await;
    service.be(Manner::Stalls(2));
    call.say(&live::tone(600)).await;
    while call.next().await.audio_ms() == 0 {}
    call.send(json!({"type": "response.cancel"})).await;
    let is_cancelled = |text: &String| SLOW.starts_with(text.as_str());
    service
        .until(|seen| seen.cancelled.iter().any(is_cancelled))
        .await;
}
