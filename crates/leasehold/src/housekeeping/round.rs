//! One tick of housekeeping: leases, schedules, the walk over all jobs, and whether a sample is due.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::measure::Measuring;
use super::reclaim::{ReclaimLeases, walk_jobs};
use super::rights::{Allowed, Rights};
use crate::alarm::Thresholds;
use crate::engine::Leasehold;
use crate::error::CallError;
use crate::events::{Event, Events};
use crate::link::Link;
use crate::schedule::{self, Declared};
use crate::service::Duty;
use crate::worker::wakes::Notifiers;

/// `clamp_leases` runs once per this many ticks.
const CLAMP_EVERY: u32 = 60;
/// How long one round looks at batches. The next round continues.
const LOOK: Duration = Duration::from_secs(1);

pub(super) struct Round {
    engine: Engine,
    rights: Rights,
    leases: ReclaimLeases,
    schedules: Declared,
    measuring: Measuring,
    ticks: u32,
    asking: Duty,
    reclaiming: Duty,
    clamping: Duty,
    declaring: Duty,
    firing: Duty,
    walking: Duty,
    closing: Duty,
    /// Schedules that failed to fire at the last tick.
    bad_schedules: HashMap<String, Duty>,
}

/// What every duty needs.
struct Engine {
    engine: Leasehold,
    link: Link,
    events: Events,
    notifiers: Arc<Notifiers>,
}

impl Engine {
    fn note<T>(&self, duty: &mut Duty, result: Result<T, CallError>) -> Option<T> {
        super::note(&self.engine, duty, result)
    }

    fn wake_all(&self) {
        self.notifiers.values().for_each(|notifier| notifier.notify_one());
    }
}

impl Round {
    pub(super) fn new(
        engine: Leasehold,
        link: Link,
        schedules: Declared,
        events: Events,
        notifiers: Arc<Notifiers>,
    ) -> Self {
        let duty = |name: &str| Duty::new(name, &events);
        Self {
            rights: Rights::default(),
            leases: ReclaimLeases::default(),
            schedules,
            measuring: Measuring::new(&events),
            ticks: 0,
            asking: duty("ask for rights"),
            reclaiming: duty("reclaim leases"),
            clamping: duty("clamp leases"),
            declaring: duty("declare schedules"),
            firing: duty("fire schedules"),
            walking: duty("walk over jobs"),
            closing: duty("close batches"),
            bad_schedules: HashMap::new(),
            engine: Engine { engine, link, events, notifiers },
        }
    }

    /// Runs each duty that is allowed, and returns which ones are.
    pub(super) async fn tick(&mut self, thresholds: Option<&Thresholds>) -> Allowed {
        let asked = self.rights.ask(&self.engine.link, &self.engine.events).await;
        // Without a reply the database is down: every other call would fail too.
        let Some(may) = self.engine.note(&mut self.asking, asked) else {
            return Allowed::default();
        };
        if may.leases && !self.reclaim().await {
            return may;
        }
        if may.clamp && self.ticks.is_multiple_of(CLAMP_EVERY) {
            let clamped =
                self.engine.link.query("select leasehold_internal.clamp_leases()", &[]).await;
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
        if may.batches {
            self.close_batches().await;
        }
        if let Some(thresholds) = thresholds.filter(|_| may.measure) {
            let Engine { engine, link, events, .. } = &self.engine;
            self.measuring.tick(link, engine, events, thresholds).await;
        }
        self.ticks = self.ticks.wrapping_add(1);
        may
    }

    /// Reclaims expired leases. Returns false without a connection: every other call of this tick would
    /// fail too.
    async fn reclaim(&mut self) -> bool {
        let reclaimed = self.leases.run_once(&self.engine.link).await;
        let away = matches!(reclaimed, Err(CallError::Connect(_)));
        let reclaimed = self.engine.note(&mut self.reclaiming, reclaimed).unwrap_or_default();
        if reclaimed.is_empty() {
            return !away;
        }
        let returned = reclaimed.iter().map(|queue| queue.returned).sum();
        let dead = reclaimed.iter().map(|queue| queue.dead).sum();
        for one in &reclaimed {
            self.engine.engine.process().reclaimed(&one.queue, one.returned, one.dead);
        }
        tracing::info!(returned, dead, "leases were reclaimed");
        for one in reclaimed.iter().filter(|one| one.dead > 0) {
            tracing::error!(
                queue = one.queue,
                jobs = one.dead,
                "jobs are dead: they lost too many workers, or the worker of their last attempt"
            );
        }
        self.engine.events.send(|| Event::Reclaimed { returned, dead });
        self.engine.wake_all();
        true
    }

    async fn fire(&mut self) {
        let report = schedule::fire_due(&self.engine.link).await;
        let Some(report) = self.engine.note(&mut self.firing, report) else { return };
        if !report.fired.is_empty() {
            self.engine.wake_all();
        }
        for (schedule, job) in report.fired {
            tracing::info!(schedule, job.id = job.0, "a schedule fired");
            self.engine.engine.process().fired(&schedule);
            self.engine.events.send(|| Event::ScheduleFired { schedule, job });
        }
        // Drop the schedules that did not fail this time: they fired, or are not due.
        let mut known = std::mem::take(&mut self.bad_schedules);
        for (schedule, error) in report.failed {
            let new = || Duty::new(format!("fire schedule {schedule}"), &self.engine.events);
            let mut duty = known.remove(&schedule).unwrap_or_else(new);
            duty.note_failure(&error);
            self.bad_schedules.insert(schedule, duty);
        }
    }

    /// Closes batches whose last jobs ended at the same time.
    async fn close_batches(&mut self) {
        let (mut batches, began) = (0, Instant::now());
        loop {
            let sql = "select closed, more from leasehold_internal.look_at_batches()";
            let looked = self.engine.link.query(sql, &[]).await;
            let Some(rows) = self.engine.note(&mut self.closing, looked) else { return };
            let (closed, more) =
                rows.first().map_or((0, false), |row| (row.get::<_, i32>(0), row.get(1)));
            batches += closed;
            if !more || began.elapsed() > LOOK {
                break;
            }
        }
        if batches > 0 {
            tracing::debug!(batches, "batches were closed");
            self.engine.wake_all();
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
            tracing::warn!(
                jobs = walked.strays,
                "jobs were held by a lease that does not exist; they were returned"
            );
            self.engine.wake_all();
        }
    }
}
