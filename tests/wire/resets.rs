//! Connections that are reset after any byte, between the server and its language model, a tool's service or the client:
//! each turn ends in an answer or an apology, nothing is booked twice, and nobody is booked whom nobody has named.

use crate::support::desk::{self, Desk};
use crate::support::faults::{Cut, Cutter, Way};
use crate::support::live::{self, without_models};
use crate::support::program::{answer, asking, until};
use crate::support::{PATIENCE, Server, local};
use futures_util::{SinkExt, StreamExt};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use undertone::dice::Dice;
use undertone::llm::remote::Settings;
use undertone::llm::{Llm, LlmStream, Phrases, Prompt, Prompts, Remote};
use undertone::server::{App, ServerSettings};
use undertone::session::Builders;
use undertone::tools::journal::JournalFile;
use undertone::tools::{Clock, Journal, SystemClock, declared};

const ANN: &str = "Ann Canary";
const BEN: &str = "Ben Canary";

/// A model without a warm-up, whose first connection is its first answer's.
struct Cold(Remote);

impl Llm for Cold {
    fn name(&self) -> &str {
        "cold"
    }

    fn generate(&self, prompt: Prompt) -> LlmStream {
        self.0.generate(prompt)
    }
}

/// A server for one session at a time, whose words take no time. All its connections are new.
fn serve(model: SocketAddr, tool: &str, journal: &Path) -> Server {
    let url = format!("http://{model}/v1").parse().expect("a URL");
    let llm = Remote::new(Settings::new(url, "m"), Prompts::default()).expect("a client");
    let tool = declared::parse(Path::new("a.toml"), tool).expect("a declaration");
    let journal = JournalFile::open(journal, SystemClock.now()).expect("a journal");
    let sessions = live::silent_sessions(Builders {
        tools: declared::registry(&[tool]).expect("a tool").into(),
        journal: Some(Journal::new(journal)),
        ..without_models(Arc::new(Cold(llm)))
    });
    let settings = ServerSettings {
        max_sessions: 1,
        ..local()
    };
    Server::serve(App::new(settings, sessions))
}

/// The agent says how it went, or is sorry, and says that a room is booked only if it is.
fn assert_told(desk: &Desk, guest: &str, words: &str, round: &str) {
    let rooms = desk.rooms_of(guest);
    assert!(rooms <= 1, "{round}: {guest} was booked {rooms} times");
    let apology = Phrases::default().llm_failed;
    let ends = [desk::BOOKED, desk::NOT_BOOKED, desk::UNKNOWN, &apology];
    assert!(
        ends.iter().any(|end| words.contains(end)),
        "{round}: {words:?}"
    );
    if words.contains(desk::BOOKED) {
        assert_eq!(rooms, 1, "{round}: {words:?}");
    }
    for name in desk.guests() {
        assert!([ANN, BEN].contains(&&*name), "{round}: booked {name:?}");
    }
}

/// The connection that is cut.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Line {
    Model,
    Tool,
    Client,
}

/// Two bookings in one session, while a line is cut. Returns the bytes that its first connection carried in each
/// direction.
async fn two_bookings(line: Line, cut: Option<Cut>) -> [u64; 2] {
    let desk = Desk::open().await;
    let folder = tempfile::tempdir().expect("a folder");
    let cutter = Cutter::before(match line {
        Line::Model => desk.model,
        _ => desk.booking,
    })
    .await;
    if let Some(cut) = cut {
        cutter.cut(cut);
    }
    let (model, booking) = match line {
        Line::Model => (cutter.address, desk.booking),
        _ => (desk.model, cutter.address),
    };
    let tool = Desk::declaration(booking, "timeout_ms = 60000");
    let server = serve(model, &tool, &folder.path().join("journal.jsonl"));
    let mut client = server.open("/v1/realtime").await;
    let round = format!("{line:?}, {cut:?}");
    for guest in [ANN, BEN] {
        let words = answer(&mut client, &desk::request_for(guest)).await;
        assert_told(&desk, guest, &words, &round);
    }
    if cut.is_none() {
        assert_eq!((desk.rooms_of(ANN), desk.rooms_of(BEN)), (1, 1));
    }
    [Way::ToServer, Way::ToClient].map(|way| cutter.carried(way))
}

/// Begins to book a room, as far as the connection lets it.
async fn try_to_book(address: SocketAddr, guest: &str) -> Option<()> {
    let url = format!("ws://{address}/v1/realtime?caller=%2B15551230000");
    let (mut socket, _) = tokio_tungstenite::connect_async(url).await.ok()?;
    for event in asking(&desk::request_for(guest)) {
        socket.send(Message::text(event.to_string())).await.ok()?;
    }
    loop {
        match timeout(PATIENCE, socket.next()).await.expect("in time") {
            Some(Ok(Message::Text(text))) if text.contains("\"response.done\"") => return Some(()),
            Some(Ok(_)) => {}
            _ => return None,
        }
    }
}

/// A caller whose line is cut, and who calls again as soon as the server has a place, which it has only for one.
async fn call_twice(cut: Option<Cut>) -> [u64; 2] {
    let desk = Desk::open().await;
    let folder = tempfile::tempdir().expect("a folder");
    let more = "once_per = \"caller + who\"\nfixed_trust = \"claimed\"\ntimeout_ms = 60000";
    let tool = Desk::declaration(desk.booking, more);
    let server = serve(desk.model, &tool, &folder.path().join("journal.jsonl"));
    let cutter = Cutter::before(server.address).await;
    if let Some(cut) = cut {
        cutter.cut(cut);
    }
    let whole = try_to_book(cutter.address, ANN).await;
    assert!(cut.is_some() || whole.is_some());
    let mut client = until(async || {
        let path = "/v1/realtime?caller=%2B15551230000";
        server.try_open(path, &[]).await.ok()
    })
    .await;
    let words = answer(&mut client, &desk::request_for(ANN)).await;
    let told = words.contains(desk::BOOKED) || words.contains(desk::BOOKED_BEFORE);
    assert!(told, "{cut:?}: {words:?}");
    assert_eq!(desk.rooms_of(ANN), 1, "{cut:?}: {words:?}");
    [Way::ToServer, Way::ToClient].map(|way| cutter.carried(way))
}

async fn run(line: Line, cut: Option<Cut>) -> [u64; 2] {
    match line {
        Line::Client => call_twice(cut).await,
        _ => two_bookings(line, cut).await,
    }
}

/// Cuts a line after some of the bytes that it carries, chosen by `after` from their number, in both directions.
async fn cut_after(line: Line, every: bool, after: impl Fn(Way, u64) -> Vec<u64>) {
    let carried = run(line, None).await;
    for (way, all) in [Way::ToServer, Way::ToClient].into_iter().zip(carried) {
        assert!(all > 100, "{line:?} carried {all} bytes {way:?}");
        let mut rounds = 0;
        for after in after(way, all) {
            run(line, Some(Cut { way, after, every })).await;
            rounds += 1;
        }
        println!("{line:?}: {rounds} rounds, cut after up to {all} bytes {way:?}");
    }
}

/// Six places in each direction.
async fn sample(line: Line, every: bool, seed: u64) {
    let places = |way: Way, all: u64| {
        let mut dice = Dice::new(seed + way as u64);
        (0..6).map(|_| dice.below(all)).collect()
    };
    cut_after(line, every, places).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_whose_connection_is_reset_anywhere_books_nobody_twice() {
    sample(Line::Model, false, 1).await;
    sample(Line::Model, true, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_whose_connection_is_reset_anywhere_is_called_once() {
    sample(Line::Tool, false, 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_whose_connection_is_reset_anywhere_calls_again_and_has_booked_once() {
    sample(Line::Client, false, 4).await;
}

/// Every byte of what is short, and some of requests with a prompt and of events for the client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "at full size: make soak"]
async fn a_reset_after_every_byte_books_nobody_twice() {
    for (line, every) in [
        (Line::Tool, false),
        (Line::Model, false),
        (Line::Model, true),
        (Line::Client, false),
    ] {
        let places = |way: Way, all: u64| {
            let step = match (line, way) {
                (Line::Model, Way::ToServer) => 97,
                (Line::Client, Way::ToClient) => 13,
                (Line::Model, Way::ToClient) if every => 5,
                _ => 1,
            };
            (0..=all).step_by(step).collect()
        };
        cut_after(line, every, places).await;
    }
}
