//! Rules about the sources of the executable: which files may hold SQL, and which may import `dev`.

use std::path::Path;

/// Files that may name tables, views and functions of the engine, each with the reason.
const ALLOWED: &[(&str, &str)] = &[
    ("src/bench/", "measures the statements themselves"),
    ("src/dev/", "its demo counts jobs every three seconds"),
    ("src/doctor/", "examines tables, locks and settings, which no handle returns"),
    ("queries/demo_status.sql", "see src/dev/"),
    ("queries/locked_jobs.sql", "see src/doctor/"),
    ("queries/unhandled.sql", "see src/doctor/"),
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
    !comment("//") && !comment("--") && (follows("leasehold.") || follows("leasehold_internal."))
}

#[test]
fn schemas_of_the_engine_are_named_only_in_allowed_files() {
    let mut found = Vec::new();
    each_file(&["src", "queries"], &mut |name, text| {
        if ALLOWED.iter().any(|(allowed, _)| name.starts_with(allowed)) {
            return;
        }
        let lines = text.lines().enumerate().filter(|(_, line)| names_a_schema(line));
        found.extend(lines.map(|(at, line)| format!("{name}:{}: {}", at + 1, line.trim())));
    });
    found.sort();
    assert!(found.is_empty(), "use leasehold::admin, or name the file in ALLOWED: {found:#?}");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (allowed, _) in ALLOWED {
        assert!(root.join(allowed).exists(), "{allowed} is gone; remove it from ALLOWED");
    }
}

#[test]
fn only_the_command_list_imports_dev() {
    let mut found = Vec::new();
    each_file(&["src"], &mut |name, text| {
        if name.starts_with("src/dev/") {
            return;
        }
        let imports = |line: &&str| line.contains("dev::") || line.contains("mod dev;");
        let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        found.extend(lines.filter(imports).map(|line| format!("{name}: {}", line.trim())));
    });
    found.sort();
    let wanted = [
        "src/cli/mod.rs: Dev(dev::Args),",
        "src/cli/mod.rs: Self::Dev(args) => dev::run(args, common).await,",
        "src/lib.rs: mod dev;",
    ];
    assert_eq!(found, wanted, "production code must not depend on the development server");
}
