//! A second set beside the current one.

use std::time::Duration;

use annotations::index::{
    OpenSearch, OpenSearchSettings, SearchIndex, TantivyIndex, TantivySettings,
};
use leasehold::mirror::Targets;
use leasehold_testing::PrivateOpenSearch;
use leasehold_testing::opensearch::fresh_prefix;

use super::fixture::{asking, each, held, living, note, put, write};
use crate::index_kind::TempDir;

#[tokio::test]
async fn f12_swap_moves_searches_to_another_set_and_back() {
    each(async |fixture| {
        let old = fixture.targets.current().await.unwrap();
        write(&fixture.set, put("old", 1, note("", 1))).await.unwrap();
        let new = fixture.targets.create().await.unwrap();
        assert_ne!(new, old);
        let set = fixture.targets.open(&new).await.unwrap();
        write(&set, put("new", 1, note("", 1))).await.unwrap();
        // Reading both digests makes OpenSearch refresh.
        let seen = async || {
            set.digest(&Default::default()).await.unwrap();
            fixture.ids(&asking()).await
        };
        assert_eq!(fixture.targets.current().await.unwrap(), old);
        assert_eq!(seen().await, ["old"]);
        fixture.targets.swap(&new).await.unwrap();
        assert_eq!(fixture.targets.current().await.unwrap(), new);
        assert_eq!(seen().await, ["new"]);
        // The old one is still written, so that a rollback loses nothing.
        write(&fixture.set, put("meanwhile", 1, note("", 2))).await.unwrap();
        fixture.targets.swap(&old).await.unwrap();
        assert_eq!(seen().await, ["meanwhile", "old"]);
        // A second swap to the same set is harmless.
        fixture.targets.swap(&old).await.unwrap();
        assert_eq!(fixture.targets.current().await.unwrap(), old);
    })
    .await;
}

#[tokio::test]
async fn f12_remove_refuses_the_searched_set() {
    each(async |fixture| {
        let current = fixture.targets.current().await.unwrap();
        let other = fixture.targets.create().await.unwrap();
        let why = fixture.targets.remove(&current).await.unwrap_err().to_string();
        assert!(why.contains("swap to another one"), "{why}");
        fixture.targets.remove(&other).await.unwrap();
        fixture.targets.remove(&other).await.unwrap();
        assert_eq!(fixture.targets.current().await.unwrap(), current);
        assert!(
            fixture.targets.swap(&other).await.is_err(),
            "searches would find nothing to search"
        );
        assert_eq!(fixture.targets.current().await.unwrap(), current);
    })
    .await;
}

#[tokio::test]
async fn f12_writer_with_an_old_handle_does_not_recreate_a_removed_set() {
    each(async |fixture| {
        let name = fixture.targets.create().await.unwrap();
        let set = fixture.targets.open(&name).await.unwrap();
        write(&set, put("a", 1, note("", 1))).await.unwrap();
        fixture.targets.remove(&name).await.unwrap();
        // A pass that was still using it.
        assert!(set.write(&[put("b", 1, note("", 1))]).await.is_err());
        assert!(set.held(&["a".to_owned()]).await.is_err());
        assert!(set.digest(&Default::default()).await.is_err());
        assert!(fixture.targets.swap(&name).await.is_err(), "it is not there");
        write(&fixture.set, put("a", 1, note("", 1))).await.unwrap();
        assert_eq!(fixture.ids(&asking()).await, ["a"], "the other one is searched as ever");
        let next = fixture.targets.create().await.unwrap();
        let next = fixture.targets.open(&next).await.unwrap();
        write(&next, put("a", 1, note("", 1))).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn sets_have_separate_documents_and_versions() {
    each(async |fixture| {
        let other = fixture.targets.create().await.unwrap();
        let other = fixture.targets.open(&other).await.unwrap();
        write(&fixture.set, put("a", 5, note("", 1))).await.unwrap();
        assert_eq!(held(&other, "a").await, None);
        write(&other, put("a", 2, note("", 1))).await.unwrap();
        assert_eq!(held(&other, "a").await, living(2));
        assert_eq!(held(&fixture.set, "a").await, living(5));
    })
    .await;
}

#[tokio::test]
async fn invalid_set_name_is_refused() {
    each(async |fixture| {
        for name in ["", "..", "../x", "/etc", "_all", "*", "g", "x-1/_close", "g1\0", "ünï"] {
            assert!(fixture.targets.open(name).await.is_err(), "{name:?}");
            assert!(fixture.targets.swap(name).await.is_err(), "{name:?}");
            // Removing a set that does not exist does nothing.
            fixture.targets.remove(name).await.unwrap();
        }
        write(&fixture.set, put("a", 1, note("", 1))).await.unwrap();
        assert_eq!(held(&fixture.set, "a").await, living(1));
    })
    .await;
}

/// Everything is lost but the engine's record of the current set: a search that comes first must not
/// create another one, which would stay empty while that one is filled.
#[tokio::test]
async fn f14_searches_use_the_refilled_set_after_a_loss() {
    async fn lost(index: impl Targets + SearchIndex, known: &str) {
        assert!(index.search(&asking()).await.is_err(), "nothing is there to be searched");
        let set = index.open(known).await.unwrap();
        write(&set, put("again", 1, note("", 1))).await.unwrap();
        set.digest(&Default::default()).await.unwrap();
        assert_eq!(index.search(&asking()).await.unwrap().hits[0].id, "again");
        assert_eq!(index.current().await.unwrap(), known);
    }
    let limit = Duration::from_secs(120);
    let dir = TempDir::new();
    let settings = TantivySettings { limit, ..TantivySettings::new(dir.path()) };
    let index = TantivyIndex::open(settings).await.unwrap();
    lost(index, "g1700000000000").await;
    let prefix = fresh_prefix();
    let settings = OpenSearchSettings::new(PrivateOpenSearch::shared().url(), prefix.as_str());
    let settings = OpenSearchSettings { limit, ..settings };
    lost(OpenSearch::new(settings).unwrap(), &format!("{prefix}-1700000000000")).await;
}
