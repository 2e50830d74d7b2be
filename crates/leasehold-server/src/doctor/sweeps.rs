//! Sweeps: do workers run them, and do rows stay claimed without a worker?

use leasehold::admin::diagnosis;

use super::finding::{Finding, Level, Trouble, together};
use crate::cli::Db;
use crate::exit::Failure;
use crate::text::seconds;

/// A run, or a watchdog, that no worker has started for this long is reported. Seconds.
const LATE: f64 = 300.0;

/// Returns nothing if there are no sweeps.
pub async fn examine(db: &Db) -> Vec<Finding> {
    match read(db).await {
        Ok(found) => Vec::from_iter(found),
        Err(failure) => vec![Finding::unknown("sweeps", &failure)],
    }
}

async fn read(db: &Db) -> Result<Option<Finding>, Failure> {
    let rows = db.query(diagnosis::SWEEPS, &[]).await?;
    let mut troubles = Vec::new();
    for row in &rows {
        let (sweep, state): (&str, &str) = (row.get(0), row.get(1));
        let (late, unwatched): (f64, f64) = (row.get(3), row.get(4));
        let (stuck, dead, there): (Option<f64>, i64, bool) = (row.get(5), row.get(6), row.get(7));
        if !there {
            troubles.push(Trouble::new(
                format!("{sweep}: its table {} does not exist", row.get::<_, &str>(8)),
                format!("if the table was dropped on purpose: leasehold sweeps forget {sweep}"),
            ));
            continue;
        }
        if state == "paused" {
            let by: Option<&str> = row.get(2);
            troubles.push(Trouble::new(
                format!("{sweep}: paused by {}", by.unwrap_or("?")),
                "once the reason is gone: leasehold sweeps resume SWEEP",
            ));
        } else if state == "due" && late > LATE {
            troubles.push(Trouble::new(
                format!("{sweep}: due for {}, and no worker starts it", seconds(late)),
                "start a worker that declares the sweep (leasehold serve for pastes)",
            ));
        } else if unwatched > LATE {
            troubles.push(Trouble::new(
                format!("{sweep}: its watchdog has been due for {}", seconds(unwatched)),
                "start a worker that declares the sweep: rows of dead workers stay claimed until then",
            ));
        }
        if let Some(stuck) = stuck.filter(|stuck| *stuck > 0.0) {
            troubles.push(Trouble::new(
                format!("{sweep}: {stuck} rows are claimed past the watchdog limit"),
                "see: leasehold sweeps show SWEEP; the watchdog of a worker resets them",
            ));
        }
        if dead > 0 {
            troubles.push(Trouble::new(
                format!("{sweep}: {dead} rows are dead"),
                format!("list them: leasehold sweeps dead {sweep}; once the cause is fixed: leasehold sweeps redrive {sweep}"),
            ));
        }
    }
    if rows.is_empty() {
        return Ok(None);
    }
    let found = together("sweeps", Level::Warn, &troubles);
    Ok(Some(
        found.unwrap_or_else(|| Finding::ok("sweeps", "every sweep runs, and no row is stuck")),
    ))
}
