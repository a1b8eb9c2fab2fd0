//! A pump without a socket: with [`Link`], [`Outbox`] and [`Patience`] it runs whole sessions.

use crate::support;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use support::{PATIENCE, Script, live, scripted};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{interval, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use undertone::audio::to_pcm16le;
use undertone::conversation::{Event, Micros};
use undertone::llm::scripted::Scripted;
use undertone::session::{Outbound, Profile, SessionFactory, SessionOptions};
use undertone::transport::Frame;
use undertone::transport::intake::IntakeLimits;
use undertone::transport::link::{Link, Signal};
use undertone::transport::outbox::Outbox;
use undertone::transport::patience::Patience;
use undertone::transport::pump::{self, PumpContext, SocketLimits};

const WELL: &str = "I am well.";

/// The response is over.
const DONE: &str = "done";

/// Hz.
const RATE: u32 = 16_000;

type End = pump::End<&'static str>;

/// The pump's side of a line in this process.
struct Line {
    from: mpsc::Receiver<Vec<i16>>,
    to: mpsc::Sender<Frame>,
}

/// Carries a session over a line, as a socket's pump does.
async fn carry(mut line: Line, context: PumpContext) -> End {
    let mut patience = Patience::new(context.limits);
    let mut link = Link::new(IntakeLimits::LIVE, RATE, context);
    let end = run(&mut line, &mut link, &mut patience).await;
    link.end(&end);
    end
}

async fn run(line: &mut Line, link: &mut Link, patience: &mut Patience) -> End {
    let options = SessionOptions::new(Profile::Conversation, RATE);
    if link.open(options).is_err() {
        return End::Closed("no session could be opened");
    }
    patience.begun();
    let mut outbox = Outbox::default();
    loop {
        if !outbox.is_empty() {
            patience.waits();
        }
        let deadline = patience.deadline();
        tokio::select! {
            biased;
            room = line.to.reserve(), if !outbox.is_empty() => match (room, outbox.pop()) {
                (Ok(room), Some(frame)) => {
                    room.send(frame);
                    patience.took_all();
                }
                _ => return End::Vanished,
            },
            signal = link.next() => match signal {
                Signal::Said(Outbound::HangUp(_)) => return End::Closed("the session is over"),
                Signal::Said(said) => {
                    if !say(said, &mut outbox, link) {
                        return End::Slow;
                    }
                }
                Signal::Lost => return End::Closed("the session failed"),
                Signal::Drained | Signal::Stop => return End::Closed("the server shuts down"),
            },
            samples = line.from.recv() => match samples {
                Some(samples) => {
                    patience.heard();
                    link.audio(samples);
                }
                None => return End::Left,
            },
            () = sleep_until(deadline) => {
                if let Err(end) = patience.check("nothing was begun") {
                    return end;
                }
            }
        }
    }
}

/// False if there is no room: the client must go.
fn say(said: Outbound, outbox: &mut Outbox, link: &Link) -> bool {
    match said {
        Outbound::Audio { samples, .. } => {
            let length = Micros::of_samples(samples.len() as u64, RATE);
            if !outbox.push_audio(Frame::Binary(to_pcm16le(&samples)), length) {
                link.audio_lost(length);
            }
            true
        }
        Outbound::Clear => {
            outbox.drop_audio();
            true
        }
        Outbound::Event {
            event: Event::AgentSpeech { text, .. },
            ..
        } => outbox.push(text),
        Outbound::Event {
            event: Event::ResponseDone { .. },
            ..
        } => outbox.push(DONE.into()),
        Outbound::Event { .. }
        | Outbound::TimerRings
        | Outbound::HangUp(_)
        | Outbound::Tones(_)
        | Outbound::Keys(_) => true,
    }
}

/// A client at the other end of a line.
struct Client {
    speaks: mpsc::Sender<Vec<i16>>,
    hears: mpsc::Receiver<Frame>,
    pump: JoinHandle<End>,
    context: PumpContext,
}

impl Client {
    fn of(sessions: SessionFactory) -> Self {
        let context = PumpContext {
            sessions,
            limits: SocketLimits::default(),
            counters: Arc::default(),
            drain: CancellationToken::new(),
            farewell: CancellationToken::new(),
            stop: CancellationToken::new(),
        };
        let (speaks, from) = mpsc::channel(8);
        let (to, hears) = mpsc::channel(8);
        let pump = tokio::spawn(carry(Line { from, to }, context.clone()));
        Self {
            speaks,
            hears,
            pump,
            context,
        }
    }

    async fn end(self) -> End {
        let end = timeout(PATIENCE, self.pump).await.expect("an end in time");
        end.expect("no panic")
    }
}

fn answering() -> SessionFactory {
    let llm = Scripted::always(format!("<speech>{WELL}</speech>"));
    live::sessions(live::without_models(Arc::new(llm)))
}

#[tokio::test]
async fn a_pump_without_a_socket_runs_a_whole_session() {
    let mut client = Client::of(answering());
    let mut pace = interval(Duration::from_millis(20));
    let mut loud = 30;
    let (mut words, mut audio) = (String::new(), 0);
    loop {
        tokio::select! {
            _ = pace.tick() => {
                let level = if loud > 0 { 8_000 } else { 0 };
                loud = i32::max(loud - 1, 0);
                let frame = vec![level; RATE as usize / 50];
                client.speaks.send(frame).await.expect("the pump listens");
            }
            said = timeout(PATIENCE, client.hears.recv()) => {
                match said.expect("an answer in time").expect("the pump talks") {
                    Frame::Binary(bytes) => audio += bytes.len() / 2,
                    Frame::Text(text) if text == DONE => break,
                    Frame::Text(text) => words += &text,
                }
            }
        }
    }
    assert_eq!(words, WELL);
    assert!(
        audio >= RATE as usize * 6 / 10,
        "{audio} samples of three words"
    );
    let Client {
        speaks,
        pump,
        context,
        ..
    } = client;
    drop(speaks);
    assert_eq!(pump.await.expect("no panic"), End::Left);
    let counters = &context.counters;
    let of_clients = [
        &counters.slow_clients,
        &counters.vanished_clients,
        &counters.bad_clients,
    ];
    assert_eq!(of_clients.map(|count| count.load(Relaxed)), [0; 3]);
    assert_eq!(counters.sessions.load(Relaxed), 1);
}

#[tokio::test]
async fn it_drains_and_stops() {
    let drained = Client::of(answering());
    drained.context.drain.cancel();
    assert_eq!(drained.end().await, End::Closed("the session is over"));
    let stopped = Client::of(answering());
    stopped.context.stop.cancel();
    assert_eq!(stopped.end().await, End::Closed("the server shuts down"));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_listen_or_falls_silent_is_gone() {
    let slow = Client::of(scripted::factory(Script::default()));
    for level in [8_000; 30].into_iter().chain([0; 30]) {
        let frame = vec![level; RATE as usize / 50];
        slow.speaks.send(frame).await.expect("the pump listens");
    }
    let counters = slow.context.counters.clone();
    assert_eq!(slow.end().await, End::Slow);
    assert_eq!(counters.slow_clients.load(Relaxed), 1);
    let silent = Client::of(scripted::factory(Script::default()));
    let counters = silent.context.counters.clone();
    assert_eq!(silent.end().await, End::Vanished);
    assert_eq!(counters.vanished_clients.load(Relaxed), 1);
}
