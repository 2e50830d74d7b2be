//! What to mirror: a table of yours, its key and version, what a document looks like, and where it
//! goes.

use std::sync::Arc;
use std::time::Duration;

use super::desk::Shared;
use super::prepare::MirrorError;
use super::target::{Target, Targets};
use crate::job::check_queue_name;

/// Where documents go.
#[derive(Clone)]
pub(super) enum Store {
    One(Arc<dyn Target>),
    Many(Arc<dyn Targets>),
}

/// A mirror of a table of yours.
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
    pub(super) name: String,
    pub(super) table: String,
    pub(super) key: String,
    pub(super) version: String,
    pub(super) document: String,
    pub(super) job: String,
    pub(super) field: String,
    pub(super) queue: String,
    pub(super) verify_after: Duration,
    pub(super) batch: usize,
    pub(super) limit: Duration,
    pub(super) direct: usize,
    pub(super) direct_every: Duration,
    pub(super) check_every: Option<Duration>,
    pub(super) range: usize,
    pub(super) recheck_after: Duration,
    pub(super) tombstones: Duration,
    pub(super) store: Option<Store>,
    /// What everyone in this process who works on the mirror knows about the store.
    pub(super) shared: Arc<Shared>,
}

impl Mirror {
    /// A mirror of a name, which has the form of a queue's, of `table` or `schema.table`.
    pub fn new(name: impl Into<String>, table: impl Into<String>) -> Self {
        let name = name.into();
        Self {
            table: table.into(),
            key: "id".to_owned(),
            version: "version".to_owned(),
            document: String::new(),
            job: format!("mirror.{name}"),
            field: "key".to_owned(),
            queue: name.clone(),
            verify_after: Duration::from_secs(60),
            batch: 2500,
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

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of the jobs that its changes make.
    pub fn job_name(&self) -> &str {
        &self.job
    }

    /// The queue that its jobs go to.
    pub fn queue_name(&self) -> &str {
        &self.queue
    }

    pub(crate) fn order_name(&self) -> String {
        format!("mirror.{}.order", self.name)
    }

    /// How many jobs of it one worker runs at a time: one batch while the next is on its way.
    pub(crate) fn slots(&self) -> usize {
        self.batch * 2
    }

    /// The column that tells rows apart: unique, not null, and never changed; of type text, uuid or a
    /// whole number. The store sees text. Numbers get leading zeros, so that their order as text is
    /// their order as numbers; negative ones are refused. Default: `id`.
    pub fn key(mut self, column: impl Into<String>) -> Self {
        self.key = column.into();
        self
    }

    /// The `bigint not null` column that grows with every change. The trigger that [`Mirror::install`]
    /// makes raises it, under the lock of the row, so that versions grow in the order of commits.
    /// Default: `version`.
    pub fn version(mut self, column: impl Into<String>) -> Self {
        self.version = column.into();
        self
    }

    /// SQL that gives documents: `$1` is an array of keys as text, the answer has a row a key: the key,
    /// the version, the document as `jsonb`. It may join other tables. A key that it leaves out is
    /// gone from the store. Your own text: nothing in it is quoted, so never build it from what users
    /// wrote.
    pub fn document(mut self, sql: impl Into<String>) -> Self {
        self.document = sql.into();
        self
    }

    /// The name of the jobs, and the field of their arguments that holds the key. Rows that you insert
    /// into `leasehold.job` yourself, under this name, count as well.
    /// Default: `mirror.<name>` and `key`.
    pub fn job(mut self, name: impl Into<String>, field: impl Into<String>) -> Self {
        self.job = name.into();
        self.field = field.into();
        self
    }

    /// The queue of the jobs. Default: the name of the mirror.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = queue.into();
        self
    }

    /// How long after a change its job is due. The direct path writes it at once; the job is there to
    /// see that it did. Shorter: sooner when there is no direct path, and more that is looked at before
    /// the direct path is through. Default: 60 s.
    pub fn verify_after(mut self, time: Duration) -> Self {
        self.verify_after = time;
        self
    }

    /// The most jobs of one pass. The store is asked for less at a time while it is slow.
    /// Default: 2500.
    pub fn batch(mut self, jobs: usize) -> Self {
        self.batch = jobs;
        self
    }

    /// How long one call to the store may take. Default: 10 s.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// How many keys may wait for the direct path. What does not fit is left to the jobs. 0: there is no
    /// direct path. Default: 1024.
    pub fn direct(mut self, room: usize) -> Self {
        self.direct = room;
        self
    }

    /// How often the direct path writes at most. A change after a quiet time is written at once; those of
    /// the next so long are written together. Longer: less for a store in which every write costs much,
    /// and what comes in a crowd is seen later. Default: 0, as fast as the store takes it.
    pub fn direct_every(mut self, pause: Duration) -> Self {
        self.direct_every = pause;
        self
    }

    /// The pause between two ranges of the check. Shorter: drift is found sooner, and the database
    /// reads more. Default: 2 s.
    pub fn check_every(mut self, pause: Duration) -> Self {
        self.check_every = Some(pause);
        self
    }

    /// Leaves the check to other workers.
    pub fn without_check(mut self) -> Self {
        self.check_every = None;
        self
    }

    /// The most rows of one range of the check. Default: 10 000.
    pub fn range(mut self, rows: usize) -> Self {
        self.range = rows;
        self
    }

    /// What looks unequal is looked at again after this time, before it counts as different: a write may
    /// be on its way. Default: 1 s.
    pub fn recheck_after(mut self, time: Duration) -> Self {
        self.recheck_after = time;
        self
    }

    /// How long deletions are remembered, here and in the store. No write may be on its way for as long
    /// as this. Default: 24 h.
    pub fn tombstones(mut self, time: Duration) -> Self {
        self.tombstones = time;
        self
    }

    /// The store.
    pub fn target(mut self, target: Arc<dyn Target>) -> Self {
        self.store = Some(Store::One(target));
        self
    }

    /// A store that can have a second set of documents, so that the mirror can be rebuilt.
    pub fn targets(mut self, targets: Arc<dyn Targets>) -> Self {
        self.store = Some(Store::Many(targets));
        self
    }

    /// Finds what is wrong with the declaration itself, before any table is asked.
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
            (self.job != self.order_name(), "its job has the name of its orders; choose another"),
            ((10..=50_000).contains(&self.batch), "batch must be between 10 and 50000"),
            (self.direct <= 1_000_000, "direct must be at most 1000000"),
            (self.direct_every <= Duration::from_secs(60), "direct_every must be at most 60 s"),
            ((10..=100_000).contains(&self.range), "range must be between 10 and 100000"),
            (!self.limit.is_zero(), "limit must be longer than nothing"),
            (
                self.tombstones >= self.limit.saturating_mul(10),
                "tombstones must be kept for at least ten times the limit of a call",
            ),
        ] {
            if !fits {
                return wrong(what);
            }
        }
        Ok(())
    }

    /// The same, and that there is a store.
    pub(super) fn store(&self) -> Result<&Store, MirrorError> {
        self.store.as_ref().ok_or_else(|| {
            MirrorError::Declaration(format!(
                "mirror {:?}: it has no store; add .target(…) or .targets(…)",
                self.name
            ))
        })
    }
}
