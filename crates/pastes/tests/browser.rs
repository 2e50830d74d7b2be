//! The pages in a real browser: starts the service and lets `browser/pages.mjs` use it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

#[path = "it/fixture.rs"]
#[allow(dead_code, reason = "shared with the other tests, which use more of it")]
mod fixture;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use leasehold_testing::http::browser;
use pastes::http::ServerLimits;
use pastes::{Limits, Settings};
use tokio::net::TcpListener;

use self::fixture::Fixture;

#[tokio::test(flavor = "multi_thread")]
async fn h3_h10_users_can_use_every_page_in_a_real_browser() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    // Nothing uploads by itself: the script triggers the upload, and first looks at the waiting page.
    let limits = Limits { creates_per_second: 0, reads_per_second: 0, ..Limits::default() };
    let settings = Settings { base_url: base.clone(), limits, ..fixture::settings() };
    let fixture = Arc::new(Fixture::with(settings).await);
    let service = pastes::router(fixture.pastes.clone());
    // Keep idle connections open: otherwise the script's next request could be lost.
    let limits = ServerLimits { head: Duration::from_secs(600), ..ServerLimits::default() };
    let forever = std::future::pending();
    let serving = tokio::spawn(pastes::http::serve_within(listener, service, limits, forever));

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let control = format!("http://{}", listener.local_addr().unwrap());
    let worker = Arc::clone(&fixture);
    let work = post(move || async move { worker.work().await });
    let controlling = tokio::spawn(async move {
        axum::serve(listener, Router::new().route("/work", work)).await.unwrap();
    });

    browser::run(&folder, "pages.mjs", &[&base, &control], &folder).await;

    serving.abort();
    controlling.abort();
}
