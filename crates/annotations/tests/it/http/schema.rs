//! The description of the interface, held against the service by a machine that makes up requests.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use annotations::{Settings, Token};

use super::{Site, note};
use crate::rig::settings;

const OPERATOR: &str = "operator-token-0123456789";
/// For the whole run; requests have limits of their own.
const LIMIT: Duration = Duration::from_secs(540);

/// Where `scripts/test` puts it.
fn program() -> PathBuf {
    let cache = std::env::var_os("LEASEHOLD_CACHE").map(PathBuf::from).or_else(|| {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache
            .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
        cache.map(|cache| cache.join("leasehold"))
    });
    cache.expect("a HOME").join("schemathesis/bin/schemathesis")
}

/// Tokens of every kind, and what counts as an answer to a good request: a name can be well formed
/// and taken, a note well formed and somebody else's.
fn config(token: &str) -> String {
    format!(
        "[auth.openapi.token]\nbearer = \"{token}\"\n\
         [auth.openapi.operator]\nbearer = \"{OPERATOR}\"\n\
         [checks.positive_data_acceptance]\n\
         expected-statuses = [\"2xx\", \"400\", \"401\", \"403\", \"404\", \"409\", \"413\", \"422\"]\n\
         [checks.negative_data_rejection]\n\
         expected-statuses = [\"400\", \"401\", \"403\", \"404\", \"405\", \"409\", \"413\", \"415\", \"422\"]\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn h2_made_up_requests_find_no_defect_and_no_answer_that_is_not_described() {
    let program = program();
    assert!(
        program.is_file(),
        "there is no {}: run scripts/test, which installs it",
        program.display()
    );
    let site = Site::with(Settings { operator_token: Token::parse(OPERATOR), ..settings() }).await;
    let token = site.token("sophia").await;
    site.save(&token, &note("x")).await;
    let folder =
        std::env::temp_dir().join(format!("notes-schema-{}", uuid::Uuid::new_v4().simple()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("schemathesis.toml");
    std::fs::write(&file, config(&token)).unwrap();
    let examples = std::env::var("LEASEHOLD_SCHEMATHESIS_EXAMPLES").unwrap_or("20".to_owned());
    let seed = std::env::var("LEASEHOLD_SCHEMATHESIS_SEED").unwrap_or("1".to_owned());
    let running = tokio::process::Command::new(program)
        .current_dir(&folder)
        .arg("--config-file")
        .arg(&file)
        .args(["run", &site.url("/openapi.json"), "--checks", "all", "--no-color"])
        .args(["--max-examples", &examples, "--seed", &seed, "--request-timeout", "20"])
        .args(["--suppress-health-check", "all", "--generation-database", "none"])
        .args(["--exclude-checks", "ensure_resource_availability", "--continue-on-failure"])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(LIMIT, running).await.expect("an end in time").unwrap();
    let _ = std::fs::remove_dir_all(&folder);
    let said: String = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| line.chars().take(400).chain(['\n']).collect::<String>())
        .collect();
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    let health = site.get("/healthz").send().await.unwrap();
    assert_eq!(health.status(), 200, "and the service is well");
}
