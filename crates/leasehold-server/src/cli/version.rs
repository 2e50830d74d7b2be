//! `leasehold version` and `leasehold completions`.

use std::io::{self, Write};
use std::process::ExitCode;

use clap_complete::Shell;

use super::common::Common;
use crate::exit::Failure;

pub fn version(common: &Common) -> Result<ExitCode, Failure> {
    let version = env!("CARGO_PKG_VERSION");
    let schema = leasehold::migrate::newest_version();
    let answer = serde_json::json!({ "version": version, "schema_version": schema });
    common.out().one("leasehold", &answer, |_| format!("leasehold {version} (schema {schema})"))?;
    Ok(ExitCode::SUCCESS)
}

pub fn completions(shell: Shell) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut crate::help::command_line(), "leasehold", &mut script);
    match io::stdout().write_all(&script) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::reader_gone()),
        written => Ok(written.map(|()| ExitCode::SUCCESS)?),
    }
}
