//! Selects the database: the flag, then `LEASEHOLD_DATABASE_URL`, then `DATABASE_URL`, then the `PG*`
//! variables, then the private server of `leasehold dev`.

use std::path::Path;

use leasehold::database::Database;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use crate::exit::Failure;

/// Reads a variable of the environment; tests pass their own.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Reads the real environment. An empty variable counts as not set.
pub fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// A database and the setting that names it.
pub struct Address {
    pub database: Database,
    pub origin: &'static str,
}

/// The origin of the private server that `leasehold dev` leaves behind.
const DEV: &str = "leasehold dev";

impl Address {
    /// True if no setting names a database and the private one of `leasehold dev` was found.
    pub fn is_of_dev(&self) -> bool {
        self.origin == DEV
    }

    /// A line for the start of a long-running process: the database, and which setting names it.
    pub fn line(&self) -> String {
        let address = describe(self.database.config());
        format!("{:<13} {address} (named by {})", "database", self.origin)
    }
}

/// Finds the database without connecting. The flag includes `LEASEHOLD_DATABASE_URL`.
pub fn find(flag: Option<&str>, environment: Environment<'_>) -> Result<Address, Failure> {
    if let Some((url, origin)) = named(flag, environment) {
        return Ok(Address { database: Database::new(&url)?, origin });
    }
    if let Some(config) = from_pg_variables(environment)? {
        return Ok(Address {
            database: Database::from_config(config)?,
            origin: "the PG* variables",
        });
    }
    let left_by_dev = crate::private_server::default_dir(environment)
        .and_then(|dir| std::fs::read_to_string(crate::private_server::url_file(&dir)).ok());
    match left_by_dev {
        Some(url) => Ok(Address { database: Database::new(url.trim())?, origin: DEV }),
        None => Err(Failure::usage("no database is named").hint(
            "set DATABASE_URL (postgres://user@host:5432/name), or start a private database: leasehold dev",
        )),
    }
}

/// Returns the URL from the flag or the environment, and where it came from.
pub fn named(flag: Option<&str>, environment: Environment<'_>) -> Option<(String, &'static str)> {
    flag.filter(|url| !url.is_empty())
        .map(|url| (url.to_owned(), "--database-url or LEASEHOLD_DATABASE_URL"))
        .or_else(|| Some((environment("DATABASE_URL")?, "DATABASE_URL")))
}

/// Reads the variables of psql and every libpq program.
fn from_pg_variables(environment: Environment<'_>) -> Result<Option<Config>, Failure> {
    let names = ["PGHOST", "PGPORT", "PGDATABASE", "PGUSER"];
    if names.iter().all(|name| environment(name).is_none()) {
        return Ok(None);
    }
    let mut config = Config::new();
    match environment("PGHOST") {
        Some(host) => config.host(host),
        None if Path::new("/var/run/postgresql").is_dir() => config.host("/var/run/postgresql"),
        None => config.host("localhost"),
    };
    if let Some(port) = environment("PGPORT") {
        let port = port.parse().map_err(|_| {
            Failure::usage(format!("PGPORT is {port:?}; it must be a number such as 5432"))
        })?;
        config.port(port);
    }
    let user = environment("PGUSER")
        .or_else(|| environment("USER"))
        .unwrap_or_else(|| "postgres".to_owned());
    config.dbname(environment("PGDATABASE").unwrap_or_else(|| user.clone()));
    config.user(user);
    if let Some(password) = environment("PGPASSWORD") {
        config.password(password);
    }
    match environment("PGSSLMODE").as_deref() {
        None | Some("prefer" | "allow") => {}
        Some("disable") => {
            config.ssl_mode(SslMode::Disable);
        }
        Some("require" | "verify-ca" | "verify-full") => {
            config.ssl_mode(SslMode::Require);
        }
        Some(other) => {
            return Err(Failure::usage(format!(
                "PGSSLMODE is {other:?}; use disable, prefer, require or verify-full"
            )));
        }
    }
    Ok(Some(config))
}

/// Describes the database, without its password.
pub fn describe(config: &Config) -> String {
    let user = config.get_user().map(|user| format!("{user}@")).unwrap_or_default();
    let database = config.get_dbname().or(config.get_user()).unwrap_or_default();
    let ports = config.get_ports();
    let port = |index: usize| ports.get(index).or(ports.first()).copied().unwrap_or(5432);
    let hosts = config.get_hosts().iter().enumerate();
    let named: Vec<String> = hosts
        .map(|(index, host)| match host {
            Host::Tcp(name) => format!("{name}:{}", port(index)),
            Host::Unix(dir) => format!("{}:{}", dir.display(), port(index)),
        })
        .collect();
    match config.get_hosts() {
        [Host::Unix(dir)] => {
            format!("postgres://{user}/{database}?host={}&port={}", dir.display(), port(0))
        }
        _ => format!("postgres://{user}{}/{database}", named.join(",")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(flag: Option<&str>, set: &[(&str, &str)]) -> Result<(&'static str, String), Failure> {
        let environment = |name: &str| {
            set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        let address = find(flag, &environment)?;
        Ok((address.origin, describe(address.database.config())))
    }

    #[test]
    fn flag_precedes_database_url_and_pg_variables() {
        let all = [
            ("DATABASE_URL", "postgres://b@localhost/b"),
            ("PGHOST", "localhost"),
            ("PGUSER", "c"),
        ];
        let url = |flag, set: &[(&str, &str)]| origin(flag, set).expect("an address").1;
        assert_eq!(url(Some("postgres://a@localhost/a"), &all), "postgres://a@localhost:5432/a");
        assert_eq!(url(None, &all), "postgres://b@localhost:5432/b");
        assert_eq!(url(None, &all[1..]), "postgres://c@localhost:5432/c");
    }

    #[test]
    fn missing_database_is_an_error_with_a_hint() {
        let failure = origin(None, &[("XDG_DATA_HOME", "/nonexistent")]).expect_err("no address");
        assert!(
            failure.next_step().is_some_and(|hint| hint.contains("leasehold dev")),
            "{failure:?}"
        );
    }

    #[test]
    fn b13_description_names_every_host() {
        let (_, text) =
            origin(Some("postgres://me@localhost:1,127.0.0.1:2/db"), &[]).expect("an address");
        assert_eq!(text, "postgres://me@localhost:1,127.0.0.1:2/db");
    }

    #[test]
    fn description_has_no_password() {
        let (_, text) =
            origin(Some("postgres://me:s3cret@127.0.0.1:99/db"), &[]).expect("an address");
        assert_eq!(text, "postgres://me@127.0.0.1:99/db");
    }
}
