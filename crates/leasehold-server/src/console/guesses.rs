//! Counts wrong tokens per address, so that guessing is slow and leaves a trace in the log.
//!
//! # Invariants
//! - After 10 wrong tokens within a minute the console rejects an address until the minute is over, even
//!   with the right token. Sessions are not affected: a user who is logged in stays so.
//! - An IPv6 address counts as its /64: a guesser gets that many addresses for free.
//! - Memory is bounded: at most 4096 addresses are counted at a time. While the table is full of
//!   addresses of the same minute, further ones share one count.
//!
//! # What can go wrong
//! - Behind a proxy every client has the proxy's address: one guesser there keeps others from logging
//!   in as long as the guessing lasts.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use leasehold_http::limits::client_key;
use parking_lot::Mutex;

/// Wrong tokens per address and window.
const MOST: u32 = 10;
const WINDOW: Duration = Duration::from_secs(60);
const ADDRESSES: usize = 4096;
/// The shared entry of unknown addresses and of those that did not fit into a full table.
const OTHERS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

#[derive(Default)]
pub struct Guesses(Mutex<HashMap<IpAddr, Window>>);

struct Window {
    began: Instant,
    wrong: u32,
}

impl Guesses {
    /// Returns how long this address has to wait before its next token counts. `None`: it may send one.
    pub fn wait(&self, client: Option<IpAddr>, now: Instant) -> Option<Duration> {
        let windows = self.0.lock();
        let client = client.map_or(OTHERS, client_key);
        // An address without its own entry is counted with the others.
        let window = windows
            .get(&client)
            .or_else(|| if windows.len() >= ADDRESSES { windows.get(&OTHERS) } else { None })?;
        let left = WINDOW.checked_sub(now.saturating_duration_since(window.began))?;
        (window.wrong >= MOST).then_some(left)
    }

    /// Counts a wrong token.
    pub fn wrong(&self, client: Option<IpAddr>, now: Instant) {
        let client = client.map(client_key);
        let mut windows = self.0.lock();
        if windows.len() >= ADDRESSES {
            windows.retain(|_, window| now.saturating_duration_since(window.began) < WINDOW);
        }
        let known = client.filter(|one| windows.len() < ADDRESSES || windows.contains_key(one));
        let window =
            windows.entry(known.unwrap_or(OTHERS)).or_insert(Window { began: now, wrong: 0 });
        if now.saturating_duration_since(window.began) >= WINDOW {
            *window = Window { began: now, wrong: 0 };
        }
        window.wrong += 1;
        let address = client.map_or_else(|| "unknown".to_owned(), |client| client.to_string());
        // One line at the first wrong token and one at the limit, not one per guess: the log stays
        // readable.
        match window.wrong {
            1 => tracing::warn!(%address, "a client sent a wrong console token"),
            MOST => tracing::warn!(
                %address,
                "{MOST} wrong console tokens within a minute; further tokens from this address are rejected \
                 until the minute is over"
            ),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: u32) -> Option<IpAddr> {
        Some(IpAddr::V4(Ipv4Addr::from_bits(n)))
    }

    #[test]
    fn h23_address_waits_after_ten_wrong_tokens() {
        let (guesses, now) = (Guesses::default(), Instant::now());
        for _ in 1..MOST {
            guesses.wrong(address(1), now);
        }
        assert_eq!(guesses.wait(address(1), now), None);
        guesses.wrong(address(1), now);
        assert_eq!(guesses.wait(address(1), now), Some(WINDOW));
        assert_eq!(guesses.wait(address(2), now), None, "another address may");
        assert_eq!(guesses.wait(address(1), now + WINDOW + Duration::from_millis(1)), None);
        guesses.wrong(address(1), now + 2 * WINDOW);
        assert_eq!(guesses.wait(address(1), now + 2 * WINDOW), None, "a new minute");
    }

    #[test]
    fn h23_addresses_of_one_network_are_counted_together() {
        let (guesses, now) = (Guesses::default(), Instant::now());
        let address = |network: u128, host: u128| {
            let prefix = 0x2001_0db8 << 96 | network << 64;
            Some(IpAddr::from(std::net::Ipv6Addr::from_bits(prefix | host)))
        };
        for host in 1..=u128::from(MOST) {
            guesses.wrong(address(1, host), now);
        }
        assert_eq!(guesses.wait(address(1, 99), now), Some(WINDOW));
        assert_eq!(guesses.wait(address(2, 1), now), None, "another network may");
        let mapped = Ipv4Addr::new(192, 0, 2, 1);
        for _ in 0..MOST {
            guesses.wrong(Some(mapped.to_ipv6_mapped().into()), now);
        }
        assert_eq!(guesses.wait(Some(mapped.into()), now), Some(WINDOW));
    }

    #[test]
    fn h23_full_table_counts_further_addresses_together() {
        let (guesses, now) = (Guesses::default(), Instant::now());
        for n in 1..=4096 {
            guesses.wrong(address(n), now);
        }
        for n in 0..MOST {
            guesses.wrong(address(10_000 + n), now);
        }
        assert!(guesses.wait(address(20_000), now).is_some());
        assert_eq!(guesses.wait(address(7), now), None);
    }
}
