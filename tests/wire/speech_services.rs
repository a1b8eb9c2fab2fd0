//! Recognisers and voices on servers, over real sockets: services that answer, are late, silent, dead or break
//! off. The user hears the answer in time, from the local engines if need be. The service is a simulator, which
//! `foreign.rs` proves with the openai package.

mod deepgram;
mod flux;
mod vendors;

use crate::support;
use futures_util::StreamExt;
use serde_json::json;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::live::{self, Call, Heard, said};
use support::speech_services::{self, HEARD, KEY, LEVEL, Makes, Manner, RATE, SpeechService};
use support::{PATIENCE, Server, local};
use tokio::time::Instant;
use undertone::asr::{AsrError, Hints, Utterance};
use undertone::conversation::Samples;
use undertone::llm::Phrases;
use undertone::llm::scripted::{Cue, Scripted};
use undertone::server::{App, ServerSettings};
use undertone::session::{
    self, AgentSettings, Builders, Cast, Engines, Observers, OtherVoice, Recordings, SessionOptions,
};
use undertone::tts::{OnDemand, Speech, Tts, TtsError};

/// The answers to what either recogniser heard: two clauses, so that the second may have another voice.
const WELL: &str = "I am well today and happy. It is a fine day for a walk.";
const WELL_FAR: &str = "I am well from afar today. It is a fine day for a talk.";

/// The most that a fault may delay an answer.
const MORE: Duration = Duration::from_millis(700);

/// The level of the local voice, and the least that tells the service's from it.
const OWN: u16 = 8_192;
const BETWEEN: u16 = 16_384;

fn answers() -> Scripted {
    Scripted::default()
        .on(Cue::words("afar"), format!("<speech>{WELL_FAR}</speech>"))
        .on(Cue::Always, format!("<speech>{WELL}</speech>"))
}

/// Engines with a recogniser and a voice called "far" at these addresses, for all sessions.
fn builders(recogniser: Option<SocketAddr>, voice: Option<SocketAddr>, key: &str) -> Builders {
    let far = || "far".to_owned();
    let mut builders = live::without_models(Arc::new(answers()));
    if let Some(address) = recogniser {
        builders.recognisers = [(far(), speech_services::recogniser(address, key))].into();
        builders.recogniser = Some(far());
    }
    if let Some(address) = voice {
        let voice = OtherVoice::Service(speech_services::voice(address, key));
        builders.voices = [(far(), voice)].into();
        builders.policy.speaker.voice = Some(far());
    }
    builders
}

/// Asks a question and listens to the end of the answer. Returns how long after the question it began, and
/// the events.
async fn turn(call: &mut Call) -> (Duration, Vec<Heard>) {
    let began = call.say(&live::tone(600)).await;
    let events = call.until("response.done").await;
    let answer = events.iter().find(|heard| heard.audio_ms() > 0);
    let asked: Instant = began + Duration::from_millis(600);
    (answer.expect("an answer").at - asked, events)
}

/// The services that the client was told about.
fn setbacks(events: &[Heard]) -> Vec<(String, String)> {
    let failed = events
        .iter()
        .filter(|heard| heard.is("undertone.stage_failed"));
    let text =
        |heard: &Heard, field: &str| heard.event[field].as_str().unwrap_or_default().to_owned();
    failed
        .map(|heard| (text(heard, "stage"), text(heard, "message")))
        .collect()
}

/// Milliseconds in the service's voice, and in the local one.
fn voices(events: &[Heard]) -> (u64, u64) {
    let audible = events.iter().filter(|heard| heard.peak > OWN / 2);
    let (far, own): (Vec<_>, Vec<_>) = audible.partition(|heard| heard.peak > BETWEEN);
    let ms = |of: Vec<&Heard>| of.iter().map(|heard| heard.audio_ms()).sum();
    (ms(far), ms(own))
}

/// The longest silence within an answer at a client that plays it as it arrives.
fn longest_gap(events: &[Heard]) -> Duration {
    let mut heard = events.iter().filter(|heard| heard.audio_ms() > 0);
    let length = |heard: &Heard| Duration::from_millis(heard.audio_ms());
    let first = heard.next().expect("an answer");
    let (mut played, mut longest) = (first.at + length(first), Duration::ZERO);
    for part in heard {
        longest = longest.max(part.at.saturating_duration_since(played));
        played = played.max(part.at) + length(part);
    }
    longest
}

#[track_caller]
fn is_said(events: &[Heard], words: &str) {
    assert_eq!(
        said(events)
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" "),
        words
    );
}

/// Asks a question of a server whose service is at `fault`, which the local engines answer. It begins at most [`MORE`]
/// later than with the service `well`. Returns the events.
async fn stands_in(call: &mut Call, well: Duration, fault: impl std::fmt::Debug) -> Vec<Heard> {
    let (delay, events) = turn(call).await;
    is_said(&events, WELL);
    println!("{fault:?}: {delay:?} after {well:?}");
    assert!(delay < well + MORE, "{fault:?}: {delay:?} after {well:?}");
    events
}

/// The service's failures that the client was told about name it, and neither its address nor its own words.
#[track_caller]
fn are_discreet(setbacks: &[(String, String)], stage: &str) {
    for (failed, message) in setbacks {
        assert_eq!(failed, stage);
        assert!(message.starts_with("far: "), "{message}");
        assert!(
            !message.contains("canary") && !message.contains("127.0.0.1"),
            "{message}"
        );
    }
}

/// How long an answer takes without services.
async fn without_services() -> Duration {
    let server = live::serve(live::without_models(Arc::new(answers())));
    turn(&mut Call::to(&server).await).await.0
}

#[tokio::test]
async fn a_conversation_with_a_recogniser_and_a_voice_on_a_server() {
    let service = SpeechService::start();
    let server = live::serve(builders(Some(service.address), Some(service.address), KEY));
    let mut call = Call::to(&server).await;
    for _ in 0..2 {
        let (_, events) = turn(&mut call).await;
        is_said(&events, WELL_FAR);
        let (far, own) = voices(&events);
        assert!(far > 2_000 && own == 0, "{far} and {own} ms");
        assert_eq!(setbacks(&events), []);
    }
    let asked = service.transcriptions();
    let utterance = asked.iter().find(|form| form["file"] != 1_000);
    let utterance = utterance.expect("a transcription");
    assert_eq!(utterance["model"], "whisper-1");
    assert_eq!(utterance["response_format"], "json");
    assert_eq!(utterance.get("language"), None);
    assert_eq!(utterance.get("prompt"), None);
    let ms = utterance["file"].as_u64().expect("a length");
    assert!((600..1_500).contains(&ms), "{ms} ms");
    let clause = service.speeches().into_iter();
    let mut clause = clause.filter(|body| body["input"] == "I am well from afar today.");
    let expected = json!({
        "model": "tts-1", "voice": "alloy", "input": "I am well from afar today.",
        "response_format": "pcm",
    });
    assert_eq!(clause.next(), Some(expected));
}

/// Servers that make WAV alone were never heard, and Piper's voices on servers spoke too fast.
#[tokio::test]
async fn a_voice_in_wav_or_at_another_rate_is_understood() {
    let piper = "speaches-ai/piper-en_US-ryan-low";
    for (makes, model, forms) in [
        (Makes::BareAt(22_050), "tts-1-hd", ["pcm", "pcm", ""]),
        (Makes::Wav(44_100), "kokoro", ["pcm", "pcm", ""]),
        (Makes::OnlyWav(24_000), "orpheus", ["pcm", "wav", "wav"]),
        (Makes::Wav(16_000), piper, ["wav", "wav", ""]),
        (Makes::Bare, piper, ["wav", "pcm", "pcm"]),
    ] {
        let service = SpeechService::start();
        service.make(makes);
        let voice = speech_services::voice_of(service.address, KEY, model);
        for _ in 0..2 {
            let mut session = voice.open(None);
            let said: Vec<_> = session.speak("One two three.").collect().await;
            let samples = said.into_iter().map(|piece| piece.expect("audio").samples);
            let samples = samples.collect::<Vec<_>>().concat();
            assert_eq!(samples.len(), 3 * RATE / 5, "{makes:?}");
            let middle = samples[samples.len() / 2];
            assert!((middle - LEVEL).abs() < 0.02, "{makes:?}: {middle}");
        }
        let asked = service.speeches();
        let asked = asked.iter().map(|body| &body["response_format"]);
        let forms = forms.into_iter().filter(|form| !form.is_empty());
        assert!(asked.eq(forms), "{makes:?}: {:?}", service.speeches());
    }
}

/// The transcript of a second of audio.
async fn transcript(service: &SpeechService, hints: &Hints) -> String {
    let mut session = speech_services::recogniser(service.address, KEY).open(hints);
    let part = Utterance {
        from: Samples(0),
        audio: vec![0.0; 16_000],
        partial: false,
    };
    session.transcribe(part).await.expect("a transcript")
}

/// whisper.cpp's server writes sounds in brackets and a line for each segment, and the agent answered the sounds.
#[tokio::test]
async fn sounds_that_a_recogniser_writes_are_no_words() {
    let service = SpeechService::start();
    for (written, words) in [
        (" [BLANK_AUDIO]\n", ""),
        (" (static)\n *sighs*\n", ""),
        (" ...", ""),
        (" Good morning.\n How?\n", "Good morning. How?"),
        ("It is (555) 010-0199.", "It is (555) 010-0199."),
    ] {
        service.hear(written);
        assert_eq!(transcript(&service, &Hints::default()).await, words);
    }
}

/// More keyterms than most services take.
fn too_many() -> Vec<String> {
    let terms = (0..100).map(|nth| format!("Anneliese {nth:04}"));
    terms.collect()
}

/// Groq refused every request, and OpenAI's API knows no "nb".
#[tokio::test]
async fn a_recogniser_gets_as_many_keyterms_as_it_takes_and_the_language_by_its_name_there() {
    let service = SpeechService::start();
    let terms = too_many();
    let hints = Hints {
        keyterms: terms.clone().into(),
        ..Hints::language("nb-NO")
    };
    assert_eq!(transcript(&service, &hints).await, HEARD);
    let form = &service.transcriptions()[0];
    assert_eq!(form["language"], "no");
    let prompt = form["prompt"].as_str().expect("a prompt");
    assert!((700..=800).contains(&prompt.len()), "{prompt}");
    let sent: Vec<&str> = prompt.split(", ").collect();
    assert_eq!(sent, terms[..sent.len()]);
}

/// Faults before there is a result.
const FAULTS: [Manner; 3] = [
    Manner::Late(Duration::from_secs(3)),
    Manner::Silent,
    Manner::Refuses(500),
];

#[tokio::test]
async fn a_recogniser_that_is_late_silent_or_refuses_costs_less_than_700_ms() {
    for fault in FAULTS {
        let service = SpeechService::start();
        let server = live::serve(builders(Some(service.address), None, KEY));
        let mut call = Call::to(&server).await;
        let (well, events) = turn(&mut call).await;
        is_said(&events, WELL_FAR);
        service.be(fault);
        let events = stands_in(&mut call, well, fault).await;
        let told = setbacks(&events);
        assert!(!told.is_empty(), "{fault:?}");
        are_discreet(&told, "asr");
        service.be(Manner::Well);
        let (_, events) = turn(&mut call).await;
        is_said(&events, WELL_FAR);
    }
}

#[tokio::test]
async fn a_voice_that_is_late_silent_or_refuses_costs_less_than_700_ms() {
    for fault in FAULTS {
        let service = SpeechService::start();
        let server = live::serve(builders(None, Some(service.address), KEY));
        let mut call = Call::to(&server).await;
        let (well, _) = turn(&mut call).await;
        service.be(fault);
        let events = stands_in(&mut call, well, fault).await;
        let (far, own) = voices(&events);
        assert!(far == 0 && own > 2_000, "{fault:?}: {far} and {own} ms");
        assert_eq!(setbacks(&events)[0].0, "tts");
        service.be(Manner::Well);
        let (_, events) = turn(&mut call).await;
        assert_eq!(voices(&events).1, 0, "{fault:?}");
    }
}

#[tokio::test]
async fn a_socket_that_takes_everything_and_is_dead_costs_less_than_700_ms() {
    let dead = speech_services::dead().await;
    let well = without_services().await;
    for (recogniser, voice) in [(Some(dead), None), (None, Some(dead))] {
        let server = live::serve(builders(recogniser, voice, KEY));
        stands_in(&mut Call::to(&server).await, well, "dead").await;
    }
}

/// The local voice says what is left of the clause, and the rest of the answer; the next answer has the
/// service's voice again.
#[tokio::test]
async fn a_voice_that_breaks_off_or_falls_silent_leaves_the_rest_of_the_answer_to_the_local_one() {
    for fault in [Manner::Breaks(2), Manner::Stalls(2)] {
        let service = SpeechService::start();
        let server = live::serve(builders(None, Some(service.address), KEY));
        let mut call = Call::to(&server).await;
        turn(&mut call).await;
        service.be(fault);
        let (_, events) = turn(&mut call).await;
        is_said(&events, WELL);
        let peaks = events.iter().filter(|heard| heard.peak > OWN / 2);
        let mut order: Vec<bool> = peaks.map(|heard| heard.peak > BETWEEN).collect();
        order.dedup();
        assert_eq!(order, [true, false], "{fault:?}: one change of voices");
        let gap = longest_gap(&events);
        println!("{fault:?}: {gap:?} of silence");
        assert!(gap < MORE, "{fault:?}: {gap:?} of silence");
        let (far, own) = voices(&events);
        // Two of six words; the rest, and the second clause, which has eight.
        assert!((300..600).contains(&far), "{fault:?}: {far} ms");
        assert!(own >= (4 + 8) * 200, "{fault:?}: {own} ms");
        let done = &events.last().expect("events").event["response"];
        assert_eq!(done["status"], "completed", "{fault:?}");
        service.be(Manner::Well);
        let (_, events) = turn(&mut call).await;
        assert_eq!(voices(&events).1, 0, "{fault:?}");
    }
}

#[tokio::test]
async fn a_service_that_is_down_is_not_asked_until_it_is_back() {
    let service = SpeechService::start();
    let mut engines = builders(None, Some(service.address), KEY);
    let observers = Observers::default();
    let metrics = observers.metrics.clone();
    engines.observers = observers;
    let server = live::serve(engines);
    let mut call = Call::to(&server).await;
    turn(&mut call).await;
    service.be(Manner::Refuses(503));
    for _ in 0..3 {
        let (_, events) = turn(&mut call).await;
        is_said(&events, WELL);
    }
    let before = service.speeches().len();
    let (_, events) = turn(&mut call).await;
    is_said(&events, WELL);
    assert_eq!(setbacks(&events), []);
    let since = service.speeches();
    let tried = since[before..].iter().all(|body| body["input"] == "Hello.");
    assert!(tried, "{since:?}");
    let shown = metrics.render();
    for line in [
        "undertone_service_failures_total{stage=\"tts\",service=\"far\",reason=\"failed\"} 3",
        "undertone_service_up{stage=\"tts\",service=\"far\"} 0",
    ] {
        assert!(shown.contains(line), "{line}\n{shown}");
    }
    service.be(Manner::Well);
    let until_back = async {
        loop {
            let (_, events) = turn(&mut call).await;
            if voices(&events).0 > 0 {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, until_back)
        .await
        .expect("it is back");
}

#[tokio::test]
async fn a_service_that_does_not_take_the_key_is_never_asked_again() {
    let service = SpeechService::start();
    let server = live::serve(builders(
        Some(service.address),
        Some(service.address),
        "sk-old",
    ));
    let mut call = Call::to(&server).await;
    let (_, events) = turn(&mut call).await;
    is_said(&events, WELL);
    let before = (service.transcriptions().len(), service.speeches().len());
    assert!(before.0 > 0 && before.1 > 0, "{before:?}");
    let mut other = Call::to(&server).await;
    for call in [&mut call, &mut other] {
        let (_, events) = turn(call).await;
        is_said(&events, WELL);
        assert_eq!(setbacks(&events), []);
    }
    let after = (service.transcriptions().len(), service.speeches().len());
    assert_eq!(after, before);
}

/// A voice of its own level, which may be dead.
struct Local {
    level: f32,
    is_dead: bool,
}

impl Tts for Local {
    fn name(&self) -> &str {
        "scripted"
    }

    fn sample_rate(&self) -> u32 {
        24_000
    }

    fn speak(&mut self, text: &str) -> Result<Speech, TtsError> {
        let phrases = Phrases::default();
        if self.is_dead && !phrases.all().iter().any(|phrase| phrase.contains(text)) {
            return Err(TtsError::Run("dead".into()));
        }
        let words = text.split_whitespace().count();
        let word = vec![self.level; 24_000 / 5];
        Ok(Box::new(std::iter::repeat_n(word, words).map(Ok)))
    }
}

fn with_voice(level: f32, is_dead: bool, builders: Builders) -> Builders {
    Builders {
        tts: Box::new(move || Ok(Box::new(Local { level, is_dead }) as Box<dyn Tts>)),
        ..builders
    }
}

#[tokio::test]
async fn the_user_hears_an_apology_in_time_and_only_if_the_local_engine_fails_too() {
    let well = without_services().await;
    let service = SpeechService::start();
    service.be(Manner::Refuses(500));
    let address = Some(service.address);
    let voiceless = with_voice(0.25, true, builders(None, address, KEY));
    let server = live::serve(voiceless);
    let (delay, events) = turn(&mut Call::to(&server).await).await;
    let apology = Phrases::default().tts_failed;
    assert!(said(&events).ends_with(&apology), "{}", said(&events));
    println!("no voice: {delay:?} after {well:?}");
    assert!(delay < well + MORE, "no voice: {delay:?} after {well:?}");

    let fails = || Err(AsrError::Run("dead".into()));
    let broken = Builders {
        asr: Box::new(move || Ok(Box::new(live::Hears(move |_: &[f32]| fails())))),
        ..builders(address, None, KEY)
    };
    let server = live::serve(broken);
    let (delay, events) = turn(&mut Call::to(&server).await).await;
    assert_eq!(said(&events), Phrases::default().asr_failed);
    println!("no recogniser: {delay:?} after {well:?}");
    assert!(
        delay < well + MORE,
        "no recogniser: {delay:?} after {well:?}"
    );
    let failures = setbacks(&events);
    let last = &failures.last().expect("a failure").1;
    assert!(!last.contains("127.0.0.1"), "{last}");
}

/// A German voice that is loaded after this, and takes all the memory that there is for voices.
fn german(before: impl Fn() + Send + Sync + 'static) -> OtherVoice {
    let voice = || Local {
        level: 0.25,
        is_dead: false,
    };
    let load = move || {
        before();
        Ok(Box::new(voice()) as Box<dyn Tts>)
    };
    OtherVoice::Local(OnDemand {
        language: Some("de".into()),
        bytes: 1,
        ..OnDemand::of(&voice(), load)
    })
}

/// It counted as stalled after four seconds, and the answer was lost.
#[tokio::test]
async fn a_local_voice_that_is_still_being_loaded_when_a_service_fails_is_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = SpeechService::start();
    let (goes_on, held) = sync_channel::<()>(0);
    let (held, loads) = (Mutex::new(held), AtomicUsize::new(0));
    let first = german(move || {
        // It was loaded at the start, for its phrases, and gave way to the second.
        if loads.fetch_add(1, Ordering::Relaxed) > 0 {
            let _ = held.lock().expect("whole").recv();
        }
    });
    let mut engines = builders(None, Some(service.address), KEY);
    engines.tts = Box::new(|| Ok(Box::new(live::Keeps::new("en"))));
    engines.voices.insert("first".into(), first);
    engines.voices.insert("second".into(), german(|| ()));
    engines.voice_memory = 1;
    engines.policy.speaker.language = Some("de".into());
    // What is made in advance may fail before anybody waits for it.
    engines.policy.speculation.preemptive = false;
    engines.observers.recordings = Some(Recordings::new(folder.path()).expect("a folder"));
    let engines = Engines::start(engines).expect("engines");
    let opener = engines.clone();
    let sessions = Arc::new(move |options: SessionOptions| Ok(session::open(&opener, &options)));
    let server = Server::serve(App::new(local(), sessions));
    let mut call = Call::to(&server).await;
    let (_, events) = turn(&mut call).await;
    assert!(voices(&events).0 > 2_000);
    service.be(Manner::Refuses(500));
    call.say(&live::tone(600)).await;
    call.until("undertone.stage_failed").await;
    drop(goes_on);
    let events = call.until("response.done").await;
    let (far, own) = voices(&events);
    assert!(far == 0 && own > 2_000, "{far} and {own} ms");
    drop(call);
    engines.finish_sessions().await;
    let mut files = std::fs::read_dir(folder.path()).expect("recordings");
    let file = files.next().expect("one").expect("a file").path();
    let recorded = std::fs::read_to_string(file).expect("text");
    assert!(recorded.contains("voice_loads"), "{recorded}");
}

#[tokio::test]
async fn agents_have_recognisers_and_voices_of_their_own() {
    let service = SpeechService::start();
    let mut engines = builders(Some(service.address), Some(service.address), KEY);
    engines.recogniser = None;
    engines.policy.speaker.voice = None;
    let far = AgentSettings {
        recogniser: Some("far".into()),
        keyterms: Some(["Anneliese", "Kronos 7"].map(str::to_owned).into()),
        voice: Some("far".into()),
        ..AgentSettings::new("far")
    };
    engines.agents = Cast {
        agents: vec![far],
        ..Cast::default()
    };
    let engines = Engines::start(engines).expect("engines");
    let sessions = Arc::new(move |mut options: SessionOptions| {
        options.agent.clone_from(&options.model);
        Ok(session::open(&engines, &options))
    });
    let server = Server::serve(App::new(local(), sessions));
    for (agent, words, is_far) in [("far", WELL_FAR, true), ("default", WELL, false)] {
        let path = format!("/v1/realtime?vendor_events=1&model={agent}");
        let mut call = Call::at(&server, &path).await.expect("a session");
        let (_, events) = turn(&mut call).await;
        is_said(&events, words);
        assert_eq!(voices(&events).0 > 0, is_far, "{agent}");
    }
    let asked = service.transcriptions();
    let hinted = asked
        .iter()
        .filter(|form| form["prompt"] == "Anneliese, Kronos 7");
    assert!(hinted.count() > 0, "{asked:?}");
}

#[tokio::test]
async fn a_clients_keywords_reach_the_recogniser_and_it_may_take_them_back() {
    let service = SpeechService::start();
    let server = live::serve(builders(Some(service.address), None, KEY));
    let mut call = Call::to(&server).await;
    for (keywords, prompt) in [
        (json!(["Anneliese", "Kronos 7"]), "Anneliese, Kronos 7"),
        (json!([]), ""),
    ] {
        let input = json!({"transcription": {"keywords": keywords}});
        let session = json!({"type": "realtime", "audio": {"input": input}});
        call.send(json!({"type": "session.update", "session": session}))
            .await;
        call.until("session.updated").await;
        let before = service.transcriptions().len();
        turn(&mut call).await;
        let asked = service.transcriptions().split_off(before);
        let utterances: Vec<_> = asked.iter().filter(|form| form["file"] != 1_000).collect();
        assert!(!utterances.is_empty(), "{asked:?}");
        for form in utterances {
            let told = form.get("prompt").and_then(|told| told.as_str());
            assert_eq!(told.unwrap_or_default(), prompt, "{form:?}");
        }
    }
}

#[tokio::test]
async fn a_client_that_may_chooses_its_recogniser_and_may_go_back() {
    for offer_services in [true, false] {
        let service = SpeechService::start();
        let mut engines = builders(Some(service.address), None, KEY);
        engines.recogniser = None;
        let settings = ServerSettings {
            offer_services,
            ..local()
        };
        let server = live::serve_with(settings, engines);
        let mut call = Call::to(&server).await;
        for (model, is_far) in [("far", offer_services), ("whisper-1", false)] {
            let input = json!({"transcription": {"model": model}});
            let session = json!({"type": "realtime", "audio": {"input": input}});
            call.send(json!({"type": "session.update", "session": session}))
                .await;
            let updated = call.until("session.updated").await;
            let echoed = &updated.last().expect("it").event["session"]["audio"]["input"];
            assert_eq!(echoed["transcription"]["model"], model);
            let (_, events) = turn(&mut call).await;
            is_said(&events, if is_far { WELL_FAR } else { WELL });
        }
    }
}

/// One undertone has another hear and speak for it.
#[tokio::test]
async fn an_undertone_is_a_speech_service_of_another() {
    let hears = || Ok(HEARD.to_owned());
    let other = Builders {
        asr: Box::new(move || Ok(Box::new(live::Hears(move |_: &[f32]| hears())))),
        ..with_voice(LEVEL, false, live::without_models(Arc::new(answers())))
    };
    let other = Engines::start(other).expect("engines");
    let other = Server::serve(App {
        speech: Some(other.clone()),
        ..App::new(
            local(),
            Arc::new(move |options: SessionOptions| Ok(session::open(&other, &options))),
        )
    });
    let server = live::serve(builders(Some(other.address), Some(other.address), KEY));
    let mut call = Call::to(&server).await;
    let (_, events) = turn(&mut call).await;
    is_said(&events, WELL_FAR);
    let (far, own) = voices(&events);
    assert!(far > 2_000 && own == 0, "{far} and {own} ms");
}
