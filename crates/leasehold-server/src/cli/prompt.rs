//! Questions to whoever sits at the terminal.

use std::io::{self, BufRead, IsTerminal, Write};

use crate::exit::Failure;

/// A reason: given, or asked for on a terminal.
pub fn ask_why(given: Option<String>, flag: &str) -> Result<String, Failure> {
    let why = match given {
        Some(why) => why,
        None if io::stdin().is_terminal() => read_line("Why? ")?,
        None => String::new(),
    };
    match why.trim() {
        "" => Err(Failure::usage("a reason is missing").hint(format!("say why: {flag}"))),
        why => Ok(why.to_owned()),
    }
}

/// Asks for a yes on the terminal; refuses where nobody can answer.
pub fn confirm(question: &str) -> Result<(), Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::refused(format!("{question} Nobody is here to answer"))
            .hint("add --yes when you mean it, or --dry-run to look first"));
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
