//! Names the client of a request, its caller and its trace.

use crate::tools::{Named, Origin, SessionValues};
use crate::traces::Parent;
use crate::transport::phone::numbers;
use axum::http::header::USER_AGENT;
use axum::http::{HeaderMap, Uri};

/// Longest client or model name that is kept, bytes.
const MAX_NAME: usize = 200;

/// The caller according to a request's query, and the way by which it came.
pub(super) fn values(uri: &Uri, transport: &str, origin: Origin) -> SessionValues {
    let query = uri.query().unwrap_or_default().as_bytes();
    let query: Vec<_> = url::form_urlencoded::parse(query).into_owned().collect();
    let field = |name: &str| {
        let found = query.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value.as_str())
    };
    let numbers = numbers(
        field("caller"),
        field("called"),
        field("forwarded_from"),
        origin,
    );
    let mut values = numbers.with(Named::Transport, transport, Origin::Verified);
    for (name, value) in &query {
        if let Some(name) = name.strip_prefix("param.") {
            values.add(Named::Param(name.to_owned()), value, origin);
        }
    }
    values
}

/// The client's name.
pub(super) fn name(headers: &HeaderMap) -> Option<String> {
    headers
        .get(USER_AGENT)?
        .to_str()
        .ok()
        .map(|name| clip(name.to_owned()))
}

/// The client's span, if it is traced.
pub(super) fn parent(headers: &HeaderMap) -> Option<Parent> {
    Parent::read(headers.get("traceparent")?.to_str().ok()?)
}

/// As much of a name as is kept.
pub(super) fn clip(mut name: String) -> String {
    let end = (0..=MAX_NAME.min(name.len()))
        .rev()
        .find(|at| name.is_char_boundary(*at));
    name.truncate(end.unwrap_or(0));
    name
}
