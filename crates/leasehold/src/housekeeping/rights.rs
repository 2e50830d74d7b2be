//! Rights: which duties the role of this worker may do. A duty that it may not do would fail at every
//! tick.

use std::time::{Duration, Instant};

use crate::backoff::jitter;
use crate::engine::Leasehold;
use crate::error::{CallError, EnqueueError};
use crate::events::{Event, Events};
use crate::link::Link;

/// The functions that each duty calls. A missing function counts as not allowed.
const MAY: &str = "select d.duty, current_user::text, \
      bool_and(coalesce(has_function_privilege(p.oid, 'execute'), false)) \
      and (d.duty <> 'schedules' or (has_table_privilege('leasehold_internal.schedule', 'select') \
           and has_table_privilege('leasehold_internal.schedule', 'insert') \
           and has_table_privilege('leasehold_internal.schedule', 'update'))) \
     from (values ('leases', 'reclaim'), ('clamp', 'clamp_leases'), ('walk', 'walk_jobs'), ('batches', 'look_at_batches'), \
                  ('schedules', 'fire_schedule'), ('schedules', 'retire_schedule'), \
                  ('schedules', 'undeclared_schedules'), ('prune', 'prune_kind'), \
                  ('prune', 'prune_measures'), ('prune', 'extend_history'), ('prune', 'drop_history'), \
                  ('measure', 'sample_due'), ('measure', 'begin_sample'), ('measure', 'measure_part'), \
                  ('measure', 'end_sample'), ('measure', 'alarm_snapshot'), ('measure', 'apply_alarms') \
          ) as d (duty, function) \
     left join pg_proc p on p.proname = d.function and p.pronamespace = 'leasehold_internal'::regnamespace \
    group by d.duty order by d.duty";

/// While a privilege is missing, ask again after this time: a grant needs no restart.
const ASK_AGAIN: Duration = Duration::from_secs(60);

/// Which duties are allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Allowed {
    pub(super) leases: bool,
    pub(super) clamp: bool,
    pub(super) walk: bool,
    pub(super) batches: bool,
    pub(super) schedules: bool,
    pub(super) prune: bool,
    pub(super) measure: bool,
}

impl Allowed {
    fn set(&mut self, duty: &str, allowed: bool) {
        match duty {
            "leases" => self.leases = allowed,
            "clamp" => self.clamp = allowed,
            "walk" => self.walk = allowed,
            "batches" => self.batches = allowed,
            "schedules" => self.schedules = allowed,
            "prune" => self.prune = allowed,
            _ => self.measure = allowed,
        }
    }
}

/// Asks until every duty is allowed, and logs once what is not.
#[derive(Default)]
pub(super) struct Rights {
    allowed: Option<Allowed>,
    ask_at: Option<Instant>,
    warned: bool,
}

impl Rights {
    /// Returns what is allowed, as far as is known.
    pub(super) async fn ask(&mut self, link: &Link, events: &Events) -> Result<Allowed, CallError> {
        if let Some(allowed) = self.allowed
            && self.ask_at.is_none_or(|at| Instant::now() < at)
        {
            return Ok(allowed);
        }
        let (mut allowed, mut missing, mut role) = (Allowed::default(), Vec::new(), String::new());
        for row in link.query(MAY, &[]).await? {
            let (duty, may): (&str, bool) = (row.get(0), row.get(2));
            role = row.get(1);
            allowed.set(duty, may);
            if !may {
                missing.push(duty.to_owned());
            }
        }
        self.ask_at = (!missing.is_empty()).then(|| Instant::now() + jitter(ASK_AGAIN));
        self.allowed = Some(allowed);
        if !missing.is_empty() && !self.warned {
            self.warned = true;
            tracing::warn!(
                role,
                duties = missing.join(", "),
                "this worker may not do these duties of housekeeping, and leaves them to processes \
                 that may; to let it: grant leasehold_housekeeper to \"{}\"",
                role.replace('"', "\"\"")
            );
            events.send(|| Event::DutiesNotAllowed { role, duties: missing });
        }
        Ok(allowed)
    }
}

impl Leasehold {
    /// Returns whether the role of this connection may reclaim leases, fire schedules, take samples and
    /// raise alarms: the owner of the schema and members of `leasehold_housekeeper` may.
    pub async fn may_run_housekeeping(&self) -> Result<bool, EnqueueError> {
        let client = self.client().await?;
        let rows = client.query_typed(MAY, &[]).await?;
        Ok(!rows.is_empty() && rows.iter().all(|row| row.get(2)))
    }
}
