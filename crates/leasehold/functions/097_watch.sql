-- Self-measurement. One process of the fleet takes a sample a minute; the reading is bounded, whatever
-- the queues hold: see each function.

-- Whether a minute has passed since the last sample. Cheap: everybody asks this often.
create or replace function leasehold.sample_due()
returns boolean
language sql stable security definer set search_path = leasehold, pg_temp as $$
    select exists (
        select from leasehold.duty d
         where d.name = 'measure'
           and (d.ran_at < date_trunc('minute', statement_timestamp())
                -- The clock went back.
                or d.ran_at > statement_timestamp() + interval '1 minute'))
$$;

-- Takes the sample of the minute that has just ended. Whoever takes it goes on in the same transaction with
-- what may take too long and is left out then: `recount_queues`, and `measure_sweep` for each sweep. Answers that minute; null: somebody else takes it, or has taken
-- it. A sampler that dies takes its sample along, and the next one takes the place.
create or replace function leasehold.take_sample()
returns timestamptz
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set jit = off as $$
declare
    this_minute timestamptz := date_trunc('minute', statement_timestamp());
    sampled timestamptz := this_minute - interval '1 minute';
    before timestamptz;
begin
    select d.ran_at into before from leasehold.duty d
     where d.name = 'measure'
       and (d.ran_at < this_minute or d.ran_at > statement_timestamp() + interval '1 minute')
       for update skip locked;
    if not found then
        return null;
    end if;
    -- Two minutes more than nobody has read: a transaction that was open then may have committed since.
    perform leasehold.measure_flows(
        greatest(least(before, sampled) - interval '2 minutes', this_minute - interval '1 hour'),
        this_minute);
    perform leasehold.measure_queues(sampled);
    perform leasehold.measure_mirrors(sampled);
    perform leasehold.measure_database(sampled);
    perform leasehold.measure_hours(before, this_minute);
    perform leasehold.prune_measures();
    update leasehold.duty d set ran_at = this_minute where d.name = 'measure';
    return sampled;
end $$;

-- A tag and whose it is, in one word: `mail/api`. What stands before the first stroke is the queue, or the
-- mirror: a stroke of its own is written %2F.
create or replace function leasehold.tag_subject(whose text, tag text)
returns text
language sql immutable as $$
    select replace(replace(whose, '%', '%25'), '/', '%2F') || '/' || tag
$$;

-- What happened, by the minute. Reading a minute again gives the same or more, so it may be read as
-- often as one likes.
create or replace function leasehold.measure_flows(since timestamptz, before timestamptz)
returns void
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
begin
    insert into leasehold.measure as m (at, kind, subject, metric, flow, value)
    with batch as materialized (
        select date_trunc('minute', h.finished_at) as at, h.queue, h.outcome, h.tags,
               -- Most batches are of one tag, and need not be taken apart.
               h.tags[1] = all (h.tags) as alike
          from leasehold.history h
         where h.finished_at >= since and h.finished_at < before
    ), flow as materialized (
        select at, queue, tag, subject, what, sum(n) as n from (
            select b.at, b.queue, b.tags[1] as tag, '' as subject, b.outcome as what,
                   cardinality(b.tags) as n
              from batch b where b.alike
            union all
            select b.at, b.queue, one.tag, '', b.outcome, count(*)
              from batch b cross join lateral unnest(b.tags) as one (tag)
             where not b.alike group by 1, 2, 3, 5
            union all
            select date_trunc('minute', t.at), t.queue, t.tag, t.subject, t.what, t.n
              from leasehold.tally t where t.at >= since and t.at < before) every
         group by at, queue, tag, subject, what
    ), ranked as (
        -- Tags are for people. Whoever makes one a job gets a single line for them all.
        select f.*, dense_rank() over (partition by f.at, f.queue, f.subject
                                       order by sums.n desc, f.tag) as place
          from flow f
          join (select at, queue, subject, tag, sum(n) as n from flow group by 1, 2, 3, 4) sums
         using (at, queue, subject, tag)
    )
    select at, 'queue', queue, what, true, sum(n) from flow where subject = '' group by 1, 3, 4
    union all
    select at, 'mirror', subject, what, true, sum(n) from flow where subject <> '' group by 1, 3, 4
    union all
    select at, case when subject = '' then 'tag' else 'mirror_tag' end,
           leasehold.tag_subject(case when subject = '' then queue else subject end,
                                 case when place <= 30 then tag else '(others)' end),
           what, true, sum(n)
      from ranked group by 1, 2, 3, 4
    on conflict (at, kind, subject, metric) do update set value = greatest(m.value, excluded.value);
end $$;
