//! Tests barge-in over real sockets: the voice stops, nothing of the old answer follows, and the
//! history has only the words that were heard. With real models, and without them on every
//! transport.

use crate::{common, support};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use common::Booth;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use support::live::{self, Call, Heard, without_models};
use support::real::engines;
use support::twilio;
use support::{Client, PATIENCE, Server, base64_of, local};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_tungstenite::tungstenite;
use undertone::asr::AsrError;
use undertone::audio::g711::Law;
use undertone::audio::to_pcm16le;
use undertone::conversation::ListeningWords;
use undertone::llm::scripted::{Cue, Scripted, Step};
use undertone::llm::{Message, Prompt};
use undertone::server::{App, ServerSettings, SessionFactory};
use undertone::session::Builders;

/// Audio of an answer that is heard before the barge-in, ms.
const HEARD_MS: u64 = 2_000;

/// Listens until at least `least_ms` of an answer have been heard. Returns its id. An answer that starts before
/// the user has finished is dropped again.
async fn listen(call: &mut Call, not: Option<&str>, least_ms: u64) -> (String, u64) {
    let (mut id, mut ms) = (String::new(), 0);
    while ms < least_ms {
        let heard = call.next().await;
        if heard.audio_ms() > 0 {
            let of = heard.event["response_id"].as_str().expect("an id");
            assert_ne!(Some(of), not, "audio of the old answer");
            if of != id {
                (id, ms) = (of.to_owned(), 0);
            }
            ms += heard.audio_ms();
        }
    }
    (id, ms)
}

/// The words of an interrupted answer according to its events, which must end as cancelled, without
/// audio after the clear.
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
    let _alone = common::alone().await;
    let llm = Scripted::default()
        .on(Cue::words("enough"), "<speech>All right.</speech>")
        .on(Cue::Always, format!("<speech>{}</speech>", common::STORY));
    let weights = common::weights();
    let server = live::serve(engines(&weights, &llm));
    let mut booth = Booth::new(&weights);
    let question = booth.say("Can you tell me a story?", 24_000);
    let again = booth.say("Please stop that story now.", 24_000);
    let last = booth.say("Please stop now, that is enough.", 24_000);

    let mut call = Call::to(&server).await;
    call.say(&question).await;
    let (mut before, mut said): (Option<String>, Vec<String>) = (None, vec![]);
    for interruption in [&again, &again, &last] {
        let (response, ahead) = listen(&mut call, before.as_deref(), HEARD_MS).await;
        let from = call.say(interruption).await;
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
        said.push(heard);
        before = Some(response);
    }
    // An answer to half of an utterance is dropped when the rest has been heard.
    let mut end = call.until("response.done").await;
    while end.last().expect("the end").event["response"]["status"] != "completed" {
        end.extend(call.until("response.done").await);
    }
    for audio in end.iter().filter(|e| e.audio_ms() > 0) {
        assert_ne!(audio.event["response_id"].as_str(), before.as_deref());
    }
    remembers(&llm.asked(Cue::words("enough")).await, &said);
}

/// Asserts that the prompt has the heard part of each story, followed by the interruption.
fn remembers(prompt: &Prompt, said: &[String]) {
    let mut rest = &prompt.messages[..];
    for heard in said {
        assert!(
            !heard.is_empty() && heard.len() < common::STORY.len() / 2,
            "{heard}"
        );
        assert!(common::STORY.starts_with(heard.trim()), "{heard}");
        let story = Message::Agent {
            text: heard.clone(),
            interrupted: true,
        };
        let at = rest.iter().position(|message| *message == story);
        let at = at.unwrap_or_else(|| panic!("{heard:?} is not in {:#?}", prompt.messages));
        rest = &rest[at + 1..];
        let answer = rest.iter().find_map(|message| match message {
            Message::User { text } if text.to_lowercase().contains("stop") => Some(text),
            _ => None,
        });
        assert!(
            answer.is_some(),
            "no interruption behind {heard:?}: {rest:?}"
        );
    }
}

/// The levels at which the user says something, for [`by_level`].
const QUESTION: i16 = 6_000;
const LISTENING: i16 = 12_000;
const INTERRUPTION: i16 = 24_000;

/// Hears what the user says at each level.
fn by_level(audio: &[f32]) -> Result<String, AsrError> {
    let loudest = audio.iter().fold(0.0, |peak: f32, s| peak.max(s.abs()));
    let words = match loudest {
        loud if loud > 0.55 => "Please stop that story now.",
        loud if loud > 0.27 => "Mm-hm.",
        _ => "Can you tell me a story?",
    };
    Ok(words.into())
}

/// So much speech at 24 kHz.
fn speech(level: i16, ms: usize) -> Vec<i16> {
    vec![level; 24 * ms]
}

/// The events until so much of an answer has been heard, none of which may touch the answer.
async fn goes_on(call: &mut Call, response: &str, ms: u64) {
    let mut heard = 0;
    while heard < ms {
        let event = call.next().await;
        for kind in [
            "input_audio_buffer.speech_started",
            "undertone.clear",
            "response.done",
        ] {
            assert!(!event.is(kind), "{}", event.event);
        }
        if event.audio_ms() > 0 {
            assert_eq!(event.event["response_id"], response);
            heard += event.audio_ms();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_listening_words_over_an_answer_never_stop_it_and_ten_interruptions_always_do() {
    let _alone = common::alone().await;
    let story = "One more sentence of the story. ".repeat(40);
    let llm = Scripted::default().on(Cue::Always, format!("<speech>{story}</speech>"));
    let mut builders = Builders {
        asr: Box::new(|| Ok(Box::new(live::Hears(by_level)))),
        ..without_models(Arc::new(llm.clone()))
    };
    builders.policy.vad.barge_in.listening_words = ListeningWords::Pass;
    let server = live::serve(builders);
    let mut call = Call::to(&server).await;
    call.say(&speech(QUESTION, 600)).await;
    let (mut response, _) = listen(&mut call, None, 1_500).await;
    for _ in 0..10 {
        call.say(&speech(LISTENING, 400)).await;
        goes_on(&mut call, &response, 1_600).await;
    }
    for _ in 0..10 {
        call.say(&speech(INTERRUPTION, 900)).await;
        let events = call.until("response.done").await;
        let heard = cut_short(&events, &response);
        assert!(story.starts_with(heard.trim()), "{heard}");
        (response, _) = listen(&mut call, Some(&response), 1_100).await;
    }
    let prompt = llm.asked(Cue::Turn(11)).await;
    let users = prompt.messages.iter().filter_map(|message| match message {
        Message::User { text } => Some(&**text),
        _ => None,
    });
    let expected = std::iter::once("Can you tell me a story?")
        .chain(std::iter::repeat_n("Please stop that story now.", 10));
    assert!(users.eq(expected), "{:#?}", prompt.messages);
}

/// The agent's output at a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sound {
    /// The user is found to speak.
    Verdict,
    Voice,
    /// A flush of audio that was not played.
    Flushed,
    Silence,
    Other,
}

/// Frames of the answer that are heard before the barge-in.
const HEARD: usize = 25;

/// Frames of noise that count as speech.
const NOISE: usize = 30;

/// Asks, interrupts the answer, and listens until some time after the model is asked for the next
/// one. At most one frame may follow the detection, and none the flush. `speak` sends 20 ms of
/// noise or silence.
async fn interrupt(
    line: &str,
    llm: &Scripted,
    mut speak: impl AsyncFnMut(bool),
    mut sounds: mpsc::Receiver<Sound>,
) {
    let mut pace = interval(Duration::from_millis(20));
    pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (mut noise, mut voice, mut left) = (NOISE, 0, 10);
    let (mut verdict, mut stale, mut flushed, mut answered) = (false, 0, false, false);
    while left > 0 {
        tokio::select! {
            _ = pace.tick() => {
                speak(noise > 0).await;
                noise = noise.saturating_sub(1);
                answered |= llm.was_asked(&Cue::Turn(2));
                left -= usize::from(flushed && answered);
            }
            sound = sounds.recv() => match sound.expect("the call goes on") {
                Sound::Voice => {
                    assert!(!flushed, "{line}: a frame of a flushed answer");
                    stale += usize::from(verdict);
                    assert!(stale <= 1, "{line}: {stale} frames after the verdict");
                    voice += 1;
                    if voice == HEARD {
                        noise = NOISE;
                    }
                }
                Sound::Verdict => verdict = voice >= HEARD,
                Sound::Flushed => {
                    assert!(voice >= HEARD, "{line}: a flush without an interruption");
                    flushed = true;
                }
                // For transports without a flush message: audio in flight has arrived by now.
                Sound::Silence => flushed |= answered,
                Sound::Other => {}
            },
        }
    }
}

/// A model that tells a story and never answers again, and sessions with it.
fn storyteller() -> (Scripted, SessionFactory) {
    let llm = Scripted::default()
        .on(Cue::Turn(1), format!("<speech>{}</speech>", common::STORY))
        .on(Cue::Turn(2), Step::Hang);
    let sessions = live::sessions(without_models(Arc::new(llm.clone())));
    (llm, sessions)
}

fn serve(settings: ServerSettings) -> (Scripted, Server) {
    let (llm, sessions) = storyteller();
    (llm, Server::serve(App::new(settings, sessions)))
}

/// Interrupts over a WebSocket. `audio` encodes 20 ms of samples.
async fn interrupt_socket(
    line: &str,
    llm: &Scripted,
    client: Client,
    samples: usize,
    audio: impl Fn(&[i16]) -> tungstenite::Message,
    heard: fn(&tungstenite::Message) -> Sound,
) {
    let (mut sink, mut source) = client.socket.split();
    let (told, sounds) = mpsc::channel(1_024);
    tokio::spawn(async move {
        while let Some(Ok(message)) = source.next().await {
            if told.send(heard(&message)).await.is_err() {
                return;
            }
        }
    });
    let frames = [0, 12_000].map(|level| audio(&vec![level; samples]));
    let speak = async |loud| {
        let frame = frames[usize::from(loud)].clone();
        sink.send(frame).await.expect("the call goes on");
    };
    interrupt(line, llm, speak, sounds).await;
}

/// Classifies a JSON message by its `event` or `type`.
fn heard_json(message: &tungstenite::Message) -> Sound {
    let tungstenite::Message::Text(text) = message else {
        return Sound::Other;
    };
    let event: Value = serde_json::from_str(text).expect("JSON");
    let kind = event["event"].as_str().or(event["type"].as_str());
    match kind.unwrap_or_default() {
        "input_audio_buffer.speech_started" => Sound::Verdict,
        "media" | "playAudio" | "response.output_audio.delta" => Sound::Voice,
        "clear" | "clearAudio" | "undertone.clear" => Sound::Flushed,
        _ => Sound::Other,
    }
}

fn media(samples: &[i16]) -> tungstenite::Message {
    let payload = STANDARD.encode(Law::Mu.encode(samples));
    let event = json!({"event": "media", "media": {"track": "inbound", "payload": payload}});
    tungstenite::Message::text(event.to_string())
}

async fn over_realtime() {
    let (llm, server) = serve(local());
    let client = server.open("/v1/realtime?vendor_events=1").await;
    let append = |samples: &[i16]| {
        let event = json!({"type": "input_audio_buffer.append", "audio": base64_of(samples)});
        tungstenite::Message::text(event.to_string())
    };
    interrupt_socket("Realtime", &llm, client, 480, append, heard_json).await;
}

async fn over_pcm() {
    let (llm, server) = serve(local());
    let client = server.open("/v1/pcm").await;
    let audio = |samples: &[i16]| tungstenite::Message::binary(to_pcm16le(samples));
    let heard = |message: &tungstenite::Message| match message {
        tungstenite::Message::Binary(_) => Sound::Voice,
        message => heard_json(message),
    };
    interrupt_socket("PCM", &llm, client, 320, audio, heard).await;
}

async fn over_twilio() {
    let (llm, server) = serve(twilio::settings("http://127.0.0.1:9"));
    let client = twilio::call(&server).await;
    interrupt_socket("Twilio", &llm, client, 160, media, heard_json).await;
}

async fn over_another_provider(path: &str) {
    let (llm, server) = serve(local());
    let mut client = server.open(path).await;
    client.send(twilio::start_of_others()).await;
    interrupt_socket(path, &llm, client, 160, media, heard_json).await;
}

async fn over_chan_websocket() {
    let (llm, server) = serve(local());
    let mut client = server.open("/asterisk/media").await;
    client
        .send_text("MEDIA_START connection_id:c channel:d format:ulaw optimal_frame_size:160")
        .await;
    let audio = |samples: &[i16]| tungstenite::Message::binary(Law::Mu.encode(samples));
    let heard = |message: &tungstenite::Message| match message {
        tungstenite::Message::Binary(_) => Sound::Voice,
        tungstenite::Message::Text(text) if text.as_str() == "FLUSH_MEDIA" => Sound::Flushed,
        _ => Sound::Other,
    };
    interrupt_socket("chan_websocket", &llm, client, 160, audio, heard).await;
}

/// AudioSocket has no flush message: no voice may follow the silence during which the model is
/// asked for the next answer. Earlier silence may be due to a busy machine.
async fn over_audiosocket() {
    let (llm, sessions) = storyteller();
    let (_server, address) = Server::of_calls(local(), sessions);
    let stream = TcpStream::connect(address).await.expect("a connection");
    let (mut reader, mut writer) = stream.into_split();
    let (told, sounds) = mpsc::channel(1_024);
    tokio::spawn(async move {
        while reader.read_u8().await.is_ok() {
            let length = reader.read_u16().await.expect("a length");
            let mut payload = vec![0; usize::from(length)];
            reader.read_exact(&mut payload).await.expect("audio");
            let sound = match payload.iter().any(|byte| *byte != 0) {
                true => Sound::Voice,
                false => Sound::Silence,
            };
            if told.send(sound).await.is_err() {
                return;
            }
        }
    });
    let frame = |kind: u8, payload: &[u8]| {
        let length = (payload.len() as u16).to_be_bytes();
        [&[kind], &length[..], payload].concat()
    };
    writer.write_all(&frame(1, &[7; 16])).await.expect("sent");
    let frames = [0, 12_000].map(|level| frame(0x10, &to_pcm16le(&[level; 160])));
    let speak = async |loud| {
        let frame = &frames[usize::from(loud)];
        writer.write_all(frame).await.expect("the call goes on");
    };
    interrupt("AudioSocket", &llm, speak, sounds).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_frame_of_a_flushed_answer_follows_on_any_transport() {
    let all = async {
        tokio::join!(
            over_realtime(),
            over_pcm(),
            over_twilio(),
            over_another_provider("/telnyx/media"),
            over_another_provider("/plivo/media"),
            over_chan_websocket(),
            over_audiosocket(),
        )
    };
    timeout(3 * PATIENCE, all).await.expect("in time");
}
