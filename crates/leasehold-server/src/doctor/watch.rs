//! Monitoring: are samples taken and evaluated, are alarms delivered, and which are active?

use super::finding::{Finding, Level, Trouble, check, together};
use crate::cli::Db;
use crate::exit::Failure;
use crate::text::{one_line, seconds};

/// A sample is due every minute; after three missed ones, sampling has stopped. Seconds.
const LATE: f64 = 180.0;
/// The last bucket began a minute before its sample was taken. Seconds.
const OLD_BUCKET: f64 = LATE + 120.0;
/// A canary is due every minute. Seconds.
const SILENT: f64 = 300.0;
/// Vacuum held back for longer raises an alarm. Seconds.
const HELD_BACK: f64 = 900.0;
/// A process that delivers alarms registers every hour. Seconds.
const RECEIVER_GONE: f64 = 7200.0;
/// A notification that has waited this long is reported. Seconds.
const NOTIFY_OVERDUE: f64 = 600.0;

pub async fn examine(db: &Db) -> Vec<Finding> {
    vec![
        check("measuring", measuring(db)).await,
        check("judging", judging(db)).await,
        check("alarms", alarms(db)).await,
        check("telling", telling(db)).await,
        check("canaries", canaries(db)).await,
        check("vacuum", vacuum(db)).await,
    ]
}

/// SQL for the seconds since the last sampled bucket began.
const LAST_BUCKET: &str = "(select extract(epoch from statement_timestamp() - m.at)::float8 \
      from leasehold.measure m where m.at >= statement_timestamp() - interval '1 day' \
       and m.kind = 'database' and m.subject = '' and m.metric = 'sampled' order by m.at desc limit 1)";

async fn measuring(db: &Db) -> Result<Finding, Failure> {
    let name = "measuring";
    let sql = format!(
        "select case when isfinite(d.ran_at) then \
                    extract(epoch from statement_timestamp() - d.ran_at) end::float8, \
                {LAST_BUCKET}, \
                (select count(*) from leasehold.worker_state w where w.state = 'alive'), \
                (select count(*) from leasehold.worker_state w where w.state = 'alive' \
                    and w.started_at < statement_timestamp() - make_interval(secs => {LATE})) \
           from leasehold.duty d where d.name = 'measure'"
    );
    let row = db.one(&sql, &[]).await?;
    let (taken, bucket): (Option<f64>, Option<f64>) = (row.get(0), row.get(1));
    let (workers, settled): (i64, i64) = (row.get(2), row.get(3));
    let silence = "nothing is measured, and no alarm can be raised";
    Ok(match (taken, bucket) {
        (Some(taken), None) if taken <= LATE => written_nowhere(name),
        (Some(taken), Some(bucket)) if taken <= LATE && bucket > OLD_BUCKET => {
            written_nowhere(name)
        }
        (Some(taken), _) if taken <= LATE => {
            Finding::ok(name, format!("the last sample was taken {} ago", seconds(taken)))
        }
        (None, _) if settled == 0 => Finding::ok(
            name,
            match workers {
                0 => "nothing was ever measured; the first worker begins with it",
                _ => "nothing was ever measured; a worker has just begun",
            },
        ),
        (taken, _) => {
            let since = match taken {
                Some(taken) => format!("for {}", seconds(taken)),
                None => "ever".to_owned(),
            };
            match settled {
                0 => Finding::warn(
                    name,
                    format!("no sample was taken {since}, and no worker runs: {silence}"),
                    "start a worker; one with housekeeping (without --no-housekeeping) takes the samples",
                ),
                _ => Finding::fail(
                    name,
                    format!("no sample was taken {since}, although workers run: {silence}"),
                    "one of them must keep house (no --no-housekeeping); if one does, its log says why the sample fails (20s are allowed)",
                ),
            }
        }
    })
}

fn written_nowhere(name: &'static str) -> Finding {
    Finding::fail(
        name,
        "samples are taken, but their minutes are not in leasehold.measure: something makes the writes vanish",
        "look for triggers, rules and row policies on leasehold.measure, and remove them",
    )
}

/// Checks that samples are evaluated: each evaluation records its time, whatever it finds.
async fn judging(db: &Db) -> Result<Finding, Failure> {
    let sql = "select case when isfinite(d.ran_at) then \
                      extract(epoch from d.ran_at - j.ran_at) end::float8, \
                      extract(epoch from statement_timestamp() - j.ran_at)::float8, \
                      exists (select from leasehold.measure m \
                               where m.at < statement_timestamp() - interval '5 minutes' limit 1) \
                 from leasehold.duty d left join leasehold.duty j on j.name = 'judge' \
                where d.name = 'measure'";
    let row = db.one(sql, &[]).await?;
    let (behind, judged, long): (Option<f64>, Option<f64>, bool) =
        (row.get(0), row.get(1), row.get(2));
    let advice = "samples come from a worker of another release, or whoever takes them is cut off before it judges: look at the versions with leasehold workers, and at the log for \"alarms were not judged\"";
    Ok(match (behind, judged) {
        (Some(behind), _) if behind > LATE => Finding::fail(
            "judging",
            format!(
                "samples of the last {} were not judged: alarms are neither raised nor cleared",
                seconds(behind)
            ),
            advice,
        ),
        (_, Some(judged)) => Finding::ok(
            "judging",
            format!("the last sample was judged; that was {} ago", seconds(judged)),
        ),
        (_, None) if long => Finding::fail(
            "judging",
            "samples are taken and were never judged: alarms are not raised",
            advice,
        ),
        (_, None) => Finding::ok("judging", "there is nothing to judge yet"),
    })
}

async fn alarms(db: &Db) -> Result<Finding, Failure> {
    let sql = "select a.id, a.rule, a.subject, a.state, \
                      extract(epoch from statement_timestamp() - a.raised_at)::float8, a.summary \
                 from leasehold.alarm_state a where a.cleared_at is null \
                order by a.state = 'open' desc, a.raised_at limit 200";
    let rows = db.query(sql, &[]).await?;
    let (mut troubles, mut seen) = (Vec::new(), Vec::new());
    for row in &rows {
        let (id, rule, subject): (i64, &str, &str) = (row.get(0), row.get(1), row.get(2));
        let (state, age, summary): (&str, f64, &str) = (row.get(3), row.get(4), row.get(5));
        let which = format!("{id} {rule} {subject}").trim_end().to_owned();
        match state {
            "open" => troubles.push(Trouble::new(
                format!("{which}, for {}: {}", seconds(age), one_line(summary, 600)),
                "what it means: leasehold alarms show ID; when somebody looks after it: leasehold alarms ack ID --why …",
            )),
            _ => seen.push(format!("{which} ({state})")),
        }
    }
    let found = together("alarms", Level::Warn, &troubles);
    Ok(found.unwrap_or_else(|| match seen.is_empty() {
        true => Finding::ok("alarms", "none is up"),
        false => Finding::ok("alarms", format!("somebody looks after: {}", seen.join(", "))),
    }))
}

/// Checks that receivers of alarms are registered, and that notifications reach them.
async fn telling(db: &Db) -> Result<Finding, Failure> {
    let name = "telling";
    let sql = "select r.job_name, extract(epoch from statement_timestamp() - r.seen_at)::float8 \
                 from leasehold.alarm_receiver r \
                where r.seen_at > statement_timestamp() - interval '7 days' order by 1";
    let receivers = db.query(sql, &[]).await?;
    let sql = "select count(*), max(extract(epoch from statement_timestamp() - j.enqueued_at))::float8, \
                      max(j.attempts) \
                 from (select * from leasehold.job where queue = 'leasehold.alarms' limit 10000) j";
    let row = db.one(sql, &[]).await?;
    let (waiting, oldest): (i64, Option<f64>) = (row.get(0), row.get(1));
    let attempts: Option<i32> = row.get(2);
    let (mut troubles, mut words) = (Vec::new(), Vec::new());
    for row in &receivers {
        let (job, age): (&str, f64) = (row.get(0), row.get(1));
        match age > RECEIVER_GONE {
            true => troubles.push(Trouble::new(
                format!("{job}: whoever carries these was last seen {} ago", seconds(age)),
                "start it again (leasehold serve or console with --alarm-webhook or --alarm-command); after a week it is forgotten",
            )),
            false => words.push(job.to_owned()),
        }
    }
    if let Some(oldest) = oldest.filter(|oldest| *oldest > NOTIFY_OVERDUE) {
        troubles.push(Trouble::new(
            format!(
                "{waiting} words about alarms wait, the oldest for {}, tried up to {} times",
                seconds(oldest),
                attempts.unwrap_or(0)
            ),
            "see why: leasehold jobs list --queue leasehold.alarms; try the way with: leasehold alarms test",
        ));
    }
    let found = together(name, Level::Warn, &troubles);
    Ok(found.unwrap_or_else(|| match words.is_empty() {
        true => Finding::ok(
            name,
            "nobody is told by webhook or command; the console, /metrics and leasehold alarms show what is up",
        ),
        false => Finding::ok(name, words.join(", ")),
    }))
}

/// Checks that a queue that had canaries still has them. The recorded minutes show when; it costs one
/// index lookup per minute.
async fn canaries(db: &Db) -> Result<Finding, Failure> {
    let name = "canaries";
    let sql = format!(
        "select w.queue, extract(epoch from statement_timestamp() - last.at)::float8, \
                extract(epoch from statement_timestamp() - j.at)::float8, \
                q.paused_at is not null, {LAST_BUCKET} \
           from (select * from leasehold.watch where not off and min_completed > 0 order by queue limit 50) w \
           left join leasehold.queue q on q.name = w.queue \
          cross join lateral (select min(scheduled_at) as at from leasehold.job \
                where queue = w.queue and name = 'leasehold.canary') j \
          cross join lateral (select max(g.minute) as at \
                from generate_series(date_trunc('minute', statement_timestamp()) - interval '24 hours', \
                         date_trunc('minute', statement_timestamp()), interval '1 minute') as g (minute) \
                where exists (select from leasehold.measure m where m.at = g.minute and m.kind = 'tag' \
                        and m.subject in (leasehold.tag_subject(w.queue, 'leasehold.canary'), \
                                          leasehold.tag_subject(w.queue, '(others)')) \
                        and m.metric = 'completed')) last \
          order by w.queue"
    );
    let rows = db.query(&sql, &[]).await?;
    let (mut troubles, mut words) = (Vec::new(), Vec::new());
    for row in &rows {
        let (queue, last, waits): (&str, Option<f64>, Option<f64>) =
            (row.get(0), row.get(1), row.get(2));
        let (paused, bucket): (bool, Option<f64>) = (row.get(3), row.get(4));
        match (last, waits, bucket) {
            _ if paused => words.push(format!("{queue} is paused")),
            (None, None, _) => words.push(format!("{queue} has none")),
            (_, Some(waits), _) if waits > SILENT => troubles.push(Trouble::new(
                format!("{queue}: one has waited for {}, and no worker takes it", seconds(waits)),
                "start a worker for the queue, of any kind: every one completes canaries",
            )),
            (None, Some(_), _) => words.push(format!("{queue} has just begun")),
            (Some(_), _, bucket) if bucket.is_none_or(|bucket| bucket > OLD_BUCKET) => {
                troubles.push(Trouble::new(
                    format!("{queue}: cannot be told while nothing is measured"),
                    "see measuring, above",
                ));
            }
            (Some(last), _, Some(bucket)) if last - bucket > SILENT => {
                troubles.push(Trouble::new(
                    format!("{queue}: none came for {}: its producer is gone", seconds(last)),
                    "start the process that fills the queue (leasehold serve); if it is gone for good: leasehold alarms unwatch QUEUE",
                ));
            }
            _ => words.push(format!("{queue} is alive")),
        }
    }
    let found = together(name, Level::Warn, &troubles);
    Ok(found.unwrap_or_else(|| match rows.is_empty() {
        true => Finding::ok(name, "no queue is watched"),
        false => Finding::ok(name, words.join(", ")),
    }))
}

/// Checks what keeps dead rows from being removed, including slots and standbys, which are no sessions.
async fn vacuum(db: &Db) -> Result<Finding, Failure> {
    let sql = "select h.who, h.remedy, h.age from leasehold.vacuum_holders() h where h.age > $1";
    let limit = [(&HELD_BACK as _, tokio_postgres::types::Type::FLOAT8)];
    let troubles: Vec<Trouble> = db
        .query(sql, &limit)
        .await?
        .iter()
        .map(|row| {
            let text = format!("{}, for {}", row.get::<_, &str>(0), seconds(row.get(2)));
            Trouble::new(text, row.get::<_, &str>(1))
        })
        .collect();
    let found = together("vacuum", Level::Warn, &troubles);
    Ok(found.unwrap_or_else(|| Finding::ok("vacuum", "nothing has held it back for 15 minutes")))
}
