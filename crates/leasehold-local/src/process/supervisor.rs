//! Servers that die with us.
//!
//! # Invariants
//! - The server runs under a small shell script whose standard input is a pipe that we hold. When the
//!   pipe closes, for any reason, the script stops the server. The kernel closes it even when we are
//!   killed with -9, on Linux and on macOS alike.
//! - It has its own process group: Ctrl-C in a terminal reaches us first, so that we can finish our
//!   work while the server still runs.
//!
//! # What can go wrong
//! - The script itself is killed with -9: its watcher survives and still stops the server.
//! - Script and watcher are both killed with -9: the server stays. [`crate::postgres`] notices that
//!   at the next start on the same directory.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::RunAs;

const SCRIPT: &str = include_str!("supervisor.sh");
const KILL_LIMIT: Duration = Duration::from_secs(60);

pub struct Supervisor {
    child: Child,
    /// Dropping this stops the server.
    pipe: Option<ChildStdin>,
}

impl Supervisor {
    /// Starts `server` with its output in `log`. `let_go` is the signal that stops it when we are
    /// gone; `remove` is a directory to remove then.
    pub fn start(
        server: &Command,
        user: Option<&RunAs>,
        log: File,
        let_go: &str,
        remove: Option<&Path>,
    ) -> io::Result<Self> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", SCRIPT, "leasehold-supervisor", let_go]);
        command.arg(remove.unwrap_or(Path::new("")));
        command.arg(server.get_program()).args(server.get_args());
        for (name, value) in server.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        // Our own directory may be one that the server's user cannot read.
        command.current_dir("/").process_group(0);
        command.stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log);
        if let Some(user) = user {
            user.apply(&mut command);
        }
        let mut child = command.spawn()?;
        let pipe = child.stdin.take();
        Ok(Self { child, pipe })
    }

    /// Passes a signal (`INT`, `TERM`, `QUIT`, `KILL`) on to the server.
    pub fn signal(&mut self, name: &str) -> io::Result<()> {
        match &mut self.pipe {
            Some(pipe) => writeln!(pipe, "{name}"),
            None => Ok(()),
        }
    }

    /// Returns how the server ended, or `None` while it runs.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Waits for the server's end. Returns false if it still runs after `limit`.
    pub fn wait(&mut self, limit: Duration) -> io::Result<bool> {
        let deadline = Instant::now() + limit;
        while self.ended()?.is_none() {
            if Instant::now() >= deadline {
                return Ok(false);
            }
            super::pause(Duration::from_millis(5));
        }
        Ok(true)
    }

    /// Ends the server at once and keeps its directory, for another try in it.
    pub fn kill(mut self) {
        let _ = self.signal("KILL");
        let _ = self.wait(KILL_LIMIT);
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.pipe = None;
        // Waiting longer than the script's own timeout is useless; and a test must not hang in a
        // drop.
        let _ = self.wait(Duration::from_secs(65));
    }
}
