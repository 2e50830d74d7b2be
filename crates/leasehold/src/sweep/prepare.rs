//! Checks a declaration: does it match the table, and does Postgres accept the SQL?

use std::time::Duration;

use jiff::Timestamp;
use tokio_postgres::types::Type;

use super::declare::Sweep;
use super::statements::{EFFECT, Effect, Statements, Types};
use crate::Leasehold;
use crate::error::{CallError, ConnectError, describe};
use crate::link::Link;
use crate::table::{TableError, UserTable, check_statement, quote_name, quote_table};

/// The default timeout of a statement, the same as for every call of a worker.
pub(super) const CALL_LIMIT: Duration = Duration::from_secs(30);

/// For sessions that only sweep: their statements must use indexes, even where statistics of a table
/// that was just filled or emptied suggest otherwise. Index scans also visit rows in key order, so that
/// two statements about the same rows cannot deadlock.
pub(crate) const SETTINGS: &str = "set enable_seqscan = off; set enable_bitmapscan = off; \
     set plan_cache_mode = force_generic_plan";

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
    /// The database did not respond, or refused. The watchdog resets what was claimed.
    #[error("the sweep's statement failed: {0}")]
    Call(#[from] CallError),
    /// No session could be opened.
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

impl SweepError {
    fn of_table(sweep: &Sweep, error: TableError) -> Self {
        match error {
            TableError::Call(error) => Self::Call(error),
            error => Self::Table(format!("sweep {:?}: {error}", sweep.name)),
        }
    }

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
        let mut prepared = Self::of_table(sweep, &link).await?;
        prepared.try_statements(&link).await?;
        prepared.try_key(&link).await?;
        prepared.declare(&link).await?;
        Ok(prepared)
    }

    /// Checks the declaration against the table, and stores nothing.
    pub(super) async fn of_table(sweep: &Sweep, link: &Link) -> Result<Self, SweepError> {
        sweep.check()?;
        let (table, types) = read_table(sweep, link).await?;
        let sweep = Sweep { table, ..sweep.clone() };
        Ok(Self { statements: Statements::of(&sweep, &types, Effect::Writes), sweep, types })
    }

    /// Lets Postgres check every statement, so that an error in `due` or `finishing` fails the start and
    /// not the nightly run.
    async fn try_statements(&mut self, link: &Link) -> Result<(), SweepError> {
        let Statements { claim, claim_on, reset_stuck, reset_failed, fail, .. } = &self.statements;
        const TEXTS: Type = Type::TEXT_ARRAY;
        for (sql, types, part) in [
            (claim, &[Type::INT8][..], "due, or a column"),
            (claim_on, &[Type::INT8, Type::TEXT], "due, or a column"),
            (reset_stuck, &[Type::TEXT, Type::FLOAT8, Type::INT8], "the watchdog's columns"),
            (reset_failed, &[Type::TEXT, Type::INT8], "the watchdog's columns"),
            (
                fail,
                &[
                    TEXTS,
                    Type::INT8,
                    TEXTS,
                    Type::BOOL_ARRAY,
                    Type::TEXT,
                    Type::INT4,
                    Type::FLOAT8,
                    Type::FLOAT8,
                ],
                "the key",
            ),
        ] {
            self.try_statement(link, sql, types, part).await?;
        }
        if !self.finishing_writes(link).await? {
            self.statements = Statements::of(&self.sweep, &self.types, Effect::Reads);
            self.finishing_writes(link).await?;
        }
        Ok(())
    }

    /// Checks the statement that finishes rows. Returns false if `finishing` is a query, which Postgres
    /// leaves out of the plan because its rows are not read.
    async fn finishing_writes(&self, link: &Link) -> Result<bool, SweepError> {
        let types = [Type::TEXT_ARRAY, Type::INT8, Type::TEXT];
        let part = "finishing (a `with` whose entries write belongs into finishing_with)";
        let plan = self.try_statement(link, &self.statements.finish, &types, part).await?;
        let effect = format!("CTE {EFFECT}");
        Ok(self.sweep.finishing.is_none() || plan.iter().any(|line| line.trim() == effect))
    }

    async fn try_statement(
        &self,
        link: &Link,
        sql: &str,
        types: &[Type],
        part: &str,
    ) -> Result<Vec<String>, SweepError> {
        check_statement(link, sql, types).await.map_err(|error| match error {
            TableError::Unfit(why) => SweepError::Declaration(format!(
                "sweep {:?}: Postgres does not accept the statement made from {part}: {why}",
                self.sweep.name
            )),
            error => SweepError::of_table(&self.sweep, error),
        })
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
        let (claim_size, attempts) = (int(sweep.claim_size), int(sweep.max_attempts));
        let sql = "select leasehold_internal.declare_sweep($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, \
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
                    (&claim_size, Type::INT4),
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

/// Compares the declaration with the catalogue. Every error says what to do. Returns the table with its
/// schema, and the types of its key and order columns.
async fn read_table(sweep: &Sweep, link: &Link) -> Result<(String, Types), SweepError> {
    let columns = [&sweep.key, &sweep.order, &sweep.status, &sweep.claimed_at, &sweep.claim];
    let columns: Vec<&str> =
        columns.into_iter().chain(&sweep.columns).map(String::as_str).collect();
    let unfit = |error| SweepError::of_table(sweep, error);
    let table = UserTable::read(link, &sweep.table, &columns).await.map_err(unfit)?;
    let types = check_columns(sweep, &table).map_err(unfit)?;
    for column in [&sweep.order, &sweep.claimed_at] {
        if table.find(column).is_none_or(|column| !column.begins_partial_index) {
            tracing::warn!(
                sweep = sweep.name,
                column,
                "no partial index begins with this column; on a large table every claim reads all \
                 of it; Sweep::install makes the index"
            );
        }
    }
    Ok((table.full_name().to_owned(), types))
}

fn check_columns(sweep: &Sweep, table: &UserTable) -> Result<Types, TableError> {
    let add = |column: &str, kind: &str| {
        let (table, column) = (quote_table(&sweep.table), quote_name(column));
        format!("alter table {table} add column {column} {kind}; Sweep::install does it for you")
    };
    let key = table.column(&sweep.key, "name the one that tells rows apart with .key(column)")?;
    let order = table.column(&sweep.order, "name the one to go by with .order_by(column)")?;
    table.column(&sweep.status, &add(&sweep.status, "text not null default 'waiting'"))?;
    for (column, wanted) in
        [(&sweep.claimed_at, "timestamp with time zone"), (&sweep.claim, "bigint")]
    {
        table.must_be(column, wanted, &add(column, wanted))?;
    }
    for column in &sweep.columns {
        table.column(column, "remove it from .columns(…)")?;
    }
    table.must_identify(&sweep.key)?;
    Ok(Types { key: key.full_type.clone(), order: order.full_type.clone() })
}

pub(super) fn int(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
