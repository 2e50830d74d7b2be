//! Monitoring: are samples taken and evaluated, are alarms delivered, and which are active?

use leasehold::admin::{AlarmState, diagnosis};
use leasehold::alarm::Thresholds;
use tokio_postgres::types::Type;

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

async fn samples(db: &Db) -> Result<Finding, Failure> {
    let name = "samples";
    let row = db.one(diagnosis::SAMPLES, &[(&LATE, Type::FLOAT8)]).await?;
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

/// Checks that samples are evaluated: each evaluation records its time, also if it finds nothing.
async fn evaluation(db: &Db) -> Result<Finding, Failure> {
    let row = db.one(diagnosis::EVALUATION, &[]).await?;
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
    let (mut alarms, now) = (db.within(db.alarms().list(false, 1000)).await?, db.now().await?);
    alarms.sort_by_key(|alarm| (alarm.state != AlarmState::Open, alarm.raised_at));
    let (mut troubles, mut seen) = (Vec::new(), Vec::new());
    for alarm in &alarms {
        let which = format!("{} {} {}", alarm.id, alarm.rule, alarm.subject).trim_end().to_owned();
        let age = seconds(now.duration_since(alarm.raised_at).as_secs_f64());
        match alarm.state {
            AlarmState::Open => troubles.push(Trouble::new(
                format!("{which}, for {age}: {}", one_line(&alarm.summary, 600)),
                "details: leasehold alarms show ID; to acknowledge it: leasehold alarms ack ID --why …",
            )),
            state => seen.push(format!("{which} ({state})")),
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
    let receivers = db.query(diagnosis::ALARM_RECEIVERS, &[]).await?;
    let row = db.one(diagnosis::WAITING_NOTIFICATIONS, &[]).await?;
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

/// Checks that a queue that had canaries still has them. The recorded minutes show when.
async fn canaries(db: &Db) -> Result<Finding, Failure> {
    let name = "canaries";
    let rows = db.query(diagnosis::CANARIES, &[]).await?;
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
    // As long as the alarm allows: doctor and alarm agree on when vacuum is held back.
    let held_back = Thresholds::default().max_transaction_age.as_secs_f64();
    let limit = [(&held_back as _, Type::FLOAT8)];
    let troubles: Vec<Trouble> = db
        .query(diagnosis::VACUUM, &limit)
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
