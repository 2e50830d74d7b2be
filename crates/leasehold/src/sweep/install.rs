//! Adds to a table what a sweep needs.

use tokio_postgres::Client;

use super::declare::Sweep;
use super::prepare::SweepError;
use crate::error::CallError;
use crate::table::{quote_literal, quote_name, quote_table, short_name};

impl Sweep {
    /// Adds the columns and the two partial indexes that are missing, in one transaction. For
    /// migrations: it locks the table while it builds the indexes. What exists stays as it is.
    pub async fn install(&self, client: &mut Client) -> Result<(), SweepError> {
        let script = self.install_sql()?;
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
    let table = quote_table(&sweep.table);
    let index = |column: &str, word: &str, what: &str| {
        format!(
            "create index if not exists {} on {table} ({}) where {} = {};\n",
            quote_name(&short_name(&format!("{bare}_{status}_{what}_idx"))),
            quote_name(column),
            quote_name(status),
            quote_literal(word)
        )
    };
    let column = |column: &str, kind: &str| {
        format!("alter table {table} add column if not exists {} {kind};\n", quote_name(column))
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
