//! A database of an earlier release.

use leasehold::migrate::Schema;
use leasehold_testing::TestDatabase;
use uuid::Uuid;

#[tokio::test]
async fn e26_e30_reports_and_requests_from_before_find_their_paste() {
    let database = TestDatabase::new().await;
    let mut client = database.connect_directly().await;
    let first = &pastes::SCHEMA.migrations[..1];
    Schema { migrations: first, functions: &[], ..pastes::SCHEMA }.up(&mut client).await.unwrap();
    client
        .batch_execute(
            "insert into pastes.contents (content_hash, size) values (repeat('a', 64), 1); \
             insert into pastes.pastes (short_code, content_hash, content_id, created_at, expires_at) \
                 select name, repeat('a', 64), 1, '2026-01-02', '2099-01-01' \
                   from unnest(array['one', 'two']) name; \
             insert into pastes.reports (short_code, content_hash, reason, reported_at) values \
                 ('one', repeat('a', 64), 'this one', '2026-01-03'), \
                 ('one', repeat('b', 64), 'other bytes', '2026-01-03'), \
                 ('one', repeat('a', 64), 'an earlier one', '2026-01-01'); \
             insert into pastes.requests (key_hash, payload_hash, short_code, created_at) values \
                 ('1', '', 'two', '2026-01-02'), ('2', '', 'two', '2026-01-01'); \
             insert into pastes.banned (content_hash, reason) values (repeat('c', 64), 'list')",
        )
        .await
        .unwrap();
    assert_eq!(pastes::SCHEMA.up(&mut client).await.unwrap(), [2, 3]);
    let id = async |code: &str| -> Uuid {
        let sql = "select paste_id from pastes.pastes where short_code = $1";
        client.query_one(sql, &[&code]).await.unwrap().get(0)
    };
    let (one, two) = (id("one").await, id("two").await);
    assert_ne!(one, two);
    let found = async |sql: &str| -> Vec<Option<Uuid>> {
        client.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
    };
    let reports = found("select paste_id from pastes.reports order by id").await;
    assert_eq!(reports, [Some(one), None, None]);
    let requests = found("select paste_id from pastes.requests order by key_hash").await;
    assert_eq!(requests, [Some(two), None]);
    let alive = client.query(pastes::sql::REPORTS, &[&None::<i64>, &10_i64]).await.unwrap();
    let alive: Vec<bool> = alive.iter().map(|row| row.get(6)).collect();
    assert_eq!(alive, [false, false, true]);
}
