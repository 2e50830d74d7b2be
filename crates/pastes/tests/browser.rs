//! What people see, seen with a real browser: starts the service and lets `browser/pages.mjs` use it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

#[path = "it/rig.rs"]
#[allow(dead_code, reason = "shared with the other tests, which use more of it")]
mod rig;

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use pastes::Settings;
use tokio::net::TcpListener;
use tokio::process::Command;

use self::rig::Rig;

/// For all checks together; each has its own limit in the script.
const LIMIT: Duration = Duration::from_secs(540);

/// A Chromium, looked for where `browser/browser.mjs` looks.
fn has_chromium() -> bool {
    let named = std::env::var("CHROMIUM").is_ok_and(|path| Path::new(&path).exists());
    let places = [
        "/usr/bin/chromium",
        "/usr/bin/chromium-browser",
        "/usr/bin/google-chrome",
        "/Applications/Chromium.app/Contents/MacOS/Chromium",
        "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    ];
    named || places.iter().any(|place| Path::new(place).exists())
}

#[tokio::test(flavor = "multi_thread")]
async fn h3_h10_people_can_use_every_page_with_a_real_browser() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser");
    assert!(has_chromium(), "run scripts/test, which installs it, or: apt-get install chromium");
    assert!(
        folder.join("node_modules/puppeteer-core").is_dir(),
        "run scripts/test, which installs it, or: cd {} && npm ci",
        folder.display()
    );

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    // Nothing uploads by itself: the script says when, and looks at the wait before.
    let settings = Settings { base_url: base.clone(), ..rig::settings() };
    let rig = Arc::new(Rig::with(settings).await);
    let service = pastes::router(rig.pastes.clone());
    let serving = tokio::spawn(pastes::http::serve(listener, service, std::future::pending()));

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let control = format!("http://{}", listener.local_addr().unwrap());
    let worker = Arc::clone(&rig);
    let work = post(move || async move { worker.work().await });
    let controlling = tokio::spawn(async move {
        axum::serve(listener, Router::new().route("/work", work)).await.unwrap();
    });

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
