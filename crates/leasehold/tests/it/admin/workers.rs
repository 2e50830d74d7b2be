use leasehold::admin::WorkerState;

use super::Office;

#[tokio::test]
async fn workers_are_listed_by_state_and_found_by_id() {
    let office = Office::new().await;
    office
        .sql
        .run(
            "select leasehold_internal.register_worker(n || '/1', n, 'h', 1, '0', array['default'], array['note'], 4, 1, false)
               from unnest(array['live', 'over', 'gone']) as u (n);
             select leasehold_internal.unregister_worker('over/1');
             update leasehold_internal.worker set last_seen_at = now() + interval '1 hour';
             update leasehold_internal.worker set last_seen_at = now() - interval '1 hour' where name = 'gone'",
        )
        .await;
    let workers = office.engine.workers();
    let states = |all: Vec<leasehold::admin::WorkerInfo>| {
        all.iter().map(|worker| (worker.name.clone(), worker.state)).collect::<Vec<_>>()
    };
    let running = states(workers.list(false).await.unwrap());
    assert_eq!(
        running,
        [("live".to_owned(), WorkerState::Alive), ("gone".to_owned(), WorkerState::Dead)]
    );
    assert_eq!(workers.list(true).await.unwrap().len(), 3);
    let live = workers.get("live/1").await.unwrap().expect("the worker");
    assert_eq!((live.slots, live.busy, live.names), (4, 1, vec!["note".to_owned()]));
    assert!(workers.get("live/2").await.unwrap().is_none());
}

#[tokio::test]
async fn workers_within_a_transaction_are_as_it_sees_them() {
    let office = Office::new().await;
    let mut client = office.sql.database.connect().await;
    let tx = client.transaction().await.unwrap();
    let register = "select leasehold_internal.register_worker('w/1', 'w', 'h', 1, '0', array['default'], \
                    array['note'], 4, 1, false)";
    tx.batch_execute(register).await.unwrap();
    let inside = office.engine.workers().within(&tx);
    assert_eq!(inside.list(false).await.unwrap().len(), 1);
    assert!(inside.get("w/1").await.unwrap().is_some());
    assert!(office.engine.workers().get("w/1").await.unwrap().is_none(), "not seen outside");
    super::end(tx, false).await;
}
