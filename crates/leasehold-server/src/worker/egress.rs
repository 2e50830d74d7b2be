//! Where the HTTP worker may send jobs.
//!
//! # What is true
//! - A URL is https on port 443 or 8443, names no user, and writes its host in canonical form.
//! - Each connection resolves the name once, checks every returned address and connects to
//!   those addresses and no other. There is no second lookup that could return another address.
//! - `--allow-private-network` lifts the rules on scheme, port and addresses. The rules on how a
//!   URL is written stay.
//!
//! # What can go wrong
//! - A name has a public and a private address: it is rejected. An attacker needs only some of the
//!   requests to reach the private one.
//! - The network routes a public address inwards: nothing here can detect that; put an egress proxy
//!   or a firewall rule in front.

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::address::not_public;

/// Timeout of a lookup.
const LOOKUP_LIMIT: Duration = Duration::from_secs(5);
const PORTS: [u16; 2] = [443, 8443];
/// Names that mean this machine or this network wherever they are resolved.
const INSIDE: [&str; 5] = ["localhost", "local", "internal", "intranet", "home.arpa"];

/// The rules for URLs and addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Allow plain http, and any port.
    pub any_way: bool,
    /// Allow addresses that are not public.
    pub any_address: bool,
}

impl Rules {
    pub const STRICT: Self = Self { any_way: false, any_address: false };
    /// For development and tests on one machine.
    pub const PRIVATE_NETWORK: Self = Self { any_way: true, any_address: true };

    /// Parses a URL, or returns why jobs may not go there. The text never contains the URL itself: it
    /// may hold a password.
    pub fn check_url(self, text: &str) -> Result<Url, String> {
        // The parser tolerates spaces, tabs, line breaks and backslashes; each of them makes two parsers
        // see different hosts.
        if !text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\') {
            return Err("holds a space, a backslash or a character outside ASCII; write it \
                        percent-encoded, and the host as xn--…"
                .to_owned());
        }
        let url = Url::parse(text).map_err(|error| {
            format!("cannot be read: {error}; it looks like https://example.com/jobs")
        })?;
        match url.scheme() {
            "https" => {}
            "http" if self.any_way => {}
            "http" => {
                return Err(format!("is http, which anyone on the way can read; use https{LOCAL}"));
            }
            other => return Err(format!("has the scheme {other}; use https")),
        }
        if !url.username().is_empty() || url.password().is_some() || authority(text).contains('@') {
            return Err(
                "names a user or a password; requests are signed instead, so leave it out".into()
            );
        }
        let port = url.port_or_known_default().unwrap_or(0);
        if !self.any_way && !PORTS.contains(&port) {
            return Err(format!("names port {port}; use 443 or 8443{LOCAL}"));
        }
        self.check_host(text, &url)?;
        Ok(url)
    }

    fn check_host(self, text: &str, url: &Url) -> Result<(), String> {
        let host = url.host_str().unwrap_or_default();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let written = written_host(text);
        let plain = match bare.parse::<IpAddr>() {
            // Some parsers read 0x7f.1, 017700000001 and 2130706433 as 127.0.0.1.
            Ok(IpAddr::V4(address)) => written == address.to_string(),
            Ok(IpAddr::V6(address)) => written.parse() == Ok(address),
            Err(_) => written.eq_ignore_ascii_case(host) && !host.is_empty(),
        };
        if !plain {
            return Err("writes its host in a roundabout way; write the name, or the address in \
                        its usual form"
                .to_owned());
        }
        if self.any_address {
            return Ok(());
        }
        if let Ok(address) = bare.parse() {
            return self.check_addresses(&[address]);
        }
        let name = host.trim_end_matches('.').to_ascii_lowercase();
        let inside = INSIDE.iter().any(|inside| {
            name.strip_suffix(inside).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        });
        if inside {
            return Err(format!("names a host inside this network; use a public one{LOCAL}"));
        }
        Ok(())
    }

    /// Rejects all addresses if any of them is not public.
    pub fn check_addresses(self, addresses: &[IpAddr]) -> Result<(), String> {
        if addresses.is_empty() {
            return Err("the host has no address".to_owned());
        }
        if self.any_address {
            return Ok(());
        }
        match addresses.iter().find_map(|address| Some((address, not_public(*address)?))) {
            Some((address, what)) => {
                Err(format!("leads to {address}, which is {what}; use a public address{LOCAL}"))
            }
            None => Ok(()),
        }
    }
}

const LOCAL: &str = ", or --allow-private-network for development";

/// Returns the text between `://` and the path, as written.
fn authority(text: &str) -> &str {
    let rest = text.split_once("://").map_or("", |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().unwrap_or_default()
}

/// Returns the host as written, without brackets and port.
fn written_host(text: &str) -> &str {
    let authority = authority(text);
    match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    }
}

/// Resolves names.
pub trait Lookup: Send + Sync + 'static {
    fn lookup(&self, host: &str) -> Answer;
}

pub type Answer = Pin<Box<dyn Future<Output = std::io::Result<Vec<IpAddr>>> + Send>>;

/// Resolves names with the system's resolver.
pub struct SystemLookup;

impl Lookup for SystemLookup {
    fn lookup(&self, host: &str) -> Answer {
        let host = host.to_owned();
        Box::pin(async move {
            let found = tokio::net::lookup_host((host.as_str(), 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// The only source of addresses for the HTTP client.
pub struct Gate {
    rules: Rules,
    lookup: Arc<dyn Lookup>,
}

impl Gate {
    pub fn new(rules: Rules, lookup: Arc<dyn Lookup>) -> Self {
        Self { rules, lookup }
    }
}

impl Resolve for Gate {
    fn resolve(&self, name: Name) -> Resolving {
        let rules = self.rules;
        let answer = self.lookup.lookup(name.as_str());
        Box::pin(async move {
            let addresses = tokio::time::timeout(LOOKUP_LIMIT, answer).await.map_err(|_| {
                format!("the host was not found within {} s", LOOKUP_LIMIT.as_secs())
            })??;
            rules.check_addresses(&addresses)?;
            // Port 0: the client uses the URL's.
            let pinned: Addrs =
                Box::new(addresses.into_iter().map(|address| SocketAddr::new(address, 0)));
            Ok(pinned)
        })
    }
}

#[cfg(test)]
#[path = "egress_tests.rs"]
mod tests;
