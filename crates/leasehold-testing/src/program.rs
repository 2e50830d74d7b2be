//! Runs an executable with a clean environment, and checks how it ended and what it printed.

#![allow(clippy::panic, clippy::expect_used, reason = "a test stops at the first surprise")]

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;

pub use crate::wait::LIMIT;

/// Returns a command without the variables of this process, so that no setting of the developer leaks
/// into a test. It has no home directory.
pub fn command(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).env_clear().env("USER", "ann").env("HOME", "/nonexistent");
    for name in ["PATH", "LEASEHOLD_PG_BIN", "TMPDIR"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

/// How a command ended.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    pub async fn of(command: Command) -> Self {
        Self::within(LIMIT, command).await
    }

    pub async fn within(limit: Duration, mut command: Command) -> Self {
        let output = tokio::time::timeout(limit, command.output())
            .await
            .expect("an end in time")
            .expect("a run");
        Self {
            code: output.status.code().expect("an exit code, not a signal"),
            stdout: String::from_utf8(output.stdout).expect("text"),
            stderr: String::from_utf8(output.stderr).expect("text"),
        }
    }

    /// Checks the exit code; prints all output if it differs.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        let document: Value = serde_json::from_str(&self.stdout).unwrap_or_else(|error| {
            panic!("{error} in stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr)
        });
        assert_eq!(document["v"], 1, "{document}");
        document
    }

    #[track_caller]
    pub fn says(&self, words: &str) -> &Self {
        assert!(self.stderr.contains(words), "{words:?} is not in stderr:\n{}", self.stderr);
        self
    }

    #[track_caller]
    pub fn prints(&self, words: &str) -> &Self {
        assert!(self.stdout.contains(words), "{words:?} is not in stdout:\n{}", self.stdout);
        self
    }
}
