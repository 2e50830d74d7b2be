//! How much one client may ask for.
//!
//! # What is true
//! - A client is an address: the peer's, or the one that our own proxies say. IPv6 clients are told
//!   apart by their /64, because each of them has that many addresses for free.
//! - Memory is bounded whatever comes: addresses fall into 2¹⁸ slots, and slots that have filled up
//!   again are dropped from time to time. Two clients share a slot once in 262,144 pairs.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::extract::ConnectInfo;
use axum::http::{Extensions, HeaderMap, HeaderName};
use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

const SLOTS: u64 = 1 << 18;
/// Requests between two looks for slots that can go.
const PRUNE_EVERY: u32 = 1 << 16;
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// A client asks too often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many requests from one address")]
pub struct TooMany {
    /// At least a second.
    pub retry_after: Duration,
}

/// One kind of request, counted for each client.
pub struct Limit {
    limiter: Option<DefaultKeyedRateLimiter<u32>>,
    clock: DefaultClock,
    /// Unknown outside, so that nobody can choose whose slot they share.
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

    /// Counts a request, or refuses it and says when to come back.
    pub fn admit(&self, client: Option<IpAddr>) -> Result<(), TooMany> {
        let (Some(limiter), Some(client)) = (&self.limiter, client) else { return Ok(()) };
        if self.seen.fetch_add(1, Ordering::Relaxed) % PRUNE_EVERY == PRUNE_EVERY - 1 {
            limiter.retain_recent();
            limiter.shrink_to_fit();
        }
        limiter.check_key(&self.slot(client)).map_err(|until| {
            let retry_after = until.wait_time_from(self.clock.now());
            TooMany { retry_after: retry_after.max(Duration::from_secs(1)) }
        })
    }

    fn slot(&self, client: IpAddr) -> u32 {
        let slot = self.hasher.hash_one(one_client(client)) % SLOTS;
        u32::try_from(slot).unwrap_or_default()
    }
}

/// The address that stands for a client.
fn one_client(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        v4 @ IpAddr::V4(_) => v4,
        IpAddr::V6(v6) => {
            let network = v6.to_bits() & (u128::MAX << 64);
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
    }
}

/// Whose request this is, behind so many proxies of ours. `None`: nobody knows, as in a test without
/// a connection.
pub fn client(extensions: &Extensions, headers: &HeaderMap, proxies: usize) -> Option<IpAddr> {
    let peer = extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip());
    if proxies == 0 {
        return peer;
    }
    forwarded(headers, proxies).or(peer)
}

/// Each proxy adds the address that it was called from at the end. Counted from the right, the
/// address that our first proxy saw is the client's; what stands further left anybody can write.
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
    fn h9_the_client_is_counted_from_the_right_and_cannot_choose_its_address() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(forwarded_by(&["192.0.2.7"], 0), some("10.0.0.9"), "nobody is trusted");
        assert_eq!(forwarded_by(&["1.1.1.1, 192.0.2.7"], 1), some("192.0.2.7"));
        assert_eq!(forwarded_by(&["1.1.1.1, 192.0.2.7, 10.0.0.1"], 2), some("192.0.2.7"));
        assert_eq!(forwarded_by(&["1.1.1.1", "192.0.2.7:99"], 1), some("192.0.2.7"));
        assert_eq!(forwarded_by(&["[2001:db8::1]:80"], 1), some("2001:db8::1"));
        assert_eq!(forwarded_by(&["192.0.2.7"], 3), some("192.0.2.7"));
        assert_eq!(forwarded_by(&["nonsense"], 1), some("10.0.0.9"));
        assert_eq!(forwarded_by(&[], 1), some("10.0.0.9"));
    }

    #[test]
    fn h9_an_address_that_asks_too_often_is_told_to_wait_and_others_are_not() {
        let limit = Limit::new(1, 2);
        let (one, other) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([198, 51, 100, 1]));
        assert!(limit.admit(Some(one)).is_ok() && limit.admit(Some(one)).is_ok());
        // Each second gives one back, so a few more may pass on a slow machine.
        let refused = (0..100).find_map(|_| limit.admit(Some(one)).err());
        assert!(refused.is_some_and(|TooMany { retry_after }| retry_after.as_secs() >= 1));
        assert!(limit.slot(one) == limit.slot(other) || limit.admit(Some(other)).is_ok());
    }

    #[test]
    fn h9_all_addresses_of_one_network_are_one_client() {
        let addresses = ["2001:db8::1", "2001:db8::ffff:2", "2001:db8:0:1::1", "::ffff:192.0.2.1"];
        let [one, same, other, v4] =
            addresses.map(|text| text.parse().map(one_client).expect("an address"));
        assert_eq!(one, same);
        assert_ne!(one, other);
        assert_eq!(v4, IpAddr::from([192, 0, 2, 1]));
    }

    #[test]
    fn h9_the_limiter_forgets_whom_it_need_not_remember() {
        let limit = Limit::new(1_000_000_000, 1);
        for number in 0..PRUNE_EVERY {
            let _ = limit.admit(Some(IpAddr::from(number.to_be_bytes())));
        }
        assert!(limit.limiter.as_ref().is_some_and(|limiter| limiter.len() < 1000));
    }

    #[test]
    fn no_limit_is_no_limit() {
        let limit = Limit::new(0, 0);
        assert!((0..1000).all(|_| limit.admit(Some(IpAddr::from([192, 0, 2, 1]))).is_ok()));
    }
}
