//! Mirrors: does every change reach them, and do checks prove that they are equal?

use leasehold::admin::diagnosis;

use super::finding::{Finding, Level, Trouble, check, together};
use crate::cli::Db;
use crate::exit::Failure;
use crate::text::seconds;

/// A check has stopped if no worker took its next range for this long. Seconds.
const STILL: f64 = 300.0;
/// A mirror is reported if no check found it equal for this long plus two rounds. Seconds.
const UNEQUAL: f64 = 3600.0;
/// The threshold of the alarm. Seconds.
const DIFFERS: f64 = 600.0;

/// Returns nothing if there are no mirrors.
pub async fn examine(db: &Db) -> Vec<Finding> {
    match db.query(diagnosis::MIRROR_CHECKS, &[]).await {
        Ok(rows) if rows.is_empty() => return Vec::new(),
        Ok(_) => {}
        Err(failure) => return vec![Finding::unknown("mirrors", &failure)],
    }
    vec![
        check("mirror triggers", triggers(db)).await,
        check("mirror check", running(db)).await,
        check("mirror equal", equal(db)).await,
    ]
}

/// Checks the triggers that enqueue jobs for changes. Reads the catalogue, which every role may.
async fn triggers(db: &Db) -> Result<Finding, Failure> {
    let rows = db.query(diagnosis::MIRROR_TRIGGERS, &[]).await?;
    let mut troubles = Vec::new();
    for row in &rows {
        let (mirror, table, there): (&str, &str, bool) = (row.get(0), row.get(1), row.get(2));
        if !there {
            troubles.push(Trouble::new(
                format!("{mirror}: its table {table} does not exist"),
                format!("if the table was dropped on purpose: leasehold mirrors forget {mirror}"),
            ));
            continue;
        }
        let quoted: &str = row.get(3);
        let (on, off): (Vec<&str>, Vec<&str>) = (row.get(4), row.get(5));
        for name in leasehold::mirror::trigger_names(mirror) {
            if off.contains(&name.as_str()) {
                troubles.push(Trouble::new(
                    format!("{mirror}: trigger {name} on {quoted} is disabled"),
                    format!("alter table {quoted} enable trigger \"{name}\""),
                ));
            } else if !on.contains(&name.as_str()) {
                troubles.push(Trouble::new(
                    format!("{mirror}: trigger {name} on {quoted} is missing"),
                    recreate(table),
                ));
            }
        }
    }
    let found = together("mirror triggers", Level::Fail, &troubles);
    Ok(found.unwrap_or_else(|| {
        Finding::ok("mirror triggers", format!("all four on each of {} tables", rows.len()))
    }))
}

/// Advises how to create the triggers of a table again.
fn recreate(table: &str) -> String {
    match table.split_once('.') {
        Some(("annotations", _)) => {
            "create it again: leasehold migrate up --service annotations; then compare everything: leasehold mirrors check MIRROR".to_owned()
        }
        _ => "create it again with Mirror::install, in a migration of your program; then compare everything: leasehold mirrors check MIRROR".to_owned(),
    }
}

/// Checks that a worker takes the next range when it is due.
async fn running(db: &Db) -> Result<Finding, Failure> {
    let rows = db.query(diagnosis::MIRROR_CHECKS, &[]).await?;
    let mut troubles = Vec::new();
    for row in &rows {
        let (mirror, rounds, late): (&str, i64, f64) = (row.get(0), row.get(1), row.get(2));
        if late > STILL {
            let so_far = if rounds == 0 {
                "no round was completed"
            } else {
                "earlier rounds were completed"
            };
            troubles.push(Trouble::new(
                format!("{mirror}: its check has not continued for {}; {so_far}", seconds(late)),
                "start a worker that declares the mirror (leasehold serve for annotations); its log shows whether the store responds",
            ));
        }
    }
    let found = together("mirror check", Level::Warn, &troubles);
    Ok(found.unwrap_or_else(|| Finding::ok("mirror check", "every mirror is being checked")))
}

/// Checks since when each mirror is equal, and for how long rows differ.
async fn equal(db: &Db) -> Result<Finding, Failure> {
    let rows = db.query(diagnosis::MIRROR_EQUALITY, &[]).await?;
    let (mut troubles, mut words) = (Vec::new(), Vec::new());
    for row in &rows {
        let (mirror, differences, differs): (&str, i64, Option<f64>) =
            (row.get(0), row.get(1), row.get(2));
        let (age, ever, round): (f64, bool, f64) = (row.get(3), row.get(4), row.get(5));
        let advice = format!(
            "list the rows: leasehold mirrors differences {mirror}; then dead jobs: leasehold dead list"
        );
        if let Some(differs) = differs.filter(|differs| *differs > DIFFERS) {
            let text = format!(
                "{mirror}: {differences} rows differ, the oldest for {}: repairs fail",
                seconds(differs)
            );
            troubles.push(Trouble::new(text, advice));
        } else if age > UNEQUAL + 2.0 * round {
            let since = if ever { "was last equal" } else { "was never equal, created" };
            troubles.push(Trouble::new(
                format!("{mirror}: {since} {} ago; {differences} rows differ", seconds(age)),
                advice,
            ));
        } else if ever {
            words.push(format!("{mirror} as of {} ago", seconds(age)));
        } else {
            words.push(format!("{mirror} is new and not checked yet"));
        }
    }
    let found = together("mirror equal", Level::Warn, &troubles);
    Ok(found.unwrap_or_else(|| Finding::ok("mirror equal", words.join("\n"))))
}
