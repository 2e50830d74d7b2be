//! Claim: takes due jobs and gives them one lease.
//!
//! # What is true
//! - One statement claims; another worker gets other jobs.
//! - The claim carries an id of our making. When its reply is lost, [`recover`] finds what was
//!   claimed, so the jobs need not wait for their lease to run out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};
use uuid::Uuid;

use super::lanes::Lane;
use super::moment::Moment;
use crate::error::CallError;
use crate::job::{Generation, JobId};
use crate::link::Link;

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
}

impl ClaimedJob {
    /// How long it had waited when it was last due. Both times are the database's.
    pub(crate) fn waited(&self) -> Duration {
        let waited = self.scheduled_at.0.saturating_sub(self.enqueued_at.0);
        Duration::from_micros(u64::try_from(waited).unwrap_or_default())
    }
}

/// A claim: its jobs, and how long they are ours.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) generation: Generation,
    /// In the order in which the lease names them.
    pub(crate) jobs: Vec<ClaimedJob>,
    pub(crate) lease: Duration,
    pub(crate) run_limit: Duration,
    /// Taken before the claim was sent, so our idea of the lease ends before the database's.
    pub(crate) asked_at: Instant,
}

/// Who claims, from where.
pub(crate) struct Claimer<'a> {
    pub(crate) link: &'a Link,
    pub(crate) worker: &'a str,
    pub(crate) queue: &'a str,
    /// The names that this worker has handlers for; others are left alone. Empty: all.
    pub(crate) names: &'a [String],
}

impl Claimer<'_> {
    /// The lanes that have jobs now, each to be read from its first one.
    pub(crate) async fn lanes(&self) -> Result<Vec<Lane>, CallError> {
        let rows = self
            .link
            .query(
                "select name, priority, first_at, first_id from leasehold.lanes($1, $2)",
                &[(&self.queue, Type::TEXT), (&self.names, Type::TEXT_ARRAY)],
            )
            .await?;
        Ok(rows
            .iter()
            .map(|row| Lane {
                name: row.get(0),
                priority: row.get(1),
                // Just before it: whoever looked for the lane has passed what lies before.
                after: Some((row.get(2), row.get::<_, i64>(3) - 1)),
            })
            .collect())
    }

    /// Claims up to `up_to` jobs from just after each lane's place.
    pub(crate) async fn claim(
        &self,
        lanes: &[Lane],
        up_to: usize,
        claim_id: Uuid,
    ) -> Result<Option<Claim>, CallError> {
        let asked_at = Instant::now();
        let up_to = i32::try_from(up_to).unwrap_or(i32::MAX);
        let names: Vec<&str> = lanes.iter().map(|lane| lane.name.as_str()).collect();
        let priorities: Vec<i32> = lanes.iter().map(|lane| lane.priority).collect();
        let after_at: Vec<Option<Moment>> =
            lanes.iter().map(|lane| lane.after.map(|after| after.0)).collect();
        let after_id: Vec<i64> =
            lanes.iter().map(|lane| lane.after.map_or(0, |after| after.1)).collect();
        let rows = self
            .link
            .query(
                CLAIM_LANES,
                &[
                    (&self.worker, Type::TEXT),
                    (&self.queue, Type::TEXT),
                    (&up_to, Type::INT4),
                    (&claim_id, Type::UUID),
                    (&names, Type::TEXT_ARRAY),
                    (&priorities, Type::INT4_ARRAY),
                    (&after_at, Type::TIMESTAMPTZ_ARRAY),
                    (&after_id, Type::INT8_ARRAY),
                ],
            )
            .await?;
        Ok(read_claim(&rows, asked_at))
    }

    /// Whether a job waits that another loss would bury.
    pub(crate) async fn last_chance_waits(&self) -> Result<bool, CallError> {
        let rows = self
            .link
            .query(
                "select leasehold.last_chance_waits($1, $2)",
                &[(&self.queue, Type::TEXT), (&self.names, Type::TEXT_ARRAY)],
            )
            .await?;
        Ok(rows.first().is_some_and(|row| row.get(0)))
    }

    /// Claims one job whose worker died. `last_chance`: one that another loss would bury.
    pub(crate) async fn claim_lost(
        &self,
        last_chance: bool,
        claim_id: Uuid,
    ) -> Result<Option<Claim>, CallError> {
        let asked_at = Instant::now();
        let rows = self
            .link
            .query(
                CLAIM_LOST,
                &[
                    (&self.worker, Type::TEXT),
                    (&self.queue, Type::TEXT),
                    (&claim_id, Type::UUID),
                    (&self.names, Type::TEXT_ARRAY),
                    (&last_chance, Type::BOOL),
                ],
            )
            .await?;
        Ok(read_claim(&rows, asked_at))
    }

    /// What a claim whose reply was lost took, if it took place.
    pub(crate) async fn recover(&self, claim_id: Uuid) -> Result<Option<Claim>, CallError> {
        let asked_at = Instant::now();
        let rows = self
            .link
            .query(RECOVER_CLAIM, &[(&self.worker, Type::TEXT), (&claim_id, Type::UUID)])
            .await?;
        Ok(read_claim(&rows, asked_at))
    }
}

const CLAIM_LANES: &str = include_str!("../../queries/claim_lanes.sql");
const CLAIM_LOST: &str = include_str!("../../queries/claim_lost.sql");
const RECOVER_CLAIM: &str = include_str!("../../queries/recover_claim.sql");

fn read_claim(rows: &[Row], asked_at: Instant) -> Option<Claim> {
    let first = rows.first()?;
    let generation = Generation(first.get(8));
    let seconds = |index: usize| Duration::from_secs_f64(first.get::<_, f64>(index).max(0.0));
    let (run_limit, lease) = (seconds(13), seconds(14));
    // Names repeat: share one copy a run of them.
    let mut last_name: Arc<str> = Arc::from("");
    let jobs = rows
        .iter()
        .map(|row| {
            let name: &str = row.get(1);
            if *last_name != *name {
                last_name = Arc::from(name);
            }
            ClaimedJob {
                id: JobId(row.get(0)),
                name: Arc::clone(&last_name),
                kwargs: row.get(2),
                priority: row.get(3),
                scheduled_at: row.get(4),
                attempts: row.get(5),
                max_attempts: row.get(6),
                lost_count: row.get(7),
                generation,
                tag: row.get(9),
                enqueued_at: row.get(10),
                key: row.get(11),
                trace_context: row.get(12),
            }
        })
        .collect();
    Some(Claim { generation, jobs, lease, run_limit, asked_at })
}

/// The text of a jsonb value, decoded only when a handler asks for its type.
#[derive(Clone)]
pub struct JsonBytes(Box<[u8]>);

impl JsonBytes {
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for JsonBytes {
    // Arguments may hold secrets: logs show their size alone.
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
