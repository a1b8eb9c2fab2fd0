//! Tests the WebSocket conformance of the production upgrade and pump with the suite `kosoku`.

use crate::support;
use axum::Router;
use axum::extract::ws::WebSocketUpgrade;
use axum::routing::get;
use std::path::Path;
use support::{Script, scripted};
use tokio::process::Command;
use tokio_util::sync::CancellationToken;
use undertone::conversation::Micros;
use undertone::server::{Counters, SocketLimits, bind};
use undertone::session::Outbound;
use undertone::transport::intake::IntakeLimits;
use undertone::transport::pump::PumpContext;
use undertone::transport::socket;
use undertone::transport::{Action, ClientMessage, Dialect, Frame};

/// A dialect that echoes messages.
struct Echo;

impl Dialect for Echo {
    fn start(&mut self) -> Vec<Action> {
        Vec::new()
    }

    fn client(&mut self, message: ClientMessage<'_>) -> Vec<Action> {
        vec![match message {
            ClientMessage::Text(text) => Action::Send(text.to_owned()),
            ClientMessage::Binary(bytes) => Action::SendAudio {
                frame: Frame::Binary(bytes.to_vec()),
                length: Micros(0),
            },
        }]
    }

    fn session(&mut self, _outbound: Outbound) -> Vec<Action> {
        Vec::new()
    }

    fn overrun(&mut self, _dropped: Micros) -> Vec<Action> {
        Vec::new()
    }
}

fn echo_routes() -> Router {
    Router::new().fallback(get(async |upgrade: WebSocketUpgrade| {
        let context = PumpContext {
            sessions: scripted::factory(Script::default()),
            limits: SocketLimits::default(),
            counters: Counters::default().into(),
            drain: CancellationToken::new(),
            farewell: CancellationToken::new(),
            stop: CancellationToken::new(),
        };
        socket::limit(upgrade, 64 * 1024).on_upgrade(async move |socket| {
            socket::drive(
                socket,
                Box::new(Echo),
                IntakeLimits::LIVE,
                16_000,
                context,
                None,
            )
            .await;
        })
    }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_cases_pass() {
    let kosoku = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/foreign/.venv/bin/kosoku"
    ));
    assert!(
        kosoku.exists(),
        "{} is missing: run `make test-tools`",
        kosoku.display()
    );
    let listener = bind(([127, 0, 0, 1], 0).into()).expect("a free port");
    let address = listener.local_addr().expect("an address");
    let server = tokio::spawn(async { axum::serve(listener, echo_routes()).await });
    let reports = tempfile::tempdir().expect("a directory");
    let output = Command::new(kosoku)
        .args([
            "-m",
            "fuzzingclient",
            "-p",
            "2",
            "-x",
            "9.*",
            "-x",
            "12.*",
            "-x",
            "13.*",
            "-o",
        ])
        .arg(reports.path())
        .arg(address.to_string())
        .output()
        .await
        .expect("kosoku runs");
    server.abort();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.contains("\n247 cases passed"),
        "{said}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
