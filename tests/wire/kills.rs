//! Kills the server at any moment of a booking and starts it again with the same journal: nothing is booked twice, and
//! no call is left unreported.
//!
//! The server is a process of its own: most often one with scripted models, which is this test program once more, because
//! that starts within a fraction of a second; and the real program.

use crate::common;
use crate::support::desk::{self, Desk};
use crate::support::faults::time_below;
use crate::support::live::{self, without_models};
use crate::support::program::{self, START, ask, said};
use crate::support::{Client, PATIENCE, Server, local};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;
use undertone::dice::Dice;
use undertone::llm::remote::Settings;
use undertone::llm::{Prompts, Remote};
use undertone::server::App;
use undertone::session::Builders;
use undertone::tools::journal::JournalFile;
use undertone::tools::{Clock, Journal, SystemClock, declared};

/// The folder of the scripted server's journal and tools, and the model's address, for its process.
const FOLDER: &str = "KILLS_FOLDER";
const MODEL: &str = "KILLS_MODEL";

/// The beginnings of the lines in which the scripted server tells its address, and each call that has no result.
const SERVES: &str = "serves at ";
const UNKNOWN: &str = "not known: ";

const JOURNAL: &str = "journal.jsonl";

/// A moment of a booking. The kill comes some milliseconds later.
#[derive(Debug, Clone, Copy)]
enum Moment {
    Opened,
    Asked,
    Question,
    Confirmed,
    /// The booking service has the request.
    Booking,
    /// It has sent its answer.
    Booked,
    Answered,
}

const MOMENTS: [Moment; 7] = [
    Moment::Opened,
    Moment::Asked,
    Moment::Question,
    Moment::Confirmed,
    Moment::Booking,
    Moment::Booked,
    Moment::Answered,
];

/// Serves sessions with scripted models until it is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the tests below start it"]
async fn scripted_server() {
    let (Some(folder), Ok(model)) = (std::env::var_os(FOLDER), std::env::var(MODEL)) else {
        return;
    };
    let folder = PathBuf::from(folder);
    let journal = JournalFile::open(&folder.join(JOURNAL), SystemClock.now()).expect("a journal");
    for call in journal.unknown() {
        println!("\n{UNKNOWN}{}", call.key);
    }
    let tools = declared::load(&folder.join("tools"), &|_| None).expect("declarations");
    let url = format!("http://{model}/v1").parse().expect("a URL");
    let llm = Remote::new(Settings::new(url, "m"), Prompts::default()).expect("a client");
    let sessions = live::silent_sessions(Builders {
        tools: declared::registry(&tools).expect("tools").into(),
        journal: Some(Journal::new(journal)),
        ..without_models(Arc::new(llm))
    });
    let server = Server::serve(App::new(local(), sessions));
    println!("\n{SERVES}{}", server.address);
    std::future::pending().await
}

/// Which program is the server.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Scripted,
    Real,
}

/// A running server.
struct Served {
    process: Child,
    address: String,
    /// The calls of which it has said at its start that their end is not known.
    reported: BTreeSet<String>,
}

async fn serve(kind: Kind, folder: &Path, model: SocketAddr) -> Served {
    let log = folder.join("log");
    let mut command = match kind {
        Kind::Scripted => {
            let mut command = Command::new(std::env::current_exe().expect("this program"));
            command.args([
                "--exact",
                "kills::scripted_server",
                "--ignored",
                "--nocapture",
            ]);
            command.env(FOLDER, folder).env(MODEL, model.to_string());
            command
        }
        Kind::Real => {
            let weights = common::weights();
            program::command(folder, &weights, "")
        }
    };
    let mut process = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(&log).expect("a log"))
        .kill_on_drop(true)
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
    let mut reported = BTreeSet::new();
    let address = loop {
        let line = timeout(START, lines.next_line()).await.expect("in time");
        let line = line.expect("text").expect("it ended; its log tells why");
        if let Some(key) = line.strip_prefix(UNKNOWN) {
            reported.insert(key.to_owned());
        }
        let told = match kind {
            Kind::Scripted => line.strip_prefix(SERVES),
            Kind::Real => line.rsplit('/').next(),
        };
        if let Some(address) = told {
            break address.to_owned();
        }
    };
    if kind == Kind::Real {
        let log = std::fs::read_to_string(&log).expect("a log");
        let told = log.lines().filter(|line| line.contains("is not known"));
        let keys = told.filter_map(|line| line.split("key=").nth(1)?.split('"').nth(1));
        reported.extend(keys.map(str::to_owned));
    }
    Served {
        process,
        address,
        reported,
    }
}

impl Served {
    async fn call(&self) -> Client {
        let url = format!(
            "ws://{}/v1/realtime?vendor_events=1&caller=%2B15551230000",
            self.address
        );
        let (socket, _) = tokio_tungstenite::connect_async(url).await.expect("open");
        let protocol = None;
        Client { socket, protocol }
    }

    /// Begins to book a room, and goes on until this moment. Returns the caller, who waits.
    async fn book_until(&self, desk: &Desk, guest: &str, moment: Moment) -> Client {
        let mut progress = desk.progress();
        let (came, answered) = *progress.borrow();
        let mut client = self.call().await;
        if matches!(moment, Moment::Opened) {
            return client;
        }
        ask(&mut client, &desk::request_for(guest)).await;
        if matches!(moment, Moment::Asked) {
            return client;
        }
        let question = asked(&mut client).await;
        if matches!(moment, Moment::Question) {
            return client;
        }
        client.until("response.done").await;
        client.send(yes(&question)).await;
        let reached = async {
            match moment {
                Moment::Booking => drop(progress.wait_for(|now| now.0 > came).await),
                Moment::Booked => drop(progress.wait_for(|now| now.1 > answered).await),
                Moment::Answered => drop(client.until("response.done").await),
                _ => {}
            }
        };
        timeout(PATIENCE, reached).await.expect("in time");
        client
    }

    /// Books a room. Returns the agent's last words.
    async fn book(&self, guest: &str) -> String {
        let mut client = self.call().await;
        ask(&mut client, &desk::request_for(guest)).await;
        let question = asked(&mut client).await;
        client.until("response.done").await;
        client.send(yes(&question)).await;
        said(&mut client).await
    }
}

/// The server's question whether it shall book.
async fn asked(client: &mut Client) -> Value {
    let mut events = client.until("undertone.confirmation.asked").await;
    events.pop().expect("one")
}

fn yes(question: &Value) -> Value {
    let call = &question["call_id"];
    json!({"type": "undertone.confirmation.respond", "call_id": call, "accept": true})
}

/// The calls in the journal that have no result. A kill may have cut its last line.
fn open_calls(folder: &Path) -> BTreeSet<String> {
    let text = std::fs::read(folder.join(JOURNAL)).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut open = BTreeSet::new();
    for line in lines {
        let key = line["key"].as_str().expect("a key").to_owned();
        match line["line"].as_str() {
            Some("intent") => open.insert(key),
            _ => open.remove(&key),
        };
    }
    open
}

/// A folder with a configuration for the desk, whose tool may take so many ms.
fn home(desk: &Desk, most_ms: u32) -> tempfile::TempDir {
    let home = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(home.path().join("tools")).expect("made");
    // A second call waits for the first as long as that may still run.
    let more = format!(
        "once_per = \"caller + who\"\nfixed_trust = \"claimed\"\ntimeout_ms = {most_ms}\n\
         confirm = {{ spoken = true, question = \"Shall I book a room?\" }}"
    );
    let tool = Desk::declaration(desk.booking, &more);
    std::fs::write(home.path().join("tools/book.toml"), tool).expect("written");
    let settings = format!(
        "[server]\nport = 0\n[llm]\nengine = \"openai-compatible\"\nmodel = \"m\"\n\
         base_url = \"http://{}/v1\"\n[tools]\njournal = \"{JOURNAL}\"\n",
        desk.model
    );
    std::fs::write(home.path().join("undertone.toml"), settings).expect("written");
    home
}

/// How often the second call was told what.
#[derive(Debug, Default)]
struct Told {
    booked: usize,
    before: usize,
    unknown: usize,
}

/// In each round a caller books and the server is killed; the caller calls again and books again.
async fn rounds(
    kind: Kind,
    moments: impl Iterator<Item = Moment>,
    seed: u64,
    most_ms: u32,
) -> Told {
    let (desk, mut dice, mut told) = (Desk::open().await, Dice::new(seed), Told::default());
    let home = home(&desk, most_ms);
    let folder = home.path();
    let mut served = serve(kind, folder, desk.model).await;
    let mut guests = 0;
    for moment in moments {
        guests += 1;
        let guest = format!("Guest {guests}");
        desk.takes(time_below(&mut dice, 20));
        let caller = served.book_until(&desk, &guest, moment).await;
        tokio::time::sleep(time_below(&mut dice, 20)).await;
        served.process.kill().await.expect("SIGKILL");
        drop(caller);
        let round = format!("round {guests} of seed {seed}, killed after {moment:?}");
        let open = open_calls(folder);
        served = serve(kind, folder, desk.model).await;
        let unreported: Vec<_> = open.difference(&served.reported).collect();
        assert!(unreported.is_empty(), "{round}: {unreported:?}");

        desk.takes(time_below(&mut dice, 20));
        let first = desk.rooms_of(&guest);
        let words = served.book(&guest).await;
        let rooms = desk.rooms_of(&guest);
        assert!(rooms <= 1, "{round}: booked {rooms} times");
        if words.contains(desk::BOOKED_BEFORE) {
            assert_eq!((first, rooms), (1, 1), "{round}");
            told.before += 1;
        } else if words.contains(desk::UNKNOWN) {
            assert_eq!(first, rooms, "{round}: it was begun again");
            told.unknown += 1;
        } else if words.contains(desk::BOOKED) {
            assert_eq!((first, rooms), (0, 1), "{round}");
            told.booked += 1;
        } else {
            // Slower than the tool may be.
            assert!(words.contains(desk::NOT_BOOKED), "{round}: {words:?}");
        }
    }
    served.process.kill().await.expect("SIGKILL");
    for guest in desk.guests() {
        assert_eq!(desk.rooms_of(&guest), 1, "{guest}");
    }
    println!("{guests} rounds with the {kind:?} server: {told:?}");
    told
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_in_any_part_of_a_booking_books_once() {
    let told = rounds(Kind::Scripted, MOMENTS.into_iter(), 1, 3_000).await;
    assert!(told.booked > 0 && told.before > 0, "{told:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "at full size: make soak"]
async fn a_server_killed_at_two_hundred_random_moments_books_each_guest_once() {
    let mut dice = Dice::new(200);
    let moments = (0..200).map(|_| dice.pick(&MOMENTS));
    let told = rounds(Kind::Scripted, moments, 2, 1_500).await;
    let all = told.booked > 0 && told.before > 0 && told.unknown > 0;
    assert!(all, "{told:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "at full size: make soak"]
async fn the_real_program_killed_in_any_part_of_a_booking_books_each_guest_once() {
    let _together = common::together().await;
    let told = rounds(Kind::Real, MOMENTS.into_iter(), 3, 3_000).await;
    assert!(told.booked > 0 && told.before > 0, "{told:?}");
}
