//! Which of two writes stays.

use annotations::index::Query;
use leasehold::mirror::{Range, Tombstone, Written};

use super::fixture::{asking, deleted, each, forced, gone, held, living, note, put, write};

#[tokio::test]
async fn f1_late_older_version_changes_nothing() {
    each(async |fixture| {
        assert_eq!(write(&fixture.set, put("a", 2, note("new", 2))).await, Ok(Written::Stored));
        assert_eq!(write(&fixture.set, put("a", 1, note("old", 1))).await, Ok(Written::Newer));
        assert_eq!(held(&fixture.set, "a").await, living(2));
        let old = Query { words: Some("old".to_owned()), ..asking() };
        assert!(fixture.ids(&old).await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn f1_same_version_again_changes_nothing() {
    each(async |fixture| {
        write(&fixture.set, put("a", 1, note("first", 1))).await.unwrap();
        assert_eq!(write(&fixture.set, put("a", 1, note("second", 1))).await, Ok(Written::Newer));
        let second = Query { words: Some("second".to_owned()), ..asking() };
        assert!(fixture.ids(&second).await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn f1_forced_write_replaces_its_own_version_only() {
    each(async |fixture| {
        write(&fixture.set, put("a", 2, note("first", 1))).await.unwrap();
        let again = forced(put("a", 2, note("second", 1)));
        assert_eq!(write(&fixture.set, again).await, Ok(Written::Stored));
        let words = |words: &str| Query { words: Some(words.to_owned()), ..asking() };
        assert_eq!(fixture.ids(&words("second")).await, ["a"]);
        assert!(fixture.ids(&words("first")).await.is_empty());
        let older = forced(put("a", 1, note("third", 1)));
        assert_eq!(write(&fixture.set, older).await, Ok(Written::Newer));
        assert_eq!(held(&fixture.set, "a").await, living(2));
    })
    .await;
}

#[tokio::test]
async fn f1_newest_version_of_a_batch_stays() {
    each(async |fixture| {
        let batch = [
            put("a", 2, note("two", 2)),
            put("a", 1, note("one", 1)),
            put("b", 1, note("b", 1)),
            put("a", 3, note("three", 3)),
        ];
        let answers = fixture.set.write(&batch).await.unwrap();
        let stored = [Written::Stored, Written::Newer, Written::Stored, Written::Stored];
        assert_eq!(answers.into_iter().map(Result::unwrap).collect::<Vec<_>>(), stored);
        assert_eq!(held(&fixture.set, "a").await, living(3));
        // One copy, not three.
        let all = fixture.set.list(&Range::default(), 10).await.unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!(fixture.ids(&asking()).await, ["a", "b"]);
    })
    .await;
}

#[tokio::test]
async fn f1_concurrent_writes_leave_the_newest_version() {
    each(async |fixture| {
        // Ten versions in about every order: each is a call of its own.
        let mut calls = Vec::new();
        for version in [5, 1, 9, 3, 10, 7, 2, 8, 4, 6] {
            let set = fixture.set.clone();
            calls.push(tokio::spawn(async move {
                let version = put("a", version, note("text", version));
                set.write(&[version]).await.unwrap().remove(0).unwrap()
            }));
        }
        let mut stored = 0;
        for call in calls {
            stored += usize::from(call.await.unwrap() == Written::Stored);
        }
        assert!(stored >= 1);
        assert_eq!(held(&fixture.set, "a").await, living(10));
        assert_eq!(fixture.set.list(&Range::default(), 10).await.unwrap().len(), 1);
    })
    .await;
}

#[tokio::test]
async fn f2_late_write_does_not_restore_a_deleted_document() {
    each(async |fixture| {
        write(&fixture.set, put("a", 1, note("text", 1))).await.unwrap();
        assert_eq!(write(&fixture.set, gone("a", 3)).await, Ok(Written::Stored));
        assert_eq!(held(&fixture.set, "a").await, deleted(3));
        assert_eq!(write(&fixture.set, put("a", 2, note("text", 2))).await, Ok(Written::Newer));
        assert_eq!(held(&fixture.set, "a").await, deleted(3));
        assert!(fixture.ids(&asking()).await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn f2_deletion_of_an_unknown_key_is_kept() {
    each(async |fixture| {
        assert_eq!(write(&fixture.set, gone("a", 2)).await, Ok(Written::Stored));
        assert_eq!(write(&fixture.set, put("a", 1, note("late", 1))).await, Ok(Written::Newer));
        assert_eq!(held(&fixture.set, "a").await, deleted(2));
        assert!(fixture.ids(&asking()).await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn f3_repeated_deletion_does_not_delete_a_newer_document() {
    each(async |fixture| {
        write(&fixture.set, gone("a", 2)).await.unwrap();
        assert_eq!(write(&fixture.set, put("a", 3, note("again", 3))).await, Ok(Written::Stored));
        assert_eq!(write(&fixture.set, gone("a", 2)).await, Ok(Written::Newer));
        assert_eq!(held(&fixture.set, "a").await, living(3));
        assert_eq!(fixture.ids(&asking()).await, ["a"]);
    })
    .await;
}

#[tokio::test]
async fn f2_forget_removes_only_the_named_tombstones() {
    each(async |fixture| {
        let before = [
            gone("forgotten", 2),
            gone("newer", 5),
            put("lives", 2, note("x", 1)),
            gone("again", 2),
            put("again", 3, note("x", 1)),
        ];
        fixture.set.write(&before).await.unwrap();
        let tombstone = |key: &str| Tombstone { key: key.to_owned(), version: 2 };
        let all = ["forgotten", "newer", "lives", "again", "absent"].map(tombstone);
        fixture.set.forget(&all).await.unwrap();
        fixture.set.forget(&all).await.unwrap();
        assert_eq!(held(&fixture.set, "forgotten").await, None);
        assert_eq!(held(&fixture.set, "newer").await, deleted(5));
        assert_eq!(held(&fixture.set, "lives").await, living(2));
        assert_eq!(held(&fixture.set, "again").await, living(3));
        // Its key can be used again.
        let anew = put("forgotten", 3, note("x", 1));
        assert_eq!(write(&fixture.set, anew).await, Ok(Written::Stored));
    })
    .await;
}

#[tokio::test]
async fn f5_stored_versions_include_a_write_before_it_is_searchable() {
    each(async |fixture| {
        for version in 1..=20 {
            write(&fixture.set, put("a", version, note("text", version))).await.unwrap();
            // Read at once and without a refresh: OpenSearch refreshes once per second.
            assert_eq!(held(&fixture.set, "a").await, living(version));
        }
    })
    .await;
}

#[tokio::test]
async fn held_returns_versions_in_the_order_of_the_keys() {
    each(async |fixture| {
        fixture.set.write(&[put("a", 1, note("", 1)), gone("b", 2)]).await.unwrap();
        let keys = ["b", "", "none", "a", "b"].map(str::to_owned);
        let held = fixture.set.held(&keys).await.unwrap();
        assert_eq!(held, [deleted(2), None, None, living(1), deleted(2)]);
        assert!(fixture.set.held(&[]).await.unwrap().is_empty());
        assert!(fixture.set.write(&[]).await.unwrap().is_empty());
    })
    .await;
}
