//! Which of two writes stays.

use annotations::index::Query;
use leasehold::mirror::{Range, Tombstone, Written};

use super::rig::{asking, deleted, each, forced, gone, held, living, note, put, write};

#[tokio::test]
async fn f1_an_older_version_that_comes_late_changes_nothing() {
    each(async |rig| {
        assert_eq!(write(&rig.set, put("a", 2, note("new", 2))).await, Ok(Written::Stored));
        assert_eq!(write(&rig.set, put("a", 1, note("old", 1))).await, Ok(Written::Newer));
        assert_eq!(held(&rig.set, "a").await, living(2));
        let old = Query { words: Some("old".to_owned()), ..asking() };
        assert!(rig.ids(&old).await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn f1_the_same_version_again_is_answered_as_there_and_changes_nothing() {
    each(async |rig| {
        write(&rig.set, put("a", 1, note("first", 1))).await.unwrap();
        assert_eq!(write(&rig.set, put("a", 1, note("second", 1))).await, Ok(Written::Newer));
        let second = Query { words: Some("second".to_owned()), ..asking() };
        assert!(rig.ids(&second).await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn f1_a_forced_write_replaces_its_own_version_and_no_newer_one() {
    each(async |rig| {
        write(&rig.set, put("a", 2, note("first", 1))).await.unwrap();
        let again = forced(put("a", 2, note("second", 1)));
        assert_eq!(write(&rig.set, again).await, Ok(Written::Stored));
        let words = |words: &str| Query { words: Some(words.to_owned()), ..asking() };
        assert_eq!(rig.ids(&words("second")).await, ["a"]);
        assert!(rig.ids(&words("first")).await.is_empty());
        let older = forced(put("a", 1, note("third", 1)));
        assert_eq!(write(&rig.set, older).await, Ok(Written::Newer));
        assert_eq!(held(&rig.set, "a").await, living(2));
    })
    .await;
}

#[tokio::test]
async fn f1_versions_of_one_key_in_one_batch_end_with_the_newest() {
    each(async |rig| {
        let batch = [
            put("a", 2, note("two", 2)),
            put("a", 1, note("one", 1)),
            put("b", 1, note("b", 1)),
            put("a", 3, note("three", 3)),
        ];
        let answers = rig.set.write(&batch).await.unwrap();
        let stored = [Written::Stored, Written::Newer, Written::Stored, Written::Stored];
        assert_eq!(answers.into_iter().map(Result::unwrap).collect::<Vec<_>>(), stored);
        assert_eq!(held(&rig.set, "a").await, living(3));
        // One copy, not three.
        let all = rig.set.list(&Range::default(), 10).await.unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!(rig.ids(&asking()).await, ["a", "b"]);
    })
    .await;
}

#[tokio::test]
async fn f1_writes_that_meet_leave_the_newest_version() {
    each(async |rig| {
        // Ten versions in about every order: each is a call of its own.
        let mut calls = Vec::new();
        for version in [5, 1, 9, 3, 10, 7, 2, 8, 4, 6] {
            let set = rig.set.clone();
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
        assert_eq!(held(&rig.set, "a").await, living(10));
        assert_eq!(rig.set.list(&Range::default(), 10).await.unwrap().len(), 1);
    })
    .await;
}

#[tokio::test]
async fn f2_a_late_write_does_not_bring_a_deleted_document_back() {
    each(async |rig| {
        write(&rig.set, put("a", 1, note("text", 1))).await.unwrap();
        assert_eq!(write(&rig.set, gone("a", 3)).await, Ok(Written::Stored));
        assert_eq!(held(&rig.set, "a").await, deleted(3));
        assert_eq!(write(&rig.set, put("a", 2, note("text", 2))).await, Ok(Written::Newer));
        assert_eq!(held(&rig.set, "a").await, deleted(3));
        assert!(rig.ids(&asking()).await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn f2_a_deletion_is_kept_for_a_key_that_was_never_there() {
    each(async |rig| {
        assert_eq!(write(&rig.set, gone("a", 2)).await, Ok(Written::Stored));
        assert_eq!(write(&rig.set, put("a", 1, note("late", 1))).await, Ok(Written::Newer));
        assert_eq!(held(&rig.set, "a").await, deleted(2));
        assert!(rig.ids(&asking()).await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn f3_a_document_that_lives_again_stays_when_its_deletion_comes_again() {
    each(async |rig| {
        write(&rig.set, gone("a", 2)).await.unwrap();
        assert_eq!(write(&rig.set, put("a", 3, note("again", 3))).await, Ok(Written::Stored));
        assert_eq!(write(&rig.set, gone("a", 2)).await, Ok(Written::Newer));
        assert_eq!(held(&rig.set, "a").await, living(3));
        assert_eq!(rig.ids(&asking()).await, ["a"]);
    })
    .await;
}

#[tokio::test]
async fn f2_deletions_are_forgotten_and_nothing_else_is() {
    each(async |rig| {
        let before = [
            gone("forgotten", 2),
            gone("newer", 5),
            put("lives", 2, note("x", 1)),
            gone("again", 2),
            put("again", 3, note("x", 1)),
        ];
        rig.set.write(&before).await.unwrap();
        let tombstone = |key: &str| Tombstone { key: key.to_owned(), version: 2 };
        let all = ["forgotten", "newer", "lives", "again", "absent"].map(tombstone);
        rig.set.forget(&all).await.unwrap();
        rig.set.forget(&all).await.unwrap();
        assert_eq!(held(&rig.set, "forgotten").await, None);
        assert_eq!(held(&rig.set, "newer").await, deleted(5));
        assert_eq!(held(&rig.set, "lives").await, living(2));
        assert_eq!(held(&rig.set, "again").await, living(3));
        // Its key can be used again.
        let anew = put("forgotten", 3, note("x", 1));
        assert_eq!(write(&rig.set, anew).await, Ok(Written::Stored));
    })
    .await;
}

#[tokio::test]
async fn f5_what_is_held_is_told_before_any_search_sees_it() {
    each(async |rig| {
        for version in 1..=20 {
            write(&rig.set, put("a", version, note("text", version))).await.unwrap();
            // Read at once and without a refresh: OpenSearch refreshes once per second.
            assert_eq!(held(&rig.set, "a").await, living(version));
        }
    })
    .await;
}

#[tokio::test]
async fn what_is_held_is_told_in_the_order_of_the_question() {
    each(async |rig| {
        rig.set.write(&[put("a", 1, note("", 1)), gone("b", 2)]).await.unwrap();
        let keys = ["b", "", "none", "a", "b"].map(str::to_owned);
        let held = rig.set.held(&keys).await.unwrap();
        assert_eq!(held, [deleted(2), None, None, living(1), deleted(2)]);
        assert!(rig.set.held(&[]).await.unwrap().is_empty());
        assert!(rig.set.write(&[]).await.unwrap().is_empty());
    })
    .await;
}
