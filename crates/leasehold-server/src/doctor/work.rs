//! Jobs: does any wait that no worker will ever claim?

use leasehold::admin::{JobFilter, WorkerState, diagnosis};

use super::finding::{Finding, Level, Trouble, check, together};
use crate::cli::Db;
use crate::exit::Failure;
use crate::text::{count, one_line, seconds};

pub async fn examine(db: &Db) -> Vec<Finding> {
    vec![
        check("workers", idle_queues(db)).await,
        check("handlers", unhandled_names(db)).await,
        check("leases", late_leases(db)).await,
        check("locked jobs", locked_jobs(db)).await,
        check("dead jobs", dead_jobs(db)).await,
        check("schedules", schedules(db)).await,
    ]
}

async fn idle_queues(db: &Db) -> Result<Finding, Failure> {
    let queues = db.within(db.queues().list()).await?;
    let (mut idle, mut paused) = (Vec::new(), Vec::new());
    let ready_anywhere = queues.iter().any(|queue| queue.ready > 0);
    for found in &queues {
        let (queue, ready) = (&found.queue, found.ready);
        match (ready, found.workers, found.paused_at.is_some()) {
            (0, ..) => {}
            (_, _, true) => paused.push(format!("{queue} is paused with {ready} ready")),
            (_, 0, false) => idle.push(format!("{queue} has {ready} ready and no live worker")),
            _ => {}
        }
    }
    let words = first_lines(&[idle.clone(), paused].concat());
    Ok(match (idle.is_empty(), words.is_empty()) {
        (true, true) if !ready_anywhere => Finding::ok("workers", "not checked: no job is ready"),
        (true, true) => Finding::ok("workers", "every queue with ready jobs has a live worker"),
        (true, false) => Finding::warn(
            "workers",
            words,
            "once the reason is gone: leasehold queues resume QUEUE",
        ),
        (false, _) => {
            Finding::warn("workers", words, "start a worker for the queue, or cancel the jobs")
        }
    })
}

/// The most lines of one check.
const MOST_LINES: usize = 10;

/// Joins the first lines, and adds how many more there are.
fn first_lines(lines: &[String]) -> String {
    let mut text = lines.iter().take(MOST_LINES).cloned().collect::<Vec<_>>().join("\n");
    if let more @ 1.. = lines.len().saturating_sub(MOST_LINES) {
        text.push_str(&format!("\nand {more} more"));
    }
    text
}

async fn unhandled_names(db: &Db) -> Result<Finding, Failure> {
    let workers = db.within(db.workers().list(false)).await?;
    if !workers.iter().any(|worker| worker.state == WorkerState::Alive) {
        return Ok(Finding::ok("handlers", "not checked: no live worker"));
    }
    let rows = db.query(diagnosis::UNHANDLED_NAMES, &[]).await?;
    let lines: Vec<String> = rows
        .iter()
        .map(|row| format!("{} in queue {}", one_line(row.get(1), 80), row.get::<_, &str>(0)))
        .collect();
    Ok(match lines.is_empty() {
        true => Finding::ok("handlers", "live workers handle every waiting name"),
        false => Finding::warn(
            "handlers",
            format!("no live worker handles:\n{}", first_lines(&lines)),
            "deploy a worker that handles the name, or cancel the jobs: leasehold jobs cancel --name NAME",
        ),
    })
}

async fn late_leases(db: &Db) -> Result<Finding, Failure> {
    let row = db.one(diagnosis::LATE_LEASES, &[]).await?;
    let (late, oldest): (i64, Option<f64>) = (row.get(0), row.get(1));
    Ok(match late {
        0 => Finding::ok("leases", "no expired lease waits to be reclaimed"),
        late => Finding::warn(
            "leases",
            format!(
                "{} expired, the oldest {} ago, without a reclaim: no worker runs housekeeping, or a transaction locks their jobs",
                count(usize::try_from(late).unwrap_or(usize::MAX), "lease"),
                seconds(oldest.unwrap_or(0.0))
            ),
            "start a worker with housekeeping; then look for old transactions",
        ),
    })
}

/// Finds jobs long due that another transaction has locked: claims skip them as long as it is open.
async fn locked_jobs(db: &Db) -> Result<Finding, Failure> {
    let rows = db.query(diagnosis::LOCKED_JOBS, &[]).await?;
    let ids: Vec<String> = rows.iter().map(|row| row.get::<_, i64>(0).to_string()).collect();
    Ok(match ids.is_empty() {
        true => Finding::ok("locked jobs", "none"),
        false => Finding::warn(
            "locked jobs",
            format!(
                "{} due for more than a minute and locked by a transaction: {}",
                count(ids.len(), "job"),
                ids.join(", ")
            ),
            "claims skip them until the transaction ends: see old transactions",
        ),
    })
}

/// Finds schedules that code no longer declares. Removing the code does not remove the schedule: another
/// worker may still declare it.
async fn schedules(db: &Db) -> Result<Finding, Failure> {
    let (schedules, now) = (db.within(db.schedules().list()).await?, db.now().await?);
    let troubles: Vec<Trouble> = schedules
        .iter()
        .filter(|schedule| schedule.undeclared)
        .filter_map(|schedule| Some((schedule, schedule.last_declared_at?)))
        .map(|(schedule, declared_at)| {
            let by = one_line(schedule.declared_by.as_deref().unwrap_or("?"), 80);
            let age = seconds(now.duration_since(declared_at).as_secs_f64());
            let text = format!(
                "{} still fires, and worker {by} last declared it {age} ago",
                schedule.name
            );
            Trouble::new(
                text,
                "remove it: leasehold schedules remove NAME; or start the worker that declares it",
            )
        })
        .collect();
    let found = together("schedules", Level::Warn, &troubles);
    Ok(found.unwrap_or_else(|| {
        Finding::ok("schedules", "running workers declare every schedule that code declared")
    }))
}

async fn dead_jobs(db: &Db) -> Result<Finding, Failure> {
    let dead = db.within(db.dead().count(&JobFilter::any(), 100_001)).await?;
    Ok(match dead {
        0 => Finding::ok("dead jobs", "none"),
        dead => {
            let words =
                if dead > 100_000 { "more than 100000".to_owned() } else { dead.to_string() };
            Finding::ok("dead jobs", format!("{words} kept; see: leasehold dead list"))
        }
    })
}
