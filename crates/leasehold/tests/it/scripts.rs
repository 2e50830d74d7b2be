//! Runs the scripts in `examples/`. A missing runtime is a failure, never a skipped test.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::Duration;

use leasehold_testing::TestDatabase;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

const LIMIT: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
pub enum Language {
    Python,
    Node,
}

pub const BOTH: [Language; 2] = [Language::Python, Language::Node];

impl Language {
    pub fn name(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Node => "node",
        }
    }

    fn command(self, script: &str, database: &TestDatabase) -> Command {
        let (program, file) = match self {
            Self::Python => (python(), format!("{script}.py")),
            Self::Node => (node(), format!("{script}.mjs")),
        };
        let mut command = Command::new(program);
        command
            .arg(folder(self.name()).join(file))
            .env("DATABASE_URL", database.url())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)
}

/// Returns a Python that has the module of the example.
fn python() -> &'static str {
    static FOUND: OnceLock<String> = OnceLock::new();
    FOUND.get_or_init(|| {
        let named = std::env::var("LEASEHOLD_PYTHON").ok();
        let candidates = named.into_iter().chain(["python3".to_owned(), "/usr/bin/python3".to_owned()]);
        let mut candidates = candidates.filter(|python| runs(python, &["-c", "import psycopg2"]));
        candidates.next().expect(
            "the Python example needs python3 with psycopg2: run scripts/test, which installs both, \
             or: apt-get install python3-psycopg2; elsewhere: pip install psycopg2-binary",
        )
    })
}

fn node() -> &'static str {
    assert!(
        runs("node", &["--version"]),
        "the Node.js example needs node 18 or newer and npm: run scripts/test, which installs both, \
         or: apt-get install nodejs npm"
    );
    assert!(
        folder("node").join("node_modules/pg").is_dir(),
        "the Node.js example needs its packages: run scripts/test, or: cd examples/node && npm ci"
    );
    "node"
}

fn runs(program: &str, arguments: &[&str]) -> bool {
    let mut command = std::process::Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Runs a producer, and returns what it printed.
pub async fn produce(
    language: Language,
    database: &TestDatabase,
    first: i64,
    count: i64,
) -> String {
    try_produce(language, database, first, count).await.expect("the producer succeeds")
}

/// Like `produce`, and returns what the producer printed to stderr as `Err` if it failed.
pub async fn try_produce(
    language: Language,
    database: &TestDatabase,
    first: i64,
    count: i64,
) -> Result<String, String> {
    let mut command = language.command("produce", database);
    command.args([first.to_string(), count.to_string()]);
    let ran = timeout(LIMIT, command.output()).await.expect("the producer ends in time");
    let ran = ran.expect("the producer starts");
    if ran.status.success() {
        Ok(String::from_utf8_lossy(&ran.stdout).trim().to_owned())
    } else {
        Err(String::from_utf8_lossy(&ran.stderr).into_owned())
    }
}

/// Returns what a consumer that refuses to start prints to stderr.
pub async fn refused_consumer(language: Language, database: &TestDatabase) -> String {
    let ran = timeout(LIMIT, language.command("consume", database).output()).await;
    let ran = ran.expect("the consumer ends in time").expect("the consumer starts");
    assert!(!ran.status.success());
    String::from_utf8_lossy(&ran.stderr).into_owned()
}

/// A running consumer. Killed when the test ends.
pub struct Consumer {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Consumer {
    pub async fn start(language: Language, database: &TestDatabase, lease: &str) -> Self {
        let mut command = language.command("consume", database);
        command.env("LEASE", lease).stdout(Stdio::piped());
        let mut process = command.spawn().expect("the consumer starts");
        let lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let mut consumer = Self { process, lines };
        assert_eq!(consumer.next_line().await, "ready");
        consumer
    }

    pub async fn next_line(&mut self) -> String {
        let line = timeout(LIMIT, self.lines.next_line()).await.expect("a line in time");
        line.expect("readable").expect("the consumer runs")
    }

    /// Waits until `jobs` jobs are done.
    pub async fn finishes(&mut self, jobs: usize) {
        for _ in 0..jobs {
            let line = self.next_line().await;
            assert!(line.starts_with("done "), "{line}");
        }
    }

    pub async fn ask_to_stop(&self) {
        let id = self.process.id().expect("it runs").to_string();
        let asked = Command::new("kill").args(["-TERM", &id]).status().await;
        assert!(asked.expect("kill runs").success());
    }

    /// Waits for the end, and returns the lines printed until then.
    pub async fn stopped(mut self) -> Vec<String> {
        let mut said = Vec::new();
        loop {
            let line = self.next_line().await;
            if line == "stopped" {
                break;
            }
            said.push(line);
        }
        let status = timeout(LIMIT, self.process.wait()).await.expect("it ends in time");
        assert!(status.expect("a status").success());
        said
    }

    pub async fn stop(self) -> Vec<String> {
        self.ask_to_stop().await;
        self.stopped().await
    }
}
