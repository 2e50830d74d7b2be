//! Limits of connections: how many in total and per client, and what one of them may cost.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::limits::client_key;

/// How often an address with too many connections is logged.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// What a connection may cost.
#[derive(Clone, Debug)]
pub struct ServerLimits {
    /// From the first wait for a request to the end of its head; also how long a connection may idle.
    /// Default: 10 s.
    pub head: Duration,
    /// From the end of the head to the end of the body. Default: 30 s.
    pub body: Duration,
    /// From the end of the head to the beginning of the response. Default: 60 s.
    pub request: Duration,
    /// How long a client may read less of a response than [`least_speed`](Self::least_speed).
    /// Default: 30 s.
    pub stall: Duration,
    /// Bytes per second that a client must read of a response, over the time of
    /// [`stall`](Self::stall). Default: 1024.
    pub least_speed: u32,
    /// How long one response may wait for its client in total. Default: 30 min.
    pub response: Duration,
    /// How long running requests have after a stop. Default: 20 s.
    pub grace: Duration,
    /// Default: 1024.
    pub connections: usize,
    /// Connections per address (an IPv6 /64 counts as one); 0: no limit. Default: 64.
    pub connections_per_address: usize,
    /// Bytes of a request's head. Default: 16 KiB.
    pub head_bytes: usize,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(10),
            body: Duration::from_secs(30),
            request: Duration::from_secs(60),
            stall: Duration::from_secs(30),
            least_speed: 1024,
            response: Duration::from_secs(30 * 60),
            grace: Duration::from_secs(20),
            connections: 1024,
            connections_per_address: 64,
            head_bytes: 16 * 1024,
        }
    }
}

impl ServerLimits {
    /// Returns the limits behind `proxies` trusted proxies. Every connection comes from a proxy then,
    /// so the proxy must limit the connections per client.
    pub fn behind(proxies: usize) -> Self {
        let usual = Self::default();
        match proxies {
            0 => usual,
            _ => Self { connections_per_address: 0, ..usual },
        }
    }
}

/// The open connections of each address.
pub(crate) struct Connections {
    each: usize,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    of: HashMap<IpAddr, usize>,
    warned: Option<Instant>,
}

/// A counted connection. Dropping it counts it off.
pub(crate) struct ConnectionPermit {
    connections: Arc<Connections>,
    address: IpAddr,
}

impl Connections {
    pub fn new(each: usize) -> Self {
        Self { each, open: Mutex::default() }
    }

    /// Counts a connection. Returns `None` if the address already has `each` connections.
    pub fn enter(self: &Arc<Self>, peer: IpAddr) -> Option<ConnectionPermit> {
        let address = client_key(peer);
        let mut open = self.open.lock();
        let count = open.of.entry(address).or_default();
        if self.each > 0 && *count >= self.each {
            if open.warned.is_none_or(|warned| warned.elapsed() >= WARN_EVERY) {
                open.warned = Some(Instant::now());
                tracing::warn!(
                    %address,
                    most = self.each,
                    "an address has the most connections that it may have; further ones are closed. If \
                     the address is a trusted proxy, set trusted-proxies"
                );
            }
            return None;
        }
        *count += 1;
        Some(ConnectionPermit { connections: Arc::clone(self), address })
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut open = self.connections.open.lock();
        if let Some(count) = open.of.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                open.of.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h22_connections_are_limited_per_address() {
        let connections = Arc::new(Connections::new(2));
        let [one, same, other] = ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"]
            .map(|text| text.parse::<IpAddr>().expect("an address"));
        let first = connections.enter(one);
        let second = connections.enter(same);
        assert!(first.is_some() && second.is_some());
        assert!(connections.enter(one).is_none());
        let another = connections.enter(other);
        assert!(another.is_some());
        drop(second);
        assert!(connections.enter(one).is_some());
        drop((first, another));
        assert!(connections.open.lock().of.is_empty(), "nothing is left behind");
    }

    #[test]
    fn h22_connections_are_not_limited_per_address_behind_proxies() {
        assert_eq!(ServerLimits::behind(0).connections_per_address, 64);
        let connections =
            Arc::new(Connections::new(ServerLimits::behind(1).connections_per_address));
        let peer = IpAddr::from([10, 0, 0, 1]);
        let open: Vec<_> = (0..1000).map_while(|_| connections.enter(peer)).collect();
        assert_eq!(open.len(), 1000);
    }
}
