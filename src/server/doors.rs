//! Accepts connections over plain TCP, with the same admission rules as for WebSockets.

use super::accept::accept;
use super::admission::Room;
use super::connections::Place;
use super::shared::Shared;
use crate::metrics::Refusal;
use crate::session::{SessionError, SessionFactory};
use crate::transport::phone::audiosocket;
use crate::transport::wyoming;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Accepts AudioSocket calls forever, if there is a listener.
pub(super) async fn accept_calls(
    listener: Option<&TcpListener>,
    shared: &Arc<Shared>,
) -> Infallible {
    let Some(listener) = listener else {
        return std::future::pending().await;
    };
    let (intake, context) = (shared.settings().pcm_intake, shared.context.clone());
    let answer = move |stream| audiosocket::answer(stream, intake, context.clone());
    let place = |shared: &Shared| shared.admission.place(false);
    admit(listener, shared, place, answer, audiosocket::turn_away).await
}

/// Accepts Wyoming clients forever, if there is a listener. They have places of their own, as many
/// as there are sessions: they keep connections open for long, which must not block calls.
pub(super) async fn accept_wyoming(
    door: Option<&(TcpListener, wyoming::Service)>,
    shared: &Arc<Shared>,
) -> Infallible {
    let Some((listener, service)) = door else {
        return std::future::pending().await;
    };
    let service = service.clone();
    let mut context = shared.context.clone();
    context.sessions = if_there_is_room(shared.admission.room.clone(), context.sessions);
    let serve = move |stream| wyoming::serve(stream, service.clone(), context.clone());
    let places = Arc::new(Semaphore::new(shared.settings().max_sessions));
    let place = move |shared: &Shared| shared.admission.place_among(&places);
    admit(listener, shared, place, serve, wyoming::turn_away).await
}

/// Opens sessions only while the models have room. Other listeners check this when a client
/// connects; a Wyoming client may stay connected for days before it opens a session.
fn if_there_is_room(room: Room, sessions: SessionFactory) -> SessionFactory {
    Arc::new(move |options| match room() {
        true => sessions(options),
        false => Err(SessionError::Overloaded),
    })
}

/// Serves clients while there are places, and turns others away. In both protocols the client
/// speaks first, so a silent connection takes no place.
async fn admit<S, T>(
    listener: &TcpListener,
    shared: &Arc<Shared>,
    place: impl Fn(&Shared) -> Result<OwnedSemaphorePermit, Refusal> + Clone + Send + 'static,
    serve: impl Fn(TcpStream) -> S + Clone + Send + 'static,
    turn_away: fn(TcpStream) -> T,
) -> Infallible
where
    S: Future<Output = ()> + Send + 'static,
    T: Future<Output = ()> + Send + 'static,
{
    let admit = |stream, connection: Arc<Place>| {
        let (shared, place, serve) = (shared.clone(), place.clone(), serve.clone());
        tokio::spawn(async move {
            match speaks(&stream, &connection, &shared).await {
                Spoken::Yes => connection.serve(),
                Spoken::TooLate => return turn_away(stream).await,
                Spoken::Gone => return,
            }
            match place(&shared) {
                Ok(permit) => {
                    let task = shared.tasks.token();
                    serve(stream).await;
                    drop((permit, task));
                }
                Err(refusal) => {
                    tracing::info!(?refusal, "turned a connection away");
                    turn_away(stream).await;
                }
            }
        });
    };
    accept(listener, &shared.connections, admit).await
}

/// The result of waiting for a client's first byte.
enum Spoken {
    Yes,
    TooLate,
    /// It has left, or was displaced.
    Gone,
}

/// Waits for the client's first byte.
async fn speaks(stream: &TcpStream, connection: &Place, shared: &Shared) -> Spoken {
    let patience = shared.settings().header_timeout;
    let mut first = [0];
    tokio::select! {
        spoken = stream.peek(&mut first) => match spoken {
            Ok(1..) => Spoken::Yes,
            Ok(0) | Err(_) => Spoken::Gone,
        },
        () = connection.overdue(patience, patience, patience) => Spoken::TooLate,
        () = connection.displaced() => Spoken::Gone,
        () = shared.context.drain.cancelled() => Spoken::Yes,
    }
}
