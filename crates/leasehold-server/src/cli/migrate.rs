//! `leasehold migrate`: the schema of the engine, and those of the services built on it.

use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};
use leasehold::SchemaError;
use leasehold::migrate::{ENGINE, Functions, Schema, Status};
use serde::Serialize;

use super::common::Common;
use crate::exit::{Code, Failure};

#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
    /// Include the schema of this service, after the engine's
    #[arg(long, global = true, value_name = "NAME")]
    service: Option<Service>,
}

/// The services with their own tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Service {
    Annotations,
    Pastes,
}

impl Args {
    /// Returns the selected schemas, in the order of their creation.
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
    /// Migrate the schema to this release; safe to repeat, and from many machines at once
    Up {
        /// Show what would run, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Compare the schema with this release; exit code 5 if they differ
    Status,
    /// Print the whole schema as SQL, for operators who run their own migrations
    Sql,
}

#[derive(Serialize)]
struct SchemaStatus {
    schema: &'static str,
    found: Option<i32>,
    newest: i32,
    functions_current: bool,
    /// Of a later release: they stay, and this release works with them.
    functions_newer: bool,
    changed: Vec<i32>,
    current: bool,
    missing: Vec<String>,
}

impl SchemaStatus {
    fn of(schema: &Schema, status: &Status) -> Self {
        let mut missing: Vec<String> = schema
            .migrations
            .iter()
            .filter(|migration| status.missing.contains(&migration.version))
            .map(|migration| format!("{:04} {}", migration.version, migration.name))
            .collect();
        if status.functions == Functions::Older {
            missing.push("functions and views".to_owned());
        }
        Self {
            schema: schema.name,
            found: status.found,
            newest: status.newest,
            functions_current: status.functions_current,
            functions_newer: status.functions == Functions::Newer,
            changed: status.changed.clone(),
            current: status.problem().is_none(),
            missing,
        }
    }

    fn text(&self) -> String {
        let found = self.found.map_or("none".to_owned(), |version| version.to_string());
        let functions = match (self.functions_current, self.functions_newer) {
            (true, _) => "current",
            (false, true) => "of a newer release, which this one works with",
            (false, false) if self.found.is_none() => "none",
            (false, false) => "of another release, not replaced yet",
        };
        let mut text = format!(
            "schema     {} {found}, this release has {}\nfunctions  {functions}\n",
            self.schema, self.newest
        );
        for step in &self.missing {
            text.push_str(&format!("missing    {step}\n"));
        }
        for version in &self.changed {
            text.push_str(&format!(
                "changed    {version:04}: the applied migration differs from this release's\n"
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
        // Including the triggers that enqueue its jobs.
        true => annotations::migrate(db.client_mut()).await?,
        false => schema.up(db.client_mut()).await?,
    };
    let version = before.found.unwrap_or(0).max(schema.newest_version());
    let replaced = before.functions == Functions::Older;
    let answer = serde_json::json!({
        "schema": schema.name, "applied": applied,
        "functions_replaced": replaced, "version": version,
    });
    out.one("migrate", &answer, |_| match (applied.is_empty(), replaced) {
        (true, false) => format!("schema {} is current (version {version})", schema.name),
        (true, true) => format!("schema {}: functions and views replaced", schema.name),
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
    out.one("migrate", &SchemaStatus::of(schema, &status), SchemaStatus::text)?;
    match status.problem() {
        Some(problem) => {
            let mut text = problem.to_string();
            if schema.name != ENGINE.name {
                let up = format!("leasehold migrate up --service {}", schema.name);
                text = text.replace("leasehold migrate up", &up);
            }
            Err(Failure::new(Code::Conflict, text))
        }
        None => Ok(()),
    }
}

/// Prints the SQL that would run, for review.
async fn dry_run(schema: &Schema, common: &Common) -> Result<(), Failure> {
    let (out, db) = (common.out(), common.bare_db().await?);
    let status = schema.status(db.client()).await?;
    let answer = SchemaStatus::of(schema, &status);
    if let Some(problem @ (SchemaError::New { .. } | SchemaError::Changed { .. })) =
        status.problem()
    {
        return Err(problem.into());
    }
    if !out.is_table() {
        return out.one("migrate", &answer, SchemaStatus::text);
    }
    let is_missing = |version: &i32| status.missing.contains(version);
    for migration in schema.migrations.iter().filter(|migration| is_missing(&migration.version)) {
        out.print(&format!(
            "-- migration {:04} {}\n{}",
            migration.version, migration.name, migration.sql
        ))?;
    }
    if status.functions == Functions::Older {
        for (name, sql) in schema.functions {
            out.print(&format!("-- functions: {name}\n{sql}"))?;
        }
    }
    match answer.missing.is_empty() {
        true => out.note("the schema is current; nothing would run"),
        false => out.note(format!("would run: {}; nothing was changed", answer.missing.join(", "))),
    }
    Ok(())
}
