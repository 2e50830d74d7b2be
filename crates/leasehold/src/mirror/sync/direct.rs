//! The direct path: writes changes right after their commit, so that users find what they have just
//! saved.
//!
//! # Invariants
//! - The program calls it after the commit, and it reads the rows themselves: a change that was rolled
//!   back is never written.
//! - It never blocks the caller. When its buffer is full, or the store is down, it drops keys and
//!   counts them; their jobs write them.

use std::sync::atomic::Ordering;
use std::time::Instant;

use tokio::sync::mpsc;

use super::compare::Want;
use super::store_calls::answered;
use crate::Leasehold;
use crate::mirror::runtime::MirrorRuntime;
use crate::mirror::sets::Write;
use crate::mirror::{Mirror, MirrorError};

/// Notifies a mirror of changed rows. Cheap to clone; dropping the last clone ends the task.
#[derive(Clone)]
pub struct DirectWriter {
    mirror: Mirror,
    keys: Option<mpsc::Sender<String>>,
}

impl DirectWriter {
    pub(crate) fn start(mirror: &Mirror, engine: &Leasehold) -> Self {
        let mirror = mirror.clone();
        if mirror.direct == 0 {
            return Self { mirror, keys: None };
        }
        let (sender, receiver) = mpsc::channel(mirror.direct);
        tokio::spawn(run(MirrorRuntime::new(engine, mirror.clone()), receiver));
        Self { mirror, keys: Some(sender) }
    }

    /// Reports rows whose change is committed. Never waits.
    pub fn changed<K: Into<String>>(&self, keys: impl IntoIterator<Item = K>) {
        for key in keys {
            let sent = self.keys.as_ref().map(|room| room.try_send(key.into()));
            if !matches!(sent, Some(Ok(()))) {
                self.mirror.shared.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Returns how many keys were left to the jobs.
    pub fn dropped(&self) -> u64 {
        self.mirror.shared.dropped.load(Ordering::Relaxed)
    }

    /// Returns how many keys were written.
    pub fn written(&self) -> u64 {
        self.mirror.shared.direct.load(Ordering::Relaxed)
    }

    /// Returns true while the store is considered down, so that reported keys are dropped.
    pub fn is_closed(&self) -> bool {
        self.mirror.shared.throttle.is_closed(Instant::now())
    }
}

/// The most keys of one round.
const MOST: usize = 1000;

async fn run(runtime: MirrorRuntime, mut keys: mpsc::Receiver<String>) {
    let mut taken = Vec::new();
    while keys.recv_many(&mut taken, MOST).await > 0 {
        let begun = Instant::now();
        runtime.mirror.shared.seen_live();
        let mut rest = &taken[..];
        while !rest.is_empty() {
            // Ask for a permit only when there are keys to write: the permit may make this call the
            // probe.
            let Ok(permit) = runtime.calls.ask() else { break };
            let (chunk, others) = rest.split_at(permit.rows().min(rest.len()));
            match write(&runtime, chunk).await {
                Ok(wrote) => {
                    // Without a write, nothing was learned about the store.
                    if wrote {
                        runtime.calls.succeeded(permit).await;
                    }
                    let count = chunk.len() as u64;
                    runtime.mirror.shared.direct.fetch_add(count, Ordering::Relaxed);
                    rest = others;
                }
                Err(MirrorError::Target(error)) => {
                    runtime.calls.failed(permit, &error);
                    break;
                }
                Err(error) => {
                    tracing::debug!(mirror = runtime.name(), %error, "rows are left to their jobs");
                    break;
                }
            }
        }
        runtime.mirror.shared.dropped.fetch_add(rest.len() as u64, Ordering::Relaxed);
        taken.clear();
        tokio::time::sleep_until((begun + runtime.mirror.direct_every).into()).await;
    }
}

/// Writes what the table has now, without reading the store first: the store keeps what is newer.
/// Returns false if there was nothing to write.
async fn write(runtime: &MirrorRuntime, keys: &[String]) -> Result<bool, MirrorError> {
    let kind = runtime.source.prepared().await?.kind;
    let mut keys: Vec<String> = keys.iter().filter_map(|key| kind.normal(key)).collect();
    keys.sort_unstable();
    keys.dedup();
    let sets = runtime.sets.at_hand().await?;
    let mut documents = runtime.source.documents(&keys).await?;
    let gone: Vec<String> =
        keys.iter().filter(|key| !documents.contains_key(*key)).cloned().collect();
    let rows = if gone.is_empty() { Vec::new() } else { runtime.source.rows(&gone).await? };
    let mut writes = Vec::with_capacity(keys.len());
    for (key, row) in gone.into_iter().zip(rows) {
        // A key that has a document by now was changed once more: that change is reported by itself.
        if let Want::Gone(Some(version)) = row.want {
            writes.push(Write { key, version, document: None, forced: false });
        }
    }
    for key in keys {
        if let Some(Ok((version, document))) = documents.remove(&key) {
            writes.push(Write { key, version, document: Some(document), forced: false });
        }
    }
    if writes.is_empty() {
        return Ok(false);
    }
    let answers = runtime.calls.call(sets.serving.write(&writes)).await?;
    answered(answers.len(), writes.len())?;
    if let Some(second) = &sets.second {
        let writing = async { Ok(runtime.calls.call(second.write(&writes)).await?) };
        // The jobs write what the second set did not accept: only they wait for it.
        let _ = runtime.sets.of_second(writing).await;
    }
    Ok(true)
}
