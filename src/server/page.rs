//! The page at `/`, and the data that it fetches besides opening a session.
//!
//! The files in `web/` are compiled into the program: nothing has to be installed or fetched from
//! elsewhere. They are public, since they contain nothing about this server; its tools and recorded
//! questions are protected like sessions.

use super::access;
use super::playground::{Offered, Question};
use super::shared::Shared;
use super::speech::{unavailable, voices_json};
use crate::tools::Confirmation;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Allows no foreign and no inline scripts, so that transcripts and tool results cannot become
/// code.
const POLICY: &str = "default-src 'self'; object-src 'none'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

/// Browsers may cache the files but must revalidate them, since a new version of the program brings
/// new files.
const REVALIDATE: &str = "no-cache";

/// A file of the page.
struct File {
    path: &'static str,
    kind: &'static str,
    content: &'static str,
}

macro_rules! files {
    ($($path:literal, $kind:ident, $name:literal;)*) => {
        [$(File {
            path: $path,
            kind: $kind,
            content: include_str!(concat!("../../web/", $name)),
        }),*]
    };
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

const FILES: [File; FILE_COUNT] = files! {
    "/", HTML, "index.html";
    "/style.css", CSS, "style.css";
    "/favicon.svg", SVG, "favicon.svg";
    "/audio-in.js", JS, "audio-in.js";
    "/audio-in.worklet.js", JS, "audio-in.worklet.js";
    "/audio-out.js", JS, "audio-out.js";
    "/audio-out.worklet.js", JS, "audio-out.worklet.js";
    "/call.js", JS, "call.js";
    "/choices.js", JS, "choices.js";
    "/comparison.js", JS, "comparison.js";
    "/demo.js", JS, "demo.js";
    "/difference.js", JS, "difference.js";
    "/download.js", JS, "download.js";
    "/focus.js", JS, "focus.js";
    "/kept.js", JS, "kept.js";
    "/main.js", JS, "main.js";
    "/marks.js", JS, "marks.js";
    "/metrics.js", JS, "metrics.js";
    "/panel.js", JS, "panel.js";
    "/session.js", JS, "session.js";
    "/socket.js", JS, "socket.js";
    "/stages.js", JS, "stages.js";
    "/story.js", JS, "story.js";
    "/text.js", JS, "text.js";
    "/timeline.js", JS, "timeline.js";
    "/tools.js", JS, "tools.js";
    "/track.js", JS, "track.js";
    "/transcript.js", JS, "transcript.js";
    "/turns.js", JS, "turns.js";
    "/voice.js", JS, "voice.js";
    "/words.js", JS, "words.js";
};

const FILE_COUNT: usize = 31;

/// The page's routes.
pub(super) fn router() -> Router<Arc<Shared>> {
    FILES
        .iter()
        .fold(Router::new(), |router, file| {
            let tag = tag(file.content);
            router.route(
                file.path,
                get(move |headers: HeaderMap| std::future::ready(answer(file, &tag, &headers))),
            )
        })
        .route("/playground/about", get(about))
        .route("/playground/questions/{number}", get(question))
}

fn tag(content: &str) -> HeaderValue {
    let digest = Sha256::digest(content);
    let hex: String = digest[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    HeaderValue::from_str(&format!("\"{hex}\"")).unwrap_or(HeaderValue::from_static("\"\""))
}

fn answer(file: &File, tag: &HeaderValue, headers: &HeaderMap) -> Response {
    let fixed = |name: HeaderName, value: &'static str| (name, HeaderValue::from_static(value));
    let about = [
        fixed(CONTENT_TYPE, file.kind),
        fixed(CACHE_CONTROL, REVALIDATE),
        fixed(CONTENT_SECURITY_POLICY, POLICY),
        fixed(X_CONTENT_TYPE_OPTIONS, "nosniff"),
        fixed(REFERRER_POLICY, "no-referrer"),
        (ETAG, tag.clone()),
    ];
    if headers.get(IF_NONE_MATCH) == Some(tag) {
        return (StatusCode::NOT_MODIFIED, about).into_response();
    }
    (about, file.content).into_response()
}

/// Describes the server for the page: its tools, recorded questions, and the agents, voices and languages that this
/// client may choose.
async fn about(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    let client = match access::admit(&shared, &headers) {
        Ok(client) => client,
        Err(refused) => return refused,
    };
    let settings = shared.settings();
    let agents: Vec<&str> = settings.agents.names(client.is_trusted).collect();
    let playground = shared.playground();
    let spoken: BTreeMap<&str, &String> = agents
        .iter()
        .filter_map(|name| Some((*name, playground.agent_languages.get(*name)?)))
        .collect();
    let tools: Vec<Value> = playground.tools.iter().map(tool_json).collect();
    let questions: Vec<Value> = match playground.say {
        Some(_) => playground.questions.iter().map(question_json).collect(),
        None => Vec::new(),
    };
    let body = json!({
        "tools": tools, "questions": questions, "pre_roll_ms": playground.pre_roll_ms,
        "agents": agents, "agent_languages": spoken,
        "voices": voices_json(&shared, client.is_trusted),
        "languages": playground.languages, "language": playground.language,
    });
    let kind = (CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let cache = (CACHE_CONTROL, HeaderValue::from_static("no-store"));
    ([kind, cache], body.to_string()).into_response()
}

fn question_json(question: &Question) -> Value {
    json!({
        "text": question.text,
        "language": question.language,
        "demonstrates": question.demonstrates,
    })
}

fn tool_json(offered: &Offered) -> Value {
    let Offered {
        tool,
        verdict,
        demonstrates,
    } = offered;
    json!({
        "name": tool.spec.name,
        "description": tool.spec.description,
        "effect": tool.effect,
        "network": tool.network,
        "confirms": tool.confirmation != Confirmation::None,
        "eligibility": verdict.eligibility,
        "because": verdict.because,
        "demonstrates": demonstrates,
    })
}

/// A question's audio, synthesised at the first request and kept.
async fn question(
    State(shared): State<Arc<Shared>>,
    Path(number): Path<usize>,
    headers: HeaderMap,
) -> Response {
    if let Err(refused) = access::admit(&shared, &headers) {
        return refused;
    }
    let playground = shared.playground();
    let (Some(question), Some(say)) = (playground.questions.get(number), &playground.say) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let make = || async {
        let wav = say(question.text.clone(), question.language.clone());
        let wav = wav.await.ok_or(())?;
        Ok::<_, ()>(bytes::Bytes::from(wav))
    };
    match question.wav.get_or_try_init(make).await {
        Ok(wav) => ([(CONTENT_TYPE, "audio/wav")], wav.clone()).into_response(),
        Err(()) => unavailable("The voice is busy or has failed."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_that_a_module_imports_is_served() {
        let served: Vec<&str> = FILES.iter().map(|file| file.path).collect();
        for file in FILES.iter().filter(|file| file.kind == JS) {
            let imports = file.content.lines().filter_map(|line| {
                let (_, rest) = line.split_once("from './")?;
                rest.split('\'').next()
            });
            for import in imports {
                let path = format!("/{import}");
                assert!(served.contains(&&*path), "{} imports {path}", file.path);
            }
        }
    }

    /// The whole page is smaller than a photograph.
    #[test]
    fn the_page_is_light() {
        let bytes: usize = FILES.iter().map(|file| file.content.len()).sum();
        println!("the page weighs {bytes} bytes in {} files", FILES.len());
        assert!(bytes < 500_000);
    }

    #[test]
    fn text_never_becomes_markup() {
        for file in FILES.iter().filter(|file| file.kind == JS) {
            for forbidden in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
            ] {
                assert!(
                    !file.content.contains(forbidden),
                    "{}: {forbidden}",
                    file.path
                );
            }
        }
    }
}
