//! rustypaste: one file per paste in one directory, served as a file.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::service::{Create, Service};
use crate::load::{Answer, Body};

pub struct Rustypaste {
    pub program: PathBuf,
}

impl Service for Rustypaste {
    fn name(&self) -> &'static str {
        "rustypaste"
    }

    fn durability(&self) -> &'static str {
        "none: a file is written and never synced"
    }

    fn page_is(&self) -> &'static str {
        "no page: the file itself"
    }

    fn command(&self, port: u16, dir: &Path) -> Result<Command> {
        let settings = dir.join("config.toml");
        let upload = dir.join("upload");
        // Its default names are two words, which a few thousand pastes exhaust.
        let text = format!(
            "[server]\naddress = \"127.0.0.1:{port}\"\nmax_content_length = \"10MB\"\n\
             upload_path = {upload:?}\ntimeout = \"30s\"\n\
             [landing_page]\ntext = \"ready\"\n\
             [paste]\nrandom_url = {{ type = \"alphanumeric\", length = 16 }}\n\
             default_extension = \"txt\"\nduplicate_files = true\ndefault_expiry = \"1d\"\n\
             delete_expired_files = {{ enabled = true, interval = \"1h\" }}\n"
        );
        std::fs::write(&settings, text)?;
        let mut command = Command::new(&self.program);
        // Otherwise it writes one line per request.
        command.env("CONFIG", &settings).env("RUST_LOG", "error").current_dir(dir);
        Ok(command)
    }

    fn create(&self) -> Create {
        let body = Body::Multipart { field: "file", file_name: Some("paste.txt"), before: &[] };
        Create { path: "/", body, status: 200 }
    }

    fn created(&self, answer: &Answer) -> Result<String> {
        let url = std::str::from_utf8(&answer.body)?.trim();
        let (_, code) = url.rsplit_once('/').context("rustypaste answered without a URL")?;
        Ok(code.to_owned())
    }

    fn raw(&self, code: &str) -> String {
        format!("/{code}")
    }

    fn page(&self, code: &str) -> String {
        self.raw(code)
    }
}
