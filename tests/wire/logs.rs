//! Tests what the real program logs of a session: its id in every line, and no words above debug.

use crate::common;
use crate::support::ports;
use crate::support::program::{self, Program, answer, ask, until};
use axum::Json;
use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs::File;
use std::path::Path;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// A word that the user says, and that the failing service repeats.
const WORD: &str = "marigold";

const QUESTION: &str = "Check the stock of marigold lamps.";

/// A web service that repeats what it was asked for in its failure. Returns its port.
async fn failing() -> u16 {
    let said = json!({"error": format!("{WORD} lamps broke the database")});
    let app = Router::new().route(
        "/stock/{article}",
        get(async move || (StatusCode::INTERNAL_SERVER_ERROR, Json(said))),
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move { axum::serve(listener, app).await });
    port
}

fn stock(port: u16) -> String {
    format!(
        r#"name = "get_stock"
kind = "http"
description = "How many of an article are in stock."
effect = "read"
parameters = {{ properties = {{ article = {{ type = "string" }} }}, required = ["article"] }}
http = {{ url = "http://127.0.0.1:{port}/stock/{{{{ article }}}}", error = "/error", allow_private = true }}
[speculation]
allow = "full"
network = true
[router]
examples = [
    "how many red chairs do you have in stock",
    "are there any desk lamps left",
    "do you have oak tables",
    "is the reading lamp still available",
    "check the stock of garden benches",
]
"#
    )
}

fn lines(folder: &Path) -> Vec<Value> {
    let log = std::fs::read_to_string(folder.join("log")).expect("a log");
    // The last line may not be whole yet.
    let whole = log
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'));
    whole
        .map(|line| serde_json::from_str(line).expect("each line is JSON"))
        .collect()
}

fn is(line: &Value, message: &str) -> bool {
    line["message"] == message
}

/// The id of the session that a line is of.
fn session(line: &Value) -> Option<&str> {
    let spans = line["spans"].as_array()?;
    let span = spans.iter().find(|span| span["name"] == "session")?;
    span["id"].as_str()
}

/// The longer words of the user's in these events.
fn words(events: &[Value]) -> Vec<String> {
    let is_users =
        |event: &&Value| event["type"] == "conversation.item.input_audio_transcription.completed";
    let texts = events.iter().filter(is_users);
    texts
        .filter_map(|event| event["transcript"].as_str())
        .flat_map(|text| text.split(|c: char| !c.is_alphanumeric()))
        .filter(|word| word.len() > 6)
        .map(str::to_lowercase)
        .collect()
}

#[tokio::test]
async fn every_line_of_a_session_has_its_id_and_no_words_are_logged_above_debug() {
    let port = failing().await;
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let write = |file: &str, text: &str| std::fs::write(folder.join(file), text).expect("written");
    std::fs::create_dir(folder.join("tools")).expect("made");
    write("tools/stock.toml", &stock(port));
    write(
        "undertone.toml",
        "[server]\nport = 0\n[call_recording]\nfolder = \"calls\"\nconsent = \"\"\n\
         [log]\nformat = \"json\"\nlevel = \"warn,undertone=debug\"\n",
    );
    let mut command = program::command(folder, &common::weights(), "");
    command.stderr(File::create(folder.join("log")).expect("a log"));
    let mut program = Program::start(command).await;
    // The sound cannot be written: the recorder's thread says so.
    std::fs::remove_dir(folder.join("calls")).expect("an empty folder");

    let mut client = program.open(None).await.expect("a session");
    answer(&mut client, QUESTION).await;
    let question = common::speech::spoken("en-gb: How many miles are there in ten kilometers?");
    let samples = common::resampled(&question[0].samples, 16_000, 24_000);
    let mut heard = Vec::new();
    client.append(&undertone::audio::to_i16(&samples)).await;
    client.append(&vec![0; 48_000]).await;
    heard.extend(
        client
            .until("conversation.item.input_audio_transcription.completed")
            .await,
    );
    heard.extend(client.until("response.done").await);
    // A refused request is logged, too.
    client.send(json!({"type": "response.create", "response": {"tool_choice": {"type": "function", "name": "none"}}})).await;
    ask(&mut client, QUESTION).await;
    heard.extend(client.until("response.done").await);
    client.socket.close(None).await.expect("closed");
    let closed = || lines(folder).iter().any(|line| is(line, "session closed"));
    until(async || closed().then_some(())).await;
    program.signal(Signal::TERM);
    assert!(program.ended().await.success());

    let all = lines(folder);
    let begin = all.iter().position(|line| session(line).is_some());
    let begin = begin.expect("a line of the session");
    let end = all.iter().position(|line| is(line, "session closed"));
    let of_session = &all[begin..=end.expect("it was closed")];
    let id = session(&of_session[0]).expect("an id");
    assert!(uuid::Uuid::parse_str(id).is_ok(), "{id}");
    for line in of_session {
        // The connection is there before its session.
        let is_own = session(line) == Some(id);
        assert!(is_own, "without the session's id: {line}");
    }
    for message in [
        "session opened",
        "tool started",
        "tool failed",
        "turn done",
        "the recording of a call ends",
    ] {
        let found = all.iter().any(|line| is(line, message));
        assert!(found, "nothing says \"{message}\"");
    }

    let words: Vec<String> = words(&heard).into_iter().chain([WORD.to_owned()]).collect();
    assert!(words.len() > 1, "{words:?}");
    let (quiet, loud): (Vec<&Value>, Vec<&Value>) =
        all.iter().partition(|line| line["level"] == "DEBUG");
    let says = |line: &&Value, word: &str| line.to_string().to_lowercase().contains(word);
    assert!(quiet.iter().any(|line| says(line, WORD)), "debug has them");
    for word in &words {
        let leak = loud.iter().find(|line| says(line, word));
        assert!(
            leak.is_none(),
            "\"{word}\" is logged: {}",
            leak.unwrap_or(&&Value::Null)
        );
    }
}

/// Lines about a Wyoming client used to be without the id of the session that answered it.
#[tokio::test]
async fn lines_of_a_wyoming_connection_have_the_id_of_its_session() {
    let home = format!("127.0.0.1:{}", ports::free());
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let settings = format!(
        "[server]\nport = 0\n[wyoming]\nlisten = \"{home}\"\n[log]\nformat = \"json\"\n\
         level = \"warn,undertone=debug\"\n"
    );
    std::fs::write(folder.join("undertone.toml"), settings).expect("written");
    let mut command = program::command(folder, &common::weights(), "");
    command.stderr(File::create(folder.join("log")).expect("a log"));
    let mut program = Program::start(command).await;
    let (reader, mut writer) = TcpStream::connect(home).await.expect("a door").into_split();
    let asked = json!({"type": "transcript", "data": {"text": "What is twelve times seven?"}});
    let asked = format!("{asked}\n");
    writer.write_all(asked.as_bytes()).await.expect("sent");
    let mut reader = BufReader::new(reader);
    let mut answer = String::new();
    reader.read_line(&mut answer).await.expect("an answer");
    assert!(answer.contains("handled"), "{answer}");
    writer.write_all(b"no event\n").await.expect("sent");
    reader.read_to_string(&mut answer).await.expect("the end");
    program.signal(Signal::TERM);
    assert!(program.ended().await.success());

    let all = lines(folder);
    let opened = all.iter().find(|line| is(line, "session opened"));
    let id = session(opened.expect("a session")).expect("an id");
    let closed = "closed a Wyoming connection after an invalid request";
    let closed = all.iter().find(|line| is(line, closed));
    assert_eq!(session(closed.expect("it says so")), Some(id));
}
