//! `leasehold migrate`: the engine's own schema.

use std::process::ExitCode;

use clap::Subcommand;
use leasehold::migrate::{self, MIGRATIONS, Status};
use serde::Serialize;

use super::common::Common;
use crate::exit::{Code, Failure};

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Brings the schema to this release. Safe to repeat, and from many machines at once
    Up {
        /// Shows what would run and changes nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Compares the schema with this release; exit code 5 when something is to be done
    Status,
    /// Prints the whole schema as SQL, for people who run their own migrations
    Sql,
}

#[derive(Serialize)]
struct Answer {
    found: Option<i32>,
    newest: i32,
    functions_current: bool,
    changed: Vec<i32>,
    current: bool,
    pending: Vec<String>,
}

impl Answer {
    fn of(status: &Status) -> Self {
        let found = status.found.unwrap_or(0);
        let mut pending: Vec<String> = MIGRATIONS
            .iter()
            .filter(|migration| migration.version > found)
            .map(|migration| format!("{:04} {}", migration.version, migration.name))
            .collect();
        if !status.functions_current {
            pending.push("functions and views".to_owned());
        }
        Self {
            found: status.found,
            newest: status.newest,
            functions_current: status.functions_current,
            changed: status.changed.clone(),
            current: status.is_current(),
            pending,
        }
    }

    fn text(&self) -> String {
        let found = self.found.map_or("none".to_owned(), |version| version.to_string());
        let functions = if self.functions_current { "current" } else { "to be replaced" };
        let mut text = format!(
            "schema     {found}, this release brings {}\nfunctions  {functions}\n",
            self.newest
        );
        for step in &self.pending {
            text.push_str(&format!("pending    {step}\n"));
        }
        for version in &self.changed {
            text.push_str(&format!(
                "changed    {version:04}: what ran here is not what this release holds\n"
            ));
        }
        text
    }
}

pub async fn run(command: Command, common: &Common) -> Result<ExitCode, Failure> {
    match command {
        Command::Up { dry_run: true } => dry_run(common).await,
        Command::Up { dry_run: false } => up(common).await,
        Command::Status => status(common).await,
        Command::Sql => {
            common.out().print(migrate::sql().trim_end())?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn up(common: &Common) -> Result<ExitCode, Failure> {
    let (out, mut db) = (common.out(), common.bare_db().await?);
    let before = migrate::status(db.client()).await?;
    let applied = migrate::up(db.client_mut()).await?;
    let answer = serde_json::json!({
        "applied": applied, "functions_replaced": !before.functions_current,
        "version": migrate::newest_version(),
    });
    out.one("migrate", &answer, |_| match (applied.is_empty(), before.functions_current) {
        (true, true) => format!("the schema is current (version {})", migrate::newest_version()),
        (true, false) => "functions and views replaced".to_owned(),
        (false, _) => {
            let ran: Vec<String> = applied.iter().map(|version| format!("{version:04}")).collect();
            format!("migrations applied: {}; functions and views replaced", ran.join(", "))
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn status(common: &Common) -> Result<ExitCode, Failure> {
    let (out, db) = (common.out(), common.bare_db().await?);
    let status = migrate::status(db.client()).await?;
    let answer = Answer::of(&status);
    out.one("migrate", &answer, Answer::text)?;
    if status.is_current() {
        return Ok(ExitCode::SUCCESS);
    }
    Err(match status.problem() {
        Some(problem) => Failure::new(Code::Conflict, problem),
        None => Failure::conflict(
            "functions and views are of another release; run: leasehold migrate up",
        ),
    })
}

/// Prints the SQL that would run, so that it can be read first.
async fn dry_run(common: &Common) -> Result<ExitCode, Failure> {
    let (out, db) = (common.out(), common.bare_db().await?);
    let status = migrate::status(db.client()).await?;
    let answer = Answer::of(&status);
    let found = status.found.unwrap_or(0);
    if let Some(problem) =
        status.problem().filter(|_| found > status.newest || !status.changed.is_empty())
    {
        return Err(problem.into());
    }
    if !out.is_table() {
        out.one("migrate", &answer, Answer::text)?;
        return Ok(ExitCode::SUCCESS);
    }
    for migration in MIGRATIONS.iter().filter(|migration| migration.version > found) {
        out.print(&format!(
            "-- migration {:04} {}\n{}",
            migration.version, migration.name, migration.sql
        ))?;
    }
    if !status.functions_current {
        for (name, sql) in migrate::FUNCTIONS {
            out.print(&format!("-- functions: {name}\n{sql}"))?;
        }
    }
    match answer.pending.is_empty() {
        true => out.note("nothing to do: the schema is current"),
        false => out.note(format!("would run: {}; nothing was changed", answer.pending.join(", "))),
    }
    Ok(ExitCode::SUCCESS)
}
