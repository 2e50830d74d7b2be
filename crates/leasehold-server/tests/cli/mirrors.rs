use std::sync::Arc;
use std::time::Duration;

use leasehold::Leasehold;
use leasehold::mirror::Mirror;
use leasehold_testing::ScriptedTargets;

use super::support::Place;

/// A table with rows, and a mirror of it.
pub async fn mirrored(rows: i32) -> (Place, Leasehold, Mirror, ScriptedTargets) {
    let place = Place::new().await;
    let store = ScriptedTargets::new();
    let mirror = Mirror::new("odd.names", "public.Odd names")
        .key("code")
        .document(
            "select code, version, to_jsonb(n) from public.\"Odd names\" n where code = any($1)",
        )
        .verify_after(Duration::ZERO)
        .recheck_after(Duration::ZERO)
        .targets(Arc::new(store.clone()));
    place
        .client
        .batch_execute("create table public.\"Odd names\" (code text primary key)")
        .await
        .unwrap();
    let mut client = place.database.connect_directly().await;
    Mirror::install(&mirror, &mut client).await.unwrap();
    place
        .client
        .batch_execute(&format!(
            "insert into public.\"Odd names\" select 'row ' || n from generate_series(1, {rows}) n"
        ))
        .await
        .unwrap();
    let engine = Leasehold::connect(&place.database.url()).await.unwrap();
    (place, engine, mirror, store)
}

#[tokio::test]
async fn mirrors_are_listed_and_shown_with_what_differs() {
    let place = Place::new().await;
    place.run(&["mirrors", "list"]).await.expect(0).says("no mirrors");
    place.run(&["mirrors", "show", "odd.names"]).await.expect(3).says("leasehold mirrors list");
    let (place, engine, mirror, store) = mirrored(9).await;
    place.run(&["mirrors", "list"]).await.expect(0).prints("odd.names").prints("not yet");
    mirror.pass_once(&engine).await.unwrap();
    mirror.check_once(&engine).await.unwrap();
    let listed = place.run(&["mirrors", "list", "--json"]).await.expect(0).json();
    let entry = &listed["mirrors"][0];
    assert_eq!((&entry["rows_checked"], &entry["differences"]), (&9.into(), &0.into()));
    assert!(entry["equal_as_of"].is_string());
    place.run(&["mirrors", "differences", "odd.names"]).await.expect(0).says("nothing differs");
    store.searched().tamper("row 3", 1, None);
    mirror.check_once(&engine).await.unwrap();
    place
        .run(&["mirrors", "differences", "odd.names"])
        .await
        .expect(0)
        .prints("row 3")
        .prints("missing");
    place
        .run(&["mirrors", "show", "odd.names"])
        .await
        .expect(0)
        .prints("equal as of")
        .prints("set-1");
    place
        .run(&["mirrors", "reindex", "odd.names", "row 3", "row 4"])
        .await
        .expect(0)
        .prints("2 rows");
    place.run(&["mirrors", "show", "odd.name"]).await.expect(3).says("did you mean");
}

#[tokio::test]
async fn what_needs_the_store_is_ordered_and_done_by_a_worker_that_has_it() {
    let (place, engine, mirror, store) = mirrored(30).await;
    mirror.pass_once(&engine).await.unwrap();
    place.run(&["mirrors", "rollback", "odd.names"]).await.expect(5).says("no former set");
    place.run(&["mirrors", "drop", "odd.names", "--yes"]).await.expect(5).says("no second set");
    place
        .run(&["mirrors", "rebuild", "odd.names"])
        .await
        .expect(0)
        .prints("asked for")
        .says("no living worker has this mirror");
    assert_eq!(store.names(), ["set-1"], "nothing happens here");
    mirror.pass_once(&engine).await.unwrap();
    assert_eq!(store.names(), ["set-1", "set-2"]);
    place
        .run(&["mirrors", "show", "odd.names"])
        .await
        .expect(0)
        .prints("set-1 is kept to go back to");
    place.run(&["mirrors", "rebuild", "odd.names"]).await.expect(5).says("leasehold mirrors drop");
    for (order, then) in [("rollback", "set-1"), ("drop", "set-1"), ("check", "set-1")] {
        let mut words = vec!["mirrors", order, "odd.names"];
        if order == "drop" {
            words.push("--yes");
        }
        place.run(&words).await.expect(0).prints(order);
        mirror.pass_once(&engine).await.unwrap();
        let shown = place.run(&["mirrors", "show", "odd.names", "--json"]).await.expect(0).json();
        assert_eq!(shown["mirror"]["serving"], then, "{order}");
    }
    assert_eq!(store.names(), ["set-1"]);
}
