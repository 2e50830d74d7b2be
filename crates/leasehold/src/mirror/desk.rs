//! What everyone who works on a mirror in this process shares: its session, its store, its pace.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::OnceCell;
use tokio_postgres::types::Type;

use super::declare::{Mirror, Store};
use super::pace::{Leave, Pace};
use super::prepare::{CALL_LIMIT, MirrorError, Prepared};
use super::target::{Target, TargetError, Targets};
use super::unopened::Unopened;
use crate::engine::Leasehold;
use crate::link::Link;

/// Our statements go by the index of the key, also where statistics of a table that was just filled
/// say otherwise.
pub(crate) const SETTINGS: &str =
    "set enable_seqscan = off; set plan_cache_mode = force_generic_plan";

/// What is known about the store.
#[derive(Default)]
pub(super) struct Shared {
    pace: Mutex<Pace>,
    /// Keys that the direct path left to the jobs.
    pub(super) dropped: AtomicU64,
    /// Keys that the direct path wrote.
    pub(super) direct: AtomicU64,
    /// When somebody's change came by last, as far as this process knows.
    live: Mutex<Option<Instant>>,
}

/// People come and go; while some came by in this time, more will.
const LIVELY: Duration = Duration::from_secs(120);

impl Shared {
    /// A change that is no bulk work came by.
    pub(super) fn seen_live(&self) {
        *self.live.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Whether people change rows these days.
    pub(super) fn is_live(&self) -> bool {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.is_some_and(|at| at.elapsed() < LIVELY)
    }

    pub(super) fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sets of documents that are written now.
#[derive(Clone)]
pub(super) struct Sets {
    pub(super) serving: Arc<dyn Target>,
    pub(super) second: Option<Arc<dyn Target>>,
    pub(super) state: Option<State>,
}

/// What stands in the database about the sets.
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

/// A mirror at work.
pub(crate) struct Desk {
    pub(super) mirror: Mirror,
    pub(super) link: Link,
    prepared: OnceCell<Prepared>,
    opened: tokio::sync::Mutex<HashMap<String, Arc<dyn Target>>>,
    /// The store has said which set it searches, and has not failed since.
    confirmed: AtomicBool,
}

impl Desk {
    pub(crate) fn new(engine: &Leasehold, mirror: Mirror) -> Self {
        let link = Link::with_settings(engine.database().clone(), CALL_LIMIT, SETTINGS);
        Self {
            mirror,
            link,
            prepared: OnceCell::new(),
            opened: Default::default(),
            confirmed: AtomicBool::new(false),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.mirror.name
    }

    pub(crate) fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// Checks the mirror against its table, once.
    pub(crate) async fn prepared(&self) -> Result<&Prepared, MirrorError> {
        self.prepared
            .get_or_try_init(|| async {
                self.mirror.store()?;
                Prepared::new(&self.mirror, &self.link).await
            })
            .await
    }

    pub(super) fn pace(&self) -> MutexGuard<'_, Pace> {
        self.mirror.shared.pace()
    }

    /// Whether to ask the store now, and for how many rows.
    pub(super) fn leave(&self) -> Leave {
        self.pace().ask(self.mirror.batch, self.mirror.limit, Instant::now())
    }

    /// The store did what it was asked. If it had been away, what was put off meanwhile is due.
    pub(super) async fn succeeded(&self) {
        if !self.pace().succeeded(self.mirror.batch) {
            return;
        }
        tracing::info!(mirror = self.mirror.name, "the store answers again");
        let sql = "select leasehold.mirror_recovered($1, 5000)";
        loop {
            match self.link.query(sql, &[(&self.mirror.name, Type::TEXT)]).await {
                Ok(rows) if rows.first().is_some_and(|row| row.get::<_, i32>(0) >= 5000) => {}
                Ok(_) => return,
                // They come back by themselves, a little later.
                Err(error) => return tracing::debug!(%error, "nothing was brought forward"),
            }
        }
    }

    /// The store did not do it. Answers how long it is left alone.
    pub(super) fn failed(&self, error: &TargetError) -> Duration {
        let wait = self.missed(&mut self.pace(), error);
        tracing::warn!(mirror = self.mirror.name, %error, ?wait, "the store is left alone");
        wait
    }

    /// The same for whoever keeps a pace of its own.
    pub(super) fn missed(&self, pace: &mut Pace, error: &TargetError) -> Duration {
        self.confirmed.store(false, Ordering::Relaxed);
        pace.failed(matches!(error, TargetError::Overloaded(_)), Instant::now())
    }

    /// The second set did not do it. Nobody else waits for that. Answers what to tell people.
    pub(super) fn is_behind(&self, error: &TargetError) -> String {
        tracing::warn!(mirror = self.mirror.name, %error, "the second set falls behind");
        format!("the second set: {error}")
    }

    /// One call to the store, with the time limit that every call has.
    pub(super) async fn call<T>(
        &self,
        call: impl Future<Output = Result<T, TargetError>>,
    ) -> Result<T, TargetError> {
        match tokio::time::timeout(self.mirror.limit, call).await {
            Ok(answer) => answer,
            Err(_) => {
                let limit = self.mirror.limit.as_millis();
                Err(TargetError::Overloaded(format!("no answer within {limit} ms")))
            }
        }
    }

    /// The sets that are written now. Asked with every batch: a rebuild begins between two of them.
    pub(super) async fn sets(&self) -> Result<Sets, MirrorError> {
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
            Some(name) => Some(match self.open(&mut opened, &**targets, name).await {
                Ok(target) => target,
                // It must not keep the set that is searched from being written.
                Err(error) => Arc::new(Unopened(error)),
            }),
            None => None,
        };
        Ok(Sets { serving, second, state: Some(state) })
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

    /// Asks the store itself which set it searches, at first and after every failure: one that was lost
    /// and made anew has another, and what is written under the old name is found by nobody.
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

    /// What stands in the database about the sets; `None`: nobody has said which one is searched.
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
