//! Sends the report on each ended call to the operator's web service: one signed POST, as the Standard Webhooks
//! specification defines it, repeated until it is accepted. Reports that are not accepted are kept in a folder and sent
//! again later, by the next server if need be. Calls never wait for it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use prometheus_client::metrics::counter::Counter;
use reqwest::StatusCode;
use reqwest::redirect::Policy;
use secrecy::{ExposeSecret, SecretSlice};
use serde_json::{Value, json};
use sha2::Sha256;
use std::collections::BTreeSet;
use std::fs::{DirBuilder, DirEntry, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use url::Url;

/// The timeout of one attempt.
const PATIENCE: Duration = Duration::from_secs(10);

/// The waits before an attempt is repeated.
const WAITS: [Duration; 5] = [
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_secs(120),
    Duration::from_secs(600),
];

/// The most reports under way at once. More are kept for later, or lost and counted if there is no folder.
const UNDER_WAY: usize = 256;

/// The time after which reports that were kept are sent again.
const AGAIN: Duration = Duration::from_secs(3_600);

/// The longest that a report is kept.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3_600);

/// The time after which nobody is writing a report any more that is only half there: its server was killed.
const HALF: Duration = Duration::from_secs(600);

/// The prefix of a secret.
const PREFIX: &str = "whsec_";

/// The least bytes of a secret (24: Standard Webhooks).
const LEAST_BYTES: usize = 24;

/// The key of the signatures.
#[derive(Debug, Clone)]
pub struct Secret(Arc<SecretSlice<u8>>);

/// An error of a secret that cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not \"whsec_\" and at least {LEAST_BYTES} bytes in base64")]
pub struct SecretError;

impl Secret {
    /// Reads `whsec_` and bytes in base64.
    ///
    /// # Errors
    /// It is anything else, or shorter than 24 bytes.
    pub fn new(typed: &str) -> Result<Self, SecretError> {
        let bytes = typed.strip_prefix(PREFIX).ok_or(SecretError)?;
        let bytes = STANDARD.decode(bytes).map_err(|_| SecretError)?;
        match bytes.len() >= LEAST_BYTES {
            true => Ok(Self(Arc::new(bytes.into()))),
            false => Err(SecretError),
        }
    }

    /// The signature of a message.
    fn sign(&self, id: &str, timestamp: i64, body: &str) -> String {
        let key = self.0.expose_secret();
        let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
        mac.update(format!("{id}.{timestamp}.{body}").as_bytes());
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

/// The operator's web service.
#[derive(Debug, Clone)]
pub struct Webhook(Arc<Receiver>);

/// The address of the service, and the key of the signatures.
#[derive(Debug, Clone)]
struct Service {
    url: Url,
    secret: Secret,
}

#[derive(Debug)]
struct Receiver {
    service: RwLock<Option<Service>>,
    /// The folder in which reports are kept until they are taken.
    folder: Option<PathBuf>,
    /// The ids of those that are under way.
    sending: Mutex<BTreeSet<String>>,
    waits: Vec<Duration>,
    places: Arc<Semaphore>,
    under_way: TaskTracker,
    /// Cancelled when the server stops: waiting reports are tried once more.
    closing: CancellationToken,
    lost: Counter,
}

/// The outcome of one attempt.
enum Attempt {
    Taken,
    Refused(StatusCode),
    /// The service may take it later.
    Deferred(StatusCode),
    /// The service did not answer.
    Unanswered(String),
}

impl Webhook {
    /// A webhook that posts to `url` and signs with `secret`.
    pub fn new(url: Url, secret: Secret) -> Self {
        Self::with(Some((url, secret)), None, WAITS.to_vec())
    }

    /// A webhook that keeps reports in `folder` until they are delivered. Without a service there are none until
    /// [`Webhook::change`].
    pub fn keeping(service: Option<(Url, Secret)>, folder: PathBuf) -> Self {
        Self::with(service, Some(folder), WAITS.to_vec())
    }

    fn with(service: Option<(Url, Secret)>, folder: Option<PathBuf>, waits: Vec<Duration>) -> Self {
        let service = service.map(|(url, secret)| Service { url, secret });
        Self(Arc::new(Receiver {
            service: RwLock::new(service),
            folder,
            sending: Mutex::default(),
            waits,
            places: Arc::new(Semaphore::new(UNDER_WAY)),
            under_way: TaskTracker::new(),
            closing: CancellationToken::new(),
            lost: Counter::default(),
        }))
    }

    /// From now on reports go there, or nowhere.
    pub fn change(&self, service: Option<(Url, Secret)>) {
        let service = service.map(|(url, secret)| Service { url, secret });
        *self
            .0
            .service
            .write()
            .unwrap_or_else(PoisonError::into_inner) = service;
    }

    /// Whether reports go anywhere.
    pub fn is_on(&self) -> bool {
        self.0.service().is_some()
    }

    /// Sends the `report` on the call `id`, on a task of its own.
    pub fn tell(&self, id: &str, report: Value) {
        let (receiver, id) = (self.0.clone(), id.to_owned());
        let place = receiver.places.clone().try_acquire_owned();
        if place.is_ok() {
            // Before it is on disk, where it would be taken for an old one.
            receiver.sending().insert(id.clone());
        }
        self.0.under_way.spawn(async move {
            let is_kept = receiver.keep(&id, &report).await;
            if place.is_ok() {
                receiver.deliver(&id, &report, is_kept).await;
                receiver.sending().remove(&id);
            } else if !is_kept {
                receiver.lost.inc();
                tracing::warn!(
                    call = id,
                    "lost the report on a call: too many wait for the webhook"
                );
            }
        });
    }

    /// Sends what an earlier server has kept, and from now on what this one keeps, within a Tokio runtime.
    pub fn resume(&self) {
        let receiver = self.0.clone();
        self.0.under_way.spawn(async move {
            loop {
                receiver.send_kept().await;
                tokio::select! {
                    () = tokio::time::sleep(AGAIN) => {}
                    () = receiver.closing.cancelled() => return,
                }
            }
        });
    }

    /// The count of reports that were not taken.
    pub fn lost(&self) -> Counter {
        self.0.lost.clone()
    }

    /// Tries waiting reports once more, and returns when that is done.
    pub async fn finish(&self) {
        self.0.under_way.close();
        self.0.closing.cancel();
        self.0.under_way.wait().await;
    }
}

impl Receiver {
    fn service(&self) -> Option<Service> {
        let service = self.service.read();
        service.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn sending(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self, id: &str) -> Option<PathBuf> {
        Some(self.folder.as_ref()?.join(format!("{id}.json")))
    }

    /// Writes a report into the folder. Whether it is there.
    async fn keep(&self, id: &str, report: &Value) -> bool {
        let (Some(file), text) = (self.file(id), report.to_string()) else {
            return false;
        };
        let written = tokio::task::spawn_blocking(move || write(&file, &text)).await;
        let written = written.unwrap_or_else(|error| Err(io::Error::other(error)));
        if let Err(error) = &written {
            tracing::warn!(%error, call = id, "the report on a call could not be kept on disk");
        }
        written.is_ok()
    }

    /// The report that is kept under this id; `None` if it was taken or deleted in the meantime.
    async fn read(&self, id: &str) -> Option<Value> {
        let text = match tokio::fs::read_to_string(self.file(id)?).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            text => text,
        };
        let report = text.and_then(|text| serde_json::from_str(&text).map_err(io::Error::from));
        report
            .inspect_err(|error| tracing::warn!(%error, call = id, "a kept report cannot be read"))
            .ok()
    }

    async fn forget(&self, id: &str) {
        if let Some(file) = self.file(id) {
            // It may never have been written.
            drop(tokio::fs::remove_file(file).await);
        }
    }

    /// Sends each report that is kept and not under way once, the oldest first, until the service gives no answer twice in a
    /// row or cannot take any. One that it cannot take does not hold up the others.
    async fn send_kept(&self) {
        let Some(folder) = self.folder.clone() else {
            return;
        };
        let kept = tokio::task::spawn_blocking(move || kept(&folder)).await;
        let mut was_unanswered = false;
        for (id, age) in kept.unwrap_or_default() {
            if self.sending().contains(&id) {
                continue;
            }
            if age > KEPT {
                tracing::warn!(
                    call = id,
                    "lost the report on a call: the webhook has not accepted it for a week"
                );
                self.lost.inc();
                self.forget(&id).await;
                continue;
            }
            if self.closing.is_cancelled() {
                return;
            }
            let Some(report) = self.read(&id).await else {
                continue;
            };
            let attempt = self.attempt(&id, &report).await;
            let is_unanswered = matches!(attempt, Attempt::Unanswered(_));
            match attempt {
                Attempt::Taken => self.forget(&id).await,
                Attempt::Refused(status) => {
                    tracing::warn!(%status, call = id, "the webhook refused the report on a call");
                    self.lost.inc();
                    self.forget(&id).await;
                }
                Attempt::Deferred(status) if !is_for_all(status) => {
                    tracing::debug!(%status, call = id, "the webhook does not take a report that was kept");
                }
                // It may have been too slow for this one.
                Attempt::Unanswered(_) if !was_unanswered => {}
                Attempt::Deferred(_) | Attempt::Unanswered(_) => {
                    tracing::debug!("the webhook does not take the reports that were kept");
                    return;
                }
            }
            was_unanswered = is_unanswered;
        }
    }

    async fn deliver(&self, id: &str, report: &Value, is_kept: bool) {
        let mut waits = self.waits.iter();
        loop {
            let is_last = self.closing.is_cancelled();
            let why = match self.attempt(id, report).await {
                Attempt::Taken => return self.forget(id).await,
                Attempt::Refused(status) => {
                    self.forget(id).await;
                    tracing::warn!(%status, call = id, "the webhook refused the report on a call");
                    break;
                }
                Attempt::Deferred(status) => status.to_string(),
                Attempt::Unanswered(why) => why,
            };
            let Some(wait) = waits.next().filter(|_| !is_last) else {
                if is_kept {
                    tracing::warn!(why, call = id, "kept the report on a call for later");
                    return;
                }
                tracing::warn!(why, call = id, "lost the report on a call");
                break;
            };
            tracing::debug!(
                why,
                call = id,
                "the webhook did not take the report on a call"
            );
            tokio::select! {
                () = tokio::time::sleep(*wait) => {}
                () = self.closing.cancelled() => {}
            }
        }
        self.lost.inc();
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "the edge: receivers compare it with their own clock"
    )]
    async fn attempt(&self, id: &str, report: &Value) -> Attempt {
        let Some(Service { url, secret }) = self.service() else {
            return Attempt::Unanswered("there is no webhook".into());
        };
        let now = jiff::Timestamp::now();
        let body = json!({"type": "call.ended", "timestamp": now.to_string(), "data": report});
        let body = body.to_string();
        let id = format!("msg_{id}");
        let signature = secret.sign(&id, now.as_second(), &body);
        let sent = async {
            let client = reqwest::Client::builder()
                .timeout(PATIENCE)
                .redirect(Policy::none())
                .build()?;
            let request = client
                .post(url)
                .header("content-type", "application/json")
                .header("webhook-id", id)
                .header("webhook-timestamp", now.as_second())
                .header("webhook-signature", signature)
                .body(body);
            request.send().await
        };
        match sent.await.map(|answer| answer.status()) {
            Ok(status) if status.is_success() => Attempt::Taken,
            Ok(status) if is_final(status) => Attempt::Refused(status),
            Ok(status) => Attempt::Deferred(status),
            Err(error) => Attempt::Unanswered(error.without_url().to_string()),
        }
    }
}

/// Writes a file that only its owner can read, whole or not at all.
fn write(file: &Path, text: &str) -> io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    let partial = file.with_extension("partial");
    let written = write_all(&partial, text).and_then(|()| std::fs::rename(&partial, file));
    if written.is_err() {
        let _ = std::fs::remove_file(&partial);
    }
    written
}

fn write_all(file: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut open = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(file)?;
    open.write_all(text.as_bytes())?;
    open.sync_all()
}

/// The ids of the reports in a folder and their age, the oldest first. Deletes those that are only half there.
fn kept(folder: &Path) -> Vec<(String, Duration)> {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let report = |file: DirEntry| {
        let path = file.path();
        let id = path.file_stem()?.to_str()?.to_owned();
        let age = file
            .metadata()
            .ok()?
            .modified()
            .ok()?
            .elapsed()
            .unwrap_or_default();
        match path.extension()?.to_str()? {
            "json" => return Some((id, age)),
            "partial" if age > HALF => drop(std::fs::remove_file(&path)),
            _ => {}
        }
        None
    };
    let mut kept: Vec<_> = files.filter_map(report).collect();
    kept.sort_by_key(|(_, age)| std::cmp::Reverse(*age));
    kept
}

/// Whether a status says something of the service, and not of one report.
fn is_for_all(status: StatusCode) -> bool {
    // Not 403 or 404: a firewall may refuse the words of one report, and one must not hold up the others.
    let all = [
        StatusCode::UNAUTHORIZED,
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::BAD_GATEWAY,
        StatusCode::SERVICE_UNAVAILABLE,
        StatusCode::GATEWAY_TIMEOUT,
    ];
    status.is_redirection() || all.contains(&status)
}

/// Whether the service refuses this report for good, or wants none any more (410). A proxy before it answers 404 while
/// it restarts, and 401 or 403 while its settings are wrong.
fn is_final(status: StatusCode) -> bool {
    let refusals = [
        StatusCode::BAD_REQUEST,
        StatusCode::GONE,
        StatusCode::PAYLOAD_TOO_LARGE,
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        StatusCode::UNPROCESSABLE_ENTITY,
    ];
    refusals.contains(&status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::http::HeaderMap;
    use axum::routing::post;
    use std::fs::File;
    use std::sync::Mutex;

    const KEY: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    /// A service that answers with these statuses, one after the other, and the requests that it got.
    #[derive(Clone, Default)]
    struct Scripted {
        answers: Arc<Mutex<Vec<u16>>>,
        got: Arc<Mutex<Vec<(HeaderMap, String)>>>,
    }

    async fn scripted(answers: &[u16]) -> (Scripted, Url) {
        let service = Scripted::default();
        *service.answers.lock().unwrap() = answers.iter().rev().copied().collect();
        let taking = service.clone();
        let take = move |headers: HeaderMap, body: String| {
            taking.got.lock().unwrap().push((headers, body));
            let status = taking.answers.lock().unwrap().pop().unwrap_or(200);
            std::future::ready(StatusCode::from_u16(status).unwrap())
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/calls", listener.local_addr().unwrap());
        let app = Router::new().route("/calls", post(take));
        tokio::spawn(async move { axum::serve(listener, app).await });
        (service, url.parse().unwrap())
    }

    fn webhook(url: Url) -> Webhook {
        let waits = vec![Duration::from_millis(1); 3];
        Webhook::with(Some((url, Secret::new(KEY).unwrap())), None, waits)
    }

    async fn told(webhook: &Webhook) {
        webhook.tell("7", json!({"turns": []}));
        webhook.0.under_way.close();
        webhook.0.under_way.wait().await;
    }

    #[test]
    fn the_signature_is_that_of_the_specification() {
        // The example of the specification's own libraries.
        let secret = Secret::new(KEY).unwrap();
        let signature = secret.sign(
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            r#"{"test": 2432232314}"#,
        );
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_short_secret_is_refused() {
        for typed in ["", "secret", "whsec_", "whsec_c2hvcnQ=", "whsec_???"] {
            assert!(Secret::new(typed).is_err(), "{typed}");
        }
        assert!(!format!("{:?}", Secret::new(KEY)).contains("MfKQ"));
    }

    #[tokio::test]
    async fn a_report_is_repeated_with_the_same_id_until_it_is_taken() {
        let (service, url) = scripted(&[500, 429, 200]).await;
        let webhook = webhook(url);
        told(&webhook).await;
        let got = service.got.lock().unwrap();
        assert_eq!(got.len(), 3);
        for (headers, body) in got.iter() {
            let header = |name: &str| headers[name].to_str().unwrap().to_owned();
            assert_eq!(header("webhook-id"), "msg_7");
            let timestamp: i64 = header("webhook-timestamp").parse().unwrap();
            let signature = Secret::new(KEY).unwrap().sign("msg_7", timestamp, body);
            assert_eq!(header("webhook-signature"), signature);
            let event: Value = serde_json::from_str(body).unwrap();
            assert_eq!(event["type"], "call.ended");
        }
        assert_eq!(webhook.lost().get(), 0);
    }

    #[tokio::test]
    async fn a_report_that_is_refused_or_never_taken_is_counted_as_lost() {
        let (service, url) = scripted(&[422]).await;
        let refused = webhook(url);
        told(&refused).await;
        assert_eq!(service.got.lock().unwrap().len(), 1, "no second attempt");
        assert_eq!(refused.lost().get(), 1);
        let nobody = webhook("http://127.0.0.1:9/".parse().unwrap());
        told(&nobody).await;
        assert_eq!(nobody.lost().get(), 1);
    }

    #[tokio::test]
    async fn a_report_that_was_not_taken_is_sent_by_the_next_server() {
        let folder = tempfile::tempdir().unwrap();
        let files = || std::fs::read_dir(folder.path()).unwrap().count();
        let secret = || Secret::new(KEY).unwrap();
        let keeping = |url: Url| {
            let waits = vec![Duration::from_millis(1); 3];
            Webhook::with(Some((url, secret())), Some(folder.path().into()), waits)
        };
        let nobody = keeping("http://127.0.0.1:9/".parse().unwrap());
        told(&nobody).await;
        assert_eq!((nobody.lost().get(), files()), (0, 1));
        let (service, url) = scripted(&[500]).await;
        let next = keeping(url);
        next.0.send_kept().await;
        assert_eq!(files(), 1, "it is busy");
        next.resume();
        while files() > 0 {
            tokio::task::yield_now().await;
        }
        next.finish().await;
        let got = std::mem::take(&mut *service.got.lock().unwrap());
        assert_eq!(got.len(), 2);
        for (headers, body) in got.iter() {
            assert_eq!(headers["webhook-id"], "msg_7");
            let event: Value = serde_json::from_str(body).unwrap();
            assert_eq!(event["data"], json!({"turns": []}));
        }
        // What is taken at once leaves no file behind.
        let (_, url) = scripted(&[]).await;
        told(&keeping(url)).await;
        assert_eq!(files(), 0);
    }

    /// It was deleted when a proxy answered for a service that was being replaced.
    #[tokio::test]
    async fn a_report_whose_receiver_is_not_found_for_a_while_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let files = || std::fs::read_dir(folder.path()).unwrap().count();
        let (service, url) = scripted(&[404, 404, 200]).await;
        let requests = || service.got.lock().unwrap().len();
        let to_it = Some((url, Secret::new(KEY).unwrap()));
        let webhook = Webhook::with(to_it, Some(folder.path().into()), Vec::new());
        told(&webhook).await;
        assert_eq!((webhook.lost().get(), files()), (0, 1));
        write(&folder.path().join("8.json"), "{\"turns\":[]}").unwrap();
        webhook.0.send_kept().await;
        assert_eq!((requests(), files()), (3, 1), "it holds up no other");
        webhook.0.send_kept().await;
        assert_eq!((requests(), files()), (4, 0));
        assert_eq!(webhook.lost().get(), 0);
    }

    /// Makes a file older by `seconds`.
    fn age(file: &Path, seconds: u64) {
        let file = File::options().write(true).open(file).unwrap();
        let modified = file.metadata().unwrap().modified().unwrap();
        let earlier = modified - Duration::from_secs(seconds);
        let times = std::fs::FileTimes::new().set_modified(earlier);
        file.set_times(times).unwrap();
    }

    /// They stayed for ever, with what callers had said.
    #[tokio::test]
    async fn nothing_stays_of_a_report_that_was_written_only_half() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        // Nothing can take its place.
        std::fs::create_dir(file("7.json")).unwrap();
        assert!(write(&file("7.json"), "{}").is_err());
        assert!(!file("7.partial").exists());
        for name in ["8.partial", "9.partial", "8.txt"] {
            std::fs::write(file(name), "{\"turns\":").unwrap();
        }
        // Somebody may be writing the other.
        age(&file("8.partial"), 3_600);
        age(&file("8.txt"), 3_600);
        let webhook = Webhook::with(None, Some(folder.path().into()), Vec::new());
        webhook.0.send_kept().await;
        let left = ["8.partial", "9.partial", "8.txt"].map(|name| file(name).exists());
        assert_eq!(left, [false, true, true]);
    }

    /// They used to wait for it, for up to a week.
    #[tokio::test]
    async fn a_report_that_is_never_taken_holds_up_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let file = |id: &str| folder.path().join(format!("{id}.json"));
        // The order is that of their age.
        for (id, seconds) in [("7", 60), ("8", 30)] {
            write(&file(id), "{\"turns\":[]}").unwrap();
            age(&file(id), seconds);
        }
        let (_, url) = scripted(&[500, 200]).await;
        let service = Some((url, Secret::new(KEY).unwrap()));
        let webhook = Webhook::with(service, Some(folder.path().into()), Vec::new());
        webhook.0.send_kept().await;
        assert_eq!((file("7").exists(), file("8").exists()), (true, false));
    }

    /// It used to be sent again without its content.
    #[tokio::test]
    async fn a_kept_report_that_is_deleted_before_its_turn_is_not_sent_empty() {
        let folder = tempfile::tempdir().unwrap();
        for id in ["7", "8"] {
            write(&folder.path().join(format!("{id}.json")), "{\"turns\":[]}").unwrap();
        }
        let (kept, bodies) = (folder.path().to_owned(), Arc::new(Mutex::new(Vec::new())));
        let got = bodies.clone();
        let take = move |body: String| {
            got.lock().unwrap().push(body);
            std::fs::remove_dir_all(&kept).unwrap();
            std::future::ready(StatusCode::OK)
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/calls", listener.local_addr().unwrap());
        let app = Router::new().route("/calls", post(take));
        tokio::spawn(async move { axum::serve(listener, app).await });
        let service = Some((url.parse().unwrap(), Secret::new(KEY).unwrap()));
        let webhook = Webhook::with(service, Some(folder.path().into()), Vec::new());
        webhook.0.send_kept().await;
        assert_eq!(bodies.lock().unwrap().len(), 1);
        assert_eq!(webhook.lost().get(), 0);
    }

    #[tokio::test]
    async fn reports_go_where_the_settings_of_the_moment_say() {
        let (service, url) = scripted(&[]).await;
        let webhook = webhook("http://127.0.0.1:9/".parse().unwrap());
        webhook.change(None);
        assert!(!webhook.is_on());
        webhook.change(Some((url, Secret::new(KEY).unwrap())));
        assert!(webhook.is_on());
        told(&webhook).await;
        assert_eq!(service.got.lock().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_server_that_stops_tries_once_more_at_once() {
        let (service, url) = scripted(&[500, 500]).await;
        let waits = vec![Duration::from_secs(3_600); 3];
        let webhook = Webhook::with(Some((url, Secret::new(KEY).unwrap())), None, waits);
        webhook.tell("7", json!({}));
        while service.got.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        webhook.finish().await;
        assert_eq!(service.got.lock().unwrap().len(), 2);
        assert_eq!(webhook.lost().get(), 1);
    }
}
