//! Monitoring: are samples taken and evaluated, are alarms delivered, and which are active?

use leasehold::alarm::Thresholds;

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
/// A process that delivers alarms registers every hour. Seconds.
const RECEIVER_GONE: f64 = 7200.0;
/// A notification that has waited this long is reported. Seconds.
const NOTIFY_OVERDUE: f64 = 600.0;

pub async fn examine(db: &Db) -> Vec<Finding> {
    vec![
        check("samples", samples(db)).await,
        check("evaluation", evaluation(db)).await,
        check("alarms", alarms(db)).await,
        check("notifications", notifications(db)).await,
        check("canaries", canaries(db)).await,
        check("vacuum", vacuum(db)).await,
    ]
}

/// SQL for the seconds since the last sampled bucket began.
const LAST_BUCKET: &str = "(select extract(epoch from statement_timestamp() - m.at)::float8 \
      from leasehold_internal.measure m where m.at >= statement_timestamp() - interval '1 day' \
       and m.kind = 'database' and m.subject = '' and m.metric = 'sampled' order by m.at desc limit 1)";

async fn samples(db: &Db) -> Result<Finding, Failure> {
    let name = "samples";
    let sql = format!(
        "select case when isfinite(d.ran_at) then \
                    extract(epoch from statement_timestamp() - d.ran_at) end::float8, \
                {LAST_BUCKET}, \
                (select count(*) from leasehold.workers w where w.state = 'alive'), \
                (select count(*) from leasehold.workers w where w.state = 'alive' \
                    and w.started_at < statement_timestamp() - make_interval(secs => {LATE})) \
           from leasehold_internal.duty d where d.name = 'measure'"
    );
    let row = db.one(&sql, &[]).await?;
    let (taken, bucket): (Option<f64>, Option<f64>) = (row.get(0), row.get(1));
    let (workers, settled): (i64, i64) = (row.get(2), row.get(3));
    let silence = "no alarm can be raised";
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
                0 => "no sample was ever taken; the first worker takes them",
                _ => "no sample was ever taken; a worker has just started",
            },
        ),
        (taken, _) => {
            let since = match taken {
                Some(taken) => format!("for {}", seconds(taken)),
                None => "yet".to_owned(),
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
                    "run one of them with housekeeping (without --no-housekeeping); if one does, its log shows why the sample fails (the limit is 20s)",
                ),
            }
        }
    })
}

fn written_nowhere(name: &'static str) -> Finding {
    Finding::fail(
        name,
        "samples are taken, but leasehold_internal.measure does not have them: their writes vanish",
        "remove triggers, rules and row policies from leasehold_internal.measure",
    )
}

/// Checks that samples are evaluated: each evaluation records its time, whatever it finds.
async fn evaluation(db: &Db) -> Result<Finding, Failure> {
    let sql = "select case when isfinite(d.ran_at) then \
                      extract(epoch from d.ran_at - j.ran_at) end::float8, \
                      extract(epoch from statement_timestamp() - j.ran_at)::float8, \
                      exists (select from leasehold_internal.measure m \
                               where m.at < statement_timestamp() - interval '5 minutes' limit 1) \
                 from leasehold_internal.duty d left join leasehold_internal.duty j on j.name = 'judge' \
                where d.name = 'measure'";
    let row = db.one(sql, &[]).await?;
    let (behind, judged, long): (Option<f64>, Option<f64>, bool) =
        (row.get(0), row.get(1), row.get(2));
    let advice = "compare the releases of the workers: leasehold workers list; and see the log of the process that takes samples: it may be cut off before it evaluates them";
    Ok(match (behind, judged) {
        (Some(behind), _) if behind > LATE => Finding::fail(
            "evaluation",
            format!(
                "samples of the last {} were not evaluated: alarms are neither raised nor cleared",
                seconds(behind)
            ),
            advice,
        ),
        (_, Some(judged)) => Finding::ok(
            "evaluation",
            format!("the last sample was evaluated {} ago", seconds(judged)),
        ),
        (_, None) if long => Finding::fail(
            "evaluation",
            "samples are taken, but were never evaluated: no alarm is raised",
            advice,
        ),
        (_, None) => Finding::ok("evaluation", "no sample to evaluate yet"),
    })
}

async fn alarms(db: &Db) -> Result<Finding, Failure> {
    let sql = "select a.id, a.rule, a.subject, a.state, \
                      extract(epoch from statement_timestamp() - a.raised_at)::float8, a.summary \
                 from leasehold.alarms a where a.cleared_at is null \
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
                "details: leasehold alarms show ID; to acknowledge it: leasehold alarms ack ID --why …",
            )),
            _ => seen.push(format!("{which} ({state})")),
        }
    }
    let found = together("alarms", Level::Warn, &troubles);
    Ok(found.unwrap_or_else(|| match seen.is_empty() {
        true => Finding::ok("alarms", "no active alarms"),
        false => Finding::ok("alarms", format!("handled by operators: {}", seen.join(", "))),
    }))
}

/// Checks that receivers of alarms are registered, and that notifications reach them.
async fn notifications(db: &Db) -> Result<Finding, Failure> {
    let name = "notifications";
    let sql = "select r.job_name, extract(epoch from statement_timestamp() - r.seen_at)::float8 \
                 from leasehold_internal.alarm_receiver r \
                where r.seen_at > statement_timestamp() - interval '7 days' order by 1";
    let receivers = db.query(sql, &[]).await?;
    let sql = "select count(*), max(extract(epoch from statement_timestamp() - j.enqueued_at))::float8, \
                      max(j.attempts) \
                 from (select * from leasehold.job where queue = 'leasehold.alarms' and limit_key is null limit 10000) j";
    let row = db.one(sql, &[]).await?;
    let (waiting, oldest): (i64, Option<f64>) = (row.get(0), row.get(1));
    let attempts: Option<i32> = row.get(2);
    let (mut troubles, mut words) = (Vec::new(), Vec::new());
    for row in &receivers {
        let (job, age): (&str, f64) = (row.get(0), row.get(1));
        match age > RECEIVER_GONE {
            true => troubles.push(Trouble::new(
                format!("{job}: its process was last seen {} ago", seconds(age)),
                "start it again (leasehold serve or console with --alarm-webhook or --alarm-command); after a week it is unregistered",
            )),
            false => words.push(job.to_owned()),
        }
    }
    if let Some(oldest) = oldest.filter(|oldest| *oldest > NOTIFY_OVERDUE) {
        troubles.push(Trouble::new(
            format!(
                "{waiting} notifications wait, the oldest for {}, tried up to {} times",
                seconds(oldest),
                attempts.unwrap_or(0)
            ),
            "see why: leasehold jobs list --queue leasehold.alarms; test the receiver: leasehold alarms test",
        ));
    }
    let found = together(name, Level::Warn, &troubles);
    Ok(found.unwrap_or_else(|| match words.is_empty() {
        true => Finding::ok(
            name,
            "no webhook or command is registered; the console, /metrics and leasehold alarms show active alarms",
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
           from (select * from leasehold_internal.watch where not off and min_completed > 0 order by queue limit 50) w \
           left join leasehold_internal.queue q on q.name = w.queue \
          cross join lateral (select min(scheduled_at) as at from leasehold.job \
                where queue = w.queue and limit_key is null and name = 'leasehold.canary') j \
          cross join lateral (select max(g.minute) as at \
                from generate_series(date_trunc('minute', statement_timestamp()) - interval '24 hours', \
                         date_trunc('minute', statement_timestamp()), interval '1 minute') as g (minute) \
                where exists (select from leasehold_internal.measure m where m.at = g.minute and m.kind = 'tag' \
                        and m.subject in (leasehold_internal.tag_subject(w.queue, 'leasehold.canary'), \
                                          leasehold_internal.tag_subject(w.queue, '(others)')) \
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
            (None, None, _) => words.push(format!("{queue} has no canary")),
            (_, Some(waits), _) if waits > SILENT => troubles.push(Trouble::new(
                format!(
                    "{queue}: a canary has waited for {}, and no worker claims it",
                    seconds(waits)
                ),
                "start a worker for the queue: every worker completes canaries",
            )),
            (None, Some(_), _) => words.push(format!("{queue} has its first canary")),
            (Some(_), _, bucket) if bucket.is_none_or(|bucket| bucket > OLD_BUCKET) => {
                troubles.push(Trouble::new(
                    format!("{queue}: unknown, because no samples are taken"),
                    "see samples, above",
                ));
            }
            (Some(last), _, Some(bucket)) if last - bucket > SILENT => {
                troubles.push(Trouble::new(
                    format!("{queue}: no canary for {}: its producer has stopped", seconds(last)),
                    "start the process that enqueues (leasehold serve); if it is gone for good: leasehold alarms unwatch QUEUE",
                ));
            }
            _ => words.push(format!("{queue} is alive")),
        }
    }
    let found = together(name, Level::Warn, &troubles);
    Ok(found.unwrap_or_else(|| match rows.is_empty() {
        true => Finding::ok(name, "no queue has --min-completed set"),
        false => Finding::ok(name, words.join(", ")),
    }))
}

/// Checks what keeps dead rows from being removed, including slots and standbys, which are no sessions.
async fn vacuum(db: &Db) -> Result<Finding, Failure> {
    let sql =
        "select h.who, h.remedy, h.age from leasehold_internal.vacuum_holders() h where h.age > $1";
    // As long as the alarm allows: doctor and alarm agree on when vacuum is held back.
    let held_back = Thresholds::default().max_transaction_age.as_secs_f64();
    let limit = [(&held_back as _, tokio_postgres::types::Type::FLOAT8)];
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
