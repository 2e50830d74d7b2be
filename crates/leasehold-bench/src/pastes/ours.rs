//! Our service: `leasehold serve` on a durable PostgreSQL and a local store, worker included.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::service::{Create, Service};
use crate::load::{Answer, Body};

#[derive(Clone)]
pub struct Ours {
    pub program: PathBuf,
    pub database_url: String,
    /// The database refers to it, so it outlives each process.
    pub store: PathBuf,
    pub operator_token: String,
}

impl Service for Ours {
    fn name(&self) -> &'static str {
        "leasehold"
    }

    fn durability(&self) -> &'static str {
        "full: bytes, paste and job in one PostgreSQL commit with fsync on, before the answer"
    }

    fn page_is(&self) -> &'static str {
        "HTML page"
    }

    fn command(&self, port: u16, _dir: &Path) -> Result<Command> {
        let mut command = Command::new(&self.program);
        command
            .arg("serve")
            .arg(format!("--listen=127.0.0.1:{port}"))
            .arg("--store")
            .arg(&self.store)
            // All requests come from one address, which the default rate limits would throttle.
            .args(["--pastes-creates-per-second=0", "--pastes-reads-per-second=0"])
            .env("LEASEHOLD_PASTES_OPERATOR_TOKEN", &self.operator_token)
            .env("LEASEHOLD_LOG", "warn")
            .env("DATABASE_URL", &self.database_url);
        Ok(command)
    }

    fn ready(&self) -> &'static str {
        "/healthz"
    }

    fn create(&self) -> Create {
        Create { path: "/", body: Body::Raw, status: 201 }
    }

    fn created(&self, answer: &Answer) -> Result<String> {
        let url = std::str::from_utf8(&answer.body)?.trim();
        let (_, code) = url.rsplit_once('/').context("the answer has no URL")?;
        Ok(code.to_owned())
    }

    fn raw(&self, code: &str) -> String {
        format!("/raw/{code}")
    }

    fn page(&self, code: &str) -> String {
        format!("/{code}")
    }

    fn ends_gently(&self) -> bool {
        true
    }
}
