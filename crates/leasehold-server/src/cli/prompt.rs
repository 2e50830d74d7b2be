//! Prompts on the terminal.

use std::io::{self, BufRead, IsTerminal, Read, Write};

use crate::exit::Failure;

/// The longest token.
const LONGEST_SECRET: u64 = 1024;

/// Returns the reason from the flag, or asks for it on a terminal.
pub fn ask_why(given: Option<String>, flag: &str) -> Result<String, Failure> {
    let why = match given {
        Some(why) => why,
        None if io::stdin().is_terminal() => read_line("Why? ")?,
        None => String::new(),
    };
    match why.trim() {
        "" => Err(Failure::usage("a reason is missing").hint(format!("give one: {flag}"))),
        why => Ok(why.to_owned()),
    }
}

/// Returns a token: from the flag, asked for on a terminal, or the first line of standard input. So it
/// need not be on a command line, which every user of the machine can read.
pub fn ask_secret(given: Option<String>, question: &str) -> Result<String, Failure> {
    let secret = match given {
        Some(secret) => secret,
        None if io::stdin().is_terminal() => read_line(question)?,
        None => {
            let mut line = String::new();
            io::stdin().lock().take(LONGEST_SECRET).read_line(&mut line)?;
            line
        }
    };
    match secret.trim() {
        "" => Err(Failure::usage("the token is missing")
            .hint("type it at the prompt, pipe it in, or set LEASEHOLD_PASTE_TOKEN")),
        secret => Ok(secret.to_owned()),
    }
}

/// Asks for a yes on the terminal; fails if standard input is not a terminal.
pub fn confirm(question: &str) -> Result<(), Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::refused(format!(
            "{question} Standard input is not a terminal, so the command cannot ask"
        ))
        .hint("add --yes to confirm, or --dry-run to see what would change"));
    }
    match read_line(&format!("{question} [y/N] "))?.trim().to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::refused("not confirmed; nothing was changed")),
    }
}

fn read_line(question: &str) -> Result<String, Failure> {
    let mut stderr = io::stderr();
    write!(stderr, "{question}")?;
    stderr.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(answer)
}
