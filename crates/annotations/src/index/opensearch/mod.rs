//! An index in OpenSearch, or in Elasticsearch from 7.10 on: it uses only what both have.
//!
//! # Invariants
//! - A set is an index named after the prefix. Searches use the alias that has the prefix's name, and a
//!   swap moves it atomically.
//! - Versions are OpenSearch's external versions, so that its shards refuse older ones.
//! - Removing a set leaves an alias with its name at the current set, so that no process creates it
//!   again.
//! - A deletion stays as a document with its version: OpenSearch itself forgets deletions after a
//!   minute, and a slow write would bring the document back.
//!
//! # What can go wrong
//! - It is down, slow or full: the call fails within its limit, and the error says whether to send less.
//! - It refuses one document: that item has the reason, and the others are stored.

mod bulk;
mod find;
mod http;
mod mapping;
mod set;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use leasehold::mirror::{Target, TargetError, Targets};
use reqwest::Method;
use serde_json::{Value, json};

use super::SearchIndex;
use super::query::{Hit, Hits, Query};
use http::{Http, Refused};
pub use set::OpenSearchSet;

/// How OpenSearch is used.
#[derive(Clone)]
pub struct OpenSearchSettings {
    /// `http(s)://[name:password@]host:port`.
    pub url: String,
    /// The alias that searches use; the names of our indexes begin with it. Lower-case letters, digits,
    /// `-` and `_`.
    pub prefix: String,
    /// Time limit of one request. Longer: large batches pass on slow servers. Shorter: an outage is
    /// noticed sooner.
    ///
    /// Default: 10 s.
    pub limit: Duration,
    /// Shards of a new index. More: larger indexes, and more work per query. Default: 1.
    pub shards: u32,
    /// How long searches may miss a write. Shorter: more and smaller segments.
    ///
    /// Default: 0.5 s.
    pub refresh: Duration,
}

impl OpenSearchSettings {
    pub fn new(url: impl Into<String>, prefix: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            prefix: prefix.into(),
            limit: Duration::from_secs(10),
            shards: 1,
            refresh: Duration::from_millis(500),
        }
    }
}

/// Leaves out the URL, which may contain a password.
impl std::fmt::Debug for OpenSearchSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenSearchSettings")
            .field("prefix", &self.prefix)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

/// An index in OpenSearch. Clones share its connections.
#[derive(Clone)]
pub struct OpenSearch(Arc<Inner>);

struct Inner {
    http: Http,
    settings: OpenSearchSettings,
}

impl OpenSearch {
    /// Checks the settings. Sends nothing: the service starts even while OpenSearch is down.
    pub fn new(settings: OpenSearchSettings) -> Result<Self, TargetError> {
        if !is_plain(&settings.prefix) || settings.prefix.len() > 100 {
            return Err(TargetError::Down(format!(
                "the prefix is {:?}; it must have lower-case letters, digits, - and _, a letter first",
                settings.prefix
            )));
        }
        let http = Http::new(&settings.url, settings.limit)?;
        Ok(Self(Arc::new(Inner { http, settings })))
    }

    /// Returns the address, without a password.
    pub fn address(&self) -> &str {
        self.0.http.address()
    }

    /// Returns the identity of the index: the cluster's own id, and the prefix. Asks the server.
    pub async fn identity(&self) -> Result<String, TargetError> {
        let answer = self.0.http.send(Method::GET, "", None).await.map_err(TargetError::from)?;
        let cluster = answer.get("cluster_uuid").and_then(Value::as_str);
        let unknown =
            || TargetError::Down("the server does not return the id of its cluster".to_owned());
        Ok(format!("opensearch {} {}", cluster.ok_or_else(unknown)?, self.0.settings.prefix))
    }

    /// Returns a set by its name. Sends nothing.
    pub fn set(&self, name: &str) -> Result<OpenSearchSet, TargetError> {
        self.0.must_be_ours(name)?;
        Ok(OpenSearchSet { server: Arc::clone(&self.0), name: name.to_owned() })
    }

    async fn find(&self, query: &Query) -> Result<Hits, TargetError> {
        let path = format!("{}/_search", self.0.settings.prefix);
        let body = find::question(query);
        let answer = match self.0.http.send(Method::POST, &path, Some(&body)).await {
            // A search creates no set: it would stay empty while another one is filled.
            Err(Refused::NotFound) => {
                return Err(TargetError::Down("the index has no set yet".to_owned()));
            }
            other => other?,
        };
        set::whole(&answer)?;
        let hits = answer.pointer("/hits/hits").and_then(Value::as_array);
        let hit = |hit: &Value| {
            let updated = hit.pointer("/sort/0")?.as_i64()?;
            let id = hit.pointer("/sort/1")?.as_str()?.to_owned();
            Some(Hit { id, updated })
        };
        let hits: Option<Vec<Hit>> = hits.into_iter().flatten().map(hit).collect();
        let hits = hits.ok_or_else(|| TargetError::Down("a hit has no id".to_owned()))?;
        Ok(Hits::new(hits, query.size()))
    }
}

impl Inner {
    /// Checks a name before it becomes part of a path.
    fn must_be_ours(&self, name: &str) -> Result<(), TargetError> {
        let number =
            name.strip_prefix(&self.settings.prefix).and_then(|rest| rest.strip_prefix('-'));
        if number.is_some_and(|n| {
            !n.is_empty() && n.len() <= 20 && n.bytes().all(|b| b.is_ascii_digit())
        }) {
            return Ok(());
        }
        Err(TargetError::Down(format!("there is no set {name:?}")))
    }

    /// Returns the sets that searches use.
    async fn searched(&self) -> Result<Vec<String>, TargetError> {
        self.named_by(&self.settings.prefix).await
    }

    /// Returns the sets that an alias points to.
    async fn named_by(&self, alias: &str) -> Result<Vec<String>, TargetError> {
        let path = format!("_alias/{alias}");
        match self.http.send(Method::GET, &path, None).await {
            Ok(Value::Object(found)) => Ok(found.into_iter().map(|(name, _)| name).collect()),
            Ok(_) => Err(TargetError::Down("the response names no indexes".to_owned())),
            Err(Refused::NotFound) => Ok(Vec::new()),
            Err(refused) => Err(refused.into()),
        }
    }

    async fn current(&self) -> Result<String, TargetError> {
        let mut searched = self.searched().await?;
        if searched.is_empty() {
            // A process that starts at the same time makes the same one.
            let first = format!("{}-1", self.settings.prefix);
            self.make(&first).await?;
            self.point(&first).await?;
            return Ok(first);
        }
        match (searched.pop(), searched.is_empty()) {
            (Some(name), true) => Ok(name),
            _ => Err(TargetError::Down(format!(
                "the alias {} names several indexes; remove all but one",
                self.settings.prefix
            ))),
        }
    }

    /// Creates an empty set. An existing one stays as it is.
    async fn make(&self, name: &str) -> Result<(), TargetError> {
        self.must_be_ours(name)?;
        let body = mapping::body(&self.settings, &write_alias(name));
        match self.http.send(Method::PUT, name, Some(&body)).await {
            Err(Refused::Bad(why)) if why.contains("resource_already_exists") => Ok(()),
            other => other.map(drop).map_err(TargetError::from),
        }
    }

    /// Creates a set again that was lost. If searches have no set, they use this one.
    async fn make_again(&self, name: &str) -> Result<(), TargetError> {
        // A process may still use a set that was removed. It must not create it again: nothing would
        // remove it a second time.
        if !self.named_by(&removed_alias(name)).await?.is_empty() {
            return Err(TargetError::Down(format!("the set {name} was removed")));
        }
        tracing::error!(
            index = name,
            "the index is missing; the service creates an empty one, and the mirror fills it"
        );
        self.make(name).await?;
        if self.searched().await?.is_empty() {
            self.point(name).await?;
        }
        Ok(())
    }

    async fn delete(&self, name: &str) -> Result<(), TargetError> {
        match self.http.send(Method::DELETE, name, None).await {
            Ok(_) | Err(Refused::NotFound) => Ok(()),
            Err(refused) => Err(refused.into()),
        }
    }

    /// Moves the alias atomically.
    async fn point(&self, to: &str) -> Result<(), TargetError> {
        let alias = &self.settings.prefix;
        let others = self.searched().await?;
        let others = others.iter().filter(|name| *name != to);
        let mut actions: Vec<Value> =
            others.map(|name| json!({ "remove": { "index": name, "alias": alias } })).collect();
        actions.push(json!({ "add": { "index": to, "alias": alias } }));
        let body = json!({ "actions": actions });
        Ok(self.http.send(Method::POST, "_aliases", Some(&body)).await.map(drop)?)
    }
}

impl Targets for OpenSearch {
    fn current(&self) -> BoxFuture<'_, Result<String, TargetError>> {
        Box::pin(self.0.current())
    }

    fn open<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Arc<dyn Target>, TargetError>> {
        Box::pin(async move { Ok(Arc::new(self.set(name)?) as Arc<dyn Target>) })
    }

    fn create(&self) -> BoxFuture<'_, Result<String, TargetError>> {
        Box::pin(async move {
            let number = Timestamp::now().as_microsecond();
            let name = format!("{}-{number}", self.0.settings.prefix);
            self.0.make(&name).await?;
            Ok(name)
        })
    }

    fn swap<'a>(&'a self, to: &'a str) -> BoxFuture<'a, Result<(), TargetError>> {
        Box::pin(async move {
            self.0.must_be_ours(to)?;
            self.0.point(to).await
        })
    }

    fn remove<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), TargetError>> {
        Box::pin(async move {
            if self.0.must_be_ours(name).is_err() {
                return Ok(());
            }
            let searched = self.0.searched().await?;
            if searched.iter().any(|searched| searched == name) {
                return Err(TargetError::Down(format!(
                    "searches use the set {name}; swap to another one before you remove it"
                )));
            }
            let Some(searched) = searched.first() else { return self.0.delete(name).await };
            // Atomically with the removal, for the writers of every process: see `make_again`.
            let mark = json!({ "add": { "index": searched, "alias": removed_alias(name) } });
            let body = json!({ "actions": [{ "remove_index": { "index": name } }, mark] });
            match self.0.http.send(Method::POST, "_aliases", Some(&body)).await {
                Ok(_) | Err(Refused::NotFound) => Ok(()),
                Err(refused) => Err(refused.into()),
            }
        })
    }
}

impl SearchIndex for OpenSearch {
    fn search<'a>(&'a self, query: &'a Query) -> BoxFuture<'a, Result<Hits, TargetError>> {
        Box::pin(self.find(query))
    }
}

/// Returns the alias for writes. Only this service writes to it, and OpenSearch creates no index for it.
fn write_alias(name: &str) -> String {
    format!("{name}-write")
}

/// Returns the alias that the current set gets when this set is removed.
fn removed_alias(name: &str) -> String {
    format!("{name}-removed")
}

fn is_plain(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_".contains(&b))
}
