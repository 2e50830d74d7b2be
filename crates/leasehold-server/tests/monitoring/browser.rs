//! The console in a real browser: `browser/console.mjs` drives it, this file provides the data.

use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::routing::post;
use leasehold_testing::http::browser;
use tokio::net::TcpListener;

use crate::console_fixture::ConsoleFixture;

/// Creates forty minutes of two queues, a worker and a mirror, all of them sampled.
async fn traffic(console: &ConsoleFixture) {
    console
        .sql("select leasehold_internal.watch_queue('annotations', 'ann', max_length => 1000)")
        .await;
    console.sql("select leasehold_internal.declare_mirror('annotations.index', 'public.notes', 'id', 'text', 'version', 'annotations', 'index', 'id', '1 minute', '1 day', '1 minute', 1000, 2500)").await;
    for minute in 0..40_u32 {
        for (queue, jobs, done) in
            [("annotations", 20 + (minute * 7) % 15, 18 + (minute * 5) % 17), ("mail", 3, 3)]
        {
            console.sql(&format!("insert into leasehold.job (queue, name) select '{queue}', 'index' from generate_series(1, {jobs})")).await;
            console.sql(&format!("with c as (select array_agg(id) as ids, max(lease_generation) as g from leasehold.claim('w/1', '{queue}', {done})) select leasehold.complete_many(c.ids, c.g) from c where c.g is not null")).await;
        }
        console.sql(&format!("insert into leasehold_internal.tally (queue, tag, what, n, subject) values ('annotations', 'storage.create_annotation', 'synced_missing', {}, 'annotations.index')", (minute * 3) % 9)).await;
        console.a_minute_passes().await;
    }
    console.sql("select leasehold_internal.register_worker('w/1', 'indexer', 'host-1', 4711, '0.1.0', array['annotations', 'mail'], '{}', 8, 3, false)").await;
    console.sql("update leasehold_internal.mirror set rows_compared = 12840, repaired_total = 3, equal_as_of = now() - interval '40 seconds'").await;
    console.a_minute_passes().await;
}

async fn trouble(console: &ConsoleFixture) {
    console.sql("insert into leasehold.job (queue, name, scheduled_at, expires_at) values ('mail', 'late', now() - interval '1 minute', now()); select leasehold_internal.expire_jobs()").await;
    console.a_minute_passes().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h3_h10_console_works_in_a_real_browser() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/monitoring/browser");
    let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../pastes/tests/browser");
    let console = Arc::new(ConsoleFixture::start().await);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let control = format!("http://{}", listener.local_addr().unwrap());
    let (one, other) = (Arc::clone(&console), Arc::clone(&console));
    let router = Router::new()
        .route("/traffic", post(move || async move { traffic(&one).await }))
        .route("/trouble", post(move || async move { trouble(&other).await }));
    let controlling = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });

    browser::run(&folder, "console.mjs", &[&console.url, &control], &packages).await;
    controlling.abort();
}
