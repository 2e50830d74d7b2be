-- Whether a worker has nothing to do. One statement, so one snapshot: a job that is being claimed
-- is seen either due or held, never in between.
select not exists (
    -- Due, or past its time and not yet set aside.
    select from leasehold.job j
      left join leasehold.queue q on q.name = j.queue
     where j.queue = any ($2) and j.name = any ($3) and not j.held
       and ((j.scheduled_at <= statement_timestamp() and j.expires_at > statement_timestamp()
             and q.paused_at is null)
            or ($4 and j.expires_at <= statement_timestamp()))
) and not exists (
    -- Held by this worker, or left behind by a dead one.
    select from leasehold.lease l
     cross join lateral unnest(l.job_ids) as held (id)
      join leasehold.job j
        on j.id = held.id and j.held and j.lease_generation = l.lease_generation
     where l.ended_at is null
       and (l.claimed_by = $1
            or ($4 and l.lease_expires_at < statement_timestamp()
                and j.queue = any ($2) and j.name = any ($3)))
) and not exists (
    select from leasehold.schedule s
     where $4 and s.paused_at is null and s.next_slot <= statement_timestamp()
) and not exists (
    -- Declared by this worker and not stored yet.
    select from unnest($5) as declared (name)
     where not exists (select from leasehold.schedule s where s.name = declared.name)
)
and not exists (
    -- Sweeps of this worker: not stored yet, or due.
    select from unnest($6) as declared (name)
      left join leasehold.sweep s on s.name = declared.name
     where s.name is null or (s.paused_at is null and s.next_run_at <= statement_timestamp())
)
