//! Decides which sets of the store are written: the one that is searched, and during and after a
//! rebuild a second one.
//!
//! # Invariants
//! - A write to the set that is searched never waits for the second set first.
//! - A second set that does not respond keeps jobs from completing, and gets few calls meanwhile.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Mutex;
use tokio_postgres::types::Type;

use super::failed_target::FailedTarget;
use super::target::{Target, TargetError, Targets};
use crate::error::one_line;
use crate::mirror::MirrorError;
use crate::mirror::declare::Store;
use crate::mirror::sync::{Source, StoreCalls};

/// The sets of documents that are written now.
#[derive(Clone)]
pub(crate) struct Sets {
    pub(crate) serving: Arc<dyn Target>,
    pub(crate) second: Option<Arc<dyn Target>>,
    pub(crate) state: Option<State>,
}

/// What the database records about the sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) serving: String,
    pub(crate) second: Option<String>,
    pub(crate) phase: Phase,
    pub(crate) rebuild_after: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    None,
    Building,
    Verifying,
    Swapped,
}

type Opened = HashMap<String, Arc<dyn Target>>;

/// The sets of the store.
pub(crate) struct SetStore {
    source: Arc<Source>,
    calls: Arc<StoreCalls>,
    opened: Mutex<Opened>,
}

impl SetStore {
    pub(crate) fn new(source: &Arc<Source>, calls: &Arc<StoreCalls>) -> Self {
        Self { source: Arc::clone(source), calls: Arc::clone(calls), opened: Mutex::default() }
    }

    /// Returns the sets to write. Called with every batch, because a rebuild may begin between two of
    /// them.
    pub(crate) async fn written(&self) -> Result<Sets, MirrorError> {
        self.sets(true).await
    }

    /// The same for callers that must not wait for the second set: it is included if it is open and
    /// answers.
    pub(crate) async fn at_hand(&self) -> Result<Sets, MirrorError> {
        let mut sets = self.sets(false).await?;
        let second = &self.source.mirror().shared.second;
        sets.second.take_if(|_| second.is_closed(Instant::now()));
        Ok(sets)
    }

    async fn sets(&self, open_second: bool) -> Result<Sets, MirrorError> {
        let mirror = self.source.mirror();
        let targets = match mirror.store()? {
            Store::One(target) => {
                return Ok(Sets { serving: Arc::clone(target), second: None, state: None });
            }
            Store::Many(targets) => targets,
        };
        let state = match self.state().await? {
            Some(state) => state,
            None => {
                let current = self.calls.call(targets.current()).await?;
                let sql = "select leasehold_internal.mirror_serves($1, $2)";
                let params = [(&mirror.name as _, Type::TEXT), (&current as _, Type::TEXT)];
                self.source.query(sql, &params).await?;
                let missing = || MirrorError::State(format!("mirror {:?} is gone", mirror.name));
                self.state().await?.ok_or_else(missing)?
            }
        };
        let state = self.confirm(&**targets, state).await?;
        let mut opened = self.opened.lock().await;
        let names: Vec<&String> =
            [Some(&state.serving), state.second.as_ref()].into_iter().flatten().collect();
        opened.retain(|name, _| names.contains(&name));
        let serving = self.open(&mut opened, &**targets, &state.serving).await?;
        let second = match &state.second {
            Some(name) if open_second || opened.contains_key(name) => {
                Some(self.open_second(&mut opened, &**targets, name).await)
            }
            _ => None,
        };
        Ok(Sets { serving, second, state: Some(state) })
    }

    /// Opens the second set. A failure must not keep the set that is searched from being written.
    async fn open_second(
        &self,
        opened: &mut Opened,
        targets: &dyn Targets,
        name: &String,
    ) -> Arc<dyn Target> {
        if let Some(target) = opened.get(name) {
            return Arc::clone(target);
        }
        let opening = async { Ok(self.open(opened, targets, name).await?) };
        // A set that opens may still not answer, so this is no success for the throttle.
        self.ask_second(opening, false).await.unwrap_or_else(|error| match error {
            MirrorError::Target(error) => Arc::new(FailedTarget(error)),
            error => Arc::new(FailedTarget(TargetError::Down(error.to_string()))),
        })
    }

    /// Makes a call to the second set. While that set does not respond, one caller at a time probes it,
    /// with growing waits; the others fail at once.
    pub(crate) async fn of_second<T>(
        &self,
        asking: impl Future<Output = Result<T, MirrorError>>,
    ) -> Result<T, MirrorError> {
        self.ask_second(asking, true).await
    }

    async fn ask_second<T>(
        &self,
        asking: impl Future<Output = Result<T, MirrorError>>,
        is_proof: bool,
    ) -> Result<T, MirrorError> {
        let mirror = self.source.mirror();
        let Ok(permit) = mirror.shared.second.ask(mirror.claim_size, Instant::now()) else {
            return Err(TargetError::Down("the second set gets no calls now".to_owned()).into());
        };
        let answer = asking.await;
        match &answer {
            Ok(_) if is_proof => {
                permit.succeeded(mirror.claim_size);
            }
            Err(MirrorError::Target(error)) => {
                let closed = permit.failed(false, Instant::now());
                let (error, wait) = (one_line(&error.to_string()), closed.wait);
                tracing::warn!(
                    mirror = mirror.name,
                    error,
                    ?wait,
                    "a call to the second set failed; the next one follows after the wait"
                );
            }
            _ => {}
        }
        answer
    }

    async fn open(
        &self,
        opened: &mut Opened,
        targets: &dyn Targets,
        name: &String,
    ) -> Result<Arc<dyn Target>, TargetError> {
        if let Some(target) = opened.get(name) {
            return Ok(Arc::clone(target));
        }
        let target = self.calls.call(targets.open(name)).await?;
        opened.insert(name.clone(), Arc::clone(&target));
        Ok(target)
    }

    /// Asks the store which set it searches, at first and after every failure: a store that was lost
    /// and created anew has another one, and no search would find what is written under the old name.
    async fn confirm(&self, targets: &dyn Targets, state: State) -> Result<State, MirrorError> {
        if self.calls.is_confirmed() {
            return Ok(state);
        }
        self.opened.lock().await.clear();
        let current = self.calls.call(targets.current()).await?;
        self.calls.confirm();
        if current == state.serving {
            return Ok(state);
        }
        let mirror = &self.source.mirror().name;
        let params = [
            (mirror as _, Type::TEXT),
            (&state.serving as _, Type::TEXT),
            (&current as _, Type::TEXT),
        ];
        let rows = self
            .source
            .query("select leasehold_internal.mirror_adopts($1, $2, $3)", &params)
            .await?;
        if rows.first().is_some_and(|row| row.get(0)) {
            let former = &state.serving;
            tracing::warn!(
                mirror,
                former,
                current,
                "the store searches another set; it is used now"
            );
        }
        Ok(self.state().await?.unwrap_or(state))
    }

    /// Returns what the database records about the sets; `None`: the set that is searched is not
    /// recorded yet.
    pub(crate) async fn state(&self) -> Result<Option<State>, MirrorError> {
        self.source.prepared().await?;
        let sql = "select serving, second, phase, rebuild_after from leasehold_internal.mirror where name = $1";
        let rows = self.source.query(sql, &[(&self.source.mirror().name, Type::TEXT)]).await?;
        Ok(rows.first().and_then(|row| {
            let phase = match row.get(2) {
                "building" => Phase::Building,
                "verifying" => Phase::Verifying,
                "swapped" => Phase::Swapped,
                _ => Phase::None,
            };
            let serving: Option<String> = row.get(0);
            Some(State { serving: serving?, second: row.get(1), phase, rebuild_after: row.get(3) })
        }))
    }
}
