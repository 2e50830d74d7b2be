//! The directory of an index: who may read it, and to which database it belongs.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use annotations::index::{
    OpenSearch, OpenSearchSettings, TantivyIndex, TantivySettings, is_open_to_others,
};
use annotations::{Annotations, Index, IndexState, StartError};
use leasehold::admin::By;

use crate::fixture::{Fixture, on_page, settings, until};
use crate::index_kind::TempDir;

/// Finds everything below a directory that other users may read.
fn open_to_others(dir: &Path, found: &mut Vec<String>) {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    for path in entries.chain([dir.to_owned()]) {
        if std::fs::metadata(&path).unwrap().permissions().mode() & 0o077 != 0 {
            found.push(path.display().to_string());
        }
        if path.is_dir() && path != dir {
            open_to_others(&path, found);
        }
    }
}

#[tokio::test]
async fn f27_index_files_are_private_to_their_user() {
    let fixture = Fixture::alone().await;
    let dir = TempDir::new();
    let alba = fixture.user("alba").await;
    fixture.note(&alba, "a word of a closed group").await;
    let index = TantivyIndex::open(TantivySettings::new(dir.path())).await.unwrap();
    index.identity().await.unwrap();
    let index = Index::new(Arc::new(index));
    let served = Annotations::start(fixture.engine.clone(), Some(index), settings()).await.unwrap();
    until(async || {
        fixture.bring_forward().await;
        let worker = annotations::worker(&served, fixture.engine.worker()).unwrap();
        worker.run_until_idle().await.unwrap();
        fixture.count("select count(*) from leasehold.job").await == 0
    })
    .await;
    let mut found = Vec::new();
    open_to_others(dir.path(), &mut found);
    assert_eq!(found, [""; 0]);
    assert!(!is_open_to_others(dir.path()).unwrap());
    // An existing directory keeps its mode, and the service warns about it.
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    assert!(is_open_to_others(dir.path()).unwrap());
}

#[tokio::test]
async fn f28_service_refuses_another_index_until_the_record_is_removed() {
    let fixture = Fixture::alone().await;
    let (one, other) = (TempDir::new(), TempDir::new());
    let start = async |dir: &TempDir, may_write: bool| {
        let settings = TantivySettings { may_write, ..TantivySettings::new(dir.path()) };
        let index = TantivyIndex::open(settings).await.unwrap();
        let identity = index.identity().await.unwrap();
        let asked = index.clone();
        let index = Index::new(Arc::new(index)).written_when(move || asked.is_writer());
        let index = match identity {
            Some(identity) => index.known_as(identity, dir.path().display().to_string()),
            None => index,
        };
        Annotations::start(fixture.engine.clone(), Some(index), crate::fixture::settings())
            .await
            .map(drop)
    };
    // A process that only searches does not make a new directory the database's own.
    start(&one, false).await.unwrap();
    start(&one, true).await.unwrap();
    start(&one, false).await.unwrap();
    for may_write in [true, false] {
        let refused = start(&other, may_write).await.unwrap_err();
        let StartError::OtherIndex { known, .. } = &refused else { panic!("{refused}") };
        assert_eq!(*known, one.path().display().to_string());
    }
    // A directory that was moved is the same index.
    let moved = TempDir::new();
    std::fs::rename(one.path(), moved.path()).unwrap();
    start(&moved, true).await.unwrap();
    // A lost directory is not replaced by an empty one: users would find nothing.
    assert!(matches!(start(&one, true).await, Err(StartError::OtherIndex { .. })));
    let forgotten = fixture.notes.forget_index(&By::new("ann")).await.unwrap();
    assert_eq!(forgotten, Some(one.path().display().to_string()), "where it was recorded");
    start(&other, true).await.unwrap();
    assert!(matches!(start(&moved, true).await, Err(StartError::OtherIndex { .. })));
}

/// A server that says which cluster it is, and records the requests that it refuses.
async fn cluster(
    address: std::net::SocketAddr,
    id: &'static str,
) -> (tokio::task::JoinHandle<()>, Arc<Mutex<Vec<String>>>) {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&asked);
    let answer = move |request: axum::extract::Request| {
        let path = request.uri().path().to_owned();
        let found = path == "/";
        seen.lock().unwrap().push(path);
        async move {
            let status = if found { 200 } else { 503 };
            let status = axum::http::StatusCode::from_u16(status).unwrap();
            (status, axum::Json(serde_json::json!({ "cluster_uuid": id })))
        }
    };
    let listener = tokio::net::TcpListener::bind(address).await.unwrap();
    let router = axum::Router::new().fallback(answer);
    let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (serving, asked)
}

#[tokio::test]
async fn f28_index_that_is_down_at_the_start_is_compared_before_use() {
    let fixture = Fixture::alone().await;
    let alba = fixture.user("alba").await;
    fixture.note(&alba, "giants").await;
    let record = "insert into annotations.index_identity (identity, place) \
                  values ('opensearch right notes', 'there')";
    fixture.client.batch_execute(record).await.unwrap();
    for (id, belongs) in [("wrong", false), ("right", true)] {
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let settings = OpenSearchSettings::new(format!("http://{address}"), "notes");
        let server = Arc::new(OpenSearch::new(settings).unwrap());
        let asked = Arc::clone(&server);
        let ask = move || {
            let asked = Arc::clone(&asked);
            async move { asked.identity().await }
        };
        let shown = server.address().to_owned();
        let index = Index::new(server).identified_by(ask, shown);
        let served =
            Annotations::start(fixture.engine.clone(), Some(index), crate::fixture::settings());
        let served = served.await.expect("Postgres can serve searches");
        let search = async || {
            let found = served.search(None, &on_page(), None, 10).await.unwrap();
            assert_eq!((found.rows.len(), found.index), (1, IndexState::Down));
        };
        search().await;
        let (serving, asked) = cluster(address, id).await;
        let paths = || asked.lock().unwrap().clone();
        until(async || !paths().is_empty()).await;
        let used = async || {
            search().await;
            paths().iter().any(|path| path != "/")
        };
        if belongs {
            until(used).await;
        } else {
            for _ in 0..20 {
                assert!(!used().await, "{:?}", paths());
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            fixture.bring_forward().await;
            let worker = annotations::worker(&served, fixture.engine.worker()).unwrap();
            let _ = tokio::time::timeout(Duration::from_secs(5), worker.run_until_idle()).await;
            assert!(!used().await, "{:?}", paths());
        }
        serving.abort();
    }
}
