//! What the service needs of a store, on any kind of server.

use bytes::Bytes;
use futures_util::TryStreamExt;
use pastes::Store;
use pastes::store::{ObjectKey, StoreError, hash_of};
use uuid::Uuid;

fn key_of(bytes: &[u8], content_id: i64) -> ObjectKey {
    ObjectKey { content_hash: hash_of(bytes), content_id, object_id: Uuid::new_v4() }
}

async fn listed(store: &Store) -> Vec<String> {
    let mut keys: Vec<String> =
        store.list().map_ok(|object| object.key).try_collect().await.unwrap();
    keys.sort();
    keys
}

/// Runs all checks on an empty store and leaves it empty.
pub async fn run(store: &Store) {
    put_check_and_get(store).await;
    second_put_is_harmless(store).await;
    missing_objects_are_reported(store).await;
    many_objects_are_listed_and_deleted(store).await;
    assert_eq!(listed(store).await, Vec::<String>::new(), "the store is empty again");
}

async fn put_check_and_get(store: &Store) {
    for size in [1, 4096, 1024 * 1024] {
        let bytes = Bytes::from(vec![b'x'; size]);
        let key = key_of(&bytes, 1);
        store.put_verified(&key, &bytes).await.unwrap();
        store.check(&key, size).await.unwrap();
        assert_eq!(store.get(&key, size).await.unwrap(), bytes);
        let wrong = store.check(&key, size + 1).await;
        assert!(matches!(wrong, Err(StoreError::WrongBytes(_))), "{wrong:?}");
        assert_eq!(listed(store).await, [key.to_string()]);
        assert!(store.delete_many(vec![key]).await.iter().all(Result::is_ok));
    }
}

async fn second_put_is_harmless(store: &Store) {
    let bytes = Bytes::from_static(b"twice");
    let key = key_of(&bytes, 2);
    store.put_verified(&key, &bytes).await.unwrap();
    store.put_verified(&key, &bytes).await.unwrap();
    assert_eq!(store.get(&key, bytes.len()).await.unwrap(), bytes);
    // Two at once, like a direct upload and its job.
    let (one, two) =
        tokio::join!(store.put_verified(&key, &bytes), store.put_verified(&key, &bytes));
    one.unwrap();
    two.unwrap();
    assert!(store.delete_many(vec![key]).await.iter().all(Result::is_ok));
}

async fn missing_objects_are_reported(store: &Store) {
    let missing = key_of(b"missing", 3);
    assert!(matches!(store.get(&missing, 7).await, Err(StoreError::Missing)));
    assert!(matches!(store.check(&missing, 7).await, Err(StoreError::Missing)));
    let responses = store.delete_many(vec![missing.clone(), missing]).await;
    assert!(
        responses.iter().all(Result::is_ok),
        "a missing object counts as deleted: {responses:?}"
    );
    assert!(store.delete_many(Vec::new()).await.is_empty());
}

async fn many_objects_are_listed_and_deleted(store: &Store) {
    let mut keys = Vec::new();
    for n in 0..1010_i64 {
        let bytes = Bytes::from(format!("object {n}"));
        keys.push((key_of(&bytes, n), bytes));
    }
    for few in keys.chunks(16) {
        let puts = few.iter().map(|(key, bytes)| store.put_verified(key, bytes));
        futures_util::future::try_join_all(puts).await.unwrap();
    }
    let mut wanted: Vec<String> = keys.iter().map(|(key, _)| key.to_string()).collect();
    wanted.sort();
    assert_eq!(listed(store).await, wanted);
    let now = jiff::Timestamp::now();
    let objects: Vec<_> = store.list().try_collect().await.unwrap();
    for object in objects {
        let age = now.duration_since(object.changed_at);
        assert!(age.as_secs().abs() < 3600, "{} is {age:?} old", object.key);
    }
    let (first, rest) = keys.split_at(1000);
    for some in [first, rest] {
        let some: Vec<ObjectKey> = some.iter().map(|(key, _)| key.clone()).collect();
        // A server on a busy disk may need longer than one call's timeout for 1,000 objects. Deleted
        // objects stay deleted, so the queue retries, and so does this test.
        let mut responses = store.delete_many(some.clone()).await;
        for _ in 0..5 {
            assert_eq!(responses.len(), some.len());
            if responses.iter().all(Result::is_ok) {
                break;
            }
            responses = store.delete_many(some.clone()).await;
        }
        assert!(
            responses.iter().all(Result::is_ok),
            "{:?}",
            responses.iter().find(|one| one.is_err())
        );
    }
}
