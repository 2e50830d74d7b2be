//! The clock of a process decides nothing: only the database's does.

use std::path::{Path, PathBuf};

/// The files that read the time of day from their own process, and what for. A worker whose clock is
/// wrong claims, renews, expires and fires as every other worker does, because none of these reads it.
const KNOWN: [(&str, &str); 4] = [
    ("sweep/when.rs", "checks that a cron text has a next time; the time itself is not kept"),
    ("schedule/mod.rs", "checks that a cron text has a next time; the time itself is not kept"),
    ("measure/numbers.rs", "what /metrics shows when the database does not respond"),
    ("measure/process.rs", "what /metrics shows as the start of the process"),
];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the sources").flatten() {
        match entry.path() {
            path if path.is_dir() => sources(&path, found),
            path => found.push(path),
        }
    }
}

#[test]
fn g1_engine_takes_no_time_of_day_from_its_process() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    assert!(files.len() > 50, "the sources were not found");
    let mut readers: Vec<String> = files
        .iter()
        .filter(|path| {
            let text = std::fs::read_to_string(path).expect("a source file");
            // The time of day, by any of the libraries here. `Instant` is a duration and may be used.
            ["Timestamp::now", "SystemTime", "Zoned::now", "Utc::now"]
                .iter()
                .any(|clock| text.contains(clock))
        })
        .map(|path| path.strip_prefix(&root).expect("below it").display().to_string())
        .collect();
    readers.sort();
    let mut known: Vec<&str> = KNOWN.iter().map(|(file, _)| *file).collect();
    known.sort_unstable();
    assert_eq!(
        readers, known,
        "a decision by a process's clock? Ask statement_timestamp() instead"
    );
}
