//! What every command knows: where the database is and how to write the answer.

use std::time::Duration;

use leasehold::database::Database;
use leasehold::{Leasehold, migrate};

use super::address;
use super::db::Db;
use crate::exit::Failure;
use crate::output::{Color, Format, Out};

/// Options of every command.
#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "Options of every command")]
pub struct Common {
    /// The database, such as postgres://user@host:5432/name
    ///
    /// Default: DATABASE_URL, then the PG* variables, then the private server of `leasehold dev`.
    /// Put a URL with a password into the environment: everyone on the machine can read a command
    /// line.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "LEASEHOLD_DATABASE_URL",
        hide_env_values = true
    )]
    pub database_url: Option<String>,

    /// The form of the answer
    #[arg(short, long, global = true, value_enum, value_name = "FORM", env = "LEASEHOLD_OUTPUT")]
    output: Option<Format>,

    /// Short for --output json
    #[arg(long, global = true, conflicts_with = "output")]
    json: bool,

    /// Whether to use colours
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "WHEN",
        default_value = "auto",
        hide_possible_values = true
    )]
    color: Color,

    /// How long the database may take to answer
    #[arg(long, global = true, value_name = "TIME", default_value = "30s", value_parser = crate::text::parse_duration,
          env = "LEASEHOLD_PATIENCE")]
    patience: Duration,
}

impl Common {
    pub fn out(&self) -> Out {
        let format = if self.json { Format::Json } else { self.output.unwrap_or(Format::Table) };
        Out::new(format, self.color)
    }

    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// The database that the flag, the environment or the default names. Opens nothing.
    pub fn database(&self) -> Result<Database, Failure> {
        Ok(address::find(self.database_url.as_deref(), &address::environment)?.database)
    }

    /// The engine on that database; the schema must be current.
    pub async fn engine(&self) -> Result<Leasehold, Failure> {
        let database = self.database()?;
        let place = address::describe(database.config());
        Leasehold::on(database).await.map_err(|error| Failure::from(error).at(&place))
    }

    /// One session on a database whose schema is current, for a command that asks and answers.
    pub async fn db(&self) -> Result<Db, Failure> {
        let db = self.bare_db().await?;
        match migrate::status(db.client()).await?.problem() {
            Some(problem) => Err(problem.into()),
            None => Ok(db),
        }
    }

    /// One session, whatever the schema.
    pub async fn bare_db(&self) -> Result<Db, Failure> {
        let mut database = self.database()?;
        let place = address::describe(database.config());
        // A session shared through a pooler must not get settings of ours.
        database.probe_pooler().await.map_err(|error| Failure::from(error).at(&place))?;
        let session = database.connect().await.map_err(|error| Failure::from(error).at(&place))?;
        Ok(Db::new(session, self.patience))
    }
}

/// Who does this, for the records: `user@host`.
pub fn actor() -> String {
    let user = address::environment("USER")
        .or_else(|| address::environment("LOGNAME"))
        .unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw()));
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{user}@{host}")
}
