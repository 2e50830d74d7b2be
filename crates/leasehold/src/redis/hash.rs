//! A hash in Redis as a store: one field per row, for fast reads by key.
//!
//! # Invariants
//! - A field holds the version, a space and the document; a deletion has nothing after the space. One
//!   script compares and writes, so that a newer version stays.
//! - Next to the hash, `<name>:keys` holds the keys in byte order, for ranges.
//!
//! # What can go wrong
//! - Redis loses everything, or a part: the check finds it and has it written again.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::connection::{ADDRESS, Connection};
use crate::mirror::{
    Digest, ItemError, MirrorError, Range, StoredVersion, Target, TargetError, Tombstone, Write,
    Written,
};

/// KEYS: the hash, its keys. ARGV: four per write: key, version, document or empty, 1 if it is forced.
const WRITE: &str = "
    local answers = {}
    for at = 1, #ARGV, 4 do
        local old = redis.call('HGET', KEYS[1], ARGV[at])
        local held = old and tonumber(string.match(old, '^%-?%d+')) or nil
        local version = tonumber(ARGV[at + 1])
        if held and (held > version or (held == version and ARGV[at + 3] == '0')) then
            -- A stored document must be in the sorted set, even if its entry there was lost.
            redis.call('ZADD', KEYS[2], 0, ARGV[at])
            answers[#answers + 1] = 0
        else
            redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 1] .. ' ' .. ARGV[at + 2])
            redis.call('ZADD', KEYS[2], 0, ARGV[at])
            answers[#answers + 1] = 1
        end
    end
    return answers";

/// KEYS: the hash, its keys. ARGV: keys. Returns a version, a space, and something if there is a
/// document. A field whose key is not in `<name>:keys` counts as missing: no range would list it.
const HELD: &str = "
    local answers = {}
    for at = 1, #ARGV do
        local field = redis.call('HGET', KEYS[1], ARGV[at])
        local placed = field and redis.call('ZSCORE', KEYS[2], ARGV[at])
        local version = placed and string.match(field, '^%-?%d+ ')
        answers[at] = version and version .. (#field > #version and 'x' or '') or false
    end
    return answers";

/// KEYS: the hash, its keys. ARGV: two per deletion: key, and the whole field as it must be.
const FORGET: &str = "
    for at = 1, #ARGV, 2 do
        if redis.call('HGET', KEYS[1], ARGV[at]) == ARGV[at + 1] then
            redis.call('HDEL', KEYS[1], ARGV[at])
            redis.call('ZREM', KEYS[2], ARGV[at])
        end
    end
    return 1";

/// How many keys of a range one call reads.
const PAGE: usize = 1000;
const LIMIT: Duration = Duration::from_secs(10);

/// A hash in Redis. Read a document with `HGET <name> <key>` and skip to the first space.
pub struct RedisHash {
    connection: Connection,
    hash: String,
    keys: String,
}

impl RedisHash {
    /// Creates a store at a URL such as `redis://host:6379/0`. Connects at the first call.
    pub fn new(url: &str, hash: impl Into<String>) -> Result<Arc<Self>, MirrorError> {
        let connection = Connection::new(url, LIMIT).map_err(|error| {
            MirrorError::Declaration(format!(
                "the address of Redis cannot be read: {error}; {ADDRESS}"
            ))
        })?;
        let hash = hash.into();
        let keys = format!("{hash}:keys");
        Ok(Arc::new(Self { connection, hash, keys }))
    }

    async fn call<T: redis::FromRedisValue>(&self, command: &redis::Cmd) -> Result<T, TargetError> {
        self.connection.call(command).await.map_err(|error| TargetError::Down(error.to_string()))
    }

    fn script(&self, text: &str) -> redis::Cmd {
        let mut command = redis::cmd("EVAL");
        command.arg(text).arg(2).arg(&self.hash).arg(&self.keys);
        command
    }

    async fn read_versions(
        &self,
        keys: &[String],
    ) -> Result<Vec<Option<StoredVersion>>, TargetError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let mut get = self.script(HELD);
        get.arg(keys);
        let fields: Vec<Option<String>> = self.call(&get).await?;
        Ok(fields.iter().map(|field| field.as_deref().and_then(held)).collect())
    }

    /// Returns up to a page of a range. A key without a field was removed by hand: it has no `StoredVersion`.
    async fn page(
        &self,
        range: &Range,
        most: usize,
    ) -> Result<Vec<(String, Option<StoredVersion>)>, TargetError> {
        let bound = |sign: &str, key: &Option<String>, open: &str| match key {
            Some(key) => format!("{sign}{key}"),
            None => open.to_owned(),
        };
        let mut lex = redis::cmd("ZRANGEBYLEX");
        lex.arg(&self.keys).arg(bound("(", &range.after, "-")).arg(bound("[", &range.to, "+"));
        lex.arg("LIMIT").arg(0).arg(most);
        let keys: Vec<String> = self.call(&lex).await?;
        let held = self.read_versions(&keys).await?;
        Ok(keys.into_iter().zip(held).collect())
    }
}

fn held(field: &str) -> Option<StoredVersion> {
    let (version, document) = field.split_once(' ')?;
    Some(StoredVersion { version: version.parse().ok()?, deleted: document.is_empty() })
}

impl Target for RedisHash {
    fn held<'a>(
        &'a self,
        keys: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<Option<StoredVersion>>, TargetError>> {
        self.read_versions(keys).boxed()
    }

    fn write<'a>(
        &'a self,
        writes: &'a [Write],
    ) -> BoxFuture<'a, Result<Vec<Result<Written, ItemError>>, TargetError>> {
        async move {
            let mut script = self.script(WRITE);
            for write in writes {
                let text = write.document.as_ref().map(ToString::to_string).unwrap_or_default();
                script.arg(&write.key).arg(write.version).arg(text).arg(u8::from(write.forced));
            }
            let stored: Vec<bool> = self.call(&script).await?;
            let word = |stored| Ok(if stored { Written::Stored } else { Written::Newer });
            Ok(stored.into_iter().map(word).collect())
        }
        .boxed()
    }

    fn digest<'a>(&'a self, range: &'a Range) -> BoxFuture<'a, Result<Digest, TargetError>> {
        async move {
            let (mut digest, mut rest) = (Digest::default(), range.clone());
            loop {
                let page = self.page(&rest, PAGE).await?;
                for (key, held) in &page {
                    if let Some(StoredVersion { version, deleted: false }) = held {
                        digest.add(key, *version);
                    }
                }
                if page.len() < PAGE {
                    return Ok(digest);
                }
                rest.after = page.into_iter().next_back().map(|(key, _)| key);
            }
        }
        .boxed()
    }

    fn list<'a>(
        &'a self,
        range: &'a Range,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<(String, StoredVersion)>, TargetError>> {
        async move {
            // A key without a field counts as deleted, so that a short page still means the end.
            let none = StoredVersion { version: 0, deleted: true };
            let page = self.page(range, most).await?;
            Ok(page.into_iter().map(|(key, held)| (key, held.unwrap_or(none))).collect())
        }
        .boxed()
    }

    fn forget<'a>(&'a self, deletions: &'a [Tombstone]) -> BoxFuture<'a, Result<(), TargetError>> {
        async move {
            let mut script = self.script(FORGET);
            for Tombstone { key, version } in deletions {
                script.arg(key).arg(format!("{version} "));
            }
            self.call::<i64>(&script).await.map(drop)
        }
        .boxed()
    }
}
