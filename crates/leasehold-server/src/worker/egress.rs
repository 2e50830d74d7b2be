//! Where the HTTP worker may send jobs.
//!
//! # Invariants
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
                return Err(format!(
                    "is http, which every network on the way can read; use https{LOCAL}"
                ));
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
            return Err("writes its host in an unusual form; write the name, or the address as \
                        four decimal numbers or in brackets"
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
    fn lookup(&self, host: &str) -> LookupFuture;
}

pub type LookupFuture = Pin<Box<dyn Future<Output = std::io::Result<Vec<IpAddr>>> + Send>>;

/// Resolves names with the system's resolver.
pub struct SystemLookup;

impl Lookup for SystemLookup {
    fn lookup(&self, host: &str) -> LookupFuture {
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
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Why a URL is rejected: for how it is written, or for the address of its host.
    const REFUSED: &[(&str, &str)] = &[
        // Loopback and unspecified.
        ("https://127.0.0.1/", "loopback"),
        ("https://127.8.9.10:8443/", "loopback"),
        ("https://[::1]/", "loopback"),
        ("https://[0:0:0:0:0:0:0:1]/", "loopback"),
        ("https://0.0.0.0/", "unspecified"),
        ("https://0.1.2.3/", "unspecified"),
        ("https://[::]/", "unspecified"),
        ("https://localhost/", "inside"),
        ("https://LOCALHOST./", "inside"),
        ("https://db.localhost/", "inside"),
        // Private, link-local, shared.
        ("https://10.0.0.1/", "private"),
        ("https://172.16.0.1/", "private"),
        ("https://172.31.255.254/", "private"),
        ("https://192.168.1.1/", "private"),
        ("https://169.254.1.1/", "link-local"),
        ("https://100.64.0.1/", "CGNAT"),
        ("https://100.127.255.254/", "CGNAT"),
        ("https://[fc00::1]/", "ULA"),
        ("https://[fd12:3456:789a::1]/", "ULA"),
        ("https://[fe80::1]/", "link-local"),
        ("https://[fec0::1]/", "not global unicast"),
        ("https://printer.local/", "inside"),
        ("https://wiki.intranet/", "inside"),
        ("https://nas.home.arpa/", "inside"),
        // Metadata services.
        ("https://169.254.169.254/latest/meta-data/", "link-local"),
        ("https://100.100.100.200/", "CGNAT"),
        ("https://192.0.0.192/", "reserved for protocols"),
        ("https://168.63.129.16/", "metadata"),
        ("https://[fd00:ec2::254]/", "ULA"),
        ("https://metadata.google.internal/", "inside"),
        // IPv4 inside IPv6.
        ("https://[::ffff:127.0.0.1]/", "form of IPv6"),
        ("https://[::ffff:8.8.8.8]/", "form of IPv6"),
        ("https://[::ffff:a00:1]/", "form of IPv6"),
        ("https://[::127.0.0.1]/", "not global unicast"),
        ("https://[::8.8.8.8]/", "not global unicast"),
        ("https://[64:ff9b::7f00:1]/", "NAT64"),
        ("https://[64:ff9b:1::1]/", "NAT64"),
        ("https://[2002:7f00:1::]/", "6to4"),
        ("https://[2001:0:4136:e378::]/", "Teredo"),
        // Multicast, reserved, documentation, benchmarks.
        ("https://224.0.0.1/", "multicast"),
        ("https://239.255.255.250/", "multicast"),
        ("https://[ff02::1]/", "multicast"),
        ("https://255.255.255.255/", "reserved"),
        ("https://240.0.0.1/", "reserved"),
        ("https://192.0.2.1/", "documentation"),
        ("https://198.51.100.7/", "documentation"),
        ("https://203.0.113.9/", "documentation"),
        ("https://[2001:db8::1]/", "documentation"),
        ("https://[3fff::1]/", "documentation"),
        ("https://198.18.0.1/", "benchmarks"),
        // Addresses that are not written as addresses.
        ("https://2130706433/", "unusual form"),
        ("https://017700000001/", "unusual form"),
        ("https://0x7f000001/", "unusual form"),
        ("https://0x7f.0.0.1/", "unusual form"),
        ("https://0177.0.0.1/", "unusual form"),
        ("https://127.1/", "unusual form"),
        ("https://127.0.0.1./", "unusual form"),
        ("https://010.0.0.1/", "unusual form"),
        ("https://134744072/", "unusual form"),
        ("https://%31%32%37.0.0.1/", "unusual form"),
        ("https://ex%61mple.com/", "unusual form"),
        ("https://①②⑦.0.0.1/", "outside ASCII"),
        ("https://example。com/", "outside ASCII"),
        // Users, schemes, ports, and texts that two readers read differently.
        ("https://user@example.com/", "user"),
        ("https://user:pass@example.com/", "user"),
        ("https://@example.com/", "user"),
        ("https://example.com@127.0.0.1/", "user"),
        ("https://example.com:443@10.0.0.1/", "user"),
        ("https:\\\\example.com\\", "backslash"),
        ("https://example.com\\@127.0.0.1/", "backslash"),
        ("https://exam\tple.com/", "space"),
        ("https://example.com/\r\nhost: other", "space"),
        (" https://example.com/", "space"),
        ("https:example.com", "unusual form"),
        ("https:/example.com/", "unusual form"),
        ("https:///example.com/", "unusual form"),
        ("http://example.com/", "use https"),
        ("http://example.com:443/", "use https"),
        ("ftp://example.com/", "scheme"),
        ("file:///etc/passwd", "scheme"),
        ("gopher://example.com/", "scheme"),
        ("unix:/run/docker.sock", "scheme"),
        ("https://example.com:22/", "port 22"),
        ("https://example.com:80/", "port 80"),
        ("https://example.com:5432/", "port 5432"),
        ("https://example.com:0/", "port 0"),
        ("https://example.com:99999/", "cannot be read"),
        ("https://[fe80::1%25eth0]/", "cannot be read"),
        ("https://", "cannot be read"),
        ("example.com/jobs", "cannot be read"),
        ("", "cannot be read"),
    ];

    const ALLOWED: &[&str] = &[
        "https://example.com/",
        "https://example.com",
        "https://example.com:443/jobs?kind=a#b",
        "https://example.com:8443/jobs",
        "https://EXAMPLE.com/a@b",
        "https://example.com./",
        "https://xn--bcher-kva.example/",
        "https://localhost.example.com/",
        "https://notlocal/",
        "https://8.8.8.8/",
        "https://[2606:4700:4700::1111]/",
    ];

    #[test]
    fn h7_private_urls_are_rejected_with_the_reason() {
        assert!(REFUSED.len() >= 60);
        for (url, reason) in REFUSED {
            let text = Rules::STRICT.check_url(url).expect_err(url);
            assert!(text.contains(reason), "{url:?}: {text}");
        }
        for url in ALLOWED {
            assert!(
                Rules::STRICT.check_url(url).is_ok(),
                "{url}: {:?}",
                Rules::STRICT.check_url(url)
            );
        }
    }

    #[test]
    fn h7_private_network_rules_still_check_the_spelling() {
        let rules = Rules::PRIVATE_NETWORK;
        for url in [
            "http://127.0.0.1:3000/",
            "http://localhost:80/",
            "https://[::1]:9/",
            "http://10.1.2.3/",
        ] {
            assert!(rules.check_url(url).is_ok(), "{url}");
        }
        for url in
            ["http://u:p@localhost/", "http://2130706433/", "http://127.1/", "file:///etc/passwd"]
        {
            assert!(rules.check_url(url).is_err(), "{url}");
        }
    }

    #[test]
    fn h12_rejected_url_is_not_printed() {
        let text = Rules::STRICT
            .check_url("https://u:hunter2@example.com/?token=hunter2")
            .expect_err("user");
        assert!(!text.contains("hunter2"), "{text}");
    }

    /// Returns one answer after the other, the last one for ever, and counts the lookups.
    struct Rebinding {
        answers: Mutex<Vec<Vec<IpAddr>>>,
        asked: AtomicUsize,
    }

    impl Rebinding {
        fn new(answers: &[&[&str]]) -> Arc<Self> {
            let read = |texts: &&[&str]| {
                texts.iter().map(|text| text.parse().expect("an address")).collect()
            };
            Arc::new(Self {
                answers: Mutex::new(answers.iter().map(read).collect()),
                asked: AtomicUsize::new(0),
            })
        }

        fn asked(&self) -> usize {
            self.asked.load(Ordering::SeqCst)
        }
    }

    impl Lookup for Rebinding {
        fn lookup(&self, _host: &str) -> LookupFuture {
            self.asked.fetch_add(1, Ordering::SeqCst);
            let mut answers = self.answers.lock().expect("no panic");
            let answer = if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() };
            Box::pin(async { Ok(answer) })
        }
    }

    async fn pinned(gate: &Gate) -> Result<Vec<IpAddr>, String> {
        let name = "rebind.example".parse().expect("a name");
        let found = gate.resolve(name).await.map_err(|error| error.to_string())?;
        Ok(found.map(|address| address.ip()).collect())
    }

    #[tokio::test]
    async fn h7_name_is_resolved_once_per_connection() {
        let lookup = Rebinding::new(&[&["8.8.8.8", "2606:4700::1"], &["127.0.0.1"]]);
        let gate = Gate::new(Rules::STRICT, lookup.clone());
        let first = pinned(&gate).await.expect("public");
        assert_eq!(first, ["8.8.8.8".parse::<IpAddr>().unwrap(), "2606:4700::1".parse().unwrap()]);
        assert_eq!(lookup.asked(), 1, "a second lookup could have another answer");
        let text = pinned(&gate).await.expect_err("the next connection is checked anew");
        assert!(text.contains("loopback"), "{text}");
    }

    #[tokio::test]
    async fn h7_name_with_one_private_address_is_rejected() {
        for answer in [
            &["8.8.8.8", "10.0.0.1"],
            &["10.0.0.1", "8.8.8.8"],
            &["2606:4700::1", "::ffff:8.8.8.8"],
        ] {
            let gate = Gate::new(Rules::STRICT, Rebinding::new(&[answer]));
            assert!(pinned(&gate).await.is_err(), "{answer:?}");
        }
        let nothing = Gate::new(Rules::STRICT, Rebinding::new(&[&[]]));
        assert!(pinned(&nothing).await.is_err());
    }

    #[tokio::test]
    async fn h7_client_connects_only_to_checked_addresses() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url =
            format!("http://rebind.example:{}/", listener.local_addr().expect("bound").port());
        let knocks = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&knocks);
        tokio::spawn(async move {
            // Counts connections and closes them.
            while let Ok(connection) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                drop(connection);
            }
        });
        for (any_address, expected) in [(false, 0), (true, 1)] {
            let lookup = Rebinding::new(&[&["127.0.0.1"]]);
            let gate = Gate::new(Rules { any_way: true, any_address }, lookup.clone());
            let client = super::super::http::client(gate).expect("a client");
            client.get(&url).send().await.expect_err("refused, or hung up on");
            assert_eq!(lookup.asked(), 1);
            assert_eq!(knocks.load(Ordering::SeqCst), expected, "any_address: {any_address}");
        }
    }
}
