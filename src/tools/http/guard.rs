//! The addresses that a tool may reach: only public ones, unless its declaration names another.
//!
//! Both are checked: the host in the address, which needs no look-up if it is a number, and what
//! a name resolves to, at the moment of connecting, so that no later answer can differ.

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use url::{Host, Url};

/// A connection that takes longer does not help a conversation.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// The variables with the proxy that other programs reach servers through.
const PROXIES: [&str; 2] = ["HTTPS_PROXY", "https_proxy"];

/// The connections of all tools of a server: pools are shared, and so is what warmed them up.
#[derive(Debug, Clone)]
pub struct Web {
    public: reqwest::Client,
    any: reqwest::Client,
    /// The variable with a proxy, which is not used.
    pub(super) unused_proxy: Option<&'static str>,
}

impl Web {
    /// No connections yet.
    ///
    /// # Errors
    /// If TLS cannot be set up.
    pub fn new() -> Result<Self, reqwest::Error> {
        let is_set = |name: &&str| std::env::var_os(name).is_some_and(|proxy| !proxy.is_empty());
        Ok(Self {
            public: client().dns_resolver(Arc::new(PublicOnly)).build()?,
            any: client().build()?,
            unused_proxy: PROXIES.into_iter().find(is_set),
        })
    }
}

/// No proxy from the environment: it would look up names in our place, and unchecked.
fn client() -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .connect_timeout(CONNECT_PATIENCE)
        .user_agent(concat!("undertone/", env!("CARGO_PKG_VERSION")))
}

/// An address that a tool may not reach.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a public address")]
pub struct Forbidden(pub String);

impl Web {
    /// The client to reach `url` with, for a tool whose declaration names `allowed` as a private
    /// origin.
    ///
    /// # Errors
    /// [`Forbidden`] if the host is an IP address that is not public. A name that resolves to one fails
    /// on connecting.
    pub(super) fn client(
        &self,
        url: &Url,
        allowed: Option<&Url>,
    ) -> Result<&reqwest::Client, Forbidden> {
        if allowed.is_some_and(|allowed| allowed.origin() == url.origin()) {
            return Ok(&self.any);
        }
        if is_private_host(url) {
            return Err(Forbidden(url.host_str().unwrap_or_default().to_owned()));
        }
        Ok(&self.public)
    }
}

/// Whether the host needs no look-up to be seen as private: a number, or `localhost`.
pub(crate) fn is_private_host(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => !is_public_v4(address),
        Some(Host::Ipv6(address)) => !is_public_v6(address),
        Some(Host::Domain(name)) => {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            name == "localhost" || name.ends_with(".localhost")
        }
        None => true,
    }
}

/// Whether the host is this machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

/// Looks names up and refuses them whole if any of their addresses is not public.
struct PublicOnly;

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let host = name.as_str().to_owned();
            let found: Vec<SocketAddr> =
                tokio::net::lookup_host((host.as_str(), 0)).await?.collect();
            match found.iter().find(|address| !is_public(address.ip())) {
                Some(_) => Err(Forbidden(host).into()),
                None => Ok(Box::new(found.into_iter()) as Addrs),
            }
        })
    }
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// By the IANA IPv4 Special-Purpose Address Registry: what is "globally reachable", and no
/// multicast.
fn is_public_v4(address: Ipv4Addr) -> bool {
    let special = match address.octets() {
        [0, ..] | [192, 0, 0, _] | [192, 88, 99, _] => true,
        [100, second, ..] => (64..128).contains(&second),
        [198, second, ..] => second == 18 || second == 19,
        [first, ..] => first >= 240,
    };
    !(special
        || address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation())
}

/// By the IANA IPv6 Special-Purpose Address Registry; of addresses that hold an IPv4 address, that
/// one decides.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let embedded = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match address.segments() {
        // Mapped, and NAT64.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            embedded(high, low)
        }
        // 6to4.
        [0x2002, high, low, ..] => embedded(high, low),
        // Protocol assignments with Teredo, documentation.
        [0x2001, second, ..] => second >= 0x200 && second != 0xdb8,
        [0x3fff, second, ..] => second >= 0x1000,
        // Only 2000::/3 is handed out.
        [first, ..] => (0x2000..0x4000).contains(&first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_a_private_address_is_seen() {
        let web = Web::new().unwrap();
        for host in [
            "127.0.0.1",
            "2130706433",
            "0x7f.1",
            "0177.0.0.1",
            "127.1",
            "0",
            "0.0.0.0",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.0.1",
            "169.254.169.254",
            "100.64.0.1",
            "192.0.0.8",
            "198.18.0.1",
            "203.0.113.7",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "localhost",
            "LOCALHOST.",
            "foo.localhost",
            "[::1]",
            "[::]",
            "[::ffff:127.0.0.1]",
            "[::ffff:a9fe:a9fe]",
            "[fe80::1]",
            "[fc00::1]",
            "[fd12:3456::1]",
            "[fec0::1]",
            "[ff02::1]",
            "[64:ff9b::7f00:1]",
            "[64:ff9b:1::1]",
            "[2002:7f00:1::]",
            "[2001::1]",
            "[2001:db8::1]",
            "[3fff::1]",
            "[100::1]",
            "[::127.0.0.1]",
            "[fd00:ec2::254]",
        ] {
            let url = Url::parse(&format!("http://{host}/")).unwrap();
            assert!(is_private_host(&url), "{host} is {:?}", url.host());
            assert!(web.client(&url, None).is_err(), "{host}");
        }
        for host in [
            "example.org",
            "1.1.1.1",
            "172.32.0.1",
            "[2606:4700::1111]",
            "[::ffff:1.1.1.1]",
            "[2001:4860::8888]",
        ] {
            let url = Url::parse(&format!("http://{host}/")).unwrap();
            assert!(!is_private_host(&url), "{host}");
        }
    }

    #[test]
    fn a_private_origin_is_allowed_to_the_port() {
        let url = |text| Url::parse(text).unwrap();
        let allowed = url("http://127.0.0.1:8080/x");
        let web = Web::new().unwrap();
        assert!(
            web.client(&url("http://127.0.0.1:8080/other"), Some(&allowed))
                .is_ok()
        );
        for other in [
            "http://127.0.0.1:22/",
            "https://127.0.0.1:8080/",
            "http://localhost:8080/",
        ] {
            assert!(web.client(&url(other), Some(&allowed)).is_err(), "{other}");
        }
    }

    #[tokio::test]
    async fn a_name_that_resolves_to_this_machine_is_not_connected_to() {
        // A name that needs a look-up and is not `localhost` by its spelling.
        let name = "ip6-localhost".parse().unwrap();
        assert!(PublicOnly.resolve(name).await.is_err());
    }
}
