//! The watchdog's SQL on the swept table. Pure, like `statements`.

use super::statements::Words;

/// Only a session that names the sweep may reset rows; a trigger on the table can check it.
const FLAG: &str = "with leasehold_flag as materialized (\
     select set_config('leasehold.watchdog', $1, true) as named)";

/// Makes the sweep due in the same commit: rows that were reset must not wait for the next night
/// because a watchdog died between the two.
const NOTED: &str = " select n, case when n > 0 then leasehold.note_watch($1, n) end \
     from (select count(*) as n from leasehold_back) b";

pub(super) fn reset_stuck(words: &Words) -> String {
    let Words { table, key, status, claimed_at, claim, waiting, claimed, .. } = words;
    let is_claimed = words.is(claimed);
    format!(
        "{FLAG}, leasehold_picked as materialized (\
             select t.ctid as row_at from {table} t \
              where (select named from leasehold_flag) is not null \
                and t.{status} = {claimed} \
                and t.{claimed_at} < statement_timestamp() - make_interval(secs => $2) \
                and not exists (select from leasehold.sweep_failure f \
                     where f.sweep = $1 and f.key = t.{key}::text and f.claim = t.{claim}) \
              order by t.{claimed_at} limit $3 for update of t skip locked\
         ), leasehold_back as (\
             update {table} set {status} = {waiting}, {claimed_at} = null, {claim} = null \
              where ctid = any (array(select row_at from leasehold_picked)) and {is_claimed} \
                and {claimed_at} < statement_timestamp() - make_interval(secs => $2) \
             returning 1){NOTED}"
    )
}

pub(super) fn reset_failed(words: &Words) -> String {
    let Words { table, key, key_type, status, claimed_at, claim, waiting, claimed, .. } = words;
    let is_claimed = words.is(claimed);
    // Locked rows wait for the next run, with their failures.
    format!(
        "{FLAG}, leasehold_failed as materialized (\
             select f.key, f.claim from leasehold.sweep_failure f \
              where (select named from leasehold_flag) is not null \
                and f.sweep = $1 and f.retry_at <= statement_timestamp() \
              order by f.retry_at limit $2 for update skip locked\
         ), leasehold_picked as materialized (\
             select t.ctid as row_at, f.key from leasehold_failed f \
               join {table} t on t.{key} = f.key::{key_type} and t.{claim} = f.claim \
              where case when t.{status} = {claimed} then true else false end \
                for update of t skip locked\
         ), leasehold_gone as (\
             delete from leasehold.sweep_failure f using leasehold_failed l \
              where f.sweep = $1 and f.key = l.key and f.claim = l.claim \
                and not exists (select from {table} t \
                     where t.{key} = l.key::{key_type} and t.{claim} = l.claim \
                       and case when t.{status} = {claimed} then true else false end)\
         ), leasehold_noted as (\
             update leasehold.sweep_failure f set retry_at = null from leasehold_picked p \
              where f.sweep = $1 and f.key = p.key\
         ), leasehold_back as (\
             update {table} set {status} = {waiting}, {claimed_at} = null, {claim} = null \
              where ctid = any (array(select row_at from leasehold_picked)) and {is_claimed} \
             returning 1){NOTED}"
    )
}

pub(super) fn clamp(words: &Words) -> String {
    let Words { table, status, claimed_at, claimed, .. } = words;
    let is_claimed = words.is(claimed);
    let limit = "limit $1 for update skip locked";
    format!(
        "with timeless as materialized (\
             select ctid as row_at from {table} \
              where {status} = {claimed} and {claimed_at} is null {limit}\
         ), early as materialized (\
             select ctid as row_at from {table} where {status} = {claimed} \
                and {claimed_at} > statement_timestamp() + interval '1 minute' {limit}\
         ) update {table} set {claimed_at} = statement_timestamp() \
            where ctid = any (array(select row_at from timeless union all select row_at from early)) \
              and {is_claimed}"
    )
}

pub(super) fn note_due(due: &str, words: &Words) -> String {
    let Words { table, status, waiting, .. } = words;
    format!(
        "select leasehold.note_due($1, n) from (select count(*) as n from (\
             select 1 from {table} where {status} = {waiting} and (\n{due}\n) limit $2) d) c"
    )
}

/// Failed rows stay claimed on purpose, until their retry is due or an operator redrives them.
pub(super) fn note_claimed(words: &Words) -> String {
    let Words { table, key, status, claimed_at, claim, claimed, .. } = words;
    format!(
        "select leasehold.note_claimed($1, count(*), count(*) filter (where not c.failed), \
                count(*) filter (where c.late and not c.failed), min(c.since)) \
           from (select t.{claimed_at} as since, \
                        t.{claimed_at} < statement_timestamp() - make_interval(secs => $3) as late, \
                        exists (select from leasehold.sweep_failure f where f.sweep = $1 \
                             and f.key = t.{key}::text and f.claim = t.{claim}) as failed \
                   from {table} t where t.{status} = {claimed} \
                  order by t.{claimed_at} limit $2) c"
    )
}
