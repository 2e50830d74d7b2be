//! Prune: deletes what is past its retention, kind by kind.
//!
//! # Invariants
//! - Each kind has its own statements, transactions, result and time limit. A kind that fails, or that
//!   has millions of rows to delete, does not keep another from its turn.
//! - A round repeats a kind while its calls are full, so pruning keeps up with any rate of new rows.
//! - One worker of the fleet prunes a kind at a time. The election only saves work: a worker that loses
//!   it five times in a row prunes without it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tokio_postgres::types::Type;

use super::HousekeepingConfig;
use crate::backoff::jitter;
use crate::engine::Leasehold;
use crate::error::CallError;
use crate::events::Events;
use crate::link::Link;
use crate::service::Duty;

/// Rows per call: few enough that an enqueue with a key never waits long for one.
const ROWS: i32 = 1000;
/// A kind yields to the next one after this time, however much is left.
const TURN: Duration = Duration::from_secs(5);
/// After losing the election this often, prune anyway: its holder may be a dead session.
const MOST_ROUNDS_NOT_ELECTED: u32 = 5;
/// The interval for what changes slowly: history partitions, settings of queues, old samples.
const SELDOM: Duration = Duration::from_secs(600);
const MEASURES_EVERY: Duration = Duration::from_secs(60);

/// The kinds that `leasehold_internal.prune_kind` takes.
const KINDS: [&str; 9] =
    ["leases", "keys", "marks", "workers", "dead", "queues", "limits", "batches", "results"];

pub(crate) struct Prune {
    engine: Leasehold,
    events: Events,
    keep_history: f64,
    keep_dead: Option<f64>,
    lost_elections: HashMap<&'static str, u32>,
    duties: HashMap<&'static str, Duty>,
    not_before: HashMap<&'static str, Instant>,
}

impl Prune {
    pub(crate) fn new(config: &HousekeepingConfig, engine: &Leasehold, events: &Events) -> Self {
        Self {
            engine: engine.clone(),
            events: events.clone(),
            keep_history: config.keep_history.as_secs_f64(),
            keep_dead: config.keep_dead.map(|keep| keep.as_secs_f64()),
            lost_elections: HashMap::new(),
            duties: HashMap::new(),
            not_before: HashMap::new(),
        }
    }

    /// Runs one turn of everything that is due. Each part has its own result.
    pub(crate) async fn run_once(&mut self, link: &Link) {
        for kind in KINDS {
            if kind == "dead" && self.keep_dead.is_none() || !self.is_due(kind) {
                continue;
            }
            let pruned = self.kind(link, kind).await;
            if matches!(kind, "queues" | "limits" | "batches" | "results") && pruned.is_ok() {
                self.again_in(kind, SELDOM);
            }
            let away = matches!(pruned, Err(CallError::Connect(_)));
            self.note(kind, pruned);
            if away {
                // Nothing else would get a connection either.
                return;
            }
        }
        let keep = self.keep_history;
        let parts: [(&'static str, &str, Option<f64>, Duration); 3] = [
            ("measures", "select leasehold_internal.prune_measures()::int", None, MEASURES_EVERY),
            ("extend_history", "select leasehold_internal.extend_history()", None, SELDOM),
            (
                "drop_history",
                "select leasehold_internal.drop_history(make_interval(secs => $1))",
                Some(keep),
                SELDOM,
            ),
        ];
        for (part, sql, keep, every) in parts {
            if !self.is_due(part) {
                continue;
            }
            let done = match &keep {
                Some(keep) => link.query(sql, &[(keep, Type::FLOAT8)]).await,
                None => link.query(sql, &[]).await,
            };
            if done.is_ok() {
                self.again_in(part, every);
            }
            let done =
                done.map(|rows| rows.first().map_or(0, |row| i64::from(row.get::<_, i32>(0))));
            self.note(part, done);
        }
    }

    fn is_due(&self, part: &str) -> bool {
        self.not_before.get(part).is_none_or(|at| Instant::now() >= *at)
    }

    fn again_in(&mut self, part: &'static str, time: Duration) {
        self.not_before.insert(part, Instant::now() + jitter(time));
    }

    fn note(&mut self, part: &'static str, done: Result<i64, CallError>) {
        let new = || Duty::new(format!("prune {part}"), &self.events);
        let duty = self.duties.entry(part).or_insert_with(new);
        if let Some(done) = super::note(&self.engine, duty, done).filter(|done| *done > 0) {
            tracing::debug!(part, done, "pruned");
        }
    }

    /// Runs one turn of one kind: until none of it is left, or its time is over.
    async fn kind(&mut self, link: &Link, kind: &'static str) -> Result<i64, CallError> {
        let lost = self.lost_elections.entry(kind).or_default();
        let keep = match kind {
            "dead" => self.keep_dead,
            "batches" | "results" => Some(self.keep_history),
            _ => None,
        };
        let deadline = Instant::now() + TURN;
        let (mut removed, mut reached) = (0, None::<String>);
        loop {
            let anyway = *lost >= MOST_ROUNDS_NOT_ELECTED;
            let rows = link
                .query(
                    "select elected, removed, more, reached from leasehold_internal.prune_kind(\
                     $1, $2, make_interval(secs => $3), $4, $5)",
                    &[
                        (&kind, Type::TEXT),
                        (&ROWS, Type::INT4),
                        (&keep, Type::FLOAT8),
                        (&anyway, Type::BOOL),
                        (&reached, Type::TEXT),
                    ],
                )
                .await?;
            let Some(row) = rows.first() else { return Ok(removed) };
            let (elected, more): (bool, bool) = (row.get(0), row.get(2));
            removed += i64::from(row.get::<_, i32>(1));
            *lost = if elected { 0 } else { lost.saturating_add(1) };
            if !more || Instant::now() >= deadline {
                return Ok(removed);
            }
            reached = row.get(3);
        }
    }
}
