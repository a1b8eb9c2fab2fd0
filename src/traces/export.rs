//! Sends traces to a collector as OTLP over HTTP, in protobuf. A collector that is slow, gone or answers errors holds up
//! no call: what waits for it is bounded, and what it does not take is dropped and counted.

use super::spans::{self, text};
use super::watch::{Ended, Turn};
use super::{Sampler, TraceSettings, names};
use crate::backend::{Backend, KeyForm, retry_after};
use bytes::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::{InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prometheus_client::metrics::counter::Counter;
use prost::Message;
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use reqwest::{RequestBuilder, StatusCode};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use url::Url;

/// The most turns that may wait for the collector.
const QUEUE: usize = 256;

/// The number of spans that are sent without waiting for more, that of OpenTelemetry's batches.
const BATCH: usize = 512;

/// How long the first span of a batch waits for others.
const GATHER: Duration = Duration::from_secs(1);

/// The timeout of one attempt, that of OpenTelemetry's exporters.
const PATIENCE: Duration = Duration::from_secs(10);

/// The timeout of a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// The most bytes of an answer that are read.
const ANSWER: usize = 64 * 1024;

/// Waits after failed attempts: each is twice as long as the one before, within these bounds.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// How often a batch is sent before it is given up.
const ATTEMPTS: u32 = 5;

/// The collector, and the queue to it.
#[derive(Debug, Clone)]
pub struct Traces(Arc<Queue>);

#[derive(Debug)]
struct Queue {
    told: mpsc::Sender<Told>,
    /// The other end of the queue, until the first turn is over.
    waiting: Mutex<Option<mpsc::Receiver<Told>>>,
    collector: Arc<Collector>,
    sampler: Sampler,
    content: bool,
    under_way: TaskTracker,
}

/// A session's message: a turn, or its end.
#[derive(Debug)]
pub(super) enum Told {
    Turn(Box<Turn>),
    Ended(Box<Ended>),
}

impl Told {
    fn spans(&self) -> Vec<Span> {
        match self {
            Self::Turn(turn) => spans::of_turn(turn),
            Self::Ended(end) => spans::of_end(end),
        }
    }
}

struct Collector {
    backend: Backend,
    url: Url,
    headers: HeaderMap,
    resource: Resource,
    pauses: (Duration, Duration),
    lost: Counter,
    /// Cancelled when the server stops: what waits is tried once more.
    closing: CancellationToken,
}

impl std::fmt::Debug for Collector {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Collector({})", crate::backend::shown(&self.url))
    }
}

/// The collector's answer to a batch.
enum Answer {
    /// It took all but so many spans.
    Taken { rejected: u64 },
    /// It will never take them.
    Refused(String),
    /// It may take them later, after this time if it says so.
    Later(String, Option<Duration>),
}

impl Traces {
    /// Traces for the collector of these settings. Connects to nothing.
    ///
    /// # Errors
    /// A reason if the address is not `http` or `https`, or TLS is unavailable.
    pub fn new(settings: TraceSettings) -> Result<Self, String> {
        Self::with(settings, PAUSES)
    }

    fn with(settings: TraceSettings, pauses: (Duration, Duration)) -> Result<Self, String> {
        let TraceSettings {
            url,
            headers,
            resource,
            sampler,
            content,
        } = settings;
        let backend = Backend::new(url.clone(), None, CONNECT, PATIENCE)?;
        let (told, waiting) = mpsc::channel(QUEUE);
        Ok(Self(Arc::new(Queue {
            told,
            waiting: Mutex::new(Some(waiting)),
            collector: Arc::new(Collector {
                backend,
                url,
                headers,
                resource: resource_of(&resource),
                pauses,
                lost: Counter::default(),
                closing: CancellationToken::new(),
            }),
            sampler,
            content,
            under_way: TaskTracker::new(),
        })))
    }

    /// The conversations that are traced.
    pub(crate) fn sampler(&self) -> Sampler {
        self.0.sampler
    }

    /// Whether spans contain words and arguments.
    pub(super) fn has_content(&self) -> bool {
        self.0.content
    }

    /// Queues a turn or the end of a conversation, or drops it if too many wait. Within a Tokio runtime.
    pub(super) fn put(&self, told: Told) {
        let waiting = self.0.waiting.lock();
        if let Some(waiting) = waiting.unwrap_or_else(PoisonError::into_inner).take() {
            self.0
                .under_way
                .spawn(run(self.0.collector.clone(), waiting));
        }
        if let Err(refused) = self.0.told.try_send(told) {
            let spans = refused.into_inner().spans().len();
            self.0.collector.lose(spans);
        }
    }

    /// The end of the queue, so that nothing is sent.
    #[cfg(test)]
    pub(super) fn take(&self) -> mpsc::Receiver<Told> {
        let waiting = self.0.waiting.lock();
        let mut waiting = waiting.unwrap_or_else(PoisonError::into_inner);
        waiting.take().expect("it was not taken before")
    }

    /// The count of spans that the collector has not taken.
    pub fn lost(&self) -> Counter {
        self.0.collector.lost.clone()
    }

    /// Sends what waits once more, and returns when that is done.
    pub async fn finish(&self) {
        self.0.under_way.close();
        self.0.collector.closing.cancel();
        self.0.under_way.wait().await;
    }
}

/// The attributes of this server.
fn resource_of(known: &[(String, String)]) -> Resource {
    let mut attributes: Vec<KeyValue> = known
        .iter()
        .map(|(name, value)| text(name, value))
        .collect();
    if !known
        .iter()
        .any(|(name, _)| name == names::SERVICE_INSTANCE)
    {
        let instance = uuid::Uuid::new_v4().to_string();
        attributes.push(text(names::SERVICE_INSTANCE, &instance));
    }
    Resource {
        attributes,
        ..Resource::default()
    }
}

/// Sends what sessions tell, until the server stops.
async fn run(collector: Arc<Collector>, mut told: mpsc::Receiver<Told>) {
    let mut outage = Outage::default();
    while let Some(first) = next(&collector, &mut told).await {
        let mut spans = first.spans();
        let gathered = tokio::time::sleep(GATHER);
        tokio::pin!(gathered);
        while spans.len() < BATCH {
            tokio::select! {
                biased;
                () = collector.closing.cancelled() => match told.try_recv() {
                    Ok(told) => spans.extend(told.spans()),
                    Err(_) => break,
                },
                Some(told) = told.recv() => spans.extend(told.spans()),
                () = &mut gathered => break,
            }
        }
        collector.deliver(spans, &mut outage).await;
    }
}

async fn next(collector: &Collector, told: &mut mpsc::Receiver<Told>) -> Option<Told> {
    tokio::select! {
        biased;
        () = collector.closing.cancelled() => told.try_recv().ok(),
        told = told.recv() => told,
    }
}

/// The collector's failures since it last took a batch.
#[derive(Debug, Default)]
struct Outage {
    /// The wait before the next attempt.
    pause: Option<Duration>,
    /// Spans lost.
    lost: usize,
}

impl Collector {
    fn lose(&self, spans: usize) {
        self.lost.inc_by(spans as u64);
    }

    /// Sends a batch until it is taken, or given up.
    async fn deliver(&self, spans: Vec<Span>, outage: &mut Outage) {
        let count = spans.len();
        let request = self.request(spans);
        for _ in 0..ATTEMPTS {
            if let Some(pause) = outage.pause {
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = self.closing.cancelled() => {}
                }
            }
            let is_last = self.closing.is_cancelled();
            match self.post(request.clone()).await {
                Answer::Taken { rejected } => {
                    if rejected > 0 {
                        tracing::warn!(spans = rejected, "the collector rejected spans");
                        self.lost.inc_by(rejected);
                    }
                    if outage.pause.take().is_some() {
                        let lost = std::mem::take(&mut outage.lost);
                        tracing::info!(lost, "the collector takes traces again");
                    }
                    return;
                }
                Answer::Refused(why) => {
                    self.failed(outage, &why, None);
                    break;
                }
                Answer::Later(why, after) => self.failed(outage, &why, after),
            }
            if is_last {
                break;
            }
        }
        outage.lost += count;
        self.lose(count);
    }

    /// Notes a failed attempt, and how long to wait before the next. Only the first of an outage is a warning.
    fn failed(&self, outage: &mut Outage, why: &str, after: Option<Duration>) {
        let (least, most) = self.pauses;
        match outage.pause {
            None => tracing::warn!(
                why,
                "the collector does not take traces; calls go on without them"
            ),
            Some(_) => tracing::debug!(why, "the collector still does not take traces"),
        }
        let longer = outage.pause.map_or(least, |pause| pause * 2);
        outage.pause = Some(longer.max(after.unwrap_or_default()).min(most));
    }

    fn request(&self, spans: Vec<Span>) -> Bytes {
        let scope = InstrumentationScope {
            name: env!("CARGO_PKG_NAME").into(),
            version: env!("CARGO_PKG_VERSION").into(),
            ..InstrumentationScope::default()
        };
        let spans = ScopeSpans {
            scope: Some(scope),
            spans,
            ..ScopeSpans::default()
        };
        let spans = ResourceSpans {
            resource: Some(self.resource.clone()),
            scope_spans: vec![spans],
            ..ResourceSpans::default()
        };
        let request = ExportTraceServiceRequest {
            resource_spans: vec![spans],
        };
        request.encode_to_vec().into()
    }

    async fn post(&self, body: Bytes) -> Answer {
        let request = self.backend.post_to(self.url.clone());
        let request = request.headers(self.headers.clone());
        let request = request
            .header(CONTENT_TYPE, "application/x-protobuf")
            .body(body);
        let answered = tokio::time::timeout(PATIENCE, self.answer(request)).await;
        answered.unwrap_or_else(|_| Answer::Later("no answer in time".into(), None))
    }

    async fn answer(&self, request: RequestBuilder) -> Answer {
        let mut response = match self.backend.send(request, KeyForm::Bearer).await {
            Ok(response) => response,
            Err(why) => return Answer::Later(why, None),
        };
        let status = response.status();
        if !status.is_success() {
            let why = format!("it answers {status}");
            return match may_be_taken_later(status) {
                true => Answer::Later(why, retry_after(response.headers())),
                false => Answer::Refused(why),
            };
        }
        let mut body = Vec::new();
        while let Ok(Some(chunk)) = response.chunk().await {
            if body.len() + chunk.len() > ANSWER {
                break;
            }
            body.extend_from_slice(&chunk);
        }
        // What cannot be read does not say that spans were rejected.
        let answer = ExportTraceServiceResponse::decode(body.as_slice()).unwrap_or_default();
        let partial = answer.partial_success.unwrap_or_default();
        Answer::Taken {
            rejected: u64::try_from(partial.rejected_spans).unwrap_or_default(),
        }
    }
}

/// The statuses of the protocol after which a batch is sent again.
fn may_be_taken_later(status: StatusCode) -> bool {
    [
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::BAD_GATEWAY,
        StatusCode::SERVICE_UNAVAILABLE,
        StatusCode::GATEWAY_TIMEOUT,
    ]
    .contains(&status)
}

#[cfg(test)]
mod tests;
