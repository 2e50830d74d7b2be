//! MicroBin: all pastes in memory behind one lock, and in SQLite.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::service::{Create, Service};
use crate::load::{Answer, Body};

pub struct Microbin {
    pub program: PathBuf,
}

impl Service for Microbin {
    fn name(&self) -> &'static str {
        "microbin"
    }

    fn durability(&self) -> &'static str {
        "full: SQLite with its default settings, synced on each create (and on each read, to count it)"
    }

    fn page_is(&self) -> &'static str {
        "HTML page"
    }

    fn command(&self, port: u16, dir: &Path) -> Result<Command> {
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        let mut command = Command::new(&self.program);
        command
            .arg("--bind=127.0.0.1")
            .arg(format!("--port={port}"))
            .arg(format!("--threads={threads}"))
            .arg(format!("--data-dir={}", dir.join("data").display()))
            .args(["--disable-telemetry", "--disable-update-checking"])
            .current_dir(dir);
        Ok(command)
    }

    fn create(&self) -> Create {
        let body = Body::Multipart {
            field: "content",
            file_name: None,
            before: &[
                ("expiration", "24hour"),
                ("privacy", "public"),
                ("syntax_highlight", "none"),
            ],
        };
        Create { path: "/upload", body, status: 302 }
    }

    fn created(&self, answer: &Answer) -> Result<String> {
        let url = answer.header("location").context("microbin answered without a location")?;
        let (_, code) = url.rsplit_once('/').context("microbin answered without a name")?;
        Ok(code.to_owned())
    }

    fn raw(&self, code: &str) -> String {
        format!("/raw/{code}")
    }

    fn page(&self, code: &str) -> String {
        format!("/upload/{code}")
    }

    /// Names are 16 random bits. Two pastes with the same name make it panic with its lock held, and it
    /// answers no request after that: likely from 300 pastes on, one time in fourteen with 100.
    fn most_pastes(&self) -> Option<u64> {
        Some(100)
    }
}
