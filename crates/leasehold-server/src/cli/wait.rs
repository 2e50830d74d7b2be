//! Waiting for one job to be over.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use tokio_postgres::types::Type;

use super::db::Db;
use super::filter::Question;
use crate::exit::{Code, Failure};
use crate::output::Out;

/// The database is asked this often: soon at first, then less and less.
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
    loop {
        let state: String =
            db.one(include_str!("../queries/job_over.sql"), &[(&id, Type::INT8)]).await?.get(0);
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
