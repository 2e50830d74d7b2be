//! Every interleaving of a few transactions, on real PostgreSQL.
//!
//! ```no_run
//! # async fn test(database: leasehold_testing::TestDatabase) {
//! use leasehold_testing::stepper::{Script, Stepper};
//! let seen = Stepper::new(database.direct_config())
//!     .explore(
//!         || vec![
//!             Script::new("renew").sql("begin").sql("update t set n = 1 where n = 0").sql("commit"),
//!             Script::new("expire").sql("begin").sql("delete from t where n = 0").sql("commit"),
//!         ],
//!         async |client| client.batch_execute("truncate t; insert into t values (0)").await.unwrap(),
//!         async |client, run| {
//!             let rows = client.query("select n from t", &[]).await.unwrap();
//!             if rows.len() <= 1 { Ok(()) } else { Err(format!("{} rows", rows.len())) }
//!         },
//!     )
//!     .await
//!     .unwrap();
//! seen.assert_all_held();
//! # }
//! ```
//!
//! # Invariants
//! - Each script has its own connection, and its steps run in order. Every order of the steps of all
//!   scripts that PostgreSQL allows runs once, each from a fresh `setup`, and `check` judges it.
//! - A step that waits for a lock of another script stays waiting, and the other scripts continue.
//!   `pg_blocking_pids` shows that it waits, not a stopwatch. Once free, it finishes before the next
//!   step starts.
//! - An error, such as a deadlock (40P01), is a result: the script continues with its next step, as a
//!   client would, and `check` judges.
//!
//! # What can go wrong
//! - Steps are whole statements (or closures): what happens between two locks of one statement is not
//!   interleaved.
//! - The number of orders explodes: two scripts of four steps have 70, three of three have 1680. More than
//!   [`MAX_ORDERS`] are refused.
//! - A pooler: the lock table knows backends and not clients, so use a direct connection.

mod actor;
mod orders;
mod report;
mod run;
mod script;

use std::time::Duration;

use tokio_postgres::{Client, Config};

pub use report::{Exploration, Failure, StepperError};
pub use run::{Outcome, Run};
pub use script::{Answer, Script, Session, StepError};

use actor::Stage;
use orders::Orders;

/// The most orders that one exploration may have.
pub const MAX_ORDERS: u64 = 20_000;

/// How long all scripts may be stuck. PostgreSQL ends a deadlock long before.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Runs scripts in every order.
pub struct Stepper {
    config: Config,
}

impl Stepper {
    /// Connects with this config: once per script and once to observe.
    pub fn new(config: Config) -> Self {
        Self { config }
    }

    /// Runs every order. `scripts` is called before each run, so that the state of closures starts
    /// fresh. `setup` prepares the data. `check` returns what is wrong afterwards, when everything is
    /// committed or rolled back. Both get a connection that belongs to no script.
    pub async fn explore(
        &self,
        scripts: impl Fn() -> Vec<Script>,
        setup: impl AsyncFn(&Client),
        check: impl AsyncFn(&Client, &Run) -> Result<(), String>,
    ) -> Result<Exploration, StepperError> {
        let lengths: Vec<usize> = scripts().iter().map(Script::len).collect();
        let possible = orders::count(&lengths);
        if possible > MAX_ORDERS {
            return Err(StepperError::TooMany { possible, limit: MAX_ORDERS });
        }
        let mut stage = Stage::connect(&self.config, lengths.len()).await?;
        let mut orders = Orders::default();
        let mut seen = Exploration::default();
        loop {
            setup(stage.looker()).await;
            let run = stage.play(scripts(), &mut orders).await?;
            // What a script left open is part neither of the result nor of the next run.
            stage.reset().await?;
            let judged = check(stage.looker(), &run).await;
            seen.note(&run, judged);
            if !orders.next() {
                seen.diverged = orders.diverged;
                return Ok(seen);
            }
        }
    }
}
