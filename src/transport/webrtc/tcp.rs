//! Calls over TCP, for clients that UDP does not reach: ICE-TCP (RFC 6544), where we are always the passive side. Each
//! packet is preceded by its length (RFC 4571).

use super::port::{LARGEST, Port, WAITING, Way, addressee};
use crate::metrics::UdpLoss;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

/// How long the last packets may take to be written.
const CLOSING: Duration = Duration::from_secs(1);

/// Whether a connection whose first byte is this one carries packets of a call. It is that of a length up to 2,303
/// bytes; a request over HTTP begins with a letter or the end of a line.
pub fn is_call(first: u8) -> bool {
    usize::from(first) <= LARGEST >> 8
}

/// The connections of all calls over TCP, by the client's address.
#[derive(Debug, Default)]
pub(super) struct Streams(Mutex<HashMap<SocketAddr, Stream>>);

/// Packets on their way to one connection.
#[derive(Debug)]
struct Stream {
    packets: mpsc::Sender<Vec<u8>>,
    /// Tells the connection that no more packets come.
    _ends: DropGuard,
}

impl Streams {
    /// Sends a packet, or closes the connection if too many wait for it.
    pub(super) fn send(&self, to: SocketAddr, bytes: &[u8]) {
        let mut streams = self.lock();
        let Some(stream) = streams.get(&to) else {
            return;
        };
        if let Err(error) = stream.packets.try_send(bytes.to_vec()) {
            tracing::debug!(%error, "a client of a call over TCP is cut off");
            streams.remove(&to);
        }
    }

    /// Closes a connection once everything so far is written, which may take [`CLOSING`].
    pub(super) fn close(&self, client: SocketAddr) {
        self.lock().remove(&client);
    }

    fn open(&self, client: SocketAddr) -> (mpsc::Receiver<Vec<u8>>, CancellationToken) {
        let (packets, waiting) = mpsc::channel(WAITING);
        let ended = CancellationToken::new();
        let stream = Stream {
            packets,
            _ends: ended.clone().drop_guard(),
        };
        self.lock().insert(client, stream);
        (waiting, ended)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SocketAddr, Stream>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Port {
    /// Carries the packets of one client until it or its call ends, or it reads too slowly. `may_stay` is asked as soon
    /// as the client has named its call; it must do so first.
    pub async fn carry(
        self: &Arc<Self>,
        stream: impl AsyncRead + AsyncWrite,
        client: SocketAddr,
        may_stay: impl FnOnce() -> bool,
    ) {
        let client = SocketAddr::new(client.ip().to_canonical(), client.port());
        let (reading, writing) = tokio::io::split(stream);
        let mut reading = BufReader::with_capacity(LARGEST, reading);
        let Ok(first) = receive(&mut reading).await else {
            return;
        };
        let Some(name) = addressee(&first).map(str::to_owned) else {
            return self.lost(UdpLoss::Stray);
        };
        let (waiting, ended) = self.streams().open(client);
        if self.take(client, Way::Tcp, first) && may_stay() {
            let mut writing = pin!(write(writing, waiting));
            tokio::select! {
                _ = &mut writing => {}
                () = self.read(reading, client, &name) => {}
                // A client that does not read would keep the connection for ever.
                () = ended.cancelled() => {
                    let _ = timeout(CLOSING, writing).await;
                }
            }
        }
        self.leave(client);
    }

    /// Takes in packets until the connection ends, or the client turns to another call.
    async fn read(&self, mut stream: impl AsyncRead + Unpin, client: SocketAddr, name: &str) {
        while let Ok(bytes) = receive(&mut stream).await {
            if addressee(&bytes).is_some_and(|other| other != name) {
                return;
            }
            self.take(client, Way::Tcp, bytes);
        }
    }
}

/// Reads a packet.
pub(super) async fn receive(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let length = usize::from(stream.read_u16().await?);
    if length > LARGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

/// Writes packets until no more can come.
async fn write(
    mut stream: impl AsyncWrite + Unpin,
    mut packets: mpsc::Receiver<Vec<u8>>,
) -> io::Result<()> {
    while let Some(packet) = packets.recv().await {
        let length = u16::try_from(packet.len()).map_err(io::Error::other)?;
        let framed = [&length.to_be_bytes()[..], &packet].concat();
        stream.write_all(&framed).await?;
    }
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::webrtc::peer::client::Client;
    use crate::transport::webrtc::port::tests::request;
    use crate::transport::webrtc::port::{Answered, bind};
    use tokio::io::duplex;
    use tokio::time::Instant;

    fn client() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 9))
    }

    #[test]
    fn a_length_is_told_from_a_request() {
        for length in [0, 20, 100, LARGEST as u16] {
            assert!(is_call(length.to_be_bytes()[0]));
        }
        for request in ["GET / HTTP/1.1", "POST /v1", "OPTIONS *", "\r\nGET"] {
            assert!(!is_call(request.as_bytes()[0]), "{request}");
        }
    }

    #[tokio::test]
    async fn packets_follow_their_lengths() {
        let (here, mut there) = duplex(64);
        let streams = Streams::default();
        let (waiting, _) = streams.open(client());
        streams.send(client(), b"one");
        streams.send(client(), b"three");
        streams.close(client());
        write(here, waiting).await.unwrap();
        assert_eq!(receive(&mut there).await.unwrap(), b"one");
        assert_eq!(receive(&mut there).await.unwrap(), b"three");
        assert!(receive(&mut there).await.is_err(), "it is closed");
    }

    #[tokio::test]
    async fn a_packet_that_is_too_long_ends_the_connection() {
        let (mut here, mut there) = duplex(64);
        here.write_u16(LARGEST as u16 + 1).await.unwrap();
        let error = receive(&mut there).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_is_cut_off() {
        let (here, _there) = duplex(1);
        let streams = Streams::default();
        let (waiting, ended) = streams.open(client());
        let writing = tokio::spawn(write(here, waiting));
        // One may be taken out to be written.
        for _ in 0..WAITING + 2 {
            streams.send(client(), &[7; 100]);
            tokio::task::yield_now().await;
        }
        ended.cancelled().await;
        assert!(streams.lock().is_empty());
        assert!(!writing.is_finished());
        writing.abort();
    }

    #[tokio::test(start_paused = true)]
    #[expect(clippy::disallowed_methods, reason = "the paused clock is read")]
    async fn a_connection_whose_client_reads_nothing_does_not_outlive_its_call() {
        let bound = bind(SocketAddr::from(([127, 0, 0, 1], 0)), &[]).unwrap();
        let port = Arc::new(Port::new(bound, Arc::default()).unwrap());
        let began = Instant::now();
        let (_, offer) = Client::offer(client(), began.into_std());
        let Answered { mut seat, .. } = port.answer(&offer).unwrap();
        let first = request(seat.peer.ufrag());
        let (here, mut there) = duplex(1);
        let carrying = tokio::spawn({
            let port = port.clone();
            async move { port.carry(here, client(), || true).await }
        });
        there.write_u16(first.len() as u16).await.unwrap();
        there.write_all(&first).await.unwrap();
        assert_eq!(seat.packets.recv().await.unwrap().bytes, first);
        port.streams().send(client(), &[7; 100]);
        tokio::task::yield_now().await;
        drop(seat);
        carrying.await.unwrap();
        assert_eq!(began.elapsed(), CLOSING);
    }
}
