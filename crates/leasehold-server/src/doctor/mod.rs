//! `leasehold doctor`: looks for problems, and advises what to do about them.
//!
//! # Invariants
//! - Doctor changes nothing, except for the self-test, which runs one job in its own queue and cleans
//!   up.
//! - A check that lacks rights warns; it does not pass.
//! - Warnings do not fail: the exit code is 1 only if a guarantee is broken.

mod finding;
mod index;
mod mirrors;
mod pastes;
mod path;
mod schema;
mod self_test;
mod server;
mod sweeps;
mod watch;
mod work;

use std::process::ExitCode;

use leasehold::database::Database;

use crate::cli::{Common, Db, address};
use crate::exit::{Code, Failure};
use crate::output::{Format, Out, Style};
use finding::{Finding, Level};

#[derive(clap::Args, Debug)]
#[command(after_help = HELP)]
pub struct Args {
    /// Skip the self-test, which is the only check that writes
    #[arg(long)]
    no_self_test: bool,
    /// Check whether other users can read this directory of the search index of annotations
    #[arg(long, env = "LEASEHOLD_ANNOTATIONS_INDEX", value_name = "DIR")]
    annotations_index: Option<std::path::PathBuf>,
}

const HELP: &str = "\
Exits with 0 if every check passed or warned, with 1 if one failed, with 6 if the database cannot be \
reached.

Example:
  leasehold doctor --json | jq '.checks[] | select(.level != \"ok\")'";

pub async fn run(args: Args, common: &Common) -> Result<ExitCode, Failure> {
    let out = common.out();
    let (findings, unreachable) = examine(&args, common).await?;
    report(out, &findings)?;
    let failed = findings.iter().filter(|finding| finding.level == Level::Fail).count();
    Ok(match (unreachable, failed) {
        (true, _) => Code::Unreachable.into(),
        (false, 0) => ExitCode::SUCCESS,
        (false, _) => Code::Failed.into(),
    })
}

/// The longest statement of a check.
const CHECK_LIMIT: std::time::Duration = std::time::Duration::from_secs(5);

async fn examine(args: &Args, common: &Common) -> Result<(Vec<Finding>, bool), Failure> {
    let found = common.address()?;
    // A standby is examined, too: the finding is that it is one.
    let database = found.database.for_reading();
    let address = address::describe(database.config());
    let connecting = async {
        let pooled = database.probe_pooler().await?;
        Ok::<_, leasehold::ConnectError>((pooled, database.connect().await?))
    };
    let (pooled, session) = match connecting.await {
        Ok(connected) => connected,
        Err(error) => {
            let advice = format!("start the server, or correct {}; tried {address}", found.origin);
            return Ok((vec![Finding::fail("reachable", error.to_string(), advice)], true));
        }
    };
    // A check that takes longer is reported as one that could not run: doctor must end on a busy database.
    let db = Db::new(session, common.timeout().min(CHECK_LIMIT));
    let db = if database.is_pooled() { db } else { db.limited().await? };
    let mut findings =
        vec![Finding::ok("reachable", format!("{address}, named by {}", found.origin))];
    findings.extend(server::examine(&db, pooled).await);
    findings.extend(index::examine(args.annotations_index.as_deref()));
    findings.extend(path::examine(&db, &database).await);
    let usable = schema::examine(&db, &mut findings).await;
    if usable {
        findings.extend(work::examine(&db).await);
        findings.extend(sweeps::examine(&db).await);
        findings.extend(mirrors::examine(&db).await);
        findings.extend(pastes::examine(&db).await);
        findings.extend(watch::examine(&db).await);
        if !args.no_self_test && is_primary(&database).await {
            findings.push(self_test::run(&db).await);
        }
    }
    Ok((findings, false))
}

async fn is_primary(database: &Database) -> bool {
    match database.connect().await {
        Ok(session) => Database::check_server(&session).await.is_ok(),
        Err(_) => false,
    }
}

fn report(out: Out, findings: &[Finding]) -> Result<(), Failure> {
    let worst = |level| findings.iter().filter(|finding| finding.level == level).count();
    let (failed, warned) = (worst(Level::Fail), worst(Level::Warn));
    match out.format {
        Format::Table => {
            for finding in findings {
                out.print(&finding.text(out))?;
            }
            let passed = findings.len() - failed - warned;
            let warnings = crate::text::count(warned, "warning");
            let summary = format!("{passed} ok, {warnings}, {failed} failed");
            let style = if failed > 0 { Style::Bad } else { Style::Good };
            out.painted_note(out.paint_note(style, &summary));
            Ok(())
        }
        Format::Json => out.document(serde_json::json!({ "ok": failed == 0, "checks": findings })),
        Format::Ndjson => out.list("checks", findings, |_| crate::output::Columns::new(&[])),
    }
}
