//! What a later release may add without breaking programs. The tests read the sources.

use std::path::{Path, PathBuf};

/// Public types that a release may not extend, each with the reason.
const FIXED: &[(&str, &str)] = &[
    ("Step", "a handler must decide in each of its states"),
    ("JobId", "a number"),
    ("BatchId", "a number"),
    ("Generation", "a number"),
    ("State", "a handler takes it apart: State(pool)"),
    ("StoredVersion", "stores make it"),
    ("Write", "stores take it apart, and their tests make it"),
    ("Range", "stores take it apart, and their tests make it"),
    ("Digest", "stores make it"),
    ("Tombstone", "stores make it"),
];

/// Modules that are hidden from the documentation: the sibling crates alone use them.
const HIDDEN: &[&str] = &[
    "admin/diagnosis.rs",
    "alarm/rules.rs",
    "alarm/snapshot.rs",
    "chaos.rs",
    "measure/names.rs",
    "measure/process.rs",
    "measure/text.rs",
    "mirror/testing.rs",
    "queue/moment.rs",
    "sweep/testing.rs",
    "testing.rs",
];

/// Returns each source of the library with its path below `src`.
fn sources() -> Vec<(String, String)> {
    fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, files);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    collect(&root, &mut files);
    let name = |path: &Path| path.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
    files.iter().map(|path| (name(path), std::fs::read_to_string(path).unwrap())).collect()
}

/// A public type that is declared at the left margin: its attributes, its name, whether callers see its fields.
struct Declared<'a> {
    attributes: Vec<&'a str>,
    name: &'a str,
    open: bool,
}

fn declared(text: &str) -> Vec<Declared<'_>> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let (is_enum, rest) =
            match (line.strip_prefix("pub enum "), line.strip_prefix("pub struct ")) {
                (Some(rest), _) => (true, rest),
                (_, Some(rest)) => (false, rest),
                _ => continue,
            };
        let name = rest.split(|letter: char| !letter.is_alphanumeric()).next().unwrap();
        let about = lines[..at].iter().rev().take_while(|line| {
            line.starts_with("///")
                || line.starts_with("//")
                || line.starts_with("#[")
                || line.starts_with(' ')
                || **line == ")]"
        });
        let attributes = about.copied().filter(|line| line.starts_with("#[")).collect();
        let body = lines[at + 1..].iter().take_while(|line| !line.starts_with('}'));
        let fields: Vec<&str> = match line.ends_with('{') {
            true => body.map(|line| line.trim_start()).filter(|line| line.contains(':')).collect(),
            false => Vec::new(),
        };
        let public = |line: &&str| {
            line.starts_with("pub ") || line.starts_with("//") || line.starts_with('#')
        };
        let open = is_enum
            || line.contains("(pub ")
            || (!fields.is_empty()
                && fields.iter().all(public)
                && fields.iter().any(|line| line.starts_with("pub ")));
        found.push(Declared { attributes, name, open });
    }
    found
}

#[test]
fn public_types_that_callers_see_through_may_grow() {
    let mut closed = Vec::new();
    for (file, text) in sources().iter().filter(|(file, _)| !HIDDEN.contains(&file.as_str())) {
        for Declared { attributes, name, open } in declared(text) {
            let has = |wanted: &str| attributes.iter().any(|line| line.contains(wanted));
            let fixed = FIXED.iter().any(|(known, _)| *known == name);
            if open && !fixed && !has("non_exhaustive") && !has("doc(hidden)") {
                closed.push(format!("{file}: {name}"));
            }
        }
    }
    assert!(closed.is_empty(), "add #[non_exhaustive], or a reason to FIXED: {closed:#?}");
}

/// Variants that callers make: handlers an outcome; services, such as sweeps and mirrors, their events and errors.
const MADE_BY_CALLERS: &[&str] =
    &["Outcome::", "Event::Sweep", "Event::MirrorChecked", "ScheduleError::Cron"];

#[test]
fn variants_that_the_library_makes_may_gain_a_field() {
    let mut closed = Vec::new();
    for (file, text) in sources().iter().filter(|(file, _)| !HIDDEN.contains(&file.as_str())) {
        let (mut inside, mut before) = ("", "");
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("pub enum ") {
                inside = rest.split(' ').next().unwrap_or_default();
            } else if line.starts_with('}') {
                inside = "";
            }
            let variant =
                line.strip_prefix("    ").filter(|rest| rest.starts_with(char::is_uppercase));
            let variant = variant.and_then(|rest| rest.split_once(" {"));
            if let Some((variant, _)) = variant.filter(|_| !inside.is_empty()) {
                let path = format!("{inside}::{variant}");
                let made = MADE_BY_CALLERS.iter().any(|known| path.starts_with(known));
                if !made && before.trim() != "#[non_exhaustive]" {
                    closed.push(format!("{file}: {path}"));
                }
            }
            before = line;
        }
    }
    assert!(closed.is_empty(), "add #[non_exhaustive] to the variant: {closed:#?}");
}

#[test]
fn public_constants_have_no_length_in_their_type() {
    let mut found = Vec::new();
    for (file, text) in sources().iter().filter(|(file, _)| !HIDDEN.contains(&file.as_str())) {
        for line in text.lines().map(str::trim_start) {
            let is_list = (line.starts_with("pub const ") || line.starts_with("pub static "))
                && line.split_once(": ").is_some_and(|(_, of)| of.starts_with('['));
            if is_list {
                found.push(format!("{file}: {line}"));
            }
        }
    }
    assert!(found.is_empty(), "use a slice: a new element would change the type: {found:#?}");
}

/// `?` takes an error into `anyhow::Result` and into a boxed error only if it is an `Error`, and a text is none.
#[test]
fn public_functions_return_errors_and_not_texts() {
    let mut found = Vec::new();
    for (file, text) in sources().iter().filter(|(file, _)| !HIDDEN.contains(&file.as_str())) {
        for line in text.lines().map(str::trim_start) {
            let is_public = line.starts_with("pub fn ") || line.starts_with("pub async fn ");
            if line == "type Err = String;"
                || is_public && line.contains(", String>") && line.contains("-> Result<")
            {
                found.push(format!("{file}: {line}"));
            }
        }
    }
    assert!(found.is_empty(), "give the error a type: {found:#?}");
}

#[test]
fn hidden_modules_are_hidden() {
    let all = sources();
    for hidden in HIDDEN {
        let module = hidden.trim_end_matches(".rs");
        let (parent, name) = match module.rsplit_once('/') {
            Some((folder, name)) => (format!("{folder}/mod.rs"), name),
            None => ("lib.rs".to_owned(), module),
        };
        let (_, text) = all.iter().find(|(file, _)| *file == parent).expect(hidden);
        let lines: Vec<&str> = text.lines().collect();
        let declared = format!("pub mod {name};");
        let at = lines.iter().position(|line| *line == declared).expect(hidden);
        assert_eq!(lines[at - 1], "#[doc(hidden)]", "{hidden}");
    }
}
