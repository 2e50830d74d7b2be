//! Rate limits per client.
//!
//! # Invariants
//! - A client is an address: the peer's, or the one that our own proxies report. An IPv6 client is
//!   its /64, because providers give each client a whole /64.
//! - Memory is bounded: addresses hash into 2¹⁸ slots, and slots whose quota has refilled are dropped
//!   from time to time. One pair of clients in 262,144 shares a slot.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use axum::extract::ConnectInfo;
use axum::http::{Extensions, HeaderMap, HeaderName};
use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

const SLOTS: u64 = 1 << 18;
/// Requests between two prunings of refilled slots.
const PRUNE_EVERY: u32 = 1 << 16;
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// A client sends too many requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many requests from one address")]
pub struct RateLimited {
    /// At least a second.
    pub retry_after: Duration,
}

/// One kind of request, counted per client.
pub struct Limit {
    limiter: Option<DefaultKeyedRateLimiter<u32>>,
    clock: DefaultClock,
    /// Random, so that a client cannot choose whose slot it shares.
    hasher: RandomState,
    seen: AtomicU32,
}

impl Limit {
    /// No limit when `per_second` is 0.
    pub fn new(per_second: u32, burst: u32) -> Self {
        let limiter = NonZeroU32::new(per_second).map(|per_second| {
            let burst = NonZeroU32::new(burst).unwrap_or(per_second);
            RateLimiter::dashmap(Quota::per_second(per_second).allow_burst(burst))
        });
        Self {
            limiter,
            clock: DefaultClock::default(),
            hasher: RandomState::new(),
            seen: AtomicU32::new(0),
        }
    }

    /// Counts a request, or refuses it and returns how long to wait.
    pub fn admit(&self, client: Option<IpAddr>) -> Result<(), RateLimited> {
        let (Some(limiter), Some(client)) = (&self.limiter, client) else { return Ok(()) };
        if self.seen.fetch_add(1, Ordering::Relaxed) % PRUNE_EVERY == PRUNE_EVERY - 1 {
            limiter.retain_recent();
            limiter.shrink_to_fit();
        }
        limiter.check_key(&self.slot(client)).map_err(|until| {
            let retry_after = until.wait_time_from(self.clock.now());
            RateLimited { retry_after: retry_after.max(Duration::from_secs(1)) }
        })
    }

    fn slot(&self, client: IpAddr) -> u32 {
        let slot = self.hasher.hash_one(client_key(client)) % SLOTS;
        u32::try_from(slot).unwrap_or_default()
    }
}

/// Returns the address that identifies a client: an IPv4 address, or an IPv6 /64.
pub fn client_key(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        v4 @ IpAddr::V4(_) => v4,
        IpAddr::V6(v6) => {
            let network = v6.to_bits() & (u128::MAX << 64);
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
    }
}

/// Returns the client of a request behind `proxies` trusted proxies. `None`: unknown, as in a test
/// without a connection.
pub fn client(extensions: &Extensions, headers: &HeaderMap, proxies: usize) -> Option<IpAddr> {
    if proxies == 0 {
        PROXY_WARNING.check(headers);
        return peer(extensions);
    }
    forwarded(headers, proxies).or_else(|| peer(extensions))
}

/// Returns the address at the other end of the connection: a client's, or that of a proxy.
pub fn peer(extensions: &Extensions) -> Option<IpAddr> {
    extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip())
}

static PROXY_WARNING: ProxyWarning = ProxyWarning(AtomicBool::new(false));

/// Warns once when requests seem to come through a proxy that the settings do not name: all of its
/// clients would share one client's limits.
struct ProxyWarning(AtomicBool);

impl ProxyWarning {
    fn check(&self, headers: &HeaderMap) {
        if headers.contains_key(FORWARDED_FOR) && !self.0.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "a request has X-Forwarded-For, which is ignored: the number of trusted proxies is \
                 0. Behind a proxy all clients share the limits and idempotency keys of one address. \
                 Set --pastes-trusted-proxies or --annotations-trusted-proxies to the number of \
                 proxies"
            );
        }
    }
}

/// Each proxy appends the address that it was called from. Counted from the right, the address that
/// our first proxy saw is the client's; a client can forge everything further left.
fn forwarded(headers: &HeaderMap, proxies: usize) -> Option<IpAddr> {
    let mut found = None;
    let mut left = proxies;
    for value in headers.get_all(FORWARDED_FOR).iter().rev() {
        for entry in value.to_str().ok()?.rsplit(',') {
            found = Some(address(entry.trim())?);
            left -= 1;
            if left == 0 {
                return found;
            }
        }
    }
    found
}

/// `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]`, `[2001:db8::1]:80`.
fn address(text: &str) -> Option<IpAddr> {
    text.parse()
        .ok()
        .or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()))
        .or_else(|| text.strip_prefix('[')?.strip_suffix(']')?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn forwarded_by(values: &[&'static str], proxies: usize) -> Option<String> {
        let headers = HeaderMap::from_iter(
            values.iter().map(|value| (FORWARDED_FOR, HeaderValue::from_static(value))),
        );
        let mut extensions = Extensions::new();
        extensions.insert(ConnectInfo(SocketAddr::from(([10, 0, 0, 9], 1))));
        client(&extensions, &headers, proxies).map(|address| address.to_string())
    }

    #[test]
    fn h9_client_is_counted_from_the_right_of_x_forwarded_for() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(forwarded_by(&["192.0.2.7"], 0), some("10.0.0.9"), "no proxy is trusted");
        assert_eq!(forwarded_by(&["1.1.1.1, 192.0.2.7"], 1), some("192.0.2.7"));
        assert_eq!(forwarded_by(&["1.1.1.1, 192.0.2.7, 10.0.0.1"], 2), some("192.0.2.7"));
        assert_eq!(forwarded_by(&["1.1.1.1", "192.0.2.7:99"], 1), some("192.0.2.7"));
        assert_eq!(forwarded_by(&["[2001:db8::1]:80"], 1), some("2001:db8::1"));
        assert_eq!(forwarded_by(&["192.0.2.7"], 3), some("192.0.2.7"));
        assert_eq!(forwarded_by(&["nonsense"], 1), some("10.0.0.9"));
        assert_eq!(forwarded_by(&[], 1), some("10.0.0.9"));
    }

    #[test]
    fn h9_limit_refuses_one_address_and_admits_others() {
        let limit = Limit::new(1, 2);
        let (one, other) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([198, 51, 100, 1]));
        assert!(limit.admit(Some(one)).is_ok() && limit.admit(Some(one)).is_ok());
        // Each second gives one back, so a few more may pass on a slow machine.
        let refused = (0..100).find_map(|_| limit.admit(Some(one)).err());
        assert!(refused.is_some_and(|RateLimited { retry_after }| retry_after.as_secs() >= 1));
        assert!(limit.slot(one) == limit.slot(other) || limit.admit(Some(other)).is_ok());
    }

    #[test]
    fn h9_addresses_of_one_ipv6_network_are_one_client() {
        let addresses = ["2001:db8::1", "2001:db8::ffff:2", "2001:db8:0:1::1", "::ffff:192.0.2.1"];
        let [one, same, other, v4] =
            addresses.map(|text| text.parse().map(client_key).expect("an address"));
        assert_eq!(one, same);
        assert_ne!(one, other);
        assert_eq!(v4, IpAddr::from([192, 0, 2, 1]));
    }

    #[test]
    fn h9_limit_forgets_addresses_whose_quota_has_refilled() {
        let limit = Limit::new(1_000_000_000, 1);
        for number in 0..PRUNE_EVERY {
            let _ = limit.admit(Some(IpAddr::from(number.to_be_bytes())));
        }
        assert!(limit.limiter.as_ref().is_some_and(|limiter| limiter.len() < 1000));
    }

    /// Counts log events.
    struct Counting(std::sync::Arc<AtomicU32>);

    impl tracing::Subscriber for Counting {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }

        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

        fn event(&self, _: &tracing::Event<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn enter(&self, _: &tracing::span::Id) {}

        fn exit(&self, _: &tracing::span::Id) {}
    }

    #[test]
    fn h22_ignored_x_forwarded_for_is_warned_of_once() {
        let (count, warning) = (std::sync::Arc::default(), ProxyWarning(AtomicBool::new(false)));
        let value = HeaderValue::from_static("192.0.2.7");
        let headers = HeaderMap::from_iter([(FORWARDED_FOR, value)]);
        tracing::subscriber::with_default(Counting(std::sync::Arc::clone(&count)), || {
            warning.check(&HeaderMap::new());
            assert_eq!(count.load(Ordering::Relaxed), 0);
            warning.check(&headers);
            warning.check(&headers);
        });
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn limit_of_zero_admits_every_request() {
        let limit = Limit::new(0, 0);
        assert!((0..1000).all(|_| limit.admit(Some(IpAddr::from([192, 0, 2, 1]))).is_ok()));
    }
}
