//! The exec worker: runs a command for each job.
//!
//! # Invariants
//! - The job is one JSON object on standard input; the end of the command decides, see
//!   [`super::decision`].
//! - No shell runs unless requested. Arguments of jobs never reach a command line either way.
//! - The worker keeps the last 64 KiB of the output and the last 3 KiB of the errors.
//! - A command that was stopped has not done its job, even with exit code 0: many programs
//!   exit with 0 on SIGTERM.
//!
//! # What can go wrong
//! - The command ignores SIGTERM: its group is killed. Cancelled jobs have five seconds between SIGTERM
//!   and SIGKILL; all others less than the second after which the engine abandons the handler.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use leasehold::worker::StopReason;
use leasehold::{Ctx, JobError, JobResult};
use rustix::process::Signal;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::Instant;

use super::decision::{End, decide};
use super::environment;
use super::group::{Group, Warden};
use super::job;

const STDOUT_KEPT: usize = 64 * 1024;
/// The error text holds 4 KiB in all.
const STDERR_KEPT: usize = 3 * 1024;
/// How long pipes may stay open after the command has ended and its group was killed.
const PIPES_LIMIT: Duration = Duration::from_secs(1);
/// The command that runs the jobs of one name.
pub struct Program {
    pub words: Vec<String>,
    /// Variables of the worker that the command gets although they may hold secrets.
    pub handed_on: Arc<[String]>,
    pub warden: Arc<Warden>,
}

impl Program {
    pub async fn run(&self, ctx: Ctx) -> JobResult {
        let input = job::to_json(&ctx)?;
        let mut child = self.start(&ctx).map_err(|error| {
            JobError::retry(format!("{:?} could not be started: {error}", self.words.first()))
        })?;
        let (mut stdout, mut stderr) = (Tail::new(STDOUT_KEPT), Tail::new(STDERR_KEPT));
        let (to, from, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        // Killed when this function returns, or when its future is dropped.
        let group = Group::of(&child, &self.warden).await;
        let pipes = async {
            tokio::join!(feed(to, &input), stdout.fill(from), stderr.fill(errors));
        };
        let (ended, stopped) = follow(&ctx, &mut child, group, pipes).await;
        match (stopped, ended) {
            (Some(reason), _) => Err(JobError::retry(format!(
                "the command was stopped: {}",
                job::stopped_because(reason)
            ))),
            (None, Err(error)) => Err(JobError::retry(format!("the command was lost: {error}"))),
            (None, Ok(status)) => decide(end_of(status), &stdout.kept, stderr.whole_words()),
        }
    }

    fn start(&self, ctx: &Ctx) -> std::io::Result<Child> {
        let (program, arguments) =
            self.words.split_first().ok_or_else(|| std::io::Error::other("no command"))?;
        let mut command = Command::new(program);
        environment::clean(&mut command, &self.handed_on);
        command
            .args(arguments)
            .env("LEASEHOLD_JOB_ID", ctx.id().to_string())
            .env("LEASEHOLD_ATTEMPT", ctx.attempt().to_string())
            .env("LEASEHOLD_GENERATION", ctx.generation().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            // Also reaps it, so that no zombie stays.
            .kill_on_drop(true)
            .spawn()
    }
}

/// Waits for the command; stops it when its job should stop. Afterwards the group is killed.
async fn follow(
    ctx: &Ctx,
    child: &mut Child,
    group: Option<Group>,
    pipes: impl Future<Output = ()>,
) -> (std::io::Result<ExitStatus>, Option<StopReason>) {
    tokio::pin!(pipes);
    let signal = |signal| group.iter().for_each(|group| group.signal(signal));
    let (mut piped, mut stopped, mut kill_at) = (false, None, None);
    let ended = loop {
        tokio::select! {
            ended = child.wait() => break ended,
            () = &mut pipes, if !piped => piped = true,
            reason = ctx.stopped(), if stopped.is_none() => {
                stopped = Some(reason);
                signal(Signal::TERM);
                kill_at = Some(Instant::now() + stop_grace(reason));
            }
            () = at(kill_at), if kill_at.is_some() => {
                signal(Signal::KILL);
                kill_at = None;
            }
        }
    };
    // Processes that the command left in its group end with it, which closes the pipes.
    drop(group);
    if !piped {
        let _ = tokio::time::timeout(PIPES_LIMIT, pipes).await;
    }
    (ended, stopped)
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Returns the time between SIGTERM and SIGKILL. Two workers must not work on a job that is released, or
/// that another worker may already hold: its command is gone before the engine abandons the handler, one
/// second after the stop.
fn stop_grace(reason: StopReason) -> Duration {
    match reason {
        StopReason::Cancelled => Duration::from_secs(5),
        // The lease is lost, the run limit is over, or the worker shuts down.
        _ => Duration::from_millis(700),
    }
}

fn end_of(status: ExitStatus) -> End {
    match (status.code(), status.signal()) {
        (Some(code), _) => End::Exit(code),
        (None, signal) => End::Signal(signal.unwrap_or(0)),
    }
}

/// Writes the input. A command need not read it: a closed pipe is no error.
async fn feed(pipe: Option<ChildStdin>, input: &[u8]) {
    if let Some(mut pipe) = pipe {
        let _ = pipe.write_all(input).await;
    }
}

/// The end of a stream.
struct Tail {
    kept: Vec<u8>,
    most: usize,
    cut: bool,
}

impl Tail {
    fn new(most: usize) -> Self {
        Self { kept: Vec::new(), most, cut: false }
    }

    fn push(&mut self, part: &[u8]) {
        self.kept.extend_from_slice(part);
        let over = self.kept.len().saturating_sub(self.most);
        self.cut |= over > 0;
        self.kept.drain(..over);
    }

    /// Returns the text without the word that the cut went through: the rest of a URL would no longer be
    /// recognised as one, and its password would stay.
    fn whole_words(&self) -> &[u8] {
        let begin = if self.cut {
            self.kept.iter().position(u8::is_ascii_whitespace).unwrap_or(self.kept.len())
        } else {
            0
        };
        self.kept.get(begin..).unwrap_or_default()
    }

    async fn fill(&mut self, pipe: Option<impl AsyncRead + Unpin>) {
        let Some(mut pipe) = pipe else { return };
        let mut part = vec![0; 8 * 1024];
        while let Ok(read @ 1..) = pipe.read(&mut part).await {
            self.push(part.get(..read).unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tail_keeps_the_end_of_a_long_stream() {
        let stream: Vec<u8> = (0..100_000u32).flat_map(|n| format!("{n}\n").into_bytes()).collect();
        let mut tail = Tail::new(1000);
        tail.fill(Some(stream.as_slice())).await;
        assert_eq!(tail.kept, stream[stream.len() - 1000..]);
        tail.push(b"x");
        assert_eq!(tail.kept.len(), 1000);
    }

    #[test]
    fn h25_tail_drops_the_word_that_it_cuts() {
        let mut tail = Tail::new(20);
        tail.push(b"postgres://bob:SECRET@db/x and more");
        assert_eq!(tail.whole_words(), b" and more");
        let mut short = Tail::new(100);
        short.push(b"all of it");
        assert_eq!(short.whole_words(), b"all of it");
    }
}
