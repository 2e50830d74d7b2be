//! The executable `leasehold`. All of it is in the library: see there for why.

#![forbid(unsafe_code)]

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    leasehold_server::main().await
}
