//! The help of the executable: commands in groups, and the options of every command in one place.

use clap::{Command, CommandFactory};

use crate::{Cli, exit};

/// The commands, by what an operator wants to do.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Run", &["dev", "serve", "worker", "console"]),
    ("Jobs", &["enqueue", "jobs", "dead", "batches", "queues", "limits", "schedules", "workers"]),
    ("Your tables", &["sweeps", "mirrors"]),
    ("Services", &["paste", "pastes", "annotations", "reindex"]),
    ("Health", &["doctor", "alarms"]),
    ("Set-up", &["migrate", "bench", "completions", "version"]),
];

const EXAMPLES: &str = "\
Examples:
  leasehold dev --demo                                     start everything here, with jobs to watch
  leasehold enqueue email.send '{\"to\":\"a@b.c\"}' --wait     enqueue a job and wait for its end
  leasehold jobs list --state dead,running                 list jobs
  leasehold doctor                                         look for problems

";

/// Returns the command line of `leasehold`.
pub fn command_line() -> Command {
    let command = Cli::command();
    let groups = groups(&command);
    let template = format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}{{after-help}}"
    );
    let mut command =
        command.help_template(template).after_help(format!("{EXAMPLES}{}", exit::TABLE));
    // Copies the global options into every subcommand, where -h would repeat them.
    command.build();
    command.mut_subcommands(without_global_options)
}

fn groups(command: &Command) -> String {
    let mut text = String::new();
    for (heading, names) in GROUPS {
        text.push_str(&format!("{heading}:\n"));
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            text.push_str(&format!("  {name:<12} {about}\n"));
        }
        text.push('\n');
    }
    text
}

/// Shows global options in `--help` only.
fn without_global_options(command: Command) -> Command {
    command
        .mut_args(|option| match option.is_global_set() {
            true => option.hide_short_help(true),
            false => option,
        })
        .mut_subcommands(without_global_options)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls `visit` with each command and its path, such as `jobs list`.
    fn each_command(command: &Command, path: &str, visit: &mut dyn FnMut(&str, &Command)) {
        visit(path, command);
        for sub in command.get_subcommands() {
            each_command(sub, format!("{path} {}", sub.get_name()).trim(), visit);
        }
    }

    /// Returns every help text: of commands, options and values, short and long.
    fn texts(command: &Command) -> Vec<(String, String)> {
        let mut found = Vec::new();
        each_command(command, "", &mut |path, command| {
            let mut add = |of: &str, text: Option<String>| {
                found.extend(text.map(|text| (format!("{path} {of}"), text)));
            };
            add("about", command.get_about().map(ToString::to_string));
            add("about", command.get_long_about().map(ToString::to_string));
            add("after", command.get_after_help().map(ToString::to_string));
            for option in command.get_arguments() {
                let name = option.get_id().as_str();
                add(name, option.get_help().map(ToString::to_string));
                add(name, option.get_long_help().map(ToString::to_string));
                for value in option.get_possible_values() {
                    add(name, value.get_help().map(ToString::to_string));
                }
            }
        });
        found
    }

    /// Returns the phrases of the list that scripts/tidy reads for names, comments and pages.
    fn phrases() -> Vec<String> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/lib/avoided.txt");
        let list = std::fs::read_to_string(path).expect("the list of scripts/tidy");
        let lines = list.lines().filter(|line| !line.starts_with('#'));
        let phrases = lines.filter_map(|line| line.split_once(" = "));
        let phrases: Vec<String> = phrases.map(|(phrase, _)| phrase.to_owned()).collect();
        assert!(phrases.len() > 30, "{phrases:?}");
        phrases
    }

    #[test]
    fn help_uses_no_avoided_word() {
        let (texts, phrases) = (texts(&Cli::command()), phrases());
        assert!(texts.len() > 300, "{}", texts.len());
        for (of, text) in texts {
            assert_eq!(avoided(&phrases, &text), None, "{of}: {text:?}");
        }
    }

    /// Returns the avoided word in a text.
    fn avoided<'a>(phrases: &'a [String], text: &str) -> Option<&'a String> {
        let letters: String = text
            .chars()
            .map(|c| if c.is_alphanumeric() { c.to_ascii_lowercase() } else { ' ' })
            .collect();
        // A line break inside a text leaves several blanks.
        let words = letters.split_whitespace().collect::<Vec<_>>().join(" ");
        let words = format!(" {words} ");
        phrases.iter().find(|phrase| words.contains(&format!(" {phrase} ")))
    }

    #[test]
    fn every_command_and_option_has_a_help_text() {
        each_command(&Cli::command(), "", &mut |path, command| {
            assert!(command.get_about().is_some(), "{path} has no help");
            for option in command.get_arguments() {
                assert!(option.get_help().is_some(), "{path} {} has no help", option.get_id());
            }
        });
    }

    /// A verb and its object: "Pause a queue", "Limit the size". A question word or an article begins
    /// a description instead. Positional arguments are nouns.
    #[test]
    fn help_texts_begin_with_a_verb() {
        let wrong = ["the", "a", "an", "how", "what", "where", "whether", "when", "which", "why"];
        let check = |of: &str, text: String| {
            let first = text.split(' ').next().unwrap_or_default().to_lowercase();
            assert!(!wrong.contains(&first.as_str()), "{of}: {text}");
            // Third person: "Pauses a queue".
            let is_noun =
                ["options", "arguments", "ids", "keys", "files"].contains(&first.as_str());
            assert!(!first.ends_with('s') || is_noun || first.ends_with("ss"), "{of}: {text}");
            assert!(!text.ends_with('.'), "{of}: {text}");
        };
        each_command(&Cli::command(), "", &mut |path, command| {
            check(path, command.get_about().map(ToString::to_string).unwrap_or_default());
            for option in command.get_arguments() {
                let help = option.get_help().map(ToString::to_string).unwrap_or_default();
                check(&format!("{path} {}", option.get_id()), help);
            }
        });
    }

    #[test]
    fn no_command_redefines_a_global_option() {
        let command = Cli::command();
        let global: Vec<&str> = command
            .get_arguments()
            .filter(|option| option.is_global_set())
            .map(|option| option.get_id().as_str())
            .collect();
        assert!(global.contains(&"timeout"), "{global:?}");
        for sub in command.get_subcommands() {
            each_command(sub, sub.get_name(), &mut |path, command| {
                for option in command.get_arguments() {
                    let id = option.get_id().as_str();
                    assert!(
                        !global.contains(&id),
                        "{path}: --{id} would set the global option too"
                    );
                }
            });
        }
    }

    #[test]
    fn short_help_shows_global_options_at_the_top_only() {
        let mut command = command_line();
        assert!(command.render_help().to_string().contains("--database-url"));
        let jobs = command.find_subcommand_mut("jobs").expect("jobs");
        assert!(!jobs.render_help().to_string().contains("--database-url"));
        assert!(jobs.render_long_help().to_string().contains("--database-url"));
    }

    #[test]
    fn every_command_is_in_one_group() {
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        let command = Cli::command();
        let mut commands: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
        grouped.sort_unstable();
        commands.sort_unstable();
        assert_eq!(grouped, commands);
    }
}
