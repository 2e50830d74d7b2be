//! What the database shows at the end: kept by triggers and handlers, not by the code under test.

use anyhow::{Context, Result};
use leasehold::database::Session;

/// `bench_follow_up` gets a row when a follow-up is stored: whether jobs of its batch were left then, and
/// whether a look of housekeeping stored it.
pub const TABLES: &str = "
    create table bench_batch (n bigint primary key, batch_id bigint not null, jobs bigint not null);
    create table bench_added (n bigint not null);
    create table bench_follow_up (n bigint not null, name text not null, early boolean not null, look boolean not null);
    create index bench_member_idx on leasehold.job (batch_id) where batch_id is not null;
    create function bench_note() returns trigger language plpgsql security definer
    set enable_seqscan = off as $$
    begin
        insert into public.bench_follow_up (n, name, early, look)
        select b.n, new.name, exists (select from leasehold.job j where j.batch_id = b.batch_id),
               current_query() like '%look_at_batches%'
          from public.bench_batch b where b.n = (new.kwargs ->> 'n')::bigint;
        return null;
    end $$;
    create trigger bench_note after insert on leasehold.job for each row
        when (new.queue = 'ended') execute function bench_note();";

pub const CLOSED: &str =
    "select count(*) from leasehold_internal.batch where closed_at is not null";

/// Each job of a batch with how it ended, from the history and the dead jobs.
const SEARCH: &str = "
    with ended as (
        select (f.kwargs ->> 'n')::bigint as n, f.outcome as state
          from leasehold_internal.finished_job f where f.queue = 'steps'
        union all
        select (d.kwargs ->> 'n')::bigint, 'dead' from leasehold_internal.dead_job d where d.queue = 'steps'
    ), counted as (
        select b.n, b.batch_id, b.jobs + (select count(*) from bench_added a where a.n = b.n) as jobs,
               count(*) filter (where e.state = 'completed') as completed,
               count(*) filter (where e.state = 'cancelled') as cancelled,
               count(*) filter (where e.state = 'dead') as dead
          from bench_batch b left join ended e on e.n = b.n group by b.n
    ), followed as (
        select f.n, count(*) as times, min(f.name) as name from bench_follow_up f group by f.n
    )
    select count(*) as batches,
           (select count(*) from bench_added) as added,
           (select count(*) from bench_follow_up) as follow_ups,
           count(*) filter (where f.n is null) as missing,
           count(*) filter (where f.times > 1) as twice,
           (select count(*) from bench_follow_up u where u.early) as early,
           count(*) filter (where f.name <> case when c.dead > 0 then 'batch.died'
                                                 when c.cancelled > 0 then 'batch.ended'
                                                 else 'batch.succeeded' end) as wrong,
           count(*) filter (where (v.total, v.completed, v.cancelled, v.dead, v.deleted)
                                  is distinct from (c.jobs, c.completed, c.cancelled, c.dead, 0::bigint)
                                  or c.jobs <> c.completed + c.cancelled + c.dead) as counts,
           (select count(*) from leasehold_internal.batch_member)
             + (select count(*) from leasehold.job j where j.queue = 'steps') as left_over,
           (select count(*) from bench_follow_up u where u.look) as by_a_look
      from counted c
      join leasehold.batches v on v.id = c.batch_id
      left join followed f on f.n = c.n";

pub struct Found {
    pub batches: u64,
    pub added: u64,
    pub follow_ups: u64,
    pub missing: u64,
    pub twice: u64,
    pub early: u64,
    /// Follow-ups for another outcome than that of the jobs.
    pub wrong: u64,
    /// Batches whose counts differ from the history.
    pub counts: u64,
    /// Members and jobs that have not ended.
    pub left: u64,
    pub by_a_look: u64,
}

pub async fn search(session: &Session) -> Result<Found> {
    let rows = session.query_typed(SEARCH, &[]).await?;
    let row = rows.first().context("no row")?;
    let number = |column: &str| u64::try_from(row.get::<_, i64>(column)).unwrap_or(0);
    Ok(Found {
        batches: number("batches"),
        added: number("added"),
        follow_ups: number("follow_ups"),
        missing: number("missing"),
        twice: number("twice"),
        early: number("early"),
        wrong: number("wrong"),
        counts: number("counts"),
        left: number("left_over"),
        by_a_look: number("by_a_look"),
    })
}
