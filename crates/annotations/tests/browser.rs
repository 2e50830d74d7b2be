//! The pages in a real browser: starts the service and lets `browser/pages.mjs` use it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

// Shared with the other tests, which use more of it.
#[path = "it/fault_proxy.rs"]
#[allow(dead_code, reason = "see above")]
mod fault_proxy;
#[path = "it/faulty_index.rs"]
#[allow(dead_code, reason = "see above")]
mod faulty_index;
#[path = "it/fixture.rs"]
#[allow(dead_code, reason = "see above")]
mod fixture;
#[path = "it/index_kind.rs"]
#[allow(dead_code, reason = "see above")]
mod index_kind;

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use annotations::Settings;
use axum::Router;
use axum::response::Html;
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tokio::process::Command;

use self::fixture::Fixture;

/// Time limit of all checks together; each has its own limit in the script.
const LIMIT: Duration = Duration::from_secs(1200);

#[tokio::test(flavor = "multi_thread")]
async fn h3_h10_users_annotate_a_text_in_a_real_browser() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser");
    // The helpers and their dependencies are those of the paste service's tests.
    let helpers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../pastes/tests/browser");
    assert!(
        helpers.join("node_modules/puppeteer-core").is_dir(),
        "run scripts/test, which installs it, or: cd {} && npm ci",
        helpers.display()
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let control = format!("http://{}", other.local_addr().unwrap());
    let settings = Settings {
        base_url: base.clone(),
        direct: true,
        origins: vec![control.clone()],
        ..fixture::settings()
    };
    let fixture = Arc::new(Fixture::with(settings).await);
    let service = annotations::router(fixture.notes.clone());
    let (limits, stop) = (fixture::patient(), std::future::pending());
    let serving = tokio::spawn(annotations::http::serve_within(listener, service, limits, stop));

    // Another origin: it switches the index, and has a page with our script in it.
    let store = Arc::clone(fixture.store.as_ref().unwrap());
    let (down, up, working) = (Arc::clone(&store), store, Arc::clone(&fixture));
    let embedding = format!(
        "<!doctype html><title>Elsewhere</title><p id=words>Words of another page.</p>\
         <script src=\"{base}/embed.js\" defer></script>"
    );
    let routes = Router::new()
        .route("/down", post(move || async move { down.set_down(true) }))
        .route("/up", post(move || async move { up.set_down(false) }))
        .route("/work", post(move || async move { working.work_all().await }))
        .route("/page", get(move || async move { Html(embedding) }));
    let controlling = tokio::spawn(async move { axum::serve(other, routes).await.unwrap() });

    let mut script = Command::new("node");
    script.arg("pages.mjs").args([&base, &control]).args(std::env::var("BROWSER_CHECK"));
    script.current_dir(&folder).stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(LIMIT, script.output())
        .await
        .expect("the browser is done in time")
        .expect("node is installed: apt-get install nodejs");
    println!("{}", String::from_utf8_lossy(&output.stdout));
    eprintln!("{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "see above for what the browser found");
    serving.abort();
    controlling.abort();
}
