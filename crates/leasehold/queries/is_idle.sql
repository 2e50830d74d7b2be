-- Returns whether a worker has nothing to do. One statement, so one snapshot: a job that is being
-- claimed is seen either ready or running, never in between.
select not exists (
    -- Ready, or expired and not buried yet.
    select from leasehold.job j
      left join leasehold_internal.queue q on q.name = j.queue
     where j.queue = any ($2) and j.limit_key is null and j.name = any ($3) and not j.held
       and ((j.scheduled_at <= statement_timestamp() and j.expires_at > statement_timestamp()
             and q.paused_at is null)
            or ($4 and j.expires_at <= statement_timestamp()))
) and not exists (
    -- The same, unless its limit holds it back.
    select from leasehold.job j
      left join leasehold_internal.queue q on q.name = j.queue
     where j.queue = any ($2) and j.limit_key is not null and j.name = any ($3) and not j.held
       and ((j.scheduled_at <= statement_timestamp() and j.expires_at > statement_timestamp()
             and q.paused_at is null and leasehold_internal.has_room(j.queue, j.limit_key))
            or ($4 and j.expires_at <= statement_timestamp()))
) and not exists (
    -- Held by this worker, or left by a dead one.
    select from leasehold_internal.lease l
     cross join lateral unnest(l.job_ids) as held (id)
      join leasehold.job j
        on j.id = held.id and j.held and j.lease_generation = l.lease_generation
     where l.ended_at is null
       and (l.claimed_by = $1
            or ($4 and l.lease_expires_at < statement_timestamp()
                and j.queue = any ($2) and j.name = any ($3)))
) and not exists (
    select from leasehold_internal.schedule s
     where $4 and s.paused_at is null and s.next_slot <= statement_timestamp()
) and not exists (
    -- Declared by this worker and not stored yet.
    select from unnest($5) as declared (name)
     where not exists (select from leasehold_internal.schedule s where s.name = declared.name)
)
