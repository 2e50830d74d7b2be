//! What a check reads: digests and lists.

use std::collections::BTreeMap;

use leasehold::mirror::{Digest, Range, StoredVersion, Write, Written};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::fixture::{Fixture, digest_of, each, forced, gone, note, put, write};
use crate::index_kind::IndexKind;

fn range(after: Option<&str>, to: Option<&str>) -> Range {
    Range { after: after.map(str::to_owned), to: to.map(str::to_owned) }
}

#[tokio::test]
async fn empty_index_has_an_empty_digest() {
    each(async |fixture| {
        for range in [range(None, None), range(Some("a"), None), range(None, Some("a"))] {
            assert_eq!(fixture.set.digest(&range).await.unwrap(), Digest::default());
            assert!(fixture.set.list(&range, 5).await.unwrap().is_empty());
        }
    })
    .await;
}

#[tokio::test]
async fn f8_f9_list_is_in_byte_order_and_ranges_are_adjacent() {
    each(async |fixture| {
        // Sorted by bytes, as in Postgres, and not by a language.
        let keys = ["", "A", "Z", "a", "aB", "a b", "b", "z", "ä", "é", "風", "🦀", "0", "00", "~"];
        let keys: Vec<&str> = keys.into_iter().filter(|key| !key.is_empty()).collect();
        let writes: Vec<Write> = keys.iter().map(|key| put(key, 1, note("", 1))).collect();
        fixture.set.write(&writes).await.unwrap();
        let mut sorted = keys.clone();
        sorted.sort_unstable();
        let listed = fixture.set.list(&Range::default(), 100).await.unwrap();
        assert_eq!(listed.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), sorted);
        // Adjacent ranges have every key once, whichever key separates them.
        for middle in &keys {
            let below = fixture.set.digest(&range(None, Some(middle))).await.unwrap();
            let above = fixture.set.digest(&range(Some(middle), None)).await.unwrap();
            assert_eq!(below.count + above.count, keys.len() as u64, "at {middle}");
            assert_eq!(below.count, sorted.iter().filter(|key| *key <= middle).count() as u64);
        }
        // Between keys, before the first and after the last.
        for (range, count) in [
            (range(Some("Y"), Some("aA")), 3),
            (range(None, Some("!")), 0),
            (range(Some("\u{10ffff}"), None), 0),
            (range(Some("z"), Some("a")), 0),
        ] {
            assert_eq!(fixture.set.digest(&range).await.unwrap().count, count, "{range:?}");
            assert_eq!(fixture.set.list(&range, 9).await.unwrap().len() as u64, count, "{range:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn list_stops_at_its_size_and_continues_after_its_last_key() {
    each(async |fixture| {
        let writes: Vec<Write> =
            (0..25).map(|n| put(&format!("k{n:02}"), n + 1, note("", n))).collect();
        for writes in writes.chunks(7) {
            fixture.set.write(writes).await.unwrap();
        }
        write(&fixture.set, gone("k03", 99)).await.unwrap();
        let mut after = None;
        let mut seen = Vec::new();
        loop {
            let page = fixture.set.list(&Range { after, to: None }, 10).await.unwrap();
            if page.is_empty() {
                break;
            }
            after = page.last().map(|(key, _)| key.clone());
            seen.extend(page);
        }
        assert_eq!(seen.len(), 25);
        assert!(seen.is_sorted_by(|left, right| left.0 < right.0));
        assert_eq!(seen[3], ("k03".to_owned(), StoredVersion { version: 99, deleted: true }));
        assert_eq!(seen[4], ("k04".to_owned(), StoredVersion { version: 5, deleted: false }));
        assert!(fixture.set.list(&Range::default(), 0).await.unwrap().is_empty());
    })
    .await;
}

#[tokio::test]
async fn list_longer_than_a_page_is_complete() {
    each(async |fixture| {
        let writes: Vec<Write> =
            (0..6_001).map(|n| put(&format!("{n:05}"), 1, note("", 1))).collect();
        let answers = fixture.set.write(&writes).await.unwrap();
        assert!(answers.iter().all(|answer| *answer == Ok(Written::Stored)));
        let listed = fixture.set.list(&Range::default(), 10_000).await.unwrap();
        assert_eq!(listed.len(), 6_001);
        let keys: Vec<String> = (0..6_001).map(|n| format!("{n:05}")).collect();
        assert_eq!(fixture.set.held(&keys).await.unwrap().iter().flatten().count(), 6_001);
    })
    .await;
}

#[tokio::test]
async fn f2_deletion_is_listed_and_not_in_the_digest() {
    each(async |fixture| {
        fixture.set.write(&[put("a", 1, note("", 1)), put("b", 1, note("", 1))]).await.unwrap();
        write(&fixture.set, gone("a", 2)).await.unwrap();
        let digest = fixture.set.digest(&Range::default()).await.unwrap();
        assert_eq!(digest, digest_of([("b", 1)]));
        assert_eq!(fixture.set.list(&Range::default(), 9).await.unwrap().len(), 2);
    })
    .await;
}

/// One change, and whether the batch ends after it.
#[derive(Clone, Debug)]
struct Step {
    write: Write,
    last: bool,
}

fn step() -> impl Strategy<Value = Step> {
    let key = "[a-c]{1,2}|[äz🦀]";
    (key, 1..6_i64, 0..10_u8, any::<bool>()).prop_map(|(key, version, dice, last)| {
        let write = match dice {
            0..=2 => gone(&key, version),
            3 => forced(put(&key, version, note("forced", version))),
            _ => put(&key, version, note("text", version)),
        };
        Step { write, last }
    })
}

/// Returns what the index must have after these steps, by the rules alone.
fn expected(steps: &[Step]) -> BTreeMap<String, StoredVersion> {
    let mut held: BTreeMap<String, StoredVersion> = BTreeMap::new();
    for Step { write, .. } in steps {
        let stays = held.get(&write.key).is_some_and(|held| {
            held.version > write.version || (held.version == write.version && !write.forced)
        });
        if !stays {
            let deleted = write.document.is_none();
            held.insert(write.key.clone(), StoredVersion { version: write.version, deleted });
        }
    }
    held
}

async fn as_written(fixture: &Fixture, steps: &[Step], after: Option<String>, to: Option<String>) {
    let name = fixture.targets.create().await.unwrap();
    let set = fixture.targets.open(&name).await.unwrap();
    for batch in steps.split_inclusive(|step| step.last) {
        let writes: Vec<Write> = batch.iter().map(|step| step.write.clone()).collect();
        set.write(&writes).await.unwrap();
    }
    let expected = expected(steps);
    for range in [Range::default(), Range { after, to }] {
        let within = || expected.iter().filter(|(key, _)| range.contains(key));
        let alive = within().filter(|(_, held)| !held.deleted);
        let sum = digest_of(alive.map(|(key, held)| (key.as_str(), held.version)));
        assert_eq!(set.digest(&range).await.unwrap(), sum, "{range:?}");
        let list: Vec<_> = within().map(|(key, held)| (key.clone(), *held)).collect();
        assert_eq!(set.list(&range, 1000).await.unwrap(), list, "{range:?}");
    }
    fixture.targets.remove(&name).await.unwrap();
}

fn digest_equals_what_was_written(kind: IndexKind, cases: u32) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let fixture = runtime.block_on(Fixture::new(kind));
    let bound = || proptest::option::of("[a-dä]{0,2}");
    let mut runner =
        TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    runner
        .run(&(vec(step(), 1..60), bound(), bound()), |(steps, after, to)| {
            runtime.block_on(as_written(&fixture, &steps, after, to));
            Ok(())
        })
        .unwrap();
}

#[test]
fn f1_f5_digest_equals_the_writes_in_tantivy() {
    digest_equals_what_was_written(IndexKind::Tantivy, 12);
}

#[test]
fn f1_f5_digest_equals_the_writes_in_opensearch() {
    digest_equals_what_was_written(IndexKind::OpenSearch, 10);
}
