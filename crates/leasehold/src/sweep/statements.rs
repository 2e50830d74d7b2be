//! The SQL of one sweep. Pure: it takes a declaration and two types, and returns text.
//!
//! # Invariants
//! - Names are quoted here. The three states are literals, so that the partial indexes match.
//! - Every write names the state and, once claimed, the claim that it expects.
//! - A write finds its rows by key or by row address. `is(…)` hides the state from the planner there:
//!   otherwise it may scan a whole partial index, with the dead tuples of every row that was in it,
//!   because statistics suggest that few rows are in that state.

use super::declare::{Finishing, States, Sweep};
use crate::table::{quote_literal, quote_name, quote_table, stable_hash};

/// The column types, from the catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Types {
    pub(crate) key: String,
    pub(crate) order: String,
}

/// Every statement on the swept table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Statements {
    /// $1 limit. From the first waiting row.
    pub(crate) claim: String,
    /// $1 limit, $2 the cursor: reads on from there.
    pub(crate) claim_on: String,
    /// The same two behind the advisory lock; the last column is whether it was free.
    pub(crate) claim_gated: String,
    pub(crate) claim_on_gated: String,
    /// $1 keys, $2 claim, $3 sweep. Returns how many rows were finished.
    pub(crate) finish: String,
    /// $1 keys, $2 claim. Returns the keys that this claim has finished.
    pub(crate) finished_by: String,
    /// $1 keys, $2 claim. Renews the claim; returns the keys that it still holds.
    pub(crate) renew: String,
    /// $1 keys, $2 claim, $3 texts, $4 final, $5 sweep, $6 attempts, $7 first wait, $8 longest.
    pub(crate) fail: String,
    /// $1 sweep, $2 slot, $3 next slot, or $4 a pause. No row: something is due.
    pub(crate) close: String,
    /// $1 sweep, $2 seconds, $3 limit. Returns how many rows were reset.
    pub(crate) reset_stuck: String,
    /// $1 sweep, $2 limit. Returns how many rows were reset.
    pub(crate) reset_failed: String,
    /// $1 limit. Sets the time of claims without one, or with one in the future, to now.
    pub(crate) clamp: String,
    /// $1 sweep, $2 limit. Stores how many rows are due.
    pub(crate) note_due: String,
    /// $1 sweep, $2 limit, $3 seconds. Stores how many rows are claimed, and how many for too long.
    pub(crate) note_claimed: String,
    /// Returns the key of a row that its own text does not find again. No row: the key is usable.
    pub(crate) unfound_key: String,
    pub(crate) unfound_sample: String,
}

/// The class of the advisory lock; the second number is made from the sweep's name.
pub(crate) const GATE_CLASS: i32 = 7306;

/// Returns the second half of the advisory key, the same in every release.
pub(crate) fn gate_key(sweep: &str) -> i32 {
    stable_hash(sweep).cast_signed()
}

/// Begins the watchdog's statements. Only a session that names the sweep may reset rows; a trigger on
/// the table can check it.
const FLAG: &str = "with leasehold_flag as materialized (\
     select set_config('leasehold.watchdog', $1, true) as named)";

/// Makes the sweep due in the same commit: rows that were reset must not wait for the next night
/// because a watchdog died between the two.
const NOTED: &str = " select n, case when n > 0 then leasehold_internal.note_watchdog($1, n) end \
     from (select count(*) as n from leasehold_back) b";

/// What the last statement of `finishing` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It writes: Postgres runs it whether or not its rows are read.
    Writes,
    /// It is a query: Postgres runs it only if its rows are read.
    Reads,
}

/// The name of the last statement of `finishing`, in the statement that finishes rows.
pub(super) const EFFECT: &str = "leasehold_effect";

/// The names and states of one table, quoted.
struct Words {
    table: String,
    key: String,
    key_type: String,
    order: String,
    status: String,
    claimed_at: String,
    claim: String,
    waiting: String,
    claimed: String,
    done: String,
}

impl Words {
    /// Returns the condition on the state, hidden from the planner; see the head of this file.
    fn is(&self, word: &str) -> String {
        format!("case when {} = {word} then true else false end", self.status)
    }

    /// Returns the condition for the rows of `$1` that claim `$2` holds.
    fn ours(&self) -> String {
        let Self { key, key_type, claim, .. } = self;
        let is_claimed = self.is(&self.claimed);
        format!("{key} = any ($1::text[]::{key_type}[]) and {claim} = $2 and {is_claimed}")
    }
}

impl Statements {
    pub(crate) fn of(sweep: &Sweep, types: &Types, effect: Effect) -> Self {
        let States { waiting, claimed, done } = &sweep.states;
        let words = Words {
            table: quote_table(&sweep.table),
            key: quote_name(&sweep.key),
            key_type: types.key.clone(),
            order: quote_name(&sweep.order),
            status: quote_name(&sweep.status),
            claimed_at: quote_name(&sweep.claimed_at),
            claim: quote_name(&sweep.claim),
            waiting: quote_literal(waiting),
            claimed: quote_literal(claimed),
            done: quote_literal(done),
        };
        let read_on = format!("and {} >= $2::text::{}", words.order, types.order);
        Self {
            claim: claim(sweep, &words, "", None),
            claim_on: claim(sweep, &words, &read_on, None),
            claim_gated: claim(sweep, &words, "", Some(gate_key(&sweep.name))),
            claim_on_gated: claim(sweep, &words, &read_on, Some(gate_key(&sweep.name))),
            finish: finish(sweep.finishing.as_ref(), effect, &words),
            finished_by: finished_by(&words),
            renew: renew(&words),
            fail: fail(&words),
            close: close(&sweep.due, &words),
            reset_stuck: reset_stuck(&words),
            reset_failed: reset_failed(&words),
            clamp: clamp(&words),
            note_due: note_due(&sweep.due, &words),
            note_claimed: note_claimed(&words),
            unfound_key: unfound_key(&words),
            unfound_sample: unfound_sample(&words),
        }
    }
}

fn claim(sweep: &Sweep, words: &Words, read_on: &str, gate: Option<i32>) -> String {
    let Words { table, key, order, status, claimed_at, claim, waiting, claimed, .. } = words;
    let due = &sweep.due;
    let is_waiting = words.is(waiting);
    let columns: String = sweep.columns.iter().map(|column| quote_name(column) + ", ").collect();
    let (lock, if_won, open, shut) = match gate {
        None => (String::new(), "", "", ""),
        Some(number) => (
            format!(
                "leasehold_gate as materialized (\
                     select pg_try_advisory_xact_lock({GATE_CLASS}, {number}) as won), "
            ),
            "(select won from leasehold_gate) and ",
            ", leasehold_claimed as (",
            ") select c.*, g.won from leasehold_gate g left join leasehold_claimed c on true",
        ),
    };
    // The claim's number is drawn after the rows are locked. If it were drawn before, a delayed claim
    // could give rows a lower number than a claim that overtook it.
    format!(
        "with {lock}leasehold_picked as materialized (\
             select ctid as row_at, {order} as cursor from {table} \
              where {if_won}{status} = {waiting} and (\n{due}\n) {read_on} \
              order by {order} limit $1 for update skip locked\
         ), leasehold_numbered as materialized (\
             select leasehold_internal.next_claim() as number \
               from (select count(*) as n from leasehold_picked) p where p.n > 0\
         ){open} update {table} \
             set {status} = {claimed}, {claimed_at} = statement_timestamp(), \
                 {claim} = (select number from leasehold_numbered) \
           where ctid = any (array(select row_at from leasehold_picked)) and {is_waiting} \
          returning {columns}{key}::text as leasehold_key, {claim} as leasehold_claim, \
                 (select cursor::text from leasehold_picked \
                   order by cursor desc nulls last limit 1) as leasehold_cursor{shut}"
    )
}

fn finish(finishing: Option<&Finishing>, effect: Effect, words: &Words) -> String {
    let Words { table, key, status, done, .. } = words;
    let ours = words.ours();
    let (returned, entries, read) = match finishing {
        None => (key.as_str(), String::new(), String::new()),
        Some(Finishing { entries, statement }) => {
            // Each on its own lines: the texts may end with a comment.
            let entries = entries.as_ref().map_or(String::new(), |all| format!(", \n{all}\n"));
            let statement = statement.trim().trim_end_matches(';');
            // Materialized, so that every row is produced although none is used.
            let (kept, read) = match effect {
                Effect::Writes => ("", String::new()),
                Effect::Reads => ("materialized ", format!(", (select count(*) from {EFFECT})")),
            };
            ("*", format!("{entries}, {EFFECT} as {kept}(\n{statement}\n)"), read)
        }
    };
    format!(
        "with finished as (\
             update {table} set {status} = {done} where {ours} returning {returned}\
         ), leasehold_cleared as (\
             delete from leasehold_internal.sweep_failure f \
              where f.sweep = $3 and f.key = any (array(select {key}::text from finished))\
         ){entries} select count(*){read} from finished"
    )
}

fn finished_by(words: &Words) -> String {
    let Words { table, key, key_type, claim, done, .. } = words;
    let is_done = words.is(done);
    format!(
        "select {key}::text from {table} \
          where {key} = any ($1::text[]::{key_type}[]) and {claim} = $2 and {is_done}"
    )
}

fn renew(words: &Words) -> String {
    let Words { table, key, claimed_at, .. } = words;
    let ours = words.ours();
    format!(
        "update {table} set {claimed_at} = statement_timestamp() where {ours} returning {key}::text"
    )
}

fn fail(words: &Words) -> String {
    let Words { table, key, .. } = words;
    let ours = words.ours();
    // Locked: the watchdog must not reset them between the check and the record.
    format!(
        "with mine as materialized (\
             select {key}::text as key from {table} where {ours} order by {key} for no key update\
         ), failed as (\
             select array_agg(g.key) as keys, array_agg(g.why) as reasons, array_agg(g.final) as permanent \
               from unnest($1::text[], $3::text[], $4::boolean[]) as g (key, why, final) \
               join mine on mine.key = g.key\
         ) select f.key, f.attempts, f.dead \
             from failed, leasehold_internal.fail_swept($5, failed.keys, failed.reasons, failed.permanent, $2, $6, \
                 make_interval(secs => $7), make_interval(secs => $8)) f \
            where failed.keys is not null"
    )
}

fn close(due: &str, words: &Words) -> String {
    let Words { table, status, waiting, .. } = words;
    // Rows that another transaction has locked still count: the run continues until they are handled.
    format!(
        "select leasehold_internal.close_sweep($1, $2, $3, make_interval(secs => $4)) where not exists (\
             select 1 from {table} where {status} = {waiting} and (\n{due}\n))"
    )
}

fn reset_stuck(words: &Words) -> String {
    let Words { table, key, status, claimed_at, claim, waiting, claimed, .. } = words;
    let is_claimed = words.is(claimed);
    format!(
        "{FLAG}, leasehold_picked as materialized (\
             select t.ctid as row_at from {table} t \
              where (select named from leasehold_flag) is not null \
                and t.{status} = {claimed} \
                and t.{claimed_at} < statement_timestamp() - make_interval(secs => $2) \
                and not exists (select from leasehold_internal.sweep_failure f \
                     where f.sweep = $1 and f.key = t.{key}::text and f.claim = t.{claim}) \
              order by t.{claimed_at} limit $3 for update of t skip locked\
         ), leasehold_back as (\
             update {table} set {status} = {waiting}, {claimed_at} = null, {claim} = null \
              where ctid = any (array(select row_at from leasehold_picked)) and {is_claimed} \
                and {claimed_at} < statement_timestamp() - make_interval(secs => $2) \
             returning 1){NOTED}"
    )
}

fn reset_failed(words: &Words) -> String {
    let Words { table, key, key_type, status, claimed_at, claim, waiting, claimed, .. } = words;
    let is_claimed = words.is(claimed);
    // Locked rows wait for the next run, with their failures.
    format!(
        "{FLAG}, leasehold_failed as materialized (\
             select f.key, f.claim from leasehold_internal.sweep_failure f \
              where (select named from leasehold_flag) is not null \
                and f.sweep = $1 and f.retry_at <= statement_timestamp() \
              order by f.retry_at limit $2 for update skip locked\
         ), leasehold_picked as materialized (\
             select t.ctid as row_at, f.key from leasehold_failed f \
               join {table} t on t.{key} = f.key::{key_type} and t.{claim} = f.claim \
              where case when t.{status} = {claimed} then true else false end \
                for update of t skip locked\
         ), leasehold_gone as (\
             delete from leasehold_internal.sweep_failure f using leasehold_failed l \
              where f.sweep = $1 and f.key = l.key and f.claim = l.claim \
                and not exists (select from {table} t \
                     where t.{key} = l.key::{key_type} and t.{claim} = l.claim \
                       and case when t.{status} = {claimed} then true else false end)\
         ), leasehold_noted as (\
             update leasehold_internal.sweep_failure f set retry_at = null from leasehold_picked p \
              where f.sweep = $1 and f.key = p.key\
         ), leasehold_back as (\
             update {table} set {status} = {waiting}, {claimed_at} = null, {claim} = null \
              where ctid = any (array(select row_at from leasehold_picked)) and {is_claimed} \
             returning 1){NOTED}"
    )
}

fn clamp(words: &Words) -> String {
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

fn note_due(due: &str, words: &Words) -> String {
    let Words { table, status, waiting, .. } = words;
    format!(
        "select leasehold_internal.note_due($1, n) from (select count(*) as n from (\
             select 1 from {table} where {status} = {waiting} and (\n{due}\n) limit $2) d) c"
    )
}

/// Failed rows stay claimed on purpose, until their retry is due or an operator redrives them.
fn note_claimed(words: &Words) -> String {
    let Words { table, key, status, claimed_at, claim, claimed, .. } = words;
    format!(
        "select leasehold_internal.note_claimed($1, count(*), count(*) filter (where not c.failed), \
                count(*) filter (where c.late and not c.failed), min(c.since)) \
           from (select t.{claimed_at} as since, \
                        t.{claimed_at} < statement_timestamp() - make_interval(secs => $3) as late, \
                        exists (select from leasehold_internal.sweep_failure f where f.sweep = $1 \
                             and f.key = t.{key}::text and f.claim = t.{claim}) as failed \
                   from {table} t where t.{status} = {claimed} \
                  order by t.{claimed_at} limit $2) c"
    )
}

fn unfound_key(words: &Words) -> String {
    let Words { table, key, key_type, .. } = words;
    format!(
        "select k.key::text from (select {key} as key from {table} limit 1) k \
          where not exists (select from {table} t \
                where t.{key} = any (array[k.key::text]::text[]::{key_type}[]))"
    )
}

fn unfound_sample(words: &Words) -> String {
    let key_type = &words.key_type;
    format!(
        "select k.key::text from (select $1::text::{key_type} as key) k \
          where not k.key = any (array[k.key::text]::text[]::{key_type}[])"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn types() -> Types {
        Types { key: "uuid".into(), order: "bigint".into() }
    }

    fn odd() -> Statements {
        let states = States::new("it's", "b\\c", "done");
        let sweep = Sweep::new("odd", "my schema.my\"table")
            .key("the key")
            .due("true -- always")
            .order_by("at")
            .status("st\"ate", states)
            .columns(["a", "b"]);
        Statements::of(&sweep, &types(), Effect::Writes)
    }

    #[test]
    fn statements_quote_every_name_and_every_state() {
        let Statements { claim, finish, reset_stuck, .. } = odd();
        for sql in [&claim, &finish, &reset_stuck] {
            assert!(sql.contains("\"my schema\".\"my\"\"table\""), "{sql}");
        }
        assert!(claim.contains("\"st\"\"ate\" = 'it''s' and (\ntrue -- always\n)"), "{claim}");
        assert!(claim.contains("set \"st\"\"ate\" = E'b\\\\c'"), "{claim}");
    }

    #[test]
    fn finish_reads_the_rows_of_a_query_and_not_those_of_a_write() {
        let sweep = Sweep::new("a", "t").finishing_with(
            "kept as (insert into log select id from finished returning id) -- kept",
            " select note(id) from kept; ",
        );
        let finish = |effect| Statements::of(&sweep, &types(), effect).finish;
        let (read, written) = (finish(Effect::Reads), finish(Effect::Writes));
        assert!(read.contains("leasehold_effect as materialized (\nselect note(id) from kept\n)"));
        assert!(
            read.ends_with(
                "select count(*), (select count(*) from leasehold_effect) from finished"
            )
        );
        assert!(
            written.contains(", leasehold_effect as (\nselect")
                && !written.contains("(select count")
        );
        for sql in [read, written] {
            assert!(sql.contains("returning *"), "the effect sees all columns: {sql}");
            assert!(sql.contains("), \nkept as (insert") && sql.contains("-- kept\n,"), "{sql}");
        }
    }

    #[test]
    fn every_write_names_the_state_and_the_claim_it_expects() {
        let Statements { finish, renew, fail, reset_stuck, reset_failed, claim, .. } = odd();
        let held =
            "\"claim\" = $2 and case when \"st\"\"ate\" = E'b\\\\c' then true else false end";
        for sql in [&finish, &renew, &fail] {
            assert!(sql.contains(held), "{sql}");
            assert!(sql.contains("\"the key\" = any ($1::text[]::uuid[])"), "{sql}");
        }
        for sql in [&reset_stuck, &reset_failed] {
            assert!(sql.contains("case when \"st\"\"ate\" = E'b\\\\c' then true"), "{sql}");
            assert!(
                sql.contains("skip locked") && sql.contains("leasehold_internal.note_watchdog"),
                "{sql}"
            );
        }
        assert!(claim.contains("case when \"st\"\"ate\" = 'it''s' then true"), "{claim}");
    }
}
