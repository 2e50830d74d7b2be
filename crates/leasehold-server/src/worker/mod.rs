//! `leasehold worker`.

use std::process::ExitCode;

use crate::cli::Common;
use crate::exit::Failure;

#[derive(clap::Args, Debug)]
pub struct Args {}

pub async fn run(_args: Args, _common: &Common) -> Result<ExitCode, Failure> {
    Err(Failure::failed("this release has no worker command yet"))
}
