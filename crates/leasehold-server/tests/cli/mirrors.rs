use std::sync::Arc;
use std::time::Duration;

use leasehold::Leasehold;
use leasehold::mirror::Mirror;
use leasehold_testing::ScriptedTargets;

use super::fixture::Fixture;

/// A table with rows, and a mirror of it.
pub async fn mirrored(rows: i32) -> (Fixture, Leasehold, Mirror, ScriptedTargets) {
    let fixture = Fixture::new().await;
    let store = ScriptedTargets::new();
    let mirror = Mirror::new("odd.names", "public.Odd names")
        .key("code")
        .document(
            "select code, version, to_jsonb(n) from public.\"Odd names\" n where code = any($1)",
        )
        .verify_after(Duration::ZERO)
        .recheck_after(Duration::ZERO)
        .targets(Arc::new(store.clone()));
    fixture.sql("create table public.\"Odd names\" (code text primary key)").await;
    let mut client = fixture.database.connect_directly().await;
    mirror.install(&mut client).await.unwrap();
    fixture
        .client
        .batch_execute(&format!(
            "insert into public.\"Odd names\" select 'row ' || n from generate_series(1, {rows}) n"
        ))
        .await
        .unwrap();
    let engine = Leasehold::connect(&fixture.database.url()).await.unwrap();
    (fixture, engine, mirror, store)
}

#[tokio::test]
async fn mirror_commands_show_differences() {
    let fixture = Fixture::new().await;
    fixture.run(&["mirrors", "list"]).await.expect(0).says("no mirrors");
    fixture.run(&["mirrors", "show", "odd.names"]).await.expect(3).says("leasehold mirrors list");
    let (fixture, engine, mirror, store) = mirrored(9).await;
    fixture.run(&["mirrors", "list"]).await.expect(0).prints("odd.names").prints("not yet");
    mirror.pass_once(&engine).await.unwrap();
    mirror.check_once(&engine).await.unwrap();
    let listed = fixture.run(&["mirrors", "list", "--json"]).await.expect(0).json();
    let entry = &listed["mirrors"][0];
    assert_eq!((&entry["rows_compared"], &entry["differences"]), (&9.into(), &0.into()));
    assert!(entry["equal_as_of"].is_string());
    fixture.run(&["mirrors", "differences", "odd.names"]).await.expect(0).says("no rows differ");
    store.searched().tamper("row 3", 1, None);
    mirror.check_once(&engine).await.unwrap();
    fixture
        .run(&["mirrors", "differences", "odd.names"])
        .await
        .expect(0)
        .prints("row 3")
        .prints("missing");
    fixture
        .run(&["mirrors", "show", "odd.names"])
        .await
        .expect(0)
        .prints("equal as of")
        .prints("set-1");
    fixture
        .run(&["mirrors", "reindex", "odd.names", "row 3", "row 4"])
        .await
        .expect(0)
        .prints("2 rows");
    fixture.run(&["mirrors", "show", "odd.name"]).await.expect(3).says("did you mean");
}

#[tokio::test]
async fn mirror_orders_are_done_by_a_worker_with_the_store() {
    let (fixture, engine, mirror, store) = mirrored(30).await;
    mirror.pass_once(&engine).await.unwrap();
    fixture.run(&["mirrors", "rollback", "odd.names"]).await.expect(5).says("no former set");
    fixture.run(&["mirrors", "drop", "odd.names", "--yes"]).await.expect(5).says("no second set");
    fixture
        .run(&["mirrors", "rebuild", "odd.names"])
        .await
        .expect(0)
        .prints("rebuild of mirror odd.names is enqueued as job")
        .says("no live worker declares mirror odd.names");
    assert_eq!(store.names(), ["set-1"], "nothing happens here");
    mirror.pass_once(&engine).await.unwrap();
    assert_eq!(store.names(), ["set-1", "set-2"]);
    fixture
        .run(&["mirrors", "show", "odd.names"])
        .await
        .expect(0)
        .prints("set-1 is kept for a rollback");
    fixture
        .run(&["mirrors", "rebuild", "odd.names"])
        .await
        .expect(5)
        .says("leasehold mirrors drop");
    for (order, then) in [("rollback", "set-1"), ("drop", "set-1"), ("check", "set-1")] {
        let mut words = vec!["mirrors", order, "odd.names"];
        if order == "drop" {
            words.push("--yes");
        }
        fixture.run(&words).await.expect(0).prints(order);
        mirror.pass_once(&engine).await.unwrap();
        let shown = fixture.run(&["mirrors", "show", "odd.names", "--json"]).await.expect(0).json();
        assert_eq!(shown["mirror"]["serving"], then, "{order}");
    }
    assert_eq!(store.names(), ["set-1"]);
}
