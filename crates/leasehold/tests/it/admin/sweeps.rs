use leasehold::admin::{SweepState, Toggle};

use super::Office;

/// A declared sweep, with dead rows of these keys.
async fn swept(office: &Office, dead: &[&str]) {
    let declare = "select leasehold_internal.declare_sweep('shelf', 'public.shelf', 'id', 'bigint', 'due', 'status', \
                   'NEW', 'BUSY', 'DONE', 'taken_at', 'claim', 10, 5, '2 hours', '1 minute', 1000, null, null, \
                   '90 seconds', now() + interval '1 hour')";
    office.sql.run(declare).await;
    for key in dead {
        let row = format!(
            "insert into leasehold_internal.sweep_failure (sweep, key, claim, attempts, last_error, dead_at) \
             values ('shelf', '{key}', 7, 5, 'no disk', now())"
        );
        office.sql.run(&row).await;
    }
}

#[tokio::test]
async fn sweep_is_paused_resumed_run_and_forgotten() {
    let office = Office::new().await;
    let (sweeps, by) = (office.engine.sweeps(), &office.by);
    assert_eq!(sweeps.pause("shelf", by).await.unwrap(), Toggle::NotFound);
    assert_eq!(sweeps.resume("shelf", by).await.unwrap(), Toggle::NotFound);
    assert!(!sweeps.run_now("shelf", by).await.unwrap());
    assert!(!sweeps.run_watchdog("shelf", by).await.unwrap());
    assert!(!sweeps.forget("shelf", by).await.unwrap());
    assert_eq!(office.audits().await, 0);
    swept(&office, &["1"]).await;
    assert_eq!(sweeps.resume("shelf", by).await.unwrap(), Toggle::Already);
    assert_eq!(sweeps.pause("shelf", by).await.unwrap(), Toggle::Changed);
    assert_eq!(sweeps.pause("shelf", by).await.unwrap(), Toggle::Already);
    let shelf = sweeps.get("shelf").await.unwrap().expect("the sweep");
    assert_eq!((shelf.state.as_str(), shelf.paused_why.as_deref()), ("paused", Some("a test")));
    assert_eq!((shelf.every.map(|every| every.as_secs()), shelf.dead), (Some(90), 1));
    assert_eq!(sweeps.resume("shelf", by).await.unwrap(), Toggle::Changed);
    assert_eq!(sweeps.summaries().await.unwrap()[0].state, SweepState::Idle);
    assert!(
        sweeps.run_now("shelf", by).await.unwrap()
            && sweeps.run_watchdog("shelf", by).await.unwrap()
    );
    assert_eq!(sweeps.summaries().await.unwrap()[0].state, SweepState::Due);
    assert!(sweeps.forget("shelf", by).await.unwrap());
    assert!(
        sweeps.list().await.unwrap().is_empty() && sweeps.get("shelf").await.unwrap().is_none()
    );
    assert_eq!(office.last_audit().await, "ann forget sweep shelf a test");
    assert_eq!(office.audits().await, 5);
}

#[tokio::test]
async fn dead_rows_are_paged_and_redriven_by_key_or_all() {
    let office = Office::new().await;
    let (sweeps, by) = (office.engine.sweeps(), &office.by);
    swept(&office, &["1", "2", "3"]).await;
    let first = sweeps.dead("shelf", None, 2).await.unwrap();
    assert_eq!(first.iter().map(|row| row.key.as_str()).collect::<Vec<_>>(), ["1", "2"]);
    assert_eq!((first[0].attempts, first[0].last_error.as_str()), (5, "no disk"));
    let rest = sweeps.dead("shelf", Some("2"), 2).await.unwrap();
    assert_eq!(rest.iter().map(|row| row.key.as_str()).collect::<Vec<_>>(), ["3"]);
    let keys = ["2".to_owned(), "9".to_owned()];
    assert_eq!(sweeps.redrive("shelf", Some(&keys), by).await.unwrap(), 1);
    assert_eq!(sweeps.redrive("shelf", None, by).await.unwrap(), 2);
    assert_eq!(sweeps.redrive("shelf", None, by).await.unwrap(), 0);
    let shelf = sweeps.get("shelf").await.unwrap().expect("the sweep");
    assert_eq!((shelf.dead, shelf.failing), (0, 3));
}

#[tokio::test]
async fn sweep_calls_within_a_transaction_take_effect_with_its_commit() {
    let office = Office::new().await;
    swept(&office, &["1"]).await;
    let mut client = office.sql.database.connect().await;
    for commits in [false, true] {
        let tx = client.transaction().await.unwrap();
        let sweeps = office.engine.sweeps().within(&tx);
        assert_eq!(sweeps.pause("shelf", &office.by).await.unwrap(), Toggle::Changed);
        assert_eq!(sweeps.redrive("shelf", None, &office.by).await.unwrap(), 1);
        assert_eq!(
            sweeps.get("shelf").await.unwrap().unwrap().state,
            SweepState::Paused,
            "seen inside"
        );
        let outside = office.engine.sweeps();
        assert_eq!(outside.get("shelf").await.unwrap().unwrap().dead, 1, "not seen outside");
        super::end(tx, commits).await;
        let shelf = outside.get("shelf").await.unwrap().expect("the sweep");
        assert_eq!((shelf.paused_at.is_some(), shelf.dead), (commits, i64::from(!commits)));
    }
}
