//! Tests of the help of `leasehold-bench`, by the rules of that of `leasehold`.

use clap::{Command, CommandFactory};

use crate::Cli;

/// Adds the help texts of a command, its options and its subcommands, each with its path.
fn collect(command: &Command, path: &str, found: &mut Vec<(String, String)>) {
    let long = command.get_long_about().or_else(|| command.get_about());
    found.push((path.to_owned(), long.map(ToString::to_string).unwrap_or_default()));
    found.extend(command.get_after_help().map(|text| (path.to_owned(), text.to_string())));
    for option in command.get_arguments() {
        let text = option.get_long_help().or_else(|| option.get_help());
        let text = text.map(ToString::to_string).unwrap_or_default();
        found.push((format!("{path} {}", option.get_id()), text));
    }
    for sub in command.get_subcommands() {
        collect(sub, &format!("{path} {}", sub.get_name()), found);
    }
}

fn texts() -> Vec<(String, String)> {
    let mut found = Vec::new();
    collect(&Cli::command(), "leasehold-bench", &mut found);
    assert!(found.len() > 60, "only {} texts were found", found.len());
    found
}

#[test]
fn help_uses_no_avoided_word() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/lib/avoided.txt");
    let list = std::fs::read_to_string(path).expect("the list of scripts/tidy");
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    let phrases: Vec<&str> =
        lines.filter_map(|line| line.split_once(" = ")).map(|(phrase, _)| phrase).collect();
    assert!(phrases.len() > 30, "{phrases:?}");
    for (of, text) in texts() {
        let letters = text.to_lowercase().replace(|c: char| !c.is_alphanumeric(), " ");
        let words = letters.split_whitespace().collect::<Vec<_>>().join(" ");
        let found =
            phrases.iter().find(|phrase| format!(" {words} ").contains(&format!(" {phrase} ")));
        assert_eq!(found, None, "{of}: {text:?}");
    }
}

#[test]
fn every_command_and_option_has_a_help_text() {
    for (of, text) in texts() {
        assert!(!text.is_empty(), "{of} has no help");
    }
}
