//! Claim: takes ready jobs under a new lease.
//!
//! # Invariants
//! - One statement claims; concurrent workers get different jobs.
//! - Jobs that never lost a worker share one lease, the others a second one.
//! - The worker chooses the id of a claim. If the reply is lost, [`Claimer::recover`] finds what was
//!   claimed, so the jobs need not wait for their lease to run out.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};
use uuid::Uuid;

use super::cursors::{Cursors, Lane, Reach};
use super::moment::Moment;
use crate::error::CallError;
use crate::job::{Generation, JobId};
use crate::link::Links;

/// One claimed job as it came from the database.
#[derive(Debug)]
pub(crate) struct ClaimedJob {
    pub(crate) id: JobId,
    pub(crate) name: Arc<str>,
    pub(crate) kwargs: JsonBytes,
    pub(crate) priority: i32,
    pub(crate) scheduled_at: Moment,
    pub(crate) attempts: i32,
    pub(crate) max_attempts: i32,
    pub(crate) lost_count: i16,
    pub(crate) generation: Generation,
    pub(crate) tag: String,
    pub(crate) enqueued_at: Moment,
    pub(crate) key: Option<String>,
    pub(crate) trace_context: Option<String>,
    /// The attempt before this one deferred it.
    pub(crate) deferred: bool,
}

impl ClaimedJob {
    pub(crate) fn lane(&self) -> Lane {
        Lane { deferred: self.deferred, priority: self.priority }
    }

    /// Returns how long it had waited when it was last due. Both times are the database's.
    pub(crate) fn waited(&self) -> Duration {
        let waited = self.scheduled_at.0.saturating_sub(self.enqueued_at.0);
        Duration::from_micros(u64::try_from(waited).unwrap_or_default())
    }
}

/// The jobs of one lease, and how long this worker owns them.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) generation: Generation,
    /// In the order in which they run: deferred ones last, then by priority, due time, id.
    pub(crate) jobs: Vec<ClaimedJob>,
    pub(crate) lease: Duration,
    pub(crate) run_limit: Duration,
    /// Read before the claim was sent, so the worker's view of the lease ends before the database's.
    pub(crate) asked_at: Instant,
}

/// What one call claimed.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    /// One per lease: the jobs that never lost a worker, and those that did.
    pub(crate) leases: Vec<Claim>,
    /// The server's clock when it read; `None`: it did not read, or the time is not known.
    pub(crate) as_of: Option<Moment>,
    /// How long the server took.
    pub(crate) took: Duration,
    /// The queue has deferred jobs. Only a scan finds out.
    pub(crate) has_deferred: bool,
}

impl Claims {
    pub(crate) fn jobs(&self) -> impl Iterator<Item = &ClaimedJob> {
        self.leases.iter().flat_map(|lease| &lease.jobs)
    }
}

/// Where a claim reads: every lane, or those of deferred jobs, each from its cursor.
pub(crate) struct ReadFrom<'a> {
    pub(crate) cursors: &'a Cursors,
    pub(crate) reach: Reach,
    pub(crate) only_deferred: bool,
}

/// The worker and the queue of a claim.
pub(crate) struct Claimer<'a> {
    pub(crate) links: &'a Links,
    pub(crate) worker: &'a str,
    pub(crate) queue: &'a str,
    /// The names that this worker has handlers for; it leaves others alone.
    pub(crate) names: &'a [String],
}

impl Claimer<'_> {
    /// Claims up to `up_to` jobs in order.
    pub(crate) async fn claim(
        &self,
        from: &ReadFrom<'_>,
        up_to: usize,
        claim_id: Uuid,
    ) -> Result<Claims, CallError> {
        let asked_at = Instant::now();
        let up_to = i32::try_from(up_to).unwrap_or(i32::MAX);
        let (gaps, looks_for_deferred) =
            (from.reach > Reach::Known, from.reach == Reach::Everything);
        let (mut deferred, mut priorities) = (Vec::new(), Vec::new());
        let (mut after_at, mut after_id) = (Vec::new(), Vec::new());
        for (lane, (at, id)) in from.cursors.positions(from.reach, from.only_deferred) {
            deferred.push(lane.deferred);
            priorities.push(lane.priority);
            after_at.push(at);
            after_id.push(id);
        }
        let rows = self
            .links
            .query(
                CLAIM_NEXT,
                &[
                    (&self.worker, Type::TEXT),
                    (&self.queue, Type::TEXT),
                    (&up_to, Type::INT4),
                    (&claim_id, Type::UUID),
                    (&self.names, Type::TEXT_ARRAY),
                    (&from.only_deferred, Type::BOOL),
                    (&gaps, Type::BOOL),
                    (&deferred, Type::BOOL_ARRAY),
                    (&priorities, Type::INT4_ARRAY),
                    (&after_at, Type::TIMESTAMPTZ_ARRAY),
                    (&after_id, Type::INT8_ARRAY),
                    (&looks_for_deferred, Type::BOOL),
                ],
            )
            .await?;
        Ok(read_claims(&rows, asked_at))
    }

    /// Claims up to `up_to` jobs one by one, and leaves out those that the server refuses.
    pub(crate) async fn claim_around(
        &self,
        only_deferred: bool,
        up_to: usize,
        claim_id: Uuid,
    ) -> Result<Claims, CallError> {
        let asked_at = Instant::now();
        let up_to = i32::try_from(up_to).unwrap_or(i32::MAX);
        let rows = self
            .links
            .query(
                CLAIM_AROUND,
                &[
                    (&self.worker, Type::TEXT),
                    (&self.queue, Type::TEXT),
                    (&up_to, Type::INT4),
                    (&claim_id, Type::UUID),
                    (&self.names, Type::TEXT_ARRAY),
                    (&only_deferred, Type::BOOL),
                ],
            )
            .await?;
        Ok(read_claims(&rows, asked_at))
    }

    /// Returns whether a job waits that another loss would bury.
    pub(crate) async fn last_chance_waits(&self) -> Result<bool, CallError> {
        let rows = self
            .links
            .query(
                "select leasehold_internal.lost_priority($1, $2) is not null",
                &[(&self.queue, Type::TEXT), (&self.names, Type::TEXT_ARRAY)],
            )
            .await?;
        Ok(rows.first().is_some_and(|row| row.get(0)))
    }

    /// Claims one job that another loss would bury.
    pub(crate) async fn claim_last_chance(&self, claim_id: Uuid) -> Result<Claims, CallError> {
        let asked_at = Instant::now();
        let rows = self
            .links
            .query(
                CLAIM_LOST,
                &[
                    (&self.worker, Type::TEXT),
                    (&self.queue, Type::TEXT),
                    (&claim_id, Type::UUID),
                    (&self.names, Type::TEXT_ARRAY),
                ],
            )
            .await?;
        Ok(read_claims(&rows, asked_at))
    }

    /// Returns what a claim without a reply took, if it happened.
    pub(crate) async fn recover(&self, claim_id: Uuid) -> Result<Claims, CallError> {
        let asked_at = Instant::now();
        let rows = self
            .links
            .query(RECOVER_CLAIM, &[(&self.worker, Type::TEXT), (&claim_id, Type::UUID)])
            .await?;
        Ok(read_claims(&rows, asked_at))
    }

    /// Returns the server's clock.
    pub(crate) async fn now(&self) -> Result<Option<Moment>, CallError> {
        let rows = self.links.query("select statement_timestamp()", &[]).await?;
        Ok(rows.first().map(|row| row.get(0)))
    }
}

/// A statement that returns claimed jobs: when the server looked, for how long, whether there are deferred
/// jobs, and the columns of a job, which `read_claims` reads by position. `date_part`, because `extract` makes a
/// numeric, for each row.
macro_rules! claim_statement {
    ($looked:literal, $from:literal) => {
        concat!("select ", $looked, ", ", include_str!("../../queries/claimed_columns.sql"), $from)
    };
}

/// Claims in order, reading on from cursors. An empty claim also returns when the server looked (null: the
/// queue is paused, and it did not) and for how long. $6: only deferred jobs. $12: return whether there are
/// deferred jobs.
const CLAIM_NEXT: &str = claim_statement!(
    "s.as_of, date_part('epoch', clock_timestamp() - statement_timestamp()), s.has_deferred",
    "from (select case when (leasehold_internal.queue_settings($2)).paused_at is null
                       then statement_timestamp() end as as_of,
                  $12 and leasehold_internal.has_deferred($2) as has_deferred) s
     left join lateral leasehold_internal.claim_next(
         $1, $2, $3, null, $4, $5, null, $6, -2147483648, true, 2147483647, $7, $8, $9, $10, $11) c on true"
);
/// Claims one by one in a queue in which a claim was refused.
const CLAIM_AROUND: &str = claim_statement!(
    "statement_timestamp(), 0::float8, false",
    "from leasehold_internal.claim_around($1, $2, $3, null, $4, $5, $6) c"
);
/// Claims one job on its last chance, alone.
const CLAIM_LOST: &str = claim_statement!(
    "statement_timestamp(), 0::float8, false",
    "from leasehold_internal.claim_alone($1, $2, null, $3, $4, null) c"
);
/// Finds the jobs of a claim whose reply never came.
const RECOVER_CLAIM: &str = claim_statement!(
    "null::timestamptz, 0::float8, false",
    "from leasehold_internal.recover_claim($1, $2) c"
);

fn read_claims(rows: &[Row], asked_at: Instant) -> Claims {
    let Some(first) = rows.first() else { return Claims::default() };
    let seconds =
        |row: &Row, index: usize| Duration::from_secs_f64(row.get::<_, f64>(index).max(0.0));
    let mut claims = Claims {
        leases: Vec::new(),
        as_of: first.get(0),
        took: seconds(first, 1),
        has_deferred: first.get(2),
    };
    let mut lease_of: HashMap<i64, usize> = HashMap::new();
    // Consecutive jobs have the same lease and the same name: look the lease up once, and share the name.
    let mut last_lease: Option<(i64, usize)> = None;
    let mut last_name: Arc<str> = Arc::from("");
    for row in rows {
        // An empty claim is a row without a job.
        let Some(id) = row.get::<_, Option<i64>>(3) else { continue };
        let name: &str = row.get(4);
        if *last_name != *name {
            last_name = Arc::from(name);
        }
        let generation = Generation(row.get(11));
        let job = ClaimedJob {
            id: JobId(id),
            name: Arc::clone(&last_name),
            kwargs: row.get(5),
            priority: row.get(6),
            scheduled_at: row.get(7),
            attempts: row.get(8),
            max_attempts: row.get(9),
            lost_count: row.get(10),
            generation,
            tag: row.get(12),
            enqueued_at: row.get(13),
            key: row.get(14),
            trace_context: row.get(15),
            deferred: row.get(18),
        };
        let lease = match last_lease {
            Some((same, lease)) if same == generation.0 => lease,
            _ => *lease_of.entry(generation.0).or_insert(claims.leases.len()),
        };
        last_lease = Some((generation.0, lease));
        match claims.leases.get_mut(lease) {
            Some(claim) => claim.jobs.push(job),
            None => claims.leases.push(Claim {
                generation,
                jobs: vec![job],
                lease: seconds(row, 17),
                run_limit: seconds(row, 16),
                asked_at,
            }),
        }
    }
    claims
}

/// The text of a jsonb value, decoded only when a handler needs it.
#[derive(Clone, Default)]
pub(crate) struct JsonBytes(Box<[u8]>);

impl JsonBytes {
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for JsonBytes {
    // Arguments may hold secrets: logs show only their size.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes of JSON", self.0.len())
    }
}

impl<'a> FromSql<'a> for JsonBytes {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        match raw.split_first() {
            Some((1, text)) => Ok(Self(text.into())),
            _ => Err("an unknown form of jsonb".into()),
        }
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::JSONB
    }
}
