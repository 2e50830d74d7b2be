//! The SQL of one sweep. Pure: it takes a declaration and two types, and returns text.
//!
//! # What is true
//! - Names are quoted here. The three states are literals, so that the partial indexes match.
//! - Every write names the state and, once claimed, the claim that it expects.
//! - A write finds its rows by key or by row address. `is(…)` hides the state from the planner there:
//!   otherwise it may scan a whole partial index, with the dead tuples of every row that was in it,
//!   because statistics suggest that few rows are in that state.

use super::declare::{States, Sweep};
use super::effect::take_apart;
use super::watchdog_sql::{clamp, note_claimed, note_due, reset_failed, reset_stuck};

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

pub(crate) fn ident(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

pub(crate) fn literal(text: &str) -> String {
    let doubled = text.replace('\'', "''");
    if text.contains('\\') {
        format!("E'{}'", doubled.replace('\\', "\\\\"))
    } else {
        format!("'{doubled}'")
    }
}

/// Quotes `schema.table` or `table`.
pub(crate) fn table(name: &str) -> String {
    name.splitn(2, '.').map(ident).collect::<Vec<_>>().join(".")
}

/// Returns the second half of the advisory key: FNV-1a, so that it is the same in every release.
pub(crate) fn gate_key(sweep: &str) -> i32 {
    let hash = sweep
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash.cast_signed()
}

/// The names and states of one table, quoted.
pub(super) struct Words {
    pub(super) table: String,
    pub(super) key: String,
    pub(super) key_type: String,
    order: String,
    pub(super) status: String,
    pub(super) claimed_at: String,
    pub(super) claim: String,
    pub(super) waiting: String,
    pub(super) claimed: String,
    done: String,
}

impl Words {
    /// Returns the condition on the state, hidden from the planner; see the head of this file.
    pub(super) fn is(&self, word: &str) -> String {
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
    pub(crate) fn of(sweep: &Sweep, types: &Types) -> Self {
        let States { waiting, claimed, done } = &sweep.states;
        let words = Words {
            table: table(&sweep.table),
            key: ident(&sweep.key),
            key_type: types.key.clone(),
            order: ident(&sweep.order),
            status: ident(&sweep.status),
            claimed_at: ident(&sweep.claimed_at),
            claim: ident(&sweep.claim),
            waiting: literal(waiting),
            claimed: literal(claimed),
            done: literal(done),
        };
        let read_on = format!("and {} >= $2::text::{}", words.order, types.order);
        Self {
            claim: claim(sweep, &words, "", None),
            claim_on: claim(sweep, &words, &read_on, None),
            claim_gated: claim(sweep, &words, "", Some(gate_key(&sweep.name))),
            claim_on_gated: claim(sweep, &words, &read_on, Some(gate_key(&sweep.name))),
            finish: finish(sweep.finishing.as_deref(), &words),
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
    let columns: String = sweep.columns.iter().map(|column| ident(column) + ", ").collect();
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
             select ctid as row_at, {order} as place from {table} \
              where {if_won}{status} = {waiting} and (\n{due}\n) {read_on} \
              order by {order} limit $1 for update skip locked\
         ), leasehold_numbered as materialized (\
             select leasehold.next_claim() as number \
               from (select count(*) as n from leasehold_picked) p where p.n > 0\
         ){open} update {table} \
             set {status} = {claimed}, {claimed_at} = statement_timestamp(), \
                 {claim} = (select number from leasehold_numbered) \
           where ctid = any (array(select row_at from leasehold_picked)) and {is_waiting} \
          returning {columns}{key}::text as leasehold_key, {claim} as leasehold_claim, \
                 (select place::text from leasehold_picked \
                   order by place desc nulls last limit 1) as leasehold_place{shut}"
    )
}

fn finish(finishing: Option<&str>, words: &Words) -> String {
    let Words { table, key, status, done, .. } = words;
    let ours = words.ours();
    let (returned, effect, read) = match finishing.map(take_apart) {
        None => (key.clone(), String::new(), ""),
        Some(effect) => {
            let entries = effect.entries.map_or(String::new(), |entries| format!(", {entries}"));
            let last = effect.last;
            let read =
                if effect.is_read { ", (select count(*) from leasehold_effect)" } else { "" };
            // Materialized, so that every row is produced although none is used.
            let kept = if effect.is_read { "materialized " } else { "" };
            let effect = format!("{entries}\n, leasehold_effect as {kept}(\n{last}\n)");
            ("*".to_owned(), effect, read)
        }
    };
    format!(
        "with finished as (\
             update {table} set {status} = {done} where {ours} returning {returned}\
         ), leasehold_cleared as (\
             delete from leasehold.sweep_failure f \
              where f.sweep = $3 and f.key = any (array(select {key}::text from finished))\
         ){effect} select count(*){read} from finished"
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
         ), told as (\
             select array_agg(g.key) as keys, array_agg(g.why) as whys, array_agg(g.final) as finals \
               from unnest($1::text[], $3::text[], $4::boolean[]) as g (key, why, final) \
               join mine on mine.key = g.key\
         ) select f.key, f.attempts, f.dead \
             from told, leasehold.fail_swept($5, told.keys, told.whys, told.finals, $2, $6, \
                 make_interval(secs => $7), make_interval(secs => $8)) f \
            where told.keys is not null"
    )
}

fn close(due: &str, words: &Words) -> String {
    let Words { table, status, waiting, .. } = words;
    // Rows that another transaction has locked still count: the run continues until they are handled.
    format!(
        "select leasehold.close_sweep($1, $2, $3, make_interval(secs => $4)) where not exists (\
             select 1 from {table} where {status} = {waiting} and (\n{due}\n))"
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

    fn odd() -> Statements {
        let states = States::new("it's", "b\\c", "done");
        let sweep = Sweep::new("odd", "my schema.my\"table")
            .key("the key")
            .due("true -- always")
            .order_by("at")
            .status("st\"ate", states)
            .columns(["a", "b"]);
        Statements::of(&sweep, &Types { key: "uuid".into(), order: "bigint".into() })
    }

    #[test]
    fn names_and_words_cannot_leave_their_quotes() {
        assert_eq!(table("a.b.c"), "\"a\".\"b.c\"");
        assert_eq!(table("x\"; drop table y; --"), "\"x\"\"; drop table y; --\"");
        assert_eq!((literal("it's"), literal("b\\'")), ("'it''s'".into(), "E'b\\\\'''".into()));
        let Statements { claim, finish, reset_stuck, .. } = odd();
        for sql in [&claim, &finish, &reset_stuck] {
            assert!(sql.contains("\"my schema\".\"my\"\"table\""), "{sql}");
        }
        assert!(claim.contains("\"st\"\"ate\" = 'it''s' and (\ntrue -- always\n)"), "{claim}");
        assert!(claim.contains("set \"st\"\"ate\" = E'b\\\\c'"), "{claim}");
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
            assert!(sql.contains("skip locked") && sql.contains("leasehold.note_watch"), "{sql}");
        }
        assert!(claim.contains("case when \"st\"\"ate\" = 'it''s' then true"), "{claim}");
    }

    #[test]
    fn the_key_of_a_gate_never_changes() {
        // Workers of two releases must use the same lock.
        assert_eq!((gate_key("pastes.expiry"), gate_key("a")), (-1_588_694_650, -468_965_076));
    }
}
