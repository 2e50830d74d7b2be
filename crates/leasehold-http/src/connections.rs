//! Limits of connections: how many in total and per client, and what one of them may cost.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::limits::one_client;

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
    /// How long a client may take less of a response than [`least_speed`](Self::least_speed).
    /// Default: 30 s.
    pub stall: Duration,
    /// Bytes per second that a client must take of a response, over the time of
    /// [`stall`](Self::stall). Default: 1024.
    pub least_speed: u32,
    /// How long one response may wait for its client altogether. Default: 30 min.
    pub answer: Duration,
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
            answer: Duration::from_secs(30 * 60),
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
pub(crate) struct Entered {
    connections: Arc<Connections>,
    address: IpAddr,
}

impl Connections {
    pub fn new(each: usize) -> Self {
        Self { each, open: Mutex::default() }
    }

    /// Counts a connection. Returns `None` if the address already has `each` connections.
    pub fn enter(self: &Arc<Self>, peer: IpAddr) -> Option<Entered> {
        let address = one_client(peer);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.of.entry(address).or_default();
        if self.each > 0 && *count >= self.each {
            if open.warned.is_none_or(|warned| warned.elapsed() >= WARN_EVERY) {
                open.warned = Some(Instant::now());
                tracing::warn!(
                    %address,
                    most = self.each,
                    "an address has as many connections as it may have; more are closed. If that \
                     is a proxy of yours, set trusted-proxies"
                );
            }
            return None;
        }
        *count += 1;
        Some(Entered { connections: Arc::clone(self), address })
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut open = self.connections.open.lock().unwrap_or_else(PoisonError::into_inner);
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
    fn h22_an_address_has_so_many_connections_and_others_have_theirs() {
        let connections = Arc::new(Connections::new(2));
        let [one, same, other] = ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"]
            .map(|text| text.parse::<IpAddr>().expect("an address"));
        let first = connections.enter(one);
        let second = connections.enter(same);
        assert!(first.is_some() && second.is_some());
        assert!(connections.enter(one).is_none());
        let elsewhere = connections.enter(other);
        assert!(elsewhere.is_some());
        drop(second);
        assert!(connections.enter(one).is_some());
        drop((first, elsewhere));
        assert!(connections.open.lock().expect("a lock").of.is_empty(), "nothing is left behind");
    }

    #[test]
    fn h22_behind_proxies_connections_are_the_proxies_own() {
        assert_eq!(ServerLimits::behind(0).connections_per_address, 64);
        let connections =
            Arc::new(Connections::new(ServerLimits::behind(1).connections_per_address));
        let peer = IpAddr::from([10, 0, 0, 1]);
        let open: Vec<_> = (0..1000).map_while(|_| connections.enter(peer)).collect();
        assert_eq!(open.len(), 1000);
    }
}
