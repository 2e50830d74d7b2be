//! The servers that one address names, and the first of them that accepts writes.
//!
//! # Invariants
//! - Each attempt to connect resolves every name again and tries every host, beginning with the host
//!   that worked last.
//! - Each host has its own time limit, from the first packet to the end of the login: a server that
//!   accepts the connection and then hangs does not keep the next host from being tried.
//! - A server that accepts no writes counts as unreachable.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio_postgres::config::{Host, TargetSessionAttrs};
use tokio_postgres::{Client, Config};

use super::driver::{Driver, Tls};
use crate::error::ConnectError;

/// A name lookup and a login need this much, however many hosts share the limit.
const LEAST: Duration = Duration::from_secs(2);

/// One configuration per host.
pub(super) struct Hosts {
    each: Vec<Config>,
    /// The host that worked last.
    last: AtomicUsize,
    limit: Duration,
}

impl Hosts {
    /// `all`: how long all hosts together may take.
    pub(super) fn new(config: &Config, all: Duration) -> Self {
        let mut each = split(config);
        let share = all / u32::try_from(each.len()).unwrap_or(u32::MAX);
        let limit = share.max(LEAST.min(all));
        for host in &mut each {
            host.connect_timeout(limit);
        }
        Self { each, last: AtomicUsize::new(0), limit }
    }

    /// Connects to the first host that accepts sessions of the wanted kind.
    pub(super) async fn connect(&self, tls: &Tls) -> Result<(Client, Driver), ConnectError> {
        let first = self.last.load(Ordering::Relaxed);
        let mut failed = None;
        for turn in 0..self.each.len() {
            let index = (first + turn) % self.each.len();
            let connecting = Driver::connect(&self.each[index], tls);
            let error = match tokio::time::timeout(self.limit, connecting).await {
                Ok(Ok(connected)) => {
                    self.last.store(index, Ordering::Relaxed);
                    return Ok(connected);
                }
                Ok(Err(error)) if accepts_no_writes(&error) => ConnectError::Replica,
                Ok(Err(error)) => ConnectError::Unreachable(error),
                Err(_) => ConnectError::TimedOut(self.limit),
            };
            // A standby among the hosts is expected; report why the others were not reached.
            if failed.is_none() || !matches!(error, ConnectError::Replica) {
                failed = Some(error);
            }
        }
        Err(failed.unwrap_or_else(|| ConnectError::BadUrl("it names no host".to_owned())))
    }
}

/// Returns true for the error of a session that accepts no writes. The driver creates it without an OS
/// error code, which distinguishes it from a permission error of the operating system.
fn accepts_no_writes(error: &tokio_postgres::Error) -> bool {
    use std::error::Error as _;
    error.source().and_then(|source| source.downcast_ref::<std::io::Error>()).is_some_and(|io| {
        io.kind() == std::io::ErrorKind::PermissionDenied && io.raw_os_error().is_none()
    })
}

/// A URL may list hosts in its query, as in libpq: `?host=/run/a,/run/b`. The driver needs one `host`
/// per entry.
pub(super) fn spell_out(address: &str) -> String {
    let Some((base, query)) = address.split_once('?').filter(|_| address.contains("://")) else {
        return address.to_owned();
    };
    let parts = query.split('&').map(|part| match part.strip_prefix("host=") {
        Some(hosts) => {
            let each: Vec<String> = hosts.split(',').map(|host| format!("host={host}")).collect();
            each.join("&")
        }
        None => part.to_owned(),
    });
    format!("{base}?{}", parts.collect::<Vec<_>>().join("&"))
}

/// Returns one configuration per host. If the numbers of hosts, addresses and ports do not match, it
/// returns the configuration unchanged: the driver explains what is wrong.
fn split(config: &Config) -> Vec<Config> {
    let (hosts, addresses, ports) =
        (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
    let count = hosts.len().max(addresses.len());
    let fits = |length: usize| length <= 1 || length == count;
    let paired = hosts.is_empty() || addresses.is_empty() || hosts.len() == addresses.len();
    if count <= 1 || !paired || !fits(ports.len()) {
        return vec![config.clone()];
    }
    let one = |index: usize| {
        let mut one = without_hosts(config);
        match hosts.get(index) {
            Some(Host::Tcp(name)) => {
                one.host(name);
            }
            #[cfg(unix)]
            Some(Host::Unix(path)) => {
                one.host_path(path);
            }
            None => {}
        }
        if let Some(address) = addresses.get(index) {
            one.hostaddr(*address);
        }
        if let Some(port) = ports.get(index).or(ports.first()) {
            one.port(*port);
        }
        one
    };
    (0..count).map(one).collect()
}

fn without_hosts(config: &Config) -> Config {
    let mut bare = Config::new();
    if let Some(user) = config.get_user() {
        bare.user(user);
    }
    if let Some(password) = config.get_password() {
        bare.password(password);
    }
    if let Some(name) = config.get_dbname() {
        bare.dbname(name);
    }
    if let Some(options) = config.get_options() {
        bare.options(options);
    }
    if let Some(name) = config.get_application_name() {
        bare.application_name(name);
    }
    if let Some(limit) = config.get_tcp_user_timeout() {
        bare.tcp_user_timeout(*limit);
    }
    if let Some(interval) = config.get_keepalives_interval() {
        bare.keepalives_interval(interval);
    }
    if let Some(retries) = config.get_keepalives_retries() {
        bare.keepalives_retries(retries);
    }
    bare.keepalives(config.get_keepalives())
        .keepalives_idle(config.get_keepalives_idle())
        .ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .channel_binding(config.get_channel_binding())
        .load_balance_hosts(config.get_load_balance_hosts())
        .target_session_attrs(config.get_target_session_attrs());
    bare
}

/// Rejects an address that asks for standbys; requires a server that accepts writes otherwise.
pub(super) fn ask_for_writes(config: &mut Config) -> Result<(), ConnectError> {
    if config.get_target_session_attrs() == TargetSessionAttrs::ReadOnly {
        return Err(ConnectError::BadUrl(
            "target_session_attrs is read-only, and the engine writes; leave it out".to_owned(),
        ));
    }
    config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::CONNECT_LIMIT;

    fn config(url: &str) -> Config {
        url.parse().expect("a URL")
    }

    #[test]
    fn each_host_keeps_its_port_and_everything_else() {
        let whole = config(
            "postgres://me:secret@one:1,two:2/db?application_name=app&options=-cjit%3Doff\
             &sslmode=require&target_session_attrs=read-write&channel_binding=require",
        );
        let each = split(&whole);
        assert_eq!(each.len(), 2);
        for (single, (name, port)) in each.iter().zip([("one", 1), ("two", 2)]) {
            let mut expected = config(&format!(
                "postgres://me:secret@{name}:{port}/db?application_name=app&options=-cjit%3Doff\
                 &sslmode=require&target_session_attrs=read-write&channel_binding=require"
            ));
            expected.connect_timeout(CONNECT_LIMIT);
            let mut single = single.clone();
            single.connect_timeout(CONNECT_LIMIT);
            assert_eq!(single, expected);
        }
    }

    #[test]
    fn hosts_that_share_one_port_get_it_each() {
        let url = spell_out("postgresql:///db?host=/run/one,/run/two&port=6543&user=me");
        let each = split(&config(&url));
        assert_eq!(each.iter().map(|one| one.get_ports()[0]).collect::<Vec<_>>(), [6543, 6543]);
        let dir = |one: &Config| format!("{:?}", one.get_hosts());
        assert!(dir(&each[0]).contains("/run/one") && dir(&each[1]).contains("/run/two"));
    }

    #[test]
    fn hosts_and_ports_that_do_not_fit_together_are_left_to_the_driver() {
        assert_eq!(split(&config("host=a,b,c port=1,2 user=me")).len(), 1);
    }

    #[test]
    fn hosts_share_the_connect_limit_down_to_the_time_of_a_login() {
        let hosts = |names: &str, all: Duration| {
            Hosts::new(&config(&format!("host={names} user=me")), all).limit
        };
        assert_eq!(hosts("a", CONNECT_LIMIT), CONNECT_LIMIT);
        assert_eq!(hosts("a,b", CONNECT_LIMIT), CONNECT_LIMIT / 2);
        assert_eq!(hosts("a,b,c,d,e,f,g,h", CONNECT_LIMIT), LEAST);
        assert_eq!(hosts("a,b", LEAST / 4), LEAST / 4);
    }

    #[test]
    fn b13_address_that_asks_for_a_standby_is_refused() {
        let mut wanted = config("postgres://me@a/db?target_session_attrs=read-only");
        let error = ask_for_writes(&mut wanted).expect_err("refused").to_string();
        assert!(error.contains("target_session_attrs"), "{error}");
    }
}
