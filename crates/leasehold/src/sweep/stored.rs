//! Sweeps by name, for operators who have access to the database but not the program.

use std::time::Duration;

use tokio_postgres::types::Type;

use super::declare::{States, Sweep};
use super::prepare::{CALL_LIMIT, Prepared, SweepError};
use super::watchdog::{WatchdogReport, run_once};
use crate::Leasehold;
use crate::link::Link;

/// How the watchdog of a named sweep was run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub enum WatchdogRun {
    /// Here, with the rights of the caller's role.
    Ran(WatchdogReport),
    /// The workers of the sweep were asked; they react within a second.
    Asked,
}

/// Runs the watchdog of a declared sweep once. None: there is no such sweep.
///
/// It runs here only if the caller's role declared the sweep. An update of a table runs its triggers
/// and policies with the caller's rights, and the role that declared the sweep chose the table.
/// So the workers of any other sweep are asked instead. `actor` is recorded in the audit log.
#[doc(hidden)]
pub async fn run_watchdog(
    engine: &Leasehold,
    name: &str,
    actor: &str,
) -> Result<Option<WatchdogRun>, SweepError> {
    let link = Link::new(engine.database().clone(), CALL_LIMIT);
    let sql = "select table_name, key_column, order_column, status_column, waiting, claimed, done, \
                      claimed_at_column, claim_column, watchdog_most, \
                      extract(epoch from watchdog_after)::float8 \
                 from leasehold_internal.sweep where name = $1 and declared_by = current_user";
    let rows = link.query(sql, &[(&name, Type::TEXT)]).await?;
    let Some(row) = rows.first() else { return ask(&link, name, actor).await };
    let text = |at: usize| row.get::<_, String>(at);
    let most = u32::try_from(row.get::<_, i64>(9)).unwrap_or(u32::MAX);
    let sweep = Sweep::new(name, text(0))
        .key(text(1))
        .order_by(text(2))
        .status(text(3), States::new(text(4), text(5), text(6)))
        .claimed_at(text(7))
        .claim(text(8))
        .watchdog_most(most)
        .watchdog_after(Duration::try_from_secs_f64(row.get(10)).unwrap_or(Duration::MAX))
        // The program has the `due` condition; the watchdog does not use it.
        .due("false");
    let prepared = Prepared::of_table(&sweep, &link).await?;
    let report = run_once(&prepared, &prepared.link(engine)).await?;
    Ok(Some(WatchdogRun::Ran(report)))
}

async fn ask(link: &Link, name: &str, actor: &str) -> Result<Option<WatchdogRun>, SweepError> {
    let sql = "select leasehold_internal.run_watchdog($1, $2)";
    let rows = link.query(sql, &[(&name, Type::TEXT), (&actor, Type::TEXT)]).await?;
    Ok(rows.first().filter(|row| row.get(0)).map(|_| WatchdogRun::Asked))
}
