//! `postmaster.pid`: the status that a running server writes about itself.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::process;

#[derive(PartialEq, Eq)]
pub(super) struct PidFile {
    pub pid: u32,
    /// Distinguishes two servers with the same pid, as in containers.
    started_at: String,
    /// "starting", "ready", "stopping", …; empty right after the start.
    pub status: String,
}

impl PidFile {
    pub(super) fn read(data: &Path) -> Option<Self> {
        Self::parse(&fs::read_to_string(data.join("postmaster.pid")).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        // A server in single-user mode writes its pid with a minus.
        let pid = lines.next()?.trim().trim_start_matches('-').parse().ok()?;
        let mut line = |skip| lines.nth(skip).unwrap_or_default().trim().to_owned();
        let (started_at, status) = (line(1), line(4));
        Some(Self { pid, started_at, status })
    }

    /// Returns whether that process exists and is a server. After a reboot the pid may belong to any
    /// process; PostgreSQL itself then removes the file.
    pub(super) fn is_alive(&self) -> bool {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else {
            return false;
        };
        match test_kill_process(pid) {
            Ok(()) | Err(Errno::PERM) => looks_like_a_server(self.pid),
            Err(_) => false,
        }
    }
}

fn looks_like_a_server(pid: u32) -> bool {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok().or_else(|| {
        let mut ps = Command::new("ps");
        ps.args(["-o", "comm=", "-p", &pid.to_string()]);
        process::run(&mut ps, Duration::from_secs(5)).ok()
    });
    // Without /proc and without ps, yes is the safe result.
    name.is_none_or(|name| name.contains("postgres") || name.contains("postmaster"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_the_eighth_line_or_missing() {
        let full = PidFile::parse("12\n/data\n170000\n5432\n/run\n\n 52 3\nready   \n").unwrap();
        assert_eq!((full.pid, full.status.as_str()), (12, "ready"));
        assert_eq!(full.started_at, "170000");
        assert_eq!(PidFile::parse("12\n/data\n").unwrap().status, "");
        assert!(PidFile::parse("").is_none());
    }

    #[test]
    fn pid_of_another_program_is_not_a_server() {
        let ours = PidFile::parse(&std::process::id().to_string()).unwrap();
        assert!(!ours.is_alive());
    }
}
