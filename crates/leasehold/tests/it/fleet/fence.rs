//! Equal ids and generations in two databases are two jobs.

use std::sync::Arc;

use leasehold::worker::StopReason;
use leasehold::{Ctx, Enqueue, Generation, JobError, JobId, JobResult};
use parking_lot::Mutex;

use super::{Gates, Two, run};
use crate::fixture::{count, number, queue_settings, sql, until};
use crate::support::Note;

/// Draws the same generations in every database.
const EQUAL_GENERATIONS: &str = "create sequence leasehold.drawn minvalue 1000000; \
    create or replace function leasehold_internal.next_generation() returns bigint \
    language sql volatile security definer as $$ select nextval('leasehold.drawn') $$";

type Seen = Arc<Mutex<Vec<(JobId, Generation, String)>>>;

#[tokio::test(flavor = "multi_thread")]
async fn b23_lost_lease_of_one_database_leaves_the_equal_one_of_another_alone() {
    let (two, gates, seen) = (Two::new().await, Gates::closed(), Seen::default());
    for side in [&two.a, &two.b] {
        sql(&side.client, EQUAL_GENERATIONS).await;
        queue_settings(&side.client, "lease = '2 seconds', backoff_base = '1 millisecond'").await;
        Note { n: 1 }.enqueue(&side.engine).await.expect("enqueued");
    }
    let (gate, noted) = (gates.clone(), Arc::clone(&seen));
    let handler = move |ctx: Ctx| {
        let (gate, noted) = (gate.clone(), Arc::clone(&noted));
        async move {
            noted.lock().push((ctx.id(), ctx.generation(), ctx.outside_key("run")));
            match ctx.database() {
                Some("a") if ctx.attempt() == 1 => {
                    assert_eq!(ctx.stopped().await, StopReason::LeaseLost);
                    JobResult::Err(JobError::permanent("the lease is lost"))
                }
                Some("a") => Ok(leasehold::Outcome::Complete),
                _ => {
                    gate.b().open.acquire().await.expect("open").forget();
                    assert_eq!(ctx.stop_reason(), None);
                    Ok(leasehold::Outcome::Complete)
                }
            }
        }
    };
    let worker = run(two.fleet.worker().queue("default", 2).handle_untyped("note", handler));
    until("both run", async || seen.lock().len() == 2).await;
    {
        let seen = seen.lock();
        assert_eq!((seen[0].0, seen[0].1), (seen[1].0, seen[1].1), "equal ids and generations");
        assert_ne!(seen[0].2, seen[1].2, "keys for other systems differ");
    }
    let reclaimed = "update leasehold_internal.lease set lease_expires_at = now() - interval '1 hour' \
                      where ended_at is null; select returned from leasehold_internal.reclaim_leases()";
    until("its lease is reclaimed", async || number(&two.a.client, reclaimed).await == 1).await;
    two.a.all_completed(1).await;
    gates.b().pass(1);
    two.b.all_completed(1).await;
    let attempts = "select max(a) from leasehold_internal.history, unnest(attempts) a";
    assert_eq!(count(&two.b.client, attempts).await, 1);
    assert_eq!(count(&two.b.client, "select count(*) from leasehold_internal.dead_job").await, 0);
    worker.stop().await;
}
