//! The gate in Redis: a key with a lifetime of 30 s, set with SET NX, and deleted only by its holder.
//!
//! # What can go wrong
//! - The holder is paused past the key's lifetime, or Redis loses the key: two claims run at once, and
//!   Postgres keeps them apart.
//! - Redis is down or slow: the call times out after at most 200 ms, and the claim runs without the
//!   gate.

use std::time::Duration;

use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use tokio::sync::Mutex;

use super::gate::{Answer, Asking, ClaimGate, Gate, Leaving};
use super::prepare::SweepError;

/// Fetching and marking is short; the key of a dead holder expires after this.
const TTL_MILLIS: u64 = 30_000;

/// Shorter than the gate's own timeout, so that a connection that hangs is noticed here.
const LIMIT: Duration = Duration::from_millis(150);

/// Deletes the key only if it still holds this pass: by then it may be another holder's.
const GIVE_BACK: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then \
     return redis.call('del', KEYS[1]) else return 0 end";

impl Gate {
    /// Returns a gate by a lock in Redis around fetching and marking, at a URL such as
    /// `redis://host:6379/0`. Connects at the first claim. The key is `leasehold:sweep:` and the
    /// sweep's name.
    pub fn redis(url: &str) -> Result<Self, SweepError> {
        let client = redis::Client::open(url).map_err(|error| {
            SweepError::Declaration(format!(
                "the address of Redis cannot be read: {error}; it looks like redis://host:6379/0"
            ))
        })?;
        Ok(Self::custom(std::sync::Arc::new(RedisGate { client, connection: Mutex::default() })))
    }
}

struct RedisGate {
    client: redis::Client,
    connection: Mutex<Option<MultiplexedConnection>>,
}

impl RedisGate {
    /// Sends one command. Drops a connection that failed, or did not answer in time: the next call
    /// opens another.
    async fn call<T: redis::FromRedisValue>(&self, command: &redis::Cmd) -> redis::RedisResult<T> {
        let mut connection = self.connection().await?;
        let answer = command.query_async(&mut connection).await;
        if answer.is_err() {
            *self.connection.lock().await = None;
        }
        answer
    }

    async fn connection(&self) -> redis::RedisResult<MultiplexedConnection> {
        let mut slot = self.connection.lock().await;
        if let Some(open) = slot.as_ref() {
            return Ok(open.clone());
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(LIMIT))
            .set_response_timeout(Some(LIMIT));
        let fresh = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        Ok(slot.insert(fresh).clone())
    }
}

fn key(sweep: &str) -> String {
    format!("leasehold:sweep:{sweep}")
}

impl ClaimGate for RedisGate {
    fn ask<'a>(&'a self, sweep: &'a str, pass: &'a str) -> Asking<'a> {
        Box::pin(async move {
            let mut set = redis::cmd("SET");
            set.arg(key(sweep)).arg(pass).arg("NX").arg("PX").arg(TTL_MILLIS);
            match self.call::<Option<String>>(&set).await {
                Ok(Some(_)) => Answer::Granted,
                Ok(None) => Answer::Busy,
                Err(error) => {
                    tracing::debug!(sweep, %error, "the gate in Redis does not answer; claiming without it");
                    Answer::Unavailable
                }
            }
        })
    }

    fn leave<'a>(&'a self, sweep: &'a str, pass: &'a str) -> Leaving<'a> {
        Box::pin(async move {
            let mut give_back = redis::cmd("EVAL");
            give_back.arg(GIVE_BACK).arg(1).arg(key(sweep)).arg(pass);
            // A key that is not deleted expires.
            let _: redis::RedisResult<i64> = self.call(&give_back).await;
        })
    }
}
