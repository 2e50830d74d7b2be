//! Adds to a table what a sweep needs.

use tokio_postgres::Client;

use super::declare::Sweep;
use super::prepare::SweepError;
use super::statements::{ident, literal, table};
use crate::error::CallError;

impl Sweep {
    /// Adds the columns and the two partial indexes that are missing, in one transaction. For
    /// migrations: it locks the table while it builds the indexes. What exists stays as it is.
    pub async fn install(sweep: &Sweep, client: &mut Client) -> Result<(), SweepError> {
        sweep.check()?;
        let script = install_sql(sweep);
        let transaction = client.transaction().await.map_err(CallError::Database)?;
        transaction.batch_execute(&script).await.map_err(CallError::Database)?;
        transaction.commit().await.map_err(CallError::Database)?;
        Ok(())
    }

    /// Returns the SQL that [`Sweep::install`] runs, for programs with their own migrations.
    pub fn install_sql(&self) -> Result<String, SweepError> {
        self.check()?;
        Ok(install_sql(self))
    }
}

fn install_sql(sweep: &Sweep) -> String {
    let Sweep { order, status, claimed_at, claim, states, .. } = sweep;
    let bare = sweep.table.rsplit('.').next().unwrap_or(&sweep.table);
    let table = table(&sweep.table);
    let index = |column: &str, word: &str, what: &str| {
        format!(
            "create index if not exists {} on {table} ({}) where {} = {};\n",
            ident(&short(&format!("{bare}_{status}_{what}_idx"))),
            ident(column),
            ident(status),
            literal(word)
        )
    };
    let column = |column: &str, kind: &str| {
        format!("alter table {table} add column if not exists {} {kind};\n", ident(column))
    };
    [
        "set local lock_timeout = '10s';\n".to_owned(),
        column(claimed_at, "timestamptz"),
        column(claim, "bigint"),
        index(order, &states.waiting, "waiting"),
        index(claimed_at, &states.claimed, "claimed"),
    ]
    .concat()
}

/// Shortens a name: Postgres cuts names at 63 bytes, and two long ones could then be equal.
pub(crate) fn short(name: &str) -> String {
    if name.len() <= 63 {
        return name.to_owned();
    }
    let hash = super::statements::gate_key(name).cast_unsigned();
    let tail: String = name.chars().rev().take(30).collect::<Vec<_>>().into_iter().rev().collect();
    let mut tail = tail;
    while tail.len() > 50 {
        tail.remove(0);
    }
    format!("x{hash:08x}_{tail}")
}
