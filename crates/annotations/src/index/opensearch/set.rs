//! One set of documents: an index of OpenSearch.
//!
//! # Invariants
//! - Writes go through an alias that only this service creates, and only to an alias: otherwise
//!   OpenSearch would react to a write to a missing index by creating one, with guessed fields.
//! - `held` reads by id, which sees a write at once; only searches wait for a refresh.
//!
//! # What can go wrong
//! - The index was deleted outside this service: it is created again, empty, and the mirror's check
//!   fills it. A set that the service removed is not created again, not even by a writer that still used
//!   it.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use leasehold::mirror::{
    Digest, ItemError, Range, StoredVersion, Target, TargetError, Tombstone, Write, Written,
};
use reqwest::Method;
use serde_json::{Value, json};

use super::Inner;
use super::bulk::{self, Answered, Item};
use super::find;
use super::http::Refused;
use crate::index::document::{Checked, KEY_BYTES};

/// Bytes of one bulk request.
const BULK_BYTES: usize = 5 << 20;
/// Keys of one lookup.
const KEYS: usize = 2_000;
/// Keys of one page of a list. OpenSearch returns 10,000 at most.
const PAGE: usize = 5_000;

#[derive(Clone)]
pub struct OpenSearchSet {
    pub(super) server: Arc<Inner>,
    pub(super) name: String,
}

impl OpenSearchSet {
    async fn ask(&self, path: &str, body: &Value) -> Result<Value, TargetError> {
        let path = format!("{}/{path}", self.name);
        let again = match self.server.http.send(Method::POST, &path, Some(body)).await {
            Err(Refused::NotFound) => {
                self.server.make_again(&self.name).await?;
                self.server.http.send(Method::POST, &path, Some(body)).await
            }
            other => other,
        };
        Ok(again?)
    }

    /// Sends changes and returns the result of each, with its position.
    async fn bulk(
        &self,
        items: Vec<Item>,
    ) -> Result<Vec<(usize, Result<Written, ItemError>)>, TargetError> {
        let mut answers = Vec::with_capacity(items.len());
        for chunk in bulk::chunks(items, BULK_BYTES) {
            let body: String = chunk.iter().map(|item| item.lines.as_str()).collect();
            let found = match self.send(body.clone(), chunk.len()).await? {
                Answered::NoSet => {
                    self.server.make_again(&self.name).await?;
                    self.send(body, chunk.len()).await?
                }
                found => found,
            };
            let Answered::Items(items) = found else {
                return Err(TargetError::Down(format!("the index {} is missing", self.name)));
            };
            answers.extend(chunk.iter().map(|item| item.at).zip(items));
        }
        Ok(answers)
    }

    async fn send(&self, body: String, items: usize) -> Result<Answered, TargetError> {
        let path = format!("{}/_bulk?require_alias=true", super::write_alias(&self.name));
        let sent =
            self.server.http.send_text(Method::POST, &path, "application/x-ndjson", Some(body));
        match sent.await {
            Ok(answer) => bulk::answers(&answer, items),
            Err(Refused::NotFound) => Ok(Answered::NoSet),
            // A single document cannot be split.
            Err(Refused::TooLarge(why)) if items == 1 => {
                Ok(Answered::Items(vec![Err(ItemError::Refused(why))]))
            }
            Err(refused) => Err(refused.into()),
        }
    }

    async fn held_of(&self, keys: &[String]) -> Result<Vec<Option<StoredVersion>>, TargetError> {
        let mut held = Vec::with_capacity(keys.len());
        for keys in keys.chunks(KEYS) {
            // OpenSearch refuses the whole request for one impossible id.
            let ids: Vec<&String> = keys.iter().filter(|key| can_be(key)).collect();
            let mut docs = Vec::new();
            if !ids.is_empty() {
                docs = self.documents(&ids).await?;
            }
            let mut docs = docs.iter();
            for key in keys {
                let doc = if can_be(key) { docs.next() } else { None };
                held.push(doc.map(held_in).transpose()?.flatten());
            }
        }
        Ok(held)
    }

    async fn documents(&self, ids: &[&String]) -> Result<Vec<Value>, TargetError> {
        let body = json!({ "ids": ids });
        let path = "_mget?_source_includes=lh_deleted";
        let mut answer = self.ask(path, &body).await?;
        if is_missing(&answer) {
            self.server.make_again(&self.name).await?;
            answer = self.ask(path, &body).await?;
        }
        match answer.get_mut("docs").map(Value::take) {
            Some(Value::Array(docs)) if docs.len() == ids.len() => Ok(docs),
            Some(Value::Array(docs)) => Err(TargetError::Down(format!(
                "the response has {} documents for {} keys",
                docs.len(),
                ids.len()
            ))),
            _ => Err(TargetError::Down("the response has no documents".to_owned())),
        }
    }

    async fn refresh(&self) -> Result<(), TargetError> {
        self.ask("_refresh", &json!({})).await.map(drop)
    }

    async fn add_up(&self, range: &Range) -> Result<Digest, TargetError> {
        self.refresh().await?;
        let answer = self.ask("_search", &find::digest(range)).await?;
        whole(&answer)?;
        let number = |path: &str| {
            let number = answer.pointer(path).and_then(Value::as_f64);
            // Below 2⁵³, where every whole number is exact.
            number.filter(|number| (0.0..9e15).contains(number)).map(|number| number as u64)
        };
        let digest = || {
            Some(Digest {
                count: number("/hits/total/value")?,
                a: number("/aggregations/a/value")?,
                b: number("/aggregations/b/value")?,
            })
        };
        digest().ok_or_else(|| TargetError::Down("the answer has no sums".to_owned()))
    }

    async fn listed(
        &self,
        range: &Range,
        most: usize,
    ) -> Result<Vec<(String, StoredVersion)>, TargetError> {
        self.refresh().await?;
        let mut listed: Vec<(String, StoredVersion)> = Vec::new();
        while listed.len() < most {
            let size = (most - listed.len()).min(PAGE);
            let last = listed.last().map(|(key, _)| key.as_str());
            let answer = self.ask("_search", &find::page(range, size, last)).await?;
            whole(&answer)?;
            let hits = answer.pointer("/hits/hits").and_then(Value::as_array);
            let hits = hits.map(Vec::as_slice).unwrap_or_default();
            for hit in hits {
                listed.push(listed_in(hit).ok_or_else(|| {
                    TargetError::Down("a hit has no key or no version".to_owned())
                })?);
            }
            if hits.len() < size {
                break;
            }
        }
        Ok(listed)
    }

    async fn remove(&self, deletions: &[Tombstone]) -> Result<(), TargetError> {
        let keys: Vec<String> = deletions.iter().map(|gone| gone.key.clone()).collect();
        let held = self.held_of(&keys).await?;
        // Removes only tombstones: a document that is live again in the same version must stay.
        let gone = deletions.iter().zip(held).filter(|(gone, held)| {
            held.is_some_and(|held| held.deleted && held.version <= gone.version)
        });
        let items: Vec<Item> =
            gone.enumerate().map(|(at, (gone, _))| bulk::remove(at, gone)).collect();
        for (_, answer) in self.bulk(items).await? {
            if let Err(error) = answer {
                return Err(TargetError::Overloaded(error.to_string()));
            }
        }
        Ok(())
    }
}

impl Target for OpenSearchSet {
    fn held<'a>(
        &'a self,
        keys: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<Option<StoredVersion>>, TargetError>> {
        Box::pin(self.held_of(keys))
    }

    fn write<'a>(
        &'a self,
        writes: &'a [Write],
    ) -> BoxFuture<'a, Result<Vec<Result<Written, ItemError>>, TargetError>> {
        Box::pin(async move {
            let now = Timestamp::now().as_microsecond();
            let mut items = Vec::with_capacity(writes.len());
            let mut answers = Vec::with_capacity(writes.len());
            for (at, write) in writes.iter().enumerate() {
                match Checked::new(write) {
                    Ok(checked) => {
                        items.push(bulk::put(at, &checked, now));
                        answers.push(Err(ItemError::Busy("not sent".to_owned())));
                    }
                    Err(refused) => answers.push(Err(refused)),
                }
            }
            for (at, answer) in self.bulk(items).await? {
                if let Some(place) = answers.get_mut(at) {
                    *place = answer;
                }
            }
            Ok(answers)
        })
    }

    fn digest<'a>(&'a self, range: &'a Range) -> BoxFuture<'a, Result<Digest, TargetError>> {
        Box::pin(self.add_up(range))
    }

    fn list<'a>(
        &'a self,
        range: &'a Range,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<(String, StoredVersion)>, TargetError>> {
        Box::pin(self.listed(range, most))
    }

    fn forget<'a>(&'a self, deletions: &'a [Tombstone]) -> BoxFuture<'a, Result<(), TargetError>> {
        Box::pin(self.remove(deletions))
    }
}

fn can_be(key: &str) -> bool {
    !key.is_empty() && key.len() <= KEY_BYTES
}

/// Reads one document of a lookup by id.
fn held_in(doc: &Value) -> Result<Option<StoredVersion>, TargetError> {
    if let Some(error) = doc.get("error") {
        return Err(TargetError::Down(bulk::reason(Some(error))));
    }
    if doc.get("found").and_then(Value::as_bool) != Some(true) {
        return Ok(None);
    }
    let version = doc.get("_version").and_then(Value::as_i64);
    let version =
        version.ok_or_else(|| TargetError::Down("a document has no version".to_owned()))?;
    let deleted = doc.pointer("/_source/lh_deleted").and_then(Value::as_bool).unwrap_or(false);
    Ok(Some(StoredVersion { version, deleted }))
}

/// Reads one hit of a list. Values of columns are arrays.
fn listed_in(hit: &Value) -> Option<(String, StoredVersion)> {
    let key = hit.pointer("/sort/0")?.as_str()?.to_owned();
    let version = hit.pointer("/fields/lh_version/0")?.as_i64()?;
    let deleted = hit.pointer("/fields/lh_deleted/0")?.as_bool()?;
    Some((key, StoredVersion { version, deleted }))
}

fn is_missing(answer: &Value) -> bool {
    let kind = answer.pointer("/docs/0/error/type").and_then(Value::as_str);
    kind == Some("index_not_found_exception")
}

/// Refuses a partial result: a shard failed, or the search timed out. A check that trusted it would
/// repair documents that are there.
pub(super) fn whole(answer: &Value) -> Result<(), TargetError> {
    let failed = answer.pointer("/_shards/failed").and_then(Value::as_u64).unwrap_or(0);
    let timed_out = answer.get("timed_out").and_then(Value::as_bool).unwrap_or(false);
    if failed == 0 && !timed_out {
        return Ok(());
    }
    Err(TargetError::Down(format!("the result is partial: {failed} shards failed")))
}
