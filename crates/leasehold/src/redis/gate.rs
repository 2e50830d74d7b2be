//! The gate in Redis: a key with a lifetime of 30 s, set with SET NX, and deleted only by its holder.
//!
//! # What can go wrong
//! - The holder is paused past the key's lifetime, or Redis loses the key: two claims run at once, and
//!   Postgres keeps them apart.
//! - Redis is down or slow: the call times out after at most 200 ms, and the claim runs without the
//!   gate.

use std::time::Duration;

use super::connection::{ADDRESS, Connection};
use crate::sweep::{Answer, Asking, ClaimGate, Gate, Leaving, SweepError};

/// Fetching and marking is short; the key of a dead holder expires after this.
const TTL_MILLIS: u64 = 30_000;

/// Shorter than the gate's own timeout, so that a connection that hangs is noticed here.
const LIMIT: Duration = Duration::from_millis(150);

/// Deletes the key only if it still holds this pass: by then it may be another holder's.
const GIVE_BACK: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then \
     return redis.call('del', KEYS[1]) else return 0 end";

impl Gate {
    /// Returns a gate by a lock in Redis around each claim, at a URL such as
    /// `redis://host:6379/0`. Connects at the first claim. The key is `leasehold:sweep:` and the
    /// sweep's name.
    pub fn redis(url: &str) -> Result<Self, SweepError> {
        let connection = Connection::new(url, LIMIT).map_err(|error| {
            SweepError::Declaration(format!(
                "the address of Redis cannot be read: {error}; {ADDRESS}"
            ))
        })?;
        Ok(Self::custom(std::sync::Arc::new(RedisGate(connection))))
    }
}

struct RedisGate(Connection);

fn key(sweep: &str) -> String {
    format!("leasehold:sweep:{sweep}")
}

impl ClaimGate for RedisGate {
    fn ask<'a>(&'a self, sweep: &'a str, pass: &'a str) -> Asking<'a> {
        Box::pin(async move {
            let mut set = redis::cmd("SET");
            set.arg(key(sweep)).arg(pass).arg("NX").arg("PX").arg(TTL_MILLIS);
            match self.0.call::<Option<String>>(&set).await {
                Ok(Some(_)) => Answer::Granted,
                Ok(None) => Answer::Busy,
                Err(error) => {
                    tracing::debug!(sweep, %error, "the gate in Redis does not respond; claiming without it");
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
            let _: redis::RedisResult<i64> = self.0.call(&give_back).await;
        })
    }
}
