//! Runs short commands. None may hang us: each has a time limit, and only the start of its output is
//! kept.

use std::io::{self, Read};
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Enough of each output for an error message.
const KEEP_BYTES: u64 = 64 * 1024;

/// Why a command gave no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    #[error("`{program}` could not be started: {source}")]
    Start { program: String, source: io::Error },
    #[error("`{program}` was still running after {} s and was killed", .limit.as_secs())]
    TooSlow { program: String, limit: Duration },
    #[error("`{program}` failed ({status}): {output}")]
    Failed { program: String, status: String, output: String },
}

/// Runs a command to its end and returns its stdout.
pub fn run(command: &mut Command, limit: Duration) -> Result<String, CommandError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let start_error = |source| CommandError::Start { program: program.clone(), source };
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(start_error)?;
    let stdout = collect(child.stdout.take());
    let stderr = collect(child.stderr.take());
    let deadline = Instant::now() + limit;
    let status = loop {
        match child.try_wait().map_err(start_error)? {
            Some(status) => break status,
            None if Instant::now() >= deadline => {
                // The readers are not joined: a grandchild may hold the pipes open indefinitely.
                let _ = child.kill();
                let _ = child.wait();
                return Err(CommandError::TooSlow { program, limit });
            }
            None => super::pause(Duration::from_millis(5)),
        }
    };
    let stdout = stdout.join().unwrap_or_default();
    let stderr = stderr.join().unwrap_or_default();
    if status.success() {
        Ok(stdout)
    } else {
        let output = format!("{} {}", stdout.trim(), stderr.trim()).trim().to_owned();
        Err(CommandError::Failed { program, status: status.to_string(), output })
    }
}

fn collect(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    thread::spawn(move || {
        let Some(mut pipe) = pipe else {
            return String::new();
        };
        let mut kept = Vec::new();
        let _ = pipe.by_ref().take(KEEP_BYTES).read_to_end(&mut kept);
        // Keep reading, or the command would block on a full pipe.
        let _ = io::copy(&mut pipe, &mut io::sink());
        String::from_utf8_lossy(&kept).into_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hanging_command_is_killed() {
        let error = run(Command::new("sleep").arg("600"), Duration::from_millis(50)).unwrap_err();
        assert!(matches!(error, CommandError::TooSlow { .. }), "{error}");
    }

    #[test]
    fn long_output_of_a_command_is_cut() {
        let script = "head -c 1000000 /dev/zero | tr '\\0' x";
        let said = run(Command::new("sh").args(["-c", script]), Duration::from_secs(60)).unwrap();
        assert_eq!(said.len() as u64, KEEP_BYTES);
    }

    #[test]
    fn failure_has_the_output_of_the_command() {
        let error =
            run(Command::new("sh").args(["-c", "echo why >&2; exit 3"]), Duration::from_secs(60))
                .unwrap_err()
                .to_string();
        assert!(error.contains("why") && error.contains('3'), "{error}");
    }
}
