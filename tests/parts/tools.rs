//! Tests declared tools with a real HTTP server, real programs and real files.

use axum::Router;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Redirect};
use axum::routing::{any, get, post};
use jiff::{Timestamp, tz::TimeZone};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use undertone::tools::declared::{self, DeclarationError, Declared};
use undertone::tools::{
    CallContext, Clock, Confirmation, Effect, Eligibility, Registry, SessionTools, ToolError,
};

/// Declarations in a folder of their own.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn with(self, name: &str, text: &str) -> Self {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        self
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn load(&self) -> Result<Vec<Declared>, DeclarationError> {
        let variable = |name: &str| (name == "TOKEN").then(|| "s3cret-token".to_owned());
        declared::load(self.0.path(), &variable)
    }

    fn tools(&self) -> Registry {
        declared::registry(&self.load().unwrap()).unwrap()
    }

    /// Asserts that loading fails with a one-line error that contains all `parts`.
    #[track_caller]
    fn refused(self, parts: &[&str]) {
        let error = self.load().expect_err("this must be refused").to_string();
        for part in parts {
            assert!(error.contains(part), "no {part:?} in: {error}");
        }
        assert!(!error.contains('\n'), "{error}");
        assert!(!error.contains("s3cret"), "{error}");
    }
}

/// 2026-11-21 is a Saturday.
struct Noon;

impl Clock for Noon {
    fn now(&self) -> Timestamp {
        "2026-11-21T19:00:00Z".parse().unwrap()
    }
}

fn context(key: &str) -> CallContext {
    let zone = TimeZone::get("America/Denver").unwrap();
    CallContext::new(SessionTools::new(zone, Arc::new(Noon)), key)
}

fn arguments(value: Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap()
}

async fn call(tools: &Registry, name: &str, value: Value) -> Result<Value, ToolError> {
    tools.call(name, arguments(value), &context("key-1")).await
}

/// Serves `router` on a free port of this machine.
async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    address
}

/// The requests that the server received: method and URL, headers, body.
type Seen = Arc<Mutex<Vec<(String, HeaderMap, String)>>>;

async fn echo(
    State(seen): State<Seen>,
    method: axum::http::Method,
    uri: Uri,
    headers: HeaderMap,
    body: String,
) -> impl IntoResponse {
    let asked = format!("{method} {uri}");
    let mut seen = seen.lock().unwrap();
    seen.push((asked.clone(), headers, body));
    axum::Json(json!({"asked": asked, "main": {"temp": 16.6}, "list": [1, 2]}))
}

async fn echo_server() -> (SocketAddr, Seen) {
    let seen = Seen::default();
    let router = Router::new().fallback(any(echo)).with_state(seen.clone());
    (serve(router).await, seen)
}

fn http(address: SocketAddr, more: &str) -> String {
    format!(
        r#"
name = "probe"
kind = "http"
description = "A test."
effect = "read"
timeout_ms = 60000
[parameters.properties.place]
type = "string"
[parameters.properties.n]
type = "integer"
[parameters]
required = ["place"]
[http]
allow_private = true
url = "http://{address}/at/{{{{ place }}}}"
{more}
"#
    )
}

#[tokio::test]
async fn a_request_is_built_from_arguments_and_secrets_and_its_response_is_mapped() {
    let (address, seen) = echo_server().await;
    let more = r#"
query = { q = "{{ n }}", fixed = "a b" }
headers = { Authorization = { env = "TOKEN", prefix = "Bearer " }, X-Place = "{{ place }}" }
[http.response]
temp = "/main/temp"
rounded = "{{ body.main.temp | round | int }}"
missing = "/main/wind?"
"#;
    let tools = Folder::new()
        .with("probe.toml", &http(address, more))
        .tools();
    let result = call(&tools, "probe", json!({"place": "a/../b c&d"})).await;
    assert_eq!(
        result,
        Ok(json!({"missing": null, "rounded": 17, "temp": 16.6}))
    );
    let (asked, headers, _) = seen.lock().unwrap().pop().unwrap();
    assert_eq!(asked, "GET /at/a%2F..%2Fb%20c%26d?fixed=a+b");
    assert_eq!(headers["authorization"], "Bearer s3cret-token");
    assert_eq!(headers["x-place"], "a/../b c&d");
    call(&tools, "probe", json!({"place": "b", "n": 3}))
        .await
        .unwrap();
    assert_eq!(
        seen.lock().unwrap().pop().unwrap().0,
        "GET /at/b?fixed=a+b&q=3"
    );
    let dots = call(&tools, "probe", json!({"place": ".."})).await;
    assert!(matches!(dots, Err(ToolError::NotBegun(_))), "{dots:?}");
    let smuggled = call(&tools, "probe", json!({"place": "x\r\nHost: evil"})).await;
    assert!(
        matches!(smuggled, Err(ToolError::NotBegun(_))),
        "{smuggled:?}"
    );
    assert!(seen.lock().unwrap().is_empty(), "nothing was sent");
}

#[tokio::test]
async fn a_body_keeps_its_types_and_the_key_is_sent() {
    let (address, seen) = echo_server().await;
    let more = r#"
method = "POST"
json = { where = { name = "{{ place }}", n = "{{ n }}" }, list = ["{{ n }}", true], say = "to {{ place }}" }
idempotency_header = "Idempotency-Key"
"#;
    let text = http(address, more).replace("\"read\"", "\"keyed\"");
    let tools = Folder::new().with("probe.toml", &text).tools();
    call(&tools, "probe", json!({"place": "Ulm", "n": 4}))
        .await
        .unwrap();
    let (_, headers, body) = seen.lock().unwrap().pop().unwrap();
    assert_eq!(headers["idempotency-key"], "key-1");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        body,
        json!({"where": {"name": "Ulm", "n": 4}, "list": [4, true], "say": "to Ulm"})
    );
}

#[tokio::test]
async fn errors_oversized_responses_and_timeouts_are_distinguished() {
    let router = Router::new()
        .route(
            "/at/missing",
            get(|| async {
                (
                    StatusCode::NOT_FOUND,
                    axum::Json(json!({"error": {"message": "no such place"}})),
                )
            }),
        )
        .route(
            "/at/broken",
            get(|| async { StatusCode::SERVICE_UNAVAILABLE }),
        )
        .route("/at/long", get(|| async { "x".repeat(3000) }))
        .route("/at/slow", get(std::future::pending::<String>));
    let address = serve(router).await;
    let patient = http(address, "error = \"/error/message\"\nlimit_kib = 2");
    let hasty = patient.replace("60000", "300");
    let failure = async |place: &str| {
        let text = if place == "slow" { &hasty } else { &patient };
        let tools = Folder::new().with("probe.toml", text).tools();
        let result = call(&tools, "probe", json!({"place": place})).await;
        result.unwrap_err()
    };
    let told = ToolError::Failed("no such place".into());
    assert_eq!(failure("missing").await, told);
    let broken = |why: &str| ToolError::Broken(format!("127.0.0.1{why}"));
    let down = " answered 503 Service Unavailable";
    assert_eq!(failure("broken").await, broken(down));
    let long = ": its answer is longer than 2 KiB";
    assert_eq!(failure("long").await, broken(long));
    assert_eq!(failure("slow").await, ToolError::Timeout(300));
}

#[tokio::test]
async fn a_change_whose_answer_is_lost_or_late_is_not_told_as_a_tool_that_does_not_work() {
    let router = Router::new()
        .route("/at/slow", post(std::future::pending::<String>))
        .route("/at/long", post(|| async { "x".repeat(3000) }))
        .route("/at/odd", post(|| async { "booked" }))
        .route("/at/proxy", post(|| async { StatusCode::GATEWAY_TIMEOUT }))
        .route(
            "/at/down",
            post(|| async { StatusCode::SERVICE_UNAVAILABLE }),
        )
        .route(
            "/at/away",
            get(|| async { Redirect::to("http://127.0.0.1:1/") }),
        );
    let address = serve(router).await;
    let more = "method = \"POST\"\nlimit_kib = 2\nresponse = { id = \"/id\" }";
    let patient = http(address, more).replace("\"read\"", "\"reversible\"");
    let failure = async |text: &str, place: &str| {
        let tools = Folder::new().with("probe.toml", text).tools();
        let result = call(&tools, "probe", json!({"place": place})).await;
        result.unwrap_err()
    };
    let late = failure(&patient.replace("60000", "300"), "slow").await;
    assert_eq!(late, ToolError::Unanswered(300));
    assert!(late.to_string().contains("in time"), "{late}");
    for place in ["long", "odd", "proxy"] {
        let lost = failure(&patient, place).await;
        assert!(matches!(lost, ToolError::Uncertain(_)), "{place}: {lost:?}");
        let told = lost.to_string();
        assert!(
            told.contains("can be read") && told.contains("not known whether"),
            "{told}"
        );
    }
    let down = failure(&patient, "down").await;
    assert!(matches!(down, ToolError::Broken(_)), "{down:?}");
    // The service that redirects has had the request.
    let followed = patient.replace("\"POST\"", "\"GET\"");
    let away = failure(&followed, "away").await;
    assert!(matches!(away, ToolError::Uncertain(_)), "{away:?}");
    let dropping = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let text = patient.replace(
        &address.to_string(),
        &dropping.local_addr().unwrap().to_string(),
    );
    tokio::spawn(async move {
        let (mut socket, _) = dropping.accept().await.unwrap();
        let read = socket.read(&mut [0; 4096]).await;
        assert!(read.unwrap() > 0);
    });
    let dropped = failure(&text, "x").await;
    assert!(matches!(dropped, ToolError::Uncertain(_)), "{dropped:?}");
}

#[tokio::test]
async fn redirects_are_followed_within_bounds_and_checked_each_time() {
    let seen = Seen::default();
    let (inner, inner_seen) = echo_server().await;
    let to_inner = format!("http://{inner}/secret");
    let router = Router::new()
        .route(
            "/at/{place}",
            any(
                move |axum::extract::Path(place): axum::extract::Path<String>| {
                    let to_inner = to_inner.clone();
                    async move {
                        match place.as_str() {
                            "once" => Redirect::temporary("/end"),
                            "forever" => Redirect::temporary("/at/forever"),
                            "inside" => Redirect::temporary(&to_inner),
                            "metadata" => Redirect::temporary("http://169.254.169.254/latest"),
                            "number" => Redirect::temporary("http://2130706433/"),
                            "mapped" => Redirect::temporary("http://[::ffff:127.0.0.1]/"),
                            "file" => Redirect::temporary("file:///etc/passwd"),
                            _ => Redirect::temporary("http://localhost:1/"),
                        }
                    }
                },
            ),
        )
        .fallback(any(echo))
        .with_state(seen.clone());
    let address = serve(router).await;
    let tools = Folder::new()
        .with(
            "probe.toml",
            &http(address, "response = { asked = \"/asked\" }"),
        )
        .tools();
    let followed = async |place: &str| call(&tools, "probe", json!({"place": place})).await;
    assert_eq!(followed("once").await, Ok(json!({"asked": "GET /end"})));
    assert!(
        followed("forever")
            .await
            .unwrap_err()
            .details()
            .contains("more than 3 redirects")
    );
    for place in ["inside", "metadata", "number", "mapped", "file", "name"] {
        let error = followed(place).await.unwrap_err().details();
        let seen = error.contains("not a public address") || error.contains("cannot be used");
        assert!(seen, "{place}: {error}");
    }
    assert!(
        inner_seen.lock().unwrap().is_empty(),
        "the inner server was reached"
    );

    let post = http(address, "method = \"POST\"").replace("\"read\"", "\"reversible\"");
    let tools = Folder::new().with("probe.toml", &post).tools();
    let error = call(&tools, "probe", json!({"place": "once"}))
        .await
        .unwrap_err();
    assert!(error.details().contains("does not follow"), "{error:?}");
    assert_eq!(seen.lock().unwrap().len(), 1, "the POST was not repeated");
}

/// A bare TCP server that reports each connection, its requests, and its end.
async fn watched() -> (SocketAddr, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, told) = mpsc::channel(64);
    tokio::spawn(async move {
        for number in 1.. {
            let (mut socket, _) = listener.accept().await.unwrap();
            let tell = tell.clone();
            tokio::spawn(async move {
                let mut buffer = vec![0; 4096];
                loop {
                    let read = socket.read(&mut buffer).await.unwrap_or(0);
                    let first = String::from_utf8_lossy(&buffer[..read]);
                    let first = first.lines().next().unwrap_or("closed");
                    tell.send(format!("{number}: {first}")).await.unwrap();
                    if read == 0 {
                        return;
                    }
                    if !first.contains("slow") {
                        let body = if first.starts_with("HEAD") { "" } else { "{}" };
                        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{body}");
                        socket.write_all(answer.as_bytes()).await.unwrap();
                    }
                }
            });
        }
    });
    (address, told)
}

#[tokio::test]
async fn a_warm_up_opens_the_connection_that_the_call_then_uses() {
    let (address, mut told) = watched().await;
    let tools = Folder::new().with("probe.toml", &http(address, "")).tools();
    tools.warm_up("probe").await;
    assert_eq!(told.recv().await.unwrap(), "1: HEAD / HTTP/1.1");
    assert_eq!(
        call(&tools, "probe", json!({"place": "x"})).await,
        Ok(json!({}))
    );
    // The same connection, and nothing else was asked before.
    assert_eq!(told.recv().await.unwrap(), "1: GET /at/x HTTP/1.1");
}

#[tokio::test]
async fn dropping_a_call_closes_its_connection() {
    let (address, mut told) = watched().await;
    let tools = Folder::new().with("probe.toml", &http(address, "")).tools();
    let running =
        tokio::spawn(tools.call("probe", arguments(json!({"place": "slow"})), &context("k")));
    assert_eq!(told.recv().await.unwrap(), "1: GET /at/slow HTTP/1.1");
    running.abort();
    let closed = tokio::time::timeout(Duration::from_secs(60), told.recv()).await;
    assert_eq!(closed.unwrap().unwrap(), "1: closed");
}

fn program(argv: &str, more: &str) -> String {
    format!(
        r#"
name = "probe"
kind = "subprocess"
description = "A test."
effect = "read"
timeout_ms = 60000
[parameters.properties.text]
type = "string"
[subprocess]
argv = {argv}
{more}
"#
    )
}

async fn run(argv: &str, more: &str, text: &str) -> Result<Value, ToolError> {
    // The program runs in the declaration's folder.
    let folder = Folder::new().with("probe.toml", &program(argv, more));
    call(&folder.tools(), "probe", json!({"text": text})).await
}

#[tokio::test]
async fn a_program_gets_its_arguments_verbatim_and_no_environment() {
    let hostile = "; touch /tmp/x $(id) `id` 'a' \"b\"";
    let said = run(
        r#"["printf", "%s", "{{ text }}"]"#,
        "output = \"text\"",
        hostile,
    )
    .await;
    assert_eq!(said, Ok(json!(hostile)));
    let stdin = run(r#"["cat"]"#, "stdin = true", "hello").await;
    assert_eq!(stdin, Ok(json!({"text": "hello"})));
    let more = "output = \"text\"\nenvironment = { KEY = { env = \"TOKEN\" }, LANG = \"C\" }";
    let environment = run(r#"["env"]"#, more, "").await.unwrap();
    let mut lines: Vec<&str> = environment.as_str().unwrap().lines().collect();
    let runs = lines.extract_if(.., |line| line.starts_with("UNDERTONE_RUN="));
    assert_eq!(runs.count(), 1);
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "KEY=s3cret-token",
            "LANG=C",
            "PATH=/usr/local/bin:/usr/bin:/bin"
        ]
    );
}

#[tokio::test]
async fn a_programs_failures_are_reported() {
    let error = async |argv: &str, more: &str, text: &str| {
        run(argv, more, text).await.unwrap_err().details()
    };
    assert!(
        error(r#"["ls", "/nowhere/at/all"]"#, "", "")
            .await
            .contains("the program did not do it")
    );
    assert!(
        error(r#"["no-such-program"]"#, "", "")
            .await
            .contains("the program could not be started")
    );
    assert!(
        error(r#"["echo", "{{ text }}"]"#, "", "--help")
            .await
            .contains("hyphen")
    );
    assert!(
        error(r#"["echo", "no json"]"#, "", "")
            .await
            .contains("answer could not be read")
    );
    assert!(
        error(r#"["yes"]"#, "limit_kib = 4", "")
            .await
            .contains("more than 4 KiB")
    );
    assert_eq!(
        run(r#"["echo", "--", "{{ text }}"]"#, "output = \"text\"", "-n").await,
        Ok(json!("-- -n"))
    );
}

/// The option was given with an empty value, and a condition around it had the call refused.
#[tokio::test]
async fn an_option_of_a_program_is_left_out_with_its_argument() {
    let argv = r#"["printf", "<%s>", "{% if text %}--text={{ text }}{% endif %}",
        "{% if text %}-t{% endif %}", "{% if text %}{{ text }}{% endif %}", "{{ text }}", "end"]"#;
    let folder = Folder::new().with("probe.toml", &program(argv, "output = \"text\""));
    let said = async |given: Value| call(&folder.tools(), "probe", given).await;
    assert_eq!(said(json!({})).await, Ok(json!("<><end>")));
    assert_eq!(
        said(json!({"text": "Rome"})).await,
        Ok(json!("<--text=Rome><-t><Rome><Rome><end>"))
    );
    let refused = said(json!({"text": "--help"})).await.unwrap_err();
    assert!(refused.details().contains("hyphen"), "{refused:?}");
}

#[tokio::test]
async fn a_change_by_a_program_whose_answer_cannot_be_read_may_have_been_made() {
    let failure = async |argv: &str, more: &str| {
        let text = program(argv, more).replace("\"read\"", "\"reversible\"");
        let folder = Folder::new().with("probe.toml", &text);
        let result = call(&folder.tools(), "probe", json!({"text": ""})).await;
        result.unwrap_err()
    };
    let unread = failure(r#"["echo", "booked"]"#, "").await;
    assert!(matches!(unread, ToolError::Uncertain(_)), "{unread:?}");
    let long = failure(r#"["yes"]"#, "limit_kib = 4").await;
    assert!(matches!(long, ToolError::Uncertain(_)), "{long:?}");
    let failed = failure(r#"["false"]"#, "").await;
    assert!(matches!(failed, ToolError::Broken(_)), "{failed:?}");
}

/// Whether a process is running, not counting zombies.
fn is_running(id: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    status
        .rsplit(')')
        .next()
        .is_some_and(|rest| !rest.is_empty() && !rest.trim().starts_with('Z'))
}

#[tokio::test]
async fn dropping_a_call_kills_the_program_and_its_children() {
    let folder = Folder::new()
        .with(
            "spawn.sh",
            "sleep 600 &\necho $! > child\nmv child ready\nwait\n",
        )
        .with("probe.toml", &program(r#"["sh", "spawn.sh"]"#, ""));
    let tools = folder.tools();
    let running = tokio::spawn(tools.call("probe", Map::new(), &context("k")));
    let child = appears(&folder.path("ready")).await;
    assert!(is_running(child.trim()));
    running.abort();
    let gone = async {
        while is_running(child.trim()) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), gone)
        .await
        .expect("the child lives on");
}

/// Starts child processes in ways that escape their process group and their parent; each writes its
/// id to the file `ready`.
#[tokio::test]
async fn escaped_child_processes_are_killed_with_their_program() {
    let child = "echo $$ > child; mv child ready; exec sleep 600";
    for (how, script) in [
        (
            "a session of its own",
            format!("setsid sh -c '{child}' &\nwait\n"),
        ),
        (
            "a daemon without a parent",
            format!("(setsid sh -c '{child}' &)\nsleep 600\n"),
        ),
        (
            "an empty environment",
            format!("env -i /usr/bin/setsid /bin/sh -c '{child}' &\nwait\n"),
        ),
    ] {
        let folder = Folder::new()
            .with("spawn.sh", &script)
            .with("probe.toml", &program(r#"["sh", "spawn.sh"]"#, ""));
        let tools = folder.tools();
        let running = tokio::spawn(tools.call("probe", Map::new(), &context("k")));
        let child = appears(&folder.path("ready")).await;
        assert!(is_running(child.trim()), "{how}");
        running.abort();
        let gone = async {
            while is_running(child.trim()) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let gone = tokio::time::timeout(Duration::from_secs(5), gone).await;
        assert!(gone.is_ok(), "{how}: the child lives on");
    }
}

/// The child process holds the pipes of its program open.
#[tokio::test]
async fn a_process_that_a_program_leaves_running_neither_delays_its_result_nor_dies() {
    let script = "sleep 600 & echo $! > child; mv child ready; echo done";
    let argv = serde_json::to_string(&["sh", "-c", script]).unwrap();
    let folder = Folder::new().with("probe.toml", &program(&argv, "output = \"text\""));
    let result = call(&folder.tools(), "probe", json!({})).await;
    let child = appears(&folder.path("ready")).await;
    let lives = is_running(child.trim());
    let killed = std::process::Command::new("kill")
        .arg(child.trim())
        .status();
    assert_eq!(result, Ok(json!("done")));
    assert!(lives && killed.is_ok());
}

#[tokio::test]
async fn stderr_does_not_reach_the_model() {
    let complaint = ["sh", "-c", "echo secret path >&2; exit 3"];
    let argv = serde_json::to_string(&complaint).unwrap();
    let error = run(&argv, "", "").await.unwrap_err();
    assert_eq!(error.to_string(), "it is not working right now");
    assert_eq!(error.details(), "the program did not do it");
}

async fn appears(path: &Path) -> String {
    loop {
        match std::fs::read_to_string(path) {
            Ok(text) => return text,
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

#[test]
fn a_missing_secret_is_reported_with_its_line() {
    let tool = |text: &str| Folder::new().with("bad.toml", text);
    let valid = http("127.0.0.1:1".parse().unwrap(), "");
    let valid = valid.trim_end();
    let lines = valid.lines().count();
    let missing = "the environment variable ABSENT is not set";
    for (more, line) in [
        ("headers = { X-Key = { env = \"ABSENT\" } }\n", 1),
        ("headers.X-Key = { env = \"ABSENT\" }\n", 1),
        (
            "[http.headers]\nAccept = \"*/*\"\n\"X-Key\" = { env = \"ABSENT\" }\n",
            3,
        ),
        (
            "\n[http.headers.X-Key]\nprefix = \"a\"\nenv = \"ABSENT\"\n",
            2,
        ),
    ] {
        let text = format!("{valid}\n{more}");
        let place = format!("bad.toml:{}: http.headers.X-Key: ", lines + line);
        tool(&text).refused(&[&place, missing]);
    }
}

#[tokio::test]
async fn a_program_beside_its_declaration_is_found_from_anywhere() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new()
        .with("greet.sh", "#!/bin/sh\necho '\"hello\"'\n")
        .with("probe.toml", &program(r#"["./greet.sh"]"#, ""));
    let script = folder.path("greet.sh");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    declared::verify(&folder.load().unwrap()).unwrap();
    let said = folder
        .tools()
        .call("probe", Map::new(), &context("k"))
        .await;
    assert_eq!(said, Ok(json!("hello")));
}

#[test]
fn a_bad_declaration_names_file_key_and_fix() {
    let tool = |text: &str| Folder::new().with("bad.toml", text);
    let valid = http("127.0.0.1:1".parse().unwrap(), "");
    let changed = |from: &str, to: &str| {
        assert!(valid.contains(from), "{from}");
        tool(&valid.replace(from, to))
    };
    tool("name = ").refused(&["bad.toml:1"]);
    changed("timeout_ms", "timout_ms").refused(&[
        "bad.toml:6",
        "timout_ms",
        "did you mean `timeout_ms`",
    ]);
    changed("effect = \"read\"", "effect = \"reed\"").refused(&["effect", "did you mean `read`"]);
    changed(
        "effect = \"read\"",
        "effect = \"read\"\nwrites = [\"notes\"]",
    )
    .refused(&["bad.toml:6", "writes", "notes", "effect"]);
    changed("effect = \"read\"", "").refused(&["bad.toml", "effect", "irreversible"]);
    changed("kind = \"http\"", "kind = \"htpp\"").refused(&["kind", "did you mean `http`"]);
    changed("name = \"probe\"", "name = \"2 tools\"").refused(&["bad.toml:2", "name", "letters"]);
    changed("{{ place }}", "{{ palce }}").refused(&[
        "bad.toml:15",
        "http.url",
        "`palce`",
        "n, place",
    ]);
    changed("http://127.0.0.1:1", "http://{{ place }}").refused(&[
        "http.url",
        "host",
        "https://example.org",
    ]);
    changed("allow_private = true", "").refused(&[
        "http.url",
        "not a public address",
        "allow_private",
    ]);
    changed("required = [\"place\"]", "required = [\"plaice\"]")
        .refused(&["parameters.required", "plaice"]);
    changed("type = \"integer\"", "type = \"intejer\"").refused(&["parameters"]);
    let more = |more: &str| tool(&format!("{valid}\n{more}"));
    more("[equivalence]\ncity = [\"case\"]").refused(&["equivalence", "`city`", "n, place"]);
    more("[equivalence]\nplace = [\"plase\"]").refused(&["equivalence", "did you mean `place`"]);
    more("[router]\nrules = ['(?P<x>a)']").refused(&["bad.toml", "router.rules", "`x`"]);
    more("[router]\nrules = ['(']").refused(&["router.rules", "regular expression"]);
    let listed = format!(
        "{}\n[router.words.place]\n",
        valid.replace(
            "[parameters.properties.place]\n",
            "[parameters.properties.place]\nenum = [\"living_room\", \"kitchen\"]\n",
        )
    );
    tool(&format!("{listed}parlour = \"livingroom\"")).refused(&[
        "router.words.place.parlour",
        "\"livingroom\"",
        "the nearest is \"living_room\"",
    ]);
    more("[router.words.n]\ncouple = \"2\"").refused(&["router.words.n.couple", "schema of `n`"]);
    more("[fillers]\nshort = [\"{{ plase }}\"]").refused(&["fillers.short", "`plase`"]);
    more("[fillers]\nshrot = [\"a\"]").refused(&["fillers.shrot", "short, long or again"]);
    more("[fillers.de]\nshrot = [\"a\"]").refused(&["fillers.de", "`shrot`"]);
    more("[fillers.de]\nlong = [\"{{ plase }}\"]").refused(&["fillers.de.long", "`plase`"]);
    more("[http.headers]\nA = { env = \"ABSENT\" }").refused(&[
        "http.headers.A",
        "ABSENT",
        "not set",
    ]);
    more("[http.headers]\nA = { env = \"s3cret-token\" }")
        .refused(&["http.headers.A", "<not shown>"]);
    more("[http.headers]\nA = { file = \"absent\" }").refused(&["http.headers.A", "cannot read"]);
    more("[subprocess]\nargv = [\"ls\"]").refused(&["subprocess", "kind"]);
    tool(&program(r#"["sh", "-c", "echo {{ text }}"]"#, "")).refused(&["subprocess.argv", "shell"]);
    tool(&program(r#"["{{ text }}"]"#, "")).refused(&["subprocess.argv", "program"]);
    changed("effect = \"read\"", "effect = \"keyed\"").refused(&["idempotency_header"]);
    let risky = |effect: &str, allow: &str| {
        let text = valid
            .replace("\"read\"", effect)
            .replace("[http]\n", "[http]\nidempotency_header = \"K\"\n");
        tool(&format!("{text}\n[speculation]\nallow = \"{allow}\""))
    };
    risky("\"reversible\"", "warm-up").refused(&["speculation.allow", "may change something"]);
    risky("\"keyed\"", "full").refused(&["speculation.allow"]);
    tool(&program(r#"["ls"]"#, "").replace("\"read\"", "\"keyed\""))
        .refused(&["effect", "programs and MCP servers"]);
    risky("\"read-costly\"", "full").refused(&["speculation.per_day", "budget"]);
    assert!(risky("\"keyed\"", "warm-up").load().is_ok());
    tool("name = \"get_tme\"\nkind = \"builtin\"").refused(&["name", "get_tme", "get_time"]);
    tool("name = \"set_timer\"\nkind = \"builtin\"\neffect = \"read\"").refused(&[
        "bad.toml:3",
        "effect",
        "never looser",
    ]);
    tool("name = \"get_time\"\nkind = \"builtin\"\n[settings]\nx = 1").refused(&["settings", "x"]);
    tool("name = \"read_notes\"\nkind = \"builtin\"").refused(&["settings", "file"]);
    tool("name = \"read_calendar\"\nkind = \"builtin\"\n[settings]\nfile = \"absent.ics\"")
        .refused(&["settings.file", "absent.ics"]);
    let twice = tool(&valid).with("again.toml", &valid);
    twice.refused(&["bad.toml", "again.toml", "probe"]);
}

#[test]
fn an_amount_for_a_day_without_a_cost_of_a_call_is_no_budget() {
    let costly = http("127.0.0.1:1".parse().unwrap(), "").replace("\"read\"", "\"read-costly\"");
    let with = |more: &str| {
        let text = format!("{costly}\n[speculation]\nallow = \"full\"\n{more}");
        Folder::new().with("bad.toml", &text)
    };
    with("cost_per_day = 2.0").refused(&["speculation.per_day", "cost and cost_per_day"]);
    assert!(with("cost_per_day = 2.0\ncost = 0.1").load().is_ok());
    assert!(with("per_day = 5").load().is_ok());
}

#[test]
fn a_fixed_argument_names_a_result_that_there_can_be() {
    let valid = http("127.0.0.1:1".parse().unwrap(), "");
    let parameters = "parameters = { properties = { id = { type = \"string\" } } }\n";
    let taker = |fixed: &str, more: &str| {
        format!(
            "name = \"taker\"\nkind = \"http\"\ndescription = \"d\"\neffect = \"read\"\n{more}\
             fixed = {{ id = \"{fixed}\" }}\n{parameters}[http]\nurl = \"https://a.example/{{{{ id }}}}\"\n"
        )
    };
    let finder = "name = \"finder\"\nkind = \"http\"\ndescription = \"d\"\neffect = \"read\"\n\
                  fixed = { id = \"{{ session.caller }}\" }\n";
    let finder = format!("{finder}{parameters}[http]\nurl = \"https://a.example/{{{{ id }}}}\"\n");
    let folder = |taker: &str| {
        let folder = Folder::new().with("a.toml", &valid);
        folder
            .with("finder.toml", &finder)
            .with("taker.toml", taker)
    };
    let tools = folder(&taker("{{ result.finder.id }}", "")).load().unwrap();
    let of = |name: &str| {
        let mut declarations = tools.iter().map(|tool| &tool.declaration);
        declarations.find(|tool| tool.spec.name == name).unwrap()
    };
    assert_eq!(of("taker").takes, ["finder"]);
    assert!(of("finder").feeds && !of("taker").feeds && !of("probe").feeds);
    folder(&taker("{{ result.findr.id }}", "")).refused(&[
        "taker.toml:5",
        "fixed.id",
        "findr",
        "finder",
    ]);
    folder(&taker("{{ result.taker.id }}", "")).refused(&["fixed.id", "own result"]);
    folder(&taker("{{ result }}", "")).refused(&["fixed.id", "result.TOOL.FIELD"]);
    folder(&taker("{{ result.finder. }}", "")).refused(&["fixed.id", "not a template"]);
    // Arguments that the model chooses are only claimed.
    folder(&taker("{{ result.probe.id }}", "")).refused(&["fixed.id", "claimed", "fixed_trust"]);
    let claimed = taker("{{ result.probe.id }}", "fixed_trust = \"claimed\"\n");
    assert!(folder(&claimed).load().is_ok());
    folder(&taker(
        "{{ result.finder.id }}",
        "fixed_trust = \"verified\"\n",
    ))
    .refused(&["fixed.id", "signalled", "verified"]);
    folder(&taker("{{ result.finder.id }}", "lookup = true\n")).refused(&["fixed.id", "lookup"]);
    // So are those that no schema lists.
    let open = finder.replace(
        "parameters = {",
        "parameters = { additionalProperties = true,",
    );
    let open = folder(&taker("{{ result.finder.id }}", "")).with("finder.toml", &open);
    open.refused(&["fixed.id", "claimed", "fixed_trust"]);
}

/// Every call was refused, for ever.
#[test]
fn a_fixed_argument_names_a_lookup_that_there_is() {
    let valid = http("127.0.0.1:1".parse().unwrap(), "");
    let taker = |fixed: &str| {
        format!(
            "name = \"taker\"\nkind = \"http\"\ndescription = \"d\"\neffect = \"read\"\n\
             fixed = {{ id = '{fixed}' }}\nparameters = {{ properties = {{ id = {{ type = \"string\" }} }} }}\n\
             [http]\nurl = \"https://a.example/{{{{ id }}}}\"\n"
        )
    };
    let lookup = "name = \"who-calls\"\nkind = \"http\"\nlookup = true\n[http]\nurl = \"https://a.example/\"\n";
    let alone = |fixed: &str| {
        let folder = Folder::new().with("a.toml", &valid);
        folder.with("taker.toml", &taker(fixed))
    };
    let beside = |fixed: &str| alone(fixed).with("lookup.toml", lookup);
    let right = beside(r#"{{ session.lookup["who-calls"].id }}"#);
    assert!(right.load().is_ok());
    for wrong in [
        r#"{{ session.lookup["nope"].id }}"#,
        "{{ session.lookup.nope.id }}",
    ] {
        let named = ["taker.toml:5", "fixed.id", "session.lookup.nope"];
        alone(wrong).refused(&[&named[..], &["lookup = true"]].concat());
        beside(wrong).refused(&[&named[..], &["lookups are: who-calls"]].concat());
    }
    beside("{{ session.lookup.probe.id }}").refused(&["fixed.id", "probe is no lookup"]);
}

#[test]
fn omitted_keys_default_to_the_safe_choice() {
    let valid = http("127.0.0.1:1".parse().unwrap(), "");
    let tools = Folder::new().with("a.toml", &valid).load().unwrap();
    let tool = &tools[0].declaration;
    assert_eq!(tool.speculation.eligibility, Eligibility::Forbid);
    assert!(!tool.speculation.network);
    assert_eq!(tool.confirmation, Confirmation::None);
    let for_good = valid.replace("\"read\"", "\"irreversible\"");
    let tools = Folder::new().with("a.toml", &for_good).load().unwrap();
    assert!(matches!(
        tools[0].declaration.confirmation,
        Confirmation::Spoken { .. }
    ));
    let stricter = "name = \"get_time\"\nkind = \"builtin\"\neffect = \"read-costly\"";
    let tools = Folder::new().with("a.toml", stricter).tools();
    assert_eq!(
        tools.declaration("get_time").unwrap().effect,
        Effect::ReadCostly
    );
    assert_eq!(tools.specs().len(), 6);
}

/// A copy of the shipped folder, with its services redirected to this machine.
fn shipped(address: SocketAddr) -> Folder {
    let folder = Folder::new();
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools");
    std::fs::create_dir(folder.path("data")).unwrap();
    for data in ["calendar.ics", "accounts.json"] {
        std::fs::copy(own.join("data").join(data), folder.path("data").join(data)).unwrap();
    }
    for entry in own.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let service = format!("http://{address}");
        let text = text
            .replace("url = \"https://api.frankfurter.dev", &format!("allow_private = true\nurl = \"{service}"))
            .replace("[settings]\n# \"local\"", &format!("[settings]\nallow_private = true\ngeocoding = \"{service}/v1/search\"\nforecast = \"{service}/v1/forecast\"\n# \"local\""));
        std::fs::write(
            folder.path(path.file_name().unwrap().to_str().unwrap()),
            text,
        )
        .unwrap();
    }
    folder
}

#[test]
fn the_shipped_declarations_are_valid_and_only_the_weather_runs_speculatively() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools");
    let variable = |name: &str| (name == "HELPDESK_TOKEN").then(|| "x".to_owned());
    let mut tools = declared::load(&own, &variable).unwrap();
    tools.extend(declared::load(&own.join("examples"), &variable).unwrap());
    assert_eq!(tools.len(), 8);
    for tool in &tools {
        let name = &tool.declaration.spec.name;
        let early = tool.declaration.speculation.network;
        assert_eq!(early, name == "get_weather", "{name}");
        assert!(tool.declaration.answer.is_some(), "{name}");
    }
    declared::registry(&tools).unwrap();
}

/// Responds in the formats of Open-Meteo and Frankfurter.
async fn services(queries: Arc<Mutex<Vec<String>>>, failing: Arc<AtomicUsize>) -> SocketAddr {
    let search = {
        let queries = queries.clone();
        move |Query(query): Query<HashMap<String, String>>| async move {
            queries.lock().unwrap().push(query["name"].clone());
            let place = |region: &str, latitude: f64| json!({"name": "Boulder", "latitude": latitude, "longitude": -105.27, "country": "United States", "country_code": "US", "admin1": region});
            axum::Json(match query["name"].to_lowercase().as_str() {
                "boulder" => json!({"results": [place("Montana", 46.2), place("Colorado", 40.01)]}),
                "paris" => {
                    json!({"results": [{"name": "Paris", "latitude": 48.85, "longitude": 2.35, "country": "France", "country_code": "FR"}]})
                }
                _ => json!({"generationtime_ms": 0.4}),
            })
        }
    };
    let forecast = move |Query(query): Query<HashMap<String, String>>| async move {
        if failing.load(Ordering::SeqCst) > 0 {
            return (
                StatusCode::BAD_REQUEST,
                axum::Json(json!({"error": true, "reason": "too many requests"})),
            );
        }
        let warm = query["latitude"] == "40.01";
        let now = if warm { 61.7 } else { 12.2 };
        (
            StatusCode::OK,
            axum::Json(json!({
                "current": {"temperature_2m": now, "weather_code": 3},
                "daily": {
                    "weather_code": [3, 61],
                    "temperature_2m_max": [64.9, 50.0],
                    "temperature_2m_min": [40.1, 33.4],
                    "precipitation_probability_max": [10, 80]
                },
                "unit": query["temperature_unit"]
            })),
        )
    };
    let rates = |Query(query): Query<HashMap<String, String>>| async move {
        match query["symbols"].as_str() {
            "EUR" => (
                StatusCode::OK,
                axum::Json(
                    json!({"amount": 1.0, "base": query["base"], "date": "2026-11-20", "rates": {"EUR": 0.9213}}),
                ),
            ),
            _ => (
                StatusCode::NOT_FOUND,
                axum::Json(json!({"message": "not found"})),
            ),
        }
    };
    let router = Router::new()
        .route("/v1/search", get(search))
        .route("/v1/forecast", get(forecast))
        .route("/v1/latest", get(rates))
        .route("/none", post(|| async {}));
    serve(router).await
}

#[tokio::test]
async fn the_shipped_tools_work() {
    let (queries, failing) = (
        Arc::<Mutex<Vec<String>>>::default(),
        Arc::<AtomicUsize>::default(),
    );
    let address = services(queries.clone(), failing.clone()).await;
    let folder = shipped(address);
    let tools = folder.tools();

    let weather = call(&tools, "get_weather", json!({"place": "Boulder, CO"}))
        .await
        .unwrap();
    assert_eq!(
        weather,
        json!({"place": "Boulder", "region": "Colorado", "day": "now", "sky": "cloudy", "high": 65, "low": 40, "rain_chance": 10, "unit": "fahrenheit", "temperature": 62})
    );
    let spoken = call(
        &tools,
        "get_weather",
        json!({"place": "boulder colorado", "day": "tomorrow"}),
    )
    .await
    .unwrap();
    assert_eq!(
        (&spoken["region"], &spoken["sky"], &spoken["high"]),
        (&json!("Colorado"), &json!("light rain"), &json!(50))
    );
    let paris = call(&tools, "get_weather", json!({"place": "Paris, France"}))
        .await
        .unwrap();
    assert_eq!(
        (&paris["unit"], &paris["temperature"]),
        (&json!("celsius"), &json!(12))
    );
    let nowhere = call(&tools, "get_weather", json!({"place": "Atlantis"})).await;
    assert_eq!(
        nowhere,
        Err(ToolError::Failed("unknown place: Atlantis".into()))
    );
    assert_eq!(
        *queries.lock().unwrap(),
        [
            "Boulder",
            "boulder colorado",
            "boulder",
            "Paris",
            "Atlantis"
        ]
    );
    failing.store(1, Ordering::SeqCst);
    let refused = call(&tools, "get_weather", json!({"place": "Paris"})).await;
    assert_eq!(
        refused,
        Err(ToolError::Broken(
            "the weather service answered 400 Bad Request".into()
        ))
    );

    let euros = call(
        &tools,
        "convert_currency",
        json!({"amount": 100, "from": "usd", "to": "EUR"}),
    )
    .await
    .unwrap();
    assert_eq!(
        euros,
        json!({"converted": 92.13, "date": "2026-11-20", "rate": 0.9213})
    );
    let unknown = call(
        &tools,
        "convert_currency",
        json!({"from": "USD", "to": "ZZZ"}),
    )
    .await;
    assert_eq!(unknown, Err(ToolError::Failed("not found".into())));

    let monday = call(&tools, "read_calendar", json!({"day": "monday"}))
        .await
        .unwrap();
    assert_eq!(monday["day"], "Monday, November 23");
    assert_eq!(
        monday["events"],
        json!([{"title": "team stand-up", "all_day": false, "start": "9:30 AM", "end": "9:45 AM"}])
    );

    assert_eq!(
        call(&tools, "read_notes", json!({})).await,
        Ok(json!({"notes": []}))
    );
    let add = json!({"text": "buy milk"});
    for _ in 0..2 {
        let added = tools
            .call("add_note", arguments(add.clone()), &context("first"))
            .await;
        assert_eq!(
            added,
            Ok(json!({"added": "buy milk", "count": 1})),
            "once per key"
        );
    }
    let again = tools
        .call("add_note", arguments(add), &context("second"))
        .await;
    assert_eq!(again, Ok(json!({"added": "buy milk", "count": 2})));
    assert_eq!(
        call(&tools, "read_notes", json!({})).await,
        Ok(json!({"notes": ["buy milk", "buy milk"]}))
    );

    let savings = call(&tools, "get_balance", json!({"account": "Savings account"}))
        .await
        .unwrap();
    assert_eq!(
        savings,
        json!({"accounts": [{"name": "savings", "balance": 12500.0, "currency": "USD"}]})
    );
    let unknown = call(&tools, "get_balance", json!({"account": "gold"}))
        .await
        .unwrap_err();
    assert!(
        unknown.to_string().contains("checking, savings"),
        "{unknown}"
    );
}
