//! Waits until one job is over.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use tokio_postgres::types::Type;

use super::db::Db;
use super::filter::Question;
use crate::exit::{Code, Failure};
use crate::output::Out;

/// The polling intervals: short at first, then doubling.
const SOONEST: Duration = Duration::from_millis(50);
const LATEST: Duration = Duration::from_secs(1);

pub async fn until_over(
    db: &Db,
    out: Out,
    id: i64,
    limit: Option<Duration>,
) -> Result<ExitCode, Failure> {
    let begin = Instant::now();
    let (mut pause, mut warned) = (SOONEST, false);
    let mut failures = 0;
    loop {
        let row = db.one(include_str!("../queries/job_over.sql"), &[(&id, Type::INT8)]).await?;
        let state: String = row.get("state");
        if let Some(attempts) = row.get::<_, Option<i32>>("attempts").filter(|n| *n != failures) {
            failures = attempts;
            let next_in: Option<f64> = row.get("next_in");
            let why: Option<String> = row.get("last_error");
            out.note(failed(id, attempts, &why.unwrap_or_default(), next_in.unwrap_or_default()));
        }
        if state != "pending" && state != "processing" {
            return judge(db, out, id, &state, begin.elapsed()).await;
        }
        if !warned && begin.elapsed() > Duration::from_secs(2) {
            warned = true;
            warn_when_nobody_works(db, out, id).await?;
        }
        let left = limit.map_or(Duration::MAX, |limit| limit.saturating_sub(begin.elapsed()));
        if left.is_zero() {
            let waited = crate::text::length(begin.elapsed());
            return Err(Failure::timeout(format!(
                "job {id} is not over after {waited}; it is {state}"
            ))
            .hint(format!("it goes on without us; look at it: leasehold jobs show {id}")));
        }
        tokio::time::sleep(pause.min(left)).await;
        pause = (pause * 2).min(LATEST);
    }
}

/// Describes a job that failed and is retried.
fn failed(id: i64, times: i32, why: &str, next_in: f64) -> String {
    let times = if times == 1 { "once".to_owned() } else { format!("{times} times") };
    let why = crate::text::one_line(why, 200);
    let next = Duration::try_from_secs_f64(next_in).unwrap_or_default();
    format!("job {id} failed {times} ({why}); next attempt in {}", crate::text::length(next))
}

async fn judge(
    db: &Db,
    out: Out,
    id: i64,
    state: &str,
    after: Duration,
) -> Result<ExitCode, Failure> {
    if state == "done" {
        out.note(format!("job {id} is done, {} after the enqueue", crate::text::length(after)));
        return Ok(ExitCode::SUCCESS);
    }
    let record = Question::ids(&[id]).ask(db).await?.into_iter().next();
    let why = record.and_then(|record| record.last_error.or(record.note)).unwrap_or_default();
    let why = crate::text::printable(&why);
    Err(match state {
        "cancelled" => Failure::new(Code::Failed, format!("job {id} was cancelled: {why}")),
        _ => Failure::new(Code::Failed, format!("job {id} died: {why}")).hint(format!(
            "look at it: leasehold jobs show {id}; run it again: leasehold dead redrive {id}"
        )),
    })
}

async fn warn_when_nobody_works(db: &Db, out: Out, id: i64) -> Result<(), Failure> {
    let sql = "select j.queue, j.name, q.paused_at is not null, \
                 exists (select from leasehold.worker_state w where w.state = 'alive' \
                           and j.queue = any (w.queues) and j.name = any (w.names)) \
               from leasehold.job j left join leasehold.queue q on q.name = j.queue where j.id = $1";
    if let Some(row) = db.query(sql, &[(&id, Type::INT8)]).await?.first() {
        let (queue, name): (String, String) = (row.get(0), row.get(1));
        if row.get(2) {
            out.note(format!(
                "queue {queue} is paused; resume it with: leasehold queues resume {queue}"
            ));
        } else if !row.get::<_, bool>(3) {
            out.note(format!("no live worker handles {name} in queue {queue}; still waiting"));
        }
    }
    Ok(())
}
