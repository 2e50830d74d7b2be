-- Jobs that have been due for a minute and are locked by a transaction. Looks at the first thousand,
-- and takes a share lock that ends with the statement.
with due as materialized (
    select j.id from leasehold.job j
     where not j.held and j.scheduled_at < statement_timestamp() - interval '60 seconds'
     limit 1000
), free as materialized (
    select j.id from leasehold.job j where j.id in (select id from due) for share skip locked
)
-- Leave out jobs that were claimed or finished meanwhile.
select d.id from due d
  join leasehold.job j on j.id = d.id and not j.held
 where d.id not in (select id from free)
 order by 1 limit 20
