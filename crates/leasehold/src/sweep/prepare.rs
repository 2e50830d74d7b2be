//! Checks a declaration: does it match the table, and does Postgres accept the SQL?

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use tokio_postgres::types::Type;

use super::declare::Sweep;
use super::statements::{Statements, Types, table};
use crate::engine::Leasehold;
use crate::error::{CallError, ConnectError, describe};
use crate::link::{Link, Param};

/// The default timeout of a statement, the same as for every call of a worker.
pub(super) const CALL_LIMIT: Duration = Duration::from_secs(30);

/// For sessions that only sweep: their statements must use indexes, even where statistics of a table
/// that was just filled or emptied suggest otherwise. Index scans also visit rows in key order, so that
/// two statements about the same rows cannot deadlock.
pub(crate) const SETTINGS: &str = "set enable_seqscan = off; set enable_bitmapscan = off; \
     set plan_cache_mode = force_generic_plan";

// Parameters for `explain`.
const NO_TEXT: Option<String> = None;
const NO_TEXTS: Option<Vec<String>> = None;
const NO_BOOLS: Option<Vec<bool>> = None;
const NO_LONG: Option<i64> = None;
const NO_INT: Option<i32> = None;
const NO_FLOAT: Option<f64> = None;

/// Texts of which most types accept one: numbers, bits and texts; uuids; times; composites; bytes;
/// addresses.
const SAMPLE_KEYS: [&str; 8] = [
    "101",
    "00000000-0000-4000-8000-000000000001",
    "2026-01-01 00:00:00.123456+00",
    "(1)",
    "(1,1)",
    "\\x01",
    "192.0.2.1",
    "00:00:5e:00:53:01",
];

/// Why a sweep cannot run, or why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SweepError {
    /// The declaration contradicts itself; the text says how to fix it.
    #[error("{0}")]
    Declaration(String),
    /// The table does not match the declaration; the text says what is missing.
    #[error("{0}")]
    Table(String),
    /// The database did not answer, or refused. The watchdog resets what was claimed.
    #[error("the sweep's statement failed: {0}")]
    Call(#[from] CallError),
    /// No session could be opened.
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

impl SweepError {
    /// Returns whether Postgres itself refused a statement.
    pub(super) fn was_refused(&self) -> bool {
        matches!(self, Self::Call(error) if error.was_refused())
    }
}

/// A sweep that was checked against its table.
#[derive(Clone)]
pub(crate) struct Prepared {
    pub(crate) sweep: Sweep,
    pub(crate) statements: Statements,
    types: Types,
}

impl Prepared {
    /// Checks the declaration, the table and the statements, and stores the declaration for operators.
    pub(crate) async fn new(sweep: &Sweep, engine: &Leasehold) -> Result<Self, SweepError> {
        let link = Link::new(engine.database().clone(), CALL_LIMIT);
        let prepared = Self::looked_at(sweep, &link).await?;
        prepared.try_statements(&link).await?;
        prepared.try_key(&link).await?;
        prepared.declare(&link).await?;
        Ok(prepared)
    }

    /// Checks the declaration against the table, and stores nothing.
    pub(super) async fn looked_at(sweep: &Sweep, link: &Link) -> Result<Self, SweepError> {
        sweep.check()?;
        let (table, types) = look(sweep, link).await?;
        let sweep = Sweep { table, ..sweep.clone() };
        Ok(Self { statements: Statements::of(&sweep, &types), sweep, types })
    }

    /// Lets Postgres parse every statement, so that an error in `due` or `finishing` fails the start
    /// and not the nightly run. `explain` runs nothing, and needs no prepared statement, which a pooler
    /// would lose.
    async fn try_statements(&self, link: &Link) -> Result<(), SweepError> {
        let Statements { claim, claim_on, finish, reset_stuck, reset_failed, fail, .. } =
            &self.statements;
        let (texts, bools) =
            ((&NO_TEXTS as _, Type::TEXT_ARRAY), (&NO_BOOLS as _, Type::BOOL_ARRAY));
        let (text, long) = ((&NO_TEXT as _, Type::TEXT), (&NO_LONG as _, Type::INT8));
        let (int, float) = ((&NO_INT as _, Type::INT4), (&NO_FLOAT as _, Type::FLOAT8));
        let (rows, place) = (vec![long.clone()], vec![long.clone(), text.clone()]);
        let finishing = vec![texts.clone(), long.clone(), text.clone()];
        let stuck = vec![text.clone(), float.clone(), long.clone()];
        let failed = vec![text.clone(), long.clone()];
        let failing = vec![texts.clone(), long, texts, bools, text, int, float.clone(), float];
        for (sql, params, part) in [
            (claim, rows, "due, or a column"),
            (claim_on, place, "due, or a column"),
            (finish, finishing, "finishing"),
            (reset_stuck, stuck, "the watchdog's columns"),
            (reset_failed, failed, "the watchdog's columns"),
            (fail, failing, "the key"),
        ] {
            let params: Vec<Param<'_>> = params;
            match link.query(&format!("explain {sql}"), &params).await {
                Ok(_) => {}
                Err(CallError::Database(error)) if error.as_db_error().is_some() => {
                    return Err(SweepError::Declaration(format!(
                        "sweep {:?}: Postgres does not accept the statement made from {part}: {}",
                        self.sweep.name,
                        describe(&error)
                    )));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Checks that keys survive the conversion to text and back. A row whose key does not would be
    /// claimed, and never finished.
    async fn try_key(&self, link: &Link) -> Result<(), SweepError> {
        let rows = link.query(&self.statements.unfound_key, &[]).await?;
        let mut unfound = rows.first().map(|row| row.get::<_, Option<String>>(0));
        if unfound.is_none() {
            unfound = self.try_sample_key(link).await?;
        }
        let Some(text) = unfound else { return Ok(()) };
        let Sweep { name, table, key, .. } = &self.sweep;
        Err(SweepError::Table(format!(
            "sweep {name:?}: the row of {table} whose {key} is {:?} is not found by that text, so that \
             it could not be finished; use a key of another type than {}",
            text.unwrap_or_default(),
            self.types.key
        )))
    }

    /// Does the same with the first sample that the key's type accepts: the table may be empty, or its
    /// rows may be those that survive. Returns the text of a sample that does not.
    async fn try_sample_key(&self, link: &Link) -> Result<Option<Option<String>>, SweepError> {
        for sample in SAMPLE_KEYS {
            match link.query(&self.statements.unfound_sample, &[(&sample, Type::TEXT)]).await {
                Ok(rows) => return Ok(rows.first().map(|row| row.get(0))),
                // The type does not accept this sample.
                Err(CallError::Database(error)) if error.as_db_error().is_some() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// Opens a session for this sweep alone. The server's timeout ends a statement before the client's
    /// does: then the statement is known to have done nothing, and a smaller one can be tried.
    pub(super) fn link(&self, engine: &Leasehold) -> Link {
        let limit = self.sweep.limit;
        let server_limit = (limit * 5 / 6).as_millis().max(1);
        let settings = format!("{SETTINGS}; set statement_timeout = {server_limit}");
        Link::with_settings(engine.database().clone(), limit, settings)
    }

    /// Stores the declaration. The database refuses one that takes another sweep's rows, or another
    /// role's sweep.
    async fn declare(&self, link: &Link) -> Result<(), SweepError> {
        let Self { sweep, types, .. } = self;
        // The database's clock decides which night is next.
        let now = link.query("select statement_timestamp()", &[]).await?;
        let first_run =
            now.first().and_then(|row| sweep.when.next_after(row.get::<_, Timestamp>(0)));
        let (cron, zone) = sweep.when.cron_and_zone();
        let (batch, attempts) = (int(sweep.batch), int(sweep.max_attempts));
        let sql = "select leasehold.declare_sweep($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, \
               $13, make_interval(secs => $14), make_interval(secs => $15), $16, $17, $18, \
               make_interval(secs => $19), $20)";
        let stored = link
            .query(
                sql,
                &[
                    (&sweep.name, Type::TEXT),
                    (&sweep.table, Type::TEXT),
                    (&sweep.key, Type::TEXT),
                    (&types.key, Type::TEXT),
                    (&sweep.order, Type::TEXT),
                    (&sweep.status, Type::TEXT),
                    (&sweep.states.waiting, Type::TEXT),
                    (&sweep.states.claimed, Type::TEXT),
                    (&sweep.states.done, Type::TEXT),
                    (&sweep.claimed_at, Type::TEXT),
                    (&sweep.claim, Type::TEXT),
                    (&batch, Type::INT4),
                    (&attempts, Type::INT4),
                    (&sweep.watchdog_after.as_secs_f64(), Type::FLOAT8),
                    (&sweep.watchdog_every.as_secs_f64(), Type::FLOAT8),
                    (&i64::from(sweep.watchdog_most), Type::INT8),
                    (&cron, Type::TEXT),
                    (&zone, Type::TEXT),
                    (&sweep.when.every(), Type::FLOAT8),
                    (&first_run, Type::TIMESTAMPTZ),
                ],
            )
            .await;
        match stored {
            Ok(_) => Ok(()),
            Err(CallError::Database(error))
                if error.code().is_some_and(|code| code.code() == "LH002") =>
            {
                Err(SweepError::Declaration(format!(
                    "sweep {:?}: {}",
                    sweep.name,
                    describe(&error)
                )))
            }
            Err(error) => Err(error.into()),
        }
    }
}

struct Column {
    /// The type without a length: `character`.
    base: Option<String>,
    /// The whole type: `character(26)`.
    kind: Option<String>,
    not_null: bool,
    unique: bool,
    partial_index: bool,
}

/// Compares the declaration with the catalogue. Every error says what to do. Returns the table with its
/// schema, and the types of its key and order columns.
async fn look(sweep: &Sweep, link: &Link) -> Result<(String, Types), SweepError> {
    let quoted = table(&sweep.table);
    let wanted = [&sweep.key, &sweep.order, &sweep.status, &sweep.claimed_at, &sweep.claim];
    let names: Vec<&str> = wanted.into_iter().chain(&sweep.columns).map(String::as_str).collect();
    let rows = link
        .query(
            include_str!("../../queries/sweep_table.sql"),
            &[(&quoted, Type::TEXT), (&names, Type::TEXT_ARRAY)],
        )
        .await?;
    let wrong = |what: String| SweepError::Table(format!("sweep {:?}: {what}", sweep.name));
    let Some(first) = rows.first() else {
        return Err(wrong(format!(
            "there is no table {quoted}; create it, or write it as schema.table"
        )));
    };
    let (schema, relation): (&str, &str) = (first.get("schema"), first.get("relation"));
    if schema.contains('.') {
        return Err(wrong(format!(
            "the schema {schema:?} of {quoted} has a dot in its name; rename it"
        )));
    }
    if first.get::<_, &str>("relkind") != "r" || first.get::<_, bool>("inherited") {
        return Err(wrong(format!(
            "{quoted} is not a plain table; sweep each partition or child by itself"
        )));
    }
    let columns: HashMap<&str, Column> = rows
        .iter()
        .map(|row| {
            let column = Column {
                base: row.get("base"),
                kind: row.get("type"),
                not_null: row.get::<_, Option<bool>>("attnotnull").unwrap_or(false),
                unique: row.get("is_unique"),
                partial_index: row.get("partial_index"),
            };
            (row.get("name"), column)
        })
        .collect();
    let add = |column: &str, kind: &str| {
        format!(
            "alter table {quoted} add column {} {kind}; Sweep::install does it for you",
            super::statements::ident(column)
        )
    };
    let of = |column: &str, advice: String| match columns.get(column) {
        Some(Column { kind: Some(kind), .. }) => Ok(kind.clone()),
        _ => Err(wrong(format!("{quoted} has no column {column:?}; {advice}"))),
    };
    let key = of(&sweep.key, "name the one that tells rows apart with .key(column)".into())?;
    let order = of(&sweep.order, "name the one to go by with .order_by(column)".into())?;
    of(&sweep.status, add(&sweep.status, "text not null default 'waiting'"))?;
    for (column, needed) in
        [(&sweep.claimed_at, "timestamp with time zone"), (&sweep.claim, "bigint")]
    {
        of(column, add(column, needed))?;
        let kind = columns.get(&**column).and_then(|column| column.base.as_deref()).unwrap_or("");
        if kind != needed {
            return Err(wrong(format!("{quoted}.{column} is {kind}; it must be {needed}")));
        }
    }
    for column in &sweep.columns {
        of(column, "remove it from .columns(…)".into())?;
    }
    if columns.get(&*sweep.key).is_none_or(|key| !key.not_null || !key.unique) {
        return Err(wrong(format!(
            "{quoted}.{} does not tell rows apart; it must be not null and have a unique index",
            sweep.key
        )));
    }
    for column in [&sweep.order, &sweep.claimed_at] {
        if columns.get(&**column).is_none_or(|column| !column.partial_index) {
            tracing::warn!(
                sweep = sweep.name,
                column,
                "no partial index begins with this column; on a large table every claim reads all \
                 of it; Sweep::install makes the index"
            );
        }
    }
    Ok((format!("{schema}.{relation}"), Types { key, order }))
}

pub(super) fn int(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
