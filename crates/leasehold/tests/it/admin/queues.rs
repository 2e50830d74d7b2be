use std::time::Duration;

use leasehold::AdminError;
use leasehold::admin::{QueueChange, Toggle};

use super::Office;

#[tokio::test]
async fn pause_and_resume_take_effect_once() {
    let office = Office::new().await;
    let queues = office.engine.queues();
    assert_eq!(queues.resume("mail", &office.by).await.unwrap(), Toggle::NotFound);
    assert_eq!(queues.pause("mail", &office.by).await.unwrap(), Toggle::Changed);
    assert_eq!(queues.pause("mail", &office.by).await.unwrap(), Toggle::Already);
    let mail = queues.get("mail").await.unwrap().expect("the queue");
    assert_eq!(
        (mail.paused_by.as_deref(), mail.paused_why.as_deref()),
        (Some("ann"), Some("a test"))
    );
    assert_eq!(office.last_audit().await, "ann pause queue mail a test");
    assert_eq!(queues.resume("mail", &office.by).await.unwrap(), Toggle::Changed);
    assert_eq!(queues.resume("mail", &office.by).await.unwrap(), Toggle::Already);
    assert_eq!(office.last_audit().await, "ann resume queue mail a test");
    assert_eq!(office.audits().await, 2);
}

#[tokio::test]
async fn set_changes_given_settings_and_refuses_invalid_ones() {
    let office = Office::new().await;
    let queues = office.engine.queues();
    let change = QueueChange::new()
        .max_attempts(8)
        .claim_size(10)
        .backoff(Duration::from_secs(5), Duration::from_secs(60))
        .owner("team");
    let settings = queues.set("mail", &change, &office.by).await.unwrap();
    assert_eq!((settings.max_attempts, settings.max_lost, settings.claim_size), (8, 3, 10));
    assert_eq!(settings.backoff_cap, Duration::from_secs(60));
    let settings = queues.set("mail", &QueueChange::new().owner(""), &office.by).await.unwrap();
    assert_eq!((settings.max_attempts, settings.owner), (8, None));
    for bad in [
        QueueChange::new().lease(Duration::from_millis(10)),
        QueueChange::new().max_attempts(0),
        QueueChange::new().claim_size(0),
    ] {
        let error = queues.set("mail", &bad, &office.by).await.expect_err("refused");
        assert!(matches!(error, AdminError::Refused(_)), "{error:?}");
    }
    let error = queues.set("", &QueueChange::new().max_lost(1), &office.by).await;
    assert!(matches!(error, Err(AdminError::Refused(_))), "{error:?}");
}

#[tokio::test]
async fn list_counts_each_state() {
    let office = Office::new().await;
    office.dead("x").await;
    office.retrying().await;
    office.running().await;
    office.scheduled().await;
    office.ready().await;
    let queues = office.engine.queues().list().await.unwrap();
    let queue = &queues[0];
    assert_eq!((queues.len(), queue.queue.as_str()), (1, "default"));
    assert_eq!(
        [
            queue.scheduled,
            queue.ready,
            queue.running,
            queue.retrying,
            queue.dead,
            queue.dead_expired
        ],
        [1, 1, 1, 1, 1, 0]
    );
    office.sql.run("insert into leasehold.job (name, queue) values ('a', 'fresh')").await;
    assert_eq!(office.engine.queues().names().await.unwrap(), ["default", "fresh"]);
    let fresh = office.engine.queues().get("fresh").await.unwrap().expect("the queue");
    assert!(fresh.settings.is_none() && fresh.ready == 1);
    assert!(office.engine.queues().get("absent").await.unwrap().is_none());
}

#[tokio::test]
async fn queue_calls_within_a_transaction_take_effect_with_its_commit() {
    let office = Office::new().await;
    let mut client = office.sql.database.connect().await;
    for commits in [false, true] {
        let tx = client.transaction().await.unwrap();
        let queues = office.engine.queues().within(&tx);
        assert_eq!(queues.pause("mail", &office.by).await.unwrap(), Toggle::Changed);
        queues.set("mail", &QueueChange::new().max_lost(7), &office.by).await.unwrap();
        assert!(queues.get("mail").await.unwrap().is_some(), "seen inside");
        let outside = office.engine.queues();
        assert!(outside.get("mail").await.unwrap().is_none(), "not seen outside");
        super::end(tx, commits).await;
        let mail = outside.get("mail").await.unwrap();
        let lost = mail.and_then(|mail| mail.settings).map(|settings| settings.max_lost);
        assert_eq!(lost, commits.then_some(7));
    }
}
