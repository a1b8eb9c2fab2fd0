//! Limits open connections, and decides which one is closed when there are too many.
//!
//! A connection needs no token before its first request, so anybody can open thousands. An idle one
//! is closed at its deadline, or earlier if another connection needs its place. The one displaced
//! is the oldest idle connection of the address that has the most. So a flood displaces itself, and
//! a health check that sends its request at once is served in the middle of it. A connection is
//! never displaced while a request is being served, until the last byte of the response is written,
//! or once it has become a session. Since a request costs as little as a connection, this holds for
//! half of all places per address; its further connections are served, but count as idle.

use super::tls::Stream;
use crate::metrics::{Metrics, Refusal};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv6Addr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf, copy, sink};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// File descriptors reserved for models, log, listeners and the like.
const OWN_FILES: usize = 64;

/// File descriptors reserved for each session besides its socket: recording, language model, tools.
const SESSION_FILES: usize = 8;

/// The divisor for the share of all connections that may be idle connections of one address.
const WAITING_SHARE: usize = 4;

/// The divisor for the share of all connections that one address may have served without giving way.
const SERVED_SHARE: usize = 2;

/// The longest that a client may take to read a response.
const UNREAD: Duration = Duration::from_secs(60);

/// How long a client's remaining data is read after the server has closed. Closing a socket with
/// unread data resets it, and the client may lose the last response.
const LINGER: Duration = Duration::from_secs(2);

/// How long a displaced connection may take to close.
const LEAVING: Duration = Duration::from_secs(1);

/// The connection limit for a process with `files` file descriptors, at most `most`. It leaves
/// descriptors for tools, recordings and the rest of the server when all connections are taken.
pub fn within_files(files: usize, sessions: usize, most: usize) -> usize {
    let kept = OWN_FILES + SESSION_FILES.saturating_mul(sessions);
    let left = files.saturating_sub(kept).max(files / 2);
    left.clamp(1, most.max(1))
}

/// All open connections, on every listener.
#[derive(Debug)]
pub(super) struct Connections {
    most: usize,
    /// The most idle connections of one address.
    most_waiting: usize,
    /// The most connections of one address that do not give way while they are served.
    most_served: usize,
    open: Mutex<Open>,
    /// Notified when a connection has closed.
    gone: Notify,
    metrics: Arc<Metrics>,
}

#[derive(Debug, Default)]
struct Open {
    count: usize,
    /// Connections that were displaced and have not closed yet.
    leaving: usize,
    /// The last turn that was given out; lower turns have been idle for longer.
    turn: u64,
    /// Idle connections, by address and turn.
    waiting: HashMap<IpAddr, BTreeMap<u64, CancellationToken>>,
    /// The numbers of connections that are being served, by address.
    served: HashMap<IpAddr, usize>,
}

/// Whether a connection gives way to others.
#[derive(Debug)]
enum Standing {
    /// It does, in its turn.
    Idle(u64),
    /// It does not, and counts for its address.
    Served,
    /// It does not: it has become a session.
    Session,
}

/// The result of looking for a place.
enum Try {
    Found(Arc<Place>),
    /// A displaced connection is about to close.
    Soon,
    /// All connections are being served.
    Never,
}

impl Connections {
    pub(super) fn new(most: usize, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            most,
            most_waiting: (most / WAITING_SHARE).max(1),
            most_served: (most / SERVED_SHARE).max(1),
            open: Mutex::default(),
            gone: Notify::new(),
            metrics,
        })
    }

    /// A place for a connection from `address`, displacing an idle one if necessary. `None` if all
    /// connections are being served.
    pub(super) async fn place(self: &Arc<Self>, address: IpAddr) -> Option<Arc<Place>> {
        let address = network_of(address);
        loop {
            match self.try_place(address) {
                Try::Found(place) => return Some(place),
                Try::Soon if timeout(LEAVING, self.gone.notified()).await.is_ok() => {}
                Try::Soon | Try::Never => {
                    self.metrics.refused(Refusal::Connections);
                    return None;
                }
            }
        }
    }

    fn try_place(self: &Arc<Self>, address: IpAddr) -> Try {
        let mut open = self.lock();
        if open.waiting_of(address) >= self.most_waiting {
            self.displace(&mut open, address);
        }
        if open.count >= self.most {
            if open.count - open.leaving >= self.most {
                self.displace_any(&mut open);
            }
            return if open.leaving > 0 {
                Try::Soon
            } else {
                Try::Never
            };
        }
        open.count += 1;
        let displaced = CancellationToken::new();
        let standing = Mutex::new(open.wait(address, &displaced));
        Try::Found(Arc::new(Place {
            connections: self.clone(),
            address,
            displaced,
            standing,
            unwritten: AtomicBool::new(false),
            requests: watch::channel(0).0,
        }))
    }

    /// Displaces an idle connection because no file descriptor is left for another.
    pub(super) fn make_room(&self) {
        self.displace_any(&mut self.lock());
    }

    /// Displaces the oldest idle connection of the address that has the most.
    fn displace_any(&self, open: &mut Open) {
        let most = open.waiting.iter().max_by_key(|(_, waiting)| waiting.len());
        if let Some(address) = most.map(|(address, _)| *address) {
            self.displace(open, address);
        }
    }

    fn displace(&self, open: &mut Open, address: IpAddr) {
        let oldest = open.waiting.get_mut(&address).and_then(BTreeMap::pop_first);
        if let Some((_, displaced)) = oldest {
            displaced.cancel();
            open.leaving += 1;
            self.metrics.refused(Refusal::Connections);
        }
    }

    /// Whether one more connection of this address is served without giving way.
    fn may_serve(&self, open: &Open, address: IpAddr) -> bool {
        is_here(address) || open.served_of(address) < self.most_served
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn waiting_of(&self, address: IpAddr) -> usize {
        self.waiting.get(&address).map_or(0, BTreeMap::len)
    }

    fn served_of(&self, address: IpAddr) -> usize {
        self.served.get(&address).copied().unwrap_or_default()
    }

    /// The standing of a connection that is idle from now on.
    fn wait(&mut self, address: IpAddr, displaced: &CancellationToken) -> Standing {
        self.turn += 1;
        let waiting = self.waiting.entry(address).or_default();
        waiting.insert(self.turn, displaced.clone());
        Standing::Idle(self.turn)
    }

    /// The standing of a connection that is served from now on.
    fn serve(&mut self, address: IpAddr) -> Standing {
        *self.served.entry(address).or_default() += 1;
        Standing::Served
    }

    /// Counts a connection no more as it stood so far. One that was displaced has lost its turn already.
    fn forget(&mut self, address: IpAddr, standing: Standing) {
        match standing {
            Standing::Idle(turn) => {
                if let Some(waiting) = self.waiting.get_mut(&address) {
                    waiting.remove(&turn);
                    if waiting.is_empty() {
                        self.waiting.remove(&address);
                    }
                }
            }
            Standing::Served => {
                if let Some(served) = self.served.get_mut(&address) {
                    *served -= 1;
                    if *served == 0 {
                        self.served.remove(&address);
                    }
                }
            }
            Standing::Session => {}
        }
    }
}

/// Whether the clients of an address are on this machine. One of them may be a proxy for everybody.
pub(super) fn is_here(address: IpAddr) -> bool {
    // The network of ::1 is ::.
    address.is_loopback() || address.is_unspecified()
}

/// The network that counts as one address: an IPv6 subscriber has a whole /64.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let network = u128::from(v6) & !u128::from(u64::MAX);
            Ipv6Addr::from(network).into()
        }
        v4 => v4,
    }
}

/// A connection's place, held until its socket is closed.
#[derive(Debug)]
pub(super) struct Place {
    connections: Arc<Connections>,
    address: IpAddr,
    displaced: CancellationToken,
    standing: Mutex<Standing>,
    /// A response exists that has not been written completely.
    unwritten: AtomicBool,
    /// Odd while a request is being served; grows with each request, response and sign of progress. Also changes when a
    /// response has been written.
    requests: watch::Sender<u64>,
}

impl Place {
    /// Notes that a request has arrived: from now on the connection is not displaced, unless its address has too many
    /// that are served. False if it has been displaced already: it must be dropped.
    #[must_use]
    pub(super) fn serve(&self) -> bool {
        self.requests.send_modify(|requests| *requests |= 1);
        self.unwritten.store(false, Relaxed);
        self.hold()
    }

    /// Notes that the connection has become a session: from now on it is not displaced, and does not count for its
    /// address. False if it has been displaced already: it must be dropped.
    #[must_use]
    pub(super) fn admitted(&self) -> bool {
        self.requests.send_modify(|requests| *requests |= 1);
        let mut open = self.connections.lock();
        let is_displaced = self.displaced.is_cancelled();
        if !is_displaced {
            self.stand(&mut open, Standing::Session);
        }
        !is_displaced
    }

    /// The response takes long and makes progress: the time that it may take begins anew.
    pub(super) fn goes_on(&self) {
        // Not all of it was written so far.
        self.unwritten.store(true, Relaxed);
        self.requests.send_modify(|requests| *requests += 2);
        // One that was displaced is being dropped.
        self.hold();
    }

    /// A response exists; once it is written, the connection is idle again.
    pub(super) fn answered(&self) {
        self.unwritten.store(true, Relaxed);
        self.requests.send_modify(|requests| *requests += 1);
    }

    /// Everything has been written.
    fn written(&self) {
        if self.unwritten.swap(false, Relaxed) {
            let mut open = self.connections.lock();
            if !self.displaced.is_cancelled() {
                let idle = open.wait(self.address, &self.displaced);
                self.stand(&mut open, idle);
            }
            drop(open);
            // While a request is being served, its answer gets no more time for this.
            self.requests
                .send_if_modified(|requests| *requests % 2 == 0);
        }
    }

    /// Keeps an idle connection from being displaced, if its address may have one more served. False if it has been
    /// displaced already.
    fn hold(&self) -> bool {
        let mut open = self.connections.lock();
        if self.displaced.is_cancelled() {
            return false;
        }
        let is_idle = matches!(*self.standing(), Standing::Idle(_));
        if is_idle && self.connections.may_serve(&open, self.address) {
            let served = open.serve(self.address);
            self.stand(&mut open, served);
        }
        true
    }

    fn stand(&self, open: &mut Open, standing: Standing) {
        let before = std::mem::replace(&mut *self.standing(), standing);
        open.forget(self.address, before);
    }

    /// The address that it counts for: of IPv6, the network.
    pub(super) fn address(&self) -> IpAddr {
        self.address
    }

    /// Returns when the connection is displaced.
    pub(super) async fn displaced(&self) {
        self.displaced.cancelled().await;
    }

    /// Returns when the first request does not arrive within `first`, a response takes longer than `answer`, the client
    /// does not read it within [`UNREAD`], or no further request arrives within `again`.
    pub(super) async fn overdue(&self, first: Duration, answer: Duration, again: Duration) {
        let mut requests = self.requests.subscribe();
        loop {
            let patience = match *requests.borrow_and_update() {
                0 => first,
                number if number % 2 == 1 => answer,
                _ if self.unwritten.load(Relaxed) => UNREAD,
                _ => again,
            };
            if timeout(patience, requests.changed()).await.is_err() {
                break;
            }
        }
        if !self.has_asked() {
            self.connections.metrics.refused(Refusal::Silent);
        }
    }

    /// Whether a request has arrived.
    fn has_asked(&self) -> bool {
        *self.requests.borrow() > 0
    }

    /// To be locked only while all connections are.
    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.connections.lock();
        open.count -= 1;
        self.stand(&mut open, Standing::Session);
        if self.displaced.is_cancelled() {
            open.leaving -= 1;
        }
        drop(open);
        self.connections.gone.notify_one();
    }
}

/// A client's socket. When it is dropped, the client's remaining data is read for up to [`LINGER`],
/// so that the last response is not lost to a reset.
#[derive(Debug)]
pub(super) struct Socket {
    /// `None` only while being dropped.
    stream: Option<Stream>,
    place: Arc<Place>,
    /// The client has closed its side.
    ended: bool,
}

impl Socket {
    pub(super) fn new(stream: Stream, place: Arc<Place>) -> Self {
        Self {
            stream: Some(stream),
            place,
            ended: false,
        }
    }

    fn stream(&mut self) -> io::Result<Pin<&mut Stream>> {
        let stream = self.stream.as_mut().map(Pin::new);
        stream.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let Some(stream) = self.stream.take() else {
            return;
        };
        let told = self.place.has_asked() && !self.place.displaced.is_cancelled();
        if self.ended || !told {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(linger(stream, self.place.clone()));
        }
    }
}

async fn linger(mut stream: Stream, _place: Arc<Place>) {
    let rest = async {
        stream.shutdown().await?;
        copy(&mut stream, &mut sink()).await
    };
    if let Ok(Err(error)) = timeout(LINGER, rest).await {
        tracing::trace!(%error, "the connection broke while closing");
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.remaining();
        let read = self.stream()?.poll_read(cx, buffer);
        if let Poll::Ready(result) = &read {
            self.ended |= result.is_err() || (before > 0 && buffer.remaining() == before);
        }
        read
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream()?.poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream()?.poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// hyper flushes when nothing is left to write, so a completed flush means that everything has
    /// been written.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = self.stream()?.poll_flush(cx);
        if matches!(flushed, Poll::Ready(Ok(()))) {
            self.place.written();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn elsewhere(last: u8) -> IpAddr {
        [203, 0, 113, last].into()
    }

    fn connections(most: usize) -> Arc<Connections> {
        Connections::new(most, Arc::default())
    }

    /// Takes a place that is released as soon as it is displaced.
    async fn hold(connections: &Arc<Connections>, address: IpAddr) -> CancellationToken {
        let place = connections.place(address).await.unwrap();
        let displaced = place.displaced.clone();
        tokio::spawn(async move { place.displaced().await });
        displaced
    }

    #[tokio::test]
    async fn a_flood_displaces_itself_and_nobody_else() {
        let connections = connections(40);
        let visitor = hold(&connections, elsewhere(1)).await;
        let served = connections.place(HERE).await.unwrap();
        assert!(served.serve());
        for _ in 0..200 {
            hold(&connections, HERE).await;
        }
        assert_eq!(connections.lock().waiting_of(HERE), 10, "a quarter waits");
        // Many addresses at once: those with the most idle connections are displaced first.
        for last in 2..8 {
            for _ in 0..40 {
                hold(&connections, elsewhere(last)).await;
            }
        }
        assert!(connections.lock().count <= 40);
        assert!(!visitor.is_cancelled() && !served.displaced.is_cancelled());
    }

    #[tokio::test]
    async fn a_connection_that_is_served_is_not_displaced() {
        let connections = connections(2);
        let places = [
            connections.place(HERE).await.unwrap(),
            connections.place(elsewhere(1)).await.unwrap(),
        ];
        assert!(places.iter().all(|place| place.serve()));
        assert!(connections.place(elsewhere(2)).await.is_none());
        let [first, _second] = places;
        drop(first);
        let third = connections.place(elsewhere(2)).await.unwrap();
        assert!(third.serve());
        third.answered();
        assert!(connections.place(elsewhere(3)).await.is_none());
        third.written();
        let displaced = third.displaced.clone();
        tokio::spawn(async move { third.displaced().await });
        assert!(connections.place(elsewhere(3)).await.is_some());
        assert!(displaced.is_cancelled(), "it had been answered");
    }

    #[tokio::test]
    async fn a_connection_displaced_just_before_its_request_leaves_no_trace() {
        let connections = connections(1);
        let place = connections.place(HERE).await.unwrap();
        connections.make_room();
        assert!(!place.serve());
        place.answered();
        place.written();
        drop(place);
        let place = connections.place(HERE).await.unwrap();
        let open = connections.lock();
        assert_eq!((open.leaving, open.waiting_of(HERE)), (0, 1));
        drop(open);
        drop(place);
    }

    #[tokio::test]
    async fn a_connection_that_is_displaced_as_it_speaks_is_dropped_and_the_next_can_give_way() {
        let connections = connections(8);
        let first = connections.place(HERE).await.unwrap();
        let second = connections.place(HERE).await.unwrap();
        connections.make_room();
        assert!(!first.serve() && !first.admitted());
        assert_eq!(connections.lock().leaving, 1);
        drop(first);
        assert_eq!(connections.lock().leaving, 0);
        assert!(!second.displaced.is_cancelled());
        connections.make_room();
        assert!(second.displaced.is_cancelled());
    }

    #[tokio::test]
    async fn requests_of_one_address_that_never_end_leave_places_for_others() {
        let connections = connections(40);
        let flood = elsewhere(1);
        for _ in 0..40 {
            let place = connections.place(flood).await.unwrap();
            assert!(place.serve());
            tokio::spawn(async move { place.displaced().await });
        }
        assert_eq!(connections.lock().served_of(flood), 20, "half stays");
        let visitor = connections.place(elsewhere(2)).await.unwrap();
        assert!(visitor.serve());
        for _ in 0..40 {
            let place = connections.place(flood).await.unwrap();
            assert!(place.serve());
            tokio::spawn(async move { place.displaced().await });
        }
        assert!(connections.lock().count <= 40);
        assert!(!visitor.displaced.is_cancelled());
        visitor.answered();
        visitor.written();
        drop(visitor);
        assert_eq!(connections.lock().served_of(elsewhere(2)), 0);
    }

    #[tokio::test]
    async fn sessions_and_what_this_machine_asks_for_never_give_way() {
        let this = IpAddr::from(Ipv6Addr::LOCALHOST);
        for (address, is_session) in [(elsewhere(1), true), (HERE, false), (this, false)] {
            let connections = connections(8);
            let mut places = Vec::new();
            for _ in 0..8 {
                let place = connections.place(address).await.unwrap();
                assert!(place.serve());
                assert!(!is_session || place.admitted());
                places.push(place);
            }
            assert!(connections.place(elsewhere(2)).await.is_none(), "{address}");
            drop(places);
            assert!(connections.lock().served.is_empty());
        }
    }

    #[tokio::test(start_paused = true)]
    #[expect(clippy::disallowed_methods, reason = "the paused clock is read")]
    async fn each_wait_has_its_own_deadline() {
        let [first, answer, again] = [5, 30, 620].map(Duration::from_secs);
        let connections = connections(4);
        let place = connections.place(HERE).await.unwrap();
        let began = tokio::time::Instant::now();
        place.overdue(first, answer, again).await;
        assert_eq!(began.elapsed(), first);
        assert!(place.serve());
        place.overdue(first, answer, again).await;
        assert_eq!(began.elapsed(), first + answer);
        place.answered();
        place.overdue(first, answer, again).await;
        assert_eq!(began.elapsed(), first + answer + UNREAD);
        // The client reads it after all, while its time runs.
        tokio::join!(place.overdue(first, answer, again), async {
            place.written();
        });
        assert_eq!(began.elapsed(), first + answer + UNREAD + again);
    }

    #[test]
    fn file_descriptors_are_reserved_for_the_server_itself() {
        assert_eq!(within_files(1_024, 16, 4_096), 832);
        assert_eq!(within_files(1 << 20, 16, 4_096), 4_096);
        assert_eq!(within_files(256, 1_000, 4_096), 128);
        assert_eq!(within_files(0, 16, 4_096), 1);
    }

    #[test]
    fn a_network_is_one_address() {
        let network = |text: &str| network_of(text.parse().unwrap()).to_string();
        assert_eq!(network("2001:db8:1:2:3::4"), "2001:db8:1:2::");
        assert_eq!(network("::ffff:203.0.113.7"), "203.0.113.7");
    }
}
