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
fn new_column_touches_the_files_that_contributing_lists() {
    let crate_folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(crate_folder.join("../../CONTRIBUTING.md")).expect("the page");
    let section = page.split("### A new column of a job").nth(1).expect("the section");
    let section = section.split("\n## ").next().unwrap_or(section);
    let listed: BTreeSet<&str> = section.split('`').skip(1).step_by(2).collect();
    let mut naming_it = BTreeSet::new();
    for folder in ["src", "functions", "queries"] {
        naming("trace_context", &crate_folder, &crate_folder.join(folder), &mut naming_it);
    }
    let missing: Vec<_> = naming_it
        .iter()
        .filter(|path| !path.ends_with("_tests.rs") && !listed.contains(path.as_str()))
        .collect();
    assert!(missing.is_empty(), "CONTRIBUTING does not list {missing:?}");
    let steps = (1..100).take_while(|step| section.contains(&format!("{step}. `"))).count();
    assert!((5..=12).contains(&steps), "{steps} files");
}
