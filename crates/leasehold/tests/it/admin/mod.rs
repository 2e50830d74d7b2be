//! Administration from Rust, under the roles that do it.

mod alarms;
mod dead;
mod diagnosis;
mod jobs;
mod lists;
mod measurements;
mod mirrors;
mod queues;
mod roles;
mod schedules;
mod sweeps;
mod workers;

use leasehold::admin::By;
use leasehold::{JobId, JobState, Leasehold};

use crate::sql::Sql;
use crate::support::engine;

/// Commits the transaction, or rolls it back.
pub async fn end(tx: tokio_postgres::Transaction<'_>, commits: bool) {
    match commits {
        true => tx.commit().await.expect("committed"),
        false => tx.rollback().await.expect("rolled back"),
    }
}

/// A database, the engine on it, and an operator.
pub struct Office {
    pub sql: Sql,
    pub engine: Leasehold,
    pub by: By,
}

impl Office {
    pub async fn new() -> Self {
        let sql = Sql::new().await;
        let engine = engine(&sql.database).await;
        Self { sql, engine, by: By::new("ann").why("a test") }
    }

    pub async fn ready(&self) -> JobId {
        JobId(self.sql.enqueue(1).await[0])
    }

    pub async fn scheduled(&self) -> JobId {
        let later = "select job_id from leasehold.enqueue('note', scheduled_at => now() + interval '1 day')";
        JobId(self.sql.one(later, &[]).await)
    }

    /// The only ready job is claimed: call it before `ready`.
    pub async fn running(&self) -> JobId {
        JobId(self.sql.running().await.0)
    }

    pub async fn retrying(&self) -> JobId {
        let (id, generation) = self.sql.running().await;
        self.sql.run(&format!("select leasehold.fail({id}, {generation}, 'once', '1 day')")).await;
        JobId(id)
    }

    pub async fn completed(&self) -> JobId {
        let (id, generation) = self.sql.running().await;
        self.sql.run(&format!("select leasehold.complete({id}::bigint, {generation})")).await;
        JobId(id)
    }

    pub async fn cancelled(&self) -> JobId {
        let id = self.sql.enqueue(1).await[0];
        self.sql.run(&format!("select leasehold.cancel({id}, 'bob', 'twice')")).await;
        JobId(id)
    }

    pub async fn dead(&self, error: &str) -> JobId {
        let (id, generation) = self.sql.running().await;
        let bury = "select leasehold.bury($1, $2, $3)";
        assert!(self.sql.one::<bool>(bury, &[&id, &generation, &error]).await);
        JobId(id)
    }

    pub async fn state(&self, id: JobId) -> Option<JobState> {
        self.engine.jobs().get(id).await.expect("read").map(|job| job.state)
    }

    /// Returns `actor action subject detail` of the last entry of the audit log.
    pub async fn last_audit(&self) -> String {
        let sql = "select concat_ws(' ', actor, action, subject, detail) from leasehold.audit order by at desc limit 1";
        self.sql.one(sql, &[]).await
    }

    pub async fn audits(&self) -> i64 {
        self.sql.count("audit").await
    }
}
