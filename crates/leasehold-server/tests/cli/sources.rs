//! The executable reads and changes jobs, queues, schedules and workers by the engine's handles only.

use std::path::Path;

/// Files that may name tables and functions of the engine, each with the reason.
const ALLOWED: &[(&str, &str)] = &[
    ("bench/", "measures the statements themselves"),
    ("dev/", "its demo counts jobs every three seconds"),
    ("doctor/", "examines tables, locks and settings, which no handle returns"),
    ("queries/demo_status.sql", "see dev/"),
    ("queries/locked_jobs.sql", "see doctor/"),
    ("queries/unhandled.sql", "see doctor/"),
    ("queries/mirrors.sql", "mirrors have no handle yet"),
    ("queries/sweep_dead.sql", "sweeps have no handle yet"),
    ("queries/sweeps.sql", "sweeps have no handle yet"),
    ("cli/mirrors.rs", "mirrors have no handle yet"),
];

/// Tables, views and functions that the handles cover.
const COVERED: [&str; 22] = [
    "job",
    "jobs",
    "dead_job",
    "finished_job",
    "history",
    "lease",
    "queue",
    "queue_state",
    "schedule",
    "worker",
    "worker_state",
    "cancel",
    "redrive",
    "promote",
    "pause",
    "resume",
    "delete_jobs",
    "update_job",
    "set_queue",
    "add_schedule",
    "run_schedule",
    "queue_names",
];

fn search(folder: &Path, root: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            search(&path, root, found);
            continue;
        }
        let name = path.strip_prefix(root).expect("inside").to_string_lossy().into_owned();
        if ALLOWED.iter().any(|(allowed, _)| name.starts_with(allowed)) {
            continue;
        }
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        for (at, line) in text.lines().enumerate() {
            for after in line.split("leasehold.").skip(1) {
                let word: String =
                    after.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
                let statement = ["from ", "join ", "into ", "update ", "select "]
                    .iter()
                    .any(|verb| line.contains(&format!("{verb}leasehold.{word}")));
                if statement && COVERED.contains(&word.as_str()) {
                    found.push(format!("{name}:{}: {}", at + 1, line.trim()));
                }
            }
        }
    }
}

#[test]
fn no_statement_goes_around_the_handles() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    search(&root, &root, &mut found);
    assert!(found.is_empty(), "use leasehold::admin, or name the file in ALLOWED: {found:#?}");
    for (allowed, _) in ALLOWED {
        assert!(root.join(allowed).exists(), "{allowed} is gone; take it out of ALLOWED");
    }
}
