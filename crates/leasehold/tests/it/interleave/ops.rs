//! The operations on a job, as scripts: begin, one call of the SQL contract, commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use leasehold_testing::stepper::Script;

/// One operation on the world of `trail.sql`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    pub name: &'static str,
    /// The generation that the caller believes to hold.
    pub fence: Option<i64>,
    pub call: &'static str,
}

const fn op(name: &'static str, fence: Option<i64>, call: &'static str) -> Op {
    Op { name, fence, call }
}

pub const HELD: Option<i64> = Some(1000);

pub const ENQUEUE: Op = op(
    "enqueue",
    None,
    "select job_id from leasehold.enqueue('note', '{\"n\": 1}', key => 'k', key_ttl => '0')",
);
pub const ENQUEUE_DEAD: Op = op(
    "enqueue the dead",
    None,
    "select job_id from leasehold.enqueue('note', '{\"n\": 3}', key => 'd', key_ttl => '0')",
);
pub const CLAIM: Op =
    op("claim", None, "select id from leasehold.claim('second', claim_size => 2)");
/// What the engine's own workers call. It does not expire leases first, so it takes what waits: job
/// 2, and job 1 when its holder has released it.
pub const CLAIM_NEXT: Op = op(
    "claim next",
    None,
    "select id from leasehold_internal.claim_next('third', 'default', 2, null, null, null, null, \
     false, -2147483648, true, 2147483647, true, '{}', '{}', '{}', '{}')",
);
pub const RENEW: Op = op("renew", HELD, "select state from leasehold.renew(array[1000::bigint])");
pub const EXPIRE: Op =
    op("expire", None, "select returned from leasehold_internal.reclaim_leases()");
pub const COMPLETE: Op = op("complete", HELD, "select leasehold.complete(1::bigint, 1000)");
pub const RETRY: Op = op("retry", HELD, "select leasehold.fail(1, 1000, 'no', '0')");
pub const SNOOZE: Op = op("snooze", HELD, "select leasehold.snooze(1, 1000, '0')");
pub const DEFER: Op = op("defer", HELD, "select leasehold.defer(1, 1000, '0', 'later')");
pub const CANCEL: Op = op("cancel", None, "select leasehold.cancel(1, 'ann')");
pub const CANCEL_WAITING: Op = op("cancel waiting", None, "select leasehold.cancel(2, 'ann')");
pub const FINISH_CANCELLED: Op =
    op("finish cancelled", HELD, "select leasehold.finish_cancelled(1, 1000)");
pub const BURY: Op = op("bury", HELD, "select leasehold.bury(1, 1000, 'useless')");
pub const REDRIVE: Op =
    op("redrive", None, "select leasehold.redrive(array[1, 3]::bigint[], 'ann')");
pub const RELEASE: Op = op("release", HELD, "select leasehold.release(array[1::bigint], 1000)");
pub const PRUNE: Op = op(
    "prune",
    None,
    "select dead from leasehold_internal.prune(dead_for => '7 days', ended_leases_for => '0')",
);

pub const ALL: [Op; 17] = [
    ENQUEUE,
    ENQUEUE_DEAD,
    CLAIM,
    CLAIM_NEXT,
    RENEW,
    EXPIRE,
    COMPLETE,
    RETRY,
    SNOOZE,
    DEFER,
    CANCEL,
    CANCEL_WAITING,
    FINISH_CANCELLED,
    BURY,
    REDRIVE,
    RELEASE,
    PRUNE,
];

impl Op {
    fn begin(&self) -> String {
        let fence = self.fence.map_or(String::new(), |fence| fence.to_string());
        format!("begin; set local il.actor = '{}'; set local il.fence = '{fence}'", self.name)
    }

    /// begin, call, commit. `role` distinguishes two scripts of the same op.
    pub fn script(&self, role: &str) -> Script {
        Script::new(format!("{role}{}", self.name)).sql(self.begin()).sql(self.call).sql("commit")
    }

    /// The same in two steps, for runs with many participants: an open transaction that has done
    /// nothing yet sees and holds nothing, so it does not matter when it begins.
    pub fn short_script(&self, role: &str) -> Script {
        Script::new(format!("{role}{}", self.name))
            .sql(format!("{}; {}", self.begin(), self.call))
            .sql("commit")
    }
}

/// A second worker: claims, then completes what it got, under its own fence.
pub fn worker() -> Script {
    let got = Arc::new(AtomicI64::new(0));
    let finish = got.clone();
    Script::new("worker")
        .step("claim job 1", move |client| {
            let got = got.clone();
            async move {
                client.batch_execute("set il.actor = 'claim'; set il.fence = ''").await?;
                let sql =
                    "select id, lease_generation from leasehold.claim('second', claim_size => 2)";
                let rows = client.query(sql, &[]).await?;
                let mine = rows.iter().find(|row| row.get::<_, i64>(0) == 1);
                got.store(mine.map_or(0, |row| row.get(1)), Ordering::SeqCst);
                Ok(())
            }
        })
        .step("complete it", move |client| {
            let generation = finish.load(Ordering::SeqCst);
            async move {
                client
                    .batch_execute(&format!(
                        "set il.actor = 'complete'; set il.fence = '{generation}'"
                    ))
                    .await?;
                let sql = "select leasehold.complete(1::bigint, $1)::text";
                let row = client.query_one(sql, &[&generation]).await?;
                Ok(row.get::<_, String>(0))
            }
        })
}
