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
    // A plus that the client did not encode has become a blank.
    let number = |name: &str| match field(name).strip_prefix(' ') {
        Some(digits) if digits.starts_with(|c: char| c.is_ascii_digit()) => format!("+{digits}"),
        _ => field(name).to_owned(),
    };
    let numbers = numbers(
        &number("caller"),
        &number("called"),
        &number("forwarded_from"),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// It was lost, so that the number matched no route and was another caller's.
    #[test]
    fn a_plus_that_is_not_encoded_stays_in_the_number() {
        let uri = "/asterisk/media?called=+4930100&caller=%2B15551230000&forwarded_from=100";
        let values = values(&uri.parse().unwrap(), "asterisk", Origin::Signalled);
        for (name, number) in [
            (Named::Called, "+4930100"),
            (Named::Caller, "+15551230000"),
            (Named::ForwardedFrom, "100"),
        ] {
            assert_eq!(values.get(&name), Some((number, Origin::Signalled)));
        }
    }
}
