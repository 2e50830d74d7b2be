//! A worker process, a job, and waiting for both.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

pub use leasehold_testing::wait::LIMIT;
use leasehold_testing::{TestDatabase, until};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio_postgres::Client;

const BINARY: &str = env!("CARGO_BIN_EXE_leasehold");
/// `canary-secret-of-the-tests` in base64.
pub const SECRET: &str = "whsec_Y2FuYXJ5LXNlY3JldC1vZi10aGUtdGVzdHM=";

/// The program with a clean environment.
pub fn leasehold() -> Command {
    let mut command = Command::new(BINARY);
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// A running `leasehold worker`.
pub struct Worker {
    child: Child,
    output: Arc<Mutex<String>>,
    grown: watch::Receiver<usize>,
}

impl Worker {
    /// Starts a worker and waits until it prints that it is ready.
    pub async fn start(database: &TestDatabase, args: &[&str]) -> Self {
        Self::start_with(database, args, &[]).await
    }

    pub async fn start_with(database: &TestDatabase, args: &[&str], env: &[(&str, &str)]) -> Self {
        // A job that failed must stay as it is until the test has read it.
        let patient = "select leasehold_internal.queue_settings('default'); \
                       update leasehold_internal.queue set backoff_base = interval '1 hour'";
        database.connect().await.batch_execute(patient).await.expect("settings");
        let mut child = leasehold()
            .env("LEASEHOLD_DATABASE_URL", database.url())
            .env("LEASEHOLD_HTTP_SECRET", SECRET)
            .envs(env.iter().copied())
            .args(["worker", "--queue", "default=4", "--poll", "50ms"])
            .args(args)
            .spawn()
            .expect("the program starts");
        let output = Arc::new(Mutex::new(String::new()));
        let (grow, grown) = watch::channel(0);
        let (out, err) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
        tokio::spawn(collect(out, Arc::clone(&output), grow.clone()));
        tokio::spawn(collect(err, Arc::clone(&output), grow));
        let mut worker = Self { child, output, grown };
        worker.says("ready: ").await;
        worker
    }

    /// Waits until its output contains `text`.
    pub async fn says(&mut self, text: &str) {
        let output = Arc::clone(&self.output);
        let holds = |_: &usize| output.lock().expect("no panic").contains(text);
        let said =
            tokio::time::timeout(LIMIT, self.grown.wait_for(holds)).await.map(|said| said.is_ok());
        let said = said.unwrap_or(false);
        assert!(said, "no {text:?} in: {}", self.output());
    }

    /// Everything it wrote so far, to standard output and standard error.
    pub fn output(&self) -> String {
        self.output.lock().expect("no panic").clone()
    }

    pub fn signal(&self, signal: Signal) {
        let pid = self.child.id().and_then(|pid| Pid::from_raw(pid as i32)).expect("it runs");
        kill_process(pid, signal).expect("signalled");
    }

    pub fn pid(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    pub async fn ended(&mut self) -> ExitStatus {
        tokio::time::timeout(LIMIT, self.child.wait())
            .await
            .expect("ends in time")
            .expect("a status")
    }
}

async fn collect(
    pipe: impl AsyncRead + Unpin,
    output: Arc<Mutex<String>>,
    grow: watch::Sender<usize>,
) {
    let mut lines = BufReader::new(pipe).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let mut output = output.lock().expect("no panic");
        output.push_str(&line);
        output.push('\n');
        let length = output.len();
        drop(output);
        grow.send_replace(length);
    }
}

pub async fn enqueue(client: &Client, name: &str, kwargs: &str) -> i64 {
    let sql = "select job_id from leasehold.enqueue($1, $2::text::jsonb)";
    client.query_one(sql, &[&name, &kwargs]).await.expect("enqueued").get(0)
}

/// A job as `leasehold.jobs` shows it.
#[derive(Debug, Default)]
pub struct Row {
    pub state: String,
    pub attempts: i32,
    pub error: String,
    /// Seconds until it may run again.
    pub due_in: f64,
}

impl Row {
    /// `waiting`: scheduled, ready or retrying.
    pub fn is(&self, state: &str) -> bool {
        match state {
            "waiting" => ["scheduled", "ready", "retrying"].contains(&self.state.as_str()),
            other => self.state == other,
        }
    }
}

pub async fn look(client: &Client, id: i64) -> Row {
    let sql = "select state, attempts, coalesce(last_error, note, ''), \
                      coalesce(extract(epoch from scheduled_at - now()), 0)::float8 \
                 from leasehold.jobs where id = $1";
    let row = client.query_one(sql, &[&id]).await.expect("the job is somewhere");
    Row { state: row.get(0), attempts: row.get(1), error: row.get(2), due_in: row.get(3) }
}

/// Waits until `wanted` returns true for the job.
pub async fn job_until(client: &Client, id: i64, wanted: impl Fn(&Row) -> bool) -> Row {
    let mut last = Row::default();
    until(&format!("job {id} is as wanted"), async || {
        last = look(client, id).await;
        wanted(&last)
    })
    .await;
    last
}

/// A folder that is removed with the test.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let unique = uuid::Uuid::new_v4().simple();
        let path = std::env::temp_dir().join(format!("leasehold-{name}-{unique}"));
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Returns what a command wrote there, once it ends with a line break.
    pub async fn read(&self, name: &str) -> String {
        let path = self.file(name);
        let full =
            |path: &Path| std::fs::read_to_string(path).is_ok_and(|text| text.ends_with('\n'));
        until(&format!("a whole line in {name}"), async || full(&path)).await;
        std::fs::read_to_string(&path).expect("readable").trim().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns false once the process has ended. A zombie that another process must reap has ended.
pub fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').map_or("", |(_, rest)| rest.trim_start());
    !state.is_empty() && !state.starts_with('Z')
}

/// Counts children of the worker that ended and were not reaped.
pub fn zombies_of(pid: u32) -> usize {
    let processes = std::fs::read_dir("/proc").expect("Linux");
    let is_one = |stat: String| {
        let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest).trim_start().to_owned();
        rest.starts_with(&format!("Z {pid} "))
    };
    processes
        .filter_map(|entry| std::fs::read_to_string(entry.ok()?.path().join("stat")).ok())
        .filter(|stat| is_one(stat.clone()))
        .count()
}
