//! A hash in Redis as the store of a mirror, on a real server.

use std::sync::Arc;

use ::redis::AsyncCommands;
use leasehold::mirror::{Mirror, Range, StoredVersion, Target, Tombstone, Write, Written};
use leasehold::redis::RedisHash;
use leasehold_testing::PrivateRedis;
use serde_json::json;

use super::fixture::{Margin, bare};

fn write(key: &str, version: i64, document: Option<serde_json::Value>, forced: bool) -> Write {
    Write { key: key.to_owned(), version, document, forced }
}

fn store(server: &PrivateRedis) -> Arc<RedisHash> {
    RedisHash::new(&server.url(), "notes").expect("a store")
}

#[tokio::test]
async fn hash_keeps_newer_versions_and_deletions() {
    let server = PrivateRedis::start().expect("Redis");
    let store = store(&server);
    let keys = ["a".to_owned(), "b".to_owned()];
    assert_eq!(store.held(&keys).await.expect("held"), [None, None]);
    let said = |writes: Vec<Write>| {
        let store = Arc::clone(&store);
        async move {
            let answers = store.write(&writes).await.expect("written");
            answers.into_iter().map(|answer| answer.expect("taken")).collect::<Vec<_>>()
        }
    };
    assert_eq!(
        said(vec![write("a", 2, Some(json!({"n": 2})), false), write("b", 1, None, false)]).await,
        [Written::Stored, Written::Stored]
    );
    assert_eq!(
        said(vec![
            write("a", 1, Some(json!({"n": 1})), false),
            write("a", 2, Some(json!({"n": 0})), false),
            write("b", 1, Some(json!({})), false),
            write("a", 2, Some(json!({"n": 3})), true),
        ])
        .await,
        [Written::Newer, Written::Newer, Written::Newer, Written::Stored]
    );
    let held =
        [StoredVersion { version: 2, deleted: false }, StoredVersion { version: 1, deleted: true }];
    assert_eq!(store.held(&keys).await.expect("held"), held.map(Some));
    let everything = Range::default();
    assert_eq!(store.digest(&everything).await.expect("a digest").count, 1);
    assert_eq!(store.list(&everything, 10).await.expect("a list").len(), 2);
    let after = Range { after: Some("a".into()), to: Some("b".into()) };
    assert_eq!(store.list(&after, 10).await.expect("a list"), [("b".to_owned(), held[1])]);
    for (version, left) in [(9, 2), (1, 1)] {
        let old = [Tombstone { key: "b".into(), version }, Tombstone { key: "a".into(), version }];
        store.forget(&old).await.expect("forgotten");
        assert_eq!(store.list(&everything, 10).await.expect("a list").len(), left);
    }
    let mut client = server.connect().await.expect("a connection");
    assert_eq!(client.hget::<_, _, String>("notes", "a").await.expect("a field"), "2 {\"n\":3}");
}

#[tokio::test]
async fn check_repairs_a_redis_that_lost_the_order_of_its_keys() {
    let (margin, server) = (Margin::new().await, PrivateRedis::start().expect("Redis"));
    let mirror: Mirror = bare().target(store(&server));
    margin.write(&["a", "b", "ä"]).await;
    margin.sql("delete from margin.note where id = 'b'").await;
    mirror.pass_once(&margin.engine).await.expect("a pass");
    assert!(mirror.check_once(&margin.engine).await.expect("a check").is_equal());
    let mut client = server.connect().await.expect("a connection");
    assert_eq!(client.del::<_, i64>("notes:keys").await.expect("deleted"), 1);
    let report = mirror.check_once(&margin.engine).await.expect("a check");
    assert_eq!((report.differences, report.repairs), (2, 2));
    mirror.pass_once(&margin.engine).await.expect("a pass");
    let report = mirror.check_once(&margin.engine).await.expect("a check");
    assert!(report.is_equal() && report.unequal == 0, "{report:?}");
}

#[tokio::test]
async fn check_fills_a_redis_that_lost_everything() {
    let (margin, mut server) = (Margin::new().await, PrivateRedis::start().expect("Redis"));
    let mirror: Mirror = bare().range(100).target(store(&server));
    margin.write_many(1, 2500).await;
    assert_eq!(mirror.pass_once(&margin.engine).await.expect("a pass").completed, 2500);
    let report = mirror.check_once(&margin.engine).await.expect("a check");
    assert!(report.is_equal() && report.rows == 2500, "{report:?}");
    server.kill().expect("dead");
    margin.sql("update margin.note set body = 'meanwhile' where id < 'n00010'").await;
    assert_eq!(mirror.pass_once(&margin.engine).await.expect("a pass").completed, 0);
    server.restart().expect("Redis, empty");
    // The next call notices the lost connection.
    let mut report = mirror.check_once(&margin.engine).await;
    for _ in 0..5 {
        if report.is_err() {
            report = mirror.check_once(&margin.engine).await;
        }
    }
    assert_eq!(report.expect("a check").differences, 2500);
    margin.due().await;
    let mirror: Mirror = bare().range(100).target(store(&server));
    mirror.pass_once(&margin.engine).await.expect("a pass");
    assert!(mirror.check_once(&margin.engine).await.expect("a check").is_equal());
}
