use super::*;
use crate::conversation::Time;
use crate::traces::{Subject, Watch};
use axum::Router;
use axum::body::Bytes as Body;
use axum::http::HeaderMap;
use axum::response::IntoResponse;
use axum::routing::post;
use uuid::Uuid;

/// An answer: its status and its body.
type Given = (u16, Vec<u8>);

/// A collector that gives these answers one after another, and then takes everything.
#[derive(Clone, Default)]
struct Scripted {
    answers: Arc<Mutex<Vec<Given>>>,
    got: Arc<Mutex<Vec<(HeaderMap, Body)>>>,
}

async fn scripted(answers: &[Given]) -> (Scripted, Url) {
    let collector = Scripted::default();
    *collector.answers.lock().unwrap() = answers.iter().rev().cloned().collect();
    let taking = collector.clone();
    let take = move |headers: HeaderMap, body: Body| {
        taking.got.lock().unwrap().push((headers, body));
        let answer = taking.answers.lock().unwrap().pop();
        let (status, body) = answer.unwrap_or((200, Vec::new()));
        let status = StatusCode::from_u16(status).unwrap();
        std::future::ready((status, body).into_response())
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1/traces", listener.local_addr().unwrap());
    let app = Router::new().route("/v1/traces", post(take));
    tokio::spawn(async move { axum::serve(listener, app).await });
    (collector, url.parse().unwrap())
}

fn traces(url: Url) -> Traces {
    let mut headers = HeaderMap::new();
    headers.insert("x-key", "secret".parse().unwrap());
    let settings = TraceSettings {
        url,
        headers,
        resource: vec![("service.name".into(), "test".into())],
        sampler: Sampler::default(),
        content: false,
    };
    let least = Duration::from_millis(1);
    Traces::with(settings, (least, least)).unwrap()
}

/// Tells of a conversation that had no turn: one span.
fn tell(traces: &Traces) {
    let subject = Subject::new(traces.sampler(), Uuid::new_v4(), None, None, None, 0).unwrap();
    Watch::new(traces.clone(), subject).end(Time::from_ms(5), None);
}

fn spans(body: &Body) -> usize {
    let request = ExportTraceServiceRequest::decode(body.clone()).unwrap();
    let scopes = request.resource_spans.iter().flat_map(|of| &of.scope_spans);
    scopes.map(|scope| scope.spans.len()).sum()
}

#[tokio::test]
async fn a_busy_collector_gets_the_same_batch_again() {
    let (collector, url) = scripted(&[(503, Vec::new()), (429, Vec::new())]).await;
    let traces = traces(url);
    tell(&traces);
    while collector.got.lock().unwrap().len() < 3 {
        tokio::task::yield_now().await;
    }
    traces.finish().await;
    let got = collector.got.lock().unwrap().clone();
    assert_eq!(got.len(), 3);
    assert!(
        got.iter()
            .all(|(_, body)| *body == got[0].1 && spans(body) == 1)
    );
    assert_eq!(got[0].0["x-key"], "secret");
    assert_eq!(got[0].0["content-type"], "application/x-protobuf");
    assert_eq!(traces.lost().get(), 0);
}

#[tokio::test]
async fn what_a_collector_refuses_is_counted_and_not_sent_again() {
    let rejected = ExportTraceServiceResponse {
        partial_success: Some(
            opentelemetry_proto::tonic::collector::trace::v1::ExportTracePartialSuccess {
                rejected_spans: 2,
                error_message: "too many".into(),
            },
        ),
    };
    let answers = [(401, Vec::new()), (200, rejected.encode_to_vec())];
    let (collector, url) = scripted(&answers).await;
    for lost in [1, 2] {
        let traces = traces(url.clone());
        tell(&traces);
        traces.finish().await;
        assert_eq!(traces.lost().get(), lost);
    }
    assert_eq!(collector.got.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn a_batch_is_given_up_at_a_collector_that_stays_gone() {
    let traces = traces("http://127.0.0.1:9/v1/traces".parse().unwrap());
    for _ in 0..3 {
        tell(&traces);
    }
    while traces.lost().get() < 3 {
        tokio::task::yield_now().await;
    }
    tell(&traces);
    traces.finish().await;
    assert_eq!(traces.lost().get(), 4);
}

/// Nothing runs beside this test before its first wait, so the queue is full for certain.
#[tokio::test]
async fn turns_that_find_no_place_are_dropped_and_counted() {
    let (collector, url) = scripted(&[]).await;
    let traces = traces(url);
    for _ in 0..QUEUE + 7 {
        tell(&traces);
    }
    assert_eq!(traces.lost().get(), 7);
    traces.finish().await;
    let got = collector.got.lock().unwrap().clone();
    assert_eq!(
        got.iter().map(|(_, body)| spans(body)).sum::<usize>(),
        QUEUE
    );
    assert_eq!(traces.lost().get(), 7);
}
