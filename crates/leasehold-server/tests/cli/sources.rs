//! Rules about the sources of the executable and the services: what they may name of the engine's schemas.

use std::path::Path;

/// What doctor advises an operator to run, and what it names in such a text. Its statements are in
/// `leasehold::admin::diagnosis`.
const ADVICE: &[&str] = &[
    "alter table leasehold.job enable trigger",
    "delete from leasehold.schema_version where version = 0; then run:",
    "vacuum leasehold.job, leasehold_internal.lease",
    "the trigger job_wakes_idle of leasehold.job is disabled:",
    "leasehold_internal.measure does not have them:",
    "row policies from leasehold_internal.measure",
    "--queue leasehold.alarms",
    "\"leasehold.self_test\"",
];

/// Calls `look` with the name and the text of every file below these folders of the package.
fn each_file(folders: &[&str], look: &mut dyn FnMut(&str, &str)) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut open: Vec<_> = folders.iter().map(|folder| root.join(folder)).collect();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).expect("a folder");
            open.extend(entries.map(|entry| entry.expect("an entry").path()));
            continue;
        }
        let name = path.strip_prefix(root).expect("inside").to_string_lossy().into_owned();
        if let Ok(text) = std::fs::read_to_string(&path) {
            look(&name, &text);
        }
    }
}

/// Returns whether a line names something in a schema of the engine. Paths of Rust have no dot there.
fn names_a_schema(line: &str) -> bool {
    let comment = |mark| line.trim_start().starts_with(mark);
    let follows = |schema| {
        let mut after = line.split(schema).skip(1);
        after.any(|after: &str| after.starts_with(|c: char| c.is_ascii_lowercase()))
    };
    let advises = ADVICE.iter().any(|advice| line.contains(advice));
    !comment("//")
        && !comment("--")
        && !advises
        && (follows("leasehold.") || follows("leasehold_internal."))
}

#[test]
fn executable_names_no_table_view_or_function_of_the_engine() {
    let mut found = Vec::new();
    each_file(&["src"], &mut |name, text| {
        let lines = text.lines().enumerate().filter(|(_, line)| names_a_schema(line));
        found.extend(lines.map(|(at, line)| format!("{name}:{}: {}", at + 1, line.trim())));
    });
    found.sort();
    assert!(found.is_empty(), "use leasehold::admin: {found:#?}");
}

/// The services are programs of the engine like any other: what changes without notice is not for them.
#[test]
fn services_name_no_internal_object_of_the_engine() {
    let mut found = Vec::new();
    let folders = ["src", "functions", "queries", "migrations"]
        .map(|part| ["pastes", "annotations"].map(|service| format!("../{service}/{part}")));
    let folders: Vec<&str> = folders.iter().flatten().map(String::as_str).collect();
    each_file(&folders, &mut |name, text| {
        let lines =
            text.lines().enumerate().filter(|(_, line)| line.contains("leasehold_internal"));
        found.extend(lines.map(|(at, line)| format!("{name}:{}: {}", at + 1, line.trim())));
    });
    found.sort();
    assert!(found.is_empty(), "use schema leasehold, or leasehold::admin: {found:#?}");
}

/// Queries whose plan needs the table; each has its reason beside the statement.
const TABLE_READERS: &[&str] = &["annotations/queries/index_state.sql"];

/// The view `leasehold.jobs` is the read model; the columns of the table change with the engine.
#[test]
fn services_read_jobs_from_the_view() {
    let mut found = Vec::new();
    let services = ["pastes", "annotations"];
    let folders = ["src", "functions", "queries"];
    let folders = services.map(|service| folders.map(|part| format!("../{service}/{part}")));
    let folders: Vec<&str> = folders.as_flattened().iter().map(String::as_str).collect();
    each_file(&[&folders[..], &["src"]].concat(), &mut |name, text| {
        let words: Vec<&str> =
            text.split(|c: char| c.is_whitespace() || "\"();,".contains(c)).collect();
        let reads = words.windows(2).any(|two| {
            let [verb, table] = two else { return false };
            ["from", "join"].contains(&verb.to_lowercase().as_str()) && *table == "leasehold.job"
        });
        if reads && !TABLE_READERS.iter().any(|reader| name.ends_with(reader)) {
            found.push(name.to_owned());
        }
    });
    assert!(found.is_empty(), "use leasehold.jobs with stored_in = 'job': {found:#?}");
}
