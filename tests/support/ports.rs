//! Ports for programs that are told theirs, and for addresses where nobody listens.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::ops::Range;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};

/// Below Linux's ports for outgoing connections and for port 0, one of which another test may take at any moment.
const PORTS: Range<u16> = 20_000..32_768;

/// Each test program begins elsewhere.
static NEXT: LazyLock<AtomicU16> = LazyLock::new(|| {
    let begin = std::process::id().wrapping_mul(997) % u32::from(u16::MAX);
    AtomicU16::new(u16::try_from(begin).expect("below"))
});

/// A port of 127.0.0.1 that is free, for TCP and UDP, and that this program gives out once.
pub(crate) fn free() -> u16 {
    let is_free = |port: &u16| {
        let address = (Ipv4Addr::LOCALHOST, *port);
        TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok()
    };
    let next = || PORTS.start + NEXT.fetch_add(1, Ordering::Relaxed) % (PORTS.end - PORTS.start);
    let mut ports = std::iter::repeat_with(next);
    ports.find(is_free).expect("the ports do not end")
}
