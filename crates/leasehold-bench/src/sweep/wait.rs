//! Detects from outside when the sweep is over.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use indicatif::ProgressBar;
use leasehold::database::Session;

use super::check::count;
use super::layout::Layout;
use super::under_test::UnderTest;

const LOOK: Duration = Duration::from_millis(100);
/// The sweep updates its own count only now and then. The rows themselves are queried when that count is
/// this near to the end, and otherwise so rarely that it costs nothing.
const NEAR: u64 = 50_000;
const ASK_ROWS: Duration = Duration::from_secs(10);
/// A slower sweep is a fault, not a figure.
const SLOWEST_PER_SECOND: u64 = 200;
const UPLOADS: Duration = Duration::from_secs(60);

const FINISHED: &str = "select coalesce(max(rows_finished), 0) from leasehold_internal.sweep";

/// Reads at most one row while rows are left. Only rows of this benchmark: they expired a day ago.
const ROWS_LEFT: &str = "select (exists (select from pastes.pastes \
      where deletion_status = 'NOT_EXPIRED' and expires_at < now() - interval '12 hours') \
    or exists (select from pastes.pastes where deletion_status = 'DELETION_IN_PROGRESS' \
      and expires_at < now() - interval '12 hours'))::int::bigint";

const OBJECTS_LEFT: &str = "select (exists (select from leasehold.job where queue = 'pastes.objects') \
    or exists (select from pastes.contents where state = 'DOOMED'))::int::bigint";

/// Waits until every expired paste is deleted and every doomed object is gone. Returns when that was.
pub async fn swept(
    session: &Session,
    running: &mut UnderTest,
    layout: &Layout,
    bar: &ProgressBar,
) -> Result<Instant> {
    session.batch_execute("set statement_timeout = 0").await?;
    let deadline = Instant::now() + Duration::from_secs(120 + layout.rows / SLOWEST_PER_SECOND);
    let mut asked = Instant::now();
    loop {
        tokio::time::sleep(LOOK).await;
        running.ensure_working().await?;
        let finished = count(session, FINISHED).await?.max(0) as u64;
        bar.set_position(finished.min(layout.rows));
        if finished + NEAR >= layout.rows || asked.elapsed() > ASK_ROWS {
            asked = Instant::now();
            if count(session, ROWS_LEFT).await? == 0 {
                break;
            }
        }
        if Instant::now() > deadline {
            bail!("{finished} of {} rows in {:?}", layout.rows, deadline.elapsed());
        }
    }
    loop {
        let looked = Instant::now();
        running.ensure_working().await?;
        if count(session, OBJECTS_LEFT).await? == 0 {
            return Ok(looked);
        }
        if looked > deadline {
            bail!("all rows are deleted, but objects are left");
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Waits until the new pastes are uploaded, so that the store can be compared.
pub async fn uploaded(session: &Session) -> Result<()> {
    let deadline = Instant::now() + UPLOADS;
    let waiting = "select count(*) from pastes.pastes where status = 'IN_PROGRESS'";
    while count(session, waiting).await? > 0 {
        if Instant::now() > deadline {
            bail!("pastes still wait for their upload");
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}
