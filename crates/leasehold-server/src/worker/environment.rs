//! The environment of a command: the worker's own, without the worker's secrets.
//!
//! # Invariants
//! - Every variable from which this program or one of its libraries reads a secret is removed: the
//!   database's URL and password, the signing secrets, the keys of the object store.
//! - `--exec-env NAME` passes one of them on, by name.
//!
//! # What can go wrong
//! - A command of the same user can read `/proc/PID/environ` of the worker. Where that matters, run
//!   commands under another user.

use std::ffi::OsStr;

use tokio::process::Command;

/// The prefix of all variables of this program.
const OURS: &str = "LEASEHOLD_";

/// Variables of PostgreSQL and of object stores that this program or its libraries read, and that
/// hold a secret or lead to one.
const SECRETS: [&str; 16] = [
    "DATABASE_URL",
    "PGPASSWORD",
    "PGPASSFILE",
    "PGSERVICE",
    "PGSERVICEFILE",
    "PGSSLKEY",
    "REDIS_URL",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    // The object store's library reads the session token under this name, too.
    "AWS_TOKEN",
    "AWS_SSE_CUSTOMER_KEY_BASE64",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
];

/// True if commands do not get this variable unless it is passed on.
fn is_secret(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.starts_with(OURS) || SECRETS.contains(&&*name)
}

/// Removes the variables that the command must not see.
pub fn clean(command: &mut Command, handed_on: &[String]) {
    for (name, _) in std::env::vars_os() {
        if is_secret(&name) && !handed_on.iter().any(|known| name == known.as_str()) {
            command.env_remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h21_secrets_are_recognised_by_name() {
        for name in [
            "DATABASE_URL",
            "PGPASSWORD",
            "AWS_SESSION_TOKEN",
            "AWS_TOKEN",
            "AWS_SSE_CUSTOMER_KEY_BASE64",
            "LEASEHOLD_ANYTHING",
        ] {
            assert!(is_secret(OsStr::new(name)), "{name}");
        }
        for name in ["PATH", "HOME", "PGHOST", "AWS_REGION", "MY_DATABASE_URL"] {
            assert!(!is_secret(OsStr::new(name)), "{name}");
        }
    }
}
