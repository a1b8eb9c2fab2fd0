//! AudioSocket calls: admission like that of any other session.

use super::{Shared, accept};
use crate::metrics::Refusal;
use crate::transport::phone::audiosocket;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Accepts calls for ever, if there is a place where they come in.
pub(super) async fn accept_calls(
    listener: Option<&TcpListener>,
    shared: &Arc<Shared>,
) -> Infallible {
    let Some(listener) = listener else {
        return std::future::pending().await;
    };
    let goodbyes = Arc::new(Semaphore::new(shared.settings.max_connections));
    accept(listener, |stream| admit(stream, shared, &goodbyes)).await
}

/// Answers a call, or hangs up at once. Of `goodbyes` each caller who is hung up on takes one for as
/// long as that takes.
fn admit(stream: TcpStream, shared: &Arc<Shared>, goodbyes: &Arc<Semaphore>) {
    let refusal = match shared.admission.clone().try_acquire_owned() {
        _ if shared.around.drain.is_cancelled() => Refusal::Draining,
        Err(_) => Refusal::Full,
        Ok(permit) => {
            let (around, task) = (shared.around.clone(), shared.tasks.token());
            let intake = shared.settings.pcm_intake;
            tokio::spawn(async move {
                audiosocket::answer(stream, intake, around).await;
                drop((permit, task));
            });
            return;
        }
    };
    tracing::info!(?refusal, "a call is turned away");
    shared.metrics.refused(refusal);
    if let Ok(permit) = goodbyes.clone().try_acquire_owned() {
        tokio::spawn(async move {
            audiosocket::turn_away(stream).await;
            drop(permit);
        });
    }
}
