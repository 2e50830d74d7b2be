//! What CONTRIBUTING says about the code.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Adds the files below `folder` that contain `word`, as paths in the crate.
fn naming(word: &str, crate_folder: &Path, folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            naming(word, crate_folder, &path, found);
        } else if fs::read_to_string(&path).is_ok_and(|text| text.contains(word)) {
            let path = path.strip_prefix(crate_folder).expect("below the crate");
            found.insert(path.to_string_lossy().into_owned());
        }
    }
}

#[test]
fn column_that_goes_both_ways_touches_the_twelve_files_that_contributing_lists() {
    let crate_folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(crate_folder.join("../../CONTRIBUTING.md")).expect("the page");
    let section = page.split("### A new column of a job").nth(1).expect("the section");
    let section = section.split("\n## ").next().unwrap_or(section);
    // The files of the walk, by their numbers: `7. `src/queue/enqueue.rs``.
    let walk: Vec<&str> = (1..100)
        .map_while(|step| section.split(&format!("{step}. `")).nth(1)?.split('`').next())
        .collect();
    assert!((5..=12).contains(&walk.len()), "{walk:?}");
    // A new migration has no name yet, and its list names the migration.
    let mut listed: BTreeSet<&str> = walk.iter().skip(2).copied().collect();
    // Follow-ups carry what a producer sets, and are optional for a new column.
    let (_, followed) = section.split_once("A follow-up of a batch").expect("its files");
    let followed: Vec<&str> = followed.split('`').skip(1).step_by(2).collect();
    assert_eq!(followed.len(), 2, "{followed:?}");
    listed.extend(followed);
    let mut naming_it = BTreeSet::new();
    for folder in ["src", "functions", "queries"] {
        naming("trace_context", &crate_folder, &crate_folder.join(folder), &mut naming_it);
    }
    naming_it.retain(|path| !path.ends_with("_tests.rs"));
    // Beside the text of one job, the server only passes the value of a handler on.
    let record = "crates/leasehold-server/src/cli/record.rs";
    let text = fs::read_to_string(crate_folder.join("../..").join(record)).expect("a file");
    assert!(text.contains("trace_context"), "{record}");
    naming_it.insert(record.to_owned());
    let really: BTreeSet<&str> = naming_it.iter().map(String::as_str).collect();
    assert_eq!(listed, really, "the walk of CONTRIBUTING and the files that name the column");
}
