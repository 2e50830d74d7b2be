//! Process groups: a command and every process that it started end together.
//!
//! # Invariants
//! - Each command leads a process group. The whole group is killed when the command ends, when its job
//!   should stop, and when its handler is dropped for any reason.
//! - When the worker itself dies, even by SIGKILL, a small separate process, the warden, sees the
//!   pipe between them close and kills the groups that are left. The job is reclaimed when its
//!   lease runs out; by then no process works on it.
//!
//! # What can go wrong
//! - A command that leaves its group (setsid, a daemon, a container) is out of reach.
//! - The warden is killed together with the worker (a cgroup that is removed, a machine that
//!   stops): then so are the commands.
//! - The worker is killed between the start of a command and the message to the warden, some
//!   microseconds: that command runs to its end, concurrently with the next attempt.

use std::collections::BTreeSet;
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};

/// The hidden flag with which a worker starts its warden.
pub const WARDEN_FLAG: &str = "--warden";
/// The worker abandons a warden that does not read within this time.
const WRITE_LIMIT: Duration = Duration::from_secs(2);

/// The process group of one running command. Killed on drop.
pub struct Group {
    leader: Pid,
    warden: Arc<Warden>,
}

impl Group {
    /// Registers a command that was started as the leader of its group.
    pub async fn of(child: &Child, warden: &Arc<Warden>) -> Option<Self> {
        let leader = Pid::from_raw(i32::try_from(child.id()?).ok()?)?;
        let group = Self { leader, warden: Arc::clone(warden) };
        warden.groups().insert(leader.as_raw_nonzero().get());
        Arc::clone(warden).send_groups().await;
        Some(group)
    }

    pub fn signal(&self, signal: Signal) {
        // No such group: all its processes have ended.
        let _ = kill_process_group(self.leader, signal);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        self.warden.groups().remove(&self.leader.as_raw_nonzero().get());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(Arc::clone(&self.warden).send_groups());
        }
    }
}

/// The worker's end of the pipe to the warden, which outlives it by a moment.
#[derive(Default)]
pub struct Warden {
    groups: Mutex<BTreeSet<i32>>,
    pipe: tokio::sync::Mutex<Option<ChildStdin>>,
}

impl Warden {
    pub fn start() -> std::io::Result<Self> {
        // Not `current_exe`: a deploy may have replaced the file since.
        let program = if cfg!(target_os = "linux") {
            "/proc/self/exe".into()
        } else {
            std::env::current_exe()?
        };
        let mut child = Command::new(program)
            .args(["worker", WARDEN_FLAG])
            .arg0("leasehold-warden")
            // It needs no secrets.
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // Ctrl-C goes to the worker's group; the warden must survive it.
            .process_group(0)
            .spawn()?;
        let pipe = tokio::sync::Mutex::new(child.stdin.take());
        Ok(Self { groups: Mutex::default(), pipe })
    }

    fn groups(&self) -> parking_lot::MutexGuard<'_, BTreeSet<i32>> {
        self.groups.lock()
    }

    /// Writes the whole list, so that messages cannot pile up or get out of order. In a separate task: a
    /// handler that is dropped half-way must not leave half a line.
    async fn send_groups(self: Arc<Self>) {
        let writing = tokio::spawn(async move {
            let mut pipe = self.pipe.lock().await;
            let Some(open) = pipe.as_mut() else { return };
            let mut line: String =
                self.groups().iter().map(|leader| format!("{leader} ")).collect();
            line.push('\n');
            let written = tokio::time::timeout(WRITE_LIMIT, open.write_all(line.as_bytes())).await;
            if !matches!(written, Ok(Ok(()))) {
                *pipe = None;
                tracing::warn!(
                    "the warden is gone; commands would outlive a worker that is killed"
                );
            }
        });
        let _ = writing.await;
    }
}

/// Runs the warden: reads lists until the worker is gone, then kills the groups of the last one.
pub async fn be_warden() -> std::io::Result<ExitCode> {
    use tokio::signal::unix::{SignalKind, signal};
    // A service manager signals every process of the service; the warden must exit last.
    let _deaf = [
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
        signal(SignalKind::hangup())?,
    ];
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut last = String::new();
    while let Ok(Some(line)) = lines.next_line().await {
        last = line;
    }
    for leader in last.split_whitespace().filter_map(|word| word.parse().ok()) {
        if let Some(leader) = Pid::from_raw(leader).filter(|leader| !leader.is_init()) {
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
    Ok(ExitCode::SUCCESS)
}
