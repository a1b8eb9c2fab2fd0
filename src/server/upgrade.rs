//! Upgrades a request to a WebSocket that carries a session.

use super::settings::ServerSettings;
use super::shared::Shared;
use crate::audio::g711;
use crate::metrics::Refusal;
use crate::transport::Dialect;
use crate::transport::intake::IntakeLimits;
use crate::transport::resume::WayBack;
use crate::transport::socket;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;

/// `Retry-After` for clients that were turned away, seconds.
pub(super) const RETRY_SECONDS: &str = "5";

pub(super) type Upgrade = Result<WebSocketUpgrade, WebSocketUpgradeRejection>;

/// Limits for a dialect's sockets.
pub(super) struct Limits {
    /// Longest message, bytes.
    pub(super) message: usize,
    pub(super) intake: IntakeLimits,
    /// Rate of the client's audio, Hz.
    pub(super) rate: u32,
    /// The call was answered already, so overload does not refuse it.
    pub(super) promised: bool,
}

impl Limits {
    /// Limits of calls over a provider's media stream.
    pub(super) fn of_calls(settings: &ServerSettings) -> Self {
        Self {
            message: settings.max_pcm_message,
            intake: settings.pcm_intake,
            rate: g711::RATE,
            promised: false,
        }
    }

    /// Limits of a call that was answered already.
    pub(super) fn promised(self) -> Self {
        Self {
            promised: true,
            ..self
        }
    }
}

/// Drives the socket of a client that has access, then runs `afterwards` with its dialect.
pub(super) fn open_admitted<D: Dialect, F: Future<Output = ()> + Send>(
    shared: Arc<Shared>,
    upgrade: Upgrade,
    dialect: D,
    limits: Limits,
    afterwards: impl FnOnce(D) -> F + Send + 'static,
) -> Response {
    open_with(shared, upgrade, dialect, limits, None, afterwards)
}

/// The same for a client that may come back by `way_back` if its connection is lost. Its place is kept meanwhile.
pub(super) fn open_with<D: Dialect, F: Future<Output = ()> + Send>(
    shared: Arc<Shared>,
    upgrade: Upgrade,
    dialect: D,
    limits: Limits,
    way_back: Option<WayBack>,
    afterwards: impl FnOnce(D) -> F + Send + 'static,
) -> Response {
    let upgrade = match upgrade {
        Ok(upgrade) => upgrade,
        Err(rejection) => return rejection.into_response(),
    };
    // Before a held place is taken: else a server that drains could end in between.
    let task = shared.tasks.token();
    let permit = match limits.promised {
        true => shared.admission.promised(),
        false => shared.admission.place(false),
    };
    let permit = match permit {
        Ok(permit) => permit,
        Err(Refusal::Draining) => return busy("the server shuts down"),
        Err(Refusal::Overloaded) => return busy("the server is overloaded"),
        Err(_) => return busy("all sessions are taken"),
    };
    let context = shared.context.clone();
    // Boxed because the future would otherwise hold two copies.
    let dialect = Box::new(dialect);
    socket::limit(upgrade, limits.message).on_upgrade(async move |socket| {
        let Limits { intake, rate, .. } = limits;
        let dialect = socket::drive(socket, dialect, intake, rate, context, way_back).await;
        drop(permit);
        afterwards(*dialect).await;
        drop(task);
    })
}

fn busy(reason: &'static str) -> Response {
    (
        StatusCode::SERVICE_UNAVAILABLE,
        [(RETRY_AFTER, RETRY_SECONDS)],
        reason,
    )
        .into_response()
}
