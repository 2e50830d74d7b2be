//! One tick of housekeeping: leases, schedules, the walk over all jobs, and whether a sample is due.

use std::collections::HashMap;
use std::sync::Arc;

use super::duty::Duty;
use super::expire::{ExpireLeases, walk_jobs};
use super::measure::Measuring;
use super::rights::{Allowed, Rights};
use crate::engine::Leasehold;
use crate::error::CallError;
use crate::events::{Event, Events};
use crate::link::Link;
use crate::schedule::{self, Declared};
use crate::worker::wakes::Bells;

/// `clamp_leases` runs once per this many ticks.
const CLAMP_EVERY: u32 = 60;

pub(super) struct Round {
    engine: Engine,
    rights: Rights,
    leases: ExpireLeases,
    schedules: Declared,
    measuring: Measuring,
    ticks: u32,
    asking: Duty,
    reclaiming: Duty,
    clamping: Duty,
    declaring: Duty,
    firing: Duty,
    walking: Duty,
    /// Schedules that failed to fire at the last tick.
    bad_schedules: HashMap<String, Duty>,
}

/// What every duty needs.
struct Engine {
    engine: Leasehold,
    link: Link,
    events: Events,
    bells: Arc<Bells>,
}

impl Engine {
    fn note<T>(&self, duty: &mut Duty, result: Result<T, CallError>) -> Option<T> {
        duty.note(&self.engine, &self.events, result)
    }

    fn wake_all(&self) {
        self.bells.values().for_each(|bell| bell.notify_one());
    }
}

impl Round {
    pub(super) fn new(
        engine: Leasehold,
        link: Link,
        schedules: Declared,
        events: Events,
        bells: Arc<Bells>,
    ) -> Self {
        Self {
            engine: Engine { engine, link, events, bells },
            rights: Rights::default(),
            leases: ExpireLeases::default(),
            schedules,
            measuring: Measuring::default(),
            ticks: 0,
            asking: Duty::new("ask for rights"),
            reclaiming: Duty::new("reclaim leases"),
            clamping: Duty::new("clamp leases"),
            declaring: Duty::new("declare schedules"),
            firing: Duty::new("fire schedules"),
            walking: Duty::new("walk over jobs"),
            bad_schedules: HashMap::new(),
        }
    }

    /// Runs each duty that is allowed, and returns which ones are.
    pub(super) async fn tick(&mut self, measures: bool) -> Allowed {
        let asked = self.rights.ask(&self.engine.link, &self.engine.events).await;
        // Without a reply the database is away: every other call would fail too.
        let Some(may) = self.engine.note(&mut self.asking, asked) else {
            return Allowed::default();
        };
        if may.leases && !self.reclaim().await {
            return may;
        }
        if may.clamp && self.ticks.is_multiple_of(CLAMP_EVERY) {
            let clamped = self.engine.link.query("select leasehold.clamp_leases()", &[]).await;
            self.engine.note(&mut self.clamping, clamped);
        }
        if may.schedules {
            let declared = self.schedules.declare(&self.engine.link).await;
            self.engine.note(&mut self.declaring, declared);
            self.fire().await;
        }
        if may.walk {
            self.walk().await;
        }
        if may.measure && measures {
            self.measuring.tick(&self.engine.link, &self.engine.engine, &self.engine.events).await;
        }
        self.ticks = self.ticks.wrapping_add(1);
        may
    }

    /// Reclaims expired leases. Returns false without a connection: every other call of this tick would
    /// fail too.
    async fn reclaim(&mut self) -> bool {
        let expired = self.leases.run_once(&self.engine.link).await;
        let away = matches!(expired, Err(CallError::Connect(_)));
        let expired = self.engine.note(&mut self.reclaiming, expired).unwrap_or_default();
        if expired.is_empty() {
            return !away;
        }
        let returned = expired.iter().map(|gone| gone.returned).sum();
        let buried = expired.iter().map(|gone| gone.buried).sum();
        for gone in &expired {
            self.engine.engine.process().rescued(&gone.queue, gone.returned, gone.buried);
        }
        tracing::info!(returned, buried, "leases expired");
        for gone in expired.iter().filter(|gone| gone.buried > 0) {
            tracing::error!(
                queue = gone.queue,
                jobs = gone.buried,
                "jobs are dead: they lost too many workers, or the worker of their last attempt"
            );
        }
        self.engine.events.send(|| Event::Expired { returned, buried });
        self.engine.wake_all();
        true
    }

    async fn fire(&mut self) {
        let looked = schedule::fire_due(&self.engine.link).await;
        let Some(looked) = self.engine.note(&mut self.firing, looked) else { return };
        if !looked.fired.is_empty() {
            self.engine.wake_all();
        }
        for (schedule, job) in looked.fired {
            tracing::info!(schedule, job.id = job.0, "a schedule fired");
            self.engine.engine.process().fired(&schedule);
            self.engine.events.send(|| Event::ScheduleFired { schedule, job });
        }
        // Drop the schedules that did not fail this time: they fired, or are not due.
        let mut known = std::mem::take(&mut self.bad_schedules);
        for (schedule, error) in looked.failed {
            let mut duty = known
                .remove(&schedule)
                .unwrap_or_else(|| Duty::new(format!("fire schedule {schedule}")));
            duty.note_failure(&self.engine.events, &error);
            self.bad_schedules.insert(schedule, duty);
        }
    }

    async fn walk(&mut self) {
        let walked = walk_jobs(&self.engine.link).await;
        let Some(walked) = self.engine.note(&mut self.walking, walked) else { return };
        if walked.expired > 0 {
            tracing::error!(
                jobs = walked.expired,
                "jobs are dead: they were not started before they expired"
            );
        }
        if walked.strays > 0 {
            tracing::warn!(jobs = walked.strays, "jobs were held by no lease; they are given back");
            self.engine.wake_all();
        }
    }
}
