//! Maps queues and job names to programs: from the command line to a plan.
//!
//! # Invariants
//! - All mistakes on the command line are found before the worker claims a job.
//! - A text that may hold a password or a token, such as a URL, is never printed.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use leasehold::job::check_queue_name;

use super::Args;
use super::egress::{Gate, Rules, SystemLookup};
use super::exec::Program;
use super::group::Warden;
use super::http::{self, Receiver};
use super::sign::{Secret, variable_of};
use crate::cli::address::environment;
use crate::exit::Failure;

const SLOTS: usize = 10;

pub struct Plan {
    pub queues: Vec<(String, usize)>,
    pub ways: BTreeMap<String, Way>,
}

/// How to run the jobs of one name.
pub enum Way {
    Exec(Program),
    Http(Receiver),
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exec(program) => {
                write!(f, "by {}", program.words.first().map_or("", String::as_str))
            }
            // Without path and query: they may contain tokens.
            Self::Http(receiver) => write!(f, "to {}", receiver.url.origin().ascii_serialization()),
        }
    }
}

pub fn plan(args: &Args) -> Result<Plan, Failure> {
    let queues = queues(&args.queues)?;
    if args.exec.is_empty() && args.http.is_empty() {
        return Err(Failure::usage("no jobs to run; add --exec NAME=COMMAND or --http NAME=URL"));
    }
    check_times(args)?;
    let mut ways = BTreeMap::new();
    let programs = programs(args)?;
    let receivers = receivers(args)?;
    for (name, way) in programs.into_iter().chain(receivers) {
        if ways.insert(name.clone(), way).is_some() {
            let text =
                format!("the name {name:?} is mapped twice; give each name one --exec or --http");
            return Err(Failure::usage(text));
        }
    }
    Ok(Plan { queues, ways })
}

fn queues(texts: &[String]) -> Result<Vec<(String, usize)>, Failure> {
    if texts.is_empty() {
        return Err(Failure::usage("no queue to work; add one, such as --queue default=10"));
    }
    let mut queues: Vec<(String, usize)> = Vec::new();
    for text in texts {
        let (name, slots) = match text.split_once('=') {
            Some((name, slots)) => (name, slots.parse().ok()),
            None => (text.as_str(), Some(SLOTS)),
        };
        check_queue_name(name).map_err(Failure::usage)?;
        let slots = slots.filter(|slots| (1..=100_000).contains(slots)).ok_or_else(|| {
            Failure::usage(format!(
                "--queue {text}: slots are 1 to 100000, such as --queue {name}=10"
            ))
        })?;
        if queues.iter().any(|(known, _)| known == name) {
            return Err(Failure::usage(format!("--queue {name} is given twice; add the slots up")));
        }
        queues.push((name.to_owned(), slots));
    }
    Ok(queues)
}

fn check_times(args: &Args) -> Result<(), Failure> {
    if args.poll < Duration::from_millis(1) || args.poll > Duration::from_secs(60) {
        return Err(Failure::usage("--poll is out of range; give 1ms to 60s"));
    }
    if args.http_timeout < Duration::from_millis(1) || args.http_timeout > Duration::from_secs(3600)
    {
        return Err(Failure::usage("--http-timeout is out of range; give 1ms to 1h"));
    }
    Ok(())
}

/// Splits `NAME=rest`. The error does not contain the rest.
fn named<'a>(flag: &str, text: &'a str, rest: &str) -> Result<(&'a str, &'a str), Failure> {
    text.split_once('=')
        .filter(|(name, value)| {
            !name.is_empty() && name.len() <= 200 && !name.contains("://") && !value.is_empty()
        })
        .ok_or_else(|| {
            Failure::usage(format!(
                "{flag} needs a name and what runs its jobs: {flag} NAME={rest}"
            ))
        })
}

fn programs(args: &Args) -> Result<Vec<(String, Way)>, Failure> {
    if args.exec.is_empty() {
        return Ok(Vec::new());
    }
    let warden = warden();
    let handed_on: Arc<[String]> = args.exec_env.clone().into();
    if let Some(missing) = handed_on.iter().find(|name| std::env::var_os(name).is_none()) {
        return Err(Failure::usage(format!(
            "--exec-env {missing}: this variable is not set; set it, or leave the option out"
        )));
    }
    let mut programs = Vec::new();
    for text in &args.exec {
        let (name, command) = named("--exec", text, "COMMAND")?;
        let words = if args.shell {
            vec!["sh".to_owned(), "-c".to_owned(), command.to_owned()]
        } else {
            words(&format!("--exec {name}"), command)?
        };
        let program =
            Program { words, handed_on: Arc::clone(&handed_on), warden: Arc::clone(&warden) };
        programs.push((name.to_owned(), Way::Exec(program)));
    }
    Ok(programs)
}

fn warden() -> Arc<Warden> {
    Arc::new(Warden::start().unwrap_or_else(|error| {
        tracing::warn!(%error, "no warden; commands would outlive a worker that is killed");
        Warden::default()
    }))
}

/// Splits a command line, and checks that the program exists.
fn words(option: &str, command: &str) -> Result<Vec<String>, Failure> {
    let words = shlex::split(command).filter(|words| !words.is_empty()).ok_or_else(|| {
        Failure::usage(format!("{option}: the command has no words, or a quote is not closed"))
    })?;
    let program = words.first().map_or("", String::as_str);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = if program.contains('/') {
        Path::new(program).is_file()
    } else {
        std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
    };
    if !found {
        let text = format!(
            "{option}: there is no program {program:?}; check the path, or run it with \
             sh -c if it is a shell's own command"
        );
        return Err(Failure::usage(text));
    }
    Ok(words)
}

/// Timeout of the whole response of an alarm receiver.
const ALARM_LIMIT: Duration = Duration::from_secs(10);

/// Builds the receiver of alarms by HTTP, under the rules for jobs.
pub fn receiver_for_alarms(url: &str, private_network: bool) -> Result<Receiver, Failure> {
    let rules = if private_network { Rules::PRIVATE_NETWORK } else { Rules::STRICT };
    let url = rules
        .check_url(url)
        .map_err(|why| Failure::usage(format!("--alarm-webhook: the URL {why}")))?;
    let secret = Arc::new(Secret::of("alarms", &environment).map_err(Failure::usage)?);
    Ok(Receiver { url, client: client(rules)?, secret, limit: ALARM_LIMIT })
}

/// Builds the command that runs for each alarm.
pub fn command_for_alarms(command: &str) -> Result<Program, Failure> {
    let words = words("--alarm-command", command)?;
    Ok(Program { words, handed_on: Arc::default(), warden: warden() })
}

fn client(rules: Rules) -> Result<reqwest::Client, Failure> {
    http::client(Gate::new(rules, Arc::new(SystemLookup))).map_err(|error| {
        Failure::failed(http::causes("the HTTP client could not be created", &error))
            .hint("if it lacks root certificates, install the package ca-certificates")
    })
}

fn receivers(args: &Args) -> Result<Vec<(String, Way)>, Failure> {
    if args.http.is_empty() {
        return Ok(Vec::new());
    }
    let rules = if args.allow_private_network {
        eprintln!(
            "warning: --allow-private-network: jobs may be sent anywhere that this machine \
             reaches, unencrypted; not for production"
        );
        Rules::PRIVATE_NETWORK
    } else {
        Rules::STRICT
    };
    let client = client(rules)?;
    let mut receivers: Vec<(String, Receiver)> = Vec::new();
    for text in &args.http {
        let (name, url) = named("--http", text, "URL")?;
        let url = rules
            .check_url(url)
            .map_err(|why| Failure::usage(format!("--http {name}: the URL {why}")))?;
        let secret = Arc::new(Secret::of(name, &environment).map_err(Failure::usage)?);
        let receiver = Receiver { url, client: client.clone(), secret, limit: args.http_timeout };
        let fellow = receivers.iter().find(|(_, other)| {
            other.url.origin() != receiver.url.origin()
                && other.secret.shares_with(&receiver.secret)
        });
        if let Some((other, _)) = fellow {
            let text = format!(
                "--http {other} and --http {name}: the receivers are on different servers and have one secret, so \
                 each could sign requests to the other; set another secret in {}",
                variable_of(name)
            );
            return Err(Failure::usage(text));
        }
        receivers.push((name.to_owned(), receiver));
    }
    Ok(receivers.into_iter().map(|(name, receiver)| (name, Way::Http(receiver))).collect())
}
