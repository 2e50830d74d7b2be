//! An S3 server in this process, with faults on demand and a log of all requests.
//!
//! ```no_run
//! # async fn test() -> Result<(), Box<dyn std::error::Error>> {
//! use leasehold_testing::s3::{Op, Rule, S3Server};
//! let s3 = S3Server::start()?;
//! let lost = s3.add(Rule::on(Op::Put).key("blobs/").apply_then_drop());
//! // … let the code under test use s3.endpoint() …
//! s3.wait_fired(lost).await?; // the object is there, and the client will never know
//! assert_eq!(s3.keys().len(), 1);
//! # Ok(()) }
//! ```
//!
//! # Invariants
//! - It speaks S3 over HTTP on 127.0.0.1 and checks signatures. A client needs the real library, the
//!   endpoint and the keys, path-style addresses, and permission to use plain HTTP.
//! - It supports what a blob store needs: put (also "only if missing"), get (also a range), head,
//!   delete, delete of up to 1000 keys, list. It refuses everything else with 501, and logs it.
//! - The order of the log is the order in which the store was changed.
//! - The server has its own thread and clock: code under test may block its runtime, or pause its
//!   clock. Nothing waits for a time: a held request is held until the test releases it.
//! - Every buffer has a bound: 64 MiB per request, 512 connections, 256 held requests, 200,000 lines
//!   of log.
//!
//! # What can go wrong
//! - The client retries by itself: the code behind the client then never sees a rule that fires once.
//!   Give the client no retries, or the rule more [`times`](Rule::times).
//! - A client that cancels a held request does not cancel it: it is applied when the rule is
//!   removed, like a packet in transit. The log says [`Outcome::Late`].
//! - The process is killed: the directory with the bodies stays in the system's temporary directory.

mod bodies;
mod call;
mod damage;
mod full;
mod gateway;
mod log;
mod objects;
mod rule;
mod rules;
mod store;

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use tokio::sync::oneshot;

pub use call::Op;
pub use full::{FullS3Error, FullS3Server};
pub use log::{Entry, NotSeen, Outcome};
pub use objects::Object;
pub use rule::{On, Rule};
pub use rules::{NotFired, RuleId};

use crate::process;
use gateway::Gateway;
use log::Log;
use objects::{Attributes, Objects, Only};
use store::Store;

/// How long the waiting methods wait. Only a failing test reaches it.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A running server with one empty bucket. Dropping it ends it and deletes its objects.
pub struct S3Server {
    address: SocketAddr,
    dir: PathBuf,
    gateway: Arc<Gateway>,
    objects: Arc<Objects>,
    log: Arc<Log>,
    /// Dropping this ends the thread.
    running: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl S3Server {
    /// The one bucket.
    pub const BUCKET: &str = "leasehold";
    pub const REGION: &str = "us-east-1";
    pub const ACCESS_KEY: &str = "AKIALEASEHOLDTESTING";
    pub const SECRET_KEY: &str = "secret-of-the-tests";

    /// Listens on a free port of 127.0.0.1.
    pub fn start() -> io::Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let dir = process::short_temp_dir(None)?;
        let objects = Arc::new(Objects::in_dir(dir.clone()));
        let log = Arc::new(Log::default());
        let store = Store { bucket: Self::BUCKET, objects: objects.clone(), log: log.clone() };
        let mut service = S3ServiceBuilder::new(store);
        service.set_auth(SimpleAuth::from_single(Self::ACCESS_KEY, Self::SECRET_KEY));
        let gateway = Gateway::before(service.build(), log.clone());
        let (running, stop) = oneshot::channel();
        let shared = gateway.clone();
        let thread = thread::Builder::new().name("s3-server".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = shared.accept(listener) => {}
                    _ = stop => {}
                }
            });
        })?;
        Ok(Self {
            address,
            dir,
            gateway,
            objects,
            log,
            running: Some(running),
            thread: Some(thread),
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the endpoint, without the bucket.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    // ---- Faults ------------------------------------------------------------------------------

    /// Puts a rule into force.
    pub fn add(&self, rule: Rule) -> RuleId {
        self.gateway.rules.add(rule)
    }

    /// Ends a rule. Requests that it holds continue.
    pub fn remove(&self, rule: RuleId) {
        self.gateway.rules.remove(rule);
    }

    /// Ends every rule, and an outage.
    pub fn heal(&self) {
        self.gateway.rules.clear();
        self.come_back();
    }

    /// Cuts every connection, and each new one at once, until [`come_back`](Self::come_back). No
    /// request that is sent after this gets a response.
    pub fn go_down(&self) {
        self.gateway.down.send_replace(true);
    }

    /// Ends the outage.
    pub fn come_back(&self) {
        self.gateway.down.send_replace(false);
    }

    /// Returns how often this rule has fired, even after it was removed.
    pub fn fired(&self, rule: RuleId) -> u64 {
        self.gateway.rules.fired(rule)
    }

    /// Waits until this rule has fired once.
    pub async fn wait_fired(&self, rule: RuleId) -> Result<(), NotFired> {
        self.wait_fired_times(rule, 1).await
    }

    /// Waits until this rule has fired `times` times.
    pub async fn wait_fired_times(&self, rule: RuleId, times: u64) -> Result<(), NotFired> {
        self.gateway.rules.wait_fired(rule, times, TIMEOUT).await
    }

    /// Returns how many connections, or requests on open ones, found the server down.
    pub fn turned_away(&self) -> u64 {
        *self.gateway.turned_away.borrow()
    }

    /// Waits until `wanted` connections or requests have found the server down. False: they did not
    /// come.
    pub async fn wait_turned_away(&self, wanted: u64) -> bool {
        let mut turned_away = self.gateway.turned_away.subscribe();
        let enough = turned_away.wait_for(|count| *count >= wanted);
        tokio::time::timeout(TIMEOUT, enough).await.is_ok_and(|waited| waited.is_ok())
    }

    // ---- Log ---------------------------------------------------------------------------------

    /// Returns the log, the oldest line first.
    pub fn log(&self) -> Vec<Entry> {
        self.log.entries()
    }

    /// Clears the log, so that later reads and waits only see new requests.
    pub fn clear_log(&self) {
        self.log.clear();
    }

    /// Returns how many lines the log has had about this operation, also those that it has dropped.
    pub fn count(&self, op: Op) -> u64 {
        self.log.count(op)
    }

    /// Waits for a line about this operation.
    pub async fn wait_for(&self, op: Op) -> Result<Entry, NotSeen> {
        self.wait_for_key(op, "").await
    }

    /// Waits for a line about this operation on a key that contains `key`.
    pub async fn wait_for_key(&self, op: Op, key: &str) -> Result<Entry, NotSeen> {
        let mut found = self.log.wait_for(op, key, 1, TIMEOUT).await?;
        Ok(found.remove(0))
    }

    /// Waits for `times` lines about this operation.
    pub async fn wait_for_times(&self, op: Op, times: usize) -> Result<Vec<Entry>, NotSeen> {
        self.log.wait_for(op, "", times, TIMEOUT).await
    }

    // ---- Direct access to the objects --------------------------------------------------------

    /// Returns all objects, ordered by key. No rule hides one.
    pub fn objects(&self) -> Vec<Object> {
        self.objects.all()
    }

    /// Returns the keys of all objects, in order.
    pub fn keys(&self) -> Vec<String> {
        self.objects.all().into_iter().map(|object| object.key).collect()
    }

    /// Returns the bytes of an object.
    pub fn read_object(&self, key: &str) -> io::Result<Option<Bytes>> {
        Ok(self.objects.get(key)?.map(|(_, bytes)| bytes))
    }

    /// Stores an object without a request, a rule or a log line.
    pub fn put_object(&self, key: &str, bytes: &[u8]) -> io::Result<()> {
        self.objects.put(key, bytes, Attributes::default(), Only::Always).map(drop)
    }

    /// Deletes an object without a request, a rule or a log line. Returns false if there was none.
    pub fn remove_object(&self, key: &str) -> io::Result<bool> {
        self.objects.remove(key)
    }

    /// Makes an object older. Returns false if there is none.
    pub fn age_object(&self, key: &str, by: Duration) -> bool {
        self.objects.age(key, by)
    }

    /// Changes a byte of a stored object; size, time and ETag stay. Returns false if there is none.
    pub fn rot_object(&self, key: &str) -> io::Result<bool> {
        self.objects.rot(key)
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        self.running = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}
