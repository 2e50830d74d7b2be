//! A database of an earlier release.

use leasehold::migrate::Schema;
use leasehold_testing::TestDatabase;
use tokio_postgres::Client;
use uuid::Uuid;

#[tokio::test]
async fn e26_e30_upgrade_links_reports_and_requests_to_their_pastes() {
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
             insert into pastes.requests (key_hash, request_hash, short_code, created_at) values \
                 ('1', '', 'two', '2026-01-02'), ('2', '', 'two', '2026-01-01'); \
             insert into pastes.banned (content_hash, reason) values (repeat('c', 64), 'list')",
        )
        .await
        .unwrap();
    assert_eq!(pastes::SCHEMA.up(&mut client).await.unwrap(), [2, 3, 4]);
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

#[tokio::test]
async fn e41_upgrade_drops_the_trigger_and_the_former_functions() {
    let database = TestDatabase::new().await;
    let mut client = database.connect_directly().await;
    let former = &pastes::SCHEMA.migrations[..3];
    Schema { migrations: former, functions: &[], ..pastes::SCHEMA }.up(&mut client).await.unwrap();
    client
        .batch_execute(
            "create function pastes.upload_buried() returns trigger language plpgsql \
                 as 'begin return null; end'; \
             create trigger pastes_upload_buried after insert on leasehold_internal.dead_job \
                 for each row execute function pastes.upload_buried(); \
             create function pastes.create_paste(text, uuid, boolean, bytea, text, bytea, interval, \
                 text, boolean, bytea, bytea, interval, int) returns int language sql as 'select 1'; \
             create function pastes.give_up(ids bigint[]) returns int language sql as 'select 1'",
        )
        .await
        .unwrap();
    assert_eq!(pastes::SCHEMA.up(&mut client).await.unwrap(), [4]);
    let triggers = "select from pg_trigger where tgname = 'pastes_upload_buried'";
    assert!(client.query(triggers, &[]).await.unwrap().is_empty());
    let functions = async |client: &Client| -> Vec<String> {
        let sql = "select oid::regprocedure::text from pg_proc \
                   where pronamespace = 'pastes'::regnamespace order by 1";
        client.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
    };
    let fresh = TestDatabase::new().await;
    let mut other = fresh.connect_directly().await;
    pastes::SCHEMA.up(&mut other).await.unwrap();
    assert_eq!(functions(&client).await, functions(&other).await);
}
