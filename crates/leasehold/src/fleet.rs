//! A fleet: the handles of several databases, each under a name.
//!
//! # Invariants
//! - A fleet opens nothing. Each handle connects when it is used first, so a database that is down at the start is
//!   used as soon as it is up.
//! - Two names of one database are refused: equal addresses at once, other addresses when a worker has connected
//!   to both.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::join_all;
use tokio_postgres::Config;

use crate::builder::SchemaCheck;
use crate::database::Database;
use crate::engine::{Leasehold, Settings};
use crate::error::ConnectError;
use crate::worker::FleetWorker;

/// The most databases of a fleet: a worker keeps a few sessions and a thread for each.
const MOST_DATABASES: usize = 256;

/// Several databases, each under a name, from [`Leasehold::fleet`]. Cheap to clone.
///
/// A job is in the database of the rows that it is about. Choose that database, and enqueue there:
///
/// ```no_run
/// # use leasehold::{Enqueue, Job, Leasehold};
/// # #[derive(Job, serde::Serialize, serde::Deserialize)]
/// # #[job(name = "email.send", queue = "mail")]
/// # struct SendEmail { to: String }
/// # async fn send_email(_: SendEmail) {}
/// # async fn run(region: &str) -> Result<(), Box<dyn std::error::Error>> {
/// let fleet = Leasehold::fleet([("eu", "postgres://shop@eu/shop"), ("us", "postgres://shop@us/shop")])?;
/// let shop = fleet.get(region).ok_or("no such region")?;
/// SendEmail { to: "ada@example.com".into() }.enqueue(shop).await?;
///
/// // One worker for all of them, 20 jobs at a time from all databases together.
/// fleet.worker().queue("mail", 20).handle(send_email).run_until_signal().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Fleet(Arc<[Leasehold]>);

impl Fleet {
    /// Names several databases, with the default settings of a handle. Opens nothing.
    pub fn from_databases<N: Into<String>>(
        databases: impl IntoIterator<Item = (N, Database)>,
    ) -> Result<Self, ConnectError> {
        let named = databases.into_iter().map(|(name, database)| (name.into(), database));
        Self::new(named.collect(), Settings::default(), SchemaCheck::Check)
    }

    pub(crate) fn new(
        databases: Vec<(String, Database)>,
        settings: Settings,
        schema: SchemaCheck,
    ) -> Result<Self, ConnectError> {
        let problem = |text: String| Err(ConnectError::Settings(text));
        if databases.is_empty() || databases.len() > MOST_DATABASES {
            return problem(format!(
                "the fleet has {} databases; name 1 to {MOST_DATABASES}",
                databases.len()
            ));
        }
        let mut handles: Vec<Leasehold> = Vec::with_capacity(databases.len());
        for (name, database) in databases {
            if !is_name(&name) {
                return problem(format!(
                    "database name {name:?} is not allowed: it has 1 to 64 letters, digits, '-', '_' and '.'"
                ));
            }
            for other in &handles {
                if other.name() == Some(&*name) {
                    return problem(format!(
                        "database name {name:?} is used twice; give each database its own name"
                    ));
                }
                if address(other.database().config()) == address(database.config()) {
                    return problem(same_database(other.name().unwrap_or_default(), &name));
                }
            }
            handles.push(Leasehold::unconnected(database, settings, schema, Some(name.into()))?);
        }
        Ok(Self(handles.into()))
    }

    /// Returns the handle of the database with this name.
    pub fn get(&self, name: &str) -> Option<&Leasehold> {
        self.handles().find(|engine| engine.name() == Some(name))
    }

    /// Returns the handles, in the order in which the databases were named. [`Leasehold::name`] is the name.
    pub fn handles(&self) -> impl ExactSizeIterator<Item = &Leasehold> {
        self.0.iter()
    }

    /// Connects to all databases at once and checks their servers and schemas. Returns each name with what is wrong
    /// there. A worker needs no check before it: it does the same, and tries again.
    pub async fn check(&self) -> Vec<(String, Result<(), ConnectError>)> {
        let checks = self.handles().map(async |engine| {
            (engine.name().unwrap_or_default().to_owned(), engine.check().await)
        });
        join_all(checks).await
    }

    /// Builds a worker over all databases.
    pub fn worker(&self) -> FleetWorker<()> {
        self.worker_with(())
    }

    /// Builds a worker whose handlers share `state`, whichever database their job comes from.
    pub fn worker_with<S: Send + Sync + 'static>(&self, state: S) -> FleetWorker<S> {
        let state = Arc::new(state);
        FleetWorker::new(self, |_| Arc::clone(&state))
    }

    /// Builds a worker whose handlers get the state of their job's database, such as its pool of another driver.
    ///
    /// ```no_run
    /// # use leasehold::{Fleet, Job, State};
    /// # #[derive(Job, serde::Serialize, serde::Deserialize)]
    /// # #[job(name = "email.send")]
    /// # struct SendEmail;
    /// #[derive(Clone)]
    /// struct Shop { currency: &'static str }
    ///
    /// async fn send_email(_: SendEmail, State(shop): State<Shop>) {
    ///     println!("in {}", shop.currency);
    /// }
    ///
    /// # fn worker(fleet: Fleet) {
    /// let worker = fleet
    ///     .worker_with_each(|engine| match engine.name() {
    ///         Some("eu") => Shop { currency: "EUR" },
    ///         _ => Shop { currency: "USD" },
    ///     })
    ///     .handle(send_email);
    /// # drop(worker);
    /// # }
    /// ```
    pub fn worker_with_each<S: Send + Sync + 'static>(
        &self,
        mut state: impl FnMut(&Leasehold) -> S,
    ) -> FleetWorker<S> {
        FleetWorker::new(self, |engine| Arc::new(state(engine)))
    }
}

impl std::fmt::Debug for Fleet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.handles().map(Leasehold::name)).finish()
    }
}

/// Returns what is wrong with two names of one database.
pub(crate) fn same_database(one: &str, other: &str) -> String {
    format!(
        "{one:?} and {other:?} are the same database; leave one of them out, or correct its address"
    )
}

fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// Returns where the configuration leads: hosts with their ports, and the name of the database.
fn address(config: &Config) -> (BTreeSet<(String, u16)>, Option<&str>) {
    let (hosts, addresses, ports) =
        (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
    let port = |at: usize| ports.get(at).or(ports.first()).copied().unwrap_or(5432);
    let named = |at: usize| match (hosts.get(at), addresses.get(at)) {
        (Some(host), _) => format!("{host:?}"),
        (None, address) => format!("{address:?}"),
    };
    let all = (0..hosts.len().max(addresses.len())).map(|at| (named(at), port(at)));
    (all.collect(), config.get_dbname().or(config.get_user()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(databases: &[(&str, &str)]) -> String {
        Leasehold::fleet(databases.iter().copied()).expect_err("refused").to_string()
    }

    #[tokio::test]
    async fn b21_two_names_of_one_address_are_refused() {
        let url = "postgres://me:secret@db/shop";
        let text = refused(&[("a", url), ("b", "host=db port=5432 dbname=shop user=other")]);
        assert!(text.contains("\"a\" and \"b\" are the same database"), "{text}");
        assert!(!text.contains("secret"), "{text}");
        let others =
            [("a", url), ("b", "postgres://me@db/other"), ("c", "postgres://me@db:5433/shop")];
        assert_eq!(Leasehold::fleet(others).expect("three databases").handles().len(), 3);
    }

    #[tokio::test]
    async fn names_of_a_fleet_that_cannot_work_are_refused() {
        for (databases, expected) in [
            (&[][..], "the fleet has 0 databases; name 1 to 256"),
            (&[("", "postgres://db/a")], "database name \"\" is not allowed"),
            (&[("a=b", "postgres://db/a")], "database name \"a=b\" is not allowed"),
            (
                &[("a", "postgres://db/a"), ("a", "postgres://db/b")],
                "database name \"a\" is used twice",
            ),
            (&[("a", "mysql://db/a")], "database \"a\": the database URL cannot be read"),
        ] {
            let text = refused(databases);
            assert!(text.contains(expected), "{text}");
        }
    }

    #[tokio::test]
    async fn a_fleet_opens_nothing_and_its_handles_have_names() {
        let fleet = Leasehold::fleet([("eu", "postgres://no.such.host/eu")]).expect("a fleet");
        assert_eq!(fleet.get("eu").and_then(Leasehold::name), Some("eu"));
        assert!(fleet.get("us").is_none());
    }
}
