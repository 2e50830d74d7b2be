//! The table's side: which versions are wanted, and the documents.

use std::collections::HashMap;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use tokio::sync::OnceCell;
use tokio_postgres::types::Type;

use super::compare::Want;
use crate::Leasehold;
use crate::error::{CallError, describe};
use crate::link::{Link, Param};
use crate::mirror::declare::{CALL_LIMIT, Mirror, MirrorError, Prepared};
use crate::mirror::sets::Digest;

/// Makes the mirror's statements use the key's index, even where statistics of a table that was just
/// filled suggest a sequential scan.
pub(crate) const SETTINGS: &str =
    "set enable_seqscan = off; set plan_cache_mode = force_generic_plan";

/// Documents that are parsed before the task yields: other tasks on this thread may serve users who
/// wait for a response.
const AT_ONCE: usize = 64;

/// What the table has for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) want: Want,
    /// The row exists, whether or not it has a document.
    pub(crate) is_there: bool,
}

/// The versions that the database has of one key.
#[derive(Clone, Copy, Default)]
struct Versions {
    document: Option<i64>,
    row: Option<i64>,
    deletion: Option<i64>,
}

impl From<Versions> for Row {
    fn from(versions: Versions) -> Self {
        let want = match versions.document {
            Some(version) => Want::Document(version),
            None => Want::Gone(versions.row.or(versions.deletion)),
        };
        Self { want, is_there: versions.row.is_some() }
    }
}

/// A document, or why it could not be read.
pub(crate) type Read = Result<(i64, serde_json::Value), String>;

/// The mirrored table, on one session.
pub(crate) struct Source {
    mirror: Mirror,
    link: Link,
    prepared: OnceCell<Prepared>,
}

impl Source {
    pub(crate) fn new(engine: &Leasehold, mirror: Mirror) -> Self {
        let link = Link::with_settings(engine.database().clone(), CALL_LIMIT, SETTINGS);
        Self { mirror, link, prepared: OnceCell::new() }
    }

    pub(crate) fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// Checks the mirror against its table, once, and returns the result.
    pub(crate) async fn prepared(&self) -> Result<&Prepared, MirrorError> {
        self.prepared
            .get_or_try_init(|| async {
                self.mirror.store()?;
                Prepared::new(&self.mirror, &self.link).await
            })
            .await
    }

    /// Runs a statement that is not about the mirrored table.
    pub(crate) async fn query(
        &self,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<tokio_postgres::Row>, CallError> {
        self.link.query(sql, params).await
    }

    /// Returns the database's time. Every later read is as of that time or later.
    pub(crate) async fn now(&self) -> Result<Timestamp, MirrorError> {
        let now = self.link.query("select statement_timestamp()", &[]).await?;
        let unknown = || MirrorError::State("the database did not return its time".to_owned());
        now.first().map(|row| row.get(0)).ok_or_else(unknown)
    }

    /// Returns what is wanted of each key, in their order. One statement, one snapshot.
    pub(crate) async fn rows(&self, keys: &[String]) -> Result<Vec<Row>, MirrorError> {
        let prepared = self.prepared().await?;
        let params = [(&keys as _, Type::TEXT_ARRAY), (&self.mirror.name as _, Type::TEXT)];
        let rows = self.link.query(&prepared.statements.versions, &params).await?;
        let mut found: HashMap<&str, Versions> = HashMap::with_capacity(keys.len());
        for row in &rows {
            let versions = found.entry(row.get(1)).or_default();
            let version = Some(row.get(2));
            match row.get(0) {
                "document" => versions.document = version,
                "row" => versions.row = version,
                _ => versions.deletion = version,
            }
        }
        let of = |key: &String| found.get(key.as_str()).copied().unwrap_or_default();
        Ok(keys.iter().map(|key| of(key).into()).collect())
    }

    /// Returns the documents of these keys. Keys without one are missing from the map.
    pub(crate) async fn documents(
        &self,
        keys: &[String],
    ) -> Result<HashMap<String, Read>, MirrorError> {
        let mut found = HashMap::with_capacity(keys.len());
        self.read_documents(keys, &mut found).await?;
        Ok(found)
    }

    /// Reads documents. A row whose document fails must not fail the others: keys that Postgres refuses
    /// are split in halves, until the faulty one is alone.
    fn read_documents<'a>(
        &'a self,
        keys: &'a [String],
        found: &'a mut HashMap<String, Read>,
    ) -> BoxFuture<'a, Result<(), MirrorError>> {
        async move {
            if keys.is_empty() {
                return Ok(());
            }
            let prepared = self.prepared().await?;
            let params = [(&keys as _, Type::TEXT_ARRAY)];
            match self.link.query(&prepared.statements.documents, &params).await {
                Ok(rows) => {
                    let mut bytes = 0;
                    for (at, row) in rows.iter().enumerate() {
                        if at % AT_ONCE == AT_ONCE - 1 {
                            tokio::task::yield_now().await;
                        }
                        let read = match (row.get::<_, Option<i64>>(1), row.get(2)) {
                            (Some(version), Some::<&str>(text)) => {
                                bytes += text.len();
                                serde_json::from_str(text)
                                    .map(|document| (version, document))
                                    .map_err(|error| error.to_string())
                            }
                            _ => Err("its document or its version is null".to_owned()),
                        };
                        found.insert(row.get(0), read);
                    }
                    self.mirror.shared.throttle.weighed(rows.len(), bytes);
                    Ok(())
                }
                Err(CallError::Database(error)) if is_at_fault(&error) => match keys {
                    [key] => {
                        let why = format!("its document cannot be made: {}", describe(&error));
                        found.insert(key.clone(), Err(why));
                        Ok(())
                    }
                    keys => {
                        let (one, two) = keys.split_at(keys.len() / 2);
                        self.read_documents(one, found).await?;
                        self.read_documents(two, found).await
                    }
                },
                Err(error) => Err(error.into()),
            }
        }
        .boxed()
    }

    /// Returns the next keys in the order of the store; fewer than `most` means that they are the last.
    pub(crate) async fn keys_after(
        &self,
        after: Option<&str>,
        most: usize,
    ) -> Result<Vec<String>, MirrorError> {
        let statements = &self.prepared().await?.statements;
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let limit = (&most as _, Type::INT8);
        let rows = match &after {
            None => self.link.query(&statements.first_keys, &[limit]).await?,
            Some(after) => {
                self.link.query(&statements.next_keys, &[limit, (after as _, Type::TEXT)]).await?
            }
        };
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    /// Returns the digest of the documents of these keys.
    pub(crate) async fn digest_of(&self, keys: &[String]) -> Result<Digest, MirrorError> {
        let sql = &self.prepared().await?.statements.digest;
        let rows = self.link.query(sql, &[(&keys, Type::TEXT_ARRAY)]).await?;
        let number = |at: usize| {
            rows.first().map_or(0, |row| u64::try_from(row.get::<_, i64>(at)).unwrap_or(0))
        };
        Ok(Digest { count: number(0), a: number(1), b: number(2) })
    }

    /// Returns the versions of the documents of these keys.
    pub(crate) async fn listed(&self, keys: &[String]) -> Result<Vec<(String, i64)>, MirrorError> {
        let sql = &self.prepared().await?.statements.listed;
        let rows = self.link.query(sql, &[(&keys, Type::TEXT_ARRAY)]).await?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }

    /// Raises the table's version of a key above the store's, because the store is ahead.
    pub(crate) async fn raise(&self, key: &str, row: Row, above: i64) -> Result<Row, MirrorError> {
        tracing::warn!(
            mirror = self.mirror.name,
            key,
            above,
            "the store has a newer version than the table; was the database set back?"
        );
        let params = [(&key as _, Type::TEXT), (&above as _, Type::INT8)];
        if row.is_there {
            self.link.query(&self.prepared().await?.statements.raise, &params).await?;
        } else {
            let sql = "select leasehold_internal.mirror_entomb($3, $1, $2)";
            let [key, above] = params;
            self.link.query(sql, &[key, above, (&self.mirror.name, Type::TEXT)]).await?;
        }
        // A concurrent change may have raised it further: read it again.
        let again = self.rows(&[key.to_owned()]).await?;
        Ok(again.first().copied().unwrap_or(row))
    }
}

/// Returns true if the statement failed because of the data it read, not because of the session or the
/// server.
fn is_at_fault(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| {
        let class = code.code().get(..2).unwrap_or_default();
        // Data exceptions, cardinality and integrity violations, raised exceptions, and Leasehold's
        // own.
        matches!(class, "21" | "22" | "P0" | "LH" | "23")
    })
}
