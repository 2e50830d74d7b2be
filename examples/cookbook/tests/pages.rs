//! Compares the pages of docs/ with the code and the schema that they describe.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::collections::BTreeSet;
use std::path::Path;

use leasehold_testing::TestEngine;

#[test]
fn pages_show_the_tested_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (page, least) in
        [("docs/batches.md", 2), ("docs/cookbook.md", 13), ("docs/getting-started.md", 2)]
    {
        let text = std::fs::read_to_string(root.join(page)).unwrap();
        let shown: Vec<_> = text.split("<!-- sample: ").skip(1).collect();
        assert!(shown.len() >= least, "{page} shows {} files", shown.len());
        for part in shown {
            let (path, after) = part.split_once(" -->\n").expect("the mark ends");
            let code = after.strip_prefix("```rust\n").expect("a Rust block follows the mark");
            let (code, _) = code.split_once("```\n").expect("the block ends");
            let file = std::fs::read_to_string(root.join(path)).unwrap();
            assert!(code == file, "{page} differs from {path}: copy the file into it");
        }
        let blocks = text.matches("\n```rust\n").count();
        assert_eq!(blocks, text.matches("<!-- sample: ").count(), "{page}: every block is a file");
    }
}

/// Returns the words of the arrows in the drawing under a heading of docs/states.md.
fn drawn(heading: &str) -> BTreeSet<String> {
    let states = include_str!("../../../docs/states.md");
    let section = states.split("\n## ").find(|part| part.starts_with(heading)).unwrap();
    let drawing = section.split("```").nth(1).unwrap();
    let labels = drawing.lines().filter_map(|line| line.split_once(" --> ")?.1.split_once(": "));
    let words =
        labels.flat_map(|(_, label)| label.split(|c: char| !c.is_alphanumeric() && c != '_'));
    words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

#[tokio::test]
async fn drawings_name_existing_functions() {
    let t = TestEngine::new().await;
    let sql = "select array_agg(proname::text) from pg_proc \
               where pronamespace in ('leasehold'::regnamespace, 'leasehold_internal'::regnamespace)";
    let known: Vec<String> = t.client().await.query_one(sql, &[]).await.unwrap().get(0);
    for heading in ["A job", "A batch", "A lease", "A worker", "A sweep", "A mirror"] {
        for word in drawn(heading).iter().filter(|word| word.contains('_')) {
            let is_column = word == "next_run_at";
            assert!(is_column || known.contains(word), "{heading}: there is no function {word}");
        }
    }
}

#[tokio::test]
async fn drawing_of_a_job_has_every_function_that_changes_jobs() {
    // Called by functions of the drawing.
    let helpers = [
        "add_final_error",
        "bury_late",
        "bury_rows",
        "cancel_members",
        "cancel_rows",
        "complete_rows",
        "reclaim_lease",
        "record_failure",
        "return_stray_rows",
    ];
    // Change only columns that no state depends on.
    let beside = ["default_expiry", "mirror_befores"];
    let t = TestEngine::new().await;
    let sql = "select array_agg(proname::text) from pg_proc \
               where pronamespace in ('leasehold'::regnamespace, 'leasehold_internal'::regnamespace) \
                 and prosrc ~ '(update|insert into|delete from) leasehold\\.job\\M'";
    let found: Vec<String> = t.client().await.query_one(sql, &[]).await.unwrap().get(0);
    let drawn = drawn("A job");
    let missing: Vec<_> = found
        .iter()
        .map(String::as_str)
        .filter(|name| !drawn.contains(*name))
        .filter(|name| !helpers.contains(name) && !beside.contains(name))
        .collect();
    assert_eq!(missing, [""; 0]);
}
