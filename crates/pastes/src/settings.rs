//! What an operator can set. Every option has a default that is safe on the open internet.

use std::time::Duration;

use crate::code::Bearer;
use crate::error::StartError;

const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How the service behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What links begin with, without a slash at the end.
    /// Default: `http://127.0.0.1:8080`.
    pub base_url: String,
    /// How long a paste lives when its author does not say. Default: 30 days.
    pub default_expiry: Duration,
    /// The longest life that an author may ask for. There is no "for ever". Default: 365 days.
    pub max_expiry: Duration,
    /// The largest paste. Default: 1 MiB.
    pub max_size: usize,
    /// The length of codes. Shorter is nicer to type and easier to guess: 22 carry 131 bits, 10
    /// carry 59, 6 carry 35. Default: 22.
    pub code_length: usize,
    /// Serves a paste from the bytes in Postgres while its upload goes on, instead of answering 503.
    /// Default: off.
    pub serve_staged: bool,
    /// Uploads right after the commit, in the process that answered; the job is then only the safety
    /// net. Default: on.
    pub direct_upload: bool,
    /// What readers of a paste whose upload goes on are told to wait. Default: 30 s.
    pub retry_after: Duration,
    /// The most bytes that may wait for their upload; beyond it creates are answered with 503 rather
    /// than filling the database. Default: 1 GiB.
    pub staging_quota: u64,
    /// Memory for content and pages that were read lately. Default: 64 MiB.
    pub cache_bytes: u64,
    /// How long an answer may be repeated without asking the database again. It bounds how long a
    /// deleted paste can still be seen. At most a second. Default: 500 ms.
    pub recheck: Duration,
    /// How long a deleted paste leaves its code taken, as a mark for audits. Default: 7 days.
    pub tombstones: Duration,
    pub limits: Limits,
    /// Who shows it may see reports, take pastes down and ban content. Default: nobody.
    pub operator_token: Option<Bearer>,
    pub expiry: Expiry,
}

/// How much one client may ask for.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Pastes a second from one address; 0: no limit. Default: 10.
    pub creates_per_second: u32,
    /// Default: 50.
    pub create_burst: u32,
    /// Reads a second from one address; 0: no limit. Default: 60.
    pub reads_per_second: u32,
    /// Default: 200.
    pub read_burst: u32,
    /// How many proxies of yours stand in front. Each adds an address to X-Forwarded-For; with 0 the
    /// header is ignored, because anybody can write it. Default: 0.
    pub trusted_proxies: usize,
}

/// How expired pastes are deleted.
#[derive(Clone, Debug)]
pub struct Expiry {
    /// Default: every night from midnight, UTC.
    pub when: When,
    /// What keeps workers from looking for the same rows at the same moment. Safety never depends on
    /// it. Default: advisory.
    pub gate: GateKind,
    /// Rows that one worker takes at a time. Default: 1000.
    pub batch: usize,
    /// Loops in one worker process. Default: 1.
    pub loops: usize,
    /// A paste that has been DELETION_IN_PROGRESS for this long goes back. Default: 2 h.
    pub watchdog_after: Duration,
}

/// When the sweep runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum When {
    /// From this time of day on, such as `00:00`, in a zone such as `Europe/Madrid`.
    Nightly { at: String, zone: String },
    /// All the time, looking again after a pause.
    Continuous { every: Duration },
}

/// Which gate stands before the claim.
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
            cache_bytes: 64 * 1024 * 1024,
            recheck: Duration::from_millis(500),
            tombstones: 7 * DAY,
            limits: Limits::default(),
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
            batch: 1000,
            loops: 1,
            watchdog_after: 2 * HOUR,
        }
    }
}

/// The shortest life of a paste.
pub(crate) const LEAST_EXPIRY: Duration = Duration::from_secs(1);

impl Settings {
    /// How long an upload job leaves the direct upload alone.
    pub(crate) fn head_start(&self) -> Duration {
        if self.direct_upload { Duration::from_secs(2) } else { Duration::ZERO }
    }

    /// Finds out whether the settings fit together, before anything starts.
    pub fn check(&self) -> Result<(), StartError> {
        let bad = |text: &str| Err(StartError::Settings(text.to_owned()));
        let url = url::Url::parse(&self.base_url);
        if !url.is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.host().is_some()) {
            return Err(StartError::Settings(format!(
                "base URL {:?} is not one; write it as https://paste.example.org",
                self.base_url
            )));
        }
        if self.default_expiry < LEAST_EXPIRY || self.default_expiry > self.max_expiry {
            return bad("the default expiry must lie between 1 second and the maximum expiry");
        }
        if self.max_expiry > 3660 * DAY {
            return bad("the maximum expiry is at most ten years");
        }
        if self.max_size == 0 || self.max_size > 64 * 1024 * 1024 {
            return bad("the size limit must be between 1 byte and 64 MiB");
        }
        if !(6..=crate::code::LONGEST_CODE).contains(&self.code_length) {
            return bad("codes have between 6 and 32 characters");
        }
        if self.recheck > Duration::from_secs(1) {
            return bad(
                "recheck is at most a second: a deleted paste must be gone within that time",
            );
        }
        if self.expiry.batch == 0 || self.expiry.batch > 10_000 {
            return bad("a batch of the expiry sweep has between 1 and 10000 rows");
        }
        Ok(())
    }
}
