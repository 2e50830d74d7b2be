//! OpenSearch down, slow, full, or refusing: which errors callers get, and that a write without a clear
//! response does not count.

use std::sync::Arc;
use std::time::Duration;

use annotations::index::{OpenSearch, OpenSearchSettings, SearchIndex as _};
use leasehold::mirror::{ItemError, Range, Target, TargetError, Targets as _, Written};
use leasehold_testing::PrivateOpenSearch;
use leasehold_testing::opensearch::fresh_prefix;
use reqwest::StatusCode;
use serde_json::json;

use super::fixture::{asking, deleted, gone, held, living, note, put, write};
use crate::fault_proxy::{Fault, FaultProxy};

/// Returns an index behind a proxy, and its first set.
async fn behind(proxy: &FaultProxy) -> (OpenSearch, Arc<dyn Target>) {
    let index = named(proxy, &fresh_prefix(), LONG);
    let set = index.open(&index.current().await.unwrap()).await.unwrap();
    (index, set)
}

/// Returns an index behind a proxy, by its prefix.
fn named(proxy: &FaultProxy, prefix: &str, limit: Duration) -> OpenSearch {
    let settings = OpenSearchSettings { limit, ..OpenSearchSettings::new(&proxy.url, prefix) };
    OpenSearch::new(settings).unwrap()
}

const LONG: Duration = Duration::from_secs(120);

#[tokio::test]
async fn f11_failed_items_are_reported_and_the_others_stored() {
    let proxy = FaultProxy::open().await;
    let (_, set) = behind(&proxy).await;
    let full = json!({ "type": "rejected_execution_exception", "reason": "queue is full" });
    let mapping = json!({ "type": "mapper_parsing_exception", "reason": "no long" });
    proxy.next("_bulk", Fault::Items(vec![(1, 429, full), (3, 400, mapping)]));
    let batch: Vec<_> = ["a", "b", "c", "d", "e"].map(|key| put(key, 1, note("", 1))).into();
    let answers = set.write(&batch).await.unwrap();
    assert!(matches!(&answers[1], Err(ItemError::Busy(why)) if why.contains("queue is full")));
    assert!(matches!(&answers[3], Err(ItemError::Refused(why)) if why.contains("no long")));
    for (at, key) in [(0, "a"), (2, "c"), (4, "e")] {
        assert_eq!(answers[at], Ok(Written::Stored));
        assert_eq!(held(&set, key).await, living(1));
    }
    assert_eq!(held(&set, "b").await, None);
}

#[tokio::test]
async fn f11_mapping_error_names_the_field() {
    let proxy = FaultProxy::open().await;
    let (index, set) = behind(&proxy).await;
    write(&set, put("before", 1, note("", 1))).await.unwrap();
    // An older index, in which a field has another type.
    let name = index.create().await.unwrap();
    let (url, client) = (PrivateOpenSearch::shared().url(), leasehold_testing::http::client());
    let gone = client.delete(format!("{url}/{name}")).send().await.unwrap();
    assert_eq!(gone.status(), StatusCode::OK);
    let body = json!({
        "mappings": { "properties": { "user": { "type": "long" }, "key": { "type": "keyword" } } },
        "aliases": { (format!("{name}-write")): {} },
    });
    let made = client.put(format!("{url}/{name}")).header("content-type", "application/json");
    assert_eq!(made.body(body.to_string()).send().await.unwrap().status(), StatusCode::OK);
    let other = index.open(&name).await.unwrap();
    let refused = write(&other, put("a", 1, note("", 1))).await;
    assert!(
        matches!(&refused, Err(ItemError::Refused(why)) if why.contains("user")),
        "{refused:?}"
    );
}

#[tokio::test]
async fn f11_statuses_map_to_overloaded_or_down() {
    let proxy = FaultProxy::open().await;
    let (index, set) = behind(&proxy).await;
    let batch = [put("a", 1, note("", 1)), put("b", 1, note("", 1))];
    proxy.next("_bulk", Fault::Status(429, r#"{"error":"slow down"}"#));
    assert!(matches!(set.write(&batch).await, Err(TargetError::Overloaded(_))));
    proxy.next("_bulk", Fault::Status(413, "too large"));
    assert!(matches!(set.write(&batch).await, Err(TargetError::Overloaded(_))));
    proxy.next("_bulk", Fault::Status(503, "<html>not now</html>"));
    assert!(matches!(set.write(&batch).await, Err(TargetError::Down(_))));
    proxy.next("_bulk", Fault::Status(401, "{}"));
    assert!(matches!(set.write(&batch).await, Err(TargetError::Down(_))));
    proxy.next("_search", Fault::Status(503, "{}"));
    assert!(matches!(index.search(&asking()).await, Err(TargetError::Down(_))));
    proxy.next("_mget", Fault::Status(429, "{}"));
    assert!(matches!(set.held(&["a".to_owned()]).await, Err(TargetError::Overloaded(_))));
    // A document that is too large stays too large: the others must not wait for it.
    proxy.next("_bulk", Fault::Status(413, "too large"));
    let alone = set.write(&batch[..1]).await.unwrap();
    assert!(matches!(&alone[0], Err(ItemError::Refused(_))));
    assert_eq!(proxy.left(), 0);
    // Nothing was stored so far, and now everything is.
    assert_eq!(held(&set, "a").await, None);
    assert_eq!(set.write(&batch).await.unwrap(), [Ok(Written::Stored), Ok(Written::Stored)]);
}

#[tokio::test]
async fn f11_call_to_a_hanging_server_ends_at_the_limit() {
    let proxy = FaultProxy::open().await;
    let prefix = fresh_prefix();
    // Created with a longer time limit.
    let name = named(&proxy, &prefix, LONG).current().await.unwrap();
    let index = named(&proxy, &prefix, Duration::from_secs(2));
    let set = index.open(&name).await.unwrap();
    proxy.hold(Some(Fault::Hang));
    let slow = set.write(&[put("a", 1, note("", 1))]).await;
    assert!(
        matches!(slow, Err(TargetError::Overloaded(why)) if why.contains("no response within"))
    );
    assert!(index.search(&asking()).await.is_err());
}

#[tokio::test]
async fn f11_error_of_a_server_that_is_down_hides_the_password() {
    // The port is bound, so that no other process gets it, and nothing listens on it.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    let url = format!("http://sancho:panza-secret@{address}");
    let index = OpenSearch::new(OpenSearchSettings::new(url, fresh_prefix())).unwrap();
    let why = index.current().await.unwrap_err();
    assert!(matches!(&why, TargetError::Down(_)), "{why:?}");
    assert!(!why.to_string().contains("secret"), "{why}");
    let set = index.set(&format!("{}-1", "x"));
    assert!(set.is_err(), "the name of a foreign index");
    assert!(index.search(&asking()).await.is_err());
}

#[tokio::test]
async fn f7_write_with_a_lost_response_can_be_repeated() {
    let proxy = FaultProxy::open().await;
    let (_, set) = behind(&proxy).await;
    proxy.next("_bulk", Fault::LoseAnswer);
    let lost = set.write(&[put("a", 1, note("", 1))]).await;
    assert!(matches!(lost, Err(TargetError::Down(_))), "{lost:?}");
    // It had been stored, and writing it again is harmless.
    assert_eq!(held(&set, "a").await, living(1));
    assert_eq!(write(&set, put("a", 1, note("", 1))).await, Ok(Written::Newer));
}

#[tokio::test]
async fn f11_invalid_response_stores_nothing() {
    let proxy = FaultProxy::open().await;
    let (index, set) = behind(&proxy).await;
    for nonsense in ["", "<html>", "[]", "{}", r#"{"items":[]}"#, r#"{"docs":[]}"#, "null"] {
        proxy.next("_bulk", Fault::Answer(nonsense));
        assert!(set.write(&[put("a", 1, note("", 1))]).await.is_err(), "{nonsense}");
        proxy.next("_mget", Fault::Answer(nonsense));
        assert!(set.held(&["a".to_owned()]).await.is_err(), "{nonsense}");
        proxy.next("_search", Fault::Answer(nonsense));
        assert!(set.digest(&Range::default()).await.is_err(), "{nonsense}");
    }
    let half = r#"{"timed_out":true,"hits":{"hits":[]}}"#;
    proxy.next("_search", Fault::Answer(half));
    assert!(index.search(&asking()).await.is_err(), "half an answer is none");
    proxy.next("_search", Fault::Answer(r#"{"_shards":{"failed":1},"hits":{"hits":[]}}"#));
    assert!(set.list(&Range::default(), 5).await.is_err(), "a shard was missing");
    assert_eq!(proxy.left(), 0);
}

/// OpenSearch forgets a deletion after a minute; here it forgets at once.
#[tokio::test]
async fn f2_late_write_is_refused_after_opensearch_forgot_the_deletion() {
    let proxy = FaultProxy::open().await;
    let (index, set) = behind(&proxy).await;
    let name = index.current().await.unwrap();
    let (url, client) = (PrivateOpenSearch::shared().url(), leasehold_testing::http::client());
    let forgetful = client
        .put(format!("{url}/{name}/_settings"))
        .header("content-type", "application/json")
        .body(json!({ "index": { "gc_deletes": "0ms" } }).to_string());
    assert_eq!(forgetful.send().await.unwrap().status(), StatusCode::OK);
    write(&set, put("a", 1, note("", 1))).await.unwrap();
    write(&set, gone("a", 3)).await.unwrap();
    for _ in 0..3 {
        // Each refresh is a chance to forget.
        write(&set, put("other", 1, note("", 1))).await.unwrap();
        set.digest(&Range::default()).await.unwrap();
    }
    assert_eq!(write(&set, put("a", 2, note("late", 2))).await, Ok(Written::Newer));
    assert_eq!(held(&set, "a").await, deleted(3));
}

#[tokio::test]
async fn f14_deleted_index_is_created_again_with_its_fields() {
    let proxy = FaultProxy::open().await;
    let (index, set) = behind(&proxy).await;
    write(&set, put("a", 1, note("windmills", 1))).await.unwrap();
    let name = index.current().await.unwrap();
    let (url, client) = (PrivateOpenSearch::shared().url(), leasehold_testing::http::client());
    let delete = async || {
        let gone = client.delete(format!("{url}/{name}")).send().await.unwrap();
        assert_eq!(gone.status(), StatusCode::OK);
    };
    // The first write, lookup by id or digest creates it again; a search fails until then.
    delete().await;
    assert_eq!(write(&set, put("b", 1, note("windmills", 1))).await, Ok(Written::Stored));
    set.digest(&Range::default()).await.unwrap();
    assert_eq!(index.search(&asking()).await.unwrap().hits[0].id, "b");
    let mapping = client.get(format!("{url}/{name}/_mapping")).send().await.unwrap();
    let mapping: serde_json::Value = mapping.json().await.unwrap();
    assert_eq!(mapping[&name]["mappings"]["dynamic"], "false", "OpenSearch guessed the fields");
    delete().await;
    assert_eq!(held(&set, "b").await, None);
    delete().await;
    assert_eq!(set.digest(&Range::default()).await.unwrap().count, 0);
    delete().await;
    assert!(index.search(&asking()).await.is_err(), "an empty answer would look like the truth");
    assert_eq!(held(&set, "b").await, None);
    assert!(index.search(&asking()).await.unwrap().hits.is_empty());
    assert_eq!(index.current().await.unwrap(), name);
}
