//! Error responses in OpenAI's format.

use crate::transport::realtime::Fault;
use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// A response with one error; `param` names the field that caused it.
pub(super) fn error(
    status: StatusCode,
    code: &str,
    param: Option<&str>,
    message: impl Into<String>,
) -> Response {
    let message = message.into();
    let kind = match status.is_server_error() {
        true => "server_error",
        false => "invalid_request_error",
    };
    let error = json!({"message": message, "type": kind, "param": param, "code": code});
    (status, Json(json!({ "error": error }))).into_response()
}

/// The response to an invalid session configuration.
pub(super) fn fault(fault: &Fault) -> Response {
    let (code, param) = (fault.code, fault.param.as_deref());
    error(StatusCode::BAD_REQUEST, code, param, &*fault.message)
}
