//! A proxy that understands PostgreSQL's protocol and breaks connections at chosen points.
//!
//! ```no_run
//! # async fn test(database: leasehold_testing::TestDatabase) -> Result<(), Box<dyn std::error::Error>> {
//! use leasehold_testing::proxy::{FaultProxy, Rule};
//! let proxy = FaultProxy::before(&database.direct_config())?;
//! let lost = proxy.add(Rule::drop_reply_to("leasehold.complete"));
//! // … let the code under test use proxy.config() …
//! proxy.wait_fired(lost).await?; // the server has done it, and the client will never know
//! # Ok(()) }
//! ```
//!
//! # Invariants
//! - A statement counts when it is *executed*: by a simple query, or by Execute of a portal whose
//!   statement was parsed before, perhaps long ago and under a name.
//! - "Drop the reply" means that the server has finished and committed (it sent ReadyForQuery), and
//!   that the client's connection ends before it has seen any of the reply.
//! - The proxy has its own thread and clock: code under test may block its runtime, or pause its
//!   clock.
//! - It holds a few kilobytes per connection, regardless of the traffic.
//!
//! # What can go wrong
//! - TLS: the proxy refuses it, and a client that insists cannot connect.
//! - Several statements before one Sync share one ReadyForQuery: dropping the reply to one of them
//!   drops the replies to all of them.

mod client_side;
mod connection;
mod lane;
mod rule;
mod rules;
mod server_side;
mod session;
mod upstream;
mod wire;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_postgres::Config;

pub use rule::Rule;
pub use rules::{NotFired, RuleId};

use rules::Rules;
use upstream::Upstream;

/// How long [`FaultProxy::wait_fired`] waits. Only a failing test reaches it.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A running proxy. Dropping it cuts all its connections.
pub struct FaultProxy {
    address: SocketAddr,
    template: Config,
    rules: Arc<Rules>,
    /// Dropping this ends the thread.
    running: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl FaultProxy {
    /// Listens on a free port of 127.0.0.1 and forwards to the first host of `server`.
    pub fn before(server: &Config) -> io::Result<Self> {
        let upstream = Upstream::first_of(server)?;
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let rules = Arc::new(Rules::default());
        let (running, stop) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let shared = rules.clone();
        let thread = thread::Builder::new().name("fault-proxy".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = connection::accept(listener, upstream, shared) => {}
                    _ = stop => {}
                }
            });
        })?;
        let template = through(server, address);
        Ok(Self { address, template, rules, running: Some(running), thread: Some(thread) })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a config through the proxy, with the database, user and password of the server's
    /// config.
    pub fn config(&self) -> Config {
        self.template.clone()
    }

    /// Like [`config`](Self::config), as a URL.
    pub fn url(&self) -> String {
        let user = self.template.get_user().unwrap_or("postgres");
        let password = self.template.get_password().map(String::from_utf8_lossy);
        let password = password.map(|password| format!(":{password}")).unwrap_or_default();
        let database = self.template.get_dbname().unwrap_or(user);
        format!("postgresql://{user}{password}@{}/{database}?sslmode=disable", self.address)
    }

    /// Puts a rule into force.
    pub fn add(&self, rule: Rule) -> RuleId {
        self.rules.add(rule)
    }

    /// Ends a rule. What it holds back (delay, throttle, blackhole) flows again.
    pub fn remove(&self, rule: RuleId) {
        self.rules.remove(rule);
    }

    /// Ends every rule.
    pub fn heal(&self) {
        self.rules.clear();
    }

    /// Ends every connection with a reset (RST). Returns how many there were.
    pub fn reset_all(&self) -> usize {
        self.rules.reset_all()
    }

    /// Returns how many clients are connected.
    pub fn connections(&self) -> usize {
        self.rules.connections()
    }

    /// Returns how often this rule has fired, even after it was removed.
    pub fn fired(&self, rule: RuleId) -> u64 {
        self.rules.fired(rule)
    }

    /// Waits until this rule has fired once.
    pub async fn wait_fired(&self, rule: RuleId) -> Result<(), NotFired> {
        self.wait_fired_times(rule, 1).await
    }

    /// Waits until this rule has fired `times` times.
    pub async fn wait_fired_times(&self, rule: RuleId, times: u64) -> Result<(), NotFired> {
        self.rules.wait_fired(rule, times, TIMEOUT).await
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.running = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn through(server: &Config, address: SocketAddr) -> Config {
    let mut config = Config::new();
    config.host(address.ip().to_string()).port(address.port());
    config.connect_timeout(Duration::from_secs(10));
    if let Some(user) = server.get_user() {
        config.user(user);
    }
    if let Some(password) = server.get_password() {
        config.password(password);
    }
    if let Some(database) = server.get_dbname() {
        config.dbname(database);
    }
    if let Some(options) = server.get_options() {
        config.options(options);
    }
    config
}
