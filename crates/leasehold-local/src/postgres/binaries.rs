//! Finds an installed PostgreSQL.

use std::cmp::Reverse;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::error::PostgresError;
use crate::process;

const LIMIT: Duration = Duration::from_secs(60);

/// Where each system installs its versions: the parent, the start of a version's name, what follows.
const WELL_KNOWN: [(&str, &str, &str); 5] = [
    ("/usr/lib/postgresql", "", "bin"),         // Debian, Ubuntu
    ("/usr", "pgsql-", "bin"),                  // Red Hat
    ("/opt/homebrew/opt", "postgresql", "bin"), // macOS, Apple silicon
    ("/usr/local/opt", "postgresql", "bin"),    // macOS, Intel
    ("/usr/local", "pgsql", "bin"),             // built from source
];

/// One installed version.
#[derive(Debug, Clone)]
pub(super) struct Binaries {
    pub dir: PathBuf,
    /// "15", "17".
    pub major: String,
}

impl Binaries {
    /// Returns the first version found, or the first that has the wanted major version.
    pub(super) fn find(wanted: Option<(&Path, &str)>) -> Result<Self, PostgresError> {
        let candidates = candidates()?;
        let mut other = None;
        for dir in candidates.iter().filter(|dir| is_complete(dir)) {
            let said = process::run(Command::new(dir.join("postgres")).arg("--version"), LIMIT)?;
            let found = Self { dir: dir.clone(), major: major_of(&said) };
            match wanted {
                Some((_, major)) if found.major != major => other = other.or(Some(found)),
                _ => return Ok(found),
            }
        }
        match (wanted, other) {
            (Some((dir, found)), Some(other)) => Err(PostgresError::OtherVersion {
                dir: dir.to_owned(),
                found: found.to_owned(),
                installed: other.major,
            }),
            _ => Err(PostgresError::NotInstalled { looked_in: listed(&candidates) }),
        }
    }

    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.dir.join(program));
        // Settings for the user's own server must not affect this one.
        for name in ["PGDATA", "PGPORT", "PGHOST", "PGOPTIONS", "PGUSER", "PGSERVICE"] {
            command.env_remove(name);
        }
        command
    }
}

/// Returns the directories that may hold the programs, the preferred first.
fn candidates() -> Result<Vec<PathBuf>, PostgresError> {
    if let Some(named) = env::var_os("LEASEHOLD_PG_BIN").filter(|value| !value.is_empty()) {
        let named = PathBuf::from(named);
        return match is_complete(&named) {
            true => Ok(vec![named]),
            false => Err(PostgresError::NotInNamedDirectory(named)),
        };
    }
    let mut dirs = Vec::new();
    if let Ok(said) = process::run(Command::new("pg_config").arg("--bindir"), LIMIT) {
        dirs.push(PathBuf::from(said.trim()));
    }
    let path = env::var_os("PATH").unwrap_or_default();
    dirs.extend(env::split_paths(&path).filter(|dir| is_complete(dir)));
    for (parent, start, rest) in WELL_KNOWN {
        dirs.extend(newest_first(Path::new(parent), start).into_iter().map(|dir| dir.join(rest)));
    }
    Ok(dirs)
}

fn newest_first(parent: &Path, start: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(parent) else {
        return Vec::new();
    };
    let mut found: Vec<(Reverse<u32>, PathBuf)> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(start))
        .map(|entry| (Reverse(number_in(&entry.file_name().to_string_lossy())), entry.path()))
        .collect();
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

/// Returns the number in a name: `postgresql@16` is 16; a name without a number counts as the oldest.
fn number_in(name: &str) -> u32 {
    let digits: String =
        name.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(0)
}

/// `postgres (PostgreSQL) 15.18 (Debian …)` is 15; `17beta1` is 17.
fn major_of(said: &str) -> String {
    number_in(said.split_once(')').map_or(said, |(_, rest)| rest)).to_string()
}

fn is_complete(dir: &Path) -> bool {
    ["initdb", "postgres"].iter().all(|program| dir.join(program).is_file())
}

fn listed(dirs: &[PathBuf]) -> String {
    let dirs: Vec<String> = dirs.iter().map(|dir| dir.display().to_string()).collect();
    match dirs.is_empty() {
        true => "PATH, /usr/lib/postgresql, Homebrew".to_owned(),
        false => dirs.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn major_version_is_parsed_from_every_release_name() {
        assert_eq!(major_of("postgres (PostgreSQL) 15.18 (Debian 15.18-1)"), "15");
        assert_eq!(major_of("postgres (PostgreSQL) 18beta1"), "18");
        assert_eq!(major_of("postgres (PostgreSQL 9 fork) 17.2"), "17");
    }

    #[test]
    fn versions_are_ordered_by_number() {
        assert!(number_in("postgresql@16") > number_in("postgresql@9.6"));
        assert_eq!(number_in("postgresql"), 0);
    }
}
