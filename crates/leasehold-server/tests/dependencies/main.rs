//! What the shipped executable is linked from.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the names of the crates that the executable links, its features on.
fn linked() -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "--package", "leasehold-server"])
        .args(["--edges", "normal", "--prefix", "none", "--format", "{p} {f}"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

fn crate_of(line: &str) -> &str {
    line.split(' ').next().unwrap_or_default()
}

#[test]
fn executable_links_no_test_code() {
    let linked = linked();
    let names: BTreeSet<&str> = linked.iter().map(|line| crate_of(line)).collect();
    // The list is real: it has what the executable cannot do without.
    for needed in ["leasehold", "leasehold-local", "pastes", "annotations", "tokio-postgres"] {
        assert!(names.contains(needed), "{needed} is missing in {names:?}");
    }
    for unwanted in ["leasehold-testing", "leasehold-bench", "s3s", "sqlx", "proptest"] {
        assert!(!names.contains(unwanted), "{unwanted} is linked: cargo tree -i {unwanted}");
    }
}

#[test]
fn executable_has_an_engine_without_test_features() {
    for line in linked().iter().filter(|line| ["leasehold", "pastes"].contains(&crate_of(line))) {
        for feature in ["testing", "chaos"] {
            let on = line.split([' ', ',']).any(|word| word == feature);
            assert!(!on, "feature {feature} is on: {line}");
        }
    }
}

/// One implementation of TLS: the other one is C code that takes minutes to compile.
#[test]
fn executable_has_one_cryptography_library() {
    let linked = linked();
    let names: BTreeSet<&str> = linked.iter().map(|line| crate_of(line)).collect();
    assert!(names.contains("ring"), "{names:?}");
    assert!(!names.contains("aws-lc-rs"), "aws-lc-rs is linked: cargo tree -i aws-lc-rs");
}

/// Returns the Rust sources below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(sources(&path)),
            false => found.push(path),
        }
    }
    found.retain(|path| path.extension().is_some_and(|end| end == "rs"));
    found
}

/// `serve`, `console` and `worker` stand on `run`. Only the command line knows `dev`, to start it.
#[test]
fn production_code_does_not_import_dev() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut naming = BTreeSet::new();
    for path in sources(&root) {
        let name = path.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).unwrap();
        let imports = text.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
        let is_dev = |word: &str| {
            word == "crate::dev" || word.starts_with("crate::dev::") || word.starts_with("dev::")
        };
        if !name.starts_with("dev/") && imports.clone().any(is_dev) {
            naming.insert(name);
        }
    }
    assert_eq!(naming, BTreeSet::from(["cli/mod.rs".to_owned()]));
}
