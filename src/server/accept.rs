//! Accepts TCP connections.

use super::connections::{Connections, Place};
use crate::telemetry::Throttle;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

/// Pause after a failure to accept, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Accepts connections forever, with Nagle's algorithm off so that audio is sent at once.
pub(super) async fn accept(
    listener: &TcpListener,
    connections: &Arc<Connections>,
    mut serve: impl FnMut(TcpStream, Arc<Place>),
) -> Infallible {
    let mut warnings = Throttle::default();
    loop {
        match listener.accept().await {
            Ok((stream, client)) => {
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "cannot set TCP_NODELAY");
                }
                match connections.place(client.ip()).await {
                    Some(place) => serve(stream, place),
                    None => warnings.warn(|more| {
                        tracing::warn!(more, "refused a connection: too many are being served");
                    }),
                }
            }
            Err(error) => {
                warnings.warn(|more| tracing::warn!(%error, more, "cannot accept a connection"));
                connections.make_room();
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
