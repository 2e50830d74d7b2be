//! What a blob store needs from any S3 server.

use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, Result as StoreResult,
};

/// Runs everything on an empty bucket and leaves it empty.
pub(super) async fn run(store: &impl ObjectStore) {
    what_was_put_can_be_read(store).await;
    a_missing_object_is_not_an_error(store).await;
    only_if_missing_means_that(store).await;
    a_second_put_replaces_the_first(store).await;
    deleting_twice_is_no_error(store).await;
    more_than_a_page_can_be_listed_and_deleted(store).await;
    assert_eq!(keys(store, "").await, Vec::<String>::new(), "the bucket is empty again");
}

async fn what_was_put_can_be_read(store: &impl ObjectStore) {
    let large: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    for (key, bytes) in
        [("blobs/a/empty", vec![]), ("blobs/a/one", vec![7]), ("blobs/b/large", large)]
    {
        let key = Path::from(key);
        store.put(&key, PutPayload::from(bytes.clone())).await.unwrap();
        let found = store.get(&key).await.unwrap();
        assert_eq!(found.meta.size, bytes.len() as u64);
        assert_eq!(found.bytes().await.unwrap(), bytes);
        let head = store.head(&key).await.unwrap();
        assert_eq!((head.size, head.location), (bytes.len() as u64, key));
    }
    let part = store.get_range(&"blobs/b/large".into(), 1000..1010).await.unwrap();
    assert_eq!(part, (1000..1010_u32).map(|n| (n % 251) as u8).collect::<Vec<u8>>());
    let below = store.list_with_delimiter(Some(&"blobs".into())).await.unwrap();
    assert_eq!(below.common_prefixes, ["blobs/a".into(), "blobs/b".into()]);
    assert!(below.objects.is_empty());
    assert_eq!(keys(store, "blobs/a").await, ["blobs/a/empty", "blobs/a/one"]);
    delete(store, &["blobs/a/empty", "blobs/a/one", "blobs/b/large"]).await;
}

async fn a_missing_object_is_not_an_error(store: &impl ObjectStore) {
    let key = Path::from("blobs/missing");
    assert!(matches!(store.get(&key).await, Err(Error::NotFound { .. })));
    assert!(matches!(store.head(&key).await, Err(Error::NotFound { .. })));
}

async fn only_if_missing_means_that(store: &impl ObjectStore) {
    let key = Path::from("blobs/once");
    let create = || PutOptions::from(PutMode::Create);
    store.put_opts(&key, PutPayload::from_static(b"first"), create()).await.unwrap();
    let second = store.put_opts(&key, PutPayload::from_static(b"second"), create()).await;
    assert!(matches!(second, Err(Error::AlreadyExists { .. })), "{second:?}");
    assert_eq!(store.get(&key).await.unwrap().bytes().await.unwrap(), "first");
    delete(store, &["blobs/once"]).await;
}

async fn a_second_put_replaces_the_first(store: &impl ObjectStore) {
    let key = Path::from("blobs/twice");
    let first = store.put(&key, PutPayload::from_static(b"first")).await.unwrap();
    let second = store.put(&key, PutPayload::from_static(b"second, longer")).await.unwrap();
    assert_ne!(first.e_tag, second.e_tag);
    assert_eq!(store.get(&key).await.unwrap().bytes().await.unwrap(), "second, longer");
    delete(store, &["blobs/twice"]).await;
}

async fn deleting_twice_is_no_error(store: &impl ObjectStore) {
    store.put(&"blobs/gone".into(), PutPayload::from_static(b"x")).await.unwrap();
    delete(store, &["blobs/gone"]).await;
    delete(store, &["blobs/gone", "blobs/never"]).await;
    store.delete(&"blobs/gone".into()).await.unwrap();
}

async fn more_than_a_page_can_be_listed_and_deleted(store: &impl ObjectStore) {
    let wanted: Vec<String> = (0..1050).map(|n| format!("blobs/{:03x}/{n:04}", n % 7)).collect();
    let puts = wanted.iter().map(|key| {
        let key = Path::from(key.as_str());
        async move { store.put(&key, PutPayload::from_static(b"x")).await }
    });
    let done: StoreResult<Vec<_>> =
        futures_util::stream::iter(puts).buffered(8).try_collect().await;
    assert_eq!(done.unwrap().len(), wanted.len());
    let mut sorted = wanted.clone();
    sorted.sort();
    assert_eq!(keys(store, "blobs").await, sorted);
    let after = Path::from(sorted[1024].as_str());
    let rest: Vec<_> = store.list_with_offset(None, &after).try_collect().await.unwrap();
    assert_eq!(rest.len(), sorted.len() - 1025);
    let refs: Vec<&str> = wanted.iter().map(String::as_str).collect();
    delete(store, &refs).await;
}

pub(super) async fn keys(store: &impl ObjectStore, prefix: &str) -> Vec<String> {
    let prefix = Path::from(prefix);
    let mut found: Vec<String> = store
        .list(Some(&prefix).filter(|prefix| !prefix.as_ref().is_empty()))
        .map_ok(|meta| meta.location.to_string())
        .try_collect()
        .await
        .unwrap();
    found.sort();
    found
}

pub(super) async fn delete(store: &impl ObjectStore, keys: &[&str]) {
    let paths: Vec<_> = keys.iter().map(|key| Ok(Path::from(*key))).collect();
    let gone = store.delete_stream(futures_util::stream::iter(paths).boxed());
    assert_eq!(gone.try_collect::<Vec<_>>().await.unwrap().len(), keys.len());
}
