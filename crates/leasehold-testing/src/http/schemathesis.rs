//! Tests a service against its OpenAPI document with generated requests.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use super::Visitor;

/// For the whole run; requests have their own limits.
const LIMIT: Duration = Duration::from_secs(900);

/// The path where `scripts/test` installs it.
fn program() -> PathBuf {
    let program = crate::cache_dir().join("schemathesis/bin/schemathesis");
    assert!(
        program.is_file(),
        "there is no {}: run scripts/test, which installs it, or: python3 -m venv … && pip install -r \
         crates/pastes/tests/schemathesis/requirements.txt",
        program.display()
    );
    program
}

/// Tokens by the names of their security schemes, and the statuses beside 2xx that a valid request
/// may get: a well-formed name can still be taken, gone, or not be allowed here.
pub struct Checks<'a> {
    pub tokens: &'a [(&'a str, &'a str)],
    pub fine: &'a [&'a str],
}

impl Checks<'_> {
    fn config(&self) -> String {
        let tokens: String = self
            .tokens
            .iter()
            .map(|(kind, token)| format!("[auth.openapi.{kind}]\nbearer = {token:?}\n"))
            .collect();
        let fine: Vec<&str> = ["2xx"].iter().chain(self.fine).copied().collect();
        format!(
            "{tokens}\
             [checks.positive_data_acceptance]\n\
             expected-statuses = {fine:?}\n\
             [checks.negative_data_rejection]\n\
             expected-statuses = [\"400\", \"401\", \"403\", \"404\", \"405\", \"409\", \"413\", \"415\", \"422\"]\n"
        )
    }

    /// Generates requests, and expects no finding and a healthy service afterwards.
    pub async fn run(&self, site: &Visitor) {
        let program = program();
        let folder =
            std::env::temp_dir().join(format!("schemathesis-{}", uuid::Uuid::new_v4().simple()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let file = folder.join("schemathesis.toml");
        std::fs::write(&file, self.config()).expect("a file");
        let examples = std::env::var("LEASEHOLD_SCHEMATHESIS_EXAMPLES").unwrap_or("20".to_owned());
        let seed = std::env::var("LEASEHOLD_SCHEMATHESIS_SEED").unwrap_or("1".to_owned());
        let running = tokio::process::Command::new(program)
            .current_dir(&folder)
            .arg("--config-file")
            .arg(&file)
            .args(["run", &site.url("/openapi.json"), "--checks", "all", "--no-color"])
            .args(["--max-examples", &examples, "--seed", &seed, "--request-timeout", "90"])
            .args(["--suppress-health-check", "all", "--generation-database", "none"])
            // A created resource may be gone by then: burnt, deleted, or named by a repeated key.
            .args(["--exclude-checks", "ensure_resource_availability", "--continue-on-failure"])
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(LIMIT, running).await.expect("an end in time");
        let output = output.expect("it runs");
        let _ = std::fs::remove_dir_all(&folder);
        let said: String = String::from_utf8_lossy(&output.stdout)
            .lines()
            .map(|line| line.chars().take(400).chain(['\n']).collect::<String>())
            .collect();
        assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
        let health = site.get("/healthz").send().await.expect("an answer");
        assert_eq!(health.status(), 200, "and the service is well");
    }
}
