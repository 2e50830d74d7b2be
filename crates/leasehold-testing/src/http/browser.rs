//! Checks with a real browser: a script for Node that drives Chromium.

use std::path::Path;
use std::pin::pin;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Command;

/// For all checks of a script together; each check has its own limit in the script.
const LIMIT: Duration = Duration::from_secs(900);
/// For a script after SIGTERM: it closes its browser first.
const END_LIMIT: Duration = Duration::from_secs(30);

/// Looks for Chromium where the scripts look.
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

/// Runs `script` in this folder and expects it to succeed. `packages` is the folder with the packages
/// of the scripts; `BROWSER_CHECK` selects a single check.
pub async fn run(folder: &Path, script: &str, args: &[&str], packages: &Path) {
    assert!(has_chromium(), "run scripts/test, which installs it, or: apt-get install chromium");
    assert!(
        packages.join("node_modules/puppeteer-core").is_dir(),
        "run scripts/test, which installs it, or: cd {} && npm ci",
        packages.display()
    );
    let mut node = Command::new("node");
    node.arg(script).args(args).args(std::env::var("BROWSER_CHECK"));
    node.current_dir(folder).stdin(Stdio::null()).kill_on_drop(true);
    node.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = node.spawn().expect("node is installed: apt-get install nodejs");
    let pid = child.id();
    let mut running = pin!(child.wait_with_output());
    let by_itself = tokio::time::timeout(LIMIT, &mut running).await;
    let ended = match by_itself {
        Ok(ended) => Some(ended),
        Err(_) => {
            // SIGTERM first: a browser would outlive a killed script.
            tell_to_end(pid);
            tokio::time::timeout(END_LIMIT, running).await.ok()
        }
    };
    let output = ended.expect("an end, at least after the order to end").expect("its output");
    println!("{}", String::from_utf8_lossy(&output.stdout));
    eprintln!("{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "see above for what the browser found");
}

fn tell_to_end(pid: Option<u32>) {
    let pid = pid.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    if let Some(pid) = pid {
        let _ = kill_process(pid, Signal::TERM);
    }
}
