//! What an operator can set. Every option has a default that is safe on the open internet.

use std::time::Duration;

use leasehold::duration;

use crate::code::Bearer;
use crate::error::StartError;

const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How the service behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The prefix of links: a scheme and a host, without a path. Default: `http://127.0.0.1:8080`.
    pub base_url: String,
    /// The lifetime of a paste whose author does not set one. Default: 30 days.
    pub default_expiry: Duration,
    /// The longest lifetime that an author may set. There is no "for ever". Default: 365 days.
    pub max_expiry: Duration,
    /// The largest paste. Default: 1 MiB.
    pub max_size: usize,
    /// The length of codes. Shorter ones are easier to type and to guess: 22 characters carry 131 bits,
    /// 10 carry 59, 6 carry 35. Default: 22.
    pub code_length: usize,
    /// Serves a paste from the bytes in Postgres while its upload is in progress, instead of responding
    /// with 503. Default: off.
    pub serve_staged: bool,
    /// Uploads right after the commit, in the process that created the paste; the job is then only the
    /// safety net. Default: on.
    pub direct_upload: bool,
    /// The Retry-After for readers of a paste whose upload is in progress. Default: 30 s.
    pub retry_after: Duration,
    /// The most bytes that may wait for their upload; beyond it the service responds to creates with
    /// 503 rather than fill the database. Default: 1 GiB.
    pub staging_quota: u64,
    /// The most bytes that all content together may have; beyond it the service responds to creates
    /// with 507. Each process counts them twice per minute, and in between adds only what it stores
    /// itself. `None`: as much as the store holds. Default: `None`.
    pub quota: Option<u64>,
    /// Memory for recently read content and pages. Default: 64 MiB.
    pub cache_bytes: u64,
    /// How long a lookup result may be reused without asking the database again. It bounds how long a
    /// deleted paste stays visible. At most one second. Default: 500 ms.
    pub recheck: Duration,
    /// How long the row of a deleted paste is kept, for audits. A random code is not reused meanwhile;
    /// a name that a user chose is free as soon as its paste has ended. Default: 7 days.
    pub tombstones: Duration,
    pub limits: Limits,
    /// The token that clients must send to create pastes; reading needs none. Default: none is needed.
    pub create_token: Option<Bearer>,
    /// The token with which an operator sees reports, takes pastes down and bans content. Default:
    /// none, and these addresses return 404.
    pub operator_token: Option<Bearer>,
    pub expiry: Expiry,
}

/// Rate limits per client.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Pastes per second from one address; 0: no limit. Default: 10.
    pub creates_per_second: u32,
    /// Default: 50.
    pub create_burst: u32,
    /// Reads per second from one address; 0: no limit. Default: 60.
    pub reads_per_second: u32,
    /// Default: 200.
    pub read_burst: u32,
    /// How many trusted proxies are in front of the service. Each adds an address to X-Forwarded-For;
    /// with 0 the header is ignored, because every client can write it. Behind a proxy, 0 makes all
    /// clients one: they share limits and idempotency keys. Default: 0.
    pub trusted_proxies: usize,
}

/// How expired pastes are deleted.
#[derive(Clone, Debug)]
pub struct Expiry {
    /// Default: every night from midnight, UTC.
    pub when: When,
    /// Spreads the claims of workers out, so that they do not look for the same rows at the same moment.
    /// Safety never depends on it.
    /// Default: advisory.
    pub gate: GateKind,
    /// How many rows one claim takes. Default: 1000.
    pub claim_size: usize,
    /// Loops in one worker process. Default: 1.
    pub loops: usize,
    /// The watchdog resets a paste that has been DELETION_IN_PROGRESS for this long. Default: 2 h.
    pub watchdog_after: Duration,
}

/// When the sweep runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum When {
    /// From this time of day on, such as `00:00`, in a zone such as `Europe/Madrid`.
    Nightly { at: String, zone: String },
    /// Continuously, with this pause after a pass that found nothing more.
    Continuous { every: Duration },
}

/// Which gate a worker passes before it claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GateKind {
    None,
    Advisory,
    /// The URL of a Redis server.
    Redis(String),
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            base_url: "http://127.0.0.1:8080".to_owned(),
            default_expiry: 30 * DAY,
            max_expiry: 365 * DAY,
            max_size: 1024 * 1024,
            code_length: 22,
            serve_staged: false,
            direct_upload: true,
            retry_after: Duration::from_secs(30),
            staging_quota: 1024 * 1024 * 1024,
            quota: None,
            cache_bytes: 64 * 1024 * 1024,
            recheck: Duration::from_millis(500),
            tombstones: 7 * DAY,
            limits: Limits::default(),
            create_token: None,
            operator_token: None,
            expiry: Expiry::default(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            creates_per_second: 10,
            create_burst: 50,
            reads_per_second: 60,
            read_burst: 200,
            trusted_proxies: 0,
        }
    }
}

impl Default for Expiry {
    fn default() -> Self {
        Self {
            when: When::Nightly { at: "00:00".to_owned(), zone: "UTC".to_owned() },
            gate: GateKind::Advisory,
            claim_size: 1000,
            loops: 1,
            watchdog_after: 2 * HOUR,
        }
    }
}

/// The shortest lifetime of a paste.
pub(crate) const LEAST_EXPIRY: Duration = Duration::from_secs(1);

impl Settings {
    /// How long an upload job waits for the direct upload.
    pub(crate) fn head_start(&self) -> Duration {
        if self.direct_upload { Duration::from_secs(2) } else { Duration::ZERO }
    }

    /// Checks that the settings are valid and consistent, before anything starts.
    pub fn check(&self) -> Result<(), StartError> {
        let bad = |text: String| Err(StartError::Settings(text));
        check_base_url(&self.base_url)?;
        if self.default_expiry < LEAST_EXPIRY || self.default_expiry > self.max_expiry {
            return bad(format!(
                "the default expiry is {}; it must be between 1 second and the maximum expiry, {}",
                duration::verbose(self.default_expiry),
                duration::verbose(self.max_expiry)
            ));
        }
        if self.max_expiry > 3660 * DAY {
            let most = duration::verbose(self.max_expiry);
            return bad(format!("the maximum expiry is {most}; it must be at most ten years"));
        }
        if self.max_size == 0 || self.max_size > 64 * 1024 * 1024 {
            let size = self.max_size;
            return bad(format!("the size limit is {size} bytes; it must be 1 byte to 64 MiB"));
        }
        if !(6..=crate::code::LONGEST_CODE).contains(&self.code_length) {
            let length = self.code_length;
            return bad(format!("codes have {length} characters; they must have 6 to 32"));
        }
        if self.recheck > Duration::from_secs(1) {
            return bad(format!(
                "recheck is {}; it must be at most 1 second: readers see a deleted paste until then",
                duration::verbose(self.recheck)
            ));
        }
        if self.expiry.claim_size == 0 || self.expiry.claim_size > 10_000 {
            let rows = self.expiry.claim_size;
            return bad(format!(
                "the claim size of the expiry sweep is {rows}; it must be between 1 and 10000 rows"
            ));
        }
        Ok(())
    }
}

/// Pages, forms and cookies are all at the root of their host, so links must be, too.
fn check_base_url(text: &str) -> Result<(), StartError> {
    let wrong = |why: &str| {
        let text = format!("base URL {text:?} {why}; write it as https://paste.example.org");
        Err(StartError::Settings(text))
    };
    match url::Url::parse(text) {
        Ok(url) if !matches!(url.scheme(), "http" | "https") || url.host().is_none() => {
            wrong("is not one")
        }
        Ok(url) if url.path() != "/" => {
            wrong("has a path, and the service has to be at the root of its host")
        }
        Ok(url) if url.query().is_some() || url.fragment().is_some() => wrong("has a query"),
        Ok(url) if !url.username().is_empty() || url.password().is_some() => {
            wrong("has a name or a password")
        }
        Ok(_) => Ok(()),
        Err(_) => wrong("is not one"),
    }
}
