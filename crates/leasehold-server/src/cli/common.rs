//! What every command knows: where the database is and how to write the answer.

use leasehold::Leasehold;
use leasehold::database::{Database, Session};

use crate::exit::Failure;

/// Options of every command.
#[derive(clap::Args, Debug, Clone)]
pub struct Common {
    /// The database, as postgres://user@host:5432/name. Passwords belong into the environment or
    /// ~/.pgpass: a command line is visible to everyone on the machine
    #[arg(long, global = true, value_name = "URL", env = "LEASEHOLD_DATABASE_URL", hide_env_values = true)]
    pub database_url: Option<String>,
}

impl Common {
    /// The database that the flag, the environment or the default names. Opens nothing.
    pub fn database(&self) -> Result<Database, Failure> {
        let url = self.database_url.clone().or_else(|| std::env::var("DATABASE_URL").ok());
        let url = url.ok_or_else(|| Failure::usage("no database is named"))?;
        Ok(Database::new(&url)?)
    }

    /// The engine on that database; the schema must be current.
    pub async fn engine(&self) -> Result<Leasehold, Failure> {
        Ok(Leasehold::on(self.database()?).await?)
    }

    /// One session, for a command that asks and answers.
    pub async fn session(&self) -> Result<Session, Failure> {
        Ok(self.database()?.connect().await?)
    }
}
