-- How far the evaluation is behind the samples, when it ran, and whether there was something to evaluate.
select case when isfinite(d.ran_at) then
           extract(epoch from d.ran_at - j.ran_at) end::float8,
       extract(epoch from statement_timestamp() - j.ran_at)::float8,
       exists (select from leasehold_internal.measure m
                where m.at < statement_timestamp() - interval '5 minutes' limit 1)
  from leasehold_internal.duty d left join leasehold_internal.duty j on j.name = 'judge'
 where d.name = 'measure'
