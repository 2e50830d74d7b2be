//! A table of URLs, and a resolver whose answers change.

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
    ("https://192.0.0.192/", "set aside"),
    ("https://168.63.129.16/", "metadata"),
    ("https://[fd00:ec2::254]/", "ULA"),
    ("https://metadata.google.internal/", "inside"),
    // IPv4 inside IPv6.
    ("https://[::ffff:127.0.0.1]/", "clothes"),
    ("https://[::ffff:8.8.8.8]/", "clothes"),
    ("https://[::ffff:a00:1]/", "clothes"),
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
    ("https://2130706433/", "roundabout"),
    ("https://017700000001/", "roundabout"),
    ("https://0x7f000001/", "roundabout"),
    ("https://0x7f.0.0.1/", "roundabout"),
    ("https://0177.0.0.1/", "roundabout"),
    ("https://127.1/", "roundabout"),
    ("https://127.0.0.1./", "roundabout"),
    ("https://010.0.0.1/", "roundabout"),
    ("https://134744072/", "roundabout"),
    ("https://%31%32%37.0.0.1/", "roundabout"),
    ("https://ex%61mple.com/", "roundabout"),
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
    ("https:example.com", "roundabout"),
    ("https:/example.com/", "roundabout"),
    ("https:///example.com/", "roundabout"),
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
fn h7_urls_that_lead_inside_are_refused_with_the_reason() {
    assert!(REFUSED.len() >= 60);
    for (url, reason) in REFUSED {
        let text = Rules::STRICT.check_url(url).expect_err(url);
        assert!(text.contains(reason), "{url:?}: {text}");
    }
    for url in ALLOWED {
        assert!(Rules::STRICT.check_url(url).is_ok(), "{url}: {:?}", Rules::STRICT.check_url(url));
    }
}

#[test]
fn h7_the_development_switch_lifts_scheme_port_and_address_but_not_the_writing() {
    let rules = Rules::PRIVATE_NETWORK;
    for url in
        ["http://127.0.0.1:3000/", "http://localhost:80/", "https://[::1]:9/", "http://10.1.2.3/"]
    {
        assert!(rules.check_url(url).is_ok(), "{url}");
    }
    for url in
        ["http://u:p@localhost/", "http://2130706433/", "http://127.1/", "file:///etc/passwd"]
    {
        assert!(rules.check_url(url).is_err(), "{url}");
    }
}

#[test]
fn h12_a_refused_url_is_not_repeated() {
    let text =
        Rules::STRICT.check_url("https://u:hunter2@example.com/?token=hunter2").expect_err("user");
    assert!(!text.contains("hunter2"), "{text}");
}

/// Returns one answer after the other, the last one for ever, and counts the lookups.
struct Rebinding {
    answers: Mutex<Vec<Vec<IpAddr>>>,
    asked: AtomicUsize,
}

impl Rebinding {
    fn new(answers: &[&[&str]]) -> Arc<Self> {
        let read =
            |texts: &&[&str]| texts.iter().map(|text| text.parse().expect("an address")).collect();
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
    fn lookup(&self, _host: &str) -> Answer {
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
async fn h7_a_name_that_changes_its_mind_is_asked_once_and_held_to_its_answer() {
    let lookup = Rebinding::new(&[&["8.8.8.8", "2606:4700::1"], &["127.0.0.1"]]);
    let gate = Gate::new(Rules::STRICT, lookup.clone());
    let first = pinned(&gate).await.expect("public");
    assert_eq!(first, ["8.8.8.8".parse::<IpAddr>().unwrap(), "2606:4700::1".parse().unwrap()]);
    assert_eq!(lookup.asked(), 1, "a second lookup could have another answer");
    let text = pinned(&gate).await.expect_err("the next connection is checked anew");
    assert!(text.contains("loopback"), "{text}");
}

#[tokio::test]
async fn h7_one_private_address_among_public_ones_is_enough_to_refuse() {
    for answer in
        [&["8.8.8.8", "10.0.0.1"], &["10.0.0.1", "8.8.8.8"], &["2606:4700::1", "::ffff:8.8.8.8"]]
    {
        let gate = Gate::new(Rules::STRICT, Rebinding::new(&[answer]));
        assert!(pinned(&gate).await.is_err(), "{answer:?}");
    }
    let nothing = Gate::new(Rules::STRICT, Rebinding::new(&[&[]]));
    assert!(pinned(&nothing).await.is_err());
}

#[tokio::test]
async fn h7_the_client_connects_only_to_what_the_gate_lets_through() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://rebind.example:{}/", listener.local_addr().expect("bound").port());
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
