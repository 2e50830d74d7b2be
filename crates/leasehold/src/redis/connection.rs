//! A connection to Redis that is opened at the first command, and opened again after one that failed.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, FromRedisValue, RedisResult};
use tokio::sync::Mutex;

/// What an address looks like, for errors.
pub(super) const ADDRESS: &str = "it looks like redis://host:6379/0";

pub(super) struct Connection {
    client: redis::Client,
    /// How long connecting may take, and each command.
    limit: Duration,
    open: Mutex<Option<MultiplexedConnection>>,
}

impl Connection {
    /// `limit`: how long connecting may take, and each command. Fails if the URL cannot be read.
    pub(super) fn new(url: &str, limit: Duration) -> RedisResult<Self> {
        Ok(Self { client: redis::Client::open(url)?, limit, open: Mutex::default() })
    }

    /// Sends one command. Drops a connection whose command failed or timed out: the next command opens another
    /// one. `ConnectionManager` of the driver keeps a connection after a timeout, and a connection that a
    /// network has silently cut would then fail every command until the operating system reports it.
    pub(super) async fn call<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        let mut connection = self.connection().await?;
        let answer = command.query_async(&mut connection).await;
        if answer.is_err() {
            *self.open.lock().await = None;
        }
        answer
    }

    async fn connection(&self) -> RedisResult<MultiplexedConnection> {
        let mut slot = self.open.lock().await;
        if let Some(open) = slot.as_ref() {
            return Ok(open.clone());
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.limit))
            .set_response_timeout(Some(self.limit));
        let fresh = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        Ok(slot.insert(fresh).clone())
    }
}
