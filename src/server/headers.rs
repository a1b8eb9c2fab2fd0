//! Headers that tell browsers what they must not do with a response.

use super::shared::Shared;
use axum::extract::{Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, STRICT_TRANSPORT_SECURITY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use std::sync::Arc;

/// The headers of all responses that do not set their own: they are not pages, and must not be cached.
const ALWAYS: [(HeaderName, &str); 5] = [
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (REFERRER_POLICY, "no-referrer"),
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; frame-ancestors 'none'",
    ),
    (CACHE_CONTROL, "no-store"),
];

/// A year, as browsers' makers recommend. Subdomains are other servers' business.
const HTTPS_ONLY: &str = "max-age=31536000";

/// Adds the headers to a response, unless it has them already. A browser that was here over TLS comes back over TLS only.
pub(super) async fn secured(
    State(shared): State<Arc<Shared>>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = next.run(request).await;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return response;
    }
    let headers = response.headers_mut();
    for (name, value) in ALWAYS {
        headers
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    }
    if shared.tls.is_some() {
        headers.insert(
            STRICT_TRANSPORT_SECURITY,
            HeaderValue::from_static(HTTPS_ONLY),
        );
    }
    response
}
