//! What every command shares: the database and the output format.

use std::time::Duration;

use leasehold::admin::By;
use leasehold::database::{Database, Pooler};
use leasehold::{Leasehold, migrate};

use super::address::{self, Address};
use super::db::Db;
use crate::exit::Failure;
use crate::output::{Color, Format, Out};

// No doc comment: clap would show it as the description of the program.
#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "Global options")]
pub struct Common {
    /// Use this database, such as postgres://user@host:5432/name
    ///
    /// Default: DATABASE_URL, then the PG* variables, then the private server of `leasehold dev`.
    /// Put a URL with a password into the environment: every user of the machine can read a command
    /// line.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "LEASEHOLD_DATABASE_URL",
        hide_env_values = true
    )]
    pub database_url: Option<String>,

    /// Pooler in front of PostgreSQL: detect, none, session or transaction
    ///
    /// A pooler in transaction mode hands sessions on after each transaction, so that nothing may
    /// be set or prepared on them. `detect` finds out on connecting.
    #[arg(long, global = true, value_name = "MODE", env = "LEASEHOLD_POOLER",
          value_parser = |mode: &str| mode.parse::<Pooler>().map_err(|error| error.to_string()))]
    pooler: Option<Pooler>,

    /// Output format
    #[arg(short, long, global = true, value_enum, value_name = "FORMAT", env = "LEASEHOLD_OUTPUT")]
    output: Option<Format>,

    /// Print JSON: short for --output json
    #[arg(long, global = true, conflicts_with = "output")]
    json: bool,

    /// Use colours: auto, always or never
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "WHEN",
        default_value = "auto",
        hide_possible_values = true
    )]
    color: Color,

    /// Timeout for database calls
    #[arg(long, global = true, value_name = "TIME", default_value = "30s", value_parser = crate::text::parse_duration,
          env = "LEASEHOLD_TIMEOUT")]
    timeout: Duration,
}

impl Common {
    pub fn out(&self) -> Out {
        let format = if self.json { Format::Json } else { self.output.unwrap_or(Format::Table) };
        Out::new(format, self.color)
    }

    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns the database named by the flag, the environment or the default. Does not connect.
    fn database(&self) -> Result<Database, Failure> {
        Ok(self.address()?.database)
    }

    /// Like `database`, with the setting that named it.
    pub fn address(&self) -> Result<Address, Failure> {
        let mut found = address::find(self.database_url.as_deref(), &address::environment)?;
        if let Some(pooler) = self.pooler {
            found.database = found.database.with_pooler(pooler);
        }
        Ok(found)
    }

    /// Opens the engine on that database; the schema must be current.
    pub async fn engine(&self) -> Result<Leasehold, Failure> {
        let database = self.database()?;
        let address = address::describe(database.config());
        Leasehold::from_database(database).await.map_err(|error| Failure::from(error).at(&address))
    }

    /// Opens one session for a command. The schema must be current.
    pub async fn db(&self) -> Result<Db, Failure> {
        self.db_of(&self.database()?).await
    }

    /// Returns the pooler that the command line names.
    pub fn pooler(&self) -> Option<Pooler> {
        self.pooler
    }

    /// Opens one session on a database of a fleet. The schema must be current.
    pub async fn db_of(&self, database: &Database) -> Result<Db, Failure> {
        let db = self.open(database).await?;
        let db = if database.is_pooled() { db } else { db.limited().await? };
        match migrate::status(db.client()).await?.problem() {
            Some(problem) => Err(problem.into()),
            None => Ok(db),
        }
    }

    /// Opens one session, without a check of the schema.
    pub async fn bare_db(&self) -> Result<Db, Failure> {
        self.open(&self.database()?).await
    }

    async fn open(&self, database: &Database) -> Result<Db, Failure> {
        let address = address::describe(database.config());
        // A session shared through a pooler must not get our settings.
        database.probe_pooler().await.map_err(|error| Failure::from(error).at(&address))?;
        let session =
            database.connect().await.map_err(|error| Failure::from(error).at(&address))?;
        Ok(Db::new(session, self.timeout))
    }
}

/// Returns who runs this command and why, for the audit log.
pub fn by(why: Option<String>) -> By {
    let by = By::new(actor());
    match why {
        Some(why) => by.why(why),
        None => by,
    }
}

/// Returns the name of a user of this machine, or the number if the machine has no list.
fn user_name(id: u32) -> String {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(id)).then(|| name.to_owned())
    });
    name.unwrap_or_else(|| format!("uid-{id}"))
}

/// Returns who runs this command: `user@host`.
pub fn actor() -> String {
    let user = address::environment("USER")
        .or_else(|| address::environment("LOGNAME"))
        .unwrap_or_else(|| user_name(rustix::process::getuid().as_raw()));
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{user}@{host}")
}
