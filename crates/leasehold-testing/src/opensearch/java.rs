//! Finds a Java version that this OpenSearch runs on.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::process;

/// Older versions cannot read its classes, and newer ones lack what it needs at its start.
const VERSIONS: std::ops::RangeInclusive<u32> = 11..=21;
const OTHER_PLACES: [&str; 3] = [
    "/opt/homebrew/opt/openjdk@21/bin/java",
    "/opt/homebrew/opt/openjdk@17/bin/java",
    "/usr/local/opt/openjdk@21/bin/java",
];

pub fn find() -> Option<PathBuf> {
    let home = env::var_os("JAVA_HOME").filter(|value| !value.is_empty());
    let home = home.map(|home| PathBuf::from(home).join("bin/java"));
    let path: OsString = env::var_os("PATH").unwrap_or_default();
    let on_path: Vec<PathBuf> = env::split_paths(&path).map(|dir| dir.join("java")).collect();
    home.into_iter()
        .chain(on_path)
        .chain(debian())
        .chain(OTHER_PLACES.iter().map(PathBuf::from))
        .find(|java| java.is_file() && version(java).is_some_and(|v| VERSIONS.contains(&v)))
}

/// Debian keeps every version in a separate folder.
fn debian() -> Vec<PathBuf> {
    let entries = fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path().join("bin/java")).collect();
    found.sort();
    found
}

fn version(java: &Path) -> Option<u32> {
    // Java prints its version to standard error, and only `-version` works in all versions.
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "\"$0\" -version 2>&1"]).arg(java);
    major(&process::run(&mut command, Duration::from_secs(60)).ok()?)
}

/// `openjdk version "17.0.15" 2025-04-15`; Java 8 calls itself 1.8.
fn major(text: &str) -> Option<u32> {
    let version = text.split('"').nth(1)?;
    version.split(['.', '-', '_', '+']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::major;

    #[test]
    fn java_versions_are_parsed() {
        assert_eq!(major("openjdk version \"17.0.15\" 2025-04-15\nOpenJDK …"), Some(17));
        assert_eq!(major("openjdk version \"21\" 2023-09-19"), Some(21));
        assert_eq!(major("java version \"1.8.0_392\""), Some(1));
        assert_eq!(major("Picked up …\nopenjdk version \"25-ea\""), Some(25));
        assert_eq!(major("The operation couldn’t be completed."), None);
    }
}
