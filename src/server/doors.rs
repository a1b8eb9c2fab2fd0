//! What comes in over bare TCP: admission like that of any other session.

use super::{Shared, accept};
use crate::metrics::Refusal;
use crate::session::Engines;
use crate::transport::phone::audiosocket;
use crate::transport::wyoming;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Accepts AudioSocket calls for ever, if there is a place where they come in.
pub(super) async fn accept_calls(
    listener: Option<&TcpListener>,
    shared: &Arc<Shared>,
) -> Infallible {
    let Some(listener) = listener else {
        return std::future::pending().await;
    };
    let answer = |stream| {
        let intake = shared.settings.pcm_intake;
        audiosocket::answer(stream, intake, shared.around.clone())
    };
    let places = shared.admission.clone();
    admit(listener, shared, places, answer, audiosocket::turn_away).await
}

/// Accepts Wyoming clients for ever, if there is a place where they come in. They have places of their
/// own, as many as there are sessions: they keep connections open, and no call is to find all lines
/// busy for that.
pub(super) async fn accept_wyoming(
    door: Option<&(TcpListener, Arc<Engines>)>,
    shared: &Arc<Shared>,
) -> Infallible {
    let Some((listener, engines)) = door else {
        return std::future::pending().await;
    };
    let service = wyoming::Service::new(engines.clone());
    let serve = |stream| wyoming::serve(stream, service.clone(), shared.around.clone());
    let places = Arc::new(Semaphore::new(shared.settings.max_sessions));
    admit(listener, shared, places, serve, wyoming::turn_away).await
}

/// Lets in whom there is a place for, and turns the others away.
async fn admit<S, T>(
    listener: &TcpListener,
    shared: &Arc<Shared>,
    places: Arc<Semaphore>,
    serve: impl Fn(TcpStream) -> S,
    turn_away: fn(TcpStream) -> T,
) -> Infallible
where
    S: Future<Output = ()> + Send + 'static,
    T: Future<Output = ()> + Send + 'static,
{
    // One for each who is turned away, for as long as that takes.
    let goodbyes = Arc::new(Semaphore::new(shared.settings.max_connections));
    let admit = |stream| {
        let refusal = match places.clone().try_acquire_owned() {
            _ if shared.around.drain.is_cancelled() => Refusal::Draining,
            Err(_) => Refusal::Full,
            Ok(permit) => {
                let (task, served) = (shared.tasks.token(), serve(stream));
                tokio::spawn(async move {
                    served.await;
                    drop((permit, task));
                });
                return;
            }
        };
        tracing::info!(?refusal, "a connection is turned away");
        shared.metrics.refused(refusal);
        if let Ok(permit) = goodbyes.clone().try_acquire_owned() {
            let turned_away = turn_away(stream);
            tokio::spawn(async move {
                turned_away.await;
                drop(permit);
            });
        }
    };
    accept(listener, admit).await
}
