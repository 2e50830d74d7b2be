//! Compiles `src/sweep`, `src/mirror` and `src/redis` as a program of the user would: `crate::` is this test,
//! which has nothing but what `leasehold` offers to every program. A private function, field or module of
//! the engine does not compile here.

#![allow(dead_code, hidden_glob_reexports, unused_imports, unreachable_pub)]
#![allow(clippy::expect_used, clippy::string_slice)]

pub use leasehold::*;

#[path = "../../src/mirror/mod.rs"]
mod mirror;
#[path = "../../src/sweep/mod.rs"]
mod sweep;

#[cfg(feature = "redis")]
#[path = "../../src/redis/mod.rs"]
mod redis;

use std::path::{Path, PathBuf};

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
    found
}

/// Returns the first name of each path that begins with `crate::`, those in braces one by one.
fn engine_names(source: &str) -> Vec<String> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let first = |path: &str| path.trim().chars().take_while(|c| is_word(*c)).collect::<String>();
    let mut names = Vec::new();
    for (at, found) in source.match_indices("crate::") {
        let before = source[..at].chars().next_back();
        if before.is_some_and(|c| is_word(c) || c == ':') {
            continue;
        }
        let path = &source[at + found.len()..];
        match path.strip_prefix('{').and_then(|path| path.split_once('}')) {
            Some((inside, _)) => names.extend(inside.split(',').map(first)),
            None => names.push(first(path)),
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

/// The modules and names of the engine that sweeps and mirrors may use. Each is public and documented: the
/// compiler checks the first, this list keeps hidden modules such as `testing` out.
const OFFERED: &[&str] = &[
    "Backoff",
    "Cause",
    "Ctx",
    "FinishedCounts",
    "Generation",
    "Jitter",
    "JobError",
    "JobResult",
    "Leasehold",
    "Outcome",
    "Waits",
    "WorkerError",
    "backoff",
    "breaker",
    "error",
    "events",
    "job",
    "link",
    "mirror",
    "schedule",
    "service",
    "sweep",
    "table",
    "worker",
];

#[test]
fn sweeps_and_mirrors_use_only_documented_parts_of_the_engine() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut used = 0;
    for folder in ["sweep", "mirror"] {
        for path in sources(&root.join(folder)) {
            let source = std::fs::read_to_string(&path).expect("a source");
            for name in engine_names(&source) {
                used += 1;
                assert!(
                    OFFERED.contains(&name.as_str()),
                    "{} uses crate::{name}, which is not part of the documented API",
                    path.display()
                );
            }
        }
    }
    assert!(used > 100, "the scan finds the paths: {used}");
}

#[test]
fn sweep_that_is_compiled_outside_is_a_service() {
    fn is_service<T: worker::WorkerService>() {}
    is_service::<sweep::SweepService>();
    is_service::<mirror::MirrorService>();
}
