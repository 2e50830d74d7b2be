//! The S3 server of the tests in its own process, so that its memory and threads do not count as ours.
//!
//! The child is `leasehold-bench s3-server`. It fills itself, prints its endpoint, and answers one
//! question per line. It ends with its parent, because its standard input ends.

use std::collections::HashSet;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use indicatif::ProgressBar;
use leasehold_testing::s3::S3Server;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::layout::Layout;

/// Storing ten million objects takes minutes.
const LAYING: Duration = Duration::from_secs(60 * 60);
const ANSWER: Duration = Duration::from_secs(600);

#[derive(Clone, Debug, clap::Args)]
pub struct ServerArgs {
    /// Number of expired pastes
    #[arg(long)]
    rows: u64,
    /// Bytes of each object
    #[arg(long)]
    object_size: usize,
}

/// Runs the child: blocks until its input ends.
pub fn serve(args: &ServerArgs) -> Result<()> {
    let layout = Layout::new(args.rows, args.object_size);
    let server = S3Server::start()?;
    let mut out = std::io::stdout().lock();
    for content in 1..=layout.contents() {
        server.put_object(&layout.key(content), &layout.object(content))?;
        if content.is_multiple_of(10_000) {
            writeln!(out, "laid {content}")?;
        }
    }
    writeln!(out, "ready {}", server.endpoint())?;
    out.flush()?;
    // Each line names a file with the keys that should be left.
    for line in std::io::stdin().lock().lines() {
        let keys = std::fs::read_to_string(line?.trim())?;
        let keys: HashSet<&str> = keys.lines().collect();
        let (mut count, mut found) = (0, 0);
        // The store's own id is an object, too.
        for key in server.keys().into_iter().filter(|key| key.starts_with("blobs/")) {
            count += 1;
            found += u64::from(keys.contains(key.as_str()));
        }
        writeln!(out, "left {count} {}", keys.len() as u64 - found)?;
        out.flush()?;
    }
    Ok(())
}

/// The parent's side. On drop it waits for the child's end: its files are about to be removed.
pub struct S3Child {
    dir: PathBuf,
    endpoint: String,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    child: Child,
}

impl S3Child {
    pub async fn start(dir: &Path, layout: &Layout, bar: &ProgressBar) -> Result<Self> {
        let program = std::env::current_exe().context("our own executable is not found")?;
        let mut command = Command::new(program);
        command
            .arg("s3-server")
            .arg(format!("--rows={}", layout.rows))
            .arg(format!("--object-size={}", if layout.empty { 0 } else { layout.object_size }))
            // Its files are removed with ours, even if it is killed.
            .env("TMPDIR", dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().context("the S3 server could not be started")?;
        let input = child.stdin.take().context("no input")?;
        let output = BufReader::new(child.stdout.take().context("no output")?).lines();
        let dir = dir.to_path_buf();
        let mut server = Self { dir, endpoint: String::new(), input, output, child };
        tokio::time::timeout(LAYING, server.laid(bar)).await.context("objects took too long")??;
        Ok(server)
    }

    async fn laid(&mut self, bar: &ProgressBar) -> Result<()> {
        let mut before = 0;
        while let Some(line) = self.output.next_line().await? {
            match line.split_once(' ') {
                Some(("laid", count)) => {
                    let count: u64 = count.parse()?;
                    bar.inc(count - before);
                    before = count;
                }
                Some(("ready", endpoint)) => {
                    self.endpoint = endpoint.to_owned();
                    return Ok(());
                }
                _ => break,
            }
        }
        anyhow::bail!("the S3 server ended before it was ready")
    }

    pub fn settings(&self) -> pastes::S3Settings {
        pastes::S3Settings {
            bucket: S3Server::BUCKET.to_owned(),
            endpoint: Some(self.endpoint.clone()),
            region: Some(S3Server::REGION.to_owned()),
            access_key: Some(S3Server::ACCESS_KEY.to_owned()),
            secret_key: Some(S3Server::SECRET_KEY.to_owned()),
        }
    }

    /// Returns the number of objects in the store, and how many of these keys are missing.
    pub async fn left(&mut self, keys: HashSet<String>) -> Result<(u64, u64)> {
        let file = self.dir.join("keys");
        let text: Vec<&str> = keys.iter().map(String::as_str).collect();
        tokio::fs::write(&file, text.join("\n")).await?;
        self.input.write_all(format!("{}\n", file.display()).as_bytes()).await?;
        let line = tokio::time::timeout(ANSWER, self.output.next_line())
            .await
            .context("the S3 server does not respond")??
            .context("the S3 server has ended")?;
        let words: Vec<&str> = line.split(' ').collect();
        ensure!(words.len() == 3, "the S3 server said {line:?}");
        let number = |at: usize| words.get(at).copied().unwrap_or_default().parse::<u64>();
        Ok((number(1)?, number(2)?))
    }
}

impl Drop for S3Child {
    fn drop(&mut self) {
        let _ = self.child.start_kill();
        let deadline = Instant::now() + Duration::from_secs(5);
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::park_timeout(Duration::from_millis(2));
        }
    }
}
