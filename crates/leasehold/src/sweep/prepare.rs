//! Getting a sweep ready: is the table what the declaration says, and does Postgres accept the SQL?

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use tokio_postgres::types::Type;

use super::declare::Sweep;
use super::statements::{Statements, Types, table};
use crate::engine::Leasehold;
use crate::error::{CallError, ConnectError, describe};
use crate::link::{Link, Param};

/// Like every call of a worker.
pub(super) const CALL_LIMIT: Duration = Duration::from_secs(30);

/// For sessions that only sweep: our statements go by indexes, and statistics of a table that has
/// just been filled or emptied say otherwise. In the order of the key, too, so that two statements
/// about the same rows never wait for each other in a circle.
pub(crate) const SETTINGS: &str = "set enable_seqscan = off; set enable_bitmapscan = off; \
     set plan_cache_mode = force_generic_plan";

// What statements are tried with.
const NO_TEXT: Option<String> = None;
const NO_TEXTS: Option<Vec<String>> = None;
const NO_BOOLS: Option<Vec<bool>> = None;
const NO_LONG: Option<i64> = None;
const NO_INT: Option<i32> = None;
const NO_FLOAT: Option<f64> = None;

/// Why a sweep cannot run, or could not.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SweepError {
    /// The declaration contradicts itself; the text says how to mend it.
    #[error("{0}")]
    Declaration(String),
    /// The table is not what the declaration says; the text says what is missing.
    #[error("{0}")]
    Table(String),
    /// The database did not answer, or refused. What was claimed comes back by the watchdog.
    #[error("the sweep's statement failed: {0}")]
    Call(#[from] CallError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

/// A sweep that was checked against its table.
#[derive(Clone)]
pub(crate) struct Prepared {
    pub(crate) sweep: Sweep,
    pub(crate) statements: Statements,
    types: Types,
}

impl Prepared {
    /// Checks the declaration, the table and the statements, and stores what people look at.
    pub(crate) async fn new(sweep: &Sweep, engine: &Leasehold) -> Result<Self, SweepError> {
        let link = Link::new(engine.database().clone(), CALL_LIMIT);
        let prepared = Self::looked_at(sweep, &link).await?;
        prepared.try_statements(&link).await?;
        declare(sweep, &prepared.types, &link).await?;
        Ok(prepared)
    }

    /// Checks the declaration against the table, and stores nothing.
    pub(super) async fn looked_at(sweep: &Sweep, link: &Link) -> Result<Self, SweepError> {
        sweep.check()?;
        let types = look(sweep, link).await?;
        Ok(Self { statements: Statements::of(sweep, &types), sweep: sweep.clone(), types })
    }

    /// Lets Postgres read every statement, so that a slip in `due` or `finishing` stops the start
    /// and not the night. `explain` runs nothing, and needs no statement that a pooler would forget.
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

    /// A session for this sweep alone.
    pub(super) fn link(&self, engine: &Leasehold) -> Link {
        Link::with_settings(engine.database().clone(), CALL_LIMIT, SETTINGS)
    }
}

struct Column {
    kind: Option<String>,
    not_null: bool,
    unique: bool,
    partial_index: bool,
}

/// Compares the declaration with the catalogue. Every error says what to do.
pub(super) async fn look(sweep: &Sweep, link: &Link) -> Result<Types, SweepError> {
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
    if first.get::<_, &str>(0) != "r" || first.get::<_, bool>(5) {
        return Err(wrong(format!(
            "{quoted} is not a plain table; sweep each partition or child by itself"
        )));
    }
    let columns: HashMap<&str, Column> = rows
        .iter()
        .map(|row| {
            let column = Column {
                kind: row.get(2),
                not_null: row.get::<_, Option<bool>>(3).unwrap_or(false),
                unique: row.get(4),
                partial_index: row.get(6),
            };
            (row.get(1), column)
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
        let kind = of(column, add(column, needed))?;
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
    Ok(Types { key, order })
}

async fn declare(sweep: &Sweep, types: &Types, link: &Link) -> Result<(), SweepError> {
    // The database's clock says which night is next.
    let now = link.query("select statement_timestamp()", &[]).await?;
    let first_run = now.first().and_then(|row| sweep.when.next_after(row.get::<_, Timestamp>(0)));
    let (cron, zone) = sweep.when.cron_and_zone();
    let (batch, attempts) = (int(sweep.batch), int(sweep.max_attempts));
    let sql = "select leasehold.declare_sweep($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, \
               $13, make_interval(secs => $14), make_interval(secs => $15), $16, $17, $18, \
               make_interval(secs => $19), $20)";
    link.query(
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
    .await?;
    Ok(())
}

pub(super) fn int(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
