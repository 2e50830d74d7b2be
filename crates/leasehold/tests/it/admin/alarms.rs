use std::time::Duration;

use leasehold::AdminError;
use leasehold::admin::{AlarmChange, AlarmState, By, Toggle, WatchChange};
use leasehold::alarm::WEBHOOK;

use super::Office;
use crate::watch::a_minute_passes;

const HOUR: Duration = Duration::from_secs(3600);

/// Raises one alarm: a job was not started in time.
async fn raised(office: &Office) -> i64 {
    let late = "insert into leasehold.job (name, scheduled_at, expires_at) \
                values ('late', now() - interval '1 minute', now())";
    office.sql.run(late).await;
    office.sql.run("select leasehold_internal.expire_jobs()").await;
    a_minute_passes(&office.sql).await;
    let alarms = office.engine.alarms().list(false, 10).await.unwrap();
    assert_eq!((alarms.len(), alarms[0].rule.as_str()), (1, "expired_jobs"));
    alarms[0].id
}

async fn state(office: &Office, id: i64) -> AlarmState {
    office.engine.alarms().get(id).await.unwrap().expect("the alarm").state
}

#[tokio::test]
async fn alarm_is_acknowledged_and_silenced_until_it_clears() {
    let office = Office::new().await;
    let (alarms, by) = (office.engine.alarms(), &office.by);
    assert_eq!(alarms.acknowledge(7, by).await.unwrap(), AlarmChange::NotFound);
    assert_eq!(alarms.silence(7, HOUR, by).await.unwrap(), AlarmChange::NotFound);
    let id = raised(&office).await;
    assert_eq!(state(&office, id).await, AlarmState::Open);
    assert_eq!(alarms.acknowledge(id, by).await.unwrap(), AlarmChange::Changed);
    assert_eq!(state(&office, id).await, AlarmState::Acknowledged);
    assert_eq!(alarms.silence(id, HOUR, by).await.unwrap(), AlarmChange::Changed);
    assert_eq!(state(&office, id).await, AlarmState::Silenced);
    assert_eq!(alarms.silence(id, Duration::ZERO, by).await.unwrap(), AlarmChange::Changed);
    assert_eq!(state(&office, id).await, AlarmState::Acknowledged);
    assert!(!alarms.is_over(id).await.unwrap());
    office.sql.run("delete from leasehold_internal.dead_job").await;
    a_minute_passes(&office.sql).await;
    assert!(alarms.is_over(id).await.unwrap());
    assert!(alarms.list(false, 10).await.unwrap().is_empty());
    let all = alarms.list(true, 10).await.unwrap();
    assert_eq!((all[0].id, all[0].state), (id, AlarmState::Cleared));
    assert_eq!(all[0].acknowledged_why.as_deref(), Some("a test"));
    assert_eq!(alarms.acknowledge(id, by).await.unwrap(), AlarmChange::Cleared);
    assert_eq!(office.audits().await, 3);
}

#[tokio::test]
async fn acknowledge_and_silence_without_a_reason_are_refused() {
    let office = Office::new().await;
    let (alarms, id) = (office.engine.alarms(), raised(&office).await);
    for by in [By::new("ann"), By::new("ann").why("  ")] {
        for result in [alarms.acknowledge(id, &by).await, alarms.silence(id, HOUR, &by).await] {
            let error = result.expect_err("refused");
            assert!(
                matches!(&error, AdminError::Refused(text) if text.contains("reason")),
                "{error:?}"
            );
        }
    }
    assert_eq!(state(&office, id).await, AlarmState::Open);
}

#[tokio::test]
async fn watch_of_an_operator_takes_precedence_over_a_declared_one() {
    let office = Office::new().await;
    let (alarms, by) = (office.engine.alarms(), &office.by);
    let declared = WatchChange::new().max_length(Some(10_000)).bulk_tags(["import"]);
    assert!(alarms.declare_watch("mail", &declared, "mailer").await.unwrap());
    let change = WatchChange::new().over(2 * HOUR).max_age(None).max_dead(3);
    alarms.set_watch("mail", &change, by).await.unwrap();
    assert!(!alarms.declare_watch("mail", &declared.max_length(Some(1)), "mailer").await.unwrap());
    let watch = alarms.watch("mail").await.unwrap().expect("a watch");
    assert_eq!((watch.over, watch.max_age, watch.max_dead), (2 * HOUR, None, 3));
    assert_eq!((watch.max_length, watch.min_completed), (Some(10_000), 1));
    assert_eq!((watch.bulk_tags, watch.changed_by.as_str()), (vec!["import".to_owned()], "ann"));
}

#[tokio::test]
async fn removed_watch_stays_off() {
    let office = Office::new().await;
    let (alarms, by) = (office.engine.alarms(), &office.by);
    alarms.set_watch("mail", &WatchChange::new().max_dead(3), by).await.unwrap();
    let short = WatchChange::new().over(Duration::from_secs(1));
    let error = alarms.set_watch("mail", &short, by).await.expect_err("refused");
    assert!(matches!(error, AdminError::Refused(_)), "{error:?}");
    assert_eq!(alarms.remove_watch("absent", by).await.unwrap(), Toggle::NotFound);
    assert_eq!(alarms.remove_watch("mail", by).await.unwrap(), Toggle::Changed);
    assert_eq!(alarms.remove_watch("mail", by).await.unwrap(), Toggle::Already);
    let watches = alarms.watches().await.unwrap();
    assert!(watches.len() == 1 && watches[0].off);
}

#[tokio::test]
async fn receiver_registers_and_notes_what_it_delivered() {
    let office = Office::new().await;
    let (alarms, by) = (office.engine.alarms(), &office.by);
    assert_eq!(alarms.test(by).await.unwrap(), 0);
    alarms.register_receiver(WEBHOOK).await.unwrap();
    assert_eq!(alarms.test(by).await.unwrap(), 1);
    let id = raised(&office).await;
    alarms.note_delivery(id, WEBHOOK).await.unwrap();
    alarms.note_delivery(id, "another").await.unwrap();
    let alarm = alarms.get(id).await.unwrap().expect("the alarm");
    assert_eq!(alarm.delivered_by.as_deref(), Some(WEBHOOK));
    assert!(alarm.notified_at.is_some() && alarm.delivered_at.is_some());
}

#[tokio::test]
async fn alarm_calls_within_a_transaction_take_effect_with_its_commit() {
    let office = Office::new().await;
    let id = raised(&office).await;
    let mut client = office.sql.database.connect().await;
    for (commits, then) in [(false, AlarmState::Open), (true, AlarmState::Acknowledged)] {
        let tx = client.transaction().await.unwrap();
        let alarms = office.engine.alarms().within(&tx);
        assert_eq!(alarms.acknowledge(id, &office.by).await.unwrap(), AlarmChange::Changed);
        alarms.set_watch("mail", &WatchChange::new(), &office.by).await.unwrap();
        assert_eq!(alarms.get(id).await.unwrap().unwrap().state, AlarmState::Acknowledged);
        assert_eq!(state(&office, id).await, AlarmState::Open, "not seen outside");
        super::end(tx, commits).await;
        assert_eq!(state(&office, id).await, then);
        assert_eq!(office.engine.alarms().watch("mail").await.unwrap().is_some(), commits);
    }
}
