//! The declaration of a mirror: the user's table, its key and version, the SQL of its documents, and
//! the store.

use std::sync::Arc;
use std::time::Duration;

use super::prepare::MirrorError;
use crate::job::check_queue_name;
use crate::mirror::sets::{Target, Targets};
use crate::mirror::sync::Shared;

/// The declared store.
#[derive(Clone)]
pub(crate) enum Store {
    One(Arc<dyn Target>),
    Many(Arc<dyn Targets>),
}

/// A mirror of a table of the user.
///
/// ```
/// use leasehold::mirror::{Mirror, Target};
///
/// # fn declare(store: std::sync::Arc<dyn Target>) -> Mirror {
/// Mirror::new("books.index", "books")
///     .key("isbn")
///     .document(
///         "select b.isbn, b.version, jsonb_build_object('title', b.title)
///            from books b where b.isbn = any($1)",
///     )
///     .target(store)
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a mirror does nothing until a worker has it"]
pub struct Mirror {
    pub(crate) name: String,
    pub(crate) table: String,
    pub(crate) key: String,
    pub(crate) version: String,
    /// The program named the version column itself, so that an existing column may be used.
    pub(crate) version_is_named: bool,
    pub(crate) document: String,
    pub(crate) job: String,
    pub(crate) field: String,
    pub(crate) queue: String,
    pub(crate) verify_after: Duration,
    pub(crate) claim_size: usize,
    pub(crate) limit: Duration,
    pub(crate) direct: usize,
    pub(crate) direct_every: Duration,
    pub(crate) check_every: Option<Duration>,
    pub(crate) range: usize,
    pub(crate) recheck_after: Duration,
    pub(crate) tombstones: Duration,
    pub(crate) store: Option<Store>,
    /// What all tasks of this process that work on the mirror know about the store.
    pub(crate) shared: Arc<Shared>,
}

impl Mirror {
    /// Creates a mirror of `table` or `schema.table`. Its name has the form of a queue name.
    pub fn new(name: impl Into<String>, table: impl Into<String>) -> Self {
        let name = name.into();
        Self {
            table: table.into(),
            key: "id".to_owned(),
            version: "version".to_owned(),
            version_is_named: false,
            document: String::new(),
            job: format!("mirror.{name}"),
            field: "key".to_owned(),
            queue: name.clone(),
            verify_after: Duration::from_secs(60),
            claim_size: 2500,
            limit: Duration::from_secs(10),
            direct: 1024,
            direct_every: Duration::ZERO,
            check_every: Some(Duration::from_secs(2)),
            range: 10_000,
            recheck_after: Duration::from_secs(1),
            tombstones: Duration::from_secs(24 * 60 * 60),
            store: None,
            shared: Arc::default(),
            name,
        }
    }

    /// Returns the name of the mirror.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name of the jobs that its changes enqueue.
    pub fn job_name(&self) -> &str {
        &self.job
    }

    /// Returns the queue of its jobs.
    pub fn queue_name(&self) -> &str {
        &self.queue
    }

    pub(crate) fn order_name(&self) -> String {
        format!("mirror.{}.order", self.name)
    }

    /// Sets the key column, which identifies a row: unique, not null, and never changed; of type text,
    /// uuid or integer. The store sees text. Integers get leading zeros, so that their order as text is
    /// their order as numbers; negative ones are refused. Default: `id`.
    pub fn key(mut self, column: impl Into<String>) -> Self {
        self.key = column.into();
        self
    }

    /// Sets the `bigint not null` column that grows with every change. The trigger that
    /// [`Mirror::install`] creates raises it under the row lock, so that versions grow in the order of
    /// commits. An existing column is used only if it is named here, because the trigger overwrites its
    /// values. Default: `version`, which must not exist yet.
    pub fn version(mut self, column: impl Into<String>) -> Self {
        self.version = column.into();
        self.version_is_named = true;
        self
    }

    /// Sets the SQL that returns the documents. `$1` is an array of keys as text; the result has one
    /// row per key: the key, the version, the document as `jsonb`. It may join other tables. A key
    /// without a row is deleted from the store. The text is used as it is, without quoting, so never
    /// build it from user input.
    pub fn document(mut self, sql: impl Into<String>) -> Self {
        self.document = sql.into();
        self
    }

    /// Sets the name of the jobs, and the field of their kwargs that holds the key. Rows that the
    /// program inserts into `leasehold.job` under this name are handled as well. Default:
    /// `mirror.<name>` and `key`.
    pub fn job(mut self, name: impl Into<String>, field: impl Into<String>) -> Self {
        self.job = name.into();
        self.field = field.into();
        self
    }

    /// Sets the queue of the jobs. Default: the name of the mirror.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = queue.into();
        self
    }

    /// Sets how long after a change its job is due. The direct path writes the change at once; the job
    /// verifies it. A shorter time shows changes sooner where there is no direct path, but more jobs
    /// run before the direct path has written. Default: 60 s.
    pub fn verify_after(mut self, time: Duration) -> Self {
        self.verify_after = time;
        self
    }

    /// Sets the most jobs of one pass. A slow store gets fewer per call. Default: 2500.
    pub fn claim_size(mut self, jobs: usize) -> Self {
        self.claim_size = jobs;
        self
    }

    /// Sets the timeout of one call to the store. Default: 10 s.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Sets how many keys may wait for the direct path. Keys that do not fit are left to the jobs. 0:
    /// no direct path. Default: 1024.
    pub fn direct(mut self, room: usize) -> Self {
        self.direct = room;
        self
    }

    /// Sets the shortest interval between two writes of the direct path. A change after a quiet time is
    /// written at once; changes within the next interval are written together. A longer interval spares
    /// a store in which every write is expensive, but shows changes under load later. Default: 0, as
    /// fast as the store accepts writes.
    pub fn direct_every(mut self, pause: Duration) -> Self {
        self.direct_every = pause;
        self
    }

    /// Sets the pause between two ranges of the check. A shorter pause finds drift sooner, and reads
    /// more from the database. Default: 2 s.
    pub fn check_every(mut self, pause: Duration) -> Self {
        self.check_every = Some(pause);
        self
    }

    /// Runs no check in this worker; other workers run it.
    pub fn without_check(mut self) -> Self {
        self.check_every = None;
        self
    }

    /// Sets the most rows of one range of the check. Default: 10 000.
    pub fn range(mut self, rows: usize) -> Self {
        self.range = rows;
        self
    }

    /// Sets the time after which rows that differ are compared again, before they count as different: a
    /// write may be under way. Default: 1 s.
    pub fn recheck_after(mut self, time: Duration) -> Self {
        self.recheck_after = time;
        self
    }

    /// Sets how long deletions are remembered, here and in the store. It must be longer than any write
    /// can be under way. Default: 24 h.
    pub fn tombstones(mut self, time: Duration) -> Self {
        self.tombstones = time;
        self
    }

    /// Sets the store.
    pub fn target(mut self, target: Arc<dyn Target>) -> Self {
        self.store = Some(Store::One(target));
        self
    }

    /// Sets a store that can hold a second set of documents, so that the mirror can be rebuilt.
    pub fn targets(mut self, targets: Arc<dyn Targets>) -> Self {
        self.store = Some(Store::Many(targets));
        self
    }

    /// Finds errors in the declaration itself, before it is compared with the table.
    pub(super) fn check(&self) -> Result<(), MirrorError> {
        let wrong =
            |what: &str| Err(MirrorError::Declaration(format!("mirror {:?}: {what}", self.name)));
        if check_queue_name(&self.name).is_err() || check_queue_name(&self.queue).is_err() {
            return wrong(
                "its name or its queue is not allowed: use 1 to 64 of a-z, 0-9, dot, dash and underscore",
            );
        }
        for (fits, what) in [
            (!self.table.is_empty(), "it has no table; use Mirror::new(name, \"schema.table\")"),
            (!self.key.is_empty(), "it has no key; add .key(\"id\")"),
            (!self.version.is_empty(), "it has no version; add .version(\"version\")"),
            (self.key != self.version, "its key and its version are the same column"),
            (
                !self.document.trim().is_empty(),
                "it has no document; add .document(\"select key, version, jsonb … where key = any($1)\")",
            ),
            (
                (1..=200).contains(&self.job.len()) && !self.field.is_empty(),
                "its job needs a name of 1 to 200 bytes and a field; use .job(\"index\", \"key\")",
            ),
            (
                !["before", "changed", "force", "gone"].contains(&&*self.field),
                "its field is before, changed, force or gone, which its jobs use themselves; choose another",
            ),
            (self.job != self.order_name(), "its job has the name of its orders; choose another"),
        ] {
            if !fits {
                return wrong(what);
            }
        }
        for (fits, what) in [
            (
                (10..=50_000).contains(&self.claim_size),
                format!("claim_size is {}; it must be between 10 and 50000", self.claim_size),
            ),
            (
                self.direct <= 1_000_000,
                format!("direct is {}; it must be at most 1000000", self.direct),
            ),
            (
                self.direct_every <= Duration::from_secs(60),
                format!("direct_every is {:?}; it must be at most 60 s", self.direct_every),
            ),
            (
                (10..=100_000).contains(&self.range),
                format!("range is {}; it must be between 10 and 100000", self.range),
            ),
            (!self.limit.is_zero(), "limit is 0; it must be longer".to_owned()),
            (
                self.tombstones >= self.limit.saturating_mul(10),
                format!(
                    "tombstones is {:?}; it must be at least ten times the limit of a call, which is {:?}",
                    self.tombstones, self.limit
                ),
            ),
        ] {
            if !fits {
                return wrong(&what);
            }
        }
        Ok(())
    }

    /// Returns the store, or an error if none was declared.
    pub(crate) fn store(&self) -> Result<&Store, MirrorError> {
        self.store.as_ref().ok_or_else(|| {
            MirrorError::Declaration(format!(
                "mirror {:?}: it has no store; add .target(…) or .targets(…)",
                self.name
            ))
        })
    }
}
