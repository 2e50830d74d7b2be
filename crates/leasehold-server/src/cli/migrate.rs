//! `leasehold migrate`: the engine's own schema, and those of the services that stand on it.

use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};
use leasehold::migrate::{ENGINE, Schema, Status};
use serde::Serialize;

use super::common::Common;
use crate::exit::{Code, Failure};

#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
    /// Also the tables of a service; the engine's come first
    #[arg(long, global = true, value_name = "NAME")]
    service: Option<Service>,
}

/// What stands on the engine with tables of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Service {
    Annotations,
    Pastes,
}

impl Args {
    /// The schemas that are meant, in the order in which they are made.
    fn schemas(&self) -> Vec<Schema> {
        match self.service {
            None => vec![ENGINE],
            Some(Service::Annotations) => vec![ENGINE, annotations::SCHEMA],
            Some(Service::Pastes) => vec![ENGINE, pastes::SCHEMA],
        }
    }
}

#[derive(Subcommand, Debug)]
enum Command {
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
    schema: &'static str,
    found: Option<i32>,
    newest: i32,
    functions_current: bool,
    changed: Vec<i32>,
    current: bool,
    pending: Vec<String>,
}

impl Answer {
    fn of(schema: &Schema, status: &Status) -> Self {
        let found = status.found.unwrap_or(0);
        let mut pending: Vec<String> = schema
            .migrations
            .iter()
            .filter(|migration| migration.version > found)
            .map(|migration| format!("{:04} {}", migration.version, migration.name))
            .collect();
        if !status.functions_current {
            pending.push("functions and views".to_owned());
        }
        Self {
            schema: schema.name,
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
            "schema     {} {found}, this release brings {}\nfunctions  {functions}\n",
            self.schema, self.newest
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

pub async fn run(args: Args, common: &Common) -> Result<ExitCode, Failure> {
    for schema in args.schemas() {
        match &args.command {
            Command::Up { dry_run: true } => dry_run(&schema, common).await?,
            Command::Up { dry_run: false } => up(&schema, common).await?,
            Command::Status => status(&schema, common).await?,
            Command::Sql => {
                common.out().print(schema.sql().trim_end())?;
                if schema.name == annotations::SCHEMA.name {
                    common.out().print(annotations::trigger_sql()?.trim_end())?;
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn up(schema: &Schema, common: &Common) -> Result<(), Failure> {
    let (out, mut db) = (common.out(), common.bare_db().await?);
    let before = schema.status(db.client()).await?;
    let applied = match schema.name == annotations::SCHEMA.name {
        // With the triggers that make its jobs.
        true => annotations::migrate(db.client_mut()).await?,
        false => schema.up(db.client_mut()).await?,
    };
    let version = schema.newest_version();
    let answer = serde_json::json!({
        "schema": schema.name, "applied": applied,
        "functions_replaced": !before.functions_current, "version": version,
    });
    out.one("migrate", &answer, |_| match (applied.is_empty(), before.functions_current) {
        (true, true) => format!("schema {} is current (version {version})", schema.name),
        (true, false) => format!("schema {}: functions and views replaced", schema.name),
        (false, _) => {
            let ran: Vec<String> = applied.iter().map(|version| format!("{version:04}")).collect();
            format!(
                "schema {}: migrations applied: {}; functions and views replaced",
                schema.name,
                ran.join(", ")
            )
        }
    })
}

async fn status(schema: &Schema, common: &Common) -> Result<(), Failure> {
    let (out, db) = (common.out(), common.bare_db().await?);
    let status = schema.status(db.client()).await?;
    out.one("migrate", &Answer::of(schema, &status), Answer::text)?;
    if status.is_current() {
        return Ok(());
    }
    Err(match status.problem() {
        Some(problem) => Failure::new(Code::Conflict, problem),
        None => Failure::conflict(
            "functions and views are of another release; run: leasehold migrate up",
        ),
    })
}

/// Prints the SQL that would run, so that it can be read first.
async fn dry_run(schema: &Schema, common: &Common) -> Result<(), Failure> {
    let (out, db) = (common.out(), common.bare_db().await?);
    let status = schema.status(db.client()).await?;
    let answer = Answer::of(schema, &status);
    let found = status.found.unwrap_or(0);
    if let Some(problem) =
        status.problem().filter(|_| found > status.newest || !status.changed.is_empty())
    {
        return Err(problem.into());
    }
    if !out.is_table() {
        return out.one("migrate", &answer, Answer::text);
    }
    for migration in schema.migrations.iter().filter(|migration| migration.version > found) {
        out.print(&format!(
            "-- migration {:04} {}\n{}",
            migration.version, migration.name, migration.sql
        ))?;
    }
    if !status.functions_current {
        for (name, sql) in schema.functions {
            out.print(&format!("-- functions: {name}\n{sql}"))?;
        }
    }
    match answer.pending.is_empty() {
        true => out.note("nothing to do: the schema is current"),
        false => out.note(format!("would run: {}; nothing was changed", answer.pending.join(", "))),
    }
    Ok(())
}
