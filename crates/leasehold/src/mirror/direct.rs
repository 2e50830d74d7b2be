//! The direct path: right after a commit, for those who want to find what they have just saved.
//!
//! # What is true
//! - It is told after the commit, and reads the rows themselves: what was rolled back is never written.
//! - It waits for nobody. When its room is full, or the store is left alone, keys are dropped and
//!   counted; their jobs write them.

use std::sync::atomic::Ordering;
use std::time::Instant;

use tokio::sync::mpsc;

use super::compare::Want;
use super::declare::Mirror;
use super::desk::Desk;
use super::pace::Leave;
use super::prepare::MirrorError;
use super::sync::answered;
use super::target::Write;
use crate::engine::Leasehold;

/// Tells a mirror that rows have changed. Cheap to clone; the last one to go ends the task.
#[derive(Clone)]
pub struct DirectWriter {
    mirror: Mirror,
    keys: Option<mpsc::Sender<String>>,
}

impl Mirror {
    /// Starts the direct path of this process. Mirrors that are clones of each other share what they
    /// know about the store, so give the worker the same one.
    pub fn direct_writer(&self, engine: &Leasehold) -> DirectWriter {
        if self.direct == 0 {
            return DirectWriter { mirror: self.clone(), keys: None };
        }
        let (sender, receiver) = mpsc::channel(self.direct);
        let desk = Desk::new(engine, self.clone());
        tokio::spawn(run(desk, receiver));
        DirectWriter { mirror: self.clone(), keys: Some(sender) }
    }
}

impl DirectWriter {
    /// These rows were changed, and their change is committed. Never waits.
    pub fn changed<K: Into<String>>(&self, keys: impl IntoIterator<Item = K>) {
        for key in keys {
            let sent = self.keys.as_ref().map(|room| room.try_send(key.into()));
            if !matches!(sent, Some(Ok(()))) {
                self.mirror.shared.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Keys that were left to the jobs.
    pub fn dropped(&self) -> u64 {
        self.mirror.shared.dropped.load(Ordering::Relaxed)
    }

    /// Keys that were written.
    pub fn written(&self) -> u64 {
        self.mirror.shared.direct.load(Ordering::Relaxed)
    }

    /// True while the store is left alone, so that what is said now is dropped.
    pub fn is_closed(&self) -> bool {
        self.mirror.shared.pace().is_closed(Instant::now())
    }
}

/// The most keys that are taken at a time.
const MOST: usize = 1000;

async fn run(desk: Desk, mut keys: mpsc::Receiver<String>) {
    let mut taken = Vec::new();
    while keys.recv_many(&mut taken, MOST).await > 0 {
        let begun = Instant::now();
        desk.mirror.shared.seen_live();
        let mut rest = &taken[..];
        while !rest.is_empty() {
            // With keys in hand: who asks while the store is away is the one who finds out.
            let asked = Instant::now();
            let Leave::Ask(most) = desk.leave() else { break };
            let (chunk, others) = rest.split_at(most.min(rest.len()));
            match write(&desk, chunk).await {
                Ok(asked) => {
                    // Where nothing was to be written, nothing was found out about the store.
                    if asked {
                        desk.succeeded().await;
                    } else {
                        desk.pace().unasked();
                    }
                    let count = chunk.len() as u64;
                    desk.mirror.shared.direct.fetch_add(count, Ordering::Relaxed);
                    rest = others;
                }
                Err(MirrorError::Target(error)) => {
                    desk.failed(&error, asked);
                    break;
                }
                Err(error) => {
                    desk.pace().unasked();
                    tracing::debug!(mirror = desk.name(), %error, "rows are left to their jobs");
                    break;
                }
            }
        }
        desk.mirror.shared.dropped.fetch_add(rest.len() as u64, Ordering::Relaxed);
        taken.clear();
        tokio::time::sleep_until((begun + desk.mirror.direct_every).into()).await;
    }
}

/// Writes what the table has now, without asking what the store holds: it keeps what is newer. False:
/// there was nothing to write.
async fn write(desk: &Desk, keys: &[String]) -> Result<bool, MirrorError> {
    let kind = desk.prepared().await?.kind;
    let mut keys: Vec<String> = keys.iter().filter_map(|key| kind.normal(key)).collect();
    keys.sort_unstable();
    keys.dedup();
    let sets = desk.sets_at_hand().await?;
    let mut documents = desk.documents(&keys).await?;
    let gone: Vec<String> =
        keys.iter().filter(|key| !documents.contains_key(*key)).cloned().collect();
    let rows = if gone.is_empty() { Vec::new() } else { desk.rows(&gone).await? };
    let mut writes = Vec::with_capacity(keys.len());
    for (key, row) in gone.into_iter().zip(rows) {
        // One that has a document by now was changed once more: it is told again.
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
    let answers = desk.call(sets.serving.write(&writes)).await?;
    answered(answers.len(), writes.len())?;
    if let Some(second) = &sets.second {
        let writing = async { Ok(desk.call(second.write(&writes)).await?) };
        // What it did not take the jobs bring: only they wait for it.
        let _ = desk.of_second(writing).await;
    }
    Ok(true)
}
