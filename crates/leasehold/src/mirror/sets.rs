//! Decides which sets of the store are written: the one that is searched, and during and after a
//! rebuild a second one.
//!
//! # What is true
//! - A write to the set that is searched never waits for the second set first.
//! - A second set that does not answer keeps jobs from completing, and gets few calls meanwhile.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tokio_postgres::types::Type;

use super::declare::Store;
use super::failed_target::FailedTarget;
use super::prepare::MirrorError;
use super::runtime::MirrorRuntime;
use super::target::{Target, TargetError, Targets};
use super::throttle::Permit;

/// The sets of documents that are written now.
#[derive(Clone)]
pub(super) struct Sets {
    pub(super) serving: Arc<dyn Target>,
    pub(super) second: Option<Arc<dyn Target>>,
    pub(super) state: Option<State>,
}

/// What the database records about the sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) serving: String,
    pub(super) second: Option<String>,
    pub(super) phase: Phase,
    pub(super) rebuild_after: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    None,
    Building,
    Verifying,
    Swapped,
}

impl MirrorRuntime {
    /// Returns the sets to write. Called with every batch, because a rebuild may begin between two of
    /// them.
    pub(super) async fn sets(&self) -> Result<Sets, MirrorError> {
        self.sets_with(true).await
    }

    /// The same for callers that must not wait for the second set: it is included if it is open and
    /// answers.
    pub(super) async fn sets_at_hand(&self) -> Result<Sets, MirrorError> {
        let mut sets = self.sets_with(false).await?;
        sets.second.take_if(|_| self.mirror.shared.second().is_closed(Instant::now()));
        Ok(sets)
    }

    async fn sets_with(&self, open_second: bool) -> Result<Sets, MirrorError> {
        let targets = match self.mirror.store()? {
            Store::One(target) => {
                return Ok(Sets { serving: Arc::clone(target), second: None, state: None });
            }
            Store::Many(targets) => targets,
        };
        let state = match self.state().await? {
            Some(state) => state,
            None => {
                let current = self.call(targets.current()).await?;
                let sql = "select leasehold.mirror_serves($1, $2)";
                let params = [(&self.mirror.name as _, Type::TEXT), (&current as _, Type::TEXT)];
                self.link.query(sql, &params).await?;
                let missing =
                    || MirrorError::State(format!("mirror {:?} is gone", self.mirror.name));
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
        opened: &mut HashMap<String, Arc<dyn Target>>,
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

    /// Makes a call to the second set. While that set does not answer, one caller at a time probes it,
    /// with growing waits; the others fail at once.
    pub(super) async fn of_second<T>(
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
        let (asked, second) = (Instant::now(), || self.mirror.shared.second());
        let leave = second().ask(self.mirror.batch, self.mirror.limit, asked);
        if matches!(leave, Permit::RetryAfter(_)) {
            return Err(TargetError::Down("the second set is left alone".to_owned()).into());
        }
        let answer = asking.await;
        match &answer {
            Ok(_) if is_proof => {
                second().succeeded(self.mirror.batch);
            }
            Ok(_) => second().unasked(),
            Err(MirrorError::Target(error)) => {
                let wait = second().failed(false, asked, Instant::now());
                let error = crate::error_text::one_line(&error.to_string());
                tracing::warn!(mirror = self.name(), error, ?wait, "the second set falls behind");
            }
            Err(_) => second().unasked(),
        }
        answer
    }

    async fn open(
        &self,
        opened: &mut HashMap<String, Arc<dyn Target>>,
        targets: &dyn Targets,
        name: &String,
    ) -> Result<Arc<dyn Target>, TargetError> {
        if let Some(target) = opened.get(name) {
            return Ok(Arc::clone(target));
        }
        let target = self.call(targets.open(name)).await?;
        opened.insert(name.clone(), Arc::clone(&target));
        Ok(target)
    }

    /// Asks the store which set it searches, at first and after every failure: a store that was lost
    /// and created anew has another one, and no search would find what is written under the old name.
    async fn confirm(&self, targets: &dyn Targets, state: State) -> Result<State, MirrorError> {
        if self.confirmed.load(Ordering::Relaxed) {
            return Ok(state);
        }
        self.opened.lock().await.clear();
        let current = self.call(targets.current()).await?;
        self.confirmed.store(true, Ordering::Relaxed);
        if current == state.serving {
            return Ok(state);
        }
        let params = [
            (&self.mirror.name as _, Type::TEXT),
            (&state.serving as _, Type::TEXT),
            (&current as _, Type::TEXT),
        ];
        let rows = self.link.query("select leasehold.mirror_adopts($1, $2, $3)", &params).await?;
        if rows.first().is_some_and(|row| row.get(0)) {
            let (mirror, former) = (self.name(), &state.serving);
            tracing::warn!(mirror, former, current, "the store searches another set; it is taken");
        }
        Ok(self.state().await?.unwrap_or(state))
    }

    /// Returns what the database records about the sets; `None`: the set that is searched is not
    /// recorded yet.
    pub(super) async fn state(&self) -> Result<Option<State>, MirrorError> {
        self.prepared().await?;
        let sql =
            "select serving, second, phase, rebuild_after from leasehold.mirror where name = $1";
        let rows = self.link.query(sql, &[(&self.mirror.name, Type::TEXT)]).await?;
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
