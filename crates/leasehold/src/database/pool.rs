//! Opens the connections of a pool as [`Database`] opens all others.

use std::pin::Pin;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_postgres::{Client, Config, Error};

use super::{CONNECT_LIMIT, Database};
use crate::error::ConnectError;

/// The interval at which a pool looks for a server that accepts writes.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Opens the connections of a pool.
pub(crate) struct Opener(pub(crate) Database);

type Opened = (Client, JoinHandle<()>);

impl deadpool_postgres::Connect for Opener {
    fn connect(
        &self,
        _: &Config,
    ) -> Pin<Box<dyn Future<Output = Result<Opened, Error>> + Send + '_>> {
        Box::pin(async move {
            loop {
                match self.0.open_halves().await {
                    Ok(opened) => return Ok(opened),
                    Err(ConnectError::Unreachable(error)) => return Err(error),
                    // During a failover only standbys reply. The pool's own limit ends the wait.
                    Err(error) => {
                        tracing::debug!(%error, "no connection for the pool yet");
                        tokio::time::sleep(LOOK_EVERY).await;
                    }
                }
            }
        })
    }
}

/// Returns whether a session accepts writes, within the limit for opening one.
pub(crate) async fn accepts_writes(client: &Client) -> bool {
    let sql = "select not current_setting('transaction_read_only')::boolean";
    let asked = tokio::time::timeout(CONNECT_LIMIT, client.query_typed(sql, &[])).await;
    asked.is_ok_and(|rows| {
        rows.is_ok_and(|rows| rows.first().is_some_and(|row| row.get::<_, bool>(0)))
    })
}
