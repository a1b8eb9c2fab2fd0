//! Accepts connections over plain TCP, with the same admission rules as for WebSockets.

use super::accept::accept;
use super::admission::Room;
use super::connections::Place;
use super::limits;
use super::shared::Shared;
use crate::session::{SessionError, SessionFactory};
use crate::transport::door::{Door, Places};
use futures_util::future::select_all;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Accepts the clients of all doors forever.
pub(super) async fn accept_clients(
    doors: &[(TcpListener, Arc<dyn Door>)],
    shared: &Arc<Shared>,
) -> Infallible {
    let accepting = doors
        .iter()
        .map(|(listener, door)| Box::pin(accept_at(listener, door, shared)));
    let accepting: Vec<_> = accepting.collect();
    if accepting.is_empty() {
        return std::future::pending().await;
    }
    select_all(accepting).await.0
}

/// Serves clients while there are places, and turns others away. The client speaks first: one that
/// sends nothing takes no place.
async fn accept_at(
    listener: &TcpListener,
    door: &Arc<dyn Door>,
    shared: &Arc<Shared>,
) -> Infallible {
    let mut context = shared.context.clone();
    let places = match door.places() {
        Places::OfSessions => None,
        Places::OfTheirOwn => {
            let room = shared.admission.room.clone();
            context.sessions = if_there_is_room(room, context.sessions);
            let places = Semaphore::new(shared.settings().max_sessions);
            Some(Arc::new(places))
        }
    };
    let admit = |stream, connection: Arc<Place>| {
        let (shared, door) = (shared.clone(), door.clone());
        let (mut context, places) = (context.clone(), places.clone());
        tokio::spawn(async move {
            match speaks(&stream, &connection, &shared).await {
                Spoken::Yes if connection.serve() => {}
                Spoken::TooLate => return door.turn_away(stream).await,
                Spoken::Yes | Spoken::Gone => return,
            }
            let place = match &places {
                Some(places) => shared.admission.place_among(places),
                None => shared.admission.place(false),
            };
            let address = connection.address();
            match place {
                Ok(_) if places.is_none() && !limits::may_open(&shared, address) => {
                    door.turn_away(stream).await;
                }
                Ok(_) if !connection.admitted() => {}
                Ok(permit) => {
                    if places.is_some() {
                        context.sessions = if_not_too_many(&shared, address, context.sessions);
                    }
                    let task = shared.tasks.token();
                    door.serve(stream, context).await;
                    drop((permit, task));
                }
                Err(refusal) => {
                    tracing::info!(?refusal, "refused a connection");
                    door.turn_away(stream).await;
                }
            }
        });
    };
    accept(listener, &shared.connections, admit).await
}

/// Opens sessions only while the models have room. Other doors check this when a client connects.
fn if_there_is_room(room: Room, sessions: SessionFactory) -> SessionFactory {
    Arc::new(move |options| match room() {
        true => sessions(options),
        false => Err(SessionError::Overloaded),
    })
}

/// Opens sessions unless the client has opened too many within the last minute. Other doors check this when a client
/// connects.
fn if_not_too_many(
    shared: &Arc<Shared>,
    address: IpAddr,
    sessions: SessionFactory,
) -> SessionFactory {
    let shared = shared.clone();
    Arc::new(move |options| match limits::may_open(&shared, address) {
        true => sessions(options),
        false => Err(SessionError::Overloaded),
    })
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
        biased;
        () = connection.displaced() => Spoken::Gone,
        spoken = stream.peek(&mut first) => match spoken {
            Ok(1..) => Spoken::Yes,
            Ok(0) | Err(_) => Spoken::Gone,
        },
        () = connection.overdue(patience, patience, patience) => Spoken::TooLate,
        () = shared.context.drain.cancelled() => Spoken::Yes,
    }
}
