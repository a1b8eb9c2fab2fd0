//! The port of all calls, UDP and TCP: hands each packet to its call.
//!
//! A client's first packets are STUN requests that name the call; from then on its address does. Everything else
//! is dropped and counted.

use super::call::Seat;
use super::peer::{BadOffer, Identity, Peer};
use super::sideband::{self, EventSender, Sideband};
use super::tcp::Streams;
use crate::metrics::{Metrics, UdpLoss};
use socket2::SockRef;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Packets that may wait for a call. UDP has no backpressure: more are dropped and counted.
pub(super) const WAITING: usize = 64;

/// The largest packet, bytes.
pub(super) const LARGEST: usize = 2_048;

/// Bytes of packets that may wait for the server. A packet of speech occupies nearly 1 KB in the kernel, so that a
/// thousand calls of 50 packets a second may wait for 80 ms; the usual 208 KB are full within 5 ms.
const RECEIVED: usize = 4 << 20;

/// Addresses that are kept for a call: a client tries several, and changes networks.
const ADDRESSES: usize = 16;

/// STUN (RFC 8489).
const BINDING_REQUEST: [u8; 2] = [0, 1];
const MAGIC_COOKIE: [u8; 4] = [0x21, 0x12, 0xa4, 0x42];
const USERNAME: [u8; 2] = [0, 6];

/// The pause after a failure of the socket, so that a lasting one costs no core.
const RETRY: Duration = Duration::from_millis(10);

/// A bound UDP port, and the addresses at which clients reach it.
#[derive(Debug)]
pub struct Bound {
    socket: std::net::UdpSocket,
    addresses: Vec<SocketAddr>,
    tcp: Tcp,
}

/// How calls over TCP arrive, on the number of the UDP port.
#[derive(Debug)]
pub enum Tcp {
    /// Calls over TCP are not taken.
    None,
    /// At the server's own listener, beside HTTP.
    Shared,
    /// At a listener of their own.
    Own(TcpListener),
}

impl Bound {
    /// Also takes calls over TCP, and tells clients so.
    #[must_use]
    pub fn over(self, tcp: Tcp) -> Self {
        Self { tcp, ..self }
    }

    /// The number of the port.
    pub fn port(&self) -> u16 {
        self.addresses.first().map_or(0, SocketAddr::port)
    }

    /// Takes out the listener of calls over TCP, if they have one of their own.
    pub fn listener(&mut self) -> Option<TcpListener> {
        match std::mem::replace(&mut self.tcp, Tcp::Shared) {
            Tcp::Own(listener) => Some(listener),
            other => {
                self.tcp = other;
                None
            }
        }
    }

    /// The addresses that clients are told.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Whether clients on other networks cannot reach any of them, although the port is open to other machines.
    pub fn is_private(&self) -> bool {
        let private = |address: &SocketAddr| is_private(address.ip());
        let is_local = |address: &SocketAddr| address.ip().is_loopback();
        self.addresses.iter().all(private) && !self.addresses.iter().all(is_local)
    }
}

fn is_private(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip.is_private() || ip.is_loopback() || ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unique_local() || ip.is_loopback() || ip.is_unicast_link_local(),
    }
}

/// Binds the port. Clients are told the addresses `advertise`; if there are none, the address that it is
/// bound to, or if that is every address, those by which this machine reaches others.
///
/// # Errors
/// If the port is taken or not allowed.
pub fn bind(address: SocketAddr, advertise: &[IpAddr]) -> io::Result<Bound> {
    let socket = std::net::UdpSocket::bind(address)?;
    socket.set_nonblocking(true)?;
    // The kernel grants what its limit allows (Linux: net.core.rmem_max), which is enough for fewer calls.
    SockRef::from(&socket).set_recv_buffer_size(RECEIVED)?;
    let bound = socket.local_addr()?;
    let ips = match (advertise, bound.ip()) {
        ([], ip) if ip.is_unspecified() => own_addresses(ip),
        ([], ip) => vec![ip],
        (advertise, _) => advertise.to_vec(),
    };
    let addresses = ips.into_iter().map(|ip| SocketAddr::new(ip, bound.port()));
    Ok(Bound {
        socket,
        addresses: addresses.collect(),
        tcp: Tcp::None,
    })
}

/// The addresses by which this machine reaches others, as far as a socket that is `bound` to every address takes
/// them, or loopback if there are none. Nothing is sent.
fn own_addresses(bound: IpAddr) -> Vec<IpAddr> {
    // Addresses for documentation: only the route to them is looked up.
    let far: [(IpAddr, IpAddr); 2] = [
        (
            Ipv4Addr::UNSPECIFIED.into(),
            Ipv4Addr::new(192, 0, 2, 1).into(),
        ),
        (
            Ipv6Addr::UNSPECIFIED.into(),
            Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
        ),
    ];
    let route = |(here, there): (IpAddr, IpAddr)| {
        let socket = std::net::UdpSocket::bind((here, 0)).ok()?;
        socket.connect((there, 9)).ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    let taken = far.into_iter().filter(|(here, _)| takes(bound, *here));
    let own: Vec<IpAddr> = taken.filter_map(route).collect();
    match own.is_empty() {
        true => vec![Ipv4Addr::LOCALHOST.into()],
        false => own,
    }
}

/// Whether a socket that is bound to every address of the family of `bound` takes packets to the family of `ip`: one of
/// IPv6 takes both.
fn takes(bound: IpAddr, ip: IpAddr) -> bool {
    bound.is_ipv6() || ip.is_ipv4()
}

/// How a packet travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Way {
    Udp,
    Tcp,
}

/// Where a call's packets go.
pub(super) trait Wire: Send + Sync {
    /// Sends a packet, or loses it.
    fn send(&self, way: Way, to: SocketAddr, bytes: &[u8]);
}

/// A packet of a client.
#[derive(Debug)]
pub(super) struct Packet {
    pub(super) at: Instant,
    pub(super) way: Way,
    pub(super) from: SocketAddr,
    pub(super) bytes: Vec<u8>,
}

/// The port of all calls.
pub struct Port {
    socket: UdpSocket,
    /// Whether it is bound to an IPv6 address, so that it knows IPv4 addresses as mapped ones.
    is_v6: bool,
    addresses: Vec<SocketAddr>,
    has_tcp: bool,
    streams: Streams,
    identity: Identity,
    routes: Mutex<Routes>,
    metrics: Arc<Metrics>,
}

#[derive(Default)]
struct Routes {
    calls: HashMap<Arc<str>, Route>,
    by_name: HashMap<String, Arc<str>>,
    by_address: HashMap<(Way, SocketAddr), Arc<str>>,
}

struct Route {
    packets: mpsc::Sender<Packet>,
    hang_up: CancellationToken,
    /// To the call: where the events of a second client go.
    joins: mpsc::Sender<EventSender>,
    /// To the call: the events of second clients.
    requests: EventSender,
    name: String,
    /// The addresses that belong to this call, oldest first.
    addresses: VecDeque<(Way, SocketAddr)>,
}

/// An answered offer.
pub struct Answered {
    /// The call's id.
    pub id: String,
    /// The answer, SDP.
    pub sdp: String,
    /// The call.
    pub seat: Seat,
}

impl Port {
    /// Serves on a bound port. [`Self::receive`] must run. Must be called within a runtime.
    ///
    /// # Errors
    /// If the socket or the cryptography cannot be set up.
    pub fn new(bound: Bound, metrics: Arc<Metrics>) -> io::Result<Self> {
        Ok(Self {
            is_v6: bound.socket.local_addr()?.is_ipv6(),
            socket: UdpSocket::from_std(bound.socket)?,
            addresses: bound.addresses,
            has_tcp: !matches!(bound.tcp, Tcp::None),
            streams: Streams::default(),
            identity: Identity::new().map_err(io::Error::other)?,
            routes: Mutex::default(),
            metrics,
        })
    }

    /// Answers an offer. The call begins with its client's first packet, and [`Seat::serve`] must run then.
    ///
    /// # Errors
    /// [`BadOffer`]
    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: a connection's time is real"
    )]
    pub fn answer(self: &Arc<Self>, offer: &str) -> Result<Answered, BadOffer> {
        let now = tokio::time::Instant::now().into_std();
        let (peer, sdp) = Peer::answer(offer, &self.addresses, self.has_tcp, &self.identity, now)?;
        let id: Arc<str> = format!("rtc_{}", uuid::Uuid::new_v4().simple()).into();
        let (sender, packets) = mpsc::channel(WAITING);
        let (joins, joining) = mpsc::channel(WAITING);
        let (requests, requested) = sideband::queue(WAITING);
        let hang_up = CancellationToken::new();
        let name = peer.ufrag().to_owned();
        let mut routes = self.routes();
        routes.by_name.insert(name.clone(), id.clone());
        let route = Route {
            packets: sender,
            hang_up: hang_up.clone(),
            joins,
            requests,
            name,
            addresses: VecDeque::new(),
        };
        routes.calls.insert(id.clone(), route);
        drop(routes);
        let seat = Seat {
            peer,
            packets,
            joins: joining,
            requests: requested,
            hang_up,
            here: self.addresses.clone(),
            wire: Arc::new(Lane {
                port: self.clone(),
                id: id.clone(),
            }),
            metrics: self.metrics.clone(),
        };
        let id = id.to_string();
        Ok(Answered { id, sdp, seat })
    }

    /// Ends a call. False if there is none with this id.
    pub fn hang_up(&self, id: &str) -> bool {
        let routes = self.routes();
        let call = routes.calls.get(id);
        call.inspect(|call| call.hang_up.cancel()).is_some()
    }

    /// Lets a second client take part in a call's session. `None` if there is no call with this id.
    pub fn join(&self, id: &str) -> Option<Sideband> {
        let routes = self.routes();
        let call = routes.calls.get(id)?;
        let (sender, events) = sideband::queue(sideband::EVENTS);
        call.joins.try_send(sender).ok()?;
        Some(Sideband {
            events,
            requests: call.requests.clone(),
        })
    }

    /// Whether clients are told that they may come over TCP.
    pub fn has_tcp(&self) -> bool {
        self.has_tcp
    }

    /// Receives UDP packets until it is dropped.
    pub async fn receive(&self) {
        let mut buffer = vec![0; LARGEST];
        loop {
            match self.socket.recv_from(&mut buffer).await {
                Ok((length, from)) => {
                    let from = SocketAddr::new(from.ip().to_canonical(), from.port());
                    self.take(from, Way::Udp, buffer[..length].to_vec());
                }
                Err(error) => {
                    tracing::debug!(%error, "the UDP port of WebRTC failed");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    /// Gives a client's packet to its call. False if it has none.
    #[allow(
        clippy::disallowed_methods,
        reason = "an edge: a connection's time is real"
    )]
    pub(super) fn take(&self, from: SocketAddr, way: Way, bytes: Vec<u8>) -> bool {
        let at = tokio::time::Instant::now().into_std();
        let packet = Packet {
            at,
            way,
            from,
            bytes,
        };
        let delivered = self.routes().deliver(packet, &self.streams);
        delivered.inspect_err(|loss| self.lost(*loss)) != Err(UdpLoss::Stray)
    }

    /// Counts a packet that was dropped.
    pub(super) fn lost(&self, loss: UdpLoss) {
        self.metrics.udp_lost(loss);
    }

    pub(super) fn streams(&self) -> &Streams {
        &self.streams
    }

    /// Removes a client whose TCP connection has ended.
    pub(super) fn leave(&self, client: SocketAddr) {
        self.streams.close(client);
        self.routes().by_address.remove(&(Way::Tcp, client));
    }

    fn routes(&self) -> MutexGuard<'_, Routes> {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Routes {
    fn deliver(&mut self, packet: Packet, streams: &Streams) -> Result<(), UdpLoss> {
        let address = (packet.way, packet.from);
        let id = match addressee(&packet.bytes) {
            Some(name) => {
                let id = self.by_name.get(name).ok_or(UdpLoss::Stray)?.clone();
                self.remember(address, &id, streams);
                id
            }
            None => {
                let known = self.by_address.get(&address);
                known.ok_or(UdpLoss::Stray)?.clone()
            }
        };
        let call = self.calls.get(&id).ok_or(UdpLoss::Stray)?;
        call.packets.try_send(packet).map_err(|_| UdpLoss::Busy)
    }

    fn remember(&mut self, address: (Way, SocketAddr), id: &Arc<str>, streams: &Streams) {
        if self.by_address.get(&address) == Some(id) {
            return;
        }
        let Some(call) = self.calls.get_mut(id) else {
            return;
        };
        call.addresses.push_back(address);
        let oldest = (call.addresses.len() > ADDRESSES).then(|| call.addresses.pop_front());
        if let Some(oldest) = oldest.flatten() {
            self.forget_address(oldest, id, streams);
        }
        self.by_address.insert(address, id.clone());
    }

    /// Forgets that an address leads to a call; it may have come to lead to another.
    fn forget_address(&mut self, address: (Way, SocketAddr), id: &Arc<str>, streams: &Streams) {
        if self.by_address.get(&address) == Some(id) {
            self.by_address.remove(&address);
            if let (Way::Tcp, client) = address {
                streams.close(client);
            }
        }
    }

    fn forget(&mut self, id: &Arc<str>, streams: &Streams) {
        if let Some(call) = self.calls.remove(id) {
            self.by_name.remove(&call.name);
            for address in call.addresses {
                self.forget_address(address, id, streams);
            }
        }
    }
}

/// A call's use of the port. Its packets are dropped once this is.
struct Lane {
    port: Arc<Port>,
    id: Arc<str>,
}

impl Wire for Lane {
    fn send(&self, way: Way, to: SocketAddr, bytes: &[u8]) {
        if way == Way::Tcp {
            return self.port.streams.send(to, bytes);
        }
        let to = match to.ip() {
            IpAddr::V4(ip) if self.port.is_v6 => {
                SocketAddr::new(ip.to_ipv6_mapped().into(), to.port())
            }
            _ => to,
        };
        if let Err(error) = self.port.socket.try_send_to(bytes, to) {
            tracing::trace!(%error, "a packet was not sent");
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.port.routes().forget(&self.id, &self.port.streams);
    }
}

/// The call that a STUN request names: the first half of its `USERNAME` (RFC 8445, 7.2.2). It is read here, before
/// any call's own parser, because this task serves all of them.
pub(super) fn addressee(bytes: &[u8]) -> Option<&str> {
    let (header, mut attributes) = bytes.split_at_checked(20)?;
    if header[..2] != BINDING_REQUEST || header[4..8] != MAGIC_COOKIE {
        return None;
    }
    loop {
        let (head, rest) = attributes.split_at_checked(4)?;
        let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
        let value = rest.get(..length)?;
        if head[..2] == USERNAME {
            return Some(std::str::from_utf8(value).ok()?.split_once(':')?.0);
        }
        attributes = rest.get(length.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    fn client(port: u16) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, port))
    }

    fn routes(calls: &[&str]) -> (Routes, Vec<mpsc::Receiver<Packet>>) {
        let (mut routes, mut receivers) = (Routes::default(), Vec::new());
        for name in calls {
            let (packets, receiver) = mpsc::channel(WAITING);
            receivers.push(receiver);
            let route = Route {
                packets,
                hang_up: CancellationToken::new(),
                joins: mpsc::channel(1).0,
                requests: sideband::queue(1).0,
                name: (*name).to_owned(),
                addresses: VecDeque::new(),
            };
            routes.calls.insert((*name).into(), route);
            routes.by_name.insert((*name).to_owned(), (*name).into());
        }
        (routes, receivers)
    }

    /// A binding request to the call `name`.
    pub(in super::super) fn request(name: &str) -> Vec<u8> {
        let user = format!("{name}:them");
        let padded = user.len().next_multiple_of(4);
        let mut bytes = vec![0, 1];
        bytes.extend(((4 + padded + 8) as u16).to_be_bytes());
        bytes.extend([0x21, 0x12, 0xa4, 0x42]);
        bytes.extend([7; 12]);
        bytes.extend([0, 6]);
        bytes.extend((user.len() as u16).to_be_bytes());
        bytes.extend(user.as_bytes());
        bytes.resize(24 + padded, 0);
        // Priority.
        bytes.extend([0, 0x24, 0, 4, 0, 0, 0, 1]);
        bytes
    }

    #[allow(clippy::disallowed_methods, reason = "the time is not looked at")]
    fn packet(from: SocketAddr, bytes: Vec<u8>) -> Packet {
        let at = Instant::now();
        let way = Way::Udp;
        Packet {
            at,
            way,
            from,
            bytes,
        }
    }

    fn deliver(routes: &mut Routes, packet: Packet) -> Result<(), UdpLoss> {
        routes.deliver(packet, &Streams::default())
    }

    #[test]
    fn a_request_that_names_a_call_makes_its_address_known() {
        let (mut routes, mut calls) = routes(&["a", "b"]);
        let media = || vec![0x80; 20];
        let stray = deliver(&mut routes, packet(client(1), media()));
        assert_eq!(stray, Err(UdpLoss::Stray));
        assert_eq!(
            deliver(&mut routes, packet(client(1), request("b"))),
            Ok(())
        );
        assert_eq!(deliver(&mut routes, packet(client(1), media())), Ok(()));
        assert!(calls[0].try_recv().is_err());
        assert_eq!(calls[1].len(), 2);
        let unknown = deliver(&mut routes, packet(client(1), request("c")));
        assert_eq!(unknown, Err(UdpLoss::Stray));
        // The client's next call from the same address.
        assert_eq!(
            deliver(&mut routes, packet(client(1), request("a"))),
            Ok(())
        );
        assert_eq!(deliver(&mut routes, packet(client(1), media())), Ok(()));
        assert_eq!((calls[0].len(), calls[1].len()), (2, 2));
        routes.forget(&"b".into(), &Streams::default());
        assert_eq!(deliver(&mut routes, packet(client(1), media())), Ok(()));
        routes.forget(&"a".into(), &Streams::default());
        assert!(routes.by_address.is_empty() && routes.by_name.is_empty());
    }

    #[test]
    fn only_requests_that_name_a_call_are_read() {
        let whole = request("someone");
        assert_eq!(addressee(&whole), Some("someone"));
        for length in 0..whole.len() - 8 {
            assert_eq!(addressee(&whole[..length]), None, "{length}");
        }
        for (at, value) in [(0, 1), (1, 2), (4, 0)] {
            let mut other = whole.clone();
            other[at] = value;
            assert_eq!(addressee(&other), None);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_read(bytes: Vec<u8>, rest: Vec<u8>) {
            addressee(&bytes);
            let header = [&BINDING_REQUEST[..], &[0, 0], &MAGIC_COOKIE, &[0; 12]].concat();
            addressee(&[header, rest].concat());
        }
    }

    #[test]
    fn a_flood_is_dropped_and_addresses_are_bounded() {
        let (mut routes, calls) = routes(&["a"]);
        let lost =
            (0..100).filter(|_| deliver(&mut routes, packet(client(1), request("a"))).is_err());
        assert_eq!((lost.count(), calls[0].len()), (36, WAITING));
        for port in 1..1_000 {
            let _ = deliver(&mut routes, packet(client(port), request("a")));
        }
        assert_eq!(routes.by_address.len(), ADDRESSES);
    }

    #[test]
    fn a_port_on_one_address_is_advertised_there_and_others_as_the_operator_says() {
        let local = bind(client(0), &[]).unwrap();
        let port = local.addresses()[0].port();
        assert_eq!(local.addresses(), [client(port)]);
        assert!(!local.is_private());
        let public: IpAddr = [203, 0, 113, 7].into();
        let told = bind(SocketAddr::from(([0, 0, 0, 0], 0)), &[public]).unwrap();
        assert_eq!(told.addresses()[0].ip(), public);
        assert!(!told.is_private());
        let inside = bind(SocketAddr::from(([0, 0, 0, 0], 0)), &[[10, 0, 0, 1].into()]).unwrap();
        assert!(inside.is_private());
    }

    /// With `host = "0.0.0.0"`, browsers were told the machine's IPv6 address, too, at which nothing listened.
    #[test]
    fn a_port_on_every_ipv4_address_is_advertised_at_no_ipv6_address() {
        let (every_v4, every_v6) = (
            IpAddr::from(Ipv4Addr::UNSPECIFIED),
            IpAddr::from(Ipv6Addr::UNSPECIFIED),
        );
        assert!(takes(every_v4, every_v4) && !takes(every_v4, every_v6));
        assert!(takes(every_v6, every_v4) && takes(every_v6, every_v6));
        let told = bind(SocketAddr::new(every_v4, 0), &[]).unwrap();
        assert!(!told.addresses().is_empty());
        assert!(told.addresses().iter().all(SocketAddr::is_ipv4));
        assert!(!own_addresses(every_v6).is_empty());
    }
}
